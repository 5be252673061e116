# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test runner itself: what it counts, and that nothing run is nothing passed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.lab import _machine
from ansible_collections.rebellions.npu.tests.tools import count, env, layers, skips, stage, with_ansible
from ansible_collections.rebellions.npu.tests.tools.count import Count
from ansible_collections.rebellions.npu.tests.tools.paths import SELF

HERE = Path(__file__).resolve().parent
SANITY = """Running sanity test "ansible-doc"
Running sanity test "shellcheck"
WARNING: Required program "shellcheck" not found.
Running sanity test "pep8"
FATAL: The 1 sanity test(s) listed below (out of 3) failed. See error output above for details.
pep8
"""


@pytest.mark.parametrize(
    "output, expected",
    [
        ("", Count()),
        ("no tests ran in 0.05s\n", Count()),
        ("12 passed in 0.31s\n", Count(12, 0)),
        ("=== 2 failed, 55 passed, 1 skipped in 3.18s ===\n", Count(55, 2)),
        ("1 failed, 2 passed, 3 errors in 3.18s\n", Count(2, 4)),
        ("\x1b[32m\x1b[1m7 passed\x1b[0m\x1b[32m in 1.00s\x1b[0m\n", Count(7, 0)),
        ("3 skipped in 1.00s\n", Count()),
        ("4 passed, 1 failed\n", Count(4, 1)),
        ("bench: 4 passed, 0 failed, 2 skipped\n", Count(4, 0)),
        ("5 passed in 1.0s\n6 passed in 2.0s\n", Count(11, 0)),
        ("we saw 4 passed, 1 failed in the text\n", Count()),
    ],
)
def test_closing_lines(output: str, expected: Count) -> None:
    assert count.closing(output) == expected


@pytest.mark.parametrize(
    "output, expected", [("", Count()), (SANITY, Count(1, 1)), (SANITY.split("FATAL", maxsplit=1)[0], Count(2, 0))]
)
def test_sanity_counts_what_ran(output: str, expected: Count) -> None:
    assert count.sanity(output) == expected


def own(name: str, code: str = "print('1 passed, 0 failed')", **more: t.Any) -> layers.Layer:
    return layers.Layer(name, 1, "tests", (layers.Step((sys.executable, "-c", code)),), **more)


