# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of the host roles, and what they mean for the modules."""

from __future__ import annotations

import typing as t

import jinja2
import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import complete, read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    HOST_ROLES,
    by_host_tool,
    observe_options,
    raw_inputs,
    read_inputs,
    role_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import typed_input


class Templar:
    """Templates nothing but the defaults that stand for a shared input."""

    def template(self, value: t.Any) -> t.Any:
        return "" if isinstance(value, str) and "{{" in value else value


def options(**variables: t.Any) -> dict[str, t.Any]:
    return observe_options(read_inputs(Templar(), variables))


def test_every_host_role_has_inputs() -> None:
    names = role_inputs()
    for role in HOST_ROLES:
        assert [name for name in names if name.startswith(role + "_")], role


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("rbln_driver_timeout", "0", "is 0, and must be more than 0. Next: Correct it."),
        ("rbln_driver_load_timeout", 0, "is 0, and must be more than 0. Next: Correct it."),
        ("rbln_discover_timeout", -0.5, "is -0.5, and must be more than 0. Next: Correct it."),
        ("rbln_container_toolkit_restart_timeout", 0, "is 0, and must be more than 0. Next: Correct it."),
        ("rbln_driver_in_use_timeout", -1, "is -1, and must be at least 0. Next: Correct it."),
        ("rbln_driver_keep", "-1", "is -1, and must be at least 0. Next: Correct it."),
        ("rbln_support_host_timeout", 0, "is 0, and must be more than 0. Next: Correct it."),
        ("rbln_bundle_timeout", "-5", "is -5, and must be more than 0. Next: Correct it."),
        ("rbln_report_keep", -1, "is -1, and must be at least 0. Next: Correct it."),
    ],
)
def test_a_number_with_which_nothing_could_end_is_refused(name: str, value: t.Any, told: str) -> None:
    """An installer with a limit of 0 seconds would be killed as it starts."""
    reads = [lambda: typed_input(name, value)]
    reads += [lambda: read_inputs(Templar(), {name: value})] if name in role_inputs() else []
    for read in reads:
        with pytest.raises(NpuError) as wrong:
            read()
        assert str(wrong.value) == f"{name} {told}"


def test_zero_is_a_number_where_it_means_none() -> None:
    zero = {"rbln_driver_keep": 0, "rbln_driver_disk_free": "0", "rbln_driver_in_use_timeout": 0}
    assert [read_inputs(Templar(), zero)[name] for name in zero] == [0, 0, 0]


@pytest.mark.parametrize(
    "variables, may",
    [
        ({}, True),
        ({"rbln_discover_by_host_tool": "no"}, False),
        # One that an older release has left would be of another release in each run, and no run would mend that.
        ({"rbln_container_toolkit_host_tool": False}, False),
    ],
)
def test_only_a_host_tool_that_runs_keep_current_is_asked(variables: dict[str, t.Any], may: bool) -> None:
    assert by_host_tool(read_inputs(Templar(), variables)) is may


def test_the_options_are_ones_that_the_modules_take() -> None:
    settings = read_settings(PROFILE, complete(options(), "options"))
    assert settings.cdi_path == "/var/run/cdi/rbln.yaml"
    assert settings.cdi.form == "auto"
    assert settings.rules.blocking == ["error"]


@pytest.mark.parametrize(
    "variables, key, value",
    [
        ({"rbln_driver_version": "3.2.2"}, "driver_version", "3.2.2"),
        ({}, "driver_version", None),
        ({"rbln_container_toolkit_runtimes": "containerd,docker"}, "runtimes", ["containerd", "docker"]),
        (
            {"rbln_container_toolkit_runtimes": ["docker"], "rbln_container_toolkit_runtime_socket": "/run/x.sock"},
            "runtime_socket",
            "/run/x.sock",
        ),
        ({"rbln_validator_blocking": ["error", "link_degraded"]}, "blocking", ["error", "link_degraded"]),
        ({"rbln_discover_timeout": "3"}, "timeout", 3.0),
        ({"rbln_discover_expected_addresses": ["0000:83:00.0"]}, "expected_addresses", ["0000:83:00.0"]),
    ],
)
def test_inputs_become_options(variables: dict[str, t.Any], key: str, value: t.Any) -> None:
    assert options(**variables)[key] == value


@pytest.mark.parametrize(
    "given, message",
    [
        (
            {"runtime_unit": "x.service"},
            "A runtime is described by rbln_container_toolkit_runtime_unit, and 0 runtimes are named. "
            "Next: Name the one runtime that is meant in rbln_container_toolkit_runtimes.",
        ),
        (
            {"runtimes": ["docker", "containerd"], "runtime_config_file": "/x", "runtime_socket": "/y"},
            "A runtime is described by rbln_container_toolkit_runtime_config_file, "
            "rbln_container_toolkit_runtime_socket, and 2 runtimes are named. Next: Name the one runtime",
        ),
        (
            {"runtimes": ["docker"], "runtime_config_file": "daemon.json"},
            "rbln_container_toolkit_runtime_config_file is 'daemon.json'. Next: Give an absolute path.",
        ),
    ],
)
def test_d01_a_description_is_of_one_runtime(given: dict[str, t.Any], message: str) -> None:
    with pytest.raises(NpuError) as caught:
        read_inputs(Templar(), {f"rbln_container_toolkit_{name}": value for name, value in given.items()})
    assert str(caught.value).startswith(message)


