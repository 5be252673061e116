# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""rbln_driver: what it takes, what it gives back, and that check mode changes nothing."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import basic
from ansible_collections.rebellions.npu.plugins.doc_fragments._proxies import ModuleDocFragment as Proxies
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ARGUMENTS
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change
from ansible_collections.rebellions.npu.plugins.modules import rbln_driver
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    DAEMON,
    ERROR,
    KMD,
    SERVICES,
    Machine,
    Verdict,
    having,
    memory,
)

UNINSTALL = ["--uninstall"]


class Module:
    """The module on a machine below a directory."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.machine, self.monkeypatch, self.capsys = machine, monkeypatch, capsys
        self.warned: list[str] = []
        # Ansible remembers for its process what it has warned of.
        monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, text: self.warned.append(text))
        monkeypatch.setattr(rbln_driver, "Host", lambda: machine.host)
        monkeypatch.setattr(rbln_driver, "PROFILE", machine.profile)
        monkeypatch.setattr(rbln_driver, "manager_for", lambda *arguments, **keys: machine.manager)
        monkeypatch.setattr(rbln_driver, "Checks", lambda host, profile, options: Verdict(machine))

    def run(self, check: bool = False, **arguments: t.Any) -> tuple[int, dict[str, t.Any]]:
        """(exit code, result) of one call."""
        given = {"source": "runfile", "services": list(SERVICES), **arguments, "_ansible_check_mode": check}
        self.machine.acts.clear()
        self.warned.clear()
        self.monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
        self.monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(SystemExit) as ended:
            rbln_driver.main()
        result = json.loads(self.capsys.readouterr().out)
        result.pop("invocation", None)
        return int(ended.value.code or 0), result


@pytest.fixture(name="base")
def base_fixture() -> t.Iterator[Path]:
    with memory() as path:
        yield path


@pytest.fixture(name="module")
def module_fixture(base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(having(base / "root", uninstall=UNINSTALL), monkeypatch, capsys)


# -- what it takes


def test_documented_options_are_those_it_takes() -> None:
    documented = {
        **yaml.safe_load(rbln_driver.DOCUMENTATION)["options"],
        **yaml.safe_load(Proxies.DOCUMENTATION)["options"],
    }
    taken = dict(ARGUMENTS, **rbln_driver.MODULE_ARGUMENTS)
    assert list(documented) == list(taken)
    for name, entry in documented.items():
        given = taken[name]
        assert entry["type"] == given["type"], name
        assert entry.get("required", False) == given.get("required", False), name
        assert entry.get("default") == given.get("default"), name
        assert entry.get("choices") == given.get("choices"), name
        assert entry.get("elements") == given.get("elements"), name
        if "suboptions" in entry:
            keys = ("type", "required", "default")
            plain = {
                key: {word: item[word] for word in keys if word in item} for key, item in entry["suboptions"].items()
            }
            assert plain == given["options"], name


@pytest.mark.parametrize(
    "arguments, words",
    [({"source": "container"}, "source"), ({"files": [{"path": "/a"}]}, "sha256"), ({"keep": "x"}, "keep")],
)
def test_bad_input_is_one_error(module: Module, arguments: dict[str, t.Any], words: str) -> None:
    before = module.machine.look()
    code, result = module.run(**arguments)
    assert (code, result["failed"]) == (1, True) and words in result["msg"]
    assert (module.machine.acts, module.machine.look()) == ([], before)


# -- what it gives back


def test_an_upgrade(module: Module) -> None:
    code, result = module.run(version="3.4.0", files=module.machine.runfile("3.4.0"), uninstall=UNINSTALL)
    assert (code, result["changed"], result["outcome"], result["previous"], result["version"]) == (
        0,
        True,
        "upgraded",
        "3.2.2",
        "3.4.0",
    )
    assert (result["error"], result["reason"], "failed" in result, module.warned) == ("", "", False, [])
    assert result["diff"] == {"before": "%s 3.2.2\n" % KMD, "after": "%s 3.4.0\n" % KMD}
    assert module.machine.active == {DAEMON, *SERVICES}


def test_a_driver_that_does_not_work(module: Module) -> None:
    module.machine.unfit.add("3.4.0")
    arguments = {"version": "3.4.0", "uninstall": UNINSTALL}
    code, result = module.run(files=module.machine.runfile("3.4.0"), **arguments)
    assert (code, result["failed"], result["changed"], result["outcome"]) == (1, True, True, "rolled_back")
    assert (
        result["msg"]
        == result["error"]
        == (
            "rolled back: Driver 3.2.2 works again. Driver 3.4.0 does not work. Next: Try another version or file; "
            "this one is refused from now on unless retry is set."
        )
    )
    assert result["diff"]["before"] == result["diff"]["after"] == "%s 3.2.2\n" % KMD
    code, quiet = module.run(files=module.machine.runfile("3.4.0"), fail=False, **arguments)
    assert (code, "failed" in quiet, quiet["outcome"], quiet["error"]) == (0, False, "rolled_back", result["error"])


def test_a_refusal_has_changed_nothing(module: Module) -> None:
    before = module.machine.look()
    files = [{**module.machine.runfile("3.4.0")[0], "sha256": "0" * 64}]
    code, result = module.run(version="3.4.0", files=files)
    assert (code, result["failed"], result["changed"], result["outcome"]) == (1, True, False, "unchanged")
    assert "is missing or does not have the SHA-256" in result["msg"] and module.machine.look() == before
    code, quiet = module.run(version="3.4.0", files=files, fail=False)
    assert (code, quiet["changed"], quiet["error"]) == (0, False, result["msg"])


def test_a_driver_left_stopped_says_so(module: Module) -> None:
    module.machine.trouble = {"prove 3.4.0": ERROR, "prove 3.2.2": ERROR}
    code, result = module.run(version="3.4.0", files=module.machine.runfile("3.4.0"), uninstall=UNINSTALL)
    assert (code, result["outcome"]) == (1, "left_stopped")
    assert result["msg"].startswith(
        "left stopped: No working driver is loaded; the host is marked tainted. prove 3.4.0"
    )


def test_an_undone_change_is_no_failure(module: Module) -> None:
    module.machine.trouble = {"prove 3.4.0": ERROR}
    module.run(version="3.4.0", files=module.machine.runfile("3.4.0"), uninstall=UNINSTALL, rollback=False)
    module.machine.trouble = {}
    code, result = module.run(source="package", install=False)
    assert (code, result["changed"], result["outcome"], result["error"]) == (0, True, "rolled_back", "")
    assert module.warned == ["An earlier change was interrupted at validate; this run takes it over."]


def test_a_removal_and_another_one(module: Module) -> None:
    code, result = module.run(state="absent", uninstall=UNINSTALL)
    assert (code, result["changed"], result["outcome"], result["left"]) == (0, True, "removed", [])
    assert result["diff"] == {"before": "%s 3.2.2\n" % KMD, "after": ""}
    code, result = module.run(state="absent")
    assert (code, result["changed"], result["outcome"], result["left"]) == (0, False, "unchanged", [])


def test_returned_values_are_documented(module: Module) -> None:
    documented = set(yaml.safe_load(rbln_driver.RETURN))
    files = module.machine.runfile("3.4.0")
    for check in (True, False):
        for arguments in ({"version": "3.4.0", "files": files}, {"state": "absent"}):
            _code, result = module.run(check, **arguments)
            assert set(result) - {"changed", "diff", "failed", "msg"} <= documented
            assert documented - {"left", "installer", "warnings", "packages"} <= set(result)


# -- check mode


@pytest.mark.parametrize(
    "arguments",
    [
        {"version": "3.4.0", "names": [KMD], "source": "package"},
        {"state": "absent"},
        {"state": "absent", "notes_only": True},
        {"install": False, "reload": True},
    ],
)
def test_check_mode_changes_nothing_and_shows_what_the_change_does(module: Module, arguments: dict[str, t.Any]) -> None:
    module.machine.repository.add("%s=3.4.0" % KMD)
    before = module.machine.look()
    code, result = module.run(True, **arguments)
    assert (code, result["changed"]) == (0, True)
    assert (module.machine.acts, module.machine.look(), module.machine.record("journal.json")) == ([], before, None)
    code, real = module.run(**arguments)
    assert (code, real["diff"]) == (0, result["diff"])
    replaced = "names" in arguments or arguments.get("state") == "absent" and "notes_only" not in arguments
    assert (real["diff"]["before"] != real["diff"]["after"]) is replaced


def test_check_mode_does_not_say_that_an_installer_changes_no_package(module: Module) -> None:
    _code, result = module.run(True, version="3.4.0")
    assert result["diff"]["after"].splitlines() == [
        *result["diff"]["before"].splitlines(),
        "the packages of driver 3.4.0 are known after the installation",
    ]


def test_check_mode_simulates_and_refuses(module: Module) -> None:
    module.machine.repository.add("%s=3.4.0" % KMD)
    _code, result = module.run(True, version="3.4.0", names=[KMD], source="package")
    assert result["simulated"] == [{"act": "upgrade", "name": KMD, "old": "3.2.2", "new": "3.4.0"}]
    code, result = module.run(True, version="3.9.0", names=[KMD], source="package")
    # The repository that has it may be placed by the same run.
    assert (code, result["changed"], result["simulated"]) == (0, True, [])
    module.machine.beside = [Change("remove", "libc6", "2")]
    code, result = module.run(True, version="3.4.0", names=[KMD], source="package")
    assert (code, result["changed"]) == (1, False) and "would also remove libc6" in result["msg"]


def test_a_host_that_cannot_be_read_is_one_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: t.Any) -> None:
        raise NpuError("The installed packages cannot be read: Permission denied.", "Run as root.")

    monkeypatch.setattr(rbln_driver, "vendor_packages", fail)
    code, result = module.run(version="3.4.0")
    assert (code, result["msg"], result["changed"]) == (
        1,
        "The installed packages cannot be read: Permission denied. Next: Run as root.",
        False,
    )
