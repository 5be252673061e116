# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit as a container: it writes the CDI specification and sets up the node's container runtime."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE

from . import _object_parts as parts
from ._component_driver import roots as driver_roots
from ._containers import own_container, wait_for_host, without_empty
from ._model_cluster import CONTAINER, Context, Inputs, Object, Variant
from ._variants import runtimes
from ._where import daemon_set

NAME = "container-toolkit"
DAEMON = "rbln-ctk-daemon"
CDI_DIR = "/var/run/cdi"
SPECIFICATIONS = ("rbln.yaml", "rbln-rds.yaml")
RUN_DIR = "/run/rbln"
HOOK_DIR = "/usr/local/bin"
# Nothing listens here, so that the daemon restarts nothing.
NO_SOCKET = "/nonexistent"
# Seconds for the daemon's own clean-up, which may restart a runtime.
GRACE = 60
# The ready file is read as text. What the inputs set wins over it.
ENTRY_SCRIPT = """number=0
refuse() {
  echo "$READY_FILE, line $number: not a plain KEY=VALUE line" >&2
  exit 1
}
while IFS= read -r line || [ -n "$line" ]; do
  number=$((number + 1))
  key="${line%%=*}"
  value="${line#*=}"
  case "$line" in
    "" | "#"*) continue ;;
    *=*) ;;
    *) refuse ;;
  esac
  case "$key" in
    "" | *[!A-Za-z0-9_]*) refuse ;;
    RBLN_CTK_DAEMON_?*) ;;
    *) continue ;;
  esac
  case "$value" in
    \\'*\\' | \\"*\\")
      value="${value#?}"
      value="${value%?}"
      ;;
  esac
  case "$value" in
    *[\\'\\"\\`\\$\\\\]*) refuse ;;
  esac
  env | grep -q "^$key=" || export "$key=$value"
done < "$READY_FILE"
exec "$@"
"""


@dataclass(frozen=True)
class Runtime:
    """Where a container runtime has its socket and the directory of the configuration that the daemon edits."""

    socket: str
    config_dir: str
    by_systemd: bool = False


RUNTIMES = {
    "containerd": Runtime("/run/containerd/containerd.sock", "/etc/containerd"),
    "docker": Runtime("/run/docker.sock", "/etc/docker"),
    "crio": Runtime("/run/crio/crio.sock", "/etc/crio/crio.conf.d", by_systemd=True),
}


def objects(ctx: Context) -> list[Object]:
    """A DaemonSet for each runtime of the cluster's nodes."""
    return [_daemon_set(ctx.inputs, runtime, variant) for runtime, variant in runtimes(ctx.inputs)]


def _daemon_set(inputs: Inputs, runtime: str, variant: Variant) -> Object:
    own = inputs["container_toolkit"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    mounts, volumes = _mounts(inputs, RUNTIMES[runtime])
    command, args = own["command"], ["--runtime", runtime, *own["args"]]
    if own["env_from_marker"]:
        command, args = ["/bin/sh", "-c", ENTRY_SCRIPT, NAME], [*(own["command"] or [DAEMON]), *args]
    removed = [inputs["marker_dir"] + "/toolkit-ready"]
    if not own["restart"]:
        # The daemon cleans up nothing then, since it would end with a restart.
        removed += ["%s/%s" % (CDI_DIR, name) for name in SPECIFICATIONS]
    main = own_container(
        inputs,
        "toolkit",
        "container_toolkit",
        _environment(inputs, RUNTIMES[runtime]),
        command=command,
        args=args,
        ports=[{"name": "health", "containerPort": own["health_port"], "protocol": "TCP"}],
        lifecycle={"preStop": {"exec": {"command": ["rm", "-f", *removed]}}},
        **_probes(own),
        volumeMounts=[*mounts, *more_mounts, *ca_mounts],
    )
    pod = {
        # The runtime is restarted by a signal to its process.
        "hostPID": True if own["restart"] else None,
        "terminationGracePeriodSeconds": GRACE,
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait_for_host(inputs, ("driver-ready",))],
        "containers": [main],
        "volumes": [*volumes, *more_volumes, *ca_volumes],
    }
    return daemon_set(inputs, NAME, own, without_empty(pod), CONTAINER, variant)


