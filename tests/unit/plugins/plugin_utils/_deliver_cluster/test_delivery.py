# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A writer that is killed, a component that is refused, a field that is not kept."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import apply as apply_module
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.apply import apply_objects, failure_text
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import OURS
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Stopped, Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.delivery_acts import (
    IMAGE,
    INVENTORY,
    LEASE,
    Data,
    apply,
    done,
    recorded,
    state,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

WIDE: Data = {
    "driver": {
        "enabled": True,
        "image": {"tag": "3"},
        "manager": {"image": {"tag": "3"}},
        "pools": [{"os_id": "ubuntu", "os_version": "22.04", "kernel": "5.15.0-%d" % number} for number in range(60)],
    },
    "container_toolkit": {"enabled": True, "image": {"tag": "1"}},
    "smd": {"enabled": True, "image": {"tag": "3"}},
    "metrics_exporter": {"enabled": True, "image": {"tag": "1"}},
    **IMAGE,
}


def test_a_pass_over_what_is_right_needs_fewer_requests_than_objects_and_writes_nothing() -> None:
    store = Store()
    count = len(apply(store, **WIDE).changes)
    # Names that another owner may have are looked for in one list of a kind.
    assert store.requests - len(store.writes) == 42
    store.requests, leased, writes = 0, store.lease_writes, len(store.writes)
    assert done(apply(store, **WIDE)) == {}
    assert (count >= 60, store.requests < 20, store.lease_writes, len(store.writes)) == (True, True, leased, writes)
    assert store.requests == len({key[0] for key in store.items} - {"Namespace", "Lease", "ConfigMap"}) + 2


def test_a_run_that_is_killed_at_any_write_is_finished_by_the_next() -> None:
    whole = Store()
    apply(whole, **IMAGE)
    changed = copy.deepcopy(whole)
    apply(changed, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}})
    for before, given, expected in (
        (Store(), IMAGE, whole),
        (whole, {"validator": {"enabled": False}, "device_plugin": {"image": {"tag": "v9"}}}, changed),
    ):
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


@pytest.mark.parametrize("exporter, failed", [(True, {"smd", "metrics_exporter"}), (False, {"smd"})])
def test_a_component_that_is_not_wanted_does_not_fail_by_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, exporter: bool, failed: set[str]
) -> None:
    store = Store()
    given = {
        "smd": {"enabled": True, "image": {"tag": "3"}},
        "metrics_exporter": {"enabled": True, "image": {"tag": "1"}},
        **IMAGE,
    }
    apply(store, **given)
    plain = store.apply

    def refused(item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        if item["metadata"]["name"] == "rbln-smd" and item["kind"] == "DaemonSet":
            raise ApiError(403, "Apply", {"message": "no"})
        return plain(item, force, dry_run)

    monkeypatch.setattr(store, "apply", refused)
    changed = {
        "smd": {"enabled": True, "image": {"tag": "4"}},
        "metrics_exporter": {"enabled": exporter, "image": {"tag": "1"}},
    }
    applied = apply(store, **{**given, **changed})
    assert set(applied.failures) == failed
    # What is not wanted any more goes all the same.
    assert done(applied)["DaemonSet rbln-system/rbln-metrics-exporter"] == ("not tried" if exporter else "deleted")


def test_nothing_is_as_wanted_in_a_namespace_that_is_being_deleted() -> None:
    store = Store()
    apply(store, **IMAGE)
    store.items[("Namespace", "", "rbln-system")]["metadata"]["deletionTimestamp"] = "2026-11-28T01:00:00Z"
    store.writes.clear()
    with pytest.raises(
        NpuError, match="The namespace rbln-system is being deleted.* Next: Wait until it is gone, then run again"
    ):
        apply(store, **IMAGE)
    assert store.writes == []


def theirs(kind: str = "ClusterRole", labels: Data | None = None, manager: str = "helm") -> Data:
    meta = {
        "name": "rbln-validator",
        "labels": labels or {},
        "managedFields": [{"manager": manager, "operation": "Apply"}],
    }
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta}


