# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold code for managed hosts to Python 3.8: the grammar, and byte-compilation by a real 3.8 where there is one."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from .env import candidates, version_of
from .paths import ROOT

FLOOR = (3, 8)
FOLDERS = ("plugins/modules", "plugins/module_utils")
COMPILE = "import sys\nfor path in sys.argv[1:]:\n    compile(open(path, encoding='utf-8').read(), path, 'exec')\n"


def host_files() -> list[Path]:
    return sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))


def main() -> int:
    files = host_files()
    failed = 0
    for path in files:
        try:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=FLOOR)
        except SyntaxError as exc:
            failed += 1
            print(f"{path.relative_to(ROOT)}:{exc.lineno}: not Python {FLOOR[0]}.{FLOOR[1]}: {exc.msg}")
    old = next((p for p in candidates("3.8") if (version_of(p) or "").startswith("3.8.")), None)
    if old and not failed:
        done = subprocess.run([old, "-c", COMPILE, *map(str, files)], capture_output=True, text=True, check=False)
        if done.returncode:
            failed += 1
            print(done.stderr.strip())
    print(
        f"floor: grammar of {len(files)} files"
        + (f", compiled by {old}" if old else "; no Python 3.8 here to compile with")
    )
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
