# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the account of a kubeconfig may do, asked of the API server before anything is written."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .api import KINDS, ApiError, Cluster
from .capabilities import group_of

_REVIEWS = "/apis/authorization.k8s.io/v1/"
# A server, or a gateway before it, that does not tell.
_UNTOLD = (403, 404, 405)


class Right(t.NamedTuple):
    """One verb on one resource, or on a part of it as pods/eviction.

    `namespace` is empty for a resource outside of namespaces, and for all namespaces.
    """

    verb: str
    group: str
    resource: str
    namespace: str

    @property
    def place(self) -> str:
        """The resource as kubectl names it, and its namespace."""
        named = ".".join(part for part in (self.resource, self.group) if part)
        return "%s in %s" % (named, self.namespace) if self.namespace else named


def rights_for(kinds: t.Iterable[tuple[str, str]], verbs: t.Sequence[str], namespace: str) -> list[Right]:
    """The rights to these verbs on each kind, (apiVersion, kind) of KINDS."""
    found = []
    for api_version, kind in dict.fromkeys(kinds):
        _prefix, plural, namespaced = KINDS[(api_version, kind)]
        found += [Right(verb, group_of(api_version), plural, namespace if namespaced else "") for verb in verbs]
    return found


def require_rights(cluster: Cluster, wanted: t.Sequence[Right], namespace: str, where: str) -> None:
    """NpuError that names all rights in `wanted` that the account lacks; also when the server cannot be asked.

    One request lists the rules of the account. Only what they do not show is asked for by itself. A server that tells
    neither is passed: it refuses the request itself.
    """
    rules = _rules(cluster, namespace)
    missing = [right for right in dict.fromkeys(wanted) if not any(_gives(rule, right) for rule in rules)]
    lacking = [right for right in missing if _allowed(cluster, right) is False]
    if lacking:
        verbs: dict[str, list[str]] = {}
        for right in lacking:
            verbs.setdefault(right.place, []).append(right.verb)
        told = "; ".join("%s %s" % (", ".join(words), place) for place, words in verbs.items())
        raise NpuError(
            "The account that %s names lacks rights: %s." % (where, told),
            "Give it these rights; the README of the role for the cluster lists all of them.",
        )


def _rules(cluster: Cluster, namespace: str) -> list[t.Mapping[str, t.Any]]:
    status = _review(cluster, "selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": namespace})
    rules = status.get("resourceRules") or []
    return [rule for rule in rules if isinstance(rule, dict) and not rule.get("resourceNames")]


def _gives(rule: t.Mapping[str, t.Any], right: Right) -> bool:
    asked = (("verbs", right.verb), ("apiGroups", right.group), ("resources", right.resource))
    # The rules of a namespace also hold what its roles give, which is nothing outside of it.
    return bool(right.namespace) and all({"*", word} & set(rule.get(key) or ()) for key, word in asked)


def _allowed(cluster: Cluster, right: Right) -> bool | None:
    resource, _slash, part = right.resource.partition("/")
    given = {**right._asdict(), "resource": resource, "subresource": part}
    attributes = {name: value for name, value in given.items() if value}
    status = _review(cluster, "selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": attributes})
    allowed = status.get("allowed")
    return allowed if isinstance(allowed, bool) else None


def _review(cluster: Cluster, plural: str, kind: str, spec: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The status of a review; empty where the server does not tell."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    try:
        answer = cluster.request("POST", _REVIEWS + plural, "Ask for the rights of the account", None, body)[1]
    except ApiError as exc:
        if exc.status in _UNTOLD:
            return {}
        raise
    status = answer.get("status")
    return status if isinstance(status, dict) else {}
