# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWX as code, without AWX: the modules of awx.awx on a stand-in of its API, and its jobs by the real ansible-runner.

The playbook awx makes its objects in the stand-in, and a second run changes nothing. Then each job template that was
made is launched as AWX does it, on hosts of the lab: answers of the survey as text that is no template, credentials as
files and extra variables, check mode, limit, slices, facts in AWX's cache, from which the pools come.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path

from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED, inventory, runfile
from tests.lab import Lab
from tests.proofs._awx_api import Api, Data, Server
from tests.proofs._awx_job import PROJECT, Controller
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.paths import OLD_VENV, VENV, environment
from tests.tools.stage import stage

A, B = "pf-awx-a", "pf-awx-b"
KINDS = {A: "containerd17", B: "containerd2"}
TOKEN = "REP-SECRET-TOKEN"
# Nobody answers there.
KUBECONFIG = json.dumps({
    "apiVersion": "v1", "kind": "Config", "current-context": "x",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": TOKEN}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
})  # fmt: skip
INPUTS: Data = {
    "rbln_awx_image": "registry.example.com/npu-ee:1",
    "rbln_awx_project_url": "https://git.example.com/npu-site.git",
    "rbln_awx_slices": "2",
    "rbln_awx_driver_version": "3.2.2",
}


