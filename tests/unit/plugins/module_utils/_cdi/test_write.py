# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing: idempotence, links, modes, locks, errors, kills."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._cdi import write
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.write import remove_spec, write_spec
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree

PATH = "/var/run/cdi/rbln.yaml"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners can only be changed by root")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def host(tree: Tree) -> Host:
    return Host(str(tree.root))


def listing(tree: Tree) -> dict[str, Any]:
    """Every path with what it is, so that an untouched tree can be told."""
    found = {}
    for path in sorted(tree.root.rglob("*")):
        info = path.lstat()
        found[str(path.relative_to(tree.root))] = (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns)
    return found


def text(tree: Tree, path: str = PATH) -> str:
    return (tree.root / path.lstrip("/")).read_text()


def test_new_file_and_second_time(tree: Tree) -> None:
    assert write_spec(host(tree), PATH, "a\n")
    file = tree.root / "var/run/cdi/rbln.yaml"
    assert file.read_text() == "a\n"
    assert file.stat().st_mode & 0o7777 == 0o644 and file.parent.stat().st_mode & 0o7777 == 0o755
    before = listing(tree)
    assert not write_spec(host(tree), PATH, "a\n")
    assert listing(tree) == before
    assert [path.name for path in file.parent.iterdir()] == ["rbln.yaml"]


def test_umask_does_not_matter(tree: Tree) -> None:
    old = os.umask(0o077)
    try:
        write_spec(host(tree), PATH, "a\n")
    finally:
        os.umask(old)
    file = tree.root / "var/run/cdi/rbln.yaml"
    assert file.stat().st_mode & 0o7777 == 0o644 and file.parent.stat().st_mode & 0o7777 == 0o755


def test_check_writes_nothing(tree: Tree) -> None:
    assert write_spec(host(tree), PATH, "a\n", check=True)
    assert listing(tree) == {}


def test_c34_symlink_is_kept_and_followed(tree: Tree) -> None:
    """c34: the link stays, its target is written, readable by all."""
    tree.put("/etc/cdi/rbln.yaml", "old", 0o600)
    tree.link("/etc/cdi/rbln.yaml", PATH)
    assert write_spec(host(tree), PATH, "new")
    assert os.readlink(tree.root / PATH.lstrip("/")) == "/etc/cdi/rbln.yaml"
    assert text(tree, "/etc/cdi/rbln.yaml") == "new"
    assert (tree.root / "etc/cdi/rbln.yaml").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "links, lands",
    [
        ({"/var/run": "/run"}, "run/cdi/rbln.yaml"),
        ({"/var/run": "../run"}, "run/cdi/rbln.yaml"),
        ({PATH: "/etc/gone/rbln.yaml"}, "etc/gone/rbln.yaml"),
        ({"/var/run": "/run", "/run": "/mnt/../srv"}, "srv/cdi/rbln.yaml"),
        ({"/var/run": "../../../../../run"}, "run/cdi/rbln.yaml"),
    ],
)
def test_links_to_what_is_not_there_stay_inside_the_root(tree: Tree, links: dict[str, str], lands: str) -> None:
    for link, to in links.items():
        tree.link(to, link)
    assert write_spec(host(tree), PATH, "a")
    assert (tree.root / lands).read_text() == "a"
    assert not (tree.root / lands).is_symlink()


@needs_root
def test_the_file_is_root_s_whoever_owned_it(tree: Tree) -> None:
    """C10-cdi-perms: who owns the file could name a hook in it."""
    tree.put(PATH, "old")
    os.chown(tree.root / PATH.lstrip("/"), 1234, 2345)
    assert write_spec(host(tree), PATH, "new")
    info = (tree.root / PATH.lstrip("/")).stat()
    assert (info.st_uid, info.st_gid) == (0, 0)


@pytest.mark.parametrize("path", ["/var/run/cdi/rbln", "/var/run/cdi/rbln.yml", "rbln.yaml", "/x.yaml.bak"])
def test_a_name_no_runtime_reads(tree: Tree, path: str) -> None:
    with pytest.raises(NpuError):
        write_spec(host(tree), path, "a")
    assert listing(tree) == {}


@pytest.mark.parametrize("check", [True, False])
def test_c35_directory_is_a_file(tree: Tree, check: bool) -> None:
    """c35: one message with the path and the remedy; nothing touched."""
    tree.put("/var/run/cdi", "x")
    before = listing(tree)
    with pytest.raises(NpuError, match="/var/run/cdi") as caught:
        write_spec(host(tree), PATH, "a", check)
    assert "file" in caught.value.next_step
    assert listing(tree) == before


