# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of the role of rollouts, typed; its argument spec is the only list of them."""

from __future__ import annotations

import math
import os
import re
import ssl
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._components.registry import COMPONENTS
from .._inputs.cluster import wants_smoke
from .._inputs.normalise import normalise, suggestion
from .._inputs.roles import raw_inputs, role_defaults, role_inputs
from .._objects.names import INPUT, OPERANDS, role
from .settings import Settings, read_pools, seconds
from .states import ROLLOUT

Data = dict[str, t.Any]
ROLE = role("rollout")
# What the playbook that goes by waves sets; the defaults of the role read it.
UPGRADE = f"__{ROLLOUT}upgrade"
# What people set for the playbook plan.
PLAN = INPUT + "plan_upgrade"
HOOKS = ("before", "after")
_KEY = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VALUES = r"[\w.,\s-]*"
_REQUIREMENT = rf"\s*(?:!\s*)?{_KEY}\s*(?:(?:=|==|!=)\s*[\w.-]*|\s(?:in|notin)\s*\({_VALUES}\)|[<>]\s*[0-9]+)?\s*"
_SELECTOR = re.compile(rf"\A{_REQUIREMENT}(?:,{_REQUIREMENT})*\Z")
# The least of each: less is found only when a node is out of service, or its host changed.
LEAST = {"wait_timeout": 0, "evict_timeout": 1, "return_timeout": 1, "grace": -1}
# Those with a unit or in seconds, beside what `settings` reads for each pool.
DURATIONS = ("wait_timeout", "evict_timeout", "return_timeout")
POOL_GROUP = "npu_pool_"
# System, its version, and the kernel, as module_utils/_base/pool.py makes a key of them.
_POOL = re.compile(r"\A[a-z0-9]+(?:_[a-z0-9]+)+_k(?:[0-9]+(?:_[a-z0-9]+)*|unknown)\Z")


class Pools(t.NamedTuple):
    """The keys of pools; `whole` when they are those of every host of the inventory."""

    keys: frozenset[str]
    whole: bool


def pools_of(groups: t.Mapping[str, t.Sequence[str]], observed: t.Mapping[str, str], hosts: t.Collection[str]) -> Pools:
    """What is known of the pools of an inventory.

    `groups` are its own and those that this run has made; `observed` are {host: pool} of hosts that an earlier run has
    looked at; `hosts` are all that may have one.
    """
    made = {name[len(POOL_GROUP) :]: found for name, found in groups.items() if name.startswith(POOL_GROUP)}
    placed = {host for found in made.values() for host in found} | set(observed)
    return Pools(frozenset({*made, *observed.values()}), placed.issuperset(hosts))


def read_inputs(templar: t.Any, variables: t.Mapping[str, t.Any]) -> Data:
    """All inputs without the role's prefix. NpuError names the variable that is wrong."""
    spec = role_inputs((ROLE,))
    raw = raw_inputs(templar, variables, spec)
    for name, value in role_defaults(ROLE).items():
        # The empty answer of a survey is the default, which may be a template.
        if raw[name] is None or (raw[name] == "" and spec[name]["type"] == "raw"):
            raw[name] = templar.template(value)
    typed = normalise(raw, spec)
    found = {name[len(ROLLOUT) :]: typed[name] for name in spec}
    found.update({name: seconds(ROLLOUT + name, found[name]) for name in DURATIONS})
    # -1 leaves it to the pod. Less than a second is no 0, which would kill it at once.
    found["grace"] = (
        -1 if str(found["grace"]).strip() == "-1" else math.ceil(seconds(ROLLOUT + "grace", found["grace"]))
    )
    if found["metrics"]:
        timeout = seconds(ROLLOUT + "metrics.timeout", found["metrics"]["timeout"])
        found["metrics"] = {**found["metrics"], "timeout": timeout}
    return found


def settings_of(inputs: t.Mapping[str, t.Any], pools: t.Collection[str]) -> dict[str, Settings]:
    """The settings of each of these pools, and of those that the inputs name. NpuError on what cannot work."""
    return read_pools(inputs, {*pools, *(inputs["pools"] or {})})


