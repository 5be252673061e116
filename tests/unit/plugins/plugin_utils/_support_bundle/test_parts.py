# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import typing as t
import zlib
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.parts import (
    HOST,
    Part,
    Store,
    cluster_share,
    require,
    searched,
    share,
    unpacked,
)

LIMIT = 10**6


def record(name: str, size: int = 0, **more: t.Any) -> dict[str, t.Any]:
    plain = {"kind": "path", "source": "/x", "state": "value", "detail": "", "cut": False, "seconds": 0.1}
    return {"name": name, "size": size, **plain, **more}


def answer(*texts: tuple[str, bytes], **more: t.Any) -> dict[str, t.Any]:
    data = b"".join(text for _name, text in texts)
    content = base64.b64encode(zlib.compress(data)).decode()
    return {"records": [record(name, len(text)) for name, text in texts], "content": content, "serials": [], **more}


def judged(given: dict[str, t.Any], limit: int = LIMIT) -> list[str]:
    return unpacked("npu1", "rbln_support", checked("npu1", "rbln_support", given), limit)


def test_a_secret_of_the_inputs_is_in_no_text_and_no_reason() -> None:
    part = Part(HOST, "npu1", detail="it said Xy7-long-enough", texts=["a Xy7-long-enough b"], records=[record("a")])
    part.hide(searched(["Xy7-long-enough"]))
    assert "Xy7" not in part.detail and part.texts == ["a ******** b"]


def test_texts_are_cut_by_their_sizes_and_cleaned() -> None:
    assert judged(answer(("a/b.txt", b"one\n"), ("c", b""), ("d", b"t\x1b[31mwo\xff\n"))) == ["one\n", "two\ufffd\n"]


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../b",
        "/etc/passwd",
        "a//b",
        ".",
        "a/.",
        "",
        "a/b/c/d/e/f",
        "a\\b\nc",
        "\u00fcx",
        ".hidden",
        "a" * 300,
    ],
)
def test_a_name_that_is_no_place_in_the_folder_of_the_host_is_a_wrong_answer(name: str) -> None:
    with pytest.raises(NpuError, match="npu1 answered rbln_support with a wrong value"):
        judged(answer((name, b"x")))


@pytest.mark.parametrize(
    "given",
    [
        answer(("a", b"x"), ("a", b"y")),
        answer(("a", b"x"), content="####"),
        answer(("a", b"x"), content=base64.b64encode(b"not packed").decode()),
        answer(("a", b"x"), content=base64.b64encode(zlib.compress(b"xy")).decode()),
        answer(("a", b"xy"), content=base64.b64encode(zlib.compress(b"x")).decode()),
        answer(("a", b"x"), content=base64.b64encode(zlib.compress(b"x" * 50_000_000)).decode()),
        answer(("a", b"x"), serials=["x" * 1000]),
        answer(("a", b"x"), more=1),
        {**answer(("a", b"x")), "records": [record("a", -1)]},
        {**answer(("a", b"x")), "records": [record("a", 1, state="fine")]},
        {**answer(("a", b"x")), "records": [record(str(number)) for number in range(401)]},
        {"records": [], "serials": []},
    ],
)
def test_an_answer_of_another_shape_is_refused(given: dict[str, t.Any]) -> None:
    with pytest.raises(NpuError, match="npu1 answered rbln_support with a wrong value"):
        judged(given)


def test_more_than_the_share_of_a_host_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(NpuError, match="more than 10 bytes"):
        judged(answer(("a", b"x" * 11)), 10)


def test_a_part_is_the_same_after_it_was_on_disk(tmp_path: Path) -> None:
    store = Store(str(tmp_path), "run-1")
    part = Part(HOST, "../we/ird", records=[record("a", 2), record("b")], texts=["é\n"], serials=["S1"])
    store.keep(part)
    assert [path.parent for path in tmp_path.rglob("host-*")] == [tmp_path / "support-run-1"]
    assert (tmp_path / "support-run-1").stat().st_mode & 0o777 == 0o700
    found = store.read(HOST, "../we/ird", texts=True)
    assert found == part and found.records[0]["size"] == 3
    assert (
        found.records[0]["sha256"] == hashlib.sha256("é\n".encode()).hexdigest() and found.records[1]["sha256"] is None
    )
    assert store.read(HOST, "other") is None and Store(str(tmp_path), "run-2").read(HOST, "../we/ird") is None
    store.clear()
    assert list(tmp_path.iterdir()) == []
    store.clear()


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "support-run").write_text("in the way")
    with pytest.raises(NpuError, match="Next: "):
        Store(str(tmp_path), "run").keep(Part(HOST, "a"))


def test_all_hosts_and_clusters_fit_into_the_whole() -> None:
    assert share(2**30, 8 * 2**20, 3) == 8 * 2**20
    for hosts, clusters in ((1, 1), (1000, 1), (1000, 30), (3, 300)):
        host, cluster = share(2**30, 8 * 2**20, hosts), cluster_share(2**30, 8 * 2**20, hosts, clusters)
        assert host * hosts + cluster * clusters <= 2**30 and cluster > 0
    with pytest.raises(NpuError) as told:
        share(2**20, 8 * 2**20, 100)
    assert str(told.value) == (
        "rbln_support_bytes is 1048576, which leaves 10082 for each of 100 hosts. "
        "Next: Set it to 6815744 or more, or run with --limit."
    )
    assert share(6815744, 8 * 2**20, 100) == 65536


def test_a_limit_that_leaves_nothing_is_refused() -> None:
    require(1, 1, "x")
    with pytest.raises(NpuError, match="rbln_support_lines is 0, and the least is 1. Next: Set it to 1 or more."):
        require(0, 1, "rbln_support_lines")


def test_a_secret_of_the_inputs_is_hidden_where_a_log_repeats_it_without_a_name() -> None:
    part = Part(
        HOST, "a", records=[record("x", 9, source="run --with Zq77 Vault-word-1")], texts=["a VmF1bHQtd29yZC0x b"]
    )
    part.texts.append("root and Vault-word-1 and short1")
    part.hide(searched({"Vault-word-1", "root", "short1"}))
    assert part.texts == ["a ******** b", "root and ******** and short1"]
    assert part.records[0]["source"] == "run --with Zq77 ********"
