# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that belong together: what a release fills in, what is told, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.releases import judge_pairs, table
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.matrix import judge_sdk
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

ROOT = Path(__file__).resolve().parents[5]
ON = {"enabled": True}


def tagged(tag: str) -> dict[str, Any]:
    return {"enabled": True, "image": {"tag": tag}}


def test_a_release_gives_each_image_its_version() -> None:
    made = inputs(
        sdk="0.11.2", smd=ON, metrics_exporter=ON, vfio_manager={**ON, "source": "image"},
        sandbox_device_plugin=ON, workload="container",
    )  # fmt: skip
    tags = {
        name: made[name]["image"]["tag"]
        for name in ("device_plugin", "smd", "metrics_exporter", "vfio_manager", "sandbox_device_plugin")
    }
    assert tags == {
        "device_plugin": "v0.4.3", "smd": "3.2.2", "metrics_exporter": "0.3.4", "vfio_manager": "1.0.1",
        "sandbox_device_plugin": "0.1.1",
    }  # fmt: skip
    assert made["dra_driver"]["image"]["tag"] == ""


@pytest.mark.parametrize("sdk", [release["sdk"] for release in table().releases])
def test_every_component_of_a_release_has_an_image(sdk: str) -> None:
    versions = next(release["versions"] for release in table().releases if release["sdk"] == sdk)
    for component, version in versions.items():
        own = {**ON, "source": "image"} if component in ("feature_discovery", "vfio_manager") else ON
        given: dict[str, Any] = {component: own}
        if component == "driver_manager":
            given = {"driver": {"enabled": True, "image": {"tag": "3.2.2"}}, "validator": ON}
        if component == "dra_driver":
            given["device_plugin"] = {"enabled": False}
        if component == "metrics_exporter" and sdk == "0.9.3":
            given["smd"] = tagged("2.0.1")
        made = inputs(sdk=sdk, **given)
        image = made["driver"]["manager"]["image"] if component == "driver_manager" else made[component]["image"]
        assert image["tag"].removeprefix("v") == version, component


@pytest.mark.parametrize("driver, refused", [("3.2.2", True), ("2.0.1", False), ("latest", False), ("", False)])
def test_the_driver_of_a_host_is_judged_with_the_exporter(driver: str, refused: bool) -> None:
    made = inputs(metrics_exporter=tagged("0.2.0"))
    if refused:
        with pytest.raises(NpuError, match="factor of 1000"):
            judge_pairs(made, [driver])
    else:
        judge_pairs(made, [driver])


def test_without_a_release_only_the_device_plugin_has_a_version() -> None:
    made = inputs(metrics_exporter=tagged("0.3.4"), smd=tagged("3.2.2"))
    assert made["device_plugin"]["image"]["tag"] == "v0.4.3"
    assert inputs(sdk="v0.10.3")["device_plugin"]["image"]["tag"] == "v0.4.0"


def test_the_site_s_own_version_and_digest_stay() -> None:
    digest = "sha256:" + "1" * 64
    made = inputs(sdk="0.11.2", device_plugin={"image": {"digest": digest}}, metrics_exporter=tagged("0.3.5"))
    assert made["device_plugin"]["image"] | {"tag": "", "digest": digest} == made["device_plugin"]["image"]
    assert made["metrics_exporter"]["image"]["tag"] == "0.3.5"
    assert [note for note in made["notes"] if "0.3.5" in note] == [
        "rbln_operands_metrics_exporter has version 0.3.5, and SDK 0.11.2 has 0.3.4. "
        "Next: leave out its tag, or correct rbln_operands_sdk."
    ]


@pytest.mark.parametrize(
    ("exporter", "given", "fitting"),
    [
        ("0.2.0", {"smd": tagged("3.2.2")}, "0.3.4, 0.2.5"),
        ("0.2.0", {"sdk": "0.10.0"}, "0.2.4, 0.2.3"),
        ("v0.2.3", {"smd": tagged("2.0.1")}, "0.2.0"),
        ("0.2.0", {"smd": tagged("3.9.9")}, "0.3.4, 0.2.5, 0.2.4, 0.2.3"),
    ],
)
def test_an_exporter_that_reports_wrong_temperatures_is_refused(
    exporter: str, given: dict[str, Any], fitting: str
) -> None:
    with pytest.raises(NpuError) as caught:
        inputs(metrics_exporter=tagged(exporter), **given)
    assert "wrong by a factor of 1000" in str(caught.value)
    assert str(caught.value).endswith("Set its tag to one of %s." % fitting)


@pytest.mark.parametrize("exporter, smd", [("0.3.4", "3.2.2"), ("0.2.0", "2.0.1"), ("1", "3.2.2"), ("latest", "1")])
def test_right_and_unknown_pairs_pass(exporter: str, smd: str) -> None:
    assert inputs(metrics_exporter=tagged(exporter), smd=tagged(smd))["notes"] == []


def test_an_unknown_release_is_one_error() -> None:
    with pytest.raises(NpuError, match=r"rbln_operands_sdk is 0\.11\.9, and the versions .* not known\. Next: .*0\.11"):
        inputs(sdk="0.11.9")


def test_the_table_agrees_with_the_inputs_and_with_the_support_matrix() -> None:
    options = role_inputs(("rbln_operands",))
    for component, published in table().images.items():
        name, *path = ("driver", "manager", "image") if component == "driver_manager" else (component, "image")
        option = options["rbln_operands_" + name]
        for key in path:
            option = option["options"][key]
        assert option["options"]["repository"]["default"] == published["repository"], component
    text = (ROOT / "roles/rbln_preflight/vars/main.yml").read_text(encoding="utf-8")
    matrix = yaml.safe_load(text)["__rbln_preflight_support_matrix"]
    for release in table().releases:
        assert set(release["versions"]) <= set(table().images)
        for driver in release["drivers"]:
            assert judge_sdk(matrix, release["sdk"], driver, ("ATOM",)).state == "listed", release["sdk"]
