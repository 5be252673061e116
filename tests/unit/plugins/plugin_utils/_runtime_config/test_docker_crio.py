# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.docker_crio import plan_crio, plan_docker
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import RuntimeEdit, Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.splice import reverse

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures/runtime_config"
JSON = "/etc/docker/daemon.json"


def docker(
    version: str, data: bytes | None, dirs: t.Sequence[str] = ("/var/run/cdi",), flags: t.Sequence[str] = ()
) -> RuntimeEdit:
    runtime = {
        "name": "docker",
        "version": version,
        "main_config": JSON,
        "unit": "docker.service",
        "unit_flags": list(flags),
        "binary": "/usr/bin/dockerd",
    }
    return plan_docker(runtime, {JSON: Source(JSON, data)}, dirs)


TABLE = [
    ("R13-daemon-json-broken.bom", "R13-daemon-json-broken.bom"),
    ("R13-daemon-json-broken.comment", "!line 2, column 3: not valid JSON"),
    ("R13-daemon-json-broken.empty", "R13-daemon-json-broken.empty"),
    ("R13-daemon-json-broken.extra-brace", "!line 2, column 46: not valid JSON: Extra data"),
    ("R13-daemon-json-broken.html", "!line 1, column 1: not valid JSON"),
    ("R13-daemon-json-broken.three-objects", "!line 4, column 1: not valid JSON: Extra data"),
    ("R13-daemon-json-broken.trailing", "!line [34], column [0-9]+: not valid JSON"),
    ("R15-daemon-json-merge", "R15-daemon-json-merge"),
    ("r31_dkr_empty_file", "r31_dkr_empty_file"),
    ("r32_dkr_whitespace", "r32_dkr_whitespace"),
    ("r33_dkr_existing", "r33_dkr_existing"),
    ("r34_dkr_cdi_true_already", "same"),
    ("r35_dkr_cdi_false", "r35_dkr_cdi_false"),
    ("r36_dkr_malformed", "!line 1, column 15: not valid JSON"),
    ("r37_dkr_comments", "!line 2, column 3: not valid JSON"),
    ("r38_dkr_features_wrong_type", "!features must be an object"),
    ("r40_dkr_null", "!the file must hold one JSON object, not null"),
    ("r41_dkr_array", "!the file must hold one JSON object, not an array"),
    ("r43_dkr_dryrun", "r43_dkr_dryrun"),
]


@pytest.mark.parametrize("name, outcome", TABLE, ids=[row[0] for row in TABLE])
def test_docker_fixture(name: str, outcome: str) -> None:
    data = (FIXTURES / (name + ".json")).read_bytes()
    if outcome.startswith("!"):
        with pytest.raises(NpuError, match=JSON + ": " + outcome[1:]):
            docker("27.5.1", data)
        return
    made = docker("27.5.1", data)
    if outcome == "same":
        assert made.files == []
        return
    new = made.files[0].new or b""
    assert new == (FIXTURES / "expected" / (outcome + ".json")).read_bytes()
    assert json.loads(new.decode("utf-8-sig"))["features"]["cdi"] is True
    assert docker("27.5.1", new).files == []
    assert reverse(new.decode(), made.files[0].splices).encode() == data


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"features": null}', {"features": {"cdi": True}}),
        ('{\n\t"debug": true,\n\t"features" : null\n}\n', {"debug": True, "features": {"cdi": True}}),
        ('{"features":{},"x":{"features":null}}', {"features": {"cdi": True}, "x": {"features": None}}),
        ('{"features":{"a\\"b":true}}', {"features": {'a"b': True, "cdi": True}}),
        ('{"é":"\\u00e9","features":{ }}\r\n', {"é": "é", "features": {"cdi": True}}),
    ],
    ids=["R15-daemon-json-merge-%d" % number for number in range(5)],
)
def test_R15_odd_forms_of_features(text: str, expected: dict[str, t.Any]) -> None:
    made = docker("27.5.1", text.encode())
    new = (made.files[0].new or b"").decode()
    assert json.loads(new) == expected
    assert docker("27.5.1", new.encode()).files == []
    assert reverse(new, made.files[0].splices) == text


def test_R13_a_byte_order_mark_is_kept_and_said() -> None:
    made = docker("27.5.1", (FIXTURES / "R13-daemon-json-broken.bom.json").read_bytes())
    assert "byte order mark" in made.warnings[0]


@pytest.mark.parametrize("text", ["", " \n\t", "\x0c\n", "\u00a0", "\ufeff\u2028\n"])
def test_R13_what_docker_takes_for_an_empty_file_is_one(text: str) -> None:
    made = docker("27.5.1", text.encode())
    new = (made.files[0].new or b"").decode()
    assert json.loads(new.lstrip("\ufeff")) == {"features": {"cdi": True}}
    assert reverse(new, made.files[0].splices) == text


