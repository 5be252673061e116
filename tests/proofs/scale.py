# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make proof-scale`: the cluster side with up to 1,000 nodes that kwok plays.

It has its own API server, scheduler and controllers. Every component is on, drivers are in 30 pools, and three hosts
are in the inventory. Each pass reports its seconds, CPU, memory and requests; requests may grow at most linearly, and a
removal may not hold all pods in memory. SAMPLE=1 leaves the last step out. Of the lab only its programs are used.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.readiness import COUNT_LABEL

from tests.integration._api_server import ApiServer, Data
from tests.integration._everything import EVERYTHING, FACTS, NPUS, node
from tests.lab._base import until
from tests.tools.paths import ROOT, STAGE, WORK, environment

from ._proof import SAMPLE, Proof

SIZES = (10, 100, 300) if SAMPLE else (10, 100, 300, 1000)
POOLS = 30
HOSTS = 3
LIMIT = 1.3
# MiB of a removal, whatever the number of nodes.
MEMORY = 500
WAIT = 900
READS = ("get", "list", "watch")


class Site:
    """The cluster, and one measured pass over it in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.server = ApiServer(
            home, audited="runner", more=["--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"]
        )
        self.home = home
        self.nodes = 0

    def start(self) -> None:
        self.server.start()
        self.server.start_scheduler()
        self.server.start_kwok()

    def grow(self, count: int) -> None:
        fresh = [node(number, POOLS) for number in range(self.nodes, count)]
        for item in fresh:
            # What the feature discovery and NFD would write; kwok runs neither.
            item["metadata"]["labels"][COUNT_LABEL] = str(NPUS)
        for first in range(0, len(fresh), 200):
            self.server.kubectl(
                "create",
                "-f",
                "-",
                stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": fresh[first : first + 200]}),
            )
        self.nodes = count
        ready = "{.items[?(@.spec.taints)].metadata.name}"
        names = ["node-%04d" % number for number in range(count)]
        # Without the node controller a new node keeps its taint.
        for first in range(0, count, 200):
            self.server.kubectl(
                "taint", "nodes", *names[first : first + 200], "node.kubernetes.io/not-ready-", check=False
            )
        until(
            60,
            "nodes without taints",
            lambda: not self.server.kubectl("get", "nodes", "-o", "jsonpath=" + ready).stdout.strip(),
        )

    def run(self, act: str, **given: t.Any) -> Data:
        """{seconds, cpu, rss in MiB, result, requests, writes} of a pass.

        The requests are those that the API server has noted.
        """
        variables = {
            "enabled": True,
            "delivery": "apply",
            "kubeconfig": str(self.home / "runner.kubeconfig"),
            "context": "",
            "render_dir": "",
        }
        variables["driver_instances"] = []
        variables.update(
            {
                **EVERYTHING,
                "wait_timeout": WAIT,
                "wait_delay": 5,
                "wait_scope": "cluster",
                "deadlines": {"driver": WAIT},
                **given,
            }
        )
        hosts = {"host-%d" % number: "node-%04d" % number for number in range(HOSTS)}
        request = {
            "act": act,
            "variables": {"rbln_operands_" + name: value for name, value in variables.items()},
            "hosts": hosts,
            "facts": FACTS,
        }
        path = self.home / "request.json"
        path.write_text(json.dumps(request))
        before = len(self.server.asked())
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration._act", str(path)],
            cwd=ROOT,
            env=environment(PYTHONPATH="%s:%s" % (STAGE, ROOT)),
            capture_output=True,
            text=True,
            timeout=WAIT + 300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError("%s: exit %d: %s" % (act, done.returncode, " ".join(done.stderr.splitlines()[-3:])))
        report: Data = json.loads(done.stdout.splitlines()[-1])
        if report["result"].get("failed"):
            raise RuntimeError("%s: %s" % (act, report["result"].get("msg", "")[:1500]))
        asked = self.server.asked(before)
        report.update(requests=len(asked), writes=[one for one in asked if one[0] not in READS])
        return report


def measure(site: Site, proof: Proof, size: int, requests: dict[str, dict[int, int]]) -> None:
    site.grow(size)
    passes = (
        ("first, no wait", "run", {"wait": False}),
        ("until all is ready", "run", {}),
        ("unchanged", "run", {}),
        ("absent", "absent", {"absent_scope": "cluster"}),
    )
    for name, act, given in passes:
        with proof.part("%4d nodes, %s" % (size, name)) as part:
            report = site.run(act, **given)
            requests.setdefault(name, {})[size] = report["requests"]
            part.note = "%.1f s, %.2f CPU-s, %.0f MiB, %d requests, %d of them writes, %d objects" % (
                report["seconds"],
                report["cpu"],
                report["rss"],
                report["requests"],
                len(report["writes"]),
                len(report["result"].get("objects") or {}),
            )
            if name == "first, no wait":
                drivers = [
                    one for one in report["result"]["objects"] if one.startswith("DaemonSet") and "driver" in one
                ]
                if len(drivers) < min(size, POOLS):
                    part.bad(name, "%d DaemonSets of drivers for %d pools" % (len(drivers), min(size, POOLS)))
            if name == "unchanged" and report["writes"]:
                part.bad(name, "it wrote %s" % report["writes"][:5])
            if name == "absent" and report["rss"] > MEMORY:
                part.bad(name, "%.0f MiB are more than %d" % (report["rss"], MEMORY))
            waited = report["result"].get("waited")
            if waited and not waited["ok"]:
                part.bad(name, "; ".join(problem["text"] for problem in waited["problems"])[:1500])
            part.good()
        if part.failed:
            # Each later pass would wait its whole time for what is not ready.
            return


def growth(proof: Proof, requests: dict[str, dict[int, int]]) -> None:
    """Compare the requests of the largest size with the line through 100 and 300.

    How long a wait takes depends on the machine and is no gate.
    """
    for name in ("first, no wait", "unchanged"):
        with proof.part("growth of requests, %s" % name) as part:
            found = requests.get(name, {})
            if any(size not in found for size in SIZES):
                part.bad(name, "a size is missing: %s" % found)
                continue
            most = SIZES[-1]
            line = found[100] + (found[300] - found[100]) * (most - 100) / 200.0
            part.note = "%s; the line gives %.0f for %d" % (
                ", ".join("%d: %d" % pair for pair in sorted(found.items())),
                line,
                most,
            )
            if found[most] > LIMIT * line:
                part.bad(name, "%d requests are more than %.1f times the line" % (found[most], LIMIT))
            part.good()


def main() -> int:
    proof = Proof("scale")
    # The cluster must not outlive the proof, however the proof ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    WORK.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=WORK))
    site = Site(folder / "home")
    requests: dict[str, dict[int, int]] = {}
    try:
        began = time.monotonic()
        site.start()
        proof.say("the cluster is up after %.1f s" % (time.monotonic() - began))
        for size in SIZES:
            if not proof.failed:
                measure(site, proof, size, requests)
        growth(proof, requests)
    except Exception as exc:
        with proof.part("the cluster") as part:
            part.bad("the cluster", str(exc))
    finally:
        with contextlib.suppress(Exception):
            site.server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
