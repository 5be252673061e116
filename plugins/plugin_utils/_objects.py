# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a cluster, from inputs alone: a pure function, so that every run and every slice makes the same ones."""

from __future__ import annotations

import base64
import typing as t

import yaml

from . import _object_parts as parts
from ._object_parts import Inputs, Object

DEVICE_PLUGIN = "device-plugin"
VALIDATOR = "validator"

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
# The kubelet's own record of device plugins. The host tool ends with 3 when it could not find something out, and from here it
# cannot: the role asks the API server for the allocatable NPUs itself.
PLUGIN_SCRIPT = """until grep -q "\\"$RBLN_RESOURCE_NAME\\":\\[\\"" "$CHECKPOINT" 2>/dev/null; do
  if [ "$WAIT_SECONDS" -le 0 ]; then
    echo "the kubelet of $NODE_NAME has no $RBLN_RESOURCE_NAME from a device plugin" >&2
    exit 1
  fi
  sleep 2
  WAIT_SECONDS=$((WAIT_SECONDS - 2))
done
chroot /host "$RBLN_HOST_TOOL" validate --scope plugin "$@" || [ $? -eq 3 ]
"""
IDLE_SCRIPT = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


def build_objects(inputs: Inputs) -> list[Object]:
    """Every object of one cluster in the order of creation: namespace, accounts, configuration, roles, DaemonSets."""
    objects = [_namespace(inputs)]
    wanted = [name for name, key in ((DEVICE_PLUGIN, "device_plugin"), (VALIDATOR, "validator")) if inputs[key]["enabled"]]
    objects += [_service_account(inputs, component) for component in wanted]
    if inputs["pull_secret_content"]:
        objects.append(_pull_secret(inputs))
    if inputs["ca_bundle"]:
        objects.append(_ca_config_map(inputs))
    if VALIDATOR in wanted and inputs["validator"]["source"] == "image":
        objects += _validator_rbac(inputs)
    if DEVICE_PLUGIN in wanted:
        objects.append(_device_plugin(inputs))
    if VALIDATOR in wanted:
        objects.append(_validator(inputs))
    return objects


class _Dumper(yaml.SafeDumper):
    """Literal blocks for text of several lines, and no aliases: a file that people read and compare."""

    def ignore_aliases(self, data: t.Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def manifests(objects: t.Sequence[Object]) -> str:
    """The objects as one YAML stream; the same bytes for the same objects."""
    return "".join("---\n" + yaml.dump(item, Dumper=_Dumper, sort_keys=True, default_flow_style=False, width=140) for item in objects)


def _namespace(inputs: Inputs) -> Object:
    labels = {}
    if inputs["pod_security"]:
        labels["pod-security.kubernetes.io/enforce"] = inputs["pod_security"]
        labels["pod-security.kubernetes.io/audit"] = "baseline"
        labels["pod-security.kubernetes.io/warn"] = "baseline"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inputs["namespace"], "labels": labels}}


def _service_account(inputs: Inputs, component: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": parts.metadata(inputs, component, "rbln-" + component),
        "automountServiceAccountToken": False,
    }


def _pull_secret(inputs: Inputs) -> Object:
    content = base64.b64encode(inputs["pull_secret_content"].encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": parts.metadata(inputs, "registry", inputs["pull_secret_name"]),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": content},
    }


def _ca_config_map(inputs: Inputs) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": parts.metadata(inputs, "ca", parts.CA_CONFIG_MAP),
        "data": {"ca.crt": inputs["ca_bundle"].strip() + "\n"},
    }


def _validator_rbac(inputs: Inputs) -> list[Object]:
    """An image from elsewhere asks the API for the node's allocatable NPUs; the host's own tool asks the kubelet's files."""
    api = "rbac.authorization.k8s.io"
    meta = parts.metadata(inputs, VALIDATOR, "rbln-validator", namespaced=False)
    return [
        {
            "apiVersion": api + "/v1",
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        },
        {
            "apiVersion": api + "/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "rbln-validator"},
            "subjects": [{"kind": "ServiceAccount", "name": "rbln-validator", "namespace": inputs["namespace"]}],
        },
    ]


def _container(name: str, image: str, pull_policy: str, **more: t.Any) -> Object:
    result: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    result.update({key: value for key, value in more.items() if value not in (None, [], {})})
    return result


def _helper(inputs: Inputs, name: str, resources: Object, **more: t.Any) -> Object:
    image = inputs["helper_image"]
    reference = parts.image_reference("rbln_operands_helper_image", image, inputs["registry"])
    return _container(name, reference, image["pull_policy"], resources=resources, **more)


