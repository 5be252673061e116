# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of a Kubernetes API: what is asked again and when, and what its errors say to do."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import api
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError, Cluster, explain
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.kubeconfig import Access
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.opened import list_nodes
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]


def client(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, Data, Data]) -> tuple[Cluster, list[str], list[int]]:
    """(client, addresses asked, pauses) of a server that gives these (status, headers, body), one after the other."""
    pytest.importorskip("urllib3")
    asked: list[str] = []
    pauses: list[int] = []
    left = list(answers)

    def request(method: str, url: str, **more: Any) -> Any:
        asked.append(url.partition("?")[2])
        status, headers, body = left.pop(0)
        return SimpleNamespace(status=status, headers=headers, data=json.dumps(body).encode())

    monkeypatch.setattr(api.time, "sleep", pauses.append)
    cluster = object.__new__(Cluster)
    cluster.__dict__.update(
        _access=Access("https://h", SimpleNamespace(request=request), str),
        _accepted=False,
        _timeout=1.0,
        requests=0,
        warnings=[],
    )
    return cluster, asked, pauses


@pytest.mark.parametrize(
    "told, pause",
    [({}, 1), ({"Retry-After": "7"}, 7), ({"Retry-After": "600"}, 30), ({"Retry-After": "Sat, 1 Jan 2028"}, 1)],
)
def test_a_busy_server_says_when_to_ask_again(monkeypatch: pytest.MonkeyPatch, told: Data, pause: int) -> None:
    cluster, asked, pauses = client(monkeypatch, (429, told, {}), (200, {}, {"a": 1}))
    assert (cluster.request("GET", "/x", "Read")[1], len(asked), pauses) == ({"a": 1}, 2, [pause])


def test_a_request_can_be_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked, pauses = client(monkeypatch, (429, {}, {}), (200, {}, {"a": 1}))
    with pytest.raises(ApiError) as caught:
        cluster.request("POST", "/x", "Evict", tries=1)
    assert (caught.value.status, len(asked), pauses) == (429, 1, [])


