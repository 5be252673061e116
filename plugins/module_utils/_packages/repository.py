# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of the driver on a host: written with its key, unless a source of the host has it already.

Two sources of one repository with different keys make apt refuse every source of the host.
"""

from __future__ import annotations

import re
import typing as t

from .._base.model import NpuError
from .._host.files import remove_file, write_bytes
from .._host.host import ABSENT, Host, Limit
from .._host.os import read_arch, read_os
from .apt_sources import Source, normal_uri, read_sources, same_source
from .base import PackageManager
from .keys import Certificate, armoured, certificates, clean_fingerprint
from .pins import DNF_CONFIG, MAIN, NO, parse_ini, words

# For AnsibleModule; the documentation of the module explains them.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "url": {"type": "str", "required": True},
    # A path or an address, and on its way to the host the key itself. It is public.
    "key": {"type": "str", "required": True, "no_log": False},
    "fingerprint": {"type": "list", "elements": "str", "default": []},
    "suite": {"type": "str", "default": "stable"},
    "components": {"type": "list", "elements": "str", "default": ["main"]},
    "ca_path": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}
# Reads every source and no network.
APT_LOOK = ("apt-get", "indextargets", "--format", "$(URI)")
TRUSTED = ("/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d")
REPO_FOLDER = "/etc/yum.repos.d"
MODE = 0o644
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
UNTRUSTED = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")
DEB = """\
# Managed by Ansible
Types: deb
URIs: %s
Suites: %s
%sSigned-By: %s
"""
RPM = """\
# Managed by Ansible
[%s]
name=Driver of the NPUs
baseurl=%s
enabled=1
gpgcheck=1
gpgkey=file://%s
"""


class Wanted(t.NamedTuple):
    """A repository and the keys that sign it; suite and components are of deb alone."""

    url: str
    suite: str
    components: t.Sequence[str]
    keys: t.Sequence[Certificate]

    @property
    def prints(self) -> set[str]:
        return {item.fingerprints[0] for item in self.keys}


class Placed(t.NamedTuple):
    """The file of the source in use, whether it is the host's own, and what was done, or would be."""

    # Not `path`: Ansible adds owner and mode to a result that has one.
    source: str
    adopted: bool
    changes: list[str]


def place(manager: PackageManager, wanted: Wanted, check: bool) -> Placed:
    """Make sure that the host has the repository; with `check` only say what would be done.

    NpuError before any change names the file and line of a source that is in the way, or cannot be read. When the
    sources cannot be read afterwards, all files are as before.
    """
    host, deb = manager.host, manager.format == "deb"
    adopted = _adopted_deb(host, manager.own_file, wanted) if deb else _adopted_rpm(host, manager, wanted)
    text = (
        None if adopted else _deb(manager, wanted) if deb else RPM % (manager.own_source, wanted.url, manager.own_key)
    )
    # Alone, the key says that the repository is used: see Apt. A source is placed after its key.
    files = {manager.own_key: armoured(wanted.keys, deb), manager.own_file: text}
    todo = [path for path, content in files.items() if _differs(host, path, content)]
    changes = ["%s %s" % ("remove" if files[path] is None else "write", path) for path in todo]
    if todo and not check:
        before = {path: host.read_bytes(path, Limit.NOTE).get() for path in todo}
        if deb and not host.exists(manager.own_file):
            manager.ask(APT_LOOK)
        _write(host, {path: files[path] for path in todo})
        try:
            if deb:
                manager.ask(APT_LOOK)
        except NpuError as exc:
            for path, content in before.items():
                _put(host, path, content)
            raise NpuError("%s The sources of the host are as before." % exc.message, exc.next_step) from exc
    return Placed(adopted or manager.own_file, bool(adopted), changes)


def _differs(host: Host, path: str, content: str | None) -> bool:
    info = host.stat(path, follow=False)
    if content is None:
        return info.state != ABSENT
    there = info.ok and info.value.kind == "file" and info.value.mode == MODE
    return not there or host.read_bytes(path, Limit.NOTE).get() != content.encode("utf-8")


def _write(host: Host, files: t.Mapping[str, str | None]) -> None:
    for path, content in files.items():
        _put(host, path, None if content is None else content.encode("utf-8"))


def _put(host: Host, path: str, content: bytes | None) -> None:
    if content is None:
        remove_file(host, path)
    else:
        write_bytes(host, path, content, MODE)


def _deb(manager: PackageManager, wanted: Wanted) -> str:
    # A flat repository, whose suite is a path such as ./, has no components, and apt refuses them there.
    flat = wanted.suite.endswith("/") or not wanted.components
    components = "" if flat else "Components: %s\n" % " ".join(wanted.components)
    return DEB % (wanted.url, wanted.suite, components, manager.own_key)


