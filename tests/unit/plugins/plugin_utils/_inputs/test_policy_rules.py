# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs that do not fit each other are refused, and what is unusual is noted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import instances
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import digest, read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.policy_rules import COMPONENTS, check
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import BASE, inputs, objects

SPEC = role_inputs(("rbln_operands",))
DRA = {"dra_driver": {"enabled": True}, "device_plugin": {"enabled": False}}
POOL = {"os_id": "ubuntu", "os_version": "24.04", "kernel": "6.8.0-117-generic"}


@dataclasses.dataclass
class Capabilities:
    groups: dict[str, tuple[str, ...]]


def instance(name: str, **selector: Any) -> dict[str, Any]:
    return {"name": name, "enabled": True, "node_selector": selector}


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "DRA and device plugin": (
        {"dra_driver": {"enabled": True}},
        ("rbln_operands_dra_driver and rbln_operands_device_plugin", "{enabled: false}"),
    ),
    "DRA and sandbox plugin": (
        {**DRA, "sandbox_device_plugin": {"enabled": True}},
        ("rbln_operands_sandbox_device_plugin", "twice"),
    ),
    "two instances of a name": (
        {"driver_instances": [instance("a", x="1"), instance("a", x="2")]},
        ("two instances a",),
    ),
    "name of an instance": ({"driver_instances": [instance("A_1")]}, ("driver_instances[0].name is 'A_1'",)),
    "instance without selector": (
        {"driver_instances": [instance("a", x="1"), instance("b")]},
        ("b has no node selector",),
    ),
    "the same nodes": (
        {"driver_instances": [instance("a", x="1"), instance("b", x=1)]},
        ("a and b select the same nodes",),
    ),
    "overlap": (
        {"driver_instances": [instance("a", x="1"), instance("b", y="1")]},
        ("both a and b", "add x to b or y to a"),
    ),
    "families are spelled in two ways": (
        {
            "driver_instances": [
                instance("a", **{instances.FAMILY_KEY: "atom"}),
                instance("b", **{instances.FAMILY_KEY: "ATOM"}),
            ]
        },
        ("select the same nodes",),
    ),
    "address that is no CIDR": (
        {"api_server_cidrs": ["10.0.0.10/32", "api.example.org"]},
        ("rbln_operands_api_server_cidrs has 'api.example.org'", "10.0.0.10/32"),
    ),
    "range that is no CIDR": (
        {"cluster_cidrs": ["10.0.0.0/99"]},
        ("rbln_operands_cluster_cidrs has '10.0.0.0/99'", "10.0.0.10/32"),
    ),
    "domain with blanks": ({"cluster_domain": "a b,c"}, ("rbln_operands_cluster_domain is 'a b,c'", "cluster.local")),
    "relative sysfs": (
        {"feature_discovery": {"host_sys_path": "sys"}},
        ("feature_discovery.host_sys_path is 'sys'", "/sys"),
    ),
    "owner in a selector": (
        {"driver": {"node_selector": {instances.OWNER_KEY: "a"}}},
        ("rbln_operands_driver", instances.OWNER_KEY),
    ),
    "gate in an affinity": (
        {
            "driver_instances": [
                {"name": "a", "node_affinity": [{"key": instances.GATE_PREFIX + "driver", "operator": "Exists"}]}
            ]
        },
        ("driver_instances a selects", instances.GATE_PREFIX + "driver"),
    ),
    "gate in an alternative": (
        {
            "driver": {
                "affinity_terms": [{"expressions": [{"key": instances.GATE_PREFIX + "smd", "operator": "Exists"}]}]
            }
        },
        (instances.GATE_PREFIX + "smd",),
    ),
    "driver rolls by itself": (
        {"driver": {"update_strategy": {"type": "RollingUpdate"}}},
        ("driver.update_strategy is not OnDelete",),
    ),
    "driver without rights": (
        {"driver": {"privileged": False}},
        ("rbln_operands_driver.privileged is false", "host part"),
    ),
    "instance without rights": (
        {"driver_instances": [{"name": "a", "privileged": False}]},
        ("rbln_operands_driver_instances[0].privileged is false",),
    ),
    "roots of instances": (
        {
            "driver_instances": [
                {**instance("a", x="1"), "host_root": "/a"},
                {**instance("b", x="2"), "host_root": "/b"},
            ],
            "container_toolkit": {"enabled": True},
        },
        ("several host_root: /a, /b", "the same host_root"),
    ),
    "field of the template": ({"driver": {"tag_template": "{tag}-{kernal}"}}, ("{kernal}", "kernel")),
    "template": ({"driver": {"tag_template": "{tag"}}, ("driver.tag_template is '{tag'",)),
    "template with a format": ({"driver": {"tag_template": "{tag!r}"}}, ("driver.tag_template",)),
    "namespace that leads elsewhere": ({"namespace": "../npu"}, ("rbln_operands_namespace is '../npu'",)),
    "namespace with a line break": ({"namespace": "npu\nx"}, ("rbln_operands_namespace",)),
    "pull secret": ({"image_pull_secrets": ["ok.name", "Bad Name"]}, ("rbln_operands_image_pull_secrets", "Bad Name")),
    "own pull secret": ({"pull_secret_name": "a/b"}, ("rbln_operands_pull_secret_name is 'a/b'",)),
    "comparison of what is to go": (
        {"delivery": "diff", "enabled": True, "state": "absent"},
        ("rbln_operands_delivery is diff", "--check"),
    ),
    "render without pools": (
        {"delivery": "render", "render_dir": "/tmp/x", "driver": {"enabled": True}},
        ("rbln_operands_driver is enabled and has no pools",),
    ),
    "render of an instance without pools": (
        {
            "delivery": "render",
            "render_dir": "/tmp/x",
            "driver": {"enabled": True},
            "driver_instances": [instance("a")],
        },
        ("driver_instances[0] is enabled and has no pools",),
    ),
    "render without directory": ({"delivery": "render", "render_dir": ""}, ("rbln_operands_render_dir is empty",)),
    "no wait": ({"wait_timeout": 0}, ("rbln_operands_wait_timeout is 0", "at least 1")),
    "port": ({"smd": {"port": 65536}}, ("rbln_operands_smd.port is 65536", "from 1 to 65535")),
    "interval": ({"feature_discovery": {"interval": 5}}, ("feature_discovery.interval is 5", "10 to 3600")),
    "interval of the exporter": ({"metrics_exporter": {"interval": 0}}, ("metrics_exporter.interval",)),
    "deadline of nobody": ({"deadlines": {"drivr": 5}}, ("deadlines", "drivr", "Did you mean driver?")),
    "deadline": ({"deadlines": {"driver": "soon"}}, ("deadlines.driver is 'soon'",)),
    "prefix": ({"name_prefix": "Rbln"}, ("rbln_operands_name_prefix is 'Rbln'",)),
    "kubelet root": ({"kubelet_root": "var/lib"}, ("rbln_operands_kubelet_root is 'var/lib'",)),
    "other kubelet roots": ({"kubelet_roots": ["/data/kubelet", "x"]}, ("rbln_operands_kubelet_roots is 'x'",)),
    "class without handler": ({"runtime_class": {"enabled": True}}, ("rbln_operands_runtime_class", "handler")),
    "driver without a validator": (
        {"driver": {"enabled": True, "image": {"tag": "1"}}, "validator": {"enabled": False}},
        ("rbln_operands_driver is enabled without rbln_operands_validator",),
    ),
    "toolkit without a validator": (
        {"container_toolkit": {"enabled": True, "image": {"tag": "1"}}, "validator": {"enabled": False}},
        ("rbln_operands_container_toolkit is enabled without rbln_operands_validator",),
    ),
    "toolkit without its step": (
        {
            "container_toolkit": {"enabled": True, "image": {"tag": "1"}},
            "validator": {"checks": {"toolkit": {"enabled": False}}},
        },
        ("rbln_operands_container_toolkit", "rbln_operands_validator.toolkit.enabled", "toolkit-ready"),
    ),
    "driver without its step": (
        {"driver": {"enabled": True, "image": {"tag": "1"}}, "validator": {"driver": {"enabled": False}}},
        ("rbln_operands_driver", "rbln_operands_validator.driver.enabled", "driver-ready"),
    ),
    "update of nothing": (
        {"update_strategy": {"rollingUpdate": {"maxUnavailable": 0}}},
        ("rbln_operands_update_strategy", "maxSurge"),
    ),
    "rare readings": (
        {"metrics_exporter": {"interval": 61}},
        ("rbln_operands_metrics_exporter.interval is 61", "from 1 to 60"),
    ),
    "resource of nobody": (
        {"resource_name": "rebellions.ai/atom"},
        ("resource_name is rebellions.ai/atom", "rebellions.ai/npu, rebellions.ai/ATOM, rebellions.ai/REBEL"),
    ),
    "resource of nobody by a mirror": (
        {"resource_name": "example.com/npu", "device_plugin": {"image": {"repository": "mirror/k8s-device-plugin"}}},
        ("example.com/npu", "rbln_operands_device_plugin.image.repository"),
    ),
    "resource": ({"resource_name": "npu"}, ("rbln_operands_resource_name is 'npu'", "rebellions.ai/npu")),
    "an image that ends": (
        {"feature_discovery": {"enabled": True, "source": "image", "image": {"tag": "1"}, "oneshot": True}},
        ("rbln_operands_feature_discovery.oneshot", "host_tool"),
    ),
    "daemon of the pod itself": (
        {"metrics_exporter": {"enabled": True, "host_network": False}},
        ("rbln_operands_metrics_exporter.host_network", "127.0.0.1:50051", "daemon_url"),
    ),
    "address of the daemon": (
        {"smd": {"enabled": True, "host_ip": "localhost"}},
        ("rbln_operands_smd.host_ip is 'localhost'", "127.0.0.1"),
    ),
    "two ports of the daemon": (
        {"smd": {"enabled": True, "port": 50052}, "metrics_exporter": {"enabled": True}},
        ("daemon_url is 127.0.0.1:50051", "port is 50052"),
    ),
    "daemon at another address": (
        {"smd": {"enabled": True, "host_ip": "10.0.0.7"}, "metrics_exporter": {"enabled": True}},
        ("daemon_url is 127.0.0.1:50051", "host_ip is 10.0.0.7"),
    ),
    "namespace": ({"namespace": "Rbln_System"}, ("rbln_operands_namespace is 'Rbln_System'",)),
    "key of a label": ({"labels": {"my key": "x"}}, ("rbln_operands_labels: 'my key' is not a valid Kubernetes key",)),
    "domain of a label": (
        {"smd": {"labels": {"/x": "x"}}},
        ("rbln_operands_smd.labels: '/x' is not a valid Kubernetes key",),
    ),
    "value of a label": ({"labels": {"team": "a b"}}, ("rbln_operands_labels.team is 'a b'", "63")),
    "number that YAML has changed": (
        {"node_selector": {"release": 1.10}},
        ("rbln_operands_node_selector.release is 1.1", "Quote"),
    ),
    "nested selector": (
        {"smd": {"node_selector": {"zone": ["a"]}}},
        ("rbln_operands_smd.node_selector.zone is ['a']",),
    ),
    "nested annotation": ({"annotations": {"a": {"b": 1}}}, ("rbln_operands_annotations.a is {'b': 1}",)),
    "name of a pull secret": (
        {"image_pull_secrets": ["My Secret"]},
        ("rbln_operands_image_pull_secrets[0] is 'My Secret'",),
    ),
    "name of an image's pull secret": (
        {"helper_image": {"pull_secrets": ["a_b"]}},
        ("rbln_operands_helper_image.pull_secrets[0] is 'a_b'",),
    ),
    "priority class": ({"smd": {"priority_class": "Big One"}}, ("rbln_operands_smd.priority_class is 'Big One'",)),
    "name of a volume": (
        {"smd": {"host_paths": [{"name": "my.data", "path": "/x"}]}},
        ("rbln_operands_smd.host_paths[0].name is 'my.data'", "volume"),
    ),
    "name of a class": ({"runtime_class": {"name": "A_B"}}, ("rbln_operands_runtime_class.name is 'A_B'",)),
    "handler": ({"runtime_class": {"enabled": True, "handler": "A"}}, ("rbln_operands_runtime_class.handler is 'A'",)),
    "relative host path": (
        {"smd": {"host_paths": [{"name": "x", "path": "data"}]}},
        ("rbln_operands_smd.host_paths[0].path is 'data'", "/run/rbln"),
    ),
    "path upwards": (
        {"device_plugin": {"device_plugins_dir": "/a/../b"}},
        ("rbln_operands_device_plugin.device_plugins_dir",),
    ),
    "ready files with a space": ({"marker_dir": "/run/a b"}, ("rbln_operands_marker_dir is '/run/a b'",)),
    "driver at the root": (
        {"driver": {"host_root": "/"}},
        ("rbln_operands_driver.host_root is '/'", "/run/rbln/driver"),
    ),
    "duration": ({"device_plugin": {"scan_interval": "often"}}, ("device_plugin.scan_interval is 'often'",)),
    "no duration": (
        {"device_plugin": {"scan_interval": "0m0.0s"}},
        ("device_plugin.scan_interval is '0m0.0s'", "no time"),
    ),
    "takeover": ({"coexistence": "takeover"}, ("backup_dir",)),
    "vm-vgpu": ({"workload": "vm-vgpu"}, ("rbln_operands_workload is 'vm-vgpu'", "vm-passthrough")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_together_is_refused(case: str) -> None:
    given, words = REFUSED[case]
    with pytest.raises(NpuError) as caught:
        inputs(**given)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.next_step


STEPS = {"source": "image", **{step: {"args": [step]} for step in ("driver", "toolkit", "plugin")}}
ACCEPTED: dict[str, dict[str, Any]] = {
    "DRA alone": DRA,
    "disjoint instances": {"driver_instances": [instance("a", x="1"), instance("b", x="2")]},
    "nested instances": {
        "driver_instances": [instance("a", x="1"), instance("b", x="1", y="1"), instance("c", x="1", y="2")]
    },
    "one instance for all": {"driver_instances": [instance("a")]},
    "an instance that is off": {"driver_instances": [instance("a", x="1"), {**instance("b", y="1"), "enabled": False}]},
    "render with pools": {
        "delivery": "render",
        "render_dir": "/tmp/x",
        "driver": {"enabled": True, "pools": [POOL]},
        "validator": STEPS,
    },
    "daemon and exporter": {
        "smd": {"enabled": True, "port": 7, "host_ip": "0.0.0.0"},
        "metrics_exporter": {"enabled": True, "daemon_url": "127.0.0.1:7"},
    },
    "template": {"driver": {"tag_template": "{tag}-{kernel}-{os_id}{os_version}"}},
    "resource of a family": {"resource_name": "rebellions.ai/REBEL"},
    "resource of virtual functions": {"resource_name": "rebellions.ai/npu-vf4"},
    "resource of another plugin": {
        "resource_name": "example.com/npu",
        "device_plugin": {"image": {"repository": "example/plugin"}},
    },
    "resource of the device class": {**DRA, "resource_name": "example.com/npu"},
    "deadlines": {"deadlines": {"driver": "1800", "smd": 0, "sandbox_validator": 900}},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_fits_is_accepted(case: str) -> None:
    assert inputs(**ACCEPTED[case])["notes"] == []


@pytest.mark.parametrize(
    "groups, ok",
    [({}, False), ({"resource.k8s.io": ("v1beta1",)}, False), ({"resource.k8s.io": ("v1", "v1beta1")}, True)],
)
def test_DRA_is_never_skipped(groups: dict[str, tuple[str, ...]], ok: bool) -> None:
    wanted = inputs(**DRA)
    if ok:
        assert check(wanted, SPEC, Capabilities(groups)) == []
        return
    with pytest.raises(NpuError, match=r"resource.k8s.io/v1.*1\.34"):
        check(wanted, SPEC, Capabilities(groups))


NOTED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "exporter without daemon": (
        {"metrics_exporter": {"enabled": True}},
        ("expects the daemon rbln-smd of each host at 127.0.0.1:50051",),
    ),
    "vfio manager without nodes": (
        {"vfio_manager": {"enabled": True}},
        ("rbln_operands_vfio_manager", "vm-passthrough"),
    ),
    "image without use": (
        {"validator": {"image": {"tag": "1"}}},
        ("rbln_operands_validator.image", "source is host_tool", "source to image"),
    ),
    "end of an image": (
        {"vfio_manager": {"enabled": True, "source": "image", "release_on_exit": True}, "workload": "vm-passthrough"},
        ("rbln_operands_vfio_manager.release_on_exit",),
    ),
    "instances that are off": (
        {"driver_instances": [{"name": "a"}]},
        ("rbln_operands_driver_instances", "none is enabled"),
    ),
    "level that keeps all out": (
        {"pod_security": "restricted"},
        ("rbln_operands_pod_security is restricted", "privileged"),
    ),
    "group that is misspelt": (
        {"capabilities": {"groups": ["apps", "monitoring.coreos.con"]}},
        ("monitoring.coreos.con,", "monitoring.coreos.com is meant"),
    ),
    "steps that are alike": (
        {"validator": {"source": "image", "driver": {"args": ["driver"]}}},
        ("the steps toolkit, plugin have no command",),
    ),
    "driver container and host tool": ({"driver": {"enabled": True}}, ("rbln_operands_validator.source to image",)),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_is_unusual_is_noted(case: str) -> None:
    given, words = NOTED[case]
    notes = inputs(**given)["notes"]
    assert len(notes) == 1 and all(word in notes[0] for word in words), notes


def test_no_note_where_there_is_a_node_for_virtual_machines() -> None:
    assert inputs(vfio_manager={"enabled": True}, node_workload="vm-passthrough")["notes"] == []
    assert inputs(sandbox_device_plugin={"enabled": True}, workload="vm-passthrough")["notes"] == []


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(
        NpuError,
        match="^rbln_operands_nod_selector is not an input of this collection. "
        "Next: Write rbln_operands_node_selector, or ",
    ):
        read_inputs(BASE, [*BASE, "rbln_operands_nod_selector"])
    assert read_inputs(BASE, [*BASE, "rbln_operands_result", "other_operands_labels"])["notes"] == []
    assert read_inputs(BASE, [*BASE, "rbln_operandz_labels"], ["rbln_operandz_"])["notes"] == []


def test_an_instance_has_what_the_driver_says_but_not_its_selector() -> None:
    driver = {
        "enabled": True,
        "image": {"tag": "3.4.1", "pull_policy": "Always"},
        "node_selector": {"x": "1"},
        "env": {"A": "1"},
        "args": ["-v"],
    }
    own = [{"name": "a", "image": {"tag": "3.5.1"}, "args": []}, {"name": "b", "enabled": False}]
    first, second = inputs(driver=driver, driver_instances=own)["driver_instances"]
    assert (first["image"]["tag"], first["image"]["pull_policy"], first["image"]["repository"]) == (
        "3.5.1",
        "Always",
        "rebellions/rbln-driver",
    )
    assert (first["enabled"], first["node_selector"], first["env"], first["args"]) == (
        True,
        {},
        [{"name": "A", "value": "1"}],
        [],
    )
    assert (second["enabled"], second["image"]["tag"], second["update_strategy"]) == (
        False,
        "3.4.1",
        {"type": "OnDelete"},
    )


def test_instances_can_be_text() -> None:
    (found,) = inputs(driver='{"args": ["-v"]}', driver_instances='[{"name": "a"}]')["driver_instances"]
    assert (found["name"], found["args"]) == ("a", ["-v"])


@pytest.mark.parametrize(
    "left, right, expected",
    [
        ({"x": "1"}, {"x": "2"}, "disjoint"),
        ({"x": "1"}, {"x": "1", "y": "1"}, "wider"),
        ({"x": "1", "y": "1"}, {"x": "1"}, "narrower"),
        ({"x": "1"}, {"x": "1"}, "same"),
        ({"x": "1"}, {"y": "1"}, "unclear"),
        ({}, {"y": "1"}, "wider"),
    ],
)
def test_two_selectors(left: dict[str, str], right: dict[str, str], expected: str) -> None:
    assert instances.relation(left, right) == expected


def test_a_family_has_all_its_spellings() -> None:
    assert instances.spellings("REBEL") == instances.spellings("rebel100") == ("rebel100", "REBEL")
    assert instances.spellings("atom") == ("atom", "ATOM") and instances.spellings("new") == ("new",)


def test_the_shared_strategy_is_that_of_every_component_but_the_driver() -> None:
    found = inputs(update_strategy={"type": "OnDelete"}, smd={"update_strategy": {"type": "RollingUpdate"}})
    strategies = {
        name: found[name]["update_strategy"]["type"] for name in COMPONENTS if "update_strategy" in found[name]
    }
    assert strategies.pop("smd") == "RollingUpdate" and set(strategies.values()) == {"OnDelete"} and len(strategies) > 5


def test_the_steps_of_the_validator_can_be_switched_by_checks() -> None:
    own = inputs(validator={"checks": {"plugin": {"enabled": False}, "driver": {}}, "toolkit": {"enabled": False}})[
        "validator"
    ]
    assert [own[step]["enabled"] for step in ("driver", "toolkit", "plugin", "vfio")] == [True, False, False, True]


def test_hosts_of_one_cluster_may_differ_in_what_is_their_own() -> None:
    assert digest(inputs()) == digest(inputs(node_name="a", node_workload="vm-passthrough", vfio_manager={}))
    assert digest(inputs()) != digest(inputs(workload="vm-passthrough"))


class Tagged(str):
    """Text as Ansible's templates give it."""


def test_text_of_a_template_can_be_written() -> None:
    strategy = {
        Tagged("type"): Tagged("RollingUpdate"),
        Tagged("rollingUpdate"): {Tagged("maxUnavailable"): Tagged("10%")},
    }
    items = objects(
        update_strategy=strategy,
        device_plugin={"resources": {"limits": {Tagged("memory"): Tagged("1Mi")}}},
        tolerations=[{"key": Tagged("a")}],
    )
    assert "maxUnavailable: 10%" in manifests(items)


def test_new_components_are_off() -> None:
    found = inputs()
    assert {name for name in COMPONENTS if found[name]["enabled"]} == {"device_plugin", "validator"}


def test_every_component_is_a_component() -> None:
    switched = {
        name[len("rbln_operands_") :]
        for name, entry in SPEC.items()
        if "enabled" in (entry.get("options") or {}) and entry["type"] == "dict"
    }
    assert switched - {"runtime_class", "label_policy", "smoke"} == set(COMPONENTS)


@pytest.mark.parametrize("value", [5, ["REP-SECRET"], 1.5])
def test_k11_a_kubeconfig_is_a_path_or_a_kubeconfig_and_never_shown(value: Any) -> None:
    with pytest.raises(NpuError, match="rbln_operands_kubeconfig is neither a path nor a kubeconfig") as caught:
        inputs(kubeconfig=value)
    assert "REP-SECRET" not in str(caught.value)


def test_k11_a_mapping_is_the_content_of_a_kubeconfig() -> None:
    assert inputs(kubeconfig={"kind": "Config"})["kubeconfig"] == '{"kind": "Config"}'
    assert inputs(kubeconfig=" ~/.kube/config ")["kubeconfig"] == "~/.kube/config"
