# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab changes on the machine it runs on: recorded before, restored after, comparable."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import typing as t
from pathlib import Path

from ._base import (
    CGROUP_VIEW,
    GATEWAY,
    HOST_CIDR,
    LABEL,
    NETWORK,
    PREFIX,
    STATE,
    LabError,
    podman,
    put,
    put_json,
    read_json,
    run,
)

# sysctl -> value the lab sets, or None where the kubelet sets it (only recorded and restored)
SYSCTLS: dict[str, str | None] = {
    "net.ipv4.ip_forward": "1",
    "fs.inotify.max_user_instances": "8192",
    "fs.inotify.max_user_watches": "524288",
    "vm.overcommit_memory": None,
    "vm.panic_on_oom": None,
    "kernel.panic": None,
    "kernel.panic_on_oops": None,
}
BRIDGE_MAC = "02:4e:50:55:00:01"
RECORD = STATE / "machine-before.json"
# The record of a lab that is down.
LAST = STATE / "machine-before-last.json"
_CGROUP = Path("/sys/fs/cgroup")
# A file for each host, named as the host: the id of its container.
IDS = STATE / "ids"
# An execution by podman starts podman twice and conmon once around the one command that does it: runc's, which this
# asks itself. Everything else, and every execution with further options, is podman's.
_PODMAN = """#!/bin/sh
case "$1 $2" in
  "exec -i") host=$3 words=3 ;;
  "exec -"*) host= ;;
  "exec "*) host=$2 words=2 ;;
  *) host= ;;
esac
id=
[ -z "$host" ] || read -r id 2>/dev/null <"%(ids)s/$host"
if [ -n "$id" ] && [ -e "%(runc)s/$id/state.json" ]; then
  [ "$2" = -i ] || exec </dev/null
  shift "$words"
  exec runc exec "$id" "$@"
fi
CONTAINERS_CONF=%(conf)s exec %(podman)s "$@"
"""


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def changes(packages: t.Iterable[str]) -> list[str]:
    """What `up` will change on this machine, one line each; what is already so is left out.

    packages: what is to be installed.
    """
    lines = ["install the Debian package %s" % name for name in packages]
    now = {name: _sysctl(name).read_text().strip() for name in SYSCTLS if _sysctl(name).exists()}
    lines += [
        "sysctl %s: %s becomes %s" % (name, now[name], value)
        for name, value in SYSCTLS.items()
        if value is not None and now.get(name, value) != value
    ]
    may = ["%s from %s" % (name, now[name]) for name, value in SYSCTLS.items() if value is None and name in now]
    lines.append("sysctls that the kubelet may change: %s" % ", ".join(may))
    if hybrid() and not CGROUP_VIEW.is_mount():
        lines.append("mount a private view of the cgroup hierarchies on %s" % CGROUP_VIEW)
    if podman_network() is None:
        lines.append(
            "podman network %s (%s) with a bridge, its firewall rules, and a route for each host's pods in %s.0.0/16"
            % (NETWORK, HOST_CIDR, PREFIX)
        )
    return lines


def hybrid() -> bool:
    """True when the machine's cgroup controllers are those of version 1."""
    return (_CGROUP / "memory").is_dir()


def _output(*argv: str) -> str:
    """What a command says; nothing where the command is not installed yet."""
    return run(argv, check=False).stdout if shutil.which(argv[0]) else ""


def snapshot() -> dict[str, t.Any]:
    """The machine as far as the lab may change it: compare the one before with the one after."""
    # podman binds its storage on itself and takes that back as it likes, with any of its commands.
    mounts = sorted(
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if not line.split()[4].endswith("/storage/overlay")
    )
    groups = sorted(
        str(path)
        for pattern in ("*/libpod_parent", "*/libpod_parent/*")
        for path in _CGROUP.glob(pattern)
        if path.is_dir()
    )
    links = sorted(item["ifname"] for item in json.loads(_output("ip", "-j", "link") or "[]"))
    routes = json.loads(_output("ip", "-j", "route") or "[]")
    listed = _output("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${binary:Package} ${Version}\n")
    return {
        "containers": sorted(_output("podman", "ps", "-a", "--format", "{{.Names}}").split()),
        "volumes": sorted(_output("podman", "volume", "ls", "-q").split()),
        "networks": sorted(_output("podman", "network", "ls", "--format", "{{.Name}}").split()),
        "mounts": mounts,
        "cgroups": groups,
        "links": links,
        "routes": sorted(" ".join(str(item.get(key)) for key in ("dst", "dev", "gateway")) for item in routes),
        "firewall": sorted(
            "%s %s" % (command, rule) for command in ("iptables", "ip6tables") for rule in _rules(command)
        ),
        "sysctls": {name: _sysctl(name).read_text().strip() for name in SYSCTLS if _sysctl(name).exists()},
        "packages": dict(line.split()[1:3] for line in listed.splitlines() if line.startswith("ii ")),
        "processes": sorted(processes()),
    }


def _rules(command: str) -> list[str]:
    """`-t TABLE RULE` of the machine in order; empty tables and the policies of built-in chains are no rules."""
    if not shutil.which(command + "-save"):
        return []
    found, table = [], ""
    for line in run([command + "-save"], check=False).stdout.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A ") or (line.startswith(":") and " - " in line):
            found.append("-t %s %s" % (table, line if line.startswith("-A") else "-N " + line[1:].split()[0]))
    return found


def _drop_rules(before: t.Collection[str]) -> None:
    """Take away what podman's network left: its rules and chains that were not there before."""
    for command in ("iptables", "ip6tables"):
        new = [rule for rule in _rules(command) if "NETAVARK" in rule and "%s %s" % (command, rule) not in before]
        for rule in sorted(new, key=lambda text: " -N " in text):
            words = shlex.split(rule)
            run([command, *words[:2], "-D" if words[2] == "-A" else "-X", *words[3:]], check=False)


