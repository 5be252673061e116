# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would change, field by field, and no secret in it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, manifests, shown
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.differences import diff_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.compare import (
    GOOD,
    REFUSED,
    amount,
    change,
    field_changes,
    missing_paths,
    unlike,
    value_at,
    visible,
    within,
    without_paths,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.delivery_acts import EVERY, Data, apply
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, objects


def diff(store: Store, **given: Any) -> dict[str, Data]:
    typed = inputs(**given)
    return {one["object"]: one for one in diff_objects(store, build(Context(typed, EVERY)), typed, EVERY)}


def test_diff_says_field_by_field_and_writes_nothing() -> None:
    store = Store()
    assert set(one["action"] for one in diff(store).values()) == {"created"} and store.items == {}
    apply(store)
    store.writes.clear()
    leased = store.lease_writes
    assert diff(store) == {}
    found = diff(
        store,
        validator={"enabled": False},
        device_plugin={"image": {"tag": "v9"}, "env": {"API_TOKEN": "not-a-real-secret", "LEVEL": "1"}},
    )
    assert {name: one["action"] for name, one in found.items()} == {
        "DaemonSet rbln-system/rbln-device-plugin": "changed", "DaemonSet rbln-system/rbln-validator": "deleted",
        "ServiceAccount rbln-system/rbln-validator": "deleted",
    }  # fmt: skip
    place = "spec.template.spec.containers[device-plugin]."
    assert found["DaemonSet rbln-system/rbln-device-plugin"]["fields"] == [
        {"path": place + "env[API_TOKEN]", "before": None, "after": {"name": "API_TOKEN", "value": "********"}},
        {"path": place + "env[LEVEL]", "before": None, "after": {"name": "LEVEL", "value": "1"}},
        {
            "path": place + "image",
            "before": "docker.io/rebellions/k8s-device-plugin:v0.4.3",
            "after": "docker.io/rebellions/k8s-device-plugin:v9",
        },
    ]
    assert store.writes == [] and store.lease_writes == leased


def test_S02_diff_of_a_secret_tells_that_it_differs_and_not_how() -> None:
    store = Store()
    apply(store, pull_secret_content={"auths": {"r": {"auth": "b25l"}}})
    found = diff(store, pull_secret_content={"auths": {"r": {"auth": "dHdv"}}})
    assert found["Secret rbln-system/rbln-registry"]["fields"] == [
        {"path": "data", "before": "(hidden)", "after": "(hidden, and different)"}
    ]


def test_S02_diff_tells_that_only_a_masked_value_differs() -> None:
    store = Store()
    apply(store, device_plugin={"env": {"API_TOKEN": "not-real-1"}})
    assert diff(store, device_plugin={"env": {"API_TOKEN": "not-real-1"}}) == {}
    found = diff(store, device_plugin={"env": {"API_TOKEN": "not-real-2"}})
    assert found["DaemonSet rbln-system/rbln-device-plugin"]["fields"] == [
        {"path": "a secret value", "before": "(hidden)", "after": "(hidden, and different)"}
    ]


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", 1, 2)]),
        ({"a": 1}, {}, [("a", 1, None)]),
        (
            {"x": [{"name": "n", "v": 1}]},
            {"x": [{"name": "n", "v": 2}, {"name": "m"}]},
            [("x[n].v", 1, 2), ("x[m]", None, {"name": "m"})],
        ),
        ({"x": [1, 2]}, {"x": [1, 3]}, [("x", [1, 2], [1, 3])]),
        ({"x": [{"name": "n"}, {"name": "n"}]}, {"x": []}, [("x", [{"name": "n"}, {"name": "n"}], [])]),
    ],
)
def test_field_changes(before: Data, after: Data, expected: list[Any]) -> None:
    assert [(one["path"], one["before"], one["after"]) for one in field_changes(before, after)] == expected


