# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one writer of host files: stage beside the target, judge, back up once, rename, roll back as a whole.

A journal names every helper file before it is made, so that after a kill at any step the next run finds the old set or
the new set, makes it whole and cleans up. Helper files: .NAME.STEM-new (staged), .NAME.STEM-old (the old file, a link
to its inode), .NAME.STEM-judge; the backup is NAME.STEM-backup. None of them ends as the programs' globs want.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass, field
from .files import copy_attributes, create_file, locate, sync_directory, take_lock
from .host import Host, open_file
from .writer_judge import FileJudge, judge_set

LOCK_SECONDS = 30.0
_STAGING = "staging"
_COMMITTING = "committing"
_DONE = "done"


@dataclass(frozen=True)
class FileChange:
    """One file to write (`content`) or delete (None). `old_sha256` is its present digest, None: it must not exist.

    `mode` is for a new file only: an existing one keeps mode, owner, extended attributes and its symbolic link. `aside`
    is the directory of helper files when the target's own is read whole by the program. `drop_backup` removes a backup
    that equals the new content.
    """

    path: str
    content: bytes | None
    old_sha256: str | None
    mode: int = 0o644
    aside: str = ""
    backup: bool = True
    drop_backup: bool = False
    drop_dirs: tuple[str, ...] = ()


@dataclass
class _Entry:
    change: FileChange
    target: str
    staged: str
    undo: str
    backup: str
    new_dirs: list[str] = field(default_factory=list)

    def journal(self) -> dict[str, t.Any]:
        new = None if self.change.content is None else digest(self.change.content)
        return {
            "target": self.target,
            "staged": self.staged,
            "undo": self.undo,
            "old": self.change.old_sha256,
            "new": new,
            "dirs": self.new_dirs,
        }


