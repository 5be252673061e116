# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The enrolment of a key, and how it is undone.

The real openssl makes the key, DKMS is told, and a mokutil that writes the firmware's variable is asked for the
enrolment.
"""

from __future__ import annotations

import dataclasses
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, Mapping, Sequence

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import (
    ABSENT,
    VALUE,
    Completed,
    Host,
    Probe,
    run_command,
)
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot import dkms_key as dkms
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot import enrol, mok
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree
from ansible_collections.rebellions.npu.tests.unit.fixtures.secure_boot.efi import (
    ATTRIBUTES,
    DKMS,
    DKMS_NAME,
    GLOBAL,
    SHIM,
    SITE,
    VARS,
    signature_list,
)

NEW_DKMS = "for i in /etc/dkms/framework.conf /etc/dkms/framework.conf.d/*.conf; do\nmok_signing_key\n"
PENDING = VARS + mok.PENDING_LIST + SHIM
ENROLLED = VARS + mok.ENROLLED_LIST + SHIM
OWN = "/var/lib/rbln/secure-boot/"
NAME = "Rebellions driver signing key NPU-A"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


class Machine:
    """A host in a directory. openssl is the real one; mokutil is played, with the texts of mokutil 0.6."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.tree.write(VARS + "SecureBoot" + GLOBAL, ATTRIBUTES + b"\x01").write(
            "/proc/sys/kernel/hostname", "NPU-A\n"
        )
        self.tree.write("/usr/sbin/dkms", NEW_DKMS, 0o755)
        self.tree.write("/var/lib/rbln/driver.json", "{}")
        self.calls: list[list[str]] = []
        self.takes_requests = True
        self.has_mokutil = True
        self.hashes: list[str] = []

    def run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Probe:
        self.calls.append(list(argv))
        if argv[0] == "openssl":
            return run_command(
                [str(self.tree.real(word)) if word.startswith("/var/") else word for word in argv], timeout, env
            )
        if argv[0] != "mokutil" or not self.has_mokutil:
            return Probe(ABSENT, None, "No such file or directory")
        if argv[1] == "--import":
            assert argv[3] == "--hash-file"
            self.hashes.append(self.tree.real(argv[4]).read_text(encoding="utf-8").strip())
            if self.takes_requests:
                self.tree.write(PENDING, ATTRIBUTES + signature_list(self.tree.real(argv[2]).read_bytes()))
                return Probe(VALUE, Completed(0, "", ""))
            return Probe(VALUE, Completed(0, "SKIP: %s is already enrolled\n" % argv[2], ""))
        if argv[1] == "--revoke-import":
            self.tree.real(PENDING).unlink()
            return Probe(VALUE, Completed(0, "", ""))
        return Probe(VALUE, Completed(255, "", "unexpected"))

    def work(self, distribution: str = "debian", dry: bool = False) -> enrol.Enrolment:
        return enrol.Enrolment(Host(str(self.tree.root), runner=self.run), PROFILE, distribution, 60.0, dry)

    def confirm(self) -> None:
        """What a person at the console does."""
        self.tree.write(ENROLLED, self.tree.real(PENDING).read_bytes())
        self.tree.real(PENDING).unlink()

    def files(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.tree.root.rglob("*")):
            if path.is_file() and "sys/firmware" not in str(path):
                found[str(path.relative_to(self.tree.root))] = "%04o %s" % (
                    stat.S_IMODE(path.stat().st_mode),
                    path.read_bytes().hex(),
                )
        return found


