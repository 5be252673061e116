# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of lists: as json reads them, and object by object."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.page import parsed_object, read_page, reading

WHOLE = {
    "kind": "NodeList",
    "metadata": {"continue": "c", "items": [1]},
    "items": [{"metadata": {"name": 'ä\u2028"]}'}, "items": [2]}, None, "text", [], 1.5],
    "more": None,
}
TEXTS = [
    *(json.dumps(WHOLE, indent=indent, ensure_ascii=ascii) for indent in (None, 1) for ascii in (True, False)),
    ' {"items" : [ ] , "items" :\t[ 1\n]\r}\n',
    '{"items": null}',
    '{"items": {"a": 1}}',
    "{}",
]


def all_of(text: str) -> Any:
    return read_page(text.encode(), lambda item: [item])


@pytest.mark.parametrize("text", TEXTS)
def test_a_page_is_what_json_reads(text: str) -> None:
    assert all_of(text) == json.loads(text)


def test_a_damaged_page_is_refused_where_json_refuses_it() -> None:
    chance, refused = random.Random(7), 0
    for _round in range(3000):
        letters = list(chance.choice(TEXTS[:5]))
        for _change in range(chance.randint(1, 3)):
            at = chance.randrange(len(letters))
            letters[at : at + chance.randint(0, 2)] = chance.choice(["", "{", "}", "[", "]", ",", ":", '"', "1", " "])
        text = "".join(letters)
        try:
            whole = json.loads(text)
        except ValueError:
            whole = None
        if isinstance(whole, dict):
            assert all_of(text) == whole
        else:
            refused += 1
            with pytest.raises(ValueError):
                all_of(text)
    assert 1000 < refused < 2900


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b'{"items": []} 1', b"\xff{}", b'{"items": [1}', b"{1: 2}"])
def test_what_is_no_page_is_told_by_its_first_characters(data: bytes) -> None:
    known, found = parsed_object(data, reading("v1", "Node", False, lambda item: True, dict))
    assert (known, found) == ((True, {}) if not data else (False, {"message": data.decode("utf-8", "replace")}))


def test_of_objects_that_are_not_kept_only_the_text_is_in_memory() -> None:
    items = [
        {"metadata": {"name": "n%d" % number}, "spec": {str(at): {} for at in range(100)}} for number in range(300)
    ]
    data = json.dumps({"items": items}).encode()
    seen = []
    read = reading("v1", "Node", False, lambda item: bool(seen.append(item["metadata"]["name"])), dict)
    tracemalloc.start()
    try:
        assert read(data) == {"items": []}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(seen) == 300
    assert peak < 2 * len(data), (peak, len(data))
