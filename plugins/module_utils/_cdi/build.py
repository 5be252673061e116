# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a CDI specification from what a host has.

Group nodes: a container's runtime library opens the group node under number 0 whatever its number on the host, and a
container belongs to one group. So an NPU's entry and a group's entry put their group's node there; the entry `all`
does so when all NPUs share one group, and otherwise keeps the host's names.
"""

from __future__ import annotations

import os
import posixpath
import sys
import typing as t

from .._base.model import INFO, WARNING, NpuError, Problem
from .._base.vendor import VendorProfile
from .._formats.elf import CACHE_FLAGS
from .._host.disk import mount_flags
from .._host.host import Host, Limit
from .discover import Found, Library, find_files
from .ldpath import Tree
from .nodes import Node, find_groups, find_nodes, find_storage
from .options import HOOK_COMMAND, KUBERNETES, STANDALONE, STORAGE, CdiOptions, CdiResult
from .trust import Guard, choose_interpreter, unfit_interpreter
from .version import minimum_version

MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "bind")
PERMISSIONS = "rw"
ALL = "all"
RUNTIME = "runtime"
HOOK_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
# Whose mount decides whether the host tool can be placed; the plan looks at the same.
TOOL_MOUNT = "/usr/local"
# Bytes of a program that have its first line.
SHEBANG = 256
NO_TOOL = ((os.ST_NOEXEC, "noexec"), (os.ST_RDONLY, "read-only"))


def build_spec(profile: VendorProfile, host: Host, options: CdiOptions) -> CdiResult:
    """The specification that a host should have. NpuError for bad options, a missing required hook, or no device."""
    options.check()
    driver_root = posixpath.normpath(options.driver_root)
    dev_root = _dev_root(profile, host, options, driver_root)
    found = Found() if options.form == STORAGE else _files(profile, host, options, driver_root)
    warnings = list(found.warnings)
    conflicts = list(found.conflicts)
    nodes: list[Node] = []
    groups: list[Node] = []
    by_name: dict[str, int] = {}
    if options.form == STORAGE:
        nodes, told = find_storage(profile, host, dev_root)
        warnings.extend(told)
    elif options.form == STANDALONE:
        nodes, groups, told = find_nodes(profile, host, dev_root)
        warnings.extend(told)
        by_name = find_groups(profile, host, nodes, options.groups)
        warnings.extend(_group_problems(profile, nodes, groups, by_name))
    edits = {} if options.form == STORAGE else _common(profile, host, options, found, driver_root, warnings, conflicts)
    spec: dict[str, t.Any] | None = None
    action = "write"
    if nodes or (edits and options.form == KUBERNETES):
        spec = _assemble(profile, options, nodes, groups, by_name, edits)
    else:
        action = options.zero_devices
        what = _nothing(options, driver_root, dev_root)
        if action == "fail":
            raise NpuError(what, "Install and load the driver first, or set zero_devices to skip or remove.")
        warnings.append(Problem("cdi_nothing_to_inject", INFO, what, "Install and load the driver.", profile.name))
    return CdiResult(
        spec=spec,
        action=action,
        warnings=warnings,
        missing=found.missing,
        conflicts=conflicts,
        devices=[
            {
                "name": node.name,
                "path": node.path,
                "major": node.major,
                "minor": node.minor,
                "group": by_name.get(node.name),
            }
            for node in nodes
        ],
        libraries=[library.path for library in found.libraries],
        tools=[target for _path, target in found.tools],
    )


def _nothing(options: CdiOptions, driver_root: str, dev_root: str) -> str:
    if options.form == KUBERNETES:
        return "There is nothing to inject: no library, plugin or tool was found below %s." % driver_root
    return "There is no %s device node below %s." % ("storage" if options.form == STORAGE else "NPU", dev_root)


def _files(profile: VendorProfile, host: Host, options: CdiOptions, driver_root: str) -> Found:
    """Libraries, plugins and tools below the driver root, with links resolved inside it."""
    # That of the host, wherever the files of the driver are.
    version = host.read_text("/sys/module/%s/version" % profile.module, Limit.ATTRIBUTE).get("").strip() or None
    if driver_root == "/":
        return find_files(profile, Tree(host), options, version)
    resolved = host.resolve(driver_root)
    if resolved.ok:
        return find_files(profile, Tree(Host(root=host.real(resolved.value))), options, version)
    problem = Problem(
        "driver_root_missing",
        WARNING,
        "The driver root %s cannot be used: %s." % (driver_root, resolved.detail),
        "Set it to the directory that contains the driver's files.",
        profile.name,
    )
    return Found(warnings=[problem])


def _dev_root(profile: VendorProfile, host: Host, options: CdiOptions, driver_root: str) -> str:
    if options.dev_root:
        return posixpath.normpath(options.dev_root)
    own = posixpath.join(driver_root, "dev")
    if driver_root != "/" and find_nodes(profile, host, own)[0]:
        return own
    return "/dev"


def _group_problems(
    profile: VendorProfile, nodes: t.Sequence[Node], groups: t.Sequence[Node], by_name: t.Mapping[str, int]
) -> t.Iterator[Problem]:
    numbers = {group.number for group in groups}
    if not groups:
        return
    unknown = [node.name for node in nodes if node.name not in by_name]
    if unknown:
        yield Problem(
            "group_unknown",
            WARNING,
            "The group of %s is not known, so the entry has the device without its group." % ", ".join(unknown),
            "Ask for the group's entry (%sM) beside the device, or pass groups." % profile.group_prefix,
            profile.name,
        )
    for node in nodes:
        if node.name in by_name and by_name[node.name] not in numbers:
            yield Problem(
                "group_node_missing",
                WARNING,
                "%s is in group %d, but the node %s%d does not exist."
                % (node.name, by_name[node.name], profile.group_prefix, by_name[node.name]),
                "Create the group again with the management tool, or reload the driver.",
                profile.name,
            )


def _node(node: Node, name: str | None = None) -> dict[str, t.Any]:
    return {"path": "/dev/" + (name or node.name), "hostPath": node.path, "permissions": PERMISSIONS}


def _assemble(
    profile: VendorProfile,
    options: CdiOptions,
    nodes: t.Sequence[Node],
    groups: t.Sequence[Node],
    by_name: t.Mapping[str, int],
    edits: dict[str, t.Any],
) -> dict[str, t.Any]:
    entries: list[tuple[str, dict[str, t.Any]]] = []
    if options.form == KUBERNETES:
        entries = [(ALL, edits), (RUNTIME, edits)]
    elif options.form == STORAGE:
        entries = [(node.name, {"deviceNodes": [_node(node)]}) for node in nodes]
        entries.append((ALL, {"deviceNodes": [_node(node) for node in nodes]}))
    else:
        inside = profile.group_prefix + "0"
        by_number = {group.number: group for group in groups}
        for node in nodes:
            group = by_number.get(by_name.get(node.name, -1))
            entries.append(
                (str(node.number), {"deviceNodes": [_node(node)] + ([_node(group, inside)] if group else [])})
            )
        for group in groups:
            entries.append((group.name, {"deviceNodes": [_node(group, inside)]}))
        used = {by_name.get(node.name) for node in nodes}
        only = by_number.get(next(iter(used)) or 0) if len(used) == 1 and None not in used else None
        shared = [_node(only, inside)] if only else [_node(group) for group in groups]
        everything = {"deviceNodes": [_node(node) for node in nodes] + shared}
        entries += [(ALL, everything), (RUNTIME, everything)]
    spec: dict[str, t.Any] = {
        "cdiVersion": "",
        "kind": options.kind or (profile.cdi_storage_kind if options.form == STORAGE else profile.cdi_kind),
        "devices": [{"name": name, "containerEdits": content} for name, content in entries],
    }
    if options.form == STANDALONE and edits:
        spec["containerEdits"] = edits
    spec["cdiVersion"] = minimum_version(spec)
    return spec


def _common(
    profile: VendorProfile,
    host: Host,
    options: CdiOptions,
    found: Found,
    driver_root: str,
    warnings: list[Problem],
    conflicts: list[dict[str, t.Any]],
) -> dict[str, t.Any]:
    """What every entry needs: mounts, and hooks or what takes their place."""
    mode = list(MOUNT_OPTIONS)
    context = _selinux(host, options)
    if context:
        mode.append(context)

    def mount(source: str, target: str) -> dict[str, t.Any]:
        return {"hostPath": source, "containerPath": target, "options": list(mode)}

    mounts: list[dict[str, t.Any]] = []
    links: list[tuple[str, str]] = []
    link_sources: dict[str, str] = {}
    taken: dict[str, str] = {}
    folders: set[str] = set()
    # What programs ask for, and the file in the container that they get.
    names: dict[str, str] = {}
    for library in found.libraries:
        source = _below(driver_root, library.path)
        target = _inside(options, library, library.target)
        if target in taken:
            conflicts.append(
                {"kind": "name", "name": target, "paths": [taken[target], source], "chosen": taken[target]}
            )
            warnings.append(
                Problem(
                    "library_name_taken",
                    WARNING,
                    "%s is left out: %s is already %s." % (source, target, taken[target]),
                    "Remove one of the two or unset container_library_path.",
                    profile.name,
                )
            )
            continue
        taken[target] = source
        mounts.append(mount(source, target))
        folders.add(posixpath.dirname(target))
        names.setdefault(posixpath.basename(target), target)
        for text, link in library.links:
            place = _inside(options, library, link)
            if place in taken or place in link_sources:
                continue
            links.append((_link_text(text, target, place), place))
            link_sources[place] = source
            folders.add(posixpath.dirname(place))
            names.setdefault(posixpath.basename(place), place)
        if library.soname and "/" not in library.soname:
            names.setdefault(library.soname, target)
    edits: dict[str, t.Any] = {}
    program = _hook_program(profile, host, options, sorted(folders), warnings) if folders else ""
    if program and program != profile.host_tool:
        edits["hooks"] = _vendor_hooks(profile, options, program, links, sorted(folders))
    else:
        mounts.extend(mount(link_sources[place], place) for _text, place in links)
    if program == profile.host_tool:
        edits["hooks"] = [_own_hook(options, program, names, sorted(folders))]
    if folders and options.hooks == "off":
        edits["env"] = ["LD_LIBRARY_PATH=" + ":".join(sorted(folders))]
    for path, target in found.tools:
        mounts.append(mount(_below(driver_root, path), target))
    for path in options.extra_mounts:
        clean = posixpath.normpath(path)
        if not host.exists(_below(driver_root, clean)):
            raise NpuError(
                "The extra mount %s does not exist." % _below(driver_root, clean),
                "Create it or remove it from extra_mounts.",
            )
        mounts.append(mount(_below(driver_root, clean), clean))
    if mounts:
        edits["mounts"] = mounts
    return edits


def _below(driver_root: str, path: str) -> str:
    return path if driver_root == "/" else driver_root + path


def _inside(options: CdiOptions, library: Library, path: str) -> str:
    """The path in the container: the one below the driver root, or by name below the isolation path."""
    if not options.container_library_path:
        return path
    parts = [posixpath.normpath(options.container_library_path)]
    if library.plugin_dir:
        parts.append(posixpath.basename(library.plugin_dir))
    return posixpath.join(*(parts + [posixpath.basename(path)]))


def _link_text(text: str, target: str, place: str) -> str:
    """What the link at `place` says: a bare name beside its file, else the file's path in the container."""
    if not text.startswith("/"):
        return text
    return posixpath.basename(target) if posixpath.dirname(target) == posixpath.dirname(place) else target


