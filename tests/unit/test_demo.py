# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's promises: what apt will do, what differs afterwards, a machine that is lost, signs of life, the estimate.

apt is the real one, with a package database and a repository made for the test.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.lab import _apt, _base, _demo_vm, _go, _machine, _needs, _rootfs, demo
from ansible_collections.rebellions.npu.tests.lab._apt import Act
from ansible_collections.rebellions.npu.tests.lab._base import LabError
from ansible_collections.rebellions.npu.tests.lab.standins.payload import deb
from ansible_collections.rebellions.npu.tests.lab.standins.repository import flat
from ansible_collections.rebellions.npu.tests.tools.paths import ROOT
from ansible_collections.rebellions.npu.tests.tools.ticking import Signs

INSTALLED = """Package: libx
Status: install ok installed
Architecture: amd64
Version: 1.0
Maintainer: x
Description: x
"""


@pytest.fixture(name="apt")
def apt_fixture(tmp_path: Path) -> t.Callable[..., list[Act]]:
    """plan() on a machine where libx 1.0 is installed; the repository has libx 1.1 and three programs."""
    if not shutil.which("apt-get"):
        pytest.skip("no apt here")
    repo, state = tmp_path / "repo", tmp_path / "state"
    packages = {
        "libx_1.1_amd64.deb": ("libx", "1.1", ""),
        "plain_2.0_amd64.deb": ("plain", "2.0", "libx, liby"),
        "liby_1:3.0_amd64.deb": ("liby", "1:3.0", ""),
        "needs_2.0_amd64.deb": ("needs", "2.0", "libx (>= 1.1)"),
        "other_2.0_amd64.deb": ("other", "2.0", "liby"),
    }
    repo.mkdir()
    state.mkdir()
    made = {name: package(*row) for name, row in packages.items()}
    for name, data in {**made, **flat(made)}.items():
        (repo / name).write_bytes(data)
    (state / "status").write_text(INSTALLED)
    (state / "sources.list").write_text("deb [trusted=yes] file:%s ./\n" % repo)
    settings = {
        "Dir::State::status": state / "status",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::extended_states": state / "extended",
        "APT::Architecture": "amd64",
    }
    more = [word for key, value in settings.items() for word in ("-o", "%s=%s" % (key, value))]
    return lambda *names: _apt.plan(names, tmp_path / "apt", more)


def package(name: str, version: str, depends: str) -> bytes:
    fields = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "x", "Description": "x"}
    return deb({**fields, **({"Depends": depends} if depends else {})}, {}, {})


def test_every_package_that_apt_installs_is_in_the_plan(apt: t.Callable[..., list[Act]]) -> None:
    """What is installed stays, though a newer version is to be had."""
    assert sorted(apt("plain", "other")) == [Act("liby", "", "1:3.0"), Act("other", "", "2.0"), Act("plain", "", "2.0")]
    assert apt() == []


def test_an_upgrade_is_named_and_refused(apt: t.Callable[..., list[Act]]) -> None:
    wanted = (
        "^apt installs other needs only if it changes other packages: libx 1.0 becomes 1.1. "
        "Next: where that is right, apt-get install --no-install-recommends other needs, and run again$"
    )
    with pytest.raises(LabError, match=wanted):
        apt("other", "needs")
    with pytest.raises(LabError, match="Unable to locate package nowhere"):
        apt("nowhere")


SIMULATED = """Reading package lists...
Inst libssl3 [3.0.15-1~deb12u1] (3.0.17-1~deb12u3 Debian-Security:12/oldstable-security [amd64])
Remv crun [1.8.1-1]
Purg old:i386 [1.0]
Inst openssl (3.0.17-1~deb12u3 Debian:12.12/oldstable [amd64]) []
Conf openssl (3.0.17-1~deb12u3 Debian:12.12/oldstable [amd64])
"""


