# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else decides what a container with an NPU gets: directories of specifications, files with our kind, their hooks.

A specification mounts any path and runs any program as root, so who can write one of these files is root. Only root
counts as trusted; below another root also the user who works on that tree.
"""

from __future__ import annotations

import os
import posixpath
import re
import typing as t

from .._base.model import ERROR, WARNING, NpuError, Problem
from .._base.records import dataclass, field
from .._base.vendor import VendorProfile
from .._host.host import LINK_LIMIT, FileStat, Host
from .options import INTERPRETER, SPEC_SUFFIXES, STANDALONE, STORAGE, CdiOptions, default_path
from .validate import device_names, spelled
from .version import all_edits, items

ACCESS_LIST = "system.posix_acl_access"
STICKY = 0o1000
# Where the vendor's device plugin looks for files of its own when it starts.
PLUGIN_DIRS = ("/run/cdi", "/var/run/cdi")
OLDEST_PYTHON = 8
# Where packages put the hooks that are known by name. Any other program of the system may write where its arguments
# say, as root.
PROGRAM_DIRS = ("/usr/bin", "/usr/sbin", "/usr/libexec", "/bin", "/sbin")
KNOWN_HOOKS = (
    "ldconfig",
    "ldconfig.real",
    "nvidia-cdi-hook",
    "nvidia-container-runtime-hook",
    "nvidia-container-toolkit",
    "nvidia-ctk",
    "oci-nvidia-hook",
)


def place_of(host: Host, path: str) -> str:
    """`path` with every link followed inside the root, whether or not what they lead to exists; NpuError for a loop."""
    found = host.resolve(path, strict=False)
    if not found.ok:
        raise NpuError("%s leads through too many symbolic links." % path, "Remove the loop.")
    return str(found.value)


class Way(t.NamedTuple):
    """Where a path leads: the real path, what is there, the first place that others than root can change and how, and
    whether a directory above keeps other users out.
    """

    real: str
    info: FileStat | None
    place: str
    hole: str
    shut: bool

    @property
    def reason(self) -> str:
        return "%s: %s" % (self.place, self.hole) if self.hole else ""


class Guard:
    """Judges who can change a path. Links are followed inside the root; each place is looked at once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._seen: dict[str, FileStat | None] = {}
        self._ways: dict[str, Way] = {}
        below = host.root != "/"
        self.users = (0, os.geteuid()) if below else (0,)
        self.groups = (0, os.getegid()) if below else (0,)

    def writer(self, path: str, info: FileStat) -> str:
        """Who else than root can write it, as a phrase; empty for nobody."""
        mode = " (mode %04o)" % info.mode
        if info.uid not in self.users:
            return "it belongs to user %d%s" % (info.uid, mode)
        if info.mode & 0o002:
            return "everybody can write it%s" % mode
        if info.mode & 0o020 and info.gid not in self.groups:
            return "group %d can write it%s" % (info.gid, mode)
        # With an access list these bits are the most that the list gives to anybody.
        if info.mode & 0o020 and self._has_list(path):
            return "an access list lets others write it%s" % mode
        return ""

    def _has_list(self, path: str) -> bool:
        try:
            return bool(os.getxattr(self.host.real(path), ACCESS_LIST, follow_symlinks=False))
        except OSError:
            return False

    def at(self, path: str) -> FileStat | None:
        """What is at a path without links above it, itself not followed; None when it cannot be looked at."""
        if path not in self._seen:
            self._seen[path] = self.host.stat(path, follow=False).get()
        return self._seen[path]

    def way(self, path: str) -> Way:
        if path not in self._ways:
            self._ways[path] = self._walk(path)
        return self._ways[path]

    def _walk(self, path: str) -> Way:
        parts = _parts(path)
        at, place, hole, shut, links = "/", "", "", False, 0
        info = self.at("/")
        while parts:
            # What others can write, they can fill; with the sticky bit they cannot replace what is root's.
            here = self.writer(at, info) if info is not None else ""
            # The top of a tree below another root is no directory of that system.
            shut = shut or (info is not None and not info.mode & 0o001 and (at != "/" or self.host.root == "/"))
            part = parts.pop(0)
            if part == "..":
                at = posixpath.dirname(at)
                info = self.at(at)
                continue
            step = posixpath.join(at, part)
            found = self.at(step)
            kept = info is not None and info.mode & STICKY and info.uid in self.users
            if here and not hole and not (kept and found is not None and found.uid in self.users):
                place, hole = at, here
            if found is not None and found.kind == "link":
                if found.uid not in self.users and not hole:
                    place, hole = step, "it is a link of user %d" % found.uid
                links += 1
                text = self.host.readlink(step).get("")
                if links > LINK_LIMIT or not text:
                    return Way(step, None, place, hole, shut)
                parts = _parts(text) + parts
                if text.startswith("/"):
                    at, info = "/", self.at("/")
                continue
            at, info = step, found
            if found is None:
                return Way(posixpath.join(at, *parts), None, place, hole, shut)
        if info is not None and not hole:
            hole = self.writer(at, info)
            place = at if hole else ""
        return Way(at, info, place, hole, shut)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


