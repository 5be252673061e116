# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The software bill of materials of a release, CycloneDX 1.6 as JSON.

The tarball contains only our own files; the rest is what it needs on the controller and the hosts, with the versions it
accepts, and the container images that the default inputs deploy. Nothing in it depends on the machine or the hour.
"""

from __future__ import annotations

import json
import re
import time
import typing as t
import uuid

Data = t.Dict[str, t.Any]

# Published image and tag; a test compares them with what the default inputs deploy. The digest is chosen by the site
# (rbln_operands_image_digests).
IMAGES = (("docker.io/library/busybox", "1.37"), ("docker.io/rebellions/k8s-device-plugin", "v0.4.3"))
PYTHON = ">=3.10 on the controller, >=3.8 on managed hosts"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*([<>=!~][^;#\s]*)")
_ANSIBLE = re.compile(r"^requires_ansible:\s*[\"']?([^\"'\s]+)", re.M)


def describe(galaxy: Data, requirements: str, runtime: str, sha256: str, when: int, commit: str) -> Data:
    """The SBOM of the tarball with this digest; `requirements` and `runtime` are texts of files of the collection."""
    name = f"{galaxy['namespace']}.{galaxy['name']}"
    own = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": galaxy["version"],
        "description": galaxy["description"],
        "authors": [{"name": author} for author in galaxy["authors"]],
        "licenses": [{"license": {"id": one}} for one in galaxy["license"]],
        "purl": f"pkg:generic/{name}@{galaxy['version']}",
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "externalReferences": [
            {"type": "vcs", "url": galaxy["repository"], "comment": f"commit {commit}"},
            {"type": "documentation", "url": galaxy["documentation"]},
            {"type": "issue-tracker", "url": galaxy["issues"]},
        ],
    }
    ansible = _ANSIBLE.search(runtime)
    wanted = [("ansible-core", ansible.group(1) if ansible else "")]
    wanted += [match.groups() for match in map(_REQUIREMENT.match, requirements.splitlines()) if match]
    needed = [_needed("library", package, f"pkg:pypi/{package.lower()}", versions) for package, versions in wanted]
    needed.append(_needed("platform", "python", "pkg:generic/python", PYTHON))
    needed += [
        _needed("library", one, f"pkg:generic/{one}", versions) for one, versions in galaxy["dependencies"].items()
    ]
    images = [_image(image, tag) for image, tag in IMAGES]
    components = sorted([*needed, *images], key=lambda one: str(one["bom-ref"]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_URL, f"{galaxy['repository']}@{commit}#{sha256}"),
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
            "lifecycles": [{"phase": "build"}],
            "component": own,
        },
        "components": components,
        "dependencies": [
            {"ref": name, "dependsOn": [one["bom-ref"] for one in components]},
            *({"ref": one["bom-ref"]} for one in components),
        ],
        # Nothing is vendored: the tarball has no part that is not ours. What the packages need themselves is not here.
        "compositions": [
            {"aggregate": "complete", "assemblies": [name], "dependencies": [name]},
            {"aggregate": "unknown", "dependencies": [one["bom-ref"] for one in components]},
        ],
    }


def _needed(kind: str, name: str, purl: str, versions: str) -> Data:
    """A requirement. CycloneDX 1.6 has no ranges of versions, so they are a property."""
    return {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "purl": purl,
        "scope": "required",
        "properties": [{"name": "rebellions.npu:versions", "value": versions}],
    }


def _image(image: str, tag: str) -> Data:
    purl = f"pkg:docker/{image.partition('/')[2]}@{tag}"
    return {
        "type": "container",
        "bom-ref": purl,
        "name": image,
        "version": tag,
        "purl": purl,
        "scope": "optional",
        "properties": [{"name": "rebellions.npu:deployed-by", "value": "default inputs of rbln_operands"}],
    }


def text(data: Data) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()
