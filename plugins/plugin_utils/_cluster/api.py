# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to a Kubernetes API: plain requests with the credentials of a kubeconfig."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
import typing as t
from urllib.parse import urlencode

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import DRIVER_KIND, INPUT, OPERANDS, OPERATOR, POLICY_KIND
from .._objects.parts import MANAGER
from .._text.line import line
from .entries import Decrypt
from .kubeconfig import Access, open_access
from .page import ITEMS, Read, is_object, parsed_object, reading
from .refusals import refusal_step
from .transport import NoAnswer, is_closed, verification_error

Data = dict[str, t.Any]
PACKAGES = {"kubernetes": "kubernetes>=24.2.0", "yaml": "PyYAML"}
# Every kind we make: API prefix, plural, whether it lives in a namespace. Requests need no discovery then.
KINDS: dict[tuple[str, str], tuple[str, str, bool]] = {
    ("v1", "Namespace"): ("/api/v1", "namespaces", False),
    ("v1", "Node"): ("/api/v1", "nodes", False),
    ("v1", "ServiceAccount"): ("/api/v1", "serviceaccounts", True),
    ("v1", "Secret"): ("/api/v1", "secrets", True),
    ("v1", "ConfigMap"): ("/api/v1", "configmaps", True),
    ("v1", "Service"): ("/api/v1", "services", True),
    ("v1", "Pod"): ("/api/v1", "pods", True),
    ("v1", "Event"): ("/api/v1", "events", True),
    ("v1", "PersistentVolumeClaim"): ("/api/v1", "persistentvolumeclaims", True),
    ("rbac.authorization.k8s.io/v1", "Role"): ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): (
        "/apis/rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        False,
    ),
    ("apps/v1", "DaemonSet"): ("/apis/apps/v1", "daemonsets", True),
    ("apps/v1", "ControllerRevision"): ("/apis/apps/v1", "controllerrevisions", True),
    ("apps/v1", "Deployment"): ("/apis/apps/v1", "deployments", True),
    ("apps/v1", "StatefulSet"): ("/apis/apps/v1", "statefulsets", True),
    ("batch/v1", "Job"): ("/apis/batch/v1", "jobs", True),
    ("batch/v1", "CronJob"): ("/apis/batch/v1", "cronjobs", True),
    ("policy/v1", "PodDisruptionBudget"): ("/apis/policy/v1", "poddisruptionbudgets", True),
    ("coordination.k8s.io/v1", "Lease"): ("/apis/coordination.k8s.io/v1", "leases", True),
    ("node.k8s.io/v1", "RuntimeClass"): ("/apis/node.k8s.io/v1", "runtimeclasses", False),
    ("networking.k8s.io/v1", "NetworkPolicy"): ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    ("discovery.k8s.io/v1", "EndpointSlice"): ("/apis/discovery.k8s.io/v1", "endpointslices", True),
    ("resource.k8s.io/v1", "DeviceClass"): ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    ("resource.k8s.io/v1", "ResourceSlice"): ("/apis/resource.k8s.io/v1", "resourceslices", False),
    ("resource.k8s.io/v1", "ResourceClaim"): ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        False,
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        False,
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): ("/apis/monitoring.coreos.com/v1", "servicemonitors", True),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule"): ("/apis/nfd.k8s-sigs.io/v1alpha1", "nodefeaturerules", False),
    POLICY_KIND: ("/apis/" + POLICY_KIND[0], OPERATOR.policy[2], False),
    DRIVER_KIND: ("/apis/" + DRIVER_KIND[0], OPERATOR.driver[2], False),
}
# What is only read, of a DRA driver of others in a cluster before Kubernetes 1.34.
BETAS = {
    ("resource.k8s.io/" + version, "ResourceClaim"): ("/apis/resource.k8s.io/" + version, "resourceclaims", True)
    for version in ("v1beta2", "v1beta1")
}
TRIES = 4
BUSY = (429, 500, 502, 503, 504)
# Seconds between two lines that tell what is waited for, and those after which a look belongs to another wait: a slow
# server may take longer for one look than a line has to wait.
TELL_EVERY, WAIT_ENDS = 10.0, 40.0
# A server-side apply with a field that the schema does not have is answered with status 500.
_UNTYPED = "failed to create typed patch object"
# Somebody wrote the object between the server's reading and its writing.
_MEANWHILE = "please apply your changes to the latest version"
# What is said of fields that keep the value they were created with.
_FIXED = ("field is immutable", "cannot change roleRef", "may not change once set")
LONGEST_PAUSE = 30
JSON = "application/json"
# What a server may answer instead of whole objects; a proxy before it may not know that.
METADATA = JSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + JSON
# A warning of an API server: code 299, an agent, and a quoted text.
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
MOST_WARNINGS = 20


