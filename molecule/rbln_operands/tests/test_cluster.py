# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node offers its NPUs, and a pod sees the one it asked for."""

from __future__ import annotations

import os
import sys

import pytest

sys.path.insert(0, os.environ["MOLECULE_PROJECT_DIRECTORY"])

from tests.lab import Lab
from tests.lab.demo import look

testinfra_hosts = ["podman://mol-n"]


@pytest.fixture(scope="module")
def lab():
    return Lab()


def test_npus_are_allocatable(lab):
    assert lab.nodes()["mol-n"]["allocatable"]["rebellions.ai/npu"] == "2"


def test_pod_sees_its_npu(lab):
    seen = look(lab, "mol-n")
    assert [device[:-1] for device in seen["devices"]] == ["/dev/rbln", "/dev/rsd"]
    assert any("librbln-ml.so" in path for path in seen["libraries"])
    assert seen["tool"] == "rbln-smi 3.2.2"
