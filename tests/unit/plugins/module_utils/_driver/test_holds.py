# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is held for a driver stays noted for as long as it is held, and what is not ours is never let go of."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    ERROR,
    KMD,
    SERVICES,
    Machine,
    change,
    having,
    memory,
)

IMAGE = "linux-image-generic"
HEADERS = "linux-headers-generic"


@pytest.fixture(name="base")
def base_fixture() -> t.Iterator[Path]:
    with memory() as path:
        yield path


def noted(machine: Machine) -> tuple[list[str], list[str]]:
    stamp = machine.record("driver.json")
    return stamp["held"], stamp["held_kernel"]


def hold(machine: Machine, **keys: t.Any) -> list[str]:
    """Make a change that installs nothing; returns its warnings.

    As in the plan, it names only those kernel packages that are not held yet.
    """
    result = change(machine, source="runfile", install=False, **keys).run().to_dict()
    assert result["failed"] is False
    return list(result["warnings"])


def test_what_was_held_before_stays_noted(base: Path) -> None:
    machine = having(base / "root", hold_kernel=[IMAGE])
    hold(machine, hold_kernel=[HEADERS])
    assert (noted(machine), machine.held) == (([KMD], [HEADERS, IMAGE]), {KMD, IMAGE, HEADERS})
    hold(machine)
    assert noted(machine) == ([KMD], [HEADERS, IMAGE])
    change(machine, DriverRemoval, source="runfile", state="absent", services=list(SERVICES)).run().to_dict()
    assert machine.held == set()


def test_a_hold_that_somebody_has_let_go_of_is_not_ours_any_more(base: Path) -> None:
    machine = having(base / "root", hold_kernel=[IMAGE])
    machine.held.discard(IMAGE)
    hold(machine, hold_kernel=[HEADERS])
    assert noted(machine) == ([KMD], [HEADERS])


def test_a_hold_of_somebody_else_is_not_noted(base: Path) -> None:
    machine = having(base / "root")
    machine.held.add(IMAGE)
    hold(machine, hold_kernel=[IMAGE, HEADERS])
    assert noted(machine) == ([KMD], [HEADERS])


def test_not_wanting_holds_any_more_lets_go_of_ours_alone(base: Path) -> None:
    machine = having(base / "root", hold_kernel=[IMAGE])
    machine.held.add("vim")
    hold(machine, hold=False)
    assert (noted(machine), machine.held) == (([], [IMAGE]), {IMAGE, "vim"})
    assert machine.acts[-1] == "unhold " + KMD


def test_a_hold_that_cannot_be_let_go_of_stays_noted_and_is_told(base: Path) -> None:
    machine = having(base / "root")
    machine.trouble = {"unhold " + KMD: ERROR}
    assert hold(machine, hold=False) == ["unhold %s has failed. Next: None." % KMD]
    assert (noted(machine), machine.held) == (([KMD], []), {KMD})


def test_a_hold_that_fails_is_not_noted(base: Path) -> None:
    machine = having(base / "root", hold_kernel=[IMAGE])
    machine.trouble = {"hold " + HEADERS: ERROR}
    assert len(hold(machine, hold_kernel=[HEADERS])) == 1
    assert (noted(machine), machine.held) == (([KMD], [IMAGE]), {KMD, IMAGE})


def test_holds_for_a_driver_that_is_not_ours_are_noted_too(base: Path) -> None:
    machine = Machine(base / "root")
    hold(machine)
    assert machine.record("driver.json") is None
    hold(machine, hold_kernel=[IMAGE])
    assert (machine.record("driver.json")["source"], machine.record("driver.json")["held_kernel"], machine.held) == (
        "preinstalled",
        [IMAGE],
        {IMAGE},
    )
