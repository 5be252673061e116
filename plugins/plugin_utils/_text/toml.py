# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML edited in place: tomlkit says what a file means, splices change it, and the result is read again to prove that nothing else did."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .splice import BOM, Edit, line_column, lookup
from .toml_scan import Entry, Path, ScanError, scan

try:
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError
except ImportError:  # the action plugin says what to install
    tomlkit = None  # type: ignore[assignment]

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")


def load(text: str, name: str) -> dict[str, t.Any]:
    """Plain values of TOML text. NpuError names the file, line and column of the first fault."""
    try:
        return tomlkit.parse(text[1:] if text.startswith(BOM) else text).unwrap()
    except ParseError as exc:
        raise _bad(name, exc.line, exc.col + 1, _first_line(exc)) from exc
    except (TOMLKitError, ValueError) as exc:
        entry = _repeated(text)
        line, column = line_column(text, entry.name) if entry else (1, 1)
        raise _bad(name, line, column, _first_line(exc)) from exc


def _first_line(exc: Exception) -> str:
    return re.sub(r" at line \d+ col \d+$", "", str(exc).splitlines()[0] if str(exc) else exc.__class__.__name__)


def _bad(name: str, line: int, column: int, what: str) -> NpuError:
    return NpuError(
        "%s: line %d, column %d: not valid TOML: %s." % (name, line, column, what.rstrip(".")),
        "Repair the file; it was left as it is.",
    )


def _repeated(text: str) -> Entry | None:
    try:
        entries = scan(text)
    except ScanError:
        return None
    seen: set[tuple[str, Path]] = set()
    for entry in entries:
        mark = (entry.kind, entry.path)
        if mark in seen and entry.kind != "array" and "[]" not in entry.header:
            return entry
        seen.add(mark)
    return None


