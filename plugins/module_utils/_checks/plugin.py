# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what the cluster makes of the NPUs: registered with the kubelet, and allocatable."""

from __future__ import annotations

import json
import posixpath
import re
import typing as t

from .._base.model import INFO, WARNING
from .base import Context, Data, Scope, Verdict

SCOPE = Scope("plugin")
SETTLED_SAMPLES = 2


def resource_of(context: Context) -> str:
    return str(context.wanted.get("resource_name") or context.profile.resource_name)


def is_offer(name: str, resource: str) -> bool:
    """Whether a resource is `resource`, or one of virtual functions of the same vendor (npu-vfN).

    The device plugin names the latter so whatever `resource` is.
    """
    return name == resource or bool(re.match(r"%s/[^/]*-vf\d+$" % re.escape(resource.split("/")[0]), name))


def amount(resources: int | str | Data | None, resource: str) -> int | None:
    """How many NPUs a node's resources name: `resource` itself and those of virtual functions.

    A plain number stands for itself, None is None. A node that does not name the resource has 0. ValueError when it is
    not a whole number.
    """
    if resources is None:
        return None
    if isinstance(resources, bool):
        raise ValueError("%r is not a number" % resources)
    if isinstance(resources, (int, str)):
        return _whole(resources)
    return sum(_whole(value) for name, value in resources.items() if is_offer(name, resource))


def _whole(quantity: t.Any) -> int:
    """A whole number as Kubernetes writes it: 1000 can come back as 1k or 1e3."""
    match = re.match(r"^(\d{1,18})(?:([kMGTPE]|[KMGTPE]i)|[eE](\d{1,2}))?$", str(quantity))
    if not match:
        raise ValueError("%r is not a whole number" % (quantity,))
    number, suffix, exponent = int(match.group(1)), match.group(2), int(match.group(3) or 0)
    base = 1024 if suffix and suffix.endswith("i") else 1000
    factor: int = base ** ("KMGTPE".index(suffix[0].upper()) + 1) if suffix else 10**exponent
    return number * factor


def expected_amount(context: Context) -> int:
    """What should be allocatable: the input, else the usable functions for containers."""
    wanted = context.wanted.get("expected_allocatable")
    if wanted is not None:
        return int(wanted)
    return len([npu for npu in context.container_npus if npu.get("usable")])


def settled(samples: t.Sequence[Data], expected: int, resource: str = "") -> dict[str, t.Any]:
    """Whether a node's allocatable can be trusted: the kubelet shows old numbers, or 0, for a while after a restart.

    Samples are {t, alloc, plugin_ready, ready} in the order taken. One is good when node and plugin pod are ready and
    alloc is the expected number; the last two have to be good. Returns {settled, since: t of the first of the unbroken
    good ones or None}.
    """
    run: list[Data] = []
    for sample in samples:
        try:
            found = amount(sample.get("alloc"), resource)
        except (AttributeError, TypeError, ValueError):
            found = None
        good = bool(sample.get("plugin_ready")) and sample.get("ready") is not False and found == expected
        run = run + [sample] if good else []
    return {"settled": len(run) >= SETTLED_SAMPLES, "since": run[0].get("t") if run else None}


@SCOPE.check()
def node_allocatable(context: Context) -> Verdict | None:
    """The node offers exactly the NPUs that are usable."""
    given = context.wanted.get("node_allocatable")
    kubelet = context.runtimes.get("kubelet") or {}
    if given is None and not kubelet.get("present"):
        return Verdict(True, "this host has no kubelet", {"kubelet": False}, severity=INFO)
    expected = expected_amount(context)
    resource = resource_of(context)
    evidence = {"resource": resource, "expected": expected, "allocatable": given}
    if given is None:
        return Verdict(
            None, "the API server was not asked", evidence, "Give node_allocatable: the node's status.allocatable."
        )
    found = amount(given, resource)
    return Verdict(
        found == expected,
        "%s: %s allocatable, %d expected" % (resource, found, expected),
        evidence,
        "Look at the device plugin's pod on this node; after a restart of the kubelet wait for two equal answers.",
    )


@SCOPE.check(WARNING)
def plugin_registered(context: Context) -> Verdict | None:
    """The kubelet's own record of device plugins names the NPUs."""
    kubelet = context.runtimes.get("kubelet") or {}
    if not kubelet.get("present"):
        return None
    path = posixpath.join(str(kubelet["device_plugin_dir"]), "kubelet_internal_checkpoint")
    expected = expected_amount(context)
    found = context.host.read_text(path).map(json.loads)
    evidence = {"path": path, "expected": expected}
    if found.state == "absent":
        return Verdict(
            False if expected else True,
            "no device plugin has registered with the kubelet",
            evidence,
            "Deploy the device plugin.",
        )
    if not found.ok:
        return Verdict(None, "%s: %s" % (path, found.detail), evidence, "Run as root.")
    registered = (found.value.get("Data") or {}).get("RegisteredDevices") or {}
    count = sum(len(devices) for name, devices in registered.items() if is_offer(name, resource_of(context)))
    evidence["registered"] = count
    return Verdict(
        count == expected,
        "%d registered with the kubelet, %d expected" % (count, expected),
        evidence,
        "Look at the device plugin's log.",
    )