def _selinux(host: Host, options: CdiOptions) -> str:
    if options.selinux_context == "auto":
        return "z" if host.exists("/sys/fs/selinux/enforce") else ""
    return "" if options.selinux_context == "none" else options.selinux_context


def _hook_program(
    profile: VendorProfile, host: Host, options: CdiOptions, folders: t.Sequence[str], warnings: list[Problem]
) -> str:
    """The program that names the libraries to the loader of a container, or nothing; NpuError when it has to be."""
    if options.hooks == "off":
        return ""
    path = options.hook_path or profile.hook_path
    reason = _not_own_hook(profile, host, options)
    if path != profile.host_tool:
        seen = host.stat(path)
        if seen.ok and seen.value.kind == "file" and seen.value.mode & 0o111:
            return path
        if reason:
            reason = "%s: %s; %s" % (path, seen.detail if not seen.ok else "it is not an executable file", reason)
    if not reason:
        return profile.host_tool
    if options.hooks == "on":
        raise NpuError(
            "The CDI hook %s cannot be used (%s). Every container with this specification would fail to start."
            % (path, reason),
            "Install the host tool or the container toolkit that brings the hook, or set hooks to auto or off.",
        )
    warnings.append(
        Problem(
            "hook_missing",
            WARNING,
            "There is no CDI hook (%s), so a container finds the libraries only where its loader looks into %s."
            % (reason, ", ".join(folders)),
            "Install the host tool. Where no image sets LD_LIBRARY_PATH, hooks off is enough: it sets that variable.",
            profile.name,
        )
    )
    return ""


