# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The support matrix that ships, judged on hosts. Case I01-kernel-matrix and its neighbours."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import support_matrix
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.matrix import (
    check_rules,
    judge,
    judge_sdk,
    sources_for,
)

ROLE = pathlib.Path(__file__).parents[5] / "roles" / "rbln_preflight" / "vars" / "main.yml"


@pytest.fixture(name="matrix")
def matrix_fixture() -> list[dict[str, t.Any]]:
    data = yaml.safe_load(ROLE.read_text(encoding="utf-8"))
    rules = data["__rbln_preflight_support_matrix"]
    assert len(rules) > 20
    for rule in rules:
        for key in ("too_old", "too_new", "pciehp"):
            if key in rule:
                rule[key] = data[rule[key].strip("{} ")]
    return rules


def test_the_collection_s_rules_are_those_of_the_role(matrix: list[dict[str, t.Any]]) -> None:
    assert support_matrix() == matrix and "{{" not in str(support_matrix()) and "rbln_preflight_pciehp" in str(matrix)
    assert support_matrix() is support_matrix()


@pytest.mark.parametrize(
    "os_id, version, kernel, state, next_step",
    [
        ("ubuntu", "22.04", "5.15.0-131-generic", "unlisted", "linux-generic-hwe-22.04"),
        ("ubuntu", "22.04", "6.8.0-117-generic", "listed", ""),
        ("ubuntu", "24.04", "6.8.0-117-generic", "listed", ""),
        ("ubuntu", "24.04", "6.8.0-138-generic", "unlisted", "6.8.0-117-generic or older"),
        ("ubuntu", "24.04", "6.17.0-23-generic", "unlisted", "Remove linux-generic-hwe-24.04"),
        ("rhel", "9.6", "5.14.0-570.116.1.el9_6.x86_64", "listed", ""),
        ("rhel", "9.7", "5.14.0-611.55.1.el9_7.x86_64", "unlisted", "rbln_preflight_support_matrix_extra"),
        ("rhel", "10.0", "6.12.0-55.75.1.el10_0.x86_64", "listed", ""),
        ("rhel", "10.0", "6.12.0-55.9.1.el10_0.x86_64", "listed", ""),
        ("rhel", "10.0", "6.12.0-55.76.0.el10_0.x86_64", "unlisted", "or older"),
        ("rocky", "9.7", "5.14.0-611.55.1.el9_7.x86_64", "partly_tested", ""),
        ("ubuntu", "24.04", "6.8.0-1024-aws", "unlisted", "flavour generic"),
        ("ubuntu", "24.04", "6.8.12-060812-generic", "unlisted", "flavour generic"),
        ("debian", "12", "6.1.0-50-cloud-amd64", "unlisted", "rbln_preflight_unlisted: warn"),
    ],
)
def test_i01_kernel_matrix(
    matrix: list[dict[str, t.Any]], os_id: str, version: str, kernel: str, state: str, next_step: str
) -> None:
    verdict = judge(matrix, "3.2.2", ["ATOM"], [(os_id, version)], kernel)
    assert verdict.state == state
    assert next_step in verdict.next_step


def test_the_bound_depends_on_the_driver(matrix: list[dict[str, t.Any]]) -> None:
    assert judge(matrix, "3.4.1", ["ATOM"], [("ubuntu", "24.04")], "6.8.0-138-generic").state == "listed"
    assert judge(matrix, "9.0.0", ["ATOM"], [("ubuntu", "24.04")], "6.8.0-138-generic").state == "unlisted"


def test_a_derivative_is_judged_by_its_base(matrix: list[dict[str, t.Any]]) -> None:
    verdict = judge(matrix, "3.2.2", [], [("linuxmint", "22.1"), ("ubuntu", "24.04")], "6.8.0-117-generic")
    assert (verdict.state, verdict.detail) == (
        "partly_tested",
        "linuxmint 22.1 is not in the support matrix; it is judged as ubuntu 24.04, from which it is built.",
    )  # fmt: skip


@pytest.mark.parametrize(
    "os_id, version, kernel, state",
    [
        ("rocky", "9.6", "5.14.0-570.116.1.el9_6.x86_64", "partly_tested"),
        ("rocky", "9.6", "5.14.0-570.117.1.el9_6.x86_64", "unlisted"),
        ("ol", "9.6", "5.14.0-570.12.1.0.1.el9_6.x86_64", "partly_tested"),
        ("ol", "9.6", "5.15.0-300.163.18.el9uek.x86_64", "unlisted"),
        ("ol", "10.0", "6.12.0-40.28.2.el10uek.x86_64", "unlisted"),
        ("rhel", "9.6", "5.14.0-570.el9.x86_64", "listed"),
        ("rhel", "9.6", "5.14.0-570.116.1.el9_6.x86_64+rt", "unlisted"),
        ("rhel", "9.6", "5.14.0-570.116.1.el9_6.x86_64+debug", "unlisted"),
        ("rhel", "9.6", "5.14.0-284.30.1.rt14.315.el9_2.x86_64", "unlisted"),
        ("rhel", "10.0", "6.12.0-1.el10.elrepo.x86_64", "unlisted"),
    ],
)
def test_kernels_of_enterprise_linux_and_what_is_built_from_it(
    matrix: list[dict[str, t.Any]], os_id: str, version: str, kernel: str, state: str
) -> None:
    verdict = judge(matrix, "3.2.2", ["ATOM"], [(os_id, version), ("rhel", version)], kernel)
    assert verdict.state == state
    if "570.116" in kernel and state == "unlisted":
        assert verdict.next_step == "Boot the standard kernel of rhel 9.6."


