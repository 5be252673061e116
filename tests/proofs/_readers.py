# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our readers of TOML, X.509, ELF, loader caches and package fields held to who owns the format."""

from __future__ import annotations

import datetime
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import tomllib
from ansible_collections.rebellions.npu.plugins.module_utils._formats import toml
from ansible_collections.rebellions.npu.plugins.module_utils._formats.elf import Elf, parse_elf
from ansible_collections.rebellions.npu.plugins.module_utils._formats.ldcache import Entry, dump, insert, parse, rank
from ansible_collections.rebellions.npu.plugins.module_utils._formats.x509 import (
    parse_certificate,
    parse_signature_lists,
    signer_serial,
)
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_index import parse_stanzas
from ansible_collections.rebellions.npu.tests.unit.fixtures import random_toml
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import elf
from ansible_collections.rebellions.npu.tests.unit.fixtures.secure_boot.efi import signature_list
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509.oid import NameOID

PIECES = (
    "a", "b.c", '"q r"', "'l'", "=", " = ", "[", "]", "[[", "]]", "{", "}", ",", "\n", "\n", "\r\n", "#",
    " # x\n", '"""', "'''", "\\", "\\u00e9",
    "1", "-0", "1_0", "0x1F", "1.5e3", "inf", "true", "1979-05-27", "1979-05-27T07:32:00Z",
    "07:32:00.5", "é", "a = 1\n", "[t]\n", "[[l]]\n", "x.y = 2\n",
)  # fmt: skip
NAMES = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.EMAIL_ADDRESS,
    NameOID.LOCALITY_NAME,
)
TEXTS = ("DKMS module signing key", "é 한", "A", "x" * 60, "CN=a, O=b")


def toml_text(source: random.Random) -> bool:
    """Random text, or a document with a few changes: tomllib and the reader for older Pythons answer alike.

    True when both take it.
    """
    if source.random() < 0.5:
        text = "".join(source.choice(PIECES) for _piece in range(source.randrange(1, 12)))
    else:
        text = random_toml.document(source)
        for _change in range(source.randrange(3)):
            at = source.randrange(len(text))
            text = text[:at] + source.choice(PIECES) + text[at + source.randrange(3) :]
    try:
        wanted = tomllib.loads(text)
    except ValueError:
        try:
            got = toml.read(text)
        except toml.TomlError:
            return False
        raise AssertionError("tomllib refuses, we read %r in %r" % (got, text)) from None
    got = toml.read(text)
    assert repr(got) == repr(wanted), "%r: we read %r, tomllib %r" % (text, got, wanted)
    return True


class Signer:
    """Keys made once: certificates differ in all else."""

    def __init__(self) -> None:
        self.keys = [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)]

    def one(self, source: random.Random) -> None:
        """A certificate and a signature of it, made by cryptography and read by us; then both with a byte changed."""
        key = source.choice(self.keys)
        chosen = source.sample(NAMES, source.randint(0, len(NAMES)))
        name = x509.Name(
            [x509.NameAttribute(one, "KR" if one == NameOID.COUNTRY_NAME else source.choice(TEXTS)) for one in chosen]
        )
        day = datetime.datetime(2026, 1, 1)
        serial = source.getrandbits(source.choice([1, 7, 8, 64, 159])) or 1
        builder = x509.CertificateBuilder(name, name, key.public_key(), serial, day, day + datetime.timedelta(1))
        if source.random() < 0.5:
            builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        made = builder.sign(key, SHA256())
        der = made.public_bytes(Encoding.DER)
        found = parse_certificate(der + b"tail")
        said = [name.get_attributes_for_oid(one) for one in NAMES[:2]]
        wanted = next((one[0].value for one in said if one), "")
        assert (found.subject, int(found.serial, 16), found.der) == (wanted, serial, der), (found, wanted, serial)
        assert parse_signature_lists(signature_list(der, b"\0" * 32)) == [found]
        options = [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Binary]
        if source.random() < 0.5:
            options.append(pkcs7.PKCS7Options.NoCerts)
        signature = (
            pkcs7.PKCS7SignatureBuilder()
            .set_data(b"module")
            .add_signer(made, key, SHA256())
            .sign(Encoding.DER, options)
        )
        assert signer_serial(signature) == found.serial
        for data, read in ((der, parse_certificate), (signature, signer_serial)):
            at = source.randrange(len(data))
            try:
                read(data[:at] + bytes([source.randrange(256)]) + data[at + 1 : source.choice([at, len(data)])])
            except ValueError:
                pass


def elf_file(source: random.Random) -> bytes:
    """A shared object with a random dynamic section."""

    def names(most: int, end: str) -> list[str]:
        return [
            "%s%d%s" % (source.choice(["lib", "ü", "$ORIGIN/", "/opt/"]), number, end)
            for number in range(source.randint(0, most))
        ]

    bits, machine = source.choice([(64, "x86_64"), (64, "aarch64"), (32, "i386")])
    return elf(
        source.choice(["", "liba.so.1", "libé.so"]),
        tuple(names(4, ".so")),
        ":".join(names(3, "")),
        ":".join(names(2, "")),
        bits,
        machine,
        pad=source.choice([0, 0, 9000, 30000]) // 8 * 8,
        order=source.choice("<<>"),
    )


