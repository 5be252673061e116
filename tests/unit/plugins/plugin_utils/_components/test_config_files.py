# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files of components."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, one, pod_of

SMD = {"enabled": True, "image": {"tag": "3.2.2"}}
CASES: dict[str, dict[str, Any]] = {
    "device_plugin": {},
    "smd": SMD,
    "feature_discovery": {"enabled": True, "source": "image", "image": {"tag": "0.2.3"}},
}


def annotation(items: list[dict[str, Any]], name: str) -> str:
    meta = one(items, "DaemonSet", name)["spec"]["template"]["metadata"]
    return str((meta.get("annotations") or {}).get("rebellions.ai/config-sha256", ""))


@pytest.mark.parametrize("key", CASES)
def test_files_are_mounted_and_a_change_replaces_the_pods(key: str) -> None:
    name = key.replace("_", "-")
    own = {**CASES[key], "args": ["--config=/etc/npu/a.yaml"], "config": {"files": {"a.yaml": "x: 1\n"}}}
    own["config"]["directory"] = "/etc/npu"
    items = objects(**{key: own})
    made = one(items, "ConfigMap", name + "-config")
    assert (made["metadata"]["name"], made["data"]) == ("rbln-%s-config" % name, {"a.yaml": "x: 1\n"})
    pod = pod_of(items, name)
    assert {"name": "config", "configMap": {"name": "rbln-%s-config" % name}} in pod["volumes"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert {"name": "config", "mountPath": "/etc/npu", "readOnly": True} in mounts
    other = copy.deepcopy(own)
    other["config"]["files"]["a.yaml"] = "x: 2\n"
    assert len({annotation(objects(**{key: each}), name) for each in (own, other, CASES[key])}) == 3
    # It comes before the pods that need it.
    kinds = [item["kind"] for item in items if item["metadata"]["name"] in (made["metadata"]["name"], "rbln-" + name)]
    assert kinds.index("ConfigMap") < kinds.index("DaemonSet")


def test_the_site_s_own_config_map_is_mounted_and_not_made() -> None:
    items = objects(smd={**SMD, "config": {"config_map": "site-smd"}})
    assert [item for item in items if item["kind"] == "ConfigMap"] == []
    assert {"name": "config", "configMap": {"name": "site-smd"}} in pod_of(items, "smd")["volumes"]
    assert annotation(items, "smd") == ""


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"files": {"a/b": ""}}, "rbln_operands_device_plugin.config.files has 'a/b', which is not the name of a file"),
        ({"files": {"..": ""}}, "not the name of a file"),
        ({"files": {"a": ""}, "config_map": "b"}, "name two ConfigMaps"),
        ({"files": {"a": {"b": 1}}}, "config.files[a] is dict, not text"),
        ({"config_map": "Bad_Name"}, "'Bad_Name', which is not the name of a ConfigMap"),
        ({"config_map": "a", "directory": "etc"}, "'etc', which is not an absolute path"),
    ],
)
def test_wrong_files_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(NpuError) as caught:
        objects(device_plugin={"config": config})
    assert words in str(caught.value)


@pytest.mark.parametrize("fails", [True, False])
def test_the_image_of_the_discovery_is_told_how_to_start(fails: bool) -> None:
    own = {**CASES["feature_discovery"], "fail_on_init_error": fails, "host_sys_path": "/host/sys"}
    pod = pod_of(objects(feature_discovery=own), "feature-discovery")
    main = pod["containers"][0]
    env = {item["name"]: item.get("value") for item in main["env"]}
    assert env["RBLN_NPU_FEATURE_DISCOVERY_FAIL_ON_INIT_ERROR"] == ("true" if fails else "false")
    assert {"name": "host-sys", "mountPath": "/sys", "readOnly": True} in main["volumeMounts"]
    assert {"name": "host-sys", "hostPath": {"path": "/host/sys", "type": "Directory"}} in pod["volumes"]