def judge(inputs: t.Mapping[str, t.Any], pools: Pools | None) -> None:
    """NpuError on what cannot work, before a host is touched.

    `pools` are those of the inventory, once the hosts of the run are in theirs; None before that. A pool that is none
    of them is unknown, unless it may be that of a host that nobody has looked at.
    """
    own = inputs["pools"] if isinstance(inputs["pools"], t.Mapping) else {}
    guessed = [
        name
        for name in own
        if pools and not pools.whole and _POOL.match(str(name)) and not str(name).startswith(POOL_GROUP)
    ]
    if pools is None:
        settings_of(inputs, ())
    else:
        read_pools(inputs, {*pools.keys, *guessed})
    _judge_hooks(inputs)
    for name, least in LEAST.items():
        if inputs[name] < least:
            raise NpuError(f"{ROLLOUT}{name} is {inputs[name]:g}.", f"Write {least} or more.")
    selector = inputs["wait_selector"]
    if selector and not _SELECTOR.match(selector):
        raise NpuError(
            f"{ROLLOUT}wait_selector is {selector!r}, which is not a label selector.",
            'Write for example "job-kind=training" or "kind in (train, tune)".',
        )
    names = [row.name for row in COMPONENTS]
    for name in inputs["pause_components"]:
        if name not in names:
            raise NpuError(f"{ROLLOUT}pause_components has the unknown component {name}.", suggestion(name, names))
    _judge_metrics(inputs["metrics"] or {})


def judge_place(inputs: t.Mapping[str, t.Any], operands: t.Mapping[str, t.Any] | None) -> None:
    """NpuError where hosts with these inputs cannot go; `operands` are those of their cluster, None without one.

    A play that uses the role alone may have judged nothing before.
    """
    judge(inputs, None)
    if operands is not None and inputs["smoke"] and not wants_smoke(operands):
        raise NpuError(
            f"{ROLLOUT}smoke is true, but {OPERANDS}smoke is not enabled, so no workload would prove a node.",
            f"Set {OPERANDS}smoke, with enabled: true, or set {ROLLOUT}smoke to false.",
        )


def _judge_metrics(query: t.Mapping[str, t.Any]) -> None:
    url, asked = str(query.get("url") or ""), query.get("query")
    if (url or asked) and not (asked and url.startswith(("http://", "https://"))):
        raise NpuError(
            f"{ROLLOUT}metrics needs url and query.", "Write {url: https://prometheus.example.com, query: ...}."
        )
    if query.get("timeout", 1) <= 0:
        raise NpuError(f"{ROLLOUT}metrics.timeout is {query['timeout']:g}.", "Write more than 0.")
    if query.get("ca_cert"):
        try:
            ssl.create_default_context(cafile=query["ca_cert"])
        except OSError as exc:
            raise NpuError(
                f"{ROLLOUT}metrics.ca_cert names {query['ca_cert']}, which cannot be read: {exc.strerror or exc}.",
                "Give the path of a file with certificates (PEM) on the controller.",
            ) from None


def _judge_hooks(inputs: t.Mapping[str, t.Any]) -> None:
    """NpuError for a hook that is no file of tasks."""
    for name in HOOKS:
        path = inputs[name]
        if not path:
            continue
        if not os.path.isabs(path):
            # Ansible would look for it in the role first.
            step = 'Write its whole path, such as "{{ inventory_dir }}/%s".' % os.path.basename(path)
            raise NpuError(f"{ROLLOUT}{name} is {path}, which is not an absolute path.", step)
        try:
            with open(path, encoding="utf-8") as file:
                tasks = yaml.safe_load(file)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
            why = getattr(exc, "strerror", None) or "it is not YAML"
            raise NpuError(
                f"{ROLLOUT}{name} names {path}, which cannot be read: {why}.", "Give the path of a file of tasks."
            ) from None
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise NpuError(f"{ROLLOUT}{name} names {path}, which is not a list of tasks.", "Write tasks in it.")
