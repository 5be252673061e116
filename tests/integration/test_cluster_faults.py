# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster side where something is in its way.

Missing rights, another writer, a server that goes away, missing kinds, and other owners.
"""

from __future__ import annotations

import contextlib
import json
import threading
import typing as t

import pytest

from tests.integration._api_server import NAMESPACE, NO_IMAGE, Data, patient
from tests.integration._cluster_site import MONITOR, OPENSHIFT, RULE, Site, running
from tests.integration._everything import EVERYTHING
from tests.lab._base import until

RBAC = "rbac.authorization.k8s.io"
# API group to the plurals of what a run reads or makes, and what of it has verbs of its own.
PLURALS = {
    "": ("namespaces", "nodes", "pods", "events", "serviceaccounts", "secrets", "configmaps", "services"),
    "apps": ("daemonsets", "controllerrevisions"),
    RBAC: ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    "coordination.k8s.io": ("leases",),
    "node.k8s.io": ("runtimeclasses",),
    "networking.k8s.io": ("networkpolicies",),
    "resource.k8s.io": ("deviceclasses", "resourceslices"),
    "admissionregistration.k8s.io": ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    "monitoring.coreos.com": ("servicemonitors",),
    "nfd.k8s-sigs.io": ("nodefeaturerules",),
}
VERBS = ("get", "list", "create", "update", "patch", "delete", "escalate", "bind")
# Policies that change objects are still in beta.
MUTATING = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)
SMD_AND_EXPORTER = {name: EVERYTHING[name] for name in ("smd", "metrics_exporter")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    with running(Site(tmp_path_factory.mktemp("faults") / "home", ["lowly"], MUTATING)) as one:
        yield one


@pytest.fixture(autouse=True)
def nothing_left(site: Site) -> t.Iterator[None]:
    yield
    # A failed test may have left a Lease that seems to be held.
    site.server.kubectl("-n", NAMESPACE, "delete", "lease", "rbln-operands", "--ignore-not-found", check=False)
    site.absent()


def grant(site: Site, verb: str = "", plural: str = "") -> None:
    """Every right to lowly but one, or every right; returns when the server knows it."""
    rules: list[Data] = [{"nonResourceURLs": ["*"], "verbs": ["get"]}]
    for group, plurals in PLURALS.items():
        rules += [
            {
                "apiGroups": [group],
                "resources": [name],
                "verbs": [one for one in VERBS if (one, name) != (verb, plural)],
            }
            for name in plurals
        ]
    # What our ClusterRoles give to pods must be the writer's own, or it needs `escalate`, which it has.
    role: Data = {"apiVersion": RBAC + "/v1", "kind": "ClusterRole", "metadata": {"name": "lowly"}, "rules": rules}
    binding = {
        "apiVersion": RBAC + "/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "lowly"},
        "subjects": [{"kind": "User", "name": "lowly"}],
    }
    binding["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "lowly"}
    for item in (role, binding):
        site.server.kubectl("apply", "-f", "-", stdin=json.dumps(item))
    words = ("auth", "can-i", verb or VERBS[0], plural or "nodes", "--as", "lowly", "-n", NAMESPACE)
    answer = "no" if plural else "yes"
    until(20, "%s: %s" % (words, answer), lambda: site.server.kubectl(*words, check=False).stdout.strip() == answer)


MISSING = [("list", "nodes"), ("patch", "nodes"), ("list", "namespaces"), ("create", "leases")] + [
    ("patch", name)
    for name in (
        "namespaces", "serviceaccounts", "secrets", "configmaps", "services", "daemonsets", "clusterroles",
        "clusterrolebindings", "runtimeclasses",
        "networkpolicies", "servicemonitors", "nodefeaturerules",
    )
]  # fmt: skip


def test_one_right_less_is_named(site: Site) -> None:
    grant(site)
    full = site.act("run", user="lowly", **EVERYTHING)
    assert not full.get("failed"), full["msg"]
    wrong = []
    for number, (verb, plural) in enumerate(MISSING):
        grant(site, verb, plural)
        if verb == "create":
            site.server.kubectl("-n", NAMESPACE, "delete", "lease", "rbln-operands", "--ignore-not-found")
        more: Data = {"pod_security": "baseline"} if plural == "namespaces" else {}
        if plural == "nodes":
            site.server.kubectl("label", "node", "node-0000", "rebellions.ai/npu.present-")
        secret = {"auths": {"round%d.example.org" % number: {"auth": "eDp5"}}}
        result = site.act(
            "run",
            user="lowly",
            **{**EVERYTHING, "annotations": {"round": str(number)}, "pull_secret_content": secret, **more},
        )
        if 'cannot %s resource "%s"' % (verb, plural) not in json.dumps(result, default=str).replace('\\"', '"'):
            wrong.append((verb, plural, result.get("msg")))
    assert wrong == []


@pytest.mark.parametrize("again", [False, True])
def test_a_node_that_is_deleted_while_it_is_labelled_does_not_come_back(
    site: Site, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster

    site.server.kubectl("label", "node", "node-0001", "rebellions.ai/npu.present-")
    plain, made = Cluster.apply, site.server.get("node", "node-0001")
    made = {**made, "metadata": {key: made["metadata"][key] for key in ("name", "labels")}}

    def apply(self: t.Any, item: Data, *words: t.Any) -> t.Any:
        if item["kind"] == "Node" and item["metadata"]["name"] == "node-0001":
            site.server.kubectl("delete", "node", "node-0001")
            if again:
                site.create(made)
        return plain(self, item, *words)

    monkeypatch.setattr(Cluster, "apply", apply)
    try:
        for name, given in (("run", {}), ("absent", {"state": "absent", "absent_scope": "cluster"})):
            result = site.act(name, **given)
            assert not result.get("failed"), result["msg"]
            assert ("was deleted while this run labelled it" in result["nodes"]["b"]["error"]) == (name == "run")
            nodes = {item["metadata"]["name"]: item["metadata"]["labels"] for item in site.server.get("nodes")["items"]}
            assert nodes.get("node-0001") == (made["metadata"]["labels"] if again else None)
            monkeypatch.undo()
            if not again:
                site.create(made)
            if name == "run":
                site.run()
                monkeypatch.setattr(Cluster, "apply", apply)
    finally:
        monkeypatch.undo()
        if site.server.kubectl("get", "node", "node-0001", check=False).returncode:
            site.create(made)


@pytest.mark.parametrize("labelled", [False, True])
def test_an_object_of_somebody_else_is_not_made_ours_without_a_word(site: Site, labelled: bool) -> None:
    """No field of it differs from ours in value, so that server-side apply sees no conflict."""
    labels = (
        {"app.kubernetes.io/managed-by": "rebellions-npu", "app.kubernetes.io/part-of": "rebellions-npu"}
        if labelled
        else {"team": "theirs"}
    )
    theirs: list[Data] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "rbln-device-plugin", "namespace": NAMESPACE, "labels": labels},
        },
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "rbln", "labels": labels},
            "handler": "rbln",
        },
    ]
    given = {"runtime_class": {"enabled": True, "handler": "rbln"}}
    site.server.kubectl("create", "namespace", NAMESPACE)
    for item in theirs:
        site.create(item)
    try:
        for name in (
            "ServiceAccount %s/rbln-device-plugin (of kubectl-create)" % NAMESPACE,
            "RuntimeClass rbln (of kubectl-create)",
        ):
            for check in (True, False):
                result = site.act("run", check=check, **given)
                assert result["failed"] and name in result["msg"] and "rbln_operands_name_prefix" in result["msg"], (
                    result["msg"]
                )
                assert [one for one in site.written if one[1] != "nodes"] == []
            told = {one["object"]: one["error"] for one in site.act("diff", **given)["differences"]}
            assert name in told[name.partition(" (")[0]]
        forced = site.run(force_conflicts=True, **given)
        assert sorted(forced["warnings"]) == [
            "%s is ours now, because rbln_operands_force_conflicts is set." % name
            for name in (
                "RuntimeClass rbln (of kubectl-create)",
                "ServiceAccount %s/rbln-device-plugin (of kubectl-create)" % NAMESPACE,
            )
        ]
        site.run(**given)
        assert site.written == []
        site.server.kubectl("-n", NAMESPACE, "delete", "configmap", "rbln-inventory")
        assert site.run(**given)["warnings"] == []
    finally:
        site.absent()
        site.server.kubectl("delete", "runtimeclass", "rbln", "--ignore-not-found")
        site.server.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")


def test_what_is_being_deleted_is_waited_for_and_made_anew(site: Site) -> None:
    site.run()
    names = ("-n", NAMESPACE, "daemonset", "rbln-validator")
    hold, free = (json.dumps({"metadata": {"finalizers": value}}) for value in (["example.org/hold"], None))
    site.server.kubectl("-n", NAMESPACE, "patch", *names[2:], "--type=merge", "-p", hold)
    site.server.kubectl("-n", NAMESPACE, "delete", *names[2:], "--wait=false")
    told = "DaemonSet %s/rbln-validator is being deleted" % NAMESPACE
    result = site.act("run", wait_timeout=1)
    assert result["failed"] and told in result["msg"] and "example.org/hold" in result["msg"]
    assert [one for one in site.written if one[1] == "daemonsets"] == []
    # It has no other owner either while it goes.
    assert (
        site.run(validator={"enabled": False})["warnings"] == site.run(validator={"enabled": False})["warnings"] == []
    )
    release = threading.Timer(
        3, lambda: site.server.kubectl("-n", NAMESPACE, "patch", *names[2:], "--type=merge", "-p", free)
    )
    release.start()
    result = site.run()
    release.join()
    assert result["objects"]["DaemonSet %s/rbln-validator" % NAMESPACE] == "created"
    assert "deletionTimestamp" not in site.server.get(*names)["metadata"]


def test_a_field_that_cannot_change_says_what_to_do(site: Site) -> None:
    site.run(runtime_class={"enabled": True, "handler": "one"})
    result = site.act("run", runtime_class={"enabled": True, "handler": "two"})
    assert (
        result["failed"]
        and "RuntimeClass rbln: this field is immutable" in result["msg"]
        and "Delete the object" in result["msg"]
    )


def test_what_somebody_made_anew_meanwhile_is_not_deleted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster

    site.run(runtime_class={"enabled": True, "handler": "one"})
    plain = Cluster.delete

    def delete(self: t.Any, item: Data, dry_run: bool) -> None:
        if item["kind"] == "RuntimeClass" and not dry_run:
            site.server.kubectl("delete", "runtimeclass", "rbln")
            site.create(
                {
                    "apiVersion": "node.k8s.io/v1",
                    "kind": "RuntimeClass",
                    "metadata": {"name": "rbln"},
                    "handler": "theirs",
                }
            )
        plain(self, item, dry_run)

    monkeypatch.setattr(Cluster, "delete", delete)
    site.run(check=True)
    assert site.written == [] and site.server.get("runtimeclass", "rbln")["handler"] == "one"
    try:
        site.run()
        assert site.server.get("runtimeclass", "rbln")["handler"] == "theirs"
    finally:
        site.server.kubectl("delete", "runtimeclass", "rbln")


def test_two_runs_that_write_the_status_at_once_keep_what_both_say(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster

    given: Data = {"wait": True, "wait_timeout": 1}
    site.act("run", ["a"], **given)
    site.server.kubectl(
        "-n",
        NAMESPACE,
        "patch",
        "configmap",
        "rbln-status",
        "--type=merge",
        "-p",
        json.dumps({"data": {"status.json": "{}"}}),
    )
    plain = Cluster.apply

    def apply(self: t.Any, item: Data, *words: t.Any) -> t.Any:
        if item["metadata"]["name"] == "rbln-status":
            monkeypatch.undo()
            site.act("run", ["b"], **given)
        return plain(self, item, *words)

    monkeypatch.setattr(Cluster, "apply", apply)
    result = site.act("run", ["a"], **given)
    assert "rbln-status" not in result["msg"]
    status = json.loads(site.server.get("-n", NAMESPACE, "configmap", "rbln-status")["data"]["status.json"])
    assert sorted(status["nodes"]) == ["node-0000", "node-0001"]


def test_another_writer_is_named_and_nothing_is_written_until_it_is_gone(site: Site) -> None:
    site.run()
    spec = {
        "holderIdentity": "elsewhere/1/abcd",
        "leaseDurationSeconds": 5,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
    }
    site.server.kubectl(
        "-n", NAMESPACE, "patch", "lease", "rbln-operands", "--type=merge", "-p", json.dumps({"spec": spec})
    )
    result = site.act("run", lease_timeout=1, lease_duration=60, labels={"team": "a"})
    assert result["failed"] and "elsewhere/1/abcd" in result["msg"] and "rbln_operands_lease_timeout" in result["msg"]
    assert site.written == []
    # Its owner does not renew it: after its duration by our own clock it is taken over.
    result = site.run(lease_timeout=20, lease_duration=5, labels={"team": "a"})
    assert result["changed"] is True


def test_two_writers_at_once_both_end_and_the_cluster_is_as_one_of_them_wants(site: Site) -> None:
    site.run(**SMD_AND_EXPORTER)
    ends: dict[str, Data] = {}

    def write(team: str) -> None:
        ends[team] = site.act("run", **{**SMD_AND_EXPORTER, "labels": {"team": team}, "lease_timeout": patient(30)})

    writers = [threading.Thread(target=write, args=(team,)) for team in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [team for team, result in sorted(ends.items()) if result.get("failed")] == []
    teams = {
        item["metadata"]["labels"].get("team")
        for item in site.ours()
        if item["metadata"]["name"] not in ("rbln-inventory", "rbln-operands")
    }
    assert len(teams) == 1
    site.run(**SMD_AND_EXPORTER, labels={"team": teams.pop()})
    assert site.written == []


@contextlib.contextmanager
def kubelets(site: Site) -> t.Iterator[set[str]]:
    """Kubelets of all nodes but those that are added to the set, until everything is removed again."""
    dead: set[str] = set()
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.5):
            site.server.play_kubelet(frozenset(dead))

    site.server.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready-", check=False)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield dead
    finally:
        try:
            dead.clear()
            site.absent()
        finally:
            over.set()
            thread.join()
            site.server.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready=:NoSchedule")


def test_K18_startup_taints_are_waited_for_and_said(
    site: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes import wait

    monkeypatch.setattr(wait, "FATAL_PATIENCE", 2.0)
    monkeypatch.setattr(wait, "TELL_EVERY", 3.0)
    limit = patient(40)
    started, said_once = "node.cilium.io/agent-not-ready", threading.Event()
    plain = wait.Waiter._waits

    def waits(self: t.Any, seconds: float) -> list[str]:
        lines: list[str] = plain(self, seconds)
        if any(started in line for line in lines):
            said_once.set()
        return lines

    def agent() -> None:
        """The agent of the node is ready as soon as the run has said that it waits."""
        said_once.wait(60)
        site.server.kubectl("taint", "node", "node-0000", started + "-")

    with kubelets(site):
        site.server.kubectl("taint", "node", "node-0000", started + "=:NoSchedule", "team=research:NoSchedule")
        people = site.act("run", ["a"], wait=True, wait_timeout=limit)["waited"]
        site.server.kubectl("taint", "node", "node-0000", "team-")
        capfd.readouterr()
        monkeypatch.setattr(wait.Waiter, "_waits", waits)
        thread = threading.Thread(target=agent)
        thread.start()
        try:
            result = site.act("run", ["a"], wait=True, wait_timeout=limit)
        finally:
            said_once.set()
            thread.join()
    assert people["fatal"] and people["seconds"] < limit / 2 and "team=research" in people["problems"][0]["text"]
    assert result["waited"]["ok"] and result["waited"]["seconds"] > 3, result["msg"]
    said = [line for line in capfd.readouterr().out.splitlines() if started in line]
    assert said[0].startswith("validator: 0 of 1 nodes ready, ") and " of %d s: " % limit in said[0], said
    assert all("agent of the node that removes the taint: Cilium" in line for line in said), said


def test_K21_rollout_held_by_lost_node_names_it(site: Site) -> None:
    """The real controller keeps the old pods while that of the lost node uses up what may be unavailable."""
    lost = "node-0001"

    def patch(kind: str, name: str, ready: str) -> None:
        conditions = {"status": {"conditions": [{"type": "Ready", "status": ready, "message": "Kubelet stopped"}]}}
        words = ("-n", NAMESPACE, "patch", kind, name, "--subresource=status", "--type=strategic", "-p")
        site.server.kubectl(*words, json.dumps(conditions))

    with kubelets(site) as dead:
        assert site.act("run", wait=True, wait_timeout=patient(40))["waited"]["ok"]
        dead.add(lost)
        patch("node", lost, "Unknown")
        for pod in site.server.get("-n", NAMESPACE, "pods", "--field-selector", "spec.nodeName=" + lost)["items"]:
            patch("pod", pod["metadata"]["name"], "False")

        def unavailable() -> t.Any:
            """What the controller itself knows of the lost pod; before, it would replace that of the other node."""
            status = site.server.get("-n", NAMESPACE, "daemonset", "rbln-device-plugin")["status"]
            return status.get("numberUnavailable")

        until(20, "the controller to miss the pod", unavailable)
        try:
            given: Data = {"device_plugin": {"env": {"LOG": "debug"}}, "wait": True, "wait_timeout": patient(12)}
            result = site.act("run", ["a"], **given)
            # The controller keeps the pods of the template that is wanted again, though their generation is older.
            kept = plugin_pods(site)
            again = site.act("run", ["a"], wait=True, wait_timeout=patient(20))
            assert again["waited"]["ok"] and plugin_pods(site) == kept, again["msg"]
        finally:
            patch("node", lost, "True")
    (problem,) = [one for one in result["waited"]["problems"] if one["component"] == "device_plugin"]
    assert problem["node"] == "node-0000"
    assert "the update is held" in problem["text"] and "node-0001 (the node is lost)" in problem["text"]
    assert "Next: Bring node-0001 back or delete its Node; or raise maxUnavailable" in problem["text"]


def plugin_pods(site: Site) -> dict[str, tuple[str, str]]:
    """{node: (uid, image)} of the pods of the device plugin."""
    chosen = ("pods", "-l", "app.kubernetes.io/component=device-plugin")
    return {
        pod["spec"]["nodeName"]: (pod["metadata"]["uid"], pod["spec"]["containers"][0]["image"])
        for pod in site.server.get("-n", NAMESPACE, *chosen)["items"]
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


def test_an_image_that_fails_on_the_first_node_is_put_back_and_not_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real controller replaces one pod, and puts the former one in its place; the other nodes see nothing."""
    from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import rollback

    monkeypatch.setattr(rollback, "SETTLES", 2.0)
    plugin = {"image": {"tag": NO_IMAGE}, "env": {"LOG": "debug"}}
    bad: Data = {"device_plugin": plugin, "wait": True, "rollback": True}
    with kubelets(site):
        # Without the input nothing was noted: what runs well is good.
        assert site.act("run", wait=True, wait_timeout=patient(40))["waited"]["ok"]
        before = plugin_pods(site)
        failed = site.act("run", wait_timeout=patient(8), **bad)
        after = plugin_pods(site)
        refused = site.act("run", wait_timeout=patient(8), **bad)
        written = [one for one in site.written if one[1] in ("daemonsets", "pods")]
        good = site.act("run", wait_timeout=patient(40), **{**bad, "device_plugin": {"image": {"tag": "next"}}})
        assert good["waited"]["ok"], good["msg"]
        assert {plugin_pods(site)[node][1].rpartition(":")[2] for node in ("node-0000", "node-0001")} == {"next"}
        site.act("run", wait_timeout=patient(40), **{**bad, "device_plugin": {"image": {"tag": "next"}}})
        # The status counts the pod of the third node, which the run before did not wait for.
        assert [one for one in site.written if one[2] != "rbln-status"] == []
        later = site.act("run", wait_timeout=8, **bad)
        assert [one for one in site.written if one[1] in ("daemonsets", "pods")] == []
    assert [one["text"].startswith("refused: ") for one in later["waited"]["problems"]] == [True]
    (text,) = [one["text"] for one in failed["waited"]["problems"]]
    assert text.startswith("rolled back: rbln-device-plugin: ") and "on node node-0000" in text, text
    assert "Back-off pulling image" in text and text.count("Next: ") == 1
    changed = {node for node in before if before[node] != after[node]}
    assert changed == {"node-0000"} and after["node-0000"][1] == before["node-0000"][1], (before, after)
    (text,) = [one["text"] for one in refused["waited"]["problems"]]
    assert text.startswith("refused: rbln-device-plugin: ") and "Back-off pulling image" in text and written == []


