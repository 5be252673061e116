# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of the cluster side: of hosts and their nodes, of verdicts on DaemonSets, of a wait."""

from __future__ import annotations

import typing as t


class Named(t.TypedDict):
    """What the inventory says of a host: the input node_name and ansible_host, each empty when it is not set."""

    host: str
    node_name: str
    address: str


class Member(Named):
    """What the acting host must know of a host. Ids and the kubelet's name are the host's own word.

    `labels` and `expected` (NPUs) are None when the host's NPUs are not known. `awaits_driver`: the first pod of its
    driver is still to come, and nothing is known of that driver.
    """

    machine_id: str | None
    system_uuid: str | None
    kubelet_name: str | None
    labels: dict[str, str] | None
    driver_managed: bool
    expected: int | None
    lacks_proof: bool
    awaits_driver: bool


class FoundNode(t.TypedDict):
    """The node of a host and how it is proven: input, name, address, or claim. Empty, with the error, for none."""

    node: str
    error: str
    proof: str


class NodeRecord(FoundNode):
    """The node of a host and its labels before and after, as far as they are ours.

    `discovery` says that feature discovery of ours was meant for the node, and is no longer.
    """

    changed: bool
    before: dict[str, str]
    after: dict[str, str]
    notes: list[str]
    expected: int | None
    discovery: bool


class NodeState(t.TypedDict):
    """What the cluster says of the node of a host; `error` tells why it says nothing.

    `drained` is None where it was not asked or not answered, `expected` where the NPUs of the host are not known or the
    node is not to offer them.
    """

    node: str
    ready: bool
    cordoned: bool
    drained: bool | None
    taints: list[str]
    allocatable: int
    expected: int | None
    error: str


class PodProblem(t.TypedDict):
    """Why a node lacks a ready pod of a DaemonSet; `fatal` when waiting does not help."""

    node: str
    pod: str
    reason: str
    detail: str
    next_step: str
    fatal: bool


class Verdict(t.TypedDict):
    """A DaemonSet as its status counts it, and what is wrong; `warnings` are about nodes outside the scope."""

    name: str
    done: bool
    desired: int
    ready: int
    updated: int
    problems: list[PodProblem]
    warnings: list[PodProblem]


class Offer(t.TypedDict):
    """The allocatable NPUs of a node; `settled` when they were right twice in a row."""

    expected: int
    allocatable: int
    node_ready: bool
    plugin_ready: bool
    settled: bool


class NodeProblem(t.TypedDict):
    """What is wrong on a node, or everywhere when `node` is empty; `cause` is the kind, one word."""

    node: str
    text: str
    fatal: bool
    cause: str


class WaitProblem(t.TypedDict):
    """A problem of a component that failed."""

    component: str
    node: str
    text: str
    fatal: bool


class ComponentState(t.TypedDict):
    """How a component ended: ready, failed or not_waited."""

    state: str
    seconds: float
    desired: int
    ready: int
    text: str


class Waited(t.TypedDict):
    """The result of a wait.

    `nodes` are the nodes of the cluster, empty when it was not looked at; `judged` those of this wait.
    """

    ok: bool
    fatal: bool
    components: dict[str, ComponentState]
    daemonsets: list[Verdict]
    allocatable: dict[str, Offer]
    problems: list[WaitProblem]
    warnings: list[str]
    seconds: float
    nodes: list[str]
    judged: list[str]
