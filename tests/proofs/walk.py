# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every component that is optional, in containers on real kubelets, from nothing to nothing.

One node has everything in containers, a containerd without CDI and a system of the support matrix; the other has its
own driver. The vendor's images are stood in for. The first part and the last are played by the oldest ansible-core.
The sample is these two.

    python -m tests.proofs.walk claims "nothing left"     the named parts, in this order
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED
from tests.lab import Lab
from tests.proofs._proof import SAMPLE, Proof, named
from tests.proofs._walk import HOSTS, Walk, claims, containers, machines, nothing_left, prepare, versions
from tests.proofs._walk_claims import rollout
from tests.proofs._walk_nfd import discovery
from tests.proofs._walk_pull import pull
from tests.tools.stage import stage


def main() -> int:
    if os.geteuid() != 0:
        print("proof-walk starts system containers and needs root. Next: sudo make proof-walk", file=sys.stderr)
        return 2
    proof = Proof("walk")
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    parts = {"containers": containers, "versions": versions, "claims": claims, "rollout": rollout}
    parts.update({"nothing left": nothing_left, "discovery": discovery, "machines": machines, "pull": pull})
    chosen = named(parts, sys.argv[1:]) or (["containers", "nothing left"] if SAMPLE else list(parts))
    hosts = Hosts(Lab(), HOSTS, kube=True)
    try:
        hosts.virgin()
        prepare(hosts)
        walk = Walk(hosts)
        for name in chosen:
            with proof.part(name) as part:
                parts[name](part, walk)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
