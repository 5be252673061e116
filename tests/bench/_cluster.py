# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster side compared with `kubectl apply --server-side` of the same objects.

Each contender gets a fresh API server. No host and no lab take part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path
from statistics import median

from tests.integration._everything import EVERYTHING, SYSTEMS
from tests.lab._go import program
from tests.tools.paths import COLLECTIONS, environment

from ._api import Api
from ._contenders import HERE, STAGE, STAGED, TIMEOUT, BenchError
from ._events import read_events
from ._hosts import FOLDER

POOLS = 30
OBJECTS = 60
# Requests of an unchanged pass; CPU by kubectl's; CPU of the render by that of PyYAML's own reader for its file.
REQUESTS_LIMIT, RATIO_LIMIT, RENDER_LIMIT = 13, 2.5, 1.5
# The limit is an aim; an unchanged pass that costs this much has a fault.
RATIO_GATE = 3.2
# What else the machine does adds to CPU seconds and never takes from them: the least of a few rounds is the work
# itself, and a round that keeps the limit needs no other.
ROUNDS = 3
# Where more processes than this wait for a processor, they share caches and turns so much that the ratio says nothing
# about us: it is an aim then.
LOAD_LIMIT = 2.0 * (os.cpu_count() or 1)
NAMESPACE = "rbln-bench"


class Teller(t.Protocol):
    """The report of the benchmark."""

    def gate(self, good: bool, text: str) -> None: ...

    def aim(self, good: bool, text: str) -> None: ...

    def tell(self, text: str) -> None: ...


def policy() -> dict[str, t.Any]:
    """Inputs of about 60 objects: every component, and a driver for each of 30 pools."""
    pools = [
        {
            "os_id": SYSTEMS[number % 3][0],
            "os_version": SYSTEMS[number % 3][1],
            "kernel": "6.8.0-%d-generic" % (10 + number // 3),
        }
        for number in range(POOLS)
    ]
    given = {key: value for key, value in EVERYTHING.items() if key not in ("pull_secret_content", "node_feature_rule")}
    given.update(driver={**EVERYTHING["driver"], "pools": pools}, namespace=NAMESPACE, wait=False, node_labels=False)
    return {"rbln_operands_" + name: value for name, value in given.items()}


def spend(argv: t.Sequence[str | Path], log: str, **more: str) -> dict[str, float]:
    """{cpu, wall} of a command and all it started; BenchError with its last words when it fails."""
    report, path = FOLDER / "spent.json", FOLDER / (log + ".log")
    report.unlink(missing_ok=True)
    env = environment(
        ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
        PYTHONPATH="%s:%s" % (STAGE, STAGED),
        ANSIBLE_LOCALHOST_WARNING="false",
        **more,
    )
    with path.open("w", encoding="utf-8") as out:
        words = [sys.executable, "-I", str(HERE / "_spend.py"), str(report), "cpu", *map(str, argv)]
        subprocess.run(
            words,
            cwd=STAGED,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            check=False,
        )
    spent: dict[str, float] = json.loads(report.read_text()) if report.exists() else {"code": -1}
    if spent["code"]:
        raise BenchError(
            "%s: exit %d:\n%s" % (log, spent["code"], "\n".join(path.read_text(errors="replace").splitlines()[-25:]))
        )
    return spent


def play(variables: t.Mapping[str, t.Any], empty: bool = False) -> dict[str, float]:
    """Run the role by Ansible for one host as site.yml does, or a task that does nothing.

    Its events are in cluster.log.
    """
    group = {"hosts": {"one": {}}, "vars": {"ansible_connection": "local", **variables}}
    (FOLDER / "cluster.json").write_text(json.dumps({"npu_nodes": group}))
    tasks = [
        {
            "name": "Deploy",
            "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_operands", "rolespec_validate": False},
        }
    ]
    if empty:
        tasks = [{"name": "Nothing", "ansible.builtin.debug": {"msg": ""}}]
    # A template with a filter, as in site.yml: the main process loads the filters, not each of its forks.
    hosts = "{{ npu_group | default('npu_nodes') }}"
    (FOLDER / "cluster-play.json").write_text(
        json.dumps([{"name": "Cluster", "hosts": hosts, "gather_facts": False, "tasks": tasks}])
    )
    argv = ["ansible-playbook", "-i", FOLDER / "cluster.json", FOLDER / "cluster-play.json"]
    return spend(
        argv,
        "cluster",
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.jsonl",
        ANSIBLE_INJECT_FACT_VARS="false",
        ANSIBLE_GATHERING="explicit",
    )


# PyYAML's own reader of a file: Python's work of the same size as the render, at the same time.
READ = """
import sys, time, yaml
began = time.process_time()
list(yaml.load_all(open(sys.argv[1]), yaml.SafeLoader))
print(time.process_time() - began)
"""


