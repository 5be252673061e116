# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of dnf 4 and dnf 5: transaction table, locks, and a remedy for each error."""

from __future__ import annotations

import re

from .._base.records import replace
from .changes import DOWNGRADE, INSTALL, REINSTALL, REMOVE, UPGRADE, Change

SCRIPT_FAILED = "Read what the script of the package said; a driver's build log is below /var/lib/dkms."
EXCLUDED = re.compile(r"filtered out by exclude|matches only excluded packages")
UNLOCK = "Unhold the package (dnf versionlock list, dnf versionlock delete NAME)."
UNEXCLUDE = "Remove the package from exclude= or excludepkgs=, or add it to includepkgs=, in %s."
REMEDIES = (
    (
        r"No space left on device|needs [0-9.]+ ?[KMG]i?B more space|At least [0-9.]+ ?[KMG]B more space needed",
        "Make room on the file systems of /, /usr, /var and /boot (df -h; df -i for inodes), and run again.",
    ),
    (
        r"Waiting for process with pid|can't create transaction lock|Failed to obtain (the )?.*lock|already locked",
        "Wait until that program ends and run again.",
    ),
    (r"excluded by versionlock", UNLOCK),
    # The plugin versionlock filters too: Dnf.failure() finds out which of both it was.
    (EXCLUDED.pattern, UNEXCLUDE % ("/etc/dnf/dnf.conf, /etc/yum.repos.d",)),
    (
        r"filtered out by modular",
        "Enable the module stream that has the package, or reset it (dnf module reset NAME).",
    ),
    (
        r"no enabled repositories|no repositories enabled|(?s:not registered with an entitlement.*"
        r"(?:Unable to find a match|No match for argument))|not receiving updates",
        "Register the host (subscription-manager register), or configure a repository, or use the offline bundle.",
    ),
    (
        r"Status code: 403 for \S+(?:cdn\.redhat\.com|/pulp/)|/etc/pki/entitlement",
        "Renew the subscription of the host (subscription-manager refresh), or use the offline bundle.",
    ),
    (
        r"No URLs in mirrorlist|mirrorlist\.centos\.org|Status code: 404 for \S+/repodata/repomd\.xml",
        "Correct the address of this repository: it is not served there. Packages of old releases are in the vault of "
        "the distribution (such as vault.centos.org), or on an internal mirror of it.",
    ),
    (
        r"(?:Unable to find a match|No match for argument): (?:.* )?kernel(?:-\S+)?-(?:devel|headers)-[0-9]",
        "Enable the repository of this kernel's minor release (EUS of RHEL, the vault of a rebuild), or boot the "
        "newest kernel, or use the offline bundle: the enabled repositories do not have the headers of this kernel.",
    ),
    (
        r"conflicts with|obsoletes \S+ .*provided by",
        "List all packages that must change together, each with its version, and those to remove.",
    ),
    (
        r"Unable to find a match|No match for argument|No package \S+ available|"
        r"No packages to (download|install)|nothing provides",
        "Check the name and the version in the repositories of the host (dnf repoquery NAME); dkms comes from EPEL.",
    ),
    (
        r"Policy rejected|Policy rejects|policy violation|is not considered secure",
        "Get the present key of this repository from its owner: this system accepts no signatures by SHA-1 any more.",
    ),
    # dnf calls it a download that failed.
    (
        r"GPG signature verification error",
        "Correct gpgkey of this repository (its owner may have a new key), or clear the cache of the proxy.",
    ),
    (
        r"Failed to download metadata|Could(n't| not) resolve host|Curl error|Cannot download|Status code: [45]|"
        r"Errors during downloading",
        "Check that the host reaches its mirrors: name resolution, proxy, firewall, internal mirror.",
    ),
    (
        r"GPG check FAILED|GPG key|is not signed|Public key .* is not installed|OpenPGP",
        "Install the key of the repository, or correct gpgkey of its definition.",
    ),
    (
        r"conflicting requests|Problem:|broken dependency",
        "List all packages that must change together, each with its version.",
    ),
    (
        r"not an rpm package|does not verify|digest: BAD|cannot be opened|Could not open|read failed",
        "Transfer the file again: it is damaged or not a package.",
    ),
    (
        r"No such command: versionlock|Unknown argument \"versionlock\"",
        "Install the package python3-dnf-plugin-versionlock, or turn hold off.",
    ),
    (r"No such command: download|Unknown argument \"download\"", "Install the package dnf-plugins-core."),
    (r"scriptlet failed|Error in .*scriptlet", SCRIPT_FAILED),
)
# The lists lack a package or a version, or are outdated.
NOT_THERE = re.compile(r"Status code: 404")
MISSING = re.compile(
    r"Unable to find a match|No match for argument|No package \S+ available|nothing provides|" + NOT_THERE.pattern
)
# The last is the progress of dnf 5, which knows a repository by its name there; that of a mirror alone is no loss.
UNREACHED = re.compile(
    r"metadata .*for repo(?:sitory)? ['\"]([^'\"]+)['\"]|^Ignoring repositories: (.+)$"
    r"|^ (?!\[)(\S.{0,99}?) {1,99}[0-9?]{1,3}% \|.*"
    r"(?=(?:\n>>> .*)*\n>>> (?!Curl error|Status code).*(?:\n(?!>>> )|\Z))",
    re.MULTILINE,
)
ACTS = {
    "Installing": INSTALL,
    "Upgrading": UPGRADE,
    "Downgrading": DOWNGRADE,
    "Removing": REMOVE,
    "Reinstalling": REINSTALL,
}
HEADING = re.compile(r"^(Installing|Upgrading|Downgrading|Reinstalling|Removing)\b[^:]*:\s*$")
REPLACING = re.compile(r"^\s+replacing\s+(\S+)")
LOCKED = re.compile(r"^(!?)(.+)-(?:[0-9]+:)?[^-\s]+-[^-\s]+$")


