# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to hold around the driver: whole plans with the shipped matrix. Cases I01, K01, B01 and their kind."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import case
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import (
    MIB,
    NO_DRIVER,
    Data,
    changed,
    driver,
    npu,
    observed,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import draw as plan_of
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import facts as host

ROLE = pathlib.Path(__file__).parents[5] / "roles" / "rbln_preflight" / "vars" / "main.yml"
OLD, NEW = "6.8.0-117-generic", "6.8.0-138-generic"
EL = "5.14.0-570.116.1.el9_6.x86_64"
EL102 = "6.12.0-211.55.1.el10_2.x86_64"
PACKAGE = {
    "rbln_driver_source": "package",
    "rbln_driver_package_names": ["rebellions-driver"],
    "rbln_driver_version": "3.2.2",
}


@functools.lru_cache(maxsize=None)
def matrix() -> list[dict[str, t.Any]]:
    data = yaml.safe_load(ROLE.read_text(encoding="utf-8"))
    rules: list[dict[str, t.Any]] = data["__rbln_preflight_support_matrix"]
    for rule in rules:
        for key in ("too_old", "too_new", "pciehp"):
            if key in rule:
                rule[key] = data[rule[key].strip("{} ")]
    return rules


def kernel_package(name: str) -> dict[str, str]:
    return {"name": name, "version": "1"}


def card(number: int, family: str = "ATOM", **changes: t.Any) -> Data:
    return {**npu(family=family), "address": "0000:8%d:00.0" % number, **changes}


def facts(**changes: t.Any) -> Data:
    """Ubuntu 24.04 with driver 3.2.2 by DKMS, everything in step."""
    by_dkms = driver(
        installed_via="deb",
        signed=True,
        signer="DKMS module signing key",
        dkms=[{"module": "rebellions", "version": "3.2.2", "kernel": OLD, "arch": "x86_64", "state": "installed"}],
    )
    base = host(
        driver=by_dkms,
        npus=[card(0)],
        kernel={
            "packages": [kernel_package("linux-image-" + OLD), kernel_package("linux-headers-" + OLD)],
            "guard": [{"kernel": OLD, "headers": True, "module": True, "running": True, "next_boot": True}],
        },
        build={"packages": {"dkms": "3"}},
        disk={"/": 9000 * MIB, "/boot": 900 * MIB, "/usr": 9000 * MIB, "/var": 9000 * MIB, "/lib/modules": 9000 * MIB},
    )
    return changed(base, changes)


def virgin(**changes: t.Any) -> Data:
    look = facts(driver=NO_DRIVER, npus=[npu("unbound", firmware=None)])
    look["kernel"]["modules"] = {OLD: False}
    look["kernel"]["guard"][0]["module"] = False
    return changed(look, changes)


def kernel(running: str, following: str | None = None, **changes: t.Any) -> dict[str, t.Any]:
    return {"running": running, "next_boot": following or running, **changes}


def system(name: str, version: str, family: str) -> dict[str, t.Any]:
    return {"id": name, "version_id": version, "base_id": name, "base_version": version, "family": family}


def draw(look: Data, **raw: t.Any) -> Data:
    named = {"rbln_%s" % name: value for name, value in raw.items()}
    return plan_of(named, look, matrix(), looked=observed(markers={"current": True, "present": []}))


def package(**raw: t.Any) -> dict[str, t.Any]:
    return {**{name[len("rbln_") :]: value for name, value in PACKAGE.items()}, **raw}


def driver_steps(found: dict[str, t.Any]) -> list[str]:
    return [step["id"] for step in found["steps"] if step["role"] == "driver"]


def step(found: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    return next(item for item in found["steps"] if item["id"] == name)


def codes(found: dict[str, t.Any], key: str = "stops") -> list[str]:
    return [item["code"] for item in found[key]]


def problem(found: dict[str, t.Any], code: str) -> dict[str, t.Any]:
    return next(item for item in found["stops"] + found["cautions"] if item["code"] == code)


def test_a_right_host_has_nothing_to_do() -> None:
    found = draw(facts(), **package())
    assert (driver_steps(found), codes(found), codes(found, "cautions")) == ([], [], [])


def test_a_damaged_build_is_built_again_with_the_installation() -> None:
    bad = {
        "loaded": False,
        "version_loaded": None,
        "module_path": "/lib/modules/%s/updates/dkms/rebellions.ko" % OLD,
        "vermagic": NEW + " SMP",
    }
    found = draw(facts(driver=bad), **package())
    assert (driver_steps(found), codes(found)) == (["driver.install", "driver.build"], [])
    assert (step(found, "driver.build")["wanted"], step(found, "driver.build")["after"]) == ([OLD], "driver.install")
    # One that is only told is not built either.
    assert driver_steps(draw(facts(driver={**bad, "loaded": True, "version_loaded": "3.2.2"}), **package())) == []


def test_a_container_on_the_machine_of_others_gets_no_steps_around_a_driver() -> None:
    look = virgin(in_container=True)
    look["kernel"].update(module_tree=False, headers={OLD: False})
    found = draw(look, **package(driver_kernel_hold=True))
    assert (driver_steps(found), codes(found)) == ([], ["driver_of_machine_below"])


@pytest.mark.parametrize(
    "look, kind, stops, cautions",
    [
        (virgin(), "install", ["module_not_blocked"], []),
        (virgin(), "module_blacklist", ["module_not_blocked"], []),
        (virgin(), "modules_disabled", ["module_not_blocked"], []),
        (virgin(), "blacklist", [], ["module_loads_at_boot"]),
        (facts(), "install", [], ["module_not_blocked"]),
        (facts(), "blacklist", [], ["module_loads_at_boot"]),
        (facts(npus=[npu("passthrough")]), "install", [], ["no_driver_needed"]),
    ],
)
def test_what_keeps_the_module_out_is_named_before_a_change_H13(
    look: Data, kind: str, stops: list[str], cautions: list[str]
) -> None:
    line = {"kind": kind, "path": "/etc/modprobe.d/60-site.conf", "line": 1, "text": kind + " rebellions /bin/true"}
    found = draw(changed(look, {"driver": {"blocked_by": [line]}}), **package())
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)
    for code in {*stops, *cautions} - {"no_driver_needed"}:
        assert "/etc/modprobe.d/60-site.conf line 1 says" in problem(found, code)["detail"]
        then = "reboot" if kind == "modules_disabled" else "update the initramfs"
        assert problem(found, code)["next_step"] == "Remove that, and %s." % then


# -- I01: kernel and operating system


@pytest.mark.parametrize(
    "name, version, family, running, stops, words",
    [
        (
            "ubuntu",
            "22.04",
            "debian",
            "5.15.0-131-generic",
            ["not_in_support_matrix"],
            "Install linux-generic-hwe-22.04",
        ),
        ("ubuntu", "22.04", "debian", "6.8.0-117-generic", [], ""),
        ("ubuntu", "24.04", "debian", "6.8.0-117-generic", [], ""),
        ("ubuntu", "24.04", "debian", "6.8.0-138-generic", ["not_in_support_matrix"], "6.8.0-117-generic or older"),
        ("ubuntu", "24.04", "debian", "6.17.0-23-generic", ["not_in_support_matrix"], "Remove linux-generic-hwe-24.04"),
        ("rhel", "9.6", "redhat", "5.14.0-570.116.1.el9_6.x86_64", [], ""),
        ("rhel", "9.7", "redhat", "5.14.0-611.55.1.el9_7.x86_64", ["not_in_support_matrix"], "support_matrix_extra"),
        ("rhel", "10.0", "redhat", "6.12.0-55.75.1.el10_0.x86_64", [], ""),
        ("rocky", "9.7", "redhat", "5.14.0-611.55.1.el9_7.x86_64", [], ""),
        ("ubuntu", "24.04", "debian", "6.8.0-1024-aws", ["not_in_support_matrix"], "flavour generic"),
    ],
)
def test_I01_kernel_matrix_in_a_whole_plan(
    name: str, version: str, family: str, running: str, stops: list[str], words: str
) -> None:
    look = facts(
        os=system(name, version, family),
        kernel=kernel(running, headers={running: True}, modules={running: True}, packages=[]),
    )
    found = draw(look, **package())
    assert codes(found) == stops
    if stops:
        assert words in problem(found, "not_in_support_matrix")["next_step"]
    assert codes(draw(look, **package(preflight_unlisted="warn"))) == []
    assert "linux-generic-hwe-24.04" not in str([item["wanted"] for item in found["steps"]])


def test_I01_partly_tested_is_said() -> None:
    running = "5.14.0-611.55.1.el9_7.x86_64"
    found = draw(
        facts(
            os=system("rocky", "9.7", "redhat"),
            kernel=kernel(running, headers={running: True}, modules={running: True}),
        ),
        **package(),
    )
    assert codes(found, "cautions") == ["partly_tested"]


@pytest.mark.parametrize(
    "names, policy, stops, cautions",
    [
        (["linux-image-generic", "linux-headers-generic"], "fail", [], []),
        (
            ["linux-generic-hwe-24.04", "linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04"],
            "fail",
            ["kernel_line_not_supported"],
            [],
        ),
        (
            ["linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04"],
            "warn",
            [],
            ["kernel_line_not_supported"],
        ),
        (["linux-image-generic-hwe-24.04-edge", "linux-headers-generic-hwe-24.04-edge"], "ignore", [], []),
    ],
)
def test_I01_a_package_that_pulls_in_other_kernels(
    names: list[str], policy: str, stops: list[str], cautions: list[str]
) -> None:
    look = facts(kernel=kernel(OLD, packages=[kernel_package(name) for name in names]))
    found = draw(look, **package(preflight_unlisted=policy))
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)


