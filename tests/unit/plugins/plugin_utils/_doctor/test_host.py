# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host shows, fault by fault and with many at once: the cause that explains the rest comes first."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.ask import asked_names, asked_of, skew
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.host import signs_of_failure, signs_of_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import ordered, state_of
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import facts

Data = dict[str, Any]
KERNEL = facts()["kernel"]["running"]
CONTAINERD: Data = {
    "name": "containerd", "selected": True, "unit": "containerd.service", "restart_unit": "containerd.service",
    "unit_state": "active", "config_files": ["/etc/containerd/config.toml"], "cdi": {"state": "on", "source": "x"},
}  # fmt: skip
SYMPTOMS: Data = {
    "disk": [],
    "hung": [],
    "names": {},
    "units": {},
    "proxies": [],
    "locked_by": [],
    "used_by": [],
    "skew": 0.0,
}
GIB = 1024**3


def check(name: str, ok: bool | None = False, severity: str = "error", detail: str = "it is not so") -> Data:
    return {"name": name, "scope": "driver", "ok": ok, "severity": severity, "detail": detail, "next_step": "Do x."}


def looked(
    checks: list[Data] | None = None,
    symptoms: Data | None = None,
    runtime: Data | None = None,
    kubelet: str = "",
    observed: Data | None = None,
    **changes: Any,
) -> list[str]:
    """The ids of the causes of a host, the most likely first."""
    record = {"checks": checks or [], "passed": not checks, "markers": {"current": True}, **(observed or {})}
    runtimes = {"runtimes": [{**CONTAINERD, **(runtime or {})}], "kubelet": {"unit": kubelet or None}}
    seen = {"rbln": facts(**changes), "rbln_runtimes": runtimes, "rbln_observed": record}
    return [one.cause.id for one in ordered(signs_of_host(seen, {**SYMPTOMS, **(symptoms or {})}))]


LATER = [
    check("driver_loaded"), check("driver_on_disk_is_loaded", None), check("tool_answers"), check("npus_bound"),
    check("device_counts"), check("library_is_driver", None), check("looks_worked", False, "warning"),
    check("cdi_spec_current"), check("runtime_sees_spec"), check("plugin_registered", False, "warning"),
]  # fmt: skip


def test_a_host_in_order_has_no_cause() -> None:
    assert looked() == [] and state_of(ordered([])) == "ok"
    assert looked([check("products_known", False, "info"), check("node_allocatable", None)]) == []


@pytest.mark.parametrize(
    ("more", "changes", "first"),
    [
        ([], {}, "driver_not_loaded"),
        ([check("signature_accepted")], {}, "secure_boot_refuses"),
        ([check("module_not_blocked")], {}, "module_blocked"),
        ([check("driver_installed")], {}, "driver_not_installed"),
        ([check("npus_found")], {}, "npus_missing"),
        ([check("driver_change", None)], {}, "driver_not_loaded"),
        ([], {"kernel": {"modules": {KERNEL: False, "6.8.0-1": True}}}, "kernel_without_module"),
        (
            [check("driver_installed", detail="an installation of the driver was interrupted")],
            {"kernel": {"modules": {KERNEL: False, "6.8.0-1": True}}},
            "kernel_without_module",
        ),
        ([check("driver_installed", detail="an installation was interrupted")], {}, "change_interrupted"),
        ([], {"in_container": True, "kernel": {"module_tree": False}}, "host_is_container"),
    ],
)
def test_of_all_that_fails_without_a_driver_the_reason_is_first(more: list[Data], changes: Data, first: str) -> None:
    found = looked([*LATER, *more], **changes)
    assert found[0] == first and set(found) >= {"driver_not_loaded", "cdi_spec_stale", "plugin_not_registered"}


@pytest.mark.parametrize(
    ("checks", "first"),
    [
        ([check("npu_index_unique"), check("device_counts"), check("tool_answers")], "index_collapsed"),
        ([check("npus_reachable"), check("device_counts"), check("link_full", False, "warning")], "card_lost"),
        ([check("link_full", False, "warning")], "link_degraded"),
        ([check("library_is_driver"), check("cdi_spec_current")], "library_mismatch"),
        ([check("cdi_spec_current"), check("runtime_sees_spec"), check("cdi_no_other_file", True)], "cdi_spec_stale"),
        ([check("cdi_no_conflict"), check("runtime_sees_spec")], "cdi_spec_taken"),
        ([check("runtime_cdi_on"), check("runtime_sees_spec")], "cdi_off"),
        ([check("runtime_is_fresh"), check("runtime_sees_spec")], "runtime_not_restarted"),
        ([check("looks_in_time", False, "warning"), check("tool_answers", None)], "tool_hangs"),
        ([check("driver_is_wanted"), check("firmware_is_driver", False, "warning")], "driver_in_other_version"),
        ([check("reboot_not_pending", False, "warning"), check("cdi_spec_valid")], "cdi_spec_stale"),
    ],
)
def test_one_fault_and_what_follows_from_it(checks: list[Data], first: str) -> None:
    assert looked(checks)[0] == first


