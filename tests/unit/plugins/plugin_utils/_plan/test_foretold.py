# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode takes a host for: the host after its plan, not the host as it is."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import member_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import foretold, host_part, seen_or_foretold
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, t.Any]
BARE: Data = {
    "npus": [
        {"state": "unbound", "usable": False, "vfs": 0, "product": "RBLN-CA22", "family": "ATOM"},
        {"state": "passthrough", "usable": False, "vfs": 0},
    ],
    "counts": {"devices": 2, "usable": 0},
    "driver": {"installed_via": "none", "version_on_disk": None, "version_loaded": None, "loaded": False},
    "kernel": {"running": "6.1", "next_boot": "6.8"},
}
RIGHT: Data = {
    **BARE,
    "npus": [{"state": "ok", "usable": True, "vfs": 0}],
    "counts": {"devices": 1, "usable": 1},
    "driver": {"installed_via": "runfile", "version_on_disk": "3.2.2", "version_loaded": "3.2.2", "loaded": True},
}
WANTED = {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.2"}


def plan(*ids: str, **more: t.Any) -> Data:
    return {"steps": [{"id": name} for name in ids], "stops": [], "wanted": WANTED, **more}


def gates(found: Data, proof: Data | None, observed: Data | None = None) -> dict[str, str]:
    record = member_record("n1", inputs(), found, {"rbln_observed": observed or {}}, proof, "runfile")
    assert record["labels"] is not None
    return record["labels"]


def test_an_installation_foretells_labels_gates_and_npus() -> None:
    after, proof = foretold(plan("driver.install", "toolkit.cdi", "validator.markers"), BARE)
    assert after["counts"]["usable"] == 1 and after["driver"]["version_loaded"] == "3.2.2"
    assert [npu["state"] for npu in after["npus"]] == ["ok", "passthrough"]
    told = gates(after, proof)
    assert told["rebellions.ai/driver-version.full"] == "3.2.2"
    assert told["rebellions.ai/npu.deploy.device-plugin"] == "true"
    # As it is, the gate would be closed.
    assert gates(BARE, None)["rebellions.ai/npu.deploy.device-plugin"] == "false"
    assert BARE["counts"]["usable"] == 0


def test_an_upgrade_foretells_the_wanted_version() -> None:
    after, _proof = foretold(plan("driver.install", wanted={**WANTED, "rbln_driver_version": "3.4.0"}), RIGHT)
    assert after["driver"]["version_loaded"] == "3.4.0" and after["counts"]["usable"] == 1


def test_a_version_that_only_the_source_knows_is_left_out() -> None:
    after, proof = foretold(plan("driver.install", "validator.markers", wanted={"rbln_driver_version": ""}), BARE)
    assert "rebellions.ai/driver-version.full" not in gates(after, proof)


def test_a_load_foretells_what_is_on_disk() -> None:
    seen = {**BARE, "driver": {**BARE["driver"], "version_on_disk": "3.0.1", "installed_via": "package"}}
    after, _proof = foretold(plan("driver.reload"), seen)
    assert (after["driver"]["version_loaded"], after["driver"]["installed_via"]) == ("3.0.1", "package")


def test_a_planned_reboot_foretells_the_kernel() -> None:
    assert foretold(plan("driver.install", "driver.reboot"), BARE)[0]["kernel"]["running"] == "6.8"
    assert foretold(plan("driver.install"), BARE)[0]["kernel"]["running"] == "6.1"


@pytest.mark.parametrize(
    ("ids", "unrepaired", "proven"),
    [
        ((), [], False),
        (("toolkit.runtime.containerd", "validator.markers"), [], True),
        (("validator.markers",), [], True),
        # No step repairs the check that does not hold: the real run fails this host, whatever else it does.
        (("validator.markers",), ["device_status"], False),
        (("toolkit.runtime.containerd", "validator.markers"), ["device_status"], False),
        (("toolkit.host_tool",), [], False),
    ],
)
def test_a_proof_is_foretold_where_the_run_will_make_one(
    ids: tuple[str, ...], unrepaired: list[str], proven: bool
) -> None:
    after, proof = foretold(plan(*ids, unrepaired=unrepaired), RIGHT)
    assert (proof == {"passed": True}) is proven and after == RIGHT


def test_a_stopped_host_stays_as_it_is() -> None:
    after, proof = foretold(plan("driver.install", "validator.markers", stops=[{"code": "disk_full"}]), BARE)
    assert (after, proof) == (BARE, {})


def test_a_run_that_waits_for_the_console_changes_no_driver() -> None:
    steps = ("driver.secure_boot", "driver.install", "validator.markers")
    assert foretold(plan(*steps), BARE) == (BARE, {})


def test_what_the_tags_of_a_run_leave_out_is_not_foretold() -> None:
    """site --check --tags operands: the hosts stay as they are."""
    roles = {"driver.install": "driver", "toolkit.cdi": "container_toolkit", "validator.markers": "validator"}
    drawn = {**plan(), "steps": [{"id": name, "role": role} for name, role in roles.items()], "unrepaired": []}
    observed = {"failed": ["driver_installed", "cdi_spec_present"]}

    def seen(*tags: str, skip: t.Sequence[str] = ()) -> tuple[str, t.Any]:
        given = {"rbln_preflight_plan": drawn, "ansible_run_tags": list(tags), "ansible_skip_tags": list(skip)}
        facts, proof = seen_or_foretold(True, {"rbln": BARE, "rbln_observed": observed}, given)
        return facts["rbln"]["driver"]["version_loaded"], proof

    assert seen("all") == ("3.2.2", {"passed": True})
    assert seen("operands") == (None, None)
    # The ready files go with the driver, and nothing writes them again.
    assert seen("driver", "operands") == ("3.2.2", {"passed": False})
    assert seen("all", skip=["driver"]) == (None, None)
    # The specification that the proof asks for is not written in this run.
    assert seen("driver", "validate") == ("3.2.2", None)


@pytest.mark.parametrize(
    ("run", "skip", "comes"),
    [
        ((), (), True),
        (("all",), ("toolkit",), True),
        (("validate", "operands"), (), True),
        (("tagged",), ("operands",), True),
        (("operands",), (), False),
        (("always",), (), False),
        (("all",), ("driver", "toolkit", "validate"), False),
        (("driver",), ("driver",), False),
    ],
)
def test_a_run_has_a_host_part_when_its_tags_leave_one_of_the_three(
    run: tuple[str, ...], skip: tuple[str, ...], comes: bool
) -> None:
    assert host_part({"ansible_run_tags": run, "ansible_skip_tags": skip}) is comes
