# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API for the benchmark alone, behind a proxy that counts requests.

It is etcd and kube-apiserver on the loopback interface, without controllers and nodes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import subprocess
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.lab._base import end, run, until
from tests.lab._go import program

from ._hosts import FOLDER, fresh_folder

_HOP = ("connection", "keep-alive", "transfer-encoding", "host", "content-length", "authorization")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Api:
    """A running API server: `with Api() as api`.

    api.kubeconfig leads through the proxy; api.requests is a list of (method, path without query).
    """

    def __init__(self) -> None:
        self.folder = fresh_folder(FOLDER / "api")
        self.kubeconfig = self.folder / "kubeconfig"
        self.requests: list[tuple[str, str]] = []
        self._token = secrets.token_hex(16)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = _free_port()
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    def __enter__(self) -> Api:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def _spawn(self, name: str, argv: t.Sequence[str | Path]) -> None:
        with (self.folder / (name + ".log")).open("ab") as log:
            self._processes.append(
                subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _start(self) -> None:
        client, peer = "http://127.0.0.1:%d" % _free_port(), "http://127.0.0.1:%d" % _free_port()
        etcd = [
            "etcd",
            "--name",
            "bench",
            "--data-dir",
            self.folder / "etcd",
            "--unsafe-no-fsync",
            "--initial-cluster",
            "bench=" + peer,
        ]
        etcd += [
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
        ]
        self._spawn("etcd", etcd)
        run(["openssl", "genrsa", "-out", self.folder / "sa.key", "2048"])
        (self.folder / "tokens").write_text("%s,bench,1,system:masters\n" % self._token)
        server = [
            program("kube") / "kube-apiserver",
            "--etcd-servers",
            client,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(self._port),
        ]
        server += [
            "--cert-dir",
            self.folder / "certs",
            "--token-auth-file",
            self.folder / "tokens",
            "--authorization-mode",
            "RBAC",
        ]
        server += [
            "--service-account-issuer",
            "https://bench",
            "--service-account-key-file",
            self.folder / "sa.key",
            "--allow-privileged=true",
        ]
        server += [
            "--service-account-signing-key-file",
            self.folder / "sa.key",
            "--service-cluster-ip-range",
            "10.97.0.0/24",
        ]
        server += ["--endpoint-reconciler-type", "none", "--disable-admission-plugins", "ServiceAccount"]
        self._spawn("kube-apiserver", server)
        until(120, "the benchmark's API server (see %s)" % (self.folder / "kube-apiserver.log"), self._ready)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        cluster = {"server": "http://127.0.0.1:%d" % self._proxy.server_address[1]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "users": [{"name": "bench", "user": {}}],
        }
        config["clusters"] = [{"name": "bench", "cluster": cluster}]
        config["contexts"] = [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}]
        self.kubeconfig.write_text(json.dumps(config))

    def _stop(self) -> None:
        self._proxy.server_close()
        for process in reversed(self._processes):
            end(process)

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/readyz")[0] == 200
        return False

    def call(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """(status, headers, body) of one request to the API server itself."""
        upstream = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=60, context=ssl._create_unverified_context()
        )
        try:
            upstream.request(method, path, body, {**(headers or {}), "Authorization": "Bearer " + self._token})
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def add_node(self, name: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status, _headers, body = self.call(
            "POST", "/api/v1/nodes", {"Content-Type": "application/json"}, json.dumps(node).encode()
        )
        if status != 201:
            raise RuntimeError("node %s: %d %s" % (name, status, body.decode()))


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            api.requests.append((self.command, self.path.partition("?")[0]))
            status, given, content = api.call(self.command, self.path, headers, body)
            self.send_response_only(status)
            for name, value in given:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

        def log_message(self, *_words: object) -> None:
            """Nothing: the counts are the log."""

    return Handler
