# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods, nodes and events say, as the causes that they tell. The look itself is tested on a real API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.causes import cause_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.cluster import Look
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import explain_pod

Data = dict[str, Any]
RESOURCE, NAME = "rebellions.ai/npu", "rbln-device-plugin"
IMAGE = "registry.example.com:5000/rebellions/rbln-k8s-device-plugin@sha256:" + "a" * 64
PULL = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "%s": failed to resolve reference "%s": '
    'failed to do request: Head "https://registry.example.com:5000/v2/rebellions/rbln-k8s-device-plugin/manifests/'
    'sha256:%s": ' % (IMAGE, IMAGE, "a" * 64)
)
LAYER = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "%s": failed to extract layer sha256:%s: mount '
    "callback failed on /var/lib/containerd/tmpmounts/containerd-mount%s: write /var/lib/containerd/tmpmounts/"
    "containerd-mount%s/opt/rebellions/lib/librbln-runtime.so.3.2.2: "
) % (IMAGE, "b" * 64, "1234567890", "1234567890")


def look(**inputs: Any) -> Any:
    given = {"namespace": "rbln-system", "resource_name": RESOURCE, **inputs}
    return Look(SimpleNamespace(), given, SimpleNamespace(members=[]), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (PULL + "dial tcp: lookup registry.example.com on 10.96.0.10:53: no such host", "dns_fails"),
        (PULL + "dial tcp: lookup registry.example.com on 10.96.0.10:53: server misbehaving", "dns_fails"),
        (PULL + "proxyconnect tcp: dial tcp 10.0.0.8:3128: connect: connection refused", "proxy_fails"),
        (LAYER + "no space left on device", "disk_full"),
        (
            PULL + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
            "2019-01-01T00:00:00Z is before 2024-06-07T05:48:45Z",
            "clock_differs",
        ),
        (
            PULL + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
            "2025-06-12T03:05:25Z is after 2025-06-07T05:48:45Z",
            "image_not_pulled",
        ),
        (PULL + "dial tcp 10.0.0.9:5000: i/o timeout", "image_not_pulled"),
    ],
)
def test_the_end_of_a_long_message_tells_the_cause(said: str, cause: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": said}
    pod = {
        "metadata": {"name": NAME + "-x7k2p"},
        "spec": {"nodeName": "npu-node-01.dc1.example.com"},
        "status": {"containerStatuses": [{"name": NAME, "image": IMAGE, "state": {"waiting": waiting}}]},
    }
    one = look()._of_problem(explain_pod(pod, []), NAME, [])
    found = cause_of(one)
    assert found is not None and found.id == cause, one.said
    assert len(one.said) <= 600
