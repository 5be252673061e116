# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests that the action writes on the controller and takes away again, and whom it believes what."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.rebellions.npu.plugins.action import rbln_operands
from ansible_collections.rebellions.npu.plugins.action.rbln_operands import ActionModule, told
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.manifests import write_manifests
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs


def render(monkeypatch: pytest.MonkeyPatch, folder: Path, check: bool = False, **given: Any) -> dict[str, Any]:
    """Whether the act render changed something, and the files that are there afterwards."""
    found = inputs(enabled=True, delivery="render", render_dir=str(folder), **given)
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: found, raising=False)
    action._dry_run = check
    monkeypatch.setattr(action, "_task", SimpleNamespace(diff=False), raising=False)
    return {"changed": action._render({}, {})["changed"], "files": sorted(path.name for path in folder.glob("*"))}


def test_manifests_are_written_once_and_removed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, other = tmp_path / "out", tmp_path / "out" / "other.yaml"
    assert render(monkeypatch, folder, check=True) == {"changed": True, "files": []}
    assert render(monkeypatch, folder) == {"changed": True, "files": ["rbln-system.yaml"]}
    before = (folder / "rbln-system.yaml").read_bytes()
    assert (
        render(monkeypatch, folder) == {"changed": False, "files": ["rbln-system.yaml"]}
        and (folder / "rbln-system.yaml").read_bytes() == before
    )
    other.write_text("mine")
    assert render(monkeypatch, folder, check=True, state="absent") == {
        "changed": True,
        "files": ["other.yaml", "rbln-system.yaml"],
    }
    assert render(monkeypatch, folder, state="absent") == {"changed": True, "files": ["other.yaml"]}
    assert render(monkeypatch, folder, state="absent") == {"changed": False, "files": ["other.yaml"]}


@pytest.mark.parametrize(
    ("proxy", "mode"), [("http://proxy:3128", 0o644), ("http://svc:n0t-a-Real-one@proxy:3128", 0o600)]
)
def test_S02_manifests_with_a_password_are_for_their_owner_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxy: str, mode: int
) -> None:
    found = inputs(enabled=True, delivery="render", render_dir=str(tmp_path), http_proxy=proxy)
    result = write_manifests(found, False, True)
    path = tmp_path / "rbln-system.yaml"
    assert proxy in path.read_text() and path.stat().st_mode & 0o777 == mode
    assert "n0t-a-Real-one" not in str(result)
    assert any("holds a secret" in text for text in result["warnings"]) is (mode == 0o600)


@pytest.mark.parametrize(
    ("differences", "told"),
    [([], ["nothing would change"]), ([{"object": "Node n1", "action": "deleted", "error": ""}], ["Node n1: deleted"])],
)
def test_diff_tells_people_what_would_change(
    monkeypatch: pytest.MonkeyPatch, differences: list[dict[str, Any]], told: list[str]
) -> None:
    action, shown = object.__new__(ActionModule), []
    monkeypatch.setattr(
        action, "_work", lambda *_arguments: SimpleNamespace(diff=lambda: {"differences": differences}), raising=False
    )
    display = SimpleNamespace(display=lambda text, **_more: shown.append(text))
    monkeypatch.setattr(action, "_display", display, raising=False)
    assert action._diff({}, {}) == {"differences": differences} and shown == told


@pytest.mark.parametrize(
    "enabled, state, refused", [(True, "present", True), (False, "present", False), (True, "absent", False)]
)
def test_an_image_without_a_digest_stops_a_run_before_a_host_is_changed(
    monkeypatch: pytest.MonkeyPatch, enabled: bool, state: str, refused: bool
) -> None:
    found, action = inputs(enabled=enabled, state=state, require_digest=True), object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: found, raising=False)
    if not refused:
        assert action._check({}, {}) == {"changed": False}
        return
    with pytest.raises(NpuError, match="these images have no digest: docker.io/library/busybox:1.37, docker.io/rebell"):
        action._check({}, {})


class HostVars(dict[str, Any]):
    """The variables of hosts: with raw_get as they are, else templated for the host."""

    def raw_get(self, host: str) -> Any:
        return dict.__getitem__(self, host)

    def __getitem__(self, host: str) -> Any:
        return Templated(self.raw_get(host))


