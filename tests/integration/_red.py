# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person at the terminal sees of a failure: the red messages of Ansible's default callback."""

from __future__ import annotations

import json
import re

from tests.integration._play import Run

# For play(): the callback and the width that people have.
TERMINAL = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "COLUMNS": "120", "ANSIBLE_NOCOLOR": "1"}
# Characters of a message that is read once; and of its line, which has the keys of Ansible too.
MESSAGE, LINE = 900, 1500
_FATAL = re.compile(r"^(?:fatal|failed): \[([^\]]+)\]: (?:FAILED|UNREACHABLE)! => (.*)$", re.M)
_ERROR = re.compile(r"^\[ERROR\]: (.*?)(?=^Origin: |^fatal: |\Z)", re.M | re.S)


def red(run: Run) -> dict[str, list[str]]:
    """{host: its red lines}; errors that name no host are of the host ''.

    From 2.19 on Ansible shows each failure in two forms, one below the other: that counts as one.
    """
    found: dict[str, list[str]] = {}
    for host, line in _FATAL.findall(run.out + run.err):
        found.setdefault(host, []).append(line)
    told = [" ".join(message(line).split()) for lines in found.values() for line in lines]
    for text in _ERROR.findall(run.out + run.err):
        if not any(one in " ".join(text.split()) for one in told):
            found.setdefault("", []).append(text)
    return found


def message(line: str) -> str:
    """The text of a red line."""
    try:
        return str(json.loads(line)["msg"])
    except (ValueError, KeyError, TypeError):
        return line


def judge(text: str, *words: str) -> None:
    """One message: all of these words, a next step, and no more than a tired person reads."""
    assert [word for word in words if word not in text] == [], text
    assert "Next: " in text, text
    assert len(text) <= MESSAGE, (len(text), text)
    assert "Traceback" not in text and "bug" not in text, text


def one_message(run: Run, host: str, *words: str) -> None:
    """The host has one red line in the whole run, and it is a good one."""
    lines = red(run).get(host, [])
    assert len(lines) == 1, (host, lines, run.err[-1500:])
    assert len(lines[0]) <= LINE, (len(lines[0]), lines[0])
    judge(message(lines[0]), *words)
