# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI addresses, link texts, lspci, cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PRODUCTS, PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu import pci
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case, sample


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:83:00.0", "0000:83:00.0"),
        ("83:00.0", "0000:83:00.0"),
        (" 0000:C3:00.1\n", "0000:c3:00.1"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("5d0505:02:00.0", "5d0505:02:00.0"),
        ("12345678:02:00.0", "12345678:02:00.0"),
        ("00000000:83:00.0", "0000:83:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("123456789:02:00.0", None),
        ("000:02:00.0", None),
        ("0000:02:00.8", None),
        ("0000:02:00", None),
        ("", None),
        (None, None),
        ("N/A", None),
    ],
)
def test_F01_normalise_address(text: str | None, expected: str | None) -> None:
    assert pci.normalise_address(text) == expected


def test_F01_addresses_sort_by_number() -> None:
    names = ["10000:01:00.0", "0000:c3:00.0", "0000:1b:00.0", "0000:1b:00.1", "5d0505:02:00.0", "ffff:01:00.0", None]
    assert sorted(names, key=pci.address_key) == [
        "0000:1b:00.0",
        "0000:1b:00.1",
        "0000:c3:00.0",
        "ffff:01:00.0",
        "10000:01:00.0",
        "5d0505:02:00.0",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1\n", None),
        ("1\n", 1),
        ("0", 0),
        ("", None),
        (None, None),
        ("N/A", None),
        ("-2", None),
        ("4294967295", None),
        ("65535", None),
        (" 1\r\n", 1),
    ],
)
def test_F03_numa_node(text: str | None, expected: int | None) -> None:
    assert pci.parse_numa_node(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32.0 GT/s PCIe", 32.0),
        ("16GT/s", 16.0),
        ("2.5 GT/s", 2.5),
        ("64.0 GT/s PCIe\n", 64.0),
        ("Unknown speed", None),
        ("Unknown", None),
        ("", None),
        (None, None),
    ],
)
def test_speed(text: str | None, expected: float | None) -> None:
    assert pci.parse_speed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("x16", 16), ("16\n", 16), ("0", None), ("63", 63), ("255", None), ("", None), (None, None)],
)
def test_width(text: str | None, expected: int | None) -> None:
    assert pci.parse_width(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            case("F01-pci-domain-long", "lspci-Dnn.txt"),
            [("10000:01:00.0", "1220", True), ("5d0505:02:00.0", "1220", True)],
        ),
        (case("F04-fell-off-bus", "lspci-Dnn.txt"), [("0000:83:00.0", "1220", True), ("0000:84:00.0", "1220", False)]),
        (sample("lspci_D_nn_ca22.txt"), [("0000:%s:00.0" % bus, "1220", True) for bus in ("83", "84", "c3", "c4")]),
        (
            sample("lspci_D_nn_cr13_sriov.txt"),
            [("0000:03:00.0", "2130", True), ("0000:03:00.1", "2131", True), ("0000:03:00.2", "2131", True)],
        ),
        ("", []),
        ("pcilib: Cannot open /proc/bus/pci", []),
    ],
    ids=["F01", "F04", "ca22", "cr13", "empty", "noise"],
)
def test_lspci(text: str, expected: list[tuple[str, str, bool]]) -> None:
    assert [(item.address, item.device_id, item.reachable) for item in pci.parse_lspci(text, "1eff")] == expected


def test_products_are_those_of_the_public_list() -> None:
    listed = {}
    for line in sample("pci_ids_1eff.txt").splitlines()[1:]:
        device, name, kind = line.split()
        listed[device] = (name, kind == "(VF)")
    assert {device: (product.name, product.virtual) for device, product in PRODUCTS.items()} == listed


