# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of apt-get and apt-cache: simulated changes, exact dependencies, versions, and a remedy for each error."""

from __future__ import annotations

import re

from .changes import DOWNGRADE, INSTALL, REINSTALL, REMOVE, UPGRADE, Change

REACH = "Check that the host reaches its mirrors: name resolution, proxy, firewall, internal mirror."
REMEDIES = (
    # Apt.failure() names the files.
    (
        r"Conflicting values set for option",
        "Remove one of the two sources of this repository, or make the named option the same in both.",
    ),
    (
        r"Malformed (?:entry|line|stanza)|is not known on (?:line|stanza)|[Ll]ist of sources could not be read",
        "Correct the named file: until then apt reads no source at all.",
    ),
    (
        r"Release file for \S+ is expired",
        "Use a mirror that is up to date. For a release that is archived set Check-Valid-Until: no in its source.",
    ),
    (
        r"Release file for \S+ is not valid yet",
        "Set the clock of the host.",
    ),
    (
        r"does not have a Release file|no longer has a Release file",
        "Correct address and suite of this source. The releases that their distribution no longer serves are at "
        "archive.debian.org or old-releases.ubuntu.com.",
    ),
    (
        r"changed its '\w+' value from",
        "Run apt-get update --allow-releaseinfo-change on the host, when the new value is right.",
    ),
    (
        r"No space left on device|You don't have enough free space",
        "Make room on the file systems of /, /usr, /var and /boot (df -h; df -i for inodes), and run again.",
    ),
    (
        r"dpkg was interrupted|exited unexpectedly|received signal",
        "Run again to finish the interrupted change. By hand: dpkg --configure -a",
    ),
    (
        r"Could not get lock|Unable to (acquire|lock)|locked by \S+ process",
        "Wait until that program ends and run again.",
    ),
    (
        r"(?:Unable to locate package|Package) '?linux-headers-[0-9]",
        "Boot the newest kernel, or use the offline bundle or a snapshot of the repositories: they do not have the "
        "headers of this kernel.",
    ),
    (
        r"Unable to locate package|has no installation candidate|Version '[^']*' for '[^']*' was not found",
        "Check the name and the version in the repositories of the host (apt-cache madison NAME), and update its lists "
        "(apt-get update).",
    ),
    (
        r"Could not connect|Could not resolve|Temporary failure resolving|Connection timed out|Unable to connect",
        REACH,
    ),
    (
        r"is not readable by user '_apt'",
        "Let every user read this keyring and its folders (chmod a+rX).",
    ),
    (
        r"the file has an unsupported filetype",
        "Replace this keyring: an armoured key needs a name that ends in .asc, a binary one in .gpg.",
    ),
    (
        r"Policy rejected|Policy rejects|is not considered secure",
        "Get the present key of this repository from its owner: this system accepts no signatures by SHA-1 any more.",
    ),
    (
        r"NO_PUBKEY|Missing key|is not live|is not signed|couldn't be verified|EXPKEYSIG|cannot be authenticated|"
        r"OpenPGP signature verification failed",
        "Install the key of the repository, or correct Signed-By of its source.",
    ),
    (
        r"Can't find a source to download",
        "Provide the package file: no repository of the host has this version any more.",
    ),
    (
        r"Hash Sum mismatch|File has unexpected size",
        "Run apt-get update again, or purge the cache of the proxy: the mirror or a proxy serves old files.",
    ),
    # Also said when a signature or a digest is wrong.
    (r"Failed to fetch", REACH),
    (
        r"unmet dependencies|held broken packages|Unable to satisfy dependencies",
        "List all packages that must change together, each with its version, or unhold packages (apt-mark showhold).",
    ),
    (
        r"not a Debian format archive|could not locate member|Could not read meta data|dpkg-deb: error",
        "Transfer the file again: it is damaged or not a package.",
    ),
    (
        r"script subprocess returned error|error processing package",
        "Read the output of the package script; build logs of a driver are in /var/lib/dkms.",
    ),
    (r"package architecture \([^)]*\) does not match", "Use the package for the architecture of the host."),
)
# The lists lack a package or a version, or are outdated.
MISSING = re.compile(
    r"Unable to locate package|has no installation candidate|Version '[^']*' for '[^']*' was not found|"
    r"is not installable|404 +Not Found"
)
UNREACHED = re.compile(r"^(?:Err:[0-9]+ |[EW]: Failed to fetch )([a-z+]+://[^/\s]+)()", re.MULTILINE)
LINE = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]\s]*)\])?(?: \((\S+) [^)]*\))?")
PIN = re.compile(r"(?:^|\s)(?:Pre-?)?Depends: (\S+) \(= ([^)\s]+)\)")
SECTION_END = re.compile(r"^\S")


def section(text: str, title: str) -> list[str]:
    """Names below a line such as `The following held packages will be changed:`, without the * of a purge."""
    names: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("The following") and title in line:
            inside = True
        elif inside and SECTION_END.match(line):
            break
        elif inside:
            names.extend(word.rstrip("*") for word in line.split() if re.match(r"^[a-z0-9]", word))
    return names


def parse_simulation(text: str) -> list[Change]:
    """Changes in the output of `apt-get -s` (Inst, Remv, Purg).

    The old version is in brackets, the new in parentheses.
    """
    downgraded = set(section(text, "DOWNGRADED"))
    changes = []
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        word, name, old, new = match.groups()
        if word != "Inst":
            changes.append(Change(REMOVE, name, old or None, None))
        elif not old:
            changes.append(Change(INSTALL, name, None, new))
        elif old == new:
            changes.append(Change(REINSTALL, name, old, new))
        else:
            changes.append(Change(DOWNGRADE if name in downgraded else UPGRADE, name, old, new))
    return changes


def parse_madison(text: str, name: str) -> list[str]:
    """Versions of binary packages of exactly this name in `apt-cache madison`, best first."""
    found: list[str] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[0] == name and not parts[2].endswith("Sources") and parts[1] not in found:
            found.append(parts[1])
    return found


def list_prefixes(source: str) -> tuple[str, ...]:
    """Prefixes of the list files of a deb822 source: its addresses without scheme and credentials, / as _."""
    found = []
    for line in re.findall(r"^URIs:(.*)$", source, re.MULTILINE):
        for address in line.split():
            rest = re.sub(r"^[a-z+]+:/*([^/@]*@)?", "" if not address.startswith("file:/") else "/", address).rstrip(
                "/"
            )
            found.append(
                re.sub(r"[_~=^!@#$%&*|{}\[\]<>\"\\]", lambda match: "%%%02x" % ord(match.group()), rest).replace(
                    "/", "_"
                )
                + "_"
            )
    return tuple(found)


def parse_pins(text: str) -> list[tuple[str, str]]:
    """(name, version) of exact dependencies that `apt-get` cannot meet."""
    return PIN.findall(text)
