# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check of the scope driver: true, false and not known; the reported faults on hosts made of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import Check
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import TABLES, run_checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host, case, sample, smi_json
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import FIRST, SECOND, changed, facts

Look = dict[str, Any]
ENTRIES = [entry for table in TABLES if table.name == "driver" for entry in table.entries]


def of(look: Look, name: str, wanted: dict[str, Any] | None = None, host: Host | None = None) -> Check:
    records = run_checks(PROFILE, host or Host("/"), look, {}, {}, wanted or {}, ("driver",))
    found = [record for record in records if record.name == name]
    assert len(found) == 1, [record.name for record in records]
    return found[0]


def names(look: Look, wanted: dict[str, Any] | None = None) -> set[str]:
    return {record.name for record in run_checks(PROFILE, Host("/"), look, {}, {}, wanted or {}, ("driver",))}


def no_npus() -> Look:
    return changed(facts(), "npus", [])


def denied(name: str) -> Look:
    return changed(no_npus(), "probes", name, {"state": "denied", "detail": "Permission denied"})


def unloaded(enrolled: bool | None = None, **driver: Any) -> Look:
    look = changed(facts(), "driver", {**facts()["driver"], "loaded": False, "signed": True, **driver})
    return changed(look, "mok", {**look["mok"], "signer_enrolled": enrolled})


def other_kernel(module: bool | None, headers: bool) -> Look:
    row = {"kernel": "6.8.0-139-generic", "headers": headers, "module": module, "running": False, "next_boot": False}
    return changed(facts(), "kernel", "guard", [*facts()["kernel"]["guard"], row])


def driver(**changes: Any) -> Look:
    return changed(facts(), "driver", {**facts()["driver"], **changes})


def dkms(*rows: tuple[str, str]) -> Look:
    """DKMS has these versions in these states for the running kernel."""
    made = [
        {"module": "rebellions", "version": one, "kernel": KERNEL, "arch": "x86_64", "state": state}
        for one, state in rows
    ]
    return driver(dkms=made, module_path=PATH)


def blocked(*kinds: str) -> Look:
    lines = [
        {"kind": kind, "path": "/etc/modprobe.d/a.conf", "line": 3, "text": kind + " rebellions x"} for kind in kinds
    ]
    return driver(blocked_by=lines)


def old_package(**changes: Any) -> Look:
    return driver(legacy=True, package={"name": "rebellions", "version": "2.0.1", "state": "installed"}, **changes)


def ended(state: str, look: Look | None = None, name: str = "module_file") -> Look:
    return changed(look or facts(), "probes", name, {"state": state, "detail": "%s of %s" % (state, name)})


def bare(look: Look | None = None) -> Look:
    """Only the package manager knows of the driver."""
    package = {"name": "rebellions", "version": "2.0.1", "state": "installed"}
    return ended("absent", driver(loaded=False, version_loaded=None, package=package))


def with_libraries(version: str | None, **files: str | None) -> Look:
    """Facts of a host whose libraries are these, by their names."""
    found = [{"path": "/usr/lib/" + name, "version": told, "source": told and "suffix"} for name, told in files.items()]
    return changed(changed(facts(), "libraries", "version", version), "libraries", "files", found)


KERNEL = "6.8.0-117-generic"
PATH = "/lib/modules/%s/updates/dkms/rebellions.ko" % KERNEL
OFF = {"loaded": False, "version_loaded": None, "version_on_disk": None}