def render() -> tuple[Path, float, float]:
    """The file with the policy's objects; CPU seconds of the render act and of the reader, without Python's start."""
    folder = FOLDER / "rendered"
    variables = {
        **policy(),
        "rbln_operands_enabled": True,
        "rbln_operands_delivery": "render",
        "rbln_operands_render_dir": str(folder),
    }
    variables.update(rbln_operands_kubeconfig="", rbln_operands_context="", rbln_operands_driver_instances=[])
    (FOLDER / "render.json").write_text(
        json.dumps({"act": "render", "variables": variables, "hosts": {}, "facts": None})
    )
    spend([sys.executable, "-m", "tests.integration._act", FOLDER / "render.json"], "render")
    told = json.loads((FOLDER / "render.log").read_text().splitlines()[-1])
    if told["result"].get("failed"):
        raise BenchError("render: %s" % told["result"]["msg"])
    path = folder / (NAMESPACE + ".yaml")
    spend([sys.executable, "-c", READ, path], "read")
    return path, float(told["cpu"]), float((FOLDER / "read.log").read_text())


def cluster(report: Teller, rounds: int) -> None:
    """First and unchanged pass of both in turn; ratios of CPU seconds, requests of ours as a proxy counts them."""
    took: dict[str, list[dict[str, float]]] = {
        name: [] for name in ("kubectl first", "kubectl unchanged", "role first", "role unchanged", "empty playbook")
    }
    counted: dict[str, int] = {}
    rendered: list[tuple[float, float]] = []

    def misses() -> bool:
        return _ratio(took, "unchanged") > RATIO_LIMIT or _render_ratio(rendered) > RENDER_LIMIT

    while len(rendered) < rounds or (len(rendered) < ROUNDS and misses()):
        manifests, *seconds = render()
        rendered.append((seconds[0], seconds[1]))
        objects = manifests.read_text().count("---\n")
        with Api() as api:
            apply = [
                program("kube") / "kubectl",
                "--kubeconfig",
                api.kubeconfig,
                "apply",
                "--server-side",
                "-f",
                manifests,
            ]
            for name in ("kubectl first", "kubectl unchanged"):
                took[name].append(spend(apply, "kubectl"))
        took["empty playbook"].append(play({}, empty=True))
        with Api() as api:
            api.add_node("one")
            for name in ("role first", "role unchanged"):
                api.requests.clear()
                took[name].append(play({**policy(), "rbln_kubeconfig": str(api.kubeconfig), "rbln_node_name": "one"}))
                counted[name] = len(api.requests)
                writes = sum(method != "GET" for method, _path in api.requests)
                done = [
                    event.data
                    for event in read_events(FOLDER / "cluster.log")
                    if "objects" in event.data and "requests" in event.data
                ]
                actions = set(done[0]["objects"].values()) if done else set()
                wanted = {"created"} if name == "role first" else {"unchanged"}
                report.gate(
                    actions == wanted and (writes == 0) == (name == "role unchanged"),
                    "%s: %s, %d writes" % (name, sorted(actions), writes),
                )
    report.gate(abs(objects - OBJECTS) <= 10, "the policy has %d objects (about %d)" % (objects, OBJECTS))
    ratio = _render_ratio(rendered)
    report.gate(
        ratio <= RENDER_LIMIT,
        "render of %d pools: %.2f of what PyYAML takes to read it (limit %g); %.2f CPU-s"
        % (POOLS, ratio, RENDER_LIMIT, min(ours for ours, _theirs in rendered)),
    )
    load = os.getloadavg()[1]
    least = {name: min(one["cpu"] for one in spent) for name, spent in took.items()}
    for name, spent in took.items():
        asked = "; %d requests" % counted[name] if name in counted else ""
        report.tell(
            "%s: %.2f CPU-s (median %.2f), %.2f s%s"
            % (name, least[name], _middle(spent, "cpu"), _middle(spent, "wall"), asked)
        )
    report.gate(
        counted["role unchanged"] <= REQUESTS_LIMIT,
        "unchanged pass: %d requests for %d objects (limit %d)" % (counted["role unchanged"], objects, REQUESTS_LIMIT),
    )
    for kind in ("first", "unchanged"):
        ratio = _ratio(took, kind)
        part = "%.2f without what an empty playbook costs" % (
            (least["role " + kind] - least["empty playbook"]) / least["kubectl " + kind]
        )
        text = "role / kubectl apply --server-side, %s: %.2f of CPU (limit %g, load %.1f); %s" % (
            kind,
            ratio,
            RATIO_LIMIT,
            load,
            part,
        )
        report.aim(ratio <= RATIO_LIMIT, text)
        if kind == "unchanged" and load <= LOAD_LIMIT:
            report.gate(ratio <= RATIO_GATE, "%s pass: %.2f of kubectl's CPU (limit %g)" % (kind, ratio, RATIO_GATE))


def _ratio(took: t.Mapping[str, t.Sequence[t.Mapping[str, float]]], kind: str) -> float:
    """The least CPU seconds of our pass by those of kubectl's."""
    ours, theirs = (min(one["cpu"] for one in took[who + kind]) for who in ("role ", "kubectl "))
    return ours / theirs


def _render_ratio(rendered: t.Sequence[tuple[float, float]]) -> float:
    """The least CPU seconds of the render by the least of the reader."""
    return min(ours for ours, _theirs in rendered) / min(theirs for _ours, theirs in rendered)


def _middle(spent: t.Sequence[t.Mapping[str, float]], key: str) -> float:
    return median(one[key] for one in spent)
