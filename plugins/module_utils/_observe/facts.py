# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything known about a host with NPUs, in one look: `collect_facts`."""

from __future__ import annotations

import fnmatch
import posixpath
import typing as t

from .._base.model import NpuError
from .._base.pool import pool_key
from .._base.vendor import VendorProfile
from .._base.versions import same_release
from .._cdi.ldpath import Tree, configured_directories
from .._checks.base import Context
from .._checks.driver import find_problems
from .._host.disk import read_disk, read_initramfs
from .._host.host import DENIED, FAILED, TIMEOUT, VALUE, Host, Limit, Probe
from .._host.identity import read_container, read_hostname, read_identity, read_virtualization
from .._host.os import read_image, read_os
from .._kernel.build_tools import PACKAGES as BUILD_PACKAGES
from .._kernel.build_tools import read_build
from .._kernel.kernels import PACKAGE_PATTERNS, guard, read_kernel
from .._npu.devices import class_version, read_class, read_nodes
from .._npu.driver import DKMS_DIR, read_driver
from .._npu.libraries import read_libraries
from .._npu.npu import count, list_groups, merge_npus
from .._npu.pci import normalise_address, read_functions, read_pciehp
from .._npu.smi import read_smi
from .._npu.tools import read_daemon, read_tools
from .._packages.installed import read_packages
from .._packages.pins import holds, read_pins
from .._secure_boot.firmware import read_secure_boot
from .._secure_boot.mok import read_mok

SCHEMA = 1
DEFAULTS: t.Mapping[str, t.Any] = {
    "smi_timeout": 5.0,
    "command_timeout": 10.0,
    "expected_addresses": (),
    "kernel": None,
    "dkms_dir": DKMS_DIR,
    "runfile_stamp": None,
    "container_driver_root": None,
}


