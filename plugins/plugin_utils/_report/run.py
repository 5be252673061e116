# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run as a callback is told of it, event by event. It keeps little of each result, and knows nothing of Ansible."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .._answers.answer import FACTS, PREFIX
from .look import PROOF, Look, look
from .made import changes_of
from .timing import Clock

COLLECTION = "rebellions.npu."
# How a task ended on a host.
OK, FAILED, UNREACHABLE, SKIPPED, IGNORED, RESCUED = "ok", "failed", "unreachable", "skipped", "ignored", "rescued"
SET_FACT = ("set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact")
# Roles whose tasks change a host, and the variables that tell of its end.
CHANGING = tuple(f"{PREFIX}_{name}" for name in ("driver", "container_toolkit", "validator", "rollout"))
REPORT = f"{PREFIX}_report"
# The group of the hosts that a spent failure budget leaves alone.
LEFT_ALONE = "npu_left_alone"
FAILURE, REBOOT = f"{PREFIX}_failure", f"{PREFIX}_driver_reboot_required"

Data = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class TaskOf:
    """What of a task an event names. `act` is the argument of that name, `check` whether it is in check mode."""

    uuid: str
    name: str
    role: str = ""
    action: str = ""
    act: str = ""
    check: bool = False

    @property
    def module(self) -> str:
        """The name of a module of ours; empty for others."""
        return self.action[len(COLLECTION) :] if self.action.startswith(COLLECTION) else ""


@dataclass
class HostLog:
    """What is known of a host so far."""

    look: Look = field(default_factory=Look)
    seen: float | None = None
    proven: float | None = None
    plan: Data = field(default_factory=dict)
    node: Data = field(default_factory=dict)
    judged: Data = field(default_factory=dict)
    cluster: str = ""
    changes: list[str] = field(default_factory=list)
    changed: float | None = None
    # (task, message) of what has failed, and of what a play has kept as the failure of the host.
    failed: tuple[str, str] | None = None
    kept: tuple[str, str] | None = None
    # The first that a task has ignored; for a host that was not seen it says why.
    ignored: tuple[str, str] | None = None
    unreachable: bool = False
    results: int = 0
    # Whether a task of a role that changes hosts has run.
    begun: bool = False
    reboot: bool = False
    left_alone: bool = False
    left: Data = field(default_factory=dict)
    left_at: float | None = None
    back: Data = field(default_factory=dict)
    back_at: float | None = None
    wrong: str = ""


