# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is no longer wanted, what others made, two installations, and the removal of all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import remove as removal
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.differences import diff_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.inventory import (
    Inventory,
    inventory_object,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.namespace import CREATED, remove_namespace
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.ours import creation_order, is_legacy
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.delivery_acts import (
    EVERY,
    IMAGE,
    INVENTORY,
    LEASE,
    Data,
    apply,
    done,
    remove,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs


def copy_of_ours(store: Store, name: str) -> Data:
    item = copy.deepcopy(store.items[("DaemonSet", "rbln-system", "rbln-validator")])
    item["metadata"]["name"] = name
    return item


def test_a_copy_that_somebody_made_stays_and_is_named() -> None:
    store = Store()
    apply(store)
    theirs = copy_of_ours(store, "copied")
    store.items[Store.key(theirs)] = theirs
    applied = apply(store, validator={"enabled": False})
    assert applied.notes == ["DaemonSet rbln-system/copied has our labels and is not in the inventory: it stays."]
    assert ("DaemonSet", "rbln-system", "copied") in store.items and (
        "DaemonSet",
        "rbln-system",
        "rbln-validator",
    ) not in store.items


def test_without_an_inventory_all_with_our_labels_is_ours() -> None:
    """An installation of an earlier release, or an inventory that was lost."""
    store = Store()
    apply(store, **IMAGE)
    del store.items[INVENTORY]
    applied = apply(store, validator={"enabled": False})
    assert {name for name, action in done(applied).items() if action == "deleted"} == {
        "DaemonSet rbln-system/rbln-validator",
        "ServiceAccount rbln-system/rbln-validator",
        "ClusterRole rbln-validator",
        "ClusterRoleBinding rbln-validator",
    }
    assert [entry["object"][3] for entry in json.loads(store.items[INVENTORY]["data"]["objects.json"])] == [
        "rbln-device-plugin", "rbln-no-ingress", "rbln-device-plugin",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["nonsense", "[{}]", '[{"object": ["v1", "Odd", "", "x"]}]', '{"a": 1}'])
def test_an_inventory_that_cannot_be_read_is_one_error(text: str) -> None:
    store = Store()
    apply(store)
    store.items[INVENTORY]["data"]["objects.json"] = text
    with pytest.raises(NpuError, match="rbln-system/rbln-inventory cannot be read.*Next: Restore it"):
        apply(store)


def driver_set(name: str, uid: str) -> Data:
    labels = {**inventory_object(inputs(), Inventory())["metadata"]["labels"], "app.kubernetes.io/component": "driver"}
    spec = {"template": {"spec": {"containers": [{"name": "rbln-driver-container"}]}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "rbln-system", "labels": labels, "uid": uid},
        "spec": spec,
    }


def pod(uid: str, node: str, labels: Data) -> Data:
    meta = {"name": "p-" + node, "namespace": "rbln-system", "labels": labels, "ownerReferences": [{"uid": uid}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node}}


def test_the_daemon_set_of_a_driver_is_pruned_only_when_it_has_no_pods() -> None:
    store = Store()
    used, free = driver_set("rbln-driver-a", "1"), driver_set("rbln-driver-b", "2")
    apply(store, extra=[used, free])
    running = pod("1", "n1", used["metadata"]["labels"])
    store.items[Store.key(running)] = running
    applied = apply(store)
    assert done(applied) == {
        "DaemonSet rbln-system/rbln-driver-b": "deleted",
        "DaemonSet rbln-system/rbln-driver-a": "kept",
    }
    assert "its driver runs on n1" in applied.notes[0]
    leased = store.lease_writes
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-driver-a": "kept"} and store.lease_writes == leased
    del store.items[Store.key(running)]
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-driver-a": "deleted"}


def test_absent_leaves_a_copy_that_somebody_made() -> None:
    store = Store()
    apply(store)
    theirs = copy_of_ours(store, "copied")
    theirs["metadata"]["uid"] = "7"
    store.items[Store.key(theirs)] = theirs
    running = pod("7", "n1", theirs["metadata"]["labels"])
    store.items[Store.key(running)] = running
    changes = {one["object"]: one["action"] for one in remove(store)}
    assert changes["DaemonSet rbln-system/copied"] == "kept" and changes["Namespace rbln-system"] == "kept"
    assert {key[0] for key in store.items} == {"Namespace", "DaemonSet", "Pod"}


def test_absent_keeps_no_more_than_metadata_of_pods() -> None:
    store = Store()
    apply(store)
    listed = store.list
    asked: list[tuple[str, bool]] = []

    def noted(api_version: str, kind: str, *more: Any, metadata: bool = False) -> list[Data]:
        asked.append((kind, metadata))
        return listed(api_version, kind, *more, metadata=metadata)

    store.list = noted  # type: ignore[method-assign]
    remove(store)
    # The wait for the end of our pods, and the look at what is left in the namespace.
    assert [metadata for kind, metadata in asked if kind == "Pod"] == [True, True]
    assert not any(metadata for kind, metadata in asked if kind != "Pod")


def test_absent_that_fails_gives_the_lease_up() -> None:
    store = Store()
    apply(store)

    def refuse(item: Data, dry_run: bool) -> None:
        raise ApiError(403, "Delete " + item["kind"], {"message": "no"})

    store.delete = refuse  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="not allowed"):
        remove(store)
    assert store.items[LEASE]["spec"]["holderIdentity"] == ""


def test_absent_that_loses_the_lease_while_it_waits_leaves_what_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    apply(store)

    class Lost(removal.WriteLease):
        def check(self) -> None:
            if not [key for key in store.items if key[0] == "DaemonSet"]:
                raise NpuError("The Lease was lost.", "Run again.")

    monkeypatch.setattr(removal, "WriteLease", Lost)
    items = [("DaemonSet", "rbln-system", "rbln-device-plugin"), ("DaemonSet", "rbln-system", "rbln-validator")]
    others = [key for key in store.items if key[0] not in ("DaemonSet", "Namespace", "ConfigMap", "Lease")]
    for key in [*items[1:], *others]:
        del store.items[key]
    with pytest.raises(NpuError, match="The Lease was lost"):
        remove(store)
    assert INVENTORY in store.items and LEASE in store.items and items[0] not in store.items


def test_absent_takes_away_what_another_writer_made_while_it_waited_for_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    apply(store, validator={"enabled": False})
    take = removal.WriteLease.take

    def after_another(lease: removal.WriteLease) -> None:
        apply(store)
        take(lease)

    monkeypatch.setattr(removal, "WriteLease", type("Late", (removal.WriteLease,), {"take": after_another}))
    remove(store)
    assert store.items == {}


LEGACY = {
    "by name": ("rbln-k8s-driver-manager-x", "any", {}, True),
    "by container": ("any", "rbln-umd-installer", {}, True),
    "of an operator": ("rbln-k8s-driver-manager", "any", {"ownerReferences": [{"kind": "RBLNDriver"}]}, False),
    "ours": (
        "rbln-k8s-driver-manager",
        "any",
        {"labels": inventory_object(inputs(), Inventory())["metadata"]["labels"]},
        False,
    ),
    "something else": ("any", "any", {}, False),
}


@pytest.mark.parametrize("case", LEGACY)
def test_000_08_driver_daemon_sets_of_earlier_charts(case: str) -> None:
    name, container, meta, expected = LEGACY[case]
    spec = {"template": {"spec": {"containers": [{"name": container}]}}}
    assert is_legacy({"kind": "DaemonSet", "metadata": {"name": name, **meta}, "spec": spec}) is expected


def test_a_legacy_driver_goes_after_ours_has_come() -> None:
    old = driver_set("rbln-k8s-driver-manager", "9")
    old["metadata"]["labels"] = {}
    store = Store(old)
    apply(store)
    assert Store.key(old) in store.items
    new = driver_set("rbln-driver-a", "1")
    kept = apply(store, extra=[new], driver={"remove_legacy": False})
    assert "deleted" not in done(kept).values()
    typed = inputs()
    told = diff_objects(store, [*build(Context(typed, EVERY)), new], typed, EVERY)
    assert [(one["object"], one["action"]) for one in told] == [
        ("DaemonSet rbln-system/rbln-k8s-driver-manager", "deleted")
    ]
    applied = apply(store, extra=[new])
    assert done(applied) == {"DaemonSet rbln-system/rbln-k8s-driver-manager": "deleted"}
    assert done(apply(store, extra=[new])) == {}


def test_two_installations_in_one_cluster_are_refused() -> None:
    store = Store()
    apply(store, namespace="other")
    with pytest.raises(
        NpuError,
        match=(
            "an installation in the namespace other, and a second one is wanted in rbln-system.*Set "
            "rbln_namespace to other"
        ),
    ):
        apply(store)
    assert {key[1] for key in store.items} == {"", "other"} and ("Namespace", "", "rbln-system") not in store.items
    remove(store, namespace="other")
    assert apply(store).failures == {}


def test_two_installations_that_came_at_once_can_be_removed() -> None:
    """Both labelled their namespace before either looked again: both are refused, and each can be taken away."""
    store = Store()
    apply(store, namespace="other")
    labels = store.items[("Namespace", "", "other")]["metadata"]["labels"]
    store.items[("Namespace", "", "rbln-system")] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "rbln-system", "labels": dict(labels), "annotations": {}},
    }
    for name in ("other", "rbln-system"):
        with pytest.raises(NpuError, match="a second one is wanted"):
            apply(store, namespace=name)
    remove(store, namespace="other")
    assert apply(store).failures == {}


