# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of a rollout, asked before the first cordon."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import KIND_SINCE
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Capabilities
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.pods import Policy
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.rights import (
    require_rollout_rights,
    rollout_rights,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

DRA = Capabilities({"resource.k8s.io": ("v1",)}, frozenset(KIND_SINCE))


class Server:
    """Grants everything but some (verb, resource with its part)."""

    def __init__(self, *lacking: tuple[str, str]) -> None:
        self.lacking, self.asked = lacking, 0

    def request(self, method: str, path: str, what: str, query: Any = None, body: Any = None) -> tuple[int, Any]:
        self.asked += 1
        if path == "/apis":
            return 200, {"groups": []}
        if "Rules" in body["kind"]:
            return 201, {"status": {"resourceRules": []}}
        asked = body["spec"]["resourceAttributes"]
        name = "/".join(part for part in (asked["resource"], asked.get("subresource")) if part)
        return 201, {"status": {"allowed": (asked["verb"], name) not in self.lacking}}


def told(policy: Policy, **given: Any) -> set[str]:
    return {"%s %s" % (right.verb, right.place) for right in rollout_rights(inputs(**given), policy, DRA)}


def test_each_policy_needs_no_more_than_it_does() -> None:
    least, usual = told(Policy(pods="refuse")), told(Policy())
    assert {"get nodes", "list nodes", "patch nodes", "list pods", "update configmaps in rbln-system"} <= least
    assert usual - least == {"create pods/eviction", "list poddisruptionbudgets.policy"}
    assert told(Policy(force=True)) - usual == {"delete pods"}
    assert "get resourceclaims.resource.k8s.io" in usual
    by_dra = told(Policy(), dra_driver={"enabled": True}, device_plugin={"enabled": False})
    assert by_dra - usual == {"list resourceslices.resource.k8s.io"}
    assert told(Policy(), device_plugin={"enabled": False}) == by_dra


@pytest.mark.parametrize("version, asked", [("v1", True), ("v1beta2", True), ("v1beta1", True), ("", False)])
def test_claims_are_read_in_each_version_that_a_cluster_serves(version: str, asked: bool) -> None:
    served = Capabilities({"resource.k8s.io": (version,)} if version else {}, frozenset())
    rights = {"%s %s" % (right.verb, right.place) for right in rollout_rights(inputs(), Policy(), served)}
    assert ("get resourceclaims.resource.k8s.io" in rights) is asked


def test_protected_labels_need_the_right_to_set_them() -> None:
    assert told(Policy(), label_policy={"enabled": True}) - told(Policy()) == {"set nodelabels.rebellions.ai"}


def test_one_error_names_all_rights_that_are_missing() -> None:
    server = Server(("create", "pods/eviction"), ("patch", "nodes"))
    with pytest.raises(NpuError, match="lacks rights: patch nodes; create pods/eviction. Next: Give it"):
        require_rollout_rights(server, [(inputs(), Policy())], "rbln_kubeconfig")  # type: ignore[arg-type]
    require_rollout_rights(Server(), [(inputs(), Policy())], "rbln_kubeconfig")  # type: ignore[arg-type]
