# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of what is on a host with what should be, and conflicts with other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.manage import manage
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import compare, dump_spec, load_spec
from ansible_collections.rebellions.npu.plugins.module_utils._host import host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.table import HERE, full
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree

PATH = "/var/run/cdi/rbln.yaml"
OPTIONS = {"machine": "x86_64", "selinux_context": "none", "hooks": "off"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    full("/dev/rbln0", verbs=True)(tree)
    return tree


def look(tree: Tree, path: str = PATH, **options: Any) -> dict[str, Any]:
    return compare(PROFILE, tree.host(host), CdiOptions(**{**OPTIONS, **options}), path)


def run(tree: Tree, check: bool = False, **params: Any) -> dict[str, Any]:
    return manage(PROFILE, tree.host(host), {**OPTIONS, **params}, check)


def codes(result: dict[str, Any], severity: str = "error") -> list[str]:
    found = [one if isinstance(one, dict) else one.to_dict() for one in result["problems"]]
    return sorted(one["code"] for one in found if one["severity"] == severity)


def text(tree: Tree, path: str = PATH) -> str:
    return (tree.root / path.lstrip("/")).read_text()


def spec_of(name: str) -> str:
    return (
        'cdiVersion: "0.5.0"\nkind: "rebellions.ai/npu"\ndevices:\n'
        '  - name: "%s"\n    containerEdits:\n      env: ["A=b"]\n' % name
    )


class TestCompare:
    def test_missing_then_current_then_stale(self, tree: Tree) -> None:
        seen = look(tree)
        assert (seen["state"], seen["changed"], seen["before"]) == ("missing", True, None)
        assert run(tree)["changed"]
        assert text(tree) == seen["after"]
        seen = look(tree)
        assert (seen["state"], seen["changed"]) == ("current", False)
        assert seen["before"] == seen["after"] == text(tree)
        tree.device("/dev/rbln1")
        seen = look(tree)
        assert (seen["state"], seen["changed"]) == ("stale", True)

    def test_c08_cdi_stale_libs(self, tmp_path: Path) -> None:
        """C08-cdi-stale-libs: the old driver's file is named, writing changes once and then never again."""
        tree = Tree(tmp_path)
        tree.elf("/usr/lib64/librbln-ccl.so.3.2.2", soname="librbln-ccl.so.3")
        tree.link("librbln-ccl.so.3.2.2", "/usr/lib64/librbln-ccl.so")
        tree.device("/dev/rbln0")
        tree.put(PATH, (HERE / "cases" / "C08-cdi-stale-libs.yaml").read_text())
        seen = look(tree)
        assert seen["missing_host_paths"] == ["/usr/lib64/librbln-ccl.so.3.0.0"]
        assert (seen["state"], seen["changed"]) == ("stale", True)
        assert codes(seen) == ["cdi_host_paths_missing"]
        assert codes(run(tree, check=True)) == []
        first = run(tree)
        written = text(tree)
        second = run(tree)
        assert (first["changed"], second["changed"]) == (True, False)
        assert text(tree) == written and "librbln-ccl.so.3.2.2" in written and "3.0.0" not in written
        assert look(tree)["missing_host_paths"] == [] and codes(look(tree)) == []

    def test_one_of_a_toolkit_in_a_container_is_judged_and_never_written(self, tree: Tree) -> None:
        """As the vendor's daemon writes it: another order, hooks with their name in lower case."""
        seen = look(tree, owner="container")
        assert (seen["state"], seen["changed"], seen["after"]) == ("missing", False, None)
        tree.put("/usr/local/bin/rbln-cdi-hook", "")
        hook = "{hookname: createContainer, path: /usr/local/bin/rbln-cdi-hook, args: [a], env: [], timeout: null}"
        mount = "{hostPath: %s, containerPath: /usr/local/lib/rbln/librbln-ml.so, options: [ro, bind]}"
        spec = (
            "cdiVersion: 0.5.0\nkind: rebellions.ai/npu\ndevices:\n"
            "  - name: runtime\n    containerEdits: {hooks: [%s], mounts: [%s]}\n" % (hook, mount)
        )
        library = look(tree)["libraries"][0]
        tree.put(PATH, spec % library)
        seen = look(tree, owner="container")
        assert (seen["state"], seen["changed"], codes(seen)) == ("current", False, [])
        assert look(tree)["state"] == "stale"
        tree.put(PATH, spec % "/usr/lib64/gone.so")
        seen = look(tree, owner="container")
        assert (seen["state"], seen["changed"]) == ("stale", False)
        assert codes(seen) == ["cdi_host_paths_missing"]
        tree.put(PATH, "[")
        seen = look(tree, owner="container")
        assert (seen["state"], seen["changed"]) == ("invalid", False)
        with pytest.raises(NpuError, match="owner is 'me'"):
            CdiOptions.read({"owner": "me"})

    def test_other_order_and_style_is_left_alone(self, tree: Tree) -> None:
        run(tree)
        spec = load_spec(text(tree), PATH)
        spec["devices"].reverse()
        other = dump_spec(dict(reversed(spec.items())), "json")
        tree.put(PATH, other)
        assert not run(tree)["changed"] and text(tree) == other

    @pytest.mark.parametrize(
        "content",
        ["", "[", "a: 1\n", "cdiVersion: 0.5.0\nkind: rebellions.ai/npu\ndevices: [{name: all, containerEdits: {}}]\n"],
    )
    def test_what_a_reader_refuses_is_invalid_and_replaced(self, tree: Tree, content: str) -> None:
        tree.put(PATH, content)
        seen = look(tree)
        assert (seen["state"], seen["changed"]) == ("invalid", True) and codes(seen)
        done = run(tree)
        assert done["changed"] and codes(done) == [] and done["found"] == "invalid"
        assert look(tree)["state"] == "current"

    def test_zero_devices(self, tree: Tree) -> None:
        run(tree)
        (tree.root / "dev/rbln0").unlink()
        before = text(tree)
        seen = look(tree)
        assert (seen["changed"], seen["action"], codes(seen)) == (
            False,
            "fail",
            ["cdi_cannot_build", "cdi_host_paths_missing"],
        )
        with pytest.raises(NpuError, match="no NPU device node"):
            run(tree)
        assert not run(tree, zero_devices="skip")["changed"] and text(tree) == before
        assert run(tree, zero_devices="remove", check=True)["changed"] and text(tree) == before
        assert run(tree, zero_devices="remove")["changed"]
        assert not run(tree, zero_devices="remove")["changed"]
        assert look(tree, zero_devices="remove")["state"] == "current"

    def test_unreadable_is_not_missing(self, tree: Tree) -> None:
        tree.directory(PATH)
        with pytest.raises(NpuError, match=f"{PATH} cannot be read"):
            look(tree)

    @pytest.mark.parametrize("path, message", [("/var/run/cdi/x.yml", "does not end"), ("cdi/x.yaml", "not absolute")])
    def test_bad_path(self, tree: Tree, path: str, message: str) -> None:
        with pytest.raises(NpuError, match=message):
            look(tree, path)

    def test_format_that_contradicts_the_path(self, tree: Tree) -> None:
        with pytest.raises(NpuError, match="asks for yaml and the format is json"):
            run(tree, path=PATH, format="json")


class TestConflicts:
    @pytest.mark.parametrize(
        "other, chosen, severity",
        [
            ("/etc/cdi/rbln.yaml", PATH, "warning"),
            ("/var/run/cdi/rbln.json", None, "error"),
            ("/var/run/cdi/other.yaml", None, "error"),
        ],
    )
    def test_same_device(self, tree: Tree, other: str, chosen: str | None, severity: str) -> None:
        content = spec_of("all")
        tree.put(other, content if other.endswith(".yaml") else dump_spec(load_spec(content, "x.yaml"), "json"))
        seen = look(tree)
        assert seen["conflicts"] == [
            {"kind": "device", "name": "rebellions.ai/npu=all", "paths": [PATH, other], "chosen": chosen}
        ]
        assert codes(seen, severity) == ["cdi_conflict"]

    def test_ours_hidden_by_a_later_directory(self, tree: Tree) -> None:
        tree.put(PATH, spec_of("0"))
        seen = look(tree, "/etc/cdi/rbln.yaml")
        assert [(one["name"], one["chosen"]) for one in seen["conflicts"]] == [("rebellions.ai/npu=0", PATH)]

    @pytest.mark.parametrize("content", [spec_of("7"), spec_of("all").replace("rebellions.ai/npu", "vendor.com/x")])
    def test_other_devices_are_no_conflict(self, tree: Tree, content: str) -> None:
        tree.put("/var/run/cdi/other.yaml", content)
        assert look(tree)["conflicts"] == [] and codes(look(tree)) == []

    def test_an_unreadable_file_is_told_and_not_ignored(self, tree: Tree) -> None:
        tree.put("/etc/cdi/broken.yaml", "a: [\n")
        tree.directory("/etc/cdi/folder.json")
        tree.put("/etc/cdi/notes.txt", spec_of("all"))
        seen = look(tree)
        assert codes(seen, "warning") == ["cdi_spec_unreadable", "cdi_spec_unreadable"]
        assert "/etc/cdi/broken.yaml" in [one for one in seen["problems"] if "broken" in one.detail][0].detail

    def test_one_directory_under_two_names_is_one(self, tree: Tree) -> None:
        tree.directory("/run/cdi")
        tree.link("/run", "/var/run")
        assert codes(look(tree, spec_dirs=("/run/cdi",)), "warning") == []
        (tree.root / "run/cdi").rmdir()
        assert codes(look(tree, spec_dirs=("/run/cdi",)), "warning") == []
        run(tree)
        seen = look(tree, spec_dirs=("/etc/cdi", "/run/cdi", "/var/run/cdi"))
        assert seen["conflicts"] == [] and codes(seen, "warning") == []

    def test_a_link_to_our_own_file_is_no_other_file(self, tree: Tree) -> None:
        run(tree)
        tree.link(PATH, "/etc/cdi/rbln.yaml")
        assert look(tree)["conflicts"] == []

    def test_a_directory_that_is_not_read(self, tree: Tree) -> None:
        assert codes(look(tree, "/opt/cdi/rbln.yaml"), "warning") == ["cdi_dir_not_read"]


class TestManage:
    def test_validate(self, tree: Tree) -> None:
        with pytest.raises(NpuError, match="cannot be read"):
            run(tree, state="validate")
        run(tree)
        done = run(tree, state="validate")
        assert done["valid"] and done["problems"] == [] and not done["changed"]
        assert done["device_names"] == ["rebellions.ai/npu=0", "rebellions.ai/npu=all", "rebellions.ai/npu=runtime"]
        (tree.root / "usr/bin/rbln-smi").unlink()
        done = run(tree, state="validate")
        assert not done["valid"] and done["missing_host_paths"] == ["/usr/bin/rbln-smi"]

    def test_check_mode_writes_nothing_and_shows_the_same(self, tree: Tree) -> None:
        before = sorted(tree.root.rglob("*"))
        dry = run(tree, check=True)
        assert sorted(tree.root.rglob("*")) == before
        assert run(tree) == dry
        assert dry["diff"]["before"] == "" and dry["diff"]["after"] == text(tree)
        assert dry["diff"]["before_header"] == f"{PATH} (absent)" and dry["diff"]["after_header"] == PATH

    def test_absent(self, tree: Tree) -> None:
        assert not run(tree, state="absent")["changed"]
        run(tree)
        assert run(tree, state="absent", check=True)["changed"] and text(tree)
        done = run(tree, state="absent")
        assert done["changed"] and done["diff"]["before"] and done["diff"]["after"] == ""
        assert not run(tree, state="absent")["changed"]

    def test_unchanged_has_no_diff(self, tree: Tree) -> None:
        run(tree)
        done = run(tree)
        assert done["diff"]["before"] == done["diff"]["after"] == text(tree)
