# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role rbln_operands by Ansible against a real API server: install, change, conflict, refusal, removal."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.integration._api_server import NAMESPACE, ApiServer, Data, patient

WORK = "Work for the cluster"
UUIDS = {
    "a": "aaaaaaaa-0000-4000-8000-000000000001",
    "b": "bbbbbbbb-0000-4000-8000-000000000002",
    "lonely": "dddddddd-0000-4000-8000-000000000004",
}
# Of the nodes.
ADDRESSES = {"a": "192.0.2.1", "b": "192.0.2.2"}
NPUS = 2
TAINT = "team=ml:NoExecute"
# Of a user who may do everything, and in no output.
TOKEN = "rep-secret-token"
FACTS = {
    "rbln_observed": {"passed": True, "markers": {"current": True, "present": []}},
    "rbln": {
        "npus": [{"product": "RBLN-CA22", "family": "ATOM"}] * NPUS,
        "counts": {"cards": NPUS, "functions": NPUS, "devices": NPUS, "usable": NPUS},
        "driver": {"version_loaded": "3.2.2"},
        "identity": {
            "system_uuid": "{{ uuid }}",
            "machine_id": "{{ uuid | replace('-', '') }}",
            "node_name": "{{ inventory_hostname }}",
        },
    },
    "cacheable": True,
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api") / "home", ("lowly",), audited=TOKEN)
    try:
        server.start()
        for name in ("a", "b"):
            server.add_node("node-" + name, UUIDS[name].upper(), NPUS, ADDRESSES[name])
        server.add_node("node-c", "cccccccc-0000-4000-8000-000000000003", 0)
        yield server
    finally:
        server.stop()


class Run(t.NamedTuple):
    """Exit code, what each task returned by task name and host, and the PLAY RECAP by host."""

    code: int
    tasks: dict[str, dict[str, Data]]
    stats: dict[str, Data]
    text: str

    def judged(self, host: str) -> Data:
        return self.tasks["Judge the host"][host]

    def changed(self) -> list[str]:
        return sorted(
            name for name, hosts in self.tasks.items() if any(result.get("changed") for result in hosts.values())
        )


@pytest.fixture
def play(api: ApiServer, tmp_path: Path) -> t.Callable[..., Run]:
    def start(
        *argv: str,
        kubelet: bool = True,
        skip: t.Sequence[str] = (),
        absent: t.Sequence[str] = (),
        own: t.Mapping[str, Data] | None = None,
        forged: Data | None = None,
        strategy: str = "linear",
        environment: t.Mapping[str, str] | None = None,
        home: Path | None = None,
        **inputs: t.Any,
    ) -> Run:
        """`own` are variables of single hosts, `forged` facts that the host a sets; with free, b comes last.

        The inventory lacks the hosts of `absent`, as that of a job slice of AWX lacks those of the other slices.
        """
        shared = {
            "rbln_operands_wait_timeout": patient(25),
            "rbln_operands_wait_delay": 1,
            **{"rbln_operands_" + key: value for key, value in inputs.items()},
        }
        hosts: Data = {name: {"uuid": uuid} for name, uuid in UUIDS.items()}
        hosts["lonely"]["rbln_kubeconfig"] = ""
        for host in absent:
            del hosts[host]
        for host in skip:
            hosts[host]["skip"] = True
        for host, variables in (own or {}).items():
            hosts[host].update(variables)
        group = {
            "hosts": hosts,
            "vars": {"ansible_connection": "local", "rbln_kubeconfig": str(api.home / "admin.kubeconfig"), **shared},
        }
        role = {
            "name": "Operands",
            "ansible.builtin.include_role": {"name": "rebellions.npu.rbln_operands"},
            "when": "skip is not defined",
        }
        tasks: list[Data] = [{"name": "Facts", "ansible.builtin.set_fact": FACTS}, role]
        if forged:
            fact = {"ansible.builtin.set_fact": {**forged, "cacheable": True}}
            tasks.insert(1, {"name": "Forge", **fact, "when": "inventory_hostname == 'a'"})
        if strategy == "free":
            slow = {"msg": "{{ lookup('ansible.builtin.pipe', 'sleep 8') }}"}
            task = {"ansible.builtin.debug": slow, "when": "inventory_hostname == 'b'"}
            tasks.insert(1, {"name": "One host is slower, as hosts are", **task})
        (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"npu_nodes": group}))
        (tmp_path / "play.yml").write_text(
            yaml.safe_dump(
                [
                    {
                        "name": "Play",
                        "hosts": "npu_nodes",
                        "gather_facts": False,
                        "strategy": strategy,
                        "environment": dict(environment or {}),
                        "tasks": tasks,
                    }
                ],
                sort_keys=False,
            )
        )
        words = ["ansible-playbook", "-i", str(tmp_path / "inventory.yml"), str(tmp_path / "play.yml"), *argv]
        env = dict(os.environ, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json", **({"HOME": str(home)} if home else {}))
        over = threading.Event()
        helper = threading.Thread(target=_kubelet, args=(api, over))
        if kubelet:
            helper.start()
        try:
            done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=patient(180), check=False)
        finally:
            over.set()
            if kubelet:
                helper.join()
        data = json.loads(done.stdout[done.stdout.index("{") :])
        results: dict[str, dict[str, Data]] = {}
        for task in data["plays"][0]["tasks"]:
            results.setdefault(task["task"]["name"].split(" : ")[-1], {}).update(task["hosts"])
        return Run(done.returncode, results, data["stats"], done.stdout + done.stderr)

    return start


