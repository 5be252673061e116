# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the layers of the test suite, each with its own budget; a layer that ran nothing has failed.

    python -m tests.tools.layers test-unit sanity      the named ones
    python -m tests.tools.layers all                   every one, root needed

The last line is 'N passed, N failed'. A layer is stopped at twice its budget.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import count
from .count import Count
from .paths import LOGS, OLD_VENV, ROOT, STAGE, STAGED, VENV, environment

PY = str(VENV / "bin" / "python")
JOBS = str(os.cpu_count() or 1)
PYTEST = ("-q", "-p", "no:pytest11.testinfra", "-p", "no:cacheprovider", "--import-mode=importlib")


@dataclass(frozen=True)
class Step:
    """One command of a layer; counts come from its output."""

    argv: tuple[str, ...]
    old: bool = False
    staged: bool = False
    counter: Callable[[str], Count] = count.closing


@dataclass(frozen=True)
class Layer:
    name: str
    budget: int
    unit: str
    steps: tuple[Step, ...]
    root: bool = False


@dataclass(frozen=True)
class Outcome:
    layer: Layer
    count: Count
    seconds: float
    word: str

    @property
    def good(self) -> bool:
        return self.word == "passed"


LAYERS = (
    Layer(
        "test-unit",
        180,
        "tests",
        (
            Step((PY, "-m", "tests.tools.floor")),
            Step((PY, "-m", "pytest", *PYTEST, "-n", JOBS, "tests/unit"), staged=True),
            Step((str(OLD_VENV / "bin" / "python"), "-m", "pytest", *PYTEST, "-n", JOBS, "tests/unit"), old=True, staged=True),
        ),
    ),
    Layer("sanity", 180, "tests", (Step((PY, "-m", "tests.tools.ansible_test", "sanity"), counter=count.sanity),)),
    Layer("units", 160, "tests", (Step((PY, "-m", "tests.tools.ansible_test", "units")),)),
    Layer("lint", 60, "files", (Step((PY, "-m", "tests.tools.lint")),)),
    Layer("docs", 60, "pages", (Step((PY, "-m", "tests.tools.docs")),)),
    Layer("molecule", 400, "hosts", (Step((PY, "-m", "tests.tools.molecule_all")),), root=True),
    Layer("integration", 1500, "tests", (Step((PY, "-m", "pytest", "-v", *PYTEST[1:], "--durations=25", "tests/integration")),), root=True),
    Layer("vm", 840, "tests", (Step((PY, "-m", "pytest", "-v", *PYTEST[1:], "--durations=0", "--durations-min=1", "tests/vm")),), root=True),
    Layer("bench", 220, "gates", (Step((PY, "-m", "tests.bench")),), root=True),
)


def run_step(step: Step, log_name: str, limit: float) -> tuple[int, Count]:
    """(exit code, count) of one command; its output goes to the terminal and to a log. 124 when stopped at the limit."""
    env = environment(OLD_VENV if step.old else VENV, PYTHONPATH=str(STAGE))
    lines: list[str] = []
    with (LOGS / f"{log_name}.log").open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(step.argv)}\n")
        child = subprocess.Popen(
            step.argv,
            cwd=STAGED if step.staged else ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            os.killpg(child.pid, signal.SIGTERM)

        timer = threading.Timer(max(limit, 1), stop)
        timer.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                lines.append(line)
                log.write(line)
                log.flush()
                print(line, end="", flush=True)
            code = child.wait()
        finally:
            timer.cancel()
    return 124 if stopped.is_set() else code, step.counter("".join(lines))


def run_layer(layer: Layer) -> Outcome:
    print(f"==> {layer.name}: budget {layer.budget} s", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / f"{layer.name}.log").write_text("", encoding="utf-8")
    began, total, word = time.monotonic(), Count(), ""
    for step in layer.steps:
        code, counted = run_step(step, layer.name, 2 * layer.budget - (time.monotonic() - began))
        total += counted
        if code == 124:
            word = word or f"stopped at {2 * layer.budget} s"
            break
        if counted == Count():
            word = word or f"ran nothing: {' '.join(step.argv[1:3])}"
        elif code or counted.failed:
            word = word or f"failed (exit {code})"
    seconds = time.monotonic() - began
    outcome = Outcome(layer, total, seconds, word or "passed")
    print(f"<== {layer.name}: {total.passed + total.failed} {layer.unit}, {seconds:.0f} s of {layer.budget} s: {outcome.word}", flush=True)
    return outcome


def report(outcomes: list[Outcome]) -> str:
    """The closing table and line. A layer that failed without a failed test of its own counts as one."""
    rows = [("layer", "ran", "seconds", "budget", "result")]
    for o in outcomes:
        late = " (over budget)" if o.seconds > o.layer.budget and o.good else ""
        rows.append((o.layer.name, f"{o.count.passed + o.count.failed} {o.layer.unit}", f"{o.seconds:.0f}", str(o.layer.budget), o.word + late))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    failed = sum(o.count.failed or (0 if o.good else 1) for o in outcomes)
    return "\n".join([*lines, "", f"{sum(o.count.passed for o in outcomes)} passed, {failed} failed"])


def main() -> int:
    names = [layer.name for layer in LAYERS]
    parser = argparse.ArgumentParser(prog="layers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="+", choices=[*names, "all"], metavar="LAYER", help=", ".join([*names, "all"]))
    wanted = parser.parse_args().layers
    chosen = [layer for layer in LAYERS if layer.name in wanted or "all" in wanted]
    if os.geteuid() != 0 and any(layer.root for layer in chosen):
        needing = ", ".join(layer.name for layer in chosen if layer.root)
        print(f"layers: {needing} start system containers and need root. Next: sudo make test, or make test-unit without root", file=sys.stderr)
        return 2
    outcomes = [run_layer(layer) for layer in chosen]
    print("\n" + report(outcomes), flush=True)
    return 0 if all(o.good for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
