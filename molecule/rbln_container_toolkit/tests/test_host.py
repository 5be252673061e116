# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers can get NPUs: the spec is there, and the running containerd reads it."""

from __future__ import annotations

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]


def test_spec_names_devices_and_libraries(host):
    text = host.file("/var/run/cdi/rbln.yaml").content_string
    for part in ("rebellions.ai/npu", "/dev/rbln0", "/dev/rbln1", "librbln-ml.so.3.2.2", "update-ldcache"):
        assert part in text
    assert "LD_LIBRARY_PATH" not in text


def test_only_root_decides_what_a_container_gets(host):
    """Whatever the umask of the run."""
    for path, mode in (("/var/run/cdi", 0o755), ("/var/run/cdi/rbln.yaml", 0o644)):
        assert (host.file(path).user, host.file(path).group, host.file(path).mode) == ("root", "root", mode)


def test_containerd_has_cdi_on(host):
    """1.7 says so in its configuration; 2.4 has no switch any more."""
    said = [
        line.strip()
        for line in host.check_output("containerd config dump 2>/dev/null").splitlines()
        if "enable_cdi" in line
    ]
    assert said == (["enable_cdi = true"] if "1.7." in host.check_output("containerd --version") else [])


def test_containerd_runs_with_its_configuration(host):
    assert host.service("containerd").is_running
    started = host.check_output("stat -c %Y /proc/$(systemctl show -p MainPID --value containerd)")
    assert int(started) >= int(host.check_output("stat -c %Y /etc/containerd/config.toml"))


def test_host_tool_answers(host):
    assert host.run("/usr/local/libexec/rebellions-npu/rbln-host --help").rc == 0


def test_its_sources_are_root_s_and_compiled(host):
    lib = "/usr/local/libexec/rebellions-npu/lib"
    (folder,) = [name for name in host.file(lib).listdir() if name != "python"]
    assert len(folder) == 32 and host.file(lib + "/python").linked_to.startswith("/usr/bin/python3")
    assert host.check_output("find %s -not -user root -o -not -type l -perm /022" % lib) == ""
    assert host.file("%s/%s/npu_host/_observe/observe.py" % (lib, folder)).mode == 0o644
