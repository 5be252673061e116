# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in driver and toolkit as users get them: debs, an apt repository of them, and self-extracting runfiles.

The real inner package names are not public; those here are ours. Everything except the signatures is written without
tools and has the same bytes each time.
"""

from __future__ import annotations

import gzip
import hashlib
import typing as t
from pathlib import Path

from .._image import Entry, tar_of
from .dkms import source
from .elf import kernel_module, shared_object
from .repository import Signer, flat, signed

FILES = Path(__file__).resolve().parent / "files"
VERSIONS = ("3.2.2", "3.4.0")
# Installs its tools and libraries, then fails where a module build fails.
BROKEN_VERSION = "3.4.1"
# Builds and loads, but every device comes up with status 3 (FAULT).
FAULTY_VERSION = "3.4.2"
ALL_VERSIONS = (*VERSIONS, BROKEN_VERSION, FAULTY_VERSION)
# The last release that was one package of that name.
LEGACY_VERSION = "2.1.0"
TOOLKIT_VERSION = "0.2.3"
LIBRARY_DIR = "usr/lib/x86_64-linux-gnu"
# name -> DT_NEEDED; @ is the major version
LIBRARIES: dict[str, tuple[str, ...]] = {
    "librbln-thunk": ("libc.so.6",),
    "librbln-ccl": ("librbln-thunk.so.@", "libc.so.6"),
    "librbln-ml": ("librbln-thunk.so.@", "libc.so.6"),
}

LOAD_UNIT = """[Unit]
Description=Stand-in for loading the rebellions module at boot
DefaultDependencies=no
After=npu-lab-hardware.service systemd-modules-load.service
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/rbln-standin/kmod load

[Install]
WantedBy=sysinit.target
"""
DAEMON_UNIT = """[Unit]
Description=Rebellions System Management Daemon

