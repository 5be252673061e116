# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Garbage in every place that is read: a value of its documented types or the documented error, never a traceback.

A few of each kind; the proof `fuzz` runs many.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures import garbage

pytest.importorskip("kubernetes")
COUNT = 40


@pytest.mark.parametrize("name", sorted(garbage.TARGETS))
def test_garbage(name: str) -> None:
    for number in range(COUNT):
        garbage.TARGETS[name](random.Random("%s %d" % (name, number)))


@pytest.mark.parametrize("name", sorted(garbage.FOLDER_TARGETS))
def test_garbage_in_files(name: str, tmp_path: Path) -> None:
    for number in range(COUNT):
        folder = tmp_path / str(number)
        folder.mkdir()
        garbage.FOLDER_TARGETS[name](random.Random("%s %d" % (name, number)), folder)


def test_garbage_in_the_files_of_a_host(tmp_path: Path) -> None:
    hosts = garbage.Hosts(tmp_path)
    assert len(hosts.paths) > 40
    for number in range(COUNT // 4):
        hosts.one(random.Random("host %d" % number))
