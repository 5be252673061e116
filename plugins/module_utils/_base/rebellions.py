# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rebellions: PCI ids, names, paths and the reading of rbln-smi.

Sources: docs.rbln.ai v0.12.0 (version matrix, management tools, container toolkit), the public PCI ID database, and the
Apache-2.0 container toolkit and device plugin.
"""

from __future__ import annotations

import json
import re
import typing as t

from .vendor import Operator, Product, VendorProfile

GIB = 1024**3
ATOM_MEMORY = 16877879296
ATOM = "ATOM"
REBEL = "REBEL"


def _functions(
    name: str, family: str, physical: str, devices_per_card: int = 1, memory_bytes: int | None = None
) -> dict[str, Product]:
    virtual = "%04x" % (int(physical, 16) + 1)
    return {
        physical: Product(name, family, False, devices_per_card, memory_bytes),
        virtual: Product(name, family, True, devices_per_card, memory_bytes),
    }


PRODUCTS: dict[str, Product] = {}
PRODUCTS.update(_functions("RBLN-CA02", ATOM, "1020", 1, ATOM_MEMORY))
PRODUCTS.update(_functions("RBLN-CA12", ATOM, "1120", 1, ATOM_MEMORY))
PRODUCTS.update({"1150": Product("RBLN-CA15", ATOM)})
PRODUCTS.update(_functions("RBLN-CA22", ATOM, "1220", 1, ATOM_MEMORY))
PRODUCTS.update(_functions("RBLN-CA25", ATOM, "1250", 4, ATOM_MEMORY))
PRODUCTS.update(_functions("RBLN-CR03", REBEL, "2030"))
PRODUCTS.update(_functions("RBLN-CR13", REBEL, "2130", 1, 140 * GIB))

STATUS_NAMES = {0: "READY", 1: "BUSY", 2: "INIT", 3: "FAULT", 4: "FINISH"}
# From which driver release on PROBING replaces INIT is not public; only READY (0) means the same in both tables.
STATUS_KNOWN_BEFORE = (4, 0, 0)


def release_of(version: str) -> str:
    """The release part of a version: it ends at the first -, + or ~, as in `0.12.37-6eed3e9-release` or `3.0.0~rc1`."""
    return re.split(r"[-+~]", version.strip(), maxsplit=1)[0]


def status_names(driver_version: str | None) -> t.Mapping[int, str] | None:
    """Meaning of the sysfs status numbers for a driver version, or None when that version's table is not known."""
    if not driver_version:
        return None
    numbers = re.findall(r"[0-9]+", release_of(driver_version))
    if not numbers or tuple(int(number) for number in numbers) >= STATUS_KNOWN_BEFORE:
        return None
    return STATUS_NAMES


def _integer(value: t.Any) -> int | None:
    match = (
        re.match(r"^\s*[xX]?([0-9]{1,20})(?:\.0*)?\s*$", str(value))
        if value is not None and not isinstance(value, bool)
        else None
    )
    return int(match.group(1)) if match else None


def _bytes(value: t.Any) -> int | None:
    """Bytes of `16877879296`, 16877879296, `16877879296B`, `15.7GiB` or `16.8 GB`."""
    match = (
        re.match(r"^\s*([0-9]{1,20}(?:\.[0-9]*)?)\s*(?:([KMGT])(i?))?B?\s*$", str(value), re.IGNORECASE)
        if not isinstance(value, bool)
        else None
    )
    if match is None:
        return None
    power = " KMGT".index((match.group(2) or " ").upper())
    unit = (1024 if match.group(3) else 1000) ** power
    whole = match.group(1)
    return int(float(whole) * unit) if "." in whole else int(whole) * unit


def _text(value: t.Any) -> str | None:
    return str(value).strip() or None if value is not None else None


def _first_word(value: t.Any) -> str | None:
    words = str(value or "").split()
    return words[0] if words else None