def missing_packages() -> list[str]:
    """Requirements that the running interpreter lacks; nothing is imported to find out."""
    return [requirement for name, requirement in PACKAGES.items() if importlib.util.find_spec(name) is None]


def require_packages() -> None:
    """NpuError that names the interpreter and what it lacks."""
    missing = missing_packages()
    if missing:
        raise NpuError(
            "The Python that runs Ansible on the controller, %s, lacks %s." % (sys.executable, ", ".join(missing)),
            "Run: %s -m pip install %s" % (sys.executable, " ".join("'%s'" % item for item in missing)),
        )


class ApiError(NpuError):
    """An error answer of the API: HTTP status, the API's own words, and the parsed body."""

    def __init__(self, status: int, what: str, body: Data) -> None:
        self.status = status
        self.body = body
        message, next_step = explain(status, what, body)
        super().__init__(message, next_step)


def explain(status: int, what: str, body: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """(message, next step) for an error answer.

    A conflict names each field and its owner; a refusal names the missing permission.
    """
    text = " ".join(str(body.get("message") or "no message").split()).rstrip(".")
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if status == 409 and isinstance(causes, list) and causes and all(isinstance(cause, dict) for cause in causes):
        fields = ", ".join("%s (%s)" % (cause.get("field"), cause.get("message")) for cause in causes)
        return (
            "%s: other managers own fields: %s." % (what, fields),
            f"Remove the fields from the other managers, or set {OPERANDS}force_conflicts to true.",
        )
    if status < 400:
        return (
            "%s: the answer is not from an API server: HTTP %d: %s." % (what, status, text),
            "Correct the server in the kubeconfig; a gateway may ask for a login.",
        )
    if status == 401:
        return "%s: the API server rejects the credentials: %s." % (what, text), "Renew the kubeconfig or the token."
    step = refusal_step(text)
    if step:
        return "%s: refused: %s." % (what, text), step
    if status == 403 and "system:anonymous" in text:
        return (
            "%s: the request had no credentials: %s." % (what, text),
            "Correct the user of the kubeconfig; its credential plugin may have failed.",
        )
    if status == 403:
        return (
            "%s: not allowed: %s." % (what, text),
            "Give the account of the kubeconfig this right; the role's README lists all of them.",
        )
    if status == 404:
        return "%s: not found: %s." % (what, text), "Check the namespace and the version of the cluster."
    if status == 422 and any(words in text for words in _FIXED):
        return (
            "%s: this field is immutable: %s." % (what, text),
            "Delete the object (its pods end with it), and run again.",
        )
    if status in (400, 422) or _UNTYPED in text:
        return "%s: the object is invalid: %s." % (what, text), "Correct the input that the field comes from."
    if status == 409 and _MEANWHILE in text:
        return "%s: other clients write at the same time: %s." % (what, text), "Run again."
    return "%s: HTTP %d: %s." % (what, status, text), "Check the state of the API server."


class Cluster:
    """One API server. `requests` counts what was asked; `warnings` are what it warned of, each once."""

    def __init__(self, kubeconfig: str, context: str, timeout: float = 30.0, decrypt: Decrypt | None = None) -> None:
        require_packages()
        self._open: t.Callable[[], Access] = lambda: open_access(kubeconfig, context, decrypt)
        self._access = self._open()
        # The server has taken these credentials: a later refusal means that they have expired.
        self._accepted = False
        self._timeout = timeout
        self.requests = 0
        self.warnings: list[str] = []
        # Gets a line while something is waited for.
        self.tell: t.Callable[[str], None] = lambda line: None
        self._waited_at = self._told_at = 0.0

    def waits(self, text: str) -> None:
        """Say what is waited for: called at each look, it tells every TELL_EVERY seconds."""
        now = time.monotonic()
        if now - self._waited_at > WAIT_ENDS:
            # Another wait than the last one.
            self._told_at = now
        self._waited_at = now
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self.tell(text)

    def request(
        self,
        method: str,
        path: str,
        what: str,
        query: Data | None = None,
        body: t.Any = None,
        kind: str = JSON,
        accept: str = JSON,
        tries: int = TRIES,
        read: Read = json.loads,
    ) -> tuple[int, Data]:
        """(status, body) of a request; ApiError for an error answer, NoAnswer for none.

        An unreachable or busy server is asked again a few times; one that no longer takes the credentials once, with
        those that the kubeconfig gives now: a plugin's token may say no end, and a token's file is written again.
        """
        import urllib3

        data = None if body is None else json.dumps(body).encode()
        url = self._access.host + path + ("?" + urlencode(query) if query else "")
        headers = self._headers(kind if body is not None else "", accept)
        for attempt in range(1, tries + 1):
            self.requests += 1
            pause = attempt
            try:
                answer = self._access.pool.request(
                    method, url, headers=headers, body=data, timeout=self._timeout, retries=False
                )
            except urllib3.exceptions.HTTPError as exc:
                if attempt == tries or verification_error(exc):
                    raise self._unanswered(what, exc, tries) from None
            else:
                known, parsed = parsed_object(answer.data, read)
                self._hear(answer.headers)
                if answer.status == 401 and self._accepted and attempt < tries:
                    self._accepted = False
                    self._access = self._open()
                    headers = self._headers(kind if body is not None else "", accept)
                    continue
                self._accepted = self._accepted or answer.status not in (401, 403)
                if not _is_passing(answer.status, parsed, path, body) or attempt == tries:
                    if answer.status >= 300 or not known:
                        raise ApiError(answer.status, what, parsed)
                    return answer.status, parsed
                told = answer.headers.get("Retry-After") or ""
                pause = min(int(told), LONGEST_PAUSE) if told.isdigit() else attempt
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _headers(self, content: str, accept: str) -> t.Any:
        from urllib3._collections import HTTPHeaderDict

        headers = HTTPHeaderDict(self._access.acting)
        headers.update({"Accept": accept, "User-Agent": MANAGER})
        authorization = self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if content:
            headers["Content-Type"] = content
        return headers

    def _unanswered(self, what: str, exc: Exception, tries: int) -> NpuError:
        """Why there was no answer. Only a certificate that did not pass is a matter of trust."""
        refused = verification_error(exc)
        if refused:
            return NpuError(
                "%s: the API server's certificate is not trusted: %s." % (what, mask(str(refused))),
                "Correct the authority in the kubeconfig.",
            )
        if is_closed(exc):
            return NoAnswer(
                "%s: the server %s closed the connection %d times: %s."
                % (what, self._access.host, tries, mask(str(exc)).rstrip(".")),
                "Check the API server, and the balancer or proxy before it.",
            )
        return NoAnswer(
            "%s: the API server %s cannot be reached: %s." % (what, self._access.host, mask(str(exc)).rstrip(".")),
            f"Check {INPUT}kubeconfig, the network and the proxy.",
        )

    def _hear(self, headers: t.Any) -> None:
        """Keep the warnings of an answer."""
        for text in _WARNING.findall(headers.get("Warning") or ""):
            said = "The API server warns: " + line(re.sub(r"\\(.)", r"\1", text), 500)
            if said not in self.warnings and len(self.warnings) < MOST_WARNINGS:
                self.warnings.append(said)

    @staticmethod
    def path(api_version: str, kind: str, namespace: str = "", name: str = "") -> str:
        key = (api_version, kind)
        prefix, plural, namespaced = KINDS.get(key) or BETAS[key]
        middle = "/namespaces/%s" % namespace if namespaced and namespace else ""
        return prefix + middle + "/" + plural + ("/" + name if name else "")

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        """The object, or None when there is none."""
        what = "Read %s %s" % (kind, name)
        try:
            found = self.request("GET", self.path(api_version, kind, namespace, name), what)[1]
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise
        if not is_object(found):
            raise _malformed(what)
        return found

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        metadata: bool = False,
        only: t.Callable[[Data], bool] = lambda item: True,
        part: t.Callable[[Data], Data] = lambda item: item,
    ) -> list[Data]:
        """Every object of a kind for which `only` holds, in pages of 500; the items carry apiVersion and kind.

        With `metadata` they hold nothing else, and no managedFields: of thousands of pods no more fits into memory.
        `part` makes what is kept of each, as its page comes. Both may be asked about an object more than once.
        """
        given = (("labelSelector", selector), ("fieldSelector", fields), ("limit", "500"))
        query = {key: value for key, value in given if value}
        path, accept = self.path(api_version, kind, namespace), METADATA if metadata else JSON
        items: list[Data] = []
        read = reading(api_version, kind, metadata, only, part)
        while True:
            try:
                page = self.request("GET", path, "List %s objects" % kind, query, accept=accept, read=read)[1]
            except ApiError as exc:
                if exc.status != 410 or "limit" not in query:
                    raise
                # The token of the next page has expired: ask for everything at once.
                items, query = [], {key: value for key, value in query.items() if key not in ("limit", "continue")}
                continue
            found = page.get(ITEMS) or []
            meta = page.get("metadata") or {}
            if not isinstance(found, list) or not isinstance(meta, dict) or any(one is None for one in found):
                raise _malformed("List %s objects" % kind)
            items += found
            query["continue"] = str(meta.get("continue") or "")
            if not query["continue"]:
                return items

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        """(created, object after) of a server-side apply with our field manager."""
        meta = item["metadata"]
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        path = self.path(item["apiVersion"], item["kind"], meta.get("namespace", ""), meta["name"])
        what = "Apply %s %s" % (item["kind"], "/".join(part for part in (meta.get("namespace"), meta["name"]) if part))
        status, after = self.request("PATCH", path, what, query, item, "application/apply-patch+yaml")
        if not is_object(after):
            raise _malformed(what)
        return status == 201, after

    def delete(self, item: Data, dry_run: bool) -> None:
        """Delete an object. It is no error when it is gone already; a newer object of the same name stays.

        Pods of a DaemonSet are deleted in the foreground. Everything else is deleted in the background, because a
        foreground deletion never ends where the garbage collector does not know the kind yet.
        """
        meta = item["metadata"]
        query: Data = {"propagationPolicy": "Foreground" if item["kind"] == "DaemonSet" else "Background"}
        if dry_run:
            query["dryRun"] = "All"
        # A server that gets a body ignores the query.
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **query, **({"dryRun": ["All"]} if dry_run else {})}
        if meta.get("uid"):
            body["preconditions"] = {"uid": meta["uid"]}
        path = self.path(item["apiVersion"], item["kind"], meta.get("namespace", ""), meta["name"])
        try:
            self.request("DELETE", path, "Delete %s %s" % (item["kind"], meta["name"]), query, body)
        except ApiError as exc:
            if exc.status != 404 and not (exc.status == 409 and "UID in" in str(exc)):
                raise


