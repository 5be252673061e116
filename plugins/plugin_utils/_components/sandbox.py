# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that give their NPUs to virtual machines: bind them to vfio-pci, prove it, and offer them to the kubelet."""

from __future__ import annotations

import hashlib
import typing as t

from .._objects import parts
from .._objects.inputs import Inputs
from .._objects.model import PASSTHROUGH, Context, Object
from .._objects.names import SHORT
from .containers import (
    NOBODY,
    TINY,
    grpc_liveness,
    helper,
    host_root,
    own_container,
    validation,
    waiting,
    without_empty,
)
from .validator import IDLE_SCRIPT
from .vfio_script import MANAGER, PROVE, WAIT, environment
from .where import daemon_set

MANAGER_NAME = "vfio-manager"
VALIDATOR_NAME = "sandbox-validator"
PLUGIN_NAME = "sandbox-device-plugin"
SCRIPT_DIR = "/opt/" + SHORT
SCRIPT_FILE = "vfio-manager.sh"
# Restarts the pods when the script changes: a changed file in a mount does not end a running script.
SCRIPT_HASH = parts.LABEL_PREFIX + "script-sha256"
SOCKET_DIR = "/var/lib/kubelet/device-plugins"


def manager_objects(ctx: Context) -> list[Object]:
    """Its script, unless an image does the work, and its DaemonSet."""
    inputs = ctx.inputs
    if inputs["vfio_manager"]["source"] == "image":
        return [_manager(inputs, own_container(inputs, MANAGER_NAME, "vfio_manager", {}), [])]
    script: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": parts.metadata(inputs, MANAGER_NAME, parts.object_name(inputs, MANAGER_NAME)),
        "data": {SCRIPT_FILE: MANAGER},
    }
    item = _manager(
        inputs, _manager_script(inputs), [{"name": "script", "configMap": {"name": script["metadata"]["name"]}}]
    )
    annotations = item["spec"]["template"]["metadata"].setdefault("annotations", {})
    annotations[SCRIPT_HASH] = hashlib.sha256(MANAGER.encode("utf-8")).hexdigest()
    return [script, item]


def validator_objects(ctx: Context) -> list[Object]:
    """The DaemonSet that proves vfio-pci on each node, with the inputs of the validator."""
    inputs = ctx.inputs
    own = inputs["validator"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    mounts, volumes = host_root(sockets=own["source"] == "image")
    mounts += ca_mounts
    main = helper(
        inputs,
        VALIDATOR_NAME,
        TINY,
        command=["/bin/sh", "-c", IDLE_SCRIPT],
        securityContext=parts.security_context(user=NOBODY),
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(
            inputs, inputs["helper_image"], *([own["image"]] if own["source"] == "image" else [])
        ),
        "initContainers": [_validation(inputs, mounts)],
        "containers": [main],
        "volumes": [*volumes, *ca_volumes],
    }
    return [daemon_set(inputs, VALIDATOR_NAME, own, without_empty(pod), PASSTHROUGH)]


def plugin_objects(ctx: Context) -> list[Object]:
    """The DaemonSet of the device plugin for functions at vfio-pci."""
    inputs = ctx.inputs
    own = inputs["sandbox_device_plugin"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    base = {"HEALTHCHECK_PORT": str(own["health_port"])} if own["health_port"] else {}
    mounts: list[Object] = [
        {"name": "device-plugins", "mountPath": SOCKET_DIR},
        {"name": "vfio", "mountPath": "/dev/vfio"},
        {"name": "sys", "mountPath": "/sys", "readOnly": True},
    ]
    main = own_container(
        inputs,
        PLUGIN_NAME,
        "sandbox_device_plugin",
        base,
        **grpc_liveness(own),
        volumeMounts=[*mounts, *more_mounts, *ca_mounts],
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [_wait_for_vfio(inputs)],
        "containers": [main],
        "volumes": [
            parts.host_path("device-plugins", own["device_plugins_dir"], "DirectoryOrCreate"),
            parts.host_path("vfio", "/dev/vfio", "DirectoryOrCreate"),
            parts.host_path("sys", "/sys", "Directory"),
            *more_volumes,
            *ca_volumes,
        ],
    }
    return [daemon_set(inputs, PLUGIN_NAME, own, without_empty(pod), PASSTHROUGH)]


def _manager(inputs: Inputs, main: Object, volumes: t.Sequence[Object]) -> Object:
    own = inputs["vfio_manager"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    main["volumeMounts"] = [
        {"name": "sys", "mountPath": "/sys"},
        *main.get("volumeMounts", []),
        *more_mounts,
        *ca_mounts,
    ]
    pod = {
        # Who has a device open is seen in /proc of the host alone.
        "hostPID": True,
        "imagePullSecrets": parts.pull_secrets(
            inputs, own["image"] if own["source"] == "image" else inputs["helper_image"]
        ),
        "containers": [main],
        "volumes": [parts.host_path("sys", "/sys", "Directory"), *volumes, *more_volumes, *ca_volumes],
    }
    return daemon_set(inputs, MANAGER_NAME, own, without_empty(pod), PASSTHROUGH)


def _manager_script(inputs: Inputs) -> Object:
    own = inputs["vfio_manager"]
    path = "%s/%s" % (SCRIPT_DIR, SCRIPT_FILE)
    base = {**environment(), "RELEASE_ON_EXIT": "true" if own["release_on_exit"] else "false"}
    check = {"exec": {"command": ["/bin/sh", path, "check"]}}
    return helper(
        inputs,
        MANAGER_NAME,
        own["resources"],
        command=own["command"] or ["/bin/sh", path, "manage"],
        args=own["args"],
        env=parts.environment(inputs, base, own["env"]),
        securityContext=parts.security_context(own["privileged"], writable=not own["read_only_root"]),
        readinessProbe=parts.probe(check, failures=1) if own["probes"] else None,
        volumeMounts=[{"name": "script", "mountPath": SCRIPT_DIR, "readOnly": True}],
    )


def _validation(inputs: Inputs, mounts: list[Object]) -> Object:
    """The tool of the host proves all of it, or the script what any container can see; an image does as it likes."""
    if inputs["validator"]["source"] == "image":
        return validation(inputs, "vfio", (), {}, mounts)
    told = {"HOST_TOOL": inputs["validator"]["host_tool"], "WAIT_SECONDS": str(inputs["marker_timeout"])}
    command = ["/bin/sh", "-c", PROVE, VALIDATOR_NAME]
    return validation(inputs, "vfio", command, {**environment(), **told}, mounts)


def _wait_for_vfio(inputs: Inputs) -> Object:
    """An init container that ends when every NPU of the node is at vfio-pci, or fails after marker_timeout seconds.

    Sysfs is in every container.
    """
    return waiting(inputs, "wait-for-vfio", WAIT, {**environment(), "WAIT_SECONDS": str(inputs["marker_timeout"])})
