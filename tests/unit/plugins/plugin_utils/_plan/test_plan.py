# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would do, row by row. Cases U06-noop-upgrade, I02-legacy-package, F12-vfio-bound."""

from __future__ import annotations

import copy
import functools
import json
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import normalise
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.plan import plan
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.situation import Case
from ansible_collections.rebellions.npu.tests.unit.fixtures.checked import checked
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import validator

MATRIX = [
    {
        "os": "ubuntu",
        "version": "24.04",
        "kernel": "6.8.0",
        "drivers": [">=3.2", "<3.4"],
        "kernel_max": "6.8.0-117-generic",
    }
]
SHARED = {
    "rbln_driver_ca_cert": "",
    "rbln_driver_http_proxy": "",
    "rbln_driver_https_proxy": "",
    "rbln_driver_no_proxy": "",
}
# What an installation would install from, whichever the source is.
GIVEN = {
    "rbln_driver_runfile": "/srv/",
    "rbln_driver_runfile_sha256": "c" * 64,
    "rbln_driver_package_names": ["rebellions"],
}


KERNEL = "6.8.0-117-generic"
GIB = 1024**3


def npu(state: str = "ok", function: str = "pf", family: str = "ATOM") -> dict[str, t.Any]:
    return {"address": "0000:83:00.0", "state": state, "function": function, "family": family, "firmware": "3.2.2"}


def facts(**changes: t.Any) -> dict[str, t.Any]:
    base: dict[str, t.Any] = {
        "vendor": "rebellions",
        "npus": [npu()],
        "counts": {"functions": 1},
        "probes": {},
        "driver": {
            "installed_via": "runfile",
            "root": "/",
            "version_on_disk": "3.2.2",
            "version_loaded": "3.2.2",
            "loaded": True,
            "legacy": False,
            "packages": [],
            "signed": False,
            "signer": None,
            "dkms": [],
            "stamp": None,
            "state": {"change": None, "tainted": None, "refused": []},
        },
        "kernel": {
            "running": KERNEL,
            "next_boot": KERNEL,
            "headers": {KERNEL: True},
            "modules": {KERNEL: True},
            "packages": [],
            "guard": [],
        },
        "os": {
            "id": "ubuntu",
            "version_id": "24.04",
            "base_id": "ubuntu",
            "base_version": "24.04",
            "family": "debian",
            "pretty": "Ubuntu",
            "arch": "x86_64",
        },
        "virtualization": "none",
        "secure_boot": "disabled",
        "mok": {
            "state": "none",
            "key_present": False,
            "certificate": "/var/lib/dkms/mok.pub",
            "subject": None,
            "signer_enrolled": None,
            "enforced_by": "",
            "trusted": None,
        },
        "build": {"packages": {}, "programs": {"dkms": "/usr/sbin/dkms", "cc": "/usr/bin/cc", "make": "/usr/bin/make"}},
        "disk": {"/": 100 * GIB, "/boot": GIB, "/usr": 100 * GIB, "/var": 100 * GIB, "/lib/modules": 100 * GIB},
        "mounts": {"/": "/", "/boot": "/boot", "/usr": "/", "/var": "/", "/lib/modules": "/"},
        "initramfs": None,
        "holds": [],
        "pciehp": {"ports": []},
    }
    base = copy.deepcopy(base)
    for key, value in changes.items():
        base[key] = {**base[key], **value} if isinstance(value, dict) else value
    return base


def no_driver() -> dict[str, t.Any]:
    return {"installed_via": "none", "version_on_disk": None, "version_loaded": None, "loaded": False, "signed": None}


def runtime(**changes: t.Any) -> dict[str, t.Any]:
    base: dict[str, t.Any] = {
        "name": "containerd",
        "flavor": "system",
        "version": "1.7.24",
        "changes": [],
        "refusal": None,
        "process_stale": False,
        "restart_unit": "containerd.service",
        "cdi": {"state": "on"},
    }
    return {**base, **changes}


def runtimes(*items: dict[str, t.Any], **changes: t.Any) -> dict[str, t.Any]:
    found = list(items) or [runtime()]
    return {"runtimes": found, "selected": [item["name"] for item in found], "ambiguous": None, **changes}


def observed(**changes: t.Any) -> dict[str, t.Any]:
    base: dict[str, t.Any] = {
        "cdi": {"state": "current", "changed": False},
        "host_tool": {"current": True, "sha256": "a", "wanted": "a"},
        "markers": {"current": True, "present": ["driver-ready", "toolkit-ready"]},
        "passed": True,
    }
    return {**base, **changes}


