# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""class Lab: hosts and cluster up, down, reset; what molecule, integration tests and the demo drive."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import _control, _machine, _needs, _pki, _seed
from ._base import (
    CGROUP_VIEW,
    LABEL,
    LOCK,
    NETWORK,
    PREFIX,
    STATE,
    LabError,
    cached,
    digest,
    lock,
    podman,
    put,
    put_json,
    read_json,
    run,
    say,
    until,
)
from ._go import is_built, program
from ._rootfs import host_image, pod_images
from ._seed import DEFAULT_HOSTS, HARDWARE, HOSTS, KINDS, Kind, Npu
from .standins import payload

__all__ = ["Lab", "LabError", "Npu", "payload_dir"]


def payload_dir() -> Path:
    """Folder with the stand-in driver: apt/ (repository), run/ (runfiles), SHA256SUMS.

    Hosts see it at /opt/npu-lab/payload.
    """
    return cached(
        "payload", digest(Path(payload.__file__).parent, Path(__file__).with_name("_image.py")), payload.write
    )


def parse_hosts(text: str | None) -> dict[str, str]:
    """`npu-a,web=containerd17` -> {name: kind}; the known names have a kind of their own."""
    chosen: dict[str, str] = {}
    for item in [part.strip() for part in (text or ",".join(DEFAULT_HOSTS)).split(",") if part.strip()]:
        name, kind = item.partition("=")[::2]
        kind = kind or HOSTS.get(name, "")
        if kind not in KINDS:
            raise LabError(
                "host %s: say its kind as NAME=KIND, one of %s; the names %s have one"
                % (name, ", ".join(KINDS), ", ".join(HOSTS))
            )
        chosen[name] = kind
    return chosen


