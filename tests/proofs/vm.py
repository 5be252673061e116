# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the layer `vm` has no time for.

Power lost at every part of a change, loading that hangs, a module that is held, secure boot up to the enrolment at the
console, a node, one that is upgraded in service, and one whose NPUs go to virtual machines.
One virtual machine runs at a time. The sample loses power once, and removes the driver.
"""

from __future__ import annotations

import os
import shutil
import sys
import typing as t

from tests.integration._driver import FAULTY, NEW, OLD, STATE_DIR, alive, role_book, user_of
from tests.integration._play import FOLDER, STAGED
from tests.lab._vm import Vm
from tests.proofs._proof import SAMPLE, Part, Proof, named
from tests.proofs._vm_node import node
from tests.proofs._vm_rollout import rollout
from tests.proofs._vm_secure_boot import secure_boot
from tests.proofs._vm_vfio import vfio
from tests.tools.stage import stage
from tests.vm._server import CHANGE, Server, debian, unpacked

JOURNAL = STATE_DIR + "/journal.json"
# What the machine looks at, as fast as it can, until the power goes.
MOMENTS = {
    "the service stops": 'grep -qs \'"step": "stop"\' %s' % JOURNAL,
    "packages are unpacked": (
        "ls /var/lib/dpkg/info/*.dpkg-new /usr/src/rebellions-*/*.dpkg-new /var/lib/dpkg/tmp.ci/control"
    ),
    "the module is built": "pgrep -x cc1",
    "the module is installed": "pgrep -x depmod",
    "the module is loaded": 'grep -qs \'"step": "load"\' %s' % JOURNAL,
    "the driver is validated": 'grep -qs \'"step": "validate"\' %s' % JOURNAL,
    "the change is noted": 'grep -qs \'"step": "commit"\' %s' % JOURNAL,
}
SAMPLED = "the driver is validated"


def removed(part: Part, server: Server) -> None:
    with part.case("removal leaves nothing"):
        server.play("remove", debian("")).good([server.name])
        real, state = server.real(), server.seen()
        assert real["dkms"] == [] and real["bound"] == [] and real["opens"] == {} and real["majors"] == [], real
        assert all(
            module == {"version": "", "srcversion": "", "vermagic": ""} for module in real["modules"].values()
        ), real["modules"]
        assert (state["packages"], state["broken"], state["holds"], state["loaded"], state["state"]) == (
            {},
            [],
            [],
            None,
            None,
        ), state
        trees = "/lib/modules /usr/src /var/lib /etc /usr/lib/systemd /usr/lib/udev /run/cdi /run/rbln"
        left = server.sh("find %s \\( -iname '*rebellions*' -o -iname '*rbln*' \\) 2>/dev/null || :" % trees)
        assert set(left.split()) <= {"/etc/dkms/rebellions.conf"}, left
        assert server.vm.exec(["test", "-e", STATE_DIR], check=False).returncode == 1


def power(part: Part, server: Server) -> None:
    """From one version to the other and back.

    The packages are as before, as wanted, or told by the journal, and the next run converges.
    """
    wanted, told = OLD, []
    for moment, look in MOMENTS.items():
        if SAMPLE and moment != SAMPLED:
            continue
        with part.case("power lost while " + moment):
            server.fault("install-here-only")
            server.sh("sync")
            inputs = unpacked(wanted) if wanted == OLD else debian(wanted)
            with server.while_playing(role_book(), inputs) as end:
                server.sh("until %s >/dev/null 2>&1; do :; done" % look, 600)
                server.pull_the_plug()
                seconds = server.switch_on()
                run = end()
            assert run.code == 2 and "was interrupted" in run.failed()[-1].msg, (
                "the change was over before the power went"
            )
            state = server.seen()
            step = (state["journal"] or {}).get("step")
            assert step or state["packages"].get("rebellions-kmd") in (None, OLD, NEW) and not state["broken"], state
            server.fault("install-here-only")
            run = server.good(inputs)
            assert not step or "interrupted at %s" % step in run.warnings(), run.warnings()
            server.works(wanted, [server.vm.kernel()])
            told.append("%s: %s, boot %.0f s" % (moment, step, seconds))
            wanted = NEW if wanted == OLD else OLD
    part.note = "; ".join(told)
    removed(part, server)


def hanging(part: Part, server: Server) -> None:
    """The installer leaves the loading to us.

    The limit holds, the host is left stopped and says so, and the next run converges.
    """
    faults = ("install-here-only", "install-no-load")
    for name, how in (
        ("ends by a signal", "options rebellions hang=600"),
        ("ends by no signal", "options rebellions stuck=60"),
    ):
        with part.case("loading hangs and " + name):
            server.put(OLD)
            for fault in faults:
                server.fault(fault)
            server.sh("mkdir -p /run/modprobe.d; echo '%s' >/run/modprobe.d/hang.conf" % how)
            run = server.role(debian(NEW, rbln_driver_load_timeout=8))
            last = run.failed()[-1].msg
            assert run.code == 2 and last.startswith("left stopped: ") and "did not end" in last, last
            state = server.seen()
            assert state["tainted"]["version"] == NEW and state["ready"] == [] and state["daemon"] != "active", state
            server.sh("rm /run/modprobe.d/hang.conf; until ! pgrep -x modprobe; do sleep 1; done")
            run = server.good(debian(NEW))
            server.works(NEW, [server.vm.kernel()])
            assert run.of(CHANGE)[-1].data["outcome"] in ("upgraded", "installed")


def always(part: Part, server: Server) -> None:
    """A reboot after each change, and none without one."""
    with part.case("reboot always"):
        boot = server.vm.boot_id()
        inputs = debian(OLD, rbln_driver_reboot="always")
        server.good(inputs)
        assert server.vm.boot_id() != boot
        server.works(OLD)
        boot = server.vm.boot_id()
        server.role(inputs).unchanged([server.name])
        assert server.vm.boot_id() == boot


def rolled_back(part: Part, server: Server) -> None:
    """A driver that fails its validation goes back, with everything loaded for real."""
    with part.case("a driver that fails its validation"):
        server.put(NEW)
        good = server.real()["loaded"]
        server.fault("install-here-only")
        with user_of(server.lab, server.name) as job:
            run = server.role(unpacked(FAULTY, rbln_driver_in_use="stop"))
            assert not alive(server.lab, server.name, job)
        last = run.failed()[-1].msg
        assert run.code == 2 and last.startswith("rolled back: ") and "status" in last, last
        assert "Driver %s works again" % NEW in last, last
        assert "stand-in %s: " % FAULTY in server.sh("journalctl -k -b --no-pager")
        state = server.works(NEW, [server.vm.kernel()])
        assert state["real"]["loaded"] == good and state["refused"] == [FAULTY] and "driver-ready" in state["ready"], (
            state
        )


# Open files that no process has: they are on their way through a socket.
UNSEEN = """
import os, socket, time
one, other = socket.socketpair()
files = [os.open(path, os.O_RDONLY) for path in ("/dev/rbln0", "/dev/rsd0")]
socket.send_fds(one, [b"x"], files)
for file in files:
    os.close(file)