def processes() -> dict[str, int]:
    """{command: pid} of the daemons started from this checkout's state folder."""
    found = {}
    for path in (STATE / "run").glob("*.pid"):
        pid = int(path.read_text() or 0)
        if pid and Path("/proc/%d" % pid).is_dir():
            found[path.stem] = pid
    return found


def record() -> None:
    """Keep the state before the first change; a record that is there stays."""
    if not RECORD.exists():
        put_json(RECORD, snapshot())


def restore() -> None:
    """Put the recorded sysctls back and take away what podman leaves behind."""
    before = read_json(RECORD, {})
    if not _output("podman", "ps", "-a", "-q").strip():
        _drop_rules(before.get("firewall", []))
    for path in sorted(_CGROUP.glob("*/libpod_parent/*")) + sorted(_CGROUP.glob("*/libpod_parent")):
        if path.is_dir() and str(path) not in before.get("cgroups", []):
            with contextlib.suppress(OSError):
                path.rmdir()
    for name, value in before.get("sysctls", {}).items():
        path = _sysctl(name)
        if path.read_text().strip() != value:
            path.write_text(value + "\n")


def difference(before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> list[str]:
    """What is not as it was, one line each; packages that were installed for the lab are told, not removed."""
    lines = []
    for key, old in before.items():
        new = after.get(key)
        if isinstance(old, dict):
            lines += [
                "%s: %s was %s, is %s" % (key, name, value, (new or {}).get(name, "gone"))
                for name, value in old.items()
                if (new or {}).get(name) != value
            ]
            lines += ["%s: %s %s is new" % (key, *row) for row in (new or {}).items() if row[0] not in old]
        else:
            lines += ["%s: %s is new" % (key, item) for item in new or [] if item not in old]
            lines += ["%s: %s is gone" % (key, item) for item in old if item not in (new or [])]
    return lines


def settings() -> None:
    """containers.conf and the podman command that inventories name."""
    import resource

    nofile = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1] & 0x7FFFFFFF, 1048576)
    nofile = nofile if nofile > 1024 else 1048576
    conf = '[containers]\ndefault_ulimits = ["nofile=%d:%d", "nproc=4096:4096"]\npids_limit = 0\n' % (nofile, nofile)
    conf += '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    put(STATE / "containers.conf", conf)
    # The folder of the one that is written here may be on PATH.
    path = os.pathsep.join(one for one in os.get_exec_path() if one != str(STATE))
    podman_program = shutil.which("podman", path=path) or "podman"
    put(STATE / "podman", executor(IDS, Path("/run/runc"), STATE / "containers.conf", podman_program), 0o755)


def executor(ids: Path, runc: Path, conf: Path, podman_program: str) -> str:
    """A shell script in the place of podman, whose executions of plain commands are runc's; `runc` is its state."""
    return _PODMAN % {"ids": ids, "runc": runc, "conf": conf, "podman": podman_program}


def podman_network() -> str | None:
    """The bridge of the lab's network, or None."""
    if not shutil.which("podman"):
        return None
    done = podman("network", "inspect", NETWORK, check=False)
    if done.returncode:
        return None
    first = json.loads(done.stdout)[0]
    return first.get("network_interface") or first["NetworkInterface"]


def prepare() -> None:
    """Sysctls, the cgroup view and the network; safe to repeat."""
    for name, value in SYSCTLS.items():
        path = _sysctl(name)
        if value is not None and path.exists() and path.read_text().strip() != value:
            path.write_text(value + "\n")
    if hybrid() and not CGROUP_VIEW.is_mount():
        # A systemd in a container remounts its /sys/fs/cgroup read-only: that must be its own tmpfs, not the machine's.
        CGROUP_VIEW.mkdir(exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", "mode=755,size=4m", "npu-cgroup", CGROUP_VIEW])
        for path in sorted(_CGROUP.iterdir()):
            if path.is_dir() and path.is_mount():
                (CGROUP_VIEW / path.name).mkdir()
                run(["mount", "--bind", path, CGROUP_VIEW / path.name])
    bridge = podman_network()
    if bridge is None:
        taken = [
            route["dst"]
            for route in json.loads(run(["ip", "-j", "route"]).stdout)
            if str(route.get("dst", "")).startswith(PREFIX + ".")
        ]
        if taken:
            raise LabError(
                "this machine already routes %s: choose another network with NPU_LAB_PREFIX=10.NN" % ", ".join(taken)
            )
        podman(
            "network",
            "create",
            "--subnet",
            HOST_CIDR,
            "--gateway",
            GATEWAY,
            "--disable-dns",
            "--label",
            LABEL + "=1",
            NETWORK,
        )
        bridge = podman_network()
        assert bridge is not None
    if not Path("/sys/class/net", bridge).exists():
        # Left alone, the bridge takes the lowest address of its ports, and the other hosts lose their gateway whenever
        # a host comes or goes.
        run(["ip", "link", "add", bridge, "address", BRIDGE_MAC, "type", "bridge"])
    run(["ip", "addr", "replace", GATEWAY + "/24", "dev", bridge])
    run(["ip", "link", "set", bridge, "up"])


def release() -> None:
    """Undo `prepare`; only when no host is left."""
    bridge = podman_network()
    if bridge is not None:
        podman("network", "rm", NETWORK, check=False)
        if Path("/sys/class/net", bridge).exists():
            run(["ip", "link", "del", bridge], check=False)
    if CGROUP_VIEW.is_mount():
        run(["umount", "-R", CGROUP_VIEW], check=False)
    if CGROUP_VIEW.is_dir() and not CGROUP_VIEW.is_mount():
        CGROUP_VIEW.rmdir()
