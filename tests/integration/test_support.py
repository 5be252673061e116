# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook support on nodes on which site.yml has ended well: one archive, whatever hangs, fails or is away.

Secrets of many kinds are planted on a host and in the cluster, as they are and encoded; none is in the archive.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tarfile
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts, difference, fingerprint
from tests.integration._play import NAMESPACE_OF_TESTS, Data, Run, play
from tests.integration._secrets import forms
from tests.lab import Lab

A, B = "it-a", "it-b"
SERIAL = "RB99Z0042"
LOG, HANGS, FLOODS = "/var/log/rebellions/hunt.log", "/usr/local/sbin/ntpq", "/usr/local/sbin/chronyc"
LOUD = "rbln-pull.service"
# Run on a host.
_PLANT = """
import json, os, sys
notes = {"folders": {}, "files": {}}
for path, text in json.load(sys.stdin).items():
    folder = os.path.dirname(path)
    new, above = [], folder
    while not os.path.isdir(above):
        new.insert(0, above)
        above = os.path.dirname(above)
    for one in [above, *new]:
        notes["folders"].setdefault(one, os.stat(one).st_mtime_ns if one == above else None)
        os.makedirs(one, exist_ok=True)
    notes["files"][path] = os.path.lexists(path)
    if notes["files"][path]:
        os.rename(path, path + ".kept")
    with open(path, "w") as stream:
        stream.write(text)
with open("/run/hunt.json", "w") as stream:
    json.dump(notes, stream)
"""
_CLEAR = """
import json, os
notes = json.load(open("/run/hunt.json"))
for path, kept in notes["files"].items():
    os.rename(path + ".kept", path) if kept else os.unlink(path)
for path, time in sorted(notes["folders"].items(), reverse=True):
    os.rmdir(path) if time is None else os.utime(path, ns=(time, time))
for path, time in notes["folders"].items():
    if time is not None:
        os.utime(path, ns=(time, time))
"""


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass
class Planted:
    """Secrets by their kinds, each made when it is asked for."""

    seed: bytes = field(default_factory=lambda: os.urandom(8))
    words: dict[str, str] = field(default_factory=dict)

    def __call__(self, kind: str) -> str:
        return self.words.setdefault(kind, "Zq" + hashlib.sha256(self.seed + kind.encode()).hexdigest()[:22])

    def found(self, data: bytes) -> list[str]:
        """The kinds of which a form is in these bytes."""
        return [kind for kind, word in self.words.items() if any(one.encode() in data for one in forms(word))]


def on_host(s: Planted) -> dict[str, str]:
    """{path: text} of files that a bundle collects."""
    auths = json.dumps({"auths": {"r.example": {"auth": b64("svc:" + s("docker_auth"))}}})
    config = "kind: Config\nusers:\n- user:\n    client-key-data: %s\n    token: %s\n" % (
        b64("-----BEGIN EC PRIVATE KEY-----\n%s\n" % s("kube_key")), s("kube_token"),
    )  # fmt: skip
    lines = [
        # The beginning of this one is cut off.
        "%s\n-----END RSA PRIVATE KEY-----" % s("pem_end"),
        "GET / Authorization: Bearer %s" % s("bearer"),
        "login with Basic %s" % b64("svc:" + s("basic")),
        "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----" % s("pem"),
        "read %s" % auths,
        "payload=%s" % b64(auths),
        "twice %s" % b64(b64('{"password": "%s"}' % s("twice"))),
        base64.encodebytes(config.encode()).decode(),
        "jwt eyJhbGciOiJSUzI1NiJ9.%s.%s" % (b64('{"a": 1}').rstrip("="), s("jwt")),
        "aws_secret_access_key = %s" % s("aws"),
        "ghp_%s" % s("github"),
        "root:$6$salt$%s:19000:0" % s("hash"),
        "machine h login svc password %s" % s("netrc"),
        "Set-Cookie: sid=%s; Path=/" % s("cookie"),
        "ran docker login -u svc -p %s r.example" % s("login"),
        "GET https://h/x?X-Amz-Signature=%s" % s("query"),
        "said without a name: %s and %s" % (s("environment"), b64("it is " + s("environment"))),
        "NPU 0 is %s" % SERIAL,
    ]
    return {
        LOG: "\n".join(lines) + "\n",
        "/etc/environment": "API_TOKEN=%s\n" % s("environment"),
        "/etc/profile.d/hunt_proxy.sh": "export https_proxy=http://svc:%s@127.0.0.1:9\n" % s("proxy"),
        "/etc/apt/apt.conf.d/95hunt-proxy": 'Acquire::http::Proxy "http://svc:%s@127.0.0.1:9/";\n' % s("apt_proxy"),
        "/etc/docker/daemon.json": json.dumps({"x-password": s("json"), "proxies": {"x": "http://a:%s@h" % s("x")}}),
        "/etc/crio/crio.conf.d/10-hunt.conf": "[crio.image]\n# password = '%s'\n" % s("toml"),
        "/etc/containers/registries.conf": "# identitytoken = '%s'\n" % s("identity"),
        "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--bootstrap-token=%s\n" % s("option"),
        "/etc/systemd/system/containerd.service.d/hunt.conf": '[Service]\nEnvironment="LDAP_PASSWORD=%s"\n' % s("unit"),
        "/var/lib/rbln/hunt.json": json.dumps({"serial": SERIAL, "secret": s("state")}),
        "/etc/cdi/hunt.yaml": "cdiVersion: 0.5.0\nkind: other.example/x\ndevices:\n"
        "- name: x\n  containerEdits: {env: [A=b]}\n# db_password: %s\n" % s("yaml"),
    }  # fmt: skip


