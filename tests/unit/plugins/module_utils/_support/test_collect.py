# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of a machine below a folder, on which no command runs; what runs is tried in the integration tests."""

from __future__ import annotations

import base64
import os
import re
import threading
import typing as t
import zlib
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.apart import Keep, Outcome, run
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._support import collect as collect_module
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import (
    Collector,
    Limits,
    clean_text,
    collect,
    finished,
    packed,
    serials_of,
)
from ansible_collections.rebellions.npu.plugins.module_utils._support.sources import (
    Source,
    of_host,
    plain,
    unit_names,
)

ROOT = Path(__file__).resolve().parents[5]
LIMITS = Limits(source=4096, host=65536, lines=50, seconds=5.0, total=30.0)


def collector(root: Path, limits: Limits = LIMITS, dry: bool = False) -> Collector:
    return Collector(PROFILE, Host(str(root)), limits, dry)


def put(root: Path, path: str, text: str = "x\n", age: int = 0) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (10**9 - age, 10**9 - age))
    return file


def states(work: Collector) -> dict[str, str]:
    return {one["name"]: one["state"] for one in work.records}


def test_a_file_is_read_from_its_start_and_a_log_from_its_end(tmp_path: Path) -> None:
    put(tmp_path, "/etc/long", "".join(f"{number}\n" for number in range(10000)))
    work = collector(tmp_path)
    work.ask(Source("first", path="/etc/long"))
    work.ask(Source("newest", path="/etc/long", newest=True))
    work.ask(Source("chosen", path="/etc/long", newest=True, only="99$"))
    assert states(work) == {"first": "value", "newest": "value", "chosen": "value"}
    assert [one["cut"] for one in work.records] == [True, True, True]
    assert work.texts["first"].startswith("0\n1\n") and work.texts["newest"].endswith("9998\n9999\n")
    assert work.texts["newest"].split("\n", 1)[0].isdigit() and len(work.texts["newest"]) <= 4096
    assert work.texts["chosen"].split()[-2:] == ["9899", "9999"]


def test_what_is_no_file_is_no_source_that_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    put(tmp_path, "/empty", "")
    work = collector(tmp_path)
    for name in ("pipe", "folder", "nowhere", "empty"):
        work.ask(Source(name, path="/" + name))
    assert states(work) == {"pipe": "failed", "folder": "failed", "nowhere": "absent", "empty": "value"}
    assert work.records[0]["detail"] == "a pipe, not a file" and work.texts == {}


def test_a_reader_that_hangs_is_one_source_that_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "/sys/one", "a\n")
    put(tmp_path, "/sys/two", "b\n")
    read = collect_module.Collector._read

    def hangs(self: Collector, path: str, *more: t.Any) -> Outcome:
        if path.endswith("one"):
            import time

            time.sleep(60)
        return read(self, path, *more)

    monkeypatch.setattr(collect_module.Collector, "_read", hangs)
    work = collector(tmp_path, Limits(seconds=0.2))
    work.ask(Source("one", path="/sys/one"))
    work.ask(Source("two", path="/sys/two"))
    assert states(work) == {"one": "timeout", "two": "value"}


@pytest.mark.parametrize("source", [Source("one", directory="/var/log/x"), Source("one", work="logs:/var/lib/dkms")])
def test_a_directory_that_hangs_is_a_line_too(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "/sys/two", "b\n")
    for look in ("listdir", "glob"):
        monkeypatch.setattr(Host, look, lambda *given: threading.Event().wait())
    work = collector(tmp_path, Limits(seconds=0.5))
    work.ask(source)
    work.ask(Source("two", path="/sys/two"))
    assert states(work)["one"] == "timeout" and work.records[0]["detail"].startswith("no end within")


def test_when_the_time_of_the_host_is_over_the_rest_is_not_asked(tmp_path: Path) -> None:
    put(tmp_path, "/a")
    work = collector(tmp_path, Limits(total=0.0))
    work.ask(Source("a", path="/a"))
    assert work.records[0]["state"] == "timeout" and "not asked" in work.records[0]["detail"]


