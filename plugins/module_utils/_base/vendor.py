# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the core needs to know of a vendor of NPUs: frozen data and a few functions, given as a parameter."""

from __future__ import annotations

import re
import typing as t

from .records import dataclass


@dataclass(frozen=True)
class Product:
    """One PCI device id: product, family, whether a virtual function, devices of a card, bytes of a device's memory."""

    name: str
    family: str
    virtual: bool = False
    devices_per_card: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Operator:
    """Names of the vendor's own Kubernetes operator: its API, its Deployment, and driver DaemonSets of older charts.

    `policy` and `driver` are (version, kind, plural) of its two custom resources, `legacy_*` the start of a DaemonSet's
    name and a container.
    """

    group: str
    policy: tuple[str, str, str]
    driver: tuple[str, str, str]
    deployment: str
    legacy_daemon_set: str
    legacy_container: str


@dataclass(frozen=True)
class VendorProfile:
    """Everything vendor-specific that is data. Paths are those of the managed host.

    `short_name` starts the names of inputs, facts, cluster objects and, in capitals, environment variables.
    `plugin_resources` are what the vendor's device plugin can offer of whole NPUs.
    `family_spellings` are the values of a node's family label that mean one family; the first stands for all.
    """

    name: str
    title: str
    short_name: str
    pci_vendor: str
    pci_class: str
    products: t.Mapping[str, Product]
    family_prefixes: t.Mapping[str, str]
    family_spellings: tuple[tuple[str, ...], ...]
    module: str
    device_prefix: str
    group_prefix: str
    storage_prefix: str
    class_dir: str
    smi_names: tuple[str, ...]
    smi_dirs: tuple[str, ...]
    smi_json_args: tuple[str, ...]
    smi_group_args: tuple[str, ...]
    tools: tuple[str, ...]
    daemon_units: tuple[str, ...]
    container_driver_root: str
    runfile_stamp_dir: str
    package_patterns: tuple[str, ...]
    library_patterns: tuple[str, ...]
    library_version_names: tuple[str, ...]
    library_version_marker: bytes
    plugin_dirs: tuple[str, ...]
    hook_path: str
    hook_env_prefix: str
    host_tool: str
    cdi_kind: str
    cdi_file_stem: str
    cdi_storage_kind: str
    cdi_storage_stem: str
    resource_name: str
    plugin_resources: tuple[str, ...]
    label_prefix: str
    validation_dir: str
    ready_prefix: str
    container_library_path: str
    healthy_words: tuple[str, ...]
    parse_smi: t.Callable[[str], t.Mapping[str, t.Any]]
    status_names: t.Callable[[str | None], t.Mapping[int, str] | None]
    release_of: t.Callable[[str], str]
    state_dir: str
    driver_packages: tuple[str, ...]
    legacy_package: str
    legacy_below: int
    runfile_stamp: str
    ready_code: int
    ready_name: str
    fault_names: tuple[str, ...]
    residue: tuple[tuple[str, str], ...]
    flash_tool: str
    flash_args: tuple[str, ...]
    run_dir: str
    log_dir: str
    toolkit_program: str
    operator: Operator

    @property
    def device_pattern(self) -> re.Pattern[str]:
        return re.compile(r"^%s(0|[1-9][0-9]*)$" % re.escape(self.device_prefix))

    @property
    def group_pattern(self) -> re.Pattern[str]:
        return re.compile(r"^%s(0|[1-9][0-9]*)$" % re.escape(self.group_prefix))

    @property
    def storage_pattern(self) -> re.Pattern[str]:
        return re.compile(r"^%s(0|[1-9][0-9]*)$" % re.escape(self.storage_prefix))

    def family_of(self, product: str | None) -> str | None:
        """Family by the longest product prefix that fits, or None."""
        best = ""
        for prefix in self.family_prefixes:
            if product and product.startswith(prefix) and len(prefix) > len(best):
                best = prefix
        return self.family_prefixes.get(best)

    def major_of(self, version: str) -> int | None:
        """First number of a version without its epoch; None when it starts with none."""
        first = self.release_of(version.split(":")[-1]).split(".")[0]
        return int(first) if first.isdecimal() else None

    def legacy_release(self, version: str) -> bool:
        """True for a release that was one package, before there were runfiles."""
        major = self.major_of(version)
        return major is not None and major < self.legacy_below
