# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks on the hosts of the lab: run in a staged tree, results as data, every execution on a host logged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import Lab
from tests.lab._base import STATE
from tests.lab.lab import payload_dir
from tests.tools.paths import COLLECTIONS, NAME, NAMESPACE, WORK, environment

# Of this process: two sessions must not stage over each other.
FOLDER = WORK / "integration" / str(os.getpid())
STAGE = FOLDER / "stage"
STAGED = STAGE / "ansible_collections" / NAMESPACE / NAME
CONFIG = str(Path(__file__).with_name("ansible.cfg"))
NAMESPACE_OF_TESTS = "rbln-it"
# Label and taint: only these nodes run the pods of the tests, and they run no other pods, so that a demo may be up on
# the same cluster.
NODE_LABEL = "npu-lab/integration"
RESOURCE = "rebellions.ai/npu"
# Tasks of site.yml that one host does for all.
ONCE = (
    "Judge the inputs of all hosts",
    "Open what is on the controller",
    "Cut the hosts that are to change into waves",
    "Show the plan",
    "Say how the rollout has ended",
)

Data = dict[str, t.Any]


@dataclass(frozen=True)
class Result:
    """What one task did on one host; state is ok, changed, skipped, failed or unreachable."""

    play: str
    task: str
    host: str
    action: str
    state: str
    data: Data

    @property
    def msg(self) -> str:
        return str(self.data.get("msg", ""))


@dataclass(frozen=True)
class Run:
    """One run of a playbook.

    Its results in order, the closing counts of each host, and the log of executions on the hosts.
    """

    code: int
    results: list[Result]
    stats: dict[str, dict[str, int]]
    out: str
    err: str
    seconds: float
    executions: list[tuple[str, str]] = field(default_factory=list)

    def of(self, task: str, host: str = "") -> list[Result]:
        """Results whose task name ends so, in any role."""
        return [one for one in self.results if one.task.endswith(task) and host in ("", one.host)]

    def one(self, task: str, host: str) -> Result:
        found = self.of(task, host)
        assert len(found) == 1, "%d results of %r on %s" % (len(found), task, host)
        return found[0]

    def changed(self, host: str = "") -> list[str]:
        return [one.task for one in self.results if one.state == "changed" and host in ("", one.host)]

    def failed(self, host: str = "") -> list[Result]:
        return [one for one in self.results if one.state in ("failed", "unreachable") and host in ("", one.host)]

    def warnings(self) -> str:
        """Every warning, with line ends taken out of the wrapped text."""
        told = [text for one in self.results for text in one.data.get("warnings", [])]
        return "\n".join(map(str, told)) + " ".join(self.err.split())

    def good(self, hosts: t.Sequence[str]) -> Run:
        """This run if it covered exactly these hosts and none failed."""
        told = "\n".join("%s: %s: %s" % (one.host, one.task, one.msg) for one in self.failed())
        assert self.code == 0, "exit %d\n%s\n%s\n%s" % (
            self.code,
            told,
            self.err[-2000:],
            "" if told else self.out[-2000:],
        )
        assert sorted(self.stats) == sorted(hosts) and len(hosts) > 0, sorted(self.stats)
        for host, counts in self.stats.items():
            assert counts["failures"] == counts["unreachable"] == 0 and counts["ok"] > 0, (host, counts)
        return self

    def unchanged(self, hosts: t.Sequence[str]) -> Run:
        """This run if it was good and changed nothing."""
        self.good(hosts)
        assert self.changed() == [], [
            (one.host, one.task, one.data.get("diff"), one.data.get("result"))
            for one in self.results
            if one.state == "changed"
        ]
        assert all(counts["changed"] == 0 for counts in self.stats.values()), self.stats
        return self


def sha256(name: str) -> str:
    """Digest of a file of the stand-in payload, from its SHA256SUMS."""
    for line in (payload_dir() / "SHA256SUMS").read_text().splitlines():
        digest, path = line.split(maxsplit=1)
        if path == name:
            return digest
    raise KeyError(name)


def runfile(version: str) -> Data:
    """Inputs for a driver by the stand-in runfile."""
    name = "run/rebellions-x86_64-%s.run" % version
    return {
        "rbln_driver_source": "runfile",
        "rbln_driver_version": version,
        "rbln_driver_runfile": str(payload_dir() / name),
        "rbln_driver_runfile_sha256": sha256(name),
        "rbln_driver_runfile_args": ["--silent"],
        "rbln_driver_runfile_uninstall": ["--uninstall"],
        # These hosts have no compiler: their modules are stood in for.
        "rbln_driver_build_packages": [],
    }


