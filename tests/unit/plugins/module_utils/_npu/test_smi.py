# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the management tool prints, in every sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base import rebellions as vendor
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu.smi import ask_smi
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import SAMPLES, case, sample

GOOD: dict[str, tuple[str, int, int, list[int | None]]] = {
    "rbln-smi_ca22_3.2.2_busy.json": ("3.2.2", 4, 1, [0, 1, 2, 3]),
    "rbln-smi_ca22_3.2.2_idle.json": ("3.2.2", 4, 0, [0, 1, 2, 3]),
    "rbln-smi_ca22_collapsed_npu_index.json": ("3.0.0", 4, 0, [0, 0, 0, 0]),
    "rbln-smi_ca22_device_fault.json": ("3.2.2", 4, 0, [0, 1, 2, 3]),
    "rbln-smi_ca22_fw_mismatch.json": ("3.2.2", 4, 0, [0, 1, 2, 3]),
    "rbln-smi_ca22_link_degraded.json": ("3.2.2", 4, 0, [0, 1, 2, 3]),
    "rbln-smi_ca22_one_missing.json": ("3.2.2", 3, 0, [0, 1, 2]),
    "rbln-smi_ca25_3.2.2_groups.json": ("3.2.2", 8, 0, list(range(8))),
    "rbln-smi_cr13_3.5.1_groups_int.json": ("3.5.1", 4, 0, [0, 1, 2, 3]),
    "rbln-smi_empty.json": ("3.2.2", 0, 0, []),
    "rbln-stat_ca12_1.3.73_strings.json": ("1.3.73", 2, 0, [0, 1]),
}
IDLE = sample("rbln-smi_ca22_3.2.2_idle.json")
BAD = [
    "rbln-smi_truncated.json",
    "rbln-smi_no_driver.txt",
    "rbln-smi_ca22_3.2.2_idle.txt",
    "rbln-stat_ca02_0.12_legacy.txt",
]


def test_every_json_sample_is_in_a_table() -> None:
    assert {path.name for path in SAMPLES.glob("*.json")} == set(GOOD) | {"rbln-smi_truncated.json"}


@pytest.mark.parametrize("name", sorted(GOOD))
def test_sample(name: str) -> None:
    found = vendor.parse_smi(sample(name))
    version, devices, contexts, indices = GOOD[name]
    assert (found["kmd_version"], len(found["devices"]), len(found["contexts"])) == (version, devices, contexts)
    assert [device["index"] for device in found["devices"]] == indices


def test_every_field_of_a_device() -> None:
    assert vendor.parse_smi(sample("rbln-smi_cr13_3.5.1_groups_int.json"))["devices"][2] == {
        "index": 2,
        "name": "RBLN-CR13",
        "serial": "0000000090000003",
        "uuid": "00000000-0000-4000-8000-000000000002",
        "device": "rbln2",
        "status": "normal",
        "firmware": "3.5.1",
        "address": "0000:55:00.0",
        "numa_node": 1,
        "link_speed": "32.0GT/s",
        "link_width": 16,
        "group": 0,
        "memory_bytes": 150323855360,
        "memory_used": 0,
        "location": 2,
    }


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (
            {"npu": 0, "process": "python3", "pid": "42", "memalloc": "1 MiB"},
            {"device": "0", "pid": 42, "process": "python3", "memory": "1 MiB"},
        ),
        (
            {"npu": "rbln0", "cmd": "vllm serve --api-key x", "pid": 42, "memory": 7},
            {"device": "rbln0", "pid": 42, "process": "vllm", "memory": "7"},
        ),
        ({}, {"device": None, "pid": None, "process": None, "memory": None}),
    ],
)
def test_S02_contexts_of_either_form_without_arguments(context: object, expected: object) -> None:
    assert vendor.parse_smi(json.dumps({"devices": [], "contexts": [context, "x"]}))["contexts"] == [expected]


@pytest.mark.parametrize(
    "text",
    [sample(name) for name in BAD]
    + [case("F06-smi-json-types", "smi-noise.txt"), "", "[]", "{}", '{"devices": {}}', '{"devices": [1]}']
    + ['{"devices": null}', '{"devices": []} x', "null", "[" * 100000, '{"Devices": []}'],
)
def test_F06_smi_json_types_what_is_not_the_answer_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="JSON|devices|device"):
        vendor.parse_smi(text)


