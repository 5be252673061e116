# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs of one host: its observation, what else it shows, and why it was not reached. Pure.

The checks judge; here their records only become signs, and a few are told apart by the facts beside them.
"""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.live import is_stopped

from .._answers.passed import passed_names
from .._objects.names import INPUT, SHORT
from .signs import DOUBTFUL, UNKNOWN, WRONG, Sign, sign, sign_of_error

Data = t.Mapping[str, t.Any]
OBSERVATION, SYMPTOMS, CONNECTION = "the observation", "the look at the machine", "the connection"
# Seconds that clocks may differ: a token or certificate that is just issued is then refused.
SKEW = 60.0
# What a file system has to have left: so many bytes, on a small one this share; and this share of its inodes.
FREE_BYTES, FREE_SHARE = 64 * 1024 * 1024, 0.02
# (words of a failure, code), the first that fits.
_NOT_REACHED = (
    (r"Could not resolve hostname|\[Errno -\d|getaddrinfo|nodename nor servname", "reach:name"),
    (r"Permission denied \(|Authentication failed|Invalid/incorrect password|Too many authentication", "reach:login"),
    (r"Host key verification failed|REMOTE HOST IDENTIFICATION", "reach:host_key"),
    # sudo says so too.
    (r"No space left on device", "reach:space"),
    (r"Read-only file system", "reach:read_only"),
    (r"become does not work|privilege escalation|(?<![\w.-])sudo(?![\w-])|sudoers|become password", "reach:become"),
    (
        r"its Python does not run|older than 3\.8|[Nn]o python interpreter|interpreter .*not found|python3?: not found",
        "reach:python",
    ),
    (r"cannot be reached|UNREACHABLE|timed out|refused|No route to host|unreachable", "reach:connection"),
)


def signs_of_failure(said: str) -> list[Sign]:
    """The sign of a host that gave no observation."""
    code = next((code for words, code in _NOT_REACHED if re.search(words, said)), "reach:other")
    return [sign_of_error(code, CONNECTION, said)]


def signs_of_host(facts: Data, symptoms: Data) -> list[Sign]:
    """The signs of an observed host: `facts` are ansible_facts, `symptoms` the answer of the second look."""
    npus, runtimes = facts.get(SHORT) or {}, facts.get(INPUT + "runtimes") or {}
    record = facts.get(INPUT + "observed") or {}
    found = [made for check in record.get("checks") or () for made in _of_check(check)]
    codes = {one.code for one in found if one.level == WRONG}
    found += _of_driver(npus, {one.code for one in found if one.level != UNKNOWN})
    if "ro" in ((npus.get("mount_options") or {}).get("/var") or ()):
        # A system that comes as an image has a writable one too.
        found.append(sign("machine:read_only", "fact mount_options", "/var is mounted read-only"))
    found += _of_runtimes(runtimes, codes)
    found += _of_ready_files(record, codes)
    return found + _of_symptoms(npus, runtimes, symptoms, codes)


def _of_check(check: Data) -> list[Sign]:
    """A check of a cluster that nobody has asked, and what is only told, are no signs."""
    if check["ok"] or check["severity"] == "info" or (check["name"] == "node_allocatable" and check["ok"] is None):
        return []
    level = UNKNOWN if check["ok"] is None else WRONG if check["severity"] == "error" else DOUBTFUL
    return [
        sign("check:" + check["name"], "check " + check["name"], check["detail"], level, check.get("next_step") or "")
    ]


def _of_driver(npus: Data, codes: set[str]) -> list[Sign]:
    """Why the driver is not loaded, and what stands in the way of another one."""
    driver, kernel, found = npus.get("driver") or {}, npus.get("kernel") or {}, []
    running = kernel.get("running")
    others = sorted(name for name, has in (kernel.get("modules") or {}).items() if has and name != running)
    if "check:driver_loaded" in codes:
        if npus.get("in_container") and kernel.get("module_tree") is False:
            said = "the host is a container, and has no modules of its kernel %s" % running
            found.append(sign("driver:container", "fact kernel.module_tree", said))
        elif not (kernel.get("modules") or {}).get(running) and (others or _is_whole(driver, codes)):
            said = "the running kernel %s has no module of the driver; %s" % (
                running,
                "those that have one: " + ", ".join(others) if others else "the driver is installed",
            )
            found.append(sign("driver:no_module", "fact kernel.modules", said))
    if codes & {"check:driver_is_wanted", "check:driver_installed", "check:driver_on_disk_is_loaded"}:
        for pin in npus.get("pins") or ():
            if any(_alike(pin["package"], pattern) for pattern in PROFILE.package_patterns):
                said = "%s is kept as it is by %s (%s)" % (pin["package"], pin["by"], pin["path"])
                found.append(sign("driver:held", "fact pins", said, package=pin["package"]))
    return found


def _is_whole(driver: Data, codes: set[str]) -> bool:
    """Whether a driver was installed to its end, by its packages or an installer."""
    return driver.get("installed_via") in ("deb", "rpm", "runfile", "dkms") and "check:package_finished" not in codes


def _alike(one: str, other: str) -> bool:
    """Whether a name and a pattern, or two patterns, mean the same package."""
    return fnmatch.fnmatchcase(one, other) or fnmatch.fnmatchcase(other, one)


def _of_runtimes(runtimes: Data, codes: set[str]) -> list[Sign]:
    found = []
    for one in runtimes.get("runtimes") or ():
        if not one.get("selected"):
            continue
        unit = one.get("restart_unit") or one.get("unit") or one["name"]
        if is_stopped(one):
            said = "%s is stopped (%s is %s)" % (one["name"], unit, one["unit_state"])
            found.append(sign("runtime:stopped", "fact runtimes", said, unit=unit))
        files = one.get("config_files") or ()
        if "check:runtime_cdi_on" in codes and one["cdi"]["state"] == "off" and len(files) > 1:
            said = "CDI of %s is off by %d files, read in this order: %s" % (one["name"], len(files), ", ".join(files))
            found.append(sign("runtime:overridden", "fact runtimes", said, DOUBTFUL, unit=unit))
    return found


def _of_ready_files(record: Data, codes: set[str]) -> list[Sign]:
    """The ready files of a host that has passed and lacks them: whatever waits for them waits for ever."""
    markers = record.get("markers") or {}
    passed = passed_names(record)
    # Nobody has asked the API server for the host.
    wrong = {*(record.get("failed") or ()), *(record.get("unknown") or ())} - {"node_allocatable"}
    if markers.get("current", True) or wrong or not passed.get("toolkit"):
        return []
    there = ", ".join(markers.get("present") or ()) or "none"
    said = "the host passes its checks, and its ready files are not as they should be; present: %s" % there
    return [sign("ready:missing", OBSERVATION, said)]


def _of_symptoms(npus: Data, runtimes: Data, symptoms: Data, codes: set[str]) -> list[Sign]:
    found = [made for one in symptoms.get("disk") or () for made in _of_space(one)]
    if symptoms.get("failure"):
        # Clock, space and the rest are then not known.
        found.append(sign_of_error("machine:unseen", SYMPTOMS, symptoms["failure"].get("msg"), UNKNOWN))
    for path in symptoms.get("hung") or ():
        said = "the file system of %s does not answer" % path
        found.append(sign("machine:hung", SYMPTOMS, said, file=path))
    ahead = symptoms.get("skew") or 0.0
    if abs(ahead) > SKEW:
        said = "the clock of the host is %d s %s that of the controller"
        found.append(sign("machine:clock", SYMPTOMS, said % (abs(ahead), "ahead of" if ahead > 0 else "behind")))
    for one in symptoms.get("proxies") or ():
        if one["state"] != "value":
            said = "the proxy %s of %s does not answer: %s" % (one["address"], one["unit"], one["detail"])
            found.append(sign("machine:proxy", SYMPTOMS, said, address=one["address"], unit=one["unit"]))
    for name, one in (symptoms.get("names") or {}).items():
        if one["state"] != "value":
            # A proxy or a mirror may know what the host does not; a pod without its image says more.
            level = DOUBTFUL if one["state"] in ("absent", "timeout") else UNKNOWN
            said = "%s is not resolved: %s" % (name, one["detail"])
            found.append(sign("machine:name", SYMPTOMS, said, level, name=name))
    kubelet = (runtimes.get("kubelet") or {}).get("unit")
    state = (symptoms.get("units") or {}).get(kubelet)
    if state is not None and state not in ("active", "activating", "reloading", ""):
        found.append(sign("machine:kubelet", SYMPTOMS, "%s is %s" % (kubelet, state), unit=str(kubelet)))
    if symptoms.get("locked_by"):
        said = "the package manager is in use by %s" % ", ".join(symptoms["locked_by"])
        found.append(sign("machine:package_manager", SYMPTOMS, said, DOUBTFUL))
    used = [*(symptoms.get("used_by") or ()), *_contexts(npus)]
    if used and codes & {"check:driver_on_disk_is_loaded", "check:driver_is_wanted"}:
        said = "the NPUs are in use by %s, so the driver cannot be reloaded" % ", ".join(dict.fromkeys(used))
        found.append(sign("driver:in_use", SYMPTOMS, said))
    return found


def _contexts(npus: Data) -> list[str]:
    contexts = (npus.get("smi") or {}).get("contexts") or ()
    return ["%s (pid %s)" % (one["process"], one["pid"]) for one in contexts if one.get("pid")]


def _of_space(one: Data) -> list[Sign]:
    path, found = one["path"], []
    if one["read_only"] or not one["size"]:
        return []
    if one["free"] < min(FREE_BYTES, one["size"] * FREE_SHARE):
        said = "%s has %d MiB left of %d MiB" % (path, one["free"] >> 20, one["size"] >> 20)
        found.append(sign("machine:disk", SYMPTOMS, said, path=path))
    if one["inodes"] and one["inodes_free"] < one["inodes"] * FREE_SHARE:
        said = "%s has %d inodes left of %d" % (path, one["inodes_free"], one["inodes"])
        found.append(sign("machine:disk", SYMPTOMS, said, path=path))
    return found