def test_I01_hwe_is_right_on_22_04() -> None:
    look = facts(
        os=system("ubuntu", "22.04", "debian"), kernel=kernel(OLD, packages=[kernel_package("linux-generic-hwe-22.04")])
    )
    assert codes(draw(look, **package())) == []


def test_a_rule_has_a_severity_of_its_own() -> None:
    extra = [
        {
            "os": "ubuntu",
            "version": "24.04",
            "kernel": "6.8.0",
            "drivers": [">=3.2", "<3.3"],
            "kernel_max": OLD,
            "severity": "warn",
        }
    ]
    look = facts(kernel=kernel(NEW, headers={NEW: True}, modules={NEW: True}))
    found = draw(look, **package(preflight_support_matrix_extra=extra))
    assert (codes(found), codes(found, "cautions")) == ([], ["not_in_support_matrix"])
    extra[0]["severity"] = "fail"
    assert codes(draw(look, **package(preflight_support_matrix_extra=extra, preflight_unlisted="ignore"))) == [
        "not_in_support_matrix"
    ]


# -- K03: the release of a kernel is that of its tag


def el(name: str, version: str, running: str, following: str | None = None) -> Data:
    state = kernel(running, following, headers={running: True}, modules={running: True}, packages=[], guard=[])
    return facts(os={**system(name, version, "redhat"), "base_id": "rhel", "pretty": f"{name} {version}"}, kernel=state)


def test_K03_el_backport_is_judged_by_the_release_of_its_kernel() -> None:
    """K03: el9_4, el9_5 and el9_6 are three groups of one 5.14; one that is not listed is unsupported with a reason."""
    found = {}
    for line in case("K03-el-backport", "hosts.tsv").splitlines():
        system_name, running = line.split("\t")
        name, version = system_name.replace("alma ", "almalinux ").split(" ")
        look = el(name, version, running)
        found[version] = draw(look, **package())
        # The same kernels on a host whose os-release is of another minor release.
        other = draw(el(name, "9.8" if name == "rhel" else "9.4", running), **package())
        assert codes(other) == codes(found[version]), running
    assert [codes(found[version]) for version in ("9.4", "9.5", "9.6")] == [
        ["not_in_support_matrix"],
        ["not_in_support_matrix"],
        [],
    ]
    assert (
        "rhel 9.5 is not in the support matrix of driver 3.2.2."
        in problem(found["9.5"], "not_in_support_matrix")["detail"]
    )


@pytest.mark.parametrize(
    "version, running, stops, words",
    [
        # Updated to 9.8 and not rebooted, or with the kernel excluded: the kernel is that of 9.6.
        ("9.8", "5.14.0-570.116.1.el9_6.x86_64", [], ""),
        (
            "9.6",
            "5.14.0-611.55.1.el9_7.x86_64",
            ["not_in_support_matrix"],
            "is of release 9.7 by its tag, and this host",
        ),
        ("9.6", "5.14.0-427.13.1.el9_4.x86_64", ["not_in_support_matrix"], "rhel 9.4 is not in the support matrix"),
        ("10.0", "5.14.0-570.116.1.el9_6.x86_64", [], ""),
        ("9.6", "6.12.0-55.75.1.el10_0.x86_64", [], ""),
        ("9.6", "4.18.0-553.el8_10.x86_64", ["not_in_support_matrix"], "rhel 8.10 is not"),
        ("9.6", "4.18.0-553.el8.x86_64", ["not_in_support_matrix"], "rhel 8 is not"),
        # A tag without a minor release is of the release that the host says.
        ("9.6", "5.14.0-570.el9.x86_64", [], ""),
        ("9.6", "5.14.0-570.116.1.el9_6.x86_64+rt", ["not_in_support_matrix"], "flavour 'rt'"),
        ("9.6", "5.15.0-300.163.18.el9uek.x86_64", ["not_in_support_matrix"], "newer than the supported"),
        ("9.6", "6.1.0-1.el9.elrepo.x86_64", ["not_in_support_matrix"], "newer than the supported"),
    ],
)
def test_K03_the_tag_of_a_kernel_outweighs_os_release(version: str, running: str, stops: list[str], words: str) -> None:
    found = draw(el("rhel", version, running), **package())
    assert codes(found) == stops
    assert words in str(found["stops"])


def test_K03_each_kernel_is_judged_by_its_own_tag() -> None:
    found = draw(el("rhel", "9.7", "5.14.0-570.116.1.el9_6.x86_64", "5.14.0-611.55.1.el9_7.x86_64"), **package())
    assert [item["detail"][-18:] for item in found["stops"]] == ["(next boot kernel)"]


# -- H14: a host whose system comes as an image


