# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof wrote the ready files."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_markers(host):
    for name in (".driver-ctr-ready", "driver-ready", "toolkit-ready"):
        assert host.file("/run/rbln/validations/" + name).is_file


def test_driver_ready_says_host_driver(host):
    assert "IS_HOST_DRIVER=true" in host.file("/run/rbln/validations/driver-ready").content_string.splitlines()
