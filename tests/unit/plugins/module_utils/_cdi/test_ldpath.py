# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._cdi import ldpath
from ansible_collections.rebellions.npu.plugins.module_utils._host import host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def view(tree: Tree) -> ldpath.Tree:
    return ldpath.Tree(host.Host(str(tree.root)))


@pytest.mark.parametrize(
    "files, wanted",
    [
        ({}, []),
        ({"ld.so.conf": "/a\n/b/\n"}, ["/a", "/b"]),
        ({"ld.so.conf": "/a:/b, /c\t/d # /e\n#/f\n\n"}, ["/a", "/b", "/c", "/d"]),
        ({"ld.so.conf": "/a=libc6\nrelative\nhwcap 1 nosegneg\n"}, ["/a"]),
        (
            {
                "ld.so.conf": "include ld.so.conf.d/*.conf\n/z\n",
                "ld.so.conf.d/b.conf": "/b",
                "ld.so.conf.d/a.conf": "/a",
                "ld.so.conf.d/c": "/c",
            },
            ["/a", "/b", "/z"],
        ),
        (
            {"ld.so.conf": "include /etc/x/[ab].conf /etc/y\n", "x/a.conf": "/a", "x/c.conf": "/c", "y": "/y"},
            ["/a", "/y"],
        ),
        ({"ld.so.conf": "include ld.so.conf.d/*\n", "ld.so.conf.d/.hidden": "/h", "ld.so.conf.d/a": "/a"}, ["/a"]),
        ({"ld.so.conf": "include ld.so.conf\n/a\n"}, ["/a"]),
        (
            {"ld.so.conf": "include one\n/a\n", "one": "include two\n/b\n", "two": "include one\n/c\n"},
            ["/c", "/b", "/a"],
        ),
        ({"ld.so.conf": "include */deep.conf\n", "p/deep.conf": "/p", "q/deep.conf": "/q"}, ["/p", "/q"]),
        ({"ld.so.conf": "/a\n/a\n/b/../a\n"}, ["/a"]),
    ],
    ids=["none", "plain", "separators", "odd", "glob", "absolute", "hidden", "itself", "circle", "deep", "twice"],
)
def test_configured_directories(tree: Tree, files: dict[str, str], wanted: list[str]) -> None:
    for name, text in files.items():
        tree.put(f"/etc/{name}", text)
    assert ldpath.configured_directories(view(tree)) == wanted


@pytest.mark.parametrize(
    "entry, origin, wanted",
    [
        ("$ORIGIN", "/opt/x", "/opt/x"),
        ("${ORIGIN}/../lib", "/opt/x", "/opt/lib"),
        ("/a/$LIB", "/opt/x", "/a/lib64"),
        ("/a/${LIB}", "/usr/lib/x86_64-linux-gnu", "/a/lib/x86_64-linux-gnu"),
        ("/a/$PLATFORM", "/opt/x", "/a/x86_64"),
        ("lib", "/opt/x", None),
    ],
)
def test_expand(entry: str, origin: str, wanted: str | None) -> None:
    assert ldpath.expand(entry, origin, "x86_64", 64) == wanted


def test_default_directories_follow_the_machine() -> None:
    assert "/usr/lib/aarch64-linux-gnu" in ldpath.default_directories("aarch64")
    assert "/usr/lib/x86_64-linux-gnu" not in ldpath.default_directories("aarch64")


@pytest.mark.parametrize(
    "links, name, wanted",
    [
        ({}, "real", "/lib/real"),
        ({"/lib/a": "real"}, "a", "/lib/real"),
        ({"/lib/a": "b", "/lib/b": "./real"}, "a", "/lib/real"),
        ({"/lib/a": "../lib/real"}, "a", "/lib/real"),
        ({"/lib/a": "/lib/real"}, "a", "/lib/real"),
        ({"/lib/a": "/usr/way/real", "/usr/way": "/lib"}, "a", "/lib/real"),
        ({"/lib/a": "b", "/lib/b": "a"}, "a", None),
        ({"/lib/a": "gone"}, "a", None),
        ({"/lib/a": "/"}, "a", None),
        ({"/lib/a": "real/"}, "a", None),
        ({}, "folder", None),
        ({}, "gone", None),
    ],
)
def test_locate(tree: Tree, links: dict[str, str], name: str, wanted: str | None) -> None:
    tree.put("/lib/real", "x")
    tree.directory("/lib/folder")
    for link, text in links.items():
        tree.link(text, link)
    assert view(tree).locate("/lib", name) == wanted


def test_listing_is_read_once_under_both_names(tree: Tree) -> None:
    tree.put("/usr/lib/a", "x")
    tree.link("usr/lib", "/lib")
    seen = view(tree)
    assert seen.locate("/lib", "a") == seen.locate("/usr/lib", "a") == "/usr/lib/a"
    tree.put("/usr/lib/b", "x")
    assert seen.locate("/usr/lib", "b") is None and view(tree).locate("/lib", "b") == "/usr/lib/b"