R16 = [
    ("24.0.9", None, "!has no CDI; it came with 25.0"),
    ("26.1.4", {"features": {"cdi-devices": True}}, {"features": {"cdi-devices": True, "cdi": True}}),
    ("27.5.1", {}, {"features": {"cdi": True}}),
    ("28.2.2", {}, None),
    ("28.3.0", {"features": {"cdi": False}}, {"features": {"cdi": True}}),
    ("28.1.1", {}, {"features": {"cdi": True}}),
    ("28.2.0", {"features": {"buildkit": True}}, None),
    ("29.0.0", None, None),
]


@pytest.mark.parametrize("version, before, after", R16, ids=["R16-docker-feature-key-%s" % row[0] for row in R16])
def test_which_docker_needs_what(version: str, before: t.Any, after: t.Any) -> None:
    data = None if before is None else json.dumps(before).encode()
    if isinstance(after, str):
        with pytest.raises(NpuError, match=after[1:]):
            docker(version, data)
        return
    made = docker(version, data)
    assert [json.loads(item.new or b"") for item in made.files] == ([] if after is None else [after])
    assert any("cdi-devices" in text for text in made.warnings) == bool(
        before and "cdi-devices" in before.get("features", {})
    )


FLAGS = [
    (["--feature", "cdi=true"], "27.5.1", None),
    (["--feature=cdi"], "27.5.1", None),
    (["--feature", "buildkit=true"], "27.5.1", "docker.service starts dockerd with --feature"),
    (["--feature=cdi=false"], "28.3.0", "docker.service starts dockerd with --feature"),
    (["--feature", "buildkit=true"], "28.3.0", None),
]


@pytest.mark.parametrize("flags, version, pattern", FLAGS)
def test_flags_of_the_unit(flags: list[str], version: str, pattern: str | None) -> None:
    if pattern is None:
        assert docker(version, None, flags=flags).files == []
        return
    with pytest.raises(NpuError, match=pattern + ".*Next: Set --feature cdi=true in docker.service"):
        docker(version, None, flags=flags)


def test_directories_given_by_flags() -> None:
    assert docker("28.3.0", b"{}", flags=["--cdi-spec-dir=/var/run/cdi"]).files == []
    with pytest.raises(NpuError, match="--cdi-spec-dir.*Next: Add --cdi-spec-dir /var/run/cdi"):
        docker("28.3.0", b"{}", flags=["--cdi-spec-dir", "/opt/cdi"])


def test_another_configuration_file() -> None:
    runtime = {
        "name": "docker",
        "version": "27.5.1",
        "unit_flags": ["--config-file=/etc/d.json", "-H", "fd://", "$OPTS"],
        "binary": "/usr/bin/dockerd",
    }
    made = plan_docker(runtime, {}, ["/var/run/cdi"])
    assert made.files[0].path == "/etc/d.json"
    assert made.judge is not None
    assert made.judge["after"] == [
        "/usr/bin/dockerd",
        "--validate",
        "--config-file",
        "{staged:/etc/d.json}",
        "-H",
        "fd://",
    ]
    named = plan_docker({**runtime, "main_config": "/var/snap/docker/current/d.json"}, {}, ["/var/run/cdi"])
    assert named.files[0].path == "/var/snap/docker/current/d.json", "the detection knows better, as for a snap"


JSON_EDITS = [
    ('{"a": 1e5, "b": 12345678901234567890}', '{"a": 1e5, "b": 12345678901234567890, "features": {"cdi": true}}'),
    ('{\n\t"z": 1,\n\t"a": 2\n}\n', '{\n\t"z": 1,\n\t"a": 2,\n\t"features": {\n\t\t"cdi": true\n\t}\n}\n'),
    ('{\r\n    "z": 1\r\n}\r\n', '{\r\n    "z": 1,\r\n    "features": {\r\n        "cdi": true\r\n    }\r\n}\r\n'),
    ('{"a":"& < >"}', '{"a":"& < >","features":{"cdi":true}}'),
    ("{ }", '{"features": {"cdi": true}}'),
    ("{\n}\n", '{\n  "features": {\n    "cdi": true\n  }\n}\n'),
    (
        '{\n  "features": {\n    "buildkit": true\n  }\n}',
        '{\n  "features": {\n    "buildkit": true,\n    "cdi": true\n  }\n}',
    ),
    ('{"features" : {"cdi"  :  false}}', '{"features" : {"cdi" : true}}'),
    ('{"features": {}}', '{"features": {"cdi": true}}'),
    ('{"s": "\\"}{", "features": {"x": true}}', '{"s": "\\"}{", "features": {"x": true, "cdi": true}}'),
]


@pytest.mark.parametrize("before, after", JSON_EDITS)
def test_json_text_is_kept(before: str, after: str) -> None:
    made = docker("27.5.1", before.encode())
    assert (made.files[0].new or b"").decode() == after
    json.loads(after)
    assert reverse(after, made.files[0].splices) == before


