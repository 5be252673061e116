# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle on a host: verify all files before replacing any, and make it the only source of packages.

Nothing in /etc is written: apt reads the configuration by APT_CONFIG, dnf by --setopt=reposdir. The manifest is removed
first and written last, so a folder with a manifest is complete.
"""

from __future__ import annotations

import os
import shutil
import stat
import typing as t

from .._base.model import NpuError
from .._host.files import create_file, explain, make_directory, remove_empty_directory, replace_file
from .._host.host import Host
from .._host.private import parents
from .._packages.offline import APT_CONFIG, DNF_CONFIG, environment
from .manifest import MANIFEST, BundleFile, Condition, Manifest, examine, parse_manifest

REPOSITORY = "rebellions-npu-bundle"
LISTS = "apt/lists"
STAMP = "apt/read"
_OWN = ("apt/", "dnf/")
SPARE = 64 * 1024 * 1024
_APT_CONF = (
    "// Written by rebellions.npu. While APT_CONFIG names this file, "
    "the bundle is the only source of packages.\n"
    """\
Dir::Etc::sourcelist "%(directory)s/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "%(directory)s/apt/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
"""
)
# Every file was verified by the manifest, and only root can write to the folder: a key would add nothing.
_SOURCES = "deb [trusted=yes] file:%(directory)s ./\n"
_REPO = (
    "["
    + REPOSITORY
    + "]\nname=Offline bundle\nbaseurl=file://%(directory)s\nenabled=1\ngpgcheck=0\nrepo_gpgcheck=0\n"
    + "metadata_expire=1\n"
)
# The default configuration of dnf, with our directory of repositories.
_DNF_CONF = (
    "[main]\nreposdir=%(directory)s/dnf\ngpgcheck=1\ninstallonly_limit=3\n"
    "clean_requirements_on_remove=True\nbest=True\ninstall_weak_deps=False\n"
)


def settings(directory: str, package_format: str) -> dict[str, str]:
    """{path below the folder: text} of the package manager's configuration."""
    texts = (
        {APT_CONFIG: _APT_CONF, "apt/sources.list": _SOURCES}
        if package_format == "deb"
        else {"dnf/%s.repo" % REPOSITORY: _REPO, DNF_CONFIG: _DNF_CONF}
    )
    return {name: text % {"directory": directory} for name, text in texts.items()}


def read_bundle(host: Host, directory: str) -> Manifest:
    """The manifest of a bundle on a host. NpuError when there is none."""
    path = os.path.join(directory, MANIFEST)
    found = host.read_text(path)
    if not found.ok:
        raise NpuError(
            "%s cannot be read: %s." % (path, found.detail), "Place the bundle first (playbook bundle_place)."
        )
    return parse_manifest(found.value, path)


def guard(directory: str, owner: int) -> bool:
    """Whether the folder exists. NpuError when other users can write to it or replace it."""
    try:
        parents(directory, owner)
        info = os.lstat(directory)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise explain(exc, directory, "read") from exc
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != owner or info.st_mode & 0o022:
        raise NpuError(
            "%s is not a directory that only user ID %d can write to." % (directory, owner),
            "Remove it or choose another directory.",
        )
    return True


def whole(host: Host, directory: str) -> Manifest:
    """The manifest of a bundle on this machine, with every file verified. NpuError names each bad file."""
    manifest = read_bundle(host, directory)
    guard(directory, os.geteuid())
    found = examine(directory, manifest.files)
    if not found.good:
        raise NpuError(
            "The bundle %s is not complete: %s." % (directory, "; ".join(found.lines())),
            "Place it again (playbook bundle_place); nothing was changed.",
        )
    return manifest


def strays(directory: str, manifest: Manifest) -> list[str]:
    """Paths in the folder that are in neither the manifest nor our configuration."""
    known = {one.path for one in manifest.files} | {MANIFEST, APT_CONFIG}
    found = []
    for folder, _names, files in os.walk(directory):
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), directory)
            if path not in known and not path.startswith(_OWN):
                found.append(path)
    return sorted(found)


