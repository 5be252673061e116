# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the builders of cluster objects share: the context of one cluster and a row of the registry."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ._object_parts import Inputs, Object


@dataclass(frozen=True)
class Context:
    """Everything that the objects of one cluster depend on: the typed inputs, without the role's prefix."""

    inputs: Inputs


@dataclass(frozen=True)
class Component:
    """A row of the registry: the key of its inputs, the name in labels and objects, and the function that makes its objects."""

    key: str
    name: str
    build: t.Callable[[Context], list[Object]]
