# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that hold for every file of the collection."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = str(ROOT).split("/.work/", maxsplit=1)[0]
SKIPPED_FOLDERS = {".git", ".work", ".ansible", "__pycache__", "output", ".pytest_cache", ".ruff_cache", "fixtures"}
NO_HEADER = {"LICENSE", "CHANGELOG.md", "changelog.yaml"}
HEADED = {".py", ".yml", ".yaml", ".sh", ".go", ".toml", ".j2", ".txt", ".service", ".rules"}
SPDX = "SPDX-License-Identifier: GPL-3.0-or-later"
VENDOR_WORDS = re.compile(r"rbln|rebellions|1eff|atom", re.I)
OWN_NAME = re.compile(
    r"The rebellions\.npu authors|ansible_collections\.rebellions\.npu|rebellions-npu|rebellions\.npu"
)
# The rooms of docs/architecture.md: a room imports only rooms before it.
ROOMS = {
    "module_utils": [
        "_base", "_formats", "_host", "_kernel", "_packages", "_npu", "_secure_boot", "_bundle", "_cdi", "_runtime",
        "_checks", "_observe", "_driver", "_support",
    ],
    "plugin_utils": [
        "_answers", "_text", "_objects", "_inputs", "_cluster", "_components", "_nodes", "_deliver_cluster", "_plan",
        "_rollout", "_report", "_runtime_config", "_deliver_host", "_doctor", "_support_bundle",
    ],
}  # fmt: skip
PAYLOAD_FILES = {
    "rbln_bundle": 27,
    "rbln_cdi_spec": 29,
    "rbln_config_write": 15,
    "rbln_driver": 117,
    "rbln_driver_facts": 43,
    "rbln_driver_files": 13,
    "rbln_history": 12,
    "rbln_host_tool": 16,
    "rbln_mok": 29,
    "rbln_observe": 79,
    "rbln_package": 29,
    "rbln_repository": 29,
    "rbln_runtime_detect": 32,
    "rbln_support": 85,
    "rbln_symptoms": 18,
    "rbln_validate": 79,
}
BINDS_VENDOR = {"_base/rebellions.py"}
# How a file of the controller takes the profile: by name, since only one vendor is bound.
TAKES_PROFILE = re.compile(r"^from .*\._base\.rebellions import PROFILE$")
# The checkout itself, and a user's own interpreters.
FOREIGN_PATHS = re.compile(r"/(root|home/[a-z]+)/\.pyenv|%s/" % re.escape(CHECKOUT))


def files() -> list[Path]:
    found = [p for p in ROOT.rglob("*") if p.is_file() and not SKIPPED_FOLDERS & set(p.relative_to(ROOT).parts[:-1])]
    return sorted(p for p in found if not p.name.endswith((".pyc", ".tar.gz")))


def text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def none(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.lru_cache(maxsize=None)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[str]:
    return sorted(p.stem for p in (ROOT / "plugins" / "modules").glob("*.py"))


def test_there_is_a_tree_to_check() -> None:
    assert len(files()) > 40
    assert len(modules()) >= 5
    assert len(python_files("plugins/module_utils")) >= 10


def test_every_source_states_its_licence() -> None:
    rooms = {f"plugins/{folder}/{room}/__init__.py" for folder, names in ROOMS.items() for room in names}
    headed = [p for p in files() if p.suffix in HEADED or p.name in ("Makefile", "run")]
    sources = [p for p in headed if p.name not in NO_HEADER and name_of(p) not in rooms and p.parent.name != "sanity"]
    none([name_of(p) for p in sources if SPDX not in "\n".join((text(p) or "").splitlines()[:8])])


def test_no_path_of_one_machine() -> None:
    here = Path(__file__).resolve()
    none([name_of(p) for p in files() if p != here and FOREIGN_PATHS.search(text(p) or "")])


def test_no_notes_to_self() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX)\b")
    here = Path(__file__).resolve()
    none([name_of(p) for p in files() if p != here and p.name != "LICENSE" and pattern.search(text(p) or "")])


def naming_vendor(folder: str) -> dict[str, list[str]]:
    """{room: its lines that name a vendor}."""
    found: dict[str, list[str]] = {}
    for path in python_files(f"plugins/{folder}"):
        if path.relative_to(ROOT / "plugins" / folder).as_posix() in BINDS_VENDOR:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if TAKES_PROFILE.match(line) or not VENDOR_WORDS.search(OWN_NAME.sub("", line).replace("atomic", "")):
                continue
            found.setdefault(path.parent.name, []).append(f"{name_of(path)}:{number}: {line.strip()}")
    return found


