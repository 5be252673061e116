# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to build and write a CDI specification.

System calls per library repeat exactly; seconds do not. A library is one file with its SONAME link. The calls are those
of a host with 2000 libraries minus those of a host with one. Each further link of a library costs one more call
(reading that link), and listing the directory costs a few in all.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = 2000
CALLS_LIMIT = 5.0
SECONDS_LIMIT = 0.1
ROUNDS = 5
TIMEOUT = 120

WORK = r"""
import sys, time
sys.path.insert(0, sys.argv[1])
from module_utils._base.rebellions import PROFILE
from module_utils._cdi.build import build_spec
from module_utils._cdi.options import CdiOptions
from module_utils._cdi.spec import dump_spec
from module_utils._cdi.write import write_spec
from module_utils._host.host import Host
host = Host(sys.argv[2])
options = CdiOptions(form="kubernetes", hooks="on", machine="x86_64")
started = time.process_time()
result = build_spec(PROFILE, host, options)
built = time.process_time() - started
write_spec(host, "/var/run/cdi/rbln.yaml", dump_spec(result.spec, "yaml"))
whole = time.process_time() - started
assert len(result.libraries) == int(sys.argv[3]), result
assert len(result.spec["devices"][0]["containerEdits"]["mounts"]) == int(sys.argv[3])
print(built, whole)
"""


@dataclass(frozen=True)
class Cost:
    """Measure `calls`, the system calls per library, and `seconds`, the CPU time to build for all libraries.

    The seconds are the least of several rounds; `whole` includes writing.
    """

    calls: float
    seconds: float
    whole: float
    libraries: int

    @property
    def good(self) -> bool:
        return self.calls <= CALLS_LIMIT

    def lines(self) -> list[str]:
        return [
            "CDI: %.2f system calls a library (limit %g)" % (self.calls, CALLS_LIMIT),
            "CDI: %.3f s of CPU to build for %d libraries (aim %g s), %.3f s with writing"
            % (self.seconds, self.libraries, SECONDS_LIMIT, self.whole),
        ]


def _tree_module() -> ModuleType:
    path = ROOT / "tests" / "unit" / "fixtures" / "cdi" / "tree.py"
    spec = importlib.util.spec_from_file_location("cdi_fixture_tree", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _work(root: Path, libraries: int, before: tuple[str, ...] = ()) -> tuple[float, float]:
    argv = [*before, sys.executable, "-I", "-c", WORK, str(ROOT / "plugins"), str(root), str(libraries)]
    shutil.rmtree(root / "var", ignore_errors=True)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    built, whole = done.stdout.split()
    return float(built), float(whole)


def _calls(root: Path, libraries: int, report: Path) -> int:
    _work(root, libraries, ("strace", "-f", "-c", "-o", str(report)))
    total = re.search(r"^100\.00\s.*?\s(\d+)\s+(?:\d+\s+)?total$", report.read_text(), re.M)
    assert total, report.read_text()
    return int(total.group(1))


def measure(libraries: int = LIBRARIES, rounds: int = ROUNDS) -> Cost:
    """Measure on made-up hosts in a temporary directory. Needs strace; takes about ten seconds."""
    if not shutil.which("strace"):
        raise RuntimeError("strace is missing: install the package strace")
    tree = _tree_module()
    with tempfile.TemporaryDirectory(prefix="cdi-bench-") as folder:
        many, one = Path(folder) / "many", Path(folder) / "one"
        tree.sized(many, libraries)
        tree.sized(one, 1)
        _work(many, libraries)
        times = [_work(many, libraries) for _round in range(rounds)]
        report = Path(folder) / "report"
        difference = _calls(many, libraries, report) - _calls(one, 1, report)
    return Cost(
        difference / (libraries - 1),
        min(built for built, _whole in times),
        min(whole for _built, whole in times),
        libraries,
    )


if __name__ == "__main__":
    cost = measure()
    print("\n".join(cost.lines()))
    sys.exit(0 if cost.good else 1)
