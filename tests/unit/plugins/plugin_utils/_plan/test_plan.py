# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would do, row by row. Cases U06-noop-upgrade, I02-legacy-package, F12-vfio-bound."""

from __future__ import annotations

import functools
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import NAMES
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan import repairs
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.words import change, why
from ansible_collections.rebellions.npu.tests.unit.fixtures.checked import checked
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import (
    NO_DRIVER,
    Data,
    facts,
    npu,
    observed,
    runtime,
    runtimes,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import draw as plan_of
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
# What an installation would install from, whichever the source is.
GIVEN = {
    "rbln_driver_runfile": "/srv/",
    "rbln_driver_runfile_sha256": "c" * 64,
    "rbln_driver_package_names": ["rebellions"],
}


schema = functools.lru_cache(maxsize=None)(validator)


def draw(raw: Data | None = None, f: t.Any = None, r: t.Any = None, o: t.Any = None, **keys: t.Any) -> Data:
    return plan_of({**GIVEN, **(raw or {})}, f or facts(), MATRIX, r, o, **keys)


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
        facts(driver=NO_DRIVER, npus=[npu("unbound")]),
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
        "toolkit.host_tool",
        "toolkit.cdi",
        "toolkit.runtime.containerd",
        "validator.markers",
    ]
    assert found["steps"][2]["after"] == "driver.install"
    assert found["stops"] == []
    assert found["roles"] == ["driver", "container_toolkit", "validator"]
    # Containers do not start when the hook that their specification names is missing.
    assert found["acts"]["container_toolkit"] == ["host_tool", "cdi", "runtime"]
    assert found["disruption"] == "restart"


def test_what_is_repaired_is_the_reason_C10_cdi_perms() -> None:
    repairs = ["/run/cdi/rbln.yaml: owner 1000 and mode 0600 become root and 0644", "/run/cdi: mode 0777 becomes 0755"]
    found = draw(o=observed(cdi={"state": "current", "changed": True, "repairs": repairs}))
    assert found["steps"][0]["id"] == "toolkit.cdi"
    assert found["steps"][0]["reason"] == "%s. %s." % tuple(repairs)


@pytest.mark.parametrize(
    "raw, driver, stops",
    [
        ({}, NO_DRIVER, ["driver_installed"]),
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


VIRGIN: Data = {
    "passed": False,
    "cdi": {"state": "missing", "changed": False},
    "host_tool": {"current": False, "sha256": None, "wanted": "a"},
    "markers": {"current": True, "present": []},
}


def test_a_host_proves_no_driver_that_its_cluster_is_still_to_bring() -> None:
    raw = {"rbln_driver_source": "container"}
    found = draw(raw, facts(driver=NO_DRIVER), o=observed(**VIRGIN))
    assert (ids(found), found["roles"]) == (["toolkit.host_tool"], ["container_toolkit"])
    inside = {**NO_DRIVER, "installed_via": "container", "root": "/run/rbln/driver"}
    # Its container has crashed and left its files.
    assert ids(draw(raw, facts(driver=inside), o=observed(passed=False))) == []
    loaded = {**inside, "loaded": True, "version_loaded": "3.2.2"}
    found = draw(raw, facts(driver=loaded), o=observed(passed=False))
    assert (ids(found), found["roles"]) == (["validator.markers"], ["validator"])


def test_a_host_leaves_specification_and_runtime_to_a_toolkit_in_a_container() -> None:
    off = runtimes(runtime(cdi={"state": "off"}, changes=[{"why": "CDI is off"}]))
    stale = observed(cdi={"state": "stale", "changed": True})
    raw = {"rbln_container_toolkit_source": "container"}
    assert ids(draw(raw, r=off, o=stale)) == []
    assert ids(draw(r=off, o=stale, raw={"rbln_container_toolkit_runtime_restart": "if_required"})) == [
        "toolkit.cdi",
        "toolkit.runtime.containerd",
        "validator.markers",
    ]


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
        {}, facts(npus=[npu("passthrough")], driver=NO_DRIVER), o=observed(cdi={"state": "missing", "changed": True})
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


@pytest.mark.parametrize(
    "name, more",
    [
        ("rbln_preflight_no_npus", {"npus": [], "counts": {"functions": 0}}),
        ("rbln_preflight_unlisted", {"kernel": {"next_boot": "6.8.0-138-generic"}}),
    ],
)
def test_who_has_accepted_it_is_not_asked_to_accept_it(name: str, more: dict[str, t.Any]) -> None:
    (stop,) = draw({name: "fail"}, facts(**more))["stops"]
    assert stop["next_step"].endswith(f", or accept it with {name}: warn.")
    (told,) = (one for one in draw({name: "warn"}, facts(**more))["cautions"] if one["code"] == stop["code"])
    assert told["next_step"] == stop["next_step"].replace(f", or accept it with {name}: warn", "")


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
        ({}, runtime(restart_unit=None, changes=[CHANGE]), [], ["runtime_unit_unknown"]),
        (
            {"rbln_container_toolkit_runtime_restart": "if_required"},
            runtime(restart_unit=None, process_stale=True),
            [],
            ["runtime_unit_unknown"],
        ),
    ],
)
def test_runtimes(raw: dict[str, t.Any], item: dict[str, t.Any], steps: list[str], stops: list[str]) -> None:
    found = draw(raw, r=runtimes(item))
    assert (ids(found), codes(found)) == (steps, stops)