[Service]
ExecStart=/usr/bin/rbln-smd
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
TOOLS_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
[ ! -d /run/systemd/system ] || systemctl daemon-reload
systemctl enable -q rbln-smd.service
[ ! -d /run/systemd/system ] || systemctl restart rbln-smd.service
"""
TOOLS_PRERM = """#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
[ ! -d /run/systemd/system ] || systemctl stop rbln-smd.service || true
systemctl disable -q rbln-smd.service || true
"""
LDCONFIG = "#!/bin/sh\nldconfig\n"
UDEV_RULES = """# Stand-in for the driver's udev rules.
SUBSYSTEM=="rebellions", KERNEL=="rbln[0-9]*", MODE="0666"
KERNEL=="rsd[0-9]*", MODE="0666"
"""
MODULES_LOAD = "etc/modules-load.d/rebellions.conf"


def _control(fields: t.Mapping[str, str]) -> str:
    return "".join("%s: %s\n" % item for item in fields.items())


def deb(
    fields: t.Mapping[str, str],
    entries: t.Mapping[str, Entry],
    scripts: t.Mapping[str, str],
    conffiles: t.Sequence[str] = (),
) -> bytes:
    """A Debian package (format 2.0). Keys of entries are paths without the leading slash."""
    control = {"./control": Entry(_control(fields).encode(), mode=0o644)}
    control.update({"./" + name: Entry(text.encode(), mode=0o755) for name, text in scripts.items()})
    if conffiles:
        control["./conffiles"] = Entry("".join(name + "\n" for name in conffiles).encode(), mode=0o644)
    parts = (
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", gzip.compress(tar_of(control), mtime=0)),
        ("data.tar.gz", gzip.compress(tar_of({"./" + name: entry for name, entry in entries.items()}), mtime=0)),
    )
    out = b"!<arch>\n"
    for name, data in parts:
        out += (
            b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), 0, 0, 0, b"100644", len(data))
            + data
            + b"\n" * (len(data) % 2)
        )
    return out


def _fields(name: str, version: str, text: str, **more: str) -> dict[str, str]:
    fields = {
        "Package": name,
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": "The rebellions.npu authors <noreply@example.com>",
    }
    fields.update({key.replace("_", "-"): value for key, value in more.items()})
    fields["Description"] = text + " (stand-in for tests)"
    return fields


def script(name: str, version: str) -> bytes:
    words = {
        "@VERSION@": version,
        "@STATUS@": "3" if version == FAULTY_VERSION else "0",
        "@BUILDS@": "false" if version == BROKEN_VERSION else "true",
    }
    text = (FILES / name).read_text()
    for word, value in words.items():
        text = text.replace(word, value)
    return text.encode()


def _kmd(version: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """Files of the kernel driver, and its maintainer scripts; its one conffile is MODULES_LOAD."""
    module = kernel_module(
        {
            "version": version,
            "license": "GPL",
            "description": "Stand-in for the rebellions module, no kernel can load it",
            "alias": "pci:v00001EFFd*sv*sd*bc12sc00i*",
            "name": "rebellions",
            "vermagic": "stand-in SMP mod_unload",
        }
    )
    entries = {
        "usr/lib/rbln-standin/kmod": Entry(script("kmod.sh", version)),
        "usr/lib/rbln-standin/rebellions.ko": Entry(module, mode=0o644),
        "usr/lib/systemd/system/rbln-standin-load.service": Entry(LOAD_UNIT.encode(), mode=0o644),
        "usr/lib/udev/rules.d/70-rebellions.rules": Entry(UDEV_RULES.encode(), mode=0o644),
        MODULES_LOAD: Entry(b"rebellions\n", mode=0o644),
    }
    texts = source(version, version != BROKEN_VERSION, 3 if version == FAULTY_VERSION else 0)
    entries.update(
        {"usr/src/rebellions-%s/%s" % (version, name): Entry(text.encode(), mode=0o644) for name, text in texts.items()}
    )
    return entries, {name: script("kmd-%s.sh" % name, version).decode() for name in ("postinst", "prerm")}


def tools(version: str) -> dict[str, Entry]:
    return {
        "usr/bin/rbln-smi": Entry(script("rbln-smi.sh", version)),
        "usr/bin/rbln-stat": Entry(target="rbln-smi"),
        "usr/bin/rbln-smd": Entry(script("rbln-smd.sh", version)),
        "usr/bin/rbln-flash": Entry(script("rbln-flash.sh", version)),
        "usr/lib/systemd/system/rbln-smd.service": Entry(DAEMON_UNIT.encode(), mode=0o644),
    }


def libraries(version: str) -> dict[str, Entry]:
    major = version.split(".", 1)[0]
    entries: dict[str, Entry] = {}
    for name, needed in LIBRARIES.items():
        soname = "%s.so.%s" % (name, major)
        data = shared_object(soname, [item.replace("@", major) for item in needed], "rbln version: " + version)
        entries["%s/%s.so.%s" % (LIBRARY_DIR, name, version)] = Entry(data, mode=0o644)
        entries["%s/%s" % (LIBRARY_DIR, soname)] = Entry(target="%s.so.%s" % (name, version))
        entries["%s/%s.so" % (LIBRARY_DIR, name)] = Entry(target=soname)
    return entries


def _firmware(version: str) -> dict[str, Entry]:
    image = Entry(("stand-in firmware %s\n" % version).encode(), mode=0o644)
    return {"usr/lib/firmware/rebellions/%s.bin" % card: image for card in ("ca22", "ca25", "cr13")}


def driver_debs(version: str) -> dict[str, bytes]:
    """{file name: package} of one driver version."""
    depends = "(= %s)" % version
    kmd, scripts = _kmd(version)
    made = {
        "rebellions-kmd": deb(
            _fields("rebellions-kmd", version, "Rebellions kernel driver", Depends="kmod", Conflicts="rebellions"),
            kmd,
            scripts,
            ["/" + MODULES_LOAD],
        ),
        "rebellions-fw": deb(_fields("rebellions-fw", version, "Rebellions firmware"), _firmware(version), {}),
        "rbln-tools": deb(
            _fields("rbln-tools", version, "Rebellions tools", Depends="librbln " + depends, Conflicts="rebellions"),
            tools(version),
            {"postinst": TOOLS_POSTINST, "prerm": TOOLS_PRERM},
        ),
        "librbln": deb(
            _fields("librbln", version, "Rebellions libraries", Conflicts="rebellions"),
            libraries(version),
            {"postinst": LDCONFIG, "postrm": LDCONFIG},
        ),
        "rebellions-driver": deb(
            _fields(
                "rebellions-driver",
                version,
                "Rebellions driver, all parts",
                Depends=", ".join(
                    "%s %s" % (name, depends) for name in ("rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln")
                ),
            ),
            {},
            {},
        ),
    }
    return {"%s_%s_amd64.deb" % (name, version): data for name, data in made.items()}


def legacy_deb(version: str = LEGACY_VERSION) -> dict[str, bytes]:
    """The single package `rebellions` of the releases before 3.0."""
    kmd, scripts = _kmd(version)
    entries = {**kmd, **tools(version), **libraries(version), **_firmware(version)}
    both = "#!/bin/sh\nset -e\n(%s)\n(%s)\n"
    postinst = both % (scripts["postinst"], "ldconfig\n" + TOOLS_POSTINST)
    prerm = both % (TOOLS_PRERM, scripts["prerm"])
    fields = _fields("rebellions", version, "Rebellions driver", Depends="kmod")
    made = deb(fields, entries, {"postinst": postinst, "prerm": prerm}, ["/" + MODULES_LOAD])
    return {"rebellions_%s_amd64.deb" % version: made}


def toolkit_deb(version: str = TOOLKIT_VERSION) -> dict[str, bytes]:
    """The vendor's container toolkit: only the hook does something."""
    entries = {
        "usr/local/bin/rbln-cdi-hook": Entry(b"#!/usr/bin/python3\n" + (FILES / "rbln-cdi-hook.py").read_bytes()),
        "usr/bin/rbln-ctk": Entry(
            (
                b'#!/bin/sh\n# Stand-in for rbln-ctk.\n[ "${1:-}" = --version ] && { echo "rbln-ctk version %s"; '
                b"exit 0; }\n"
                b'echo "rbln-ctk: stand-in, only --version" >&2; exit 2\n'
            )
            % version.encode()
        ),
        "etc/rbln/container-toolkit.yaml": Entry(
            b"hooks:\n  path: /usr/local/bin/rbln-cdi-hook\n  ldconfig-path: /sbin/ldconfig\n", mode=0o644
        ),
    }
    fields = _fields(
        "rbln-container-toolkit", version, "Rebellions container toolkit", Depends="python3, librbln | rebellions"
    )
    return {
        "rbln-container-toolkit_%s_amd64.deb" % version: deb(fields, entries, {}, ["/etc/rbln/container-toolkit.yaml"])
    }


