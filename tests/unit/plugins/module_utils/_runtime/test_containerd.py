# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd of the host: state, and what would have to change. Cases D06, R01, R02, R04..R07, R09, R21."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._runtime import grpc
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import version_in
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import (
    FRESH,
    NOW,
    STALE,
    Machine,
    case,
    only,
    whats,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import replay

ROOT = "/etc/containerd/config.toml"
V2 = '[plugins."io.containerd.grpc.v1.cri"]'
V3 = '[plugins."io.containerd.cri.v1.runtime"]'
UNION = 'cdi_spec_dirs = ["/opt/site/cdi", "/etc/cdi", "/var/run/cdi"]'


def look(
    root: Path, version: str, config: str | None = None, files: dict[str, str] | None = None, **options: Any
) -> dict[str, Any]:
    machine = Machine(root)
    machine.containerd(version, config)
    machine.kubelet()
    for path, text in (files or {}).items():
        machine.write(path, text)
    return only(machine.detect(**options))


@pytest.mark.parametrize(
    "line, version, key, state",
    [
        pytest.param(0, "1.6.20~ds1", (1, 6, 20), "unsupported", id="D06-containerd-no-cdi-1.6"),
        pytest.param(1, "1.7.27", (1, 7, 27), "off", id="D06-containerd-no-cdi-1.7"),
        pytest.param(2, "2.1.5", (2, 1, 5), "on_by_default", id="D06-containerd-no-cdi-2.1"),
    ],
)
def test_d06_versions(line: int, version: str, key: tuple[int, ...], state: str, tmp_path: Path) -> None:
    text = case("D06-containerd-no-cdi", "versions.txt").splitlines()[line]
    assert version_in(text) == version
    assert release_numbers(version) == key
    machine = Machine(tmp_path)
    machine.containerd(version, "version = 2\n%s\nenable_cdi = true\n" % V2 if state == "unsupported" else "")
    machine.answer(["/usr/bin/containerd", "--version"], text)
    machine.kubelet()
    found = only(machine.detect())
    assert (found["version"], found["cdi"]["state"]) == (version, state)
    if state == "unsupported":
        assert found["changes"] == []
        assert found["refusal"]["next_step"] == "upgrade containerd to 1.7 or newer"
        assert "containerd_no_cdi" in [problem["code"] for problem in machine.detect()["problems"]]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("containerd github.com/containerd/containerd/v2 v2.1.5 fcd43222d6b0\n", "2.1.5"),
        ("containerd github.com/k3s-io/containerd v1.7.23-k3s2 \n", "1.7.23-k3s2"),
        ("Docker version 28.2.2, build e6534b4\n", "28.2.2"),
        ("Docker version 20.10.24+dfsg1, build 5d6db84\n", "20.10.24+dfsg1"),
        ("crio version 1.30.4\nVersion:        1.30.4\n", "1.30.4"),
        ("podman version 5.4.2\n", "5.4.2"),
        ("segmentation fault\n", None),
        ("", None),
        (None, None),
    ],
)
def test_version_texts(text: str | None, expected: str | None) -> None:
    assert version_in(text) == expected


