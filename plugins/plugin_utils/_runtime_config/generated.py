# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Kubernetes distribution will make of our edit: the text that goes before containerd instead of the edit."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import with_block
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.distro_containerd import filled, placeholders

from .._text.splice import lookup
from .._text.toml import TomlEdit, load
from .containerd_files import State
from .edit import FileEdit, Source


def must_exist(generated: Source, source: str, runtime: t.Mapping[str, t.Any]) -> None:
    """NpuError when the generated file does not exist yet."""
    if generated.data is None:
        raise NpuError(
            "%s does not exist, so what %s becomes cannot be checked." % (generated.path, source),
            "Start %s once, and run again." % (runtime.get("restart_unit") or runtime.get("flavor")),
        )


def _not_known(generated: Source, source: str, runtime: t.Mapping[str, t.Any]) -> NpuError:
    return NpuError(
        "%s is not what %s was made from, so what a change of it becomes is not known." % (source, generated.path),
        "Restart %s, and run again." % (runtime.get("restart_unit") or runtime.get("flavor")),
    )


def of_go_template(generated: Source, template: Source, block: str, runtime: t.Mapping[str, t.Any]) -> str:
    """k3s and rke2: the generated file with the block. NpuError when that is not TOML."""
    become = with_block(generated.text, block)
    try:
        load(become, generated.path)
    except NpuError as exc:
        raise NpuError(
            "%s cannot take a block with enable_cdi: with it %s" % (template.path, exc.message),
            "Upgrade %s to a release with containerd 2, or write this template as a whole configuration of your own."
            % runtime.get("flavor"),
        ) from exc
    return become


def of_placeholders(generated: Source, edit: FileEdit, runtime: t.Mapping[str, t.Any]) -> str | None:
    """microk8s: the new template with the values that the generated file has for its ${NAME}; None when it has none."""
    must_exist(generated, edit.path, runtime)
    values = placeholders(generated.text, edit.source.text)
    return None if values is None else filled((edit.new or b"").decode("utf-8"), values)


def of_dropin(state: State, edit: FileEdit, runtime: t.Mapping[str, t.Any]) -> str:
    """k0s: the file in which it collects CRI tables, with those of our drop-in, and the other imports.

    It is one text, because containerd reads an imported file as if its tables were in the one that imports it.
    """
    collectors = [found for found, document in state.documents if _collects(state, found, document)]
    collected = collectors[-1] if collectors else None
    if collected is None:
        raise _not_known(state.root, edit.path, runtime)
    ours = TomlEdit((edit.new or b"").decode("utf-8"), edit.path)
    text = TomlEdit(collected.text, collected.path)
    for key in ("enable_cdi", "cdi_spec_dirs"):
        raw = ours.raw(state.table(ours.data) + (key,))
        if raw is not None:
            text.set(state.table(text.data) + (key,), raw)
    others = [found.path for found, _document in state.documents if found not in (state.root, collected)]
    text.set(("imports",), text.list_text(others))
    return text.text


def _collects(state: State, found: Source, document: dict[str, t.Any]) -> bool:
    return found is not state.root and isinstance(lookup(document, state.table(document)), dict)