# name, facts, wanted, ok, words of the detail
TABLE = [
    ("npus_found", facts(), {}, True, "2 on the PCI bus"),
    ("npus_found", facts(), {"expected_addresses": [FIRST.upper(), SECOND]}, True, "2 on the PCI bus"),
    ("npus_found", facts(), {"expected_addresses": [FIRST, "0000:c3:00.0"]}, False,
     "gone from the PCI bus: 0000:c3:00.0"),
    ("npus_found", changed(facts(), "npus", 1, "in_pci", False), {"expected_addresses": [SECOND]}, False,
     "gone from the PCI bus: " + SECOND),
    ("npus_found", facts(), {"expected_addresses": [FIRST[len("0000:") :], "0000" + SECOND]}, True, "2 on the PCI bus"),
    ("device_counts", changed(changed(facts(), "npus", 1, "in_pci", False), "npus", 1, "address", None), {}, False,
     "not on the bus: rbln1"),
    ("npus_found", facts(), {"expected_devices": 4}, False, "2 NPUs on the PCI bus, 4 expected"),
    ("npus_found", no_npus(), {}, False, "no NPU on the PCI bus"),
    ("npus_found", denied("pci"), {}, None, "Permission denied"),
    ("npus_found", ended("denied", name="pci"), {}, True, "2 on the PCI bus"),
    ("npus_found", ended("denied", name="pci"), {"expected_addresses": [FIRST, "0000:c3:00.0"]}, None,
     "denied of pci"),
    ("npus_found", ended("timeout", name="pci"), {"expected_devices": 4}, None, "2 NPUs on the PCI bus, 4 expected"),
    ("npus_reachable", facts(), {}, True, "every NPU answers"),
    ("npus_reachable", changed(facts(), "npus", 1, "state", "unreachable"), {}, False, SECOND),
    ("npus_reachable", changed(changed(facts(), "npus", 1, "state", "unreachable"), "npus", 1, "in_pci", False), {},
     False, "is not on the PCI bus"),
    ("one_family", facts(), {}, True, "of the family ATOM"),
    ("one_family", changed(facts(), "npus", 1, "family", "REBEL"), {}, False, "this host has ATOM and REBEL"),
    ("products_known", facts(), {}, True, "every product is known"),
    ("products_known", changed(facts(), "npus", 1, "device_id", "9999"), {}, False, SECOND + " (9999)"),
    ("pf_without_vfs", facts(), {}, True, "no physical function is split"),
    ("pf_without_vfs", changed(facts(), "npus", 1, "vfs", 4), {}, False, SECOND),
    ("devices_named", facts(), {}, True, "every device has a name"),
    ("devices_named", changed(changed(facts(), "npus", 1, "device", None), "npus", 1, "node", None), {}, False,
     "no device name is known for " + SECOND),
    ("device_health_known", facts(), {}, True, "the health of every device is known"),
    ("device_health_known", changed(changed(facts(), "npus", 1, "status", {"raw": None}), "npus", 1, "state",
     "unknown"), {}, False, "status reads None"),
    ("tool_is_driver", facts(), {}, True, "reports driver 3.2.2"),
    ("tool_is_driver", changed(facts(), "smi", "kmd_version", "3.0.0"), {}, False,
     "reports driver 3.0.0, loaded is 3.2.2"),
    ("looks_allowed", facts(), {}, True, "every look was allowed"),
    ("looks_allowed", ended("denied"), {}, False, "not allowed to read: module_file"),
    ("looks_in_time", facts(), {}, True, "in time"),
    ("looks_in_time", ended("timeout", name="smi"), {}, False, "smi: timeout of smi"),
    ("looks_worked", facts(), {}, True, "no look failed"),
    ("looks_worked", ended("failed"), {}, False, "module_file: failed of module_file"),
    ("looks_worked", ended("too_large"), {}, False, "module_file: too_large of module_file"),
    ("looks_worked", ended("failed", name="system_uuid"), {}, True, "no look failed"),
    ("driver_installed", driver(**OFF), {}, False, "an installation of the driver was interrupted"),
    ("driver_installed", ended("denied", driver(**OFF)), {}, None, "not known whether a driver is installed"),
    ("driver_installed", driver(**OFF, dkms=[{"module": "rebellions", "version": "3.4.0", "kernel": "6.8.0-99-generic",
     "state": "installed"}]), {}, False,
     "driver 3.4.0 has no module for the running kernel"),
    ("driver_version_readable", facts(), {}, True, "version 3.2.2"),
    ("driver_version_readable", driver(version_on_disk="unknown"), {}, False, "'unknown', which has no number"),
    ("package_finished", old_package(), {}, True, "the package rebellions 2.0.1 is installed"),
    ("package_finished", driver(package={"name": "rebellions", "version": "2.0.1", "state": "half-configured"}), {},
     False, "is half-configured"),
    ("module_file_intact", dkms(("3.2.2", "installed")), {}, True, PATH + " can be read"),
    ("module_file_intact", changed(dkms(("3.2.2", "installed")), "driver", "vermagic", "6.8.0-99-generic SMP"), {},
     False, "is built for kernel 6.8.0-99-generic"),
    ("module_file_intact", ended("failed", driver(module_path=PATH)), {}, False,
     "cannot be read: failed of module_file"),
    ("module_file_intact", ended("absent", changed(dkms(("3.2.2", "installed")), "driver", "module_path", None)), {},
     False, "is missing"),
    ("module_file_intact", bare(), {}, False, "the package rebellions 2.0.1 has no module for the running kernel"),
    ("module_file_intact", ended("denied"), {}, None, "denied"),
    ("module_not_blocked", blocked(), {}, True, "nothing keeps"),
    ("module_not_blocked", blocked("blacklist"), {}, True, "nothing keeps"),
    ("module_not_blocked", blocked("install"), {}, False, "/etc/modprobe.d/a.conf line 3 says install rebellions x"),
    ("module_not_blocked", blocked("module_blacklist"), {}, False, "module_blacklist rebellions x"),
    ("module_not_blocked", blocked("modules_disabled"), {}, False, "modules_disabled rebellions x"),
    ("module_not_blocked", changed(blocked(), "probes", "modprobe_d", {"state": "denied", "detail": "a: no"}), {}, None,
     "a: no"),
    ("module_loads_at_boot", blocked("install"), {}, True, "no blacklist"),
    ("module_loads_at_boot", blocked("blacklist"), {}, False, "it is not loaded at the next boot"),
    ("module_loads_at_boot", changed(blocked(), "probes", "modprobe_d", {"state": "denied", "detail": "a: no"}), {},
     None, "a: no"),
    ("one_driver_installed", old_package(version_on_disk="2.0.1", version_loaded="2.0.1"), {}, True,
     "only the package"),
    ("one_driver_installed", old_package(), {}, False,
     "the package rebellions 2.0.1 and another installation of the driver (3.2.2)"),
    ("one_driver_installed", old_package(stamp={"version": "", "source": "preinstalled"}), {}, False,
     "another installation of the driver (3.2.2)"),
    ("one_driver_installed", old_package(version_on_disk="2.0.1", version_loaded="2.0.1",
     stamp={"version": "2.0.1", "source": "package"}), {}, True, "only the package"),
    ("driver_has_one_owner", driver(container_root="/run/rbln/driver"), {}, False,
     "a driver root of a container (/run/rbln/driver)"),
    ("driver_has_one_owner", driver(container_root="/run/rbln/driver", installed_via="container"), {}, True,
     "only a driver container"),
    ("dkms_one_version", dkms(("3.2.2", "installed")), {}, True, "DKMS has driver 3.2.2"),
    ("dkms_one_version", dkms(("3.2.2", "installed"), ("3.0.0", "built")), {}, False,
     "3.0.0, 3.2.2; for the running kernel it installed 3.2.2"),
    ("dkms_builds", dkms(("3.2.2", "installed")), {}, True, "no build has failed"),
    ("dkms_builds", dkms(("3.2.2", "failed")), {}, False, "DKMS could not build rebellions 3.2.2 for kernel " + KERNEL),
    ("dkms_module_in_place", dkms(("3.2.2", "installed")), {}, True, "rebellions.ko is the module of DKMS"),
    ("dkms_module_in_place", dkms(("3.4.0", "installed")), {}, False,
     "rebellions.ko is 3.2.2, and DKMS has installed 3.4.0 for this kernel"),
    ("dkms_module_in_place", dkms(("3.2.2", "differs")), {}, False, "DKMS has installed 3.2.2 for this kernel"),
    ("dkms_sources", dkms(("3.2.2", "installed")), {}, True, "every version has its source"),
    ("dkms_sources", dkms(("3.2.2", "broken")), {}, False, "without its source"),
    ("next_load_accepted", facts(), {}, True, "is signed"),
    ("next_load_accepted", driver(signed=False, signer=None), {}, False,
     "Secure Boot is on and the module file carries no signature"),
    ("passthrough", changed(facts(), "npus", 1, "state", "passthrough"), {}, True, "not for containers: " + SECOND),
    ("driver_installed", facts(), {}, True, "3.2.2, installed by runfile"),
    ("driver_installed", changed(facts(), "driver", {"installed_via": "none"}), {}, False, "no driver is installed"),
    ("driver_installed", changed(facts(), "driver", {"installed_via": "unknown"}), {}, None, "not known"),
    ("driver_loaded", facts(), {}, True, "rebellions 3.2.2 is loaded"),
    ("driver_loaded", changed(facts(), "driver", "loaded", False), {}, False, "is not loaded"),
    ("driver_loaded", changed(facts(), "driver", "loaded", None), {}, None, "not known"),
    ("driver_on_disk_is_loaded", facts(), {}, True, "loaded = on disk"),
    ("driver_on_disk_is_loaded", changed(facts(), "driver", "version_loaded", "3.2.2-6eed3e9-release"), {}, True,
     "loaded = on disk"),
    ("driver_on_disk_is_loaded", changed(facts(), "driver", "version_loaded", "3.2.10"), {}, False,
     "loaded is 3.2.10, on disk is 3.2.2"),
    ("driver_on_disk_is_loaded", driver(version_on_disk="custom", version_loaded="custom"), {}, True, "= custom"),
    ("driver_on_disk_is_loaded", changed(facts(), "driver", "version_on_disk", None), {}, None, "on disk ?"),
    ("driver_on_disk_is_loaded", driver(version_on_disk=None, installed_via="container"), {}, True, "by a container"),
    ("driver_on_disk_is_loaded", driver(version_on_disk=None, version_loaded=None, installed_via="container"), {},
     None, "on disk ?, loaded ?"),
    ("driver_is_wanted", facts(), {"driver_version": "3.2.2-1~noble"}, True, "loaded is 3.2.2"),
    ("driver_is_wanted", facts(), {"driver_version": "3.2"}, False, "wanted is 3.2"),
    ("driver_is_wanted", changed(facts(), "driver", "version_loaded", None), {"driver_version": "3.2.2"}, None,
     "not known"),
    ("npus_bound", facts(), {}, True, "holds every NPU"),
    ("npus_bound", changed(facts(), "npus", 0, "state", "unbound"), {}, False, FIRST),
    ("device_nodes", facts(), {}, True, "2 character devices"),
    ("device_nodes", changed(facts(), "npus", 0, "node", {"path": "/dev/rbln0", "kind": "missing"}), {}, False,
     "/dev/rbln0 of 0000:83:00.0 is missing"),
    ("device_nodes", changed(facts(), "npus", 0, "node", {"path": "/dev/rbln0", "kind": "other"}), {}, False,
     "is not a character device"),
    ("device_nodes", changed(facts(), "groups", 0, "node", "kind", "missing"), {}, False,
     "/dev/rsd0 of device group 0 is missing"),
    ("device_nodes", changed(facts(), "npus", 0, "device", None), {}, None, "has no device name"),
    ("tool_answers", facts(), {}, True, "answers"),
    ("tool_answers", changed(facts(), "smi", {"state": "absent", "detail": "not found"}), {}, False, "not found"),
    ("tool_answers", changed(facts(), "smi", {"state": "timeout", "detail": "no answer in 5 s"}), {}, None, "timeout"),
    ("tool_answers", changed(facts(), "smi", {"state": "denied", "detail": "Permission denied"}), {}, None, "denied"),
    ("device_counts", facts(), {}, True, "expected 2, the driver sees 2, 2 under /dev, usable 2"),
    ("device_counts", changed(facts(), "npus", 1, "in_smi", False), {}, False,
     "the driver sees 1, 2 under /dev, usable 2; missing: " + SECOND),
    ("device_counts", changed(facts(), "npus", 1, "in_pci", False), {}, False, "not on the bus: " + SECOND),
    ("device_counts", changed(facts(), "smi", {"state": "timeout", "detail": "slow"}), {}, None, "the driver sees ?"),
    ("device_counts", changed(facts(), "npus", 0, "node", "kind", "unknown"), {}, None, "1 device nodes cannot be"),
    # What is missing is told beside what cannot be looked at.
    ("device_counts", changed(changed(facts(), "npus", 0, "node", "kind", "unknown"), "npus", 1, "in_smi", False), {},
     False, "missing: " + SECOND),
    ("device_counts", changed(ended("denied", name="pci"), "npus", 1, "in_smi", False), {}, False,
     "missing: " + SECOND),
    ("device_counts", changed(ended("denied", name="pci"), "npus", 1, "in_pci", False), {}, None, "PCI bus cannot be"),
    ("device_status", facts(), {}, True, "READY on every device"),
    ("device_status", changed(facts(), "npus", 1, "status", {"raw": "3", "name": "FAULT"}), {}, False,
     "has status 3 (FAULT)"),
    ("device_status", changed(facts(), "npus", 1, "status", {"raw": "2", "name": None}), {}, False, "has status 2"),
    ("device_status", changed(facts(), "npus", 1, "status", {"raw": None, "name": None}), {}, None,
     "status of " + SECOND),
    ("device_status", changed(facts(), "npus", 1, "status", {"raw": "garbage", "name": None}), {}, None, "'garbage'"),
    ("device_words", facts(), {}, True, "normal on every device"),
    ("device_words", changed(facts(), "npus", 1, "status", "word", "abnormal"), {}, False, SECOND + ": abnormal"),
    ("device_words", changed(facts(), "npus", 1, "status", "word", None), {}, None, "health of " + SECOND),
    ("firmware_is_driver", facts(), {}, True, "firmware = 3.2.2"),
    ("firmware_is_driver", changed(facts(), "npus", 1, "firmware", "3.0.0"), {}, False,
     SECOND + " has firmware 3.0.0, not 3.2.2"),
    ("firmware_is_driver", changed(facts(), "npus", 1, "smc", "3.0.0"), {}, False,
     SECOND + " has 3.0.0 on its management controller, not 3.2.2"),
    ("firmware_is_driver", changed(facts(), "npus", 1, "smc", None), {}, True, "firmware = 3.2.2"),
    ("firmware_is_driver", facts(), {"firmware_version": "3.4.0"}, False, "not 3.4.0"),
    ("firmware_is_driver", changed(facts(), "npus", 1, "firmware", None), {}, None, "firmware of " + SECOND),
    ("firmware_is_driver", changed(facts(), "driver", "version_loaded", None), {}, None, "not known"),
    ("library_is_driver", facts(), {}, True, "the libraries are 3.2.2"),
    ("library_is_driver", changed(facts(), "libraries", "version", "3.0.0"), {}, False,
     "the libraries are 3.0.0, the driver is 3.2.2"),
    ("library_is_driver", changed(facts(), "libraries", "version", None), {}, None, "says no version"),
    ("library_is_driver", with_libraries("3.2.2", a="3.2.2", b=None), {}, True, "the libraries are 3.2.2"),
    ("library_is_driver", with_libraries(None, a="3.2.2", b="3.0.0"), {}, False,
     "of several releases: /usr/lib/b is 3.0.0; the driver is 3.2.2"),
    ("library_is_driver", changed(with_libraries(None, a="3.2.2", b="3.0.0"), "driver", "version_loaded", None), {},
     False, "of several releases: /usr/lib/a is 3.2.2, /usr/lib/b is 3.0.0; the driver is not known"),
    ("library_is_driver", with_libraries("3.0.0", a="3.0.0"), {}, False,
     "the libraries are 3.0.0, the driver is 3.2.2: /usr/lib/a is 3.0.0"),
    # A driver before its release, with its own libraries.
    ("library_is_driver", changed(with_libraries("3.4.0", a="3.4.0~rc1"), "driver", "version_loaded", "3.4.0~rc1"), {},
     True, "the libraries are 3.4.0"),
    ("library_is_driver", with_libraries(None), {}, None, "no library was found"),
    ("library_is_driver", changed(with_libraries("3.2.2", a="3.2.2"), "probes", "libraries",
     {"state": "denied", "detail": "/usr/lib/b: Permission denied"}), {}, None, "not every library could be read"),
    ("library_is_driver", changed(with_libraries("3.2.2", a="3.2.2", b=None), "libraries", "files", 0,
     {"path": "/opt/b", "version": None, "source": None}), {}, None, "/opt/b and /usr/lib/b say no version"),
    ("npu_index_unique", facts(), {}, True, "an index of its own"),
    ("npu_index_unique", changed(facts(), "npus", 1, "index", 0), {}, False, "driver state stale, reload or reboot"),
    ("link_full", facts(), {}, True, "every link is at its best"),
    ("link_full", changed(facts(), "npus", 1, "link", {"degraded": True, "speed_gts": 8.0, "width": 4,
     "max_speed_gts": 32.0, "max_width": 8}), {}, False,
     "8.0 GT/s x4 of 32.0 GT/s x8"),
    ("link_full", changed(facts(), "npus", 1, "link", {"degraded": None}), {}, None, "link of " + SECOND),
    ("numa_known", facts(), {}, True, "NUMA nodes 0"),
    ("numa_known", changed(facts(), "npus", 1, "numa_node", None), {}, None, "NUMA node of " + SECOND),
    ("daemon_running", facts(), {}, True, "is active"),
    ("daemon_running", changed(facts(), "daemon", "state", "failed"), {}, False, "is failed"),
    ("daemon_running", changed(facts(), "daemon", "state", None), {}, None, "is not known"),
    ("signature_accepted", facts(), {}, True, "Site key"),
    ("signature_accepted", unloaded(signed=False, signer=None), {}, False, "not signed"),
    ("signature_accepted", unloaded(False), {}, False, "signed by Site key, which this machine does not accept"),
    ("signature_accepted", unloaded(None), {}, None,
     "signed by Site key; whether this machine accepts it is not known"),
    ("signature_accepted", unloaded(True), {}, True, "signed by Site key, an enrolled key"),
    ("signature_accepted", unloaded(None, signed=None, signer=None), {}, None, "a key without a name"),
    ("kernels_have_module", facts(), {}, True, "built for 6.8.0-117-generic"),
    ("kernels_have_module", other_kernel(False, True), {}, False, "kernel 6.8.0-139-generic has no rebellions module"),
    ("kernels_have_module", other_kernel(False, False), {}, False,
     "kernel 6.8.0-139-generic has no rebellions module and no headers"),
    ("kernels_have_module", other_kernel(None, True), {}, None, "module of kernel 6.8.0-139-generic"),
    ("reboot_not_pending", facts(), {}, True, "no reboot is pending"),
    ("reboot_not_pending", changed(facts(), "reboot_required", True), {}, False, "a reboot is pending"),
    ("reboot_not_pending", changed(facts(), "kernel", {"next_boot": "6.8.0-139-generic",
     "modules": {"6.8.0-139-generic": False}}), {}, False,
     "the next boot is into 6.8.0-139-generic, which has no rebellions module"),
    ("reboot_not_pending", changed(facts(), "kernel", {"next_boot": "6.8.0-139-generic",
     "modules": {"6.8.0-139-generic": None}}), {}, None, "not known"),
]  # fmt: skip

