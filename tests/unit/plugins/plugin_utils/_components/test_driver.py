# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers in containers: which node gets which, from which image, and what the pod may do."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.pools import (
    label_values,
    live_pools,
    pool_names,
    shortened,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.registry import component_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, left_out
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context, Pool
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    inputs,
    objects,
    one,
)

Data = dict[str, Any]
PRESENT = "rebellions.ai/npu.present"
FAMILY = "rebellions.ai/npu.family"
NFD = (
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
    "feature.node.kubernetes.io/kernel-version.full",
)
OURS = ("rebellions.ai/host.os-id", "rebellions.ai/host.os-version", "rebellions.ai/host.kernel")
JAMMY = Pool("ubuntu", "22.04", "6.8.0-138-generic")
NOBLE = Pool("ubuntu", "24.04", "6.8.0-138-generic")
DRIVER: Data = {"enabled": True, "image": {"tag": "3.4.1"}, "manager": {"image": {"tag": "v0.3"}}}


def made(*pools: Pool, driver: Any = None, **given: Any) -> list[Data]:
    typed = inputs(driver={**DRIVER, **(driver or {})}, **given)
    return build(Context(typed, declared(typed), pools))


def sets(items: list[Data]) -> dict[str, Data]:
    return {
        item["metadata"]["name"]: item
        for item in items
        if item["kind"] == "DaemonSet" and component_of(item) == "driver"
    }


def node(name: str = "n", keys: tuple[str, ...] = NFD, pool: Pool | None = JAMMY, **labels: str) -> Data:
    known = dict(zip(keys, (pool.os_id, pool.os_version, pool.kernel))) if pool else {}
    return {"metadata": {"name": name, "labels": {PRESENT: "true", **known, **labels}}}


def takers(items: list[Data], where: Data) -> list[str]:
    return [name for name, item in sets(items).items() if selects(item["spec"]["template"]["spec"], where)]


def test_000_02_one_daemon_set_for_each_operating_system_and_kernel() -> None:
    items = made(
        JAMMY, NOBLE, driver={"pools": [{"os_id": "rhel", "os_version": "9.4", "kernel": "5.14.0-427.el9.x86_64"}]}
    )
    found = sets(items)
    assert list(found) == [
        "rbln-driver-rhel-9-4-k5-14-0-427-el9-x86-64",
        "rbln-driver-ubuntu-22-04-k6-8-0-138-generic",
        "rbln-driver-ubuntu-24-04-k6-8-0-138-generic",
    ]
    images = [item["spec"]["template"]["spec"]["containers"][0]["image"] for item in found.values()]
    assert images == [
        "repo.rebellions.ai/rebellions/rbln-driver:3.4.1-5.14.0-427.el9.x86_64-rhel9.4",
        "repo.rebellions.ai/rebellions/rbln-driver:3.4.1-6.8.0-138-generic-ubuntu22.04",
        "repo.rebellions.ai/rebellions/rbln-driver:3.4.1-6.8.0-138-generic-ubuntu24.04",
    ]
    assert takers(items, node()) == ["rbln-driver-ubuntu-22-04-k6-8-0-138-generic"]
    assert len({str(item["spec"]["selector"]) for item in found.values()}) == 3


