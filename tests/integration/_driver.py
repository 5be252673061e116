# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests of the driver's life on a host.

Inputs, the role alone, everything the host says of its driver, a file server, and a count of started programs.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import threading
import typing as t
from pathlib import Path

from tests.integration._hosts import Fingerprint, Hosts, difference, fingerprint
from tests.integration._play import FOLDER, SITE, Data, Run, play, sha256
from tests.lab import Lab
from tests.lab._base import run as command
from tests.lab.lab import payload_dir
from tests.lab.standins.payload import ALL_VERSIONS, deb

OLD, NEW = "3.2.2", "3.4.0"
CHANGE = "Change the driver, and go back when that fails"
NO_BUILD, FAULTY = "3.4.1", "3.4.2"
# As dpkg names them.
PACKAGES = ("librbln", "rbln-tools", "rebellions-fw", "rebellions-kmd")
STATE_DIR = "/var/lib/rbln"

_SEEN = """
import glob, json, os, subprocess
def text(path):
    try:
        with open(path) as stream:
            return stream.read().strip()
    except OSError:
        return None
def record(name):
    found = text("/var/lib/rbln/" + name)
    return None if found is None else json.loads(found)
def out(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True).stdout
form = "${Package} ${db:Status-Want} ${db:Status-Status} ${Version}\\n"
rows = [row.split(" ") for row in out("dpkg-query", "-W", "-f", form).splitlines()]
ours = [row for row in rows if row[0].startswith(("rebellions", "rbln", "librbln")) and row[2] != "not-installed"]
print(json.dumps({
    "packages": {name: version for name, want, status, version in ours if status == "installed"},
    "broken": sorted(
        name + " " + status for name, want, status, version in ours if status not in ("installed", "config-files")
    ),
    "holds": out("apt-mark", "showhold").split(),
    "on_disk": out("modinfo", "-F", "version", "rebellions").strip() or None,
    "loaded": text("/sys/module/rebellions/version") if os.path.isdir("/sys/module/rebellions") else None,
    "devices": sorted(glob.glob("/dev/rbln*")),
    "daemon": out("systemctl", "is-active", "rbln-smd").strip(),
    "journal": record("journal.json"),
    "tainted": record("tainted.json"),
    "refused": [entry["version"] for entry in (record("refused.json") or {}).get("refused", [])],
    "stamp": record("driver.json"),
    "kept": sorted(
        name.split("~")[0]
        for name in (os.listdir("/var/lib/rbln/kept") if os.path.isdir("/var/lib/rbln/kept") else [])
    ),
    "state": sorted(os.listdir("/var/lib/rbln")) if os.path.isdir("/var/lib/rbln") else None,
    "ready": sorted(os.listdir("/run/rbln/validations")) if os.path.isdir("/run/rbln/validations") else [],
}))
"""

# Programs of the package managers; a wrapper in the place of each notes that it was started.
MANAGERS = ("apt", "apt-get", "apt-cache", "apt-mark", "apt-config", "dpkg", "dpkg-query", "dpkg-deb", "dpkg-divert")
_WRAP = """for name in %s; do
path=/usr/bin/$name; [ -e $path ] || continue; [ ! -e $path.real ] || continue
mv $path $path.real
printf '#!/bin/sh\\necho "$0 $*" >>/run/npu-it/managers\\nexec %%s "$@"\\n' $path.real >$path; chmod 755 $path
done; mkdir -p /run/npu-it; : >/run/npu-it/managers"""
_UNWRAP = "cat /run/npu-it/managers; for path in /usr/bin/*.real; do mv $path ${path%.real}; done; rm -rf /run/npu-it"

# What stays on a disk after a removal: records of dpkg and ldconfig, and folders that the stand-in leaves for depmod.
# The stand-in's log is not compared.
LEFT = {
    "~/etc/ld.so.cache",
    "~/var/lib/dpkg/status",
    "~/var/lib/dpkg/status-old",
    "+/var/lib/dpkg/status-old",
    "+/usr/lib/modules/KERNEL/updates",
    "+/usr/lib/modules/KERNEL/updates/dkms",
    "+/var/lib/apt/extended_states",
    "~/var/lib/apt/extended_states",
    # What apt has read of the repository; its next update takes it away.
    "+/var/lib/apt/lists/_opt_npu-lab_payload_apt-signed_._InRelease",
    "+/var/lib/apt/lists/_opt_npu-lab_payload_apt-signed_._Packages",
    "+/var/lib/apt/lists/auxfiles",
    "+/var/lib/apt/lists/lock",
    "+/var/lib/apt/lists/partial",
}


