# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units from systemctl and from files say the same; processes have a start time."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.proc import ProcessTable, boot_time, start_ticks
from ansible_collections.rebellions.npu.plugins.module_utils._host.systemd import (
    ask_units,
    parse_show,
    read_units,
    service_settings,
    unit_from_files,
    units_there,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import BOOT, NOW, UPTIME, Machine

SHOW = """\
MainPID=812
ExecMainStartTimestampMonotonic=12345678
ExecStart={ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd -H fd:// $DOCKER_OPTS --x=${ONE} ${NONE} ; ignore_errors=no ; start_time=[Sat] ; pid=812 }
Environment=ONE=1 "TWO=two words"
EnvironmentFiles=/etc/default/docker (ignore_errors=yes)
Id=docker.service
LoadState=loaded
ActiveState=active
FragmentPath=/lib/systemd/system/docker.service
DropInPaths=/etc/systemd/system/docker.service.d/a.conf /run/systemd/system/docker.service.d/b.conf

Id=containerd.service
LoadState=not-found
ActiveState=inactive
MainPID=0
ExecMainStartTimestampMonotonic=0
"""  # noqa: E501


def test_systemctl_show_of_two_units(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/etc/default/docker", '# site\nDOCKER_OPTS="--config-file /srv/d.json --debug"\n')
    found = parse_show(machine.host(), SHOW, ["docker.service", "containerd.service"])
    docker = found["docker.service"]
    assert docker.loaded and docker.active and docker.main_pid == 812
    assert docker.started_monotonic == 12.345678
    assert docker.argv == ("/usr/bin/dockerd", "-H", "fd://", "--config-file", "/srv/d.json", "--debug", "--x=1")
    assert docker.files == (
        "/lib/systemd/system/docker.service",
        "/etc/systemd/system/docker.service.d/a.conf",
        "/run/systemd/system/docker.service.d/b.conf",
    )
    assert not found["containerd.service"].loaded
    assert found["containerd.service"].started_monotonic is None


def test_an_answer_with_other_units_than_asked_is_not_believed(tmp_path: Path) -> None:
    assert parse_show(Machine(tmp_path).host(), SHOW, ["docker.service"]) == {}


def test_one_command_for_all_units(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.unit("containerd.service", "/usr/bin/containerd")
    found = read_units(machine.host(), ["containerd.service", "docker.service"], 5.0)
    assert len(machine.asked) == 1
    assert found["containerd.service"].argv == ("/usr/bin/containerd",)
    assert not found["docker.service"].loaded


def test_only_units_that_may_be_there_are_asked_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/usr/lib/systemd/system/a.service", "")
    machine.write("/run/systemd/generator.late/b.service", "")
    machine.write("/etc/systemd/system/c.service.d/x.conf", "")
    machine.write("/usr/lib/systemd/system/d@.service", "")
    names = ["a.service", "b.service", "c.service", "d@1.service", "e.service"]
    assert units_there(machine.host(), names) == names[:4]
    # What cannot be read hides units: then all are asked for.
    assert units_there(Denying(str(tmp_path)), names) == names


class Denying(Host):
    """A host with a directory that cannot be read."""

    def listdir(self, path: str) -> Probe:
        return Probe(DENIED) if path == "/run/systemd/generator" else super().listdir(path)


def test_nothing_is_asked_for_no_unit(tmp_path: Path) -> None:
    """systemctl shows itself when it gets no name."""
    machine = Machine(tmp_path)
    assert ask_units(machine.host(), [], 5.0).value == {} and machine.asked == []
    assert not read_units(machine.host(), ["x.service"], 5.0, ask_units(machine.host(), [], 5.0))["x.service"].loaded


def test_unit_files_with_drop_ins(tmp_path: Path) -> None:
    machine = Machine(tmp_path, systemd=False)
    machine.write(
        "/usr/lib/systemd/system/x.service",
        "[Unit]\nExecStart=/no\n[Service]\nExecStart=/usr/bin/x --old\nEnvironment=A=1 B=2\n",
    )
    machine.write("/etc/default/x", "OPTS='--config /etc/x.toml'\n;no=1\n")
    machine.write(
        "/etc/systemd/system/x.service.d/20-b.conf",
        '[Service]\nExecStart=\nExecStart=-/usr/bin/x $OPTS \\\n# between\n  --a=${A} --b "two words"\n',
    )
    machine.write("/usr/lib/systemd/system/x.service.d/20-b.conf", "[Service]\nExecStart=/hidden\n")
    machine.write(
        "/run/systemd/system/x.service.d/10-a.conf", "[Service]\nEnvironmentFile=-/etc/default/x\nEnvironment=A=7\n"
    )
    found = read_units(machine.host(), ["x.service"], 5.0)["x.service"]
    assert found.argv == ("/usr/bin/x", "--config", "/etc/x.toml", "--a=7", "--b", "two words")
    assert found.dropins == ("/run/systemd/system/x.service.d/10-a.conf", "/etc/systemd/system/x.service.d/20-b.conf")
    assert found.loaded
    assert found.active_state == "", "a file does not say what runs"


def test_nearer_unit_file_wins_and_masked_is_not_loaded(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/lib/systemd/system/y.service", "[Service]\nExecStart=/far\n")
    machine.write("/etc/systemd/system/y.service", "[Service]\nExecStart=/near\n")
    assert unit_from_files(machine.host(), "y.service").argv == ("/near",)
    machine.write("/dev/null", "")
    machine.write("/lib/systemd/system/z.service", "[Service]\nExecStart=/far\n")
    (tmp_path / "etc/systemd/system/z.service").symlink_to("/dev/null")
    assert not unit_from_files(machine.host(), "z.service").loaded
    assert not unit_from_files(machine.host(), "absent.service").loaded


@pytest.mark.parametrize(
    "line, argv",
    [
        (
            "/usr/bin/x --a=%t/x.sock --b=%S/k 100%% %n %p",
            ("/usr/bin/x", "--a=/run/x.sock", "--b=/var/lib/k", "100%", "x.service", "x"),
        ),
        ("/usr/bin/x --name=%H --short=%l", ("/usr/bin/x", "--name=host-a.example", "--short=host-a")),
        ("@/usr/bin/x shown --a", ("/usr/bin/x", "--a")),
        ("-/usr/bin/x e\\x20f g\\ h", ("/usr/bin/x", "e f", "g h")),
        ('/usr/bin/x $$HOME ${A}b $B "${B}"', ("/usr/bin/x", "$HOME", "1b", "2", "3", "2 3")),
        ("/usr/bin/x $O", ("/usr/bin/x", "--c=d")),
    ],
)
def test_a_command_of_a_file_is_expanded_as_systemd_does(line: str, argv: tuple[str, ...], tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/etc/hostname", "host-a.example\n")
    machine.write("/etc/x1.env", "O=--c=d\n")
    machine.write(
        "/etc/systemd/system/x.service",
        '[Service]\nEnvironment=A=1 "B=2 3"\nEnvironmentFile=-/etc/x*.env\nExecStart=%s\n' % line,
    )
    assert unit_from_files(machine.host(), "x.service").argv == argv


def test_masked_without_dev_null_and_by_an_empty_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for name in ("y", "z"):
        machine.write("/lib/systemd/system/%s.service" % name, "[Service]\nExecStart=/far\n")
    machine.write("/etc/systemd/system/y.service", "")
    (tmp_path / "etc/systemd/system/z.service").symlink_to("/dev/null")
    assert not unit_from_files(machine.host(), "y.service").loaded
    assert not unit_from_files(machine.host(), "z.service").loaded


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[Service]\nExecStart=/a \\\n  b\n", [("ExecStart", "/a    b")]),
        ("[Service]\n# ExecStart=/no\n;ExecStart=/no\nExecStart = /a\n", [("ExecStart", "/a")]),
        ("[Install]\nExecStart=/no\n", []),
        ("[Service]\nExecStart=/a \\", [("ExecStart", "/a")]),
    ],
)
def test_service_settings(text: str, expected: list[tuple[str, str]]) -> None:
    assert service_settings(text) == expected


def test_processes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(42, "/usr/bin/containerd -c /x", after_boot=250.0)
    machine.process(7, "/usr/bin/other")
    machine.write("/proc/9/cmdline", "")
    table = ProcessTable(machine.host())
    found = table.get(42)
    assert found is not None
    assert found.argv == ("/usr/bin/containerd", "-c", "/x")
    assert found.started == pytest.approx(NOW - UPTIME + 250.0, abs=0.02)
    assert table.get(9) is None and table.get(1000) is None
    assert table.find("containerd") == found
    assert table.find("containerd", lambda argv: "/y" in argv) is None


def test_a_process_of_a_container_is_not_the_hosts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(42, "/usr/bin/containerd")
    for pid, namespace in ((1, "mnt:[1]"), (42, "mnt:[2]")):
        (tmp_path / ("proc/%d/ns" % pid)).mkdir(parents=True)
        (tmp_path / ("proc/%d/ns/mnt" % pid)).symlink_to(namespace)
    assert ProcessTable(machine.host()).find("containerd") is None


def test_boot_time_by_whole_seconds_when_the_uptime_is_another_machines(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert boot_time(machine.host()) == (pytest.approx(NOW - UPTIME, abs=0.02), 0.05)
    assert boot_time(machine.host(now=NOW + 5000)) == (BOOT, 1.0)
    machine.write("/proc/stat", "cpu\n")
    machine.write("/proc/uptime", "x\n")
    assert boot_time(machine.host()) == (None, 1.0)


def test_start_ticks_after_a_name_with_parentheses() -> None:
    assert start_ticks("12 (a b) c)) S " + " ".join(str(number) for number in range(4, 30))) == 22
    assert start_ticks("12 (x) S 1 2") is None
    assert start_ticks("") is None