def imaged(**changes: t.Any) -> Data:
    """A host of bootc or rpm-ostree without a driver: nothing can be installed on it, and / has no byte free."""
    running = "5.14.0-503.40.1.el9_5.x86_64"
    look = virgin(
        os={**system("rhel", "9.6", "redhat"), "image": "ostree"},
        kernel=kernel(running, headers={running: False}, modules={running: False}, packages=[], guard=[]),
        disk={"/": 0, "/usr": 0},
        mount_options={"/usr": ["ro"], "/usr/local": [], "/var": []},
        build={"packages": {}, "programs": {}},
    )
    return changed(look, changes)


@pytest.mark.parametrize("source", ["package", "runfile"])
def test_H14_image_mode_host_is_one_stop_with_the_way_through_the_image(source: str) -> None:
    """H14: no talk of room, kernels, headers or limits, and no step of the driver."""
    raw = package() if source == "package" else {"driver_source": "runfile", "driver_version": "3.2.2"}
    found = draw(imaged(), **raw)
    assert (codes(found), driver_steps(found)) == (["driver_of_image"], [])
    stop = problem(found, "driver_of_image")
    assert stop["detail"].endswith("installed on this host while it runs: its system comes as an image (ostree).")
    assert stop["next_step"] == (
        "Put driver 3.2.2 into the image and boot it, with rbln_driver_source: preinstalled "
        "(or container, where the cluster brings the driver)."
    )
    told = str(found["cautions"])
    assert not [word for word in ("disk", "header", "kernel", "package", "matrix") if word in told.lower()], told


@pytest.mark.parametrize("image, words", [("nixos", "an image (nixos)"), ("read-only", "/usr is mounted read-only")])
def test_H14_every_kind_of_image_is_named(image: str, words: str) -> None:
    found = draw(imaged(os={"image": image}), **package())
    assert codes(found) == ["driver_of_image"] and words in found["stops"][0]["detail"]
    assert ("mount /usr read-write" in found["stops"][0]["next_step"]) == (image == "read-only")


def test_H14_a_preinstalled_driver_works_on_an_image() -> None:
    running = "5.14.0-570.116.1.el9_6.x86_64"
    look = imaged(
        driver=facts()["driver"],
        npus=[card(0)],
        kernel=kernel(running, modules={running: True}),
    )
    for raw in ({"driver_source": "preinstalled"}, package()):
        found = draw(look, **raw)
        assert (codes(found), driver_steps(found), codes(found, "cautions")) == ([], [], []), raw


def test_H14_a_driver_that_the_image_lacks_is_to_come_with_it() -> None:
    running = "5.14.0-570.116.1.el9_6.x86_64"
    found = draw(imaged(kernel=kernel(running, modules={running: False})), driver_source="preinstalled")
    assert codes(found) == ["driver_installed"]
    assert found["stops"][0]["next_step"] == "Put the driver into the image of this host (ostree), and boot it."
    look = imaged(driver=facts()["driver"], npus=[card(0)], kernel=kernel(running, modules={running: True}))
    found = draw(look, driver_source="preinstalled", driver_version="3.4.0", preflight_unlisted="ignore")
    assert codes(found) == ["driver_version_differs"]
    assert found["stops"][0]["next_step"] == (
        "Put driver 3.4.0 into the image (ostree), or set rbln_driver_version to 3.2.2."
    )
    assert codes(draw(look, **package(driver_version="3.4.0"))) == ["driver_of_image"]


def test_H14_the_host_tool_is_not_placed_on_a_read_only_file_system() -> None:
    look = changed(imaged(driver=facts()["driver"], npus=[card(0)]), {"mount_options": {"/usr/local": ["ro"]}})
    stale = observed(host_tool={"current": False, "sha256": None, "wanted": "a"})
    found = plan_of({}, look, matrix(), looked=stale)
    assert "toolkit.host_tool" not in [item["id"] for item in found["steps"]]
    assert "host_tool_not_placed" in codes(found, "cautions")
    assert codes(plan_of({"rbln_container_toolkit_host_tool": False}, look, matrix(), looked=stale), "cautions") == []
    told = problem(found, "host_tool_not_placed")
    assert "a container finds the libraries only where its loader looks" in told["detail"]


@pytest.mark.parametrize(
    "current, options, told", [(True, ["noexec"], True), (False, ["noexec"], True), (True, ["ro"], False)]
)
def test_H16_a_host_tool_that_cannot_run_is_named(current: bool, options: list[str], told: bool) -> None:
    look = changed(facts(), {"mount_options": {"/usr/local": options}})
    tool = observed(host_tool={"current": current, "sha256": "b", "wanted": "a"})
    found = plan_of({}, look, matrix(), looked=tool)
    assert "toolkit.host_tool" not in [item["id"] for item in found["steps"]]
    assert ("host_tool_not_placed" in codes(found, "cautions")) is told


# -- H16: hardened mounts


@pytest.mark.parametrize("options, told", [(["noexec", "nosuid"], True), (["nosuid"], False), (None, False)])
def test_H16_a_build_on_a_noexec_file_system_is_named_before_the_change(options: list[str] | None, told: bool) -> None:
    look = virgin(mount_options={"/var": options}, mounts={"/var": "/var"})
    found = draw(look, **package())
    assert ("build_noexec" in codes(found, "cautions"), codes(found)) == (told, [])
    if told:
        assert "/var is mounted noexec" in problem(found, "build_noexec")["detail"]
    assert "build_noexec" not in codes(draw(facts(mount_options={"/var": options}), **package()), "cautions")


# -- F13: not known is not none


@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
@pytest.mark.parametrize("state", ["denied", "timeout", "absent", "failed"])
def test_F13_denied_vs_absent_no_policy_passes_what_is_not_known(policy: str, state: str) -> None:
    """F13: a PCI bus that could not be read may have NPUs; a play must stop, not skip."""
    look = facts(npus=[], counts={"functions": None}, probes={"pci": {"state": state, "detail": "No."}})
    found = draw(look, preflight_no_npus=policy)
    assert (codes(found), driver_steps(found)) == (["npus_found"], [])
    assert "the PCI bus could not be read" in found["stops"][0]["detail"].replace("The", "the")
    assert "become" in found["stops"][0]["next_step"]


# -- families and SDK


@pytest.mark.parametrize(
    "family, version, sdk, stops, words",
    [
        ("ATOM", "3.4.1", "0.12.0", [], ""),
        ("REBEL", "3.5.1", "0.12", [], ""),
        (
            "REBEL",
            "3.4.1",
            "",
            ["not_in_support_matrix"],
            "Driver 3.4.1 is not in the support matrix for REBEL, which has >=3.5 <3.6.",
        ),
        ("ATOM", "3.5.0", "", ["not_in_support_matrix"], "Driver 3.5.0 is not in the support matrix for ATOM"),
        ("REBEL", "3.2.2", "", ["not_in_support_matrix"], "for REBEL"),
        ("ATOM", "3.2.2", "0.11.2", [], ""),
        ("ATOM", "3.2.2", "0.10.4", [], ""),
        (
            "ATOM",
            "3.2.2",
            "0.12.0",
            ["driver_not_of_sdk"],
            "Driver 3.2.2 does not belong to SDK 0.12.0 for ATOM: the SDK has driver >=3.4 <3.5, "
            "and driver 3.2.2 belongs to SDK 0.11.0, 0.11.1, 0.11.2, 0.10.4.",
        ),
        ("ATOM", "3.2.1", "0.11.1", ["driver_not_of_sdk"], "the SDK has driver 3.2.2"),
        ("ATOM", "3.2.2", "0.99.1", ["driver_not_of_sdk"], "SDK 0.99.1 is not in the support matrix for ATOM."),
        ("REBEL", "3.5.0", "0.11.2", ["driver_not_of_sdk"], "SDK 0.11.2 is not in the support matrix for REBEL."),
    ],
)
def test_driver_family_and_sdk_go_together(family: str, version: str, sdk: str, stops: list[str], words: str) -> None:
    look = facts(
        npus=[npu(family=family, firmware=version, smc=None)],
        driver={"version_on_disk": version, "version_loaded": version},
    )
    found = draw(look, **package(driver_version=version, preflight_sdk=sdk))
    listed = [code for code in codes(found) if code in ("not_in_support_matrix", "driver_not_of_sdk")]
    assert (listed or codes(found)) == stops
    if stops:
        assert words in found["stops"][0]["detail"] and "rbln_preflight" in found["stops"][0]["next_step"]
        assert codes(draw(look, **package(driver_version=version, preflight_sdk=sdk, preflight_unlisted="warn"))) == []


