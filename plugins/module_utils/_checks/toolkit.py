# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what lies between driver and container: the CDI specification and the runtime that reads it."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.model import INFO, WARNING, NpuError
from .._cdi.spec import load_spec
from .._cdi.validate import device_names
from .._host.host import Host
from .._runtime.live import ask, docker_containers, is_stopped
from .base import Context, Data, Scope, Verdict, verdict_of
from .ready_files import READY, find_spec, marker_path, read_ready

SCOPE = Scope("toolkit")
FIX = "Fix what is named, then generate the specification."
SITE = "Run `ansible-playbook rebellions.npu.site --tags toolkit`"


def _generate(context: Context) -> str:
    return "%s, or `%s-host cdi` on the host." % (SITE, context.profile.short_name)


def _spec(context: Context) -> str:
    return find_spec(context.profile, context.host, context.cdi.get("path")) or ""


def _state(context: Context) -> str:
    return str(context.cdi.get("state") or "")


def _errors(context: Context) -> list[str]:
    return [
        str(problem.get("detail"))
        for problem in context.cdi.get("problems") or []
        if problem.get("severity") == "error"
    ]


def _refused(context: Context) -> str:
    """Why no specification can be generated."""
    return "; ".join(_errors(context)).rstrip(".")


@SCOPE.check()
def driver_ready_readable(context: Context) -> Verdict | None:
    """The ready file of the driver, if it exists, can be read as KEY=VALUE lines."""
    path = marker_path(context.profile, READY)
    found = read_ready(context.host, path)
    evidence = {"path": path, "state": found.state}
    if found.ok:
        return Verdict(True, "%s can be read" % path, evidence)
    if found.state == "absent":
        return Verdict(
            None,
            "%s is missing: the driver has not passed its proof yet" % path,
            evidence,
            "Run `ansible-playbook rebellions.npu.validate`.",
            INFO,
        )
    return Verdict(
        False if found.state == "failed" else None,
        found.detail,
        evidence,
        "Remove %s, and run `ansible-playbook rebellions.npu.validate`." % path,
    )


@SCOPE.check()
def cdi_spec_present(context: Context) -> Verdict | None:
    """The specification exists in its directory and is not empty."""
    path = _spec(context)
    wanted = str(context.cdi.get("path") or "")
    evidence = {"path": path or wanted, "directory": posixpath.dirname(path or wanted)}
    if not path:
        listing = context.host.listdir(posixpath.dirname(wanted)) if wanted else None
        if listing is not None and listing.state not in ("value", "absent"):
            return Verdict(None, "%s: %s" % (posixpath.dirname(wanted), listing.detail), evidence, "Run as root.")
        detail = "no CDI specification at %s" % (wanted or "any known place")
        if context.cdi.get("action") == "fail":
            return Verdict(False, "%s, and none can be generated: %s" % (detail, _refused(context)), evidence, FIX)
        return Verdict(False, detail, evidence, _generate(context))
    info = context.host.stat(path)
    if not info.ok:
        return Verdict(None, "%s: %s" % (path, info.detail), evidence, "Run as root.")
    evidence["size"] = info.value.size
    if info.value.kind != "file" or not info.value.size:
        return Verdict(
            False,
            "%s is %s" % (path, "empty" if info.value.kind == "file" else "a " + info.value.kind),
            evidence,
            _generate(context),
        )
    return Verdict(True, "%s, %d bytes" % (path, info.value.size), evidence)


@SCOPE.check()
def cdi_spec_valid(context: Context) -> Verdict | None:
    """The specification parses and is one that CDI parsers accept."""
    if not _spec(context):
        return None
    wrong = _errors(context)
    state = _state(context)
    if state == "invalid":
        detail = "; ".join(wrong) or "the specification is invalid"
        return Verdict(False, detail, {"path": _spec(context)}, _generate(context))
    if state not in ("current", "stale"):
        return Verdict(
            None,
            "the specification was not read%s" % (": " + "; ".join(wrong) if wrong else ""),
            {"path": _spec(context)},
            "Run as root.",
        )
    return Verdict(True, "valid", {"path": _spec(context)})


@SCOPE.check()
def cdi_spec_current(context: Context) -> Verdict | None:
    """Generating the specification again would change nothing."""
    if not _spec(context) or _state(context) == "invalid":
        return None
    if _state(context) not in ("current", "stale"):
        return Verdict(None, "not compared with what would be generated", {"state": _state(context)}, "Run as root.")
    stale = _state(context) == "stale"
    if stale and context.cdi.get("action") == "fail":
        return Verdict(
            False,
            "it is stale, and a new one cannot be generated: %s" % _refused(context),
            {"state": "stale"},
            FIX,
        )
    return Verdict(
        not stale,
        "generating it again would change it" if stale else "same as what would be generated",
        {"state": _state(context)},
        _generate(context),
    )


