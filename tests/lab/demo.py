# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`: simulated NPU servers from nothing to allocatable NPUs by site.yml, twice.

`make demo-down` takes everything away again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import typing as t

from ..tools import packages
from ..tools.paths import STAGED, Missing, environment
from . import _demo_vm, _machine, _needs
from ._base import CACHE, STATE, LabError, put_json, read_json, run, unbuilt
from ._seed import DEFAULT_HOSTS
from .lab import Lab

INSTALLED = STATE / "packages-installed.json"
FOLDER = STATE.parent / "demo"
RENDERED = FOLDER / "manifests"
KIND, KIND_CONFIG = "rebellions-npu-demo", FOLDER / "kind.kubeconfig"
INVENTORY = "inventories/demo"
POD = """apiVersion: v1
kind: Pod
metadata: {name: sees-npu-%(node)s, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %(node)s}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: look
      image: lab.local/busybox:1
      imagePullPolicy: IfNotPresent
      command: [sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]
      resources: {limits: {rebellions.ai/npu: 1}}
"""


# What a demo takes with everything in the cache; beside it, what it may have to build.
USUAL_SECONDS = 240
BUILDS = (
    "kube",
    "containerd",
    "rootfs-bookworm",
    "rootfs-trixie",
    "rootfs-validator",
    "vm-root",
    "vm-disk",
    "vm-virgin",
)
STEPS = 6


def headline(text: str, step: int = 0) -> None:
    print("\n== %s%s" % (text, " (step %d of %d)" % (step, STEPS) if step else ""), flush=True)


def estimate() -> str:
    """How long it takes, and what of that is building."""
    builds = unbuilt(BUILDS)
    minutes = (sum(builds.values()) + USUAL_SECONDS + 59) // 60
    parts = ", ".join("%s %d s" % item for item in builds.items())
    return "about %d minutes on two idle cores%s" % (
        minutes,
        ", building %s" % parts if parts else ", nothing to build",
    )


def _agreed(question: str) -> bool:
    if os.environ.get("YES") == "1":
        return True
    if not sys.stdin.isatty():
        print("%s: no terminal to ask on. Next: YES=1 make demo" % question)
        return False
    return input(question + " [y/N] ").strip().lower() in ("y", "yes")


def _packages(names: t.Sequence[str]) -> None:
    """Install what is missing and keep the list of everything that came with it."""
    if not names:
        return
    before = set(_machine.snapshot()["packages"])
    packages.install([package for package in packages.table() if package.name in names])
    added = sorted(set(_machine.snapshot()["packages"]) - before)
    put_json(INSTALLED, sorted({*read_json(INSTALLED, []), *added}))


