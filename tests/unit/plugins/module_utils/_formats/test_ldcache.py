# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loader cache: ldconfig and the loader of this machine are the judges."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._formats.elf import CACHE_FLAGS
from ansible_collections.rebellions.npu.plugins.module_utils._formats.ldcache import (
    Entry,
    dump,
    insert,
    parse,
    rank,
)

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
FLAGS = CACHE_FLAGS.get(os.uname().machine, 0)


def said(cache: Path) -> list[str]:
    """What ldconfig prints of a cache, without its first line and its own name as generator."""
    done = subprocess.run(
        [str(LDCONFIG), "-p", "-C", str(cache)], capture_output=True, text=True, check=True, timeout=30
    )
    return [line.strip() for line in done.stdout.splitlines()[1:] if "=>" in line]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the ldconfig of this machine made of its own libraries."""
    path = tmp_path_factory.mktemp("cache") / "ld.so.cache"
    subprocess.run([str(LDCONFIG), "-X", "-C", str(path)], check=True, timeout=60, capture_output=True)
    return path


def names(entries: list[Entry]) -> list[bytes]:
    return [entry.name for entry in entries]


def test_a_real_cache_means_the_same_after_a_round_trip(real: Path, tmp_path: Path) -> None:
    entries, levels = parse(real.read_bytes())
    assert len(entries) > 10
    ours = tmp_path / "cache"
    ours.write_bytes(dump(entries, levels))
    assert said(ours) == said(real)
    assert parse(ours.read_bytes())[1] == levels and dump(*parse(ours.read_bytes())) == ours.read_bytes()


def test_the_order_of_ldconfig_is_that_of_rank(real: Path) -> None:
    ranks = [rank(name) for name in names(parse(real.read_bytes())[0])]
    assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize(
    "first, second",
    [
        (b"librbln.so.10", b"librbln.so.9"),
        (b"librbln.so.1", b"librbln.so"),
        (b"librbln1.so", b"librblnz.so"),
        (b"libb.so", b"liba.so.9"),
    ],
)
def test_rank(first: bytes, second: bytes) -> None:
    assert rank(first) > rank(second)


def test_a_new_name_is_found_and_nothing_else_is_lost(real: Path, tmp_path: Path) -> None:
    entries, levels = parse(real.read_bytes())
    before = names(entries)
    for name in (b"librbln-ml.so", b"librbln-ml.so.3", b"aaa.so", b"zzz.so.99"):
        insert(entries, Entry(FLAGS, name, b"/opt/npu/lib/" + name))
    ranks = [rank(name) for name in names(entries)]
    assert ranks == sorted(ranks, reverse=True) and sorted(names(entries)) == sorted(
        before + [b"librbln-ml.so", b"librbln-ml.so.3", b"aaa.so", b"zzz.so.99"]
    )
    ours = tmp_path / "cache"
    ours.write_bytes(dump(entries, levels))
    found = [line for line in said(ours) if "/opt/npu/lib" in line]
    assert len(found) == 4 and all("libc6" in line for line in found)


def test_a_name_of_the_image_gives_way_and_that_of_another_machine_stays() -> None:
    entries = [Entry(FLAGS, b"libx.so.1", b"/image", hwcap=1 << 62), Entry(FLAGS, b"libx.so.1", b"/image")]
    entries += [Entry(3 if FLAGS != 3 else 0x303, b"libx.so.1", b"/other")]
    insert(entries, Entry(FLAGS, b"libx.so.1", b"/ours"))
    assert [entry.path for entry in entries] == [b"/ours", b"/other"]


def test_the_table_of_old_releases_in_front_is_skipped() -> None:
    new = dump([Entry(FLAGS, b"libx.so.1", b"/x")], [])
    old = b"ld.so-1.7.0\0" + struct.pack("=I", 3) + b"\1" * 36
    entries, _levels = parse(old + b"\0" * (-len(old) % 8) + new)
    assert names(entries) == [b"libx.so.1"]


def test_hardware_levels_are_kept() -> None:
    entries, levels = parse(dump([Entry(FLAGS, b"liba.so", b"/a", hwcap=(1 << 62) | 1)], [b"x86-64-v2", b"x86-64-v3"]))
    assert (entries[0].hwcap & 0xFFFF, levels) == (1, [b"x86-64-v2", b"x86-64-v3"])


def test_what_is_no_cache_is_named_and_never_followed_beyond_its_end() -> None:
    good = dump([Entry(FLAGS, b"liba.so", b"/a")], [b"x86-64-v2"])
    many = good[:20] + b"\xff" * 4 + good[24:]
    for data in (b"", b"x" * 100, good[:60], good[:50], many, b"ld.so-1.7.0\0" + b"\xff" * 4):
        with pytest.raises(ValueError, match="cache"):
            parse(data)
    for at in range(20, len(good)):
        broken = good[:at] + b"\xff" + good[at + 1 :]
        try:
            dump(*parse(broken))
        except ValueError:
            continue


@pytest.mark.skipif(ctypes.util.find_library("z") is None, reason="a library to look for")
def test_ldconfig_agrees_on_the_flags_of_this_machine(real: Path) -> None:
    entries, _levels = parse(real.read_bytes())
    assert FLAGS in {entry.flags for entry in entries if entry.name.startswith(b"libz.so")}
