# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host made of files: shape, agreement with the proof, and that nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError, Problem, Step
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import TABLES
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._observe import settings as _settings
from ansible_collections.rebellions.npu.plugins.module_utils._observe.host_tool import refresh
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import look, observe, prove_look
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import SCHEMAS, validator
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import facts


def settings(markers: str = "keep", **given: Any) -> _settings.Settings:
    return _settings.read_settings(PROFILE, _settings.complete(given, "test"), markers)


def listing(root: Path) -> dict[str, tuple[int, float]]:
    return {
        str(path.relative_to(root)): (path.lstat().st_ino, path.lstat().st_mtime)
        for path in root.rglob("*")
        if not path.is_dir() and path.name != "smi"
    }


def with_podman(tree: Tree) -> Tree:
    return tree.program("/usr/bin/podman", "echo podman version 5.6.0\n")


def test_observation_fits_its_schema_and_writes_nothing(tmp_path: Path) -> None:
    tree = with_podman(ca22_host(tmp_path))
    before = listing(tmp_path)
    seen = observe(PROFILE, tree.host(), settings(), {"/x": "0644:0"})
    assert listing(tmp_path) == before
    validator("observed.schema.json").validate(json.loads(json.dumps(seen["observed"])))
    assert set(seen) == {"facts", "runtimes", "observed"} and len(seen["facts"]["npus"]) == 4
    assert seen["observed"]["host_tool"]["current"] is False and seen["observed"]["host_tool"]["differing"] == ["/x"]
    assert seen["observed"]["markers"]["current"] is False and seen["observed"]["markers"]["present"] == []
    assert seen["observed"]["cdi"]["state"] == "missing" and "after" not in seen["observed"]["cdi"]


def test_after_the_specification_and_the_proof_the_observation_is_the_proof(tmp_path: Path) -> None:
    tree = with_podman(ca22_host(tmp_path))
    host = tree.host()
    assert refresh(PROFILE, host, settings())["changed"] is True
    proof = prove_look(PROFILE, host, look(PROFILE, host, settings()), settings("write"))
    assert proof.state == "passed", proof.message()
    observed = observe(PROFILE, host, settings())["observed"]
    assert observed["passed"] is True and observed["markers"]["current"] is True
    assert observed["markers"]["present"] == [".driver-ctr-ready", "driver-ready", "toolkit-ready"]
    assert observed["cdi"]["state"] == "current" and refresh(PROFILE, host, settings())["changed"] is False
    tree.real("/run/rbln/validations/driver-ready").write_text("IS_HOST_DRIVER=false\n")
    assert observe(PROFILE, host, settings())["observed"]["markers"]["current"] is False


