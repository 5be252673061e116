# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a host and what is wanted of its driver, and the plan of one host while it is made: steps in order, stops, cautions. Pure."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import (
    ERROR,
    EVICT,
    NONE,
    WARNING,
    NpuError,
    Problem,
    Step,
)
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import (
    compare,
    release_numbers,
    same_release,
)
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver import BUILT

DRIVER_ROLE = "driver"
TOOLKIT_ROLE = "container_toolkit"
VALIDATOR_ROLE = "validator"
ROLE_ORDER = (DRIVER_ROLE, TOOLKIT_ROLE, VALIDATOR_ROLE)


@dataclass
class Draft:
    """What the parts of the planner add to; `by_policy` turns a policy of fail, warn or ignore into a stop, a caution or nothing."""

    vendor: str
    steps: list[Step] = field(default_factory=list)
    stops: list[Problem] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    stale_units: list[str] = field(default_factory=list)

    def step(self, **keys: t.Any) -> None:
        self.steps.append(Step(vendor=self.vendor, **keys))

    def stop(self, code: str, detail: str, next_step: str) -> None:
        self.stops.append(Problem(code, ERROR, detail, next_step, self.vendor))

    def caution(self, code: str, detail: str, next_step: str = "", severity: str = WARNING) -> None:
        self.cautions.append(Problem(code, severity, detail, next_step, self.vendor))

    def by_policy(self, policy: str, code: str, detail: str, next_step: str) -> None:
        if policy == "fail":
            self.stop(code, detail, next_step)
        elif policy == "warn":
            self.caution(code, detail, next_step)


def getter(wanted: t.Mapping[str, t.Any], prefix: str) -> t.Callable[[str], t.Any]:
    """Short names for the inputs of one role: getter(wanted, prefix)("version")."""

    def get(name: str) -> t.Any:
        return wanted["%s_%s" % (prefix, name)]

    return get


def needs_driver(facts: t.Mapping[str, t.Any]) -> bool:
    """True when a physical function is not given to virtual machines."""
    return any(npu["function"] == "pf" and npu["state"] != "passthrough" for npu in facts["npus"])


# Looks without which an absent driver is not known to be absent.
DRIVER_PROBES = ("module_loaded", "module_file", "dkms", "packages", "runfile_stamp", "driver_journal")
# Parameters of an address that let whoever reads them fetch as well: tokens, keys and signatures of signed addresses.
SECRET_QUERY = re.compile(r"[?&][^=&#]*(?:token|passw|secret|signature|credential|api-?key|sig(?==))", re.I)

# States of dpkg between nothing and installed.
UNFINISHED = ("half-installed", "unpacked", "half-configured")

Data = t.Mapping[str, t.Any]


def wanted_version(wanted: Data, facts: Data, prefix: str) -> str:
    """The version for this host: the one that is named, else the one of its family, since one kernel driver build serves one family."""
    named = wanted["%s_driver_version" % prefix]
    versions = wanted["%s_driver_versions" % prefix]
    for family, version in versions.items():
        if not isinstance(version, str):
            raise NpuError(
                "%s_driver_versions: %s is %r, which is no text." % (prefix, family, version),
                "Quote the version: '3.10' is not 3.1.",
            )
    families = sorted({npu["family"] for npu in facts["npus"] if npu["family"] and npu["state"] != "passthrough"})
    return str(named or (versions.get(families[0]) if len(families) == 1 else "") or "")


