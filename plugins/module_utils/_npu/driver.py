# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel driver: how it was installed, its versions on disk and in the kernel, its DKMS builds, its signer."""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
import typing as t

from .._base.vendor import VendorProfile
from .._base.versions import upstream_version
from .._host.host import ABSENT, DENIED, VALUE, Host, Limit, Probe
from .._kernel.blocked import read_blocks
from .._kernel.modinfo import ModuleFile, find_module, read_module
from .devices import ClassDevice, class_version
from .driver_notes import describe_state
from .smi import find_program

DKMS_DIR = "/var/lib/dkms"
BUILT = ("built", "installed")
# What `dkms status` adds to "installed" where the kernel has another file than the one that was built.
DIFFERS = "differs"
STAMP_KEYS = ("version", "source", "files", "held", "held_kernel", "installed", "previous")


def parse_dkms_status(text: str) -> list[dict[str, t.Any]]:
    """Lines of `dkms status`, old form `m, v, kernel, arch: state` and new form `m/v, kernel, arch: state`.

    Returns [{module, version, kernel, arch, state}]; kernel and arch are None for a version that is only added.
    A module that weak-modules has linked from another kernel is installed.
    """
    found = []
    for line in text.splitlines():
        match = re.match(
            r"^([^,/:\s]+)(?:/|,\s*)([^,:\s]+)(?:,\s*([^,:\s]+),\s*([^,:\s]+))?\s*:\s*([a-z][a-z -]*[a-z])",
            line.strip(),
        )
        if match:
            module, version, kernel, arch, text = match.groups()
            state = re.sub("-weak$", "", text.split(" ")[0])
            if state == "installed" and re.search("diff.*between built and installed", line, re.I):
                state = DIFFERS
            found.append({"module": module, "version": version, "kernel": kernel, "arch": arch, "state": state})
    return found


def _read_version(host: Host, base: str, module: str, version: str) -> list[dict[str, t.Any]]:
    folder = posixpath.join(base, module, version)
    found = []

    def add(kernel: str | None, arch: str | None, state: str) -> None:
        found.append({"module": module, "version": version, "kernel": kernel, "arch": arch, "state": state})

    for kernel in host.listdir(folder).get([]):
        if kernel in ("build", "source"):
            continue
        for arch in host.listdir(posixpath.join(folder, kernel)).get([]):
            if not host.exists(posixpath.join(folder, kernel, arch, "module")):
                continue
            link = posixpath.join(base, module, "kernel-%s-%s" % (kernel, arch))
            target = host.readlink(link).get("").rstrip("/").split("/")[-3:]
            add(kernel, arch, "installed" if target == [version, kernel, arch] else "built")
    head = host.read_head(posixpath.join(folder, "build", "make.log"), 2048).get(b"").decode("utf-8", "replace")
    failed = re.search(r"make\.log for \S+ for kernel (\S+) \((\S+)\)", head)
    if failed and not any(item["kernel"] == failed.group(1) for item in found):
        add(failed.group(1), failed.group(2), "failed")
    source = posixpath.join(folder, "source")
    if host.readlink(source).ok and host.stat(source).state == ABSENT:
        # DKMS itself says so as well: without its source nothing is built for the next kernel.
        add(None, None, "broken")
    elif not found and host.exists(source):
        add(None, None, "added")
    return found


def read_dkms(
    host: Host, patterns: t.Sequence[str], base: str = DKMS_DIR, timeout: float = 10.0
) -> tuple[list[dict[str, t.Any]], Probe]:
    """DKMS state of the modules whose name fits a pattern, from DKMS's tree; `dkms status` only when that is denied.

    States: added, built, installed, broken (the source of a version is gone), and failed (the last build left its log).
    """
    names = host.listdir(base)
    if names.state == DENIED:
        asked = host.run(["dkms", "status"], timeout)
        if asked.ok and asked.value.rc == 0:
            rows = parse_dkms_status(asked.value.out)
            return [
                row for row in rows if any(fnmatch.fnmatchcase(row["module"], pattern) for pattern in patterns)
            ], asked
        return [], names
    found: list[dict[str, t.Any]] = []
    for module in names.get([]):
        if any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns):
            for version in host.listdir(posixpath.join(base, module)).get([]):
                if not version.startswith("kernel-"):
                    found.extend(_read_version(host, base, module, version))
    return found, names


def read_loaded(
    host: Host, profile: VendorProfile, classes: t.Sequence[ClassDevice]
) -> tuple[bool | None, str | None, Probe]:
    """Whether the module is loaded (None: unknown), the loaded version, and the probe."""
    base = "/sys/module/" + profile.module
    here = host.listdir(base)
    if here.state == ABSENT:
        everything = host.listdir("/sys/module")
        return (False if everything.ok else None), None, here
    if not here.ok:
        return None, None, here
    state = host.read_text(base + "/initstate", Limit.ATTRIBUTE).get("live").strip()
    version = host.read_text(base + "/version", Limit.ATTRIBUTE).get("").strip()
    return state == "live", version or class_version(classes), here


def read_stamp(host: Host, path: str) -> Probe:
    """Probe of what an installation from a runfile wrote down: a JSON object with at least `version`."""

    def load(text: str) -> t.Any:
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("version"), str):
            raise ValueError("%s is not a JSON object with a version" % path)
        return data

    return host.read_text(path, Limit.NOTE).map(load)


