# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make proof-rollout_scale`: the playbook upgrade changes up to 1,000 nodes in 30 pools that kwok plays.

API server, record, waves and plays are real; a task of one command stands for the host part, so what is measured is the
rollout. Small sizes also run with the rollout off, for comparison. Requests of a node, ratios and memory are gates;
seconds depend on the machine. Memory is PSS of the play and its forks at one moment: what they share counts once.
SAMPLE=1 leaves the largest sizes out. Sizes may be given as words.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.pools import pool_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import GATE_PREFIX, MANAGER
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import from_json

from tests.integration._api_server import NAMESPACE, Data
from tests.integration._everything import node
from tests.integration.test_rollout_play import STEP, plays
from tests.tools.paths import ROOT, WORK, environment

from ._proof import SAMPLE, Part, Proof
from .scale import POOLS, Site

SIZES = (30, 100) if SAMPLE else (30, 100, 300, 1000)
FORKS = 15
# API requests of a node, all that a run asks for divided by its nodes.
REQUESTS = 12
# A node of the largest size against one of the base, CPU and requests. Of fewer nodes than that, what is asked and done
# once a run weighs on each.
GROWTH, BASE = 1.25, 100
# MiB (PSS) of all processes of the run.
MEMORY = 600
# The run without a rollout is measured up to this size, and one with it may cost so many times its CPU.
COMPARED = 100
COST = 2.0
TIMEOUT = 7200
WAVES = (1, "10%", "50%", "100%")


class Run(t.NamedTuple):
    nodes: int
    wall: float
    cpu: float
    main: float
    forks: float
    memory: float
    asked: list[tuple[str, str, str]]
    said: str


