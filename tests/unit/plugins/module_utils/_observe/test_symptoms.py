# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine shows besides its NPUs: real sockets, files and processes, below a root or on this machine."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.handles import Holder
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.probe import Completed, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._observe import symptoms as of
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked

Data = dict[str, Any]
SHOW = "Id={0}\nNames={0}\nLoadState=loaded\nActiveState={1}\nMainPID={2}\n"


def host(root: Path, answers: Data) -> Host:
    """A host whose programs answer by their first words; each answer is (exit code, output)."""

    def run(argv: Any, timeout: float, env: Any = None) -> Probe:
        code, out = answers.get(argv[0], answers.get(" ".join(argv), (127, "")))
        return Probe("value", Completed(code, out, ""))

    return Host(root=str(root), runner=run)


@pytest.fixture(name="proxy")
def proxy_fixture() -> Any:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_look_is_an_answer_as_the_schema_has_it(tmp_path: Path, proxy: int) -> None:
    environ = tmp_path / "proc" / "7" / "environ"
    environ.parent.mkdir(parents=True)
    given = {"HTTPS_PROXY": "http://user:secret@127.0.0.1:%d" % proxy, "http_proxy": "127.0.0.1:1", "X": "y"}
    environ.write_text("\0".join("%s=%s" % item for item in given.items()) + "\0")
    answers = {
        "systemctl": (0, SHOW.format("kubelet.service", "failed", 7)),
        "getent ahosts here.example": (0, "192.0.2.1 STREAM here.example\n"),
        "getent ahosts nowhere.example": (2, ""),
    }
    (tmp_path / "tmp").mkdir()
    names = ["here.example", "nowhere.example"]
    found = of.symptoms(host(tmp_path, answers), names, ["kubelet.service"], [], 2.0)
    assert checked("a", "rbln_symptoms", {**found, "changed": False})["units"] == {"kubelet.service": "failed"}
    assert [found["names"][name]["state"] for name in names] == ["value", "absent"]
    told = {one["address"]: one["state"] for one in found["proxies"]}
    assert told == {"127.0.0.1:%d" % proxy: "value", "127.0.0.1:1": "failed"}
    assert "secret" not in str(found)
    assert [one["path"] for one in found["disk"]] == ["/"] and found["disk"][0]["size"] > 0
    assert abs(found["clock"] - time.time()) < 60 and found["locked_by"] == found["used_by"] == []


def test_a_host_without_getent_does_not_know_whether_a_name_is_known(tmp_path: Path) -> None:
    bare = Host(root=str(tmp_path), runner=lambda argv, timeout, env=None: Probe("absent", None, "getent: not found"))
    assert of._resolved(bare, "here.example", 2.0).to_dict() == {"state": "failed", "detail": "getent: not found"}


def test_who_has_a_file_open_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rbln0"
    path.write_text("")
    monkeypatch.setattr(of, "LOCKS", (str(tmp_path / "lock"),))
    with open(path), open(tmp_path / "lock", "w"):
        found = of.symptoms(Host(), [], [], [str(path)], 2.0)
    assert any("(pid %d)" % os.getpid() in one for one in found["used_by"])
    assert found["used_by"] == found["locked_by"]


def test_the_daemon_of_the_driver_is_no_user_of_its_npus(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [
        Holder("process", 5, "sleep", ("/dev/rbln0",), unit="rbln-smd.service"),
        Holder("process", 6, "python3", ("/dev/rbln0",), unit="train.service"),
    ]
    monkeypatch.setattr(of, "find_open", lambda host, paths: users)
    assert of.symptoms(Host(), [], [], ["/dev/rbln0"], 2.0)["used_by"] == ["python3 (pid 6)"]


@pytest.mark.parametrize(
    ("proxy", "address"),
    [
        ("http://proxy.example:3128", "proxy.example:3128"),
        ("https://proxy.example/", "proxy.example:443"),
        ("proxy.example", "proxy.example:80"),
        ("http://user:pa@ss@proxy.example:8080", "proxy.example:8080"),
        ("http://user:a@bcd/ef@proxy.example:3128", "proxy.example:3128"),
        ("user:pass@proxy.example:3128", "proxy.example:3128"),
        ("http://proxy.example:port", ""),
        ("http://[proxy.example:3128", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_proxy_is_without_its_user(proxy: str, address: str) -> None:
    assert of._address(proxy) == address


def test_a_file_system_that_hangs_is_named_and_the_others_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a server that is away hangs whoever asks: here in a process that is left."""
    real, never = os.statvfs, threading.Event()

    def statvfs(path: str) -> Any:
        return never.wait() if path.endswith(("/var", "/boot")) else real(path)

    for path in ("tmp", "var", "boot", "var/lib/kubelet"):
        (tmp_path / path).mkdir(parents=True)
    monkeypatch.setattr(of.os, "statvfs", statvfs)
    began = time.monotonic()
    disk, hung = of._spaces(host(tmp_path, {}), 1.0)
    assert hung == ["/var", "/boot"] and [one["path"] for one in disk] == ["/"] and time.monotonic() - began < 20
