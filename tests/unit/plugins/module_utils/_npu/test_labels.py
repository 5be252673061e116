# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels about NPUs, and the feature file that the host tool prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu.labels import feature_file, label_value, npu_labels
from ansible_collections.rebellions.npu.plugins.module_utils._observe import host_tool
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

CA22 = {"product": "RBLN-CA22", "family": "ATOM"}
NONE = {"product": None, "family": None}
KEY = "rebellions.ai/npu."
DRIVER = "rebellions.ai/driver-version."


def facts(npus: list[dict[str, Any]], version: str | None = None, pci: str = "value") -> dict[str, Any]:
    counts = {"functions": len(npus), "devices": len(npus)}
    return {"npus": npus, "counts": counts, "driver": {"version_loaded": version}, "probes": {"pci": {"state": pci}}}


CASES: dict[str, tuple[dict[str, Any], dict[str, str] | None]] = {
    "driver not loaded": (
        facts([CA22, CA22]),
        {KEY + "present": "true", KEY + "count": "2", KEY + "product": "RBLN-CA22", KEY + "family": "ATOM"},
    ),
    "unknown product is left out": (
        facts([NONE], "3.2"),
        {
            KEY + "present": "true",
            KEY + "count": "1",
            DRIVER + "full": "3.2",
            DRIVER + "major": "3",
            DRIVER + "minor": "2",
        },
    ),
    "no NPU": (facts([]), {KEY + "present": "false"}),
    "not readable": (facts([], pci="denied"), None),
    "an NPU that the driver knows": (facts([NONE], pci="denied"), {KEY + "present": "true", KEY + "count": "1"}),
}


@pytest.mark.parametrize("case", CASES)
def test_labels(case: str) -> None:
    given, expected = CASES[case]
    assert npu_labels(PROFILE, given) == expected


@pytest.mark.parametrize(
    "given, expected",
    [
        ("3.0.0~rc1+x", "3.0.0_rc1_x"),
        ("6.8.0-1+~rt", "6.8.0-1__rt"),
        ("a" * 80, "a" * 63),
        ("-x-", "x"),
        ("RBLN CA 22", "RBLN_CA_22"),
    ],
)
def test_label_value_is_legal(given: str, expected: str) -> None:
    assert label_value(given) == expected


def test_feature_file() -> None:
    assert feature_file({"b/y": "2", "a/x": "1"}) == ["a/x=1", "b/y=2"]
    assert feature_file({"a/x": "1"}, 1796000000.9) == ["# +expiry-time=2026-11-30T00:53:20Z", "a/x=1"]


LABELS = [
    DRIVER + "full=3.2.2",
    DRIVER + "major=3",
    DRIVER + "minor=2",
    DRIVER + "patch=2",
    KEY + "count=4",
    KEY + "family=ATOM",
    KEY + "present=true",
    KEY + "product=RBLN-CA22",
]
TIME = "# +expiry-time=1970-01-01T00:11:40Z"


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, str]:
    host = ca22_host(tmp_path).host()
    said: list[str] = []
    monkeypatch.setattr(host_tool, "_host", lambda args: host)
    monkeypatch.setattr(host_tool.time, "time", lambda: 100.0)
    return host_tool.main(PROFILE, "/etc/rbln-host.json", ["labels", *options], said.append), "\n".join(said)


OPTIONS = {
    "lines": (["--nfd"], LABELS),
    "with a time": (["--nfd", "--expiry", "600"], [TIME, *LABELS]),
    "no time after all": (["--nfd", "--expiry", "600", "--no-timestamp"], LABELS),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_the_tool_prints_a_feature_file(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, expected = OPTIONS[case]
    assert run(tmp_path, monkeypatch, *options) == (0, "\n".join(expected))


def test_the_tool_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = run(tmp_path, monkeypatch)
    assert code == 0 and sorted("%s=%s" % item for item in json.loads(text).items()) == LABELS


def test_the_tool_prints_nothing_when_the_npus_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tool, "npu_labels", lambda profile, seen: None)
    assert run(tmp_path, monkeypatch, "--nfd") == (3, "")