class Fleet:
    """The cluster of scale.py, and the plays of upgrade.yml over all of its nodes."""

    def __init__(self, home: Path) -> None:
        self.site, self.home = Site(home / "cluster"), home
        found = plays()
        # As in site.yml, the first task is one of ours.
        site = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
        found[0]["tasks"].insert(0, site[0]["tasks"][0])
        facts = found[0]["tasks"][1]["ansible.builtin.set_fact"]
        facts["rbln_discover_observation"]["ansible_facts"]["rbln"]["pool_key"] = "{{ pool }}"
        facts["rbln_preflight_plan"]["wanted"]["rbln_driver_version"] = "{{ version }}"
        (home / "site.yml").write_text(yaml.safe_dump(found, sort_keys=False))

    def grow(self, size: int) -> None:
        """With a component of ours on each node, whose gate is closed and opened again."""
        before = self.site.nodes
        self.site.grow(size)
        labels = {GATE_PREFIX + "device-plugin": "true"}
        items = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-%04d" % number, "labels": labels}}
            for number in range(before, size)
        ]
        for first in range(0, len(items), 200):
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items[first : first + 200]})
            self.site.server.kubectl("apply", "--server-side", "--field-manager", MANAGER, "-f", "-", stdin=text)

    def run(self, size: int, enabled: bool) -> Run:
        hosts = {}
        for number in range(size):
            item = node(number, POOLS)
            pool = pool_of(item["metadata"]["labels"])
            assert pool is not None
            hosts[item["metadata"]["name"]] = {"uuid": item["status"]["nodeInfo"]["systemUUID"], "pool": pool.key}
        variables = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "rbln_kubeconfig": str(self.site.home / "runner.kubeconfig"),
            "rbln_rollout_enabled": enabled,
            "rbln_rollout_waves": list(WAVES),
            "rbln_serial": "100%",
            "step": STEP,
            # Another goal: what the size before has done is to be done again.
            "version": "3.4.%d" % size,
            "left": [],
            "act": "true",
        }
        inventory = {"npu_nodes": {"hosts": hosts, "vars": variables}}
        (self.home / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (self.home / "done").write_text("")
        report, log = self.home / "report.json", self.home / "run.log"
        spend = [sys.executable, str(ROOT / "tests" / "bench" / "_spend.py"), str(report), "memory"]
        play = ["ansible-playbook", "-i", str(self.home / "hosts.yml"), str(self.home / "site.yml")]
        env = environment(
            ANSIBLE_CONFIG=str(ROOT / "inventories" / "example" / "ansible.cfg"),
            ANSIBLE_CACHE_PLUGIN_CONNECTION=str(self.home / "facts"),
            ANSIBLE_FORKS=str(FORKS),
            XDG_CACHE_HOME=str(self.home / "cache"),
        )
        since = len(self.site.server.asked())
        with log.open("w") as out:
            words = [*spend, *play, "-e", "__rbln_rollout_upgrade=true"]
            subprocess.run(words, stdout=out, stderr=out, env=env, timeout=TIMEOUT, check=False, cwd=ROOT)
        spent = json.loads(report.read_text())
        asked = self.site.server.asked(since)
        memory = (spent[part] for part in ("main", "forks", "together"))
        return Run(size, spent["wall"], spent["cpu"], *memory, asked, log.read_text())

    def changed(self) -> list[str]:
        return (self.home / "done").read_text().split()

    def record(self) -> str:
        found = self.site.server._call("GET", "/api/v1/namespaces/%s/configmaps/rbln-rollout" % NAMESPACE)
        return str(found["data"]["run"])

    def wrong(self) -> list[str]:
        """The nodes that are not back in service with their gate open and the state upgrade-done."""
        items: list[Data] = self.site.server._call("GET", "/api/v1/nodes")["items"]
        good = {"rebellions.ai/npu-driver-upgrade-state": "upgrade-done", GATE_PREFIX + "device-plugin": "true"}
        return [
            item["metadata"]["name"]
            for item in items
            if item["spec"].get("unschedulable")
            or item["spec"].get("taints")
            or not good.items() <= item["metadata"]["labels"].items()
        ]


def judge(part: Part, fleet: Fleet, run: Run) -> None:
    """Every node was changed once, in the order of waves, and is back; requests and memory are within their limits."""
    names = ["node-%04d" % number for number in range(run.nodes)]
    changed, wrong = fleet.changed(), fleet.wrong()
    record = fleet.record()
    kinds = collections.Counter("%s %s" % one[:2] for one in run.asked)
    part.note = "%s; record %d kB; %s" % (
        told(run),
        len(record) // 1000,
        ", ".join("%d %s" % (number, kind) for kind, number in kinds.most_common(8)),
    )
    ended = re.search(r"Rollout: (\d+) done, (\d+) failed", run.said)
    good = ended is not None and ended.groups() == (str(run.nodes), "0")
    of_a_node = len(run.asked) / run.nodes
    for what, bad in (
        ("the run", "" if good else run.said[-1500:]),
        ("nodes that were not changed once", "" if sorted(changed) == names else "%d changes" % len(changed)),
        ("nodes that are not back", ", ".join(wrong[:5])),
        ("nodes before an earlier wave", ", ".join(out_of_order(record, changed)[:5])),
        # What is asked once a run weighs on few nodes.
        ("requests of a node", "%.1f" % of_a_node if of_a_node > REQUESTS and run.nodes > POOLS else ""),
        ("memory", "" if 0 < run.memory <= MEMORY else "%.0f MiB" % run.memory),
    ):
        if bad:
            part.bad(what, bad)
        else:
            part.good()


def out_of_order(record: str, changed: t.Sequence[str]) -> list[str]:
    """The nodes that were changed after one of a later wave of their pool."""
    nodes, latest, found = from_json(record).nodes, collections.Counter[str](), []
    for name in changed:
        one = nodes[name]
        if one.wave < latest[one.pool]:
            found.append(name)
        latest[one.pool] = max(latest[one.pool], one.wave)
    return found


def told(run: Run) -> str:
    return "%.0f s, %.2f CPU-s a node, %.1f requests a node, PSS %.0f MiB (at most %.0f main, %.0f forks)" % (
        run.wall,
        run.cpu / run.nodes,
        len(run.asked) / run.nodes,
        run.memory,
        run.main,
        run.forks,
    )


def main(sizes: t.Sequence[int] = SIZES) -> int:
    proof = Proof("rollout_scale")
    # The cluster must not outlive the proof, however the proof ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.umask(0o077)
    WORK.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rollout-scale-", dir=WORK))
    fleet, runs = Fleet(folder), []
    try:
        fleet.site.start()
        for size in sizes:
            fleet.grow(size)
            alone = None
            if size <= COMPARED:
                with proof.part("%4d nodes, host part alone" % size) as part:
                    alone = fleet.run(size, False)
                    part.note = told(alone)
                    if sorted(fleet.changed()) != ["node-%04d" % number for number in range(size)]:
                        part.bad("host part alone", alone.said[-1500:])
                    part.good()
            with proof.part("%4d nodes" % size) as part:
                run = fleet.run(size, True)
                judge(part, fleet, run)
                runs.append(run)
                if alone and size > POOLS:
                    part.note += "; %.2f times the CPU of the host part alone" % (run.cpu / alone.cpu)
                    if run.cpu > COST * alone.cpu:
                        part.bad("CPU", "more than %g times that of the host part alone" % COST)
                    part.good()
            if part.failed:
                break
        based = [one for one in runs if one.nodes >= BASE]
        if len(based) > 1:
            with proof.part("growth") as part:
                for what, costs in (
                    ("CPU", [one.cpu / one.nodes for one in based]),
                    ("requests", [len(one.asked) / one.nodes for one in based]),
                ):
                    growth = costs[-1] / costs[0]
                    text = "%s a node of %d: %.2f times that of %d" % (what, based[-1].nodes, growth, based[0].nodes)
                    part.note = "; ".join(filter(None, (part.note, text)))
                    if growth <= GROWTH:
                        part.good()
                    else:
                        part.bad(what, "%s a node, for %s nodes" % (costs, [one.nodes for one in based]))
    except Exception as exc:
        with proof.part("the cluster") as part:
            part.bad("the cluster", str(exc))
    finally:
        with contextlib.suppress(Exception):
            fleet.site.server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main(tuple(map(int, sys.argv[1:])) or SIZES))
