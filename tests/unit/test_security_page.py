# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/security.md against roles, argument specs, code and rendered objects."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import RULE_PATH
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.containerd import DROPIN
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.docker_crio import CRIO_DROPIN
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
# Everything that the cluster side can make, with what the components ask for.
EVERYTHING: tuple[dict[str, t.Any], ...] = (
    {
        "pull_secret_content": {"auths": {}},
        "ca_bundle": "x",
        "runtime_class": {"enabled": True, "handler": "x"},
        "node_feature_rule": {"enabled": True},
        "smd": {"enabled": True, "image": {"tag": "1"}},
        "metrics_exporter": {"enabled": True, "image": {"tag": "1"}},
        "capabilities": {
            "groups": ["nfd.k8s-sigs.io", "monitoring.coreos.com", "security.openshift.io"],
        },
    },
    {
        "device_plugin": {"enabled": False},
        "dra_driver": {"enabled": True, "image": {"tag": "1"}},
    },
)


def section(title: str) -> str:
    found = PAGE.partition(f"## {title}\n")[2]
    assert found, title
    return re.split(r"^## ", found, maxsplit=1, flags=re.M)[0]


def rows(title: str, columns: int) -> list[list[str]]:
    """Cells of the rows of the tables with this many columns, without heads."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section(title).splitlines()
        if line.startswith("| ")
    ]
    return [cells for cells in found if len(cells) == columns and cells[0] not in ("role", "path", "port", "switch")]


def specs() -> dict[str, dict[str, t.Any]]:
    found = {}
    for role in ROLES:
        text = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
        for point in yaml.safe_load(text)["argument_specs"].values():
            found.update(point["options"])
    return found


def test_every_role_has_a_row_or_is_about_the_cluster() -> None:
    named = {name for cells in rows("What a run does on a host", 4) for name in re.findall(r"`(rbln_\w+)`", cells[0])}
    assert named == set(ROLES) - {"rbln_operands", "rbln_rollout"} and len(named) == 8


def test_every_path_is_one_of_the_code() -> None:
    sources = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "roles").rglob("*.yml"), *(ROOT / "roles").rglob("*.j2")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    paths = [path for cells in rows("What a run does on a host", 3) for path in re.findall(r"`([^`]*)`", cells[0])]
    # Names that the code puts together.
    code += "\n".join((RULE_PATH, DROPIN, CRIO_DROPIN))
    assert len(paths) >= 20
    assert [path for path in paths if path.rpartition("/")[2] not in code] == []


def test_every_port_is_a_default_and_every_default_is_on_the_page() -> None:
    def ports(options: t.Mapping[str, t.Any]) -> t.Iterator[int]:
        for name, option in options.items():
            if re.search(r"(^|_)port$", name) and option.get("type") == "int":
                yield option["default"]
            yield from ports(option.get("options") or {})

    told = {int(cells[0].partition("/")[0]) for cells in rows("Ports", 4)}
    assert told == set(ports(specs())) - {0} and len(told) == 6


def test_defaults_of_the_switches_are_those_of_the_roles() -> None:
    known, compared = specs(), 0
    for names, default, _effect in rows("Hardening", 3):
        for name in re.findall(r"`(rbln_\w+)`", names):
            value = re.fullmatch(r"`(\S+)`", default)
            if name in known and value:
                assert str(known[name]["default"]).lower() == value.group(1), name
                compared += 1
            elif name in known and default == "none":
                assert known[name]["default"] == "", name
                compared += 1
    assert compared >= 10


@pytest.mark.parametrize("given", EVERYTHING)
def test_every_kind_that_is_made_is_a_right_of_the_run(given: dict[str, t.Any]) -> None:
    kinds = {item["kind"] for item in objects(**given)}
    text = section("What a run does in a cluster").lower()
    plural = {kind: re.sub(r"y$", "ie", kind.lower()) + ("es" if kind.endswith("ss") else "s") for kind in kinds}
    # A binding of a policy is named with it.
    plural.pop("ValidatingAdmissionPolicyBinding", None)
    assert [kind for kind, words in plural.items() if words not in text] == [] and len(kinds) > 5
