# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wanted of one host and what was seen of it, and its plan while it is made. Pure."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import (
    ERROR,
    EVICT,
    INFO,
    NONE,
    WARNING,
    Check,
    NpuError,
    Problem,
    Step,
)
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import same_release
from ansible_collections.rebellions.npu.plugins.module_utils._checks.installation import DRIVER_PROBES
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver import BUILT

from .._answers.passed import passed_names

# The part of a next step that names the policy which turns a stop into a caution.
_ACCEPT = re.compile(r"[,;] or accept it with \w+: warn(?=\.)")
DRIVER_ROLE = "driver"
TOOLKIT_ROLE = "container_toolkit"
VALIDATOR_ROLE = "validator"
ROLE_ORDER = (DRIVER_ROLE, TOOLKIT_ROLE, VALIDATOR_ROLE)

Data = t.Mapping[str, t.Any]
Rules = t.Sequence[t.Mapping[str, t.Any]]


def ours(name: str) -> str:
    """An input by its full name: ours("driver_version")."""
    return f"{PROFILE.short_name}_{name}"


def sentence(text: str) -> str:
    """The detail of a check as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


@dataclass(frozen=True)
class Case:
    """One host: normalised inputs, what one observation returned, and the rules of the support matrix.

    `proxies`, where runtimes shall have some: {changed: names of the runtimes whose files differ, no_proxy: the
    exceptions, problem: what prevents it, next_step}. It never holds a proxy itself, which may have a password.
    """

    wanted: Data
    facts: Data
    runtimes: Data
    observed: Data
    matrix: Rules = ()
    proxies: Data | None = None

    def input(self, name: str) -> t.Any:
        """An input by its name without the vendor's prefix."""
        return self.wanted[ours(name)]

    def check(self, name: str, scope: str = "driver") -> Check | None:
        """The record of a check; None when it does not apply to the host. NpuError when its scope was not observed."""
        records, passed = self.observed["checks"], passed_names(self.observed)
        if scope not in passed and not any(record["scope"] == scope for record in records):
            raise NpuError(
                f"The observation has no check of the scope {scope}.",
                "Observe with the scopes driver and toolkit, and plan again.",
            )
        found = next((record for record in records if record["name"] == name and record["scope"] == scope), None)
        if found:
            return Check(**found)
        return Check(name, scope, True) if name in passed.get(scope, ()) else None

    def fails(self, name: str) -> Check | None:
        """The record of a check of the scope driver that is false; else None."""
        record = self.check(name)
        return record if record is not None and record.ok is False else None

    @property
    def driver(self) -> Data:
        driver: Data = self.facts["driver"]
        return driver

    @property
    def needs_driver(self) -> bool:
        """True when a physical function is not given to virtual machines."""
        return any(npu["function"] == "pf" and npu["state"] != "passthrough" for npu in self.facts["npus"])

    @property
    def families(self) -> list[str]:
        """Product families of the NPUs that the driver of this host serves."""
        return families(self.facts)

    @property
    def version(self) -> str:
        return wanted_version(self.wanted, self.facts)

    @property
    def judged_version(self) -> str | None:
        """The driver that the host will have: the wanted one, else the present one."""
        return self.version or self.driver["version_on_disk"] or self.driver["version_loaded"]

    @property
    def confined(self) -> bool:
        """True for a container that does not even see the modules of the kernel it runs on: it can bring no driver."""
        return bool(self.facts.get("in_container")) and (self.facts.get("kernel") or {}).get("module_tree") is False

    @property
    def image(self) -> str:
        """How the host's system comes as an image, as in the facts; empty when packages can be installed on it."""
        return str(self.facts["os"].get("image") or "")

    def mount_options(self, path: str) -> t.Sequence[str]:
        """Those of ro, noexec and nosuid that hold where a path lies; empty where that is not known."""
        return (self.facts.get("mount_options") or {}).get(path) or ()

    @property
    def sealed(self) -> bool:
        """Whether a driver is wanted from a source that cannot be installed from on this host."""
        return bool(self.image) and self.input("driver_source") in ("package", "runfile")

    @property
    def driver_to_come(self) -> bool:
        """True when the driver is that of a container which has not loaded it: the host can prove nothing yet.

        Files of a container that has ended may still be there, and the cluster part is what brings the next one.
        """
        return self.input("driver_source") == "container" and not self.driver["loaded"]

    @property
    def damage(self) -> str:
        """What is wrong with the module file of the running kernel, as a sentence; empty when nothing is."""
        record = self.fails("module_file_intact")
        return sentence(record.detail) if record else ""

    @property
    def package_only(self) -> bool:
        """Only the package manager knows of the driver: there is no module to load."""
        record = self.fails("module_file_intact")
        return bool(record and record.evidence["package_only"])


