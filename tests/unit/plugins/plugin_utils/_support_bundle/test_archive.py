# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import judge_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle import archive
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.archive import (
    Bundle,
    folder_names,
    place,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.parts import (
    CLUSTER,
    HOST,
    UNREACHABLE,
    Part,
    Store,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.told import lines

NOW = 1796000000.0
ABOUT: dict[str, t.Any] = {"serials": False, "limits": {"lines": 10}, "ansible_core": "2.21.0"}


def record(name: str, size: int, state: str = "value") -> dict[str, t.Any]:
    return {"name": name, "kind": "path", "source": "/x", "state": state, "detail": "", "cut": False, "seconds": 0.1,
            "size": size}  # fmt: skip


@pytest.fixture(name="bundle")
def bundle_of_two(tmp_path: Path) -> Bundle:
    store = Store(str(tmp_path), "run")
    records = [record("a/b.txt", 2), record("c", 0, "absent"), record("d", 1, "timeout")]
    store.keep(Part(HOST, "../npu1", records=records, texts=["é\n", "d"]))
    store.keep(Part(HOST, "npu1", UNREACHABLE, "no route"))
    store.keep(Part(CLUSTER, "https://h:6443", records=[record("version.json", 1)], texts=["{}"]))
    bundle = Bundle(store, ABOUT, NOW)
    bundle.take(HOST, ["../npu1", "npu1", "lost"], lambda name: "no answer of " + name)
    bundle.take(CLUSTER, ["https://h:6443"], str)
    return bundle


def test_the_archive_has_all_parts_and_its_manifest_is_of_its_schema(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    size, digest = bundle.write(str(path), ["a table"])
    assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_size == size
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest and len(list(tmp_path.glob(".case*"))) == 0
    with tarfile.open(path) as tar:
        found = {one.name: one for one in tar.getmembers()}
        texts = {name: t.cast("t.IO[bytes]", tar.extractfile(one)).read() for name, one in found.items()}
    assert all(one.isreg() and one.mode == 0o600 and not one.name.startswith(("/", "..")) for one in found.values())
    assert sorted(found) == [
        "case/README.md", "case/clusters/https_h_6443/version.json", "case/hosts/npu1/a/b.txt", "case/hosts/npu1/d",
        "case/manifest.json",
    ]  # fmt: skip
    manifest = json.loads(texts["case/manifest.json"])
    judge_of("support_manifest.schema.json")(manifest)
    assert [(name, one["state"], one["detail"], one["folder"]) for name, one in sorted(manifest["hosts"].items())] == [
        ("../npu1", "collected", "", "hosts/npu1"),
        ("lost", "failed", "no answer of lost", None),
        ("npu1", "unreachable", "no route", None),
    ]
    assert manifest["hosts"]["../npu1"]["failed"] == ["d"]
    for line in manifest["files"]:
        if line["path"]:
            data = texts["case/" + line["path"]]
            assert (len(data), hashlib.sha256(data).hexdigest()) == (line["size"], line["sha256"])
    assert [(one.get("host"), one["state"], one["path"]) for one in manifest["files"]][:2] == [
        ("../npu1", "value", "hosts/npu1/a/b.txt"),
        ("../npu1", "absent", None),
    ]
    readme = texts["case/README.md"].decode()
    assert "a table" in readme and "SERIAL-1" in readme and "{" not in readme


def test_a_bundle_without_anything_is_one_too(tmp_path: Path) -> None:
    bundle = Bundle(Store(str(tmp_path), "none"), ABOUT, NOW)
    bundle.take(HOST, ["a"], lambda name: "it did not answer")
    bundle.write(str(tmp_path / "x.tgz"), [])
    with tarfile.open(tmp_path / "x.tgz") as tar:
        manifest = json.load(t.cast("t.IO[bytes]", tar.extractfile("x/manifest.json")))
    assert judge_of("support_manifest.schema.json")(manifest)["files"] == []


def test_a_disk_that_is_full_leaves_no_file(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: t.Any, *given: t.Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(archive.Writer, "add_text", full)
    with pytest.raises(NpuError, match="cannot be written: No space left on device. Next: Make room"):
        bundle.write(str(tmp_path / "case.tar.gz"), [])
    assert [path.name for path in tmp_path.iterdir() if "case" in path.name] == []


def test_a_file_that_has_come_meanwhile_stays(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    path.write_text("other")
    with pytest.raises(NpuError, match="case.tar.gz cannot be written"):
        bundle.write(str(path), [])
    assert path.read_text() == "other" and len(list(tmp_path.glob(".case*"))) == 0


def test_a_file_system_without_hard_links_is_written_too(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*given: t.Any) -> None:
        raise OSError(1, os.strerror(1))

    monkeypatch.setattr(os, "link", none)
    bundle.write(str(tmp_path / "case.tar.gz"), [])
    assert tarfile.is_tarfile(tmp_path / "case.tar.gz")


def test_the_place_is_the_current_directory_or_a_directory_or_a_name(tmp_path: Path) -> None:
    here = str(tmp_path)
    dated = "rbln-support-20261130T005320Z.tar.gz"
    assert place("", here, NOW) == place(here, "/", NOW) == place(here + "/", "/", NOW) == f"{here}/{dated}"
    assert place("case.tgz", here, NOW) == f"{here}/case.tgz"
    (tmp_path / "taken").write_text("")
    (tmp_path / "link").symlink_to("/nowhere/at/all")
    for given, words in (
        ("taken", "which exists. Next: Remove it"),
        ("link", "which exists"),
        ("no/x.tgz", "which is no directory. Next: Make it"),
        ("no/", "which is no directory"),
        ("taken/x.tgz", "which is no directory"),
    ):
        with pytest.raises(NpuError, match=words):
            place(given, here, NOW)


def test_no_two_hosts_share_a_folder() -> None:
    names = ["a/b", "a b", "a_b", "../..", "ü", "HOST"]
    found = folder_names(HOST, names)
    assert len(set(found.values())) == len(names) and found["a/b"] == "hosts/a_b" and found["../.."] == "hosts/host"
    assert all(".." not in one for one in found.values())


def test_the_screen_shows_what_is_not_whole_first_and_counts_the_rest(bundle: Bundle) -> None:
    told = [one.text for one in lines(bundle.summaries, "/x.tgz", 2048, False)]
    assert told[0] == "Support bundle of 3 hosts and 1 cluster" and told[-1] == "Written: /x.tgz, 2 KiB"
    assert "not whole: d" in told[2] and "no route" in told[3] and told[5].startswith("cluster")
    planned = {HOST: {"h": {**bundle.summaries[CLUSTER]["https://h:6443"], "state": "planned"}}, CLUSTER: {}}
    told = [one.text for one in lines(planned, "/x.tgz", 0, True)]
    assert told[2].split() == ["host", "h", "planned", "-", "-"] and told[-1] == "Would be written: /x.tgz"
    many = {HOST: {f"h{one}": bundle.summaries[CLUSTER]["https://h:6443"] for one in range(1000)}, CLUSTER: {}}
    told = [one.text for one in lines(many, "", 0, False)]
    assert len(told) == 23 and told[-1] == "and 980 more, whole"