def _not_own_hook(profile: VendorProfile, host: Host, options: CdiOptions) -> str:
    """Why the host tool cannot be the hook; empty when it can."""
    machine = options.machine or os.uname().machine
    if machine not in CACHE_FLAGS:
        return "the loader cache of %s is not known" % machine
    if options.host_tool is False:
        return "the host tool is not wanted"
    seen = host.stat(profile.host_tool)
    there = seen.ok and seen.value.kind == "file" and seen.value.mode & 0o111
    if not there and not options.host_tool:
        return "%s is not installed" % profile.host_tool
    flags = mount_flags(host, TOOL_MOUNT)
    for flag, word in NO_TOOL[:1] if there else NO_TOOL:
        if flags & flag:
            return "%s is mounted %s, so the host tool cannot be %s" % (TOOL_MOUNT, word, "run" if there else "placed")
    if not there:
        return choose_interpreter(host, sys.executable if host.root == "/" else "")[1]
    line = host.read_head(profile.host_tool, SHEBANG).get(b"").partition(b"\n")[0].decode("utf-8", "replace")
    return unfit_interpreter(Guard(host), line[2:].strip() if line.startswith("#!") else "")


def _hook(options: CdiOptions, path: str, args: t.Sequence[str], env: t.Sequence[str] = ()) -> dict[str, t.Any]:
    item: dict[str, t.Any] = {"hookName": "createContainer"}
    if options.legacy_hookname:
        item["hookname"] = "createContainer"
    # Without an environment of its own a hook gets that of the container: the LD_PRELOAD of an image, as root.
    item.update({"path": path, "args": list(args), "env": [HOOK_PATH, *env]})
    return item


