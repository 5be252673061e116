# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on the host of proof-dnf, below the module utilities: packages are built, and Dnf works on them.

The argument is dnf or dnf5. The last line that it prints is the JSON of what it saw.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import typing as t

sys.path.insert(0, "/root")
from npu._base.model import NpuError  # type: ignore[import-not-found]
from npu._host.host import Host  # type: ignore[import-not-found]
from npu._packages import history  # type: ignore[import-not-found]
from npu._packages.changes import Transaction, planned  # type: ignore[import-not-found]
from npu._packages.manager import manager_for  # type: ignore[import-not-found]
from npu._packages.pins import holds, read_pins  # type: ignore[import-not-found]

CONF, REPO, RPMS = "/etc/dnf/dnf.conf", "/etc/yum.repos.d/lab.repo", "/srv/rpms"
DEVEL = ["kernel-devel-5.14.0-%d.el9" % number for number in (100, 200, 300)]
SPEC = """Name: %s
Version: %s
Release: %s
Summary: x
License: x
BuildArch: noarch
%s
%%description
x
%%files
"""
OURS = ["rebellions*"]


def build(label: str, provides: str = "") -> str:
    """A package of this name-version-release."""
    name, version, release = label.rsplit("-", 2)
    path = "/srv/%s.spec" % label
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(SPEC % (name, version, release, "Provides: %s\n" % provides if provides else ""))
    subprocess.run(["rpmbuild", "-bb", "--define", "_rpmdir " + RPMS, path], check=True, capture_output=True)
    return "%s/noarch/%s.noarch.rpm" % (RPMS, label)


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def error(function: t.Callable[..., t.Any], *words: t.Any) -> list[str]:
    try:
        function(*words)
    except NpuError as exc:
        return [exc.message, exc.next_step]
    return []


def shown(changes: t.Sequence[t.Any]) -> list[str]:
    return sorted(str(change) for change in changes)


def installed(*names: str) -> list[str]:
    argv = ["rpm", "-q", "--qf", "%{NAME}-%{VERSION}-%{RELEASE}\n", *names]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    return sorted(line for line in said.splitlines() if " " not in line)


