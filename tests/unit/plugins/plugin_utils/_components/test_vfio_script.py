# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts for nodes of virtual machines, run by a real shell on a sysfs of files, with a stand-in kernel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.vfio_script import (
    MANAGER,
    PROVE,
    WAIT,
    environment,
)

A, B = "0000:83:00.0", "0000:84:00.0"
PUT = '  printf \'%s\\n\' "$1" > "$2"\n'
# What the kernel does on a write: unbind removes the driver, probe binds that of driver_override, else the vendor's.
KERNEL = r"""  case "$2" in
    */unbind) rm "ROOT/sys/bus/pci/devices/$1/driver" ;;
    */drivers_probe)
      wanted=""
      read -r wanted < "ROOT/sys/bus/pci/devices/$1/driver_override" || :
      if [ ! -e "ROOT/refuse" ] || [ -z "$wanted" ]; then
        ln -s "../../drivers/${wanted:-rebellions}" "ROOT/sys/bus/pci/devices/$1/driver"
      fi
      ;;
  esac
  echo "$1 ${2##*/}" >> ROOT/writes
"""
SHELLS = [shell for shell in (["/bin/sh"], ["busybox", "sh"]) if shutil.which(shell[0])]


class Node:
    """A made-up host below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("rebellions", "vfio-pci", "other"):
            (root / "sys/bus/pci/drivers" / name).mkdir(parents=True)
        (root / "sys/class/rebellions").mkdir(parents=True)
        self.opened(1, "/dev/null")

    def device(self, address: str) -> Path:
        return self.root / "sys/bus/pci/devices" / address

    def function(
        self,
        address: str,
        driver: str = "rebellions",
        node: str = "",
        group: str = "41",
        vendor: str = "0x1eff",
        **files: str,
    ) -> Node:
        place = self.device(address)
        place.mkdir(parents=True)
        for name, text in {"vendor": vendor, "class": "0x120000", "driver_override": "", **files}.items():
            (place / name).write_text(text + "\n")
        if driver:
            self.bound(address, driver)
        if group:
            (self.root / "sys/kernel/iommu_groups" / group).mkdir(parents=True, exist_ok=True)
            (place / "iommu_group").symlink_to(self.root / "sys/kernel/iommu_groups" / group)
        if node:
            (self.root / "sys/class/rebellions" / node).mkdir()
            (self.root / "sys/class/rebellions" / node / "device").symlink_to(place)
        return self

    def bound(self, address: str, driver: str) -> None:
        link = self.device(address) / "driver"
        if link.is_symlink():
            link.unlink()
        link.symlink_to("../../drivers/" + driver)

    def opened(self, pid: int, target: str) -> Node:
        place = self.root / "proc" / str(pid)
        (place / "fd").mkdir(parents=True)
        (place / "fd" / "3").symlink_to(target)
        (place / "maps").write_text("")
        return self

    def mapped(self, pid: int, target: str) -> Node:
        self.opened(pid, "/dev/null")
        (self.root / "proc" / str(pid) / "maps").write_text("7f00-7f01 rw-s 00000000 00:06 312   %s\n" % target)
        return self

    def driver(self, address: str) -> str | None:
        link = self.device(address) / "driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    def writes(self) -> list[str]:
        path = self.root / "writes"
        return path.read_text().splitlines() if path.exists() else []

    def text(self, script: str) -> str:
        for name in ("/sys/", "/proc/"):
            script = script.replace(name, str(self.root) + name)
        assert PUT in script or "put()" not in script
        return script.replace(PUT, PUT + KERNEL.replace("ROOT", str(self.root)))

    def environment(self, **more: str) -> dict[str, str]:
        values = environment()
        values["CLASS_DIR"] = str(self.root) + values["CLASS_DIR"]
        return {
            "PATH": os.environ["PATH"],
            "NODE_NAME": "n1",
            "WAIT_SECONDS": "0",
            "RELEASE_ON_EXIT": "false",
            **values,
            **more,
        }

    def run(self, script: str, *words: str, shell: Any = ("/bin/sh",), **more: str) -> subprocess.CompletedProcess[str]:
        argv = [*shell, "-c", self.text(script), "script", *words]
        return subprocess.run(
            argv, env=self.environment(**more), capture_output=True, text=True, timeout=20, check=False
        )

    def manage(self, shell: Any = ("/bin/sh",), **more: str) -> str:
        """One pass and the end by SIGTERM, as the kubelet sends it; what was printed."""
        argv = [*shell, "-c", self.text(MANAGER), "script", "manage"]
        printed = self.root / "printed"
        with printed.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(argv, env=self.environment(**more), stdout=stream, stderr=stream)
        try:
            until = time.monotonic() + 20
            while not printed.read_text() and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
        return printed.read_text()


# {name: (node, lines printed, drivers afterwards)}
PASSES: dict[str, tuple[Any, list[str], dict[str, str | None]]] = {
    "both are free": (
        lambda node: node.function(A, node="rbln0").function(B, node="rbln1", group="42"),
        [A + " is at vfio-pci", B + " is at vfio-pci"],
        {A: "vfio-pci", B: "vfio-pci"},
    ),
    "without a driver": (lambda node: node.function(A, driver=""), [A + " is at vfio-pci"], {A: "vfio-pci"}),
    "there already": (lambda node: node.function(A, driver="vfio-pci"), [A + " is at vfio-pci"], {A: "vfio-pci"}),
    "one is open": (
        lambda node: node.function(A, node="rbln0").function(B, node="rbln1", group="42").opened(77, "/dev/rbln0"),
        [A + " is in use: rbln0 by process 77", B + " is at vfio-pci"],
        {A: "rebellions", B: "vfio-pci"},
    ),
    "another number that begins alike": (
        lambda node: node.function(A, node="rbln1").opened(77, "/dev/rbln10"),
        [A + " is at vfio-pci"],
        {A: "vfio-pci"},
    ),
    "mapped, and the node is gone": (
        lambda node: node.function(A, node="rbln0").mapped(78, "/dev/rbln0 (deleted)"),
        [A + " is in use: rbln0 by process 78"],
        {A: "rebellions"},
    ),
    "a group is open": (
        lambda node: node.function(A, node="rbln0").opened(77, "/dev/rsd0"),
        [A + " is in use: rsd0 by process 77"],
        {A: "rebellions"},
    ),
    "storage is open": (
        lambda node: node.function(A, node="rbln0").opened(77, "/dev/rblnfs3"),
        [A + " is in use: rblnfs3 by process 77"],
        {A: "rebellions"},
    ),
    "the host cannot be seen": (
        lambda node: (node.function(A, node="rbln0"), (node.root / "proc/1/fd/3").unlink())[0],
        [A + " stays: the processes of the host cannot be seen"],
        {A: "rebellions"},
    ),
    "no IOMMU group": (
        lambda node: node.function(A, node="rbln0", group=""),
        [A + " stays: it has no IOMMU group; turn the IOMMU on in the BIOS and on the kernel's command line"],
        {A: "rebellions"},
    ),
    "vfio-pci is not loaded": (
        lambda node: ((node.root / "sys/bus/pci/drivers/vfio-pci").rmdir(), node.function(A))[1],
        [A + " stays: vfio-pci is not loaded on the host"],
        {A: "rebellions"},
    ),
    "somebody else's driver": (
        lambda node: node.function(A, driver="other"),
        [A + " is bound to other, and stays there"],
        {A: "other"},
    ),
    "the kernel refuses": (
        lambda node: ((node.root / "refuse").touch(), node.function(A))[1],
        [A + " was not taken by vfio-pci: look at the kernel's log"],
        {A: "rebellions"},
    ),
    "virtual functions are there": (
        lambda node: node.function(A, node="rbln0", sriov_numvfs="2").function(B, sriov_numvfs="0", driver=""),
        [B + " is at vfio-pci"],
        {A: "rebellions", B: "vfio-pci"},
    ),
    "other vendors and bridges": (
        lambda node: node.function(A, vendor="0x10de").function(B, **{"class": "0x060400"}),
        ["there is no NPU on the PCI bus"],
        {A: "rebellions", B: "rebellions"},
    ),
}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
@pytest.mark.parametrize("name", PASSES)
def test_what_is_given_to_virtual_machines(name: str, shell: list[str], tmp_path: Path) -> None:
    make, lines, drivers = PASSES[name]
    node = make(Node(tmp_path))
    assert node.manage(shell).splitlines() == lines
    assert {address: node.driver(address) for address in drivers} == drivers
    if drivers.get(A) == "rebellions":
        assert (node.device(A) / "driver_override").read_text().strip() == ""


def test_what_is_right_is_not_written_again(tmp_path: Path) -> None:
    node = Node(tmp_path).function(A, node="rbln0")
    node.manage()
    assert node.writes() == ["vfio-pci driver_override", A + " unbind", A + " drivers_probe"]
    node.manage()
    assert len(node.writes()) == 3


# {name: (what is open, node of the function in newer kernels, line printed, driver afterwards)}
ENDS: dict[str, tuple[str, str, str, str]] = {
    "free": ("", "", A + " was given back", "rebellions"),
    "another group": ("/dev/vfio/410", "", A + " was given back", "rebellions"),
    "a machine runs": ("/dev/vfio/41", "", A + " stays at vfio-pci: vfio/41 by process 90", "vfio-pci"),
    "a machine runs without a group": (
        "/dev/vfio/devices/vfio7",
        "vfio7",
        A + " stays at vfio-pci: vfio/devices/vfio7 by process 90",
        "vfio-pci",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_nobody_uses_is_given_back(name: str, tmp_path: Path) -> None:
    target, cdev, line, driver = ENDS[name]
    node = (
        Node(tmp_path)
        .function(A, driver="vfio-pci", driver_override="vfio-pci")
        .function(B, driver="vfio-pci", group="42")
    )
    if target:
        node.opened(90, target)
    if cdev:
        (node.device(A) / "vfio-dev" / cdev).mkdir(parents=True)
    assert node.manage(RELEASE_ON_EXIT="true").splitlines() == [A + " is at vfio-pci", B + " is at vfio-pci", line]
    assert (node.driver(A), node.driver(B)) == (driver, "vfio-pci")


def test_nothing_is_given_back_unless_asked(tmp_path: Path) -> None:
    node = Node(tmp_path).function(A, driver="vfio-pci", driver_override="vfio-pci")
    assert node.manage().splitlines() == [A + " is at vfio-pci"]
    assert (node.driver(A), node.writes()) == ("vfio-pci", [])


# {drivers of the functions: what is missing}
READY: dict[tuple[str, ...], str] = {
    ("vfio-pci", "vfio-pci"): "",
    ("vfio-pci", "rebellions"): B + " is bound to rebellions\n",
    ("", "vfio-pci"): A + " is bound to no driver\n",
    (): "there is no NPU on the PCI bus\n",
}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
@pytest.mark.parametrize("drivers", READY)
def test_ready_is_when_every_function_is_at_vfio_pci(
    drivers: tuple[str, ...], shell: list[str], tmp_path: Path
) -> None:
    node = Node(tmp_path)
    for address, driver in zip((A, B), drivers):
        node.function(address, driver=driver)
    missing = READY[drivers]
    done = node.run(MANAGER, "check", shell=shell)
    assert (done.returncode, done.stdout) == (1 if missing else 0, missing)
    done = node.run(WAIT, shell=shell)
    assert (done.returncode, done.stderr) == (
        (1, "not every NPU of n1 is at vfio-pci after 0 s:\n" + missing) if missing else (0, "")
    )


def test_waiting_ends_when_the_last_function_comes(tmp_path: Path) -> None:
    node = Node(tmp_path).function(A)
    rounds = tmp_path / "rounds"
    script = node.text(WAIT).replace("sleep 2", "echo >>%s; sleep 0.05" % rounds)
    process = subprocess.Popen(["/bin/sh", "-c", script], env=node.environment(WAIT_SECONDS="100000"))
    end = time.monotonic() + 60
    while not rounds.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert process.poll() is None
    node.bound(A, "vfio-pci")
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_the_proof_is_by_the_tool_of_the_host_where_it_is(shell: list[str], tmp_path: Path) -> None:
    node = Node(tmp_path).function(A, driver="vfio-pci")
    script = PROVE.replace("/host", str(tmp_path / "host"))
    done = node.run(script, shell=shell, HOST_TOOL="/opt/tool")
    left_out = "the host has no /opt/tool: its IOMMU groups and the nodes below /dev/vfio are not checked\n"
    assert (done.returncode, done.stdout) == (0, left_out)
    node.bound(A, "rebellions")
    done = node.run(script, shell=shell, HOST_TOOL="/opt/tool")
    assert (done.returncode, A + " is bound to rebellions" in done.stderr) == (1, True)
    for path, text in (("host/opt/tool", ""), ("bin/chroot", '#!/bin/sh\necho "$@"; exit 3\n')):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    # The shell of busybox takes a chroot of its own.
    paths = "%s:%s" % (tmp_path / "bin", os.environ["PATH"])
    done = node.run(script, "--timeout", "5 0", HOST_TOOL="/opt/tool", WAIT_SECONDS="90", PATH=paths)
    wanted = "%s/host /opt/tool validate --scope vfio --wait 90 --timeout 5 0\n" % tmp_path
    assert (done.returncode, done.stdout) == (3, wanted)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", ["#!/bin/sh\n" + PROVE, MANAGER], ids=["prove", "manager"])
def test_shellcheck_finds_nothing(script: str) -> None:
    done = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
