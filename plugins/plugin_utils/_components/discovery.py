# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature discovery: a file of labels on each node, which Node Feature Discovery reads."""

from __future__ import annotations

from .._objects import parts
from .._objects.inputs import FeatureDiscovery, Inputs
from .._objects.model import Context, Object
from .._objects.names import ENV, SHORT
from .config_files import config_files, restarted_by
from .containers import helper, host_root, own_container, wait_for_either, without_empty
from .where import daemon_set

NAME = "feature-discovery"
FILE = SHORT + "-features"
# Where the vendor's image writes to.
IMAGE_DIR = "/etc/kubernetes/node-feature-discovery/features.d"
TOOL_DIR = "/features"
# Seconds, plus the interval, after which labels that are not renewed are dropped.
EXPIRY = 3600
# The file is written under another name and renamed, because Node Feature Discovery may read at any time; it skips
# names with a dot. NPU_ stands for the vendor's start of variable names.
SCRIPT = """trap 'exit 0' TERM INT
write() {
  chroot /host "$NPU_HOST_TOOL" labels --nfd --expiry "$EXPIRY_SECONDS" "$@" >"$FEATURES_DIR/.$FEATURES_FILE" &&
    mv "$FEATURES_DIR/.$FEATURES_FILE" "$FEATURES_DIR/$FEATURES_FILE"
}
pause() { sleep "$1" & wait $!; }
while :; do
  if write "$@" && [ "$ONESHOT" = true ]; then
    while :; do pause 3600; done
  fi
  pause "$INTERVAL"
done
""".replace("NPU_", ENV)


def objects(ctx: Context) -> list[Object]:
    """Its DaemonSet, on nodes of every workload, and the ConfigMap of its files."""
    inputs = ctx.inputs
    own = inputs["feature_discovery"]
    image = own["source"] == "image"
    main, volumes = _image(inputs) if image else _host_tool(inputs)
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    made, config_mounts, config_volumes = config_files(inputs, NAME, own)
    main["volumeMounts"] += [*config_mounts, *more_mounts, *ca_mounts]
    pod: Object = {
        "imagePullSecrets": parts.pull_secrets(inputs, inputs["helper_image"], *([own["image"]] if image else [])),
        "initContainers": [wait_for_either(inputs, ("driver-ready",))],
        "containers": [main],
        "volumes": [
            *volumes,
            parts.host_path("features", own["features_dir"], "DirectoryOrCreate"),
            parts.host_path("markers", inputs["marker_dir"], "DirectoryOrCreate"),
            *config_volumes,
            *more_volumes,
            *ca_volumes,
        ],
    }
    if image:
        # It asks the daemon of the node at the loopback address.
        pod.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    return [*made, restarted_by(daemon_set(inputs, NAME, own, without_empty(pod), mode=""), own)]


def _probe(own: FeatureDiscovery, directory: str) -> Object:
    return (
        {"readinessProbe": parts.probe({"exec": {"command": ["test", "-e", "%s/%s" % (directory, FILE)]}})}
        if own["probes"]
        else {}
    )


def _host_tool(inputs: Inputs) -> tuple[Object, list[Object]]:
    """(container, volumes) with the tool that the host part installed."""
    own = inputs["feature_discovery"]
    mounts, volumes = host_root(sockets=False)
    # Labels must not expire where nothing renews them.
    expires = not (own["no_timestamp"] or own["oneshot"])
    base = {
        ENV + "HOST_TOOL": own["host_tool"],
        "FEATURES_DIR": TOOL_DIR,
        "FEATURES_FILE": FILE,
        "INTERVAL": str(own["interval"]),
        "EXPIRY_SECONDS": str(EXPIRY + own["interval"] if expires else 0),
        "ONESHOT": "true" if own["oneshot"] else "false",
    }
    main = helper(
        inputs,
        NAME,
        own["resources"],
        command=own["command"] or ["/bin/sh", "-c", SCRIPT, NAME],
        args=own["args"],
        env=parts.environment(inputs, base, own["env"]),
        securityContext=parts.security_context(
            own["privileged"], add=("SYS_CHROOT",), writable=not own["read_only_root"]
        ),
        **_probe(own, TOOL_DIR),
        volumeMounts=[*mounts, {"name": "features", "mountPath": TOOL_DIR}],
    )
    return main, volumes


def _image(inputs: Inputs) -> tuple[Object, list[Object]]:
    """(container, volumes) with the vendor's image."""
    own = inputs["feature_discovery"]
    start = ENV + "NPU_FEATURE_DISCOVERY_"
    base = {
        start + "SLEEP_INTERVAL": str(own["interval"]),
        start + "ONESHOT": "true" if own["oneshot"] else "false",
        start + "NO_TIMESTAMP": "true" if own["no_timestamp"] else "false",
        start + "FAIL_ON_INIT_ERROR": "true" if own["fail_on_init_error"] else "false",
    }
    mounts: list[Object] = [{"name": "features", "mountPath": IMAGE_DIR}]
    volumes: list[Object] = []
    if own["host_sys_path"]:
        mounts.append({"name": "host-sys", "mountPath": "/sys", "readOnly": True})
        volumes.append(parts.host_path("host-sys", own["host_sys_path"], "Directory"))
    main = own_container(
        inputs,
        NAME,
        "feature_discovery",
        base,
        **_probe(own, IMAGE_DIR),
        volumeMounts=mounts,
    )
    return main, volumes