def driver_files(wanted: Data, facts: Data, prefix: str) -> list[dict[str, str]]:
    """The files that an installation needs: [{src, sha256, name, signature}]; sha256 is empty where none is given."""
    get = getter(wanted, prefix + "_driver")
    if get("source") == "package":
        return [{"src": item["path"], "sha256": item["sha256"]} for item in get("package_files")]
    if get("source") != "runfile" or not get("runfile"):
        return []
    version = wanted_version(wanted, facts, prefix)
    words = {"{version}": version, "{arch}": facts["os"]["arch"] or "x86_64"}

    def fill(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    file = {
        "src": fill(get("runfile")),
        "sha256": get("runfile_sha256") or get("runfile_digests").get(version) or "",
        "name": fill(get("runfile_name")),
    }
    if get("runfile_signature"):
        file["signature"] = fill(get("runfile_signature"))
    return [file]


def failed_before(facts: Data, version: str, sha256: str) -> Data | None:
    for entry in facts["driver"]["state"]["refused"]:
        if entry.get("version") == version and (
            not entry.get("sha256") or not sha256 or entry["sha256"] == sha256.lower()
        ):
            return dict(entry)
    return None


def damaged_module(facts: Data) -> str:
    """What is wrong with the module file of the running kernel, as a sentence; empty when nothing is or none is expected there.

    Only what DKMS says to have built for this very kernel is held to its release: other builds may serve several kernels.
    """
    driver, probe = facts["driver"], facts["probes"].get("module_file") or {}
    path, running = driver.get("module_path"), (facts.get("kernel") or {}).get("running")
    built = any(row["kernel"] == running and row["state"] == "installed" for row in driver.get("dkms") or [])
    if not path:
        gone = built and probe.get("state") == "absent"
        return "The module file of kernel %s is gone, which DKMS has installed." % running if gone else ""
    if probe.get("state") == "failed":
        return "The module file cannot be read: %s." % str(probe.get("detail") or path).rstrip(".")
    release = str(driver.get("vermagic") or "").partition(" ")[0]
    return (
        "The module file %s is built for kernel %s." % (path, release)
        if built and release and release != running
        else ""
    )


def broken_package(facts: Data) -> str:
    """Which package of the driver the package manager has begun and not finished, as a sentence; empty when none is like that."""
    package = facts["driver"].get("package") or {}
    return (
        "The package %s %s is %s." % (package["name"], package["version"], package["state"])
        if package.get("state") in UNFINISHED
        else ""
    )


def confined(facts: Data) -> bool:
    """True for a container that does not even see the modules of the kernel it runs on: it can bring no driver."""
    return bool(facts.get("in_container")) and (facts.get("kernel") or {}).get("module_tree") is False


class Situation:
    """What is on the host and what is wanted, in the words that every decision below needs."""

    def __init__(self, wanted: Data, facts: Data, prefix: str) -> None:
        self.get = getter(wanted, prefix + "_driver")
        self.facts, self.driver, self.prefix = facts, facts["driver"], prefix
        self.source, self.version = self.get("source"), wanted_version(wanted, facts, prefix)
        self.present = self.driver["version_on_disk"] or self.driver["version_loaded"]
        self.traces = self.driver["installed_via"] != "none" or self.driver["version_loaded"] is not None
        # What an installer left that broke off has no module; it protects nothing.
        self.installed = self.traces and (
            self.present is not None or bool(self.driver.get("loaded")) or self.driver["installed_via"] == "container"
        )
        # DKMS has it, and the kernel that runs came later and without headers.
        built = [row["version"] for row in self.driver.get("dkms") or [] if row["state"] in BUILT]
        self.unbuilt = built[-1] if built and not self.installed else ""
        self.change = self.driver["state"]["change"]
        self.tainted = self.driver["state"]["tainted"]
        # The kernel has no module of it, which is more than that none is known of.
        self.stopped = self.driver["loaded"] is False and self.driver["version_loaded"] is None
        # Only the package manager knows of it: there is no module to load.
        self.bare = bool(
            self.stopped and self.driver["version_on_disk"] and self.driver.get("package") and not built
            and facts["probes"].get("module_file", {}).get("state") == "absent"
        )  # fmt: skip
        # What a former package has left to DKMS, which nobody takes away with it.
        owned = not self.driver["legacy"] or self.driver.get("package")
        self.orphans = (
            []
            if owned
            else sorted({"%s/%s" % (row["module"], row["version"]) for row in self.driver.get("dkms") or []})
        )
        self.broken = broken_package(facts)
        self.damage = damaged_module(facts)
        if self.bare and not self.damage:
            self.damage = "The package %s %s has no module for the running kernel." % (
                self.driver["package"]["name"],
                self.driver["package"]["version"],
            )
        self.disruption = EVICT if self.driver["loaded"] or self.installed else NONE

    @property
    def fits(self) -> bool:
        return self.installed and (not self.version or same_release(self.present, self.version))

    @property
    def doubled(self) -> bool:
        """The driver that works is not that of the package of former releases, which is here as well."""
        number = (self.driver.get("package") or {}).get("version")
        return bool(
            self.driver["legacy"]
            and self.present
            and number
            and compare(release_numbers(self.present), release_numbers(number)) > 0
        )

    @property
    def hidden(self) -> list[str]:
        probes = self.facts["probes"]
        return [
            "%s %s" % (name, probes[name]["detail"] or probes[name]["state"])
            for name in DRIVER_PROBES
            if probes.get(name, {}).get("state") in ("denied", "timeout", "failed")
            and not (name == "module_file" and self.damage)
        ]