def test_S02_environment_of_a_secret_name_and_credentials_in_text_are_hidden() -> None:
    item = {
        "kind": "X",
        "metadata": {"name": "n"},
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "URL", "value": "http://u:hunter2@h/x"}],
    }
    assert "hunter2" not in str(visible(item)) and visible(item)["env"][1]["value"] == "http://********@h/x"


@pytest.mark.parametrize(
    "value, seen",
    [
        ({"password": "not-real", "tag": "1"}, {"password": "********", "tag": "1"}),
        ({"x": "a\ntoken: not-real\nb"}, {"x": "a\ntoken: ********\nb"}),
        (
            {"args": ["--token", "not-real", "--level", "3", "token", "b"]},
            {"args": ["--token", "********", "--level", "3", "token", "b"]},
        ),
        (
            {"token": {"name": "a"}, "secretName": "b", "auth": ""},
            {"token": {"name": "a"}, "secretName": "b", "auth": ""},
        ),
    ],
)
def test_S02_texts_under_a_secret_key_are_hidden(value: Data, seen: Data) -> None:
    assert visible({"kind": "X", "metadata": {"name": "n"}, "spec": value})["spec"] == seen


def test_S02_the_object_in_an_annotation_of_kubectl_is_not_shown() -> None:
    item = {
        "kind": "X",
        "metadata": {
            "name": "n",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"},
        },
    }
    assert visible(item) == {"kind": "X", "metadata": {"name": "n", "annotations": {"a": "b"}}}


def test_the_pod_template_in_a_note_of_ours_is_not_shown() -> None:
    """It has the environment of the containers as text, in which no name tells that a value is secret."""
    note = json.dumps({"spec": {"containers": [{"env": [{"name": "API_TOKEN", "value": "hunter2"}]}]}})
    item = {"kind": "DaemonSet", "metadata": {"name": "n", "annotations": {GOOD: note, REFUSED: "{}", "a": "b"}}}
    assert visible(item)["metadata"]["annotations"] == {"a": "b"}
    removed = change(item, "deleted", item)
    assert "hunter2" not in json.dumps(removed) and removed["before"]


@pytest.mark.parametrize(
    ("wanted", "settled"),
    [
        ({"hostNetwork": False}, True),
        ({"v": [{"readOnly": False}]}, True),
        ({"automountServiceAccountToken": False}, False),
        ({"c": {"allowPrivilegeEscalation": False}}, False),
        ({"c": {"privileged": False}}, False),
        ({"tolerationSeconds": 0}, False),
        ({"labels": {}, "args": [], "name": ""}, True),
    ],
)
def test_a_false_or_zero_that_somebody_removed_is_missed(wanted: Data, settled: bool) -> None:
    live: Data = {"v": [{}], "c": {}}
    assert within(wanted, live) is settled


def test_paths_that_are_missing_can_be_left_out() -> None:
    wanted = {"a": {"b": [{"c": 1, "d": 2}]}, "e": ""}
    paths = missing_paths(wanted, {"a": {"b": [{"c": 1}]}})
    assert paths == [("a", "b", 0, "d")]
    assert without_paths(wanted, paths) == {"a": {"b": [{"c": 1}]}, "e": ""}
    assert without_paths(wanted, [("x", "y"), ("a", "b", 7, "d")]) == wanted


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), (0.5, "500m"), (2, "2"), ("1e3", "1k"), ("1E3", "1k"),
        ("1.5Gi", "1536Mi"), ("1000Ki", "1024000"), (".5", "500m"), ("5.", "5"), ("0", 0), ("0.0000000001", "1n"),
        ("1000000k", "1G"), ("100M", "100e6"),
    ],
)  # fmt: skip
def test_k27_the_same_amount_in_another_spelling(wanted: Any, live: Any) -> None:
    assert amount(wanted) is not None and amount(wanted) == amount(live)
    pod: Data = {"containers": [{"resources": {"limits": {"cpu": wanted}}}], "v": [{"emptyDir": {"sizeLimit": wanted}}]}
    same: Data = {"containers": [{"resources": {"limits": {"cpu": live}}}], "v": [{"emptyDir": {"sizeLimit": live}}]}
    assert within(pod, same) and missing_paths(pod, same) == [] and unlike(pod, same) == []


