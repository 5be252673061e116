# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of the host roles, and what they mean for the modules.

The argument specs are the one list of names, types and defaults.
"""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._runtime import base as runtime

from .._objects.names import role
from .normalise import is_nothing, normalise

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 and before template any text

    def trust_as_template(value: str) -> str:
        return value


# Five files are read for every host: libyaml's loader is six times as fast, and not everywhere.
Loader: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
COLLECTION = pathlib.Path(__file__).resolve().parents[3]
DISCOVER, PREFLIGHT, DRIVER = role("discover"), role("preflight"), role("driver")
TOOLKIT, VALIDATOR = role("container_toolkit"), role("validator")
HOST_ROLES = (DISCOVER, PREFLIGHT, DRIVER, TOOLKIT, VALIDATOR)
# What the role registers that observes.
OBSERVATION = f"{DISCOVER}_observation"
HOOKS = {"auto": "auto", "always": "on", "never": "off"}
BY_HAND = tuple(f"runtime_{name}" for name in runtime.BY_HAND)


@functools.lru_cache(maxsize=None)
def role_inputs(roles: tuple[str, ...] = HOST_ROLES) -> dict[str, t.Any]:
    """Options of the `main` entry of each role, merged: {variable: spec}.

    Made once a process: callers must not change the result.
    """
    merged: dict[str, t.Any] = {}
    for name in roles:
        merged.update(_options(name))
    return merged


@functools.lru_cache(maxsize=None)
def _options(name: str) -> dict[str, t.Any]:
    """Those of one role. Its file is read once a process, for whatever roles it is merged with."""
    text = (COLLECTION / "roles" / name / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options: dict[str, t.Any] = yaml.load(text, Loader=Loader)["argument_specs"]["main"]["options"]
    return options


@functools.lru_cache(maxsize=None)
def role_texts(name: str) -> dict[str, t.Any]:
    """The vars of a role; a text that only names another one of them is that one. Read once a process."""
    text = (COLLECTION / "roles" / name / "vars" / "main.yml").read_text(encoding="utf-8")
    data: dict[str, t.Any] = yaml.load(text, Loader=Loader)
    named = {"{{ %s }}" % key: value for key, value in data.items() if isinstance(value, str)}
    return {key: _named(value, named) for key, value in data.items()}


def _named(value: t.Any, named: t.Mapping[str, str]) -> t.Any:
    if isinstance(value, dict):
        return {key: _named(item, named) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, named) for item in value]
    return named.get(value, value) if isinstance(value, str) else value


def support_matrix() -> list[dict[str, t.Any]]:
    """The rules of the collection: callers must not change them."""
    rules: list[dict[str, t.Any]] = role_texts(PREFLIGHT)[f"__{PREFLIGHT}_support_matrix"]
    return rules


@functools.lru_cache(maxsize=None)
def role_defaults(name: str) -> dict[str, t.Any]:
    """The defaults of a role, templates of ours. Read once a process: callers must not change the result."""
    text = (COLLECTION / "roles" / name / "defaults" / "main.yml").read_text(encoding="utf-8")
    defaults: dict[str, t.Any] = _trusted(yaml.load(text, Loader=Loader))
    return defaults


def _trusted(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


def _default(entry: t.Mapping[str, t.Any]) -> t.Any:
    """The default of an option; a text of ours may be a template (that of driver_ca_cert names a shared input)."""
    value = entry.get("default")
    return trust_as_template(value) if isinstance(value, str) else value


# The defaults of ours that name a shared input. Rendering the first template of a process costs 30 ms.
_SHARED = re.compile(
    r"\{\{ (?:(?P<text>\w+) \| default\('', true\)|'[^']*' if (?P<switch>\w+) \| default\(false\) \| bool else '') \}\}"
)


def _is_plain(value: t.Any) -> bool:
    """Whether there is no template in it; what is not known is not plain. A template costs a hundred times the look."""
    if isinstance(value, str):
        return "{" not in value or not any(mark in value for mark in ("{{", "{%", "{#"))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float))


def raw_inputs(
    templar: t.Any, variables: t.Mapping[str, t.Any], spec: t.Mapping[str, t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """Values of the inputs in `spec` from the inventory, else their defaults.

    Templates are resolved, types are not converted yet. None, and empty text for what is no text, mean not set.
    """

    def resolved(value: t.Any) -> t.Any:
        return value if _is_plain(value) else templar.template(value)

    def default(entry: t.Mapping[str, t.Any]) -> t.Any:
        value = entry.get("default")
        shared = _SHARED.fullmatch(value) if isinstance(value, str) else None
        if shared is None:
            return resolved(_default(entry))
        name = shared["text"] or shared["switch"]
        if shared["switch"]:
            return resolved(_default(entry)) if name in variables else ""
        return resolved(variables.get(name)) or ""

    def of(name: str, entry: t.Mapping[str, t.Any]) -> t.Any:
        value = variables.get(name)
        # A role that is imported has its defaults among the variables.
        ours = isinstance(value, str) and value == entry.get("default")
        found = None if ours else resolved(value)
        return default(entry) if is_nothing(found, entry) else found

    return {name: of(name, entry) for name, entry in spec.items()}


# Limits of what a run waits for; who writes 0 may mean none, and nothing could end in time.
_WAITS = (DISCOVER, DRIVER, f"{DRIVER}_load", f"{DRIVER}_reboot", f"{TOOLKIT}_restart")
_LIMITS = {f"{name}_timeout" for name in (*_WAITS, role("bundle"), role("support"), role("support_host"))}


def judge_numbers(values: t.Mapping[str, t.Any]) -> None:
    """NpuError for an input that is a number below what it counts or limits; the cluster part has bounds of its own."""
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value < 0 or (value == 0 and name in _LIMITS):
                least = "more than 0" if name in _LIMITS else "at least 0"
                raise NpuError("%s is %g, and must be %s." % (name, value, least), "Correct it.")


def read_inputs(templar: t.Any, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """All inputs of the host roles, typed. NpuError names the variable that is wrong."""
    spec = role_inputs()
    wanted = normalise(raw_inputs(templar, variables, spec), spec)
    judge_numbers(wanted)
    runtime.described_by_hand(wanted, f"{TOOLKIT}_")
    return wanted


def cdi_options(wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Options of the module cdi_spec but for its path; the form may still be auto."""
    get = {name[len(TOOLKIT) + 1 :]: value for name, value in wanted.items() if name.startswith(f"{TOOLKIT}_")}
    # A host whose driver comes from a container has none of its own.
    in_container = wanted[f"{DRIVER}_source"] == "container" and get["driver_root"] == "/"
    options = {
        "form": get["cdi_form"],
        "driver_root": PROFILE.container_driver_root if in_container else get["driver_root"],
        "selinux_context": get["selinux"],
        "hooks": HOOKS[get["hooks"]],
        "hook_path": get["hook_path"],
        "host_tool": get["host_tool"],
        "known_hooks": get["known_hooks"],
        "legacy_hookname": bool(get["legacy_hookname"]),
        "zero_devices": get["zero_devices"],
    }
    if get["library_path"]:
        options["container_library_path"] = get["library_path"]
    if get["source"] != "host":
        options["owner"] = get["source"]
    return options


