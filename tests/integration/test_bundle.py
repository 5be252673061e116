# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An offline bundle, from a connected host to one whose network is cut.

A whole bundle is enough; with a missing or damaged file nothing is touched.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import typing as t
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts, difference, fingerprint
from tests.integration._play import Data, Run, play, runfile
from tests.lab import Lab

UP, OFF = "it-bundle-up", "it-bundle-off"
NAME = "debian-13-x86_64"
MAKE = "packages/make_*_amd64.deb"
PORT = 8632
# The headers of the machine's kernel are no package of the hosts' system, and the hosts have them.
INPUTS: Data = {
    "rbln_bundle_packages": ["make"],
    "rbln_bundle_kernels": [],
    "rbln_bundle_work": "/var/cache/it-bundle",
    # As a survey gives them where nobody has answered.
    **dict.fromkeys(("rbln_bundle_timeout", "rbln_bundle_serve_port", "rbln_bundle_base", "rbln_bundle_headers"), ""),
}


class Bundle(t.NamedTuple):
    """The hosts, the folder with one bundle per system, an inventory, the first run."""

    hosts: Hosts
    folder: Path
    where: Path
    run: Run

    @property
    def own(self) -> Path:
        return self.folder / NAME

    def copy(self, target: Path) -> Bundle:
        shutil.copytree(self.folder, target)
        return self._replace(folder=target, where=groups(self.hosts, target))

    def off(self, command: str, check: bool = True) -> str:
        return str(self.hosts.lab.exec(OFF, command, check=check).stdout)

    def up(self, command: str) -> str:
        return str(self.hosts.lab.exec(UP, command).stdout)


def groups(hosts: Hosts, folder: Path, server: str = "", **variables: t.Any) -> Path:
    """An inventory: OFF is the fleet, UP is connected, and serves at `server` when that is its address."""
    path = hosts.inventory(
        OFF,
        name="bundle-" + folder.parent.name + server,
        **{**INPUTS, "rbln_bundle_folder": str(folder)},
        **variables,
    )
    tree = json.loads(path.read_text())
    shared = tree["npu_nodes"]["vars"]
    tree["npu_bundle"] = {"hosts": {UP: {}}, "vars": shared}
    if server:
        tree["npu_bundle_server"] = {"hosts": {UP: {"rbln_bundle_serve_address": server}}}
    path.write_text(json.dumps(tree))
    return path


@pytest.fixture(scope="module")
def bundle(lab: Lab, staged: None, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Bundle]:
    hosts = Hosts(lab, {UP: "containerd17", OFF: "containerd17"}, kube=False)
    hosts.virgin()
    cut_off(lab)
    folder = tmp_path_factory.mktemp("bundles") / "out"
    where = groups(hosts, folder)
    dry = play("bundle", where, "--check", "--limit", UP).good([UP])
    assert dry.changed() != [] and not folder.exists()
    planned = [one["name"] for one in dry.one("Collect | Download, verify and put together", UP).data["planned"]]
    assert [name for name in planned if name.startswith("make_")], planned
    run = play("bundle", where, "--limit", UP).good([UP])
    yield Bundle(hosts, folder, where, run)
    hosts.leave()


def cut_off(lab: Lab) -> None:
    """Take the way out from OFF; its neighbours stay."""
    lab.exec(OFF, "ip route replace unreachable default")
    assert lab.exec(OFF, "ip route get 192.0.2.1", check=False).returncode != 0


def untouched(bundle: Bundle, host: str) -> None:
    assert difference(bundle.hosts.fresh[host], fingerprint(bundle.hosts.lab, host)) == []


def test_a_connected_host_is_left_as_it_was(bundle: Bundle) -> None:
    untouched(bundle, UP)
    assert bundle.run.executions and {name for name, _line in bundle.run.executions} == {UP}


def test_the_folder_has_everything_and_says_so(bundle: Bundle) -> None:
    manifest = json.loads((bundle.own / "manifest.json").read_text())
    assert manifest["os"] == {"architecture": "x86_64", "id": "debian", "version_id": "13"} and manifest[
        "requested"
    ] == ["make"]
    kinds = {one["kind"]: one["path"] for one in manifest["files"]}
    assert kinds["runfile"] == "driver/rebellions-x86_64-3.2.2.run" and len(list(bundle.own.glob(MAKE))) == 1
    # libc6 is on every host, at a version that make need not like.
    assert {"make", "libc6"} <= {one["name"] for one in manifest["files"]}
    assert [(one["name"], one["digest"], one["reason"]) for one in manifest["images"]] == [
        ("rbln-device-plugin device-plugin", None, "neither skopeo nor crane is installed on the host"),
        ("rbln-validator driver-validation", None, "neither skopeo nor crane is installed on the host"),
    ]


