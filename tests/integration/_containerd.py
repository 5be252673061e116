# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our edit of one runtime on this machine, and what containerd itself says of its files before and after."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._formats import toml
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer_request import read_set, write_set
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.containerd_config import load_set
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import file_set as runtime_set
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import RECORD, read_record

from tests.lab._base import run

CRI = {1: "io.containerd.grpc.v1.cri", 2: "io.containerd.cri.v1.runtime"}


@functools.lru_cache(maxsize=None)
def version_of(program: Path) -> str:
    """Release of a containerd, such as 1.7.24."""
    return run([program, "--version"]).stdout.split()[2].lstrip("v").partition("~")[0]


def dumped(program: Path, config: Path) -> dict[str, t.Any] | None:
    """What `containerd config dump` says of a file and its imports; None when it does not load them."""
    done = run([program, "--config", config, "config", "dump"], check=False)
    return toml.loads(done.stdout) if done.returncode == 0 else None


def cdi_state(program: Path, config: Path) -> tuple[bool, list[str]] | None:
    """(on, directories) as the program says; None when it does not load the file."""
    said = dumped(program, config)
    if said is None:
        return None
    version = release_numbers(version_of(program))
    table = said["plugins"].get(CRI[version[0]], {})
    return table.get("enable_cdi", version >= (2, 4)) if table else False, table.get("cdi_spec_dirs", [])


def runtime_of(program: Path, config: Path) -> dict[str, t.Any]:
    """The runtime as the detection describes it to the edit."""
    version = version_of(program)
    files = load_set(Host(), str(config), release_numbers(version))
    return {
        "name": "containerd",
        "flavor": "system",
        "version": version,
        "binary": str(program),
        "main_config": str(config),
        "config_files": [item.path for item in files.files] or [str(config)],
        "selected": True,
        "serves_kubelet": True,
        "changes": [{"path": str(config), "what": "", "why": ""}],
    }


def apply(
    runtime: dict[str, t.Any], state: Path, spec_dirs: t.Sequence[str] = ("/var/run/cdi",), remove: bool = False
) -> dict[str, t.Any]:
    """What the action plugin does, on this machine and with a state directory of its own."""
    host = Host()
    answer = read_set(host, str(state), "rbln", runtime_set.paths_of([runtime])[1:])
    files = runtime_set.sources(answer["files"])
    record_path = state / "record.json"
    data = record_path.read_bytes() if record_path.exists() else None
    files[RECORD] = runtime_set.Source(RECORD, data)
    missing = {path: item["missing_dirs"] for path, item in answer["files"].items()}
    if remove:
        record = read_record(files[RECORD])
        more = [path for path in record["files"] if path not in files]
        files.update(runtime_set.sources(read_set(host, str(state), "rbln", more)["files"]))
        found = runtime_set.absent(runtime_set.noted(record, {"runtimes": [runtime]}, ["selected"]), files, record)
    else:
        found = runtime_set.present([runtime], files, missing, spec_dirs, True)
    for request in found.files:
        if request["path"] == RECORD:
            request["path"] = str(record_path)
    return write_set(host, str(state), "rbln", found.files, found.judges)


def snapshot(directory: Path) -> dict[str, bytes]:
    """{path below the directory: content}."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }
