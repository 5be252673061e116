# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays of site.yml that take nodes out of service, against a real API server; the host part is stood in for."""

from __future__ import annotations

import copy
import datetime
import http.server
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.integration._api_server import NAMESPACE, ApiServer, Data, patient
from tests.lab._base import until
from tests.tools import commands
from tests.tools.paths import ROOT

UUID = "aaaaaaaa-0000-4000-8000-00000000000%d"
NODES = ("node-1", "node-2", "node-3")
NPUS = 2
STATE = "rebellions.ai/npu-driver-upgrade-state"
TAINT = "rebellions.ai/npu-driver-upgrade-failed"
REASON = "rebellions.ai/npu-rollout.reason"
AUDITED = "rollout-token"
ROLES = ("Container toolkit", "Validation")
STEP = {
    "id": "driver.install", "role": "driver", "component": "driver", "now": "3.2.2", "wanted": "3.4.0",
    "disruption": "evict", "reason": "Another version.", "after": "", "vendor": "rebellions",
}  # fmt: skip
FACTS: Data = {
    "rbln_observed": {"passed": True, "markers": {"current": True, "present": []}},
    "rbln_runtimes": {},
    "rbln": {
        "pool_key": "ubuntu_24_04_k6_8_0",
        "npus": [{"product": "RBLN-CA22", "family": "ATOM"}] * NPUS,
        "counts": {"cards": NPUS, "functions": NPUS, "devices": NPUS, "usable": NPUS},
        "driver": {"version_loaded": "3.2.2"},
    },
}


def plays() -> list[Data]:
    """Those of site.yml from the cut of the waves on; a task stands for the roles of the host part."""
    site = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
    _discover, preflight, hosts, cluster, result = copy.deepcopy(site)
    cut = [task for task in preflight["tasks"] if task["name"] == "Cut the waves"]
    identity = "{{ {'system_uuid': uuid, 'machine_id': uuid | replace('-', ''), 'node_name': inventory_hostname} }}"
    plan = {
        "steps": "{{ [step] if to_do | default(true) else [] }}",
        "roles": "{{ ['driver'] if to_do | default(true) else [] }}",
        "stops": [],
        "cautions": [],
        "wanted": {"rbln_driver_version": "3.4.0", "rbln_driver_services": []},
    }
    observation = {"ansible_facts": {**FACTS, "rbln": {**FACTS["rbln"], "identity": identity}}}
    # The plan of a host without steps does not repeat its observation.
    facts = {
        "rbln_discover_observation": observation,
        "rbln_preflight_plan": plan,
        "rbln_preflight_opened": {"problems": [], "unfinished": "{{ left }}", "given_back": "{{ back | default([]) }}"},
    }
    preflight["tasks"] = [{"name": "Plan", "ansible.builtin.set_fact": facts}, *cut]
    change = hosts["tasks"][1]
    change["block"] = [task for task in change["block"] if task["name"] not in ROLES]
    (driver,) = [task for task in change["block"] if task["name"] == "Driver"]
    del driver["ansible.builtin.include_role"]
    driver["ansible.builtin.shell"] = "echo {{ inventory_hostname }} >> {{ inventory_dir }}/done; {{ act }}"
    cluster["tasks"] = [task for task in cluster["tasks"] if "rebellions.npu.rbln_operands" not in str(task)]
    return [preflight, hosts, cluster, result]


