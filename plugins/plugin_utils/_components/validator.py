# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator, which proves driver, toolkit and plugin on each node."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._checks.ready_files import STOPPED

from .._objects import parts
from .._objects.inputs import Inputs, StepKey
from .._objects.model import Context, Object
from .._objects.names import ENV
from .containers import NOBODY, TINY, api_token, helper, host_root, patience, validation, without_empty
from .driver import READY
from .driver import is_wanted as driver_wanted
from .where import daemon_set

NAME = "validator"

# The kubelet's own record of device plugins. The host tool ends with 3 when it could not find something out, and from
# here it cannot: the role asks the API server for the allocatable NPUs itself. NPU_ stands for the vendor's start of
# variable names.
PLUGIN_SCRIPT = """until grep -q "\\"$NPU_RESOURCE_NAME\\":\\[\\"" "$CHECKPOINT" 2>/dev/null; do
  if [ "$WAIT_SECONDS" -le 0 ]; then
    echo "the kubelet of $NODE_NAME has no $NPU_RESOURCE_NAME from a device plugin" >&2
    exit 1
  fi
  sleep 2
  WAIT_SECONDS=$((WAIT_SECONDS - 2))
done
chroot /host "$NPU_HOST_TOOL" validate --scope plugin "$@" || [ $? -eq 3 ]
""".replace("NPU_", ENV)
IDLE_SCRIPT = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
# Init containers do not run again when only the pod of the driver or the toolkit is replaced: without this the ready
# files would stay away.
WATCH_SCRIPT = """trap 'exit 0' TERM INT
look() { stat -c '%i %Z' "$DRIVER_READY" 2>/dev/null || echo none; }
seen="$(look)"
while :; do
  sleep 5 & wait $!
  now="$(look)"
  [ "$now" = none ] && [ -e "$DRIVER_STOPPED" ] && continue
  if [ "$now" != "$seen" ] || { [ -n "$TOOLKIT_READY" ] && [ ! -e "$TOOLKIT_READY" ]; }; then
    chroot /host "$NPU_HOST_TOOL" validate "$@" --markers write && seen="$now"
  fi
done
""".replace("NPU_", ENV)


def objects(ctx: Context) -> list[Object]:
    """Its roles, only with an image, and its DaemonSet."""
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}] if asks_api(ctx.inputs) else []
    return [*parts.roles(ctx.inputs, NAME, rules), _validator(ctx.inputs)]


def asks_api(inputs: Inputs) -> bool:
    """Whether it asks the API: an image reads the node's allocatable NPUs, the host's own tool the kubelet's files."""
    own = inputs["validator"]
    return bool(own["enabled"] and own["source"] == "image" and "plugin" in _steps(inputs))


def _steps(inputs: Inputs) -> list[StepKey]:
    # With the DRA driver no device plugin registers with the kubelet, so its proof would never end.
    proofs: tuple[StepKey, ...] = ("driver", "toolkit", "plugin")
    return [
        step
        for step in proofs
        if inputs["validator"][step]["enabled"] and not (step == "plugin" and inputs["dra_driver"]["enabled"])
    ]


def _writes_markers(inputs: Inputs) -> bool:
    """Whether the validator writes the ready files: driver or toolkit are containers, so the host part does not."""
    return bool(driver_wanted(inputs) or inputs["container_toolkit"]["enabled"])


def _validator(inputs: Inputs) -> Object:
    own = inputs["validator"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    # Driver and toolkit are proven with the services and runtimes of the host, the plugin by files alone.
    mounts, volumes = host_root(sockets=True)
    plugin_mounts, more_volumes = host_root(sockets=False)
    volumes += [volume for volume in more_volumes if volume not in volumes]
    token_mount, token_volume = api_token()
    if _writes_markers(inputs):
        volumes.append(parts.host_path("markers", inputs["marker_dir"], "DirectoryOrCreate"))
        # An image knows the files by their path on the host.
        mounts.append(
            {"name": "markers", "mountPath": ("/host" if own["source"] == "host_tool" else "") + inputs["marker_dir"]}
        )
    mounts += ca_mounts
    plugin_mounts = [*mounts, token_mount] if own["source"] == "image" else plugin_mounts + ca_mounts
    steps = _steps(inputs)
    pod: Object = {
        "imagePullSecrets": parts.pull_secrets(
            inputs, inputs["helper_image"], *([own["image"]] if own["source"] == "image" else [])
        ),
        "initContainers": [_validation(inputs, step, plugin_mounts if step == "plugin" else mounts) for step in steps],
        "containers": [_main(inputs, steps, mounts)],
    }
    mounted = {
        mount["name"] for item in [*pod["initContainers"], *pod["containers"]] for mount in item.get("volumeMounts", [])
    }
    pod["volumes"] = [volume for volume in [*volumes, token_volume, *ca_volumes] if volume["name"] in mounted]
    return daemon_set(inputs, NAME, own, without_empty(pod))


def _main(inputs: Inputs, steps: t.Sequence[StepKey], mounts: list[Object]) -> Object:
    """The container that stays: it idles, or proves driver and toolkit again after the driver was replaced."""
    own = inputs["validator"]
    scopes = [word for step in steps if step in ("driver", "toolkit") for word in ("--scope", step)]
    if not (_writes_markers(inputs) and scopes and own["source"] == "host_tool"):
        return helper(
            inputs,
            NAME,
            TINY,
            command=["/bin/sh", "-c", IDLE_SCRIPT],
            securityContext=parts.security_context(user=NOBODY),
        )
    base = {ENV + "HOST_TOOL": own["host_tool"], "DRIVER_READY": "/host%s/%s" % (inputs["marker_dir"], READY)}
    # A driver's container that has gone for good leaves its mark behind.
    base["DRIVER_STOPPED"] = "/host%s/%s" % (inputs["marker_dir"], STOPPED) if driver_wanted(inputs) else ""
    base["TOOLKIT_READY"] = "/host%s/toolkit-ready" % inputs["marker_dir"] if "toolkit" in steps else ""
    return helper(
        inputs,
        NAME,
        own["resources"],
        command=["/bin/sh", "-c", WATCH_SCRIPT, NAME],
        args=scopes,
        env=parts.environment(inputs, base, own["env"]),
        securityContext=parts.security_context(own["driver"]["privileged"] and "driver" in steps, add=("SYS_CHROOT",)),
        volumeMounts=mounts,
    )


def _validation(inputs: Inputs, step: StepKey, mounts: list[Object]) -> Object:
    own = inputs["validator"]
    base = {ENV + "RESOURCE_NAME": inputs["resource_name"]}
    command = ["chroot", "/host", own["host_tool"], "validate", "--scope", step]
    if step != "plugin" and _writes_markers(inputs):
        command += ["--markers", "write", "--wait", str(patience(inputs))]
    if step == "plugin" and own["source"] == "host_tool":
        command = ["/bin/sh", "-c", PLUGIN_SCRIPT, step]
        base[ENV + "HOST_TOOL"] = own["host_tool"]
        base["CHECKPOINT"] = "/host%s/kubelet_internal_checkpoint" % inputs["device_plugin"]["device_plugins_dir"]
        base["WAIT_SECONDS"] = str(inputs["marker_timeout"])
    return validation(inputs, step, command, base, mounts)
