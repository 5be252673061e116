# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle on the controller: built beside the old one, verified, swapped in; packed for the hosts."""

from __future__ import annotations

import getpass
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.collect import files_of
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import (
    DRIVER,
    DRIVER_PACKAGE,
    INDEX,
    MANIFEST,
    RUNFILE,
    BundleFile,
    Image,
    Manifest,
    digest_of,
    examine,
    parse_manifest,
)
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.needs import by_digest
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.place import unpack
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_index import (
    Package,
    parse_stanzas,
    repository,
)

from .._cluster.capabilities import declared
from .._components.digests import containers
from .._components.driver import without_pools
from .._components.render import build
from .._inputs.cluster import ROLE
from .._objects.inputs import Inputs
from .._objects.model import Context

Row = dict[str, t.Any]
LABEL = "rebellions-npu-bundle"
_SHA256 = re.compile(r"^[0-9A-Fa-f]{64}$")
_RUNFILE = re.compile(r"-([0-9][0-9A-Za-z.+~]*)\.run$")
_DEB = re.compile(r"^([a-z0-9][a-z0-9.+-]*)_([^_]+)_([^_]+)\.deb$")
_RPM = re.compile(r"^(.+)-([^-]+-[^-]+)\.([^.-]+)\.rpm$")


def read_folder(folder: str) -> tuple[Manifest, str]:
    """(manifest, its text) of a bundle on the controller. NpuError when there is none."""
    path = pathlib.Path(folder) / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise NpuError(
            "There is no bundle in %s: %s." % (folder, exc.strerror),
            "Collect it first (playbook bundle), or correct the folder.",
        ) from exc
    return parse_manifest(text, str(path)), text


def verified(folder: str, files: t.Sequence[BundleFile]) -> None:
    """NpuError with each missing or different file of the bundle, with sizes and digests."""
    found = examine(folder, files)
    if not found.good:
        raise NpuError(
            "The bundle %s is not complete: %s." % (folder, "; ".join(found.lines())),
            "Collect it (playbook bundle) or copy it again; nothing was sent.",
        )


def driver_files(runfiles: t.Sequence[Row], packages: t.Sequence[Row]) -> list[tuple[str, BundleFile]]:
    """[(path on the controller, file in the bundle)], verified. NpuError when a digest differs."""
    found = []
    for kind, rows in ((RUNFILE, runfiles), (DRIVER_PACKAGE, packages)):
        for row in rows:
            path, wanted = row["path"].replace("{version}", row.get("version") or ""), row["sha256"].lower()
            if "://" in path:
                raise NpuError(
                    "%s is an address, not a path." % path, "Download the file to the controller and set its path."
                )
            if not _SHA256.match(wanted):
                raise NpuError(
                    "The SHA-256 of %s is not 64 hexadecimal digits." % path, "Run sha256sum on a copy you trust."
                )
            try:
                with open(path, "rb") as stream:
                    size, digest = os.fstat(stream.fileno()).st_size, digest_of(stream)
            except OSError as exc:
                raise NpuError(
                    "%s cannot be read on the controller: %s." % (path, exc.strerror), "Check the path."
                ) from exc
            if digest != wanted:
                raise NpuError(
                    "The SHA-256 of %s is %s, not %s." % (path, digest, wanted),
                    "Get the file or the digest again from a trusted source.",
                )
            found.append((path, _driver_file(kind, os.path.basename(path), size, digest, row)))
    return found


def _driver_file(kind: str, name: str, size: int, digest: str, row: Row) -> BundleFile:
    if kind == RUNFILE:
        match = _RUNFILE.search(name)
        return BundleFile(
            "%s/%s" % (DRIVER, name), size, digest, kind, name, row.get("version") or (match.group(1) if match else "")
        )
    match = _DEB.match(name) or _RPM.match(name)
    if not match:
        raise NpuError("%s has neither a deb nor an rpm file name." % row["path"], "Use the original file name.")
    return BundleFile("%s/%s" % (DRIVER, name), size, digest, kind, match.group(1), match.group(2), match.group(3))


