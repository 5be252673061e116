# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""No secret of an input, a file or a program reaches an output, a process list, a fact or a file."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts
from tests.integration._play import Data
from tests.integration._secrets import KINDS, NOWHERE, Hunt
from tests.lab import Lab

HOST = "it-secrets"


@pytest.fixture(scope="module")
def hunt(lab: Lab, staged: None) -> t.Iterator[Hunt]:
    hosts = Hosts(lab, {HOST: "engines"}, kube=False)
    try:
        hosts.virgin(HOST)
        found = Hunt(lab, HOST)
        found.plant_host()
        yield found
    finally:
        hosts.leave()


def book(hunt: Hunt, role: str) -> Path:
    path = hunt.folder / (role + ".yml")
    text = "- hosts: npu_nodes\n  gather_facts: false\n  tasks:\n    - ansible.builtin.import_role: {name: rebellions.npu.%s}\n"
    path.write_text(text % role)
    return path


def refusals(hunt: Hunt) -> dict[str, Data]:
    """Inputs with credentials that the plan refuses."""
    s, q = hunt.secrets, hunt.quoted
    return {
        "runfile-user": {"rbln_driver_runfile": "http://svc:%s@%s/x.run" % (q("runfile_user"), NOWHERE)},
        "runfile-query": {"rbln_driver_runfile": "http://%s/x.run?token=%s" % (NOWHERE, s["runfile_query"])},
        "repository": {
            "rbln_driver_source": "package",
            "rbln_driver_package_names": ["rebellions-driver"],
            "rbln_driver_repository": {"url": "http://svc:%s@%s/" % (q("repository_user"), NOWHERE), "key": "/nowhere"},
        },
    }


def test_the_secrets_stay_where_they_are(hunt: Hunt) -> None:
    assert len(KINDS) >= 20 and len(set(hunt.secrets.values())) == len(KINDS)
    assert hunt.play("discover", "discover")[0] == 0
    assert hunt.play("check", "site", "--check")[0] == 0
    assert hunt.play("site", "site")[0] == 0, hunt.runs["site"][1][-3000:]
    assert "changed=0" in hunt.play("again", "site")[1]
    # apt has no source but those that are planted, and a proxy where nothing listens.
    code, out = hunt.play("package", "site", rbln_container_toolkit_package="rbln-container-toolkit")
    assert code == 2 and "rbln-container-toolkit" in out
    with hunt.user_of_npu():
        code, out = hunt.play("in-use", "site", rbln_driver_version="3.4.0", rbln_driver_replace=True, **hunt.installer())
        assert code == 2 and "hunt-user" in out, out[-3000:]
    code, out = hunt.play("installer", "site", rbln_driver_version="3.4.0", rbln_driver_replace=True, **hunt.installer())
    assert code == 2 and "ended with code 3" in out, out[-3000:]
    for name, variables in refusals(hunt).items():
        variables = {"rbln_driver_version": "3.4.0", "rbln_driver_replace": True, **variables}
        code, out = hunt.play(name, "site", **variables)
        assert code == 2 and "holds a name or a password" in out, out[-3000:]
    code, out = hunt.play("cluster", "site", **hunt.plant_controller())
    assert code == 2 and NOWHERE in out, out[-3000:]
    s, q = hunt.secrets, hunt.quoted
    url = "http://svc:%s@%s/b?token=%s" % (q("bundle_user"), NOWHERE, s["bundle_query"])
    assert hunt.play("bundle", book(hunt, "rbln_bundle"), rbln_bundle_url=url, rbln_bundle_sha256="0" * 64)[0] == 2
    pull = {"rbln_pull_url": "https://svc:%s@h/x" % q("pull_user"), "rbln_pull_variables": {"x": s["pull_variable"]}}
    assert hunt.play("pull", book(hunt, "rbln_pull"), **pull)[0] == 2
    assert hunt.play("remove", "remove")[0] == 0, hunt.runs["remove"][1][-3000:]
    leaks = hunt.look_around()
    assert hunt.processes > 50 and hunt.files > 500
    assert leaks == [], "\n" + "\n".join(map(str, leaks))
