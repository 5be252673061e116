# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a cluster on a real API server: each is the first or second cause of its cluster or its host."""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

import pytest

from tests.integration._act import act, inputs, member
from tests.integration._api_server import NAMESPACE, NO_IMAGE, Data
from tests.integration._cluster_site import HOSTS, POLICY, Site, running
from tests.integration._everything import FACTS
from tests.lab._base import until

SOCKETS = "/var/lib/kubelet/device-plugins"


class _Vars(t.Dict[str, Data]):
    def raw_get(self, host: str) -> Data:
        return self[host]


def _host(sockets: str) -> Data:
    """What a host of the play has registered: where its kubelet has the sockets of device plugins."""
    runtimes = {"kubelet": {"present": True, "device_plugin_dir": sockets}}
    return {"rbln_discover_observation": {"ansible_facts": {"rbln": FACTS, "rbln_runtimes": runtimes}}}


class Doctor:
    """`say` is what the doctor finds: {host or "cluster": ids, the most likely first}."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sets = ("-n", NAMESPACE, "daemonset", "rbln-device-plugin")

    def say(
        self, user: str = "runner", sockets: str = SOCKETS, config: str = "", **given: t.Any
    ) -> dict[str, list[str]]:
        from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import group, ordered
        from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.signs import read_sign

        path = config or str(self.site.config.with_name(user + ".kubeconfig"))
        variables = inputs(path, **given)
        members = [
            {**member(variables, host, FACTS, node_name=given.get("node_name", node)), "cluster": "c"}
            for host, node in HOSTS.items()
        ]
        variables["hostvars"] = _Vars({host: _host(sockets) for host in HOSTS})
        result = act("cluster", variables, doctor=True, members=members)
        assert not result.get("failed") and result["changed"] is False, result
        beside = group(map(read_sign, result["signs"]))
        found = {host: ordered(map(read_sign, mine), beside) for host, mine in result["hosts"].items()}
        found["cluster"] = ordered(one for cause in beside for one in cause.signs)
        return {name: [one.cause.id for one in causes] for name, causes in found.items()}

    def ready(self) -> None:
        """Every pod that the controllers make is ready, as kubelets would have it."""

        def all_ready() -> bool:
            self.site.server.play_kubelet()
            status = self.site.server.get(*self.sets)["status"]
            return bool(status.get("numberReady") == status["desiredNumberScheduled"] > 0)

        until(30, "ready pods", all_ready)

    def patch(self, *words: str, change: t.Any, kind: str = "merge") -> None:
        self.site.server.kubectl("patch", *words, "--type=" + kind, "-p", json.dumps(change))

    def again(self) -> None:
        """The pods of the device plugin are made anew."""
        self.site.server.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--wait=false")
        self.site.server.play_kubelet()


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Doctor]:
    with running(Site(tmp_path_factory.mktemp("doctor") / "home", ["lowly"])) as site:
        one = Doctor(site)
        site.server.kubectl("taint", "nodes", "--all", "node.kubernetes.io/not-ready-", check=False)
        site.run()
        one.ready()
        yield one


@contextlib.contextmanager
def node(doctor: Doctor, change: Data, back: Data, *part: str) -> t.Iterator[None]:
    doctor.patch("node", "node-0000", *part, change=change)
    try:
        yield
    finally:
        doctor.patch("node", "node-0000", *part, change=back)


def test_a_cluster_in_order_has_no_cause_and_nothing_is_written(doctor: Doctor) -> None:
    before = len(doctor.site.server.asked())
    assert doctor.say() == {"a": [], "b": [], "cluster": []}
    verbs = {(verb, plural) for verb, plural, _name in doctor.site.server.asked(before)}
    written = {one for one in verbs if one[0] not in ("get", "list") and "reviews" not in one[1]}
    assert written == set() and ("list", "nodes") in verbs


def test_what_is_wrong_with_a_node(doctor: Doctor) -> None:
    conditions = doctor.site.server.get("node", "node-0000")["status"]["conditions"]
    sick = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}]
    status = ("--subresource=status",)
    with node(doctor, {"status": {"conditions": sick}}, {"status": {"conditions": conditions}}, *status):
        assert doctor.say()["a"][:1] == ["node_not_ready"]
    with node(doctor, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}):
        assert doctor.say()["a"] == ["node_cordoned"]
    taint = {"key": "rebellions.ai/npu-driver-upgrade-failed", "value": "x", "effect": "NoSchedule"}
    with node(
        doctor, {"spec": {"taints": [taint], "unschedulable": True}}, {"spec": {"taints": None, "unschedulable": None}}
    ):
        assert doctor.say()["a"][:1] == ["rollout_failed"]
    pressed = [*conditions, {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"}]
    with node(doctor, {"status": {"conditions": pressed}}, {"status": {"conditions": conditions}}, *status):
        assert doctor.say()["a"][:1] == ["disk_full"]
    none = {"status": {"allocatable": {"rebellions.ai/npu": "1"}}}
    with node(doctor, none, {"status": {"allocatable": {"rebellions.ai/npu": "2"}}}, *status):
        assert doctor.say()["a"] == ["npus_not_allocatable"]
        # The plugin's socket is in a place that this kubelet does not read: that explains it.
        assert doctor.say(sockets="/data/kubelet/device-plugins")["a"][:2] == [
            "plugin_socket_elsewhere", "npus_not_allocatable"
        ]  # fmt: skip
    assert doctor.say()["a"] == []


def test_a_taint_of_people_keeps_the_pods_off(doctor: Doctor) -> None:
    with node(
        doctor,
        {"spec": {"taints": [{"key": "team", "value": "ml", "effect": "NoExecute"}]}},
        {"spec": {"taints": None}},
    ):
        doctor.site.server.kubectl(
            "-n", NAMESPACE, "delete", "pods", "--wait=false", "--field-selector", "spec.nodeName=node-0000"
        )
        found = doctor.say()
        assert found["a"][0] == "node_tainted" and found["b"] == []
    doctor.ready()


@contextlib.contextmanager
def refused(doctor: Doctor, item: Data, *words: str) -> t.Iterator[None]:
    """The controller cannot make pods anew, and says why."""
    quota = item.get("kind") == "ResourceQuota"
    if item:
        doctor.site.create(item)
    if quota:
        # No controller of quotas runs here.
        used = {"hard": item["spec"]["hard"], "used": item["spec"]["hard"]}
        doctor.patch(
            "-n", NAMESPACE, "resourcequota", item["metadata"]["name"], "--subresource=status", change={"status": used}
        )
    elif words:
        doctor.site.server.kubectl("label", "ns", NAMESPACE, *words, "--overwrite")
    try:

        def told() -> bool:
            # A policy is obeyed a while after it was made.
            doctor.again()
            listed = doctor.site.server.get("-n", NAMESPACE, "events", "--field-selector=reason=FailedCreate")["items"]
            return bool(listed)

        until(40, "a refusal", told)
        yield
    finally:
        for one in item.get("items") or filter(None, [item]):
            kind, name = one["kind"].lower(), one["metadata"]["name"]
            doctor.site.server.kubectl("-n", NAMESPACE, "delete", kind, name, "--ignore-not-found")
        if words:
            doctor.site.server.kubectl("label", "ns", NAMESPACE, *(word.partition("=")[0] + "-" for word in words))
        doctor.site.server.kubectl("-n", NAMESPACE, "delete", "events", "--all")


def test_quota(doctor: Doctor) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "0"}},
    }  # fmt: skip
    with refused(doctor, quota):
        found = doctor.say()
        assert found["cluster"][0] == "quota_exceeded"


def test_pod_security(doctor: Doctor) -> None:
    with refused(doctor, {}, "pod-security.kubernetes.io/enforce=restricted"):
        assert doctor.say()["cluster"][0] == "security_refused"


ADMISSION = "admissionregistration.k8s.io/v1"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
OURS = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
# A webhook whose server nobody runs, and a policy of the API server that uses the words of another refusal.
AWAY: Data = {
    "apiVersion": ADMISSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "away"},
    "webhooks": [{
        "name": "away.example.com", "rules": [PODS], "namespaceSelector": OURS, "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:9/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }],
}  # fmt: skip
POLICED: Data = {
    "apiVersion": "v1", "kind": "List",
    "items": [
        {
            "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "site"},
            "spec": {
                "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [PODS]},
                "validations": [{"expression": "false", "message": "this pod violates PodSecurity of the site"}],
            },
        },
        {
            "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "site"},
            "spec": {
                "policyName": "site", "validationActions": ["Deny"], "matchResources": {"namespaceSelector": OURS},
            },
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize("item", [AWAY, POLICED], ids=["webhook", "policy"])
def test_what_the_cluster_admits_is_asked_of_webhooks_and_policies(doctor: Doctor, item: Data) -> None:
    with refused(doctor, item):
        assert doctor.say()["cluster"][0] == "admission_refused"
    doctor.again()
    doctor.ready()


def test_an_image_that_cannot_be_pulled_and_a_namespace_without_ours(doctor: Doctor) -> None:
    doctor.again()
    doctor.ready()
    image = {"spec": {"template": {"spec": {"containers": [{"name": "device-plugin", "image": "x/y:" + NO_IMAGE}]}}}}
    doctor.patch(*doctor.sets, change=image, kind="strategic")
    doctor.again()

    def waits() -> bool:
        doctor.site.server.play_kubelet()
        pods = doctor.site.server.get("-n", NAMESPACE, "pods")["items"]
        wait = [
            "waiting" in str(pod["status"].get("containerStatuses")) for pod in pods if "plugin" in str(pod["metadata"])
        ]
        return len(wait) == 3 and all(wait)

    until(30, "pods without their image", waits)
    found = doctor.say()
    assert found["a"][:1] == found["b"][:1] == ["image_not_pulled"], found
    doctor.site.server.kubectl("-n", NAMESPACE, "delete", "daemonset", "--all")
    assert doctor.say()["cluster"][:1] == ["not_deployed"]
    doctor.site.run()
    doctor.ready()


def test_an_exporter_that_answers_wrongly_beside_the_driver(doctor: Doctor) -> None:
    """Somebody has set an older image: the inputs are as they were."""
    given: Data = {"metrics_exporter": {"enabled": True, "image": {"tag": "0.3.4"}}}
    doctor.site.run(**given)
    doctor.ready()
    exporter = ("-n", NAMESPACE, "daemonset", "rbln-metrics-exporter")
    try:
        for image, causes in (("x/y:0.3.4", []), ("x/y:0.2.0", ["exporter_mismatch"])):
            spec = doctor.site.server.get(*exporter)["spec"]["template"]["spec"]
            change = {"containers": [{"name": one["name"], "image": image} for one in spec["containers"]]}
            doctor.patch(*exporter, change={"spec": {"template": {"spec": change}}}, kind="strategic")
            assert [one for one in doctor.say(**given)["a"] if one == "exporter_mismatch"] == causes
    finally:
        doctor.site.run()


def test_pods_that_wait_because_others_hold_every_npu(doctor: Doctor) -> None:
    doctor.site.server.start_scheduler()
    pod: Data = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"rebellions.ai/npu": "2"}}}]},
    }  # fmt: skip
    for number in range(4):
        doctor.site.create({**pod, "metadata": {"namespace": "default", "name": "wants-%d" % number}})

    def one_waits() -> bool:
        found = doctor.site.server.get("-n", "default", "pods")["items"]
        return sum("Insufficient rebellions.ai/npu" in json.dumps(one["status"]) for one in found) == 1

    until(30, "three pods that run, and one that waits", one_waits)
    try:
        assert doctor.say()["cluster"] == ["npus_all_taken"]
    finally:
        doctor.site.server.kubectl("-n", "default", "delete", "pods", "--all", "--force", "--grace-period=0")


def test_another_run_holds_the_lease(doctor: Doctor) -> None:
    now = "2099-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": "elsewhere/1/abcd", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
        "metadata": {"name": "rbln-operands", "namespace": NAMESPACE},
    }  # fmt: skip
    doctor.site.server.kubectl("apply", "-f", "-", stdin=json.dumps(lease))
    try:
        assert doctor.say()["cluster"] == ["run_in_progress"]
        doctor.patch(
            "-n", NAMESPACE, "lease", "rbln-operands", change={"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
        )
        assert doctor.say()["cluster"] == []
    finally:
        doctor.site.server.kubectl("-n", NAMESPACE, "delete", "lease", "rbln-operands")


def reader(doctor: Doctor) -> None:
    """The account lowly may read all of the cluster, and write nothing."""
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    role: Data = {"kind": "ClusterRole", "metadata": {"name": "lowly"}, "rules": rules}
    binding: Data = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "lowly"},
        "subjects": [{"kind": "User", "name": "lowly"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lowly"},
    }
    for item in (role, binding):
        doctor.site.create({"apiVersion": "rbac.authorization.k8s.io/v1", **item})
    words = ("auth", "can-i", "list", "pods", "-A", "--as", "lowly")
    until(20, "the rights to read", lambda: doctor.site.server.kubectl(*words, check=False).stdout.strip() == "yes")


def test_an_account_that_may_only_read_lacks_nothing_until_nothing_is_deployed(doctor: Doctor) -> None:
    found = doctor.say(user="lowly")
    assert found["cluster"][0] == "rights_missing" and "not_deployed" not in found["cluster"]
    reader(doctor)
    try:
        found = doctor.say(user="lowly")
        assert found == doctor.say() and found["cluster"] == []
        doctor.site.server.kubectl("-n", NAMESPACE, "delete", "daemonset", "--all")
        assert doctor.say(user="lowly")["cluster"] == ["deploy_not_allowed", "not_deployed"]
        assert doctor.say()["cluster"] == ["not_deployed"]
    finally:
        doctor.site.server.kubectl("delete", "clusterrolebinding", "lowly")
        doctor.site.run()
        doctor.ready()


def test_operator_and_two_hosts_of_one_node(doctor: Doctor) -> None:
    found = doctor.say(node_name="node-0000")
    assert found["a"] == found["b"] == ["two_hosts_one_node"]
    doctor.site.define(POLICY, "v1beta1")
    policy = {"apiVersion": "rebellions.ai/v1beta1", "kind": "RBLNClusterPolicy", "metadata": {"name": "theirs"}}
    doctor.site.create(policy)
    try:
        assert doctor.say()["cluster"][0] == "vendor_operator"
        assert "vendor_operator" not in doctor.say(coexistence="coexist")["cluster"]
    finally:
        doctor.site.undefine(POLICY)


def test_an_api_server_that_does_not_answer_is_an_answer(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import api

    monkeypatch.setattr(api, "TRIES", 1)
    monkeypatch.setattr(api.time, "sleep", lambda seconds: None)
    config: Path = doctor.site.server.write_kubeconfig("dead", port=9)
    assert doctor.say(config=str(config))["cluster"] == ["api_unreachable"]
    assert doctor.say(config=str(doctor.site.server.write_kubeconfig("old", token="expired")))["cluster"] == [
        "api_login_refused"
    ]
