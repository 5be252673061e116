# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel module files: their path by depmod, their .modinfo section and their signature."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import struct
import zlib

from .._base.records import dataclass
from .._formats.x509 import COMMON_NAME, serial_text, signer_serial
from .._host.host import ABSENT, DENIED, FAILED, VALUE, Host, Limit, Probe

SUFFIXES = ("", ".xz", ".zst", ".gz")
SEARCH_DIRS = (
    "updates/dkms",
    "updates",
    "extra",
    "extra/%s",
    "weak-updates",
    "weak-updates/%s",
    "kernel/drivers/misc",
    "kernel/drivers/accel",
)
# zlib reads the head of gzip.
GZIP = zlib.MAX_WBITS | 16
SIGNATURE_MARK = b"~Module signature appended~\n"


@dataclass(frozen=True)
class ModuleFile:
    """A module file: path, built-in version and srcversion, signer (None: unsigned or unreadable), signed or not.

    `sig_key` is the serial number of the signer's certificate, hexadecimal digits without leading zeros: names of keys
    are not unique.
    """

    path: str
    version: str | None = None
    srcversion: str | None = None
    signer: str | None = None
    signed: bool | None = None
    vermagic: str | None = None
    sig_key: str | None = None


def find_module(host: Host, module: str, kernel: str) -> str | None:
    """Path of the module file by depmod for `kernel`, else the first in the usual directories, else None."""
    base = "/lib/modules/" + kernel
    wanted = re.compile(r"^(\S*?%s\.ko(?:\.xz|\.zst|\.gz)?):" % re.escape(module).replace("_", "[-_]"), re.M)
    listed = host.read_text(base + "/modules.dep").get("")
    for path in wanted.findall(listed):
        if re.match(r"^(?:.*/)?%s\.ko" % re.escape(module).replace("_", "[-_]"), path):
            full = path if path.startswith("/") else posixpath.join(base, path)
            if host.exists(full):
                return full
    for directory in SEARCH_DIRS:
        folder = posixpath.join(base, directory % module if "%s" in directory else directory)
        for suffix in SUFFIXES:
            full = "%s/%s.ko%s" % (folder, module, suffix)
            if host.exists(full):
                return full
    return None


def section(data: bytes, name: bytes) -> bytes | None:
    """Bytes of an ELF section, or None. ValueError when the data is not a complete ELF file."""
    if data[:4] != b"\x7fELF" or len(data) < 52:
        raise ValueError("not an ELF file")
    wide = data[4] == 2
    order = "<" if data[5] == 1 else ">"
    try:
        if wide:
            offset, size, total, names_at = struct.unpack_from(order + "Q", data, 40) + struct.unpack_from(
                order + "3H", data, 58
            )
        else:
            offset, size, total, names_at = struct.unpack_from(order + "I", data, 32) + struct.unpack_from(
                order + "3H", data, 46
            )
        form = order + ("II8xQQQ" if wide else "II4xIII")
        headers = []
        for at in range(total):
            header = struct.unpack_from(form, data, offset + at * size)
            headers.append((header[0], header[3], header[4]))
        _name, start, length = headers[names_at]
    except (struct.error, IndexError, OverflowError) as exc:
        raise ValueError("the ELF section table is cut short") from exc
    names = data[start : start + length]
    for at, begin, long in headers:
        if names.startswith(name + b"\0", at):
            if begin + long > len(data):
                raise ValueError("the ELF section %s is cut short" % name.decode())
            return data[begin : begin + long]
    return None


def _signer(data: bytes) -> tuple[bool, str | None, str | None]:
    if not data.endswith(SIGNATURE_MARK):
        return False, None, None
    trailer = len(data) - len(SIGNATURE_MARK) - 12
    if trailer < 0:
        return True, None, None
    length = struct.unpack(">I", data[trailer + 8 : trailer + 12])[0]
    signature = data[max(0, trailer - length) : trailer]
    serial = signer_serial(signature)
    at = signature.find(COMMON_NAME)
    if at < 0 or len(signature) < at + 7:
        return True, None, serial
    size = signature[at + 6]
    return True, signature[at + 7 : at + 7 + size].decode("utf-8", "replace") or None, serial