class TomlEdit(Edit):
    """A TOML file's text under edit."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name, load)
        self._entries()

    def refuse(self, what: str, offset: int | None = None) -> NpuError:
        where = ""
        if offset is not None:
            where = " line %d, column %d:" % line_column(self.text, offset)
        return NpuError("%s:%s %s." % (self.name, where, what), "Change it by hand; the file was left as it is.")

    def _entries(self) -> list[Entry]:
        try:
            return scan(self.text)
        except (ScanError, IndexError) as exc:
            raise self.refuse("this form of TOML is not edited (%s)" % exc, getattr(exc, "offset", None)) from exc

    def pair(self, path: Path) -> Entry | None:
        return next((e for e in self._entries() if e.kind == "pair" and e.path == path), None)

    def raw(self, entry: Entry) -> str:
        return self.text[entry.value : entry.value_end]

    def quote(self) -> str:
        """The quote mark that keys and headers of this file use."""
        names = "".join(
            self.text[e.name : e.value] if e.kind == "pair" else self.text[e.name : e.value_end]
            for e in self._entries()
        )
        if '"' in names or "'" in names:
            return "'" if names.count("'") > names.count('"') else '"'
        values = [self.raw(e)[:1] for e in self._entries() if e.kind == "pair"]
        return "'" if values.count("'") > values.count('"') else '"'

    def key_text(self, path: t.Sequence[str]) -> str:
        mark = self.quote()
        return ".".join(part if _BARE.match(part) else mark + part + mark for part in path)

    def string_text(self, value: str) -> str:
        mark = self.quote()
        return (
            mark + value + mark
            if "'" not in value and '"' not in value and "\\" not in value
            else '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"')
        )

    def list_text(self, values: t.Sequence[str]) -> str:
        return "[%s]" % ", ".join(self.string_text(value) for value in values)

    def set(self, path: Path, raw: str) -> None:
        """Give the key at `path` the value text `raw`: replaced where it is, else added to its table, else with a new table."""
        entry = self.pair(path)
        if entry is not None:
            old = self.raw(entry)
            if old == raw:
                return
            self.buffer.splice(entry.value, entry.value_end, raw)
            self.changes.append({"op": "value", "path": list(path), "old": old, "new": raw})
            return
        made = self._add(path, raw)
        self.changes.append({"op": "value", "path": list(path), "old": None, "new": raw})
        if made:
            self.changes.append({"op": "table", "path": list(path[:-1]), "old": None, "new": None})

    def _add(self, path: Path, raw: str) -> bool:
        """Add a pair that is not there; True when a header had to be made."""
        entries = self._entries()
        table, key = path[:-1], path[-1]
        above = [
            entry for entry in entries if entry.kind == "pair" and table and table[: len(entry.path)] == entry.path
        ]
        if above:
            return self._add_inline(max(above, key=lambda entry: len(entry.path)), path, raw)
        if not table:
            self._add_top(entries, key, raw)
            return False
        for index, entry in enumerate(entries):
            if entry.kind == "table" and entry.path == table:
                self._add_under(entries, index, key, raw)
                return False
        dotted = [
            e
            for e in entries
            if e.kind == "pair"
            and not e.inline
            and len(e.header) < len(table) < len(e.path)
            and e.path[: len(table)] == table
        ]
        if dotted:
            last = dotted[-1]
            name = self.key_text(path[len(last.header) :])
            self._insert_after(last, self._indent(last), name, raw)
            return False
        below = next((e for e in entries if e.kind in ("table", "array") and e.path[: len(table)] == table), None)
        if below is not None:
            self._add_header(self._over_comments(below.start), self._indent(below), table, key, raw, after=True)
        else:
            self._add_header(len(self.text), self._sibling_indent(entries, table), table, key, raw, after=False)
        return True

    def _add_inline(self, entry: Entry, path: Path, raw: str) -> bool:
        if self.text[entry.value] != "{":
            raise self.refuse("%s is not a table" % ".".join(entry.path), entry.value)
        tail = self.key_text(path[len(entry.path) :])
        inside = [e.end for e in self._entries() if e.inline and entry.value < e.name and e.end < entry.value_end]
        if inside:
            self.buffer.splice(max(inside), max(inside), ", %s = %s" % (tail, raw))
        else:
            self.buffer.splice(entry.value, entry.value_end, "{ %s = %s }" % (tail, raw))
        return False

    def _add_top(self, entries: list[Entry], key: str, raw: str) -> None:
        top = [e for e in entries if e.kind == "pair" and not e.header and not e.inline]
        if top:
            self._insert_after(top[-1], self._indent(top[-1]), self.key_text([key]), raw)
            return
        first = next((e for e in entries), None)
        line = "%s = %s%s" % (self.key_text([key]), raw, self.newline)
        if first is not None:
            at = self._over_comments(first.start)
            self.buffer.splice(at, at, line + self.newline)
        else:
            self._append(line)

    def _add_under(self, entries: list[Entry], index: int, key: str, raw: str) -> None:
        header = entries[index]
        direct = []
        for entry in entries[index + 1 :]:
            if entry.kind != "pair":
                break
            if not entry.inline:
                direct.append(entry)
        anchor = direct[-1] if direct else header
        indent = self._indent(anchor) if direct else self._indent(header) + self._step(entries)
        self._insert_after(anchor, indent, self.key_text([key]), raw)

    def _insert_after(self, anchor: Entry, indent: str, name: str, raw: str) -> None:
        line = "%s%s = %s" % (indent, name, raw)
        if self.text[: anchor.end].endswith("\n"):
            self.buffer.splice(anchor.end, anchor.end, line + self.newline)
        else:
            self.buffer.splice(anchor.end, anchor.end, self.newline + line)

    def _append(self, block: str) -> None:
        at = len(self.text)
        if not self.text or self.text.endswith("\n") or self.text == BOM:
            self.buffer.splice(at, at, block)
        else:
            self.buffer.splice(at, at, self.newline + block[: -len(self.newline)])

    def _add_header(self, at: int, indent: str, table: Path, key: str, raw: str, after: bool) -> None:
        step = self._step(self._entries())
        lines = ["%s[%s]" % (indent, self.key_text(table)), "%s%s = %s" % (indent + step, self.key_text([key]), raw)]
        block = "".join(line + self.newline for line in lines)
        if after:
            self.buffer.splice(at, at, block)
        elif at == 0 or not self.text.strip(BOM + " \t\r\n"):
            self._append(block)
        else:
            self._append(self.newline + block)

    def _indent(self, entry: Entry) -> str:
        return self.text[entry.start : entry.name].lstrip(BOM)

    def _step(self, entries: list[Entry]) -> str:
        """How much deeper a key stands than its header: as the file does it, two blanks when it does not say."""
        header: Entry | None = None
        for entry in entries:
            if entry.kind != "pair":
                header = entry
            elif header is not None and not entry.inline:
                own, outer = self._indent(entry), self._indent(header)
                return own[len(outer) :] if own.startswith(outer) else ""
        return "  "

    def _sibling_indent(self, entries: list[Entry], table: Path) -> str:
        siblings = [e for e in entries if e.kind == "table" and len(e.path) == len(table) and e.path[:-1] == table[:-1]]
        return self._indent(siblings[-1]) if siblings else ""

    def _over_comments(self, at: int) -> int:
        """The start of the block of comment lines that stands right above the line at `at`."""
        floor = 1 if self.text.startswith(BOM) else 0
        while at > floor:
            previous = self.text.rfind("\n", 0, at - 1) + 1
            previous = max(previous, floor)
            if not self.text[previous:at].lstrip(" \t").startswith("#"):
                break
            at = previous
        return at

    def extend(self, path: Path, wanted: t.Sequence[str]) -> None:
        """Add strings to the array at `path`: at its end, in the style it is written in. The key must exist."""
        entry = self.pair(path)
        if entry is None:
            raise self.refuse("%s is not there" % ".".join(path))
        raw = self.raw(entry)
        value = lookup(self.data, path)
        if not raw.startswith("[") or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse("%s is not a list of strings" % ".".join(path), entry.value)
        missing = [item for item in wanted if item not in value]
        if not missing:
            return
        old = raw
        if not entry.items:
            self.buffer.splice(entry.value + 1, entry.value + 1, ", ".join(self.string_text(item) for item in missing))
        else:
            self._extend_items(entry, missing)
        again = self.pair(path)
        self.changes.append(
            {"op": "array", "path": list(path), "old": old, "new": self.raw(again) if again else "", "added": missing}
        )

    def _extend_items(self, entry: Entry, missing: t.Sequence[str]) -> None:
        start, end = entry.items[-1]
        mark = self.text[start] if self.text[start] in "\"'" else self.quote()
        texts = [mark + item + mark for item in missing]
        line_start = self.text.rfind("\n", 0, start) + 1
        alone = not self.text[line_start:start].strip(" \t") and line_start > entry.value
        line_end = self.text.find("\n", end, entry.value_end)
        if not alone or line_end < 0:
            self.buffer.splice(end, end, "".join(", " + text for text in texts))
            return
        comma = _comma_after(self.text, end, entry.value_end)
        indent = self.text[line_start:start]
        lines = [indent + text for text in texts]
        block = ("," + self.newline).join(lines) + ("," if comma else "") + self.newline
        self.buffer.splice(line_end + 1, line_end + 1, block)
        if not comma:
            self.buffer.splice(end, end, ",")

    def remove_items(self, path: Path, unwanted: t.Callable[[str], bool]) -> list[str]:
        """Take strings out of the array at `path`; the other elements keep their text and order. The removed values come back."""
        entry = self.pair(path)
        value = lookup(self.data, path)
        if entry is None or not isinstance(value, list) or len(value) != len(entry.items):
            return []
        old = self.raw(entry)
        gone: list[str] = []
        for index in range(len(value) - 1, -1, -1):
            if not isinstance(value[index], str) or not unwanted(value[index]):
                continue
            gone.insert(0, value[index])
            self._drop_item(entry, index)
            entry = self.pair(path) or entry
        if gone:
            self.changes.append(
                {"op": "array", "path": list(path), "old": old, "new": self.raw(entry), "removed": gone}
            )
        return gone

    def _drop_item(self, entry: Entry, index: int) -> None:
        items, text = entry.items, self.text
        start, end = items[index]
        line = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end, entry.value_end)
        rest = text[end:line_end].split("#")[0].replace(",", "").strip() if line_end >= 0 else "]"
        if line > entry.value and not text[line:start].strip() and not rest:
            self.buffer.splice(line, line_end + 1, "")
        elif index + 1 < len(items) and "#" not in text[end : items[index + 1][0]]:
            self.buffer.splice(start, items[index + 1][0], "")
        elif index > 0 and "#" not in text[items[index - 1][1] : start]:
            self.buffer.splice(items[index - 1][1], end, "")
        else:
            comma = text.find(",", end, entry.value_end) if _comma_after(text, end, entry.value_end) else -1
            self.buffer.splice(start, comma + 1 if comma >= 0 and not text[end:comma].strip() else end, "")

    def delete(self, path: Path) -> None:
        """Take out the pair at `path` with its lines; nothing when it is not there."""
        entry = self.pair(path)
        if entry is None:
            return
        old = self.raw(entry)
        if entry.inline:
            raise self.refuse("%s stands in an inline table" % ".".join(path), entry.name)
        self.buffer.splice(entry.name if entry.start == 0 and self.text.startswith(BOM) else entry.start, entry.end, "")
        self.changes.append({"op": "value", "path": list(path), "old": old, "new": None})

    def drop_empty_table(self, table: Path) -> None:
        """Take out the header of `table` when nothing stands under it."""
        entries = self._entries()
        for index, entry in enumerate(entries):
            if entry.kind == "table" and entry.path == table:
                following = entries[index + 1] if index + 1 < len(entries) else None
                if following is None or following.kind != "pair":
                    self.buffer.splice(entry.start, entry.end, "")
                return


def _comma_after(text: str, at: int, limit: int) -> bool:
    while at < limit:
        if text[at] == ",":
            return True
        if text[at] == "#":
            at = text.find("\n", at, limit)
            if at < 0:
                return False
        elif text[at] == "]":
            return False
        at += 1
    return False
