# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection with a writer that kills itself at a step of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration._play import FOLDER, STAGE

KILLER = FOLDER / "killer"
WRITER = "ansible_collections/rebellions/npu/plugins/module_utils/_host/writer.py"
HOOK = """

def _killed(step: str) -> None:
    import signal

    try:
        with open("/run/npu-it/kill", encoding="utf-8") as stream:
            wanted = stream.read().strip()
    except FileNotFoundError:
        return
    with open("/run/npu-it/steps", "a+", encoding="utf-8") as stream:
        stream.write(step + "\\n")
        stream.seek(0)
        number = len(stream.readlines()) - 1
    if wanted in (step, str(number)):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def make_killer() -> Path:
    """A collections folder whose writer dies at a chosen step.

    The host's /run/npu-it/kill holds the number or name of the step; the writer notes its steps in /run/npu-it/steps.
    """
    shutil.rmtree(KILLER, ignore_errors=True)
    shutil.copytree(STAGE, KILLER, ignore=shutil.ignore_patterns(".git", "tests"))
    path = KILLER / WRITER
    text = path.read_text()
    assert text.count("self.mark = mark or (lambda step: None)") == 1
    path.write_text(text.replace("self.mark = mark or (lambda step: None)", "self.mark = mark or _killed") + HOOK)
    return KILLER