def main(program: str) -> dict[str, t.Any]:
    for path in ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/cache/dnf", "/var/cache/libdnf5", RPMS, "/srv/kept"):
        shutil.rmtree(path, ignore_errors=True)
    os.makedirs("/opt/bin", exist_ok=True)
    if os.path.lexists("/opt/bin/dnf"):
        os.unlink("/opt/bin/dnf")
    os.symlink(shutil.which(program, path="/usr/bin") or "", "/opt/bin/dnf")
    # Messages in another language are no messages that anybody reads here.
    os.environ.update(PATH="/opt/bin:" + os.environ["PATH"], LANG="ko_KR.UTF-8", LANGUAGE="ko")
    for label in ("rebellions-kmd-3.2.2-1", "rebellions-kmd-3.4.0-1", "site-agent-1.0-1", "site-agent-1.1-1"):
        build(label)
    many = [build(label, "installonlypkg(kernel-module)") for label in ("kmod-site-1.0-1", "kmod-site-1.1-1")]
    for label in DEVEL:
        build(label, "installonlypkg(kernel)")
    subprocess.run(["createrepo_c", "-q", RPMS], check=True)
    write(REPO, "[lab]\nname=lab\nbaseurl=file://%s\ngpgcheck=0\n" % RPMS)
    write(CONF, "[main]\ngpgcheck=0\ninstallonly_limit=2\nbest=True\nexclude=kernel*\n")
    write("/etc/dnf/plugins/versionlock.list", "")
    # What Debian adds.
    for path in ("plugins/local", "plugins/system_upgrade", "libdnf5-plugins/local"):
        write("/etc/dnf/%s.conf" % path, "[main]\nenabled=0\n")
    host = Host()
    dnf = manager_for(host, "rpm", 120)
    seen: dict[str, t.Any] = {
        "version": subprocess.run(["dnf", "--version"], capture_output=True, text=True, check=False).stdout[:40]
    }
    # H09
    seen["holds"] = holds(read_pins(host, "rpm")[0])
    seen["excluded"] = error(dnf.simulate, Transaction(install=[DEVEL[0]]))
    seen["allowed"] = shown(dnf.simulate(Transaction(install=[DEVEL[0]], allow_held=True)))
    seen["resolved"] = dnf.resolve("kernel-devel", "5.14.0")
    seen["downloaded"] = [os.path.basename(path) for path in dnf.download(["rebellions-kmd-3.4.0-1"], "/srv/kept")]
    for label in DEVEL:
        dnf.apply(Transaction(install=[label], allow_held=True))
    seen["all kept"] = installed("kernel-devel") == DEVEL
    # A lock, which moves when that is allowed.
    dnf.apply(Transaction(install=["rebellions-kmd-3.2.2-1"]))
    seen["held"] = dnf.hold(["rebellions-kmd"])
    seen["locked"] = holds(read_pins(host, "rpm")[0])
    seen["lock"] = error(dnf.simulate, Transaction(install=["rebellions-kmd-3.4.0-1"]))
    upgrade = Transaction(install=["rebellions-kmd-3.4.0-1"], allow_held=True)
    seen["moves"] = shown(dnf.simulate(upgrade))
    dnf.apply(upgrade)
    seen["moved"] = [installed("rebellions-kmd"), dnf.held()]
    dnf.unhold(["rebellions-kmd"])
    # H11
    subprocess.run(["rpm", "-i", *many], check=True)
    seen["install-only"] = [dnf.unfinished(), dnf.repair(["*"]), list(dnf.warnings)]
    for label in ("rebellions-kmd-3.2.2-1", "site-agent-1.0-1", "site-agent-1.1-1"):
        subprocess.run(["rpm", "-i", "--force", "%s/noarch/%s.noarch.rpm" % (RPMS, label)], check=True)
    seen["twice"] = dnf.unfinished()
    seen["repaired"] = [dnf.repair(OURS), list(dnf.warnings), installed("rebellions-kmd"), installed("site-agent")]
    seen["again"] = [dnf.repair(OURS), dnf.blocked(OURS)]
    # What dnf itself prunes is no change beyond a plan.
    build("kernel-devel-5.14.0-400.el9", "installonlypkg(kernel)")
    subprocess.run(["createrepo_c", "-q", RPMS], check=True)
    write(CONF, "[main]\ninstallonly_limit=2\n")
    dnf.refresh()
    argv = ["dnf", "-y", "install", "kernel-devel-5.14.0-400.el9", "--assumeno"]
    seen["pruned"] = [change.act for change in dnf._foreseen(argv)]
    seen["beyond"] = shown(planned(dnf._foreseen(argv), ["kernel-devel"], True))
    seen["not pruned"] = shown(dnf.simulate(Transaction(install=["kernel-devel-5.14.0-400.el9"])))
    # A repository of others that does not answer.
    write("/etc/yum.repos.d/dead.repo", "[dead]\nname=dead\nbaseurl=http://127.0.0.1:9/\n")
    dead = manager_for(host, "rpm", 120)
    dead.apply(Transaction(remove=["rebellions-kmd"]))
    dead.apply(Transaction(install=["rebellions-kmd-3.2.2-1"]))
    seen["dead"] = [installed("rebellions-kmd"), list(dead.warnings), dead.hold(["rebellions-kmd"]), dead.held()]
    seen["dead own"] = error(dead.refresh, "dead")
    dead.unhold(["rebellions-kmd"])
    os.unlink("/etc/yum.repos.d/dead.repo")
    # One that answers, with a signature that is none.
    shutil.copytree(RPMS, "/srv/unsigned")
    write("/srv/unsigned/repodata/repomd.xml.asc", "no signature\n")
    unsigned = "[unsigned]\nname=unsigned\nbaseurl=file:///srv/unsigned\ngpgcheck=0\nrepo_gpgcheck=1\n"
    write("/etc/yum.repos.d/unsigned.repo", unsigned)
    wrong = manager_for(host, "rpm", 120)
    wrong.available("rebellions-kmd")
    seen["unsigned"] = list(wrong.left_out)
    seen["unsigned alone"] = error(wrong.refresh, "unsigned")
    os.unlink("/etc/yum.repos.d/unsigned.repo")
    # H15
    seen["eus"] = error(dnf.simulate, Transaction(install=["kernel-devel-5.14.0-999.el9"]))
    write(REPO, "[lab]\nname=lab\nbaseurl=file://%s\nenabled=0\n" % RPMS)
    seen["none"] = error(dnf.simulate, Transaction(install=["dkms"]))
    return {**seen, **logged(host)}


def logged(host: t.Any) -> dict[str, t.Any]:
    """What the logs tell of all this, and of a call of rpm that is in none."""
    found, unread = history.package_changes(host, 0)
    names = sorted({name for entry in found if "/dnf" in entry["log"] for name in entry["packages"]})
    of_dnf = [entry for entry in unread if "/apt/" not in entry["path"] and "dpkg" not in entry["path"]]
    time.sleep(1.1)
    installed("site-agent")
    began, history.LATE = time.time(), 0
    quiet = history.package_changes(host, began)
    time.sleep(1.1)
    subprocess.run(["rpm", "-e", "--allmatches", "site-agent"], check=True)
    alone = history.package_changes(host, began)
    unread_of = [[entry["path"] for entry in one[1] if "rpm/" in entry["path"]] for one in (quiet, alone)]
    return {"logged": [names, of_dnf], "rpm alone": unread_of}


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1])))
