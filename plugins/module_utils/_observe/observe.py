# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host: facts, runtimes, CDI comparison, checks and ready files, read-only and in one process."""

from __future__ import annotations

import sys
import typing as t

from .._base.model import CheckData, NpuError, Problem
from .._base.records import dataclass, replace
from .._base.vendor import VendorProfile
from .._cdi.options import AUTO, CdiOptions, form_for
from .._cdi.spec import compare
from .._checks.prove import PASSED, WRITE, Proof, prove
from .._checks.ready_files import MARKERS, read_markers
from .._host.host import Host
from .._host.owned_files import compare_files
from .._runtime.base import ask_systemd
from .._runtime.detect import detect_runtimes
from .._runtime.live import docker_containers, is_stopped
from .facts import collect_facts
from .settings import Settings, complete, merge, read_settings

SCHEMA = 1


class MarkersData(t.TypedDict):
    """The ready files of a host. `current`: proving with markers written would change nothing."""

    current: bool
    present: list[str]
    files: dict[str, dict[str, t.Any]]


class ObservedData(t.TypedDict):
    """Comparison and checks of one look, as docs/schemas/observed.schema.json has it.

    state is passed, failed or unknown; failed and unknown name checks; cdi is compare() without the two texts;
    containers are docker's with NPUs, None when docker was not asked or did not say.
    """

    schema: int
    state: str
    passed: bool
    failed: list[str]
    unknown: list[str]
    checks: list[CheckData]
    cdi: dict[str, t.Any]
    markers: MarkersData
    host_tool: dict[str, t.Any]
    containers: list[dict[str, t.Any]] | None
    python: str


class Observation(t.TypedDict):
    """One look at a host: facts, runtimes, and what was made of them."""

    facts: dict[str, t.Any]
    runtimes: dict[str, t.Any]
    observed: ObservedData


@dataclass(frozen=True)
class Look:
    """What was seen before it was judged."""

    facts: dict[str, t.Any]
    runtimes: dict[str, t.Any]
    cdi: dict[str, t.Any]


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, Problem):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def cdi_options(settings: Settings, runtimes: t.Mapping[str, t.Any]) -> CdiOptions:
    """The CDI options with the form decided by what runs on the host."""
    form = settings.cdi.form
    return replace(settings.cdi, form=form_for(form, form == AUTO and runtimes["kubelet"]["present"]))


def engine_dirs(runtimes: t.Mapping[str, t.Any]) -> list[str]:
    """The directories of specifications that any runtime of the host reads."""
    return [path for runtime in runtimes.get("runtimes") or [] for path in runtime["cdi"]["spec_dirs"]]


def look(profile: VendorProfile, host: Host, settings: Settings) -> Look:
    """Facts, runtimes and CDI comparison.

    A specification that cannot be looked at has the state unknown, with the reason in its problems.
    """
    asked = ask_systemd(host, settings.runtimes, profile.daemon_units)
    facts = collect_facts(profile, host, settings.facts, settings.wanted, asked)
    runtimes = detect_runtimes(host, settings.runtimes, asked)
    try:
        options = cdi_options(settings, runtimes)
        cdi = _plain(compare(profile, host, options, settings.cdi_path, engine_dirs(runtimes)))
    except NpuError as exc:
        problem = Problem("cdi_not_compared", "error", exc.message, exc.next_step, profile.name)
        cdi = {
            "path": settings.cdi_path,
            "state": "unknown",
            "changed": False,
            "problems": [problem.to_dict()],
            "missing_host_paths": [],
            "conflicts": None,
        }
    return Look(facts, runtimes, cdi)


def look_for(profile: VendorProfile, host: Host, settings: Settings) -> Look:
    """As look(), but nothing is looked at when no scope is to be judged."""
    return look(profile, host, settings) if settings.rules.scopes else Look({}, {}, {})


def prove_look(profile: VendorProfile, host: Host, seen: Look, settings: Settings) -> Proof:
    """Judge what was seen by the settings' rules; writes ready files only when the rules say so."""
    return prove(profile, host, seen.facts, seen.runtimes, seen.cdi, settings.wanted, settings.rules)


def _cdi_containers(
    profile: VendorProfile, host: Host, runtimes: t.Mapping[str, t.Any]
) -> list[dict[str, t.Any]] | None:
    """docker's containers that hold NPUs by CDI, for comparison after a restart; None when docker did not say."""
    for runtime in runtimes.get("runtimes") or []:
        asked = runtime.get("name") == "docker" and not is_stopped(runtime)
        where = host.resolve(str(runtime.get("socket") or "")) if asked else None
        if where is not None and where.ok:
            found: list[dict[str, t.Any]] | None = docker_containers(
                host.real(where.value), profile.cdi_kind + "="
            ).get()
            return found
    return None


def observe(
    profile: VendorProfile, host: Host, settings: Settings, host_files: t.Mapping[str, str] | None = None
) -> Observation:
    """Look at a host and judge it. Writes nothing, whatever the rules say; `host_files` are those of the host tool."""
    seen = look(profile, host, settings)
    proof = prove_look(profile, host, seen, replace(settings, rules=replace(settings.rules, markers=WRITE, dry=True)))
    files = read_markers(profile, host)
    observed: ObservedData = {
        "schema": SCHEMA,
        "state": proof.state,
        "passed": proof.state == PASSED,
        "failed": proof.failed,
        "unknown": proof.unknown,
        "checks": [check.to_dict() for check in proof.checks],
        "cdi": {key: value for key, value in seen.cdi.items() if key not in ("before", "after")},
        "markers": {
            "current": not proof.changes,
            "present": [name for name in MARKERS if files[name]["state"] == "value"],
            "files": files,
        },
        "host_tool": compare_files(host, host_files),
        "containers": _cdi_containers(profile, host, seen.runtimes),
        "python": sys.executable,
    }
    return {"facts": seen.facts, "runtimes": seen.runtimes, "observed": observed}


def answer(profile: VendorProfile, params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the module that observes answers to its parameters: {ansible_facts}, or {failed, msg}."""
    try:
        options = complete(merge(params), "options")
        host = Host(options["root"])
        seen = observe(profile, host, read_settings(profile, options), params.get("host_tool"))
    except NpuError as exc:
        return {"failed": True, "msg": str(exc)}
    name = profile.short_name
    facts = {name: seen["facts"], name + "_runtimes": seen["runtimes"], name + "_observed": seen["observed"]}
    return {"changed": False, "ansible_facts": facts}
