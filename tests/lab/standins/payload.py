# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in driver and toolkit as users get them: debs, an apt repository of them, and self-extracting runfiles.

The real inner package names are not public; those here are ours. Everything is written without tools, the same bytes each time.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import typing as t
from pathlib import Path

from .._image import Entry, tar_of
from .elf import kernel_module, shared_object

FILES = Path(__file__).resolve().parent / "files"
VERSIONS = ("3.2.2", "3.4.0")
# Installs its tools and libraries, then fails where a module build fails.
BROKEN_VERSION = "3.4.1"
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
After=npu-lab-hardware.service
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
KMD_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
kernel=$(uname -r)
echo "Building module for $kernel"
@FAIL@
mkdir -p "/lib/modules/$kernel/updates/dkms"
cp /usr/lib/rbln-standin/rebellions.ko "/lib/modules/$kernel/updates/dkms/rebellions.ko"
touch "/lib/modules/$kernel/modules.order" "/lib/modules/$kernel/modules.builtin"
depmod -a "$kernel" 2>/dev/null
[ ! -d /run/systemd/system ] || systemctl daemon-reload
systemctl enable -q rbln-standin-load.service
if [ -d /run/systemd/system ]; then modprobe -r rebellions && modprobe rebellions || echo "rebellions is in use: version @VERSION@ is loaded after a reboot"; fi
"""
KMD_FAIL = """echo "Error! Bad return status for module build on kernel: $kernel (x86_64)" >&2
echo "Consult /var/lib/dkms/rebellions/@VERSION@/build/make.log for more information." >&2
exit 10"""
KMD_PRERM = """#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
if [ -d /run/systemd/system ]; then modprobe -r rebellions || { echo "rebellions is in use: stop what holds it first" >&2; exit 1; }; fi
systemctl disable -q rbln-standin-load.service || true
rm -f "/lib/modules/$(uname -r)/updates/dkms/rebellions.ko"
depmod -a 2>/dev/null || true
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
RUNFILE = """#!/bin/sh
# Stand-in for the driver's runfile, version @VERSION@. The real one's flags are not public; these are ours.
set -eu
version=@VERSION@
usage() { echo "usage: ${0##*/} [--silent] | --uninstall | --extract DIR | --version"; }
unpack() { mkdir -p "$1"; tail -n +@LINE@ "$0" | tar -xzf - -C "$1"; }
packages="rebellions-kmd rebellions-fw rbln-tools librbln"
act=install
while [ $# -gt 0 ]; do
    case $1 in
    --silent | -s) ;;
    --uninstall) act=uninstall ;;
    --extract) act=extract; shift; [ $# -gt 0 ] || { usage >&2; exit 2; }; target=$1 ;;
    --version) echo "rebellions $version"; exit 0 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
if [ $act = extract ]; then unpack "$target"; exit 0; fi
[ "$(id -u)" = 0 ] || { echo "rebellions $version: run as root" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "rebellions $version: for x86_64 only" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
if [ $act = uninstall ]; then
    present=$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' $packages 2>/dev/null | awk '$2 != "un" {print $1}')
    [ -z "$present" ] || dpkg --purge $present
    echo "rebellions $version: removed"
    exit 0
fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unpack "$work"
dpkg -i "$work"/*.deb
echo "rebellions $version: installed"
exit 0
"""


def _control(fields: t.Mapping[str, str]) -> str:
    return "".join("%s: %s\n" % item for item in fields.items())


def deb(fields: t.Mapping[str, str], entries: t.Mapping[str, Entry], scripts: t.Mapping[str, str], conffiles: t.Sequence[str] = ()) -> bytes:
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
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), 0, 0, 0, b"100644", len(data)) + data + b"\n" * (len(data) % 2)
    return out


def _fields(name: str, version: str, text: str, **more: str) -> dict[str, str]:
    fields = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "The rebellions.npu authors <noreply@example.com>"}
    fields.update({key.replace("_", "-"): value for key, value in more.items()})
    fields["Description"] = text + " (stand-in for tests)"
    return fields


def _text(name: str, version: str) -> bytes:
    return (FILES / name).read_text().replace("@VERSION@", version).encode()


def _kmd(version: str) -> tuple[dict[str, Entry], dict[str, str]]:
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
        "usr/lib/rbln-standin/kmod": Entry(_text("kmod.sh", version)),
        "usr/lib/rbln-standin/rebellions.ko": Entry(module, mode=0o644),
        "usr/lib/modprobe.d/rbln-standin.conf": Entry(
            b"install rebellions /usr/lib/rbln-standin/kmod load\nremove rebellions /usr/lib/rbln-standin/kmod unload\n", mode=0o644
        ),
        "usr/lib/systemd/system/rbln-standin-load.service": Entry(LOAD_UNIT.encode(), mode=0o644),
    }
    fail = KMD_FAIL if version == BROKEN_VERSION else ":"
    scripts = {"postinst": KMD_POSTINST.replace("@FAIL@", fail).replace("@VERSION@", version), "prerm": KMD_PRERM}
    return entries, scripts


def _tools(version: str) -> dict[str, Entry]:
    return {
        "usr/bin/rbln-smi": Entry(_text("rbln-smi.sh", version)),
        "usr/bin/rbln-stat": Entry(target="rbln-smi"),
        "usr/bin/rbln-smd": Entry(b"#!/bin/sh\n# Stand-in for the management daemon: it runs, and does nothing.\nexec sleep infinity\n"),
        "usr/lib/systemd/system/rbln-smd.service": Entry(DAEMON_UNIT.encode(), mode=0o644),
    }


