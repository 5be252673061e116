# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hunt for secrets: one of each kind is planted in every place that can hold one, and looked for in all output.

The places are inputs, files of the host and of the controller, processes. Playbooks run with -vvv and --diff, as a user
who becomes root by sudo. Looked at are output and log, the cache of facts, what is written on the controller, every
process while they run, and files and journal of the host afterwards.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tests.integration._play import FOLDER, SITE, STAGED, Data, command, inventory
from tests.lab import Lab

USER = "joe"
# Nothing listens there.
NOWHERE = "127.0.0.1:9"
SERVE = "/root/hunt-serve"
KINDS = (
    "http_proxy", "https_proxy", "mok_password", "license_key", "registry_auth", "policy_env", "kube_token", "kube_key",
    "runfile_user", "runfile_query", "repository_user", "bundle_user", "bundle_query", "pull_user", "pull_variable",
    "containerd_password", "containerd_token", "containerd_header", "docker_proxy", "docker_config", "crio_token",
    "unit_environment", "apt_proxy", "apt_source", "apt_auth", "etc_environment", "netrc", "kubelet_flags",
    "installer_says", "process_option", "inventory_word", "pem_key",
)  # fmt: skip
# Programs that get a secret by their own interface, from a process of root: apt's worker has the proxy in its
# environment, and the vendor's installer has its arguments.
MAY_KNOW = re.compile(
    rb"^/usr/lib/apt/methods/|^apt-get\0|^timeout\0[^\0]*\0[^\0]*\0apt-get\0|^/proc/self/fd/|^/bin/sh\0/proc/self/fd/"
)
# Runs on the host: one line of JSON with path, mode and what is around a secret for each file where programs write.
_FILES = """
import base64, json, os, re, stat, sys
pattern = re.compile(base64.b64decode(sys.argv[1]))
leave = ("/opt/npu-lab", "/run/containerd", "/var/log/journal")
for top in sys.argv[2:]:
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(folder, name) not in leave]
        for name in files:
            path = os.path.join(folder, name)
            try:
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode) or info.st_size > 64 << 20:
                    continue
                with open(path, "rb") as stream:
                    data = stream.read()
            except OSError:
                continue
            found = pattern.search(data)
            part = data[max(0, found.start() - 60):found.end() + 10] if found else b""
            print(json.dumps([path, stat.S_IMODE(info.st_mode), base64.b64encode(part).decode()]))
"""
PLACES = (
    "/etc", "/run", "/root", "/home", "/tmp", "/opt", "/usr/local", "/usr/lib/systemd", "/var/lib/rbln",
    "/var/lib/rebellions-npu", "/var/lib/apt", "/var/lib/dpkg", "/var/log", "/var/cache", "/var/tmp",
)  # fmt: skip


@dataclass(frozen=True)
class Leak:
    kind: str
    place: str
    around: str

    def __str__(self) -> str:
        return "%-20s %-28s %s" % (self.kind, self.place, self.around)


def secrets() -> dict[str, str]:
    """{kind: secret}, different in each call; with characters that addresses and JSON write in another way."""
    seed = os.urandom(8)
    found = {}
    for kind in KINDS:
        word = hashlib.sha256(seed + kind.encode()).hexdigest()[:18]
        found[kind] = "Zq" + word if kind == "pem_key" else "Zq%s+x" % word
    return found


def forms(secret: str) -> set[str]:
    """How a secret may be written: as it is, in an address, and what all its forms in base64 have in common."""
    found = {secret, quote(secret, safe=""), secret.replace("+", "\\u002b")}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + secret.encode()).decode()
        found.add(text[4 : len(text) - 4])
    return found