def many(version: str, **more: t.Any) -> Data:
    """Inputs for a driver out of a directory with all the stand-in runfiles."""
    return {
        **SITE,
        "rbln_driver_version": version,
        "rbln_driver_replace": True,
        "rbln_driver_runfile": "%s/run/" % payload_dir(),
        "rbln_driver_runfile_sha256": "",
        "rbln_driver_runfile_digests": {one: sha256("run/rebellions-x86_64-%s.run" % one) for one in ALL_VERSIONS},
        "rbln_driver_cache": str(FOLDER / "cache"),
        "rbln_driver_load_timeout": 20,
        **more,
    }


def extracted(version: str, **more: t.Any) -> Data:
    """The same, the packages out of the runfile through the package manager."""
    return many(version, rbln_driver_runfile_extract=["--extract", "{directory}"], **more)


def packages(version: str, repository: Data | None = None, **more: t.Any) -> Data:
    """Inputs for a driver by package names of a repository."""
    return {
        **SITE,
        "rbln_driver_source": "package",
        "rbln_driver_version": version,
        "rbln_driver_replace": True,
        "rbln_driver_package_names": ["rebellions-driver"],
        "rbln_driver_repository": repository or {},
        "rbln_driver_load_timeout": 20,
        **more,
    }


def signed_source(key: str | Path | None = None, folder: str = "apt-signed") -> Data:
    """The repository of the payload, as hosts see it."""
    return {
        "url": "file:/opt/npu-lab/payload/" + folder,
        "suite": "./",
        "key": str(key or payload_dir() / "keys/rebellions.asc"),
    }


def role_book(name: str = "rbln_driver", tasks_from: str = "main") -> Path:
    """A playbook with one role of the collection alone."""
    path = FOLDER / ("%s-%s.json" % (name, tasks_from))
    task = {
        "name": "Alone",
        "ansible.builtin.import_role": {"name": "rebellions.npu." + name, "tasks_from": tasks_from},
    }
    path.write_text(json.dumps([{"name": name, "hosts": "npu_nodes", "gather_facts": False, "tasks": [task]}]))
    return path


def seen(lab: Lab, host: str) -> Data:
    """Everything that a host says of its driver."""
    data: Data = json.loads(lab.exec(host, ["python3", "-"], stdin=_SEEN).stdout)
    return data


def works(state: Data, version: str, source: str = "runfile", names: t.Sequence[str] = PACKAGES) -> Data:
    """The state of a host that has this driver in every respect, with a stamp and nothing left over.

    Raises AssertionError otherwise.
    """
    assert state["packages"] == {name: version for name in names} and state["broken"] == [], state
    assert (state["on_disk"], state["loaded"], state["daemon"]) == (version, version, "active"), state
    assert state["devices"] == ["/dev/rbln0", "/dev/rbln1"], state
    assert (state["journal"], state["tainted"]) == (None, None), state
    assert (state["stamp"]["version"], state["stamp"]["source"]) == (version, source), state["stamp"]
    assert {row["name"]: row["version"] for row in state["stamp"]["packages"]} == state["packages"], state["stamp"]
    assert "incoming" not in state["state"] and [name for name in state["kept"] if name.startswith(".")] == [], state
    return state


