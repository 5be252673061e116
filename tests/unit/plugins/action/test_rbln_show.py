# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the screen is shown, and that only what tasks have registered is on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action import rbln_show
from ansible_collections.rebellions.npu.plugins.action.rbln_show import ActionModule
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers import action as answers
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import NO_NODE
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import facts, runtime, runtimes

Data = dict[str, Any]


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


class Show(ActionModule):
    """The action of a play with these hosts; `shown` are (text, colour, whether on stderr)."""

    def __init__(self, **args: Any) -> None:
        self.shown: list[tuple[str, Any, bool]] = []
        self._task = SimpleNamespace(args=args, check_mode=False, async_val=0, action="rbln_show")  # type: ignore
        self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))  # type: ignore[assignment]
        self._display = SimpleNamespace(display=self.display)  # type: ignore[assignment]

    def display(self, text: str, color: Any = None, stderr: bool = False) -> None:
        self.shown.append((text, color, stderr))


def run(hosts: Data, **args: Any) -> tuple[Data, list[tuple[str, Any, bool]]]:
    action = Show(**args)
    variables = {"inventory_hostname": "a", "ansible_play_hosts_all": list(hosts), "hostvars": HostVars(hosts)}
    return action.run(None, variables), action.shown


def observation() -> Data:
    return {"rbln": facts(), "rbln_runtimes": runtimes(runtime()), "rbln_observed": {"passed": True, "checks": []}}


def seen() -> Data:
    return {"rbln_discover_observation": {"ansible_facts": observation()}}


@pytest.fixture(name="callback")
def callback_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the callback that writes to stdout."""

    def chosen(name: str) -> None:
        monkeypatch.setattr(answers.constants, "DEFAULT_STDOUT_CALLBACK", name)
        answers.stdout_is_for_people.cache_clear()

    yield chosen
    answers.stdout_is_for_people.cache_clear()


def test_the_default_callback_is_known_by_its_full_name_too() -> None:
    script = (
        "from ansible.plugins.loader import init_plugin_loader; init_plugin_loader()\n"
        "import ansible.plugins.callback.default\n"
        "from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import stdout_is_for_people\n"
        "print(stdout_is_for_people())"
    )
    paths = str(Path(answers.__file__).parents[6])
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=paths, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default")
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    "name, stderr",
    [
        ("default", False),
        ("minimal", True),
        ("ansible.posix.jsonl", True),
        ("team.own.callback", True),
    ],
)
def test_nothing_is_printed_in_front_of_what_a_program_reads(
    callback: Callable[[str], None], name: str, stderr: bool
) -> None:
    callback(name)
    result, shown = run({"a": seen()})
    assert len(shown) >= 4 and {aside for _text, _color, aside in shown} == {stderr}
    assert result["lines"] == [text for text, _color, _aside in shown] and result["changed"] is False


def test_the_colours_are_those_of_ansible() -> None:
    result, shown = run({"a": seen(), "b": {}})
    assert shown[-1][:2] == ("2 hosts: 1 %s, 1 not seen" % result["hosts"]["a"]["state"], answers.constants.COLOR_ERROR)
    assert shown[0][1] is None


def test_a_fact_is_no_observation_and_an_unreachable_host_has_its_reason() -> None:
    forged = {"ansible_facts": {"rbln_discover_observation": 1}, **seen()}
    lost = {"rbln_discover_observation": {"unreachable": True, "msg": "Connection timed out"}}
    result, _shown = run({"a": forged, "b": lost, "c": {"rbln_discover_observation": "text"}})
    assert {host: one["state"] for host, one in result["hosts"].items()} == dict.fromkeys("abc", "not seen")
    assert result["hosts"]["b"]["findings"] == [{"word": "FAILED", "text": "not seen: Connection timed out"}]


def test_text_of_a_host_cannot_move_the_terminal_and_wrong_facts_are_said() -> None:
    wrong = {"rbln_discover_observation": {"ansible_facts": {"rbln": {"npus": "\x1b[2J"}}}}
    result, shown = run({"a": wrong})
    assert "wrong value" in result["hosts"]["a"]["findings"][0]["text"]
    assert all(text.isprintable() for text, _color, _aside in shown)


def test_the_nodes_come_from_whichever_host_has_asked() -> None:
    node = {**NO_NODE, "node": "n1", "ready": True, "cordoned": True}
    hosts = {"a": seen(), "b": {**seen(), "__rbln_operands_nodes": {"states": {"a": node}}}}
    result, _shown = run(hosts)
    assert any("node n1 is cordoned" in one["text"] for one in result["hosts"]["a"]["findings"])
    assert not any("cordoned" in one["text"] for one in result["hosts"]["b"]["findings"])


@pytest.mark.parametrize(
    "registered",
    [
        {"__rbln_operands_member": {"failed": False, "msg": "rbln_operands_wait is 'perhaps'. Next: Set it."}},
        {
            "__rbln_operands_member": {"member": {"cluster": "c"}},
            "__rbln_operands_clusters": {"errors": {"a": "rbln_operands_wait is 'perhaps'. Next: Set it."}},
        },
    ],
)
def test_a_host_whose_cluster_is_not_asked_has_an_unknown_node(registered: Data) -> None:
    result, shown = run({"a": {**seen(), **registered}, "b": {**seen(), "__rbln_operands_member": {"member": {}}}})
    told = "cluster: rbln_operands_wait is 'perhaps'. Next: Set it."
    assert {"word": "unknown", "text": told} in result["hosts"]["a"]["findings"]
    assert result["hosts"]["b"]["findings"] == []
    node = shown[0][0].index("node")
    assert {text[:1]: text[node:].split()[0] for text, *_more in shown[1:3]} == {"a": "unknown", "b": "-"}


def test_a_proof_is_shown_where_it_is_asked_for() -> None:
    bad = {"name": "driver_loaded", "vendor": "rebellions", "scope": "driver", "ok": False, "severity": "error"}
    more = {"detail": "it is not loaded", "evidence": {"big": "x" * 5000}, "next_step": "Load.", "seconds": 0.1}
    checks = [{**bad, **more}]
    told = {"rbln_proof": {"state": "failed", "passed": False, "checks": checks}}
    hosts = {"a": {**seen(), "rbln_validator_proof": {"ansible_facts": told}}, "b": seen()}
    result, shown = run(hosts, what="proof")
    assert result["hosts"]["a"]["findings"] == [
        {"word": "FAILED", "text": "driver/driver_loaded: it is not loaded. Next: Load."}
    ]
    assert result["hosts"]["b"]["state"] == "not seen" and max(len(text) for text, *_more in shown) < 300


def test_the_variables_are_those_that_the_roles_register() -> None:
    assert rbln_show.SOURCES == {
        "observation": ("rbln_discover_observation", "rbln_observed"),
        "proof": ("rbln_validator_proof", "rbln_proof"),
    }
