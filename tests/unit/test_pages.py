# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages for people against what they tell of: data, playbooks, argument specs, checks, messages and each other."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rebellions.npu.tests.tools import commands, diagrams, support

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINKED = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "roles").glob("*/README.md"))]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def cells(line: str) -> list[str]:
    """The cells of a row; a bar in them is escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def rows(page: str, columns: int) -> list[list[str]]:
    """The rows of the tables with this many columns, without heads."""
    found = []
    lines = page.splitlines()
    for number, line in enumerate(lines):
        head = number + 1 < len(lines) and lines[number + 1].startswith("|---")
        if line.startswith("| ") and not head and len(cells(line)) == columns:
            found.append(cells(line))
    return found


# -- links


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as the forges of Git make them."""
    plain = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    heads = re.findall(r"^#+ (.+)$", plain, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    wrong, followed = [], 0
    for page in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if target.startswith(("http://", "https://")):
                continue
            path, _mark, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            followed += 1
            if not there.exists() or (anchor and anchor not in anchors(there.read_text(encoding="utf-8"))):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert followed > 60 and wrong == []


def test_every_page_is_named_where_people_start() -> None:
    start = text("README.md") + text("CONTRIBUTING.md")
    assert len(PAGES) > 12
    assert [page.name for page in PAGES if f"(docs/{page.name})" not in start] == []


def test_every_page_has_one_place_on_the_site() -> None:
    placed = [page for section in yaml.safe_load(text("docs/docsite/guides.yml")) for page in section["pages"]]
    assert sorted(placed) == [page.stem for page in PAGES]


@pytest.mark.parametrize("name", diagrams.PICTURES)
def test_a_picture_shows_what_it_is_drawn_from(name: str) -> None:
    drawn = diagrams.PICTURES[name](ROOT)
    assert drawn == text(f"{diagrams.FOLDER}/{name}"), "Next: python -m tests.tools.diagrams"
    assert "rbln_rollout: leave" in diagrams.states(ROOT) and "_rollout" in diagrams.rooms(ROOT)


# -- commands


def test_every_command_of_a_page_is_run_by_a_test() -> None:
    told, known = commands.of_pages(ROOT), commands.table(ROOT)
    tested = [*known["host"], *known["cluster"], *(line for lines in known["files"].values() for line in lines)]
    assert len(told) > 40 and len(tested) == len(set(tested)), "one of them is there twice"
    assert {line: pages for line, pages in told.items() if line not in tested} == {}, f"Next: {commands.TABLE}"
    assert [line for line in tested if line not in told] == [], "no page has it"
    for file, lines in known["files"].items():
        for line, words in lines.items():
            assert words in text(file), f"{file} does not run: {line}"


def missing(span: str) -> list[str]:
    """What a command within a sentence names and is not there: playbooks, tags, targets of make, programs of tests."""
    targets = set(re.findall(r"^[a-z][a-z -]*(?=:(?!=))", text("Makefile"), re.M))
    known = {name for line in targets for name in line.split()} | {"proof-NAME"}
    files = [
        *(f"playbooks/{name}.yml" for name in re.findall(r"^ansible-playbook .*rebellions\.npu\.(\w+)", span)),
        *re.findall(r"^ansible-playbook .*(playbooks/\w+\.yml)", span),
        *(name.replace(".", "/") for name in re.findall(r"^python -m (tests[\w.]+)", span)),
    ]
    lost = [name for name in files if not any((ROOT / (name + end)).exists() for end in ("", ".py"))]
    made = re.match(r"make ((?:[a-zA-Z_-]+ ?)+)$", span)
    for name in made[1].split() if made else ():
        proof = ROOT / "tests" / "proofs" / (name.removeprefix("proof-") + ".py")
        lost += [name] if name not in known and not (name.startswith("proof-") and proof.exists()) else []
    tags = re.search(r"^ansible-playbook .*--tags ([\w,]+)", span)
    site = set(tagged(yaml.safe_load(text("playbooks/site.yml"))))
    return lost + [tag for tag in (tags[1].split(",") if tags else ()) if tag not in site]


def test_what_a_command_within_a_sentence_names_is_there() -> None:
    assert missing("make nothing proof-walk") == ["nothing"] and missing("make test") == []
    assert missing("ansible-playbook rebellions.npu.sight --tags driver,x") == ["playbooks/sight.yml", "x"]
    spans = [
        (page.name, span)
        for page in LINKED
        for span in re.findall(
            r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.S | re.M)
        )
        if span.startswith(("make ", "ansible-playbook ", "python -m tests"))
    ]
    assert len(spans) > 50
    assert [(page, span, missing(span)) for page, span in spans if missing(span)] == []