class Lab:
    """The lab of this checkout. Safe to use from several processes; one lab a machine."""

    kubeconfig = _pki.KUBECONFIG
    inventory = STATE / "inventory.yml"
    podman_executable = STATE / "podman"

    def __init__(self) -> None:
        _machine.settings()

    # -- state

    def _hosts(self) -> dict[str, dict[str, t.Any]]:
        return dict(read_json(STATE / "hosts.json", {}))

    def hosts(self) -> dict[str, dict[str, t.Any]]:
        """{name: {kind, index, address, node}} of the hosts that were made."""
        return self._hosts()

    def _save(self, hosts: t.Mapping[str, t.Any]) -> None:
        put_json(STATE / "hosts.json", hosts)
        self._write_inventory(hosts)

    def _write_inventory(self, hosts: t.Mapping[str, t.Any]) -> None:
        settings = {
            "ansible_connection": "containers.podman.podman",
            "ansible_podman_executable": str(self.podman_executable),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        if any(host["node"] for host in hosts.values()):
            settings["rbln_kubeconfig"] = str(self.kubeconfig)
        tree = {
            "npu_nodes": {
                "hosts": {name: {"npu_lab_kind": host["kind"]} for name, host in hosts.items()},
                "vars": settings,
            }
        }
        head = "# Copyright (c) 2026 The rebellions.npu authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n---\n"
        put(self.inventory, head + json.dumps(tree, indent=2) + "\n")
        lines = [
            "export ANSIBLE_INVENTORY=%s" % self.inventory,
            "export CONTAINERS_CONF=%s" % (STATE / "containers.conf"),
        ]
        if any(host["node"] for host in hosts.values()):
            lines.append("export KUBECONFIG=%s" % self.kubeconfig)
            lines.append('export PATH=%s:"$PATH"' % program("kube"))
        put(STATE / "env", "\n".join(lines) + "\n")
        link = STATE / "payload"
        if not link.is_symlink() or link.readlink() != payload_dir():
            link.unlink(missing_ok=True)
            link.symlink_to(payload_dir())

    # -- life

    def up(
        self,
        hosts: str | t.Mapping[str, str] | None = None,
        kube: bool = True,
        hardware: t.Mapping[str, t.Sequence[Npu]] | None = None,
    ) -> dict[str, t.Any]:
        """Bring the hosts up (text as for --nodes, or {name: kind}); with kube they become Ready nodes. Idempotent.

        A host that differs from what is asked for (kind, node or not, hardware) is replaced. Returns status().
        """
        chosen = dict(hosts) if isinstance(hosts, t.Mapping) else parse_hosts(hosts)
        problems = _needs.obstacles(kube)
        if problems:
            raise LabError(
                "the lab cannot be built here and now:\n" + "\n".join("- " + problem for problem in problems)
            )
        with lock(LOCK):
            self.refuse_foreign()
            _machine.record()
            known = self._hosts()
            for name in sorted(chosen):
                known.setdefault(name, {"index": self._free_index(known)})
                known[name].update(
                    kind=chosen[name],
                    address="%s.0.%d" % (PREFIX, 10 + known[name]["index"]),
                    node=kube and KINDS[chosen[name]].node,
                    npus=[
                        list(npu)
                        for npu in (hardware or {}).get(name, [Npu(*npu) for npu in known[name].get("npus", HARDWARE)])
                    ],
                )
            self._save(known)
            images = {name: host_image(KINDS[kind].flavour) for name, kind in chosen.items()}
            _machine.prepare()
            if kube:
                _control.up()
            with ThreadPoolExecutor(max_workers=max(1, len(chosen))) as pool:
                for done in [pool.submit(self._host_up, name, known[name], images[name]) for name in chosen]:
                    done.result()
        return self.status()

    def down(self, hosts: t.Iterable[str] | None = None) -> list[str]:
        """Remove the named hosts, or all hosts and everything else of the lab.

        Returns what differs from the machine before.
        """
        with lock(LOCK):
            known = self._hosts()
            gone = [name for name in (hosts if hosts is not None else known) if name in known]
            with ThreadPoolExecutor(max_workers=max(1, len(gone))) as pool:
                for done in [pool.submit(self._host_down, name, known[name]) for name in gone]:
                    done.result()
            if gone:
                known = {name: host for name, host in known.items() if name not in gone}
                self._save(known)
            if known:
                return []
            for name in podman(
                "ps", "-a", "--filter", "label=%s=%s" % (LABEL, STATE), "--format", "{{.Names}}", check=False
            ).stdout.split():
                self._remove_container(name)
            _control.down()
            if self._foreign():
                return []
            _machine.release()
            if not _machine.RECORD.exists():
                return []
            deadline = time.monotonic() + 5
            while True:
                _machine.restore()
                rest = _machine.difference(read_json(_machine.RECORD, {}), _machine.snapshot())
                if not rest or time.monotonic() > deadline:
                    break
                time.sleep(0.3)
            for name in ("etcd", "pki", "conf", "run"):
                shutil.rmtree(STATE / name, ignore_errors=True)
            for name in ("hosts.json", "inventory.yml", "env", "kubeconfig", "payload"):
                (STATE / name).unlink(missing_ok=True)
            _machine.RECORD.rename(_machine.LAST)
        return rest

    def status(self) -> dict[str, t.Any]:
        """{hosts: {name: {..., state, ready}}, control_plane: {name: pid}, kubeconfig, inventory}."""
        hosts = {}
        nodes = self.nodes() if _control.alive("kube-apiserver") else {}
        for name, host in self._hosts().items():
            state = podman("inspect", "-f", "{{.State.Status}}", name, check=False).stdout.strip() or "absent"
            hosts[name] = {**host, "state": state, "ready": nodes.get(name, {}).get("ready") if host["node"] else None}
        return {
            "hosts": hosts,
            "control_plane": {name: _control.alive(name) for name in _control.ORDER if _control.alive(name)},
            "kubeconfig": str(self.kubeconfig) if self.kubeconfig.exists() else None,
            "inventory": str(self.inventory) if self.inventory.exists() else None,
        }

    def nodes(self) -> dict[str, dict[str, t.Any]]:
        """{node: {ready, heartbeat, allocatable}} as the API server says; empty when it does not answer."""
        done = _control.kubectl("get", "nodes", "-o", "json", check=False, timeout=20)
        if done.returncode:
            return {}
        answer = {}
        for item in json.loads(done.stdout)["items"]:
            condition = next((one for one in item["status"].get("conditions", []) if one["type"] == "Ready"), {})
            answer[item["metadata"]["name"]] = {
                "ready": condition.get("status") == "True",
                "heartbeat": condition.get("lastHeartbeatTime", ""),
                "allocatable": item["status"].get("allocatable", {}),
            }
        return answer

    # -- use

    def exec(
        self, host: str, argv: str | t.Sequence[str], timeout: float = 120, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (list) or a shell line (text) on a host; LabError with its stderr when check and it fails."""
        words = ["sh", "-c", argv] if isinstance(argv, str) else list(argv)
        way = ["exec", *(["-i"] if stdin is not None else []), host]
        return run([self.podman_executable, *way, *words], timeout, check, stdin)

    def kubectl(
        self, *argv: str | Path, timeout: float = 60, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """kubectl as the cluster's administrator."""
        return _control.kubectl(*argv, timeout=timeout, check=check, stdin=stdin)

    def reset_host(self, host: str, hardware: t.Sequence[Npu] | None = None) -> float:
        """Make the host virgin again: a new container from its image and seed (and a new node). Seconds it took."""
        start = time.monotonic()
        with lock(LOCK):
            known = self._hosts()
            if host not in known:
                raise LabError("no host %s: the lab has %s" % (host, ", ".join(known) or "none"))
            if hardware is not None:
                known[host]["npus"] = [list(npu) for npu in hardware]
                self._save(known)
            image = host_image(KINDS[known[host]["kind"]].flavour)
            self._host_down(host, known[host])
            self._host_up(host, known[host], image)
        return time.monotonic() - start

    def restart_host(self, host: str, timeout: float = 120) -> float:
        """Reboot: everything in /run, /dev and the fake sysfs is lost, the disk stays. Seconds until it is back."""
        start = time.time()
        podman("restart", "-t", "30", host, timeout=timeout)
        self._wait_host(host, self._hosts()[host], start, timeout)
        return time.time() - start

    def install_driver(self, host: str, version: str = payload.VERSIONS[0]) -> None:
        """The stand-in driver by its runfile, for tests that start behind that step."""
        self.exec(host, ["/opt/npu-lab/payload/run/rebellions-x86_64-%s.run" % version, "--silent"], timeout=180)

    def fault(self, host: str, name: str, value: str | None = "1") -> None:
        """Set a fault of the stand-ins (files of /run/npu-lab/fault, see standins/README.md); None takes it away."""
        path = "/run/npu-lab/fault/" + name
        if value is None:
            self.exec(host, ["rm", "-f", path])
        else:
            self.exec(host, ["tee", path], stdin=value + "\n")

    # -- inside

    def _foreign(self) -> dict[str, list[str]]:
        """{state folder of another checkout: names of its hosts}, running or not."""
        listed = podman(
            "ps",
            "-a",
            "--filter",
            "label=" + LABEL,
            "--format",
            '{{.Names}} {{index .Labels "%s"}}' % LABEL,
            check=False,
        ).stdout
        found: dict[str, list[str]] = {}
        for name, _blank, owner in (line.partition(" ") for line in listed.splitlines()):
            if owner.strip() != str(STATE):
                found.setdefault(owner.strip() or "unknown", []).append(name)
        return found

    def refuse_foreign(self) -> None:
        """LabError when hosts of another checkout are up: a machine has one lab.

        Hosts of a lab that was killed as a whole are removed.
        """
        for owner, names in self._foreign().items():
            living = [name for name in names if is_alive(name)]
            if living:
                raise LabError(
                    "host %s belongs to the lab of another checkout (%s): take that one down first" % (living[0], owner)
                )
            for name in names:
                say("%s: removed, it was left of a lab of another checkout (%s) that was killed" % (name, owner))
                self._remove_container(name)
            _machine.release()

    @staticmethod
    def _free_index(known: t.Mapping[str, t.Any]) -> int:
        used = {host.get("index") for host in known.values()}
        return next(number for number in range(1, 100) if number not in used)

    def _wanted(self, host: t.Mapping[str, t.Any], image: str) -> str:
        here = Path(__file__).parent
        parts: list[str | Path] = [
            image,
            json.dumps(host, sort_keys=True),
            here / "_seed.py",
            here / "seed",
            str(payload_dir()),
        ]
        if host["node"]:
            parts.append((_pki.PKI / "ca.crt").read_text())
        return digest(*parts)

    def _host_up(self, name: str, host: dict[str, t.Any], image: str) -> None:
        kind = KINDS[host["kind"]]
        wanted = self._wanted(host, image)
        found = podman(
            "inspect", "-f", '{{.State.Status}} {{index .Config.Labels "npu-lab-seed"}}', name, check=False
        ).stdout.split()
        start = time.time()
        if found and (found[1:] != [wanted] or (found[0] == "running" and not is_alive(name))):
            self._host_down(name, host)
            found = []
        if found[:1] == ["running"]:
            self._routes(host)
            self._wait_host(name, host, 0, 60)
            return
        if not found:
            try:
                self._create(name, host, kind, image, wanted)
            except BaseException:
                self._remove_container(name)
                raise
        podman("start", name)
        self._routes(host)
        self._wait_host(name, host, start, 120)
        say("%s: %s after %.1f s" % (name, "Ready" if host["node"] else "running", time.time() - start))

    def _create(self, name: str, host: dict[str, t.Any], kind: Kind, image: str, wanted: str) -> None:
        options: list[str] = [
            "--privileged",
            "--systemd=always",
            "--tmpfs",
            "/tmp",
            "--network",
            NETWORK,
            "--ip",
            host["address"],
        ]
        if _machine.hybrid():
            options += ["--cgroupns=host", "-v", "%s:/sys/fs/cgroup:rw" % CGROUP_VIEW]
        for path in ["containerd"] + (["docker", "containers"] if kind.flavour == "trixie-engines" else []):
            options += ["-v", "%s-%s:/var/lib/%s" % (name, path, path)]
        if host["node"]:
            options += ["-v", "%s-kubelet:%s" % (name, kind.kubelet_root)]
        binds = {payload_dir(): "/opt/npu-lab/payload"}
        if kind.built:
            home = program("containerd")
            binds.update(
                {home / item: "/usr/local/bin/" + item for item in ("containerd", "containerd-shim-runc-v2", "ctr")}
            )
        if host["node"]:
            binds[program("kube") / "kube"] = "/usr/local/bin/kubelet"
            options += ["-v", "%s:/usr/local/bin/kube-proxy:ro" % (program("kube") / "kube")]
        if host["node"] or kind.flavour == "trixie-engines":
            binds[self._images_dir(pod_images() if host["node"] else pod_images(["busybox"]))] = "/opt/npu-lab/images"
        for source, target in binds.items():
            options += ["-v", "%s:%s:ro" % (source, target)]
        labels = ["--label", "%s=%s" % (LABEL, STATE), "--label", "npu-lab-seed=" + wanted]
        kernel = run(["uname", "-r"]).stdout.strip()
        pki = _pki.node(name, host["index"]) if host["node"] else {}
        seed = _seed.host_seed(
            name, host["index"], kind, host["node"], [Npu(*npu) for npu in host["npus"]], kernel, pki
        )
        identity = podman("create", "--name", name, "--hostname", name, *options, *labels, image).stdout
        put(_machine.IDS / name, identity)
        with tempfile.TemporaryDirectory(prefix="npu-lab-") as folder:
            _seed.write(seed, Path(folder))
            Path(folder).chmod(0o755)
            podman("cp", folder + "/.", name + ":/")

    @staticmethod
    def _images_dir(images: t.Mapping[str, Path]) -> Path:
        """One folder with all the archives, for the bind into the hosts."""

        def make(part: Path) -> None:
            for reference, archive in images.items():
                (part / (reference.split("/")[1].split(":")[0] + ".tar")).hardlink_to(archive)

        return cached(
            "images", digest(json.dumps({key: str(value) for key, value in images.items()}, sort_keys=True)), make
        )

    def _routes(self, host: t.Mapping[str, t.Any]) -> None:
        if host["node"]:
            run(["ip", "route", "replace", _seed.pod_subnet(host["index"]), "via", host["address"]])

    def _wait_host(self, name: str, host: t.Mapping[str, t.Any], since: float, seconds: float) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))

        def up() -> bool:
            asked = self.exec(name, ["systemctl", "is-system-running"], check=False)
            return asked.stdout.strip() in ("running", "degraded")

        def node() -> bool:
            # "Ready" may be 40 s old after a restart: the heartbeat must be of this boot.
            found = self.nodes().get(name, {})
            return bool(found.get("ready")) and found["heartbeat"] >= stamp

        try:
            until(seconds, "%s: systemd" % name, up, 0.2)
            if host["node"]:
                until(seconds, "%s: node Ready" % name, node)
        except LabError as exc:
            words = ["systemctl", "--no-pager", "--failed", "status", "containerd", "kubelet"]
            state = self.exec(name, words, check=False)
            raise LabError("%s\n%s" % (exc, (state.stdout + state.stderr)[-3000:])) from exc

    def _remove_container(self, name: str) -> None:
        identity = podman("inspect", "-f", "{{.Id}}", name, check=False).stdout.strip()
        (_machine.IDS / name).unlink(missing_ok=True)
        if identity:
            podman("rm", "-f", "-v", "-t", "0", name)
        volumes = [name + "-" + path for path in ("containerd", "kubelet", "docker", "containers")]
        podman("volume", "rm", "-f", *volumes, check=False)
        for group in Path("/sys/fs/cgroup").glob("*/libpod_parent/*%s*" % identity) if identity else []:
            for path in sorted(group.rglob("*"), reverse=True):
                if path.is_dir():
                    _rmdir(path)
            _rmdir(group)

    def _host_down(self, name: str, host: t.Mapping[str, t.Any]) -> None:
        if host["node"] and _control.alive("kube-apiserver"):
            _control.kubectl("delete", "node", name, "--ignore-not-found", "--timeout=20s", check=False)
        self._remove_container(name)
        run(["ip", "route", "del", _seed.pod_subnet(host["index"])], check=False)

    @staticmethod
    def built() -> dict[str, bool]:
        """{Go program: is it in the cache}."""
        from ._go import PROGRAMS

        return {name: is_built(name) for name in PROGRAMS}


def is_alive(name: str) -> bool:
    """Whether the container's first process runs.

    podman still says "running" of a container that was killed together with its monitor.
    """
    found = podman("inspect", "-f", "{{.State.Pid}} {{.Id}}", name, check=False).stdout.split()
    try:
        return bool(found) and found[1] in Path("/proc/%s/cgroup" % found[0]).read_text()
    except OSError:
        return False


def _rmdir(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        pass