def test_target_is_a_directory(tree: Tree) -> None:
    tree.directory(PATH)
    for act in (lambda: write_spec(host(tree), PATH, "a"), lambda: remove_spec(host(tree), PATH)):
        with pytest.raises(NpuError, match="/var/run/cdi/rbln.yaml is"):
            act()


def test_link_loop(tree: Tree) -> None:
    tree.link("b.yaml", "/var/run/cdi/a.yaml")
    tree.link("a.yaml", "/var/run/cdi/b.yaml")
    with pytest.raises(NpuError, match="too many symbolic links"):
        write_spec(host(tree), "/var/run/cdi/a.yaml", "a")


def test_unwritable_directory_names_path_and_remedy() -> None:
    """A file system of the kernel takes no files, whoever asks."""
    with pytest.raises(NpuError, match="^/proc/sys/rbln.yaml cannot be written: ") as caught:
        write_spec(Host("/"), "/proc/sys/rbln.yaml", "a")
    assert caught.value.next_step


def test_remove(tree: Tree) -> None:
    assert not remove_spec(host(tree), PATH)
    write_spec(host(tree), PATH, "a")
    assert remove_spec(host(tree), PATH, check=True) and text(tree) == "a"
    assert remove_spec(host(tree), PATH) and not remove_spec(host(tree), PATH)
    assert list((tree.root / "var/run/cdi").iterdir()) == []


def test_remove_takes_a_link_and_not_its_target(tree: Tree) -> None:
    tree.put("/etc/cdi/rbln.yaml", "old")
    tree.link("/etc/cdi/rbln.yaml", PATH)
    assert remove_spec(host(tree), PATH)
    assert text(tree, "/etc/cdi/rbln.yaml") == "old" and not os.path.lexists(tree.root / PATH.lstrip("/"))


def test_a_held_lock_is_waited_for_and_then_named(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(host(tree), PATH, "a")
    monkeypatch.setattr(write, "LOCK_SECONDS", 0.2)
    descriptor = os.open(tree.root / "var/run/cdi", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(NpuError, match="lock of .*/var/run/cdi"):
            write_spec(host(tree), PATH, "b")
    finally:
        os.close(descriptor)
    assert text(tree) == "a"
    assert write_spec(host(tree), PATH, "b")


KILLED = """
import os, signal, sys
from ansible_collections.rebellions.npu.plugins.module_utils._cdi import write
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
name, count = sys.argv[3], int(sys.argv[4])
real = getattr(os, name)
def dies(*given, **more):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **more)
setattr(os, name, dies)
write.write_spec(Host(sys.argv[1]), sys.argv[2], "new")
"""


@pytest.mark.parametrize(
    "call, count, after", [("fchmod", 0, "old"), ("fsync", 0, "old"), ("rename", 0, "old"), ("fsync", 1, "new")]
)
def test_killed_at_any_moment_and_the_next_run_cleans(tree: Tree, call: str, count: int, after: str) -> None:
    write_spec(host(tree), PATH, "old")
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tree.root), PATH, call, str(count)],
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert text(tree) == after
    left = [item.name for item in (tree.root / "var/run/cdi").iterdir() if item.name != "rbln.yaml"]
    assert len(left) == (after == "old")
    assert not [name for name in left if name.endswith((".yaml", ".json")) or not name.startswith(".")]
    tree.put("/var/run/cdi/.rbln.yaml.keepme.tmp.txt", "other")
    assert write_spec(host(tree), PATH, "third")
    assert sorted(item.name for item in (tree.root / "var/run/cdi").iterdir()) == [
        ".rbln.yaml.keepme.tmp.txt",
        "rbln.yaml",
    ]


def test_an_error_while_staging_leaves_nothing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(host(tree), PATH, "old")

    def full(*_given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "rename", full)
    with pytest.raises(NpuError, match="/var/run/cdi/rbln.yaml cannot be written: No space left") as caught:
        write_spec(host(tree), PATH, "new")
    assert "room" in caught.value.next_step
    assert text(tree) == "old" and len(list((tree.root / "var/run/cdi").iterdir())) == 1


def test_readers_never_see_half_a_file(tree: Tree) -> None:
    texts = {"a" * 200000, "b" * 300000}
    write_spec(host(tree), PATH, "a" * 200000)
    path = os.pathsep.join(part for part in sys.path if part)
    code = (
        "import sys\nfrom ansible_collections.rebellions.npu.plugins.module_utils._cdi.write import write_spec\n"
        "from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host\n"
        "for turn in range(30):\n"
        "    write_spec(Host(sys.argv[1]), sys.argv[2], 'b' * 300000 if turn % 2 == 0 else 'a' * 200000)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tree.root), PATH], env={**os.environ, "PYTHONPATH": path}
    )
    seen = set()
    while writer.poll() is None:
        seen.add(text(tree))
    assert writer.returncode == 0 and seen and seen <= texts
