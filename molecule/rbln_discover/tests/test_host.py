# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery changed nothing on the host."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_lspci_shows_the_npus(host):
    assert host.run("lspci -nn").stdout.count("[1eff:1220]") == 2


def test_nothing_was_installed(host):
    for path in ("/run/rbln", "/etc/cdi", "/var/run/cdi", "/usr/local/libexec/rebellions-npu"):
        assert not host.file(path).exists
