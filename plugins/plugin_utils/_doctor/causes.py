# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The troubleshooting tree as data: every cause with the signs that tell it, what it explains, proof and remedy.

docs/troubleshooting.md is written from it (tests/tools/tree.py). The order is that of a search: what is nearer to the
root comes first. A sign belongs to the first cause whose form it has, so a form with words stands before one without.
"""

from __future__ import annotations

from .cause import DRIVER, HOST_TOOL, MACHINE, Cause, checks, fits
from .causes_containers import CONTAINER_CAUSES
from .causes_driver import DRIVER_CAUSES
from .causes_kubernetes import KUBERNETES_CAUSES
from .causes_machine import MACHINE_CAUSES
from .signs import Sign

# Last, because another cause tells of it wherever it matters.
_LAST: tuple[Cause, ...] = (
    Cause(
        "package_manager_busy",
        MACHINE,
        '"The package manager is in use by PROGRAM"',
        "Another program uses the package manager, such as an unattended upgrade.",
        "`fuser -v /var/lib/dpkg/lock-frontend; systemctl status apt-daily-upgrade` on the host",
        "Wait until it ends, then run again.",
        ("machine:package_manager",),
    ),
    Cause(
        "looks_failed",
        MACHINE,
        "`looks_worked` is false",
        "A look at the host failed: a file or an answer that cannot be read.",
        f"`{HOST_TOOL} observe` on the host",
        "Look at the file or command that is named.",
        ("check:looks_worked", "machine:unseen"),
    ),
    Cause(
        "virtual_machines",
        DRIVER,
        "`vfio_module`, `vfio_groups`, `vfio_bound` or `vfio_nodes` is false",
        "The NPUs cannot be given to virtual machines.",
        f"`{HOST_TOOL} validate --scope vfio` on the host",
        "Do what the check says: IOMMU on, `vfio-pci` loaded and bound.",
        checks("vfio_module", "vfio_groups", "vfio_bound", "vfio_nodes"),
    ),
)
CAUSES = (*MACHINE_CAUSES, *DRIVER_CAUSES, *CONTAINER_CAUSES, *KUBERNETES_CAUSES, *_LAST)
BY_ID = {cause.id: cause for cause in CAUSES}


def cause_of(one: Sign) -> Cause | None:
    """The cause that a sign tells: the first that has it."""
    return next((cause for cause in CAUSES if any(fits(form, one) for form in cause.signs)), None)