def _kubelet(api: ApiServer, over: threading.Event) -> None:
    while not over.wait(0.7):
        api.play_kubelet()


def labels(api: ApiServer, name: str) -> dict[str, str]:
    return {
        key: value
        for key, value in api.get("node", name)["metadata"].get("labels", {}).items()
        if key.startswith("rebellions.ai/")
    }


def test_check_mode_on_a_virgin_cluster_changes_nothing(api: ApiServer, play: t.Callable[..., Run]) -> None:
    run = play("--check", "--diff", kubelet=False)
    assert run.code == 0
    assert run.changed() == [WORK]
    assert NAMESPACE not in [item["metadata"]["name"] for item in api.get("namespaces")["items"]]
    assert labels(api, "node-a") == {}


def foretold(told: Run, real: Run, exists: bool = True) -> None:
    """Whether check mode said of each object, label and field what the run did; `exists` is about the namespace."""
    assert (told.code, real.code) == (0, 0), told.text[-2000:] + real.text[-2000:]
    assert told.changed() == real.changed() == [WORK]
    before, after = told.tasks[WORK]["a"], real.tasks[WORK]["a"]
    assert before["objects"] == after["objects"] and len(after["objects"]) > 5
    assert before["nodes"] == after["nodes"] and set(after["nodes"]) == {"a", "b"}
    diffs = [{one["after_header"]: one for one in run["diff"]} for run in (before, after)]
    assert set(diffs[0]) == set(diffs[1]) and diffs[1]
    # The API server shows no object of a namespace that does not exist yet.
    assert not exists or diffs[0] == diffs[1]


def test_from_nothing_to_proven_and_again_without_a_change(api: ApiServer, play: t.Callable[..., Run]) -> None:
    told, first = play("--check", "--diff", kubelet=False), play("--diff")
    foretold(told, first, exists=False)
    assert told.tasks[WORK]["a"]["nodes"]["a"]["after"] == labels(api, "node-a")
    assert set(first.judged("b")["result"]["objects"].values()) == {"created"}
    assert first.judged("b")["result"]["allocatable"]["settled"] is True
    assert first.judged("lonely")["result"]["cluster"] == ""
    assert labels(api, "node-b")["rebellions.ai/npu.count"] == "2"
    assert labels(api, "node-c") == {}
    second = play()
    assert (second.code, second.changed()) == (0, [])
    assert set(second.judged("a")["result"]["objects"].values()) == {"unchanged"}
    assert second.tasks[WORK]["a"]["requests"] == 13


def test_a_slice_changes_nothing_and_needs_no_first_host(play: t.Callable[..., Run]) -> None:
    run = play("--limit", "b,lonely")
    assert (run.code, run.changed()) == (0, [])
    assert run.judged("b")["result"]["acted_by"] == "b"