def test_an_observation_of_a_proven_host_starts_few_programs(tmp_path: Path) -> None:
    """Each program costs more than all files that are read. A new one needs a reason, and its line here."""
    tree = with_podman(ca22_host(tmp_path))
    host = tree.host()
    refresh(PROFILE, host, settings())
    prove_look(PROFILE, host, look(PROFILE, host, settings()), settings("write"))
    started: list[str] = []

    def runner(argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Any:
        started.append(os.path.basename(argv[0]))
        return tree.run(argv, timeout, env)

    seen = observe(PROFILE, Host(str(tmp_path), runner=runner), settings())
    assert seen["observed"]["passed"] is True
    # Of systemd nothing is asked where none of the units is there.
    assert Counter(started) == {"rbln-smi": 2, "podman": 1}, started


def test_systemd_is_asked_once_for_the_units_of_all_rooms(tmp_path: Path) -> None:
    tree = with_podman(ca22_host(tmp_path))
    for name in ("rbln-smd.service", "containerd.service", "other.service"):
        tree.write("/usr/lib/systemd/system/" + name, "[Service]\nExecStart=/usr/bin/x\n")
    asked: list[tuple[str, ...]] = []

    def runner(argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Any:
        if argv[0] != "systemctl":
            return tree.run(argv, timeout, env)
        names = tuple(argv[5:])
        asked.append(names)
        blocks = ("Id=%s\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n" % name for name in names)
        return Probe(VALUE, Completed(0, "\n".join(blocks), ""))

    seen = observe(PROFILE, Host(str(tmp_path), runner=runner), settings())
    assert asked == [("containerd.service", "rbln-smd.service")]
    assert seen["facts"]["daemon"] == {"unit": "rbln-smd.service", "state": "active", "enabled": True}
    assert seen["facts"]["probes"]["daemon"]["state"] == "value"
    units = {runtime["name"]: (runtime["unit"], runtime["unit_state"]) for runtime in seen["runtimes"]["runtimes"]}
    assert units["containerd"] == ("containerd.service", "active")


def test_every_directory_that_a_runtime_reads_is_looked_at_S03_foreign_cdi(tmp_path: Path) -> None:
    """Only podman's configuration names this directory; the checks say what is wrong there, and ours is repaired."""
    tree = with_podman(ca22_host(tmp_path)).folder("/srv/cdi").folder("/var/run/cdi")
    dirs = '["/etc/cdi", "/var/run/cdi", "/srv/cdi"]'
    tree.write("/etc/containers/containers.conf", f"[engine]\ncdi_spec_dirs = {dirs}\n")
    host = tree.host()
    refresh(PROFILE, host, settings())
    tree.real("/srv/cdi").chmod(0o777)
    tree.real("/var/run/cdi").chmod(0o777)
    devices = "[{name: x, containerEdits: {hooks: [{path: /tmp/x}]}}]"
    tree.write("/srv/cdi/zz.yaml", f"cdiVersion: 0.5.0\nkind: rebellions.ai/npu\ndevices: {devices}\n")
    tree.write("/srv/cdi/broken.yaml", "[")
    observed = observe(PROFILE, host, settings())["observed"]
    validator("observed.schema.json").validate(json.loads(json.dumps(observed)))
    found = {check["name"]: check for check in observed["checks"]}
    assert [one["path"] for one in observed["cdi"]["directories"]] == ["/var/run/cdi", "/etc/cdi", "/srv/cdi"]
    assert {one["path"]: one["written_by_us"] for one in observed["cdi"]["files"]} == {
        "/var/run/cdi/rbln.yaml": True,
        "/srv/cdi/zz.yaml": False,
    }
    for name in ("cdi_dirs_trusted", "cdi_hooks_known", "cdi_no_other_file"):
        assert found[name]["ok"] is False and found[name]["next_step"], name
    assert "/srv/cdi: everybody can write it (mode 0777)" in found["cdi_dirs_trusted"]["detail"]
    assert observed["cdi"]["changed"] and observed["cdi"]["repairs"] == ["/var/run/cdi: mode 0777 becomes 0755"]
    assert refresh(PROFILE, host, settings())["changed"] and not refresh(PROFILE, host, settings())["changed"]
    tree.real("/srv/cdi").chmod(0o755)
    tree.real("/srv/cdi/zz.yaml").unlink()
    found = {check["name"]: check for check in observe(PROFILE, host, settings())["observed"]["checks"]}
    assert (found["cdi_dirs_trusted"]["ok"], found["cdi_no_other_file"]["ok"]) == (True, True)
    assert (found["cdi_hooks_known"]["ok"], found["cdi_hooks_known"]["severity"]) == (None, "warning")


def test_a_specification_that_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    tree = with_podman(ca22_host(tmp_path)).link("/var/run/cdi/rbln.yaml", "/var/run/cdi/rbln.yaml")
    observed = observe(PROFILE, tree.host(), settings())["observed"]
    assert observed["cdi"]["state"] == "unknown" and observed["state"] != "passed"
    validator("observed.schema.json").validate(json.loads(json.dumps(observed)))


def test_records_fit_their_schemas() -> None:
    problem, step = validator("problem.schema.json"), validator("step.schema.json")
    problem.validate(Problem("a_code", "error", "seen", "do", "rebellions").to_dict())
    step.validate(Step("a.b", "driver", "driver", None, "3.2.2", "because", "reboot", "", "rebellions").to_dict())
    check = validator("check.schema.json")
    record = {
        "name": "x",
        "vendor": "v",
        "scope": "driver",
        "ok": None,
        "severity": "error",
        "detail": "d",
        "evidence": {},
        "next_step": "",
        "seconds": 0.0,
    }
    check.validate(record)
    for bad in (
        dict(record, ok="yes"),
        dict(record, severity="fatal"),
        dict(record, extra=1),
        {key: record[key] for key in record if key != "next_step"},
    ):
        assert list(check.iter_errors(bad))
    assert list(problem.iter_errors({"code": "x"})) and list(step.iter_errors({"id": "x"}))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"driver": "3.2.2"}, "'driver' is not an option"),
        ({"driver_version": 3.2}, "driver_version is 3.2, which is not of the type str"),
        ({"expected_devices": True}, "expected_devices is True"),
        ({"scopes": "driver"}, "scopes is 'driver', which is not of the type list"),
        ({"scopes": ["drivers"]}, "scopes has the value 'drivers'"),
        ({"runtimes": ["lxc"]}, "runtimes has the value 'lxc'"),
        ({"cdi": {"from": "x"}}, "'from' is not an option of a CDI"),
        ({"cdi": {"form": "x"}}, "form is 'x'"),
    ],
)
def test_bad_options_are_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(NpuError) as raised:
        settings(**given)
    assert words in raised.value.message and raised.value.next_step


