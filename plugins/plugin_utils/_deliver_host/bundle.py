# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle on the controller: built beside the old one, verified, swapped in; packed for the hosts.

What a host says of its downloads passes the rules of a manifest before anything is made of it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pathlib
import re
import resource
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import typing as t
from dataclasses import replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import (
    DRIVER,
    DRIVER_PACKAGE,
    INDEX,
    MANIFEST,
    MANIFEST_LIMIT,
    PACKAGE,
    PACKAGES,
    RUNFILE,
    SCHEMA,
    BundleFile,
    Manifest,
    digest_of,
    examine,
    manifest_of,
    parse_manifest,
    plain,
)
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.needs import by_digest
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.place import SPARE
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.transfer import pack, packed_size, unpack
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_index import (
    Package,
    Stanza,
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
_FIELD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
CONTROL_LIMIT = 64 * 1024
HOST = "The answer of the connected host"
DISTRUST = "Run again; if that does not help, find out what answers on this host. Nothing was written."


class Answer(t.NamedTuple):
    """What a connected host says of its downloads, checked: a manifest, and the control fields of each deb package."""

    manifest: Manifest
    controls: dict[str, Stanza]


def answer_of(answer: t.Mapping[str, t.Any]) -> Answer:
    """NpuError unless a manifest may hold it, and only packages and the index that dnf needs are in it."""
    keys = ("files", "images", "requested", "os", "format")
    manifest = manifest_of({"schema": SCHEMA, "kernels": [], **{key: answer.get(key) for key in keys}}, HOST)
    controls = {}
    for one, row in zip(manifest.files, answer["files"]):
        # The driver comes from the controller alone.
        if not (one.kind == PACKAGE and one.path.startswith(PACKAGES + "/")) and not (
            one.kind == INDEX and one.path.startswith("repodata/") and manifest.format == "rpm"
        ):
            raise NpuError("%s has %s, which is no package." % (HOST, one.path), DISTRUST)
        if manifest.format == "deb":
            controls[one.path] = _fields(row.get("control"), one)
    return Answer(manifest, controls)


def _fields(control: t.Any, one: BundleFile) -> Stanza:
    """The control fields of a package. NpuError for what would be more than its own paragraph in an index."""
    good = isinstance(control, dict) and all(
        isinstance(key, str) and _FIELD.fullmatch(key) and isinstance(value, str) and len(value) <= CONTROL_LIMIT
        for key, value in control.items()
    )
    named = good and tuple(control.get(key) for key in ("Package", "Version", "Architecture"))
    if named != (one.name, one.version, one.architecture) or not all(
        # Later lines of a value continue it by a blank at the start.
        line.replace("\t", " ").isprintable() and (not number or (line[:1] in " \t" and line.strip()))
        for value in control.values()
        for number, line in enumerate(value.split("\n"))
    ):
        raise NpuError("%s: the control fields of %s are not valid." % (HOST, one.path), DISTRUST)
    return dict(control)


def planned_of(answer: t.Mapping[str, t.Any]) -> list[Row]:
    """What a connected host would download: [{name, size, sha256 or None}]. NpuError for anything else."""
    rows = answer.get("planned", [])
    if not isinstance(rows, list) or not all(
        isinstance(row, dict)
        and plain(row.get("name"))
        and isinstance(row.get("size"), int)
        and not isinstance(row["size"], bool)
        and (row.get("sha256") is None or _SHA256.fullmatch(str(row["sha256"])))
        for row in rows
    ):
        raise NpuError("%s: planned is not a list of files." % HOST, DISTRUST)
    return [{key: row.get(key) for key in ("name", "size", "sha256")} for row in rows]


def asked_of(answer: t.Mapping[str, t.Any], manifest: Manifest) -> list[BundleFile]:
    """The files of the bundle that a host lacks. NpuError when it asks for any other file of the controller."""
    lacking, known = answer.get("lacking") or [], {one.path: one for one in manifest.files}
    if not isinstance(lacking, list) or not all(isinstance(path, str) and path in known for path in lacking):
        raise NpuError("The host asks for files that are not in the bundle.", DISTRUST)
    return [known[path] for path in dict.fromkeys(lacking)]


@contextlib.contextmanager
def room_for(files: t.Iterable[BundleFile], folder: str) -> t.Iterator[None]:
    """Let an archive with these files be fetched into a folder, and nothing larger. NpuError when there is no space.

    The kernel stops this process and the programs it starts, such as sftp, at that file size.
    """
    size = packed_size(files)
    free = shutil.disk_usage(folder).free
    if size + SPARE > free:
        raise NpuError(
            "%s needs %d bytes, but only %d are free." % (folder, size + SPARE, free),
            "Make room on the controller, or set TMPDIR to another file system.",
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Not less than the spare room, for other files that the process may write meanwhile.
    limit = min(one for one in (max(size, SPARE), soft, hard) if one != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def read_folder(folder: str) -> tuple[Manifest, str]:
    """(manifest, its text) of a bundle on the controller. NpuError when there is none."""
    path = os.path.join(folder, MANIFEST)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            content = stream.read(MANIFEST_LIMIT + 1) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else b""
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise NpuError(
            "There is no bundle in %s: %s." % (folder, getattr(exc, "strerror", None) or "its manifest is not text"),
            "Collect it first (playbook bundle), or correct the folder.",
        ) from exc
    if len(content) > MANIFEST_LIMIT:
        raise NpuError("%s has more than %d bytes." % (path, MANIFEST_LIMIT), "Correct the folder.")
    return parse_manifest(text, path), text


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
    answer: Answer,
    archive: str,
    have: t.Container[str],
    drivers: t.Sequence[tuple[str, BundleFile]],
    base: str,
    kernels: t.Sequence[str],
) -> tuple[bool, Manifest]:
    """Build the bundle in `folder` from the files of a host and the driver files. Returns (changed, manifest).

    The archive has the files of the answer whose digest is not in `have`; the folder has those. With the same content
    the folder stays. After NpuError for a wrong file the old folder stays.
    """
    target = pathlib.Path(folder)
    sent = list(answer.manifest.files)
    files = sent + [one for _path, one in drivers]
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = pathlib.Path(tempfile.mkdtemp(prefix=".%s." % target.name, dir=target.parent))
    try:
        unpack(archive, str(staged), [one for one in sent if one.sha256 not in have])
        for path, one in drivers:
            (staged / one.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, staged / one.path)
        for one in examine(str(staged), files).missing:
            if (target / one.path).is_file():
                (staged / one.path).parent.mkdir(parents=True, exist_ok=True)
                os.link(target / one.path, staged / one.path)
        if answer.manifest.format == "deb":
            files += _index(staged, answer, [one for _path, one in drivers if one.kind == DRIVER_PACKAGE])
        verified(str(staged), files)
        manifest = replace(
            answer.manifest,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            by="%s@%s" % (getpass.getuser(), socket.gethostname()),
            base=base,
            kernels=sorted(kernels),
            requested=sorted(answer.manifest.requested),
            files=files,
        )
        if _unchanged(folder, manifest):
            return False, read_folder(folder)[0]
        (staged / MANIFEST).write_text(manifest.dump(), encoding="utf-8")
        # Nobody else could enter it until here.
        staged.chmod(0o755)
        _exchange(staged, target)
        return True, manifest
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _index(staged: pathlib.Path, answer: Answer, packages: t.Sequence[BundleFile]) -> list[BundleFile]:
    entries = [Package(answer.controls[one.path], one.path, one.size, one.sha256) for one in answer.manifest.files]
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


def pack_for(folder: str, files: t.Sequence[BundleFile], archive: str) -> None:
    """Verify files of a bundle and pack them for a host."""
    verified(folder, files)
    pack({one.sha256: os.path.join(folder, *one.path.split("/")) for one in files}, archive)