def test_a_warning_that_explains_a_fault_stands_before_another_fault() -> None:
    """It is as bad as what it explains; by itself it would come after all faults."""
    checks = [check("looks_in_time", False, "warning"), check("tool_answers"), check("cdi_dirs_trusted")]
    assert looked(checks)[:2] == ["tool_hangs", "cdi_spec_untrusted"]
    assert looked([checks[0], checks[2]]) == ["cdi_spec_untrusted", "tool_hangs"]


def test_what_is_not_known_explains_nothing() -> None:
    assert looked([check("driver_loaded", None), check("cdi_spec_current")]) == ["cdi_spec_stale", "driver_not_loaded"]


SPACE = {"path": "/var", "size": 10 * GIB, "free": 5 * GIB, "inodes": 1000, "inodes_free": 900, "read_only": False}


@pytest.mark.parametrize(
    ("symptoms", "first"),
    [
        ({"disk": [{**SPACE, "free": 0}]}, "disk_full"),
        ({"disk": [{**SPACE, "inodes_free": 3}]}, "disk_full"),
        ({"hung": ["/var/lib/kubelet"]}, "file_system_hangs"),
        ({"disk": [{**SPACE, "size": 512 * 2**20, "free": 11 * 2**20}]}, ""),
        ({"disk": [{**SPACE, "free": 0, "read_only": True}]}, ""),
        ({"skew": 86400.0}, "clock_differs"),
        ({"skew": -61.0}, "clock_differs"),
        ({"skew": 59.0}, ""),
        ({"names": {"reg.example": {"state": "absent", "detail": "no"}}}, "dns_fails"),
        ({"names": {"reg.example": {"state": "value", "detail": ""}}}, ""),
        ({"proxies": [{"unit": "u", "address": "p:1", "state": "failed", "detail": "refused"}]}, "proxy_fails"),
        ({"proxies": [{"unit": "u", "address": "p:1", "state": "value", "detail": ""}]}, ""),
        ({"locked_by": ["apt-get (pid 7)"]}, "package_manager_busy"),
        ({"units": {"kubelet.service": "failed"}}, "kubelet_stopped"),
        ({"units": {"kubelet.service": "active"}}, ""),
        ({"used_by": ["python3 (pid 9)"]}, ""),
        ({"failure": {"task": "Look", "msg": "It failed. Next: Read it."}}, "looks_failed"),
    ],
)
def test_what_the_machine_shows(symptoms: Data, first: str) -> None:
    assert looked(symptoms=symptoms, kubelet="kubelet.service") == ([first] if first else [])


def test_a_disk_that_failed_while_the_node_stays_ready() -> None:
    """kubernetes/kubernetes#99126: /var is mounted read-only, and the kubelet goes on."""
    lacks = [check("cdi_spec_current"), check("plugin_registered", False, "warning")]
    options = {"/usr": [], "/usr/local": [], "/var": ["ro"]}
    assert looked(lacks, mount_options=options)[:2] == ["disk_read_only", "cdi_spec_stale"]
    assert looked(mount_options={"/usr": ["ro"], "/usr/local": ["ro"], "/var": None}) == []


def test_users_and_holds_matter_only_where_the_driver_has_to_change() -> None:
    wrong = [check("driver_is_wanted")]
    held: Data = {"package": "rebellions-driver", "by": "hold", "path": "/var/lib/dpkg/status"}
    assert looked(wrong, {"used_by": ["python3 (pid 9)"]}) == ["npus_in_use", "driver_in_other_version"]
    assert looked(wrong, pins=[held]) == ["package_held", "driver_in_other_version"]
    assert looked(pins=[held]) == [] and looked(wrong, pins=[{**held, "package": "vim"}])[0] != "package_held"


