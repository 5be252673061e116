# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a cluster, from inputs alone: a pure function, so that every run and every slice makes the same ones."""

from __future__ import annotations

import typing as t

import yaml

from ._component_base import ca_config_map, namespace, pull_secret, service_account
from ._model_cluster import Context
from ._object_parts import Object
from ._registry import wanted


def build(ctx: Context) -> list[Object]:
    """Every object of one cluster in the order of creation: namespace, accounts, configuration, roles, DaemonSets."""
    inputs, rows = ctx.inputs, wanted(ctx.inputs)
    first = [namespace(inputs), *(service_account(inputs, row.name) for row in rows)]
    if inputs["pull_secret_content"]:
        first.append(pull_secret(inputs))
    if inputs["ca_bundle"]:
        first.append(ca_config_map(inputs))
    made = [item for row in rows for item in row.build(ctx)]
    return first + sorted(made, key=lambda item: bool(item["kind"] == "DaemonSet"))


class _Dumper(yaml.SafeDumper):
    """Literal blocks for text of several lines, and no aliases: a file that people read and compare."""

    def ignore_aliases(self, data: t.Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def manifests(objects: t.Sequence[Object]) -> str:
    """The objects as one YAML stream; the same bytes for the same objects."""
    return "".join("---\n" + yaml.dump(item, Dumper=_Dumper, sort_keys=True, default_flow_style=False, width=140) for item in objects)
