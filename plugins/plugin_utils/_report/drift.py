# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has changed on a host since the last report, and who has done it, as far as the host tells. Pure."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.distros import DISTROS

from .._answers.answer import PREFIX
from .._nodes.overview import is_known
from .._plan.words import count, hosts
from .._text.screen import BAD, GOOD, PLAIN, TITLE, UNSURE, Line
from .document import (
    BY_PACKAGES,
    BY_PERSON,
    BY_RUN,
    CHANGED,
    FAILED,
    LEFT_OVER,
    MISSING,
    OTHER,
    UNKNOWN,
    WARNING,
    ClusterPart,
    Document,
    Drift,
    Host,
    NotKnown,
    ObjectDrift,
)
from .known import STEP
from .look import OBSERVED, RUNTIMES
from .markdown import by_words, lost_text, object_text
from .words import text, when

AS_WANTED, PASSED = "as wanted", "passed"
READY = "ready files"
# What of a host is compared. An architecture never changes.
COMPARED = ("os", "kernel", "driver", "firmware", "runtime")
# Packages that bring it.
PACKAGES = {
    "os": ("base-files", "system-release*", "redhat-release*", "*linux-release*", "rocky-release*", "centos-*release*"),
    "kernel": ("linux-image*", "linux-modules*", "kernel", "kernel-*"),
    "runtime": ("containerd*", "docker*", "moby*", "cri-o*", "podman*", "runc*", "crun*"),
}
# These write the configuration of their containerd at each start, of files beside it.
GENERATED = tuple(one.name for one in DISTROS if not one.plain)
TEMPLATES = ("config.toml.tmpl", "config-v3.toml.tmpl", "containerd-template.toml")
# More hosts of one kind of drift, and kinds, are counted.
MOST = 40
# What is not known of a host is counted from here on.
LOST = 6
LOOK = "Next: Look on the host who was logged in then."
ASK = "Run `ansible-playbook rebellions.npu.doctor` over them."

Data = t.Mapping[str, t.Any]


def changed(now: Host, before: Host) -> list[Drift]:
    """What is another than when the host was last seen, by nobody known yet. Hosts that were not seen have none."""
    return compared(now, before)[0]


def compared(now: Host, before: Host) -> tuple[list[Drift], list[NotKnown]]:
    """(the same, what was known then and is not now): what is not known has not changed."""
    if not now["pool"] or not before["pool"]:
        return [], []
    # What was not known last either, as it was known before.
    kept = {one["what"]: one["was"] for one in before["not_known"]}
    pairs = [(what, kept.get(what, before["versions"][what]), now["versions"][what]) for what in COMPARED]
    pairs = [pair for pair in pairs if is_known(pair[0], pair[1])]
    found = [_entry(what, was, told) for what, was, told in pairs if told != was and is_known(what, told)]
    lost = [_lost(what, was, "") for what, was, told in pairs if not is_known(what, told)]
    npus = kept.get("NPUs") if before["npus"] is None else str(before["npus"])
    if npus is not None and now["npus"] is None:
        lost.append(_lost("NPUs", npus, ""))
    elif npus is not None and str(now["npus"]) != npus:
        found.append(_entry("NPUs", npus, str(now["npus"])))
    steps = _planned(now, before, {one["what"] for one in [*found, *lost]}, kept)
    found += [one for one in steps if UNKNOWN not in one["is"]]
    lost += [_lost(one["what"], one["was"], one["is"]) for one in steps if UNKNOWN in one["is"]]
    if not found:
        # What no step repairs and no version tells is told by its check alone.
        passed = {*before["checks"]["passed"], *(what for what, was in kept.items() if was == PASSED)}
        checks = [check for check in now["checks"]["others"] if check["id"] in passed]
        found = [
            _entry(check["id"], PASSED, f"{check['result']}: {check['detail']}")
            for check in checks
            if check["result"] in (FAILED, WARNING)
        ]
        lost += [_lost(check["id"], PASSED, check["detail"]) for check in checks if check["result"] == UNKNOWN]
    return found, lost


def _planned(now: Host, before: Host, known: t.Collection[str], kept: t.Collection[str]) -> list[Drift]:
    """Steps that the plan did not have: what was as wanted is not any more."""
    if not now["planned"]:
        return []
    # Another version that is wanted is a change of the inventory.
    chosen = {"driver", "firmware"} if now["wanted"] != before["wanted"] else set()
    # What the last run was to do is as wanted since it has done it.
    done = before["changes"] and before["state"] == CHANGED and not before["reason"]
    old = {step["text"].partition(": ")[0] for step in before["planned"] or () if not done}.difference(kept)
    found = []
    for step in now["planned"]:
        what, _colon, change = step["text"].partition(": ")
        if what not in {*known, *chosen, *old}:
            found.append(_entry(what, AS_WANTED, change.partition(" -> ")[0]))
    # Ready files only follow what else has changed.
    return [one for one in found if one["what"] != READY] or ([] if known else found)


def _entry(what: str, was: str, now: str) -> Drift:
    return {"what": what, "was": text(was), "is": text(now), "by": UNKNOWN, "at": "", "evidence": ""}