def test_a_runtime_that_is_stopped_or_overridden() -> None:
    unknown = [check("runtime_sees_spec", None)]
    assert looked(unknown, runtime={"unit_state": "inactive"})[0] == "runtime_stopped"
    off: Data = {"cdi": {"state": "off", "source": "x"}}
    files = ["/etc/containerd/config.toml", "/etc/containerd/conf.d/99.toml"]
    assert looked([check("runtime_cdi_on")], runtime=off)[0] == "cdi_off"
    found = looked([check("runtime_cdi_on")], runtime={**off, "config_files": files})
    assert found == ["cdi_overridden", "cdi_off"]
    # That one file wins over another is not seen: there may be none that turns it on.
    seen: Data = {"rbln": facts(), "rbln_runtimes": {"runtimes": [{**CONTAINERD, **off, "config_files": files}]}}
    seen["rbln_observed"] = {"checks": [check("runtime_cdi_on")], "markers": {"current": True}}
    levels = {one.code: one.level for one in signs_of_host(seen, SYMPTOMS)}
    assert levels == {"check:runtime_cdi_on": "wrong", "runtime:overridden": "doubtful"}


def test_ready_files_that_are_missing_on_a_host_that_passes() -> None:
    lacks: Data = {"markers": {"current": False, "present": []}, "passed_checks": {"toolkit": ["cdi_spec_valid"]}}
    assert looked(observed=lacks) == ["ready_files_missing"]
    assert looked(observed={**lacks, "passed": False, "unknown": ["node_allocatable"]}) == ["ready_files_missing"]
    # A host that fails has none because of that.
    assert looked([check("cdi_spec_valid")], observed={**lacks, "failed": ["cdi_spec_valid"]}) == ["cdi_spec_stale"]


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("a cannot be reached: ssh: Could not resolve hostname a: Name or service not known", "name_not_known"),
        ("a cannot be reached: [Errno -2] Name or service not known", "name_not_known"),
        ("a cannot be reached: u@a: Permission denied (publickey,password)", "login_refused"),
        ("a cannot be reached: Host key verification failed", "host_key_changed"),
        ("a cannot be reached: connect to host 127.0.0.1 port 9: Connection refused", "host_unreachable"),
        ("a: become does not work: sudo: a password is required. Next: Let the account become root.", "become_refused"),
        ("a: become does not work: sudo: unable to open /run/sudo/ts/kim: Read-only file system", "disk_read_only"),
        ("a: become does not work: sudo: unable to mkdir /run/sudo/ts: No space left on device", "disk_full"),
        ("a: sudo: kim is not in the sudoers file", "become_refused"),
        ("npu-sudo cannot be reached: connect to host npu-sudo port 22: Connection timed out", "host_unreachable"),
        ("a: its Python does not run: /x/python3: not found", "python_missing"),
        ("The Python of a is older than 3.8, which the modules need. Next: install a newer one", "python_missing"),
        ("Failed to create temporary directory. No space left on device", "disk_full"),
        ("mkdir: cannot create directory: Read-only file system", "disk_read_only"),
        ("something else", "host_not_observed"),
    ],
)
def test_a_host_that_was_not_reached_says_why(said: str, first: str) -> None:
    found = ordered(signs_of_failure(said))
    assert [one.cause.id for one in found] == [first]
    assert state_of(found) == "not_reached"


def test_what_is_asked_follows_from_what_was_seen() -> None:
    node = {"path": "/dev/rbln0", "kind": "char"}
    seen: Data = {
        "rbln": {"device_nodes": [node, {"path": "/dev/rbln1", "kind": "missing"}]},
        "rbln_runtimes": {"runtimes": [CONTAINERD], "kubelet": {"unit": "kubelet.service"}},
    }
    assert asked_of(seen) == {"units": ["kubelet.service", "containerd.service"], "devices": ["/dev/rbln0"]}
    assert asked_of({}) == {"units": [], "devices": []}
    assert asked_names({"url": "https://packages.example:8443/x"}, "reg.example:5000/team") == [
        "packages.example",
        "reg.example",
    ]
    assert asked_names({"url": "http://10.1.2.3/x"}, "[::1]:5000") == [] == asked_names(None, None)
    assert asked_names({"url": "https://[packages/x"}, "reg.example/team") == ["reg.example"]


@pytest.mark.parametrize(("clock", "skewed"), [(99.0, -1.0), (100.0, 0.0), (105.0, 0.0), (112.5, 2.5)])
def test_only_what_is_surely_another_time_counts(clock: float, skewed: float) -> None:
    assert skew(clock, 100.0, 110.0) == skewed