def test_collected_again_it_stays(bundle: Bundle) -> None:
    before = (bundle.own / "manifest.json").stat().st_mtime_ns
    play("bundle", bundle.where, "--limit", UP).unchanged([UP])
    assert (bundle.own / "manifest.json").stat().st_mtime_ns == before


def test_files_that_are_missing_are_one_error_G01_airgap_no_internet(bundle: Bundle, tmp_path: Path) -> None:
    part = bundle.copy(tmp_path / "part")
    missing = next(part.own.glob(MAKE))
    missing.unlink()
    run = play("bundle_place", part.where)
    assert run.code == 2 and len(run.failed()) == 1 and run.changed() == []
    text = run.failed()[0].msg
    assert (
        missing.name in text
        and "is missing" in text
        and re.search(r"\([0-9]+ bytes, SHA-256 [0-9a-f]{64}\)", text)
        and "nothing was sent" in text
    )
    untouched(bundle, OFF)


def test_a_damaged_file_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    part = bundle.copy(tmp_path / "part")
    path = part.own / "driver/rebellions-x86_64-3.2.2.run"
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(bytes(body))
    run = play("bundle_place", part.where)
    assert (
        run.code == 2
        and len(run.failed()) == 1
        and "is another file: it has %d bytes, SHA-256" % len(body) in run.failed()[0].msg
    )
    untouched(bundle, OFF)


def test_what_the_run_needs_and_the_bundle_lacks_is_one_error(bundle: Bundle) -> None:
    more: Data = {
        "rbln_bundle_packages": ["make", "dkms", "gcc"],
        "rbln_bundle_kernels": ["6.12.0-1-amd64"],
        "rbln_driver_version": "3.4.0",
    }
    run = play("bundle_place", bundle.where, extra=more)
    assert run.code == 2 and len(run.failed()) == 1 and run.changed() == []
    text = run.failed()[0].msg
    assert (
        "lacks 4 items that this host needs" in text
        and "no installer of version 3.4.0. It has: driver/rebellions-x86_64-3.2.2.run (" in text
    )
    assert all(word in text for word in ("no dkms.", "no gcc.", "no linux-headers-6.12.0-1-amd64.")), text
    untouched(bundle, OFF)


def served(bundle: Bundle, **variables: t.Any) -> Path:
    return groups(bundle.hosts, bundle.folder, server=bundle.hosts.lab.hosts()[UP]["address"], **variables)


def test_a_host_without_a_network_gets_its_driver_by_the_bundle_alone(bundle: Bundle) -> None:
    hosts = bundle.hosts
    driver = {**runfile("3.2.2"), "rbln_driver_bundle": "/var/lib/rbln/bundle", "rbln_driver_build_packages": ["make"]}
    driver["rbln_driver_runfile"] = str(bundle.own / "driver")
    early = play("site", served(bundle, **driver), "--limit", OFF, "--check")
    assert early.code == 2 and "Place the bundle first (playbook bundle_place)" in early.failed(OFF)[-1].msg
    # With a digest the host asks the server alone, which check mode does not start.
    digest = hashlib.sha256((bundle.own / "manifest.json").read_bytes()).hexdigest()
    where = served(bundle, rbln_bundle_sha256=digest)
    told = play("bundle_place", where, "--check").good([UP, OFF])
    real = play("bundle_place", where).good([UP, OFF])
    for host in (UP, OFF):
        foretold = [name.replace("Say that it will be started", "Start it") for name in told.changed(host)]
        assert foretold == real.changed(host) != [], host
    play("bundle_place", where).unchanged([UP, OFF])
    assert bundle.off("ls /etc/apt/sources.list.d /etc/systemd/system | grep -c rbln || :").strip() == "0"
    assert "file:/var/lib/rbln/bundle" in bundle.off("APT_CONFIG=/var/lib/rbln/bundle/apt.conf apt-cache policy make")
    hosts.state[OFF] = "dirty"
    site = served(bundle, **driver)
    play("site", site, "--limit", OFF).good([OFF])
    assert bundle.off("make --version").startswith("GNU Make")
    assert bundle.off("cat /sys/module/rebellions/version").strip() == "3.2.2"
    play("site", site, "--limit", OFF).unchanged([OFF])


