# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components of the cluster side, one row each, in the order of their creation."""

from __future__ import annotations

import typing as t

from .._objects.inputs import ComponentKey, Inputs
from .._objects.model import Component, Object
from . import device_plugin, discovery, dra, driver, exporter, node_feature_rule, sandbox, smd, toolkit, validator
from .containers import DRIVER_DEADLINE

COMPONENT_LABEL = "app.kubernetes.io/component"


def _enabled(key: ComponentKey) -> t.Callable[[Inputs], bool]:
    return lambda inputs: bool(inputs[key]["enabled"])


def _sandbox_validator(inputs: Inputs) -> bool:
    machines = inputs["vfio_manager"]["enabled"] or inputs["sandbox_device_plugin"]["enabled"]
    return bool(machines and inputs["validator"]["enabled"] and inputs["validator"]["vfio"]["enabled"])


COMPONENTS = (
    Component(
        "node_feature_rule",
        node_feature_rule.NAME,
        node_feature_rule.objects,
        _enabled("node_feature_rule"),
        pods=False,
    ),
    Component("driver", driver.NAME, driver.objects, driver.is_wanted, deadline=DRIVER_DEADLINE),
    Component("container_toolkit", toolkit.NAME, toolkit.objects, _enabled("container_toolkit"), ("driver",)),
    Component("validator", validator.NAME, validator.objects, _enabled("validator"), ("driver", "container_toolkit")),
    Component(
        "device_plugin",
        device_plugin.NAME,
        device_plugin.objects,
        _enabled("device_plugin"),
        ("driver", "container_toolkit"),
    ),
    Component("dra_driver", dra.NAME, dra.objects, _enabled("dra_driver"), ("driver", "container_toolkit")),
    Component("smd", smd.NAME, smd.objects, _enabled("smd"), ("driver",)),
    Component("metrics_exporter", exporter.NAME, exporter.objects, _enabled("metrics_exporter"), ("driver", "smd")),
    Component("feature_discovery", discovery.NAME, discovery.objects, _enabled("feature_discovery"), ("driver",)),
    Component("vfio_manager", sandbox.MANAGER_NAME, sandbox.manager_objects, _enabled("vfio_manager")),
    Component(
        "sandbox_validator",
        sandbox.VALIDATOR_NAME,
        sandbox.validator_objects,
        _sandbox_validator,
        ("vfio_manager",),
    ),
    Component(
        "sandbox_device_plugin",
        sandbox.PLUGIN_NAME,
        sandbox.plugin_objects,
        _enabled("sandbox_device_plugin"),
        ("vfio_manager",),
    ),
)
_BY_NAME = {**{row.name: row.key for row in COMPONENTS}, driver.LABEL: "driver"}


def wanted(inputs: Inputs) -> tuple[Component, ...]:
    """The rows that the inputs enable."""
    return tuple(row for row in COMPONENTS if row.wanted(inputs))


def component_of(item: Object) -> str:
    """The key of the component that an object belongs to; empty for what all share."""
    return _BY_NAME.get((item["metadata"].get("labels") or {}).get(COMPONENT_LABEL, ""), "")


def dependents(key: str) -> set[str]:
    """The keys of all components that need the one, directly or through another."""
    found = {row.key for row in COMPONENTS if key in row.needs}
    return found.union(*(dependents(other) for other in found)) if found else found
