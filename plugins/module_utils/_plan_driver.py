# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's part of the plan."""

from __future__ import annotations

import re
import typing as t

from ._model import EVICT, INFO, NONE, REBOOT, NpuError
from ._plan_draft import DRIVER_ROLE, Draft, getter, needs_driver
from ._versions import compare, release_numbers, same_release

DRIVER_STEP = "driver.install"
RELOAD_STEP = "driver.reload"
RECOVER_STEP = "driver.recover"
REBOOT_STEP = "driver.reboot"
# Looks without which an absent driver is not known to be absent.
DRIVER_PROBES = ("module_loaded", "module_file", "dkms", "packages", "runfile_stamp", "driver_journal")
# Parameters of an address that let whoever reads them fetch as well: tokens, keys and signatures of signed addresses.
_SECRET_QUERY = re.compile(r"[?&][^=&#]*(?:token|passw|secret|signature|credential|api-?key|sig(?==))", re.I)

Data = t.Mapping[str, t.Any]


def wanted_version(wanted: Data, facts: Data, prefix: str) -> str:
    """The version for this host: the one that is named, else the one of its family, since one kernel driver build serves one family."""
    named = wanted["%s_driver_version" % prefix]
    versions = wanted["%s_driver_versions" % prefix]
    for family, version in versions.items():
        if not isinstance(version, str):
            raise NpuError("%s_driver_versions: %s is %r, which is no text." % (prefix, family, version), "Quote the version: '3.10' is not 3.1.")
    families = sorted({npu["family"] for npu in facts["npus"] if npu["family"] and npu["state"] != "passthrough"})
    return str(named or (versions.get(families[0]) if len(families) == 1 else "") or "")


def driver_files(wanted: Data, facts: Data, prefix: str) -> t.List[t.Dict[str, str]]:
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

    file = {"src": fill(get("runfile")), "sha256": get("runfile_sha256") or get("runfile_digests").get(version) or "", "name": fill(get("runfile_name"))}
    if get("runfile_signature"):
        file["signature"] = fill(get("runfile_signature"))
    return [file]


def _refused(facts: Data, version: str, sha256: str) -> t.Optional[Data]:
    for entry in facts["driver"]["state"]["refused"]:
        if entry.get("version") == version and (not entry.get("sha256") or not sha256 or entry["sha256"] == sha256.lower()):
            return dict(entry)
    return None


class _Situation:
    """What is on the host and what is wanted, in the words that every decision below needs."""

    def __init__(self, wanted: Data, facts: Data, prefix: str) -> None:
        self.get = getter(wanted, prefix + "_driver")
        self.facts, self.driver, self.prefix = facts, facts["driver"], prefix
        self.source, self.version = self.get("source"), wanted_version(wanted, facts, prefix)
        self.present = self.driver["version_on_disk"] or self.driver["version_loaded"]
        self.traces = self.driver["installed_via"] != "none" or self.driver["version_loaded"] is not None
        # What an installer left that broke off has no module; it protects nothing.
        self.installed = self.traces and (self.present is not None or bool(self.driver.get("loaded")) or self.driver["installed_via"] == "container")
        # DKMS has it, and the kernel that runs came later and without headers.
        built = [row["version"] for row in self.driver.get("dkms") or [] if row["state"] in ("built", "installed")]
        self.unbuilt = built[-1] if built and not self.installed else ""
        self.change = self.driver["state"]["change"]
        self.tainted = self.driver["state"]["tainted"]
        self.disruption = EVICT if self.driver["loaded"] or self.installed else NONE

    @property
    def fits(self) -> bool:
        return self.installed and (not self.version or same_release(self.present, self.version))

    @property
    def doubled(self) -> bool:
        """The driver that works is not that of the package of former releases, which is here as well."""
        package = self.driver.get("package") or {}
        number = str(package.get("version", "")).partition(":")[2] or package.get("version")
        return bool(self.driver["legacy"] and self.present and number and compare(release_numbers(self.present), release_numbers(number)) > 0)

    @property
    def hidden(self) -> t.List[str]:
        probes = self.facts["probes"]
        return [
            "%s %s" % (name, probes[name]["detail"] or probes[name]["state"])
            for name in DRIVER_PROBES
            if probes.get(name, {}).get("state") in ("denied", "timeout", "failed")
        ]


