# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our edits of runtime configuration, judged by the programs that read it."""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import containerd as runtime_containerd

from tests.integration._containerd import apply, cdi_state, dumped, runtime_of, snapshot
from tests.integration._judges import containerds, debian
from tests.lab._base import run

FIXTURES = Path(__file__).resolve().parents[1] / "unit/fixtures/runtime_config"


@pytest.fixture(scope="session", params=sorted(containerds()))
def containerd(request: pytest.FixtureRequest) -> tuple[str, Path]:
    return request.param, containerds()[request.param]()


CONFIGS = sorted(path.name for path in FIXTURES.glob("r*_ctd_*.toml")) + sorted(
    path.name for path in FIXTURES.glob("[RDS]*.toml") if ".10-" not in path.name and not path.name.startswith("R12")
)
# Files that no program of these releases loads, or whose schema must be migrated first.
REFUSED = {
    "1.6": set(CONFIGS),
    "1.7": {"r10_ctd_v1.toml", "R05-v1-schema.toml"},
    "2.1": set(),
    "2.4": set(),
}
BROKEN = {"r13_ctd_malformed.toml", "r17_ctd_disabled_plugins.toml"}
# 1.7 wants io.containerd.TYPE.vN for every table and no schema 3.
BROKEN_1_7 = {name for name in CONFIGS if b"version = 3" in (FIXTURES / name).read_bytes()} | {"R06-commented-key.toml"}
DISABLED = {"r25_ctd_docker_pkg_default.toml", "R09-disabled-cri.toml"}


@pytest.mark.parametrize("name", CONFIGS)
def test_containerd_loads_what_we_write(name: str, containerd: tuple[str, Path], tmp_path: Path) -> None:
    release, program = containerd
    config = tmp_path / "etc/config.toml"
    config.parent.mkdir()
    config.write_bytes((FIXTURES / name).read_bytes().replace(b"/etc/containerd/", str(config.parent).encode() + b"/"))
    before, state = snapshot(config.parent), tmp_path / "state"
    first = cdi_state(program, config)
    assert (first is None) == (name in BROKEN or (release == "1.7" and name in BROKEN_1_7)), (
        "the program's verdict on the input"
    )
    if first is None or name in REFUSED[release]:
        with pytest.raises(NpuError):
            apply(runtime_of(program, config), state)
        assert snapshot(config.parent) == before
        return
    done = apply(runtime_of(program, config), state)
    on, directories = cdi_state(program, config) or (None, [])
    assert on is True
    assert "/var/run/cdi" in directories
    assert set(first[1]) <= set(directories)
    assert done["changed"] == (not first[0] or "/var/run/cdi" not in first[1] or name in DISABLED)
    after = snapshot(config.parent)
    assert not apply(runtime_of(program, config), state)["changed"]
    assert snapshot(config.parent) == after
    if done["changed"]:
        assert done["judged"] is True
        assert apply(runtime_of(program, config), state, remove=True)["changed"]
        assert snapshot(config.parent) == before
        assert not any(path.is_file() for path in state.iterdir() if path.name != "lock")


