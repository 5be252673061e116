# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's documented options and its defaults are one thing said twice, and must agree."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import proxy_files
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import trust_as_template
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import SHORT
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.proxies import FORMER

ROOT = Path(__file__).resolve().parents[2]
UNIT = "ansible.builtin.systemd_service"
ROLES = (
    "rbln_bundle",
    "rbln_container_toolkit",
    "rbln_discover",
    "rbln_driver",
    "rbln_operands",
    "rbln_preflight",
    "rbln_pull",
    "rbln_rollout",
    "rbln_support",
    "rbln_validator",
)
TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "dict": (dict,),
    "float": (float,),
    "int": (int,),
    "list": (list,),
    "raw": (str, int, float, list, dict),
}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


@functools.lru_cache(maxsize=None)
def options(role: str) -> dict[str, Any]:
    specs = load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    return specs["main"].get("options") or {}


def defaults(role: str) -> dict[str, Any]:
    return load(ROOT / "roles" / role / "defaults" / "main.yml") or {}


def templated(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


def walk(spec: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every option with its path, those of sub-options too."""
    found = []
    for name, option in spec.items():
        found.append((f"{path}{name}", option))
        found += walk(option.get("options") or {}, f"{path}{name}.")
    return found


def test_the_roles_are_these() -> None:
    assert tuple(sorted(p.name for p in (ROOT / "roles").iterdir() if p.is_dir())) == ROLES


@pytest.mark.parametrize("role", ROLES)
def test_same_names(role: str) -> None:
    optional = {name for name, option in options(role).items() if not option.get("required")}
    assert optional, "a role without an input"
    assert set(defaults(role)) == optional


@pytest.mark.parametrize("role", ROLES)
def test_same_values(role: str) -> None:
    """A default computed from other variables is stated in defaults alone, unless the option is a string."""
    differing = {}
    for name, value in defaults(role).items():
        option = options(role)[name]
        stated = option.get("default")
        if stated != value and not (templated(value) and stated is None):
            differing[name] = (value, stated)
    assert differing == {}


@pytest.mark.parametrize("role", ROLES)
def test_literal_defaults_have_the_stated_type(role: str) -> None:
    wrong = {}
    for name, value in defaults(role).items():
        option = options(role)[name]
        kinds = TYPES.get(option.get("type", "str"), (str,))
        if (
            not templated(value)
            and value is not None
            and (not isinstance(value, kinds) or (bool not in kinds and isinstance(value, bool)))
        ):
            wrong[name] = (option.get("type"), value)
        chosen = value if isinstance(value, list) else [value]
        if option.get("choices") and not templated(value) and not set(chosen) <= set(option["choices"]):
            wrong[name] = (option["choices"], value)
    assert wrong == {}


@pytest.mark.parametrize("role", ROLES)
def test_inputs_carry_the_role_name(role: str) -> None:
    assert [name for name in options(role) if not name.startswith(f"{role}_")] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_described_and_typed(role: str) -> None:
    assert [
        path for path, option in walk(options(role), "") if not option.get("description") or "type" not in option
    ] == []


def merged_keys(node: yaml.MappingNode, found: list[str]) -> set[str]:
    """Keys of a mapping with those that it merges in; `found` gets each that is there twice, of which Ansible warns."""
    keys: list[str] = []
    for key, value in node.value:
        below = merged_keys(value, found) if isinstance(value, yaml.MappingNode) else set()
        keys += sorted(below) if key.value == "<<" else [key.value]
    found += sorted({key for key in keys if keys.count(key) > 1})
    return set(keys)


@pytest.mark.parametrize("role", ROLES)
def test_no_merged_key_is_said_again(role: str) -> None:
    found: list[str] = []
    merged_keys(
        yaml.compose(
            (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"), Loader=yaml.SafeLoader
        ),
        found,
    )
    assert found == []


@pytest.mark.parametrize("role", ROLES)
def test_versions_are_strings(role: str) -> None:
    assert [
        name for name, option in options(role).items() if name.endswith("_version") and option.get("type") != "str"
    ] == []


@pytest.mark.parametrize("role", ROLES)
def test_meta_and_readme(role: str) -> None:
    meta = load(ROOT / "roles" / role / "meta" / "main.yml")
    assert meta["galaxy_info"]["license"] == "GPL-3.0-or-later"
    assert meta["galaxy_info"]["min_ansible_version"] == "2.16"
    assert not meta.get("dependencies")
    assert f"rebellions.npu.{role}" in (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")


OWN = re.compile(
    r"^(?!rbln_driver_instances$)"
    r"rbln_(bundle|container_toolkit|discover|driver|operands|preflight|pull|rollout|support|validator)_"
    r"|^rbln_(runtimes|observed|plan|proof|failure)$"
)


def test_shared_inputs_are_documented_once_and_all_of_them() -> None:
    """The inputs that roles and playbooks read and that carry no role's name are the rows of docs/inputs.md.

    Those of the playbook awx, which works on no host, are in docs/awx.md (test_awx.py).
    """
    books = [path for path in (ROOT / "playbooks").glob("*.yml") if path.stem != "awx"]
    sources = [*(ROOT / "roles").glob("*/defaults/main.yml"), *books]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    read = {
        name for name in re.findall(r"(?<![\w.])rbln_[a-z_]+", text) if not OWN.search(name) and name not in (*ROLES,)
    }
    rows = re.findall(
        r"^\| (`rbln_[^|]+)\|[^|]+\|[^|]+\|[^|]+\|$", (ROOT / "docs/inputs.md").read_text(encoding="utf-8"), re.M
    )
    documented = [name for row in rows for name in re.findall(r"`(rbln_\w+)`", row)]
    assert "rbln_registry" in read and sorted(documented) == sorted(read)


def test_shared_inputs_reach_the_inputs_that_are_named() -> None:
    rows = re.findall(
        r"^\| (`rbln_[^|]+)\|[^|]+\|[^|]+\|([^|]+)\|$", (ROOT / "docs/inputs.md").read_text(encoding="utf-8"), re.M
    )
    given = {name: str(value) for role in ROLES for name, value in defaults(role).items()}
    for shared, readers in rows:
        names = re.findall(r"`(rbln_\w+)`", shared)
        for reader in re.findall(r"`(rbln_\w+)`", readers):
            assert any(name in given[reader] for name in names), reader
        for name in names if "playbook" not in readers else ():
            assert {reader for reader, value in given.items() if re.search(r"\b%s\b" % name, value)} <= set(
                re.findall(r"`(rbln_\w+)`", readers)
            )


def test_messages_and_documentation_name_inputs_that_exist() -> None:
    known = {name for role in ROLES for name in options(role)} | set(ROLES)
    known |= set(re.findall(r"`(rbln_\w+)`", (ROOT / "docs/inputs.md").read_text(encoding="utf-8")))
    wanted = {}
    for path in (ROOT / "plugins").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        wanted.update({f"rbln_{name}": path.name for name in re.findall(r"(?:\{INPUT\}|\bours\(['\"])(\w+)", text)})
        wanted.update({f"rbln_operands_{name}": path.name for name in re.findall(r"\{OPERANDS\}(\w+)", text)})
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "roles").glob("*/README.md")]:
        found = re.findall(r"\brbln_\w+", path.read_text(encoding="utf-8"))
        wanted.update({name: path.name for name in found if name.startswith(tuple(f"{role}_" for role in ROLES))})
    results = {"rbln_preflight_plan", "rbln_operands_result", "rbln_driver_facts", "rbln_rollout_plan"}
    results |= {"rbln_support_bundle"}
    results |= {f"rbln_{name}_proof" for name in ("driver", "container_toolkit", "validator")}
    assert len(wanted) > 100
    assert {name: where for name, where in wanted.items() if name not in known | results and name[-1] != "_"} == {}


def test_a_host_is_judged_by_what_failed_in_the_work_for_its_cluster() -> None:
    member, clusters, work, judge, more = load(ROOT / "roles" / "rbln_operands" / "tasks" / "main.yml")
    left, _look, end = load(ROOT / "roles" / "rbln_operands" / "tasks" / more["ansible.builtin.include_tasks"])
    (remove,), (taken,) = left["block"], left["rescue"]
    again, judge_again = end["block"]
    # A host that cannot remove its file is told so by the work: it may be the one that acts for the others.
    assert (remove["failed_when"], remove["ignore_unreachable"]) == (False, True)
    assert list(taken["ansible.builtin.set_fact"]) == [remove["register"]]
    assert remove["register"] in again["rebellions.npu.rbln_operands"]["features"]
    assert judge_again["register"] == judge["register"] and more["when"] == judge["register"] + ".again is defined"
    assert (again["ignore_errors"], again["register"]) == (True, work["register"])
    # Hosts of another cluster are judged by the round of the first choice.
    assert again["rebellions.npu.rbln_operands"]["round"] == work["rebellions.npu.rbln_operands"]["round"]
    assert work["ignore_errors"] is True and judge["rebellions.npu.rbln_operands"]["act"] == "judge"
    # The judge reads these names itself: nothing that holds the records of all hosts is templated for each of them.
    assert [task["register"] for task in (member, clusters, work)] == [
        "__rbln_operands_member", "__rbln_operands_clusters", "__rbln_operands_applied"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "acts, config, proxied, files, units",
    [
        (["proxies"], None, ["p"], "['p']", None),
        (["proxies", "runtime"], [], ["p"], "['p']", ["docker", "containerd"]),
        (["proxies", "runtime"], ["c"], ["p"], "['c', 'p']", ["docker", "containerd"]),
        (["runtime"], ["c"], ["left by a run before"], "['c']", ["docker"]),
        (["runtime"], [], None, "[]", ["docker"]),
    ],
)
def test_a_failed_restart_undoes_only_what_the_acts_wrote(
    acts: list[str], config: list[str] | None, proxied: list[str] | None, files: str, units: list[str] | None
) -> None:
    """One restart serves both acts."""
    role = ROOT / "roles" / "rbln_container_toolkit"
    given = {
        "rbln_preflight_plan": {"acts": {"container_toolkit": acts}, "stale_units": ["docker"]},
        "__rbln_container_toolkit_config": {"files": config or [], "restart_units": []},
        "__rbln_container_toolkit_proxied": {"files": proxied or [], "restart_units": ["containerd"]},
    }
    missing = {"__rbln_container_toolkit_config": config, "__rbln_container_toolkit_proxied": proxied}
    given = {name: value for name, value in given.items() if missing.get(name, []) is not None}
    environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined)
    environment.filters["union"] = lambda one, two: [*one, *(item for item in two if item not in one)]
    written = load(role / "vars" / "main.yml")["__rbln_container_toolkit_written"]
    assert environment.from_string(written).render(given).strip() == files
    back, tell = load(role / "tasks" / "former.yml")
    undo, end_starts, forget, start = back["block"]
    # moby 33931: after three failed starts in a minute systemd would refuse the right configuration too.
    # One of systemd's own attempts between these would count against the right start.
    assert [one["ansible.builtin.command"]["argv"] for one in (end_starts, forget)] == [
        ["systemctl", word, start[UNIT]["name"]] for word in ("stop", "reset-failed")
    ]
    module = undo["rebellions.npu.rbln_runtime_config"]
    # What earlier runs wrote stays.
    assert (module["state"], module["files"]) == ("rolled_back", "{{ __rbln_container_toolkit_written }}")
    assert back["when"] == "__rbln_container_toolkit_written | length > 0"
    assert (
        end_starts["when"]
        == forget["when"]
        == start["when"]
        == "__rbln_container_toolkit_rolled_back.msg is not defined"
    )
    # Hidden, a failure would be all that anybody sees of it.
    assert start["no_log"] is True and start["failed_when"] is False
    for undone, answer, end in (
        ({}, {}, "is rolled back, and the unit was started again"),
        ({}, {"msg": "x"}, "is rolled back, but the unit does not start with that"),
        (
            {"msg": "/etc/x cannot be written: no space. Next: Make room."},
            {},
            "could not be rolled back: /etc/x cannot be written: no space. Next: read `journalctl",
        ),
    ):
        said = environment.from_string(tell["vars"]["__rbln_container_toolkit_said"]).render(
            __rbln_container_toolkit_unit="docker",
            __rbln_container_toolkit_restarted={},
            __rbln_container_toolkit_seen={"back": False, "why": "the unit is failed"},
            __rbln_container_toolkit_wanted={"rbln_container_toolkit_restart_timeout": 60},
            __rbln_container_toolkit_written=config or [],
            __rbln_container_toolkit_rolled_back=undone,
            **{start.get("register", "none"): answer},
        )
        assert (end if config else "nothing is rolled back. Next: read") in " ".join(said.split())
        assert "within 60 s with the new configuration: the unit is failed. " in " ".join(said.split())
    loop = load(role / "tasks" / "runtime.yml")[-1]["loop"]
    if units is not None:
        assert environment.from_string(loop).render(given).strip() == str(units)
    alone = load(role / "tasks" / "proxies.yml")[-1]["when"]
    assert environment.compile_expression(alone)(given) is ("runtime" not in acts)


@pytest.mark.parametrize(
    ("acts", "stale", "files"),
    [
        (["cdi"], [], []),
        (["proxies"], [], ["/p.env.former"]),
        # The run that wrote the proxies was killed before the restart: this one only restarts.
        (["runtime"], ["docker"], ["/etc/systemd/system/docker.service.d/zz-rbln-proxy.env.former"]),
    ],
)
def test_former_proxies_are_forgotten_after_a_killed_run_too(
    acts: list[str], stale: list[str], files: list[str]
) -> None:
    role = ROOT / "roles" / "rbln_container_toolkit"
    expression = load(role / "vars" / "main.yml")["__rbln_container_toolkit_former_files"]
    plan = {"acts": {"container_toolkit": acts}, "stale_units": stale}
    given = {"rbln_preflight_plan": plan, "__rbln_container_toolkit_proxied": {"files": ["/p.env", "/p.env.former"]}}
    found = Templar(loader=DataLoader(), variables=given).template(trust_as_template(expression))
    assert found == files
    # A unit to restart is named without its kind.
    assert [proxy_files(unit + ".service", SHORT)[1] + FORMER for unit in stale] == (files if stale else [])
    (task,) = [one for one in load(role / "tasks" / "act.yml") if one["name"].endswith("Forget the former proxies")]
    assert task["loop"] == "{{ __rbln_container_toolkit_former_files }}" and task["when"] == "not ansible_check_mode"


@pytest.mark.parametrize("version, told", [("3.2.2", "driver 3.2.2"), ("", "its driver"), (None, "its driver")])
def test_a_reboot_is_told_for_a_driver_without_a_wanted_version_too(version: str | None, told: str) -> None:
    """One that is installed already has none in the inputs, and may need a reboot to load."""
    tasks = load(ROOT / "roles" / "rbln_driver" / "tasks" / "reboot.yml")
    environment = jinja2.Environment(autoescape=False)
    wanted = {"rbln_driver_version": version, "rbln_driver_reboot_timeout": 9, "rbln_driver_reboot_test_command": "id"}
    said = [
        " ".join(
            environment.from_string(task["ansible.builtin.debug"]["msg"])
            .render(inventory_hostname="n1", __rbln_driver_wanted=wanted)
            .split()
        )
        for task in [*tasks, *tasks[-1]["block"]]
        if "ansible.builtin.debug" in task
    ]
    assert [text.partition(told)[0] for text in said] == ["n1 needs a reboot for ", "n1 reboots for "]
    assert said[0].startswith("n1 needs a reboot for %s, but a run" % told)
    assert said[1].endswith("for %s. The run waits at most 9 s until `id` succeeds on it." % told)
