# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host tool: the same bytes every time, and a program that works by itself."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import compare_files, install
from ansible_collections.rebellions.npu.plugins.module_utils._observe import host_tool
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host import host_tool as tool
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host import zipapp
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host


def pythons() -> list[str]:
    """This interpreter, and the oldest that hosts may have when it is here."""
    found = [sys.executable, shutil.which("python3.8") or ""]
    found += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))]
    return [
        name
        for name in dict.fromkeys(found)
        if name and subprocess.run([name, "-V"], capture_output=True, check=False).returncode == 0
    ]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tool") / "rbln-host"
    path.write_bytes(zipapp.build())
    return path


def as_program(program: Path, python: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(program), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )


def call(*args: str) -> subprocess.CompletedProcess[str]:
    """The host tool in this process, with the result of a process."""
    told, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
        try:
            code = host_tool.main(PROFILE, zipapp.CONFIG_PATH, args)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(args, code, told.getvalue(), errors.getvalue())


def test_two_builds_are_equal_whatever_the_times_and_order_of_the_sources(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for path in sorted(zipapp.MODULE_UTILS.glob("_*/*.py"), reverse=True):
        target = copy / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        os.utime(target, (1, 1))
    built = zipapp.build()
    assert zipapp.build(copy) == built and zipapp.build() == built
    (copy / "_observe" / "host_tool.py").write_text((copy / "_observe" / "host_tool.py").read_text() + "\n")
    assert zipapp.build(copy) != built


def test_what_is_in_it() -> None:
    with zipfile.ZipFile(io.BytesIO(zipapp.build())) as archive:
        infos = archive.infolist()
    names = [info.filename for info in infos]
    assert (
        names == sorted(names)
        and "__main__.py" in names
        and "npu_host/_observe/host_tool.py" in names
        and len(names) > 20
    )
    assert {info.date_time for info in infos} == {zipapp.LONG_AGO} and {info.compress_type for info in infos} == {
        zipfile.ZIP_STORED
    }
    assert not [name for name in names if name.startswith("npu_host/_driver/")]


def by_parsing(source: str, room: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = [room, *(node.module or "").split(".")] if node.level == 1 else (node.module or "").split(".")
            place = [part for part in place if part]
            names.update([".".join(place)] if len(place) == 2 else [f"{place[0]}.{alias.name}" for alias in node.names])
    return names


def test_imports_are_found_as_a_parser_finds_them() -> None:
    source = (
        "from .a import (\n    x,  # why\n)\nfrom . import b, c as d\nif 1:\n    from .._o.e import f\n"
        "from .._o import (\n    g as h,\n)\n"
    )
    assert zipapp.imported(source, "_r") == by_parsing(source, "_r") == {"_r.a", "_r.b", "_r.c", "_o.e", "_o.g"}
    paths = sorted(zipapp.MODULE_UTILS.glob("_*/*.py"))
    assert len(paths) > 100
    for path in paths:
        assert zipapp.imported(path.read_text(), path.parent.name) == by_parsing(path.read_text(), path.parent.name), (
            str(path)
        )


def test_no_source_in_it_needs_ansible_or_more_than_the_standard_library() -> None:
    for name, text in zipapp.closure().items():
        assert "ansible_collections" not in text and "import ansible" not in text and "from ansible" not in text, name


# As a process with the oldest interpreter, and in this one.
@pytest.mark.parametrize("python", [pythons()[-1], ""], ids=["process", "here"])
def test_life_of_a_host_without_ansible(tmp_path: Path, program: Path, python: str) -> None:
    run = functools.partial(as_program, program, python) if python else call
    tree = ca22_host(tmp_path)
    root = ("--root", str(tmp_path))
    assert run("cdi", "--check", *root).returncode == 1
    done = run("cdi", *root)
    assert (done.returncode, done.stderr) == (0, "") and "was written" in done.stdout
    spec = tree.real("/var/run/cdi/rbln.yaml")
    first = (spec.read_bytes(), spec.stat().st_mtime_ns, spec.stat().st_ino)
    assert run("cdi", *root).returncode == 0
    assert (spec.read_bytes(), spec.stat().st_mtime_ns, spec.stat().st_ino) == first
    assert run("cdi", "--check", *root).returncode == 0
    done = run("validate", "--scope", "driver", "--json", *root)
    data = json.loads(done.stdout)
    assert (
        done.returncode == 3
        and data["state"] == "unknown"
        and {"tool_answers", "device_counts"} == set(data["unknown"])
    )
    config = tmp_path / "etc/rebellions-npu/rbln-host.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"unknown_blocks": False, "scopes": ["driver"]}))
    done = run("ready", *root)
    assert done.returncode == 0 and done.stdout.endswith("passed\n")
    assert sorted(os.listdir(tmp_path / "run/rbln/validations")) == [".driver-ctr-ready", "driver-ready"]
    again = run("ready", *root)
    assert again.returncode == 0 and "written" not in again.stdout
    # A change of the driver that has not ended: the files are not ours to give.
    tree.write("/var/lib/rbln/journal.json", "{}")
    shutil.rmtree(tmp_path / "run/rbln/validations")
    done = run("ready", *root)
    assert done.returncode == 0 and not (tmp_path / "run/rbln/validations").exists()
    tree.real("/var/lib/rbln/journal.json").unlink()
    assert run("ready", *root).returncode == 0
    shutil.rmtree(tmp_path / "sys/module/rebellions")
    done = run("ready", *root)
    assert done.returncode == 1 and "FAILED   driver/driver_loaded" in done.stdout
    assert os.listdir(tmp_path / "run/rbln/validations") == []
    seen = json.loads(run("observe", *root).stdout)
    assert seen["facts"]["counts"]["cards"] == 4 and seen["observed"]["state"] == "failed"


def test_a_wait_that_outlives_the_begin_of_a_driver_change_writes_no_ready_file(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path).write(
        "/etc/rebellions-npu/rbln-host.json", json.dumps({"unknown_blocks": False, "scopes": ["driver"]})
    )
    module, aside = tmp_path / "sys/module/rebellions", tmp_path / "aside"
    module.rename(aside)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        aside.rename(module)
        tree.write("/var/lib/rbln/journal.json", "{}")

    said: list[str] = []
    code = host_tool.main(
        PROFILE,
        "/etc/rebellions-npu/rbln-host.json",
        ["ready", "--root", str(tmp_path), "--wait", "6"],
        said.append,
        sleep,
    )
    assert (code, waits, said[-1]) == (0, [5.0], "passed") and not (tmp_path / "run/rbln/validations").exists()


def test_python_3_8_is_among_the_interpreters_when_it_is_here() -> None:
    versions = [
        subprocess.run([name, "-V"], capture_output=True, text=True, check=True).stdout.split()[1] for name in pythons()
    ]
    assert versions
    if list(Path.home().glob(".pyenv/versions/3.8.*/bin/python")):
        assert [version for version in versions if version.startswith("3.8.")]


def test_boot_after_run_was_emptied_and_the_driver_changed(tmp_path: Path) -> None:
    tree = ca22_host(tmp_path).write(
        "/etc/rebellions-npu/rbln-host.json", json.dumps({"unknown_blocks": False, "scopes": ["driver"]})
    )
    assert call("ready", "--root", str(tmp_path)).returncode == 0
    shutil.rmtree(tmp_path / "run/rbln")
    shutil.rmtree(tmp_path / "var/run")
    tree.device("rbln4", None, 4)
    done = call("ready", "--root", str(tmp_path))
    assert "/dev/rbln4" in tree.real("/var/run/cdi/rbln.yaml").read_text() and done.returncode in (0, 1)


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "usage"),
        (("fly",), "invalid choice"),
        (("validate", "--scope", "moon"), "invalid choice"),
        (("cdi", "--config", "/nowhere/x.json"), "/nowhere/x.json cannot be read"),
    ],
)
def test_bad_usage_is_2(args: tuple[str, ...], words: str) -> None:
    done = call(*args)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "is not JSON"),
        ("[]", "does not hold an object"),
        ('{"driver_version": 3.2}', "driver_version is 3.2"),
        ('{"formm": 1}', "'formm' is not an option"),
        ('{"cdi": {"form": "x"}}', "form is 'x'"),
        ('{"blocking": ["errors"]}', "'errors'"),
    ],
)
def test_bad_options_are_2_and_name_the_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    done = call("validate", "--config", str(path), "--root", str(tmp_path))
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr and "Next:" in done.stderr


