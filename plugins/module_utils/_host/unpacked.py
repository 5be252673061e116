# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An unpacked program: LIB/DIGEST has its sources and what Python compiled of them, LIB/python leads to its Python.

This file imports nothing of ours. The controller also sends its text by itself: it decides on the host whether the
program may run before anything of the program does. So does the program in one file, before it takes the folder.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import posixpath
import re
import stat
import sys
import typing as t

# Why a folder is not run; the text beside it says more.
ABSENT, OTHER, CHANGEABLE, SPOILT, PYTHON_CHANGED, FAILED = (
    "absent", "other", "changeable", "spoilt", "python_changed", "failed",
)  # fmt: skip
LINK = "python"
CACHE = "__pycache__"
MARK = "npu-look:"
LINK_LIMIT = 40
ACCESS_LIST = "system.posix_acl_access"


class Unfit(Exception):
    """A folder that must not be run: one of the words above, and a text that names the place."""

    def __init__(self, code: str, text: str) -> None:
        Exception.__init__(self, text)
        self.code = code


def digest_of(sources: t.Mapping[str, bytes]) -> str:
    """The name of a folder with these sources, by their paths in it."""
    found = hashlib.sha256()
    for name in sorted(sources):
        found.update(("%s\0%d\0" % (name, len(sources[name]))).encode("utf-8"))
        found.update(sources[name])
    return found.hexdigest()[:32]


def writer(path: str, info: os.stat_result) -> str:
    """Who else than root, and the user who asks, can change what is at `path`; empty for nobody."""
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid not in (0, os.geteuid()):
        return "%s belongs to user %d" % (path, info.st_uid)
    if stat.S_ISLNK(info.st_mode):
        return ""
    if mode & 0o002:
        return "everybody can write %s (mode %04o)" % (path, mode)
    if mode & 0o020 and (info.st_gid != 0 or _has_list(path)):
        return "a group can write %s (mode %04o)" % (path, mode)
    return ""


def _has_list(path: str) -> bool:
    # With an access list the bits of the group are the most that the list gives to anybody.
    try:
        return bool(os.getxattr(path, ACCESS_LIST, follow_symlinks=False))
    except OSError:
        return False


def way(path: str, top: str = "/") -> str:
    """The real path of `path`, each link followed below `top`. Unfit when others can change where it leads."""
    todo, at, links = _parts(path[len(top) :] if top != "/" else path), top, 0
    while todo:
        info = os.lstat(at)
        here = writer(at, info)
        part = todo.pop(0)
        if part == "..":
            at = posixpath.dirname(at) if at != top else top
            continue
        step = posixpath.join(at, part)
        found = os.lstat(step)
        # With the sticky bit others cannot replace what is root's.
        kept = info.st_mode & stat.S_ISVTX and {info.st_uid, found.st_uid} <= {0, os.geteuid()}
        here = "" if kept else here
        link = stat.S_ISLNK(found.st_mode)
        here = here or (writer(step, found) if link else "")
        if here:
            raise Unfit(CHANGEABLE, here)
        if not link:
            at = step
            continue
        links += 1
        if links > LINK_LIMIT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        text = os.readlink(step)
        todo = _parts(text) + todo
        at = top if text.startswith("/") else at
    return at


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def tag_of(lib: str) -> str:
    """The cache tag of the Python of `lib`, which is in the names of compiled files; empty where it is not known."""
    real = os.path.realpath(os.path.join(lib, LINK))
    if real == os.path.realpath(sys.executable):
        return sys.implementation.cache_tag or ""
    release = re.search(r"/(?:platform-)?python3\.(\d+)$", real)
    return "cpython-3%s" % release.group(1) if release else ""


