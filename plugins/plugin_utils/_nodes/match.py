# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of a cluster a host is: what the host says of itself, checked by what no host can write. Pure.

A host chooses its system UUID, machine id and kubelet name, and its kubelet writes the status of its own Node, with the
addresses. It chooses neither the inventory (its name, `ansible_host`, the input node_name) nor the Node of another
host. So the inventory proves a node, and the host's word alone gets only a node that nobody else is proven to be.
"""

from __future__ import annotations

import collections
import ipaddress
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT, OPERANDS
from .._text.line import line
from .records import FoundNode, Member, Named

Node = t.Mapping[str, t.Any]
# How the inventory proves a node, the strongest first. A stronger proof of one host beats a weaker one of another.
INPUT_PROOF, NAME, ADDRESS = "input", "name", "address"
# Only the host says so.
CLAIM = "claim"
_HOW = {INPUT_PROOF: INPUT + "node_name", NAME: "its name in the inventory", ADDRESS: "its address in the inventory"}
SAME, MIXED, DIFFERENT, UNKNOWN = "same", "mixed", "different", "unknown"
# (system UUID is the same, machine id is the same), None for not known. A machine id is cloned with its disk, so a
# system UUID that differs outweighs it; a system UUID that nobody wrote is met by machine ids that differ.
_AGREEMENT = {
    (None, None): UNKNOWN,
    (None, True): SAME,
    (None, False): DIFFERENT,
    (True, None): SAME,
    (True, True): SAME,
    (True, False): MIXED,
    (False, None): DIFFERENT,
    (False, True): DIFFERENT,
    (False, False): DIFFERENT,
}
# System UUIDs that firmware has where nobody wrote one.
_FILLERS = (
    "03000200040005000006000700080009",
    "1234567812345678" + "90abcddeefaabbcc",
    "00112233445566778899aabbccddeeff",
    "4c4c45440000201080" + "2080c04f202020",
)
# A kubelet reports a handful of addresses.
MOST_ADDRESSES = 32


class Proof(t.NamedTuple):
    """How the inventory proves that a host is one of `nodes`; more than one when nodes share its address."""

    how: str
    nodes: tuple[str, ...]


def _plain(identifier: t.Any) -> str:
    """The 32 hex digits of a UUID or machine id in lower case; empty when it is unset, malformed or a filler."""
    text = str(identifier or "").strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", text) or len({text[at : at + 2] for at in range(0, 32, 2)}) == 1:
        return ""
    return "" if text in _FILLERS or _swapped(text) in _FILLERS else text


def _swapped(identifier: str) -> str:
    """32 hex digits with the first three groups of the UUID in the other byte order: firmware and kernels disagree."""
    octets = bytes.fromhex(identifier)
    return (octets[3::-1] + octets[5:3:-1] + octets[7:5:-1] + octets[8:]).hex()


class _Identities:
    """System UUIDs and machine ids of all nodes, read once."""

    def __init__(self, nodes: t.Sequence[Node]) -> None:
        self.of: dict[str, tuple[str, str]] = {}
        self._with: dict[str, list[str]] = {}
        for node in nodes:
            info = (node.get("status") or {}).get("nodeInfo") or {}
            name = str(node["metadata"]["name"])
            self.of[name] = _plain(info.get("systemUUID")), _plain(info.get("machineID"))
            for identifier in set(self.of[name]) - {""}:
                self._with.setdefault(identifier, []).append(name)

    def agreements(self, member: Member, *names: str) -> dict[str, str]:
        """{node: whether the host's word agrees with it}, of `names` and of all nodes that have an id of the host.

        SAME, DIFFERENT, UNKNOWN to either. MIXED counts only with the kubelet's name: the system UUID is the same and
        the machine id is not, as with a system that was installed again, or the machine id is all that is known and the
        kubelet has another name.
        """
        uuid, machine = _plain(member["system_uuid"]), _plain(member["machine_id"])
        kubelet = str(member["kubelet_name"] or "").lower()
        uuids = (uuid, _swapped(uuid)) if uuid else ()
        found = [name for identifier in (*uuids, machine) for name in self._with.get(identifier, ())]
        result = {}
        for name in (*names, *found):
            if name not in self.of:
                continue
            theirs, their_machine = self.of[name]
            same_uuid = theirs in uuids if uuid and theirs else None
            answer = _AGREEMENT[same_uuid, their_machine == machine if machine and their_machine else None]
            renamed = kubelet and kubelet.partition(".")[0] != name.lower().partition(".")[0]
            result[name] = MIXED if answer == SAME and same_uuid is None and renamed else answer
        return result


def _address(text: str) -> str:
    """An address or name as it is compared; empty for one that every host has."""
    try:
        found = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return "" if text.lower() in ("", "localhost") else text.lower().rstrip(".")
    return "" if found.is_loopback or found.is_unspecified else str(found)


def _is_ip(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9.]+|.*:.*", text))


def _reached(named: t.Sequence[Named]) -> dict[str, str]:
    """{host: its ansible_host} where no other host has it as address or name.

    Hosts behind one gateway differ in the port alone.
    """
    addresses = {one["host"]: _address(one["address"]) or _address(one["host"]) for one in named}
    users = collections.Counter(addresses.values())
    names = {_address(one["host"]) for one in named}
    return {
        host: address
        for host, address in addresses.items()
        if address and users[address] == 1 and (address == _address(host) or address not in names)
    }


def _addresses(node: Node) -> set[str]:
    listed = (node.get("status") or {}).get("addresses") or []
    return {_address(str(item.get("address") or "")) for item in listed[:MOST_ADDRESSES]} - {""}


def _short_names(named: t.Sequence[Named], names: t.Iterable[str]) -> dict[str, str]:
    """{host: node} where one is the first part of the other's name, and no other host or node has this first part."""
    heads = collections.Counter(one["host"].lower().partition(".")[0] for one in named)
    nodes: dict[str, list[str]] = {}
    for name in names:
        nodes.setdefault(name.partition(".")[0], []).append(name)
    found = {}
    for one in named:
        host = one["host"].lower()
        head = host.partition(".")[0]
        if _is_ip(host) or heads[head] > 1 or len(nodes.get(head, ())) != 1:
            continue
        (name,) = nodes[head]
        if head in (host, name):
            found[one["host"]] = name
    return found


def proofs(named: t.Sequence[Named], nodes: t.Sequence[Node]) -> dict[str, Proof]:
    """{host: what the inventory proves} for all hosts of the cluster, also those that are not of this run."""
    # Kubernetes knows node names in small letters alone; a host's own name may have others.
    named_nodes = {one["host"]: str(one["node_name"] or "").strip().lower() for one in named}
    found = {host: Proof(INPUT_PROOF, (name,)) for host, name in named_nodes.items() if name}
    owned = {name for proof in found.values() for name in proof.nodes}
    left = [one for one in named if one["host"] not in found]
    reached = _reached(named)
    names = {node["metadata"]["name"].lower(): node["metadata"]["name"] for node in nodes}
    short = _short_names(named, names)
    for one in left:
        host = one["host"]
        words = (host.lower(), reached.get(host, ""), short.get(host, ""))
        name = next((names[word] for word in words if names.get(word, "") not in (owned | {""})), "")
        if name:
            found[host] = Proof(NAME, (name,))
    owned |= {name for proof in found.values() for name in proof.nodes}
    at: dict[str, list[str]] = {}
    hosts = {address: host for host, address in reached.items() if host not in found}
    for node in nodes:
        # A Node with the addresses of several hosts proves nothing: its kubelet wrote them.
        mine = {hosts[address] for address in _addresses(node) if address in hosts}
        if len(mine) == 1 and node["metadata"]["name"] not in owned:
            at.setdefault(mine.pop(), []).append(node["metadata"]["name"])
    return {**found, **{host: Proof(ADDRESS, tuple(sorted(where))) for host, where in at.items()}}


def find_nodes(
    members: t.Sequence[Member], nodes: t.Sequence[Node], others: t.Sequence[Named] = (), strict: bool = False
) -> dict[str, FoundNode]:
    """The node of each member. A host that is no node, or claims that of another host, is an error of this host only.

    `others` are the hosts of the cluster that are not of this run. `strict` takes no host's word without a proof.
    """
    known = proofs([*members, *others], nodes)
    owners = {name: (host, proof.how) for host, proof in known.items() for name in proof.nodes}
    identities = _Identities(nodes)
    found: dict[str, FoundNode] = {}
    claimed: dict[str, list[str]] = {}
    for member in members:
        host = member["host"]
        try:
            name, how = _node_of(member, identities, known.get(host))
            if how == CLAIM:
                _check_claim(host, name, owners.get(name), strict)
        except NpuError as exc:
            found[host] = {"node": "", "error": str(exc), "proof": ""}
            continue
        found[host] = {"node": name, "error": "", "proof": how}
        claimed.setdefault(name, []).append(host)
    for name, hosts in claimed.items():
        for host in hosts if len(hosts) > 1 else ():
            error = f"The hosts {', '.join(hosts)} were all found to be the node {name!r}."
            found[host] = {"node": "", "error": str(NpuError(error, f"Set {INPUT}node_name for each.")), "proof": ""}
    return found


def without_node(members: t.Sequence[Member], nodes: t.Sequence[Node], others: t.Sequence[Named] = ()) -> set[str]:
    """The members that are no node at all: they say who they are, and neither that nor the inventory names a node."""
    known, identities = proofs([*members, *others], nodes), _Identities(nodes)
    found = set()
    for member in members:
        kubelet = str(member["kubelet_name"] or "").lower()
        proof = known.get(member["host"])
        proven = proof and not identities.of.keys().isdisjoint(proof.nodes)
        says = kubelet or _plain(member["system_uuid"]) or _plain(member["machine_id"])
        if says and not proven and not identities.agreements(member, kubelet):
            found.add(member["host"])
    return found


def _check_claim(host: str, name: str, owner: tuple[str, str] | None, strict: bool) -> None:
    if owner:
        raise NpuError(
            f"{host} says that it is the node {name!r}, which is that of {owner[0]} by {_HOW[owner[1]]}.",
            f"Find out why {host} says so; if it is right, set {INPUT}node_name for both hosts.",
        )
    if strict:
        raise NpuError(
            f"{host} says that it is the node {name!r}, and nothing in the inventory proves it.",
            f"Set {INPUT}node_name for {host}, or ansible_host to an address of the node "
            f"({OPERANDS}require_node_proof is true).",
        )


def _node_of(member: Member, identities: _Identities, proof: Proof | None) -> tuple[str, str]:
    """(node, how it is proven) of a host; NpuError when there is none, more than one, or the host says another."""
    host = member["host"]
    if proof and proof.how == INPUT_PROOF:
        if proof.nodes[0] in identities.of:
            return proof.nodes[0], INPUT_PROOF
        names = sorted(identities.of)
        raise NpuError(
            f"{host}: the cluster has no node {proof.nodes[0]!r}, which {INPUT}node_name names.",
            f"Correct {INPUT}node_name; the nodes are: {', '.join(names[:20]) or 'none'}.",
        )
    kubelet = str(member["kubelet_name"] or "").lower()
    agreed = identities.agreements(member, kubelet, *(proof.nodes if proof else ()))
    same = sorted(name for name in agreed if agreed[name] == SAME)
    if proof:
        return _proven(host, proof, agreed, same, kubelet), proof.how
    return _claimed(member, agreed, same, kubelet), CLAIM


def _proven(host: str, proof: Proof, agreed: t.Mapping[str, str], same: t.Sequence[str], kubelet: str) -> str:
    """The node that the inventory proves, when the host does not say that it is another one."""
    fits = [name for name in proof.nodes if (name in same if same else agreed[name] != DIFFERENT)]
    if len(fits) > 1 and kubelet in fits:
        fits = [kubelet]
    elsewhere = not same and kubelet in agreed and kubelet not in fits
    if len(fits) == 1 and not elsewhere:
        return fits[0]
    nodes = " or ".join(repr(name) for name in (fits or proof.nodes)[:10])
    if fits and not elsewhere:
        raise NpuError(f"{host} is the node {nodes} by {_HOW[proof.how]}.", f"Set {INPUT}node_name for {host}.")
    if same:
        but = "its system UUID or machine id is that of %s" % ", ".join(same[:10])
    elif fits:
        but = "its kubelet's name is that of the node %r" % kubelet
    else:
        but = "the node has another system UUID or machine id"
    raise NpuError(
        f"{host} is the node {nodes} by {_HOW[proof.how]}, but {but}.",
        f"Find out which is wrong: the inventory, the host, or a stale Node object. "
        f"{INPUT}node_name of {host} decides.",
    )


def _claimed(member: Member, agreed: t.Mapping[str, str], same: t.Sequence[str], kubelet: str) -> str:
    """The node that the host says it is: by system UUID and machine id, else by the kubelet's name."""
    host, remedy = member["host"], f"Set {INPUT}node_name for {member['host']}."
    if len(same) > 1 and kubelet not in same:
        raise NpuError(
            "%s has the system UUID or machine id of %d nodes: %s." % (host, len(same), ", ".join(same[:10])), remedy
        )
    if same:
        return same[0] if len(same) == 1 else kubelet
    if agreed.get(kubelet) in (UNKNOWN, MIXED):
        return kubelet
    if kubelet in agreed:
        raise NpuError(
            f"{host}: the node {kubelet!r} has the kubelet's name of this host, but another system UUID or machine id.",
            "It is another machine, or the node object is stale. %s" % remedy,
        )
    # All that is left here has one of its ids, and another system UUID or name.
    twins = " One of the ids is that of %s: one machine is a clone of the other." % ", ".join(sorted(agreed)[:10])
    raise NpuError(
        "%s is not a node of the cluster: no node has its system UUID (%s), machine id (%s) or kubelet name (%s)%s."
        % (
            host,
            _told(member["system_uuid"]),
            _told(member["machine_id"]),
            _told(member["kubelet_name"]),
            " as its own" if agreed else "",
        )
        + (twins if agreed else ""),
        f"Join the host to the cluster, or check {INPUT}kubeconfig and {INPUT}kube_context. {remedy}",
    )


def _told(word: t.Any) -> str:
    return line(word or "unknown", 80)
