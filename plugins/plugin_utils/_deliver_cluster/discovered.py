# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of what labels nodes by Node Feature Discovery: our feature discovery with its file, and our rule.

Node Feature Discovery removes the labels of a source that is gone, also those that are ours as well. So a run waits for
that before it labels the nodes for the last time.
"""

from __future__ import annotations

import time
import typing as t

from .._cluster.api import Cluster, Data
from .._components.discovery import NAME
from .._components.node_feature_rule import KIND
from .._components.registry import COMPONENT_LABEL
from .._nodes.labels import discovered_labels
from .._nodes.pods import pod_node
from .._nodes.records import NodeRecord
from .._objects.inputs import Inputs
from .._objects.parts import SELECTOR
from .._text.line import line

PAUSE = 2.0


def ruled_labels(objects: t.Sequence[Data]) -> set[str]:
    """The labels that the rules among `objects` give."""
    rules = [rule for item in objects if item["kind"] == KIND[1] for rule in item["spec"]["rules"]]
    return {name for rule in rules for name in rule["labels"]}


def wait_for_discovery(cluster: Cluster, inputs: Inputs, nodes: t.Collection[str]) -> set[str]:
    """Wait until no pod of feature discovery, which would write its file again, is on `nodes`; those that keep one."""
    selector = "%s,%s=%s" % (SELECTOR, COMPONENT_LABEL, NAME)

    def look() -> set[str]:
        pods = cluster.list("v1", "Pod", inputs["namespace"], selector)
        return {pod_node(pod) for pod in pods}.intersection(nodes)

    return _until_empty(cluster, inputs, look, "feature discovery ends on %s")


def wait_for_removal(
    cluster: Cluster, inputs: Inputs, wanted: t.Mapping[str, t.Collection[str]], given: t.Collection[str]
) -> list[str]:
    """Wait until Node Feature Discovery has removed the labels that have no source any more; a note where it has not.

    `wanted` has for each node the labels that its host gives it, `given` are those that a rule of ours goes on to give.
    """
    held: dict[str, set[str]] = {}

    def look() -> set[str]:
        nodes = {node["metadata"]["name"]: node for node in cluster.list("v1", "Node", metadata=True)}
        held.update(
            (name, discovered_labels(nodes[name]).intersection(labels).difference(given) if name in nodes else set())
            for name, labels in wanted.items()
        )
        return {name for name, labels in held.items() if labels}

    left = _until_empty(cluster, inputs, look, "Node Feature Discovery removes the labels that it set on %s")
    return [
        "node %s: after %d s Node Feature Discovery still keeps %s, which no component of ours gives any more. "
        "Next: Run again after its next round; if a rule or a file of others gives these labels, leave them."
        % (name, inputs["wait_timeout"], ", ".join(sorted(held[name])))
        for name in sorted(left)
    ]


def join_records(
    first: t.Mapping[str, NodeRecord], again: t.Mapping[str, NodeRecord], failed: t.Mapping[str, str]
) -> None:
    """Make of the records of labelling twice, in `again`, those of both; `failed` are hosts that keep their file."""
    for host, record in again.items():
        before = first[host]
        if before["changed"]:
            after = record["after"] if record["changed"] else before["after"]
            record.update({"changed": before["before"] != after, "before": before["before"], "after": after})
        if host in failed and not record["error"]:
            record["error"] = (
                "node %s: the file of feature discovery is still on its host, so Node Feature Discovery keeps its "
                "labels: %s. Next: Correct that, then run again." % (record["node"], line(failed[host]).rstrip("."))
            )


def _until_empty(cluster: Cluster, inputs: Inputs, look: t.Callable[[], set[str]], text: str) -> set[str]:
    """What `look` still finds when the time is over; empty when all is gone."""
    end = time.monotonic() + inputs["wait_timeout"]
    while True:
        left = look()
        if not left or time.monotonic() > end:
            return left
        names = ", ".join(sorted(left)[:3]) + (" and %d more" % (len(left) - 3) if len(left) > 3 else "")
        cluster.waits("%s: waiting, %d s are left" % (text % names, end - time.monotonic()))
        time.sleep(PAUSE)