def test_an_object_of_somebody_else_under_a_name_of_ours_is_refused_before_anything_is_written() -> None:
    store = Store(theirs(), theirs("ClusterRoleBinding", dict(OURS)))
    with pytest.raises(NpuError) as caught:
        apply(store, **IMAGE)
    for words in (
        "ClusterRole rbln-validator (of helm), ClusterRoleBinding rbln-validator (of helm): in the cluster already",
        "name_prefix",
        "force_conflicts",
    ):
        assert words in str(caught.value)
    assert (store.writes, store.lease_writes) == ([], 0)
    applied = apply(store, force_conflicts=True, **IMAGE)
    assert done(applied)["ClusterRole rbln-validator"] == "changed"
    assert applied.notes == [
        "%s rbln-validator (of helm) is ours now, because rbln_operands_force_conflicts is set." % kind for kind in RBAC
    ]
    assert done(apply(store, **IMAGE)) == {} and apply(store, force_conflicts=True, **IMAGE).notes == []


RBAC = ("ClusterRole", "ClusterRoleBinding")


def test_what_an_aborted_run_made_and_did_not_record_is_ours() -> None:
    store = Store(theirs(labels=dict(OURS), manager="rebellions-npu"))
    assert done(apply(store, **IMAGE))["ClusterRole rbln-validator"] == "changed"


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
    assert (
        done(applied)["DaemonSet rbln-system/rbln-device-plugin"] == "changed"
        and done(applied)["ClusterRole rbln-validator"] == "failed"
    )
    store.delete = delete  # type: ignore[method-assign]
    again = apply(store, validator={"enabled": False}, device_plugin={"image": {"tag": "v9"}})
    assert done(again) == {
        "ClusterRole rbln-validator": "deleted",
        "ServiceAccount rbln-system/rbln-validator": "deleted",
    }


@pytest.mark.parametrize("lost", [False, True])
def test_objects_are_deleted_in_the_reverse_order_of_their_creation(lost: bool) -> None:
    store = Store()
    apply(store, **IMAGE)
    if lost:
        del store.items[INVENTORY]
    store.writes.clear()
    apply(store, validator={"enabled": False}, device_plugin={"enabled": False})
    assert [what for what in store.writes if what.startswith("delete")] == [
        "delete DaemonSet",
        "delete ServiceAccount",
        "delete DaemonSet",
        "delete ClusterRoleBinding",
        "delete ClusterRole",
        "delete ServiceAccount",
    ]


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


def test_a_field_that_the_server_does_not_keep_is_told_once_and_not_written_again() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "DaemonSet":
            item["spec"]["template"]["spec"].pop("priorityClassName", None)
        return item

    store = Store(keep=keep)
    first = apply(store)
    assert first.notes[0] == (
        "DaemonSet rbln-system/rbln-validator: the API server does not keep "
        "spec.template.spec.priorityClassName; a feature of this cluster is off, or an admission policy removes it."
    )
    leased, writes = store.lease_writes, len(store.writes)
    second = apply(store)
    assert (done(second), second.notes, store.lease_writes, len(store.writes)) == ({}, [], leased, writes)
    store.items[("DaemonSet", "rbln-system", "rbln-validator")]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "evil:1"
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-validator": "changed"}


def test_an_object_that_is_being_deleted_is_waited_for_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    apply(store)
    key = ("DaemonSet", "rbln-system", "rbln-validator")
    store.items[key]["metadata"].update(uid="1", deletionTimestamp="2026-11-28T01:00:00Z")
    monkeypatch.setattr(apply_module.time, "sleep", lambda _seconds: store.items.pop(key, None))
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-validator": "created"}
    assert "deletionTimestamp" not in store.items[key]["metadata"]


PLUGIN = ("DaemonSet", "rbln-system", "rbln-device-plugin")


def container(store: Store) -> Data:
    found: Data = store.items[PLUGIN]["spec"]["template"]["spec"]["containers"][0]
    return found


