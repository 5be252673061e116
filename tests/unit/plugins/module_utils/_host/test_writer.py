# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import contextlib
import os
import resource
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer import FileChange, Writer, digest
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer_judge import FileJudge, flatten
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer_request import read_set, write_set

STATE = "/var/lib/npu"


def _tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not str(path).endswith("/npu/lock")
    }


def _host(tmp_path: Path, runner: t.Callable[..., Probe] | None = None) -> Host:
    (tmp_path / "etc").mkdir(exist_ok=True)
    return Host(str(tmp_path), runner)


def _set(tmp_path: Path) -> tuple[dict[str, bytes], list[FileChange], dict[str, bytes]]:
    """A set of three: one edited, one new in a new directory, one deleted."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a.toml").write_bytes(b"old a\n")
    (tmp_path / "etc/gone.toml").write_bytes(b"old gone\n")
    before = _tree(tmp_path)
    changes = [
        FileChange("/etc/a.toml", b"new a\n", digest(b"old a\n")),
        FileChange("/etc/new.d/b.toml", b"new b\n", None, 0o600),
        FileChange("/etc/gone.toml", None, digest(b"old gone\n"), backup=False),
    ]
    after = {"etc/a.toml": b"new a\n", "etc/a.toml.npu-backup": b"old a\n", "etc/new.d/b.toml": b"new b\n"}
    return before, changes, after


def test_a_set_is_written(tmp_path: Path) -> None:
    _before, changes, after = _set(tmp_path)
    result = Writer(_host(tmp_path), STATE, "npu").apply(changes)
    assert result == {"changed": True, "judged": None, "backups": ["/etc/a.toml.npu-backup"], "restored": []}
    assert _tree(tmp_path) == after
    assert stat.S_IMODE((tmp_path / "etc/new.d/b.toml").stat().st_mode) == 0o600


@contextlib.contextmanager
def _full() -> t.Iterator[None]:
    """No file can grow, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_before_the_first_note_is_told_and_nothing_changes(tmp_path: Path) -> None:
    before, changes, after = _set(tmp_path)
    writer = Writer(_host(tmp_path), STATE, "npu")
    with _full(), pytest.raises(NpuError, match="/var/lib/npu/transaction.json.*: cannot be written.*Make room"):
        writer.apply(changes)
    assert _tree(tmp_path) == before and not writer.unfinished()
    writer.apply(changes)
    assert _tree(tmp_path) == after


def test_the_first_note_of_a_killed_run_goes_with_the_next(tmp_path: Path) -> None:
    _before, changes, after = _set(tmp_path)
    state = tmp_path / STATE[1:]
    state.mkdir(parents=True)
    (state / "transaction.json.new").write_text("{")
    Writer(_host(tmp_path), STATE, "npu").apply(())
    assert not (state / "transaction.json.new").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "1",
        "[" * 100000,
        '{"state": "committing", "entries": [{"target": 1, "staged": "/a", "undo": "/b", "old": null, "new": null}]}',
        '{"state": "committing", "entries": {"a": 1}}',
        '{"state": [], "entries": []}',
    ],
)
def test_a_damaged_journal_undoes_nothing_and_ends(tmp_path: Path, text: str) -> None:
    _before, changes, after = _set(tmp_path)
    state = tmp_path / STATE[1:]
    state.mkdir(parents=True)
    (state / "transaction.json").write_text(text)
    result = Writer(_host(tmp_path), STATE, "npu").apply(changes)
    assert (result["changed"], result["restored"]) == (True, []) and _tree(tmp_path) == after


def _steps(tmp_path: Path) -> list[str]:
    _before, changes, _after = _set(tmp_path)
    steps: list[str] = []
    Writer(_host(tmp_path), STATE, "npu", steps.append).apply(changes)
    return steps


STEPS = 12


def test_the_number_of_steps(tmp_path: Path) -> None:
    assert len(_steps(tmp_path)) == STEPS


@pytest.mark.parametrize("number", range(STEPS))
def test_killed_at_every_step(number: int, tmp_path: Path) -> None:
    before, changes, after = _set(tmp_path)
    child = os.fork()
    if child == 0:
        count = 0

        def die(_step: str) -> None:
            nonlocal count
            if count == number:
                os._exit(9)
            count += 1

        Writer(_host(tmp_path), STATE, "npu", die).apply(changes)
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9
    for name in ("etc/a.toml", "etc/gone.toml", "etc/new.d/b.toml"):
        assert _tree(tmp_path).get(name) in (before.get(name), after.get(name)), "old or new, never half"
    host = _host(tmp_path)
    assert Writer(host, STATE, "npu").unfinished()
    assert read_set(host, STATE, "npu", [], check_mode=True)["unfinished"] and Writer(host, STATE, "npu").unfinished()
    answer = read_set(host, STATE, "npu", ["/etc/a.toml"])
    assert answer["unfinished"] is True and answer["changed"] is True
    now = _tree(tmp_path)
    now.pop("etc/a.toml.npu-backup", None)
    assert now in (before, {name: data for name, data in after.items() if "backup" not in name}), (
        "the whole old set or the whole new one, nothing left over"
    )
    assert not Writer(host, STATE, "npu").unfinished()
    if now == before:
        assert not (tmp_path / "etc/new.d").exists()
        Writer(host, STATE, "npu").apply(changes)
    assert _tree(tmp_path) == after


