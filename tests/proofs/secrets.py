# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""No secret of an input, a file or a program reaches an output, a process list, a fact or a file.

The sample is the whole proof: each of the runs may tell what the others do not.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED, Data
from tests.integration._secrets import KINDS, NOWHERE, Hunt
from tests.lab import Lab
from tests.proofs._proof import Part, Proof
from tests.tools.stage import stage

HOST = "it-secrets"


def book(hunt: Hunt, role: str) -> Path:
    path = hunt.folder / (role + ".yml")
    play = {
        "hosts": "npu_nodes",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": "rebellions.npu.rbln_discover"}},
            {"ansible.builtin.import_role": {"name": "rebellions.npu." + role}},
        ],
    }
    path.write_text(json.dumps([play]))
    return path


def refusals(hunt: Hunt) -> dict[str, Data]:
    """Inputs with credentials that the plan refuses."""
    s, q = hunt.secrets, hunt.quoted
    return {
        "runfile-user": {"rbln_driver_runfile": "http://svc:%s@%s/x.run" % (q("runfile_user"), NOWHERE)},
        "runfile-query": {"rbln_driver_runfile": "http://%s/x.run?token=%s" % (NOWHERE, s["runfile_query"])},
        "repository": {
            "rbln_driver_source": "package",
            "rbln_driver_package_names": ["rebellions-driver"],
            "rbln_driver_repository": {
                "url": "http://svc:%s@%s/" % (q("repository_user"), NOWHERE),
                "key": "/nowhere",
            },
        },
    }


def planted(part: Part, hunt: Hunt) -> None:
    """Every kind planted on the host and in the inputs, and all runs that may tell one."""
    assert len(KINDS) >= 20 and len(set(hunt.secrets.values())) == len(KINDS)
    s, q, replace = hunt.secrets, hunt.quoted, {"rbln_driver_version": "3.4.0", "rbln_driver_replace": True}
    hunt.play("discover", "discover", 0)
    hunt.play("check", "site", 0, args=["--check"])
    hunt.play("installer", "site", 2, "loud.run ended with code 3", **hunt.installer())
    hunt.play("site", "site", 0, "Switch CDI on")
    hunt.play("again", "site", 0, "changed=0")
    # apt has no source but the one that is planted, and proxies where nothing listens.
    hunt.play("package", "site", 2, "apt-get ended with", rbln_container_toolkit_package="rbln-container-toolkit")
    with hunt.user_of_npu():
        hunt.play("in-use", "remove", 2, "The NPUs are in use: sleep")
    for name, variables in refusals(hunt).items():
        hunt.play(name, "site", 2, "holds a name or a password", **{**replace, **variables})
    hunt.play("plan", "plan", 0, "driver_source_with_password", **{**replace, **refusals(hunt)["repository"]})
    cluster = hunt.plant_controller()
    hunt.play("cluster", "site", 2, NOWHERE, **cluster)
    hunt.play("half", "site", 2, "client-key without client-certificate", **cluster, rbln_kube_context="half")
    url = "http://svc:%s@%s/b?token=%s" % (q("bundle_user"), NOWHERE, s["bundle_query"])
    hunt.play("bundle", book(hunt, "rbln_bundle"), 2, rbln_bundle_url=url, rbln_bundle_sha256="0" * 64)
    pull = {"rbln_pull_url": "https://svc:%s@h/x" % q("pull_user"), "rbln_pull_variables": {"x": s["pull_variable"]}}
    hunt.play("pull", book(hunt, "rbln_pull"), 2, "has a password", **pull)
    hunt.play("remove", "remove", 0)
    leaks = [str(leak) for leak in hunt.look_around()]
    assert hunt.processes > 50 and hunt.files > 500
    for text in (*hunt.surprises, *leaks):
        part.bad("leak or surprise", text)
    part.good(len(KINDS) if not (hunt.surprises or leaks) else 0)
    part.note = "%d processes, %d files searched" % (hunt.processes, hunt.files)


def hunted(proof: Proof) -> None:
    """The part of this proof, on a host of the lab of its own; also a part of the attack."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    hosts = Hosts(Lab(), {HOST: "engines"}, kube=False)
    try:
        with proof.part("planted secrets") as part:
            hosts.virgin(HOST)
            hunt = Hunt(hosts.lab, HOST)
            hunt.plant_host()
            planted(part, hunt)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)


def main() -> int:
    if os.geteuid() != 0:
        print("proof-secrets starts a system container and needs root. Next: sudo make proof-secrets", file=sys.stderr)
        return 2
    proof = Proof("secrets")
    hunted(proof)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
