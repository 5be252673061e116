# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer import digest
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.containerd import plan
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import RuntimeEdit, Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import undo

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures/runtime_config"
MAIN = "/etc/containerd/config.toml"
DROPIN = "/etc/containerd/conf.d/99-rbln.toml"
SAME = "same"
OLD, NEW, LAST = "1.7.27", "2.1.4", "2.4.2"


def runtime(version: str, *more: str, **changed: t.Any) -> dict[str, t.Any]:
    found = {
        "name": "containerd",
        "flavor": "system",
        "version": version,
        "binary": "/usr/bin/containerd",
        "main_config": MAIN,
        "config_files": [MAIN, *more],
        "edit_target": {"path": MAIN, "kind": "main"},
        "selected": True,
        "serves_kubelet": True,
        "restart_unit": "containerd.service",
    }
    found.update(changed)
    return found


def edit(version: str, data: bytes | None, dirs: t.Sequence[str] = ("/var/run/cdi",), **changed: t.Any) -> RuntimeEdit:
    return plan(runtime(version, **changed), {MAIN: Source(MAIN, data)}, dirs)


def note(made: RuntimeEdit, index: int = 0) -> dict[str, t.Any]:
    item = made.files[index]
    group = {
        "before": item.source.sha256,
        "after": digest(item.new or b""),
        "splices": item.splices,
        "changes": item.changes,
    }
    return {"runtime": made.name, "format": item.format, "aside": item.aside, "created_dirs": [], "groups": [group]}


SCHEMA_1 = "config schema 1; migrate first"
SCHEMA_3 = "does not read config schema 3"
# fixture, release, outcome: SAME, the name of the expected file, or a pattern of the refusal
TABLE = [
    ("R01-imports-preserved", OLD, "R01-imports-preserved"),
    ("R01-imports-preserved", NEW, SAME),
    ("R02-v1x-dropin-wipes-cri", OLD, "R02-v1x-dropin-wipes-cri"),
    ("R02-v1x-dropin-wipes-cri", NEW, SAME),
    ("R04-v3-section-name", NEW, "R04-v3-section-name"),
    ("R04-v3-section-name", LAST, SAME),
    ("R04-v3-section-name", OLD, "!" + SCHEMA_3),
    ("R05-v1-schema", OLD, "!" + SCHEMA_1),
    ("R05-v1-schema", NEW, SAME),
    ("R06-commented-key", OLD, "R06-commented-key"),
    ("R06-commented-key", NEW, "R06-commented-key"),
    ("R07-existing-key", OLD, "R07-existing-key"),
    ("R07-existing-key", NEW, "R07-existing-key"),
    ("R09-disabled-cri", OLD, "R09-disabled-cri"),
    ("R09-disabled-cri", NEW, "R09-disabled-cri-2.1.4"),
    ("R21-kubespray-overwrite", NEW, SAME),
    ("D04-microk8s-template", OLD, "D04-microk8s-template"),
    ("S02-secrets-in-output", OLD, "S02-secrets-in-output"),
    ("r02_ctd_empty", OLD, "r02_ctd_empty"),
    ("r02_ctd_empty", NEW, SAME),
    ("r03_ctd_v2_section", OLD, "r03_ctd_v2_section"),
    ("r03_ctd_v2_section", NEW, SAME),
    ("r04_ctd_v2_header_then_subtable", OLD, "r04_ctd_v2_header_then_subtable"),
    ("r05_ctd_v2_enable_false", OLD, "r05_ctd_v2_enable_false"),
    ("r05_ctd_v2_enable_false", NEW, "r05_ctd_v2_enable_false"),
    ("r06_ctd_commented_enable", OLD, "r06_ctd_commented_enable"),
    ("r06_ctd_commented_enable", NEW, SAME),
    ("r08_ctd_v3", OLD, "!" + SCHEMA_3),
    ("r08_ctd_v3", NEW, SAME),
    ("r09_ctd_v3_cdi_true", OLD, "!" + SCHEMA_3),
    ("r09_ctd_v3_cdi_true", NEW, SAME),
    ("r10_ctd_v1", OLD, "!" + SCHEMA_1),
    ("r10_ctd_v1", NEW, SAME),
    ("r11_ctd_single_quote_key", OLD, "r11_ctd_single_quote_key"),
    ("r13_ctd_malformed", OLD, "!config.toml: line 1, column 11: not valid TOML"),
    ("r13_ctd_malformed", NEW, "!config.toml: line 1, column 11: not valid TOML"),
    ("r14_ctd_crlf", OLD, "r14_ctd_crlf"),
    ("r16_ctd_twice", OLD, "r16_ctd_twice"),
    ("r17_ctd_disabled_plugins", OLD, "r17_ctd_disabled_plugins"),
    ("r18_ctd_readonly_mode", OLD, "r18_ctd_readonly_mode"),
    ("r19_ctd_symlink", OLD, "r19_ctd_symlink"),
    ("r20_ctd_dryrun", OLD, "r20_ctd_dryrun"),
    ("r21_ctd_cdi_false_flag", OLD, "r21_ctd_cdi_false_flag"),
    ("r22_ctd_no_final_newline", OLD, "r22_ctd_no_final_newline"),
    ("r23_ctd_blank_before_next", OLD, "r23_ctd_blank_before_next"),
    ("r25_ctd_docker_pkg_default", OLD, "r25_ctd_docker_pkg_default"),
    ("r25_ctd_docker_pkg_default", NEW, "r25_ctd_docker_pkg_default-2.1.4"),
    ("r26_ctd_v2_spec_dirs_custom", OLD, "r26_ctd_v2_spec_dirs_custom"),
    ("r26_ctd_v2_spec_dirs_custom", NEW, "r26_ctd_v2_spec_dirs_custom"),
]