def test_another_prefix_is_refused_until_the_former_is_gone() -> None:
    store = Store()
    apply(store, name_prefix="former")
    with pytest.raises(NpuError, match="has rbln_operands_name_prefix former, and rbln is wanted.*Remove it"):
        apply(store)
    remove(store, name_prefix="former")
    assert store.items == {}


def test_absent_leaves_nothing_and_gives_a_foreign_namespace_back() -> None:
    before = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "rbln-system", "labels": {"team": "a"}, "annotations": {}},
    }
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": "rbln-system", "labels": {}},
    }
    for given in ({}, {"pod_security": ""}):
        store = Store(before, theirs)
        apply(store, ca_bundle="x", runtime_class={"enabled": True, "handler": "h"}, **IMAGE, **given)
        remove(store, **given)
        assert {key: item["metadata"]["labels"] for key, item in store.items.items()} == {
            ("Namespace", "", "rbln-system"): {"team": "a"}, ("ConfigMap", "rbln-system", "theirs"): {},
        }  # fmt: skip


@pytest.mark.parametrize(
    "api_version, kind", [("monitoring.coreos.com/v1", "ServiceMonitor"), ("resource.k8s.io/v1", "ResourceClaim")]
)
def test_our_namespace_stays_with_what_others_have_in_it(api_version: str, kind: str) -> None:
    theirs = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "theirs", "namespace": "rbln-system", "labels": {}},
    }
    store = Store(theirs)
    apply(store)
    assert {one["object"]: one["action"] for one in remove(store)}["Namespace rbln-system"] == "kept"
    listed = store.list

    def away(api_version: str, kind_: str, *more: Any, **given: Any) -> list[Data]:
        if kind_ == kind:
            raise ApiError(404, "List " + kind_, {})
        return listed(api_version, kind_, *more, **given)

    store.list = away  # type: ignore[method-assign]
    apply(store)
    assert {one["object"]: one["action"] for one in remove(store)}["Namespace rbln-system"] == "deleted"


