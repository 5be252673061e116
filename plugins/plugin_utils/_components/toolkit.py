# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit as a container: a DaemonSet for each runtime, because its daemon handles only one."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects import parts
from .._objects.inputs import ContainerToolkit, Inputs
from .._objects.model import CONTAINER, Context, Object, Variant
from .._objects.names import OPERANDS, SHORT
from .containers import own_container, wait_for_host, without_empty
from .driver import roots as driver_roots
from .variants import runtimes
from .where import daemon_set

NAME = "container-toolkit"
PROGRAM = PROFILE.toolkit_program
SETTING = PROFILE.ready_prefix
HOST = "/host"
HOOKS = "/usr/local/bin"
CDI_DIR = "/var/run/cdi"
SPECIFICATIONS = (PROFILE.cdi_file_stem + ".yaml", PROFILE.cdi_storage_stem + ".yaml")
SYSTEMD = "/run/systemd"
# The daemon tries three times to restore the runtime, and then takes up to 30 seconds to shut down.
GRACE = 60
# The daemon reports its start only after such tries. Each restart by the kubelet would restart the runtime once more,
# so it gets five minutes.
STARTUP_FAILURES = 30

# Nothing in the file is executed: each line is compared with patterns, and only the daemon's own settings become
# environment. SETTING_ stands for the start of their names.
ENTRY_SCRIPT = r"""refuse() {
  echo "$READY_FILE, line $number: not a plain KEY=VALUE line" >&2
  exit 1
}
if ! [ -f "$READY_FILE" ]; then
  echo "no $READY_FILE: the driver of this node is not validated" >&2
  exit 1
fi
# As it was before the file, so that what the pod sets wins over the file.
given="
$(export -p)"
number=0
while IFS= read -r line || [ -n "$line" ]; do
  number=$((number + 1))
  case $line in
    '' | '#'*) continue ;;
    *=*) ;;
    *) refuse ;;
  esac
  name=${line%%=*}
  value=${line#*=}
  case $name in '' | [0-9]* | *[!A-Za-z0-9_]*) refuse ;; esac
  case $value in
    \'*\')
      value=${value#?}
      value=${value%?}
      case $value in *\'*) refuse ;; esac
      ;;
    \"*\")
      value=${value#?}
      value=${value%?}
      case $value in *\"* | *\$* | *\`* | *\\*) refuse ;; esac
      ;;
    *[!A-Za-z0-9_./:@%+,=-]*) refuse ;;
  esac
  case $name in SETTING_*) ;; *) continue ;; esac
  case $given in
    *"
export $name="*) ;;
    *) export "$name=$value" ;;
  esac
done <"$READY_FILE"
# In place of the shell, so that the daemon itself gets SIGTERM and puts the runtime back.
exec "$@"
""".replace("SETTING_", SETTING)


@dataclass(frozen=True)
class Runtime:
    """Socket of a runtime, directory of the file that the toolkit edits, and whether systemd restarts it."""

    socket: str
    config_dir: str
    by_systemd: bool = False


RUNTIMES = {
    "containerd": Runtime("/run/containerd/containerd.sock", "/etc/containerd"),
    "docker": Runtime("/run/docker.sock", "/etc/docker"),
    "crio": Runtime("/run/crio/crio.sock", "/etc/crio/crio.conf.d", by_systemd=True),
}


def objects(ctx: Context) -> list[Object]:
    """A DaemonSet for each runtime, the default first."""
    return [_daemon_set(ctx.inputs, name, variant) for name, variant in runtimes(ctx.inputs)]


def _daemon_set(inputs: Inputs, name: str, variant: Variant) -> Object:
    own, runtime = inputs["container_toolkit"], RUNTIMES[name]
    mounts, volumes = _mounts(inputs, runtime)
    arguments = ["--runtime", name, *own["args"]]
    # Without the script the program of the image runs, or the one of the inputs.
    entry = {"command": own["command"], "args": arguments}
    if own["env_from_marker"]:
        entry = {"command": ["/bin/sh", "-c", ENTRY_SCRIPT, NAME], "args": [*(own["command"] or [PROGRAM]), *arguments]}
    main = own_container(
        inputs,
        "toolkit",
        "container_toolkit",
        _environment(inputs, runtime),
        **entry,
        # Pods that need the specification must not start while nothing renews it.
        lifecycle={"preStop": {"exec": {"command": ["rm", "-f", *_gone(inputs)]}}},
        **_probes(own),
        volumeMounts=mounts,
    )
    pod = {
        # A runtime gets its signal by the number of its process on the host.
        "hostPID": own["restart"] or None,
        "terminationGracePeriodSeconds": GRACE,
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait_for_host(inputs, ("driver-ready",))],
        "containers": [main],
        "volumes": volumes,
    }
    return daemon_set(inputs, NAME, own, without_empty(pod), CONTAINER, variant)