def _part(item: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    """A sub-object, empty when it is none."""
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def parse_smi(text: str) -> dict[str, t.Any]:
    """Read `rbln-smi -j` or `-g -j`; ValueError when it is not that.

    Returns kmd_version (str or None), devices [{index, name, serial, uuid, device, status, firmware, address,
    numa_node, link_speed, link_width, group, memory_bytes, memory_used, location}] and contexts [{device, pid,
    process, memory}]. `npu`, `group_id`, `pid` and `link_width` may be numbers or text; memory is bytes unless it
    carries a unit.
    """
    try:
        data = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as exc:
        raise ValueError("the output is not JSON: %s" % exc) from exc
    if not isinstance(data, dict) or not isinstance(data.get("devices"), list):
        raise ValueError("the output has no list of devices")
    devices = []
    for item in data["devices"]:
        if not isinstance(item, dict):
            raise ValueError("a device is not an object")
        pci, memory = _part(item, "pci"), _part(item, "memory")
        devices.append(
            {
                "index": _integer(item.get("npu")),
                "name": _text(item.get("name")),
                "serial": _text(item.get("sid")),
                "uuid": _text(item.get("uuid")),
                "device": (_text(item.get("device")) or "").rpartition("/")[2] or None,
                "status": _text(item.get("status")),
                "firmware": _text(item.get("fw_ver")),
                "address": (_text(pci.get("bus_id")) or "").lower() or None,
                "numa_node": _integer(pci.get("numa_node")),
                "link_speed": _text(pci.get("link_speed")),
                "link_width": _integer(pci.get("link_width")),
                "group": _integer(item.get("group_id")),
                "memory_bytes": _bytes(memory.get("total")),
                "memory_used": _bytes(memory.get("used")),
                "location": _integer(item.get("location")),
            }
        )
    contexts = []
    for item in data["contexts"] if isinstance(data.get("contexts"), list) else []:
        if isinstance(item, dict):
            contexts.append(
                {
                    "device": _text(item.get("npu")),
                    "pid": _integer(item.get("pid")),
                    # Only the program: its arguments may hold secrets.
                    "process": _first_word(item.get("process") or item.get("cmd")),
                    "memory": _text(item.get("memalloc") or item.get("memory")),
                }
            )
    return {"kmd_version": _text(data.get("KMD_version")), "devices": devices, "contexts": contexts}


PLUGIN_DIRS = ("/usr/lib64/libibverbs", "/usr/lib/x86_64-linux-gnu/libibverbs")
# Where an installer leaves what no package owns: (directory, pattern). The names of its rules and load files are not
# public. In /etc, where a site writes too, only plain names count: other names are those of the site.
_CONF = ("rbln.conf", "[0-9][0-9]-rbln.conf", "rebellions.conf", "[0-9][0-9]-rebellions.conf")
RESIDUE: tuple[tuple[str, str], ...] = (
    *(
        (directory + "/" + folder, pattern)
        for directory, conf in (
            ("/etc", _CONF),
            ("/usr/lib", (*_CONF, "rbln-*.conf")),
            ("/lib", (*_CONF, "rbln-*.conf")),
        )
        for folder, patterns in (
            ("udev/rules.d", ("[0-9][0-9]-rbln.rules", "[0-9][0-9]-rbln-[!h]*.rules", "[0-9][0-9]-rebellions*.rules")),
            ("modprobe.d", conf),
            ("modules-load.d", conf),
            ("systemd/system", ("rbln-smd.service", "rbln_daemon.service")),
        )
        for pattern in patterns
    ),
    *(
        (directory, name)
        for directory in ("/usr/bin", "/usr/local/bin")
        for name in (
            "rbln-smi",
            "rbln-stat",
            "rbln-smd",
            "rbln-smdi",
            "rbln-flash",
            "rbln-bios",
            "rbln-vs",
            "rblnBandwidthLatencyTest",
        )
    ),
    *((directory, "librbln*.so*") for directory in PLUGIN_DIRS),
)


PROFILE = VendorProfile(
    name="rebellions",
    title="Rebellions",
    short_name="rbln",
    pci_vendor="1eff",
    pci_class="1200",
    products=PRODUCTS,
    family_prefixes={"RBLN-CA": ATOM, "RBLN-CR": REBEL},
    # How releases of the vendor's discovery have spelled a family.
    family_spellings=(("atom", ATOM), ("rebel100", REBEL)),
    module="rebellions",
    device_prefix="rbln",
    group_prefix="rsd",
    storage_prefix="rblnfs",
    class_dir="/sys/class/rebellions",
    smi_names=("rbln-smi", "rbln-stat"),
    smi_dirs=("/usr/bin", "/usr/local/bin", "/run/rbln/driver/usr/bin"),
    smi_json_args=("-j",),
    smi_group_args=("-g", "-j"),
    tools=("rbln-smi", "rbln-stat", "rblnBandwidthLatencyTest"),
    daemon_units=("rbln-smd.service", "rbln_daemon.service"),
    container_driver_root="/run/rbln/driver",
    runfile_stamp_dir="/var/lib/rbln",
    package_patterns=("rebellions", "rebellions-*", "librbln*", "rbln-*"),
    library_patterns=("librbln-*.so*",),
    library_version_names=("librbln-ccl.so", "librbln-thunk.so"),
    library_version_marker=b"rbln version: ",
    plugin_dirs=PLUGIN_DIRS,
    hook_path="/usr/local/bin/rbln-cdi-hook",
    hook_env_prefix="RBLN_CDI_HOOK_",
    host_tool="/usr/local/libexec/rebellions-npu/rbln-host",
    cdi_kind="rebellions.ai/npu",
    cdi_file_stem="rbln",
    cdi_storage_kind="rebellions.ai/rds",
    cdi_storage_stem="rbln-rds",
    state_dir="/var/lib/rebellions-npu",
    resource_name="rebellions.ai/npu",
    # The second form is that of releases before 0.4.0, and still its choice.
    plugin_resources=("rebellions.ai/npu", "rebellions.ai/ATOM", "rebellions.ai/REBEL"),
    label_prefix="rebellions.ai",
    validation_dir="/run/rbln/validations",
    ready_prefix="RBLN_CTK_DAEMON_",
    container_library_path="/usr/local/lib/rbln",
    healthy_words=("normal",),
    parse_smi=parse_smi,
    status_names=status_names,
    release_of=release_of,
    # Best first. The names of the packages inside the runfile are not public, so any package of the vendor is the last.
    driver_packages=("rebellions", "rebellions-kmd*", "rebellions-dkms*", "rebellions-driver*", "rebellions-*"),
    legacy_package="rebellions",
    legacy_below=3,
    runfile_stamp="driver.json",
    ready_code=0,
    ready_name="READY",
    fault_names=("FAULT",),
    residue=RESIDUE,
    flash_tool="rbln-flash",
    flash_args=("--cp", "-d", "{directory}", "-s", "all"),
    run_dir="/run/rbln",
    log_dir="/var/log/rebellions",
    toolkit_program="rbln-ctk-daemon",
    operator=Operator(
        group="rebellions.ai",
        policy=("v1beta1", "RBLNClusterPolicy", "rblnclusterpolicies"),
        driver=("v1alpha1", "RBLNDriver", "rblndrivers"),
        deployment="rbln-npu-operator",
        legacy_daemon_set="rbln-k8s-driver-manager",
        legacy_container="rbln-umd-installer",
    ),
)
