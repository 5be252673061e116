# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the facts say about a host's NPUs, as labels of its node, and as a feature file of Node Feature Discovery."""

from __future__ import annotations

import time
import typing as t

from .._base.regex import regex
from .._base.vendor import VendorProfile
from .._base.versions import release_numbers

_INVALID = regex(r"[^A-Za-z0-9_.-]")


def label_value(value: t.Any) -> str:
    """A legal label value, as Node Feature Discovery makes it.

    Each other character becomes `_`; at most 63, with a letter or digit at both ends.
    """
    return _INVALID.sub("_", str(value))[:63].strip("_.-")


def npu_labels(profile: VendorProfile, facts: t.Mapping[str, t.Any]) -> dict[str, str] | None:
    """npu.present, count, product, family and driver-version.*; None when it could not be seen whether there are NPUs.

    The names are those of the vendor's feature discovery. Count is of devices; what is not known is left out.
    """
    npus = facts.get("npus") or []
    pci = (facts.get("probes") or {}).get("pci") or {}
    if not npus and pci.get("state", "value") != "value":
        return None
    labels = {profile.resource_name + ".present": "true" if npus else "false"}
    if not npus:
        return labels
    counts = facts.get("counts") or {}
    labels[profile.resource_name + ".count"] = str(counts.get("devices") or counts.get("functions") or len(npus))
    for name in ("product", "family"):
        value = next((npu[name] for npu in npus if npu.get(name)), None)
        if value:
            labels["%s.%s" % (profile.resource_name, name)] = label_value(value)
    version = (facts.get("driver") or {}).get("version_loaded")
    if version:
        prefix = profile.label_prefix + "/driver-version."
        labels[prefix + "full"] = label_value(version)
        labels.update(
            {prefix + name: str(number) for name, number in zip(("major", "minor", "patch"), release_numbers(version))}
        )
    return labels


def feature_file(labels: t.Mapping[str, str], expires: float | None = None) -> list[str]:
    """Lines of a feature file; `expires` in seconds since 1970 is when the labels are dropped, None for never."""
    head = [] if expires is None else ["# +expiry-time=" + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires))]
    return head + ["%s=%s" % item for item in sorted(labels.items())]
