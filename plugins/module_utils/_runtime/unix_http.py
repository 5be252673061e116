# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET over a Unix socket: http.client of the standard library, which is all that hosts have, connects by TCP alone."""

from __future__ import annotations

import http.client
import socket
import time

from .._host.probe import FAILED, TIMEOUT, TOO_LARGE, VALUE, Probe, from_oserror

BODY_LIMIT = 8 * 1024 * 1024
BLOCK = 65536


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def http_get(path: str, target: str, timeout: float = 5.0) -> Probe:
    """Probe of the body text of GET `target` over the Unix socket at `path`; any status but 200 is failed."""
    deadline = time.monotonic() + timeout
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = bytearray()
        while True:
            block = answer.read1(BLOCK)
            body += block
            if not block and answer.length:
                return Probe(FAILED, None, "%s: GET %s: the answer is cut short" % (path, target))
            if not block:
                break
            if len(body) > BODY_LIMIT:
                return Probe(TOO_LARGE, None, "%s: GET %s: more than %d bytes" % (path, target, BODY_LIMIT))
            if time.monotonic() > deadline:
                raise socket.timeout
    except socket.timeout:
        return Probe(TIMEOUT, None, "no answer from %s in %g s" % (path, timeout))
    except OSError as exc:
        return from_oserror(exc)
    except http.client.HTTPException as exc:
        return Probe(FAILED, None, "%s: %s" % (path, exc or type(exc).__name__))
    finally:
        connection.close()
    if answer.status != 200:
        return Probe(FAILED, None, "%s: GET %s: status %d" % (path, target, answer.status))
    return Probe(VALUE, body.decode("utf-8", "replace"))
