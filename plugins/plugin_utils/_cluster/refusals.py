# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do when a cluster refuses an object or a pod for another reason than rights or a wrong field."""

from __future__ import annotations

# Words of the API server, in the order in which they are looked for, and the next step.
REFUSALS = (
    (
        ("violates PodSecurity",),
        "Set rbln_operands_pod_security to privileged, or label the namespace pod-security.kubernetes.io/enforce=privileged.",
    ),
    (
        ("security context constraint",),
        "Let the accounts of this namespace use the security context constraint privileged.",
    ),
    (
        ("insufficient quota to match these scopes",),
        "Allow the priority class by a ResourceQuota of the namespace, or set another rbln_operands_priority_class.",
    ),
    (("no PriorityClass with name",), "Make the priority class, or set another rbln_operands_priority_class."),
    (("failed quota",), "Set the resources that the quota asks for: rbln_operands_<component>.resources."),
    (
        ("usage per Container", "usage per Pod", "limit to request ratio"),
        "Set rbln_operands_<component>.resources within the LimitRange of the namespace.",
    ),
    (("exceeded quota",), "Raise the quota of the namespace."),
    (("being terminated",), "Wait until the namespace is gone, then run again."),
    (("failed calling webhook",), "Bring the webhook back, or let it leave this namespace out."),
    (
        ("denied the request", "denied request"),
        "Change what the admission policy asks for, or let it leave this namespace out.",
    ),
)


def refusal_step(text: str) -> str:
    """The next step for the words of a refusal; empty for none of these."""
    return next((step for words, step in REFUSALS if any(word in text for word in words)), "")
