# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import dump_spec, load_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.validate import (
    device_names,
    host_paths,
    same_meaning,
    validate_spec,
)
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.version import minimum_version
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.table import HERE

GOOD: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "rebellions.ai/npu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/rbln0"}]}}],
}


def judged(spec: Any) -> list[tuple[str, str]]:
    problems = validate_spec(spec)
    assert all(problem.detail and problem.next_step for problem in problems)
    return [(problem.severity, problem.code) for problem in problems]


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("C01-cdi-empty-edits", [("error", "cdi_empty_edits"), ("error", "cdi_empty_edits")]),
        ("C02-cdi-null-field", [("warning", "cdi_null")] * 3),
        ("C03-cdi-digit-name-version-bad", [("error", "cdi_version_too_low")]),
        ("C03-cdi-digit-name-version-bad-int", [("warning", "cdi_not_text")]),
        (
            "C03-cdi-digit-name-version-bad-float-version",
            [("warning", "cdi_not_text"), ("error", "cdi_version_unknown")],
        ),
        ("C08-cdi-stale-libs", []),
    ],
)
def test_case(name: str, wanted: list[tuple[str, str]]) -> None:
    path = HERE / "cases" / f"{name}.yaml"
    assert judged(load_spec(path.read_text(), path.name)) == wanted


def test_problems_name_the_place_and_the_remedy() -> None:
    spec = load_spec((HERE / "cases" / "C03-cdi-digit-name-version-bad.yaml").read_text(), "x.yaml")
    assert validate_spec(spec)[0].detail == "cdiVersion: it says 0.4.0 and must say at least 0.5.0, what the file uses"
    spec = load_spec((HERE / "cases" / "C01-cdi-empty-edits.yaml").read_text(), "x.yaml")
    assert [problem.detail.split(":")[0] for problem in validate_spec(spec)] == [
        "devices[all].containerEdits",
        "devices[runtime].containerEdits",
    ]


def edit(path: str, value: Any) -> dict[str, Any]:
    """GOOD with one place set (or, for the value Ellipsis, taken away)."""
    spec = copy.deepcopy(GOOD)
    spot: Any = spec
    *way, last = path.split("/")
    for step in way:
        spot = spot[int(step)] if isinstance(spot, list) else spot.setdefault(step, {})
    if value is ...:
        del spot[last]
    else:
        spot[last] = value
    return spec


