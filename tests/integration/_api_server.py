# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API for tests: real etcd, API server and DaemonSet controller.

Its nodes have no kubelets; tests make the pods ready by hand.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import typing as t
from pathlib import Path

from tests.lab._base import end, patience, run, until
from tests.lab._go import program

Data = t.Dict[str, t.Any]
NAMESPACE = "rbln-system"
RESOURCE = "rebellions.ai/npu"
CONTROLLERS = (
    "daemonset-controller", "endpointslice-controller", "namespace-controller", "garbage-collector-controller",
)  # fmt: skip
# The tag of images that no kubelet can pull.
NO_IMAGE = "not-there"


def patient(seconds: int) -> int:
    """What a run may wait for the server and its controllers: longer on a loaded machine."""
    return round(seconds * patience())


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class ApiServer:
    """`users` are names with a token of the same name; `admin` may do everything, the others what RBAC gives them.

    `audited` is one more user who may do everything; `asked` returns the requests of that user. `more` are further
    flags of the API server, `controllers` further ones of the controller manager.
    """

    def __init__(
        self,
        home: Path,
        users: t.Sequence[str] = (),
        audited: str = "",
        more: t.Sequence[str] = (),
        controllers: t.Sequence[str] = (),
    ) -> None:
        self.home = home
        self.port = _port()
        self._store = ""
        self._audited, self._more, self._controllers = audited, list(more), list(controllers)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._kube = program("kube")
        self._trust = ssl.create_default_context()
        self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE
        home.mkdir(parents=True)
        lines = ['admin,admin,admin,"system:masters"'] + ["%s,%s,%s," % (user, user, user) for user in users]
        lines += ['{0},{0},{0},"system:masters"'.format(audited)] if audited else []
        (home / "tokens.csv").write_text("\n".join(lines) + "\n")
        for user in ("admin", *users, *([audited] if audited else [])):
            self.write_kubeconfig(user)

    def write_kubeconfig(self, user: str, token: str = "", port: int = 0) -> Path:
        path = self.home / (user + ".kubeconfig")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": "https://127.0.0.1:%d" % (port or self.port),
                        "insecure-skip-tls-verify": True,
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": token or user}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path

    def _start(self, name: str, *argv: str | Path) -> None:
        with open(self.home / (name + ".log"), "wb") as log:
            words = [str(word) for word in argv]
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home
            )

    def start(self, before_controllers: t.Callable[[], None] = lambda: None) -> None:
        """`before_controllers` may define kinds: the garbage collector learns of later ones after half a minute."""
        client, peer = "http://127.0.0.1:%d" % _port(), "http://127.0.0.1:%d" % _port()
        run(["openssl", "genrsa", "-out", self.home / "sa.key", "2048"], 60)
        store = [
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
        ]
        self._start(
            "etcd",
            "etcd",
            "--data-dir",
            self.home / "etcd",
            "--unsafe-no-fsync",
            *store,
            "--initial-cluster",
            "default=" + peer,
        )
        self._store = client
        if self._audited:
            rules = [{"level": "Metadata", "users": [self._audited]}, {"level": "None"}]
            policy = {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": rules,
            }
            (self.home / "audit.json").write_text(json.dumps(policy))
        self.start_server()
        before_controllers()
        config = self.home / "admin.kubeconfig"
        access = ["--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config]
        loops = [
            "--controllers",
            ",".join((*CONTROLLERS, *self._controllers)),
            "--leader-elect=false",
        ]
        place = ["--bind-address", "127.0.0.1", "--secure-port", str(_port()), "--cert-dir", self.home / "manager"]
        pace = ["--kube-api-qps=500", "--kube-api-burst=1000"]
        self._start(
            "manager",
            self._kube / "kube-controller-manager",
            *access,
            *loops,
            *place,
            *pace,
            "--service-account-private-key-file",
            "sa.key",
        )

    def start_server(self) -> None:
        """The API server on the store that runs; returns when it is ready."""
        keys = [
            "--service-account-issuer",
            "https://test",
            "--service-account-key-file",
            "sa.key",
            "--service-account-signing-key-file",
            "sa.key",
        ]
        listen = ["--bind-address", "127.0.0.1", "--secure-port", str(self.port), "--cert-dir", self.home / "certs"]
        more = [
            "--authorization-mode",
            "RBAC",
            "--token-auth-file",
            "tokens.csv",
            "--service-cluster-ip-range",
            "10.99.0.0/16",
        ]
        policy = ["--allow-privileged=true", "--disable-admission-plugins", "ServiceAccount"]
        if self._audited:
            more += ["--audit-policy-file", "audit.json", "--audit-log-path", "audit.log"]
        self._start(
            "kube-apiserver",
            self._kube / "kube-apiserver",
            "--etcd-servers",
            self._store,
            *listen,
            *keys,
            *more,
            *policy,
            *self._more,
        )
        until(90, "the API server", lambda: not self.kubectl("get", "--raw", "/readyz", check=False).returncode)

    def stop_server(self) -> None:
        end(self._processes.pop("kube-apiserver"))

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            end(self._processes.pop(name))

    def start_scheduler(self) -> None:
        config = self.home / "admin.kubeconfig"
        access = [
            "--kubeconfig",
            config,
            "--authentication-kubeconfig",
            config,
            "--authorization-kubeconfig",
            config,
            "--leader-elect=false",
        ]
        place = ["--bind-address", "127.0.0.1", "--secure-port", str(_port()), "--cert-dir", self.home / "scheduler"]
        self._start(
            "scheduler", self._kube / "kube-scheduler", *access, *place, "--kube-api-qps=500", "--kube-api-burst=1000"
        )

    def start_kwok(self) -> None:
        """Every node is there and every pod of it is ready; no Leases of nodes."""
        config = [
            "--kubeconfig",
            self.home / "admin.kubeconfig",
            "--manage-all-nodes",
            "--node-lease-duration-seconds",
            "0",
        ]
        addresses = ["--cidr", "10.0.0.0/8", "--node-ip", "192.0.2.1", "--server-address", "127.0.0.1:%d" % _port()]
        self._start("kwok", program("kwok") / "kwok", *config, *addresses)

    def asked(self, since: int = 0) -> list[tuple[str, str, str]]:
        """(verb, plural, name) of every request of the audited user, from the number `since` on."""
        found = []
        for line in (self.home / "audit.log").read_text().splitlines()[since:]:
            event = json.loads(line)
            target = event.get("objectRef") or {}
            dry = "dryRun" in event["requestURI"]
            found.append(
                (
                    event["verb"] + (" (dry)" if dry else ""),
                    target.get("resource", event["requestURI"]),
                    target.get("name", ""),
                )
            )
        return found

    def kubectl(
        self, *argv: str | Path, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return run([self._kube / "kubectl", "--kubeconfig", self.home / "admin.kubeconfig", *argv], 60, check, stdin)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """A shell line of a page, in which `kubectl` is the administrator's."""
        env = "PATH=%s:$PATH KUBECONFIG=%s" % (self._kube, self.home / "admin.kubeconfig")
        return run(["sh", "-c", "export %s; %s" % (env, line)], 60, False, None)

    def _call(self, method: str, path: str, body: Data | None = None) -> Data:
        """The answer to a request of the administrator, whatever it is: to start kubectl costs more than to ask."""
        kind = "application/%sjson" % ("merge-patch+" if method == "PATCH" else "")
        link = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self._trust)
        try:
            headers = {"Authorization": "Bearer admin", "Content-Type": kind}
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer: Data = json.loads(link.getresponse().read())
        finally:
            link.close()
        return answer

    def get(self, *argv: str) -> Data:
        found: Data = json.loads(self.kubectl("get", *argv, "-o", "json").stdout)
        return found

    def add_node(self, name: str, uuid: str, npus: int, address: str = "") -> None:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", RESOURCE: str(npus)}
        info = dict.fromkeys(("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "osImage"), "x")
        info.update(
            {
                "systemUUID": uuid,
                "machineID": uuid.replace("-", ""),
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1",
            }
        )
        status = {
            "nodeInfo": info,
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        self.kubectl("apply", "--server-side", "--field-manager", "kubelet", "-f", "-", stdin=json.dumps(node))
        self.kubectl(
            "apply",
            "--server-side",
            "--field-manager",
            "kubelet",
            "--subresource=status",
            "-f",
            "-",
            stdin=json.dumps(node),
        )
        taints = json.dumps({"spec": {"taints": None}})
        self.kubectl("patch", "node", name, "--type=merge", "-p", taints)

    def play_kubelet(self, dead: t.Collection[str] = ()) -> int:
        """Bind and ready every pod, and let those that are being deleted go; how many there are.

        Nothing happens on nodes whose kubelet is `dead`. Images with the tag NO_IMAGE cannot be pulled.
        """
        path = "/api/v1/namespaces/%s/pods" % NAMESPACE
        pods = self._call("GET", path)["items"]
        for pod in pods:
            mine = "%s/%s" % (path, pod["metadata"]["name"])
            if pod["spec"].get("nodeName") in dead:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._call("DELETE", mine, {"gracePeriodSeconds": 0})
                continue
            term = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ][0]
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": term["matchFields"][0]["values"][0]},
            }
            if not pod["spec"].get("nodeName"):
                self._call("POST", mine + "/binding", binding)
            bad = any(one["image"].endswith(NO_IMAGE) for one in pod["spec"]["containers"])
            waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            state = [{"name": one["name"], "image": one["image"], "imageID": "", "ready": False, "restartCount": 0,
                      "state": {"waiting": waiting}} for one in pod["spec"]["containers"]]  # fmt: skip
            ready = {"type": "Ready", "status": "False" if bad else "True"}
            status: Data = {"phase": "Pending" if bad else "Running", "conditions": [ready]}
            said = [{key: one[key] for key in ready} for one in pod["status"].get("conditions", [])]
            if (pod["status"].get("phase"), said) != (status["phase"], [ready]):
                more = {"containerStatuses": state} if bad else {}
                self._call("PATCH", mine + "/status", {"status": {**status, **more}})
        return len(pods)
