# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation by the host tool: the module's answer, and nothing that others could have changed runs as root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host import unpacked
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import (
    compare_files,
    file_entry,
    install,
    install_and_try,
    on_host,
    remove,
    unpack,
    unpacked_entry,
    unpacked_fingerprint,
)
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import answer
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host import host_tool as tool
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host import look
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.zipapp import program
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host

CONTENT, DIGEST = program()
MARK = unpacked.MARK


@contextlib.contextmanager
def sound_folder() -> Iterator[Path]:
    """A new folder to which nobody else can change the way, which TMPDIR does not promise."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with sound_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def sound() -> Iterator[Path]:
    with sound_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def once(sound: Path) -> Path:
    """A folder as the module makes it, on this machine."""
    folder = sound / "libexec"
    folder.mkdir()
    (folder / "tool").write_bytes(CONTENT)
    (folder / "tool").chmod(0o755)
    before = os.umask(0o077)
    try:
        unpack(Host(), str(folder / "lib"), DIGEST, str(folder / "tool"), sys.executable)
    finally:
        os.umask(before)
    return folder


@pytest.fixture
def lib(once: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    shutil.copytree(once, tmp_path / "libexec", symlinks=True)
    return tmp_path / "libexec" / "lib"


def ask(lib: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> look.Said:
    """The command as a shell of the host runs it."""
    monkeypatch.setattr(look, "LIB_DIR", str(lib))
    sent = look.order({"options": options, "host_tool": {}}, {"NPU_TEST": "x"})
    argv = ["/bin/sh", "-c", look.command(sys.executable)]
    done = subprocess.run(argv, input=sent, capture_output=True, timeout=60, check=False)
    return look.read(done.returncode, done.stdout.decode(), done.stderr.decode())


def untimed(found: Any) -> Any:
    """An answer without what changes by itself: how long each check took, and what is free on a disk."""
    if isinstance(found, dict):
        return {key: 0 if key in ("seconds", "disk") else untimed(value) for key, value in found.items()}
    return [untimed(value) for value in found] if isinstance(found, (list, tuple)) else found


# What each of these brings along costs a look more than all files that it reads.
COSTLY = {
    "dataclasses", "inspect", "tempfile", "shutil", "zipfile", "uuid", "urllib.parse", "http.client", "logging",
    "email", "ipaddress", "argparse", "asyncio", "platform", "ctypes", "yaml",
}  # fmt: skip


def test_a_look_imports_little(once: Path, tmp_path: Path) -> None:
    with_podman = ca22_host(tmp_path).program("/usr/bin/podman", "echo podman version 5.6.0\n")
    with_podman.write("/etc/containers/containers.conf", "[engine]\n")
    code = "import sys;sys.path.insert(0,%r);from npu_host._base.rebellions import PROFILE;" % str(
        once / "lib" / DIGEST
    )
    code += (
        "from npu_host._observe.observe import answer;print('ansible_facts' in answer(PROFILE,{'root':%r}))\n"
        % str(tmp_path)
    )
    code += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-ISE", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    seen, modules = done.stdout.split("\n", 1)
    assert seen == "True" and "npu_host._checks.toolkit" in modules.split()
    assert COSTLY & set(modules.split()) == set()


@pytest.mark.parametrize("make", [ca22_host, Tree], ids=["ca22", "empty"])
def test_the_answer_is_the_module_s(
    once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Tree]
) -> None:
    (tmp_path / "host").mkdir()
    make(tmp_path / "host")
    options = {"root": str(tmp_path / "host"), "scopes": ["driver", "toolkit"]}
    said = ask(once / "lib", monkeypatch, **options)
    module = untimed(json.loads(json.dumps(answer(PROFILE, {"options": options, "host_tool": {}}))))
    assert untimed(said.answer) == module and len(module["ansible_facts"]["rbln_observed"]["checks"]) > 10
    assert set(module["ansible_facts"]) == {"rbln", "rbln_runtimes", "rbln_observed"}
    assert untimed(checked("n1", "rbln_observe", said.answer or {})) == module


def test_options_that_are_refused_are_refused_as_by_the_module(once: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ask(once / "lib", monkeypatch, timeout="x")
    assert said.answer == answer(PROFILE, {"options": {"timeout": "x"}}) and (said.answer or {})["failed"] is True


def everybody(lib: Path) -> str:
    (lib / DIGEST / "npu_host" / "_host").chmod(0o777)
    return "everybody can write"


def a_group(lib: Path) -> str:
    os.chown(lib / DIGEST / "npu_host" / "_host" / "host.py", 0, 4711)
    (lib / DIGEST / "npu_host" / "_host" / "host.py").chmod(0o664)
    return "a group can write"


def the_directory_above(lib: Path) -> str:
    lib.parent.chmod(0o777)
    return "everybody can write %s (mode 0777)" % lib.parent


def of_a_user(lib: Path) -> str:
    os.chown(lib / DIGEST, 4711, 0)
    return "belongs to user 4711"


def compiled_by_a_user(lib: Path) -> str:
    found = next((lib / DIGEST / "npu_host" / "_host" / "__pycache__").iterdir())
    os.chown(found, 4711, 0)
    return "%s belongs to user 4711" % found


def reached_by_a_link_of_a_user(lib: Path) -> str:
    moved = lib.parent.with_name("moved")
    lib.parent.rename(moved)
    lib.parent.symlink_to(moved)
    os.chown(lib.parent, 4711, 0, follow_symlinks=False)
    return "belongs to user 4711"


def edited(lib: Path) -> str:
    with (lib / DIGEST / "npu_host" / "_observe" / "facts.py").open("a") as stream:
        stream.write("\n")
    return "are not those of its name"


def a_file_more(lib: Path) -> str:
    (lib / DIGEST / "json.so").write_text("")
    return "does not belong there"


def a_file_less(lib: Path) -> str:
    (lib / DIGEST / "npu_host" / "_observe" / "facts.py").unlink()
    return "are not those of its name"


def a_link(lib: Path) -> str:
    path = lib / DIGEST / "npu_host" / "_observe" / "facts.py"
    path.rename(lib.parent / "facts.py")
    path.symlink_to(lib.parent / "facts.py")
    return "is not a regular file"


def of_another_release(lib: Path) -> str:
    (lib / DIGEST).rename(lib / ("0" * 32))
    return "has no sources of this release"


def another_minor_python(lib: Path) -> str:
    tag = str(sys.implementation.cache_tag)
    for path in (lib / DIGEST).rglob("*.pyc"):
        path.rename(path.with_name(path.name.replace(tag, "cpython-37")))
    return "was not compiled by " + tag


def its_python_is_gone(lib: Path) -> str:
    (lib / "python").unlink()
    (lib / "python").symlink_to("/nowhere/python3")
    return "python leads to no program"


BAD = {
    unpacked.CHANGEABLE: [
        everybody, a_group, the_directory_above, of_a_user, compiled_by_a_user, reached_by_a_link_of_a_user,
    ],
    unpacked.SPOILT: [edited, a_file_more, a_file_less, a_link],
    unpacked.OTHER: [of_another_release],
    unpacked.PYTHON_CHANGED: [another_minor_python, its_python_is_gone],
}  # fmt: skip


@pytest.mark.parametrize("code, spoil", [(code, spoil) for code, every in BAD.items() for spoil in every])
def test_what_must_not_run_does_not(lib: Path, monkeypatch: pytest.MonkeyPatch, code: str, spoil: Any) -> None:
    words = spoil(lib)
    if code == unpacked.CHANGEABLE:
        # Were it run, this would be the answer.
        monkeypatch.setattr(look, "PACKAGE", "nothing")
    said = ask(lib, monkeypatch, root="/nowhere")
    assert said.answer is None and words in said.why and said.next_step == look._NEXT[code]
    # The plan has a step for it, unless it is a directory that is not ours.
    current = on_host(Host(), str(lib)) == unpacked_fingerprint(DIGEST)
    assert current is (spoil in (the_directory_above, reached_by_a_link_of_a_user))


def test_no_folder_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(tmp_path / "lib", monkeypatch) == look.Said(None)


def test_the_tool_s_own_python_runs_it(lib: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text('#!/bin/sh\nNPU_OWN=1 exec %s "$@"\n' % sys.executable)
    own.chmod(0o755)
    (lib / "python").unlink()
    (lib / "python").symlink_to(own)
    (tmp_path / "host").mkdir()
    said = ask(lib, monkeypatch, root=str(tmp_path / "host"))
    assert said.answer is not None and "ansible_facts" in said.answer
    own.chmod(0o777)
    assert "everybody can write %s" % own in ask(lib, monkeypatch, root=str(tmp_path / "host")).why


def test_a_program_whose_python_is_gone_is_installed_again(tmp_path: Path) -> None:
    found = []
    for python in (sys.executable, "/nowhere/python3"):
        (tmp_path / "tool").write_text("#!%s\nx" % python)
        found.append(on_host(Host(), str(tmp_path / "tool")))
    assert found[0] and found[1] == found[0] + ":no interpreter"


def test_a_folder_of_an_old_release_goes_with_the_next_change(lib: Path) -> None:
    a_group(lib)
    edited(lib)
    shutil.copytree(lib / DIGEST, lib / ("0" * 32))
    (lib.parent / ".lib.new").mkdir()
    wanted = {str(lib): unpacked_fingerprint(DIGEST)}
    assert compare_files(Host(), wanted)["current"] is False
    entry = unpacked_entry(str(lib), DIGEST, str(lib.parent / "tool"))
    assert install(Host(), [entry], sys.executable, dry=True) == [str(lib)] and (lib / ("0" * 32)).exists()
    assert install(Host(), [entry], sys.executable) == [str(lib)]
    assert compare_files(Host(), wanted)["current"] is True and install(Host(), [entry], sys.executable) == []
    assert sorted(os.listdir(lib.parent)) == ["lib", "tool"] and sorted(os.listdir(lib)) == [DIGEST, "python"]


def test_removal_leaves_no_folder(lib: Path) -> None:
    (lib.parent / ".lib.old").mkdir()
    paths, parent = [str(lib), str(lib.parent / "tool")], [str(lib.parent)]
    assert remove(Host(), paths, parent, dry=True, folders=[str(lib)]) == paths and lib.exists()
    assert remove(Host(), paths, parent, folders=[str(lib)]) == paths + parent and not lib.parent.exists()
    assert compare_files(Host(), {str(lib): "unpacked:x"})["sha256"] is None


def test_a_python_that_cannot_compile_is_an_error_and_changes_nothing(lib: Path) -> None:
    before = sorted(os.listdir(lib))
    with pytest.raises(NpuError, match="/bin/false cannot compile the host tool"):
        unpack(Host(), str(lib), DIGEST, str(lib.parent / "tool"), "/bin/false")
    assert sorted(os.listdir(lib)) == before and on_host(Host(), str(lib)) == unpacked_fingerprint(DIGEST)


def test_two_runs_that_install_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(CONTENT)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 0.2\n")
    python.chmod(0o755)
    failed: list[Exception] = []

    def run() -> None:
        try:
            unpack(Host(), str(tmp_path / "lib"), DIGEST, str(tmp_path / "tool"), str(python))
        except (NpuError, OSError) as exc:
            failed.append(exc)

    runs = [threading.Thread(target=run) for _number in range(3)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert failed == [] and sorted(os.listdir(tmp_path)) == ["lib", "python", "tool"]
    unpacked.judge(str(tmp_path / "lib"), DIGEST, compiled=False)


def test_fapolicyd_311_a_host_that_denies_sources_is_told_how_to_let_them_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program that it does not let run it is told so first, and nothing is made of it."""
    asked: list[str] = []
    denial = "*** Error compiling 'x.py'...\nPermissionError: [Errno 1] Operation not permitted: 'x.py'\n"
    answers = {"--help": Completed(126, "", "Operation not permitted"), "-ISE": Completed(1, denial, "")}

    def run(argv: list[str], timeout: float, env: object = None) -> Probe:
        asked.append(argv[1])
        return Probe("value", answers[argv[1]])

    host, tool_path = Host(runner=run), str(tmp_path / "tool")
    entries = [
        unpacked_entry(str(tmp_path / "lib"), DIGEST, tool_path),
        file_entry(tool_path, CONTENT, 0o755),
    ]
    rule = "Next: Let it run: with fapolicyd put `allow perm=any all : dir=%s/` in /etc/fapolicyd/rules.d" % tmp_path
    with pytest.raises(NpuError) as caught:
        install_and_try(host, entries, sys.executable)
    assert "does not let %s run" % tool_path in str(caught.value) and rule in str(caught.value)
    assert asked == ["--help"] and os.listdir(tmp_path) == ["tool"]
    answers["--help"] = Completed(0, "", "")
    with pytest.raises(NpuError) as caught:
        install_and_try(host, entries, sys.executable)
    assert "cannot compile the host tool" in str(caught.value) and rule in str(caught.value)

    def denied(_path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("zipfile.ZipFile", denied)
    with pytest.raises(NpuError) as caught:
        install_and_try(host, entries, sys.executable)
    assert "lib cannot be written: Operation not permitted." in str(caught.value) and rule in str(caught.value)


def test_the_program_takes_what_is_compiled_where_nobody_else_can_change_it(lib: Path) -> None:
    """So boot units and pods do, which run the program by its name."""

    def taken() -> bool:
        argv = [sys.executable, "-v", str(lib.parent / "tool"), "cdi", "--help"]
        # Without what tells Python where else to look for compiled files.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=clean)
        assert done.returncode == 0 and "usage" in done.stdout
        return "matches %s/%s/npu_host/_observe/facts.py" % (lib, DIGEST) in done.stderr

    assert taken()
    (lib / DIGEST).chmod(0o777)
    assert not taken()


def test_the_files_of_the_tool_have_the_folder() -> None:
    found = {entry["path"]: entry for entry in tool.entries({})}
    assert tool.LIB_DIR == "/usr/local/libexec/rebellions-npu/lib" and len(DIGEST) == 32
    assert found[tool.LIB_DIR] == unpacked_entry(tool.LIB_DIR, DIGEST, tool.TOOL_PATH)
    assert list(found).index(tool.TOOL_PATH) < list(found).index(tool.LIB_DIR) and tool.LIB_DIR in tool.PROGRAM


@pytest.mark.parametrize(
    "code, out, err, said",
    [
        (0, MARK + '{"answer": {"a": 1}}\nbye', "", look.Said({"a": 1})),
        (0, "\n" + MARK + '{"answer": {"a": 1}}', "", look.Said({"a": 1})),
        (0, MARK + '{"unfit": "absent", "why": "x"}\n', "", look.Said(None)),
        (127, "", "sh: /usr/bin/python3: not found", look.Said(None)),
        (1, "", "SyntaxError: future feature annotations is not defined", look.Said(None)),
        (0, "Welcome!\n" + MARK + '{"answer": {}}\n', "", look.Said(
            None, "the shell of its account prints 'Welcome!' before the answer", look._SILENT)),
        (0, MARK + '{"answer": {"a"', "", look.Said(None, "its answer is cut short or broken", look._REPORT)),
        (0, MARK + "[" * 100000, "", look.Said(None, "its answer is cut short or broken", look._REPORT)),
        (0, MARK + '["answer"]', "", look.Said(None, "its answer is no observation", look._REPORT)),
        (0, MARK + '{"answer": 3}', "", look.Said(None, "its answer is no observation", look._REPORT)),
        (0, MARK + '{"unfit": ["x"]}', "", look.Said(None, "its answer is no observation", look._REPORT)),
        (0, MARK + '{"unfit": "new", "why": {}}', "", look.Said(None, "{}", look._REPORT)),
        (0, "", "", look.Said(None, "it gave no answer (exit code 0: it printed nothing)", look._REPORT)),
        (1, "Welcome!", "Traceback\nMemoryError\n\n", look.Said(
            None, "it gave no answer (exit code 1: MemoryError)", look._REPORT)),
    ],
)  # fmt: skip
def test_what_comes_back(code: int, out: str, err: str, said: look.Said) -> None:
    assert look.read(code, out, err) == said
