# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON edited in place: key order, number text and indentation stay, because only our members are spliced in or out."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .splice import BOM, Edit, line_column, lookup

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^\s,\]}]+")


@dataclass
class Node:
    """A value's span and, for objects, its members (key text start, key, value) in their order; for arrays its elements."""

    kind: str
    start: int
    end: int = 0
    members: list[tuple[int, str, Node]] = field(default_factory=list)

    def member(self, key: str) -> Node | None:
        return next((node for _start, name, node in self.members if name == key), None)


def _refuse(name: str, text: str, offset: int, what: str) -> NpuError:
    line, column = line_column(text, offset)
    return NpuError(
        "%s: line %d, column %d: %s." % (name, line, column, what), "Repair the file; it was left as it is."
    )


def _no_constant(word: str) -> t.NoReturn:
    raise ValueError("%s is not JSON" % word)


def load(text: str, name: str) -> dict[str, t.Any]:
    """The object in `text`; nothing but white space is an empty one. NpuError names file, line and column of the first fault."""
    skip = 1 if text.startswith(BOM) else 0
    body = text[skip:]
    if not body.strip():
        return {}
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise _refuse(name, text, exc.pos + skip, "not valid JSON: %s" % exc.msg) from exc
    except (ValueError, RecursionError) as exc:
        raise _refuse(name, text, skip, "not valid JSON: %s" % exc) from exc
    if not isinstance(data, dict):
        start = _SPACE.match(text, skip).end()  # type: ignore[union-attr]
        raise _refuse(name, text, start, "the file must hold one JSON object, not %s" % _kind(data))
    return data