EDITS = "devices/0/containerEdits"
BROKEN = [
    ("cdiVersion", ..., "cdi_version_missing"),
    ("cdiVersion", "0.2.0", "cdi_version_too_low"),
    ("cdiVersion", "0.9.0", "cdi_version_unknown"),
    ("cdiVersion", "latest", "cdi_version_unknown"),
    ("cdiVersion", ["0.5.0"], "cdi_wrong_type"),
    ("kind", ..., "cdi_kind"),
    ("kind", "npu", "cdi_kind"),
    ("kind", "/npu", "cdi_kind"),
    ("kind", "rebellions.ai/", "cdi_kind"),
    ("kind", "1eff.ai/npu", "cdi_kind"),
    ("kind", "rebellions.ai/npu-", "cdi_kind"),
    ("kind", "rebellions.ai/a/b", "cdi_kind"),
    ("devices", {}, "cdi_wrong_type"),
    ("devices/0/name", ..., "cdi_device_name"),
    ("devices/0/name", "-3", "cdi_device_name"),
    ("devices/0/name", "+2", "cdi_device_name"),
    ("devices/0/name", "a b", "cdi_device_name"),
    ("devices/0/name", "a_", "cdi_device_name"),
    ("devices/0/name", "0\n", "cdi_device_name"),
    ("devices/0/containerEdits", ..., "cdi_empty_edits"),
    (EDITS, {}, "cdi_empty_edits"),
    (EDITS, {"mounts": [], "env": []}, "cdi_empty_edits"),
    (EDITS, [], "cdi_wrong_type"),
    (EDITS + "/env", ["X"], "cdi_environment"),
    (EDITS + "/env", ["=x"], "cdi_environment"),
    (EDITS + "/env", [None], "cdi_null_item"),
    (EDITS + "/unknown", 1, "cdi_unknown_field"),
    ("unknown", 1, "cdi_unknown_field"),
    (EDITS + "/deviceNodes/0/path", "", "cdi_path_missing"),
    (EDITS + "/deviceNodes/0/type", "x", "cdi_node_type"),
    (EDITS + "/deviceNodes/0/permissions", "rx", "cdi_permissions"),
    (EDITS + "/deviceNodes/0/major", "1", "cdi_wrong_type"),
    (EDITS + "/hooks", [{"hookName": "later", "path": "/x"}], "cdi_hook_name"),
    (EDITS + "/hooks", [{"path": "/x"}], "cdi_hook_name"),
    (EDITS + "/hooks", [{"hookName": "createContainer"}], "cdi_path_missing"),
    (EDITS + "/hooks", [{"hookName": "createContainer", "path": "/x", "env": ["y"]}], "cdi_environment"),
    (EDITS + "/mounts", [{"hostPath": "/x"}], "cdi_path_missing"),
    (EDITS + "/mounts", [{"containerPath": "/x"}], "cdi_path_missing"),
    (EDITS + "/mounts", [{"hostPath": "/x", "containerPath": "/x", "options": "ro"}], "cdi_wrong_type"),
    (EDITS + "/mounts", [{"hostPath": "/x", "containerPath": "/x", "type": "bind"}], None),
    (EDITS + "/intelRdt", {"closID": "a/b"}, "cdi_closid"),
    (EDITS + "/deviceNodes/0/uid", -1, "cdi_out_of_range"),
    (EDITS + "/deviceNodes/0/fileMode", 2**32, "cdi_out_of_range"),
    (EDITS + "/additionalGids", [-1], "cdi_out_of_range"),
    (EDITS + "/additionalGids", [2**32], "cdi_out_of_range"),
    (EDITS + "/additionalGids", ["1"], "cdi_wrong_type"),
    (EDITS + "/netDevices", [{"hostInterfaceName": "a"}], "cdi_net_device"),
    (EDITS + "/netDevices", [{"name": "a"}], "cdi_net_device"),
    (
        EDITS + "/netDevices",
        [{"hostInterfaceName": "a", "name": "n"}, {"hostInterfaceName": "b", "name": "n"}],
        "cdi_net_device",
    ),
    (
        EDITS + "/netDevices",
        [{"hostInterfaceName": "a", "name": "n"}, {"hostInterfaceName": "a", "name": "m"}],
        "cdi_net_device",
    ),
    ("annotations", {"a b": "c"}, "cdi_annotation"),
    ("annotations", {"a": 1}, "cdi_annotation"),
    ("containerEdits/env", ["X"], "cdi_environment"),
]


@pytest.mark.parametrize("path, value, code", BROKEN, ids=[f"{path}={value}" for path, value, _code in BROKEN])
def test_broken(path: str, value: Any, code: str | None) -> None:
    errors = [found for severity, found in judged(edit(path, value)) if severity == "error"]
    if code is None:
        assert errors == []
        return
    assert code in errors
    with pytest.raises(NpuError, match="would be refused"):
        dump_spec(edit(path, value), "yaml")


@pytest.mark.parametrize("value", [None, [], "text", 1])
def test_not_a_map(value: Any) -> None:
    assert judged(value) == [("error", "cdi_not_a_map")]


@pytest.mark.parametrize(
    "edits",
    [
        {"deviceNodes": [{"path": "/dev/rbln0", "permissions": "none"}]},
        {"intelRdt": {"closID": "/"}},
        {"netDevices": [{"hostInterfaceName": "a", "name": "n"}, {"hostInterfaceName": "b", "name": "m"}]},
        {"additionalGids": [0, 2**32 - 1]},
    ],
)
def test_what_version_1_1_allows(edits: dict[str, Any]) -> None:
    assert judged({**edit(EDITS, edits), "cdiVersion": "1.1.0"}) == []


def test_no_device_is_a_warning() -> None:
    assert judged(edit("devices", ...)) == [("warning", "cdi_devices_missing")]
    assert judged(edit("devices", [])) == [("warning", "cdi_devices_empty")]


def test_twin_names() -> None:
    spec = copy.deepcopy(GOOD)
    spec["devices"].append(copy.deepcopy(spec["devices"][0]))
    assert judged(spec) == [("error", "cdi_device_twice")]


