# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo: simulated NPU servers from nothing to a pod that sees its NPU, by the playbook site.yml, run twice.

    python -m tests.demo up      says what it will change on the machine and asks; YES=1 does not ask
    python -m tests.demo down    undoes it and compares the machine with its state before

Where the simulated servers cannot be built, it says why and goes on with the next best: the cluster of KUBECONFIG, one made by kind,
else the manifests as files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

import yaml

from .lab import _machine, _needs
from .lab.lab import Lab, LabError, payload_dir
from .tools import packages
from .tools.paths import CACHE, STAGED, WORK, Missing, environment

HOSTS = ("npu-a", "npu-b")
VERSION = "3.2.2"
FOLDER = WORK / "demo"
POD = FOLDER / "pod.json"
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)
IMAGE = "lab.local/busybox:1"


class DemoError(Exception):
    """What stopped the demo, with the next step."""


def ask(lines: list[str]) -> None:
    """Tell what will change, and go on only with a yes."""
    print("On this machine the demo will:")
    for line in [*lines, f"fill {CACHE} (about 5 GB the first time) and {WORK}"]:
        print(f"  - {line}")
    print("`make demo-down` takes it back, but keeps installed packages and the cache.")
    if os.environ.get("YES") == "1":
        return
    if not sys.stdin.isatty():
        raise DemoError("there is nobody to ask. Next: YES=1 make demo")
    if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise DemoError("nothing was changed")


def obstacles() -> list[str]:
    """Why the lab cannot be built here, apart from packages that apt can install."""
    installable = os.geteuid() == 0 and shutil.which("apt-get")
    return [text for text in _needs.obstacles() if not (installable and text.startswith("missing packages"))]