@pytest.mark.parametrize(
    "code, out, err, state, detail",
    [
        # NVIDIA/gpu-operator 285: a warning about one card is an exit code too.
        (14, IDLE, "warning: flash\n", "value", "/smi -j ended with 14: warning: flash"),
        (14, IDLE, "", "value", "/smi -j ended with 14"),
        (0, IDLE, "noise\n", "value", ""),
        (1, sample("rbln-smi_empty.json"), "no device\n", "failed", "/smi -j ended with 1: no device"),
        (1, "no driver\n", "", "failed", "/smi -j ended with 1: no driver"),
    ],
)
def test_gpu_operator_285_devices_count_whatever_the_exit_code(
    tmp_path: Path, code: int, out: str, err: str, state: str, detail: str
) -> None:
    host = Host(str(tmp_path), runner=lambda argv, timeout, env: Probe(VALUE, Completed(code, out, err)))
    found = ask_smi(host, PROFILE, "/smi", ["-j"], 5)
    assert (found.state, found.detail) == (state, detail)
    assert not found.ok or len(found.value["devices"]) == 4


@pytest.mark.parametrize("contexts", [None, 3, "none", {}])
def test_F06_smi_json_types_contexts_that_are_no_list_are_none(contexts: object) -> None:
    assert vendor.parse_smi(json.dumps({"devices": [], "contexts": contexts}))["contexts"] == []


def test_F06_smi_json_types_a_byte_order_mark_is_not_part_of_the_answer() -> None:
    assert vendor.parse_smi('\ufeff{"KMD_version": "2.0.1", "devices": []}\r\n')["kmd_version"] == "2.0.1"


@pytest.mark.parametrize("file", ["smi-1x.json", "smi-2x.json"])
def test_F06_smi_json_types_number_or_text(file: str) -> None:
    assert [
        (device["index"], device["device"]) for device in vendor.parse_smi(case("F06-smi-json-types", file))["devices"]
    ] == [(0, "rbln0")]


@pytest.mark.parametrize(
    ("field", "value", "key", "expected"),
    [
        ("npu", "7", "index", 7),
        ("npu", True, "index", None),
        ("npu", "N/A", "index", None),
        ("npu", None, "index", None),
        ("group_id", 3, "group", 3),
        ("group_id", "N/A", "group", None),
        ("status", " normal ", "status", "normal"),
        ("status", "", "status", None),
        ("pci", None, "address", None),
        ("pci", {"bus_id": "0000:C3:00.0"}, "address", "0000:c3:00.0"),
        ("pci", {"link_width": "x16"}, "link_width", 16),
        ("pci", {"numa_node": "-1"}, "numa_node", None),
        ("memory", {"total": "16877879296"}, "memory_bytes", 16877879296),
        ("memory", {"total": 16877879296}, "memory_bytes", 16877879296),
        ("memory", "N/A", "memory_bytes", None),
        ("memory", {"total": "15.75GiB"}, "memory_bytes", 16911433728),
        ("memory", {"total": "16384 MiB"}, "memory_bytes", 17179869184),
        ("memory", {"total": "16.5GB"}, "memory_bytes", 16500000000),
        ("memory", {"used": "0B"}, "memory_used", 0),
        ("memory", {"total": 16877879296.0}, "memory_bytes", 16877879296),
        ("memory", {"total": True}, "memory_bytes", None),
        ("npu", 1.0, "index", 1),
        ("npu", 1.5, "index", None),
        ("npu", float("nan"), "index", None),
        ("npu", [0], "index", None),
        ("device", "/dev/rbln0", "device", "rbln0"),
    ],
)
def test_types_of_a_field(field: str, value: object, key: str, expected: object) -> None:
    assert vendor.parse_smi(json.dumps({"devices": [{field: value}]}))["devices"][0][key] == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.2.2", "3.2.2"),
        ("1.2.3-rebel1", "1.2.3"),
        ("0.12.37-6eed3e9-release", "0.12.37"),
        ("3.0.0~rc1", "3.0.0"),
        ("3.0.0+git", "3.0.0"),
        (" 3.0.0\n", "3.0.0"),
    ],
)
def test_release_of(version: str, expected: str) -> None:
    assert vendor.release_of(version) == expected
