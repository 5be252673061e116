# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the builders of cluster objects share: context, capabilities, pool, variant, and a row of the registry."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.pool import pool_key

from .inputs import Inputs

Object = dict[str, t.Any]
# Alternatives, each a list of match expressions that all hold: the nodeSelectorTerms of Kubernetes.
Terms = list[list[Object]]

CONTAINER = "container"
PASSTHROUGH = "vm-passthrough"


@dataclass(frozen=True)
class Capabilities:
    """What an API server serves.

    `groups` maps an API group to its versions; the core group is left out. `kinds` holds (apiVersion, kind) of the
    custom resources that we may make objects of, since a group can be served without the kind.
    """

    groups: t.Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Pool:
    """Nodes that take one build of a driver: ID and VERSION_ID of os-release, and the release of the kernel."""

    os_id: str
    os_version: str
    kernel: str

    @property
    def key(self) -> str:
        """The name of the pool, as the facts of a host give it."""
        return pool_key(self.os_id, self.os_version, self.kernel)


@dataclass(frozen=True)
class Context:
    """What the objects of a cluster depend on: inputs (names without prefix), API, pools of the live nodes."""

    inputs: Inputs
    capabilities: Capabilities = Capabilities()
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True)
class Variant:
    """One of several DaemonSets of a component: what its name ends with, and the alternatives that pick its nodes.

    The component may have several (`several`), of which the one without a name must not select the pods of the others.
    """

    name: str
    terms: tuple[tuple[Object, ...], ...] = ()
    several: bool = False


@dataclass(frozen=True)
class Component:
    """A row of the registry.

    `key` is that of its inputs, of the deadlines and of errors; `name` that in labels and object names; `needs` the
    keys of components that must be ready before it can be; `deadline` seconds when the inputs give none, 0 for the
    shared wait_timeout; `pods` whether it has any; `wanted` whether the inputs ask for it; `build` makes its objects in
    the order of their creation.
    """

    key: str
    name: str
    build: t.Callable[[Context], list[Object]]
    wanted: t.Callable[[Inputs], bool]
    needs: tuple[str, ...] = ()
    deadline: int = 0
    pods: bool = True
