# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for the vendor's images, under the names that the collection gives them when its registry is lab.local.

All have one layer, as small as possible and laid out as the vendor's: a shell, /var/run that leads to /run, programs at
their places.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

from ._base import cached, digest
from ._go import program
from ._image import Entry, tar_of, write_images
from ._rootfs import busybox
from .standins import payload

REGISTRY = "lab.local/rebellions/"
TAG = "1"
FILES = Path(payload.__file__).parent / "files"
DRIVER = "/opt/npu-lab/driver.sh"
# Image: its program; of the DRA driver, its DaemonSet names the program.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "rbln-k8s-driver-manager": ("/usr/bin/driver-manager",),
    "rbln-container-toolkit": ("/usr/bin/rbln-ctk-daemon",),
    "k8s-device-plugin": ("/usr/bin/rbln-device-plugin",),
    "rbln-metrics-exporter": ("/usr/bin/rbln-metrics-exporter",),
    "rbln-sandbox-device-plugin": ("/usr/bin/rbln-sandbox-device-plugin",),
    "k8s-dra-driver-npu": (),
}


def _layer(versions: t.Sequence[str]) -> dict[str, Entry]:
    entries = busybox()
    entries.update(
        {
            "run": Entry(),
            "var/run": Entry(target="/run"),
            "usr/bin/npu-operands": Entry(program("npu-operands") / "npu-operands"),
            "usr/local/bin/rbln-cdi-hook": Entry(b"#!/usr/bin/python3\n" + (FILES / "rbln-cdi-hook.py").read_bytes()),
            # The driver's container says itself which version it brings.
            "usr/lib/rbln-standin/kmod": Entry(
                payload.script("kmod.sh", versions[0]).replace(
                    b"modinfo -F version rebellions 2>/dev/null", b'echo "$NPU_LAB_DRIVER"'
                )
            ),
            DRIVER[1:]: Entry(FILES / "driver-container.sh"),
        }
    )
    names = [argv[0] for argv in PROGRAMS.values() if argv] + ["/usr/bin/rbln-smd", "/usr/bin/npu-kubelet-plugin"]
    entries.update({name[1:]: Entry(target="npu-operands") for name in names})
    for version in versions:
        smi = {"usr/bin/rbln-smi": payload.tools(version)["usr/bin/rbln-smi"]}
        for name, entry in {**payload.libraries(version), **smi}.items():
            entries["opt/npu-lab/driver/%s/%s" % (version, name)] = entry
    return entries


def operand_images(system: str, kernel: str, versions: t.Sequence[str] = payload.VERSIONS) -> Path:
    """A docker-archive of all of them; drivers of these versions for a system (`debian12`) with a kernel."""
    entrypoints: dict[str, t.Sequence[str]] = {
        "%s%s:%s" % (REGISTRY, name, TAG): argv for name, argv in PROGRAMS.items()
    }
    for version in versions:
        tag = "%s-%s-%s" % (version, kernel.replace("+", "_"), system)
        entrypoints["%srbln-driver:%s" % (REGISTRY, tag)] = ("/bin/sh", DRIVER, "load", version)
        entrypoints["%srbln-smd:%s" % (REGISTRY, version)] = ("/usr/bin/rbln-smd",)

    def make(part: Path) -> None:
        write_images(part / "image.tar", tar_of(_layer(versions)), entrypoints)

    here = Path(__file__)
    key = digest(here, here.with_name("_image.py"), FILES.parent, program("npu-operands").name, repr(entrypoints))
    return cached("image-operands", key, make) / "image.tar"
