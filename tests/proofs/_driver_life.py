# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of the driver's life: sources, users, ways back, holds, removal, faults.

Each part uses two hosts, `a` (Debian 12) and `b` (Debian 13).
"""

from __future__ import annotations

import json
import tempfile
import typing as t
from pathlib import Path

from tests.integration._driver import (
    FAULTY,
    NEW,
    NO_BUILD,
    OLD,
    PACKAGES,
    Drivers,
    alive,
    extracted,
    main_pid,
    many,
    packages,
    role_book,
    service_of,
    signed_source,
    user_of,
    works,
)  # fmt: skip
from tests.integration._hosts import Hosts, difference
from tests.integration._play import FOLDER, SITE, Data, play, sha256
from tests.lab._base import STATE
from tests.lab.lab import Npu, payload_dir
from tests.lab.standins.repository import Signer
from tests.proofs._proof import Part

# What was sent to be looked at on the host, and the ready files.
OWN = ("/var/lib/rbln", "/run/rbln")
Act = t.Callable[[Part, Drivers, str, str], None]


def same(drivers: Drivers, host: str, before: t.Any, aside: str = "\0") -> None:
    """The disk is as before, what is ours aside, and what has `aside` in its path."""
    rest = [
        line
        for line in difference(before, drivers.disk(host))
        if not line[1:].startswith(OWN) and aside not in line and line != "~/var/lib"
    ]
    assert rest == [], rest


def sources(part: Part, drivers: Drivers, a: str, b: str) -> None:
    debs = ["apt/%s_%s_amd64.deb" % (name, NEW) for name in PACKAGES]
    files = [{"path": str(payload_dir() / name), "sha256": sha256(name)} for name in debs]
    with part.case("files of packages, and packages out of the runfile"):
        drivers.hosts.virgin(a, b)
        drivers.good(
            {a: packages(NEW, rbln_driver_package_names=[], rbln_driver_package_files=files), b: extracted(NEW)}
        )
        for host in (a, b):
            state = works(drivers.seen(host), NEW, "package" if host == a else "runfile")
            assert state["holds"] == sorted(PACKAGES) and state["kept"] == ["package-" + NEW], state
        drivers.unchanged(
            {a: packages(NEW, rbln_driver_package_names=[], rbln_driver_package_files=files), b: extracted(NEW)}
        )
    with part.case("a driver that is preinstalled is not touched, one from a container neither"):
        before = {host: drivers.disk(host) for host in (a, b)}
        drivers.unchanged(
            {a: from_elsewhere("preinstalled"), b: {**from_elsewhere("preinstalled"), "rbln_driver_version": NEW}}
        )
        run = drivers.run({host: from_elsewhere("container") for host in (a, b)})
        assert run.code == 2 and "is installed on the host" in run.failed(a)[-1].msg and run.changed() == []
        for host in (a, b):
            same(drivers, host, before[host])
    with part.case("a container source on a virgin host leaves the driver to the cluster"):
        drivers.hosts.virgin(a)
        drivers.unchanged({a: from_elsewhere("container")})
        same(drivers, a, drivers.hosts.fresh[a])
    with part.case("a repository without signature, and one signed by another key, are refused by apt"):
        drivers.hosts.virgin(a, b)
        with tempfile.TemporaryDirectory() as folder, Signer() as other:
            key = Path(folder) / "other.asc"
            key.write_bytes(other.public(armored=True))
            run = drivers.run({a: packages(NEW, signed_source(folder="apt")), b: packages(NEW, signed_source(key))})
        assert run.code == 2
        for host in (a, b):
            said = str(run.failed(host)[-1].data)
            assert (
                "is not signed" in said
                or "NO_PUBKEY" in said
                or "public key is not available" in said
                or "Missing key" in said
            ), said[:1500]
            assert drivers.seen(host)["packages"] == {} and drivers.seen(host)["loaded"] is None
    with part.case("the newest of a repository, without a version"):
        run = drivers.run(
            {a: packages(OLD, signed_source(), rbln_driver_package_names=["rebellions-driver=%s" % OLD])}
        ).good([a])
        works(drivers.seen(a), OLD, "package", [*PACKAGES, "rebellions-driver"])
    with part.case("a file that was changed on its way, and one that was changed on the host"):
        drivers.hosts.virgin(a, b)
        run = play(
            role_book(),
            drivers.hosts.inventory(a, host_vars={a: {**many(OLD), "ansible_podman_executable": str(tampering())}}),
        )
        assert (
            run.code == 2 and "on the host is" in run.failed(a)[-1].msg and "nothing was run" in run.failed(a)[-1].msg
        ), run.failed(a)[-1].msg
        same(drivers, a, drivers.hosts.fresh[a])
        run = play(changed_on_host(), drivers.hosts.inventory(b))
        assert (
            "is missing or does not have the SHA-256" in run.failed(b)[-1].msg
            and "nothing was changed" in run.failed(b)[-1].msg
        ), run.failed(b)[-1].msg
        same(drivers, b, drivers.hosts.fresh[b])


def from_elsewhere(source: str) -> Data:
    """Inputs for a driver that is not ours to bring."""
    return {**SITE, "rbln_driver_source": source, "rbln_driver_version": ""}


def tampering() -> Path:
    """A podman for the connection that sends every installer with one byte more."""
    path = FOLDER / "tampering"
    # Without a mount the connection copies by podman cp.
    spoil = 'cp) case $3 in *.run) cat "$3" >%s.sent; echo >>%s.sent; exec %s cp $2 %s.sent "$4";; esac;;' % (
        path,
        path,
        STATE / "podman",
        path,
    )
    path.write_text('#!/bin/sh\ncase $1 in mount) exit 125;;\n%s\nesac\nexec %s "$@"\n' % (spoil, STATE / "podman"))
    path.chmod(0o755)
    return path


def changed_on_host() -> Path:
    """A playbook that sends the installer, changes it, and asks for its installation."""
    name = "rebellions-x86_64-%s.run" % OLD
    file = {"src": str(payload_dir() / "run" / name), "sha256": sha256("run/" + name)}
    tasks = [
        {"name": "Send", "rebellions.npu.rbln_driver_files": {"files": [file]}, "register": "placed"},
        {"name": "Spoil", "ansible.builtin.shell": "echo >>{{ placed.files[0].path }}"},
        {
            "name": "Install",
            "rebellions.npu.rbln_driver": {
                "source": "runfile",
                "version": OLD,
                "files": "{{ placed.files }}",
                "arguments": ["--silent"],
            },
        },
    ]
    path = FOLDER / "spoil.json"
    path.write_text(json.dumps([{"name": "Spoil", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))
    return path


def families(part: Part, drivers: Drivers, _a: str, _b: str) -> None:
    kinds = {"it-drv-f1": "containerd17", "it-drv-f2": "containerd17"}
    cards = {
        "it-drv-f1": [Npu("0000:01:00.0", "2130")],
        "it-drv-f2": [Npu("0000:01:00.0"), Npu("0000:02:00.0", "2130")],
    }
    drivers.lab.up(kinds, kube=False, hardware=cards)
    hosts = Hosts(drivers.lab, kinds, kube=False)
    mixed = Drivers(hosts)
    try:
        with part.case("the version of its family for each host, and none for a host with two"):
            inputs = many("", rbln_driver_versions={"ATOM": OLD, "REBEL": NEW}, rbln_driver_firmware="ignore")
            run = mixed.run({host: inputs for host in kinds})
            assert run.failed("it-drv-f1") == [], run.failed("it-drv-f1")[-1].msg
            assert mixed.seen("it-drv-f1")["loaded"] == NEW
            assert "ATOM" in run.failed("it-drv-f2")[-1].msg and "REBEL" in run.failed("it-drv-f2")[-1].msg, run.failed(
                "it-drv-f2"
            )[-1].msg
            assert mixed.seen("it-drv-f2")["packages"] == {} and run.changed("it-drv-f2") == []
    finally:
        hosts.leave()


def users(part: Part, drivers: Drivers, a: str, b: str) -> None:
    with part.case("wait: one ends in time, the other does not"):
        drivers.put(a, OLD)
        drivers.put(b, OLD)
        with user_of(drivers.lab, a, seconds=12), user_of(drivers.lab, b) as late:
            run = drivers.run(
                {
                    a: many(NEW, rbln_driver_in_use="wait"),
                    b: many(NEW, rbln_driver_in_use="wait", rbln_driver_in_use_timeout=5),
                }
            )
            assert run.failed(a) == [], run.failed(a)[-1].msg
            assert (
                "after 5 s" in run.failed(b)[-1].msg
                and "npu-job (pid %d" % late in run.failed(b)[-1].msg
                and alive(drivers.lab, b, late)
            )
            waits = "%s: driver waits, at most 5 s, until nothing uses the NPUs: npu-job (pid %d)" % (b, late)
            assert waits in run.err, run.err[-2000:]
        works(drivers.seen(a), NEW)
        works({**drivers.seen(b), "state": []}, OLD)
    with part.case("a service that was stopped comes back when the change fails too"):
        with service_of(drivers.lab, b) as unit:
            old = main_pid(drivers.lab, b, unit)
            run = drivers.run({b: many(NO_BUILD, rbln_driver_services=[unit])})
            assert run.failed(b)[-1].msg.startswith("rolled back: "), run.failed(b)[-1].msg
            assert main_pid(drivers.lab, b, unit) not in (0, old)
    with part.case("a module that does not let go, and no reboot allowed"):
        drivers.lab.fault(b, "busy")
        run = drivers.run({b: many(NEW)})
        assert run.failed(b)[-1].msg.startswith("restored: ") and "cannot be unloaded" in run.failed(b)[-1].msg, (
            run.failed(b)[-1].msg
        )
        works(drivers.seen(b), OLD)
    with part.case("a module that does not let go, and a reboot allowed: told, and the run after the reboot goes on"):
        state = direct(drivers, b, NEW, reboot_allowed=True)
        assert state["outcome"] == "reboot_required" and state["reboot_required"], state
        assert drivers.seen(b)["loaded"] == OLD and drivers.seen(b)["packages"]["rebellions-kmd"] == NEW
        drivers.lab.restart_host(b)
        drivers.good({b: many(NEW)})
        works(drivers.seen(b), NEW)
    engines = "it-drv-eng"
    hosts = Hosts(drivers.lab, {engines: "engines"}, kube=False)
    other = Drivers(hosts)
    try:
        for engine in ("docker", "podman"):
            with part.case("a container of %s with the device" % engine):
                other.put(engines, OLD)
                other.lab.exec(engines, [engine, "load", "-q", "-i", "/opt/npu-lab/images/busybox.tar"])
                argv = [
                    engine,
                    "run",
                    "-d",
                    "--name",
                    "job",
                    "--network=none",
                    "--device",
                    "/dev/rbln0",
                    "lab.local/busybox:1",
                    "sleep",
                    "600",
                ]
                container = other.lab.exec(engines, argv).stdout.strip()
                run = other.run({engines: many(NEW)})
                assert "container %s" % container[:12] in run.failed(engines)[-1].msg, run.failed(engines)[-1].msg
                assert (
                    other.lab.exec(engines, [engine, "inspect", "-f", "{{.State.Status}}", "job"]).stdout.strip()
                    == "running"
                )
                other.lab.exec(
                    engines,
                    [engine, "rm", "-f", "-t", "0", "job"] if engine == "podman" else [engine, "rm", "-f", "job"],
                )
    finally:
        hosts.leave()


def direct(drivers: Drivers, host: str, version: str, **more: t.Any) -> Data:
    """The module alone on a host, without its role: what it returned."""
    name = "rebellions-x86_64-%s.run" % version
    file = {"src": str(payload_dir() / "run" / name), "sha256": sha256("run/" + name)}
    args = {
        "source": "runfile",
        "version": version,
        "files": "{{ placed.files }}",
        "arguments": ["--silent"],
        "uninstall": ["--uninstall"],
        "fail": False,
    }
    tasks = [
        {"name": "Send", "rebellions.npu.rbln_driver_files": {"files": [file]}, "register": "placed"},
        {"name": "Install", "rebellions.npu.rbln_driver": {**args, **more}},
    ]
    path = FOLDER / "direct.json"
    path.write_text(json.dumps([{"name": "Direct", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))
    drivers.hosts.state[host] = "dirty"
    run = play(path, drivers.hosts.inventory(host))
    return run.of("Install", host)[-1].data


def ways_back(part: Part, drivers: Drivers, a: str, b: str) -> None:
    with part.case("no way back is wanted: left stopped; the next version converges"):
        drivers.put(a, OLD)
        run = drivers.run({a: many(FAULTY, rbln_driver_rollback=False)})
        state = drivers.seen(a)
        assert run.failed(a)[-1].msg.startswith("left stopped: ") and (state["loaded"], state["daemon"]) == (
            None,
            "inactive",
        ), state
        drivers.good({a: many(NEW)})
        works(drivers.seen(a), NEW)
        drivers.unchanged({a: many(NEW)})
    with part.case("a driver of which no copy is kept: told before, and left stopped when it goes wrong"):
        drivers.hosts.virgin(b)
        drivers.hosts.state[b] = "dirty"
        drivers.lab.install_driver(b, OLD)
        run = drivers.run({b: many(FAULTY)})
        assert "keeps no copy of driver %s" % OLD in run.warnings(), run.warnings()
        assert run.failed(b)[-1].msg.startswith("left stopped: "), run.failed(b)[-1].msg
        assert drivers.seen(b)["tainted"]["version"] == FAULTY
        drivers.good({b: many(OLD)})
        works(drivers.seen(b), OLD)
    with part.case("a refused version is tried again when that is asked for"):
        drivers.run({b: many(FAULTY)})
        assert drivers.seen(b)["refused"] == [FAULTY]
        stamp = drivers.seen(b)["stamp"]
        run = drivers.run({b: many(FAULTY, rbln_driver_retry=True)})
        assert run.failed(b)[-1].msg.startswith("rolled back: "), run.failed(b)[-1].msg
        assert works(drivers.seen(b), OLD)["stamp"] == stamp
    with part.case("the former package is migrated, and there is a way back to it from its repository"):
        drivers.hosts.virgin(a, b)
        for host in (a, b):
            drivers.hosts.state[host] = "dirty"
            drivers.lab.exec(host, ["dpkg", "-i", "/opt/npu-lab/payload/apt/rebellions_2.1.0_amd64.deb"])
        source = "deb [trusted=yes] file:/opt/npu-lab/payload/apt ./\n"
        drivers.lab.exec(b, ["tee", "/etc/apt/sources.list.d/lab.list"], stdin=source)
        drivers.lab.exec(
            b,
            [
                "apt-get",
                "update",
                "-o",
                "Dir::Etc::sourcelist=/etc/apt/sources.list.d/lab.list",
                "-o",
                "Dir::Etc::sourceparts=-",
            ],
        )
        run = drivers.run({a: many(OLD), b: many(FAULTY)})
        assert run.failed(a) == [], run.failed(a)[-1].msg
        works(drivers.seen(a), OLD)
        state = drivers.seen(b)
        assert run.failed(b)[-1].msg.startswith("rolled back: "), run.failed(b)[-1].msg
        assert (state["packages"], state["loaded"], state["daemon"], state["broken"]) == (
            {"rebellions": "2.1.0"},
            "2.1.0",
            "active",
            [],
        ), state
    with part.case("an older version in place of a newer one"):
        drivers.good({a: many(NEW), b: extracted(NEW)})
        drivers.good({a: many(OLD), b: extracted(OLD)})
        for host in (a, b):
            works(drivers.seen(host), OLD)


def holds(part: Part, drivers: Drivers, a: str, b: str) -> None:
    with part.case("holds of the user's own survive a change and a removal, ours do not"):
        drivers.hosts.virgin(a, b)
        drivers.good({a: many(OLD, rbln_driver_hold=False), b: many(OLD)})
        drivers.lab.exec(a, ["apt-mark", "hold", "librbln", "tar"])
        assert drivers.seen(b)["holds"] == sorted(PACKAGES)
        drivers.good({a: many(NEW), b: extracted(NEW)})
        state = works(drivers.seen(a), NEW)
        assert state["holds"] == sorted([*PACKAGES, "tar"]) and state["stamp"]["held"] == sorted(
            set(PACKAGES) - {"librbln"}
        ), state
        assert works(drivers.seen(b), NEW)["holds"] == sorted(PACKAGES)
        drivers.remove(a, b).good([a, b])
        assert [drivers.seen(host)["holds"] for host in (a, b)] == [["tar"], []], [
            drivers.seen(host)["holds"] for host in (a, b)
        ]
    with part.case("a bounded number of versions is kept"):
        for version in (OLD, NEW, OLD):
            drivers.good({a: many(version, rbln_driver_keep=1)})
        assert drivers.seen(a)["kept"] in (["runfile-" + OLD], ["runfile-" + OLD, "runfile-" + NEW]), drivers.seen(a)[
            "kept"
        ]
