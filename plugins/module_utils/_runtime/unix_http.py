# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET over a Unix socket: http.client of the standard library, which is all that hosts have, connects by TCP alone."""

from __future__ import annotations

import http.client
import socket

from .._host.probe import FAILED, TIMEOUT, VALUE, Probe, from_oserror

BODY_LIMIT = 8 * 1024 * 1024


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
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read(BODY_LIMIT).decode("utf-8", "replace")
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
    return Probe(VALUE, body)
