# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detection and writer agree.

The writer edits the files that detection names, and then detection wants nothing more.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.file_set import PLANNERS, present
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import STALE, Machine, case

ROOT = "/etc/containerd/config.toml"
V2 = '[plugins."io.containerd.grpc.v1.cri"]\n'
V3 = "[plugins.'io.containerd.cri.v1.runtime']\n"
RANCHER = "/var/lib/rancher/k3s/agent/etc/containerd/"


def containerd(machine: Machine, version: str, config: str | None, files: dict[str, str]) -> None:
    machine.containerd(version, config)
    machine.kubelet()
    for path, text in files.items():
        machine.write(path, text)


def docker(machine: Machine, version: str, config: str | None, files: dict[str, str]) -> None:
    machine.program("/usr/bin/dockerd", "Docker version %s, build abc\n" % version)
    machine.unit("docker.service", "/usr/bin/dockerd -H fd://")
    if config is not None:
        machine.write("/etc/docker/daemon.json", config)


def crio(machine: Machine, version: str, config: str | None, files: dict[str, str]) -> None:
    machine.program("/usr/bin/crio", "crio version %s\n" % version)
    machine.unit("crio.service", "/usr/bin/crio")
    for path, text in files.items():
        machine.write(path, text)


def k3s(machine: Machine, version: str, config: str | None, files: dict[str, str]) -> None:
    machine.program("/var/lib/rancher/k3s/data/current/bin/containerd", "containerd x v%s y\n" % version)
    machine.unit("k3s.service", "/usr/local/bin/k3s server")
    machine.write(RANCHER + "config.toml", config or "")
    for path, text in files.items():
        machine.write(path, text)


def k0s(machine: Machine, version: str, config: str | None, files: dict[str, str]) -> None:
    machine.program("/var/lib/k0s/bin/containerd", "containerd x v%s y\n" % version)
    machine.unit("k0sworker.service", "/usr/local/bin/k0s worker")
    machine.write("/etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n" + (config or ""))
    for path, text in files.items():
        machine.write(path, text)


SITE = '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n'
HOSTS: list[Any] = [
    pytest.param(containerd, "1.7.27", None, {}, id="1.7-without-a-file"),
    pytest.param(containerd, "1.7.27", "", {}, id="1.7-empty"),
    pytest.param(
        containerd, "1.7.27", case("R02-v1x-dropin-wipes-cri", "config.toml"), {}, id="R02-v1x-dropin-wipes-cri"
    ),
    pytest.param(
        containerd,
        "1.7.27",
        case("R02-v1x-dropin-wipes-cri", "config.toml"),
        {"/etc/containerd/conf.d/10-rbln.toml": "version = 2\n" + V2 + "enable_unprivileged_ports = true\n"},
        id="R02-v1x-dropin-wipes-cri-import",
    ),
    pytest.param(containerd, "2.1.5", case("R04-v3-section-name", "config.toml"), {}, id="R04-v3-section-name"),
    pytest.param(containerd, "2.1.5", case("R06-commented-key", "config.toml"), {}, id="R06-commented-key"),
    pytest.param(containerd, "1.7.27", case("R07-existing-key", "config.toml"), {}, id="R07-existing-key-1.7"),
    pytest.param(containerd, "2.1.5", case("R07-existing-key", "config.toml"), {}, id="R07-existing-key-2.1"),
    pytest.param(containerd, "2.4.2", case("R07-existing-key", "config.toml"), {}, id="R07-existing-key-2.4"),
    pytest.param(containerd, "1.7.27", case("R09-disabled-cri", "config.toml"), {}, id="R09-disabled-cri-1.7"),
    pytest.param(containerd, "2.1.5", case("R09-disabled-cri", "config.toml"), {}, id="R09-disabled-cri-2.1"),
    pytest.param(containerd, "1.7.27", 'disabled_plugins = ["aufs", "cri"]\n', {}, id="R09-disabled-cri-others-kept"),
    pytest.param(
        containerd,
        "2.1.5",
        'version = 2\nimports = ["/srv/site/containerd/*.toml"]\n' + V2 + "enable_cdi = false\n",
        {"/srv/site/containerd/10-site.toml": "version = 2\n"},
        id="R01-imports-preserved",
    ),
    pytest.param(
        containerd,
        "2.1.5",
        case("R21-kubespray-overwrite", "config.toml") + "  enable_cdi = false\n",
        {},
        id="R21-kubespray-overwrite",
    ),
    pytest.param(
        containerd,
        "2.1.5",
        "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n",
        {"/etc/containerd/conf.d/zz-site.toml": "version = 3\n" + V3 + "enable_cdi = false\n"},
        id="dropin-after-the-site",
    ),
    pytest.param(docker, "26.1.4", case("R15-daemon-json-merge", "daemon.json"), {}, id="R15-daemon-json-merge"),
    pytest.param(docker, "27.5.1", None, {}, id="docker-without-a-file"),
    pytest.param(docker, "28.3.0", '{"features": {"cdi": false}}', {}, id="R16-docker-feature-key"),
    pytest.param(docker, "28.3.0", '{"cdi-spec-dirs": ["/opt/cdi"]}', {}, id="docker-other-directories"),
    pytest.param(crio, "1.30.4", None, {"/etc/crio/crio.conf": SITE}, id="crio-main-file"),
    pytest.param(
        crio,
        "1.30.4",
        None,
        {"/etc/crio/crio.conf.d/99-rbln.conf": case("R19-crio-no-enable-key", "99-rbln.conf")},
        id="R19-crio-no-enable-key",
    ),
    pytest.param(
        k3s,
        "2.0.5-k3s1",
        case("R12-k3s-v3-template", "config.toml") + V3 + "enable_cdi = false\n",
        {},
        id="R12-k3s-v3-template",
    ),
]


