# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One unary gRPC call over a Unix socket, in plain HTTP/2 (RFC 9113) with uncompressed headers (RFC 7541, 6.2.2).

Enough to ask a container runtime for its state without a client program on the host: one request, one answer, one
stream. Written by hand, because hosts have only the standard library of Python 3.8, and that speaks no HTTP/2.
"""

from __future__ import annotations

import socket
import struct
import time
import typing as t

from .._host.probe import FAILED, TIMEOUT, VALUE, Probe, from_oserror

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
INITIAL_WINDOW_SIZE = 0x4
WINDOW = 16 * 1024 * 1024
MESSAGE_LIMIT = 8 * 1024 * 1024

Frame = t.Tuple[int, int, int, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header_block(headers: t.Sequence[tuple[str, str]]) -> bytes:
    """Headers as literals without indexing and without Huffman coding. Each text is shorter than 127 bytes."""
    out = b""
    for name, value in headers:
        texts = (name.encode("ascii"), value.encode("ascii"))
        if max(len(text) for text in texts) > 126:
            raise ValueError("header text too long: %s" % name)
        out += b"\0" + b"".join(bytes((len(text),)) + text for text in texts)
    return out


def request(path: str, message: bytes) -> bytes:
    """All bytes of a unary call on stream 1: preface, settings, a wide window, headers, and the message."""
    headers = header_block(
        (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        )
    )
    body = b"\0" + struct.pack(">I", len(message)) + message
    return (
        PREFACE
        + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW))
        + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
        + frame(HEADERS, END_HEADERS, 1, headers)
        + frame(DATA, END_STREAM, 1, body)
    )


def fields(message: bytes) -> t.Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffers message as (number, varint or bytes).

    ValueError when it is cut short or not one.
    """
    position = 0

    def varint(start: int) -> tuple[int, int]:
        value, shift = 0, 0
        while True:
            if start >= len(message) or shift > 63:
                raise ValueError("not a protocol buffers message")
            value |= (message[start] & 0x7F) << shift
            shift += 7
            start += 1
            if message[start - 1] < 0x80:
                return value, start

    while position < len(message):
        key, position = varint(position)
        kind = key & 7
        if kind == 0:
            value, position = varint(position)
            yield key >> 3, value
            continue
        if kind == 2:
            size, position = varint(position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("not a protocol buffers message")
        if position + size > len(message):
            raise ValueError("the message is cut short")
        yield key >> 3, message[position : position + size]
        position += size


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("no answer in time")
        connection.settimeout(left)
        piece = connection.recv(size - len(data))
        if not piece:
            raise ValueError("the connection was closed before an answer")
        data += piece
    return bytes(data)


def _read_frame(connection: socket.socket, deadline: float) -> Frame:
    head = _receive(connection, 9, deadline)
    size = struct.unpack(">I", b"\0" + head[:3])[0]
    stream = struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF
    return head[3], head[4], stream, _receive(connection, size, deadline)


def _answer(connection: socket.socket, deadline: float) -> bytes:
    body = bytearray()
    while True:
        kind, flags, stream, payload = _read_frame(connection, deadline)
        if kind == SETTINGS and not flags & ACK:
            connection.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            connection.sendall(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY or (kind == RST_STREAM and stream == 1):
            raise ValueError("the server ended the call")
        elif kind == DATA and stream == 1:
            body += payload[1 : len(payload) - payload[0]] if flags & PADDED and payload else payload
            if len(body) > MESSAGE_LIMIT:
                raise ValueError("the answer is too long")
        if stream == 1 and kind in (DATA, HEADERS) and flags & END_STREAM:
            break
    if len(body) < 5:
        raise ValueError("the server refused the call")
    size = struct.unpack(">I", body[1:5])[0]
    if body[0] or len(body) != size + 5:
        raise ValueError("the answer is not one uncompressed message")
    return bytes(body[5:])


def _peer(connection: socket.socket) -> int:
    """PID of who listens at the other end."""
    ids = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", ids)[0])


def call(path: str, method: str, message: bytes, timeout: float = 5.0, pid: int | None = None) -> Probe:
    """Probe of the answer's bytes. `path` is the socket on this machine, `method` is /package.Service/Method.

    With `pid`, only that process is asked.
    """
    deadline = time.monotonic() + timeout
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
        if pid is not None and pid != _peer(connection):
            raise ValueError("it is the socket of another process")
        connection.sendall(request(method, message))
        return Probe(VALUE, _answer(connection, deadline))
    except socket.timeout:
        return Probe(TIMEOUT, None, "no answer from %s in %g s" % (path, timeout))
    except OSError as exc:
        return from_oserror(exc)
    except ValueError as exc:
        return Probe(FAILED, None, "%s: %s" % (path, exc))
    finally:
        connection.close()
