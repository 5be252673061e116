# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CRI-O, podman, and the containerd of k3s, rke2, k0s and microk8s. Cases D02, D04, R11, R12, R18, R19."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import STALE, Machine, case, only, whats

V2 = '[plugins."io.containerd.grpc.v1.cri"]'
V3 = '[plugins."io.containerd.cri.v1.runtime"]'
CRIO_DIR = "/etc/crio/crio.conf.d"
OURS = CRIO_DIR + "/99-rbln.conf"
DEFAULTS = ["/etc/cdi", "/var/run/cdi"]


def crio(root: Path, files: dict[str, str], version: str = "1.30.4", command: str = "/usr/bin/crio") -> Machine:
    machine = Machine(root)
    machine.program("/usr/bin/crio", "crio version %s\n" % version)
    machine.unit("crio.service", command, pid=400)
    machine.process(400, command)
    machine.socket("/run/crio/crio.sock")
    (root / "var").mkdir()
    (root / "var/run").symlink_to("../run")
    for path, text in files.items():
        machine.write(path, text)
    return machine


@pytest.mark.parametrize("name", ["R18-crio-dropin-dir"])
def test_what_crio_reads(name: str, tmp_path: Path) -> None:
    tree = case(name, "tree.txt").split()
    files = {path: "" for path in tree}
    files[CRIO_DIR + "/zz-site.conf"] = case("R18-crio-dropin-dir", "zz-site.conf")
    files["/etc/crio/conf.d/99-rbln.conf"] = '[crio.runtime]\ncdi_spec_dirs = ["/var/run/cdi"]\n'
    found = only(crio(tmp_path, files).detect(), "cri-o")
    assert found["config_files"] == [path for path in tree if "/etc/crio/conf.d/" not in path]
    assert found["cdi"] == {"state": "on", "spec_dirs": ["/opt/site/cdi"], "source": CRIO_DIR + "/zz-site.conf"}
    assert found["edit_target"] == {"path": OURS, "kind": "dropin"}
    assert found["changes"] == []
    assert "would not be effective" in found["refusal"]["reason"]
    assert CRIO_DIR + "/zz-site.conf" in found["refusal"]["next_step"]
    assert any("/etc/crio/conf.d/99-rbln.conf is never read" in warning for warning in found["warnings"])


def test_r18_our_file_that_a_later_one_overrides_is_not_effective(tmp_path: Path) -> None:
    files = {
        OURS: '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n',
        CRIO_DIR + "/zz-site.conf": case("R18-crio-dropin-dir", "zz-site.conf"),
    }
    found = only(crio(tmp_path, files).detect(), "cri-o")
    assert found["cdi"]["spec_dirs"] == ["/opt/site/cdi"]
    assert found["refusal"] is not None


@pytest.mark.parametrize("name", ["R19-crio-no-enable-key"])
def test_crio_has_no_switch(name: str, tmp_path: Path) -> None:
    found = only(crio(tmp_path, {OURS: case(name, "99-rbln.conf")}).detect(), "cri-o")
    assert found["cdi"] == {"state": "on", "spec_dirs": DEFAULTS, "source": OURS}
    assert whats(found) == [(OURS, "[crio.runtime] without enable_cdi")]


def test_r19_crio_without_any_file_needs_nothing(tmp_path: Path) -> None:
    found = only(crio(tmp_path, {}).detect(), "cri-o")
    assert (found["cdi"]["state"], found["changes"], found["refusal"]) == ("on_by_default", [], None)


def test_h05_crio_nested_dropins_are_read_in_the_order_of_a_walk(tmp_path: Path) -> None:
    nested = CRIO_DIR + "/site/50-cdi.conf"
    files = {
        CRIO_DIR + "/10-crio.conf": '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n',
        CRIO_DIR + "/99-z.conf": '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n',
        nested: '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n',
    }
    machine = crio(tmp_path, files)
    found = only(machine.detect(), "cri-o")
    assert found["config_files"] == list(files)
    assert found["cdi"] == {"state": "on", "spec_dirs": ["/etc/cdi"], "source": nested}
    assert found["changes"] == [] and nested in found["refusal"]["next_step"]
    machine.write(nested, "[crio.image]\n")
    (tmp_path / CRIO_DIR[1:] / "zz").symlink_to("site")
    found = only(machine.detect(), "cri-o")
    assert found["cdi"]["spec_dirs"] == ["/opt/cdi"] and found["config_files"] == list(files)


