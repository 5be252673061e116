# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every made-up host: the right specification, where the vendor's is right and where it is not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.build import build_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import dump_spec, load_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.validate import validate_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.version import minimum_version
from ansible_collections.rebellions.npu.plugins.module_utils._host import host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.table import CASES, HERE, Case, vendor
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree

NAMES = [case.name for case in CASES]
WRITTEN = [case for case in CASES if not case.error]


def official_schema() -> Any:
    """The schema of the CDI project with its two files in one."""
    schema = json.loads((HERE / "schema" / "schema.json").read_text().replace("defs.json#", "#"))
    schema["definitions"] = json.loads((HERE / "schema" / "defs.json").read_text())["definitions"]
    return jsonschema.Draft7Validator(schema)


def build(case: Case, root: Path, **more: Any) -> Any:
    tree = Tree(root)
    case.build(tree)
    tree.hook()
    options = CdiOptions(**{"machine": "x86_64", "selinux_context": "none", **case.options, **more})
    return build_spec(PROFILE, tree.host(host), options)


def test_every_output_of_the_vendor_has_a_case() -> None:
    outputs = {path.stem for path in (HERE / "vendor").iterdir() if path.suffix in (".yaml", ".json")}
    assert outputs - {"c22_unreadable_dir"} == set(NAMES)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_content(case: Case, tmp_path: Path) -> None:
    wanted = vendor(case.name)
    if case.error:
        with pytest.raises(NpuError, match=case.error):
            build(case, tmp_path)
        return
    if case.change:
        before = copy.deepcopy(wanted)
        case.change(wanted)
        assert wanted != before and case.why
    result = build(case, tmp_path)
    assert result.spec == wanted
    assert result.action == "write"
    assert sorted(problem.code for problem in result.warnings) == sorted(case.warnings)


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("case", WRITTEN, ids=[case.name for case in WRITTEN])
def test_every_text_is_valid_and_means_the_same(case: Case, form: str, tmp_path: Path) -> None:
    spec = build(case, tmp_path).spec
    text = dump_spec(spec, form)
    for loaded in (load_spec(text, "x." + form), yaml.safe_load(text)):
        assert loaded == spec
        official_schema().validate(loaded)
    assert validate_spec(spec) == []
    assert minimum_version(spec) == spec["cdiVersion"]
    assert "null" not in text and "{}" not in text and "[]" not in text


@pytest.mark.parametrize("case", WRITTEN, ids=[case.name for case in WRITTEN])
def test_forms_and_modes_are_valid(case: Case, tmp_path: Path) -> None:
    for more in ({"hooks": "off"}, {"legacy_hookname": True}, {"container_library_path": "/iso"}):
        spec = build(case, tmp_path, **more).spec
        official_schema().validate(spec)
        assert validate_spec(spec) == []
        assert build(case, tmp_path, **more).spec == spec


def test_the_schema_refuses_what_the_vendor_writes() -> None:
    """The schema is really applied: it knows no hook without hookName and no null timeout."""
    raw = yaml.safe_load((HERE / "vendor" / "c30_devices_disabled.yaml").read_text())
    messages = " ".join(error.message for error in official_schema().iter_errors(raw))
    assert "'hookName' is a required property" in messages
    assert "None is not of type 'integer'" in messages