@pytest.mark.parametrize("number", range(8))
def test_killed_while_repairing(number: int, tmp_path: Path) -> None:
    before, changes, after = _set(tmp_path)
    for limit, act in ((9, "apply"), (number, "recover")):
        child = os.fork()
        if child == 0:
            count = 0

            def die(_step: str, limit: int = limit) -> None:
                nonlocal count
                if count == limit:
                    os._exit(9)
                count += 1

            writer = Writer(_host(tmp_path), STATE, "npu", die)
            if act == "apply":
                writer.apply(changes)
            with writer.lock():
                writer.recover()
            os._exit(0)
        os.waitpid(child, 0)
    read_set(_host(tmp_path), STATE, "npu", [])
    now = _tree(tmp_path)
    now.pop("etc/a.toml.npu-backup", None)
    assert now == before


def test_an_error_in_the_middle_rolls_all_back(tmp_path: Path) -> None:
    before, changes, _after = _set(tmp_path)

    def fail(step: str) -> None:
        if step == "renamed":
            raise OSError(28, "No space left on device", "/etc/x")

    with pytest.raises(NpuError, match="cannot be written: No space left"):
        Writer(_host(tmp_path), STATE, "npu", fail).apply(changes)
    now = _tree(tmp_path)
    assert now.pop("etc/a.toml.npu-backup") == b"old a\n"
    assert now == before and not (tmp_path / "etc/new.d").exists()


def test_somebody_elses_change_is_not_overwritten(tmp_path: Path) -> None:
    _before, changes, _after = _set(tmp_path)
    (tmp_path / "etc/a.toml").write_bytes(b"theirs\n")
    before = _tree(tmp_path)
    with pytest.raises(
        NpuError, match="/etc/a.toml was changed by another program meanwhile; nothing was written. Next: Run again."
    ):
        Writer(_host(tmp_path), STATE, "npu").apply(changes)
    assert _tree(tmp_path) == before


def test_their_change_during_the_write_stops_it(tmp_path: Path) -> None:
    before, changes, _after = _set(tmp_path)

    def theirs(step: str) -> None:
        if step == "backup":
            (tmp_path / "etc/gone.toml").write_bytes(b"theirs\n")

    with pytest.raises(NpuError, match="changed by another program"):
        Writer(_host(tmp_path), STATE, "npu", theirs).apply(changes)
    assert (tmp_path / "etc/gone.toml").read_bytes() == b"theirs\n"
    assert (tmp_path / "etc/a.toml").read_bytes() == before["etc/a.toml"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o644])
def test_mode_owner_and_attributes_are_kept_r18(mode: int, tmp_path: Path) -> None:
    target = tmp_path / "etc/c.toml"
    host = _host(tmp_path)
    target.write_bytes(b"old")
    target.chmod(mode)
    labelled = True
    try:
        os.setxattr(target, "user.label", b"system_u:object_r:container_config_t:s0")
    except OSError:
        labelled = False
    if os.geteuid() == 0:
        os.chown(target, 12, 34)
    Writer(host, STATE, "npu").apply([FileChange("/etc/c.toml", b"new", digest(b"old"))])
    info = target.stat()
    assert (target.read_bytes(), stat.S_IMODE(info.st_mode)) == (b"new", mode)
    if os.geteuid() == 0:
        assert (info.st_uid, info.st_gid) == (12, 34)
    if labelled:
        assert os.getxattr(target, "user.label") == b"system_u:object_r:container_config_t:s0"
    assert stat.S_IMODE((tmp_path / "etc/c.toml.npu-backup").stat().st_mode) == 0o600, "S02: a backup is for root only"


