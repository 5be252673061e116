# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine owner's keys (MOK): which key DKMS signs modules with, and which keys this machine accepts. Reads only."""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import dataclass

from .._base.vendor import VendorProfile
from .._formats.x509 import Certificate, parse_certificate, parse_signature_lists
from .._host.host import ABSENT, DENIED, FAILED, VALUE, Host, Probe
from .firmware import EFI_DIR, EFIVARS_DIR, ENABLED, SHIM_GUID

MOK_VARIABLES = EFI_DIR + "/mok-variables"
ENROLLED_LIST = "MokListRT"
PENDING_LIST = "MokNew"
ATTRIBUTES = 4
PROC_KEYS = "/proc/keys"
TRUSTED = "MokListTrustedRT"
SIG_ENFORCE = "/sys/module/module/parameters/sig_enforce"
LOCKDOWN = "/sys/kernel/security/lockdown"
FRAMEWORK_CONF = "/etc/dkms/framework.conf"
FRAMEWORK_DIR = "/etc/dkms/framework.conf.d"
UBUNTU_PAIR = ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der")
DKMS_PAIR = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
KEY_NAME = "mok.key"
CERTIFICATE_NAME = "mok.der"

CONSOLE = (
    "Reboot the machine and watch its console.",
    "When the blue screen of the MOK manager comes, press a key within ten seconds.",
    "Choose Enroll MOK, then Continue, then Yes.",
    "Type the one-time password; the keyboard is taken for an American one.",
    "Choose Reboot.",
)
CONSOLE_STEPS = "At the console: " + " ".join(CONSOLE)

UNKNOWN = "unknown"
NO_KEY = "none"
NOT_ENROLLED = "not_enrolled"
PENDING = "pending"
ENROLLED = "enrolled"


@dataclass(frozen=True)
class SigningKey:
    """What DKMS signs with: paths of private key and certificate, and whether its configuration names them."""

    key: str
    certificate: str
    configured: bool


def key_directory(profile: VendorProfile) -> str:
    """Host path of the directory for a key of our own."""
    return posixpath.join(profile.runfile_stamp_dir, "secure-boot")


def own_pair(profile: VendorProfile) -> tuple[str, str]:
    """Host paths of a private key and certificate of our own."""
    directory = key_directory(profile)
    return posixpath.join(directory, KEY_NAME), posixpath.join(directory, CERTIFICATE_NAME)


def parse_framework(texts: t.Sequence[str]) -> dict[str, str]:
    """The last value of each signing variable in DKMS's configuration files, in reading order; empty values set nothing."""
    found: dict[str, str] = {}
    for text in texts:
        for name, value in re.findall(r"^[ \t]*(mok_signing_key|mok_certificate)=(.*)$", text, re.M):
            plain = re.sub(r"\s+#.*$", "", value).strip().strip("\"'")
            found[name] = plain
    return {name: value for name, value in found.items() if value}


def framework_texts(host: Host) -> list[str]:
    """Contents of DKMS's configuration files in the order in which it reads them."""
    return [host.read_text(path, 1 << 20).get("") for path in [FRAMEWORK_CONF] + host.glob(FRAMEWORK_DIR, "*.conf")]


def signing_key(host: Host, distribution: str | None) -> SigningKey:
    """The pair that DKMS uses: what its configuration names, else the one of Ubuntu's shim-signed on Ubuntu, else its own."""
    default = UBUNTU_PAIR if distribution == "ubuntu" else DKMS_PAIR
    set_there = parse_framework(framework_texts(host))
    key = set_there.get("mok_signing_key")
    # As DKMS has it: the pair of a distribution counts only as a whole.
    return SigningKey(
        key or default[0], set_there.get("mok_certificate") or (DKMS_PAIR if key else default)[1], bool(key)
    )


def _read_list(host: Host, name: str) -> Probe:
    """Probe of the certificates in a list of shim; an absent variable is an empty list where the firmware's variables can be read."""
    path = "%s/%s-%s" % (EFIVARS_DIR, name, SHIM_GUID)
    found = host.read_bytes(path)
    if found.ok:
        return found.map(lambda data: parse_signature_lists(data[ATTRIBUTES:]))
    mirrored = host.read_bytes("%s/%s" % (MOK_VARIABLES, name))
    if mirrored.ok:
        return mirrored.map(parse_signature_lists)
    if found.state == ABSENT and host.listdir(EFIVARS_DIR).get([]):
        return Probe(VALUE, [])
    return found


def read_enrolled(host: Host) -> Probe:
    """Probe of the enrolled certificates."""
    return _read_list(host, ENROLLED_LIST)


def read_pending(host: Host) -> Probe:
    """Probe of the certificates whose enrolment waits for the next start of the machine."""
    return _read_list(host, PENDING_LIST)


def read_trusted(host: Host) -> bool | None:
    """Whether shim tells the kernel to take the machine owner's keys for modules as well; None when the variables cannot be read."""
    found = host.read_bytes("%s/%s-%s" % (EFIVARS_DIR, TRUSTED, SHIM_GUID), 64)
    mirrored = host.read_bytes("%s/%s" % (MOK_VARIABLES, TRUSTED), 64)
    if found.ok or mirrored.ok:
        return (found.value[ATTRIBUTES:] if found.ok else mirrored.value)[:1] == b"\1"
    return False if found.state == ABSENT and host.listdir(EFIVARS_DIR).get([]) else None


