# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says is data: each answer of a module is judged by docs/schemas before anything uses it."""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .shape import Judge, Resolve, Wrong, compiled
from .text import clean

SCHEMAS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "schemas"
ANSWERS = "answers.schema.json"
FACTS = "ansible_facts"
PREFIX = PROFILE.short_name
# Our facts and what describes them.
SCHEMA_OF = {
    PREFIX: "%s_facts.schema.json" % PREFIX,
    "%s_runtimes" % PREFIX: "%s_runtimes.schema.json" % PREFIX,
    "%s_observed" % PREFIX: "observed.schema.json",
    "%s_proof" % PREFIX: "proof.schema.json",
}
PLANNED = tuple(SCHEMA_OF)[:3]
RUN = "run"
# ansible adds it to the facts of a result.
INTERPRETER = "discovered_interpreter_python"
# ansible-core 2.19 and later puts its own objects there, made from the output that is clean already.
OBJECTS = ("exception", "warnings", "deprecations")
NEXT = "Look at what runs on this host before you trust it; if it is sound, report a fault of this collection."


@functools.lru_cache(maxsize=None)
def _file(name: str) -> t.Any:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


def _partly(schema: t.Any) -> t.Any:
    """The schema without what it requires."""
    if isinstance(schema, dict):
        return {key: _partly(part) for key, part in schema.items() if key != "required" or isinstance(part, dict)}
    return [_partly(part) for part in schema] if isinstance(schema, list) else schema


def _within(name: str, partly: bool = False) -> Resolve:
    """Judges for the references in one file: to its $defs, or to a neighbour."""

    def resolve(reference: str) -> Judge:
        if reference.startswith("#/$defs/"):
            part = _file(name)["$defs"][reference[len("#/$defs/") :]]
            return compiled(_partly(part) if partly else part, resolve)
        return judge_of(reference, partly)

    return resolve


@functools.lru_cache(maxsize=None)
def judge_of(name: str, partly: bool = False) -> Judge:
    """The judge of a schema of docs/schemas by its file name; `partly` lets every key be absent."""
    return compiled(_partly(_file(name)) if partly else _file(name), _within(name, partly))


@functools.lru_cache(maxsize=None)
def _judge(module: str, failed: bool) -> Judge:
    """The judge of a module's answers; one that failed may lack what the module adds."""
    file = _file(ANSWERS)
    own = file["properties"][module]
    parts = {**file["$defs"]["core"]["properties"], **own["properties"]}
    facts = parts.get(FACTS, {"type": "object", "additionalProperties": False})
    known = {**facts.get("properties", {}), INTERPRETER: {"type": "string", "format": "path"}}
    parts[FACTS] = {**facts, "properties": known, "required": [] if failed else facts.get("required", [])}
    return compiled(
        {**own, "properties": parts, "required": [] if failed else own.get("required", [])}, _within(ANSWERS)
    )


def _objects_of_core(value: t.Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value]
    return all(type(one).__module__.startswith("ansible.") and not isinstance(one, (str, dict)) for one in items)


def wrong_answer(host: str, module: str, where: str, what: str) -> NpuError:
    return NpuError("%s answered %s with a wrong value: %s: %s." % (clean(host), module, where or "all", what), NEXT)


def known(module: str) -> bool:
    """Whether this is a module of ours that runs on hosts."""
    return module in _file(ANSWERS)["properties"]


def checked(host: str, module: str, answer: t.Mapping[str, t.Any], whole: bool = True) -> dict[str, t.Any]:
    """An answer as it may be used: its text is clean, and its values are what docs/schemas allows.

    `module` is the name of a module of ours without its collection. `whole` is false for the first answer of a job,
    which has no result yet. NpuError names the host, the place and the fault.
    """
    plain = {key: value for key, value in answer.items() if not (key in OBJECTS and _objects_of_core(value))}
    part = not whole or bool(answer.get("failed") or answer.get("unreachable"))
    try:
        found: dict[str, t.Any] = _judge(module, part)(plain)
    except Wrong as exc:
        raise wrong_answer(host, module, exc.where(), exc.what) from None
    return {"changed": False, **found, **{key: value for key, value in answer.items() if key not in plain}}


def require(host: str, module: str, found: t.Mapping[str, t.Any], keys: t.Iterable[str], where: str = "") -> None:
    """NpuError when an answer lacks what was asked for."""
    for key in keys:
        if key not in found:
            raise wrong_answer(host, module, where or key, "%s is missing" % key)


def run_of(task: t.Any) -> str:
    """What the ids of all tasks of one run of Ansible begin with, and those of no other; empty without an id."""
    return "-".join(str(getattr(task, "_uuid", None) or "").split("-")[:4])


def of_run(answer: dict[str, t.Any], run: str) -> dict[str, t.Any]:
    """The answer with the run in each of our facts: ansible keeps facts, and may cache them for later runs."""
    facts = answer.get(FACTS)
    if run and facts:
        ours = {name: {**facts[name], RUN: run} for name in SCHEMA_OF if name in facts}
        return {**answer, FACTS: {**facts, **ours}}
    return answer


def checked_facts(host: str, facts: t.Any, required: t.Sequence[str] = (), run: str = "") -> dict[str, t.Any]:
    """Our facts out of an observation or of what ansible remembers of a host. Any module can have returned them.

    Where none is required, a fact may be a part of itself, as somebody may have set it. With `run`, those of other runs
    are left out.
    """
    found: dict[str, t.Any] = {}
    for name, file in SCHEMA_OF.items():
        if isinstance(facts, t.Mapping) and name in facts:
            if run and isinstance(facts[name], t.Mapping) and facts[name].get(RUN) != run:
                continue
            try:
                found[name] = judge_of(file, not required)(facts[name])
            except Wrong as exc:
                raise wrong_answer(host, FACTS + "." + name, exc.where(), exc.what) from None
    missing = [name for name in required if name not in found]
    if missing:
        raise NpuError(
            "The observation of %s lacks %s." % (clean(host), ", ".join(missing)), "Observe the host, and plan again."
        )
    return found


def refuse_inputs(host: str, variables: t.Mapping[str, t.Any]) -> None:
    """NpuError when a fact has a name of ours: ansible makes variables of facts, and they win over the inventory."""
    for name in variables.get(FACTS) or ():
        if str(name).lstrip("_").startswith(PREFIX + "_") and name not in SCHEMA_OF:
            raise NpuError(
                "%s has the fact %s, which would set a variable of this collection." % (clean(host), clean(str(name))),
                "Set inputs in the inventory or by set_fact without cacheable; remove the fact from the cache.",
            )


# Once a run: ansible loads its plugins before it starts a process for each host and task.
for _module in _file(ANSWERS)["properties"]:
    _judge(_module, False)