@pytest.mark.parametrize("name, version, outcome", TABLE, ids=["%s-%s" % row[:2] for row in TABLE])
def test_fixture(name: str, version: str, outcome: str) -> None:
    data = (FIXTURES / (name + ".toml")).read_bytes()
    if outcome.startswith("!"):
        with pytest.raises(NpuError, match=outcome[1:]):
            edit(version, data)
        return
    made = edit(version, data)
    if outcome == SAME:
        assert made.files == []
        return
    assert [item.path for item in made.files] == [MAIN]
    new = made.files[0].new
    assert new == (FIXTURES / "expected" / (outcome + ".toml")).read_bytes()
    assert edit(version, new).files == []
    back = undo(Source(MAIN, new), note(made), [])
    assert back is not None and back.new == data


def test_no_file_at_all_r01() -> None:
    made = edit(OLD, None)
    assert made.files[0].new == (
        b"# Managed by the rebellions.npu collection: CDI in containers. Removed by state=absent.\n"
        b'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = true\n'
    )
    assert edit(NEW, None).files == []
    other = edit(NEW, None, ["/opt/npu/cdi"])
    assert other.files[0].path == MAIN
    assert b"version = 3\n" in (other.files[0].new or b"")
    assert (
        b'[plugins."io.containerd.cri.v1.runtime"]\n  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/opt/npu/cdi"]\n'
        in (other.files[0].new or b"")
    )
    gone = undo(Source(MAIN, made.files[0].new), note(made), [])
    assert gone is not None and gone.new is None


@pytest.mark.parametrize(
    "version, pattern",
    [
        ("1.6.20~ds1", "has no CDI; it came with 1.7. Next: Upgrade containerd"),
        ("1.4.3", "has no CDI"),
        (None, "version is unknown"),
    ],
    ids=["D06-containerd-no-cdi-1.6", "D06-containerd-no-cdi-1.4", "version-unknown"],
)
def test_no_cdi(version: str, pattern: str) -> None:
    with pytest.raises(NpuError, match=pattern):
        edit(version, b"version = 2\n")


def test_docker_backend_is_left_alone_R09() -> None:
    made = edit(OLD, (FIXTURES / "R09-disabled-cri.toml").read_bytes(), flavor="docker-backend")
    assert made.files == [] and "only backs docker" in made.warnings[0]
    made = edit(OLD, (FIXTURES / "R09-disabled-cri.toml").read_bytes(), serves_kubelet=False, selected=False)
    assert made.files == [] and "not changed" in made.warnings[0]


