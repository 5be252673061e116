# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of docs/troubleshooting.md from the causes that the playbook doctor knows.

python -m tests.tools.tree, in a tree where Ansible finds the collection (make stage)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .paths import ROOT, STAGE, environment
from .support import END, START, table

PAGE = "docs/troubleshooting.md"
HEAD = ("id", "what you see", "cause", "prove it", "remedy")


def page(root: Path) -> str:
    """The page with its tables as the tree has them now."""
    from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.cause import CHAPTERS
    from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.causes import CAUSES

    text = (root / PAGE).read_text(encoding="utf-8")
    for chapter in CHAPTERS:
        rows = [
            ["`%s`" % one.id, *(cell.replace("|", "\\|") for cell in (one.seen, one.what, one.prove, one.remedy))]
            for one in CAUSES
            if one.chapter == chapter
        ]
        start, end = START % chapter, END % chapter
        before, found, rest = text.partition(start)
        _old, also, after = rest.partition(end)
        if not found or not also:
            raise ValueError("%s has no %s with its %s" % (PAGE, start, end))
        text = "%s%s\n\n%s\n\n%s%s" % (before, start, table(HEAD, rows), end, after)
    return text


def main() -> None:
    if "--here" in sys.argv:
        print(page(ROOT), end="")
        return
    words = [sys.executable, "-m", "tests.tools.tree", "--here"]
    done = subprocess.run(
        words, cwd=ROOT, env=environment(PYTHONPATH=str(STAGE)), stdout=subprocess.PIPE, text=True, check=True
    )
    (ROOT / PAGE).write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