@SCOPE.check()
def cdi_spec_fresh(context: Context) -> Verdict | None:
    """The specification is not older than the driver's ready file and the driver's libraries.

    Older, but proven to be what would be generated now, is a warning: its contents are right and only its time is not.
    """
    path = _spec(context)
    info = context.host.stat(path) if path else None
    if info is None or not info.ok:
        return None
    newer = {}
    names = [marker_path(context.profile, READY)] + list(context.cdi.get("libraries") or [])
    for name in names:
        other = context.host.stat(name)
        if other.ok and other.value.mtime > info.value.mtime:
            newer[name] = round(other.value.mtime - info.value.mtime, 3)
    evidence = {"path": path, "mtime": info.value.mtime, "newer": newer}
    if not newer:
        return Verdict(True, "not older than the driver", evidence)
    detail = "older than %s" % ", ".join(sorted(newer))
    if _state(context) == "current":
        return Verdict(
            False,
            detail + "; its contents are what would be generated",
            evidence,
            "Run `ansible-playbook rebellions.npu.validate`: that renews its time.",
            WARNING,
        )
    return Verdict(False, detail, evidence, _generate(context))


@SCOPE.check()
def cdi_host_paths(context: Context) -> Verdict | None:
    """Every host path that the specification names exists."""
    if not _spec(context) or _state(context) not in ("current", "stale"):
        return None
    missing = list(context.cdi.get("missing_host_paths") or [])
    return Verdict(
        not missing,
        "missing on the host: %s" % ", ".join(missing) if missing else "every path exists",
        {"missing": missing},
        _generate(context),
    )


@SCOPE.check()
def cdi_no_conflict(context: Context) -> Verdict | None:
    """No other specification names our devices: in one directory runtimes refuse both, else the later one wins."""
    path = _spec(context)
    if not path or context.cdi.get("conflicts") is None:
        return None
    lost = [
        entry for entry in context.cdi["conflicts"] if entry.get("kind") == "device" and entry.get("chosen") != path
    ]
    others = sorted({other for entry in lost for other in entry.get("paths") or [] if other != path})
    detail = "%s: defined in %s too" % (", ".join(str(entry.get("name")) for entry in lost), ", ".join(others))
    return Verdict(
        not lost,
        detail if lost else "no device is taken by another specification",
        {"conflicts": lost},
        "Remove %s, and the service that writes it." % ", ".join(others),
    )


def _told(context: Context, good: str, *codes: str) -> Verdict | None:
    """A verdict from the problems of the look at the directories of specifications."""
    seen = context.cdi.get("directories")
    if seen is None:
        return None
    found = [problem for problem in context.cdi.get("problems") or [] if problem.get("code") in codes]
    evidence = {"directories": seen, "files": context.cdi.get("files") or []}
    if found:
        detail = " ".join(str(problem.get("detail")) for problem in found)
        mild = all(problem.get("severity") == WARNING for problem in found)
        return Verdict(False, detail, evidence, str(found[0].get("next_step")), WARNING if mild else "")
    unread = ["%s (%s)" % (one["path"], one["state"]) for one in seen if one["state"] not in ("value", "absent")]
    if unread:
        return Verdict(None, "not read: %s" % ", ".join(unread), evidence, "Run as root.")
    return Verdict(True, good, evidence)


@SCOPE.check()
def cdi_dirs_trusted(context: Context) -> Verdict | None:
    """Only root can put a file into a directory that a runtime reads specifications from, and none is a link."""
    return _told(context, "only root can write the directories", "cdi_dir_writable", "cdi_dir_linked")


@SCOPE.check()
def cdi_files_trusted(context: Context) -> Verdict | None:
    """Only root can write the specifications in these directories, of any kind."""
    return _told(context, "only root can write the specifications", "cdi_file_writable")


@SCOPE.check()
def cdi_hooks_known(context: Context) -> Verdict | None:
    """Specifications of our kind call only hooks that are known and that only root can change."""
    verdict = _told(context, "every hook is known", "cdi_hook_unknown", "cdi_hook_writable")
    unread = [
        str(problem.get("detail"))
        for problem in context.cdi.get("problems") or []
        if problem.get("code") == "cdi_spec_unreadable" and problem.get("severity") == WARNING
    ]
    if verdict is not None and verdict.ok and unread:
        return Verdict(None, " ".join(unread), verdict.evidence, "Correct or remove the file.", WARNING)
    return verdict


@SCOPE.check(WARNING)
def cdi_no_other_file(context: Context) -> Verdict | None:
    """No other file in these directories has our kind."""
    return _told(context, "no other file has our kind", "cdi_other_file")


@SCOPE.check(WARNING)
def cdi_no_plugin_leftover(context: Context) -> Verdict | None:
    """No file of an earlier device plugin keeps the vendor's device plugin from starting."""
    return _told(context, "no device plugin has left a file", "cdi_plugin_leftover")


