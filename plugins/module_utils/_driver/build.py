# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the driver's module with DKMS for kernels where it is missing or damaged."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.mask import mask
from .._base.vendor import VendorProfile
from .._base.versions import same_release
from .._host.host import ABSENT, Host
from .._kernel.modinfo import ModuleFile, read_file, read_module
from .._npu.driver import BUILT, DKMS_DIR, read_dkms

TAIL = 300
AUTOINSTALL = "autoinstall"

Row = t.Mapping[str, t.Any]


def build(host: Host, profile: VendorProfile, kernels: t.Sequence[str], timeout: float, version: str = "") -> list[str]:
    """Build and install the module of the driver `version` (empty: any) for each kernel.

    Returns what failed; a failure leaves the driver of the running kernel alone. What counts is the module file of the
    kernel: autoinstall reports the failures of other modules too, and DKMS reports success where it has done nothing.
    """
    failures = []
    rows = read_dkms(host, profile.package_patterns)[0]
    for kernel in kernels:
        failed = ""
        for argv in _commands(rows, kernel, version):
            done = host.run(argv, timeout)
            if not done.ok or done.value.rc != 0:
                failed = mask(" ".join((done.value.out + done.value.err).split()))[-TAIL:] if done.ok else done.detail
                failed = failed or "%s ended with code %d" % (" ".join(argv), done.value.rc)
                break
        lack = module_lack(host, profile, kernel, version)
        if lack or (failed and argv[1] != AUTOINSTALL):
            failures.append("Building the module failed for kernel %s: %s" % (kernel, failed or lack))
    return failures


def _commands(rows: t.Sequence[Row], kernel: str, version: str) -> list[list[str]]:
    """What makes DKMS build this driver for a kernel.

    DKMS never repeats a build that it has recorded: where there is one and the module is still missing, force it.
    """
    ours = [row for row in rows if not version or same_release(row["version"], version)] or list(rows)
    noted = next((row for row in ours if row["kernel"] == kernel and row["state"] in BUILT), None)
    if noted is None:
        return [["dkms", AUTOINSTALL, "-k", kernel]]
    return [
        ["dkms", act, "--force", "-m", noted["module"], "-v", noted["version"], "-k", kernel]
        for act in ("build", "install")
    ]


def module_lack(host: Host, profile: VendorProfile, kernel: str, version: str) -> str:
    """Why the module file of a kernel is not that of the driver `version` (empty: any); empty when it is.

    A module without a version of its own is compared with the one that DKMS has built.
    """
    found = read_module(host, profile.module, kernel)
    if found.state == ABSENT:
        return "kernel %s has no module file of %s" % (kernel, profile.module)
    if not found.ok:
        return str(found.detail)
    file: ModuleFile = found.value
    if version and file.version and not same_release(file.version, version):
        return "%s is %s, not %s" % (file.path, file.version, version)
    for row in read_dkms(host, profile.package_patterns)[0]:
        if row["kernel"] == kernel and row["state"] == "installed":
            folder = posixpath.join(DKMS_DIR, row["module"], row["version"], kernel, row["arch"], "module")
            for path in host.glob(folder, profile.module + ".ko*"):
                built = read_file(host, path).get()
                if built and built.srcversion and file.srcversion not in (None, built.srcversion):
                    return "%s is not the module that DKMS has built" % file.path
    return ""