def test_kinds_that_are_missing_old_or_come_later(site: Site) -> None:
    given = {**SMD_AND_EXPORTER, "node_feature_rule": EVERYTHING["node_feature_rule"]}
    full = set(site.run(**given)["objects"])
    custom = {"ServiceMonitor %s/rbln-metrics-exporter" % NAMESPACE, "NodeFeatureRule rbln-npu"}
    assert custom <= full
    try:
        for versions in ((), ("v1alpha9",)):
            for definition in (MONITOR, RULE):
                site.undefine(definition)
                if versions:
                    site.define(definition, *versions)
            result = site.run(**given)
            assert set(result["objects"]) & custom == set()
            site.run(**given)
            assert site.written == []
            result = site.run(
                **{**given, "metrics_exporter": {**given["metrics_exporter"], "service_monitor": {"enabled": "yes"}}}
            )
            assert "monitoring.coreos.com" in "".join(result["warnings"]) and site.written == [], (
                "M01: left out, not failed"
            )
    finally:
        for definition, version in ((MONITOR, "v1"), (RULE, "v1alpha1")):
            site.undefine(definition)
            site.define(definition, version)
    result = site.run(**given)
    assert {name for name, action in result["objects"].items() if action == "created"} == custom


def test_on_openshift_the_accounts_get_the_privileged_constraint(site: Site) -> None:
    site.run()
    assert not [item for item in site.ours() if item["kind"] == "RoleBinding"]
    site.define(OPENSHIFT, "v1")
    try:
        site.run()
        bindings = [item for item in site.ours() if item["kind"] == "RoleBinding"]
        assert [item["roleRef"]["name"] for item in bindings] == ["system:openshift:scc:privileged"]
        assert {subject["name"] for subject in bindings[0]["subjects"]} == {"rbln-device-plugin", "rbln-validator"}
    finally:
        site.undefine(OPENSHIFT)
    site.run()
    assert not [item for item in site.ours() if item["kind"] == "RoleBinding"]