@pytest.mark.parametrize(
    "code, word",
    [
        ("print('2 passed, 0 failed')", "passed"),
        ("print('0 passed, 0 failed')", "ran nothing: -c print('0 passed, 0 failed')"),
        ("pass", "ran nothing: -c pass"),
        ("print('1 passed, 1 failed')", "failed (exit 0)"),
        ("print('2 passed, 0 failed'); raise SystemExit(3)", "failed (exit 3)"),
        ("print('SKIPPED [2] tests/a.py:1: no gpg here\\n3 passed, 2 skipped in 0.1s')", "skipped what it may not"),
        ("print('2 passed, 0 failed', flush=True); import time; time.sleep(60)", "stopped at 3 s"),
    ],
)
def test_a_layer_passes_only_when_something_ran_and_all_of_it_passed(
    code: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    (outcome,) = layers.run([own("own", code)])
    assert outcome.word == word
    assert outcome.good == (word == "passed")


def test_the_table_names_a_layer_that_ran_nothing_and_counts_it_as_failed() -> None:
    good = layers.Outcome(layers.Layer("a", 10, "tests", ()), Count(3, 0), 12.0, "passed", 7.0)
    lost = layers.Layer("b", 10, "parts", (), proves=False)
    built = layers.Outcome(lost, Count(5, 0), 1.0, "failed (exit 1)", failures=("no route",))
    empty = layers.Outcome(layers.Layer("c", 10, "hosts", ()), Count(), 1.0, "ran nothing: x")
    lines = layers.report([good, built, empty]).splitlines()
    assert lines[-1] == "3 passed, 1 failed"
    assert [line.split() for line in lines[1:4]] == [
        ["a", "3", "tests", "12", "10", "7", "passed", "(over", "budget)"],
        ["b", "5", "parts", "1", "10", "0", "failed", "(exit", "1)"],
        ["c", "0", "hosts", "1", "10", "0", "ran", "nothing:", "x"],
    ]


def test_the_closing_lines_name_what_failed_for_who_sees_nothing_but_them() -> None:
    output = "\n".join(
        [
            "tests/integration/test_a.py::test_one FAILED [ 50%]",
            "FAILED tests/integration/test_a.py::test_one - AssertionError: 1 == 2",
            "ERROR tests/integration/test_a.py::test_two - OSError: gone",
            "FAILED tests/integration/test_a.py::test_one - AssertionError: 1 == 2",
            "proof-walk: FAILED claims: no NPU",
            "gate   FAILED 3.2 s a host",
            "docs                 FAILED    3 s  a link is broken",
            "failed: README.md: no such command",
            "ERROR: Sanity tests failed: pylint",
        ]
    )
    assert count.failures(output) == [
        "tests/integration/test_a.py::test_one - AssertionError: 1 == 2",
        "tests/integration/test_a.py::test_two - OSError: gone",
        "claims: no NPU",
        "3.2 s a host",
        "3 s  a link is broken",
        "README.md: no such command",
        "Sanity tests failed: pylint",
    ]
    assert count.failures("3 passed, 0 failed\n") == []
    bad = layers.Outcome(
        layers.Layer("part/a", 10, "tests", ()), Count(3, 9), 1.0, "failed (exit 1)", 0.0, ("x" * 300, *"bcdefgh")
    )
    _head, _row, _blank, first, *others, closing, last = layers.report([bad]).splitlines()
    assert first == "failed: part/a: " + "x" * layers.WIDE + " …"
    assert others == ["failed: part/a: " + name for name in "bcde"]
    assert closing == "failed: part/a: failed (exit 1). Next: read .work/logs/part-a.log"
    assert last == "3 passed, 9 failed"


def test_a_layer_that_fails_tells_its_failures_or_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    said, silent = layers.run(
        [
            own("said", "print('failed: a link'); print('1 passed, 1 failed')"),
            own("silent", "print('x'); print('boom'); raise SystemExit(1)"),
        ]
    )
    assert said.failures == ("a link",)
    assert silent.failures == ("boom",)


@pytest.mark.parametrize("broken, word", [(1, "passed"), (2, "failed (exit 3)")])
def test_what_is_built_has_a_second_try(
    broken: int, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    code = "p=__import__('pathlib').Path(%r); n=len(p.read_text()) if p.exists() else 0; p.write_text('x'*(n+1)); "
    code = code % str(tmp_path / "tries") + "print('a: b/c'); raise SystemExit(3 if n < %d else 0)" % broken
    step = layers.Step((sys.executable, "-c", code), counter=count.built, tries=2)
    (outcome,) = layers.run([layers.Layer("build/x", 10, "parts", (step,), proves=False)])
    assert outcome.word == word and (tmp_path / "tries").read_text() == "xx"
    assert "exit 3: once more" in capsys.readouterr().out
    *_lines, last = layers.report([outcome]).splitlines()
    assert last == "0 passed, 0 failed"


def test_layers_that_share_run_side_by_side_and_those_that_hold_do_not() -> None:
    site, bare = own("site", uses=("lab",), holds=("cluster",)), own("bare", uses=("lab",))
    roles, demo = own("roles", uses=("lab",), holds=("cluster",)), own("demo", holds=("lab",))
    bench, unit, built = own("bench", holds=("machine",)), own("unit"), own("built")
    everything = [bench, site, bare, roles, demo, unit]

    def started(waiting: list[layers.Layer], running: list[layers.Layer], slots: int) -> list[str]:
        return [layer.name for layer in layers.startable(waiting, running, slots)]

    assert started([site, bare, roles, demo, unit, bench], [], 9) == ["site", "bare", "unit"]
    assert started([site, bare, unit], [], 2) == ["site", "bare"]
    assert started([roles, demo, unit, bench], [site, bare], 9) == ["unit"]
    assert started([roles, demo, bench], [bare], 9) == ["roles"]
    assert started([demo, bench], [unit], 9) == ["demo"]
    assert started([bench], [unit], 9) == [] and started([unit], [bench], 9) == []
    assert started(everything, [], 9) == ["bench"]
    late = own("late", after=("built", "of another run"))
    assert (
        started([built, late], [], 9) == ["built"]
        and started([late], [built], 9) == []
        and started([late], [], 9) == ["late"]
    )


def test_a_run_keeps_to_its_slots_and_outlives_a_layer_that_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    mark = "import os, time; p = %r + '/run-' + str(os.getpid()); open(p, 'w').close()"
    mark += "; n = len([f for f in os.listdir(%r) if f.startswith('run-')])"
    mark += "; time.sleep(0.3); os.unlink(p); print('%%d passed, 0 failed' %% n)"
    many = [own("own/%d" % number, mark % (str(tmp_path), str(tmp_path))) for number in range(4)]
    absent = layers.Layer("absent", 1, "tests", (layers.Step(("/nowhere/program",)),))
    outcomes = layers.run([*many, absent], slots=2)
    assert [o.layer.name for o in outcomes] == [*(layer.name for layer in many), "absent"]
    assert all(o.good and 1 <= o.count.passed <= 2 for o in outcomes[:4]), outcomes
    assert outcomes[4].word.startswith("broken: FileNotFoundError")
    assert "$ %s" % sys.executable in (tmp_path / "own-0.log").read_text(encoding="utf-8")


def test_lines_of_several_layers_have_its_name_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    layers.run([own("one"), own("other")])
    lines = capsys.readouterr().out.splitlines()
    assert "one   | 1 passed, 0 failed" in lines and "other | 1 passed, 0 failed" in lines
    assert all(line.split(" | ")[0].strip() in ("one", "other") for line in lines), lines
    layers.run([own("one")])
    assert "1 passed, 0 failed" in capsys.readouterr().out.splitlines()


def test_a_name_stands_for_its_parts_and_brings_what_they_need() -> None:
    def chosen(*names: str) -> set[str]:
        return {layer.name for layer in layers.choose(names)}

    integration = {layer.name for layer in layers.LAYERS if layer.group == "integration"}
    assert chosen("integration") == integration | {"build/hosts", "build/kube"} and len(integration) > 1
    assert chosen("lint") == {"lint"} and chosen("vm") == {"vm", "build/vm"}
    everything = {layer.name for layer in layers.LAYERS}
    assert not any(name.startswith("sample/") for name in chosen("all"))
    # The sample of the benchmark counts too: it runs once.
    assert everything - chosen("all", "sample") == {"bench"} and "bench" in chosen("all")
    names = {layer.name for layer in layers.LAYERS}
    assert all(set(layer.after) <= names for layer in layers.LAYERS)


@pytest.mark.parametrize("names", [["all"], ["all", "sample"], ["bench", "sample"], ["bench"], ["sample"]])
def test_no_benchmark_runs_twice(names: list[str]) -> None:
    """By the commands themselves: `python -m tests.bench`, and the proof that calls it."""
    programs = [word for layer in layers.choose(names) for step in layer.steps for word in step.argv]
    assert len([word for word in programs if word in ("tests.bench", "tests.proofs.bench")]) == 1, programs


@pytest.mark.parametrize("names, warm, minutes", [(["all"], True, 35), (["all", "sample"], False, 60)])
def test_budgets_side_by_side_fit_into_the_time_there_is(names: list[str], warm: bool, minutes: int) -> None:
    """On two processors, each layer taking all of its budget; with a warm cache nothing is built."""
    waiting, running, now = layers.choose(names), dict[str, tuple[float, layers.Layer]](), 0.0
    while waiting or running:
        for layer in layers.startable(waiting, [layer for _end, layer in running.values()], 3):
            waiting.remove(layer)
            running[layer.name] = (now + (0 if warm and not layer.proves else layer.budget), layer)
        now, layer = min(running.values(), key=lambda row: row[0])
        del running[layer.name]
    assert now <= 60 * minutes, now


def test_every_file_of_the_integration_tests_is_in_one_part() -> None:
    named = [
        Path(word).name
        for layer in layers.LAYERS
        if layer.group == "integration"
        for word in layer.steps[0].argv
        if word.endswith(".py")
    ]
    assert sorted(named) == sorted(path.name for path in (HERE.parent / "integration").glob("test_*.py"))


@pytest.mark.parametrize("fixture", ["bare", "nodes"])
def test_hosts_belong_to_one_part_of_the_integration_tests(fixture: str) -> None:
    """Two processes that have the same hosts take them from each other."""
    named = re.compile(r"\b%s: Hosts\b" % fixture)
    parts = {
        layer.name
        for layer in layers.LAYERS
        if layer.group == "integration"
        for word in layer.steps[0].argv
        if word.endswith(".py") and named.search((HERE.parents[1] / word).read_text(encoding="utf-8"))
    }
    assert len(parts) == 1, parts


def test_every_proof_has_a_sample() -> None:
    found = {path.stem for path in (HERE.parent / "proofs").glob("[a-z]*.py")}
    # The files site and operands_play of integration are the sample of foretell, unit tests of the context that of ee.
    # Those of scale have none.
    assert {layer.name for layer in layers.LAYERS if layer.group == "sample"} == {
        "sample/" + name for name in found - {"ee", "foretell", "scale", "rollout_scale"}
    }


@pytest.mark.parametrize(
    "words, program",
    [
        ("exec npu-a ls -l", "runc: exec 0a1 ls -l"),
        ("exec -i npu-a cat", "runc: exec 0a1 cat, given"),
        ("exec -u root npu-a ls", "podman: exec -u root npu-a ls"),
        ("exec ended ls", "podman: exec ended ls"),
        ("exec other ls", "podman: exec other ls"),
        ("mount npu-a", "podman: mount npu-a"),
    ],
)
def test_a_command_on_a_host_of_the_lab_is_executed_by_runc(words: str, program: str, tmp_path: Path) -> None:
    """Where the host runs, and nothing else is asked; the rest is podman's."""
    (tmp_path / "ids").mkdir()
    (tmp_path / "state" / "0a1").mkdir(parents=True)
    (tmp_path / "state" / "0a1" / "state.json").touch()
    for host, identity in {"npu-a": "0a1", "ended": "0b2"}.items():
        (tmp_path / "ids" / host).write_text(identity + "\n")
    for name in ("runc", "podman"):
        (tmp_path / name).write_text('#!/bin/sh\nread -r given; echo "%s: $*${given:+, $given}"\n' % name)
        (tmp_path / name).chmod(0o755)
    script = _machine.executor(tmp_path / "ids", tmp_path / "state", tmp_path / "conf", str(tmp_path / "podman"))
    env = {**os.environ, "PATH": "%s:%s" % (tmp_path, os.environ["PATH"])}
    done = subprocess.run(
        ["sh", "-c", script, "podman", *words.split()],
        input="given\n" if "-i" in words else "",
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    assert (done.stdout, done.stderr) == (program + "\n", "")


SKIPS = """SKIPPED [1] tests/unit/a.py:27: could not import 'kubernetes': No module named 'kubernetes'
SKIPPED [3] tests/unit/b.py:35: not recorded with this version
9 passed, 5 skipped, 1 warning in 1.18s
"""


def test_only_a_skip_with_a_reason_of_the_table_is_allowed() -> None:
    assert skips.forbidden("test-unit", SKIPS) == [
        "1 of tests/unit/a.py: could not import 'kubernetes': No module named 'kubernetes'",
        "1 without a reason",
    ]
    assert (
        skips.forbidden("test-unit", "SKIPPED [3] b.py:35: not recorded with this version\n3 skipped in 1.0s\n") == []
    )
    assert (
        skips.forbidden("integration/api", "SKIPPED [3] b.py:35: not recorded with this version\n3 skipped in 1.0s\n")
        != []
    )
    assert skips.forbidden("vm", "7 passed in 1.18s\n") == []


def test_what_knows_of_ansible_is_found_by_its_imports(tmp_path: Path) -> None:
    files = {
        "plugins/module_utils/_plain.py": "import json\n",
        "plugins/module_utils/_lazy.py": "def f():\n    from ansible.module_utils.basic import AnsibleModule\n",
        "plugins/plugin_utils/_above.py": "from ..module_utils import _lazy\n",
        "tests/unit/helper.py": "from ansible_collections.rebellions.npu.plugins.plugin_utils import _above\n",
        "tests/unit/test_plain.py": (
            "import yaml\nfrom ansible_collections.rebellions.npu.plugins.module_utils import _plain\n"
        ),
        "tests/unit/test_far.py": "from tests.unit import helper\n",
        "tests/unit/test_beside.py": "import helper\n",
        "tests/unit/test_other.py": "from ansible_collections.kubernetes.core.plugins import x\n",
        "tests/unit/test_text.py": "ARGV = ['ansible-playbook']\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert with_ansible.files(tmp_path) == [
        "tests/unit/test_%s.py" % name for name in ("beside", "far", "other", "text")
    ]


def test_the_two_environments_differ_in_ansible_core_alone() -> None:
    """Else more tests than those of with_ansible would have to run in both."""
    new, old = (
        (HERE.parent / "tools" / name).read_text(encoding="utf-8").splitlines()
        for name in ("venv.txt", "venv-2.16.txt")
    )
    assert {line for line in old if not line.startswith("#")} - set(new) == {"ansible-core==2.16.19"}


def test_one_file_of_molecule_has_what_make_env_has() -> None:
    """Its collections come with the package ansible, whose last version for Python 3.11 is 12."""
    tools = HERE.parent / "tools"
    pins = {*(tools / "venv.txt").read_text(encoding="utf-8").splitlines()}
    pins |= {
        line + '; python_version >= "3.12"'
        for line in (tools / "collections.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("ansible==")
    }
    one = (HERE.parents[1] / "molecule" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = {line for line in one if not line.startswith(("#", "ansible==12."))}
    assert wanted <= pins and {line.partition("==")[0] for line in wanted} == {
        "ansible", "kubernetes", "molecule", "pytest-testinfra", "PyYAML", "tomlkit"
    }  # fmt: skip


def test_the_demo_gets_the_first_wheel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a full `make env` has unpacked before stays, so that neither of them unpacks it again each time."""
    monkeypatch.setattr(env, "COLLECTIONS", tmp_path / "collections")
    taken: list[str] = []

    def wheel(wanted: str) -> Path:
        taken.append(wanted)
        path = tmp_path / (wanted + ".whl")
        with zipfile.ZipFile(path, "w") as archive:
            for tree in ("a/one", "a/two", "b/three", "b/other"):
                archive.writestr("ansible_collections/%s/MANIFEST.json" % tree, "{}")
        return path

    monkeypatch.setattr(env, "download", wheel)
    listing = tmp_path / "list"
    listing.write_text("# two\nansible==2\na/one\na/two\n# more\nansible==1\nb/three\n", encoding="utf-8")

    def have() -> list[str]:
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("collections/*/*/*"))

    one, two, three = ("collections/ansible_collections/" + name for name in ("a/one", "a/two", "b/three"))
    assert env.unpack_collections(listing, first_alone=True) == 2 and have() == [one, two]
    assert env.unpack_collections(listing) == 3 and have() == [one, two, three]
    assert env.unpack_collections(listing, first_alone=True) == 2 and have() == [one, two, three]
    assert env.unpack_collections(listing) == 3 and taken == ["ansible==2", "ansible==2", "ansible==1"]
    listing.write_text("ansible==2\na/none\n", encoding="utf-8")
    with pytest.raises(env.Missing, match="has no tree ansible_collections/a/none/. Next: correct"):
        env.unpack_collections(listing)


def test_stage_copies_new_files_and_removes_those_gone(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    root.mkdir()
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True)
    (root / ".gitignore").write_text("*.log\n", encoding="utf-8")
    for name in ("a.txt", "b.txt", "c.log"):
        (root / name).write_text(name, encoding="utf-8")
    (root / "link").symlink_to("a.txt")
    # The copy is where Ansible looks; a link to itself would be one more collection.
    (root / SELF).parent.mkdir(parents=True)
    (root / SELF).symlink_to("../../../..")
    assert stage.stage(root, target) == (4, 4, 0)
    assert stage.stage(root, target) == (4, 0, 0)
    (root / "b.txt").unlink()
    (root / "a.txt").write_text("changed", encoding="utf-8")
    assert stage.stage(root, target) == (3, 1, 1)
    assert sorted(p.name for p in target.iterdir() if p.name != ".git") == [".gitignore", "a.txt", "link"]
    assert (target / "link").is_symlink() and (target / "a.txt").read_text(encoding="utf-8") == "changed"
