# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import file_set as runtime_set
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import RECORD, read_record, undo

TOML = "/etc/containerd/config.toml"
JSON = "/etc/docker/daemon.json"
CRI = '[plugins."io.containerd.grpc.v1.cri"]'


def _runtime(name: str) -> dict[str, t.Any]:
    path = JSON if name == "docker" else TOML
    version = "27.5.1" if name == "docker" else "1.7.27"
    return {
        "name": name,
        "flavor": "system",
        "version": version,
        "main_config": path,
        "config_files": [path],
        "selected": True,
        "serves_kubelet": True,
    }


def _present(
    name: str, data: bytes | None, record: dict[str, t.Any] | None = None, dirs: t.Sequence[str] = ("/var/run/cdi",)
) -> tuple[bytes, dict[str, t.Any]]:
    runtime = _runtime(name)
    path = runtime["main_config"]
    saved = None if record is None else json.dumps(record).encode()
    found = runtime_set.present([runtime], {path: Source(path, data), RECORD: Source(RECORD, saved)}, {}, dirs, True)
    assert [item["path"] for item in found.files] == [RECORD, path], "the record is written first"
    return found.edits[0].files[0].new or b"", _decoded(found.files[0]["content"])


def _decoded(content: str) -> dict[str, t.Any]:
    return read_record(Source(RECORD, base64.b64decode(content)))


LATER = [
    (
        "toml-line-added",
        "containerd",
        'version = 2\n%s\n  sandbox_image = "x"\n' % CRI,
        lambda text: text + "[metrics]\n  address = 'y'\n",
        "version = 2\n%s\n  sandbox_image = \"x\"\n[metrics]\n  address = 'y'\n" % CRI,
    ),
    (
        "toml-directories-added-by-both",
        "containerd",
        'version = 2\n%s\n  cdi_spec_dirs = ["/o"]\n' % CRI,
        lambda text: text.replace('"/var/run/cdi"]', '"/var/run/cdi", "/late"]'),
        'version = 2\n%s\n  cdi_spec_dirs = ["/o", "/late"]\n' % CRI,
    ),
    (
        "toml-value-restored",
        "containerd",
        "version = 2\n%s\n  enable_cdi = false # off\n" % CRI,
        lambda text: "# new\n" + text,
        "# new\nversion = 2\n%s\n  enable_cdi = false # off\n" % CRI,
    ),
    (
        "toml-value-of-somebody-else-stays",
        "containerd",
        "version = 2\n%s\n" % CRI,
        lambda text: text.replace("enable_cdi = true", "enable_cdi = false"),
        "version = 2\n%s\n  enable_cdi = false\n" % CRI,
    ),
    (
        "toml-table-of-ours-goes-when-empty",
        "containerd",
        "version = 2\n[debug]\n  level = 'info'\n",
        lambda text: "oom_score = 1\n" + text,
        "oom_score = 1\nversion = 2\n[debug]\n  level = 'info'\n\n",
    ),
    (
        "toml-table-with-others-keys-stays",
        "containerd",
        "version = 2\n",
        lambda text: text + "  sandbox_image = 'x'\n",
        "version = 2\n\n%s\n  sandbox_image = 'x'\n" % CRI,
    ),
    (
        "toml-cri-disabled-again-by-its-full-name",
        "containerd",
        'disabled_plugins = ["cri"]\n',
        lambda text: text + "  # note\n",
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\nversion = 2\n\n  # note\n',
    ),
    (
        "json-member-added",
        "docker",
        '{"a": 1}\n',
        lambda text: text.replace('"a": 1', '"a": 1, "b": 2'),
        '{"a": 1, "b": 2}\n',
    ),
    (
        "json-feature-added",
        "docker",
        '{"a": 1}\n',
        lambda text: text.replace('"cdi": true', '"cdi": true, "buildkit": true'),
        '{"a": 1, "features": {"buildkit": true}}\n',
    ),
    (
        "json-feature-added-where-null-was",
        "docker",
        '{"a": 1, "features": null}\n',
        lambda text: text.replace('"cdi": true', '"cdi": true, "buildkit": true'),
        '{"a": 1, "features": {"buildkit": true}}\n',
    ),
    (
        "json-value-restored",
        "docker",
        '{"features": {"cdi": false}}\n',
        lambda text: "\n" + text,
        '\n{"features": {"cdi": false}}\n',
    ),
    (
        "json-directories-added-by-both",
        "docker",
        '{"cdi-spec-dirs": ["/o"], "features": {"cdi": true}}\n',
        lambda text: text.replace('"/var/run/cdi"]', '"/var/run/cdi", "/late"]'),
        '{"cdi-spec-dirs": ["/o", "/late"], "features": {"cdi": true}}\n',
    ),
]


