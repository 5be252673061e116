# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signing key for kernel modules under Secure Boot: create it, configure DKMS, request enrolment; and undo all of it.

The private key and the enrolment password never leave the host: neither is returned, on a command line, or fetched.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass, field
from .._base.vendor import VendorProfile
from .._formats.x509 import parse_certificate
from .._host.files import explain, remove_empty_directory, remove_file, write_bytes
from .._host.host import ABSENT, Host, Limit, Probe
from .._host.identity import read_hostname
from .._host.private import private_directory
from . import mok
from .dkms_key import Edit, configure, other_modules, unconfigure

PASSWORD_NAME = "password"
HASH_NAME = "hash"
# For modules only: shim refuses a boot loader that is signed with such a key.
USAGE = "extendedKeyUsage=codeSigning,1.3.6.1.4.1.2312.16.1.2"
DAYS = 36500
# Letters in the same place on all Latin keyboards: the firmware console uses a US layout.
ALPHABET = "bcdefghkprstuvx"
PASSWORD_LENGTH = 14
PASSWORD_LIMITS = (8, 128)


@dataclass
class Outcome:
    """What was done, or would be in a dry run: acts as text, state of the key, data for the console."""

    state: str = mok.UNKNOWN
    acts: list[str] = field(default_factory=list)
    certificate: str = ""
    subject: str | None = None
    serial: str | None = None
    own: bool = False
    password_file: str | None = None
    before: str = ""
    after: str = ""
    path: str = ""
    message: str = ""

    def to_dict(self) -> dict[str, t.Any]:
        """Plain data for the result of a module, with the `diff` of the DKMS configuration."""
        names = ("state", "acts", "certificate", "subject", "serial", "own", "password_file")
        result: dict[str, t.Any] = {name: getattr(self, name) for name in names}
        result.update(changed=bool(self.acts), msg=self.message)
        if self.path and self.before != self.after:
            result["diff"] = {
                "before": self.before,
                "after": self.after,
                "before_header": self.path,
                "after_header": self.path,
            }
        return result