def runfile(version: str) -> bytes:
    """`rebellions-x86_64-VERSION.run`: a shell head and a gzipped tar of the four driver packages."""
    packages = {
        name: Entry(data, mode=0o644)
        for name, data in driver_debs(version).items()
        if not name.startswith("rebellions-driver_")
    }
    head = script("runfile.sh", version).decode()
    head = head.replace("@LINE@", str(head.count("\n") + 1))
    return head.encode() + gzip.compress(tar_of(packages), mtime=0)


def write(home: Path) -> None:
    """Lay the payload out below home (standins/README.md says what it is).

    All except the key and its signatures is the same each time.
    """
    packages: dict[str, bytes] = {**legacy_deb(), **toolkit_deb()}
    files: dict[str, bytes] = {"fault": script("fault.sh", "")}
    with Signer() as signer:
        for version in ALL_VERSIONS:
            packages.update(driver_debs(version))
            name = "run/rebellions-x86_64-%s.run" % version
            files[name] = runfile(version)
            files[name + ".asc"] = signer.detached(files[name])
        files["keys/rebellions.asc"], files["keys/rebellions.gpg"] = (
            signer.public(armored=True),
            signer.public(armored=False),
        )
        index = flat(packages)
        for folder, made in (("apt", index), ("apt-signed", signed(index, signer))):
            files.update({"%s/%s" % (folder, name): data for name, data in {**packages, **made}.items()})
    for name, data in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name.endswith(".run") or name == "fault" else 0o644)
    (home / "SHA256SUMS").write_text(
        "".join("%s  %s\n" % (hashlib.sha256(data).hexdigest(), name) for name, data in sorted(files.items()))
    )
