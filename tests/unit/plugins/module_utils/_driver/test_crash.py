# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of the driver that fails, or is killed, at every one of its acts.

The host ends as before or as wanted, and the next run converges.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._npu import driver_notes
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    AFTER,
    BEFORE,
    DAEMON,
    ERROR,
    KMD,
    SERVICES,
    Killed,
    Machine,
    change,
    having,
    memory,
)  # fmt: skip

KERNEL_PACKAGE = "linux-image-generic"
# Acts whose failure is reported and does no harm.
HARMLESS = ("hold ", "unhold ", "dkms ", "download ", *("start " + name for name in SERVICES))
UNINSTALL = ["--uninstall"]

Result = t.Dict[str, t.Any]


class Story:
    """A host before a change, and the change that is wanted."""

    def __init__(self, name: str, base: Path) -> None:
        self.machine: Machine = getattr(self, "_" + name)(base / "root")
        self.before = self.machine.look()

    def _runfile(self, root: Path) -> Machine:
        self.source = "runfile"
        self.keys: Result = {
            "uninstall": UNINSTALL, "prerequisites": ["gcc"], "kernels": ["6.8.0-200-generic"],
            "hold_kernel": [KERNEL_PACKAGE], "services": list(SERVICES),
        }  # fmt: skip
        machine = having(root, uninstall=UNINSTALL)
        machine.packages[KERNEL_PACKAGE] = "6.8.0"
        machine.packages["gcc"] = "13"
        machine.repository.add("gcc=13")
        return machine

    def _packages(self, root: Path) -> Machine:
        self.source, self.keys = "package", {"names": [KMD], "services": list(SERVICES)}
        machine = having(root, source="package")
        machine.repository.update("%s=%s" % (KMD, version) for version in ("3.2.2", "3.4.0", "3.6.0"))
        return machine

    def _new(self, root: Path) -> Machine:
        self.source, self.keys = "debs", {"hold_kernel": [KERNEL_PACKAGE]}
        machine = Machine(root)
        machine.packages[KERNEL_PACKAGE] = "6.8.0"
        return machine

    def _foreign(self, root: Path) -> Machine:
        """A driver that the site has installed from a repository itself."""
        self.source, self.keys = "debs", {"services": list(SERVICES)}
        machine = Machine(root)
        machine.put("3.2.2")
        machine.loaded = "3.2.2"
        machine.active.update([DAEMON, *SERVICES])
        machine.repository.add("%s=3.2.2" % KMD)
        return machine

    def _legacy(self, root: Path) -> Machine:
        """The one package of former releases."""
        self.source, self.keys = "runfile", {"uninstall": UNINSTALL, "services": list(SERVICES)}
        machine = Machine(root)
        machine.put("2.0.1", "rebellions")
        machine.loaded = "2.0.1"
        machine.active.update([DAEMON, *SERVICES])
        machine.repository.add("rebellions=2.0.1")
        return machine

    def _bare(self, root: Path) -> Machine:
        """A host where no package manager is known."""
        self.source, self.keys = "runfile", {"uninstall": UNINSTALL, "services": list(SERVICES), "manager": False}
        return having(root, uninstall=UNINSTALL, manager=False)

    def run(self, version: str = "3.4.0", **trouble: t.Any) -> Result:
        """The change; what `rbln_driver_files` has placed is placed again first."""
        machine = self.machine
        machine.trouble = dict(trouble.pop("trouble", {}))
        files: list[dict[str, str]] = []
        if self.source != "package":
            files = machine.runfile(version) if self.source == "runfile" else machine.debs(version)
        source = "runfile" if self.source == "runfile" else "package"
        return change(machine, source=source, version=version, files=files, **self.keys).run().to_dict()

    def undo(self) -> Result:
        """A run that installs nothing, as with a driver that others bring."""
        self.machine.trouble = {}
        return (
            change(
                self.machine,
                manager=self.keys.get("manager", True),
                source="package",
                install=False,
                services=list(SERVICES),
            )
            .run()
            .to_dict()
        )

    @property
    def journal(self) -> t.Any:
        return self.machine.record("journal.json")


STORIES = ("runfile", "packages", "new", "foreign", "legacy", "bare")


@functools.lru_cache(maxsize=None)
def clean(name: str, base: Path) -> tuple[tuple[str, ...], Result]:
    """The acts of the change when all goes well, and how it ends."""
    story = Story(name, base / ("clean-" + name))
    result = story.run()
    assert (result["outcome"], result["failed"]) == ("installed" if name == "new" else "upgraded", False)
    return tuple(story.machine.acts), story.machine.look()


@pytest.fixture(name="base", scope="module")
def base_fixture() -> t.Iterator[Path]:
    with memory() as path:
        yield path


