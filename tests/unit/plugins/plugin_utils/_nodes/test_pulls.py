# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an image was not pulled: what kubelets with containerd, Docker and CRI-O say of it, by their releases."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import explain_pod, problem_text

Data = dict[str, t.Any]
IMAGE = "registry.example:5000/npu/plugin:1"
RESOLVE = 'failed to pull and unpack image "%s": failed to resolve reference "%s": ' % (IMAGE, IMAGE)
RPC = "rpc error: code = Unknown desc = " + RESOLVE
HEAD = 'failed to do request: Head "https://registry.example:5000/v2/npu/plugin/manifests/1": '
NAME, SECRET, ANSWER, TRUST = "name, tag or digest", "pull secret", "Make the registry answer", "CA certificate"
# (what the kubelet says, what must be told of it, a part of the next step)
SAID: dict[str, tuple[str, str, str]] = {
    "containerd, no such tag": (RPC + IMAGE + ": not found", "not found", NAME),
    "docker, no such tag": (
        "Error response from daemon: manifest for %s not found: manifest unknown: manifest unknown" % IMAGE,
        "manifest unknown",
        NAME,
    ),
    "cri-o, no such name": (
        "reading manifest 1 in registry.example:5000/npu/plugin: name unknown: repository not known to registry",
        "name unknown",
        NAME,
    ),
    "containerd, no login": (
        RPC + "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        "401 Unauthorized",
        SECRET,
    ),
    "containerd, wrong login": (RPC + "unexpected status from HEAD request: 403 Forbidden", "403 Forbidden", SECRET),
    "docker, hidden name": (
        "Error response from daemon: pull access denied for npu/plugin, repository does not exist or may require "
        "'docker login': denied: requested access to the resource is denied",
        "pull access denied",
        SECRET,
    ),
    "no such host": (
        RPC + HEAD + "dial tcp: lookup registry.example on 10.0.0.1:53: no such host",
        "no such host",
        ANSWER,
    ),
    "refused": (RPC + HEAD + "dial tcp 10.0.0.9:5000: connect: connection refused", "connection refused", ANSWER),
    "no answer": (RPC + HEAD + "dial tcp 10.0.0.9:5000: i/o timeout", "i/o timeout", ANSWER),
    "no handshake": (RPC + HEAD + "net/http: TLS handshake timeout", "TLS handshake timeout", ANSWER),
    "proxy": (
        RPC + HEAD + "proxyconnect tcp: dial tcp 10.0.0.8:3128: connect: no route to host",
        "proxyconnect",
        ANSWER,
    ),
    "slow": (RPC + HEAD + "net/http: TLS handshake timeout", "TLS handshake timeout", ANSWER),
    "busy": (RPC + "unexpected status from HEAD request: 503 Service Unavailable", "503", ANSWER),
    "unknown authority": (
        RPC + HEAD + "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "unknown authority",
        TRUST,
    ),
    "plain HTTP": (RPC + HEAD + "http: server gave HTTP response to HTTPS client", "gave HTTP response", TRUST),
    "architecture": (RPC + "no match for platform in manifest: not found", "no match for platform", "architecture"),
    "new words": (RPC + "the moon is full", "the moon is full", "tag or digest"),
}


def pod(reason: str, message: str, image: str = IMAGE) -> Data:
    waiting = {"name": "device-plugin", "image": image, "state": {"waiting": {"reason": reason, "message": message}}}
    return {
        "metadata": {"name": "p1"},
        "spec": {"nodeName": "npu-1"},
        "status": {"phase": "Pending", "containerStatuses": [waiting]},
    }


def event(message: str, when: str, reason: str = "Failed") -> Data:
    return {
        "metadata": {"name": "e"}, "involvedObject": {"name": "p1"}, "type": "Warning", "reason": reason,
        "message": message, "lastTimestamp": "2026-01-01T00:00:%sZ" % when,
    }  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_the_message_names_image_node_reason_and_what_to_do(case: str) -> None:
    said, told, step = SAID[case]
    forms = {
        "first try": (pod("ErrImagePull", said), []),
        "later, since Kubernetes 1.31": (
            pod("ImagePullBackOff", 'Back-off pulling image "%s": ErrImagePull: %s' % (IMAGE, said)),
            [event("Error: ImagePullBackOff", "09")],
        ),
        "later, before": (
            pod("ImagePullBackOff", 'Back-off pulling image "%s"' % IMAGE),
            [
                event('Failed to pull image "%s": %s' % (IMAGE, said), "05"),
                event("Error: ErrImagePull", "05"),
                event("Error: ImagePullBackOff", "09"),
                event('Failed to pull image "%s": an older cause' % IMAGE, "01"),
            ],
        ),
    }
    for form, (found, events) in forms.items():
        problem = explain_pod(found, events)
        text = problem_text(problem, "rbln-device-plugin")
        assert problem["reason"] == found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
        wanted = ("on node npu-1", "container device-plugin", "image " + IMAGE, told, " Next: ")
        assert [word for word in wanted if word not in text] == [], (form, text)
        assert step in problem["next_step"], (form, problem)
        assert text.count(IMAGE) <= 2 and "rpc error" not in text and "last event" not in text and len(text) < 700


@pytest.mark.parametrize(
    ("reason", "message", "step"),
    [
        ("InvalidImageName", 'Failed to apply default image tag "a//b": bad name', "Correct the image's name"),
        ("ErrImageNeverPull", 'Container image "%s" is not present with policy Never' % IMAGE, "Load the image"),
        ("ImageInspectError", "Failed to inspect image: timed out", "Make the registry answer"),
    ],
)  # fmt: skip
def test_a_name_that_is_none_and_an_image_that_is_never_pulled(reason: str, message: str, step: str) -> None:
    problem = explain_pod(pod(reason, message), [])
    assert step in problem["next_step"] and IMAGE in problem["detail"] and message in problem["detail"]


def test_the_name_of_an_image_is_no_cause() -> None:
    image = "registry.example/denied-x509:404"
    ask = 'failed to do request: Head "https://registry.example/v2/denied-x509/manifests/404": '
    said = 'failed to resolve reference "%s": %sdial tcp 10.0.0.9:443: connect: connection refused' % (image, ask)
    assert ANSWER in explain_pod(pod("ErrImagePull", said, image), [])["next_step"]
    # Nothing is known but that it waits.
    found = explain_pod(pod("ImagePullBackOff", 'Back-off pulling image "%s"' % IMAGE, ""), [])
    assert found["detail"] == "container device-plugin: ImagePullBackOff for image " + IMAGE
    assert "tag or digest" in found["next_step"] and "pull secret" in found["next_step"]


def test_an_image_of_several_pods_is_judged_by_the_events_of_its_own() -> None:
    other = {**event('Failed to pull image "x": 401 Unauthorized', "59"), "involvedObject": {"name": "p2"}}
    found = explain_pod(pod("ImagePullBackOff", 'Back-off pulling image "%s"' % IMAGE), [other])
    assert "401" not in found["detail"]