def in_cluster(s: Planted) -> str:
    """Objects of the namespace as JSON: a pod of ours that tells secrets, a ConfigMap, and a Secret."""
    meta = {"namespace": NAMESPACE_OF_TESTS, "labels": {
        "app.kubernetes.io/managed-by": "rebellions-npu", "app.kubernetes.io/part-of": "rebellions-npu"}}  # fmt: skip
    said = "password=%s; Authorization: Bearer %s; %s" % (
        s("pod_log"),
        s("pod_bearer"),
        b64("token: " + s("pod_coded")),
    )
    container = {
        "name": "hunt", "image": "lab.local/busybox:1", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "echo '%s'; echo again %s; sleep 600" % (said, s("config_map"))],
        "env": [{"name": "DB_PASSWORD", "value": s("pod_env")}],
    }  # fmt: skip
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeName": A, "containers": [container]}
    secret = {"token": b64(s("secret"))}
    data = {"config": "password: %s\n" % s("config_map"), "serial": SERIAL,
            "pull": b64(json.dumps({"auths": {"r": {"auth": b64("svc:" + s("pull_secret"))}}}))}  # fmt: skip
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "hunt"}, "spec": pod},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "hunt"}, "data": secret},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "hunt"}, "data": data},
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def plant(lab: Lab, host: str, files: t.Mapping[str, str]) -> None:
    lab.exec(host, ["python3", "-c", _PLANT], stdin=json.dumps(files))


def clear(lab: Lab, host: str) -> None:
    """Make files and directories as they were, their times too."""
    lab.exec(host, ["python3", "-c", _CLEAR])


@pytest.fixture(name="hunted", scope="module")
def planted(nodes: Hosts) -> t.Iterator[Planted]:
    nodes.done()
    s, lab = Planted(), nodes.lab
    files = on_host(s)
    files[HANGS] = "#!/bin/sh\necho it begins\nsleep 4321 &\nexec sleep 4321\n"
    files[FLOODS] = "#!/bin/sh\nexec yes flood\n"
    plant(lab, A, files)
    try:
        lab.exec(A, "chmod +x %s %s; systemctl daemon-reload" % (HANGS, FLOODS))
        said = "echo 'pulled https://svc:%s@git.example/x'" % s("journal")
        lab.exec(A, ["systemd-run", "--quiet", "-r", "--unit=" + LOUD, "sh", "-c", said])
        lab.kubectl("apply", "-f", "-", stdin=in_cluster(s))
        lab.kubectl("wait", "--for=condition=Ready", "-n", NAMESPACE_OF_TESTS, "pod/hunt", "--timeout=60s", timeout=90)
        yield s
    finally:
        lab.exec(A, ["systemctl", "stop", LOUD], check=False)
        clear(lab, A)
        lab.exec(A, "systemctl daemon-reload")
        objects = ("pod/hunt", "secret/hunt", "configmap/hunt")
        lab.kubectl("delete", "-n", NAMESPACE_OF_TESTS, "--wait=false", "--ignore-not-found", *objects, check=False)


def unpacked(path: Path) -> dict[str, bytes]:
    """{name below the one folder of an archive: bytes}."""
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert all(one.isreg() for one in members) and len({one.name.partition("/")[0] for one in members}) == 1
        return {one.name.partition("/")[2]: t.cast("t.IO[bytes]", tar.extractfile(one)).read() for one in members}


