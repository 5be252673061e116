# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role rbln_bundle makes of what hosts say: folders of bundles, and where the web server is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles" / "rbln_bundle"
DEBIAN = {"id": "debian", "version_id": "13", "arch": "x86_64"}


def seen(expression: str, hosts: dict[str, Any], server: dict[str, Any] | None = None, **given: Any) -> Any:
    variables: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        read = yaml.safe_load((ROLE / part / "main.yml").read_text(encoding="utf-8"))
        trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in read.items()}
        variables.update(trusted)
    groups = {"npu_nodes": list(hosts), "npu_bundle_server": ["served-here"] if server is not None else []}
    everything = {**hosts, "served-here": server or {}}
    # The filter that gives it its type is found by Ansible alone.
    variables.update(groups=groups, hostvars=everything, __rbln_bundle_given_port=8632, **given)
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(expression))


HOSTILE = [
    {**DEBIAN, "id": "../../../etc"},
    {**DEBIAN, "id": "/etc"},
    {**DEBIAN, "version_id": "13/../../x"},
    {**DEBIAN, "arch": "x86_64\n"},
    {**DEBIAN, "id": "\x1b[2J"},
]


def really(expression: str, **given: Any) -> Any:
    """The value that Ansible itself gives to an expression with the variables of the role: it finds our filters."""
    files = [str(ROLE / part / "main.yml") for part in ("defaults", "vars")]
    argv = [
        sys.executable,
        "-m",
        "ansible",
        "adhoc",
        "localhost",
        "-m",
        "ansible.builtin.debug",
        "-a",
        "var=" + expression,
    ]
    argv += [word for extra in (*("@" + file for file in files), json.dumps(given)) for word in ("-e", extra)]
    # Only what a program needs: a test runner may point Ansible at modules of its own.
    settings = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
    settings.update(ANSIBLE_COLLECTIONS_PATH=str(ROLE.parents[4]), ANSIBLE_LOCALHOST_WARNING="false")
    settings.update(ANSIBLE_INVENTORY_UNPARSED_WARNING="false", ANSIBLE_NOCOLOR="true")
    done = subprocess.run(argv, env=settings, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.partition("=>")[2])[expression]


def test_a_hostile_system_names_no_folder_and_stops_no_other_host(tmp_path: Path) -> None:
    for name in ("debian-13-x86_64", "debian-rolling-x86_64", "ubuntu-24.04-x86_64"):
        (tmp_path / name).mkdir()
    honest = [DEBIAN, DEBIAN, {**DEBIAN, "version_id": None}, {**DEBIAN, "version_id": "99"}]
    fleet = [{"os": system} for system in [*honest, *HOSTILE]]
    found = really("__rbln_bundle_names", __rbln_bundle_fleet=fleet, rbln_bundle_folder=str(tmp_path))
    assert found == ["debian-13-x86_64", "debian-rolling-x86_64"]


@pytest.mark.parametrize(("port", "capability"), [(8632, ""), ("8632", ""), ("80", "CAP_NET_BIND_SERVICE")])
def test_the_port_of_the_web_server_may_be_text(port: Any, capability: str) -> None:
    """A number that another variable is made of is text in ansible-core 2.16."""
    unit = (ROLE / "templates" / "rbln-bundle.service.j2").read_text(encoding="utf-8")
    text = Templar(
        loader=DataLoader(),
        variables={
            "__rbln_bundle_given_port": port, "__rbln_bundle_program": "/p", "__rbln_bundle_listen": "192.0.2.1",
            "rbln_bundle_serve_directory": "/srv",
        },
    ).template(trust_as_template(unit))  # fmt: skip
    assert ("\nAmbientCapabilities=%s\n" % capability) in text and "/p 192.0.2.1 %s " % port in text


def test_lists_may_be_the_text_of_a_survey() -> None:
    given = {"rbln_bundle_packages": '["dkms", "gcc"]', "rbln_bundle_toolkit_packages": "toolkit"}
    given["rbln_bundle_driver_names"] = "- driver\n- library"
    assert really("__rbln_bundle_packages", **given) == ["dkms", "gcc", "toolkit", "driver", "library"]


def test_an_empty_answer_of_a_survey_is_the_default() -> None:
    spec = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    given = dict.fromkeys(spec["options"], "")
    given.update(rbln_driver_build_packages="", rbln_container_toolkit_package="toolkit", rbln_driver_package_names="")
    read = {name: value for name, value in given.items() if not name.endswith(("_folder", "_directory"))}
    names = ("packages", "given_timeout", "given_port", "given_base", "given_kernels")
    found = really("[%s]" % ",".join("__rbln_bundle_" + name for name in names), **read)
    # ansible-core 2.16 makes text of a number; the modules read it as one.
    found[1:3] = [float(found[1]), int(found[2])]
    assert found == [["dkms", "gcc", "make", "toolkit"], 1800.0, 8632, "important", ["observed"]]


@pytest.mark.parametrize("system, name", [(DEBIAN, "debian-13-x86_64"), (HOSTILE[0], ""), (HOSTILE[4], "")])
def test_the_folder_of_a_host(system: dict[str, str], name: str) -> None:
    assert really("__rbln_bundle_name", __rbln_bundle_os=system) == name


@pytest.mark.parametrize(
    "server, listen, url",
    [
        ({"__rbln_bundle_reached": {"address": "192.0.2.1"}}, "192.0.2.1", "http://192.0.2.1:8632"),
        ({"__rbln_bundle_reached": {"address": "2001:db8::1"}}, "2001:db8::1", "http://[2001:db8::1]:8632"),
        ({"rbln_bundle_serve_address": "192.0.2.7"}, "192.0.2.7", "http://192.0.2.7:8632"),
        ({"rbln_bundle_serve_address": "0.0.0.0", "ansible_host": "192.0.2.9"}, "0.0.0.0", "http://192.0.2.9:8632"),
        ({"rbln_bundle_serve_address": "::"}, "::", "http://served-here:8632"),
        ({"__rbln_bundle_reached": {"skipped": True}, "ansible_host": "n.example"}, "", "http://n.example:8632"),
        (None, "", ""),
    ],
)
def test_where_the_web_server_is(server: dict[str, Any] | None, listen: str, url: str) -> None:
    hosts = {"a": {"ansible_host": "192.0.2.20"}, "b": {}}
    assert (seen("{{ __rbln_bundle_listen }}", hosts, server) or "") == listen
    assert (seen("{{ __rbln_bundle_url }}", hosts, server) or "") == url
    assert seen("{{ __rbln_bundle_peers }}", hosts, server) == ["192.0.2.20", "a", "b"]


@pytest.mark.parametrize(
    ("given", "dry", "folder"),
    [
        # Our own server is only foretold: what it will serve is the folder on the controller.
        ({"rbln_bundle_sha256": "a" * 64}, True, True),
        ({"rbln_bundle_sha256": "a" * 64}, False, False),
        ({}, False, True),
        # A server of the site is there.
        ({"rbln_bundle_sha256": "a" * 64, "rbln_bundle_url": "https://site.example"}, True, False),
    ],
)
def test_check_mode_asks_no_server_that_the_run_would_start(given: dict[str, Any], dry: bool, folder: bool) -> None:
    server = {"rbln_bundle_serve_address": "192.0.2.7"}
    assert seen("{{ __rbln_bundle_local }}", {}, server, ansible_check_mode=dry, **given) is folder
