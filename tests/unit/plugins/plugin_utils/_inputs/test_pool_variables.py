# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of a pool against those of other groups, by Ansible's own inventory, files and order of variables."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.pool_variables import check_pool

POOL = "npu_pool_debian_12_k6_1_0_50"
OLD_POOL = "npu_pool_debian_12_k6_1_0_99"
INPUT = "rbln_driver_version"
HOST_FILE = "inventory/host_vars/npu-1"
# Shapes of inventories that people have; the host is npu-1.
FLAT = "npu_nodes: {hosts: {npu-1: }}"
SITES = "npu_nodes: {children: {site_seoul: {hosts: {npu-1: }}, a_rack: {hosts: {npu-1: }}}}"
RACK = "{hosts: {npu-1: }}"
DEEP = "{npu_nodes: %s, region: {children: {site: {children: {rack: %s}}}}}" % (RACK, RACK)
BESIDE = "{npu_nodes: {hosts: {npu-1: }}, zone: {hosts: {npu-1: }}}"
IN_HOSTS = "{npu_nodes: {hosts: {npu-1: }, vars: {%s: '1'}}, %s: {vars: {%s: '9'}}}" % (INPUT, POOL, INPUT)


def run(
    folder: pathlib.Path, hosts: str, files: t.Mapping[str, str], pools: t.Sequence[str] = (POOL,)
) -> tuple[str, str]:
    """(the value that Ansible gives the host, the error or nothing)."""
    for name, value in files.items():
        path = folder / (name + ".yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("%s: '%s'\n" % (INPUT, value), encoding="utf-8")
    source = folder / "inventory" / "hosts.yml"
    source.parent.mkdir(exist_ok=True)
    source.write_text(hosts + "\n", encoding="utf-8")
    loader = DataLoader()
    (folder / "play").mkdir(exist_ok=True)
    loader.set_basedir(str(folder / "play"))
    inventory = InventoryManager(loader=loader, sources=[str(source)])
    # What group_by does.
    for pool in pools:
        inventory.add_group(pool)
        inventory.add_group("npu_pools")
        inventory.groups["npu_pools"].add_child_group(inventory.groups[pool])
        inventory.groups[pool].add_host(inventory.hosts["npu-1"])
    inventory.reconcile_inventory()
    manager = VariableManager(loader=loader, inventory=inventory)
    variables = manager.get_vars(host=inventory.hosts["npu-1"])
    try:
        check_pool(inventory, loader, "npu-1", POOL, variables)
    except NpuError as exc:
        return str(variables[INPUT]), str(exc)
    return str(variables[INPUT]), ""


def group(name: str) -> str:
    return "inventory/group_vars/" + name


@pytest.mark.parametrize(
    ("hosts", "files", "used", "winner"),
    [
        pytest.param(FLAT, {group("npu_nodes"): "1", group(POOL): "9"}, "9", "", id="flat, pool wins"),
        pytest.param(SITES, {group("a_rack"): "1", group(POOL): "9"}, "9", "", id="sites, earlier name"),
        pytest.param(SITES, {group("site_seoul"): "1", group(POOL): "9"}, "1", "site_seoul", id="sites, later name"),
        pytest.param(DEEP, {group("rack"): "1", group(POOL): "9"}, "1", "rack", id="deeper group"),
        pytest.param(DEEP, {group("region"): "1", group(POOL): "9"}, "9", "", id="group above"),
        pytest.param(BESIDE, {group("zone"): "1", group(POOL): "9"}, "9", "", id="group beside npu_nodes"),
        pytest.param(IN_HOSTS, {}, "9", "", id="pool in the inventory file"),
        pytest.param(IN_HOSTS, {group("npu_nodes"): "1"}, "1", "npu_nodes", id="a file of a group above"),
        pytest.param(IN_HOSTS, {group("all"): "1"}, "1", "all", id="a file of all"),
        pytest.param(
            FLAT, {group(POOL): "9", "play/group_vars/npu_nodes": "1"}, "1", "npu_nodes", id="beside the playbook"
        ),
        pytest.param(SITES, {group("site_seoul"): "9", group(POOL): "9"}, "9", "", id="the same value"),
        pytest.param(SITES, {group("site_seoul"): "1", group(POOL): "9", HOST_FILE: "1"}, "1", "", id="the host's own"),
        pytest.param(SITES, {group("site_seoul"): "1"}, "1", "", id="nothing in the pool"),
    ],
)
def test_a_pool_wins_or_the_group_that_replaces_it_is_named(
    tmp_path: pathlib.Path, hosts: str, files: dict[str, str], used: str, winner: str
) -> None:
    value, error = run(tmp_path, hosts, files)
    assert value == used
    if not winner:
        assert error == ""
        return
    assert "pool %s are not used: %s is replaced by group %s." % (POOL, INPUT, winner) in error
    assert "host_vars" in error


def test_the_pool_of_a_former_kernel_asks_for_another_run(tmp_path: pathlib.Path) -> None:
    value, error = run(tmp_path, FLAT, {group(OLD_POOL): "1", group(POOL): "9"}, (OLD_POOL, POOL))
    assert value == "1"
    assert "replaced by group %s. Next: Run again" % OLD_POOL in error


def test_a_value_that_is_for_this_run_may_differ(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.pool_variables.load_extra_vars",
        lambda loader: {INPUT: "1"},
    )
    assert run(tmp_path, SITES, {group("site_seoul"): "1", group(POOL): "9"}) == ("1", "")
