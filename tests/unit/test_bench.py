# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmark reads of its runs, and that the settings it measures are those that the documentation shows."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.bench import _contenders, _hosts, _settings

ROOT = Path(__file__).resolve().parents[2]
# Two connections from one source port, to two addresses, at the same time; both users are of one account.
SSHD = """Server listening on 0.0.0.0 port 22.
Connection from 10.78.0.1 port 40000 on 10.78.0.101 port 22 rdomain ""
Connection from 10.78.0.1 port 40000 on 10.78.0.102 port 22 rdomain ""
Accepted publickey for bench-1 from 10.78.0.1 port 40000 ssh2: ED25519 SHA256:x
Accepted publickey for bench-2 from 10.78.0.1 port 40000 ssh2: ED25519 SHA256:x
Starting session: command for bench-1 from 10.78.0.1 port 40000 id 0
Starting session: command for bench-2 from 10.78.0.1 port 40000 id 0
Starting session: subsystem 'sftp' for bench-2 from 10.78.0.1 port 40000 id 1
Starting session: command for bench-500 from 10.78.0.1 port 40001 id 0
"""


def test_a_session_belongs_to_the_name_of_its_user_whatever_its_port() -> None:
    counted = _hosts.sessions(SSHD)
    assert {name: count for name, count in counted.items() if count} == {"bench-1": 1, "bench-2": 2, "bench-500": 1}
    assert len(counted) == _hosts.EVERY


def test_a_session_of_somebody_else_is_no_host_of_the_benchmark() -> None:
    with pytest.raises(KeyError, match="root"):
        _hosts.sessions(SSHD.replace("for bench-500", "for root"))


def test_each_name_has_an_address_and_the_first_hundred_have_their_own() -> None:
    assert len(set(_hosts.ALL)) == _hosts.EVERY == 500
    own = [_hosts.ADDRESSES[name] for name in _hosts.ALL[: _hosts.MOST]]
    assert len(set(own)) == _hosts.MOST == 100
    assert set(_hosts.ADDRESSES.values()) == set(own)


def test_only_a_host_that_did_something_and_changed_nothing_counts() -> None:
    recap = """PLAY RECAP *********************************************************************
bench-1                    : ok=4    changed=0    unreachable=0    failed=0    skipped=1    rescued=0    ignored=0
bench-2                    : ok=4    changed=1    unreachable=0    failed=0    skipped=1    rescued=0    ignored=0
bench-3                    : ok=0    changed=0    unreachable=1    failed=0    skipped=0    rescued=0    ignored=0
bench-4                    : ok=1    changed=0    unreachable=1    failed=0    skipped=0    rescued=0    ignored=0
bench-5                    : ok=3    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0
bench-6                    : ok=0    changed=0    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
"""
    assert _contenders.unchanged(recap) == 1


def read(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


SAMPLE = read((ROOT / "inventories" / "example" / "ansible.cfg").read_text(encoding="utf-8"))


def test_the_starter_layout_has_the_settings_of_the_sample() -> None:
    """But for the places of inventory and collections, and the fact cache, which no run needs."""
    page = (ROOT / "docs" / "project.md").read_text(encoding="utf-8")
    blocks = re.findall(r"`ansible\.cfg`\n\n```ini\n(.*?)```", page, re.S)
    assert len(blocks) == 1
    shown = read(blocks[0])
    assert shown["defaults"].pop("inventory") == "inventory" and shown["defaults"].pop("collections_path")
    wanted = {section: dict(options) for section, options in SAMPLE.items()}
    assert wanted["defaults"].pop("inventory") == "hosts.yml"
    cache = [name for name in wanted["defaults"] if name.startswith("fact_caching")]
    assert [wanted["defaults"].pop(name) for name in cache][0] == "jsonfile"
    assert shown == wanted and len(wanted["defaults"]) > 4


def test_what_the_benchmark_changes_is_a_setting_of_the_sample() -> None:
    """Else its run with another value would be the same run."""
    known = {name: value for options in SAMPLE.values() for name, value in options.items()}
    assert len(_settings.VARIANTS) > 3
    for variant in _settings.VARIANTS.values():
        for name, value in variant.items():
            assert name in known and known[name] != value, name