class Site:
    def __init__(self, api: ApiServer, home: Path) -> None:
        self.api, self.home = api, home
        (home / "site.yml").write_text(yaml.safe_dump(plays(), sort_keys=False))

    def argv(
        self, *argv: str, hosts: t.Mapping[str, Data] | None = None, user: str = "admin", **inputs: t.Any
    ) -> list[str]:
        own: dict[str, Data] = {
            name: {"uuid": UUID % number, **(hosts or {}).get(name, {})} for number, name in enumerate(NODES, 1)
        }
        group = {
            "hosts": own,
            "vars": {
                "ansible_connection": "local",
                "ansible_become": False,
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
                "rbln_kubeconfig": str(self.api.home / (user + ".kubeconfig")),
                # After a kill the next run waits for it.
                "rbln_operands_lease_duration": 6,
                "step": STEP,
                "left": [],
                "act": "true",
                **{"rbln_rollout_" + key: value for key, value in inputs.items()},
            },
        }
        (self.home / "hosts.yml").write_text(yaml.safe_dump({"npu_nodes": group}))
        (self.home / "done").write_text("")
        return ["ansible-playbook", "-i", str(self.home / "hosts.yml"), str(self.home / "site.yml"), *argv]

    def run(self, *argv: str, **more: t.Any) -> tuple[int, str]:
        env = dict(os.environ, XDG_CACHE_HOME=str(self.home / "cache"), ANSIBLE_NOCOLOR="1")
        words = self.argv(*argv, **more)
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=patient(180), check=False)
        return done.returncode, done.stdout + done.stderr

    def changed(self) -> list[str]:
        """The hosts whose host part ran, in this order."""
        return (self.home / "done").read_text().split()

    def node(self, name: str) -> Data:
        return self.api._call("GET", "/api/v1/nodes/" + name)

    def state(self, name: str) -> tuple[str, bool, bool]:
        """(label, cordoned, tainted)."""
        node = self.node(name)
        taints = [one["key"] for one in node["spec"].get("taints", [])]
        cordoned = bool(node["spec"].get("unschedulable"))
        return node["metadata"].get("labels", {}).get(STATE, ""), cordoned, TAINT in taints

    def record(self) -> Data:
        found = self.api._call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/rbln-rollout")
        data: Data = json.loads(found["data"]["run"])
        return data

    def clean(self) -> None:
        for name in NODES:
            node = self.node(name)
            labels = {STATE: None}
            notes = {key: None for key in node["metadata"].get("annotations", {}) if "npu-rollout" in key}
            body = {
                "metadata": {"labels": labels, "annotations": notes},
                "spec": {"unschedulable": None, "taints": None},
            }
            self.api._call("PATCH", "/api/v1/nodes/" + name, body)
        self.api._call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/rbln-rollout")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    api = ApiServer(tmp_path_factory.mktemp("api") / "home", ("lowly",), audited=AUDITED)
    try:
        api.start()
        for number, name in enumerate(NODES, 1):
            api.add_node(name, UUID % number, NPUS)
        rules = ["--verb=get,list,patch", "--resource=nodes"]
        api.kubectl("create", "clusterrole", "lowly", *rules)
        api.kubectl("create", "clusterrolebinding", "lowly", "--clusterrole=lowly", "--user=lowly")
        yield api
    finally:
        api.stop()


@pytest.fixture
def site(server: ApiServer, tmp_path: Path) -> t.Iterator[Site]:
    found = Site(server, tmp_path)
    yield found
    found.clean()


UPGRADE = ("-e", "__rbln_rollout_upgrade=true")
# What kubectl says when it has understood a command, and what it names is not there.
ABSENT = re.compile(r"\(NotFound\)|^No resources found|have a resource type \"rblnclusterpolicies\"")
BACK = ("upgrade-done", False, False)


def test_nodes_go_in_waves_come_back_and_a_second_run_changes_nothing(site: Site, server: ApiServer) -> None:
    code, told = site.run("--check", "-v", *UPGRADE, waves=[1, "100%"])
    assert code == 0 and site.changed() == [], told
    # The driver is told which pods are no users by then.
    assert told.count('"leaving": []') == len(NODES), told
    assert {site.state(name) for name in NODES} == {("", False, False)}
    since = len(server.asked())
    code, text = site.run(*UPGRADE, user=AUDITED, waves=[1, "100%"], max_unavailable=2)
    assert code == 0, text
    assert site.changed()[0] == "node-1" and sorted(site.changed()) == list(NODES)
    assert {site.state(name) for name in NODES} == {BACK}
    assert "Rollout: 3 done, 0 failed, 0 left as they are" in text
    assert [wave for pool in site.record()["pools"].values() for wave in pool["waves"]] == [
        ["node-1"],
        ["node-2", "node-3"],
    ]
    asked = server.asked()[since:]
    # The API server is asked what it serves, and which rights the account has, once a run.
    shared = ("selfsubject", "/api", "/version")
    of_nodes = [one for one in asked if not one[1].startswith(shared)]
    begin = next(at for at, one in enumerate(of_nodes) if one[2] in NODES)
    assert len(of_nodes) - begin <= 12 * len(NODES), of_nodes
    for line in commands.table(ROOT)["cluster"]:
        argv = shlex.split(line)
        assert argv[0] == "kubectl"
        assert server.kubectl(*argv[1:]).stdout.strip(), line
    proving = [line for line in commands.of_tree(ROOT) if line.startswith("kubectl ")]
    assert len(proving) > 10
    for line in proving:
        values = {"PATH": str(server.home / "admin.kubeconfig"), "NODE": "node-1"}
        said = server.shell(commands.filled(line, **values))
        assert all(ABSENT.search(told) for told in said.stderr.splitlines()), (line, said.stderr)
        assert said.stdout or said.stderr, line
    before = [site.node(name)["metadata"]["resourceVersion"] for name in NODES]
    code, text = site.run(*UPGRADE, hosts={name: {"to_do": False} for name in NODES})
    assert code == 0 and site.changed() == [] and "changed=0" in text, text
    assert [site.node(name)["metadata"]["resourceVersion"] for name in NODES] == before