def test_000_05_to_09_what_the_pod_is() -> None:
    items = made(JAMMY, driver={"host_root": "/srv/driver"})
    whole = sets(items)["rbln-driver-ubuntu-22-04-k6-8-0-138-generic"]
    pod = whole["spec"]["template"]["spec"]
    assert whole["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert whole["metadata"]["labels"]["app.kubernetes.io/component"] == "rbln-driver"
    assert [item["name"] for item in pod["initContainers"]] == ["k8s-driver-manager"]
    assert [item["name"] for item in pod["containers"]] == ["rbln-driver-container"]
    driver = pod["containers"][0]
    assert {"name": "driver-root", "mountPath": "/srv/driver", "mountPropagation": "Bidirectional"} in driver[
        "volumeMounts"
    ]
    assert {"name": "driver-root", "hostPath": {"path": "/srv/driver", "type": "DirectoryOrCreate"}} in pod["volumes"]
    assert driver["readinessProbe"]["exec"]["command"] == ["test", "-e", "/run/rbln/validations/.driver-ctr-ready"]
    assert driver["startupProbe"]["exec"] == driver["readinessProbe"]["exec"]
    mounts = {mount["name"]: mount for mount in driver["volumeMounts"]}
    assert mounts["rbln"] == {"name": "rbln", "mountPath": "/run/rbln", "mountPropagation": "Bidirectional"}
    assert mounts["sources"]["readOnly"] is True and "readOnly" not in mounts["modules"]
    # By default its root is in there.
    usual = sets(made(JAMMY))["rbln-driver-ubuntu-22-04-k6-8-0-138-generic"]["spec"]["template"]["spec"]
    assert "driver-root" not in str(usual)
    assert (pod["hostPID"], pod["automountServiceAccountToken"], driver["securityContext"]["privileged"]) == (
        True,
        False,
        True,
    )


SHELLS = [shell for shell in (["/bin/sh"], ["busybox", "sh"]) if shutil.which(shell[0])]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
@pytest.mark.parametrize("started, left", [(50, ["a"]), (100, []), (150, [])])
def test_000_40_marks_of_a_crashed_container_are_gone_before_it_is_probed_anew(
    shell: list[str], started: int, left: list[str], tmp_path: Path
) -> None:
    """The container starts at `started`; one mark is of second 100, the others are missing."""
    driver = container(made(JAMMY, marker_dir=str(tmp_path / "marks")), "rbln-driver-container")
    command = driver["lifecycle"]["postStart"]["exec"]["command"]
    assert command[4:] == [
        str(tmp_path / "marks" / name)
        for name in (".driver-ctr-stopped", ".driver-ctr-ready", "driver-ready", "toolkit-ready")
    ]
    assert "terminationMessagePath" not in driver
    log, mark, stopped = tmp_path / "log", tmp_path / "a", tmp_path / "stopped"
    stopped.touch()
    for path, when in ((log, started), (mark, 100)):
        path.touch()
        os.utime(path, (when, when))
    script = command[2].replace("/dev/termination-log", str(log))
    done = subprocess.run(
        [*shell, "-c", script, "driver", str(stopped), str(mark), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=False,
    )
    # A hook that fails ends its container.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir() if path != log] == left


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_000_40_a_container_that_ends_leaves_only_the_word_that_it_does(shell: list[str], tmp_path: Path) -> None:
    for name in (".driver-ctr-ready", "driver-ready", "toolkit-ready", "vfio"):
        (tmp_path / name).touch()
    command = container(made(JAMMY, marker_dir=str(tmp_path)), "rbln-driver-container")["lifecycle"]["preStop"]["exec"][
        "command"
    ]
    assert command[:2] == ["/bin/sh", "-c"]
    subprocess.run([*shell, *command[1:]], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".driver-ctr-stopped", "vfio"]


def test_every_mount_has_its_volume() -> None:
    pod = next(
        iter(sets(made(JAMMY, ca_bundle="x", driver={"host_paths": [{"name": "more", "path": "/more"}]})).values())
    )["spec"]["template"]["spec"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    everyone = pod["initContainers"] + pod["containers"]
    assert {mount["name"] for item in everyone for mount in item["volumeMounts"]} == set(volumes) and len(
        volumes
    ) == len(set(volumes))


LOOK = {("nodes", "get")}
CLEAR = {
    ("nodes", "get"),
    ("nodes", "patch"),
    ("pods", "get"),
    ("pods", "list"),
    ("pods/eviction", "create"),
    ("daemonsets", "get"),
}


@pytest.mark.parametrize("evict, rights", [(False, LOOK), (True, CLEAR)])
def test_the_manager_may_clear_a_node_only_when_the_inputs_say_so(evict: bool, rights: set[tuple[str, str]]) -> None:
    own = {"manager": {**DRIVER["manager"], "evict_pods": evict}}
    for items in (
        made(JAMMY, driver=own),
        made(JAMMY, driver_instances=[instance("a", "1", zone="a"), {**instance("b", "1", zone="b"), **own}]),
    ):
        rules = one(items, "ClusterRole")["rules"]
        assert {
            (resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]
        } == rights


def test_the_manager_alone_has_the_token_of_the_account() -> None:
    pod = next(iter(sets(made(JAMMY)).values()))["spec"]["template"]["spec"]
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    holders = [
        item["name"]
        for item in pod["initContainers"] + pod["containers"]
        if place in [mount["mountPath"] for mount in item["volumeMounts"]]
    ]
    assert holders == ["k8s-driver-manager"]
    (volume,) = [volume for volume in pod["volumes"] if "projected" in volume]
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]


def instance(name: str, version: str, **selector: str) -> Data:
    return {
        "name": name,
        "image": {"tag": version},
        "node_selector": {key.replace("_", "-"): value for key, value in selector.items()},
    }


def test_001_05_an_instance_with_more_labels_wins_and_the_others_leave_its_nodes() -> None:
    given = [
        instance("all", "3.0.0", zone="a"),
        instance("fast", "3.1.0", zone="a", tier="fast"),
        instance("old", "2.9.9", zone="b"),
    ]
    items = made(JAMMY, driver_instances=given)
    pool = "ubuntu-22-04-k6-8-0-138-generic"
    assert takers(items, node(zone="a")) == ["rbln-driver-all-" + pool]
    assert takers(items, node(zone="a", tier="fast")) == ["rbln-driver-fast-" + pool]
    assert takers(items, node(zone="a", tier="slow")) == ["rbln-driver-all-" + pool]
    assert takers(items, node(zone="b", tier="fast")) == ["rbln-driver-old-" + pool]
    assert takers(items, node(zone="c")) == []


@pytest.mark.parametrize(
    "written, live", [("atom", "ATOM"), ("ATOM", "atom"), ("REBEL", "rebel100"), ("rebel100", "REBEL")]
)
def test_a_family_is_the_same_in_every_spelling(written: str, live: str) -> None:
    given = {
        "name": "x",
        "image": {"tag": "3", "repository": "rebellions/{family}/rbln-driver"},
        "node_selector": {FAMILY: written},
    }
    items = made(JAMMY, driver_instances=[given], driver={"tag_template": "{tag}-{family}"})
    assert len(takers(items, node(**{FAMILY: live}))) == 1 and takers(items, node()) == []
    family = "atom" if written.lower() == "atom" else "rebel100"
    assert container(items, "rbln-driver-container")["image"] == "repo.rebellions.ai/rebellions/%s/rbln-driver:3-%s" % (
        family,
        family,
    )


@pytest.mark.parametrize(
    "driver, place",
    [
        ({"tag_template": "{tag}-{family}"}, "tag_template"),
        ({"image": {"tag": "3", "repository": "a/{family}/b"}}, "image.repository"),
    ],
)
def test_a_family_that_no_selector_names_is_an_error(driver: Data, place: str) -> None:
    with pytest.raises(
        NpuError,
        match="rbln_operands_driver.%s has {family}, and the node selector.*Select the nodes of one family" % place,
    ):
        made(JAMMY, driver=driver)


def test_a_digest_needs_no_tag_and_no_template() -> None:
    image = {"digest": "sha256:" + "ab" * 32}
    assert container(made(JAMMY, driver={"image": image}), "rbln-driver-container")["image"].endswith(
        "rbln-driver@sha256:" + "ab" * 32
    )


def test_a_driver_without_a_tag_is_an_error() -> None:
    with pytest.raises(NpuError, match="rbln_operands_driver.image has neither tag nor digest"):
        made(JAMMY, driver={"image": {}})


def test_a_driver_that_nodes_must_ask_for() -> None:
    items = made(JAMMY, driver={"deploy_default": False})
    assert takers(items, node()) == [] and len(takers(items, node(**{"rebellions.ai/npu.deploy.driver": "true"}))) == 1
    assert takers(made(JAMMY), node(**{"rebellions.ai/npu.deploy.driver": "false"})) == []


def test_no_pools_make_no_daemon_sets() -> None:
    assert sets(made()) == {}


def test_000_03_pools_come_from_the_labels_of_the_discovery_or_ours() -> None:
    strange = Pool("x", "1", "2")
    nodes = [
        node("a"),
        node("b", OURS, NOBLE),
        node("c"),
        node("d", pool=None),
        node("e", pool=None, **{NFD[2]: "6.8.0"}),
        node("f", pool=strange, **{"rebellions.ai/npu.workload.config": "vm-passthrough"}),
        node("g", pool=strange, **{"rebellions.ai/npu.deploy.skip": "true"}),
        {"metadata": {"name": "h", "labels": {NFD[0]: "x", NFD[1]: "1", NFD[2]: "2"}}},
        {"metadata": {"name": "i"}},
    ]
    pools, notes = live_pools(nodes)
    assert pools == (JAMMY, NOBLE)
    assert len(notes) == 1 and notes[0].startswith("The nodes d, e have an NPU and no label")


BAD_LABELS = {
    "a kernel of any length": {OURS[2]: "6" * 64},
    "a system of any length": {OURS[0]: "u" * 33},
    "a version of any length": {OURS[1]: "2" * 33},
    "what no label may be": {OURS[0]: "ubuntu\x1b[2J\n"},
    "a path": {OURS[2]: "../../x"},
    "no text": {OURS[2]: 6},
    "a label of the discovery": {NFD[0]: "u" * 40, NFD[1]: "1", NFD[2]: "6.8"},
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_a_bad_label_leaves_out_its_pool_alone(case: str) -> None:
    bad = node("bad", OURS, NOBLE)
    bad["metadata"]["labels"].update(BAD_LABELS[case])
    pools, notes = live_pools([node("good"), bad])
    assert pools == (JAMMY,)
    key = next(iter(BAD_LABELS[case]))
    assert len(notes) == 1 and "No driver is made for the pools of bad (%s=" % key in notes[0]
    assert notes[0].isprintable() and " Next: " in notes[0]


def test_labels_that_make_a_tag_too_long_leave_out_their_pool_alone() -> None:
    long = Pool("u" * 32, "2" * 32, "6" * 63)
    typed = inputs(driver=DRIVER)
    context = Context(typed, declared(typed), (long, JAMMY))
    assert list(sets(build(context))) == ["rbln-driver-ubuntu-22-04-k6-8-0-138-generic"]
    (note,) = left_out(context)
    assert "/".join(label_values(long)) in note and "would have 134 characters" in note and " Next: " in note
    # What the inputs name is an error of the inputs.
    named = {"pools": [{"os_id": long.os_id, "os_version": long.os_version, "kernel": long.kernel}]}
    with pytest.raises(NpuError, match="is not an image tag"):
        made(driver=named)


def test_the_number_of_pools_is_bounded_and_the_largest_stay() -> None:
    nodes = [node("n%03d" % at, OURS, Pool("ubuntu", "22.04", "6.8.0-%d" % at)) for at in range(150)]
    nodes += [node("z%d" % at, OURS, Pool("zz", "1", "2")) for at in range(2)]
    pools, notes = live_pools(nodes)
    assert len(pools) == 100 and pools[0] == Pool("zz", "1", "2")
    assert len(notes) == 1 and "name 151 pools" in notes[0] and " and 41 more" in notes[0] and len(notes[0]) < 700
    assert len(sets(made(*pools))) == 100


def test_a_pool_whose_name_is_that_of_another_cannot_take_its_place() -> None:
    """A kubelet may label its own node: the names and selectors of the drivers of other nodes stay."""
    honest = sets(made(JAMMY))
    alike = Pool("Ubuntu", "22-04", "6.8.0-138-generic")
    old = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    nodes = [node("a-evil", OURS, alike), node("honest")]
    nodes[1]["metadata"].update(old)
    nodes[0]["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    pools, _notes = live_pools(nodes)
    both = sets(made(*pools))
    assert len(both) == 2 and honest.items() <= both.items()
    # Of two instances, where the name of one begins as that of the other.
    given = [instance("a", "1", zone="a"), {**instance("a", "1", zone="b"), "name": "a-b"}]
    before = sets(made(JAMMY, driver_instances=given))
    typed = inputs(driver=DRIVER, driver_instances=given)
    evil = Context(typed, declared(typed), (JAMMY, Pool("b-ubuntu", "22.04", "6.8.0-138-generic")))
    after = sets(build(evil))
    assert len(before) == 2 and before.items() <= after.items() and len(after) == 3
    (note,) = left_out(evil)
    assert "b-ubuntu/22.04/" in note and "the name of that of ubuntu/22.04" in note


def test_an_old_label_of_ours_does_not_win_over_the_discovery() -> None:
    items = made(JAMMY, NOBLE)
    both = node(**dict(zip(OURS, ("ubuntu", "24.04", "6.8.0-138-generic"))))
    assert takers(items, both) == ["rbln-driver-ubuntu-22-04-k6-8-0-138-generic"]
    assert live_pools([both]) == ((JAMMY,), [])
    assert takers(items, node(keys=OURS, pool=NOBLE)) == ["rbln-driver-ubuntu-24-04-k6-8-0-138-generic"]


def test_no_node_ever_matches_two_drivers() -> None:
    dice = random.Random(7)
    pools = [
        Pool(os_id, version, kernel)
        for os_id in ("ubuntu", "rhel")
        for version in ("9.4", "22.04")
        for kernel in ("5.14.0", "6.8.0+x")
    ]
    given = [
        instance("a", "1", zone="a"),
        instance("b", "2", zone="a", tier="x"),
        instance("c", "3", zone="a", tier="x", size="l"),
        instance("d", "4", zone="b"),
    ]
    items = made(*pools, driver_instances=given)
    seen = 0
    for _turn in range(4000):
        labels = {key: dice.choice(values) for key, values in (("zone", "ab-"), ("tier", "xy-"), ("size", "ls-"))}
        first, second = dice.choice(pools), dice.choice(pools)
        where = node(keys=dice.choice((NFD, OURS)), pool=first, **labels)
        where["metadata"]["labels"].update(
            dict(zip(dice.choice((NFD, OURS, ())), (second.os_id, second.os_version, second.kernel.replace("+", "_"))))
        )
        found = takers(items, where)
        assert len(found) <= 1, where
        seen += len(found)
    assert seen > 1000


def test_names_are_legal_unique_and_no_longer_than_a_label_of_their_pods_allows() -> None:
    long = Pool("ubuntu", "24.04", "6.8.0-138-generic-with-a-very-long-name-of-a-flavour.x86_64")
    alike = [Pool("a", "1.0", "2"), Pool("a", "1-0", "2")]
    names = list(sets(made(long, *alike, driver_instances=[{**instance("one", "1"), "name": "i" * 40}])))
    assert (
        len(set(names)) == 3
        and max(map(len, names)) <= 52
        and all(name == name.lower().strip("-") and "_" not in name for name in names)
    )
    assert list(pool_names(alike).values()) == ["a-1-0-k2", "a-1-0-k2-" + pool_names(alike)[alike[1]][-8:]]
    assert (
        shortened("abc", 10) == "abc"
        and len(shortened("x" * 60, 52)) == 52
        and shortened("x" * 60, 52) != shortened("x" * 61, 52)
    )


@pytest.mark.parametrize("plugin", ["device-plugin", "dra-driver"])
def test_plugins_see_the_mounts_of_a_driver_that_starts_anew(plugin: str) -> None:
    given: dict[str, Any] = (
        {"dra_driver": {"enabled": True, "image": {"tag": "1"}}, "device_plugin": {"enabled": False}}
        if plugin == "dra-driver"
        else {}
    )
    for wanted, propagation in ((True, "HostToContainer"), (False, None)):
        driver = {"enabled": wanted, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}}
        found = container(objects(driver=driver, **given), plugin)
        mounts = {mount["mountPath"]: mount.get("mountPropagation") for mount in found["volumeMounts"]}
        assert mounts["/run/rbln"] == propagation and mounts["/dev"] is None


def test_the_toolkit_looks_where_the_instances_put_the_driver() -> None:
    own = {
        "name": "a",
        "enabled": True,
        "host_root": "/opt/rbln",
        "image": {"tag": "1"},
        "manager": {"image": {"tag": "1"}},
    }
    toolkit = container(
        objects(
            driver_instances=[own], container_toolkit={"enabled": True, "image": {"tag": "1"}, "env_from_marker": False}
        ),
        "toolkit",
    )
    assert {"name": "RBLN_CTK_DAEMON_DRIVER_ROOT", "value": "/opt/rbln"} in toolkit["env"]
    assert [mount["mountPath"] for mount in toolkit["volumeMounts"] if mount["name"] == "driver-root"] == ["/opt/rbln"]


@pytest.mark.parametrize("deadline, failures", [(0, 240), (600, 240), (3605, 361), (7200, 720)])
def test_the_kubelet_ends_no_driver_before_its_deadline(deadline: int, failures: int) -> None:
    driver = {"enabled": True, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}, "pools": [vars(JAMMY)]}
    found = container(objects(driver=driver, deadlines={"driver": deadline}), "rbln-driver-container")["startupProbe"]
    assert (found["periodSeconds"], found["failureThreshold"]) == (10, failures)