@pytest.mark.parametrize(
    "text, pattern",
    [
        ('{"a": 1,\n "a": 2}', 'daemon.json: the key "a" appears twice, and programs take the last'),
        ('{"b": {"a": 1, "a": 2}}', 'daemon.json: the key "a" appears twice, and programs take the last'),
        ('{"features": {"cdi": "true"}}', "daemon.json: features.cdi must be true or false"),
        ('{"a": NaN}', "not valid JSON"),
        ('{"cdi-spec-dirs": "/x"}', "daemon.json: cdi-spec-dirs must be a list of strings"),
        ('{"a": [1,]}', "line 1, column [0-9]+: not valid JSON"),
        ('{"a": 1} x', "line 1, column 10: not valid JSON"),
    ],
)
def test_json_faults(text: str, pattern: str) -> None:
    with pytest.raises(NpuError, match=pattern):
        docker("27.5.1", text.encode())


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(NpuError, match="line 2, column 7: not UTF-8 text"):
        docker("27.5.1", b'{\n"a": "\xff"}')


DIRS = [
    ('{"cdi-spec-dirs": ["/opt/cdi"]}', '{"cdi-spec-dirs": ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]}'),
    ('{"cdi-spec-dirs": [""]}', '{"cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}'),
    ('{"cdi-spec-dirs": ["/run/cdi"]}', None),
    (
        '{\n  "cdi-spec-dirs": [\n    "/o"\n  ]\n}',
        '{\n  "cdi-spec-dirs": [\n    "/o",\n    "/etc/cdi",\n    "/var/run/cdi"\n  ]\n}',
    ),
]


@pytest.mark.parametrize("before, after", DIRS)
def test_docker_directories(before: str, after: str | None) -> None:
    made = docker("28.3.0", before.encode())
    assert [(item.new or b"").decode() for item in made.files] == ([] if after is None else [after])


CRIO = "/etc/crio/crio.conf.d/"
MANAGED = "# Managed by the rebellions.npu collection: CDI in containers. Removed by state=absent.\n"


def crio(files: t.Mapping[str, str], dirs: t.Sequence[str] = ("/var/run/cdi",)) -> RuntimeEdit:
    runtime = {
        "name": "cri-o",
        "version": "1.30.4",
        "config_files": sorted(files, key=lambda path: (path.startswith(CRIO), path)),
        "edit_target": {"path": CRIO + "99-rbln.conf", "kind": "dropin"},
    }
    return plan_crio(runtime, {path: Source(path, text.encode()) for path, text in files.items()}, dirs)


def test_crio_defaults_need_nothing_R19() -> None:
    assert crio({}).files == []
    assert crio({"/etc/crio/crio.conf": "[crio.runtime]\nlog_level = 'info'\n"}).files == []


def test_R19_enable_cdi_leaves_our_file() -> None:
    before = (FIXTURES / "R19-crio-no-enable-key.conf").read_text()
    made = crio({CRIO + "99-rbln.conf": before})
    assert (made.files[0].new or b"").decode() == before.replace("enable_cdi = true\n", "")
    assert made.files[0].aside == "/etc/crio", "CRI-O reads every file of its drop-in directory"


def test_r51_our_file_is_edited_not_replaced() -> None:
    before = (FIXTURES / "r51_crio_existing_dropin.conf").read_text()
    made = crio({CRIO + "99-rbln.conf": before})
    assert (
        made.files[0].new or b""
    ).decode() == '# mine\n[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]\n'


def test_r50_a_new_dropin_holds_what_is_effective() -> None:
    made = crio(
        {
            "/etc/crio/crio.conf": '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n',
            CRIO + "10-crio.conf": "[crio.image]\n",
        }
    )
    assert [item.path for item in made.files] == [CRIO + "99-rbln.conf"]
    assert (made.files[0].new or b"").decode() == (
        MANAGED + '\n[crio.runtime]\n  cdi_spec_dirs = ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]\n'
    )
    assert crio({}, ["/opt/npu/cdi"]).files[0].new is not None


def test_R18_a_later_file_of_the_site_is_not_effective() -> None:
    with pytest.raises(
        NpuError, match="zz-site.conf sets cdi_spec_dirs and is read after .*Next: Add /etc/cdi, /var/run/cdi"
    ):
        crio(
            {
                CRIO + "00-default.conf": "",
                CRIO + "10-crio.conf": "",
                CRIO + "zz-site.conf": (FIXTURES / "R18-crio-dropin-dir.conf").read_text(),
            }
        )


def test_h05_crio_nested_dropins_that_are_read_later_are_not_effective() -> None:
    later, earlier = CRIO + "site/50-cdi.conf", CRIO + "10-site.d/zz-cdi.conf"
    with pytest.raises(NpuError, match="site/50-cdi.conf sets cdi_spec_dirs and is read after .*Next: Add /var/run"):
        crio({later: '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n'}, ["/var/run/cdi"])
    made = crio({earlier: '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n'}, ["/var/run/cdi"])
    assert [item.path for item in made.files] == [CRIO + "99-rbln.conf"]


def test_crio_wrong_type() -> None:
    with pytest.raises(NpuError, match="10-x.conf: cdi_spec_dirs is not a list of strings"):
        crio({CRIO + "10-x.conf": '[crio.runtime]\ncdi_spec_dirs = "/x"\n'})