def policy(item: Data) -> Data:
    """K33: another registry before each image, and one more toleration."""
    if item["kind"] == "DaemonSet":
        spec = item["spec"]["template"]["spec"]
        for one in [*spec.get("initContainers", []), *spec["containers"]]:
            one["image"] = re.sub(r"^[^/]+/", "mirror.example.net/", one["image"])
        added = {"key": "added-by-policy", "operator": "Exists"}
        if added not in spec["tolerations"]:
            spec["tolerations"].append(added)
    return item


def test_k33_mutating_admission_is_told_once_and_a_later_edit_is_seen() -> None:
    store = Store(keep=policy)
    told = next(note for note in apply(store).notes if "rbln-device-plugin" in note)
    assert told.startswith("DaemonSet rbln-system/rbln-device-plugin: an admission policy changed spec.template.spec.")
    image = "rebellions/k8s-device-plugin:v0.4.3"
    for words in (
        'containers[device-plugin].image from "docker.io/%s" to "mirror.example.net/%s"' % (image, image),
        'spec.tolerations, to which it added [{"key": "added-by-policy", "operator": "Exists"}]',
    ):
        assert words in told
    assert "a feature of this cluster is off" not in told
    requests, leased, writes = store.requests, store.lease_writes, len(store.writes)
    second = apply(store)
    assert (done(second), second.notes, store.lease_writes, len(store.writes)) == ({}, [], leased, writes)
    plain = Store()
    apply(plain)
    plain.requests = 0
    apply(plain)
    assert store.requests - requests == plain.requests, "nothing more is asked"
    for edit in ({"image": "mirror.example.net/evil/other:9"}, {"tolerations": []}):
        spec = store.items[PLUGIN]["spec"]["template"]["spec"]
        (spec if "tolerations" in edit else container(store)).update(edit)
        third = apply(store)
        assert (done(third), third.notes) == ({"DaemonSet rbln-system/rbln-device-plugin": "changed"}, [])
        assert container(store)["image"] == "mirror.example.net/rebellions/k8s-device-plugin:v0.4.3"
        assert spec is not None and done(apply(store)) == {}


def test_k33_a_changed_input_is_compared_anew() -> None:
    store = Store(keep=policy)
    apply(store)
    applied = apply(store, device_plugin={"image": {"tag": "v9"}})
    assert done(applied) == {"DaemonSet rbln-system/rbln-device-plugin": "changed"}
    assert "mirror.example.net/rebellions/k8s-device-plugin:v9" in applied.notes[0]
    assert done(apply(store, device_plugin={"image": {"tag": "v9"}})) == {}


def test_what_a_policy_makes_of_an_object_is_learned_by_a_dry_run_when_the_record_is_lost() -> None:
    store = Store(keep=policy)
    apply(store)
    data = store.items[INVENTORY]["data"]
    data["objects.json"] = re.sub(r'"(of|settled)"', r'"former-\1"', data["objects.json"])
    store.writes.clear()
    again = apply(store)
    # The DaemonSets were asked about and not written.
    assert (done(again), again.notes, store.writes) == ({}, [], ["apply ConfigMap"])
    store.writes.clear()
    assert (done(apply(store)), store.writes) == ({}, [])


def test_another_manager_that_adds_to_a_list_is_named_and_seen_when_it_changes() -> None:
    def other(item: Data) -> Data:
        if item["metadata"]["name"] == "rbln-device-plugin" and item["kind"] == "DaemonSet":
            item["metadata"]["managedFields"] = [
                {"manager": "rebellions-npu", "operation": "Apply"},
                {"manager": "kubectl-set", "operation": "Update"},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
            ]
            env = item["spec"]["template"]["spec"]["containers"][0]["env"]
            if not [one for one in env if one["name"] == "THEIRS"]:
                env.append({"name": "THEIRS", "value": "1"})
        return item

    store = Store(keep=other)
    given = {"device_plugin": {"env": {"OURS": "1"}}}
    told = [note for note in apply(store, **given).notes if "kubectl-set" in note]
    assert len(told) == 1 and "an admission policy or another manager (kubectl-set) changed" in told[0]
    assert "env[THEIRS], to which it added" in told[0]
    assert done(apply(store, **given)) == {}
    container(store)["env"][0]["value"] = "2"
    assert done(apply(store, **given)) == {"DaemonSet rbln-system/rbln-device-plugin": "changed"}