def test_a_restricted_namespace_is_opened_for_us_and_given_back(site: Site) -> None:
    site.server.kubectl("create", "namespace", NAMESPACE)
    site.server.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "team=infra")
    site.server.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready-")
    try:
        site.everything()
        assert (
            site.server.get("namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
            == "privileged"
        )
        pods = "pods in %s" % NAMESPACE
        until(20, pods, lambda: len(site.server.get("-n", NAMESPACE, "pods")["items"]) > 10)
        site.absent()
        labels = site.server.get("namespace", NAMESPACE)["metadata"]["labels"]
        assert {name: value for name, value in labels.items() if name != "kubernetes.io/metadata.name"} == {
            "pod-security.kubernetes.io/enforce": "restricted",
            "team": "infra",
        }
    finally:
        site.server.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready=:NoSchedule")
        site.server.kubectl("delete", "namespace", NAMESPACE)


def test_a_second_policy_and_another_prefix_are_refused(site: Site) -> None:
    site.run()
    for given, words in (
        ({"namespace": "other"}, ("rbln-system", "other", "absent")),
        ({"name_prefix": "acme"}, ("acme", "absent")),
    ):
        result = site.act("run", **given)
        assert result["failed"] and [word for word in words if word not in result["msg"]] == []
        assert [one for one in site.written if one[1] != "nodes"] == []
    assert site.server.kubectl("get", "namespace", "other", check=False).returncode


def test_one_refused_component_does_not_stop_the_others(site: Site) -> None:
    """A policy of the site denies one DaemonSet.

    What needs it is not tried, everything else is there, and the next run mends it.
    """
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["daemonsets"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'rbln-smd'", "message": "not here"}],
    }
    api = "admissionregistration.k8s.io/v1"
    site.create({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "site"}, "spec": spec})
    bound = {"policyName": "site", "validationActions": ["Deny"]}
    site.create(
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "site"}, "spec": bound}
    )
    try:
        probe = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "rbln-smd", "namespace": "default"}}
        body = {"containers": [{"name": "c", "image": "i"}]}
        probe["spec"] = {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": body},
        }
        words = ("create", "--dry-run=server", "-f", "-")
        until(
            20,
            "the site's policy",
            lambda: "not here" in site.server.kubectl(*words, stdin=json.dumps(probe), check=False).stderr,
        )
        result = site.act("run", **EVERYTHING)
        assert result["failed"] and "smd: " in result["msg"] and "not here" in result["msg"]
        actions = {
            name.rpartition("/")[2]: action
            for name, action in result["objects"].items()
            if name.startswith("DaemonSet")
        }
        assert (actions.pop("rbln-smd"), actions.pop("rbln-metrics-exporter")) == ("failed", "not tried")
        assert set(actions.values()) == {"created"}
    finally:
        site.server.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "site")
    until(
        20,
        "no policy of the site",
        lambda: site.server.kubectl(*words, stdin=json.dumps(probe), check=False).returncode == 0,
    )
    result = site.everything()
    assert {name.rpartition("/")[2] for name, action in result["objects"].items() if action == "created"} >= {
        "rbln-smd",
        "rbln-metrics-exporter",
    }
    site.everything()
    assert site.written == []


