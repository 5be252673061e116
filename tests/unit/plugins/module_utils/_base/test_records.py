# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records do what the standard library's dataclasses do, for all that host code asks of them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base import records
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import Problem

SOURCE = '''
class Pair(NamedTuple):
    left: Any
    right: Any

@made.dataclass(frozen=True)
class Part:
    """A part."""
    name: str
    size: int = 3

    @property
    def doubled(self) -> int:
        return 2 * self.size

@made.dataclass
class Whole:
    parts: list
    seen: dict = made.field(default_factory=dict)
    note: str = ""

@made.dataclass
class More(Whole):
    extra: Any = None

@made.dataclass(frozen=True)
class Judged:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.upper())
'''


class Pair(NamedTuple):
    left: Any
    right: Any


def classes(made: Any) -> Any:
    """The same classes, made by the standard library or by ours."""
    space: dict[str, Any] = {"made": made, "Any": Any, "NamedTuple": NamedTuple, "__name__": __name__}
    exec(compile("from __future__ import annotations\n" + SOURCE, "source", "exec"), space)
    return space


def outcome(act: Any) -> Any:
    """What an act gives; of an error only whether it is one of attributes, types or others."""
    try:
        return act()
    except AttributeError:
        return "AttributeError"
    except (TypeError, ValueError) as exc:
        return type(exc).__name__


ACTS = {
    "by place": lambda m, c: repr(c["Part"]("a", 4)),
    "by name": lambda m, c: repr(c["Part"](size=4, name="a")),
    "default": lambda m, c: (c["Part"]("a").size, c["Part"].size, c["Part"]("a").doubled),
    "lacking": lambda m, c: c["Part"](),
    "too many": lambda m, c: c["Part"]("a", 4, 5),
    "twice": lambda m, c: c["Part"]("a", name="b"),
    "unknown": lambda m, c: c["Part"]("a", other=1),
    "equal": lambda m, c: (c["Part"]("a") == c["Part"]("a", 3), c["Part"]("a") == c["Part"]("b")),
    "other class": lambda m, c: (c["Part"]("a") == ("a", 3), c["Whole"]([]) == c["More"]([])),
    "hash": lambda m, c: len({c["Part"]("a"), c["Part"]("a"), c["Part"]("b")}),
    "hash of what changes": lambda m, c: hash(c["Whole"]([])),
    "frozen": lambda m, c: setattr(c["Part"]("a"), "size", 5),
    "frozen for good": lambda m, c: delattr(c["Part"]("a"), "size"),
    "not frozen": lambda m, c: setattr(c["Whole"]([]), "note", "x"),
    "each its own": lambda m, c: c["Whole"]([]).seen is c["Whole"]([]).seen,
    "no attribute of the class": lambda m, c: c["Whole"].seen,
    "inherited": lambda m, c: (repr(c["More"]([1], extra=2)), [one.name for one in m.fields(c["More"])]),
    "after": lambda m, c: (c["Judged"]("a").text, m.replace(c["Judged"]("a"), text="b").text),
    "fields": lambda m, c: [one.name for one in m.fields(c["Whole"]([]))],
    "replace": lambda m, c: (repr(m.replace(c["Part"]("a"), size=1)), repr(m.replace(c["Whole"]([1]), note="x"))),
    "replace by an unknown": lambda m, c: m.replace(c["Part"]("a"), other=1),
    "as data": lambda m, c: m.asdict(
        c["More"]([c["Part"]("a"), ({"k": c["Part"]("b")},), Pair(1, [c["Part"]("c")])], {"x": (1, 2)}, "n")
    ),
    "not shared": lambda m, c: [m.asdict(whole)["parts"] is whole.parts for whole in [c["Whole"]([1])]],
    "order": lambda m, c: list(vars(c["More"](extra=1, note="", parts=[]))),
    "shared default": lambda m, c: m.dataclass(type("Bad", (), {"__annotations__": {"x": "list"}, "x": []})),
    "kept text": lambda m, c: (c["Part"].__doc__, c["Part"].__name__),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_record_is_what_the_standard_library_makes(act: Any) -> None:
    expected = outcome(lambda: act(dataclasses, classes(dataclasses)))
    assert outcome(lambda: act(records, classes(records))) == expected


def test_the_standard_library_works_with_records() -> None:
    made = classes(records)
    assert dataclasses.is_dataclass(made["Part"])
    assert dataclasses.replace(made["Part"]("a"), size=9) == made["Part"]("a", 9)
    assert dataclasses.asdict(made["Whole"]([made["Part"]("a")])) == records.asdict(made["Whole"]([made["Part"]("a")]))
    assert [one.name for one in dataclasses.fields(made["More"])] == ["parts", "seen", "note", "extra"]
    assert dataclasses.replace(Problem("a", "error", "d"), detail="password=abcdef12").detail == "password=********"


def test_host_code_takes_its_records_from_here() -> None:
    """One import of the other brings back what it costs to each process."""
    rooms = Path(sys.modules[records.__name__].__file__ or "").resolve().parents[1]
    files = [path for path in rooms.rglob("*.py") if path.name != "records.py"]
    assert len(files) > 100
    assert [path.name for path in files if "dataclasses" in path.read_text(encoding="utf-8")] == []
