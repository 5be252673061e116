# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark: counts that repeat exactly, and CPU seconds that do not.

Counts, and ratios of what ran beside each other, are gates. CPU seconds are aims: they are reported and never a reason
to fail.

    python -m tests.bench --counts        counts alone, as in `make test`: other work beside them does no harm
    python -m tests.bench                 one round on 10 hosts, the naive role on three
    python -m tests.bench --rounds 5      10 and 100 hosts, contenders interleaved, median, least and most; --growth
    python -m tests.bench --growth        unchanged runs of 50, 200 and 500 hosts: CPU a host, memory of all processes
    python -m tests.bench --report        what the report of a run adds to an unchanged one
    python -m tests.bench --settings      unchanged runs under other settings of Ansible than those of the sample

Times are CPU seconds of the controller, of everything it started, and of the server, not wall times. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
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
from ._contenders import (
    BenchError,
    Spent,
    bare,
    naive,
    oldest,
    operands,
    ours,
    prepare,
    pyinfra,
    raw,
    shared,
    unchanged,
)
from ._events import Event, read_events
from ._forks import judged, watched
from ._hosts import ALL, COUNT, FOLDER, MOST, NAMES, Hosts
from ._report import SHARE_LIMIT, reported
from ._settings import settings

EXECUTIONS_LIMIT, TASKS_LIMIT = 1, 1
# The vendor's tool for the devices and for its version, systemd for all units: a program costs as much as a room.
PROGRAMS = ["rbln-smi", "rbln-smi", "systemctl"]
# Ratios of CPU seconds a host: at most, or for the naive role at least.
BARE_AIM, PYINFRA_AIM, NAIVE_AIM, SECOND_AIM, GROWTH_AIM = 6.0, 1.2, 20.0, 0.15, 1.1
# MiB (PSS) of the main process, and of it with as many forks as this.
MAIN_AIM, ALL_AIM, MEMORY_FORKS = 150, 500, 20
# Hosts of runs that are compared in their growth, and how much more CPU a host of the largest may cost.
GROWING, GROWTH_GATE = (50, 200, 500), 1.25
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
    forks, executions = hosts.executions(lambda: watched(hosts, names))
    for good, text in judged(forks, names):
        report.gate(good, text)
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
    # The last two belong to the cluster's play, which a run of the host part leaves out.
    report.gate(sorted(once.values()) == [len(ONCE) - 2], "tasks once a run: %d" % sum(once.values()))
    programs = sorted(hosts.programs())
    report.gate(
        programs == PROGRAMS, "programs that an observation starts: %s (limit %s)" % (programs, ", ".join(PROGRAMS))
    )
    here = [tasks[name] - once[name] - executions[name] for name in names]
    report.gate(
        0 < max(here) <= TASKS_LIMIT,
        "tasks a host on the controller or skipped: %d (limit %d)" % (max(here), TASKS_LIMIT),
    )


def _named(events: t.Sequence[Event]) -> str:
    return "".join("; %s on %s: %s" % (event.task, event.host, event.state) for event in events[:5])


def compare(report: Report, hosts: Hosts, rounds: int, naive_hosts: int, sizes: t.Sequence[int]) -> None:
    """Contenders in turn, each with connections of its own; figures are CPU seconds a host."""
    few = NAMES[:naive_hosts]
    # The naive role's first run writes its files; it is compared unchanged like the others.
    naive(hosts, NAMES[:1])
    contenders = {
        "one ssh": bare, "one shared ssh": shared, "raw and sudo": raw,
        "ours": ours, "ours, oldest core": oldest, "pyinfra": pyinfra,
    }  # fmt: skip
    spent: dict[tuple[str, int], list[Spent]] = {}
    for _round in range(rounds):
        for size in sizes:
            for name, contender in contenders.items():
                spent.setdefault((name, size), []).append(contender(hosts, ALL[:size]))
        spent.setdefault(("naive role", len(few)), []).append(naive(hosts, few))
    costs = {key: [one.cpu / key[1] for one in found] for key, found in spent.items()}
    for (name, size), values in costs.items():
        report.tell("%s on %d hosts: %s CPU-s a host" % (name, size, spread(values)))
    for size in sizes:
        mine = spent[("ours", size)]
        report.tell(
            "ours on %d hosts, controller: %s CPU-s a host" % (size, spread([one.controller / size for one in mine]))
        )
        report.tell("ours on %d hosts, on the host: %s CPU-s" % (size, spread([one.host / size for one in mine])))
        for name, aim in (
            ("one ssh", BARE_AIM), ("one shared ssh", 0.0), ("raw and sudo", 0.0),
            ("ours, oldest core", 0.0), ("pyinfra", PYINFRA_AIM),
        ):  # fmt: skip
            ratios = _ratios(costs[("ours", size)], costs[(name, size)])
            text = "ours / %s, %d hosts: %s" % (name, size, spread(ratios))
            if aim:
                report.aim(median(ratios) <= aim, "%s (aim at most %g)" % (text, aim))
            else:
                report.tell(text)
    factors = _ratios(costs[("naive role", len(few))], costs[("ours", sizes[0])])
    report.aim(
        median(factors) >= NAIVE_AIM,
        "naive role of 30 tasks / ours: %s (aim at least %g)" % (spread(factors), NAIVE_AIM),
    )
    if len(sizes) > 1:
        growth = _ratios(costs[("ours", sizes[-1])], costs[("ours", sizes[0])])
        report.aim(
            median(growth) <= GROWTH_AIM,
            "ours a host, %d hosts / %d hosts: %s (aim at most %g)" % (sizes[-1], sizes[0], spread(growth), GROWTH_AIM),
        )