def read_enforcement(host: Host) -> str | None:
    """By what the running kernel refuses modules without an accepted signature, whatever the firmware says: `module.sig_enforce`,
    `lockdown (integrity)` or `lockdown (confidentiality)`; empty when it does not, None when that cannot be told."""
    parameter, lockdown = host.read_text(SIG_ENFORCE, 64), host.read_text(LOCKDOWN, 256)
    mode = re.search(r"\[(integrity|confidentiality)\]", lockdown.get(""))
    if mode:
        return "lockdown (%s)" % mode.group(1)
    words = host.read_text("/proc/cmdline", 65536).get("").split()
    asked = any(re.match(r"^module\.sig_enforce(=[1yY].*)?$", word) for word in words)
    if parameter.get("").strip() in ("Y", "1") or asked and not parameter.ok:
        return "module.sig_enforce"
    return "" if parameter.ok or lockdown.ok else None


def parse_keyrings(text: str) -> list[str]:
    """Names of the X.509 keys in /proc/keys, without the identifier behind them: `Debian Secure Boot CA`."""
    return re.findall(r"^.*?\sasymmetri[a-z]*\s+(.*?)(?:: [0-9a-f]{6,})?: X509\.", text, re.M)


def _same_name(listed: str, signer: str) -> bool:
    """The kernel writes `organization: common name` where a certificate has both."""
    return listed == signer or listed.endswith(": " + signer)


def is_trusted(
    signer: str | None, serial: str | None, enrolled: t.Sequence[Certificate] | None, keyrings: t.Sequence[str] | None
) -> bool | None:
    """Whether the signer of a module is a key this machine accepts; None when that cannot be told.

    Names are no identity, DKMS gives every key it makes the same: an enrolled key of that name counts only with the serial
    number of the signature, where that is known. Keys built into the kernel are listed without their serial numbers.
    """
    if signer is None and serial is None:
        return None
    mine = [item for item in enrolled or [] if item.serial == serial or serial is None and item.subject == signer]
    if mine:
        return True
    namesakes = any(item.subject == signer for item in enrolled or [])
    if keyrings and signer and not namesakes and any(_same_name(name, signer) for name in keyrings):
        return True
    return False if enrolled is not None and (keyrings or namesakes) else None


def parse_test_key(text: str) -> str:
    """State in the answer of `mokutil --test-key`; its exit codes differ between releases."""
    lowered = text.lower()
    if "is not enrolled" in lowered:
        return NOT_ENROLLED
    if "enrollment request" in lowered:
        return PENDING
    return ENROLLED if "already enrolled" in lowered or "is enrolled" in lowered else UNKNOWN


def key_state(
    host: Host, certificate: Probe, path: str, enrolled: Probe, pending: Probe, ask: bool, timeout: float
) -> str:
    """State of a certificate file. mokutil is asked only where the variables cannot be read and `ask` is true."""
    if not certificate.ok:
        return NO_KEY if certificate.state == ABSENT else UNKNOWN
    der = certificate.value.der
    if enrolled.ok and any(item.der == der for item in enrolled.value):
        return ENROLLED
    if pending.ok and any(item.der == der for item in pending.value):
        return PENDING
    if enrolled.ok:
        return NOT_ENROLLED
    asked = host.run(["mokutil", "--test-key", path], timeout) if ask else Probe(ABSENT)
    return parse_test_key(asked.value.out + asked.value.err) if asked.ok else UNKNOWN


def _listed(probe: Probe) -> list[dict[str, str]] | None:
    return [{"subject": item.subject, "serial": item.serial} for item in probe.value] if probe.ok else None


def read_mok(
    host: Host,
    profile: VendorProfile,
    system: t.Mapping[str, t.Any],
    driver: t.Mapping[str, t.Any],
    secure_boot: str,
    timeout: float,
) -> tuple[dict[str, t.Any], dict[str, Probe]]:
    """The `mok` part of the facts, and the probes of looks that were refused or failed.

    `state` is that of the key DKMS signs with: unknown, none (no certificate), not_enrolled, pending (waits for the console at
    the next start), enrolled. `own` says that it is a key this collection made. `enrolled` and `pending` are None when not known.
    """
    pair = signing_key(host, system["base_id"] or system["id"])
    certificate = host.read_bytes(pair.certificate, 1 << 20).map(parse_certificate)
    enrolled, pending = read_enrolled(host), read_pending(host)
    keys = host.read_text(PROC_KEYS).map(parse_keyrings)
    state = key_state(host, certificate, pair.certificate, enrolled, pending, secure_boot == ENABLED, timeout)
    facts = {
        "state": state,
        "key": pair.key,
        "key_present": host.stat(pair.key).ok,
        "certificate": pair.certificate,
        "subject": certificate.value.subject if certificate.ok else None,
        "serial": certificate.value.serial if certificate.ok else None,
        "configured": pair.configured,
        "own": (pair.key, pair.certificate) == own_pair(profile),
        "enrolled": _listed(enrolled),
        "pending": _listed(pending),
        "trusted": read_trusted(host),
        "enforced_by": read_enforcement(host),
        "signer_enrolled": is_trusted(driver["signer"], driver["sig_key"], enrolled.get(), keys.get()),
    }
    looks = {"mok_certificate": certificate, "mok_enrolled": enrolled, "mok_pending": pending}
    return facts, {name: probe for name, probe in looks.items() if probe.state in (DENIED, FAILED)}
