# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a host in a support bundle: every source asked once, kept within its limits, without secrets, packed.

Nothing is written on the host. What is sent is one line of JSON with the records, then the texts, packed by zlib.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import posixpath
import re
import shutil
import time
import typing as t
import zlib

from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._host.apart import Keep, Outcome, apart, be_quiet, run
from .._host.command import search_path
from .._host.host import Host, open_file
from .._host.probe import ABSENT, FAILED, TIMEOUT, TOO_LARGE, VALUE
from .._observe.observe import answer
from .hide import masked_line, without_secrets
from .sources import FILES, Source, of_host, plain, unit_names

OBSERVATION = "observation.json"
# The observation asks programs itself, each with a limit.
OBSERVES = 60.0
# Of a host, so that the list of what was found stays small.
MOST = 400
# The kernel gives this file's size as 0 and makes it while it is read.
MADE = 16 * 1024 * 1024
DMI = "/sys/class/dmi/id"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
COMMANDS = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")

# Bytes of the names of files in a directory.
NAMES = 8 * 1024 * 1024

Write = t.Callable[[bytes], t.Any]
# When a file was changed, and its path.
Found = t.Tuple[float, str]


@dataclass(frozen=True)
class Limits:
    """Bytes of one source and of all, lines of a log, seconds of one source and of all."""

    source: int = 1024 * 1024
    host: int = 8 * 1024 * 1024
    lines: int = 2000
    seconds: float = 20.0
    total: float = 180.0


def clean_text(text: str) -> str:
    """Without what a terminal obeys or a reader does not see."""
    text = text.replace("\r\n", "\n")
    return CONTROL.sub("", COMMANDS.sub("", text)) if CONTROL.search(text) else text


