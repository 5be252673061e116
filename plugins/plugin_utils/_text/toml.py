# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML edited in place by tomlkit: what it renders is held against the text before, and both are read again.

A new pair is a line that tomlkit has read, put into the body of its table. A new table is a block at the end of the
file.
"""

from __future__ import annotations

import re
import typing as t
from os.path import commonprefix

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._formats import toml as reader

from .array import extended, items, without
from .splice import BOM, Edit, differences, lookup

try:
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError
    from tomlkit.items import AoT, Array, Comment, InlineTable, Table
except ImportError:
    tomlkit = None  # type: ignore[assignment]

if t.TYPE_CHECKING:
    from tomlkit.items import Item, Key

    Body = list[tuple[Key | None, Item]]
Path = t.Tuple[str, ...]
_BARE = re.compile(r"^[A-Za-z0-9_-]+$")
# A key of any form with its equals sign.
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^"'=])*=[ \t]*""")


class Place(t.NamedTuple):
    """A key of a document: its full path, and where it stands in the body of its table."""

    path: Path
    body: Body
    position: int
    inline: bool

    @property
    def key(self) -> Key:
        return t.cast("Key", self.body[self.position][0])

    @property
    def item(self) -> Item:
        return self.body[self.position][1]

    @property
    def header(self) -> bool:
        """True for a [table], as opposed to a pair and to a table that only longer names imply."""
        return isinstance(self.item, Table) and not self.item.is_super_table()

    @property
    def dotted(self) -> bool:
        """True for a table that dotted keys imply."""
        return isinstance(self.item, Table) and self.key.is_dotted()


def _places(body: Body, above: Path = (), inline: bool = False) -> t.Iterator[Place]:
    """Every key in the order of the file; what stands in arrays of tables is left out."""
    for index, (key, item) in enumerate(body):
        if key is None or isinstance(item, AoT):
            continue
        place = Place((*above, key.key), body, index, inline)
        yield place
        if isinstance(item, (Table, InlineTable)):
            yield from _places(item.value.body, place.path, inline or isinstance(item, InlineTable))


def require() -> None:
    """NpuError when the Python of the controller has no tomlkit."""
    if tomlkit is None:
        raise NpuError(
            "tomlkit is not installed for the Python of the controller.", "Install it there: pip install tomlkit."
        )


def load(text: str, name: str) -> dict[str, t.Any]:
    """Plain values of TOML text. NpuError names the file, line and column of the first fault."""
    try:
        return tomlkit.parse(text.removeprefix(BOM)).unwrap()
    except ParseError as exc:
        what = re.sub(r" at line \d+ col \d+$", "", str(exc).partition("\n")[0])
        raise _bad(name, "line %d, column %d: not valid TOML: %s" % (exc.line, exc.col + 1, what)) from exc
    except (TOMLKitError, ValueError, RecursionError) as exc:
        raise _bad(name, "%snot valid TOML: %s" % (_place_of_fault(text), str(exc).partition("\n")[0])) from exc


def _place_of_fault(text: str) -> str:
    try:
        reader.loads(text)
    except reader.TomlError as exc:
        return "line %d, column %d: " % (exc.line, exc.column)
    return ""


def _bad(name: str, what: str) -> NpuError:
    return NpuError("%s: %s." % (name, what.rstrip(".")), "Repair the file; it was not changed.")


def _is_pair(key: Key | None, item: Item) -> bool:
    """True for a key with its value, dotted or not, as opposed to a header, a comment and an empty line."""
    return key is not None and not isinstance(item, AoT) and (key.is_dotted() or not isinstance(item, Table))


def _indent(item: Item) -> str:
    """How far the line of a pair or a header is indented; for dotted keys the line of the last of them."""
    while isinstance(item, Table) and item.is_super_table():
        item = item.value.body[-1][1]
    return item.trivia.indent


def _within(short: str, long: str) -> bool:
    """True when `long` has every character of `short`, in the same order."""
    rest = iter(long)
    return all(character in rest for character in short)