def test_an_sdk_without_a_driver_version_is_not_judged() -> None:
    found = draw(virgin(), **package(driver_version="", preflight_sdk="0.11.2"))
    assert codes(found) == [] and "support_unknown" in codes(found, "cautions")


# -- K01: headers, next kernel, hold


def k01(**changes: t.Any) -> dict[str, t.Any]:
    names = ["linux-image-" + OLD, "linux-image-" + NEW, "linux-image-generic", "linux-headers-" + OLD]
    guard = [
        {"kernel": OLD, "headers": True, "module": True, "running": True, "next_boot": False},
        {"kernel": NEW, "headers": False, "module": False, "running": False, "next_boot": True},
    ]
    state = kernel(
        OLD,
        NEW,
        headers={OLD: True, NEW: False},
        modules={OLD: True, NEW: False},
        packages=[kernel_package(name) for name in names],
        guard=guard,
    )
    return facts(kernel={**state, **changes})


def test_K01_headers_metapackage_above_the_bound_is_a_stop_by_policy() -> None:
    found = draw(k01(), **package())
    assert codes(found) == ["not_in_support_matrix"]
    assert problem(found, "not_in_support_matrix")["detail"].endswith("(next boot kernel)")
    assert step(found, "driver.prerequisites")["wanted"] == ["linux-headers-" + NEW, "linux-headers-generic"]


def test_K01_headers_metapackage_is_installed_and_the_module_built_before_the_reboot() -> None:
    found = draw(k01(), **package(preflight_unlisted="warn"))
    assert codes(found) == [] and driver_steps(found) == ["driver.prerequisites", "driver.build"]
    assert (step(found, "driver.build")["wanted"], step(found, "driver.build")["after"]) == (
        [NEW],
        "driver.prerequisites",
    )
    assert found["disruption"] == "none"


def test_K01_headers_metapackage_or_the_kernel_is_held() -> None:
    found = draw(k01(), **package(preflight_unlisted="warn", driver_kernel_hold=True))
    assert driver_steps(found) == ["driver.prerequisites", "driver.hold", "driver.build"]
    assert step(found, "driver.prerequisites")["wanted"] == ["linux-headers-" + NEW]
    assert step(found, "driver.hold")["wanted"] == ["linux-image-" + OLD, "linux-image-generic", "linux-headers-" + OLD]


def test_K01_what_is_held_is_no_step() -> None:
    look = facts(kernel=kernel(OLD, packages=[kernel_package("linux-image-" + OLD), kernel_package("linux-generic")]))
    look["holds"] = ["linux-generic"]
    found = draw(look, **package(driver_kernel_hold=True))
    assert (step(found, "driver.hold")["now"], step(found, "driver.hold")["wanted"]) == (
        ["linux-generic"],
        ["linux-image-" + OLD],
    )
    look["holds"] = ["linux-generic", "linux-image-" + OLD]
    assert driver_steps(draw(look, **package(driver_kernel_hold=True))) == []


def test_K01_the_kernel_of_a_preinstalled_driver_is_told_not_touched() -> None:
    found = draw(k01(), preflight_unlisted="warn", driver_kernel_hold=True)
    assert driver_steps(found) == []
    assert {"prerequisites_missing", "kernel_not_held", "reboot_not_pending"} <= set(codes(found, "cautions"))
    assert "apt-get install linux-headers-%s" % NEW in problem(found, "prerequisites_missing")["next_step"]


@pytest.mark.parametrize(
    "headers, stops, steps",
    [
        ("install", [], ["driver.prerequisites", "driver.install"]),
        ("check", ["prerequisites_missing"], ["driver.install"]),
        ("ignore", [], ["driver.install"]),
    ],
)
def test_a_virgin_host_without_headers(headers: str, stops: list[str], steps: list[str]) -> None:
    look = virgin(
        kernel=kernel(OLD, headers={OLD: False}),
        build={"packages": {}, "programs": {"dkms": None, "cc": "/usr/bin/cc", "make": None}},
    )
    found = draw(look, **package(driver_headers=headers))
    assert (codes(found), driver_steps(found)) == (stops, steps)
    if headers == "install":
        assert step(found, "driver.prerequisites")["wanted"] == ["linux-headers-" + OLD, "dkms", "make"]
    if stops:
        assert "apt-get install linux-headers-%s dkms make" % OLD in found["stops"][0]["next_step"]


def excluded(package: str, by: str = "exclude", repository: str = "") -> dict[str, t.Any]:
    return {"package": package, "by": by, "path": "/etc/dnf/dnf.conf", "line": 5, "repository": repository}


@pytest.mark.parametrize(
    "pin, more, stops, cautions",
    [
        (excluded("kernel*"), {}, ["packages_excluded"], []),
        (excluded("kernel-devel"), {}, ["packages_excluded"], []),
        (excluded("kernel-core"), {}, [], []),
        (excluded("kernel*", repository="baseos"), {}, [], ["packages_excluded"]),
        (excluded("kernel*"), {"driver_package_allowed": ["kernel-devel", "kernel-headers"]}, [], []),
        (excluded("kernel*"), {"driver_headers": "ignore"}, [], []),
        # dnf knows whether the locked version is the wanted one.
        (excluded("kernel*", by="versionlock"), {}, [], []),
        (excluded("kernel*", by="preferences"), {}, [], ["packages_excluded"]),
    ],
)
def test_H09_packages_that_the_host_excludes_are_named_before_a_change(
    pin: dict[str, t.Any], more: dict[str, t.Any], stops: list[str], cautions: list[str]
) -> None:
    look = virgin(
        os=system("rhel", "9.6", "redhat"),
        kernel=kernel(EL, headers={EL: False}, modules={EL: False}, packages=[]),
    )
    look["pins"] = [pin]
    found = draw(look, **package(preflight_unlisted="ignore", **more))
    assert (codes(found), [code for code in codes(found, "cautions") if code == "packages_excluded"]) == (
        stops,
        cautions,
    )
    if stops:
        told = problem(found, "packages_excluded")
        assert "kernel-devel-" + EL in told["detail"] and "/etc/dnf/dnf.conf line 5" in told["detail"]
        assert "rbln_driver_package_allowed" in told["next_step"]