def test_the_commands_of_a_page_are_read_as_a_shell_does() -> None:
    page = "1. x\n\n   ```shell\n   a  -b \\\n     c   # why\n   # only this\n   d#e\n   ```\n```yaml\nf: 1\n```\n"
    assert commands.of_text(page) == ["a -b c", "d#e"]


def test_the_commands_of_the_tree_are_read_with_their_pipes() -> None:
    proving = commands.of_tree(ROOT)
    assert len(proving) > 60 and "modprobe --showconfig | grep rebellions; sysctl kernel.modules_disabled" in proving
    assert commands.filled("kubectl -n NAMESPACE logs POD; cat /x", POD="p") == "kubectl -n rbln-system logs p; cat /x"


# -- support matrix


def test_the_support_page_has_the_data_that_the_plan_judges_by() -> None:
    assert support.page(ROOT) == text(support.PAGE), "Next: python -m tests.tools.support"


def test_a_changed_rule_changes_the_page(tmp_path: Path) -> None:
    for name in (support.PAGE, support.RULES, support.IMAGES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text(name), encoding="utf-8")
    known = text(support.RULES)
    (tmp_path / support.RULES).write_text(known.replace("5.14.0-570.141.1.el9_6", "5.14.0-571.1.1.el9_6"), "utf-8")
    assert "5.14.0-571.1.1.el9_6" in support.page(tmp_path)
    # What the page has no place for is no row that says less than the rule.
    (tmp_path / support.RULES).write_text(known.replace("tested: partial", "arch: [aarch64]"), "utf-8")
    with pytest.raises(ValueError, match="arch"):
        support.page(tmp_path)


def test_every_rule_and_every_component_has_its_row() -> None:
    page = text(support.PAGE)
    rules = yaml.safe_load(text(support.RULES))["__rbln_preflight_support_matrix"]
    images = yaml.safe_load(text(support.IMAGES))["__rbln_operands_images"]
    systems = [rule for rule in rules if "os" in rule]
    assert len(systems) > 20 and len(rows(page, 5)) == len(systems)
    assert {name for name in images if f"| {name} |" not in page} == set()


# -- tags


def tagged(item: t.Any) -> t.Iterator[str]:
    """Every tag below an item of a playbook."""
    if isinstance(item, dict):
        own = item.get("tags") or []
        yield from own if isinstance(own, list) else [own]
        for value in item.values():
            yield from tagged(value)
    elif isinstance(item, list):
        for value in item:
            yield from tagged(value)


def plays_of(tag: str) -> set[str]:
    return {play["name"] for play in yaml.safe_load(text("playbooks/site.yml")) if tag in set(tagged(play))}


def test_the_page_of_the_tags_has_those_of_the_playbooks() -> None:
    told = {row[0].strip("`"): row[1] for row in rows(text("docs/tags.md"), 4)}
    others = [path for path in (ROOT / "playbooks").glob("*.yml") if path.name != "site.yml"]
    assert set(told) == set(tagged(yaml.safe_load(text("playbooks/site.yml")))) >= {"driver", "operands"}
    for tag, plays in told.items():
        assert plays_of(tag) == set(plays.split(", ")), tag
    assert {tag for path in others for tag in tagged(yaml.safe_load(path.read_text("utf-8")))} <= {"always"}
    files = [path for path in (ROOT / "roles").glob("*/tasks/*.yml") if list(tagged(yaml.safe_load(path.read_text())))]
    assert files == [], "the tags of a role are on no page"


# -- roles


