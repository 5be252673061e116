# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our reading of containerd's files against what containerd 1.7.27 and 2.1.4 said of them.

Also the rules of each release.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._formats.toml import TomlError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.containerd_config import (
    ConfigSet,
    Effective,
    effective,
    from_dump,
    load_set,
    resolve_import,
)

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "runtimes"
DEFAULTS = ("/etc/cdi", "/var/run/cdi")
with open(FIXTURES / "containerd" / "EFFECTIVE.tsv", encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream, delimiter="\t"))
# containerd 1.7 merges a table that stands there twice, which is not TOML; only its own loader can say what comes out.
ONLY_ITS_LOADER = ("1.7.27", "r11_ctd_single_quote_key.output.toml")


def written(root: Path, files: dict[str, str]) -> Host:
    for path, text in files.items():
        real = root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text, encoding="utf-8")
    return Host(str(root))


def judged(root: Path, files: dict[str, str], release: str) -> tuple[ConfigSet, Effective]:
    found = load_set(written(root, files), "/etc/containerd/config.toml", release_numbers(release))
    return found, effective(found, release_numbers(release))


def test_the_table_of_real_answers_is_whole() -> None:
    assert len(ROWS) == 82


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "%s-%s" % (row["release"], row["file"][: -len(".toml")]))
def test_own_reading_is_what_containerd_said(row: dict[str, str], tmp_path: Path) -> None:
    text = (FIXTURES / "containerd" / row["file"]).read_bytes().decode("utf-8")
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_bytes(text.encode("utf-8"))
    found = effective(
        load_set(Host(str(tmp_path)), "/etc/containerd/config.toml", release_numbers(row["release"])),
        release_numbers(row["release"]),
    )
    if (row["release"], row["file"]) == ONLY_ITS_LOADER:
        assert found.error and found.enabled is None
        return
    assert bool(found.error) == (row["rc"] != "0")
    assert ("-" if found.enabled is None else str(found.enabled).lower()) == row["enable_cdi"]
    assert ("-" if found.enabled is None else ",".join(found.spec_dirs)) == row["cdi_spec_dirs"]


V2 = '[plugins."io.containerd.grpc.v1.cri"]\n'
V3 = "[plugins.'io.containerd.cri.v1.runtime']\n"
ROOT = "/etc/containerd/config.toml"
DROPIN = "/etc/containerd/conf.d/10-a.toml"
IMPORT = 'imports = ["conf.d/*.toml"]\n'


@pytest.mark.parametrize(
    "release, root, dropin, enabled, spec_dirs",
    [
        pytest.param(
            "1.7.27",
            "version = 2\n" + V2 + 'cdi_spec_dirs = ["/a"]\n',
            "version = 2\n" + V2 + "enable_cdi = true\n",
            True,
            DEFAULTS,
            id="1.7-replaces-the-table",
        ),
        pytest.param(
            "2.1.4",
            "version = 2\n" + V2 + 'cdi_spec_dirs = ["/a"]\n',
            "version = 2\n" + V2 + "enable_cdi = false\n",
            False,
            ("/a",),
            id="2.1-merges-tables",
        ),
        pytest.param(
            "2.1.4",
            "version = 3\n" + V3 + 'cdi_spec_dirs = ["/a"]\n',
            "version = 3\n" + V3 + 'cdi_spec_dirs = ["/b"]\n',
            True,
            ("/b",),
            id="2.1-replaces-lists-in-tables",
        ),
        pytest.param(
            "2.1.4",
            "version = 3\n",
            "version = 3\n" + V2 + "enable_cdi = false\n",
            True,
            DEFAULTS,
            id="2.1-version-3-ignores-the-old-table",
        ),
        pytest.param(
            "2.3.4",
            "version = 3\n",
            "version = 3\n" + V2 + "enable_cdi = false\n",
            False,
            DEFAULTS,
            id="2.3-version-3-honours-the-old-table",
        ),
        pytest.param(
            "2.1.4",
            "version = 2\n" + V2 + "enable_cdi = false\n",
            "version = 3\n" + V3,
            True,
            DEFAULTS,
            id="2.1-version-3-dropin-hides-version-2-tables",
        ),
        pytest.param(
            "2.3.4", "version = 2\n", "version = 3\n" + V3, None, (), id="2.3-refuses-a-dropin-of-higher-version"
        ),
        pytest.param(
            "2.4.2",
            "version = 2\n" + V2 + 'cdi_spec_dirs = ["/a"]\n',
            "version = 3\n" + V3 + "enable_cdi = false\n",
            True,
            ("/a",),
            id="2.4-has-no-switch",
        ),
        pytest.param("2.1.4", "[plugins.cri]\nenable_cdi = false\n", "", True, DEFAULTS, id="2.1-ignores-schema-1-cri"),
        pytest.param(
            "2.3.4", "[plugins.cri]\nenable_cdi = false\n", "", False, DEFAULTS, id="2.3-migrates-schema-1-cri"
        ),
        pytest.param("1.7.27", "[plugins.cri]\nenable_cdi = true\n", "", True, DEFAULTS, id="1.7-schema-1-counts"),
    ],
)
def test_rules_of_each_release(
    release: str, root: str, dropin: str, enabled: bool | None, spec_dirs: tuple[str, ...], tmp_path: Path
) -> None:
    head, mark, rest = root.partition("\n")
    text = head + mark + IMPORT + rest if head.startswith("version") else IMPORT + root
    files, found = judged(tmp_path, {ROOT: text, DROPIN: dropin}, release)
    assert [item.path for item in files.files] == [ROOT, DROPIN]
    assert (found.enabled, found.spec_dirs) == (enabled, spec_dirs)
    assert bool(found.error) == (enabled is None)