@pytest.mark.parametrize("containerd", ["1.7"], indirect=True)
@pytest.mark.parametrize("generated", ["version = 2\n", 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'])
def test_what_a_template_becomes_is_loaded_before_it_is_written_H01(
    generated: str, containerd: tuple[str, Path], tmp_path: Path
) -> None:
    config = tmp_path / "etc/config.toml"
    config.parent.mkdir()
    config.write_text(generated)
    template = config.parent / "config.toml.tmpl"
    template.write_text('{{ template "base" . }}\n')
    before = snapshot(config.parent)
    target = {"path": str(template), "kind": "template"}
    found = {**runtime_of(containerd[1], config), "flavor": "k3s", "edit_target": target}
    if "plugins" in generated:
        with pytest.raises(NpuError, match="cannot take a block with enable_cdi"):
            apply(found, tmp_path / "state")
        assert snapshot(config.parent) == before
        return
    done = apply(found, tmp_path / "state")
    assert (done["changed"], done["judged"]) == (True, True)
    config.write_text(template.read_text().replace('{{ template "base" . }}\n', generated))
    on, directories = cdi_state(containerd[1], config) or (False, [])
    assert on is True and "/var/run/cdi" in directories
    assert not apply(found, tmp_path / "state")["changed"]


CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'


def _generated(program: Path, config: Path, target: Path, flavor: str, kind: str) -> dict[str, t.Any]:
    found = {**runtime_of(program, config), "flavor": flavor, "process_stale": True}
    return {**found, "edit_target": {"path": str(target), "kind": kind}}


@pytest.mark.parametrize("containerd", ["1.7"], indirect=True)
def test_what_microk8s_makes_of_its_template_is_loaded_before_it_is_written_D04(
    containerd: tuple[str, Path], tmp_path: Path
) -> None:
    template, config = tmp_path / "args/containerd-template.toml", tmp_path / "args/containerd.toml"
    template.parent.mkdir()
    text = (FIXTURES / "D04-microk8s-template.toml").read_text()
    template.write_text(text)

    def fill(given: str) -> str:
        return given.replace("${SNAPSHOTTER}", "overlayfs").replace("${RUNTIME}", "runc")

    config.write_text(fill(text))
    found = _generated(containerd[1], config, template, "microk8s", "template")
    assert apply(found, tmp_path / "state")["judged"] is True
    assert cdi_state(containerd[1], config) == (False, ["/etc/cdi", "/var/run/cdi"]), "only microk8s writes that file"
    config.write_text(fill(template.read_text()))
    assert cdi_state(containerd[1], config) == (True, ["/etc/cdi", "/var/run/cdi"])
    assert not apply(found, tmp_path / "state")["changed"]
    # A value that only the rendered file shows is refused by the program itself, and nothing is written.
    template.write_text(text + '\n[debug]\n  level = "${LEVEL}"\n  uid = "${UID}"\n')
    config.write_text(fill(text) + '\n[debug]\n  level = "info"\n  uid = "none"\n')
    before = snapshot(tmp_path / "args")
    with pytest.raises(NpuError, match="containerd does not load its configuration as it is"):
        apply(found, tmp_path / "other")
    assert snapshot(tmp_path / "args") == before


@pytest.mark.parametrize("containerd", ["1.7"], indirect=True)
def test_what_k0s_collects_is_loaded_before_the_drop_in_is_written(
    containerd: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """k0s merges the CRI tables of its drop-ins into one file, which its configuration imports."""
    monkeypatch.setattr(runtime_containerd, "K0S_DROPINS", str(tmp_path / "containerd.d"))
    config, collected = tmp_path / "etc/containerd.toml", tmp_path / "run/containerd-cri.toml"
    for path in (config, collected):
        path.parent.mkdir()
    cri = CRI + '  enable_cdi = false\n  sandbox_image = "registry.example/pause:3"\n'
    collected.write_text("version = 2\n" + cri)
    config.write_text('# k0s_managed=true\nversion = 2\nimports = ["%s"]\n' % collected)
    dropin = tmp_path / "containerd.d/99-rbln.toml"
    found = _generated(containerd[1], config, dropin, "k0s", "dropin")
    before = snapshot(config.parent)
    done = apply(found, tmp_path / "state")
    assert (done["judged"], snapshot(config.parent)) == (True, before)
    assert dropin.read_text().endswith(CRI + "  enable_cdi = true\n")
    collected.write_text("version = 2\n" + cri.replace("enable_cdi = false", "enable_cdi = true"))
    assert cdi_state(containerd[1], config) == (True, ["/etc/cdi", "/var/run/cdi"])


DUPLICATES = {
    "table-in-two-spellings": "[plugins.'io.containerd.grpc.v1.cri']\n",
    "table": CRI,
    "key": "  enable_cdi = true\n",
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_what_containerd_says_to_duplicates_H01(name: str, containerd: tuple[str, Path], tmp_path: Path) -> None:
    """1.x takes a table that stands twice in two spellings, and no other duplicate; messages say nothing else."""
    config = tmp_path / "config.toml"
    config.write_text("version = 2\n" + CRI + "  enable_cdi = true\n" + DUPLICATES[name])
    takes = name == "table-in-two-spellings" and containerd[0].startswith("1.")
    assert (dumped(containerd[1], config) is not None) == takes


def test_what_docker_says_to_duplicates(tmp_path: Path) -> None:
    """dockerd loads them; so it is no broken file, and only an edit is refused."""
    config = tmp_path / "daemon.json"
    config.write_text('{"debug": true, "debug": false, "features": {"cdi": true}, "features": {}}\n')
    runtime = _docker(config)
    assert run([runtime["binary"], "--validate", "--config-file", config], check=False).returncode == 0
    with pytest.raises(NpuError, match='the key "debug" appears twice, and programs take the last value'):
        apply(runtime, tmp_path / "state")


# Drop-ins are for 2.x; 1.x replaces whole sections.
MERGING = pytest.mark.parametrize(
    "containerd", [name for name in sorted(containerds()) if name[0] != "1"], indirect=True
)


def _pair(tmp_path: Path) -> Path:
    config = tmp_path / "etc/config.toml"
    (config.parent / "conf.d").mkdir(parents=True)
    shutil.copy(FIXTURES / "R02-v1x-dropin-wipes-cri.toml", config)
    shutil.copy(FIXTURES / "R02-v1x-dropin-wipes-cri.10-rbln.toml", config.parent / "conf.d/10-site.toml")
    (config.parent / "conf.d/10-site.toml").write_text(
        (config.parent / "conf.d/10-site.toml").read_text().replace("enable_cdi = true", "enable_cdi = false")
    )
    return config


def test_the_file_that_is_effective_is_edited(containerd: tuple[str, Path], tmp_path: Path) -> None:
    """R02: on 1.x the imported file owns the whole CRI section; on 2.x the files are merged."""
    release, program = containerd
    config = _pair(tmp_path)
    root = config.read_bytes()
    if release == "1.6":
        with pytest.raises(NpuError, match="Upgrade containerd"):
            apply(runtime_of(program, config), tmp_path / "state")
        return
    done = apply(runtime_of(program, config), tmp_path / "state")
    assert done["changed"] == (release != "2.4")
    assert config.read_bytes() == root
    assert (cdi_state(program, config) or (None,))[0] is True


@MERGING
@pytest.mark.parametrize("schema", [2, 3])
def test_dropin_beside_the_sites_imports(schema: int, containerd: tuple[str, Path], tmp_path: Path) -> None:
    """R01: a directory of imports of the site stays first, ours is added once and read by the program."""
    _release, program = containerd
    config = tmp_path / "etc/config.toml"
    (tmp_path / "site").mkdir()
    config.parent.mkdir()
    config.write_text('imports = ["%s/site/*.toml"]\nversion = %d\n' % (tmp_path, schema))
    runtime = runtime_of(program, config)
    dropin = config.parent / "conf.d/99-rbln.toml"
    runtime["edit_target"] = {"path": str(dropin), "kind": "dropin"}
    state, before = tmp_path / "state", snapshot(config.parent)
    assert apply(runtime, state, ["/opt/npu/cdi"])["judged"] is True
    assert config.read_text().startswith('imports = ["%s/site/*.toml", "%s/conf.d/*.toml"]' % (tmp_path, config.parent))
    assert cdi_state(program, config) == (True, ["/etc/cdi", "/var/run/cdi", "/opt/npu/cdi"])
    runtime = {**runtime_of(program, config), "edit_target": runtime["edit_target"]}
    assert not apply(runtime, state, ["/opt/npu/cdi"])["changed"]
    assert apply(runtime, state, remove=True)["changed"]
    assert snapshot(config.parent) == before
    assert not dropin.parent.exists()


@MERGING
def test_an_import_that_would_override_is_found_by_the_program(containerd: tuple[str, Path], tmp_path: Path) -> None:
    _release, program = containerd
    config = tmp_path / "etc/config.toml"
    (config.parent / "conf.d").mkdir(parents=True)
    config.write_text('version = 2\nimports = ["conf.d/*.toml"]\n')
    late = config.parent / "conf.d/zz-site.toml"
    late.write_text('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  cdi_spec_dirs = ["/opt/site/cdi"]\n')
    runtime = runtime_of(program, config)
    runtime["edit_target"] = {"path": str(config.parent / "conf.d/99-rbln.toml"), "kind": "dropin"}
    assert apply(runtime, tmp_path / "state")["changed"]
    assert set((cdi_state(program, config) or (None, []))[1]) == {"/opt/site/cdi", "/etc/cdi", "/var/run/cdi"}


DOCKER = {
    "good": [
        "r31_dkr_empty_file.json",
        "r32_dkr_whitespace.json",
        "r33_dkr_existing.json",
        "r35_dkr_cdi_false.json",
        "r43_dkr_dryrun.json",
    ]
}
DOCKER["good"] += ["R13-daemon-json-broken.empty.json", "R13-daemon-json-broken.bom.json", "R15-daemon-json-merge.json"]
DOCKER["bad"] = sorted(
    path.name
    for path in FIXTURES.glob("*.json")
    if path.name not in DOCKER["good"] and path.name not in ("r34_dkr_cdi_true_already.json",)
)


def _docker(config: Path, flags: t.Sequence[str] = ()) -> dict[str, t.Any]:
    return {
        "name": "docker",
        "version": "26.1.5",
        "binary": str(debian("trixie") / "dockerd"),
        "main_config": str(config),
        "config_files": [str(config)],
        "unit_flags": list(flags),
        "changes": [{"path": str(config), "what": "", "why": ""}],
    }


@pytest.mark.parametrize("name", DOCKER["good"] + DOCKER["bad"])
def test_docker_validates_what_we_write(name: str, tmp_path: Path) -> None:
    config = tmp_path / "etc/daemon.json"
    config.parent.mkdir()
    shutil.copy(FIXTURES / name, config)
    before = snapshot(config.parent)
    runtime = _docker(config, ["-H", "fd://", "--containerd=/run/containerd/containerd.sock"])
    if name in DOCKER["bad"]:
        place = r"daemon\.json: (line [0-9]+, column [0-9]+: |features must be |the file must hold one JSON object)"
        with pytest.raises(NpuError, match=place):
            apply(runtime, tmp_path / "state")
        assert snapshot(config.parent) == before
        return
    assert apply(runtime, tmp_path / "state")["judged"] is True
    assert run([runtime["binary"], "--validate", "--config-file", config], check=False).returncode == 0
    assert not apply(runtime, tmp_path / "state")["changed"]
    assert apply(runtime, tmp_path / "state", remove=True)["changed"]
    assert snapshot(config.parent) == before


def test_docker_refuses_a_file_its_daemon_refuses(tmp_path: Path) -> None:
    config = tmp_path / "etc/daemon.json"
    config.parent.mkdir()
    config.write_text('{"no-such-directive": 1}\n')
    with pytest.raises(NpuError, match="does not load its configuration as it is"):
        apply(_docker(config), tmp_path / "state")
    assert config.read_text() == '{"no-such-directive": 1}\n'
    assert sorted(path.name for path in config.parent.iterdir()) == ["daemon.json"]