PLUGIN = "DaemonSet %s/rbln-device-plugin" % NAMESPACE


def policy(site: Site, kind: str, spec: Data, binding: Data, version: str) -> None:
    api = "admissionregistration.k8s.io/" + version
    site.create({"apiVersion": api, "kind": kind, "metadata": {"name": "site"}, "spec": spec})
    bound = {"policyName": "site", **binding}
    site.create({"apiVersion": api, "kind": kind + "Binding", "metadata": {"name": "site"}, "spec": bound})


def edit(site: Site, name: str, spec: Data) -> None:
    """What somebody does by hand."""
    patch = json.dumps({"spec": {"template": {"spec": spec}}})
    site.server.kubectl("-n", NAMESPACE, "patch", "daemonset", name, "--type=strategic", "-p", patch)


def test_k33_a_mutating_policy_is_told_once_and_a_later_edit_is_seen(site: Site) -> None:
    """K33: another registry before each image, and one more toleration, by a real MutatingAdmissionPolicy."""
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["daemonsets"],
    }
    pod = "/spec/template/spec"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": (
                        "[JSONPatch{op: 'replace', path: '%s/containers/0/image', value: "
                        "object.spec.template.spec.containers[0].image.replace('docker.io/', 'mirror.example.net/')}]"
                        % pod
                    )
                },
            },
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": (
                        "object.spec.template.spec.tolerations.exists(t, t.?key.orValue('') == 'added-by-policy') "
                        "? [] : "
                        "[JSONPatch{op: 'add', path: '%s/tolerations/-', "
                        "value: Object.spec.template.spec.tolerations{key: 'added-by-policy', operator: 'Exists'}}]"
                        % pod
                    )
                },
            },
        ],
    }
    policy(site, "MutatingAdmissionPolicy", spec, {}, "v1beta1")
    image = "mirror.example.net/rebellions/k8s-device-plugin:v0.4.3"
    plugin = ("-n", NAMESPACE, "daemonset", "rbln-device-plugin")
    try:
        probe = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "probe", "namespace": "default"}}
        body = {
            "containers": [{"name": "c", "image": "docker.io/i"}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        }
        probe["spec"] = {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": body},
        }
        words = ("create", "--dry-run=server", "-o", "yaml", "-f", "-")
        until(
            30,
            "the site's policy",
            lambda: "mirror.example.net" in site.server.kubectl(*words, stdin=json.dumps(probe), check=False).stdout,
        )
        told = [note for note in site.run()["warnings"] if note.startswith(PLUGIN)]
        assert len(told) == 1 and "an admission policy changed" in told[0], told
        assert image in told[0] and "added-by-policy" in told[0] and "is off" not in told[0]
        again = site.run()
        assert (again["changed"], again["warnings"], site.written) == (False, [], [])
        requests = site.requests
        assert site.server.get(*plugin)["spec"]["template"]["spec"]["containers"][0]["image"] == image
        # Of another manager: it is named, and force makes it ours again.
        edit(site, "rbln-device-plugin", {"containers": [{"name": "device-plugin", "image": "docker.io/evil/other:9"}]})
        refused = site.act("run")
        assert refused["failed"] and "containers" in refused["msg"] and "kubectl-patch" in refused["msg"]
        assert site.run(force_conflicts=True)["objects"][PLUGIN] == "changed"
        assert site.server.get(*plugin)["spec"]["template"]["spec"]["containers"][0]["image"] == image
        site.run()
        assert (site.written, site.requests) == ([], requests)
        # The record of what the policy does is lost: a dry run tells it again.
        site.server.kubectl("-n", NAMESPACE, "delete", "configmap", "rbln-inventory")
        assert site.run()["changed"] is False
        assert {one[2] for one in site.written if one[1] != "leases"} == {"rbln-inventory"}
    finally:
        site.server.kubectl("delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", "site")
    site.absent()


def test_k27_amounts_in_another_spelling_are_no_difference_and_an_edit_is_one(site: Site) -> None:
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": "0.5", "memory": "512Mi"}}
    given = {"device_plugin": {"resources": resources}}
    assert site.run(**given)["warnings"] == []
    live = site.server.get("-n", NAMESPACE, "daemonset", "rbln-device-plugin")["spec"]["template"]["spec"]
    assert live["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "512Mi"},
    }
    again = site.run(**given)
    assert (again["changed"], again["warnings"], site.written) == (False, [], [])
    edited = {"name": "device-plugin", "resources": {"limits": {"memory": "600Mi"}}}
    edit(site, "rbln-device-plugin", {"containers": [edited]})
    told = site.act("run", **given)
    assert told["failed"] and "limits.memory" in told["msg"] and "kubectl-patch" in told["msg"]
    assert site.run(force_conflicts=True, **given)["objects"][PLUGIN] == "changed"
    site.run(**given)
    assert site.written == []


def test_a_warning_of_the_server_is_shown_once(site: Site) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["daemonsets"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name == 'x'", "message": "tell the owners"}],
    }
    policy(site, "ValidatingAdmissionPolicy", spec, {"validationActions": ["Warn"]}, "v1")
    try:
        told: list[str] = []

        def heard() -> bool:
            site.absent()
            told[:] = site.run()["warnings"]
            return any("tell the owners" in text for text in told)

        until(30, "the site's policy", heard)
        assert len(told) == 1 and told[0].startswith("The API server warns: "), told
        assert site.run()["warnings"] == []
    finally:
        site.server.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "site")


