# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver files on the controller: found, downloaded once for all hosts, and verified before they are sent."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import subprocess
import tempfile
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import FILE_LIMIT, safe_name
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import take_lock
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import CHUNK, SHA256, sha256_of

LOCK_WAIT = 3600.0


def open_url(address: str, timeout: float, ca_path: str | None) -> t.Any:
    """The answer of a web server. What asks it is loaded here: most runs ask none, and it takes long."""
    from ansible.module_utils import urls

    return urls.open_url(address, timeout=timeout, ca_path=ca_path, follow_redirects="safe")


@dataclass(frozen=True)
class Finder:
    """Cache directory, server timeout in seconds, certificate authority, and file with the accepted public keys."""

    cache: str
    timeout: float = 60.0
    ca_path: str | None = None
    keyring: str | None = None

    def find(self, item: t.Mapping[str, t.Any]) -> tuple[str, str]:
        """(path on the controller, file name) of a verified file.

        NpuError when missing, different or wrongly signed.
        """
        src, name = str(item["src"]), item.get("name")
        sha256 = str(item["sha256"]).lower()
        if not SHA256.match(sha256):
            raise NpuError(
                "sha256 of %s is not 64 hexadecimal digits." % safe(src), "Run sha256sum on a copy you trust."
            )
        # It may have the architecture in it, which a host said.
        if name and not safe_name(name):
            raise NpuError("%s is not the name of a file." % ascii(name)[:100], "Correct name; it has no folder in it.")
        for address in (src, str(item.get("signature") or "")):
            if is_address(address) and "@" in urlsplit(address).netloc:
                raise NpuError(
                    "The address %s contains a user name or a password." % safe(address),
                    "Put them into ~/.netrc of the controller.",
                )
        if is_address(src):
            address = posixpath.join(src, name) if src.endswith("/") and name else src
            name = posixpath.basename(urlsplit(address).path)
            if not safe_name(name):
                raise NpuError(
                    "%s is not the address of a file." % safe(src), "Use the address of the file, or set its name."
                )
            path = self.fetch(address, posixpath.join(sha256, name), sha256)
        else:
            src = os.path.expanduser(src)
            path = os.path.join(src, name) if os.path.isdir(src) and name else src
            name = os.path.basename(path)
            self.verify(path, sha256)
        if item.get("signature") or self.keyring:
            self.verify_signature(path, str(item.get("signature") or ""), sha256)
        return path, name

    @staticmethod
    def verify(path: str, sha256: str) -> None:
        """NpuError when the file cannot be read or differs."""
        try:
            with open(path, "rb") as stream:
                found = sha256_of(stream)
        except OSError as exc:
            raise NpuError(
                "%s cannot be read on the controller: %s." % (path, exc.strerror), "Check the path."
            ) from exc
        if found != sha256:
            raise NpuError(
                "The SHA-256 of %s is %s, not %s." % (path, found, sha256),
                "Get the file or the digest again from a trusted source; nothing was sent.",
            )

    def fetch(self, address: str, place: str, sha256: str = "") -> str:
        """Download to `place` in the cache if needed, while other hosts of the run wait; NpuError when that fails."""
        path = os.path.join(os.path.expanduser(self.cache), place)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        except OSError as exc:
            raise NpuError(
                "The cache %s on the controller is not usable: %s." % (os.path.dirname(path), exc.strerror),
                "Set cache to another directory.",
            ) from exc
        try:
            take_lock(descriptor, path, LOCK_WAIT, "another run fetches it")
            if sha256 and os.path.exists(path):
                try:
                    self.verify(path, sha256)
                    return path
                except NpuError:
                    os.unlink(path)
            self._download(address, path, sha256)
        finally:
            os.close(descriptor)
        return path

    def _download(self, address: str, path: str, sha256: str) -> None:
        handle, part = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with os.fdopen(handle, "wb") as out, open_url(address, self.timeout, self.ca_path) as answer:
                for block in iter(lambda: answer.read(CHUNK), b""):
                    out.write(block)
                    if out.tell() > FILE_LIMIT:
                        raise NpuError("%s has more than %d bytes." % (safe(address), FILE_LIMIT), "Check the address.")
            if sha256:
                try:
                    self.verify(part, sha256)
                except NpuError as exc:
                    raise NpuError(exc.message.replace(part, safe(address)), exc.next_step) from exc
            os.replace(part, path)
        except NpuError:
            raise
        except Exception as exc:
            raise NpuError(
                "%s cannot be downloaded: %s." % (safe(address), str(exc).rstrip(".")),
                "Check the address, the proxy and the certificate authority.",
            ) from exc
        finally:
            if os.path.exists(part):
                os.unlink(part)

    def verify_signature(self, path: str, signature: str, sha256: str) -> None:
        """NpuError unless `signature` is a valid detached signature by a key in the keyring."""
        if not signature:
            raise NpuError(
                "A keyring is set, but no signature of %s." % os.path.basename(path),
                "Set its signature, or remove the keyring; nothing was sent.",
            )
        keyring = self._keyring(path)
        if not shutil.which("gpg"):
            raise NpuError("gpg is not installed on the controller.", "Install gnupg to verify signatures.")
        if is_address(signature):
            # An own name: a signature may have the name of the signed file.
            place = posixpath.join(sha256, posixpath.basename(urlsplit(signature).path) + ".signature")
            kept = os.path.join(os.path.expanduser(self.cache), place)
            if os.path.exists(kept):
                try:
                    self._verify_by(kept, path, keyring)
                    return
                except NpuError:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(kept)
            signature = self.fetch(signature, place)
        self._verify_by(signature, path, keyring)

    def _keyring(self, path: str) -> str:
        if not self.keyring:
            raise NpuError(
                "A signature of %s is set, but no keyring." % os.path.basename(path),
                "Set keyring to the file with the public keys.",
            )
        return os.path.expanduser(self.keyring)

    def _verify_by(self, signature: str, path: str, keyring: str) -> None:
        with tempfile.TemporaryDirectory() as home:
            command = ["gpg", "--homedir", home, "--batch", "--no-tty", "--quiet"]
            known = subprocess.run([*command, "--import", keyring], capture_output=True, text=True, check=False)
            if known.returncode != 0:
                raise NpuError(
                    "%s has no public key: %s." % (self.keyring, known.stderr.strip()),
                    "Export the public key of the vendor into it.",
                )
            done = subprocess.run(
                [*command, "--status-fd", "1", "--verify", signature, path], capture_output=True, text=True, check=False
            )
        if done.returncode != 0 or "[GNUPG:] GOODSIG " not in done.stdout:
            said = " ".join(done.stderr.split())
            raise NpuError(
                "%s has no valid signature: %s" % (os.path.basename(path), said),
                "Get file, signature and key from a trusted source; nothing was sent.",
            )


def is_address(src: str) -> bool:
    return src.startswith(("http://", "https://"))


def safe(address: str) -> str:
    """An address without user name and password."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.scheme else address
