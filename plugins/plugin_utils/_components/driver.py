# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver as a container: a DaemonSet for each instance and pool, replaced only when its pod is deleted.

Container name, ready file, host directory and the form of the image are the vendor's; that the rights of
the driver manager are these, and that the pod waits for its ready file by probes, is ours.
"""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.ready_files import STOPPED

from .._inputs.instances import FAMILY_KEY, relation, selector, spellings
from .._objects import parts
from .._objects.inputs import Driver, Image, Inputs
from .._objects.model import CONTAINER, Context, Object, Pool, Terms, Variant
from .._objects.names import OPERANDS, SHORT
from .containers import api_token, container, patience, without_empty
from .pools import LONGEST, MOST_NAMED, label_values, named_pools, pool_names, pool_terms, shortened, wanted_pools
from .where import daemon_set

NAME = "driver"
# The label that the vendor's tools look for.
LABEL = SHORT + "-driver"
READY = ".driver-ctr-ready"
# Of the specification of image references.
LONGEST_TAG = 128
# The old driver works until the next manager unloads it: without the mark STOPPED the validator would prove it again.
GONE = (READY, "driver-ready", "toolkit-ready")
# Runs in parallel to the image's own program at each start: after a crash there was no preStop. The kubelet creates the
# file for the termination message just before it starts a container, so a newer mark is this container's own.
START_SCRIPT = """stopped="$1"
mkdir -p "${stopped%/*}"
shift
for file in "$@"; do
  [ "$file" -nt /dev/termination-log ] || rm -f "$file"