def complete_options(profile: VendorProfile, options: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """Defaults filled in.

    smi_timeout and command_timeout in seconds; expected_addresses a list of PCI addresses; kernel overrides the running
    release (for an image); dkms_dir, runfile_stamp and container_driver_root override the places of the profile.
    """
    given = {key: value for key, value in (options or {}).items() if value is not None}
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise NpuError(
            "Unknown option of the facts: %s." % ", ".join(unknown), "Use one of: %s." % ", ".join(sorted(DEFAULTS))
        )
    full = dict(DEFAULTS)
    full["runfile_stamp"] = posixpath.join(profile.runfile_stamp_dir, profile.runfile_stamp)
    full["container_driver_root"] = profile.container_driver_root
    full.update(given)
    for name in ("smi_timeout", "command_timeout"):
        if not full[name] > 0:
            raise NpuError("%s is %s." % (name, full[name]), "Give it a number of seconds above 0.")
    wrong = [address for address in full["expected_addresses"] if normalise_address(address) is None]
    if wrong:
        raise NpuError(
            "expected_addresses: not a PCI address: %s." % ", ".join(map(str, wrong)),
            "Write them as sysfs does, for example 0000:83:00.0.",
        )
    return full


def reboot_reasons(host: Host, driver: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """Why a reboot is due: [{code, detail}]. A newer kernel that merely waits is no reason by itself."""
    reasons = []
    other = _module_differs(driver) if driver["loaded"] else ""
    if other:
        reasons.append({"code": "module_differs", "detail": other})
    for path in ("/run/reboot-required", "/var/run/reboot-required"):
        if host.exists(path):
            names = sorted(set(host.read_text(path + ".pkgs", Limit.NOTE).get("").split()))
            detail = "%s: %s" % (path, ", ".join(names)) if names else path
            reasons.append({"code": "reboot_required_file", "detail": detail})
            break
    return reasons


def _module_differs(driver: t.Mapping[str, t.Any]) -> str:
    """How the module on disk is another one than the loaded one; empty when it is not, or that is not known."""
    disk, live = driver["version_on_disk"], driver["version_loaded"]
    if disk and live and disk != live and not same_release(disk, live):
        return "version %s is loaded, %s is on disk" % (live, disk)
    disk, live = driver["srcversion_on_disk"], driver["srcversion_loaded"]
    return "build %s is loaded, %s is on disk" % (live, disk) if disk and live and disk != live else ""


def _loader_dirs(host: Host, root: str) -> list[str]:
    """The directories below the root of the driver that its loader is configured to read."""
    if root == "/":
        return configured_directories(Tree(host))
    found = host.resolve(root)
    return configured_directories(Tree(Host(root=host.real(found.value)))) if found.ok else []


def _smi_facts(path: str | None, probe: Probe) -> dict[str, t.Any]:
    data = probe.get({})
    version = data.get("kmd_version")
    error = probe.value if probe.state == FAILED else None
    return {
        "path": path,
        "state": probe.state,
        "kmd_version": None if version in (None, "N/A") else version,
        "devices": len(data["devices"]) if probe.ok else None,
        "error": error,
        "detail": probe.detail,
        "contexts": data.get("contexts", []),
    }


def _look(profile: VendorProfile, host: Host, opts: t.Mapping[str, t.Any], units: Probe | None) -> dict[str, t.Any]:
    """The facts without their problems."""
    top = host.listdir("/")
    if not top.ok:
        raise NpuError("root %s: %s." % (host.root, top.detail), "Give the directory that holds the system's files.")
    hostname = read_hostname(host)
    system, os_probe = read_os(host)
    in_container = read_container(host)
    patterns = tuple(profile.package_patterns)
    packages, package_format, package_probe = read_packages(
        host, patterns + PACKAGE_PATTERNS + BUILD_PACKAGES, opts["command_timeout"]
    )
    own_packages = [
        item for item in packages if any(fnmatch.fnmatchcase(item["name"], pattern) for pattern in patterns)
    ]
    pins, pins_probe = read_pins(host, package_format)
    kernel, probes = read_kernel(host, packages, in_container, opts["kernel"])
    functions, pci_probe = read_functions(
        host, profile.pci_vendor, profile.pci_class, profile.products, opts["command_timeout"]
    )
    classes, class_probe = read_class(host, profile)
    nodes, dev_probe = read_nodes(host, profile)
    smi_path, smi_probe = read_smi(host, profile, opts["smi_timeout"])
    smi = _smi_facts(smi_path, smi_probe)
    driver, driver_probes, modules = read_driver(
        host, profile, kernel["running"], list(kernel["headers"]), own_packages, package_format, classes, opts
    )
    if driver["loaded"] and driver["version_loaded"] is None:
        driver["version_loaded"] = smi["kmd_version"]
    pciehp, pciehp_probe = read_pciehp(host, functions)
    disk, mounts, mount_options = read_disk(host)
    system["image"] = read_image(host, system["id"], mount_options)
    if system["image"]:
        # The modules of other kernels are in other images.
        modules = {name: found for name, found in modules.items() if name == kernel["running"]}
    kernel["modules"] = modules
    kernel["guard"] = guard(kernel)
    upcoming = kernel["next_boot"]
    fit = bool(kernel["headers"].get(upcoming) or modules.get(upcoming))
    kernel["next_boot_ok"] = fit if fit or upcoming in modules else None
    version = driver["version_loaded"] or class_version(classes) or smi["kmd_version"]
    npus = merge_npus(
        profile, functions, classes, smi_probe.get({}).get("devices", []), nodes, host, version, pci_probe.ok
    )
    counts = count(npus, pci_probe.ok)
    secure_boot, secure_probe = read_secure_boot(host, opts["command_timeout"])
    mok, mok_probes = read_mok(host, profile, system, driver, secure_boot, opts["command_timeout"])
    identity, identity_probes = read_identity(host, hostname)
    virtualization, virtualization_probe = read_virtualization(host)
    daemon, daemon_probe = read_daemon(host, profile, opts["command_timeout"], units)
    libraries, libraries_probe = read_libraries(host, profile, driver["root"], _loader_dirs(host, driver["root"]))
    reasons = reboot_reasons(host, driver)
    probes.update(driver_probes)
    probes.update(identity_probes)
    probes.update(mok_probes)
    probes.update(
        {
            "os_release": os_probe,
            "packages": package_probe,
            "pci": pci_probe,
            "class": class_probe,
            "dev": dev_probe,
            "smi": smi_probe,
            "secure_boot": secure_probe,
            "virtualization": virtualization_probe,
            "daemon": daemon_probe,
            "holds": pins_probe,
            "pciehp": pciehp_probe,
            "libraries": libraries_probe,
        }
    )
    return {
        "schema": SCHEMA,
        "vendor": profile.name,
        "hostname": hostname,
        "npus": npus,
        "counts": counts,
        "npu_count": counts["devices"],
        "groups": list_groups(profile, npus, nodes, host),
        "device_nodes": list(nodes.values()),
        "driver": driver,
        "kernel": kernel,
        "os": system,
        "secure_boot": secure_boot,
        "mok": mok,
        "build": read_build(host, packages),
        "disk": disk,
        "mounts": mounts,
        "mount_options": mount_options,
        "initramfs": read_initramfs(host),
        "holds": None if pins is None else holds(pins),
        "pins": None if pins is None else [pin._asdict() for pin in pins],
        "pciehp": pciehp,
        # A tool that hung once would hang again.
        "tools": read_tools(host, profile, None if smi_probe.state == TIMEOUT else smi_path, opts["smi_timeout"]),
        "smi": smi,
        "daemon": daemon,
        "identity": identity,
        "virtualization": virtualization,
        "in_container": in_container,
        "libraries": libraries,
        "probes": {
            name: {"state": probe.state, "detail": probe.detail if probe.state != VALUE else ""}
            for name, probe in sorted(probes.items())
        },
        "probe_denied": [name for name, probe in sorted(probes.items()) if probe.state == DENIED],
        "pool_key": pool_key(system["id"], system["version_id"] or system["codename"], kernel["running"]),
        "reboot_required": bool(reasons),
        "reboot_reasons": reasons,
    }


def collect_facts(
    profile: VendorProfile,
    host: Host,
    options: t.Mapping[str, t.Any] | None = None,
    wanted: t.Mapping[str, t.Any] | None = None,
    units: Probe | None = None,
) -> dict[str, t.Any]:
    """The facts of one host in the shape of the schema under docs. Reads only; NpuError for a bad option or root.

    `problems` are the checks of the scope driver that do not hold, judged by `wanted` as in Context. Without it, they
    are judged by the expected addresses alone. `units` is what systemd has said of them, as ask_units() has it.
    """
    opts = complete_options(profile, options)
    facts = _look(profile, host, opts, units)
    asked = {"expected_addresses": opts["expected_addresses"], **(wanted or {})}
    context = Context(profile, host, facts, {}, {}, asked)
    facts["problems"] = [problem.to_dict() for problem in find_problems(context)]
    return facts