@pytest.mark.parametrize("name, before, change, after", [row[1:] for row in LATER], ids=[row[0] for row in LATER])
def test_later_edits_of_others_stay(name: str, before: str, change: t.Callable[[str], str], after: str) -> None:
    new, record = _present(name, before.encode())
    path = _runtime(name)["main_config"]
    warnings: list[str] = []
    later = change(new.decode()).encode()
    assert later != new
    back = undo(Source(path, later), record["files"][path], warnings)
    text = later if back is None else back.new
    assert (text or b"").decode() == after
    assert "changed by another program" in warnings[0]


@pytest.mark.parametrize("name, before", [("containerd", b"version = 2\n"), ("docker", b'{"a":1.50}')])
def test_two_edits_go_back_to_the_first_bytes(name: str, before: bytes) -> None:
    first, record = _present(name, before)
    second, record = _present(name, first, record, ["/opt/npu/cdi"])
    path = _runtime(name)["main_config"]
    assert len(record["files"][path]["groups"]) == 2
    back = undo(Source(path, second), record["files"][path], [])
    assert back is not None and back.new == before
    back = undo(Source(path, first), record["files"][path], [])
    assert back is not None and back.new == before


def test_an_edit_that_never_happened_is_passed_over() -> None:
    before = b"version = 2\n"
    _new, record = _present("containerd", before)
    assert undo(Source(TOML, before), record["files"][TOML], []) is None
    again, record = _present("containerd", before, record)
    back = undo(Source(TOML, again), record["files"][TOML], [])
    assert back is not None and back.new == before


def test_a_file_that_is_gone_is_nothing_to_do() -> None:
    _new, record = _present("containerd", b"version = 2\n")
    assert undo(Source(TOML), record["files"][TOML], []) is None


def test_a_made_file_goes_even_when_its_blank_lines_changed() -> None:
    new, record = _present("containerd", None)
    warnings: list[str] = []
    back = undo(Source(TOML, new + b"\n"), record["files"][TOML], warnings)
    assert back is not None and back.new is None


@pytest.mark.parametrize("data", [b"{", b'{"schema": 2, "files": {}}', b"[]", b"\xff"])
def test_a_record_that_is_not_ours_is_refused(data: bytes) -> None:
    with pytest.raises(NpuError, match="not a record of this collection"):
        read_record(Source(RECORD, data))


def test_S02_the_record_holds_no_secret() -> None:
    before = (
        b"version = 2\n" + CRI.encode() + b'\n[plugins."io.containerd.grpc.v1.cri".registry.configs.r.auth]\n'
        b'  password = "not-a-real-secret"\n'
    )
    _new, record = _present("containerd", before)
    assert "secret" not in json.dumps(record)


def test_absent_writes_the_record_last_and_drops_it_when_empty() -> None:
    new, record = _present("docker", b"{}")
    files = {JSON: Source(JSON, new), RECORD: Source(RECORD, json.dumps(record).encode())}
    chosen = runtime_set.noted(record, {"runtimes": [_runtime("docker")]}, ["selected"])
    assert [item["name"] for item in chosen] == ["docker"]
    found = runtime_set.absent(chosen, files, record)
    assert [(item["path"], item["content"] is None) for item in found.files] == [(JSON, False), (RECORD, True)]
    assert runtime_set.noted({"files": {}}, {"runtimes": [_runtime("docker")]}, ["selected"]) == []