# Checks of data that is there or not: they have no third answer, or only one.
NEVER_UNKNOWN = {
    "npus_reachable", "npus_bound", "npu_index_unique", "one_family", "products_known", "pf_without_vfs",
    "devices_named", "device_health_known",
    "tool_is_driver", "looks_allowed", "looks_in_time", "looks_worked", "driver_version_readable", "package_finished",
    "one_driver_installed",
    "driver_has_one_owner", "dkms_one_version", "dkms_builds", "dkms_module_in_place",
    "dkms_sources", "next_load_accepted",
}  # fmt: skip
ONLY_TRUE = {"passthrough"}
NEVER_FALSE = {"numa_known"}


@pytest.mark.parametrize(
    "name, look, wanted, ok, words", TABLE, ids=["%s-%s-%d" % (row[0], row[3], at) for at, row in enumerate(TABLE)]
)
def test_check(name: str, look: Look, wanted: dict[str, Any], ok: bool | None, words: str) -> None:
    record = of(look, name, wanted)
    assert record.ok is ok
    assert words in record.detail
    assert record.vendor == "rebellions" and record.scope == "driver" and record.seconds >= 0
    assert bool(record.next_step) is (ok is not True)


def test_every_check_is_in_the_table_with_every_answer() -> None:
    assert len(ENTRIES) > 15
    for entry in ENTRIES:
        expected = (
            {True, False, None}
            - ({None} if entry.name in NEVER_UNKNOWN else set())
            - ({False} if entry.name in NEVER_FALSE else set())
        )
        expected = {True} if entry.name in ONLY_TRUE else expected
        assert {row[3] for row in TABLE if row[0] == entry.name} == expected, entry.name


