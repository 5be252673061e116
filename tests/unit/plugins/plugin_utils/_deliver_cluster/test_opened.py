# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster opened before a host is changed: rights that the account lacks, and hosts that are no node."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.opened import (
    named_member,
    nodes_of,
    open_cluster,
    strangers,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


class Server(Store):
    """Its account has `rules` in the namespace, and all but `denied` (VERB RESOURCE, with wildcards) when asked."""

    def __init__(self, *nodes: Data, rules: list[Data] | None = None, denied: str = "", status: int = 0) -> None:
        super().__init__(*nodes)
        self.rules, self.denied, self.status = rules or [], denied, status
        self.asked: list[str] = []

    def request(
        self, method: str, path: str, what: str, query: Data | None = None, body: Any = None, kind: str = ""
    ) -> tuple[int, Data]:
        if "/authorization.k8s.io/" not in path:
            return super().request(method, path, what, query, body, kind)
        if self.status:
            raise ApiError(self.status, what, {"message": "no"})
        if body["kind"] == "SelfSubjectRulesReview":
            assert body["spec"] == {"namespace": "rbln-system"}
            return 201, {"status": {"resourceRules": self.rules, "incomplete": False}}
        right = body["spec"]["resourceAttributes"]
        self.asked.append("%s %s" % (right["verb"], right["resource"]))
        return 201, {"status": {"allowed": not fnmatch.fnmatch(self.asked[-1], self.denied)}}


def opened(server: Server, **given: Any) -> None:
    open_cluster(server, inputs(**given), "/k")  # type: ignore[arg-type]


def test_an_account_with_all_rights_passes_and_is_asked_little() -> None:
    server = Server(rules=[EVERYTHING])
    opened(server)
    # Rules of a namespace say nothing about what is outside of it.
    assert sorted(server.asked) == ["list nodes", "patch nodes"]


def test_only_a_run_that_may_roll_back_needs_to_delete_pods() -> None:
    opened(Server(denied="delete pods"))
    with pytest.raises(NpuError, match="lacks rights: delete pods in rbln-system"):
        opened(Server(denied="delete pods"), rollback=True)


@pytest.mark.parametrize(
    "denied, told",
    [
        ("list nodes", "list nodes"),
        ("patch daemonsets", "patch daemonsets.apps in rbln-system"),
        ("create leases", "create leases.coordination.k8s.io in rbln-system"),
        ("patch *", "patch nodes; patch networkpolicies.networking.k8s.io in rbln-system; patch serviceaccounts"),
    ],
)
def test_rights_that_are_missing_are_named_together(denied: str, told: str) -> None:
    with pytest.raises(NpuError, match="^The account that /k names lacks rights: ") as caught:
        opened(Server(denied=denied))
    assert told in str(caught.value) and " Next: Give it these rights" in str(caught.value)
    rules = [{**EVERYTHING, "resourceNames": ["one"]}]
    with pytest.raises(NpuError, match="lacks rights"):
        opened(Server(rules=rules, denied=denied))


def test_rights_that_no_object_needs_are_not_asked_for() -> None:
    server = Server(denied="*secrets")
    opened(server)
    with pytest.raises(NpuError, match="list, create, patch secrets in rbln-system"):
        opened(server, pull_secret_content={"auths": {"r": {"auth": "eDp5"}}})
    server = Server(denied="patch *")
    opened(server, coexistence="coexist")
    with pytest.raises(NpuError, match="patch nodes"):
        opened(server)
    with pytest.raises(NpuError) as caught:
        opened(server, node_labels=False)
    assert "patch nodes" not in str(caught.value)


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_server_that_does_not_tell_is_passed(status: int) -> None:
    opened(Server(status=status))


def test_credentials_that_are_refused_are_said() -> None:
    with pytest.raises(NpuError, match="the API server rejects the credentials: no. Next: Renew the kubeconfig"):
        opened(Server(status=401))


def node(name: str, number: int) -> Data:
    uuid = "aaaaaaaa-0000-4000-8000-%012d" % number
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"nodeInfo": {"systemUUID": uuid, "machineID": uuid.replace("-", "")}},
    }


def host(name: str, number: int) -> Any:
    uuid = "aaaaaaaa-0000-4000-8000-%012d" % number
    identity = {"system_uuid": uuid, "machine_id": uuid.replace("-", ""), "node_name": name}
    return named_member({"host": name, "node_name": "", "address": ""}, {"identity": identity})


def test_a_host_that_is_no_node_is_named_with_the_reason_and_others_are_not() -> None:
    server = Server(node("a", 1), node("b", 2))
    good = nodes_of(server, [host("a", 1), host("b", 2)], [], False)  # type: ignore[arg-type]
    assert strangers(good, "/k") == [] and [one["metadata"]["name"] for one, _error in good.values()] == ["a", "b"]
    found = nodes_of(server, [host("a", 1), host("x", 9)], [], False)  # type: ignore[arg-type]
    assert found["x"][0] == {} and found["a"][0]["metadata"]["name"] == "a"
    ((error, hosts),) = strangers(found, "/k")
    assert hosts == ["x"] and error.message.startswith("x is not a node of the cluster: no node has its system UUID")
    assert error.next_step.startswith("Join the host to the cluster, or check rbln_kubeconfig")


def test_many_hosts_that_are_no_nodes_are_one_message() -> None:
    members = [host("x%d" % number, 100 + number) for number in range(8)]
    found = nodes_of(Server(node("a", 1)), members, [], False)  # type: ignore[arg-type]
    ((error, hosts),) = strangers(found, "/k")
    assert len(hosts) == 8 and str(error).startswith(
        "8 hosts have no node of their own in the cluster /k: x0, x1, x2, x3, x4 and 3 more. The first: x0 is not "
    )
    assert str(error).count(" Next: ") == 1