def _libraries(version: str) -> dict[str, Entry]:
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
    return {"usr/lib/firmware/rebellions/ca22.bin": Entry(("stand-in firmware %s\n" % version).encode(), mode=0o644)}


def driver_debs(version: str) -> dict[str, bytes]:
    """{file name: package} of one driver version."""
    depends = "(= %s)" % version
    kmd, scripts = _kmd(version)
    made = {
        "rebellions-kmd": deb(_fields("rebellions-kmd", version, "Rebellions kernel driver", Depends="kmod", Conflicts="rebellions"), kmd, scripts),
        "rebellions-fw": deb(_fields("rebellions-fw", version, "Rebellions firmware"), _firmware(version), {}),
        "rbln-tools": deb(
            _fields("rbln-tools", version, "Rebellions tools", Depends="librbln " + depends, Conflicts="rebellions"),
            _tools(version),
            {"postinst": TOOLS_POSTINST, "prerm": TOOLS_PRERM},
        ),
        "librbln": deb(
            _fields("librbln", version, "Rebellions libraries", Conflicts="rebellions"), _libraries(version), {"postinst": LDCONFIG, "postrm": LDCONFIG}
        ),
        "rebellions-driver": deb(
            _fields(
                "rebellions-driver",
                version,
                "Rebellions driver, all parts",
                Depends=", ".join("%s %s" % (name, depends) for name in ("rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln")),
            ),
            {},
            {},
        ),
    }
    return {"%s_%s_amd64.deb" % (name, version): data for name, data in made.items()}


def legacy_deb(version: str = LEGACY_VERSION) -> dict[str, bytes]:
    """The single package `rebellions` of the releases before 3.0."""
    kmd, scripts = _kmd(version)
    entries = {**kmd, **_tools(version), **_libraries(version), **_firmware(version)}
    postinst = scripts["postinst"] + "ldconfig\n" + TOOLS_POSTINST.split("\n", 3)[3]
    prerm = TOOLS_PRERM + scripts["prerm"].split("\n", 3)[3]
    fields = _fields("rebellions", version, "Rebellions driver", Depends="kmod")
    return {"rebellions_%s_amd64.deb" % version: deb(fields, entries, {"postinst": postinst, "prerm": prerm})}


def toolkit_deb(version: str = TOOLKIT_VERSION) -> dict[str, bytes]:
    """The vendor's container toolkit: only the hook does something."""
    entries = {
        "usr/local/bin/rbln-cdi-hook": Entry(b"#!/usr/bin/python3\n" + (FILES / "rbln-cdi-hook.py").read_bytes()),
        "usr/bin/rbln-ctk": Entry(
            (
                b'#!/bin/sh\n# Stand-in for rbln-ctk.\n[ "${1:-}" = --version ] && { echo "rbln-ctk version %s"; exit 0; }\n'
                b'echo "rbln-ctk: stand-in, only --version" >&2; exit 2\n'
            )
            % version.encode()
        ),
        "etc/rbln/container-toolkit.yaml": Entry(b"hooks:\n  path: /usr/local/bin/rbln-cdi-hook\n  ldconfig-path: /sbin/ldconfig\n", mode=0o644),
    }
    fields = _fields("rbln-container-toolkit", version, "Rebellions container toolkit", Depends="python3, librbln | rebellions")
    return {"rbln-container-toolkit_%s_amd64.deb" % version: deb(fields, entries, {}, ["/etc/rbln/container-toolkit.yaml"])}


def runfile(version: str) -> bytes:
    """`rebellions-x86_64-VERSION.run`: a shell head and a gzipped tar of the four driver packages."""
    packages = {name: Entry(data, mode=0o644) for name, data in driver_debs(version).items() if not name.startswith("rebellions-driver_")}
    head = RUNFILE.replace("@VERSION@", version)
    head = head.replace("@LINE@", str(head.count("\n") + 1))
    return head.encode() + gzip.compress(tar_of(packages), mtime=0)


def _member(package: bytes, wanted: str) -> bytes:
    at = 8
    while at < len(package):
        name, size = package[at : at + 16].strip().decode(), int(package[at + 48 : at + 58])
        if name == wanted:
            return package[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise ValueError("no %s in the package" % wanted)


def repository(packages: t.Mapping[str, bytes]) -> dict[str, bytes]:
    """A flat, unsigned apt repository: `deb [trusted=yes] file:DIR ./`."""
    index = ""
    for name, data in sorted(packages.items()):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(_member(data, "control.tar.gz")))) as archive:
            member = archive.extractfile("./control")
            assert member is not None
            index += member.read().decode() + "Filename: ./%s\nSize: %d\nSHA256: %s\n\n" % (name, len(data), hashlib.sha256(data).hexdigest())
    raw = index.encode()
    release = "Suite: ./\nArchitectures: amd64\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n" % (hashlib.sha256(raw).hexdigest(), len(raw))
    return {**packages, "Packages": raw, "Release": release.encode()}


def write(home: Path) -> None:
    """Lay out apt/ (repository), run/ (runfiles) and SHA256SUMS below home."""
    packages: dict[str, bytes] = {**legacy_deb(), **toolkit_deb()}
    files: dict[str, bytes] = {}
    for version in (*VERSIONS, BROKEN_VERSION):
        packages.update(driver_debs(version))
        files["run/rebellions-x86_64-%s.run" % version] = runfile(version)
    files.update({"apt/" + name: data for name, data in repository(packages).items()})
    for name, data in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name.endswith(".run") else 0o644)
    (home / "SHA256SUMS").write_text("".join("%s  %s\n" % (hashlib.sha256(data).hexdigest(), name) for name, data in sorted(files.items())))
