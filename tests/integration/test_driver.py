# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's life by the role rbln_driver on system containers.

The driver is installed, refused, upgraded, rolled back and removed.
"""

from __future__ import annotations

import hashlib
import threading
import typing as t
from pathlib import Path

import pytest

from tests.integration._driver import (
    FAULTY,
    NEW,
    NO_BUILD,
    OLD,
    PACKAGES,
    Drivers,
    add_package,
    alive,
    extracted,
    main_pid,
    many,
    packages,
    served,
    service_of,
    signed_source,
    user_of,
    works,
)  # fmt: skip
from tests.integration._hosts import Hosts, difference
from tests.integration._play import Run
from tests.lab import Lab
from tests.lab._base import until
from tests.lab.lab import payload_dir
from tests.lab.standins.repository import Signer

# Debian 12 and Debian 13.
A, B = "it-drv-one", "it-drv-two"
BOTH = [A, B]
# What was sent to be looked at on the host, and the ready files.
OWN = ("/var/lib/rbln", "/run/rbln")


@pytest.fixture(scope="module")
def drivers(lab: Lab, staged: None) -> t.Iterator[Drivers]:
    hosts = Hosts(lab, {A: "containerd2", B: "containerd17"}, kube=False)
    hosts.virgin()
    yield Drivers(hosts)
    hosts.leave()


def test_refused_on_the_controller_and_nothing_is_sent(drivers: Drivers, tmp_path: Path) -> None:
    """Each case is a host of the inventory; all are the same machine."""
    drivers.hosts.virgin(A)
    with Signer() as other:
        (tmp_path / "other.asc").write_bytes(other.public(armored=True))
    run_dir = payload_dir() / "run"
    sign: dict[str, t.Any] = {"rbln_driver_runfile_signature": "%s/rebellions-{arch}-{version}.run.asc" % run_dir}
    key: dict[str, t.Any] = {"rbln_driver_runfile_keyring": str(payload_dir() / "keys/rebellions.asc")}
    cases: dict[str, tuple[dict[str, t.Any], tuple[str, ...]]] = {
        "digest": (many(OLD, rbln_driver_runfile_digests={OLD: "0" * 64}), ("not " + "0" * 64, "nothing was sent")),
        "no-digest": (many(OLD, rbln_driver_runfile_digests={}), ("is not set", "rbln_driver_runfile_sha256")),
        "other-key": (
            many(OLD, **sign, rbln_driver_runfile_keyring=str(tmp_path / "other.asc")),
            ("no valid signature", "nothing was sent"),
        ),
        "other-file": (
            many(OLD, **key, rbln_driver_runfile_signature="%s/rebellions-x86_64-%s.run.asc" % (run_dir, NEW)),
            ("no valid signature",),
        ),
        "no-keyring": (many(OLD, **sign), ("no keyring",)),
        "lost-keyring": (many(OLD, **sign, rbln_driver_runfile_keyring="/nowhere.asc"), ("/nowhere.asc", "public key")),
        "no-server": (
            many(OLD, rbln_driver_runfile="http://127.0.0.1:1/"),
            ("cannot be downloaded", "http://127.0.0.1:1/"),
        ),
        "password": (
            many(OLD, rbln_driver_runfile="http://user:hidden@127.0.0.1:1/"),
            ("a name or a password", ".netrc"),
        ),
    }
    run = drivers.run({case: {"ansible_host": A, **row[0]} for case, row in cases.items()})
    assert run.code == 2 and run.changed() == []
    for case, (_inputs, words) in cases.items():
        last = run.failed(case)[-1]
        assert len(run.failed(case)) == 1 and all(word in last.msg for word in words), (case, last.msg)
    assert "hidden" not in "".join(one.msg for one in run.results) + run.err
    assert difference(drivers.hosts.fresh[A], drivers.disk(A)) == []
    assert drivers.lab.exec(A, "ls /root/.ansible/tmp 2>/dev/null || :").stdout == ""


def test_first_install_from_a_server_is_fetched_once_and_the_next_run_runs_no_package_program(
    drivers: Drivers, tmp_path: Path
) -> None:
    drivers.hosts.virgin()
    with served(payload_dir() / "run") as (address, paths):
        inputs = many(
            OLD,
            rbln_driver_runfile=address,
            rbln_driver_runfile_signature=address + "rebellions-{arch}-{version}.run.asc",
            rbln_driver_runfile_keyring=str(payload_dir() / "keys/rebellions.asc"),
            rbln_driver_cache=str(tmp_path / "cache"),
        )
        run = drivers.good({host: inputs for host in BOTH})
        assert paths.count("/rebellions-x86_64-%s.run" % OLD) == 1, paths
        assert set(paths) == {"/rebellions-x86_64-%s.run%s" % (OLD, end) for end in ("", ".asc")}
        for host in BOTH:
            change = run.one("Change the driver, and go back when that fails", host).data
            assert change["outcome"] == "installed" and change["previous"] is None
            state = works(drivers.seen(host), OLD)
            assert state["holds"] == state["stamp"]["held"] == sorted(PACKAGES) and state["kept"] == ["runfile-" + OLD]
            assert state["stamp"]["files"] == [
                {"name": "rebellions-x86_64-%s.run" % OLD, "sha256": inputs["rbln_driver_runfile_digests"][OLD]}
            ]
            assert state["stamp"]["previous"] is None and state["stamp"]["installed"]["by"]
        del paths[:]
        with drivers.managers(A) as started:
            again = drivers.unchanged({host: inputs for host in BOTH})
        assert started == [] and paths == []
        # These hosts have no host tool: one command asks for it, and the module looks.
        assert [name for name, _line in sorted(again.executions)] == sorted([*BOTH, *BOTH])


def test_I05_module_in_use_by_a_control_node_or_by_nobody_that_is_seen(drivers: Drivers) -> None:
    """I05: nothing stops where the module's users are not all seen, and handles of control nodes are users."""
    drivers.put(A, OLD)
    drivers.put(B, OLD)
    drivers.lab.exec(A, "mknod -m 666 /dev/rbln_ctl c 1 8")
    # The stand-in of the module does not count its users.
    drivers.lab.exec(B, "echo 50 >/sys/module/rebellions/refcnt")
    try:
        with user_of(drivers.lab, A, "/dev/rbln_ctl") as job, service_of(drivers.lab, B) as unit:
            pid = main_pid(drivers.lab, B, unit)
            run = drivers.run({A: many(NEW), B: many(NEW, rbln_driver_in_use="stop", rbln_driver_services=[unit])})
            said = {host: run.failed(host)[-1].msg for host in BOTH}
            assert "npu-job (pid %d" % job in said[A] and "on rbln_ctl" in said[A], said[A]
            assert "references without an open handle" in said[B] and "npu-web" not in said[B], said[B]
            assert "nothing was changed" in said[A] and "nothing was changed" in said[B], said
            assert main_pid(drivers.lab, B, unit) == pid
    finally:
        drivers.lab.exec(A, "rm /dev/rbln_ctl")
        drivers.lab.exec(B, "echo 0 >/sys/module/rebellions/refcnt")
    for host in BOTH:
        works({**drivers.seen(host), "state": []}, OLD)