@pytest.mark.parametrize(
    "rule, kernel, state",
    [
        ({"kernel": "6.12"}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12.0"}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12.38"}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12.38"}, "6.12.43+deb13-amd64", "unlisted"),
        ({"kernel": "6.12"}, "6.13.0-1-amd64", "unlisted"),
        ({"kernel": "6.12"}, "6.1.0-50-amd64", "unlisted"),
        ({"kernel": "6.0"}, "6.12.38+deb13-amd64", "unlisted"),
        ({"kernel": "6.12", "flavours": ["amd64"]}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12", "flavours": ["amd64"]}, "6.12.38+deb13-cloud-amd64", "unlisted"),
        ({"kernel": "6.12", "kernel_max": "6.12"}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12", "kernel_max": "6.12.38+deb13-amd64"}, "6.12.38+deb13-amd64", "listed"),
        ({"kernel": "6.12", "kernel_max": "6.12.38"}, "6.12.43+deb13-amd64", "unlisted"),
        ({"kernel": "6.1", "kernel_max": "6.1.0-50-amd64"}, "6.1.0-49-amd64", "listed"),
        ({"kernel": "6.1", "kernel_max": "6.1.0-50-amd64"}, "6.1.0-51-amd64", "unlisted"),
    ],
)
def test_i01_kernel_matrix_a_rule_that_names_a_series_is_about_all_of_it(
    rule: dict[str, t.Any], kernel: str, state: str
) -> None:
    assert judge([{"os": "debian", "version": "13", **rule}], "3.4.0", [], [("debian", "13")], kernel).state == state


def test_unknown_is_not_unlisted(matrix: list[dict[str, t.Any]]) -> None:
    assert judge(matrix, None, [], [("ubuntu", "24.04")], "6.8.0-117-generic").state == "unknown"
    assert judge(matrix, "3.2.2", [], [("ubuntu", "24.04")], None).state == "unknown"


def test_families_choose_the_rule() -> None:
    rules = [{"os": "x", "version": "1", "kernel": "6.8.0", "families": ["REBEL"], "drivers": [">=3"]}]
    assert judge(rules, "3.5", ["REBEL"], [("x", "1")], "6.8.0-1-generic").state == "listed"
    assert judge(rules, "3.5", ["ATOM"], [("x", "1")], "6.8.0-1-generic").state == "unlisted"


@pytest.mark.parametrize(
    "rule, message",
    [
        ({"os": "ubuntu", "version": 24.04, "kernel": "6.8.0"}, r"extra\[0\].version must be text"),
        ({"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "kernl_max": "x"}, "unknown key kernl_max"),
        ({"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "drivers": ["newest"]}, "not a version constraint"),
        ("ubuntu", "not a mapping"),
        (
            {"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "severity": "error"},
            r"extra\[0\].severity is 'error'",
        ),
        (
            {"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "packages_absent": "linux-*-hwe"},
            r"extra\[0\].packages_absent must be a list",
        ),
        ({"sdk": "0.12.0", "drivers": [">=3.4"]}, r"extra\[0\].sdk must be a list of text"),
        ({"sdk": ["0.12.0"], "os": "ubuntu"}, "unknown key os"),
        ({"sdk": ["0.12.0"], "drivers": ["newest"]}, "not a version constraint"),
        ({"sources": ["package"], "drivers": ["<3.0"], "version": "24.04"}, "unknown key version"),
        ({"sources": "package", "drivers": ["<3.0"]}, r"extra\[0\].sources must be a list"),
    ],
)
def test_a_bad_rule_names_its_place(rule: t.Any, message: str) -> None:
    with pytest.raises(NpuError, match=message):
        check_rules([rule], "extra")


def test_the_shipped_matrix_is_valid(matrix: list[dict[str, t.Any]]) -> None:
    check_rules(matrix, "matrix")


@pytest.mark.parametrize(
    "sdk, driver, families, state",
    [
        ("0.11.2", "3.2.2-6eed3e9-release", ["ATOM"], "listed"),
        ("0.11", "3.2.2", ["ATOM"], "listed"),
        ("0.10", "3.0.0", ["ATOM"], "listed"),
        ("0.10.4", "3.0.0", ["ATOM"], "unlisted"),
        ("0.10.2", "3.0.0", ["ATOM"], "unlisted"),
        ("0.11.1.post1", "3.2.2", ["ATOM"], "listed"),
        ("0", "3.2.2", ["ATOM"], "unlisted"),
        ("newest", "3.2.2", ["ATOM"], "unlisted"),
        ("0.12.0", "3.5.1", ["REBEL"], "listed"),
        ("0.12.0", "3.5.1", [], "listed"),
        ("0.12.0", "3.4.1", ["REBEL"], "unlisted"),
        ("0.9.3", "2.0.1", ["ATOM"], "listed"),
        ("0.11.2", None, ["ATOM"], "unknown"),
    ],
)
def test_a_driver_belongs_to_an_sdk(
    matrix: list[dict[str, t.Any]], sdk: str, driver: str | None, families: list[str], state: str
) -> None:
    assert judge_sdk(matrix, sdk, driver, families).state == state


@pytest.mark.parametrize(
    "driver, sources", [("1.3.73", ["package"]), ("2.1.0", ["package"]), ("3.0.0", []), ("3.0.0~rc1", []), (None, [])]
)
def test_i02_legacy_package_what_a_driver_comes_as(
    matrix: list[dict[str, t.Any]], driver: str | None, sources: list[str]
) -> None:
    assert list(sources_for(matrix, driver, ["ATOM"])) == sources


def test_rows_of_the_sdk_judge_no_host() -> None:
    rules = [{"sdk": ["0.12.0"], "drivers": [">=3.4"]}]
    assert judge(rules, "3.4.0", ["ATOM"], [("ubuntu", "24.04")], "6.8.0-1-generic").state == "unlisted"
