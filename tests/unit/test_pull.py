# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role rbln_pull makes of its inputs: the command, the variables that lie on the host, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles" / "rbln_pull"
PLAIN = {"rbln_pull_url": "git@git.example.com:npu/fleet.git"}


def trusted(value: Any) -> Any:
    """A text of ours is a template, as it is when Ansible reads the files; filters of ours are not found here."""
    value = re.sub(r" \| rebellions\.npu\.typed_input\('\w+'\)", "", value) if isinstance(value, str) else value
    return trust_as_template(value) if isinstance(value, str) and "{{" in value else value


def seen(expression: str, escape: bool = True, **given: Any) -> Any:
    variables: dict[str, Any] = {"inventory_hostname": "npu-1"}
    for part in ("defaults", "vars"):
        read = yaml.safe_load((ROLE / part / "main.yml").read_text(encoding="utf-8"))
        variables.update({name: trusted(value) for name, value in read.items()})
    return Templar(loader=DataLoader(), variables={**variables, **PLAIN, **given}).template(
        trust_as_template(expression), escape_backslashes=escape
    )


def unit(name: str, **given: Any) -> list[str]:
    text = "\n" + (ROLE / "templates" / (name + ".j2")).read_text(encoding="utf-8")
    return str(seen(text, False, **given)).splitlines()


def test_command() -> None:
    assert seen("{{ __rbln_pull_command }}") == [
        "/usr/bin/ansible-pull", "--url", "git@git.example.com:npu/fleet.git", "--directory", "/var/lib/rbln/pull",
        "--inventory", "inventory",
        "--limit", "npu-1", "--extra-vars", "@/etc/rbln-pull/variables.json", "--tags", "driver,toolkit,validate",
        "--skip-tags", "operands", "site.yml",
    ]  # fmt: skip
    command = seen(
        "{{ __rbln_pull_command }}",
        rbln_pull_version="v1.10",
        rbln_pull_options=["--clean"],
        rbln_pull_playbook="npu.yml",
    )
    assert command[5:7] == ["--checkout", "v1.10"] and command[-2:] == ["--clean", "npu.yml"]


def stat(path: str, **change: Any) -> dict[str, Any]:
    return {"stat": {"path": path, "exists": True, "isdir": True, "uid": 0, "wgrp": False, "woth": False, **change}}


def test_a_working_copy_that_others_can_replace_is_refused() -> None:
    def refused(*ways: dict[str, Any]) -> Any:
        return seen("{{ __rbln_pull_open }}", __rbln_pull_folders={"results": list(ways)})

    assert seen("{{ __rbln_pull_way }}", rbln_pull_checkout="/srv//pull/") == ["srv", "pull"]
    missing = {"stat": {"exists": False}}
    assert refused(stat("/"), stat("/var"), missing) == []
    for change in ({"uid": 1000}, {"wgrp": True}, {"woth": True}, {"isdir": False}):
        assert refused(stat("/"), stat("/srv", **change), missing) == ["/srv"]


def test_service() -> None:
    lines = unit("rbln-pull.service", rbln_pull_version='50%"\\$x')
    start = next(line for line in lines if line.startswith("ExecStart="))
    assert start.startswith(
        'ExecStart="/usr/bin/ansible-pull" "--url" "git@git.example.com:npu/fleet.git" "--directory" '
        '"/var/lib/rbln/pull" "--checkout"'
    )
    assert ' "50%%\\"\\\\$$x" "--inventory"' in start and start.endswith(' "--skip-tags" "operands" "site.yml"')
    assert {
        "Type=oneshot",
        "User=root",
        "UnsetEnvironment=KUBECONFIG",
        "TimeoutStartSec=2h",
        "[Unit]",
        "[Service]",
    } <= set(lines)


def test_timer() -> None:
    lines = unit("rbln-pull.timer", rbln_pull_schedule="*-*-* 03:00:00", rbln_pull_delay="1h")
    assert {"OnCalendar=*-*-* 03:00:00", "RandomizedDelaySec=1h", "Persistent=true", "WantedBy=timers.target"} <= set(
        lines
    )


