# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules over several inputs of the cluster part: what cannot be together is refused, what is unusual is noted."""

from __future__ import annotations

import ipaddress
import re
import string
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.plugin import is_offer

from .._objects.names import ENV, OPERANDS, SHORT
from .._objects.parts import is_loopback
from .instances import check_instances
from .k8s_fields import Spec, check_inputs, fields
from .normalise import nearest, suggestion

Inputs = t.Mapping[str, t.Any]
EXPORTER, SMD = f"{OPERANDS}metrics_exporter", f"{OPERANDS}smd"
DRIVER, VALIDATOR = f"{OPERANDS}driver", f"{OPERANDS}validator"
COMPONENTS = (
    "driver", "container_toolkit", "validator", "device_plugin", "feature_discovery", "node_feature_rule", "smd",
    "metrics_exporter",
    "dra_driver", "vfio_manager", "sandbox_device_plugin",
)  # fmt: skip
# The validator of nodes for virtual machines has the inputs of the validator and a deadline of its own.
DEADLINES = (*COMPONENTS, "sandbox_validator")
DRA_GROUP, DRA_VERSION = "resource.k8s.io", "v1"
GROUPS = ("monitoring.coreos.com", "nfd.k8s-sigs.io", PROFILE.label_prefix, "security.openshift.io")
TAG_FIELDS = ("tag", "os_id", "os_version", "kernel", "family")
# Bounds of whole numbers by name, at any depth.
BOUNDS = {
    "port": (1, 65535), "health_port": (0, 65535), "wait_timeout": (1, None), "wait_delay": (1, None),
    "marker_timeout": (1, None),
    "lease_timeout": (0, None), "lease_duration": (5, None), "refresh_interval": (1, None),
    "timeout": (1, None), "user": (0, None), "log_lines": (1, 1000),
}  # fmt: skip
_PREFIX_NAME = re.compile(r"^[a-z][a-z0-9-]{0,19}$")
_RESOURCE = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
_DOMAIN = re.compile(r"^\.?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?\Z")
_DURATION = re.compile(r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")


class Served(t.Protocol):
    """What a cluster serves: API group to its versions."""

    @property
    def groups(self) -> t.Mapping[str, tuple[str, ...]]: ...


def check(inputs: Inputs, spec: Spec, capabilities: Served | None = None) -> list[str]:
    """Notes on typed inputs without the role's prefix; `spec` is their argument spec with it.

    NpuError on what cannot work.

    Without `capabilities` nothing is said about what the cluster serves: the same inputs are checked again when that
    is known.
    """
    own = {name[len(OPERANDS) :]: entry for name, entry in spec.items()}
    check_inputs(own, inputs, OPERANDS)
    _check_numbers(inputs, own)
    _check_words(inputs)
    _check_resource(inputs, own)
    _check_daemon(inputs)
    _check_allocation(inputs, capabilities)
    _check_driver(inputs)
    _check_ready_files(inputs)
    _check_rollback(inputs)
    return _notes(inputs)


def _check_rollback(inputs: Inputs) -> None:
    if inputs["rollback"] and not inputs["wait"]:
        raise NpuError(
            f"{OPERANDS}rollback is true and {OPERANDS}wait is false: nobody would see that an image fails.",
            f"Set {OPERANDS}wait: true.",
        )


def _check_resource(inputs: Inputs, spec: Spec) -> None:
    """The vendor's device plugin takes no name: it offers its own."""
    name, image = inputs["resource_name"], inputs["device_plugin"]["image"]["repository"]
    vendors = spec["device_plugin"]["options"]["image"]["options"]["repository"]["default"]
    known = any(is_offer(name, one) for one in PROFILE.plugin_resources)
    if inputs["device_plugin"]["enabled"] and image.rpartition("/")[2] == vendors.rpartition("/")[2] and not known:
        raise NpuError(
            f"{OPERANDS}resource_name is {name}, which the vendor's device plugin never offers; "
            f"it knows {', '.join(PROFILE.plugin_resources)}.",
            f"Set one of them, or the plugin that offers it in {OPERANDS}device_plugin.image.repository.",
        )


def _check_numbers(inputs: Inputs, spec: Spec) -> None:
    for path, name, holder in fields(spec, inputs, OPERANDS):
        low, high = BOUNDS.get(name, (None, None))
        value = holder[name]
        if low is not None and (value < low or (high is not None and value > high)):
            bounds = "at least %d" % low if high is None else "from %d to %d" % (low, high)
            raise NpuError("%s is %d, and must be %s." % (path, value, bounds), "Correct it.")
    interval = inputs["feature_discovery"]["interval"]
    if not 10 <= interval <= 3600:
        raise NpuError(
            f"{OPERANDS}feature_discovery.interval is {interval:d}, and must be from 10 to 3600.", "Correct it."
        )
    interval = inputs["metrics_exporter"]["interval"]
    if not 1 <= interval <= 60:
        raise NpuError(f"{EXPORTER}.interval is {interval:d}, and must be from 1 to 60.", "Correct it.")
    for name, value in inputs["deadlines"].items():
        if name not in DEADLINES:
            raise NpuError(f"{OPERANDS}deadlines has the unknown component {name}.", suggestion(name, DEADLINES))
        if not re.match(r"^[0-9]+$", str(value)):
            raise NpuError(
                f"{OPERANDS}deadlines.{name} is {value!r}, which is not a number of seconds.",
                "Write for example 1800.",
            )


def _check_words(inputs: Inputs) -> None:
    if not _PREFIX_NAME.match(inputs["name_prefix"]):
        raise NpuError(
            f"{OPERANDS}name_prefix is {inputs['name_prefix']!r}.",
            "Write a small letter, then at most 19 small letters, digits and dashes.",
        )
    for name in ("kubelet_root", "kubelet_roots"):
        for path in [inputs[name]] if isinstance(inputs[name], str) else inputs[name]:
            if not path.startswith("/"):
                raise NpuError(
                    f"{OPERANDS}{name} is {path!r}, which is not an absolute path.",
                    "Write for example /var/lib/kubelet.",
                )
    if not _RESOURCE.match(inputs["resource_name"]):
        raise NpuError(
            f"{OPERANDS}resource_name is {inputs['resource_name']!r}, which is not an extended resource.",
            f"Write for example {PROFILE.resource_name}.",
        )
    for name in ("api_server_cidrs", "cluster_cidrs"):
        for cidr in inputs[name]:
            try:
                ipaddress.ip_network(cidr)
            except ValueError as exc:
                raise NpuError(
                    f"{OPERANDS}{name} has {cidr!r}, which is not a CIDR.", "Write for example 10.0.0.10/32."
                ) from exc
    if inputs["cluster_domain"] and not _DOMAIN.match(inputs["cluster_domain"]):
        raise NpuError(
            f"{OPERANDS}cluster_domain is {inputs['cluster_domain']!r}, which is not a domain.",
            "Write for example cluster.local.",
        )
    sys_path = inputs["feature_discovery"]["host_sys_path"]
    if sys_path and not sys_path.startswith("/"):
        raise NpuError(
            f"{OPERANDS}feature_discovery.host_sys_path is {sys_path!r}, which is not an absolute path.",
            "Write for example /sys.",
        )
    discovery, exporter = inputs["feature_discovery"], inputs["metrics_exporter"]
    if discovery["enabled"] and discovery["source"] == "image" and discovery["oneshot"]:
        raise NpuError(
            f"{OPERANDS}feature_discovery.oneshot is true with an image: "
            "its program ends, and the DaemonSet restarts it forever.",
            "Set oneshot to false, or source to host_tool.",
        )
    if exporter["enabled"] and not exporter["host_network"] and is_loopback(exporter["daemon_url"]):
        raise NpuError(
            f"{EXPORTER}.host_network is false, and its daemon_url {exporter['daemon_url']} is then the pod itself.",
            "Set host_network to true, or daemon_url to an address of the daemon that pods reach.",
        )
    if inputs["runtime_class"]["enabled"] and not inputs["runtime_class"]["handler"]:
        raise NpuError(
            f"{OPERANDS}runtime_class is enabled and has no handler.",
            "Set its handler to the runtime's name in containerd or CRI-O.",
        )
    for path, value in (
        ("device_plugin.scan_interval", inputs["device_plugin"]["scan_interval"]),
        ("metrics_exporter.service_monitor.interval", inputs["metrics_exporter"]["service_monitor"]["interval"]),
    ):
        if value and not _DURATION.match(value):
            raise NpuError(f"{OPERANDS}{path} is {value!r}, which is not a duration.", "Write for example 30s or 1m.")
        # The device plugin ends at once by a ticker without an interval.
        if value and not re.search("[1-9]", value):
            raise NpuError(f"{OPERANDS}{path} is {value!r}, which is no time at all.", "Write for example 30s or 1m.")
    if inputs["delivery"] == "render" and inputs["enabled"] and not inputs["render_dir"]:
        raise NpuError(
            f"{OPERANDS}delivery is render, and {OPERANDS}render_dir is empty.",
            "Name a directory on the controller.",
        )
    if inputs["delivery"] == "diff" and inputs["enabled"] and inputs["state"] == "absent":
        raise NpuError(
            f"{OPERANDS}delivery is diff, but {OPERANDS}state is absent.",
            "Run with --check instead.",
        )
    if inputs["coexistence"] == "takeover" and not inputs["takeover"]["backup_dir"]:
        raise NpuError(
            f"{OPERANDS}coexistence is takeover, and {OPERANDS}takeover has no backup_dir.",
            "Name a directory on the controller.",
        )


def _check_daemon(inputs: Inputs) -> None:
    """The exporter reaches the management daemon of its node by a port and an address that both know."""
    smd, exporter = inputs["smd"], inputs["metrics_exporter"]
    try:
        address = ipaddress.ip_address(smd["host_ip"]) if smd["host_ip"] else None
    except ValueError:
        raise NpuError(
            f"{SMD}.host_ip is {smd['host_ip']!r}, which is not an IP address.",
            "Write for example 127.0.0.1.",
        ) from None
    url = exporter["daemon_url"]
    if not (smd["enabled"] and exporter["enabled"] and is_loopback(url)):
        return
    if url.rpartition(":")[2] != str(smd["port"]):
        raise NpuError(
            f"{EXPORTER}.daemon_url is {url}, and {SMD}.port is {smd['port']:d}.",
            "Set both to the same port.",
        )
    if address is not None and not (address.is_loopback or address.is_unspecified):
        raise NpuError(
            f"{EXPORTER}.daemon_url is {url}, and {SMD}.host_ip is {smd['host_ip']} only.",
            "Set host_ip to 127.0.0.1 or 0.0.0.0.",
        )


def _check_allocation(inputs: Inputs, capabilities: Served | None) -> None:
    if not inputs["dra_driver"]["enabled"]:
        return
    for name in ("device_plugin", "sandbox_device_plugin"):
        if inputs[name]["enabled"]:
            raise NpuError(
                f"{OPERANDS}dra_driver and {OPERANDS}{name} are both enabled and would allocate the same NPUs twice.",
                f"Set {OPERANDS}{name}: {{enabled: false}}, or do so for the DRA driver.",
            )
    if capabilities is not None and DRA_VERSION not in capabilities.groups.get(DRA_GROUP, ()):
        raise NpuError(
            f"{OPERANDS}dra_driver is enabled, but the cluster does not serve {DRA_GROUP}/{DRA_VERSION}.",
            "Use Kubernetes 1.34 or newer, or the device plugin.",
        )


def _check_driver(inputs: Inputs) -> None:
    driver, instances = inputs["driver"], inputs["driver_instances"]
    named = [(DRIVER, driver)] + [(f"{DRIVER}_instances[{number}]", own) for number, own in enumerate(instances)]
    for name, own in named:
        if own["update_strategy"].get("type") != "OnDelete":
            raise NpuError(
                "%s.update_strategy is not OnDelete." % name,
                "Leave it out: a driver is replaced node by node, after the node's work has ended.",
            )
        if not own["privileged"]:
            raise NpuError(
                "%s.privileged is false: "
                "only a privileged container can load a module or make a mount that other pods see." % name,
                "Leave it out, or let the host part install the driver.",
            )
        _check_template(name + ".tag_template", own["tag_template"])
    check_instances(driver, instances)
    roots = sorted({own["host_root"] for own in instances if own["enabled"]})
    if len(roots) > 1 and inputs["container_toolkit"]["enabled"]:
        raise NpuError(
            f"{DRIVER}_instances have several host_root: {', '.join(roots)}. The container toolkit looks into one.",
            "Give all instances the same host_root.",
        )
    if inputs["delivery"] == "render" and inputs["enabled"]:
        for name, own in named if not instances else named[1:]:
            if own["enabled"] and not own["pools"]:
                raise NpuError(
                    "%s is enabled and has no pools, and a render reads no nodes." % name,
                    "Name os_id, os_version and kernel of the nodes in pools.",
                )


def _check_ready_files(inputs: Inputs) -> None:
    """The ready files come from the host part, or from the validator where driver or toolkit are containers."""
    drivers = inputs["driver_instances"] or [inputs["driver"]]
    wanted = [
        name
        for name, own in (("driver", drivers), ("container_toolkit", [inputs["container_toolkit"]]))
        if any(item["enabled"] for item in own)
    ]
    if not wanted:
        return
    validator = inputs["validator"]
    if not validator["enabled"]:
        raise NpuError(
            f"{OPERANDS}{wanted[0]} is enabled without {VALIDATOR}: "
            "the ready files that other components wait for would be missing.",
            f"Set {VALIDATOR}: {{enabled: true}}.",
        )
    waited_for = {
        "driver": "driver" in wanted,
        "toolkit": inputs["device_plugin"]["enabled"] or inputs["dra_driver"]["enabled"],
    }
    for step, waits in waited_for.items():
        if waits and not validator[step]["enabled"]:
            raise NpuError(
                f"{OPERANDS}{wanted[0]} is enabled and {VALIDATOR}.{step}.enabled is false: "
                f"the ready file {step}-ready would be missing.",
                f"Set {VALIDATOR}.{step}.enabled to true.",
            )


def _check_template(name: str, text: str) -> None:
    try:
        parts = [
            (field, spec, conversion)
            for _text, field, spec, conversion in string.Formatter().parse(text)
            if field is not None
        ]
    except ValueError as exc:
        raise NpuError(
            "%s is %r: %s." % (name, text, exc), "Write for example {tag}-{kernel}-{os_id}{os_version}."
        ) from exc
    for field, spec, conversion in parts:
        if field not in TAG_FIELDS or spec or conversion:
            raise NpuError("%s has the unknown field {%s}." % (name, field), suggestion(field, TAG_FIELDS))


def _all_of(names: t.Sequence[str]) -> str:
    """The inputs of these components in one sentence."""
    return " and ".join(OPERANDS + name for name in names)


def _notes(inputs: Inputs) -> list[str]:
    notes = []
    if inputs["metrics_exporter"]["enabled"] and not inputs["smd"]["enabled"]:
        notes.append(
            f"The metrics exporter is enabled without {SMD}: "
            f"it expects the daemon {SHORT}-smd of each host at {inputs['metrics_exporter']['daemon_url']}."
        )
    sandbox = [name for name in ("vfio_manager", "sandbox_device_plugin") if inputs[name]["enabled"]]
    if sandbox and inputs["workload"] == "container" and inputs["node_workload"] != "vm-passthrough":
        notes.append(
            f"{_all_of(sandbox)} is for nodes of virtual machines: "
            f"only nodes with the label {PROFILE.resource_name}.workload.config=vm-passthrough get it."
        )
    if inputs["driver_instances"] and not any(own["enabled"] for own in inputs["driver_instances"]):
        notes.append(
            f"{DRIVER}_instances has instances, but none is enabled: set {DRIVER}.enabled, or enabled of an instance."
        )
    if inputs["pod_security"] in ("baseline", "restricted"):
        notes.append(
            f"{OPERANDS}pod_security is {inputs['pod_security']}, "
            "which rejects every pod that mounts a directory of its host: all of ours. "
            "Next: set it to privileged, unless the API server exempts this namespace."
        )
    for group in inputs["capabilities"]["groups"]:
        near = nearest(group, GROUPS)
        if group not in GROUPS and near:
            notes.append(
                f"{OPERANDS}capabilities.groups has {group}, which changes nothing. Next: perhaps {near} is meant."
            )
    for name in ("validator", "feature_discovery", "vfio_manager"):
        own = inputs[name]
        if own["enabled"] and own["source"] != "image" and (own["image"]["tag"] or own["image"]["digest"]):
            notes.append(
                f"{OPERANDS}{name}.image is set, and source is {own['source']}: the image is not used. "
                "Next: set source to image."
            )
    manager = inputs["vfio_manager"]
    if manager["enabled"] and manager["source"] == "image" and manager["release_on_exit"]:
        notes.append(
            f"{OPERANDS}vfio_manager.release_on_exit works with our script only; "
            "source is image, so the image decides what happens on exit."
        )
    validator = inputs["validator"]
    steps = [step for step in ("driver", "toolkit", "plugin") if validator[step]["enabled"]]
    alike = [
        step for step in steps if not (validator[step]["command"] or validator[step]["args"] or validator[step]["env"])
    ]
    if validator["enabled"] and validator["source"] == "image" and len(alike) > 1:
        notes.append(
            f"{VALIDATOR}.source is image, and the steps {', '.join(alike)} have no command, args or env: "
            f"each runs the image's own command, and only the variable {ENV}VALIDATION names the step."
        )
    containers = [name for name in ("driver", "container_toolkit") if inputs[name]["enabled"]]
    if containers and inputs["validator"]["enabled"] and inputs["validator"]["source"] == "host_tool":
        notes.append(
            f"{_all_of(containers)} is enabled, and the validator runs the tool that the host part installs. "
            f"Next: set {VALIDATOR}.source to image where nodes have no such tool."
        )
    return notes