def examples(role: str) -> list[dict[str, t.Any]]:
    """The plays in the examples of a role's README."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text(f"roles/{role}/README.md"), re.S | re.M)
    return [play for block in blocks for play in yaml.safe_load(block)]


def uses(play: dict[str, t.Any]) -> t.Iterator[tuple[str, str, dict[str, t.Any]]]:
    """(role, entry point, variables) of each role that a play runs."""
    for item in play.get("roles") or []:
        yield item["role"], "main", item.get("vars") or {}
    for task in play.get("tasks") or []:
        for key in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
            if key in task:
                yield task[key]["name"], task[key].get("tasks_from", "main"), task.get("vars") or {}


@functools.lru_cache(maxsize=None)
def options(role: str) -> dict[str, t.Any]:
    specs = yaml.safe_load(text(f"roles/{role}/meta/argument_specs.yml"))["argument_specs"]
    found: dict[str, t.Any] = specs["main"]["options"]
    return found


def shared() -> set[str]:
    named = re.findall(r"^\| (`rbln_[^|]+)\|", text("docs/inputs.md"), re.M)
    return {name for row in named for name in re.findall(r"`(rbln_\w+)`", row)}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_two_examples_that_its_argument_specs_take(role: str) -> None:
    plays = examples(role)
    of_role = [use for play in plays for use in uses(play) if use[0] == f"rebellions.npu.{role}"]
    assert len(of_role) >= 2, "two examples at least"
    for play in plays:
        assert play["name"] and play["hosts"] and play["gather_facts"] is False
        for name, entry, variables in uses(play):
            known = options(name.rpartition(".")[2])
            own = {key: value for key, value in variables.items() if key in known}
            assert set(variables) - set(own) <= shared(), (name, set(variables) - set(own))
            done = ArgumentSpecValidator({key: known[key] for key in own}).validate(own)
            assert done.error_messages == [], (role, done.error_messages)
            folder = ROOT / "roles" / name.rpartition(".")[2] / "tasks"
            assert (folder / f"{entry.removesuffix('.yml')}.yml").is_file(), entry


@pytest.mark.parametrize("role", ROLES)
def test_ansible_doc_shows_the_first_two_examples_of_the_page(role: str) -> None:
    specs = yaml.safe_load(text(f"roles/{role}/meta/argument_specs.yml"))["argument_specs"]
    shown = yaml.safe_load(specs["main"]["examples"])
    of_role = [play for play in examples(role) if any(use[0].endswith(f".{role}") for use in uses(play))]
    assert len(shown) == 2 and shown == of_role[:2]


# -- troubleshooting

TROUBLE = "docs/troubleshooting.md"
# Words of a message that stand for a value.
VALUES = re.compile(r"\b(?:NAME|VERSION|PATH|VALUE|REASON|ADDRESS|PROGRAM)\b")


@functools.lru_cache(maxsize=None)
def messages() -> str:
    """The code, with texts that go over several lines in one line, and a star for what is put into them."""
    sources = [path for path in (ROOT / "plugins").rglob("*.py") if not path.name.startswith("causes_")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return re.sub(r"%[srd]|{[^{}\n]*}", "*", re.sub(r'"\s*\n\s*f?"', "", code))


def symptoms() -> list[list[str]]:
    """The rows of the page, those of the causes without their ids."""
    page = text(TROUBLE)
    return rows(page, 4) + [row[1:] for row in rows(page, 5)]


def test_every_message_is_one_of_the_product() -> None:
    quoted = [told for row in symptoms() for told in re.findall(r'"([^"]+)"', row[0])]
    assert len(quoted) > 40
    # Words of ssh, the API server, kubelets and the kernel, which are repeated.
    others = {
        "read-only file system", "violates PodSecurity", "Could not resolve hostname", "Permission denied",
        "Host key verification failed", "Temporary failure in name resolution", "certificate is not yet valid",
        "Insufficient rebellions.ai/npu", "unresolvable CDI devices", "not yet valid",
        "failed to create FS watcher", "too many open files", "cni plugin not initialized", "NetworkPluginNotReady",
        "PLEG is not healthy", "expected cgroupsPath to be of format", "kubelet cgroup driver is different",
        "permission denied", "low on resource: memory", "ephemeral-storage",
        "kubelet.sock: no such file or directory",
    }  # fmt: skip
    for told in quoted:
        pattern = re.compile("[^\n]{0,60}".join(map(re.escape, VALUES.split(told.rstrip(".")))))
        assert told in others or pattern.search(messages()), told


def test_every_check_input_and_command_exists() -> None:
    page = text(TROUBLE)
    told = symptoms()
    known = set(re.findall(r"^\| `(\w+)` \|", text("docs/checks.md"), re.M))
    checks = {name for row in told for name in re.findall(r"`([a-z]+_[a-z_]+)`", row[0])}
    assert len(told) > 80 and len(checks) > 40 and checks - known == set()
    playbooks = set(re.findall(r"rebellions\.npu\.([a-z_]+)", page))
    assert len(playbooks) > 2 and playbooks <= {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert set(re.findall(r"--tags (\w+)", page)) <= set(tagged(yaml.safe_load(text("playbooks/site.yml"))))
    tool = set(re.findall(r"rbln-host ([a-z]+)", page))
    parser = text("plugins/module_utils/_observe/host_tool.py")
    assert tool and tool <= set(re.findall(r'add_parser\(\s*"([a-z-]+)"', parser))
    assert all(len(row) == 4 and all(row) for row in told)


# -- times


def test_the_time_limits_are_the_defaults_of_the_roles() -> None:
    told = [row for row in rows(text("docs/sizing.md"), 3) if row[0].startswith("`rbln_")]
    known = {name: option for role in ROLES for name, option in options(role).items()}
    assert len(told) > 7
    assert [row[0] for row in told if float(row[1]) != known[row[0].strip("`")]["default"]] == []
