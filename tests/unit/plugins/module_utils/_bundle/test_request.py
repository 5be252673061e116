# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address at which other hosts reach this one is the one that its kernel would send from."""

from __future__ import annotations

import subprocess
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle import request
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import reached

ROUTES = {"192.0.2.20": "192.0.2.1", "192.0.2.21": "192.0.2.1", "198.51.100.20": "198.51.100.1", "192.0.2.1": None}


@pytest.fixture(name="asked")
def routes_of_a_server(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.delenv("SSH_CONNECTION", raising=False)

    def source(peer: str) -> str | None:
        asked.append(peer)
        return ROUTES.get(peer)

    monkeypatch.setattr(request, "_source", source)
    return asked


@pytest.mark.parametrize(
    "peers, address",
    [
        (["192.0.2.20"], "192.0.2.1"),
        (["a", "192.0.2.20", "192.0.2.21", "b"], "192.0.2.1"),
        (["192.0.2.1", "192.0.2.20"], "192.0.2.1"),
    ],
)
def test_one_address(asked: list[str], peers: list[str], address: str) -> None:
    assert reached(peers) == {"address": address} and not {"a", "b"} & set(asked)


@pytest.mark.parametrize(
    "peers, words",
    [
        (["192.0.2.20", "198.51.100.20"], "at 192.0.2.1 and 198.51.100.1. Next: Set the address"),
        ([], "an address that is not known. Next: Set the address"),
        (["192.0.2.1"], "not known"),
        (["host-%d" % number for number in range(3000)], "not known"),
    ],
)
def test_none_or_several_are_an_error(asked: list[str], peers: list[str], words: str) -> None:
    with pytest.raises(NpuError, match=words):
        reached(peers)
    assert len(asked) <= 8


@pytest.mark.parametrize(
    "connection, peers, address",
    [
        ("203.0.113.5 50000 192.0.2.30 22", ["a", "b"], "192.0.2.30"),
        ("203.0.113.5 50000 192.0.2.30 22", ["a", "192.0.2.20"], "192.0.2.1"),
        ("203.0.113.5 50000 ../x 22", ["a"], None),
        ("", ["a"], None),
    ],
)
def test_ssh_knows_the_address_when_no_peer_does(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, connection: str, peers: list[str], address: str | None
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    if address:
        assert reached(peers) == {"address": address}
        return
    with pytest.raises(NpuError, match="not known"):
        reached(peers)


def test_the_kernel_is_asked() -> None:
    told = subprocess.run(["ip", "-o", "route", "get", "192.0.2.9"], capture_output=True, text=True, check=False).stdout
    expected: t.Any = told.split(" src ")[1].split()[0] if " src " in told else None
    assert request._source("192.0.2.9") == expected
    # Itself, its loopback, and a name that does not exist say nothing.
    assert request._source("127.0.0.1") is None and request._source("nobody.invalid") is None
    if expected:
        assert request._source(expected) is None