DISABLED = [
    ('["cri"]', "[]"),
    ('["cri", "zfs"]', '["io.containerd.snapshotter.v1.zfs"]'),
    ("['aufs', 'cri', 'btrfs']", "['io.containerd.snapshotter.v1.aufs', 'io.containerd.snapshotter.v1.btrfs']"),
    ('["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]', '["io.containerd.internal.v1.opt"]'),
]


@pytest.mark.parametrize(
    "before, after", DISABLED, ids=["R09-disabled-cri-%d" % number for number in range(len(DISABLED))]
)
def test_only_cri_leaves_the_list(before: str, after: str) -> None:
    data = ("# packager\ndisabled_plugins = %s # why\noom_score = 1\n" % before).encode()
    made = edit(OLD, data)
    text = (made.files[0].new or b"").decode()
    assert text.startswith("# packager\ndisabled_plugins = %s # why\noom_score = 1\nversion = 2\n" % after)
    assert "disabled_plugins" in made.warnings[0] and "kubelet" in made.warnings[0]
    back = undo(Source(MAIN, made.files[0].new), note(made), [])
    assert back is not None and back.new == data


def test_unknown_short_name_is_refused() -> None:
    with pytest.raises(NpuError, match="config.toml: disabled_plugins names house"):
        edit(OLD, b'disabled_plugins = ["cri", "house"]\n')


@pytest.mark.parametrize("value", [b'"cri"', b"5", b'[1, "cri"]', b"{ cri = true }"])
@pytest.mark.parametrize("key", [b"disabled_plugins", b"required_plugins"])
def test_plugin_names_that_are_no_list_of_strings_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(NpuError, match=r"config.toml: %s is not a list of strings\. Next: " % key.decode()):
        edit(OLD, b"%s = %s\n" % (key, value))


def _pair(
    version: str,
    dropin: str,
    root: str = 'version = 2\nimports = ["conf.d/*.toml"]\n',
    name: str = "/etc/containerd/conf.d/10-site.toml",
) -> RuntimeEdit:
    files = {MAIN: Source(MAIN, root.encode()), name: Source(name, dropin.encode())}
    return plan(runtime(version, name, edit_target={"path": DROPIN, "kind": "dropin"}), files, ["/var/run/cdi"])


OFF_V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n'


def test_R02_on_1_x_the_one_file_that_owns_the_table_is_edited() -> None:
    made = _pair(OLD, OFF_V2)
    assert [item.path for item in made.files] == ["/etc/containerd/conf.d/10-site.toml"]
    assert made.files[0].new == OFF_V2.replace("false", "true").encode()
    assert made.judge is not None and made.judge["before"] == [
        "/usr/bin/containerd",
        "--config",
        MAIN,
        "config",
        "dump",
    ]


def test_R02_the_table_that_wins_on_1_x_is_named() -> None:
    root = (FIXTURES / "R02-v1x-dropin-wipes-cri.toml").read_text()
    made = _pair(OLD, (FIXTURES / "R02-v1x-dropin-wipes-cri.10-rbln.toml").read_text(), root)
    assert made.files == []
    assert "replaces the one of %s as a whole" % MAIN in made.warnings[0]


def test_dropin_on_2_x_when_an_import_covers_it() -> None:
    made = _pair(NEW, OFF_V2)
    assert [item.path for item in made.files] == [DROPIN]
    assert (made.files[0].new or b"").endswith(
        b'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = true\n'
    )


def test_a_file_read_after_the_dropin_is_edited_itself() -> None:
    made = _pair(NEW, OFF_V2, name="/etc/containerd/conf.d/zz-site.toml")
    assert [item.path for item in made.files] == ["/etc/containerd/conf.d/zz-site.toml"]


def test_R21_the_imported_directory_is_preferred() -> None:
    data = (FIXTURES / "R21-kubespray-overwrite.toml").read_bytes()
    made = edit(NEW, data, ["/opt/npu/cdi"], edit_target={"path": DROPIN, "kind": "dropin"})
    assert [item.path for item in made.files] == [DROPIN]
    assert b"version = 3\n" in (made.files[0].new or b"")


