# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flat repository and the status that dependencies are resolved against; outputs recorded on Debian 13."""

from __future__ import annotations

import gzip
import hashlib

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_index import (
    Package,
    base_status,
    compress,
    parse_stanzas,
    parse_uris,
    repository,
)

MAKE = {
    "Package": "make",
    "Source": "make-dfsg",
    "Version": "4.4.1-2",
    "Architecture": "amd64",
    "Depends": "libc6 (>= 2.38)",
    "Filename": "pool/main/m/make-dfsg/make_4.4.1-2_amd64.deb",
    "MD5sum": "0" * 32,
    "Description": "utility for directing compilation\n GNU Make is an utility\n .\n which controls",
}
LIBC = {"Package": "libc6", "Version": "2.41-12+deb13u5", "Architecture": "amd64", "Description": "GNU C Library"}
TWO = [
    Package(MAKE, "packages/make_4.4.1-2_amd64.deb", 463104, "a" * 64),
    Package(LIBC, "packages/libc6_2.41-12+deb13u5_amd64.deb", 2850108, "b" * 64),
]
INDEX = """Package: libc6
Version: 2.41-12+deb13u5
Architecture: amd64
Filename: ./packages/libc6_2.41-12+deb13u5_amd64.deb
Size: 2850108
SHA256: %s
Description: GNU C Library

Package: make
Source: make-dfsg
Version: 4.4.1-2
Architecture: amd64
Depends: libc6 (>= 2.38)
Filename: ./packages/make_4.4.1-2_amd64.deb
Size: 463104
SHA256: %s
Description: utility for directing compilation
 GNU Make is an utility
 .
 which controls
""" % ("b" * 64, "a" * 64)


def test_the_index_is_sorted_and_has_our_place_size_and_digest() -> None:
    assert repository(TWO, "x")["Packages"].decode() == INDEX
    assert repository(TWO[::-1], "x") == repository(TWO, "x")


def test_the_release_file_vouches_for_both_indexes() -> None:
    files = repository(TWO, "rebellions-npu-bundle")
    assert sorted(files) == ["Packages", "Packages.gz", "Release"]
    rows = [
        " %s %d %s" % (hashlib.sha256(files[name]).hexdigest(), len(files[name]), name)
        for name in ("Packages", "Packages.gz")
    ]
    assert files["Release"].decode().splitlines() == [
        "Origin: rebellions-npu-bundle",
        "Label: rebellions-npu-bundle",
        "Date: Sat, 01 Jan 2000 00:00:00 UTC",
        "Architectures: amd64",
        "SHA256:",
        *rows,
    ]
    assert gzip.decompress(files["Packages.gz"]) == files["Packages"]


def test_compressed_bytes_do_not_tell_the_time() -> None:
    assert compress(b"x") == compress(b"x") and compress(b"x")[4:8] == b"\0\0\0\0"


def test_an_empty_repository_is_one() -> None:
    assert repository([], "x")["Packages"] == b""


@pytest.mark.parametrize("text", ["no colon here\n", " indented first\n", "Two words: x\n", ": x\n"])
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(NpuError, match="is not a field"):
        parse_stanzas(text)


def test_stanzas_with_crooked_blank_lines() -> None:
    assert parse_stanzas("\n\nA: 1\nB:\n x\n \nA: 2") == [{"A": "1", "B": "\n x"}, {"A": "2"}]


URIS = """Reading package lists...
The following NEW packages will be installed:
  make
"""
URIS += "'http://deb.example.com/debian/pool/main/b/base-files/base-files_13.8%2bdeb13u8_amd64.deb' "
URIS += "base-files_13.8+deb13u8_amd64.deb 88324 SHA256:"
URIS += "f5a0546098f38bad5843380521781fe7214e5a283d3bed63f79c505545f262af\n"
URIS += "'http://deb.example.com/debian/pool/main/l/login_4.16.0-2_amd64.deb' login_1%3a4.16.0-2_amd64.deb 114952 \n"


def test_uris_are_read_from_what_apt_prints_for_people() -> None:
    first, second = parse_uris(URIS)
    assert (first["name"], first["size"], first["sha256"][:4]) == ("base-files_13.8+deb13u8_amd64.deb", 88324, "f5a0")
    assert (second["name"], second["size"], second["sha256"]) == ("login_1%3a4.16.0-2_amd64.deb", 114952, None)


STATUS = """Package: dpkg
Essential: yes
Status: install ok installed
Priority: required
Architecture: amd64
Version: 1.22.22
Pre-Depends: libc6 (>= 2.38), liblzma5 (>= 5.4) | liblzma6
Depends: tar (>= 1.28-1), awk

Package: libc6
Status: install ok installed
Priority: optional
Architecture: amd64
Multi-Arch: same
Version: 2.41-12

Package: liblzma5
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 5.8.1-1

Package: tar
Status: install ok installed
Priority: required
Architecture: amd64
Version: 1.35

Package: mawk
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 1.3.4
Provides: awk

Package: nano
Status: install ok installed
Priority: important
Architecture: amd64
Version: 8.4-1

Package: gcc
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 14

Package: gone
Status: deinstall ok config-files
Priority: required
Architecture: amd64
Version: 1
"""


@pytest.mark.parametrize(
    "base, names",
    [
        ("none", []),
        ("required", ["dpkg", "libc6", "liblzma5", "mawk", "tar"]),
        ("important", ["dpkg", "libc6", "liblzma5", "mawk", "nano", "tar"]),
    ],
)
def test_a_stock_host_has_what_its_packages_need_and_nothing_else(base: str, names: list[str]) -> None:
    found = parse_stanzas(base_status(STATUS, base))
    assert [item["Package"] for item in found] == names
    # At version 0 no dependency that asks for a version is met by what the connected host happens to have.
    assert {item["Version"] for item in found} <= {"0"}
    assert [item for item in found if "Depends" in item or "Pre-Depends" in item] == []


def test_the_connected_host_itself_may_be_the_base() -> None:
    assert base_status(STATUS, "host") == STATUS


def test_what_a_package_provides_stays_known() -> None:
    assert [
        item.get("Provides") for item in parse_stanzas(base_status(STATUS, "required")) if item["Package"] == "mawk"
    ] == ["awk"]