@pytest.mark.parametrize("here", ["a", "b"])
def test_a_job_slice_of_awx_leaves_the_cluster_as_all_hosts_have_made_it(
    api: ApiServer, play: t.Callable[..., Run], here: str
) -> None:
    """The inventory of a slice has no other host: no selector shrinks, and their nodes keep their labels."""
    sets = {one["metadata"]["name"]: one for one in api.get("daemonsets.apps", "-n", NAMESPACE)["items"]}
    before, kept = versions(api), {name: one["spec"] for name, one in sets.items()}
    run = play(absent=[host for host in UUIDS if host != here])
    assert (run.code, run.changed(), list(run.stats)) == (0, [], [here]), run.text[-2000:]
    found = {one["metadata"]["name"]: one["spec"] for one in api.get("daemonsets.apps", "-n", NAMESPACE)["items"]}
    assert len(kept) >= 2 and found == kept and versions(api) == before
    assert [labels(api, "node-" + name)["rebellions.ai/npu.count"] for name in ("a", "b")] == ["2", "2"]


def test_a_host_that_skips_the_role_does_not_act(play: t.Callable[..., Run]) -> None:
    run = play(skip=["a"])
    assert (run.code, run.changed()) == (0, [])
    assert "a" not in run.tasks["Judge the host"]
    assert run.judged("b")["result"]["acted_by"] == "b"


LIE = {"uuid": UUIDS["b"]}
PROVEN = {"ansible_host": ADDRESSES["b"]}


def versions(api: ApiServer) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in api.get("nodes")["items"]}


def test_a_host_that_claims_the_node_of_another_stops_alone(api: ApiServer, play: t.Callable[..., Run]) -> None:
    api.kubectl("label", "node", "node-b", "rebellions.ai/npu.count-")
    before = api.get("node", "node-a")["metadata"]["resourceVersion"]
    run = play(own={"a": LIE, "b": PROVEN})
    assert run.code != 0
    assert "a says that it is the node 'node-b', which is that of b by its address" in run.judged("a")["msg"]
    assert " Next: Find out why a says so" in run.judged("a")["msg"]
    assert run.judged("b").get("failed") is not True and run.judged("b")["result"]["node"]["proof"] == "address"
    assert labels(api, "node-b")["rebellions.ai/npu.count"] == "2"
    assert api.get("node", "node-a")["metadata"]["resourceVersion"] == before
    # The same when the honest host is not of the run; nor does the host get it that says so at its own address.
    before_all = versions(api)
    for liar in ({}, {"ansible_host": ADDRESSES["a"]}):
        alone = play("--limit", "a", own={"a": {**LIE, **liar}, "b": PROVEN})
        assert alone.code != 0 and "node-b" in alone.judged("a")["msg"]
    assert versions(api) == before_all


def test_without_a_proof_no_one_of_two_hosts_gets_a_node(api: ApiServer, play: t.Callable[..., Run]) -> None:
    before = versions(api)
    run = play(own={"a": LIE})
    for host in ("a", "b"):
        assert "The hosts a, b were all found to be the node 'node-b'." in run.judged(host)["msg"]
    strict = play(require_node_proof=True, own={"b": PROVEN})
    assert "nothing in the inventory proves it" in strict.judged("a")["msg"]
    assert strict.judged("b").get("failed") is not True
    assert versions(api) == before


def test_facts_are_neither_inputs_nor_records_of_hosts(api: ApiServer, play: t.Callable[..., Run]) -> None:
    own = versions(api)["node-a"]
    run = play(forged={"rbln_node_name": "node-b"}, own={"b": PROVEN})
    before = versions(api)
    assert before["node-a"] == own
    refused = run.tasks["Read the inputs of this host"]["a"]
    assert refused["failed"] is True and "rbln_node_name" in refused["msg"]
    assert run.judged("b").get("failed") is not True
    stolen = {"host": "b", "cluster": str(api.home / "admin.kubeconfig"), "node_name": "node-b", "labels": {"x": "y"}}
    forged = {"__rbln_operands_member": {"member": {**stolen, "digest": ""}, "work": "absent"}}
    skipped = play(forged=forged, skip=["a"], own={"b": PROVEN})
    assert skipped.code == 0, skipped.text[-3000:]
    assert skipped.judged("b")["result"]["acted_by"] == "b"
    assert versions(api) == before