def by_host_tool(wanted: t.Mapping[str, t.Any]) -> bool:
    """Whether the host tool may observe. One that no run keeps current any more is left alone."""
    return bool(wanted[f"{DISCOVER}_by_host_tool"] and wanted[f"{TOOLKIT}_host_tool"])


def observe_options(wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Options of the modules observe and validate, and of the host tool.

    A toolkit in a container is proven by its pods, and can come only after the driver.
    """
    scopes = {"scopes": ["driver"]} if wanted[f"{TOOLKIT}_source"] == "container" else {}
    return {
        **scopes,
        "driver_version": wanted[f"{DRIVER}_version"] or None,
        "firmware_version": wanted[f"{VALIDATOR}_firmware_version"] or None,
        "blocking": wanted[f"{VALIDATOR}_blocking"],
        "expected_addresses": wanted[f"{DISCOVER}_expected_addresses"],
        "timeout": wanted[f"{DISCOVER}_timeout"],
        "runtimes": wanted[f"{TOOLKIT}_runtimes"],
        **{name: wanted[f"{TOOLKIT}_{name}"] for name in BY_HAND},
        "no_runtime": wanted[f"{TOOLKIT}_no_runtime"],
        "cdi": cdi_options(wanted),
        "cdi_path": wanted[f"{TOOLKIT}_cdi_path"],
    }
