# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who runs what: the account, the job of AWX, the playbook, the releases."""

from __future__ import annotations

import getpass
import json
import pathlib
import platform
import re
import typing as t

from .build import About

ROOT = pathlib.Path(__file__).resolve().parents[3]


def about(environment: t.Mapping[str, str], core: str) -> About:
    """What is the same for every playbook of a process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # An account of a container without a line in passwd.
        user = "an account without a name"
    return About(f"{user}@{platform.node()}", environment.get("JOB_ID", ""), version=version(), core=core)


def version() -> str:
    """Of the collection: installed it has a manifest, a checkout has galaxy.yml."""
    try:
        return str(json.loads((ROOT / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        found = re.search(r"(?m)^version:\s*[\"']?([^\s\"']+)", (ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[1] if found else ""


def playbook_name(path: str) -> str:
    """`namespace.collection.name` of a playbook in a collection, else the name of its file."""
    found = re.search(r"/ansible_collections/([^/]+)/([^/]+)/playbooks/(.+)\.ya?ml\Z", path)
    return ".".join([found[1], found[2], found[3].replace("/", ".")]) if found else path.rpartition("/")[2]
