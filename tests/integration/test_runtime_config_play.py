# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""rbln_runtime_config as a playbook runs it.

Check mode, diff, repetition, removal, the number of remote executions, and a stopped run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer import FileChange, Writer, digest

FIXTURES = Path(__file__).resolve().parents[1] / "unit/fixtures/runtime_config"
MAIN = "/etc/containerd/config.toml"
STATE = "/var/lib/rebellions-npu"


def _collections() -> str:
    from ansible_collections.rebellions.npu import plugins

    return str(Path(list(plugins.__path__)[0]).parents[3])


def _detected(state: str = "off", **changed: t.Any) -> dict[str, t.Any]:
    found = {
        "name": "containerd",
        "flavor": "system",
        "version": "1.7.24",
        "binary": None,
        "restart_unit": "containerd.service",
        "unit_flags": [],
        "main_config": MAIN,
        "config_files": [MAIN],
        "edit_target": {"path": MAIN, "kind": "main"},
        "cdi": {"state": state, "spec_dirs": ["/etc/cdi", "/var/run/cdi"]},
        "selected": True,
        "serves_kubelet": True,
        "changes": [] if state == "on" else [{"path": MAIN, "what": "enable_cdi = true", "why": "CDI is off"}],
        "refusal": None,
    }
    found.update(changed)
    return {
        "schema": 1,
        "runtimes": [found],
        "selected": ["containerd"],
        "ambiguous": None,
        "kubernetes_runtime": "containerd",
        "problems": [],
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/etc/containerd").mkdir(parents=True)
    (tmp_path / "root/var/lib").mkdir(parents=True)
    (tmp_path / "root" / MAIN.lstrip("/")).write_bytes((FIXTURES / "S02-secrets-in-output.toml").read_bytes())
    return tmp_path / "root"


class Run(t.NamedTuple):
    result: dict[str, t.Any]
    executions: int
    output: str


def _play(root: Path, *flags: str, **args: t.Any) -> Run:
    play = [
        {
            "name": "Configure",
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {
                    "name": "Configure",
                    "rebellions.npu.rbln_runtime_config": {"root": str(root), **args},
                    "register": "seen",
                }
            ],
        }
    ]
    path = root.parent / "play.json"
    path.write_text(json.dumps(play))
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env.update(
        ANSIBLE_COLLECTIONS_PATH=_collections(),
        ANSIBLE_HOME=str(root.parent / "home"),
        ANSIBLE_PIPELINING="1",
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default",
        LC_ALL="C.UTF-8",
    )
    python = str(Path(sys.executable).parent / "ansible-playbook")
    inventory = "localhost ansible_connection=local ansible_python_interpreter=%s\n" % sys.executable
    (root.parent / "hosts").write_text(inventory)
    done = subprocess.run(
        [python, "-vvv", "-i", root.parent / "hosts", path, *flags],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )
    text = done.stdout + done.stderr
    start = done.stdout.find("=> {")
    assert start > 0, text
    result = json.JSONDecoder().raw_decode(done.stdout[start + 3 :])[0]
    return Run(result, sum("EXEC /bin/sh -c" in line and sys.executable in line for line in text.splitlines()), text)


