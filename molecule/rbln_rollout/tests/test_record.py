# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host was changed in its turn, once, and the record says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

testinfra_hosts = ["podman://mol-b"]


def test_the_record_says_that_it_is_done(host):
    folder = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"], ".work", "lab", "rollout", "rebellions-npu")
    (path,) = folder.glob("rollout-*.json")
    run = json.loads(path.read_text(encoding="utf-8"))["run"]
    assert run["nodes"]["mol-b"]["state"] == "upgrade-done"
    assert [pool["waves"] for pool in run["pools"].values()] == [[["mol-b"]]]
    # The second run had nothing to do, so it began no rollout.
    assert run["id"] == run["run"]


def test_the_runtime_has_its_configuration(host):
    assert "enable_cdi = true" in host.check_output("containerd config dump")
