# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planning changed nothing on the host."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_nothing_was_installed(host):
    for path in (
        "/usr/bin/rbln-smi",
        "/run/rbln",
        "/etc/cdi/rbln.yaml",
        "/var/run/cdi",
        "/usr/local/libexec/rebellions-npu",
    ):
        assert not host.file(path).exists
