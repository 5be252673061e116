# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a package as it is: holds of dpkg, priorities of apt, excludes and version locks of dnf. Runs nothing."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from .._base.regex import regex
from .._host.host import ABSENT, Host, Limit, Probe
from .installed import DPKG_STATUS

HOLD, PREFERENCES, EXCLUDE, VERSIONLOCK = "hold", "preferences", "exclude", "versionlock"
PREFERENCES_FILE, PREFERENCES_PARTS = "/etc/apt/preferences", "/etc/apt/preferences.d"
# apt ignores files with other names.
PART_NAME = regex(r"^[A-Za-z0-9_-]+(?:\.pref)?$")
# The priority of an ordinary version.
USUAL = 500
DNF_CONFIG = "/etc/dnf/dnf.conf"
DNF_FOLDERS = (("/etc/dnf/libdnf5.conf.d", "*.conf"), ("/etc/yum.repos.d", "*.repo"))
# (configuration of the plugin, its list); yum's are read by dnf too.
VERSION_LOCKS = (
    ("/etc/dnf/plugins/versionlock.conf", "/etc/dnf/plugins/versionlock.list"),
    ("/etc/yum/pluginconf.d/versionlock.conf", "/etc/yum/pluginconf.d/versionlock.list"),
)
VERSION_LOCK_TOML = "/etc/dnf/versionlock.toml"
MAIN = "main"
NO = ("0", "no", "false", "off")


class Pin(t.NamedTuple):
    """`package` is a name or a shell pattern, `line` 0 where lines tell nothing.

    `repository` is empty when the pin is for the whole host.
    """

    package: str
    by: str
    path: str
    line: int = 0
    repository: str = ""

    @property
    def place(self) -> str:
        return "%s%s" % (self.path, " line %d" % self.line if self.line else "")


class Option(t.NamedTuple):
    """One option of an ini file; a value may have several lines."""

    section: str
    name: str
    value: str
    line: int


def parse_ini(text: str) -> list[Option]:
    """Options of dnf.conf or a .repo file, names in lower case, in the order of the file."""
    found: list[Option] = []
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"^\[([^\]]+)\]", line)
        pair = re.match(r"^([A-Za-z0-9_.-]+)\s*[=:]\s*(.*)$", line)
        if head:
            section = head.group(1).strip()
        elif line[:1] in " \t" and line.strip() and found and found[-1].section == section:
            found[-1] = found[-1]._replace(value="%s\n%s" % (found[-1].value, line.strip()))
        elif pair:
            found.append(Option(section, pair.group(1).lower(), pair.group(2).strip(), number))
    return found


def words(value: str) -> list[str]:
    """The words of a list in an ini file, which may be separated by commas, spaces and lines."""
    return [word for word in re.split(r"[\s,]+", value) if word]


def excludes(text: str, path: str) -> list[Pin]:
    """exclude= and excludepkgs= of dnf.conf or a .repo file; those of disabled repositories do nothing."""
    options = parse_ini(text)
    off = {item.section for item in options if item.name == "enabled" and item.value.lower() in NO}
    return [
        Pin(word, EXCLUDE, path, item.line, "" if item.section == MAIN else item.section)
        for item in options
        if item.name in ("exclude", "excludepkgs") and item.section not in off
        for word in words(item.value)
    ]


LOCK = regex(r"^(?:[0-9]+:)?([^#!\s]\S*?)-(?:[0-9*]+:)?[0-9][^-\s]*(?:-[^-\s]+)?$")


def version_locks(text: str, path: str) -> list[Pin]:
    """Names in the list of the versionlock plugin: `kernel-core-0:5.14.0-1.el9.*`, or `0:kernel-5.14.0-1.*` of yum.

    A line with ! excludes one version only, and a line without a version locks nothing.
    """
    found = [(number, LOCK.match(line.strip())) for number, line in enumerate(text.splitlines(), 1)]
    return [Pin(match.group(1), VERSIONLOCK, path, number) for number, match in found if match]


def toml_locks(text: str, path: str) -> list[Pin]:
    """Names in versionlock.toml of dnf 5; a package with only != conditions lacks some versions, and is not locked."""
    found = []
    for block in re.split(r"^\s*\[\[packages\]\]\s*$", text, flags=re.M)[1:]:
        name = re.search(r"^\s*name\s*=\s*[\"']([^\"']+)", block, re.M)
        signs = re.findall(r"^\s*comparator\s*=\s*[\"']([^\"']+)", block, re.M)
        if name and (not signs or any(sign != "!=" for sign in signs)):
            found.append(Pin(name.group(1), VERSIONLOCK, path))
    return found


