# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a cluster: our objects, nodes, events and logs, without Secrets, each request with a limit of its own."""

from __future__ import annotations

import functools
import json
import re
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import masked, secrets_in
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host import probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.apart import Keep
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import Limits, clean_text, finished
from ansible_collections.rebellions.npu.plugins.module_utils._support.hide import without_secrets
from ansible_collections.rebellions.npu.plugins.module_utils._support.sources import plain

from .._cluster.api import KINDS, ApiError, list_served
from .._cluster.logs import TextCluster, TooLong
from .._cluster.transport import NoAnswer
from .._deliver_cluster.ours import is_ours, list_ours
from .._objects.names import DRIVER_KIND, OPERATOR, POLICY_KIND, SHORT
from .._objects.parts import LABEL_PREFIX, NPU_KEY
from .parts import CLUSTER, COLLECTED, FAILED, PLANNED, Part

Data = dict[str, t.Any]
# Never asked for: it holds nothing but secrets.
SECRET = ("v1", "Secret")
NODE, POD, EVENT = ("v1", "Node"), ("v1", "Pod"), ("v1", "Event")
LEASE, SLICE = ("coordination.k8s.io/v1", "Lease"), ("resource.k8s.io/v1", "ResourceSlice")
# Of which logs are read, those in trouble first.
PODS = 60
_SERIAL = re.compile(r"(?i)(?:^|[._/-])(?:serial(?:[_-]?(?:number|no))?|sid|uuid)$|systemUUID$")


@dataclass
class Left:
    """Seconds and bytes that are left for a cluster."""

    deadline: float
    room: int


class ClusterCollector:
    """Asks one cluster source by source; nothing that fails keeps the next from being asked."""

    def __init__(self, cluster: TextCluster, namespace: str, limits: Limits, dry: bool = False) -> None:
        self._cluster, self._namespace, self._limits, self._dry = cluster, namespace, limits, dry
        self._left = Left(time.monotonic() + limits.total, limits.host)
        self.records: list[Data] = []
        self.texts: dict[str, str] = {}
        self.serials: set[str] = set()
        self.secrets: set[str] = set()
        # Why the server is not asked again.
        self._away = ""

    def all(self) -> None:
        """Ask for everything."""
        space = self._namespace
        self._json("version.json", "GET /version", lambda: self._request("/version"))
        nodes = self._json("nodes.json", "the nodes with NPUs", self._nodes) or []
        self._json("namespace.json", "the namespace %s" % space, lambda: self._cluster.get("v1", "Namespace", space))
        for kind in KINDS:
            if kind not in (SECRET, NODE, POD, EVENT, LEASE, SLICE, POLICY_KIND, DRIVER_KIND):
                self._list("objects/%s.json" % kind[1], kind, functools.partial(self._ours, kind))
        # Of Leases also those of components that take turns in our namespace.
        self._list("objects/Lease.json", LEASE, lambda: self._cluster.list(*LEASE, space))
        for kind in (POLICY_KIND, DRIVER_KIND):
            self._list("objects/%s.json" % kind[1], kind, functools.partial(list_served, self._cluster, *kind))
        self._list("objects/ResourceSlice.json", SLICE, self._slices)
        pods = self._list("pods.json", POD, lambda: self._cluster.list(*POD, space)) or []
        self._list("events.json", EVENT, lambda: self._events(space, ""))
        names = {item["metadata"]["name"] for item in nodes}
        self._list("node_events.json", EVENT, lambda: self._node_events(names))
        for pod in sorted(filter(_is_of_us, pods), key=_trouble)[:PODS]:
            self._logs(pod)

    def _request(self, path: str) -> Data:
        return self._cluster.request("GET", path, "Read " + path, tries=1)[1]

    def _nodes(self) -> list[Data]:
        return self._cluster.list(*NODE, only=_has_npus)

    def _ours(self, kind: tuple[str, str]) -> list[Data]:
        return list_ours(self._cluster, kind, self._namespace, True)

    def _slices(self) -> list[Data]:
        found = list_served(self._cluster, *SLICE)
        return [item for item in found if str((item.get("spec") or {}).get("driver")).endswith(OPERATOR.group)]

    def _events(self, namespace: str, fields: str) -> list[Data]:
        found = self._cluster.list(*EVENT, namespace, fields=fields)
        return sorted(found, key=_time)[-self._limits.lines :]

    def _node_events(self, names: t.Collection[str]) -> list[Data]:
        found = self._events("default", "involvedObject.kind=Node")
        return [item for item in found if (item.get("involvedObject") or {}).get("name") in names]

    def _list(self, name: str, kind: tuple[str, str], ask: t.Callable[[], list[Data]]) -> list[Data] | None:
        where = " in %s" % self._namespace if KINDS[kind][2] else ""
        found: list[Data] | None = self._json(name, "%s objects%s" % (kind[1], where), ask)
        return found

    def _json(self, name: str, source: str, ask: t.Callable[[], t.Any]) -> t.Any:
        """What was found, kept as JSON with an object a line, as many as there is room for."""

        def work(keep: Keep) -> tuple[str, str]:
            found.append(ask())
            if found[0] is None:
                return probe.ABSENT, "it does not exist"
            for item in found[0] if isinstance(found[0], list) else found:
                thin = _thin(item)
                self._note(thin)
                self.secrets |= secrets_in(thin)
                keep.feed(json.dumps(masked(thin), sort_keys=True).encode() + b"\n")
            return probe.VALUE, ""

        found: list[t.Any] = []
        self._one(name, source, work)
        return found[0] if found else None

    def _logs(self, pod: Data) -> None:
        """The newest lines of each container, and of the one before it where it was started again."""
        meta, status = pod["metadata"], pod.get("status") or {}
        states = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
        for state in states:
            container, name = (
                str(state.get("name")),
                "logs/%s/%s" % (plain(meta["name"]), plain(str(state.get("name")))),
            )
            self._log(name + ".txt", pod, container, False)
            if state.get("restartCount"):
                self._log(name + ".previous.txt", pod, container, True)

    def _log(self, name: str, pod: Data, container: str, previous: bool) -> None:
        meta = pod["metadata"]
        path = self._cluster.path("v1", "Pod", self._namespace, meta["name"]) + "/log"
        query: Data = {"container": container, "tailLines": self._limits.lines, "timestamps": "true"}
        if previous:
            query["previous"] = "true"
        what = "log of %s, container %s%s" % (meta["name"], container, ", the one before" if previous else "")

        def work(keep: Keep) -> tuple[str, str]:
            self._cluster.text(path, "Read the " + what, query, keep.feed, self._limits.seconds)
            return probe.VALUE, ""

        self._one(name, what, work, True)

    def _one(self, name: str, source: str, work: t.Callable[[Keep], tuple[str, str]], newest: bool = False) -> None:
        """Do one look and record how it ended."""
        began, room = time.monotonic(), min(self._limits.source, self._left.room)
        keep = Keep(room, newest)
        if self._dry:
            state, detail = probe.VALUE, ""
        elif self._away:
            state, detail = probe.FAILED, "not asked: " + self._away
        elif began > self._left.deadline:
            state, detail = probe.TIMEOUT, "not asked: the time for this cluster was over"
        elif room <= 0:
            state, detail = probe.TOO_LARGE, "not asked: the room for this cluster was used"
        else:
            state, detail = self._tried(work, keep, newest)
        data = keep.close()
        self._left.room -= len(data)
        if data:
            self.texts[name] = clean_text(data.decode("utf-8", "replace"))
        seconds = round(time.monotonic() - began, 2)
        record = {"name": name, "kind": "request", "source": source, "state": state, "detail": detail}
        self.records.append({**record, "cut": keep.cut, "seconds": seconds})

    def _tried(self, work: t.Callable[[Keep], tuple[str, str]], keep: Keep, of_log: bool) -> tuple[str, str]:
        try:
            return work(keep)
        except ApiError as exc:
            return {401: probe.DENIED, 403: probe.DENIED, 404: probe.ABSENT}.get(exc.status, probe.FAILED), str(exc)
        except NoAnswer as exc:
            # A log comes from the kubelet of its node, which may be away alone.
            self._away = self._away if of_log else exc.message
            return probe.TIMEOUT, str(exc)
        except TooLong as exc:
            return probe.TOO_LARGE, str(exc)
        except NpuError as exc:
            return probe.FAILED, str(exc)
        except Exception as exc:  # an object of another shape than its kind has
            return probe.FAILED, "%s: %s" % (type(exc).__name__, exc)

    def _note(self, value: t.Any, of: bool = False) -> None:
        """Keep the serial numbers of an object: texts below a key that says so."""
        if isinstance(value, dict):
            for key, item in value.items():
                self._note(item, of or bool(_SERIAL.search(str(key))))
        elif isinstance(value, list):
            for item in value:
                self._note(item, of)
        elif of and isinstance(value, str) and len(value) >= 4:
            self.serials.add(value)