def judge(lib: str, wanted: str, compiled: bool = True) -> None:
    """Unfit unless the folder `lib` has the sources `wanted`, and nobody else can change it or what is in it.

    `lib` is a real path; who can change the way to it is another question. With `compiled` its Python must have
    compiled all of them.
    """
    folder = posixpath.join(lib, wanted)
    _fit(lib, os.lstat(lib), True)
    if not os.path.lexists(folder):
        raise Unfit(OTHER, "%s has no sources of this release" % lib)
    _fit(folder, os.lstat(folder), True)
    sources: dict[str, bytes] = {}
    cached: set[str] = set()
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        with os.scandir(posixpath.join(folder, inner)) as found:
            entries = [(one.path, one.name, one.stat(follow_symlinks=False)) for one in found]
        for path, base, info in entries:
            name = posixpath.join(inner, base)
            if stat.S_ISDIR(info.st_mode):
                _fit(path, info, True)
                waiting.append(name)
                continue
            _fit(path, info, False)
            if posixpath.basename(inner) == CACHE and name.endswith(".pyc"):
                cached.add(name)
            elif name.endswith(".py"):
                with open(path, "rb") as stream:
                    sources[name] = stream.read()
            else:
                raise Unfit(SPOILT, "%s does not belong there" % path)
    if digest_of(sources) != wanted:
        raise Unfit(SPOILT, "the sources in %s are not those of its name" % folder)
    if compiled and not os.path.exists(posixpath.join(lib, LINK)):
        raise Unfit(PYTHON_CHANGED, "%s leads to no program" % posixpath.join(lib, LINK))
    tag = tag_of(lib) if compiled else ""
    for name in sources if tag else ():
        inner, base = posixpath.split(name)
        if posixpath.join(inner, CACHE, "%s.%s.pyc" % (base[:-3], tag)) not in cached:
            raise Unfit(PYTHON_CHANGED, "%s was not compiled by %s" % (folder, tag))


def _fit(path: str, info: os.stat_result, directory: bool) -> None:
    here = writer(path, info)
    if here:
        raise Unfit(CHANGEABLE, here)
    if not (stat.S_ISDIR if directory else stat.S_ISREG)(info.st_mode):
        raise Unfit(SPOILT, "%s is not a %s" % (path, "directory" if directory else "regular file"))


def folder_to_run(lib: str, wanted: str) -> str:
    """The folder of the sources `wanted`, when nobody else can change it. Unfit when it must not be run."""
    try:
        real = way(lib)
        judge(real, wanted)
    except FileNotFoundError as exc:
        raise Unfit(ABSENT, "%s is not there" % exc.filename) from exc
    except OSError as exc:
        raise Unfit(FAILED, str(exc)) from exc
    return posixpath.join(real, wanted)


def start(order: t.Mapping[str, t.Any]) -> None:
    """Answer an order of the controller by the folder, in this process; one line after the mark.

    {lib, digest, module, vendor, parameters, environment} and, for another Python, its `arguments` and the `text` of
    this file.
    """
    os.environ.update(order["environment"])
    try:
        folder = folder_to_run(order["lib"], order["digest"])
        _by_its_python(order, posixpath.dirname(folder))
    except Unfit as exc:
        _tell({"unfit": exc.code, "why": str(exc)})
        return
    sys.path.insert(0, folder)
    profile = importlib.import_module(order["vendor"]).PROFILE
    _tell({"answer": importlib.import_module(order["module"]).answer(profile, order["parameters"])})


def _tell(what: dict[str, t.Any]) -> None:
    sys.stdout.write("%s%s\n" % (MARK, json.dumps(what)))


def _by_its_python(order: t.Mapping[str, t.Any], lib: str) -> None:
    """Go on in the Python of `lib`, where this is another one. Unfit when it does not run or others can change it."""
    own = os.readlink(posixpath.join(lib, LINK))
    if order.get("again") or os.path.realpath(own) == os.path.realpath(sys.executable):
        return
    import tempfile

    try:
        real = way(own)
        _fit(real, os.lstat(real), False)
        with tempfile.TemporaryFile() as stream:
            stream.write(json.dumps(dict(order, again=True)).encode("ascii"))
            stream.seek(0)
            os.dup2(stream.fileno(), 0)
            os.execv(own, [own, *order["arguments"]])
    except OSError as exc:
        raise Unfit(PYTHON_CHANGED, "%s does not run: %s" % (own, exc.strerror)) from exc
