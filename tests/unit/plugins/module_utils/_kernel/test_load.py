# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loading and unloading the module: what the kernel said, and no waiting without end."""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import (
    ABSENT,
    DENIED,
    TIMEOUT,
    VALUE,
    Completed,
    Host,
    Probe,
)
from ansible_collections.rebellions.npu.plugins.module_utils._kernel import load as kmod

MODULE = "rebellions"
LOG = (
    "rebellions: loading out-of-tree module\nusb 1-1: new device\nrebellions: one\nrebellions: two\n"
    "rebellions: card 0 does not answer\n"
)


class Kernel:
    """modprobe and /sys/module of a host; `answer` is what modprobe gives, and `effect` whether it does it."""

    def __init__(self, root: Path, answer: Probe, effect: bool = True, log: str | None = LOG) -> None:
        self.sys, self.answer, self.effect, self.log = root / "sys/module", answer, effect, log
        self.sys.mkdir(parents=True)
        self.asked: list[tuple[list[str], float]] = []
        self.host = Host(str(root), self.run)

    def load(self, version: str = "3.2.2\n", users: str = "0\n") -> Kernel:
        (self.sys / MODULE).mkdir()
        (self.sys / MODULE / "version").write_text(version, encoding="utf-8")
        (self.sys / MODULE / "refcnt").write_text(users, encoding="utf-8")
        return self

    def run(self, argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        self.asked.append((list(argv), timeout))
        if argv[0] == "dmesg":
            return Probe(DENIED, None, "no") if self.log is None else Probe(VALUE, Completed(0, self.log, ""))
        if self.effect and argv[1] == "-r":
            shutil.rmtree(self.sys / MODULE)
        elif self.effect and self.answer is FINE:
            self.load()
        return self.answer


def said(rc: int, err: str = "") -> Probe:
    return Probe(VALUE, Completed(rc, "", err))


FINE = said(0)
HUNG = Probe(
    TIMEOUT, None, "modprobe gave no answer in 5 s, and process 7 cannot be killed: it waits inside the kernel"
)


@pytest.mark.parametrize("text, version", [("3.2.2\n", "3.2.2"), ("", ""), (" 3.2.2-rebel1 \n", "3.2.2-rebel1")])
def test_the_loaded_version(tmp_path: Path, text: str, version: str) -> None:
    assert kmod.loaded_version(Kernel(tmp_path, FINE).load(text).host, MODULE) == version


def test_a_module_without_a_version_is_loaded_all_the_same(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, FINE).load()
    (kernel.sys / MODULE / "version").unlink()
    assert kmod.loaded_version(kernel.host, MODULE) == ""


def test_not_loaded_is_not_unknown(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, FINE)
    assert kmod.loaded_version(kernel.host, MODULE) is None
    kernel.sys.rmdir()
    with pytest.raises(
        NpuError, match="^/sys does not show whether rebellions is loaded: .* Next: Run as root with /sys mounted.$"
    ):
        kmod.loaded_version(kernel.host, MODULE)


def test_unloading(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, FINE)
    assert kmod.unload(kernel.host, MODULE, 5) is False and kernel.asked == []
    kernel.load()
    assert kmod.unload(kernel.host, MODULE, 5) is True
    assert kernel.asked == [(["modprobe", "-r", MODULE], 5)]


@pytest.mark.parametrize(
    "answer, users, message",
    [
        (
            said(1, "modprobe: FATAL: Module rebellions is in use.\n"),
            "2\n",
            "modprobe: FATAL: Module rebellions is in use (in use 2 times)",
        ),
        (said(1, "modprobe: ERROR: x\n"), "0\n", "modprobe: ERROR: x"),
        (HUNG, "-1\n", HUNG.detail + " (in use -1 times)"),
        (Probe(ABSENT, None, "No such file or directory"), "0\n", "No such file or directory"),
        (FINE, "1\n", "modprobe -r reports success, and it is still loaded (in use 1 times)"),
    ],
)
def test_a_module_that_stays_is_busy(tmp_path: Path, answer: Probe, users: str, message: str) -> None:
    kernel = Kernel(tmp_path, answer, effect=False).load(users=users)
    with pytest.raises(kmod.ModuleBusy) as caught:
        kmod.unload(kernel.host, MODULE, 5)
    assert caught.value.message == "rebellions cannot be unloaded: %s." % message
    assert caught.value.next_step == "Stop the users of the NPUs, or let the run reboot the host."


def test_where_no_module_may_be_unloaded_until_the_next_boot_users_are_not_to_blame(tmp_path: Path) -> None:
    switch = tmp_path / "proc/sys/kernel/modules_disabled"
    switch.parent.mkdir(parents=True)
    switch.write_text("1\n", encoding="utf-8")
    kernel = Kernel(tmp_path, said(1, "modprobe: ERROR: Operation not permitted\n"), effect=False).load()
    with pytest.raises(kmod.ModuleBusy) as caught:
        kmod.unload(kernel.host, MODULE, 5)
    assert str(caught.value) == (
        "rebellions cannot be unloaded: sysctl kernel.modules_disabled says 1, so no module can be loaded or unloaded "
        "until the next boot. Next: Remove that, reboot, and run again."
    )


def test_loading(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, FINE)
    kmod.load(kernel.host, MODULE, 5)
    assert kernel.asked == [(["modprobe", MODULE], 5)]


def test_success_without_a_loaded_module_is_none_H13(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, FINE, effect=False)
    with pytest.raises(
        NpuError, match="^modprobe reports success, and rebellions is not loaded. Next: Run modprobe -v"
    ):
        kmod.load(kernel.host, MODULE, 5)
    conf = tmp_path / "etc/modprobe.d/60-site.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("blacklist rebellions\ninstall rebellions /bin/true\n", encoding="utf-8")
    with pytest.raises(
        NpuError,
        match="^rebellions is not loaded: /etc/modprobe.d/60-site.conf line 2 says install rebellions /bin/true. "
        "Next: Remove that, and run again.$",
    ):
        kmod.load(kernel.host, MODULE, 5)


@pytest.mark.parametrize(
    "answer, log, message",
    [
        (
            said(1, "modprobe: ERROR: could not insert 'rebellions': Key was rejected by service\n"),
            LOG,
            "rebellions cannot be loaded: modprobe: ERROR: could not insert 'rebellions': Key was rejected by service. "
            "Kernel: rebellions: one | rebellions: two | rebellions: card 0 does not answer.",
        ),
        (said(1, "no such device"), None, "rebellions cannot be loaded: no such device."),
        (said(1, "no such device"), "usb\n", "rebellions cannot be loaded: no such device."),
        (
            Probe(ABSENT, None, "No such file or directory"),
            None,
            "rebellions cannot be loaded: No such file or directory.",
        ),
        (HUNG, LOG, "Loading rebellions hangs: %s." % HUNG.detail),
        (said(1, "x" * 1000), None, "rebellions cannot be loaded: %s." % ("x" * 400)),
    ],
)
def test_what_the_kernel_said_is_in_the_error(tmp_path: Path, answer: Probe, log: str | None, message: str) -> None:
    with pytest.raises(NpuError) as caught:
        kmod.load(Kernel(tmp_path, answer, log=log).host, MODULE, 5)
    assert caught.value.message == message and caught.value.next_step
    assert not isinstance(caught.value, kmod.ModuleBusy)
