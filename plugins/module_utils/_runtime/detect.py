# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every container runtime of a host, its CDI state, and which one the kubelet uses.

Ambiguity is an answer, never a guess.
"""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING
from .._host.host import Host, Probe
from .base import (
    CONTAINERD,
    CRIO,
    DOCKER,
    DOCKER_BACKEND,
    NAMES,
    PODMAN,
    SNAP,
    SYSTEM,
    Change,
    Context,
    Refusal,
    Runtime,
    RuntimeOptions,
    flag_values,
    has_dir,
    note_unit,
    same_dir,
)
from .containerd import ContainerdRuntime
from .crio import CrioRuntime
from .distro_containerd import DistroRuntime
from .docker import CRI_DOCKERD_SOCKETS, DockerRuntime
from .kubelet import Kubelet, endpoint_path, find_kubelet
from .owners import note_owners
from .podman import PodmanRuntime

SCHEMA = 1
# Seconds by which the start of a process may be read too early, as the time of the boot is (see _host/proc.py).
START = 1.0
CLASSES = (ContainerdRuntime, DistroRuntime, DockerRuntime, CrioRuntime, PodmanRuntime)


def detect_runtimes(host: Host, options: RuntimeOptions | None = None, asked: Probe | None = None) -> dict[str, t.Any]:
    """The facts about runtimes, in the shape of the schema under docs/schemas.

    Never raises for what a host looks like. `asked` is what systemd has said of their units, as ask_units() has it.
    """
    options = options or RuntimeOptions()
    context = Context.observe(host, options, asked)
    kubelet = find_kubelet(context)
    context.endpoint = _behind(context, kubelet.runtime_endpoint)
    found: list[tuple[t.Any, Runtime]] = []
    for kind in CLASSES:
        reader = kind(context)
        found.extend((reader, runtime) for runtime in reader.detect())
    runtimes = [runtime for reader, runtime in found]
    described = _described(context, runtimes)
    serving, source, ambiguous = _serving(
        context, kubelet, runtimes, any(context.is_socket(path) for path in CRI_DOCKERD_SOCKETS[:2])
    )
    if serving is None and described is not None and kubelet.present:
        serving, source, ambiguous = described, "input", None
    if serving is not None:
        serving.serves_kubelet = True
    _mark_backend(runtimes, described)
    for runtime in runtimes:
        _note_proxies(context, runtime)
    if serving is None and described is None and ambiguous is None:
        ambiguous = _unserved(kubelet, runtimes, options)
    _select(context, runtimes, serving, described, ambiguous)
    for reader, runtime in found:
        reader.propose(runtime)
        note_owners(context, runtime)
    _settle(context, runtimes)
    return {
        "schema": SCHEMA,
        "runtimes": [runtime.to_dict() for runtime in runtimes],
        "kubelet": kubelet.to_dict(),
        "kubernetes_runtime": serving.name if serving is not None else None,
        "kubernetes_runtime_source": source if serving is not None else None,
        "selected": sorted({runtime.name for runtime in runtimes if runtime.selected}, key=NAMES.index),
        "ambiguous": ambiguous,
        "problems": [problem.to_dict() for problem in context.problems],
    }


def proxy_files(unit: str, stem: str) -> tuple[str, str]:
    """(the drop-in of a unit that gives it our proxies, the file of variables that it names)."""
    path = "/etc/systemd/system/%s.d/zz-%s-proxy" % (unit, stem)
    return path + ".conf", path + ".env"


def _note_proxies(context: Context, runtime: Runtime) -> None:
    """A process that is older than the proxies of its unit is stale: the run that wrote them was stopped."""
    if not runtime.unit or runtime.process_started is None or runtime.process_stale:
        return
    for path in proxy_files(runtime.unit, context.options.file_stem):
        found = context.host.stat(path)
        newest = max(found.value.mtime, found.value.ctime) if found.ok else 0.0
        if runtime.process_started + START < newest <= context.host.clock() + 1:
            runtime.process_stale = True


def _described(context: Context, runtimes: t.Sequence[Runtime]) -> Runtime | None:
    """The runtime that the caller describes, with the unit and the socket as given; None without a description."""
    options = context.options
    named = [runtime for runtime in runtimes if options.by_hand(runtime.name)]
    if not named:
        return None
    tests: tuple[t.Callable[[Runtime], bool], ...] = (
        lambda runtime: bool(options.config_file) and runtime.main_config == options.config_file,
        lambda runtime: bool(options.unit) and runtime.unit == options.unit,
        lambda runtime: bool(options.socket) and same_dir(runtime.socket, options.socket),
        lambda runtime: _answers(context, runtime),
        lambda runtime: runtime.flavor != SYSTEM,
        lambda runtime: True,
    )
    found = next(runtime for test in tests for runtime in named if test(runtime))
    if options.unit:
        note_unit(found, context.units.get(options.unit), ["", *found.unit_flags])
    if options.socket:
        found.socket, found.socket_exists = options.socket, context.is_socket(options.socket)
    return found


def _settle(context: Context, runtimes: t.Sequence[Runtime]) -> None:
    """A unit by hand must be there; an interrupted change must be completed, whatever the files hold now."""
    unit = context.units.get(context.options.unit)
    for runtime in runtimes if unit is not None and not unit.loaded and context.host.runs_commands else []:
        if runtime.selected and runtime.unit == context.options.unit:
            runtime.changes = []
            runtime.refusal = Refusal(
                "%s is named as the unit of %s, and this host has no such unit" % (runtime.unit, runtime.name),
                "correct the name of the unit",
            )
    journal = context.options.state_dir + "/transaction.json"
    if context.options.state_dir and context.host.exists(journal):
        for runtime in runtimes:
            if runtime.selected and runtime.refusal is None and runtime.name != PODMAN:
                runtime.changes.append(
                    Change(journal, "an unfinished change settled", "an earlier run was interrupted while writing")
                )


def _behind(context: Context, path: str) -> str:
    """The socket that a path leads to: some systems have links to that of containerd."""
    found = context.host.resolve(path) if path.startswith("/") else None
    return str(found.value) if found is not None and found.ok else path


def _answers(context: Context, runtime: Runtime) -> bool:
    endpoint = context.endpoint
    if runtime.name == DOCKER:
        shims = context.processes.named("cri-dockerd") if context.processes.scanned else ()
        given = [value for item in shims for value in flag_values(item.argv, "--container-runtime-endpoint")]
        return has_dir([*CRI_DOCKERD_SOCKETS, *map(endpoint_path, given)], endpoint)
    return bool(endpoint and runtime.socket) and same_dir(endpoint, _behind(context, runtime.socket))


def _serving(
    context: Context, kubelet: Kubelet, runtimes: t.Sequence[Runtime], shim: bool
) -> tuple[Runtime | None, str, dict[str, t.Any] | None]:
    """The runtime of the kubelet and what says so, or why that is not known."""
    endpoint = kubelet.runtime_endpoint
    if endpoint:
        fitting = [runtime for runtime in runtimes if _answers(context, runtime)]
        if fitting:
            # Two may be set up for one socket: one of them runs.
            running = [item for item in fitting if item.process_started is not None or item.unit_state == "active"]
            return (running or fitting)[0], kubelet.source, None
        return (
            None,
            "",
            {
                "reason": "the kubelet uses %s (according to %s), which is not the socket of a runtime on this host"
                % (endpoint, kubelet.source),
                "candidates": [runtime.name for runtime in runtimes],
                "next_step": "start the runtime that owns this socket, or describe it: its name, with the file of its "
                "configuration, its socket and its unit",
            },
        )
    if not kubelet.present:
        return None, "", None
    candidates = [
        runtime for runtime in runtimes if runtime.name in (CONTAINERD, CRIO) or (runtime.name == DOCKER and shim)
    ]
    if len(candidates) == 1:
        return candidates[0], "only candidate", None
    wanted = context.options.runtimes
    if wanted:
        named = [runtime for runtime in candidates if runtime.name in wanted]
        if len(named) == 1:
            return named[0], "input", None
    return None, "", None


def _mark_backend(runtimes: t.Sequence[Runtime], described: Runtime | None) -> None:
    """A containerd that no kubelet uses on a host with docker is docker's own; a snap of docker brings another."""
    if any(runtime.name == DOCKER and runtime.flavor != SNAP for runtime in runtimes):
        for runtime in runtimes:
            free = not runtime.serves_kubelet and runtime is not described
            if runtime.name == CONTAINERD and runtime.flavor == SYSTEM and free:
                runtime.flavor = DOCKER_BACKEND


