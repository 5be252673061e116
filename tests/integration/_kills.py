# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration writer killed at steps of its own, for one runtime of one host.

At those that divide old from new; with NPU_KILLS=all, as `make proof-faults` sets it, at every one.
"""

from __future__ import annotations

import hashlib
import json
import os
import typing as t
from pathlib import Path

from tests.integration._hosts import Hosts
from tests.integration._play import COLLECTIONS, Run, play
from tests.lab import Lab

LOOK = """set -e
for file in %(file)s; do sha256sum $file 2>/dev/null || echo "absent $file"; done
echo "helpers $(find /etc /run/cdi -name '*.rbln-new' -o -name '*.rbln-old' -o -name '*.rbln-judge' |
  sort | tr '\\n' ' ')"
echo "journal $(ls /var/lib/rebellions-npu/transaction.json 2>/dev/null)"
%(judge)s >/dev/null
systemctl reset-failed %(unit)s
systemctl restart %(unit)s
echo "unit $(systemctl is-active %(unit)s)"
"""
ONCE = """
- name: Arm
  ansible.builtin.shell: rm -rf /run/npu-it; mkdir /run/npu-it; echo {{ number }} >/run/npu-it/kill
- name: Write
  rebellions.npu.rbln_runtime_config:
    runtime: ["{{ runtime }}"]
  ignore_errors: true
- name: Steps
  ansible.builtin.command: cat /run/npu-it/steps
- name: After the kill
  ansible.builtin.shell: "{{ look }}"
- name: Disarm
  ansible.builtin.file:
    path: /run/npu-it
    state: absent
- name: Repair
  rebellions.npu.rbln_runtime_config:
    runtime: ["{{ runtime }}"]
- name: After the repair
  ansible.builtin.shell: "{{ look }}"
- name: Nothing left to do
  rebellions.npu.rbln_runtime_config:
    runtime: ["{{ runtime }}"]
- name: Take out
  rebellions.npu.rbln_runtime_config:
    runtime: ["{{ runtime }}"]
    state: absent
- name: After all
  ansible.builtin.shell: "{{ look }}"
"""


class Seen(t.NamedTuple):
    """One look at the host: {file: digest or absent}, helper files, journal, state of the unit."""

    files: dict[str, str]
    helpers: list[str]
    journal: str
    unit: str


def seen(result: t.Any) -> Seen:
    files, words = {}, {}
    for line in result.data["stdout_lines"]:
        head, _space, rest = line.partition(" ")
        if head in ("helpers", "journal", "unit"):
            words[head] = rest.strip()
        else:
            files[rest.strip()] = head
    return Seen(files, words["helpers"].split(), words["journal"], words["unit"])


def one_kill(
    tmp_path: Path, killer: Path, hosts: Hosts, host: str, runtime: str, look: str, numbers: t.Sequence[int]
) -> list[Run]:
    """A play for each number: kill at that step, look, repair, look, again, take out, look."""
    variables = {"runtime": runtime, "look": look}
    where = hosts.inventory(host, name="kill", **variables)
    (tmp_path / "once.yml").write_text(ONCE)
    plays = [
        {
            "name": str(number),
            "hosts": "npu_nodes",
            "gather_facts": False,
            "vars": {"number": number},
            "tasks": [{"name": "Once", "ansible.builtin.import_tasks": "once.yml"}],
        }
        for number in numbers
    ]
    (tmp_path / "kill.yml").write_text(json.dumps(plays))
    run = play(
        tmp_path / "kill.yml", where, env={"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (killer, COLLECTIONS)}, timeout=900
    )
    assert run.code == 0, [(one.play, one.task, one.msg) for one in run.failed()][:5] or run.err[-2000:]
    return [
        Run(run.code, [one for one in run.results if one.play == str(number)], run.stats, "", "", 0)
        for number in numbers
    ]


def digests(lab: Lab, host: str, files: t.Sequence[str]) -> dict[str, str]:
    texts = {path: lab.exec(host, ["cat", path], check=False) for path in files}
    return {
        path: hashlib.sha256(done.stdout.encode()).hexdigest() if not done.returncode else "absent"
        for path, done in texts.items()
    }


class Case(t.NamedTuple):
    """`judge` is a command that loads the files, `unit` the service that starts with them."""

    host: str
    runtime: str
    files: list[str]
    judge: str
    unit: str


# Before anything is decided, the last one that leads back, and the first and last that lead on.
DIVIDING = ("staged", "journal committing", "renamed", "cleaned")


def killed_at_steps(
    hosts: Hosts, case: Case, killer: Path, tmp_path: Path, dividing: t.Sequence[str] = DIVIDING
) -> None:
    host, runtime, files, judge, unit = case
    hosts.state[host] = "dirty"
    take_out = tmp_path / "out.yml"
    task = {"name": "Take out", "rebellions.npu.rbln_runtime_config": {"state": "absent", "runtime": [runtime]}}
    take_out.write_text(json.dumps([{"name": "Out", "hosts": "npu_nodes", "gather_facts": False, "tasks": [task]}]))
    play(take_out, hosts.inventory(host)).good([host])
    old = digests(hosts.lab, host, files)
    text = LOOK % {"file": " ".join(files), "judge": judge, "unit": unit}
    whole = one_kill(tmp_path, killer, hosts, host, runtime, text, [999])[0]
    steps = whole.one("Steps", host).data["stdout_lines"]
    assert {"journal staging", "staged", "journal committing", "renamed", "journal done", "cleaned"} <= set(steps), (
        steps
    )
    new = seen(whole.one("After the kill", host)).files
    assert new != old and seen(whole.one("After all", host)).files == old
    every = os.environ.get("NPU_KILLS") == "all"
    numbers = range(len(steps)) if every else sorted(steps.index(step) for step in dividing)
    states = []
    for number, run in zip(numbers, one_kill(tmp_path, killer, hosts, host, runtime, text, numbers), strict=True):
        where = "%d %s" % (number, steps[number])
        assert (
            run.one("Write", host).state == "failed"
            and run.one("Steps", host).data["stdout_lines"] == steps[: number + 1]
        ), where
        after = seen(run.one("After the kill", host))
        assert after.files in (old, new) and after.unit == "active" and after.journal, (where, after)
        states.append("new" if after.files == new else "old")
        repaired = seen(run.one("After the repair", host))
        assert repaired == Seen(new, [], "", "active"), (where, repaired)
        assert run.one("Nothing left to do", host).state == "ok", where
        assert seen(run.one("After all", host)) == Seen(old, [], "", "active"), where
    assert states == sorted(states, reverse=True) and set(states) == {"old", "new"}, list(zip(steps, states))
