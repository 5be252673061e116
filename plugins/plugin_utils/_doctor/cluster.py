# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs of one cluster. It only reads: each kind once, and what may not be read is unknown, not absent."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._cluster.capabilities import discover
from .._cluster.rights import Right, require_rights, rights_for
from .._components.device_plugin import NAME as PLUGIN
from .._components.registry import COMPONENT_LABEL, component_of
from .._deliver_cluster.opened import rights_of
from .._deliver_cluster.operator import NORMAL, decide, find_operator
from .._inputs.releases import wrong_pair
from .._nodes.marks import TAINT, is_cordoned, is_ours
from .._nodes.match import find_nodes
from .._nodes.nodes import Hosts
from .._nodes.pods import Known, problem_text
from .._nodes.readiness import allocatable_npus, left_out, node_ready, npus_to_offer
from .._nodes.records import PodProblem
from .._nodes.revisions import Revisions
from .._nodes.taints import seconds
from .._nodes.verdict import DISCOVERED, has_npu, judge_daemon_set
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.parts import SELECTOR, object_name
from .signs import DOUBTFUL, UNKNOWN, WRONG, Sign, sign, sign_of_error

# Words of an error of the API server: (words, code), the first that fits.
_ERRORS = (
    (r"not yet valid|certificate has expired|certificate is not trusted|certificate verify failed", "api:certificate"),
    (r"rejects the credentials|had no credentials", "api:credentials"),
    (r"cannot be reached|closed the connection", "api:connection"),
    (r"not allowed", "api:right"),
    (r"kubeconfig|context", "api:kubeconfig"),
)
# What is listed, beside objects of the vendor's operator that not every cluster has; pods in all namespaces.
_LISTED = (("v1", "Node"), ("apps/v1", "DaemonSet"), ("v1", "Pod"), ("v1", "Event"))
# Why no pod is created, by the words of the API server. A webhook may say anything.
_REFUSED = (
    (r'admission webhook "|failed calling webhook|ValidatingAdmissionPolicy ', "create:admission"),
    (r"exceeded quota|failed quota|insufficient quota", "create:quota"),
    (r"violates PodSecurity|disallowed by cluster policy|security context constraint", "create:security"),
    (r"error looking up service account|no PriorityClass with name|RuntimeClass .*not found", "deploy:object"),
    (r"webhook|denied the request|denied request|usage per|limit to request", "create:admission"),
)
LEASE = ("coordination.k8s.io/v1", "Lease")
# Seconds for which a pod that a kubelet has refused tells of its node.
RECENT = 24 * 3600
Seen = t.Callable[[], t.Any]


class Observed(t.NamedTuple):
    """Of a host: where its kubelet looks for device plugins, and the loaded driver; each empty where not known."""

    sockets: str = ""
    driver: str = ""


class Clustered(t.NamedTuple):
    """What was found: the signs of the whole cluster, those of each host's node, and the node of each host."""

    signs: list[Sign]
    hosts: dict[str, list[Sign]]
    nodes: dict[str, str]


def signs_of_error(error: NpuError) -> list[Sign]:
    """The sign of a cluster that could not be asked."""
    code = next((code for words, code in _ERRORS if re.search(words, str(error))), "api:other")
    return [sign_of_error(code, "the API server", error)]


def plugin_dirs(daemon_set: Data) -> list[str]:
    """The directories of the host in which a device plugin makes its socket."""
    volumes = daemon_set["spec"]["template"]["spec"].get("volumes") or []
    paths = [str((one.get("hostPath") or {}).get("path") or "") for one in volumes]
    return [path.rstrip("/") for path in paths if path.rstrip("/").endswith("/device-plugins")]


