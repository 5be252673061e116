# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt of Debian 12 and 13, users of NPUs and kept installers on a real host.

apt is killed, hangs, finds its lock held, has no room, or gets damaged files.
"""

from __future__ import annotations

import json
import subprocess
import typing as t

import pytest

from tests.lab import Lab
from tests.tools.paths import ROOT
from tests.unit.plugins.signing import made_keys

HOSTS = {"pkg-12": "containerd2", "pkg-13": "containerd17"}
PARTS = ["rebellions-driver", "rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln"]
H07 = ROOT / "tests" / "unit" / "fixtures" / "facts" / "cases" / "H07-apt-signed-by-conflict" / "sources.list.d"
UTILS = ROOT / "plugins" / "module_utils"
START = """
import fcntl, json, os, subprocess, sys, threading, time
sys.path.insert(0, "/root")
from npu._host.host import Host
from npu._npu.users import describe_holders, find_holders
from npu._driver.kept import keep, prune, read_kept, verify
from npu._base.model import NpuError
from npu._packages.changes import Transaction
from npu._packages.manager import manager_for
from npu._base.rebellions import PROFILE
host = Host()
apt, hasty = manager_for(host, "deb", 300), manager_for(host, "deb", 4)
def error(function, *words, **more):
    try:
        function(*words, **more)
    except NpuError as exc:
        return [exc.message, exc.next_step]
def shown(changes):
    return [str(change) for change in changes]
def deb(name, version="1.0", **scripts):
    base = "/root/build/" + name
    os.makedirs(base + "/DEBIAN", exist_ok=True)
    files = scripts.pop("files", {})
    control = (
        "Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: x <noreply@example.com>\\nDescription: x\\n"
        % (name, version)
    )
    for path, text, mode in [("DEBIAN/control", control, 0o644),
                             *(("DEBIAN/" + key, "#!/bin/sh\\n" + text, 0o755) for key, text in scripts.items()),
                             *((path, text, 0o644) for path, text in files.items())]:
        os.makedirs(os.path.dirname(os.path.join(base, path)), exist_ok=True)
        with open(os.path.join(base, path), "w") as stream:
            stream.write(text)
        os.chmod(os.path.join(base, path), mode)
    argv = ["dpkg-deb", "-b", "--root-owner-group", base, "/root/%s.deb" % name]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return "/root/%s.deb" % name
def processes(name):
    return subprocess.run(["pgrep", "-fx", name], stdout=subprocess.PIPE, text=True).stdout.split()
def kill(*names):
    for name in names:
        subprocess.run(["pkill", "-9", "-x", name])
def wait_for(name):
    for _ in range(200):
        if processes(name):
            return
        time.sleep(0.05)
"""
CLEAN = """
apt.repair(["*"])
apt.unhold(apt.held())
apt.apply(Transaction(remove=%r))
""" % (PARTS + ["slow", "hang", "stubborn", "big", "plain"])


class Machine:
    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name

    def ask(self, code: str, seconds: int = 120) -> t.Any:
        """Run Python on the host with the module utilities; what it assigns to `answer`."""
        text = START + CLEAN + code + "\nprint('\\n' + json.dumps(answer))\n"
        return json.loads(
            self.lab.exec(self.name, ["python3", "-"], stdin=text, timeout=seconds).stdout.splitlines()[-1]
        )


@pytest.fixture(scope="module", params=sorted(HOSTS))
def machine(request: pytest.FixtureRequest) -> t.Iterator[Machine]:
    made = Lab()
    made.up({request.param: HOSTS[request.param]}, kube=False)
    tar = subprocess.run(
        [
            "tar",
            "-C",
            str(UTILS.parent),
            "--exclude=__pycache__",
            "--transform=s/^module_utils/npu/",
            "-cf",
            "-",
            "module_utils",
        ],
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(
        ["podman", "exec", "-i", request.param, "tar", "-C", "/root", "-xf", "-"], input=tar, check=True, timeout=60
    )
    sources = (
        "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*; "
        "echo 'deb [trusted=yes] file:/opt/npu-lab/payload/apt ./' >/etc/apt/sources.list"
    )
    made.exec(request.param, sources + "; apt-get -q update; mkdir -p /etc/systemd/system/rbln-smd.service.d")
    # It starts more often here than systemd lets a service start.
    made.exec(
        request.param, "printf '[Unit]\\nStartLimitIntervalSec=0\\n' >/etc/systemd/system/rbln-smd.service.d/often.conf"
    )
    yield Machine(made, request.param)
    made.down([request.param])


def test_a_driver_comes_moves_and_goes(machine: Machine) -> None:
    answer = machine.ask(
        """
