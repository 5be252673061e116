# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman: reads CDI specs by itself since 4.1; there is nothing to write, only to check."""

from __future__ import annotations

from .._base.model import ERROR
from .._base.versions import release_numbers
from .._cdi.options import SPEC_DIRS
from .._formats.toml import TomlError, loads
from .base import (
    ELEVATE,
    OFF,
    ON,
    ON_BY_DEFAULT,
    PODMAN,
    UNKNOWN,
    UNSUPPORTED,
    Cdi,
    Context,
    Daemon,
    Refusal,
    Runtime,
    has_dir,
    version_in,
)

BINARIES = ("/usr/bin/podman", "/usr/local/bin/podman")
SOCKET = "/run/podman/podman.sock"
MAIN = "/etc/containers/containers.conf"
FILES = ("/usr/share/containers/containers.conf", MAIN)
DIRECTORY = "/etc/containers/containers.conf.d"
SUPPORTED_SINCE = (4, 1)
# Before 5.5 the directories are fixed, whatever the files say (podman 25691); 5.5 had one default (podman 26569).
CONFIGURED_SINCE = (5, 5)
BOTH_SINCE = (5, 6)


class PodmanRuntime:
    """detect() finds and reads, propose() checks."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def detect(self) -> list[Runtime]:
        context = self.context
        binary = context.find_binary(Daemon(), *BINARIES)
        if binary is None:
            return []
        found = Runtime(PODMAN, binary=binary, socket=SOCKET, socket_exists=context.is_socket(SOCKET), main_config=MAIN)
        found.version = version_in(context.said([binary, "--version"])) or context.packaged("podman")
        release = release_numbers(found.version)
        directories: tuple[str, ...] = SPEC_DIRS[:1] if CONFIGURED_SINCE <= release < BOTH_SINCE else SPEC_DIRS
        explicit = ""
        append = False
        for path in [path for path in FILES if context.host.exists(path)] + context.host.glob(DIRECTORY, "*.conf"):
            found.config_files.append(path)
            text = context.host.read_text(path)
            if not text.ok:
                found.cdi = Cdi(UNKNOWN, (), path)
                found.refusal = Refusal("%s cannot be read: %s" % (path, text.detail), ELEVATE)
                return [found]
            try:
                engine = loads(text.value).get("engine")
            except TomlError as exc:
                detail = "%s, line %d, column %d: %s" % (path, exc.line, exc.column, exc.message)
                context.problem("podman_config_invalid", ERROR, detail, "repair the file; podman does not run with it")
                found.cdi = Cdi(UNKNOWN, (), path)
                found.refusal = Refusal(detail, "repair the file; podman does not run with it")
                return [found]
            value = engine.get("cdi_spec_dirs") if isinstance(engine, dict) else None
            if isinstance(value, list) and release and release < CONFIGURED_SINCE:
                found.warnings.append(
                    "cdi_spec_dirs in %s has no effect: podman reads it since 5.5, and this is %s"
                    % (path, found.version)
                )
            elif isinstance(value, list):
                # A table in the list says whether the list adds to what came before, for this file and those after it.
                for item in value:
                    if isinstance(item, dict) and isinstance(item.get("append"), bool):
                        append = item["append"]
                given = tuple(item for item in value if isinstance(item, str))
                directories, explicit = (directories if append else ()) + given, path
        if not release:
            found.cdi = Cdi(UNKNOWN, (), "the version of podman is not known")
        elif release < SUPPORTED_SINCE:
            found.cdi = Cdi(UNSUPPORTED, (), "podman %s" % found.version)
        elif not directories:
            found.cdi = Cdi(OFF, (), explicit)
        else:
            found.cdi = Cdi(
                ON if explicit else ON_BY_DEFAULT, directories, explicit or "defaults of podman %s" % found.version
            )
        return [found]

    def propose(self, runtime: Runtime) -> None:
        spec_dir = self.context.options.spec_dir
        if runtime.cdi.state == UNSUPPORTED:
            runtime.refusal = Refusal("podman %s has no CDI" % runtime.version, "upgrade podman to 4.1 or newer")
        elif runtime.cdi.state in (ON, ON_BY_DEFAULT, OFF) and not has_dir(runtime.cdi.spec_dirs, spec_dir):
            place = runtime.cdi.source if runtime.cdi.source.startswith("/") else MAIN
            runtime.refusal = Refusal(
                "%s is not among the directories that podman reads (%s)"
                % (spec_dir, ", ".join(runtime.cdi.spec_dirs) or "none"),
                "write the specification to one of them, or upgrade podman to 5.5 or newer, which can read others"
                if release_numbers(runtime.version) < CONFIGURED_SINCE
                else "add it to cdi_spec_dirs under [engine] in %s" % place,
            )
