# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two writers, a writer that is killed, a component that is refused, objects of others, and what would change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils import _lease
from ansible_collections.rebellions.npu.plugins.plugin_utils._apply import Applied, apply_objects, diff_objects, failure_text
from ansible_collections.rebellions.npu.plugins.plugin_utils._capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._compare import field_changes, missing_paths, visible, without_paths
from ansible_collections.rebellions.npu.plugins.plugin_utils._inventory import inventory_object, Inventory
from ansible_collections.rebellions.npu.plugins.plugin_utils._lease import WriteLease
from ansible_collections.rebellions.npu.plugins.plugin_utils._model_cluster import Context
from ansible_collections.rebellions.npu.plugins.plugin_utils._prune import is_legacy, remove_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._render import build
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Stopped, Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
EVERY = declared(inputs())
LEASE = ("Lease", "rbln-system", "rbln-operands")
INVENTORY = ("ConfigMap", "rbln-system", "rbln-inventory")
IMAGE = {"validator": {"source": "image", "image": {"tag": "1"}}}


def apply(store: Store, extra: list[Data] | None = None, dry_run: bool = False, **given: Any) -> Applied:
    typed = inputs(**given)
    return apply_objects(store, [*build(Context(typed, EVERY)), *(extra or [])], typed, EVERY, dry_run)


def remove(store: Store, **given: Any) -> list[Data]:
    return remove_objects(store, inputs(**given), EVERY, False)


def done(applied: Applied) -> dict[str, str]:
    return {change["object"]: change["action"] for change in applied.changes if change["action"] != "unchanged"}


def state(store: Store) -> dict[Any, Any]:
    """All that is there, without what the server counts and without who wrote last."""
    found = {}
    for key, item in store.items.items():
        item = copy.deepcopy(item)
        item["metadata"].pop("resourceVersion", None)
        found[key] = {} if key[0] == "Lease" else item
    return found


def test_a_run_that_is_killed_at_any_write_is_finished_by_the_next() -> None:
    whole = Store()
    apply(whole, **IMAGE)
    changed = copy.deepcopy(whole)
    apply(changed, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}})
    for before, given, expected in ((Store(), IMAGE, whole), (whole, {"validator": {"enabled": False}, "device_plugin": {"image": {"tag": "v9"}}}, changed)):
        points = 0
        while True:
            store = copy.deepcopy(before)
            store.writes, store.stop_after = [], points
            try:
                apply(store, **given)
                break
            except Stopped:
                points += 1
            store.stop_after = -1
            assert store.items[LEASE]["spec"]["holderIdentity"] == "" if LEASE in store.items else True
            apply(store, **given)
            assert state(store) == state(expected), points
            assert done(apply(store, **given)) == {}
        assert points >= 6


def test_a_refused_object_ends_its_component_and_those_that_need_it_alone() -> None:
    store = Store(refuse={"ClusterRole": 403})
    applied = apply(store, **IMAGE)
    assert list(applied.failures) == ["validator"] and "not allowed" in applied.failures["validator"]
    assert done(applied)["ClusterRole rbln-validator"] == "failed"
    assert done(applied)["DaemonSet rbln-system/rbln-validator"] == "not tried"
    assert done(applied)["DaemonSet rbln-system/rbln-device-plugin"] == "created"
    assert failure_text(applied.failures).startswith("validator: Apply ClusterRole rbln-validator")
    store.refuse = {}
    assert apply(store, **IMAGE).failures == {} and done(apply(store, **IMAGE)) == {}


def test_what_all_components_need_ends_all() -> None:
    with pytest.raises(NpuError, match="NetworkPolicy"):
        apply(Store(refuse={"NetworkPolicy": 403}))


def test_old_objects_of_a_component_that_failed_stay() -> None:
    store = Store()
    apply(store, **IMAGE)
    store.refuse = {"DaemonSet": 422}
    applied = apply(store, validator={"image": {"tag": "2"}, "labels": {"a": "b"}})
    assert applied.failures and ("ClusterRole", "", "rbln-validator") in store.items
    store.refuse = {}
    apply(store)
    assert ("ClusterRole", "", "rbln-validator") not in store.items


