# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make proof-bench`: five interleaved rounds on ten and on a hundred hosts, then runs of 50, 200 and 500 hosts.

SAMPLE=1 makes it one round on ten.
"""

from __future__ import annotations

import os
import sys

from tests.bench.__main__ import main
from tests.bench.cdi_syscalls import ROUNDS

if __name__ == "__main__":
    sys.exit(main(["--rounds", "1" if os.environ.get("SAMPLE") else str(ROUNDS)]))
