# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`: simulated NPU servers from nothing to allocatable NPUs by site.yml, twice.

Two hosts are the first act; their result is told as soon as it is there. A virtual machine is the second. The output of
the playbooks is in a log. `make demo-down` takes everything away again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..tools.paths import LOGS, STAGED, environment
from ..tools.ticking import tell, ticking
from . import _apt, _demo_vm, _machine, _needs
from ._base import CACHE, SECONDS, STATE, LabError, patience, put_json, read_json, run, say, unbuilt
from ._go import PROGRAMS, is_built, program
from ._rootfs import host_image, pod_images
from ._seed import DEFAULT_HOSTS, HOSTS, KINDS
from .lab import Lab

INSTALLED = STATE / "packages-installed.json"
FOLDER = STATE.parent / "demo"
RENDERED = FOLDER / "manifests"
REPORTS = FOLDER / "reports"
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
LOG = LOGS / "demo.log"
# What each act takes with everything in the cache; beside it, what it may have to build.
HOSTS_SECONDS, VM_SECONDS = 130, 200
BUILDS = ("kube", "containerd", "npu-device-plugin", "rootfs-bookworm", "rootfs-trixie", "rootfs-validator")
# `npu-a: driver none -> 3.2.2, install (3 s)`, and no result of a task.
_PROGRESS = re.compile(r"(?!(?:ok|changed|included|skipping|fatal|failed): )[a-z0-9.-]+: \S")
VM_BUILDS = ("vm-root", "vm-disk", "vm-virgin")


class Changed(LabError):
    """A run that had nothing to do has changed something. Another one would not, so it is not tried again."""


def headline(text: str) -> None:
    tell("\n== %s" % text)


def estimate(vm: bool) -> str:
    """How long it takes, and what of that is building."""

    def minutes(seconds: float) -> int:
        return max(1, round(seconds / 60))

    builds = _to_build(BUILDS)
    told = "about %d minutes until pods see the NPUs of the hosts" % minutes(sum(builds.values()) + HOSTS_SECONDS)
    if vm:
        more = _to_build(VM_BUILDS)
        told += ", about %d more for the virtual machine" % minutes(sum(more.values()) + VM_SECONDS)
        builds = {**builds, **more}
    parts = ", ".join("%s %d s" % item for item in builds.items())
    return "%s, on two idle cores; %s" % (told, "to build: %s" % parts if parts else "nothing to build")


def _to_build(names: t.Sequence[str]) -> dict[str, int]:
    """{what has to be built: the seconds that it usually takes}; a program that was built of other sources is none."""
    programs = {name: SECONDS[name] for name in names if name in PROGRAMS and not is_built(name)}
    return {**programs, **unbuilt(name for name in names if name not in PROGRAMS)}


