# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is exactly one node, or an error that says what to set; and no host is another one's node."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.match import find_nodes, without_node
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_cases import case

UUID = "4c4c4544-0051-3610-8052-b4c04f4e4d32"
SWAPPED = "44454c4c-5100-1036-8052-b4c04f4e4d32"
OTHER = "11111111-2222-3333-4444-555555555555"
THIRD = "99999999-0000-0000-0000-000000000000"
MACHINE = "0123456789abcdef0123456789abcdef"
ELSE = "f" * 31 + "e"
FILLER = "03000200-0400-0500-0006-000700080009"
CARELESS = "00020003-0004-0005-0006-000700080009"

Data = dict[str, Any]


def node(name: str, uuid: str = "", machine: str = "", *addresses: str) -> Data:
    info = {"systemUUID": uuid, "machineID": machine}
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"metadata": {"name": name}, "status": {"nodeInfo": info, "addresses": listed}}


def host(name: str, uuid: str = "", machine: str = "", kubelet: str = "", **inventory: str) -> Data:
    """A member; `address` and `node_name` are what the inventory says."""
    word = {"system_uuid": uuid or None, "machine_id": machine or None, "kubelet_name": kubelet or None}
    return {"host": name, "node_name": "", "address": "", **word, **inventory}


def found(members: list[Data], nodes: list[Data], others: list[Data] | None = None, strict: bool = False) -> Data:
    """{host: node and how it is proven, or the error}."""
    result = find_nodes(members, nodes, others or [], strict)  # type: ignore[arg-type]
    assert sorted(result) == sorted(one["host"] for one in members)
    return {
        name: one["error"] or "%s by %s" % (one["node"], one["proof"])
        for name, one in result.items()
        if bool(one["error"]) != bool(one["node"] and one["proof"])
    }