@pytest.fixture(name="fresh")
def fresh_fixture(base: Path) -> t.Iterator[t.Callable[[str], Story]]:
    """Makes stories, each below a directory of its own; the one before is taken away."""
    stories: list[Path] = []

    def make(name: str) -> Story:
        while stories:
            shutil.rmtree(stories.pop())
        stories.append(Path(tempfile.mkdtemp(dir=base)))
        return Story(name, stories[0])

    yield make
    while stories:
        shutil.rmtree(stories.pop())


def installs(acts: t.Sequence[str]) -> int:
    """The number of the first act that touches the driver itself."""
    return min(
        number
        for number, act in enumerate(acts)
        if act in ("repair", "apply -rebellions") or act.startswith(("run ", "apply %s=" % KMD))
    )


def replaces(name: str, acts: t.Sequence[str]) -> int:
    """The number of the first act after which the packages of the driver differ.

    What an installer does is not known.
    """
    if name in ("runfile", "legacy", "bare"):
        return installs(acts)
    return min(number for number, act in enumerate(acts) if act.startswith("apply %s=" % KMD)) + 1


def assert_as_before(story: Story) -> None:
    assert story.machine.look() == story.before
    assert (story.journal, story.machine.record("tainted.json")) == (None, None)


def assert_as_wanted(story: Story, result: Result, end: Result) -> None:
    assert (result["failed"], result["reason"]) == (False, "")
    assert result["outcome"] == ("upgraded" if story.before["on_disk"] else "installed")
    now = story.machine.look()
    assert now == end
    assert (story.journal, story.machine.record("tainted.json")) == (None, None)


# -- errors


@pytest.mark.parametrize("name", STORIES)
def test_an_error_at_any_act_leads_back(name: str, base: Path, fresh: t.Callable[[str], Story]) -> None:
    acts, end = clean(name, base)
    first = replaces(name, acts)
    for number, act in enumerate(acts):
        story = fresh(name)
        try:
            result = story.run(trouble={number: ERROR})
        except NpuError:
            assert act.startswith("download"), act
            assert_as_before(story)
            continue
        if act.startswith(HARMLESS):
            assert result["failed"] is False and result["warnings"], act
            assert story.journal is None
            continue
        back = "rolled_back" if number >= first and story.before["on_disk"] else "restored"
        assert (result["outcome"], result["failed"]) == (back, True), act
        assert "%s has failed." % act in result["reason"]
        assert_as_before(story)
        assert_as_wanted(story, story.run(), end)


@pytest.mark.parametrize("name", STORIES)
def test_a_driver_that_does_not_work_is_gone_again_and_remembered(name: str, fresh: t.Callable[[str], Story]) -> None:
    story = fresh(name)
    story.machine.unfit.add("3.4.0")
    result = story.run()
    assert (result["outcome"], result["failed"]) == ("rolled_back" if story.before["on_disk"] else "restored", True)
    assert_as_before(story)
    refused = story.machine.record("refused.json")["refused"]
    assert [(entry["version"], entry["reason"]) for entry in refused] == [("3.4.0", "Driver 3.4.0 does not work.")]


