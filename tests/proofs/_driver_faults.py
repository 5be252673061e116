# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of the driver's life that end it or are hard on it: removal, faults, real builds.

Each part uses two hosts, `a` (Debian 12) and `b` (Debian 13).
"""

from __future__ import annotations

import fnmatch
import hashlib
import tempfile
import time
import typing as t
from pathlib import Path

from tests.integration._driver import (
    FAULTY,
    NEW,
    NO_BUILD,
    OLD,
    Drivers,
    add_package,
    alive,
    extracted,
    many,
    packages,
    signed_source,
    user_of,
    works,
)  # fmt: skip
from tests.integration._hosts import Hosts
from tests.integration._play import Data, play
from tests.lab.lab import payload_dir
from tests.proofs._driver_life import same
from tests.proofs._proof import Part


def removals(part: Part, drivers: Drivers, a: str, b: str) -> None:
    with part.case("the former package, and a driver that is half installed"):
        drivers.hosts.virgin(a, b)
        drivers.lab.exec(a, ["dpkg", "-i", "/opt/npu-lab/payload/apt/rebellions_2.1.0_amd64.deb"])
        done = drivers.lab.exec(
            b, ["/opt/npu-lab/payload/run/rebellions-x86_64-%s.run" % NO_BUILD, "--silent"], check=False
        )
        assert done.returncode != 0 and drivers.seen(b)["broken"] != []
        drivers.remove(a, b).good([a, b])
        for host in (a, b):
            gone(drivers, host)
        assert drivers.remove(a, b).good([a, b]).changed() == []
    with part.case("packages that somebody else's need are not taken from under them"):
        drivers.put(a, OLD)
        with tempfile.TemporaryDirectory() as folder:
            add_package(drivers.lab, a, Path(folder), "npu-app", "librbln")
        run = drivers.remove(a)
        assert "would also remove npu-app" in run.failed(a)[-1].msg, run.failed(a)[-1].msg
        works(drivers.seen(a), OLD)
        drivers.remove(a, rbln_driver_package_absent=["npu-app"]).good([a])
    with part.case("a driver in use is not removed"):
        drivers.put(b, OLD)
        with user_of(drivers.lab, b) as job:
            run = drivers.remove(b)
            assert "npu-job (pid %d" % job in run.failed(b)[-1].msg and alive(drivers.lab, b, job), run.failed(b)[
                -1
            ].msg
        works(drivers.seen(b), OLD)
    with part.case("remove.yml after site.yml, with a signed repository and an installer that cannot remove"):
        drivers.hosts.virgin(a, b)
        inputs = {a: packages(NEW, signed_source()), b: many(NEW, rbln_driver_runfile_uninstall=[])}
        where = drivers.hosts.inventory(a, b, host_vars=inputs)
        for host in (a, b):
            drivers.hosts.state[host] = "dirty"
        play("site", where).good([a, b])
        play("site", where).unchanged([a, b])
        play("remove", where).good([a, b])
        for host in (a, b):
            # Folders of the system, which may have been there before.
            gone(drivers, host, ("+/run/cdi", "+/usr/local/libexec"))
        assert play("remove", where).good([a, b]).changed() == []


def gone(drivers: Drivers, host: str, stays: t.Collection[str] = ()) -> None:
    """Nothing of the driver is left, and the disk is that of a virgin host, patterns in `stays` aside."""
    state = drivers.seen(host)
    assert (
        state["packages"],
        state["broken"],
        state["loaded"],
        state["on_disk"],
        state["state"],
        state["devices"],
    ) == ({}, [], None, None, None, []), state
    assert state["holds"] == [] and state["ready"] == [], state
    rest = drivers.rest(host, drivers.hosts.fresh[host])
    rest = [line for line in rest if not any(fnmatch.fnmatchcase(line, pattern) for pattern in stays)]
    assert rest == [], rest


def faults(part: Part, drivers: Drivers, a: str, b: str) -> None:
    name = "rebellions-x86_64-%s.run" % NEW
    with part.case(
        "an installer that is broken in itself, and a disk that is full"
    ), tempfile.TemporaryDirectory() as folder:
        drivers.put(a, OLD)
        drivers.put(b, OLD)
        cut = Path(folder) / name
        cut.write_bytes((payload_dir() / "run" / name).read_bytes()[:-400])
        before = drivers.disk(b)
        fill = "fallocate -l 700K /var/lib/rbln/kept/.filler"
        drivers.lab.exec(
            b,
            (
                "cp -a /var/lib/rbln /tmp/rbln; mount -t tmpfs -o size=1m,mode=755 none /var/lib/rbln; "
                "cp -a /tmp/rbln/. /var/lib/rbln; "
            )
            + fill,
        )
        run = drivers.run({a: many(NEW, **given(cut)), b: many(NEW, **padded(Path(folder), 500_000))})
        assert run.failed(a)[-1].msg.startswith("rolled back: "), run.failed(a)[-1].msg
        works(drivers.seen(a), OLD)
        assert "No space left" in run.failed(b)[-1].msg or "Make room" in run.failed(b)[-1].msg, run.failed(b)[-1].msg
        drivers.lab.exec(b, ["umount", "/var/lib/rbln"])
        same(drivers, b, before)
        works({**drivers.seen(b), "state": []}, OLD)
        drivers.good({a: many(NEW), b: many(NEW)})
        drivers.unchanged({a: many(NEW), b: many(NEW)})
    with part.case("a module that hangs while it is loaded: ended at the limit both ways, and left stopped"):
        drivers.put(a, OLD)
        # The installer leaves the loading to us: how long it takes itself is limited as a whole.
        for fault in ("load-hang", "install-no-load"):
            drivers.lab.fault(a, fault, "300")
        begun = time.monotonic()
        run = drivers.run({a: many(NEW, rbln_driver_load_timeout=3)})
        last = run.failed(a)[-1].msg
        assert (
            time.monotonic() - begun < 100 and last.startswith("left stopped: ") and last.count("did not end") == 2
        ), last
        state = drivers.seen(a)
        assert (state["tainted"]["version"], state["daemon"], state["ready"]) == (NEW, "inactive", []), state
        for fault in ("load-hang", "install-no-load"):
            drivers.lab.fault(a, fault, None)
        drivers.good({a: many(NEW)})
        works(drivers.seen(a), NEW)
        drivers.unchanged({a: many(NEW)})
    with part.case("headers that are missing are named before anything is changed"):
        drivers.put(a, OLD)
        before = drivers.disk(a)
        kernel = drivers.lab.exec(a, ["uname", "-r"]).stdout.strip()
        drivers.lab.exec(a, "mv /usr/src/linux-headers-%s /usr/src/away" % kernel)
        run = drivers.run({a: many(NEW, rbln_driver_headers="check")})
        drivers.lab.exec(a, "mv /usr/src/away /usr/src/linux-headers-%s" % kernel)
        assert "headers" in run.failed(a)[-1].msg and kernel in run.failed(a)[-1].msg, run.failed(a)[-1].msg
        same(drivers, a, before, "~/usr/src")
        assert run.changed(a) == [], run.changed(a)
    with part.case("file systems that cannot take the driver are named before anything is changed"):
        drivers.put(a, OLD)
        drivers.put(b, OLD)
        before = {host: drivers.disk(host) for host in (a, b)}
        mounts = {a: ("/usr", "ro", "mounted read-only"), b: ("/var/lib/rbln", "noexec", "mounted noexec")}
        for host, (path, option, _words) in mounts.items():
            drivers.lab.exec(host, "mount --bind %s %s && mount -o remount,bind,%s %s" % (path, path, option, path))
        run = drivers.run({host: many(NEW) for host in (a, b)})
        for host, (path, _option, words) in mounts.items():
            drivers.lab.exec(host, ["umount", "-l", path])
            assert path in run.failed(host)[-1].msg and words in run.failed(host)[-1].msg, run.failed(host)[-1].msg
            same(drivers, host, before[host])
            works({**drivers.seen(host), "state": []}, OLD)
    with part.case("the copy of the way back is damaged: left stopped, told, and the next run converges"):
        drivers.put(b, OLD)
        drivers.lab.exec(
            b,
            (
                "for f in /var/lib/rbln/kept/runfile-%s*/*.run; do printf x | dd of=$f bs=1 seek=100 conv=notrunc "
                "status=none; done"
            )
            % OLD,
        )
        run = drivers.run({b: many(FAULTY)})
        assert run.failed(b)[-1].msg.startswith("left stopped: "), run.failed(b)[-1].msg
        assert "is damaged" in run.warnings() and "keeps no copy" in run.warnings(), run.warnings()
        drivers.good({b: many(NEW)})
        works(drivers.seen(b), NEW)


def padded(folder: Path, size: int) -> Data:
    """Inputs for an installer with extra bytes at its end, which gzip overlooks."""
    name = "rebellions-x86_64-%s.run" % NEW
    path = folder / "padded" / name
    path.parent.mkdir()
    path.write_bytes((payload_dir() / "run" / name).read_bytes() + bytes(size))
    return given(path)


def given(path: Path) -> Data:
    """Inputs for an installer at a path of its own."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"rbln_driver_runfile": str(path), "rbln_driver_runfile_sha256": digest, "rbln_driver_runfile_digests": {}}


