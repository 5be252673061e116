# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docker: features.cdi from 25.0, on by default from 28.2; unit flags and daemon.json may not both set features."""

from __future__ import annotations

import json
import posixpath
import re
import typing as t

from .._base.model import ERROR
from .._base.versions import release_numbers
from .._cdi.options import SPEC_DIRS
from .._host.host import TIMEOUT
from .base import (
    DOCKER,
    DOCKER_UNITS,
    ELEVATE,
    OFF,
    ON,
    ON_BY_DEFAULT,
    SNAP,
    UNKNOWN,
    UNSUPPORTED,
    Cdi,
    Change,
    Context,
    Daemon,
    Dialect,
    EditTarget,
    Refusal,
    Runtime,
    flag_values,
    has_dir,
    note_outdated,
    note_process,
    note_unit,
    version_in,
    with_dirs,
)
from .distros import of_now
from .live import http_get, is_stopped

BINARIES = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd", "/usr/local/sbin/dockerd")
CLIENTS = ("/usr/bin/docker", "/usr/local/bin/docker", "/snap/bin/docker")
CONFIG = "/etc/docker/daemon.json"
SNAP_UNIT = "snap.docker.dockerd.service"
SNAP_CONFIG = "/var/snap/docker/current/config/daemon.json"
SNAP_BINARY = "/snap/docker/current/bin/dockerd"
SNAP_INFO = "/snap/docker/current/meta/snap.yaml"
SNAP_NOTE = (
    "docker is a snap: it sees only part of the files of the host, so a container may lack what the CDI specification "
    "mounts; use docker from packages where that happens"
)
CRI_DOCKERD_SOCKETS = (
    "/run/cri-dockerd.sock",
    "/run/cri-dockerd/cri-dockerd.sock",
    "/run/dockershim.sock",
    "/run/docker.sock",
)
SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
# Where the package podman-docker links docker's socket to.
PODMAN_SOCKET = "podman.sock"
SUPPORTED_SINCE = (25,)
DEFAULT_SINCE = (28, 2)
REPAIR = "repair the file; docker does not start with it"
# moby 49989: the CDI driver was registered after the containers had been restored.
RESTORE_NOTE = (
    "docker before 28.2 does not bring back restart=always containers that use a CDI device when the daemon starts "
    "(moby 49989)"
)


class DaemonConfigError(ValueError):
    """daemon.json that docker does not take: what, and where when that is known."""


