# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver is on disk, loaded, and answers."""

from __future__ import annotations

import json

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_driver_is_loaded(host):
    assert host.file("/sys/module/rebellions/version").content_string.strip() == "3.2.2"
    assert host.check_output("modinfo -F version rebellions") == "3.2.2"


def test_devices_answer(host):
    devices = json.loads(host.check_output("rbln-smi -j"))["devices"]
    assert [device["device"] for device in devices] == ["rbln0", "rbln1"]
    assert {device["status"] for device in devices} == {"normal"}
    assert (
        host.check_output("stat -c %F /dev/rbln0 /dev/rbln1 /dev/rsd0").splitlines() == ["character special file"] * 3
    )


def test_daemon_runs(host):
    assert host.service("rbln-smd").is_running
    assert host.service("rbln-smd").is_enabled


def test_the_runfile_is_only_where_root_alone_reads(host):
    kept = "/var/lib/rbln/kept/runfile-3.2.2"
    found = host.run("find / -xdev -name '*.run' -not -path '/opt/npu-lab/*'").stdout.split()
    assert found == [kept + "/rebellions-x86_64-3.2.2.run"]
    for path in (kept, "/var/lib/rbln/kept"):
        folder = host.file(path)
        assert (folder.user, folder.group, folder.mode) == ("root", "root", 0o700), path