def _text_at(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


class Placed(t.NamedTuple):
    """How a folder on a host differs from the bundle it should hold."""

    condition: Condition
    stray: list[str]
    settings: list[str]
    manifest: bool

    @property
    def right(self) -> bool:
        return self.condition.good and not self.stray and not self.settings and self.manifest


def look(directory: str, manifest: Manifest, text: str, configure: bool, digest: str) -> Placed:
    """`text` is the text of the manifest, `digest` its SHA-256, which also marks the package lists."""
    there = guard(directory, os.geteuid())
    wanted = settings(directory, manifest.format) if configure else {}
    differing = [name for name, value in sorted(wanted.items()) if _text_at(os.path.join(directory, name)) != value]
    if configure and manifest.format == "deb" and _text_at(os.path.join(directory, STAMP)) != digest:
        differing.append(STAMP)
    return Placed(
        examine(directory, manifest.files),
        strays(directory, manifest) if there else [],
        differing,
        _text_at(os.path.join(directory, MANIFEST)) == text,
    )


def place(
    directory: str, manifest: Manifest, text: str, found: Placed, fill: t.Callable[[str, t.Sequence[BundleFile]], None]
) -> None:
    """Put the bundle into the folder. `fill` writes into a folder beside it; the files are verified and moved."""
    host = Host()
    incoming = directory + ".incoming"
    parent = os.path.dirname(directory)
    known = os.path.isdir(parent)
    wanted = found.condition.bad
    try:
        make_directory(host, parent)
        shutil.rmtree(incoming, ignore_errors=True)
        os.mkdir(incoming, 0o700)
        free = os.statvfs(incoming)
        needed = sum(one.size for one in wanted)
        if needed + SPARE > free.f_bavail * free.f_frsize:
            raise NpuError(
                "%s needs %d bytes, but only %d are free." % (directory, needed + SPARE, free.f_bavail * free.f_frsize),
                "Make room on its file system.",
            )
        fill(incoming, wanted)
        arrived = examine(incoming, wanted)
        if not arrived.good:
            raise NpuError(
                "The received files do not match the manifest: %s." % "; ".join(arrived.lines()),
                "Run again; if that does not help, collect the bundle again. Nothing was changed.",
            )
        make_directory(host, directory)
        for name in (MANIFEST, STAMP):
            if os.path.lexists(os.path.join(directory, name)):
                os.unlink(os.path.join(directory, name))
        for one in wanted:
            target = os.path.join(directory, *one.path.split("/"))
            make_directory(host, os.path.dirname(target))
            os.chmod(os.path.join(incoming, *one.path.split("/")), 0o644)
            os.rename(os.path.join(incoming, *one.path.split("/")), target)
        for name in found.stray:
            os.unlink(os.path.join(directory, name))
        replace_file(os.path.join(directory, MANIFEST), text.encode("utf-8"), 0o644)
    except OSError as exc:
        raise explain(exc, exc.filename or directory, "written") from exc
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
        if not known:
            remove_empty_directory(host, parent)


def configure(host: Host, directory: str, package_format: str, digest: str, timeout: float) -> None:
    """Write the configuration of the package manager, and let apt read the lists of the bundle."""
    for name, text in settings(directory, package_format).items():
        make_directory(host, os.path.dirname(os.path.join(directory, name)))
        replace_file(os.path.join(directory, name), text.encode("utf-8"), 0o644)
    if package_format != "deb":
        return
    shutil.rmtree(os.path.join(directory, LISTS), ignore_errors=True)
    make_directory(host, os.path.join(directory, LISTS, "partial"))
    done = host.run(
        ["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], timeout, environment(directory, package_format)
    )
    if not done.ok or done.value.rc != 0:
        told = done.detail if not done.ok else " ".join((done.value.out + done.value.err).split())[-800:]
        raise NpuError("apt cannot read the bundle at %s: %s" % (directory, told), "Collect the bundle again.")
    create_file(os.path.join(directory, STAMP), digest.encode("ascii"), 0o644)


def remove(directory: str, dry: bool = False) -> bool:
    """Remove the bundle; False when there is none. NpuError for a folder without a bundle."""
    if not guard(directory, os.geteuid()):
        return False
    marks = (MANIFEST, APT_CONFIG, "apt", "dnf")
    if os.listdir(directory) and not any(os.path.lexists(os.path.join(directory, name)) for name in marks):
        raise NpuError("%s is not a bundle." % directory, "Correct the directory; nothing was removed.")
    if not dry:
        try:
            shutil.rmtree(directory)
        except OSError as exc:
            raise explain(exc, directory, "removed") from exc
    return True
