# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random daemon.json files of dockerd's own keys, our edit of them, and dockerd as the judge of both."""

from __future__ import annotations

import json
import random
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.docker_crio import plan_docker
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import Source

from tests.lab._base import run

# {key: values that people write}. dockerd refuses some of them.
KEYS: dict[str, tuple[str, ...]] = {
    "debug": ("true", "false", '"yes"', "null"),
    "log-level": ('"info"', '"nothing"', "null"),
    "log-opts": ('{"max-size": "10m"}', '{"max-size": 10}', "{}", "null"),
    "labels": ('["a=b"]', "[]", '"a=b"'),
    "insecure-registries": ('["r.example:5000"]', "[]"),
    "default-ulimits": ('{"nofile": {"Name": "nofile", "Hard": 64, "Soft": 64}}',),
    "shutdown-timeout": ("15", "1.5", '"15"'),
    "dns": ('["10.0.0.1"]', '["no address"]'),
    "features": ("{}", '{"buildkit": true}', '{"cdi": false}', '{"cdi": true}', '{"cdi": null}', "null", "[]"),
    "cdi-spec-dirs": ('["/etc/cdi"]', "[]", '["/opt/cdi", "/var/run/cdi"]', '["", "/etc/cdi"]', "null", '"/etc/cdi"'),
    "no-such-key": ("1",),
}
LIKELY = ("features", "cdi-spec-dirs", "debug", "labels")


def document(source: random.Random) -> str:
    """Text of a file, now and then with a key twice, a byte order mark, a comma too many or nothing at all."""
    if source.random() < 0.03:
        return source.choice(["", "{", "[]", "null", "{,}", "// no JSON\n{}"])
    names = source.sample(LIKELY, source.randint(0, 3)) + source.sample(sorted(set(KEYS) - {*LIKELY}), 1)
    names = names[: source.randint(0, len(names))]
    if names and source.random() < 0.05:
        names.append(source.choice(names))
    gap = source.choice(["", " ", "\n  ", "\r\n\t"])
    members = ['"%s":%s%s' % (name, source.choice(["", " "]), source.choice(KEYS[name])) for name in names]
    end = "," if members and source.random() < 0.03 else ""
    return source.choice(["", "", "", "\ufeff"]) * (source.random() < 0.1) + "{%s%s%s\n}\n" % (
        gap,
        ("," + gap).join(members),
        end,
    )


def accepts(program: Path, path: Path) -> bool:
    return run([program, "--validate", "--config-file", path], check=False).returncode == 0


def one(source: random.Random, program: Path, version: str, folder: Path) -> str:
    """Edit one random file; how that ended. AssertionError names the file."""
    folder.mkdir(parents=True)
    path, text = folder / "daemon.json", document(source)
    path.write_text(text, encoding="utf-8", newline="")
    said = accepts(program, path)
    runtime: dict[str, t.Any] = {
        "name": "docker",
        "version": version,
        "binary": str(program),
        "main_config": str(path),
        "unit": "docker.service",
    }
    wanted = source.choice([["/var/run/cdi"], ["/opt/npu/cdi"]])
    try:
        edit = plan_docker(runtime, {str(path): Source(str(path), path.read_bytes())}, wanted)
    except NpuError as exc:
        told = ("twice", "must be", "must hold one JSON object")
        assert not said or any(word in str(exc) for word in told), "dockerd takes what we refuse: %s\n%s" % (exc, text)
        return "refused"
    if not edit.files:
        return "left"
    if not said:
        # The writer asks dockerd first, and stops.
        assert edit.judge and edit.judge["before"], text
        return "stopped by dockerd"
    new = edit.files[0].new or b""
    path.write_bytes(new)
    shown = "%s\n--- becomes\n%s" % (text, new.decode())
    assert accepts(program, path), "dockerd does not take our edit of what it took\n" + shown
    after, before = (json.loads(each.lstrip("\ufeff") or "{}") or {} for each in (new.decode(), text))
    assert (after.get("features") or {}).get("cdi") is True and set(wanted) <= set(
        after.get("cdi-spec-dirs") or ["/etc/cdi", "/var/run/cdi"]
    ), shown
    for key in ("features", "cdi-spec-dirs"):
        after.pop(key, None), before.pop(key, None)
    assert after == before, shown
    return "edited"