def test_H09_pins_that_cannot_be_read_are_no_exclude() -> None:
    look = virgin()
    look["pins"] = look["holds"] = None
    assert "packages_excluded" not in codes(draw(look, **package()))


def test_H09_a_kernel_that_is_excluded_needs_no_hold() -> None:
    look = facts(
        os=system("rhel", "9.6", "redhat"),
        kernel=kernel(EL, headers={EL: True}, modules={EL: True}, packages=[kernel_package("kernel-core")]),
    )
    look["holds"] = ["kernel*"]
    raw = package(preflight_unlisted="ignore", driver_kernel_hold=True)
    assert "driver.hold" not in driver_steps(draw(look, **raw))
    look["holds"] = ["kernel"]
    assert step(draw(look, **raw), "driver.hold")["wanted"] == ["kernel-core"]


@pytest.mark.parametrize(
    "images, compilers, build, wanted, cautions",
    [
        (["linux-image-" + OLD], ["gcc-11"], ["dkms", "gcc", "make"], ["gcc-12"], []),
        (["linux-image-unsigned-" + OLD], [], ["dkms", "gcc", "make"], ["gcc-12"], []),
        (["linux-image-" + OLD], ["gcc-13"], ["dkms", "gcc", "make"], [], []),
        (["linux-image-" + OLD], ["gcc-11"], ["dkms"], [], []),
        # A kernel that is not of the distribution: it may not have this compiler.
        ([], ["gcc-11"], ["dkms", "gcc", "make"], [], ["compiler_missing"]),
        ([], [], ["dkms", "gcc", "make"], [], []),
    ],
)
def test_the_compiler_of_the_kernel(
    images: list[str], compilers: list[str], build: list[str], wanted: list[str], cautions: list[str]
) -> None:
    look = virgin(kernel=kernel(OLD, packages=[kernel_package(name) for name in images]))
    look["build"].update(compilers=compilers, kernel_compiler="gcc-12")
    found = draw(look, **package(driver_build_packages=build))
    steps = [item["wanted"] for item in found["steps"] if item["id"] == "driver.prerequisites"]
    assert steps == ([wanted] if wanted else [])
    assert [code for code in codes(found, "cautions") if code == "compiler_missing"] == cautions


@pytest.mark.parametrize(
    "running, user_headers, expected",
    [
        (EL, None, ["kernel-devel-" + EL, "kernel-headers-" + EL]),
        (EL, "5.14.0-570.el9", ["kernel-devel-" + EL]),
        (EL + "+rt", "1", ["kernel-rt-devel-" + EL]),
        (EL + "+64k", "1", ["kernel-64k-devel-" + EL]),
        (
            "5.14.0-284.11.1.rt14.296.el9_2.x86_64",
            None,
            ["kernel-rt-devel-5.14.0-284.11.1.rt14.296.el9_2.x86_64", "kernel-headers"],
        ),
        ("5.15.0-310.184.5.el9uek.x86_64", "1", ["kernel-uek-devel-5.15.0-310.184.5.el9uek.x86_64"]),
        ("5.15.0-310.184.5.el9uek.x86_64", None, ["kernel-uek-devel-5.15.0-310.184.5.el9uek.x86_64", "kernel-headers"]),
    ],
)
def test_headers_of_el(running: str, user_headers: str | None, expected: list[str]) -> None:
    look = virgin(
        os=system("rhel", "9.6", "redhat"),
        kernel=kernel(running, headers={running: False}, modules={running: False}, packages=[]),
    )
    look["build"]["packages"]["kernel-headers"] = user_headers
    found = draw(look, **package(preflight_unlisted="ignore"))
    assert step(found, "driver.prerequisites")["wanted"] == expected


def test_the_two_kernels_of_oracle_share_their_user_space_headers() -> None:
    running = "5.14.0-570.12.1.0.1.el9_6.x86_64"
    look = virgin(
        os=system("ol", "9.6", "redhat"),
        kernel=kernel(running, headers={running: False}, modules={running: False}, packages=[]),
    )
    assert step(draw(look, **package(preflight_unlisted="ignore")), "driver.prerequisites")["wanted"] == [
        "kernel-devel-" + running,
        "kernel-headers",
    ]


