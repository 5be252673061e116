# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of policy files: which key of the vendor's chart and objects is which input.

What an input is, the argument specs alone say.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._objects.names import OPERANDS, SHORT

Path = t.Tuple[str, ...]
Spec = t.Mapping[str, t.Mapping[str, t.Any]]

# Section of the file: section of the inputs. Every leaf below is known in each section whose inputs have it.
SECTIONS: t.Mapping[Path, Path] = {
    ("driver",): ("driver",),
    ("driver", "manager"): ("driver", "manager"),
    ("driver", "smd"): ("smd",),
    (f"{SHORT}Daemon",): ("smd",),
    ("containerToolkit",): ("container_toolkit",),
    ("validator",): ("validator",),
    ("validator", "plugin"): ("validator", "plugin"),
    ("validator", "toolkit"): ("validator", "toolkit"),
    ("validator", "driver"): ("validator", "driver"),
    ("validator", "vfioPCI"): ("validator", "vfio"),
    ("devicePlugin",): ("device_plugin",),
    ("sandboxDevicePlugin",): ("sandbox_device_plugin",),
    ("vfioManager",): ("vfio_manager",),
    ("draKubeletPlugin",): ("dra_driver",),
    ("npuFeatureDiscovery",): ("feature_discovery",),
    ("metricsExporter",): ("metrics_exporter",),
    ("metricsExporter", "service"): ("metrics_exporter", "service"),
}
# Key in a section: input in the section, and how its value is read (see _policy_translate.READERS).
LEAVES: t.Mapping[Path, tuple[Path, str]] = {
    ("enabled",): (("enabled",), "plain"),
    ("image", "registry"): (("image", "registry"), "text"),
    ("registry",): (("image", "registry"), "text"),
    ("image", "repository"): (("image", "repository"), "text"),
    ("repository",): (("image", "repository"), "text"),
    ("image",): (("image", "repository"), "text"),
    ("image", "tag"): (("image", "tag"), "text"),
    ("tag",): (("image", "tag"), "text"),
    ("version",): (("image", "tag"), "text"),
    ("image", "digest"): (("image", "digest"), "text"),
    ("digest",): (("image", "digest"), "text"),
    ("image", "pullPolicy"): (("image", "pull_policy"), "text"),
    ("pullPolicy",): (("image", "pull_policy"), "text"),
    ("imagePullPolicy",): (("image", "pull_policy"), "text"),
    ("imagePullSecrets",): (("image", "pull_secrets"), "secrets"),
    ("resources",): (("resources",), "plain"),
    ("args",): (("args",), "plain"),
    ("env",): (("env",), "plain"),
    ("labels",): (("labels",), "plain"),
    ("annotations",): (("annotations",), "plain"),
    ("nodeSelector",): (("node_selector",), "plain"),
    ("tolerations",): (("tolerations",), "plain"),
    ("nodeAffinity",): (("node_affinity",), "affinity"),
    ("priorityClassName",): (("priority_class",), "text"),
    ("updateStrategy",): (("update_strategy",), "strategy"),
}
# Keys that one section alone has, and those outside of all sections.
OWN: t.Mapping[Path, tuple[Path, str]] = {
    ("driver", "deployDefault"): (("driver", "deploy_default"), "plain"),
    ("metricsExporter", "serviceMonitor", "enabled"): (("metrics_exporter", "service_monitor", "enabled"), "switch"),
    ("metricsExporter", "serviceMonitor", "labels"): (("metrics_exporter", "service_monitor", "labels"), "plain"),
    ("metricsExporter", "serviceMonitor", "interval"): (("metrics_exporter", "service_monitor", "interval"), "text"),
    ("metricsExporter", "serviceMonitor", "honorLabels"): (
        ("metrics_exporter", "service_monitor", "honor_labels"),
        "plain",
    ),
    ("workloadType",): (("workload",), "workload"),
    ("namespace",): (("namespace",), "text"),
}
INSTANCES: Path = ("driver", "instances")
# Known keys that steer the vendor's operator, which is not there.
LEFT_OUT: tuple[Path, ...] = (
    ("operator",),
    ("nfd",),
    ("nameOverride",),
    ("fullnameOverride",),
    ("driver", "upgradePolicy"),
)
REFUSED: t.Mapping[Path, tuple[str, str]] = {
    ("sandboxDevicePlugin", "resourceList"): ("was removed in 0.11.1: resources are named by product", "Take it away."),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One key of a file: the input it sets, without the role's prefix, and how its value is read."""

    model: Path
    reader: str


def option(spec: Spec, model: Path) -> t.Mapping[str, t.Any] | None:
    """The argument spec of an input, or None when there is no such input."""
    found = spec.get(OPERANDS + model[0])
    for name in model[1:]:
        found = ((found or {}).get("options") or {}).get(name)
    return found


def rows(spec: Spec) -> dict[Path, Row]:
    """Every key that a file can have, from the argument spec of the role with its prefix."""
    found = {}
    for section, model in SECTIONS.items():
        for leaf, (name, reader) in LEAVES.items():
            if option(spec, model + name) is not None:
                found[section + leaf] = Row(model + name, reader)
    found.update({path: Row(*place) for path, place in OWN.items()})
    return found
