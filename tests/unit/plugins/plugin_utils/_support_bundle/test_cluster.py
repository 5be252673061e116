# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a cluster, asked over HTTP from a small server that can hang, refuse and lie."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import Limits
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import logs
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.logs import TextCluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.cluster import collect_cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.parts import Part

S = "n0t-a-Real-one-7"
LIMITS = Limits(source=65536, host=2**20, lines=5, seconds=5.0, total=60.0)
SPACE = "/api/v1/namespaces/rbln-system/"
OURS = {"app.kubernetes.io/managed-by": "rebellions-npu", "app.kubernetes.io/part-of": "rebellions-npu"}
Answer = t.Callable[["Server"], t.Any]


class Server(http.server.BaseHTTPRequestHandler):
    """Answers by the path alone: a value as JSON, text, a status, or what a function does; else an empty list."""

    answers: t.ClassVar[dict[str, t.Any]] = {}
    asked: t.ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        given = self.answers.get(self.path.partition("?")[0], {"items": []})
        given = given(self) if callable(given) else given
        if given is None:
            return
        status = given if isinstance(given, int) else 200
        body = given.encode() if isinstance(given, str) else json.dumps(given if status == 200 else {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: t.Any) -> None:
        pass


@pytest.fixture(name="address")
def served(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[str]:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    Server.answers, Server.asked = {"/version": {"gitVersion": "v1.33.1"}}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    server.server_close()


def collected(
    address: str, limits: Limits = LIMITS, serials: t.Any = (), dry: bool = False
) -> tuple[Part, dict[str, str]]:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    cluster = TextCluster(json.dumps(config), "", limits.seconds)
    part = collect_cluster("c", cluster, "rbln-system", limits, serials, dry)
    return part, dict(zip([one["name"] for one in part.records if one["size"]], part.texts))


def pod(name: str, restarts: int = 0, **labels: str) -> dict[str, t.Any]:
    status = {"name": "main", "restartCount": restarts, "ready": not restarts}
    return {"metadata": {"name": name, "labels": labels}, "status": {"containerStatuses": [status]}}


def states(part: Part) -> dict[str, str]:
    return {one["name"]: one["state"] for one in part.records}


def test_objects_nodes_and_logs_are_kept_without_secrets_and_serials(address: str) -> None:
    auths = json.dumps({"auths": {"r": {"auth": base64.b64encode(f"joe:{S}".encode()).decode()}}})
    config = {"metadata": {"name": "c", "managedFields": ["long"]}, "data": {"x": f"password: {S}", "y": auths}}
    node = {"metadata": {"name": "n1", "labels": {"rebellions.ai/npu.present": "true"}},
            "status": {"images": ["long"], "nodeInfo": {"systemUUID": "ab-12-cd"}}}  # fmt: skip
    slices = {"metadata": {"name": "s1"}, "spec": {"driver": "npu.rebellions.ai", "devices": [
        {"name": "npu0", "attributes": {"serial": {"string": "RB25A0017"}}}]}}  # fmt: skip
    ill = {**pod("ill", 2, **OURS), "spec": {"env": [{"name": "DB_PASSWORD", "value": S + "-of-env"}]}}
    other = {"metadata": {"name": "s2"}, "spec": {"driver": "gpu"}}
    Server.answers.update({
        SPACE + "configmaps": {"items": [config]},
        "/api/v1/nodes": {"items": [node, {"metadata": {"name": "other"}}]},
        "/apis/resource.k8s.io/v1/resourceslices": {"items": [slices, other]},
        SPACE + "pods": {"items": [pod("well", **OURS), ill, pod("foreign")]},
        SPACE + "pods/well/log": f"bearer: Authorization: Bearer {S}\ncard RB25A0017 of ab-12-cd\n",
        SPACE + "pods/ill/log": f"it said {S} and {S}-of-env\n",
    })  # fmt: skip
    part, texts = collected(address, serials=["HOST-77"])
    whole = "\n".join(texts.values())
    assert part.state == "collected" and S not in whole and "joe" not in whole and "long" not in whole
    assert "RB25A0017" not in whole and "ab-12-cd" not in whole and '"name": "n1"' in texts["nodes.json"]
    assert "other" not in texts["nodes.json"] and "s2" not in texts["objects/ResourceSlice.json"]
    assert (
        texts["logs/ill/main.txt"] == "it said ******** and ********\n"
        and texts["logs/ill/main.previous.txt"] == "it said ******** and ********\n"
    )
    assert "card SERIAL-" in texts["logs/well/main.txt"] and "foreign" in texts["pods.json"]
    names = list(states(part))
    assert names.index("logs/ill/main.txt") < names.index("logs/well/main.txt")
    assert not any("secrets" in path or "foreign" in path for path in Server.asked)
    assert any("tailLines=5" in path and "previous=true" in path for path in Server.asked)
    kept, _texts = collected(address, serials=None)
    assert any("RB25A0017" in text for text in kept.texts)


def test_a_right_that_is_missing_and_an_object_of_another_shape_are_one_source_each(address: str) -> None:
    Server.answers.update({
        SPACE + "services": 403,
        SPACE + "events": {"items": [1, 2]},
        "/api/v1/namespaces/rbln-system": 404,
        SPACE + "pods": {"items": [pod("p", **OURS)]},
        SPACE + "pods/p/log": 400,
    })  # fmt: skip
    part, _texts = collected(address)
    found = states(part)
    assert (found["objects/Service.json"], found["namespace.json"]) == ("denied", "absent")
    assert (found["events.json"], found["logs/p/main.txt"]) == ("failed", "failed")
    assert (part.state, found["version.json"], found["objects/ConfigMap.json"]) == ("collected", "value", "value")


def test_a_log_that_hangs_is_one_source_and_what_came_is_kept(address: str) -> None:
    def hang(server: Server) -> None:
        server.send_response(200)
        server.send_header("Transfer-Encoding", "chunked")
        server.end_headers()
        server.wfile.write(b"6\r\nfirst\n\r\n")
        server.wfile.flush()
        time.sleep(1.5)

    Server.answers.update({
        SPACE + "pods": {"items": [pod("a", **OURS), pod("b", **OURS)]},
        SPACE + "pods/a/log": hang,
        SPACE + "pods/b/log": "well\n",
    })  # fmt: skip
    part, texts = collected(address, Limits(source=65536, host=2**20, lines=5, seconds=0.5, total=30.0))
    assert states(part)["logs/a/main.txt"] == "timeout" and states(part)["logs/b/main.txt"] == "value"
    assert (texts["logs/a/main.txt"], texts["logs/b/main.txt"]) == ("first\n", "well\n")


def test_a_log_without_an_end_is_ended(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SAID", 200000)
    text = "".join("line %d\n" % number for number in range(100000))
    Server.answers.update({SPACE + "pods": {"items": [pod("a", **OURS)]}, SPACE + "pods/a/log": text})
    part, texts = collected(address)
    assert states(part)["logs/a/main.txt"] == "too_large" and len(texts["logs/a/main.txt"]) <= 65536


def test_a_server_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    part, texts = collected("http://127.0.0.1:9")
    assert (part.state, texts) == ("failed", {}) and "cannot be reached" in part.detail and time.monotonic() - began < 2
    assert {one["detail"].partition(":")[0] for one in part.records[1:]} == {"not asked"}


def test_when_time_or_room_is_used_the_rest_is_not_asked(address: str) -> None:
    part, _texts = collected(address, Limits(source=65536, host=2**20, total=0.0))
    assert set(states(part).values()) == {"timeout"} and Server.asked == []
    part, _texts = collected(address, Limits(source=26, host=26))
    found = states(part)
    assert found.pop("version.json") == "value" and set(found.values()) == {"too_large"} and len(Server.asked) == 1


def test_check_mode_sends_no_request(address: str) -> None:
    part, _texts = collected(address, dry=True)
    assert part.state == "planned" and Server.asked == [] and len(part.records) > 20
