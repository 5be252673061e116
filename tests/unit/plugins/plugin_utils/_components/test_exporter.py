# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics exporter and how Prometheus finds it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, left_out
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    inputs,
    objects,
    one,
    pod_of,
)

PROMETHEUS = {"groups": ["monitoring.coreos.com"]}
IDENTITY = {"app.kubernetes.io/name": "rbln-metrics-exporter", "app.kubernetes.io/part-of": "rebellions-npu"}


def exporter(capabilities: Any = None, more: Any = None, **own: Any) -> list[dict[str, Any]]:
    given = {"capabilities": capabilities} if capabilities else {}
    return objects(metrics_exporter={"enabled": True, "image": {"tag": "0.3.4"}, **own}, **given, **(more or {}))


def kinds(items: list[dict[str, Any]]) -> list[str]:
    return [
        item["kind"]
        for item in items
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "metrics-exporter"
    ]


def test_pod() -> None:
    items = exporter()
    pod, main = pod_of(items, "metrics-exporter"), container(items, "metrics-exporter")
    assert main["args"] == ["--port=9090", "--interval=5", "--rbln-daemon-url=127.0.0.1:50051"]
    assert [item for item in main["env"] if "value" in item] == [
        {"name": "RBLN_METRICS_EXPORTER_KUBERNETES_MODE", "value": "on"},
        {"name": "PROMETHEUS_METRIC_NAMES", "value": "true"},
    ]
    assert main["ports"] == [{"name": "metrics", "containerPort": 9090, "hostPort": 9090, "protocol": "TCP"}]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert (
        main["readinessProbe"]["httpGet"] == main["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": "metrics"}
    )
    (wait,) = pod["initContainers"]
    assert {"name": "WAIT_MARKERS", "value": "/run/rbln/validations/driver-ready"} in wait["env"]


def test_it_is_root_without_any_of_roots_rights() -> None:
    assert container(exporter(), "metrics-exporter")["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": False,
        "runAsUser": 0,
        "seLinuxOptions": {"type": "spc_t"},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_without_the_network_of_the_node() -> None:
    items = exporter(
        host_network=False,
        port=9191,
        daemon_url="smd:1",
        interval=7,
        prometheus_names=False,
        probes=False,
        args=["--x"],
    )
    pod, main = pod_of(items, "metrics-exporter"), container(items, "metrics-exporter")
    assert main["ports"] == [{"name": "metrics", "containerPort": 9191, "protocol": "TCP"}]
    assert main["args"] == ["--port=9191", "--interval=7", "--rbln-daemon-url=smd:1", "--x"]
    assert {"name": "PROMETHEUS_METRIC_NAMES", "value": "false"} in main["env"]
    assert (
        "hostNetwork" not in pod and "dnsPolicy" not in pod and [name for name in main if name.endswith("Probe")] == []
    )


def test_P03_only_the_directory_of_pod_resources_moves_with_the_kubelet() -> None:
    items = exporter(more={"kubelet_root": "/opt/kubelet/"})
    pod, main = pod_of(items, "metrics-exporter"), container(items, "metrics-exporter")
    assert {"name": "pod-resources", "hostPath": {"path": "/opt/kubelet/pod-resources", "type": "Directory"}} in pod[
        "volumes"
    ]
    assert main["volumeMounts"] == [
        {"name": "pod-resources", "mountPath": "/var/lib/kubelet/pod-resources", "readOnly": True}
    ]
    plugin = pod_of(items, "device-plugin")
    assert {
        "name": "device-plugins",
        "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "DirectoryOrCreate"},
    } in plugin["volumes"]


def test_a_daemon_set_for_each_root_of_a_kubelet() -> None:
    sets = [
        item
        for item in exporter(more={"kubelet_roots": ["/data/kubelet"]})
        if item["kind"] == "DaemonSet" and "exporter" in item["metadata"]["name"]
    ]
    found = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] for item in sets
    }
    assert (
        sorted(found.values()) == ["/data/kubelet/pod-resources", "/var/lib/kubelet/pod-resources"] and len(found) == 2
    )
    selectors = [tuple(sorted(item["spec"]["selector"]["matchLabels"].items())) for item in sets]
    assert len(set(selectors)) == 2


