# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of apt on a host, in both formats, as apt reads them. Pure, but for reading the files."""

from __future__ import annotations

import posixpath
import re
import typing as t
from urllib.parse import urlsplit

from .._base.model import NpuError
from .._host.host import ABSENT, Host
from .pins import paragraphs

SOURCE_LIST = "/etc/apt/sources.list"
SOURCE_PARTS = "/etc/apt/sources.list.d"
# apt ignores files with other names.
PART_NAME = re.compile(r"^[A-Za-z0-9_.-]+\.(?:list|sources)$")
NO = ("no", "false", "without", "off", "disable", "0")
YES = ("yes", "true", "with", "on", "enable", "1")
PORTS = {"http": ":80", "https": ":443"}


class Source(t.NamedTuple):
    """One address and suite of a source. `options` have lower-case names; the values are as written."""

    path: str
    line: int
    kinds: tuple[str, ...]
    uri: str
    suite: str
    components: tuple[str, ...]
    options: t.Mapping[str, str]

    @property
    def place(self) -> str:
        return "%s line %d" % (self.path, self.line)

    def says_yes(self, *names: str) -> bool:
        return any(self.options.get(name, "").strip().lower() in YES for name in names)


def normal_uri(uri: str) -> str:
    """An address without what makes no difference: case of the host, its usual port, double and last slashes."""
    try:
        parts = urlsplit(uri.strip())
    except ValueError:
        return uri
    host = parts.netloc.rpartition("@")[2].lower()
    usual = PORTS.get(parts.scheme.lower(), "")
    if usual and host.endswith(usual):
        host = host[: -len(usual)]
    return "%s://%s%s" % (parts.scheme.lower(), host, re.sub(r"/+", "/", parts.path.rstrip("/") + "/"))


def normal_suite(suite: str) -> str:
    """`./` and `/` are the same flat repository."""
    return re.sub(r"^(\./)+", "", suite) or "/"


def parse_list(text: str, path: str) -> list[Source]:
    """Entries of a file in the one-line format: `deb [option=value ...] URI suite component...`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"^\s*(deb(?:-src)?)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*(.*)$", line.partition("#")[0])
        if not match:
            continue
        kind, given, uri, suite, rest = match.groups()
        options = {
            name.lower(): value.strip('"') for name, value in re.findall(r"([A-Za-z-]+)\s*[+-]?=\s*(\S+)", given or "")
        }
        found.append(Source(path, number, (kind,), uri, suite, tuple(rest.split()), options))
    return found


def parse_sources(text: str, path: str) -> list[Source]:
    """Enabled entries of a file in the deb822 format, one for each address and suite."""
    found = []
    for start, fields in paragraphs(text):
        if fields.get("enabled", "yes").lower() not in NO:
            options = {key: value for key, value in fields.items() if key not in ("types", "uris", "suites")}
            if "architectures" in options:
                options["arch"] = ",".join(options["architectures"].split())
            kinds, components = tuple(fields.get("types", "").split()), tuple(fields.get("components", "").split())
            found += [
                Source(path, start, kinds, uri, suite, components, options)
                for uri in fields.get("uris", "").split()
                for suite in fields.get("suites", "").split()
            ]
    return found


def read_sources(host: Host) -> list[Source]:
    """All enabled sources of the host. Directories do not count, as for apt. NpuError for an unreadable file."""
    names = host.listdir(SOURCE_PARTS).get([])
    paths = [SOURCE_LIST, *(posixpath.join(SOURCE_PARTS, name) for name in names if PART_NAME.match(name))]
    found = []
    for path in paths:
        text = host.read_text(path)
        if text.ok:
            found += (parse_sources if path.endswith(".sources") else parse_list)(text.value, path)
        elif text.state != ABSENT and getattr(host.stat(path).get(), "kind", "") != "dir":
            raise NpuError("%s cannot be read: %s." % (path, text.detail), "Run as root (become).")
    return found


def same_source(sources: t.Sequence[Source], uri: str, suite: str) -> list[Source]:
    """Those of the same address and suite, whatever their spelling."""
    wanted = normal_uri(uri), normal_suite(suite)
    return [item for item in sources if (normal_uri(item.uri), normal_suite(item.suite)) == wanted]


CONFLICT = re.compile(r"Conflicting values set for option (\S+) regarding source (\S+) (\S+?):?(?:\s|$)")


def conflicting(host: Host, said: str) -> str:
    """The files of the sources that apt calls conflicting, each with its line; empty when these are not known."""
    match = CONFLICT.search(said)
    if not match:
        return ""
    found = same_source(read_sources(host), match.group(2), match.group(3))
    return " and ".join(item.place for item in found) if len(found) > 1 else ""