ALLOWED = {"rbln_container_toolkit_runtime_restart": "if_required"}
RANGES = ("10.96.0.0/12",)


def asked(*changed: str, no_proxy: t.Sequence[str] = RANGES, problem: str = "") -> Data:
    return {"changed": list(changed), "no_proxy": list(no_proxy), "problem": problem, "next_step": "Do it."}


@pytest.mark.parametrize(
    "raw, item, proxies, acts, stops",
    [
        (ALLOWED, runtime(), asked("containerd"), ["proxies"], []),
        (ALLOWED, runtime(), asked(), [], []),
        ({}, runtime(), asked("containerd"), [], ["runtime_restart_not_allowed"]),
        (ALLOWED, runtime(restart_unit=None), asked("containerd"), [], ["runtime_unit_unknown"]),
        (ALLOWED, runtime(changes=[CHANGE]), asked("containerd"), ["proxies", "runtime"], []),
        (ALLOWED, runtime(process_stale=True), asked("containerd"), ["proxies", "runtime"], []),
        (ALLOWED, runtime(), asked(problem="No proxy."), [], ["runtime_proxies_refused"]),
        (ALLOWED, runtime(flavor="k3s"), asked("containerd"), ["proxies"], []),
        (ALLOWED, runtime(flavor="k3s"), asked("containerd", no_proxy=[".svc"]), [], ["runtime_proxy_ranges_missing"]),
        (ALLOWED, runtime(), asked("containerd", no_proxy=[".svc"]), ["proxies"], []),
        (ALLOWED, runtime(flavor="docker-backend"), asked("containerd"), [], []),
        (
            {**ALLOWED, "rbln_container_toolkit_source": "container"},
            runtime(changes=[CHANGE]),
            asked("containerd"),
            ["proxies"],
            [],
        ),
    ],
)
def test_the_proxies_of_a_converged_host_are_a_step_before_the_runtime(
    raw: Data, item: Data, proxies: Data, acts: list[str], stops: list[str]
) -> None:
    found = draw(raw, r=runtimes(item), proxies=proxies)
    assert (found["acts"]["container_toolkit"], codes(found)) == (acts, stops)
    if acts:
        assert found["disruption"] == "restart" and found["acts"]["validator"] == ["markers"]


@pytest.mark.parametrize(
    "item, cautions",
    [(runtime(serves_kubelet=True), ["runtime_proxy_ranges_missing"]), (runtime(serves_kubelet=False), [])],
)
def test_network_plugins_need_ranges_without_a_proxy(item: Data, cautions: list[str]) -> None:
    found = draw(ALLOWED, r=runtimes(item), proxies=asked("containerd", no_proxy=[".svc"]))
    assert (codes(found, "cautions"), found["acts"]["container_toolkit"]) == (cautions, ["proxies"])
    assert codes(draw(ALLOWED, r=runtimes(item), proxies=asked("containerd")), "cautions") == []