def _unserved(kubelet: Kubelet, runtimes: t.Sequence[Runtime], options: RuntimeOptions) -> dict[str, t.Any] | None:
    """Several runtimes, and nothing shows which one is used."""
    candidates = [
        runtime.name
        for runtime in runtimes
        if runtime.name != PODMAN and (runtime.flavor != DOCKER_BACKEND or kubelet.present)
    ]
    # A name decides between kinds of runtimes; two that run under one name are told apart by a description.
    twins = [
        runtime.name
        for runtime in runtimes
        if runtime.name in options.runtimes and runtime.flavor != DOCKER_BACKEND and runtime.process_started is not None
    ]
    if (options.runtimes and len(set(twins)) == len(twins)) or len(candidates) < 2:
        return None
    why = "the kubelet names no endpoint" if kubelet.present else "there is no kubelet"
    return {
        "reason": "%s and this host has %s" % (why, ", ".join(candidates)),
        "candidates": candidates,
        "next_step": "name the runtime with the runtime option, and where that has several, its socket or its unit",
    }


def _select(
    context: Context,
    runtimes: t.Sequence[Runtime],
    serving: Runtime | None,
    described: Runtime | None,
    ambiguous: dict[str, t.Any] | None,
) -> None:
    wanted = context.options.runtimes
    if described is not None:
        described.selected = True
    elif wanted:
        for name in wanted:
            named = [runtime for runtime in runtimes if runtime.name == name]
            best = [runtime for runtime in named if runtime.serves_kubelet] or named
            for runtime in best if len(best) == 1 or ambiguous is None else []:
                runtime.selected = True
            if not named:
                context.problem(
                    "runtime_not_found",
                    ERROR,
                    "the wanted runtime %s is not on this host, which has %s"
                    % (name, ", ".join(sorted({item.name for item in runtimes})) or "none"),
                    "install it, or remove it from the runtime option",
                )
    elif serving is not None:
        serving.selected = True
    elif ambiguous is None:
        owned = [runtime for runtime in runtimes if runtime.flavor != DOCKER_BACKEND]
        for runtime in [item for item in owned if item.name != PODMAN] or owned:
            runtime.selected = True
    if not runtimes:
        context.problem(
            "runtime_none",
            WARNING,
            "no container runtime was found on this host",
            "install containerd, docker, cri-o or podman",
        )
