# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files a container needs of the host: libraries with everything they load, plugins, tools."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
import typing as t

from .._base.model import INFO, WARNING, NpuError, Problem
from .._base.records import dataclass, field
from .._base.vendor import VendorProfile
from .._base.versions import release_key, same_release
from .._formats.elf import MACHINES, Elf
from .._npu.libraries import library_version, stem_of, suffix_version
from .ldpath import FILE, LINK, Tree, configured_directories, default_directories, expand
from .options import CdiOptions


@dataclass
class Library:
    """A file to mount.

    `path` is its real path below the driver root, `target` where the host has it, `links` [(text, link path)], `soname`
    the name that programs ask for when it has one.
    """

    path: str
    target: str
    links: list[tuple[str, str]] = field(default_factory=list)
    plugin_dir: str = ""
    soname: str = ""


@dataclass
class Found:
    """Everything discovery saw, in the order it goes into the specification."""

    libraries: list[Library] = field(default_factory=list)
    tools: list[tuple[str, str]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    conflicts: list[dict[str, t.Any]] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def find_files(profile: VendorProfile, tree: Tree, options: CdiOptions, driver_version: str | None = None) -> Found:
    """Libraries, plugins and tools below the tree's root.

    `driver_version` is that of the loaded driver, None when it is not known. NpuError when a library exists in several
    versions and none is the driver's.
    """
    return _Search(profile, tree, options, driver_version).run()


class _Search:
    def __init__(self, profile: VendorProfile, tree: Tree, options: CdiOptions, driver_version: str | None) -> None:
        self.profile = profile
        self.driver_version = driver_version
        self.tree = tree
        self.options = options
        self.found = Found()
        self.machine = options.machine or os.uname().machine
        self.not_wanted = _matcher(options.exclude)
        self.configured = configured_directories(tree)
        self.by_path: dict[str, Library] = {}
        # Vendor libraries that are left out to the one that is used instead, and the links that lead to each library.
        self.replaced: dict[str, str] = {}
        self.leading: dict[str, list[str]] = {}

    def warn(self, code: str, detail: str, next_step: str, severity: str = WARNING) -> None:
        self.found.warnings.append(Problem(code, severity, detail, next_step, self.profile.name))

    def run(self) -> Found:
        given = self.options.library_dirs
        defaults = tuple(given) if given is not None else default_directories(self.machine)
        self.vendor_dirs = _unique(list(defaults) + self.configured)
        self.loader_dirs = _unique(self.configured + list(defaults))
        vendor = self.vendor_libraries()
        plugins, aliases = self.plugins()
        tools = self.tools()
        queue: list[tuple[str, Elf, tuple[str, ...]]] = []
        for library in vendor:
            self.by_path[library.path] = library
            queue.append((library.path, self.elf(library.path), ()))
        dependencies = self.dependencies(queue)
        queue = [(library.path, self.elf(library.path), ()) for library in plugins]
        queue += [(path, elf, ()) for path, _target, elf in tools if isinstance(elf, Elf)]
        plugin_dependencies = self.dependencies(queue)
        known = vendor + dependencies + plugin_dependencies
        for library in known:
            self.add_links(library)
        self.found.libraries = known + plugins
        for library in self.found.libraries:
            library.soname = self.elf(library.path).soname
        for library in plugins:
            library.links.extend(aliases.get(library.path, []))
        self.found.tools = [(path, target) for path, target, _elf in tools]
        for path in sorted(self.tree.denied):
            self.warn(
                "directory_unreadable", "%s cannot be listed: %s." % (path, self.tree.denied[path]), "Run as root."
            )
        for item in self.found.missing:
            self.warn(
                "library_missing",
                "%s is needed by %s and not found in the library directories." % (item["name"], item["needed_by"]),
                "Install the package that brings %s." % item["name"],
            )
        return self.found

    def elf(self, path: str) -> Elf:
        elf = self.tree.elf(path)
        return elf if isinstance(elf, Elf) else Elf(0, 0)

    def abi(self, candidates: t.Sequence[str]) -> tuple[int, int]:
        """Machine and class that fit: the machine's own when a candidate has it, else those of the first candidate."""
        own = MACHINES.get(self.machine)
        abis = [elf.abi for elf in map(self.tree.elf, candidates) if isinstance(elf, Elf)]
        if abis and own not in abis:
            return abis[0]
        return own or (0, 0)

    def vendor_libraries(self) -> list[Library]:
        wanted = self.options.library_patterns
        patterns = tuple(wanted) if wanted is not None else self.profile.library_patterns
        matcher = _matcher(patterns)
        candidates: dict[str, None] = {}
        self.outside: dict[str, list[str]] = {}
        for directory in self.vendor_dirs:
            listing = self.tree.listing(directory)
            if listing is None:
                continue
            names = [name for name in listing.names if matcher.match(name)]
            for kind in (FILE, LINK):
                for name in sorted(name for name in names if listing.names[name] == kind):
                    real = self.tree.locate(listing.path, name)
                    if real is None:
                        self.warn(
                            "library_link_dangling",
                            "%s is a dangling link and is left out." % posixpath.join(listing.path, name),
                            "Install the driver's libraries again.",
                        )
                        continue
                    candidates.setdefault(real)
                    if kind == LINK:
                        self.leading.setdefault(real, []).append(posixpath.join(listing.path, name))
                    if kind == LINK and posixpath.dirname(real) != listing.path:
                        self.outside.setdefault(real, []).append(posixpath.join(listing.path, name))
        usable: list[str] = []
        for path in candidates:
            if not _representable(path):
                self.warn("library_name", "%r is left out: its name is not UTF-8." % path, "Rename the file.")
                continue
            elf = self.tree.elf(path)
            if isinstance(elf, str):
                self.warn(
                    "library_unusable", "%s is left out: %s." % (path, elf), "Install the driver's libraries again."
                )
                continue
            usable.append(path)
        self.wanted_abi = self.abi(usable)
        fitting = []
        for path in usable:
            if self.elf(path).abi == self.wanted_abi:
                fitting.append(path)
            else:
                self.warn("library_foreign", "%s is left out: it is for another machine or word size." % path, "", INFO)
        return [Library(path, path) for path in self.choose(fitting)]

    def choose(self, paths: t.Sequence[str]) -> list[str]:
        """Of files of one library keep that of the driver, else the one the loader would take; tell of the others."""
        by_stem: dict[str, list[str]] = {}
        for path in paths:
            by_stem.setdefault(stem_of(path), []).append(path)
        kept: set[str] = set()
        for stem, same in by_stem.items():
            right = self.of_driver(stem, same)
            by_name: dict[str, list[str]] = {}
            for path in same:
                by_name.setdefault(self.elf(path).soname or posixpath.basename(path), []).append(path)
            if right is None and len(by_name) > 1:
                by_name = {stem: same}
            for name, group in by_name.items():
                kept.add(self.best(name, group, [path for path in right or group if path in group] or group))
        return [path for path in paths if path in kept]

    def of_driver(self, stem: str, same: list[str]) -> list[str] | None:
        """Those of the files of one library to choose from. Files of other releases are taken out of `same`.

        None when they are of several releases and that of the driver is not known.
        """
        versions = {path: self.version(path, len(same) > 1) for path in same}
        releases = {release_key(version) for version in versions.values() if version}
        if self.driver_version is None:
            return None if len(releases) > 1 else same
        right = [path for path in same if same_release(versions[path], self.driver_version)]
        odd = [path for path in same if versions[path] and path not in right]
        if odd and len(odd) < len(same):
            usable = right or [path for path in same if path not in odd]
            best = self.best(self.elf(usable[0]).soname or stem, usable + odd, usable)
            same[:] = [path for path in same if path == best or path not in usable + odd]
        elif len(releases) > 1:
            raise NpuError(
                "%s exists in several versions (%s), and none is of the release of the driver, %s."
                % (stem, ", ".join(same), self.driver_version),
                "Install the libraries of the driver's release, and remove all others.",
            )
        elif odd:
            self.warn(
                "library_not_driver",
                "%s is of the release %s, the driver is %s; it is used, as there is no other one."
                % (odd[0], versions[odd[0]], self.driver_version),
                "Install the libraries of the driver's release.",
            )
        return right or same

    def version(self, path: str, read: bool) -> str | None:
        """The version of a library by its own word; `read` allows to look into the file."""
        return library_version(self.tree.host, self.profile, path)[0] if read else suffix_version(path)

    def best(self, name: str, same: t.Sequence[str], usable: t.Sequence[str]) -> str:
        """The one of `usable` that the loader would take; tell of the others in `same`."""
        beside = [path for path in usable if posixpath.dirname(path) == posixpath.dirname(usable[0])]
        linked = self.tree.locate(posixpath.dirname(usable[0]), name)
        found = linked if linked is not None and linked in usable else max(beside, key=_natural)
        if len(same) > 1:
            why = " for the driver %s" % self.driver_version if len(usable) < len(same) else ""
            self.found.conflicts.append({"kind": "version", "name": name, "paths": list(same), "chosen": found})
            self.warn(
                "library_versions",
                "%s exists %d times (%s); %s is used%s." % (name, len(same), ", ".join(same), found, why),
                "Remove the libraries of the other driver version.",
            )
            self.replaced.update((path, found) for path in same if path != found)
        return found

    def dependencies(self, queue: list[tuple[str, Elf, tuple[str, ...]]]) -> list[Library]:
        """Breadth first, each file once; `queue` holds (path, its ELF, RPATH of what loaded it)."""
        added: list[Library] = []
        position = 0
        while position < len(queue):
            path, elf, inherited = queue[position]
            position += 1
            origin = posixpath.dirname(path)
            own = tuple(filter(None, (expand(entry, origin, self.machine, elf.bits) for entry in elf.rpath)))
            rpath = () if elf.runpath else own + inherited
            runpath = tuple(filter(None, (expand(entry, origin, self.machine, elf.bits) for entry in elf.runpath)))
            for name in elf.needed:
                if self.excluded(name):
                    continue
                real = self.search(name, rpath + runpath)
                # The loader of the host would take it; the container gets the one that was chosen.
                chosen = self.replaced.get(real or "")
                if real is None or (chosen and self.elf(real).soname != self.elf(chosen).soname):
                    if not any(item["name"] == name for item in self.found.missing):
                        self.found.missing.append({"name": name, "needed_by": path})
                    continue
                if (
                    chosen
                    or real in self.by_path
                    or self.excluded(posixpath.basename(real))
                    or not _representable(real)
                ):
                    continue
                library = Library(real, real)
                self.by_path[real] = library
                added.append(library)
                queue.append((real, self.elf(real), own + inherited))
        return added

    def excluded(self, name: str) -> bool:
        return self.not_wanted.match(posixpath.basename(name)) is not None

    def search(self, name: str, first: t.Sequence[str]) -> str | None:
        if "/" in name:
            return self.tree.locate(*posixpath.split(name)) if name.startswith("/") else None
        for directory in list(first) + self.loader_dirs:
            real = self.tree.locate(directory, name)
            if real is not None:
                elf = self.tree.elf(real)
                if isinstance(elf, Elf) and elf.abi == self.wanted_abi:
                    return real
        return None

    def add_links(self, library: Library) -> None:
        """The SONAME link and the unversioned link, when the host has them and they lead to this very file."""
        directory, name = posixpath.split(library.path)
        soname = self.elf(library.path).soname or name
        text = name
        if soname != name and "/" not in soname:
            if self.links_to(directory, soname, library.path):
                library.links.append((name, posixpath.join(directory, soname)))
                text = soname
        plain = re.sub(r"\.so(\.[^/]*)$", ".so", name)
        if plain not in (name, soname) and self.links_to(directory, plain, library.path):
            library.links.append((text, posixpath.join(directory, plain)))
        for link in self.outside.get(library.path, []):
            library.links.append((library.path, link))
        # A name beside it that leads to a file that is left out would lead nowhere.
        for other, chosen in self.replaced.items():
            for link in self.leading.get(other, []) if chosen == library.path else ():
                if posixpath.dirname(link) == directory:
                    library.links.append((library.path, link))

    def links_to(self, directory: str, name: str, path: str) -> bool:
        listing = self.tree.listing(directory)
        if listing is None or listing.names.get(name) != LINK:
            return False
        return self.tree.locate(directory, name) == path

    def plugins(self) -> tuple[list[Library], dict[str, list[tuple[str, str]]]]:
        """Plugins of the plugin directories, each file once by its own name, and the other names as links."""
        given = self.options.plugin_dirs
        result: list[Library] = []
        aliases: dict[str, list[tuple[str, str]]] = {}
        for directory in given if given is not None else self.profile.plugin_dirs:
            listing = self.tree.listing(directory)
            if listing is None:
                continue
            names = sorted(
                name for name in listing.names if (name.endswith(".so") or ".so." in name) and _representable(name)
            )
            for kind in (FILE, LINK):
                for name in names:
                    real = self.tree.locate(listing.path, name) if listing.names[name] == kind else None
                    if real is None or not _representable(real):
                        continue
                    target = posixpath.join(listing.path, name)
                    same = [library for library in result if library.path == real]
                    if same:
                        if posixpath.dirname(same[0].target) == listing.path:
                            aliases.setdefault(real, []).append((posixpath.basename(same[0].target), target))
                        continue
                    elf = self.tree.elf(real)
                    if isinstance(elf, Elf) and elf.abi == self.wanted_abi:
                        result.append(Library(real, target, plugin_dir=listing.path))
        result.sort(key=lambda library: (posixpath.dirname(library.target), library.target))
        return result, aliases

    def tools(self) -> list[tuple[str, str, Elf | str]]:
        given = self.options.tools
        result: list[tuple[str, str, Elf | str]] = []
        for name in given if given is not None else self.profile.tools:
            for directory in self.options.tool_dirs:
                real = self.tree.locate(directory, name)
                if real is None:
                    continue
                seen = self.tree.host.stat(real)
                if seen.ok and seen.value.mode & 0o111:
                    result.append((real, posixpath.join(directory, name), self.tree.elf(real)))
                    break
        return result


def _matcher(patterns: t.Iterable[str]) -> re.Pattern[str]:
    """One expression for any of the shell patterns; one that matches nothing when there are none."""
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")


def _unique(paths: t.Iterable[str]) -> list[str]:
    return list(dict.fromkeys(path.rstrip("/") or "/" for path in paths))


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", text)]


def _representable(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