def elf_facts(paths: list[Path]) -> dict[str, tuple[object, ...]]:
    """What readelf says of each file: bits, SONAME, NEEDED, RPATH, RUNPATH."""
    readelf = shutil.which("readelf")
    assert readelf, "readelf is not here. Next: apt-get install binutils"
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    # A second file makes it name each of them.
    done = subprocess.run([readelf, "-hdW", *map(str, paths), os.devnull], capture_output=True, env=env, check=False)
    found = {}
    for part in done.stdout.decode("utf-8", "surrogateescape").split("\nFile: ")[1:]:
        name, _newline, text = part.partition("\n")
        tags = {tag: re.findall(r"\(%s\) .*\[(.*)\]" % tag, text) for tag in ("SONAME", "NEEDED", "RPATH", "RUNPATH")}
        bits = 64 if re.search(r"Class: +ELF64", text) else 32
        lists = [tuple(p for value in tags[tag] for p in value.split(":") if p) for tag in ("RPATH", "RUNPATH")]
        found[name] = (bits, "".join(tags["SONAME"][:1]), tuple(tags["NEEDED"]), *lists)
    return found


def elf_ours(path: Path) -> tuple[object, ...]:
    with path.open("rb") as stream:

        def read(length: int, offset: int) -> bytes:
            stream.seek(offset)
            return stream.read(length)

        found: Elf = parse_elf(read, path.stat().st_size)
    return (found.bits, found.soname, found.needed, found.rpath, found.runpath)


def empty_library(folder: Path) -> bytes:
    """A library with nothing in it, and no SONAME: ldconfig knows it by the name of its file."""
    code, path = folder / "empty.o", folder / "empty.so"
    for argv in (["as", "-o", code, "/dev/null"], ["ld", "-shared", "-o", path, code]):
        subprocess.run(argv, check=True, capture_output=True)
    return path.read_bytes()


def loader_cache(source: random.Random, folder: Path, library: bytes) -> None:
    """Random names: ldconfig has them in our order, and what we insert is what it would have written."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    for _name in range(40):
        middle = "".join(source.choice("ab.-_z019") for _letter in range(source.randrange(1, 8)))
        name = "lib%s.so%s" % (middle, source.choice(["", ".1", ".10", ".9.2", ".09"]))
        (folder / "lib" / name).write_bytes(library)
    (folder / "conf").write_text("%s/lib\n" % folder)
    ldconfig = str(shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin"))
    theirs, ours = folder / "theirs", folder / "ours"
    subprocess.run([ldconfig, "-X", "-f", folder / "conf", "-C", theirs], check=True, capture_output=True)
    entries, levels = parse(theirs.read_bytes())
    ranks = [rank(entry.name) for entry in entries]
    assert ranks == sorted(ranks, reverse=True), ranks
    mine = [entry for entry in entries if entry.path.startswith(bytes(folder))]
    assert len(mine) > 20
    entries = [entry for entry in entries if entry not in mine]
    source.shuffle(mine)
    for entry in mine:
        insert(entries, Entry(entry.flags, entry.name, entry.path))
    ours.write_bytes(dump(entries, levels))
    said = []
    for path in (theirs, ours):
        done = subprocess.run([ldconfig, "-p", "-C", path], check=True, capture_output=True, text=True)
        said.append(sorted(line for line in done.stdout.splitlines()[1:] if "=>" in line))
    # Of names that are equal to the loader, such as x1 and x01, one is left: it would find only the first.
    lost = [line for line in said[0] if line not in said[1]]
    equal = [rank(line.split()[0].encode()) for line in said[1]]
    assert not [line for line in said[1] if line not in said[0]]
    assert all(rank(line.split()[0].encode()) in equal for line in lost), lost


def stanza_file(source: random.Random, folder: Path, count: int) -> list[tuple[str, ...]]:
    """The fields of a random dpkg status, as dpkg reads them and as we do; the answers that differ."""
    fields = ("Package", "Version", "Architecture", "Priority", "Description")
    parts = []
    for number in range(count):
        rows = [
            ("Package", "p%d" % number),
            ("Status", "install ok installed"),
            ("Architecture", source.choice(["all", "amd64"])),
        ]
        rows += [("Version", "%d.%d-1" % (number, source.randrange(9))), ("Maintainer", "A <a@example.com>")]
        more = [
            ("Priority", source.choice(["required", "optional"])),
            ("Depends", "a (>= 1:2), b | c"),
            ("X-Site", "a: b"),
        ]
        rows += [row for row in more if source.random() < 0.7]
        source.shuffle(rows)
        lines = source.choice(["", "\n a b", "\n .\n  indented: no field", "\n\t tab"])
        rows.append(("Description", "one é" + lines))
        parts.append("".join("%s:%s%s\n" % (name, source.choice([" ", "  "]), value) for name, value in rows))
    text = source.choice(["", "\n"]) + "\n".join(parts)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "info").mkdir(parents=True)
    (folder / "info/format").write_text("1\n")
    (folder / "updates").mkdir()
    (folder / "status").write_text(text, encoding="utf-8")
    shown = "\\x1f".join("${%s}" % name for name in fields) + "\\x1e"
    shown = shown.replace("\\x1f", "\x1f").replace("\\x1e", "\x1e")
    done = subprocess.run(
        ["dpkg-query", "--admindir", str(folder), "-W", "-f", shown], capture_output=True, text=True, check=True
    )
    judged = sorted(tuple(part.split("\x1f")) for part in done.stdout.split("\x1e") if part)
    ours = sorted(tuple(one.get(name, "") for name in fields) for one in parse_stanzas(text))
    assert len(ours) == count
    return [one for one in judged + ours if (one in judged) != (one in ours)]
