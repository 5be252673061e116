# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reads of a host that gives no answer."""

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.way import no_root, unreachable


@pytest.mark.parametrize(
    "said, told",
    [
        ("sudo: a password is required\n", "sudo: a password is required"),
        ("Warning: locale\nsudo: a terminal is required to read the password\n", "sudo: a terminal is required"),
        ("/bin/sh: 1: sudo: not found\n", "sudo: not found"),
        ("nobody is not in the sudoers file.", "nobody is not in the sudoers file"),
        ("Missing sudo password", "Missing sudo password"),
        ("Incorrect su password", "Incorrect su password"),
        ("su: Authentication failure", "su: Authentication failure"),
        ("doas: Operation not permitted", "doas: Operation not permitted"),
        ("Timeout (12s) waiting for privilege escalation prompt: ", "waiting for privilege escalation prompt"),
    ],
)
def test_a_user_who_may_not_become_root_is_one_sentence(said: str, told: str) -> None:
    found = str(no_root("npu-a", said))
    assert found.startswith("On npu-a the user of the connection cannot become root: ") and told in found
    assert found.count("Next: ") == 1 and "\n" not in found and "ansible -b -m command -a id npu-a" in found


@pytest.mark.parametrize(
    "said", ["", "Traceback (most recent call last):\n  ImportError: no module named pseudo", "the sudo: group exists"]
)
def test_other_faults_are_not_taken_for_it(said: str) -> None:
    assert no_root("npu-a", said) is None


def test_a_host_that_cannot_be_reached_is_named_with_what_the_connection_said() -> None:
    said = "Failed to connect to the host via ssh: ssh: connect to host 192.0.2.1 port 22: \r\nConnection refused\n"
    found = str(unreachable("npu-a", said))
    assert found.startswith("npu-a cannot be reached: Failed to connect") and "port 22: Connection refused. Next: " in found
    assert len(str(unreachable("npu-a", "x" * 9000))) < 600
