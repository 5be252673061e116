# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing stays on a host."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_nothing_was_left(host):
    for path in ("/run/rbln", "/etc/cdi", "/usr/local/libexec/rebellions-npu", "/var/lib/rebellions-npu"):
        assert not host.file(path).exists
    assert host.run("ls -A /root/.ansible/tmp 2>/dev/null").stdout == ""
