# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_bundle before a host that lies: the home directory of the controller is watched."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_bundle import MODULE, ActionModule

BODY = b"make"
SHA = hashlib.sha256(BODY).hexdigest()
PATH = "packages/make_4.4.1-2_amd64.deb"
FILE = {
    "path": PATH,
    "size": len(BODY),
    "sha256": SHA,
    "kind": "package",
    "name": "make",
    "version": "4.4.1-2",
    "architecture": "amd64",
    "control": {"Package": "make", "Version": "4.4.1-2", "Architecture": "amd64"},
}
ANSWER: dict[str, t.Any] = {
    "changed": False,
    "format": "deb",
    "os": {"id": "debian", "version_id": "13", "architecture": "x86_64"},
    "requested": ["make"],
    "files": [FILE],
    "images": [],
}
LACKS = {"changed": True, "lacking": [PATH]}


class Action(ActionModule):
    """The action with a host that answers in order and sends one archive; `sent` is what it received."""

    def __init__(self, args: dict[str, t.Any], answers: t.Sequence[t.Any], archive: Path | None, check: bool) -> None:
        task = types.SimpleNamespace(
            args=args, action=MODULE, async_val=0, check_mode=check, diff=False, delegate_to=None
        )
        self.archive = archive
        connection = types.SimpleNamespace(
            _shell=types.SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts)), fetch_file=self.fetch
        )
        super().__init__(task, connection, None, None, None, None)  # type: ignore[arg-type]
        self._load_name = MODULE
        self.answers = list(answers)
        self.asked: list[dict[str, t.Any]] = []
        self.sent: list[bytes] = []

    def fetch(self, _remote: str, local: str) -> None:
        assert self.archive is not None
        shutil.copyfile(self.archive, local)

    def _execute_module(
        self, module_name: t.Any = None, module_args: t.Any = None, task_vars: t.Any = None, **keys: t.Any
    ) -> dict[str, t.Any]:
        assert module_name == MODULE
        self.asked.append(dict(module_args))
        return dict(self.answers.pop(0))

    def _make_tmp_path(self, remote_user: t.Any = None) -> str:
        return "/tmp/ansible"

    def _transfer_file(self, local_path: t.Any, remote_path: t.Any) -> str:
        self.sent.append(Path(local_path).read_bytes())
        return str(remote_path)

    def _remove_tmp_path(self, tmp_path: t.Any, force: bool = False) -> None:
        pass


def packed(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return path


@pytest.fixture(name="home")
def home_of_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys").write_bytes(b"mine")
    (home / ".ssh/id_ed25519").write_bytes(b"the secret of the controller")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


def content(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def collected(home: Path, answer: dict[str, t.Any], archive: Path, check: bool = False) -> dict[str, t.Any]:
    args = {"state": "collected", "folder": str(home / "bundles/debian-13-x86_64")}
    return Action(args, [answer], archive, check).run(task_vars={})


def test_an_honest_host_fills_the_folder(home: Path, tmp_path: Path) -> None:
    result = collected(home, ANSWER, packed(tmp_path / "x.tar", **{SHA: BODY}))
    assert (result.get("failed"), result["changed"], result["requested"]) == (None, True, ["make"])
    assert content(home)["bundles/debian-13-x86_64/" + PATH] == BODY


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "files",
    [
        [{**FILE, "path": "../../.ssh/authorized_keys"}],
        [{**FILE, "path": "packages/../../../.ssh/authorized_keys"}],
        [{**FILE, "path": "/etc/cron.d/evil"}],
        [{**FILE, "path": ".profile"}],
        [{**FILE, "kind": "runfile", "path": "driver/rebellions-x86_64-3.2.2.run"}],
        [{**FILE, "size": 10**18}],
        [FILE] * 30000,
        [FILE, FILE],
        {"path": PATH},
        [{}],
        None,
    ],
    ids=range(11),
)
def test_a_host_that_lies_in_its_answer_writes_nothing(home: Path, tmp_path: Path, files: t.Any, check: bool) -> None:
    before = content(home)
    result = collected(home, {**ANSWER, "files": files}, packed(tmp_path / "x.tar", **{SHA: BODY}), check)
    assert result["failed"] is True and result["msg"].startswith("The answer of the connected host"), result
    assert content(home) == before and sorted(path.name for path in home.iterdir()) == [".ssh"]


@pytest.mark.parametrize("name", ["../.ssh/authorized_keys", "/etc/cron.d/evil", PATH, "0" * 64])
def test_a_host_that_lies_in_its_archive_writes_nothing(home: Path, tmp_path: Path, name: str) -> None:
    before = content(home)
    result = collected(home, ANSWER, packed(tmp_path / "x.tar", **{SHA: BODY, name: BODY}))
    assert result["failed"] is True and "was not announced" in result["msg"] and content(home) == before


def test_other_content_than_announced_is_refused(home: Path, tmp_path: Path) -> None:
    before = content(home)
    result = collected(home, ANSWER, packed(tmp_path / "x.tar", **{SHA: b"evil"}))
    assert "is another file: it has 4 bytes, SHA-256" in result["msg"] and content(home) == before


def placed(home: Path, *answers: dict[str, t.Any], check: bool = False) -> tuple[dict[str, t.Any], Action]:
    action = Action({"state": "present", "folder": str(home / "bundles/debian-13-x86_64")}, answers, None, check)
    return action.run(task_vars={}), action


def test_a_host_gets_the_files_that_it_lacks(home: Path, tmp_path: Path) -> None:
    collected(home, ANSWER, packed(tmp_path / "x.tar", **{SHA: BODY}))
    result, action = placed(home, LACKS, {"changed": True, "lacking": []})
    assert result["changed"] is True and action.asked[1]["archive"] == "/tmp/ansible/files.tar"
    with tarfile.open(fileobj=io.BytesIO(action.sent[0])) as tar:
        assert tar.getnames() == [SHA]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "lacking", [["../../.ssh/id_ed25519"], [PATH, "/etc/shadow"], ["manifest.json"], {"a": 1}, PATH, 7]
)
def test_a_host_that_asks_for_more_gets_nothing(home: Path, tmp_path: Path, lacking: t.Any, check: bool) -> None:
    collected(home, ANSWER, packed(tmp_path / "x.tar", **{SHA: BODY}))
    result, action = placed(home, {"changed": True, "lacking": lacking}, check=check)
    assert result["failed"] is True and "asks for files that are not in the bundle" in result["msg"]
    assert action.sent == []


@pytest.mark.parametrize(
    "address", ["0.0.0.0/0", "evil.example.com", "{{ lookup('env', 'HOME') }}", None, ["192.0.2.1"]]
)
def test_a_server_gives_an_address(address: t.Any) -> None:
    def reached(given: t.Any) -> dict[str, t.Any]:
        return Action({"state": "reached", "peers": ["192.0.2.9"]}, [{"address": given}], None, False).run(task_vars={})

    assert reached("192.0.2.1")["address"] == "192.0.2.1" and reached("2001:DB8::1")["address"] == "2001:db8::1"
    result = reached(address)
    assert result["failed"] is True and "no valid address" in result["msg"]