def digest(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def _journal(content: bytes) -> dict[str, t.Any]:
    """The journal of an interrupted run; without entries when it is damaged."""
    try:
        journal = json.loads(content.decode("utf-8"))
        entries = journal["entries"]
        sound = journal["state"] in (_STAGING, _COMMITTING, _DONE) and all(
            all(_is_path(entry[key]) for key in ("target", "staged", "undo"))
            and all(isinstance(entry[key], (str, type(None))) for key in ("old", "new"))
            and all(map(_is_path, entry.get("dirs", [])))
            for entry in entries
        )
        if sound and all(map(_is_path, journal.get("extra", []))):
            return dict(journal)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return {"state": _STAGING, "entries": []}


def _is_path(found: object) -> bool:
    return isinstance(found, str) and found.startswith("/") and "\0" not in found


def _failed(path: str, exc: OSError) -> NpuError:
    remedy = "Make it writable for root and run again."
    if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Make room on that file system and run again."
    return NpuError("%s: cannot be written: %s." % (path, os.strerror(exc.errno) if exc.errno else exc), remedy)


def _sync_dir(path: str) -> None:
    with contextlib.suppress(OSError):
        sync_directory(path)


class Writer:
    """Writes sets of files below one root. `state_dir` has lock and journal; `stem` marks helper files."""

    def __init__(self, host: Host, state_dir: str, stem: str, mark: t.Callable[[str], None] | None = None) -> None:
        self.host = host
        self.state_dir = state_dir
        self.stem = stem
        self.journal_path = state_dir + "/transaction.json"
        self.mark = mark or (lambda step: None)

    def unfinished(self) -> bool:
        """True when an earlier run was interrupted."""
        return self.host.exists(self.journal_path)

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Lock out other writers; NpuError after LOCK_SECONDS."""
        path = self.state_dir + "/lock"
        try:
            os.makedirs(self.host.real(self.state_dir), 0o755, exist_ok=True)
            handle = os.open(self.host.real(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise _failed(self.state_dir, exc) from exc
        try:
            take_lock(handle, path, LOCK_SECONDS, "another run is writing on this host")
            yield
        finally:
            os.close(handle)

    def recover(self) -> list[str]:
        """Finish or undo an interrupted run; returns the restored targets. Call it with the lock held."""
        with contextlib.suppress(OSError):
            # A run was killed before its first note had its name.
            os.unlink(self.host.real(self.journal_path + ".new"))
        found = self.host.read_bytes(self.journal_path)
        if not found.ok:
            return []
        journal = _journal(found.value)
        try:
            return self._settle(journal, journal["state"] == _COMMITTING)
        except OSError as exc:
            raise _failed(exc.filename or self.journal_path, exc) from exc

    def _settle(self, journal: t.Mapping[str, t.Any], back: bool) -> list[str]:
        restored = []
        for entry in reversed(journal["entries"]):
            target, undo = self.host.real(entry["target"]), self.host.real(entry["undo"])
            current = self._sum(entry["target"])
            if back and current == entry["new"] and current != entry["old"]:
                if entry["old"] is None:
                    os.unlink(target)
                elif self._sum(entry["undo"]) == entry["old"]:
                    os.rename(undo, target)
                restored.append(entry["target"])
                _sync_dir(posixpath.dirname(target))
                self.mark("restored")
            for helper in (entry["staged"], entry["undo"]):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.host.real(helper))
        for helper in journal.get("extra", []):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.host.real(helper))
        if journal["state"] != _DONE:
            for entry in reversed(journal["entries"]):
                for directory in reversed(entry.get("dirs", [])):
                    with contextlib.suppress(OSError):
                        os.rmdir(self.host.real(directory))
        self.mark("cleaned")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.host.real(self.journal_path))
        return restored

    def _sum(self, path: str) -> str | None:
        try:
            with open(self.host.real(path), "rb", opener=open_file) as stream:
                return digest(stream.read())
        except FileNotFoundError:
            return None

    def _note(self, state: str, entries: t.Sequence[_Entry], extra: t.Sequence[str]) -> dict[str, t.Any]:
        journal = {"schema": 1, "state": state, "entries": [entry.journal() for entry in entries], "extra": list(extra)}
        path = self.host.real(self.journal_path)
        create_file(path + ".new", json.dumps(journal, sort_keys=True).encode("utf-8"), 0o600)
        os.rename(path + ".new", path)
        _sync_dir(posixpath.dirname(path))
        self.mark("journal " + state)
        return journal

    def _entry(self, change: FileChange) -> _Entry:
        target, missing = locate(self.host, change.path)
        found = self.host.stat(target)
        if found.ok and found.value.kind != "file":
            raise NpuError("%s is a %s, not a file." % (change.path, found.value.kind), "Remove it and run again.")
        self._verify(change, target)
        name = posixpath.basename(target)
        near = change.aside or posixpath.dirname(target)
        return _Entry(
            change,
            target,
            posixpath.join(near, ".%s.%s-new" % (name, self.stem)),
            posixpath.join(near, ".%s.%s-old" % (name, self.stem)),
            posixpath.join(near, "%s.%s-backup" % (name, self.stem)),
            missing,
        )

    def _verify(self, change: FileChange, target: str) -> None:
        try:
            current = self._sum(target)
        except OSError as exc:
            raise _failed(change.path, exc) from exc
        if current != change.old_sha256:
            raise NpuError(
                "%s was changed by another program meanwhile; nothing was written." % change.path, "Run again."
            )

    def check(self, changes: t.Sequence[FileChange]) -> bool:
        """Check whether the set can be written; True when it would change something. Writes nothing."""
        for change in changes:
            self._entry(change)
        return any(_differs(change) for change in changes)

    def apply(self, changes: t.Sequence[FileChange], judges: t.Sequence[FileJudge] = ()) -> dict[str, t.Any]:
        """Write all or nothing: {changed, judged (None: no judge), backups, restored}. Takes the lock."""
        with self.lock():
            try:
                return self._apply(changes, judges)
            except OSError as exc:
                # A full disk before the first note of the journal; or the undo failed, and the journal stays.
                raise _failed(exc.filename or self.journal_path, exc) from exc

    def _apply(self, changes: t.Sequence[FileChange], judges: t.Sequence[FileJudge]) -> dict[str, t.Any]:
        restored = self.recover()
        entries = [self._entry(change) for change in changes if _differs(change)]
        result: dict[str, t.Any] = {"changed": bool(entries), "judged": None, "backups": [], "restored": restored}
        if not entries:
            return result
        names = [
            posixpath.join(judge.root_directory, ".%s.%s-judge" % (judge.program, self.stem))
            if judge.root_directory
            else ""
            for judge in judges
        ]
        extra = [name for name in names if name]
        journal = self._note(_STAGING, entries, extra)
        try:
            self._stage(entries)
            for judge, name in zip(judges, names):
                result["judged"] = self._judge(judge, entries, name)
            result["backups"] = self._backup(entries)
            self._keep(entries)
            journal = self._note(_COMMITTING, entries, extra)
            self._commit(entries)
            journal = self._note(_DONE, entries, extra)
        except OSError as exc:
            self._settle(journal, True)
            raise _failed(exc.filename or entries[0].change.path, exc) from exc
        except Exception:
            self._settle(journal, True)
            raise
        self._settle(journal, False)
        self._tidy(entries)
        return result

    def _stage(self, entries: t.Sequence[_Entry]) -> None:
        for entry in entries:
            for directory in entry.new_dirs:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.host.real(directory), 0o755)
            if entry.change.content is None:
                continue
            staged, target = self.host.real(entry.staged), self.host.real(entry.target)
            create_file(staged, entry.change.content, 0o600 if entry.change.old_sha256 else entry.change.mode)
            if entry.change.old_sha256 is not None:
                copy_attributes(staged, target)
            self.mark("staged")

    def _judge(self, judge: FileJudge, entries: t.Sequence[_Entry], root: str) -> bool | None:
        if not self.host.runs_commands:
            return None
        staged = {entry.change.path: entry.staged for entry in entries}
        if root:
            content = judge.root_content
            for path, name in staged.items():
                content = content.replace(("{staged:%s}" % path).encode("utf-8"), name.encode("utf-8"))
            create_file(self.host.real(root), content, 0o600)
        verdict = judge_set(self.host, judge, staged, root)
        self.mark("judged")
        return verdict

    def _backup(self, entries: t.Sequence[_Entry]) -> list[str]:
        made = []
        for entry in entries:
            backup = self.host.real(entry.backup)
            if not entry.change.backup or entry.change.old_sha256 is None or os.path.lexists(backup):
                continue
            with open(self.host.real(entry.target), "rb", opener=open_file) as stream:
                data = stream.read()
            staged = self.host.real(entry.undo)
            create_file(staged, data, 0o600)
            info = os.stat(self.host.real(entry.target))
            if info.st_uid != os.geteuid() or info.st_gid != os.getegid():
                os.chown(staged, info.st_uid, info.st_gid)
            os.rename(staged, backup)
            made.append(entry.backup)
            self.mark("backup")
        return made

    def _keep(self, entries: t.Sequence[_Entry]) -> None:
        for entry in entries:
            self._verify(entry.change, entry.target)
            if entry.change.old_sha256 is None:
                continue
            undo, target = self.host.real(entry.undo), self.host.real(entry.target)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(undo)
            try:
                os.link(target, undo)
            except OSError:
                with open(target, "rb", opener=open_file) as stream:
                    create_file(undo, stream.read(), 0o600)
                copy_attributes(undo, target)
            self.mark("kept")

    def _commit(self, entries: t.Sequence[_Entry]) -> None:
        for entry in entries:
            target = self.host.real(entry.target)
            if entry.change.content is None:
                os.unlink(target)
            else:
                os.rename(self.host.real(entry.staged), target)
            _sync_dir(posixpath.dirname(target))
            self.mark("renamed")

    def _tidy(self, entries: t.Sequence[_Entry]) -> None:
        for entry in entries:
            change = entry.change
            if change.drop_backup and change.content is not None and self._sum(entry.backup) == digest(change.content):
                os.unlink(self.host.real(entry.backup))
            for directory in change.drop_dirs:
                with contextlib.suppress(OSError):
                    os.rmdir(self.host.real(directory))


def _differs(change: FileChange) -> bool:
    return (None if change.content is None else digest(change.content)) != change.old_sha256
