# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all components share: namespace, accounts, pull secret, authorities."""

from __future__ import annotations

import base64

from . import _object_parts as parts
from ._object_parts import Inputs, Object


def namespace(inputs: Inputs) -> Object:
    labels = {}
    if inputs["pod_security"]:
        labels["pod-security.kubernetes.io/enforce"] = inputs["pod_security"]
        labels["pod-security.kubernetes.io/audit"] = "baseline"
        labels["pod-security.kubernetes.io/warn"] = "baseline"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inputs["namespace"], "labels": labels}}


def service_account(inputs: Inputs, component: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": parts.metadata(inputs, component, "rbln-" + component),
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
        "metadata": parts.metadata(inputs, "ca", parts.CA_CONFIG_MAP),
        "data": {"ca.crt": inputs["ca_bundle"].strip() + "\n"},
    }