@dataclass
class Run:
    """The run so far; times are seconds since the epoch."""

    began: float
    check: bool = False
    # Whether what is kept of clusters and waves is that of tasks in check mode, as in the playbook plan.
    dry: bool = False
    id: str = ""
    ours: bool = False
    reported: bool = False
    hosts: dict[str, HostLog] = field(default_factory=dict)
    works: dict[str, Data] = field(default_factory=dict)
    cut: Data = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    @property
    def foretells(self) -> bool:
        """Whether the run says what one would change, and has changed nothing."""
        return self.check or (self.dry and not any(one.changes for one in self.hosts.values()))

    def play(self, name: str, hosts: t.Iterable[str], now: float) -> None:
        self.clock.play(name, now)
        for host in hosts:
            self.hosts.setdefault(host, HostLog())

    def start(self, host: str, task: TaskOf, now: float) -> None:
        self.clock.start(host, task.uuid, task.role, task.name, now)

    def result(self, host: str, task: TaskOf, how: str, changed: bool, data: t.Callable[[], Data], now: float) -> None:
        """A task has ended on a host; `data` is asked only for what a report needs."""
        self.clock.end(host, task.uuid, task.role, task.name, now)
        one = self.hosts.setdefault(host, HostLog())
        one.results += 1
        if how == SKIPPED:
            return
        if task.module:
            # To report is no work on hosts; a report of drift has all that its run has found.
            self.ours = self.ours or task.module != REPORT
            self.reported = self.reported or (task.module == REPORT and how == OK and task.act == "drift")
        if how in (OK, FAILED, RESCUED) and task.role.rpartition(".")[2] in CHANGING:
            one.begun = True
        if how in (FAILED, UNREACHABLE):
            where = _delegate(data())
            one.failed = (task.name, (f"On {where}: " if where else "") + _message(data()))
            # Another host that does not answer is a failure of this one's task.
            one.unreachable = how == UNREACHABLE and not where
        elif how == IGNORED and one.ignored is None:
            one.ignored = (task.name, _message(data()))
        if task.module:
            self._take(host, one, task, data(), now)
        elif task.action in SET_FACT:
            self._noted(one, data().get(FACTS) or {})
        elif task.action.rpartition(".")[2] == "group_by":
            one.left_alone = one.left_alone or data().get("add_group") == LEFT_ALONE
        if changed and how not in (FAILED, RESCUED) and not self.check:
            made = changes_of(task.module or task.action, task.name, data())
            one.changes += [text for text in made if text not in one.changes]
            one.changed = now if made else one.changed

    def _take(self, host: str, one: HostLog, task: TaskOf, data: Data, now: float) -> None:
        take = TAKES.get(task.module[len(PREFIX) + 1 :])
        if data.get("failure"):
            # The play keeps it, and fails the host at its end.
            one.kept = one.kept or (str(data["failure"].get("task")), str(data["failure"].get("msg")))
        self._facts(host, one, data, now)
        if take is not None:
            take(self, host, one, task, data, now)

    def _noted(self, one: HostLog, facts: Data) -> None:
        told = facts.get(FAILURE)
        if isinstance(told, t.Mapping):
            one.kept = (str(told.get("task")), str(told.get("msg")))
        one.reboot = one.reboot or bool(facts.get(REBOOT))

    def _facts(self, host: str, one: HostLog, data: Data, now: float) -> None:
        given = data.get(FACTS)
        if not isinstance(given, t.Mapping) or PREFIX not in given:
            return
        try:
            # The action plugin has judged them in this run; to judge them again would cost more than all else here.
            one.look, one.seen = look(given), now
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            one.wrong = f"The facts of {host} are not those of our module: {type(exc).__name__}."
        else:
            one.proven = now if PROOF in given else one.proven

    def _planned(self, host: str, one: HostLog, task: TaskOf, data: Data, now: float) -> None:
        self.planned(one, data)

    def planned(self, one: HostLog, data: Data) -> None:
        """Keep a plan; one that is made again after a change leaves the steps that were done."""
        if "steps" in data:
            wanted = data.get("wanted") or {}
            one.plan = {
                "steps": data["steps"] or one.plan.get("steps") or (),
                "stops": data.get("stops") or (),
                "version": str(wanted.get(f"{PREFIX}_driver_version") or ""),
                "reboot": str(wanted.get(f"{PREFIX}_driver_reboot") or "never"),
            }

    def _rolled(self, host: str, one: HostLog, task: TaskOf, data: Data, now: float) -> None:
        if task.act in ("plan", "leave"):
            self.dry = task.check
        if task.act == "plan" and data.get("hosts"):
            self.cut = {key: data.get(key) for key in ("turns", "order")}
        elif task.act == "leave":
            one.left, one.left_at = {key: data.get(key) for key in ("goes", "msg", "failure", "refused")}, now
        elif task.act == "return":
            one.back, one.back_at = {key: data.get(key) for key in ("reason", "msg", "failure", "smoke")}, now

    def _worked(self, host: str, one: HostLog, task: TaskOf, data: Data, now: float) -> None:
        if data.get("objects"):
            self.dry = task.check
        self.worked(host, one, data, task.name)

    def worked(self, host: str, one: HostLog, data: Data, task: str = "") -> None:
        """Keep what an act on the cluster of a host has said."""
        if isinstance(data.get("member"), t.Mapping):
            one.cluster = str(data["member"].get("cluster") or "")
        if data.get("objects"):
            self.works[host] = {"objects": data["objects"]}
        if isinstance(data.get("result"), t.Mapping):
            kept = {key: data["result"].get(key) for key in ("node", "allocatable")}
            bad = data.get("ok") is False or bool(data.get("failed"))
            one.judged = {**kept, "task": task, "error": str(data.get("msg") or "") if bad else ""}
        for name, state in (data.get("states") or {}).items():
            self.hosts.setdefault(name, HostLog()).node = state


def _failures(data: Data) -> list[Data]:
    """The items of a loop that have failed: newer ansible-core names their error alone."""
    items = data.get("results")
    kept = [one for one in items if isinstance(one, t.Mapping)] if isinstance(items, (list, tuple)) else []
    return [one for one in kept if any(map(one.get, ("failed", "unreachable", "exception", "failed_when_result")))]


def _message(data: Data) -> str:
    """Why a task has failed; of a loop, why the first item that has."""
    bad = _failures(data)
    if bad:
        return _message(bad[0]) + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
    # The second is that of a file that is not there to include, the third of no_log.
    said = data.get("msg") or data.get("reason") or data.get("censored") or ""
    told = " ".join(map(str, said)) if isinstance(said, (list, tuple)) else str(said)
    # Of a program that only ended badly, what it said last.
    lines = str(data.get("stderr") or "").strip().splitlines() if data.get("rc") else []
    return f"{told.rstrip('.')}: {lines[-1]}" if lines and lines[-1] not in told else told


def delegated(data: Data, where: t.Any) -> Data:
    """The result with the other host that did not answer; Ansible says so only where one did, and not for a loop."""
    if not where or _delegate(data):
        return data
    told = "another host" if "{{" in str(where) else str(where)
    return {**data, "_ansible_delegated_vars": {"ansible_delegated_host": told}}


def _delegate(data: Data) -> str:
    """The other host on which a task ran, of a loop for the first item that has failed; empty for none."""
    found = next(iter(_failures(data)), data).get("_ansible_delegated_vars")
    found = found or data.get("_ansible_delegated_vars")
    return str(found.get("ansible_delegated_host") or "") if isinstance(found, t.Mapping) else ""


TAKES: dict[str, t.Callable[[Run, str, HostLog, TaskOf, Data, float], None]] = {
    "plan": Run._planned,
    "rollout": Run._rolled,
    "operands": Run._worked,
}