class Look:
    """One look at a cluster for the hosts of a run; `seen` has what was observed of each."""

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        hosts: Hosts,
        seen: t.Mapping[str, Observed],
        where: str = "the kubeconfig",
        now: t.Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._inputs, self._hosts, self._seen = cluster, inputs, hosts, seen
        self._where, self._now = where, now
        self._signs: list[Sign] = []
        self._of_hosts: dict[str, list[Sign]] = {member["host"]: [] for member in hosts.members}
        self._host_of: dict[str, str] = {}

    def signs(self) -> Clustered:
        """Everything that is not in order. An API server that cannot be asked is one sign."""
        try:
            capabilities = discover(self._cluster)
        except NpuError as exc:
            return Clustered(signs_of_error(exc), self._of_hosts, {})
        self._ask("rights", self._rights)
        self._ask("operator", lambda: self._operator(capabilities))
        self._ask("Lease", self._lease)
        listed = self._ask("nodes", lambda: self._cluster.list("v1", "Node"))
        if listed is not None:
            nodes = {node["metadata"]["name"]: node for node in listed}
            self._match(nodes)
            for name, host in self._host_of.items():
                self._node(nodes[name], host)
            self._ask("operands", lambda: self._operands(nodes, capabilities))
            self._ask("pods of all namespaces", lambda: self._waiting(nodes))
        return Clustered(self._signs, self._of_hosts, {host: name for name, host in self._host_of.items()})

    def _ask(self, what: str, look: Seen) -> t.Any:
        """The answer of a look; None, and a sign that it is not known, where it was refused."""
        try:
            return look()
        except ApiError as exc:
            self._add(sign_of_error("api:right" if exc.status == 403 else "api:other", "the API server", exc, UNKNOWN))
        except NpuError as exc:
            self._signs += [one._replace(look="the look at the %s" % what) for one in signs_of_error(exc)]
        return None

    def _add(self, one: Sign) -> None:
        """A sign about the node of a host is the host's; one that says the same twice is told once."""
        host = self._host_of.get(one.node)
        mine = self._signs if host is None else self._of_hosts[host]
        if one not in mine:
            mine.append(one)

    def _rights(self) -> None:
        """Whether this account may look at everything; it need not write, and what it may not see is not known."""
        space = self._inputs["namespace"]
        wanted = rights_for(_LISTED, ["list"], space) + rights_for([LEASE], ["get"], space)
        self._lacks([*wanted, Right("list", "", "pods", "")], "rights:missing", UNKNOWN)

    def _lacks(self, wanted: t.Sequence[Right], code: str, level: str) -> None:
        try:
            require_rights(self._cluster, wanted, self._inputs["namespace"], self._where)
        except ApiError:
            raise
        except NpuError as exc:
            if "lacks rights" not in str(exc):
                raise
            self._add(sign_of_error(code, "SelfSubjectAccessReview", exc, level))

    def _operator(self, capabilities: Capabilities) -> None:
        found = find_operator(self._cluster, self._inputs, capabilities)
        try:
            if decide(found, self._inputs) == NORMAL:
                return
        except NpuError as exc:
            self._add(sign_of_error("operator:manages", "the objects of the operator", exc))

    def _lease(self) -> None:
        name, space = object_name(self._inputs, "operands"), self._inputs["namespace"]
        found = self._cluster.get(*LEASE, name, space)
        spec = (found or {}).get("spec") or {}
        holder, renewed = spec.get("holderIdentity"), seconds(spec.get("renewTime") or spec.get("acquireTime"))
        patience = max(self._inputs["lease_duration"], int(spec.get("leaseDurationSeconds") or 0))
        if not holder or (renewed is not None and self._now() - renewed > patience):
            return
        told = "%s holds the Lease %s/%s" % (holder, space, name)
        self._add(sign("lease:held", "the Lease", told, DOUBTFUL, namespace=space, name=name))

    def _match(self, nodes: t.Mapping[str, Data]) -> None:
        found = find_nodes(self._hosts.members, list(nodes.values()), self._hosts.others, self._hosts.strict)
        for host, one in found.items():
            if not one["error"]:
                self._host_of[one["node"]] = host
                continue
            code = "node:twice" if "were all found to be the node" in one["error"] else "node:none"
            self._of_hosts[host].append(sign_of_error(code, "the nodes of the cluster", one["error"]))

    def _node(self, node: Data, host: str) -> None:
        name, told = node["metadata"]["name"], "the Node object"
        conditions = {one.get("type"): one for one in (node.get("status") or {}).get("conditions") or []}
        if not node_ready(node):
            ready = conditions.get("Ready") or {}
            words = ready.get("message") or ready.get("reason") or "its kubelet has reported nothing yet"
            self._add(sign("node:not_ready", told, "node %s is not Ready: %s" % (name, words), node=name))
        for kind in ("DiskPressure", "MemoryPressure", "PIDPressure"):
            if (conditions.get(kind) or {}).get("status") == "True":
                words = "node %s reports %s: %s" % (name, kind, conditions[kind].get("message") or "")
                self._add(sign("node:pressure", told, words, node=name))
        failed = [one for one in (node.get("spec") or {}).get("taints") or [] if one.get("key") == TAINT]
        if failed:
            words = "node %s has the taint %s of a rollout that failed on it" % (name, TAINT)
            self._add(sign("node:rollout", told, words, node=name))
        elif is_cordoned(node):
            who = "by a rollout of ours" if is_ours(node) else "by others"
            self._add(sign("node:cordoned", told, "node %s is cordoned %s" % (name, who), DOUBTFUL, node=name))
        expected = next(one["expected"] for one in self._hosts.members if one["host"] == host)
        self._offer(node, npus_to_offer(self._inputs, node, expected))

    def _offer(self, node: Data, expected: int | None) -> None:
        """Whether a node offers the NPUs of its host, and whether a closed gate is the reason that it does not."""
        name, resource = node["metadata"]["name"], self._inputs["resource_name"]
        offered = allocatable_npus(node, resource)
        if expected is None or offered == expected:
            return
        words = "node %s offers %d %s, its host has %d" % (name, offered, resource, expected)
        self._add(sign("node:allocatable", "the Node object", words, node=name))
        closed = left_out(self._inputs, "device_plugin", PLUGIN, node) if expected else ""
        if closed:
            words = "the device plugin is not to run on node %s: %s" % (name, closed)
            self._add(sign("pod:NotSelected", "the Node object", words, node=name))

    def _operands(self, nodes: t.Mapping[str, Data], capabilities: Capabilities) -> None:
        space = self._inputs["namespace"]
        sets = self._cluster.list("apps/v1", "DaemonSet", space, SELECTOR)
        if not sets:
            if self._inputs["enabled"] and self._inputs["coexistence"] not in ("coexist", "restore"):
                self._add(sign("deploy:none", "the DaemonSets", "the namespace %s has no DaemonSet of ours" % space))
                # Whoever deploys may have another account.
                self._lacks(rights_of(self._inputs, capabilities), "rights:deploy", DOUBTFUL)
            return
        pods = self._cluster.list("v1", "Pod", space, SELECTOR)
        events = self._ask("events", lambda: self._cluster.list("v1", "Event", space, fields="type=Warning")) or []
        discovery = any(
            key.startswith(DISCOVERED) for one in nodes.values() for key in one["metadata"].get("labels") or {}
        )
        revisions = Revisions(self._cluster, space)
        named = {one["metadata"]["name"]: one for one in sets}
        for item in sets:
            key, component = component_of(item), (item["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
            scope = self._scope(key, component, nodes)
            known = Known(self._now(), discovery)
            verdict = judge_daemon_set(item, pods, events, list(nodes.values()), scope, known)
            if verdict["problems"] and revisions.ask(item, named):
                known = known._replace(revisions=revisions.of(named))
                verdict = judge_daemon_set(item, pods, events, list(nodes.values()), scope, known)
            for problem in verdict["problems"]:
                self._add(self._of_problem(problem, item["metadata"]["name"], events))
            if key == "device_plugin":
                self._sockets_of(item, scope)
            for name in sorted(scope):
                self._pair(item, key, name)

    def _scope(self, key: str, component: str, nodes: t.Mapping[str, Data]) -> set[str]:
        """The nodes that are to have a component: those of the hosts of this run that have NPUs."""
        npus = {one["host"]: one["expected"] for one in self._hosts.members}
        mine = [name for name, host in self._host_of.items() if npus[host] != 0]
        return {
            name
            for name in mine
            if (has_npu(nodes[name]) or npus[self._host_of[name]])
            and not left_out(self._inputs, key, component, nodes[name])
        }

    def _of_problem(self, problem: PodProblem, name: str, events: t.Sequence[Data]) -> Sign:
        reason, told = problem["reason"], problem_text({**problem, "next_step": ""}, name).replace(" Next: ", "")
        code, node = "pod:" + reason, problem["node"]
        if reason == "FailedCreate":
            code = next((code for words, code in _REFUSED if re.search(words, problem["detail"])), "create:other")
            # The API server refuses the pods of every node alike.
            node = ""
        look = "DaemonSet %s" % name if reason == "FailedCreate" or not problem["pod"] else "pod %s" % problem["pod"]
        space = self._inputs["namespace"]
        return sign(
            code, look, told, WRONG, problem["next_step"], node, pod=problem["pod"], namespace=space, daemonset=name
        )

    def _observed(self, node: str) -> Observed:
        return self._seen.get(self._host_of[node], Observed())

    def _pair(self, item: Data, key: str, node: str) -> None:
        """Whether a component answers wrongly beside the driver of a node, by the image that it has now."""
        driver = self._observed(node).driver
        for container in item["spec"]["template"]["spec"]["containers"]:
            version = str(container.get("image") or "").rpartition(":")[2]
            effect = wrong_pair(key, version, driver)
            if effect:
                words = "%s has version %s, and the driver of node %s is %s: %s"
                told = words % (container["name"], version, node, driver, effect)
                self._add(sign("pair:wrong", "DaemonSet %s" % item["metadata"]["name"], told, DOUBTFUL, node=node))

    def _sockets_of(self, item: Data, scope: t.Collection[str]) -> None:
        made = plugin_dirs(item)
        for name in sorted(scope):
            wanted = self._observed(name).sockets.rstrip("/")
            if made and wanted and wanted not in made:
                words = "the device plugin makes its socket in %s, and the kubelet of %s reads %s"
                told = words % (", ".join(made), name, wanted)
                self._add(sign("plugin:socket", "DaemonSet %s" % item["metadata"]["name"], told, node=name))

    def _waiting(self, nodes: t.Mapping[str, Data]) -> None:
        """Pods that ask for NPUs and are not scheduled or not started, and whether others have what there is."""
        resource = self._inputs["resource_name"]
        asking = self._cluster.list("v1", "Pod", only=_asks(resource))
        self._unstarted(asking, resource)
        pods = [one for one in asking if not _ended(one)]
        refused = {_name(one): _unscheduled(one) for one in pods if not (one.get("spec") or {}).get("nodeName")}
        waiting = [name for name, why in refused.items() if resource in why]
        others = [name for name, why in refused.items() if why and resource not in why]
        if others:
            words = "%d pods that ask for %s wait for something else, such as %s: %s"
            told = words % (len(others), resource, others[0], refused[others[0]])
            space, _slash, pod = others[0].partition("/")
            self._add(sign("npus:other", "the pods of all namespaces", told, DOUBTFUL, pod=pod, namespace=space))
        if not waiting:
            return
        serving = {name: allocatable_npus(node, resource) for name, node in nodes.items() if not is_cordoned(node)}
        offered = sum(serving.values())
        held = {_name(one): _npus(one, resource) for one in pods if (one.get("spec") or {}).get("nodeName") in serving}
        first = "%d pods wait for %s, such as %s" % (len(waiting), resource, waiting[0])
        if offered and sum(held.values()) >= offered:
            holders = ", ".join("%s (%d)" % one for one in sorted(held.items())[:5])
            told = "%s; all %d are held by %s%s" % (first, offered, holders, ", ..." if len(held) > 5 else "")
            self._add(sign("npus:taken", "the pods of all namespaces", told))
        else:
            told = "%s; %d are offered and %d held" % (first, offered, sum(held.values()))
            self._add(sign("npus:waiting", "the pods of all namespaces", told, DOUBTFUL))

    def _unstarted(self, pods: t.Sequence[Data], resource: str) -> None:
        """Pods that have a node and get no NPU there: its kubelet refuses them, or its runtime lacks the device."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for pod in pods:
            code, why = _not_started(pod, resource, self._now() - RECENT)
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            if code and node:
                found.setdefault((code, node), []).append((_name(pod), why))
        for (code, node), told in found.items():
            space, _slash, name = told[0][0].partition("/")
            words = "%d pods that ask for %s do not start on node %s, such as %s: %s"
            said, level = words % (len(told), resource, node, *told[0]), WRONG if code == "npus:device" else DOUBTFUL
            self._add(sign(code, "the pods of all namespaces", said, level, node=node, pod=name, namespace=space))


def _not_started(pod: Data, resource: str, since: float) -> tuple[str, str]:
    """(code, why) of a pod that its node does not start; empty for any other one, and for one that is long refused."""
    status, about = pod.get("status") or {}, pod["metadata"]
    reason, told = str(status.get("reason") or ""), str(status.get("message") or "")
    if status.get("phase") == "Failed":
        began = seconds(status.get("startTime") or about.get("creationTimestamp"))
        code = {"TopologyAffinityError": "npus:topology", "UnexpectedAdmissionError": "npus:refused"}.get(
            reason, "npus:refused" if reason == "OutOf" + resource else ""
        )
        return (code, "%s: %s" % (reason, told)) if began is not None and began > since else ("", "")
    for one in status.get("containerStatuses") or []:
        waiting = (one.get("state") or {}).get("waiting") or {}
        if "CDI device" in str(waiting.get("message") or ""):
            return "npus:device", "%s: %s" % (waiting.get("reason") or "", waiting["message"])
    return "", ""


def _name(pod: Data) -> str:
    return "%s/%s" % (pod["metadata"].get("namespace"), pod["metadata"]["name"])


def _npus(pod: Data, resource: str) -> int:
    found = 0
    for one in (pod.get("spec") or {}).get("containers") or []:
        amount = ((one.get("resources") or {}).get("limits") or {}).get(resource, "0")
        found += int(amount) if str(amount).isdigit() else 0
    return found


def _asks(resource: str) -> t.Callable[[Data], bool]:
    return lambda pod: _npus(pod, resource) > 0


def _ended(pod: Data) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _unscheduled(pod: Data) -> str:
    """Why the scheduler has found no node for a pod; empty where it has not said so."""
    return next(
        (
            str(one.get("message") or "")
            for one in (pod.get("status") or {}).get("conditions") or []
            if one.get("type") == "PodScheduled" and one.get("status") == "False"
        ),
        "",
    )