def _preinstalled(draft: Draft, now: _Situation) -> None:
    if now.unbuilt:
        draft.stop(
            "driver_not_built",
            "Driver %s has no module for the running kernel, and %s_driver_source is preinstalled." % (now.unbuilt, now.prefix),
            "Install the headers of that kernel and run dkms autoinstall, boot a kernel that has the module, or set %s_driver_source to package or runfile."
            % now.prefix,
        )
    elif not now.installed:
        draft.stop(
            "driver_missing",
            "%s and %s_driver_source is preinstalled."
            % ("An installation of the driver has broken off" if now.traces else "No driver is installed", now.prefix),
            "Install the driver, or set %s_driver_source to package or runfile." % now.prefix,
        )
    elif now.version and not same_release(now.present, now.version):
        draft.stop(
            "driver_version_differs",
            "Driver %s is installed, %s is wanted, and %s_driver_source is preinstalled." % (now.present, now.version, now.prefix),
            "Set %s_driver_source to package or runfile, or %s_driver_version to %s." % (now.prefix, now.prefix, now.present),
        )


def _container(draft: Draft, now: _Situation) -> None:
    if now.installed and now.driver["installed_via"] != "container":
        draft.stop(
            "driver_on_host",
            "Driver %s is installed on the host, and %s_driver_source is container." % (now.present or "of unknown version", now.prefix),
            "Remove it with the playbook remove, or set %s_driver_source: preinstalled." % now.prefix,
        )
    elif not now.installed:
        draft.caution("driver_from_cluster", "The driver comes with the driver container of the cluster.", severity=INFO)


def _recover(draft: Draft, now: _Situation, wanted: str) -> None:
    draft.step(
        id=RECOVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now="interrupted at %s" % (now.change["step"] or "an unknown step"),
        wanted=wanted,
        reason="A change of the driver was interrupted.",
        disruption=now.disruption,
    )


def _reload(draft: Draft, now: _Situation) -> bool:
    """Plan to load what is on disk; True when that is a step."""
    driver = now.driver
    if not driver["version_loaded"] or not driver["version_on_disk"] or same_release(driver["version_loaded"], driver["version_on_disk"]):
        return False
    detail = "Driver %s is on disk and %s is loaded." % (driver["version_on_disk"], driver["version_loaded"])
    if not now.get("replace") or now.source == "preinstalled":
        draft.caution("driver_reload_needed", detail, "Reboot the host, or unload and load the module when no process uses an NPU.")
        return False
    draft.step(
        id=RELOAD_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=driver["version_loaded"],
        wanted=driver["version_on_disk"],
        reason=detail,
        disruption=EVICT,
    )
    return True


def _may_replace(draft: Draft, now: _Situation) -> bool:
    """Whether a driver may be put in place of what is there, which may be nothing, something else, or not known."""
    if now.present is None and now.hidden:
        draft.stop(
            "driver_unknown",
            "Whether a driver is installed could not be found out: %s." % "; ".join(now.hidden),
            "Give the user of the connection root by become, and run again.",
        )
        return False
    if now.driver["installed_via"] == "container":
        draft.stop(
            "driver_from_container",
            "A driver container owns the driver below %s." % now.driver["root"],
            "Remove the driver container first, or set %s_driver_source: container." % now.prefix,
        )
        return False
    if now.installed and not now.change and not now.get("replace"):
        draft.stop(
            "driver_replace_not_allowed",
            "Driver %s is installed and %s is wanted." % (now.present, now.version),
            "Set %s_driver_replace: true to let this run replace it, or %s_driver_version: '%s' to keep it." % (now.prefix, now.prefix, now.present),
        )
        return False
    return True


def _source_is_given(draft: Draft, now: _Situation, files: t.Sequence[Data]) -> bool:
    if now.source == "runfile" and not files:
        draft.stop(
            "driver_source_missing",
            "%s_driver_source is runfile, and %s_driver_runfile is not set." % (now.prefix, now.prefix),
            "Give the installer from the vendor's support and its SHA-256.",
        )
        return False
    if now.source == "package" and not files and not now.get("package_names"):
        draft.stop(
            "driver_source_missing",
            "%s_driver_source is package, and neither %s_driver_package_names nor %s_driver_package_files is set." % ((now.prefix,) * 3),
            "Name the driver packages, or give their files with SHA-256.",
        )
        return False
    addresses = [file["src"] for file in files] + [file.get("signature", "") for file in files] + [str(now.get("repository").get("url", ""))]
    if any("@" in address.partition("://")[2].partition("/")[0] or "://" in address and _SECRET_QUERY.search(address) for address in addresses):
        draft.stop(
            "driver_source_with_password",
            "The address of the driver holds a name or a password, which would reach logs.",
            "Put them into ~/.netrc of the controller; for a repository, into auth.conf.d of the host. A signed address is fetched to a path beforehand.",
        )
        return False
    bare = [file["src"] for file in files if not file["sha256"]]
    if bare:
        draft.stop(
            "driver_digest_missing",
            "The SHA-256 of %s is not set." % ", ".join(bare),
            "Set %s_driver_runfile_sha256, or give %s_driver_runfile_digests the version %s." % (now.prefix, now.prefix, now.version or "that is wanted"),
        )
        return False
    return True