class Enrolment:
    """One key on one host. `distribution` is the id of the base system; `dry` changes nothing."""

    def __init__(
        self, host: Host, profile: VendorProfile, distribution: str | None, timeout: float = 60.0, dry: bool = False
    ) -> None:
        self.host, self.profile, self.distribution, self.timeout, self.dry = host, profile, distribution, timeout, dry
        self.directory = mok.key_directory(profile)
        self.own = mok.own_pair(profile)
        self.outcome = Outcome()

    def ensure(self, password: str = "") -> Outcome:
        """Make sure that DKMS signs with a key that is enrolled, or whose enrolment is requested.

        A pair that DKMS uses already is kept. NpuError when a program is missing, when the configuration names a
        missing key, or when the request fails.
        """
        if password and not PASSWORD_LIMITS[0] <= len(password) <= PASSWORD_LIMITS[1]:
            raise NpuError(
                "The one-time password has %d characters." % len(password), "Use %d to %d characters." % PASSWORD_LIMITS
            )
        pair = mok.signing_key(self.host, self.distribution)
        foreign = (pair.key, pair.certificate) != self.own
        whole = self._there(pair.key) and self._there(pair.certificate)
        if foreign and pair.configured and not whole:
            raise NpuError(
                "DKMS is configured to sign with %s and %s, but not both files exist." % (pair.key, pair.certificate),
                "Restore both files, or remove mok_signing_key and mok_certificate from %s and %s."
                % (mok.FRAMEWORK_CONF, mok.FRAMEWORK_DIR),
            )
        mine = self._there(self.own[0]) and self._there(self.own[1])
        if not foreign or not whole or mine and not pair.configured:
            if not mine and not mok.read_enrolled(self.host).ok:
                raise unreadable()
            self._make_key()
            self._note(configure(self.host, self.own, self.dry))
            pair = mok.SigningKey(self.own[0], self.own[1], True)
        out = self.outcome
        out.certificate, out.own = pair.certificate, (pair.key, pair.certificate) == self.own
        out.state = self._state(pair.certificate)
        if out.state == mok.UNKNOWN:
            raise unreadable()
        if out.state in (mok.NOT_ENROLLED, mok.NO_KEY):
            self._request(pair.certificate, password)
        self._forget_secrets(out.state, bool(password))
        self._tell()
        return out

    def _there(self, path: str) -> bool:
        return path.startswith("pkcs11:") or self.host.stat(path).ok

    def _certificate(self, path: str) -> Probe:
        return self.host.read_bytes(path, Limit.NOTE).map(parse_certificate)

    def _state(self, path: str) -> str:
        found = self._certificate(path)
        if found.ok:
            self.outcome.subject, self.outcome.serial = found.value.subject, found.value.serial
        elif found.state != ABSENT:
            raise NpuError(
                "The certificate %s cannot be read: %s." % (path, found.detail), "Remove it, or run as root."
            )
        return mok.key_state(self.host, found, path, mok.KeyLists.read(self.host), self.timeout)

    def _run(self, argv: t.Sequence[str], package: str) -> str:
        done = self.host.run(argv, self.timeout)
        if done.state == ABSENT:
            raise NpuError("%s is not installed on this host." % argv[0], "Install the package %s." % package)
        if not done.ok:
            raise NpuError("%s: %s." % (argv[0], done.detail), "Run it by hand as root for details.")
        if done.value.rc != 0:
            said = " ".join((done.value.err + " " + done.value.out).split())[-400:]
            raise NpuError(
                "%s %s ended with %d: %s." % (argv[0], argv[1], done.value.rc, said.rstrip(".")),
                "Run it by hand as root for details.",
            )
        return str(done.value.out)

    def _make_key(self) -> None:
        """Create the pair beside its place and rename it; the certificate comes last and completes it."""
        if self._there(self.own[0]) and self._there(self.own[1]):
            return
        self.outcome.acts.append("created the key %s" % self.own[0])
        if self.dry:
            return
        private_directory(self.host.real(self.directory), os.geteuid())
        staged = [path + ".new" for path in self.own]
        name = re.sub(r"[^A-Za-z0-9.-]", "-", read_hostname(self.host) or "")
        subject = "/CN=%s" % ("%s driver signing key %s" % (self.profile.title, name)).strip()[:64]
        self._run(
            ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-sha256", "-nodes", "-days", str(DAYS),
             "-subj", subject, "-addext", USAGE, "-keyout", staged[0], "-outform", "DER", "-out", staged[1]],
            "openssl",
        )  # fmt: skip
        try:
            for source, target, mode in ((staged[0], self.own[0], 0o600), (staged[1], self.own[1], 0o644)):
                os.chmod(self.host.real(source), mode)
                os.replace(self.host.real(source), self.host.real(target))
        except OSError as exc:
            raise explain(exc, self.own[0], "written") from exc

    def _note(self, edit: Edit) -> None:
        self.outcome.path, self.outcome.before, self.outcome.after = edit.path, edit.before, edit.after
        if edit.act:
            self.outcome.acts.append(edit.act)

    def _request(self, certificate: str, password: str) -> None:
        self.outcome.acts.append("requested the enrolment of %s" % certificate)
        if self.dry:
            self.outcome.state = mok.PENDING
            return
        private_directory(self.host.real(self.directory), os.geteuid())
        kept = posixpath.join(self.directory, PASSWORD_NAME)
        given = kept + ".given"
        hashed = posixpath.join(self.directory, HASH_NAME)
        source = given if password else kept
        if password:
            remove_file(self.host, kept)
        if password or not self.host.read_text(kept).get("").strip():
            text = password or "".join(secrets.choice(ALPHABET) for _letter in range(PASSWORD_LENGTH))
            write_bytes(self.host, source, (text + "\n").encode("utf-8"), 0o600)
        try:
            salted = self._run(["openssl", "passwd", "-6", "-in", source], "openssl").strip()
            if not re.match(r"^\$6\$[^$]+\$[^$]+$", salted):
                raise NpuError("openssl passwd returned no SHA-512 hash.", "Install a current openssl.")
            write_bytes(self.host, hashed, (salted + "\n").encode("ascii"), 0o600)
            said = self._run(["mokutil", "--import", certificate, "--hash-file", hashed], "mokutil")
        finally:
            remove_file(self.host, hashed)
            remove_file(self.host, given)
        self.outcome.state = self._state(certificate)
        if self.outcome.state not in (mok.PENDING, mok.ENROLLED):
            raise NpuError(
                "mokutil did not accept the request: %s." % (" ".join(said.split())[-300:] or "no output"),
                "Run mokutil --import %s by hand; a known cause is a full or locked variable store of the firmware."
                % certificate,
            )

    def _forget_secrets(self, state: str, given: bool) -> None:
        kept = posixpath.join(self.directory, PASSWORD_NAME)
        if state == mok.ENROLLED:
            if remove_file(self.host, kept, self.dry):
                self.outcome.acts.append("removed the one-time password")
        elif self.host.stat(kept).ok or self.dry and not given and self.outcome.acts:
            self.outcome.password_file = kept

    def _tell(self) -> None:
        out = self.outcome
        if out.state == mok.ENROLLED:
            out.message = "The key %s is enrolled." % (out.subject or out.certificate)
        else:
            where = (
                "is in %s on this host, for root: read it before the reboot" % out.password_file
                if out.password_file
                else "is the one that was set"
            )
            out.message = "The enrolment of the key %s waits for the console. The one-time password %s. %s" % (
                out.subject or out.certificate,
                where,
                mok.CONSOLE_STEPS,
            )

    def remove(self) -> Outcome:
        """Undo ensure(): key, certificate, password, configuration, and the request if it is only for our key.

        A key that DKMS signs other modules with stays: otherwise their next build would have no enrolled key.
        """
        out = self.outcome
        found = self._certificate(self.own[1])
        pair = mok.signing_key(self.host, self.distribution)
        ours = self._there(self.own[0]) and (pair.key, pair.certificate) == self.own
        others = other_modules(self.host, (self.profile.module, *self.profile.driver_packages)) if ours else []
        if others:
            out.certificate, out.own, out.state = self.own[1], True, self._state(self.own[1])
            out.message = (
                "The key %s stays, because DKMS signs other modules with it: %s. "
                "Next: remove them from DKMS and run again, or keep the key." % (self.own[0], ", ".join(others))
            )
            return out
        enrolled = mok.read_enrolled(self.host)
        out.certificate, out.own = self.own[1], True
        if found.ok:
            out.subject, out.serial = found.value.subject, found.value.serial
            pending = mok.read_pending(self.host).get([])
            waiting = [item.der == found.value.der for item in pending]
            if any(waiting) and all(waiting):
                out.acts.append("revoked the enrolment request")
                if not self.dry:
                    self._run(["mokutil", "--revoke-import"], "mokutil")
            elif any(waiting):
                out.message = (
                    "The enrolment request has other keys too and was not revoked. "
                    "Next: choose the keys to enrol at the console."
                )
        for edit in unconfigure(self.host, self.own, self.dry):
            self._note(edit)
        for name in (
            PASSWORD_NAME,
            PASSWORD_NAME + ".given",
            HASH_NAME,
            mok.CERTIFICATE_NAME + ".new",
            mok.KEY_NAME + ".new",
            mok.KEY_NAME,
            mok.CERTIFICATE_NAME,
        ):
            path = posixpath.join(self.directory, name)
            if remove_file(self.host, path, self.dry):
                out.acts.append("removed %s" % path)
        for directory in (self.directory, self.profile.runfile_stamp_dir):
            remove_empty_directory(self.host, directory, self.dry)
        out.state = mok.NO_KEY
        if found.ok and any(item.der == found.value.der for item in enrolled.get([])):
            out.state = mok.ENROLLED
            out.message = (
                "The key %s is still enrolled; only the console can delete it. Next: run mokutil --export, "
                "then mokutil --delete with its file and a one-time password, reboot, and choose Delete MOK "
                "in the MOK manager." % out.subject
            )
        return out


def unreadable() -> NpuError:
    return NpuError(
        "The keys that this machine accepts cannot be read.",
        "Run as root on a machine started by UEFI, with efivarfs mounted.",
    )
