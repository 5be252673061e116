# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two writers of one installation, and one that is gone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import lease as _lease
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.lease import WriteLease
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import apply as _apply
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import remove as removal
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.delivery_acts import LEASE, apply, done, remove
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs


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
    with pytest.raises(
        NpuError,
        match="Another run writes to this cluster: .* holds the Lease rbln-operands since 20.*Wait until it ends",
    ):
        second.take()
    assert first.holder in str(store.items[LEASE])
    assert store.waited[-1] == "Lease rbln-operands: held by %s, 8 of 10 s" % first.holder
    first.give_up()
    second.take()
    assert (
        store.items[LEASE]["spec"]["holderIdentity"] == second.holder
        and store.items[LEASE]["spec"]["leaseTransitions"] == 2
    )


def test_the_name_of_the_holder_cannot_write_on_the_screen() -> None:
    store, clock = Store(), Clock()
    lease(store, clock).take()
    store.items[LEASE]["spec"]["holderIdentity"] = "\x1b[2J\r\n" + "x" * 5000
    with pytest.raises(NpuError) as caught:
        lease(store, clock, lease_timeout=4).take()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_a_lease_whose_holder_is_gone_is_taken_over_by_our_own_clock() -> None:
    store, clock = Store(), Clock()
    gone = lease(store, clock, lease_duration=20)
    gone.take()
    store.items[LEASE]["spec"]["renewTime"] = "2099-01-01T00:00:00.000000Z"
    second = lease(store, clock, lease_duration=10)
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
    assert done(apply(store, dry_run=True, lease_timeout=0, device_plugin={"image": {"tag": "v9"}})) == {
        "DaemonSet rbln-system/rbln-device-plugin": "changed"
    }


@pytest.mark.parametrize("method, kind", [("list", "ServiceAccount"), ("delete", "ServiceAccount")])
def test_who_lost_the_lease_writes_no_inventory(monkeypatch: pytest.MonkeyPatch, method: str, kind: str) -> None:
    """Lost before the first write, and after the last deletion."""
    store, clock = Store(), Clock()
    apply(store)
    given = {"validator": {"enabled": False}, "runtime_class": {"enabled": True, "handler": "h"}}
    monkeypatch.setattr(_apply, "WriteLease", lambda cluster, typed: WriteLease(cluster, typed, clock, clock.sleep))
    plain = getattr(store, method)
    writes = len(store.writes)

    def overtaken(*arguments: Any, **more: Any) -> Any:
        told = arguments[1] if method == "list" else arguments[0]["kind"]
        if told == kind and store.items[LEASE]["spec"]["holderIdentity"]:
            store.items[LEASE]["spec"]["holderIdentity"] = "other"
            clock.now += 60
        return plain(*arguments, **more)

    setattr(store, method, overtaken)
    with pytest.raises(NpuError, match="was lost while this run wrote"):
        apply(store, **given)
    assert store.writes[writes:] == (
        []
        if method == "list"
        else ["apply ConfigMap", "apply RuntimeClass", "delete DaemonSet", "delete ServiceAccount"]
    )


def test_who_lost_the_lease_removes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = Store(), Clock()
    apply(store)
    monkeypatch.setattr(removal, "WriteLease", lambda cluster, typed: WriteLease(cluster, typed, clock, clock.sleep))
    plain, deleted = store.delete, []

    def overtaken(item: Any, dry_run: bool) -> None:
        deleted.append(item["kind"])
        store.items[LEASE]["spec"]["holderIdentity"] = "other"
        clock.now += 60
        plain(item, dry_run)

    store.delete = overtaken  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="was lost while this run wrote"):
        remove(store)
    assert deleted == ["DaemonSet"] and store.items[LEASE]["spec"]["holderIdentity"] == "other"
