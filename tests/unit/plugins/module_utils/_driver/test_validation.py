# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the scope driver judge a change.

They are patient, and do not blame it for what had failed before.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver.change import Unfit
from ansible_collections.rebellions.npu.plugins.module_utils._driver.validation import PATIENCE, Checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host

# The scope is the judge's business.
OPTIONS = {"scopes": ["toolkit"]}


def judge(
    tree: Tree, options: t.Mapping[str, t.Any], act: t.Callable[[int], None] | None = None
) -> tuple[Checks, list[float]]:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if act is not None:
            act(len(slept))

    return Checks(tree.host(), PROFILE, options, sleep), slept


def test_a_good_driver_passes_at_once(tmp_path: Path) -> None:
    checks, slept = judge(ca22_host(tmp_path), OPTIONS)
    checks.prove("3.2.2")
    checks.prove(None)
    assert (slept, checks.failed()) == ([0.0, 0.0], [])


def test_another_version_than_the_wanted_is_unfit_and_named(tmp_path: Path) -> None:
    checks, slept = judge(ca22_host(tmp_path), OPTIONS)
    with pytest.raises(
        Unfit,
        match=(
            "^The driver is installed, but its validation failed: .*driver_is_wanted: loaded is 3.2.2, wanted is 3.4.0"
        ),
    ):
        checks.prove("3.4.0")
    assert slept == list(PATIENCE)


def test_a_card_that_comes_up_slowly_is_waited_for(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    status = tree.real("/sys/class/rebellions/rbln0/status")
    good = status.read_text(encoding="utf-8")
    status.write_text("3\n", encoding="utf-8")

    def heal(number: int) -> None:
        if number == 3:
            status.write_text(good, encoding="utf-8")

    checks, slept = judge(tree, OPTIONS, heal)
    assert checks.failed() != []
    checks.prove("3.2.2")
    assert slept == list(PATIENCE[:3])


def test_checks_that_had_failed_before_are_accepted_and_no_others(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    tree.write("/sys/class/rebellions/rbln0/status", "3\n")
    checks, _slept = judge(tree, OPTIONS)
    failed = checks.failed()
    assert failed and "driver_is_wanted" not in failed
    checks.prove("3.2.2", failed)
    with pytest.raises(Unfit, match="driver_is_wanted"):
        checks.prove("3.4.0", failed)
    with pytest.raises(Unfit):
        checks.prove("3.2.2", failed[1:])


def test_a_check_that_could_not_be_made_counts_where_the_options_say_so(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    checks = Checks(Host(str(tmp_path)), PROFILE, {}, lambda seconds: None)
    unknown = checks.failed()
    assert "tool_answers" in unknown
    with pytest.raises(Unfit, match="tool_answers"):
        checks.prove("3.2.2")
    checks.prove("3.2.2", unknown)


def test_bad_options_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    with pytest.raises(NpuError, match="nonsense"):
        judge(ca22_host(tmp_path), {"nonsense": 1})
