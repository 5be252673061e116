# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/privileges.md names every right of every object in all variants, with its reason, and no other right."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils._components.test_golden import POLICIES
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects

PAGE = pathlib.Path(__file__).parents[5] / "docs" / "privileges.md"
COMPONENT = "app.kubernetes.io/component"
API = "Rights in the API"
TAG = {"image": {"tag": "1"}}
# What the golden policies leave out.
VARIANTS: dict[str, dict[str, Any]] = {
    **POLICIES,
    "images": {
        "validator": {"source": "image", **TAG},
        "feature_discovery": {"enabled": True, "source": "image", **TAG},
        "vfio_manager": {"enabled": True, "source": "image", **TAG},
        "sandbox_device_plugin": {"enabled": True, **TAG},
        "container_toolkit": {"enabled": True, "env_from_marker": False, **TAG},
    },
    "evicting driver": {
        "driver": {
            "enabled": True,
            "manager": {"evict_pods": True, **TAG},
            "pools": [{"os_id": "ubuntu", "os_version": "22.04", "kernel": "6.8.0"}],
            **TAG,
        }
    },
    "toolkits": {"container_toolkit": {"enabled": True, "runtimes": ["docker", "crio"], **TAG}},
    "exporter in a pod network": {
        "metrics_exporter": {"enabled": True, "host_network": False, "daemon_url": "smd:50051", **TAG}
    },
    "everything privileged": {
        "device_plugin": {"privileged": True},
        "sandbox_device_plugin": {"enabled": True, **TAG},
        "metrics_exporter": {"enabled": True, **TAG},
        "validator": {"plugin": {"privileged": False}},
        "ca_bundle": "x",
    },
}
Row = tuple[str, str, str]


