# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices, groups, libraries, roots, hooks: what goes into a CDI specification beyond the vendor's made-up hosts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi import build as builder
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.build import build_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import compare, dump_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.validate import validate_spec
from ansible_collections.rebellions.npu.plugins.module_utils._host import host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.table import DRIVER_ROOT, device, full, mount
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import MULTIARCH, Tree

LIB = "/usr/lib64"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def build(tree: Tree, runner: Any = None, **options: Any) -> Any:
    return build_spec(
        PROFILE,
        tree.host(host, runner),
        CdiOptions(**{"machine": "x86_64", "form": "kubernetes", "hooks": "off", **options}),
    )


def mounts(result: Any) -> dict[str, str]:
    """Container path to host path."""
    holder = result.spec.get("containerEdits") or device(result.spec, "all")
    return {item["containerPath"]: item["hostPath"] for item in holder["mounts"]}


def codes(result: Any) -> list[str]:
    return sorted(problem.code for problem in result.warnings if problem.code != "hook_missing")


def names(result: Any) -> list[str]:
    return [item["name"] for item in result.spec["devices"]]


def inside(spec: Any, name: str) -> dict[str, str]:
    return {node["path"]: node["hostPath"] for node in device(spec, name)["deviceNodes"]}


def test_f08_device_natural_order(tree: Tree) -> None:
    """F08-device-natural-order: by number, named by the number in the node's name, and only real devices."""
    tree.device(*(f"/dev/rbln{number}" for number in (0, 1, 10, 11, 2, 3)), "/dev/rbln_ctl", "/dev/rsd0", "/dev/rsd1")
    result = build(tree, form="standalone")
    assert names(result) == ["0", "1", "2", "3", "10", "11", "rsd0", "rsd1", "all", "runtime"]
    assert inside(result.spec, "10") == {"/dev/rbln10": "/dev/rbln10"}
    assert [item["name"] for item in result.devices] == ["rbln0", "rbln1", "rbln2", "rbln3", "rbln10", "rbln11"]
    assert result.devices[4] == {"name": "rbln10", "path": "/dev/rbln10", "major": 235, "minor": 10, "group": None}


def test_c06_cdi_k8s_static_nodes(tree: Tree) -> None:
    """C06-cdi-k8s-static-nodes: no node in the Kubernetes form, each NPU with its own node and group in the other."""
    tree.device("/dev/rbln0", "/dev/rbln1", "/dev/rsd0")
    tree.group("rbln0", 0)
    tree.group("rbln1", 0)
    for name in ("ml", "ccl"):
        tree.elf(f"{LIB}/librbln-{name}.so", soname=f"librbln-{name}.so")
    spec = build(tree).spec
    assert [item["name"] for item in spec["devices"]] == ["all", "runtime"]
    assert "deviceNodes" not in json.dumps(spec) and "containerEdits" not in spec
    spec = build(tree, form="standalone").spec
    assert [item["name"] for item in spec["devices"]] == ["0", "1", "rsd0", "all", "runtime"]
    assert inside(spec, "1") == {"/dev/rbln1": "/dev/rbln1", "/dev/rsd0": "/dev/rsd0"}


@pytest.mark.parametrize("form", ["standalone", "kubernetes"])
def test_c07_cdi_alias(tree: Tree, form: str) -> None:
    """C07-cdi-alias: the old name `runtime` stays and means the same as `all`."""
    full("/dev/rbln0")(tree)
    spec = build(tree, form=form).spec
    assert device(spec, "runtime") == device(spec, "all") != {}
    assert ("0" in [item["name"] for item in spec["devices"]]) == (form == "standalone")


