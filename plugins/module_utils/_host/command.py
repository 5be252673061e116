# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands with a time limit; past it they are killed with their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import typing as t

from .probe import TIMEOUT, VALUE, Completed, Probe, from_oserror

KILL_WAIT = 5.0

# Called with argv, timeout and environment; working directory and descriptors follow only where they are given.
Runner = t.Callable[..., Probe]


def run_command(
    argv: t.Sequence[str],
    timeout: float,
    env: t.Mapping[str, str] | None = None,
    cwd: str | None = None,
    pass_fds: t.Sequence[int] = (),
) -> Probe:
    """Run `argv` with the C locale, no standard input and a time limit in seconds; Probe of Completed.

    Past the limit the command and its children are killed. `pass_fds` are open descriptors that the command inherits.
    """
    full_env = dict(os.environ)
    full_env.update({"LC_ALL": "C", "LANGUAGE": "C"})
    full_env["PATH"] = full_env.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    full_env.update(env or {})
    try:
        # A new session, so that the limit also kills the children: dpkg of apt, make of an installer.
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=full_env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as exc:
        return from_oserror(exc)
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return Probe(TIMEOUT, None, "%s gave no answer in %g s%s" % (argv[0], timeout, end_session(child)))
    except BaseException:
        end_session(child)
        raise
    return Probe(VALUE, Completed(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")))


def end_session(child: subprocess.Popen[bytes]) -> str:
    """Kill a command with its children. Returns text for the message when the process cannot be killed."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.communicate(timeout=KILL_WAIT)
    except subprocess.TimeoutExpired:
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        if child.poll() is not None:
            # A daemon that left the session keeps the output open.
            return ""
        return ", and process %d cannot be killed: it waits inside the kernel" % child.pid
    return ""