_GET = """python3 -c '
import sys, urllib.error, urllib.request
for path in sys.argv[2:]:
    try:
        print(urllib.request.urlopen("http://" + sys.argv[1] + path, timeout=5).status)
    except urllib.error.HTTPError as exc:
        print(exc.code)
    except OSError:
        print("refused")
' """


def test_a_host_knows_where_the_others_reach_it(bundle: Bundle, tmp_path: Path) -> None:
    addresses = {name: bundle.hosts.lab.hosts()[name]["address"] for name in (UP, OFF)}
    task = {"name": "Ask", "rebellions.npu.rbln_bundle": {"state": "reached", "peers": [addresses[OFF], "nobody"]}}
    path = tmp_path / "reached.yml"
    path.write_text(json.dumps([{"name": "Ask", "hosts": UP, "gather_facts": False, "tasks": [task]}]))
    run = play(path, bundle.where).unchanged([UP])
    assert run.one("Ask", UP).data["address"] == addresses[UP]


def test_the_web_server_is_at_one_address_and_only_reads(bundle: Bundle) -> None:
    play("bundle_place", served(bundle)).good([UP, OFF])
    address = "%s:%d" % (bundle.hosts.lab.hosts()[UP]["address"], PORT)
    assert bundle.up("ss -Hltn sport = :%d | awk '{print $4}'" % PORT).split() == [address]
    folders = ["/", "/%s" % NAME, "/%s/" % NAME, "/%s/packages/" % NAME, "/../bundle/manifest.json", "/%2e%2e/x"]
    answers = bundle.off(_GET + " ".join([address, "/%s/manifest.json" % NAME, *folders])).split()
    assert answers == ["200"] + ["404"] * len(folders)
    assert bundle.up(_GET + "127.0.0.1:%d /%s/manifest.json" % (PORT, NAME)).split() == ["refused"]
    process = bundle.up("systemctl show -P MainPID rbln-bundle.service").strip()
    words = dict(line.split(":", 1) for line in bundle.up("cat /proc/%s/status" % process).splitlines())
    assert "0" not in words["Uid"].split() + words["Gid"].split()
    assert {int(words[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert (words["NoNewPrivs"].strip(), words["Seccomp"].strip()) == ("1", "2")
    # Root in its place could not write either; only its own /tmp is left, where a file may have no content.
    assert bundle.up("systemctl show -P LimitFSIZE rbln-bundle.service").strip() == "0"
    for folder in ("/var/lib/rbln/bundle-served", "/etc", "/usr/local/lib", "/var/lib", "/root"):
        told = bundle.up("nsenter -t %s -m -- touch %s/x 2>&1 || :" % (process, folder))
        assert "Read-only file system" in told or "No such file" in told, (folder, told)
    assert bundle.up("ls /var/lib/rbln/bundle-served").split() == [NAME]


def test_it_goes_without_a_trace(bundle: Bundle, tmp_path: Path) -> None:
    where = served(bundle)
    if "manifest.json" not in bundle.off("ls /var/lib/rbln/bundle 2>/dev/null || :"):
        play("bundle_place", where).good([UP, OFF])
    book = [
        {
            "name": "Remove",
            "hosts": "npu_nodes:npu_bundle_server",
            "gather_facts": False,
            "tasks": [
                {
                    "name": "Remove",
                    "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_bundle", "tasks_from": "absent.yml"},
                }
            ],
        }
    ]
    path = tmp_path / "absent.yml"
    path.write_text(json.dumps(book))
    play(path, where).good([UP, OFF])
    play(path, where).unchanged([UP, OFF])
    assert bundle.off("ls -d /var/lib/rbln/bundle* 2>/dev/null || :") == ""
    left = [
        line
        for line in difference(bundle.hosts.fresh[UP], fingerprint(bundle.hosts.lab, UP, times=True))
        if line[0] != "~"
    ]
    assert [line for line in left if "/var/lib/systemd" not in line] == ["+/var/lib/rbln"], left