def test_lspci_stands_in_where_sysfs_has_no_pci(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def runner(argv: Any, timeout: float, env: Any) -> Probe:
        calls.append(list(argv))
        return Probe(VALUE, Completed(0, sample("lspci_D_nn_ca22.txt"), ""))

    found, probe = pci.read_functions(Host(str(tmp_path), runner), "1eff", "1200", PRODUCTS)
    assert [item.address for item in found] == ["0000:83:00.0", "0000:84:00.0", "0000:c3:00.0", "0000:c4:00.0"]
    assert probe.ok
    assert calls == [["lspci", "-Dnn", "-d", "1eff:"]]


def test_other_functions_of_the_vendor_are_no_npus(tmp_path: Path) -> None:
    tree = Tree(tmp_path).function("0000:20:00.0", "9000", **{"class": "0x060400"}).function("0000:21:00.0", "9001")
    tree.function("0000:22:00.0", "1250", **{"class": "0x120000"}).function("0000:23:00.0", "1220", vendor="0x8086")
    found, _probe = pci.read_functions(tree.host(), "1eff", "1200", PRODUCTS)
    assert [item.address for item in found] == ["0000:21:00.0", "0000:22:00.0"]


def size(device: str) -> int:
    return PROFILE.products[device].devices_per_card


CARDS: list[tuple[str, list[tuple[str, str]], dict[str, int], list[list[str]]]] = [
    (
        "own switch",
        [("a", "%02x" % n) for n in (0x23, 0x24, 0x25, 0x26)] + [("b", "%02x" % n) for n in (0x33, 0x34, 0x35, 0x36)],
        {},
        [["23", "24", "25", "26"], ["33", "34", "35", "36"]],
    ),
    (
        "own switch, one device gone",
        [("a", "23"), ("a", "24"), ("a", "26"), ("b", "33"), ("b", "34"), ("b", "35"), ("b", "36")],
        {},
        [["23", "24", "26"], ["33", "34", "35", "36"]],
    ),
    (
        "no bridges, locations",
        [("", "%d" % n) for n in (21, 22, 23, 25, 26, 27, 28)],
        dict(zip(("21", "22", "23", "25", "26", "27", "28"), (0, 1, 2, 4, 5, 6, 7))),
        [["21", "22", "23"], ["25", "26", "27", "28"]],
    ),
    (
        "no bridges, address order",
        [("", "%d" % n) for n in range(21, 29)],
        {},
        [["21", "22", "23", "24"], ["25", "26", "27", "28"]],
    ),
    (
        "one bridge above two cards",
        [("root", "%d" % n) for n in range(21, 29)],
        {},
        [["21", "22", "23", "24"], ["25", "26", "27", "28"]],
    ),
]


@pytest.mark.parametrize(
    ("functions", "locations", "expected"), [row[1:] for row in CARDS], ids=[row[0] for row in CARDS]
)
def test_cards_of_four_devices(
    functions: list[tuple[str, str]], locations: dict[str, int], expected: list[list[str]]
) -> None:
    bridges = {"": "", "a": "0000:20:01.0/0000:21:00.0", "b": "0000:20:02.0/0000:31:00.0", "root": "0000:20:01.0"}
    items = []
    for bridge, bus in functions:
        address = "0000:%s:00.0" % bus
        items.append(
            pci.PciFunction(
                address,
                "1eff",
                "1250",
                path="/".join(part for part in ("/sys/devices/pci0000:20", bridges[bridge], address) if part),
            )
        )
    cards = pci.assign_cards(items, size, {"0000:%s:00.0" % bus: number for bus, number in locations.items()})
    grouped: dict[str, list[str]] = {}
    for address, card in cards.items():
        grouped.setdefault(card, []).append(address.split(":")[1])
    assert sorted(sorted(group) for group in grouped.values()) == expected


def test_F14_virtual_function_is_on_the_card_of_its_parent() -> None:
    items = [
        pci.PciFunction("0000:ab:00.0", "1eff", "2130"),
        pci.PciFunction("0000:ab:00.1", "1eff", "2131", physfn="0000:ab:00.0"),
    ]
    assert set(pci.assign_cards(items, size, {}).values()) == {"0000:ab:00.0"}


def test_F14_virtual_functions_are_counted_by_any_sign(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.function("0000:01:00.0", "2130", sriov_numvfs="3")
    tree.function("0000:02:00.0", "2130", sriov_numvfs=None)
    tree.function("0000:02:00.1", "2131", physfn="0000:02:00.0", sriov_numvfs=None)
    found, _probe = pci.read_functions(tree.host(), "1eff", "1200", PRODUCTS)
    assert [(item.address, item.vfs, item.physfn) for item in found] == [
        ("0000:01:00.0", 3, None),
        ("0000:02:00.0", 1, None),
        ("0000:02:00.1", 0, "0000:02:00.0"),
    ]
