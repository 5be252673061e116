# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine owner keys (MOK): the signing key of DKMS, and the keys that this machine accepts. Reads only."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._formats.x509 import Certificate, parse_certificate, parse_signature_lists
from .._host.host import ABSENT, DENIED, FAILED, TOO_LARGE, VALUE, Host, Limit, Probe
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
    "When the blue screen of the MOK manager appears, press a key within ten seconds.",
    "Choose Enroll MOK, then Continue, then Yes.",
    "Type the one-time password; the console uses a US keyboard layout.",
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
    """The signing pair of DKMS: paths of private key and certificate, and whether they are configured."""

    key: str
    certificate: str
    configured: bool


def key_directory(profile: VendorProfile) -> str:
    """Host path of the directory of our own key."""
    return posixpath.join(profile.runfile_stamp_dir, "secure-boot")


def own_pair(profile: VendorProfile) -> tuple[str, str]:
    """Host paths of our own private key and certificate."""
    directory = key_directory(profile)
    return posixpath.join(directory, KEY_NAME), posixpath.join(directory, CERTIFICATE_NAME)


def parse_framework(texts: t.Sequence[str]) -> dict[str, str]:
    """The last value of each signing variable in DKMS's configuration files, in reading order.

    Empty values set nothing.
    """
    found: dict[str, str] = {}
    for text in texts:
        for name, value in re.findall(r"^[ \t]*(mok_signing_key|mok_certificate)=(.*)$", text, re.M):
            plain = re.sub(r"\s+#.*$", "", value).strip().strip("\"'")
            found[name] = plain
    return {name: value for name, value in found.items() if value}


def framework_texts(host: Host) -> list[str]:
    """Contents of DKMS's configuration files in the order in which it reads them."""
    return [host.read_text(path, Limit.NOTE).get("") for path in [FRAMEWORK_CONF] + host.glob(FRAMEWORK_DIR, "*.conf")]


def signing_key(host: Host, distribution: str | None) -> SigningKey:
    """The pair that DKMS uses: from its configuration, else of shim-signed on Ubuntu, else its own."""
    default = UBUNTU_PAIR if distribution == "ubuntu" else DKMS_PAIR
    set_there = parse_framework(framework_texts(host))
    key = set_there.get("mok_signing_key")
    # Like DKMS: the default pair of a distribution counts only as a whole.
    return SigningKey(
        key or default[0], set_there.get("mok_certificate") or (DKMS_PAIR if key else default)[1], bool(key)
    )


def _read_list(host: Host, name: str) -> Probe:
    """Probe of the certificates in a list of shim. A missing variable is an empty list if efivarfs is readable."""
    found = host.read_bytes("%s/%s-%s" % (EFIVARS_DIR, name, SHIM_GUID))
    if found.ok:
        return _whole(host, name, found.value)
    mirrored = host.read_bytes("%s/%s" % (MOK_VARIABLES, name))
    if mirrored.ok:
        return mirrored.map(parse_signature_lists)
    if found.state == ABSENT and host.listdir(EFIVARS_DIR).get([]):
        return Probe(VALUE, [])
    return found


def _whole(host: Host, name: str, first: bytes) -> Probe:
    """The certificates of a list whose first variable is read.

    shim puts what the firmware takes in no single variable into further ones, NAME1, NAME2 and so on.
    """
    parts = [first]
    more = host.read_bytes("%s/%s1-%s" % (EFIVARS_DIR, name, SHIM_GUID))
    while more.ok:
        parts.append(more.value)
        more = host.read_bytes("%s/%s%d-%s" % (EFIVARS_DIR, name, len(parts), SHIM_GUID))
    if more.state != ABSENT:
        return more
    return Probe(VALUE, parts).map(
        lambda every: [one for part in every for one in parse_signature_lists(part[ATTRIBUTES:])]
    )


def read_enrolled(host: Host) -> Probe:
    """Probe of the enrolled certificates."""
    return _read_list(host, ENROLLED_LIST)


def read_pending(host: Host) -> Probe:
    """Probe of the certificates whose enrolment waits for the next boot."""
    return _read_list(host, PENDING_LIST)


def read_trusted(host: Host) -> bool | None:
    """Whether shim lets the kernel trust the machine owner keys for modules; None when unknown."""
    found = host.read_bytes("%s/%s-%s" % (EFIVARS_DIR, TRUSTED, SHIM_GUID), Limit.ATTRIBUTE)
    mirrored = host.read_bytes("%s/%s" % (MOK_VARIABLES, TRUSTED), Limit.ATTRIBUTE)
    if found.ok or mirrored.ok:
        return bool((found.value[ATTRIBUTES:] if found.ok else mirrored.value)[:1] == b"\1")
    return False if found.state == ABSENT and host.listdir(EFIVARS_DIR).get([]) else None