def test_core_names_no_vendor() -> None:
    """Everything about one vendor comes from its profile."""
    assert naming_vendor("module_utils") == {}
    assert naming_vendor("plugin_utils") == {}


def imported(path: Path) -> set[str]:
    """Names that a file cannot do without: an import inside try is a choice."""
    tree = parsed(path)
    optional = {inner for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if node in optional:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def test_host_logic_imports_neither_ansible_nor_third_parties() -> None:
    needs = [(p, n) for p in python_files("plugins/module_utils") for n in sorted(imported(p))]
    none(
        [
            f"{name_of(p)}: {n}"
            for p, n in needs
            if not n.startswith(".") and n.split(".")[0] not in sys.stdlib_module_names
        ]
    )


@functools.lru_cache(maxsize=None)
def own_names(path: Path) -> set[str]:
    """What a file defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_every_name_that_is_imported_from_us_is_there() -> None:
    wanted, missing = 0, []
    for path in [*python_files("plugins"), *python_files("tests")]:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "ansible_collections.rebellions.npu."
            ):
                continue
            place = ROOT.joinpath(*(node.module or "").split(".")[3:])
            wanted += 1
            if place.with_suffix(".py").is_file():
                names = own_names(place.with_suffix(".py"))
                missing += [
                    f"{name_of(path)}: {node.module}.{alias.name}" for alias in node.names if alias.name not in names
                ]
            else:
                missing += [
                    f"{name_of(path)}: {node.module}.{alias.name}"
                    for alias in node.names
                    if not (place / f"{alias.name}.py").is_file()
                ]
    assert wanted > 100
    none(missing)


def test_every_file_is_in_a_room() -> None:
    """One folder deep, named with an underscore: only the collection imports from it."""
    for folder, rooms in ROOMS.items():
        paths = {p.relative_to(ROOT / "plugins" / folder) for p in python_files(f"plugins/{folder}")}
        assert paths
        none([str(p) for p in paths if len(p.parts) != 2 or p.parts[0] not in rooms])
        assert {p.parts[0] for p in paths} == set(rooms)
        none([str(p) for p in paths if p.name == "__init__.py" and (ROOT / "plugins" / folder / p).read_bytes()])


@functools.lru_cache(maxsize=None)
def own_imports(path: Path) -> list[tuple[int, str, str]]:
    """(line, room, file) of what a file of a room imports from its own side of the house.

    The file is empty for a room as a whole.
    """
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*([path.parent.name] if node.level == 1 else []), *(node.module.split(".") if node.module else [])]
            names = [parts[1]] if len(parts) == 2 else [alias.name for alias in node.names]
            found += [(node.lineno, parts[0], name) for name in names]
    return found


@pytest.mark.parametrize("folder", ["module_utils", "plugin_utils"])
def test_a_room_imports_only_rooms_before_it(folder: str) -> None:
    rooms, arrows, wrong = ROOMS[folder], 0, []
    for path in python_files(f"plugins/{folder}"):
        for line, room, name in own_imports(path):
            arrows += 1
            if not (ROOT / "plugins" / folder / room / f"{name}.py").is_file():
                wrong.append(f"{name_of(path)}:{line}: {room}.{name} is no file")
            elif rooms.index(room) > rooms.index(path.parent.name):
                wrong.append(f"{name_of(path)}:{line}: {path.parent.name} comes before {room}")
    assert arrows > 100
    none(wrong)


def test_hosts_get_nothing_of_the_controller() -> None:
    none([name_of(p) for p in python_files("plugins/module_utils") if "plugin_utils" in p.read_text(encoding="utf-8")])


def test_the_page_of_the_architecture_names_each_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for rooms in ROOMS.values():
        told = [page.find(f"**`{room}`**") for room in rooms]
        assert -1 not in told and told == sorted(told), rooms


def payload(module: str) -> list[Path]:
    """The module utilities that travel with a module, without the empty files that make folders packages."""
    base, found = ROOT / "plugins" / "module_utils", set()
    source = (ROOT / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8")
    names = re.findall(
        r"^from ansible_collections\.rebellions\.npu\.plugins\.module_utils\.(\w+\.\w+) import", source, re.M
    )
    waiting = [base.joinpath(*name.split(".")) for name in names]
    while waiting:
        path = waiting.pop().with_suffix(".py")
        if path not in found:
            found.add(path)
            waiting += [base / room / name for _line, room, name in own_imports(path)]
    return sorted(found)


@pytest.mark.parametrize("module", sorted(PAYLOAD_FILES))
def test_a_module_ships_no_more_files(module: str) -> None:
    """Each host of a play gets these files: a new import that brings a room along is seen here."""
    assert 5 < len(payload(module)) <= PAYLOAD_FILES[module]


def test_every_module_of_a_host_has_its_number_of_files() -> None:
    assert {name for name in modules() if payload(name)} == set(PAYLOAD_FILES)


# How a file of a room makes a problem: the function, and which argument is the code.
PROBLEM_CALLS = {
    "_plan": {"stop": 0, "caution": 0, "by_policy": 1},
    "_cdi": {"warn": 0, "error": 0, "warning": 0},
    "_runtime": {"problem": 0},
}


def codes_of(path: Path) -> set[str]:
    """The codes of problems that a file writes as text."""
    places = {"Problem": 0, **PROBLEM_CALLS.get(path.parent.name, {})}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            at = places.get(name, len(node.args))
            code = node.args[at] if at < len(node.args) else None
            found |= {code.value} if isinstance(code, ast.Constant) and isinstance(code.value, str) else set()
    return found


def checks_of(path: Path) -> list[str]:
    """The names of the checks that a file defines."""
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    marks = [(one.name, [ast.unparse(mark) for mark in one.decorator_list]) for one in functions]
    return [name for name, found in marks if any(mark.startswith("SCOPE.check(") for mark in found)]


def test_no_code_exists_twice_and_each_is_documented() -> None:
    """A check's name is no other problem's code, no two rooms share a code, and docs/checks.md has them all."""
    names = [name for path in python_files("plugins/module_utils/_checks") for name in checks_of(path)]
    assert len(names) > 50 and len(names) == len(set(names))
    owner: dict[str, str] = {}
    for path in python_files("plugins"):
        for code in codes_of(path):
            assert code not in names, f"{name_of(path)}: {code} is the name of a check"
            assert owner.setdefault(code, path.parent.name) == path.parent.name, f"{name_of(path)}: {code}"
    assert {"_plan", "_cdi", "_runtime"} <= set(owner.values())
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    none([f"docs/checks.md has no {code} of {room}" for code, room in owner.items() if f"`{code}`" not in page])
    table = re.search(r"^## Codes of the plan\n(.*?)^## ", page, re.S | re.M)
    assert table
    told = re.findall(r"^\| `(\w+)` \| (?:stop|caution|policy|stop, caution) \| \S", table[1], re.M)
    assert sorted(told) == sorted(code for code, room in owner.items() if room == "_plan")


def test_modern_annotations_everywhere() -> None:
    with_code = [p for p in python_files("plugins") if parsed(p).body]
    none([name_of(p) for p in with_code if "from __future__ import annotations" not in p.read_text(encoding="utf-8")])


def untyped(path: Path) -> list[str]:
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
            if node.returns is None or bare:
                found.append(f"{name_of(path)}:{node.lineno}: {node.name}")
    return found


def test_plugins_are_typed() -> None:
    none([line for path in python_files("plugins") for line in untyped(path)])


@pytest.mark.parametrize(
    "folder, limit", [("modules", 400), ("module_utils", 560), ("action", 300), ("plugin_utils", 440)]
)
def test_files_stay_readable(folder: str, limit: int) -> None:
    sizes = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in python_files(f"plugins/{folder}")}
    assert {name: lines for name, lines in sizes.items() if lines > limit} == {}


def test_task_files_stay_readable() -> None:
    tasks = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
    assert tasks
    assert {name_of(p): n for p in tasks if (n := len(p.read_text(encoding="utf-8").splitlines())) > 90} == {}


def test_collections_are_depended_on_that_tasks_use() -> None:
    used = set()
    for path in [*(ROOT / "roles").glob("*/*/*.yml"), *(ROOT / "playbooks").glob("*.yml")]:
        names = re.findall(r"^[ -]*([a-z_]+\.[a-z_]+)\.[a-z_]+:", path.read_text(encoding="utf-8"), re.M)
        used.update(names)
    assert {"ansible.builtin", "rebellions.npu"} <= used
    # Who runs the playbook awx has its collection; nobody else needs it.
    assert "awx.awx" in used and [p.name for p in (ROOT / "playbooks").glob("*.yml") if "awx.awx" in p.read_text()] == [
        "awx.yml"
    ]
    used -= {"ansible.builtin", "ansible.legacy", "rebellions.npu", "awx.awx"}
    assert used == set(load("galaxy.yml")["dependencies"])


def test_packages_are_required_that_the_controller_imports() -> None:
    named = re.findall(r"^([A-Za-z]+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)
    imported = set()
    for folder in ("plugin_utils", "action"):
        for path in python_files(f"plugins/{folder}"):
            imported.update(re.findall(r"^ *(?:from|import) ([a-z0-9_]+)", path.read_text(encoding="utf-8"), re.M))
    own = set(sys.stdlib_module_names) | {"ansible", "ansible_collections", "__future__"}
    # urllib3 comes with kubernetes.
    assert imported - own - {"urllib3"} == {"yaml" if name == "PyYAML" else name for name in named}


def test_action_group_has_every_module() -> None:
    runtime = load("meta/runtime.yml")
    assert runtime["requires_ansible"] == ">=2.16.0"
    assert runtime["action_groups"]["rbln"] == modules()


def test_every_action_plugin_has_its_documentation() -> None:
    actions = {p.stem for p in (ROOT / "plugins" / "action").glob("*.py")}
    assert actions
    assert actions <= set(modules())


RESULTS = {
    "rbln_facts": ("rbln_driver_facts", ("ansible_facts", "rbln")),
    "rbln_runtimes": ("rbln_runtime_detect", ("ansible_facts", "rbln_runtimes")),
    "observed": ("rbln_observe", ("ansible_facts", "rbln_observed")),
    "plan": ("rbln_plan", ()),
    "check": ("rbln_validate", ("checks",)),
}


def undocumented(place: str, documented: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Where a RETURN block and a schema name different keys, at every depth that the block describes."""
    if "$ref" in schema:
        schema = load(f"docs/schemas/{schema['$ref']}") if not schema["$ref"].startswith("#") else {}
    properties = schema.get("properties") or {}
    found = [f"{place}.{key}" for key in sorted(set(properties) ^ set(documented))] if properties else []
    for key in sorted(set(properties) & set(documented)):
        inner = documented[key].get("contains")
        if inner:
            found += undocumented(f"{place}.{key}", inner, properties[key].get("items", properties[key]))
    return found


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_results_are_documented_as_their_schema_has_them(name: str) -> None:
    module, path = RESULTS[name]
    tree = ast.parse((ROOT / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8"))
    block = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "RETURN"
    )
    documented = yaml.safe_load(ast.literal_eval(block))
    for key in path:
        documented = documented[key]["contains"]
    assert documented
    none(undocumented(name, documented, load(f"docs/schemas/{name}.schema.json")))


def test_changelog_tells_of_this_version() -> None:
    releases = load("changelogs/changelog.yaml")["releases"]
    version = load("galaxy.yml")["version"]
    assert releases[version]["changes"]["release_summary"]
    assert sorted(m["name"] for release in releases.values() for m in release.get("modules", [])) == modules()
    for kind, names in (("role", (ROOT / "roles").iterdir()), ("playbook", (ROOT / "playbooks").glob("*.yml"))):
        told = [item["name"] for release in releases.values() for item in release.get("objects", {}).get(kind, [])]
        assert sorted(told) == sorted(path.stem for path in names), kind
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")
    listed = set(re.findall(r"^\* rebellions\.npu\.(\w+) - ", page, re.M))
    filters = {path.stem for path in (ROOT / "plugins" / "filter").glob("*.py")} - {"__init__"}
    assert listed >= {*modules(), *filters}, "Next: make changelog"


def test_readme_has_the_headings_of_a_certified_collection() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    wanted = [
        "Description", "Requirements", "Installation", "Use Cases", "Testing", "Contributing", "Support",
        "Release Notes and Roadmap", "Related Information",
        "License Information",
    ]  # fmt: skip
    assert [h for h in re.findall(r"^## (.+)$", readme, re.M) if h in wanted] == wanted


def test_readme_starts_in_ten_lines() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## Quickstart\n.*?```\w*\n(.*?)```", readme, re.S | re.M)
    assert block and 1 <= len(block[1].strip().splitlines()) <= 10


def test_sanity_ignores_only_how_fixtures_end_their_lines() -> None:
    ignored = sorted((ROOT / "tests" / "sanity").glob("ignore-*.txt"))
    allowed = re.compile(r"tests/unit/fixtures/\S+ (line-endings|shebang)")
    none(
        [
            f"{p.name}: {line}"
            for p in ignored
            for line in p.read_text(encoding="utf-8").splitlines()
            if not allowed.fullmatch(line)
        ]
    )
    assert len({p.read_text(encoding="utf-8") for p in ignored}) <= 1


def test_no_unit_test_module_is_empty() -> None:
    found = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    assert found
    none([name_of(p) for p in found if "def test_" not in p.read_text(encoding="utf-8")])
