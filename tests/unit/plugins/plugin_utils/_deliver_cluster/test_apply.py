# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare, apply, prune, remove: against a store that behaves as the API does where it matters here."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import explain, missing_packages
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import remove as removal
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.apply import (
    Applied,
    apply_objects,
    summarise,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.remove import remove_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.compare import (
    reduce_diff,
    visible,
    with_hash,
    within,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
EVERY = declared(inputs())


def apply(store: Store, dry_run: bool = False, **given: Any) -> Applied:
    """What the role does with these inputs."""
    typed = inputs(**given)
    return apply_objects(store, build(Context(typed, EVERY)), typed, EVERY, dry_run)


def remove(store: Store, **more: Any) -> list[Data]:
    return remove_objects(store, inputs(), EVERY, False, **more)


def actions(applied: Applied | list[Data]) -> dict[str, str]:
    changes = applied.changes if isinstance(applied, Applied) else applied
    return {change["object"]: change["action"] for change in changes}


def unlike(applied: Applied, action: str) -> list[str]:
    return [name for name, done in actions(applied).items() if done != action]


def namespace(labels: Data, annotations: Data | None = None) -> Data:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "rbln-system", "labels": labels, "annotations": annotations or {}},
    }


def test_first_run_creates_and_second_run_writes_nothing() -> None:
    store = Store()
    first = apply(store)
    assert set(actions(first).values()) == {"created"} and len(first.changes) == 6
    store.writes.clear()
    leased = store.lease_writes
    second = apply(store)
    assert set(actions(second).values()) == {"unchanged"} and len(second.changes) == 6
    assert store.writes == [] and store.lease_writes == leased
    assert summarise(second.changes)["changed"] is False


def test_check_mode_on_an_empty_cluster_writes_nothing() -> None:
    store = Store()
    changes = apply(store, True)
    assert set(actions(changes).values()) == {"created"}
    assert store.writes == [] and store.items == {}


def test_only_what_differs_is_applied() -> None:
    store = Store()
    apply(store)
    store.writes.clear()
    changes = apply(store, device_plugin={"image": {"tag": "v9"}})
    assert [name for name, action in actions(changes).items() if action == "changed"] == [
        "DaemonSet rbln-system/rbln-device-plugin"
    ]
    assert store.writes == ["apply DaemonSet"]


def test_drift_is_found_and_corrected() -> None:
    store = Store()
    apply(store)
    store.items[("DaemonSet", "rbln-system", "rbln-validator")]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "evil:1"
    changes = apply(store)
    assert actions(changes)["DaemonSet rbln-system/rbln-validator"] == "changed"
    assert [name for name, action in actions(changes).items() if action != "unchanged"] == [
        "DaemonSet rbln-system/rbln-validator"
    ]


def test_a_component_switched_off_is_pruned_and_nothing_else() -> None:
    stranger = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "other", "namespace": "rbln-system", "labels": {}},
    }
    store = Store(stranger)
    apply(store)
    changes = apply(store, validator={"enabled": False})
    assert {name for name, action in actions(changes).items() if action == "deleted"} == {
        "DaemonSet rbln-system/rbln-validator",
        "ServiceAccount rbln-system/rbln-validator",
    }
    assert ("DaemonSet", "rbln-system", "other") in store.items


def test_S01_podsecurity_labels_of_others_survive() -> None:
    store = Store(namespace({"pod-security.kubernetes.io/enforce": "baseline", "team": "infra"}))
    apply(store)
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["labels"] == {
        "team": "infra",
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/audit": "baseline",
        "pod-security.kubernetes.io/warn": "baseline",
        "rebellions.ai/npu.policy": "rbln",
    }


SELECTOR = "openshift.io/node-selector"
OPENSHIFT: Data = {"capabilities": {"groups": ["security.openshift.io"]}}


def on_openshift(store: Store) -> Applied:
    typed = inputs(**OPENSHIFT)
    served = declared(typed)
    return apply_objects(store, build(Context(typed, served)), typed, served, False)


def test_k32_no_default_node_selector_of_openshift_in_a_namespace_of_ours() -> None:
    store = Store()
    assert on_openshift(store).notes == []
    annotations = store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"]
    assert annotations[SELECTOR] == ""
    assert unlike(on_openshift(store), "unchanged") == []
    # What an administrator says later stays, and is told.
    annotations[SELECTOR] = "kind=npu"
    told = on_openshift(store).notes
    assert len(told) == 1 and "has the node selector kind=npu" in told[0]
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"][SELECTOR] == "kind=npu"