schema = functools.lru_cache(maxsize=None)(validator)


def draw(
    raw: dict[str, t.Any] | None = None, f: t.Any = None, r: t.Any = None, o: t.Any = None, **keys: t.Any
) -> dict[str, t.Any]:
    wanted = normalise({**SHARED, **GIVEN, **(raw or {})}, role_inputs())
    f, r = f or facts(), r or runtimes()
    o = {"checks": checked(f, r), **(o or observed())}
    found: dict[str, t.Any] = {**plan(Case(wanted, f, r, o, MATRIX), **keys).to_dict()}
    schema("plan.schema.json").validate(json.loads(json.dumps(found)))
    assert set(found) == set(schema("plan.schema.json").schema["required"])
    return found


def ids(found: dict[str, t.Any]) -> list[str]:
    return [step["id"] for step in found["steps"]]


def codes(found: dict[str, t.Any], key: str = "stops") -> list[str]:
    return [item["code"] for item in found[key]]


def test_u06_a_right_host_has_nothing_to_do() -> None:
    found = draw({"rbln_driver_version": "3.2.2", "rbln_driver_source": "runfile"})
    assert (ids(found), found["stops"], found["roles"], found["disruption"]) == ([], [], [], "none")


def test_a_virgin_host_gets_everything_and_knows_what_it_cannot_know() -> None:
    found = draw(
        {
            "rbln_driver_version": "3.2.2",
            "rbln_driver_source": "runfile",
            "rbln_container_toolkit_runtime_restart": "if_required",
        },
        facts(driver=no_driver(), npus=[npu("unbound")]),
        runtimes(
            runtime(
                changes=[{"path": "/etc/containerd/config.toml", "what": "enable_cdi", "why": "CDI is off."}],
                cdi={"state": "off"},
            )
        ),
        observed(
            cdi={"state": "missing", "changed": True},
            host_tool={"current": False, "sha256": None, "wanted": "a"},
            markers={"current": False, "present": []},
        ),
    )
    assert ids(found) == [
        "driver.install",
        "toolkit.cdi",
        "toolkit.host_tool",
        "toolkit.runtime.containerd",
        "validator.markers",
    ]
    assert found["steps"][1]["after"] == "driver.install"
    assert found["stops"] == []
    assert found["roles"] == ["driver", "container_toolkit", "validator"]
    assert found["acts"]["container_toolkit"] == ["cdi", "host_tool", "runtime"]
    assert found["disruption"] == "restart"


