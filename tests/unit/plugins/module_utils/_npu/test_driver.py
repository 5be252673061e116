# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a driver was installed, DKMS, what is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu import driver
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree, case, module_file


def row(
    version: str, kernel: str | None, state: str, arch: str | None = "x86_64", module: str = "rebellions"
) -> dict[str, Any]:
    return {"module": module, "version": version, "kernel": kernel, "arch": arch, "state": state}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (case("I02-legacy-package", "dkms-status.txt"), [row("2.0.1", KERNEL, "installed")]),
        ("rebellions, 2.0.1, 6.8.0-117-generic, x86_64: installed\n", [row("2.0.1", KERNEL, "installed")]),
        (
            "rebellions/3.2.2, 5.14.0-570.el9_6.x86_64, x86_64: built\n",
            [row("3.2.2", "5.14.0-570.el9_6.x86_64", "built")],
        ),
        ("rebellions/3.2.2: added\n", [row("3.2.2", None, "added", None)]),
        ("rebellions, 2.0.1: added\n", [row("2.0.1", None, "added", None)]),
        (
            "rebellions/3.2.2, 6.8.0-117-generic, x86_64: installed "
            "(WARNING! Diff between built and installed module!)\n",
            [row("3.2.2", KERNEL, "differs")],
        ),
        (
            "rebellions/3.2.2, 6.8.0-117-generic, x86_64: installed "
            "(Differences between built and installed modules)\n",
            [row("3.2.2", KERNEL, "differs")],
        ),
        (
            "rebellions, 3.2.2, 5.14.0-570.el9_6.x86_64, x86_64: installed-weak from 5.14.0-503.el9_5.x86_64\n",
            [row("3.2.2", "5.14.0-570.el9_6.x86_64", "installed")],
        ),
        (
            "rebellions/3.2.2, 6.8.0-117-generic, x86_64: installed (WARNING! Missing some built modules!)\n",
            [row("3.2.2", KERNEL, "installed")],
        ),
        (
            "rebellions/3.2.2-1~rc1, 6.1.0-1-amd64, x86_64: installed (Original modules exist)\n",
            [row("3.2.2-1~rc1", "6.1.0-1-amd64", "installed")],
        ),
        (
            "nvidia/550.1, 6.8.0, x86_64: installed\nError! Could not locate dkms.conf\n",
            [row("550.1", "6.8.0", "installed", module="nvidia")],
        ),
        ("", []),
        ("Deprecated feature: REMAKE_INITRD\n", []),
    ],
)
def test_I02_dkms_status(text: str, expected: list[dict[str, Any]]) -> None:
    assert driver.parse_dkms_status(text) == expected


def dkms(tree: Tree, version: str, kernel: str, installed: bool = True) -> Tree:
    base = "/var/lib/dkms/rebellions"
    tree.write("%s/%s/%s/x86_64/module/rebellions.ko" % (base, version, kernel)).folder(
        "%s/%s/source" % (base, version)
    )
    if installed:
        tree.link("%s/kernel-%s-x86_64" % (base, kernel), "%s/%s/x86_64" % (version, kernel))
    return tree


def test_dkms_tree(tmp_path: Path) -> None:
    tree = dkms(dkms(Tree(tmp_path), "3.2.2", KERNEL), "3.2.2", "6.8.0-138-generic", installed=False)
    tree.folder("/var/lib/dkms/rebellions/3.4.0/source").folder("/var/lib/dkms/zfs/2.2/source")
    tree.write(
        "/var/lib/dkms/rebellions/3.5.0/build/make.log",
        "DKMS (dkms-3.2.0) make.log for rebellions/3.5.0 for kernel %s (x86_64)\n" % KERNEL,
    )
    found, probe = driver.read_dkms(tree.host(), PROFILE.driver_packages)
    assert probe.ok
    assert found == [
        row("3.2.2", KERNEL, "installed"),
        row("3.2.2", "6.8.0-138-generic", "built"),
        row("3.4.0", None, "added", None),
        row("3.5.0", KERNEL, "failed"),
    ]


