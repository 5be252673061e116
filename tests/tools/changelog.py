# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run antsibull-changelog in the staged collection and bring its files back to the checkout.

In the staged collection it finds the plugins by name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from .paths import ROOT, STAGED, environment


def main() -> int:
    argv = ["antsibull-changelog", "release", "--reload-plugins", "--update-existing"]
    code = subprocess.run(argv, cwd=STAGED, env=environment(), stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        return code
    for name in ("CHANGELOG.md", "changelogs/changelog.yaml"):
        shutil.copyfile(STAGED / name, ROOT / name)
    for fragment in (ROOT / "changelogs" / "fragments").glob("*.yml"):
        if not (STAGED / fragment.relative_to(ROOT)).exists():
            fragment.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
