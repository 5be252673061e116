# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook support on a host: one archive, whatever hangs, floods or is away.

Secrets of many kinds are planted on the host, as they are and encoded; none is in the archive.
"""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts, difference, fingerprint
from tests.integration._play import Data, play
from tests.integration._support import Planted, archive, b64
from tests.lab import Lab

HOST, MISSING = "it-e", "/nowhere/kubeconfig"
SERIAL = "RB99Z0042"
LOG, HANGS, FLOODS = "/var/log/rebellions/hunt.log", "/usr/local/sbin/ntpq", "/usr/local/sbin/chronyc"
# Only where the vendor has put none into /usr/bin is it asked.
SMI = "/usr/local/bin/rbln-smi"
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


def plant(lab: Lab, host: str, files: t.Mapping[str, str]) -> None:
    lab.exec(host, ["python3", "-c", _PLANT], stdin=json.dumps(files))


def clear(lab: Lab, host: str) -> None:
    """Make files and directories as they were, their times too."""
    lab.exec(host, ["python3", "-c", _CLEAR])


@pytest.fixture(name="hunted", scope="module")
def planted(bare: Hosts) -> t.Iterator[Planted]:
    s, lab = Planted(), bare.lab
    files = on_host(s)
    files[HANGS] = "#!/bin/sh\necho it begins\nsleep 4321 &\nexec sleep 4321\n"
    files[FLOODS] = "#!/bin/sh\nexec yes flood\n"
    files[SMI] = "#!/bin/sh\necho '%s'\n" % json.dumps({"KMD_version": "1", "devices": [{"npu": 0, "sid": SERIAL}]})
    plant(lab, HOST, files)
    try:
        lab.exec(HOST, "chmod +x %s %s %s; systemctl daemon-reload" % (HANGS, FLOODS, SMI))
        said = "echo 'pulled https://svc:%s@git.example/x'" % s("journal")
        lab.exec(HOST, ["systemd-run", "--quiet", "-r", "--unit=" + LOUD, "sh", "-c", said])
        yield s
    finally:
        lab.exec(HOST, ["systemctl", "stop", LOUD], check=False)
        clear(lab, HOST)
        lab.exec(HOST, "systemctl daemon-reload")


def test_one_archive_without_any_secret_whatever_hangs_floods_or_is_away(
    bare: Hosts, hunted: Planted, tmp_path: Path
) -> None:
    before = fingerprint(bare.lab, HOST)
    gone: Data = {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    # The first one does what is done once for all.
    where = bare.inventory("gone", HOST, host_vars={"gone": gone}, rbln_kubeconfig=MISSING)
    path = tmp_path / "case.tar.gz"
    run = play("support", where, extra={"rbln_support_path": str(path), "rbln_support_timeout": "2"})
    assert run.code == 0 and run.failed() == [] and run.changed() == [], run.err[-3000:]
    manifest, files = archive(run, path)
    assert {name: one["state"] for name, one in manifest["hosts"].items()} == {"gone": "unreachable", HOST: "collected"}
    assert "gone cannot be reached" in manifest["hosts"]["gone"]["detail"]
    ((cluster, one),) = manifest["clusters"].items()
    assert MISSING in cluster and one["state"] == "failed" and "does not exist" in one["detail"]
    told = {one["name"]: one for one in manifest["files"]}
    # What hangs is ended with its child, and what it said until then is there.
    assert told["system/ntpq.txt"]["state"] == "timeout" and files["hosts/it-e/system/ntpq.txt"] == b"it begins\n"
    assert told["system/chrony.txt"]["state"] in ("too_large", "timeout") and told["system/chrony.txt"]["size"] <= 2**20
    assert bare.lab.exec(HOST, "ps -eo args | grep -c '[s]leep 4321' || :").stdout.strip() == "0"
    names = (
        "observation.json",
        "kernel/dmesg.txt",
        "journal/containerd.service.txt",
        "units/files.txt",
        "runtime/containerd-effective.toml",
        "packages/dpkg.txt",
        "npu/rbln-smi.json",
        "npu/lspci.txt",
    )
    assert {name: told[name]["state"] for name in names} == dict.fromkeys(names, "value")
    facts = json.loads(files["hosts/it-e/observation.json"])
    assert facts["rbln"]["counts"]["functions"] == 2 and facts["rbln_observed"]["checks"]
    # Of each kind nothing, as it is or encoded; of the lines with them everything else.
    whole = b"\n".join(files.values())
    assert len(hunted.words) >= 28 and hunted.found(whole) == []
    log = files["hosts/it-e/logs/rebellions/hunt.log"]
    assert b"GET / Authorization: Bearer ********" in log and b"pulled https://********@git" in whole
    assert b"said without a name: ******** and " in log
    assert SERIAL.encode() not in whole and b"NPU 0 is SERIAL-" in log
    smi = json.loads(files["hosts/it-e/npu/rbln-smi.json"])["devices"]
    assert smi and all(one["sid"].startswith("SERIAL-") for one in smi)
    assert difference(before, fingerprint(bare.lab, HOST)) == []
    assert bare.lab.exec(HOST, "ls /root/.ansible/tmp 2>/dev/null || :").stdout == ""
    # A file is never replaced, and no host is asked for nothing.
    again = play("support", where, "--limit", HOST, extra={"rbln_support_path": str(path)})
    assert again.code == 2 and "which exists. Next:" in again.failed()[0].msg and again.executions == []


def test_check_mode_tells_and_serials_are_kept_on_request(bare: Hosts, hunted: Planted, tmp_path: Path) -> None:
    where = bare.inventory(HOST, rbln_support_path=str(tmp_path) + "/")
    run = play("support", where, "--check", "--diff").good([HOST])
    told = run.one("Collect from the host", HOST).data
    assert told["state"] == "planned" and "journalctl -u containerd.service" in " ".join(told["sources"])
    assert list(tmp_path.iterdir()) == []
    given = {"rbln_support_serials": "true", "rbln_support_timeout": 2, "rbln_support_source_bytes": 4096}
    run = play("support", where, extra=given).good([HOST])
    # One remote call, by pipelining one command.
    assert len([one for one in run.executions if one[0] == HOST]) <= 2, run.executions
    (path,) = tmp_path.iterdir()
    manifest, files = archive(run, path)
    assert path.name.startswith("rbln-support-20") and manifest["serials"] is True and manifest["clusters"] == {}
    whole = b"\n".join(files.values())
    assert SERIAL.encode() in whole and hunted.found(whole) == []
    assert max(one["size"] for one in manifest["files"] if one["kind"] != "observation") <= 4096