def selected(machine: Machine, spec_dir: str) -> dict[str, Any]:
    return next(item for item in machine.detect(spec_dir=spec_dir)["runtimes"] if item["selected"])


def agree(machine: Machine, spec_dir: str) -> None:
    before = selected(machine, spec_dir)
    wanted = {change["path"] for change in before["changes"]}
    assert wanted and before["refusal"] is None
    paths = set(before["config_files"]) | wanted | {before["main_config"], before["edit_target"]["path"]}
    read = {
        path: Source(path, machine.real(path).read_bytes() if machine.real(path).exists() else None)
        for path in paths
        if path
    }
    made = PLANNERS[before["name"]](before, read, [spec_dir])
    assert {item.path for item in made.files} == wanted
    for item in made.files:
        machine.write(item.path, (item.new or b"").decode("utf-8"))
    after = selected(machine, spec_dir)
    assert (after["changes"], after["refusal"]) == ([], None)
    assert after["cdi"]["state"] in ("on", "on_by_default")
    assert after["cri_enabled"] is not False


@pytest.mark.parametrize("kind, version, config, files", HOSTS)
def test_what_is_written_is_what_was_wanted(
    kind: Any, version: str, config: str | None, files: dict[str, str], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    kind(machine, version, config, files)
    agree(machine, "/var/run/cdi")


@pytest.mark.parametrize("version", ["1.7.27", "2.1.5", "2.4.2"])
@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "version = 2\n",
        "version = 2\n" + V2 + "sandbox_image = 'x'\n",
        "version = 2\nimports = ['/srv/c/*.toml']\n",
    ],
)
def test_a_directory_that_is_no_default(version: str, config: str | None, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    containerd(machine, version, config, {})
    agree(machine, "/opt/npu/cdi")


@pytest.mark.parametrize("name, target", [("old.toml", ROOT), ("99-rbln.toml", "/etc/containerd/conf.d/99-rbln.toml")])
def test_files_that_nothing_imports(name: str, target: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    containerd(machine, "2.1.5", "version = 3\n", {"/etc/containerd/conf.d/" + name: "version = 3\n"})
    assert selected(machine, "/opt/cdi")["edit_target"]["path"] == target
    agree(machine, "/opt/cdi")


@pytest.mark.parametrize("started, restart", [(STALE, True), (None, False)])
def test_a_generated_file_that_lags_behind_needs_a_restart_only(
    started: float | None, restart: bool, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    k3s(machine, "1.7.23-k3s2", "version = 2\n", {})
    agreed = selected(machine, "/var/run/cdi")
    made = PLANNERS["containerd"](
        agreed, {RANCHER + "config.toml": Source(RANCHER + "config.toml", b"version = 2\n")}, []
    )
    machine.write(made.files[0].path, (made.files[0].new or b"").decode())
    if started is not None:
        machine.process(501, "containerd -c %sconfig.toml" % RANCHER, started)
    found = selected(machine, "/var/run/cdi")
    assert found["changes"] and found["refusal"] is None
    files = {
        path: Source(path, machine.real(path).read_bytes()) for path in (RANCHER + "config.toml", made.files[0].path)
    }
    done = present([{**found, "process_stale": restart}], files, {}, ["/var/run/cdi"], True)
    assert (done.files, done.edits[0].restart, bool(done.edits[0].warnings)) == ([], restart, not restart)


def test_k0s_collects_what_is_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    collected = "/run/k0s/containerd-cri.toml"
    k0s(machine, "1.7.27", 'imports = ["%s"]\n' % collected, {collected: "version = 2\n" + V2 + "enable_cdi = false\n"})
    before = selected(machine, "/var/run/cdi")
    files = {path: Source(path, machine.real(path).read_bytes()) for path in before["config_files"]}
    made = PLANNERS["containerd"](before, files, ["/var/run/cdi"])
    assert [item.path for item in made.files] == [change["path"] for change in before["changes"]]
    machine.write(collected, base64.b64decode((made.judge or {})["root_content"]).decode())
    after = selected(machine, "/var/run/cdi")
    assert (after["cdi"]["state"], after["changes"]) == ("on", [])


def test_the_owner_of_a_file_is_said_when_it_is_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    containerd(machine, "1.7.27", case("H06-config-of-another-tool", "puppet.toml"), {})
    found = selected(machine, "/var/run/cdi")
    files = {ROOT: Source(ROOT, machine.real(ROOT).read_bytes())}
    warnings = present([found], files, {}, ["/var/run/cdi"], True).edits[0].warnings
    assert len(warnings) == 1 and warnings[0].startswith(
        ROOT + " is written by Puppet, which may undo the change: make"
    )