def _environment(inputs: Inputs, runtime: Runtime) -> dict[str, str]:
    own = inputs["container_toolkit"]
    values = {
        "CDI_SPEC_DIR": CDI_DIR,
        "HEALTH_PORT": str(own["health_port"]),
        "REFRESH_INTERVAL": "%ds" % own["refresh_interval"],
        # By the host's root, where it stays the right one when the runtime makes it anew.
        "SOCKET": "/host" + runtime.socket if own["restart"] else NO_SOCKET,
    }
    if not own["restart"]:
        values["NO_CLEANUP_ON_EXIT"] = "true"
    if not own["env_from_marker"]:
        values["HOST_ROOT"] = "/host"
        values["DRIVER_ROOT"] = next(iter(driver_roots(inputs)), "/")
        values["CONTAINER_LIBRARY_PATH"] = PROFILE.container_library_path
    named = {PROFILE.ready_prefix + name: value for name, value in values.items()}
    return {"READY_FILE": inputs["marker_dir"] + "/driver-ready", **named} if own["env_from_marker"] else named


def _mounts(inputs: Inputs, runtime: Runtime) -> tuple[list[Object], list[Object]]:
    """(volume mounts, volumes): the host read-only, and over it what the daemon writes to."""
    driver_root, marker_dir = next(iter(driver_roots(inputs)), inputs["driver"]["host_root"]), inputs["marker_dir"]
    mounts: list[Object] = [
        {"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"},
        {"name": "host-bin", "mountPath": "/host" + HOOK_DIR},
        {"name": "runtime-config", "mountPath": "/host" + runtime.config_dir},
        {"name": "run-rbln", "mountPath": RUN_DIR},
        {"name": "markers", "mountPath": marker_dir},
        {"name": "driver-root", "mountPath": driver_root, "readOnly": True, "mountPropagation": "HostToContainer"},
        {"name": "cdi", "mountPath": CDI_DIR},
    ]
    volumes = [
        parts.host_path("host", "/", "Directory"),
        parts.host_path("host-bin", HOOK_DIR, "DirectoryOrCreate"),
        parts.host_path("runtime-config", runtime.config_dir, "DirectoryOrCreate"),
        parts.host_path("run-rbln", RUN_DIR, "DirectoryOrCreate"),
        parts.host_path("markers", marker_dir, "DirectoryOrCreate"),
        parts.host_path("driver-root", driver_root, "DirectoryOrCreate"),
        parts.host_path("cdi", CDI_DIR, "DirectoryOrCreate"),
    ]
    if inputs["container_toolkit"]["restart"]:
        # The kubelet refuses the pod on a node without this runtime.
        mounts.append({"name": "runtime-socket", "mountPath": runtime.socket})
        volumes.append(parts.host_path("runtime-socket", runtime.socket, "Socket"))
    elif runtime.by_systemd:
        # The daemon would restart it by the host's systemctl, which does nothing without this directory.
        mounts.append({"name": "no-systemd", "mountPath": "/host/run/systemd"})
        volumes.append({"name": "no-systemd", "emptyDir": {}})
    return mounts, volumes


def _probes(own: Inputs) -> Object:
    port = own["health_port"]
    if not port:
        raise NpuError("rbln_operands_container_toolkit.health_port is 0, which the toolkit refuses.", "Write a port from 1 to 65535, such as 8080.")
    if not own["probes"]:
        return {}
    return {
        "startupProbe": parts.probe({"httpGet": {"path": "/startup", "port": port}}, period=5, failures=60),
        "readinessProbe": parts.probe({"httpGet": {"path": "/ready", "port": port}}),
        "livenessProbe": parts.probe({"httpGet": {"path": "/live", "port": port}}),
    }