def parse_transaction(text: str) -> list[Change]:
    """Changes in the table of dnf 4 or dnf 5: rows `name arch version repository size` below headings.

    The old version is shown only for removals, and for replaced packages in dnf 5. An obsoleted package is a removal.
    """
    changes: list[Change] = []
    act = ""
    begun: list[str] = []
    for line in text.splitlines():
        if line.startswith("Transaction Summary"):
            break
        heading = HEADING.match(line)
        if heading:
            act, begun = ACTS[heading.group(1)], []
        elif line.strip() and not line.startswith(" "):
            act = ""
        elif act and REPLACING.match(line):
            _replaced(changes, line)
        elif act and line.strip():
            # A row begins after one space; text too long for its column continues in the next line, indented more.
            begun = line.split() if not line.startswith("  ") else begun + line.split() if begun else []
            if len(begun) >= 3:
                name, _architecture, version = begun[:3]
                version = _evr(version)
                begun = []
                changes.append(
                    Change(act, name, version if act == REMOVE else None, None if act == REMOVE else version)
                )
    return changes


def _evr(text: str) -> str:
    """A version as rpm and dnf 4 write it: dnf 5 also writes an epoch of 0."""
    return re.sub(r"^0:", "", text)


def _replaced(changes: list[Change], line: str) -> None:
    words = line.split()[1:]
    name = words[0]
    if len(words) > 3:
        version: str | None = _evr(words[2])
    else:
        # dnf 4: `replacing  name.arch version`
        name, version = name.rpartition(".")[0] or name, words[1].rstrip(".") if len(words) > 1 else None
    for index, change in enumerate(changes):
        if change.name == name:
            changes[index] = replace(change, old=version)
            return
    changes.append(Change(REMOVE, name, version, None))


def parse_locks(text: str) -> list[str]:
    """Names in `dnf versionlock list`: `name-0:1.2-3.*` (dnf 4, ! excludes) or `Package name: name` (dnf 5)."""
    names = set()
    for line in text.splitlines():
        five = re.match(r"^Package name: (\S+)", line)
        four = LOCKED.match(line.strip())
        if five:
            names.add(five.group(1))
        elif four and not four.group(1) and " " not in four.group(2):
            names.add(four.group(2))
    return sorted(names)


def parse_interrupted(text: str) -> list[str]:
    """Packages of an interrupted transaction in `dnf history info`; empty for a finished one."""
    if not re.search(r"^\s*(Return-Code\s*: *(Failure|Aborted)|Status\s*: *(Error|Started))", text, re.MULTILINE):
        return []
    found = re.findall(
        r"^[ *>#]*(?:Install|Dep-Install|Upgrade|Downgrade|Reinstall)\s+(\S+)-[^-\s]+-[^-\s]+", text, re.MULTILINE
    )
    return sorted(set(found))


def failed_scripts(text: str) -> list[str]:
    """Lines about a failed package script; rpm itself exits with 0 then."""
    return [line.strip() for line in text.splitlines() if re.search(r"scriptlet failed|^Error in \S+ scriptlet", line)]