def collect_cluster(
    name: str,
    cluster: TextCluster,
    namespace: str,
    limits: Limits,
    serials: t.Iterable[str] | None = (),
    dry: bool = False,
) -> Part:
    """All of one cluster. `serials` are those that its hosts have told; None keeps them."""
    began = time.monotonic()
    work = ClusterCollector(cluster, namespace, limits, dry)
    work.all()
    known = None if serials is None else sorted({*serials, *work.serials})
    texts = without_secrets(work.texts, known, work.secrets)
    records = finished(work.records, texts, limits.host)
    state = PLANNED if dry else COLLECTED if work.texts else FAILED
    detail = "" if state != FAILED else str(records[0]["detail"])
    ordered = [texts[one["name"]] for one in records if one["size"]]
    return Part(CLUSTER, name, state, detail, time.monotonic() - began, records, ordered)


def _thin(item: t.Any) -> t.Any:
    """An object without what only makes it long."""
    if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
        return item
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    found = {**item, "metadata": meta}
    if item.get("kind") == NODE[1] and isinstance(item.get("status"), dict):
        found["status"] = {key: value for key, value in item["status"].items() if key != "images"}
    return found


def _has_npus(node: Data) -> bool:
    """Whether a node has our labels, or offers or has offered NPUs."""
    labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
    offered = {*(status.get("capacity") or {}), *(status.get("allocatable") or {})}
    return any(str(key).startswith((LABEL_PREFIX, NPU_KEY)) for key in (*labels, *offered))


def _is_of_us(pod: Data) -> bool:
    return is_ours(pod) or str(pod["metadata"]["name"]).startswith((SHORT, OPERATOR.deployment))


def _trouble(pod: Data) -> tuple[bool, int, str]:
    """Pods that are not ready come first, then those that were started again most often."""
    status = pod.get("status") or {}
    states = status.get("containerStatuses") or []
    ready = bool(states) and all(one.get("ready") for one in states)
    return ready, -sum(int(one.get("restartCount") or 0) for one in states), str(pod["metadata"]["name"])


def _time(event: Data) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
