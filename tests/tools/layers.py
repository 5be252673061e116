# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the layers of the test suite side by side, each with its own budget.

A layer that ran nothing, or left out what it may not, has failed.

    python -m tests.tools.layers test-unit sanity      the named ones
    python -m tests.tools.layers integration           a name stands for its parts too
    python -m tests.tools.layers all                   every layer, root needed
    python -m tests.tools.layers all sample            and a sample of each longer proof

The last line is 'N passed, N failed'. A layer is stopped at three times its budget; one that builds, at four times,
because what it downloads may be slow and everything after it needs it. Seconds are wall time. CPU-s are those of the
processes that a layer started and waited for. They leave out what its hosts use, because containers are not its
children: the closing lines tell of the machine as a whole.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import count
from .count import Count
from .paths import LOGS, OLD_VENV, ROOT, STAGE, STAGED, VENV, environment
from .skips import forbidden

PY = str(VENV / "bin" / "python")
CORES = os.cpu_count() or 1
JOBS = str(CORES)
# Layers wait for hosts and clusters a good part of their time: one more of them than there are processors.
SLOTS = CORES + 1
# Failures of a layer that the closing lines repeat, and the characters of each.
REPEATED, WIDE = 5, 240
# Seconds that a layer has to take its hosts down when it is stopped.
ENDING = 60
PYTEST = ("-q", "-rfEs", "-p", "no:pytest11.testinfra", "-p", "no:cacheprovider", "--import-mode=importlib")
WORDY = ("-v", *PYTEST[1:])
WITH_ANSIBLE = (PY, "-m", "tests.tools.with_ansible")


@dataclass(frozen=True)
class Step:
    """One command of a layer; counts come from its output.

    `plain`: in the environment of who calls, with SAMPLE=1, as `make` runs a proof. `tries`: a download may break off.
    """

    argv: tuple[str, ...]
    old: bool = False
    staged: bool = False
    plain: bool = False
    counter: Callable[[str], Count] = count.closing
    tries: int = 1


@dataclass(frozen=True)
class Layer:
    """`uses` may be shared with others, `holds` may not: the demo holds the lab that others use, the bench the machine.

    `after`: layers that come first, if they are to run. `includes`: those that it runs too. `proves`: what it ran are
    tests.
    """

    name: str
    budget: int
    unit: str
    steps: tuple[Step, ...]
    root: bool = False
    uses: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    proves: bool = True

    @property
    def limit(self) -> int:
        """Seconds after which it is stopped."""
        return self.budget * (3 if self.proves else 4)

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Outcome:
    layer: Layer
    count: Count
    seconds: float
    word: str
    cpu: float = 0.0
    failures: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.word == "passed"


def _integration(part: str, budget: int, files: str, **more: t.Any) -> Layer:
    argv = (
        PY,
        "-m",
        "pytest",
        *WORDY,
        "--durations=25",
        *("tests/integration/test_%s.py" % name for name in files.split()),
    )
    return Layer("integration/" + part, budget, "tests", (Step(argv),), root=True, **more)


def _sample(name: str, budget: int, **more: t.Any) -> Layer:
    return Layer(
        "sample/" + name, budget, "cases", (Step((PY, "-m", "tests.proofs." + name), plain=True),), root=True, **more
    )


def _build(name: str, budget: int, *what: str) -> Layer:
    """What several layers need from the cache, made while others run. Where that fails, who needs it makes it."""
    step = Step((PY, "-m", "tests.lab", "build", *what), counter=count.built, tries=2)
    return Layer(
        "build/" + name,
        budget,
        "parts",
        (step,),
        root=True,
        proves=False,
    )