def _stop(place_of: str, what: str, remedy: str) -> NpuError:
    return NpuError("%s has this repository %s." % (place_of, what), "%s; nothing was changed." % remedy)


def _adopted_deb(host: Host, own: str, wanted: Wanted) -> str:
    """The file of a source of the host that serves as well; empty when there is none. NpuError for one in the way."""
    found = [item for item in same_source(read_sources(host), wanted.url, wanted.suite) if item.path != own]
    if not found:
        return ""
    careless = [item for item in found if item.says_yes(*UNTRUSTED)]
    if careless:
        raise _stop(careless[0].place, "and takes unsigned packages from it", "Remove that option, or that source")
    first, arch = found[0], ARCHITECTURES.get(read_arch(host) or "", "")
    useful = [
        item
        for item in found
        if "deb" in item.kinds and (not item.options.get("arch") or arch in re.split(r"[\s,]+", item.options["arch"]))
    ]
    if not useful:
        raise _stop(first.place, "without packages for this host", "Add deb and its architecture there, or remove it")
    there = {name for item in useful for name in item.components}
    lacking = [] if wanted.suite.endswith("/") else [name for name in wanted.components if name not in there]
    if lacking:
        raise _stop(first.place, "without the component %s" % ", ".join(lacking), "Add it there, or remove that source")
    for item in useful:
        prints = _apt_keys(host, item)
        if not prints & wanted.prints:
            raise _stop(
                item.place,
                "with another key (%s) than %s" % (", ".join(sorted(prints)) or "none found", ", ".join(wanted.prints)),
                "Remove that source, or set the key that it has",
            )
    return first.path


def _apt_keys(host: Host, source: Source) -> set[str]:
    """Fingerprints of the keys that apt accepts for a source."""
    given = source.options.get("signed-by", "")
    if "-----BEGIN" in given:
        lines = ["" if line == "." else line for line in given.splitlines()]
        return _prints("\n".join(lines).encode("utf-8"))
    found: set[str] = set()
    for word in re.split(r"[\s,]+", given) if given else [TRUSTED[0], *host.glob(TRUSTED[1], "*.[ag][sp][cg]")]:
        if word.startswith("/"):
            found |= _prints(host.read_bytes(word, Limit.NOTE).get(b""))
        elif word:
            found |= {clean_fingerprint(word)}
    return found


def _prints(data: bytes) -> set[str]:
    """Fingerprints of the keys and subkeys of a file; none when it is something else."""
    try:
        return {text for item in certificates(data, "") for text in item.fingerprints}
    except NpuError:
        return set()


def _adopted_rpm(host: Host, manager: PackageManager, wanted: Wanted) -> str:
    """As _adopted_deb(). dnf takes a repository twice, so one with other keys is not in the way."""
    system, _probe = read_os(host)
    names = {"$basearch": system["arch"] or "", "$releasever": (system["version_id"] or "").partition(".")[0]}

    def plain(url: str) -> str:
        for name, value in names.items():
            url = url.replace(name, value)
        return normal_uri(url)

    adopted = ""
    checked = {item.name: item.value for item in parse_ini(host.read_text(DNF_CONFIG).get("")) if item.section == MAIN}
    for path in host.glob(REPO_FOLDER, "*.repo"):
        repositories: dict[str, dict[str, str]] = {}
        lines: dict[str, int] = {}
        for item in parse_ini(host.read_text(path).get("")):
            repositories.setdefault(item.section, {})[item.name] = item.value
            lines.setdefault(item.section, item.line - 1)
        for name, options in repositories.items():
            where = "%s line %d ([%s])" % (path, lines[name], name)
            if path == manager.own_file:
                continue
            if name == manager.own_source:
                raise NpuError("%s has the name of the repository of the driver." % where, "Rename or remove it.")
            same = plain(wanted.url) in [plain(url) for url in words(options.get("baseurl", ""))]
            if not same or options.get("enabled", "1").lower() in NO:
                continue
            if options.get("gpgcheck", checked.get("gpgcheck", "0")).lower() in NO:
                raise _stop(where, "and takes unsigned packages from it", "Set gpgcheck=1 there, or remove it")
            local = [url[len("file://") :] for url in words(options.get("gpgkey", "")) if url.startswith("file:///")]
            if any(_prints(host.read_bytes(key, Limit.NOTE).get(b"")) & wanted.prints for key in local):
                adopted = adopted or path
    return adopted
