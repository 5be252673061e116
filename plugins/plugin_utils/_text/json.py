# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON edited one member of the top object at a time, by json, in the indent and with the separators of the file.

The other members are not written again, so their text stays.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .splice import BOM, Edit, line_column

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_REPAIR = "Repair the file; it was not changed."


class _Twice(ValueError):
    """A key that stands twice. It is valid JSON, of which programs take the last value."""


class Member(t.NamedTuple):
    """A member of the top object: its text is [start, end), its value begins at `value`, after `colon`."""

    key: str
    start: int
    colon: str
    value: int
    end: int


def load(text: str, name: str) -> dict[str, t.Any]:
    """The object in `text`; nothing but white space is an empty one. NpuError names the file and the first fault."""
    body = text.removeprefix(BOM)
    if not body.strip():
        return {}
    try:
        data = json.loads(body, parse_constant=_no_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as exc:
        place = line_column(text, exc.pos + len(text) - len(body))
        raise NpuError("%s: line %d, column %d: not valid JSON: %s." % (name, *place, exc.msg), _REPAIR) from exc
    except _Twice as exc:
        raise NpuError("%s: %s." % (name, exc), "Remove the one that has no effect; the file was not changed.") from exc
    except (ValueError, RecursionError) as exc:
        raise NpuError("%s: not valid JSON: %s." % (name, exc), _REPAIR) from exc
    if not isinstance(data, dict):
        raise NpuError("%s: the file must hold one JSON object, not %s." % (name, _kind(data)), _REPAIR)
    return data


def _no_constant(word: str) -> t.NoReturn:
    raise ValueError("%s is not JSON" % word)


def _unique(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice("the key %s appears twice, and programs take the last value" % json.dumps(key))
        found[key] = value
    return found


def _kind(value: t.Any) -> str:
    if value is None:
        return "null"
    return {list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


class JsonEdit(Edit):
    """A JSON file's text under edit."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name, load)

    @property
    def bom(self) -> bool:
        return self.text.startswith(BOM)

    def refuse(self, what: str) -> NpuError:
        return NpuError("%s: %s." % (self.name, what), _REPAIR)

    def _members(self) -> list[Member]:
        text = self.text
        found: list[Member] = []
        at = _space(text, text.index("{") + 1)
        while text[at] != "}":
            start = at
            key, at = _DECODER.raw_decode(text, start)
            value = _space(text, _space(text, at) + 1)
            end = _DECODER.raw_decode(text, value)[1]
            found.append(Member(key, start, text[at:value], value, end))
            at = _space(text, end)
            at = _space(text, at + 1) if text[at] == "," else at
        return found

    def value(self, path: t.Sequence[str]) -> str | None:
        """The value at `path` as JSON in one line, None when there is none."""
        value: t.Any = self.data
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return json.dumps(value, ensure_ascii=False)

    def set(self, path: t.Sequence[str], value: t.Any, added: t.Sequence[str] = ()) -> None:
        """Give the member at `path` (one or two keys) a value; its object is made when it is not there.

        `added` are new elements of a list.
        """
        old, new = self.value(path), json.dumps(value, ensure_ascii=False)
        if old == new:
            return
        parent = self.data.get(path[0])
        if len(path) > 1 and not isinstance(parent, (dict, type(None))):
            raise self.refuse("%s must be an object" % path[0])
        self._put(path[0], value if len(path) == 1 else {**(parent or {}), path[1]: value})
        change = {"op": "array" if added else "value", "path": list(path), "old": old, "new": new}
        self.changes.append({**change, "added": list(added)} if added else change)
        if len(path) > 1 and parent is None:
            self.changes.append({"op": "object", "path": list(path[:1]), "old": None, "new": None})

    def delete(self, path: t.Sequence[str]) -> None:
        """Take the member at `path` out with its comma; nothing when it is not there."""
        old = self.value(path)
        if old is None:
            return
        if len(path) > 1:
            self._put(path[0], {key: value for key, value in self.data[path[0]].items() if key != path[1]})
        else:
            self._drop(path[0])
        self.changes.append({"op": "value", "path": list(path), "old": old, "new": None})

    def _drop(self, key: str) -> None:
        members = self._members()
        at = [member.key for member in members].index(key)
        if at:
            self.buffer.splice(members[at - 1].end, members[at].end, "")
        elif len(members) > 1:
            self.buffer.splice(members[0].start, members[1].start, "")
        else:
            self.buffer.splice(self.text.index("{") + 1, self.text.rindex("}"), "")

    def _put(self, key: str, value: t.Any) -> None:
        """Write the member of the top object, in its place or as the last one."""
        if not self.text.removeprefix(BOM).strip():
            text = json.dumps({key: value}, ensure_ascii=False, indent=2) + "\n"
            self.buffer.splice(len(BOM) if self.bom else 0, len(self.text), text.replace("\n", self.newline))
            return
        members = self._members()
        start, stop = self.text.index("{") + 1, members[0].start if members else self.text.rindex("}")
        gap = self.text[start:stop]
        wide = "\n" in gap
        pad = (gap.rpartition("\n")[2] if members else "") or "  "
        colon = members[0].colon if members and "\n" not in members[0].colon else ": "
        comma = ", " if colon.endswith(" ") else ","
        if len(members) > 1 and not wide:
            comma = self.text[members[-2].end : members[-1].start].lstrip()
        there = next((member for member in members if member.key == key), None)
        many = "\n" in self.text[there.value : there.end] if there else wide
        raw = json.dumps(
            value, ensure_ascii=False, indent=pad if many else None, separators=("," if many else comma, colon)
        ).replace("\n", self.newline + pad)
        if there:
            self.buffer.splice(there.value, there.end, raw)
            return
        raw = json.dumps(key) + colon + raw
        if members:
            self.buffer.splice(members[-1].end, members[-1].end, ("," + self.newline + pad if wide else comma) + raw)
        else:
            self.buffer.splice(start, stop, self.newline + pad + raw + self.newline if wide else raw)
