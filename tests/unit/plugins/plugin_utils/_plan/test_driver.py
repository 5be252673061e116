# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would do about the driver, row by row. Cases I02-legacy-package, I05-release-suffix."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.driver import plan_driver
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.situation import (
    DRIVER_PROBES,
    Case,
    Draft,
    driver_files,
    wanted_version,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.checked import checked
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import Data, npu
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import driver as driver_facts
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import inputs as every_input

SHA = "a" * 64
OTHER = "b" * 64
TIME = "2026-01-31T12:00:00Z"
NONE = {"installed_via": "none", "version_on_disk": None, "version_loaded": None, "loaded": False}
BROKEN = {"installed_via": "deb", "version_on_disk": None, "version_loaded": None, "loaded": False}
CHANGE = {
    "version": "3.4.0",
    "previous": "3.2.2",
    "step": "install",
    "direction": "forward",
    "started": TIME,
    "reboot": False,
    "touched": True,
}
REFUSED = {"version": "3.4.0", "sha256": SHA, "reason": "card 0 is in FAULT", "time": TIME}


def inputs(**changes: t.Any) -> Data:
    """All inputs; the names of those that are changed without `rbln_driver_`."""
    return every_input({"rbln_driver_" + key: value for key, value in changes.items()})


def facts(
    changes: Data | None = None, npus: list[Data] | None = None, probes: Data | None = None, **state: t.Any
) -> Data:
    """A host whose driver 3.2.2 from a runfile is loaded; `state` changes what is noted on it."""
    noted = {"change": None, "tainted": None, "refused": [], **state}
    return {
        "npus": [npu()] if npus is None else npus,
        "os": {"arch": "x86_64"},
        "probes": probes or {},
        "driver": driver_facts(**{"state": noted, **(changes or {})}),
    }


GIVEN: dict[str | None, Data] = {
    "runfile": {"runfile": "/srv/", "runfile_sha256": "c" * 64},
    "package": {"package_names": ["rebellions"]},
}


def draw(raw: Data, seen: Data) -> tuple[bool, Draft]:
    """The plan with something to install from, unless `raw` says otherwise."""
    draft = Draft("rebellions")
    wanted = inputs(**{**GIVEN.get(raw.get("source"), {}), **raw})
    return plan_driver(draft, Case(wanted, seen, {}, {"checks": checked(seen)})), draft


def codes(draft: Draft, key: str = "stops") -> list[str]:
    return [item.code for item in getattr(draft, key)]


def said(draft: Draft) -> tuple[list[str], list[str], list[str]]:
    return [step.id for step in draft.steps], codes(draft), codes(draft, "cautions")


# -- which version


@pytest.mark.parametrize(
    "raw, npus, version",
    [
        ({}, [npu()], ""),
        ({"version": "3.2.2"}, [npu()], "3.2.2"),
        ({"versions": {"ATOM": "3.2.2", "REBEL": "4.0.0"}}, [npu()], "3.2.2"),
        ({"versions": {"ATOM": "3.2.2", "REBEL": "4.0.0"}}, [npu(family="REBEL")], "4.0.0"),
        ({"versions": {"ATOM": "3.2.2"}, "version": "3.1.0"}, [npu()], "3.1.0"),
        ({"versions": {"ATOM": "3.2.2"}}, [npu(family="REBEL")], ""),
        ({"versions": {"ATOM": "3.2.2", "REBEL": "4.0.0"}}, [npu(), npu(family="REBEL")], ""),
        ({"versions": {"ATOM": "3.2.2", "REBEL": "4.0.0"}}, [npu(), npu("passthrough", family="REBEL")], "3.2.2"),
        ({"versions": {"ATOM": "3.2.2"}}, [npu(), npu(family=None)], "3.2.2"),
        ({"versions": {"ATOM": "3.2.2"}}, [], ""),
    ],
)
def test_the_version_is_the_one_that_is_named_else_that_of_the_family(
    raw: Data, npus: list[Data], version: str
) -> None:
    assert wanted_version(inputs(**raw), facts(npus=npus)) == version


@pytest.mark.parametrize("value", [3.10, 4, True, None])
def test_a_version_that_yaml_made_a_number_is_refused_whatever_the_family(value: t.Any) -> None:
    with pytest.raises(
        NpuError,
        match="^rbln_driver_versions: REBEL is %r, which is not text. Next: Quote the version: '3.10' is not 3.1.$"
        % value,
    ):
        wanted_version(inputs(versions={"ATOM": "3.2.2", "REBEL": value}, version="3.2.2"), facts())


# -- which files


@pytest.mark.parametrize(
    "raw, files",
    [
        ({"source": "preinstalled", "runfile": "/srv/a.run"}, []),
        ({"source": "container"}, []),
        ({"source": "runfile"}, []),
        (
            {
                "source": "runfile",
                "runfile": "/srv/{arch}/rbln-{version}.run",
                "version": "3.4.0",
                "runfile_sha256": SHA,
            },
            [{"src": "/srv/x86_64/rbln-3.4.0.run", "sha256": SHA, "name": "rebellions-x86_64-3.4.0.run"}],
        ),
        (
            {
                "source": "runfile",
                "runfile": "/srv/",
                "version": "3.4.0",
                "runfile_digests": {"3.4.0": OTHER, "3.2.2": SHA},
            },
            [{"src": "/srv/", "sha256": OTHER, "name": "rebellions-x86_64-3.4.0.run"}],
        ),
        (
            {
                "source": "runfile",
                "runfile": "/srv/",
                "version": "3.4.0",
                "runfile_digests": {"3.4.0": OTHER},
                "runfile_sha256": SHA,
            },
            [{"src": "/srv/", "sha256": SHA, "name": "rebellions-x86_64-3.4.0.run"}],
        ),
        (
            {"source": "runfile", "runfile": "/srv/", "version": "3.4.0", "runfile_digests": {"3.2.2": SHA}},
            [{"src": "/srv/", "sha256": "", "name": "rebellions-x86_64-3.4.0.run"}],
        ),
        (
            {
                "source": "runfile",
                "runfile": "https://files.example.com/{version}/",
                "version": "3.4.0",
                "runfile_sha256": SHA,
                "runfile_name": "rbln_{version}_{version}.run",
                "runfile_signature": "https://files.example.com/{version}/{arch}.asc",
            },
            [
                {
                    "src": "https://files.example.com/3.4.0/",
                    "sha256": SHA,
                    "name": "rbln_3.4.0_3.4.0.run",
                    "signature": "https://files.example.com/3.4.0/x86_64.asc",
                }
            ],
        ),
        (
            {
                "source": "runfile",
                "runfile": "/srv/{version}.run",
                "versions": {"ATOM": "3.2.1", "REBEL": "4.0.0"},
                "runfile_digests": {"3.2.1": SHA},
            },
            [{"src": "/srv/3.2.1.run", "sha256": SHA, "name": "rebellions-x86_64-3.2.1.run"}],
        ),
        ({"source": "package", "package_names": ["rebellions"], "runfile": "/srv/a.run"}, []),
        (
            {
                "source": "package",
                "package_files": [{"path": "/srv/a.deb", "sha256": SHA}, {"path": "/srv/b.deb", "sha256": OTHER}],
            },
            [{"src": "/srv/a.deb", "sha256": SHA}, {"src": "/srv/b.deb", "sha256": OTHER}],
        ),
    ],
)
def test_the_files_of_an_installation(raw: Data, files: list[Data]) -> None:
    assert driver_files(inputs(**raw), facts()) == files


def test_an_unknown_architecture_counts_as_the_common_one() -> None:
    seen = facts()
    seen["os"]["arch"] = None
    raw = {"source": "runfile", "runfile": "/srv/{arch}", "version": "1", "runfile_sha256": SHA}
    assert driver_files(inputs(**raw), seen)[0]["src"] == "/srv/x86_64"


# -- preinstalled and container: nothing is changed


PREINSTALLED = {"source": "preinstalled"}
CONTAINER = {"source": "container"}
IN_CONTAINER = {"installed_via": "container", "root": "/run/rbln/driver"}


@pytest.mark.parametrize(
    "raw, driver, stops, cautions",
    [
        (PREINSTALLED, {}, [], []),
        (PREINSTALLED, NONE, ["driver_installed"], []),
        (PREINSTALLED, BROKEN, ["driver_installed"], []),
        (PREINSTALLED, IN_CONTAINER, [], []),
        ({**PREINSTALLED, "version": "3.2.2"}, {}, [], []),
        ({**PREINSTALLED, "version": "3.2.2"}, {"version_on_disk": "3.2.2-rebel1"}, [], []),
        ({**PREINSTALLED, "version": "3.2.0"}, {}, ["driver_version_differs"], []),
        ({**PREINSTALLED, "version": "3.2.0", "replace": True}, {}, ["driver_version_differs"], []),
        (PREINSTALLED, {"version_loaded": "3.2.0"}, [], ["driver_on_disk_is_loaded"]),
        ({**PREINSTALLED, "replace": True}, {"version_loaded": "3.2.0"}, [], ["driver_on_disk_is_loaded"]),
        (PREINSTALLED, {"version_on_disk": None}, [], []),
        (CONTAINER, NONE, [], ["driver_from_cluster"]),
        (CONTAINER, BROKEN, [], ["driver_from_cluster"]),
        (CONTAINER, IN_CONTAINER, [], []),
        (CONTAINER, {}, ["driver_on_host"], []),
        ({**CONTAINER, "replace": True}, {"installed_via": "deb"}, ["driver_on_host"], []),
    ],
)
def test_a_driver_that_others_bring_is_only_judged(
    raw: Data, driver: Data, stops: list[str], cautions: list[str]
) -> None:
    pending, draft = draw(raw, facts(driver))
    assert (pending, said(draft)) == (False, ([], stops, cautions))
    assert all(stop.next_step for stop in draft.stops)


@pytest.mark.parametrize(
    "raw, steps, cautions",
    [
        ({"source": "runfile", "version": "3.2.2"}, [], ["one_driver_installed"]),
        ({"source": "runfile", "version": "3.2.2", "replace": True}, ["driver.install"], []),
        ({"source": "package", "replace": True}, ["driver.install"], []),
        (PREINSTALLED, [], ["one_driver_installed"]),
        ({"source": "runfile", "version": "3.4.0", "replace": True}, ["driver.install"], []),
    ],
)
def test_i02_one_driver_installed_beside_a_newer_driver_is_told_and_taken_away(
    raw: Data, steps: list[str], cautions: list[str]
) -> None:
    package = {"name": "rebellions", "version": "2.0.1", "state": "installed", "architecture": "amd64"}
    draft = draw(raw, facts({"legacy": True, "package": package}))[1]
    assert said(draft) == (steps, [], cautions)
    if steps and raw.get("version") != "3.4.0":
        assert draft.steps[0].reason == "The package of former releases is also installed; it is removed."
    # On its own it is the driver, whatever epoch its packager gave it.
    alone = facts(
        {
            "legacy": True,
            "package": {**package, "version": "1:2.0.1-1"},
            "version_on_disk": "2.0.1",
            "version_loaded": "2.0.1",
        }
    )
    assert said(draw({"source": "package", "version": "2.0.1", "replace": True}, alone)[1]) == ([], [], [])


OLD_PACKAGE = {"name": "rebellions", "version": "2.0.1", "state": "installed", "architecture": "amd64"}
NO_MODULE = {"module_file": {"state": "absent", "detail": "no module file rebellions for kernel 6.8.0-117-generic"}}
BARE = {"installed_via": "deb", "version_on_disk": "2.0.1", "version_loaded": None, "loaded": False, "legacy": True}
BARE_TEXT = "The package rebellions 2.0.1 has no module for the running kernel."
HALF_TEXT = "The package rebellions 2.0.1 is half-configured."


@pytest.mark.parametrize("state", ["installed", "half-configured"])
@pytest.mark.parametrize(
    "raw, steps, stops",
    [
        ({"source": "runfile", "version": "3.4.0"}, [], ["driver_replace_not_allowed"]),
        ({"source": "runfile", "version": "3.4.0", "replace": True}, ["driver.install"], []),
        ({"source": "package", "version": "2.0.1"}, ["driver.install"], []),
        ({"source": "package"}, ["driver.install"], []),
        (PREINSTALLED, [], ["module_file_intact"]),
        (CONTAINER, [], ["driver_on_host"]),
    ],
)
def test_i02_legacy_package_without_a_module(raw: Data, steps: list[str], stops: list[str], state: str) -> None:
    draft = draw(raw, facts({**BARE, "package": {**OLD_PACKAGE, "state": state}}, probes=NO_MODULE))[1]
    broken = ["package_finished"] if state != "installed" and raw["source"] != "container" else []
    assert said(draft) == (steps, stops, broken)
    assert [item.detail for item in draft.cautions] == [HALF_TEXT] * len(broken)
    if raw["source"] == "package":
        assert draft.steps[0].reason == BARE_TEXT


@pytest.mark.parametrize(
    "raw, loaded, steps, stops",
    [
        ({"source": "package", "version": "2.0.1"}, False, ["driver.install"], []),
        ({"source": "package", "version": "2.0.1"}, True, [], []),
        ({"source": "package", "version": "2.0.1", "replace": True}, True, ["driver.install"], []),
        (PREINSTALLED, True, [], []),
        ({"source": "runfile", "version": "3.4.0"}, True, [], ["driver_replace_not_allowed"]),
    ],
)
@pytest.mark.parametrize("state", ["half-configured", "half-installed", "unpacked"])
def test_i02_legacy_package_whose_installation_has_broken_off(
    raw: Data, loaded: bool, steps: list[str], stops: list[str], state: str
) -> None:
    driver = {
        **BARE,
        "loaded": loaded,
        "version_loaded": "2.0.1" if loaded else None,
        "module_path": "/lib/modules/k/rebellions.ko",
    }
    draft = draw(raw, facts({**driver, "package": {**OLD_PACKAGE, "state": state}}))[1]
    assert said(draft) == (steps, stops, ["package_finished"])
    if steps:
        assert draft.steps[0].reason == "The package rebellions 2.0.1 is %s." % state


def test_i02_legacy_package_that_is_gone_and_has_left_its_tree_to_dkms() -> None:
    tree = [
        {
            "module": "rebellions",
            "version": "2.0.1",
            "kernel": "6.8.0-117-generic",
            "arch": "x86_64",
            "state": "installed",
        }
    ]
    seen = facts({**BARE, "installed_via": "dkms", "package": None, "dkms": tree})
    draft = draw({"source": "runfile", "version": "3.4.0", "replace": True}, seen)[1]
    assert said(draft) == (["driver.install"], [], ["legacy_left_to_dkms"])
    assert (draft.steps[0].reason, draft.cautions[0].next_step) == (
        "Another version is wanted.", "Once the new driver works: dkms remove rebellions/2.0.1 --all.",
    )  # fmt: skip


@pytest.mark.parametrize(
    "wanted, there",
    [("1:3.2.2-1", "3.2.2"), ("3.2.2", "1:3.2.2-1"), ("3.2.2", "3.2.2+git.abc"), ("3.4.0~rc1", "3.4.0-rc1")],
)
def test_U06_noop_upgrade_the_same_release_in_other_words(wanted: str, there: str) -> None:
    for raw in ({"source": "package"}, {"source": "runfile", "replace": True}, PREINSTALLED):
        seen = facts({"version_on_disk": there, "version_loaded": there})
        assert said(draw({**raw, "version": wanted}, seen)[1]) == ([], [], [])


@pytest.mark.parametrize("there", ["3.4.0~rc1", "3.4.0-rc1", "3.4.0rc1", "3.4.0_beta2"])
def test_U06_noop_upgrade_a_pre_release_gives_way_to_its_release(there: str) -> None:
    seen = facts({"version_on_disk": there, "version_loaded": there})
    assert said(draw({"source": "package", "version": "3.4.0", "replace": True}, seen)[1]) == (
        ["driver.install"],
        [],
        [],
    )
    assert said(draw({"source": "package", "version": "3.4.0"}, seen)[1]) == ([], ["driver_replace_not_allowed"], [])


ELSEWHERE = [
    {"module": "rebellions", "version": "3.2.2", "kernel": "6.8.0-117-generic", "arch": "x86_64", "state": "installed"}
]


def test_k01_headers_metapackage_a_kernel_that_came_without_the_module_is_told() -> None:
    seen = facts({**BROKEN, "installed_via": "dkms", "dkms": ELSEWHERE})
    stop = draw(PREINSTALLED, seen)[1].stops[0]
    assert (stop.code, stop.detail) == ("driver_installed", "Driver 3.2.2 has no module for the running kernel.")
    assert "run dkms autoinstall" in stop.next_step and "rbln_driver_source is preinstalled" in stop.next_step
    step = draw(NEW, seen)[1].steps[0]
    assert (step.id, step.reason) == ("driver.install", "Driver 3.2.2 has no module for the running kernel.")


def test_the_words_of_those_stops() -> None:
    missing = draw(PREINSTALLED, facts(NONE))[1].stops[0]
    assert missing.detail == "No driver is installed."
    assert missing.next_step == (
        "Install the driver; rbln_driver_source is preinstalled, so this run does not. "
        "Or set rbln_driver_source to package or runfile."
    )
    broken = draw(PREINSTALLED, facts(BROKEN))[1].stops[0]
    assert broken.detail == "An installation of the driver was interrupted."
    stop = draw({**PREINSTALLED, "version": "3.2.0"}, facts())[1].stops[0]
    assert stop.detail == "Driver 3.2.2 is installed, 3.2.0 is wanted, and rbln_driver_source is preinstalled."
    assert stop.next_step == "Set rbln_driver_source to package or runfile, or rbln_driver_version to 3.2.2."
    unknown = draw(CONTAINER, facts({"version_on_disk": None, "version_loaded": None}))[1].stops[0]
    assert unknown.detail == "Driver of unknown version is installed on the host, and rbln_driver_source is container."


@pytest.mark.parametrize(
    "npus, cautions",
    [
        ([], []),
        ([npu("passthrough")], ["no_driver_needed"]),
        ([npu(function="vf")], ["no_driver_needed"]),
        ([npu("passthrough"), npu(function="vf")], ["no_driver_needed"]),
    ],
)
@pytest.mark.parametrize(
    "raw",
    [PREINSTALLED, CONTAINER, {"source": "runfile", "version": "3.4.0", "replace": True}],
    ids=lambda raw: raw["source"],
)
def test_a_host_whose_npus_need_no_driver_gets_none(raw: Data, npus: list[Data], cautions: list[str]) -> None:
    pending, draft = draw(raw, facts(NONE, npus, change=CHANGE))
    assert (pending, said(draft)) == (False, ([], [], cautions))


# -- install and replace


NEW = {"source": "runfile", "version": "3.4.0"}
REPLACE = {**NEW, "replace": True}
INSTALL = ["driver.install"]


@pytest.mark.parametrize(
    "raw, driver, steps, stops",
    [
        (NEW, NONE, INSTALL, []),
        ({**NEW, "source": "package"}, NONE, INSTALL, []),
        ({"source": "package"}, NONE, INSTALL, []),
        (NEW, BROKEN, INSTALL, []),
        (NEW, {**BROKEN, "loaded": True}, [], ["driver_replace_not_allowed"]),
        (NEW, {}, [], ["driver_replace_not_allowed"]),
        (REPLACE, {}, INSTALL, []),
        ({**REPLACE, "source": "package"}, {"installed_via": "deb"}, INSTALL, []),
        ({"source": "runfile"}, {}, [], []),
        ({**REPLACE, "version": "3.2.2"}, {}, [], []),
        ({**REPLACE, "version": "3.2.2"}, {"version_on_disk": "3.2.2-rebel1"}, [], []),
        ({**REPLACE, "version": "3.2.2"}, {"version_on_disk": None}, [], []),
        (REPLACE, IN_CONTAINER, [], ["driver_from_container"]),
        (NEW, IN_CONTAINER, [], ["driver_from_container"]),
        ({"source": "runfile"}, IN_CONTAINER, [], ["driver_from_container"]),
        ({**NEW, "version": "3.2.2"}, IN_CONTAINER, [], ["driver_from_container"]),
        (NEW, {"installed_via": "deb", "version_on_disk": "2.0.1", "legacy": True}, [], ["driver_replace_not_allowed"]),
        (REPLACE, {"installed_via": "deb", "version_on_disk": "2.0.1", "legacy": True}, INSTALL, []),
    ],
)
def test_an_installed_driver_is_replaced_only_where_that_is_said(
    raw: Data, driver: Data, steps: list[str], stops: list[str]
) -> None:
    pending, draft = draw(raw, facts(driver))
    assert (pending, said(draft)) == (bool(steps), (steps, stops, []))
    assert all(stop.next_step for stop in draft.stops)


@pytest.mark.parametrize(
    "raw, driver, state, reason, now, wanted, disruption",
    [
        (NEW, NONE, {}, "No driver is installed.", None, "3.4.0", "none"),
        ({"source": "package"}, NONE, {}, "No driver is installed.", None, "newest of the source", "none"),
        (NEW, BROKEN, {}, "An installation was interrupted.", None, "3.4.0", "none"),
        (REPLACE, {}, {}, "Another version is wanted.", "3.2.2", "3.4.0", "evict"),
        (
            REPLACE,
            {"loaded": False, "version_loaded": None},
            {},
            "Another version is wanted.",
            "3.2.2",
            "3.4.0",
            "evict",
        ),
        (
            REPLACE,
            {"installed_via": "deb", "version_on_disk": "2.0.1", "legacy": True},
            {},
            "Another version is wanted; the package of former releases is removed first.",
            "2.0.1",
            "3.4.0",
            "evict",
        ),
        (NEW, {}, {"change": CHANGE}, "A change of the driver was interrupted at install.", "3.2.2", "3.4.0", "evict"),
        (
            NEW,
            NONE,
            {"change": {**CHANGE, "step": None}},
            "A change of the driver was interrupted at an unknown step.",
            None,
            "3.4.0",
            "none",
        ),
        (
            REPLACE,
            {},
            {"tainted": {"version": "3.4.0"}},
            "The last change failed, and rolling it back failed too.",
            "3.2.2",
            "3.4.0",
            "evict",
        ),
    ],
)
def test_the_step_says_why(
    raw: Data, driver: Data, state: Data, reason: str, now: t.Any, wanted: str, disruption: str
) -> None:
    pending, draft = draw(raw, facts(driver, **state))
    step = draft.steps[0]
    assert (pending, step.id, step.role, step.component, step.after) == (True, "driver.install", "driver", "driver", "")
    assert (step.reason, step.now, step.wanted, step.disruption) == (reason, now, wanted, disruption)


def test_the_words_of_a_refused_replacement() -> None:
    stop = draw(NEW, facts())[1].stops[0]
    assert stop.detail == "Driver 3.2.2 is installed and 3.4.0 is wanted."
    assert (
        stop.next_step
        == "Set rbln_driver_replace: true to let this run replace it, or rbln_driver_version: '3.2.2' to keep it."
    )


@pytest.mark.parametrize(
    "reboot, steps", [("never", INSTALL), ("if_required", INSTALL), ("always", ["driver.install", "driver.reboot"])]
)
def test_a_reboot_that_is_asked_for_after_each_change_is_a_step(reboot: str, steps: list[str]) -> None:
    draft = draw({**NEW, "reboot": reboot}, facts(NONE))[1]
    assert [step.id for step in draft.steps] == steps
    if len(steps) == 2:
        assert (draft.steps[1].disruption, draft.steps[1].after, draft.steps[1].component) == (
            "reboot",
            "driver.install",
            "host",
        )
    assert draw({"source": "runfile", "version": "3.2.2", "reboot": reboot}, facts())[1].steps == []


@pytest.mark.parametrize(
    "raw, code, detail",
    [
        (
            {"source": "runfile", "runfile": ""},
            "driver_source_missing",
            "rbln_driver_source is runfile, and rbln_driver_runfile is not set.",
        ),
        (
            {"source": "package", "package_names": []},
            "driver_source_missing",
            "rbln_driver_source is package, and neither rbln_driver_package_names "
            "nor rbln_driver_package_files is set.",
        ),
        (
            {
                "source": "runfile",
                "runfile": "/srv/{version}.run",
                "runfile_sha256": "",
                "runfile_digests": {"3.2.2": SHA},
            },
            "driver_digest_missing",
            "The SHA-256 of /srv/3.4.0.run is not set.",
        ),
        (
            {"source": "runfile", "runfile": "/srv/a.run", "runfile_sha256": SHA, "runfile_keyring": "/srv/k.asc"},
            "driver_signature_missing",
            "rbln_driver_runfile_keyring is set, and rbln_driver_runfile_signature is not: "
            "nothing would be verified by these keys.",
        ),
        (
            {"source": "package", "package_names": ["rebellions"], "repository": {"url": "https://r.example"}},
            "driver_repository_incomplete",
            "rbln_driver_repository has no key.",
        ),
        (
            {"source": "package", "package_names": ["rebellions"], "repository": {"key": "/srv/k.asc"}},
            "driver_repository_incomplete",
            "rbln_driver_repository has no url.",
        ),
        (
            {"source": "runfile", "runfile": "https://jo:secret@files.example.com/a.run", "runfile_sha256": ""},
            "driver_source_with_password",
            "The address of the driver holds a name or a password, which would reach logs.",
        ),
    ],
)
def test_nothing_is_planned_without_something_to_install_from(raw: Data, code: str, detail: str) -> None:
    pending, draft = draw({**raw, "version": "3.4.0"}, facts(NONE))
    assert (pending, said(draft), draft.stops[0].detail) == (False, ([], [code], []), detail)
    assert draft.stops[0].next_step
    # A driver that is right already needs no source.
    assert said(draw({**raw, "version": "3.2.2"}, facts())[1]) == ([], [], [])


@pytest.mark.parametrize(
    "runfile", ["https://files.example.com/a@b.run", "/srv/a@b.run", "https://files.example.com:8443/"]
)
def test_an_at_sign_in_a_path_is_no_password(runfile: str) -> None:
    assert said(draw({**NEW, "runfile": runfile}, facts(NONE))[1]) == (INSTALL, [], [])


def test_package_files_are_a_source() -> None:
    raw = {
        "source": "package",
        "package_names": [],
        "package_files": [{"path": "/srv/a.deb", "sha256": SHA}],
        "version": "3.4.0",
    }
    assert said(draw(raw, facts(NONE))[1]) == (INSTALL, [], [])


def test_a_driver_that_is_not_wanted_stops_a_run_that_would_make_the_host_ready() -> None:
    pending, draft = draw({**REPLACE, "state": "absent"}, facts(change=CHANGE))
    assert (pending, said(draft)) == (False, ([], ["driver_not_wanted"], []))
    assert said(draw({**REPLACE, "state": "absent"}, facts(NONE, [npu("passthrough")]))[1]) == (
        [],
        [],
        ["no_driver_needed"],
    )


# -- loaded is not what is on disk


OLD_LOADED = {"version_loaded": "3.2.0"}


@pytest.mark.parametrize(
    "raw, driver, steps, cautions",
    [
        ({"source": "runfile"}, OLD_LOADED, [], ["driver_on_disk_is_loaded"]),
        ({"source": "runfile", "version": "3.2.2"}, OLD_LOADED, [], ["driver_on_disk_is_loaded"]),
        ({"source": "runfile", "version": "3.2.2", "replace": True}, OLD_LOADED, ["driver.reload"], []),
        ({"source": "package", "replace": True}, OLD_LOADED, ["driver.reload"], []),
        ({"source": "package", "replace": True}, {"version_loaded": "3.2.2-rebel1"}, [], []),
        ({"source": "package", "replace": True}, {"version_loaded": None}, [], []),
        ({"source": "package"}, {"version_on_disk": "custom", "version_loaded": "custom"}, [], []),
        ({"source": "package", "replace": True}, {"version_loaded": None, "loaded": None}, [], []),
    ],
)
def test_what_is_on_disk_is_loaded_where_replacing_is_allowed(
    raw: Data, driver: Data, steps: list[str], cautions: list[str]
) -> None:
    pending, draft = draw(raw, facts(driver))
    assert (pending, said(draft)) == (bool(steps), (steps, [], cautions))
    for step in draft.steps:
        assert (step.now, step.wanted, step.disruption) == ("3.2.0", "3.2.2", "evict")
        assert step.reason == "Driver 3.2.2 is on disk and 3.2.0 is loaded."


STOPPED = {"version_loaded": None, "loaded": False}


@pytest.mark.parametrize(
    "raw",
    [
        {"source": "runfile"},
        {"source": "package", "version": "3.2.2"},
        {"source": "runfile", "replace": True, "runfile": ""},
    ],
)
def test_a_driver_that_is_installed_and_not_loaded_is_brought_up_unasked(raw: Data) -> None:
    pending, draft = draw(raw, facts(STOPPED))
    assert (pending, said(draft)) == (True, (["driver.reload"], [], []))
    step = draft.steps[0]
    assert (step.now, step.wanted, step.disruption, step.reason) == (
        None,
        "3.2.2",
        "none",
        "Driver 3.2.2 is on disk and not loaded.",
    )


def test_a_preinstalled_driver_that_is_not_loaded_is_only_told() -> None:
    pending, draft = draw({**PREINSTALLED, "replace": True}, facts(STOPPED))
    assert (pending, said(draft)) == (False, ([], [], ["driver_loaded"]))
    assert draft.cautions[0].next_step.startswith("Run modprobe rebellions, and read the kernel log when")
    # The module of a driver container is not this host's to load.
    assert said(draw(PREINSTALLED, facts({**STOPPED, **IN_CONTAINER}))[1]) == ([], [], [])


def test_a_version_that_failed_here_is_not_loaded_unasked() -> None:
    seen = facts(STOPPED, refused=[{**REFUSED, "version": "3.2.2"}])
    assert said(draw({"source": "runfile"}, seen)[1]) == ([], ["driver_failed_before"], [])
    assert said(draw({"source": "runfile", "retry": True}, seen)[1]) == (["driver.reload"], [], [])


# -- the module file is damaged


RUNNING = "6.8.0-117-generic"
PATH = "/lib/modules/%s/updates/dkms/rebellions.ko" % RUNNING
BUILT = [{"module": "rebellions", "version": "3.2.2", "kernel": RUNNING, "arch": "x86_64", "state": "installed"}]
UNREADABLE = {"module_file": {"state": "failed", "detail": PATH + ": not an ELF file"}}
GONE = {"module_file": {"state": "absent", "detail": "no module file"}}
WRONG = {"module_path": PATH, "vermagic": "6.8.0-99-generic SMP mod_unload", "dkms": BUILT}
BAD = {"module_path": PATH, "vermagic": None, "dkms": BUILT}


def damaged(driver: Data, probes: Data | None = None) -> Data:
    seen = facts({**STOPPED, **driver}, probes=probes)
    seen["kernel"] = {"running": RUNNING}
    return seen


@pytest.mark.parametrize(
    "driver, probes, reason",
    [
        (WRONG, None, "The module file %s is built for kernel 6.8.0-99-generic." % PATH),
        (BAD, UNREADABLE, "The module file cannot be read: %s: not an ELF file." % PATH),
        (
            {**BAD, "module_path": None},
            GONE,
            "The module file that DKMS installed for kernel %s is missing." % RUNNING,
        ),
        (
            {**BAD, "dkms": [], "version_on_disk": None},
            UNREADABLE,
            "The module file cannot be read: %s: not an ELF file." % PATH,
        ),
    ],
)
def test_a_damaged_module_file_is_repaired_by_installing_the_version_again(
    driver: Data, probes: t.Any, reason: str
) -> None:
    for raw in ({"source": "runfile", "version": "3.2.2"}, {"source": "package"}):
        pending, draft = draw(raw, damaged(driver, probes))
        assert (pending, said(draft), draft.steps[0].reason) == (True, (INSTALL, [], []), reason)


@pytest.mark.parametrize(
    "driver, probes",
    [
        ({**WRONG, "vermagic": RUNNING + " SMP"}, None),
        ({**WRONG, "dkms": []}, None),
        ({**WRONG, "dkms": [{**BUILT[0], "kernel": "6.8.0-99-generic"}]}, None),
        ({**WRONG, "vermagic": None}, None),
        ({**BAD, "module_path": None, "dkms": []}, GONE),
    ],
)
def test_a_build_that_may_serve_this_kernel_is_not_called_damaged(driver: Data, probes: t.Any) -> None:
    assert said(draw({"source": "runfile"}, damaged(driver, probes))[1]) == (["driver.reload"], [], [])


@pytest.mark.parametrize(
    "raw, driver, steps, cautions",
    [
        ({"source": "package"}, {"loaded": True, "version_loaded": "3.2.2"}, [], ["module_file_intact"]),
        ({"source": "package", "replace": True}, {"loaded": True, "version_loaded": "3.2.2"}, INSTALL, []),
        (PREINSTALLED, {}, [], ["module_file_intact"]),
        (PREINSTALLED, {"loaded": True, "version_loaded": "3.2.2"}, [], ["module_file_intact"]),
    ],
)
def test_a_damaged_file_under_a_loaded_or_foreign_driver_is_told(
    raw: Data, driver: Data, steps: list[str], cautions: list[str]
) -> None:
    assert said(draw(raw, damaged({**WRONG, **driver}))[1]) == (steps, [], cautions)


# -- a container without its kernel's modules


def below(tree: bool | None, driver: Data | None = None, container: bool = True) -> Data:
    return {**facts(driver), "in_container": container, "kernel": {"running": RUNNING, "module_tree": tree}}


@pytest.mark.parametrize("raw", [NEW, REPLACE, {**NEW, "source": "package"}])
@pytest.mark.parametrize("driver", [NONE, {**BROKEN, "loaded": True, "version_loaded": "3.2.2"}])
def test_a_container_without_modules_is_told_whose_driver_it_uses(raw: Data, driver: Data) -> None:
    pending, draft = draw(raw, below(False, driver))
    assert (pending, said(draft)) == (False, ([], ["driver_of_machine_below"], []))
    assert (
        draft.stops[0].detail
        == "This host is a container without the modules of its kernel %s: the driver belongs to the machine below."
        % RUNNING
    )
    assert draft.stops[0].next_step.startswith("Set rbln_driver_source: preinstalled (or container")


@pytest.mark.parametrize("tree, container", [(True, True), (None, True), (False, False)])
def test_only_a_container_that_certainly_has_no_modules_is_meant(tree: bool | None, container: bool) -> None:
    assert said(draw(NEW, below(tree, NONE, container))[1]) == (INSTALL, [], [])


def test_a_container_that_needs_no_change_is_left_alone() -> None:
    assert said(draw({**NEW, "version": "3.2.2"}, below(False, {"version_on_disk": None}))[1]) == ([], [], [])
    assert said(draw(PREINSTALLED, below(False, {"version_on_disk": None}))[1]) == ([], [], [])


# -- versions that failed here


@pytest.mark.parametrize(
    "raw, refused, stopped",
    [
        ({"runfile_sha256": SHA}, REFUSED, True),
        ({"runfile_sha256": SHA.upper()}, REFUSED, True),
        ({"runfile_sha256": "", "runfile_digests": {"3.4.0": SHA}}, REFUSED, True),
        ({"runfile_sha256": OTHER}, REFUSED, False),
        ({"runfile_sha256": "", "runfile_digests": {"3.4.0": OTHER}}, REFUSED, False),
        ({"runfile_sha256": ""}, REFUSED, True),
        ({"runfile_sha256": SHA}, {**REFUSED, "sha256": ""}, True),
        ({"runfile_sha256": SHA}, {**REFUSED, "version": "3.3.0"}, False),
        ({"runfile_sha256": SHA, "retry": True}, REFUSED, False),
    ],
)
def test_a_version_that_failed_here_is_not_tried_again_unasked(raw: Data, refused: Data, stopped: bool) -> None:
    for driver, replace in ((NONE, False), ({}, True)):
        pending, draft = draw({**NEW, **raw, "replace": replace}, facts(driver, refused=[refused]))
        assert (pending, said(draft)) == (
            (False, ([], ["driver_failed_before"], [])) if stopped else (True, (INSTALL, [], []))
        )


def test_the_words_of_a_version_that_failed() -> None:
    stop = draw({**NEW, "runfile_sha256": SHA}, facts(NONE, refused=[{**REFUSED, "reason": "x" * 400}]))[1].stops[0]
    assert stop.detail == "Driver 3.4.0 failed its validation on this host at %s: %s" % (TIME, "x" * 300)
    assert stop.next_step == "Want another version, or set rbln_driver_retry: true to try this one again."


def test_a_version_that_failed_once_and_works_now_is_in_nobodys_way() -> None:
    works = facts({"version_on_disk": "3.4.0", "version_loaded": "3.4.0"}, refused=[REFUSED])
    assert said(draw({**NEW, "runfile_sha256": SHA}, works)[1]) == ([], [], [])


# -- interrupted and tainted


@pytest.mark.parametrize("driver", [{}, NONE, BROKEN], ids=["installed", "none", "broken off"])
@pytest.mark.parametrize("source", ["runfile", "package"])
def test_an_interrupted_change_is_finished_although_nobody_allowed_a_replacement(driver: Data, source: str) -> None:
    pending, draft = draw({**NEW, "source": source}, facts(driver, change=CHANGE))
    assert (pending, said(draft)) == (True, (INSTALL, [], []))


def test_a_change_that_replaced_nothing_only_owes_what_it_stopped() -> None:
    pending, draft = draw({"source": "runfile", "version": "3.2.2"}, facts(change={**CHANGE, "touched": False}))
    assert (pending, [step.id for step in draft.steps]) == (True, ["driver.recover"])


def test_a_map_of_versions_without_the_family_of_the_host_stops() -> None:
    pending, draft = draw({**NEW, "version": "", "versions": {"atom": "3.4.0"}}, facts())
    assert (pending, [stop.code for stop in draft.stops]) == (False, ["driver_version_of_family_missing"])


@pytest.mark.parametrize(
    "raw",
    [{"repository": {"url": "https://u:p@example.com/apt"}}, {"runfile_signature": "https://u:p@example.com/x.asc"}],
)
def test_a_password_in_any_address_stops(raw: Data) -> None:
    draft = draw({**NEW, **raw}, facts(NONE))[1]
    assert [stop.code for stop in draft.stops] == ["driver_source_with_password"]


@pytest.mark.parametrize(
    "address, stops",
    [
        ("https://files.example.com/a.run?X-Amz-Credential=x&X-Amz-Signature=y", ["driver_source_with_password"]),
        ("https://files.example.com/a.run?sv=1&sig=abc", ["driver_source_with_password"]),
        ("https://files.example.com/raw/a.run?private_token=abc", ["driver_source_with_password"]),
        ("https://files.example.com/a.run?at=refs/heads/main&design=x", []),
        ("https://files.example.com/token/a.run", []),
        ("/srv/a.run?token=x", []),
    ],
)
def test_an_address_that_lets_its_reader_fetch_stops(address: str, stops: list[str]) -> None:
    draft = draw({**NEW, "runfile": address}, facts(NONE))[1]
    assert [stop.code for stop in draft.stops] == stops
    assert not any("abc" in stop.detail + stop.next_step for stop in draft.stops)


def test_an_interrupted_change_is_finished_although_the_version_on_disk_is_right() -> None:
    pending, draft = draw({"source": "runfile", "version": "3.2.2"}, facts(change=CHANGE))
    assert (pending, said(draft)) == (True, (INSTALL, [], []))


@pytest.mark.parametrize("driver, disruption", [({}, "evict"), (NONE, "none"), ({**NONE, "loaded": True}, "evict")])
def test_an_interrupted_change_is_undone_where_this_run_installs_nothing(driver: Data, disruption: str) -> None:
    pending, draft = draw(PREINSTALLED, facts(driver, change=CHANGE))
    assert (pending, said(draft)) == (True, (["driver.recover"], [], []))
    step = draft.steps[0]
    assert (step.now, step.wanted, step.disruption) == ("interrupted at install", "as before the change", disruption)


def test_an_interrupted_change_to_a_version_that_failed_here_is_undone_and_told() -> None:
    pending, draft = draw({**NEW, "runfile_sha256": SHA}, facts(change=CHANGE, refused=[REFUSED]))
    assert (pending, said(draft)) == (True, (["driver.recover"], [], ["driver_failed_before"]))
    assert draft.steps[0].wanted == "as before the change"
    again = draw({**NEW, "runfile_sha256": SHA, "retry": True}, facts(change=CHANGE, refused=[REFUSED]))[1]
    assert said(again) == (INSTALL, [], [])


def test_an_interrupted_change_that_nobody_can_read_is_undone_too() -> None:
    step = draw(PREINSTALLED, facts(change=dict.fromkeys(CHANGE)))[1].steps[0]
    assert step.now == "interrupted at an unknown step"


@pytest.mark.parametrize(
    "raw, driver, steps, stops",
    [
        ({"source": "runfile", "version": "3.2.2"}, NONE, INSTALL, []),
        ({"source": "runfile", "version": "3.2.2"}, {}, [], ["driver_replace_not_allowed"]),
        ({"source": "runfile", "version": "3.2.2", "replace": True}, {}, INSTALL, []),
        (REPLACE, {}, INSTALL, []),
    ],
)
def test_a_tainted_driver_is_installed_again_although_its_version_is_right(
    raw: Data, driver: Data, steps: list[str], stops: list[str]
) -> None:
    draft = draw(raw, facts(driver, tainted={"version": "3.2.2", "reason": "x", "time": TIME}))[1]
    assert said(draft) == (steps, stops, [])


def test_a_tainted_host_is_put_right_with_the_version_it_has_although_that_failed_here() -> None:
    there = {"version_on_disk": "3.4.0", "version_loaded": None, "loaded": False}
    seen = facts(there, tainted={"version": "3.4.0", "reason": "x", "time": TIME}, refused=[REFUSED])
    assert said(draw({**REPLACE, "runfile_sha256": SHA}, seen)[1]) == (INSTALL, [], [])


# -- what could not be looked at


@pytest.mark.parametrize("name", DRIVER_PROBES)
@pytest.mark.parametrize(
    "state, hidden", [("denied", True), ("timeout", True), ("failed", True), ("absent", False), ("value", False)]
)
def test_a_driver_that_could_not_be_looked_for_is_not_taken_for_absent(name: str, state: str, hidden: bool) -> None:
    seen = facts(NONE, probes={name: {"state": state, "detail": ""}})
    pending, draft = draw(NEW, seen)
    assert (pending, said(draft)) == ((False, ([], ["driver_unknown"], [])) if hidden else (True, (INSTALL, [], [])))
    if hidden:
        assert draft.stops[0].detail == "Whether a driver is installed could not be found out: %s %s." % (name, state)


def test_every_hidden_look_is_named_with_its_reason() -> None:
    probes = {
        "dkms": {"state": "denied", "detail": "Permission denied"},
        "module_file": {"state": "timeout", "detail": ""},
        "smi": {"state": "failed", "detail": "x"},
    }
    draft = draw(NEW, facts(NONE, probes=probes))[1]
    assert (
        draft.stops[0].detail
        == "Whether a driver is installed could not be found out: module_file timeout; dkms Permission denied."
    )


def test_a_hidden_look_stops_nobody_when_the_driver_was_seen_elsewhere() -> None:
    probes = {"dkms": {"state": "denied", "detail": "Permission denied"}}
    assert said(draw(REPLACE, facts(probes=probes))[1]) == (INSTALL, [], [])