def test_K23_strategy_free_no_host_passes_that_nobody_worked_for(play: t.Callable[..., Run]) -> None:
    run = play(strategy="free")
    # Where several tasks run at a time, the callback has results of b under names of others.
    failed = [result["msg"] for hosts in run.tasks.values() for name, result in hosts.items() if result.get("failed")]
    assert run.code != 0 and run.stats["a"]["failures"] == 0, failed
    assert len(failed) == 1 and failed[0].startswith("b: a acted for the cluster without this host."), failed
    assert "Next: Give the play the strategy linear" in failed[0]


def test_any_number_that_a_node_offers_is_read(api: ApiServer, play: t.Callable[..., Run]) -> None:
    def offer(number: int) -> str:
        amounts = {"allocatable": {"rebellions.ai/npu": str(number)}, "capacity": {"rebellions.ai/npu": str(number)}}
        patch = json.dumps({"status": amounts})
        api.kubectl("patch", "node", "node-b", "--subresource=status", "--type=merge", "-p", patch)
        return str(api.get("node", "node-b")["status"]["allocatable"]["rebellions.ai/npu"])

    assert offer(1000) == "1k"
    try:
        run = play(wait_timeout=patient(8))
    finally:
        offer(NPUS)
    assert "node node-b: 1000 rebellions.ai/npu allocatable, 2 expected" in run.judged("b")["msg"]
    assert run.judged("a").get("failed") is not True


def test_every_changed_input_is_one_apply(play: t.Callable[..., Run]) -> None:
    fast = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    given = {"device_plugin": {"env": {"LOG": "debug"}, "update_strategy": fast}}
    told, run = play("--check", "--diff", kubelet=False, **given), play("--diff", **given)
    foretold(told, run)
    objects = run.judged("a")["result"]["objects"]
    assert [name for name, action in objects.items() if action != "unchanged"] == [
        "DaemonSet rbln-system/rbln-device-plugin"
    ]


def test_P01_toleration_mismatch_names_taint_and_node_of_one_host(api: ApiServer, play: t.Callable[..., Run]) -> None:
    api.kubectl("taint", "node", "node-a", TAINT)
    try:
        api.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--wait=false")
        limit = patient(13)
        run = play(wait_timeout=limit)
    finally:
        api.kubectl("taint", "node", "node-a", "team-")
    assert run.code != 0
    waits = re.findall(r"^validator: (\d) of 2 nodes ready, \d+ of %d s: (.*)$" % limit, run.text, re.M)
    # Every ten seconds one line; on a loaded machine the first may find neither node ready.
    assert 1 <= len(waits) <= limit // 10 and waits[-1][0] == "1" and TAINT in waits[-1][1], run.text[-3000:]
    # What fails is said of each host, and by no other task.
    assert run.tasks[WORK]["a"]["waited"]["ok"] is False and run.tasks[WORK]["a"].get("failed") is not True
    assert "node node-a: the taint team=ml:NoExecute is not tolerated" in run.judged("a")["msg"]
    assert run.judged("b").get("failed") is not True


def test_a_gate_of_an_administrator_stays(api: ApiServer, play: t.Callable[..., Run]) -> None:
    gate = "rebellions.ai/npu.deploy.device-plugin"
    api.kubectl("label", "node", "node-b", gate + "=false", "--overwrite")
    try:
        run = play(wait=False)
        assert labels(api, "node-b")[gate] == "false"
        assert any("set by another manager" in note for note in run.judged("b")["result"]["node"]["notes"])
    finally:
        api.kubectl("label", "node", "node-b", gate + "-")
    assert play(wait=False).changed() == [WORK]


