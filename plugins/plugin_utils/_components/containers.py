# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of our pods, and init containers that wait for the host."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects import parts
from .._objects.inputs import ContainerKey, DevicePlugin, DraDriver, Inputs, SandboxDevicePlugin, StepKey
from .._objects.model import Object
from .._objects.names import ENV, OPERANDS, SHORT

# For containers that only wait.
TINY: Object = {
    "requests": {"cpu": "5m", "memory": "8Mi", "ephemeral-storage": "1Mi"},
    "limits": {"cpu": "100m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
}
NOBODY = 65534
HOST = "/host"
# Seconds until a driver in a container is given up when the inputs say nothing else.
DRIVER_DEADLINE = 1800

WAIT_SCRIPT = """left="$WAIT_SECONDS"
for marker in $WAIT_MARKERS; do
  until [ -e "$marker" ]; do
    if [ "$left" -le 0 ]; then
      echo "no $marker after $WAIT_SECONDS s: the host part has not finished on $NODE_NAME" >&2
      exit 1
    fi
    sleep 2
    left=$((left - 2))
  done
done
"""


def container(name: str, image: str, pull_policy: str, **more: t.Any) -> Object:
    result: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    result.update({key: value for key, value in more.items() if value not in (None, [], {})})
    return result


def helper(inputs: Inputs, name: str, resources: Object, **more: t.Any) -> Object:
    image = inputs["helper_image"]
    reference = parts.image_reference(OPERANDS + "helper_image", image, inputs["registry"])
    return container(name, reference, image["pull_policy"], resources=resources, **more)


def own_container(inputs: Inputs, name: str, key: ContainerKey, base: t.Mapping[str, str], **more: t.Any) -> Object:
    """The main container of a component, from its inputs.

    Its environment overrides `base`; `more` overrides the other inputs.
    """
    own = inputs[key]
    given = {
        "image": own["image"],
        "command": own["command"],
        "args": own["args"],
        "resources": own["resources"],
        "securityContext": parts.security_context(own["privileged"], writable=not own["read_only_root"]),
        **more,
    }
    reference = parts.image_reference("%s%s.image" % (OPERANDS, key), given.pop("image"), inputs["registry"])
    return container(
        name, reference, own["image"]["pull_policy"], env=parts.environment(inputs, base, own["env"]), **given
    )


def validation(
    inputs: Inputs, step: StepKey, command: t.Sequence[str], base: t.Mapping[str, str], mounts: list[Object]
) -> Object:
    """One init container of a validator: our tool on the host by chroot, or an image with its own command.

    The image is the same for all steps; a variable names the step for an image that decides by itself what to run.
    """
    own = inputs["validator"]
    part = own[step]
    told = {ENV + "VALIDATION": step} if own["source"] == "image" else {}
    more: Object = {
        "args": part["args"] + own["args"],
        "env": parts.environment(inputs, {**base, **told}, own["env"], part["env"]),
        "resources": own["resources"],
        "volumeMounts": mounts,
    }
    name = step + "-validation"
    if own["source"] == "image":
        reference = parts.image_reference(OPERANDS + "validator.image", own["image"], inputs["registry"])
        context = parts.security_context(part["privileged"])
        return container(
            name, reference, own["image"]["pull_policy"], command=part["command"], securityContext=context, **more
        )
    context = parts.security_context(part["privileged"], add=("SYS_CHROOT",))
    return helper(inputs, name, command=part["command"] or list(command), securityContext=context, **more)


def scratch_run() -> tuple[Object, Object]:
    """(volume mount, volume) of an empty /var/run, first of all mounts, because others are below it.

    The vendor's programs make groups of devices under a lock there; without it every claim would get the group of all
    NPUs.
    """
    return {"name": "run", "mountPath": "/var/run"}, {"name": "run", "emptyDir": {}}


def scratch_tmp() -> tuple[Object, Object]:
    """(volume mount, volume) of an empty /tmp.

    The vendor's library of groups opens a log file there, and ends the whole program where it cannot: the first pod
    that asks for an NPU would then fail, and so would each later one.
    """
    return {"name": "tmp", "mountPath": "/tmp"}, {"name": "tmp", "emptyDir": {}}


def api_token() -> tuple[Object, Object]:
    """(volume mount, volume) of the account's token, for the one container of a pod that asks the API."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    mount = {"name": "api-token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    return mount, {"name": "api-token", "projected": {"sources": sources}}


def host_root(sockets: bool) -> tuple[list[Object], list[Object]]:
    """(volume mounts, volumes) of the host below /host for its own tool; `sockets` says whether with all of /run.

    Kubernetes makes only the upper mount of a read-only volume read-only, so the mounts below `/` that root could
    change the host by are read-only mounts of their own. A socket can be used in a read-only mount as well, so without
    `sockets` /run is an empty directory, with nothing but our own.
    """
    follow = {"readOnly": True, "mountPropagation": "HostToContainer"}
    places = {"host": "", "host-proc": "/proc", "host-sys": "/sys", "host-dev": "/dev"}
    mounts: list[Object] = [{"name": name, "mountPath": HOST + place, **follow} for name, place in places.items()]
    volumes = [parts.host_path(name, place or "/", "Directory") for name, place in places.items()]
    if not sockets:
        mounts.append({"name": "no-run", "mountPath": HOST + "/run"})
        mounts.append({"name": SHORT, "mountPath": HOST + PROFILE.run_dir, **follow})
        volumes += [{"name": "no-run", "emptyDir": {}}, parts.host_path(SHORT, PROFILE.run_dir, "DirectoryOrCreate")]
    return mounts, volumes


def grpc_liveness(own: DevicePlugin | SandboxDevicePlugin | DraDriver) -> Object:
    """The liveness probe of a plugin that serves gRPC health; none without a port, or when no probes are wanted."""
    if not (own["probes"] and own["health_port"]):
        return {}
    return {"livenessProbe": parts.probe({"grpc": {"port": own["health_port"], "service": "liveness"}}, delay=10)}


def waiting(inputs: Inputs, name: str, script: str, values: t.Mapping[str, str], **more: t.Any) -> Object:
    """An init container that runs a waiting script. It uses no network, so it needs no proxies and no authorities."""
    return helper(
        inputs,
        name,
        TINY,
        command=["/bin/sh", "-c", script],
        env=parts.environment({**inputs, "ca_bundle": "", "http_proxy": "", "https_proxy": "", "no_proxy": ""}, values),
        # Everybody may read what it waits for.
        securityContext=parts.security_context(user=NOBODY, host="volumeMounts" in more),
        **more,
    )


def patience(inputs: Inputs) -> int:
    """Seconds that a pod waits for the ready files of its host.

    A driver in a container may take as long as its own deadline.
    """
    drivers = [inputs["driver"], *inputs["driver_instances"]]
    driver = int(inputs["deadlines"].get("driver") or 0) or DRIVER_DEADLINE
    return (
        max(inputs["marker_timeout"], driver)
        if any(own["enabled"] for own in drivers)
        else int(inputs["marker_timeout"])
    )


def wait_for_host(inputs: Inputs, markers: t.Sequence[str]) -> Object:
    """An init container that waits for the ready files `markers` of the host, in this order, or fails."""
    marker_dir = inputs["marker_dir"]
    values = {
        "WAIT_SECONDS": str(patience(inputs)),
        "WAIT_MARKERS": " ".join("%s/%s" % (marker_dir, name) for name in markers),
    }
    return waiting(
        inputs,
        "wait-for-host",
        WAIT_SCRIPT,
        values,
        volumeMounts=[{"name": "markers", "mountPath": marker_dir, "readOnly": True}],
    )


def without_empty(values: Object) -> Object:
    return {key: value for key, value in values.items() if value not in ([], {}, None)}


# A node for virtual machines never gets the ready files of a driver.
EITHER_SCRIPT = """given_away() {
  for file in /sys/bus/pci/drivers/vfio-pci/*/vendor; do
    [ -e "$file" ] && read -r vendor < "$file" && [ "$vendor" = "$PCI_VENDOR" ] && return 0
  done
  return 1
}
ready() {
  for marker in $WAIT_MARKERS; do
    [ -e "$marker" ] || return 1
  done
}
left="$WAIT_SECONDS"
until ready || given_away; do
  if [ "$left" -le 0 ]; then
    echo "$NODE_NAME has neither $WAIT_MARKERS nor an NPU at vfio-pci after $WAIT_SECONDS s" >&2
    exit 1
  fi
  sleep 2
  left=$((left - 2))
done
"""


def wait_for_either(inputs: Inputs, markers: t.Sequence[str]) -> Object:
    """An init container that waits until the ready files exist or an NPU is bound to vfio-pci, or fails."""
    wait = wait_for_host(inputs, markers)
    vendor = {"name": "PCI_VENDOR", "value": "0x" + PROFILE.pci_vendor}
    return {**wait, "command": ["/bin/sh", "-c", EITHER_SCRIPT], "env": [*wait["env"], vendor]}
