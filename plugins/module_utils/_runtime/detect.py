# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every container runtime of a host, its CDI state, and which one the kubelet uses.

Ambiguity is an answer, never a guess.
"""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING
from .._host.host import Host
from .base import (
    CONTAINERD,
    CRIO,
    DOCKER,
    DOCKER_BACKEND,
    NAMES,
    PODMAN,
    SYSTEM,
    Change,
    Context,
    Runtime,
    RuntimeOptions,
    same_dir,
)
from .containerd import ContainerdRuntime
from .crio import CrioRuntime
from .distro_containerd import DistroRuntime
from .docker import DockerRuntime
from .kubelet import Kubelet, find_kubelet
from .owners import note_owners
from .podman import PodmanRuntime

SCHEMA = 1
CLASSES = (ContainerdRuntime, DistroRuntime, DockerRuntime, CrioRuntime, PodmanRuntime)
CRI_DOCKERD_SOCKETS = (
    "/run/cri-dockerd.sock",
    "/run/cri-dockerd/cri-dockerd.sock",
    "/run/dockershim.sock",
    "/run/docker.sock",
)


def detect_runtimes(host: Host, options: RuntimeOptions | None = None) -> dict[str, t.Any]:
    """The facts about runtimes, in the shape of the schema under docs/schemas.

    Never raises for what a host looks like.
    """
    options = options or RuntimeOptions()
    context = Context.observe(host, options)
    kubelet = find_kubelet(context)
    context.endpoint = kubelet.runtime_endpoint
    found: list[tuple[t.Any, Runtime]] = []
    for kind in CLASSES:
        reader = kind(context)
        found.extend((reader, runtime) for runtime in reader.detect())
    runtimes = [runtime for reader, runtime in found]
    serving, source, ambiguous = _serving(
        kubelet, runtimes, options, any(context.is_socket(path) for path in CRI_DOCKERD_SOCKETS[:2])
    )
    if serving is not None:
        serving.serves_kubelet = True
    _mark_backend(runtimes)
    if serving is None and ambiguous is None:
        ambiguous = _unserved(kubelet, runtimes, options)
    _select(context, runtimes, serving, ambiguous)
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


def _settle(context: Context, runtimes: t.Sequence[Runtime]) -> None:
    """An interrupted change must be completed, whatever the files hold now."""
    journal = context.options.state_dir + "/transaction.json"
    if context.options.state_dir and context.host.exists(journal):
        for runtime in runtimes:
            if runtime.selected and runtime.refusal is None and runtime.name != PODMAN:
                runtime.changes.append(
                    Change(journal, "an unfinished change settled", "an earlier run was interrupted while writing")
                )


def _answers(runtime: Runtime, endpoint: str) -> bool:
    if runtime.name == DOCKER:
        return any(same_dir(endpoint, path) for path in CRI_DOCKERD_SOCKETS)
    return bool(runtime.socket) and same_dir(endpoint, runtime.socket)


def _serving(
    kubelet: Kubelet, runtimes: t.Sequence[Runtime], options: RuntimeOptions, shim: bool
) -> tuple[Runtime | None, str, dict[str, t.Any] | None]:
    """The runtime of the kubelet and what says so, or why that is not known."""
    endpoint = kubelet.runtime_endpoint
    if endpoint:
        fitting = [runtime for runtime in runtimes if _answers(runtime, endpoint)]
        if fitting:
            return fitting[0], kubelet.source, None
        return (
            None,
            "",
            {
                "reason": "the kubelet uses %s (according to %s), which is not the socket of a runtime on this host"
                % (endpoint, kubelet.source),
                "candidates": [runtime.name for runtime in runtimes],
                "next_step": "correct the endpoint, or install and start the runtime that owns this socket",
            },
        )
    if not kubelet.present:
        return None, "", None
    candidates = [
        runtime for runtime in runtimes if runtime.name in (CONTAINERD, CRIO) or (runtime.name == DOCKER and shim)
    ]
    if len(candidates) == 1:
        return candidates[0], "only candidate", None
    if options.runtimes:
        named = [runtime for runtime in candidates if runtime.name in options.runtimes]
        if len(named) == 1:
            return named[0], "input", None
    return None, "", None


def _mark_backend(runtimes: t.Sequence[Runtime]) -> None:
    """A containerd that no kubelet uses on a host with docker is docker's own."""
    if any(runtime.name == DOCKER for runtime in runtimes):
        for runtime in runtimes:
            if runtime.name == CONTAINERD and runtime.flavor == SYSTEM and not runtime.serves_kubelet:
                runtime.flavor = DOCKER_BACKEND


def _unserved(kubelet: Kubelet, runtimes: t.Sequence[Runtime], options: RuntimeOptions) -> dict[str, t.Any] | None:
    """Several runtimes, and nothing shows which one is used."""
    candidates = [
        runtime.name
        for runtime in runtimes
        if runtime.name != PODMAN and (runtime.flavor != DOCKER_BACKEND or kubelet.present)
    ]
    if options.runtimes or len(candidates) < 2:
        return None
    why = "the kubelet names no endpoint" if kubelet.present else "there is no kubelet"
    return {
        "reason": "%s and this host has %s" % (why, ", ".join(candidates)),
        "candidates": candidates,
        "next_step": "name the runtime with the runtime option, or give the kubelet's endpoint",
    }


def _select(
    context: Context, runtimes: t.Sequence[Runtime], serving: Runtime | None, ambiguous: dict[str, t.Any] | None
) -> None:
    wanted = context.options.runtimes
    if wanted:
        for name in wanted:
            named = [runtime for runtime in runtimes if runtime.name == name]
            best = [runtime for runtime in named if runtime.serves_kubelet] or named
            for runtime in best:
                runtime.selected = True
            if not named:
                context.problem(
                    "runtime_not_found",
                    ERROR,
                    "the wanted runtime %s is not on this host" % name,
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