@dataclass(frozen=True)
class SpecFile:
    """A specification in a directory that runtimes read; `spec` is None and `problem` says why when it has no data."""

    path: str
    way: Way
    spec: dict[str, t.Any] | None
    problem: str = ""

    @property
    def kind(self) -> str | None:
        kind = (self.spec or {}).get("kind")
        return kind if isinstance(kind, str) else None

    @property
    def names(self) -> list[str]:
        return device_names(self.spec)

    @property
    def hooks(self) -> list[str]:
        """Paths of its hooks."""
        found = [str(hook.get("path") or "") for edits in all_edits(self.spec or {}) for hook in items(edits, "hooks")]
        return list(dict.fromkeys(found))


@dataclass
class Survey:
    """`directories` [{path, state, linked_to, owner, group, mode}] and `files` [{path, kind, owner, group, mode,
    written_by_us, hooks}] as facts; state is that of a Probe. `specs` are all files by real directory, `problems` what
    stays, `repaired` what goes away by repair() and `repairs` what that would do.
    """

    directories: list[dict[str, t.Any]] = field(default_factory=list)
    files: list[dict[str, t.Any]] = field(default_factory=list)
    specs: dict[str, list[SpecFile]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    repaired: list[Problem] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def refuse_planted(guard: Guard, path: str) -> None:
    """NpuError when `path` is a link that others than root could have made: it may lead to any file of root."""
    above = guard.way(posixpath.dirname(path))
    seen = guard.at(posixpath.join(above.real, posixpath.basename(path)))
    if seen is None or seen.kind != "link":
        return
    reason = above.reason or ("it belongs to user %d" % seen.uid if seen.uid not in guard.users else "")
    if reason:
        raise NpuError(
            "%s is a symbolic link that others than root could have made (%s)." % (path, reason), "Remove the link."
        )


def unfit_interpreter(guard: Guard, path: str) -> str:
    """Why the host tool, which root runs, must not be run by this Python; empty when it may."""
    python = guard.host.resolve(path) if path.startswith("/") else None
    if python is None or not python.ok:
        return "%s: %s" % (path or "no interpreter", python.detail if python is not None else "not an absolute path")
    release = re.fullmatch(r"(?:platform-)?python3\.([0-9]+)", posixpath.basename(python.value))
    if release is not None and int(release.group(1)) < OLDEST_PYTHON:
        return "%s is older than Python 3.%d" % (python.value, OLDEST_PYTHON)
    reason = guard.way(path).reason
    return "others than root can change %s: %s" % (path, reason) if reason else ""


def choose_interpreter(host: Host, running: str) -> tuple[str, str]:
    """(The Python for the host tool, why it cannot be that): the system's, else the `running` one if it is root's.

    `running` is empty below another root: what runs now is no part of that tree.
    """
    guard = Guard(host)
    reason = unfit_interpreter(guard, INTERPRETER)
    if not reason or not running:
        return INTERPRETER, reason
    other = unfit_interpreter(guard, running)
    return (running, "") if not other else (INTERPRETER, "%s; %s" % (reason, other))


def directory_needs_repair(guard: Guard, path: str) -> bool:
    """Whether the directory of the own specification gets the mode 0755: it is no link, and root owns it."""
    above = guard.way(posixpath.dirname(path))
    real = posixpath.join(above.real, posixpath.basename(path))
    info = guard.at(real)
    if info is None or info.kind != "dir" or info.uid not in guard.users:
        return False
    return bool(guard.writer(real, info)) or info.mode & 0o555 != 0o555


def file_needs_repair(guard: Guard, path: str) -> bool:
    """Whether the own specification is made again as root's, with mode 0644."""
    way = guard.way(path)
    if way.info is None or way.info.kind != "file":
        return False
    return bool(guard.writer(way.real, way.info)) or way.info.mode & 0o444 != 0o444


def known_hook(profile: VendorProfile, options: CdiOptions, path: str) -> bool:
    """Whether a hook is the vendor's, ours, a named one, or one of KNOWN_HOOKS where packages put it."""
    if not path.startswith("/") or posixpath.normpath(path) != path:
        return False
    if path in (profile.hook_path, options.hook_path, profile.host_tool):
        return True
    if any(path == one or (one.endswith("/") and path.startswith(one)) for one in options.known_hooks):
        return True
    folder, name = posixpath.split(path)
    return folder in PROGRAM_DIRS and name in (*KNOWN_HOOKS, posixpath.basename(profile.hook_path))


def survey(
    profile: VendorProfile,
    host: Host,
    options: CdiOptions,
    path: str,
    read: t.Callable[[str], t.Any],
    engine_dirs: t.Sequence[str] = (),
) -> Survey:
    """Look at every directory that a runtime reads and at the files in it; `path` is the own specification.

    `read` gives the data of a file by its path, or raises NpuError. `engine_dirs` are those of the runtimes of the
    host, beside those of the options.
    """
    return _Look(profile, host, options, path).run(read, engine_dirs)


class _Look:
    def __init__(self, profile: VendorProfile, host: Host, options: CdiOptions, path: str) -> None:
        self.profile, self.host, self.options, self.path = profile, host, options, path
        self.guard = Guard(host)
        self.found = Survey()
        managed = profile.cdi_storage_kind if options.form == STORAGE else profile.cdi_kind
        self.own_kind = options.kind or managed
        self.kinds = {profile.cdi_kind, profile.cdi_storage_kind, self.own_kind}
        self.own_dir = posixpath.dirname(posixpath.normpath(path))
        self.own = self.guard.way(path).real

    def tell(self, code: str, severity: str, detail: str, next_step: str, repaired: bool = False) -> None:
        problem = Problem(code, severity, detail, next_step, self.profile.name)
        (self.found.repaired if repaired else self.found.problems).append(problem)

    def run(self, read: t.Callable[[str], t.Any], engine_dirs: t.Sequence[str]) -> Survey:
        names: set[str] = set()
        for directory in map(posixpath.normpath, (self.own_dir, *self.options.spec_dirs, *engine_dirs)):
            above = self.guard.way(posixpath.dirname(directory)).real
            name = posixpath.join(above, posixpath.basename(directory))
            if not directory.startswith("/") or name in names:
                continue
            names.add(name)
            way = self.guard.way(directory)
            listed = self.host.listdir(way.real)
            self.directory(directory, name, way, listed.state)
            if way.real not in self.found.specs:
                self.leftovers(directory, way.real, listed.get([]))
                self.found.specs[way.real] = list(self.specs(way.real, listed.get([]), read))
                for one in self.found.specs[way.real]:
                    self.file(one, way)
        return self.found

    def directory(self, path: str, name: str, way: Way, state: str) -> None:
        link = self.host.readlink(name).get() if name != way.real else None
        info = way.info
        self.found.directories.append(
            {
                "path": path,
                "state": state,
                "linked_to": link,
                "owner": info.uid if info else None,
                "group": info.gid if info else None,
                "mode": "%04o" % info.mode if info else None,
            }
        )
        repair = path == self.own_dir and info is not None and directory_needs_repair(self.guard, path)
        if repair and info is not None:
            self.found.repairs.append("%s: mode %04o becomes 0755" % (path, info.mode))
        if link is not None:
            self.tell(
                "cdi_dir_linked",
                ERROR if path == self.own_dir else WARNING,
                "%s is a symbolic link to %s. Container runtimes do not follow it and find no specification there."
                % (path, link),
                "Make it a directory, or name its target as a specification directory of the runtimes.",
            )
        if way.hole:
            self.tell(
                "cdi_dir_writable",
                ERROR,
                "Others than root can put a specification into %s, and so run programs as root: %s."
                % (path, way.reason),
                "Make what is named root's, with mode 0755, and look for files that nobody should have put there.",
                repair and way.place == way.real,
            )
        if info is not None and info.kind == "dir" and (way.shut or info.mode & 0o005 != 0o005):
            self.tell(
                "cdi_dir_unreadable",
                WARNING,
                "Only root can read %s (mode %04o%s), so rootless runtimes find no specification there."
                % (path, info.mode, ", or a directory above it" if way.shut else ""),
                "Give it and the directories above it the mode 0755.",
                repair and not way.shut,
            )

    def leftovers(self, path: str, directory: str, names: t.Sequence[str]) -> None:
        start = self.profile.cdi_kind.replace("/", "-") + "_"
        left = [name for name in names if name.startswith(start)] if path in PLUGIN_DIRS else []
        left = [name for name in left if getattr(self.guard.at(posixpath.join(directory, name)), "kind", "") != "dir"]
        if left:
            self.tell(
                "cdi_plugin_leftover",
                WARNING,
                "A device plugin has left %s in %s. The vendor's device plugin removes such files when it starts, and "
                "ends where it cannot: its pod has this directory read-only." % (", ".join(sorted(left)[:5]), path),
                "Remove these files; no container needs them after its start.",
            )

    def specs(self, directory: str, names: t.Sequence[str], read: t.Callable[[str], t.Any]) -> t.Iterator[SpecFile]:
        for name in names:
            path = posixpath.join(directory, name)
            way = self.guard.way(path)
            if not name.endswith(SPEC_SUFFIXES) or (way.info is not None and way.info.kind == "dir"):
                continue
            try:
                data = read(path)
                yield SpecFile(path, way, spelled(data) if isinstance(data, dict) else None)
            except NpuError as exc:
                yield SpecFile(path, way, None, exc.message)

    def file(self, one: SpecFile, directory: Way) -> None:
        mine, info = one.way.real == self.own, one.way.info
        repair = mine and file_needs_repair(self.guard, one.path)
        if repair and info is not None:
            line = "%s: owner %d and mode %04o become root and 0644" % (one.way.real, info.uid, info.mode)
            # A link in another directory may lead to it too.
            self.found.repairs += [line] if line not in self.found.repairs else []
        if one.way.hole and one.way.reason != directory.reason:
            self.tell(
                "cdi_file_writable",
                ERROR,
                "Others than root can write the specification %s, and so run programs as root: %s."
                % (one.path, one.way.reason),
                "Look at what it holds, then make what is named root's, with mode 0644.",
                repair and one.way.place == one.way.real,
            )
        if one.problem and not mine:
            self.tell("cdi_spec_unreadable", WARNING, one.problem, "Correct or remove the file.")
        if one.kind in self.kinds:
            self.of_our_kind(one, mine, repair)

    def of_our_kind(self, one: SpecFile, mine: bool, repair: bool) -> None:
        info = one.way.info
        owner, mode = (info.uid, "%04o" % info.mode) if info else (None, None)
        ours = mine or self.is_other_form(one)
        self.found.files.append(
            {
                "path": one.path,
                "kind": one.kind,
                "owner": owner,
                "group": info.gid if info else None,
                "mode": mode,
                "written_by_us": ours,
                "hooks": one.hooks,
            }
        )
        if info is not None and not info.mode & 0o004:
            self.tell(
                "cdi_file_unreadable",
                WARNING,
                "Only root can read %s (mode %s), so rootless runtimes do not know its devices." % (one.path, mode),
                "Give it the mode 0644.",
                repair,
            )
        if not ours:
            self.tell(
                "cdi_other_file",
                WARNING,
                "%s has the kind %s too, and this collection did not write it (owner %s, mode %s)."
                % (one.path, one.kind, owner, mode),
                "Remove it, and the service that writes it, unless you know what it is for.",
            )
        for hook in one.hooks:
            self.hook(one.path, hook, mine)

    def is_other_form(self, one: SpecFile) -> bool:
        """At the usual place of the specification of storage while this one is of NPUs, or the reverse."""
        form = STORAGE if one.kind == self.profile.cdi_storage_kind else STANDALONE
        return one.kind != self.own_kind and one.way.real == self.guard.way(default_path(self.profile, form)).real

    def hook(self, path: str, hook: str, mine: bool) -> None:
        if not known_hook(self.profile, self.options, hook):
            self.tell(
                "cdi_hook_unknown",
                ERROR,
                "%s runs %s as root for each container, and that is not a known hook." % (path, hook or "no program"),
                "Remove it from the file, or name the program in known_hooks.",
                mine,
            )
            return
        way = self.guard.way(hook)
        if way.hole:
            self.tell(
                "cdi_hook_writable",
                ERROR,
                "%s runs %s as root for each container, and others than root can change that program: %s."
                % (path, hook, way.reason),
                "Make what is named root's, with mode 0755.",
            )