answer = {"versions": apt.available("rebellions-kmd"), "none": apt.resolve("rebellions-kmd", "9")}
apt.apply(Transaction(install=["rebellions-driver=3.2.2"]))
answer["again"] = shown(apt.simulate(Transaction(install=["rebellions-driver=3.2.2"])))
apt.hold(["rebellions-kmd", "librbln"])
answer["held"] = error(apt.simulate, Transaction(install=["rebellions-driver=3.4.0"]))
answer["kept"] = sorted(
    os.path.basename(path) for path in apt.download(["rebellions-kmd", "librbln=3.4.0"], "/root/kept")
)
apt.apply(Transaction(install=["rebellions-driver=3.4.0"], allow_held=True))
answer["held after"] = apt.held()
answer["older"] = error(apt.simulate, Transaction(install=["rebellions-driver=3.2.2"], allow_held=True))
apt.apply(Transaction(install=["rebellions-driver=3.2.2"], allow_held=True, allow_downgrade=True))
answer["gone"] = sorted(
    change.name for change in apt.simulate(Transaction(remove=["rebellions-kmd", "nosuch"], allow_held=True))
)
apt.apply(
    Transaction(
        remove=["rebellions-driver", "rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln"], allow_held=True
    )
)
answer["left"] = apt.installed(%r)
"""
        % PARTS
    )
    assert answer["versions"][-3:] == ["3.4.1", "3.4.0", "3.2.2"]
    assert (answer["none"], answer["again"]) == (None, [])
    assert answer["held"][0] == "These packages are held on the host: librbln, rebellions-kmd."
    assert answer["kept"] == ["librbln_3.4.0_amd64.deb", "rebellions-kmd_3.2.2_amd64.deb"]
    assert answer["held after"] == ["librbln", "rebellions-kmd"]
    assert "downgrade rebellions-kmd (3.4.0 -> 3.2.2)" in answer["older"][0]
    assert answer["gone"] == ["rebellions-driver", "rebellions-kmd"]
    assert answer["left"] == []


def test_a_driver_that_never_builds_is_replaced_or_removed(machine: Machine) -> None:
    answer = machine.ask("""
apt.apply(Transaction(install=["rebellions-driver=3.2.2"]))
answer = {"error": error(apt.apply, Transaction(install=["rebellions-driver=3.4.1"])), "broken": apt.unfinished()}
answer["repaired"], answer["still"] = apt.repair(), apt.unfinished()
apt.apply(Transaction(install=["rebellions-driver=3.2.2"], allow_downgrade=True))
answer["back"] = apt.unfinished()
error(apt.apply, Transaction(install=["rebellions-driver=3.4.1"]))
answer["removed"], answer["left"] = apt.repair(["rebellions*"]), apt.installed(["rebellions-kmd", "rebellions-driver"])
""")
    assert (
        "dpkg: error processing package rebellions-driver" in answer["error"][0]
        and "/var/lib/dkms" in answer["error"][1]
    )
    assert answer["broken"] == answer["still"] == ["rebellions-driver", "rebellions-kmd"]
    assert (answer["repaired"], answer["back"], answer["removed"], answer["left"]) == (True, [], True, [])


@pytest.mark.parametrize("killed", [("dpkg",), ("dpkg", "apt-get"), ("apt-get",)])
def test_killed_in_a_script_the_next_run_finishes(machine: Machine, killed: tuple[str, ...]) -> None:
    answer = machine.ask(
        """
path = deb("slow", postinst="exec sleep 3\\n")
result = []
run = threading.Thread(target=lambda: result.append(error(apt.apply, Transaction(files=[path]))))
run.start()
wait_for("sleep 3")
kill(*%r)
run.join()
for _ in range(200):
    if not processes("sleep 3") and not processes("dpkg .*"):
        break
    time.sleep(0.05)
answer = {"error": result[0] is not None, "repair": apt.repair(), "after": apt.unfinished(),
          "there": apt.installed(["slow"]), "again": apt.repair()}
"""
        % (killed,)
    )
    assert answer["error"] is True
    assert (answer["after"], answer["there"], answer["again"]) == ([], ["slow"], False)
    assert answer["repair"] is True or "dpkg" not in killed


def test_a_script_that_never_ends_is_ended_with_its_children(machine: Machine) -> None:
    answer = machine.ask("""
