# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a kubelet has not got an image, and what to do about it. Pure, on API objects."""

from __future__ import annotations

import re
import typing as t

from .._objects.names import INPUT, OPERANDS
from .._objects.placement import Data
from .._text.line import both_ends, line

# Reasons for which a container waits: its image is not on the node.
PULLS = (
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
NO_RIGHT_TO_PULL = re.compile(r"unauthori[sz]ed|authori[sz]ation|denied|forbidden|\b40[13]\b|no basic auth", re.I)
_SECRET = f"the pull secret ({OPERANDS}image_pull_secrets)"
_IMAGE = f"{INPUT}registry, and {OPERANDS}<component>.image"
# (reasons, what the kubelet says, next step): the first that fits is right; the order matters, as a registry that lets
# nobody look says of an image that it lacks that access is denied.
_STEPS: tuple[tuple[t.Collection[str], str, str], ...] = (
    (("ErrImageNeverPull",), r"", "Load the image on this node, or set its pull_policy to IfNotPresent."),
    (("InvalidImageName",), r"", f"Correct the image's name: {_IMAGE}."),
    (PULLS, r"no match for platform|no matching manifest", "Name an image for the architecture of this node."),
    (PULLS, r"invalid reference format", f"Correct the image's name: {_IMAGE}."),
    (PULLS, r"no space left on device", "Free disk space on this node."),
    (
        PULLS,
        r"toomanyrequests|too many requests|pull rate limit",
        f"Give {_SECRET} of an account, or a mirror by {INPUT}registry: the registry limits pulls.",
    ),
    (PULLS, NO_RIGHT_TO_PULL.pattern, f"Check {_SECRET}, and the image's name ({_IMAGE})."),
    (
        PULLS,
        r"x509|certificate|server gave HTTP response|\btls\b(?! handshake timeout)",
        "Let the container runtime of this node trust the registry: its CA certificate, or plain HTTP in certs.d.",
    ),
    (
        PULLS,
        r"not found|(manifest|name|repository) unknown|no such image|does not exist|\b404\b",
        f"Correct the image's name, tag or digest: {_IMAGE}.",
    ),
    (
        PULLS,
        r"no such host|lookup|refused|no route|timeout|timed out|deadline exceeded|unreachable|\bEOF\b|reset by peer|"
        r"proxyconnect|\b(429|50[0-9])\b",
        f"Make the registry answer this node (name, route, proxy), or correct {INPUT}registry.",
    ),
)
_UNKNOWN_STEP = f"Check {INPUT}registry, the image's tag or digest, and {_SECRET}."
_BACK_OFF = re.compile(r'Back-off pulling image "?([^\s"]*)"?(?:: ErrImagePull)?:?\s*')
# What the runtime repeats of the image, which is named already.
_AROUND = re.compile(
    r"rpc error: code = \w+ desc = |(?:failed to pull and unpack image|failed to resolve (?:reference|image)|"
    r'Error response from daemon|Failed to pull image)(?: "[^"]*")?: '
)
_ADDRESS = re.compile(r'https?://[^\s"]+')
# Events that only say that there is a cause.
_EMPTY = re.compile(r"Error: (ErrImagePull|ImagePullBackOff)\s*\Z")
_MOST_WORDS = 350


def pull_problem(container: Data, events: t.Iterable[Data]) -> tuple[str, str, str]:
    """(reason, detail, next step) of a container that waits for its image.

    `events` are the warnings about its pod, newest first. Where the container's status says only that the kubelet waits
    before it tries again, one of them has the cause.
    """
    waiting = container["state"]["waiting"]
    reason, said = line(waiting["reason"], 60), str(waiting.get("message") or "")
    waits = _BACK_OFF.match(said)
    image = line(container.get("image") or (waits[1] if waits else ""), 300)
    why = said[waits.end() :] if waits else said
    why = _AROUND.sub("", why or next((one for one in map(_cause, events) if one), ""))
    # The name of an image, also in an address, may look like a cause: registry.example/denied:404.
    words = _ADDRESS.sub("", why.replace(image, "") if image else why)
    fitting = (step for reasons, form, step in _STEPS if reason in reasons and re.search(form, words, re.I))
    told = both_ends(why, _MOST_WORDS).rstrip(".")
    of_image = " for image %s" % image if image else ""
    detail = "container %s: %s%s%s" % (container.get("name", ""), reason, of_image, ": " + told if told else "")
    return reason, detail, next(fitting, _UNKNOWN_STEP)


def _cause(event: Data) -> str:
    """Why an image was not pulled, by an event; empty when it does not say."""
    text = str(event.get("message") or "")
    return "" if event.get("reason") != "Failed" or _EMPTY.match(text) else text
