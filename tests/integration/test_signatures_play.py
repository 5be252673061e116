# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures of a bundle and of an installer by Ansible itself: without a valid one no byte reaches the host."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import Manifest

from tests.unit.plugins.signing import BROKEN, Keys, made_keys

SYSTEM = {"id": "debian", "version_id": "13", "architecture": "x86_64"}
TEXT = Manifest("2026-01-01T00:00:00Z", "a@b", SYSTEM, "deb", "none").dump()
RUNFILE = b"#!/bin/sh\nexit 0\n"
KINDS = ("valid", *(kind.replace(" ", "-") for kind in BROKEN))
SHA256 = hashlib.sha256(RUNFILE).hexdigest()


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> t.Iterator[Keys]:
    with made_keys() as keys:
        yield keys


@pytest.fixture(name="served", scope="module")
def served_fixture(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> t.Iterator[tuple[Path, str]]:
    """A folder and its address: FOLDER/KIND has a bundle and an installer with signatures of this kind."""
    folder = tmp_path_factory.mktemp("served")
    for kind in KINDS:
        (folder / kind).mkdir()
        for name, content in (("manifest.json", TEXT.encode()), ("a.run", RUNFILE)):
            path, signature = folder / kind / name, folder / kind / (name + ".asc")
            path.write_bytes(content)
            made = (
                keys.sign("vendor@example.com", path, "sig").read_bytes()
                if kind == "valid"
                else keys.broken(kind.replace("-", " "), path)
            )
            (path.parent / "sig").unlink(missing_ok=True)
            if made is not None:
                signature.write_bytes(made)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: t.Any) -> None:
            """Not on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield folder, "http://127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    server.server_close()


def play(folder: Path, tasks: list[dict[str, t.Any]], *extra: str) -> dict[str, dict[str, t.Any]]:
    """Results by task name; a failed task does not end the play."""
    book = {
        "name": "Play",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "tasks": [{**task, "ignore_errors": True} for task in tasks],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([book], sort_keys=False), encoding="utf-8")
    direct = {name: "" for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")}
    env = {
        **os.environ,
        **direct,
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_LOCALHOST_WARNING": "false",
    }
    argv = ["ansible-playbook", "-i", "localhost,", str(folder / "play.yml"), *extra]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    data = json.loads(done.stdout[done.stdout.index("{") :])
    return {task["task"]["name"]: task["hosts"]["localhost"] for task in data["plays"][0]["tasks"]}


def tasks(kind: str, served: tuple[Path, str], ring: Path, place: Path) -> list[dict[str, t.Any]]:
    folder, url = served
    shared = {"state": "present", "keyring": str(ring), "configure": False}
    item = {"src": str(folder / kind / "a.run"), "sha256": SHA256, "signature": str(folder / kind / "a.run.asc")}
    return [
        {
            "name": kind + " folder",
            "rebellions.npu.rbln_bundle": {
                **shared,
                "folder": str(folder / kind),
                "directory": str(place / kind / "folder"),
            },
        },
        {
            "name": kind + " url",
            "rebellions.npu.rbln_bundle": {**shared, "url": f"{url}/{kind}", "directory": str(place / kind / "url")},
        },
        {
            "name": kind + " runfile",
            "rebellions.npu.rbln_driver_files": {
                "files": [item],
                "keyring": str(ring),
                "cache": str(place / "cache"),
                "directory": str(place / kind / "runfile"),
            },
        },
    ]


@pytest.mark.parametrize("check", [True, False])
def test_only_a_valid_signature_lets_anything_in(
    keys: Keys, served: tuple[Path, str], tmp_path: Path, check: bool
) -> None:
    place, ring = tmp_path / "host", keys.home / "ring.asc"
    place.mkdir()
    wanted = [task for kind in KINDS for task in tasks(kind, served, ring, place)]
    found = play(tmp_path, wanted, *(["--check"] if check else []))
    assert len(found) == 3 * len(KINDS)
    good = {name: found.pop(name) for name in list(found) if name.startswith("valid ")}
    assert len(good) == 3 and all(result["changed"] and not result.get("failed") for result in good.values()), good
    assert all(result["failed"] and not result.get("changed") for result in found.values()), found
    told = {name: result["msg"] for name, result in found.items()}
    reasons = ("no valid signature", "cannot be read", "cannot be downloaded")
    assert {name: text for name, text in told.items() if not any(one in text for one in reasons)} == {}
    assert sorted(path.name for path in place.iterdir()) == ([] if check else ["valid"])