class TomlEdit(Edit):
    """A TOML file's text under edit."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name, load)

    def refuse(self, what: str) -> NpuError:
        return NpuError("%s: %s." % (self.name, what), "Change it by hand; the file was not changed.")

    def _parse(self) -> tomlkit.TOMLDocument:
        """The document; the last line always has its end, so that all lines are alike."""
        text = self.text.removeprefix(BOM)
        text += self._missing_end()
        try:
            document = tomlkit.parse(text)
        except (TOMLKitError, ValueError) as exc:
            raise self.refuse("tomlkit cannot edit this text: %s" % exc) from exc
        if tomlkit.dumps(document) != text:
            raise self.refuse("tomlkit does not give this text back byte for byte")
        return document

    def _missing_end(self) -> str:
        return "" if self.text.removeprefix(BOM)[-1:] in ("", "\n") else self.newline

    def _render(self, document: tomlkit.TOMLDocument, drop: str = "", keep: str = "") -> None:
        """Take over what tomlkit renders, if text was only added, only removed, or changed within one value."""
        text, end = tomlkit.dumps(document), self._missing_end()
        text = (BOM if self.text.startswith(BOM) else "") + (text.removesuffix(end) if end else text)
        start = len(commonprefix([self.text, text]))
        old, new = self.text[start:], text[start:]
        tail = len(commonprefix([old[::-1], new[::-1]]))
        old, new = old[: len(old) - tail], new[: len(new) - tail]
        if not (_within(old, new) or _within(new, old) or (old in drop and new in keep)):
            raise self.refuse("tomlkit would also change other text")
        self.buffer.splice(start, start + len(old), new)

    def _find(self, document: tomlkit.TOMLDocument, path: Path) -> Place | None:
        found = (place for place in _places(document.body) if place.path == path)
        return next((place for place in found if not isinstance(place.item, Table)), None)

    def _array(self, document: tomlkit.TOMLDocument, path: Path) -> Array:
        place = self._find(document, path)
        if place is None:
            raise self.refuse("%s is missing" % ".".join(path))
        if not isinstance(place.item, Array):
            raise self.refuse("%s is not a list of strings" % ".".join(path))
        return place.item

    def raw(self, path: Path) -> str | None:
        """The text of the value at `path`, None when there is none."""
        place = self._find(self._parse(), path)
        return place.item.as_string() if place else None

    def quote(self) -> str:
        """The quote mark that keys and headers of this file use, else the one that its values use."""
        places = list(_places(self._parse().body))
        marks = [place.key.as_string().strip()[:1] for place in places]
        if not {"'", '"'}.intersection(marks):
            marks = [place.item.as_string()[:1] for place in places if not isinstance(place.item, Table)]
        return "'" if marks.count("'") > marks.count('"') else '"'

    def key_text(self, path: t.Sequence[str]) -> str:
        mark = self.quote()
        return ".".join(part if _BARE.match(part) else mark + part + mark for part in path)

    def string_text(self, value: str) -> str:
        literal = self.quote() == "'" and "'" not in value
        return tomlkit.string(value, literal=literal).as_string()

    def list_text(self, values: t.Sequence[str]) -> str:
        return "[%s]" % ", ".join(self.string_text(value) for value in values)

    def set(self, path: Path, raw: str) -> None:
        """Give the key at `path` the value text `raw`: in its place, else in its table, else in a new table."""
        document = self._parse()
        place = self._find(document, path)
        if place is None:
            made = self._add(document, path, raw)
            self.changes.append({"op": "value", "path": list(path), "old": None, "new": raw})
            if made:
                self.changes.append({"op": "table", "path": list(path[:-1]), "old": None, "new": None})
            return
        old = place.item.as_string()
        if old == raw:
            return
        self._replace(path, raw)
        self.changes.append({"op": "value", "path": list(path), "old": old, "new": raw})

    def _replace(self, path: Path, raw: str) -> None:
        """Write the value text `raw` in the place of the value at `path`, which is there."""
        document = self._parse()
        place = t.cast(Place, self._find(document, path))
        old = place.item.as_string()
        _replace(place, raw)
        self._render(document, old, raw)

    def _add(self, document: tomlkit.TOMLDocument, path: Path, raw: str) -> bool:
        """Add a pair that is not there; True when a header had to be made."""
        places = list(_places(document.body))
        table = path[:-1]
        above = [p for p in places if not isinstance(p.item, Table) and p.path == table[: len(p.path)]]
        if above:
            place = above[-1]
            if not isinstance(place.item, InlineTable):
                raise self.refuse("%s is not a table" % ".".join(place.path))
            _add_inline(place, "%s = %s" % (self.key_text(path[len(place.path) :]), raw))
        elif not table:
            self._add_top(document.body, path, raw)
        else:
            header = next((p for p in places if p.path == table and p.header), None)
            dotted = [p for p in places if p.path == table and p.dotted and not p.inline]
            if header is not None:
                self._add_under(header.item, _indent(header.item) + _step(places), path, raw)
            elif dotted:
                self._add_under(dotted[-1].item, "", path, raw)
            else:
                self._add_table(places, path, raw)
                return True
        self._render(document)
        return False

    def _line(self, indent: str, path: t.Sequence[str], raw: str) -> str:
        return "%s%s = %s%s" % (indent, self.key_text(path[-1:]), raw, self.newline)

    def _add_top(self, body: Body, path: Path, raw: str) -> None:
        pairs = [index for index, (key, item) in enumerate(body) if _is_pair(key, item)]
        if pairs:
            at, line = pairs[-1] + 1, self._line(_indent(body[pairs[-1]][1]), path, raw)
        else:
            at = next((index for index, (key, _item) in enumerate(body) if key is not None), len(body))
            line = self._line("", path, raw) + (self.newline if at < len(body) else "")
            while at < len(body) and at and isinstance(body[at - 1][1], Comment):
                at -= 1
        body[at:at] = tomlkit.parse(line).body

    def _add_under(self, table: Item, indent: str, path: Path, raw: str) -> None:
        body: Body = table.value.body
        pairs = [index for index, (key, item) in enumerate(body) if _is_pair(key, item)]
        at = pairs[-1] + 1 if pairs else 0
        if pairs:
            indent = _indent(body[at - 1][1])
        body[at:at] = tomlkit.parse(self._line(indent, path, raw)).body

    def _add_table(self, places: list[Place], path: Path, raw: str) -> None:
        """Put a table at the end of the file: that is right for tables that subtables imply, too."""
        table = path[:-1]
        siblings = [p for p in places if p.header and len(p.path) == len(table) and p.path[:-1] == table[:-1]]
        indent = _indent(siblings[-1].item) if siblings else ""
        gap = self._missing_end() + (self.newline if self.text.strip(BOM + " \t\r\n") else "")
        block = "%s[%s]%s" % (indent, self.key_text(table), self.newline) + self._line(
            indent + _step(places), path, raw
        )
        end = self._missing_end()
        self.buffer.splice(len(self.text), len(self.text), gap + (block.removesuffix(end) if end else block))

    def extend(self, path: Path, wanted: t.Sequence[str]) -> None:
        """Add strings at the end of the array at `path`, in the style it is written in. The key must exist."""
        document = self._parse()
        array, value = self._array(document, path), lookup(self.data, path)
        if not all(isinstance(item, str) for item in value):
            raise self.refuse("%s is not a list of strings" % ".".join(path))
        missing = [item for item in wanted if item not in value]
        if not missing:
            return
        old = array.as_string()
        mark = old[items(old)[-1][0]] if value else self.quote()
        texts = [tomlkit.string(item, literal=mark == "'" and mark not in item).as_string() for item in missing]
        new = extended(old, texts, self.newline)
        self._replace(path, new)
        if lookup(self.data, path) != [*value, *missing]:
            raise self.refuse("%s cannot be extended as it is written" % ".".join(path))
        self.changes.append({"op": "array", "path": list(path), "old": old, "new": new, "added": missing})

    def replace_items(self, path: Path, names: t.Mapping[str, str]) -> None:
        """Put the strings that `names` has for them in the place of strings of the array at `path`."""
        for index, item in enumerate(lookup(self.data, path) or []):
            if item in names:
                old = self._array(self._parse(), path).as_string()
                start, end = items(old)[index]
                new = tomlkit.string(names[item], literal=old[start] == "'").as_string()
                self._replace(path, old[:start] + new + old[end:])

    def remove_items(self, path: Path, unwanted: t.Callable[[str], bool]) -> list[str]:
        """Take strings out of the array at `path`; the other elements keep their text and order.

        The removed values come back.
        """
        value, old = lookup(self.data, path), self.raw(path)
        gone = [item for item in value if isinstance(item, str) and unwanted(item)] if isinstance(value, list) else []
        for index in range(len(value) - 1, -1, -1) if gone else ():
            if value[index] in gone:
                self._replace(path, without(self._array(self._parse(), path).as_string(), index))
        if gone:
            self.changes.append({"op": "array", "path": list(path), "old": old, "new": self.raw(path), "removed": gone})
        return gone

    def delete(self, path: Path) -> None:
        """Take out the pair at `path` with its line; nothing when it is not there."""
        document = self._parse()
        place = self._find(document, path)
        if place is None:
            return
        old = place.item.as_string()
        if place.inline:
            self._delete_inline(document, path)
        else:
            del place.body[place.position]
            self._render(document)
        self.changes.append({"op": "value", "path": list(path), "old": old, "new": None})

    def _delete_inline(self, document: tomlkit.TOMLDocument, path: Path) -> None:
        """Take a pair out of the inline table that it is in; the other pairs keep their text."""
        table = next(
            place
            for place in _places(document.body)
            if isinstance(place.item, InlineTable) and place.path == path[: len(place.path)]
        )
        new = _without_pair(table.item.as_string(), path[len(table.path) :])
        if new is None:
            raise self.refuse("%s cannot be taken out of its inline table" % ".".join(path))
        self._replace(table.path, new)

    def drop_empty_table(self, table: Path) -> None:
        """Take out the line of the header of `table` when the file says the same without it."""
        name = r"[ \t]*\.[ \t]*".join("[\"']?%s[\"']?" % re.escape(part) for part in table)
        for found in re.finditer(r"^[ \t]*\[[ \t]*%s[ \t]*\][ \t]*(?:\r?\n|\Z)" % name, self.text, re.MULTILINE):
            without = self.text[: found.start()] + self.text[found.end() :]
            if not differences(self.data, load(without, self.name)):
                self.buffer.splice(found.start(), found.end(), "")
                return

    def prove(self, allowed: t.Sequence[Path]) -> None:
        """As every edit; the reader that hosts have must see the same."""
        super().prove(allowed)
        try:
            before, after = (reader.loads(text) for text in (self.original, self.text))
        except reader.TomlError as exc:
            raise self.refuse("not every reader takes this file: %s" % exc) from exc
        self.compare(before, after, allowed)


def _replace(place: Place, raw: str) -> None:
    """Give a pair the value text `raw`; what stands before and behind the value stays."""
    value = tomlkit.value(raw)
    for part in ("indent", "comment_ws", "comment", "trail"):
        setattr(value.trivia, part, getattr(place.item.trivia, part))
    place.body[place.position] = (place.key, value)


def _without_pair(text: str, path: Path) -> str | None:
    """The text of an inline table without the pair at `path`; None when no pair has this path."""
    pairs = items(text)
    for index, (start, end) in enumerate(pairs):
        head = _KEY.match(text, start, end)
        if head is None:
            return None
        names, data = [], tomlkit.parse(head.group() + "0").unwrap()
        while isinstance(data, dict):
            name, data = next(iter(data.items()))
            names.append(name)
        if tuple(names) == path:
            return without(text, index) if len(pairs) > 1 else "{}"
        if tuple(names) == path[: len(names)] and text.startswith("{", head.end()):
            inner = _without_pair(text[head.end() : end], path[len(names) :])
            if inner is not None:
                return text[: head.end()] + inner + text[end:]
    return None


def _add_inline(place: Place, pair: str) -> None:
    """Add a pair to an inline table, with the blanks that it is written with."""
    old = place.item.as_string()
    head = old[:-1].rstrip()
    _replace(place, "{ %s }" % pair if head == "{" else "%s, %s%s" % (head, pair, old[len(head) :]))


def _step(places: list[Place]) -> str:
    """How much deeper a key stands than its header: as the file does it, two blanks when it does not say."""
    for place in places:
        if place.header:
            pair = next((item for key, item in place.item.value.body if _is_pair(key, item)), None)
            if pair is not None:
                own, outer = _indent(pair), _indent(place.item)
                return own[len(outer) :] if own.startswith(outer) else ""
    return "  "
