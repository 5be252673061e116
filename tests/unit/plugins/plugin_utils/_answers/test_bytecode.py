# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.plugin_utils._answers import bytecode

SCRIPT = """
import json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible_collections.rebellions.npu.plugins.action import rbln_operands
rooms = {name: module for name, module in sys.modules.items() if ".npu.plugins." in name and "._" in name}
print(json.dumps({name: type(module.__spec__.loader).__name__ for name, module in rooms.items()}))
"""


def test_rooms_are_compiled_once_and_not_in_every_process(tmp_path: Path) -> None:
    collections = str(Path(bytecode.__file__).parents[6])
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env.update(ANSIBLE_COLLECTIONS_PATH=collections, PYTHONPYCACHEPREFIX=str(tmp_path))

    def run() -> tuple[dict[str, str], dict[str, int]]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        kept = [path for path in tmp_path.rglob("*.pyc") if "/rebellions/npu/plugins/" in str(path)]
        return json.loads(done.stdout), {str(path): path.stat().st_mtime_ns for path in kept}

    loaders, kept = run()
    by_ansible = {name for name, loader in loaders.items() if loader != "SourceFileLoader"}
    # What is imported until the finder is there.
    assert len(by_ansible) < 14, by_ansible
    assert len(kept) == len(loaders) - len(by_ansible) > 60
    assert run() == (loaders, kept)