def test_a_field_of_another_manager_is_a_conflict_until_forced(api: ApiServer, play: t.Callable[..., Run]) -> None:
    patch = json.dumps({"spec": {"template": {"spec": {"priorityClassName": "system-cluster-critical"}}}})
    api.kubectl("-n", NAMESPACE, "patch", "ds", "rbln-validator", "--type=merge", "--field-manager=helm", "-p", patch)
    run = play(wait=False)
    assert run.code != 0
    for host in ("a", "b"):
        assert (
            ".spec.template.spec.priorityClassName" in run.judged(host)["msg"] and '"helm"' in run.judged(host)["msg"]
        )
    assert run.judged("lonely").get("failed") is not True
    forced = play(wait=False, force_conflicts=True)
    assert (forced.code, forced.changed()) == (0, [WORK])


BAD = {
    "unknown field": (
        {"tolerations": [{"key": "x", "operatr": "Exists"}]},
        ["rbln_operands_tolerations[0]", "operatr", "operator"],
    ),
    "tag as a number": ({"device_plugin": {"image": {"tag": 3.2}}}, ["image.tag", "Quote it"]),
    "A04-string-bools wait as text": ({"wait": "false", "wait_timeout": "x"}, ["rbln_operands_wait_timeout"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_nothing_is_half_written(
    api: ApiServer, play: t.Callable[..., Run], case: str
) -> None:
    inputs, words = BAD[case]
    before = api.get("-n", NAMESPACE, "ds")["items"]
    run = play("--limit", "a", kubelet=False, **inputs)
    assert run.code != 0
    assert [word for word in words if word not in run.text] == []
    assert [item["metadata"]["generation"] for item in api.get("-n", NAMESPACE, "ds")["items"]] == [
        item["metadata"]["generation"] for item in before
    ]


def test_rights_that_are_missing_are_named(api: ApiServer, play: t.Callable[..., Run]) -> None:
    run = play("--limit", "a", "-e", "rbln_kubeconfig=%s" % (api.home / "lowly.kubeconfig"), kubelet=False)
    assert run.code != 0
    assert 'cannot list resource \\"nodes\\"' in run.text or 'cannot list resource "nodes"' in run.judged("a")["msg"]


def test_a_server_that_is_away_is_named(api: ApiServer, play: t.Callable[..., Run]) -> None:
    run = play("--limit", "a", "-e", "rbln_kubeconfig=%s" % api.write_kubeconfig("away", "admin", 9), kubelet=False)
    assert run.code != 0 and "https://127.0.0.1:9 cannot be reached" in run.judged("a")["msg"]


def test_the_pull_secret_never_shows(api: ApiServer, play: t.Callable[..., Run]) -> None:
    run = play(
        "--diff", "-vvv", wait=False, pull_secret_content={"auths": {"r.example": {"auth": "aHVudGVyMjpodW50ZXIy"}}}
    )
    assert run.code == 0 and "aHVudGVyMjpodW50ZXIy" not in run.text
    assert api.get("-n", NAMESPACE, "secret", "rbln-registry")["type"] == "kubernetes.io/dockerconfigjson"
    pruned = play(wait=False)
    assert pruned.judged("a")["result"]["objects"]["Secret rbln-system/rbln-registry"] == "deleted"


def config_of(api: ApiServer) -> str:
    return (api.home / (TOKEN + ".kubeconfig")).read_text()


@pytest.mark.parametrize("form", ["text", "mapping", "vaulted file"])
def test_k11_a_kubeconfig_as_content_is_used_and_never_shown(
    api: ApiServer, play: t.Callable[..., Run], form: str, tmp_path: Path
) -> None:
    """K11: no output and no result holds the token, and the cluster is not named by the content."""
    content: t.Any = yaml.safe_dump(json.loads(config_of(api))) if form == "text" else json.loads(config_of(api))
    words: list[str] = []
    if form == "vaulted file":
        (tmp_path / "password").write_text("word")
        content, words = str(tmp_path / "vaulted"), ["--vault-password-file", str(tmp_path / "password")]
        Path(content).write_text(config_of(api))
        subprocess.run(["ansible-vault", "encrypt", *words, content], check=True, capture_output=True)
    run = play("-vvv", "--limit", "a", *words, kubelet=False, wait=False, kubeconfig=content)
    assert run.code == 0, run.text[-3000:]
    assert TOKEN not in run.text and "server" not in run.judged("a")["result"]["cluster"]
    name = content if form == "vaulted file" else "the kubeconfig in rbln_kubeconfig"
    assert run.judged("a")["result"]["cluster"] == name
    assert run.judged("a")["result"]["node"]["node"] == "node-a"


class Other:
    """Another cluster, of which only the connections are counted."""

    def __init__(self, home: Path) -> None:
        self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "b",
                    "cluster": {
                        "server": "https://127.0.0.1:%d" % self._listener.getsockname()[1],
                        "insecure-skip-tls-verify": True,
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": "b"}}],
            "contexts": [{"name": "b", "context": {"cluster": "b", "user": "u"}}],
            "current-context": "b",
        }
        (home / ".kube").mkdir(parents=True)
        (home / ".kube" / "config").write_text(json.dumps(config))
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                self._listener.accept()[0].close()
            except OSError:
                return
            self.asked += 1

    def close(self) -> None:
        self._listener.close()


def test_k13_the_environment_of_the_play_names_the_cluster(
    api: ApiServer, play: t.Callable[..., Run], tmp_path: Path
) -> None:
    """K13: the keyword environment counts before that of the process; the cluster of ~/.kube/config gets nothing."""
    other = Other(tmp_path / "home")
    given: Data = {"kubelet": False, "wait": False, "kubeconfig": "", "enabled": True, "home": tmp_path / "home"}
    try:
        config = "{{ rbln_kubeconfig | dirname }}/admin.kubeconfig"
        run = play("--limit", "a", environment={"K8S_AUTH_KUBECONFIG": config}, **given)
        assert run.code == 0, run.text[-3000:]
        assert (other.asked, run.judged("a")["result"]["node"]["node"]) == (0, "node-a")
        assert run.judged("a")["result"]["cluster"] == str(api.home / "admin.kubeconfig")
        # Without it the file of the user counts, which is the other cluster; it is asked again before that is told.
        away = play("--limit", "a", **given)
        assert away.code != 0 and "closed the connection 4 times" in away.judged("a")["msg"]
        assert other.asked == 4
    finally:
        other.close()


def test_k24_numbers_of_variables_reach_the_manifests_and_the_cluster(
    api: ApiServer, play: t.Callable[..., Run], tmp_path: Path
) -> None:
    """K24: whatever Ansible makes of a number that it has read."""
    given = {
        "update_strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "device_plugin": {"health_port": 51600, "resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": 2}}},
    }
    folder = tmp_path / "manifests"
    rendered = play("--limit", "a", kubelet=False, delivery="render", render_dir=str(folder), **given)
    assert rendered.code == 0, rendered.text[-3000:]
    items = list(yaml.safe_load_all((folder / (NAMESPACE + ".yaml")).read_text()))
    run = play("--limit", "a", kubelet=False, wait=False, **given)
    assert run.code == 0 and "cannot represent" not in rendered.text + run.text, run.text[-3000:]
    for item, amounts in (
        (next(one for one in items if one["metadata"]["name"] == "rbln-device-plugin" and one["kind"] == "DaemonSet"),
         {"requests": {"cpu": 0.5}, "limits": {"cpu": 2}}),
        (api.get("-n", NAMESPACE, "ds", "rbln-device-plugin"), {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}),
    ):  # fmt: skip
        spec = item["spec"]["template"]["spec"]
        assert item["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
        assert [one["tolerationSeconds"] for one in spec["tolerations"] if one.get("key") == "team"] == [300]
        assert spec["containers"][0]["resources"] == amounts and "51600" in json.dumps(spec["containers"][0])
    assert play("--limit", "a", kubelet=False, wait=False, **given).changed() == []


def test_absent_of_one_host_keeps_the_objects(api: ApiServer, play: t.Callable[..., Run]) -> None:
    run = play("--limit", "a", state="absent")
    assert run.code == 0 and labels(api, "node-a") == {}
    assert len(api.get("-n", NAMESPACE, "ds")["items"]) == 2 and labels(api, "node-b") != {}


def test_absent_leaves_nothing(api: ApiServer, play: t.Callable[..., Run]) -> None:
    told, run = play("--check", "--diff", kubelet=False, state="absent"), play("--diff", state="absent")
    foretold(told, run)
    assert run.tasks[WORK]["a"]["objects"]["Namespace " + NAMESPACE] == "deleted"
    assert NAMESPACE not in [item["metadata"]["name"] for item in api.get("namespaces")["items"]]
    assert labels(api, "node-b") == {}
    again = play(state="absent")
    assert (again.code, again.changed()) == (0, [])


def test_S01_podsecurity_rejection_is_read_from_events(api: ApiServer, play: t.Callable[..., Run]) -> None:
    api.kubectl("create", "namespace", NAMESPACE)
    api.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=baseline", "team=infra")
    rejected = play(pod_security="", wait_timeout=patient(8))
    assert (
        rejected.code != 0
        and "violates PodSecurity" in rejected.judged("a")["msg"]
        and "rbln_operands_pod_security" in rejected.judged("a")["msg"]
    )
    assert play(wait=False).code == 0
    assert api.get("namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert api.get("namespace", NAMESPACE)["metadata"]["labels"]["team"] == "infra"
    assert play(state="absent").code == 0
    kept = api.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert (kept["pod-security.kubernetes.io/enforce"], kept["team"]) == ("baseline", "infra")
    assert "pod-security.kubernetes.io/audit" not in kept


class Opened(t.NamedTuple):
    """What the look at the controller has found: its result, and the whole output."""

    result: Data
    text: str


def opened(api: ApiServer, tmp_path: Path, kubeconfig: Path, *hosts: str, fail: bool = True) -> Opened:
    """The look at the controller as site.yml makes it, with hosts that have been observed."""
    group = {
        "hosts": {host: {"uuid": UUIDS[host]} for host in hosts},
        "vars": {"ansible_connection": "local", "rbln_kubeconfig": str(kubeconfig)},
    }
    seen = {"rbln_discover_observation": {"ansible_facts": {"rbln": FACTS["rbln"]}}}
    look = {"name": "Look", "rebellions.npu.rbln_controller": {"look": "controller", "fail": fail}, "run_once": True}
    head = {"name": "Play", "hosts": "npu_nodes", "gather_facts": False}
    tasks = [{"name": "Observed", "ansible.builtin.set_fact": seen}, look]
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"npu_nodes": group}))
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{**head, "tasks": tasks}], sort_keys=False))
    words = ["ansible-playbook", "-i", str(tmp_path / "inventory.yml"), str(tmp_path / "play.yml")]
    env = dict(os.environ, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json")
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=patient(180), check=False)
    data = json.loads(done.stdout[done.stdout.index("{") :])
    (result,) = data["plays"][0]["tasks"][1]["hosts"].values()
    return Opened(result, done.stdout + done.stderr)