def test_what_apt_simulates_is_read() -> None:
    assert _apt.acts(SIMULATED) == [
        Act("libssl3", "3.0.15-1~deb12u1", "3.0.17-1~deb12u3"),
        Act("crun", "1.8.1-1", ""),
        Act("old:i386", "1.0", ""),
        Act("openssl", "", "3.0.17-1~deb12u3"),
    ]
    assert [str(act) for act in _apt.acts(SIMULATED)] == [
        "libssl3 3.0.15-1~deb12u1 becomes 3.0.17-1~deb12u3",
        "crun 1.8.1-1 goes",
        "old:i386 1.0 goes",
        "openssl 3.0.17-1~deb12u3",
    ]


def test_packages_that_another_one_needs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get purge would take along what the user has installed since."""
    asked = []

    def get(*argv: str, **_more: t.Any) -> str:
        asked.append(argv)
        return "Purg podman [4.3]\nRemv toolbox [0.1]\nPurg runc [1.1]\n"

    monkeypatch.setattr(_apt, "_get", get)
    assert _apt.purge(["podman", "runc"]) == "podman, runc stay, because toolbox would go with them"
    assert asked == [("-s", "purge", "podman", "runc")]
    assert _apt.purge(["podman", "runc", "toolbox"]) == "" and asked[-1] == ("purge", "podman", "runc", "toolbox")


def test_a_version_that_changed_is_a_difference() -> None:
    before = {"packages": {"libx": "1.0", "gone": "2"}, "links": ["lo"]}
    after = {"packages": {"libx": "1.1", "podman": "4.3"}, "links": ["lo"]}
    assert _machine.difference(before, before) == []
    assert _machine.difference(before, after) == [
        "packages: libx was 1.0, is 1.1",
        "packages: gone was 2, is gone",
        "packages: podman 4.3 is new",
    ]
    assert all(_machine.snapshot()["packages"].values())


SOURCES = "deb [arch=amd64] https://pkg.example.com/apt any main\ndeb http://mirror.example.com/debian/ trixie main\n"


@pytest.mark.parametrize(
    "release, sources, expected",
    [
        ("ID=debian", SOURCES, "http://mirror.example.com/debian/"),
        ("ID=debian", "URIs: http://one.example.com/main-archive\n", "http://one.example.com/main-archive"),
        ("ID=ubuntu\nID_LIKE=debian", "deb http://archive.example.com/ubuntu noble main\n", _rootfs.DEBIAN),
        ("ID=debian", "# none\n", None),
    ],
)
def test_where_the_systems_of_the_hosts_come_from(
    release: str, sources: str, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ubuntu's archive has no Debian."""
    monkeypatch.delenv("NPU_LAB_MIRROR", raising=False)
    (tmp_path / "apt").mkdir()
    (tmp_path / "os-release").write_text("NAME=x\n%s\n" % release)
    (tmp_path / "apt" / "sources.list").write_text(sources)
    if expected:
        assert _rootfs.mirror(tmp_path) == expected
    else:
        with pytest.raises(LabError, match="^no Debian mirror in .* Next: NPU_LAB_MIRROR=http"):
            _rootfs.mirror(tmp_path)
    monkeypatch.setenv("NPU_LAB_MIRROR", "http://near.example.com/debian")
    assert _rootfs.mirror(tmp_path) == "http://near.example.com/debian"