def run(title: str, argv: list[str], **env: str) -> str:
    """Run one command in the staged collection with its output shown; DemoError when it fails."""
    print(f"\n==> {title}\n    {' '.join(argv)}", flush=True)
    began, lines = time.monotonic(), []
    child = subprocess.Popen(
        argv, cwd=STAGED, env=environment(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert child.stdout is not None
    for line in child.stdout:
        lines.append(line)
        print(line, end="", flush=True)
    code = child.wait()
    print(f"<== {title}: {time.monotonic() - began:.0f} s", flush=True)
    if code:
        raise DemoError(f"{title}: exit {code}. Next: read the message above; the servers stay for a look, `make demo-down` removes them")
    return "".join(lines)


def playbook(name: str, *args: str) -> list[str]:
    inventories = ["-i", str(Lab.inventory), "-i", str(STAGED / "inventories" / "demo")]
    return ["ansible-playbook", *inventories, f"rebellions.npu.{name}", "-e", f"@{FOLDER / 'vars.json'}", *args]


def write_vars() -> None:
    """What the inventory cannot know: where the stand-in driver is, and its checksum."""
    runfile = payload_dir() / "run" / f"rebellions-x86_64-{VERSION}.run"
    sums = dict(reversed(line.split()) for line in (payload_dir() / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    values = {"npu_demo_runfile": str(runfile), "npu_demo_runfile_sha256": sums[f"run/{runfile.name}"]}
    (FOLDER / "vars.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def changed_in(output: str) -> dict[str, int]:
    return {m[1]: int(m[2]) for m in RECAP.finditer(output)}


def checks_table(lab_env: dict[str, str]) -> str:
    """Hosts by checks, as rbln_validate finds them now."""
    argv = [
        "ansible",
        "-i",
        str(Lab.inventory),
        "npu_nodes",
        "-m",
        "rebellions.npu.rbln_validate",
        "-a",
        json.dumps({"markers": "keep", "fail_on_blocking": False}),
    ]
    tree = FOLDER / "checks"
    shutil.rmtree(tree, ignore_errors=True)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([*argv, "--tree", str(tree)], cwd=STAGED, env=environment(**lab_env), text=True, check=False, **quiet)
    found: dict[str, dict[str, str]] = {}
    for host in HOSTS:
        path = tree / host
        if not path.exists():
            raise DemoError(f"{host} gave no checks: {done.stdout.strip()[-500:]}")
        for check in json.loads(path.read_text(encoding="utf-8"))["checks"]:
            found.setdefault(f"{check['scope']}: {check['name']}", {})[host] = {True: "ok", False: "FAILED"}.get(check["ok"], "unknown")
    width = max(len(name) for name in found)
    rows = ["  ".join(["check".ljust(width), *(host.ljust(8) for host in HOSTS)])]
    rows += ["  ".join([name.ljust(width), *(by_host.get(host, "-").ljust(8) for host in HOSTS)]).rstrip() for name, by_host in sorted(found.items())]
    return "\n".join(rows)


def see_npu(lab: Lab) -> str:
    """Run a pod that asks for one NPU; the device nodes it sees."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "npu-demo", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "look",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/busybox", "sh", "-c", "ls -l /dev/rbln*"],
                    "resources": {"limits": {"rebellions.ai/npu": 1}},
                }
            ],
        },
    }
    POD.write_text(json.dumps(pod), encoding="utf-8")
    lab.kubectl("delete", "pod", "npu-demo", "--ignore-not-found", "--wait=true", timeout=120)
    lab.kubectl("apply", "-f", POD)
    lab.kubectl("wait", "pod/npu-demo", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", timeout=150)
    seen = lab.kubectl("logs", "npu-demo").stdout.strip()
    if "/dev/rbln" not in seen:
        raise DemoError(f"the pod sees no NPU: {seen}")
    return seen


def allocatable(lab: Lab) -> dict[str, int]:
    return {name: int(node["allocatable"].get("rebellions.ai/npu", 0)) for name, node in lab.nodes().items()}


def on_servers() -> None:
    """The whole demo on simulated servers."""
    _machine.settings()
    ask([line for line in _machine.changes() if line])
    _machine.record()
    lacking = packages.missing({"lab"})
    if lacking:
        packages.install(lacking)
    lab = Lab()
    print("\n==> The servers (the first time their programs are built: ten minutes)", flush=True)
    lab.up(",".join(HOSTS))
    write_vars()
    env = {"KUBECONFIG": str(lab.kubeconfig), "ANSIBLE_CONFIG": str(STAGED / "inventories" / "demo" / "ansible.cfg")}
    run("site.yml, first run", playbook("site"), **env)
    again = changed_in(run("site.yml, second run: nothing may change", playbook("site"), **env))
    if set(again) != set(HOSTS) or any(again.values()):
        raise DemoError(f"the second run changed something: {again}")
    print("\n" + checks_table(env))
    npus = allocatable(lab)
    print("\nallocatable rebellions.ai/npu: " + ", ".join(f"{name} {count}" for name, count in sorted(npus.items())))
    if not all(npus.get(host) for host in HOSTS):
        raise DemoError("a node offers no NPU. Next: kubectl -n rbln-system get pods")
    print(f"\na pod with one NPU sees:\n{see_npu(lab)}")
    print(f"\nThe servers stay up. KUBECONFIG={lab.kubeconfig}; `make lab-status`; `make demo-down` takes everything back.")


def on_cluster(kubeconfig: str, kind: str) -> None:
    """The cluster part alone: on a cluster that is there, or as files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    inventory = FOLDER / "cluster.yml"
    where: dict[str, object] = {"rbln_operands_kubeconfig": kubeconfig} if kubeconfig else {"rbln_operands_render_dir": str(FOLDER / "manifests")}
    plays = [
        {
            "name": "Cluster part of the demo",
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [
                {"name": "Operands", "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_operands"}, "vars": {**where, "rbln_operands_wait": False}}
            ],
        }
    ]
    inventory.write_text("".join(["---\n", yaml.safe_dump(plays, sort_keys=False)]), encoding="utf-8")
    run(f"The cluster part {kind}", ["ansible-playbook", "-i", "localhost,", "-e", "ansible_python_interpreter={{ ansible_playbook_python }}", str(inventory)])
    print(f"\nWithout NPUs no node is labelled, and no pod starts: what you see is {'what was applied' if kubeconfig else f'in {FOLDER}/manifests'}.")


def up() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = obstacles()
    if not found:
        on_servers()
        return
    print("Simulated servers cannot be built here and now:")
    for text in found:
        print(f"  - {text}")
    if os.environ.get("KUBECONFIG"):
        ask([f"apply namespace rbln-system and its objects to the cluster of KUBECONFIG={os.environ['KUBECONFIG']}"])
        on_cluster(os.environ["KUBECONFIG"], "on the cluster of KUBECONFIG")
    elif shutil.which("kind"):
        ask(["make a kind cluster named npu-demo"])
        target = FOLDER / "kind.kubeconfig"
        run("kind", ["kind", "create", "cluster", "--name", "npu-demo", "--kubeconfig", str(target)])
        on_cluster(str(target), "on kind")
    else:
        print("No KUBECONFIG and no kind either: the manifests go to files.")
        on_cluster("", "as files")


def down() -> None:
    if (FOLDER / "kind.kubeconfig").exists() and shutil.which("kind"):
        run("kind", ["kind", "delete", "cluster", "--name", "npu-demo"])
    rest = Lab().down() if os.geteuid() == 0 and shutil.which("podman") else []
    shutil.rmtree(FOLDER, ignore_errors=True)
    packages_kept = [line for line in rest if line.startswith("packages: ")]
    left = [line for line in rest if line not in packages_kept]
    for line in packages_kept:
        print(f"kept: {line}")
    if left:
        raise DemoError("the machine differs from before:\n" + "\n".join(f"  - {line}" for line in left))
    print("The demo is gone; containers, network, routes, firewall, mounts and kernel settings are as before.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("up", "down"))
    act = parser.parse_args().act
    try:
        up() if act == "up" else down()
    except (DemoError, LabError, Missing) as exc:
        print(f"demo: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