path = deb("hang", postinst="sleep 1000 & wait\\n")
answer = {"error": error(hasty.apply, Transaction(files=[path])),
          "left": processes("sleep 1000") + processes("dpkg .*")}
started = time.monotonic()
answer["repair"], answer["seconds"], answer["broken"] = hasty.repair(), time.monotonic() - started, apt.unfinished()
answer["removed"], answer["after"], answer["there"] = hasty.repair(["hang"]), apt.unfinished(), apt.installed(["hang"])
""")
    assert (
        answer["error"][0].startswith("apt-get did not end within 4 s. Last output: ")
        and "Setting up hang (1.0)" in answer["error"][0]
    )
    assert (answer["left"], answer["repair"], answer["broken"]) == ([], True, ["hang"])
    assert answer["seconds"] < 20
    assert (answer["removed"], answer["after"], answer["there"]) == (True, [], [])


def test_a_package_none_of_whose_scripts_work_can_be_taken_out(machine: Machine) -> None:
    answer = machine.ask("""
path = deb("stubborn", postinst="exit 1\\n", prerm="exit 1\\n", postrm="exit 1\\n")
answer = {"install": error(apt.apply, Transaction(files=[path])) is not None,
          "remove": error(apt.apply, Transaction(remove=["stubborn"])) is not None}
answer["repair"], answer["after"] = apt.repair(["stubborn"]), apt.unfinished()
""")
    assert answer == {"install": True, "remove": True, "repair": True, "after": []}


@pytest.mark.parametrize("lock", ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"])
def test_who_holds_the_lock_is_named(machine: Machine, lock: str) -> None:
    answer = machine.ask(
        """
path = deb("plain")
code = "import fcntl, time; f = open('%s', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(60)"
holder = subprocess.Popen(["python3", "-c", code])
time.sleep(1)
answer = {"pid": holder.pid, "error": error(hasty.apply, Transaction(files=[path])),
          "simulated": shown(hasty.simulate(Transaction(files=[path])))}
holder.kill()
holder.wait()
"""
        % lock
    )
    assert "the lock is held by python3 (pid %d)" % answer["pid"] in answer["error"][0]
    assert answer["error"][1] == "Wait until that program ends and run again."
    assert answer["simulated"] == ["install plain (1.0)"]


def test_without_room_nothing_is_half_there(machine: Machine) -> None:
    answer = machine.ask("""