def _lost(what: str, was: str, why: str) -> NotKnown:
    return {"what": what, "was": text(was), "why": text(why)}


def explained(found: t.Sequence[Drift], told: Data, stamp: Data, driver_packages: t.Sequence[str]) -> list[Drift]:
    """The same with who has done it. `told` is an answer of the module that reads the host's logs, maybe empty.

    `stamp` is our own note of the last driver change there, of this time span or empty; `driver_packages` are the
    names of the driver's packages.
    """
    return [_explained(one, told, stamp, driver_packages) for one in found]


def _explained(one: Drift, told: Data, stamp: Data, driver_packages: t.Sequence[str]) -> Drift:
    # `containerd of k3s (/etc/x)` is containerd.
    what = one["what"].partition(" (")[0].partition(" of ")[0]
    if stamp and what in ("driver", "firmware"):
        who = str(stamp.get("by") or "another controller")
        return {
            **one,
            "by": BY_RUN,
            "at": _at(stamp.get("time")),
            "evidence": text(f"note of a driver change by {who}"),
        }
    # The check driver/driver_loaded looks at the driver.
    scope = what.partition("/")[0]
    wanted = PACKAGES.get(what) or _runtime(what) or (tuple(driver_packages) if scope in ("driver", "firmware") else ())
    for entry in reversed(told.get("packages") or []):
        names = [name for name in entry["packages"] if _brings(name, wanted)]
        if names:
            who = f", by {entry['by']}" if entry.get("by") else ""
            evidence = f"{entry['log']}: {entry.get('command') or ', '.join(names[:3])}{who}"
            return {**one, "by": BY_PACKAGES, "at": when(entry["time"]), "evidence": text(evidence)}
    written = next((entry for entry in reversed(told.get("files") or []) if _belongs(entry["path"], what)), None)
    if told and "packages" not in told:
        return {**one, "evidence": text("not known who, as the logs of the host could not be read. " + LOOK)}
    if told.get("unread"):
        # What it has would tell whether a package manager did it.
        file = f"{written['path']} was written; " if written else ""
        left = "; ".join(f"{entry['path']} could not be read ({entry['reason']})" for entry in told["unread"][:2])
        evidence = f"{file}not known who, as {left}. {LOOK}"
        return {**one, "at": when(written["time"]) if written else "", "evidence": text(evidence)}
    if written:
        evidence = f"{written['path']} was written, its owner is {written['owner']}; no package manager did that"
        return {**one, "by": BY_PERSON, "at": when(written["time"]), "evidence": text(evidence)}
    return {**one, "evidence": "neither a note of ours, a log of packages, nor a file tells" if told else ""}


def _brings(name: str, wanted: t.Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, one) for one in wanted)


def _runtime(what: str) -> tuple[str, ...]:
    return PACKAGES["runtime"] if what in ("containerd", "docker", "cri-o", "crio", "podman") else ()


# Where the files of a component lie, for one that no package has brought.
_PLACES = (
    (re.compile("containerd|docker|crio|cri-o|podman|runtime|k3s|rke2|microk8s|k0s"), re.compile("/(etc|var/lib)/")),
    (re.compile("cdi|spec"), re.compile("/cdi/")),
    (re.compile("driver|firmware"), re.compile("/lib/modules/|/usr/src/")),
    (re.compile("ready files|markers|validat"), re.compile("/run/")),
)


def _belongs(path: str, what: str) -> bool:
    """Whether to write the file changes a component; that of a configuration brings no other version of a runtime."""
    return what != "runtime" and any(kind.search(what) and place.search(path) for kind, place in _PLACES)


def _at(stamp: t.Any) -> str:
    return str(stamp) if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(stamp or "")) else ""


# What an object is that a run would bring into this state.
OBJECTS = {"created": MISSING, "changed": OTHER, "deleted": LEFT_OVER}


def of_clusters(parts: t.Sequence[ClusterPart], before: t.Mapping[str, t.Collection[str]]) -> list[ClusterPart]:
    """The clusters with what is not as applied any more; `before` is of last_clusters(), and has those asked before."""
    return [{**one, "drift": _objects(one, before[one["name"]]) if one["name"] in before else []} for one in parts]


def _objects(one: ClusterPart, before: t.Collection[str]) -> list[ObjectDrift]:
    return [
        {"object": item["object"], "is": OBJECTS[item["action"]]}
        for item in one["objects"]
        if item["action"] in OBJECTS and item["object"] not in before
    ]