def awx(server: Server, *words: str, venv: Path = VENV, code: int = 0, **inputs: t.Any) -> str:
    """The output of the playbook awx, which ends with this code."""
    env = environment(venv, ANSIBLE_LOCALHOST_WARNING="false", ANSIBLE_INVENTORY_UNPARSED_WARNING="false")
    argv = ["ansible-playbook", "playbooks/awx.yml", *words, "-e", json.dumps({**INPUTS, **inputs})]
    done = subprocess.run(
        argv, cwd=STAGED, env={**env, **server.environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    out = done.stdout + done.stderr
    assert done.returncode == code, out[-4000:]
    assert TOKEN not in out and "Traceback" not in out, out
    return out


def objects(part: Part, api: Api, server: Server) -> None:
    """Check mode on nothing, from nothing by the oldest core, and again by the newest."""
    made = 0
    if not SAMPLE:
        with part.case("check mode on an empty AWX foretells every object and makes none"):
            out = awx(server, "--check", rbln_awx_kubeconfig=KUBECONFIG)
            assert api.writes == [] and "changed=14 " in out, out[-800:]
    with part.case("from nothing, by the oldest ansible-core"):
        out = awx(server, venv=OLD_VENV, rbln_awx_kubeconfig=KUBECONFIG)
        made = len(api.writes)
        assert made >= 35 and "failed=0" in out
        assert api.linked("inventories", "NPU pools", "input_inventories") == ["NPU hosts"]
        nodes = {name: api.named("workflow_job_template_nodes", name) for name in ("plan", "approval", "upgrade")}
        assert [nodes["plan"]["job_type"], nodes["upgrade"]["job_type"]] == ["check", "run"]
        assert api.linked("workflow_job_template_nodes", "plan", "success_nodes") == ["approval"]
        assert api.linked("workflow_job_template_nodes", "approval", "success_nodes") == ["upgrade"]
        assert nodes["approval"]["unified_job_template"] in api.objects["workflow_approval_templates"]
        assert api.named("credentials", "NPU kubeconfig")["inputs"] == {"kubeconfig": KUBECONFIG}
    with part.case("a second run changes nothing, by the newest ansible-core"):
        assert made and "changed=0 " in awx(server, rbln_awx_kubeconfig=KUBECONFIG)
        assert len(api.writes) == made, api.writes[made:]
    if not SAMPLE:
        with part.case("check mode then foretells nothing"):
            assert "changed=0 " in awx(server, "--check", rbln_awx_kubeconfig=KUBECONFIG)
        with part.case("what somebody has changed in AWX is one change, foretold and made"):
            api.named("job_templates", "NPU Upgrade")["diff_mode"] = False
            assert "changed=1 " in awx(server, "--check", rbln_awx_kubeconfig=KUBECONFIG)
            assert "changed=1 " in awx(server, rbln_awx_kubeconfig=KUBECONFIG)
            assert api.named("job_templates", "NPU Upgrade")["diff_mode"] is True
        with part.case("a credential that AWX does not have is named"):
            assert "no-such" in awx(server, rbln_awx_kubeconfig=KUBECONFIG, rbln_awx_credentials="no-such", code=2)
    with part.case("a wrong input is told before AWX is asked"):
        before = len(api.writes)
        assert "rbln_awx_image is not set. Next: " in awx(server, rbln_awx_image="", code=2)
        assert len(api.writes) == before


def jobs(part: Part, api: Api, folder: Path, hosts: Hosts) -> None:
    """Each template, on two hosts whose driver and runtime are brought up by it."""
    where = inventory(folder / "hosts.json", [A, B], hosts.variables)
    controller = Controller(api, folder / "awx", json.loads(where.read_text()))
    # These hosts have no cluster.
    api.links[("job_templates", api.named("job_templates", "NPU Plan")["id"], "credentials")].clear()
    for name in ("Discover", "Site", "Upgrade", "Validate", "Doctor", "Support", "Report", "Drift", "Remove"):
        api.links[("job_templates", api.named("job_templates", "NPU " + name)["id"], "credentials")].clear()
    pools: dict[str, list[str]] = {}
    with part.case("Discover"):
        assert not any(name.startswith("npu_pool_") for name in controller.constructed())
        controller.launch("NPU Discover").unchanged(A, B)
    with part.case("the pools are groups of the constructed inventory, from the facts that AWX has kept"):
        found = controller.constructed()
        pools = {name: group["hosts"] for name, group in found.items() if name.startswith("npu_pool_")}
        assert sorted(host for group in pools.values() for host in group) == [A, B], pools
    pool = next((name for name, group in pools.items() if A in group), "")
    inside = pools.get(pool, [])
    with part.case("an answer that is no pool is refused before a host is contacted"):
        job = controller.launch("NPU Plan", {"rbln_pool": "npu_pool_nowhere"})
        assert job.code != 0 and not job.hosts, job.out
        assert "rbln_pool is 'npu_pool_nowhere', and the inventory has no such group" in " ".join(job.out.split())
    with part.case("Plan of one pool, with a limit"):
        controller.launch("NPU Plan", {"rbln_pool": pool}, limit=A).unchanged(A)
    with part.case("inputs of a pool: its group is in the inventory of the project, without hosts"):
        controller.inventory[pool] = {"vars": {"rbln_driver_version": "9.9.9"}}
        assert "9.9.9" in controller.launch("NPU Plan", {"rbln_pool": pool}).out
        del controller.inventory[pool]
    with part.case("Site in check mode changes nothing and shows the plan"):
        job = controller.launch("NPU Site", {"rbln_pool": pool, "rbln_driver_reboot": "never"}, check=True).good(
            *inside
        )
        assert job.hosts[A][1] > 0 and "driver" in job.out
    with part.case("Site"):
        job = controller.launch("NPU Site").good(A, B)
        assert all(changed for _ok, changed, _bad in job.hosts.values()), job.hosts
    with part.case("Site again, with each answer empty or as it is offered"):
        controller.launch("NPU Site", {"rbln_pool": ""}).unchanged(A, B)
    with part.case("Validate in slices"):
        for number, host, other in ((1, A, B), (2, B, A)):
            assert other not in controller.launch("NPU Validate", part=(number, 2)).good(host).out
    answers = {"rbln_pool": "", "rbln_driver_version": "3.4.0", "rbln_rollout_waves": "1, 100%"}
    wanted = runfile("3.4.0")
    upgraded = {name: wanted[name] for name in ("rbln_driver_runfile", "rbln_driver_runfile_sha256")}
    controller.inventory["npu_nodes"]["vars"].update(upgraded)
    with part.case("the plan of the workflow: Upgrade in check mode, with its waves"):
        job = controller.launch("NPU Upgrade", answers, check=True).good(A, B)
        assert "Rollout of 2 hosts in " in job.out and "3.2.2 -> 3.4.0" in job.out, job.out[-3000:]
    if not SAMPLE:
        with part.case("Upgrade, and again"):
            job = controller.launch("NPU Upgrade", answers).good(A, B)
            assert all(changed for _ok, changed, _bad in job.hosts.values()), job.hosts
            controller.launch("NPU Upgrade", answers).unchanged(A, B)
        with part.case("until the inventory wants it too, Validate tells of the other version"):
            job = controller.launch("NPU Validate")
            assert job.code == 2 and "loaded is 3.4.0, wanted is 3.2.2" in job.out, job.out[-3000:]
            # The daemon of the driver holds the NPUs, and nobody has to end it.
            assert "NPUs are in use by" not in controller.launch("NPU Doctor").out
        controller.inventory["npu_nodes"]["vars"]["rbln_driver_version"] = "3.4.0"
        with part.case("and then it proves the hosts again, whose ready files it had withdrawn"):
            controller.launch("NPU Validate").good(A, B)
        seen(part, controller, folder)
        reported(part, controller, hosts)
        removed(part, controller)
    hosts.state.update({A: "dirty", B: "dirty"})


def seen(part: Part, controller: Controller, folder: Path) -> None:
    """What changes nothing: the doctor, and an archive in the folder that the survey asks for."""
    with part.case("Doctor finds no fault"):
        job = controller.launch("NPU Doctor").unchanged(A, B)
        assert "2 hosts: " in job.out and "with faults" not in job.out, job.out[-3000:]
    with part.case("Support of one host, by a limit"):
        where = folder / "archives"
        where.mkdir()
        controller.launch("NPU Support", {"rbln_support_path": "%s/" % where}, limit=A).unchanged(A)
        (path,) = where.iterdir()
        with tarfile.open(path) as archive:
            (name,) = [name for name in archive.getnames() if name.endswith("/manifest.json")]
            manifest = json.load(t.cast("t.IO[bytes]", archive.extractfile(name)))
        assert {host: one["state"] for host, one in manifest["hosts"].items()} == {A: "collected"}
        assert path.stat().st_mode & 0o777 == 0o600 and len(manifest["files"]) > 5


def reported(part: Part, controller: Controller, hosts: Hosts) -> None:
    """Report and Drift, which keep what they write in the folder that outlives a job."""
    folder = Path(INPUTS["rbln_awx_output"], "reports")

    def newest() -> Data:
        found: Data = json.loads(max(folder.glob("*.json")).read_text())
        return found

    with part.case("Report from the facts that AWX has kept contacts no host"):
        group = controller.inventory["npu_nodes"]
        given = group["vars"]
        away = {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
        group["vars"] = {**given, **away}
        job = controller.launch("NPU Report")
        group["vars"] = given
        assert job.code == 0 and "2 hosts: " in job.out, job.out[-3000:]
        wanted = given["rbln_driver_version"]
        assert [(one["name"], one["versions"]["driver"]) for one in newest()["hosts"]] == [(A, wanted), (B, wanted)]
        assert any(folder.glob("*.html"))
    with part.case("Drift: the first job has nothing to compare with, the next one finds nothing"):
        assert "This one is the first" in controller.launch("NPU Drift").unchanged(A, B).out
        assert "No drift on 2 hosts since " in controller.launch("NPU Drift").unchanged(A, B).out
    with part.case("Drift fails with a host that has drifted, and names it"):
        hosts.lab.exec(B, "sed -i 's/librbln-ml/librbln-xx/g' /run/cdi/rbln.yaml")
        job = controller.launch("NPU Drift")
        assert job.code and "Drift on 1 of 2 hosts since " in job.out and "CDI spec" in job.out, job.out[-3000:]
        assert [one["name"] for one in newest()["hosts"] if one["drift"]] == [B]
        controller.launch("NPU Site").good(A, B)


def removed(part: Part, controller: Controller) -> None:
    """Remove needs an answer, foretells what it does, keeps to its limit, and has then nothing to do."""
    every = {"rbln_pool": "npu_nodes"}
    with part.case("Remove without an answer removes nothing: AWX refuses it, and so does the playbook"):
        asked = controller.api.surveys[("job_templates", controller.api.named("job_templates", "NPU Remove")["id"])]
        assert [(one["required"], one["min"]) for one in asked["spec"]] == [(True, 1)]
        for empty in ("", " "):
            job = controller.launch("NPU Remove", {"rbln_pool": empty}, judged=False)
            assert job.code != 0 and not job.hosts, job.out[-3000:]
            assert "rbln_pool is " in " ".join(job.out.split()), job.out[-3000:]
    with part.case("Remove in check mode foretells it, and everything is still there"):
        job = controller.launch("NPU Remove", every, check=True).good(A, B)
        assert all(changed for _ok, changed, _bad in job.hosts.values()), job.hosts
        controller.launch("NPU Validate").good(A, B)
    with part.case("Remove with a limit, then of all, then with nothing to do"):
        controller.launch("NPU Remove", every, limit=A).good(A)
        controller.launch("NPU Validate", limit=B).good(B)
        job = controller.launch("NPU Remove", every).good(A, B)
        assert job.hosts[B][1] > 0 == job.hosts[A][1], job.hosts
        controller.launch("NPU Remove", every).unchanged(A, B)


def credential(part: Part, api: Api, folder: Path, hosts: Hosts) -> None:
    """K11-kubeconfig-content: the file of the job is read, and nothing that AWX keeps or shows has the token."""
    where = inventory(folder / "hosts.json", [A], hosts.variables)
    controller = Controller(api, folder / "secret", json.loads(where.read_text()))
    template = api.named("job_templates", "NPU Plan")
    api.links[("job_templates", template["id"], "credentials")] = [api.named("credentials", "NPU kubeconfig")["id"]]
    with part.case("K11-kubeconfig-content by a credential of AWX"):
        job = controller.launch("NPU Plan", verbosity=3)
        assert "STOP  controller: " in job.out and "https://127.0.0.1:9 cannot be reached" in job.out, job.out[-3000:]
        kept = [path for path in job.files() if TOKEN in path.read_text(errors="replace")]
        assert TOKEN not in job.out and kept == [], kept


def main() -> int:
    proof = Proof("awx")
    if os.geteuid():
        proof.say("the hosts of the lab need root. Next: sudo make proof-awx")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    api = Api(PROJECT)
    hosts: Hosts | None = None
    try:
        with tempfile.TemporaryDirectory(prefix="npu-awx-") as name:
            INPUTS["rbln_awx_output"] = "%s/output" % name
            with Server(api) as server, proof.part("objects") as part:
                objects(part, api, server)
            with proof.part("jobs") as part:
                hosts = Hosts(Lab(), KINDS, kube=False)
                hosts.virgin()
                jobs(part, api, Path(name), hosts)
            with proof.part("credential") as part:
                assert hosts is not None, "there are no hosts"
                credential(part, api, Path(name), hosts)
    finally:
        if hosts is not None:
            hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
