# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve the files below a directory by HTTP: serve.py ADDRESS PORT DIRECTORY.

Only GET and HEAD of regular files: no listing, no link, no hidden name. The log has the client and the status alone,
because the rest of a request is text of an unknown machine.
"""

from __future__ import annotations

import http.server
import os
import re
import shutil
import socket
import socketserver
import stat
import sys
import typing as t
import urllib.parse

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~:%=@,^-]*")
IDLE = 60.0


def find(directory: str, target: str) -> t.BinaryIO | None:
    """The open file that the target of a request names, else None. Opens one folder after the other, never a link."""
    names = urllib.parse.unquote(target.partition("?")[0]).split("/")[1:]
    if not names or not all(NAME.fullmatch(name) for name in names):
        return None
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        file = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    directory = ""
    timeout = IDLE

    def version_string(self) -> str:
        return "rbln-bundle"

    def log_message(self, format: str, *args: t.Any) -> None:
        pass

    def log_request(self, code: t.Any = "-", size: t.Any = "-") -> None:
        print(self.client_address[0], int(code), flush=True)

    def do_GET(self) -> None:
        file = find(self.directory, self.path)
        if file is None:
            self.send_error(404)
            return
        with file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            if self.command == "GET":
                shutil.copyfileobj(file, self.wfile)

    do_HEAD = do_GET


class Server(socketserver.ThreadingTCPServer):
    """Not HTTPServer: that asks a name server for the name of the address."""

    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        print(client_address[0], "ended early: %s" % type(sys.exc_info()[1]).__name__, flush=True)


def main(address: str, port: str, directory: str) -> None:
    """Serve until a signal ends it."""
    [(family, _kind, _protocol, _name, place), *_more] = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)
    Server.address_family = family
    Handler.directory = directory
    with Server((str(place[0]), int(place[1])), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
