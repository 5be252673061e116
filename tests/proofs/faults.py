# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml killed: its configuration writer at every step of its own, and all of it at random moments. The next run makes it right.

After each kill a file of ours is the old one or the new one and containerd starts; the next run converges; the one after changes nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

from tests.proofs._proof import SAMPLE, Part, Proof

from tests.integration._hosts import Fingerprint, Hosts, difference, fingerprint
from tests.integration._killer import make_killer
from tests.integration._play import COLLECTIONS, FOLDER, STAGED, command, parse, play
from tests.lab import Lab
from tests.lab._base import until
from tests.tools.stage import stage

SEED = 20260404
HOST, KIND = "pf-a", "containerd17"
MOMENTS = 1 if SAMPLE else 16
# The steps of the writer up to the one the sample takes, when the file has just been replaced.
SAMPLED = ("journal staging", "staged", "judged", "kept", "journal committing", "renamed")
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


def killed_site(where: Path, seconds: float) -> str:
    """Start site.yml and kill it with all its processes after so many seconds; the last task that ended on the host."""
    argv, settings = command("site", where)
    out = FOLDER / "killed.out"
    with out.open("w") as stream:
        process = subprocess.Popen(argv, cwd=STAGED, env=settings, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in descendants(process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        process.wait()
    text = out.read_text(errors="replace")
    run = parse(process.returncode, text[: text.rfind("\n") + 1], "", seconds)
    return run.results[-1].task if run.results else "nothing"


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

    def one(number: int) -> tuple[list[str], t.Any]:
        play(out, hosts.inventory(HOST)).good([HOST])
        hosts.lab.exec(HOST, "rm -rf /run/npu-it; mkdir /run/npu-it; echo %d >/run/npu-it/kill" % number)
        run = play("site", hosts.inventory(HOST), env=killer)
        steps = hosts.lab.exec(HOST, ["cat", "/run/npu-it/steps"]).stdout.splitlines()
        hosts.lab.exec(HOST, ["rm", "-rf", "/run/npu-it"])
        return steps, run

    steps, numbers = list(SAMPLED), [len(SAMPLED) - 1]
    if not SAMPLE:
        steps, run = one(999)
        run.good([HOST])
        numbers = list(range(len(steps)))
    play(out, hosts.inventory(HOST)).good([HOST])
    before = fingerprint(hosts.lab, HOST, times=False)
    for number in numbers:
        with part.case("step %d, %s" % (number, steps[number])):
            seen, run = one(number)
            assert run.code != 0 and seen == steps[: number + 1], (run.code, seen)
            whole(before, done, fingerprint(hosts.lab, HOST, times=False))
            starts(hosts.lab)
            repaired(hosts, done)
    part.note = "steps: " + ", ".join(steps[number] for number in numbers)


def at_moments(part: Part, hosts: Hosts, done: Fingerprint, seconds: float) -> None:
    """All of site.yml dies on a virgin host; on every other one the program it runs on the host dies too."""
    source = random.Random(SEED)
    told = []
    for number in range(MOMENTS):
        # The first third of a run only looks.
        moment, both = source.uniform(0.3, 0.95) * seconds, number % 2 == 0
        with part.case("killed after %.1f s" % moment):
            hosts.virgin(HOST)
            hosts.state[HOST] = "dirty"
            before = {path: [*row[:4], 0] for path, row in hosts.fresh[HOST].items()}
            task = killed_site(hosts.inventory(HOST), moment)
            told.append("%.1f s%s, after '%s'" % (moment, " with the host's program" if both else "", task))
            strangers(hosts.lab, both)
            until(60, "the program on the host ends", lambda: strangers(hosts.lab, False) == 0)
            whole(before, done, fingerprint(hosts.lab, HOST, times=False))
            starts(hosts.lab)
            repaired(hosts, done)
    part.note = "; ".join(told)


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
        proof.say("an undisturbed run takes %.1f s" % run.seconds)
        with proof.part("the writer killed at its steps") as part:
            at_steps(part, hosts, done)
        with proof.part("site.yml killed at random moments") as part:
            at_moments(part, hosts, done, run.seconds)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
