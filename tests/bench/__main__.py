# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark: counts that repeat exactly, and CPU seconds that do not.

Counts are gates. CPU seconds are aims: they are reported and never a reason to fail, except for the cluster's unchanged
pass on a machine that is not busy.

    python -m tests.bench --counts        counts alone, as in `make test`: other work beside them does no harm
    python -m tests.bench                 one round, the naive role on three hosts
    python -m tests.bench --rounds 5      contenders interleaved, medians with least and most

Times are CPU seconds of the controller, of everything it started, and of the server, not wall times. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import typing as t
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from tests.integration._play import ONCE
from tests.lab import LabError
from tests.tools.packages import advice, missing

from . import cdi_syscalls
from ._api import Api
from ._cluster import cluster
from ._contenders import BenchError, Spent, bare, naive, operands, ours, prepare, pyinfra
from ._events import Event, read_events
from ._hosts import FOLDER, NAMES, Hosts

EXECUTIONS_LIMIT, TASKS_LIMIT = 2, 10
BARE_AIM, NAIVE_AIM, SECOND_AIM = 6.0, 8.0, 0.6
QUICK_NAIVE_HOSTS = 3


@dataclass
class Report:
    """What was asked and how it came out. Gates decide, aims are told."""

    gates: list[tuple[bool, str]] = field(default_factory=list)
    missed: int = 0

    def gate(self, good: bool, text: str) -> None:
        self.gates.append((good, text))
        print("gate   %-6s %s" % ("ok" if good else "FAILED", text), flush=True)

    def aim(self, good: bool, text: str) -> None:
        self.missed += not good
        print("aim    %-6s %s" % ("met" if good else "missed", text), flush=True)

    @staticmethod
    def tell(text: str) -> None:
        print("figure        %s" % text, flush=True)


def spread(values: t.Sequence[float]) -> str:
    return "%.2f (%.2f-%.2f)" % (median(values), min(values), max(values))


def count_unchanged(report: Report, hosts: Hosts, names: t.Sequence[str] = NAMES) -> None:
    """Executions as sshd has seen them, tasks as the callback has: no host's count is hidden by another's."""
    executions = hosts.executions(lambda: ours(hosts, names, "ansible.posix.jsonl"))
    events = read_events(FOLDER / "ours.log")
    tasks = Counter(event.host for event in events)
    once = Counter(event.host for event in events if event.task.endswith(ONCE))
    changed = [event for event in events if event.state not in ("ok", "skipped")]
    report.gate(
        sorted(tasks) == sorted(names) and not changed,
        "unchanged run: %d hosts, nothing changed%s" % (len(tasks), _named(changed)),
    )
    most = max(executions[name] for name in names)
    report.gate(
        1 <= min(executions[name] for name in names) and most <= EXECUTIONS_LIMIT,
        "executions a host: %d (limit %d)" % (most, EXECUTIONS_LIMIT),
    )
    report.gate(sorted(once.values()) == [len(ONCE)], "tasks once a run: %d" % sum(once.values()))
    here = [tasks[name] - once[name] - executions[name] for name in names]
    report.gate(
        0 < max(here) <= TASKS_LIMIT,
        "tasks a host on the controller or skipped: %d (limit %d)" % (max(here), TASKS_LIMIT),
    )


def _named(events: t.Sequence[Event]) -> str:
    return "".join("; %s on %s: %s" % (event.task, event.host, event.state) for event in events[:5])


def compare(report: Report, hosts: Hosts, rounds: int, naive_hosts: int) -> None:
    """Contenders in turn, each with connections of its own; figures are CPU seconds a host."""
    few = NAMES[:naive_hosts]
    # The naive role's first run writes its files; it is compared unchanged like the others.
    naive(hosts, NAMES[:1])
    spent: dict[str, list[float]] = {"bare": [], "ours": [], "naive": [], "pyinfra": []}
    parts: list[Spent] = []
    for _round in range(rounds):
        spent["bare"].append(bare(hosts).cpu / len(NAMES))
        parts.append(ours(hosts))
        spent["ours"].append(parts[-1].cpu / len(NAMES))
        spent["naive"].append(naive(hosts, few).cpu / len(few))
        spent["pyinfra"].append(pyinfra(hosts).cpu / len(NAMES))
    for name, values in spent.items():
        where = " on %d hosts" % len(few) if name == "naive" else ""
        report.tell("%s: %s CPU-s a host%s" % (name, spread(values), where))
    report.tell("ours, controller: %s CPU-s a host" % spread([part.controller / len(NAMES) for part in parts]))
    report.tell("ours, on the host: %s CPU-s" % spread([part.host / len(NAMES) for part in parts]))
    ratios = {name: [mine / other for mine, other in zip(spent["ours"], values)] for name, values in spent.items()}
    report.aim(
        median(ratios["bare"]) <= BARE_AIM,
        "ours / one bare ssh: %s (aim at most %g)" % (spread(ratios["bare"]), BARE_AIM),
    )
    factors = [1 / ratio for ratio in ratios["naive"]]
    report.aim(
        median(factors) >= NAIVE_AIM,
        "naive role of 30 tasks / ours: %s (aim at least %g)" % (spread(factors), NAIVE_AIM),
    )
    report.tell("ours / ten operations of pyinfra: %s" % spread(ratios["pyinfra"]))


