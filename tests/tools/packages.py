# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name, and as root on Debian or Ubuntu install, the system packages of apt.txt and of the lab that are missing."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..lab import _needs
from .paths import TOOLS, Missing

SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Package:
    name: str
    probe: str
    need: str

    @property
    def present(self) -> bool:
        return (
            Path(self.probe).exists() if self.probe.startswith("/") else shutil.which(self.probe, path=SBIN) is not None
        )


def table(path: Path = TOOLS / "apt.txt") -> list[Package]:
    """The rows of apt.txt; a malformed row is an error with its line number."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) != 3:
            raise Missing(
                f"{path}:{number}: want 'package probe needed-by', got {line!r}. Next: give exactly three columns"
            )
        rows.append(Package(*fields))
    rows += [Package(name, probe, "lab") for name, (probe, _why, _always) in _needs.PACKAGES.items()]
    return rows + [
        Package(name, probe, "vm")
        for name, (probe, _why) in _needs.VM_PACKAGES.items()
        if name not in {row.name for row in rows}
    ]


def missing(needs: set[str]) -> list[Package]:
    """Packages of these needs whose probe fails; no needs means all."""
    return [p for p in table() if (not needs or p.need in needs) and not p.present]


def advice(packages: list[Package]) -> str:
    return (
        "missing: "
        + ", ".join(p.name for p in packages)
        + ". Next: apt-get install --no-install-recommends "
        + " ".join(p.name for p in packages)
    )


def install(packages: list[Package]) -> None:
    """apt-get install; refuses where that is not ours to do."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(advice(packages))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (
        ["apt-get", "-q", "update"],
        ["apt-get", "-q", "-y", "install", "--no-install-recommends", *(p.name for p in packages)],
    ):
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Missing(
                f"{' '.join(argv)} failed (exit {done.returncode}): {done.stdout.strip()[-600:]}\n{advice(packages)}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="packages", description=__doc__)
    parser.add_argument("action", choices=("check", "install"))
    parser.add_argument("needs", nargs="*", help="base, lab, vm, bench; none means all")
    args = parser.parse_args()
    try:
        lacking = missing(set(args.needs))
        if lacking and args.action == "check":
            raise Missing(advice(lacking))
        if lacking:
            install(lacking)
    except Missing as exc:
        print(f"packages: {exc}", file=sys.stderr)
        return 1
    print(f"packages: {'installed ' + ' '.join(p.name for p in lacking) if lacking else 'nothing missing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
