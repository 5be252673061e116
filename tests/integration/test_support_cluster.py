# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook support with a real API server: what the account may read, without secrets; no host is reached."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from tests.integration._api_server import NAMESPACE, ApiServer
from tests.integration._play import FOLDER, Run, inventory, play
from tests.integration._support import Planted, archive, b64, unpacked

SERIAL = "RB99Z0042"
GONE = {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
OURS = {"app.kubernetes.io/managed-by": "rebellions-npu", "app.kubernetes.io/part-of": "rebellions-npu"}


@pytest.fixture(name="server", scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api") / "home", ["guest"], audited="reader")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def objects(s: Planted) -> str:
    """What a namespace of ours and a node hold, as one list."""
    meta = {"namespace": NAMESPACE, "labels": OURS}
    container = {"name": "main", "image": "x", "env": [{"name": "DB_PASSWORD", "value": s("env")}],
                 "args": ["--api-key=%s" % s("argument"), "--token", s("option")]}  # fmt: skip
    auths = json.dumps({"auths": {"r": {"auth": b64("svc:" + s("auth"))}}})
    data = {
        "yaml": "password: %s\n" % s("yaml"), "toml": "token = '%s'\n" % s("toml"), "twice": b64(b64(auths)),
        "json": '{"secret": "%s"}' % s("json"), "coded": b64("client_secret: %s\n" % s("coded")),
        "url": "https://a:%s@h/x" % s("url"),
        "pem": "-----BEGIN EC PRIVATE KEY-----\n%s\n-----END EC PRIVATE KEY-----\n" % s("pem"), "serial": SERIAL,
        "header": "Authorization: Bearer %s" % s("bearer"), "again": "it says %s once more" % s("yaml"),
    }  # fmt: skip
    note = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"x": {"password": s("annotation")}})}
    labels = {"rebellions.ai/npu.present": "true", "example.com/npu-serial": SERIAL}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels, "annotations": note}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "c"}, "data": data},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "s"}, "stringData": {"x": s("secret")}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "p"},
         "spec": {"nodeName": "n1", "containers": [container]}},
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": NAMESPACE},
         "involvedObject": {"kind": "Pod", "name": "p", "namespace": NAMESPACE}, "reason": "Failed",
         "message": "pull https://a:%s@r/x: 401" % s("event")},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": NAMESPACE},
         "spec": {"holderIdentity": "somebody"}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "r"}, "spec": {
            "driver": "npu.rebellions.ai", "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "npu0", "attributes": {"serial": {"string": SERIAL}}}]}},
    ]  # fmt: skip
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def made(path: Path, **kubeconfigs: Path) -> Run:
    """A run with hosts of these names, none of which can be reached."""
    hosts = {name: {"rbln_kubeconfig": str(config)} for name, config in kubeconfigs.items()}
    run = play(
        "support", inventory(FOLDER / "support.json", list(hosts), GONE, hosts), extra={"rbln_support_path": str(path)}
    )
    assert run.code == 0 and run.failed() == [], run.err[-3000:]
    return run


def test_objects_of_a_real_server_are_kept_without_secrets_and_no_secret_is_asked_for(
    staged: None, server: ApiServer, tmp_path: Path
) -> None:
    s, path = Planted(), tmp_path / "case.tar.gz"
    server.kubectl("create", "-f", "-", stdin=objects(s))
    states = [{"name": "main", "restartCount": 1, "ready": False, "image": "x", "imageID": "", "state": {}}]
    status = json.dumps({"status": {"phase": "Running", "containerStatuses": states}})
    server.kubectl("patch", "pod", "p", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", status)
    before = len(server.asked())
    manifest, files = archive(made(path, gone=server.home / "reader.kubeconfig"), path)
    asked = server.asked(before)
    assert len(asked) < 60 and {one[0] for one in asked} <= {"get", "list"} and "secrets" not in str(asked)
    ((name, one),) = manifest["clusters"].items()
    assert one["state"] == "collected" and NAMESPACE in name
    told = {one["name"]: one for one in manifest["files"]}
    texts = {name.split("/", 2)[2]: data for name, data in files.items() if name.startswith("clusters/")}
    wanted = {"version.json", "nodes.json", "namespace.json", "pods.json", "events.json", "objects/ConfigMap.json",
              "objects/Lease.json", "objects/ResourceSlice.json"}  # fmt: skip
    assert wanted <= set(texts) and "objects/Secret.json" not in told
    # Its node has no kubelet: the log alone is not there.
    assert told["logs/p/main.txt"]["state"] == told["logs/p/main.previous.txt"]["state"] == "failed"
    assert {one["state"] for name, one in told.items() if not name.startswith("logs/")} == {"value"}
    whole = b"\n".join(files.values())
    assert len(s.words) >= 14 and s.found(whole) == []
    assert b"it says ******** once more" in whole and b"--api-key=********" in whole
    assert SERIAL.encode() not in whole and b"SERIAL-" in texts["objects/ResourceSlice.json"]
    assert b'"name": "n1"' in texts["nodes.json"] and b"other" not in texts["nodes.json"]


def test_what_an_account_may_not_read_is_denied_and_a_server_that_is_away_is_one_line(
    staged: None, server: ApiServer, tmp_path: Path
) -> None:
    path = tmp_path / "case.tar.gz"
    made(path, guest=server.home / "guest.kubeconfig", away=server.write_kubeconfig("away", port=9))
    manifest = json.loads(unpacked(path)["manifest.json"])
    assert {one["state"] for one in manifest["hosts"].values()} == {"unreachable"} and len(manifest["hosts"]) == 2
    ((away, gone),) = [item for item in manifest["clusters"].items() if "away.kubeconfig" in item[0]]
    assert gone["state"] == "failed" and "cannot be reached" in gone["detail"] and len(manifest["clusters"]) == 2
    told = {one["name"]: one["state"] for one in manifest["files"] if one["cluster"] != away}
    assert told.pop("version.json") == "value" and set(told.values()) == {"denied"} and len(told) > 25
