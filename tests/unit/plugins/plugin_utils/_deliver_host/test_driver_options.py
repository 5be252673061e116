# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of rbln_driver come from the plan of a host, and the role passes no more than the plan."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ARGUMENTS
from ansible_collections.rebellions.npu.plugins.module_utils._packages.proxies import PROXIES
from ansible_collections.rebellions.npu.plugins.modules.rbln_driver import MODULE_ARGUMENTS
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_options import driver_options
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import normalise
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs

ROLE = "rbln_driver"
TASKS = Path(__file__).resolve().parents[5] / "roles" / ROLE / "tasks"
FILES = [{"path": "/var/lib/rbln/incoming/a.run", "sha256": "a" * 64}]
# What no input and no step decides.
OF_THE_TASK = {"state", "files", "absent", "by", "drained", "look", "notes_only", "plan", "fail"}


def plan(acts: t.Sequence[str] = (), steps: t.Mapping[str, t.Any] | None = None, **inputs: t.Any) -> dict[str, t.Any]:
    given = {"rbln_driver_" + name: value for name, value in inputs.items()}
    wanted = normalise(given, role_inputs((ROLE,)))
    rows = [{"id": "driver." + name, "wanted": value} for name, value in (steps or {}).items()]
    return {"wanted": wanted, "acts": {"driver": list(acts)}, "steps": rows, "options": {"smi_timeout": 5.0}}


def options(made: dict[str, t.Any], **given: t.Any) -> dict[str, t.Any]:
    """The options, which the module takes as they are."""
    found = driver_options(ROLE, made, given)
    taken = ArgumentSpecValidator(dict(ARGUMENTS, **MODULE_ARGUMENTS), required_one_of=[["source", "plan"]]).validate(
        found
    )
    assert taken.error_messages == []
    assert set(found) <= set(taken.validated_parameters)
    return found


def test_an_installation_from_a_runfile() -> None:
    made = plan(
        ["install"], source="runfile", version="3.4.0", runfile_args=["-y"], package_names=["a"], in_use="wait",
        reboot="never"
    )  # fmt: skip
    found = options(made, files=FILES, by="jo", fail=False)
    expected = {
        "source": "runfile", "version": "3.4.0", "install": True, "reload": False, "files": FILES, "names": [],
        "arguments": ["-y"], "in_use": "wait",
        "reboot_allowed": False, "firmware": "", "by": "jo", "fail": False, "prerequisites": [], "kernels": [],
        "hold_kernel": [],
        "options": {"smi_timeout": 5.0},
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_every_option_that_is_not_of_the_task_comes_from_the_plan() -> None:
    assert set(options(plan())) - {"files"} == (set(ARGUMENTS) | set(MODULE_ARGUMENTS)) - OF_THE_TASK - set(PROXIES)


def test_packages_have_names_and_steps_say_for_what() -> None:
    steps = {"prerequisites": ["gcc", "make"], "build": ["6.8.0-117-generic"], "hold": ["linux-image-generic"]}
    found = options(
        plan(["reload", "firmware"], steps, source="package", package_names=["a=1"], reboot="if_required",
             firmware_dir="/fw")
    )  # fmt: skip
    assert (found["source"], found["names"], found["install"], found["reload"]) == ("package", ["a=1"], False, True)
    assert (found["prerequisites"], found["kernels"], found["hold_kernel"]) == tuple(steps.values())
    assert (found["reboot_allowed"], found["firmware"]) == (True, "/fw")


@pytest.mark.parametrize("source", ["preinstalled", "container"])
def test_a_driver_of_somebody_else_has_no_names(source: str) -> None:
    found = options(plan(source=source, package_names=["a=1"]))
    assert (found["source"], found["names"]) == ("package", [])


def test_files_of_an_earlier_pass_are_not_installed() -> None:
    assert options(plan(["reload"]), files=FILES)["files"] == []


def test_a_removal_takes_only_what_a_removal_needs() -> None:
    made = plan(
        ["install"], version="3.4.0", package_absent=["npu-app"], package_allowed=["b*"], services=["a.service"]
    )
    found = options(made, state="absent", files=FILES, notes_only=True)
    assert (found["install"], found["files"], found["absent"], found["services"]) == (
        False,
        FILES,
        ["npu-app"],
        ["a.service"],
    )
    assert not {"version", "allowed", "names", "packages", "reload", "firmware"} & set(found)


def test_what_the_task_says_wins() -> None:
    found = options(plan(["install"], version="3.4.0"), version="3.2.2", in_use="stop", install=False)
    assert (found["version"], found["in_use"], found["install"]) == ("3.2.2", "stop", False)


@pytest.mark.parametrize(
    "bad", ["text", {}, {"wanted": {}, "acts": {"driver": []}, "steps": [], "options": {}}, {"acts": None}]
)
def test_what_is_no_plan_is_one_error(bad: t.Any) -> None:
    with pytest.raises(NpuError, match="^plan is not a plan .* Next: Pass the registered result of the plan module"):
        driver_options(ROLE, bad, {})


@pytest.mark.parametrize(
    "name, keys",
    [("transaction", {"files", "by", "drained", "fail", *PROXIES}), ("absent_look", {"state", "look"}),
     ("absent", {"state", "files", "notes_only", "fail", *PROXIES})],
)  # fmt: skip
def test_the_role_passes_the_plan_as_one_value(name: str, keys: set[str]) -> None:
    tasks = yaml.safe_load((TASKS / (name + ".yml")).read_text(encoding="utf-8"))
    (task,) = [task for task in tasks if "rebellions.npu.rbln_driver" in task]
    given = task["rebellions.npu.rbln_driver"]
    assert given["plan"] == "{{ rbln_preflight_plan }}" and set(given) == keys | {"plan"}