done
rm -f "$stopped"
"""
STOP_SCRIPT = """: >"$1"
shift
rm -f "$@"
"""
# What the manager may do: look at its node. To clear it, the inputs must say so, since RBAC knows no bounds by node. An
# eviction heeds disruption budgets, which a deletion does not.
LOOK: tuple[Object, ...] = ({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},)
CLEAR: tuple[Object, ...] = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]},
)


def is_wanted(inputs: Inputs) -> bool:
    """Whether a driver comes as a container anywhere."""
    return bool(_instances(inputs))


def _instances(inputs: Inputs) -> list[tuple[str, Driver]]:
    """(name, inputs) of the drivers that are wanted; the only one has no name when no instances are given."""
    if inputs["driver_instances"]:
        return [(own["name"], own) for own in inputs["driver_instances"] if own["enabled"]]
    return [("", inputs["driver"])] if inputs["driver"]["enabled"] else []


def without_pools(inputs: Inputs) -> list[str]:
    """The drivers that are wanted and for which the inputs name no pool: only live nodes tell their images."""
    return [name or OPERANDS + "driver" for name, own in _instances(inputs) if not own["pools"]]


def roots(inputs: Inputs) -> tuple[str, ...]:
    """Directories of the host that drivers in containers mount each time they start."""
    return tuple(dict.fromkeys(own["host_root"].rstrip("/") for _name, own in _instances(inputs)))


def objects(ctx: Context) -> list[Object]:
    """Roles, and the DaemonSets in the order of instances and pools."""
    inputs, instances = ctx.inputs, _instances(ctx.inputs)
    made = parts.roles(inputs, NAME, CLEAR if any(own["manager"]["evict_pods"] for _name, own in instances) else LOOK)
    terms = {name: instance_terms(own, [other for _name, other in instances]) for name, own in instances}
    made += [_daemon_set(inputs, one, terms[one.instance]) for one in _choose(ctx)[0]]
    return made


def notes(ctx: Context) -> list[str]:
    """Warnings about pools of live nodes that get no driver."""
    return _choose(ctx)[1]


@dataclass(frozen=True)
class _Chosen:
    """One DaemonSet: the instance and its inputs, the pool, and what its name ends with."""

    instance: str
    own: Driver
    pool: Pool
    variant: str


def _choose(ctx: Context) -> tuple[list[_Chosen], list[str]]:
    """(DaemonSets in the order of instances and pools, warnings).

    A pool of live nodes is left out when its labels make a tag too long, or the name of a DaemonSet that another pool
    has: those of the inputs come first, then those of the most nodes.
    """
    found: list[tuple[int, int, _Chosen]] = []
    for number, (name, own) in enumerate(_instances(ctx.inputs)):
        named = len({label_values(pool) for pool in named_pools(own)})
        for rank, (pool, text) in enumerate(pool_names(wanted_pools(own, ctx.pools)).items(), 1 - named):
            full = parts.object_name(ctx.inputs, NAME, "-".join(part for part in (name, text) if part))
            variant = shortened(full, LONGEST)[len(parts.object_name(ctx.inputs, NAME)) + 1 :]
            found.append((number, max(rank, 0), _Chosen(name, own, pool, variant)))
    chosen: dict[str, tuple[int, _Chosen]] = {}
    told = []
    for number, rank, one in sorted(found, key=lambda item: (item[1], item[0])):
        other = chosen.get(one.variant)
        tag = _image(one.own, one.pool)["tag"]
        if rank and (other or len(tag) > LONGEST_TAG):
            labels = "/".join(label_values(one.pool))
            why = (
                "its DaemonSet would have the name of that of %s" % "/".join(label_values(other[1].pool))
                if other
                else "the tag of its image would have %d characters" % len(tag)
            )
            told.append(
                f"No driver is made for the pool {labels}, which labels of nodes name: {why}. "
                f"Next: Correct these labels, or name the pool in {OPERANDS}driver.pools."
            )
            continue
        chosen[one.variant] = (number, one)
    made = sorted(chosen.values(), key=lambda item: (item[0], label_values(item[1].pool)))
    return [one for _number, one in made], told[:MOST_NAMED]


def instance_terms(own: Driver, instances: t.Sequence[Driver]) -> Terms:
    """Alternatives that pick the nodes of an instance: those with its labels, without those of narrower instances."""
    mine = selector(own)
    base = [_expression(key, "In", value) for key, value in mine.items()]
    nested = [selector(other) for other in instances if relation(mine, selector(other)) == "wider"]
    others = [[_expression(key, "NotIn", value) for key, value in more.items() if key not in mine] for more in nested]
    return [[*base, *choice] for choice in itertools.product(*others)]


def _expression(key: str, operator: str, value: str) -> Object:
    return {"key": key, "operator": operator, "values": list(spellings(value)) if key == FAMILY_KEY else [value]}


def _daemon_set(inputs: Inputs, one: _Chosen, chosen: Terms) -> Object:
    own, pool = one.own, one.pool
    terms = tuple(tuple([*first, *second]) for first in pool_terms(pool) for second in chosen)
    placed: Driver = {**own, "node_selector": {}}
    shared: Inputs = inputs if own["deploy_default"] else {**inputs, "require_gate": True}
    made = daemon_set(shared, NAME, placed, _pod(inputs, own, pool), CONTAINER, Variant(one.variant, terms))
    for meta in (made["metadata"], made["spec"]["template"]["metadata"]):
        meta["labels"]["app.kubernetes.io/component"] = LABEL
    return made


def _pod(inputs: Inputs, own: Driver, pool: Pool) -> Object:
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    token_mount, token_volume = api_token()
    root, markers = own["host_root"], inputs["marker_dir"]
    # What is below the directory whose mounts go both ways needs no mount of its own: it would appear on the host, once
    # more with each start, and hide from the manager what the driver has mounted there.
    own_places = [
        (name, path, more)
        for name, path, more in (
            ("driver-root", root, {"mountPropagation": "Bidirectional"}),
            ("markers", markers, {}),
        )
        if not (path + "/").startswith(PROFILE.run_dir + "/")
    ]
    mounts: list[Object] = [
        {"name": SHORT, "mountPath": PROFILE.run_dir, "mountPropagation": "Bidirectional"},
        *({"name": name, "mountPath": path, **more} for name, path, more in own_places),
        {"name": "modules", "mountPath": "/lib/modules"},
        {"name": "sources", "mountPath": "/usr/src", "readOnly": True},
        {"name": "dev", "mountPath": "/dev"},
        {"name": "sys", "mountPath": "/sys"},
        {"name": "os-release", "mountPath": "/host-etc/os-release", "readOnly": True},
    ]
    volumes = [
        parts.host_path(SHORT, PROFILE.run_dir, "DirectoryOrCreate"),
        *(parts.host_path(name, path, "DirectoryOrCreate") for name, path, _more in own_places),
        parts.host_path("modules", "/lib/modules", "Directory"),
        parts.host_path("sources", "/usr/src", "DirectoryOrCreate"),
        parts.host_path("dev", "/dev", "Directory"),
        parts.host_path("sys", "/sys", "Directory"),
        parts.host_path("os-release", "/etc/os-release", "File"),
    ]
    return without_empty(
        {
            "hostPID": True,
            "imagePullSecrets": parts.pull_secrets(inputs, own["image"], own["manager"]["image"]),
            "initContainers": [_manager(inputs, own, [*mounts, token_mount])],
            "containers": [_driver(inputs, own, pool, mounts + more_mounts + ca_mounts)],
            "volumes": [*volumes, token_volume, *more_volumes, *ca_volumes],
        }
    )


def _manager(inputs: Inputs, own: Driver, mounts: list[Object]) -> Object:
    manager = own["manager"]
    return container(
        "k8s-driver-manager",
        parts.image_reference(OPERANDS + "driver.manager.image", manager["image"], inputs["registry"]),
        manager["image"]["pull_policy"],
        env=parts.environment({**inputs, "ca_bundle": ""}, {"OPERATOR_NAMESPACE": inputs["namespace"]}, manager["env"]),
        resources=manager["resources"],
        securityContext=parts.security_context(True),
        volumeMounts=mounts,
    )


def _driver(inputs: Inputs, own: Driver, pool: Pool, mounts: list[Object]) -> Object:
    ready = "%s/%s" % (inputs["marker_dir"], READY)
    marks = ["%s/%s" % (inputs["marker_dir"], name) for name in (STOPPED, *GONE)]
    probes: Object = {}
    if own["probes"]:
        handler = {"exec": {"command": ["test", "-e", ready]}}
        # Building and loading the module takes minutes; the deadline of the component ends the wait for it, not the
        # kubelet.
        failures = max(240, -(-patience(inputs) // 10))
        probes = {"startupProbe": parts.probe(handler, failures=failures), "readinessProbe": parts.probe(handler)}
    return container(
        SHORT + "-driver-container",
        parts.image_reference(OPERANDS + "driver.image", _image(own, pool), inputs["registry"]),
        own["image"]["pull_policy"],
        command=own["command"],
        args=own["args"],
        env=parts.environment(inputs, {"DRIVER_ROOT": own["host_root"]}, own["env"]),
        resources=own["resources"],
        securityContext=parts.security_context(own["privileged"], writable=not own["read_only_root"]),
        # Nothing that waits for the driver may see it ready while it is replaced. No probe runs before postStart has
        # ended.
        lifecycle={
            "postStart": {"exec": {"command": ["/bin/sh", "-c", START_SCRIPT, NAME, *marks]}},
            "preStop": {"exec": {"command": ["/bin/sh", "-c", STOP_SCRIPT, NAME, *marks]}},
        },
        **probes,
        volumeMounts=mounts,
    )


def _image(own: Driver, pool: Pool) -> Image:
    """The image of a pool: the vendor builds one for each family, kernel and operating system."""
    family = selector(own).get(FAMILY_KEY, "")
    for name, text in (
        ("tag_template", "" if own["image"]["digest"] else own["tag_template"]),
        ("image.repository", own["image"]["repository"]),
    ):
        if "{family}" in text and not family:
            raise NpuError(
                "%sdriver.%s has {family}, and the node selector of the driver names no %s."
                % (OPERANDS, name, FAMILY_KEY),
                "Select the nodes of one family for each driver instance, or write the family in place of {family}.",
            )
    tag = own["image"]["tag"]
    # No tag has a + in it, which kernels can have.
    os_id, os_version, kernel = label_values(pool)
    values = {"tag": tag, "os_id": os_id, "os_version": os_version, "kernel": kernel, "family": family}
    image: Image = {**own["image"], "repository": own["image"]["repository"].replace("{family}", family)}
    return {**image, "tag": own["tag_template"].format(**values)} if tag else image
