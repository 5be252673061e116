# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook report in real runs: from cached facts and an earlier report, without asking a host."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action import rbln_report
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.files import Place, write
from ansible_collections.rebellions.npu.tests.unit.fixtures import planned, reports

ROOT = Path(__file__).resolve().parents[4]
# Nothing listens there: a host that is asked is unreachable.
HOST = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}


def cached() -> dict[str, Any]:
    facts = planned.facts(pool_key="p", counts={"functions": 1, "devices": 1})
    return {"rbln": facts, "rbln_runtimes": planned.runtimes(), "rbln_observed": reports.observed(run="r2")}


def run(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    hosts = {"npu_nodes": {"hosts": {"a": HOST, "npu-0002": HOST, "never": HOST}}}
    (folder / "hosts.json").write_text(json.dumps(hosts))
    (folder / "cache").mkdir(exist_ok=True)
    facts = json.dumps(cached())
    (folder / "cache" / "a").write_text(facts)
    # As ansible-core keeps them since 2.19.
    (folder / "cache" / "s1_a").write_text(json.dumps({"__payload__": facts}))
    settings = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
    settings.update(
        HOME=str(folder), ANSIBLE_COLLECTIONS_PATH=str(ROOT.parents[2]), ANSIBLE_NOCOLOR="true", COLUMNS="300",
        ANSIBLE_CACHE_PLUGIN="jsonfile", ANSIBLE_CACHE_PLUGIN_CONNECTION=str(folder / "cache"),
        ANSIBLE_CALLBACKS_ENABLED="rebellions.npu.rbln_report",
        ANSIBLE_SHOW_CUSTOM_STATS="true", **{"RBLN_REPORT_PATH": str(folder / "out"), **more},
    )  # fmt: skip
    settings = {name: told for name, told in settings.items() if told}
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "rebellions.npu.report", *options]
    return subprocess.run(argv, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def test_the_report_of_what_is_known_asks_no_host(tmp_path: Path) -> None:
    last = reports.of_hosts([reports.one_host(1)], run="r1")
    reports._failed(last["hosts"][0])
    write(last, Place(str(tmp_path / "out")), ["json"])
    done = run(tmp_path, "-e", "rbln_report_formats=json,junit,pdf")
    assert done.returncode == 0, done.stdout + done.stderr
    # The callback leaves the report of this run to the task.
    (path,) = (tmp_path / "out").glob("*-rebellions.npu.report-*.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [(one["name"], one["state"], one["npus"]) for one in found["hosts"]] == [
        ("a", "ok", 1), ("npu-0002", "failed", 8), ("never", "unknown", None)
    ]  # fmt: skip
    assert found["made"]["source"] == "cache" and found["compared"]["new_failures"] == []
    assert "Nothing is known of never. Next: Run the playbook discover" in done.stdout
    assert "3 hosts: 1 ok, 1 unknown, 1 failed" in done.stdout and "unreachable=1" not in done.stdout
    assert "A report has no format pdf. Next: Choose from html" in " ".join((done.stdout + done.stderr).split())
    # What AWX keeps as artifacts.
    assert '"rbln_report"' in done.stdout and '"states"' in done.stdout, done.stdout


def test_it_reads_and_writes_where_the_callback_is_told_to(tmp_path: Path) -> None:
    last = reports.of_hosts([reports.one_host(1)], run="r1")
    write(last, Place(str(tmp_path / "kept")), ["json"])
    (tmp_path / "ansible.cfg").write_text("[callback_rbln_report]\npath = kept\nformats = json\nkeep = 1\n")
    done = run(tmp_path, RBLN_REPORT_PATH="")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "kept").iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [one["npus"] for one in found["hosts"]] == [1, 8, None] and found["compared"] is not None


def test_in_check_mode_no_file_is_written_and_a_wrong_place_fails_the_task(tmp_path: Path) -> None:
    assert run(tmp_path, "--check").returncode == 0 and not (tmp_path / "out").exists()
    done = run(tmp_path, "-e", "rbln_report_keep=few")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "rbln_report_keep is 'few', which is not a whole number. Next: Set it" in said, said
    done = run(tmp_path, "-e", "rbln_report_path=/proc/x")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "cannot be written" in said and "Next: Give it a folder" in said, said


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


class Report(rbln_report.ActionModule):
    """The action of a play with these arguments; `shown` are the lines of its screen."""

    def __init__(self, **args: Any) -> None:
        self.shown: list[str] = []
        self._task: Any = SimpleNamespace(
            args=args,
            check_mode=False,
            async_val=0,
            action="rbln_report",
            get_path=lambda: "/x/drift.yml:1",
            _uuid="a-b",
        )
        self._connection: Any = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        self._display: Any = SimpleNamespace(display=lambda text, **_more: self.shown.append(text))


def drift_of(folder: Path, hosts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[str]]:
    """The result and the screen of the act drift over hosts that have registered this."""
    options = {"path": str(folder), "formats": ["json"], "keep": 0}
    monkeypatch.setattr(rbln_report, "_configured", lambda: dict(options))
    action = Report(act="drift")
    variables = {"inventory_hostname": "x", "ansible_play_hosts_all": list(hosts), "hostvars": HostVars(hosts)}
    return action.run(None, variables), action.shown


def registered(**driver: Any) -> dict[str, Any]:
    seen = cached()
    seen["rbln"]["driver"].update(driver)
    plan = {"steps": [], "stops": [], "wanted": {}}
    return {"rbln_discover_observation": {"ansible_facts": seen}, "rbln_preflight_plan": plan}


def test_what_is_not_known_any_more_is_reported_and_is_no_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two names that are one on a screen.
    names = ["npu1", "npu1\x1b[1m"]
    first, _shown = drift_of(tmp_path, {name: registered() for name in names}, monkeypatch)
    assert first["drifted"] is False and first["since"] == ""
    lost = registered(version_loaded=None, version_on_disk=None, loaded=None)
    now, shown = drift_of(tmp_path, {names[0]: copy.deepcopy(lost), names[1]: registered()}, monkeypatch)
    assert now["drifted"] is False and "Not known of npu1 now: driver (was 3.2.2)" in shown
    found = json.loads(max(tmp_path.glob("*.json"), key=lambda path: path.stat().st_mtime_ns).read_text("utf-8"))
    assert [(one["name"], one["not_known"]) for one in found["hosts"]] == [
        ("npu1", [{"what": "driver", "was": "3.2.2", "why": ""}]), ("npu1 (2)", []),
    ]  # fmt: skip
    # It answers again, with another version than it had.
    back, shown = drift_of(
        tmp_path, {names[0]: registered(version_loaded="3.1.0"), names[1]: registered()}, monkeypatch
    )
    assert back["drifted"] is True and "  driver: 3.2.2 -> 3.1.0 (3.2.2 on disk)" in shown, shown
