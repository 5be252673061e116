# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images by digest: one table and one switch for the containers of all components."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import containers, objects

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
BUSYBOX, PLUGIN = "docker.io/library/busybox:1.37", "docker.io/rebellions/k8s-device-plugin:v0.4.3"
POOL = {"os_id": "ubuntu", "os_version": "22.04", "kernel": "5.15.0-1"}
IMAGE = {"image": {"tag": "1"}}
# Every component, each with an image of its own.
ALL: dict[str, Any] = {
    "helper_image": {"repository": "a/helper"},
    "validator": {"source": "image", **IMAGE},
    "driver": {"enabled": True, "pools": [POOL], "manager": IMAGE, **IMAGE},
    "container_toolkit": {"enabled": True, **IMAGE},
    "feature_discovery": {"enabled": True, "source": "image", **IMAGE},
    "smd": {"enabled": True, **IMAGE},
    "metrics_exporter": {"enabled": True, **IMAGE},
    "vfio_manager": {"enabled": True, "source": "image", **IMAGE},
    "sandbox_device_plugin": {"enabled": True, **IMAGE},
}


def images(**given: Any) -> set[str]:
    return {one["image"] for one in containers(objects(**given))}


def test_no_digest_is_the_default() -> None:
    assert images() == {BUSYBOX, PLUGIN}


@pytest.mark.parametrize(
    "registry, table, expected",
    [
        ("", {BUSYBOX: ONE}, {"docker.io/library/busybox@" + ONE, PLUGIN}),
        ("", {BUSYBOX: ONE, PLUGIN: TWO, "docker.io/other/x:1": ONE},
         {"docker.io/library/busybox@" + ONE, "docker.io/rebellions/k8s-device-plugin@" + TWO}),
        ("", {"docker.io/library/busybox:1.36": ONE, "quay.io/library/busybox:1.37": ONE}, {BUSYBOX, PLUGIN}),
        ("r.example:5000/a", {BUSYBOX: ONE, "r.example:5000/a/rebellions/k8s-device-plugin:v0.4.3": TWO},
         {"r.example:5000/a/library/busybox@" + ONE, "r.example:5000/a/rebellions/k8s-device-plugin@" + TWO}),
        # The image as the cluster gets it wins over those that are published.
        ("r.example", {BUSYBOX: ONE, "quay.io/library/busybox:1.37": TWO, "r.example/library/busybox:1.37": TWO},
         {"r.example/library/busybox@" + TWO, "r.example/rebellions/k8s-device-plugin:v0.4.3"}),
        ("r.example", {"library/busybox:1.37": ONE},
         {"r.example/library/busybox@" + ONE, "r.example/rebellions/k8s-device-plugin:v0.4.3"}),
    ],
)  # fmt: skip
def test_the_table_gives_images_their_digest(registry: str, table: dict[str, str], expected: set[str]) -> None:
    assert images(registry=registry, image_digests=table) == expected


def test_an_image_that_has_a_digest_keeps_it() -> None:
    found = images(image_digests={PLUGIN: TWO}, device_plugin={"image": {"digest": ONE}})
    assert found == {BUSYBOX, "docker.io/rebellions/k8s-device-plugin@" + ONE}


def test_the_switch_names_every_image_of_every_component_at_once() -> None:
    wanted = sorted(images(**ALL))
    assert len(wanted) == 11 and all("@" not in image for image in wanted)
    with pytest.raises(NpuError) as caught:
        images(require_digest=True, **ALL)
    assert str(caught.value) == (
        "rbln_operands_require_digest is true, and these images have no digest: %s. "
        "Next: Add each with its digest to rbln_operands_image_digests." % ", ".join(wanted)
    )
    with pytest.raises(NpuError, match="have no digest: %s. Next" % wanted[4].replace(".", "[.]")):
        images(require_digest=True, image_digests={one: ONE for one in wanted if one != wanted[4]}, **ALL)
    found = images(require_digest=True, image_digests=dict.fromkeys(wanted, ONE), **ALL)
    assert len(found) == len(wanted) and all(image.endswith("@" + ONE) for image in found)


def test_what_is_removed_needs_no_digest() -> None:
    assert images(require_digest=True, state="absent") == {BUSYBOX, PLUGIN}


@pytest.mark.parametrize(
    "table, words",
    [
        ({"busybox": ONE}, "image_digests has 'busybox', which is not a registry, a repository and a tag. Next: Write"),
        ({"docker.io/library/busybox@" + ONE: ONE}, "is not a registry, a repository and a tag"),
        ({"docker.io/library/busy box:1": ONE}, "is not a registry, a repository and a tag"),
        ({"docker.io/library/busybox:1\n": ONE}, "is not a registry, a repository and a tag"),
        (
            {"docker.io/x:1": "latest"},
            r"image_digests\[docker.io/x:1\] is 'latest', which is not a digest. Next: Write",
        ),
        ({"docker.io/x:1": ONE + "\n"}, "which is not a digest"),
        ({"docker.io/x:1": ONE.upper()}, "which is not a digest"),
        ({"docker.io/x:1": 12}, "is 12, which is not a digest"),
        ({"docker.io/x:1": ONE, "quay.io/x:1": TWO}, "image_digests has two digests of r.example/x:1. Next: Name"),
    ],
)
def test_a_wrong_table_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(NpuError, match=words):
        images(registry="r.example", image_digests=table)