def is_legacy(
    profile: VendorProfile, package: t.Mapping[str, str] | None, dkms: t.Sequence[t.Mapping[str, t.Any]] = ()
) -> bool:
    """True for the one package that was the whole driver before there were runfiles, and for what it left to DKMS."""
    if package is not None:
        return package["name"] == profile.legacy_package and profile.legacy_release(package["version"])
    return any(row["module"] == profile.legacy_package and profile.legacy_release(row["version"]) for row in dkms)


def driver_package(profile: VendorProfile, packages: t.Sequence[t.Mapping[str, str]]) -> t.Mapping[str, str] | None:
    """The present package that fits the first pattern of the profile that any fits.

    A package of which only the configuration is left is not present.
    """
    present = [item for item in packages if item["state"] not in ("config-files", "not-installed")]
    for pattern in profile.driver_packages:
        for item in present:
            if fnmatch.fnmatchcase(item["name"], pattern):
                return item
    return None


def read_driver(
    host: Host,
    profile: VendorProfile,
    kernel: str | None,
    kernels: t.Sequence[str],
    packages: t.Sequence[t.Mapping[str, str]],
    package_format: str,
    classes: t.Sequence[ClassDevice],
    options: t.Mapping[str, t.Any],
) -> tuple[dict[str, t.Any], dict[str, Probe], dict[str, bool]]:
    """The `driver` part of the facts, its probes, and `kernel.modules`.

    Where neither a module nor DKMS says which driver is there, and none is loaded, it is the one of the package.

    How it was installed: a stamp, or user tools together with a module that no package and no package manager owns, is
    a runfile; a driver package is deb or rpm; a DKMS module without tools is dkms; a driver root of a container with
    nothing on the host is container.
    """
    timeout = options["command_timeout"]
    loaded, version_loaded, loaded_probe = read_loaded(host, profile, classes)
    module = read_module(host, profile.module, kernel, timeout)
    file: ModuleFile | None = module.value
    dkms, dkms_probe = read_dkms(host, profile.driver_packages, options["dkms_dir"], timeout)
    stamp = read_stamp(host, options["runfile_stamp"])
    state, state_probes = describe_state(host, profile)
    blocks, blocks_probe = read_blocks(host, profile.module)
    package = driver_package(profile, packages)
    root = options["container_driver_root"]
    container_tool = any(find_program(host, name, [posixpath.join(root, "usr/bin")]) for name in profile.smi_names)
    host_dirs = [path for path in profile.smi_dirs if not path.startswith(root)]
    host_tool = any(find_program(host, name, host_dirs) for name in profile.smi_names)
    on_host = bool(file and not file.path.startswith(root)) or bool(dkms)
    noted = stamp.value if stamp.ok else {}
    if stamp.ok and noted.get("source", "runfile") == "runfile":
        via = "runfile"
    elif package:
        via = package_format or "unknown"
    elif on_host and host_tool:
        via = "runfile"
    elif dkms:
        via = "dkms"
    elif container_tool:
        via = "container"
    elif on_host or host_tool or loaded:
        via = "unknown"
    else:
        via = "none"
    version = file.version if file else None
    if version is None and kernel:
        built = [item for item in dkms if item["kernel"] == kernel and item["state"] == "installed"]
        version = built[0]["version"] if len(built) == 1 else None
    if version is None and not loaded and module.state == ABSENT and package and via == package_format:
        version = None if any(item["state"] in BUILT for item in dkms) else upstream_version(package["version"]) or None
    facts = {
        "installed_via": via,
        "root": root if via == "container" else "/",
        "version_on_disk": version,
        "version_loaded": version_loaded,
        "loaded": loaded,
        "module": profile.module,
        "module_path": file.path if file else None,
        "vermagic": file.vermagic if file else None,
        "srcversion_on_disk": file.srcversion if file else None,
        "srcversion_loaded": host.read_text("/sys/module/%s/srcversion" % profile.module, Limit.ATTRIBUTE)
        .get("")
        .strip()
        or None
        if loaded
        else None,
        "signer": file.signer if file else None,
        "signed": file.signed if file else None,
        "sig_key": file.sig_key if file else None,
        "blocked_by": blocks,
        "dkms": dkms,
        "packages": [dict(item) for item in packages],
        "package": dict(package) if package else None,
        "legacy": is_legacy(profile, package, dkms),
        "stamp": {key: noted.get(key) for key in STAMP_KEYS} if stamp.ok else None,
        "state": state,
        "container_root": root if container_tool else None,
    }
    probes = {"module_loaded": loaded_probe, "module_file": Probe(VALUE) if module.ok else module, "dkms": dkms_probe}
    probes.update(state_probes)
    if not blocks_probe.ok:
        probes["modprobe_d"] = blocks_probe
    if stamp.state != ABSENT:
        probes["runfile_stamp"] = stamp
    # A tree that may not be read is left out: not known is not absent.
    readable = [name for name in kernels if host.listdir("/lib/modules/" + name).state != DENIED]
    modules = {name: find_module(host, profile.module, name) is not None for name in readable}
    return facts, probes, modules