def test_options_reach_who_reads_them() -> None:
    cdi = {"form": "kubernetes", "path": "/etc/cdi/x-rbln.json"}
    made = settings(cdi=cdi, runtimes=["docker"], timeout=3, expected_addresses=["a"], driver_version="1.0.0")
    assert made.cdi.form == "kubernetes" and made.cdi_path == "/etc/cdi/x-rbln.json"
    assert (
        made.runtimes.runtimes == ("docker",)
        and made.runtimes.spec_dir == "/etc/cdi"
        and made.runtimes.file_stem == "rbln"
    )
    assert (
        made.facts["smi_timeout"] == 3
        and made.wanted["driver_version"] == "1.0.0"
        and made.wanted["expected_addresses"] == ["a"]
    )
    assert (
        settings().cdi_path == "/var/run/cdi/rbln.yaml" and settings(cdi_path="/a/rbln.json").cdi_path == "/a/rbln.json"
    )


def test_options_win_over_parameters() -> None:
    params = {"timeout": 5.0, "scopes": ["driver"], "markers": "write", "options": {"timeout": 7}}
    assert _settings.merge(params) == {"timeout": 7, "scopes": ["driver"]}
    assert _settings.complete({"timeout": None}, "x")["timeout"] == _settings.TIMEOUT


def test_without_privileges_nothing_is_called_passed(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    observed = observe(PROFILE, host, settings())["observed"]
    assert observed["passed"] is False and os.listdir(tmp_path) == []
    assert facts()["schema"] == 1


FAULTS = {
    "healthy": lambda tree: None,
    "node and firmware": lambda tree: (
        tree.real("/dev/rbln2").unlink(),
        tree.write("/sys/class/rebellions/rbln1/fw_ver", "3.0.0\n"),
    ),
    "no driver": lambda tree: shutil.rmtree(tree.real("/sys/module/rebellions")),
}


@pytest.mark.parametrize("wanted", [{}, {"driver_version": "3.4.0", "firmware_version": "3.4.0"}])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_problems_are_the_checks_of_the_driver_that_do_not_hold(
    tmp_path: Path, fault: str, wanted: dict[str, str]
) -> None:
    tree = with_podman(ca22_host(tmp_path))
    FAULTS[fault](tree)
    seen = observe(PROFILE, tree.host(), settings(**wanted))
    checks = [check for check in seen["observed"]["checks"] if check["scope"] == "driver" and check["ok"] is False]
    keys = ("severity", "detail", "next_step", "vendor")
    judged = {check["name"]: tuple(check[key] for key in keys) for check in checks}
    assert {one["code"]: tuple(one[key] for key in keys) for one in seen["facts"]["problems"]} == judged
    assert bool(judged) is (fault != "healthy" or bool(wanted))
    severities = [one["severity"] for one in seen["facts"]["problems"]]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


BLOCKED = {"driver": "all ready files", "toolkit": "`toolkit-ready`", "plugin": "the proof", "vfio": "the proof"}


def test_every_check_stands_in_the_documentation() -> None:
    """Each with scope, severity, what holds, what it blocks and what to do; no two have one name."""
    text = (SCHEMAS.parent / "checks.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.count("|") == 7 and "| `" in line[:3]]
    entries = [(table.name, entry) for table in TABLES for entry in table.entries]
    wanted = [
        [
            "`%s`" % entry.name,
            scope,
            entry.severity,
            (entry.function.__doc__ or "").split("\n")[0],
            BLOCKED[scope] if entry.severity == "error" else "nothing",
        ]
        for scope, entry in entries
    ]
    assert len(wanted) > 30 and [row[:5] for row in rows] == wanted
    assert [row[0] for row in rows if len(row) < 6 or not row[5]] == ["`passthrough`"]
    assert len({entry.name for _scope, entry in entries}) == len(entries)
