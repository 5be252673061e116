# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer waits, and the service calls ansible-pull for the host part, without a cluster."""

from __future__ import annotations

import json

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_timer_waits(host):
    timer = host.service("rbln-pull.timer")
    assert timer.is_running and timer.is_enabled
    assert host.run("systemd-analyze verify /etc/systemd/system/rbln-pull.service").rc == 0


def test_variables_are_root_s_alone_and_without_a_cluster(host):
    file = host.file("/etc/rbln-pull/variables.json")
    assert (file.user, file.mode) == ("root", 0o600)
    variables = json.loads(file.content_string)
    assert variables["note"] == '50% of $HOME "quoted"' and variables["rbln_driver_in_use"] == "refuse"
    assert variables["rbln_kubeconfig"] == "" and variables["rbln_operands_enabled"] is False


def test_the_service_runs_the_host_part(host):
    assert host.run("KUBECONFIG=/x systemctl start rbln-pull.service").rc == 0
    called = host.file("/run/ansible-pull.called").content_string.splitlines()
    pairs = dict(zip(called, called[1:]))
    assert pairs["--url"] == "file:///srv/fleet.git" and pairs["--checkout"] == "production"
    assert pairs["--tags"] == "driver,toolkit,validate" and pairs["--skip-tags"] == "operands"
    assert pairs["--limit"] == host.backend.get_hostname() and pairs["--extra-vars"] == "@/etc/rbln-pull/variables.json"
    assert called[-2:] == ["--clean", "site.yml"]
    assert host.file("/run/ansible-pull.kubeconfig").content_string == "none\n"