def made(run: Run, path: Path) -> tuple[Data, dict[str, bytes]]:
    """(manifest, files) of the archive of a run, whose lines say what is in it."""
    assert path.stat().st_mode & 0o777 == 0o600
    files = unpacked(path)
    manifest = json.loads(files["manifest.json"])
    listed = {one["path"]: one for one in manifest["files"] if one["path"]}
    assert set(listed) == set(files) - {"README.md", "manifest.json"} and len(listed) > 100
    for name, one in listed.items():
        assert (len(files[name]), hashlib.sha256(files[name]).hexdigest()) == (one["size"], one["sha256"]), name
    (told,) = run.of("Write the archive")
    assert told.data["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    return manifest, files


def test_one_archive_without_any_secret_whatever_hangs_floods_or_is_away(
    nodes: Hosts, hunted: Planted, tmp_path: Path
) -> None:
    before = {host: fingerprint(nodes.lab, host) for host in (A, B)}
    gone: Data = {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    # The first one does what is done once for all.
    where = nodes.inventory("gone", A, B, host_vars={"gone": gone})
    path = tmp_path / "case.tar.gz"
    run = play("support", where, extra={"rbln_support_path": str(path), "rbln_support_timeout": "2"})
    assert run.code == 0 and run.failed() == [], run.err[-3000:]
    assert run.changed() == []
    manifest, files = made(run, path)
    hosts = {name: one["state"] for name, one in manifest["hosts"].items()}
    assert hosts == {"gone": "unreachable", A: "collected", B: "collected"}
    assert "gone cannot be reached" in manifest["hosts"]["gone"]["detail"]
    of_a = {one["name"]: one for one in manifest["files"] if one.get("host") == A}
    states = {name: one["state"] for name, one in of_a.items()}
    # What hangs is ended with its child, and what it said until then is there.
    assert states["system/ntpq.txt"] == "timeout" and files["hosts/it-a/system/ntpq.txt"] == b"it begins\n"
    assert states["system/chrony.txt"] in ("too_large", "timeout") and of_a["system/chrony.txt"]["size"] <= 2**20
    assert nodes.lab.exec(A, "ps -eo args | grep -c '[s]leep 4321' || :").stdout.strip() == "0"
    names = ("observation.json", "host_tool/validate.json", "npu/rbln-smi.json", "module/modinfo.txt", "kernel/npu.txt",
             "journal/containerd.service.txt", "journal/kubelet.service.txt", "runtime/containerd-effective.toml",
             "cdi/var_run_cdi/rbln.yaml", "state/driver/driver.json", "units/files.txt")  # fmt: skip
    assert {name: states.get(name) for name in names} == dict.fromkeys(names, "value")
    facts = json.loads(files["hosts/it-b/observation.json"])
    assert facts["rbln"]["counts"]["usable"] and facts["rbln_observed"]["state"] == "passed"
    cluster = [one for one in manifest["files"] if "cluster" in one]
    assert {"denied", "failed", "timeout"}.isdisjoint(one["state"] for one in cluster), cluster
    logs = [one["path"] for one in cluster if one["path"] and "/logs/hunt/" in one["path"]]
    assert len(logs) == 1 and files[logs[0]].count(b"********") >= 4
    # Of each kind nothing, as it is or encoded; of the lines with them everything else.
    whole = b"\n".join(files.values())
    assert len(hunted.words) >= 30 and hunted.found(whole) == []
    log = files["hosts/it-a/logs/rebellions/hunt.log"]
    assert b"GET / Authorization: Bearer ********" in log and b"pulled https://********@git" in whole
    assert b"said without a name: ******** and ********" in log
    assert SERIAL.encode() not in whole and b"NPU 0 is SERIAL-" in log
    smi = json.loads(files["hosts/it-a/npu/rbln-smi.json"])["devices"]
    assert smi and all(one["sid"].startswith("SERIAL-") for one in smi)
    for host in (A, B):
        assert difference(before[host], fingerprint(nodes.lab, host)) == []
        assert nodes.lab.exec(host, "ls /root/.ansible/tmp 2>/dev/null || :").stdout == ""
    # Once more, with serial numbers, into the same place: nothing is replaced.
    again = play("support", where, "--limit", B, extra={"rbln_support_path": str(path)})
    assert again.code == 2 and "which exists. Next:" in again.failed()[0].msg


def test_check_mode_tells_and_serials_are_kept_on_request(nodes: Hosts, hunted: Planted, tmp_path: Path) -> None:
    where = nodes.inventory(A, rbln_support_path=str(tmp_path) + "/", rbln_kubeconfig="")
    run = play("support", where, "--check", "--diff").good([A])
    told = run.one("Collect from the host", A).data
    assert told["state"] == "planned" and "journalctl -u kubelet.service" in " ".join(told["sources"])
    assert list(tmp_path.iterdir()) == [] and len([one for one in run.executions if one[0] == A]) <= 4
    run = play("support", where, extra={"rbln_support_serials": "true", "rbln_support_timeout": 2}).good([A])
    (path,) = tmp_path.iterdir()
    manifest, files = made(run, path)
    assert path.name.startswith("rbln-support-20") and manifest["serials"] is True and manifest["clusters"] == {}
    whole = b"\n".join(files.values())
    assert SERIAL.encode() in whole and hunted.found(whole) == []
