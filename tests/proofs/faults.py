# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml killed: its configuration writer at every step, and all of it at random moments.

The next run makes it right. After each kill a file of ours is the old one or the new one and containerd starts; the
next run converges; the one after changes nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration._hosts import Fingerprint, Hosts, difference, fingerprint
from tests.integration._killer import make_killer
from tests.integration._play import COLLECTIONS, FOLDER, STAGED, Result, Run, command, parse, play
from tests.lab import Lab
from tests.lab._base import until
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.layers import PYTEST
from tests.tools.paths import ROOT, VENV, environment
from tests.tools.stage import stage

SEED = 20260434
HOST, KIND = "pf-a", "containerd17"
MOMENTS = 1 if SAMPLE else 16
# The step of the writer that the sample takes: a file has just been replaced.
SAMPLED = "renamed"
OURS = ("/etc/containerd", "/etc/cdi", "/run/cdi", "/etc/systemd/system", "/usr/local/libexec/rebellions-npu")
# Helper files of a write that is not finished, and backups.
HELPERS = (".rbln-new", ".rbln-old", ".rbln-judge", ".rbln-backup")
# Processes that came in from outside have no parent there; they and their children end, this one excepted.
_END = """
import os, signal
def parent(pid):
    with open("/proc/%d/stat" % pid) as stream:
        return int(stream.read().rpartition(")")[2].split()[1])
found = {}
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            found[int(name)] = parent(int(name))
        except OSError:
            pass
def top(pid):
    while found.get(pid, 0):
        pid = found[pid]
        if pid in (1, os.getpid()):
            break
    return pid
gone = [pid for pid in found if pid not in (1, os.getpid()) and top(pid) not in (1, os.getpid())]
for pid in gone:
    try:
        os.kill(pid, signal.SIGKILL if %r else 0)
    except OSError:
        pass
print(len(gone))
"""


def strangers(lab: Lab, kill: bool) -> int:
    """How many processes on the host came in from outside; with kill they are ended."""
    return int(lab.exec(HOST, ["python3", "-"], stdin=_END.replace("%r", repr(kill))).stdout)


