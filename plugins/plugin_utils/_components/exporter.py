# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics exporter, with the Service and the ServiceMonitor by which Prometheus finds it."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.capabilities import serves
from .._objects import parts
from .._objects.inputs import Inputs
from .._objects.model import CONTAINER, Context, Object, Variant
from .._objects.names import ENV, OPERANDS, SHORT
from .containers import own_container, wait_for_host, without_empty
from .variants import kubelet_roots
from .where import daemon_set

NAME = "metrics-exporter"
PORT = "metrics"
PATH = "/metrics"
MONITOR = ("monitoring.coreos.com/v1", "ServiceMonitor")
# Where the exporter asks the kubelet which pod has which NPU, whatever the kubelet's root is.
POD_RESOURCES = "/var/lib/kubelet/pod-resources"


def objects(ctx: Context) -> list[Object]:
    """Its Service, a DaemonSet for each root of a kubelet, and its ServiceMonitor where the kind is served."""
    inputs = ctx.inputs
    made = [_service(inputs)] if inputs["metrics_exporter"]["service"]["enabled"] else []
    made += [_daemon_set(inputs, root, variant) for root, variant in kubelet_roots(inputs)]
    return [*made, _service_monitor(inputs)] if _monitored(ctx) else made


def notes(ctx: Context) -> list[str]:
    """What was left out, and why."""
    own = ctx.inputs["metrics_exporter"]
    if not own["enabled"] or own["service_monitor"]["enabled"] != "yes" or serves(ctx.capabilities, *MONITOR):
        return []
    return [
        f"{OPERANDS}metrics_exporter.service_monitor is wanted and left out: the cluster does not serve "
        f"{MONITOR[0]} {MONITOR[1]}. Next: Install the Prometheus operator, or write auto; "
        f"for manifests name the group in {OPERANDS}capabilities.groups."
    ]


def _monitored(ctx: Context) -> bool:
    own = ctx.inputs["metrics_exporter"]
    wanted, served = own["service_monitor"]["enabled"], serves(ctx.capabilities, *MONITOR)
    if wanted == "yes" and not own["service"]["enabled"]:
        raise NpuError(
            f"{OPERANDS}metrics_exporter.service_monitor.enabled is yes, and its service is switched off.",
            "Set service.enabled to true: a ServiceMonitor finds pods by their Service.",
        )
    return bool(wanted != "no" and served and own["service"]["enabled"])


def _service(inputs: Inputs) -> Object:
    own = inputs["metrics_exporter"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": parts.metadata(inputs, NAME, parts.object_name(inputs, NAME), own["service"]),
        "spec": {
            "clusterIP": "None",
            "selector": parts.identity(NAME),
            "ports": [{"name": PORT, "port": own["port"], "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def _service_monitor(inputs: Inputs) -> Object:
    own = inputs["metrics_exporter"]["service_monitor"]
    # Without honorLabels the label of the pod that uses an NPU is replaced by that of the exporter's pod.
    endpoint: Object = {"port": PORT, "path": PATH, "honorLabels": own["honor_labels"]}
    if own["interval"]:
        endpoint["interval"] = own["interval"]
    return {
        "apiVersion": MONITOR[0],
        "kind": MONITOR[1],
        "metadata": parts.metadata(inputs, NAME, parts.object_name(inputs, NAME), {"labels": own["labels"]}),
        "spec": {
            "selector": {"matchLabels": parts.identity(NAME)},
            "namespaceSelector": {"matchNames": [inputs["namespace"]]},
            "endpoints": [endpoint],
        },
    }


def _daemon_set(inputs: Inputs, root: str, variant: Variant) -> Object:
    own = inputs["metrics_exporter"]
    ca_mounts, ca_volumes = parts.ca_mounts(inputs)
    more_mounts, more_volumes = parts.host_mounts(own)
    port: Object = {"name": PORT, "containerPort": own["port"], "protocol": "TCP"}
    if own["host_network"]:
        port["hostPort"] = own["port"]
    probes: Object = {}
    if own["probes"]:
        handler = {"httpGet": {"path": PATH, "port": PORT}}
        probes = {"livenessProbe": parts.probe(handler, delay=10), "readinessProbe": parts.probe(handler)}
    base = {
        ENV + "METRICS_EXPORTER_KUBERNETES_MODE": "on",
        "PROMETHEUS_METRIC_NAMES": "true" if own["prometheus_names"] else "false",
    }
    flags = {"port": own["port"], "interval": own["interval"], SHORT + "-daemon-url": own["daemon_url"]}
    main = own_container(
        inputs,
        NAME,
        "metrics_exporter",
        base,
        args=["--%s=%s" % flag for flag in flags.items()] + own["args"],
        ports=[port],
        # Only root can read the kubelet's socket, which tells which pod has an NPU. The container has no other
        # privilege of root.
        **probes,
        volumeMounts=[
            {"name": "pod-resources", "mountPath": POD_RESOURCES, "readOnly": True},
            *more_mounts,
            *ca_mounts,
        ],
    )
    pod: Object = {
        "imagePullSecrets": parts.pull_secrets(inputs, own["image"], inputs["helper_image"]),
        "initContainers": [wait_for_host(inputs, ("driver-ready",))],
        "containers": [main],
        "volumes": [
            parts.host_path("pod-resources", root + "/pod-resources", "Directory"),
            parts.host_path("markers", inputs["marker_dir"], "DirectoryOrCreate"),
            *more_volumes,
            *ca_volumes,
        ],
    }
    if own["host_network"]:
        pod.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    return daemon_set(inputs, NAME, own, without_empty(pod), CONTAINER, variant)