@pytest.mark.parametrize("link", ["/srv/real.toml", "../srv/real.toml"])
def test_written_through_a_symbolic_link_r19(link: str, tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/real.toml").write_bytes(b"old")
    (tmp_path / "etc/config.toml").symlink_to(link)
    Writer(host, STATE, "npu").apply([FileChange("/etc/config.toml", b"new", digest(b"old"))])
    assert os.readlink(tmp_path / "etc/config.toml") == link
    assert (tmp_path / "srv/real.toml").read_bytes() == b"new"
    assert not (tmp_path / "srv/real.toml").is_symlink()


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "etc/dangling").symlink_to("/nowhere/x")
    (tmp_path / "etc/dir.toml").mkdir()
    (tmp_path / "etc/loop").symlink_to("loop")
    writer = Writer(host, STATE, "npu")
    for path, pattern in (
        ("/etc/dangling", "symbolic link to /nowhere/x, which does not exist"),
        ("/etc/dir.toml", "is a dir, not a file"),
        ("/etc/loop", "links"),
    ):
        with pytest.raises(NpuError, match=pattern):
            writer.apply([FileChange(path, b"x", None)])
    answer = read_set(host, STATE, "npu", ["/etc/dir.toml", "/etc/n/m.toml"])["files"]
    assert answer["/etc/dir.toml"]["state"] == "failed"
    assert answer["/etc/n/m.toml"]["missing_dirs"] == ["/etc/n"]


def test_the_first_backup_stays_r16(tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "etc/c").write_bytes(b"1")
    writer = Writer(host, STATE, "npu")
    writer.apply([FileChange("/etc/c", b"2", digest(b"1"))])
    assert writer.apply([FileChange("/etc/c", b"3", digest(b"2"))])["backups"] == []
    assert (tmp_path / "etc/c.npu-backup").read_bytes() == b"1"
    writer.apply([FileChange("/etc/c", b"2", digest(b"3"), backup=False, drop_backup=True)])
    assert (tmp_path / "etc/c.npu-backup").exists()
    writer.apply([FileChange("/etc/c", b"1", digest(b"2"), backup=False, drop_backup=True)])
    assert not (tmp_path / "etc/c.npu-backup").exists()


def test_helper_files_go_aside_when_asked(tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "etc/conf.d").mkdir()
    (tmp_path / "etc/conf.d/c.conf").write_bytes(b"1")
    seen: list[str] = []
    writer = Writer(host, STATE, "npu", lambda step: seen.extend(os.listdir(tmp_path / "etc/conf.d")))
    writer.apply([FileChange("/etc/conf.d/c.conf", b"2", digest(b"1"), aside="/etc")])
    assert set(seen) == {"c.conf"}
    assert (tmp_path / "etc/c.conf.npu-backup").read_bytes() == b"1"


def test_no_helper_name_is_loaded_by_the_globs(tmp_path: Path) -> None:
    _before, changes, _after = _set(tmp_path)
    names: set[str] = set()
    Writer(_host(tmp_path), STATE, "npu", lambda step: names.update(os.listdir(tmp_path / "etc"))).apply(changes)
    assert {name for name in names if name.endswith((".toml", ".conf", ".json", ".yaml"))} == {"a.toml", "gone.toml"}
    assert len(names) > 4


def test_nothing_to_do(tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "etc/c").write_bytes(b"1")
    stamp = (tmp_path / "etc/c").stat()
    assert (
        Writer(host, STATE, "npu").apply([FileChange("/etc/c", b"1", digest(b"1")), FileChange("/etc/d", None, None)])[
            "changed"
        ]
        is False
    )
    assert (tmp_path / "etc/c").stat().st_ino == stamp.st_ino


def test_created_directories_go_again(tmp_path: Path) -> None:
    host = _host(tmp_path)
    writer = Writer(host, STATE, "npu")
    writer.apply([FileChange("/etc/x/y/c", b"1", None)])
    writer.apply([FileChange("/etc/x/y/c", None, digest(b"1"), backup=False, drop_dirs=("/etc/x/y", "/etc/x"))])
    assert not (tmp_path / "etc/x").exists()


def test_a_second_writer_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.rebellions.npu.plugins.module_utils._host.writer.LOCK_SECONDS", 0.2)
    host = _host(tmp_path)
    with Writer(host, STATE, "npu").lock():
        with pytest.raises(NpuError, match="another run is writing on this host"):
            Writer(host, STATE, "npu").apply([FileChange("/etc/c", b"1", None)])