def test_k32_only_a_selector_that_leaves_out_nodes_with_npus_is_told() -> None:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"rebellions.ai/npu.present": "true"}},
        }
        for name in ("a", "b")
    ]
    store = Store(namespace({}, {SELECTOR: "kind=npu"}), *nodes)
    store.items[("Node", "", "a")]["metadata"]["labels"]["kind"] = "npu"
    told = on_openshift(store).notes
    assert len(told) == 1 and "leaves out nodes with NPUs (b)" in told[0]
    store.items[("Node", "", "b")]["metadata"]["labels"]["kind"] = "npu"
    assert on_openshift(store).notes == []
    # The same of Kubernetes itself.
    plain = {"scheduler.alpha.kubernetes.io/node-selector": "kind=cpu"}
    store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"] = plain
    assert "leaves out nodes with NPUs (a, b)" in apply(store).notes[0]


def test_annotations_of_the_namespace_by_input() -> None:
    store = Store(namespace({"team": "infra"}, {"theirs": "1"}))
    apply(store, namespace_annotations={"theirs": "2", "ours": "1"})
    meta = store.items[("Namespace", "", "rbln-system")]["metadata"]
    assert (meta["annotations"]["theirs"], meta["annotations"]["ours"]) == ("1", "1")
    owned = {"f:metadata": {"f:annotations": {"f:ours": {}}}}
    meta["managedFields"] = [{"manager": "rebellions-npu", "operation": "Apply", "fieldsV1": owned}]
    assert unlike(apply(store, namespace_annotations={"theirs": "2", "ours": "1"}), "unchanged") == []
    assert unlike(apply(store, namespace_annotations={"ours": "3"}), "unchanged") == ["Namespace rbln-system"]
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"]["ours"] == "3"
    remove(store)
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"] == {"theirs": "1"}


@pytest.mark.parametrize(("live", "told"), [({}, False), ({SELECTOR: ""}, False), ({SELECTOR: "a=b"}, True)])
def test_k32_a_namespace_of_others_keeps_its_node_selector(live: Data, told: bool) -> None:
    store = Store(namespace({"team": "infra"}, dict(live)))
    assert bool(on_openshift(store).notes) is told
    annotations = store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"]
    assert annotations.get(SELECTOR) == live.get(SELECTOR)
    assert unlike(on_openshift(store), "unchanged") == []


def test_absent_removes_what_we_made_with_the_namespace() -> None:
    store = Store()
    apply(store)
    changes = remove(store)
    assert store.items == {}
    assert set(actions(changes).values()) == {"deleted"} and len(changes) == 6
    assert remove(store) == []


def test_absent_keeps_a_namespace_that_is_not_ours_and_restores_its_labels() -> None:
    store = Store(namespace({"pod-security.kubernetes.io/enforce": "baseline", "team": "infra"}))
    apply(store)
    apply(store)
    remove(store)
    assert list(store.items) == [("Namespace", "", "rbln-system")]
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "baseline",
        "team": "infra",
    }
    assert store.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"] == {}


@pytest.mark.parametrize("text", ["{", "[]"])
def test_former_labels_of_a_namespace_that_cannot_be_read_are_one_error(text: str) -> None:
    store = Store(namespace({"team": "infra"}))
    apply(store)
    live = store.items[("Namespace", "", "rbln-system")]["metadata"]
    live["annotations"]["rebellions.ai/pod-security-before"] = text
    with pytest.raises(
        NpuError, match="rebellions.ai/pod-security-before of the namespace rbln-system.*remove the annotation"
    ):
        remove(store)
    del live["annotations"]["rebellions.ai/pod-security-before"]
    remove(store)
    assert "rebellions.ai/npu.policy" not in live["labels"] and remove(store) == []


def test_absent_keeps_a_namespace_that_holds_something_else() -> None:
    store = Store()
    apply(store)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "rbln-system"}}
    store.items[Store.key(secret)] = secret
    changes = remove(store)
    assert actions(changes)["Namespace rbln-system"] == "kept"
    assert changes[-1]["after"]["holds"] == ["Secret rbln-system/theirs"]


