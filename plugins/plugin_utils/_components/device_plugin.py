# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin, which offers the NPUs of a node to the kubelet."""

from __future__ import annotations

from .._objects import parts
from .._objects.model import Context, Object
from .config_files import config_files, restarted_by
from .containers import grpc_liveness, own_container, scratch_run, scratch_tmp, wait_for_host, without_empty
from .driver import roots as driver_roots
from .where import daemon_set

NAME = "device-plugin"


def objects(ctx: Context) -> list[Object]:
    """Its DaemonSet, and the ConfigMap of its files."""
    inputs = ctx.inputs
    own = inputs["device_plugin"]
    made, config_mounts, config_volumes = config_files(inputs, NAME, own)
    socket_dir = "/var/lib/kubelet/device-plugins"
    marker_dir = inputs["marker_dir"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    run_mount, run_volume = scratch_run()
    tmp_mount, tmp_volume = scratch_tmp()
    mounts = [run_mount, tmp_mount, {"name": "device-plugins", "mountPath": socket_dir}]
    volumes = [
        run_volume,
        tmp_volume,
        parts.host_path("device-plugins", own["device_plugins_dir"], "DirectoryOrCreate"),
        parts.host_path("markers", marker_dir, "DirectoryOrCreate"),
    ]
    # Without the mounts of the host it would still run the tools of a former driver after the driver was replaced.
    more_mounts, more_volumes = parts.host_mounts(own, driver_roots(inputs))
    base = {"CDI_ROOT": "/var/run/cdi", "KUBELET_DEVICE_PLUGIN_PATH": socket_dir}
    base["USE_GENERIC_RESOURCE_NAME"] = "true" if inputs["resource_name"] == parts.NPU_KEY else "false"
    base["DEVICE_SCAN_INTERVAL"] = own["scan_interval"]
    # Without the variable the plugin listens on its own port; a negative number turns that off.
    base["HEALTHCHECK_PORT"] = str(own["health_port"] or -1)
    wait = wait_for_host(inputs, ("driver-ready", "toolkit-ready"))
    main = own_container(
        inputs,
        NAME,
        "device_plugin",
        base,
        **grpc_liveness(own),
        volumeMounts=[*mounts, *config_mounts, *more_mounts, *ca_mounts],
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait],
        "containers": [main],
        "volumes": [*volumes, *config_volumes, *more_volumes, *ca_volumes],
    }
    return [*made, restarted_by(daemon_set(inputs, NAME, own, without_empty(pod)), own)]