def _gone(inputs: Inputs) -> list[str]:
    """Files that must not outlive the pod.

    The daemon deletes its specifications itself, unless its cleanup is switched off.
    """
    left = [] if inputs["container_toolkit"]["restart"] else ["%s/%s" % (CDI_DIR, name) for name in SPECIFICATIONS]
    return [inputs["marker_dir"] + "/toolkit-ready", *left]


def _environment(inputs: Inputs, runtime: Runtime) -> dict[str, str]:
    own = inputs["container_toolkit"]
    settings = {
        "CDI_SPEC_DIR": CDI_DIR,
        "HEALTH_PORT": str(own["health_port"]),
        "REFRESH_INTERVAL": "%ds" % own["refresh_interval"],
        # In the tree of the host: a mounted socket is dead once the runtime has been restarted.
        "SOCKET": HOST + runtime.socket,
    }
    if not own["restart"]:
        # It would restart the runtime at its start and at its end in any case. So it finds no runtime, and restores
        # nothing.
        settings.update({"SOCKET": "/nonexistent", "NO_CLEANUP_ON_EXIT": "true"})
    if own["env_from_marker"]:
        return {"READY_FILE": inputs["marker_dir"] + "/driver-ready", **_prefixed(settings)}
    settings.update(
        {
            "HOST_ROOT": HOST,
            "DRIVER_ROOT": next(iter(driver_roots(inputs)), "/"),
            "CONTAINER_LIBRARY_PATH": PROFILE.container_library_path,
        }
    )
    return _prefixed(settings)


def _prefixed(settings: dict[str, str]) -> dict[str, str]:
    return {SETTING + name: value for name, value in settings.items()}


def _mounts(inputs: Inputs, runtime: Runtime) -> tuple[list[Object], list[Object]]:
    """(volume mounts, volumes): the host is read-only, but for what the daemon changes."""
    own, roots, marker_dir = inputs["container_toolkit"], driver_roots(inputs), inputs["marker_dir"]
    # All drivers have the same root, or the inputs were refused.
    root = next(iter(roots), PROFILE.container_driver_root)
    follow = {"mountPropagation": "HostToContainer"}
    rows: list[tuple[str, str, str, str, Object]] = [
        ("host", "/", HOST, "Directory", {"readOnly": True, **follow}),
        ("hooks", HOOKS, HOST + HOOKS, "DirectoryOrCreate", {}),
        ("runtime-config", runtime.config_dir, HOST + runtime.config_dir, "DirectoryOrCreate", {}),
        (SHORT, PROFILE.run_dir, PROFILE.run_dir, "DirectoryOrCreate", {}),
        ("markers", marker_dir, marker_dir, "DirectoryOrCreate", {}),
        ("driver-root", root, root, "DirectoryOrCreate", {"readOnly": True, **follow}),
        ("cdi", CDI_DIR, CDI_DIR, "DirectoryOrCreate", {}),
    ]
    if own["restart"]:
        rows.append(("runtime-socket", runtime.socket, runtime.socket, "Socket", {}))
    mounts = [{"name": name, "mountPath": place, **more} for name, _path, place, _kind, more in rows]
    volumes = [parts.host_path(name, path, kind) for name, path, _place, kind, _more in rows]
    if runtime.by_systemd and not own["restart"]:
        # An empty directory in its place: systemctl reaches no systemd.
        mounts.append({"name": "no-systemd", "mountPath": HOST + SYSTEMD})
        volumes.append({"name": "no-systemd", "emptyDir": {}})
    more_mounts, more_volumes = parts.host_mounts(own, roots)
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    return mounts + more_mounts + ca_mounts, volumes + more_volumes + ca_volumes


def _probes(own: ContainerToolkit) -> Object:
    """Probes of the three places that the daemon answers at. NpuError for a port that it cannot have."""
    if not own["health_port"]:
        raise NpuError(
            f"{OPERANDS}container_toolkit.health_port is 0, and its daemon always listens.",
            "Give a port from 1 to 65535.",
        )
    if not own["probes"]:
        return {}
    rows = (
        ("startupProbe", "/startup", STARTUP_FAILURES),
        ("readinessProbe", "/ready", 3),
        ("livenessProbe", "/live", 3),
    )
    return {
        name: parts.probe({"httpGet": {"path": path, "port": own["health_port"]}}, failures=failures)
        for name, path, failures in rows
    }