def test_life_of_an_edit(root: Path) -> None:
    config = root / MAIN.lstrip("/")
    before = config.read_bytes()
    tree = sorted(str(path) for path in root.rglob("*"))

    checked = _play(root, "--check", "--diff", runtimes=_detected())
    assert checked.result["changed"] is True and checked.executions == 1
    assert config.read_bytes() == before and sorted(str(path) for path in root.rglob("*")) == tree
    assert '+[plugins."io.containerd.grpc.v1.cri"]\n+  enable_cdi = true\n' in checked.output

    done = _play(root, "--diff", runtimes=_detected())
    assert (done.result["changed"], done.result["restart_required"], done.result["restart_units"]) == (
        True,
        True,
        ["containerd.service"],
    )
    assert done.result["files"] == [MAIN] and done.result["backups"] == [MAIN + ".rbln-backup"]
    assert done.executions == 2, "one to read, one to write"
    assert config.read_bytes() == (FIXTURES / "expected/S02-secrets-in-output.toml").read_bytes()
    assert (root / "etc/containerd/config.toml.rbln-backup").stat().st_mode & 0o777 == 0o600

    again = _play(root, runtimes=_detected())
    assert again.result["changed"] is False and again.executions == 1
    unchanged = _play(root, runtimes=_detected("on"))
    assert (unchanged.result["changed"], unchanged.executions) == (False, 0), "nothing runs on a host that is right"
    assert unchanged.result["restart_required"] is False

    removed = _play(root, "--diff", runtimes=_detected("on"), state="absent")
    assert removed.result["changed"] is True and removed.result["restart_units"] == ["containerd.service"]
    assert config.read_bytes() == before
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert left == {"etc/containerd/config.toml", "var/lib/rebellions-npu/lock"}
    assert _play(root, runtimes=_detected(), state="absent").result["changed"] is False
    for run in (checked, done, again, removed):
        assert "not-a-real-secret" not in run.output, "S02: no secret in output or diff"


def test_life_of_the_proxies_of_a_unit_G02(root: Path) -> None:
    directory = root / "etc/systemd/system/containerd.service.d"
    directory.mkdir(parents=True)
    (directory / "http-proxy.conf").write_text("[Service]\nEnvironmentFile=-/etc/de[a-f]*/%N\n")
    (root / "etc/default").mkdir()
    (root / "etc/default/containerd").write_text("NO_PROXY=registry.site\n")
    tree = sorted(str(path) for path in root.rglob("*"))
    given = {
        "configure": ["cdi", "proxies"],
        "https_proxy": "http://u:hunted-word@proxy:1",
        "no_proxy": ["10.96.0.0/12"],
        "runtimes": _detected("on", unit="containerd.service"),
    }
    checked = _play(root, "--check", "--diff", **given)
    assert checked.result["changed"] is True and sorted(str(path) for path in root.rglob("*")) == tree
    done = _play(root, "--diff", **given)
    names = [str(path.relative_to(root)) for path in sorted(directory.iterdir())]
    assert done.result["files"] == ["/" + name for name in reversed(names) if "zz-rbln" in name] and len(names) == 3
    assert done.result["restart_units"] == ["containerd.service"] and done.result["runtimes"][0]["changed"] is True
    text = (directory / "zz-rbln-proxy.env").read_text()
    assert 'NO_PROXY="registry.site,10.96.0.0/12,localhost,127.0.0.1,::1"\n' in text and "hunted-word" in text
    assert (directory / "zz-rbln-proxy.env").stat().st_mode & 0o777 == 0o600
    again = _play(root, **given)
    assert (again.result["changed"], again.result["restart_units"]) == (False, [])
    changed = _play(root, "--diff", **{**given, "https_proxy": "http://u:other-word@proxy:2"})
    former = directory / "zz-rbln-proxy.env.former"
    assert [Path(path).name for path in changed.result["files"]] == ["zz-rbln-proxy.env", former.name]
    assert former.read_text() == text and former.stat().st_mode & 0o777 == 0o600
    assert "hunted-word" not in changed.output and "other-word" not in changed.output
    back = _play(root, "--diff", runtimes=given["runtimes"], state="rolled_back", files=changed.result["files"])
    assert (back.result["changed"], (directory / "zz-rbln-proxy.env").read_text()) == (True, text)
    assert not former.exists() and "other-word" not in back.output
    assert "files and state=rolled_back belong together" in _play(root, state="rolled_back").result["msg"]
    other = _play(root, runtimes=given["runtimes"], state="absent", configure=["cdi"])
    assert (other.result["changed"], len(list(directory.iterdir()))) == (False, 3)
    removed = _play(root, "--diff", runtimes=given["runtimes"], state="absent")
    assert removed.result["restart_units"] == ["containerd.service"]
    assert [path.name for path in directory.iterdir()] == ["http-proxy.conf"]
    for run in (checked, done, again, removed):
        assert "hunted-word" not in run.result.__repr__() and "hunted-word@" not in json.dumps(run.result)
    assert "********" in done.output + removed.output