def test_U03_drain_failed_a_node_whose_host_part_fails_stays_out_and_the_others_do_not_begin(site: Site) -> None:
    code, text = site.run(*UPGRADE, hosts={"node-1": {"act": "false"}})
    assert code == 2 and site.changed() == ["node-1"], text
    assert site.state("node-1") == ("upgrade-failed", True, True)
    assert "Driver" in site.node("node-1")["metadata"]["annotations"][REASON]
    assert {site.state(name) for name in NODES[1:]} == {("", False, False)}
    red = dict(re.findall(r"^fatal: \[([^\]]+)\]: FAILED! => (.*node-1.*)$", text, re.M))
    assert sorted(red) == list(NODES), text
    assert "stays cordoned, with the taint" in red["node-1"] and "failure_budget" in red["node-2"]
    assert "Rollout: 0 done, 1 failed, 2 left as they are" in text
    # Repaired by hand: its plan is empty, and it is put back; the others follow.
    repaired = {"node-1": {"to_do": False}}
    code, text = site.run(*UPGRADE, "-e", '{"left": ["node-1"]}', hosts=repaired)
    assert code == 0 and sorted(site.changed()) == ["node-2", "node-3"], text
    assert {site.state(name) for name in NODES} == {BACK}


def test_U03_drain_failed_a_node_that_cannot_be_drained_is_given_back(site: Site, server: ApiServer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "a", "image": "x", "resources": {"limits": {"rebellions.ai/npu": "1"}}}],
        },
    }
    server._call("POST", "/api/v1/namespaces/default/pods", pod)
    try:
        told = site.run("--check", *UPGRADE)[1]
        code, text = site.run(*UPGRADE, failure_budget=0)
        refused = site.run(hosts={name: {"to_do": name == "node-1"} for name in NODES})
    finally:
        server._call("DELETE", "/api/v1/namespaces/default/pods/alone", {"gracePeriodSeconds": 0})
    assert "default/alone" in told, told
    assert code == 2 and sorted(site.changed()) == [] and "default/alone" in text, text
    assert site.state("node-1") == ("upgrade-failed", False, False)
    assert {site.state(name) for name in NODES[1:]} == {BACK}
    assert "The host was not changed" in text
    # site evicts nothing by itself.
    assert refused[0] == 2 and "rbln_rollout_pods" in refused[1]
    # Its host has nothing left to do: the node no longer says that it failed.
    idle = {name: {"to_do": False} for name in NODES}
    code, text = site.run(*UPGRADE, "-e", '{"back": ["node-1"]}', hosts=idle)
    assert code == 0 and site.state("node-1") == BACK and "changed=1 " in text, text
    assert REASON not in site.node("node-1")["metadata"]["annotations"]


def test_U02_state_lost_a_run_that_was_killed_is_finished_by_the_next(site: Site) -> None:
    words = site.argv(*UPGRADE, hosts={"node-1": {"act": "sleep 60"}})
    env = dict(os.environ, ANSIBLE_NOCOLOR="1")
    with open(site.home / "killed.log", "wb") as log:
        killed = subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            until(patient(60), "the host part", lambda: site.changed() == ["node-1"])
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
    assert site.state("node-1") == ("host-change-required", True, False)
    # The host part had ended: the plan is empty now, and the node carries our state.
    code, text = site.run(*UPGRADE, "-e", '{"left": ["node-1"]}', hosts={"node-1": {"to_do": False}})
    assert code == 0, text
    assert sorted(site.changed()) == ["node-2", "node-3"] and {site.state(name) for name in NODES} == {BACK}


