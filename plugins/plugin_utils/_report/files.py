# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report files: where they are, the earlier ones, and writing one in all its formats."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import stat
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import replace_file

from .._inputs.targets import KEEP, typed_input
from .._text.line import line
from .compare import compared, last_looks
from .document import Document, judged
from .html import page
from .junit import junit
from .markdown import markdown

JSON = "json"
RENDER: dict[str, t.Callable[[Document], str]] = {
    "html": page,
    JSON: lambda document: json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n",
    "markdown": markdown,
    "junit": junit,
}
SUFFIX = {"html": ".html", JSON: ".json", "markdown": ".md", "junit": ".xml"}
# Names of hosts, versions and what is wrong with them are for those who run them.
FILE_MODE, FOLDER_MODE = 0o640, 0o750
# A report that we have named: its time and its playbook.
OURS = re.compile(r"\A[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9._-]{1,80}\Z")
# Earlier reports that are looked through for a host, and bytes of the largest one.
EARLIER, LARGEST = 20, 64 * 1024 * 1024
# What is written, and how many reports stay, where nothing is said.
USUAL, KEPT = ["html", JSON], 100


def chosen_formats(given: t.Iterable[str]) -> tuple[list[str], list[str]]:
    """(the formats in their order, what is no format); empty text is not given."""
    asked = list(dict.fromkeys(str(one).strip().lower() for one in given if str(one).strip())) or USUAL
    return [one for one in RENDER if one in asked], [one for one in asked if one not in RENDER]


def chosen_keep(given: t.Any) -> int:
    """How many reports stay, in the form of a setting. NpuError for what is no number."""
    return int(typed_input(KEEP, given, KEPT))


def wrong_formats(unknown: t.Sequence[str]) -> NpuError:
    return NpuError("A report has no format %s." % line(", ".join(unknown), 200), "Choose from %s." % ", ".join(RENDER))


class Place:
    """Where reports go: a folder of many, or one file that each run replaces, by the ending of its name."""

    def __init__(self, path: str) -> None:
        given = pathlib.Path(os.path.expandvars(path)).expanduser()
        self.single = given.suffix in SUFFIX.values() and not given.is_dir()
        self.folder = given.parent if self.single else given
        self.name = given.stem if self.single else ""

    def stem(self, document: Document) -> pathlib.Path:
        made = document["made"]
        # The slices of a job end in the same second; the end of an id is random.
        words = (re.sub(r"\.ya?ml\Z", "", made["playbook"]) or "hosts", made["run"].rpartition("-")[2])
        named = "-".join([re.sub("[-:]", "", made["at"]), *filter(None, map(_word, words))])
        return self.folder / (self.name or named)

    def earlier(self) -> t.Iterator[Document]:
        """The earlier reports, newest first; one that cannot be used is passed over."""
        with contextlib.suppress(OSError):
            names = [self.name] if self.single else sorted(self._stems(), reverse=True)
            for name in names[:EARLIER]:
                document = _read(self.folder / (name + SUFFIX[JSON]))
                if document is not None:
                    yield document

    def _stems(self) -> set[str]:
        found = [entry.name.rpartition(".") for entry in os.scandir(self.folder)]
        return {stem for stem, _dot, suffix in found if "." + suffix in SUFFIX.values() and OURS.match(stem)}

    def forget(self, keep: int) -> None:
        """Delete all but the newest `keep` reports that we have named; 0 keeps all."""
        if self.single or keep < 1:
            return
        with contextlib.suppress(OSError):
            for stem in sorted(self._stems(), reverse=True)[keep:]:
                for suffix in SUFFIX.values():
                    (self.folder / (stem + suffix)).unlink(missing_ok=True)


def against_earlier(document: Document, place: Place) -> Document:
    """The report compared with what lies at the place; as it is where nothing does."""
    last = next(place.earlier(), None)
    if last is None:
        return document
    return compared(document, last, last_looks((one["name"] for one in document["hosts"]), place.earlier()))


def write(document: Document, place: Place, formats: t.Sequence[str], keep: int = 0) -> dict[str, str]:
    """{format: path} of the files, each of which is whole or not there. NpuError where one cannot be written."""
    stem, paths = place.stem(document), dict[str, str]()
    try:
        place.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for name in formats:
            path = str(stem) + SUFFIX[name]
            replace_file(path, RENDER[name](document).encode("utf-8", "replace"), FILE_MODE)
            paths[name] = path
    except OSError as exc:
        raise NpuError(
            "The report %s cannot be written: %s." % (line(stem), exc.strerror or exc),
            "Give it a folder that this account may write to, with room in it.",
        ) from exc
    place.forget(keep)
    return paths


def _read(path: pathlib.Path) -> Document | None:
    try:
        # A pipe or a device in its place would keep the run from its end.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            data = stream.read(LARGEST + 1)
        return judged(json.loads(data)) if len(data) <= LARGEST else None
    except (OSError, ValueError, RecursionError, NpuError):
        # Half written, of another release, or no report of ours.
        return None


def _word(text: str) -> str:
    return re.sub("[^A-Za-z0-9._]+", "-", text).strip("-.")[:60]