def real_builds(part: Part, drivers: Drivers, _a: str, _b: str) -> None:
    """DKMS builds the module for Debian's own kernel; only loading is stood in for."""
    host = "it-drv-dkms"
    hosts = Hosts(drivers.lab, {host: "dkms"}, kube=False)
    built = Drivers(hosts)

    def trees(version: str | None) -> None:
        rows = built.lab.exec(host, ["dkms", "status"]).stdout.splitlines()
        assert [row.split(",")[0] for row in rows if "installed" in row] == (
            [] if version is None else ["rebellions/" + version]
        ), rows

    try:
        with part.case("installed, upgraded, led back, removed, with a real build each time"):
            hosts.virgin(host)
            ask: Data = {"rbln_driver_build_packages": ["dkms", "gcc", "make"]}
            built.good({host: many(OLD, **ask)})
            trees(OLD)
            built.good({host: extracted(NEW, **ask)})
            trees(NEW)
            run = built.run({host: many(NO_BUILD, **ask)})
            assert run.failed(host)[-1].msg.startswith("rolled back: "), run.failed(host)[-1].msg
            works(built.seen(host), NEW)
            trees(NEW)
            built.unchanged({host: many(NEW, **ask)})
            built.remove(host).good([host])
            trees(None)
            # Records of depmod for a kernel that had none, the key that dkms makes for itself, and the folder of the
            # ready files.
            gone(
                built,
                host,
                ("+/usr/lib/modules/*/modules.*", "+/var/lib/dkms/mok.*", "+/run/rbln", "+/run/rbln/validations"),
            )
    finally:
        hosts.leave()