def first_and_second(report: Report, hosts: Hosts, rounds: int) -> None:
    """site.yml on a virgin host, and again; leaves a host on which nothing is to be done."""
    ratios = []
    for number in range(rounds):
        if number:
            hosts.virgin()
        first, second = ours(hosts, NAMES[:1]), ours(hosts, NAMES[:1])
        ratios.append(second.cpu / first.cpu)
    report.aim(
        median(ratios) <= SECOND_AIM,
        "second run / first run, one host: %s (aim at most %g)" % (spread(ratios), SECOND_AIM),
    )


def count_requests(report: Report, hosts: Hosts) -> None:
    """Requests of the cluster's part, first and unchanged, as a proxy counts them."""
    with Api() as api:
        for name in NAMES:
            api.add_node(name)
        for run in ("first", "unchanged"):
            api.requests.clear()
            operands(hosts, api.kubeconfig)
            applied = [
                event
                for event in read_events(FOLDER / "operands.log")
                if "requests" in event.data and "objects" in event.data
            ]
            objects = len(applied[0].data["objects"]) if applied else 0
            nodes = sum(path.startswith("/api/v1/nodes") for _method, path in api.requests)
            rest, writes = len(api.requests) - nodes, sum(method != "GET" for method, _path in api.requests)
            said, all_of_them = applied[0].data["requests"] if applied else None, len(api.requests)
            report.gate(
                objects > 0 and said == all_of_them,
                "%s apply: the role says %s requests, the proxy counts %d" % (run, said, all_of_them),
            )
            report.tell(
                "%s apply: %d requests for %d objects (%.1f each), %d for %d nodes"
                % (run, rest, objects, rest / max(objects, 1), nodes, len(NAMES))
            )
            if run == "unchanged":
                report.gate(writes == 0, "unchanged apply: %d writes" % writes)


def cdi(report: Report, rounds: int) -> None:
    cost = cdi_syscalls.measure(rounds=rounds)
    limit = cdi_syscalls.CALLS_LIMIT, cdi_syscalls.SECONDS_LIMIT
    report.gate(cost.good, "CDI: %.2f system calls a library (limit %g)" % (cost.calls, limit[0]))
    report.aim(
        cost.seconds <= limit[1],
        "CDI: %.3f CPU-s to build for %d libraries (aim %g), %.3f with writing"
        % (cost.seconds, cost.libraries, limit[1], cost.whole),
    )


def main(words: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="rounds of each contender (default 1; %d or more say something)" % cdi_syscalls.ROUNDS,
    )
    parser.add_argument(
        "--naive-hosts",
        type=int,
        choices=range(1, len(NAMES) + 1),
        metavar="N",
        help="hosts of the naive role (default: 3 in one round, else 10)",
    )
    parser.add_argument(
        "--cluster", action="store_true", help="only the cluster side against kubectl: without hosts and lab"
    )
    parser.add_argument("--counts", action="store_true", help="only what repeats exactly, beside other work")
    args = parser.parse_args(words)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    lacking = missing({"bench", "lab"})
    if lacking:
        print("bench: " + advice(lacking), file=sys.stderr)
        return 2
    report, hosts, began = Report(), Hosts(), time.monotonic()
    try:
        if args.cluster:
            FOLDER.mkdir(parents=True, exist_ok=True)
            prepare(others=False)
            cluster(report, args.rounds)
            return closed(report, began)
        cdi(report, max(args.rounds, 3))
        hosts.start()
        prepare(others=not args.counts)
        if args.counts:
            ours(hosts, NAMES[:1])
        else:
            cluster(report, args.rounds)
            first_and_second(report, hosts, args.rounds)
        count_unchanged(report, hosts)
        count_requests(report, hosts)
        if not args.counts:
            few = QUICK_NAIVE_HOSTS if args.rounds == 1 else len(NAMES)
            compare(report, hosts, args.rounds, args.naive_hosts or few)
    except (BenchError, LabError) as exc:
        report.gate(False, str(exc))
    finally:
        if not args.cluster:
            with contextlib.suppress(LabError):
                hosts.stop()
    return closed(report, began)


def closed(report: Report, began: float) -> int:
    """The closing lines; the exit code."""
    failed = sum(not good for good, _text in report.gates)
    print("%d aims missed, %.0f s" % (report.missed, time.monotonic() - began))
    print("%d passed, %d failed" % (len(report.gates) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
