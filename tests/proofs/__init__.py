# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longer proofs. They import the staged collection, wherever in a file the import stands."""

import sys

from tests.tools.paths import STAGE

if str(STAGE) not in sys.path:
    sys.path.insert(0, str(STAGE))
