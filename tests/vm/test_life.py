# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver's life on a machine with kernels of its own, from nothing to the kernel that boots next.

The tests run in this order, and each continues where the last one ended. Tests on system containers prove that a change
is refused while a device is in use; `make proof-vm` proves the rest of a life.
"""

from __future__ import annotations

from tests.integration._driver import NEW, OLD
from tests.vm._server import CHANGE, Server, debian, unpacked

UNIT = """[Service]
ExecStart=/bin/sh -c 'exec 9</dev/rbln1; exec sleep infinity'
"""
# A process with a device open, which ends when the change has looked for users of the NPUs a third time.
LATE = """cp /usr/bin/sleep /tmp/npu-late; exec 9</dev/rbln0
setsid /tmp/npu-late 600 >/dev/null 2>&1 & late=$!; exec 9<&-; echo $late
(until pgrep -f '[A]nsiballZ_rbln_driver.py'; do sleep 0.2; done
for look in 1 2 3; do until pgrep -x rbln-smi; do sleep 0.05; done; sleep 1.2; done; kill $late) >/dev/null 2>&1 &"""


def test_a_first_installation_with_the_packages_of_the_runfile(server: Server) -> None:
    virgin = server.real()
    assert len(virgin["kernels"]) == 2 and virgin["dkms"] == [] and virgin["opens"] == {} and virgin["bound"] == [], (
        virgin
    )
    run = server.play("site", unpacked(OLD), "--tags", "driver").good([server.name])
    change = run.one(CHANGE, server.name).data
    assert (change["outcome"], change["previous"]) == ("installed", None), change
    state = server.works(OLD)
    pool = run.of("Observe the host")[0].data["add_group"]
    assert pool == "npu_pool_debian_12_k%s" % state["real"]["running"].translate(str.maketrans(".-", "__")), pool


def test_the_second_run_changes_nothing(server: Server) -> None:
    before = server.state()
    server.play("site", unpacked(OLD), "--tags", "driver").unchanged([server.name])
    assert server.state() == before


def test_an_upgrade_by_the_runfile_waits_stops_a_service_and_swaps_the_module(server: Server) -> None:
    server.put(OLD)
    old = server.real()["identity"]
    server.vm.exec(["tee", "/etc/systemd/system/npu-web.service"], stdin=UNIT)
    server.sh("systemctl daemon-reload; systemctl start npu-web")
    first = server.sh("systemctl show -p MainPID --value npu-web")
    # Other kernels are left for the next test.
    server.fault("install-here-only")
    late = int(server.sh(LATE))
    run = server.good(
        debian(NEW, rbln_driver_in_use="wait", rbln_driver_in_use_timeout=300, rbln_driver_services=["npu-web.service"])
    )
    change = run.one(CHANGE, server.name).data
    assert (change["outcome"], change["previous"]) == ("upgraded", OLD)
    assert [holder["pid"] for holder in change["in_use"]] == [late], change["in_use"]
    state = server.works(NEW, [server.vm.kernel()])
    assert state["real"]["identity"] != old and state["stamp"]["previous"] == {"version": OLD, "source": "runfile"}
    shown = server.sh("systemctl show -p MainPID,ActiveState --value npu-web").split()
    assert "active" in shown and first.strip() not in shown, shown
    server.sh("systemctl stop npu-web; rm /etc/systemd/system/npu-web.service; systemctl daemon-reload")


def test_the_kernel_that_boots_next_is_built_for_and_held(server: Server) -> None:
    server.put(NEW)
    running, other = server.vm.kernels()
    if server.real()["modules"][other]["version"]:
        server.sh("dkms remove rebellions/%s -k %s" % (NEW, other))
    held = dict(rbln_driver_kernel_hold=True)
    server.next_boot(other)
    with server.without_headers(other):
        checked, ignored = [
            server.play("plan", debian(NEW, rbln_driver_headers=policy, **held)) for policy in ("check", "ignore")
        ]
    plan = checked.good([server.name]).one("rbln_preflight : Plan", server.name).data
    assert [stop["code"] for stop in plan["stops"]] == ["prerequisites_missing"] and "linux-headers-" + other in plan[
        "stops"
    ][0]["next_step"], plan["stops"]
    plan = ignored.good([server.name]).one("rbln_preflight : Plan", server.name).data
    assert [
        item["detail"] for item in plan["cautions"] if item["code"] == "reboot_not_pending" and other in item["detail"]
    ], plan["cautions"]
    before = server.sh("cat /sys/module/rebellions/refcnt; systemctl show -p MainPID rbln-smd")
    run = server.good(debian(NEW, **held))
    assert run.one(CHANGE, server.name).data["outcome"] == "prepared"
    state = server.works(NEW)
    kernel_packages = {
        "linux-image-cloud-amd64",
        "linux-headers-cloud-amd64",
        "linux-image-" + running,
        "linux-headers-" + running,
    }
    assert kernel_packages <= set(state["holds"]) and set(state["stamp"]["held_kernel"]) >= kernel_packages, state[
        "holds"
    ]
    assert server.sh("cat /sys/module/rebellions/refcnt; systemctl show -p MainPID rbln-smd") == before
    server.role(debian(NEW, **held)).unchanged([server.name])
    server.sh("grub-editenv /boot/grub/grubenv unset next_entry")