@pytest.mark.parametrize(
    "imports",
    ['["/srv/site/containerd/*.toml"]', "[\n  '/srv/site/containerd/*.toml', # site\n]", None],
    ids=lambda value: "R01-%s" % value,
)
def test_R01_imports_stay_first_and_one_is_added_once(imports: str | None) -> None:
    data = (
        ("imports = %s\n" % imports if imports else "")
        + 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "x"\n'
    ).encode()
    made = edit(NEW, data, ["/opt/npu/cdi"], edit_target={"path": DROPIN, "kind": "dropin"})
    files = {item.path: item.new for item in made.files}
    assert sorted(files) == [DROPIN, MAIN]
    root = (files[MAIN] or b"").decode()
    if imports:
        assert root.index("/srv/site/containerd/*.toml") < root.index("/etc/containerd/conf.d/*.toml")
    assert root.count("/etc/containerd/conf.d/*.toml") == 1
    assert root.endswith('[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "x"\n')
    found = {MAIN: Source(MAIN, files[MAIN]), DROPIN: Source(DROPIN, files[DROPIN])}
    assert plan(runtime(NEW, DROPIN), found, ["/opt/npu/cdi"]).files == []
    lost = {MAIN: Source(MAIN, files[MAIN])}
    assert [item.path for item in plan(runtime(NEW), lost, ["/opt/npu/cdi"]).files] == [DROPIN]
    back = undo(Source(MAIN, files[MAIN]), note(made, [item.path for item in made.files].index(MAIN)), [])
    assert back is not None and back.new == data


def test_enable_cdi_is_no_key_of_2_4() -> None:
    assert edit(LAST, b'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n').files == []
    made = edit(LAST, b'version = 4\n[plugins."io.containerd.cri.v1.runtime"]\n  cdi_spec_dirs = ["/opt/cdi"]\n')
    assert made.files[0].new == (
        b'version = 4\n[plugins."io.containerd.cri.v1.runtime"]\n'
        b'  cdi_spec_dirs = ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]\n'
    )
    assert made.judge is not None and [item.get("equals") for item in made.judge["expect"]] == [None]