def _device_plugin(inputs: Inputs) -> Object:
    own = inputs["device_plugin"]
    socket_dir = "/var/lib/kubelet/device-plugins"
    marker_dir = inputs["marker_dir"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    mounts = [{"name": "device-plugins", "mountPath": socket_dir}]
    volumes = [
        parts.host_path("device-plugins", own["device_plugins_dir"], "DirectoryOrCreate"),
        parts.host_path("markers", marker_dir, "DirectoryOrCreate"),
    ]
    for item in own["host_paths"]:
        mount = {"name": item["name"], "mountPath": item["mount_path"] or item["path"]}
        mounts.append({**mount, "readOnly": True} if item["read_only"] else mount)
        volumes.append(parts.host_path(item["name"], item["path"], item["type"]))
    base = {"CDI_ROOT": "/var/run/cdi", "KUBELET_DEVICE_PLUGIN_PATH": socket_dir}
    base["USE_GENERIC_RESOURCE_NAME"] = "true" if inputs["resource_name"] == parts.NPU_KEY else "false"
    wait = _helper(
        inputs,
        "wait-for-host",
        {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        command=["/bin/sh", "-c", WAIT_SCRIPT],
        env=parts.environment(
            {**inputs, "ca_bundle": "", "http_proxy": "", "https_proxy": "", "no_proxy": ""},
            {
                "WAIT_SECONDS": str(inputs["marker_timeout"]),
                "WAIT_MARKERS": " ".join("%s/%s" % (marker_dir, name) for name in ("driver-ready", "toolkit-ready")),
            },
        ),
        securityContext=parts.security_context(),
        volumeMounts=[{"name": "markers", "mountPath": marker_dir, "readOnly": True}],
    )
    main = _container(
        DEVICE_PLUGIN,
        parts.image_reference("rbln_operands_device_plugin.image", own["image"], inputs["registry"]),
        own["image"]["pull_policy"],
        command=own["command"],
        args=own["args"],
        env=parts.environment(inputs, base, own["env"]),
        resources=own["resources"],
        securityContext=parts.security_context(own["privileged"]),
        volumeMounts=mounts + ca_mounts,
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait],
        "containers": [main],
        "volumes": volumes + ca_volumes,
    }
    return parts.daemon_set(inputs, DEVICE_PLUGIN, own, _without_empty(pod))


def _validator(inputs: Inputs) -> Object:
    own = inputs["validator"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    volumes = [parts.host_path("host", "/", "Directory")] + ca_volumes
    mounts = [{"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"}] + ca_mounts
    idle = _helper(
        inputs,
        VALIDATOR,
        {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        command=["/bin/sh", "-c", IDLE_SCRIPT],
        securityContext=parts.security_context(user=65534),
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(inputs, inputs["helper_image"], *([own["image"]] if own["source"] == "image" else [])),
        "initContainers": [_validation(inputs, step, mounts) for step in ("driver", "toolkit", "plugin") if own[step]["enabled"]],
        "containers": [idle],
        "volumes": volumes,
    }
    if own["source"] == "image":
        pod["automountServiceAccountToken"] = True
    return parts.daemon_set(inputs, VALIDATOR, own, _without_empty(pod))


def _validation(inputs: Inputs, step: str, mounts: list[Object]) -> Object:
    """One init container: our tool on the host by chroot, which needs that one capability, or an image with its own command."""
    own = inputs["validator"]
    part = own[step]
    base = {"RBLN_RESOURCE_NAME": inputs["resource_name"]}
    command = ["chroot", "/host", own["host_tool"], "validate", "--scope", step]
    if step == "plugin" and own["source"] == "host_tool":
        command = ["/bin/sh", "-c", PLUGIN_SCRIPT, step]
        base["RBLN_HOST_TOOL"] = own["host_tool"]
        base["CHECKPOINT"] = "/host%s/kubelet_internal_checkpoint" % inputs["device_plugin"]["device_plugins_dir"]
        base["WAIT_SECONDS"] = str(inputs["marker_timeout"])
    more = {"env": parts.environment(inputs, base, own["env"], part["env"]), "volumeMounts": mounts}
    name = step + "-validation"
    if own["source"] == "image":
        return _container(
            name,
            parts.image_reference("rbln_operands_validator.image", own["image"], inputs["registry"]),
            own["image"]["pull_policy"],
            command=part["command"],
            args=part["args"] + own["args"],
            resources=own["resources"],
            securityContext=parts.security_context(part["privileged"]),
            **more,
        )
    return _helper(
        inputs,
        name,
        own["resources"],
        command=part["command"] or command,
        args=part["args"] + own["args"],
        securityContext=parts.security_context(part["privileged"], add=("SYS_CHROOT",)),
        **more,
    )


def _without_empty(values: Object) -> Object:
    return {key: value for key, value in values.items() if value not in ([], {}, None)}
