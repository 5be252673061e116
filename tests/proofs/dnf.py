# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real dnf 4 and dnf 5 with the real rpm, as Debian has them, with small packages made there.

Excludes, version locks, what is installed in several versions, what dnf prunes, and repositories that lack a package.
"""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

from tests.lab._base import podman
from tests.lab._machine import settings
from tests.lab._rootfs import host_image
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.paths import ROOT

HOST = Path(__file__).with_name("_dnf_host.py")
# The host of each; dnf 5 is in no sample.
PROGRAMS = {"dnf-3": "trixie-dnf"} if SAMPLE else {"dnf-3": "trixie-dnf", "dnf5": "forky-dnf5"}


def run(image: str, program: str) -> dict[str, t.Any]:
    """What the script saw with this program."""
    mounts = ["-v", "%s:/root/npu:ro" % (ROOT / "plugins" / "module_utils"), "-v", "%s:/root/host.py:ro" % HOST]
    argv = ("run", "--rm", "--network=none", *mounts, image, "python3", "/root/host.py", program)
    done = podman(*argv, timeout=900)
    found: dict[str, t.Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge(part: Part, seen: dict[str, t.Any]) -> None:
    devel = "install kernel-devel (5.14.0-100.el9)"
    for name, right in (
        ("holds", seen["holds"] == ["kernel*"]),
        ("excluded", "/etc/dnf/dnf.conf line 5" in seen["excluded"][1]),
        ("allowed", seen["allowed"] == [devel]),
        ("resolved", seen["resolved"] == "5.14.0-300.el9"),
        ("downloaded", seen["downloaded"] == ["rebellions-kmd-3.4.0-1.noarch.rpm"]),
        ("all kept", seen["all kept"]),
        ("held", seen["held"] == ["rebellions-kmd"]),
        ("locked", seen["locked"] == ["kernel*", "rebellions-kmd"]),
        ("lock", seen["lock"][1].startswith("Unhold the package")),
        ("moves", seen["moves"] == ["upgrade rebellions-kmd (3.2.2-1 -> 3.4.0-1)"]),
        ("moved", seen["moved"] == [["rebellions-kmd-3.4.0-1"], ["rebellions-kmd"]]),
        ("install-only", seen["install-only"] == [[], False, []]),
        ("twice", seen["twice"] == ["rebellions-kmd", "site-agent"]),
        ("repaired", seen["repaired"][0] is True and len(seen["repaired"][1]) == 1),
        ("ours once", seen["repaired"][2:] == [["rebellions-kmd-3.4.0-1"], ["site-agent-1.0-1", "site-agent-1.1-1"]]),
        ("again", seen["again"] == [False, []]),
        ("pruned", sorted(seen["pruned"]) == ["install", "remove", "remove"]),
        ("beyond", seen["beyond"] == []),
        ("not pruned", seen["not pruned"] == ["install kernel-devel (5.14.0-400.el9)"]),
        ("dead", seen["dead"][:1] + seen["dead"][2:] == [["rebellions-kmd-3.2.2-1"], *[["rebellions-kmd"]] * 2]),
        ("dead told", seen["dead"][1] == ["Left out, as without an answer: the repository dead."]),
        ("dead own", "dead" in seen["dead own"][0]),
        ("unsigned", seen["unsigned"] == ["Left out, signature not accepted: the repository unsigned."]),
        ("unsigned alone", "Signature not accepted: unsigned." in seen["unsigned alone"][0]),
        ("eus", seen["eus"][1].startswith("Enable the repository of this kernel's minor release")),
        ("logged", seen["logged"] == [["kernel-devel", "rebellions-kmd"], []]),
        ("rpm alone", seen["rpm alone"][0] == [] and len(seen["rpm alone"][1]) == 1),
        # dnf 5 does not say that there is no repository.
        ("none", seen["none"][1].startswith(("Register the host", "Check the name and the version"))),
    ):
        if right:
            part.good()
        else:
            part.bad(name, json.dumps(seen.get(name) or seen["dead" if name.startswith("dead") else "repaired"]))


def main() -> int:
    proof = Proof("dnf")
    settings()
    for program, flavour in PROGRAMS.items():
        with proof.part(program) as part:
            judge(part, run(host_image(flavour), program))
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