def test_requests_travel_in_base64(tmp_path: Path) -> None:
    host = _host(tmp_path)
    (tmp_path / "etc/c").write_bytes(b"\xff\r\n")
    answer = read_set(host, STATE, "npu", ["/etc/c", "/etc/none"])
    assert base64.b64decode(answer["files"]["/etc/c"]["content"]) == b"\xff\r\n"
    assert (answer["files"]["/etc/none"]["state"], answer["unfinished"]) == ("absent", False)
    request = {
        "path": "/etc/c",
        "content": base64.b64encode(b"\xfe").decode(),
        "old_sha256": answer["files"]["/etc/c"]["sha256"],
    }
    assert write_set(host, STATE, "npu", [request], check_mode=True) == {
        "changed": True,
        "judged": None,
        "backups": [],
        "restored": [],
    }
    assert (tmp_path / "etc/c").read_bytes() == b"\xff\r\n"
    assert write_set(host, STATE, "npu", [request])["changed"] is True
    assert (tmp_path / "etc/c").read_bytes() == b"\xfe"
    for bad, pattern in (({"content": "%%"}, "not base64"), ({"mode": "9"}, "octal")):
        with pytest.raises(NpuError, match=pattern):
            write_set(host, STATE, "npu", [{**request, **bad}])


def _judge(**changed: t.Any) -> FileJudge:
    fields: dict[str, t.Any] = {
        "program": "prog",
        "before": ("prog", "/etc/a.toml"),
        "after": ("prog", "{root}"),
        "allowed": ("p/on",),
        "expect": ({"keys": ["p/on"], "equals": True},),
        "root_directory": "/etc",
        "root_content": b"imports = ['{staged:/etc/a.toml}']",
    }
    fields.update(changed)
    return FileJudge(**fields)


def _program(
    tmp_path: Path, after: str, before: str = "[p]\non = false\nx = 1\n", rc: int = 0, err: str = ""
) -> t.Callable[..., Probe]:
    """A program that prints what it is told for the file as it is, and something else for the staged set."""

    def run(argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        staged = argv[1] != "/etc/a.toml"
        if staged:
            text = (tmp_path / argv[1].lstrip("/")).read_text()
            assert text == "imports = ['/etc/.a.toml.npu-new']"
            assert (tmp_path / "etc/.a.toml.npu-new").read_bytes() == b"new a\n"
        return Probe(VALUE, Completed(rc if staged else 0, after if staged else before, err))

    return run


JUDGEMENTS = [
    ("[p]\non = true\nx = 1\n", {}, None),
    ("[p]\non = true\nx = 2\n", {}, "would load a different value of p/x; nothing was written"),
    ("[p]\non = true\n", {}, "a different value of p/x"),
    ("[p]\non = true\nx = 1\n[q]\ny = 1\n", {}, "a different value of q/y"),
    ("[p]\non = true\nx = 1\n[q]\ny = 1\n", {"prefixes": ("q",)}, None),
    ("[p]\non = false\nx = 1\n", {}, "would still not load true in p/on"),
    (
        "[p]\non = true\nx = 1\n",
        {"expect": ({"keys": ["p/dirs"], "contains": "/var/run/cdi"},)},
        "would still not load /var/run/cdi",
    ),
    (
        "[p]\non = true\nx = 1\ndirs = ['/run/cdi']\n",
        {"allowed": ("p/on", "p/dirs"), "expect": ({"keys": ["p/dirs"], "contains": "/var/run/cdi"},)},
        None,
    ),
    ("not toml", {}, "is not TOML"),
    ("not toml", {"dumps": False}, None),
]


@pytest.mark.parametrize("after, changed, pattern", JUDGEMENTS)
def test_judgement(after: str, changed: dict[str, t.Any], pattern: str | None, tmp_path: Path) -> None:
    before, changes, _after = _set(tmp_path)
    writer = Writer(_host(tmp_path, _program(tmp_path, after)), STATE, "npu")
    if pattern is None:
        assert writer.apply(changes, [_judge(**changed)])["judged"] is True
        assert (tmp_path / "etc/a.toml").read_bytes() == b"new a\n"
        assert sorted(os.listdir(tmp_path / "etc")) == ["a.toml", "a.toml.npu-backup", "new.d"]
        return
    with pytest.raises(NpuError, match=pattern):
        writer.apply(changes, [_judge(**changed)])
    assert _tree(tmp_path) == before


def test_a_program_that_refuses_is_quoted(tmp_path: Path) -> None:
    before, changes, _after = _set(tmp_path)
    writer = Writer(
        _host(tmp_path, _program(tmp_path, "", rc=1, err="noise\nprog: bad key in /etc/.prog.npu-judge\n")),
        STATE,
        "npu",
    )
    with pytest.raises(NpuError, match="prog does not load the new configuration: prog: bad key in the file."):
        writer.apply(changes, [_judge()])
    assert _tree(tmp_path) == before


def test_nobody_to_ask_below_another_root(tmp_path: Path) -> None:
    _before, changes, _after = _set(tmp_path)
    assert Writer(_host(tmp_path), STATE, "npu").apply(changes, [_judge()])["judged"] is None


def test_flatten() -> None:
    assert flatten({"a": {"b.c": {"d": 1}}, "e": {}}) == {"a/b.c/d": 1, "e": {}}