def test_the_variables_on_the_host_lead_to_no_cluster() -> None:
    found = json.loads(
        json.dumps(
            seen(
                "{{ __rbln_pull_variables }}",
                rbln_pull_variables={"rbln_driver_in_use": "refuse", "ansible_connection": "ssh"},
            )
        )
    )
    assert found == {
        "ansible_connection": "local",
        "rbln_driver_in_use": "refuse",
        "rbln_image_pull_secret": "",
        "rbln_kube_context": "",
        "rbln_kubeconfig": "",
        "rbln_operands_context": "",
        "rbln_operands_enabled": False,
        "rbln_operands_kubeconfig": "",
        "rbln_operands_pull_secret_content": "",
    }


VARIABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "none": ({}, []),
    "of the host part": ({"rbln_driver_version": "3.2.2", "rbln_registry": "registry.example.com"}, []),
    "a kubeconfig": ({"rbln_kubeconfig": "/root/admin.conf"}, ["rbln_kubeconfig"]),
    "a context": ({"rbln_kube_context": "prod", "rbln_operands_context": "prod"},
                  ["rbln_kube_context", "rbln_operands_context"]),
    "below another": ({"site": [{"rbln_image_pull_secret": "x"}]}, ["rbln_image_pull_secret"]),
    "of the cluster part": ({"rbln_operands_pull_secret_content": "x"}, ["rbln_operands_pull_secret_content"]),
    "the environment's": ({"env": {"K8S_AUTH_API_KEY": "x", "KUBECONFIG": "x"}}, ["K8S_AUTH_API_KEY", "KUBECONFIG"]),
    "a kubeconfig as text": ({"mine": "users:\n- user:\n    client-key-data: x"}, ["client-key-data"]),
    "a word that ends alike": ({"note": "oauths2 paths"}, []),
    "a pull secret": ({"mine": '{"auths": {"r": {"auth": "x"}}}'}, ["auths"]),
}  # fmt: skip


@pytest.mark.parametrize("case", VARIABLES)
def test_credentials_of_a_cluster_are_found(case: str) -> None:
    given, expected = VARIABLES[case]
    assert seen("{{ __rbln_pull_found + __rbln_pull_secrets }}", rbln_pull_variables=given) == expected


ADDRESSES: dict[str, tuple[list[str], tuple[bool, bool]]] = {
    "git@git.example.com:npu/fleet.git": ([], (False, False)),
    "ssh://git@git.example.com/npu/fleet.git": ([], (False, False)),
    "https://git.example.com/npu/fleet.git": ([], (False, False)),
    "https://git.example.com/npu/@fleet.git": ([], (False, False)),
    "file:///srv/fleet.git": ([], (False, False)),
    "https://me:secret@git.example.com/x.git": ([], (True, False)),
    "HTTPS://me:secret@git.example.com/x.git": ([], (True, False)),
    "https://token@git.example.com/x.git": ([], (True, False)),
    "ssh://me:secret@git.example.com/x.git": ([], (True, False)),
    "http://git.example.com/x.git": ([], (False, True)),
    "Git://git.example.com/x.git": (["--clean"], (False, True)),
    "git://git.example.com/x.git": (["--verify-commit"], (False, False)),
}  # fmt: skip


@pytest.mark.parametrize("url", ADDRESSES)
def test_addresses_that_hold_a_secret_or_can_be_changed_on_the_way(url: str) -> None:
    options, expected = ADDRESSES[url]
    given = {"rbln_pull_url": url, "rbln_pull_options": options}
    assert (
        tuple(seen("{{ %s }}" % name, **given) for name in ("__rbln_pull_in_address", "__rbln_pull_unproven"))
        == expected
    )


def test_the_variables_are_in_no_diff() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "present.yml").read_text(encoding="utf-8"))
    (task,) = [task for task in tasks if task["name"] == "Present | Write the variables"]
    assert task["diff"] is False


REFUSED = ["-e", "-ex=1", "-vt", "--extra-vars=@/x", "--ext", "--tags", "--skip-tags=x", "-l", "--limit", "-i",
           "--inventory-file", "-U", "--url", "-d",
           "--directory", "-C", "--checkout", "--i", "--in"]  # fmt: skip
ACCEPTED = ["--clean", "--verify-commit", "--full", "--force", "-o", "-vvv", "-f", "--diff", "--check",
            "--accept-host-key", "--track-subs", "--private-key",
            "--vault-password-file", "all", "-T"]  # fmt: skip


def test_options_that_the_role_sets_are_refused() -> None:
    assert seen("{{ __rbln_pull_refused }}", rbln_pull_options=REFUSED + ACCEPTED) == REFUSED
