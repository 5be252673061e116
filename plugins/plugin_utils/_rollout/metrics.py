# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate of metrics: one query of Prometheus."""

from __future__ import annotations

import http.client
import json
import math
import ssl
import typing as t
import urllib.error
import urllib.parse
import urllib.request

_LONGEST = 4 * 1024 * 1024


def holds(spec: t.Mapping[str, t.Any]) -> bool | None:
    """Whether the query returns samples and none is zero. None when Prometheus does not say."""
    address = spec["url"].rstrip("/") + "/api/v1/query?" + urllib.parse.urlencode({"query": spec["query"]})
    request = urllib.request.Request(address)  # noqa: S310 - judged with the inputs
    if spec.get("token"):
        # Not for the host that a redirect names.
        request.add_unredirected_header("Authorization", "Bearer %s" % spec["token"])
    trust = ssl.create_default_context(cafile=spec.get("ca_cert") or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(request, timeout=spec["timeout"]) as answer:
            data = json.loads(answer.read(_LONGEST))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return judge(data)


def judge(data: t.Any) -> bool | None:
    """What an answer of the query interface says."""
    try:
        kind, result = data["data"]["resultType"], data["data"]["result"]
        samples = [result] if kind == "scalar" else [one["value"] for one in result]
        values = [float(sample[1]) for sample in samples]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    # NaN is no answer that holds.
    return bool(values) and all(value and not math.isnan(value) for value in values)
