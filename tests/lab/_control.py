# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

from . import _pki
from ._base import GATEWAY, SERVICE_CIDR, STATE, LabError, put, run, until
from ._go import program
from ._pki import CONF, KUBECONFIG, PKI

ORDER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_RUN, _LOG = STATE / "run", STATE / "log"


def alive(name: str) -> int | None:
    """The pid of the daemon started from here, or None; a pid that went to another program is not ours."""
    try:
        pid = int((_RUN / (name + ".pid")).read_text())
        words = Path("/proc/%d/cmdline" % pid).read_bytes().split(b"\0")
        state = Path("/proc/%d/status" % pid).read_text()
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    # A process between fork and the end of exec has no words yet.
    if "\nState:\tZ" in state or (words[0] and os.path.basename(words[0].decode()) != name):
        return None
    return pid


def _start(name: str, argv: t.Sequence[str | Path]) -> None:
    if alive(name):
        return
    _LOG.mkdir(parents=True, exist_ok=True)
    with open(_LOG / (name + ".log"), "ab") as log:
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    put(_RUN / (name + ".pid"), str(process.pid))


def _tail(name: str) -> str:
    path = _LOG / (name + ".log")
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""


def kubectl(
    *argv: str | Path, timeout: float = 60, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return run([program("kube") / "kubectl", "--kubeconfig", KUBECONFIG, *argv], timeout, check, stdin)


def ready() -> bool:
    return (
        alive("kube-apiserver") is not None
        and not kubectl("get", "--raw", "/readyz", check=False, timeout=10).returncode
    )


def _wait(name: str, seconds: float, what: str, probe: t.Callable[[], bool]) -> None:
    def step() -> bool:
        if not alive(name):
            raise LabError("%s ended:\n%s" % (name, _tail(name)))
        return probe()

    try:
        until(seconds, what, step)
    except LabError as exc:
        raise LabError("%s\n%s" % (exc, _tail(name))) from exc


def up() -> None:
    """Start what does not run; returns when the API answers and the controllers work."""
    binaries = program("kube")
    _pki.cluster()
    etcd, ca = PKI / "etcd", PKI / "ca"
    _start(
        "etcd",
        ["etcd", "--name", "lab", "--data-dir", STATE / "etcd", "--unsafe-no-fsync"]
        + ["--listen-client-urls", "https://127.0.0.1:2379", "--advertise-client-urls", "https://127.0.0.1:2379"]
        + ["--listen-peer-urls", "https://127.0.0.1:2380", "--initial-advertise-peer-urls", "https://127.0.0.1:2380"]
        + [
            "--initial-cluster",
            "lab=https://127.0.0.1:2380",
            "--client-cert-auth",
            "--trusted-ca-file",
            PKI / "etcd-ca.crt",
        ]
        + [
            "--cert-file",
            "%s.crt" % etcd,
            "--key-file",
            "%s.key" % etcd,
            "--peer-client-cert-auth",
            "--peer-trusted-ca-file",
            PKI / "etcd-ca.crt",
        ]
        + ["--peer-cert-file", "%s.crt" % etcd, "--peer-key-file", "%s.key" % etcd],
    )
    _start(
        "kube-apiserver",
        [
            binaries / "kube-apiserver",
            "--bind-address",
            GATEWAY,
            "--advertise-address",
            GATEWAY,
            "--secure-port",
            "6443",
        ]
        + ["--etcd-servers", "https://127.0.0.1:2379", "--etcd-cafile", PKI / "etcd-ca.crt"]
        + ["--etcd-certfile", PKI / "apiserver-etcd-client.crt", "--etcd-keyfile", PKI / "apiserver-etcd-client.key"]
        + [
            "--client-ca-file",
            "%s.crt" % ca,
            "--tls-cert-file",
            PKI / "apiserver.crt",
            "--tls-private-key-file",
            PKI / "apiserver.key",
        ]
        + [
            "--kubelet-client-certificate",
            PKI / "apiserver-kubelet-client.crt",
            "--kubelet-client-key",
            PKI / "apiserver-kubelet-client.key",
        ]
        + ["--kubelet-certificate-authority", "%s.crt" % ca, "--kubelet-preferred-address-types", "InternalIP,Hostname"]
        + [
            "--proxy-client-cert-file",
            PKI / "front-proxy-client.crt",
            "--proxy-client-key-file",
            PKI / "front-proxy-client.key",
        ]
        + [
            "--requestheader-client-ca-file",
            PKI / "front-proxy-ca.crt",
            "--requestheader-allowed-names",
            "front-proxy-client",
        ]
        + ["--requestheader-extra-headers-prefix", "X-Remote-Extra-", "--requestheader-group-headers", "X-Remote-Group"]
        + [
            "--requestheader-username-headers",
            "X-Remote-User",
            "--authorization-mode",
            "Node,RBAC",
            "--enable-admission-plugins",
            "NodeRestriction",
        ]
        + ["--allow-privileged=true", "--service-account-issuer", "https://kubernetes.default.svc.cluster.local"]
        + [
            "--service-account-key-file",
            PKI / "sa.pub",
            "--service-account-signing-key-file",
            PKI / "sa.key",
            "--service-cluster-ip-range",
            SERVICE_CIDR,
        ],
    )
    _wait("kube-apiserver", 120, "the API server's /readyz", ready)
    manager, scheduler = CONF / "controller-manager.kubeconfig", CONF / "scheduler.kubeconfig"
    pace = ["--bind-address", "127.0.0.1", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000"]
    _start(
        "kube-controller-manager",
        [
            binaries / "kube-controller-manager",
            "--kubeconfig",
            manager,
            "--authentication-kubeconfig",
            manager,
            "--authorization-kubeconfig",
            manager,
        ]
        + [
            "--client-ca-file",
            "%s.crt" % ca,
            "--requestheader-client-ca-file",
            PKI / "front-proxy-ca.crt",
            "--root-ca-file",
            "%s.crt" % ca,
        ]
        + ["--cluster-signing-cert-file", "%s.crt" % ca, "--cluster-signing-key-file", "%s.key" % ca]
        + [
            "--service-account-private-key-file",
            PKI / "sa.key",
            "--use-service-account-credentials=true",
            "--cluster-name",
            "lab",
            *pace,
        ],
    )
    _start(
        "kube-scheduler",
        [
            binaries / "kube-scheduler",
            "--kubeconfig",
            scheduler,
            "--authentication-kubeconfig",
            scheduler,
            "--authorization-kubeconfig",
            scheduler,
            *pace,
        ],
    )
    account = ("-n", "default", "get", "serviceaccount", "default")
    _wait(
        "kube-controller-manager",
        60,
        "the default service account",
        lambda: not kubectl(*account, check=False).returncode,
    )


def down() -> None:
    """Stop what was started from here, in reverse order."""
    for name in reversed(ORDER):
        pid = alive(name)
        if pid:
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + 3
            while alive(name) and time.monotonic() < end:
                _reap(pid)
                time.sleep(0.05)
            if alive(name):
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.1)
                _reap(pid)
        (_RUN / (name + ".pid")).unlink(missing_ok=True)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
