# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of a host's node, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.registry import COMPONENTS
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.labels import (
    EITHER,
    SANDBOX,
    Seen,
    expected_npus,
    lacks_proof,
    node_labels,
    owned_labels,
    settle_labels,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import member_record
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
KEY = "rebellions.ai/npu."
GATE = KEY + "deploy."
CA22: Data = {"product": "RBLN-CA22", "family": "ATOM", "state": "ok", "vfs": 0, "iommu_group": 4}
TWO = {KEY + "present": "true", KEY + "count": "2", KEY + "product": "RBLN-CA22", KEY + "family": "ATOM"}
VERSION = {
    "rebellions.ai/driver-version.full": "3.2.2-rebel1",
    "rebellions.ai/driver-version.major": "3",
    "rebellions.ai/driver-version.minor": "2",
    "rebellions.ai/driver-version.patch": "2",
}
SYSTEM = {
    "rebellions.ai/host.os-id": "ubuntu",
    "rebellions.ai/host.os-version": "22.04",
    "rebellions.ai/host.kernel": "6.8.0-117-generic",
}
RUNTIME = {"rebellions.ai/host.runtime": "crio", "rebellions.ai/host.kubelet": "default"}
RUNTIMES: Data = {
    "kubernetes_runtime": "cri-o",
    "kubelet": {"present": True, "root_dir": "/var/lib/kubelet", "runtime_endpoint": "/run/crio/crio.sock"},
}
RIGHT: Data = {
    "passed": True,
    "markers": {"current": True, "present": ["driver-ready", "toolkit-ready"]},
    "failed": [],
    "unknown": [],
    "checks": [],
}
NEW: Data = {
    "passed": False,
    "markers": {"current": False, "present": []},
    "failed": ["loaded"],
    "unknown": [],
    "checks": [{"name": "loaded", "scope": "driver"}],
}
IMAGE = {"tag": "1"}


def facts(
    npus: list[Data], version: str | None = "3.2.2-rebel1", usable: int | None = None, via: str = "deb", **more: Any
) -> Data:
    return {
        "npus": npus,
        "counts": {
            "cards": len(npus),
            "functions": len(npus),
            "devices": len(npus),
            "usable": len(npus) if usable is None else usable,
        },
        "driver": {"version_loaded": version, "installed_via": via},
        "os": {"id": "ubuntu", "version_id": "22.04", "codename": "jammy"},
        "kernel": {"running": "6.8.0-117-generic"},
        "probes": {"pci": {"state": "value"}},
        **more,
    }


def seen(
    npus: list[Data] | None = None,
    observed: Data | None = None,
    proof: Data | None = None,
    source: str = "",
    toolkit: str = "",
    **more: Any,
) -> Seen:
    return Seen(
        facts([CA22, CA22] if npus is None else npus, **more),
        RUNTIMES,
        RIGHT if observed is None else observed,
        proof or {},
        source,
        toolkit,
    )


def open_gates(found: Seen, **given: Any) -> set[str]:
    labels = node_labels(inputs(**given), found)
    assert labels is not None
    gates = {name[len(GATE) :]: value for name, value in labels.items() if name.startswith(GATE)}
    assert set(gates.values()) <= {"true", "false"}
    return {name for name, value in gates.items() if value == "true"}


def test_all_labels_of_a_proven_host() -> None:
    gates = {GATE + "device-plugin": "true", GATE + "validator": "true"}
    assert node_labels(inputs(), seen()) == {**TWO, **VERSION, **SYSTEM, **RUNTIME, **gates}


def test_no_npu() -> None:
    gates = {GATE + "device-plugin": "false", GATE + "validator": "false"}
    assert node_labels(inputs(), seen([])) == {KEY + "present": "false", **SYSTEM, **RUNTIME, **gates}


def test_discovery_is_given_all_labels_about_npus_but_the_one_it_needs() -> None:
    labels = node_labels(inputs(feature_discovery={"enabled": True}), seen()) or {}
    assert {name for name in labels if name in {**TWO, **VERSION}} == {KEY + "present"}
    assert labels[GATE + "feature-discovery"] == "true" and labels["rebellions.ai/host.os-id"] == "ubuntu"


def test_nothing_is_written_when_the_npus_are_unknown() -> None:
    assert node_labels(inputs(), Seen()) is None
    assert node_labels(inputs(), seen([], probes={"pci": {"state": "denied"}})) is None
    assert member_record("a", inputs(), facts([], probes={"pci": {"state": "failed"}}))["labels"] is None


@pytest.mark.parametrize(
    "given, expected", [("", None), ("container", "container"), ("vm-passthrough", "vm-passthrough")]
)
def test_workload_is_said_only_when_the_host_s_input_says_it(given: str, expected: str | None) -> None:
    assert (node_labels(inputs(node_workload=given, workload="container"), seen()) or {}).get(
        KEY + "workload.config"
    ) == expected


RUNTIME_CASES = {
    "containerd": ({"kubernetes_runtime": "containerd"}, "containerd"),
    "docker by cri-dockerd": ({"kubernetes_runtime": "docker"}, "docker"),
    "cri-o": ({"kubernetes_runtime": "cri-o"}, "crio"),
    "a socket of none we know": (
        {"kubernetes_runtime": None, "kubelet": {"runtime_endpoint": "/run/foo.sock"}},
        "other",
    ),
    "not known": ({"kubernetes_runtime": None, "kubelet": {"present": True, "runtime_endpoint": ""}}, None),
    "not looked at": ({}, None),
}


@pytest.mark.parametrize("case", RUNTIME_CASES)
def test_runtime(case: str) -> None:
    runtimes, expected = RUNTIME_CASES[case]
    assert (node_labels(inputs(), Seen(facts([CA22]), runtimes, RIGHT)) or {}).get(
        "rebellions.ai/host.runtime"
    ) == expected


EXPORTER = {"metrics_exporter": {"enabled": True, "image": IMAGE}}
KUBELET_CASES = {
    "the default": ("/var/lib/kubelet", {}, "default"),
    "written otherwise": ("/var/lib//kubelet/", {}, "default"),
    "no kubelet": ("", {}, None),
    "declared": ("/data/kubelet", {"kubelet_roots": ["/data/kubelet"], **EXPORTER}, "1fdec678"),
    "another default": ("/data/kubelet", {"kubelet_root": "/data/kubelet"}, "default"),
    "nothing needs it": ("/data/kubelet", {}, "1fdec678"),
}


def rooted(root: str) -> Seen:
    return Seen(facts([CA22]), {"kubelet": {"present": bool(root), "root_dir": root}}, RIGHT)


@pytest.mark.parametrize("case", KUBELET_CASES)
def test_kubelet_root(case: str) -> None:
    root, given, expected = KUBELET_CASES[case]
    assert (node_labels(inputs(**given), rooted(root)) or {}).get("rebellions.ai/host.kubelet") == expected


def test_a_kubelet_that_is_not_there_has_no_root() -> None:
    gone = Seen(facts([CA22]), {"kubelet": {"present": False, "root_dir": "/var/lib/kubelet"}}, RIGHT)
    assert "rebellions.ai/host.kubelet" not in (node_labels(inputs(), gone) or {})


def test_a_root_directory_that_no_input_names_is_refused_with_the_line_to_add() -> None:
    with pytest.raises(
        NpuError,
        match=(
            r"/data/kubelet, which no input names and metrics-exporter .*rbln_operands_kubelet_roots: "
            r"\[/opt/k, /data/kubelet\]"
        ),
    ):
        node_labels(inputs(kubelet_roots=["/opt/k"], **EXPORTER), rooted("/data/kubelet"))
    more = {"rbln_runtimes": {"kubelet": {"present": True, "root_dir": "/data/kubelet"}}}
    with pytest.raises(NpuError, match="/data/kubelet"):
        member_record("a", inputs(**EXPORTER), facts([CA22]), more)
    for without in ({"state": "absent"}, {"enabled": False}, {"delivery": "render", "render_dir": "/out"}):
        assert member_record("a", inputs(**without, **EXPORTER), facts([CA22]), more)["labels"] is None


CONTAINERS: Data = {
    "driver": {
        "enabled": True,
        "image": IMAGE,
        "pools": [{"os_id": "ubuntu", "os_version": "22.04", "kernel": "6.8.0-117-generic"}],
    },
    "container_toolkit": {"enabled": True, "image": IMAGE},
    "smd": {"enabled": True, "image": IMAGE},
}
SMD = {"smd": CONTAINERS["smd"]}
TOOLKIT = {"container_toolkit": CONTAINERS["container_toolkit"]}
VM: Data = {
    "workload": "vm-passthrough",
    "vfio_manager": {"enabled": True},
    "sandbox_device_plugin": {"enabled": True, "image": IMAGE},
}
BOUND = {**CA22, "state": "passthrough"}
HALF: Data = {
    "passed": False, "markers": {"current": False, "present": ["driver-ready"]}, "failed": ["spec"], "unknown": [],
    "checks": [{"name": "loaded", "scope": "driver"}, {"name": "spec", "scope": "toolkit"}],
}  # fmt: skip
NAMED = {**HALF, "checks": HALF["checks"][1:], "passed_checks": {"driver": ["loaded"]}}
TOOL = {**RIGHT, "host_tool": {"sha256": "0" * 64}}
BOTH = {"device-plugin", "validator"}
SANDBOX_NAMES = {"vfio-manager", "sandbox-validator", "sandbox-device-plugin"}
OPEN = {
    "observed as right": (seen(), {}, BOTH),
    "proven in this run, observed before as new": (seen(observed=NEW, proof={"passed": True}), {}, BOTH),
    "a proof that was left out says nothing": (seen(proof={"skipped": True}), {}, BOTH),
    "a proof that failed counts more than what was seen before": (
        seen(proof={"passed": False, "failed_checks": ["x"]}),
        {},
        set(),
    ),
    "new": (seen(observed=NEW), {}, set()),
    "passed, but ready files not right": (
        seen(observed={**RIGHT, "markers": {"current": False, "present": []}}),
        {},
        set(),
    ),
    "not observed": (Seen(facts([CA22])), {}, set()),
    "no usable function": (seen(usable=0), {}, set()),
    "daemon in a pod": (seen(), SMD, {*BOTH, "smd"}),
    "daemon on the host": (seen(daemon={"state": "active"}), SMD, BOTH),
    "driver on the host": (seen(toolkit="container"), CONTAINERS, {*BOTH, "container-toolkit", "smd"}),
    "driver is to come to the host": (seen(observed=NEW, via="none", usable=0, source="runfile"), CONTAINERS, set()),
    "driver in a container, new": (
        seen(observed=NEW, via="none", usable=0, toolkit="container"),
        CONTAINERS,
        {*BOTH, "driver", "container-toolkit", "smd"},
    ),
    "driver in a container, said so": (
        seen(via="container", source="container", toolkit="container"),
        CONTAINERS,
        {*BOTH, "driver", "container-toolkit", "smd"},
    ),
    "driver in a container, without a function": (seen([BOUND], via="none"), CONTAINERS, set()),
    "toolkit in a container, driver proven alone": (
        seen(observed=HALF, toolkit="container"),
        TOOLKIT,
        {*BOTH, "container-toolkit"},
    ),
    "toolkit in a container, driver failed": (
        seen(observed={**HALF, "failed": ["loaded", "spec"]}, toolkit="container"),
        TOOLKIT,
        set(),
    ),
    "toolkit in a container, driver proven alone, by names": (
        seen(observed=NAMED, toolkit="container"),
        TOOLKIT,
        {*BOTH, "container-toolkit"},
    ),
    "toolkit in a container, no ready file": (
        seen(observed={**HALF, "markers": {"current": False, "present": []}}, toolkit="container"),
        TOOLKIT,
        set(),
    ),
    "driver alone is not enough where the host does both": (seen(observed=HALF), {}, set()),
    "toolkit on the host": (seen(), TOOLKIT, BOTH),
    "toolkit in a container of a host with the tool": (
        seen(observed=TOOL, toolkit="container"),
        TOOLKIT,
        {*BOTH, "container-toolkit"},
    ),
    # What was observed is of before its toolkit.
    "toolkit on the host, in its first run": (seen(observed=NEW, proof={"passed": True}), TOOLKIT, BOTH),
    "driver in a container and toolkit on the host, new": (
        seen(observed=NEW, via="none", usable=0),
        CONTAINERS,
        {*BOTH, "driver", "smd"},
    ),
    "for virtual machines, not bound yet": (seen([{**CA22, "state": "unbound"}], NEW, usable=0), VM, SANDBOX_NAMES),
    "for virtual machines, bound": (seen([BOUND], NEW, usable=0), VM, SANDBOX_NAMES),
    "for virtual machines, no IOMMU": (
        seen([{**BOUND, "iommu_group": None}], NEW, usable=0),
        VM,
        {"vfio-manager", "sandbox-validator"},
    ),
    "for virtual machines, fell off the bus": (seen([{**BOUND, "state": "unreachable"}], NEW, usable=0), VM, set()),
}


@pytest.mark.parametrize("case", OPEN)
def test_gates(case: str) -> None:
    found, given, expected = OPEN[case]
    assert open_gates(found, **given) == expected


LACK_PROOF = {
    "a proof that failed counts more than what was seen before",
    "new",
    "passed, but ready files not right",
    "not observed",
    "toolkit in a container, driver failed",
    "toolkit in a container, no ready file",
    "driver alone is not enough where the host does both",
}


@pytest.mark.parametrize("case", OPEN)
def test_only_usable_npus_for_containers_need_a_proof_of_their_host(case: str) -> None:
    known, given, _open = OPEN[case]
    assert lacks_proof(inputs(**given), known) is (case in LACK_PROOF)


def test_npus_for_virtual_machines_need_no_proof() -> None:
    assert not lacks_proof(inputs(**VM), seen(observed=NEW))


DRIVER: Data = {"driver": {"enabled": True, "image": IMAGE, "manager": {"image": IMAGE}}}
UNBOUND: Data = {**CA22, "state": "unbound"}
EXPECTED: dict[str, tuple[Seen, Data, int | None]] = {
    "usable": (seen(), {}, 2),
    "no NPU": (seen([]), {"workload": "vm-passthrough"}, 0),
    "not known": (Seen(), {}, None),
    "one does not say its state": (seen([CA22, {**CA22, "state": "unknown"}], usable=1), {}, None),
    "for virtual machines": (seen([UNBOUND], usable=0), {"workload": "vm-passthrough"}, None),
    "this host for virtual machines": (seen([UNBOUND], usable=0), {"node_workload": "vm-passthrough"}, None),
    "the driver's container has not run yet": (
        seen([UNBOUND, UNBOUND, {**CA22, "state": "unreachable"}], NEW, usable=0, via="none"),
        DRIVER,
        2,
    ),
    "the driver's container runs": (seen(via="container"), DRIVER, 2),
    "a driver of its own that does not bind": (seen([UNBOUND], NEW, usable=0), DRIVER, 0),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_how_many_npus_a_node_is_to_offer(case: str) -> None:
    found, given, expected = EXPECTED[case]
    assert expected_npus(inputs(**given), found) == expected


@pytest.mark.parametrize("workload, expected", [("container", False), ("vm-passthrough", True)])
def test_a_component_of_either_workload_goes_by_the_workload_of_the_node(workload: str, expected: bool) -> None:
    new = seen([BOUND], NEW, usable=0)
    assert (
        "feature-discovery" in open_gates(new, feature_discovery={"enabled": True}, node_workload=workload)
    ) is expected


def test_only_enabled_components_with_pods_have_a_gate() -> None:
    labels = node_labels(inputs(device_plugin={"enabled": False}, node_feature_rule={"enabled": True}), seen()) or {}
    assert [name for name in labels if name.startswith(GATE)] == [GATE + "validator"]


def test_the_components_that_are_named_here_are_there() -> None:
    assert {*SANDBOX, *EITHER} <= {row.key for row in COMPONENTS}


def test_member_record_takes_what_the_run_knows() -> None:
    more = {"rbln_runtimes": RUNTIMES, "rbln_observed": NEW}
    record = member_record("a", inputs(), facts([CA22]), more, {"passed": True}, "runfile")
    assert (record["labels"][GATE + "validator"], record["labels"]["rebellions.ai/host.runtime"]) == ("true", "crio")
    assert member_record("a", inputs(), facts([CA22]), more)["labels"][GATE + "validator"] == "false"


def node(labels: dict[str, str], ours: list[str]) -> Data:
    fields = {"f:metadata": {"f:labels": {"f:" + name: {} for name in ours}}}
    entries = [
        {
            "manager": "kubelet",
            "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:kubernetes.io/os": {}}}},
        },
        {"manager": "rebellions-npu", "operation": "Apply", "fieldsV1": fields},
    ]
    return {"metadata": {"name": "n", "labels": labels, "managedFields": entries}}


def test_only_what_we_applied_is_ours() -> None:
    assert owned_labels(node({"a": "1", "kubernetes.io/os": "linux"}, ["a"])) == {"a"}
    assert owned_labels({"metadata": {"name": "n"}}) == set()


SETTLE: dict[str, tuple[dict[str, str], list[str], dict[str, str], dict[str, str], int]] = {
    "new label": ({}, [], {"g": "true"}, {"g": "true"}, 0),
    "ours is updated": ({"g": "false"}, ["g"], {"g": "true"}, {"g": "true"}, 0),
    "an administrator's other value stays": ({"g": "false"}, [], {"g": "true"}, {}, 1),
    "an administrator's same value stays theirs": ({"g": "true"}, [], {"g": "true"}, {}, 0),
}


@pytest.mark.parametrize("case", SETTLE)
def test_labels_of_others_are_respected(case: str) -> None:
    live, ours, wanted, apply, notes = SETTLE[case]
    found = settle_labels(wanted, node(live, ours))
    assert found[0] == apply
    assert len(found[1]) == notes
    assert all("g=false" in note for note in found[1])