@pytest.mark.parametrize("name", ["H05-crio-nested-dropins"])
def test_a_drop_in_that_would_lose_is_not_written(name: str, tmp_path: Path) -> None:
    nested = CRIO_DIR + "/site/50-cdi.conf"
    files = {path: case(name, path[len("/etc/crio/") :]) for path in (CRIO_DIR + "/10-crio.conf", nested)}
    found = only(crio(tmp_path, files).detect(), "cri-o")
    assert found["config_files"] == list(files)
    assert (found["cdi"]["spec_dirs"], found["changes"]) == (["/etc/cdi"], [])
    assert (
        "%s sets cdi_spec_dirs without /var/run/cdi and is read after %s" % (nested, OURS) in found["refusal"]["reason"]
    )
    assert nested in found["refusal"]["next_step"] and "sorts before 99-" in found["refusal"]["next_step"]


OPT = '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n'
UNION = '[crio.runtime] cdi_spec_dirs = ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]'
CRIO_CONF, DROPIN = "/etc/crio/crio.conf", CRIO_DIR + "/10-a.conf"


@pytest.mark.parametrize(
    "files, version, command, state, spec_dirs, changes, refusal",
    [
        pytest.param({CRIO_CONF: OPT}, "1.30.4", "", "on", ["/opt/cdi"], [(OURS, UNION)], None, id="main-file"),
        pytest.param({DROPIN: OPT}, "1.30.4", "", "on", ["/opt/cdi"], [(OURS, UNION)], None, id="earlier-dropin"),
        pytest.param(
            {OURS: "# mine\n" + OPT}, "1.30.4", "", "on", ["/opt/cdi"], [(OURS, UNION)], None, id="our-own-file"
        ),
        pytest.param(
            {
                CRIO_CONF: '[crio.runtime]\ncdi_spec_dirs = ["/var/run/cdi"]\n',
                DROPIN: "[crio.runtime]\ncdi_spec_dirs = []\n",
            },
            "1.30.4", "", "off", [], [(OURS, '[crio.runtime] cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]')], None,
            id="later-file-wins-empty",
        ),
        pytest.param({}, "1.22.5", "", "unsupported", [], [], "has no CDI", id="before-1.23"),
        pytest.param({}, "1.23.0", "", "on_by_default", DEFAULTS, [], None, id="1.23"),
        pytest.param({}, "1.30.4", "--cdi-spec-dirs=/a,/b", "on", ["/a", "/b"], [], "a flag wins", id="flag"),
        pytest.param({}, "1.30.4", "--config-dir /srv/c.d", "on_by_default", DEFAULTS, [], None, id="other-directory"),
        # An empty value turns drop-ins off; nothing else of the host is taken for one.
        pytest.param({DROPIN: OPT}, "1.30.4", "--config-dir=", "on_by_default", DEFAULTS, [], None, id="no-dropins"),
        pytest.param(
            {CRIO_CONF: OPT}, "1.30.4", "--config-dir=", "on", ["/opt/cdi"], [], "an empty --config-dir",
            id="no-dropins-to-write",
        ),
        pytest.param({DROPIN: "[crio\n"}, "1.30.4", "", "unknown", [], [], "line 1, column 6", id="broken"),
        pytest.param(
            {DROPIN: '[crio.runtime]\ncdi_spec_dirs = "/opt/cdi"\n'},
            "1.30.4", "", "unknown", [], [], "not a list of strings", id="R18-crio-dropin-dir-text",
        ),
        pytest.param(
            {DROPIN: 'crio.runtime.cdi_spec_dirs = ["/opt/cdi"] # \u00e9\n'},
            "1.30.4", "", "on", ["/opt/cdi"], [(OURS, UNION)], None,
            id="R18-crio-dropin-dir-dotted",
        ),
        pytest.param({}, "?", "", "unknown", DEFAULTS, [], None, id="version-not-known-but-directories-right"),
    ],
)  # fmt: skip
def test_crio(
    files: dict[str, str],
    version: str,
    command: str,
    state: str,
    spec_dirs: list[str],
    changes: list[tuple[str, str]],
    refusal: str | None,
    tmp_path: Path,
) -> None:
    found = only(crio(tmp_path, files, version, ("/usr/bin/crio " + command).strip()).detect(), "cri-o")
    assert (found["cdi"]["state"], found["cdi"]["spec_dirs"]) == (state, spec_dirs)
    assert whats(found) == changes
    assert (found["refusal"] is None) == (refusal is None)
    assert refusal is None or refusal in found["refusal"]["reason"]
    ignored = version.startswith("5.4") and bool(files)
    assert ["has no effect" in text for text in found["warnings"]] == [True] * ignored