def test_when_the_room_of_the_host_is_used_the_rest_is_not_asked(tmp_path: Path) -> None:
    put(tmp_path, "/a", "a" * 9 + "\n" + ("a" * 9 + "\n") * 99)
    work = collector(tmp_path, Limits(source=1000, host=1500))
    for name in "abc":
        work.ask(Source(name, path="/a", newest=True))
    told = [(one["state"], one["cut"]) for one in work.records]
    assert told == [("value", False), ("value", True), ("value", True)]
    work.ask(Source("d", command=("true",)))
    assert sum(map(len, work.texts.values())) <= 1500 and work.records[3]["state"] == "absent"
    full = collector(tmp_path, Limits(source=1000, host=1000))
    full.ask(Source("a", path="/a"))
    full.ask(Source("b", path="/a"))
    assert full.records[1]["state"] == "too_large" and "not asked" in full.records[1]["detail"]


def test_links_in_a_directory_are_not_followed_and_the_newest_files_come_first(tmp_path: Path) -> None:
    put(tmp_path, "/etc/shadow", "root:secret\n")
    for number in range(60):
        put(tmp_path, f"/var/log/x/{number}.log", age=number)
    (tmp_path / "var/log/x/evil.log").symlink_to("/etc/shadow")
    (tmp_path / "var/log/x/..odd name").write_text("odd\n")
    work = collector(tmp_path)
    work.ask(Source("logs/x", directory="/var/log/x", patterns=("*",)))
    names = list(states(work))
    assert len(names) == 40 and names[1] == "logs/x/0.log" and "logs/x/39.log" not in names
    assert names[0] == "logs/x/odd_name" and all("secret" not in text for text in work.texts.values())


def test_names_of_a_host_are_safe_in_the_archive() -> None:
    assert [plain(one) for one in ("../../etc/passwd", "a b\nc", "", "...", "\u202ex", "x" * 500)] == [
        "etc_passwd", "a_b_c", "file", "file", "x", "x" * 120,
    ]  # fmt: skip


def test_make_logs_of_the_module_are_found_wherever_dkms_keeps_them(tmp_path: Path) -> None:
    put(tmp_path, "/var/lib/dkms/rebellions/3.2.2/build/make.log", "building\n")
    put(tmp_path, "/var/lib/dkms/rebellions/3.2.2/6.8.0-117-generic/x86_64/log/make.log", "kept\n", 10)
    put(tmp_path, "/var/lib/dkms/other/1.0/build/make.log", "not ours\n")
    work = collector(tmp_path)
    work.ask(Source("dkms/make", work="logs:/var/lib/dkms", newest=True))
    assert sorted(work.texts.values()) == ["building\n", "kept\n"]


def test_lines_that_matter_are_found_with_their_places(tmp_path: Path) -> None:
    put(tmp_path, "/etc/modprobe.d/a.conf", "options snd x=1\nblacklist rebellions\n")
    put(tmp_path, "/usr/lib/modprobe.d/b.conf", "options vfio-pci ids=1eff:1250\n")
    (tmp_path / "lib").symlink_to("usr/lib")
    work = collector(tmp_path)
    (source,) = [one for one in of_host(PROFILE, work.host, [], [], 10) if one.name == "module/modprobe.txt"]
    work.ask(source)
    assert work.texts["module/modprobe.txt"] == (
        "/etc/modprobe.d/a.conf:2: blacklist rebellions\n/usr/lib/modprobe.d/b.conf:1: options vfio-pci ids=1eff:1250\n"
    )


def test_check_mode_reads_nothing_and_tells_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "/etc/os-release")
    monkeypatch.setattr(collect_module, "run", None)
    monkeypatch.setattr(collect_module.Collector, "_work", None)
    monkeypatch.setattr(collect_module, "be_quiet", None)
    found = collect(PROFILE, Host(str(tmp_path)), {}, LIMITS, dry=True)
    told = {one["name"]: one["state"] for one in found["records"]}
    assert told["system/os-release.txt"] == "value" and told["system/resolv.conf"] == "absent"
    assert {one["size"] for one in found["records"]} == {0} and zlib.decompress(
        base64.b64decode(found["content"])
    ) == b""


