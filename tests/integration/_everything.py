# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs for tests of the cluster side.

A policy with every component that fits beside the others, the facts of a host, and nodes of many pools.
"""

from __future__ import annotations

import typing as t

Data = t.Dict[str, t.Any]
NPUS = 2
FACTS: Data = {
    "npus": [{"product": "RBLN-CA22", "family": "ATOM"}] * NPUS,
    "counts": {"cards": NPUS, "functions": NPUS, "devices": NPUS, "usable": NPUS},
    "driver": {"version_loaded": "3.2.2"},
    "identity": {},
}
PULL_SECRET = {"auths": {"registry.example.org": {"auth": "dXNlcjpwYXNz"}}}
EVERYTHING: Data = {
    "pull_secret_content": PULL_SECRET,
    "ca_bundle": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "runtime_class": {"enabled": True, "handler": "rbln"},
    "driver": {"enabled": True, "image": {"tag": "3.4.1"}, "manager": {"image": {"tag": "0.4.1"}}},
    "container_toolkit": {"enabled": True, "image": {"tag": "0.2.0"}},
    "validator": {"source": "image", "image": {"tag": "0.4.1"}},
    "feature_discovery": {"enabled": True, "source": "image", "image": {"tag": "0.3.0"}},
    "node_feature_rule": {"enabled": True},
    "smd": {"enabled": True, "image": {"tag": "3.4.1"}},
    "metrics_exporter": {"enabled": True, "image": {"tag": "0.3.4"}},
    "vfio_manager": {"enabled": True},
    "sandbox_device_plugin": {"enabled": True, "image": {"tag": "0.3.0"}},
}
SYSTEMS = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rocky", "9.5"))


def node(number: int, pools: int) -> Data:
    """A Ready node `number` with NPUs, in one of `pools` pools of operating system and kernel.

    Its labels are those of Node Feature Discovery.
    """
    pool = number % pools
    os_id, version = SYSTEMS[pool % len(SYSTEMS)]
    labels = {
        "feature.node.kubernetes.io/pci-1eff.present": "true",
        "feature.node.kubernetes.io/system-os_release.ID": os_id,
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": version,
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-%d-generic" % (10 + pool // len(SYSTEMS)),
        "kubernetes.io/hostname": "node-%04d" % number,
    }
    amounts = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    amounts["rebellions.ai/npu"] = str(NPUS)
    uuid = "aaaaaaaa-0000-4000-8000-%012d" % number
    info = {
        "bootID": "x",
        "containerRuntimeVersion": "containerd://2.1.5",
        "kernelVersion": "x",
        "kubeProxyVersion": "x",
        "osImage": "x",
    }
    info.update(
        {
            "systemUUID": uuid,
            "machineID": uuid.replace("-", ""),
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": "v1.34.4",
        }
    )
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"nodeInfo": info, "conditions": conditions, "capacity": amounts, "allocatable": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-%04d" % number, "labels": labels},
        "status": status,
    }