@pytest.mark.parametrize(
    "arch, extra, policy, stops, cautions",
    [
        ("aarch64", [], "fail", ["arch_not_in_support_matrix"], []),
        ("aarch64", [], "warn", [], ["arch_not_in_support_matrix"]),
        ("aarch64", [{"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "arch": ["aarch64"]}], "fail", [], []),
        (None, [], "fail", [], []),
    ],
)
def test_architectures_are_a_part_of_the_matrix(
    arch: str | None, extra: list[dict[str, t.Any]], policy: str, stops: list[str], cautions: list[str]
) -> None:
    found = draw(facts(os={"arch": arch}), **package(preflight_unlisted=policy, preflight_support_matrix_extra=extra))
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)


@pytest.mark.parametrize(
    "version, source, stops",
    [
        ("2.1.0", "runfile", ["driver_source_not_of_version"]),
        ("2.1.0", "package", []),
        ("3.0.0", "runfile", []),
        ("2.0.1-rebel1", "runfile", []),
    ],
)
def test_i02_legacy_package_of_former_releases_there_is_no_runfile(version: str, source: str, stops: list[str]) -> None:
    look = facts(driver={"version_on_disk": "2.0.1", "version_loaded": "2.0.1", "legacy": True})
    raw = {
        "driver_runfile": "/srv/",
        "driver_runfile_sha256": "c" * 64,
        "driver_firmware": "ignore",
        "driver_replace": True,
    }
    found = draw(look, **package(driver_source=source, driver_version=version, **raw))
    assert codes(found) == stops
    if stops:
        assert found["stops"][0]["detail"] == "Driver 2.1.0 comes as package, and rbln_driver_source is runfile."


@pytest.mark.parametrize("extra", [[], [{"os": "ubuntu", "version": "24.04", "kernel": "6.8.0", "drivers": ["<2.0"]}]])
def test_i02_legacy_package_nor_is_there_one_where_the_matrix_has_no_row(extra: list[dict[str, t.Any]]) -> None:
    raw = {
        "driver_runfile": "/srv/",
        "driver_runfile_sha256": "c" * 64,
        "driver_version": "1.3.73",
        "preflight_support_matrix_extra": extra,
    }
    found = draw(virgin(), **package(driver_source="runfile", preflight_unlisted="warn", **raw))
    assert codes(found) == ["driver_source_not_of_version"]
    assert found["stops"][0]["next_step"] == "Set rbln_driver_source: package, or want another version."


@pytest.mark.parametrize(
    "version, steps", [("3.2.2", ["driver.install", "driver.build"]), ("3.2.3", ["driver.install"])]
)
@pytest.mark.parametrize("headers", [True, False])
def test_k01_headers_metapackage_dkms_builds_for_the_kernel_that_was_booted_without_the_module(
    headers: bool, version: str, steps: list[str]
) -> None:
    look = facts(
        driver={"version_on_disk": None, "version_loaded": None, "loaded": False, "signed": None, "signer": None},
        kernel=kernel(NEW, headers={OLD: True, NEW: headers}, modules={OLD: True, NEW: False}, packages=[]),
    )
    found = draw(look, **package(driver_version=version, preflight_unlisted="ignore", driver_replace=True))
    assert driver_steps(found) == ([] if headers else ["driver.prerequisites"]) + steps
    if "driver.build" in steps:
        assert (step(found, "driver.build")["wanted"], step(found, "driver.build")["after"]) == (
            [NEW],
            "driver.install",
        )


def test_headers_where_package_names_are_not_known() -> None:
    look = virgin(
        os={**system("sles", "15.6", "suse"), "pretty": "SLES 15 SP6"}, kernel=kernel(OLD, headers={OLD: False})
    )
    assert codes(draw(look, **package(preflight_unlisted="ignore"))) == ["headers_missing"]
    assert codes(draw(look, **package(preflight_unlisted="ignore", driver_headers="ignore"))) == []


@pytest.mark.parametrize("family, running", [("debian", "6.8.12-4-pve"), ("redhat", "6.12.5-1.el9.elrepo.x86_64")])
def test_headers_of_kernels_from_other_repositories_are_left_to_a_person(family: str, running: str) -> None:
    look = virgin(os=system("x", "1", family), kernel=kernel(running, headers={running: False}))
    assert codes(draw(look, **package(preflight_unlisted="ignore"))) == ["headers_missing"]


def test_a_host_that_needs_nothing_built_needs_no_headers() -> None:
    look = facts(
        kernel=kernel(OLD, headers={OLD: False}),
        build={"packages": {}, "programs": {"dkms": None, "cc": None, "make": None}},
    )
    assert driver_steps(draw(look, **package())) == []


@pytest.mark.parametrize(
    "metas, expected",
    [
        (["linux-image-amd64"], ["linux-headers-amd64"]),
        (["linux-image-amd64", "linux-headers-amd64"], []),
        (["linux-image-extra-virtual"], []),
        ([], []),
    ],
)
def test_the_next_kernel_will_have_headers(metas: list[str], expected: list[str]) -> None:
    look = facts(kernel=kernel(OLD, packages=[kernel_package(name) for name in metas]))
    found = draw(look, **package())
    assert [item["next_step"].split(",")[0] for item in found["cautions"]] == [
        "apt-get install %s" % name for name in expected
    ]
    look["holds"] = ["linux-image-amd64"]
    assert codes(draw(look, **package()), "cautions") == []


@pytest.mark.parametrize(
    "other, headers, words, remedy",
    [
        (
            "6.8.0-90-generic",
            True,
            "is installed and has no module of the driver.",
            "dkms autoinstall -k 6.8.0-90-generic",
        ),
        (NEW, False, "nor headers to build one; it is outside the support matrix", "Remove that kernel"),
    ],
)
def test_other_kernels_are_told(other: str, headers: bool, words: str, remedy: str) -> None:
    look = facts()
    look["kernel"]["guard"].append(
        {"kernel": other, "headers": headers, "module": False, "running": False, "next_boot": False}
    )
    found = problem(draw(look, **package()), "kernels_have_module")
    assert words in found["detail"] and remedy in found["next_step"] and found["severity"] == "info"


# -- room


@pytest.mark.parametrize(
    "free, mounts, disk_free, stops, words",
    [
        ({"/usr": 2048, "/var": 2048}, {}, 2048, [], ""),
        (
            {"/usr": 2047, "/var": 2047},
            {},
            2048,
            ["disk_full"],
            "The file system / (for /usr and /var) has 2047 MiB free, and 2048 MiB are wanted.",
        ),
        ({"/usr": 1024, "/var": 1024}, {"/var": "/var"}, 2048, [], ""),
        (
            {"/usr": 5000, "/var": 1000},
            {"/var": "/var"},
            2048,
            ["disk_full"],
            "The file system /var (for /var) has 1000 MiB free, and 1024 MiB are wanted.",
        ),
        ({"/usr": 10, "/var": 10}, {}, 0, [], ""),
    ],
)
def test_room(free: dict[str, int], mounts: dict[str, str], disk_free: int, stops: list[str], words: str) -> None:
    look = virgin(disk={path: size * MIB for path, size in free.items()}, mounts=mounts)
    found = draw(look, **package(driver_disk_free=disk_free))
    assert codes(found) == stops
    assert not stops or (
        found["stops"][0]["detail"] == words and "rbln_driver_disk_free" in found["stops"][0]["next_step"]
    )
    assert codes(draw(facts(disk=look["disk"], mounts=look["mounts"]), **package(driver_disk_free=disk_free))) == []


def test_little_room_for_boot_is_told() -> None:
    assert codes(draw(virgin(disk={"/boot": 100 * MIB}), **package(driver_disk_free=2048)), "cautions") == ["disk_low"]
    assert (
        codes(
            draw(virgin(disk={"/boot": 100 * MIB}, mounts={"/boot": "/"}), **package(driver_disk_free=2048)), "cautions"
        )
        == []
    )


def row(name: str, **changes: t.Any) -> dict[str, t.Any]:
    return {"kernel": name, "headers": True, "module": True, "running": False, "next_boot": False, **changes}


@pytest.mark.parametrize(
    "free, size, mounts, stops, cautions",
    [
        (0, None, {}, ["boot_full"], []),
        (0, 70 * MIB, {}, ["boot_full"], []),
        (69 * MIB, 70 * MIB, {}, ["boot_full"], []),
        (71 * MIB, 70 * MIB, {}, [], ["disk_low"]),
        (1, None, {}, [], ["disk_low"]),
        (900 * MIB, 70 * MIB, {}, [], []),
        (69 * MIB, 70 * MIB, {"/boot": "/"}, ["boot_full"], []),
        (None, 70 * MIB, {}, [], []),
    ],
)
def test_a_full_boot_stops_what_makes_an_initial_ram_disk(
    free: t.Any, size: t.Any, mounts: dict[str, str], stops: list[str], cautions: list[str]
) -> None:
    look = virgin(disk={"/boot": free}, mounts=mounts, initramfs=size)
    found = draw(look, **package())
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)
    # Packages for a build alone make one as well; where nothing changes, the room is not checked.
    due = facts(disk={"/boot": free}, mounts=mounts, initramfs=size)
    assert codes(draw(due, **package())) == []
    due["kernel"].update(next_boot=NEW, headers={OLD: True, NEW: False}, modules={OLD: True, NEW: False})
    found = draw(due, **package(preflight_unlisted="ignore"))
    assert (driver_steps(found), codes(found)) == (["driver.prerequisites", "driver.build"], stops)
    assert codes(draw(look, **package(driver_disk_free=0))) == []


def test_a_full_boot_is_told_with_the_kernels_to_remove() -> None:
    look = virgin(disk={"/boot": 5 * MIB}, initramfs=70 * MIB + 1)
    look["kernel"].update(
        next_boot=NEW,
        guard=[row("6.8.0-90-generic"), row("6.8.0-101-generic"), row(OLD, running=True), row(NEW, next_boot=True)],
    )
    stop = problem(draw(look, **package(preflight_unlisted="ignore")), "boot_full")
    assert stop["detail"] == (
        "The file system /boot has 5 MiB free, and the packages of this change make an initial ram disk there; "
        "the present one has 71 MiB."
    )
    assert stop["next_step"] == "Remove kernels that are no longer used: 6.8.0-90-generic, 6.8.0-101-generic."
    look["kernel"]["guard"] = look["kernel"]["guard"][2:]
    stop = problem(draw(look, **package(preflight_unlisted="ignore")), "boot_full")
    assert (
        stop["next_step"]
        == "Enlarge it; only the running and the next kernel are installed, so there is none to remove."
    )


def test_the_packages_of_enterprise_linux_make_no_initial_ram_disk() -> None:
    look = virgin(os=system("rocky", "9.6", "redhat"), disk={"/boot": 0}, initramfs=70 * MIB)
    found = draw(look, **package(preflight_unlisted="ignore"))
    assert ("boot_full" in codes(found), "disk_low" in codes(found, "cautions")) == (False, True)


def test_room_that_is_not_known_is_said() -> None:
    assert codes(draw(virgin(disk={"/usr": None}), **package()), "cautions") == ["disk_unknown"]


# -- hotplug ports


@pytest.mark.parametrize(
    "changes, policy, stops, cautions",
    [
        ({}, "fail", ["pciehp_bound"], []),
        ({}, "warn", [], ["pciehp_bound"]),
        ({}, "ignore", [], []),
        ({"pciehp": {"ports": []}}, "fail", [], []),
        ({"pciehp": {"ports": None}}, "fail", [], ["pciehp_unknown"]),
        ({"virtualization": "kvm"}, "fail", [], []),
        ({"npus": [card(0, "REBEL", firmware="3.5.0")]}, "fail", [], []),
        (
            {"npus": [card(0, "ATOM", firmware="3.5.0"), card(1, "ATOM", firmware="3.5.0")]},
            "fail",
            ["not_in_support_matrix"],
            [],
        ),
        # What the hotplug service does is a matter of the kernel, which is that of 10.2.
        ({"os": system("rhel", "10.0", "redhat")}, "fail", ["pciehp_bound"], []),
    ],
)
def test_pciehp_above_several_rebel(
    changes: dict[str, t.Any], policy: str, stops: list[str], cautions: list[str]
) -> None:
    look = facts(
        os=system("rhel", "10.2", "redhat"),
        kernel=kernel(EL102, headers={EL102: True}, modules={EL102: True}, packages=[]),
        npus=[card(0, "REBEL", firmware="3.5.0"), card(1, "REBEL", firmware="3.5.0")],
        driver={"version_on_disk": "3.5.0", "version_loaded": "3.5.0"},
        pciehp={"ports": [{"port": "0000:40:01.0", "npus": ["0000:80:00.0"]}]},
    )
    for key, value in changes.items():
        look[key] = {**look[key], **value} if isinstance(value, dict) else value
    found = draw(look, **package(driver_version="3.5.0", preflight_pciehp=policy))
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)
    if "pciehp_bound" in stops:
        assert (
            "0000:40:01.0" in found["stops"][0]["detail"]
            and "rbln-pciehp-hook.sh install" in found["stops"][0]["next_step"]
        )