def test_a_host_without_work_for_a_driver_gets_its_proxies() -> None:
    found = draw(
        {**ALLOWED, "rbln_preflight_no_npus": "warn", "rbln_preflight_unlisted": "ignore"},
        facts(npus=[], counts={"functions": 0}),
        proxies=asked("containerd"),
    )
    assert (ids(found), found["roles"]) == (["toolkit.proxies.containerd"], ["container_toolkit"])


def test_proxies_wait_until_it_is_known_which_runtime_is_meant() -> None:
    doubt = {"reason": "Two runtimes.", "candidates": ["a", "b"], "next_step": "Choose."}
    assert codes(draw(ALLOWED, r=runtimes(ambiguous=doubt), proxies=asked(problem="It is unclear."))) == [
        "runtime_known"
    ]


def test_an_ambiguous_runtime_is_asked_about() -> None:
    found = draw(
        {}, r=runtimes(ambiguous={"reason": "Two runtimes.", "candidates": ["a", "b"], "next_step": "Choose."})
    )
    assert codes(found) == ["runtime_known"]
    step = found["stops"][0]["next_step"]
    assert step.startswith("Choose. The inputs are rbln_container_toolkit_runtimes for the name")
    for name in ("unit", "config_file", "dropin_dir", "socket"):
        assert f"rbln_container_toolkit_runtime_{name}" in step


def test_h02_the_stop_names_the_inputs_for_a_unit_that_is_not_known() -> None:
    found = draw({}, r=runtimes(runtime(restart_unit=None, changes=[CHANGE])))
    assert "no systemd unit is known that runs it" in found["stops"][0]["detail"]
    assert "rbln_container_toolkit_runtime_unit, and containerd alone" in found["stops"][0]["next_step"]


def test_the_runtime_of_a_host_whose_split_cards_serve_machines_is_asked_about() -> None:
    f = facts(npus=[{**npu(), "vfs": 1}, npu("passthrough", "vf")], counts={"functions": 2})
    none = {"name": "not_for_containers", "scope": "toolkit", "ok": True, "severity": "info", "detail": "all given"}
    records = [record for record in checked(f, runtimes()) if record["scope"] == "driver"] + [none]
    unclear = {"reason": "Two runtimes.", "candidates": ["a", "b"], "next_step": "Choose."}
    found = draw({}, f, runtimes(selected=[], ambiguous=unclear), observed(checks=records))
    steps = [(stop["code"], stop["next_step"].split(" The inputs ")[0]) for stop in found["stops"]]
    assert steps == [("runtime_known", "Choose.")]
    raw = {"rbln_container_toolkit_no_runtime": "fail"}
    assert codes(draw(raw, f, runtimes(selected=[]), observed(checks=records))) == ["runtime_known"]
    raw = {"rbln_container_toolkit_no_runtime": "ignore"}
    assert codes(draw(raw, f, runtimes(selected=[]), observed(checks=records))) == []


@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
def test_a_named_runtime_that_is_not_on_the_host_stops(policy: str) -> None:
    absent = {"code": "runtime_not_found", "severity": "error", "detail": "the wanted runtime containerd is not there",
              "next_step": "", "vendor": "rebellions"}  # fmt: skip
    other = runtimes(runtime(name="docker"), selected=[], problems=[absent])
    found = draw({"rbln_container_toolkit_no_runtime": policy}, r=other)
    assert codes(found) == ["runtime_known"]
    assert "name a runtime of this host in rbln_container_toolkit_runtimes" in found["stops"][0]["next_step"]


OWNER = {
    "path": "/etc/containerd/config.toml",
    "name": "Puppet",
    "next_step": "make the same change in the manifest",
    "refuse": False,
}


@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
def test_h06_a_file_of_another_program_is_said_or_refused(policy: str) -> None:
    found = draw(
        {
            "rbln_container_toolkit_runtime_restart": "if_required",
            "rbln_container_toolkit_owned_config": policy,
        },
        r=runtimes(runtime(changes=[CHANGE], owners=[OWNER])),
    )
    said = {"fail": found["stops"], "warn": found["cautions"]}.get(policy, [])
    assert [item["code"] for item in said] == ["runtime_config_owned"] * (policy != "ignore")
    assert codes(found) == ["runtime_config_owned"] * (policy == "fail")
    assert all("/etc/containerd/config.toml is written by Puppet" in item["detail"] for item in said)
    assert all(item["next_step"].startswith("Make the same change in the manifest;") for item in said)
    assert "toolkit.runtime.containerd" in ids(found)


