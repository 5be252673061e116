# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's life against faults.

A change is cut off at every point, and the parts that take too long for every test run are here too. After each cut the
host is as before, as wanted, or says in its journal what is at work; the next run converges; the one after changes
nothing.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.integration._driver import Drivers
from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED
from tests.lab import Lab
from tests.proofs._driver_faults import faults, real_builds, removals
from tests.proofs._driver_kills import Kills, changes
from tests.proofs._driver_life import Act, families, holds, sources, users, ways_back
from tests.proofs._proof import SAMPLE, Proof, named
from tests.tools.stage import stage

# Debian 12 and Debian 13 in turn.
HOSTS = {
    "it-drv-p1": "containerd2",
    "it-drv-p2": "containerd17",
    "it-drv-p3": "containerd2",
    "it-drv-p4": "containerd17",
}
LIFE: dict[str, Act] = {
    "sources": sources,
    "families": families,
    "users": users,
    "ways back": ways_back,
    "holds": holds,
    "removals": removals,
    "faults": faults,
    "real builds": real_builds,
}


def main() -> int:
    proof = Proof("driver")
    if os.geteuid() != 0:
        print("proof-driver starts system containers and needs root. Next: sudo make proof-driver", file=sys.stderr)
        return 2
    only = named([*LIFE, *(change.name for change in changes())], sys.argv[1:])
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    kinds = dict(list(HOSTS.items())[: 2 if SAMPLE else None])
    hosts = Hosts(Lab(), kinds, kube=False)
    drivers = Drivers(hosts)
    try:
        hosts.virgin()
        for name, act in LIFE.items():
            if name in only or not (only or SAMPLE):
                with proof.part(name) as part:
                    act(part, drivers, *list(kinds)[:2])
        kills = Kills(drivers, list(kinds))
        for change in changes():
            if change.name in only or not only:
                with proof.part("cut off: " + change.name) as part:
                    kills.run(part, change)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