@pytest.mark.parametrize(
    ("wanted", "live"),
    [("1024Mi", "600Mi"), ("1", "1Gi"), ("1M", "1Mi"), ("1m", "1M"), ("x", "y"), (True, "1"), ("1", None)],
)
def test_k27_another_amount_is_seen(wanted: Any, live: Any) -> None:
    pod, other = ({"resources": {"requests": {"memory": value}}} for value in (wanted, live))
    assert not within(pod, other)
    assert missing_paths(pod, other) == [("resources", "requests", "memory")]


def test_k27_amounts_are_amounts_only_where_the_server_takes_them_so() -> None:
    for place in ("labels", "annotations", "data", "limits"):
        assert not within({place: {"cpu": "1000m"}}, {place: {"cpu": "1"}})
    assert not within({"env": [{"name": "A", "value": "1000m"}]}, {"env": [{"name": "A", "value": "1"}]})


def test_paths_end_at_keys_and_people_see_names() -> None:
    wanted: Data = {
        "spec": {"containers": [{"name": "c", "args": ["a", "b"], "image": "x/y"}], "tolerations": [{"key": "k"}]}
    }
    live: Data = copy.deepcopy(wanted)
    live["spec"]["containers"][0].update(args=["a", "c"], image="m/y", more=1)
    live["spec"]["tolerations"].append({"key": "added"})
    paths = missing_paths(wanted, live)
    assert paths == [("spec", "containers", 0, "args"), ("spec", "containers", 0, "image"), ("spec", "tolerations")]
    assert within(without_paths(wanted, paths), live)
    assert [value_at(live, path) for path in paths] == [["a", "c"], "m/y", [{"key": "k"}, {"key": "added"}]]
    assert unlike(wanted, live) == [
        {"path": "spec.containers[c].args", "before": ["b"], "after": ["c"]},
        {"path": "spec.containers[c].image", "before": "x/y", "after": "m/y"},
        {"path": "spec.tolerations", "before": None, "after": [{"key": "added"}]},
    ]
    live["spec"]["containers"].append({"name": "sidecar"})
    assert missing_paths(wanted, live)[0] == ("spec", "containers")
    assert {"path": "spec.containers[sidecar]", "before": None, "after": {"name": "sidecar"}} in unlike(wanted, live)


def test_no_secret_of_an_argument_is_seen() -> None:
    container = {
        "name": "c",
        "args": ["--token=not-real-1", "--level=3"],
        "command": ["sh", "-c", "password=not-real-2 run"],
    }
    shown_item = visible({"kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"containers": [container]}})
    assert shown_item["spec"]["containers"] == [
        {"name": "c", "args": ["--token=********", "--level=3"], "command": ["sh", "-c", "password=******** run"]}
    ]
    apart = {
        "args": [
            "--token",
            "not-real-1",
            "--level",
            "3",
            "--password-file",
            "/x",
            "-api-key",
            "not-real-2",
            "token",
            "x",
        ]
    }
    assert visible(apart)["args"] == [
        "--token",
        "********",
        "--level",
        "3",
        "--password-file",
        "/x",
        "-api-key",
        "********",
        "token",
        "x",
    ]


def test_no_secret_of_manifests_is_seen() -> None:
    given = {
        "https_proxy": "http://u:not-real-1@proxy:3128",
        "device_plugin": {"env": {"API_TOKEN": "not-real-2", "LEVEL": "3"}},
    }
    text = manifests(objects(**given))
    assert "not-real-1" in text and "not-real-2" in text
    seen = shown(text)
    assert (
        "not-real" not in seen and 'value: "3"' in seen.replace("'", '"') and seen.count("---\n") == text.count("---\n")
    )
    assert shown("") == "" and shown("just: [text") == shown("- a") == "# no manifests\n"
