# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host tool as one file, built only from module_utils. Equal sources give equal bytes on every controller.

Nothing is compressed: compression differs between releases of zlib. The standard library's zipapp can neither fix times
nor sort names.
"""

from __future__ import annotations

import functools
import io
import re
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import HOOK_COMMAND, INTERPRETER
from ansible_collections.rebellions.npu.plugins.module_utils._host.unpacked import digest_of

MODULE_UTILS = Path(__file__).resolve().parents[2] / "module_utils"
PACKAGE = "npu_host"
# The file of the vendor profile, as ROOM.NAME.
VENDOR = "_base." + PROFILE.name
HOOK = "_cdi.hook"
ENTRY = ("_observe.host_tool", VENDOR, HOOK)
NAME = PROFILE.cdi_file_stem + "-host"
CONFIG_DIR = "/etc/rebellions-npu"
CONFIG_PATH = "%s/%s.json" % (CONFIG_DIR, NAME)
LONG_AGO = (1980, 1, 1, 0, 0, 0)
UNIX = 3

# Who judges the unpacked sources: in the file a second time, as it is imported before the rest.
JUDGE = "_host.unpacked"
JUDGE_ALONE = "unpacked"
# The folder of the unpacked sources, beside the program.
LIBRARY = "lib"

# The start of a container waits for the hook, so the hook imports nothing else. What is unpacked is compiled already.
MAIN = """\
import sys

if sys.argv[1:2] == ["{command}"]:
    from {package}.{hook} import main as run_hook

    sys.exit(run_hook(sys.argv[0], sys.argv[2:]))

import os

from {judge} import Unfit, folder_to_run

lib = os.path.join(os.path.dirname(os.path.realpath(sys.path[0])), "{library}")
try:
    sys.path.insert(0, folder_to_run(lib, "{digest}"))
except Unfit:
    pass

from {package}.{vendor} import PROFILE
from {package}._observe.host_tool import main

sys.exit(main(PROFILE, "{config}", sys.argv[1:]))
"""


_RELATIVE = re.compile(r"^[ ]*from (\.{1,2})([\w.]*) import (?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE)


def imported(source: str, room: str) -> set[str]:
    """Files (ROOM.NAME) that a file of `room` imports by relative imports.

    Read as text: parsing would cost a tenth of a second for each host of a play.
    """
    names: set[str] = set()
    for dots, module, several, plain in _RELATIVE.findall(source):
        if len(dots) == 1:
            module = f"{room}.{module}" if module else room
        if "." in module:
            names.add(module)
        else:
            names.update(
                f"{module}.{name}" for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", several or plain))
            )
    return names


def closure(directory: Path = MODULE_UTILS, entry: tuple[str, ...] = ENTRY) -> dict[str, str]:
    """Sources by ROOM.NAME: `entry` and all its imports. FileNotFoundError when one is missing."""
    sources: dict[str, str] = {}
    waiting = list(entry)
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = directory.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
            waiting.extend(sorted(imported(sources[name], name.partition(".")[0])))
    return sources


def sources(directory: Path = MODULE_UTILS) -> dict[str, str]:
    """Texts by their paths in the folder of the unpacked program."""
    found = closure(directory)
    texts = {f"{PACKAGE}/{name.replace('.', '/')}.py": text for name, text in found.items()}
    texts.update({f"{PACKAGE}/{room}/__init__.py": "" for room in {name.partition(".")[0] for name in found}})
    texts[f"{PACKAGE}/__init__.py"] = ""
    return texts


def digest(texts: t.Mapping[str, str]) -> str:
    return digest_of({name: text.encode("utf-8") for name, text in texts.items()})


def build(directory: Path = MODULE_UTILS, interpreter: str = INTERPRETER) -> bytes:
    """The bytes of the file: interpreter line, then a zip with fixed times and sorted names."""
    return _packed(sources(directory), interpreter)


def _packed(texts: t.Mapping[str, str], interpreter: str = INTERPRETER) -> bytes:
    members, name = dict(texts), digest(texts)
    members[f"{JUDGE_ALONE}.py"] = members[f"{PACKAGE}/{JUDGE.replace('.', '/')}.py"]
    members["__main__.py"] = MAIN.format(
        package=PACKAGE,
        vendor=VENDOR,
        config=CONFIG_PATH,
        command=HOOK_COMMAND,
        hook=HOOK,
        judge=JUDGE_ALONE,
        library=LIBRARY,
        digest=name,
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for member in sorted(members):
            info = zipfile.ZipInfo(member, LONG_AGO)
            info.create_system = UNIX
            info.external_attr = 0o100644 << 16
            archive.writestr(info, members[member].encode("utf-8"))
    return f"#!{interpreter}\n".encode() + stream.getvalue()


@functools.lru_cache(maxsize=None)
def program() -> tuple[bytes, str]:
    """(the file, the name of the folder of its sources), made once a process."""
    texts = sources()
    return _packed(texts), digest(texts)
