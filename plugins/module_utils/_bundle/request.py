# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle module on a host, by state. The action plugin sends and fetches the files."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import os
import shutil
import socket
import tempfile
import typing as t

from .._base.model import NpuError
from .._host.host import Host
from .._host.os import read_os
from .._kernel.kernels import has_headers
from .._packages.installed import read_packages
from .._packages.offline import dnf_config, dnf_options, environment
from .collect import collect_deb, collect_rpm, image_digests, plan_deb
from .manifest import MANIFEST, MANIFEST_LIMIT, BundleFile, Manifest, parse_manifest
from .needs import Needs, header_packages, require
from .place import configure, guard, look, place, read_bundle, remove
from .signature import LIMIT, SIGNATURE, public_keys, verify
from .transfer import download, fetch, pack, unpack

COLLECTED, PRESENT, CHECKED, ABSENT, REACHED = "collected", "present", "checked", "absent", "reached"
NAMES_TRIED = 8

# For AnsibleModule and for the action plugin.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": [COLLECTED, PRESENT, CHECKED, ABSENT, REACHED], "required": True},
    "folder": {"type": "path"},
    "url": {"type": "str", "no_log": True},
    "sha256": {"type": "str"},
    "ca_cert": {"type": "path"},
    "keyring": {"type": "path"},
    "directory": {"type": "path"},
    "configure": {"type": "bool", "default": True},
    "base": {"type": "str", "choices": ["none", "required", "important", "host"], "default": "important"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "kernels": {"type": "list", "elements": "str", "default": []},
    "headers": {"type": "list", "elements": "str", "default": []},
    "runfiles": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "version": {"type": "str", "default": ""},
        },
    },
    "driver_packages": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"type": "path", "required": True}, "sha256": {"type": "str", "required": True}},
    },
    "images": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "reference": {"type": "str", "required": True},
            "target": {"type": "str", "default": ""},
        },
    },
    "operands": {"type": "bool", "default": False},
    "driver_versions": {"type": "list", "elements": "str", "default": []},
    "runfile": {"type": "str", "default": ""},
    "driver_names": {"type": "list", "elements": "str", "default": []},
    "work": {"type": "path"},
    "peers": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 1800},
}
# Only between action plugin and module: text of the manifest, archive for the host, path of the archive from the host,
# digests that the controller has, PEM text, content of the keyring in base64.
STAGED: dict[str, dict[str, t.Any]] = {
    "manifest": {"type": "str"},
    "archive": {"type": "path"},
    "transfer": {"type": "path"},
    "have": {"type": "list", "elements": "str", "default": []},
    "authorities": {"type": "str"},
    "keys": {"type": "str", "no_log": False},
}

Params = t.Mapping[str, t.Any]
Result = t.Dict[str, t.Any]


def arguments(state_directory: str) -> dict[str, dict[str, t.Any]]:
    """ARGUMENTS with the default directory of the bundle, below the state directory."""
    return dict(ARGUMENTS, directory={"type": "path", "default": os.path.join(state_directory, "bundle")})


def system_of(host: Host) -> tuple[dict[str, str], str]:
    """({id, version_id, architecture}, package format deb or rpm). NpuError when one is unknown."""
    described, _probe = read_os(host)
    package_format = {"debian": "deb", "redhat": "rpm"}.get(described["family"] or "", "")
    if not package_format or not described["id"]:
        raise NpuError(
            "Bundles need apt or dnf, and this host has %s." % (described["pretty"] or "unknown"),
            "Use a host with a supported OS.",
        )
    return {
        "id": described["id"],
        "version_id": described["version_id"] or "",
        "architecture": described["arch"] or "",
    }, package_format


