# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a cluster, from inputs alone: a pure function, so that every run of some hosts makes the same ones."""

from __future__ import annotations

import re
import typing as t

import yaml

from .._objects.compare import visible
from .._objects.model import Context, Object
from . import driver, exporter, label_policy, node_feature_rule
from .base import service_account, shared
from .digests import pin
from .registry import wanted


def build(ctx: Context) -> list[Object]:
    """All objects of a cluster in the order of creation: the shared ones, then each component, its account first."""
    rows = wanted(ctx.inputs)
    made = shared(ctx, [row.name for row in rows if row.pods])
    for row in rows:
        if row.pods:
            made.append(service_account(ctx.inputs, row.name))
        made += row.build(ctx)
    pin(made, ctx.inputs)
    return made


def left_out(ctx: Context) -> list[str]:
    """Warnings about what is not made: the cluster does not serve it, or labels of nodes are wrong."""
    return [*node_feature_rule.notes(ctx), *exporter.notes(ctx), *label_policy.notes(ctx), *driver.notes(ctx)]


class _Dumper(yaml.SafeDumper):
    """Literal blocks for text of several lines, and no aliases: a file that people read and compare."""

    def ignore_aliases(self, data: t.Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
# libyaml's emitter is five times as fast, and not everywhere. It gives other bytes where text is in double quotes or
# ends in empty lines, and where a key is empty or long.
_Fast: t.Any = None
if hasattr(yaml, "CSafeDumper"):
    _Fast = type("_Fast", (yaml.CSafeDumper,), {"ignore_aliases": lambda *_given: True})
    _Fast.add_representer(str, _text)
_OTHER_BYTES = re.compile(r"""(?m)(?:^|[:?-] ) *(?:"|'':)|[|][0-9]?[+]$|^[ -]*\? |^.{110,}:(?: |$)""")


def _dumped(item: Object, dumper: t.Any) -> str:
    text: str = yaml.dump(item, Dumper=dumper, sort_keys=True, default_flow_style=False, width=140)
    return text


def _document(item: Object) -> str:
    """The bytes of PyYAML's own emitter."""
    text = _dumped(item, _Fast) if _Fast else '"'
    return _dumped(item, _Dumper) if _OTHER_BYTES.search(text) else text


def manifests(objects: t.Sequence[Object]) -> str:
    """The objects as one YAML stream; the same bytes for the same objects."""
    return "".join("---\n" + _document(item) for item in objects)


def shown(text: str) -> str:
    """Manifests for people, with secrets masked; one line when the text is not YAML of objects."""
    try:
        items = [item for item in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if item]
        return manifests([visible(item) for item in items])
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):
        return "# no manifests\n"
