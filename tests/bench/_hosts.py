# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the benchmark: one server of the lab, with a user of its own for each host name.

The first hundred names have an address of their own too, and names beyond them share those addresses. To ssh and
Ansible there are as many hosts as names: each has its own connections, executions and results.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

from tests.lab import Lab
from tests.lab._base import PREFIX, cached, digest, podman, run
from tests.lab._rootfs import FLAVOURS, Flavour, _mmdebstrap
from tests.lab._seed import KINDS
from tests.tools.paths import WORK

FOLDER = WORK / "bench"
SERVER, KIND = "bench", "containerd17"
USER, HOME, UID = "bench", "/var/lib/bench", 991
# Names in all, most hosts of a round with its contenders, and those of counts and quick rounds.
EVERY, MOST, COUNT = 500, 100, 10
ALL = tuple("bench-%d" % number for number in range(1, EVERY + 1))
NAMES = ALL[:COUNT]
ADDRESSES = {name: "%s.0.%d" % (PREFIX, 101 + number % MOST) for number, name in enumerate(ALL)}
LOG = "/run/bench-sshd.log"

# On all addresses at once: sshd takes only sixteen by name.
_SSHD = """ListenAddress 0.0.0.0
HostKey /etc/ssh/bench_host
AuthorizedKeysFile /etc/ssh/bench_keys
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
LogLevel VERBOSE
MaxStartups 200
MaxSessions 100
Subsystem sftp internal-sftp
"""
_UNIT = """[Service]
ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/bench_config
StandardError=append:%s
"""


def _server_program(part: Path) -> None:
    """sshd and the libraries it needs, of the host's own release, without its maintainer scripts."""
    release = FLAVOURS[KINDS[KIND].flavour].suite
    keep = (
        'cd "$1" && mkdir .keep && for f in usr/sbin/sshd usr/lib/openssh usr/lib/*-linux-gnu/lib*.so*; '
        'do [ ! -e "$f" ] || cp -a --parents "$f" .keep; done'
    )
    drop = 'cd "$1" && find . -mindepth 1 -maxdepth 1 ! -name .keep -exec rm -rf {} + && mv .keep/usr . && rmdir .keep'
    _mmdebstrap(Flavour(release, ("openssh-server",)), part / "sshd.tar", "extract", keep, drop)


# What the installed host tool starts for one observation: the names of the programs.
_PROGRAMS = """
import glob, json, sys
sys.path.insert(0, glob.glob("/usr/local/libexec/rebellions-npu/lib/*/")[0])
from npu_host._base.rebellions import PROFILE
from npu_host._host.host import Host
from npu_host._observe.observe import answer
started, run = [], Host.run
def noted(host, argv, *rest, **more):
    started.append(argv[0].rpartition("/")[2])
    return run(host, argv, *rest, **more)
Host.run = noted
assert "ansible_facts" in answer(PROFILE, {})
print(json.dumps(started))
"""
Result = t.TypeVar("Result")