def _ratios(ones: t.Sequence[float], others: t.Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others)]


def memory(report: Report, hosts: Hosts, sizes: t.Sequence[int]) -> None:
    """What unchanged runs of these sizes cost a host, and what their processes hold at most.

    Names beyond a hundred share addresses, and all share one machine: connections and answers are of each name.
    """
    costs = {}
    for size in sizes:
        names = ALL[:size]
        spent, executions = hosts.executions(
            functools.partial(ours, hosts, names, what="memory", forks=str(MEMORY_FORKS))
        )
        good = unchanged((FOLDER / "ours.log").read_text(encoding="utf-8", errors="replace"))
        most, least = (pick(executions[name] for name in names) for pick in (max, min))
        report.gate(
            good == size and least == most == EXECUTIONS_LIMIT,
            "%d hosts: %d unchanged, %d to %d executions each" % (size, good, least, most),
        )
        costs[size] = spent.cpu / size
        report.tell(
            "%d hosts: %.2f CPU-s a host, %.2f of them the controller's; %.0f s by %d forks"
            % (size, costs[size], spent.controller / size, spent.wall, MEMORY_FORKS)
        )
        held = "%d hosts, PSS: main process %.0f MiB, all its forks %.0f MiB" % (size, spent.main, spent.forks)
        report.gate(spent.main > 0 and spent.forks > 0, "memory was seen")
        report.aim(
            spent.main <= MAIN_AIM and spent.forks <= ALL_AIM,
            "%s (aim at most %d and %d, %d forks)" % (held, MAIN_AIM, ALL_AIM, MEMORY_FORKS),
        )
    for size in sizes[1:]:
        ratio = costs[size] / costs[sizes[0]]
        report.gate(
            ratio <= GROWTH_GATE, "a host of %d / a host of %d: %.2f (limit %g)" % (size, sizes[0], ratio, GROWTH_GATE)
        )


def report_cost(report: Report, hosts: Hosts) -> None:
    spent, whole = reported(hosts)
    report.gate(
        0 < spent <= SHARE_LIMIT * whole,
        "report of %d hosts: %.1f %% of the run's CPU (limit %.0f %%), %.3f of %.2f CPU-s"
        % (len(NAMES), 100 * spent / whole, 100 * SHARE_LIMIT, spent, whole),
    )


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
        "--hosts",
        type=int,
        nargs="+",
        choices=range(1, MOST + 1),
        metavar="N",
        help="hosts of the others, at most %d (default: %d, and %d in several rounds)" % (MOST, COUNT, MOST),
    )
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument(
        "--cluster", action="store_true", help="only the cluster side against kubectl: without hosts and lab"
    )
    alone.add_argument("--counts", action="store_true", help="only what repeats exactly, beside other work")
    alone.add_argument("--growth", action="store_true", help="only the growth from %d to %d hosts" % GROWING[::2])
    alone.add_argument("--report", action="store_true", help="only what the report of a run adds to it")
    alone.add_argument("--settings", action="store_true", help="only other settings of Ansible")
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
        if args.growth or args.report or args.settings:
            hosts.start()
            prepare(others=False)
            ours(hosts, NAMES[:1])
            if args.growth:
                memory(report, hosts, GROWING)
            elif args.report:
                ours(hosts)
                report_cost(report, hosts)
            else:
                settings(report, hosts, args.rounds)
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
        report_cost(report, hosts)
        count_requests(report, hosts)
        if not args.counts:
            quick = args.rounds == 1
            sizes = args.hosts or ([COUNT] if quick else [COUNT, MOST])
            compare(report, hosts, args.rounds, args.naive_hosts or (QUICK_NAIVE_HOSTS if quick else COUNT), sizes)
            memory(report, hosts, [max(sizes)] if quick else GROWING)
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
