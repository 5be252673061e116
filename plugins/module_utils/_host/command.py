# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands with a limit of time and of output; past it they are killed with their children."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
import typing as t

from .probe import TIMEOUT, TOO_LARGE, VALUE, Completed, Probe, from_oserror

KILL_WAIT = 5.0
# Standard output and standard error together.
OUTPUT_LIMIT = 16 * 1024 * 1024
BLOCK = 65536

# Called with argv, timeout and environment; working directory and descriptors follow only where they are given.
Runner = t.Callable[..., Probe]


def search_path() -> str:
    """Where commands are looked for: root's programs too, whoever asks."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment() -> dict[str, str]:
    """That of a command: ours, with the C locale and the search path."""
    return dict(os.environ, LC_ALL="C", LANGUAGE="C", PATH=search_path())


def started(
    argv: t.Sequence[str], env: t.Mapping[str, str], cwd: str | None = None, pass_fds: t.Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A command that runs, without standard input and with pipes for what it says; OSError where it does not start."""
    # A new session, so that a limit also kills the children: dpkg of apt, make of an installer.
    return subprocess.Popen(  # pylint: disable=ansible-bad-function
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def run_command(
    argv: t.Sequence[str],
    timeout: float,
    env: t.Mapping[str, str] | None = None,
    cwd: str | None = None,
    pass_fds: t.Sequence[int] = (),
) -> Probe:
    """Run `argv` with the C locale, no standard input and a time limit in seconds; Probe of Completed.

    Past the limit (timeout), or when it prints more than OUTPUT_LIMIT bytes (too_large), the command and its children
    are killed. `pass_fds` are open descriptors that the command inherits.
    """
    try:
        child = started(argv, dict(environment(), **(env or {})), cwd, pass_fds)
    except OSError as exc:
        return from_oserror(exc)
    try:
        out, err = _read(child, timeout)
    except subprocess.TimeoutExpired:
        return Probe(TIMEOUT, None, "%s gave no answer in %g s%s" % (argv[0], timeout, end_session(child)))
    except _TooLarge:
        detail = "%s printed more than %d MiB and was ended%s"
        return Probe(TOO_LARGE, None, detail % (argv[0], OUTPUT_LIMIT >> 20, end_session(child)))
    except BaseException:
        end_session(child)
        raise
    return Probe(VALUE, Completed(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")))


class _TooLarge(Exception):
    """A command printed more than OUTPUT_LIMIT."""


def _read(child: subprocess.Popen[bytes], timeout: float) -> tuple[bytes, bytes]:
    """Both outputs of a command that has ended. TimeoutExpired or _TooLarge leave it running."""
    deadline = time.monotonic() + timeout
    streams = [stream for stream in (child.stdout, child.stderr) if stream is not None]
    blocks: dict[int, list[bytes]] = {stream.fileno(): [] for stream in streams}
    size = 0
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(child.args, timeout)
            for key, _events in waiting.select(left):
                block = os.read(key.fd, BLOCK)
                if not block:
                    waiting.unregister(key.fileobj)
                blocks[key.fd].append(block)
                size += len(block)
                if size > OUTPUT_LIMIT:
                    raise _TooLarge
    child.wait(max(0.0, deadline - time.monotonic()))
    out, err = (b"".join(found) for found in blocks.values())
    for stream in streams:
        stream.close()
    return out, err


def end_session(child: subprocess.Popen[bytes]) -> str:
    """Kill a command with its children. Returns text for the message when the process cannot be killed."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for stream in (child.stdout, child.stderr):
        # A daemon that left the session may keep the other end open.
        if stream is not None:
            stream.close()
    try:
        child.wait(KILL_WAIT)
    except subprocess.TimeoutExpired:
        return ", and process %d cannot be killed: it waits inside the kernel" % child.pid
    return ""
