# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a rollout on hosts without Kubernetes: a file of the controller, below a lock.

It is JSON with the keys `run` (the record), `held` (pause, abort, or empty) and `approved`, as the ConfigMap of a
cluster has them. What a cluster shows by its nodes is there too: `hosts`, the pool of each host that a run has had, and
`down`, those that have failed and not worked since.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .record import Record, from_json, to_json
from .states import DONE, FAILED, held_of
from .view import NodeView

T = t.TypeVar("T")
_FOLDER = "~/.cache/rebellions-npu"


def folder() -> str:
    """Where records are, on the controller."""
    base = os.environ.get("XDG_CACHE_HOME")
    return os.path.join(base, "rebellions-npu") if base else os.path.expanduser(_FOLDER)


class Seen(t.NamedTuple):
    """The hosts as nodes."""

    nodes: t.Sequence[NodeView]


def _seen(name: str, pool: str, record: Record | None, failed: bool) -> NodeView:
    """A host as a node. One that failed is out of service, and by us, until it works again: it is tried again."""
    entry = record.nodes.get(name) if record else None
    state = entry.state if entry and (entry.under_way or not failed) else FAILED if failed else ""
    return NodeView(name, pool, schedulable=not failed, ours=failed, state=state, run=entry.run if entry else "")


class LocalStore:
    """`hosts` are {name: pool} of the hosts of this run without a cluster; `name` tells inventories apart.

    `inventory` are all its hosts: what was noted of others is forgotten. `works` are those on which this run has found
    nothing to do. `held` and `approved` are those of the last record that was read.
    """

    def __init__(
        self,
        name: str,
        hosts: t.Mapping[str, str],
        inventory: t.Collection[str],
        works: t.Collection[str] = (),
        where: str = "",
    ) -> None:
        self.path = Path(where or folder()) / f"rollout-{name}.json"
        self.held = self.approved = ""
        self._mine, self._inventory, self._works = hosts, frozenset(inventory), frozenset(works)
        self._hosts: dict[str, str] = dict(hosts)
        self._down: frozenset[str] = frozenset()

    def look(self) -> Seen:
        """Hosts are in service until one has failed: the record alone says which are under way.

        Those that this run leaves out count as well, as the other nodes of a cluster do.
        """
        with self._locked():
            record = self._read()
        return Seen([_seen(name, pool, record, name in self._down) for name, pool in self._hosts.items()])

    def claim(self, run: str) -> None:
        """The record alone decides: hosts without a cluster are changed from one controller."""

    def saw(self, node: t.Mapping[str, t.Any]) -> None:
        """A host without a cluster has no node."""

    def change(self, judge: t.Callable[[Record | None], tuple[Record | None, T]]) -> T:
        """Write the record that `judge` makes of the one there, and return what it says besides."""
        with self._locked():
            record = self._read()
            after, answer = judge(record)
            if after is not None and after != record:
                # What a person approved is of one rollout.
                approved = self.approved if record is None or record.id == after.id else ""
                run, down = json.loads(to_json(after)), sorted(self._left(after))
                data = {"approved": approved, "held": self.held, "run": run, "hosts": self._hosts, "down": down}
                self._write(data)
            return answer

    def _left(self, after: Record) -> frozenset[str]:
        """The hosts that are down with this record: not one that is done, or that works as it is.

        Of hosts that are no part of this run, and of those that it stops, nothing new is known.
        """
        failed = {name for name, one in after.nodes.items() if one.state == FAILED}
        works = {name for name, one in after.nodes.items() if one.state == DONE} | (self._works - set(after.nodes))
        return (self._down | failed) - works

    @contextlib.contextmanager
    def _locked(self) -> t.Iterator[None]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(str(self.path) + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise self._unwritten(exc, "Set XDG_CACHE_HOME to a folder that you may write.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> Record | None:
        self.held = self.approved = ""
        self._down, self._hosts = frozenset(), dict(self._mine)
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as exc:
            # What it holds is not known: to delete it would forget hosts that are out of service.
            raise NpuError(
                "The record of the rollout, %s, cannot be read: %s." % (self.path, exc.strerror),
                "Let the user who runs Ansible read it, and run again.",
            ) from None
        except ValueError:
            data = None
        shape = {"run": dict, "hosts": dict, "down": list}
        # A record of an earlier release has no pools beside it.
        data = {"hosts": {}, "down": [], **data} if isinstance(data, dict) else {}
        if not all(isinstance(data.get(key), kind) for key, kind in shape.items()):
            raise NpuError("The record of the rollout, %s, is damaged." % self.path, "Delete it, and run again.")
        self.held, self.approved = held_of(data.get("held")), str(data.get("approved") or "")
        record = from_json(json.dumps(data["run"]))
        noted = {name: one.pool for name, one in record.nodes.items()}
        noted.update({str(name): str(pool) for name, pool in data["hosts"].items()})
        self._hosts = {**{name: noted[name] for name in noted if name in self._inventory}, **self._mine}
        self._down = self._inventory.intersection(map(str, data["down"]))
        return record

    def _write(self, data: dict[str, t.Any]) -> None:
        fresh = self.path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(data, sort_keys=True, indent=1), encoding="utf-8")
            fresh.chmod(0o600)
            fresh.replace(self.path)
        except OSError as exc:
            step = "Free space there, or let the user who runs Ansible write it, and run again."
            raise self._unwritten(exc, step) from None

    def _unwritten(self, exc: OSError, step: str) -> NpuError:
        return NpuError("The record of the rollout, %s, cannot be written: %s." % (self.path, exc.strerror), step)