def test_what_blocks_only_the_next_load_of_a_loaded_module_is_a_warning() -> None:
    assert of(blocked("install"), "module_not_blocked").severity == "warning"
    gone = changed(changed(blocked("install"), "driver", "loaded", False), "driver", "version_loaded", None)
    assert of(gone, "module_not_blocked").severity == "error"


def test_severity_of_what_does_not_stop_a_host() -> None:
    found: dict[str, set[str]] = {}
    for entry in ENTRIES:
        found.setdefault(entry.severity, set()).add(entry.name)
    assert found["info"] == {"passthrough", "numa_known", "kernels_have_module", "products_known", "pf_without_vfs"}
    assert found["warning"] == {
        "link_full", "daemon_running", "reboot_not_pending", "firmware_is_driver", "devices_named",
        "device_health_known", "tool_is_driver",
        "looks_allowed", "looks_in_time", "looks_worked", "driver_version_readable", "package_finished",
        "module_file_intact", "module_loads_at_boot", "one_driver_installed",
        "driver_has_one_owner", "dkms_one_version", "dkms_builds", "dkms_module_in_place",
        "dkms_sources", "next_load_accepted",
    }  # fmt: skip


def test_library_without_a_version_is_an_error_only_when_a_version_is_wanted() -> None:
    look = changed(facts(), "libraries", "version", None)
    assert of(look, "library_is_driver").severity == "warning"
    assert of(look, "library_is_driver", {"library_version": "3.2.2"}).severity == "error"


