# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rule by which Node Feature Discovery labels the nodes that have an NPU."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._cluster.capabilities import serves
from .._objects import parts
from .._objects.model import Context, Object
from .._objects.names import OPERANDS

NAME = "node-feature-rule"
KIND = ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule")


def objects(ctx: Context) -> list[Object]:
    """The rule; none where the kind is not served."""
    if not serves(ctx.capabilities, *KIND):
        return []
    rules = [_rule(parts.PRESENT_LABEL, "true", {"class": [PROFILE.pci_class]})]
    for label in ("family", "product"):
        devices: dict[str, list[str]] = {}
        for device, product in PROFILE.products.items():
            devices.setdefault(product.family if label == "family" else product.name, []).append(device)
        rules += [_rule("%s.%s" % (parts.NPU_KEY, label), value, {"device": found}) for value, found in devices.items()]
    meta = parts.metadata(ctx.inputs, NAME, parts.object_name(ctx.inputs, "npu"), namespaced=False)
    return [{"apiVersion": KIND[0], "kind": KIND[1], "metadata": meta, "spec": {"rules": rules}}]


def notes(ctx: Context) -> list[str]:
    """What was left out, and why."""
    if not ctx.inputs["node_feature_rule"]["enabled"] or serves(ctx.capabilities, *KIND):
        return []
    return [
        f"{OPERANDS}node_feature_rule is wanted and left out: the cluster does not serve {KIND[0]} {KIND[1]}. "
        "Next: Install Node Feature Discovery, or leave the labels to the hosts; "
        f"for manifests name the group in {OPERANDS}capabilities.groups."
    ]


def _rule(label: str, value: str, wanted: dict[str, list[str]]) -> Object:
    """A label for nodes with a PCI device of the vendor whose attributes are among those wanted."""
    attributes = {"vendor": [PROFILE.pci_vendor], **wanted}
    expressions = {name: {"op": "In", "value": values} for name, values in attributes.items()}
    return {
        "name": "%s %s" % (label, value),
        "labels": {label: value},
        "matchFeatures": [{"feature": "pci.device", "matchExpressions": expressions}],
    }