@SCOPE.check(WARNING)
def cdi_readable_by_all(context: Context) -> Verdict | None:
    """Runtimes that do not run as root can read the directories and our specification."""
    return _told(context, "every user can read them", "cdi_dir_unreadable", "cdi_file_unreadable")


def selected_runtimes(context: Context) -> list[Data]:
    """The runtimes that matter on this host. Two may have one name, such as the system's containerd and that of k3s."""
    names = list(context.runtimes.get("selected") or [])
    return [
        runtime
        for runtime in context.runtimes.get("runtimes") or []
        if runtime.get("selected", runtime.get("name") in names)
    ]


def label(runtime: Data) -> str:
    flavor = runtime.get("flavor")
    return "%s of %s" % (runtime["name"], flavor) if flavor not in (None, "system") else str(runtime["name"])


@SCOPE.check()
def runtime_known(context: Context) -> Verdict | None:
    """It is clear which runtime containers with NPUs use."""
    ambiguous = context.runtimes.get("ambiguous")
    found = [runtime.get("name") for runtime in context.runtimes.get("runtimes") or []]
    evidence = {"selected": list(context.runtimes.get("selected") or []), "found": found}
    if ambiguous:
        return Verdict(
            False, str(ambiguous.get("reason")), evidence, str(ambiguous.get("next_step") or "Name the runtime.")
        )
    absent = [one for one in context.runtimes.get("problems") or [] if one.get("code") == "runtime_not_found"]
    if absent and found and not evidence["selected"]:
        return Verdict(False, str(absent[0].get("detail")), evidence, "Install it, or name a runtime of this host.")
    if not evidence["selected"]:
        policy = context.wanted.get("no_runtime")
        if policy == "ignore":
            return None
        return Verdict(
            False,
            "no container runtime was found",
            evidence,
            "Install one, or name it.",
            WARNING if policy == "warn" else "",
        )
    return Verdict(True, ", ".join(evidence["selected"]), evidence)


@SCOPE.check()
def runtime_cdi_on(context: Context) -> Verdict | None:
    """The configuration on disk turns CDI on in every selected runtime."""
    runtimes = selected_runtimes(context)
    if not runtimes:
        return None
    states = {label(runtime): (runtime.get("cdi") or {}).get("state") for runtime in runtimes}
    bad = ["%s: CDI is %s" % (name, state) for name, state in states.items() if state in ("off", "unsupported")]
    unknown = [
        "CDI of %s" % name
        for name, state in states.items()
        if state not in ("off", "unsupported", "on", "on_by_default")
    ]
    return verdict_of(
        bad,
        unknown,
        "on in %s" % ", ".join(states),
        {"states": states},
        SITE + "; a runtime without CDI needs a newer release.",
    )


def same_directory(host: Host, left: str, right: str) -> bool:
    """Whether two directory names are one place, by name or with links followed."""
    first, second = posixpath.normpath(left), posixpath.normpath(right)
    return first == second or host.resolve(first).get(first) == host.resolve(second).get(second)


def _reads(context: Context, dirs: t.Sequence[str]) -> bool:
    where = posixpath.dirname(_spec(context) or str(context.cdi.get("path") or ""))
    return any(same_directory(context.host, where, directory) for directory in dirs)


@SCOPE.check()
def runtime_reads_dir(context: Context) -> Verdict | None:
    """The specification is in a directory that every selected runtime is configured to read."""
    runtimes = selected_runtimes(context)
    where = posixpath.dirname(_spec(context) or str(context.cdi.get("path") or ""))
    if not runtimes or not where:
        return None
    dirs = {label(runtime): list((runtime.get("cdi") or {}).get("spec_dirs") or []) for runtime in runtimes}
    bad = [
        "%s reads %s, not %s" % (name, ", ".join(listed), where)
        for name, listed in dirs.items()
        if listed and not _reads(context, listed)
    ]
    unknown = ["directories of %s" % name for name, listed in dirs.items() if not listed]
    return verdict_of(
        bad,
        unknown,
        "%s is read" % where,
        {"spec_dirs": dirs},
        SITE + ", or write the specification where the runtime reads.",
    )


def _unit(runtime: Data) -> str:
    return str(runtime.get("restart_unit") or runtime.get("unit") or runtime["name"])