def test_service() -> None:
    service = one(exporter(port=9191, service={"labels": {"team": "npu"}, "annotations": {"a": "b"}}), "Service")
    assert service["metadata"]["name"] == "rbln-metrics-exporter" and service["metadata"]["labels"]["team"] == "npu"
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": IDENTITY,
        "ports": [{"name": "metrics", "port": 9191, "targetPort": "metrics", "protocol": "TCP"}],
    }


def test_M01_labels_of_the_pod_that_uses_an_npu_win() -> None:
    items = exporter(PROMETHEUS, service_monitor={"labels": {"release": "prometheus"}})
    monitor = one(items, "ServiceMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1" and monitor["metadata"]["namespace"] == "rbln-system"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"] == {
        "selector": {"matchLabels": IDENTITY},
        "namespaceSelector": {"matchNames": ["rbln-system"]},
        "endpoints": [{"port": "metrics", "path": "/metrics", "honorLabels": True}],
    }
    assert IDENTITY.items() <= one(items, "Service")["metadata"]["labels"].items()
    other = one(exporter(PROMETHEUS, service_monitor={"interval": "30s", "honor_labels": False}), "ServiceMonitor")
    assert other["spec"]["endpoints"] == [
        {"port": "metrics", "path": "/metrics", "honorLabels": False, "interval": "30s"}
    ]


PLAIN = ["ServiceAccount", "Service", "DaemonSet"]


@pytest.mark.parametrize(
    ("capabilities", "own", "expected"),
    [
        (None, {}, PLAIN),
        (PROMETHEUS, {}, [*PLAIN, "ServiceMonitor"]),
        (PROMETHEUS, {"service_monitor": {"enabled": "yes"}}, [*PLAIN, "ServiceMonitor"]),
        (PROMETHEUS, {"service_monitor": {"enabled": "no"}}, PLAIN),
        (None, {"service_monitor": {"enabled": "no"}}, PLAIN),
        (PROMETHEUS, {"service": {"enabled": False}}, ["ServiceAccount", "DaemonSet"]),
    ],
)
def test_M01_the_service_monitor_is_made_where_the_kind_is_served(
    capabilities: Any, own: dict[str, Any], expected: list[str]
) -> None:
    assert kinds(exporter(capabilities, **own)) == expected


# What the case sets: metrics_service_monitor: true.
@pytest.mark.parametrize("enabled", [True, "yes"])
@pytest.mark.parametrize(("capabilities", "told"), [(None, 1), (PROMETHEUS, 0)])
def test_M01_honor_labels_a_service_monitor_that_is_wanted_is_left_out_where_the_kind_is_not_served(
    enabled: Any, capabilities: Any, told: int
) -> None:
    own = {"enabled": True, "image": {"tag": "0.3.4"}, "service_monitor": {"enabled": enabled}}
    typed = inputs(metrics_exporter=own, **({"capabilities": capabilities} if capabilities else {}))
    context = Context(typed, declared(typed))
    assert kinds(build(context)) == (PLAIN if told else [*PLAIN, "ServiceMonitor"])
    assert [
        note for note in left_out(context) if "does not serve monitoring.coreos.com/v1 ServiceMonitor" in note
    ] == left_out(context)
    assert len(left_out(context)) == told


def test_M01_honor_labels_false_makes_none() -> None:
    assert kinds(exporter(PROMETHEUS, service_monitor={"enabled": False})) == PLAIN


def test_a_service_monitor_that_is_demanded_without_a_service() -> None:
    with pytest.raises(
        NpuError, match="rbln_operands_metrics_exporter.service_monitor.enabled is yes, and its service is switched off"
    ):
        exporter(PROMETHEUS, service_monitor={"enabled": "yes"}, service={"enabled": False})
