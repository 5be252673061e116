# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_observe: what it says of an account that cannot become root."""

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_observe import _no_python, _no_root


@pytest.mark.parametrize(
    "said, told",
    [
        ("Missing sudo password", "Missing sudo password"),
        ("Incorrect su password", "Incorrect su password"),
        (
            "Premature end of stream waiting for become success.\n>>> Standard Error\nsudo: a password is required",
            "sudo: a password is required",
        ),
        ("Timeout (12s) waiting for privilege escalation prompt: ", "Timeout (12s) waiting for privilege escalation"),
        ("sudo: npu is not in the sudoers file.", "sudo: npu is not in the sudoers file"),
        ("sudo: unable to resolve host n1\nsudo: a password is required", "sudo: a password is required"),
        ("/bin/sh: 1: exec: sudo: not found\n", "/bin/sh: 1: exec: sudo: not found"),
        # As sudo says it to an account whose password is right.
        ("npu is not in the sudoers file.  This incident will be reported.", "npu is not in the sudoers file"),
        (
            "sudo: unable to resolve host n1: x\nSorry, user npu is not allowed to execute '/bin/sh' as root on n1.",
            "Sorry, user npu is not allowed",
        ),
    ],
)
def test_become_that_does_not_work_is_said_in_one_sentence(said: str, told: str) -> None:
    text = _no_root("n1", said)
    assert text.startswith("n1: become does not work: " + told) and text.count(" Next: ") == 1
    assert text.endswith("Next: Let the account of the connection become root, give its password with "
                         "--ask-become-pass, or connect as root.")  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Connection refused",
        "No module named 'x'",
        "pseudo: x",
        "the result: y",
        # A warning: the fault is the next line.
        "sudo: unable to resolve host n1: Name or service not known\n/bin/sh: 1: /opt/python3: not found",
        "sudo: setrlimit(RLIMIT_CORE): Operation not permitted\nOSError: [Errno 28] No space left on device",
    ],
)
def test_other_errors_stay_what_they_are(said: str) -> None:
    assert _no_root("n1", said) == ""


def test_a_python_that_is_no_program_is_named() -> None:
    text = _no_python("n1", "sudo: unable to resolve host n1\n/bin/sh: 1: /usr/bin/python9: not found\n", 127)
    assert text == (
        "n1: its Python does not run: /bin/sh: 1: /usr/bin/python9: not found. "
        "Next: Install Python 3.8 or newer there, and set ansible_python_interpreter to its path."
    )
    assert _no_python("n1", "", 127).startswith("n1: its Python does not run: no such program. Next: ")
    assert _no_python("n1", "/bin/sh: 1: /usr/bin/python9: not found", 1) == ""
