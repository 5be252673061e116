# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one gRPC call, against bytes that containerd 1.6, 1.7 and 2.4 sent."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime import grpc, live
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import HERE, replay

METHOD = "/runtime.v1.RuntimeService/Status"
SETTINGS = grpc.frame(grpc.SETTINGS, 0, 0)
TRAILER = grpc.frame(grpc.HEADERS, grpc.END_HEADERS | grpc.END_STREAM, 1, b"x")


def message(body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    "file, enabled, dirs",
    [
        ("cri_status_containerd_1.6.20.bin", False, []),
        ("cri_status_containerd_1.7.24_off.bin", False, ["/etc/cdi", "/var/run/cdi"]),
        ("cri_status_containerd_1.7.24_on.bin", True, ["/etc/cdi", "/var/run/cdi"]),
        ("cri_status_containerd_2.4.2.bin", True, ["/etc/cdi", "/run/cdi"]),
    ],
)
def test_real_answers(tmp_path: Path, file: str, enabled: bool, dirs: list[str]) -> None:
    with replay(tmp_path / "s", (HERE / file).read_bytes()):
        answer = grpc.call(str(tmp_path / "s"), METHOD, b"\x08\x01")
    assert answer.ok
    status = live.read_cri_status(answer.value)
    assert (status["enabled"], status["spec_dirs"]) == (enabled, dirs)


HTTP = b"HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\nOK"
CONTAINERD = {"name": "containerd", "version": "2.2.0", "socket": "/s", "cri_enabled": True}


@pytest.mark.parametrize(
    "runtime, sent, answered",
    [
        (CONTAINERD, "cri_status_containerd_2.4.2.bin", True),
        # containerd 12612: the process is active, and its CRI plugin has failed to load.
        (CONTAINERD, "cri_refused_containerd_1.6.20.bin", False),
        ({**CONTAINERD, "name": "cri-o", "version": "1.30.4"}, "cri_status_containerd_2.4.2.bin", True),
        (CONTAINERD, None, False),
        # Nobody asks that of it.
        ({**CONTAINERD, "cri_enabled": False}, "cri_refused_containerd_1.6.20.bin", None),
        ({**CONTAINERD, "version": "1.5.9"}, "cri_refused_containerd_1.6.20.bin", None),
        ({**CONTAINERD, "name": "podman"}, None, None),
        ({**CONTAINERD, "name": "docker", "version": "20.10.7"}, HTTP % b"200 OK", True),
        ({**CONTAINERD, "name": "docker", "version": "28.3.0"}, HTTP % b"503 No", False),
    ],
)
def test_whether_a_runtime_answers(
    tmp_path: Path, runtime: dict[str, object], sent: str | bytes | None, answered: bool | None
) -> None:
    host = Host(str(tmp_path))
    if sent is None:
        assert live.answers(host, runtime, 1) is answered
        return
    with replay(tmp_path / "s", (HERE / sent).read_bytes() if isinstance(sent, str) else sent):
        assert live.answers(host, runtime, 1) is answered


def test_a_method_that_is_not_there(tmp_path: Path) -> None:
    with replay(tmp_path / "s", (HERE / "cri_refused_containerd_1.6.20.bin").read_bytes()):
        answer = grpc.call(str(tmp_path / "s"), METHOD, b"")
    assert answer.state == "failed" and "refused" in answer.detail


@pytest.mark.parametrize(
    "answer, value",
    [
        (SETTINGS + grpc.frame(grpc.DATA, 0, 1, message(b"hi")) + TRAILER, b"hi"),
        (
            grpc.frame(grpc.DATA, 0, 1, message(b"hi")[:3])
            + grpc.frame(grpc.DATA, grpc.END_STREAM, 1, message(b"hi")[3:]),
            b"hi",
        ),
        (grpc.frame(grpc.DATA, grpc.PADDED, 1, b"\x02" + message(b"hi") + b"\0\0") + TRAILER, b"hi"),
        (grpc.frame(grpc.PING, 0, 0, b"12345678") + grpc.frame(grpc.DATA, 0, 1, message(b"")) + TRAILER, b""),
    ],
)
def test_frames_in_any_order(tmp_path: Path, answer: bytes, value: bytes) -> None:
    with replay(tmp_path / "s", answer):
        assert grpc.call(str(tmp_path / "s"), METHOD, b"").value == value


@pytest.mark.parametrize(
    "answer, words",
    [
        (grpc.frame(grpc.GOAWAY, 0, 0, b"\0" * 8), "ended the call"),
        (grpc.frame(grpc.RST_STREAM, 0, 1, b"\0" * 4), "ended the call"),
        (TRAILER, "refused"),
        (grpc.frame(grpc.DATA, 0, 1, b"\1" + message(b"hi")[1:]) + TRAILER, "not one uncompressed message"),
        (grpc.frame(grpc.DATA, 0, 1, message(b"hi")[:-1]) + TRAILER, "not one uncompressed message"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, answer: bytes, words: str) -> None:
    with replay(tmp_path / "s", answer):
        found = grpc.call(str(tmp_path / "s"), METHOD, b"")
    assert found.state == "failed" and words in found.detail


def test_absent_silent_and_closed(tmp_path: Path) -> None:
    assert grpc.call(str(tmp_path / "none"), METHOD, b"").state == "absent"
    assert grpc.call(str(tmp_path / ("x" * 200)), METHOD, b"").state == "failed"
    with replay(tmp_path / "s", b""):
        started = time.monotonic()
        assert grpc.call(str(tmp_path / "s"), METHOD, b"", 0.3).state == "timeout"
        assert time.monotonic() - started < 1.5


def test_fields_of_a_message() -> None:
    assert list(grpc.fields(b"\x08\x96\x01\x12\x02hi\x1d1234\x21abcdefgh")) == [
        (1, 150),
        (2, b"hi"),
        (3, b"1234"),
        (4, b"abcdefgh"),
    ]


@pytest.mark.parametrize("data", [b"\x12\x05hi", b"\x08", b"\x08\xff", b"\x0b", b"\x1d12"])
def test_a_message_that_is_cut_short(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(grpc.fields(data))


def test_request_begins_as_the_protocol_wants() -> None:
    sent = grpc.request(METHOD, b"\x08\x01")
    assert sent.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x06\x04\0\0\0\0\0")
    assert sent.endswith(b"\0\0\x07\0\x01\0\0\0\x01" + b"\0\0\0\0\x02\x08\x01")
    assert b"\x05:path\x21" + METHOD.encode() in sent
    with pytest.raises(ValueError):
        grpc.header_block([("a", "b" * 127)])
