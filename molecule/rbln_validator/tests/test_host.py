# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof wrote the readiness files."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_markers(host):
    names = set(host.file("/run/rbln/validations").listdir())
    assert {".driver-ctr-ready", "driver-ready", "toolkit-ready"} <= names


def test_driver_ready_says_host_driver(host):
    assert "IS_HOST_DRIVER=true" in host.file("/run/rbln/validations/driver-ready").content_string.splitlines()