def parse_module(path: str, data: bytes) -> ModuleFile:
    """Read an uncompressed module file; ValueError when it is not one."""
    info = section(data, b".modinfo")
    fields: dict[str, str] = {}
    for item in (info or b"").split(b"\0"):
        key, equals, value = item.decode("utf-8", "replace").partition("=")
        if equals:
            fields.setdefault(key, value)
    signed, signer, serial = _signer(data)
    return ModuleFile(
        path, fields.get("version"), fields.get("srcversion"), signer, signed, fields.get("vermagic"), serial
    )


def parse_modinfo(path: str, text: str) -> ModuleFile:
    """Read the output of `modinfo FILE`."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"^([a-z_]+):\s*(.*?)\s*$", line)
        if match and match.group(2):
            fields.setdefault(match.group(1), match.group(2))
    signed = "signer" in fields or "sig_id" in fields or "signature" in fields
    serial = (
        serial_text(bytes.fromhex(fields["sig_key"].replace(":", "")))
        if re.match(r"^[0-9A-F]{2}(:[0-9A-F]{2})*$", fields.get("sig_key", ""))
        else None
    )
    return ModuleFile(
        path,
        fields.get("version"),
        fields.get("srcversion"),
        fields.get("signer"),
        signed,
        fields.get("vermagic"),
        serial,
    )


def _is_opaque(path: str) -> bool:
    """Whether this Python cannot unpack a file: none can with zstd, and one that was built without lzma not with xz."""
    return path.endswith(".zst") or path.endswith(".xz") and importlib.util.find_spec("_lzma") is None


def _of_xz(data: bytes) -> tuple[bytes, bool]:
    """The bytes, and whether these are all. Imported here, as not every Python has it."""
    import lzma

    xz = lzma.LZMADecompressor()
    try:
        return xz.decompress(data, Limit.BULK), xz.eof
    except lzma.LZMAError as exc:
        raise ValueError(str(exc)) from exc


def _of_gzip(data: bytes) -> tuple[bytes, bool]:
    gz = zlib.decompressobj(GZIP)
    try:
        return gz.decompress(data, Limit.BULK), gz.eof
    except zlib.error as exc:
        raise ValueError(str(exc)) from exc


def _unpack(path: str, data: bytes) -> bytes:
    """The bytes of a module file, unpacked. ValueError when it is damaged or has more than Limit.BULK bytes."""
    unpack = {".xz": _of_xz, ".gz": _of_gzip}.get(posixpath.splitext(path)[1])
    if unpack is None:
        return data
    try:
        unpacked, whole = unpack(data)
    except ValueError as exc:
        raise ValueError("%s cannot be unpacked: %s" % (path, exc)) from exc
    if not whole:
        raise ValueError("%s cannot be unpacked: it is cut short or has more than %d bytes" % (path, Limit.BULK))
    return unpacked


def read_module(host: Host, module: str, kernel: str | None, timeout: float = 5.0) -> Probe:
    """Probe of ModuleFile for a kernel. Runs modinfo only for a file that this Python cannot unpack."""
    path = find_module(host, module, kernel) if kernel else None
    if not path:
        tree = host.listdir("/lib/modules/%s" % kernel) if kernel else Probe(ABSENT)
        if tree.state == DENIED:
            return tree
        return Probe(ABSENT, None, "no module file %s for kernel %s" % (module, kernel or "(not known)"))
    return read_file(host, path, timeout)


def read_file(host: Host, path: str, timeout: float = 5.0) -> Probe:
    """Probe of ModuleFile of a file; a failed one holds the path alone."""
    if _is_opaque(path):
        asked = host.run(["modinfo", path], timeout)
        if asked.ok and asked.value.rc == 0:
            return Probe(VALUE, parse_modinfo(path, asked.value.out))
        why = asked.value.err.strip()[:200] if asked.ok else asked.detail
        return Probe(FAILED if asked.ok else asked.state, ModuleFile(path), "%s: %s" % (path, why))
    found = host.read_bytes(path, Limit.BULK)
    read = found.map(lambda data: parse_module(path, _unpack(path, data)))
    return read if read.ok else Probe(read.state, ModuleFile(path), "%s: %s" % (path, read.detail))
