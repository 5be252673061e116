# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts that every Kubernetes object of ours shares: images, labels, placement, security contexts, environment."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .inputs import ContainerInputs, Image, Inputs, Placed
from .model import Object
from .names import SHORT

MANAGER = "rebellions-npu"
PART_OF = "rebellions-npu"
OURS = {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/part-of": PART_OF}
SELECTOR = ",".join("%s=%s" % item for item in sorted(OURS.items()))
# Objects outside a namespace carry the namespace they belong to, so that one installation leaves those of another
# alone.
INSTANCE = "app.kubernetes.io/instance"

LABEL_PREFIX = PROFILE.label_prefix + "/"
NPU_KEY = PROFILE.resource_name
PRESENT_LABEL = NPU_KEY + ".present"
GATE_PREFIX = NPU_KEY + ".deploy."
# An administrator keeps every component off a node with it.
SKIP_LABEL = GATE_PREFIX + "skip"
WORKLOAD_LABEL = NPU_KEY + ".workload.config"
# What a host tells of its system on its own node, so that no discovery is needed.
OS_ID_LABEL = LABEL_PREFIX + "host.os-id"
OS_VERSION_LABEL = LABEL_PREFIX + "host.os-version"
KERNEL_LABEL = LABEL_PREFIX + "host.kernel"
# Marks the namespace of an installation, with the prefix of its names.
POLICY_LABEL = NPU_KEY + ".policy"
# On OpenShift the default node selector of cluster or project is added to pods, and not to their DaemonSet, unless the
# namespace has one of its own.
NODE_SELECTOR = "openshift.io/node-selector"
# Distinguishes the DaemonSets of one component, so that none selects the pods of another.
VARIANT_LABEL = NPU_KEY + ".variant"
# Node Feature Discovery writes the PCI label with or without the class, by its option deviceLabelFields.
NFD_LABELS = tuple(
    "feature.node.kubernetes.io/pci-%s.present" % device
    for device in ("%s_%s" % (PROFILE.pci_class, PROFILE.pci_vendor), PROFILE.pci_vendor)
)

NODE_IP = "NODE_IP"
CA_MOUNT = "/etc/%s-ca" % SHORT

_REPOSITORY = re.compile(r"^[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$")
_PREFIX = re.compile(
    r"^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*\Z"
)
_TAG = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


def image_reference(name: str, image: Image, prefix: str) -> str:
    """`prefix/repository:tag` or `prefix/repository@digest`. The prefix replaces the registry of the image."""
    repository = str(image["repository"]).strip("/")
    head, _slash, rest = repository.partition("/")
    registry = str(image["registry"]).rstrip("/")
    if rest and ("." in head or ":" in head or head == "localhost"):
        registry, repository = head, rest
    if not _REPOSITORY.match(repository):
        raise NpuError(
            "%s.repository %r is not an image repository." % (name, image["repository"]),
            "Write for example %s/k8s-device-plugin." % PROFILE.name,
        )
    place = (prefix or registry).rstrip("/")
    if "@" in place:
        raise NpuError(
            "The image prefix holds credentials.",
            "Write only host[:port][/path], and give the credentials as a pull secret.",
        )
    if place and not _PREFIX.match(place):
        raise NpuError("The registry %r is not an image prefix." % place, "Write host[:port][/path], without https://.")
    base = "%s/%s" % (place, repository) if place else repository
    if image["digest"]:
        if not _DIGEST.match(image["digest"]):
            raise NpuError(
                "%s.digest %r is not a digest." % (name, image["digest"]), "Write sha256: and 64 hexadecimal digits."
            )
        return "%s@%s" % (base, image["digest"])
    if not image["tag"]:
        raise NpuError("%s has neither tag nor digest." % name, "Set %s.tag to a version, as text." % name)
    if not _TAG.match(image["tag"]):
        raise NpuError("%s.tag %r is not an image tag." % (name, image["tag"]), "Write a tag such as v0.4.0.")
    return "%s:%s" % (base, image["tag"])


def applied_fields(item: t.Mapping[str, t.Any]) -> list[Object]:
    """The fields (fieldsV1) of a live object that are ours by server-side apply.

    Empty for one that we never applied.
    """
    entries = item["metadata"].get("managedFields") or []
    return [
        entry.get("fieldsV1") or {}
        for entry in entries
        if entry.get("manager") == MANAGER and entry.get("operation") == "Apply"
    ]


def pull_secrets(inputs: Inputs, *images: Image) -> list[Object]:
    """Names of every pull secret a pod needs, each once, in order."""
    names = list(inputs["image_pull_secrets"])
    if inputs["pull_secret_content"]:
        names.append(inputs["pull_secret_name"])
    for image in images:
        names.extend(image["pull_secrets"])
    return [{"name": name} for name in dict.fromkeys(names)]


def object_name(inputs: Inputs, component: str, variant: str = "") -> str:
    """`prefix-component` or `prefix-component-variant`."""
    return "-".join(part for part in (inputs["name_prefix"], component, variant) if part)


def identity(component: str) -> dict[str, str]:
    """The labels that a DaemonSet selects its pods by; they never change."""
    return {"app.kubernetes.io/name": "%s-%s" % (SHORT, component), "app.kubernetes.io/part-of": PART_OF}


def metadata(
    inputs: Inputs, component: str, name: str, own: t.Mapping[str, t.Any] | None = None, namespaced: bool = True
) -> Object:
    """Metadata of an object: the user's labels and annotations, and ours, which win."""
    extra: t.Mapping[str, t.Any] = own or {}
    labels = {
        **inputs["labels"],
        **extra.get("labels", {}),
        **identity(component),
        **OURS,
        "app.kubernetes.io/component": component,
    }
    annotations = {**inputs["annotations"], **extra.get("annotations", {})}
    result: Object = {"name": name, "labels": texts(labels)}
    if namespaced:
        result["namespace"] = inputs["namespace"]
    else:
        result["labels"][INSTANCE] = inputs["namespace"]
    if annotations:
        result["annotations"] = texts(annotations)
    return result


def pod_metadata(inputs: Inputs, component: str, own: Placed) -> Object:
    result = metadata(inputs, component, "", own)
    return {key: value for key, value in result.items() if key in ("labels", "annotations")}


def texts(values: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {
        str(key): ("true" if value else "false") if isinstance(value, bool) else str(value)
        for key, value in values.items()
    }


def security_context(
    privileged: bool = False, add: t.Sequence[str] = (), user: int = 0, writable: bool = False, host: bool = False
) -> Object:
    """The tightest container context that still works; `user` 0 because what is read on the host belongs to root.

    `host` says that another user than root reads directories of the host, too.
    """
    if privileged:
        return {"privileged": True, "readOnlyRootFilesystem": not writable, "runAsUser": user}
    capabilities: Object = {"drop": ["ALL"]}
    if add:
        capabilities["add"] = list(add)
    result: Object = {
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
        "readOnlyRootFilesystem": not writable,
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if user == 0 or host:
        # On hosts where SELinux enforces, the type that containers have by themselves reads nothing of /run or the
        # kubelet. Elsewhere it is not looked at.
        result["seLinuxOptions"] = {"type": "spc_t"}
    return result


def without_proxy(inputs: Inputs) -> str:
    """NO_PROXY: what the inputs name, then what no proxy reaches: the node, the API server, names of the cluster.

    The kubelet fills in both addresses, which stand beside the ranges because some clients do not read ranges.
    """
    names = [name.strip() for name in inputs["no_proxy"].split(",")]
    domain = inputs["cluster_domain"].strip(".")
    own = ["localhost", "127.0.0.1", "::1", "$(%s)" % NODE_IP, "$(KUBERNETES_SERVICE_HOST)", ".svc", "." + domain]
    ranges = inputs["cluster_cidrs"] + inputs["api_server_cidrs"]
    hosts = [cidr.rpartition("/")[0] for cidr in ranges if cidr.endswith(("/32", "/128"))]
    return ",".join(dict.fromkeys(name for name in names + own + hosts + ranges if name))


def environment(inputs: Inputs, base: t.Mapping[str, str], *more: t.Sequence[Object]) -> list[Object]:
    """Node name, proxies, authorities, what the component sets, what the inputs set.

    A later one wins, the order stays.
    """
    result: dict[str, Object] = {
        "NODE_NAME": {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    }
    proxies = {name: inputs[name] for name in ("http_proxy", "https_proxy", "no_proxy")}
    if inputs["http_proxy"] or inputs["https_proxy"]:
        result[NODE_IP] = {"name": NODE_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
        proxies["no_proxy"] = without_proxy(inputs)
    for name, value in proxies.items():
        if value:
            for form in (name.upper(), name):
                result[form] = {"name": form, "value": value}
    if inputs["ca_bundle"]:
        result["SSL_CERT_FILE"] = {"name": "SSL_CERT_FILE", "value": CA_MOUNT + "/ca.crt"}
    for name, value in base.items():
        result[name] = {"name": name, "value": value}
    for items in more:
        for item in items:
            result[item["name"]] = dict(item)
    return list(result.values())


def ca_mounts(inputs: Inputs) -> tuple[list[Object], list[Object]]:
    """(volume mounts, volumes) of the authorities, or two empty lists."""
    if not inputs["ca_bundle"]:
        return [], []
    mount = {"name": "ca", "mountPath": CA_MOUNT, "readOnly": True}
    return [mount], [{"name": "ca", "configMap": {"name": object_name(inputs, "ca")}}]


def is_loopback(address: str) -> bool:
    """Whether an address, with a port or without, is that of the host itself alone."""
    return re.match(r"^(127\.|localhost(:|$)|\[?::1(\]|$))", address) is not None


def host_path(name: str, path: str, kind: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def host_mounts(own: ContainerInputs, roots: t.Sequence[str] = ()) -> tuple[list[Object], list[Object]]:
    """(volume mounts, volumes) of the input host_paths.

    What holds one of `roots`, or is in it, follows the mounts of the host.
    """
    mounts: list[Object] = []
    for item in own["host_paths"]:
        mount: Object = {"name": item["name"], "mountPath": item["mount_path"] or item["path"]}
        if item["read_only"]:
            mount["readOnly"] = True
        path = item["path"].rstrip("/") + "/"
        if any((root + "/").startswith(path) or path.startswith(root + "/") for root in roots):
            mount["mountPropagation"] = "HostToContainer"
        mounts.append(mount)
    return mounts, [host_path(item["name"], item["path"], item["type"]) for item in own["host_paths"]]


def probe(handler: Object, period: int = 10, failures: int = 3, delay: int = 0, timeout: int = 5) -> Object:
    """A probe around a handler such as {"grpc": {"port": 51515}}; seconds."""
    result: Object = {**handler, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": timeout}
    return {**result, "initialDelaySeconds": delay} if delay else result


def roles(
    inputs: Inputs, component: str, rules: t.Sequence[Object], namespaced: t.Sequence[Object] = ()
) -> list[Object]:
    """Role and binding for `namespaced` rules, ClusterRole and binding for `rules`, to the component's account.

    None for no rules.
    """
    api, name = "rbac.authorization.k8s.io", object_name(inputs, component)
    made: list[Object] = []
    for kind, items in (("Role", namespaced), ("ClusterRole", rules)):
        if items:
            meta = metadata(inputs, component, name, namespaced=kind == "Role")
            made += [
                {"apiVersion": api + "/v1", "kind": kind, "metadata": meta, "rules": list(items)},
                {
                    "apiVersion": api + "/v1",
                    "kind": kind + "Binding",
                    "metadata": meta,
                    "roleRef": {"apiGroup": api, "kind": kind, "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": inputs["namespace"]}],
                },
            ]
    return made