@pytest.mark.parametrize(
    "raw, driver, stops",
    [
        ({}, no_driver(), ["driver_installed"]),
        ({"rbln_driver_version": "3.3.0"}, {}, ["driver_version_differs"]),
        ({"rbln_driver_version": "3.2.2"}, {"version_on_disk": "3.2.2-rebel1"}, []),
        ({"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.1"}, {}, ["driver_replace_not_allowed"]),
        (
            {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.2"},
            {"installed_via": "deb", "version_on_disk": "2.0.1", "legacy": True},
            ["driver_replace_not_allowed"],
        ),
        (
            {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.2"},
            {"installed_via": "deb", "version_on_disk": "3.2.0"},
            ["driver_replace_not_allowed"],
        ),
        (
            {"rbln_driver_source": "package", "rbln_driver_version": "3.2.2"},
            {"installed_via": "container"},
            ["driver_from_container"],
        ),
        ({"rbln_driver_source": "package"}, {}, []),
    ],
)
def test_a_driver_is_never_touched_by_surprise(
    raw: dict[str, t.Any], driver: dict[str, t.Any], stops: list[str]
) -> None:
    found = draw(raw, facts(driver=driver))
    assert codes(found) == stops
    assert "driver.install" not in ids(found)
    assert all(stop["next_step"] for stop in found["stops"])


@pytest.mark.parametrize("version", ["", "3.2.3"])
def test_an_installation_that_broke_off_is_done_again_unasked(version: str) -> None:
    left = {"installed_via": "deb", "version_on_disk": None, "version_loaded": None, "loaded": False}
    found = draw({"rbln_driver_source": "runfile", "rbln_driver_version": version}, facts(driver=left))
    assert codes(found) == [] and found["steps"][0]["id"] == "driver.install"
    assert found["steps"][0]["reason"] == "An installation was interrupted."
    assert codes(draw({}, facts(driver=left))) == ["driver_installed"]
    loaded = draw(
        {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.3"}, facts(driver={**left, "loaded": True})
    )
    assert codes(loaded) == ["driver_replace_not_allowed"]


def test_a_driver_is_replaced_when_the_inputs_allow_it() -> None:
    raw = {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.1", "rbln_driver_replace": "true"}
    found = draw(raw)
    assert ids(found) == ["driver.install", "toolkit.cdi", "validator.markers"]
    assert found["disruption"] == "evict"


def test_another_version_loaded_than_on_disk_is_said() -> None:
    found = draw({"rbln_driver_source": "package"}, facts(driver={"version_loaded": "3.2.0"}))
    assert codes(found, "cautions") == ["driver_on_disk_is_loaded"]


@pytest.mark.parametrize(
    "driver, act",
    [
        ({"loaded": False, "version_loaded": None, "signed": True}, "driver.reload"),
        ({"state": {"change": {"step": "stop", "touched": False}, "tainted": None, "refused": []}}, "driver.recover"),
    ],
)
def test_what_follows_a_driver_that_is_only_loaded_or_put_back_names_that_step(
    driver: dict[str, t.Any], act: str
) -> None:
    found = draw({"rbln_driver_source": "package"}, facts(driver=driver))
    assert ids(found) == [act, "toolkit.cdi", "validator.markers"]
    assert (found["steps"][1]["after"], found["steps"][1]["wanted"]) == (act, "known after " + act)
    assert found["disruption"] == ("none" if act == "driver.reload" else "evict")


def test_f12_a_passthrough_host_gets_no_driver_and_no_toolkit() -> None:
    found = draw(
        {}, facts(npus=[npu("passthrough")], driver=no_driver()), o=observed(cdi={"state": "missing", "changed": True})
    )
    assert ids(found) == []
    assert found["stops"] == []
    assert codes(found, "cautions") == ["no_driver_needed"]


@pytest.mark.parametrize(
    "policy, stops, cautions",
    [("fail", ["not_in_support_matrix"], []), ("warn", [], ["not_in_support_matrix"]), ("ignore", [], [])],
)
def test_an_unlisted_kernel_follows_the_policy(policy: str, stops: list[str], cautions: list[str]) -> None:
    found = draw({"rbln_preflight_unlisted": policy}, facts(kernel={"running": "6.8.0-138-generic", "next_boot": None}))
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)


def test_the_next_boot_kernel_is_judged_too() -> None:
    found = draw({}, facts(kernel={"next_boot": "6.8.0-138-generic"}))
    assert codes(found) == ["not_in_support_matrix"]
    assert "next boot kernel" in found["stops"][0]["detail"]


@pytest.mark.parametrize("policy, stops", [("fail", ["npus_found"]), ("warn", [])])
def test_a_host_without_npus_follows_the_policy(policy: str, stops: list[str]) -> None:
    found = draw(
        {"rbln_preflight_no_npus": policy, "rbln_preflight_unlisted": "ignore"}, facts(npus=[], counts={"functions": 0})
    )
    assert codes(found) == stops


def test_two_families_on_a_host_stop_it() -> None:
    assert "one_family" in codes(draw({}, facts(npus=[npu(), npu(family="REBEL")], counts={"functions": 2})))


def test_two_pools_stop_the_host() -> None:
    assert codes(draw({}, group_names=["npu_pool_a", "npu_pool_b", "npu_nodes"])) == ["two_pools"]
    assert codes(draw({}, group_names=["npu_pool_a", "npu_pools"])) == []


CHANGE = {"path": "/etc/containerd/config.toml", "what": "enable_cdi = true", "why": "CDI is off."}


@pytest.mark.parametrize(
    "raw, item, steps, stops",
    [
        ({}, runtime(changes=[CHANGE]), [], ["runtime_restart_not_allowed"]),
        (
            {"rbln_container_toolkit_runtime_restart": "if_required"},
            runtime(changes=[CHANGE]),
            ["toolkit.runtime.containerd", "validator.markers"],
            [],
        ),
        (
            {"rbln_container_toolkit_runtime_restart": "if_required"},
            runtime(process_stale=True),
            ["toolkit.restart.containerd", "validator.markers"],
            [],
        ),
        ({}, runtime(process_stale=True), [], ["runtime_restart_not_allowed"]),
        ({}, runtime(process_stale=None), [], []),
        (
            {},
            runtime(refusal={"reason": "containerd 1.6 has no CDI.", "next_step": "Upgrade containerd."}),
            [],
            ["runtime_refused"],
        ),
        ({}, runtime(flavor="docker-backend", changes=[CHANGE]), [], []),
        ({}, runtime(name="podman", restart_unit=None), [], []),
    ],
)
def test_runtimes(raw: dict[str, t.Any], item: dict[str, t.Any], steps: list[str], stops: list[str]) -> None:
    found = draw(raw, r=runtimes(item))
    assert (ids(found), codes(found)) == (steps, stops)


def test_an_ambiguous_runtime_is_asked_about() -> None:
    found = draw(
        {}, r=runtimes(ambiguous={"reason": "Two runtimes.", "candidates": ["a", "b"], "next_step": "Choose."})
    )
    assert codes(found) == ["runtime_known"]


def test_the_runtime_of_a_host_whose_split_cards_serve_machines_is_asked_about() -> None:
    f = facts(npus=[{**npu(), "vfs": 1}, npu("passthrough", "vf")], counts={"functions": 2})
    none = {"name": "not_for_containers", "scope": "toolkit", "ok": True, "severity": "info", "detail": "all given"}
    records = [record for record in checked(f, runtimes()) if record["scope"] == "driver"] + [none]
    unclear = {"reason": "Two runtimes.", "candidates": ["a", "b"], "next_step": "Choose."}
    found = draw({}, f, runtimes(selected=[], ambiguous=unclear), observed(checks=records))
    assert [(stop["code"], stop["next_step"]) for stop in found["stops"]] == [("runtime_known", "Choose.")]
    raw = {"rbln_container_toolkit_no_runtime": "fail"}
    assert codes(draw(raw, f, runtimes(selected=[]), observed(checks=records))) == ["runtime_known"]
    raw = {"rbln_container_toolkit_no_runtime": "ignore"}
    assert codes(draw(raw, f, runtimes(selected=[]), observed(checks=records))) == []


def test_ready_files_that_do_not_fit_are_a_step() -> None:
    assert ids(draw({}, o=observed(markers={"current": False, "present": []}))) == ["validator.markers"]


def test_a_vendor_package_that_is_there_is_no_step() -> None:
    have = facts(driver={"packages": [{"name": "rbln-container-toolkit", "version": "0.2.3", "state": "installed"}]})
    raw = {"rbln_container_toolkit_package": "rbln-container-toolkit=0.2.3"}
    assert ids(draw(raw, have)) == []
    assert ids(draw(raw))[0] == "toolkit.package"


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"steps": [{"id": "driver.install"}]},
        {"stops": [{"code": "Has Spaces"}]},
        {"roles": ["operands"]},
        {"acts": {"driver": ["install"]}},
        {"disruption": "outage"},
        {"stale_units": [""]},
        {"cdi_options": {"form": "auto", "path": "/var/run/cdi/rbln.yaml"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_no_plan_does_not_fit_the_schema(changes: dict[str, t.Any]) -> None:
    assert list(schema("plan.schema.json").iter_errors({**draw(), **changes}))


def test_acts_of_the_schema_are_task_files_of_their_roles() -> None:
    acts = schema("plan.schema.json").schema["properties"]["acts"]["properties"]
    toolkit = acts["container_toolkit"]["items"]["enum"]
    assert toolkit and all(
        (COLLECTION / "roles/rbln_container_toolkit/tasks" / (act + ".yml")).is_file() for act in toolkit
    )


def test_w02_a_host_whose_checks_fail_is_proven_again_although_no_file_would_change() -> None:
    found = draw({}, o=observed(passed=False, markers={"current": True, "present": []}))
    assert ids(found) == ["validator.markers"]
    assert found["steps"][0]["reason"] == "A check has not passed."


def test_a_host_without_npus_that_is_let_pass_is_left_alone() -> None:
    bare = facts(npus=[], counts={"functions": 0}, driver=no_driver())
    seen = observed(
        cdi={"state": "missing", "changed": True},
        host_tool={"current": False, "sha256": None, "wanted": "a"},
        markers={"current": False, "present": []},
        passed=False,
    )
    found = draw(
        {"rbln_preflight_no_npus": "warn", "rbln_preflight_unlisted": "ignore"},
        bare,
        runtimes(runtime(changes=[CHANGE])),
        seen,
    )
    assert (ids(found), codes(found)) == ([], [])


@pytest.mark.parametrize(
    "state, stops",
    [("denied", ["driver_unknown"]), ("timeout", ["driver_unknown"]), ("failed", ["driver_unknown"]), ("absent", [])],
)
def test_a_driver_that_could_not_be_looked_for_is_not_taken_for_absent(state: str, stops: list[str]) -> None:
    hidden = facts(driver=no_driver(), probes={"module_file": {"state": state, "detail": ""}})
    found = draw({"rbln_driver_source": "package", "rbln_driver_version": "3.2.2"}, hidden)
    assert codes(found) == stops
    assert ("driver.install" in ids(found)) is (not stops)