def test_waits_until_it_passes_and_not_longer(tmp_path: Path) -> None:
    ca22_host(tmp_path).write("/etc/rebellions-npu/rbln-host.json", json.dumps({"unknown_blocks": False}))
    done = call("validate", "--scope", "driver", "--wait", "30", "--root", str(tmp_path))
    assert done.returncode == 0
    shutil.rmtree(tmp_path / "sys/module/rebellions")
    assert call("validate", "--scope", "driver", "--wait", "1", "--root", str(tmp_path)).returncode == 1


@pytest.mark.parametrize("number, code", [("4", 0), ("3", 1), (None, 3)])
def test_what_the_cluster_offers_is_an_argument(tmp_path: Path, number: str | None, code: int) -> None:
    unit = "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\n"
    ca22_host(tmp_path).write("/etc/systemd/system/kubelet.service", unit).program("/usr/bin/kubelet", "")
    args = ["--allocatable", number] if number else []
    done = call("validate", "--scope", "plugin", "--root", str(tmp_path), *args)
    assert done.returncode == code, done.stdout


def test_markers_can_be_taken_away(tmp_path: Path) -> None:
    Tree(tmp_path).write("/run/rbln/validations/driver-ready", "A=1\n").write("/run/rbln/validations/toolkit-ready")
    assert call("validate", "--scope", "none", "--markers", "remove", "--root", str(tmp_path)).returncode == 0
    assert os.listdir(tmp_path / "run/rbln/validations") == []