os.makedirs("/mnt/small", exist_ok=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt/small"], check=True)
try:
    path = deb("big", files={"mnt/small/big": "x" * 8000000})
    answer = {"error": error(apt.apply, Transaction(files=[path])), "broken": apt.unfinished(),
              "there": apt.installed(["big"]), "files": os.listdir("/mnt/small")}
    for name, size in (("one.run", 400000), ("two.run", 900000)):
        with open("/root/" + name, "wb") as stream:
            stream.write(os.urandom(size))
    good = keep(host, "/mnt/small/kept", {"version": "1", "source": "runfile"}, ["/root/one.run"])
    answer["keep"] = error(keep, host, "/mnt/small/kept", {"version": "2", "source": "runfile"}, ["/root/two.run"])
    answer["kept"] = [[item.version, verify(host, item)] for item in read_kept(host, "/mnt/small/kept")]
    answer["names"] = os.listdir("/mnt/small/kept")
    answer["download"] = error(apt.copy_into, "/mnt/small/kept", ["/root/two.run"])
    answer["names after"] = os.listdir("/mnt/small/kept")
finally:
    subprocess.run(["umount", "/mnt/small"], check=True)
""")
    assert "No space left on device" in answer["error"][0] and answer["error"][1].startswith("Make room")
    assert (answer["broken"], answer["there"], answer["files"]) == ([], [], [])
    assert answer["keep"] == [
        "/root/two.run cannot be kept: No space left on device.",
        "Make room on that file system.",
    ]
    assert answer["kept"] == [["1", []]]
    assert answer["names"] == answer["names after"] == ["runfile-1"]
    assert answer["download"][1] == "Make room on that file system."


def test_H07_a_repository_that_the_host_has_is_used_and_apt_goes_on_working(machine: Machine) -> None:
    with made_keys() as keys:
        texts = {name: (keys.home / (name + ".asc")).read_text(encoding="utf-8") for name in ("vendor", "other")}
    texts.update((path.suffix[1:], path.read_text(encoding="utf-8")) for path in H07.iterdir())
    answer = machine.ask(
        "texts = %r\n" % texts
        + """
from npu._packages.keys import certificates
from npu._packages.repository import Wanted, place
def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(text)
wanted = Wanted("https://mirror.example/rbln", "stable", ["main"], certificates(texts["vendor"].encode(), "key"))
listed, ring = "/etc/apt/sources.list.d/rebellions.list", "/usr/share/keyrings/rebellions.gpg"
change = Transaction(install=["rebellions-driver=3.2.2"])
try:
    write(listed, texts["list"])
    write(ring, texts["other"])
    answer = {"named": error(place, apt, wanted, False), "untouched": len(apt.simulate(change))}
    write(ring, texts["vendor"])
    write(apt.own_file, texts["sources"])
    answer["conflict"] = error(apt.simulate, change)
    done = place(apt, wanted, False)
    answer["done"] = [done.source, done.adopted]
    answer["works"], answer["again"] = len(apt.simulate(change)), place(apt, wanted, False).changes
    os.unlink(listed)
    done = place(apt, wanted, False)
    answer["written"] = [done.source, done.adopted, error(apt.ask, ["apt-get", "indextargets"])]
    write("/etc/apt/preferences.d/npu", "Package: rebellions-driver\\nPin: release *\\nPin-Priority: -1\\n")
    os.unlink(apt.own_file)
    answer["pinned"] = error(apt.simulate, Transaction(install=["rebellions-driver"]))
finally:
    for path in (listed, ring, apt.own_file, apt.own_key, "/etc/apt/preferences.d/npu"):
        if os.path.exists(path):
            os.unlink(path)
"""
    )
    assert answer["named"][0].startswith(
        "/etc/apt/sources.list.d/rebellions.list line 1 has this repository with another"
    )
    assert (answer["untouched"], answer["works"], answer["again"]) == (5, 5, [])
    assert "Conflicting values set for option Signed-By" in answer["conflict"][0]
    assert all(name in answer["conflict"][1] for name in ("rebellions.list line 1", "rebellions-npu.sources line 2"))
    assert answer["done"] == ["/etc/apt/sources.list.d/rebellions.list", True]
    assert answer["written"] == ["/etc/apt/sources.list.d/rebellions-npu.sources", False, None]
    assert answer["pinned"][1].startswith("Correct the preference of apt in /etc/apt/preferences.d/npu line 1")


@pytest.mark.parametrize(
    "damage", ["data[:-300]", "data[:200]", "data[:-100] + bytes(50) + data[-50:]", "b'no package'", "b''"]
)
def test_a_damaged_file_changes_nothing(machine: Machine, damage: str) -> None:
    answer = machine.ask(
        """
with open(deb("plain", files={"usr/share/plain": os.urandom(2000).hex()}), "rb") as stream:
    data = stream.read()
with open("/root/damaged.deb", "wb") as stream:
    stream.write(%s)
answer = {"error": error(apt.apply, Transaction(files=["/root/damaged.deb"])), "broken": apt.unfinished(),
          "there": apt.installed(["plain"]), "repair": apt.repair()}
"""
        % damage
    )
    assert answer["error"][1] == "Transfer the file again: it is damaged or not a package."
    assert (answer["broken"], answer["there"], answer["repair"]) == ([], [], False)


def test_users_of_the_npus_are_found(machine: Machine) -> None:
    answer = machine.ask("""
apt.apply(Transaction(install=["rebellions-driver=3.2.2"]))
before = find_holders(PROFILE, host, [], (os.getpid(),))
holder = subprocess.Popen(["systemd-run", "-q", "--unit=train", "--wait", "sh", "-c", "exec sleep 1001 </dev/rbln0"])
wait_for("sleep 1001")
found, probe = find_holders(
    PROFILE, host, [{"device": "1", "pid": 999999, "process": "/opt/x --token"}], (os.getpid(),)
)
subprocess.run(["systemctl", "stop", "train"])
holder.wait()
answer = {"before": [len(before[0]), before[1].state], "found": describe_holders(found), "state": probe.state}
""")
    assert answer["before"] == [0, "value"] and answer["state"] == "value"
    pid = answer["found"].split("pid ")[1].split(",")[0]
    assert answer["found"] == "sleep (pid %s, train.service) on rbln0; x (pid 999999, context) on rbln1" % pid