# Debian and the kernel of the machine are not in the vendor's matrix.
SITE: Data = {
    **runfile("3.2.2"),
    "rbln_preflight_unlisted": "warn",
    "rbln_container_toolkit_runtime_restart": "if_required",
}
CLUSTER: Data = {
    "rbln_kubeconfig": str(Lab.kubeconfig),
    "rbln_namespace": NAMESPACE_OF_TESTS,
    "rbln_registry": "lab.local",
    "rbln_operands_helper_image": {"repository": "busybox", "tag": "1"},
    "rbln_operands_device_plugin": {"image": {"repository": "npu-device-plugin", "tag": "1"}},
    "rbln_operands_node_selector": {NODE_LABEL: "true"},
    "rbln_operands_tolerations": [{"key": NODE_LABEL, "operator": "Exists"}],
    "rbln_operands_wait_timeout": 120,
}


def _podman() -> Path:
    """The lab's podman for the connection plugin; each call leaves a line in $NPU_IT_LOG."""
    path = FOLDER / "podman"
    text = (
        '#!/bin/sh\n[ -z "${NPU_IT_LOG:-}" ] || (set -f; set -- $*; printf "%%.300s\\n" "$*") >>"$NPU_IT_LOG"\n'
        'exec %s "$@"\n'
    )
    path.write_text(text % (STATE / "podman"))
    path.chmod(0o755)
    return path


def inventory(
    path: Path, hosts: t.Sequence[str], variables: Data, host_vars: t.Mapping[str, Data] | None = None
) -> Path:
    """Write an inventory in which every host is in npu_nodes."""
    own = {
        "ansible_connection": "containers.podman.podman",
        "ansible_podman_executable": str(_podman()),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    tree = {
        "npu_nodes": {"hosts": {host: (host_vars or {}).get(host, {}) for host in hosts}, "vars": {**own, **variables}}
    }
    path.write_text(json.dumps(tree, indent=1))
    return path


def command(book: str | Path, where: Path, *args: str, extra: Data | None = None) -> tuple[list[str], dict[str, str]]:
    """(argv, environment) for a playbook on an inventory.

    The playbook is one of the collection (by name) or a file; `extra` is passed as JSON by -e.
    """
    settings = environment(
        ANSIBLE_CONFIG=CONFIG,
        ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.jsonl",
        ANSIBLE_PIPELINING="true",
        ANSIBLE_INJECT_FACT_VARS="false",
        ANSIBLE_LOCALHOST_WARNING="false",
        NPU_IT_LOG=str(FOLDER / "executions.log"),
    )
    name = "playbooks/%s.yml" % book if isinstance(book, str) else str(book)
    argv = ["ansible-playbook", "-i", str(where), name, *args]
    return argv + (["-e", json.dumps(extra)] if extra else []), settings


def play(
    book: str | Path,
    where: Path,
    *args: str,
    extra: Data | None = None,
    env: t.Mapping[str, str] | None = None,
    timeout: float = 400,
) -> Run:
    """Run a playbook; `env` overrides the environment of command()."""
    log = FOLDER / "executions.log"
    log.write_text("")
    argv, settings = command(book, where, *args, extra=extra)
    settings.update(env or {})
    start = time.monotonic()
    done = subprocess.run(
        argv,
        cwd=STAGED,
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    run = parse(done.returncode, done.stdout, done.stderr, time.monotonic() - start)
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r"exec (?:-\S+ |--user \S+ )*(\S+) (.*)", line)
        if found:
            run.executions.append((found.group(1), found.group(2)))
    return run


def parse(code: int, out: str, err: str, seconds: float) -> Run:
    """The events of the callback ansible.posix.jsonl; other lines are people's."""
    results, stats, plays = [], {}, []
    for line in out.split("\n"):
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        kind = event["_event"]
        if kind == "v2_playbook_on_play_start":
            plays.append(event["play"]["name"])
        elif kind == "v2_playbook_on_stats":
            stats = event["stats"]
        elif kind.startswith("v2_runner_on_") and "hosts" in event:
            for host, data in event["hosts"].items():
                state = kind.removeprefix("v2_runner_on_")
                if state == "ok" and data.get("changed"):
                    state = "changed"
                results.append(
                    Result(plays[-1] if plays else "", event["task"]["name"], host, data.get("action", ""), state, data)
                )
    return Run(code, results, stats, out, err, seconds)