def test_files_units_and_rule(tmp_path: Path) -> None:
    found = tool.entries({"cdi": {"form": "kubernetes"}})
    assert [entry["path"] for entry in found if entry["path"].startswith("/etc/systemd")] == [
        "/etc/systemd/system/rbln-host-cdi.service",
        "/etc/systemd/system/multi-user.target.wants/rbln-host-cdi.service",
        "/etc/systemd/system/rbln-host-ready.service",
        "/etc/systemd/system/multi-user.target.wants/rbln-host-ready.service",
    ]
    assert len(tool.entries({}, units=False)) == 3
    assert tool.fingerprints({"cdi": {"form": "kubernetes"}}) == {
        entry["path"]: entry["fingerprint"] for entry in found
    }
    install(Host(str(tmp_path)), found, sys.executable)
    program = tmp_path / tool.TOOL_PATH.lstrip("/")
    assert (
        subprocess.run([str(program), "validate", "--help"], capture_output=True, check=False, timeout=60).returncode
        == 0
    )
    assert json.loads((tmp_path / "etc/rebellions-npu/rbln-host.json").read_text()) == {"cdi": {"form": "kubernetes"}}
    rule = (tmp_path / tool.RULE_PATH.lstrip("/")).read_text()
    assert (
        'SUBSYSTEM=="rebellions", KERNEL=="rbln[0-9]*|rsd[0-9]*"' in rule and rule.count("rbln-host-ready.service") == 2
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze judges the units")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name, text in ((tool.CDI_UNIT, tool.CDI_TEXT), (tool.READY_UNIT, tool.READY_TEXT)):
        whole = text % {"runtimes": "containerd.service k3s-node.service"}
        (tmp_path / name).write_text(tool.HEADER + whole.replace(tool.TOOL_PATH, "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0 and "Unknown" not in done.stderr, done.stderr


def ordered(root: Path, config: dict[str, Any], runtimes: list[str]) -> set[str]:
    """The units that the unit of the specification comes before, as installed."""
    install(Host(str(root)), tool.entries(config, True, runtimes), sys.executable)
    text = (root / tool.UNIT_DIR.lstrip("/") / tool.CDI_UNIT).read_text()
    return set(text.split("Before=")[1].splitlines()[0].split())


def test_the_specification_comes_before_every_runtime_of_the_host(tmp_path: Path) -> None:
    usual = ordered(tmp_path, {}, [])
    assert usual >= {
        "containerd.service", "docker.service", "crio.service", "kubelet.service", "k3s.service", "k3s-agent.service",
        "rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service",
        "snap.microk8s.daemon-containerd.service", "snap.k8s.containerd.service", "snap.docker.dockerd.service",
    }  # fmt: skip
    by_hand = {"runtimes": ["containerd"], "runtime_unit": "site-containerd"}
    assert ordered(tmp_path, by_hand, []) == usual | {"site-containerd.service"}
    seen = tool.runtime_units(
        {
            "runtimes": [
                {"selected": True, "restart_unit": "k3s-node"},
                {"selected": True, "restart_unit": "containerd"},
                {"selected": True, "restart_unit": None},
                {"selected": True, "restart_unit": "a b\nExecStart=x"},
                {"selected": False, "restart_unit": "other"},
            ]
        }
    )
    assert seen == ["k3s-node.service"]
    assert ordered(tmp_path, {}, [*seen, "x\n[Service]"]) == usual | {"k3s-node.service"}


def test_a_host_is_judged_with_the_units_of_its_runtimes(tmp_path: Path) -> None:
    """What is installed for these units is current; what lacks them differs in the units alone."""
    units, host = ["k3s-node.service"], Host(str(tmp_path))
    install(host, tool.entries({}), sys.executable)
    plain = compare_files(host, tool.fingerprints({}))
    assert plain["current"] is True
    found = tool.judge_again(plain, {}, units)
    assert (found["current"], found["runtimes"], found["sha256"]) == (False, units, plain["sha256"])
    assert [path.rpartition("/")[2] for path in found["differing"]] == [tool.CDI_UNIT, tool.READY_UNIT]
    install(host, tool.entries({}, True, units), sys.executable)
    found = tool.judge_again(compare_files(host, tool.fingerprints({})), {}, units)
    assert (found["current"], found["differing"]) == (True, []) and found["wanted"] == found["sha256"]


def test_what_is_kept_for_the_host() -> None:
    given: dict[str, Any] = {
        "cdi": {"form": "kubernetes"},
        "timeout": 10.0,
        "root": "/x",
        "scopes": ["driver"],
        "node_allocatable": 2,
        "blocking": ["warning"],
    }
    assert tool.kept_options(given) == {"cdi": {"form": "kubernetes"}, "blocking": ["warning"]}
    with pytest.raises(NpuError):
        tool.entries({"nonsense": 1})