CHANGES = [
    pytest.param(
        "1.7.27", None, {}, [(ROOT, V2 + " enable_cdi = true")], (ROOT, "main"), None, id="1.7-without-a-file"
    ),
    pytest.param("1.7.27", "", {}, [(ROOT, V2 + " enable_cdi = true")], (ROOT, "main"), None, id="1.7-empty-file"),
    pytest.param(
        "1.7.27",
        case("R02-v1x-dropin-wipes-cri", "config.toml"),
        {},
        [(ROOT, V2 + " enable_cdi = true")],
        (ROOT, "main"),
        2,
        id="R02-v1x-dropin-wipes-cri-root-owns-the-table",
    ),
    pytest.param(
        "1.7.27",
        case("R02-v1x-dropin-wipes-cri", "config.toml"),
        {"/etc/containerd/conf.d/10-rbln.toml": "version = 2\n" + V2 + "\n  enable_unprivileged_ports = true\n"},
        [("/etc/containerd/conf.d/10-rbln.toml", V2 + " enable_cdi = true")],
        ("/etc/containerd/conf.d/10-rbln.toml", "main"),
        2,
        id="R02-v1x-dropin-wipes-cri-import-owns-the-table",
    ),
    pytest.param(
        "2.1.5",
        case("R04-v3-section-name", "config.toml"),
        {},
        [(ROOT, V3 + " enable_cdi = true")],
        (ROOT, "main"),
        3,
        id="R04-v3-section-name",
    ),
    pytest.param(
        "1.7.27",
        case("R06-commented-key", "config.toml"),
        {},
        [(ROOT, V2 + " enable_cdi = true")],
        (ROOT, "main"),
        2,
        id="R06-commented-key",
    ),
    pytest.param(
        "1.7.27",
        case("R07-existing-key", "config.toml"),
        {},
        [(ROOT, V2 + " enable_cdi = true"), (ROOT, V2 + " " + UNION)],
        (ROOT, "main"),
        2,
        id="R07-existing-key-1.7",
    ),
    pytest.param(
        "2.1.5",
        case("R07-existing-key", "config.toml"),
        {},
        [(ROOT, V2 + " enable_cdi = true"), (ROOT, V2 + " " + UNION)],
        (ROOT, "main"),
        2,
        id="R07-existing-key-2.1",
    ),
    pytest.param(
        "2.4.2",
        case("R07-existing-key", "config.toml"),
        {},
        [(ROOT, V2 + " " + UNION)],
        (ROOT, "main"),
        2,
        id="R07-existing-key-2.4-has-no-switch",
    ),
    pytest.param(
        "2.1.5",
        case("R01-imports-preserved", "config.toml"),
        {},
        [],
        (ROOT, "main"),
        2,
        id="R01-imports-preserved-nothing-to-do",
    ),
    pytest.param(
        "2.1.5",
        'version = 2\nimports = ["/srv/site/containerd/*.toml"]\n' + V2 + "\nenable_cdi = false\n",
        {"/srv/site/containerd/10-site.toml": "version = 2\n"},
        [(ROOT, V2 + " enable_cdi = true")],
        (ROOT, "main"),
        2,
        id="R01-imports-preserved-the-sites-directory-is-not-used",
    ),
    pytest.param(
        "2.1.5",
        'version = 2\nimports = ["/etc/containerd/config.d/*.toml"]\n' + V2 + "\nenable_cdi = false\n",
        {"/etc/containerd/config.d/10-site.toml": "version = 2\n"},
        [("/etc/containerd/config.d/99-rbln.toml", V2 + " enable_cdi = true")],
        ("/etc/containerd/config.d/99-rbln.toml", "dropin"),
        2,
        id="R01-imports-preserved-existing-directory-is-used",
    ),
    pytest.param(
        "2.1.5",
        'version = 2\nimports = ["/srv/site/containerd/*.toml"]\n',
        {"/srv/site/containerd/10-site.toml": "version = 2\n" + V2 + "\ncdi_spec_dirs = ['/opt/site/cdi']\n"},
        [("/srv/site/containerd/10-site.toml", V2 + " " + UNION)],
        ("/srv/site/containerd/10-site.toml", "main"),
        2,
        id="R01-imports-preserved-the-file-that-sets-it",
    ),
    pytest.param(
        "2.1.5",
        "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n",
        {"/etc/containerd/conf.d/zz-site.toml": "version = 3\n" + V3 + "\nenable_cdi = false\n"},
        [("/etc/containerd/conf.d/zzz-rbln.toml", V3 + " enable_cdi = true")],
        ("/etc/containerd/conf.d/zzz-rbln.toml", "dropin"),
        3,
        id="dropin-sorts-after-the-file-that-would-win",
    ),
    pytest.param(
        "2.1.5",
        case("R21-kubespray-overwrite", "config.toml"),
        {},
        [],
        (ROOT, "main"),
        3,
        id="R21-kubespray-overwrite-nothing-to-do",
    ),
    pytest.param(
        "2.1.5",
        case("R21-kubespray-overwrite", "config.toml") + "  enable_cdi = false\n",
        {},
        [("/etc/containerd/conf.d/99-rbln.toml", V3 + " enable_cdi = true")],
        ("/etc/containerd/conf.d/99-rbln.toml", "dropin"),
        3,
        id="R21-kubespray-overwrite-imported-dropin",
    ),
    pytest.param(
        "1.7.27",
        case("R09-disabled-cri", "config.toml"),
        {},
        [(ROOT, 'disabled_plugins without "cri"'), (ROOT, "version = 2"), (ROOT, V2 + " enable_cdi = true")],
        (ROOT, "main"),
        None,
        id="R09-disabled-cri-1.7",
    ),
    pytest.param(
        "2.1.5",
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]\n',
        {},
        [(ROOT, 'disabled_plugins without "io.containerd.grpc.v1.cri"')],
        (ROOT, "main"),
        2,
        id="R09-disabled-cri-2.1-full-name",
    ),
    pytest.param(
        "1.7.27",
        'disabled_plugins = ["aufs", "cri"]\n',
        {},
        [
            (ROOT, 'disabled_plugins without "cri"'),
            (ROOT, "version = 2"),
            (ROOT, 'disabled_plugins with "io.containerd.snapshotter.v1.aufs" in place of "aufs"'),
            (ROOT, V2 + " enable_cdi = true"),
        ],
        (ROOT, "main"),
        None,
        id="R09-disabled-cri-others-kept-under-their-full-names",
    ),
    pytest.param(
        "1.7.27", "version = 2\n" + V2 + "\nenable_cdi = true\n", {}, [], (ROOT, "main"), 2, id="1.7-already-on"
    ),
    pytest.param("2.1.5", None, {}, [], (ROOT, "main"), None, id="2.1-without-a-file"),
    pytest.param(
        "2.1.5", case("R05-v1-schema", "config.toml"), {}, [], (ROOT, "main"), 1, id="R05-v1-schema-untouched-above-2.0"
    ),
]