def _own_hook(
    options: CdiOptions, program: str, names: t.Mapping[str, str], folders: t.Sequence[str]
) -> dict[str, t.Any]:
    flags = CACHE_FLAGS[options.machine or os.uname().machine]
    args = [posixpath.basename(program), HOOK_COMMAND, "--flags", str(flags)]
    for folder in folders:
        args += ["--folder", folder]
    for name, path in names.items():
        args += ["--library", "%s=%s" % (name, path)]
    return _hook(options, program, args)


def _vendor_hooks(
    profile: VendorProfile,
    options: CdiOptions,
    path: str,
    links: t.Sequence[tuple[str, str]],
    folders: t.Sequence[str],
) -> list[dict[str, t.Any]]:
    name = posixpath.basename(path)
    hooks = []
    if links:
        args = [name, "create-symlinks"]
        for text, place in links:
            args += ["--link", "%s::%s" % (text, place)]
        hooks.append(_hook(options, path, args))
    args = [name, "update-ldcache"]
    for folder in folders:
        args += ["--folder", folder]
    env = [
        profile.hook_env_prefix + "LDCONFIG_PATH=" + options.ldconfig_path,
        profile.hook_env_prefix + "DEBUG=false",
    ]
    hooks.append(_hook(options, path, args, env))
    return hooks
