# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook upgrade on real kubelets, with real pods and budgets.

Three nodes of one pool go through the stand-in driver's versions: two good ones and one that is faulty. Judged is what
the API server tells meanwhile: states, cordons, evictions, budgets, and how many writes it has counted. The sample has
two nodes and one upgrade.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import typing as t

from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED, Run
from tests.integration._red import MESSAGE
from tests.lab import Lab
from tests.lab.standins.payload import FAULTY_VERSION, VERSIONS
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.proofs._rollout_lab import (
    CORDON,
    DONE,
    FAILED,
    HOST,
    JOBS,
    PODS,
    RECORD,
    RESTART,
    TAINT,
    WORKING,
    Field,
    Rolling,
    cleared,
)
from tests.proofs._rollout_scenes import beside, gates
from tests.tools.stage import stage

NAMES = ("it-r1", "it-r2", "it-r3")
OLD, NEW = VERSIONS
HOLD = "rebellions.ai/npu-rollout"
EVICTED = "EvictionByEvictionAPI"
# Pods that hold an NPU, and those that do not.
WITH, WITHOUT = ("web", "store", "stubborn"), ("lone", "plain", "agent")


def with_pods(part: Part, field: Field) -> None:
    """Old to new: whose NPUs are in use."""
    first, second = field.names[:2]
    before, refused = field.by_name(*WITHOUT), field.requests("pods", "eviction", "POST", code="429")
    field.mark()
    rolling = Rolling(field, NEW)
    with part.case("the Job of the wait selector is waited for"):
        rolling.reaches(second, JOBS)
        time.sleep(2)
        assert field.state(second) == JOBS, field.states(second)
        field.end_job()
    run = rolling.wait()
    part.note = "upgrade of %d nodes in %.1f s" % (len(field.names), run.seconds)
    with part.case("it ends well, with the new driver everywhere"):
        run.good(field.names)
        assert [field.loaded(name) for name in field.names] == [NEW] * len(field.names)
    with part.case("each node tells its story in order"):
        assert field.states(first) == [CORDON, PODS, HOST, RESTART, DONE], field.states(first)
        assert field.states(second)[:2] == [CORDON, JOBS], field.states(second)
        for name in field.names[1:]:
            assert field.states(name)[-3:] == [HOST, RESTART, DONE], field.states(name)
    with part.case("one node at a time, in the order of the inventory"):
        assert field.closed_together() == 1
    with part.case("nodes are back in service, and all pods run"):
        field.all_run()
        field.in_service(*field.names)
    with part.case("what holds no NPU was not touched"):
        assert field.by_name(*WITHOUT) == before and len(before) == 3 + len(field.names)
    with part.case("what holds one was evicted, by a budget that was never broken"):
        gone = field.gone()
        assert {name.partition("-")[0] for name in gone} >= {"web"}, gone
        assert all(name.startswith(WITH) and EVICTED in why for name, why in gone.items()), gone
        assert field.least_web() == 1
        assert field.requests("pods", "eviction", "POST", code="429") > refused, "no eviction was ever refused"


def again(part: Part, field: Field) -> None:
    """The same once more."""
    with part.case("a second run touches no node"):
        before = field.written()
        run = Rolling(field, NEW).wait().unchanged(field.names)
        assert field.written() == before, "%d writes of nodes" % (field.written() - before)
        part.note = "%.1f s" % run.seconds


def bad_driver(part: Part, field: Field) -> None:
    """A driver of which no device works, and then the good one."""
    first, rest = field.names[0], field.names[1:]
    field.mark()
    run = Rolling(field, FAULTY_VERSION).wait()
    with part.case("the driver goes back by itself, and its node stays out of service"):
        assert run.code == 2 and field.loaded(first) == NEW, (run.code, field.loaded(first))
        assert field.is_cordoned(first) and TAINT in field.taints(first), field.taints(first)
        assert field.states(first)[-1] == FAILED, field.states(first)
        assert "rolled back: " in field.annotation(first, "reason"), field.annotation(first, "reason")
    with part.case("no other node was begun"):
        assert [field.states(name) for name in rest] == [[]] * len(rest), [field.states(name) for name in rest]
        assert [field.loaded(name) for name in rest] == [NEW] * len(rest)
        assert field.closed_together() == 1
    with part.case("one red message for each host, with a next step"):
        for name in field.names:
            texts = red(run, name)
            assert len(texts) == 1 and " Next: " in texts[0] and len(texts[0]) <= MESSAGE, texts
        assert "rolled back: " in red(run, first)[0] and TAINT in red(run, first)[0], red(run, first)
        for name in rest:
            assert "was left as it is" in red(run, name)[0] and first in red(run, name)[0], red(run, name)
    with part.case("the good version heals it, and touches no other node"):
        field.mark()
        Rolling(field, NEW).wait().good(field.names)
        field.in_service(*field.names)
        assert field.states(first)[-1] == DONE and HOST in field.states(first), field.states(first)
        assert [field.states(name) for name in rest] == [[]] * len(rest), [field.states(name) for name in rest]
        field.all_run()


