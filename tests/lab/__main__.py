# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab: simulated NPU servers that are Ansible targets and Kubernetes nodes at once."""

from __future__ import annotations

import argparse
import json
import sys

from . import _go, _machine, _needs, _rootfs
from ._base import STATE, put
from .lab import HOSTS, KINDS, Lab, LabError, payload_dir


def _parser() -> argparse.ArgumentParser:
    kinds = "; ".join("%s: %s" % (name, kind.says) for name, kind in KINDS.items())
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    acts = parser.add_subparsers(dest="act", required=True)

    def act(name: str, text: str) -> argparse.ArgumentParser:
        one = acts.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="answer as JSON")
        return one

    for name, text in (("up", "bring hosts and cluster up"), ("changes", "say what up will change on this machine")):
        one = act(name, text)
        one.add_argument(
            "--nodes",
            help="NAME[=KIND],...; names with a kind: %s. Kinds: %s"
            % (", ".join("%s=%s" % item for item in HOSTS.items()), kinds),
        )
        one.add_argument("--no-kube", "--bare", action="store_true", dest="bare", help="hosts only, no Kubernetes")
    act("status", "say what is up")
    act("down", "remove hosts, cluster and everything the lab changed").add_argument("--nodes", help="only these hosts")
    act("reset", "make hosts virgin again").add_argument("--nodes", required=True)
    one = act("exec", "run a command on a host")
    one.add_argument("host")
    one.add_argument("argv", nargs=argparse.REMAINDER)
    acts.add_parser("kubectl", help="kubectl as the cluster's administrator").add_argument(
        "argv", nargs=argparse.REMAINDER
    )
    act("needs", "list the packages that the lab needs").add_argument(
        "--vm", action="store_true", help="those of virtual machines"
    )
    one = act("vm", "virtual machines: servers with a kernel and a boot loader of their own")
    one.add_argument("vm_act", choices=("up", "down", "reset", "status", "exec", "inventory"))
    one.add_argument("name", nargs="?", help="of the machine; without it status and down mean all")
    one.add_argument("--npus", type=int, default=2)
    for flag, text in (
        ("secure-boot", "firmware that checks signatures"),
        ("kube", "a node of the cluster"),
        ("outside", "may reach a network"),
    ):
        one.add_argument("--" + flag, action="store_true", help=text)
    one.add_argument("argv", nargs="*", help="-- COMMAND, for exec; one word is a shell line")
    act("demo", "simulated NPU servers from nothing to allocatable NPUs, by site.yml")
    act("demo-down", "undo the demo and compare the machine with its state before")
    act("build", "fill the cache").add_argument(
        "what",
        nargs="*",
        help="%s, payload, images, vm, or a flavour of hosts (%s)"
        % (", ".join(_go.PROGRAMS), ", ".join(_rootfs.FLAVOURS)),
    )
    return parser


def _build(lab: Lab, what: list[str]) -> dict[str, str]:
    done: dict[str, str] = {}
    for name in what or [*_go.PROGRAMS, "payload", "images", "bookworm", "trixie"]:
        if name in _go.PROGRAMS:
            done[name] = str(_go.program(name))
        elif name in _rootfs.FLAVOURS:
            done[name] = _rootfs.host_image(name)
        elif name == "vm":
            from ._vm import virgin

            done[name] = str(virgin(2, secure_boot=False))
        elif name == "payload":
            done[name] = str(payload_dir())
        elif name == "images":
            done.update({reference: str(path) for reference, path in _rootfs.pod_images().items()})
        else:
            raise LabError("nothing to build is named %s" % name)
    if "cdi-validate" in done:
        link = STATE.parent / "bin" / "cdi-validate"
        put(link, '#!/bin/sh\nexec %s/cdi-validate "$@"\n' % done["cdi-validate"], 0o755)
    return done


def _vm_act(args: argparse.Namespace) -> int:
    from ._vm import Vm, print_status

    if args.name is None and args.vm_act not in ("status", "down"):
        raise LabError("vm %s: say which machine" % args.vm_act)
    if args.vm_act == "up":
        print(
            "%s: up in %.1f s" % (args.name, Vm(args.name, args.npus, args.kube, args.secure_boot, args.outside).up())
        )
    elif args.vm_act == "reset":
        print("%s: virgin in %.1f s" % (args.name, Vm.named(args.name).reset()))
    elif args.vm_act == "down":
        for name in [args.name] if args.name else Vm.names():
            Vm.named(name).down()
    elif args.vm_act == "status":
        print(print_status(args.json))
    elif args.vm_act == "inventory":
        print(Vm.named(args.name).write_inventory())
    else:
        words = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
        done = Vm.named(args.name).exec(words[0] if len(words) == 1 else words, check=False, timeout=3600)
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        return done.returncode
    return 0


def main() -> int:
    args = _parser().parse_args()
    try:
        return _act(args)
    except LabError as exc:
        sys.stderr.write("%s\n" % exc)
        return 1


def _act(args: argparse.Namespace) -> int:
    if args.act == "needs":
        rows = list(_needs.vm_table() if args.vm else _needs.table())
        print(
            json.dumps([dict(zip(("package", "state", "why"), row)) for row in rows])
            if args.json
            else "\n".join("%-24s %-8s %s" % row for row in rows)
        )
        return 1 if any(row[1] == "missing" for row in rows) else 0
    if args.act in ("demo", "demo-down"):
        from .demo import main as demo

        return demo(["down"] if args.act == "demo-down" else [])
    if args.act == "vm":
        return _vm_act(args)
    lab = Lab()
    if args.act == "changes":
        lines = _machine.changes(_needs.missing(not args.bare))
        print(json.dumps(lines) if args.json else "\n".join(lines))
    elif args.act == "build":
        answer = _build(lab, args.what)
        print(json.dumps(answer, indent=1) if args.json else "\n".join("%s: %s" % item for item in answer.items()))
    elif args.act in ("exec", "kubectl"):
        argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
        done = (
            lab.exec(args.host, argv, check=False, timeout=3600)
            if args.act == "exec"
            else lab.kubectl(*argv, check=False, timeout=3600)
        )
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        return done.returncode
    elif args.act == "down":
        rest = lab.down(args.nodes.split(",") if args.nodes else None)
        if args.json:
            print(json.dumps({"left": rest, "hosts": sorted(lab.hosts())}))
        elif lab.hosts():
            print("still up: %s" % ", ".join(sorted(lab.hosts())))
        else:
            print(
                "\n".join(["the machine differs from before:", *rest] if rest else ["down; the machine is as before"])
            )
        return 1 if rest else 0
    else:
        if args.act == "up":
            lab.up(args.nodes, kube=not args.bare)
        elif args.act == "reset":
            for name in args.nodes.split(","):
                lab.reset_host(name)
        state = lab.status()
        if args.json:
            print(json.dumps(state, indent=1))
        else:
            for name, host in state["hosts"].items():
                print(
                    "%-10s %-13s %-12s %s%s"
                    % (
                        name,
                        host["kind"],
                        host["address"],
                        host["state"],
                        {True: " Ready", False: " NotReady", None: ""}[host["ready"]],
                    )
                )
            print("control plane: %s" % (", ".join(state["control_plane"]) or "none"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