LAB, VM = ("build/hosts", "build/kube"), ("build/vm",)
# In the order in which they start: long ones first, and samples so that no single one is left over at the end. Budgets
# are those of a layer beside two others on two processors.
LAYERS = (
    _build(
        "hosts",
        300,
        "containerd",
        "cdi-validate",
        "payload",
        "bookworm",
        "trixie",
        "trixie-engines",
        "bookworm-containerd",
        "bookworm-dkms",
    ),
    _build("vm", 300, "vm"),
    _build("kube", 600, "kube", "images", "kwok", "npu-operands"),
    _integration(
        "nodes",
        1250,
        "everyday site site_nodes privileges site_repair site_undo drift doctor",
        uses=("lab",),
        holds=("cluster",),
        after=LAB,
    ),
    Layer(
        "vm",
        750,
        "tests",
        (Step((PY, "-m", "pytest", *WORDY, "--durations=0", "--durations-min=1", "tests/vm")),),
        root=True,
        holds=("emulator",),
        after=VM,
    ),
    _integration(
        "hosts",
        1250,
        "bundle docker_repair driver host_boot live_runtimes package_faults quickstart site_bare runtime_judges "
        "support",
        uses=("lab",),
        after=("build/hosts",),
    ),
    Layer(
        "molecule",
        520,
        "hosts",
        (Step((PY, "-m", "tests.tools.molecule_all")),),
        root=True,
        uses=("lab",),
        holds=("cluster",),
        after=LAB,
    ),
    _integration(
        "api",
        900,
        "cdi_hook cdi_library cluster_delivery cluster_faults cluster_operator doctor_cluster host_tool_play hostile "
        "label_policy operands_play preflight_play repository_signatures rollout_nodes rollout_play "
        "runtime_config_play signatures_play support_cluster",
        after=LAB,
    ),
    Layer(
        "sanity",
        320,
        "tests",
        (Step((PY, "-m", "tests.tools.ansible_test", "sanity"), counter=count.sanity),),
        uses=("stage",),
        holds=("ansible-test",),
    ),
    Layer(
        "test-unit",
        350,
        "tests",
        (
            Step((PY, "-m", "tests.tools.floor")),
            Step((PY, "-m", "pytest", *PYTEST, "-n", JOBS, "tests/unit"), staged=True),
            Step((*WITH_ANSIBLE, str(OLD_VENV / "bin" / "python"), "-m", "pytest", *PYTEST, "-n", JOBS), old=True),
        ),
        uses=("stage",),
    ),
    Layer(
        "units",
        120,
        "tests",
        (Step((PY, "-m", "tests.tools.ansible_test", "units")),),
        uses=("stage",),
        holds=("ansible-test",),
    ),
    Layer("pages", 90, "tests", (Step((PY, "-m", "pytest", *WORDY, "--durations=5", "tests/pages")),), uses=("stage",)),
    Layer("lint", 100, "files", (Step((PY, "-m", "tests.tools.lint")),), uses=("stage",)),
    Layer("release", 60, "checks", (Step((PY, "-m", "tests.tools.release", "--quick")),), uses=("stage",)),
    Layer(
        "docs",
        100,
        "pages and links",
        (Step((PY, "-m", "tests.tools.docs")), Step((PY, "-m", "tests.tools.site"))),
        uses=("stage",),
    ),
    _sample("attack", 80, uses=("stage",)),
    _sample("faults", 200, uses=("lab",), after=("build/hosts",)),
    # Other hosts of the lab would go down with the demo, which stages the checkout again.
    _sample("demo", 200, holds=("lab", "cluster", "stage"), after=LAB),
    _sample("rollout_lab", 220, uses=("lab",), holds=("cluster",), after=LAB),
    # The demo compares the containers of the machine.
    _sample("dnf", 120, uses=("lab",)),
    _sample("versions", 120, uses=("lab",), after=("build/hosts",)),
    _sample("driver", 200, uses=("lab",), after=("build/hosts",)),
    # Two emulated machines at a time would each take twice as long.
    _sample("vm", 650, holds=("emulator",), after=VM),
    _sample("walk", 240, uses=("lab",), holds=("cluster",), after=LAB),
    _sample("awx", 200, uses=("lab",), after=("build/hosts",)),
    _sample("secrets", 200, uses=("lab",), after=("build/hosts",)),
    _sample("rollout", 60, uses=("stage",)),
    _sample("fuzz", 100, after=LAB),
    Layer(
        "bench",
        120,
        "gates",
        (Step((PY, "-m", "tests.bench", "--counts")),),
        root=True,
        uses=("lab",),
        after=("build/hosts",),
    ),
    # It measures.
    _sample("bench", 250, holds=("machine",), after=LAB, includes=("bench",)),
)


def clash(one: Layer, other: Layer) -> bool:
    """Whether two layers may not run at the same time."""
    if "machine" in (*one.holds, *other.holds):
        return True
    return bool({*one.holds} & {*other.holds, *other.uses} or {*other.holds} & {*one.uses})


def startable(waiting: Sequence[Layer], running: Collection[Layer], slots: int) -> list[Layer]:
    """Who may start now beside those that run, in order."""
    busy, chosen = list(running), []
    unfinished = {layer.name for layer in (*waiting, *running)}
    for layer in waiting:
        if len(busy) < slots and not unfinished & set(layer.after) and not any(clash(layer, other) for other in busy):
            chosen.append(layer)
            busy.append(layer)
    return chosen


