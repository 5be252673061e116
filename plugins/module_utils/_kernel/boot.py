# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that boots next: GRUB menu, boot loader specification entries, links. Never guessed."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
import typing as t

from .._base.regex import regex
from .._base.versions import natural_key
from .._host.host import Host, Limit

BLS_DIR = "/boot/loader/entries"
GRUB_CFGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
# Where EL 8 has the whole menu of a UEFI machine; elsewhere these files only lead to one of GRUB_CFGS.
EFI_FOLDERS = "/boot/efi/EFI"
_READS_BLS = regex(r"^\s*blscfg\b", re.M)
_HAS_MENU = regex(r"^\s*(?:menuentry|submenu)\s", re.M)
_SET_DEFAULT = regex(r"^\s*set\s+default=([\"']?)(.*?)\1\s*$", re.M)
# By the loader itself: systemd-boot does not read what GRUB has left behind.
LOADER_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
GRUBENVS = ("/boot/grub/grubenv", "/boot/grub2/grubenv")

MenuEntry = t.Dict[str, t.Any]


def parse_grubenv(text: str) -> dict[str, str]:
    """NAME=value lines of a GRUB environment block."""
    return dict(re.findall(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", text, re.M))


def parse_grub_default(texts: t.Sequence[str]) -> str | None:
    """The last GRUB_DEFAULT of /etc/default/grub and its drop-ins, in reading order; None when none sets it."""
    found = None
    for text in texts:
        for value in re.findall(r"^\s*(?:export\s+)?GRUB_DEFAULT=(.*)$", text, re.M):
            try:
                words = shlex.split(value, comments=True)
            except ValueError:
                continue
            found = words[0] if words else ""
    return found


def cfg_default(text: str) -> str | None:
    """The default of a grub.cfg as it was generated; None when it sets none.

    /etc/default/grub may have been edited since. The entry for one boot is set first; later ones are conditional.
    """
    values = [value for _quote, value in _SET_DEFAULT.findall(text) if "next_entry" not in value]
    return "saved" if values and "saved_entry" in values[0] else values[0] if values else None


def kernel_of(text: str) -> str | None:
    """Kernel release in the name of an image or in a menu title."""
    match = (
        re.search(r"vmlinu[zx]-(\S+)", text)
        or re.search(r"with Linux (\S+)", text)
        or re.search(r"\(([0-9]+\.[0-9]+\S*)\)", text)
    )
    return match.group(1).rstrip("'\",)") if match else None


def parse_grub_menu(text: str) -> list[MenuEntry]:
    """Menu of a grub.cfg: [{title, id, kernel, entries}]; `entries` is a list for a submenu, else None."""
    top: list[MenuEntry] = []
    stack: list[tuple[int, list[MenuEntry]]] = [(0, top)]
    current: MenuEntry | None = None
    depth = 0
    for line in text.splitlines():
        stripped = line.strip()
        opening = re.match(r"^(menuentry|submenu)\s+(.*)\{\s*$", stripped)
        if opening:
            title, ident = _title(opening.group(2))
            entry: MenuEntry = {"title": title, "id": ident, "kernel": None, "entries": None}
            stack[-1][1].append(entry)
            depth += 1
            if opening.group(1) == "submenu":
                entry["entries"] = []
                stack.append((depth, entry["entries"]))
            else:
                current = entry
            continue
        if current is not None and current["kernel"] is None and re.match(r"^linux(?:16|efi)?\s", stripped):
            current["kernel"] = kernel_of(stripped)
        if stripped.endswith("{"):
            depth += 1
        elif stripped == "}":
            if len(stack) > 1 and stack[-1][0] == depth:
                stack.pop()
            depth = max(0, depth - 1)
            current = current if depth and current is not None and depth >= stack[-1][0] + 1 else None
    return top


def _title(text: str) -> tuple[str, str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = re.findall(r"'([^']*)'", text)
    ident = ""
    for at, word in enumerate(words[:-1]):
        if word in ("--id", "$menuentry_id_option"):
            ident = words[at + 1]
    return (words[0] if words else ""), ident


def choose_entry(menu: t.Sequence[MenuEntry], wanted: str) -> str | None:
    """Kernel of the menu entry `wanted`: numbers, titles or ids, with `>` between levels. None when not found."""
    entries: t.Sequence[MenuEntry] = menu
    chosen: MenuEntry | None = None
    for part in wanted.split(">"):
        chosen = None
        if part.isdecimal():
            chosen = entries[int(part)] if int(part) < len(entries) else None
        else:
            chosen = next((entry for entry in entries if part in (entry["title"], entry["id"]) and part), None)
        if chosen is None:
            return None
        entries = chosen["entries"] or []
    while chosen is not None and chosen["entries"] is not None:
        chosen = chosen["entries"][0] if chosen["entries"] else None
    return chosen["kernel"] if chosen else None


def parse_bls(name: str, text: str) -> MenuEntry:
    """A boot loader specification entry: id (file name without .conf), title, version, kernel."""
    fields = dict((key, value.strip()) for key, value in re.findall(r"^([a-z-]+)[ \t]+(.*)$", text, re.M))
    kernel = kernel_of(fields.get("linux", "")) or fields.get("version")
    return {
        "id": re.sub(r"\.conf$", "", name),
        "title": fields.get("title", ""),
        "version": fields.get("version", ""),
        "kernel": kernel,
        "entries": None,
    }


def _environment(host: Host) -> dict[str, str]:
    for path in GRUBENVS:
        text = host.read_text(path, Limit.NOTE)
        if text.ok:
            return parse_grubenv(text.value)
    return {}


def _grub_cfg(host: Host) -> str:
    """The grub.cfg with the menu, or with the command that reads BLS_DIR; empty when none can be read."""
    for path in GRUB_CFGS:
        text = str(host.read_text(path).get(""))
        if _READS_BLS.search(text) or _HAS_MENU.search(text):
            return text
    for folder in host.listdir(EFI_FOLDERS).get([]):
        text = str(host.read_text(posixpath.join(EFI_FOLDERS, folder, "grub.cfg")).get(""))
        if _READS_BLS.search(text) or _HAS_MENU.search(text):
            return text
    return ""


def _from_bls(host: Host, environment: t.Mapping[str, str], cfg: str) -> tuple[str | None, str]:
    if cfg and not _READS_BLS.search(cfg):
        # GRUB shows its own menu (GRUB_ENABLE_BLSCFG=false); the entries are left from before.
        return None, ""
    paths = host.glob(BLS_DIR, "*.conf")
    entries = [parse_bls(posixpath.basename(path), host.read_text(path, Limit.NOTE).get("")) for path in paths]
    if not entries:
        return None, ""
    menu = sorted(
        (entry for entry in entries if "rescue" not in entry["id"]),
        key=lambda entry: natural_key(entry["id"]),
        reverse=True,
    )
    menu += [entry for entry in entries if "rescue" in entry["id"]]
    loader = host.read_text("/boot/loader/loader.conf", Limit.NOTE)
    if loader.ok and not environment:
        pattern = re.search(r"^default[ \t]+(\S+)", loader.value, re.M)
        fits = [entry for entry in menu if pattern and fnmatch.fnmatchcase(entry["id"] + ".conf", pattern.group(1))]
        fits = fits or [entry for entry in menu if pattern and fnmatch.fnmatchcase(entry["id"], pattern.group(1))]
        return (
            (fits[0]["kernel"], "loader.conf") if fits else (None, "the default of systemd-boot is not in loader.conf")
        )
    default = _grub_default(host, cfg) or "saved"
    wanted = environment.get("next_entry") or (environment.get("saved_entry") or "0" if default == "saved" else default)
    kernel = choose_entry(menu, wanted)
    return kernel, "boot loader entry %s" % wanted if kernel else "no boot loader entry %s" % wanted


def _grub_default(host: Host, cfg: str) -> str | None:
    return cfg_default(cfg) or parse_grub_default(
        [
            host.read_text(path, Limit.NOTE).get("")
            for path in ["/etc/default/grub"] + host.glob("/etc/default/grub.d", "*.cfg")
        ]
    )


def _from_grub(host: Host, environment: t.Mapping[str, str], cfg: str) -> tuple[str | None, str]:
    menu = parse_grub_menu(cfg)
    default = _grub_default(host, cfg)
    if not menu and default is None:
        return None, ""
    wanted = default or "0"
    if wanted == "saved":
        wanted = environment.get("saved_entry") or "0"
    wanted = environment.get("next_entry") or wanted
    kernel = choose_entry(menu, wanted)
    if kernel:
        return kernel, "grub entry %s" % wanted
    named = re.search(r"gnulinux-([0-9]\S*?)-(?:advanced|recovery)-", wanted)
    kernel = named.group(1) if named else kernel_of(wanted)
    if kernel:
        return kernel, "grub entry %s" % wanted
    return None, "" if wanted == "0" and not menu else "grub entry %s is not in the menu" % wanted


def _from_links(host: Host) -> tuple[str | None, str]:
    for path in ("/boot/vmlinuz", "/vmlinuz"):
        kernel = kernel_of(posixpath.basename(host.readlink(path).get("")))
        if kernel:
            return kernel, "link " + path
    return None, ""


def flavour(kernel: str) -> str:
    """The part of a release that names the build: generic, aws, amd64; el for el9_6.x86_64."""
    tail = re.sub(r"\.(x86_64|aarch64|i686|ppc64le|s390x)(?=$|[+.])", "", kernel)
    if re.search(r"\.(el|fc|amzn)[0-9]", tail):
        extra = re.search(r"\+(.+)$", tail)
        return str(re.findall(r"\.(el|fc|amzn)[0-9]", tail)[-1]) + ("+" + extra.group(1) if extra else "")
    words = re.findall(r"-([a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)*)", tail)
    return words[-1] if words else ""


def read_next_boot(host: Host, installed: t.Sequence[str], running: str | None) -> tuple[str | None, str]:
    """Release and where it was found. None with a reason when the choice of the boot loader is unknown.

    `installed` is oldest first. Without boot loader configuration it is the newest kernel of the running flavour.
    """
    loader = host.read_bytes(LOADER_INFO, Limit.ATTRIBUTE).get(b"").decode("utf-16-le", "replace")
    grub = "systemd-boot" not in loader
    environment, cfg = (_environment(host), _grub_cfg(host)) if grub else ({}, "")
    of_grub = _from_grub(host, environment, cfg) if grub else (None, "")
    for kernel, source in (_from_bls(host, environment, cfg), of_grub, _from_links(host)):
        if kernel or source:
            return kernel, source
    if not running or not installed:
        return None, "no boot loader configuration and no installed kernel found"
    same = [name for name in installed if flavour(name) == flavour(running)]
    if len(same) != len(installed) or not same:
        return None, "no boot loader configuration, and kernels of several flavours are installed"
    return same[-1], "newest installed"