def _kind(value: t.Any) -> str:
    if value is None:
        return "null"
    return {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")


def _string(text: str, at: int) -> tuple[str, int]:
    """The value of the string whose first character after the quote is at `at`, and the offset after it."""
    end = at
    while text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return json.loads(text[at - 1 : end + 1]), end + 1


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _scan(text: str, at: int, name: str) -> Node:
    if text[at] == '"':
        return Node("string", at, _string(text, at + 1)[1])
    if text[at] not in "{[":
        return Node("scalar", at, _SCALAR.match(text, at).end())  # type: ignore[union-attr]
    node = Node("object" if text[at] == "{" else "array", at)
    close = "}" if node.kind == "object" else "]"
    at = _space(text, at + 1)
    seen: set[str] = set()
    while text[at] != close:
        start, key = at, ""
        if node.kind == "object":
            key, at = _string(text, at + 1)
            if key in seen:
                raise _refuse(name, text, start, "the key %s stands there twice" % json.dumps(key))
            seen.add(key)
            at = _space(text, _space(text, at) + 1)
        child = _scan(text, at, name)
        node.members.append((start, key, child))
        at = _space(text, child.end)
        if text[at] == ",":
            at = _space(text, at + 1)
    node.end = at + 1
    return node


class JsonEdit(Edit):
    """A JSON file's text under edit."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name, load)
        self.tree()

    @property
    def bom(self) -> bool:
        return self.text.startswith(BOM)

    def refuse(self, what: str, offset: int | None = None) -> NpuError:
        return _refuse(self.name, self.text, offset or 0, what)

    def tree(self) -> Node | None:
        at = _space(self.text, 1 if self.bom else 0)
        return _scan(self.text, at, self.name) if at < len(self.text) else None

    def node(self, path: t.Sequence[str]) -> Node | None:
        node = self.tree()
        for key in path:
            if node is None or node.kind != "object":
                return None
            node = node.member(key)
        return node

    def set(self, path: t.Sequence[str], value: t.Any) -> None:
        """Give the member at `path` (one or two keys) a value; its object is made when it is not there."""
        raw = json.dumps(value, ensure_ascii=False)
        node = self.node(path)
        if node is not None:
            old = self.text[node.start : node.end]
            self.buffer.splice(node.start, node.end, raw)
            if old != raw:
                self.changes.append({"op": "value", "path": list(path), "old": old, "new": raw})
            return
        parent = self.node(path[:-1])
        if parent is None:
            self._add(path[:-1], path[-1], raw)
        else:
            self._insert(parent, path[-1], raw)
        self.changes.append({"op": "value", "path": list(path), "old": None, "new": raw})
        if parent is None and len(path) > 1:
            self.changes.append({"op": "object", "path": list(path[:-1]), "old": None, "new": None})

    def _add(self, outer: t.Sequence[str], key: str, raw: str) -> None:
        top = self.tree()
        if top is None:
            start = 1 if self.bom else 0
            unit = "  "
            lines = ["{"]
            if outer:
                lines += [unit + json.dumps(outer[0]) + ": {", unit * 2 + json.dumps(key) + ": " + raw, unit + "}", "}"]
            else:
                lines += [unit + json.dumps(key) + ": " + raw, "}"]
            self.buffer.splice(start, len(self.text), self.newline.join(lines) + self.newline)
            return
        colon = self._colon(top)
        pad, unit, wide = self._layout(top)
        member = json.dumps(key) + colon + raw
        if wide:
            inner = "{" + self.newline + pad + unit + member + self.newline + pad + "}"
        else:
            inner = "{" + member + "}"
        self._insert(top, outer[0], inner)

    def _colon(self, top: Node) -> str:
        for start, _key, child in top.members:
            between = self.text[start : child.start]
            return between[between.rindex(":") :] if "\n" not in between else ": "
        return ": "

    def _layout(self, node: Node) -> tuple[str, str, bool]:
        """Indent of the members, one step of it, and whether members stand on lines of their own."""
        wide = "\n" in self.text[node.start : node.members[0][0] if node.members else node.end]
        line = self.text.rfind("\n", 0, node.start) + 1
        outer = re.match(r"[ \t]*", self.text[line : node.start].lstrip(BOM)).group()  # type: ignore[union-attr]
        if not wide or not node.members:
            return outer + "  ", "  ", wide
        first = node.members[0][0]
        pad = self.text[self.text.rfind("\n", 0, first) + 1 : first]
        return pad, pad[len(outer) :] if pad.startswith(outer) and pad != outer else "  ", wide

    def _insert(self, parent: Node, key: str, raw: str) -> None:
        if parent.kind != "object":
            raise self.refuse("expected an object", parent.start)
        pad, unit, wide = self._layout(parent)
        tree = self.tree()
        member = json.dumps(key) + self._colon(parent if parent.members else tree or parent) + raw
        if not parent.members:
            outer = pad[: -len(unit)]
            body = self.newline + pad + member + self.newline + outer if wide else member
            self.buffer.splice(parent.start + 1, parent.end - 1, body)
            return
        last = parent.members[-1][2]
        if wide:
            gap = "," + self.newline + pad
        elif len(parent.members) > 1:
            gap = re.sub(r"\s*,", ",", self.text[parent.members[-2][2].end : parent.members[-1][0]], count=1)
        else:
            gap = ", " if self._colon(parent).endswith(" ") else ","
        self.buffer.splice(last.end, last.end, gap + member)

    def delete(self, path: t.Sequence[str]) -> None:
        """Take the member at `path` out with its comma; nothing when it is not there."""
        parent = self.node(path[:-1])
        if parent is None or parent.member(path[-1]) is None:
            return
        index = [key for _start, key, _node in parent.members].index(path[-1])
        start, _key, node = parent.members[index]
        old = self.text[node.start : node.end]
        if index > 0:
            self.buffer.splice(parent.members[index - 1][2].end, node.end, "")
        elif len(parent.members) > 1:
            self.buffer.splice(start, parent.members[1][0], "")
        else:
            self.buffer.splice(parent.start + 1, parent.end - 1, "")
        self.changes.append({"op": "value", "path": list(path), "old": old, "new": None})

    def extend(self, path: t.Sequence[str], wanted: t.Sequence[str]) -> None:
        """Add strings at the end of the array at `path`, in the style it is written in. The member must be an array."""
        node = self.node(path)
        if node is None or node.kind != "array":
            raise self.refuse("expected a list", node.start if node else 0)
        if not wanted:
            return
        old = self.text[node.start : node.end]
        texts = [json.dumps(item, ensure_ascii=False) for item in wanted]
        if not node.members:
            self.buffer.splice(node.start + 1, node.end - 1, ", ".join(texts))
        else:
            last = node.members[-1]
            pad, _unit, wide = self._layout(node)
            gap = "," + self.newline + pad if wide else ", "
            self.buffer.splice(last[2].end, last[2].end, "".join(gap + text for text in texts))
        after = self.node(path)
        new = self.text[after.start : after.end] if after else ""
        self.changes.append({"op": "array", "path": list(path), "old": old, "new": new, "added": list(wanted)})

    def remove_items(self, path: t.Sequence[str], unwanted: t.Sequence[str]) -> None:
        """Take strings out of the array at `path`; the others keep their text and order."""
        node = self.node(path)
        if node is None or node.kind != "array":
            return
        values = lookup(self.data, path)
        for index in range(len(values) - 1, -1, -1):
            if values[index] not in unwanted:
                continue
            members = (self.node(path) or node).members
            child = members[index][2]
            if index + 1 < len(members):
                self.buffer.splice(child.start, members[index + 1][2].start, "")
            elif index:
                self.buffer.splice(members[index - 1][2].end, child.end, "")
            else:
                self.buffer.splice(child.start, child.end, "")