@pytest.mark.parametrize(
    "line, pattern",
    [
        ('enable_cdi = "true"', "enable_cdi is not true or false"),
        ("cdi_spec_dirs = [1]", "not a list of strings"),
        ('cdi_spec_dirs = "/etc/cdi"', "not a list"),
    ],
)
def test_wrong_types_are_refused(line: str, pattern: str) -> None:
    with pytest.raises(NpuError, match=pattern):
        edit(OLD, ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  %s\n' % line).encode())


def test_run_cdi_is_var_run_cdi() -> None:
    assert (
        edit(
            OLD,
            b'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
            b'  enable_cdi = true\n  cdi_spec_dirs = ["/run/cdi"]\n',
        ).files
        == []
    )


K3S = "/var/lib/rancher/k3s/agent/etc/containerd/"


def _k3s(version: str, rendered: str, target: str, kind: str, template: bytes | None = None) -> RuntimeEdit:
    files = {K3S + "config.toml": Source(K3S + "config.toml", rendered.encode())}
    if template is not None:
        files[target] = Source(target, template)
    found = runtime(
        version,
        flavor="k3s",
        main_config=K3S + "config.toml",
        config_files=[K3S + "config.toml"],
        edit_target={"path": target, "kind": kind},
    )
    found["restart_unit"] = "k3s.service"
    return plan(found, files, ["/var/run/cdi"])


GENERATED = "# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.\nversion = 2\n"
CRI_TABLE = '[plugins."io.containerd.grpc.v1.cri"]\n  enable_selinux = false\n'
BLOCK = '# BEGIN rebellions.npu\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = true\n# END rebellions.npu\n'


@pytest.mark.parametrize(
    "before, after",
    [
        (None, '{{ template "base" . }}\n\n' + BLOCK),
        (
            (FIXTURES / "R11-go-template.tmpl").read_text(),
            (FIXTURES / "R11-go-template.tmpl").read_text() + "\n" + BLOCK,
        ),
        ('{{ template "base" . }}', '{{ template "base" . }}\n\n' + BLOCK),
        (
            '{{ template "base" . }}\n\n' + BLOCK.replace("true", "false") + "# more\n",
            '{{ template "base" . }}\n\n' + BLOCK + "# more\n",
        ),
    ],
    ids=["R11-go-template-new", "R11-go-template", "R11-go-template-no-newline", "R11-go-template-old-block"],
)
def test_template_gets_one_marked_block(before: str | None, after: str) -> None:
    target = K3S + "config.toml.tmpl"
    data = None if before is None else before.encode()
    rendered = GENERATED + (before or "").partition("\n\n")[2]
    made = _k3s(OLD, rendered, target, "template", data)
    assert [(item.path, (item.new or b"").decode()) for item in made.files] == [(target, after)]
    judge = made.judge or {}
    become = base64.b64decode(judge["root_content"]).decode()
    assert become.startswith(GENERATED) and become.count(BLOCK) == 1 and "enable_cdi = false" not in become
    assert judge["expect"][-1]["equals"] is True and judge["root_directory"] == K3S.rstrip("/")
    assert _k3s(OLD, become, target, "template", made.files[0].new).files == []
    back = undo(Source(target, made.files[0].new), note(made), [])
    assert back is not None and back.new == data


def test_a_table_of_the_base_template_is_never_given_twice_H01() -> None:
    target = K3S + "config.toml.tmpl"
    with pytest.raises(NpuError, match="config.toml.tmpl cannot take a block.*Next: Upgrade k3s to a release with"):
        _k3s(OLD, GENERATED + CRI_TABLE, target, "template", b'{{ template "base" . }}\n')


def test_a_template_whose_outcome_is_not_known_is_not_written() -> None:
    found = runtime(OLD, flavor="k3s", main_config=K3S + "config.toml", config_files=[])
    found["edit_target"] = {"path": K3S + "config.toml.tmpl", "kind": "template"}
    with pytest.raises(NpuError, match="config.toml does not exist.*Next: Start k3s once"):
        plan({**found, "restart_unit": None}, {}, ["/var/run/cdi"])


def test_frozen_template_is_not_edited_R11() -> None:
    made = _k3s(
        OLD, GENERATED, K3S + "config.toml.tmpl", "template", (FIXTURES / "R11-go-template-frozen.tmpl").read_bytes()
    )
    assert made.files == [] and made.effective is False
    assert "frozen copy" in made.warnings[0]


def test_R12_k3s_with_containerd_2() -> None:
    rendered = (FIXTURES / "R12-k3s-v3-template.toml").read_text()
    target = K3S + "config-v3.toml.d/10-rbln.toml"
    assert _k3s("2.1.5", rendered, target, "dropin").files == []
    off = rendered + "[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = false\n"
    made = _k3s("2.1.5", off, target, "dropin")
    assert [item.path for item in made.files] == [target]
    assert (made.files[0].new or b"").endswith(
        b'version = 3\n\n[plugins."io.containerd.cri.v1.runtime"]\n  enable_cdi = true\n'
    )


def test_D04_placeholders_survive() -> None:
    path = "/var/snap/microk8s/current/args/containerd-template.toml"
    data = (FIXTURES / "D04-microk8s-template.toml").read_bytes()
    found = runtime(
        OLD,
        flavor="microk8s",
        edit_target={"path": path, "kind": "template"},
        main_config=path.replace("-template", ""),
        config_files=[],
    )
    rendered = path.replace("-template", "")
    values = {b"${SNAPSHOTTER}": b"overlayfs", b"${RUNTIME}": b"runc"}
    before = data
    for name, value in values.items():
        before = before.replace(name, value)
    made = plan(found, {path: Source(path, data), rendered: Source(rendered, before)}, ["/var/run/cdi"])
    assert [item.path for item in made.files] == [path]
    judge = made.judge or {}
    become = base64.b64decode(judge["root_content"])
    for name, value in values.items():
        become = become.replace(value, name)
    assert become == made.files[0].new and b"${" not in base64.b64decode(judge["root_content"])
    assert judge["before"][2] == rendered and judge["root_directory"] == "/var/snap/microk8s/current/args"
    assert made.files[0].new == (FIXTURES / "expected/D04-microk8s-template.toml").read_bytes()
    assert b"${SNAPSHOTTER}" in (made.files[0].new or b"")
    files = {path: Source(path, made.files[0].new), rendered: Source(rendered, data)}
    assert plan({**found, "config_files": [rendered]}, files, ["/var/run/cdi"]).files == [], (
        "what was rendered before the restart does not matter"
    )
    with pytest.raises(NpuError, match="containerd.toml does not exist.*Next: Start"):
        plan(found, {path: Source(path, data)}, ["/var/run/cdi"])
    # Another text, whose values are not known: the template goes before the program as it is.
    other = plan(found, {path: Source(path, data), rendered: Source(rendered, b"version = 2\n")}, ["/var/run/cdi"])
    assert (other.judge or {})["before"][2] == path


K0S = "/etc/k0s/containerd.toml"
COLLECTED = "/run/k0s/containerd-cri.toml"
K0S_DROPIN = "/etc/k0s/containerd.d/99-rbln.toml"


def _k0s(root: str, collected: str | None, ours: bytes | None = None, *more: str) -> RuntimeEdit:
    files = {K0S: Source(K0S, root.encode()), K0S_DROPIN: Source(K0S_DROPIN, ours)}
    if collected is not None:
        files[COLLECTED] = Source(COLLECTED, collected.encode())
    for path in more:
        files[path] = Source(path, b"version = 2\n[metrics]\naddress = 'x'\n")
    found = runtime(
        OLD,
        flavor="k0s",
        main_config=K0S,
        config_files=[path for path in files if path != K0S_DROPIN],
        edit_target={"path": K0S_DROPIN, "kind": "dropin"},
    )
    return plan(found, files, ["/var/run/cdi"])


def test_what_k0s_collects_from_a_drop_in_is_judged() -> None:
    root = '# k0s_managed=true\nversion = 2\nimports = ["/etc/k0s/containerd.d/metrics.toml", "%s"]\n' % COLLECTED
    collected = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n  sandbox_image = "x"\n'
    made = _k0s(root, collected, None, "/etc/k0s/containerd.d/metrics.toml")
    assert [item.path for item in made.files] == [K0S_DROPIN], "the file that k0s makes itself is not edited"
    judge = made.judge or {}
    assert judge["before"] == ["/usr/bin/containerd", "--config", K0S, "config", "dump"]
    become = base64.b64decode(judge["root_content"]).decode()
    assert become == 'version = 2\nimports = ["/etc/k0s/containerd.d/metrics.toml"]\n' + collected.partition("\n")[
        2
    ].replace("false", "true")
    assert judge["root_directory"] == "/etc/k0s" and made.warnings == []
    assert _k0s(root, collected, made.files[0].new).files == [], "only the restart is missing"
    with pytest.raises(NpuError, match="is not what /etc/k0s/containerd.toml was made from.*Next: Restart"):
        _k0s("# k0s_managed=true\nversion = 2\n", None)


def test_a_file_of_k0s_that_the_site_owns_is_judged_as_any_other() -> None:
    found = runtime(OLD, flavor="k0s", main_config=K0S, config_files=[K0S], edit_target={"path": K0S, "kind": "main"})
    made = plan(found, {K0S: Source(K0S, b"version = 2\n")}, ["/var/run/cdi"])
    assert [item.path for item in made.files] == [K0S] and (made.judge or {})["root_directory"] == "/etc/k0s"


def test_judge_reads_the_whole_set_with_the_staged_files() -> None:
    made = _pair(NEW, OFF_V2)
    judge = made.judge or {}
    assert judge["after"] == ["/usr/bin/containerd", "--config", "{root}", "config", "dump"]
    text = base64.b64decode(judge["root_content"]).decode()
    assert 'imports = ["/etc/containerd/conf.d/10-site.toml", "{staged:%s}"]' % DROPIN in text
    assert judge["root_directory"] == "/etc/containerd"
    assert "version" not in judge["allowed"]
