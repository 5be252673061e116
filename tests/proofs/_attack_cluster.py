# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server whose answers are crafted, and hosts that claim nodes which are not theirs.

The store of the unit tests stands behind the urllib3 pool of a real Cluster; one answer, or a share of them, is
crafted.
"""

from __future__ import annotations

import json
import random
import time
import typing as t
import unittest.mock
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ansible_collections.rebellions.npu.plugins.action.rbln_operands import told as shown
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import KINDS, ApiError, Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.match import find_nodes
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

from tests.proofs._attack_answers import RAW, VALUES, Targets, choose, put
from tests.proofs._attack_play import CONTROL

Data = dict[str, t.Any]
ACTS = ("present", "diff", "absent")
PLURALS = {(prefix, plural): (key, namespaced) for key, (prefix, plural, namespaced) in KINDS.items()}
QUICK: Data = {"wait_timeout": 1, "lease_timeout": 1, "lease_duration": 5}
INPUTS: tuple[Data, ...] = (
    {**QUICK, "wait": False},
    {**QUICK, "wait": False},
    {**QUICK, "wait": False, "driver": {"enabled": True, "image": {"tag": "1"}}},
    QUICK,
)
# What an API server may say instead of an answer.
TEXTS: tuple[tuple[int, bytes], ...] = (
    (200, b""),
    (200, b"<html>log in</html>"),
    (200, b"[]"),
    (200, b"null"),
    (200, b'{"items": {}}'),
    (200, b'{"items": [null, 1, "x", []]}'),
    (200, b'{"items": [{"metadata": null}]}'),
    (200, b'{"metadata": "x"}'),
    (200, b'{"metadata": {"continue": 7}, "items": 7}'),
    (200, b"\xff\xfe\x00"),
    (200, b'{"a":' * 3000),
    (200, b"[" * 100_000),
    (500, b'{"message": {"a": 1}, "details": []}'),
    (409, b'{"message": "x", "details": {"causes": [1, null, "x"]}}'),
    (409, b'{"message": "x", "details": {"causes": {"a": 1}}}'),
    (403, b'{"message": "\\u001b[2Jforbidden"}'),
    (422, b"[1]"),
    (404, b"null"),
    (418, b'{"message": null}'),
)


class Answer(t.NamedTuple):
    status: int
    data: bytes
    headers: dict[str, str]


def node(name: str, **more: t.Any) -> Data:
    labels = {"kubernetes.io/hostname": name, "feature.node.kubernetes.io/pci-1200_1eff.present": "true"}
    labels.update(
        {
            "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
            "feature.node.kubernetes.io/kernel-version.full": "6.8.0-117-generic",
        }
    )
    info = {"systemUUID": "4C4C4544-0042-3510-8054-%012X" % sum(name.encode()), "machineID": "0" * 31 + name[-1]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": "uid-" + name, "labels": labels, "annotations": {"a": "b"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "nodeInfo": info,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.%d" % (name.encode()[-1])}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"rebellions.ai/ATOM": "4"},
            "capacity": {"rebellions.ai/ATOM": "4"},
        },
        **more,
    }


class Pool:
    """The urllib3 pool of a Cluster in front of a store. `craft` may replace an answer; it gets the number of it."""

    def __init__(self, store: Store, craft: t.Callable[[int, Answer], Answer]) -> None:
        self.store, self.craft, self.asked = store, craft, 0
        self.patched: list[str] = []

    def request(self, method: str, url: str, body: bytes | None = None, **_more: t.Any) -> Answer:
        self.asked += 1
        parts = urlsplit(url)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        try:
            status, data = self._answer(method, parts.path, query, json.loads(body) if body else None)
        except ApiError as exc:
            status, data = exc.status, {"message": "no", **exc.body}
        except (AttributeError, LookupError, TypeError):
            # The store is not made for what comes back of its own crafted answers.
            status, data = 400, {"message": "no"}
        return self.craft(self.asked, Answer(status, json.dumps(data).encode(), {}))

    def _answer(self, method: str, path: str, query: Data, body: t.Any) -> tuple[int, t.Any]:
        words = path.strip("/").split("/")
        cut = 2 if words[0] == "api" else 3
        prefix, rest = "/" + "/".join(words[:cut]), words[cut:]
        namespace = rest[1] if rest[:1] == ["namespaces"] and len(rest) > 2 else ""
        rest = rest[2:] if namespace else rest
        if not rest or (prefix, rest[0]) not in PLURALS:
            return self.store.request("GET", path, "Read", query) if path in self.store.answers else (404, {})
        kind = PLURALS[(prefix, rest[0])][0]
        dry = query.get("dryRun") == "All"
        if method == "GET" and len(rest) == 1:
            items = self.store.list(*kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            return 200, {"items": items, "metadata": {}}
        if method == "PATCH" and "fieldManager" in query:
            if kind[1] == "Node" and not dry:
                self.patched.append(rest[1])
            made, after = self.store.apply(body, query.get("force") == "true", dry)
            return (201 if made else 200), after
        if method == "DELETE":
            item = {"kind": kind[1], "metadata": {"name": rest[1], **({"namespace": namespace} if namespace else {})}}
            self.store.delete(item, dry)
            return 200, {}
        return self.store.request(method, path, "Request", query, body)


def crafted(source: random.Random, to: Targets, share: float, first: int) -> t.Callable[[int, Answer], Answer]:
    """Crafts answers from the one with this number on, each with this share."""

    def craft(number: int, answer: Answer) -> Answer:
        if number < first or source.random() > share:
            return answer
        if source.random() < 0.25:
            status, data = source.choice(TEXTS)
            return Answer(status, data, {"Retry-After": source.choice(["0", "-1", "x", "9" * 20])})
        data = json.loads(answer.data)
        if not isinstance(data, dict) or not data:
            return Answer(answer.status, b"[]", {})
        for _one in range(source.choice((1, 1, 4))):
            make, kinds = VALUES[source.choice(sorted(VALUES))]
            place = choose(source, data, kinds)
            if place:
                put(data, place, source.choice(make(to)))
        text = json.dumps(data)
        for word, raw in RAW.items():
            text = text.replace(word, raw)
        return Answer(answer.status, text.encode(), {})

    return craft


def member(name: str) -> Data:
    info = node(name)["status"]["nodeInfo"]
    return {
        "host": "host-" + name, "node_name": "", "address": "10.0.0.%d" % name.encode()[-1],
        "machine_id": info["machineID"], "system_uuid": info["systemUUID"],
        "kubelet_name": name, "labels": {"rebellions.ai/npu.present": "true"}, "driver_managed": True, "expected": 4,
        "lacks_proof": False,
    }  # fmt: skip


def kubeconfig(to: Targets) -> Path:
    path = to.canaries / "kubeconfig"
    if not path.exists():
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        path.write_text(json.dumps(config))
    return path


def one_pass(source: random.Random, to: Targets) -> str:
    """One act on a cluster with crafted answers; how it ended. An exception that is not ours is the finding."""
    store = Store(*(node(name) for name in ("n1", "n2", "n3")))
    cluster = Cluster(str(kubeconfig(to)), "")
    pool = Pool(store, crafted(source, to, source.choice((1.0, 0.1, 0.02)), source.randrange(1, 60)))
    cluster._access = cluster._access._replace(pool=pool)
    typed = inputs(**source.choice(INPUTS))
    work = ClusterWork(cluster, t.cast(t.Any, typed), t.cast(t.Any, [member("n1"), member("n2")]), False)
    act = source.choice(ACTS)
    began = time.monotonic()
    try:
        with unittest.mock.patch("time.sleep"):
            told = json.dumps(shown(getattr(work, act)()), ensure_ascii=False)
        ended = "done"
    except NpuError as exc:
        told, ended = clean(str(exc), True), "refused"
        assert "Next: " in told, told
    assert time.monotonic() - began < 60, "%s took %.0f s" % (act, time.monotonic() - began)
    found = CONTROL.search(told)
    assert not found, "%s: a control character in %r" % (act, told[max(found.start() - 80, 0) : found.start() + 80])
    return ended


def one_claim(source: random.Random) -> str:
    """A host that says it is the node of another one, and whose own Node says so too; how it ended.

    The inventory proves the others, by the input, the name or the address; they may be of another run.
    """
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    honest = [member("n1"), member("n2")]
    for one, name in zip(honest, ("n1", "n2")):
        how = source.choice(["input", "name", "address"])
        one["node_name"] = name if how == "input" else ""
        one["host"] = name if how == "name" else one["host"]
        if how != "address":
            one["address"] = source.choice(["", "bastion.example", "192.168.1.%d" % ord(name[-1])])
    victim = source.choice(["n1", "n2"])
    claim, info = member("n3"), nodes[int(victim[1]) - 1]["status"]["nodeInfo"]
    claim.update(host="evil", address=source.choice(["10.0.0.%d" % ord("3"), "evil.example", "bastion.example"]))
    words = {"system_uuid": info["systemUUID"], "machine_id": info["machineID"], "kubelet_name": victim}
    for key in source.sample(sorted(words), source.randrange(1, 4)):
        text = words[key]
        claim[key] = source.choice([text, text.upper(), text.lower(), " %s " % text, text.replace("-", ""), None, []])
    mine = nodes[2]["status"]
    if source.random() < 0.5:
        mine["nodeInfo"] = dict(info)
    if source.random() < 0.5:
        mine["addresses"] = source.choice(
            [
                nodes[int(victim[1]) - 1]["status"]["addresses"],
                [{"type": "Hostname", "address": name} for name in ("n1", "n2", "host-n1", "host-n2", "evil")],
                [{"type": "InternalIP", "address": "10.0.0.%d" % number} for number in range(256)],
                [],
            ]
        )
    if source.random() < 0.3:
        nodes[2]["metadata"]["labels"] = {"kubernetes.io/hostname": victim}
    present = [one for one in honest if source.random() < 0.7]
    others = [one for one in honest if one not in present]
    members = [*present, claim]
    source.shuffle(members)
    found = find_nodes(t.cast(t.Any, members), nodes, t.cast(t.Any, others), source.random() < 0.3)
    told = "%s %s" % (found, claim)
    assert found["evil"]["node"] not in ("n1", "n2"), told
    for one in present:
        wanted = "n1" if one["machine_id"] == honest[0]["machine_id"] else "n2"
        assert found[one["host"]]["node"] == wanted, told
    assert found["evil"]["node"] or "Next: " in found["evil"]["error"], told
    return "its own node" if found["evil"]["node"] else "refused"