@pytest.mark.parametrize("version, config, files, changes, target, schema", CHANGES)
def test_what_would_have_to_change(
    version: str,
    config: str | None,
    files: dict[str, str],
    changes: list[tuple[str, str]],
    target: tuple[str, str],
    schema: int | None,
    tmp_path: Path,
) -> None:
    found = look(tmp_path, version, config, files)
    assert found["refusal"] is None
    assert whats(found) == changes
    assert (found["edit_target"]["path"], found["edit_target"]["kind"]) == target
    assert found["dialect"] == {"schema": schema, "format": "toml"}
    assert found["restart_unit"] == "containerd"
    assert all(change["why"] for change in found["changes"])


REFUSALS = [
    pytest.param(
        "1.7.27",
        case("R05-v1-schema", "config.toml"),
        "config schema 1; migrate first",
        "version 2",
        id="R05-v1-schema",
    ),
    pytest.param(
        "2.1.5",
        case("R05-v1-schema", "config.toml").replace("oom_score = 0", "disabled_plugins = ['cri']"),
        "config schema 1",
        "version 3",
        id="R05-v1-schema-2.1",
    ),
    pytest.param("1.7.27", "version = = 2\n[plugins\n", "line 1, column 11", "repair the file", id="malformed"),
    pytest.param(
        "1.7.27", "version = 3\n", "containerd 1.x does not read version 3", "repair the file", id="1.7-version-3"
    ),
    pytest.param(
        "2.1.5", 'version = 2\ndisabled_plugins = ["cri"]\n', "'cri'", "repair the file", id="short-name-in-version-2"
    ),
    pytest.param(
        "2.1.5",
        "version = 3\n%s\nenable_cdi = 'yes'\n" % V3,
        "enable_cdi is not a boolean",
        "repair the file",
        id="wrong-type",
    ),
    pytest.param("what is this", "version = 2\n", "could not be detected", "--version", id="version-not-known"),
]


@pytest.mark.parametrize("version, config, reason, next_step", REFUSALS)
def test_refusals_write_nothing(version: str, config: str, reason: str, next_step: str, tmp_path: Path) -> None:
    found = look(tmp_path, version, config)
    assert found["changes"] == []
    assert reason in found["refusal"]["reason"]
    assert next_step in found["refusal"]["next_step"]


def test_r05_above_2_0_warns(tmp_path: Path) -> None:
    found = look(tmp_path, "2.1.5", case("R05-v1-schema", "config.toml"))
    assert found["cdi"]["state"] == "on_by_default"
    assert any("schema 1" in warning and "containerd config migrate" in warning for warning in found["warnings"])


@pytest.mark.parametrize("version, table", [("1.7.27", V2), ("2.1.5", V3)])
def test_wanted_directory_that_is_no_default(version: str, table: str, tmp_path: Path) -> None:
    found = look(tmp_path, version, None, spec_dir="/opt/cdi")
    value = 'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/opt/cdi"]'
    if version.startswith("1"):
        assert whats(found) == [(ROOT, table + " enable_cdi = true"), (ROOT, "%s %s" % (table, value))]
    else:
        dropin = "/etc/containerd/conf.d/99-rbln.toml"
        assert whats(found) == [
            (ROOT, 'imports with "/etc/containerd/conf.d/*.toml"'),
            (dropin, "%s %s" % (table, value)),
        ]
        assert found["edit_target"] == {"path": dropin, "kind": "dropin"}


