# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a time in a process of its own, with a limit of time and of bytes: what hangs or fails ends alone.

A file of a device may hang its reader inside the kernel, so that also files are read by a child that can be left.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
import typing as t

from .._base.records import dataclass
from .command import BLOCK, KILL_WAIT, end_session, environment, started
from .probe import FAILED, TIMEOUT, TOO_LARGE, VALUE, from_oserror

# Most that a source may say before it is ended, whatever is kept of it.
SAID = 64 * 1024 * 1024
ERRORS = 16 * 1024


@dataclass(frozen=True)
class Outcome:
    """How a source ended: a state of a Probe, why, the bytes that are kept, and whether more was said than these."""

    state: str
    detail: str = ""
    data: bytes = b""
    cut: bool = False


class Keep:
    """The part of a stream that is kept: its first or its newest bytes, in whole lines, of those that match `only`.

    `lines` is the most of them, newest first; 0 for any number.
    """

    def __init__(self, limit: int, newest: bool = False, only: re.Pattern[str] | None = None, lines: int = 0) -> None:
        self._limit, self._newest, self._only, self._most = limit, newest, only, lines
        self._lines: list[bytes] = []
        self._first = self._size = 0
        self._rest = b""
        self.cut = False
        self.said = 0

    def feed(self, block: bytes) -> None:
        self.said += len(block)
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._add(line + b"\n")
        if len(self._rest) > self._limit:
            self._add(self._rest)
            self._rest = b""

    def _add(self, line: bytes) -> None:
        if self._only is not None and not self._only.search(line.decode("utf-8", "replace")):
            return
        if len(line) > self._limit:
            line, self.cut = line[-self._limit :] if self._newest else line[: self._limit], True
        if not self._newest and self._size + len(line) > self._limit:
            # What follows is left out too, also what would fit: a gap would not be seen.
            self._limit, self.cut = self._size, True
            return
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._limit or (self._most and len(self._lines) - self._first > self._most):
            self._size -= len(self._lines[self._first])
            self._lines[self._first] = b""
            self._first += 1
            self.cut = True

    def close(self) -> bytes:
        if self._rest:
            self._add(self._rest)
            self._rest = b""
        return b"".join(self._lines)


def run(argv: t.Sequence[str], timeout: float, keep: Keep, accept: t.Collection[int] = (0,)) -> Outcome:
    """The output of a command; of one that is ended, what it has said until then."""
    plain = dict(environment(), SYSTEMD_PAGER="", SYSTEMD_COLORS="0", TERM="dumb")
    try:
        child = started(argv, plain)
    except OSError as exc:
        found = from_oserror(exc)
        return Outcome(found.state, "%s: %s" % (argv[0], found.detail))
    if child.stdout is None or child.stderr is None:
        raise AssertionError("both are pipes")
    errors = Keep(ERRORS)
    ended = _read({child.stdout.fileno(): keep, child.stderr.fileno(): errors}, time.monotonic() + timeout)
    detail = ended[1]
    if not ended[0]:
        try:
            child.wait(KILL_WAIT)
        except subprocess.TimeoutExpired:
            ended = (TIMEOUT, "it has closed its output and does not end")
    if ended[0]:
        detail = ended[1] + end_session(child)
    for stream in (child.stdout, child.stderr):
        stream.close()
    data, said = keep.close(), errors.close()
    if said.strip():
        data += (b"\n" if data and not data.endswith(b"\n") else b"") + b"--- standard error\n" + said
    if ended[0]:
        return Outcome(ended[0], detail, data, True)
    if child.returncode not in accept:
        return Outcome(FAILED, "exit code %d" % child.returncode, data, keep.cut)
    return Outcome(VALUE, "", data, keep.cut)


def apart(work: t.Callable[[t.Callable[[bytes], t.Any]], Outcome], timeout: float, keep: Keep) -> Outcome:
    """What `work` writes by the function that it gets, in a child of this process; its Outcome says how it ended."""
    out, said = os.pipe()
    state, told = os.pipe()
    child = os.fork()
    if not child:
        _be_child(work, said, told)
    os.close(said)
    os.close(told)
    ending = Keep(ERRORS)
    ended = _read({out: keep, state: ending}, time.monotonic() + timeout)
    left = _end(child, bool(ended[0]))
    for descriptor in (out, state):
        os.close(descriptor)
    data, words = keep.close(), ending.close().decode("utf-8", "replace").split("\n", 2)
    if ended[0]:
        return Outcome(ended[0], ended[1] + left, data, True)
    if len(words) < 3:
        return Outcome(FAILED, "the process that read it has ended by itself", data, True)
    return Outcome(words[0], words[2].strip(), data, keep.cut or words[1] == "cut")


def _be_child(work: t.Callable[[t.Callable[[bytes], t.Any]], Outcome], said: int, told: int) -> t.NoReturn:
    """Do the work and end, without anything that the parent would do at its end."""
    try:
        # What it runs is in sessions of their own, which end with the exception.
        signal.signal(signal.SIGTERM, _leave)
        # What this process prints would be in the answer of its parent.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        try:
            found = work(lambda data: _write(said, data))
        except OSError as exc:
            probe = from_oserror(exc)
            found = Outcome(probe.state, probe.detail)
        except Exception as exc:  # pylint: disable=broad-except
            found = Outcome(FAILED, "%s: %s" % (type(exc).__name__, exc))
        detail = " ".join(found.detail.split())
        told_text = "%s\n%s\n%s" % (found.state, "cut" if found.cut else "", detail[:2000])
        _write(told, told_text.encode("utf-8", "replace"))
    finally:
        os._exit(0)


def _leave(number: int, frame: t.Any) -> None:
    raise SystemExit


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:BLOCK]) :]


def _read(into: t.Mapping[int, Keep], deadline: float) -> tuple[str, str]:
    """Read descriptors to their ends; else (timeout or too_large, why)."""
    with selectors.DefaultSelector() as waiting:
        for descriptor in into:
            waiting.register(descriptor, selectors.EVENT_READ)
        began = time.monotonic()
        while waiting.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return TIMEOUT, "no end within %.0f s" % max(0.0, deadline - began)
            for key, _events in waiting.select(left):
                block = os.read(key.fd, BLOCK)
                if not block:
                    waiting.unregister(key.fd)
                keep = into[key.fd]
                keep.feed(block)
                if keep.said > SAID:
                    return TOO_LARGE, "it says more than %d MiB" % (SAID >> 20)
    return "", ""


def _end(child: int, stop: bool) -> str:
    """Wait for a child, which is to end its own commands first; text for the message where it cannot be ended."""
    for number in (signal.SIGTERM, signal.SIGKILL) if stop else (0,):
        with contextlib.suppress(OSError):
            os.kill(child, number)
        deadline = time.monotonic() + KILL_WAIT + 1.0
        while time.monotonic() < deadline:
            try:
                if os.waitpid(child, os.WNOHANG)[0]:
                    return ""
            except ChildProcessError:
                return ""
            time.sleep(0.002)
    return ", and process %d cannot be killed: it waits inside the kernel" % child


def be_quiet() -> None:
    """Let this process and its children wait for everybody else: processor and disks."""
    with contextlib.suppress(OSError):
        os.nice(19 - os.nice(0))
    run(("ionice", "-c", "3", "-p", str(os.getpid())), KILL_WAIT, Keep(ERRORS))
