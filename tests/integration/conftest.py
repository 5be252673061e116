# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The staged tree is the collection that these tests import; the lab and its caches are those of the checkout."""

from __future__ import annotations

import sys

from tests.tools.paths import STAGE

if str(STAGE) not in sys.path:
    sys.path.insert(0, str(STAGE))
