# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs in Kubernetes form, checked without an API server, so that a render fails as early as an apply."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects.names import SHORT
from .normalise import suggestion

Spec = t.Mapping[str, t.Mapping[str, t.Any]]
Shape = t.Any
EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
# A shape is a type, a tuple of the words that are allowed, a list of one shape, a mapping of fields, or a function.
EXPRESSION = {"key": str, "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), "values": [str]}
TOLERATION = {"key": str, "operator": ("Exists", "Equal"), "value": str, "effect": EFFECTS, "tolerationSeconds": int}
PREFERENCE = {"weight": int, "preference": {"matchExpressions": [EXPRESSION], "matchFields": [EXPRESSION]}}
_KEY_REF = {"name": str, "key": str, "optional": bool}
ENV_ITEM: dict[str, t.Any] = {
    "name": str,
    "value": str,
    "valueFrom": {
        "fieldRef": {"apiVersion": str, "fieldPath": str},
        "resourceFieldRef": {"containerName": str, "resource": str, "divisor": (str, int)},
        "configMapKeyRef": _KEY_REF,
        "secretKeyRef": _KEY_REF,
    },
}
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_QUANTITY = re.compile(r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$")
_SHARE = re.compile(r"^([0-9]{1,2}|100)%$")
_LABEL = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z")
_DNS = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\Z")
_PATH = re.compile(r"^/(?!.*(^|/)\.\.(/|\Z))[^\s:]*\Z")
_ENV_NAME = re.compile(r"^[^\s=\x00-\x1f]+$")


def check_fields(name: str, value: t.Any, shape: Shape) -> None:
    """Hold `value`, called `name` in errors, against a shape.

    NpuError names the wrong field and the nearest right one.
    """
    if callable(shape) and not isinstance(shape, type):
        shape(name, value)
    elif isinstance(shape, t.Mapping):
        if not isinstance(value, t.Mapping):
            raise NpuError(
                "%s must be a mapping, not %s." % (name, type(value).__name__),
                "Write a YAML mapping with %s." % ", ".join(sorted(shape)),
            )
        for key in value:
            if key not in shape:
                raise NpuError("%s.%s is not a field of Kubernetes." % (name, key), suggestion(str(key), shape))
            check_fields("%s.%s" % (name, key), value[key], shape[key])
    elif isinstance(shape, list):
        if not isinstance(value, (list, tuple)):
            raise NpuError("%s must be a list, not %s." % (name, type(value).__name__), "Write a YAML list.")
        for number, item in enumerate(value):
            check_fields("%s[%d]" % (name, number), item, shape[0])
    elif isinstance(shape, tuple) and all(isinstance(item, str) for item in shape):
        if value not in shape:
            raise NpuError("%s is %r." % (name, value), suggestion(str(value), [word for word in shape if word]))
    else:
        _check_type(name, value, shape if isinstance(shape, tuple) else (shape,))


def _check_type(name: str, value: t.Any, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = {str: "text", int: "a whole number", bool: "true or false", dict: "a mapping"}
        remedy = "Quote it." if str in kinds and isinstance(value, (bool, int, float)) else "Correct its type."
        raise NpuError(
            "%s is %r, which is not %s." % (name, value, " or ".join(wanted[kind] for kind in kinds)), remedy
        )


def check_expression(name: str, value: t.Any) -> None:
    """One match expression of a node selector."""
    check_fields(name, value, EXPRESSION)
    if not value.get("key") or not value.get("operator"):
        raise NpuError(
            "%s has no key or no operator." % name, "Write for example {key: zone, operator: In, values: [a]}."
        )
    count = len(value.get("values") or [])
    operator = value["operator"]
    if operator in ("In", "NotIn") and not count:
        raise NpuError("%s has the operator %s and no values." % (name, operator), "Add values, or use Exists.")
    if operator in ("Exists", "DoesNotExist") and count:
        raise NpuError("%s has the operator %s and values." % (name, operator), "Remove the values, or use In.")
    if operator in ("Gt", "Lt") and (count != 1 or not re.match(r"^-?[0-9]+$", value["values"][0])):
        raise NpuError(
            "%s needs one whole number, as text, for the operator %s." % (name, operator),
            "Write for example values: ['4'].",
        )


def check_toleration(name: str, value: t.Any) -> None:
    check_fields(name, value, TOLERATION)
    operator = value.get("operator", "Equal")
    if not value.get("key") and operator != "Exists":
        raise NpuError(
            "%s has no key." % name, "Name the key of the taint, or use the operator Exists to tolerate all taints."
        )
    if operator == "Exists" and value.get("value"):
        raise NpuError("%s has the operator Exists and a value." % name, "Remove the value, or use the operator Equal.")
    if "tolerationSeconds" in value and value.get("effect") != "NoExecute":
        raise NpuError(
            "%s.tolerationSeconds needs the effect NoExecute." % name, "Set the effect, or remove the seconds."
        )


def check_preference(name: str, value: t.Any) -> None:
    check_fields(name, value, PREFERENCE)
    if not 1 <= value.get("weight", 0) <= 100 or not value.get("preference"):
        raise NpuError(
            "%s needs a weight from 1 to 100 and a preference." % name,
            "Write {weight: 1, preference: {matchExpressions: [...]}}.",
        )
    for part in ("matchExpressions", "matchFields"):
        for number, item in enumerate(value["preference"].get(part) or []):
            check_expression("%s.preference.%s[%d]" % (name, part, number), item)


def check_update_strategy(name: str, value: t.Any) -> None:
    """The updateStrategy of a DaemonSet; an empty one stands for the shared one."""
    if not value:
        return
    check_fields(
        name,
        value,
        {
            "type": ("RollingUpdate", "OnDelete"),
            "rollingUpdate": {"maxUnavailable": check_share, "maxSurge": check_share},
        },
    )
    if value.get("type") == "OnDelete" and value.get("rollingUpdate"):
        raise NpuError("%s has the type OnDelete and rollingUpdate." % name, "Remove one of them.")
    rolling = value.get("rollingUpdate") or {}
    if rolling.get("maxUnavailable", 1) in (0, "0%") and rolling.get("maxSurge", 0) in (0, "0%"):
        raise NpuError(
            "%s has maxUnavailable 0 and no maxSurge: no update could ever proceed." % name,
            "Set one of them to 1 or more.",
        )
    surge = (value.get("rollingUpdate") or {}).get("maxSurge", 0)
    if surge not in (0, "0%") and (value["rollingUpdate"].get("maxUnavailable", 1)) not in (0, "0%"):
        raise NpuError(
            "%s has maxSurge, and maxUnavailable is not 0." % name,
            "Set maxUnavailable to 0: Kubernetes takes one of them only.",
        )


def check_share(name: str, value: t.Any) -> None:
    """A number of nodes or a share of them."""
    if (
        isinstance(value, bool)
        or not (isinstance(value, int) and value >= 0)
        and not (isinstance(value, str) and _SHARE.match(value))
    ):
        raise NpuError(
            "%s is %r, which is neither a number of nodes nor a share of them." % (name, value), "Write 1 or '10%'."
        )


def check_resources(name: str, value: t.Any) -> None:
    check_fields(
        name, value, {"requests": _check_amounts, "limits": _check_amounts, "claims": [{"name": str, "request": str}]}
    )


def _check_amounts(name: str, value: t.Any) -> None:
    if not isinstance(value, t.Mapping):
        raise NpuError(
            "%s must be a mapping, not %s." % (name, type(value).__name__),
            "Write for example {cpu: 20m, memory: 40Mi}.",
        )
    for key, amount in value.items():
        if key not in _COMPUTE and "/" not in str(key) and not str(key).startswith("hugepages-"):
            raise NpuError("%s.%s is not a Kubernetes resource." % (name, key), suggestion(str(key), _COMPUTE))
        if isinstance(amount, bool) or not _QUANTITY.match(str(amount)):
            raise NpuError(
                "%s.%s is %r, which is not a quantity." % (name, key, amount),
                "Write for example 20m for cpu or 40Mi for memory.",
            )


def check_env_item(name: str, value: t.Any) -> None:
    check_fields(name, value, ENV_ITEM)
    if not _ENV_NAME.match(value.get("name", "")):
        raise NpuError(
            "%s.name is %r, which is not a variable name." % (name, value.get("name", "")),
            "Write a name without spaces and =.",
        )
    if "value" in value and "valueFrom" in value:
        raise NpuError("%s has both value and valueFrom." % name, "Remove one of them.")
    if "valueFrom" in value and len(value["valueFrom"]) != 1:
        raise NpuError(
            "%s.valueFrom needs exactly one source." % name,
            "Take one of: %s." % ", ".join(sorted(ENV_ITEM["valueFrom"])),
        )


def check_name(name: str, value: t.Any) -> None:
    """The name of an object; an empty one stands for none."""
    _check_type(name, value, (str,))
    if value and (len(value) > 253 or not _DNS.match(value)):
        raise NpuError(
            "%s is %r, which is not an object name." % (name, value),
            f"Write small letters, digits, dashes and dots, as in {SHORT}-system.",
        )


def check_namespace(name: str, value: t.Any, kind: str = "namespace") -> None:
    """A name without dots."""
    check_name(name, value)
    if not value or len(value) > 63 or "." in value:
        raise NpuError(
            "%s is %r, which is not a name of a %s." % (name, value, kind),
            "Write at most 63 small letters, digits and dashes.",
        )


def check_volumes(name: str, value: t.Any) -> None:
    """Host paths, whose names are those of volumes."""
    for number, item in enumerate(value):
        check_namespace("%s[%d].name" % (name, number), item["name"], "volume")


def check_class(name: str, value: t.Any) -> None:
    check_name(name + ".name", value["name"])


def check_path(name: str, value: t.Any) -> None:
    """A place on the host or in a container; an empty one stands for another input."""
    _check_type(name, value, (str,))
    if value and not _PATH.match(value):
        raise NpuError(
            "%s is %r, which is not an absolute path without .., spaces and colons." % (name, value),
            f"Write for example {PROFILE.run_dir}.",
        )


def check_root(name: str, value: t.Any) -> None:
    check_path(name, value)
    if not value.strip("/"):
        raise NpuError(
            "%s is %r: nothing can be mounted at the root of a container." % (name, value),
            f"Write for example {PROFILE.container_driver_root}.",
        )


def check_annotations(name: str, value: t.Any) -> None:
    """Keys with a legal name and values that are text, or can be it without a change."""
    _check_type(name, value, (dict,))
    for key, item in value.items():
        prefix, _slash, rest = str(key).rpartition("/")
        if not rest or not _LABEL.match(rest) or ("/" in str(key) and not _DNS.match(prefix)):
            raise NpuError(
                "%s: %r is not a valid Kubernetes key." % (name, key),
                "Write letters, digits, dashes, dots and _, after an optional domain and /.",
            )
        if not isinstance(item, (str, int)):
            raise NpuError("%s.%s is %r, which is not text." % (name, key, item), "Quote the intended text.")


def check_labels(name: str, value: t.Any) -> None:
    check_annotations(name, value)
    for key, item in value.items():
        if not _LABEL.match(str(item)):
            raise NpuError(
                "%s.%s is %r, which is not a label value." % (name, key, item),
                "Write at most 63 letters, digits, dashes, dots and _.",
            )


# What the inputs of these names hold, wherever they are in the argument specs.
CHECKS: t.Mapping[str, Shape] = {
    "tolerations": [check_toleration],
    "node_affinity": [check_expression],
    "expressions": [check_expression],
    "preferred_node_affinity": [check_preference],
    "update_strategy": check_update_strategy,
    "resources": check_resources,
    "env": [check_env_item],
    "labels": check_labels,
    "node_selector": check_labels,
    "annotations": check_annotations,
    "namespace_annotations": check_annotations,
    "namespace": check_namespace,
    "pull_secret_name": check_name,
    "image_pull_secrets": [check_name],
    "pull_secrets": [check_name],
    "priority_class": check_name,
    "handler": check_name,
    "host_paths": check_volumes,
    "runtime_class": check_class,
    "path": check_path,
    "mount_path": check_path,
    "marker_dir": check_root,
    "device_plugins_dir": check_root,
    "features_dir": check_root,
    "host_root": check_root,
    "host_tool": check_path,
}


def fields(
    spec: Spec, values: t.Mapping[str, t.Any], path: str = ""
) -> t.Iterator[tuple[str, str, t.MutableMapping[str, t.Any]]]:
    """(path, name, mapping that holds it) of every input of `spec` that `values` has.

    Parents come before their children; `path` comes before each path.
    """
    for name, option in spec.items():
        if name not in values:
            continue
        value = values[name]
        yield path + name, name, t.cast(t.MutableMapping[str, t.Any], values)
        inner = option.get("options")
        if inner and isinstance(value, t.Mapping):
            yield from fields(inner, value, "%s%s." % (path, name))
        elif inner and isinstance(value, list):
            for number, item in enumerate(value):
                yield from fields(inner, item, "%s%s[%d]." % (path, name, number))


def check_inputs(spec: Spec, values: t.Mapping[str, t.Any], path: str) -> None:
    """Check every input in Kubernetes form against its fields.

    `values` are typed and named as in `spec`; `path` comes before each name.
    """
    for place, name, holder in fields(spec, values, path):
        if name in CHECKS and holder[name] is not None:
            check_fields(place, holder[name], CHECKS[name])