# -- B01: Secure Boot


def mok(state: str, **changes: t.Any) -> dict[str, t.Any]:
    return {
        "state": state,
        "key_present": state != "none",
        "subject": None if state == "none" else "DKMS module signing key",
        **changes,
    }


@pytest.mark.parametrize("state", ["disabled", "disabled_setup_mode", "unsupported", "enabled_not_enforced"])
def test_B01_without_enforcement_no_key_is_needed(state: str) -> None:
    for mode in ("check", "enrol"):
        found = draw(virgin(secure_boot=state), **package(driver_secure_boot=mode))
        assert (codes(found), driver_steps(found)) == ([], ["driver.install"])


def test_B01_unknown_is_said_and_not_taken_for_off() -> None:
    found = draw(virgin(secure_boot="unknown"), **package())
    assert (codes(found), codes(found, "cautions")) == ([], ["secure_boot_unknown"])


@pytest.mark.parametrize(
    "keys, stops, words",
    [
        (mok("enrolled"), [], ()),
        (
            mok("not_enrolled"),
            ["secure_boot_unsigned"],
            (
                "mokutil --import /var/lib/dkms/mok.pub",
                "Enroll MOK",
                "Continue",
                "Yes",
                "one-time password",
                "Reboot",
                "secure_boot: enrol",
                "signed with an enrolled key",
            ),
        ),
        (mok("pending"), ["secure_boot_unsigned"], ("Enroll MOK", "given with the request")),
        (mok("none"), ["secure_boot_unsigned"], ("rbln_driver_secure_boot: enrol", "Enroll MOK")),
        (mok("enrolled", key_present=False), ["secure_boot_unsigned"], ("secure_boot: enrol",)),
    ],
)
def test_B01_checking_says_what_the_console_needs(
    keys: dict[str, t.Any], stops: list[str], words: tuple[str, ...]
) -> None:
    found = draw(virgin(secure_boot="enabled", mok=keys), **package())
    assert codes(found) == stops
    for word in words:
        assert word in found["stops"][0]["next_step"]


def test_B01_what_cannot_be_read_is_told_and_left_to_the_validation() -> None:
    found = draw(virgin(secure_boot="enabled", mok=mok("unknown")), **package())
    assert (codes(found), codes(found, "cautions")) == ([], ["secure_boot_unknown"])


@pytest.mark.parametrize("state", ["none", "not_enrolled", "pending", "unknown", "enrolled"])
def test_B01_enrolment_comes_before_the_driver(state: str) -> None:
    steps = ["driver.install"] if state == "enrolled" else ["driver.secure_boot", "driver.install"]
    found = draw(virgin(secure_boot="enabled", mok=mok(state)), **package(driver_secure_boot="enrol"))
    assert (codes(found), driver_steps(found)) == ([], steps)
    assert found["acts"]["driver"] == [name.split(".")[1] for name in steps]


@pytest.mark.parametrize(
    "driver, keys, mode, stops, steps",
    [
        ({"loaded": True, "signed": False}, mok("not_enrolled"), "check", [], []),
        ({"loaded": False, "signed": True}, mok("enrolled", signer_enrolled=True), "check", [], []),
        ({"loaded": False, "signed": False}, mok("not_enrolled"), "check", ["signature_accepted"], []),
        ({"loaded": False, "signed": False}, mok("not_enrolled"), "enrol", [], ["driver.secure_boot"]),
        (
            {"loaded": False, "signed": True},
            mok("not_enrolled", signer_enrolled=False),
            "check",
            ["signature_accepted"],
            [],
        ),
        ({"loaded": False, "signed": False}, mok("enrolled"), "enrol", ["signature_accepted"], []),
        (
            {"loaded": False, "signed": True, "signer": "Vendor", "dkms": []},
            mok("none", signer_enrolled=True),
            "check",
            [],
            [],
        ),
        (
            {"loaded": False, "signed": True, "signer": "Vendor", "dkms": []},
            mok("none", signer_enrolled=False),
            "check",
            ["signature_accepted"],
            [],
        ),
        (
            {"loaded": False, "signed": True, "signer": "Vendor", "dkms": []},
            mok("none", signer_enrolled=None),
            "check",
            [],
            [],
        ),
    ],
)
def test_B01_a_module_that_is_there(
    driver: dict[str, t.Any], keys: dict[str, t.Any], mode: str, stops: list[str], steps: list[str]
) -> None:
    found = draw(
        facts(
            secure_boot="enabled", driver={**driver, "version_loaded": "3.2.2" if driver["loaded"] else None}, mok=keys
        ),
        **package(driver_secure_boot=mode),
    )
    assert codes(found) == stops
    assert [name for name in driver_steps(found) if name == "driver.secure_boot"] == steps


