# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Components with several DaemonSets, for nodes with different container runtimes or kubelet root directories."""

from __future__ import annotations

import hashlib
import posixpath
import typing as t

from .._objects.inputs import Inputs
from .._objects.model import Object, Variant
from .._objects.parts import LABEL_PREFIX

# A host writes them on its own node.
RUNTIME_LABEL = LABEL_PREFIX + "host.runtime"
KUBELET_LABEL = LABEL_PREFIX + "host.kubelet"
RUNTIMES = ("containerd", "docker", "crio")
# A host with a runtime that the toolkit does not know.
OTHER_RUNTIME = "other"
DEFAULT_KUBELET = "default"


def runtimes(inputs: Inputs) -> tuple[tuple[str, Variant], ...]:
    """(runtime, variant) of each DaemonSet of the container toolkit, the default first.

    Nodes without a label for their runtime take the default one. A node with another runtime than those named takes
    none, because the toolkit would configure and restart the wrong one.
    """
    own = inputs["container_toolkit"]
    default = own["default_runtime"]
    others = [name for name in (*RUNTIMES, OTHER_RUNTIME) if name != default]
    named = [
        (name, _one_of(RUNTIME_LABEL, name, name)) for name in RUNTIMES if name != default and name in own["runtimes"]
    ]
    return ((default, _none_of(RUNTIME_LABEL, others)), *named)


def kubelet_roots(inputs: Inputs) -> tuple[tuple[str, Variant], ...]:
    """(root directory, variant) of each DaemonSet that mounts something below the kubelet's root, the default first.

    Nodes without a label for their root, or with one that the inputs do not name, take the default.
    """
    default = posixpath.normpath(inputs["kubelet_root"])
    named = {kubelet_key(path, default): posixpath.normpath(path) for path in inputs["kubelet_roots"]}
    named.pop(DEFAULT_KUBELET, None)
    return (
        (default, _none_of(KUBELET_LABEL, list(named))),
        *((path, _one_of(KUBELET_LABEL, key, key)) for key, path in named.items()),
    )


def kubelet_key(path: str, default: str) -> str:
    """The value of KUBELET_LABEL: `default` for the root directory of the inputs, else 8 hex digits of its SHA-256."""
    cleaned = posixpath.normpath(path)
    return (
        DEFAULT_KUBELET
        if cleaned == posixpath.normpath(default)
        else hashlib.sha256(cleaned.encode("utf-8")).hexdigest()[:8]
    )


def _one_of(label: str, value: str, name: str) -> Variant:
    return Variant(name, (({"key": label, "operator": "In", "values": [value]},),), several=True)


def _none_of(label: str, values: t.Sequence[str]) -> Variant:
    term: Object = {"key": label, "operator": "NotIn", "values": list(values)}
    return Variant("", ((term,),) if values else (), several=True)
