# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the driver's module with DKMS for kernels where it is missing or damaged."""

from __future__ import annotations

import typing as t

from .._base.mask import mask
from .._base.vendor import VendorProfile
from .._host.host import Host
from .._npu.driver import BUILT, read_dkms

TAIL = 300


def build(host: Host, profile: VendorProfile, kernels: t.Sequence[str], timeout: float) -> list[str]:
    """Build and install the module for each kernel.

    Returns what failed; a failure leaves the driver of the running kernel alone.

    DKMS never repeats a build that it has recorded. Where there is one and the module is still missing, force it.
    """
    failures = []
    noted = {row["kernel"]: row for row in read_dkms(host, profile.package_patterns)[0] if row["state"] in BUILT}
    for kernel in kernels:
        row = noted.get(kernel)
        if row is None:
            commands = [["dkms", "autoinstall", "-k", kernel]]
        else:
            commands = [
                ["dkms", act, "--force", "-m", row["module"], "-v", row["version"], "-k", kernel]
                for act in ("build", "install")
            ]
        for argv in commands:
            done = host.run(argv, timeout)
            if not done.ok or done.value.rc != 0:
                said = mask(" ".join((done.value.out + done.value.err).split()))[-TAIL:] if done.ok else done.detail
                failures.append("Building the module failed for kernel %s: %s" % (kernel, said))
                break
    return failures
