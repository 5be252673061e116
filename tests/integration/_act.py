# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of rbln_operands without a playbook around it.

It runs the code of a task, in this process or in a measured one.

    python -m tests.integration._act REQUEST.json

The request holds "variables", "host", "act", "arguments" and "check"; the program prints result, cpu, seconds and rss.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import typing as t
from pathlib import Path
from types import SimpleNamespace

Data = t.Dict[str, t.Any]
PREFIX = "rbln_operands_"


def act(
    name: str,
    variables: Data,
    host: str = "controller",
    facts: Data | None = None,
    check: bool = False,
    doctor: bool = False,
    **arguments: t.Any,
) -> Data:
    """The result of one act of the action with `variables` as those of the host; one with facts has proven itself.

    `doctor` takes the action of rbln_doctor, which is made of it.
    """
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar
    from ansible_collections.rebellions.npu.plugins.action import rbln_doctor, rbln_operands

    kind = rbln_doctor.ActionModule if doctor else rbln_operands.ActionModule
    proof = {"rbln_validator_proof": {"passed": True}} if facts else {}
    task_vars = {**proof, **variables, "inventory_hostname": host, "ansible_facts": {"rbln": facts} if facts else {}}
    task = SimpleNamespace(
        args={"act": name, **arguments},
        check_mode=check,
        diff=True,
        async_val=0,
        no_log=False,
        action="rbln_doctor" if doctor else "rbln_operands",
        delegate_to=None,
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), _load_name="local", has_pipelining=True)
    loader = DataLoader()
    parts = {
        "task": task,
        "connection": connection,
        "play_context": SimpleNamespace(check_mode=check),
        "loader": loader,
    }
    action: t.Any = kind(templar=Templar(loader, task_vars), shared_loader_obj=None, **parts)
    found: Data = action.run(task_vars=task_vars)
    return found


def inputs(kubeconfig: str | Path, **given: t.Any) -> Data:
    """Variables of the role from names without its prefix."""
    plain: Data = {
        "enabled": True,
        "delivery": "apply",
        "kubeconfig": str(kubeconfig),
        "context": "",
        "render_dir": "",
        "wait_timeout": 25,
        "wait_delay": 1,
    }
    plain["driver_instances"] = []
    return {PREFIX + name: value for name, value in {**plain, **given}.items()}


def member(variables: Data, host: str, facts: Data | None, **own: t.Any) -> Data:
    """The record that a host hands to the one that acts."""
    found = act("member", {**variables, **{PREFIX + name: value for name, value in own.items()}}, host, facts)
    if found.get("failed"):
        raise AssertionError(found["msg"])
    return dict(found["member"])


class _Hosts(t.Dict[str, Data]):
    """What the templates of a play see as hostvars, as far as the action asks."""

    def raw_get(self, host: str) -> Data:
        return self[host]


def clusters(results: t.Sequence[Data]) -> Data:
    """Who acts for which host, from results of the act member that the hosts of a play have registered."""
    hosts = _Hosts({one["member"]["host"]: {"__rbln_operands_member": one} for one in results})
    return act("clusters", {"ansible_play_batch": list(hosts), "hostvars": hosts})


def main(path: str) -> int:
    request = json.loads(Path(path).read_text())
    began, before = time.monotonic(), time.process_time()
    members = [
        member(request["variables"], host, request["facts"], node_name=node) for host, node in request["hosts"].items()
    ]
    result = act(request["act"], request["variables"], check=request.get("check", False), members=members)
    report = {
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - before,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }
    print(json.dumps({**report, "result": result}, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