@dataclass
class Draft:
    """What the parts of the planner add to.

    A stop or caution about a state is that of a check, by `stop_for` and `caution_for`; one about a change has a code
    of its own. `by_policy` turns a policy of fail, warn or ignore into a stop, a caution or nothing.
    """

    vendor: str
    steps: list[Step] = field(default_factory=list)
    stops: list[Problem] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    stale_units: list[str] = field(default_factory=list)

    def step(self, **keys: t.Any) -> None:
        self.steps.append(Step(vendor=self.vendor, **keys))

    def will(self, *step_ids: str) -> bool:
        """Whether one of these steps is planned."""
        return any(step.id in step_ids for step in self.steps)

    def stop(self, code: str, detail: str, next_step: str) -> None:
        self.stops.append(Problem(code, ERROR, detail, next_step, self.vendor))

    def stop_for(self, check: Check, next_step: str = "") -> None:
        """Stop for a check that does not hold; `next_step` where an input of this run can help."""
        self.stop(check.name, sentence(check.detail), next_step or check.next_step)

    def caution(self, code: str, detail: str, next_step: str = "", severity: str = WARNING) -> None:
        self.cautions.append(Problem(code, severity, detail, next_step, self.vendor))

    def caution_for(self, check: Check, next_step: str = "", detail: str = "") -> None:
        """Warn of a check that does not hold. A caution stops nothing, so an error is a warning here."""
        severity = INFO if check.severity == INFO else WARNING
        self.caution(check.name, detail or sentence(check.detail), next_step or check.next_step, severity)

    def by_policy(self, policy: str, code: str, detail: str, next_step: str) -> None:
        if policy == "fail":
            self.stop(code, detail, next_step)
        elif policy == "warn":
            self.caution(code, detail, _ACCEPT.sub("", next_step))

    def by_policy_for(self, policy: str, check: Check, next_step: str = "") -> None:
        """by_policy() for a check that does not hold."""
        if policy == "fail":
            self.stop_for(check, next_step)
        elif policy == "warn":
            self.caution_for(check, _ACCEPT.sub("", next_step))


def families(facts: Data) -> list[str]:
    return sorted({npu["family"] for npu in facts["npus"] if npu["family"] and npu["state"] != "passthrough"})


def wanted_version(wanted: Data, facts: Data) -> str:
    """The version for this host: the named one, else that of its family. One kernel driver serves one family."""
    versions = wanted[ours("driver_versions")]
    for family, version in versions.items():
        if not isinstance(version, str):
            raise NpuError(
                f"{ours('driver_versions')}: {family} is {version!r}, which is not text.",
                "Quote the version: '3.10' is not 3.1.",
            )
    own = families(facts)
    return str(wanted[ours("driver_version")] or (versions.get(own[0]) if len(own) == 1 else "") or "")


def driver_files(wanted: Data, facts: Data) -> list[dict[str, str]]:
    """The files that an installation needs: [{src, sha256, name, signature}]; sha256 is empty where none is given."""

    def get(name: str) -> t.Any:
        return wanted[ours("driver_" + name)]

    if get("source") == "package":
        return [{"src": item["path"], "sha256": item["sha256"]} for item in get("package_files")]
    if get("source") != "runfile" or not get("runfile"):
        return []
    version = wanted_version(wanted, facts)
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


def failed_before(facts: Data, version: str | None, sha256: str) -> Data | None:
    """The note of a validation of this driver that failed on this host."""
    for entry in facts["driver"]["state"]["refused"]:
        if entry.get("version") == version and (
            not entry.get("sha256") or not sha256 or entry["sha256"] == sha256.lower()
        ):
            return dict(entry)
    return None


class Situation:
    """The driver on the host and the one that is wanted, in the words that every decision of driver.py needs."""

    def __init__(self, case: Case) -> None:
        self.case, self.facts, self.driver = case, case.facts, case.driver
        self.source, self.version = self.get("source"), case.version
        self.replace = bool(self.get("replace"))
        self.present = self.driver["version_on_disk"] or self.driver["version_loaded"]
        self.traces = self.driver["installed_via"] != "none" or self.driver["version_loaded"] is not None
        # What an interrupted installer left has no module; it protects nothing.
        self.installed = self.traces and (
            self.present is not None or bool(self.driver.get("loaded")) or self.driver["installed_via"] == "container"
        )
        # DKMS has it, and the kernel that runs came later and without headers.
        built = [row["version"] for row in self.driver.get("dkms") or [] if row["state"] in BUILT]
        self.unbuilt = built[-1] if built and not self.installed else ""
        self.change = self.driver["state"]["change"]
        self.tainted = self.driver["state"]["tainted"]
        # The kernel has no module of it, which is more than that none is known.
        self.stopped = self.driver["loaded"] is False and self.driver["version_loaded"] is None
        # What a former package left to DKMS, and no package manager will remove.
        owned = not self.driver["legacy"] or self.driver.get("package")
        rows = [] if owned else self.driver.get("dkms") or []
        self.orphans = sorted({f"{row['module']}/{row['version']}" for row in rows})
        unfinished = case.fails("package_finished")
        self.broken = sentence(unfinished.detail) if unfinished else ""
        self.damage, self.bare = case.damage, case.package_only
        self.disruption = EVICT if self.driver["loaded"] or self.installed else NONE

    def get(self, name: str) -> t.Any:
        """An input of the driver's role by its short name."""
        return self.case.input("driver_" + name)

    @property
    def fits(self) -> bool:
        return self.installed and (not self.version or same_release(self.present, self.version))

    @property
    def doubled(self) -> bool:
        """The driver that works is not that of the package of former releases, which is also installed."""
        record = self.case.fails("one_driver_installed")
        return bool(record and record.evidence["package_beside"])

    @property
    def repaired(self) -> bool:
        """Whether a damaged or unfinished installation is repaired by installing again."""
        return bool((self.damage or self.broken) and (self.stopped or self.replace) and self.source != "preinstalled")

    @property
    def right(self) -> bool:
        """The driver is the wanted one, and nothing about it is left to do or to undo."""
        settled = self.change is None and not self.tainted and not self.repaired
        return self.fits and settled and self.driver["installed_via"] != "container"

    @property
    def hidden(self) -> list[str]:
        """The looks that failed, without which an absent driver is not known to be absent."""
        probes = self.facts["probes"]
        return [
            f"{name} {probes[name]['detail'] or probes[name]['state']}"
            for name in DRIVER_PROBES
            if probes.get(name, {}).get("state") in ("denied", "timeout", "too_large", "failed")
            and not (name == "module_file" and self.damage)
        ]
