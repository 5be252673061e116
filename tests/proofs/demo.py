# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` from nothing to a pod that sees its NPU, its second run, and `make demo-down`.

The second run changes nothing, and the machine is as before at the end. The whole proof does it once with the virtual
machine, and once more while every processor is busy with something else. Other hosts of the lab would go down with the
demo: while there are any, the proof stops and names them. The sample has no virtual machine, and takes place when the
hosts' programs are in the cache; otherwise it shows what would change and renders the cluster's objects.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import typing as t
from unittest import mock

from tests.lab import _machine, _needs, demo
from tests.lab._base import CACHE, STATE, read_json
from tests.lab._demo_vm import MACHINE
from tests.lab._go import is_built
from tests.lab._seed import DEFAULT_HOSTS
from tests.lab.lab import Lab
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.molecule_all import hosts_in
from tests.tools.paths import ROOT

# Variables of the caller that a user of molecule would not have.
FOREIGN = ("ANSIBLE_", "MOLECULE_", "PYTHON", "VIRTUAL_ENV")
# The hosts, with a warm cache and idle processors; the virtual machine after that.
HOSTS_SECONDS, VM_SECONDS = 240, 360
# {scenario: its hosts}: one on hosts alone, one on a cluster too.
SCENARIOS = {"rbln_discover": {"mol-a", "mol-b"}, "rbln_operands": {"mol-n"}}
RUN = r"^(%s)(first|second) run: .* changed (.*)$"


