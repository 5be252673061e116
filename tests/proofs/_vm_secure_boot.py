# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure boot, from the stopped run to a loaded module.

The run stops with what the console needs, the key is queued, then enrolled at the console, and a signed module loads.
"""

from __future__ import annotations

from tests.integration._driver import OLD, STATE_DIR
from tests.proofs._proof import Part
from tests.vm._server import Server, debian

PASSWORD = "kfdhgretux"


def secure_boot(part: Part, server: Server) -> None:
    with part.case("check stops before anything is changed and says what the console needs"):
        before = server.state()
        run = server.role(debian(OLD))
        last = run.failed()[-1].msg
        assert run.code == 2 and run.changed() == [] and "Secure Boot is on" in last and "Enroll MOK" in last, last
        assert server.state() == before
    inputs = debian(OLD, rbln_driver_secure_boot="enrol", rbln_driver_mok_password=PASSWORD)
    with part.case("enrol makes a key that stays on the host, asks for its enrolment, and stops"):
        run = server.role(inputs)
        last = run.failed()[-1].msg
        assert run.code == 2 and "Enroll MOK" in last and "nothing else was changed" in last, last
        assert PASSWORD not in run.out + run.err
        modes = server.sh(
            "stat -c '%%a %%U' %s/secure-boot %s/secure-boot/*.key %s/secure-boot/*.priv 2>/dev/null || :"
            % (STATE_DIR, STATE_DIR, STATE_DIR)
        )
        assert modes.split("\n")[0] == "700 root" and "600 root" in modes, modes
        assert server.sh("mokutil --list-new").strip() and server.seen()["packages"] == {}
    with part.case("another run before the console changes nothing"):
        run = server.role(inputs)
        assert run.code == 2 and run.changed() == [] and "Enroll MOK" in run.failed()[-1].msg, run.failed()[-1].msg
    with part.case("after the enrolment at the console the module is built, signed and loaded under lockdown"):
        seconds = server.vm.enrol_mok(PASSWORD)
        run = server.good(inputs)
        state = server.works(OLD)
        signers = {
            kernel: server.sh("modinfo -k %s -F signer rebellions" % kernel).strip()
            for kernel in state["real"]["kernels"]
        }
        assert all("driver signing key" in signer for signer in signers.values()), signers
        assert "[integrity]" in server.sh("cat /sys/kernel/security/lockdown")
        assert "module verification failed" not in server.sh("journalctl -k -b --no-pager")
        part.note = "enrolled in %.0f s" % seconds
        server.role(inputs).unchanged([server.name])
    with part.case("a module that nobody signed is refused by the kernel"):
        server.sh("cp /lib/modules/$(uname -r)/updates/dkms/rebellions.ko /root/bare.ko && strip -g /root/bare.ko")
        said = server.sh("systemctl stop rbln-smd && modprobe -r rebellions; insmod /root/bare.ko 2>&1 || :")
        assert "Key was rejected" in said or "Operation not permitted" in said or "Required key" in said, said
        server.sh("modprobe rebellions; systemctl start rbln-smd")
    with part.case("remove takes driver and key back"):
        run = server.play("remove", inputs).good([server.name])
        state = server.seen()
        assert (state["packages"], state["loaded"], state["state"]) == ({}, None, None), state
        assert server.sh("ls /etc/dkms/framework.conf.d 2>/dev/null || :").strip() == ""