class Lost:
    """A virtual machine that is lost a number of times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times
        self.calls: list[str] = []

    def up(self) -> float:
        self.calls.append("up")
        if len([call for call in self.calls if call == "up"]) <= self.times:
            (self.folder / "serial.log").write_text("booting\nKernel panic - not syncing: lost\n\n")
            raise LabError("ssh: exit 255: Connection timed out during banner exchange")
        return 1.0

    def exec(self, _words: str, _timeout: float) -> None:
        self.calls.append("exec")

    def down(self) -> None:
        self.calls.append("down")

    def running(self) -> bool:
        return False


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path, times: int) -> tuple[_demo_vm.Machine, Lost]:
    lost = Lost(folder, times)
    monkeypatch.setattr(_demo_vm, "Vm", lambda *_words, **_more: lost)
    found = _demo_vm.Machine()
    assert not found.starting(10)
    return found, lost


def test_a_machine_that_is_lost_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, lost = machine(monkeypatch, tmp_path, 2)
    assert (found.failed, lost.calls) == ("", ["up", "down", "up", "down", "up", "exec"])


@pytest.mark.parametrize("choice, code", [("", 1), ("1", 1), ("try", 0)])
def test_a_machine_that_stays_lost_is_named_with_its_console(
    choice: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, lost = machine(monkeypatch, tmp_path, 9)
    assert lost.calls == ["up", "down"] * _demo_vm.TRIES
    assert demo._second_act(t.cast(t.Any, None), found, choice) == code
    out = capsys.readouterr().out
    assert "== npu-vm failed: it did not come up in 3 tries: ssh: exit 255: Connection timed out during banner" in out
    assert "  | Kernel panic - not syncing: lost\n" in out and "The result of npu-a and npu-b stands. Next: " in out


@pytest.mark.parametrize("word, good", [("", True), ("0", True), ("1", True), ("try", True), ("no", False)])
def test_what_vm_may_be(word: str, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VM", word)
    if good:
        assert _demo_vm.choice() == word
    else:
        with pytest.raises(LabError, match=r"^VM is 'no'. Next: VM=1, VM=0"):
            _demo_vm.choice()


def test_a_qemu_that_is_not_known_is_said_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_demo_vm, "QEMU", tmp_path / "qemu")
    assert _demo_vm.obstacle({"qemu-system-x86": "1:7.2+dfsg-7+deb12u16"}) == ""
    assert _demo_vm.obstacle({"qemu-system-x86": "1:8.2.2+ds-0ubuntu1"}).startswith("qemu-system-x86 is 1:8.2.2")
    monkeypatch.setattr(_needs, "missing", lambda kube=True: ["podman"])
    monkeypatch.setattr(_needs, "missing_vm", lambda: ["qemu-system-x86"])
    monkeypatch.setattr(_apt, "plan", lambda names: [Act(name, "", "1:8.2") for name in names])
    names, planned, reason = demo._planned(True)
    assert (names, planned) == (["podman"], [Act("podman", "", "1:8.2")]) and "qemu-system-x86 is 1:8.2" in reason
    assert demo._planned(False) == (names, planned, "")


def test_a_second_run_that_changes_something_is_not_tried_again() -> None:
    calls: list[int] = []

    def act(error: type[LabError]) -> None:
        calls.append(1)
        raise error("no")

    for error, times in ((demo.Changed, 1), (LabError, 2)):
        with pytest.raises(error):
            demo._again(lambda error=error: act(error))  # type: ignore[misc]
        assert len(calls) == times
        calls.clear()


def test_waits_are_longer_on_a_loaded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base.os, "cpu_count", lambda: 2)
    for load, factor in ((0.5, 1.0), (5.0, 2.5), (99.0, 6.0)):
        monkeypatch.setattr(_base.os, "getloadavg", lambda load=load: (load, 0, 0))
        assert _base.patience() == factor
    monkeypatch.setattr(_base.os, "getloadavg", lambda: (4.0, 0, 0))
    began = time.monotonic()
    with pytest.raises(LabError, match="^it: not after"):
        _base.until(0.1, "it", lambda: False, 0.01)
    assert 0.2 <= time.monotonic() - began < 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_tells_of_everything_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with Signs(first=60, pause=0.01).ticking("building pause", 5):
        time.sleep(0.05)
    assert said.getvalue() == ""
    signs, end = Signs(first=0.1, beat=0.2, pause=0.01), time.monotonic() + 20
    with signs.ticking("building kube", 240), signs.ticking("first run", now=lambda: "Install"):
        while said.getvalue().count("\n") < 3 and time.monotonic() < end:
            time.sleep(0.02)
    head, *lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in said.getvalue().splitlines()]
    assert head == "building kube, about 240 s" and len(lines) >= 2
    told = r"first run: \d+ s, Install; building kube: \d+ s of about 240 s"
    assert all(re.fullmatch(told, line) for line in lines), lines


def test_signs_are_written_over_on_a_terminal_and_lines_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "20")
    signs = Signs(pause=0.01)
    with signs.ticking("building kube", 240):
        while "building" not in screen.getvalue():
            time.sleep(0.01)
        signs.tell("told")
    text = screen.getvalue()
    assert capsys.readouterr().out == "told\n"
    assert "\n" not in text and text.endswith("\r\033[K")
    assert {word[:15] for word in text.split("\r\033[K")} == {"", "building kube: "}
    assert max(map(len, text.split("\r\033[K"))) <= 19


def test_the_demo_builds_nothing_that_only_tests_use() -> None:
    said = {
        target: subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("demo", "demo-down", "test-unit")
    }
    alone = "tests/tools/env.py --newest-alone\n"
    assert [target for target, text in said.items() if alone in text] == ["demo", "demo-down"], said


def test_every_program_and_system_of_the_lab_has_an_estimate() -> None:
    systems = {"rootfs-" + name for name in _rootfs.FLAVOURS}
    assert {*demo.BUILDS, *demo.VM_BUILDS, *_go.PROGRAMS, *systems} <= set(_base.SECONDS)


def test_the_estimate_tells_each_act_and_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_built", lambda name: name != "kube")
    monkeypatch.setattr(demo, "unbuilt", lambda names: {"vm-root": 60} if "vm-root" in names else {})
    hosts = "about 6 minutes until pods see the NPUs of the hosts"
    assert demo.estimate(False) == hosts + ", on two idle cores; to build: kube 240 s"
    more = ", about 4 more for the virtual machine, on two idle cores; to build: kube 240 s, vm-root 60 s"
    assert demo.estimate(True) == hosts + more
    monkeypatch.setattr(demo, "is_built", lambda name: True)
    assert demo.estimate(False).endswith("nothing to build")


def test_a_program_that_was_built_of_other_sources_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (_base, _go):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    for name in demo.BUILDS:
        (tmp_path / "lab" / (name + "-0123456789abcdef")).mkdir(parents=True)
    assert sorted(demo._to_build(demo.BUILDS)) == ["containerd", "kube", "npu-device-plugin"]


def shown(*lines: str) -> str:
    """What the JSON callback says of validate.yml."""
    task = {"hosts": {"npu-a": {"changed": False, "lines": list(lines)}}}
    plays = [{"tasks": [{"hosts": {"npu-a": {"changed": False}}}, task]}, {"tasks": []}]
    return "a line before\n" + json.dumps({"plays": plays})


def test_the_screen_of_validate_is_what_the_demo_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(0, shown("host   checks", "npu-a  51 ok", "", "1 host: 1 ok")), (2, shown("npu-a  1 failed"))]
    answers += [(0, shown()), (4, "no JSON")]
    monkeypatch.setattr(demo, "playbook", lambda *_words, **_more: answers.pop(0))
    assert demo.proof() == "host   checks\nnpu-a  51 ok\n1 host: 1 ok"
    with pytest.raises(LabError, match=r"^validate.yml failed \(exit 2\):\nnpu-a  1 failed\nNext: see "):
        demo.proof()
    with pytest.raises(LabError, match=r"^validate.yml failed \(exit 0\)"):
        demo.proof()
    with pytest.raises(LabError, match=r"^validate.yml gave no result \(exit 4\)"):
        demo.proof()


def test_a_demo_that_is_stopped_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def up() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "up", up)
    assert demo.main([]) == 130
    assert capsys.readouterr().err == "\nstopped. Next: make demo to go on, or make demo-down to take everything back\n"


def test_a_sign_of_life_has_the_progress_that_a_task_tells() -> None:
    task = "TASK [rebellions.npu.rbln_driver : Change | Get ready] ***\n"
    progress = "npu-a: driver none -> 3.2.2 (3 s)\n"
    assert demo.doing([]) == demo.doing(["PLAY [Hosts]\n", "\n"]) == "starting"
    results = ["ok: [npu-a]\n", "included: change.yml for npu-a\n", "skipping: [npu-b]\n", "fatal: [npu-b]: FAILED!\n"]
    assert demo.doing([progress, task, *results]) == "Change | Get ready"
    assert demo.doing([task, progress, *results]) == "npu-a: driver none -> 3.2.2 (3 s)"
    wait = "validator: 0 of 1 nodes ready, 10 of 300 s: pod x: not ready. Next: Look at it.\n"
    assert demo.doing([task, wait]) == "validator: 0 of 1 nodes ready, 10 of 300 s: pod x: not ready"


def test_the_output_of_a_playbook_is_in_the_log_and_signs_of_life_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ansible-playbook"
    script = "import time; print('TASK [rbln_driver : Install] ***', flush=True); time.sleep(0.5); print('PLAY RECAP')"
    program.write_text('#!/bin/sh\nexec %s -c "%s"\n' % (sys.executable, script))
    program.chmod(0o755)
    monkeypatch.setattr(demo, "LOG", tmp_path / "log" / "demo.log")
    monkeypatch.setattr(demo, "ticking", Signs(first=0.1, beat=0.1, pause=0.02).ticking)
    monkeypatch.setattr(demo, "STAGED", tmp_path)
    given: dict[str, str] = {}
    monkeypatch.setattr(demo, "environment", lambda **more: given.update(more) or {"PATH": str(tmp_path)})
    code, output = demo.playbook("site", what="first run")
    assert given["ANSIBLE_CALLBACKS_ENABLED"] == "rebellions.npu.rbln_report"
    assert given["RBLN_REPORT_PATH"] == str(demo.REPORTS)
    assert code == 0 and output == "TASK [rbln_driver : Install] ***\nPLAY RECAP\n"
    assert (tmp_path / "log" / "demo.log").read_text().endswith(output)
    told = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert told and all(re.fullmatch(r"first run: \d+ s, (starting|Install)", line) for line in told), told
    assert told[-1].endswith("Install"), told


def test_packages_that_could_not_be_removed_are_removed_by_the_next_demo_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """apt is busy at first, then another package needs them."""
    record, installed = tmp_path / "before.json", tmp_path / "installed.json"
    machine: dict[str, t.Any] = {"packages": {"podman": "4.3"}}

    class Down:
        def down(self) -> list[str]:
            if record.exists():
                record.rename(_machine.LAST)
            return []

        def hosts(self) -> list[str]:
            return []

    def busy(_names: t.Sequence[str]) -> str:
        raise LabError("apt-get purge: Could not get lock")

    def removed(_names: t.Sequence[str]) -> str:
        machine["packages"] = {}
        return ""

    monkeypatch.setattr(_machine, "RECORD", record)
    monkeypatch.setattr(_machine, "LAST", tmp_path / "last.json")
    monkeypatch.setattr(_machine, "snapshot", lambda: machine)
    monkeypatch.setattr(demo, "INSTALLED", installed)
    for name in ("FOLDER", "KIND_CONFIG"):
        monkeypatch.setattr(demo, name, tmp_path / name)
    monkeypatch.setattr(_apt, "FOLDER", tmp_path / "apt")
    monkeypatch.setattr(demo, "Lab", Down)
    monkeypatch.setattr(_demo_vm, "down", lambda: None)
    record.write_text('{"packages": {}}')
    installed.write_text('["podman"]')
    stays = "podman stay, because toolbox would go with them"
    tries: list[tuple[t.Callable[[t.Sequence[str]], str], int]] = [(busy, 1), (lambda _names: stays, 1), (removed, 0)]
    for purge, code in tries:
        monkeypatch.setattr(_apt, "purge", purge)
        assert demo.main(["down"]) == code
    assert capsys.readouterr().out.rstrip().endswith("nothing differs")
    assert demo.main(["down"]) == 0 and "nothing is recorded to restore" in capsys.readouterr().out