print("held", flush=True)
time.sleep(3600)
"""


def held(part: Part, server: Server) -> None:
    """I05: what holds the module without being seen refuses the change; a module in use goes by a reboot."""
    server.put(NEW)
    second = server.vm.kernels()[1]
    boot = server.vm.boot_id()
    with part.case("references that no process explains refuse before anything is stopped"):
        server.vm.exec(["tee", "/root/unseen.py"], stdin=UNSEEN)
        server.sh(
            "systemd-run --unit npu-unseen python3 /root/unseen.py;"
            " until journalctl -u npu-unseen | grep -q held; do sleep 1; done"
        )
        daemon = server.sh("systemctl show -p MainPID rbln-smd")
        refused = server.role(unpacked(OLD, rbln_driver_in_use="stop"))
        message = refused.failed(server.name)[-1].msg
        assert "references without an open handle" in message and "nothing was changed" in message, message
        assert server.sh("systemctl show -p MainPID rbln-smd") == daemon
        server.sh("systemctl stop npu-unseen; rm /root/unseen.py")
    with part.case("a module in use goes by a reboot, into another kernel"):
        server.fault("busy")
        server.next_boot(second)
        run = server.play("site", unpacked(OLD, rbln_driver_reboot="if_required"), "--tags", "driver").good(
            [server.name]
        )
        outcomes = [result.data["outcome"] for result in run.of(CHANGE)]
        assert outcomes == ["reboot_required", "upgraded"], outcomes
        assert server.vm.boot_id() != boot and server.vm.kernel() == second
        pools = [result.data["add_group"] for result in run.of("Observe the host")]
        assert len(set(pools)) == 2 and pools[-1].endswith(second.translate(str.maketrans(".-", "__"))), pools
        server.works(OLD)
        server.role(unpacked(OLD)).unchanged([server.name])


def firmware(part: Part, server: Server) -> None:
    with part.case("firmware that differs is told, and flashed while the module is unloaded"):
        server.put(NEW)
        server.fault("fw-ver", OLD)
        server.sh("rm -rf /var/lib/npu-lab/cards /etc/modprobe.d/npu-lab-fw.conf")
        server.sh("systemctl stop rbln-smd; modprobe -r rebellions; modprobe rebellions; systemctl start rbln-smd")
        assert server.real()["firmware"] == [OLD, OLD]
        here = server.vm.kernel()
        run = server.good(debian(NEW, rbln_driver_firmware="flash", rbln_driver_headers="ignore"))
        change = run.one(CHANGE, server.name).data
        assert [card["ok"] for card in change["firmware"]] == [True, True], change["firmware"]
        real = server.real()
        assert real["firmware"] == [NEW, NEW] and real["loaded"] == real["modules"][here]["srcversion"], real
        server.fault("fw-ver", "-")


PLAIN: dict[str, t.Callable[[Part, Server], None]] = {
    "power": power,
    "rolled_back": rolled_back,
    "hanging": hanging,
    "always": always,
    "held": held,
    "firmware": firmware,
}


def main() -> int:
    if os.geteuid() != 0:
        print("proof-vm starts virtual machines and needs root. Next: sudo make proof-vm", file=sys.stderr)
        return 2
    parts = {**PLAIN, "secure_boot": secure_boot, "node": node, "rollout": rollout, "vfio": vfio}
    only = named(parts, sys.argv[1:]) or (["power"] if SAMPLE else list(parts))
    proof = Proof("vm")
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    try:
        for name in only:
            vm = Vm("vm-proof", secure_boot=name == "secure_boot", kube=name in ("node", "rollout"))
            vm.down()
            with proof.part(name) as part:
                try:
                    vm.up()
                    parts[name](part, Server(vm))
                finally:
                    vm.down()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
