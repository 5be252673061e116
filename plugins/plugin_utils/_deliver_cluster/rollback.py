# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new image is tried on one node first; when its pod does not become ready there, the last good one is put back.

What was good is the whole pod template: the new arguments of a new image never meet the old one. It is an annotation of
the DaemonSet itself, as refused images are: whoever can write them could set the template as well. They have a field
manager of their own, so an apply leaves them alone.
"""

from __future__ import annotations

import json
import re
import time
import typing as t
from dataclasses import dataclass

from .._cluster.api import Cluster, Data
from .._components.digests import containers
from .._components.registry import component_of
from .._nodes.pods import pod_node, pod_ready
from .._nodes.records import NodeRecord, Waited, WaitProblem
from .._nodes.revisions import is_observed
from .._nodes.verdict import is_owned, of_generation
from .._nodes.wait import READY, Waiter
from .._objects.compare import GOOD, HASH, REFUSED, with_hash
from .._objects.inputs import Inputs
from .._objects.names import OPERANDS
from .._objects.parts import SELECTOR
from .._text.line import line

WRITER = "rebellions-npu-rollback"
ON_DELETE = {"type": "OnDelete"}
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}\Z")
_MOST_REASON = 500
# Refused images that a DaemonSet remembers, the newest ones: an annotation has little room.
_MOST_REFUSED = 20
# Seconds in which a container without a readiness probe must not end after its start, which is all that makes it ready.
SETTLES = 15.0
Images = dict[str, str]


@dataclass
class _Trial:
    """A DaemonSet with new images: as it is wanted, the pod template that was good, and as it was before."""

    item: Data
    good: Data
    live: Data


class Rollback:
    """The images of one pass over a cluster. `problems` are those that were refused or rolled back, for every host."""

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        nodes: t.Mapping[str, NodeRecord],
        dry_run: bool,
        tell: t.Callable[[str], None],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._inputs, self._dry_run, self._tell = cluster, inputs, dry_run, tell
        self._clock, self._sleep = clock, sleep
        self._nodes = {record["node"]: record for record in nodes.values() if record["node"] and not record["error"]}
        self._trials: dict[str, _Trial] = {}
        self.problems: list[WaitProblem] = []

    def prepare(self, objects: t.Sequence[Data]) -> list[Data]:
        """The objects to apply first: a refused image is not among them, and a new one waits for its trial."""
        return [self._prepared(item, live) for item, live in self._with_live(objects)] if self._on() else list(objects)

    def _on(self) -> bool:
        return self._inputs["rollback"]

    def _with_live(self, objects: t.Sequence[Data]) -> list[tuple[Data, Data | None]]:
        found = self._cluster.list("apps/v1", "DaemonSet", self._inputs["namespace"], SELECTOR)
        live = {item["metadata"]["name"]: item for item in found if not item["metadata"].get("deletionTimestamp")}
        return [(item, live.get(item["metadata"]["name"]) if item["kind"] == "DaemonSet" else None) for item in objects]

    def _prepared(self, item: Data, live: Data | None) -> Data:
        if live is None or _by_hand(item) or _is_applied(item, live):
            return item
        good = self._good(live)
        back, name = put_back(item, good), item["metadata"]["name"]
        if not good or images_of(back) == images_of(item):
            return item
        if images_of(live) == images_of(item) and not _by_hand(live):
            # They have passed their trial, or run since a time without one: a refusal of before is over.
            return item
        refused = [one for one in _refused(live) if one["images"] == images_of(item)]
        if refused and not self._inputs["rollback_retry"]:
            reason = line(refused[-1].get("reason") or "", _MOST_REASON)
            self._problem(
                item,
                "refused: %s: %s was rolled back before: %s. %s stays. "
                "Next: Name another image, or set %srollback_retry: true to try this one again."
                % (name, _told(item, back), reason, _told(back, item), OPERANDS),
            )
            return back
        if self._dry_run:
            return item
        if _noted(live, GOOD) != good:
            # A run that dies in the trial leaves a DaemonSet that no longer tells what was good.
            self._note(item, {GOOD: good})
        self._trials[name] = _Trial(item, good, live)
        return {**item, "spec": {**item["spec"], "updateStrategy": dict(ON_DELETE)}}

    def _good(self, live: Data) -> Data:
        """The pod template to put back: the noted one, or other images that run on every node now. Empty for none."""
        good = _template(_noted(live, GOOD))
        status = live.get("status") or {}
        desired, updated, ready = (
            int(status.get(name) or 0) for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
        )
        if is_observed(live) and desired and updated == desired:
            others = images_of(put_back(live, good)) != images_of(live) if good else False
            if (not good and ready) or (others and ready == desired and not _by_hand(live)):
                good = live["spec"]["template"]
        images = images_of(put_back({"spec": {}}, good)).values()
        return {} if self._inputs["require_digest"] and not all("@" in image for image in images) else good

    def try_out(self, objects: t.Sequence[Data], failures: t.Mapping[str, str]) -> list[Data] | None:
        """The objects to apply at last, None where the first ones stay.

        Each new image has one pod on one node meanwhile. After the first that fails, no other one is tried.
        """
        if not self._trials:
            return None
        final = list(objects)
        broken = ""
        for place, item in enumerate(final):
            trial = self._trials.get(item["metadata"]["name"]) if item["kind"] == "DaemonSet" else None
            if trial is None:
                continue
            if component_of(item) in failures:
                # It was not applied, so what runs is what ran before.
                final[place] = put_back(trial.item, trial.good)
                continue
            reason = "" if broken else self._try(trial)
            if broken or reason:
                final[place] = put_back(trial.item, trial.good)
                self._tell_back(trial, reason, broken)
                broken = broken or item["metadata"]["name"]
            else:
                final[place] = trial.item
        return final

    def _tell_back(self, trial: _Trial, reason: str, broken: str) -> None:
        item, back = trial.item, put_back(trial.item, trial.good)
        name = item["metadata"]["name"]
        if broken:
            text = "rolled back: %s: %s was not tried, because %s failed. %s stays. Next: Repair %s, then run again."
            self._problem(item, text % (name, _told(item, back), broken, _told(back, item), broken))
            return
        why, _next, step = reason.partition(" Next: ")
        why = line(why, _MOST_REASON).rstrip(".")
        others = [one for one in _refused(trial.live) if one["images"] != images_of(item)]
        refused = [*others, {"images": images_of(item), "reason": why}][-_MOST_REFUSED:]
        self._note(item, {GOOD: trial.good, REFUSED: refused})
        self._problem(
            item,
            "rolled back: %s: %s did not become ready: %s. %s runs again. Next: %s "
            "To try this image again set %srollback_retry: true; or name another one."
            % (name, _told(item, back), why, _told(back, item), step or "Read the log of its pod.", OPERANDS),
        )

    def _problem(self, item: Data, text: str) -> None:
        self.problems.append({"component": component_of(item), "node": "", "text": text, "fatal": True})

    def _try(self, trial: _Trial) -> str:
        """Replace one pod and wait for it; why it did not become ready, empty when it did, or no pod is there."""
        name = trial.item["metadata"]["name"]
        live = self._observed(name)
        if live is None:
            return "the controller has not seen the change. Next: Check that kube-controller-manager runs."
        pod = self._first(live)
        if pod is None:
            return ""
        node = pod_node(pod)
        self._tell("%s: the new image is tried on node %s first" % (name, node))
        if not of_generation(live, pod):
            self._cluster.delete({**pod, "apiVersion": "v1", "kind": "Pod"}, False)
        record = self._nodes.get(node) or _other(node)
        # A node without usable NPUs is not waited for; here its pod is what is looked at.
        record = {**record, "expected": record["expected"] or None}
        inputs = t.cast(Inputs, {**self._inputs, "wait_scope": "run"})
        waiter = Waiter(
            self._cluster,
            inputs,
            {node: record},
            [trial.item],
            {},
            self._clock,
            self._sleep,
            self._tell,
            only=component_of(trial.item),
        )
        waited = waiter.run()
        return self._ended_late(live, node) if waited["ok"] else waited["problems"][0]["text"]

    def _ended_late(self, live: Data, node: str) -> str:
        """Why a container of the pod has ended after it was ready; empty when none has, or a probe watches all."""
        name = live["metadata"]["name"]
        if all(one.get("readinessProbe") for one in live["spec"]["template"]["spec"]["containers"]):
            return ""
        self._tell(
            "%s: it runs on node %s, and is watched for %d s, as it has no readiness probe" % (name, node, SETTLES)
        )
        end, first = self._clock() + SETTLES, self._containers(live, node)
        while True:
            for container, status in self._containers(live, node).items():
                began = int((first.get(container) or {}).get("restartCount") or 0)
                state = status.get("state") or {}
                ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
                # It is counted when it starts again, which may take longer than this.
                if int(status.get("restartCount") or 0) > began or (state and "running" not in state):
                    waits = state.get("waiting") or {}
                    said = line(ended.get("message") or waits.get("message") or waits.get("reason") or "", 200)
                    code = ended.get("exitCode")
                    end_of = "ended" if code is None else "ended with code %s" % code
                    return (
                        "%s on node %s: container %s %s after it was ready%s. Next: Read its log with --previous."
                        % (name, node, container, end_of, said and ": " + said)
                    )
            if self._clock() >= end:
                return ""
            self._sleep(min(1.0, self._inputs["wait_delay"]))

    def _containers(self, live: Data, node: str) -> dict[str, Data]:
        """{name: status} of the containers of the pod of a DaemonSet on a node."""
        pods = self._cluster.list("v1", "Pod", self._inputs["namespace"], SELECTOR)
        mine = [one for one in pods if is_owned(live, one) and pod_node(one) == node]
        living = [one for one in mine if not one["metadata"].get("deletionTimestamp")]
        found = [one for pod in living for one in (pod.get("status") or {}).get("containerStatuses") or []]
        return {str(one.get("name")): one for one in found}

    def _observed(self, name: str) -> Data | None:
        """The live DaemonSet once its controller has seen its template; None when it does not look."""
        end = self._clock() + self._inputs["wait_timeout"]
        while True:
            live = self._cluster.get("apps/v1", "DaemonSet", name, self._inputs["namespace"])
            if live is None or is_observed(live):
                return live
            if self._clock() > end:
                return None
            self._cluster.waits(
                "%s: waiting, %d s are left: the controller has not seen it" % (name, end - self._clock())
            )
            self._sleep(min(1.0, self._inputs["wait_delay"]))

    def _first(self, live: Data) -> Data | None:
        """The pod to replace first: one of this run's nodes and ready, where an interrupted trial has not begun."""
        pods = [
            pod
            for pod in self._cluster.list("v1", "Pod", self._inputs["namespace"], SELECTOR)
            if is_owned(live, pod) and pod_node(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        return min(
            pods,
            key=lambda pod: (
                not of_generation(live, pod),
                pod_node(pod) not in self._nodes,
                not pod_ready(pod),
                pod_node(pod),
            ),
            default=None,
        )

    def remember(self, objects: t.Sequence[Data], waited: Waited) -> None:
        """Note the template of each DaemonSet that is ready everywhere in this run."""
        if not self._on():
            return
        done = {one["name"] for one in waited["daemonsets"] if one["done"] and one["ready"]}
        for item, live in self._with_live(objects):
            ready = waited["components"].get(component_of(item), {"state": ""})["state"] == READY
            if live is None or _by_hand(item) or not ready or item["metadata"]["name"] not in done:
                continue
            template = json.loads(json.dumps(item["spec"]["template"]))
            if _noted(live, GOOD) != template:
                # Other images that were refused stay so.
                refused = [one for one in _refused(live) if one["images"] != images_of(item)]
                self._note(item, {GOOD: template, REFUSED: refused or None})

    def _note(self, item: Data, notes: t.Mapping[str, t.Any]) -> None:
        meta = item["metadata"]
        texts = {
            key: None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))
            for key, value in notes.items()
        }
        path = self._cluster.path("apps/v1", "DaemonSet", meta["namespace"], meta["name"])
        self._cluster.request(
            "PATCH",
            path,
            "Note the images of DaemonSet %s" % meta["name"],
            {"fieldManager": WRITER},
            {"metadata": {"annotations": texts}},
            "application/merge-patch+json",
        )