class Templated(dict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        if value == "{{ unknown }}":
            raise AnsibleError("'unknown' is undefined")
        return value.replace("{{ prefix }}", "10.0.0")


def registered(host: str, **more: Any) -> dict[str, Any]:
    member = {"host": host, "cluster": "k", "digest": "0", **more}
    return {"__rbln_operands_member": {"changed": False, "member": member}}


def test_each_batch_of_hosts_chooses_who_acts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of an earlier batch does nothing any more.

    If it were chosen, the hosts of this batch would be neither labelled nor waited for.
    """
    hosts = {"a": registered("a"), "b": registered("b"), "c": {}, "d": registered("d")}
    variables = {"ansible_play_hosts": list("abcd"), "ansible_play_batch": list("bcd"), "hostvars": HostVars(hosts)}
    found = object.__new__(ActionModule)._clusters({}, variables)
    assert found["actors"] == {"b": "b", "d": "b"}
    assert [member["host"] for member in found["members"]["b"]] == ["b", "d"]


def test_no_fact_of_a_host_is_a_record_of_it_or_of_another() -> None:
    forged = registered("b", labels={"team": "evil"}, node_name="node-b")
    hosts = {"a": {**forged, "ansible_facts": forged}, "b": registered("b", labels={}), "c": registered("b")}
    variables = {"ansible_play_batch": list("abc"), "hostvars": HostVars(hosts)}
    found = object.__new__(ActionModule)._clusters({}, variables)
    assert [member["host"] for member in found["members"]["b"]] == ["b", "c"]
    assert found["members"]["b"][0]["labels"] == {}


def judged(host: str, hosts: dict[str, Any]) -> dict[str, Any]:
    action = object.__new__(ActionModule)
    found: dict[str, Any] = action._judge({}, {**hosts[host], "inventory_hostname": host, "hostvars": HostVars(hosts)})
    return found


def judged_hosts(work: dict[str, Any], actors: dict[str, str], **errors: str) -> dict[str, Any]:
    """Variables of the hosts a and b after the work of a."""
    chosen = {"__rbln_operands_clusters": {"round": "1", "actors": actors, "errors": errors}}
    hosts = {name: {**registered(name), **chosen} for name in "ab"}
    hosts["a"]["__rbln_operands_applied"] = work
    hosts["b"]["__rbln_operands_applied"] = {"skipped": True}
    return hosts


NODES = {name: {"node": "node-" + name, "error": "", "proof": "{{ 1 }}"} for name in "ab"}


def test_each_host_is_judged_by_the_work_of_who_acts() -> None:
    actors = {"a": "a", "b": "a"}
    hosts = judged_hosts({"ok": True, "round": "1", "nodes": NODES, "objects": {"x": "unchanged"}}, actors)
    for name in "ab":
        found = judged(name, hosts)
        assert (found["msg"], found["result"]["acted_by"]) == ("%s: the cluster is as wanted." % name, "a")
        assert found["result"]["node"]["proof"] == "{{ 1 }}" and found["result"]["objects"] == {"x": "unchanged"}
    for work in ({"ok": False, "round": "1", "msg": "no"}, {"failed": True, "msg": "no"}):
        assert [judged(name, judged_hosts(work, actors))["msg"] for name in "ab"] == ["a: no", "b: no"]
    other = judged("b", judged_hosts({"ok": True, "round": "0", "nodes": NODES}, actors))
    assert other["failed"] and "not in the same task as this host" in other["msg"]
    assert judged("b", judged_hosts({}, {}, b="they differ"))["msg"] == "b: they differ"
    assert "No host of the play acts" in judged("b", judged_hosts({}, {}))["msg"]


@pytest.mark.parametrize("name", ["__rbln_operands_member", "__rbln_operands_clusters", "__rbln_operands_applied"])
def test_no_fact_judges_a_host(name: str) -> None:
    hosts = judged_hosts({"ok": True, "round": "1", "nodes": NODES}, {"a": "a", "b": "a"})
    hosts["a"]["ansible_facts"] = {name: hosts["a"][name]}
    if name.endswith("applied"):
        assert judged("a", hosts)["failed"] and judged("b", hosts)["failed"]
    else:
        with pytest.raises(NpuError, match="a has no record in this run"):
            judged("a", hosts)


def test_other_hosts_of_the_cluster_are_known_by_the_inventory_alone() -> None:
    here, facts = {"rbln_kubeconfig": "/k"}, {"rbln_node_name": "node-b"}
    hosts = {
        "member": here,
        "plain": {**here, "ansible_host": "10.0.0.1", "rbln_node_name": "n1"},
        "templates": {**here, "ansible_host": "{{ prefix }}.2", "rbln_node_name": "{{ unknown }}"},
        "liar": {**here, **facts, "ansible_facts": facts},
        "own input": {"rbln_kubeconfig": "/x", "rbln_operands_kubeconfig": "/k", "rbln_operands_node_name": "n2"},
        "other cluster": {"rbln_kubeconfig": "/x"},
        "other context": {**here, "rbln_kube_context": "y"},
        "no cluster": {},
    }
    variables = {"groups": {"all": list(hosts)}, "hostvars": HostVars(hosts)}
    found = object.__new__(ActionModule)._others(variables, [{"host": "member"}], inputs(kubeconfig="/k"))
    assert {one.pop("host"): one for one in found} == {
        "plain": {"node_name": "n1", "address": "10.0.0.1"},
        "templates": {"node_name": "", "address": "10.0.0.2"},
        "liar": {"node_name": "", "address": ""},
        "own input": {"node_name": "n2", "address": ""},
    }


def test_what_live_objects_say_is_clean() -> None:
    said = {"msg": "a\x1b[2Jb\nc", "diff": [{"before": {"k\x9b1m": "\u202ex"}, "after": None}], "changed": True}
    assert told(said) == {"msg": "ab\nc", "diff": [{"before": {"k": "x"}, "after": None}], "changed": True}


def test_k13_the_environment_of_the_task_is_that_of_the_act_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_AUTH_CONTEXT", "process")
    monkeypatch.delenv("K8S_AUTH_HOST", raising=False)
    action = object.__new__(ActionModule)
    given = {"K8S_AUTH_CONTEXT": "task", "K8S_AUTH_HOST": "https://h"}
    monkeypatch.setattr(action, "_task", SimpleNamespace(environment=[given]), raising=False)
    monkeypatch.setattr(action, "_compute_environment_string", lambda found: found.update(given), raising=False)
    with pytest.raises(ValueError), action._environment():
        assert (os.environ["K8S_AUTH_CONTEXT"], os.environ["K8S_AUTH_HOST"]) == ("task", "https://h")
        raise ValueError
    assert os.environ["K8S_AUTH_CONTEXT"] == "process" and "K8S_AUTH_HOST" not in os.environ


def test_a_relative_kubeconfig_is_looked_for_as_files_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    action = object.__new__(ActionModule)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").touch()
    monkeypatch.setattr(action, "_find_needle", lambda _kind, name: "/play/files/" + name, raising=False)
    found = action._kubeconfig(inputs(kubeconfig="here:there:/absolute"))
    assert found == "here:/play/files/there:/absolute"
    content = "kind: Config\nusers: []"
    assert action._kubeconfig(inputs(kubeconfig=content)) == content


SMOKE = {"enabled": True, "image": {"repository": "team/smoke", "tag": "1"}, "command": ["run"]}


KUBECONFIG = """\
clusters: [{name: c, cluster: {server: "https://%s"}}]
users: [{name: u, user: {token: REP-SECRET, as: rollout, as-groups: [g]}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
ACCESS = {"paths": "", "content": True, "context": "x", "user": "rollout", "groups": ["g"]}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("K8S_AUTH_", "KUBE")):
            monkeypatch.delenv(name)


def smoke(monkeypatch: pytest.MonkeyPatch, host: str = "a", check: bool = False, **given: Any) -> dict[str, Any]:
    """The smoke workload of one of the hosts a, b and none, which has no NPU; all of one cluster.

    `marks` gives hosts another mark than the empty one.
    """
    marks = given.pop("marks", {})
    given.setdefault("kubeconfig", KUBECONFIG % "one")
    found = inputs(**{"smoke": SMOKE, **given})
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: found, raising=False)
    action._dry_run = check
    hosts = {
        name: registered(name, expected=0 if name == "none" else 2, mark=marks.get(name, ""))
        for name in ("none", "a", "b")
    }
    variables = {"inventory_hostname": host, "ansible_play_batch": list(hosts), "hostvars": HostVars(hosts)}
    return action._smoke({"node": "node-" + host}, variables)


def test_the_smoke_workload_runs_for_each_host_that_has_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbln_operands, "_require_smoke_modules", lambda: None)
    found = smoke(monkeypatch)
    assert found["wanted"] is True and found["changed"] is False and found["node"] == "node-a"
    assert found["msg"] == "node node-a: the smoke workload runs: docker.io/team/smoke:1 run"
    assert found["access"] == ACCESS and "REP-SECRET" not in str(found)
    assert "would run" in smoke(monkeypatch, check=True)["msg"]
    for host, wanted, words in (("none", False, "no NPU"), ("a", True, "runs"), ("b", False, "the one of a stands")):
        sampled = smoke(monkeypatch, host, smoke={**SMOKE, "nodes": "one"})
        assert sampled["wanted"] is wanted and words in sampled["msg"]
    assert "no NPU for containers" in smoke(monkeypatch, workload="vm-passthrough")["msg"]


