# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admission policy that keeps kubelets and others from our labels of nodes, gates included.

Who may set them is a right of RBAC on a resource that does not exist, so that no object names the administrators: a
cluster-admin has every right, and a kubelet has only those of the node authorizer.
"""

from __future__ import annotations

from .._cluster.capabilities import POLICY, POLICY_BINDING, serves
from .._objects import parts
from .._objects.inputs import Inputs
from .._objects.model import Context, Object
from .._objects.names import OPERANDS

NAME = "label-policy"
RESOURCE = "nodelabels"
GROUP = parts.LABEL_PREFIX.rstrip("/")
RBAC = "rbac.authorization.k8s.io"
LABELS = "has({0}.metadata.labels) ? {0}.metadata.labels : {{}}"
SAME = """variables.after.all(key, !key.startsWith('{0}') ||
  (key in variables.before && variables.before[key] == variables.after[key])) &&
variables.before.all(key, !key.startsWith('{0}') || key in variables.after)"""


def objects(ctx: Context) -> list[Object]:
    """The right, who has it by the inputs, the policy and its binding; none where the cluster serves no policies."""
    inputs = ctx.inputs
    own = inputs["label_policy"]
    if not own["enabled"] or not serves(ctx.capabilities, *POLICY):
        return []
    name = parts.object_name(inputs, "node-labels")
    meta = parts.metadata(inputs, NAME, name, namespaced=False)
    made: list[Object] = [
        {
            "apiVersion": RBAC + "/v1",
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": [{"apiGroups": [GROUP], "resources": [RESOURCE], "verbs": ["set"]}],
        }
    ]
    subjects = [
        {"apiGroup": RBAC, "kind": kind, "name": subject}
        for kind, subjects in (("User", own["users"]), ("Group", own["groups"]))
        for subject in subjects
    ]
    if subjects:
        made.append(
            {
                "apiVersion": RBAC + "/v1",
                "kind": "ClusterRoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": subjects,
            }
        )
    return [
        *made,
        {"apiVersion": POLICY[0], "kind": POLICY[1], "metadata": meta, "spec": _spec(name)},
        {
            "apiVersion": POLICY_BINDING[0],
            "kind": POLICY_BINDING[1],
            "metadata": meta,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _spec(name: str) -> Object:
    allowed = "authorizer.group('%s').resource('%s').check('set').allowed()" % (GROUP, RESOURCE)
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    # A patch of the status can change labels, too.
                    "resources": ["nodes", "nodes/status"],
                }
            ]
        },
        "variables": [
            {
                "name": "before",
                "expression": "request.operation == 'UPDATE' && " + LABELS.format("oldObject"),
            },
            {"name": "after", "expression": LABELS.format("object")},
            {"name": "same", "expression": SAME.format(parts.LABEL_PREFIX)},
        ],
        "validations": [
            {
                "expression": "variables.same || " + allowed,
                "message": "Labels %s of nodes are protected: the account needs the ClusterRole %s."
                % (parts.LABEL_PREFIX, name),
                "reason": "Forbidden",
            }
        ],
    }


def notes(ctx: Context) -> list[str]:
    """What was left out, and who may be missing among those with the right."""
    inputs = ctx.inputs
    own = inputs["label_policy"]
    if not own["enabled"]:
        return []
    if not serves(ctx.capabilities, *POLICY):
        return [
            f"{OPERANDS}label_policy is wanted and left out: the cluster does not serve {POLICY[0]} {POLICY[1]}, so "
            "every kubelet may set our labels on its own node. Next: Upgrade Kubernetes to 1.30 or newer; "
            f"for manifests name its version in {OPERANDS}capabilities.kubernetes."
        ]
    if _discovery(inputs) and not own["users"] + own["groups"]:
        return [
            f"{OPERANDS}label_policy names no account, and Node Feature Discovery sets our labels. "
            f"Next: Name the account of its master in {OPERANDS}label_policy.users, such as "
            "system:serviceaccount:node-feature-discovery:nfd-master."
        ]
    return []


def _discovery(inputs: Inputs) -> bool:
    return inputs["node_feature_rule"]["enabled"] or inputs["feature_discovery"]["enabled"]