def _control(path: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            ["dpkg-deb", "-f", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NpuError(
            "dpkg-deb cannot read %s: %s." % (path, exc),
            "Install dpkg on the controller, or use a runfile for the driver.",
        ) from exc
    parsed = parse_stanzas(done.stdout) if done.returncode == 0 else []
    if len(parsed) != 1 or not all(parsed[0].get(key) for key in ("Package", "Version", "Architecture")):
        raise NpuError("%s is not a deb package: %s" % (path, done.stderr.strip()), "Download it again.")
    return parsed[0]


def wanted_images(inputs: Inputs) -> tuple[list[Row], str]:
    """([{name, reference, target}], warning) for the images of all objects that the inputs of the operands role create.

    `reference` is the published image. Live nodes are unknown here: only driver pools in the inputs count.
    """
    capabilities = declared(inputs)
    found: dict[str, Row] = {}
    # The bundle is where digests come from: none is required to collect it.
    ours: Inputs = {**inputs, "require_digest": False}
    public: Inputs = {**ours, "registry": "", "image_digests": {}}
    for own, published in zip(build(Context(ours, capabilities)), build(Context(public, capabilities))):
        for container, other in zip(containers(own), containers(published)):
            name = "%s %s" % (own["metadata"]["name"], container["name"])
            target, digest = container["image"], container["image"].partition("@")[2]
            reference = by_digest(other["image"], digest) if digest else other["image"]
            found.setdefault(target, {"name": name, "reference": reference, "target": target})
    lacking = ", ".join(without_pools(inputs))
    text = (
        "Drivers run as containers, but no pool sets an image of %s. "
        "Next: set pools in %s_driver, or list the images in the images input of the bundle role."
    )
    return sorted(found.values(), key=lambda row: row["name"]), text % (lacking, ROLE) if lacking else ""


def assemble(
    folder: str,
    answer: Row,
    archive: str,
    drivers: t.Sequence[tuple[str, BundleFile]],
    base: str,
    kernels: t.Sequence[str],
) -> tuple[bool, Manifest]:
    """Build the bundle in `folder` from the files of a host and the driver files. Returns (changed, manifest).

    With the same content the folder stays. After NpuError for a wrong file the old folder stays.
    """
    target = pathlib.Path(folder)
    files = files_of(answer["files"]) + [one for _path, one in drivers]
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = pathlib.Path(tempfile.mkdtemp(prefix=".%s." % target.name, dir=target.parent))
    try:
        staged.chmod(0o755)
        for one in files:
            (staged / one.path).parent.mkdir(parents=True, exist_ok=True)
        unpack(archive, str(staged), files)
        for path, one in drivers:
            shutil.copyfile(path, staged / one.path)
        for one in examine(str(staged), files).missing:
            if (target / one.path).is_file():
                os.link(target / one.path, staged / one.path)
        if answer["format"] == "deb":
            files += _index(staged, answer["files"], [one for _path, one in drivers if one.kind == DRIVER_PACKAGE])
        verified(str(staged), files)
        manifest = Manifest(
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            by="%s@%s" % (getpass.getuser(), socket.gethostname()),
            os=answer["os"],
            format=answer["format"],
            base=base,
            kernels=sorted(kernels),
            requested=sorted(answer["requested"]),
            files=files,
            images=[Image(**row) for row in answer["images"]],
        )
        if _unchanged(folder, manifest):
            return False, read_folder(folder)[0]
        (staged / MANIFEST).write_text(manifest.dump(), encoding="utf-8")
        _exchange(staged, target)
        return True, manifest
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _index(staged: pathlib.Path, rows: t.Sequence[Row], packages: t.Sequence[BundleFile]) -> list[BundleFile]:
    entries = [Package(row["control"], row["path"], row["size"], row["sha256"]) for row in rows]
    entries += [
        Package(_control(str(staged / one.path)), one.path, one.size, one.sha256)
        for one in packages
        if one.path.endswith(".deb")
    ]
    found = []
    for name, content in repository(entries, LABEL).items():
        (staged / name).write_bytes(content)
        with open(staged / name, "rb") as stream:
            found.append(BundleFile(name, len(content), digest_of(stream), INDEX))
    return found


def _unchanged(folder: str, manifest: Manifest) -> bool:
    try:
        old, _text = read_folder(folder)
    except NpuError:
        return False
    return old.same_content(manifest) and examine(folder, old.files).good


def _exchange(staged: pathlib.Path, target: pathlib.Path) -> None:
    """Replace a bundle folder by another one. NpuError when the old one is not a bundle."""
    if target.exists() and not (target / MANIFEST).exists() and any(target.iterdir()):
        raise NpuError("%s has files that are not a bundle." % target, "Use an empty or a new folder.")
    old = target.with_name(staged.name + ".old")
    if target.exists():
        target.rename(old)
    staged.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def pack(folder: str, paths: t.Sequence[str], archive: str) -> None:
    """A tar archive with some files of a bundle."""
    with tarfile.open(archive, "w") as tar:
        for path in paths:
            tar.add(os.path.join(folder, *path.split("/")), arcname=path, recursive=False)