def test_files_that_nothing_imports_are_not_woken(tmp_path: Path) -> None:
    config = "version = 3\nimports = []\n"
    found = look(
        tmp_path,
        "2.1.5",
        config,
        {"/etc/containerd/conf.d/old.toml": "version = 3\noom_score = -999\n"},
        spec_dir="/opt/cdi",
    )
    assert found["edit_target"] == {"path": ROOT, "kind": "main"}
    assert whats(found) == [(ROOT, V3 + ' cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/opt/cdi"]')]
    assert "would bring its other files into effect" in found["changes"][0]["why"]


def test_run_and_var_run_are_one_directory(tmp_path: Path) -> None:
    found = look(tmp_path, "2.1.5", "version = 3\n%s\ncdi_spec_dirs = ['/run/cdi']\n" % V3)
    assert found["changes"] == []
    assert found["cdi"] == {"state": "on_by_default", "spec_dirs": ["/run/cdi"], "source": "own reading of 1 files"}


def test_the_programs_own_loader_is_the_judge(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", "version = 2\n", "/usr/bin/containerd --config=/srv/c.toml")
    machine.kubelet()
    machine.write("/srv/c.toml", "version = 2\n")
    dump = 'version = 2\n[plugins]\n  %s\n    enable_cdi = true\n    cdi_spec_dirs = ["/j"]\n' % V2
    machine.answer(["/usr/bin/containerd", "--config", "/srv/c.toml", "config", "dump"], dump)
    found = only(machine.detect(spec_dir="/j"))
    assert found["main_config"] == "/srv/c.toml"
    assert found["cdi"] == {"state": "on", "spec_dirs": ["/j"], "source": "containerd config dump"}
    assert found["changes"] == []
    machine.answer(
        ["/usr/bin/containerd", "--config", "/srv/c.toml", "config", "dump"],
        "",
        1,
        "containerd: failed to load TOML: (6, 5): already defined\n",
    )
    found = only(machine.detect())
    assert found["cdi"]["state"] == "unknown"
    assert "already defined" in found["refusal"]["reason"]


@pytest.mark.parametrize("started, expected", [(STALE, True), (None, False)], ids=["older-than-its-file", "newer"])
def test_a_lost_restart_is_found_again(started: float | None, expected: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", "version = 2\n%s\nenable_cdi = true\n" % V2)
    machine.kubelet()
    if started is not None:
        machine.process(100, "/usr/bin/containerd", started)
    found = only(machine.detect())
    assert found["process_stale"] is expected
    assert found["config_newest"] is not None and found["process_started"] is not None


@pytest.mark.parametrize("ending", ["conf", "env"])
def test_a_restart_that_the_proxies_of_a_unit_have_not_got_is_found_again(ending: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27")
    machine.kubelet()
    path = "/etc/systemd/system/containerd.service.d/zz-rbln-proxy." + ending
    machine.write(path, "x", age=1000)
    assert only(machine.detect())["process_stale"] is False
    machine.write(path, "x", age=0)
    assert only(machine.detect())["process_stale"] is True
    machine.write(path, "x", age=-5000)
    assert only(machine.detect())["process_stale"] is False


def test_what_containerd_reads_and_toml_forbids_is_no_fault_of_an_unchanged_host(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    table = "[plugins.'io.containerd.grpc.v1.cri']\n  enable_cdi = %s\n"
    machine.containerd("1.7.27", "version = 2\n%s\n  sandbox_image = 'x'\n%s" % (V2, table % "true"))
    machine.kubelet()
    dump = ["/usr/bin/containerd", "--config", ROOT, "config", "dump"]
    machine.answer(dump, "version = 2\n" + table % "true" + '  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n')
    found = only(machine.detect())
    assert (found["cdi"]["state"], found["changes"], found["refusal"]) == ("on", [], None)
    assert any("containerd reads what a strict TOML reader refuses" in warning for warning in found["warnings"])
    machine.answer(dump, "version = 2\n" + table % "false" + '  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n')
    refusal = only(machine.detect())["refusal"]
    assert "containerd 1.7.27 reads it all the same" in refusal["reason"] and "line 4" in refusal["reason"]
    assert refusal["next_step"] == "make it valid TOML, then run again"


def test_a_file_from_the_future_proves_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27")
    machine.kubelet()
    machine.write(ROOT, "version = 2\n", age=-5000)
    found = only(machine.detect())
    assert found["process_stale"] is None
    assert any("future" in warning for warning in found["warnings"])
    assert found["config_newest"] == pytest.approx(NOW + 5000, abs=1)


def test_systemds_clock_serves_when_proc_is_hidden(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", "version = 2\n")
    machine.unit(
        "containerd.service", "/usr/bin/containerd", pid=999, ExecMainStartTimestampMonotonic=str(int(FRESH * 1e6))
    )
    found = only(machine.detect())
    assert found["process_started"] == pytest.approx(NOW - 500, abs=0.1)
    assert found["process_stale"] is False


def test_a_stopped_containerd_has_no_process(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", "version = 2\n")
    machine.unit("containerd.service", "/usr/bin/containerd", active="failed")
    machine.real("/proc/100/cmdline").unlink()
    found = only(machine.detect())
    assert (found["unit_state"], found["process_started"], found["process_stale"]) == ("failed", None, None)


def test_socket_and_config_come_from_the_flags_of_the_unit(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", None, "/usr/bin/containerd -c /srv/c.toml -a /srv/c.sock")
    machine.write("/srv/c.toml", 'version = 2\n[grpc]\naddress = "/not/this.sock"\n')
    found = only(machine.detect())
    assert (found["socket"], found["socket_exists"], found["main_config"]) == ("/srv/c.sock", False, "/srv/c.toml")
    assert found["unit_flags"] == ["-c", "/srv/c.toml", "-a", "/srv/c.sock"]
    machine.unit("containerd.service", "/usr/bin/containerd -c /srv/c.toml", pid=100)
    machine.process(100, "/usr/bin/containerd -c /srv/c.toml")
    assert only(machine.detect())["socket"] == "/not/this.sock"


def test_no_command_runs_below_another_root_and_the_package_tells_the_version(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("9.9.9", "version = 2\n")
    machine.write("/lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n")
    found = only(machine.detect(commands=False))
    assert machine.asked == []
    assert (found["version"], found["cdi"]["state"], found["unit_state"]) == (None, "unknown", "unknown")
    machine.write(
        "/var/lib/dpkg/status", "Package: containerd\nStatus: install ok installed\nVersion: 1.7.24~ds1-6+b4\n"
    )
    found = only(machine.detect(commands=False))
    assert (found["version"], found["cdi"]["state"]) == ("1.7.24~ds1-6+b4", "off")


def test_denied_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    machine = Machine(tmp_path)
    machine.containerd("2.1.5", "version = 3\n")
    machine.kubelet()
    real_open = builtins.open

    def guarded(path: Any, *args: Any, **named: Any) -> Any:
        if str(path).endswith("/etc/containerd/config.toml"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **named)

    monkeypatch.setattr(builtins, "open", guarded)
    found = only(machine.detect())
    assert found["cdi"]["state"] == "unknown"
    assert "Permission denied" in found["refusal"]["reason"]


def answer_of(version: str) -> bytes:
    """What containerd sends for the call Version of its own API."""
    field = b"\x0a" + bytes((len(version),)) + version.encode() + b"\x12\x03abc"
    body = b"\0" + struct.pack(">I", len(field)) + field
    trailer = grpc.frame(grpc.HEADERS, grpc.END_HEADERS | grpc.END_STREAM, 1, b"x")
    return grpc.frame(grpc.SETTINGS, 0, 0) + grpc.frame(grpc.DATA, 0, 1, body) + trailer


@pytest.mark.parametrize(
    "said, pid, file, version",
    [
        ("v1.7.24~ds1", 0, "/usr/bin/containerd", None),
        ("2.1.5", 0, "/usr/bin/containerd", None),
        # The socket belongs to another process, an upgrade has replaced the file, and answers without a version.
        ("v1.7.24", 1, "/usr/bin/containerd", "2.0.9"),
        ("v1.7.24", 0, "/usr/bin/containerd (deleted)", "2.0.9"),
        ("v1.7.24", 0, "/opt/other/containerd", "2.0.9"),
        ("unknown", 0, "/usr/bin/containerd", "2.0.9"),
        ("", 0, "/usr/bin/containerd", "2.0.9"),
    ],
)
def test_the_running_process_tells_its_version(
    said: str, pid: int, file: str, version: str | None, tmp_path: Path
) -> None:
    """The program is started only where its process is not known to be of the same file."""
    machine = Machine(tmp_path)
    machine.program("/usr/bin/containerd", "containerd github.com/containerd/containerd v2.0.9 abc\n")
    machine.unit("containerd.service", "/usr/bin/containerd", pid=os.getpid() + pid)
    machine.process(os.getpid() + pid, "/usr/bin/containerd", file=file)
    with replay(machine.real("/run/containerd/containerd.sock"), answer_of(said)):
        found = machine.detect()["runtimes"]
    assert [one["version"] for one in found] == [version or said.lstrip("v")]
    asked = [argv[1:] for argv in machine.asked if argv[0] == "/usr/bin/containerd"]
    assert (("--version",) in asked) is bool(version)