def test_what_cannot_work_is_one_message_before_a_node_is_touched(site: Site) -> None:
    before = [site.node(name)["metadata"]["resourceVersion"] for name in NODES]
    for user, inputs, told in (
        ("admin", {"waves": [5, 2]}, "rbln_rollout_waves"),
        ("lowly", {}, "lacks rights: "),
    ):
        code, text = site.run(*UPGRADE, user=user, **inputs)
        assert code == 2 and told in text and text.count("fatal: [") == 1, text
        assert " Next: " in text and site.changed() == []
    assert [site.node(name)["metadata"]["resourceVersion"] for name in NODES] == before


def test_a_cordon_of_another_is_left_alone_and_the_hooks_run(site: Site, server: ApiServer) -> None:
    for name in ("before", "after"):
        task = {
            "name": "Note",
            "ansible.builtin.shell": "echo %s-{{ inventory_hostname }} >> {{ inventory_dir }}/done" % name,
        }
        (site.home / (name + ".yml")).write_text(yaml.safe_dump([task]))
    hooks = {name: str(site.home / (name + ".yml")) for name in ("before", "after")}
    server.kubectl("cordon", "node-2")
    code, text = site.run(*UPGRADE, "--limit", "node-1,node-2", **hooks)
    assert code == 0, text
    assert site.changed() == ["before-node-1", "node-1", "after-node-1"]
    assert site.state("node-2") == ("", True, False)
    assert "left    node-2: It was left out" in text


def test_a_hook_after_the_uncordon_that_fails_is_told_at_the_end_and_the_node_is_back(site: Site) -> None:
    hook = site.home / "after.yml"
    words = {"msg": "The job system is away. Next: Start it."}
    task = {"name": "Resume", "ansible.builtin.fail": words, "when": "inventory_hostname == 'node-1'"}
    hook.write_text(yaml.safe_dump([task]))
    code, text = site.run(*UPGRADE, waves=[1, "100%"], after=str(hook))
    assert code == 2 and sorted(site.changed()) == list(NODES), text
    assert {site.state(name) for name in NODES} == {BACK}
    assert {one["state"] for one in site.record()["nodes"].values()} == {"upgrade-done"}
    result = text.partition("PLAY [5 Result]")[2]
    assert re.findall(r"^fatal: \[([^\]]+)\]", result, re.M) == ["node-1"], text
    assert "Resume: The job system is away. Next: Start it." in result
    assert "Rollout: 2 done, 1 failed, 0 left as they are" in text


def test_a_reboot_that_a_person_has_to_do_is_no_failure_and_the_next_wave_waits_for_it(site: Site) -> None:
    due = {"node-1": {"rbln_driver_reboot_required": True}}
    code, text = site.run(*UPGRADE, hosts=due, waves=[2, "100%"], max_unavailable=2)
    assert code == 2 and sorted(site.changed()) == ["node-1", "node-2"], text
    assert site.state("node-1") == ("reboot-required", True, False) and site.state("node-2") == BACK
    assert site.state("node-3") == ("", False, False)
    red = dict(re.findall(r"^fatal: \[([^\]]+)\]: FAILED! => (.*)$", text, re.M))
    assert list(red) == ["node-3"], text
    assert "Wave 1 is not proven yet: node-1 has to be rebooted by a person. Next: Reboot node-1" in red["node-3"]
    assert "Rollout: 1 done, 0 failed, 1 left as they are" in text and "  reboot  node-1: " in text
    more = {"node-1": {"to_do": False}, "node-2": {"to_do": False}}
    code, text = site.run(*UPGRADE, "-e", '{"left": ["node-1"]}', hosts=more, waves=[2, "100%"], max_unavailable=2)
    assert code == 0 and site.changed() == ["node-3"], text
    assert {site.state(name) for name in NODES} == {BACK}


