# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole hosts observed end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable

import jsonschema
import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import run_checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu.labels import npu_labels
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import (
    KERNEL,
    Tree,
    ca22_host,
    case,
    module_file,
    sample,
    smi_json,
)

ROOT = Path(__file__).resolve().parents[5]
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/rbln_facts.schema.json").read_text(encoding="utf-8"))
)


def look(tree: Tree, commands: bool = True, **options: Any) -> dict[str, Any]:
    facts = collect_facts(PROFILE, tree.host(commands), options)
    VALIDATOR.validate(json.loads(json.dumps(facts)))
    return facts


def codes(facts: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in facts["problems"]]


def by(facts: dict[str, Any], key: str, field: str) -> dict[str, Any]:
    return {item[key]: item[field] for item in facts["npus"]}


def test_healthy_host(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    facts = look(tree)
    node = facts["npus"][0]["node"]
    assert facts["npus"][0] == {
        "address": "0000:83:00.0",
        "vendor_id": "1eff",
        "device_id": "1220",
        "product": "RBLN-CA22",
        "family": "ATOM",
        "function": "pf",
        "physfn": None,
        "vfs": 0,
        "state": "ok",
        "usable": True,
        "needs_driver": False,
        "numa_node": 1,
        "driver": "rebellions",
        "iommu_group": "40",
        "link": {"speed_gts": 32.0, "width": 8, "max_speed_gts": 32.0, "max_width": 8, "degraded": False},
        "device": "rbln0",
        "node": {"path": "/dev/rbln0", "major": node["major"], "minor": node["minor"], "mode": "0666", "kind": "char"},
        "index": 0,
        "group": 0,
        "status": {"raw": "0", "name": "READY", "word": "normal", "healthy": True},
        "serial": "0000000090000001",
        "uuid": "00000000-0000-4000-8000-000000000000",
        "firmware": "3.2.2",
        "smc": "3.2.2",
        "memory_bytes": 16877879296,
        "in_smi": True,
        "in_pci": True,
        "card": "0000:83:00.0",
    }
    assert (node["major"], node["minor"]) in ((511, 0), (0, 0))
    assert facts["counts"] == {"cards": 4, "functions": 4, "devices": 4, "usable": 4}
    assert [(group["id"], group["node"]["kind"], group["devices"]) for group in facts["groups"]] == [
        (0, "char", ["rbln0", "rbln1", "rbln2", "rbln3"])
    ]
    assert [item["path"] for item in facts["device_nodes"]] == [
        "/dev/rbln0",
        "/dev/rbln1",
        "/dev/rbln2",
        "/dev/rbln3",
        "/dev/rsd0",
    ]
    assert facts["driver"]["installed_via"] == "runfile"
    assert {
        key: facts["driver"][key] for key in ("version_on_disk", "version_loaded", "loaded", "signer", "signed", "root")
    } == {
        "version_on_disk": "3.2.2",
        "version_loaded": "3.2.2",
        "loaded": True,
        "signer": "Site key",
        "signed": True,
        "root": "/",
    }
    assert facts["driver"]["module_path"] == "/lib/modules/%s/updates/dkms/rebellions.ko" % KERNEL
    assert facts["driver"]["vermagic"] == KERNEL + " SMP"
    assert facts["kernel"] == {
        "running": KERNEL,
        "next_boot": KERNEL,
        "next_boot_source": "newest installed",
        "next_boot_ok": True,
        "installed": [KERNEL],
        "headers": {KERNEL: True},
        "module_tree": True,
        "modules": {KERNEL: True},
        "cmdline": "root=/dev/vda1 ro quiet",
        "packages": [],
        "guard": [{"kernel": KERNEL, "headers": True, "module": True, "running": True, "next_boot": True}],
    }
    assert facts["build"]["programs"] == {"dkms": None, "cc": None, "make": None, "mokutil": None, "openssl": None}
    paths = {"/", "/boot", "/usr", "/usr/local", "/var", "/lib/modules"}
    assert set(facts["disk"]) == set(facts["mounts"]) == set(facts["mount_options"]) == paths
    assert all(isinstance(size, int) for size in facts["disk"].values()) and set(facts["mounts"].values()) == {"/"}
    assert (facts["holds"], facts["pciehp"]) == ([], {"ports": []})
    assert {
        key: facts["mok"][key]
        for key in ("state", "key_present", "configured", "own", "enrolled", "pending", "signer_enrolled")
    } == {
        "state": "none",
        "key_present": False,
        "configured": False,
        "own": False,
        "enrolled": None,
        "pending": None,
        "signer_enrolled": None,
    }
    assert facts["hostname"] == "NPU-A"
    assert facts["identity"] == {
        "machine_id": "0123456789abcdef0123456789abcdef",
        "system_uuid": "4c4c4544-0042-3510-8054-c3c04f573732",
        "node_name": "npu-a",
        "node_name_source": "hostname",
    }
    assert facts["secure_boot"] == "unsupported"
    assert (facts["virtualization"], facts["in_container"]) == ("none", False)
    assert facts["pool_key"] == "ubuntu_24_04_k6_8_0_117_generic"
    assert facts["tools"]["rbln-smi"] == {"path": "/usr/bin/rbln-smi", "version": "3.2.2", "state": "value"}
    assert facts["smi"]["kmd_version"] == "3.2.2"
    assert (facts["reboot_required"], facts["reboot_reasons"], facts["problems"]) == (False, [], [])
    assert tree.smi_calls() == ["-g -j", "--version"]


def test_nothing_on_the_host(tmp_path: Path) -> None:
    facts = look(Tree(tmp_path))
    assert facts["npus"] == []
    assert facts["driver"]["installed_via"] == "none"
    assert facts["driver"]["loaded"] is None
    assert facts["kernel"]["running"] is None
    assert facts["secure_boot"] == "unknown"
    assert facts["probes"]["pci"]["state"] == "absent"
    assert facts["pool_key"] == "unknown_unknown_kunknown"


def test_without_commands_sysfs_and_dev_still_tell(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    facts = look(tree, commands=False)
    assert facts["counts"]["usable"] == 4
    assert by(facts, "address", "device") == {
        "0000:83:00.0": "rbln0",
        "0000:84:00.0": "rbln1",
        "0000:c3:00.0": "rbln2",
        "0000:c4:00.0": "rbln3",
    }
    assert facts["smi"]["state"] == "absent"
    assert facts["smi"]["devices"] is None
    assert facts["problems"] == []
    assert tree.smi_calls() == []


def test_pins_that_cannot_be_read_are_not_none(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    tree.write("/var/lib/dpkg/status", "Package: dkms\nStatus: hold ok installed\nVersion: 3.0\n")
    assert look(tree)["holds"] == ["dkms"]
    (tmp_path / "etc/apt/preferences").mkdir(parents=True)
    facts = look(tree)
    assert (facts["pins"], facts["holds"], facts["probes"]["holds"]["state"]) == (None, None, "failed")


def test_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NpuError, match="Unknown option of the facts: smi_wait"):
        collect_facts(PROFILE, Tree(tmp_path).host(), {"smi_wait": 1})


def test_F01_pci_domain_long(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system()
    for line in case("F01-pci-domain-long", "lspci-Dnn.txt").splitlines():
        vendor, device = line.rsplit("[", 1)[1].split("]")[0].split(":")
        tree.function(line.split()[0], device, vendor="0x" + vendor, **{"class": "0x" + line.split("[")[1][:4] + "00"})
    tree.folder("/sys/bus/pci/devices/virtual0")
    facts = look(tree)
    assert [item["address"] for item in facts["npus"]] == ["10000:01:00.0", "5d0505:02:00.0"]
    assert case("F01-pci-domain-long", "sysfs-names.txt").split() == [
        line.split()[0] for line in case("F01-pci-domain-long", "lspci-Dnn.txt").splitlines()
    ]


def test_F03_numa_minus_one(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system()
    for address, values in json.loads(case("F03-numa-minus-one", "sysfs.json")).items():
        tree.function(address, None, **{"numa_node": None, **values})
    assert by(look(tree), "address", "numa_node") == {
        "0000:24:00.0": None,
        "0000:ab:00.0": 1,
        "0000:c3:00.0": None,
        "0000:c4:00.0": None,
    }


def test_F04_fell_off_bus(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded()
    for at, (address, values) in enumerate(json.loads(case("F04-fell-off-bus", "sysfs.json")).items()):
        tree.function(address, "1220", values["driver"], revision=values["revision"], config=values["config_first4"])
        tree.device("rbln%d" % at, address, at)
    expected = json.loads(case("F04-fell-off-bus", "previous-facts.json"))["npus"]
    facts = look(tree, expected_addresses=expected)
    assert by(facts, "address", "state") == {"0000:83:00.0": "ok", "0000:84:00.0": "unreachable"}
    assert by(facts, "address", "usable") == {"0000:83:00.0": True, "0000:84:00.0": False}
    assert facts["counts"]["usable"] == 1
    assert codes(facts)[:2] == ["npus_found", "npus_reachable"]
    assert facts["problems"][0]["detail"] == "gone from the PCI bus: 0000:c3:00.0"
    assert "0000:84:00.0" in facts["problems"][1]["detail"]


@pytest.mark.parametrize("sign", [{"revision": "0xff"}, {"config": "ffffffff"}], ids=["revision", "config"])
def test_F04_either_sign_is_enough(tmp_path: Path, sign: dict[str, str]) -> None:
    tree = Tree(tmp_path).system().function("0000:84:00.0", "1220", **sign).device("rbln0", "0000:84:00.0", 0)
    assert by(look(tree), "address", "state") == {"0000:84:00.0": "unreachable"}


def test_F04_virtual_function_with_ids_of_all_ones_is_reachable(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().function("0000:03:00.0", "2130")
    tree.function("0000:03:00.1", "2131", physfn="0000:03:00.0", config="ffffffff0604100000000012")
    tree.function("0000:03:00.2", "2131", physfn="0000:03:00.0", config="ff" * 16)
    assert by(look(tree), "address", "state") == {
        "0000:03:00.0": "unknown",
        "0000:03:00.1": "unknown",
        "0000:03:00.2": "unreachable",
    }


def test_S02_secrets_of_the_command_line_are_masked(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/proc/cmdline", "ro rd.iscsi.password=hunter2 x_TOKEN=abc intel_iommu=on\n")
    assert look(tree)["kernel"]["cmdline"] == "ro rd.iscsi.password=******** x_TOKEN=******** intel_iommu=on"


def test_F05_collapsed_npu_index(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded("3.0.0")
    for at, address in enumerate(("0000:83:00.0", "0000:84:00.0", "0000:c3:00.0")):
        tree.function(address).device("rbln%d" % at, address, at, group_id=None, kernel_version="3.0.0", fw_ver="3.0.0")
    facts = look(tree.smi(case("F05-collapsed-npu-index", "rbln-smi.json")))
    assert by(facts, "address", "device") == {"0000:83:00.0": "rbln0", "0000:84:00.0": "rbln1", "0000:c3:00.0": "rbln2"}
    assert by(facts, "address", "group") == {"0000:83:00.0": 1, "0000:84:00.0": 2, "0000:c3:00.0": 3}
    assert by(facts, "address", "index") == {"0000:83:00.0": 0, "0000:84:00.0": 0, "0000:c3:00.0": 0}
    found = [problem for problem in facts["problems"] if problem["code"] == "npu_index_unique"]
    assert [problem["severity"] for problem in found] == ["error"]
    assert "reload the driver or reboot" in found[0]["next_step"]


@pytest.mark.parametrize("where", ["class link", "tool"])
def test_F07_status_code_shift(tmp_path: Path, where: str) -> None:
    tree = Tree(tmp_path).system().loaded()
    devices = json.loads(case("F07-status-code-shift", "sys-class-rebellions.json"))
    listed = []
    for at, (name, values) in enumerate(devices.items()):
        address = "0000:%02x:00.0" % (0x80 + at)
        tree.function(address).device(
            name, address if where == "class link" else None, at, status=values.get("status", "").strip() or None
        )
        listed.append({"npu": at, "device": name, "status": "normal", "pci": {"bus_id": address.upper()}})
    facts = look(tree.smi(smi_json(listed)))
    assert by(facts, "device", "state") == {
        "rbln0": "ok",
        "rbln1": "busy",
        "rbln2": "fault",
        "rbln3": "unknown",
        "rbln4": "unknown",
    }
    assert by(facts, "device", "usable") == {
        "rbln0": True,
        "rbln1": False,
        "rbln2": False,
        "rbln3": False,
        "rbln4": False,
    }
    assert {
        item["device"]: (item["status"]["raw"], item["status"]["name"], item["status"]["healthy"])
        for item in facts["npus"]
    } == {
        "rbln0": ("0", "READY", True),
        "rbln1": ("1", "BUSY", False),
        "rbln2": ("3", "FAULT", False),
        "rbln3": (None, None, None),
        "rbln4": ("garbage", None, None),
    }
    details = {problem["code"]: problem["detail"] for problem in facts["problems"]}
    assert details["device_nodes"].startswith("/dev/rsd0 of device group 0 is missing")
    assert "(rbln1) has status 1 (BUSY); " in details["device_status"]
    assert "(rbln2) has status 3 (FAULT)" in details["device_status"]
    assert "rbln3" not in details["device_status"] and "rbln4" not in details["device_status"]
    assert "(rbln3) is not known: status reads None; " in details["device_health_known"]
    assert "(rbln4) is not known: status reads 'garbage'" in details["device_health_known"]


def test_F07_table_of_a_later_driver_is_not_known(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded("4.0.0")
    for at, status in enumerate(("0", "2", "3")):
        address = "0000:8%d:00.0" % at
        tree.function(address).device("rbln%d" % at, address, at, status=status, kernel_version="4.0.0", fw_ver="4.0.0")
    facts = look(tree)
    assert by(facts, "device", "state") == {"rbln0": "ok", "rbln1": "unknown", "rbln2": "unknown"}
    assert [item["status"]["name"] for item in facts["npus"]] == ["READY", None, None]
    assert [item["status"]["healthy"] for item in facts["npus"]] == [True, False, False]


def test_F07_class_alone_without_pci(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for name, values in json.loads(case("F07-status-code-shift", "sys-class-rebellions.json")).items():
        tree.device(name, None, status=values.get("status", "").strip() or None)
    assert by(look(tree), "device", "state") == {
        "rbln0": "ok",
        "rbln1": "busy",
        "rbln2": "fault",
        "rbln3": "unknown",
        "rbln4": "unknown",
    }


STATES: list[tuple[str, str | None, str | None, str]] = [
    ("both good", "0", "normal", "ok"),
    ("only sysfs", "0", None, "ok"),
    ("word is bad", "0", "abnormal", "fault"),
    ("word is bad in capitals", "0", "ABNORMAL", "fault"),
    ("word is good in capitals", "0", "Normal", "ok"),
    ("busy", "1", "normal", "busy"),
    ("busy, and the tool has a word for it", "1", "occupied", "busy"),
    ("init", "2", "normal", "busy"),
    ("fault", "3", "normal", "fault"),
    ("finish", "4", None, "busy"),
    ("number of no table", "9", "normal", "unknown"),
    ("number of no table, bad word", "9", "broken", "fault"),
    ("no number", None, "normal", "unknown"),
    ("no number, bad word", None, "broken", "fault"),
    ("negative", "-1", "normal", "unknown"),
    ("other digits", "\u00b2", "normal", "unknown"),
]


@pytest.mark.parametrize(("status", "word", "expected"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_F07_state_of_number_and_word(tmp_path: Path, status: str | None, word: str | None, expected: str) -> None:
    tree = Tree(tmp_path).system().loaded().function("0000:83:00.0").device("rbln0", "0000:83:00.0", 0, status=status)
    device = {"npu": 0, "device": "rbln0", "pci": {"bus_id": "0000:83:00.0"}}
    facts = look(tree.smi(smi_json([dict(device, status=word) if word else device])))
    assert by(facts, "device", "state") == {"rbln0": expected}
    assert by(facts, "device", "usable") == {"rbln0": expected == "ok"}


def test_word_decides_alone_without_the_class(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .system()
        .loaded()
        .function("0000:83:00.0")
        .function("0000:84:00.0")
        .char("/dev/rbln0", 511, 0)
        .char("/dev/rbln1", 511, 1)
    )
    listed = [
        {"npu": n, "device": "rbln%d" % n, "status": word, "pci": {"bus_id": "0000:8%d:00.0" % (3 + n)}}
        for n, word in enumerate(("normal", "bad"))
    ]
    assert by(look(tree.smi(smi_json(listed))), "device", "state") == {"rbln0": "ok", "rbln1": "fault"}


def test_F08_device_natural_order(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system()
    for at, path in enumerate(case("F08-device-natural-order", "dev-listing.txt").split()):
        tree.char(path, 511, at)
    facts = look(tree)
    assert [item["path"] for item in facts["device_nodes"]] == ["/dev/rbln%d" % n for n in (0, 1, 2, 3, 10, 11)] + [
        "/dev/rsd0",
        "/dev/rsd1",
    ]
    assert [group["id"] for group in facts["groups"]] == [0, 1]


def test_F12_vfio_bound(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system()
    for address, values in json.loads(case("F12-vfio-bound", "sysfs.json")).items():
        tree.function(address, "1220", values["driver"], iommu_group=values.get("iommu_group"))
    facts = look(tree)
    wanted = ("state", "driver", "usable", "needs_driver", "iommu_group")
    assert {item["address"]: tuple(item[key] for key in wanted) for item in facts["npus"]} == {
        "0000:24:00.0": ("passthrough", "vfio-pci", False, False, "41"),
        "0000:ab:00.0": ("unbound", None, False, True, None),
    }
    assert [problem["detail"] for problem in facts["problems"] if problem["code"] == "driver_loaded"] == [
        "the kernel module rebellions is not loaded"
    ]
    assert "no kernel driver holds 0000:ab:00.0" in [problem["detail"] for problem in facts["problems"]]


def test_F12_host_of_passthrough_only_is_not_broken(tmp_path: Path) -> None:
    facts = look(Tree(tmp_path).system().function("0000:24:00.0", "1220", "vfio-pci"))
    assert facts["problems"] == []


def test_F14_pf_vf_and_identity(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded()
    ids = {"RBLN-CA22 (PF)": "1220", "RBLN-CR13 (PF)": "2130", "RBLN-CR13 (VF)": "2131"}
    listed = []
    for at, item in enumerate(json.loads(case("F14-pf-vf-and-identity", "devices.json"))):
        tree.function(item["bdf"], ids[item["pci_name"]], physfn=item.get("physfn")).device(
            "rbln%d" % at, item["bdf"], at
        )
        listed.append(
            {
                "npu": at,
                "device": "rbln%d" % at,
                "sid": item.get("sid"),
                "status": "normal",
                "pci": {"bus_id": item["bdf"]},
            }
        )
    facts = look(tree.smi(smi_json(listed)))
    wanted = ("product", "family", "function", "serial", "card", "usable")
    assert {item["address"]: tuple(item[key] for key in wanted) for item in facts["npus"]} == {
        "0000:24:00.0": ("RBLN-CA22", "ATOM", "pf", "0000000011110001", "0000:24:00.0", True),
        "0000:ab:00.0": ("RBLN-CR13", "REBEL", "pf", "0000000022220001", "0000:ab:00.0", False),
        "0000:ab:00.1": ("RBLN-CR13", "REBEL", "vf", None, "0000:ab:00.0", True),
    }
    assert facts["counts"] == {"cards": 2, "functions": 3, "devices": 2, "usable": 2}
    assert "one_family" in codes(facts)
    assert "pf_without_vfs" in codes(facts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RBLN-CA99 (PF)", ("RBLN-CA99", "ATOM", "pf")),
        ("RBLN-CR99 (VF)", ("RBLN-CR99", "REBEL", "vf")),
        ("RBLN-CR99 (vf) ", ("RBLN-CR99", "REBEL", "vf")),
        ("RBLN-CX01", ("RBLN-CX01", None, "pf")),
        ("N/A (PF)", ("N/A", None, "pf")),
        (None, (None, None, "pf")),
    ],
)
def test_F14_pf_vf_and_identity_of_a_product_that_is_not_listed(
    tmp_path: Path, name: str | None, expected: tuple[str | None, ...]
) -> None:
    tree = Tree(tmp_path).system().loaded().function("0000:24:00.0", "9990").device("rbln0", "0000:24:00.0", 0)
    facts = look(
        tree.smi(smi_json([{"npu": 0, "device": "rbln0", "name": name, "pci": {"bus_id": "00000000:24:00.0"}}]))
    )
    assert [(item["product"], item["family"], item["function"]) for item in facts["npus"]] == [expected]
    assert facts["npus"][0]["in_smi"] and "products_known" in codes(facts)


@pytest.mark.parametrize(
    ("sysfs", "tool", "expected"),
    [
        ("1\n", None, 1),
        ("1\r\n", 2, 1),
        ("-1\n", None, None),
        ("4294967295\n", None, None),
        ("", "3", 3),
        ("N/A", "N/A", None),
        (None, 4294967295, None),
        ("rsd1", 0, 0),
    ],
)
def test_group_numbers(tmp_path: Path, sysfs: str | None, tool: object, expected: int | None) -> None:
    tree = Tree(tmp_path).system().loaded().function("0000:24:00.0").device("rbln0", "0000:24:00.0", 0, group_id=sysfs)
    facts = look(
        tree.smi(smi_json([{"npu": 0, "device": "rbln0", "group_id": tool, "pci": {"bus_id": "0000:24:00.0"}}]))
    )
    assert facts["npus"][0]["group"] == expected
    assert [group["id"] for group in facts["groups"]] == ([] if expected is None else [expected])


@pytest.mark.parametrize(("driver", "expected"), [("rebellions", True), ("vfio-pci", False)])
def test_two_families_for_one_driver(tmp_path: Path, driver: str, expected: bool) -> None:
    tree = Tree(tmp_path).system().loaded().function("0000:24:00.0", "1220").function("0000:ab:00.0", "2130", driver)
    assert ("one_family" in codes(look(tree))) is expected


def test_W02_count_mismatch(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded()
    for address in case("W02-count-mismatch", "pci.txt").split():
        tree.function(address)
    for at, path in enumerate(case("W02-count-mismatch", "dev.txt").split()):
        tree.char(path, 511, at)
    facts = look(tree.smi(case("W02-count-mismatch", "smi.json")))
    assert (facts["counts"]["devices"], facts["smi"]["devices"], facts["counts"]["usable"]) == (4, 3, 2)
    assert by(facts, "address", "state") == {
        "0000:83:00.0": "ok",
        "0000:84:00.0": "ok",
        "0000:c3:00.0": "fault",
        "0000:c4:00.0": "unknown",
    }
    details = {problem["code"]: problem["detail"] for problem in facts["problems"]}
    assert "; missing: 0000:c4:00.0; " in details["device_counts"]
    assert details["device_words"] == "0000:c3:00.0: abnormal"


SMI_FAULTS: list[tuple[str, str, str, list[str]]] = [
    ("collapsed", "rbln-smi_ca22_collapsed_npu_index.json", "npu_index_unique", []),
    ("fault", "rbln-smi_ca22_device_fault.json", "device_words", ["0000:c3:00.0"]),
    ("firmware", "rbln-smi_ca22_fw_mismatch.json", "firmware_is_driver", []),
    ("missing", "rbln-smi_ca22_one_missing.json", "device_counts", []),
    ("empty", "rbln-smi_empty.json", "device_counts", []),
    ("truncated", "rbln-smi_truncated.json", "looks_worked", []),
    ("table", "rbln-smi_ca22_3.2.2_idle.txt", "looks_worked", []),
    ("no driver", "rbln-smi_no_driver.txt", "looks_worked", []),
]


@pytest.mark.parametrize(
    ("file", "code", "faulty"), [row[1:] for row in SMI_FAULTS], ids=[row[0] for row in SMI_FAULTS]
)
def test_tool_faults_on_a_healthy_host(tmp_path: Path, file: str, code: str, faulty: list[str]) -> None:
    tree = ca22_host(tmp_path)
    for at in range(4):
        tree.real("/sys/class/rebellions/rbln%d/fw_ver" % at).unlink()
    facts = look(tree.write("/usr/share/smi.json", sample(file)))
    assert code in codes(facts)
    assert [item["address"] for item in facts["npus"] if item["state"] == "fault"] == faulty
    assert facts["counts"]["functions"] == 4


def test_F06_unreadable_answer_is_not_zero_devices(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path).write("/usr/share/smi.json", case("F06-smi-json-types", "smi-noise.txt"))
    facts = look(tree)
    assert (facts["smi"]["state"], facts["smi"]["error"], facts["smi"]["devices"]) == ("failed", "unreadable", None)
    assert codes(facts) == ["looks_worked"]
    assert tree.smi_calls() == ["-g -j", "-j", "--version"]


def test_F06_empty_list_is_zero_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().smi(case("F06-smi-json-types", "smi-empty.json"))
    facts = look(tree)
    assert (facts["smi"]["state"], facts["smi"]["devices"]) == ("value", 0)
    assert codes(facts) == ["npus_found"]


@pytest.mark.parametrize("file", ["smi-1x.json", "smi-2x.json"])
def test_F06_number_or_text(tmp_path: Path, file: str) -> None:
    facts = look(Tree(tmp_path).smi(case("F06-smi-json-types", file)))
    assert [(item["device"], item["index"], item["product"], item["family"]) for item in facts["npus"]] == [
        ("rbln0", 0, "RBLN-CA22", "ATOM")
    ]


def test_tool_that_hangs_is_a_timeout_and_asked_once(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    tree.program("/usr/bin/rbln-smi", 'echo "$*" >> "$(dirname "$0")/../../var/log/smi"\nexec sleep 20\n')
    facts = look(tree, smi_timeout=0.3)
    assert (facts["smi"]["state"], facts["smi"]["devices"]) == ("timeout", None)
    assert codes(facts) == ["looks_in_time"]
    assert "hung processes" in facts["problems"][0]["next_step"]
    assert tree.smi_calls() == ["-g -j"]
    assert facts["tools"]["rbln-smi"] == {"path": "/usr/bin/rbln-smi", "version": None, "state": "absent"}


def test_tool_that_fails_says_why(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path).program("/usr/bin/rbln-smi", "echo noise; echo 'SYS_ERROR (code: 5)' >&2; exit 3\n")
    facts = look(tree)
    assert codes(facts) == ["looks_worked"]
    assert facts["problems"][0]["detail"] == "smi: " + facts["smi"]["detail"]
    assert facts["smi"]["detail"] == "/usr/bin/rbln-smi -j ended with 3: SYS_ERROR (code: 5)"


def test_tool_without_groups_is_asked_without(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    tree.program("/usr/bin/rbln-smi", '[ "$1" = -j ] || exit 2\ncat "$(dirname "$0")/../share/smi.json"\n')
    facts = look(tree)
    assert facts["smi"]["devices"] == 4
    assert facts["problems"] == []


def test_old_name_of_the_tool(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded("1.3.73")
    for at, address in enumerate(("0000:51:00.0", "0000:d8:00.0")):
        tree.function(address, "1120").device("rbln%d" % at, address, at, fw_ver="1.3.73", kernel_version="1.3.73")
    facts = look(tree.smi(sample("rbln-stat_ca12_1.3.73_strings.json"), "rbln-stat 1.3.73", "/usr/local/bin/rbln-stat"))
    assert [(item["product"], item["index"], item["usable"]) for item in facts["npus"]] == [
        ("RBLN-CA12", 0, True),
        ("RBLN-CA12", 1, True),
    ]
    assert facts["tools"]["rbln-stat"] == {"path": "/usr/local/bin/rbln-stat", "version": "1.3.73", "state": "value"}
    assert facts["tools"]["rbln-smi"]["path"] is None


def test_groups_of_the_tool(tmp_path: Path) -> None:
    tree = Tree(tmp_path).system().loaded()
    for at in range(8):
        address = "0000:2%d:00.0" % (at + 1)
        tree.function(address, "1250").device("rbln%d" % at, address, at, group_id=None)
    facts = look(tree.smi(sample("rbln-smi_ca25_3.2.2_groups.json")).char("/dev/rsd0", 510, 0))
    assert [(group["id"], group["node"]["kind"], group["devices"]) for group in facts["groups"]] == [
        (0, "char", ["rbln4", "rbln5", "rbln6", "rbln7"]),
        (1, "missing", ["rbln0", "rbln1", "rbln2", "rbln3"]),
    ]
    assert facts["counts"] == {"cards": 2, "functions": 8, "devices": 8, "usable": 8}


def secure(tree: Tree) -> None:
    tree.write("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01")


def enforcing(tree: Tree, value: str = "Y") -> None:
    tree.write("/sys/module/module/parameters/sig_enforce", value + "\n")


def locked(tree: Tree) -> None:
    tree.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")


Change = Callable[[Tree], Any]
BASE_84 = "/sys/devices/pci0000:00/0000:84:00.0"
PROBLEMS: list[tuple[str, Change, list[str]]] = [
    ("node missing", lambda tree: tree.real("/dev/rbln2").unlink(), ["device_nodes", "device_counts"]),
    (
        "node is a file",
        lambda tree: (tree.real("/dev/rbln2").unlink(), tree.write("/dev/rbln2")),
        ["device_nodes", "device_counts"],
    ),
    (
        "node is a folder",
        lambda tree: (tree.real("/dev/rbln2").unlink(), tree.folder("/dev/rbln2")),
        ["device_nodes", "device_counts"],
    ),
    (
        "link width",
        lambda tree: tree.write(BASE_84 + "/current_link_width", "4\n"),
        ["link_full"],
    ),
    ("module not loaded", lambda tree: shutil.rmtree(tree.real("/sys/module/rebellions")), ["driver_loaded"]),
    (
        "other version on disk",
        lambda tree: tree.kernel(KERNEL, False, module_file("3.4.0", "Site key")),
        ["driver_on_disk_is_loaded", "reboot_not_pending"],
    ),
    ("node of the group missing", lambda tree: tree.real("/dev/rsd0").unlink(), ["device_nodes"]),
    ("not bound", lambda tree: tree.real(BASE_84 + "/driver").unlink(), ["npus_bound", "device_counts"]),
    ("passed through", lambda tree: tree.link(BASE_84 + "/driver", "/sys/bus/pci/drivers/vfio-pci"), []),
    ("product not known", lambda tree: tree.write(BASE_84 + "/device", "0x9999\n"), ["products_known"]),
    ("firmware", lambda tree: tree.write("/sys/class/rebellions/rbln1/fw_ver", "3.0.0\n"), ["firmware_is_driver"]),
    ("library", lambda tree: tree.write("/usr/lib/librbln-ml.so.3.0.0"), ["library_is_driver"]),
    (
        "library of another directory of the loader",
        lambda tree: tree.write("/etc/ld.so.conf", "/opt/rbln\n").write("/opt/rbln/librbln-ml.so.3.0.0"),
        ["library_is_driver"],
    ),
    (
        "unsigned under Secure Boot",
        lambda tree: (secure(tree), tree.kernel(KERNEL, False, module_file("3.2.2"))),
        ["next_load_accepted"],
    ),
    ("signed under Secure Boot", secure, []),
    (
        "unsigned under sig_enforce",
        lambda tree: (enforcing(tree), tree.kernel(KERNEL, False, module_file("3.2.2"))),
        ["next_load_accepted"],
    ),
    ("signed under sig_enforce", enforcing, []),
    (
        "unsigned under lockdown",
        lambda tree: (locked(tree), tree.kernel(KERNEL, False, module_file("3.2.2"))),
        ["next_load_accepted"],
    ),
    (
        "unsigned, nothing enforced",
        lambda tree: (enforcing(tree, "N"), tree.kernel(KERNEL, False, module_file("3.2.2"))),
        [],
    ),
    (
        "W02-count-mismatch the tool knows another driver",
        lambda tree: tree.smi(
            sample("rbln-smi_ca22_3.2.2_idle.json").replace('"KMD_version": "3.2.2"', '"KMD_version": "3.0.0"')
        ),
        ["tool_is_driver"],
    ),
    (
        "pre-release of the version",
        lambda tree: tree.loaded("3.2.2~rc1"),
        ["driver_on_disk_is_loaded", "tool_is_driver", "reboot_not_pending", "firmware_is_driver"],
    ),
    ("epoch and revision", lambda tree: tree.loaded("1:3.2.2-1"), []),
    (
        "kernel without headers is next",
        lambda tree: tree.kernel("6.8.0-138-generic", False),
        ["reboot_not_pending", "kernels_have_module"],
    ),
    (
        "kernel without module is next",
        lambda tree: tree.kernel("6.8.0-138-generic"),
        ["reboot_not_pending", "kernels_have_module"],
    ),
    (
        "driver of a container too",
        lambda tree: tree.program("/run/rbln/driver/usr/bin/rbln-smi", "exit 1\n"),
        ["driver_has_one_owner"],
    ),
    ("broken stamp", lambda tree: tree.write("/var/lib/rbln/driver.json", "{"), ["looks_worked"]),
    ("suffix of the version", lambda tree: tree.loaded("3.2.2-abc123-release"), []),
]


@pytest.mark.parametrize(("change", "expected"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS])
def test_problems_of_a_host_that_was_healthy(tmp_path: Path, change: Change, expected: list[str]) -> None:
    tree = ca22_host(tmp_path)
    change(tree)
    facts = look(tree)
    assert codes(facts) == expected
    assert all(problem["next_step"] and problem["vendor"] == "rebellions" for problem in facts["problems"])


def test_device_that_left_the_bus_stays_visible(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    tree.real("/sys/bus/pci/devices/0000:c4:00.0").unlink()
    facts = look(tree)
    assert by(facts, "address", "state")["0000:c4:00.0"] == "unreachable"
    assert (facts["counts"]["functions"], facts["counts"]["usable"]) == (4, 3)
    assert codes(facts) == ["npus_reachable", "device_counts"]
    assert "is not on the PCI bus" in facts["problems"][0]["detail"]


def test_a_system_without_a_pci_bus_says_so_where_npus_are_expected(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    shutil.rmtree(tree.real("/sys/bus/pci"))
    found = {problem["code"]: problem for problem in look(tree, expected_addresses=["0000:83:00.0"])["problems"]}
    assert found["looks_worked"]["severity"] == "warning"
    assert found["looks_worked"]["detail"] == "pci: this system shows no PCI bus below /sys"


def custom_build(tree: Tree) -> Tree:
    """A module that has a word for its version, on disk and loaded."""
    return tree.kernel(KERNEL, False, module_file("custom")).loaded("custom")


REBOOTS: list[tuple[str, Change, list[str]]] = [
    ("nothing", lambda tree: None, []),
    ("version", lambda tree: tree.kernel(KERNEL, False, module_file("3.4.0")), ["module_differs"]),
    ("suffix of the version", lambda tree: tree.loaded("3.2.2-abc123-release"), []),
    (
        "same version built anew",
        lambda tree: tree.kernel(KERNEL, False, module_file("3.2.2", None, "BBBB")),
        ["module_differs"],
    ),
    ("same text without a number", custom_build, []),
    ("file of the package manager", lambda tree: tree.write("/run/reboot-required"), ["reboot_required_file"]),
    ("newer kernel waits", lambda tree: tree.kernel("6.8.0-138-generic"), []),
]


@pytest.mark.parametrize(("change", "expected"), [row[1:] for row in REBOOTS], ids=[row[0] for row in REBOOTS])
def test_reboot_required(tmp_path: Path, change: Change, expected: list[str]) -> None:
    tree = ca22_host(tmp_path)
    change(tree)
    facts = look(tree)
    assert [reason["code"] for reason in facts["reboot_reasons"]] == expected
    assert facts["reboot_required"] is bool(expected)


def test_K01_headers_metapackage(tmp_path: Path) -> None:
    rows = [
        (line.split()[1], "6.8", "install ok installed")
        for line in case("K01-headers-metapackage", "dpkg-l.txt").splitlines()
    ]
    tree = Tree(tmp_path).system().dpkg(rows).loaded().function("0000:83:00.0").device("rbln0", "0000:83:00.0", 0)
    tree.kernel(KERNEL, headers=False, module=module_file("3.2.2"))
    tree.write("/run/reboot-required").write(
        "/run/reboot-required.pkgs", case("K01-headers-metapackage", "reboot-required.pkgs")
    )
    facts = look(tree)
    assert facts["kernel"]["running"] == "6.8.0-117-generic"
    assert facts["kernel"]["next_boot"] == "6.8.0-138-generic"
    assert facts["kernel"]["headers"] == {"6.8.0-117-generic": True, "6.8.0-138-generic": False}
    assert facts["kernel"]["next_boot_ok"] is False
    waits = next(problem for problem in facts["problems"] if problem["code"] == "reboot_not_pending")
    assert waits["detail"].endswith("6.8.0-138-generic, which has no rebellions module and no headers to build it")
    assert facts["reboot_reasons"] == [
        {"code": "reboot_required_file", "detail": "/run/reboot-required: linux-image-6.8.0-138-generic"}
    ]


def test_A05_container_host(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for line in case("A05-container-host", "env.txt").splitlines():
        path, _colon, text = line.partition(":")
        if text.strip() != "missing":
            tree.write(path, text.strip() + "\n")
    facts = look(tree.write("/proc/sys/kernel/osrelease", KERNEL + "\n"))
    assert facts["in_container"] is True
    assert facts["kernel"]["next_boot"] is None
    assert facts["kernel"]["next_boot_source"] == "not known in a container"
    # The PCI bus cannot be read there, so whether NPUs are missing is not known.
    assert codes(facts) == ["driver_installed"]


def test_twenty_devices_stay_cheap(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path, ["0000:%02x:00.0" % number for number in range(0x10, 0x24)])
    tree.smi(
        smi_json(
            [
                {"npu": n, "device": "rbln%d" % n, "status": "normal", "pci": {"bus_id": "0000:%02x:00.0" % (0x10 + n)}}
                for n in range(20)
            ]
        )
    )
    facts = look(tree)
    assert [item["device"] for item in facts["npus"]] == ["rbln%d" % number for number in range(20)]
    assert facts["counts"]["usable"] == 20
    assert tree.smi_calls() == ["-g -j", "--version"]


class Refusing(Host):
    """A host of which one directory may not be looked at."""

    refused = ""

    def resolve(self, path: str) -> Probe:
        below = path == self.refused or path.startswith(self.refused + "/")
        return Probe(DENIED, None, "Permission denied") if below else super().resolve(path)


@pytest.mark.parametrize(
    ("refused", "probe", "unknown"),
    [
        ("/dev", "dev", {"device_nodes", "device_counts"}),
        ("/sys/bus/pci/devices", "pci", {"npus_found", "device_counts"}),
        ("/lib/modules", "module_file", {"driver_installed", "driver_on_disk_is_loaded", "reboot_not_pending"}),
    ],
)
def test_what_is_denied_is_neither_absent_nor_broken(
    tmp_path: Path, refused: str, probe: str, unknown: set[str]
) -> None:
    ca22_host(tmp_path)
    host = Refusing(str(tmp_path))
    host.refused = refused
    facts = collect_facts(PROFILE, host)
    assert facts["probes"][probe] == {"state": "denied", "detail": "Permission denied"}
    assert [(problem["code"], problem["severity"]) for problem in facts["problems"]] == [("looks_allowed", "warning")]
    checks = {check.name: check.ok for check in run_checks(PROFILE, host, facts, {}, {}, {}, ("driver",))}
    assert [name for name, ok in checks.items() if ok is False] == ["looks_allowed"]
    assert {name for name in unknown if checks[name] is None} == unknown


class Denying(Refusing):
    """A host on which the paths of a case are denied, also by the kernel where only a node is."""

    paths: tuple[str, ...] = ()

    def resolve(self, path: str) -> Probe:
        if any(path == one or path.startswith(one + "/") for one in self.paths):
            return Probe(DENIED, None, "Permission denied")
        return Host.resolve(self, path)


def test_F13_denied_vs_absent(tmp_path: Path) -> None:
    """F13: hardware that may not be looked at is not known, never zero, and become is named."""
    asked = json.loads(case("F13-denied-vs-absent", "probe-results.json"))
    tree = Tree(tmp_path).folder("/sys/bus/pci/devices").write("/dev/rbln0")
    tree.write("/proc/modules", asked["/proc/modules"])
    host = Denying(str(tree.root))
    host.paths = tuple(path for path, answer in asked.items() if answer == "EACCES")
    facts = collect_facts(PROFILE, host)
    assert (facts["npus"], facts["npu_count"], set(facts["counts"].values())) == ([], None, {None})
    assert facts["probe_denied"] == ["dev", "pci"]
    checks = {check.name: check for check in run_checks(PROFILE, host, facts, {}, {}, {}, ("driver",))}
    assert checks["npus_found"].ok is None and "become" in checks["npus_found"].next_step
    assert npu_labels(PROFILE, facts) is None


def test_F13_one_function_that_may_not_be_read_is_not_known_either(tmp_path: Path) -> None:
    tree = Tree(tmp_path).folder("/sys/bus/pci/devices/0000:83:00.0")
    host = Denying(str(tree.root))
    host.paths = ("/sys/bus/pci/devices/0000:83:00.0/vendor",)
    facts = collect_facts(PROFILE, host)
    assert (facts["npu_count"], facts["probe_denied"]) == (None, ["pci"])
    assert facts["probes"]["pci"]["detail"] == "0000:83:00.0/vendor: Permission denied"


@pytest.mark.parametrize(
    ("lspci", "known"),
    [
        (None, False),
        ("exit 1", False),
        ("exit 0", True),
    ],
)
def test_F13_a_container_without_sys_is_not_known(tmp_path: Path, lspci: str | None, known: bool) -> None:
    """Without /sys only lspci can tell, and only where it succeeds."""
    tree = Tree(tmp_path)
    if lspci:
        tree.program("/usr/bin/lspci", lspci)
    facts = look(tree)
    assert facts["npu_count"] == (0 if known else None)
    assert facts["probes"]["pci"]["state"] == ("value" if known else "absent")


def test_F13_a_bus_without_npus_has_none(tmp_path: Path) -> None:
    facts = look(Tree(tmp_path).write("/sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n"))
    assert (facts["npu_count"], facts["counts"]["functions"], facts["probe_denied"]) == (0, 0, [])


def test_H14_image_mode_host(tmp_path: Path) -> None:
    """H14: os-release is that of RHEL, and /run/ostree-booted says how the system comes."""
    tree = ca22_host(tmp_path).write("/etc/os-release", case("H14-image-mode-host", "os-release"))
    for path in case("H14-image-mode-host", "tree.txt").split():
        tree.write(path)
    facts = look(tree)
    assert (facts["os"]["id"], facts["os"]["version_id"], facts["os"]["image"]) == ("rhel", "9.6", "ostree")
    # The modules of the next image are not seen from this one.
    assert set(facts["kernel"]["modules"]) <= {facts["kernel"]["running"]}
