# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an API server serves: asked of a live one, or taken from the inputs for manifests."""

from __future__ import annotations

import re

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.names import OPERANDS, OPERATOR
from .api import KINDS, ApiError, Cluster

# Groups whose kinds need a look of their own, since the group can be there without a kind.
CUSTOM_GROUPS = ("monitoring.coreos.com", "nfd.k8s-sigs.io", OPERATOR.group)
POLICY = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
POLICY_BINDING = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")
# First release of Kubernetes that serves a version of a group, or a kind, where the oldest release we support does not.
GROUP_SINCE = {("resource.k8s.io", "v1"): (1, 34), ("admissionregistration.k8s.io", "v1"): (1, 16)}
KIND_SINCE = {POLICY: (1, 30), POLICY_BINDING: (1, 30)}
_VERSION = re.compile(r"^v?([0-9]+)\.([0-9]+)(?:[.+-].*)?$")


def group_of(api_version: str) -> str:
    """The API group of an apiVersion; empty for the core group."""
    return api_version.rpartition("/")[0]


_NAMED = {group_of(api_version) for api_version, _kind in KINDS}
_ALWAYS = _NAMED - set(CUSTOM_GROUPS) - {group for group, _version in GROUP_SINCE}


def serves(capabilities: Capabilities, api_version: str, kind: str) -> bool:
    """Whether a cluster serves a kind. What every supported release of Kubernetes has is always served."""
    group, _slash, version = api_version.rpartition("/")
    if group in _ALWAYS:
        return True
    if group in CUSTOM_GROUPS or (api_version, kind) in KIND_SINCE:
        return (api_version, kind) in capabilities.kinds
    return version in capabilities.groups.get(group, ())


def declared(inputs: Inputs) -> Capabilities:
    """Capabilities by the inputs: those of a Kubernetes version, and of each further group all kinds that we know."""
    given = inputs["capabilities"]
    match = _VERSION.match(given["kubernetes"])
    if match is None:
        raise NpuError(
            f"{OPERANDS}capabilities.kubernetes is {given['kubernetes']!r}, which is not a version.",
            'Write for example "1.34", as text.',
        )
    release = (int(match.group(1)), int(match.group(2)))
    groups: dict[str, tuple[str, ...]] = {
        group: (version,) for (group, version), since in GROUP_SINCE.items() if release >= since
    }
    kinds = {key for key, since in KIND_SINCE.items() if release >= since}
    for group in given["groups"]:
        known = [key for key in KINDS if group_of(key[0]) == group]
        groups[group] = tuple(dict.fromkeys(api_version.rpartition("/")[2] for api_version, _kind in known)) or ("v1",)
        kinds.update(known)
    return Capabilities(groups, frozenset(kinds))


def discover(cluster: Cluster) -> Capabilities:
    """The capabilities of a live cluster: one request, and one for each version of a group whose kinds need a look.

    A version that we have no right to read counts as having the kinds we know, so that existing objects of ours are
    still managed.
    """
    listed = cluster.request("GET", "/apis", "List the API groups")[1].get("groups") or []
    groups = {item["name"]: tuple(entry["version"] for entry in item.get("versions") or []) for item in listed}
    # Servers with resource.k8s.io/v1 are all new enough to serve policies; others are asked.
    kinds: set[tuple[str, str]] = set()
    if "v1" in groups.get("resource.k8s.io", ()):
        kinds = set(KIND_SINCE)
    elif "v1" in groups.get(group_of(POLICY[0]), ()):
        kinds = _kinds_of(cluster, POLICY[0])
    for api_version in dict.fromkeys(
        api_version for api_version, _kind in KINDS if group_of(api_version) in CUSTOM_GROUPS
    ):
        group, _slash, version = api_version.rpartition("/")
        if version in groups.get(group, ()):
            kinds |= _kinds_of(cluster, api_version)
    return Capabilities(groups, frozenset(kinds))


def _kinds_of(cluster: Cluster, api_version: str) -> set[tuple[str, str]]:
    known = {key for key in KINDS if key[0] == api_version}
    try:
        answer = cluster.request("GET", "/apis/" + api_version, "List the kinds of %s" % api_version)[1]
    except ApiError as exc:
        if exc.status == 403:
            return known
        if exc.status == 404:
            return set()
        raise
    return known & {(api_version, item.get("kind", "")) for item in answer.get("resources") or []}
