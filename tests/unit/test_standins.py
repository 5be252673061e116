# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in driver: what its packages carry, its runfile, its firmware tool, the signatures beside it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.lab.standins import payload, repository

ROOTS = ("/sys/", "/run/", "/var/", "/etc/")
needs_gpg = pytest.mark.skipif(not (shutil.which("gpg") and shutil.which("gpgv")), reason="gpg and gpgv sign and check")


def members(package: bytes, part: str) -> dict[str, bytes]:
    """{path without ./: content} of control.tar.gz or data.tar.gz; folders left out, a link's content is its target."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(repository._member(package, part)))) as archive:
        for member in archive:
            if not member.isdir():
                handle = archive.extractfile(member) if member.isfile() else None
                found[member.name[2:]] = handle.read() if handle else member.linkname.encode()
    return found


def package(name: str, version: str) -> bytes:
    return payload.driver_debs(version)["%s_%s_amd64.deb" % (name, version)]


def script(text: str, path: Path, root: Path) -> Path:
    """A stand-in script whose absolute paths lead below root."""
    for top in ROOTS:
        text = text.replace(top, "%s%s" % (root, top))
    path.write_text(text)
    path.chmod(0o755)
    return path


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o755)


def shell(*argv: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": "%s:%s" % (path, os.environ["PATH"])} if path else None
    return subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=30, env=env, check=False
    )


def test_the_kernel_driver_carries_what_a_vendors_does() -> None:
    data = members(package("rebellions-kmd", "3.4.0"), "data.tar.gz")
    assert sorted(data) == [
        "etc/modules-load.d/rebellions.conf",
        "usr/lib/rbln-standin/kmod",
        "usr/lib/rbln-standin/rebellions.ko",
        "usr/lib/systemd/system/rbln-standin-load.service",
        "usr/lib/udev/rules.d/70-rebellions.rules",
        "usr/src/rebellions-3.4.0/Makefile",
        "usr/src/rebellions-3.4.0/dkms.conf",
        "usr/src/rebellions-3.4.0/rebellions.c",
    ]
    assert b'PACKAGE_VERSION="3.4.0"' in data["usr/src/rebellions-3.4.0/dkms.conf"]
    assert data["etc/modules-load.d/rebellions.conf"] == b"rebellions\n"
    control = members(package("rebellions-kmd", "3.4.0"), "control.tar.gz")
    assert sorted(control) == ["conffiles", "control", "postinst", "prerm"]
    assert control["conffiles"] == b"/etc/modules-load.d/rebellions.conf\n"
    assert sorted(members(package("rebellions-fw", "3.4.0"), "data.tar.gz")) == [
        "usr/lib/firmware/rebellions/%s.bin" % card for card in ("ca22", "ca25", "cr13")
    ]


@pytest.mark.parametrize(
    "version, builds, status",
    [("3.2.2", True, "0"), ("3.4.0", True, "0"), ("3.4.1", False, "0"), ("3.4.2", True, "3")],
)
def test_what_each_version_does(version: str, builds: bool, status: str) -> None:
    kmd = package("rebellions-kmd", version)
    data, control = members(kmd, "data.tar.gz"), members(kmd, "control.tar.gz")
    assert (b'#error "stand-in' in data["usr/src/rebellions-%s/rebellions.c" % version]) is not builds
    assert (b"-DRBLN_STATUS=3" in data["usr/src/rebellions-%s/Makefile" % version]) is (status == "3")
    assert (" status=%s " % status).encode() in data["usr/lib/rbln-standin/kmod"]
    assert (b"\ttrue || fail\n" in control["postinst"], b"\tfalse || fail\n" in control["postinst"]) == (
        builds,
        not builds,
    )


@pytest.mark.parametrize("version", payload.ALL_VERSIONS)
def test_every_script_is_complete_and_parses(version: str, tmp_path: Path) -> None:
    texts = {"run": payload.runfile(version).split(b"\nexit 0\n\x1f\x8b")[0]}
    for name, made in {**payload.driver_debs(version), **payload.legacy_deb()}.items():
        texts.update(
            {
                name + key: text
                for key, text in members(made, "control.tar.gz").items()
                if key in ("postinst", "prerm", "postrm")
            }
        )
        texts.update(
            {name + key: text for key, text in members(made, "data.tar.gz").items() if text.startswith(b"#!/bin/sh")}
        )
    assert len(texts) > 12
    for name, text in texts.items():
        assert not [word for word in (b"@VERSION@", b"@STATUS@", b"@BUILDS@", b"@LINE@") if word in text], name
        (tmp_path / "script").write_bytes(text)
        done = shell("sh", "-n", tmp_path / "script")
        assert (done.returncode, done.stderr) == (0, ""), name


def test_a_legacy_script_ends_as_its_parts_do(tmp_path: Path) -> None:
    """The parts of the one legacy package end by themselves.

    What follows must run, and a failed build must fail the whole.
    """
    (made,) = payload.legacy_deb().values()
    postinst = members(made, "control.tar.gz")["postinst"].decode()
    fakes = tmp_path / "bin"
    program(fakes, "ldconfig", "echo ldconfig\n")
    for name in ("systemctl", "depmod", "cp", "touch", "mkdir", "modprobe", "udevadm"):
        program(fakes, name, ":\n")
    program(fakes, "systemd-detect-virt", ":\n")
    program(fakes, "dkms", "exit 1\n")
    text = postinst.replace("/usr/lib/modprobe.d", str(tmp_path)).replace("command -v dkms", "false")
    whole = script(text, tmp_path / "postinst", tmp_path)
    good = shell(whole, "configure", path=fakes)
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "ldconfig"), good.stderr
    program(fakes, "touch", "exit 1\n")
    bad = shell(whole, "configure", path=fakes)
    assert bad.returncode == 1 and "ldconfig" not in bad.stdout


def test_source_of_a_module_that_does_not_build() -> None:
    good, bad = payload.source("9.9.9"), payload.source("9.9.9", builds=False)
    assert sorted(good) == ["Makefile", "dkms.conf", "rebellions.c"]
    assert (
        bad["rebellions.c"] == good["rebellions.c"] + '#error "stand-in: this version does not build"\n'
        and bad["Makefile"] == good["Makefile"]
    )
    assert payload.source("9.9.9", status=3)["Makefile"] == good["Makefile"] + "ccflags-y += -DRBLN_STATUS=3\n"


def test_runfile_tells_and_unpacks(tmp_path: Path) -> None:
    path = tmp_path / "driver.run"
    path.write_bytes(payload.runfile("3.4.0"))
    path.chmod(0o755)
    assert shell(path, "--version").stdout == "rebellions 3.4.0\n"
    assert shell(path, "--nonsense").returncode == 2
    assert shell(path, "--extract", tmp_path / "out").returncode == 0
    want = {
        name: data for name, data in payload.driver_debs("3.4.0").items() if not name.startswith("rebellions-driver")
    }
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == want
    path.write_bytes(path.read_bytes()[:-2000])
    assert shell(path, "--extract", tmp_path / "half").returncode != 0


@pytest.mark.parametrize("code", [0, 3])
def test_runfile_keeps_a_log(tmp_path: Path, code: int) -> None:
    fakes = tmp_path / "bin"
    program(fakes, "id", "echo 0\n")
    program(fakes, "uname", "echo x86_64\n")
    program(fakes, "dpkg", "echo to out; echo to err >&2; exit %d\n" % code)
    head, _mark, archive = payload.runfile("3.4.0").partition(b"\nexit 0\n\x1f\x8b")
    path = tmp_path / "driver.run"
    path.write_bytes(head.replace(b"/var/log/", b"%s/" % os.fsencode(tmp_path)) + b"\nexit 0\n\x1f\x8b" + archive)
    path.chmod(0o755)
    done = shell(path, "--silent", path=fakes)
    end = "rebellions 3.4.0: installed\n" if code == 0 else ""
    assert (done.returncode, done.stdout, done.stderr) == (code, "to out\n" + end, "to err\n")
    lines = (tmp_path / "rebellions" / "install.log").read_text().splitlines()
    assert lines[0].split(" ", 1)[1].startswith("dpkg -i ") and lines[0].count(".deb") == 4
    assert sorted(lines[1:3]) == ["to err", "to out"] and lines[3:] == (["exit 3"] if code else [])


class Cards:
    """Two ATOM+ and a virtual function below a root of their own, and rbln-flash for them."""

    def __init__(self, root: Path) -> None:
        self.root, self.fakes = root, root / "bin"
        for address, device in (("0000:01:00.0", "1220"), ("0000:01:00.1", "1221"), ("0000:02:00.0", "1220")):
            folder = root / "sys/bus/pci/devices" / address
            folder.mkdir(parents=True)
            (folder / "vendor").write_text("0x1eff\n")
            (folder / "device").write_text("0x%s\n" % device)
        (root / "etc/modprobe.d").mkdir(parents=True)
        (root / "run/npu-lab/fault").mkdir(parents=True)
        (root / "fw").mkdir()
        (root / "fw/ca22.bin").write_text("stand-in firmware 3.4.0\n")
        program(self.fakes, "id", "echo 0\n")
        program(self.fakes, "systemd-detect-virt", "exit 1\n")
        self.tool = script((payload.FILES / "rbln-flash.sh").read_text(), root / "rbln-flash", root)

    def flash(self, *argv: str) -> tuple[int, list[str], str]:
        done = shell(self.tool, *(argv or ("--cp", "-d", str(self.root / "fw"), "-s", "all")), path=self.fakes)
        return done.returncode, [line for line in done.stdout.splitlines() if " : " in line], done.stderr

    def options(self) -> str:
        return (self.root / "etc/modprobe.d/npu-lab-fw.conf").read_text()


def test_flash_every_card(tmp_path: Path) -> None:
    cards = Cards(tmp_path)
    assert cards.flash() == (0, ["0000:01:00.0 : SUCCESS [O]", "0000:02:00.0 : SUCCESS [O]"], "")
    assert {one.name: one.read_text() for one in (tmp_path / "var/lib/npu-lab/cards").iterdir()} == {
        "0000:01:00.0.cp": "3.4.0\n",
        "0000:02:00.0.cp": "3.4.0\n",
    }
    assert cards.options() == "options rebellions fw=3.4.0,3.4.0 smc=,\n"


def test_flash_where_one_card_fails_keeps_its_old_firmware(tmp_path: Path) -> None:
    cards = Cards(tmp_path)
    (tmp_path / "run/npu-lab/fault/fw-ver").write_text("3.2.2\n")
    (tmp_path / "run/npu-lab/fault/flash-fail").write_text("0000:02:00.0\n")
    assert cards.flash() == (1, ["0000:01:00.0 : SUCCESS [O]", "0000:02:00.0 : FAIL [X]"], "")
    assert cards.options() == "options rebellions fw=3.4.0,3.2.2 smc=,\n"


@pytest.mark.parametrize(
    "argv, code, told",
    [
        (("--mcu", "-f", "FW/ca22.bin", "-s", "0000:02:00.0"), 0, ["0000:02:00.0 : SUCCESS [O]"]),
        (("--cp", "-d", "/nowhere", "-s", "0000:02:00.0"), 1, ["0000:02:00.0 : FAIL [X]"]),
        (("--cp", "-d", "FW", "-s", "0000:99:00.0"), 2, []),
        (("--cp", "-d", "FW"), 2, []),
        (("-d", "FW", "-s", "all"), 2, []),
        (("--cp", "-s"), 2, []),
    ],
)
def test_flash_arguments(tmp_path: Path, argv: tuple[str, ...], code: int, told: list[str]) -> None:
    assert Cards(tmp_path).flash(*[word.replace("FW", str(tmp_path / "fw")) for word in argv])[:2] == (code, told)


def test_flash_refuses_while_the_module_is_loaded(tmp_path: Path) -> None:
    cards = Cards(tmp_path)
    (tmp_path / "sys/module/rebellions").mkdir(parents=True)
    assert cards.flash() == (1, [], "rbln-flash: the rebellions driver is loaded: unload it first\n")
    assert not (tmp_path / "var").exists()


@pytest.fixture
def smi() -> t.Iterator[tuple[Path, Path]]:
    """(a root with two loaded cards that every user may read, its rbln-smi)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for number, address in enumerate(("0000:01:00.0", "0000:02:00.0")):
            pci, card = root / "sys/devices" / address, root / ("sys/class/rebellions/rbln%d" % number)
            pci.mkdir(parents=True)
            card.mkdir(parents=True)
            (card / "device").symlink_to(pci)
            texts = {"device": "0x1220", "numa_node": "0", "current_link_speed": "16.0 GT/s PCIe"}
            for name, text in {**texts, "current_link_width": "16"}.items():
                (pci / name).write_text(text + "\n")
            texts = {"kernel_version": "3.4.0", "fw_ver": "3.2.2", "card_name": "RBLN-CA22", "group_id": "1"}
            for name, text in {**texts, "status": "03"[number], "dram_total": "16", "dram_used": "4"}.items():
                (card / name).write_text(text + "\n")
        (root / "etc").mkdir()
        (root / "etc/machine-id").write_text("0000000f" + "a" * 24 + "\n")
        (root / "run/npu-lab/fault").mkdir(parents=True)
        yield root, script(payload.script("rbln-smi.sh", "3.4.0").decode(), root / "rbln-smi", root)