@SCOPE.check()
def runtime_is_fresh(context: Context) -> Verdict | None:
    """No runtime process is older than its configuration: a lost restart."""
    runtimes = [
        runtime for runtime in selected_runtimes(context) if runtime.get("name") != "podman" and not is_stopped(runtime)
    ]
    if not runtimes:
        return None
    stale = {label(runtime): runtime.get("process_stale") for runtime in runtimes}
    bad = ["%s runs with an older configuration" % name for name, value in stale.items() if value]
    unknown = ["age of %s" % name for name, value in stale.items() if value is None]
    units = ", ".join(_unit(runtime) for runtime in runtimes if runtime.get("process_stale"))
    verdict = verdict_of(
        bad,
        unknown,
        "every process is newer than its configuration",
        {"stale": stale},
        "Restart %s." % (units or "the runtime"),
    )
    if verdict.ok is None and all(answer.ok for dummy, answer in _answers(context)):
        return Verdict(True, "age not known; the running process answers for itself", verdict.evidence)
    return verdict


def _answers(context: Context) -> list[tuple[Data, t.Any]]:
    return [(runtime, ask(context.host, runtime)) for runtime in selected_runtimes(context)]


def _device_names(context: Context) -> list[str]:
    """Names (kind=name) in the specification on disk; none when it cannot be read."""
    path = _spec(context)
    text = context.host.read_text(path) if path else None
    try:
        return device_names(load_spec(text.value, path)) if text is not None and text.ok else []
    except NpuError:
        return []


@SCOPE.check()
def runtime_sees_spec(context: Context) -> Verdict | None:
    """The running process reports that CDI is on, that it reads the directory and, if it can, the devices."""
    if not selected_runtimes(context):
        return None
    bad: list[str] = []
    unknown: list[str] = []
    evidence: dict[str, t.Any] = {}
    stopped: list[str] = []
    wrong: list[str] = []
    wanted = _device_names(context)
    for runtime, answer in _answers(context):
        name, before = label(runtime), len(bad) + len(unknown)
        seen = answer.value if answer.ok else answer.to_dict()
        evidence[name] = seen
        if not answer.ok and is_stopped(runtime):
            stopped.append(str(runtime.get("unit") or name))
            unknown.append("%s is stopped (%s is %s)" % (name, stopped[-1], runtime["unit_state"]))
        elif not answer.ok:
            unknown.append("%s gives no answer (%s)" % (name, answer.detail or answer.state))
        elif not seen["enabled"]:
            bad.append("CDI is off in the running %s" % name)
        elif not _reads(context, seen["spec_dirs"]):
            bad.append("the running %s reads %s" % (name, ", ".join(seen["spec_dirs"]) or "no directory"))
        elif not _spec(context):
            bad.append("there is no specification for %s to see" % name)
        elif seen["devices"] is not None:
            lost = [device for device in wanted if device not in seen["devices"]]
            if lost:
                bad.append("the running %s does not have %s" % (name, ", ".join(lost)))
        if len(bad) + len(unknown) > before:
            wrong.append(_unit(runtime))
    if stopped and not bad:
        units = " ".join(stopped)
        step = "Run `systemctl start %s` on the host; `journalctl -u %s` tells why it is stopped." % (units, stopped[0])
        return Verdict(None, "; ".join(unknown), {"runtimes": evidence}, step)
    restart = "`systemctl restart %s`" % " ".join(wrong)
    if bad and not _spec(context):
        step = _generate(context)
    elif bad:
        step = "Run %s on the host. If that does not help, %s." % (restart, SITE[0].lower() + SITE[1:])
    else:
        validate = "`%s-host validate --scope toolkit`" % context.profile.short_name
        step = "Run %s on the host as root. If root gets no answer either, run %s." % (validate, restart)
    return verdict_of(bad, unknown, "seen by %s" % ", ".join(evidence), {"runtimes": evidence}, step)


@SCOPE.check()
def containers_are_back(context: Context) -> Verdict | None:
    """After a restart, every docker container with NPUs that ran before runs again.

    docker 27.5 and older forget some (moby 49989).
    """
    before = [entry for entry in context.wanted.get("containers_before") or [] if entry.get("running")]
    if not before:
        return None
    docker = [runtime for runtime in context.runtimes.get("runtimes") or [] if runtime.get("name") == "docker"]
    where = context.host.resolve(str(docker[0].get("socket"))) if docker and not is_stopped(docker[0]) else None
    answer = (
        docker_containers(context.host.real(where.value), context.profile.cdi_kind)
        if where is not None and where.ok
        else None
    )
    version = docker[0].get("version") if docker else None
    if answer is None or not answer.ok:
        return Verdict(
            None,
            "docker does not list its containers",
            {"before": before, "docker": version},
            "Start docker, and run as root.",
        )
    running = [entry["name"] for entry in answer.value if entry["running"]]
    lost = [entry["name"] for entry in before if entry["name"] not in running]
    detail = (
        "did not come back after the restart of docker %s: %s" % (version, ", ".join(lost))
        if lost
        else "%d containers are back" % len(before)
    )
    return Verdict(
        not lost,
        detail,
        {"before": before, "after": answer.value, "docker": version},
        "docker start %s" % " ".join(lost),
    )