class Drivers:
    """The role rbln_driver on hosts of the lab."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.lab = hosts, hosts.lab

    def run(
        self,
        inputs: t.Mapping[str, Data],
        *args: str,
        name: str = "drivers",
        book: Path | None = None,
        env: Data | None = None,
    ) -> Run:
        """Run the role on the named hosts, each with its own inputs.

        With ansible_host among the inputs, two hosts of the inventory can be one real host.
        """
        for host, row in inputs.items():
            self.hosts.state[row.get("ansible_host", host)] = "dirty"
        return play(
            book or role_book(), self.hosts.inventory(*inputs, host_vars=inputs, name=name), *args, env=env, timeout=240
        )

    def good(self, inputs: t.Mapping[str, Data], **more: t.Any) -> Run:
        return self.run(inputs, **more).good(list(inputs))

    def unchanged(self, inputs: t.Mapping[str, Data], **more: t.Any) -> Run:
        return self.run(inputs, **more).unchanged(list(inputs))

    def remove(self, *hosts: str, **inputs: t.Any) -> Run:
        return self.run({host: {**many(""), **inputs} for host in hosts}, book=role_book(tasks_from="absent"))

    def seen(self, host: str) -> Data:
        return seen(self.lab, host)

    def put(self, host: str, version: str, **inputs: t.Any) -> None:
        """Make sure that a host has this driver.

        The role installs it from a runfile, and the host has no notes about other versions.
        """
        state = self.seen(host)
        stamp = state["stamp"] or {}
        if state["loaded"] == version and stamp.get("version") == version and not state["refused"] and not inputs:
            return
        works_now = self.good({host: many(version, rbln_driver_retry=True, **inputs)})
        assert works_now.code == 0
        self.lab.exec(host, ["rm", "-f", STATE_DIR + "/refused.json"])

    def disk(self, host: str) -> Fingerprint:
        return fingerprint(self.lab, host)

    def rest(self, host: str, before: Fingerprint) -> list[str]:
        """How a disk differs from before in more than LEFT, times of files aside."""
        kernel = self.lab.exec(host, ["uname", "-r"]).stdout.strip()
        plain = {path: [*row[:4], 0] for path, row in before.items()}
        found = [line.replace(kernel, "KERNEL") for line in difference(plain, fingerprint(self.lab, host, times=False))]
        return [line for line in found if line not in LEFT]

    @contextlib.contextmanager
    def managers(self, host: str) -> t.Iterator[list[str]]:
        """Programs of the package manager that are started on a host meanwhile; the list is filled at the end."""
        found: list[str] = []
        self.lab.exec(host, _WRAP % " ".join(MANAGERS))
        try:
            yield found
        finally:
            found += self.lab.exec(host, _UNWRAP).stdout.splitlines()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: t.Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        t.cast("Served", self.server).paths.append(self.path)
        super().do_GET()


class Served(http.server.ThreadingHTTPServer):
    paths: list[str]


@contextlib.contextmanager
def served(folder: Path) -> t.Iterator[tuple[str, list[str]]]:
    """(address that ends in /, list of requested paths) of a server on this machine alone."""
    server = Served(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    server.paths = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield "http://127.0.0.1:%d/" % server.server_address[1], server.paths
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def user_of(
    lab: Lab, host: str, node: str = "/dev/rbln0", seconds: int = 600, program: str = "npu-job"
) -> t.Iterator[int]:
    """Start a process `program` on a host that holds a device open for some seconds; returns its pid there."""
    started = "cp /usr/bin/sleep /tmp/%s; exec 9<%s; setsid /tmp/%s %d >/dev/null 2>&1 & echo $!" % (
        program,
        node,
        program,
        seconds,
    )
    pid = int(lab.exec(host, started).stdout)
    try:
        yield pid
    finally:
        lab.exec(host, "kill -9 %d 2>/dev/null || :" % pid)


def alive(lab: Lab, host: str, pid: int) -> bool:
    return lab.exec(host, "test -e /proc/%d/exe" % pid, check=False).returncode == 0


@contextlib.contextmanager
def service_of(lab: Lab, host: str, node: str = "/dev/rbln1") -> t.Iterator[str]:
    """The name of a service on a host that has a device open."""
    unit = "npu-web.service"
    lab.exec(
        host,
        ["tee", "/etc/systemd/system/" + unit],
        stdin="[Service]\nExecStart=/bin/sh -c 'exec 9<%s; exec sleep infinity'\n" % node,
    )
    lab.exec(host, "systemctl daemon-reload; systemctl start " + unit)
    try:
        yield unit
    finally:
        lab.exec(host, "systemctl stop %s; rm /etc/systemd/system/%s; systemctl daemon-reload" % (unit, unit))


def main_pid(lab: Lab, host: str, unit: str) -> int:
    """Process id of a service, 0 when it does not run."""
    return int(lab.exec(host, ["systemctl", "show", "-p", "MainPID", "--value", unit]).stdout)


def add_package(lab: Lab, host: str, folder: Path, name: str, depends: str) -> None:
    """Install an empty foreign package on a host."""
    fields = {
        "Package": name,
        "Version": "1",
        "Architecture": "all",
        "Maintainer": "nobody <nobody@example.com>",
        "Depends": depends,
        "Description": "test",
    }
    path = folder / (name + ".deb")
    path.write_bytes(deb(fields, {}, {}))
    command(["podman", "cp", str(path), "%s:/tmp/%s.deb" % (host, name)])
    lab.exec(host, ["dpkg", "-i", "/tmp/%s.deb" % name])