class Collector:
    """Asks sources one after the other. `records` tell of each of them, `texts` are what is kept, by name."""

    def __init__(self, profile: VendorProfile, host: Host, limits: Limits, dry: bool = False) -> None:
        self.profile, self.host, self.limits, self.dry = profile, host, limits, dry
        self.records: list[dict[str, t.Any]] = []
        self.texts: dict[str, str] = {}
        self._left = limits.host
        self._deadline = time.monotonic() + limits.total

    def observe(self, options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The observation of the host; {} where it did not come in time, or not at all."""
        source = Source(OBSERVATION, work="observe")

        def work(write: Write) -> Outcome:
            found = answer(self.profile, {"options": options})
            if found.get("failed"):
                return Outcome(FAILED, str(found.get("msg")))
            write(json.dumps(found["ansible_facts"], indent=1, sort_keys=True, default=str).encode())
            return Outcome(VALUE)

        if self.dry:
            self._add(source, "the checks and facts of this collection", Outcome(VALUE))
            return {}
        began = time.monotonic()
        # Whole, since units and files are read from it.
        keep = Keep(min(self._left, max(self.limits.source, self.limits.host // 2)))
        outcome = apart(work, self._seconds(max(OBSERVES, self.limits.seconds)), keep)
        self._add(source, "the checks and facts of this collection", outcome, began)
        try:
            found = json.loads(outcome.data) if outcome.state == VALUE and not outcome.cut else {}
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}

    def ask(self, source: Source) -> None:
        if source.directory:
            self._directory(source)
        elif source.work.startswith("logs:"):
            self._logs(source, source.work[5:])
        else:
            self._one(source)

    def _one(self, source: Source) -> None:
        of = " ".join(source.command) or source.path or source.work.partition(":")[2].replace(":", " ")
        if self.dry:
            self._add(source, of, self._is_there(source))
            return
        room = min(self.limits.source, self._left)
        seconds = self._seconds(source.seconds or self.limits.seconds)
        began = time.monotonic()
        if seconds <= 0:
            outcome = Outcome(TIMEOUT, "not asked: the time for this host was over")
        elif room <= 0:
            outcome = Outcome(TOO_LARGE, "not asked: the room for this host was used")
        elif source.command and not self.host.runs_commands:
            outcome = Outcome(ABSENT, "commands are not run below %s" % self.host.root)
        elif source.command:
            outcome = run(source.command, seconds, self._keep(source, room), source.accept)
        else:
            outcome = apart(lambda write: self._work(source, room, write), seconds, self._keep(source, room))
        self._add(source, of, outcome, began)

    def _keep(self, source: Source, room: int) -> Keep:
        return Keep(room, source.newest, re.compile(source.only) if source.only else None, source.lines)

    def _work(self, source: Source, room: int, write: Write) -> Outcome:
        """In a process of its own."""
        kind, _colon, rest = source.work.partition(":")
        if kind == "list":
            return self._list(rest, write)
        if kind == "grep":
            return self._grep(rest.split(":"), source.only, write)
        return self._read(source.path, room, source, write)

    def _read(self, path: str, room: int, source: Source, write: Write) -> Outcome:
        """A file; of a long one whose end counts, only the end is read."""
        found = self.host.resolve(path)
        if not found.ok:
            return Outcome(found.state, found.detail)
        with open(self.host.real(found.value), "rb", opener=open_file) as stream:
            size = os.fstat(stream.fileno()).st_size
            # Of a log from which lines are chosen, more is read than is kept.
            most = room * 8 if source.only else room
            cut = source.newest and size > most
            if cut:
                stream.seek(size - most)
                stream.readline()
            left = most if cut else MADE
            while left > 0:
                block = stream.read(min(left, 65536))
                if not block:
                    break
                write(block)
                left -= len(block)
        return Outcome(VALUE, "", b"", cut)

    def _grep(self, directories: t.Sequence[str], only: str, write: Write) -> Outcome:
        """The lines of files in directories that match, after their paths."""
        matters = re.compile(only)
        seen: set[str] = set()
        for directory in directories:
            real = self.host.resolve(directory)
            if not real.ok or real.value in seen:
                continue
            seen.add(real.value)
            for path in self.host.glob(directory, "*"):
                text = self.host.read_text(path, 1024 * 1024).get("")
                for number, line in enumerate(text.splitlines(), 1):
                    if matters.search(line):
                        write(("%s:%d: %s\n" % (path, number, line)).encode("utf-8", "replace"))
        return Outcome(VALUE) if seen else Outcome(ABSENT, "none of these directories exists")

    def _list(self, directory: str, write: Write) -> Outcome:
        """Mode, owner, size, time and name of what is in a directory."""
        listed = self.host.listdir(directory)
        if not listed.ok:
            return Outcome(listed.state, listed.detail)
        for name in listed.value:
            info = self.host.stat(posixpath.join(directory, name), follow=False).get()
            if info:
                when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.mtime))
                kind = {"dir": "d", "link": "l", "file": "-"}.get(info.kind, "?")
                words = (kind, info.mode, info.uid, info.gid, info.size, when, name)
                write(("%s %04o %d:%d %10d %s %s\n" % words).encode("utf-8", "replace"))
        return Outcome(VALUE)

    def _directory(self, source: Source) -> None:
        """The newest files of a directory. Links are not followed: who may write there could name any file by one."""

        def look(found: list[Found]) -> Outcome:
            listed = self.host.listdir(source.directory)
            for name in listed.get([]):
                path = posixpath.join(source.directory, name)
                if any(fnmatch.fnmatchcase(name, each) for each in source.patterns):
                    info = self.host.stat(path, follow=False).get()
                    if info and info.kind == "file":
                        found.append((info.mtime, path))
            return Outcome(VALUE) if listed.ok else Outcome(listed.state, listed.detail)

        self._files(source, self._looked(source, source.directory, look, "no file in it"))

    def _logs(self, source: Source, top: str) -> None:
        """The newest make.log of the module's builds: in the build directory, or kept for each kernel."""

        def look(found: list[Found]) -> Outcome:
            self._make_logs(top, found)
            return Outcome(VALUE)

        self._files(source, sorted(self._looked(source, top, look, "no make.log of the module"))[-5:])

    def _looked(self, source: Source, of: str, look: t.Callable[[list[Found]], Outcome], none: str) -> list[Found]:
        """Which files there are; where there are none, or that cannot be seen, it is a record."""

        def work(write: Write) -> Outcome:
            found: list[Found] = []
            outcome = look(found)
            write(json.dumps(found).encode())
            return outcome

        began = time.monotonic()
        outcome = apart(work, self._seconds(source.seconds or self.limits.seconds), Keep(NAMES))
        whole = outcome.state == VALUE and not outcome.cut
        found = [(float(when), str(path)) for when, path in json.loads(outcome.data)] if whole else []
        if not found:
            told = Outcome(ABSENT, none) if whole else Outcome(outcome.state, outcome.detail or "too many names")
            self._add(source, of, told, began)
        return found

    def _make_logs(self, top: str, found: list[Found]) -> None:
        for module in self.host.glob(top, "%s*" % self.profile.module):
            for version in self.host.glob(module, "[0-9v]*"):
                paths = [posixpath.join(version, "build", "make.log")]
                for kernel in self.host.glob(version, "[0-9]*"):
                    paths += [posixpath.join(arch, "log", "make.log") for arch in self.host.glob(kernel, "*")]
                for path in paths:
                    info = self.host.stat(path).get()
                    if info and info.kind == "file":
                        found.append((info.mtime, path))

    def _files(self, source: Source, found: t.Sequence[Found]) -> None:
        for _mtime, path in sorted(found, reverse=True)[:FILES]:
            short = posixpath.relpath(path, source.directory or source.work[5:])
            name = "%s/%s" % (source.name, plain(short))
            self._one(Source(name, path=path, newest=source.newest, only=source.only))

    def _is_there(self, source: Source) -> Outcome:
        """What a run without check mode would find, as far as that is seen without running anything."""
        if source.command:
            there = shutil.which(source.command[0], path=search_path())
            return Outcome(VALUE) if there else Outcome(ABSENT, "%s is not installed" % source.command[0])
        paths = [source.path] if source.path else source.work.split(":")[1:]
        return Outcome(VALUE if any(self.host.exists(one) for one in paths) else ABSENT)

    def _seconds(self, wanted: float) -> float:
        return min(wanted, self._deadline - time.monotonic())

    def _add(self, source: Source, of: str, outcome: Outcome, began: float | None = None) -> None:
        if len(self.records) >= MOST:
            return
        name, number = source.name, 1
        while any(one["name"] == name for one in self.records):
            number += 1
            name = "%s-%d" % (source.name, number)
        kind = "command" if source.command else "observation" if source.name == OBSERVATION else "path"
        self.records.append(
            {
                "name": name,
                "kind": kind,
                "source": of,
                "state": outcome.state,
                "detail": outcome.detail,
                "cut": outcome.cut,
                "seconds": round(time.monotonic() - began, 2) if began is not None else 0.0,
            }
        )
        if outcome.data:
            self.texts[name] = clean_text(outcome.data.decode("utf-8", "replace"))
            self._left -= len(outcome.data)


def serials_of(host: Host, facts: t.Mapping[str, t.Any], short: str) -> list[str]:
    """Serial numbers and unique ids of the NPUs and of the machine."""
    ours = facts.get(short) or {}
    found = [one.get(key) for one in ours.get("npus") or [] for key in ("serial", "uuid")]
    found += [(ours.get("identity") or {}).get("system_uuid")]
    for name in ("product_serial", "product_uuid", "board_serial", "chassis_serial"):
        found.append(host.read_text(posixpath.join(DMI, name), 4096).get("").strip())
    return [str(one) for one in dict.fromkeys(found) if one and len(str(one)) >= 4 and re.search("[0-9]", str(one))]


def collect(
    profile: VendorProfile,
    host: Host,
    options: t.Mapping[str, t.Any],
    limits: Limits,
    keep_serials: bool = False,
    dry: bool = False,
) -> dict[str, t.Any]:
    """{records, content, serials}: what was asked and how it ended, and the texts packed for the controller.

    Never raises for what a host looks like. `dry` runs no program and reads nothing.
    """
    if not dry:
        be_quiet()
    work = Collector(profile, host, limits, dry)
    facts = work.observe(options)
    runtimes = facts.get(profile.short_name + "_runtimes") or {}
    seen = [one for one in runtimes.get("runtimes") or [] if isinstance(one, dict)]
    units = [str(one["unit"]) for one in [*seen, runtimes.get("kubelet") or {}] if one.get("unit")]
    configs = [str(path) for one in seen for path in one.get("config_files") or []]
    for source in of_host(profile, host, unit_names(profile, host, units), configs, limits.lines):
        work.ask(source)
    serials = [] if keep_serials or dry else serials_of(host, facts, profile.short_name)
    texts = without_secrets(work.texts, None if keep_serials else serials)
    records = finished(work.records, texts, limits.host)
    return {"records": records, "content": packed(records, texts), "serials": serials}


def finished(records: t.Sequence[dict[str, t.Any]], texts: dict[str, str], limit: int) -> list[dict[str, t.Any]]:
    """The records with the sizes of their texts; what a mask has made too long is left out."""
    for record in records:
        for key in ("source", "detail"):
            record[key] = masked_line(str(record[key]))
        text = texts.get(record["name"])
        size = len(text.encode("utf-8", "replace")) if text is not None else 0
        limit -= size
        if limit < 0:
            texts.pop(record["name"])
            record.update(state=TOO_LARGE, detail="left out: the room for this host was used", cut=True)
            limit, size = limit + size, 0
        record["size"] = size
    return list(records)


def packed(records: t.Sequence[t.Mapping[str, t.Any]], texts: t.Mapping[str, str]) -> str:
    """The texts one after the other in the order of the records, whose sizes cut them, packed, as base64."""
    data = b"".join(texts[one["name"]].encode("utf-8", "replace") for one in records if one["name"] in texts)
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")
