# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components of the cluster side, one row each, in the order of their creation."""

from __future__ import annotations

from . import _component_device_plugin, _component_validator
from ._model_cluster import Component
from ._object_parts import Inputs

COMPONENTS = (
    Component("device_plugin", _component_device_plugin.DEVICE_PLUGIN, _component_device_plugin.objects),
    Component("validator", _component_validator.VALIDATOR, _component_validator.objects),
)


def wanted(inputs: Inputs) -> tuple[Component, ...]:
    """The rows that the inputs enable."""
    return tuple(row for row in COMPONENTS if inputs[row.key]["enabled"])
