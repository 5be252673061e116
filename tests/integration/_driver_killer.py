# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the collection whose driver change dies, or waits for a power cut, at a chosen point.

The host counts points: before and after each note in the journal; before, in and after each command that changes
something; before and after each copy that is kept. /var/lib/npu-it/kill says at which point to act; without it points
are only noted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import typing as t
from pathlib import Path

from tests.integration._play import COLLECTIONS, FOLDER, STAGE, STAGED, Run, command, parse
from tests.lab import Lab
from tests.lab._base import podman, until

KILLER = FOLDER / "driver-killer"
CHANGE = "ansible_collections/rebellions/npu/plugins/module_utils/_driver/change.py"
ON_HOST = "/var/lib/npu-it"
HOOK = """

def _hook() -> None:
    import json, os, posixpath, signal, subprocess, time
    from . import sources
    home, acts = "%s", (
        "start", "stop", "hold", "unhold", "--configure", "--purge", "--remove",
        "install", "remove", "purge", "add", "build",
    )
    if not os.path.isdir(home):
        return
    try:
        with open(home + "/kill") as stream:
            wanted = json.load(stream)
    except FileNotFoundError:
        wanted = {"at": -1, "mode": "", "delay": 0}
    count = [0]

    def reached() -> None:
        with open(home + "/reached", "w") as stream:
            stream.write("reached")

    def point(label):
        with open(home + "/steps", "a") as stream:
            stream.write(label + "\\n")
        count[0] += 1
        return count[0] - 1 == wanted["at"]

    def here(label):
        if not point(label):
            return
        if wanted["mode"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        reached()
        time.sleep(600)

    def within(label):
        if not point(label):
            return
        act = "kill -9 %%d" %% os.getpid() if wanted["mode"] == "kill" else "echo reached >%%s/reached" %% home
        subprocess.Popen(["sh", "-c", "sleep %%s; %%s" %% (wanted["delay"], act)], start_new_session=True)

    def around(owner, name, label):
        real = getattr(owner, name)
        def wrapped(*args, **more):
            text = label(args, more)
            if text is None:
                return real(*args, **more)
            here("before " + text)
            if text.startswith("run "):
                within("in " + text)
            result = real(*args, **more)
            here("after " + text)
            return result
        setattr(owner, name, wrapped)

    def told(args, _more):
        words = list(args[1])
        while words and (words[0] == "timeout" or words[0].startswith("--kill") or words[0].isdigit()):
            words.pop(0)
        program = posixpath.basename(words[0])
        if words[0].startswith("/proc/self/fd/"):
            return "run installer " + " ".join(words[1:2])
        if program in ("apt-get", "apt-mark", "dpkg", "dkms", "systemctl") and (
            "-s" in words or not set(words) & set(acts)
        ):
            return None
        if program not in ("apt-get", "apt-mark", "dpkg", "dkms", "systemctl", "modprobe"):
            return None
        return "run " + " ".join([program] + [word for word in words[1:] if word in acts or word == "-r"])

    around(Host, "run", told)
    around(Journal, "save", lambda args, more: "note " + str(more.get("step") or ",".join(sorted(more)) or "begin"))
    around(Journal, "end", lambda args, more: "end")
    around(sources, "keep", lambda args, more: "keep")
    around(Journal, "write_stamp", lambda args, more: "write_stamp")
    around(globals()["_hook_globals"], "prune", lambda args, more: "prune")


class _Names:
    def __getattr__(self, name):
        return globals()[name]

    def __setattr__(self, name, value):
        globals()[name] = value


_hook_globals = _Names()
_hook()
"""


def make_killer() -> dict[str, str]:
    """The environment for play() with the deadly collection."""
    shutil.rmtree(KILLER, ignore_errors=True)
    shutil.copytree(STAGE, KILLER, ignore=shutil.ignore_patterns(".git", "tests"))
    path = KILLER / CHANGE
    path.write_text(path.read_text() + HOOK % ON_HOST)
    return {"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (KILLER, COLLECTIONS)}


def arm(lab: Lab, host: str, at: int = -1, mode: str = "kill", delay: float = 0.2) -> None:
    """Let the next change on a host act at its point number `at`.

    `kill` ends it; `power` tells cut_power that the time has come.
    """
    line = "rm -rf %s; mkdir -p %s; cat >%s/kill" % (ON_HOST, ON_HOST, ON_HOST)
    lab.exec(host, line, stdin=json.dumps({"at": at, "mode": mode, "delay": delay}))


def disarm(lab: Lab, host: str) -> list[str]:
    """The points that the last change has passed."""
    steps = lab.exec(host, "cat %s/steps 2>/dev/null || :; rm -rf %s" % (ON_HOST, ON_HOST)).stdout.splitlines()
    return steps


def cut_power(lab: Lab, host: str) -> None:
    """The host stops at once and starts again: everything in memory is lost, the disk stays."""
    podman("kill", host, check=False)
    podman("start", host)
    until(
        60,
        host + " runs",
        lambda: (
            lab.exec(host, ["systemctl", "is-system-running"], check=False).stdout.strip() in ("running", "degraded")
        ),
    )


def play_and_cut(
    lab: Lab, book: Path, where: Path, env: t.Mapping[str, str], cut: t.Sequence[str], timeout: float = 300
) -> Run:
    """Run a playbook, and cut the power of hosts in `cut` as soon as their change says that the time has come."""
    argv, settings = command(book, where)
    settings.update(env)
    left = set(cut)
    out = FOLDER / "cut.out"
    with out.open("w") as stream:
        process = subprocess.Popen(
            argv, cwd=STAGED, env=settings, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.DEVNULL
        )

        def over() -> bool:
            for host in list(left):
                if lab.exec(host, ["test", "-e", ON_HOST + "/reached"], check=False).returncode == 0:
                    cut_power(lab, host)
                    left.discard(host)
            return process.poll() is not None

        until(timeout, "the playbook ends", over, 0.2)
    assert not left, "the power was not cut: %s" % ", ".join(left)
    return parse(process.returncode, out.read_text(errors="replace"), "", 0)