def test_a_foreign_cordon_that_takes_the_last_place_is_waited_for_as_long_as_the_limit_says(
    site: Site, server: ApiServer
) -> None:
    labels = ("ID=ubuntu", "VERSION_ID=24.04")
    of_pool = ["feature.node.kubernetes.io/system-os_release." + one for one in labels]
    of_pool.append("feature.node.kubernetes.io/kernel-version.full=6.8.0")
    server.kubectl("label", "--overwrite", "node", "node-3", *of_pool)
    server.kubectl("cordon", "node-3")
    pace = {"max_unavailable": 1, "waves": [], "slot_timeout": "6s"}
    code, text = site.run("--limit", "node-1", **pace)
    server.kubectl("label", "node", "node-3", *(one.partition("=")[0] + "-" for one in of_pool))
    assert code == 2 and site.changed() == [] and site.state("node-1") == ("", False, False), text
    assert re.search(r"No node began or ended for \d+ s: .*node-3 is cordoned. Next: Remove the cause", text), text


def test_hosts_that_would_wait_for_each_other_are_refused(site: Site) -> None:
    """The README says which keywords the play needs; without them none but the first could ever begin."""
    book = yaml.safe_load((site.home / "site.yml").read_text())
    book[1].update(hosts="npu_nodes", strategy="linear")
    del book[1]["serial"]
    (site.home / "site.yml").write_text(yaml.safe_dump(book, sort_keys=False))
    code, text = site.run(waves=[1, "100%"])
    assert code == 2 and site.changed() == [] and {site.state(name) for name in NODES} == {("", False, False)}, text
    assert "takes hosts of the waves 1, 2 at once. Next: Give the play" in text
    code, text = site.run(max_parallel=1)
    # All three ask at the same moment, and any of them may be the one that begins.
    (first,) = site.changed()
    assert code == 2 and site.state(first) == BACK, text
    for left in sorted({*NODES} - {first}):
        told = "max_parallel is 1: %s. The play has the strategy linear, in which %s waits for %s"
        assert told % (first, first, left) in text


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Stands in for it: one query, whose only sample is `value`."""

    value = "0"
    asked: t.ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        sample = {"metric": {}, "value": [0, Prometheus.value]}
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [sample]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


def test_a_wave_waits_for_its_soak_for_a_person_and_for_the_query(site: Site, server: ApiServer) -> None:
    Prometheus.value = "0"
    Prometheus.asked.clear()
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    query = {"url": "http://127.0.0.1:%d" % http_server.server_port, "query": "errors == bool 0"}
    words = site.argv(*UPGRADE, waves=[1, "100%"], soak="8s", approval=True, metrics=query, max_unavailable=2)
    # Ansible leaves it to Python when a line comes, and the test reads them.
    env = dict(os.environ, ANSIBLE_NOCOLOR="1", PYTHONUNBUFFERED="1")
    with open(site.home / "run.log", "wb") as log:
        run = subprocess.Popen(words, stdout=log, stderr=log, env=env)
    record = ("-n", NAMESPACE, "configmap", "rbln-rollout")
    try:
        until(patient(60), "the first wave", lambda: site.state("node-1") == BACK)
        ended = time.monotonic()
        told = site.home / "run.log"
        until(patient(40), "the wait for a person", lambda: "wave 2 is not approved" in told.read_text())
        assert time.monotonic() - ended > 4 and site.changed() == ["node-1"] and Prometheus.asked == []
        server.kubectl("annotate", *record, "rebellions.ai/npu-rollout.approved=2")
        until(patient(40), "the query", lambda: len(Prometheus.asked) >= 2)
        assert site.changed() == ["node-1"] and run.poll() is None
        Prometheus.value = "1"
        assert run.wait(patient(90)) == 0, told.read_text()
    finally:
        run.kill()
        run.wait()
        http_server.shutdown()
    assert sorted(site.changed()) == list(NODES) and {site.state(name) for name in NODES} == {BACK}
    assert "query=errors" in Prometheus.asked[0]
    ends = {name: one["since"] for name, one in site.record()["nodes"].items()}
    first = datetime.datetime.fromisoformat(ends["node-1"][:-1])
    assert all((datetime.datetime.fromisoformat(ends[name][:-1]) - first).total_seconds() >= 8 for name in NODES[1:])