def test_other_firmware_is_an_error_only_when_a_release_is_wanted() -> None:
    assert of(facts(), "firmware_is_driver").severity == "warning"
    assert of(facts(), "firmware_is_driver", {"firmware_version": "3.4.0"}).severity == "error"


def test_what_does_not_apply_is_not_reported() -> None:
    signatures = {"signature_accepted", "next_load_accepted"}
    assert names(changed(facts(), "secure_boot", "disabled")) == names(facts()) - signatures
    enforced = changed(changed(facts(), "secure_boot", "disabled"), "mok", {"enforced_by": "module.sig_enforce"})
    assert names(enforced) == names(facts())
    bare = changed(
        changed(unloaded(signed=False, signer=None), "secure_boot", "unsupported"),
        "mok",
        {"enforced_by": "lockdown (integrity)"},
    )
    assert (
        of(bare, "signature_accepted").detail
        == "the kernel refuses unsigned modules by lockdown (integrity) and the module is not signed"
    )
    assert "daemon_running" not in names(changed(facts(), "daemon", {"unit": None, "state": "absent"}))
    assert "driver_is_wanted" in names(facts(), {"driver_version": "3.2.2"}) and "driver_is_wanted" not in names(
        facts()
    )


def test_a_fault_without_npus_for_containers_is_told_and_blocks_nothing() -> None:
    """Where all NPUs belong to virtual machines, nothing is asked of the driver; what is wrong is a warning."""
    given = changed(changed(facts(), "npus", 0, "state", "passthrough"), "npus", 1, "state", "passthrough")
    assert not {"driver_on_disk_is_loaded", "library_is_driver", "signature_accepted"} & names(given)
    for place, value, name in (
        (("driver", "version_loaded"), "3.0.0", "driver_on_disk_is_loaded"),
        (("libraries", "version"), "3.0.0", "library_is_driver"),
    ):
        record = of(changed(given, *place, value), name)
        assert (record.ok, record.severity) == (False, "warning")


