# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that gives its NPUs to virtual machines. Case F12-vfio-bound; requirement 000-33."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.prove import Rules, prove
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import run_checks
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts as collect
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree

FIRST, SECOND, OTHER = "0000:83:00.0", "0000:84:00.0", "0000:85:00.0"
ALL_OK: dict[str, bool | None] = {"vfio_module": True, "vfio_groups": True, "vfio_bound": True, "vfio_nodes": True}


def place(address: str) -> str:
    return "/sys/devices/pci0000:00/" + address


def good(root: Path) -> Tree:
    tree = Tree(root).system().folder("/sys/bus/pci/drivers/vfio-pci").folder("/sys/bus/pci/drivers/rebellions")
    for address, group in ((FIRST, "41"), (SECOND, "42")):
        tree.function(address, "1220", "vfio-pci", iommu_group=group).folder(
            "/sys/kernel/iommu_groups/%s/devices/%s" % (group, address)
        )
        tree.char("/dev/vfio/" + group, 511, int(group))
    tree.function("0000:80:01.0", "1234", "pcieport", vendor="0x8086", **{"class": "0x060400"})
    tree.folder("/sys/kernel/iommu_groups/41/devices/0000:80:01.0")
    return tree.char("/dev/vfio/vfio", 10, 196)


def driver(tree: Tree, address: str, name: str) -> None:
    tree.real(place(address) + "/driver").unlink()
    if name:
        tree.link(place(address) + "/driver", "/sys/bus/pci/drivers/" + name)


def stranger(tree: Tree) -> None:
    tree.function(OTHER, "a80a", "nvme", vendor="0x144d", **{"class": "0x010802"})
    tree.folder("/sys/kernel/iommu_groups/42/devices/" + OTHER)


def plain(tree: Tree) -> None:
    tree.real("/dev/vfio/42").unlink()
    tree.write("/dev/vfio/42")


# {name: (what is wrong, checks that are not true with what they say)}
FAULTS: dict[str, tuple[Callable[[Tree], Any], dict[str, tuple[bool | None, str]]]] = {
    "nothing": (lambda tree: None, {}),
    "module not loaded": (
        lambda tree: tree.real("/sys/bus/pci/drivers/vfio-pci").rmdir(),
        {"vfio_module": (False, "vfio-pci is not loaded")},
    ),
    "no IOMMU": (
        lambda tree: tree.real(place(FIRST) + "/iommu_group").unlink(),
        {"vfio_groups": (False, FIRST + " has no IOMMU group")},
    ),
    "a disk in the group": (stranger, {"vfio_groups": (False, OTHER + " of IOMMU group 42 is bound to nvme")}),
    "the host's driver": (
        lambda tree: driver(tree, SECOND, "rebellions"),
        {"vfio_bound": (False, SECOND + " is bound to rebellions")},
    ),
    "no driver": (lambda tree: driver(tree, SECOND, ""), {"vfio_bound": (False, SECOND + " is bound to no driver")}),
    "no group's node": (
        lambda tree: tree.real("/dev/vfio/41").unlink(),
        {"vfio_nodes": (False, "/dev/vfio/41 is missing")},
    ),
    "no container node": (
        lambda tree: tree.real("/dev/vfio/vfio").unlink(),
        {"vfio_nodes": (False, "/dev/vfio/vfio is missing")},
    ),
    "a file as node": (plain, {"vfio_nodes": (False, "/dev/vfio/42 is no character device")}),
}


def checks(tree: Tree) -> dict[str, Any]:
    host = tree.host()
    return {one.name: one for one in run_checks(PROFILE, host, collect(PROFILE, host), {}, {}, {}, ("vfio",))}


@pytest.mark.parametrize("name", FAULTS)
def test_000_33_what_a_virtual_machine_needs(name: str, tmp_path: Path) -> None:
    spoil, expected = FAULTS[name]
    tree = good(tmp_path)
    spoil(tree)
    found = checks(tree)
    assert {one: check.ok for one, check in found.items()} == {
        **ALL_OK,
        **{one: ok for one, (ok, _detail) in expected.items()},
    }
    for one, (_ok, detail) in expected.items():
        assert found[one].detail == detail and found[one].next_step and found[one].severity == "error"


def test_a_host_without_an_npu_is_not_ready(tmp_path: Path) -> None:
    found = checks(Tree(tmp_path).system().folder("/sys/bus/pci/drivers/vfio-pci"))
    assert {one: check.ok for one, check in found.items()} == {"vfio_module": True, "vfio_bound": False}


def test_a_physical_function_whose_virtual_ones_are_given_away_stays_with_the_host(tmp_path: Path) -> None:
    tree = good(tmp_path)
    driver(tree, FIRST, "rebellions")
    tree.write(place(FIRST) + "/sriov_numvfs", "4\n")
    found = checks(tree)
    assert {one: check.ok for one, check in found.items()} == ALL_OK
    assert found["vfio_bound"].evidence == {"drivers": {SECOND: "vfio-pci"}}


def test_the_proof_of_this_scope_alone_touches_no_ready_file(tmp_path: Path) -> None:
    tree = good(tmp_path)
    host = tree.host()
    proof = prove(PROFILE, host, collect(PROFILE, host), {}, {}, {}, Rules(scopes=("vfio",), markers="write"))
    assert (proof.state, proof.changes, [check.name for check in proof.checks]) == ("passed", [], list(ALL_OK))