def test_what_needs_others_is_created_last() -> None:
    made = [
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("apps/v1", "DaemonSet"),
        ("resource.k8s.io/v1", "DeviceClass"),
        ("v1", "ServiceAccount"),
    ]
    items: list[Data] = [{"apiVersion": version, "kind": kind, "metadata": {"name": "x"}} for version, kind in made]
    assert [item["kind"] for item in sorted(items, key=creation_order)] == [
        "ServiceAccount",
        "DeviceClass",
        "DaemonSet",
        "ServiceMonitor",
    ]


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        (
            [],
            (
                "The namespace n is still there. Next: Remove what blocks its deletion, or give it more time: "
                "rbln_operands_wait_timeout"
            ),
        ),
        (
            [
                {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "all deleted"},
                {
                    "type": "NamespaceFinalizersRemaining",
                    "status": "True",
                    "message": "some content has finalizers: x.io/y in 1 resource instances",
                },
            ],
            "The namespace n is still there: some content has finalizers: x.io/y in 1 resource instances. Next: ",
        ),
    ],
)
def test_a_namespace_that_does_not_go_says_what_holds_it(conditions: list[Data], told: str) -> None:
    class Slow(Store):
        def delete(self, item: Data, dry_run: bool) -> None:
            pass

    item = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "n", "annotations": {CREATED: "true"}},
        "status": {"conditions": conditions},
    }
    with pytest.raises(NpuError) as caught:
        remove_namespace(Slow(item), item, 0, lambda: 1, [])
    assert str(caught.value).startswith(told)
