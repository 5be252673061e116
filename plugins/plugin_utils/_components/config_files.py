# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files of a component's program: a ConfigMap of ours or of the site, mounted where its arguments say."""

from __future__ import annotations

import hashlib
import json
import re

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects import parts
from .._objects.inputs import Configured, Inputs
from .._objects.model import Object
from .._objects.names import OPERANDS

VOLUME = "config"
# Kubernetes' own rule for the keys of a ConfigMap.
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_FILE = re.compile(r"^[-._a-zA-Z0-9]{1,253}\Z")


def config_files(inputs: Inputs, name: str, own: Configured) -> tuple[list[Object], list[Object], list[Object]]:
    """(objects, volume mounts, volumes); all empty without files. NpuError on a name that is no file name."""
    given, key = own["config"], OPERANDS + name.replace("-", "_")
    if given["files"] and given["config_map"]:
        raise NpuError(
            f"{key}.config has files and config_map, which name two ConfigMaps.",
            "Keep files, or the name of the ConfigMap that has them.",
        )
    if not given["files"] and not given["config_map"]:
        return [], [], []
    for file in given["files"]:
        if not _FILE.match(str(file)) or str(file) in (".", ".."):
            raise NpuError(f"{key}.config.files has {file!r}, which is not the name of a file.", "Write config.yaml.")
        if not isinstance(given["files"][file], str):
            raise NpuError(
                f"{key}.config.files[{file}] is {type(given['files'][file]).__name__}, not text.",
                "Write the text of the file below |.",
            )
    if given["config_map"] and not _NAME.match(given["config_map"]):
        raise NpuError(
            f"{key}.config.config_map is {given['config_map']!r}, which is not the name of a ConfigMap.",
            "Write small letters, digits, dashes and dots.",
        )
    if not given["directory"].startswith("/"):
        raise NpuError(
            f"{key}.config.directory is {given['directory']!r}, which is not an absolute path.",
            "Write a path that begins with a slash.",
        )
    title = given["config_map"] or parts.object_name(inputs, name + "-config")
    made: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": parts.metadata(inputs, name, title),
        "data": parts.texts(given["files"]),
    }
    mount = {"name": VOLUME, "mountPath": given["directory"], "readOnly": True}
    return [made] if given["files"] else [], [mount], [{"name": VOLUME, "configMap": {"name": title}}]


def restarted_by(item: Object, own: Configured) -> Object:
    """The DaemonSet, whose pods are replaced when files of ours change: programs read them when they start."""
    files = own["config"]["files"]
    if files:
        digest = hashlib.sha256(json.dumps(parts.texts(files), sort_keys=True).encode("utf-8")).hexdigest()
        template = item["spec"]["template"]["metadata"]
        template.setdefault("annotations", {})[parts.LABEL_PREFIX + "config-sha256"] = digest
    return item