def test_a_cluster_is_opened_before_a_host_is_changed(api: ApiServer, tmp_path: Path) -> None:
    good = opened(api, tmp_path, api.home / "admin.kubeconfig", "a", "b")
    assert good.result["problems"] == [], good.text
    strange = opened(api, tmp_path, api.home / "admin.kubeconfig", "a", "b", "lonely")
    (problem,) = strange.result["problems"]
    assert problem["hosts"] == ["lonely"] and problem["detail"].startswith("lonely is not a node of the cluster: ")
    lowly = opened(api, tmp_path, api.home / "lowly.kubeconfig", "a", "b")
    told = (
        "The account that %s names lacks rights: list, patch nodes; get, create, update leases.coordination.k8s.io in "
    )
    assert lowly.result["failed"] and told % (api.home / "lowly.kubeconfig") in lowly.result["msg"]
    assert "list, create, patch daemonsets.apps in rbln-system" in lowly.result["msg"]
    away = opened(api, tmp_path, api.write_kubeconfig("away", "admin", 9), "a", "b")
    assert away.result["failed"] and away.text.count("https://127.0.0.1:9 cannot be reached") == 1
    wrong = opened(api, tmp_path, api.write_kubeconfig("wrong", "no-such-token"), "a", "b", fail=False)
    assert "the API server rejects the credentials" in wrong.result["problems"][0]["detail"]