def test_reading_order_is_breadth_first_and_a_ring_ends(tmp_path: Path) -> None:
    files = {
        ROOT: 'version = 2\nimports = ["/srv/b.toml", "conf.d/*.toml"]\n',
        "/srv/b.toml": 'imports = ["deep/*.toml", "/etc/containerd/config.toml"]\n',
        "/srv/deep/z.toml": "",
        "/etc/containerd/conf.d/20.toml": "",
        "/etc/containerd/conf.d/10.toml": "",
        "/etc/containerd/conf.d/10.toml.bak": "",
    }
    found, state = judged(tmp_path, files, "1.7.27")
    expected = [
        ROOT,
        "/srv/b.toml",
        "/etc/containerd/conf.d/10.toml",
        "/etc/containerd/conf.d/20.toml",
        "/srv/deep/z.toml",
    ]
    assert [item.path for item in found.files] == expected
    assert state.error == ""


def test_a_named_import_that_is_not_there_stops_containerd(tmp_path: Path) -> None:
    found, state = judged(tmp_path, {ROOT: 'version = 2\nimports = ["/srv/none.toml", "/srv/none/*.toml"]\n'}, "2.1.4")
    assert state.enabled is None
    assert "/srv/none.toml cannot be read" in state.error
    assert found.error_code == "containerd_config_unreadable"


@pytest.mark.parametrize(
    "line, what",
    [
        ('imports = "/etc/containerd/conf.d/*.toml"', "imports is not a list"),
        ('disabled_plugins = "cri"', "disabled_plugins is not a list"),
        ('plugins = ["cri"]', "plugins is not a table"),
        ('version = "2"', "version is not an integer"),
        ("version = 2.0", "version is not an integer"),
    ],
    ids=[
        "R01-imports-preserved-text",
        "R09-disabled-cri-text",
        "R05-v1-schema-plugins-list",
        "R05-v1-schema-version-text",
        "R05-v1-schema-version-float",
    ],
)
def test_a_value_of_the_wrong_type_stops_containerd(line: str, what: str, tmp_path: Path) -> None:
    found, state = judged(tmp_path, {ROOT: line + "\n"}, "1.7.27")
    assert state.enabled is None
    assert state.error == "%s: %s" % (ROOT, what)
    assert found.error_code == "containerd_config_invalid"


@pytest.mark.parametrize(
    "release, expected", [("1.6.20", "/"), ("1.7.0", "/etc/containerd/"), ("2.1.4", "/etc/containerd/")]
)
def test_relative_patterns(release: str, expected: str, tmp_path: Path) -> None:
    host = written(tmp_path, {"/etc/containerd/conf.d/a.toml": "", "/conf.d/a.toml": ""})
    assert resolve_import(host, ROOT, "conf.d/*.toml", release_numbers(release)) == [expected + "conf.d/a.toml"]


def test_absent_root_file_means_defaults_unless_a_flag_names_it(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert effective(load_set(host, ROOT, (2, 1)), (2, 1)) == Effective(True, False, DEFAULTS, True)
    assert "cannot be read" in effective(load_set(host, ROOT, (2, 1), named=True), (2, 1)).error


def test_an_error_names_file_line_and_column(tmp_path: Path) -> None:
    found, state = judged(tmp_path, {ROOT: "version = 2\n" + IMPORT, DROPIN: "a = 1\n[plugins\n"}, "2.1.4")
    assert found.error.startswith("/etc/containerd/conf.d/10-a.toml, line 2, column ")
    assert state.enabled is None


@pytest.mark.parametrize(
    "line, table, what",
    [
        ("disabled_plugins = 'io.containerd.cri.v1.runtime'", "", "disabled_plugins is not a list"),
        ("disabled_plugins = 1", "", "disabled_plugins is not a list"),
        ("", "enable_cdi = 'false'", "enable_cdi is not a boolean"),
        ("", "cdi_spec_dirs = [1]", "cdi_spec_dirs is not a list of strings"),
        ("", "cdi_spec_dirs = '/etc/cdi'", "cdi_spec_dirs is not a list of strings"),
    ],
)
def test_a_dump_with_values_of_other_types_is_no_answer(line: str, table: str, what: str) -> None:
    text = "%s\n[plugins.'io.containerd.cri.v1.runtime']\n%s\n" % (line, table)
    with pytest.raises(TomlError, match=what):
        from_dump(text, (2, 1), Effective(None, False, (), None, "a strict reader refuses it"))


def test_dump_of_a_release_without_the_switch() -> None:
    own = Effective(True, False, DEFAULTS, True)
    text = "version = 4\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/x']\n"
    assert from_dump(text, (2, 4), own) == Effective(True, False, ("/x",), True)
    assert from_dump("version = 4\n", (2, 4), own) == Effective(None, False, (), False)


@pytest.mark.parametrize(
    "version, error", [("version = 1\n", ""), ("version = 2\n", "'zfs', which is not a plugin name")]
)
def test_short_names_are_those_of_version_1(version: str, error: str, tmp_path: Path) -> None:
    answer = judged(tmp_path, {"/etc/containerd/config.toml": version + 'disabled_plugins = ["zfs"]\n'}, "2.4.2")[1]
    assert error in answer.error and bool(answer.error) == bool(error)
    assert answer.enabled is (None if error else True)
