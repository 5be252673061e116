# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are, and the environment in which every tool of the checkout runs."""

from __future__ import annotations

import os
from pathlib import Path

NAMESPACE, NAME = "rebellions", "npu"
ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".work"
STAGE = WORK / "stage"
STAGED = STAGE / "ansible_collections" / NAMESPACE / NAME
COLLECTIONS = WORK / "collections"
# The link by which Ansible finds the collection beside the playbooks of a plain checkout. Copies of the checkout are
# where Ansible finds them anyway.
SELF = f"playbooks/collections/ansible_collections/{NAMESPACE}/{NAME}"
VENV = WORK / "venv"
OLD_VENV = WORK / "venv-2.16"
LOGS = WORK / "logs"
TOOLS = ROOT / "tests" / "tools"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rebellions-npu"


class Missing(Exception):
    """Something the checkout needs is not there; the text names it and says how to get it."""


def environment(venv: Path = VENV, **more: str) -> dict[str, str]:
    """The process environment for tools.

    Their venv is first on PATH, they write everything below .work, and they do not use Galaxy's network.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "MOLECULE_", "PYTHON", "VIRTUAL_ENV"))}
    env.update(
        PATH=f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        ANSIBLE_HOME=str(WORK / "ansible-home"),
        ANSIBLE_COLLECTIONS_PATH=f"{STAGE}{os.pathsep}{COLLECTIONS}",
        ANSIBLE_GALAXY_SERVER_TIMEOUT="1",
        ANSIBLE_NOCOLOR="1",
        PIP_CACHE_DIR=str(CACHE / "pip"),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PYTHONPYCACHEPREFIX=str(WORK / "pycache"),
        LC_ALL="C.UTF-8",
    )
    return {**env, **more}