def _agreed(question: str) -> bool:
    if os.environ.get("YES") == "1":
        return True
    if not sys.stdin.isatty():
        print("%s: no terminal to ask on. Next: YES=1 make demo" % question)
        return False
    try:
        return input(question + " [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _install(names: t.Sequence[str], planned: t.Sequence[_apt.Act]) -> None:
    """Install what was planned, and keep the list of everything that came."""
    if not names:
        return
    before = set(_machine.snapshot()["packages"])
    try:
        _apt.install(names, planned)
    finally:
        added = sorted(set(_machine.snapshot()["packages"]) - before)
        put_json(INSTALLED, sorted({*read_json(INSTALLED, []), *added}))


def doing(lines: t.Sequence[str]) -> str:
    """What a playbook does now, by its output: the progress that it told last, or its last task."""
    for line in reversed(lines[-200:]):
        if line.startswith("TASK ["):
            return line.partition("]")[0][len("TASK [") :].rpartition(" : ")[2]
        if _PROGRESS.match(line):
            return line.partition(". Next: ")[0].strip()[:100]
    return "starting"


def playbook(
    name: str, *more: str, what: str, machine: str = "", callback: str = "", timeout: float = 1800
) -> tuple[int, str]:
    """(exit code, output) of ansible-playbook on the staged collection; the output is in the log too.

    machine: inventory of the virtual machine. With a callback only its own output is returned. DEMO_COLLECTIONS of the
    environment takes an installed collection instead.
    """
    installed = os.environ.get("DEMO_COLLECTIONS")
    env = environment(
        NPU_LAB=str(STATE),
        # An emulated machine on busy cores is slow to answer.
        ANSIBLE_TIMEOUT="60",
        ANSIBLE_SSH_RETRIES="5",
        ANSIBLE_CALLBACKS_ENABLED="rebellions.npu.rbln_report",
        RBLN_REPORT_PATH=str(REPORTS),
        **({"ANSIBLE_STDOUT_CALLBACK": callback} if callback else {}),
        **({"ANSIBLE_COLLECTIONS_PATH": installed} if installed else {}),
    )
    inventory = str(STAGED / INVENTORY)
    inventories = [inventory, machine] if machine else [inventory]
    argv = ["ansible-playbook", *[word for path in inventories for word in ("-i", path)]]
    argv += ["rebellions.npu.%s" % name if installed else "playbooks/%s.yml" % name, *more]
    lines: list[str] = []

    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log, ticking(what, now=None if callback else lambda: doing(lines)):
        log.write("\n$ %s\n" % " ".join(argv))
        log.flush()
        process = subprocess.Popen(
            argv,
            # There Ansible would find the collection of the checkout.
            cwd=FOLDER.parent if installed else STAGED,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log if callback else subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        limit = threading.Timer(timeout * patience(), process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if not callback:
                    log.write(line)
                    log.flush()
            return process.wait(), "".join(lines)
        finally:
            limit.cancel()


def recap(output: str) -> dict[str, dict[str, int]]:
    """{host: {ok, changed, unreachable, failed, ...}} of a PLAY RECAP."""
    tail = output.rpartition("PLAY RECAP")[2]
    return {
        match.group(1): {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", match.group(2))}
        for match in re.finditer(r"^(\S+)\s+: (ok=.*)$", tail, re.M)
    }


def _site(name: str, machine: str = "", *more: str, unchanged: bool = False) -> None:
    """A run of site.yml; LabError with what it said last when it fails, or changes something and should not."""
    start = time.monotonic()
    code, output = playbook("site", *more, what=name, machine=machine)
    hosts = recap(output)
    if code or not hosts:
        said = [line for line in output.partition("PLAY RECAP")[0].splitlines() if line.strip()]
        tail = "\n".join("  | " + line[:300] for line in said[-8:])
        raise LabError("site.yml failed (exit %d) in its %s:\n%s\n  all of it: %s" % (code, name, tail, LOG))
    changed = {host: counts["changed"] for host, counts in hosts.items() if counts["changed"]}
    if unchanged and changed:
        raise Changed("the %s of site.yml changed something: %s. Next: see %s" % (name, changed, LOG))
    counts = ", ".join("%s=%d" % (host, row["changed"]) for host, row in hosts.items())
    tell("%s: %.1f s, changed %s" % (name, time.monotonic() - start, counts))


def proof(machine: str = "", *more: str) -> str:
    """The screen of validate.yml; LabError with it where a host is not as it should be."""
    code, output = playbook(
        "validate", *more, what="validate.yml", machine=machine, callback="ansible.posix.json", timeout=600
    )
    try:
        plays = json.loads(output[output.index("{") :])["plays"]
    except ValueError as exc:
        raise LabError("validate.yml gave no result (exit %d). Next: see %s" % (code, LOG)) from exc
    results = [result for play in plays for task in play["tasks"] for result in task["hosts"].values()]
    shown = "\n".join(line for result in results for line in result.get("lines", ()) if line)
    if code or not shown:
        raise LabError("validate.yml failed (exit %d):\n%s\nNext: see %s" % (code, shown, LOG))
    return shown


def look(lab: Lab, node: str, seconds: float = 90) -> dict[str, t.Any]:
    """Start a pod that asks for one NPU on the node and look inside it: {devices, libraries, tool, major}.

    LabError when it sees none.
    """
    name = "sees-npu-" + node
    seconds *= patience()
    lab.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=true", timeout=seconds)
    lab.kubectl("apply", "-f", "-", stdin=POD % {"node": node}, timeout=seconds)
    lab.kubectl("wait", "--for=condition=Ready", "pod/" + name, "--timeout=%.0fs" % seconds, timeout=seconds + 30)

    def inside(line: str) -> list[str]:
        return lab.kubectl("exec", name, "--", "sh", "-c", line, check=False, timeout=seconds).stdout.split()

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


def _planned(vm: bool) -> tuple[list[str], list[_apt.Act], str]:
    """(names of missing packages, everything that apt would do for them, why there is no virtual machine)."""
    names = _needs.missing()
    if not vm:
        return names, _apt.plan(names), ""
    both = list(dict.fromkeys([*names, *_needs.missing_vm()]))
    try:
        planned = _apt.plan(both)
        reason = _demo_vm.obstacle({act.name: act.new for act in planned})
        if not reason:
            return both, planned, ""
    except LabError as exc:
        if both == names:
            raise
        reason = str(exc)
    return names, _apt.plan(names), reason


def _build() -> None:
    """What is compiled beside what is downloaded. Who needs it says what has failed."""

    def systems() -> None:
        for name in DEFAULT_HOSTS:
            host_image(KINDS[HOSTS[name]].flavour)

    def programs() -> None:
        program("kube")
        program("containerd")
        pod_images()

    with ThreadPoolExecutor(2) as pool, contextlib.suppress(LabError):
        for done in [pool.submit(programs), pool.submit(systems)]:
            done.result()


def up() -> int:
    choice = _demo_vm.choice()
    blocked = [problem for problem in _needs.obstacles() if not problem.startswith("missing packages")]
    if blocked:
        return _without_hosts(blocked)
    lab = Lab()
    if shutil.which("podman"):
        lab.refuse_foreign()
    try:
        names, planned, reason = _planned(choice != "0")
    except LabError as exc:
        return _without_hosts([str(exc)])
    if reason and choice == "1":
        raise LabError("no virtual machine here: %s. Next: VM=0 make demo" % reason)
    with_vm = choice != "0" and not reason
    headline("what this will change on the machine (make demo-down takes it back)")
    lines = _machine.changes(())
    if planned:
        text = "install %d Debian packages; none is upgraded or removed: %s"
        lines.insert(0, text % (len(planned), ", ".join(sorted(map(str, planned)))))
    servers = "system containers %s and a control plane of Kubernetes" % " and ".join(DEFAULT_HOSTS)
    lines.append("start %s%s" % (servers, ", and the virtual machine %s" % _demo_vm.MACHINE if with_vm else ""))
    lines.append("fill %s (about 5 GB with Go's own caches, kept by make demo-down)" % CACHE)
    if reason:
        lines.append("nothing for a virtual machine, there can be none here: %s" % reason)
    print("\n".join(textwrap.fill(line, 118, initial_indent="- ", subsequent_indent="  ") for line in lines))
    print("It takes %s." % estimate(with_vm))
    if not _agreed("Go on?"):
        return 1
    began = time.monotonic()
    LOG.unlink(missing_ok=True)
    _machine.record()
    _install(names, planned)
    headline("hosts and cluster (what the playbooks say: %s)" % LOG)
    _build()
    kube = True
    try:
        state = _again(lambda: _hosts(lab))
    except LabError as exc:
        headline("the cluster failed, so the hosts go on without it: %s" % exc)
        kube = False
        state = _hosts(lab, kube=False)
    for name in DEFAULT_HOSTS:
        host = state["hosts"][name]
        tell("%s: %s; %s%s" % (name, KINDS[host["kind"]].says, host["state"], ", Ready" if host["ready"] else ""))
    machine = _demo_vm.Machine() if kube and with_vm else None
    headline("first act: site.yml on %s" % " and ".join(DEFAULT_HOSTS))
    alone = () if kube else ("-e", "rbln_kubeconfig=")
    _again(lambda: _site("first run", "", *alone))
    _again(lambda: _site("second run", "", *alone, unchanged=True))
    tell(proof("", *alone))
    if not kube:
        _render()
        return 1
    for name in DEFAULT_HOSTS:
        _again(lambda name=name: _pod(lab, name))  # type: ignore[misc]
    told = "%s are allocatable %s after the start; the second run changed nothing"
    headline(told % ("the NPUs of %s" % " and ".join(DEFAULT_HOSTS), _clock(time.monotonic() - began)))
    tell("the reports of these runs, as pages: %s" % REPORTS)
    tell("Next: `. %s` and kubectl get pods -A; make demo-down takes everything back" % (STATE / "env"))
    return _second_act(lab, machine, choice) if machine else 0


def _hosts(lab: Lab, kube: bool = True) -> dict[str, t.Any]:
    with ticking("the hosts%s" % (" and their cluster" if kube else "")):
        return lab.up(",".join(DEFAULT_HOSTS), kube)


def _clock(seconds: float) -> str:
    return "%d min %02d s" % divmod(round(seconds), 60)


def _pod(lab: Lab, node: str, seconds: float = 90) -> dict[str, t.Any]:
    """A pod that sees its NPU, told in one line."""
    with ticking("a pod on " + node):
        seen = look(lab, node, seconds)
    found = lab.nodes().get(node)
    if not found:
        raise LabError("the API server does not answer what node %s has" % node)
    count = found["allocatable"].get("rebellions.ai/npu", "0")
    devices, tool = " ".join(seen["devices"]), seen["tool"] or "no tool"
    tell("%s: a pod has %s of %s allocatable, %s, %d library mounts" % (
        node, devices, count, tool, len(seen["libraries"])
    ))  # fmt: skip
    return seen


def _second_act(lab: Lab, machine: _demo_vm.Machine, choice: str) -> int:
    """The virtual machine. What fails on it is tried again, and named; the demo has failed then unless VM=try."""
    name, began = _demo_vm.MACHINE, time.monotonic()
    headline("second act: %s, a virtual machine whose module is built by DKMS (emulated, so slow)" % name)
    try:
        while machine.starting(1):
            pass
        if machine.failed:
            raise LabError("it did not come up in %d tries: %s" % (_demo_vm.TRIES, machine.failed))
        tell("%s: virtual machine with kernel %s, running, Ready" % (name, machine.vm.kernel()))
        where, only = machine.inventory(), ("--limit", name)
        _again(lambda: _site("%s first run" % name, where, *only))
        _again(lambda: _site("%s second run" % name, where, *only, unchanged=True))
        tell(_again(lambda: proof(where, *only)))
        seen = _again(lambda: _pod(lab, name, 180))
        tell("%s: %s" % (name, machine.loaded(seen["major"])))
    except (LabError, OSError, ValueError, subprocess.SubprocessError) as exc:
        headline("%s failed: %s" % (name, exc))
        if not machine.failed:
            tell("its console:\n%s" % _demo_vm.last_words(machine.vm.console()))
        tell("The result of %s stands. Next: make demo again, or VM=0 make demo" % " and ".join(DEFAULT_HOSTS))
        return 0 if choice == "try" else 1
    headline("the NPUs of %s are allocatable too, %s later" % (name, _clock(time.monotonic() - began)))
    return 0


def _again(act: t.Callable[[], t.Any], tries: int = 2) -> t.Any:
    """What act returns; LabError when it has failed that often."""
    for number in range(1, tries + 1):
        try:
            return act()
        except LabError as exc:
            if number == tries or isinstance(exc, Changed):
                raise
            say("try %d of %d failed: %s" % (number, tries, str(exc).splitlines()[0]))
    raise AssertionError(tries)


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
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log:
        done = subprocess.run(
            argv,
            cwd=STAGED,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    files = sorted(path for path in RENDERED.rglob("*") if path.is_file())
    if done.returncode or not (config or files):
        raise LabError("the cluster part failed (exit %d). Next: see %s" % (done.returncode, LOG))
    print(
        "\n".join(str(path) for path in files if not config)
        or "applied; without NPUs no node is labelled, and no pod starts"
    )
    return 0


def down() -> int:
    if KIND_CONFIG.exists() and shutil.which("kind"):
        run(["kind", "delete", "cluster", "--name", KIND], 300)
    shutil.rmtree(FOLDER, ignore_errors=True)
    added = read_json(INSTALLED, [])
    # Packages are left where apt was busy, or another one needed them, when everything else went.
    before = read_json(_machine.RECORD, None) or (read_json(_machine.LAST, None) if added else None)
    if before is None:
        print("no demo is up and nothing is recorded to restore")
        return 0
    lab = Lab()
    with ticking("taking the hosts away"):
        _demo_vm.down()
        rest = lab.down()
    if lab.hosts():
        print("hosts are left: %s" % ", ".join(lab.hosts()))
        return 1
    shutil.rmtree(_apt.FOLDER, ignore_errors=True)
    if added:
        headline("removing the %d packages that the demo installed" % len(added))
        stay = _apt.purge(added)
        if not stay:
            INSTALLED.unlink()
        rest = [*_machine.difference(before, _machine.snapshot()), *(["packages: %s" % stay] if stay else [])]
    headline("the machine before and after")
    after = _machine.snapshot()
    for key, value in before.items():
        print("%-10s %s" % (key, "as before (%d)" % len(value) if after.get(key) == value else "differs"))
    print("\n".join(rest) if rest else "nothing differs")
    return 1 if rest else 0


def main(argv: t.Sequence[str]) -> int:
    try:
        return down() if argv[:1] == ["down"] else up()
    except LabError as exc:
        tell(str(exc), sys.stderr)
        return 1
    except KeyboardInterrupt:
        tell("\nstopped. Next: make demo to go on, or make demo-down to take everything back", sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