def test_a_link_of_a_virtual_machine_and_a_fault_of_a_split_card_are_told() -> None:
    slow = {"degraded": True, "speed_gts": 8.0, "width": 4, "max_speed_gts": 32.0, "max_width": 8}
    given = changed(changed(facts(), "npus", 1, "state", "passthrough"), "npus", 1, "link", slow)
    assert of(given, "link_full").ok is False and SECOND in of(given, "link_full").detail
    split = changed(changed(facts(), "npus", 1, "vfs", 2), "npus", 1, "status", {"raw": "3", "name": "FAULT"})
    assert of(split, "device_status").ok is True
    assert SECOND in of(changed(split, "npus", 1, "state", "fault"), "device_status").detail


def split_for_machines() -> Look:
    """A split card, whose virtual function a machine has."""
    given = changed(changed(facts(), "npus", 0, "vfs", 1), "npus", 1, "state", "passthrough")
    return changed(changed(given, "npus", 1, "function", "vf"), "npus", 1, "physfn", FIRST)


@pytest.mark.parametrize(
    "name, place, value, detail",
    [
        ("driver_loaded", ("driver", "loaded"), False, "is not loaded"),
        ("npus_bound", ("npus", 0, "state"), "unbound", FIRST),
        ("device_nodes", ("groups", 0, "node", "kind"), "missing", "/dev/rsd0 of device group 0"),
        ("driver_installed", ("driver", "installed_via"), "none", "no driver is installed"),
    ],
)
def test_what_a_split_card_lacks_is_told_where_machines_have_its_functions(
    name: str, place: Any, value: Any, detail: str
) -> None:
    assert of(changed(split_for_machines(), "npus", 0, "vfs", 1), "pf_without_vfs").ok is False
    record = of(changed(split_for_machines(), *place, value), name)
    assert (record.ok, record.severity) == (False, "warning") and detail in record.detail


