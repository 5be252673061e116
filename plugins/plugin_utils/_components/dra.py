# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver, which offers the NPUs of a node as devices that pods claim."""

from __future__ import annotations

import re

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._cluster.capabilities import POLICY, POLICY_BINDING
from .._objects import parts
from .._objects.inputs import Inputs
from .._objects.model import PASSTHROUGH, Context, Object, Variant
from .._objects.names import OPERANDS, SHORT
from .containers import (
    api_token,
    grpc_liveness,
    own_container,
    scratch_run,
    scratch_tmp,
    wait_for_either,
    without_empty,
)
from .driver import roots as driver_roots
from .variants import kubelet_roots
from .where import daemon_set

NAME = "dra-driver"
GROUP = "resource.k8s.io"
RULES = (
    {"apiGroups": [GROUP], "resources": ["resourceclaims"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {
        "apiGroups": [GROUP],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
)
NODE_CLAIM = "authentication.kubernetes.io/node-name"
_DRIVER_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")


def objects(ctx: Context) -> list[Object]:
    """Its roles, the device classes, the admission policy, and a DaemonSet for each root of a kubelet."""
    inputs = ctx.inputs
    own = inputs["dra_driver"]
    if not _DRIVER_NAME.match(own["driver_name"]):
        raise NpuError(
            f"{OPERANDS}dra_driver.driver_name is {own['driver_name']!r}, which is not a DNS name.",
            f"Write for example npu.{PROFILE.label_prefix}.",
        )
    made = [*parts.roles(inputs, NAME, RULES), *_classes(inputs)]
    if own["admission_policy"]:
        made += _admission(inputs)
    return [*made, *(_daemon_set(inputs, root, variant) for root, variant in kubelet_roots(inputs))]


def _classes(inputs: Inputs) -> list[Object]:
    """The device class for containers, and that of devices at vfio-pci when nodes are for virtual machines."""
    own = inputs["dra_driver"]
    driver = own["driver_name"]
    ours = 'device.driver == "%s"' % driver
    kind = 'device.attributes["%s"].type' % driver
    sandbox = inputs["vfio_manager"]["enabled"] or inputs["workload"] == PASSTHROUGH
    plain = _class(inputs, driver, '%s && %s != "vfio"' % (ours, kind) if sandbox else ours)
    if own["extended_resource"]:
        plain["spec"]["extendedResourceName"] = inputs["resource_name"]
    return [plain, _class(inputs, "vfio-" + driver, '%s && %s == "vfio"' % (ours, kind))] if sandbox else [plain]


def _class(inputs: Inputs, name: str, expression: str) -> Object:
    return {
        "apiVersion": GROUP + "/v1",
        "kind": "DeviceClass",
        "metadata": parts.metadata(inputs, NAME, name, namespaced=False),
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _admission(inputs: Inputs) -> list[Object]:
    """The policy and its binding: the account of the driver may write only slices of its own node and driver."""
    name = parts.object_name(inputs, NAME, "slices")
    meta = parts.metadata(inputs, NAME, name, namespaced=False)
    account = "system:serviceaccount:%s:%s" % (inputs["namespace"], parts.object_name(inputs, NAME))
    extra = "request.userInfo.extra"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [GROUP],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "resources": ["resourceslices"],
                }
            ]
        },
        "matchConditions": [{"name": "driver-account", "expression": "request.userInfo.username == '%s'" % account}],
        "variables": [
            {"name": "node", "expression": "has({0}) && '{1}' in {0} ? {0}['{1}'][0] : ''".format(extra, NODE_CLAIM)},
            {"name": "slice", "expression": "request.operation == 'DELETE' ? oldObject : object"},
        ],
        "validations": [
            {
                "expression": "variables.node != ''",
                "message": "The token of the DRA driver names no node: it was not made for a running pod.",
            },
            {
                "expression": "has(variables.slice.spec.nodeName) && variables.slice.spec.nodeName == variables.node",
                "message": "The DRA driver may write the ResourceSlices of its own node only.",
            },
            {
                "expression": "variables.slice.spec.driver == '%s'" % inputs["dra_driver"]["driver_name"],
                "message": "The DRA driver may write the ResourceSlices of its own driver name only.",
            },
        ],
    }
    return [
        {"apiVersion": POLICY[0], "kind": POLICY[1], "metadata": meta, "spec": policy},
        {
            "apiVersion": POLICY_BINDING[0],
            "kind": POLICY_BINDING[1],
            "metadata": meta,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _daemon_set(inputs: Inputs, root: str, variant: Variant) -> Object:
    own = inputs["dra_driver"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    run_mount, run_volume = scratch_run()
    tmp_mount, tmp_volume = scratch_tmp()
    token_mount, token_volume = api_token()
    run_dir: Object = {"name": SHORT, "mountPath": PROFILE.run_dir, "readOnly": True}
    if driver_roots(inputs):
        # The driver may be replaced while the pod runs.
        run_dir["mountPropagation"] = "HostToContainer"
    more_mounts, more_volumes = parts.host_mounts(own, driver_roots(inputs))
    # The kubelet is told these paths, so they are the same inside and outside.
    plugins, registry = (root + name for name in ("/plugins", "/plugins_registry"))
    base = {
        "DRIVER_NAME": own["driver_name"],
        "CDI_ROOT": "/var/run/cdi",
        "KUBELET_PLUGINS_DIRECTORY_PATH": plugins,
        "KUBELET_REGISTRAR_DIRECTORY_PATH": registry,
        "HEALTHCHECK_PORT": str(own["health_port"] or -1),
    }
    main = own_container(
        inputs,
        NAME,
        "dra_driver",
        base,
        command=own["command"] or ["npu-kubelet-plugin"],
        **grpc_liveness(own),
        volumeMounts=[
            run_mount,
            tmp_mount,
            {"name": "plugins", "mountPath": plugins},
            {"name": "plugins-registry", "mountPath": registry},
            {"name": "cdi", "mountPath": "/var/run/cdi"},
            {"name": "dev", "mountPath": "/dev"},
            run_dir,
            {"name": "usr-bin", "mountPath": "/host/usr/bin", "readOnly": True},
            token_mount,
            *more_mounts,
            *ca_mounts,
        ],
    )
    pod = {
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait_for_either(inputs, ("driver-ready", "toolkit-ready"))],
        "containers": [main],
        "volumes": [
            run_volume,
            tmp_volume,
            parts.host_path("plugins", plugins, "Directory"),
            parts.host_path("plugins-registry", registry, "Directory"),
            parts.host_path("cdi", "/var/run/cdi", "DirectoryOrCreate"),
            parts.host_path("dev", "/dev", "Directory"),
            parts.host_path(SHORT, PROFILE.run_dir, "DirectoryOrCreate"),
            parts.host_path("usr-bin", "/usr/bin", "Directory"),
            parts.host_path("markers", inputs["marker_dir"], "DirectoryOrCreate"),
            token_volume,
            *more_volumes,
            *ca_volumes,
        ],
    }
    return daemon_set(inputs, NAME, own, without_empty(pod), mode="", variant=variant)
