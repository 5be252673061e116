# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that all components share: namespace, accounts, pull secret, authorities."""

from __future__ import annotations

import base64
import typing as t

from .._objects import parts
from .._objects.inputs import Inputs
from .._objects.model import Context, Object
from . import dra, driver, exporter, label_policy, validator


def namespace(inputs: Inputs, openshift: bool = False) -> Object:
    """Our namespace; on OpenShift with an empty node selector, so that no default keeps our pods off their nodes."""
    labels = {parts.POLICY_LABEL: inputs["name_prefix"]}
    if inputs["pod_security"]:
        labels["pod-security.kubernetes.io/enforce"] = inputs["pod_security"]
        labels["pod-security.kubernetes.io/audit"] = "baseline"
        labels["pod-security.kubernetes.io/warn"] = "baseline"
    meta: Object = {"name": inputs["namespace"], "labels": labels}
    annotations = {**({parts.NODE_SELECTOR: ""} if openshift else {}), **inputs["namespace_annotations"]}
    if annotations:
        meta["annotations"] = parts.texts(annotations)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def service_account(inputs: Inputs, component: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": parts.metadata(inputs, component, parts.object_name(inputs, component)),
        "automountServiceAccountToken": False,
    }


def pull_secret(inputs: Inputs) -> Object:
    content = base64.b64encode(inputs["pull_secret_content"].encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": parts.metadata(inputs, "registry", inputs["pull_secret_name"]),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": content},
    }


def ca_config_map(inputs: Inputs) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": parts.metadata(inputs, "ca", parts.object_name(inputs, "ca")),
        "data": {"ca.crt": inputs["ca_bundle"].strip() + "\n"},
    }


def runtime_class(inputs: Inputs) -> Object:
    own = inputs["runtime_class"]
    item: Object = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": parts.metadata(inputs, "runtime-class", own["name"], namespaced=False),
        "handler": own["handler"],
    }
    if own["node_selector"]:
        item["scheduling"] = {"nodeSelector": parts.texts(own["node_selector"])}
    return item


def network_policy(inputs: Inputs) -> Object:
    """Deny ingress to our pods, but for those that serve others by the inputs. A node always reaches its own pods."""
    smd = inputs["smd"]
    opened = ["metrics-exporter"] + (["smd"] if smd["enabled"] and not parts.is_loopback(smd["host_ip"]) else [])
    expressions = [{"key": "app.kubernetes.io/component", "operator": "NotIn", "values": opened}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": parts.metadata(inputs, "network-policy", parts.object_name(inputs, "no-ingress")),
        "spec": {
            "podSelector": {"matchLabels": dict(parts.OURS), "matchExpressions": expressions},
            "policyTypes": ["Ingress"],
        },
    }


def egress_policies(inputs: Inputs, components: t.Sequence[str]) -> list[Object]:
    """Limit what our pods reach to the API server, and only those that ask it.

    Pods in the network of the host are out of the reach of every policy.
    """
    if not inputs["api_server_cidrs"]:
        return []
    asking = [
        name
        for name, asks in ((dra.NAME, inputs["dra_driver"]["enabled"]), (validator.NAME, validator.asks_api(inputs)))
        if asks and name in components
    ]
    # The exporter asks its daemon wherever that is; a driver may download what it builds with.
    others = [exporter.NAME, driver.LABEL, *asking]
    made = [_egress(inputs, "no-egress", "NotIn", others)]
    if asking:
        blocks: list[Object] = [{"ipBlock": {"cidr": cidr}} for cidr in inputs["api_server_cidrs"]]
        made.append(_egress(inputs, "api-egress", "In", asking, [{"to": blocks}]))
    return made


def _egress(
    inputs: Inputs, name: str, operator: str, components: t.Sequence[str], rules: t.Sequence[Object] = ()
) -> Object:
    expression = {"key": "app.kubernetes.io/component", "operator": operator, "values": list(components)}
    spec: Object = {
        "podSelector": {"matchLabels": dict(parts.OURS), "matchExpressions": [expression]},
        "policyTypes": ["Egress"],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": parts.metadata(inputs, "network-policy", parts.object_name(inputs, name)),
        "spec": {**spec, "egress": list(rules)} if rules else spec,
    }


def openshift_binding(inputs: Inputs, components: t.Sequence[str]) -> Object:
    """Let the accounts use the security context constraints `privileged` of OpenShift, in our namespace alone."""
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": api + "/v1",
        "kind": "RoleBinding",
        "metadata": parts.metadata(inputs, "openshift", parts.object_name(inputs, "scc-privileged")),
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "system:openshift:scc:privileged"},
        "subjects": [
            {"kind": "ServiceAccount", "name": parts.object_name(inputs, name), "namespace": inputs["namespace"]}
            for name in components
        ],
    }


def shared(ctx: Context, components: t.Sequence[str]) -> list[Object]:
    """The shared objects, which come before those of the components; `components` names those with pods."""
    inputs = ctx.inputs
    openshift = "security.openshift.io" in ctx.capabilities.groups
    made = [namespace(inputs, openshift)]
    if inputs["pull_secret_content"]:
        made.append(pull_secret(inputs))
    if inputs["ca_bundle"]:
        made.append(ca_config_map(inputs))
    if inputs["network_policy"]:
        made.append(network_policy(inputs))
    made += egress_policies(inputs, components)
    made += label_policy.objects(ctx)
    if openshift and components:
        made.append(openshift_binding(inputs, components))
    if inputs["runtime_class"]["enabled"]:
        made.append(runtime_class(inputs))
    return made
