# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster for tests of the cluster side.

Helpers tell what it holds, what a run of the action wrote, and define foreign kinds.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

from tests.integration._act import act, inputs, member
from tests.integration._api_server import ApiServer, Data
from tests.integration._everything import EVERYTHING, FACTS, node
from tests.lab._base import until

HOSTS = {"a": "node-0000", "b": "node-0001"}
SELECTOR = "app.kubernetes.io/managed-by=rebellions-npu"
MONITOR = ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "Namespaced")
RULE = ("nfd.k8s-sigs.io", "NodeFeatureRule", "nodefeaturerules", "Cluster")
OPENSHIFT = ("security.openshift.io", "SecurityContextConstraints", "securitycontextconstraints", "Cluster")
POLICY = ("rebellions.ai", "RBLNClusterPolicy", "rblnclusterpolicies", "Cluster")
DRIVER = ("rebellions.ai", "RBLNDriver", "rblndrivers", "Cluster")
# What Kubernetes makes and changes by itself.
_RESTLESS = (
    "events",
    "leases",
    "endpoints",
    "endpointslices",
    "configmaps/kube-root-ca.crt",
    "apiservices",
    "flowschemas",
    "prioritylevelconfigurations",
)
Written = t.List[t.Tuple[str, str, str]]


class Site:
    """`run` and `absent` act as the role does; `written` is what the API server saw the last of them write."""

    def __init__(self, home: Path, users: t.Sequence[str] = (), more: t.Sequence[str] = ()) -> None:
        self.server = ApiServer(home, users, audited="runner", more=more)
        self.config = home / "runner.kubeconfig"
        self.written: Written = []
        self.requests = 0

    def start(self, nodes: int = 3) -> None:
        self.server.start(self._define)
        items = [node(number, 3) for number in range(nodes)]
        self.server.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def _define(self) -> None:
        self.define(MONITOR, "v1")
        self.define(RULE, "v1alpha1")

    def act(
        self,
        name: str,
        hosts: t.Iterable[str] = tuple(HOSTS),
        check: bool = False,
        user: str = "runner",
        features: t.Mapping[str, str] | None = None,
        **given: t.Any,
    ) -> Data:
        variables = inputs(self.config.with_name(user + ".kubeconfig"), **{"wait": False, "lease_timeout": 5, **given})
        members = [member(variables, host, FACTS, node_name=HOSTS[host]) for host in hosts]
        before = len(self.server.asked())
        more = {"features": features} if features else {}
        result = act(name, variables, check=check, members=members, **more)
        asked = self.server.asked(before)
        self.requests = len(asked)
        self.written = [one for one in asked if one[0] not in ("get", "list", "watch") and "(dry)" not in one[0]]
        return result

    def run(self, hosts: t.Iterable[str] = tuple(HOSTS), **given: t.Any) -> Data:
        """A run that must not fail, with the second act of the role where hosts have removed a file before it."""
        result = self.act("run", hosts, **given)
        if result.get("features"):
            result = self.act("run", hosts, features=dict.fromkeys(result["features"], ""), **given)
        assert not result.get("failed"), result["msg"]
        return result

    def everything(self, **given: t.Any) -> Data:
        return self.run(**{**EVERYTHING, **given})

    def absent(self, **given: t.Any) -> Data:
        result = self.act("absent", **{"state": "absent", "absent_scope": "cluster", **given})
        assert not result.get("failed"), result["msg"]
        return result

    def objects_written(self) -> Written:
        """Without the Lease and the inventory, which every change brings."""
        return sorted(one for one in self.written if one[1] != "leases" and one[2] != "rbln-inventory")

    def define(self, definition: tuple[str, str, str, str], *versions: str) -> None:
        group, kind, plural, scope = definition
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        served = [
            {"name": name, "served": True, "storage": number == 0, "schema": schema}
            for number, name in enumerate(versions)
        ]
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "%s.%s" % (plural, group)},
        }
        self.server.kubectl(
            "apply",
            "-f",
            "-",
            stdin=json.dumps({**crd, "spec": {"group": group, "names": names, "scope": scope, "versions": served}}),
        )
        for version in versions:
            path = "/apis/%s/%s" % (group, version)
            until(20, path, lambda path=path: plural in self.server.kubectl("get", "--raw", path, check=False).stdout)  # type: ignore[misc]

    def undefine(self, definition: tuple[str, str, str, str]) -> None:
        group, _kind, plural, _scope = definition
        self.server.kubectl("delete", "crd", "%s.%s" % (plural, group), "--ignore-not-found")
        until(20, "no " + group, lambda: '"%s"' % group not in self.server.kubectl("get", "--raw", "/apis").stdout)

    def create(self, item: Data) -> None:
        self.server.kubectl("create", "-f", "-", stdin=json.dumps(item))

    def names(self, *selector: str) -> set[str]:
        """plural/namespace/name of everything in the cluster that can be listed."""
        listed = self.server.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
        kinds = [name for name in listed if name.partition(".")[0] not in _RESTLESS]
        rows = self.server.kubectl("get", ",".join(kinds), "-A", "--ignore-not-found", "-o", "json", *selector).stdout
        found = set()
        for item in json.loads(rows or "{}").get("items", []):
            meta = item["metadata"]
            found.add("%s %s/%s" % (item["kind"], meta.get("namespace", ""), meta["name"]))
        return {name for name in found if not name.endswith("/kube-root-ca.crt") and not name.startswith("Pod ")}

    def ours(self) -> list[Data]:
        """Every object with our label, pods and what Kubernetes derives from a Service left out."""
        kinds = (
            "daemonsets,services,serviceaccounts,secrets,configmaps,roles,rolebindings,clusterroles,"
            "clusterrolebindings,networkpolicies,runtimeclasses"
        )
        kinds += ",deviceclasses,validatingadmissionpolicies,validatingadmissionpolicybindings"
        kinds += "".join(
            ",%s.%s" % (row[2], row[0])
            for row in (MONITOR, RULE)
            if row[0] in self.server.kubectl("get", "--raw", "/apis").stdout
        )
        return list(self.server.get(kinds, "-A", "-l", SELECTOR)["items"])

    def labels(self) -> dict[str, Data]:
        return {item["metadata"]["name"]: item["metadata"]["labels"] for item in self.server.get("nodes")["items"]}


@contextlib.contextmanager
def running(site: Site) -> t.Iterator[Site]:
    """The site while its server runs; it is stopped also when it did not start."""
    try:
        site.start()
        yield site
    finally:
        site.server.stop()