NODES = [node("n1", UUID.upper(), MACHINE), node("n2", OTHER, ELSE), node("n3")]
ALONE = {
    "the input wins over the identity": (NODES, host("a", UUID, node_name="n2"), "n2 by input"),
    "the input in capitals": (NODES, host("a", UUID, node_name=" N2"), "n2 by input"),
    "system uuid, any case": (NODES, host("a", UUID), "n1 by claim"),
    "system uuid with swapped byte order": ([node("n1", SWAPPED), node("n2", OTHER)], host("a", UUID), "n1 by claim"),
    "machine id alone": (NODES, host("a", "", MACHINE), "n1 by claim"),
    "kubelet name when the identity is unknown": (NODES, host("a", kubelet="n3"), "n3 by claim"),
    "kubelet name in capitals": (NODES, host("a", kubelet="N3"), "n3 by claim"),
    "kubelet name when the node tells no identity": (NODES, host("a", THIRD, "ab" * 16, "n3"), "n3 by claim"),
    "identity wins over the kubelet's name": (NODES, host("a", UUID, kubelet="n2"), "n1 by claim"),
    "clones are told apart by the kubelet's name": (
        [node("n1", UUID, MACHINE), node("n2", UUID, MACHINE)],
        host("a", UUID, MACHINE, "n2"),
        "n2 by claim",
    ),
    "a filler uuid identifies nobody": (
        [node("n1", "00000000-0000-0000-0000-000000000000"), node("n2", "F" * 8 + "-FFFF-FFFF-FFFF-" + "F" * 12)],
        host("a", "00000000-0000-0000-0000-000000000000", kubelet="n2"),
        "n2 by claim",
    ),
    "a machine id alone, and the kubelet's name fits": (
        [node("n1", "", MACHINE)],
        host("a", "", MACHINE, "n1.x"),
        "n1 by claim",
    ),
    "a system was installed again": ([node("n1", UUID, ELSE)], host("a", UUID, MACHINE, "n1"), "n1 by claim"),
    "its name": (NODES, host("n1", UUID, MACHINE), "n1 by name"),
    "its name in capitals": (NODES, host("N1", UUID), "n1 by name"),
    "its name, and the node says nothing": (NODES, host("n3", THIRD), "n3 by name"),
    "its name without the domain": (NODES, host("n1.example.com", UUID), "n1 by name"),
    "the node's name has a domain": ([node("n1.example.com", UUID)], host("n1", UUID), "n1.example.com by name"),
    "names of two domains": ([node("n1.b.example", UUID)], host("n1.a.example", UUID), "n1.b.example by claim"),
    "two nodes with one first part": ([node("n1.a"), node("n1.b", UUID)], host("n1", UUID), "n1.b by claim"),
    "ansible_host is the node's name": (NODES, host("a", UUID, address="n1"), "n1 by name"),
    "ansible_host is an address": ([node("n1", UUID, "", "10.0.0.1")], host("a", address="10.0.0.1"), "n1 by address"),
    "the inventory name is an address": ([node("n1", "", "", "10.0.0.1")], host("10.0.0.1"), "n1 by address"),
    "an address of another spelling": (
        [node("n1", "", "", "fd00:0:0::1")],
        host("a", address="FD00::1"),
        "n1 by address",
    ),
    "a dns name of the node": ([node("ip-1", "", "", "N1.internal")], host("n1.internal"), "ip-1 by address"),
    "every node has the loopback address": (
        [node("n1", UUID, "", "127.0.0.1")],
        host("a", UUID, address="127.0.0.1"),
        "n1 by claim",
    ),
    "an address beyond any count": (
        [node("n1", UUID, "", *["10.1.0.%d" % at for at in range(99)])],
        host("a", UUID, address="10.1.0.98"),
        "n1 by claim",
    ),
    "nodes that share its address, identity decides": (
        [node("n1", UUID, "", "10.0.0.1"), node("n2", OTHER, "", "10.0.0.1")],
        host("a", UUID, address="10.0.0.1"),
        "n1 by address",
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_host_is_a_node(case: str) -> None:
    nodes, member, expected = ALONE[case]
    assert found([member], nodes) == {member["host"]: expected}


WRONG: dict[str, tuple[list[Data], Data, list[str]]] = {
    "input that names no node": (NODES, host("a", node_name="n9"), ["'n9'", "n1, n2, n3", "rbln_node_name"]),
    "no match": (NODES, host("a", THIRD, "", "x"), ["no node", "99999999", "(x)", "rbln_kubeconfig"]),
    "nothing known": (NODES, host("a"), ["unknown", "Set rbln_node_name for a"]),
    "two nodes with one uuid": ([node("n1", UUID), node("n2", UUID)], host("a", UUID), ["2 nodes", "n1, n2"]),
    "the kubelet's name of another machine": (
        NODES,
        host("a", THIRD, "ab" * 16, "n1"),
        ["'n1'", "another system UUID"],
    ),
    "the kubelet's name, and one id that differs": (NODES, host("a", THIRD, "", "n1"), ["'n1'", "another system UUID"]),
    "uuid of one node, machine id of another": (
        [node("n1", UUID, ELSE), node("n2", OTHER, MACHINE)],
        host("a", UUID, MACHINE),
        ["no node has its system UUID"],
    ),
    "its name, but another machine": (NODES, host("n1", THIRD, "ab" * 16), ["'n1'", "its name in the", "stale Node"]),
    "its name, but the identity of another node": (
        NODES,
        host("n1", OTHER, ELSE, "n2"),
        ["'n1'", "by its name in the inventory", "is that of n2", "rbln_node_name of n1 decides"],
    ),
    "its name, but the kubelet's name of another node": (
        NODES,
        host("n3", kubelet="n1"),
        ["'n3'", "kubelet's name is that of the node 'n1'"],
    ),
    "its address, but the identity of another node": (
        [node("n1", UUID, "", "10.0.0.1"), node("n2", OTHER)],
        host("a", OTHER, address="10.0.0.1"),
        ["'n1'", "by its address in the inventory", "is that of n2"],
    ),
    "nodes that share its address": (
        [node("n1", "", "", "10.0.0.1"), node("n2", "", "", "10.0.0.1")],
        host("a", address="10.0.0.1"),
        ["'n1' or 'n2'", "Set rbln_node_name for a."],
    ),
    "what firmware has where nobody wrote a uuid": (
        [node("n1", FILLER), node("n2", CARELESS)],
        host("a", CARELESS, kubelet="x"),
        ["no node has its system UUID"],
    ),
    "K22 a clone that has also kept its name": (
        [node("n1", OTHER, MACHINE)],
        host("a", UUID, MACHINE, "n1"),
        ["'n1'", "another system UUID"],
    ),
    "K22 another machine at the address of a node": (
        [node("n1", OTHER, MACHINE, "10.0.0.1")],
        host("a", UUID, MACHINE, "n1", address="10.0.0.1"),
        ["'n1' by its address in the inventory, but the node has another system UUID"],
    ),
    "K22 a clone where nobody knows a system UUID": (
        [node("n1", "", MACHINE)],
        host("b", UUID, MACHINE, "b"),
        ["is not a node", "One of the ids is that of n1: one machine is a clone of the other."],
    ),
    "empty cluster": ([], host("a", node_name="n1"), ["the nodes are: none"]),
    "terminal escapes": (NODES, host("a", "\x1b[2J" * 9, "\x9b", "x\r\n" + "y" * 500), ["no node"]),
    "ids of a wrong type": (NODES, {**host("a"), "system_uuid": [1], "machine_id": {"a": 1}, "kubelet_name": 7}, ["7"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_host_is_no_node(case: str) -> None:
    nodes, member, words = WRONG[case]
    text = found([member], nodes)[member["host"]]
    assert [word for word in words if word not in text] == []
    assert text.startswith(member["host"]) and " Next: " in text
    assert text.isprintable() and len(text) < 600


B = node("b", UUID, MACHINE, "10.0.0.2")
A = node("a", OTHER, ELSE, "10.0.0.1")
# What a host says that wants to be the node b.
LIE = {"uuid": UUID, "machine": MACHINE, "kubelet": "b"}


def lie(name: str, **inventory: str) -> Data:
    return host(name, UUID, MACHINE, "b", **inventory)


ATTACKS: dict[str, tuple[list[Data], list[Data], list[Data], dict[str, str]]] = {
    "both proven by name": ([A, B], [lie("a"), lie("b")], [], {"a": "is that of b", "b": "b by name"}),
    "both proven by address": (
        [A, B],
        [lie("x", address="10.0.0.1"), lie("y", address="10.0.0.2")],
        [],
        {"x": "is that of b", "y": "b by address"},
    ),
    "both proven by the input": (
        [A, B],
        [lie("x", node_name="a"), lie("y", node_name="b")],
        [],
        {"x": "a by input", "y": "b by input"},
    ),
    "only the victim is proven": (
        [A, B],
        [lie("x"), lie("b")],
        [],
        {"x": "'b', which is that of b by its name", "b": "b by name"},
    ),
    "the victim is not of this run": ([A, B], [lie("x")], [host("b")], {"x": "which is that of b by its name"}),
    "nor of this run, known by its address": (
        [A, B],
        [lie("x")],
        [host("y", address="10.0.0.2")],
        {"x": "which is that of y by its address"},
    ),
    "nor of this run, known by the input": (
        [A, B],
        [lie("x")],
        [host("y", node_name="b")],
        {"x": "which is that of y by rbln_node_name"},
    ),
    "only the liar is proven": ([A, B], [lie("a"), lie("y")], [], {"a": "is that of b", "y": "b by claim"}),
    "nobody is proven": (
        [A, B],
        [lie("x"), lie("y")],
        [],
        dict.fromkeys("xy", "were all found to be the node 'b'"),
    ),
    "the liar's node blanked itself": (
        [node("a"), B],
        [lie("a"), lie("b")],
        [],
        {"a": "is that of b", "b": "b by name"},
    ),
    "only the kubelet's name is a lie": (
        [node("a"), node("b")],
        [host("a", kubelet="b"), host("b", kubelet="b")],
        [],
        {"a": "name is that of the node 'b'", "b": "b by name"},
    ),
    "a node with the address and identity of another host": (
        [node("a", UUID, MACHINE, "10.0.0.2"), B],
        [lie("x", address="10.0.0.9"), lie("y", address="10.0.0.2")],
        [],
        {"x": "which is that of y by its address", "y": "b by address"},
    ),
    "a node with the address of a host that is proven by name": (
        [node("a", OTHER, ELSE, "10.0.0.2"), node("b", UUID, MACHINE, "172.16.0.2")],
        [host("a", OTHER, ELSE, "a"), lie("b", address="10.0.0.2")],
        [],
        {"a": "a by name", "b": "b by name"},
    ),
    "a proven node with the address of a host that is not proven": (
        [node("a", OTHER, ELSE, "10.0.0.2"), node("b", UUID, MACHINE, "172.16.0.2")],
        [host("a", OTHER, ELSE, "a"), lie("y", address="10.0.0.2")],
        [],
        {"a": "a by name", "y": "b by claim"},
    ),
    "a node with the addresses of all hosts": (
        [node("a", OTHER, ELSE, "10.0.0.2", "10.0.0.3"), node("b", UUID, MACHINE), node("c", THIRD)],
        [lie("y", address="10.0.0.2"), host("z", THIRD, address="10.0.0.3")],
        [],
        {"y": "b by claim", "z": "c by claim"},
    ),
    "hosts behind one address prove nothing by it": (
        [node("a", OTHER, ELSE, "10.0.0.1"), B],
        [host("x", OTHER, ELSE, address="10.0.0.1"), lie("y", address="10.0.0.1")],
        [],
        {"x": "a by claim", "y": "b by claim"},
    ),
    "the address of a host that another one uses is its own": (
        [A, B],
        [host("a", OTHER, ELSE), lie("y", address="a")],
        [],
        {"a": "a by name", "y": "b by claim"},
    ),
    "first parts that two hosts share prove nothing": (
        [node("b", UUID, MACHINE)],
        [lie("b.one"), lie("b.two")],
        [],
        {"b.one": "were all found", "b.two": "were all found"},
    ),
    "nor one that a host outside of this run shares": (
        [node("b", UUID, MACHINE)],
        [lie("b.one")],
        [host("b.two")],
        {"b.one": "b by claim"},
    ),
    "the input beats a name": (
        [A, B],
        [host("a", UUID, MACHINE), host("x", node_name="a")],
        [],
        {"a": "b by claim", "x": "a by input"},
    ),
    "the input for two hosts": (
        [A, B],
        [host("x", node_name="b"), host("y", node_name="b"), host("a", OTHER)],
        [],
        {"x": "were all found to be the node 'b'", "y": "were all found to be the node 'b'", "a": "a by name"},
    ),
}


@pytest.mark.parametrize("case", ATTACKS)
def test_who_claims_the_node_of_another_stops_alone(case: str) -> None:
    nodes, members, others, expected = ATTACKS[case]
    for order in itertools.permutations(members):
        result = found(list(order), nodes, others)
        for name, words in expected.items():
            assert all(word in result[name] for word in words.split(", ")), (name, result[name])


def test_no_word_of_a_host_gets_it_a_node_that_is_proven_for_another() -> None:
    """Whatever host `evil` and its node say, the three others are their nodes and it is at most its own."""
    dice = random.Random(11)
    names = ["n1", "n2", "n3"]
    ids = {name: ("aaaaaaaa-0000-4000-8000-00000000000%s" % name[1], name[1] * 31 + "a") for name in names}
    honest = [node(name, *ids[name], "10.0.0." + name[1]) for name in names]
    proven = {"n1": {}, "x2": {"address": "10.0.0.2"}, "x3": {"node_name": "n3"}}
    victims = [host(name, *ids["n" + name[1]], "n" + name[1], **more) for name, more in proven.items()]
    uuids, machines = ([ids[name][at] for name in names] + ["", "zz"] for at in (0, 1))
    taken = 0
    for _round in range(3000):
        address, kubelet = dice.choice(["", "10.0.0.9", "n1", "10.0.0.1"]), dice.choice([*names, "evil", ""])
        listed = dice.sample(["10.0.0.%d" % number for number in range(9)], 3)
        evil = host("evil", dice.choice(uuids), dice.choice(machines), kubelet, address=address)
        its = node("evil", dice.choice(uuids), dice.choice(machines), *listed)
        members = [*victims, evil]
        dice.shuffle(members)
        result = found(members, [*honest, its])
        assert result["evil"] == "evil by name" or " Next: " in result["evil"], (evil, its)
        assert result["x3"] == "n3 by input" and result["n1"] == "n1 by name", (evil, its)
        # The address of a host without a name can be taken from it by a node that lists it; the node never.
        assert result["x2"].startswith("n2 by ") or "10.0.0.2" in str(its), (evil, its)
        taken += result["evil"] == "evil by name"
    assert taken > 100


@pytest.mark.parametrize("strict", [False, True])
def test_only_the_inventory_proves_a_node_when_asked(strict: bool) -> None:
    members = [lie("b"), host("x", OTHER, ELSE), host("y", node_name="c")]
    result = found(members, [A, B, node("c")], strict=strict)
    assert (result["b"], result["y"]) == ("b by name", "c by input")
    if strict:
        for word in ("'a'", "nothing in the inventory proves it", "ansible_host", "rbln_operands_require_node_proof"):
            assert word in result["x"]
    else:
        assert result["x"] == "a by claim"


def test_K22_cloned_machine_id_a_clone_that_has_not_joined_is_no_node() -> None:
    nodes, hosts = (case("K22-cloned-machine-id", name) for name in ("nodes.yaml", "hosts.yaml"))
    first, clone = ({**host(""), **one} for one in hosts)
    assert "npu-b is not a node of the cluster" in found([clone], nodes)["npu-b"]
    both = found([first, clone], nodes)
    assert both["npu-a"] == "npu-a by name" and "npu-b is not a node" in both["npu-b"]
    # As well when the inventory has other names than the cluster, and when the clone has kept the name.
    renamed = found([{**first, "host": "x"}, {**clone, "host": "y"}], nodes)
    assert renamed["x"] == "npu-a by claim" and "y is not a node" in renamed["y"]
    kept = found([{**first, "host": "x"}, {**clone, "host": "y", "kubelet_name": "npu-a"}], nodes)
    assert kept["x"] == "npu-a by claim" and "another system UUID" in kept["y"]


# Of boards without a serial number, each in both byte orders, and one that nobody knows yet.
CARELESS_UUIDS = [
    CARELESS,
    FILLER,
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "78563412-3412-7856-90ab-cddeefaabbcc",
    "00112233-4455-6677-8899-aabbccddeeff",
    "33221100-5544-7766-8899-AABBCCDDEEFF",
    "4c4c4544-0000-2010-8020-80c04f202020",
    "44454c4c-0000-1020-8020-80c04f202020",
    "fefefefe-fefe-fefe-fefe-fefefefefefe",
    "20202020-2020-2020-2020-202020202020",
    "dead" * 2 + "-0000-4000-8000-" + "c" * 12,
]


@pytest.mark.parametrize("uuid", CARELESS_UUIDS)
def test_K22_cloned_machine_id_a_careless_system_uuid_of_two_machines(uuid: str) -> None:
    nodes = [node("npu-a", uuid, MACHINE)]
    members = [host("npu-a", uuid, MACHINE, "npu-a"), host("npu-b", uuid, ELSE, "npu-b")]
    assert "is not a node" in found(members[1:], nodes)["npu-b"]
    both = found(members, nodes)
    assert both["npu-a"] == "npu-a by name" and "npu-b is not a node" in both["npu-b"]


APART: dict[str, tuple[Data, bool]] = {
    "another machine": (host("a", THIRD, "ab" * 16, "a"), True),
    "its kubelet's name alone": (host("a", kubelet="a"), True),
    "an input that names no node": (host("a", THIRD, node_name="n9"), True),
    "it says nothing of itself": (host("a"), False),
    "it is one": (host("a", UUID), False),
    "its name": (host("n3", THIRD), False),
    "the input": (host("a", THIRD, node_name="n2"), False),
    "an input that is misspelt": (host("a", UUID, node_name="n9"), False),
    "the machine id of one, and another uuid": (host("a", THIRD, MACHINE), False),
    "the kubelet's name of one, and other ids": (host("a", THIRD, "ab" * 16, "n1"), False),
}


@pytest.mark.parametrize("name", APART)
def test_a_host_is_no_node_only_where_nothing_names_one(name: str) -> None:
    one, expected = APART[name]
    members: list[Data] = [one]
    assert without_node(members, NODES) == ({one["host"]} if expected else set())  # type: ignore[arg-type]
