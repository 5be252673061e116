# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an API server answers, as data. A page of a list is read object by object.

All objects of a page at once take ten times the memory of its text, and most of that stays with the process: with each
one that waits for the turn of its host.
"""

from __future__ import annotations

import json
import re
import typing as t

Data = dict[str, t.Any]
Read = t.Callable[[bytes], t.Any]
ITEMS = "items"
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


def parsed_object(data: bytes, read: Read) -> tuple[bool, Data]:
    """(whether it is a JSON object or nothing, the object or a message of the first characters)."""
    try:
        parsed = read(data or b"{}")
    except (ValueError, RecursionError):
        parsed = None
    return (True, parsed) if isinstance(parsed, dict) else (False, {"message": data[:300].decode("utf-8", "replace")})


def is_object(found: t.Any) -> bool:
    """Whether it has the parts that every object has; the rest follows the schema of its kind."""
    meta = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get("name"), str)


def reading(
    api_version: str, kind: str, metadata: bool, only: t.Callable[[Data], bool], part: t.Callable[[Data], Data]
) -> Read:
    """How to read a page of objects of this kind: the `part` of those for which `only` holds.

    What is no object is None there.
    """

    def keep(item: t.Any) -> list[Data | None]:
        if not is_object(item):
            return [None]
        own = _metadata(item) if metadata else item
        return [dict(part(own), apiVersion=api_version, kind=kind)] if only(own) else []

    return lambda data: read_page(data, keep)


def _metadata(item: Data) -> Data:
    return {"metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}


def read_page(data: bytes, keep: t.Callable[[t.Any], t.Iterable[t.Any]]) -> Data:
    """The object in JSON that a text is, with what `keep` makes of each of its items. ValueError for none."""
    reader, found = _Reader(data.decode("utf-8")), Data()
    for _name in reader.parts("{", "}"):
        name = reader.value()
        if not isinstance(name, str):
            raise ValueError("A name is no text.")
        reader.needs(":")
        if name == ITEMS and reader.text.startswith("[", reader.at):
            found[name] = [one for _item in reader.parts("[", "]") for one in keep(reader.value())]
        else:
            found[name] = reader.value()
    if reader.at != len(reader.text):
        raise ValueError("Something follows the object.")
    return found


class _Reader:
    """A text and the place where the next value or mark begins."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._space()

    def value(self) -> t.Any:
        found, self.at = _decode(self.text, self.at)
        self._space()
        return found

    def needs(self, mark: str) -> None:
        if not self._takes(mark):
            raise ValueError("%r is missing at %d." % (mark, self.at))

    def parts(self, first: str, last: str) -> t.Iterator[None]:
        """Stop at each part of an object or list; who asks for the next one has read it."""
        self.needs(first)
        if self._takes(last):
            return
        while True:
            yield
            if self._takes(last):
                return
            self.needs(",")

    def _takes(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        self._space()
        return True

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