def test_a_file_that_is_never_read_is_told_also_without_drop_ins(tmp_path: Path) -> None:
    files = {"/etc/crio/conf.d/a.conf": OPT, CRIO_CONF: OPT}
    found = only(crio(tmp_path, files, "1.30.4", "/usr/bin/crio --config-dir=").detect(), "cri-o")
    assert found["warnings"] == ["/etc/crio/conf.d/a.conf is never read: CRI-O reads /etc/crio/crio.conf only"]


def test_r18_a_file_that_is_no_utf_8_is_broken(tmp_path: Path) -> None:
    machine = crio(tmp_path, {})
    (tmp_path / CRIO_DIR.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (tmp_path / CRIO_DIR.lstrip("/") / "10-a.conf").write_bytes(b"# caf\xe9\n")
    found = only(machine.detect(), "cri-o")
    assert found["cdi"]["state"] == "unknown" and "10-a.conf: 'utf-8' codec" in found["refusal"]["reason"]


def podman(root: Path, version: str, files: dict[str, str], **options: Any) -> dict[str, Any]:
    machine = Machine(root)
    machine.program("/usr/bin/podman", "podman version %s\n" % version)
    for path, text in files.items():
        machine.write(path, text)
    return only(machine.detect(**options), "podman")


CONF = "/etc/containers/containers.conf"


@pytest.mark.parametrize(
    "version, files, state, spec_dirs, refusal",
    [
        pytest.param("5.6.0", {}, "on_by_default", DEFAULTS, None, id="defaults"),
        pytest.param("5.4.2", {}, "on_by_default", DEFAULTS, None, id="defaults-before-5.5"),
        pytest.param("5.5.2", {}, "on_by_default", ["/etc/cdi"], "not among", id="podman-26569"),
        pytest.param(
            "5.5.1",
            {CONF: '[engine]\ncdi_spec_dirs = ["/run/cdi", {append = true}]\n'},
            "on",
            ["/etc/cdi", "/run/cdi"],
            None,
            id="podman-26569-appended",
        ),
        pytest.param(
            "5.4.1",
            {CONF: '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n'},
            "on_by_default",
            DEFAULTS,
            None,
            id="podman-25691",
        ),
        pytest.param("4.0.2", {}, "unsupported", [], "has no CDI", id="before-4.1"),
        pytest.param("4.1.0", {}, "on_by_default", DEFAULTS, None, id="4.1"),
        pytest.param(
            "5.6.0",
            {CONF: '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n'},
            "on",
            ["/opt/cdi"],
            "not among",
            id="other-directories",
        ),
        pytest.param(
            "5.6.0",
            {
                CONF: '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n',
                "/etc/containers/containers.conf.d/10.conf": '[engine]\ncdi_spec_dirs = ["/var/run/cdi"]\n',
            },
            "on",
            ["/var/run/cdi"],
            None,
            id="drop-in-wins",
        ),
        pytest.param(
            "5.6.0",
            {CONF: '[engine]\ncdi_spec_dirs = ["/opt/cdi", {append = true}]\n'},
            "on",
            [*DEFAULTS, "/opt/cdi"],
            None,
            id="append-to-the-defaults",
        ),
        pytest.param(
            "5.6.0",
            {
                CONF: '[engine]\ncdi_spec_dirs = ["/opt/cdi", {append = true}]\n',
                "/etc/containers/containers.conf.d/10.conf": "[engine]\n"
                'cdi_spec_dirs = ["/srv/cdi", {append = false}]\n',
            },
            "on",
            ["/srv/cdi"],
            "not among",
            id="append-switched-off",
        ),
        pytest.param("5.6.0", {CONF: "[engine\n"}, "unknown", [], "line 1", id="broken"),
    ],
)
def test_podman_is_only_checked(
    version: str, files: dict[str, str], state: str, spec_dirs: list[str], refusal: str | None, tmp_path: Path
) -> None:
    found = podman(tmp_path, version, files)
    assert (found["cdi"]["state"], found["cdi"]["spec_dirs"]) == (state, spec_dirs)
    assert found["changes"] == [] and found["edit_target"]["kind"] == "none" and found["restart_unit"] is None
    assert (found["refusal"] is None) == (refusal is None)
    assert refusal is None or refusal in found["refusal"]["reason"]


@pytest.mark.parametrize("version, step", [("4.9.3", "upgrade podman to 5.5"), ("5.6.0", "add it to cdi_spec_dirs")])
def test_the_step_for_a_directory_that_podman_does_not_read_works(version: str, step: str, tmp_path: Path) -> None:
    assert step in podman(tmp_path, version, {}, spec_dir="/opt/cdi")["refusal"]["next_step"]


def distro(root: Path, unit: str, base: str, version: str, config: str, files: dict[str, str] | None = None) -> Machine:
    machine = Machine(root)
    binary = {"rke2": "/var/lib/rancher/rke2/bin/containerd"}.get(
        base, "/var/lib/rancher/%s/data/current/bin/containerd" % base
    )
    machine.program(binary, "containerd github.com/k3s-io/containerd v%s \n" % version)
    machine.unit(unit + ".service", "/usr/local/bin/%s %s" % (base, "agent"), pid=500)
    generated = "/var/lib/rancher/%s/agent/etc/containerd/config.toml" % base
    machine.process(501, "%s -c %s -a /run/k3s/containerd/containerd.sock" % ("containerd", generated))
    machine.socket("/run/k3s/containerd/containerd.sock")
    machine.write(generated, config)
    for path, text in (files or {}).items():
        machine.write(path, text)
    return machine


RANCHER = "/var/lib/rancher/%s/agent/etc/containerd/"


@pytest.mark.parametrize(
    "base, unit",
    [
        pytest.param("rke2", "rke2-agent", id="D02-k3s-rke2-paths"),
        pytest.param("rke2", "rke2-server", id="D02-k3s-rke2-paths-server"),
        pytest.param("k3s", "k3s-agent", id="D02-k3s-rke2-paths-k3s-agent"),
        pytest.param("k3s", "k3s", id="D02-k3s-rke2-paths-k3s"),
    ],
)
def test_d02_k3s_rke2_paths(base: str, unit: str, tmp_path: Path) -> None:
    machine = distro(
        tmp_path,
        unit,
        base,
        "1.7.23-k3s2",
        case("D02-k3s-rke2-paths", "generated-config.toml"),
        {"/etc/containerd/config.toml": "version = 2\n"},
    )
    answer = machine.detect()
    assert [(item["name"], item["flavor"]) for item in answer["runtimes"]] == [("containerd", base)]
    found = answer["runtimes"][0]
    assert found["socket"] == "/run/k3s/containerd/containerd.sock" and found["socket_exists"]
    assert (found["unit"], found["restart_unit"]) == (unit + ".service", unit)
    assert found["main_config"] == RANCHER % base + "config.toml"
    assert found["edit_target"] == {"path": RANCHER % base + "config.toml.tmpl", "kind": "template"}
    assert found["dialect"] == {"schema": 2, "format": "template"}
    assert whats(found) == [(RANCHER % base + "config.toml.tmpl", V2 + " enable_cdi = true")]
    assert found["serves_kubelet"] and answer["kubernetes_runtime_source"] == base
    assert answer["kubelet"]["present"] and answer["kubelet"]["unit"] == unit + ".service"


@pytest.mark.parametrize("base", ["k3s", "rke2"])
def test_h01_a_table_of_the_generated_file_is_never_given_twice(base: str, tmp_path: Path) -> None:
    generated = case("H01-k3s-template-duplicate-table", "config.toml")
    found = only(distro(tmp_path, base, base, "1.7.23-k3s2", generated).detect())
    assert (found["cdi"]["state"], found["changes"]) == ("off", [])
    assert "start with one table twice" in found["refusal"]["reason"]
    assert "upgrade %s to a release with containerd 2" % base in found["refusal"]["next_step"]
    # A table that our own block made may be in it.
    block = "# BEGIN rebellions.npu\n%s\nenable_cdi = false\n# END rebellions.npu\n" % V2
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    found = only(distro(tmp_path, base, base, "1.7.23-k3s2", "version = 2\n" + block).detect())
    assert (len(found["changes"]), found["refusal"]) == (1, None)


def test_d02_an_inactive_containerd_beside_rke2_is_not_selected(tmp_path: Path) -> None:
    machine = distro(tmp_path, "rke2-agent", "rke2", "1.7.23-k3s2", "version = 2\n")
    machine.program("/usr/bin/containerd", "containerd x 1.7.24 y\n")
    machine.unit("containerd.service", "/usr/bin/containerd", active="inactive")
    answer = machine.detect()
    assert [(item["flavor"], item["selected"], item["serves_kubelet"]) for item in answer["runtimes"]] == [
        ("system", False, False),
        ("rke2", True, True),
    ]
    assert answer["ambiguous"] is None


R12 = case("R12-k3s-v3-template", "config.toml")


@pytest.mark.parametrize(
    "generated, changes",
    [
        pytest.param(R12, [], id="R12-k3s-v3-template"),
        pytest.param(
            R12 + "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n",
            [(RANCHER % "k3s" + "config-v3.toml.d/10-rbln.toml", V3 + " enable_cdi = true")],
            id="R12-k3s-v3-template-off",
        ),
    ],
)
def test_r12_k3s_v3_template(generated: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    machine = distro(tmp_path, "k3s", "k3s", "2.0.5-k3s1", generated, {RANCHER % "k3s" + "config.toml.tmpl": "old"})
    found = only(machine.detect())
    assert found["cdi"]["state"] == ("off" if changes else "on_by_default")
    assert whats(found) == changes
    assert found["edit_target"] == {"path": RANCHER % "k3s" + "config-v3.toml.d/10-rbln.toml", "kind": "dropin"}
    assert found["dialect"] == {"schema": 3, "format": "toml"}


@pytest.mark.parametrize(
    "template, edited",
    [
        pytest.param(case("R11-go-template", "config.toml.tmpl"), True, id="R11-go-template"),
        pytest.param(None, True, id="R11-go-template-absent"),
        pytest.param(case("R11-go-template", "frozen.tmpl"), False, id="R11-go-template-frozen"),
    ],
)
def test_r11_go_template(template: str | None, edited: bool, tmp_path: Path) -> None:
    path = RANCHER % "k3s" + "config.toml.tmpl"
    machine = distro(
        tmp_path, "k3s", "k3s", "1.7.23-k3s2", "version = 2\n", {path: template} if template is not None else {}
    )
    found = only(machine.detect())
    assert found["edit_target"] == {"path": path, "kind": "template"}
    assert bool(found["changes"]) is edited
    assert (found["refusal"] is None) is edited
    assert any("base" in warning for warning in found["warnings"]) is not edited


def test_a_template_newer_than_the_process_is_a_lost_restart(tmp_path: Path) -> None:
    path = RANCHER % "k3s" + "config.toml.tmpl"
    generated = "version = 2\n%s\nenable_cdi = true\n" % V2
    machine = distro(tmp_path, "k3s", "k3s", "1.7.23-k3s2", generated, {path: '{{ template "base" . }}\n'})
    assert only(machine.detect())["process_stale"] is False
    machine.process(
        501, "containerd -c %sconfig.toml -a /run/k3s/containerd/containerd.sock" % (RANCHER % "k3s"), STALE
    )
    assert only(machine.detect())["process_stale"] is True


def test_a_distribution_that_never_started(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.unit("k3s.service", "/usr/local/bin/k3s server", active="inactive")
    found = only(machine.detect())
    assert found["cdi"]["state"] == "unknown"
    assert "has not started" in found["refusal"]["reason"]


@pytest.mark.parametrize(
    "template, generated, refused",
    [
        pytest.param('{{ template "base" . }}\n\n[debug]\nlevel = "info"\n', "", True, id="a-table-not-yet-made"),
        pytest.param(
            '{{ template "base" . }}\n\n[debug]\nlevel = "info"\n', '[debug]\nlevel = "info"\n', False, id="made"
        ),
        pytest.param(
            '{{ template "base" . }}\n[debug]\nlevel = "{{ .Level }}"\n', '[debug]\nlevel = "x"\n', False, id="a-value"
        ),
        pytest.param(
            '{{ template "base" . }}\n{{ if .Debug }}\n[debug]\n{{ end }}\n', "", True, id="it-decides-itself"
        ),
    ],
)
def test_r11_what_a_template_becomes_is_known(template: str, generated: str, refused: bool, tmp_path: Path) -> None:
    path = RANCHER % "k3s" + "config.toml.tmpl"
    machine = distro(tmp_path, "k3s", "k3s", "1.7.23-k3s2", "version = 2\n" + generated, {path: template})
    assert only(machine.detect())["changes"], "it is not newer than what was made from it"
    machine.write(path, template, 10)
    found = only(machine.detect())
    assert bool(found["changes"]) is not refused
    if refused:
        assert path + " is not what " in found["refusal"]["reason"]
        assert "restart k3s" in found["refusal"]["next_step"]
        # With our block it is only a restart that is missing.
        block = "\n# BEGIN rebellions.npu\n%s\nenable_cdi = true\n# END rebellions.npu\n" % V2
        machine.write(path, template + block, 10)
        assert only(machine.detect())["refusal"] is None


@pytest.mark.parametrize("late, ours", [("05-site", "10"), ("20-site", "99"), ("zz-site", "zzz")])
def test_r12_a_drop_in_of_ours_is_read_last(late: str, ours: str, tmp_path: Path) -> None:
    directory = RANCHER % "k3s" + "config-v3.toml.d/"
    site = {directory + late + ".toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n"}
    found = only(distro(tmp_path, "k3s", "k3s", "2.0.5-k3s1", R12, site).detect())
    assert whats(found) == [(directory + ours + "-rbln.toml", V3 + " enable_cdi = true")]


def microk8s(root: Path, template: str) -> Machine:
    machine = Machine(root)
    for path in case("D04-microk8s-template", "tree.txt").split():
        if path.endswith(".sock"):
            machine.socket(path)
    machine.write("/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\nimports = ["/x/*.toml"]\n')
    machine.write("/var/snap/microk8s/current/args/containerd-template.toml", template)
    machine.write(
        "/var/snap/microk8s/current/args/containerd.toml",
        template.replace("${SNAPSHOTTER}", "overlayfs").replace("${RUNTIME}", "runc"),
    )
    machine.unit("snap.microk8s.daemon-containerd.service", "/usr/bin/snap run microk8s.daemon-containerd", pid=600)
    machine.program(
        "/snap/microk8s/current/bin/containerd", "containerd github.com/containerd/containerd v1.7.25 abc\n"
    )
    return machine


@pytest.mark.parametrize("name", ["D04-microk8s-template"])
def test_microk8s_is_made_from_its_template(name: str, tmp_path: Path) -> None:
    template = "/var/snap/microk8s/current/args/containerd-template.toml"
    answer = microk8s(tmp_path, case(name, "containerd-template.toml")).detect()
    found = only(answer, flavor="microk8s")
    assert len(answer["runtimes"]) == 1
    assert found["edit_target"] == {"path": template, "kind": "template"}
    assert found["dialect"] == {"schema": 2, "format": "toml"}
    assert whats(found) == [(template, V2 + " enable_cdi = true")]
    assert found["restart_unit"] == "snap.microk8s.daemon-containerd"
    assert found["config_files"] == ["/var/snap/microk8s/current/args/containerd.toml"], (
        "never anything of /etc/containerd"
    )
    assert answer["kubelet"]["root_dir"] == "/var/snap/microk8s/common/var/lib/kubelet"


def test_d04_a_template_that_is_not_toml_is_left_alone(tmp_path: Path) -> None:
    machine = microk8s(tmp_path, "version = 2\n")
    machine.write("/var/snap/microk8s/current/args/containerd-template.toml", "version = ${VERSION}\n")
    found = only(machine.detect())
    assert found["changes"] == []
    assert "line 1, column 11" in found["refusal"]["reason"]


def test_d04_a_template_that_is_newer_than_the_file_is_not_edited(tmp_path: Path) -> None:
    template = "/var/snap/microk8s/current/args/containerd-template.toml"
    text = case("D04-microk8s-template", "containerd-template.toml")
    machine = microk8s(tmp_path, text)
    machine.write(template, text + "\n[debug]\n  level = 'info'\n", 10)
    found = only(machine.detect(), flavor="microk8s")
    assert found["changes"] == [] and "is not what /var/snap/microk8s" in found["refusal"]["reason"]
    assert "restart snap.microk8s.daemon-containerd" in found["refusal"]["next_step"]
    # Our own edit that waits for its restart is no doubt.
    machine.write(template, text.replace(V2, V2 + "\n  enable_cdi = true", 1), 10)
    found = only(machine.detect(), flavor="microk8s")
    assert found["refusal"] is None and found["changes"]


def k0s(root: Path, version: str = "1.7.27", head: str = "# k0s_managed=true\n") -> Machine:
    machine = Machine(root)
    machine.unit("k0sworker.service", "/usr/local/bin/k0s worker", pid=700)
    machine.socket("/run/k0s/containerd.sock")
    machine.program("/var/lib/k0s/bin/containerd", "containerd github.com/containerd/containerd %s abc\n" % version)
    machine.write(
        "/etc/k0s/containerd.toml",
        head + "version = 2\n" + ('imports = ["/run/k0s/containerd-cri.toml"]\n' if head else ""),
    )
    machine.write("/run/k0s/containerd-cri.toml", "version = 2\n%s\nsandbox_image = 'x'\n" % V2)
    machine.process(701, "/var/lib/k0s/bin/containerd --root=/var/lib/k0s/containerd --config=/etc/k0s/containerd.toml")
    return machine


def test_a_k0s_drop_in_is_merged_last(tmp_path: Path) -> None:
    machine = k0s(tmp_path)
    machine.write("/etc/k0s/containerd.d/no.toml", "[not toml\n")
    machine.write("/etc/k0s/containerd.d/zz-site.toml", "version = 2\n%s\nenable_cdi = false\n" % V2)
    assert whats(only(machine.detect()))[0][0] == "/etc/k0s/containerd.d/zzz-rbln.toml"


@pytest.mark.parametrize(
    "containerd, k0s_says, refused",
    [
        ("1.7.2", "v1.27.4+k0s.0\n", True),
        ("1.7.2", "v1.27.5+k0s.0\n", False),
        ("1.7.2", "", True),
        ("1.7.8", "", False),
    ],
)
def test_a_k0s_that_joins_drop_ins_as_text_is_refused(
    containerd: str, k0s_says: str, refused: bool, tmp_path: Path
) -> None:
    machine = k0s(tmp_path, containerd)
    if k0s_says:
        machine.answer(["/usr/local/bin/k0s", "version"], k0s_says)
    found = only(machine.detect())
    assert bool(found["changes"]) is not refused
    assert refused is (found["refusal"] is not None and "upgrade k0s to 1.27.5" in found["refusal"]["next_step"])


@pytest.mark.parametrize(
    "head, target",
    [
        ("# k0s_managed=true\n", ("/etc/k0s/containerd.d/99-rbln.toml", "dropin")),
        ("", ("/etc/k0s/containerd.toml", "main")),
    ],
    ids=["managed", "of-the-site"],
)
def test_k0s_reads_drop_ins_while_it_manages_its_file(head: str, target: tuple[str, str], tmp_path: Path) -> None:
    answer = k0s(tmp_path, head=head).detect()
    found = only(answer)
    assert (found["edit_target"]["path"], found["edit_target"]["kind"]) == target
    assert whats(found) == [(target[0], V2 + " enable_cdi = true")]
    assert found["restart_unit"] == "k0sworker"
    assert found["process_stale"] is False
    assert answer["kubelet"]["root_dir"] == "/var/lib/k0s/kubelet"
