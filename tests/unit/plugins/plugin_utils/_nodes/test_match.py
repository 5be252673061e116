# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is exactly one node, or an error that says what to set."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.match import match_node

UUID = "4c4c4544-0051-3610-8052-b4c04f4e4d32"
SWAPPED = "44454c4c-5100-1036-8052-b4c04f4e4d32"
OTHER = "11111111-2222-3333-4444-555555555555"
MACHINE = "0123456789abcdef0123456789abcdef"


def node(name: str, uuid: str = "", machine: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"systemUUID": uuid, "machineID": machine}}}


NODES = [node("n1", UUID.upper(), MACHINE), node("n2", OTHER, "f" * 31 + "e"), node("n3")]

RIGHT = {
    "explicit wins over identity": (NODES, {"explicit": "n2", "system_uuid": UUID}, "n2"),
    "system uuid, any case": (NODES, {"system_uuid": UUID}, "n1"),
    "system uuid with swapped byte order": ([node("n1", SWAPPED), node("n2", OTHER)], {"system_uuid": UUID}, "n1"),
    "machine id alone": (NODES, {"machine_id": MACHINE}, "n1"),
    "kubelet name when the identity is unknown": (NODES, {"kubelet_name": "n3"}, "n3"),
    "kubelet name when the node tells no identity": (
        NODES,
        {"kubelet_name": "n3", "system_uuid": "99999999-0000-0000-0000-000000000000", "machine_id": "a" * 32},
        "n3",
    ),
    "identity wins over the kubelet's name": (NODES, {"system_uuid": UUID, "kubelet_name": "n2"}, "n1"),
    "clones are told apart by the kubelet's name": (
        [node("n1", UUID, MACHINE), node("n2", UUID, MACHINE)],
        {"system_uuid": UUID, "machine_id": MACHINE, "kubelet_name": "n2"},
        "n2",
    ),
    "a filler uuid identifies nobody": (
        [node("n1", "00000000-0000-0000-0000-000000000000"), node("n2", "F" * 8 + "-FFFF-FFFF-FFFF-" + "F" * 12)],
        {"system_uuid": "00000000-0000-0000-0000-000000000000", "kubelet_name": "n2"},
        "n2",
    ),
    "same machine id, other uuid after a board swap": (
        [node("n1", OTHER, MACHINE)],
        {"system_uuid": UUID, "machine_id": MACHINE},
        "n1",
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_matches(case: str) -> None:
    nodes, arguments, expected = RIGHT[case]
    assert match_node("host-a", nodes, **arguments) == expected


WRONG = {
    "explicit name of no node": (NODES, {"explicit": "n9"}, ["host-a", "'n9'", "n1, n2, n3", "rbln_node_name"]),
    "no match": (
        NODES,
        {"system_uuid": "99999999-0000-0000-0000-000000000000", "kubelet_name": "x"},
        ["host-a", "no node", "99999999", "(x)", "rbln_kubeconfig"],
    ),
    "nothing known": (NODES, {}, ["unknown", "Set rbln_node_name for host-a"]),
    "two nodes with one uuid": (
        [node("n1", UUID), node("n2", UUID)],
        {"system_uuid": UUID},
        ["2 nodes", "n1, n2", "rbln_node_name"],
    ),
    "uuid of one node, machine id of another": (
        [node("n1", UUID), node("n2", OTHER, MACHINE)],
        {"system_uuid": UUID, "machine_id": MACHINE},
        ["2 nodes", "n1, n2"],
    ),
    "name of another machine": (
        NODES,
        {"system_uuid": "99999999-0000-0000-0000-000000000000", "machine_id": "a" * 32, "kubelet_name": "n1"},
        ["'n1'", "another system UUID"],
    ),
    "empty cluster": ([], {"explicit": "n1"}, ["the nodes are: none"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(case: str) -> None:
    nodes, arguments, words = WRONG[case]
    with pytest.raises(NpuError) as caught:
        match_node("host-a", nodes, **arguments)
    assert [word for word in words if word not in str(caught.value)] == []
    assert caught.value.next_step