def test_python_base_75_credentials_that_expire_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes-client/python-base 75: the token of a plugin ends, and the plugin does not say when."""
    refused, good = (401, {}, {"message": "Unauthorized"}), (200, {}, {"a": 1})
    cluster, asked, pauses = client(monkeypatch, good, refused, good, refused, refused)
    tokens = ["one", "two", "three"]
    sent: list[str] = []
    given = cluster._access.pool.request

    def request(method: str, url: str, **more: Any) -> Any:
        sent.append(more["headers"]["Authorization"])
        return given(method, url, **more)

    def opened() -> Access:
        token = tokens.pop(0)
        return Access("https://h", SimpleNamespace(request=request), lambda: token)

    cluster.__dict__.update(_open=opened, _access=opened())
    assert [cluster.request("GET", "/x", "Read")[1] for _turn in range(2)] == [{"a": 1}] * 2
    assert (sent, pauses) == (["one", "one", "two"], [])
    # Those that are refused as well are an error.
    with pytest.raises(ApiError, match="rejects the credentials"):
        cluster.request("GET", "/x", "Read")
    assert sent[3:] == ["two", "three"] and len(asked) == 5


def test_credentials_that_were_never_taken_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked, _pauses = client(monkeypatch, (401, {}, {"message": "Unauthorized"}))
    with pytest.raises(ApiError, match="rejects the credentials"):
        cluster.request("GET", "/x", "Read")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"items": 1},
        {"items": "ab"},
        {"items": [1]},
        {"items": [None]},
        {"items": [{}]},
        {"items": [{"metadata": {"name": 1}}]},
        {"items": [{"metadata": []}]},
        {"metadata": "text"},
    ],
)
def test_a_list_that_is_none_is_no_list(monkeypatch: pytest.MonkeyPatch, body: Data) -> None:
    cluster, _asked, _pauses = client(monkeypatch, (200, {}, body))
    with pytest.raises(NpuError, match="List Node objects: the answer is not that of an API server.* Next: "):
        cluster.list("v1", "Node")


@pytest.mark.parametrize("body", [{}, {"metadata": 1}, {"metadata": {"name": None}}])
def test_an_object_that_is_none_is_no_object(monkeypatch: pytest.MonkeyPatch, body: Data) -> None:
    cluster, _asked, _pauses = client(monkeypatch, (200, {}, body), (200, {}, body))
    with pytest.raises(NpuError, match="the answer is not that of an API server"):
        cluster.get("v1", "Node", "n")
    with pytest.raises(NpuError, match="the answer is not that of an API server"):
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, False, False)


QUOTA = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": (
        'Operation cannot be fulfilled on resourcequotas "team-quota": the object has been modified; please apply '
        "your changes to the latest version and try again"
    ),
    "reason": "Conflict",
    "details": {"name": "team-quota", "kind": "resourcequotas"},
    "code": 409,
}
ACCOUNT: Data = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rbln-device-plugin"}}


def test_k17_quota_conflict_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked, pauses = client(monkeypatch, (409, {}, QUOTA), (201, {}, ACCOUNT))
    assert cluster.apply(ACCOUNT, False, False) == (True, ACCOUNT)
    assert (len(asked), pauses) == (2, [1])
    # The Lease is made in the same namespace.
    cluster, _asked, pauses = client(monkeypatch, (409, {}, QUOTA), (201, {}, {"a": 1}))
    lease = {"metadata": {"name": "l", "resourceVersion": "1"}}
    assert cluster.request("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases", "Create", {}, lease)[0] == 201
    cluster, asked, _pauses = client(monkeypatch, *[(409, {}, QUOTA)] * 4)
    with pytest.raises(ApiError, match="other clients write at the same time: .*resourcequotas.* Next: Run again"):
        cluster.apply(ACCOUNT, False, False)
    assert len(asked) == 4


TOLD_AT_ONCE: list[tuple[str, str, Data, Data]] = [
    # Other managers own fields.
    (
        "PATCH",
        "/api/v1/namespaces/n/serviceaccounts/a",
        ACCOUNT,
        {"message": "Apply failed with 1 conflict", "details": {"causes": [{"field": ".a", "message": "b"}]}},
    ),
    # Another run was faster: the version that was read is no longer the last.
    (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
        {"metadata": {"name": "l", "resourceVersion": "1"}},
        {
            "message": "Operation cannot be fulfilled on leases: please apply your changes to the latest version",
            "details": {"kind": "leases"},
        },
    ),
    # A node of the same name is another one.
    (
        "PATCH",
        "/api/v1/nodes/n",
        {"metadata": {"name": "n", "uid": "1"}},
        {"message": "uid mismatch: the provided object specified uid 1", "details": {"kind": "nodes"}},
    ),
    (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/n/leases",
        {"metadata": {"name": "l"}},
        {"message": 'leases "l" already exists', "reason": "AlreadyExists", "details": {"kind": "leases"}},
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "answer"), TOLD_AT_ONCE)
def test_k17_a_conflict_that_stays_is_told_at_once(
    method: str, path: str, body: Data, answer: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, asked, pauses = client(monkeypatch, (409, {}, {"reason": "Conflict", **answer}))
    with pytest.raises(ApiError):
        cluster.request(method, path, "Write", {}, body)
    assert (len(asked), pauses) == (1, [])


def test_a_warning_of_the_server_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"Warning": '299 - "v1beta1 is deprecated, \\"use\\" v1", 299 k "two"'}
    cluster, _asked, _pauses = client(monkeypatch, (200, said, {}), (200, said, {}), (200, {"Warning": "odd"}, {}))
    for _time in range(3):
        cluster.request("GET", "/x", "Read")
    assert cluster.warnings == [
        'The API server warns: v1beta1 is deprecated, "use" v1',
        "The API server warns: two",
    ]


@pytest.mark.parametrize("details", [1, [], {"causes": 1}, {"causes": [1]}])
def test_a_conflict_without_causes_is_an_error_all_the_same(monkeypatch: pytest.MonkeyPatch, details: Any) -> None:
    cluster, _asked, _pauses = client(monkeypatch, (409, {}, {"message": "no", "details": details}))
    with pytest.raises(ApiError, match="HTTP 409: no"):
        cluster.get("v1", "Node", "n")


@pytest.mark.parametrize("status, body", [(302, {}), (200, "<html>login</html>")])
def test_the_login_page_of_a_gateway_is_no_empty_list(monkeypatch: pytest.MonkeyPatch, status: int, body: Any) -> None:
    cluster, _asked, _pauses = client(monkeypatch, (status, {}, body))
    with pytest.raises(
        ApiError,
        match=(
            "List Node objects: the answer is not from an API server: HTTP %d: .* Next: Correct the "
            "server in the kubeconfig"
        )
        % status,
    ):
        cluster.list("v1", "Node")


def test_a_list_whose_next_page_is_too_old_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "c"}}
    whole = {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}
    cluster, asked, _pauses = client(monkeypatch, (200, {}, first), (410, {}, {}), (200, {}, whole))
    assert [item["metadata"]["name"] for item in cluster.list("v1", "Node")] == ["a", "b"]
    assert asked == ["limit=500", "limit=500&continue=c", ""]
    # What is made of each object is of one list too: a node of the first page may be gone.
    gone = {"items": [{"metadata": {"name": "gone"}, "status": {}}], "metadata": {"continue": "c"}}
    for look in (list_nodes, lambda cluster: RunStore(cluster, inputs()).look(True).nodes):
        cluster, asked, _pauses = client(monkeypatch, (200, {}, gone), (410, {}, {}), (200, {}, whole), (404, {}, {}))
        names = [one["metadata"]["name"] if isinstance(one, dict) else one.name for one in look(cluster)]
        assert names == ["a", "b"]
    cluster, asked, _pauses = client(monkeypatch, (410, {}, {}), (410, {}, {}))
    with pytest.raises(ApiError):
        cluster.list("v1", "Node")


def test_of_each_page_only_what_is_wanted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [{"items": [{"metadata": {"name": name}} for name in names]} for names in ("ab", "bc")]
    cluster, asked, _pauses = client(monkeypatch, (200, {}, {**pages[0], "metadata": {"continue": "c"}}),
                                     (200, {}, pages[1]))  # fmt: skip
    kept = cluster.list("v1", "Pod", fields="spec.nodeName!=", only=lambda item: item["metadata"]["name"] == "b")
    assert [item["metadata"]["name"] for item in kept] == ["b", "b"]
    assert asked[0] == "fieldSelector=spec.nodeName%21%3D&limit=500"


def test_of_metadata_alone_no_more_is_asked_for_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"metadata": {"name": "a", "uid": "u", "managedFields": [1]}, "spec": {}, "status": {}}
    more = {"items": [pod], "metadata": {"continue": "c"}}
    last = {
        "kind": "PartialObjectMetadataList",
        "items": [{"metadata": {"name": "b"}, "kind": "PartialObjectMetadata"}],
    }
    cluster, asked, _pauses = client(monkeypatch, (200, {}, more), (200, {}, last))
    given = cluster._access.pool.request
    sent: list[str] = []

    def request(method: str, url: str, **words: Any) -> Any:
        sent.append(words["headers"]["Accept"])
        return given(method, url, **words)

    cluster._access.pool.request = request
    assert cluster.list("v1", "Pod", "n", "l", metadata=True) == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}},
    ]
    wanted = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    assert (sent, asked) == ([wanted] * 2, ["labelSelector=l&limit=500", "labelSelector=l&limit=500&continue=c"])


@pytest.mark.parametrize(
    "status, text, words",
    [
        (
            422,
            'RuntimeClass "rbln" is invalid: handler: Invalid value: "b": field is immutable',
            ["this field is immutable", "handler", "Delete the object"],
        ),
        (422, "roleRef: Invalid value: cannot change roleRef", ["this field is immutable", "Delete the object"]),
        (422, "spec.clusterIPs[0]: Invalid value: []string(nil): may not change once set", ["this field is immutable"]),
        (
            403,
            'nodes is forbidden: User "system:anonymous" cannot list resource "nodes"',
            ["had no credentials", "the user of the kubeconfig"],
        ),
        (
            403,
            "unable to create new content in namespace a because it is being terminated",
            ["Wait until the namespace is gone"],
        ),
        (
            422,
            'DaemonSet.apps "a" is invalid: spec.template.spec.containers[0].securityContext.privileged: Forbidden: '
            "disallowed by cluster policy",
            ["--allow-privileged"],
        ),
        (
            422,
            'spec.template.spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`',
            ["is invalid", "Correct the input"],
        ),
    ],
)
def test_errors_that_need_another_step_say_so(status: int, text: str, words: list[str]) -> None:
    told = " Next: ".join(explain(status, "Apply RuntimeClass rbln", {"message": text}))
    assert [word for word in words if word not in told] == []


def test_a_wait_is_told_every_ten_seconds_and_another_wait_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, now, told = client(monkeypatch)[0], [1000.0], []
    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])
    cluster.tell, cluster._waited_at, cluster._told_at = told.append, 0.0, 0.0
    for second in range(25):
        now[0] = 1000.0 + second
        cluster.waits("first, %d s" % second)
    assert told == ["first, 10 s", "first, 20 s"]
    now[0] += 60.0
    for second in range(12):
        now[0] += 1.0
        cluster.waits("second, %d s" % second)
    assert told[2:] == ["second, 10 s"]


def test_a_wait_is_told_also_where_a_slow_server_takes_longer_than_that_for_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, now, told = client(monkeypatch)[0], [1000.0], []
    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])
    cluster.tell, cluster._waited_at, cluster._told_at = told.append, 0.0, 0.0
    for _look in range(3):
        cluster.waits("at %d s" % (now[0] - 1000))
        now[0] += 13.0
    assert told == ["at 13 s", "at 26 s"]