def test_k27_quantity_spelling_is_no_difference_and_an_edit_is_one() -> None:
    def canonical(item: Data) -> Data:
        if item["metadata"]["name"] == "rbln-device-plugin" and item["kind"] == "DaemonSet":
            item["spec"]["template"]["spec"]["containers"][0]["resources"] = {
                "limits": {"cpu": "1", "memory": "1Gi"},
                "requests": {"cpu": "500m", "memory": "512Mi"},
            }
        return item

    store = Store(keep=canonical)
    given = {
        "device_plugin": {
            "resources": {
                "limits": {"cpu": "1000m", "memory": "1024Mi"},
                "requests": {"cpu": "0.5", "memory": "512Mi"},
            }
        }
    }
    assert apply(store, **given).notes == []
    leased, writes = store.lease_writes, len(store.writes)
    second = apply(store, **given)
    assert (done(second), second.notes, store.lease_writes, len(store.writes)) == ({}, [], leased, writes)
    container(store)["resources"]["limits"]["memory"] = "600Mi"
    assert done(apply(store, **given)) == {"DaemonSet rbln-system/rbln-device-plugin": "changed"}
    assert container(store)["resources"]["limits"]["memory"] == "1Gi"


def test_a_server_of_another_release_is_asked_again_whether_it_keeps_a_field() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "DaemonSet" and not newer:
            item["spec"]["template"]["spec"].pop("priorityClassName", None)
        return item

    newer = False
    store = Store(keep=keep)
    apply(store)
    assert done(apply(store)) == {}
    newer = True
    assert done(apply(store)) == {}
    typed = inputs()
    served = declared({**typed, "capabilities": {"kubernetes": "1.34", "groups": ["new.k8s.io"]}})
    applied = apply_objects(store, build(Context(typed, served)), typed, served, False)
    assert set(done(applied).values()) == {"changed"} and len(done(applied)) == 2


def test_a_policy_that_keeps_the_namespace_otherwise_is_told_and_not_fought() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "Namespace":
            item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "baseline"
        return item

    store = Store(keep=keep)
    apply(store)
    store.writes.clear()
    again = apply(store)
    assert (done(again), store.writes) == ({}, [])
    assert again.notes == [
        "Namespace rbln-system: an admission policy changed metadata.labels.pod-security.kubernetes.io/enforce "
        'from "privileged" to "baseline".'
    ]


def test_a_policy_that_removes_our_digest_hides_no_change() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "DaemonSet":
            item["metadata"].pop("annotations", None)
        return item

    store = Store(keep=keep)
    apply(store)
    assert done(apply(store)) == {}
    assert done(apply(store, device_plugin={"image": {"tag": "v9"}})) == {
        "DaemonSet rbln-system/rbln-device-plugin": "changed"
    }
    container(store)["image"] = "evil:1"
    assert done(apply(store, device_plugin={"image": {"tag": "v9"}})) == {
        "DaemonSet rbln-system/rbln-device-plugin": "changed"
    }


def test_a_container_that_a_policy_adds_is_told_by_its_name() -> None:
    def keep(item: Data) -> Data:
        if item["kind"] == "DaemonSet":
            items = item["spec"]["template"]["spec"]["containers"]
            if items[0]["name"] != "proxy":
                items.insert(0, {"name": "proxy", "image": "mesh/proxy:1"})
        return item

    store = Store(keep=keep)
    told = [note for note in apply(store).notes if "rbln-device-plugin" in note]
    assert told == [
        "DaemonSet rbln-system/rbln-device-plugin: an admission policy changed spec.template.spec.containers[proxy], "
        'to which it added {"image": "mesh/proxy:1", "name": "proxy"}.'
    ]
    assert done(apply(store)) == {}
    store.items[PLUGIN]["spec"]["template"]["spec"]["containers"][1]["image"] = "evil:1"
    assert done(apply(store)) == {"DaemonSet rbln-system/rbln-device-plugin": "changed"}