def choose(wanted: Collection[str]) -> list[Layer]:
    """Layers by name, by the name of their group, all of them but samples; and what these need from the cache."""
    names = set(wanted)

    def asked(layer: Layer) -> bool:
        return bool(names & {layer.name, layer.group}) or ("all" in names and layer.group != "sample")

    named = [layer for layer in LAYERS if layer.proves and asked(layer)]
    twice = {name for layer in named for name in layer.includes}
    named = [layer for layer in named if layer.name not in twice]
    needed = {name for layer in named for name in layer.after}
    return [layer for layer in LAYERS if layer in named or layer.name in needed]


class Terminal:
    """Whole lines of several layers, each with its layer's name in front when more than one is to run."""

    def __init__(self, layers: Collection[Layer]) -> None:
        self._lock = threading.Lock()
        self._width = max((len(layer.name) for layer in layers), default=0) if len(layers) > 1 else 0

    def line(self, name: str, text: str) -> None:
        with self._lock:
            print("%s | %s" % (name.ljust(self._width), text) if self._width else text, flush=True)


class Running:
    """The commands that run, each the leader of a group of processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._closed = False

    def start(self, argv: Sequence[str], **more: t.Any) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise RuntimeError("stopped")
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **more,
            )
            self._groups.add(child.pid)
        return child

    def wait(self, child: subprocess.Popen[str]) -> tuple[int, float]:
        """(exit code, CPU seconds of it and of all that it and its own waited for)."""
        _pid, status, spent = os.wait4(child.pid, 0)
        with self._lock:
            self._groups.discard(child.pid)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, spent.ru_utime + spent.ru_stime

    def stop(self, pid: int, number: signal.Signals = signal.SIGINT) -> None:
        """As a person does at the terminal: what runs takes its hosts down. What does not care is terminated."""
        with self._lock:
            if pid not in self._groups:
                return
            os.killpg(pid, number)
        if number == signal.SIGINT:
            later = threading.Timer(ENDING, self.stop, (pid, signal.SIGTERM))
            later.daemon = True
            later.start()

    def close(self) -> None:
        """Nothing starts any more, and what runs is asked to end."""
        with self._lock:
            self._closed = True
            groups = list(self._groups)
        for pid in groups:
            self.stop(pid)


def run_step(
    step: Step, layer: Layer, limit: float, say: Callable[[str], None], running: Running
) -> tuple[int, float, str]:
    """(exit code, CPU seconds, output) of one command, shown and logged as it comes. 124 when stopped at the limit."""
    env = (
        {**os.environ, "SAMPLE": "1"}
        if step.plain
        else environment(OLD_VENV if step.old else VENV, PYTHONPATH=str(STAGE))
    )
    lines: list[str] = []
    with log_of(layer).open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(step.argv)}\n")
        child = running.start(step.argv, cwd=STAGED if step.staged else ROOT, env=env, text=True, errors="replace")
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            running.stop(child.pid)

        timer = threading.Timer(max(limit, 1), stop)
        timer.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                lines.append(line)
                log.write(line)
                log.flush()
                say(line.rstrip("\n"))
            code, cpu = running.wait(child)
        finally:
            timer.cancel()
    return 124 if stopped.is_set() else code, cpu, "".join(lines)


def log_of(layer: Layer) -> Path:
    return LOGS / (layer.name.replace("/", "-") + ".log")


def run_layer(layer: Layer, terminal: Terminal, running: Running) -> Outcome:
    def say(text: str) -> None:
        terminal.line(layer.name, text)

    say(f"==> {layer.name}: budget {layer.budget} s")
    LOGS.mkdir(parents=True, exist_ok=True)
    log_of(layer).write_text("", encoding="utf-8")
    began, total, word, cpu = time.monotonic(), Count(), "", 0.0
    failures: list[str] = []
    for step in layer.steps:
        for left in reversed(range(step.tries)):
            code, spent, output = run_step(step, layer, layer.limit - (time.monotonic() - began), say, running)
            cpu += spent
            if code in (0, 124) or not left:
                break
            say(f"exit {code}: once more")
        counted = step.counter(output)
        total += counted
        if code or counted.failed:
            failures += count.failures(output) or output.splitlines()[-1:]
        left_out = forbidden(layer.name, output)
        for text in left_out:
            say(f"skipped {text}. Next: give it what it lacks, or say in tests/tools/skips.py why it may go")
        if code == 124:
            word = word or f"stopped at {layer.limit} s"
            break
        if counted == Count():
            word = word or f"ran nothing: {' '.join(step.argv[1:3])}"
        elif code or counted.failed:
            word = word or f"failed (exit {code})"
        elif left_out:
            word = word or "skipped what it may not"
    seconds = time.monotonic() - began
    outcome = Outcome(layer, total, seconds, word or "passed", cpu, tuple(failures))
    ran = f"{total.passed + total.failed} {layer.unit}, {seconds:.0f} s of {layer.budget} s, {cpu:.0f} CPU-s"
    say(f"<== {layer.name}: {ran}: {outcome.word}")
    return outcome


def run(layers: Sequence[Layer], slots: int = SLOTS) -> list[Outcome]:
    """Run them, as many at a time as there are slots; outcomes in the order of `layers`."""
    terminal, running, ended = Terminal(layers), Running(), queue.Queue[Outcome]()
    waiting, busy, outcomes = list(layers), dict[str, Layer](), dict[str, Outcome]()

    def work(layer: Layer) -> None:
        try:
            outcome = run_layer(layer, terminal, running)
        except Exception as exc:
            outcome = Outcome(layer, Count(), 0.0, f"broken: {type(exc).__name__}: {exc}")
        ended.put(outcome)

    try:
        while waiting or busy:
            for layer in startable(waiting, busy.values(), slots):
                waiting.remove(layer)
                busy[layer.name] = layer
                threading.Thread(target=work, args=(layer,), daemon=True).start()
            outcome = ended.get()
            del busy[outcome.layer.name]
            outcomes[outcome.layer.name] = outcome
    except BaseException:
        running.close()
        with contextlib.suppress(queue.Empty):
            for _layer in busy:
                ended.get(timeout=ENDING + 10)
        raise
    return [outcomes[layer.name] for layer in layers]


def repeated(outcome: Outcome) -> list[str]:
    """What the closing lines say of a layer that failed: its first failures, and where the rest is."""
    told = [text if len(text) <= WIDE else text[:WIDE] + " …" for text in outcome.failures[:REPEATED]]
    log = os.path.relpath(log_of(outcome.layer), ROOT)
    word = "failed" if outcome.layer.proves else "left to others"
    return [f"{word}: {outcome.layer.name}: {text}" for text in [*told, f"{outcome.word}. Next: read {log}"]]


def report(outcomes: Sequence[Outcome]) -> str:
    """The closing table, what failed, and the closing line.

    A layer that failed without a failed test counts as one. What was built, or not, does not count: who needs it
    makes it, or fails.
    """
    rows = [("layer", "ran", "seconds", "budget", "CPU-s", "result")]
    for o in outcomes:
        late = " (over budget)" if o.seconds > o.layer.budget and o.good else ""
        ran = f"{o.count.passed + o.count.failed} {o.layer.unit}"
        rows.append((o.layer.name, ran, f"{o.seconds:.0f}", str(o.layer.budget), f"{o.cpu:.0f}", o.word + late))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    failed = sum(o.count.failed or (0 if o.good else 1) for o in outcomes if o.layer.proves)
    named = [text for o in outcomes if not o.good for text in repeated(o)]
    closing = f"{sum(o.count.passed for o in outcomes if o.layer.proves)} passed, {failed} failed"
    return "\n".join([*lines, "", *named, closing])


def machine_busy() -> float:
    """Seconds that all processors of the machine have worked since it started, for any process."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    names = list(dict.fromkeys(name for layer in LAYERS if layer.proves for name in (layer.group, layer.name)))
    parser = argparse.ArgumentParser(
        prog="layers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="+", choices=[*names, "all"], metavar="LAYER", help=", ".join([*names, "all"]))
    chosen = choose(parser.parse_args().layers)
    if os.geteuid() != 0 and any(layer.root for layer in chosen):
        needing = ", ".join(layer.name for layer in chosen if layer.root)
        remedy = "Next: sudo make test, or make test-unit without root"
        print(f"layers: {needing} start system containers and need root. {remedy}", file=sys.stderr)
        return 2
    # What a shell runs in the background ignores interrupts, and so would the layers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("layers: stopped"))
    began, before = time.monotonic(), machine_busy()
    outcomes = run(chosen)
    seconds, busy = time.monotonic() - began, machine_busy() - before
    worked = f"the machine's {CORES} processors worked {busy:.0f} s of {seconds * CORES:.0f} s"
    print(f"\n{seconds:.0f} s; {worked}, hosts and everybody else included")
    print(report(outcomes), flush=True)
    return 0 if all(o.good for o in outcomes if o.layer.proves) else 1


if __name__ == "__main__":
    sys.exit(main())
