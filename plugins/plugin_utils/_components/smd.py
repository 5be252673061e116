# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's system management daemon, which reads, resets and groups the NPUs of a node."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects import parts
from .._objects.inputs import Driver, Image, Inputs
from .._objects.model import Context, Object
from .._objects.names import ENV, OPERANDS
from .containers import own_container, wait_for_host, without_empty
from .driver import is_wanted as driver_wanted
from .driver import roots as driver_roots
from .where import daemon_set

NAME = "smd"
LOGS = PROFILE.log_dir


def objects(ctx: Context) -> list[Object]:
    """Its DaemonSet."""
    inputs = ctx.inputs
    own = inputs["smd"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    roots = driver_roots(inputs)
    more_mounts, more_volumes = parts.host_mounts(own, roots)
    # The libraries of a driver in a container are nowhere else. The next driver is mounted anew, and only the directory
    # above shows that.
    places = dict.fromkeys(
        PROFILE.run_dir if (root + "/").startswith(PROFILE.run_dir + "/") else root for root in roots
    )
    names = {place: "driver-root%s" % ("-%d" % number if number else "") for number, place in enumerate(places)}
    driver_mounts = [
        {"name": name, "mountPath": root, "readOnly": True, "mountPropagation": "HostToContainer"}
        for root, name in names.items()
    ]
    port: Object = {"name": "grpc", "containerPort": own["port"], "hostPort": own["port"], "protocol": "TCP"}
    if own["host_ip"]:
        port["hostIP"] = own["host_ip"]
    probes: Object = {}
    if own["probes"]:
        handler = {"tcpSocket": {"port": "grpc"}}
        probes = {"livenessProbe": parts.probe(handler, delay=10), "readinessProbe": parts.probe(handler)}
    main = own_container(
        inputs,
        NAME,
        "smd",
        {ENV + "SMD_PORT": str(own["port"])},
        image=_image(inputs),
        ports=[port],
        **probes,
        volumeMounts=[
            {"name": "dev", "mountPath": "/dev"},
            {"name": "sys", "mountPath": "/sys"},
            {"name": "logs", "mountPath": LOGS},
            *driver_mounts,
            *more_mounts,
            *ca_mounts,
        ],
    )
    pod = {
        # A process that holds a device is a process of the host.
        "hostPID": True,
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait_for_host(inputs, ("driver-ready",))],
        "containers": [main],
        "volumes": [
            parts.host_path("dev", "/dev", "Directory"),
            parts.host_path("sys", "/sys", "Directory"),
            parts.host_path("logs", LOGS, "DirectoryOrCreate"),
            parts.host_path("markers", inputs["marker_dir"], "DirectoryOrCreate"),
            *(parts.host_path(name, root, "DirectoryOrCreate") for root, name in names.items()),
            *more_volumes,
            *ca_volumes,
        ],
    }
    return [daemon_set(inputs, NAME, own, without_empty(pod))]


def _image(inputs: Inputs) -> Image:
    """Its image; without a tag it takes that of the driver's image, because daemon and driver have one version."""
    image = inputs["smd"]["image"]
    if image["tag"] or image["digest"] or not driver_wanted(inputs):
        return image
    drivers: list[Driver] = [*inputs["driver_instances"]] or [inputs["driver"]]
    tags = sorted({own["image"]["tag"] for own in drivers if own["enabled"]} - {""})
    if len(tags) > 1:
        raise NpuError(
            f"{OPERANDS}smd.image has no tag, and the drivers have several: {', '.join(tags)}.",
            f"Set {OPERANDS}smd.image.tag to a version that works with all of them.",
        )
    return {**image, "tag": tags[0]} if tags else image