def test_a_container_says_nothing_of_the_kernels_of_the_machine_below() -> None:
    given = changed(other_kernel(False, False), "kernel", "module_tree", False)
    assert of(given, "kernels_have_module").ok is False
    assert "kernels_have_module" not in names(changed(given, "in_container", True))


def test_a_fault_of_a_split_card_blocks_only_where_containers_have_npus() -> None:
    fault = changed(changed(split_for_machines(), "npus", 0, "state", "fault"), "npus", 0, "status", "raw", "3")
    fault = changed(changed(fault, "npus", 0, "status", "name", "FAULT"), "npus", 0, "status", "word", "abnormal")
    for name in ("device_status", "device_words"):
        assert (of(fault, name).ok, of(fault, name).severity) == (False, "warning")
        shared = changed(fault, "npus", 1, "state", "ok")
        assert (of(shared, name).ok, of(shared, name).severity) == (False, "error")


def test_a_split_card_without_a_driver_is_a_warning_beside_npus_that_have_one() -> None:
    given = changed(changed(facts(), "npus", 1, "vfs", 2), "npus", 1, "state", "unbound")
    record = of(given, "npus_bound")
    assert (record.ok, record.severity) == (False, "warning") and SECOND in record.detail


def test_a_tool_that_cannot_be_run_below_a_root_is_unknown_not_missing(tmp_path: Path) -> None:
    look = changed(facts(), "smi", {"state": "absent", "detail": "commands are not run below /x"})
    assert of(look, "tool_answers", host=Host(str(tmp_path))).ok is None


def test_a_check_that_breaks_is_unknown_and_the_others_run() -> None:
    records = run_checks(PROFILE, Host("/"), changed(facts(), "npus", 0, "link", 7), {}, {}, {}, ("driver",))
    broken = [record for record in records if "could not read its input" in record.detail]
    assert [record.name for record in broken] == ["link_full"] and broken[0].ok is None
    assert len(records) > 10


def seen(tree: Tree, **options: Any) -> tuple[Look, Host]:
    host = tree.host()
    return collect_facts(PROFILE, host, options), host


def failed(look: Look, host: Host, wanted: dict[str, Any] | None = None) -> dict[str, str]:
    return {
        record.name: record.detail
        for record in run_checks(PROFILE, host, look, {}, {}, wanted or {}, ("driver",))
        if record.ok is False
    }


def test_healthy_server_has_no_failed_check(tmp_path: Path) -> None:
    look, host = seen(ca22_host(tmp_path))
    assert failed(look, host, {"driver_version": "3.2.2"}) == {}


@pytest.mark.parametrize("_id", ["F04-fell-off-bus"])
def test_card_that_fell_off_the_bus(tmp_path: Path, _id: str) -> None:
    before = json.loads(case(_id, "previous-facts.json"))["npus"]
    tree = Tree(tmp_path).system().loaded()
    for at, (address, item) in enumerate(json.loads(case(_id, "sysfs.json")).items()):
        tree.function(address, driver=item["driver"], revision=item["revision"], config=item["config_first4"])
        if item["revision"] != "0xff":
            tree.device("rbln%d" % at, address, at)
    tree.smi(
        smi_json(
            [{"npu": 0, "device": "rbln0", "status": "normal", "fw_ver": "3.2.2", "pci": {"bus_id": "0000:83:00.0"}}]
        )
    )
    look, host = seen(tree, expected_addresses=before)
    bad = failed(look, host, {"expected_addresses": before})
    assert bad["npus_found"] == "gone from the PCI bus: 0000:c3:00.0"
    assert bad["npus_reachable"].startswith("0000:84:00.0")
    assert "usable 1" in bad["device_counts"] and "0000:84:00.0" in bad["device_counts"]
    assert "0000:83:00.0 (" not in bad["device_counts"]


