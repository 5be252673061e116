# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people and programs are told: the document keeps its schema, and the screen shares what is alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import group, ordered, state_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.report import Place, document, first, screen
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.signs import (
    DOUBTFUL,
    UNKNOWN,
    Sign,
    sign,
    sign_of_error,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import SCHEMAS

NOT_LOADED = sign("check:driver_loaded", "check driver_loaded", "it is not loaded.", step="Run modprobe.")
STALE = sign("check:cdi_spec_current", "check cdi_spec_current", "it is stale")
QUOTA = sign("create:quota", "DaemonSet p", "exceeded quota: q", namespace="npus", daemonset="p")
OFFERS = sign("node:allocatable", "the Node object", "node n1 offers 0 r, its host has 2", node="n1")


def place(name: str, *signs: Sign, beside: Any = ()) -> Place:
    return Place(name, tuple(ordered(signs, beside)))


def texts(*hosts: Place, clusters: tuple[Place, ...] = ()) -> list[str]:
    return [line.text for line in screen(hosts, clusters)]


def test_the_document_keeps_its_schema_and_the_values_are_put_in() -> None:
    cluster = place("k", QUOTA)
    host = place("npu1", OFFERS, beside=group([QUOTA], "k"))
    found = document([host, place("npu2")], [cluster])
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((SCHEMAS / "doctor.schema.json").read_text(encoding="utf-8"))
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(found)) == []
    causes = found["hosts"]["npu1"]["causes"]
    # What the cluster has done to the host comes first, with its place.
    assert [(one["id"], one["cluster"]) for one in causes] == [("quota_exceeded", "k"), ("npus_not_allocatable", "")]
    assert causes[0]["prove"] == "kubectl -n npus describe resourcequota"
    assert causes[1]["prove"].startswith("kubectl get node n1 ") and causes[1]["explained_by"] == ["quota_exceeded"]
    assert found["hosts"]["npu2"] == {"state": "ok", "causes": []}
    assert found["clusters"]["k"]["state"] == "faults"


def test_what_a_host_has_named_is_one_word_of_a_command_that_people_copy() -> None:
    lost = sign(
        "machine:proxy", "the look", "no answer", address="http://p:1/$(id);\nreboot", unit="containerd.service"
    )
    (cause,) = document([place("npu1", lost)], [])["hosts"]["npu1"]["causes"]
    assert cause["prove"] == (
        "systemctl show -p Environment containerd.service and curl -sv -x 'http://p:1/$(id); reboot'"
        " https://example.com on the host"
    )


def test_a_cause_is_told_once_with_what_follows_from_it() -> None:
    lines = texts(place("npu1", STALE, NOT_LOADED))
    assert lines[:2] == ["npu1:", "  1 driver_not_loaded: The driver is installed and not loaded."]
    assert lines[2] == "      seen   check driver_loaded: it is not loaded."
    assert lines[3] == "      next   Run modprobe."
    assert lines[4].startswith("      do     Run ansible-playbook rebellions.npu.site --limit npu1; ")
    assert lines[5].startswith("      prove  ")
    assert lines[6:] == [
        "      so     cdi_spec_stale: check cdi_spec_current: it is stale.", "", "1 host: 1 with faults"
    ]  # fmt: skip


def test_what_follows_from_two_causes_is_told_below_the_first() -> None:
    signs = [
        sign("check:%s" % name, "check", "no") for name in ("cdi_no_conflict", "runtime_cdi_on", "runtime_sees_spec")
    ]
    lines = texts(place("npu1", *signs))
    follows = "      so     runtime_without_cdi_spec: check: no."
    assert lines.count(follows) == 1 and lines.index(follows) < lines.index(
        next(x for x in lines if x.startswith("  2 cdi_off"))
    )


def test_hosts_with_the_same_cause_share_it_and_links_are_names_of_files() -> None:
    lost = [sign_of_error("reach:login", "the connection", "npu%d cannot be reached: no" % number) for number in (1, 2)]
    lines = texts(place("npu1", lost[0]), place("npu2", lost[1]), place("npu3"))
    assert lines[0] == "npu1, npu2:" and "ansible -i hosts.yml HOST -m ping" in lines[4]
    assert lines[-1] == "3 hosts: 2 not reached, 1 ok"
    refused = texts(place("npu1", sign("check:signature_accepted", "check", "no")))
    assert refused[3] == "      do     Enrol the key (docs/driver.md), or sign the module with an enrolled one."


def test_each_reason_has_its_own_next_step_once_and_hosts_that_share_it_are_not_named_in_it() -> None:
    def slow(host: str) -> list[Sign]:
        step = "Look at card %s of %s."
        return [
            sign("check:link_full", "check", "card %d of %s is slow" % (card, host), step=step % (card and 1, host))
            for card in range(3)
        ]

    told = ["seen   check: card %d of %s is slow.", "next   Look at card %d of %s."]
    for hosts in (["npu1"], ["npu1", "npu10"]):
        name = hosts[0] if len(hosts) == 1 else "HOST"
        shown = texts(*(place(host, *slow(host)) for host in hosts))[2:7]
        assert shown == [
            "      " + line % (card, name) for line, card in zip((*told, *told, told[0]), (0, 0, 1, 1, 2))
        ]  # fmt: skip
    # A step that one of them alone has is no step of the other.
    other = [one._replace(step="") for one in slow("npu2")]
    assert "npu1:" in texts(place("npu1", *slow("npu1")), place("npu2", *other))


def test_how_sure_it_is_is_said() -> None:
    warned, unknown = NOT_LOADED._replace(level=DOUBTFUL), STALE._replace(level=UNKNOWN)
    lines = texts(place("npu1", warned, unknown))
    assert "  1 driver_not_loaded (a warning): The driver is installed and not loaded." in lines
    assert state_of(ordered([warned])) == "warnings" and state_of(ordered([unknown])) == "unknown"
    assert first(place("npu1", warned)) == "" == first(place("npu1", unknown)) == first(place("npu1"))
    assert first(place("npu1", NOT_LOADED)).startswith(
        "driver_not_loaded: The driver is installed and not loaded. Next: "
    )
    assert "  1 cdi_spec_stale (not known): " in "\n".join(texts(place("npu1", unknown)))


def test_many_hosts_and_many_causes_fit_on_a_screen() -> None:
    many = [
        place("h%d" % number, sign("check:link_full", "check", "card %d is slow" % number)) for number in range(1000)
    ]
    lines = texts(*many)
    assert len(lines) < 130 and "... and 980 hosts more. Next: Look at them with --limit." in lines
    evidence = [sign("check:device_nodes", "check", "n%d" % number) for number in range(9)]
    assert "      seen   ... and 5 more" in texts(place("a", *evidence))


def test_a_sign_repeats_no_secret_of_a_log_or_an_event() -> None:
    log = "plugin ended with code 1: DB_PASSWORD=n0t-a-Real-one-7; http://joe:n0t-a-Real-one-7@proxy:1 " + "x" * 999
    told = sign_of_error("pod:Error", "pod p", log + ". Next: Use --token n0t-a-Real-one-7")
    assert "n0t-a" not in told.said + told.step and "DB_PASSWORD=********" in told.said


def test_a_sign_is_one_short_line_without_a_control_character() -> None:
    one = sign("check:link_full", "look", "a\n\x1b[31mb" + "x" * 2000)
    assert len(one.said) <= 600 and "\n" not in one.said