def test_what_a_server_may_have_done_in_spite_of_its_error_is_still_ours() -> None:
    store = Store()
    apply(store)
    store.refuse = {"ClusterRole": 504}
    assert list(apply(store, **IMAGE).failures) == ["validator"]
    assert ["rbac.authorization.k8s.io/v1", "ClusterRole", "", "rbln-validator"] in recorded(store)
    assert ["rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "rbln-validator"] not in recorded(store)


def recorded(store: Store) -> list[Data]:
    return [entry["object"] for entry in json.loads(store.items[INVENTORY]["data"]["objects.json"])]


def test_an_object_that_may_not_be_deleted_ends_its_component_alone_and_is_tried_again() -> None:
    store = Store()
    apply(store, **IMAGE)
    delete = store.delete

    def refuse(item: Data, dry_run: bool) -> None:
        if item["kind"] == "ClusterRole":
            raise ApiError(403, "Delete ClusterRole rbln-validator", {"message": "no"})
        delete(item, dry_run)

    store.delete = refuse  # type: ignore[method-assign]
    applied = apply(store, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}})
    assert list(applied.failures) == ["validator"] and "not allowed: no" in applied.failures["validator"]
    assert done(applied)["DaemonSet rbln-system/rbln-device-plugin"] == "changed" and done(applied)["ClusterRole rbln-validator"] == "failed"
    store.delete = delete  # type: ignore[method-assign]
    again = apply(store, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}})
    assert done(again) == {"ClusterRole rbln-validator": "deleted", "ServiceAccount rbln-system/rbln-validator": "deleted"}


@pytest.mark.parametrize("lost", [False, True])
def test_objects_are_deleted_in_the_reverse_order_of_their_creation(lost: bool) -> None:
    store = Store()
    apply(store, **IMAGE)
    if lost:
        del store.items[INVENTORY]
    store.writes.clear()
    apply(store, validator={"enabled": False}, device_plugin={"enabled": False})
    assert [what for what in store.writes if what.startswith("delete")] == [
        "delete DaemonSet", "delete ServiceAccount", "delete DaemonSet", "delete ClusterRoleBinding", "delete ClusterRole", "delete ServiceAccount",
    ]  # fmt: skip


def test_a_server_that_goes_away_between_writes_is_one_error_and_the_next_run_finishes() -> None:
    store = Store()
    plain = store.apply

    def away(item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        if item["kind"] == "DaemonSet":
            store.request = away_too  # type: ignore[method-assign]
            raise NpuError("Apply DaemonSet: the API server cannot be reached", "Check the network.")
        return plain(item, force, dry_run)

    def away_too(*_args: Any) -> tuple[int, Data]:
        raise NpuError("Read Lease: the API server cannot be reached", "Check the network.")

    request, store.apply = store.request, away  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="^Apply DaemonSet: the API server cannot be reached"):
        apply(store)
    assert store.items[LEASE]["spec"]["holderIdentity"] != ""
    store.apply, store.request = plain, request  # type: ignore[method-assign]
    store.items[LEASE]["spec"]["holderIdentity"] = ""
    assert apply(store).failures == {}
    assert done(apply(store)) == {}


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
    assert ("DaemonSet", "rbln-system", "copied") in store.items and ("DaemonSet", "rbln-system", "rbln-validator") not in store.items


def test_without_an_inventory_all_with_our_labels_is_ours() -> None:
    """An installation of an earlier release, or an inventory that was lost."""
    store = Store()
    apply(store, **IMAGE)
    del store.items[INVENTORY]
    applied = apply(store, validator={"enabled": False})
    assert {name for name, action in done(applied).items() if action == "deleted"} == {
        "DaemonSet rbln-system/rbln-validator", "ServiceAccount rbln-system/rbln-validator", "ClusterRole rbln-validator", "ClusterRoleBinding rbln-validator",
    }  # fmt: skip
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
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "rbln-system", "labels": labels, "uid": uid}, "spec": spec}


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
    assert done(applied) == {"DaemonSet rbln-system/rbln-driver-b": "deleted", "DaemonSet rbln-system/rbln-driver-a": "kept"}
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


def test_absent_that_fails_gives_the_lease_up() -> None:
    store = Store()
    apply(store)

    def refuse(item: Data, dry_run: bool) -> None:
        raise ApiError(403, "Delete " + item["kind"], {"message": "no"})

    store.delete = refuse  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="not allowed"):
        remove(store)
    assert store.items[LEASE]["spec"]["holderIdentity"] == ""


LEGACY = {
    "by name": ("rbln-k8s-driver-manager-x", "any", {}, True),
    "by container": ("any", "rbln-umd-installer", {}, True),
    "of an operator": ("rbln-k8s-driver-manager", "any", {"ownerReferences": [{"kind": "RBLNDriver"}]}, False),
    "ours": ("rbln-k8s-driver-manager", "any", {"labels": inventory_object(inputs(), Inventory())["metadata"]["labels"]}, False),
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
    assert [(one["object"], one["action"]) for one in told] == [("DaemonSet rbln-system/rbln-k8s-driver-manager", "deleted")]
    applied = apply(store, extra=[new])
    assert done(applied) == {"DaemonSet rbln-system/rbln-k8s-driver-manager": "deleted"}
    assert done(apply(store, extra=[new])) == {}


def test_two_installations_in_one_cluster_are_refused() -> None:
    store = Store()
    apply(store, namespace="other")
    with pytest.raises(NpuError, match="an installation in the namespace other, and a second one is wanted in rbln-system.*Set rbln_namespace to other"):
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
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rbln-system", "labels": dict(labels), "annotations": {}},
    }  # fmt: skip
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
    before = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rbln-system", "labels": {"team": "a"}, "annotations": {}}}
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "rbln-system", "labels": {}}}
    for given in ({}, {"pod_security": ""}):
        store = Store(before, theirs)
        apply(store, ca_bundle="x", runtime_class={"enabled": True, "handler": "h"}, **IMAGE, **given)
        remove(store, **given)
        assert {key: item["metadata"]["labels"] for key, item in store.items.items()} == {
            ("Namespace", "", "rbln-system"): {"team": "a"}, ("ConfigMap", "rbln-system", "theirs"): {},
        }  # fmt: skip