VENDOR = {"version_on_disk": "3.2.0", "version_loaded": "3.2.0", "signer": "Vendor"}


@pytest.mark.parametrize(
    "dkms, keys, headers, stops, cautions",
    [
        # A module that came signed: the next one may be signed by another.
        ([], mok("none", signer_enrolled=True), "install", [], ["secure_boot_signer_later"]),
        ([], mok("enrolled", signer_enrolled=True), "install", [], ["secure_boot_signer_later"]),
        ([], mok("enrolled", signer_enrolled=False), "install", [], []),
        ([], mok("enrolled", signer_enrolled=False), "ignore", [], ["secure_boot_signer_later"]),
        ([], mok("none", signer_enrolled=False), "ignore", ["secure_boot_unsigned"], []),
        # DKMS signs with its own key, no matter which key signed the present module.
        (None, mok("none", signer_enrolled=True), "install", ["secure_boot_unsigned"], []),
        (None, mok("not_enrolled", signer_enrolled=True), "ignore", ["secure_boot_unsigned"], []),
        (None, mok("unknown", signer_enrolled=True), "install", [], ["secure_boot_unknown"]),
        (None, mok("enrolled", signer_enrolled=True), "ignore", [], []),
    ],
)
def test_B01_the_signer_of_the_present_module_says_nothing_of_the_next(
    dkms: t.Any, keys: dict[str, t.Any], headers: str, stops: list[str], cautions: list[str]
) -> None:
    look = facts(secure_boot="enabled", driver={**VENDOR, **({} if dkms is None else {"dkms": dkms})}, mok=keys)
    found = draw(look, **package(driver_replace=True, driver_headers=headers, driver_firmware="ignore"))
    assert (codes(found), codes(found, "cautions")) == (stops, cautions)


def test_B01_what_is_told_of_a_signer_that_is_not_known_yet() -> None:
    look = facts(secure_boot="enabled", driver={**VENDOR, "dkms": []}, mok=mok("none", signer_enrolled=True))
    for mode in ("check", "enrol"):
        found = draw(look, **package(driver_replace=True, driver_secure_boot=mode))
        told = problem(found, "secure_boot_signer_later")
        assert told["detail"] == (
            "Secure Boot is on, and which key signed the new module is known only when it is installed; "
            "that of the present one, Vendor, is accepted."
        )
        assert "signature_accepted" in told["next_step"] and driver_steps(found) == ["driver.install"]


@pytest.mark.parametrize("by", ["module.sig_enforce", "lockdown (integrity)"])
@pytest.mark.parametrize("state", ["disabled", "unsupported", "enabled_not_enforced", "unknown"])
def test_B01_a_kernel_that_enforces_signatures_itself_is_judged_alike(by: str, state: str) -> None:
    for key in ("not_enrolled", "pending", "none"):
        found = draw(virgin(secure_boot=state, mok=mok(key, enforced_by=by)), **package())
        assert codes(found) == ["secure_boot_unsigned"]
        assert found["stops"][0]["detail"].startswith("The kernel refuses unsigned modules by %s, and " % by)
        assert ("start the kernel without " + by in found["stops"][0]["next_step"]) is (state == "unsupported")
    assert codes(draw(virgin(secure_boot=state, mok=mok("enrolled", enforced_by=by)), **package())) == []
    unsigned = facts(
        secure_boot=state,
        driver={"loaded": False, "version_loaded": None, "signed": False},
        mok=mok("none", enforced_by=by),
    )
    assert codes(draw(unsigned, **package())) == ["signature_accepted"]
    # Without UEFI there is nothing to enrol a key in.
    found = draw(virgin(secure_boot=state, mok=mok("none", enforced_by=by)), **package(driver_secure_boot="enrol"))
    steps = ["driver.install"] if state == "unsupported" else ["driver.secure_boot", "driver.install"]
    assert (driver_steps(found), codes(found)) == (steps, ["secure_boot_unsigned"] if state == "unsupported" else [])


@pytest.mark.parametrize(
    "trusted, running, told",
    [(False, OLD, True), (True, OLD, False), (None, OLD, False), (False, "5.14.0-570.116.1.el9_6.x86_64", False)],
)
def test_B01_keys_that_the_kernel_may_not_take_for_modules_are_told(trusted: t.Any, running: str, told: bool) -> None:
    look = virgin(secure_boot="enabled", mok=mok("enrolled", trusted=trusted))
    look["kernel"]["running"] = running
    found = draw(look, **package(preflight_unlisted="ignore"))
    assert ("mok_not_trusted" in codes(found, "cautions")) is told
    assert codes(found) == []
    look["mok"]["state"] = "none"
    assert "mok_not_trusted" not in codes(draw(look, **package(preflight_unlisted="ignore")), "cautions")


# -- firmware


@pytest.mark.parametrize(
    "raw, stops, cautions, steps",
    [
        ({}, [], ["firmware_is_driver"], []),
        ({"driver_firmware": "ignore"}, [], [], []),
        ({"driver_firmware": "flash"}, ["firmware_flash_not_allowed"], [], []),
        ({"driver_firmware": "flash", "driver_replace": True}, [], [], ["driver.firmware"]),
        (
            {"driver_firmware": "flash", "driver_replace": True, "driver_firmware_dir": ""},
            ["firmware_dir_missing"],
            [],
            [],
        ),
    ],
)
def test_other_firmware(raw: dict[str, t.Any], stops: list[str], cautions: list[str], steps: list[str]) -> None:
    look = facts(
        npus=[
            card(0),
            card(1, firmware="3.0.0"),
            card(2, firmware=None),
            card(3, firmware="1.0.0", state="passthrough"),
        ]
    )
    found = draw(look, **package(**raw))
    assert (codes(found), codes(found, "cautions"), driver_steps(found)) == (stops, cautions, steps)
    if steps:
        assert step(found, "driver.firmware")["now"] == {"0000:81:00.0": "3.0.0"}
        assert (step(found, "driver.firmware")["wanted"], step(found, "driver.firmware")["disruption"]) == (
            "3.2.2",
            "evict",
        )


def test_firmware_follows_the_driver_that_will_be_there() -> None:
    look = facts(driver={"version_on_disk": "3.2.0", "version_loaded": "3.2.0"}, npus=[card(0, firmware="3.2.0")])
    found = draw(look, **package(driver_replace=True, driver_firmware="flash"))
    assert driver_steps(found) == ["driver.install", "driver.firmware"]
    assert (step(found, "driver.firmware")["wanted"], step(found, "driver.firmware")["after"]) == (
        "3.2.2",
        "driver.install",
    )
    assert codes(draw(look, **package(driver_replace=True)), "cautions") == ["firmware_differs"]


def test_a_host_of_virtual_machines_is_asked_for_nothing() -> None:
    look = virgin(
        npus=[npu(state="passthrough")],
        secure_boot="enabled",
        kernel=kernel(OLD, headers={OLD: False}),
        disk={"/usr": 0, "/var": 0},
    )
    found = draw(
        look,
        **package(driver_kernel_hold=True, driver_secure_boot="enrol", driver_firmware="flash", preflight_sdk="0.12.0"),
    )
    assert (driver_steps(found), codes(found)) == ([], [])