REFUSALS: list[tuple[str, dict[str, t.Any], dict[str, t.Any], str]] = [
    (
        "D06",
        {"refusal": {"reason": "containerd 1.6.20 has no CDI", "next_step": "upgrade containerd"}},
        {},
        "has no CDI. Next: upgrade containerd.",
    ),
    (
        "D01",
        {},
        {"runtime": ["docker"]},
        "docker is not on this host (found: containerd). Next: Install it, or name another runtime.",
    ),
    ("relative", {}, {"spec_dirs": ["cdi"]}, "Give absolute paths"),
]


@pytest.mark.parametrize("changed, args, message", [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_refusals(root: Path, changed: dict[str, t.Any], args: dict[str, t.Any], message: str) -> None:
    before = (root / MAIN.lstrip("/")).read_bytes()
    run = _play(root, runtimes=_detected(**changed), **args)
    assert run.result["failed"] is True if "failed" in run.result else "FAILED!" in run.output
    assert message in run.result["msg"] and run.executions == 0
    assert (root / MAIN.lstrip("/")).read_bytes() == before


def test_D01_doubt_about_the_runtime_is_an_error(root: Path) -> None:
    detected = _detected()
    detected["ambiguous"] = {
        "reason": "there is no kubelet and this host has containerd, docker",
        "candidates": [],
        "next_step": "say which one matters",
    }
    run = _play(root, runtimes=detected)
    assert "there is no kubelet and this host has containerd, docker. Next: say which one matters" in run.result["msg"]


def test_malformed_file_r13(root: Path) -> None:
    config = root / MAIN.lstrip("/")
    config.write_bytes((FIXTURES / "r13_ctd_malformed.toml").read_bytes())
    run = _play(root, runtimes=_detected())
    assert "%s: line 1, column 11: not valid TOML" % MAIN in run.result["msg"]
    assert config.read_bytes() == (FIXTURES / "r13_ctd_malformed.toml").read_bytes()
    assert not (root / STATE.lstrip("/")).exists()


def test_r66_a_directory_in_the_way(root: Path) -> None:
    config = root / MAIN.lstrip("/")
    config.unlink()
    (config / "x").mkdir(parents=True)
    assert "%s cannot be read: Is a directory" % MAIN in _play(root, runtimes=_detected()).result["msg"]


def test_the_detection_is_asked_when_it_is_not_given(root: Path) -> None:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/containerd").write_text("")
    (root / "var/lib/dpkg").mkdir(parents=True)
    status = "Package: containerd\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.7.24~ds1-6+b4\n\n"
    (root / "var/lib/dpkg/status").write_text(status)
    run = _play(root, runtime=["containerd"])
    assert run.result["changed"] is True and run.executions == 3
    assert "ansible_facts" not in run.result


def test_a_run_that_was_stopped_is_repaired_by_the_next(root: Path) -> None:
    config = root / MAIN.lstrip("/")
    before = config.read_bytes()
    child = os.fork()
    if child == 0:

        def die(step: str) -> None:
            if step == "renamed":
                os._exit(9)

        changes = [
            FileChange(MAIN, b"version = 2\n# half\n", digest(before)),
            FileChange("/etc/containerd/x.toml", b"new", None),
        ]
        Writer(Host(str(root)), STATE, "rbln", die).apply(changes)
    os.waitpid(child, 0)
    assert config.read_bytes() == b"version = 2\n# half\n"
    unfinished = _detected(
        "on", changes=[{"path": STATE + "/transaction.json", "what": "", "why": "an earlier run was stopped"}]
    )
    run = _play(root, runtimes=unfinished)
    assert run.result["changed"] is True and run.result["restored"] == [MAIN]
    assert config.read_bytes() == (FIXTURES / "expected/S02-secrets-in-output.toml").read_bytes()
    names = {path.name for path in (root / "etc/containerd").iterdir()}
    assert names == {"config.toml", "config.toml.rbln-backup"}
    assert not (root / STATE.lstrip("/") / "transaction.json").exists()