def test_a_field_that_the_server_does_not_keep_is_told_once_and_not_written_again() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "DaemonSet":
            item["spec"]["template"]["spec"].pop("priorityClassName", None)
        return item

    store = Store(keep=keep)
    first = apply(store)
    assert first.notes[0] == (
        "DaemonSet rbln-system/rbln-validator: the API server does not keep spec.template.spec.priorityClassName; a feature of this cluster is off."
    )
    leased, writes = store.lease_writes, len(store.writes)
    second = apply(store)
    assert (done(second), second.notes, store.lease_writes, len(store.writes)) == ({}, [], leased, writes)
    store.items[("DaemonSet", "rbln-system", "rbln-validator")]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-validator": "changed"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def lease(store: Store, clock: Clock, **given: Any) -> WriteLease:
    return WriteLease(store, inputs(**given), clock, clock.sleep)


def test_a_lease_keeps_the_second_writer_out_until_it_is_free() -> None:
    store, clock = Store(), Clock()
    first, second = lease(store, clock), lease(store, clock, lease_timeout=10)
    first.take()
    with pytest.raises(NpuError, match="Another run writes to this cluster: .* holds the Lease rbln-operands since 20.*Let it end"):
        second.take()
    assert first.holder in str(store.items[LEASE])
    first.give_up()
    second.take()
    assert store.items[LEASE]["spec"]["holderIdentity"] == second.holder and store.items[LEASE]["spec"]["leaseTransitions"] == 2


def test_a_lease_whose_holder_is_gone_is_taken_over_by_our_own_clock() -> None:
    store, clock = Store(), Clock()
    gone = lease(store, clock)
    gone.take()
    store.items[LEASE]["spec"]["renewTime"] = "2099-01-01T00:00:00.000000Z"
    second = lease(store, clock, lease_duration=20)
    second.take()
    assert 20 <= clock.now < 20 + 2 * _lease.DELAY
    with pytest.raises(NpuError, match="was lost while this run wrote"):
        clock.now += 60
        gone.check()
    gone.give_up()
    assert store.items[LEASE]["spec"]["holderIdentity"] == second.holder


def test_a_lease_that_lives_is_not_taken_over() -> None:
    store, clock = Store(), Clock()
    first = lease(store, clock, lease_duration=20)
    first.take()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        first.check()

    with pytest.raises(NpuError, match="Another run writes"):
        WriteLease(store, inputs(lease_duration=20, lease_timeout=100), clock, sleep).take()


def test_two_that_create_or_replace_at_once() -> None:
    store, clock = Store(), Clock()
    first, second = lease(store, clock), lease(store, clock, lease_timeout=5)
    read = store.request

    def late(method: str, path: str, what: str, *rest: Any) -> Any:
        answer = read(method, path, what, *rest)
        return answer

    def absent(method: str, path: str, what: str, *rest: Any) -> Any:
        store.request = late  # type: ignore[method-assign]
        first.take()
        return read("GET", path + "-not-there", what)

    store.request = absent  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="Another run writes"):
        second.take()
    assert store.items[LEASE]["spec"]["holderIdentity"] == first.holder


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_write_of_the_lease_whose_answer_was_lost_is_our_own(method: str) -> None:
    """The client writes again after a lost answer, and the second write is a conflict with the first."""
    store, clock = Store(), Clock()
    one = lease(store, clock)
    if method == "PUT":
        one.take()
        clock.now = 20.0
    plain = store.request

    def answer_lost(done: str, path: str, what: str, *rest: Any) -> Any:
        answer = plain(done, path, what, *rest)
        if done == method:
            store.request = plain  # type: ignore[method-assign]
            raise ApiError(409, what, {"message": "conflict"})
        return answer

    store.request = answer_lost  # type: ignore[method-assign]
    one.take() if method == "POST" else one.check()
    assert store.items[LEASE]["spec"]["holderIdentity"] == one.holder and clock.now <= 22.0


