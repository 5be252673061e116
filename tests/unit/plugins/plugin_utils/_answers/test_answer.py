# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boundary to hosts: real answers pass unchanged, and whatever is put at any place of them does not."""

from __future__ import annotations

import copy
import json
import re
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import parse_manifest
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import look, observe, prove_look
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import complete, read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import (
    ANSWERS,
    SCHEMAS,
    checked,
    checked_facts,
    known,
    refuse_inputs,
    require,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean_output
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

Data = dict[str, t.Any]
HERE = Path(__file__).resolve()
LARGE = {"content", "before", "after", "prepared"}
SHA, DIFF = "0" * 64, {"before": "a\n", "after": "b\n", "before_header": "/x", "after_header": "/x"}
PROBLEM = {"code": "a_b", "severity": "info", "detail": "d", "next_step": "", "vendor": "rebellions"}
ROW = {"size": 1, "sha256": SHA, "kind": "package", "name": "gcc", "version": "1:2", "architecture": "amd64"}
# An answer of each module whose code needs more than files; those of the others are made by their code.
ANSWER: dict[str, Data] = {
    "rbln_cdi_spec": {
        "changed": True, "path": "/var/run/cdi/rbln.yaml", "format": "yaml", "action": "write", "found": "missing",
        "state": "current", "devices": [{"name": "rbln0", "path": "/dev/rbln0", "major": 235, "group": None}],
        "libraries": ["/usr/lib/librbln-ml.so.3"], "tools": ["/usr/bin/rbln-smi"],
        "missing": [{"name": "libx.so", "needed_by": "/usr/lib/a.so"}], "conflicts": None,
        "missing_host_paths": ["/usr/lib/x"], "problems": [PROBLEM], "diff": DIFF, "warnings": ["w"],
        "device_names": ["rebellions.ai/npu=0"], "valid": True,
        "directories": [
            {"path": "/etc/cdi", "state": "absent", "linked_to": None, "owner": None, "group": None, "mode": None},
            {"path": "/run/cdi", "state": "value", "linked_to": "../x", "owner": 0, "group": 0, "mode": "1777"},
        ],
        "files": [
            {
                "path": "/run/cdi/x.yaml", "kind": "rebellions.ai/npu", "owner": 0, "group": 0, "mode": "0644",
                "written_by_us": False, "hooks": ["/tmp/x"],
            },
        ],
        "repairs": ["/run/cdi: mode 1777 becomes 0755"],
    },
    "rbln_config_write": {
        "changed": True, "unfinished": False, "restored": ["/etc/a"], "backups": ["/etc/a.bak"], "judged": None,
        "files": {
            "/etc/containerd/config.toml": {
                "state": "value", "sha256": SHA, "content": "QQ==", "missing_dirs": ["/etc/x"], "detail": "",
            },
        },
    },
    "rbln_driver": {
        "changed": True, "outcome": "upgraded", "version": "3.4.0", "previous": None, "error": "", "reason": "",
        "reboot_required": False, "steps": [{"step": "install", "seconds": 1.5}], "in_use": [{"pid": 1, "name": "x"}],
        "simulated": [{"act": "install", "name": "gcc", "old": None, "new": "1"}], "firmware": [], "packages": ["gcc"],
        "left": ["/usr/lib/x"], "installer": False, "diff": DIFF, "ansible_job_id": "j1.2", "results_file": "/root/x",
        "started": 1, "finished": 0,
    },
    "rbln_driver_files": {"changed": False, "files": [{"path": "/x/a.run", "sha256": SHA}], "missing": ["a.run"]},
    "rbln_history": {
        "changed": False, "files": [{"path": "/etc/x", "time": 1.5, "owner": "root"}],
        "packages": [{"time": 1.5, "log": "/var/log/x", "command": "apt-get x", "by": "kim", "packages": ["gcc"]}],
        "unread": [{"path": "/var/log/y", "reason": "denied"}],
    },
    "rbln_host_tool": {"changed": True, "changed_paths": ["/usr/local/libexec/x"], "diff": DIFF},
    "rbln_mok": {
        "changed": True, "state": "pending", "acts": ["made"], "console": ["1. Wait"], "certificate": "/x/mok.der",
        "subject": "CN=x", "serial": "0a", "own": True, "password_file": None, "msg": "two\nlines", "diff": DIFF,
        "warnings": ["w"], "deprecations": [{"msg": "d", "version": "9.0.0", "date": None, "collection_name": "a.b"}],
        "invocation": {"module_args": {"timeout": 60.0}}, "rc": 0, "exception": "x", "_ansible_parsed": True,
    },
    "rbln_package": {"changed": True, "changes": ["install mokutil (0.6.0-2)"], "diff": {"prepared": "x\n"}},
    "rbln_repository": {
        "changed": True, "source": "/etc/apt/sources.list.d/x.list", "adopted": True, "changes": ["remove /x"],
        "diff": {"prepared": "x\n"},
    },
    "rbln_support": {
        "changed": False, "content": "QQ==", "serials": ["S1"],
        "records": [
            {"name": "kernel/log.txt", "kind": "command", "source": "dmesg", "state": "too_large", "detail": "cut",
             "cut": True, "seconds": 0.5, "size": 9},
        ],
    },
    "rbln_symptoms": {
        "changed": False, "clock": 1764454965.5, "names": {"reg.example": {"state": "absent", "detail": "no"}},
        "disk": [
            {"path": "/", "size": 9, "free": 1, "inodes": 0, "inodes_free": 0, "read_only": False},
        ],
        "hung": ["/mnt/nfs"], "units": {"kubelet.service": "active"},
        "locked_by": ["apt-get (pid 7)"], "used_by": ["python3 (pid 9)"],
        "proxies": [{"unit": "containerd.service", "address": "p:1", "state": "failed", "detail": "refused"}],
    },
    "rbln_bundle": {
        "changed": True, "os": {"id": "debian", "version_id": "", "architecture": "x86_64"}, "format": "deb",
        "requested": ["gcc=1"], "address": "fd00::1",
        "planned": [{"name": "gcc", "size": 1, "sha256": SHA}, {"name": "make", "size": 1, "sha256": None}],
        "files": [{"path": "packages/gcc_1%3a2_amd64.deb", **ROW, "control": {"Description": "two\n lines"}}],
        "images": [{"name": "x", "reference": "a/b:1", "target": "", "digest": None, "reason": "absent"}],
        "directory": "/var/lib/rbln/bundle", "manifest_sha256": SHA, "size": 1, "count": 1,
        "environment": {"APT_CONFIG": "/x/apt.conf"}, "dnf_options": ["--setopt=a=b"], "dnf_config": "",
        "runfiles": {"3.2.2": {"path": "/x/a.run", "sha256": SHA}}, "lacking": ["driver/a.run"],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Data]:
    """{module: an answer}, as a controller reads it."""
    tree = ca22_host(tmp_path_factory.mktemp("host")).program("/usr/bin/podman", "echo podman version 5.4.2\n")
    settings = read_settings(PROFILE, complete({}, "test"), "keep")
    seen = observe(PROFILE, tree.host(), settings, {"/x": "0644:0"})
    proof = prove_look(PROFILE, tree.host(), look(PROFILE, tree.host(), settings), settings).to_dict()
    facts = {"rbln": seen["facts"], "rbln_runtimes": seen["runtimes"], "rbln_observed": seen["observed"]}
    made = {
        "rbln_observe": {"changed": False, "ansible_facts": facts},
        "rbln_driver_facts": {"changed": False, "ansible_facts": {"rbln": seen["facts"]}},
        "rbln_runtime_detect": {"changed": False, "ansible_facts": {"rbln_runtimes": seen["runtimes"]}},
        "rbln_validate": {
            "changed": False, "checks": proof["checks"], "passed": proof["passed"], "state": proof["state"],
            "failed_checks": proof["failed"], "unknown_checks": proof["unknown"], "changes": proof["changes"],
            "ansible_facts": {"rbln_proof": proof}, "diff": {"before": "", "after": ""},
        },
        **ANSWER,
    }  # fmt: skip
    return t.cast("dict[str, Data]", json.loads(json.dumps(made)))


def modules_of_hosts() -> list[str]:
    """Modules that are sent to hosts; the others are documented there and are action plugins alone."""
    names = {path.stem for path in (HERE.parents[5] / "plugins" / "modules").glob("*.py")}
    here = {"rbln_controller", "rbln_operands", "rbln_plan", "rbln_plan_show", "rbln_rollout", "rbln_runtime_config"}
    here |= {"rbln_doctor", "rbln_report", "rbln_show"}
    return sorted(names - here)


def test_every_module_of_hosts_has_a_shape_and_passes_the_boundary(answers: dict[str, Data]) -> None:
    shapes = json.loads((SCHEMAS / ANSWERS).read_text(encoding="utf-8"))["properties"]
    assert sorted(shapes) == modules_of_hosts() == sorted(answers) and not known("async_status")
    for name in modules_of_hosts():
        plugin = (HERE.parents[5] / "plugins" / "action" / (name + ".py")).read_text(encoding="utf-8")
        assert re.search(r"^class ActionModule\(.*\bAnswering\b", plugin, re.M), name
        # Each key is seen at least once by the tests below.
        assert set(shapes[name]["properties"]) == set(answers[name]) & set(shapes[name]["properties"]), name


def test_a_right_answer_comes_back_as_it_was(answers: dict[str, Data]) -> None:
    for name, said in answers.items():
        assert checked("npu-a", name, said) == said, name
    facts = answers["rbln_observe"]["ansible_facts"]
    assert checked_facts("npu-a", {**facts, "distribution": "x"}, list(facts)) == facts


def places(value: t.Any, way: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Every place in an answer; of a list only the first item, since the others have the same shape."""
    if way:
        yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*way, key))


def replaced(value: t.Any, way: tuple[t.Any, ...], new: t.Any) -> t.Any:
    """The answer with one place replaced; nothing else is copied."""
    if not way:
        return new
    found = dict(value) if isinstance(value, dict) else list(value)
    found[way[0]] = replaced(value[way[0]], way[1:], new)
    return found


def texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(one)


DEEP: t.Any = 1
for _level in range(200):
    DEEP = [DEEP]
HOSTILE: list[t.Any] = [
    None, True, -1, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", "\0", "../../.ssh/authorized_keys", "/../etc",
    "{{ 1 }}{% set x = 1 %}", "%s%n{0.__class__}", "a\nb", "\x1b[31mred\x1b[0m\x9b2J\x7f", "\u202egpj\u2028", "\ud800",
    "x" * 100_000, [], ["x"] * 30_000, {}, {"evil": 1}, {"__class__": {}}, [[]], DEEP, {"\x1b[2J": "\x1b[2J"},
]  # fmt: skip


@pytest.mark.parametrize("module", modules_of_hosts())
def test_nothing_hostile_passes_at_any_place(answers: dict[str, Data], module: str) -> None:
    """Each value at each place is refused with one clean error, or comes back clean, of the same kind, and bounded."""
    said, refused, passed = answers[module], 0, 0
    for way in places(said):
        for value in HOSTILE:
            try:
                found = checked("npu-a", module, replaced(said, way, value))
            except NpuError as exc:
                refused += 1
                assert str(exc).isprintable() and str(exc).count("Next: ") == 1 and len(str(exc)) < 900, (way, value)
                assert str(exc).startswith("npu-a answered %s with a wrong value: " % module)
                continue
            passed += 1
            part: t.Any = found
            for key in way:
                part = part[key]
            for text in texts(part):
                assert text.replace("\n", "").replace("\t", "").isprintable(), (way, value)
                # Files and differences are large, and have limits of their own.
                assert len(text) <= 64 * 1024 + 10 or LARGE & set(way), (way, value)
            assert value is not DEEP and (not isinstance(value, list) or len(value) < 30_000), way
            if isinstance(value, float):
                assert value == 1.5, way
            if isinstance(value, int):
                assert abs(value) < 2**63, way
    assert refused > passed > 0, (refused, passed)


def test_no_fact_but_ours_and_no_other_key_passes(answers: dict[str, Data]) -> None:
    said = answers["rbln_observe"]
    for name in (
        "ansible_connection", "ansible_host", "ansible_python_interpreter", "ansible_become_password", "rbln_proof",
        "rbln_driver_runfile", "discovered_interpreter_perl", "x",
    ):  # fmt: skip
        with pytest.raises(NpuError, match=r"ansible_facts\.%s: the key is not known" % name):
            checked("h", "rbln_observe", replaced(said, ("ansible_facts",), {**said["ansible_facts"], name: "local"}))
    for key in (
        "add_host",
        "add_group",
        "ansible_stats",
        "_ansible_no_log",
        "_ansible_facts_cacheable",
        "results",
        "x",
    ):
        with pytest.raises(NpuError, match="%s: the key is not known" % key):
            checked("h", "rbln_observe", {**said, key: {}})
    found = checked("h", "rbln_observe", replaced(said, ("ansible_facts",), {
        **said["ansible_facts"], "discovered_interpreter_python": "/usr/bin/python3",
    }))  # fmt: skip
    assert found["ansible_facts"]["discovered_interpreter_python"] == "/usr/bin/python3"


def test_a_success_has_all_that_is_used_and_a_failure_may_lack_it(answers: dict[str, Data]) -> None:
    for module in modules_of_hosts():
        assert checked("h", module, {"failed": True, "msg": "a\n\x1b[1mb"}) == {
            "changed": False, "failed": True, "msg": "a\nb",
        }  # fmt: skip
        required = json.loads((SCHEMAS / ANSWERS).read_text(encoding="utf-8"))["properties"][module].get("required", [])
        assert required or module == "rbln_bundle"
        for key in required:
            lacking = {name: value for name, value in answers[module].items() if name != key}
            with pytest.raises(NpuError, match="%s: is missing" % key):
                checked("h", module, {**lacking, "failed": False})
            assert checked("h", module, lacking, whole=False)
    with pytest.raises(NpuError, match="failed: 'no' is not one of True, False"):
        checked("h", "rbln_mok", {"failed": "no"})
    with pytest.raises(NpuError, match="npu-a answered rbln_bundle with a wrong value: format: format is missing"):
        require("npu-a", "rbln_bundle", {"os": {}}, ["os", "format"])


@pytest.mark.parametrize(
    "path", ["a/../b", "/a", "../a", "a//b", "a/.b", ".a", "a/", "", "a\\b", "a b", "a\n", "a" * 600]
)
def test_paths_of_a_bundle_are_those_of_its_manifest(answers: dict[str, Data], path: str) -> None:
    for way in (("files", 0, "path"), ("lacking", 0)):
        with pytest.raises(NpuError, match="not a valid text|too many"):
            checked("h", "rbln_bundle", replaced(answers["rbln_bundle"], way, path))


@pytest.mark.parametrize("path", ["a", "packages/gcc_1%3a2~rc+1_amd64.deb", "a-b/c=d,e@f^g/h:i", "a/..b", "-a"])
def test_the_manifest_and_the_answer_agree_about_a_path(answers: dict[str, Data], path: str) -> None:
    """The rule of the manifest is the rule here: one accepts what the other does."""
    manifest = {
        "schema": 1, "format": "deb", "os": {}, "images": [], "kernels": [], "requested": [],
        "files": [{"path": path, **ROW}],
    }  # fmt: skip
    verdicts = []
    for judge in (
        lambda: parse_manifest(json.dumps(manifest)),
        lambda: checked("h", "rbln_bundle", replaced(answers["rbln_bundle"], ("files", 0, "path"), path)),
    ):
        try:
            verdicts.append(bool(judge()))
        except NpuError:
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]


def test_facts_of_any_origin_are_judged_before_use(answers: dict[str, Data]) -> None:
    facts = answers["rbln_observe"]["ansible_facts"]
    with pytest.raises(NpuError, match=r"h answered ansible_facts\.rbln with a wrong value: os\.id: '\.\./x'"):
        checked_facts("h", replaced(facts, ("rbln", "os", "id"), "../x"))
    with pytest.raises(NpuError, match="The observation of h lacks rbln_runtimes, rbln_observed"):
        checked_facts("h", {"rbln": facts["rbln"]}, list(facts))
    some = {"rbln": {"npus": [{"product": "x"}], "identity": {"node_name": "a"}}}
    assert checked_facts("h", some) == some
    with pytest.raises(NpuError, match=r"rbln with a wrong value: npus\[0\]\.product: 1 is not text"):
        checked_facts("h", {"rbln": {"npus": [{"product": 1}]}})
    with pytest.raises(NpuError, match=r"rbln with a wrong value: .* is missing"):
        checked_facts("h", some, ["rbln"])
    assert checked_facts("h", None) == checked_facts("h", {"distribution": "x"}) == {}


def test_a_fact_with_the_name_of_an_input_is_refused() -> None:
    refuse_inputs("h", {})
    refuse_inputs("h", {"ansible_facts": {"rbln": {}, "rbln_proof": {}, "rblnx": 1, "distribution": "x"}})
    for name in ("rbln_driver_runfile", "rbln_node_name", "rbln_operands_node_name", "__rbln_failure"):
        with pytest.raises(NpuError, match="npu-a has the fact %s, which would set a variable" % name):
            refuse_inputs("npu-a", {"ansible_facts": {"rbln": {}, name: "/etc/shadow"}})


def test_objects_of_ansible_itself_stay_what_they_are(answers: dict[str, Data]) -> None:
    messages = pytest.importorskip("ansible.module_utils._internal._messages")
    error = messages.ErrorSummary(event=messages.Event(msg="seen"))
    warning = messages.WarningSummary(event=messages.Event(msg="seen"))
    said = {"failed": True, "msg": "x", "exception": error, "warnings": [warning]}
    assert checked("h", "rbln_mok", said) == {"changed": False, **said}


def test_the_boundary_costs_little_beside_reading_the_answer(answers: dict[str, Data]) -> None:
    """In parts of the time that json needs for the same text, so that no clock of a machine decides."""
    said = answers["rbln_observe"]
    text = json.dumps(said)
    checked("h", "rbln_observe", said)

    def spent(work: t.Callable[[], t.Any]) -> float:
        best = float("inf")
        for _round in range(5):
            began = time.process_time()
            for _time in range(20):
                work()
            best = min(best, time.process_time() - began)
        return best

    read = spent(lambda: json.loads(text))
    judged = spent(lambda: checked("h", "rbln_observe", said))
    cleaned = spent(lambda: clean_output(text))
    assert judged < 12 * read and cleaned < 12 * read, (read / 20, judged / 20, cleaned / 20)


def test_the_data_that_was_judged_is_not_changed(answers: dict[str, Data]) -> None:
    said = copy.deepcopy(answers["rbln_observe"])
    said["ansible_facts"]["rbln"]["os"]["pretty"] = "\x1b[1mx"
    before = copy.deepcopy(said)
    assert checked("h", "rbln_observe", said)["ansible_facts"]["rbln"]["os"]["pretty"] == "x" and said == before