class Hosts:
    """One use of the server: `start()`, then names that answer; `virgin()` makes it fresh, `stop()` takes it away."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.config = FOLDER / "ssh_config"

    def start(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.lab.up({SERVER: KIND}, kube=False)
        self.virgin()

    def virgin(self) -> None:
        """A new container without driver, specification and configuration, with ssh and the user."""
        self.lab.reset_host(SERVER)
        for name in ("host", "user"):
            if not (FOLDER / name).exists():
                run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", FOLDER / name])
        archive = (
            cached("sshd", digest(_server_program.__doc__ or "", FLAVOURS[KINDS[KIND].flavour].suite), _server_program)
            / "sshd.tar"
        )
        with archive.open("rb") as stream:
            # /usr/lib may be reached by a link; what the host has stays.
            unpack = [
                "podman",
                "exec",
                "-i",
                SERVER,
                "tar",
                "-x",
                "--skip-old-files",
                "--keep-directory-symlink",
                "-C",
                "/",
            ]
            subprocess.run(unpack, stdin=stream, check=True, timeout=120, capture_output=True)
        files = {
            "/etc/ssh/bench_config": _SSHD,
            "/etc/ssh/bench_host": (FOLDER / "host").read_text(),
            "/etc/ssh/bench_keys": (FOLDER / "user.pub").read_text(),
            "/etc/systemd/system/bench-sshd.service": _UNIT % LOG,
            "/etc/sudoers.d/bench": "%s ALL=(ALL) NOPASSWD: ALL\n" % USER,
        }
        self.lab.exec(SERVER, "mkdir -p /etc/ssh /run/sshd %s" % HOME)
        for path, text in files.items():
            self.lab.exec(SERVER, ["tee", path], stdin=text)
        lines = ["chmod 600 /etc/ssh/bench_host", "chmod 440 /etc/sudoers.d/bench"]
        lines += [
            "echo 'sshd:x:990:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd",
        ]
        lines += ["echo '%s:*:19000::::::' >>/etc/shadow" % user for user in ("sshd", USER)]
        lines += [
            "chown %d:65534 %s" % (UID, HOME),
            *("ip address add %s/24 dev eth0" % address for address in dict.fromkeys(ADDRESSES.values())),
        ]
        # Names of one user: sudo knows the first of them.
        accounts = "".join("%s:x:%d:65534::%s:/bin/sh\n" % (name, UID, HOME) for name in (USER, *ALL))
        self.lab.exec(SERVER, ["tee", "-a", "/etc/passwd"], stdin=accounts)
        self.lab.exec(
            SERVER, "set -e\nldconfig\n%s\nsystemctl daemon-reload\nsystemctl start bench-sshd" % "\n".join(lines)
        )
        key = " ".join((FOLDER / "host.pub").read_text().split()[:2])
        (FOLDER / "known_hosts").write_text(
            "".join("%s %s\n" % (address, key) for address in dict.fromkeys(ADDRESSES.values()))
        )
        settings = [
            "IdentityFile %s" % (FOLDER / "user"),
            "IdentitiesOnly yes",
            "UserKnownHostsFile %s" % (FOLDER / "known_hosts"),
        ]
        settings += ["GlobalKnownHostsFile /dev/null", "StrictHostKeyChecking yes", "BatchMode yes", "LogLevel ERROR"]
        entries = ["Host %s\n  HostName %s\n  User %s" % (name, where, name) for name, where in ADDRESSES.items()]
        entries.append("Host *\n  " + "\n  ".join(settings))
        self.config.write_text("\n".join(entries) + "\n")
        # systemd takes sshd for started before it listens.
        run(["ssh", "-F", self.config, "-o", "ConnectionAttempts=20", ALL[-1], "true"], timeout=60)

    def stop(self) -> None:
        self.lab.down([SERVER])

    def programs(self) -> list[str]:
        """The programs that one observation starts on a host on which nothing is to be done."""
        found: list[str] = json.loads(self.lab.exec(SERVER, ["python3", "-ISE", "-"], stdin=_PROGRAMS).stdout)
        return found

    def cpu(self) -> float:
        """Seconds of CPU that everything on the server has used since its start."""
        pid = podman("inspect", "-f", "{{.State.Pid}}", SERVER).stdout.strip()
        groups = [line.split(":", 2) for line in Path("/proc/%s/cgroup" % pid).read_text().splitlines()]
        for _number, controllers, path in groups:
            usage = Path("/sys/fs/cgroup/cpuacct", path.lstrip("/"), "cpuacct.usage")
            if "cpuacct" in controllers.split(",") and usage.exists():
                return int(usage.read_text()) / 1e9
        path = next(path for number, _controllers, path in groups if number == "0").removesuffix("/init.scope")
        text = Path("/sys/fs/cgroup", path.lstrip("/"), "cpu.stat").read_text()
        return int(re.findall(r"^usage_usec (\d+)$", text, re.M)[0]) / 1e6

    def executions(self, play: t.Callable[[], Result]) -> tuple[Result, dict[str, int]]:
        """What `play` returns, and {host name: commands that sshd started for it} while it ran."""
        before = len(self.lab.exec(SERVER, ["cat", LOG]).stdout)
        result = play()
        return result, sessions(self.lab.exec(SERVER, ["cat", LOG]).stdout[before:])


def sessions(log: str) -> dict[str, int]:
    """{host name: commands that sshd started for it}, by the user: two connections at once may have one source port."""
    count = dict.fromkeys(ALL, 0)
    for name in re.findall(r"^Starting session: .* for (\S+) from \S+ port \d+ id \d+", log, re.M):
        count[name] += 1
    return count


def fresh_folder(path: Path) -> Path:
    """An empty folder: no connection of an earlier round is found there."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
