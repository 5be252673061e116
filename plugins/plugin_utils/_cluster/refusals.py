# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do when a cluster refuses an object or a pod for another reason than missing rights or a wrong field."""

from __future__ import annotations

from .._objects.names import OPERANDS

# (words of the refusal, next step)
REFUSALS = (
    (
        ("violates PodSecurity",),
        f"Set {OPERANDS}pod_security to privileged, or label the namespace "
        "pod-security.kubernetes.io/enforce=privileged.",
    ),
    (
        ("disallowed by cluster policy",),
        f"Let the API server allow privileged containers (--allow-privileged), or set {OPERANDS}<component>.privileged "
        "to false where the component works without.",
    ),
    (
        ("security context constraint",),
        "Let the accounts of this namespace use the security context constraint privileged.",
    ),
    (
        ("insufficient quota to match these scopes",),
        f"Allow the priority class by a ResourceQuota of the namespace, or set another {OPERANDS}priority_class.",
    ),
    (("no PriorityClass with name",), f"Create the priority class, or set another {OPERANDS}priority_class."),
    (("failed quota",), f"Set the resources that the quota asks for: {OPERANDS}<component>.resources."),
    (
        ("usage per Container", "usage per Pod", "limit to request ratio"),
        f"Set {OPERANDS}<component>.resources within the LimitRange of the namespace.",
    ),
    (("exceeded quota",), "Raise the quota of the namespace."),
    (("being terminated",), "Wait until the namespace is gone, then run again."),
    (("failed calling webhook",), "Repair the webhook, or exclude this namespace from it."),
    (
        ("denied the request", "denied request"),
        "Change what the admission policy asks for, or exclude this namespace from it.",
    ),
)


def refusal_step(text: str) -> str:
    """The next step for the words of a refusal; empty when they are not known."""
    return next((step for words, step in REFUSALS if any(word in text for word in words)), "")