def load_daemon_json(text: str) -> tuple[dict[str, t.Any], list[str]]:
    """The object in daemon.json as docker reads it, and the keys that stand in an object twice.

    Empty text is an empty object, and a byte order mark is not part of it. Of a key that stands twice the last value
    counts, and of two objects each member.
    DaemonConfigError names line and column. Comments, trailing commas, several values and other types than an object
    are errors.
    """
    twice: list[str] = []
    text = text[1:] if text.startswith("\ufeff") else text
    if not text.strip():
        return {}, twice

    def refuse(word: str) -> t.NoReturn:
        raise DaemonConfigError("%s is not a JSON value" % word)

    def object_of(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
        found: dict[str, t.Any] = {}
        for name, value in pairs:
            if name in found:
                twice.append(name)
                if isinstance(found[name], dict) and isinstance(value, dict):
                    value = {**found[name], **value}
            found[name] = value
        return found

    try:
        data = json.loads(text, parse_constant=refuse, object_pairs_hook=object_of)
    except json.JSONDecodeError as exc:
        raise DaemonConfigError("line %d, column %d: %s" % (exc.lineno, exc.colno, exc.msg)) from exc
    except DaemonConfigError:
        raise
    except (ValueError, RecursionError) as exc:
        raise DaemonConfigError("line 1, column 1: %s" % exc) from exc
    if not isinstance(data, dict):
        raise DaemonConfigError("line 1, column 1: the file is not a JSON object")
    # docker takes null for a key that is not there.
    features = {} if data.get("features") is None else data["features"]
    if not isinstance(features, dict):
        raise DaemonConfigError("features is not an object")
    for name, value in features.items():
        if name == "cdi" and not isinstance(value, bool):
            raise DaemonConfigError("features.cdi is not true or false")
    directories = [] if data.get("cdi-spec-dirs") is None else data["cdi-spec-dirs"]
    if not isinstance(directories, list) or not all(isinstance(item, str) for item in directories):
        raise DaemonConfigError("cdi-spec-dirs is not a list of strings")
    return data, twice


def _hosts(given: t.Any) -> tuple[str, ...]:
    """The Unix sockets among the addresses of a daemon; none for those of systemd and of the network."""
    values = [str(value) for value in given] if isinstance(given, list) else []
    return tuple(value[len("unix://") :] for value in values if value.startswith("unix:///"))


def _snap_version(text: str) -> str:
    found = re.search(r"^version:\s*['\"]?([^'\"\s]+)", text, re.MULTILINE)
    return found.group(1) if found else ""


class DockerRuntime:
    """detect() finds and reads, propose() says what would have to change."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.data: dict[str, t.Any] = {}
        self.twice: list[str] = []
        self.error = ""
        self.remedy = REPAIR
        self.feature_flags: list[str] = []
        self.setting: bool | None = None
        self.dir_flags: list[str] = []

    def detect(self) -> list[Runtime]:
        context = self.context
        if not context.may_run((*BINARIES, *SOCKETS, SNAP_CONFIG), DOCKER_UNITS):
            return []
        daemon = context.daemon("dockerd", DOCKER_UNITS)
        snap = self._is_snap(daemon)
        binary = self._program(daemon, snap)
        usual = any(self._is_own(path) for path in SOCKETS)
        if daemon.unit is None and daemon.process is None and binary is None and not usual and not snap:
            return []
        found = Runtime(DOCKER, binary=binary)
        note_unit(found, daemon.unit, daemon.argv)
        argv = daemon.argv
        default = SNAP_CONFIG if snap else CONFIG
        found.main_config = of_now(context.host, (flag_values(argv, "--config-file") or [default])[-1])
        if context.options.by_hand(DOCKER):
            found.main_config = context.options.config_file or found.main_config
            if context.options.dropin_dir:
                found.warnings.append("%s is not used: docker reads no drop-ins" % context.options.dropin_dir)
        if snap:
            found.flavor = SNAP
            found.warnings.append(SNAP_NOTE)
        self.feature_flags = [
            item for value in flag_values(argv, "--feature", "--features") for item in value.split(",") if item
        ]
        self.dir_flags = flag_values(argv, "--cdi-spec-dir", "--cdi-spec-dirs")
        self._read_file(found)
        sockets = _hosts(flag_values(argv, "-H", "--host")) or _hosts(self.data.get("hosts")) or SOCKETS
        socket = next((path for path in sockets if self._is_own(path)), "")
        found.socket, found.socket_exists = socket or sockets[0], bool(socket)
        seen = {"name": found.name, "process_started": daemon.process, "unit_state": found.unit_state}
        stopped = is_stopped(seen)
        info = self._info(socket) if (socket or daemon.process is not None) and not stopped else {}
        version = info.get("ServerVersion")
        found.version = version if isinstance(version, str) and version else None
        if found.version is None and binary:
            found.version = version_in(context.said([binary, "--version"])) or context.packaged(
                "docker-ce", "docker.io", "moby-engine"
            )
        if found.version is None and snap:
            found.version = version_in(_snap_version(context.host.read_text(SNAP_INFO).get("")))
        self._judge(found)
        note_process(context, found, daemon.process)
        note_outdated(found, daemon)
        self._compare(found, info)
        return [found]

    def _is_own(self, path: str) -> bool:
        """True for a socket, unless it is a link to that of podman."""
        found = self.context.host.resolve(path)
        return found.ok and posixpath.basename(found.value) != PODMAN_SOCKET and self.context.is_socket(path)

    def _is_snap(self, daemon: Daemon) -> bool:
        """True for the snap's dockerd: by its unit, its file, else because nothing else of docker is here."""
        context = self.context
        if daemon.unit is not None:
            return daemon.unit.name == SNAP_UNIT
        if daemon.process is not None:
            return context.processes.file(daemon.process.pid).startswith("/snap/docker/")
        return context.host.exists(SNAP_CONFIG) and context.find_binary(daemon, *BINARIES) is None

    def _program(self, daemon: Daemon, snap: bool) -> str | None:
        """dockerd. That of a snap may not run outside of it: then there is none to ask."""
        if not snap:
            return self.context.find_binary(daemon, *BINARIES)
        path = self.context.find_binary(daemon, SNAP_BINARY)
        runs = path is not None and (not self.context.host.runs_commands or self.context.said([path, "--version"]))
        return path if runs else None

    def _info(self, socket: str) -> dict[str, t.Any]:
        """What the daemon at a socket says of itself, whatever other one the environment or a context of root names."""
        host, options = self.context.host, self.context.options
        client = self.context.find_binary(Daemon(), *CLIENTS)
        if client is None or not host.runs_commands:
            return {}
        where = host.resolve(socket) if socket else None
        if where is not None and where.ok:
            # The client would ask the same, and costs as much as the rest of the look.
            asked = http_get(host.real(where.value), "/info", options.timeout).map(json.loads)
            if isinstance(asked.value, dict) or asked.state == TIMEOUT:
                return dict(asked.get({}))
        environment = {"DOCKER_HOST": "unix://" + socket, "DOCKER_TLS_VERIFY": "", "DOCKER_TLS": ""} if socket else None
        words = [client, "info", "--format", "{{json .}}"]
        done = host.run(words, options.timeout, environment)
        try:
            data = json.loads(done.value.out if done.ok and done.value.rc == 0 else "")
        except (ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def _read_file(self, found: Runtime) -> None:
        path = found.main_config or CONFIG
        answer = self.context.host.read_bytes(path)
        if answer.state == "absent":
            return
        found.config_files.append(path)
        if not answer.ok:
            self.error = "%s cannot be read: %s" % (path, answer.detail)
            self.remedy = ELEVATE if answer.state == "denied" else REPAIR
        else:
            try:
                self.data, self.twice = load_daemon_json(answer.value.decode("utf-8"))
            except UnicodeDecodeError as exc:
                self.error = "%s: %s" % (path, exc)
            except DaemonConfigError as exc:
                self.error = "%s, %s" % (path, exc)
            if answer.value.startswith(b"\xef\xbb\xbf"):
                found.warnings.append("%s begins with a byte order mark" % path)
            for name in self.twice:
                found.warnings.append("%s has the key %s twice; docker takes the last" % (path, json.dumps(name)))
        if self.error:
            self.context.problem("docker_config_invalid", ERROR, self.error, self.remedy)

    def _judge(self, found: Runtime) -> None:
        features = self.data.get("features") or {}
        if self.feature_flags and features:
            self.error = (
                self.error
                or "features are given both by flags of the unit and in %s, which docker refuses" % found.main_config
            )
        release = release_numbers(found.version)
        flagged = dict(item.partition("=")[::2] for item in self.feature_flags).get("cdi")
        setting = features.get("cdi")
        source = found.main_config or CONFIG
        if flagged is not None:
            setting, source = flagged.lower() in ("true", "1", "t", ""), "the --feature flag of the unit"
        self.setting = setting
        directories = self.dir_flags or self.data.get("cdi-spec-dirs") or list(SPEC_DIRS)
        given = tuple(item for item in directories if item)
        if "cdi-devices" in features:
            found.warnings.append("%s has features.cdi-devices, a key that docker does not know" % found.main_config)
        if self.error:
            found.cdi = Cdi(UNKNOWN, (), self.error)
        elif not release:
            found.cdi = Cdi(UNKNOWN, (), "the version of docker is not known")
        elif release < SUPPORTED_SINCE:
            found.cdi = Cdi(UNSUPPORTED, (), "docker %s" % found.version)
        elif setting is False or not given or (setting is None and release < DEFAULT_SINCE):
            found.cdi = Cdi(
                OFF, given, source if setting is False or not given else "default of docker %s" % found.version
            )
        else:
            found.cdi = Cdi(
                ON if setting else ON_BY_DEFAULT, given, source if setting else "default of docker %s" % found.version
            )
        if SUPPORTED_SINCE <= release < DEFAULT_SINCE:
            found.warnings.append(RESTORE_NOTE)

    def _compare(self, found: Runtime, info: t.Mapping[str, t.Any]) -> None:
        """The running daemon's own list of spec directories beats file times; it is empty while CDI is off."""
        running = info.get("CDISpecDirs", "")
        # null while CDI is off; not there before 25.
        running = [] if running is None else running
        if found.cdi.state in (ON, ON_BY_DEFAULT, OFF) and isinstance(running, list):
            wanted = list(found.cdi.spec_dirs) if found.cdi.state != OFF else []
            found.process_stale = [item for item in running if item] != wanted

    def propose(self, runtime: Runtime) -> None:
        path = runtime.main_config or CONFIG
        spec_dir = self.context.options.spec_dir
        runtime.edit_target = EditTarget(path, "json")
        runtime.dialect = Dialect(None, "json")
        if self.error:
            runtime.refusal = Refusal(self.error, self.remedy)
            return
        if runtime.cdi.state == UNSUPPORTED:
            runtime.refusal = Refusal("docker %s has no CDI" % runtime.version, "upgrade docker to 25.0 or newer")
            return
        if runtime.cdi.state == UNKNOWN:
            runtime.refusal = Refusal(
                "the version of this docker could not be detected",
                "start docker, or make %s answer --version" % (runtime.binary or "dockerd"),
            )
            return
        if self.setting is False or (self.setting is None and release_numbers(runtime.version) < DEFAULT_SINCE):
            if self.feature_flags:
                runtime.refusal = Refusal(
                    "the unit %s gives features as flags; docker refuses to start when daemon.json gives some too"
                    % runtime.unit,
                    "put --feature cdi=true into the flags of the unit, or move all features into %s" % path,
                )
                return
            why = (
                "CDI is switched off"
                if self.setting is False
                else "CDI is off by default in docker %s" % runtime.version
            )
            runtime.changes.append(Change(path, "features.cdi = true", why))
        if not has_dir(runtime.cdi.spec_dirs, spec_dir):
            if self.dir_flags:
                runtime.refusal = Refusal(
                    "the unit %s gives --cdi-spec-dir without %s, "
                    "and a flag next to the same key in daemon.json is an error" % (runtime.unit, spec_dir),
                    "add --cdi-spec-dir %s to the flags of the unit" % spec_dir,
                )
                runtime.changes = []
                return
            value = json.dumps(with_dirs(runtime.cdi.spec_dirs, spec_dir))
            runtime.changes.append(
                Change(path, "cdi-spec-dirs = %s" % value, "%s is not among the directories that are read" % spec_dir)
            )
        if runtime.changes and self.twice:
            runtime.refusal = Refusal(
                "%s has the key %s twice: docker takes the last, and an edit could change the other"
                % (path, json.dumps(self.twice[0])),
                "remove the one that has no effect",
            )
            runtime.changes = []