@pytest.mark.parametrize("_id", ["F05-collapsed-npu-index", "sample"])
def test_collapsed_index_fails_although_the_tool_exits_0(tmp_path: Path, _id: str) -> None:
    text = sample("rbln-smi_ca22_collapsed_npu_index.json") if _id == "sample" else case(_id, "rbln-smi.json")
    addresses = [item["pci"]["bus_id"] for item in json.loads(text)["devices"]]
    tree = ca22_host(tmp_path, addresses).smi(text)
    look, host = seen(tree)
    assert "driver state stale, reload or reboot" in failed(look, host)["npu_index_unique"]
    assert len(look["npus"]) == len(addresses) >= 3


@pytest.mark.parametrize("_id", ["F07-status-code-shift"])
def test_only_ready_is_serviceable_and_unreadable_is_not_healthy(tmp_path: Path, _id: str) -> None:
    rows = json.loads(case(_id, "sys-class-rebellions.json"))
    tree = Tree(tmp_path).system().loaded("4.0.0")
    for at, (name, item) in enumerate(rows.items()):
        address = "0000:%02x:00.0" % (0x20 + at)
        tree.function(address).device(name, address, at, status=item.get("status", "").strip() or None)
    look, host = seen(tree)
    record = of(look, "device_status", host=host)
    assert record.ok is False
    assert "0000:21:00.0 (rbln1) has status 1" in record.detail and "0000:22:00.0 (rbln2) has status 3" in record.detail
    assert "0000:20:00.0" not in record.detail and "FAULT" not in record.detail
    only = changed(look, "npus", [npu for npu in look["npus"] if npu["device"] in ("rbln0", "rbln3", "rbln4")])
    unknown = of(only, "device_status", host=host)
    assert unknown.ok is None and "rbln3" in unknown.detail and "rbln4" in unknown.detail


@pytest.mark.parametrize("_id", ["F12-vfio-bound"])
def test_passthrough_is_said_and_is_no_failure(tmp_path: Path, _id: str) -> None:
    rows = json.loads(case(_id, "sysfs.json"))
    passed_on = {address: item for address, item in rows.items() if item["driver"]}
    tree = Tree(tmp_path).system()
    for address, item in passed_on.items():
        tree.function(address, driver=item["driver"], iommu_group=item["iommu_group"])
    look, host = seen(tree)
    records = {record.name: record for record in run_checks(PROFILE, host, look, {}, {}, {}, ("driver",))}
    assert records["passthrough"].ok is True and "0000:24:00.0" in records["passthrough"].detail
    assert records["driver_installed"].ok is True and "not needed" in records["driver_installed"].detail
    assert [record.name for record in records.values() if record.ok is False] == []
    tree.function("0000:ab:00.0", driver=None)
    look, host = seen(tree)
    assert failed(look, host)["npus_bound"] == "no kernel driver holds 0000:ab:00.0"


@pytest.mark.parametrize("_id", ["W02-count-mismatch"])
def test_count_mismatch_names_the_missing_and_the_unusable(tmp_path: Path, _id: str) -> None:
    addresses = case(_id, "pci.txt").split()
    tree = Tree(tmp_path).system().loaded("3.2.2")
    for at, address in enumerate(addresses):
        tree.function(address)
        if "/dev/rbln%d" % at in case(_id, "dev.txt").split():
            tree.device("rbln%d" % at, address, at)
    tree.smi(case(_id, "smi.json"))
    look, host = seen(tree)
    bad = failed(look, host, {"driver_version": "3.2.1"})
    assert bad["device_counts"] == (
        "expected 4, the driver sees 3, 3 under /dev, usable 2; missing: 0000:c4:00.0; unusable: 0000:c3:00.0 (fault)"
    )
    assert bad["device_words"] == "0000:c3:00.0: abnormal"
    assert bad["driver_is_wanted"] == "loaded is 3.2.2, wanted is 3.2.1"


@pytest.mark.parametrize(
    "file, name",
    [
        ("rbln-smi_ca22_device_fault.json", "device_words"),
        ("rbln-smi_ca22_fw_mismatch.json", "firmware_is_driver"),
        ("rbln-smi_ca22_one_missing.json", "device_counts"),
        ("rbln-smi_empty.json", "device_counts"),
    ],
)
def test_samples_of_faults(tmp_path: Path, file: str, name: str) -> None:
    tree = ca22_host(tmp_path)
    if file == "rbln-smi_ca22_fw_mismatch.json":
        for at in range(4):
            (tree.real("/sys/class/rebellions/rbln%d" % at) / "fw_ver").unlink()
    look, host = seen(tree.smi(sample(file)))
    assert name in failed(look, host)


@pytest.mark.parametrize("output", ["", sample("rbln-smi_truncated.json"), sample("rbln-smi_no_driver.txt")])
def test_output_that_is_no_json_leaves_the_tool_unknown(tmp_path: Path, output: str) -> None:
    look, host = seen(ca22_host(tmp_path).smi(output))
    assert of(look, "tool_answers", host=host).ok is None
    assert of(look, "device_counts", host=host).ok is not True
