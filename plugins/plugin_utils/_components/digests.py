# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images by digest, for the containers of all objects in one place, so that no component can miss it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.needs import by_digest

from .._objects.inputs import Inputs
from .._objects.model import Object
from .._objects.names import OPERANDS

TABLE, SWITCH = OPERANDS + "image_digests", OPERANDS + "require_digest"
_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}\Z")
_TAGGED = re.compile(
    r"^(?:(?P<registry>[^\s@/]*[.:][^\s@/]*|localhost)/)?(?P<name>[^\s@:]+:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})\Z"
)


def containers(item: Object) -> list[Object]:
    """Every container of an object that makes pods, init containers first."""
    pod = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    return [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]


def pin(objects: t.Sequence[Object], inputs: Inputs) -> None:
    """Replace each tag that the inputs know a digest of.

    NpuError names all images without a digest, when each must have one.
    """
    known = _known(inputs)
    found = [container for item in objects for container in containers(item)]
    for container in found:
        if container["image"] in known:
            container["image"] = by_digest(container["image"], known[container["image"]])
    lacking = sorted({container["image"] for container in found if "@" not in container["image"]})
    if lacking and inputs["require_digest"] and inputs["state"] == "present":
        raise NpuError(
            "%s is true, and these images have no digest: %s." % (SWITCH, ", ".join(lacking)),
            "Add each with its digest to %s." % TABLE,
        )


def _known(inputs: Inputs) -> dict[str, str]:
    """{image as the cluster gets it: digest}, from references as they are published or as the cluster gets them."""
    exact: dict[str, str] = {}
    moved: dict[str, str] = {}
    for reference, digest in inputs["image_digests"].items():
        tagged = _TAGGED.match(reference) if isinstance(reference, str) else None
        if not tagged:
            raise NpuError(
                "%s has %r, which is not a registry, a repository and a tag." % (TABLE, reference),
                "Write for example docker.io/library/busybox:1.37.",
            )
        if not isinstance(digest, str) or not _DIGEST.match(digest):
            raise NpuError(
                "%s[%s] is %r, which is not a digest." % (TABLE, reference, digest),
                "Write sha256: and 64 hexadecimal digits.",
            )
        exact[reference] = digest
        if inputs["registry"]:
            # The prefix replaces the registry of each image.
            name = "%s/%s" % (inputs["registry"].rstrip("/"), tagged.group("name"))
            if moved.setdefault(name, digest) != digest and name not in inputs["image_digests"]:
                raise NpuError(
                    "%s has two digests of %s." % (TABLE, name),
                    "Name the image with the prefix, or remove one of them.",
                )
    return {**moved, **exact}