def test_vendor_spelling_is_a_warning_and_both_spellings_are_none() -> None:
    hook = {"hookname": "createContainer", "path": "/x"}
    assert judged(edit(EDITS + "/hooks", [hook])) == [("warning", "cdi_field_spelling")]
    assert judged(edit(EDITS + "/hooks", [{"hookName": "createContainer", **hook}])) == []
    both = {**hook, "hookName": "createContainer", "hookname": "onTuesdays"}
    assert judged(edit(EDITS + "/hooks", [both])) == [("warning", "cdi_field_spelling"), ("error", "cdi_hook_name")]


@pytest.mark.parametrize(
    "path, value, version",
    [
        ("devices/0/name", "npu0", "0.3.0"),
        ("devices/0/name", "0", "0.5.0"),
        ("devices/0/name", "_x", "0.5.0"),
        (EDITS, {"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/y"}]}, "0.5.0"),
        (EDITS, {"mounts": [{"hostPath": "/x", "containerPath": "/x", "type": "bind"}]}, "0.5.0"),
        ("annotations", {"a": "b"}, "0.6.0"),
        ("devices/0/annotations", {"a": "b"}, "0.6.0"),
        ("kind", "vendor.com/a.b", "0.6.0"),
        ("containerEdits/intelRdt", {}, "0.7.0"),
        (EDITS + "/additionalGids", [5], "0.7.0"),
        (EDITS + "/intelRdt", {"schemata": []}, "1.1.0"),
        (EDITS + "/intelRdt", {"enableMonitoring": False}, "0.7.0"),
        (EDITS + "/netDevices", [{"hostInterfaceName": "a", "name": "b"}], "1.1.0"),
    ],
)
def test_minimum_version(path: str, value: Any, version: str) -> None:
    assert minimum_version(edit(path, value)) == version


def test_minimum_version_of_a_mount_type_alone() -> None:
    spec = edit("devices/0/name", "a")
    spec["devices"][0]["containerEdits"] = {"mounts": [{"hostPath": "/x", "containerPath": "/x", "type": "bind"}]}
    assert minimum_version(spec) == "0.4.0"


def test_same_meaning() -> None:
    other = {"devices": [], **copy.deepcopy(GOOD), "containerEdits": {"env": [], "intelRdt": None}}
    assert same_meaning(GOOD, other)
    more = copy.deepcopy(GOOD)
    more["devices"].insert(0, {"name": "1", "containerEdits": {"env": ["A=b"]}})
    turned = {**more, "devices": list(reversed(more["devices"]))}
    assert same_meaning(more, turned) and not same_meaning(GOOD, more)
    assert same_meaning(GOOD, edit("devices/0/name", 0))
    order = edit(EDITS + "/env", ["A=1", "B=2"])
    assert not same_meaning(order, edit(EDITS + "/env", ["B=2", "A=1"]))
    assert not same_meaning(GOOD, None)


def test_names_and_paths_of_damaged_files() -> None:
    assert device_names(GOOD) == ["rebellions.ai/npu=0"]
    for broken in (
        None,
        [],
        {"devices": 1},
        {"devices": [1, {"containerEdits": {"mounts": [None, {"hostPath": 5}], "hooks": {}}}]},
    ):
        assert device_names(broken) == [] and host_paths(broken) == []


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("x.json", "{", "x.json cannot be read"),
        ("x.json", "[" * 100000, "x.json cannot be read"),
        ("x.yaml", b"a: 1\n# caf\xe9\n".decode("utf-8", "replace"), "line 2: it is not UTF-8"),
        ("x.yaml", "a: [[1]: 2]", "line 1"),
        ("x.json", '{"a": 1, "a": 2}', "'a' stands twice"),
        ("x.yaml", "a: [1", "line 1"),
        ("x.yaml", "a: 1\na: 2\n", "line 2"),
    ],
)
def test_unreadable_text_names_the_file(name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(NpuError, match=message) as caught:
        load_spec(text, name)
    assert name in str(caught.value) and caught.value.next_step


def test_anchors_are_read_where_pyyaml_is() -> None:
    text = "cdiVersion: &v 0.5.0\nkind: *v\n"
    assert load_spec(text, "x.yaml") == {"cdiVersion": "0.5.0", "kind": "0.5.0"}


def test_fixture_folder() -> None:
    assert len(list(Path(HERE / "cases").iterdir())) == 9