def test_H14_image_mode_host_is_one_stop_and_a_preinstalled_driver_works(drivers: Drivers) -> None:
    """H14: the system comes as an image with a read-only /usr; nothing is said of room, kernels or headers."""
    drivers.put(A, OLD)
    drivers.lab.exec(A, "touch /run/ostree-booted; mount --bind /usr /usr; mount -o remount,bind,ro /usr")
    try:
        run = drivers.run({A: many(NEW)})
        message = run.failed(A)[-1].msg
        assert run.code == 2 and run.changed() == []
        assert "its system comes as an image (ostree)" in message and message.count(" Next: ") == 1, message
        assert "rbln_driver_source: preinstalled" in message, message
        assert not [word for word in ("MiB", "header", "matrix", "disk_free") if word in message], message
        drivers.unchanged({A: {**many(OLD), "rbln_driver_source": "preinstalled"}})
    finally:
        drivers.lab.exec(A, "rm -f /run/ostree-booted; mount -o remount,bind,rw /usr; umount -l /usr")
    works({**drivers.seen(A), "state": []}, OLD)


def test_in_use_is_refused_and_a_named_service_is_stopped(drivers: Drivers) -> None:
    drivers.put(A, OLD)
    drivers.put(B, OLD)
    with service_of(drivers.lab, B) as unit, user_of(drivers.lab, A) as job, user_of(
        drivers.lab, B, program="npu-late"
    ) as late:
        old_pid = main_pid(drivers.lab, B, unit)
        before = {host: drivers.disk(host) for host in BOTH}
        run = drivers.run({A: many(NEW), B: many(NEW, rbln_driver_services=[unit])})
        assert run.code == 2
        message = run.failed(A)[-1].msg
        assert "npu-job (pid %d" % job in message and "rbln0" in message and "nothing was changed" in message, message
        assert "600" not in message and alive(drivers.lab, A, job)
        assert "npu-late (pid %d" % late in run.failed(B)[-1].msg and "npu-web" not in run.failed(B)[-1].msg, (
            run.failed(B)[-1].msg
        )
        for host in BOTH:
            rest = [line for line in difference(before[host], drivers.disk(host)) if not line[1:].startswith(OWN)]
            assert rest == [] and works({**drivers.seen(host), "state": []}, OLD), rest
        # The process that was not named is ended, the named service comes back.
        run = drivers.good({B: many(NEW, rbln_driver_in_use="stop", rbln_driver_services=[unit])})
        assert not alive(drivers.lab, B, late)
        assert main_pid(drivers.lab, B, unit) not in (0, old_pid)
    works(drivers.seen(B), NEW)
    assert [
        holder["name"] for holder in run.one("Change the driver, and go back when that fails", B).data["in_use"]
    ] == ["npu-late"]