@pytest.fixture(name="machine")
def machine_fixture(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def modes(machine: Machine) -> dict[str, str]:
    folder = machine.tree.real(OWN)
    found = {path.name: "%04o" % stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    return {".": "%04o" % stat.S_IMODE(folder.stat().st_mode), **found}


def test_a_host_without_a_key_gets_one(machine: Machine) -> None:
    done = machine.work().ensure().to_dict()
    assert done["state"] == "pending" and done["changed"] and done["own"] is True
    assert done["acts"] == [
        "created the key %smok.key" % OWN,
        "configured DKMS to sign with it (%s)" % dkms.DROP_IN,
        "requested the enrolment of %smok.der" % OWN,
    ]
    assert modes(machine) == {".": "0700", "mok.key": "0600", "mok.der": "0644", "password": "0600"}
    assert done["subject"] == NAME
    assert machine.tree.real(dkms.DROP_IN).read_text(encoding="utf-8").splitlines()[1:] == [
        'mok_signing_key="%smok.key"' % OWN, 'mok_certificate="%smok.der"' % OWN]  # fmt: skip
    assert (
        done["diff"]["before"] == ""
        and "mok_signing_key" in done["diff"]["after"]
        and done["diff"]["after_header"] == dkms.DROP_IN
    )
    assert done["password_file"] == OWN + "password" and OWN + "password" in done["msg"]
    password = machine.tree.real(OWN + "password").read_text(encoding="utf-8").strip()
    assert len(password) == 14 and set(password) <= set(enrol.ALPHABET)
    assert password not in str(done) and all(password not in " ".join(call) for call in machine.calls)
    salt = machine.hashes[0].split("$")[2]
    again = subprocess.run(
        ["openssl", "passwd", "-6", "-salt", salt, password], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert machine.hashes == [again]
    text = subprocess.run(
        ["openssl", "x509", "-inform", "DER", "-noout", "-text", "-in", str(machine.tree.real(OWN + "mok.der"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Public-Key: (2048 bit)" in text and "1.3.6.1.4.1.2312.16.1.2" in text


def test_a_second_run_changes_nothing_and_says_the_same(machine: Machine) -> None:
    machine.work().ensure()
    before, calls = machine.files(), len(machine.calls)
    done = machine.work().ensure().to_dict()
    assert (done["changed"], done["acts"], done["state"], done["password_file"]) == (
        False,
        [],
        "pending",
        OWN + "password",
    )
    assert machine.files() == before and len(machine.calls) == calls and "diff" not in done


def test_after_the_console_the_password_goes(machine: Machine) -> None:
    machine.work().ensure()
    machine.confirm()
    done = machine.work().ensure().to_dict()
    assert (done["state"], done["acts"], done["password_file"]) == ("enrolled", ["removed the one-time password"], None)
    assert modes(machine) == {".": "0700", "mok.key": "0600", "mok.der": "0644"}
    assert machine.work().ensure().to_dict()["changed"] is False


def test_a_given_password_is_kept_nowhere(machine: Machine) -> None:
    done = machine.work().ensure("correct horse").to_dict()
    assert done["password_file"] is None and "is the one that was set" in done["msg"]
    assert "password" not in modes(machine)
    assert all("correct horse".encode().hex() not in text for text in machine.files().values())
    assert all("correct horse" not in " ".join(call) for call in machine.calls)
    assert machine.hashes[0].startswith("$6$")


@pytest.mark.parametrize("password", ["short", "x" * 129])
def test_a_password_that_the_console_may_not_take_is_refused_first(machine: Machine, password: str) -> None:
    before = machine.files()
    with pytest.raises(NpuError) as raised:
        machine.work().ensure(password)
    assert "characters" in raised.value.message and password not in str(raised.value) and machine.files() == before


@pytest.mark.parametrize("password", ["", "correct horse"])
def test_a_dry_run_tells_and_changes_nothing(machine: Machine, password: str) -> None:
    before = machine.files()
    done = machine.work(dry=True).ensure(password).to_dict()
    assert done["changed"] and done["state"] == "pending" and len(done["acts"]) == 3 and machine.files() == before
    assert done["password_file"] == (None if password else OWN + "password")
    assert not [call for call in machine.calls if call[0] == "openssl"] and "mok_signing_key" in done["diff"]["after"]


@pytest.mark.parametrize(
    ("distribution", "pair"),
    [("debian", mok.DKMS_PAIR), ("rhel", mok.DKMS_PAIR), ("ubuntu", mok.UBUNTU_PAIR)],
)
def test_a_key_that_dkms_uses_already_is_taken(machine: Machine, distribution: str, pair: tuple[str, str]) -> None:
    machine.tree.write(pair[0], "private", 0o600).write(pair[1], DKMS)
    done = machine.work(distribution).ensure().to_dict()
    assert (done["own"], done["certificate"], done["subject"], done["state"]) == (False, pair[1], DKMS_NAME, "pending")
    assert done["acts"] == ["requested the enrolment of %s" % pair[1]]
    assert modes(machine) == {".": "0700", "password": "0600"}
    assert not machine.tree.real(dkms.DROP_IN).exists()


def test_half_a_pair_is_no_pair(machine: Machine) -> None:
    machine.tree.write(mok.DKMS_PAIR[1], DKMS)
    assert machine.work().ensure().own is True


def test_a_key_that_was_left_half_made_is_made_anew(machine: Machine) -> None:
    machine.tree.write(OWN + "mok.key", "half", 0o600).write(OWN + "mok.key.new", "half", 0o600)
    machine.tree.real(OWN).chmod(0o700)
    done = machine.work().ensure()
    assert done.state == "pending" and machine.tree.real(OWN + "mok.key").read_text(encoding="utf-8").startswith(
        "-----BEGIN"
    )
    assert set(modes(machine)) == {".", "mok.key", "mok.der", "password"}


def test_a_configured_pair_that_is_not_there_is_not_overridden(machine: Machine) -> None:
    machine.tree.write(mok.FRAMEWORK_CONF, "mok_signing_key=/root/site.key\nmok_certificate=/root/site.der\n")
    before = machine.files()
    with pytest.raises(NpuError) as raised:
        machine.work().ensure()
    assert "/root/site.key" in raised.value.message and machine.files() == before


def test_a_configured_pair_is_taken(machine: Machine) -> None:
    machine.tree.write(
        mok.FRAMEWORK_CONF, 'mok_signing_key="pkcs11:object=site"\nmok_certificate=/root/site.der\n'
    ).write("/root/site.der", SITE)
    done = machine.work().ensure()
    assert (done.own, done.certificate, done.subject) == (False, "/root/site.der", "Site key")


def test_an_old_dkms_is_told_in_its_one_file_with_a_backup(machine: Machine) -> None:
    machine.tree.write("/usr/sbin/dkms", ". /etc/dkms/framework.conf # mok_signing_key\n", 0o755)
    old = "# a site's words\nverbose=1\n"
    machine.tree.write(mok.FRAMEWORK_CONF, old)
    machine.work().ensure()
    text = machine.tree.real(mok.FRAMEWORK_CONF).read_text(encoding="utf-8")
    assert text.startswith(old) and 'mok_signing_key="%smok.key"' % OWN in text
    assert machine.tree.real(dkms.BACKUP).read_text(encoding="utf-8") == old
    assert machine.work().ensure().acts == []
    machine.work().remove()
    assert (
        machine.tree.real(mok.FRAMEWORK_CONF).read_text(encoding="utf-8") == old
        and not machine.tree.real(dkms.BACKUP).exists()
    )


def test_a_dkms_that_cannot_be_told_says_so(machine: Machine) -> None:
    machine.tree.write("/usr/sbin/dkms", "old", 0o755)
    with pytest.raises(NpuError, match="has no setting for the signing key"):
        machine.work("ubuntu").ensure()


def test_without_mokutil_the_hash_does_not_stay(machine: Machine) -> None:
    machine.has_mokutil = False
    with pytest.raises(NpuError, match="mokutil is not installed on this host"):
        machine.work().ensure("correct horse")
    assert set(modes(machine)) == {".", "mok.key", "mok.der"}


def test_a_request_that_is_not_taken_is_an_error(machine: Machine) -> None:
    machine.takes_requests = False
    with pytest.raises(NpuError) as raised:
        machine.work().ensure()
    assert "did not accept the request" in raised.value.message and "already enrolled" in raised.value.message
    assert "hash" not in modes(machine)


def test_a_list_that_cannot_be_read_is_not_guessed(machine: Machine) -> None:
    machine.tree.write(ENROLLED, ATTRIBUTES + b"broken")
    before = machine.files()
    with pytest.raises(NpuError, match="cannot be read"):
        machine.work().ensure()
    assert machine.files() == before and machine.calls == []


def test_removing_takes_all_of_it_away(machine: Machine) -> None:
    before = machine.files()
    machine.work().ensure()
    dry = machine.work(dry=True).remove().to_dict()
    assert dry["changed"] and machine.tree.real(OWN + "mok.key").exists()
    done = machine.work().remove().to_dict()
    assert done["acts"] == dry["acts"] and done["acts"][0] == "revoked the enrolment request"
    assert (
        done["state"] == "none"
        and machine.files() == before
        and not machine.tree.real(OWN).exists()
        and not machine.tree.real(PENDING).exists()
    )
    assert machine.work().remove().to_dict()["changed"] is False


def test_removing_leaves_a_request_of_others(machine: Machine) -> None:
    machine.work().ensure()
    certificate = machine.tree.real(OWN + "mok.der").read_bytes()
    machine.tree.write(PENDING, ATTRIBUTES + signature_list(SITE, certificate))
    done = machine.work().remove()
    assert "has other keys too" in done.message and machine.tree.real(PENDING).exists()


def test_removing_an_enrolled_key_says_what_only_the_console_can_do(machine: Machine) -> None:
    machine.work().ensure()
    machine.confirm()
    done = machine.work().remove()
    assert done.state == "enrolled" and "mokutil --delete" in done.message and not machine.tree.real(OWN).exists()


def test_what_is_not_ours_is_left(machine: Machine) -> None:
    machine.tree.write(mok.DKMS_PAIR[0], "private", 0o600).write(mok.DKMS_PAIR[1], DKMS).write(
        mok.FRAMEWORK_CONF, "# words\n"
    )
    before = machine.files()
    assert machine.work().remove().to_dict()["changed"] is False
    assert machine.files() == before


def test_a_key_that_signs_modules_of_others_stays_until_they_are_gone(machine: Machine) -> None:
    machine.work().ensure()
    (
        machine.tree.folder("/var/lib/dkms/rebellions/3.4.0")
        .folder("/var/lib/dkms/nvidia/550")
        .write("/var/lib/dkms/dkms_dbversion", "3")
        .write(mok.DKMS_PAIR[1], DKMS)
    )
    before = machine.files()
    done = machine.work().remove().to_dict()
    assert (done["changed"], done["state"], done["own"], machine.files()) == (False, "pending", True, before)
    assert done["msg"].startswith(
        "The key %smok.key stays, because DKMS signs other modules with it: nvidia. Next: " % OWN
    )
    machine.tree.real("/var/lib/dkms/nvidia/550").rmdir()
    machine.tree.real("/var/lib/dkms/nvidia").rmdir()
    assert machine.work().remove().to_dict()["changed"] and not machine.tree.real(OWN).exists()


def test_a_key_that_dkms_uses_no_more_goes_whatever_dkms_builds(machine: Machine) -> None:
    machine.work().ensure()
    machine.tree.folder("/var/lib/dkms/nvidia/550").write(
        dkms.DROP_IN.replace("rebellions-npu", "site"), "mok_signing_key=/root/a\nmok_certificate=/root/b\n"
    )
    assert machine.work().remove().to_dict()["changed"] and not machine.tree.real(OWN).exists()


def test_the_directory_of_the_driver_goes_with_the_last_thing_in_it(machine: Machine) -> None:
    machine.work().ensure()
    machine.work().remove()
    assert machine.tree.real("/var/lib/rbln/driver.json").exists()
    machine.work().ensure()
    machine.tree.real("/var/lib/rbln/driver.json").unlink()
    machine.work().remove()
    assert not machine.tree.real("/var/lib/rbln").exists()


def test_another_vendor_has_its_own_place(machine: Machine) -> None:
    other = dataclasses.replace(PROFILE, runfile_stamp_dir="/var/lib/other", title="Other")
    work = enrol.Enrolment(Host(str(machine.tree.root), runner=machine.run), other, "debian")
    done: Any = work.ensure()
    assert done.certificate == "/var/lib/other/secure-boot/mok.der" and done.subject == "Other driver signing key NPU-A"