def list_served(
    cluster: Cluster,
    api_version: str,
    kind: str,
    namespace: str = "",
    selector: str = "",
    fields: str = "",
    metadata: bool = False,
) -> list[Data]:
    """`Cluster.list`, and no objects where the kind is not served."""
    try:
        return cluster.list(api_version, kind, namespace, selector, fields, metadata=metadata)
    except ApiError as exc:
        if exc.status == 404:
            return []
        raise


def _is_passing(status: int, answer: Data, path: str, body: t.Any) -> bool:
    """Whether an error heals by itself.

    A conflict does when another object was written meanwhile, such as the quota of the namespace, or when the request
    names no version of its object. One with causes does not: other managers own these fields.
    """
    if status in BUSY:
        return _UNTYPED not in str(answer.get("message"))
    details = answer.get("details")
    details = details if isinstance(details, dict) else {}
    if status != 409 or details.get("causes") or _MEANWHILE not in str(answer.get("message")):
        return False
    meta = body.get("metadata") if isinstance(body, dict) else None
    other = "/%s/" % details.get("kind") not in path + "/"
    return other or (isinstance(meta, dict) and "resourceVersion" not in meta)


def _malformed(what: str) -> NpuError:
    return NpuError(
        "%s: the answer is not that of an API server: an object has no metadata with a name." % what,
        "Correct the server in the kubeconfig; a gateway may change its answers.",
    )