def paragraphs(text: str) -> t.Iterator[tuple[int, dict[str, str]]]:
    """(first line, fields) of each paragraph of a file of apt: names in lower case, lines of a value as they are.

    Unlike the control files of packages, these have comments, and what is no field is passed over.
    """
    fields: dict[str, str] = {}
    start, last = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            name, colon, value = line.partition(":")
            if line[0] in " \t" and last:
                fields[last] += "\n" + line.strip()
            elif colon:
                start = start or number
                last = name.strip().lower()
                fields[last] = value.strip()
            continue
        if fields:
            yield start, fields
        fields, start, last = {}, 0, ""


def preferences(text: str, path: str) -> list[Pin]:
    """Packages that a file of apt_preferences(5) forbids, or keeps at a version.

    `repository` is what the pin names where it is not for every version.
    """
    found = []
    for start, fields in paragraphs(text):
        priority = re.match(r"^[+-]?[0-9]+", fields.get("pin-priority", ""))
        level = int(priority.group()) if priority else 0
        pin = " ".join(fields.get("pin", "").split())
        # apt picks a version by this before the newest one.
        chosen = pin.lower().startswith("version ") and level > USUAL
        if level < 0 or chosen:
            some = "" if chosen or pin.lower() in ("release *", "version *", "origin *") else pin
            found += [Pin(word, PREFERENCES, path, start, some) for word in fields.get("package", "").split()]
    return found


def dpkg_holds(text: str, path: str) -> list[Pin]:
    """Packages that dpkg holds (apt-mark hold)."""
    names = (
        re.findall(r"^Package: *(\S+)\n(?:(?!Package:|\n).*\n)*?Status: *hold ", text, re.M)
        if "\nStatus: hold " in text
        else []
    )
    return [Pin(name, HOLD, path) for name in names]


class _Reader:
    """Reads files of one host; remembers the first that cannot be read."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.found: list[Pin] = []
        self.probe = Probe("value")

    def read(self, path: str, parse: t.Callable[[str, str], list[Pin]], limit: int = Limit.CONFIG) -> None:
        text = self.host.read_text(path, limit)
        if text.ok:
            self.found += parse(text.value, path)
        elif self.probe.ok and (text.state != ABSENT or path == DPKG_STATUS):
            self.probe = text


def _lock_list(host: Host, config: str, usual: str) -> str:
    """The list of the plugin, empty when its configuration turns it off."""
    options = {item.name: item.value for item in parse_ini(host.read_text(config).get(""))}
    return "" if options.get("enabled", "1").lower() in NO else options.get("locklist") or usual


def read_pins(host: Host, package_format: str) -> tuple[list[Pin] | None, Probe]:
    """Every pin of a host, sorted, and the probe; None when a file cannot be read."""
    reader = _Reader(host)
    if package_format == "deb":
        reader.read(DPKG_STATUS, dpkg_holds, Limit.BULK)
        reader.read(PREFERENCES_FILE, preferences)
        for name in host.listdir(PREFERENCES_PARTS).get([]):
            path = "%s/%s" % (PREFERENCES_PARTS, name)
            # apt passes over directories.
            if PART_NAME.match(name) and getattr(host.stat(path).get(), "kind", "") != "dir":
                reader.read(path, preferences)
    elif package_format == "rpm":
        reader.read(DNF_CONFIG, excludes)
        for folder, pattern in DNF_FOLDERS:
            for path in host.glob(folder, pattern):
                reader.read(path, excludes)
        lists = {host.resolve(path).get(path) for path in (_lock_list(host, *pair) for pair in VERSION_LOCKS) if path}
        for path in sorted(lists):
            reader.read(path, version_locks)
        reader.read(VERSION_LOCK_TOML, toml_locks)
    return (sorted(reader.found) if reader.probe.ok else None), reader.probe


def holds(pins: t.Sequence[Pin]) -> list[str]:
    """Sorted names and patterns that are pinned for the whole host."""
    return sorted({pin.package for pin in pins if not pin.repository})


def is_pinned(package: str, patterns: t.Iterable[str]) -> bool:
    """Whether a name, or a name with its version as a package manager takes it, fits one of the patterns."""
    whole = package.partition("=")[0]
    names = {whole, re.sub(r"-[0-9][^-]*-[^-]+$", "", whole), whole.partition(":")[0]}
    plain = [re.sub(r"\.(?:x86_64|aarch64|noarch|\*)$", "", pattern) for pattern in patterns]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in plain)