def read_enforcement(host: Host) -> str | None:
    """What makes the running kernel refuse unsigned modules, independent of the firmware.

    `module.sig_enforce`, `lockdown (integrity)` or `lockdown (confidentiality)`; empty: nothing; None: unknown.
    """
    parameter, lockdown = host.read_text(SIG_ENFORCE, Limit.ATTRIBUTE), host.read_text(LOCKDOWN, Limit.ATTRIBUTE)
    mode = re.search(r"\[(integrity|confidentiality)\]", lockdown.get(""))
    if mode:
        return "lockdown (%s)" % mode.group(1)
    words = host.read_text("/proc/cmdline", Limit.PROC).get("").split()
    asked = any(re.match(r"^module\.sig_enforce(=[1yY].*)?$", word) for word in words)
    if parameter.get("").strip() in ("Y", "1") or asked and not parameter.ok:
        return "module.sig_enforce"
    return "" if parameter.ok or lockdown.ok else None


def parse_keyrings(text: str) -> list[str]:
    """Names of the X.509 keys in /proc/keys without their identifiers, such as `Debian Secure Boot CA`."""
    return re.findall(r"^.*?\sasymmetri[a-z]*\s+(.*?)(?:: [0-9a-f]{6,})?: X509\.", text, re.M)


def _same_name(listed: str, signer: str) -> bool:
    """The kernel writes `organization: common name` where a certificate has both."""
    return listed == signer or listed.endswith(": " + signer)


def is_trusted(
    signer: str | None, serial: str | None, enrolled: t.Sequence[Certificate] | None, keyrings: t.Sequence[str] | None
) -> bool | None:
    """Whether this machine accepts the signer of a module; None when unknown.

    Names are not unique: DKMS gives all its keys the same name. An enrolled key must also have the serial number of the
    signature, if known. Keys built into the kernel are listed without serial numbers.
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
    """State by the output of `mokutil --test-key`; its exit codes differ between releases."""
    lowered = text.lower()
    if "is not enrolled" in lowered:
        return NOT_ENROLLED
    if "enrollment request" in lowered:
        return PENDING
    return ENROLLED if "already enrolled" in lowered or "is enrolled" in lowered else UNKNOWN


@dataclass(frozen=True)
class KeyLists:
    """Probes of the enrolled certificates and of those that wait for the next boot."""

    enrolled: Probe
    pending: Probe

    @classmethod
    def read(cls, host: Host) -> KeyLists:
        return cls(read_enrolled(host), read_pending(host))


def key_state(host: Host, certificate: Probe, path: str, lists: KeyLists, mokutil_timeout: float | None) -> str:
    """State of a certificate file. Asks mokutil when the variables are unreadable and `mokutil_timeout` is set."""
    enrolled, pending = lists.enrolled, lists.pending
    if not certificate.ok:
        return NO_KEY if certificate.state == ABSENT else UNKNOWN
    der = certificate.value.der
    if enrolled.ok and any(item.der == der for item in enrolled.value):
        return ENROLLED
    if pending.ok and any(item.der == der for item in pending.value):
        return PENDING
    if enrolled.ok:
        return NOT_ENROLLED
    asked = Probe(ABSENT)
    if mokutil_timeout is not None:
        asked = host.run(["mokutil", "--test-key", path], mokutil_timeout)
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
    """The `mok` part of the facts, and the probes of failed reads.

    `state` of the signing key of DKMS: unknown, none (no certificate), not_enrolled, pending (waits for the console at
    the next boot), enrolled. `own`: this collection created the key. `enrolled` and `pending` are None when unknown.
    """
    pair = signing_key(host, system["base_id"] or system["id"])
    certificate = host.read_bytes(pair.certificate, Limit.NOTE).map(parse_certificate)
    lists = KeyLists.read(host)
    keys = host.read_text(PROC_KEYS).map(parse_keyrings)
    state = key_state(host, certificate, pair.certificate, lists, timeout if secure_boot == ENABLED else None)
    facts = {
        "state": state,
        "key": pair.key,
        "key_present": host.stat(pair.key).ok,
        "certificate": pair.certificate,
        "subject": certificate.value.subject if certificate.ok else None,
        "serial": certificate.value.serial if certificate.ok else None,
        "configured": pair.configured,
        "own": (pair.key, pair.certificate) == own_pair(profile),
        "enrolled": _listed(lists.enrolled),
        "pending": _listed(lists.pending),
        "trusted": read_trusted(host),
        "enforced_by": read_enforcement(host),
        "signer_enrolled": is_trusted(driver["signer"], driver["sig_key"], lists.enrolled.get(), keys.get()),
    }
    looks = {"mok_certificate": certificate, "mok_enrolled": lists.enrolled, "mok_pending": lists.pending}
    return facts, {name: probe for name, probe in looks.items() if probe.state in (DENIED, FAILED, TOO_LARGE)}