def test_each_of_two_clusters_given_as_content_gets_its_own_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbln_operands, "_require_smoke_modules", lambda: None)
    one = {**SMOKE, "nodes": "one"}
    for marks, wanted in (({}, False), ({"b": "12345678"}, True)):
        assert smoke(monkeypatch, "b", smoke=one, marks=marks)["wanted"] is wanted
    members: list[Any] = []
    monkeypatch.setattr(
        ActionModule, "_node", lambda _self, _inputs, mine, _host, _vars: members.extend(mine) or "n", raising=False
    )
    found = inputs(smoke=SMOKE, kubeconfig=KUBECONFIG % "two")
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: found, raising=False)
    action._dry_run = False
    hosts = {"a": registered("a", expected=2, mark="1"), "b": registered("b", expected=2, mark="2")}
    variables = {"inventory_hostname": "b", "ansible_play_batch": list(hosts), "hostvars": HostVars(hosts)}
    assert action._smoke({"node": ""}, variables)["node"] == "n" and [one["host"] for one in members] == ["b"]


def _missing(name: str) -> str:
    raise AnsibleError(name)


def checked(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any] | None = None, **given: Any) -> Any:
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: inputs(**given), raising=False)
    monkeypatch.setattr(action, "_find_needle", lambda _kind, name: _missing(name), raising=False)
    monkeypatch.setattr(rbln_operands.module_loader, "find_plugin", lambda _name: "there")
    return action._check({}, variables or {})


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("environment", "given", "words"),
    [
        ({"K8S_AUTH_TOKEN": "x"}, {}, "K8S_AUTH_TOKEN, which is not supported"),
        ({"K8S_AUTH_USERNAME": "x"}, {}, "K8S_AUTH_USERNAME without K8S_AUTH_PASSWORD"),
        ({}, {"kubeconfig": base64.b64encode((KUBECONFIG % "one").encode()).decode()}, "holds a kubeconfig in base64"),
    ],
)
def test_a_login_that_cannot_be_stops_a_run_before_a_host_is_changed(
    state: str, environment: dict[str, str], given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NpuError, match=words):
        checked(monkeypatch, enabled=True, state=state, **given)
    assert checked(monkeypatch, enabled=False, **given) == {"changed": False}
    assert checked(monkeypatch, enabled=True, delivery="render", render_dir="/m", **given) == {"changed": False}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kubeconfig": KUBECONFIG.replace("as-groups: [g]", "as-uid: '7'") % "one"}, "as-uid, which kubernetes.core"),
        ({"dra_driver": {"enabled": True}, "device_plugin": {"enabled": False}}, "no node offers rebellions.ai/npu"),
    ],
)
def test_a_smoke_workload_that_kubernetes_core_cannot_run_stops_a_run_as_early(
    given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"kubeconfig": KUBECONFIG % "one", **given}
    with pytest.raises(NpuError, match=words):
        checked(monkeypatch, enabled=True, smoke=SMOKE, **given)
    assert checked(monkeypatch, enabled=True, **given) == {"changed": False}
    assert checked(monkeypatch, enabled=True, smoke=SMOKE, kubeconfig=KUBECONFIG % "one") == {"changed": False}