def descendants(pid: int) -> list[int]:
    """The process and all below it, whatever their groups."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def killed_site(where: Path, results: int, delay: float) -> str:
    """Start site.yml and kill it with all its processes after so many results and seconds.

    Returns the last task that ended on the host.
    """
    argv, settings = command("site", where)
    out = FOLDER / "killed.out"

    def so_far() -> list[Result]:
        text = out.read_text(errors="replace")
        return parse(0, text[: text.rfind("\n") + 1], "", 0).results

    with out.open("w") as stream:
        process = subprocess.Popen(
            argv,
            cwd=STAGED,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(
                300,
                "%d results of site.yml" % results,
                lambda: process.poll() is not None or len(so_far()) >= results,
                0.05,
            )
            time.sleep(delay)
        finally:
            for pid in descendants(process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()
    assert process.returncode == -signal.SIGKILL, "site.yml ended before it was killed: %d" % process.returncode
    done = so_far()
    return done[-1].task if done else "nothing"


def whole(before: Fingerprint, done: Fingerprint, now: Fingerprint) -> None:
    """Every file of ours is as before or as site.yml leaves it; what is neither is a helper."""
    for path, row in now.items():
        if not path.startswith(OURS) or path.endswith(HELPERS):
            continue
        assert row in (before.get(path), done.get(path)), "%s is neither old nor new: %s" % (path, row)
    for path in before:
        assert not path.startswith(OURS) or path in now or path not in done, "%s is gone" % path


def starts(lab: Lab) -> None:
    """containerd loads its files and starts with them."""
    lab.exec(HOST, "containerd config dump >/dev/null")
    lab.exec(HOST, ["systemctl", "restart", "containerd"])
    assert lab.exec(HOST, ["systemctl", "is-active", "containerd"]).stdout.strip() == "active"


def repaired(hosts: Hosts, done: Fingerprint) -> None:
    """One run converges, the next changes nothing, and the disk is what an undisturbed run leaves, without helpers."""
    hosts.site(HOST)
    now = fingerprint(hosts.lab, HOST, times=False)
    rest = [line for line in difference(done, now) if line[1:].startswith(OURS) or line[1:].endswith(HELPERS)]
    # What Python compiles has the time of its source in it.
    rest = [line for line in rest if not (line.startswith("~") and line.endswith(".pyc"))]
    assert rest == [], rest
    play("site", hosts.inventory(HOST)).unchanged([HOST])


def at_steps(part: Part, hosts: Hosts, done: Fingerprint) -> None:
    """The writer dies at each of its steps, in site.yml on a host whose containerd has no CDI any more."""
    killer = {"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (make_killer(), COLLECTIONS)}
    tasks = [
        {"name": "Take out", "rebellions.npu.rbln_runtime_config": {"state": "absent", "runtime": ["containerd"]}},
        {"name": "Restart", "ansible.builtin.systemd_service": {"name": "containerd", "state": "restarted"}},
    ]
    out = FOLDER / "out.json"
    out.write_text(json.dumps([{"name": "Out", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))

    def one(at: str) -> tuple[list[str], Run]:
        play(out, hosts.inventory(HOST)).good([HOST])
        hosts.lab.exec(HOST, "rm -rf /run/npu-it; mkdir /run/npu-it; echo '%s' >/run/npu-it/kill" % at)
        run = play("site", hosts.inventory(HOST), env=killer)
        steps = hosts.lab.exec(HOST, ["cat", "/run/npu-it/steps"]).stdout.splitlines()
        hosts.lab.exec(HOST, ["rm", "-rf", "/run/npu-it"])
        return steps, run

    if SAMPLE:
        kills = {SAMPLED: SAMPLED}
    else:
        steps, run = one("999")
        run.good([HOST])
        kills = {str(number): step for number, step in enumerate(steps)}
    play(out, hosts.inventory(HOST)).good([HOST])
    before = fingerprint(hosts.lab, HOST, times=False)
    for at, step in kills.items():
        with part.case("step %s, %s" % (at, step)):
            seen, run = one(at)
            assert run.code != 0 and seen[-1] == step, (run.code, seen)
            whole(before, done, fingerprint(hosts.lab, HOST, times=False))
            starts(hosts.lab)
            repaired(hosts, done)
    part.note = "steps: " + ", ".join(kills.values())


def at_moments(part: Part, hosts: Hosts, done: Fingerprint, whole_run: Run) -> None:
    """All of site.yml dies on a virgin host; on every other one the program it runs on the host dies too."""
    source = random.Random(SEED)
    last = max(number for number, result in enumerate(whole_run.results) if result.state == "changed")
    told = []
    for number in range(MOMENTS):
        # The first results only look. After the last change little is left, and the run must not end before the kill.
        results, delay, both = source.randrange(4, last), source.uniform(0, 1), number % 2 == 0
        with part.case("killed %.1f s after %d results" % (delay, results)):
            hosts.virgin(HOST)
            hosts.state[HOST] = "dirty"
            before = {path: [*row[:4], 0] for path, row in hosts.fresh[HOST].items()}
            task = killed_site(hosts.inventory(HOST), results, delay)
            told.append("%.1f s after '%s'%s" % (delay, task, ", with the host's program" if both else ""))
            strangers(hosts.lab, both)
            until(60, "the program on the host ends", lambda: strangers(hosts.lab, False) == 0)
            whole(before, done, fingerprint(hosts.lab, HOST, times=False))
            starts(hosts.lab)
            repaired(hosts, done)
    part.note = "; ".join(told)


def writers(part: Part) -> None:
    """What the layer has no time for: the writer alone, killed at each of its steps, for two runtimes."""
    tests = ["tests/integration/test_docker_repair.py", "tests/integration/test_site_repair.py"]
    argv = [str(VENV / "bin/python"), "-m", "pytest", *PYTEST, "-k", "killed_at_steps", *tests]
    done = subprocess.run(argv, cwd=ROOT, env=environment(NPU_KILLS="all"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " 2 passed" in " " + done.stdout, done.stdout[-3000:]
    part.good(2)


def main() -> int:
    proof = Proof("faults")
    if os.geteuid() != 0:
        print("proof-faults starts a system container and needs root. Next: sudo make proof-faults", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    hosts = Hosts(Lab(), {HOST: KIND}, kube=False)
    try:
        hosts.virgin(HOST)
        run = hosts.site(HOST)
        done = fingerprint(hosts.lab, HOST, times=False)
        proof.say("an undisturbed run takes %.1f s and gives %d results" % (run.seconds, len(run.results)))
        with proof.part("the writer killed at its steps") as part:
            at_steps(part, hosts, done)
        with proof.part("site.yml killed at random moments") as part:
            at_moments(part, hosts, done, run)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    if not SAMPLE:
        with proof.part("the writer of docker and containerd killed at every step") as part:
            writers(part)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
