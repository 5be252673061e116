# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages with all dependencies, downloaded on a connected host into our own folder.

apt works on lists, status and archives in that folder; sources and keys are the host's. dnf resolves with its own
metadata.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import typing as t

from .._base.model import NpuError
from .._host.files import create_file
from .._host.host import Completed, Host, Limit
from .._packages.apt_index import base_status, parse_stanzas, parse_uris
from .._packages.installed import DPKG_STATUS
from .manifest import DRIVER, INDEX, PACKAGE, PACKAGES, digest_of

TAIL = 12
ARCHIVES, NOTHING = "archives", "nothing"
_UNKNOWN = re.compile(
    r"(?:Unable to locate package|Couldn't find any package by (?:glob|regex)|No package|"
    r"No match for argument:) '?([^\s']+)"
)

Row = t.Dict[str, t.Any]


def _run(host: Host, argv: t.Sequence[str], timeout: float, act: str) -> Completed:
    done = host.run(argv, timeout)
    if not done.ok:
        raise NpuError(
            "%s failed to %s: %s." % (argv[0], act, done.detail),
            "Use a host of a supported system, or raise the timeout.",
        )
    ended: Completed = done.value
    if ended.rc != 0:
        lines = [line.strip() for line in (ended.out + ended.err).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "Err:", "Error"))] or lines
        unknown = sorted(set(_UNKNOWN.findall("\n".join(lines))))
        if unknown:
            raise NpuError(
                "No repository of this host has %s." % ", ".join(unknown),
                "Add the repository that has it (on Enterprise Linux dkms comes from EPEL, kernel-rt from rt or nfv), "
                "or remove it from packages and kernels.",
            )
        raise NpuError(
            "%s failed to %s: %s" % (argv[0], act, " ".join(errors[-TAIL:])),
            "Check the repositories of this host and run again.",
        )
    return ended


def _described(local: str, name: str, version: str, architecture: str, **more: t.Any) -> Row:
    with open(local, "rb") as stream:
        size, digest = os.fstat(stream.fileno()).st_size, digest_of(stream)
    return dict(
        {
            "local": local,
            "size": size,
            "sha256": digest,
            "name": name,
            "version": version,
            "architecture": architecture,
        },
        **more,
    )


def _apt_options(work: str, archives: str = ARCHIVES) -> list[str]:
    places = {
        "Dir::State::lists": "lists",
        "Dir::State::status": "status",
        "Dir::State::extended_states": "extended_states",
        "Dir::Cache::archives": archives,
    }
    settings = ["%s=%s" % (key, os.path.join(work, name)) for key, name in places.items()]
    settings += [
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
        "Debug::NoLocking=true",
        "Acquire::Languages=none",
        "Acquire::ForceHash=SHA256",
    ]
    settings += [
        "APT::Install-Recommends=false",
        "APT::Get::AllowUnauthenticated=false",
        "Acquire::AllowInsecureRepositories=false",
    ]
    settings += ["APT::Update::Error-Mode=any", "APT::Keep-Downloaded-Packages=true"]
    return [word for setting in settings for word in ("-o", setting)]


def deb_name(control: t.Mapping[str, str]) -> str:
    """A file name without the epoch; its colon is special in an address."""
    return "%s_%s_%s.deb" % (control["Package"], control["Version"].split(":", 1)[-1], control["Architecture"])


def deb_control(host: Host, path: str, timeout: float = 30.0) -> Row:
    """The control fields of a deb file; NpuError for another file."""
    parsed = parse_stanzas(_run(host, ["dpkg-deb", "-f", path], timeout, "read %s" % path).out)
    if len(parsed) != 1 or not all(parsed[0].get(key) for key in ("Package", "Version", "Architecture")):
        raise NpuError("%s is not a package." % path, "Download it again.")
    return parsed[0]


def plan_deb(host: Host, work: str, packages: t.Sequence[str], base: str, timeout: float) -> list[Row]:
    """The packages and dependencies that a host with only `base` needs: [{uri, name, size, sha256}].

    Updates the lists.
    """
    for name in ("lists", ARCHIVES, NOTHING):
        os.makedirs(os.path.join(work, name, "partial"), mode=0o755, exist_ok=True)
    status = host.read_text(DPKG_STATUS, Limit.BULK)
    if not status.ok:
        raise NpuError(
            "%s cannot be read: %s." % (DPKG_STATUS, status.detail),
            "Collect on a host with the OS of the target hosts.",
        )
    create_file(os.path.join(work, "status"), base_status(status.value, base).encode("utf-8"), 0o644)
    _run(host, ["apt-get", *_apt_options(work), "update"], timeout, "read the package lists")
    if not packages:
        return []
    # apt does not list files that are in its archive directory, so use an empty one.
    asked = [
        "apt-get",
        *_apt_options(work, NOTHING),
        "-y",
        "--no-install-recommends",
        "--print-uris",
        "install",
        "--",
        *packages,
    ]
    return parse_uris(_run(host, asked, timeout, "resolve the packages").out)


