# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run needs from a bundle, and everything that the bundle lacks."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass, field
from .._kernel.package_names import HEADERS, rpm_headers
from .manifest import DRIVER_PACKAGE, PACKAGE, RUNFILE, BundleFile, Manifest

NEAR = 4


@dataclass(frozen=True)
class Needs:
    """What a run needs: OS, installers by version or file name, driver packages, packages, kernels, images.

    `os` empty compares nothing. Packages are names, or name=version (deb) and name-version (rpm) as the package manager
    takes them; those that are installed are the caller's to leave out, and so are kernels whose headers are there.
    """

    os: t.Mapping[str, str] = field(default_factory=dict)
    driver_versions: t.Sequence[str] = ()
    runfile: str = ""
    driver_packages: t.Sequence[str] = ()
    packages: t.Sequence[str] = ()
    kernels: t.Sequence[str] = ()
    headers: t.Sequence[str] = ()
    images: t.Sequence[str] = ()


def names_of(one: BundleFile) -> set[str]:
    """Names under which a package manager finds this package; a Debian epoch may be omitted."""
    version = one.version.split(":", 1)[-1]
    found = {one.name}
    for text in (one.version, version):
        found |= {
            "%s=%s" % (one.name, text),
            "%s-%s" % (one.name, text),
            "%s-%s.%s" % (one.name, text, one.architecture),
        }
    return found


def header_packages(
    package_format: str, kernel: str, patterns: t.Sequence[str] = (), system: str | None = None
) -> list[str]:
    """Names of the packages with the headers of a kernel release on a system with this id.

    NpuError for a pattern without {kernel}.
    """
    for pattern in patterns:
        if "{kernel}" not in pattern:
            raise NpuError(
                "%r has no {kernel} for the kernel release." % pattern,
                "Write for example linux-headers-{kernel}.",
            )
    if patterns:
        return [pattern.replace("{kernel}", kernel) for pattern in patterns]
    return (
        [HEADERS + kernel]
        if package_format == "deb"
        else list(rpm_headers(kernel, system))
        if package_format == "rpm"
        else []
    )


def by_digest(reference: str, digest: str) -> str:
    """`registry/repository@digest` of a reference by tag or by digest."""
    base = reference.partition("@")[0]
    tag = base.rfind(":")
    return "%s@%s" % (base[:tag] if tag > base.rfind("/") else base, digest)


def _near(files: t.Iterable[BundleFile], start: str = "") -> str:
    """` It has: ...` with size and SHA-256 of files with a similar name."""
    alike = sorted((one for one in files if posixpath.basename(one.path).startswith(start)), key=lambda one: one.path)
    if not alike:
        return ""
    more = ", and %d more" % (len(alike) - NEAR) if len(alike) > NEAR else ""
    return " It has: %s%s." % (", ".join(str(one) for one in alike[:NEAR]), more)


def _system(manifest: Manifest, os: t.Mapping[str, str]) -> list[str]:
    def release(value: str) -> str:
        # Minor releases of Enterprise Linux can share packages; kernels are compared separately.
        return value.split(".")[0] if manifest.format == "rpm" else value

    for key in ("id", "version_id", "architecture"):
        ours, theirs = manifest.os.get(key, ""), os.get(key, "")
        if theirs and (release(ours) != release(theirs) if key == "version_id" else ours != theirs):
            words = tuple(
                " ".join(str(row.get(name, "")) for name in ("id", "version_id", "architecture"))
                for row in (manifest.os, os)
            )
            return ["it was collected for %s, but this host is %s." % words]
    return []


def lacking(manifest: Manifest, needs: Needs) -> list[str]:
    """One sentence per missing item, with sizes and digests of similar files."""
    told = _system(manifest, needs.os)
    packages = manifest.of(PACKAGE, DRIVER_PACKAGE)
    have = set().union(*(names_of(one) for one in packages)) if packages else set()
    runfiles = manifest.of(RUNFILE)
    for version in needs.driver_versions:
        if version not in {one.version for one in runfiles}:
            told.append("driver: no installer of version %s.%s" % (version, _near(runfiles)))
    if (
        needs.runfile
        and not needs.driver_versions
        and needs.runfile not in {posixpath.basename(one.path) for one in runfiles}
    ):
        told.append("driver: no installer %s.%s" % (needs.runfile, _near(runfiles)))
    for name in needs.driver_packages:
        if name not in have:
            told.append("driver: no package %s.%s" % (name, _near(packages, name.split("=")[0])))
    for name in needs.packages:
        if name not in have:
            told.append("packages: no %s.%s" % (name, _near(packages, name.split("=")[0])))
    for kernel in needs.kernels:
        for name in header_packages(manifest.format, kernel, needs.headers, manifest.os.get("id")):
            if name not in have:
                told.append(
                    "headers of kernel %s: no %s.%s"
                    % (kernel, name, _near(packages, name[: name.find(kernel.partition("+")[0])]))
                )
    references = {text for one in manifest.images for text in (one.reference, one.target)}
    references |= {by_digest(one.reference, one.digest) for one in manifest.images if one.digest}
    for reference in needs.images:
        if reference not in references:
            told.append("images: %s is not in its list." % reference)
    return told


def require(manifest: Manifest, needs: Needs, where: str) -> None:
    """NpuError with everything that the bundle at `where` lacks."""
    told = lacking(manifest, needs)
    if told:
        raise NpuError(
            "The bundle %s lacks %d items that this host needs: %s"
            % (where, len(told), " ".join("(%d) %s" % row for row in enumerate(told, 1))),
            "Collect it again with the missing items; nothing was changed.",
        )