# An archive that unpacks a script into its temporary directory and runs it there, as makeself does.
UNPACKS = """#!/bin/sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tail -n +%d "$0" >"$work/setup.sh" && chmod 700 "$work/setup.sh" && "$work/setup.sh" "$@"
exit $?
"""


def test_H16_noexec_tmp_runfile(drivers: Drivers, tmp_path: Path) -> None:
    """H16: an archive that runs what it unpacks is installed where /tmp, and /var too, are mounted noexec.

    Where no directory lets programs run, the old driver stays as it is.
    """
    drivers.put(A, OLD)
    drivers.put(B, NEW)
    head = (UNPACKS % (UNPACKS.count("\n") + 1)).encode()
    digests: dict[str, str] = {}
    for version in (OLD, NEW):
        name = "rebellions-x86_64-%s.run" % version
        (tmp_path / name).write_bytes(head + (payload_dir() / "run" / name).read_bytes())
        digests[version] = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    given: dict[str, t.Any] = {"rbln_driver_runfile": "%s/" % tmp_path, "rbln_driver_runfile_digests": digests}
    hard = {A: ("/tmp",), B: ("/tmp", "/var/lib/rbln", "/opt", "/usr/local/lib", "/root")}
    try:
        for host, paths in hard.items():
            for path in paths:
                mount = "mkdir -p {0}; mount --bind {0} {0}; mount -o remount,bind,noexec {0}"
                drivers.lab.exec(host, mount.format(path))
        run = drivers.run({A: many(NEW, **given), B: many(OLD, **given)})
        works(drivers.seen(A), NEW)
        message = run.failed(B)[-1].msg
        assert "no directory to unpack itself" in message and "/var/lib/rbln is mounted noexec" in message, message
        works({**drivers.seen(B), "state": []}, NEW)
        # Without exec below /var the archive is run where it unpacks itself.
        drivers.good({B: many(OLD, **given, rbln_driver_temporary_directory="/srv")})
        works(drivers.seen(B), OLD)
        assert drivers.lab.exec(B, "ls -A /srv").stdout == ""
    finally:
        for host, paths in hard.items():
            for path in paths:
                drivers.lab.exec(host, "umount %s || :" % path)


def test_a_failed_build_and_a_failed_validation_lead_back(drivers: Drivers) -> None:
    drivers.put(A, OLD)
    drivers.put(B, OLD)
    run = drivers.run({A: many(NO_BUILD), B: many(FAULTY)})
    assert run.code == 2
    for host, words in ((A, ("ended with code",)), (B, ("validation failed", "status"))):
        last = run.failed(host)[-1]
        assert last.msg.startswith("rolled back: ") and "Driver %s works again" % OLD in last.msg, last.msg
        assert all(word in last.msg for word in words), last.msg
        state = works(drivers.seen(host), OLD)
        assert (
            state["holds"] == sorted(PACKAGES)
            and state["stamp"]["installed"]["time"]
            and "driver-ready" in state["ready"]
        ), state
    assert drivers.seen(A)["refused"] == [] and drivers.seen(B)["refused"] == [FAULTY]
    # What failed its validation is not tried again; a build may succeed the next time.
    before = drivers.disk(B)
    run = drivers.run({B: many(FAULTY)})
    assert (
        run.code == 2
        and "failed its validation on this host" in run.failed(B)[-1].msg
        and "rbln_driver_retry" in run.failed(B)[-1].msg
    )
    assert difference(before, drivers.disk(B)) == []


# PIDs of the processes that have the lock's descriptor; the module is the one that runs Python.
HELD = """for fd in /proc/[0-9]*/fd/*; do [ "$(readlink $fd)" = /var/lib/rbln ] || continue
pid=${fd#/proc/}; pid=${pid%%%%/*}; case $(readlink /proc/$pid/exe) in %s) echo $pid ;; esac; done | sort -u"""