AMBIENT = (
    "%s is set, and the host belongs to no cluster. "
    "Next: set rbln_operands_enabled: true for the hosts of its cluster, else false."
)


@pytest.mark.parametrize(
    ("environment", "variables", "given", "warned"),
    [
        ("K8S_AUTH_HOST", {}, {}, True),
        ("K8S_AUTH_KUBECONFIG", {"rbln_operands_enabled": "{{ x | length > 0 }}"}, {}, True),
        ("K8S_AUTH_VERIFY_SSL", {}, {}, False),
        ("KUBECONFIG", {}, {}, False),
        ("K8S_AUTH_HOST", {"rbln_operands_enabled": False}, {}, False),
        ("K8S_AUTH_HOST", {}, {"kubeconfig": "/k"}, False),
        ("K8S_AUTH_HOST", {}, {"enabled": True}, False),
    ],
)
def test_a_cluster_that_only_the_environment_names_is_told(
    environment: str,
    variables: dict[str, Any],
    given: dict[str, Any],
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(environment, "true")
    given = {"enabled": False, "kubeconfig": "", **given}
    expected = [AMBIENT % environment] if warned else None
    assert checked(monkeypatch, variables, **given).get("warnings") == expected
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: inputs(**given), raising=False)
    monkeypatch.setattr(action, "_templar", SimpleNamespace(template=lambda value: value), raising=False)
    monkeypatch.setattr(action, "_task", SimpleNamespace(_uuid="", _parent=None), raising=False)
    monkeypatch.setattr(action, "_run_id", lambda: "", raising=False)
    action._dry_run = False
    found = action._member({}, {"inventory_hostname": "a", **variables})
    assert found.get("warnings") == expected and bool(found["member"]["cluster"]) is given["enabled"]