def test_k12_a_kubeconfig_that_acts_as_another_has_the_rights_of_that_one(site: Site) -> None:
    """Its token may do everything."""
    config = json.loads(site.config.read_text())
    site.server.kubectl("delete", "clusterrolebinding", "lowly", "--ignore-not-found")
    for acting, allowed in ((("lowly", []), False), (("nobody", ["system:masters"]), True)):
        config["users"][0]["user"].update({"as": acting[0], "as-groups": acting[1]})
        site.config.with_name("acting.kubeconfig").write_text(json.dumps(config))
        result = site.act("run", user="acting")
        assert bool(result.get("failed")) is not allowed, result.get("msg")
        assert allowed or 'User "%s" cannot' % acting[0] in result["msg"], result["msg"]


def test_k28_what_clusters_put_into_a_namespace_does_not_keep_it(site: Site) -> None:
    def put(kind: str, name: str, **more: t.Any) -> None:
        version = RBAC + "/v1" if kind == "RoleBinding" else "v1"
        site.create({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **more})

    role = {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}}
    site.run()
    put("ConfigMap", "team-settings")
    kept = site.absent()
    assert kept["objects"]["Namespace " + NAMESPACE] == "kept"
    assert "ConfigMap %s/team-settings" % NAMESPACE in kept["msg"] and kept["msg"] in kept["warnings"]
    site.server.kubectl("delete", "namespace", NAMESPACE)
    site.run()
    put("ConfigMap", "istio-ca-root-cert")
    for name in ("default", "builder", "deployer"):
        put("ServiceAccount", name)
    put("Secret", "builder-dockercfg-x7k2p", type="kubernetes.io/dockercfg", data={".dockercfg": "e30="})
    for name in ("system:image-pullers", "system:image-builders", "system:deployers"):
        put("RoleBinding", name, **role)
    assert site.absent()["objects"]["Namespace " + NAMESPACE] == "deleted"
    assert site.server.kubectl("get", "namespace", NAMESPACE, check=False).returncode