def red(run: Run, host: str) -> list[str]:
    """The messages of the last play, which is the one that people read."""
    return [one.msg for one in run.failed(host)]


def held(part: Part, field: Field) -> None:
    """A pause, an API server that is away, and a node that a person has cordoned."""
    first, second, last = field.names
    field.lab.kubectl("cordon", last)
    theirs = field.node(last)["spec"], field.hosts.labels(last)
    field.mark()
    # The node of the person counts as well.
    rolling = Rolling(field, OLD, rbln_rollout_max_unavailable=2)
    with part.case("a pause by a label lets the node end that has begun, and begins no other"):
        rolling.reaches(first, HOST)
        field.lab.kubectl("label", *RECORD, HOLD + "=pause")
        rolling.reaches(first, DONE)
        time.sleep(12)
        assert rolling.process.poll() is None and field.state(second) not in WORKING, field.states(second)
        assert "the rollout is paused" in rolling.told, rolling.told[-1000:]
    field.lab.kubectl("label", *RECORD, HOLD + "-")
    with part.case("an API server that is away for 20 s in the middle is waited for"):
        rolling.reaches(second, RESTART)
        with field.away():
            time.sleep(20)
        run = rolling.wait().good(field.names)
        assert "API server: " in rolling.told, rolling.told[-1000:]
        assert [field.loaded(name) for name in field.names] == [OLD, OLD, NEW]
        assert field.states(second)[-1] == DONE, field.states(second)
        assert field.closed_together(last) == 1
        part.note = "%.1f s" % run.seconds
    with part.case("the cordon of a person is untouched, and so is its node"):
        assert (field.node(last)["spec"], field.hosts.labels(last)) == theirs
        assert field.states(last) == [], field.states(last)
        field.in_service(first, second)
    field.lab.kubectl("uncordon", last)


def killed(part: Part, field: Field) -> None:
    """kill -9 of the run at any moment, and again."""
    first, second, last = field.names
    seed = int(time.time())
    pause = random.Random(seed).uniform(0, 35)
    field.mark()
    rolling = Rolling(field, NEW)
    rolling.reaches(first, *WORKING)
    time.sleep(pause)
    ended = rolling.process.poll() is not None
    rolling.kill()
    at = {name: field.state(name) for name in (first, second)}
    part.note = "seed %d: killed %.1f s after the first cordon, at %s" % (seed, pause, at)
    begun = [name for name in at if field.states(name)]
    with part.case("the next run goes on from there"):
        assert not ended, "the run had ended"
        field.mark()
        Rolling(field, NEW).wait().good(field.names)
        assert [field.loaded(name) for name in field.names] == [NEW] * 3
    with part.case("what was done is not done twice, and nothing is left cordoned"):
        done = [last, *(name for name, state in at.items() if state == DONE and name in begun)]
        assert [field.states(name) for name in done] == [[]] * len(done), [field.states(name) for name in done]
        assert field.closed_together() == 1
        field.in_service(*field.names)
        field.all_run()


PARTS: dict[str, t.Callable[[Part, Field], None]] = {
    "with pods": with_pods,
    "again": again,
    "bad driver": bad_driver,
    "held": held,
    "killed": killed,
    "gates": gates,
    "beside": beside,
}


def main() -> int:
    if os.geteuid() != 0:
        step = "Next: sudo make proof-rollout_lab"
        print("proof-rollout_lab starts system containers and needs root. " + step, file=sys.stderr)
        return 2
    proof = Proof("rollout_lab")
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    chosen = sys.argv[1:] or (["with pods", "again"] if SAMPLE else list(PARTS))
    hosts = Hosts(Lab(), dict.fromkeys(NAMES[: 2 if SAMPLE else None], "containerd2"), kube=True)
    field = None
    try:
        hosts.virgin()
        hosts.site()
        field = Field(hosts)
        proof.say("%d nodes and their pods run" % len(hosts.names))
        for name in chosen:
            with proof.part(name) as part:
                PARTS[name](part, field)
    finally:
        if field:
            field.close()
        cleared(hosts.lab)
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
