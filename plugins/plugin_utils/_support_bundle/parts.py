# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a bundle on the controller: one of each host and cluster, kept on disk until the archive is written.

What a host has sent is data: its texts are cut by sizes that were judged, and its names are made safe before one of
them is a name in the archive.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import typing as t
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import MASK, forms
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import explain
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import clean_text
from ansible_collections.rebellions.npu.plugins.module_utils._support.hide import is_telling

from .._answers.answer import wrong_answer
from .._objects.names import INPUT

MODULE = "support"
HOST, CLUSTER = "host", "cluster"
COLLECTED, UNREACHABLE, FAILED, PLANNED = "collected", "unreachable", "failed", "planned"
# The clusters of a run have the shares of so many hosts together; a host has at least so many bytes.
CLUSTER_SHARES, LEAST_SHARE = 4, 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,4}\Z")


def searched(secrets: t.Iterable[str]) -> list[str]:
    """Secrets in the forms in which texts are searched for them, the longest first."""
    found = {form for secret in secrets if is_telling(secret) for form in forms(secret)}
    return sorted((form for form in found if is_telling(form)), key=len, reverse=True)


@dataclass
class Part:
    """What came from one host or cluster: how it ended, the records of its sources, its texts in their order."""

    kind: str
    name: str
    state: str = COLLECTED
    detail: str = ""
    seconds: float = 0.0
    records: list[dict[str, t.Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    serials: list[str] = field(default_factory=list)

    def hide(self, wanted: t.Sequence[str]) -> None:
        """Mask what is in searched() in all texts and records, and in the reason."""
        for form in wanted:
            self.detail = self.detail.replace(form, MASK)
            self.texts = [text.replace(form, MASK) if form in text else text for text in self.texts]
            for record in self.records:
                record.update(source=record["source"].replace(form, MASK), detail=record["detail"].replace(form, MASK))

    def summary(self) -> dict[str, t.Any]:
        return {"state": self.state, "detail": self.detail, "seconds": round(self.seconds, 1)}


def unpacked(host: str, module: str, answer: t.Mapping[str, t.Any], limit: int) -> list[str]:
    """The texts of an answer that docs/schemas has judged, one for each record with a size.

    NpuError for more than `limit` bytes, and for names or sizes that do not fit.
    """
    records = answer["records"]
    names = [record["name"] for record in records]
    if len(set(names)) != len(names):
        raise wrong_answer(host, module, "records", "two of them have one name")
    for number, name in enumerate(names):
        if not _NAME.match(name):
            raise wrong_answer(host, module, "records[%d].name" % number, "it is not a name of a file in the archive")
    wanted = sum(record["size"] for record in records)
    if wanted > limit:
        raise wrong_answer(host, module, "records", "their texts have more than %d bytes" % limit)
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(answer["content"], validate=True), wanted + 1)
    except (binascii.Error, zlib.error, ValueError):
        raise wrong_answer(host, module, "content", "it cannot be unpacked") from None
    if len(data) != wanted or stream.unconsumed_tail:
        raise wrong_answer(host, module, "content", "its size is not that of the records")
    texts, at = [], 0
    for record in records:
        if record["size"]:
            texts.append(clean_text(data[at : at + record["size"]].decode("utf-8", "replace")))
            at += record["size"]
    return texts


class Store:
    """The parts of one run, below a directory of this run that Ansible makes for its user alone and removes."""

    def __init__(self, directory: str, run: str) -> None:
        self._folder = Path(directory) / ("%s-%s" % (MODULE, run or "run"))

    def keep(self, part: Part) -> None:
        """Write a part, with the size and digest of each of its texts. NpuError where that fails."""
        texts = iter(part.texts)
        blocks = [next(texts).encode("utf-8", "replace") if record["size"] else b"" for record in part.records]
        for record, block in zip(part.records, blocks):
            record.update(size=len(block), sha256=hashlib.sha256(block).hexdigest() if block else None)
        about = {**part.summary(), "kind": part.kind, "name": part.name}
        about.update(records=part.records, serials=part.serials)
        head = json.dumps(about).encode()
        path = self._path(part.kind, part.name)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(b"%d\n" % len(head) + head + zlib.compress(b"".join(blocks), 6))
        except OSError as exc:
            raise explain(exc, str(path), "written") from exc

    def read(self, kind: str, name: str, texts: bool = False) -> Part | None:
        """A part, with its texts when they are asked for; None where there is none."""
        try:
            with open(self._path(kind, name), "rb") as stream:
                about = json.loads(stream.read(int(stream.readline())))
                rest = stream.read() if texts else b""
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise explain(exc, str(self._path(kind, name)), "read") from exc
        part = Part(about["kind"], about["name"], about["state"], about["detail"], about["seconds"], about["records"])
        part.serials = about["serials"]
        if texts:
            data, at = zlib.decompress(rest), 0
            for record in part.records:
                if record["size"]:
                    part.texts.append(data[at : at + record["size"]].decode("utf-8"))
                    at += record["size"]
        return part

    def clear(self) -> None:
        """Remove all parts."""
        for path in self._folder.glob("*"):
            path.unlink()
        if self._folder.is_dir():
            self._folder.rmdir()

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / ("%s-%s" % (kind, hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]))


def share(whole: int, most: int, hosts: int) -> int:
    """Bytes that one host may have, so that all of them fit, and the clusters too.

    NpuError where that is too little to tell of anything.
    """
    found = min(most, whole // (hosts + CLUSTER_SHARES))
    if found < LEAST_SHARE:
        raise NpuError(
            "%s%s_bytes is %d, which leaves %d for each of %d hosts." % (INPUT, MODULE, whole, found, hosts),
            "Set it to %d or more, or run with --limit." % (LEAST_SHARE * (hosts + CLUSTER_SHARES)),
        )
    return found


def cluster_share(whole: int, most: int, hosts: int, clusters: int) -> int:
    """Bytes that one cluster may have beside these hosts."""
    return CLUSTER_SHARES * share(whole, most, hosts) // clusters


def require(value: float, least: float, name: str) -> None:
    """NpuError for an input that is too small."""
    if value < least:
        raise NpuError("%s is %g, and the least is %g." % (name, value, least), "Set it to %g or more." % least)