def playbook(name: str, *more: str, timeout: float = 1800, callback: str = "") -> subprocess.CompletedProcess[str]:
    """ansible-playbook on the staged collection; with a callback its output is captured, else shown."""
    env = environment(
        NPU_LAB=str(STATE),
        ANSIBLE_DISPLAY_SKIPPED_HOSTS="false",
        **({"ANSIBLE_STDOUT_CALLBACK": callback} if callback else {}),
    )
    argv = [
        "ansible-playbook",
        *[word for path in [INVENTORY, *_demo_vm.inventory()] for word in ("-i", path)],
        "playbooks/%s.yml" % name,
        *more,
    ]
    if callback:
        return subprocess.run(
            argv,
            cwd=STAGED,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    process = subprocess.Popen(
        argv, cwd=STAGED, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    return subprocess.CompletedProcess(argv, process.wait(timeout), "".join(lines), "")


def recap(output: str) -> dict[str, dict[str, int]]:
    """{host: {ok, changed, unreachable, failed, ...}} of a PLAY RECAP."""
    tail = output.rpartition("PLAY RECAP")[2]
    return {
        match.group(1): {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", match.group(2))}
        for match in re.finditer(r"^(\S+)\s+: (ok=.*)$", tail, re.M)
    }


def _site(times: str, unchanged: bool, step: int, *more: str) -> None:
    headline("site.yml, %s run" % times, step)
    start = time.monotonic()
    done = playbook("site", *more)
    hosts = recap(done.stdout)
    if done.returncode or not hosts:
        raise LabError("site.yml failed (exit %d) in its %s run" % (done.returncode, times))
    changed = {host: counts["changed"] for host, counts in hosts.items() if counts["changed"]}
    if unchanged and changed:
        raise LabError("the second run of site.yml changed something: %s" % changed)
    print(
        "%s run: %.1f s, changed %s"
        % (
            times,
            time.monotonic() - start,
            ", ".join("%s=%d" % (host, counts["changed"]) for host, counts in hosts.items()),
        )
    )


def proofs() -> dict[str, dict[str, t.Any]]:
    """{host: rbln_proof} by validate.yml."""
    done = playbook("validate", callback="ansible.posix.json", timeout=600)
    found: dict[str, dict[str, t.Any]] = {}
    try:
        plays = json.loads(done.stdout[done.stdout.index("{") :])["plays"]
    except ValueError as exc:
        raise LabError("validate.yml gave no result: %s" % (done.stderr or done.stdout)[-1500:]) from exc
    for play in plays:
        for task in play["tasks"]:
            for host, result in task["hosts"].items():
                proof = result.get("ansible_facts", {}).get("rbln_proof")
                if proof:
                    found[host] = proof
    return found


def table(proof: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    """Hosts and checks: a line a check, a column a host."""
    rows: dict[str, dict[str, str]] = {}
    for host, data in proof.items():
        for check in data["checks"]:
            word = {
                True: "ok",
                False: "FAILED" if check["severity"] == "error" else check["severity"],
                None: "unknown",
            }[check["ok"]]
            rows.setdefault("%s: %s" % (check["scope"], check["name"]), {})[host] = word
    width = max(map(len, rows), default=5)
    lines = ["%-*s  %s" % (width, "check", "  ".join("%-8s" % host for host in proof))]
    lines += [
        "%-*s  %s" % (width, name, "  ".join("%-8s" % cells.get(host, "-") for host in proof))
        for name, cells in rows.items()
    ]
    return "\n".join(lines)


def look(lab: Lab, node: str) -> dict[str, t.Any]:
    """Start a pod that asks for one NPU on the node and look inside it: {devices, libraries, smi}.

    LabError when it sees none.
    """
    name = "sees-npu-" + node
    lab.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=true")
    lab.kubectl("apply", "-f", "-", stdin=POD % {"node": node})
    lab.kubectl("wait", "--for=condition=Ready", "pod/" + name, "--timeout=90s", timeout=120)

    def inside(line: str) -> list[str]:
        return lab.kubectl("exec", name, "--", "sh", "-c", line, check=False).stdout.split()

    seen = {
        "devices": inside("for d in /dev/rbln[0-9]* /dev/rsd[0-9]*; do [ -c $d ] && : <$d && echo $d; done"),
        "libraries": inside("grep -o ' /[^ ]*librbln-[^ ]*' /proc/mounts"),
        "tool": " ".join(inside("rbln-smi --version")),
        "major": " ".join(inside("for d in /dev/rbln[0-9]*; do stat -c %t $d; done")),
    }
    lab.kubectl("delete", "pod", name, "--wait=false")
    if len([device for device in seen["devices"] if "/rbln" in device]) != 1 or not seen["libraries"]:
        raise LabError("the pod on %s does not see its NPU: %s" % (node, seen))
    return seen


def up() -> int:
    blocked = [problem for problem in _needs.obstacles() if not problem.startswith("missing packages")]
    if blocked:
        return _without_hosts(blocked)
    lab = Lab()
    if shutil.which("podman"):
        lab.refuse_foreign()
    headline("what this will change on the machine (make demo-down takes it back)", 1)
    print(
        "\n".join(
            "- " + line
            for line in [
                *_machine.changes(),
                "fill %s (about 5 GB with Go's own caches, kept by make demo-down)" % CACHE,
            ]
        )
    )
    print("It takes %s." % estimate())
    if not _agreed("Go on?"):
        return 1
    _machine.record()
    try:
        _packages(_needs.missing())
    except Missing as exc:
        return _without_hosts([str(exc)])
    try:
        _packages(_needs.missing_vm())
    except Missing as exc:
        print("no virtual machine: %s" % exc)
    headline("hosts and cluster", 2)
    kube = True
    try:
        state = lab.up(",".join(DEFAULT_HOSTS))
    except LabError as exc:
        headline("no Kubernetes here: %s" % exc)
        kube = False
        state = lab.up(",".join(DEFAULT_HOSTS), kube=False)
    for name in DEFAULT_HOSTS:
        host = state["hosts"][name]
        print("%s: %s, %s%s" % (name, host["kind"], host["state"], ", Ready" if host["ready"] else ""))
    vm = _demo_vm.up() if kube else None
    skip = () if kube else ("--skip-tags", "operands")
    _site("first", False, 3, *skip)
    _site("second", True, 4, *skip)
    headline("hosts and checks", 5)
    proof = proofs()
    print(table(proof))
    if not proof:
        raise LabError("validate.yml proved no host")
    if not kube:
        return _render()
    headline("a pod that sees its NPU, on each node", 6)
    for node in [*DEFAULT_HOSTS, *([vm.name] if vm else [])]:
        seen = look(lab, node)
        count = lab.nodes()[node]["allocatable"].get("rebellions.ai/npu")
        print(
            "%s: %s of %s allocatable, %s, %d library mounts"
            % (node, " ".join(seen["devices"]), count, seen["tool"] or "no tool", len(seen["libraries"]))
        )
    if vm:
        print("%s: %s" % (vm.name, _demo_vm.loaded(vm, seen["major"])))
    print("\n. %s sets KUBECONFIG and finds kubectl\nmake demo-down takes everything back" % (STATE / "env"))
    return 0


def _without_hosts(problems: t.Sequence[str]) -> int:
    headline("simulated servers cannot be built here and now")
    print("\n".join("- " + problem for problem in problems))
    return _render()


def _render() -> int:
    """The next best choice without a cluster of our own.

    The cluster of KUBECONFIG, one made by kind, or else manifests as files.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    config = os.environ.get("KUBECONFIG", "")
    if config and not _agreed("Apply namespace rbln-system and its objects to the cluster of KUBECONFIG=%s?" % config):
        config = ""
    elif not config and shutil.which("kind") and _agreed("Make a kind cluster named %s?" % KIND):
        run(["kind", "create", "cluster", "--name", KIND, "--kubeconfig", KIND_CONFIG], 900)
        config = str(KIND_CONFIG)
    inputs: dict[str, t.Any] = {"rbln_operands_wait": False}
    inputs.update({"rbln_operands_kubeconfig": config} if config else {"rbln_operands_render_dir": str(RENDERED)})
    headline("the cluster's objects %s" % ("on the cluster of " + config if config else "as files in %s" % RENDERED))
    play = FOLDER / "cluster.json"
    role = {"name": "Operands", "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_operands"}, "vars": inputs}
    put_json(
        play,
        [{"name": "Cluster part", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [role]}],
    )
    argv = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-e",
        "ansible_python_interpreter={{ ansible_playbook_python }}",
        str(play),
    ]
    done = subprocess.run(argv, cwd=STAGED, env=environment(), stdin=subprocess.DEVNULL, check=False)
    files = sorted(path for path in RENDERED.rglob("*") if path.is_file())
    if done.returncode or not (config or files):
        raise LabError("the cluster part failed (exit %d)" % done.returncode)
    print(
        "\n".join(str(path) for path in files if not config)
        or "applied; without NPUs no node is labelled, and no pod starts"
    )
    return 0


def down() -> int:
    if KIND_CONFIG.exists() and shutil.which("kind"):
        run(["kind", "delete", "cluster", "--name", KIND], 300)
    shutil.rmtree(FOLDER, ignore_errors=True)
    before = read_json(_machine.RECORD, None)
    if before is None:
        print("no demo is up and nothing is recorded to restore")
        return 0
    lab = Lab()
    added = read_json(INSTALLED, [])
    _demo_vm.down()
    rest = lab.down()
    if lab.hosts():
        print("hosts are left: %s" % ", ".join(lab.hosts()))
        return 1
    if added:
        headline("removing the packages that the demo installed")
        done = run(
            ["apt-get", "-q", "-y", "purge", *added], 600, check=False, env={"DEBIAN_FRONTEND": "noninteractive"}
        )
        INSTALLED.unlink()
        rest = (
            _machine.difference(before, _machine.snapshot())
            if not done.returncode
            else [*rest, "packages: %s" % done.stderr.strip()[-500:]]
        )
    headline("the machine before and after")
    after = _machine.snapshot()
    for key, value in before.items():
        print("%-10s %s" % (key, "as before (%d)" % len(value) if after.get(key) == value else "differs"))
    print("\n".join(rest) if rest else "nothing differs")
    return 1 if rest else 0


def main(argv: t.Sequence[str]) -> int:
    try:
        return down() if argv[:1] == ["down"] else up()
    except (LabError, Missing) as exc:
        sys.stderr.write("%s\n" % exc)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