class TestGroups:
    def test_all_npus_in_one_group_see_it_as_group_zero(self, tree: Tree) -> None:
        tree.device("/dev/rbln0", "/dev/rbln1", "/dev/rsd0", "/dev/rsd7")
        tree.group("rbln0", 7)
        tree.group("rbln1", 7)
        spec = build(tree, form="standalone").spec
        for name in ("all", "runtime"):
            assert inside(spec, name) == {
                "/dev/rbln0": "/dev/rbln0",
                "/dev/rbln1": "/dev/rbln1",
                "/dev/rsd0": "/dev/rsd7",
            }
        assert inside(spec, "rsd7") == {"/dev/rsd0": "/dev/rsd7"}

    def test_keyed_by_node_name_on_a_host_with_gaps(self, tree: Tree) -> None:
        tree.device("/dev/rbln2", "/dev/rbln5", "/dev/rsd1", "/dev/rsd3")
        tree.group("rbln2", 3)
        tree.group("rbln5", 1)
        spec = build(tree, form="standalone").spec
        assert inside(spec, "2") == {"/dev/rbln2": "/dev/rbln2", "/dev/rsd0": "/dev/rsd3"}
        assert inside(spec, "5") == {"/dev/rbln5": "/dev/rbln5", "/dev/rsd0": "/dev/rsd1"}

    def test_given_groups_win_over_sysfs(self, tree: Tree) -> None:
        tree.device("/dev/rbln0", "/dev/rsd0", "/dev/rsd1")
        tree.group("rbln0", 0)
        assert inside(build(tree, form="standalone", groups={"rbln0": "1"}).spec, "0")["/dev/rsd0"] == "/dev/rsd1"

    @pytest.mark.parametrize("text", ["", "-1", "0x1", "none", "99999999999"])
    def test_what_is_no_number_is_unknown_and_not_zero(self, tree: Tree, text: str) -> None:
        tree.device("/dev/rbln0", "/dev/rsd0")
        tree.group("rbln0", text)
        result = build(tree, form="standalone")
        assert inside(result.spec, "0") == {"/dev/rbln0": "/dev/rbln0"}
        assert codes(result) == ["group_unknown"]
        assert result.devices[0]["group"] is None

    def test_no_warning_without_group_nodes(self, tree: Tree) -> None:
        tree.device("/dev/rbln0")
        assert codes(build(tree, form="standalone")) == []

    def test_tool_is_asked_when_sysfs_is_silent_and_a_collapsed_index_does_no_harm(self, tree: Tree) -> None:
        """F05-collapsed-npu-index: groups go by device name, so three devices that all say npu 0 keep their own."""
        tree.device("/dev/rbln0", "/dev/rbln1", "/dev/rbln2", "/dev/rsd1", "/dev/rsd2", "/dev/rsd3")
        tree.tool("/usr/bin/rbln-smi")
        answer = {
            "KMD_version": "3.0.0",
            "devices": [{"npu": 0, "device": f"rbln{n}", "group_id": str(n + 1)} for n in range(3)],
            "contexts": [],
        }
        asked: list[list[str]] = []

        def runner(argv: Any, timeout: float, env: Any) -> Any:
            asked.append(list(argv))
            return host.Probe("value", host.Completed(0, json.dumps(answer), ""))

        spec = build(tree, runner, form="standalone").spec
        assert [inside(spec, str(number))["/dev/rsd0"] for number in range(3)] == [
            "/dev/rsd1",
            "/dev/rsd2",
            "/dev/rsd3",
        ]
        assert asked == [["/usr/bin/rbln-smi", "-g", "-j"]]

    @pytest.mark.parametrize("state, rc, out", [("timeout", 0, ""), ("value", 1, "{}"), ("value", 0, "garbage")])
    def test_a_tool_that_fails_leaves_groups_unknown(self, tree: Tree, state: str, rc: int, out: str) -> None:
        tree.device("/dev/rbln0", "/dev/rsd0")
        tree.tool("/usr/bin/rbln-smi")
        result = build(
            tree, lambda argv, timeout, env: host.Probe(state, host.Completed(rc, out, "")), form="standalone"
        )
        assert codes(result) == ["group_unknown"]