def collect_deb(host: Host, work: str, packages: t.Sequence[str], base: str, timeout: float) -> list[Row]:
    """Download the files of plan_deb() and describe them. Matching files are kept, others deleted."""
    planned = {row["name"]: row for row in plan_deb(host, work, packages, base, timeout)}
    archives = os.path.join(work, ARCHIVES)
    for name in os.listdir(archives):
        path = os.path.join(archives, name)
        if os.path.isfile(path):
            with open(path, "rb") as stream:
                fits = name in planned and planned[name]["sha256"] in (None, digest_of(stream))
            if not fits:
                os.unlink(path)
    if planned:
        _run(
            host,
            [
                "apt-get",
                *_apt_options(work),
                "-y",
                "--no-install-recommends",
                "--download-only",
                "install",
                "--",
                *packages,
            ],
            timeout,
            "download",
        )
    found = []
    for name, row in sorted(planned.items()):
        path = os.path.join(archives, name)
        control = deb_control(host, path)
        one = _described(
            path, control["Package"], control["Version"], control["Architecture"], control=control, kind=PACKAGE
        )
        if (one["size"], row["sha256"] or one["sha256"]) != (row["size"], one["sha256"]):
            raise NpuError(
                "%s differs from the file in the repository." % name,
                "Run again; if that does not help, check the proxy or the mirror.",
            )
        one["path"] = posixpath.join(PACKAGES, deb_name(control))
        found.append(one)
    return found


def collect_rpm(host: Host, work: str, packages: t.Sequence[str], timeout: float) -> list[Row]:
    """Like collect_deb(), with `dnf download --resolve --alldeps`.

    Verifies signatures; createrepo_c writes the index.
    """
    folder = os.path.join(work, PACKAGES)
    for name in (PACKAGES, "repodata"):
        shutil.rmtree(os.path.join(work, name), ignore_errors=True)
    os.makedirs(folder, mode=0o755)
    if not packages:
        return []
    options = ["--setopt=install_weak_deps=False", "--resolve", "--alldeps", "--destdir", folder]
    _run(host, ["dnf", "-y", "download", *options, *packages], timeout, "download")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".rpm"))
    paths = [os.path.join(folder, name) for name in names]
    _run(
        host,
        ["rpmkeys", "--checksig", *paths],
        timeout,
        "verify the signatures (import the repository's key with rpmkeys --import)",
    )
    query = _run(
        host,
        ["rpm", "-qp", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\n", *paths],
        timeout,
        "read the packages",
    )
    found = []
    for path, line in zip(paths, query.out.splitlines()):
        name, version, architecture = line.split("\t")
        found.append(
            _described(
                path, name, version, architecture, kind=PACKAGE, path=posixpath.join(PACKAGES, os.path.basename(path))
            )
        )
    if not host.run(["createrepo_c", "--version"]).ok:
        raise NpuError(
            "createrepo_c is not installed on this host.", "Install it (dnf install createrepo_c) and run again."
        )
    _run(host, ["createrepo_c", "--simple-md-filenames", "--excludes", DRIVER + "/*", work], timeout, "write the index")
    for name in sorted(os.listdir(os.path.join(work, "repodata"))):
        found.append(_described(os.path.join(work, "repodata", name), "", "", "", kind=INDEX, path="repodata/" + name))
    return found


def image_digests(host: Host, images: t.Sequence[t.Mapping[str, str]], timeout: float = 60.0) -> list[Row]:
    """[{name, reference, target, digest or None, reason}]; the digest is from the reference, or by skopeo or crane."""
    asked: dict[str, tuple[str | None, str]] = {}
    for image in images:
        reference = image["reference"]
        if reference not in asked:
            asked[reference] = _digest(host, reference, timeout)
    return [dict(image, digest=asked[image["reference"]][0], reason=asked[image["reference"]][1]) for image in images]


def _digest(host: Host, reference: str, timeout: float) -> tuple[str | None, str]:
    _base, at, digest = reference.partition("@")
    if at:
        return digest, ""
    reason = "neither skopeo nor crane is installed on the host"
    for argv in (
        ["skopeo", "inspect", "--no-tags", "--format", "{{.Digest}}", "docker://" + reference],
        ["crane", "digest", reference],
    ):
        done = host.run(argv, timeout)
        if done.ok and done.value.rc == 0 and re.match(r"^sha256:[0-9a-f]{64}$", done.value.out.strip()):
            return done.value.out.strip(), ""
        if done.state != "absent":
            reason = "%s: %s" % (
                argv[0],
                (done.value.err.strip().splitlines() or ["no digest"])[-1][:200] if done.ok else done.detail,
            )
    # A tool may repeat what a registry sent.
    return None, "".join(char if char.isprintable() else " " for char in reason)
