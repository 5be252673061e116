# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks find on the controller before any host is contacted, by Ansible itself."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.integration._play import STAGED, Data, Run, play

LOCAL: Data = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}


@pytest.fixture(autouse=True)
def in_the_staged_tree(staged: None) -> None:
    """The playbooks are those of the staged collection."""


def inventory(
    tmp_path: Path, group: str = "npu_nodes", hosts: t.Sequence[str] = ("n1", "n2"), **variables: t.Any
) -> Path:
    path = tmp_path / "hosts.json"
    ours = {"hosts": dict.fromkeys(hosts, {}), "vars": {**LOCAL, **variables}}
    path.write_text(json.dumps({group: ours, "others": {"hosts": {"x": LOCAL}}}))
    return path


def stopped(run: Run) -> str:
    """The one message of a run that stopped before its hosts were contacted."""
    assert run.code == 2 and len(run.failed()) == 1 and run.of("Observe the host") == [], run.out[-2000:]
    return run.failed()[0].msg


@pytest.mark.parametrize("book", ["site", "remove"])
def test_a_misspelt_group_fails_and_an_inventory_is_shown(book: str, tmp_path: Path) -> None:
    run = play(book, inventory(tmp_path, "npu_node"))
    assert run.code != 0 and run.results == []
    told = " ".join((run.err + run.out).split())
    assert "The inventory has no group npu_nodes. Next: Rename the group npu_node, or write an inventory" in told
    assert "npu_nodes: hosts: npu1.example.com: npu2.example.com:" in told
    books = ("site", "plan", "discover", "validate", "bundle_place")
    plays = [yaml.safe_load((STAGED / "playbooks" / (name + ".yml")).read_text())[0] for name in (*books, "remove")]
    (same,) = {one["hosts"] for one in plays[:-1]}
    assert "group_with_hosts" in same
    # To remove something, an empty answer for the pool is no answer.
    assert plays[-1]["hosts"] == same.replace("default('')) }}", "default('npu_nodes'), named=true) }}")


def test_an_empty_group_and_a_limit_outside_of_it_fail(tmp_path: Path) -> None:
    run = play("plan", inventory(tmp_path, hosts=()))
    assert run.code != 0 and "The group npu_nodes of the inventory has no host." in " ".join(run.err.split())
    run = play("plan", inventory(tmp_path), "--limit", "x")
    assert run.code != 0 and "No host of the group npu_nodes is within --limit x." in " ".join(run.err.split())
    assert play("site", inventory(tmp_path, "npu_node"), "--syntax-check").code == 0


def test_all_that_is_wrong_on_the_controller_is_in_one_message(tmp_path: Path) -> None:
    wrong = {
        "rbln_kubeconfig": "/nowhere/kubeconfig",
        "rbln_registy": "r.example",
        "rbln_strange_thing": 1,
        "rbln_acme_rack": 7,
        "rbln_preflight_own_prefixes": "rbln_acme_",
        "rbln_failure_budget": "few",
        "rbln_driver_source": "runfile",
        "rbln_driver_version": "3.2.2",
        "rbln_driver_runfile": "/nowhere/a.run",
        "rbln_driver_runfile_sha256": "0" * 64,
    }
    run = play("plan", inventory(tmp_path, **wrong))
    text = stopped(run)
    assert text.startswith("Nothing was changed. 4 things are wrong:\n(1) ")
    for word in (
        "rbln_registy is not an input of this collection. Next: Write rbln_registry",
        "rbln_failure_budget is 'few', which is not a whole number",
        "/nowhere/a.run cannot be read on the controller: No such file or directory",
        "/nowhere/kubeconfig",
    ):
        assert text.count(word) == 1, (word, text)
    assert run.out.count("rbln_registy is not an input") == 1 and "rbln_acme" not in run.out + run.err


def test_what_is_wrong_for_all_hosts_is_said_once_and_a_name_far_from_all_inputs_warns_once(tmp_path: Path) -> None:
    run = play("site", inventory(tmp_path, rbln_driver_version=3.10, rbln_strange_thing=1))
    text = stopped(run)
    assert text.startswith("Nothing was changed. rbln_driver_version is the number 3.1, not text: ")
    assert "3.1" not in text.partition(" Next: ")[2]
    run = play("discover", inventory(tmp_path, rbln_strange_thing=1), "-e", "ansible_python_interpreter=/nowhere")
    assert run.warnings().count("rbln_strange_thing is not an input of this collection. Next: ") == 1


def batched(book: str) -> Data:
    """How a playbook of the collection reads rbln_serial: the keyword, and the variables that it names."""
    plays = yaml.safe_load((STAGED / "playbooks" / (book + ".yml")).read_text())
    (found,) = [one for one in plays if "serial" in one]
    names = ("__rbln_cut", "__rbln_batches")
    return {"serial": found["serial"], "vars": {name: found["vars"][name] for name in names if "vars" in found}}


@pytest.mark.parametrize(
    "extra, group, sizes",
    [
        ('[1, "50%"]', "100%", [1, 4, 3]),
        ("", None, [1, 2, 2, 2, 1]),
        (None, "4,50%", [4, 4]),
    ],
)
def test_serial_is_taken_from_a_survey_and_from_the_group(
    extra: str | None, group: str | None, sizes: list[int], tmp_path: Path
) -> None:
    task = {"name": "Size", "ansible.builtin.debug": {"msg": "{{ ansible_play_batch | length }}"}, "run_once": True}
    book = tmp_path / "book.yml"
    head: Data = {"name": "Batches", "hosts": "npu_nodes", "gather_facts": False}
    # Ansible knows the variables of hosts after the first play.
    book.write_text(yaml.safe_dump([head, {**head, **batched("site"), "tasks": [task]}]))
    more = {} if group is None else {"rbln_serial": group}
    where = inventory(tmp_path, hosts=["h%d" % number for number in range(8)], **more)
    run = play(book, where, extra=None if extra is None else {"rbln_serial": extra})
    assert run.code == 0 and [int(one.msg) for one in run.of("Size")] == sizes, run.err
    assert batched("site")["vars"]["__rbln_batches"] == batched("remove")["serial"]


def test_a_wrong_serial_is_one_clear_error_before_a_host_is_contacted(tmp_path: Path) -> None:
    text = stopped(play("site", inventory(tmp_path, rbln_serial="1;25%")))
    assert re.fullmatch(
        r"Nothing was changed\. rbln_serial is '1;25%', and '1;25%' is not a number of hosts\. Next: Write .*", text
    )
