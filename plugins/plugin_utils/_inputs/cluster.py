# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of the cluster part, read once; the role's argument_specs are the only list of them."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.model import Capabilities
from .._objects.names import role
from . import releases
from .k8s_fields import Spec, fields
from .names import unknown
from .normalise import normalise
from .policy_files import inherit, located, overlay, read_policy
from .policy_rules import COMPONENTS, check
from .roles import role_inputs

ROLE = role("operands")
PREFIX = ROLE + "_"
SECRET = "pull_secret_content"
FILES = (PREFIX + "policy_files", PREFIX + "policy_ignore")
# Hexadecimal digits of a digest for each input.
_HEX = 8
# What may differ between hosts of one cluster.
OF_A_HOST = ("node_name", "node_workload", "kubeconfig", "context", "notes")


def read_inputs(raw: t.Mapping[str, t.Any], names: t.Iterable[str] = (), own: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Typed inputs without the role's prefix, from variables and the policy files they name; `notes` has the warnings.

    `names` are those of all variables, of which none may be a misspelt input; `own` are prefixes of the user's own.
    NpuError names variable, file and key, and the remedy.
    """
    spec = role_inputs((ROLE,))
    for item in unknown(names, own):
        if item.misspelt:
            raise item.error()
    raw = plain(raw)
    files, ignore = (normalise(raw, {name: spec[name]})[name] for name in FILES)
    policy = read_policy(files, ignore, spec)
    given, sources = overlay(policy, raw, spec)
    try:
        given = inherit(given)
        inputs = _typed(given, spec)
        releases.fill(inputs)
        notes = [*check(inputs, spec), *releases.judge(inputs)]
    except NpuError as exc:
        raise located(exc, sources, given) from exc
    inputs["notes"] = [*policy.notes, *notes]
    return inputs


def check_served(inputs: t.Mapping[str, t.Any], capabilities: Capabilities) -> None:
    """NpuError when the inputs want what the cluster does not serve."""
    check(inputs, role_inputs((ROLE,)), capabilities)


def plain(value: t.Any) -> t.Any:
    """A value of exact types: Ansible's templates give subclasses that YAML cannot write."""
    if isinstance(value, t.Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if getattr(value, "__ENCRYPTED__", False):
        # A vaulted value of ansible-core 2.18 and before is no str.
        return str(value)
    exact = next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)
    return exact(value) if exact else value


def _typed(raw: t.Mapping[str, t.Any], spec: Spec) -> dict[str, t.Any]:
    """Typed inputs, completed from each other: environments, update strategy, steps of the validator by `checks`."""
    empty: dict[str, t.Any] = {
        name: []
        for name, entry in spec.items()
        if entry["type"] == "list" and raw.get(name) is None and "default" not in entry
    }
    typed = normalise({**raw, **empty}, spec)
    for path, name, holder in fields(spec, typed):
        if name == "env":
            holder[name] = environment(path, holder[name])
    inputs = {name[len(PREFIX) :]: value for name, value in typed.items()}
    for name in COMPONENTS:
        if inputs[name].get("update_strategy") == {}:
            inputs[name]["update_strategy"] = inputs["update_strategy"]
    for step, part in inputs["validator"].pop("checks").items():
        if part["enabled"] is not None:
            inputs["validator"][step]["enabled"] = part["enabled"]
    inputs[SECRET] = pull_secret(inputs[SECRET])
    inputs["kubeconfig"] = kubeconfig_text(inputs["kubeconfig"])
    return inputs


def kubeconfig_text(value: t.Any) -> str:
    """A path, or the content of a kubeconfig as text: a mapping as JSON, a vaulted value decrypted. Never shown."""
    if value in (None, "", {}):
        return ""
    if isinstance(value, t.Mapping):
        return json.dumps(value, sort_keys=True, default=str)
    if isinstance(value, str):
        return value if "\n" in value else value.strip()
    raise NpuError(
        f"{PREFIX}kubeconfig is neither a path nor a kubeconfig, but of type {type(value).__name__}.",
        "Give the path of a kubeconfig on the controller, or its content as text or as a mapping.",
    )


def environment(name: str, value: t.Any) -> list[dict[str, t.Any]]:
    """A mapping or the Kubernetes list, as the list.

    Numbers and booleans of a mapping become text as YAML would print them.
    """
    if value in (None, ""):
        return []
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise NpuError("%s is neither a mapping nor a list." % name, "Write NAME: value.") from exc
    if isinstance(value, t.Mapping):
        return [{"name": str(key), "value": _env_text(item)} for key, item in value.items()]
    if isinstance(value, (list, tuple)) and all(isinstance(item, t.Mapping) and item.get("name") for item in value):
        return [dict(item, value=_env_text(item["value"])) if "value" in item else dict(item) for item in value]
    raise NpuError("%s is neither a mapping nor a list of items with a name." % name, "Write NAME: value.")


def _env_text(value: t.Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def pull_secret(value: t.Any) -> str:
    """The dockerconfigjson as compact JSON text, or empty. Its content never appears in an error."""
    if value in (None, "", {}):
        return ""
    try:
        data = json.loads(value) if isinstance(value, str) else dict(value)
    except (ValueError, TypeError):
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("auths"), dict):
        raise NpuError(
            f"{PREFIX}{SECRET} is not a dockerconfigjson.",
            'Give {"auths": {"registry": {"auth": "..."}}}.',
        )
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def rendered_key(inputs: t.Mapping[str, t.Any]) -> str | None:
    """What makes two hosts members of one set of objects that no cluster is asked for.

    Empty for a host without a cluster, None where the login names the cluster.
    """
    if not inputs["enabled"]:
        return ""
    return "manifests in %s" % inputs["render_dir"] if inputs["delivery"] == "render" else None


def act_of(inputs: t.Mapping[str, t.Any]) -> str:
    """The act that does the work for a cluster with these inputs."""
    if inputs["delivery"] != "apply":
        return str(inputs["delivery"])
    return "run" if inputs["state"] == "present" else "absent"


def wants_smoke(inputs: t.Mapping[str, t.Any]) -> bool:
    """Whether a workload is to prove the nodes."""
    return bool(inputs["smoke"]["enabled"] and inputs["enabled"] and act_of(inputs) == "run")


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    """The first _HEX digits of a digest of each input that hosts of one cluster must share, ordered by name."""
    values = (json.dumps(inputs[name], sort_keys=True, default=str) for name in _shared_names())
    return "".join(hashlib.sha256(value.encode()).hexdigest()[:_HEX] for value in values)


def _shared_names() -> list[str]:
    return sorted(name[len(PREFIX) :] for name in role_inputs((ROLE,)) if name[len(PREFIX) :] not in OF_A_HOST)


def _differing(one: str, other: str) -> str:
    """The inputs in which two digests differ."""
    places = ((name, number * _HEX) for number, name in enumerate(_shared_names()))
    return ", ".join(PREFIX + name for name, at in places if one[at : at + _HEX] != other[at : at + _HEX])


def choose_actors(members: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
    """Cluster to {actor, members, error}, from member records in play order.

    Clusters of the same name whose logins differ (`mark`) get a number. `error` tells of members that differ in a
    shared input.
    """
    clusters: dict[str, dict[str, t.Any]] = {}
    numbers: dict[str, list[t.Any]] = {}
    for host, member in members.items():
        name = member.get("cluster")
        if not name:
            continue
        marks = numbers.setdefault(name, [])
        if member.get("mark") not in marks:
            marks.append(member.get("mark"))
        number = marks.index(member.get("mark")) + 1
        key = "%s (%d)" % (name, number) if number > 1 else name
        cluster = clusters.setdefault(key, {"actor": host, "members": [], "error": ""})
        cluster["members"].append(host)
        if member["digest"] != members[cluster["actor"]]["digest"] and not cluster["error"]:
            cluster["error"] = (
                "%s and %s belong to one cluster (%s) and differ in %s. Next: "
                "Set this for the group of the whole cluster; its inputs make one set of objects."
                % (cluster["actor"], host, key, _differing(members[cluster["actor"]]["digest"], member["digest"]))
            )
    return clusters