def images_of(item: Data) -> Images:
    """{container: image} of a DaemonSet, init containers included."""
    return {one["name"]: one["image"] for one in containers(item)}


def put_back(item: Data, template: Data) -> Data:
    """A DaemonSet with another pod template."""
    return {**item, "spec": {**item["spec"], "template": template}}


def _by_hand(item: Data) -> bool:
    """Whether people replace the pods, node by node: a driver's for one. Then nothing has to be tried first."""
    return (item["spec"].get("updateStrategy") or {}).get("type") == ON_DELETE["type"]


def _is_applied(item: Data, live: Data) -> bool:
    """Whether a DaemonSet was made of this very input, also where a webhook has named other images in it."""
    made = (live["metadata"].get("annotations") or {}).get(HASH)
    return bool(made == with_hash(item)["metadata"]["annotations"][HASH])


def _told(item: Data, other: Data) -> str:
    """The images of a DaemonSet that another form of it does not have."""
    theirs = images_of(other)
    return ", ".join(sorted({image for name, image in images_of(item).items() if theirs.get(name) != image}))


def _note_of(live: Data, key: str) -> t.Any:
    """What an annotation of ours says; None when it says nothing that can be read."""
    try:
        return json.loads((live["metadata"].get("annotations") or {}).get(key) or "null")
    except (ValueError, RecursionError):
        return None


def _noted(live: Data, key: str) -> Data:
    found = _note_of(live, key)
    return found if isinstance(found, dict) else {}


def _refused(live: Data) -> list[Data]:
    """The images that were refused, oldest first; each as {images, reason}."""
    found = _note_of(live, REFUSED)
    # A release before noted the newest alone.
    items = [found] if isinstance(found, dict) else found if isinstance(found, list) else []
    return [one for one in items if isinstance(one, dict) and isinstance(one.get("images"), dict)]


def _template(found: Data) -> Data:
    """The pod template of an annotation; empty when its containers and images are none."""
    try:
        images = list(images_of(put_back({"spec": {}}, found)).values())
    except (AttributeError, KeyError, TypeError):
        return {}
    return found if images and all(isinstance(one, str) and _IMAGE.match(one) for one in images) else {}


def _other(node: str) -> NodeRecord:
    """The record of a node whose host is not of this run: how many NPUs it has is not known."""
    return {
        "node": node, "error": "", "proof": "", "changed": False, "before": {}, "after": {}, "notes": [],
        "expected": None, "discovery": False,
    }  # fmt: skip
