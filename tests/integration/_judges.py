# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs that judge our configuration.

Debian's own containerd and docker, unpacked but not installed, and containerd 2.x built from source.
"""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from tests.lab._base import cached, digest, run
from tests.lab._go import go_command, program
from tests.lab._rootfs import mirror

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("containerd", "docker.io", "libc6", "libseccomp2", "libsystemd0", "libcap2")
LIBRARIES = "lib/x86_64-linux-gnu"
OLD_2 = "2.1.5"


def _unpack(suite: str) -> t.Callable[[Path], None]:
    def make(home: Path) -> None:
        for name in ("lists/partial", "cache/archives/partial", "debs"):
            (home / "apt" / name).mkdir(parents=True)
        (home / "apt/status").touch()
        (home / "apt/sources.list").write_text("deb [signed-by=%s] %s %s main\n" % (KEYRING, mirror(), suite))
        options = {
            "Dir::Etc::sourcelist": home / "apt/sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": home / "apt",
            "Dir::State::lists": home / "apt/lists",
            "Dir::State::status": home / "apt/status",
            "Dir::Cache": home / "apt/cache",
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", "-q"] + [word for name, value in options.items() for word in ("-o", "%s=%s" % (name, value))]
        run(apt + ["update"], 300)
        run(apt + ["download", *PACKAGES], 600, cwd=home / "apt/debs")
        for package in sorted((home / "apt/debs").glob("*.deb")):
            run(["dpkg-deb", "-x", package, home / "root"], 120)
        run(["rm", "-rf", home / "apt"])
        for name in ("usr/bin/containerd", "usr/sbin/dockerd"):
            _wrap(home, name)

    return make


def _wrap(home: Path, name: str) -> None:
    """A script that starts the program with its own C library.

    HERE is the folder of the script, because the cache is renamed into place.
    """
    (home / "bin").mkdir(exist_ok=True)
    script = home / "bin" / Path(name).name
    loader = next((home / "root").glob("**/%s/ld-linux-x86-64.so.2" % LIBRARIES))
    script.write_text(
        '#!/bin/sh\nroot=$(dirname "$(readlink -f "$0")")/../root\nPATH=$root/usr/sbin:$root/usr/bin:$PATH\n'
        'exec "$root/%s" --library-path "$root/%s:$root/usr/%s" "$root/%s" "$@"\n'
        % (loader.relative_to(home / "root"), LIBRARIES, LIBRARIES, name)
    )
    script.chmod(0o755)


def debian(suite: str) -> Path:
    """The folder with `containerd` and `dockerd` of a Debian release.

    bookworm has 1.6.20 and 20.10, trixie 1.7.24 and 26.1.
    """
    return cached("judges-" + suite, digest(suite, *PACKAGES, Path(__file__).read_text()), _unpack(suite)) / "bin"


def containerd_2(version: str = "") -> Path:
    """containerd 2.x: the lab's, or a released version built here."""
    if not version:
        return program("containerd") / "containerd"

    def make(home: Path) -> None:
        package, source = "github.com/containerd/containerd/v2", home / "src"
        source.mkdir()
        env = {"CGO_ENABLED": "0", "GOFLAGS": "-p=2"}
        flags = "-s -w -X %s/version.Version=v%s" % (package, version)
        run([go_command(), "mod", "init", "judge"], 60, env=env, cwd=source)
        run([go_command(), "get", "%s/cmd/containerd@v%s" % (package, version)], 600, env=env, cwd=source)
        run(
            [
                "nice",
                "-n",
                "5",
                go_command(),
                "build",
                "-trimpath",
                "-ldflags",
                flags,
                "-o",
                home,
                package + "/cmd/containerd",
            ],
            1800,
            env=env,
            cwd=source,
        )

    return cached("containerd-" + version, digest(version), make) / "containerd"


def containerds() -> dict[str, t.Callable[[], Path]]:
    """{release: how to get the program}. 2.1, the last that knows the switch, is built for `NPU_JUDGES=all` only."""
    found: dict[str, t.Callable[[], Path]] = {
        "1.6": lambda: debian("bookworm") / "containerd",
        "1.7": lambda: debian("trixie") / "containerd",
        "2.4": containerd_2,
    }
    if os.environ.get("NPU_JUDGES") == "all":
        found["2.1"] = lambda: containerd_2(OLD_2)
    return found