def _forkless() -> None:
    """No process of a user other than root can make another one."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _alone(tool: Path, *argv: str) -> tuple[int, str, str]:
    user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    done = subprocess.run(
        [str(tool), *argv],
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": "/nowhere"},
        preexec_fn=_forkless,
        check=False,
        **user,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_tool_is_one_process(smi: tuple[Path, Path]) -> None:
    code, out, err = _alone(smi[1], "-g", "-j")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["KMD_version"], told["contexts"]) == ("3.4.0", [])
    assert [(one["device"], one["npu"], one["status"], one["sid"], one["uuid"]) for one in told["devices"]] == [
        ("rbln0", 0, "normal", "%016d" % 15, "00000000-0000-4000-8000-00000000000f"),
        ("rbln1", 1, "abnormal", "%016d" % 16, "00000000-0000-4000-8000-000000000010"),
    ]
    last = told["devices"][1]
    assert last["pci"] == {
        "dev": "1220",
        "bus_id": "0000:02:00.0",
        "numa_node": "0",
        "link_speed": "16.0GT/s",
        "link_width": "16",
    }
    assert (last["group_id"], last["name"], last["fw_ver"]) == ("1", "RBLN-CA22", "3.2.2")
    assert last["memory"] == {"used": "4", "total": "16"}
    assert _alone(smi[1]) == (
        0,
        "Device Information KMD ver: 3.4.0\n| 0 | RBLN-CA22 | rbln0 | normal |\n| 1 | RBLN-CA22 | rbln1 | abnormal |\n",
        "",
    )
    assert _alone(smi[1], "--version") == (0, "rbln-smi 3.4.0\n", "")


def test_faults_of_the_tool(smi: tuple[Path, Path]) -> None:
    root, tool = smi
    faults = {"kmd": "9.9", "word-rbln1": "SICK", "missing-rbln0": "", "collapse": ""}
    for name, text in {**faults, "contexts": '[\n{"pid": 1}]', "noise": "so it is\n"}.items():
        (root / "run/npu-lab/fault" / ("smi-" + name)).write_text(text)
    noise, _line, rest = shell(tool, "-j").stdout.partition("\n")
    told = json.loads(rest)
    assert (noise, told["KMD_version"], told["contexts"]) == ("so it is", "9.9", [{"pid": 1}])
    assert [(one["device"], one["npu"], one["status"]) for one in told["devices"]] == [("rbln1", 0, "SICK")]
    (root / "run/npu-lab/fault/smi-truncate").touch()
    assert len(shell(tool, "-j").stdout) == len("so it is\n") + 200
    (root / "run/npu-lab/fault/smi-exit").write_text("5\n")
    assert shell(tool, "-j").returncode == 5


def test_cards_differ_where_a_host_has_no_machine_id(smi: tuple[Path, Path]) -> None:
    root, tool = smi
    (root / "etc/machine-id").write_text("")
    found = {one["uuid"] for one in json.loads(shell(tool, "-j").stdout)["devices"]}
    assert len(found) == 2 and "00000000-0000-4000-8000-000000000000" not in found


@pytest.mark.parametrize(
    "argv, conf",
    [
        (("load-hang", "30"), "options rebellions hang=30\n"),
        (("probe",), "options rebellions broken=1\n"),
        (("fw-ver", "3.2.2"), "options rebellions fw=3.2.2,3.2.2,3.2.2\n"),
        (("smi-exit", "7"), ""),
    ],
)
def test_faults_reach_a_real_module(tmp_path: Path, argv: tuple[str, ...], conf: str) -> None:
    cards = Cards(tmp_path)
    fault = script((payload.FILES / "fault.sh").read_text(), tmp_path / "fault", tmp_path)
    assert shell(fault, *argv, path=cards.fakes).returncode == 0
    assert (tmp_path / "run/modprobe.d/npu-lab-fault.conf").read_text() == conf
    assert shell(fault, path=cards.fakes).stdout == "%s:%s\n" % (argv[0], (*argv, "1")[1])
    assert shell(fault, argv[0], "-", path=cards.fakes).returncode == 0
    assert (tmp_path / "run/modprobe.d/npu-lab-fault.conf").read_text() == ""


@needs_gpg
def test_the_whole_payload(tmp_path: Path) -> None:
    payload.write(tmp_path)
    packages = {"rebellions_2.1.0_amd64.deb", "rbln-container-toolkit_0.2.3_amd64.deb"}
    names = ("rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln", "rebellions-driver")
    packages |= {
        "%s_%s_amd64.deb" % (name, version) for name in names for version in ("3.2.2", "3.4.0", "3.4.1", "3.4.2")
    }
    runs = {
        "run/rebellions-x86_64-%s.run%s" % (version, end)
        for version in ("3.2.2", "3.4.0", "3.4.1", "3.4.2")
        for end in ("", ".asc")
    }
    want = {"fault", "keys/rebellions.asc", "keys/rebellions.gpg", *runs}
    want |= {"apt/" + name for name in packages | {"Packages", "Release"}}
    want |= {"apt-signed/" + name for name in packages | {"Packages", "Release", "InRelease", "Release.gpg"}}
    sums = {}
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        value, name = line.split("  ")
        sums[name] = value
    assert (
        set(sums)
        == want
        == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    )
    assert {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in want} == sums
    assert {
        name for name in want if os.access(tmp_path / name, os.X_OK) and (tmp_path / name).stat().st_mode & 0o111
    } == {
        "fault",
        *(name for name in runs if name.endswith(".run")),
    }


@needs_gpg
def test_signatures_hold_and_a_changed_file_does_not(tmp_path: Path) -> None:
    payload.write(tmp_path)
    check = ("gpgv", "--keyring", tmp_path / "keys/rebellions.gpg")
    run = tmp_path / "run/rebellions-x86_64-3.4.0.run"
    assert shell(*check, str(run) + ".asc", run).returncode == 0
    assert shell(*check, tmp_path / "apt-signed/InRelease").returncode == 0
    assert shell(*check, tmp_path / "apt-signed/Release.gpg", tmp_path / "apt-signed/Release").returncode == 0
    assert (tmp_path / "keys/rebellions.asc").read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    run.write_bytes(run.read_bytes()[:-1] + b"\1")
    assert shell(*check, str(run) + ".asc", run).returncode == 1
