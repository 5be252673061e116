# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policy files in every form of the vendor's say the same as the role's variables; errors name the place."""

from __future__ import annotations

import pathlib
from typing import Any, Callable

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import policy_keys as keys
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.policy_files import Policy, read_policy
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

SPEC = role_inputs(("rbln_operands",))
ROWS = keys.rows(SPEC)
Write = Callable[..., str]


@pytest.fixture(name="write")
def _write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes documents to a file in the working directory and gives its name; text is written as it is."""
    monkeypatch.chdir(tmp_path)

    def write(*documents: Any, name: str = "values.yaml") -> str:
        parts = [item if isinstance(item, str) else yaml.safe_dump(item, sort_keys=False) for item in documents]
        (tmp_path / name).write_text("---\n".join(parts), encoding="utf-8")
        return name

    return write


def policy(*files: str, ignore: tuple[str, ...] = ()) -> Policy:
    return read_policy(files, ignore, SPEC)


def put(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def take(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def cluster_policy(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "rebellions.ai/v1beta1", "kind": "RBLNClusterPolicy", "metadata": {"name": "p"}, "spec": spec}


def driver(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rebellions.ai/v1alpha1",
        "kind": "RBLNDriver",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": spec,
    }


EXPRESSION = {"key": "zone", "operator": "In", "values": ["a"]}
# What is written for a key of each input, and what becomes of it.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "enabled": (True, True),
    "pull_secrets": (["a", {"name": "b"}], ["a", "b"]),
    "resources": ({"limits": {"memory": "1Gi"}},) * 2,
    "args": (["-v"],) * 2,
    "env": ([{"name": "A", "value": "1"}],) * 2,
    "labels": ({"a": "b"},) * 2,
    "annotations": ({"a": "b"},) * 2,
    "node_selector": ({"a": "b"},) * 2,
    "tolerations": ([{"operator": "Exists"}],) * 2,
    "node_affinity": ([EXPRESSION],) * 2,
    "update_strategy": ("OnDelete", {"type": "OnDelete"}),
    "deploy_default": (False, False),
    "honor_labels": (False, False),
    "pull_policy": ("Always", "Always"),
    "workload": ("vm-passthrough", "vm-passthrough"),
}


def sample(path: tuple[str, ...]) -> tuple[Any, Any]:
    model = ROWS[path].model
    return (True, "yes") if ROWS[path].reader == "switch" else SAMPLES.get(model[-1], ("3.10", "3.10"))


@pytest.mark.parametrize("form", ["chart", "policy"])
@pytest.mark.parametrize("path", ROWS, ids=".".join)
def test_every_key_sets_one_input(path: tuple[str, ...], form: str, write: Write) -> None:
    said, expected = sample(path)
    body = put(path, said)
    found = policy(write(body if form == "chart" else cluster_policy(**body)))
    assert take(found.tree, ROWS[path].model) == expected
    assert found.sources[ROWS[path].model] == "values.yaml: %s%s" % ("" if form == "chart" else "spec.", ".".join(path))
    assert set(found.sources) - {ROWS[path].model} <= {(ROWS[path].model[0], "source")} and not found.notes
    assert keys.option(SPEC, ROWS[path].model) is not None


def test_every_row_of_the_tables_is_known_somewhere() -> None:
    assert {leaf for leaf in keys.LEAVES if not any(section + leaf in ROWS for section in keys.SECTIONS)} == set()
    assert {section for section in keys.SECTIONS if not any(path[: len(section)] == section for path in ROWS)} == set()


FLAT = {
    "registry": "r.example",
    "image": "a/b",
    "tag": "1.10",
    "digest": "",
    "pullPolicy": "Always",
    "imagePullSecrets": ["s"],
}
NESTED = {
    "image": {"registry": "r.example", "repository": "a/b", "tag": "1.10", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "s"}],
}
IMAGES = sorted({path[:-1] for path in ROWS if path[-1] == "repository" and path[-2] != "image"})


@pytest.mark.parametrize("section", IMAGES, ids=".".join)
def test_flat_and_nested_give_the_same_000_31(section: tuple[str, ...], write: Write) -> None:
    flat, nested = policy(write(put(section, FLAT))), policy(write(put(section, NESTED)))
    assert flat.tree == nested.tree and flat.tree


def test_one_values_file_and_a_pair_of_objects_give_the_same_000_39(write: Write) -> None:
    own = {"image": {"tag": "3.4.1"}, "nodeSelector": {"x": "1"}, "manager": {"version": "1.0"}}
    rest = {"devicePlugin": NESTED, "workloadType": "container"}
    chart = policy(write({**rest, "driver": {"enabled": True, **own}}))
    assert chart.tree == policy(write(cluster_policy(**rest), driver("d", **own))).tree
    assert chart.tree["driver"] == {
        "enabled": True,
        "image": {"tag": "3.4.1"},
        "node_selector": {"x": "1"},
        "manager": {"image": {"tag": "1.0"}},
    }


def test_several_drivers_are_instances_by_their_names(write: Write) -> None:
    first, second = driver("a", nodeSelector={"x": "1"}, version="1"), driver("b", nodeSelector={"x": "2"}, version="2")
    found = inputs(policy_files=[write(cluster_policy(), first, second)])["driver_instances"]
    chart = {
        "driver": {"enabled": True, "instances": {name: item["spec"] for name, item in (("a", first), ("b", second))}}
    }
    assert found == inputs(policy_files=[write(chart)])["driver_instances"]
    assert [(own["name"], own["enabled"], own["image"]["tag"], own["node_selector"]) for own in found] == [
        ("a", True, "1", {"x": "1"}),
        ("b", True, "2", {"x": "2"}),
    ]


def test_objects_of_a_list_are_read(write: Write) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": [cluster_policy(smd={"enabled": True}), driver("d")]}
    with pytest.raises(NpuError, match="document 1: spec.smd is not known"):
        policy(write(body))
    body["items"] = [cluster_policy(rblnDaemon={"enabled": True}), driver("d")]
    assert policy(write(body)).tree == {"smd": {"enabled": True}, "driver": {"enabled": True}}


REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def test_affinity_in_the_form_of_Kubernetes(write: Write) -> None:
    term, preferred = (
        {"matchExpressions": [EXPRESSION]},
        [{"weight": 1, "preference": {"matchExpressions": [EXPRESSION]}}],
    )
    one = policy(
        write({"devicePlugin": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}, PREFERRED: preferred}}})
    ).tree
    assert one == {"device_plugin": {"node_affinity": [EXPRESSION], "preferred_node_affinity": preferred}}
    two = policy(write({"devicePlugin": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term, term]}}}})).tree
    assert two == {"device_plugin": {"affinity_terms": [{"expressions": [EXPRESSION]}] * 2}}


@pytest.mark.parametrize(
    "section, name",
    [("validator", "validator"), ("npuFeatureDiscovery", "feature_discovery"), ("vfioManager", "vfio_manager")],
)
def test_an_image_replaces_what_is_ours(section: str, name: str, write: Write) -> None:
    assert policy(write({section: {"image": {"tag": "1"}}})).tree[name]["source"] == "image"
    assert (
        "source"
        not in policy(write({section: {"image": {"pullPolicy": "Always", "tag": ""}, "enabled": True}})).tree[name]
    )


REFUSED: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "unknown key": (
        ({"devicePlugin": {"imge": {}}},),
        ("values.yaml: devicePlugin.imge is not known", "mean devicePlugin.image?", "Known here: annotations, args"),
    ),
    "unknown section": (({"devicePlugn": {}},), ("values.yaml: devicePlugn is not known", "mean devicePlugin?")),
    "unknown key of an object": (
        (cluster_policy(validator={"envs": []}),),
        ("spec.validator.envs", "mean spec.validator.env?"),
    ),
    "key in the wrong section": (
        ({"devicePlugin": {"deployDefault": True}},),
        ("devicePlugin.deployDefault", "mean driver.deployDefault?"),
    ),
    "key at the top": (({"serviceMonitor": {}},), ("serviceMonitor is not known", "metricsExporter.serviceMonitor")),
    "unknown key of a driver": ((driver("d", nodeSelektor={}),), ("spec.nodeSelektor", "mean spec.nodeSelector?")),
    "unknown key of an instance": (
        ({"driver": {"instances": {"a": {"verson": "1"}}}},),
        ("driver.instances.a.verson", "driver.instances.a.version"),
    ),
    "float as tag": (
        ({"driver": {"image": {"tag": 3.1}}},),
        ("driver.image.tag is the number 3.1", "Quote the intended text"),
    ),
    "whole number as version": (
        ({"driver": {"manager": {"version": 3}}},),
        ("driver.manager.version is the number 3",),
    ),
    "list as tag": (({"driver": {"tag": ["1"]}},), ("driver.tag must be text, not list",)),
    "two tags": (
        ({"driver": {"image": {"tag": "1"}, "version": "2"}},),
        ("driver.version and driver.image.tag set the same and differ: '2' and '1'",),
    ),
    "section is no mapping": (({"devicePlugin": True},), ("devicePlugin must be a mapping, not bool",)),
    "gone key": (({"sandboxDevicePlugin": {"resourceList": []}},), ("resourceList was removed in 0.11.1",)),
    "no such product": (({"workloadType": "vm-vgpu"},), ("workloadType is vm-vgpu: there is no such product",)),
    "secrets": (({"driver": {"imagePullSecrets": [{"nam": "a"}]}},), ("driver.imagePullSecrets",)),
    "secrets are no list": (({"driver": {"imagePullSecrets": "a"}},), ("imagePullSecrets must be a list",)),
    "affinity": (
        ({"driver": {"nodeAffinity": {"required": 1}}},),
        ("driver.nodeAffinity has the unknown key required", REQUIRED),
    ),
    "affinity by field": (
        ({"driver": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}}}},),
        ("driver.nodeAffinity", "matchExpressions"),
    ),
    "affinity that is empty": (
        ({"driver": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": None}]}}}},),
        ("driver.nodeAffinity", "no node"),
    ),
    "affinity type": (({"driver": {"nodeAffinity": "a"}},), ("nodeAffinity must be a list or a mapping",)),
    "switch": (({"metricsExporter": {"serviceMonitor": {"enabled": "on"}}},), ("serviceMonitor.enabled is 'on'",)),
    "two policies": (
        (cluster_policy(), cluster_policy()),
        ("values.yaml, document 1 and values.yaml, document 2", "one only"),
    ),
    "two drivers of a name": ((driver("d"), driver("d")), ("are both the RBLNDriver d",)),
    "driver without name": (({**driver("d"), "metadata": {}},), ("metadata.name is not set",)),
    "kind": (
        ({"apiVersion": "rebellions.ai/v1beta1", "kind": "RBLNClusterPolcy"},),
        ("RBLNClusterPolcy", "mean RBLNClusterPolicy?"),
    ),
    "another object": (({"apiVersion": "v1", "kind": "ConfigMap"},), ("is a ConfigMap of v1, which is not a policy",)),
    "beside the spec": (({**cluster_policy(), "spce": {}},), ("spce is not known", "spec")),
    "spec": (({**cluster_policy(), "spec": []},), ("spec must be a mapping",)),
    "list as file": (([1],), ("holds list in place of a mapping",)),
    "twice": (
        ("driver: {enabled: true}\ndriver: {enabled: false}\n",),
        ("values.yaml, line 2", "driver appears twice"),
    ),
    "no YAML": (("driver: [\n",), ("values.yaml, line", "is not valid YAML")),
    "key is no text": (("driver:\n  1: a\n",), ("driver has the key 1",)),
    "template": (("driver:\n  tag: {{ .Values.tag }}\n",), ("values.yaml, line 2: there is a template",)),
    "variable": (({"driver": {"tag": "${TAG}"}},), ("driver.tag is '${TAG}'",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named_with_its_place(case: str, write: Write) -> None:
    documents, words = REFUSED[case]
    with pytest.raises(NpuError) as caught:
        policy(write(*documents))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert str(caught.value).startswith("values.yaml") and caught.value.next_step


def test_a_file_that_is_not_there_is_named(write: Write) -> None:
    with pytest.raises(NpuError, match="none.yaml cannot be read: No such file"):
        policy("none.yaml")


def test_two_policies_in_two_files_are_refused(write: Write) -> None:
    with pytest.raises(NpuError, match="a.yaml and b.yaml are both a RBLNClusterPolicy"):
        policy(write(cluster_policy(), name="a.yaml"), write(cluster_policy(), name="b.yaml"))


def test_what_steers_the_operator_is_left_out_with_one_warning_each(write: Write) -> None:
    body = {
        "operator": {"replicas": 2, "x": {"y": 1}},
        "nfd": {"enabled": True},
        "nameOverride": "a",
        "fullnameOverride": "b",
        "driver": {"upgradePolicy": {"a": 1}},
    }
    notes = policy(write(body)).notes
    assert [note.split(" is left out")[0] for note in notes] == [
        "values.yaml: " + name
        for name in ("operator", "nfd", "nameOverride", "fullnameOverride", "driver.upgradePolicy")
    ]
    assert (
        policy(
            write(body), ignore=("operator", "nfd", "nameOverride", "fullnameOverride", "driver.upgradePolicy")
        ).notes
        == ()
    )


def test_what_the_cluster_keeps_is_left_out_with_one_warning(write: Write) -> None:
    body = {**driver("d", upgradePolicy={}), "status": {"state": "ready"}}
    body["metadata"] = {"name": "d", "labels": {}, "uid": "1", "annotations": {}}
    notes = policy(write(body)).notes
    assert (
        notes[0] == "values.yaml: metadata.annotations, metadata.uid, status are left out: only the cluster keeps such."
    )
    assert "spec.upgradePolicy" in notes[1] and len(notes) == 2


def test_a_key_can_be_left_out_on_purpose(write: Write) -> None:
    file = write(cluster_policy(devicePlugin={"imge": 1, "args": ["-v"]}, other={"a": 1}))
    found = policy(file, ignore=("devicePlugin.imge", "spec.other", "nothing"))
    assert found.tree == {"device_plugin": {"args": ["-v"]}}
    assert found.notes == ("rbln_operands_policy_ignore names nothing, which no file has.",)


def test_nothing_said_says_nothing(write: Write) -> None:
    assert (
        policy(
            write(
                {"devicePlugin": {"resources": {}, "image": {"tag": ""}, "nodeSelector": None}, "validator": None},
                "# empty\n",
            )
        ).tree
        == {}
    )


def test_a_shell_in_a_container_may_have_variables(write: Write) -> None:
    body = {"driver": {"args": ["-c", "echo ${HOME}"], "env": [{"name": "A", "value": "${B}"}]}}
    assert policy(write("# {{ a comment }}\n" + yaml.safe_dump(body))).tree["driver"]["args"] == ["-c", "echo ${HOME}"]


def test_a_later_file_wins(write: Write) -> None:
    first = write(
        {"devicePlugin": {"tag": "1", "registry": "a.example", "tolerations": [{"operator": "Exists"}]}}, name="a.yaml"
    )
    second = write({"devicePlugin": {"image": {"tag": "2"}, "tolerations": []}}, name="b.yaml")
    found = policy(first, second)
    assert found.tree == {"device_plugin": {"image": {"tag": "2", "registry": "a.example"}, "tolerations": []}}
    assert found.sources[("device_plugin", "image", "tag")] == "b.yaml: devicePlugin.image.tag"


def test_a_variable_wins_over_a_file_key_by_key(write: Write) -> None:
    file = write(
        {
            "devicePlugin": {"tag": "1", "registry": "a.example"},
            "namespace": "from-file",
            "driver": {"instances": {"a": {"tag": "1"}}},
        }
    )
    found = inputs(policy_files=[file], device_plugin={"image": {"tag": "2"}})
    assert (
        found["device_plugin"]["image"]["tag"],
        found["device_plugin"]["image"]["registry"],
        found["namespace"],
    ) == ("2", "a.example", "from-file")
    assert inputs(policy_files=[file], namespace="mine", device_plugin='{"args": ["-v"]}')["namespace"] == "mine"
    assert [
        own["name"] for own in inputs(policy_files=[file], driver_instances=[{"name": "b"}])["driver_instances"]
    ] == ["b"]


def test_a_variable_that_has_its_default_counts_as_not_set(write: Write) -> None:
    file = write({"workloadType": "vm-passthrough"})
    assert inputs(policy_files=[file], workload="container")["workload"] == "vm-passthrough"


LOCATED: dict[str, tuple[Any, str]] = {
    "type": ({"devicePlugin": {"enabled": "perhaps"}}, "(values.yaml: devicePlugin.enabled)"),
    "field": ({"driver": {"tolerations": [{"kay": "a"}]}}, "(values.yaml: driver.tolerations)"),
    "choice": ({"driver": {"image": {"pullPolicy": "Sometimes"}}}, "(values.yaml: driver.image.pullPolicy)"),
    "instance": (
        {"driver": {"instances": {"a": {"resources": {"limit": {}}}}}},
        "(values.yaml: driver.instances.a.resources)",
    ),
    "inherited": (
        {"driver": {"instances": {"a": {"version": "1"}}, "env": [{"nam": "A"}]}},
        "(values.yaml: driver.env)",
    ),
    "choice of a scalar": ({"workloadType": "vm"}, "(values.yaml: workloadType)"),
}


@pytest.mark.parametrize("case", LOCATED)
def test_an_error_of_an_input_names_the_file(case: str, write: Write) -> None:
    body, place = LOCATED[case]
    with pytest.raises(NpuError) as caught:
        inputs(policy_files=[write(body)])
    assert str(caught.value).startswith("rbln_operands_") and str(caught.value).endswith(place), str(caught.value)


def test_an_error_of_a_variable_names_no_file(write: Write) -> None:
    with pytest.raises(NpuError) as caught:
        inputs(policy_files=[write({"devicePlugin": {"enabled": True}})], device_plugin={"enabled": "perhaps"})
    assert "values.yaml" not in str(caught.value)


def test_notes_of_files_reach_the_inputs(write: Write) -> None:
    assert ["nfd is left out" in note for note in inputs(policy_files=[write({"nfd": {}})])["notes"]] == [True]


def test_what_is_wrong_between_two_drivers_is_named_with_a_place(write: Write) -> None:
    with pytest.raises(NpuError) as caught:
        inputs(policy_files=[write(driver("a"), driver("b"))])
    assert "a has no node selector" in str(caught.value) and "(values.yaml, document 1: " in str(caught.value)