LEFT: list[Data] = [
    {"kind": "ConfigMap", "name": "kube-root-ca.crt"},
    {"kind": "ConfigMap", "name": "istio-ca-root-cert"},
    {"kind": "ServiceAccount", "name": "default"},
    {"kind": "ServiceAccount", "name": "builder"},
    {"kind": "ServiceAccount", "name": "deployer"},
    {"kind": "Secret", "name": "builder-dockercfg-x7k2p", "type": "kubernetes.io/dockercfg"},
    {"kind": "RoleBinding", "name": "system:image-pullers"},
    {"kind": "RoleBinding", "name": "system:image-builders"},
    {"kind": "RoleBinding", "name": "system:deployers"},
]
MORE: list[Data] = [
    {"kind": "Secret", "name": "default-token-8xk2q", "type": "kubernetes.io/service-account-token"},
    {"kind": "Secret", "name": "rbln-device-plugin-dockercfg-2b4vz", "type": "kubernetes.io/dockercfg"},
    {"kind": "ConfigMap", "name": "site-ca", "labels": {"trust.cert-manager.io/bundle": "site-ca"}},
    {"kind": "NetworkPolicy", "name": "deny", "labels": {"generate.kyverno.io/policy-name": "deny-all"}},
    {"kind": "Secret", "name": "regcred", "annotations": {"reflector.v1.k8s.emberstack.com/reflects": "infra/regcred"}},
    {"kind": "RoleBinding", "name": "tenant", "labels": {"hnc.x-k8s.io/inherited-from": "team"}},
    {"kind": "ServiceAccount", "name": "pipeline"},
    {"kind": "ConfigMap", "name": "odh-trusted-ca-bundle"},
]
THEIRS: list[Data] = [
    {"kind": "ConfigMap", "name": "team-settings"},
    {"kind": "Secret", "name": "team-dockercfg-x7k2p", "type": "kubernetes.io/dockercfg"},
    {"kind": "Secret", "name": "builder-dockercfg-x7k2p", "type": "Opaque"},
    {"kind": "ServiceAccount", "name": "robot"},
    # No account of OpenShift where nothing else is of it.
    {"kind": "ServiceAccount", "name": "builder"},
    {"kind": "ConfigMap", "name": "builder"},
]


def put(store: Store, given: Data) -> None:
    meta = {
        "namespace": "rbln-system",
        **{key: given[key] for key in ("name", "labels", "annotations") if key in given},
    }
    item = {"kind": given["kind"], "metadata": meta, "type": given.get("type")}
    store.items[Store.key(item)] = item


@pytest.mark.parametrize("more", [[], MORE])
def test_k28_what_the_cluster_put_into_the_namespace_does_not_keep_it(more: list[Data]) -> None:
    store = Store()
    apply(store)
    for given in LEFT + more:
        put(store, given)
    notes: list[str] = []
    changes = remove(store, notes=notes)
    assert (actions(changes)["Namespace rbln-system"], notes) == ("deleted", [])


@pytest.mark.parametrize("given", THEIRS)
def test_k28_what_people_made_keeps_the_namespace_and_is_named(given: Data) -> None:
    store = Store()
    apply(store)
    for one in (LEFT[0], given):
        put(store, one)
    notes: list[str] = []
    changes = remove(store, notes=notes)
    assert actions(changes)["Namespace rbln-system"] == "kept"
    assert notes == [
        "The namespace rbln-system stays, because it holds %s rbln-system/%s. "
        "Next: Delete it by hand when nothing in it is needed." % (given["kind"], given["name"])
    ]


def test_absent_that_does_not_finish_names_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    apply(store)
    monkeypatch.setattr(store, "delete", lambda item, dry_run: None)
    times = iter([0.0, 1000.0])
    monkeypatch.setattr(removal.time, "sleep", lambda seconds: None)
    with pytest.raises(NpuError, match="DaemonSet rbln-system/rbln-device-plugin"):
        remove(store, clock=lambda: next(times))


def test_S02_secrets_in_output_never_show_their_content() -> None:
    store = Store()
    given = {"pull_secret_content": {"auths": {"r": {"auth": "aHVudGVyMg=="}}}}
    for value in ("aHVudGVyMg==", "b3RoZXI="):
        given["pull_secret_content"]["auths"]["r"]["auth"] = value
        summary = summarise(apply(store, **given).changes)
        assert summary["objects"]["Secret rbln-system/rbln-registry"] in ("created", "changed")
        assert value not in str(summary)
        assert "(hidden" in str(summary["diff"])
    encoded = store.items[("Secret", "rbln-system", "rbln-registry")]["data"][".dockerconfigjson"]
    assert encoded not in str(summary)
    assert with_hash({"kind": "Secret", "metadata": {}, "data": {"a": "b"}}) == dict(
        with_hash({"kind": "Secret", "metadata": {}}), data={"a": "b"}
    )
    again = summarise(apply(store, **given).changes)
    assert again["changed"] is False