def test_dkms_without_the_source_is_broken(tmp_path: Path) -> None:
    tree = dkms(Tree(tmp_path), "3.2.2", KERNEL)
    tree.real("/var/lib/dkms/rebellions/3.2.2/source").rmdir()
    for version in ("2.0.1", "3.2.2"):
        tree.link("/var/lib/dkms/rebellions/%s/source" % version, "/usr/src/rebellions-" + version)
    found = driver.read_dkms(tree.host(), PROFILE.driver_packages)[0]
    assert found == [
        row("2.0.1", None, "broken", None),
        row("3.2.2", KERNEL, "installed"),
        row("3.2.2", None, "broken", None),
    ]
    assert driver.parse_dkms_status("rebellions/2.0.1: broken") == found[:1]
    tree.folder("/usr/src/rebellions-2.0.1").folder("/usr/src/rebellions-3.2.2")
    assert [item["state"] for item in driver.read_dkms(tree.host(), PROFILE.driver_packages)[0]] == [
        "added",
        "installed",
    ]


def test_dkms_log_of_older_releases(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write(
        "/var/lib/dkms/rebellions/2.0.1/build/make.log",
        "DKMS make.log for rebellions-2.0.1 for kernel %s (x86_64)\n" % KERNEL,
    )
    assert driver.read_dkms(tree.host(), PROFILE.driver_packages)[0] == [row("2.0.1", KERNEL, "failed")]


class Denying(Host):
    def listdir(self, path: str) -> Probe:
        return Probe(DENIED, None, "Permission denied") if path == driver.DKMS_DIR else super().listdir(path)


def test_dkms_is_asked_when_its_tree_is_denied(tmp_path: Path) -> None:
    tree = Tree(tmp_path).program(
        "/usr/sbin/dkms",
        "echo 'rebellions/3.2.2, %s, x86_64: installed'; echo 'zfs/2, 6, x86_64: installed'\n" % KERNEL,
    )
    assert driver.read_dkms(Denying(str(tmp_path), tree.run), PROFILE.driver_packages)[0] == [
        row("3.2.2", KERNEL, "installed")
    ]
    found, probe = driver.read_dkms(Denying(str(tmp_path)), PROFILE.driver_packages)
    assert (found, probe.state) == ([], "denied")


def tool(tree: Tree, path: str = "/usr/bin/rbln-smi") -> Tree:
    return tree.program(path, "exit 1\n")


def package(tree: Tree, version: str, state: str = "install ok installed", name: str = "rebellions") -> Tree:
    return tree.dpkg([(name, version, state)])


def rpm(tree: Tree) -> Tree:
    return tree.write("/var/lib/rpm/rpmdb.sqlite").program(
        "/usr/bin/rpm", "printf 'rebellions\\t2.0.1-1\\tx86_64\\n'\n"
    )


def module(tree: Tree) -> Tree:
    return tree.kernel(KERNEL, module=module_file("3.2.2"))


def stamp(tree: Tree) -> Tree:
    return tree.write("/var/lib/rbln/driver.json", '{"version": "3.2.2", "source": "runfile"}')


Build = Callable[[Tree], Any]
WAYS: list[tuple[str, Build, str]] = [
    ("nothing", lambda tree: tree, "none"),
    ("stamp", stamp, "runfile"),
    ("module and tool", lambda tree: tool(module(tree)), "runfile"),
    ("DKMS and tool", lambda tree: tool(dkms(tree, "3.2.2", KERNEL)), "runfile"),
    ("DKMS alone", lambda tree: dkms(tree, "3.2.2", KERNEL), "dkms"),
    ("I02 package", lambda tree: tool(dkms(package(tree, "2.0.1"), "2.0.1", KERNEL)), "deb"),
    ("I02 removed package", lambda tree: package(tree, "2.0.1", "deinstall ok config-files"), "none"),
    ("only libraries", lambda tree: package(tree, "3.2.2", name="librbln-ml3"), "none"),
    ("only the toolkit", lambda tree: package(tree, "0.2.3", name="rbln-container-toolkit"), "none"),
    ("rpm", lambda tree: tool(module(rpm(tree))), "rpm"),
    ("container", lambda tree: tool(tree, "/run/rbln/driver/usr/bin/rbln-smi"), "container"),
    (
        "container, module of the host by DKMS",
        lambda tree: dkms(tool(tree, "/run/rbln/driver/usr/bin/rbln-smi"), "3.2.2", KERNEL),
        "dkms",
    ),
    ("loaded, nothing on disk", lambda tree: tree.loaded(), "unknown"),
    ("module alone", module, "unknown"),
    ("empty tool is no tool", lambda tree: tree.write("/usr/bin/rbln-smi", "", 0o755), "none"),
    ("folder in the place of the tool", lambda tree: tree.folder("/usr/bin/rbln-smi"), "none"),
]


@pytest.mark.parametrize(("build", "expected"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_installed_via(tmp_path: Path, build: Build, expected: str) -> None:
    tree = Tree(tmp_path).system()
    build(tree)
    found = collect_facts(PROFILE, tree.host())["driver"]
    assert found["installed_via"] == expected
    assert found["root"] == ("/run/rbln/driver" if expected == "container" else "/")


def test_I02_legacy_package_and_runfile(tmp_path: Path) -> None:
    tree = dkms(package(Tree(tmp_path).system(), "2.0.1"), "2.0.1", KERNEL)
    facts = collect_facts(PROFILE, tree.host())
    assert (facts["driver"]["installed_via"], facts["driver"]["version_on_disk"], facts["driver"]["legacy"]) == (
        "deb",
        "2.0.1",
        True,
    )
    assert "one_driver_installed" not in [problem["code"] for problem in facts["problems"]]
    stamp(tree)
    facts = collect_facts(PROFILE, tree.host())
    assert facts["driver"]["installed_via"] == "runfile"
    found = [problem["detail"] for problem in facts["problems"] if problem["code"] == "one_driver_installed"]
    assert found == ["the package rebellions 2.0.1 and another installation of the driver (3.2.2) are both here"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rbln-tools", "rebellions-fw", "rebellions-kmd", "librbln-ml3"], "rebellions-kmd"),
        (["rebellions-tools", "rebellions"], "rebellions"),
        (["rebellions-base"], "rebellions-base"),
        (["rbln-tools", "librbln-ml3"], None),
        ([], None),
    ],
)
def test_package_that_is_the_driver(names: list[str], expected: str | None) -> None:
    found = driver.driver_package(PROFILE, [{"name": name, "version": "3.2.2", "state": "installed"} for name in names])
    assert (found["name"] if found else None) == expected


def test_package_of_a_new_release_is_not_legacy(tmp_path: Path) -> None:
    assert collect_facts(PROFILE, package(Tree(tmp_path).system(), "1:3.2.2-1").host())["driver"]["legacy"] is False


@pytest.mark.parametrize(
    ("build", "loaded", "version"),
    [
        (lambda tree: tree.folder("/sys/module"), False, None),
        (lambda tree: tree, None, None),
        (lambda tree: tree.loaded("3.2.2"), True, "3.2.2"),
        (
            lambda tree: tree.folder("/sys/module/rebellions").device("rbln0", None, kernel_version="3.0.0"),
            True,
            "3.0.0",
        ),
        (lambda tree: tree.folder("/sys/module/rebellions"), True, None),
        (lambda tree: tree.loaded().write("/sys/module/rebellions/initstate", "coming\n"), False, "3.2.2"),
    ],
    ids=["not loaded", "no sysfs", "version file", "class", "no version", "still coming"],
)
def test_loaded(tmp_path: Path, build: Build, loaded: bool | None, version: str | None) -> None:
    tree = Tree(tmp_path)
    build(tree)
    found = collect_facts(PROFILE, tree.host())["driver"]
    assert (found["loaded"], found["version_loaded"]) == (loaded, version)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 3.2}', ""])
def test_stamp_that_is_none(tmp_path: Path, text: str) -> None:
    assert driver.read_stamp(Tree(tmp_path).write("/stamp", text).host(), "/stamp").state == "failed"


HALF = "install ok half-configured"
LEGACY: list[tuple[str, Build, tuple[str, str | None, bool]]] = [
    ("package alone", lambda tree: package(tree, "2.0.1"), ("deb", "2.0.1", True)),
    ("package alone, half-configured", lambda tree: package(tree, "1:2.0.1-1", HALF), ("deb", "2.0.1", True)),
    ("package whose build has failed", lambda tree: failed(package(tree, "2.0.1", HALF)), ("deb", "2.0.1", True)),
    (
        "package of a new release alone",
        lambda tree: package(tree, "3.4.0~rc1-1", name="rebellions-kmd"),
        ("deb", "3.4.0~rc1", False),
    ),
    (
        "package of which only the configuration is left",
        lambda tree: package(tree, "2.0.1", "deinstall ok config-files"),
        ("none", None, False),
    ),
    ("rpm alone", rpm, ("rpm", "2.0.1", True)),
    ("loaded, its file gone", lambda tree: package(tree, "2.0.1").loaded("2.0.0"), ("deb", None, True)),
    (
        "built for another kernel",
        lambda tree: dkms(package(tree, "2.0.1"), "2.0.1", "6.8.0-9-generic"),
        ("deb", None, True),
    ),
    ("DKMS alone", lambda tree: dkms(tree, "2.0.1", KERNEL), ("dkms", "2.0.1", True)),
    ("DKMS alone, of a new release", lambda tree: dkms(tree, "3.2.2", KERNEL), ("dkms", "3.2.2", False)),
]


def failed(tree: Tree) -> Tree:
    return tree.write(
        "/var/lib/dkms/rebellions/2.0.1/build/make.log",
        "DKMS make.log for rebellions-2.0.1 for kernel %s (x86_64)\n" % KERNEL,
    )


@pytest.mark.parametrize(("build", "expected"), [way[1:] for way in LEGACY], ids=[way[0] for way in LEGACY])
def test_I02_legacy_package_without_a_module_is_the_driver_all_the_same(
    tmp_path: Path, build: Build, expected: tuple[str, str | None, bool]
) -> None:
    tree = Tree(tmp_path).system()
    build(tree)
    found = collect_facts(PROFILE, tree.host())["driver"]
    assert (found["installed_via"], found["version_on_disk"], found["legacy"]) == expected


def test_I02_legacy_package_left_to_dkms_beside_a_runfile(tmp_path: Path) -> None:
    facts = collect_facts(PROFILE, stamp(dkms(Tree(tmp_path).system(), "2.0.1", KERNEL)).host())
    found = [problem["detail"] for problem in facts["problems"] if problem["code"] == "one_driver_installed"]
    assert found == [
        "what the former package left in DKMS (2.0.1) and another installation of the driver (3.2.2) are both here"
    ]


def test_two_versions_of_dkms(tmp_path: Path) -> None:
    tree = dkms(dkms(Tree(tmp_path).system(), "3.0.0", KERNEL, installed=False), "3.2.2", KERNEL)
    details = [
        problem["detail"]
        for problem in collect_facts(PROFILE, tree.host())["problems"]
        if problem["code"] == "dkms_one_version"
    ]
    assert details == [
        "DKMS has several versions of the driver: 3.0.0, 3.2.2; for the running kernel it installed 3.2.2"
    ]


def test_failed_build_is_a_problem(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .system()
        .write(
            "/var/lib/dkms/rebellions/3.5.0/build/make.log",
            "DKMS make.log for rebellions-3.5.0 for kernel %s (x86_64)\n" % KERNEL,
        )
    )
    details = [
        problem["detail"]
        for problem in collect_facts(PROFILE, tree.host())["problems"]
        if problem["code"] == "dkms_builds"
    ]
    assert details == ["DKMS could not build rebellions 3.5.0 for kernel %s" % KERNEL]
