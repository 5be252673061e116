# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's certificates, by openssl."""

from __future__ import annotations

import base64
import os
import secrets
import typing as t
from pathlib import Path

from ._base import GATEWAY, PREFIX, SERVICE_IP, STATE, put, run
from ._seed import kubeconfig

PKI = STATE / "pki"
CONF = STATE / "conf"
KUBECONFIG = STATE / "kubeconfig"
_CLIENT, _SERVER = "clientAuth", "serverAuth"
_API_NAMES = (
    "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
    "DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:%s,IP:%s"
)


def _authority(name: str, subject: str) -> None:
    crt, key = PKI / (name + ".crt"), PKI / (name + ".key")
    if crt.exists() and key.exists():
        return
    _key(key)
    extensions = [
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
    ]
    run(
        [
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            key,
            "-days",
            "3650",
            "-subj",
            "/CN=" + subject,
            *extensions,
            "-out",
            crt,
        ]
    )


def _key(path: Path) -> None:
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
    path.chmod(0o600)


def certificate(name: str, authority: str, subject: str, names: str, use: str) -> tuple[Path, Path]:
    """A certificate and key signed by authority; made again when its text changes or an hour is left."""
    crt, key, ext = (PKI / (name + suffix) for suffix in (".crt", ".key", ".ext"))
    text = (
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=%s\n"
        % use
    )
    text += "subjectAltName=%s\n" % names if names else ""
    if crt.exists() and key.exists() and ext.exists() and ext.read_text() == text:
        verify = ["openssl", "verify", "-CAfile", PKI / (authority + ".crt"), crt]
        if (
            not run(["openssl", "x509", "-checkend", "3600", "-noout", "-in", crt], check=False).returncode
            and not run(verify, check=False).returncode
        ):
            return crt, key
    _key(key)
    put(ext, text)
    request = run(["openssl", "req", "-new", "-key", key, "-subj", subject]).stdout
    signer = [
        "-CA",
        PKI / (authority + ".crt"),
        "-CAkey",
        PKI / (authority + ".key"),
        "-set_serial",
        "0x" + secrets.token_hex(12),
    ]
    run(["openssl", "x509", "-req", "-days", "365", *signer, "-extfile", ext, "-out", crt], stdin=request)
    return crt, key


def _embedded(user: str, cert: Path, key: Path) -> str:
    crt, private, ca = (base64.b64encode(path.read_bytes()).decode() for path in (cert, key, PKI / "ca.crt"))
    return kubeconfig(user, crt, private, ca, data=True)


def cluster() -> None:
    """Everything the control plane needs, and the administrator's kubeconfig."""
    PKI.mkdir(parents=True, exist_ok=True)
    os.chmod(PKI, 0o700)
    _authority("ca", "kubernetes")
    _authority("etcd-ca", "etcd-ca")
    _authority("front-proxy-ca", "front-proxy-ca")
    certificate("etcd", "etcd-ca", "/CN=etcd", "DNS:localhost,IP:127.0.0.1", _SERVER + "," + _CLIENT)
    certificate("apiserver-etcd-client", "etcd-ca", "/CN=apiserver-etcd-client", "", _CLIENT)
    certificate("apiserver", "ca", "/CN=kube-apiserver", _API_NAMES % (GATEWAY, SERVICE_IP), _SERVER)
    certificate("apiserver-kubelet-client", "ca", "/O=system:masters/CN=kube-apiserver-kubelet-client", "", _CLIENT)
    certificate("front-proxy-client", "front-proxy-ca", "/CN=front-proxy-client", "", _CLIENT)
    if not (PKI / "sa.pub").exists():
        run(["openssl", "genrsa", "-out", PKI / "sa.key", "2048"])
        run(["openssl", "rsa", "-in", PKI / "sa.key", "-pubout", "-out", PKI / "sa.pub"])
    for name, subject in (
        ("admin", "/O=system:masters/CN=kubernetes-admin"),
        ("controller-manager", "/CN=system:kube-controller-manager"),
        ("scheduler", "/CN=system:kube-scheduler"),
    ):
        pair = certificate(name, "ca", subject, "", _CLIENT)
        put(KUBECONFIG if name == "admin" else CONF / (name + ".kubeconfig"), _embedded(name, *pair), 0o600)
    certificate("kube-proxy", "ca", "/CN=system:kube-proxy", "", _CLIENT)


def node(name: str, index: int) -> dict[str, str]:
    """{file name below /etc/kubernetes/pki: PEM} of a node."""
    address = "%s.0.%d" % (PREFIX, 10 + index)
    pairs: t.Mapping[str, tuple[Path, Path]] = {
        "kubelet": certificate("node-" + name, "ca", "/O=system:nodes/CN=system:node:" + name, "", _CLIENT),
        "serving": certificate(
            "node-%s-serving" % name,
            "ca",
            "/O=system:nodes/CN=system:node:" + name,
            "DNS:%s,IP:%s,IP:127.0.0.1" % (name, address),
            _SERVER,
        ),
        "kube-proxy": (PKI / "kube-proxy.crt", PKI / "kube-proxy.key"),
    }
    texts = {"ca.crt": (PKI / "ca.crt").read_text()}
    for stem, (crt, key) in pairs.items():
        texts[stem + ".crt"] = crt.read_text()
        texts[stem + ".key"] = key.read_text()
    return texts