def screen(document: Document, since: str, unknown: t.Sequence[str]) -> list[Line]:
    """The lines for people. `unknown` are hosts without an earlier plan; `since` is empty where there is none."""
    drifted = {one["name"]: one["drift"] for one in document["hosts"] if one["drift"]}
    lost = {one["name"]: one["not_known"] for one in document["hosts"] if one["not_known"]}
    pending = [one["name"] for one in document["hosts"] if one["planned"] and not one["drift"]]
    unseen = [one["name"] for one in document["hosts"] if not one["pool"]]
    total = len(document["hosts"])
    if not since:
        head = Line("No earlier report with a plan to compare with. This one is the first.", UNSURE)
    elif drifted:
        head = Line(f"Drift on {len(drifted)} of {count(total, 'host')} since {since}", BAD)
    else:
        head = Line(f"No drift on {count(total - len({*unseen, *unknown, *lost}), 'host')} since {since}", GOOD)
    groups: dict[tuple[tuple[str, str, str, str], ...], list[str]] = {}
    for name, found in drifted.items():
        groups.setdefault(tuple((one["what"], one["was"], one["is"], by_words(one)) for one in found), []).append(name)
    lines = [head]
    for rows, names in list(groups.items())[:MOST]:
        lines.append(Line(f"{hosts(names)}:", TITLE))
        for what, was, now, who in rows:
            lines += [Line(f"  {what}: {was} -> {now}", BAD), Line(f"    {who}", PLAIN)]
    for part in document["clusters"]:
        told = [object_text(one) for one in part["drift"]]
        lines += [Line(f"Cluster {part['name']} has drifted:", TITLE)] if told else []
        lines += [Line(f"  {text}", BAD) for text in told[:MOST]]
        lines += [Line(f"  and {len(told) - MOST} more", UNSURE)] if len(told) > MOST else []
    for part in document["clusters"]:
        lines += [Line(f"Cluster {part['name']}: {error}", UNSURE) for error in part["errors"][:3]]
    left = [name for _rows, names in list(groups.items())[MOST:] for name in names]
    if left:
        lines.append(Line(f"and {count(len(left), 'more host')} with other drift: {hosts(left)}", UNSURE))
    lines += _unsure(lost)
    if pending:
        # Nobody knows what it would have changed on a host without an earlier plan.
        told_before = " as before" if since and not set(pending) & set(unknown) else ""
        would = f"A run would change {count(len(pending), 'host')}{told_before}: {hosts(pending)}."
        lines.append(Line(f"{would} Next: look at `ansible-playbook rebellions.npu.plan`.", UNSURE))
    if since and unknown:
        lines.append(Line(f"Planned for the first time: {hosts(unknown)}", PLAIN))
    if unseen:
        lines.append(Line(f"Not seen now: {hosts(unseen)}", BAD))
    return lines


def _unsure(lost: t.Mapping[str, t.Sequence[NotKnown]]) -> list[Line]:
    """What is not known any more of which hosts: no drift."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, found in lost.items():
        groups.setdefault(tuple(lost_text(one) for one in found), []).append(name)
    lines = []
    for told, names in list(groups.items())[:MOST]:
        more = [f"and {len(told) - LOST} more"] if len(told) > LOST else []
        lines.append(Line(f"Not known of {hosts(names)} now: {', '.join([*told[:LOST], *more])}", UNSURE))
    return [*lines, Line(f"Next: {ASK}", UNSURE)] if lines else []


def of_report(document: Document) -> Line:
    """How many hosts are in which state, in a line."""
    states = ", ".join(f"{number} {state}" for state, number in document["summary"]["states"].items() if number)
    bad = any(document["summary"]["states"][state] for state in (FAILED, "unreachable"))
    return Line(f"{count(document['summary']['hosts'], 'host')}: {states or 'none'}", BAD if bad else PLAIN)


def not_known(lost: t.Sequence[str]) -> list[Line]:
    """Which hosts a report knows nothing of."""
    return [Line(f"Nothing is known of {hosts(lost)}. Next: {STEP}", UNSURE)] if lost else []


def paths_of(facts: Data) -> list[str]:
    """The files of a host whose writer is asked for when it has drifted, by its facts."""
    own, observed = facts.get(PREFIX) or {}, facts.get(OBSERVED) or {}
    driver, runtimes = own.get("driver") or {}, (facts.get(RUNTIMES) or {}).get("runtimes") or ()
    found = [driver.get("module_path"), (observed.get("cdi") or {}).get("path")]
    found += [path for one in runtimes for path in _written_by_people(one)]
    return [path for path in dict.fromkeys(found) if isinstance(path, str) and path]


def _written_by_people(runtime: Data) -> list[str]:
    """The files of a runtime that it does not write itself."""
    files, own = list(runtime.get("config_files") or ()), str(runtime.get("main_config") or "")
    if runtime.get("flavor") not in GENERATED or not own:
        return files
    beside = [posixpath.join(posixpath.dirname(own), name) for name in TEMPLATES]
    return [*(path for path in files if path != own), *beside]


def packages_of(driver: Data) -> list[str]:
    """Names and patterns of the packages that bring the driver of a host, or could."""
    named = [one.get("name") if isinstance(one, t.Mapping) else one for one in driver.get("packages") or ()]
    return [*dict.fromkeys([*(str(name) for name in named if name), *PROFILE.package_patterns])]


def noted(driver: Data, since: str) -> Data:
    """Our own note of a driver change on the host after `since`: its time and who; empty for none."""
    found = (driver.get("stamp") or {}).get("installed") or {}
    # As texts they sort like the moments.
    return found if since and _at(found.get("time")) > since else {}
