# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Field reports, each on a whole host below a folder: its own observation is made, and its cause is first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import observe
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import complete, read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.host import signs_of_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import Found, ordered
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host, sample

Data = dict[str, Any]
PCI = "/sys/devices/pci0000:00/"
SMI = "rbln-smi_ca22_3.2.2_idle.json"


def causes(tree: Tree, **options: Any) -> list[Found]:
    seen = observe(PROFILE, tree.host(), read_settings(PROFILE, complete(options, "test"), "keep"))
    facts = {"rbln": seen["facts"], "rbln_runtimes": seen["runtimes"], "rbln_observed": seen["observed"]}
    return ordered(signs_of_host(json.loads(json.dumps(facts)), {}))


def smi(**change: Any) -> Callable[[Tree], None]:
    """The tool's answer with a change of each device: a value, or a function of its place."""
    data = json.loads(sample(SMI))
    for at, device in enumerate(data["devices"]):
        device.update({key: value(at) if callable(value) else value for key, value in change.items()})
    return lambda tree: (tree.smi(json.dumps(data)), None)[1]


def fewer(tree: Tree) -> None:
    data = json.loads(sample(SMI))
    tree.smi(json.dumps({**data, "devices": data["devices"][:3]}))


def lost(tree: Tree) -> None:
    tree.write(PCI + "0000:84:00.0/config", b"\xff" * 64).write(PCI + "0000:84:00.0/revision", "0xff\n")


def unloaded(tree: Tree) -> None:
    """No module, no class, no device node: what a failed load leaves."""
    for address in ("0000:83:00.0", "0000:84:00.0", "0000:c3:00.0", "0000:c4:00.0"):
        tree.real(PCI + address + "/driver").unlink()
    for path in ("/sys/module/rebellions", "/sys/class/rebellions"):
        folder = tree.real(path)
        folder.rename(folder.with_name(".gone"))


def blocked(tree: Tree) -> None:
    unloaded(tree)
    tree.write("/etc/modprobe.d/60-site.conf", "install rebellions /bin/true\n")


def slow_link(tree: Tree) -> None:
    tree.write(PCI + "0000:83:00.0/current_link_width", "4\n")


CASES: dict[str, tuple[Callable[[Tree], None], str]] = {
    "F04-fell-off-bus": (lost, "card_lost"),
    "F05-collapsed-npu-index": (smi(npu=0), "index_collapsed"),
    "F07-status-code-shift": (smi(status=lambda at: "abnormal" if at == 1 else "normal"), "devices_unhealthy"),
    "H13-modprobe-blocked": (blocked, "module_blocked"),
    "W02-count-mismatch": (fewer, "cards_not_bound"),
    "driver not loaded": (unloaded, "driver_not_loaded"),
    "downgraded link": (slow_link, "link_degraded"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_field_report_has_its_cause_first(case: str, tmp_path: Path) -> None:
    tree = ca22_host(tmp_path)
    before = {one.cause.id for one in causes(tree, scopes=["driver"])}
    make, cause = CASES[case]
    make(tree)
    found = [one.cause.id for one in causes(tree, scopes=["driver"])]
    assert cause not in before and [one for one in found if one not in before][:1] == [cause], (before, found)


def test_what_follows_is_told_as_such(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path).program("/usr/bin/podman", "echo podman version 5.4.2\n")
    unloaded(tree)
    found = causes(tree)
    after = {one.cause.id for one in found if "driver_not_loaded" in one.explained_by}
    assert found[0].cause.id == "driver_not_loaded" and {"cdi_spec_stale", "runtime_without_cdi_spec"} <= after
