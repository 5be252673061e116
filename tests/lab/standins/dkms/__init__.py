# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source of the stand-in kernel module, as /usr/src/rebellions-VERSION of a driver package with DKMS."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ("rebellions.c", "Makefile", "dkms.conf")
BUILD_FAULT = '#error "stand-in: this version does not build"\n'


def source(version: str, builds: bool = True, status: int = 0) -> dict[str, str]:
    """{file name: text} of that driver version.

    With builds false its compilation fails; status is the state in which every device comes up.
    """
    texts = {name: (HERE / name).read_text().replace("@VERSION@", version) for name in FILES}
    if not builds:
        texts["rebellions.c"] += BUILD_FAULT
    if status:
        texts["Makefile"] += "ccflags-y += -DRBLN_STATUS=%d\n" % status
    return texts