def test_an_installer_that_outlives_its_change_keeps_the_next_one_away(drivers: Drivers) -> None:
    drivers.put(A, OLD)
    drivers.lab.fault(A, "install-hang", "60")
    runs: list[Run] = []
    change = threading.Thread(target=lambda: runs.append(drivers.run({A: many(NEW)})))
    change.start()
    until(
        120, "the installer hangs", lambda: drivers.lab.exec(A, ["pgrep", "-xf", "sleep 60"], check=False).stdout != ""
    )
    module = drivers.lab.exec(A, HELD % "*python*").stdout.split()
    assert len(module) == 1, module
    drivers.lab.exec(A, ["kill", "-9", *module])
    change.join()
    assert runs[0].code == 2 and "was interrupted" in runs[0].failed(A)[-1].msg, runs[0].failed(A)[-1].msg
    living = drivers.lab.exec(A, HELD % "*").stdout.split()
    assert living and module[0] not in living
    before = drivers.seen(A)
    refused = drivers.run({A: many(NEW)})
    last = refused.failed(A)[-1].msg
    assert refused.code == 2 and "still runs on this host" in last and "Nothing was changed" in last, last
    assert all("(pid %s)" % pid in last for pid in living) and "sleep (pid " in last and "kill " in last, last
    assert drivers.seen(A)["journal"] == before["journal"] and drivers.lab.exec(A, HELD % "*").stdout.split() == living
    drivers.lab.fault(A, "install-hang", None)
    until(90, "the installer ends", lambda: drivers.lab.exec(A, HELD % "*").stdout == "")
    drivers.good({A: many(NEW)})
    state = works(drivers.seen(A), NEW)
    assert state["journal"] is None and state["holds"] == sorted(PACKAGES)
    drivers.unchanged({A: many(NEW)})


def test_where_the_way_back_fails_too_the_host_is_tainted_and_the_next_run_converges(drivers: Drivers) -> None:
    drivers.put(A, OLD)
    drivers.lab.fault(A, "load")
    run = drivers.run({A: many(NEW)})
    last = run.failed(A)[-1].msg
    assert (
        run.code == 2 and last.startswith("left stopped: ") and "Rolling back failed too" in last and "tainted" in last
    ), last
    state = drivers.seen(A)
    assert (state["loaded"], state["daemon"], state["ready"]) == (None, "inactive", []), state
    assert state["tainted"]["version"] == NEW and state["journal"]["previous"]["version"] == OLD
    drivers.lab.fault(A, "load", None)
    drivers.good({A: many(NEW)})
    state = works(drivers.seen(A), NEW)
    assert state["holds"] == sorted(PACKAGES)
    drivers.unchanged({A: many(NEW)})


def test_apt_is_asked_first_and_refuses_what_is_beyond_the_plan(drivers: Drivers, tmp_path: Path) -> None:
    """The packages out of the runfile; librbln is in the way of a foreign package."""
    drivers.put(B, NEW)
    add_package(drivers.lab, B, tmp_path, "npu-app", "librbln (>= 3.4)")
    before = drivers.disk(B)
    run = drivers.run({B: extracted(OLD)})
    assert (
        run.code == 2
        and "would also remove npu-app" in run.failed(B)[-1].msg
        and "nothing was changed" in run.failed(B)[-1].msg
    ), run.failed(B)[-1].msg
    assert [line for line in difference(before, drivers.disk(B)) if not line[1:].startswith(OWN)] == []
    drivers.good({B: extracted(OLD, rbln_driver_package_allowed=["npu-*"])})
    works(drivers.seen(B), OLD)
    assert drivers.lab.exec(B, "dpkg-query -W -f '${Status}' npu-app 2>/dev/null || :").stdout in (
        "",
        "unknown ok not-installed",
    )


def test_names_of_the_signed_repository_and_removal_leaves_nothing(drivers: Drivers) -> None:
    drivers.hosts.virgin(A)
    drivers.hosts.virgin(B)
    parts = [*PACKAGES, "rebellions-driver"]
    drivers.lab.exec(B, ["apt-mark", "hold", "tar"])
    drivers.good({A: packages(NEW, signed_source()), B: many(OLD)})
    works(drivers.seen(A), NEW, "package", parts)
    assert drivers.seen(A)["holds"] == sorted(parts)
    run = drivers.remove(*BOTH).good(BOTH)
    for host in BOTH:
        assert run.one("Absent | Remove the driver and what it came with", host).data["left"] == []
        state = drivers.seen(host)
        assert (state["packages"], state["loaded"], state["on_disk"], state["state"], state["devices"]) == (
            {},
            None,
            None,
            None,
            [],
        ), state
        assert drivers.rest(host, drivers.hosts.fresh[host]) == []
    assert drivers.seen(B)["holds"] == ["tar"]
    assert drivers.remove(*BOTH).good(BOTH).changed() == []
