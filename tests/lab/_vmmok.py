# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person does at the console of a machine with secure boot: MokManager's menus, by the serial line."""

from __future__ import annotations

import re
import socket
import time
import typing as t

from ._base import LabError
from ._vmqemu import connect

if t.TYPE_CHECKING:
    from ._vm import Vm

_DOWN, _ENTER = b"\x1b[B", b"\r"
_ESCAPES = re.compile(r"\x1b\[[0-9;?=]*[A-Za-z]")
# (words that the screen shows, keys that answer them)
_STEPS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("Press any key to perform MOK management", (b" ",)),
    ("Enroll MOK", (_DOWN, _ENTER)),
    ("View key 0", (_DOWN, _ENTER)),
    ("Yes", (_DOWN, _ENTER)),
    ("Password", ()),
    ("Reboot", (_ENTER,)),
)


class _Screen:
    """The serial console as text, from where the last answer was given."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._raw = b""
        link.settimeout(0.05)

    def read(self, seconds: float) -> None:
        """Take what comes in that time: an unread console loses letters."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                piece = self._link.recv(65536)
            except socket.timeout:
                continue
            if not piece:
                raise LabError("the console ended")
            self._raw += piece

    def wait(self, words: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while words not in self.text():
            if time.monotonic() > end:
                raise LabError(
                    "MokManager does not show %r after %.0f s but:\n%s" % (words, seconds, self.text()[-1500:])
                )
            self.read(0.1)

    def text(self) -> str:
        return _ESCAPES.sub("", self._raw.decode(errors="replace"))

    def answer(self, keys: t.Iterable[bytes]) -> None:
        # The screen is drawn to its end before a key counts.
        self.read(1)
        self._raw = b""
        for key in keys:
            self._link.sendall(key)
            self.read(0.3)


def enrol(vm: Vm, password: str, timeout: float) -> float:
    """Reboot and enrol the waiting keys; returns the seconds until the machine is up again.

    They wait after mokutil --import, and `password` is the one given there.
    """
    if "MokNew" not in vm.exec("ls /sys/firmware/efi/efivars").stdout:
        raise LabError("%s: no key waits to be enrolled: mokutil --import comes first" % vm.name)
    start, before = time.monotonic(), vm.boot_id()
    link = connect(vm.folder, "serial")
    try:
        screen = _Screen(link)
        vm.exec("systemctl reboot", check=False)
        for words, keys in _STEPS:
            screen.wait(words, timeout)
            screen.answer(keys if words != "Password" else [letter.encode() for letter in password] + [_ENTER])
    finally:
        link.close()
    vm.wait_reboot(before, timeout)
    return time.monotonic() - start