def test_a_lease_is_renewed_past_a_third_of_its_duration() -> None:
    store, clock = Store(), Clock()
    one = lease(store, clock, lease_duration=60)
    one.take()
    written = store.lease_writes
    clock.now = 19.0
    one.check()
    assert store.lease_writes == written
    clock.now = 20.0
    one.check()
    assert store.lease_writes == written + 1


def test_the_writers_of_one_pass_hold_the_lease() -> None:
    store = Store()
    apply(store)
    store.items[LEASE]["spec"]["holderIdentity"] = "other"
    with pytest.raises(NpuError, match="other holds the Lease"):
        apply(store, lease_timeout=0, device_plugin={"image": {"tag": "v9"}})
    assert done(apply(store, lease_timeout=0)) == {}
    assert done(apply(store, dry_run=True, lease_timeout=0, device_plugin={"image": {"tag": "v9"}})) == {"DaemonSet rbln-system/rbln-device-plugin": "changed"}


def diff(store: Store, **given: Any) -> dict[str, Data]:
    typed = inputs(**given)
    return {one["object"]: one for one in diff_objects(store, build(Context(typed, EVERY)), typed, EVERY)}


def test_diff_says_field_by_field_and_writes_nothing() -> None:
    store = Store()
    assert set(one["action"] for one in diff(store).values()) == {"created"} and store.items == {}
    apply(store)
    store.writes.clear()
    leased = store.lease_writes
    assert diff(store) == {}
    found = diff(store, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}, "env": {"API_TOKEN": "not-a-real-secret", "LEVEL": "1"}})
    assert {name: one["action"] for name, one in found.items()} == {
        "DaemonSet rbln-system/rbln-device-plugin": "changed", "DaemonSet rbln-system/rbln-validator": "deleted",
        "ServiceAccount rbln-system/rbln-validator": "deleted",
    }  # fmt: skip
    place = "spec.template.spec.containers[device-plugin]."
    assert found["DaemonSet rbln-system/rbln-device-plugin"]["fields"] == [
        {"path": place + "env[API_TOKEN]", "before": None, "after": {"name": "API_TOKEN", "value": "********"}},
        {"path": place + "env[LEVEL]", "before": None, "after": {"name": "LEVEL", "value": "1"}},
        {"path": place + "image", "before": "docker.io/rebellions/k8s-device-plugin:v0.4.0", "after": "docker.io/rebellions/k8s-device-plugin:v9"},
    ]
    assert store.writes == [] and store.lease_writes == leased


def test_S02_diff_of_a_secret_tells_that_it_differs_and_not_how() -> None:
    store = Store()
    apply(store, pull_secret_content={"auths": {"r": {"auth": "b25l"}}})
    found = diff(store, pull_secret_content={"auths": {"r": {"auth": "dHdv"}}})
    assert found["Secret rbln-system/rbln-registry"]["fields"] == [{"path": "data", "before": "(hidden)", "after": "(hidden, and different)"}]


@pytest.mark.parametrize("before, after, expected", [
    ({"a": 1}, {"a": 1}, []),
    ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", 1, 2)]),
    ({"a": 1}, {}, [("a", 1, None)]),
    ({"x": [{"name": "n", "v": 1}]}, {"x": [{"name": "n", "v": 2}, {"name": "m"}]}, [("x[n].v", 1, 2), ("x[m]", None, {"name": "m"})]),
    ({"x": [1, 2]}, {"x": [1, 3]}, [("x", [1, 2], [1, 3])]),
    ({"x": [{"name": "n"}, {"name": "n"}]}, {"x": []}, [("x", [{"name": "n"}, {"name": "n"}], [])]),
])  # fmt: skip
def test_field_changes(before: Data, after: Data, expected: list[Any]) -> None:
    assert [(one["path"], one["before"], one["after"]) for one in field_changes(before, after)] == expected


def test_S02_environment_of_a_secret_name_and_credentials_in_text_are_hidden() -> None:
    item = {"kind": "X", "metadata": {"name": "n"}, "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "URL", "value": "http://u:hunter2@h/x"}]}
    assert "hunter2" not in str(visible(item)) and visible(item)["env"][1]["value"] == "http://********@h/x"


def test_S02_the_object_in_an_annotation_of_kubectl_is_not_shown() -> None:
    item = {"kind": "X", "metadata": {"name": "n", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"}}}
    assert visible(item) == {"kind": "X", "metadata": {"name": "n", "annotations": {"a": "b"}}}


def test_paths_that_are_missing_can_be_left_out() -> None:
    wanted = {"a": {"b": [{"c": 1, "d": 2}]}, "e": ""}
    paths = missing_paths(wanted, {"a": {"b": [{"c": 1}]}})
    assert paths == [("a", "b", 0, "d")]
    assert without_paths(wanted, paths) == {"a": {"b": [{"c": 1}]}, "e": ""}
    assert without_paths(wanted, [("x", "y"), ("a", "b", 7, "d")]) == wanted
