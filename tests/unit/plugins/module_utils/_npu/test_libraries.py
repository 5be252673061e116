# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of each user library, by its own word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Limit, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu.libraries import (
    library_version,
    read_libraries,
    stem_of,
    suffix_version,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree


def read(tree: Tree, *where: Any) -> dict[str, Any]:
    return read_libraries(tree.host(), PROFILE, *where)[0]


def test_library_versions_by_suffix_and_marker(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .write("/usr/lib/librbln-ml.so.3.2.2")
        .link("/usr/lib/librbln-ml.so.3", "librbln-ml.so.3.2.2")
        .link("/usr/lib/librbln-ml.so", "librbln-ml.so.3")
    )
    tree.write("/usr/lib64/librbln-ccl.so", b"\x7fELF...rbln version: 3.2.2-abc\0more").write(
        "/usr/lib64/librbln-other.so", b"rbln version: 9.9.9\0"
    )
    found, probe = read_libraries(tree.host(), PROFILE)
    assert (found["version"], probe.state) == ("3.2.2", "value")
    assert {item["path"]: (item["version"], item["source"]) for item in found["files"]} == {
        "/usr/lib/librbln-ml.so": ("3.2.2", "suffix"),
        "/usr/lib64/librbln-ccl.so": ("3.2.2-abc", "marker"),
        "/usr/lib64/librbln-other.so": (None, None),
    }


def test_a_library_is_asked_by_its_own_name_and_not_by_that_of_a_link(tmp_path: Path) -> None:
    """A file of one number in its name tells its version by its content, and a link by that of what it leads to."""
    tree = Tree(tmp_path).write("/usr/lib64/librbln-thunk.so.3", b"..rbln version: 3.0.0\0")
    tree.link("/usr/lib64/librbln-thunk.so", "librbln-thunk.so.3")
    assert read(tree)["files"] == [
        {"path": "/usr/lib64/librbln-thunk.so", "version": "3.0.0", "source": "marker"},
    ]


@pytest.mark.parametrize(
    "name, stem, version",
    [
        ("librbln-ml.so", "librbln-ml.so", None),
        ("librbln-ml.so.3", "librbln-ml.so", None),
        ("/usr/lib/librbln-ml.so.3.2.2", "librbln-ml.so", "3.2.2"),
        ("librbln-ml.so.3.4.0~rc1", "librbln-ml.so", "3.4.0~rc1"),
        ("librbln-so.so.1.2", "librbln-so.so", "1.2"),
    ],
)
def test_name_and_version_in_the_name_of_a_file(name: str, stem: str, version: str | None) -> None:
    assert (stem_of(name), suffix_version(name)) == (stem, version)


def test_libraries_of_32_bits_are_not_those_of_the_driver(tmp_path: Path) -> None:
    """On EL /usr/lib has the 32-bit ones, of another package that may be older."""
    tree = Tree(tmp_path).write("/usr/lib64/librbln-ml.so.3.2.2", b"\x7fELF\2\1")
    tree.write("/usr/lib/librbln-ml.so.2.0.0", b"\x7fELF\1\1")
    found = read(tree)
    assert (found["version"], [item["path"] for item in found["files"]]) == (
        "3.2.2",
        ["/usr/lib64/librbln-ml.so.3.2.2"],
    )


def test_libraries_that_differ_have_no_common_version(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/usr/lib/librbln-ml.so.3.2.2").write("/usr/lib/librbln-ccl.so.3.0.0")
    assert read(tree)["version"] is None


def test_one_release_in_two_spellings_is_one(tmp_path: Path) -> None:
    """A copy that somebody made, and a build of its own, are of the release that they are copies and builds of."""
    tree = Tree(tmp_path)
    for name in ("librbln-ccl.so.3.2.2-6eed3e9", "librbln-ml.so.3.2.2", "librbln-ml.so.3.2.2.bak"):
        tree.write("/usr/lib/" + name)
    assert read(tree)["version"] == "3.2.2"
    tree.write("/usr/lib/librbln-ml.so.3.2.2~rc1")
    assert read(tree)["version"] is None


def test_the_directories_of_the_loader_are_looked_at_too(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/usr/lib/librbln-ml.so.3.2.2").write("/opt/old/librbln-ml.so.3.0.0")
    assert [item["version"] for item in read(tree, "/", ["/opt/old", "/usr/lib"])["files"]] == ["3.2.2", "3.0.0"]


def test_libraries_of_a_container_root(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/run/rbln/driver/usr/lib64/librbln-ml.so.3.4.1").write("/usr/lib/librbln-ml.so.1.0.0")
    assert read(tree, "/run/rbln/driver")["version"] == "3.4.1"


def test_no_libraries(tmp_path: Path) -> None:
    found, probe = read_libraries(Tree(tmp_path).host(), PROFILE)
    assert (found, probe.state) == ({"version": None, "files": []}, "absent")


class Denying(Host):
    refused: tuple[str, ...] = ()

    def listdir(self, path: str) -> Probe:
        return Probe("denied", None, "Permission denied") if path in self.refused else super().listdir(path)

    def read_bytes(self, path: str, limit: int = Limit.CONFIG) -> Probe:
        return Probe("denied", None, "Permission denied") if path in self.refused else super().read_bytes(path, limit)


@pytest.mark.parametrize("refused", ["/usr/lib64", "/usr/lib/librbln-ccl.so"])
def test_what_is_denied_is_told_and_the_rest_is_read(tmp_path: Path, refused: str) -> None:
    Tree(tmp_path).write("/usr/lib/librbln-ml.so.3.2.2").write("/usr/lib/librbln-ccl.so").write("/usr/lib64/x")
    host = Denying(str(tmp_path))
    host.refused = (refused,)
    found, probe = read_libraries(host, PROFILE)
    assert found["version"] == "3.2.2"
    assert (probe.state, probe.detail) == ("denied", refused + ": Permission denied")


def test_a_file_without_any_word_is_no_failure(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/usr/lib/librbln-ccl.so", b"\x7fELF").write("/usr/lib/librbln-ml.so", b"\x7fELF")
    for path in ("/usr/lib/librbln-ccl.so", "/usr/lib/librbln-ml.so"):
        version, source, look = library_version(tree.host(), PROFILE, path)
        assert (version, source, look.ok) == (None, None, True)