def test_a_whole_host_is_packed_without_secrets_and_serials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_module, "be_quiet", lambda: None)
    put(tmp_path, "/etc/environment", "http_proxy=http://joe:n0t-a-Real-one-7@p:1\n")
    put(tmp_path, "/etc/hosts", "192.0.2.1 n0t-a-Real-one-7 7XK2Z13\n")
    put(tmp_path, "/sys/class/dmi/id/product_serial", "7XK2Z13\n")
    put(tmp_path, "/run/rbln/validations/.driver-ctr-ready", "")
    put(tmp_path, "/var/lib/rbln/secure-boot/mok.priv", "-----BEGIN PRIVATE KEY-----")
    found = collect(PROFILE, Host(str(tmp_path)), {}, LIMITS)
    data = zlib.decompress(base64.b64decode(found["content"])).decode()
    assert "joe" not in data and "n0t-a-Real" not in data and "7XK2Z13" not in data and found["serials"] == ["7XK2Z13"]
    assert "192.0.2.1 ******** SERIAL-1" in data and len(data.encode()) == sum(one["size"] for one in found["records"])
    told = {one["name"]: one for one in found["records"]}
    assert told["observation.json"]["state"] == "value" and told["observation.json"]["kind"] == "observation"
    assert told["npu/rbln-smi.json"]["state"] == "absent" and "secure-boot" in data and "BEGIN PRIVATE" not in data
    again = collect(PROFILE, Host(str(tmp_path)), {}, LIMITS, keep_serials=True)
    assert "7XK2Z13" in zlib.decompress(base64.b64decode(again["content"])).decode() and again["serials"] == []


def test_wrong_options_are_one_source_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_module, "be_quiet", lambda: None)
    found = collect(PROFILE, Host(str(tmp_path)), {"nonsense": 1}, LIMITS)
    first = found["records"][0]
    assert (
        first["state"] == "failed" and "'nonsense' is not an option" in first["detail"] and len(found["records"]) > 40
    )


def test_the_observation_gives_units_and_files_of_other_names(tmp_path: Path) -> None:
    put(tmp_path, "/etc/systemd/system/my-containerd.service")
    put(tmp_path, "/etc/systemd/system/rbln-host-cdi.service")
    host = Host(str(tmp_path))
    assert unit_names(PROFILE, host, ["my-containerd.service"]) == ["my-containerd.service", "rbln-host-cdi.service"]
    found = of_host(PROFILE, host, ["my@1.service"], ["/opt/conf.toml"], 10)
    assert "runtime/files/opt_conf.toml" in [one.name for one in found]
    (journal,) = [one for one in found if one.name.startswith("journal/")]
    assert journal.name == "journal/my_1.service.txt" and journal.command[:3] == ("journalctl", "-u", "my@1.service")


def test_serials_are_those_of_npus_and_machine(tmp_path: Path) -> None:
    facts = {"rbln": {"npus": [{"serial": "RB1", "uuid": "u-1234"}, {"serial": None, "uuid": "none"}],
                      "identity": {"system_uuid": "ab12-34"}}}  # fmt: skip
    assert serials_of(Host(str(tmp_path)), facts, "rbln") == ["u-1234", "ab12-34"]


def test_what_a_terminal_obeys_is_taken_out() -> None:
    assert clean_text("a\x1b[31mred\x1b[0m\r\n\tb\x1b]0;title\x07\u202ec\x00") == "ared\n\tbc"


def test_texts_that_became_too_long_by_masks_are_left_out() -> None:
    records = [{"name": name, "source": "", "detail": "", "state": "value", "cut": False} for name in "ab"]
    texts = {"a": "x" * 10, "b": "y" * 10}
    found = finished(records, texts, 15)
    assert [(one["state"], one["size"]) for one in found] == [("value", 10), ("too_large", 0)]
    assert zlib.decompress(base64.b64decode(packed(found, texts))) == b"x" * 10


def test_each_source_is_on_its_page() -> None:
    page = (ROOT / "docs" / "support_bundle.md").read_text(encoding="utf-8")
    section = page.partition("## From a host")[2].partition("\n## ")[0]
    found = of_host(PROFILE, Host("/nowhere"), ["UNIT"], [], 10)
    programs = {os.path.basename(one.command[0]) for one in found if one.command}
    paths = {one.path or one.directory for one in found if one.path or one.directory}
    folders = {one.name.partition("/")[0] for one in found}
    assert len(programs) >= 20 and len(paths) >= 20
    assert [one for one in programs if not re.search(rf"`{re.escape(one)}[ `]", section)] == []
    assert [one for one in paths if one not in section] == []
    assert [one for one in folders if f"| `{one}` |" not in section] == []


def test_no_command_of_a_source_changes_anything() -> None:
    words = {word for one in of_host(PROFILE, Host("/nowhere"), ["UNIT"], [], 10) for word in one.command}
    assert not words & {
        "restart",
        "start",
        "stop",
        "install",
        "remove",
        "--rotate",
        "--vacuum-time",
        "-w",
        "prune",
        "set-ntp",
    }


def test_commands_are_for_real_programs() -> None:
    assert run(("uname", "-a"), 5.0, Keep(1000)).state == "value"
