# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that runs nothing: it answers each module with the text that $NPU_ATTACK_RECIPES/HOST.json has for it."""

from __future__ import annotations

import base64
import json
import os
import re
import typing as t
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: crafted
short_description: Answer modules with crafted text
description: A host that runs nothing and answers what a proof says.
author: The rebellions.npu authors
version_added: 0.1.0
options:
  remote_addr:
    description: Name of the host.
    default: inventory_hostname
    vars: [{name: inventory_hostname}]
extends_documentation_fragment: [connection_pipelining]
"""

# As the module wrapper of each ansible-core names the module, in its text or in the path of its file.
MODULE = re.compile(rb"(?:plugins\.modules|ansible\.modules|AnsiballZ_)[._]?(\w+?)(?:\.py)?(?=['\"\s;,/)])")


class Connection(ConnectionBase):
    transport = "crafted"
    has_pipelining = True

    def _connect(self) -> t.Any:
        return self

    def close(self) -> None:
        pass

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        where = Path(os.environ["NPU_ATTACK_RECIPES"])
        recipe = json.loads((where / (self.get_option("remote_addr") + ".json")).read_text(encoding="utf-8"))
        name = self._asked(cmd.encode(), in_data or b"")
        with (where / "asked.log").open("a", encoding="utf-8") as log:
            log.write("%s %s\n" % (self.get_option("remote_addr"), name))
        answer = recipe.get(name) or recipe["other"]
        return answer["rc"], base64.b64decode(answer["out"]), base64.b64decode(answer["err"])

    @staticmethod
    def _asked(cmd: bytes, data: bytes) -> str:
        """A module's name, or the act of a command without a module."""
        if b"=note" in cmd:
            return "follow"
        if b"async_wrapper" in cmd:
            return "async_wrapper"
        found = MODULE.search(data) or MODULE.search(cmd)
        if found:
            return found.group(1).decode()
        if b"umask 77" in cmd:
            return "temporary"
        return "other"

    def put_file(self, in_path: str, out_path: str) -> None:
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        super().fetch_file(in_path, out_path)
        where = Path(os.environ["NPU_ATTACK_RECIPES"]) / (self.get_option("remote_addr") + ".tar")
        Path(out_path).write_bytes(where.read_bytes() if where.exists() else b"")