@pytest.mark.parametrize("name", STORIES)
def test_an_error_on_the_way_back_too_leaves_the_driver_stopped(
    name: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    acts, end = clean(name, base)
    proof = acts.index("prove 3.4.0")
    story = fresh(name)
    story.run(trouble={proof: ERROR})
    back = list(story.machine.acts)
    for number in range(proof + 1, len(back)):
        if back[number].startswith(HARMLESS):
            continue
        story = fresh(name)
        result = story.run(trouble={proof: ERROR, number: ERROR})
        assert (result["outcome"], result["failed"]) == ("left_stopped", True), back[number]
        tainted = story.machine.record("tainted.json")
        assert tainted["version"] == "3.4.0" and tainted["reason"] == result["reason"]
        assert "prove 3.4.0 has failed." in result["reason"] and "Rolling back failed too: " in result["reason"]
        assert back[number] + " has failed." in result["reason"]
        assert story.journal["direction"] == "back"
        assert story.machine.loaded is None and not story.machine.active
        if number % 2:
            assert_as_wanted(story, story.run(), end)
        else:
            replaced = story.journal["opaque"] or story.machine.look()["packages"] != story.before["packages"]
            done = story.undo()
            assert (done["outcome"], done["failed"]) == (
                "rolled_back" if replaced and story.before["on_disk"] else "restored",
                False,
            )
            assert_as_before(story)


@pytest.mark.parametrize("name", ["runfile", "new"])
def test_without_a_way_back_a_failure_leaves_the_driver_stopped(
    name: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    acts, end = clean(name, base)
    first = installs(acts)
    for number, act in enumerate(acts):
        if act.startswith(HARMLESS):
            continue
        story = fresh(name)
        story.keys["rollback"] = False
        result = story.run(trouble={number: ERROR})
        if number < first:
            assert result["outcome"] == "restored", act
            assert_as_before(story)
            continue
        assert (result["outcome"], story.machine.loaded, story.machine.active) == ("left_stopped", None, set()), act
        assert story.machine.record("tainted.json")["reason"] == result["reason"]
        assert_as_wanted(story, story.run(), end)


# -- kills


def kill(story: Story, trouble: dict[int | str, str]) -> None:
    with pytest.raises(Killed):
        story.run(trouble=trouble)
    assert story.machine.record("tainted.json") is None


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_any_act_is_finished_by_the_same_run(
    name: str, mode: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    acts, end = clean(name, base)
    for number, act in enumerate(acts):
        story = fresh(name)
        kill(story, {number: mode})
        assert (story.journal is None) is act.startswith("download"), act
        assert_as_wanted(story, story.run(), end)


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_any_act_is_undone_by_a_run_that_installs_nothing(
    name: str, mode: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    for number, act in enumerate(clean(name, base)[0]):
        story = fresh(name)
        kill(story, {number: mode})
        if story.journal is None:
            assert story.machine.look() == story.before, act
            continue
        touched = story.journal["touched"]
        replaced = story.journal["opaque"] or story.machine.look()["packages"] != story.before["packages"]
        result = story.undo()
        back = "rolled_back" if touched and replaced and story.before["on_disk"] else "restored"
        assert (result["outcome"], result["failed"], result["changed"]) == (back, False, True), act
        assert_as_before(story)


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_any_act_is_in_nobodys_way_who_wants_another_version(
    name: str, mode: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    wanted = fresh(name)
    wanted.run("3.6.0")
    end = wanted.machine.look()
    for number in range(len(clean(name, base)[0])):
        story = fresh(name)
        kill(story, {number: mode})
        assert_as_wanted(story, story.run("3.6.0"), end)


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_on_the_way_back_is_finished_or_undone(
    name: str, mode: str, base: Path, fresh: t.Callable[[str], Story]
) -> None:
    acts, end = clean(name, base)
    proof = acts.index("prove 3.4.0")
    story = fresh(name)
    story.run(trouble={proof: ERROR})
    for number in range(proof + 1, len(story.machine.acts)):
        for again in (True, False):
            story = fresh(name)
            kill(story, {proof: ERROR, number: mode})
            assert story.journal["direction"] == "back"
            if again:
                assert_as_wanted(story, story.run(), end)
            else:
                assert story.undo()["failed"] is False
                assert_as_before(story)


@pytest.mark.parametrize("name", ["runfile", "new"])
def test_a_kill_of_each_run_in_a_row_loses_nothing(name: str, base: Path, fresh: t.Callable[[str], Story]) -> None:
    """Every run comes one act further than the one before it, at most."""
    acts, end = clean(name, base)
    story = fresh(name)
    for number in range(len(acts)):
        try:
            story.run(trouble={number: AFTER})
        except Killed:
            continue
        break
    result = story.run() if story.journal is not None else None
    if result is not None:
        assert_as_wanted(story, result, end)
    assert story.machine.look() == end
    again = fresh(name)
    for number in range(len(acts)):
        try:
            again.run(trouble={number: AFTER})
        except Killed:
            continue
        break
    if again.journal is not None:
        assert again.undo()["failed"] is False
        assert again.machine.look() == again.before


@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_a_kill_at_any_note_on_the_disk(
    mode: str, base: Path, fresh: t.Callable[[str], Story], monkeypatch: pytest.MonkeyPatch
) -> None:
    _acts, end = clean("runfile", base)
    write, left = driver_notes.write_bytes, [10**9]

    def counted(*arguments: t.Any) -> None:
        left[0] -= 1
        if left[0] < 0 and mode == BEFORE:
            raise Killed
        write(*arguments)
        if left[0] < 0:
            raise Killed

    monkeypatch.setattr(driver_notes, "write_bytes", counted)
    for number in range(60):
        for again in (True, False):
            left[0] = 10**9
            story = fresh("runfile")
            left[0] = number
            try:
                story.run()
            except Killed:
                left[0] = 10**9
            else:
                assert number > 20
                return
            if again:
                assert_as_wanted(story, story.run(), end)
            elif story.journal is None:
                assert story.machine.look() == story.before
            else:
                assert story.undo()["failed"] is False
                assert_as_before(story)
    raise AssertionError("the change never ended")