def pods(items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(component, specification) of each pod, whatever makes it."""
    for item in items:
        template = item.get("spec", {}).get("template")
        if template:
            yield item["metadata"]["labels"][COMPONENT], template["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def of_pod(component: str, pod: dict[str, Any]) -> Iterator[Row]:
    for name in ("hostPID", "hostIPC", "hostNetwork"):
        if pod.get(name):
            yield component, "pod", name
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for item in containers(pod):
        for right in of_container(item, volumes):
            yield component, item["name"], right


def of_container(item: dict[str, Any], volumes: dict[str, dict[str, Any]]) -> Iterator[str]:
    context = item["securityContext"]
    if context.get("privileged"):
        yield "privileged"
    for name in context.get("capabilities", {}).get("add", []):
        yield "capability " + name
    if not context["runAsUser"]:
        yield "user 0"
    for name in context.get("seLinuxOptions", {}).values():
        yield "SELinux " + name
    for port in item.get("ports", []):
        if "hostPort" in port:
            yield "host port %d" % port["hostPort"]
    for mount in item.get("volumeMounts", []):
        volume = volumes[mount["name"]]
        if "hostPath" in volume:
            path = volume["hostPath"]["path"].replace("/data/kubelet", "/var/lib/kubelet")
            spread = " Bidirectional" if mount.get("mountPropagation") == "Bidirectional" else ""
            yield "%s %s%s" % (path, "ro" if mount.get("readOnly") else "rw", spread)
        elif "serviceAccountToken" in str(volume.get("projected")):
            yield "API token"


def of_role(item: dict[str, Any]) -> Iterator[Row]:
    for rule in item["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}, item
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                name = "%s.%s" % (resource, group) if group else resource
                yield API, item["metadata"]["labels"][COMPONENT], "%s: %s" % (name, ", ".join(rule["verbs"]))


def rights(items: list[dict[str, Any]]) -> set[Row]:
    """Every right of the objects: (component, container, right), and (API, account, right) for those of RBAC."""
    found = {row for component, pod in pods(items) for row in of_pod(component, pod)}
    found |= {row for item in items if "rules" in item for row in of_role(item)}
    own = {(item["kind"], item["metadata"]["name"]) for item in items if "rules" in item}
    for item in items:
        role = item.get("roleRef", {})
        if role and (role["kind"], role["name"]) not in own:
            found.add((API, "every account with pods", "%(kind)s %(name)s" % role))
    return found


def page() -> dict[Row, str]:
    """Right to reason, by the tables of the page. A row may name several containers."""
    found: dict[Row, str] = {}
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and not re.match(r"^(-+|container|account)$", cells[0]):
            for name in cells[0].split(", "):
                row = (section, name, cells[1].strip("`"))
                assert row not in found, row
                found[row] = cells[2]
    return found


def test_every_right_has_its_row_and_every_row_its_right() -> None:
    made = {row for given in VARIANTS.values() for row in rights(objects(**given))}
    told = set(page())
    assert len(made) > 100
    lacking = "\n".join("## %s | %s | `%s` | |" % row for row in sorted(made - told))
    assert not lacking, "docs/privileges.md lacks:\n" + lacking
    unused = "\n".join("## %s | %s | `%s`" % row for row in sorted(told - made))
    assert not unused, "docs/privileges.md names what no object has:\n" + unused


def test_every_reason_is_a_sentence() -> None:
    assert [row for row, reason in page().items() if len(reason.split()) < 3] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_what_holds_without_a_row(name: str) -> None:
    seen = 0
    for component, pod in pods(objects(**VARIANTS[name])):
        assert pod["automountServiceAccountToken"] is False, component
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}, component
        for item in containers(pod):
            where, context = (component, item["name"]), item["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, where
            # The driver, the manager and the plugin of the inputs of a policy file have what the file says.
            if name != "11-values-of-the-chart":
                assert set(item["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}, where
            if not context.get("privileged"):
                assert context["capabilities"]["drop"] == ["ALL"], where
                assert context["allowPrivilegeEscalation"] is False, where
                assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where
                assert context["runAsNonRoot"] is (context["runAsUser"] != 0), where
            seen += 1
    assert seen


@pytest.mark.parametrize("name", VARIANTS)
def test_no_role_has_a_wildcard_or_reads_secrets(name: str) -> None:
    for row in rights(objects(**VARIANTS[name])):
        if row[0] == API:
            assert "*" not in row[2] and "secrets" not in row[2], row


@pytest.mark.parametrize("name", VARIANTS)
def test_only_who_asks_the_api_has_a_token_and_a_role(name: str) -> None:
    items = objects(**VARIANTS[name])
    found = rights(items)
    tokens = {component for component, _container, right in found if right == "API token"}
    accounts = {account for section, account, right in found if section == API and not right.startswith("ClusterRole ")}
    # The driver's pods carry the name that the vendor's tools look for.
    assert {"driver" if name == "rbln-driver" else name for name in tokens} == accounts - {"label-policy"}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_pod_needs_the_lowest_level_that_the_namespace_has(name: str) -> None:
    """Levels below `privileged` refuse every hostPath, and no pod but those for nothing is without one."""
    items = objects(**VARIANTS[name])
    assert any("hostPath" in str(pod) for _component, pod in pods(items))
    (space,) = (item for item in items if item["kind"] == "Namespace")
    level = space["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
    assert level == (None if name == "10-bare" else "privileged")


def test_no_mount_is_below_one_that_goes_both_ways() -> None:
    """It would appear on the host, once more with each start of the pod."""
    spread = 0
    for given in VARIANTS.values():
        for _component, pod in pods(objects(**given)):
            for item in containers(pod):
                mounts = item.get("volumeMounts", [])
                both = [one["mountPath"] for one in mounts if one.get("mountPropagation") == "Bidirectional"]
                spread += len(both)
                above = tuple(path + "/" for path in both)
                nested = [one["mountPath"] for one in mounts if one["mountPath"].startswith(above)]
                assert nested == [], (item["name"], nested)
    assert spread