def test_driver_sets_of_an_earlier_chart_go_and_owned_ones_stay(site: Site) -> None:
    site.server.kubectl("create", "namespace", NAMESPACE)
    owner = site.server.get("namespace", NAMESPACE)["metadata"]["uid"]
    for name, image in (
        ("rbln-k8s-driver-manager-ubuntu", "c"),
        ("other-name", "rbln-umd-installer"),
        ("rbln-k8s-driver-manager-owned", "c"),
    ):
        meta: Data = {"name": name, "namespace": NAMESPACE}
        if name.endswith("owned"):
            meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": owner}]
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": image, "image": "x"}]},
        }
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
        site.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec})
    try:
        kept = site.run(driver={**EVERYTHING["driver"], "remove_legacy": False})
        assert "deleted" not in kept["objects"].values()
        result = site.run(driver=EVERYTHING["driver"])
        gone = sorted(name for name, action in result["objects"].items() if action == "deleted")
        assert gone == [
            "DaemonSet %s/%s" % (NAMESPACE, name) for name in ("other-name", "rbln-k8s-driver-manager-ubuntu")
        ]
        names = {item["metadata"]["name"] for item in site.server.get("-n", NAMESPACE, "daemonsets")["items"]}
        assert "rbln-k8s-driver-manager-owned" in names
    finally:
        site.absent()
        site.server.kubectl("delete", "namespace", NAMESPACE)


def test_a_server_that_restarts_between_two_writes_ends_well(
    site: Site, monkeypatch: pytest.MonkeyPatch, at: int = 30
) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster

    plain, count = Cluster.apply, 0

    def apply(self: t.Any, *words: t.Any) -> t.Any:
        nonlocal count
        count += 1
        if count == at:
            site.server.stop_server()
            starter.start()
        return plain(self, *words)

    starter = threading.Thread(target=site.server.start_server)
    monkeypatch.setattr(Cluster, "apply", apply)
    try:
        first = site.act("run", **EVERYTHING)
    finally:
        monkeypatch.undo()
        if count >= at:
            starter.join()
    assert count >= at
    if first.get("failed"):
        assert "cannot be reached" in first["msg"] or "API server" in first["msg"], first["msg"]
        site.everything(lease_timeout=70, lease_duration=5)
    site.everything()
    assert site.written == []
