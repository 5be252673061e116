# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` from nothing to a pod that sees its NPU, its second run, and `make demo-down`.

The second run changes nothing, and the machine is as before at the end. Other hosts of the lab would go down with the
demo: while there are any, the proof stops and names them. The sample takes the whole demo too when the hosts' programs
are in the cache; otherwise it shows what would change and renders the cluster's objects.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from unittest import mock

from tests.lab import _machine, _needs, demo
from tests.lab._base import STATE, read_json
from tests.lab._demo_vm import MACHINE
from tests.lab._go import is_built
from tests.lab._seed import DEFAULT_HOSTS
from tests.lab.lab import Lab
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.paths import ROOT


def make(target: str) -> tuple[int, str, float]:
    """(exit code, output, seconds) of a make target that is not to ask."""
    began = time.monotonic()
    env = {**os.environ, "YES": "1"}
    done = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, time.monotonic() - began


def up(part: Part) -> None:
    code, out, seconds = make("demo")
    # What the virtual machine needs is installed by now, where it can be had.
    servers = [*DEFAULT_HOSTS, *([] if _needs.vm_obstacles() else [MACHINE])]
    part.note = "%s, %.0f s" % (", ".join(servers), seconds)
    assert code == 0, "exit %d\n%s" % (code, out[-3000:])
    with part.case("it said what it changes before it did"):
        said = out.partition("== hosts and cluster")[0]
        assert "make demo-down takes it back" in said and "podman network" in said, said
    changed = {
        word: dict(re.findall(r"(\S+)=(\d+)", line))
        for word, line in re.findall(r"^(first|second) run: .* changed (.*)$", out, re.M)
    }
    with part.case("the first run changed each host, the second none"):
        assert set(changed["first"]) == set(changed["second"]) and set(servers) <= set(changed["first"]), changed
        assert all(int(changed["first"][host]) > 0 for host in servers) and set(changed["second"].values()) == {"0"}, (
            changed
        )
    lab = Lab()
    for host in servers:
        with part.case("a pod on %s sees one NPU" % host):
            assert re.search(
                r"^%s: /dev/rbln\d+ .*[1-9]\d* allocatable, rbln-smi .* [1-9]\d* library mounts$" % host, out, re.M
            ), out[-1500:]
        with part.case("two NPUs of %s are allocatable" % host):
            assert lab.nodes()[host]["allocatable"].get("rebellions.ai/npu") == "2", lab.nodes()[host]
    if MACHINE in servers:
        with part.case("the module of the virtual machine is built and loaded, and its device is what the pod has"):
            assert re.search(
                r"^%s: module 3\.2\.2 built by DKMS for [1-9] kernels and loaded, character device [1-9]" % MACHINE,
                out,
                re.M,
            ), out[-1500:]


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
        lines = _machine.changes()
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
    make("demo-down")
    before = read_json(STATE / "machine-before.json", None) or _machine.snapshot()
    with proof.part("make demo") as part:
        up(part)
    with proof.part("make demo-down") as part:
        down(part, before)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