def test_an_input_that_is_null_takes_its_default_with_what_that_refers_to() -> None:
    found = read_inputs(
        Templar(),
        {
            "rbln_driver_http_proxy": None,
            "rbln_driver_version": None,
            "rbln_driver_hold": None,
            "rbln_driver_keep": "3",
        },
    )
    assert [found["rbln_driver_" + name] for name in ("http_proxy", "version", "hold", "keep")] == ["", "", True, 3]


@pytest.mark.parametrize("given, hooks", [("auto", "auto"), ("always", "on"), ("never", "off")])
def test_the_word_for_hooks(given: str, hooks: str) -> None:
    assert options(rbln_container_toolkit_hooks=given)["cdi"]["hooks"] == hooks


def test_a_driver_in_a_container_has_its_files_below_its_root() -> None:
    assert options()["cdi"]["driver_root"] == "/"
    assert options(rbln_driver_source="container")["cdi"]["driver_root"] == "/run/rbln/driver"
    given = options(rbln_driver_source="container", rbln_container_toolkit_driver_root="/opt/rbln")
    assert given["cdi"]["driver_root"] == "/opt/rbln"


def test_a_toolkit_in_a_container_is_not_proven_by_its_host() -> None:
    usual, found = options(), options(rbln_container_toolkit_source="container")
    assert "scopes" not in usual and "owner" not in usual["cdi"]
    assert (found["scopes"], found["cdi"]["owner"]) == (["driver"], "container")
    assert read_settings(PROFILE, complete(found, "options")).rules.scopes == ["driver"]


def test_isolation_is_only_there_when_asked_for() -> None:
    assert "container_library_path" not in options()["cdi"]
    assert (
        options(rbln_container_toolkit_library_path="/usr/local/lib/rbln")["cdi"]["container_library_path"]
        == "/usr/local/lib/rbln"
    )


def test_a04_a_version_given_as_a_number_is_refused() -> None:
    with pytest.raises(NpuError, match="rbln_driver_version is the number 3.2"):
        options(rbln_driver_version=3.2)


def test_only_a_template_is_rendered() -> None:
    asked: list[t.Any] = []

    class Templar:
        @staticmethod
        def template(value: t.Any) -> t.Any:
            asked.append(value)
            return "3.2.2" if value == "{{ site_version }}" else value

    unknown = object()
    given: dict[str, t.Any] = {
        "rbln_driver_version": "{{ site_version }}",
        "rbln_discover_timeout": 3,
        "rbln_discover_expected_addresses": ["0000:83:00.0"],
        "rbln_container_toolkit_runtimes": ["{% if x %}docker{% endif %}"],
        "rbln_container_toolkit_hook_path": unknown,
    }
    spec = {name: {"default": "{{ rbln_driver_version }}"} for name in ("rbln_x", *given)}
    found = raw_inputs(Templar(), {**given, "rbln_y": "{{ x }}"}, {**spec, "rbln_z": {"default": "text"}})
    assert [one for one in asked if one is not unknown] == [
        "{{ rbln_driver_version }}", "{{ site_version }}", ["{% if x %}docker{% endif %}"],
    ]  # fmt: skip
    assert len(asked) == 4 and found == {
        **given, "rbln_driver_version": "3.2.2", "rbln_x": "{{ rbln_driver_version }}", "rbln_z": "text",
    }  # fmt: skip


def test_a_default_that_names_a_shared_input_is_not_rendered() -> None:
    """The values are those of the templates, for all of ours."""
    environment = jinja2.Environment()
    environment.filters["bool"] = lambda value: str(value).lower() in ("true", "yes", "1")
    asked: list[t.Any] = []

    class Templar:
        @staticmethod
        def template(value: t.Any) -> t.Any:
            asked.append(value)
            return environment.from_string(value).render(site="rendered", **given)

    names = {"rbln_sdk", "rbln_airgap", "rbln_ca_cert", "rbln_http_proxy", "rbln_https_proxy", "rbln_no_proxy"}
    own = {name: entry for name, entry in role_inputs().items() if "{{" in str(entry.get("default"))}
    assert names == {name for entry in own.values() for name in names if name in entry["default"]} and len(own) == 6
    for given in ({}, dict.fromkeys(names, ""), dict.fromkeys(names), dict.fromkeys(names, "x"), {"rbln_airgap": True}):
        del asked[:]
        plain = {name: environment.from_string(entry["default"]).render(**given) for name, entry in own.items()}
        assert raw_inputs(Templar(), given, own) == plain
        assert asked == [own["rbln_driver_bundle"]["default"]] * ("rbln_airgap" in given)
    assert raw_inputs(Templar(), {"rbln_sdk": "{{ site }}"}, {"rbln_preflight_sdk": own["rbln_preflight_sdk"]}) == {
        "rbln_preflight_sdk": "rendered"
    }