@contextlib.contextmanager
def _work(path: str | None) -> t.Iterator[str]:
    """The download folder: the given one, which is kept, else a temporary one. apt downloads as another user."""
    if path:
        try:
            os.makedirs(path, mode=0o755, exist_ok=True)
        except OSError as exc:
            raise NpuError("%s cannot be created: %s." % (path, exc.strerror), "Set work to another folder.") from exc
        if not guard(path, os.geteuid()):
            raise NpuError("%s does not exist." % path, "Set work to another folder.")
        yield path
        return
    folder = tempfile.mkdtemp(prefix="npu-bundle-", dir="/var/tmp")
    try:
        os.chmod(folder, 0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def collected(host: Host, params: Params, dry: bool) -> Result:
    """Resolve and, unless dry, download. Files that the controller lacks go into a tar archive at `transfer`."""
    system, package_format = system_of(host)
    requested = sorted(set(params["packages"]))
    for kernel in params["kernels"]:
        requested += header_packages(package_format, kernel, params["headers"], system["id"])
    requested = list(dict.fromkeys(requested))
    result: Result = {"os": system, "format": package_format, "requested": requested, "files": [], "images": []}
    with _work(None if dry else params["work"]) as work:
        if dry:
            planned = (
                plan_deb(host, work, requested, params["base"], params["timeout"]) if package_format == "deb" else []
            )
            return dict(result, planned=[{key: row[key] for key in ("name", "size", "sha256")} for row in planned])
        if package_format == "deb":
            rows = collect_deb(host, work, requested, params["base"], params["timeout"])
        else:
            rows = collect_rpm(host, work, requested, params["timeout"])
        if params["transfer"]:
            have = set(params["have"])
            pack({row["sha256"]: row["local"] for row in rows if row["sha256"] not in have}, params["transfer"])
    result["images"] = image_digests(host, params["images"])
    result["files"] = [{key: value for key, value in row.items() if key != "local"} for row in rows]
    return result


def manifest_text(host: Host, params: Params) -> str:
    """The given manifest, else the verified one of the web server, else that of the host.

    A web server's has the given SHA-256, or a signature by the given keys; both where both are given.
    """
    if params["manifest"]:
        return str(params["manifest"])
    if not params["url"]:
        read_bundle(host, params["directory"])
        return str(host.read_text(os.path.join(params["directory"], MANIFEST)).value)
    if not params["sha256"] and not params["keyring"]:
        raise NpuError(
            "url is set without the SHA-256 of the manifest.",
            "Set sha256 or keyring, or set folder to the bundle on the controller.",
        )

    def read(name: str, limit: int) -> bytes:
        address = params["url"].rstrip("/") + "/" + name
        with fetch(address, params["authorities"] or "", params["timeout"]) as source:
            return bytes(source.read(limit))

    address, content = params["url"].rstrip("/") + "/" + MANIFEST, read(MANIFEST, MANIFEST_LIMIT + 1)
    if params["keyring"]:
        keys = public_keys(base64.b64decode(params["keys"] or ""), params["keyring"])
        verify(host, content, read(SIGNATURE, LIMIT), keys, address)
    found = hashlib.sha256(content).hexdigest()
    if params["sha256"] and found != params["sha256"].lower():
        raise NpuError(
            "The SHA-256 of %s is %s, not %s." % (address, found, params["sha256"]),
            "Serve the right bundle, or correct sha256.",
        )
    return content.decode("utf-8", "replace")


def _summary(manifest: Manifest, directory: str, digest: str) -> Result:
    return {
        "directory": directory,
        "manifest_sha256": digest,
        "size": manifest.size,
        "count": len(manifest.files),
        "environment": environment(directory, manifest.format),
        "dnf_options": dnf_options(directory, manifest.format),
        "dnf_config": dnf_config(directory, manifest.format),
        "runfiles": {
            one.version or one.name: {"path": os.path.join(directory, one.path), "sha256": one.sha256}
            for one in manifest.of("runfile")
        },
    }


def checked(host: Host, params: Params) -> Result:
    """Check the bundle for what this host still needs. NpuError lists everything that is missing."""
    text = manifest_text(host, params)
    manifest = parse_manifest(text)
    system, package_format = system_of(host)
    names = [package.split("=")[0] for package in params["packages"]]
    headers = [
        name
        for kernel in params["kernels"]
        for name in header_packages(package_format, kernel, params["headers"], system["id"])
    ]
    found, _format, probe = read_packages(host, [*names, *headers])
    if probe.state not in ("value", "absent"):
        raise NpuError("The installed packages cannot be read: %s." % probe.detail, "Run as root (become).")
    installed = {row["name"] for row in found if row["state"] == "installed"}
    needs = Needs(
        os=system,
        driver_versions=params["driver_versions"],
        runfile=params["runfile"],
        driver_packages=params["driver_names"],
        packages=[package for package in params["packages"] if package not in installed],
        kernels=[kernel for kernel in params["kernels"] if not has_headers(host, kernel, found)],
        headers=params["headers"],
        images=[image["reference"] for image in params["images"]],
    )
    require(manifest, needs, params["folder"] or params["url"] or params["directory"])
    return dict(
        _summary(manifest, params["directory"], hashlib.sha256(text.encode("utf-8")).hexdigest()), format=package_format
    )


def present(host: Host, params: Params, dry: bool) -> Result:
    """Put the bundle into the folder. Without archive and url it only returns `lacking`, the files to send."""
    text = manifest_text(host, params)
    manifest, digest, directory = (
        parse_manifest(text),
        hashlib.sha256(text.encode("utf-8")).hexdigest(),
        params["directory"],
    )
    if params["configure"]:
        system, _format = system_of(host)
        require(manifest, Needs(os=system), params["folder"] or params["url"] or directory)
    found = look(directory, manifest, text, params["configure"], digest)
    lacks: list[BundleFile] = found.condition.bad
    result = dict(_summary(manifest, directory, digest), changed=not found.right, lacking=[one.path for one in lacks])
    result["diff"] = {
        "before": "".join("%s\n" % line for line in _lines(found)),
        "after": "",
        "before_header": directory,
        "after_header": directory,
    }
    if found.right or dry or (lacks and not (params["archive"] or params["url"])):
        return result

    def fill(folder: str, wanted: t.Sequence[BundleFile]) -> None:
        if params["archive"]:
            unpack(params["archive"], folder, wanted)
        elif params["url"]:
            download(params["url"], folder, wanted, params["authorities"] or "", params["timeout"])

    if lacks or found.stray or not found.manifest:
        place(directory, manifest, text, found, fill)
    if params["configure"]:
        configure(host, directory, manifest.format, digest, params["timeout"])
    left = look(directory, manifest, text, params["configure"], digest)
    if not left.right:
        raise NpuError(
            "%s differs from the bundle: %s." % (directory, "; ".join(_lines(left))),
            "Make sure that no other program writes there, and run again.",
        )
    return dict(result, lacking=[])


def _lines(found: t.Any) -> list[str]:
    lines: list[str] = found.condition.lines() + ["%s is not part of the bundle" % name for name in found.stray]
    lines += ["%s has other content" % name for name in found.settings]
    return lines + ([] if found.manifest else ["%s is of another bundle" % MANIFEST])


def absent(params: Params, dry: bool) -> Result:
    """Remove the bundle."""
    return {"changed": remove(params["directory"], dry), "directory": params["directory"]}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _source(peer: str) -> str | None:
    """The address of this machine from which the kernel would send to a peer; None for itself and without a route."""
    try:
        family, _kind, _protocol, _name, place = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: it only chooses the route.
            probe.connect(place)
            found = str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None
    address = ipaddress.ip_address(found)
    return None if address.is_loopback or address.is_link_local or found == place[0] else found


def reached(peers: t.Sequence[str]) -> Result:
    """{address}: the one address of this host that the peers reach, by the routes of its kernel.

    Names are only asked when no peer is an address, and only a few: a name server may be out of reach. When none is
    known either, it is the address that ssh has reached.
    """
    known = [peer for peer in peers if _is_address(peer)]
    found = sorted({source for source in map(_source, known or peers[:NAMES_TRIED]) if source})
    # By ssh, the controller has reached it as well: client address and port, own address and port.
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if not found and len(connection) == 4 and _is_address(connection[2]):
        found = [connection[2]]
    if len(found) != 1:
        raise NpuError(
            "The hosts reach this one at %s." % (" and ".join(found) if found else "an address that is not known"),
            "Set the address that it is to listen on (serve_address of the role).",
        )
    return {"address": found[0]}