class TestLibraries:
    def test_only_a_link_leads_to_it(self, tree: Tree) -> None:
        tree.elf("/opt/rbln/lib/librbln-ml.so.3.5.1", soname="librbln-ml.so.3")
        tree.link("/opt/rbln/lib/librbln-ml.so.3.5.1", f"{LIB}/librbln-ml.so")
        result = build(tree)
        assert mounts(result) == {
            "/opt/rbln/lib/librbln-ml.so.3.5.1": "/opt/rbln/lib/librbln-ml.so.3.5.1",
            f"{LIB}/librbln-ml.so": "/opt/rbln/lib/librbln-ml.so.3.5.1",
        }
        tree.hook()
        hooks = device(build(tree, hooks="on").spec, "all")["hooks"]
        assert hooks[0]["args"][2:] == ["--link", f"/opt/rbln/lib/librbln-ml.so.3.5.1::{LIB}/librbln-ml.so"]
        assert hooks[1]["args"][2:] == ["--folder", "/opt/rbln/lib", "--folder", LIB]
        hooks = device(build(tree, hooks="on", container_library_path="/iso").spec, "all")["hooks"]
        assert hooks[0]["args"][2:] == ["--link", "librbln-ml.so.3.5.1::/iso/librbln-ml.so"]

    @pytest.mark.parametrize(
        "values, folder",
        [
            ({"runpath": "$ORIGIN/inner"}, f"{LIB}/inner"),
            ({"runpath": "${ORIGIN}/../deep:/nowhere"}, "/usr/deep"),
            ({"rpath": "/opt/r"}, "/opt/r"),
            ({"runpath": "/opt/one:/opt/two"}, "/opt/two"),
        ],
        ids=["origin", "origin-in-braces", "rpath", "second-entry"],
    )
    def test_search_paths_of_the_library(self, tree: Tree, values: dict[str, str], folder: str) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3", soname="librbln-ml.so.3", needed=("libx.so.1",), **values)
        tree.elf(f"{folder}/libx.so.1", soname="libx.so.1")
        assert f"{folder}/libx.so.1" in mounts(build(tree))

    def test_runpath_of_the_library_is_not_used_for_its_dependencies_and_rpath_is(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3", needed=("liba.so.1",), runpath="/opt/x")
        tree.elf("/opt/x/liba.so.1", needed=("libb.so.1",))
        tree.elf("/opt/x/libb.so.1")
        assert build(tree).missing == [{"name": "libb.so.1", "needed_by": "/opt/x/liba.so.1"}]
        tree.elf(f"{LIB}/librbln-ml.so.3", needed=("liba.so.1",), rpath="/opt/x")
        assert "/opt/x/libb.so.1" in mounts(build(tree))

    def test_ld_so_conf_with_includes(self, tree: Tree) -> None:
        tree.put("/etc/ld.so.conf", "include ld.so.conf.d/*.conf\n# comment\n")
        tree.put("/etc/ld.so.conf.d/vendor.conf", "/opt/vendor/lib  # here\n")
        tree.put("/etc/ld.so.conf.d/other.txt", "/opt/never\n")
        tree.elf("/opt/vendor/lib/librbln-ml.so.3", needed=("libdep.so.1",))
        tree.elf("/opt/vendor/lib/libdep.so.1")
        tree.elf("/opt/never/librbln-never.so.1")
        assert sorted(mounts(build(tree))) == ["/opt/vendor/lib/libdep.so.1", "/opt/vendor/lib/librbln-ml.so.3"]

    def test_a_foreign_dependency_is_passed_over(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3", needed=("libx.so.1",))
        tree.elf(f"{LIB}/libx.so.1", bits=32, machine="i386")
        tree.elf("/usr/local/lib/libx.so.1")
        assert "/usr/local/lib/libx.so.1" in mounts(build(tree))

    def test_two_versions_in_two_directories(self, tree: Tree) -> None:
        tree.driver(MULTIARCH, "3.5.1")
        tree.driver("/usr/local/lib", "3.2.0")
        tree.verbs()
        tree.libc()
        result = build(tree)
        assert not [path for path in mounts(result) if path.startswith("/usr/local")]
        assert [item["name"] for item in result.conflicts] == [
            "librbln-ccl.so.3",
            "librbln-ml.so.3",
            "librbln-thunk.so.3",
        ]
        assert result.conflicts[1] == {
            "kind": "version",
            "name": "librbln-ml.so.3",
            "paths": [f"{MULTIARCH}/librbln-ml.so.3.5.1", "/usr/local/lib/librbln-ml.so.3.2.0"],
            "chosen": f"{MULTIARCH}/librbln-ml.so.3.5.1",
        }
        assert codes(result) == ["library_versions"] * 3

    @pytest.mark.parametrize("linked, chosen", [("3.5.1", "3.5.1"), (None, "3.10.0")], ids=["by-link", "by-number"])
    def test_two_versions_in_one_directory(self, tree: Tree, linked: str | None, chosen: str) -> None:
        for version in ("3.5.1", "3.10.0"):
            tree.elf(f"{LIB}/librbln-ml.so.{version}", soname="librbln-ml.so.3")
        if linked:
            tree.link(f"librbln-ml.so.{linked}", f"{LIB}/librbln-ml.so.3")
        assert build(tree).conflicts[0]["chosen"] == f"{LIB}/librbln-ml.so.{chosen}"

    def test_the_one_of_the_driver_is_taken_whatever_the_loader_would_take(self, tree: Tree) -> None:
        """Links and ld.so.conf prefer the stale ones; every name in the container leads to those of the driver."""
        tree.put("/sys/module/rebellions/version", "3.2.2\n")
        tree.put("/etc/ld.so.conf", "/opt/old\n")
        for version, folder in (("3.0.0", "/opt/old"), ("3.2.2", LIB), ("3.0.0", LIB)):
            tree.elf(f"{folder}/librbln-ml.so.{version}", soname="librbln-ml.so.3", needed=("librbln-ccl.so.3",))
            tree.elf(f"{folder}/librbln-ccl.so.{version}", soname="librbln-ccl.so.3")
        for folder in ("/opt/old", LIB):
            for name in ("ml", "ccl"):
                tree.link(f"librbln-{name}.so.3.0.0", f"{folder}/librbln-{name}.so.3")
                tree.link(f"librbln-{name}.so.3", f"{folder}/librbln-{name}.so")
        result = build(tree)
        ml, ccl = f"{LIB}/librbln-ml.so", f"{LIB}/librbln-ccl.so"
        assert mounts(result) == {
            **{name: f"{ccl}.3.2.2" for name in (ccl, f"{ccl}.3", f"{ccl}.3.2.2")},
            **{name: f"{ml}.3.2.2" for name in (ml, f"{ml}.3", f"{ml}.3.2.2")},
        }
        assert codes(result) == ["library_versions"] * 2
        assert [item["chosen"] for item in result.conflicts] == [f"{ccl}.3.2.2", f"{ml}.3.2.2"]
        assert "is used for the driver 3.2.2" in result.warnings[0].detail

    @pytest.mark.parametrize("sonames", [("librbln-ml.so.2", "librbln-ml.so.3"), ("", "")], ids=["other", "none"])
    def test_files_of_one_library_are_known_by_their_name_too(self, tree: Tree, sonames: tuple[str, str]) -> None:
        tree.put("/sys/module/rebellions/version", "3.2.2\n")
        tree.elf(f"{LIB}/librbln-ml.so.2.0.1", soname=sonames[0])
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2", soname=sonames[1])
        tree.link("librbln-ml.so.2.0.1", f"{LIB}/librbln-ml.so")
        result = build(tree)
        assert set(mounts(result).values()) == {f"{LIB}/librbln-ml.so.3.2.2"}
        assert f"{LIB}/librbln-ml.so" in mounts(result) and codes(result) == ["library_versions"]

    def test_a_library_that_is_left_out_is_missed_once(self, tree: Tree) -> None:
        tree.put("/sys/module/rebellions/version", "3.2.2\n")
        tree.elf(f"{LIB}/librbln-ml.so.2.0.1", soname="librbln-ml.so.2")
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2", soname="librbln-ml.so.3")
        tree.link("librbln-ml.so.2.0.1", f"{LIB}/librbln-ml.so.2")
        for name in ("ccl", "thunk"):
            tree.elf(f"{LIB}/librbln-{name}.so.3.2.2", soname=f"librbln-{name}.so.3", needed=("librbln-ml.so.2",))
        assert [item["name"] for item in build(tree).missing] == ["librbln-ml.so.2"]

    def test_a_version_inside_the_file_counts_as_one_in_its_name(self, tree: Tree) -> None:
        tree.put("/sys/module/rebellions/version", "3.2.2\n")
        tree.elf(f"{LIB}/librbln-ccl.so", soname="librbln-ccl.so", marker="3.0.0")
        tree.elf("/usr/local/lib/librbln-ccl.so", soname="librbln-ccl.so", marker="3.2.2")
        assert list(mounts(build(tree)).values()) == ["/usr/local/lib/librbln-ccl.so"]

    def test_several_versions_without_that_of_the_driver_are_refused(self, tree: Tree) -> None:
        tree.put("/sys/module/rebellions/version", "3.4.0\n")
        tree.elf(f"{LIB}/librbln-ml.so.3.0.0", soname="librbln-ml.so.3")
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2", soname="librbln-ml.so.3")
        with pytest.raises(NpuError, match=r"librbln-ml.so exists in several versions .*3\.4\.0\. Next: Install"):
            build(tree)

    def test_the_only_library_is_taken_and_told_when_it_is_not_the_driver_s(self, tree: Tree) -> None:
        tree.put("/sys/module/rebellions/version", "3.4.0\n")
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2", soname="librbln-ml.so.3")
        result = build(tree)
        assert list(mounts(result)) == [f"{LIB}/librbln-ml.so.3.2.2"] and codes(result) == ["library_not_driver"]

    def test_a_copy_of_the_only_library_is_no_second_version(self, tree: Tree) -> None:
        tree.put("/sys/module/rebellions/version", "3.4.0\n")
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2", soname="librbln-ml.so.3")
        tree.elf(f"{LIB}/librbln-ml.so.3.2.2.bak", soname="librbln-ml.so.3")
        tree.link("librbln-ml.so.3.2.2", f"{LIB}/librbln-ml.so.3")
        result = build(tree)
        assert set(mounts(result).values()) == {f"{LIB}/librbln-ml.so.3.2.2"}
        assert set(codes(result)) == {"library_not_driver", "library_versions"}

    def test_versions_of_one_library_without_a_loaded_driver_are_one_library(self, tree: Tree) -> None:
        """The link decides, and the others are told; both in a container would be a matter of luck."""
        for version in ("3.0.0", "3.2.2"):
            tree.elf(f"{LIB}/librbln-ml.so.{version}")
        tree.link("librbln-ml.so.3.0.0", f"{LIB}/librbln-ml.so")
        result = build(tree)
        assert set(mounts(result).values()) == {f"{LIB}/librbln-ml.so.3.0.0"} and codes(result) == ["library_versions"]

    def test_library_of_another_machine_only(self, tree: Tree) -> None:
        """An image for another machine: the first vendor library says what fits."""
        tree.elf(f"{LIB}/librbln-ml.so.3", machine="aarch64", needed=("libx.so.1",))
        tree.elf(f"{LIB}/libx.so.1", machine="aarch64")
        assert len(mounts(build(tree, machine="x86_64"))) == 2

    def test_a_name_that_is_not_text_is_left_out(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3")
        odd = os.fsdecode(b"librbln-\xff.so.1")
        tree.elf(f"{LIB}/{odd}")
        result = build(tree)
        assert list(mounts(result)) == [f"{LIB}/librbln-ml.so.3"]
        assert codes(result) == ["library_name"]

    def test_dependencies_of_plugins_and_tools(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/libibverbs/libp-rdmav34.so", needed=("libp.so.1",))
        tree.elf(f"{LIB}/libp.so.1")
        tree.elf("/usr/bin/rbln-smi", needed=("libt.so.1", "libc.so.6"))
        tree.elf(f"{LIB}/libt.so.1")
        assert sorted(mounts(build(tree))) == [
            "/usr/bin/rbln-smi",
            f"{LIB}/libibverbs/libp-rdmav34.so",
            f"{LIB}/libp.so.1",
            f"{LIB}/libt.so.1",
        ]

    def test_a_plugin_that_is_a_link_out_of_its_directory(self, tree: Tree) -> None:
        """As Debian ships the verbs providers."""
        tree.elf(f"{MULTIARCH}/libmlx5.so.1.24", soname="libmlx5.so.1")
        tree.link("../libmlx5.so.1.24", f"{MULTIARCH}/libibverbs/libmlx5-rdmav34.so")
        assert mounts(build(tree)) == {f"{MULTIARCH}/libibverbs/libmlx5-rdmav34.so": f"{MULTIARCH}/libmlx5.so.1.24"}
        assert list(mounts(build(tree, container_library_path="/iso"))) == ["/iso/libibverbs/libmlx5-rdmav34.so"]

    def test_excluded_runtime_is_never_mounted_even_behind_a_link(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3", needed=("libstdc++.so.6", "libmine.so.1", "libresolv.so.2"))
        tree.libc(LIB)
        tree.link("libm.so.6", f"{LIB}/libmine.so.1")
        result = build(tree)
        assert list(mounts(result)) == [f"{LIB}/librbln-ml.so.3"] and result.missing == []

    def test_name_taken_in_isolation_is_told(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-a.so.1", soname="librbln-a.so.1", needed=("libx.so.1",))
        tree.elf(f"{LIB}/librbln-b.so.1", soname="librbln-b.so.1", needed=("libx.so.1",), runpath="/opt/b")
        tree.elf(f"{LIB}/libx.so.1")
        tree.elf("/opt/b/libx.so.1")
        assert len(mounts(build(tree))) == 4
        result = build(tree, container_library_path="/iso")
        assert mounts(result)["/iso/libx.so.1"] == f"{LIB}/libx.so.1"
        assert result.conflicts == [
            {
                "kind": "name",
                "name": "/iso/libx.so.1",
                "paths": [f"{LIB}/libx.so.1", "/opt/b/libx.so.1"],
                "chosen": f"{LIB}/libx.so.1",
            }
        ]
        assert codes(result) == ["library_name_taken"]

    def test_tool_with_any_execute_bit_and_a_tool_behind_a_link(self, tree: Tree) -> None:
        tree.tool("/usr/bin/rbln-smi", mode=0o641)
        tree.tool("/opt/rbln/bin/stat")
        tree.link("/opt/rbln/bin/stat", "/usr/local/bin/rbln-stat")
        assert mounts(build(tree)) == {
            "/usr/bin/rbln-smi": "/usr/bin/rbln-smi",
            "/usr/local/bin/rbln-stat": "/opt/rbln/bin/stat",
        }

    def test_no_library_no_loader_variable(self, tree: Tree) -> None:
        tree.tool("/usr/bin/rbln-smi")
        assert device(build(tree).spec, "all") == {"mounts": [mount("/usr/bin/rbln-smi")]}

    def test_extra_mounts(self, tree: Tree) -> None:
        tree.put("/opt/model/data", "x")
        assert mounts(build(tree, extra_mounts=["/opt/model/"])) == {"/opt/model": "/opt/model"}
        with pytest.raises(NpuError, match="extra mount /opt/gone does not exist"):
            build(tree, extra_mounts=["/opt/gone"])


class TestRoots:
    def test_links_resolve_inside_the_driver_root(self, tree: Tree) -> None:
        """An absolute link inside the driver root means the driver root.

        The host's file of that name is another one.
        """
        tree.elf(f"{DRIVER_ROOT}/opt/lib/librbln-ml.so.3.5.1", soname="librbln-ml.so.3")
        tree.link("/opt/lib/librbln-ml.so.3.5.1", f"{DRIVER_ROOT}{LIB}/librbln-ml.so.3")
        tree.elf("/opt/lib/librbln-ml.so.3.5.1", soname="wrong")
        assert mounts(build(tree, driver_root=DRIVER_ROOT)) == {
            "/opt/lib/librbln-ml.so.3.5.1": f"{DRIVER_ROOT}/opt/lib/librbln-ml.so.3.5.1",
            f"{LIB}/librbln-ml.so.3": f"{DRIVER_ROOT}/opt/lib/librbln-ml.so.3.5.1",
        }

    def test_a_driver_root_that_is_a_link(self, tree: Tree) -> None:
        tree.elf("/var/lib/driver-3/usr/lib64/librbln-ml.so.3", needed=("libx.so.1",))
        tree.elf("/var/lib/driver-3/usr/lib64/libx.so.1.0")
        tree.link("libx.so.1.0", "/var/lib/driver-3/usr/lib64/libx.so.1")
        tree.link("/var/lib/driver-3", DRIVER_ROOT)
        assert mounts(build(tree, driver_root=DRIVER_ROOT, container_library_path="/iso")) == {
            "/iso/librbln-ml.so.3": f"{DRIVER_ROOT}/usr/lib64/librbln-ml.so.3",
            "/iso/libx.so.1.0": f"{DRIVER_ROOT}/usr/lib64/libx.so.1.0",
        }

    @pytest.mark.parametrize("name", ["/run/rbln/driver[1]", "/run/rbln/*", "/run/rbln/driver"])
    def test_marks_and_neighbours_of_the_root(self, tree: Tree, name: str) -> None:
        tree.elf(f"{name}{LIB}/librbln-ml.so.3")
        tree.elf(f"/run/rbln/driver-old{LIB}/librbln-ml.so.2")
        assert mounts(build(tree, driver_root=name)) == {f"{LIB}/librbln-ml.so.3": f"{name}{LIB}/librbln-ml.so.3"}

    def test_own_dev_root(self, tree: Tree) -> None:
        tree.device("/dev/rbln0", f"{DRIVER_ROOT}/dev/rbln1", "/mnt/dev/rbln2")
        given = {"driver_root": DRIVER_ROOT, "form": "standalone"}
        assert inside(build(tree, **given).spec, "1") == {"/dev/rbln1": f"{DRIVER_ROOT}/dev/rbln1"}
        assert inside(build(tree, dev_root="/dev", **given).spec, "0") == {"/dev/rbln0": "/dev/rbln0"}
        assert inside(build(tree, dev_root="/mnt/dev", **given).spec, "2") == {"/dev/rbln2": "/mnt/dev/rbln2"}

    def test_missing_driver_root(self, tree: Tree) -> None:
        tree.device("/dev/rbln0")
        assert codes(build(tree, form="standalone", driver_root="/run/none")) == ["driver_root_missing"]


class TestHooks:
    def versioned(self, tree: Tree) -> None:
        tree.device("/dev/rbln0")
        tree.elf(f"{LIB}/librbln-ml.so.3.5.1", soname="librbln-ml.so.3")
        tree.link("librbln-ml.so.3.5.1", f"{LIB}/librbln-ml.so.3")
        tree.elf(f"{LIB}/librbln-ccl.so", soname="librbln-ccl.so.3")

    @pytest.mark.parametrize("mode", [None, 0o644])
    def test_without_a_program(self, tree: Tree, mode: int | None) -> None:
        """Links become mounts of the file they lead to. LD_LIBRARY_PATH of the image is never replaced unasked."""
        self.versioned(tree)
        if mode:
            tree.hook(mode)
        result = build(tree, hooks="auto", form="standalone")
        assert result.spec["containerEdits"] == {
            "mounts": [
                mount(f"{LIB}/librbln-ccl.so"),
                mount(f"{LIB}/librbln-ml.so.3.5.1"),
                mount(f"{LIB}/librbln-ml.so.3.5.1", f"{LIB}/librbln-ml.so.3"),
            ],
        }
        assert [(problem.code, problem.severity) for problem in result.warnings] == [("hook_missing", "warning")]
        assert LIB in result.warnings[0].detail and "rbln-host is not installed" in result.warnings[0].detail
        with pytest.raises(NpuError, match="/usr/local/bin/rbln-cdi-hook cannot be used"):
            build(tree, hooks="on")

    def test_the_variable_only_when_it_is_asked_for(self, tree: Tree) -> None:
        self.versioned(tree)
        tree.hook()
        tree.host_tool()
        edits = build(tree, hooks="off", form="standalone").spec["containerEdits"]
        assert edits["env"] == [f"LD_LIBRARY_PATH={LIB}"] and "hooks" not in edits
        for hooks in ("auto", "on"):
            for form in ("standalone", "kubernetes"):
                assert "LD_LIBRARY_PATH" not in json.dumps(build(tree, hooks=hooks, form=form).spec)

    @pytest.mark.parametrize("wanted", [None, True])
    def test_the_host_tool_where_the_vendor_s_program_is_missing(self, tree: Tree, wanted: bool | None) -> None:
        """It names every library, by its file, its link and its SONAME."""
        self.versioned(tree)
        tree.host_tool()
        if wanted:
            (tree.root / "usr/local/libexec/rebellions-npu/rbln-host").unlink()
        result = build(tree, hooks="auto", form="standalone", host_tool=wanted)
        assert result.warnings == []
        assert result.spec["containerEdits"]["hooks"] == [
            {
                "hookName": "createContainer",
                "path": "/usr/local/libexec/rebellions-npu/rbln-host",
                "args": [
                    *("rbln-host", "update-ldcache", "--flags", "771", "--folder", LIB),
                    *("--library", f"librbln-ccl.so={LIB}/librbln-ccl.so"),
                    *("--library", f"librbln-ccl.so.3={LIB}/librbln-ccl.so"),
                    *("--library", f"librbln-ml.so.3.5.1={LIB}/librbln-ml.so.3.5.1"),
                    *("--library", f"librbln-ml.so.3={LIB}/librbln-ml.so.3"),
                ],
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            }
        ]
        assert len(mounts(result)) == 3 and validate_spec(result.spec) == []

    @pytest.mark.parametrize(
        "python, options, reason",
        [
            ("python3.6", {}, "/usr/bin/python3.6 is older than Python 3.8"),
            ("python3.11", {"host_tool": False}, "the host tool is not wanted"),
            ("python3.11", {"machine": "s390x"}, "the loader cache of s390x is not known"),
            ("", {"host_tool": True}, "/usr/bin/python3: "),
        ],
    )
    def test_a_host_tool_that_cannot_be_the_hook(
        self, tree: Tree, python: str, options: dict[str, Any], reason: str
    ) -> None:
        self.versioned(tree)
        tree.host_tool(python or "python3.11")
        if not python:
            (tree.root / "usr/bin/python3").unlink()
        result = build(tree, hooks="auto", **options)
        assert "hooks" not in device(result.spec, "all") and "env" not in device(result.spec, "all")
        assert [reason in one.detail for one in result.warnings if one.code == "hook_missing"] == [True]

    @pytest.mark.parametrize(
        "flag, there, reason",
        [
            (os.ST_RDONLY, False, "/usr/local is mounted read-only, so the host tool cannot be placed"),
            (os.ST_NOEXEC, False, "/usr/local is mounted noexec, so the host tool cannot be placed"),
            (os.ST_NOEXEC, True, "/usr/local is mounted noexec, so the host tool cannot be run"),
            (os.ST_RDONLY, True, ""),
            (os.ST_NOSUID, False, ""),
        ],
    )
    def test_no_hook_that_cannot_be_placed_or_run(
        self, tree: Tree, monkeypatch: pytest.MonkeyPatch, flag: int, there: bool, reason: str
    ) -> None:
        """H14: no container starts with a specification whose hook is not there."""
        self.versioned(tree)
        tree.host_tool()
        if not there:
            (tree.root / "usr/local/libexec/rebellions-npu/rbln-host").unlink()
        monkeypatch.setattr(builder, "mount_flags", lambda host, path: flag if path == "/usr/local" else 0)
        result = build(tree, hooks="auto", host_tool=True)
        assert ("hooks" in device(result.spec, "all")) is not bool(reason)
        assert [reason in one.detail for one in result.warnings] == ([True] if reason else [])

    @pytest.mark.parametrize(
        "line, reason",
        [
            ("#!/home/a/venv/bin/python", "others than root can change /home/a/venv/bin/python: /home/a/venv/bin"),
            ("#!/gone/python3", "/gone/python3: "),
            ("#!venv/python3", "venv/python3: not an absolute path"),
            ("", "no interpreter"),
            ("#!/usr/bin/python3", ""),
        ],
    )
    def test_the_python_that_the_host_tool_names_is_judged(self, tree: Tree, line: str, reason: str) -> None:
        self.versioned(tree)
        tree.host_tool()
        tree.put("/usr/local/libexec/rebellions-npu/rbln-host", line + "\nbody", 0o755)
        tree.link("/usr/bin/python3.11", "/home/a/venv/bin/python")
        (tree.root / "home/a/venv/bin").chmod(0o777)
        result = build(tree, hooks="auto")
        assert ("hooks" in device(result.spec, "all")) is not bool(reason)
        assert [reason in one.detail for one in result.warnings] == ([True] if reason else [])

    def test_which_program_when_both_exist(self, tree: Tree) -> None:
        self.versioned(tree)
        tree.hook()
        tree.host_tool()
        own = "/usr/local/libexec/rebellions-npu/rbln-host"
        assert device(build(tree, hooks="auto").spec, "all")["hooks"][0]["path"] == "/usr/local/bin/rbln-cdi-hook"
        assert [one["path"] for one in device(build(tree, hooks="auto", hook_path=own).spec, "all")["hooks"]] == [own]

    def test_no_hook_gets_the_environment_of_the_image(self, tree: Tree) -> None:
        """A runtime runs a hook without an environment with that of the container: its LD_PRELOAD, as root."""
        self.versioned(tree)
        tree.host_tool()
        seen = []
        for _round in range(2):
            seen += device(build(tree, hooks="auto").spec, "all")["hooks"]
            tree.hook()
        assert len(seen) == 3 and all(hook["env"][0].startswith("PATH=/usr/") for hook in seen)

    def test_legacy_hookname(self, tree: Tree) -> None:
        tree.elf(f"{LIB}/librbln-ml.so.3.5.1", soname="librbln-ml.so.3")
        tree.hook()
        hook = device(build(tree, hooks="auto", legacy_hookname=True).spec, "runtime")["hooks"][0]
        assert hook["hookName"] == hook["hookname"] == "createContainer"
        assert "hookname" not in json.dumps(build(tree, hooks="auto").spec)


@pytest.mark.parametrize(
    "choice, on_host, wanted", [("auto", True, "z"), ("auto", False, None), ("none", True, None), ("Z", False, "Z")]
)
def test_selinux(tree: Tree, choice: str, on_host: bool, wanted: str | None) -> None:
    tree.tool("/usr/bin/rbln-smi")
    if on_host:
        tree.put("/sys/fs/selinux/enforce", "1")
    assert device(build(tree, selinux_context=choice).spec, "all")["mounts"] == [
        mount("/usr/bin/rbln-smi", "", *filter(None, [wanted]))
    ]


@pytest.mark.parametrize("choice", ["skip", "remove"])
@pytest.mark.parametrize("form", ["standalone", "kubernetes"])
def test_nothing_to_inject_is_an_explicit_choice(tree: Tree, form: str, choice: str) -> None:
    """W01-ready-before-driver: before the driver is there nothing is written that a reader could take for an answer."""
    tree.directory("/dev")
    result = build(tree, form=form, zero_devices=choice)
    assert (result.spec, result.action) == (None, choice)
    assert codes(result) == ["cdi_nothing_to_inject"]
    with pytest.raises(NpuError, match="Install and load the driver first"):
        build(tree, form=form)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"form": "docker"}, "form is 'docker'"),
        ({"hooks": "maybe"}, "hooks is 'maybe'"),
        ({"selinux_context": "x"}, "selinux_context is 'x'"),
        ({"zero_devices": ""}, "zero_devices is ''"),
        ({"driver_root": "run"}, "driver_root is 'run'"),
        ({"driver_root": ""}, "driver_root is ''"),
        ({"driver_root": "/run/../etc"}, "driver_root is"),
        ({"container_library_path": "lib"}, "container_library_path is 'lib'"),
        ({"extra_mounts": ["x"]}, "extra_mounts holds 'x'"),
        ({"groups": {"rbln0": "a"}}, "groups: the group of rbln0 is 'a'"),
    ],
)
def test_bad_options_are_named(tree: Tree, options: dict[str, Any], message: str) -> None:
    with pytest.raises(NpuError, match=message) as caught:
        build(tree, **options)
    assert caught.value.next_step


def test_storage_nodes_have_a_specification_of_their_own(tree: Tree) -> None:
    tree.device("/dev/rblnfs0", "/dev/rblnfs10", "/dev/rblnfs2", "/dev/rblnfs", "/dev/rblnfs01", "/dev/rbln0")
    tree.elf(f"{LIB}/librbln-ml.so.3")
    spec = build(tree, form="storage").spec
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "rebellions.ai/rds") and "containerEdits" not in spec
    assert [item["name"] for item in spec["devices"]] == ["rblnfs0", "rblnfs2", "rblnfs10", "all"]
    assert inside(spec, "all") == {f"/dev/rblnfs{number}": f"/dev/rblnfs{number}" for number in (0, 2, 10)}
    assert validate_spec(spec) == []
    assert compare(PROFILE, tree.host(host), CdiOptions(form="storage"))["path"] == "/var/run/cdi/rbln-rds.yaml"
    for name in (0, 10, 2):
        (tree.root / f"dev/rblnfs{name}").unlink()
    assert build(tree, form="storage", zero_devices="remove").action == "remove"
    with pytest.raises(NpuError, match="no storage device node"):
        build(tree, form="storage")


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was == 0:
            os.seteuid(0)


def test_c22_unreadable_is_told_and_left_out() -> None:
    """c22: what cannot be read is not known to be a library, so it is not mounted, and somebody is told."""
    root = Path(tempfile.mkdtemp())
    tree = Tree(root)
    try:
        root.chmod(0o755)
        tree.device("/dev/rbln0")
        tree.elf(f"{LIB}/librbln-ml.so.3", soname="librbln-ml.so.3")
        tree.elf(f"{MULTIARCH}/librbln-thunk.so.3", soname="librbln-thunk.so.3")
        (root / "usr/lib64").chmod(0)
        (root / f".{MULTIARCH}/librbln-thunk.so.3").chmod(0)
        with unprivileged():
            result = build(tree, form="standalone")
        assert "containerEdits" not in result.spec
        assert codes(result) == ["directory_unreadable", "directory_unreadable", "library_unusable"]
        assert all("Permission denied" in problem.detail for problem in result.warnings)
    finally:
        (root / "usr/lib64").chmod(0o755)
        shutil.rmtree(root)


def test_same_host_same_bytes(tree: Tree) -> None:
    full("/dev/rbln0", "/dev/rbln10", "/dev/rbln2", verbs=True)(tree)
    texts = {dump_spec(build(tree, form="standalone").spec, "yaml") for _round in range(3)}
    assert len(texts) == 1
