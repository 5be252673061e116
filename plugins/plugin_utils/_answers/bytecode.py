# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rooms are imported by Python's own loader, which keeps bytecode beside the source.

Ansible's loader for collections compiles each file in each process: a third of the CPU of an unchanged cluster pass.
Where the folder cannot be written, Python goes on without, as Ansible's loader does.
"""

from __future__ import annotations

import functools
import sys
import typing as t
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

from ansible.utils.collection_loader import AnsibleCollectionConfig

PLUGINS = __name__.partition(".plugin_utils.")[0]
ROOMS = (PLUGINS + ".module_utils._", PLUGINS + ".plugin_utils._")


@functools.lru_cache(maxsize=None)
def _folder(path: str) -> FileFinder:
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


class RoomFinder(MetaPathFinder):
    """Finds rooms and their files below the folder where Ansible has found the collection, and nothing else."""

    @staticmethod
    def find_spec(fullname: str, path: t.Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith(ROOMS):
            return None
        found = (_folder(folder).find_spec(fullname, target) for folder in path or ())
        return next((spec for spec in found if spec), None)


def before_ansible() -> None:
    """Let rooms be found in front of Ansible's finder, where there is one."""
    theirs = AnsibleCollectionConfig.collection_finder
    if theirs in sys.meta_path and not any(isinstance(finder, RoomFinder) for finder in sys.meta_path):
        sys.meta_path.insert(sys.meta_path.index(theirs), RoomFinder())
