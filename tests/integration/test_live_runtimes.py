# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What running runtimes say of themselves: real containerd and docker, with CDI on and off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.docker import load_daemon_json
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.live import answers, ask

from tests.integration._judges import containerd_2, containerds, debian

CRI = {1: "io.containerd.grpc.v1.cri", 2: "io.containerd.cri.v1.runtime"}
IMAGES = {1: "io.containerd.grpc.v1.cri", 2: "io.containerd.cri.v1.images"}


@pytest.fixture
def short() -> t.Iterator[Path]:
    """A directory with a short name: the path of a socket may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="live"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def running(argv: t.Sequence[t.Any], sock: Path, log: Path) -> t.Iterator[None]:
    """A daemon until its socket is there; stopped in the end."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        limit = time.monotonic() + 30
        while not sock.exists():
            assert child.poll() is None and time.monotonic() < limit, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        yield
    finally:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)


def answer(name: str, sock: Path) -> t.Any:
    limit = time.monotonic() + 20
    while True:
        found = ask(Host("/"), {"name": name, "socket": str(sock)})
        if found.ok or time.monotonic() > limit:
            return found
        time.sleep(0.2)


@pytest.mark.parametrize("name", sorted(containerds()))
@pytest.mark.parametrize("wanted", [True, False])
def test_containerd(short: Path, name: str, wanted: bool) -> None:
    program = containerds()[name]()
    version = (
        subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[2].lstrip("v")
    )
    numbers = tuple(int(part) for part in version.split("~")[0].split("+")[0].split(".")[:2])
    major = min(numbers[0], 2)
    lines = ["version = %d" % (major + 1), 'root = "%s/root"' % short, 'state = "%s/state"' % short]
    lines += [
        "[grpc]",
        'address = "%s/c.sock"' % short,
        "[ttrpc]",
        'address = "%s/t.sock"' % short,
        '[plugins."%s"]' % CRI[major],
    ]
    if numbers >= (1, 7):
        lines += ["enable_cdi = %s" % str(wanted).lower(), 'cdi_spec_dirs = ["/etc/cdi", "/srv/cdi"]']
    lines += ['[plugins."%s"%s]' % (IMAGES[major], ".containerd" if major == 1 else ""), 'snapshotter = "native"']
    (short / "config.toml").write_text("\n".join(lines) + "\n")
    with running([program, "--config", short / "config.toml"], short / "c.sock", short / "log"):
        found = answer("containerd", short / "c.sock")
        told = answers(Host("/"), {"name": "containerd", "version": version, "socket": str(short / "c.sock")})
    assert told is True
    assert found.ok, (found, (short / "log").read_text(errors="replace")[-2000:])
    always_on = numbers >= (2, 2) and "enableCDI" not in (short / "log").read_text(errors="replace")
    assert found.value["enabled"] is (numbers >= (1, 7) and (wanted or always_on))
    assert found.value["spec_dirs"] == (["/etc/cdi", "/srv/cdi"] if numbers >= (1, 7) else [])


def test_containerd_12612_a_process_without_its_cri_plugin_does_not_answer(short: Path) -> None:
    """It is active, and its socket is there: only an answer of the plugin shows that the kubelet can use it."""
    registry = '[plugins."%s".registry' % IMAGES[2]
    lines = ["version = 3", 'root = "%s/root"' % short, 'state = "%s/state"' % short]
    lines += ["[grpc]", 'address = "%s/c.sock"' % short, "[ttrpc]", 'address = "%s/t.sock"' % short]
    lines += [registry + "]", 'config_path = "/etc/containerd/certs.d"']
    lines += [registry + '.mirrors."docker.io"]', 'endpoint = ["https://registry.example"]']
    (short / "config.toml").write_text("\n".join(lines) + "\n")
    runtime = {"name": "containerd", "version": "2.2.0", "socket": str(short / "c.sock")}
    with running([containerd_2(), "--config", short / "config.toml"], short / "c.sock", short / "log"):
        limit = time.monotonic() + 20
        while "containerd successfully booted" not in (short / "log").read_text(errors="replace"):
            assert time.monotonic() < limit
            time.sleep(0.1)
        assert answers(Host("/"), runtime) is False
    assert "cannot be set when `config_path` is provided" in (short / "log").read_text(errors="replace")


@pytest.mark.skipif(os.geteuid() != 0, reason="dockerd runs as root")
@pytest.mark.parametrize(
    "features, wanted",
    [
        ('{"cdi": true}', True),
        ('{"cdi": false}', False),
        ('{"cdi": false}, "features": {"cdi": true}, "features": {}', True),
    ],
    ids=["on", "off", "a-key-that-stands-twice"],
)
def test_docker(short: Path, features: str, wanted: bool) -> None:
    """Our reading of daemon.json is that of docker, of a key that stands twice too."""
    programs = debian("trixie")
    specs = short / "cdi"
    specs.mkdir()
    text = '{"features": %s, "cdi-spec-dirs": %s}' % (features, json.dumps([str(specs)]))
    (short / "daemon.json").write_text(text)
    assert load_daemon_json(text)[0]["features"] == {"cdi": wanted}
    base = ["--root", short / "r", "--state", short / "s", "--address", short / "c.sock"]
    with running([programs / "containerd", *base], short / "c.sock", short / "clog"):
        docker = [
            programs / "dockerd",
            "--config-file",
            short / "daemon.json",
            "--data-root",
            short / "d",
            "--exec-root",
            short / "e",
            "--containerd",
        ]
        docker += [
            short / "c.sock",
            "-H",
            "unix://%s/d.sock" % short,
            "-p",
            short / "pid",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "-s=vfs",
        ]
        with running(docker, short / "d.sock", short / "dlog"):
            found = answer("docker", short / "d.sock")
            log = (short / "dlog").read_text(errors="replace")[-2000:]
    assert found.ok, (found, log)
    assert (found.value["enabled"], found.value["spec_dirs"]) == (wanted, [str(specs)] if wanted else [])