def make(target: str, **more: str) -> tuple[int, str, float]:
    """(exit code, output, seconds) of a make target that is not to ask."""
    began = time.monotonic()
    done = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=ROOT,
        env={**os.environ, "YES": "1", **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, time.monotonic() - began


@contextlib.contextmanager
def busy() -> t.Iterator[None]:
    """Every processor computes something else."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _core in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def changes(out: str, who: str = "") -> dict[str, dict[str, int]]:
    """{first or second: {host: changed tasks}} of what the demo tells."""
    return {
        word: {host: int(count) for host, count in re.findall(r"(\S+)=(\d+)", line)}
        for _who, word, line in re.findall(RUN % who, out, re.M)
    }


def took(pattern: str, out: str) -> int:
    """Seconds that the demo tells in a line."""
    found = re.search(r"^== .*" + pattern % r"(\d+) min (\d+) s", out, re.M)
    assert found, out[-1500:]
    return int(found[1]) * 60 + int(found[2])


def up(part: Part, vm: bool, timed: bool) -> None:
    code, out, seconds = make("demo", VM="1" if vm else "0")
    servers = [*DEFAULT_HOSTS, *([MACHINE] if vm else [])]
    part.note = "%s, %.0f s" % (", ".join(servers), seconds)
    assert code == 0, "exit %d\n%s" % (code, out[-3000:])
    with part.case("it said what it changes before it did"):
        said = out.partition("== hosts and cluster")[0]
        assert "make demo-down takes it back" in said and "podman network" in said and "It takes about" in said, said
    with part.case("the first run changed each host, the second none"):
        first, second = changes(out)["first"], changes(out)["second"]
        assert sorted(first) == sorted(second) == sorted(DEFAULT_HOSTS), (first, second)
        assert all(first.values()) and not any(second.values()), (first, second)
    with part.case("it is a story: some thirty lines, and the playbooks are in a log that it names"):
        # Signs of life are written over each other on a terminal.
        aside = re.compile(r"env: |stage: |\d\d:\d\d:\d\d .*: \d+ s")
        told = [line for line in out.splitlines() if line.strip() and not aside.match(line)]
        assert len(told) <= 45 and "TASK [" not in out and str(demo.LOG) in out, out
        assert demo.LOG.read_text(encoding="utf-8").count("PLAY RECAP") >= 2
    with part.case("validate.yml finds them in order"):
        totals = re.findall(r"^\d+ hosts?: .*$", out, re.M)
        assert totals == ["2 hosts: 2 ok", *(["1 host: 1 ok"] if vm else [])], totals
    after_hosts = took("allocatable %s after the start", out)
    part.note += "; pods on the hosts after %d s" % after_hosts
    if timed:
        with part.case("the hosts take at most four minutes"):
            assert after_hosts <= HOSTS_SECONDS, after_hosts
        with part.case("nothing had to be tried again"):
            assert " failed: " not in out, out
    lab = Lab()
    for host in servers:
        with part.case("a pod on %s sees one NPU" % host):
            line = r"^%s: a pod has /dev/rbln\d+ .*of 2 allocatable, rbln-smi .* [1-9]\d* library mounts$"
            assert re.search(line % host, out, re.M), out[-1500:]
        with part.case("two NPUs of %s are allocatable" % host):
            assert lab.nodes()[host]["allocatable"].get("rebellions.ai/npu") == "2", lab.nodes()[host]
    if not vm:
        return
    part.note += ", on the virtual machine %d s later" % took("are allocatable too, %s later", out)
    with part.case("the first run changed the virtual machine, the second did not"):
        found = changes(out, MACHINE + " ")
        assert found["first"][MACHINE] > 0 and found["second"] == {MACHINE: 0}, found
    with part.case("its module is built and loaded, and its device is what the pod has"):
        assert re.search(
            r"^%s: module 3\.2\.2 built by DKMS for 1 kernel and loaded, character device [1-9]" % MACHINE, out, re.M
        ), out[-1500:]
    if timed:
        with part.case("it takes at most six minutes more"):
            assert took("are allocatable too, %s later", out) <= VM_SECONDS, out[-500:]


def one_file(part: Part) -> None:
    """Scenarios as CONTRIBUTING.md says: in a venv with molecule/requirements.txt, and nothing of ours beside."""
    with tempfile.TemporaryDirectory(prefix="npu-molecule-") as folder:
        path = "%s/venv/bin:%s" % (folder, os.environ["PATH"])
        home = {"HOME": folder, "PATH": path, "PIP_CACHE_DIR": str(CACHE / "pip"), "XDG_CACHE_HOME": str(CACHE.parent)}
        # Else molecule breaks the lines of Ansible and draws a frame around them.
        plain = {"PY_COLORS": "0", "ANSIBLE_FORCE_COLOR": "0"}
        env = {**{key: text for key, text in os.environ.items() if not key.startswith(FOREIGN)}, **home, **plain}

        def run(*argv: str) -> str:
            done = subprocess.run(
                argv,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:]
            return done.stdout

        with part.case("a venv with the one file"):
            run(sys.executable, "-m", "venv", folder + "/venv")
            run("pip", "install", "-q", "-r", "molecule/requirements.txt")
        for role, hosts in SCENARIOS.items():
            with part.case("molecule test -s " + role):
                reached = hosts_in(run("molecule", "test", "-s", role))
                assert reached == hosts, reached


def down(part: Part, before: dict[str, object]) -> None:
    code, out, seconds = make("demo-down")
    part.note = "%.0f s" % seconds
    with part.case("it found nothing that differs"):
        assert code == 0 and out.rstrip().endswith("nothing differs"), out[-3000:]
    with part.case("nor do we"):
        assert _machine.difference(before, _machine.snapshot()) == []
    with part.case("a second demo-down has nothing to do"):
        code, out, _seconds = make("demo-down")
        assert code == 0 and "nothing is recorded to restore" in out, out


def without_hosts(part: Part) -> None:
    with part.case("what would change"):
        lines = _machine.changes(())
        assert lines and any("sysctl" in line for line in lines), lines
    with part.case("the cluster's objects as files"):
        said = io.StringIO()
        with mock.patch.dict(os.environ), contextlib.redirect_stdout(said):
            os.environ.pop("KUBECONFIG", None)
            os.environ.pop("YES", None)
            assert demo._without_hosts(["asked for by the proof"]) == 0, said.getvalue()
        files = sorted(path.name for path in demo.RENDERED.rglob("*.y*ml"))
        assert files, said.getvalue()
        part.note = ", ".join(files)


def main() -> int:
    proof = Proof("demo")
    others = sorted(set(Lab().hosts()) - set(DEFAULT_HOSTS))
    absent = [problem for problem in _needs.obstacles() if not SAMPLE or "missing packages" not in problem]
    cold = SAMPLE and not (is_built("kube") and is_built("containerd") and not _needs.missing())
    if others or absent or cold:
        why = (
            "hosts of the lab are up: %s" % ", ".join(others)
            if others
            else "; ".join(absent) or "the cache of the lab is not filled"
        )
        proof.say("not the whole demo: %s" % why)
        with proof.part("without simulated servers") as part:
            without_hosts(part)
            if not SAMPLE:
                part.bad("the demo", why)
        return proof.close()
    vm = not SAMPLE and not _needs.vm_obstacles()
    make("demo-down")
    before = read_json(STATE / "machine-before.json", None) or _machine.snapshot()
    for name, loaded in [("make demo", False)] + ([] if SAMPLE else [("make demo on busy processors", True)]):
        with busy() if loaded else contextlib.nullcontext(), proof.part(name) as part:
            up(part, vm, timed=not loaded and not SAMPLE)
            if not vm and not SAMPLE:
                part.bad("the virtual machine", "; ".join(_needs.vm_obstacles()))
        with proof.part("make demo-down") as part:
            down(part, before)
    if not SAMPLE:
        with proof.part("molecule from its one file") as part:
            one_file(part)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