def test_the_tasks_ask_the_cluster_of_the_act_as_its_person_and_without_root() -> None:
    path = Path(rbln_operands.__file__).parents[2] / "roles" / "rbln_operands" / "tasks" / "smoke_run.yml"
    (whole,) = yaml.safe_load(path.read_text())
    assert whole["vars"]["ansible_become"] is False and whole["become"] is False
    tasks = [*whole["block"], *whole["always"]]
    asking = [(task, args) for task in tasks for name, args in task.items() if name.startswith("kubernetes.core.")]
    ours = [task for task in tasks if "rebellions.npu.rbln_operands" in task]
    assert [task["rebellions.npu.rbln_operands"]["act"] for task in ours] == ["smoke_wait"]
    assert len(asking) == len(tasks) - 1 == 4
    for task, args in asking:
        for option, key in (("context", "context"), ("impersonate_user", "user"), ("impersonate_groups", "groups")):
            assert args[option] == "{{ __rbln_operands_access.%s | default(omit, true) }}" % key, task["name"]
        assert args["kubeconfig"] == "{{ __rbln_operands_kubeconfig | default(omit, true) }}"
    assert whole["no_log"] == "{{ __rbln_operands_access.content | bool }}"
    # It has the kubeconfig from the input itself, and its message is the only one that says why the wait failed.
    assert [task["no_log"] for task in ours] == [False]


@pytest.mark.parametrize(
    "given",
    [{"smoke": {}}, {"state": "absent"}, {"delivery": "diff"}, {"enabled": False}, {"smoke": {"enabled": False}}],
)
def test_no_smoke_workload_runs_unasked(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    assert smoke(monkeypatch, **given) == {"changed": False, "wanted": False, "msg": ""}


def test_a_smoke_workload_that_cannot_be_stops_a_run_before_a_host_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    action = object.__new__(ActionModule)
    monkeypatch.setattr(rbln_operands.module_loader, "find_plugin", lambda _name: None)
    for given, words in ((SMOKE, "kubernetes.core is not installed"), ({"enabled": True}, "smoke.image.repository")):
        monkeypatch.setattr(action, "_inputs", lambda _variables, given=given: inputs(smoke=given), raising=False)
        with pytest.raises(NpuError, match=words):
            action._check({}, {})
    assert rbln_operands.wants_smoke(inputs()) is False


def test_the_verdict_on_the_smoke_workload_fails_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: inputs(smoke=SMOKE), raising=False)
    state = {"terminated": {"exitCode": 0}}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "smoke", "state": state}]}
    found = {"pods": [{"metadata": {"name": "p"}, "status": status}], "log": ["\x1b[2Jfine", ""]}
    good = action._smoke_verdict({"node": "n1", "outcome": found}, {})
    assert good["ok"] is True and "failed" not in good and good["log"] == ["fine"]
    state["terminated"]["exitCode"] = 2
    status["phase"] = "Failed"
    more: list[str] = []
    monkeypatch.setattr(action, "_display", SimpleNamespace(vvv=more.append), raising=False)
    bad = action._smoke_verdict({"node": "n1", "outcome": found}, {})
    assert bad["failed"] is True and "code 2" in bad["msg"] and "log" not in bad and "fine" in more[0]


@pytest.mark.parametrize("ok", [True, False])
def test_work_that_failed_fails_the_hosts_and_not_its_own_task(ok: bool) -> None:
    """A callback would print all that it returns, beside what is said of each host."""
    work = {"nodes": {"a": {"node": "n1", "error": ""}}, "objects": {}, "round": "1"}
    applied = work if ok else {**work, "ok": False, "msg": "Apply DaemonSet: refused."}
    found = judged("a", judged_hosts(applied, {"a": "a"}))
    assert found.get("failed", False) is not ok and ("refused" in found["msg"]) is not ok
    assert found["result"]["ok"] is ok and ("objects" in found["result"]) is ok


def test_nodes_that_cannot_be_asked_fail_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    action = object.__new__(ActionModule)

    def refused(_variables: Any) -> Any:
        raise NpuError("The API server cannot be reached.", "Check.")

    monkeypatch.setattr(action, "_inputs", refused, raising=False)
    found = action._nodes({"members": [{"host": "a"}]}, {})
    assert found["states"]["a"]["error"] == "The API server cannot be reached. Next: Check." and "failed" not in found