@dataclass
class Hunt:
    """Secrets planted on one host of the lab, and what has been found of them."""

    lab: Lab
    host: str
    secrets: dict[str, str] = field(default_factory=secrets)
    leaks: list[Leak] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    processes: int = 0
    files: int = 0

    def __post_init__(self) -> None:
        self.folder = FOLDER / "secrets"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.needles = {form.encode(): kind for kind, secret in self.secrets.items() for form in forms(secret)}
        self.pattern = re.compile(b"|".join(map(re.escape, sorted(self.needles, key=len, reverse=True))))
        self.planted: set[str] = set()

    def quoted(self, kind: str) -> str:
        return quote(self.secrets[kind], safe="")

    # -- places

    def plant_host(self) -> None:
        """A user with sudo, and the secrets of the files of the host."""
        s, q = self.secrets, self.quoted
        auth = base64.b64encode(b"svc:" + s["docker_config"].encode()).decode()
        cri = 'plugins."io.containerd.grpc.v1.cri".registry.configs."r.example"'
        key = "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n" % s["pem_key"]
        files = {
            "/etc/sudoers.d/hunt": "%s ALL=(ALL) NOPASSWD:ALL\n" % USER,
            "/etc/containerd/config.toml": "version = 2\n[%s.auth]\nusername = 'svc'\npassword = '%s'\n"
            "identitytoken = '%s'\n" % (cri, s["containerd_password"], s["containerd_token"]),
            "/etc/containerd/certs.d/r.example/hosts.toml": '[host."https://r.example".header]\n'
            'Authorization = ["Bearer %s"]\n' % s["containerd_header"],
            "/etc/docker/daemon.json": json.dumps(
                {"proxies": {"http-proxy": "http://svc:%s@%s" % (q("docker_proxy"), NOWHERE)}}
            ),
            "/root/.docker/config.json": json.dumps({"auths": {"r.example": {"auth": auth}}}),
            "/etc/crio/crio.conf.d/10-hunt.conf": "[crio.image]\n# token = '%s'\n" % s["crio_token"],
            "/etc/systemd/system/containerd.service.d/hunt.conf": "[Service]\n"
            'Environment="HTTPS_PROXY=http://svc:%s@%s"\n' % (q("unit_environment").replace("%", "%%"), NOWHERE),
            "/etc/systemd/system/docker.service.d/hunt.conf": "[Service]\n"
            'Environment="API_TOKEN=%s"\n' % s["unit_environment"],
            "/etc/apt/apt.conf.d/95hunt": 'Acquire::https::Proxy "http://svc:%s@%s/";\n' % (q("apt_proxy"), NOWHERE),
            "/etc/apt/sources.list.d/hunt.list": "deb [trusted=yes] http://svc:%s@%s/debian ./\n"
            % (q("apt_source"), NOWHERE),
            "/etc/apt/auth.conf.d/hunt.conf": "machine %s login svc password %s\n" % (NOWHERE, s["apt_auth"]),
            "/etc/environment": "HF_TOKEN=%s\n" % s["etc_environment"],
            "/root/.netrc": "machine r.example login svc password %s\n" % s["netrc"],
            "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--bootstrap-token=%s\n" % s["kubelet_flags"],
            "/etc/ssl/private/hunt.pem": key,
            SERVE: "exec -a 'serve --api-key=%s' sleep 600 </dev/rbln0\n" % s["process_option"],
        }
        script = "id %s >/dev/null 2>&1 || useradd -m -s /bin/bash %s\n" % (USER, USER)
        for path, text in files.items():
            self.planted.add(path)
            script += "mkdir -p %s\nprintf '%%s' '%s' >'%s'\n" % (
                os.path.dirname(path), text.replace("'", "'\\''"), path
            )  # fmt: skip
            script += "chmod %s %s\n" % ("0440" if "sudoers" in path else "0644", path)
        script += "systemctl daemon-reload\nsystemctl restart containerd docker || :\n"
        self.lab.exec(self.host, ["sh", "-es"], stdin=script)

    def plant_controller(self) -> Data:
        """Files of the controller with secrets; the inputs that name them."""
        s = self.secrets
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": "https://" + NOWHERE}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "k", "user": "u"}},
                {"name": "half", "context": {"cluster": "k", "user": "h"}},
            ],
            "users": [
                {"name": "u", "user": {"token": s["kube_token"]}},
                {"name": "h", "user": {"client-key-data": base64.b64encode(s["kube_key"].encode()).decode()}},
            ],
        }  # fmt: skip
        policy = {
            "apiVersion": "rebellions.ai/v1beta1", "kind": "RBLNClusterPolicy", "metadata": {"name": "p"},
            "spec": {"devicePlugin": {"env": [{"name": "API_TOKEN", "value": s["policy_env"]}]}},
        }  # fmt: skip
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        (self.folder / "policy.yml").write_text(json.dumps(policy))
        return {
            "rbln_kubeconfig": str(self.folder / "kubeconfig"),
            "rbln_operands_policy_files": [str(self.folder / "policy.yml")],
            "rbln_image_pull_secret": {"auths": {"r.example": {
                "auth": base64.b64encode(b"svc:" + s["registry_auth"].encode()).decode()}}},
        }  # fmt: skip

    def inputs(self) -> Data:
        """What every run has."""
        return {
            **SITE,
            "ansible_user": USER,
            "rbln_http_proxy": "http://svc:%s@%s" % (self.quoted("http_proxy"), NOWHERE),
            "rbln_https_proxy": "http://svc:%s@%s" % (self.quoted("https_proxy"), NOWHERE),
            "rbln_driver_mok_password": self.secrets["mok_password"],
            "our_password": self.secrets["inventory_word"],
        }

    def installer(self) -> Data:
        """Inputs of an installer that fails and says too much."""
        path = self.folder / "loud.run"
        said = "password=%s\\nAuthorization: Bearer %s" % ((self.secrets["installer_says"],) * 2)
        path.write_text("#!/bin/sh\nprintf '%s\\n'\nexit 3\n" % said)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return {
            "rbln_driver_version": "3.4.0",
            "rbln_driver_replace": True,
            "rbln_driver_runfile": str(path),
            "rbln_driver_runfile_sha256": digest,
            "rbln_driver_runfile_args": ["--silent", "--license-key=" + self.secrets["license_key"]],
        }

    @contextlib.contextmanager
    def user_of_npu(self) -> t.Iterator[None]:
        """A process of the host that uses an NPU and has a secret in its arguments."""
        self.lab.exec(self.host, ["systemd-run", "--quiet", "--unit=hunt-user", "bash", SERVE])
        try:
            yield
        finally:
            self.lab.exec(self.host, ["systemctl", "stop", "hunt-user"], check=False)

    # -- runs

    def play(
        self, name: str, book: str | Path, code: int, *words: str, args: t.Sequence[str] = (), **variables: t.Any
    ) -> None:
        """One run, all of whose output and processes are searched; noted when it ends in another way than expected.

        `words` have to be in its output, line ends aside: the run has to come to where a secret could be told.
        """
        where = inventory(self.folder / (name + ".json"), [self.host], {**self.inputs(), **variables})
        where.chmod(0o600)
        argv, settings = command(book, where, "-vvv", "--diff", *args)
        settings.update(
            ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default",
            ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
            ANSIBLE_CACHE_PLUGIN="ansible.builtin.jsonfile",
            ANSIBLE_CACHE_PLUGIN_CONNECTION=str(self.folder / "facts"),
            ANSIBLE_LOG_PATH=str(self.folder / (name + ".log")),
            ANSIBLE_REMOTE_TMP="~/.ansible/tmp",
            NPU_IT_LOG="",
        )
        stop = threading.Event()
        watch = threading.Thread(target=self._watch, args=(stop,))
        watch.start()
        try:
            done = subprocess.run(
                argv, cwd=STAGED, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=600, check=False,
            )  # fmt: skip
        finally:
            stop.set()
            watch.join()
        out = done.stdout + done.stderr
        self._look("output of " + name, out.encode())
        told = " ".join(out.split())
        if done.returncode != code or not all(word in told for word in words):
            said = (name, done.returncode, code, words, out[-2500:])
            self.surprises.append("%s ended with %d, not %d and %r:\n%s" % said)

    def _watch(self, stop: threading.Event) -> None:
        """Search every process until `stop`: arguments of all, environments of all but root's own modules."""
        seen: set[tuple[str, bytes]] = set()
        own = str(os.getpid())
        while not stop.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                if pid == own:
                    continue
                try:
                    line = Path("/proc", pid, "cmdline").read_bytes()
                    if (pid, line) in seen or not line:
                        continue
                    seen.add((pid, line))
                    owner = os.stat("/proc/" + pid).st_uid
                    environ = Path("/proc", pid, "environ").read_bytes()
                except OSError:
                    continue
                if MAY_KNOW.match(line) or line.startswith(b"serve --api-key="):
                    continue
                self._look("arguments of a process", line)
                escalation = b"BECOME-SUCCESS" in line or line.startswith((b"sudo", b"su\0"))
                if owner != 0 or escalation:
                    self._look("environment of a process", environ)
            self.processes = len(seen)
            time.sleep(0.01)

    # -- afterwards

    def look_around(self) -> list[Leak]:
        """Search what the runs have left on the controller and on the host; every leak so far."""
        names = {"kubeconfig", "policy.yml", "loud.run"}
        for path in sorted(self.folder.rglob("*")):
            # An inventory is where the secrets come from.
            if path.is_file() and path.name not in names and path.suffix != ".json" or path.parent.name == "facts":
                self._look("controller: " + path.relative_to(self.folder).as_posix(), path.read_bytes())
                self.files += 1
        said = self.lab.exec(self.host, "journalctl --no-pager -o cat; dmesg 2>/dev/null || :").stdout
        assert "sudo" in said, "the journal of the host tells of no sudo"
        self._look("journal of the host", said.encode())
        for path, mode, data in self._files():
            self.files += 1
            if path in self.planted:
                continue
            # A rollback needs the arguments of the kept installer.
            if mode & 0o077 == 0 and path.startswith("/var/lib/rbln/kept/"):
                continue
            self._look("host: " + path, data)
        return self.leaks

    def _files(self) -> t.Iterator[tuple[str, int, bytes]]:
        """(path, mode, content) of what lies where programs write."""
        pattern = base64.b64encode(self.pattern.pattern).decode()
        out = self.lab.exec(self.host, ["python3", "-c", _FILES, pattern, *PLACES]).stdout
        for line in out.splitlines():
            path, mode, part = json.loads(line)
            yield path, mode, base64.b64decode(part)

    def _look(self, place: str, data: bytes) -> None:
        for found in self.pattern.finditer(data):
            kind = self.needles[found.group(0)]
            if any((one.kind, one.place) == (kind, place) for one in self.leaks):
                continue
            around = data[max(0, found.start() - 90) : found.end() + 10].decode("utf-8", "replace")
            self.leaks.append(Leak(kind, place, " ".join(around.replace("\0", " ").split())))
