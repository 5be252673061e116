# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_observe: whom it asks, and what it says of a host that does not let it look."""

from __future__ import annotations

import json
import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.rebellions.npu.plugins.action.rbln_observe import (
    SSH_OPTIONS,
    ActionModule,
    _no_python,
    _no_root,
)


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


def asking(transport: str = "ssh", become: t.Any = None, **options: str) -> t.Any:
    """The action on a connection to which a module's sources could be piped."""
    action: t.Any = ActionModule.__new__(ActionModule)
    options = {**dict.fromkeys(SSH_OPTIONS, ""), **options}
    connection = {"transport": transport, "become": become, "has_pipelining": True, "get_option": options.__getitem__}
    action._connection = types.SimpleNamespace(**connection)
    action._task = types.SimpleNamespace(delegate_to=None, become=True, environment=None)
    return action


@pytest.mark.parametrize(
    "options, can",
    [
        ({}, True),
        ({"ssh_args": "-C -o ControlMaster=auto -o ControlPersist=60s"}, True),
        ({"ssh_args": "-T -i /home/x-t/key -o RequestTTY=no", "ssh_extra_args": ""}, True),
        ({"ssh_args": "-C -tt"}, False),
        ({"ssh_common_args": "-t"}, False),
        ({"ssh_extra_args": "-o RequestTTY=force"}, False),
        ({"ssh_extra_args": "-orequesttty=yes"}, False),
    ],
)
def test_nothing_is_sent_to_a_terminal(options: dict[str, str], can: bool) -> None:
    """It cuts long lines and gives no end, so the host tool would wait for ever."""
    assert asking(**options)._can_send({}) is can
    assert asking("containers.podman.podman", **options)._can_send({}) is True


def test_a_connection_with_other_options_gets_the_module() -> None:
    action = asking()
    action._connection.get_option = dict[str, str]().__getitem__
    assert action._can_send({}) is False


@pytest.mark.parametrize("needs, can", [(True, False), (False, True)])
def test_nothing_is_sent_by_what_gives_root_on_a_terminal_alone(needs: bool, can: bool) -> None:
    """As machinectl and run0 do."""
    become = types.SimpleNamespace(name="run0", pipelining=True, require_tty=needs, expect_prompt=lambda: False)
    assert asking(become=become)._can_send({}) is can


def test_a_host_that_cannot_be_reached_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: t.Any, **_more: t.Any) -> t.NoReturn:
        raise AnsibleConnectionFailure("Data could not be sent to remote host: Connection refused")

    monkeypatch.setattr(ActionBase, "_low_level_execute_command", refused)
    action = asking()
    action._compute_environment_string = action._python = lambda _given: ""
    with pytest.raises(AnsibleConnectionFailure) as caught:
        action._by_host_tool({"options": {}}, {"inventory_hostname": "n1"})
    told = str(caught.value)
    assert told.startswith("n1 cannot be reached: Data could not") and "`ansible -m ping n1`" in told


@pytest.mark.parametrize(
    "with_root, without, told",
    [
        ((1, "", "sudo: a password is required"), None, "sudo: a password is required"),
        ((1, "", ""), (0, "", ""), "privilege escalation by sudo ends with 1 and says nothing"),
        # The connection runs nothing at all: become is not the cause.
        ((1, "", ""), (255, "", ""), ""),
        ((0, "", ""), None, ""),
    ],
)
def test_who_gives_root_is_asked_where_nothing_was_said(
    with_root: tuple[int, str, str], without: tuple[int, str, str] | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [dict(zip(("rc", "stdout", "stderr"), one)) for one in (with_root, without) if one]
    monkeypatch.setattr(ActionBase, "_low_level_execute_command", lambda _self, _command, **_more: answers.pop(0))
    action = asking(become=types.SimpleNamespace(name="sudo"))
    assert action._becoming() == told and answers == []
    assert bool(_no_root("n1", told)) == bool(told)


class Told(types.SimpleNamespace):
    """A display that keeps what -vvv shows."""

    verbosity = 0

    def vvv(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("verbosity", [0, 3])
def test_what_has_passed_is_named_and_vvv_shows_the_rest(verbosity: int) -> None:
    action = asking()
    action._display = Told(verbosity=verbosity, texts=[])
    checks = [
        {"name": name, "scope": "driver", "ok": ok, "detail": name * 2} for name, ok in (("a", True), ("b", None))
    ]
    facts = {"rbln": {"pool_key": "x"}, "rbln_observed": {"checks": checks, "passed": False}}
    action._leave_out_passed(facts)
    assert facts == {
        "rbln": {"pool_key": "x"},
        "rbln_observed": {"checks": checks[1:], "passed": False, "passed_checks": {"driver": ["a"]}},
    }
    assert [json.loads(text) for text in action._display.texts] == (
        [{"passed_checks": checks[:1]}] if verbosity else []
    )


@pytest.mark.parametrize("new", [True, False])
def test_a_host_is_put_into_its_pool_as_its_ansible_core_does_that(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[t.Any] = []
    if new:

        def how(_self: t.Any, name: str, parent_group_names: t.Any) -> None:
            asked.append((name, parent_group_names))

        monkeypatch.setattr(ActionBase, "add_group", how, raising=False)
    else:
        monkeypatch.delattr(ActionBase, "add_group", raising=False)
    result: dict[str, t.Any] = {"changed": False}
    asking()._put_into("npu_pool_x", result)
    assert result == {"changed": False, "add_group": "npu_pool_x", "parent_groups": ["npu_pools"]}
    assert asked == ([("npu_pool_x", ["npu_pools"])] if new else [])
