# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of our pods, and the gate that holds a pod until the host is ready."""

from __future__ import annotations

import typing as t

from . import _object_parts as parts
from ._model_cluster import Inputs, Object

# Seconds until a driver in a container is given up when the inputs say nothing else.
DRIVER_DEADLINE = 1800

WAIT_SCRIPT = """left="$WAIT_SECONDS"
for marker in $WAIT_MARKERS; do
  until [ -e "$marker" ]; do
    if [ "$left" -le 0 ]; then
      echo "no $marker after $WAIT_SECONDS s: the host part has not finished on $NODE_NAME" >&2
      exit 1
    fi
    sleep 2
    left=$((left - 2))
  done
done
"""


def container(name: str, image: str, pull_policy: str, **more: t.Any) -> Object:
    result: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    result.update({key: value for key, value in more.items() if value not in (None, [], {})})
    return result


def helper(inputs: Inputs, name: str, resources: Object, **more: t.Any) -> Object:
    image = inputs["helper_image"]
    reference = parts.image_reference("rbln_operands_helper_image", image, inputs["registry"])
    return container(name, reference, image["pull_policy"], resources=resources, **more)


def patience(inputs: Inputs) -> int:
    """Seconds that a pod waits for the ready files of its host; a driver in a container may take as long as its own deadline."""
    drivers = [inputs["driver"], *inputs["driver_instances"]]
    driver = int(inputs["deadlines"].get("driver") or 0) or DRIVER_DEADLINE
    return max(inputs["marker_timeout"], driver) if any(own["enabled"] for own in drivers) else int(inputs["marker_timeout"])


def wait_for_host(inputs: Inputs, markers: t.Sequence[str]) -> Object:
    """An init container that ends when the ready files `markers` of the host are there, in this order, or fails after a while."""
    marker_dir = inputs["marker_dir"]
    return helper(
        inputs,
        "wait-for-host",
        {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        command=["/bin/sh", "-c", WAIT_SCRIPT],
        env=parts.environment(
            {**inputs, "ca_bundle": "", "http_proxy": "", "https_proxy": "", "no_proxy": ""},
            {
                "WAIT_SECONDS": str(patience(inputs)),
                "WAIT_MARKERS": " ".join("%s/%s" % (marker_dir, name) for name in markers),
            },
        ),
        securityContext=parts.security_context(),
        volumeMounts=[{"name": "markers", "mountPath": marker_dir, "readOnly": True}],
    )


def without_empty(values: Object) -> Object:
    return {key: value for key, value in values.items() if value not in ([], {}, None)}