@pytest.mark.parametrize("policy, stops", [("fail", True), ("warn", True), ("ignore", False)])
def test_R21_a_file_of_kubespray_is_refused_unless_that_is_ignored(policy: str, stops: bool) -> None:
    inputs = {
        "rbln_container_toolkit_runtime_restart": "if_required",
        "rbln_container_toolkit_owned_config": policy,
    }
    found = draw(inputs, r=runtimes(runtime(changes=[CHANGE], owners=[{**OWNER, "refuse": True}])))
    assert codes(found) == ["runtime_config_owned"] * stops


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
        {"proxies": {**asked(), "http_proxy": "http://u:p@proxy"}},
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
    looked = observed(passed=False, failed=["a"], unknown=["b"], markers={"current": True, "present": []})
    assert draw({}, o=looked)["steps"][0]["reason"] == (
        "These checks do not hold: a. These checks could not be judged: b."
    )


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        # The driver stays, so nothing changes what a broken device says.
        ({"failed": ["device_status"]}, ["device_status"]),
        ({"failed": ["device_status", "runtime_cdi_on"]}, ["device_status"]),
        ({"unknown": ["tool_answers"]}, ["tool_answers"]),
        ({"failed": ["runtime_cdi_on"], "unknown": ["runtime_sees_spec"]}, []),
        ({"failed": ["cdi_no_conflict"]}, ["cdi_no_conflict"]),
        ({"failed": ["runtime_known"]}, ["runtime_known"]),
        ({"failed": ["cdi_spec_current"]}, ["cdi_spec_current"]),
        # The proof itself writes that file.
        ({"failed": ["driver_ready_readable"]}, []),
    ],
)
def test_a_proof_that_no_step_can_help_is_foretold_beside_other_steps(seen: dict[str, t.Any], lost: list[str]) -> None:
    found = draw(
        {"rbln_container_toolkit_runtime_restart": "if_required"},
        r=runtimes(runtime(changes=[CHANGE], cdi={"state": "off"})),
        o=observed(passed=False, **seen),
    )
    assert ids(found) == ["toolkit.runtime.containerd", "validator.markers"]
    assert found["unrepaired"] == lost
    told = change(found["steps"][1]) + " " + why(found["steps"][1], alone=False)
    assert ("the proof will fail" in told and all(name in told for name in lost)) is bool(lost)
    assert "runtime_cdi_on" not in told


def test_a_change_of_the_driver_may_repair_a_device_and_not_its_slot() -> None:
    inputs = {"rbln_driver_version": "3.3.0", "rbln_driver_replace": True}
    looked = observed(passed=False, failed=["npus_reachable", "device_status", "library_is_driver"])
    found = draw({"rbln_driver_source": "runfile", **inputs}, o=looked)
    assert "driver.install" in ids(found) and found["unrepaired"] == ["npus_reachable"]


def test_a_host_that_is_stopped_comes_to_no_proof() -> None:
    raw = {"rbln_driver_source": "runfile", "rbln_driver_version": "3.2.1"}
    found = draw(raw, o=observed(passed=False, failed=["driver_is_wanted"]))
    assert (codes(found), found["unrepaired"]) == (["driver_replace_not_allowed"], [])


def test_what_repairs_a_check_is_known_for_checks_alone() -> None:
    assert set(repairs._ONLY) <= set(NAMES)


def test_a_host_without_npus_that_is_let_pass_is_left_alone() -> None:
    bare = facts(npus=[], counts={"functions": 0}, driver=NO_DRIVER)
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
    hidden = facts(driver=NO_DRIVER, probes={"module_file": {"state": state, "detail": ""}})
    found = draw({"rbln_driver_source": "package", "rbln_driver_version": "3.2.2"}, hidden)
    assert codes(found) == stops
    assert ("driver.install" in ids(found)) is (not stops)