def plan_driver(draft: Draft, wanted: Data, facts: Data, prefix: str) -> bool:
    """Plan the driver; True when this run will install, load or put back one."""
    if not needs_driver(facts):
        if facts["npus"]:
            draft.caution("no_driver_needed", "Every NPU is given to virtual machines, so no driver is installed.", severity=INFO)
        return False
    now = _Situation(wanted, facts, prefix)
    if now.get("versions") and not now.version:
        draft.stop(
            "driver_version_of_family_missing",
            "%s_driver_versions has no version for the family of this host's NPUs: %s."
            % (prefix, ", ".join(sorted({str(npu["family"] or npu["product"] or "unknown") for npu in facts["npus"]}))),
            "Add it; the names are as in the facts. The map has %s." % ", ".join(sorted(now.get("versions"))),
        )
        return False
    if now.get("state") == "absent":
        draft.stop(
            "driver_not_wanted",
            "%s_driver_state is absent, so nothing can be made ready on this host." % prefix,
            "Run the playbook remove, or set %s_driver_state: present." % prefix,
        )
        return False
    if now.source == "container":
        _container(draft, now)
        return False
    if now.doubled and (now.source == "preinstalled" or now.fits and not now.get("replace")):
        draft.caution(
            "legacy_package_left",
            "Driver %s is here, and so is the package %s %s." % (now.present, now.driver["package"]["name"], now.driver["package"]["version"]),
            "Let this run take the package away and install again with %s_driver_replace: true and a source, or do so by hand." % prefix,
        )
    if now.source == "preinstalled":
        if now.change:
            _recover(draft, now, "as before the change")
            return True
        _preinstalled(draft, now)
        _reload(draft, now)
        return False
    mixed = now.doubled and now.get("replace")
    if now.change is None and now.fits and not now.tainted and not mixed and now.driver["installed_via"] != "container":
        return _reload(draft, now)
    if now.change and now.fits and not now.change["touched"]:
        # Nothing had been replaced, and what is on the disk is what is wanted: only what was stopped is owed.
        _recover(draft, now, now.present)
        return True
    files = driver_files(wanted, facts, prefix)
    refused = _refused(facts, now.version, files[0]["sha256"] if len(files) == 1 else "")
    if refused and not now.get("retry") and not (now.fits and now.change is None):
        detail = "Driver %s failed its validation on this host at %s: %s" % (now.version, refused.get("time"), str(refused.get("reason"))[:300])
        step = "Want another version, or set %s_driver_retry: true to try this one again." % prefix
        if now.change:
            # The host is put right first; the next run is told.
            _recover(draft, now, "as before the change")
            draft.caution("driver_failed_before", detail, step)
            return True
        draft.stop("driver_failed_before", detail, step)
        return False
    if not _may_replace(draft, now) or not _source_is_given(draft, now, files):
        return False
    if now.change:
        reason = "A change of the driver was interrupted at %s." % (now.change["step"] or "an unknown step")
    elif now.tainted:
        reason = "The last change failed and so did the way back."
    elif now.fits and now.doubled:
        reason = "The package of former releases is here as well, and goes."
    elif now.driver["legacy"] and now.version and now.source == "runfile":
        reason = "Another version is wanted; the package of former releases goes first."
    elif now.installed:
        reason = "Another version is wanted."
    elif now.unbuilt:
        reason = "Driver %s has no module for the running kernel." % now.unbuilt
    else:
        reason = "An installation has broken off." if now.traces else "No driver is installed."
    draft.step(
        id=DRIVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=now.present,
        wanted=now.version or "newest of the source",
        reason=reason,
        disruption=now.disruption,
    )
    if now.get("reboot") == "always":
        draft.step(
            id=REBOOT_STEP, role=DRIVER_ROLE, component="host", now="running", wanted="rebooted", reason="Asked for after each change of the driver.",
            disruption=REBOOT, after=DRIVER_STEP,
        )  # fmt: skip
    return True