@pytest.mark.parametrize(
    "wanted, live, expected",
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": [{"n": "x"}]}, {"a": [{"n": "x", "default": True}]}, True),
        ({"a": [{"n": "x"}]}, {"a": [{"n": "x"}, {"n": "y"}]}, False),
        ({"a": ""}, {}, True),
        ({"hostPID": False}, {}, True),
        ({"a": [], "b": {}}, {}, True),
        ({"a": []}, {"a": [1]}, False),
        ({"a": {"b": "c"}}, {}, False),
        ({"a": "1"}, {"a": 1}, False),
    ],
)
def test_within(wanted: Data, live: Data, expected: bool) -> None:
    assert within(wanted, live) is expected


def test_diff_shows_only_what_differs() -> None:
    assert reduce_diff({"a": 1, "b": {"c": 1, "d": 2}}, {"a": 1, "b": {"c": 1, "d": 3}, "e": 4}) == (
        {"b": {"d": 2}},
        {"b": {"d": 3}, "e": 4},
    )


def test_visible_leaves_out_what_the_server_counts() -> None:
    item = {
        "kind": "X",
        "metadata": {"name": "n", "uid": "1", "resourceVersion": "2", "managedFields": []},
        "status": {"a": 1},
    }
    assert visible(item) == {"kind": "X", "metadata": {"name": "n"}}


ERRORS = {
    "conflict": (
        409,
        {"message": "x", "details": {"causes": [{"field": ".spec.replicas", "message": 'conflict with "helm"'}]}},
        [".spec.replicas", '"helm"', "rbln_operands_force_conflicts"],
    ),
    "not allowed": (
        403,
        {"message": 'User "u" cannot patch resource "daemonsets"'},
        ["not allowed", "daemonsets", "right"],
    ),
    "the namespace goes": (
        403,
        {
            "message": (
                'configmaps "c" is forbidden: unable to create new content in namespace n because it is '
                "being terminated"
            )
        },
        ["being terminated", "Wait until the namespace is gone"],
    ),
    "a webhook refuses": (
        403,
        {"message": 'admission webhook "v.k.io" denied the request: no latest'},
        ["v.k.io", "no latest", "Change what the admission"],
    ),
    "a webhook calls it invalid": (
        400,
        {"message": 'admission webhook "v.k.io" denied the request'},
        ["v.k.io", "Change what the admission policy asks for"],
    ),
    "an admission policy refuses": (
        422,
        {
            "message": (
                "daemonsets.apps d is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied "
                "request: no hostPath"
            )
        },
        ["no hostPath", "Change what the admission policy asks for"],
    ),
    "a webhook is away": (
        500,
        {"message": 'Internal error occurred: failed calling webhook "v.k.io": no endpoints'},
        ["v.k.io", "Repair the webhook"],
    ),
    "quota": (
        403,
        {"message": 'configmaps "c" is forbidden: exceeded quota: q, requested: count/configmaps=1'},
        ["exceeded quota", "Raise the quota"],
    ),
    "credentials": (401, {"message": "Unauthorized"}, ["credentials", "kubeconfig"]),
    "invalid": (422, {"message": "spec.x: Required value"}, ["invalid", "spec.x", "input"]),
    "unknown field": (400, {"message": 'unknown field "spec.foo"'}, ["invalid", "spec.foo"]),
    "unknown field in an apply": (
        500,
        {"message": "failed to create typed patch object (a/b): .spec.x: field not declared in schema"},
        ["invalid", ".spec.x", "input"],
    ),
    "other": (500, {}, ["HTTP 500", "no message"]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_of_the_api_are_explained(case: str) -> None:
    status, body, words = ERRORS[case]
    text = " Next: ".join(explain(status, "Apply DaemonSet a/b", body))
    assert text.startswith("Apply DaemonSet a/b: ")
    assert [word for word in words if word not in text] == []


def test_A03_ee_deps_names_what_the_interpreter_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import api

    monkeypatch.setattr(
        api.importlib.util, "find_spec", lambda name: None if name in ("kubernetes", "yaml") else object()
    )
    assert missing_packages() == ["kubernetes>=24.2.0", "PyYAML"]
    with pytest.raises(NpuError) as caught:
        api.require_packages()
    assert api.sys.executable in str(caught.value) and "-m pip install 'kubernetes>=24.2.0' 'PyYAML'" in str(
        caught.value
    )
