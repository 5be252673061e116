# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as Markdown, JUnit and JSON, its files, and its comparison with earlier ones."""

from __future__ import annotations

import copy
import json
import os
import re
import stat
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._report import files, markdown
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.compare import compared, last_looks
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import Document
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.files import (
    Place,
    against_earlier,
    chosen_formats,
    write,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.junit import junit
from ansible_collections.rebellions.npu.tests.unit.fixtures import reports

# What the usual readers of JUnit know: the attributes and children of each element, and of which the first must be.
JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name"}, {"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests"},
        {"name", "hostname", "timestamp", "tests", "failures", "errors", "skipped", "time"},
        {"testcase"},
    ),
    "testcase": (
        {"name", "classname"},
        {"name", "classname", "time"},
        {"failure", "error", "skipped", "system-out"},
    ),
    "failure": ({"message", "type"}, {"message", "type"}, set()),
    "error": ({"message", "type"}, {"message", "type"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
}


def not_junit(element: ET.Element) -> list[str]:
    least, known, children = JUNIT[element.tag]
    wrong = [f"{element.tag} {name}" for name in sorted((least - set(element.attrib)) | (set(element.attrib) - known))]
    wrong += [f"{element.tag}/{child.tag}" for child in element if child.tag not in children]
    return wrong + [one for child in element if child.tag in children for one in not_junit(child)]


@pytest.mark.parametrize("hosts", [0, 12, 64])
def test_junit_has_a_suite_for_each_host_and_a_case_for_each_check(hosts: int) -> None:
    document = reports.example(hosts)
    root = ET.fromstring(junit(document))
    assert not_junit(root) == []
    names_of = [
        *(one["name"] for one in document["hosts"]),
        *(f"cluster {one['name']}" for one in document["clusters"]),
    ]
    assert [suite.get("name") for suite in root] == names_of
    for suite, one in zip(root, document["hosts"]):
        names = [case.get("name") or "" for case in suite]
        assert len(set(names)) == len(names) == int(suite.get("tests") or -1)
        checks = {*one["checks"]["passed"], *(check["id"] for check in one["checks"]["others"])}
        assert checks <= set(names) or one["state"] == "not reached"
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert len(suite.findall(f"testcase/{tag}")) == int(suite.get(attribute) or -1)
    failed = [suite.get("name") for suite in root if suite.get("failures") != "0"]
    assert failed == [
        *(one["name"] for one in document["hosts"] if one["drift"] or one["state"] in ("failed", "unreachable")),
        *(["cluster prod-a"] if hosts else []),
    ]


def test_junit_has_the_drift_of_hosts_and_clusters_and_what_is_not_known() -> None:
    root = ET.fromstring(junit(reports.example(12)))
    host, cluster = root[4], root[12]
    (failure,) = host.findall("testcase[@name='drift/driver']/failure")
    assert failure.get("message") == "3.1.0 -> 3.0.2" and failure.get("type") == "drift"
    assert (failure.text or "").endswith("by a package manager at 2026-11-29T04:11:02Z (/var/log/apt/history.log: "
                                         "apt-get install rebellions-driver=3.0.2, by kim)")  # fmt: skip
    (error,) = host.findall("testcase[@name='drift/firmware']/error")
    assert error.text == "firmware (was 3.1.0)"
    (failure,) = cluster.findall("testcase[@name='drift/ConfigMap npu-system/npu-metrics-config']/failure")
    assert failure.text == "ConfigMap npu-system/npu-metrics-config is missing"
    assert [len(case) for case in cluster.findall("testcase[@name='cluster/asked']")] == [0]


def test_junit_does_not_pass_a_cluster_that_was_not_asked() -> None:
    document = reports.example(1)
    document["clusters"][0].update(drift=[], errors=["It is not reached.", "x"])
    suite = ET.fromstring(junit(document))[1]
    (error,) = suite.findall("testcase[@name='cluster/asked']/error")
    assert error.text == "It is not reached.\nx" and suite.get("errors") == "1"


def test_junit_says_what_to_do() -> None:
    root = ET.fromstring(junit(reports.example(12)))
    suite = root[2]
    (failure,) = suite.findall("testcase[@name='driver/driver_loaded']/failure")
    assert failure.text == f"{reports.REASON} Next: {reports.STEP}"
    (run,) = suite.findall("testcase[@name='host/run']/failure")
    assert (run.get("message") or "").startswith("Driver: ") and run.text == f"{reports.REASON}. Next: {reports.STEP}."
    assert len(suite.findall("testcase[@name='driver/device_nodes']/error")) == 1
    (warning,) = suite.findall("testcase[@name='driver/link_full']/system-out")
    assert (warning.text or "").startswith("warning: ")
    # One that was not reached is neither passed nor failed.
    assert root[9][0].get("name") == "host/reached" and root[9][0][0].tag == "skipped"


def test_junit_passes_no_host_of_which_nothing_is_known_to_be_right() -> None:
    host: Any = reports.one_host(0)
    host.update(state="unknown", reason="The run was aborted while it changed this host.")
    suite = ET.fromstring(junit(reports.of_hosts([host])))[0]
    (error,) = suite.findall("testcase[@name='host/run']/error")
    assert error.get("message") == host["reason"] and suite.get("errors") == "1"
    # A check that is not known says it itself.
    reports._not_passed(host, "driver/link_full", "unknown", "denied", "Run as root.")
    suite = ET.fromstring(junit(reports.of_hosts([host])))[0]
    assert suite.get("errors") == "1" and not suite.findall("testcase[@name='host/run']/error")


def test_junit_says_a_failure_without_a_task_plainly() -> None:
    host: Any = reports.one_host(0)
    host.update(state="failed", failure={"task": "", "cause": "It failed without a message.", "next_step": ""})
    (failure,) = ET.fromstring(junit(reports.of_hosts([host]))).iter("failure")
    assert failure.get("message") == "It failed without a message."


def test_junit_holds_whatever_text() -> None:
    document = reports.example(3)
    document["hosts"][2]["name"] = "a<b>&\"'\u0001\ud800\ufffe"
    root = ET.fromstring(junit(document))
    assert root[2].get("name") == "a<b>&\"'"


@pytest.mark.parametrize("hosts", [0, 1, 3, 64, 1000])
def test_markdown_fits_a_message(hosts: int) -> None:
    text = markdown.markdown(reports.example(hosts))
    assert len(text) <= 3500 and text.startswith("## NPU report: rebellions.npu.site\n")


def test_markdown_names_the_worst_first_and_counts_the_rest() -> None:
    hosts = [reports.one_host(number) for number in range(64)]
    for number, one in enumerate(hosts):
        if number == 40:
            reports.KINDS[7](one)
        else:
            reports.KINDS[2](one)
            one["failure"]["cause"] = f"cause {number} " + "x" * 300  # type: ignore[index]
    text = markdown.markdown(reports.of_hosts(hosts))
    assert len(text) <= 3500 and re.search(r"\n\*\.\.\. and \d+ more in the full report\.\*\n\Z", text)
    assert text.index("**failed** npu-0001") < text.index("**failed** npu-0002")
    assert "**64 hosts: 1 unreachable, 63 failed**" in text


def test_markdown_says_a_cause_that_hosts_share_once_with_its_next_step() -> None:
    hosts = [reports.one_host(number) for number in range(64)]
    for one in hosts:
        reports.KINDS[7](one)
    text = markdown.markdown(reports.of_hosts(hosts, ended="aborted", limit="npu_`nodes`", job="12", check=True))
    assert text.count("cannot be reached") == 1 and "- **unreachable** npu-0001 to npu-0064: the host cannot" in text
    assert "  Next: Correct its address" in text
    assert "**The run was aborted**" in text and "job 12" in text and "(check mode)" in text
    assert "Limited to `npu_nodes`" in text


def test_markdown_replaces_whole_names_of_hosts_alone() -> None:
    hosts: Any = [reports.one_host(number) for number in range(2)]
    for name, one in zip("ab", hosts):
        reports._failed(one)
        told: Any = {
            "task": "Driver",
            "cause": f"Data: {name}.example has {name}.",
            "next_step": f"See {name}-1, {name}.",
        }
        one.update(name=name, failure=told)
    text = markdown.markdown(reports.of_hosts(hosts))
    assert "**failed** a: Data: a.example has a.\n  Next: See a-1, a.\n" in text
    hosts[1]["failure"]["cause"] = "Data: a.example has b."
    hosts[1]["failure"]["next_step"] = "See a-1, b."
    text = markdown.markdown(reports.of_hosts(hosts))
    assert "**failed** a, b: Data: a.example has the host.\n  Next: See a-1, HOST.\n" in text


def test_markdown_of_drift_and_of_what_is_new() -> None:
    text = markdown.markdown(reports.example(12))
    assert "### Drift\n- npu-0005: driver: 3.1.0 -\\> 3.0.2, by a package manager at 2026-11-29T04:11:02Z " in text
    assert "- cluster prod-a: ConfigMap npu-system/npu-metrics-config is missing\n" in text
    assert "### Not known any more\n- npu-0005: firmware \\(was 3.1.0\\)\n" in text
    assert "1 drifted host, 1 drifted object\n" in text
    assert "### Since 2026-11-28T02:00:40Z\n- new: npu-0003 driver/driver\\_loaded\n" in text
    assert "- driver: 3.0.2 -> 3.1.0 on npu-0002, npu-0006\n" in text and "- gone: npu-old-1\n" in text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        # GitHub undoes a backslash before it looks for people and tickets.
        ("ask @kim or #12", "ask \\@\u200bkim or \\#\u200b12"),
        ("see http://x.example/a", "see http\\://x.example/a"),
        ("a: b @ c", "a: b \\@ c"),
    ],
)
def test_markdown_names_nobody_and_no_address_that_a_reader_could_follow(said: str, told: str) -> None:
    assert markdown.escaped(said) == told


def test_markdown_makes_no_link_and_no_mention_of_what_a_host_says() -> None:
    document = reports.example(3)
    document["hosts"][2]["failure"]["cause"] = "@here <img src=x> [a](http://x) `b`"  # type: ignore[index]
    text = markdown.markdown(document)
    assert "\\@\u200bhere \\<img src=x\\> \\[a\\]\\(http\\://x\\) \\`b\\`" in text


def seen(document: Document, number: int) -> Any:
    return document["hosts"][number]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to none"])
def test_an_earlier_report_that_is_no_file_is_passed_over(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "last.json"
    if kind == "pipe":
        os.mkfifo(there)
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to("/dev/null" if kind == "device" else "none")
    assert list(Place(str(tmp_path / "last.html")).earlier()) == []


def test_a_report_says_what_is_new_against_the_last_one() -> None:
    before = reports.of_hosts([reports.one_host(number) for number in range(4)], at="2026-11-28T01:00:00Z")
    now = reports.of_hosts([reports.one_host(number) for number in (0, 1, 2, 5)])
    reports.KINDS[2](seen(now, 1))
    reports.KINDS[2](seen(before, 2))
    found = compared(now, before, last_looks([one["name"] for one in now["hosts"]], [before]))
    told = found["compared"]
    assert told is not None and told["at"] == "2026-11-28T01:00:00Z"
    assert [(one["host"], one["what"]) for one in told["new_failures"]] == [
        ("npu-0002", "driver/driver_loaded"), ("npu-0002", "plugin/node_allocatable"), ("npu-0002", "Driver")
    ]  # fmt: skip
    assert [(one["host"], one["what"]) for one in told["repaired"]] == [
        ("npu-0003", "driver/driver_loaded"), ("npu-0003", "plugin/node_allocatable"), ("npu-0003", "Driver")
    ]  # fmt: skip
    assert [(one["host"], one["before"], one["after"]) for one in told["versions"]] == [
        ("npu-0002", "3.1.0", "3.0.2, not loaded"), ("npu-0003", "3.0.2, not loaded", "3.1.0")
    ]  # fmt: skip
    assert (told["appeared"], told["gone"]) == (["npu-0006"], ["npu-0004"])
    assert (found["summary"]["new_failures"], found["summary"]["repaired"]) == (3, 3)


def test_a_task_with_a_path_in_its_name_is_repaired_too() -> None:
    before, now = (reports.of_hosts([reports.one_host(0)], at=at) for at in ("2026-11-28T01:00:00Z", reports.AT))
    seen(before, 0).update(state="failed", failure={"task": "Copy /etc/motd", "cause": "No room.", "next_step": ""})
    told = compared(now, before, last_looks(["npu-0001"], [before]))["compared"]
    assert told is not None and told["repaired"] == [{"host": "npu-0001", "what": "Copy /etc/motd"}]


def test_a_host_is_compared_with_the_newest_report_that_has_seen_it() -> None:
    old = reports.of_hosts([reports.one_host(number) for number in range(3)])
    seen(old, 1)["versions"]["driver"] = "2.0.0"
    narrow = reports.of_hosts([reports.one_host(0)], limit="npu-0001")
    lost = reports.of_hosts([reports.one_host(number) for number in range(3)])
    for one in lost["hosts"]:
        reports.KINDS[7](one)
    now = reports.of_hosts([reports.one_host(number) for number in range(3)])
    looks = last_looks([one["name"] for one in now["hosts"]], [lost, narrow, old])
    assert looks["npu-0001"] is seen(narrow, 0) and looks["npu-0002"] is seen(old, 1)
    told = compared(now, narrow, looks)["compared"]
    assert told is not None and told["appeared"] == told["gone"] == []
    assert [(one["host"], one["before"]) for one in told["versions"]] == [("npu-0002", "2.0.0")]


def test_a_version_that_is_not_known_now_has_not_changed() -> None:
    before, now = (reports.of_hosts([reports.one_host(0)]) for _time in "ab")
    seen(now, 0)["versions"].update(driver="unknown", firmware="-", kernel="6.8.0-47-generic")
    told = compared(now, before, {"npu-0001": seen(before, 0)})["compared"]
    assert told is not None and [one["what"] for one in told["versions"]] == ["kernel"]


def test_a_check_that_is_not_known_now_is_not_repaired() -> None:
    before, now = (reports.of_hosts([reports.one_host(0)]) for _time in "ab")
    reports.KINDS[2](seen(before, 0))
    reports.KINDS[7](seen(now, 0))
    told = compared(now, before, {"npu-0001": seen(before, 0)})["compared"]
    assert told is not None and told["repaired"] == [] and told["versions"] == []
    assert [one["what"] for one in told["new_failures"]] == ["Observe"]


def test_files_are_written_whole_for_the_owner_and_the_group(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        paths = write(reports.example(3), Place(str(tmp_path / "a" / "b")), ["json", "markdown", "junit"])
    finally:
        os.umask(old)
    assert sorted(Path(path).name for path in paths.values()) == [
        f"20261129T212451Z-rebellions.npu.site-4f01{suffix}" for suffix in (".json", ".md", ".xml")
    ]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in paths.values()] == [0o640] * 3
    assert json.loads(Path(paths["json"]).read_text(encoding="utf-8")) == reports.example(3)
    assert len(os.listdir(tmp_path / "a" / "b")) == 3


def test_one_file_is_replaced_and_compared_with_itself(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "npu.html"))
    first = against_earlier(reports.example(3), place)
    assert first["compared"] == reports.example(3)["compared"]
    write(first, place, ["json", "junit"])
    assert sorted(os.listdir(tmp_path)) == ["npu.json", "npu.xml"]
    again = against_earlier(reports.example(3), Place(str(tmp_path / "npu.html")))["compared"]
    assert again is not None and again["new_failures"] == [] and again["at"] == reports.AT


def test_old_reports_go_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "20200101T000000Z notes.json").write_text("{}")
    (tmp_path / "my.html").write_text("")
    for day in range(1, 6):
        document = reports.example(0)
        document["made"]["at"] = f"2026-11-0{day}T00:00:00Z"
        write(document, Place(str(tmp_path)), ["json", "markdown"], keep=2)
    assert sorted(os.listdir(tmp_path)) == [
        "20200101T000000Z notes.json",
        "20261104T000000Z-rebellions.npu.site-4f01.json", "20261104T000000Z-rebellions.npu.site-4f01.md",
        "20261105T000000Z-rebellions.npu.site-4f01.json", "20261105T000000Z-rebellions.npu.site-4f01.md",
        "my.html",
    ]  # fmt: skip


def test_damaged_reports_are_passed_over(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    write(reports.of_hosts([reports.one_host(0)], at="2026-11-01T00:00:00Z"), place, ["json"])
    for day, text in ((2, "{"), (3, '{"schema": 9}'), (4, ""), (5, "[" * 100000)):
        (tmp_path / f"2026110{day}T000000Z-site-aaaa.json").write_text(text)
    assert [one["made"]["at"] for one in place.earlier()] == ["2026-11-01T00:00:00Z"]


@pytest.mark.parametrize("path", ["/proc/x", "/dev/null/x", "/dev/full/r.json"])
def test_a_place_that_cannot_be_written_to_is_named(path: str) -> None:
    with pytest.raises(NpuError, match=r"The report .* cannot be written: .*Next: Give it a folder"):
        write(reports.example(0), Place(path), ["json"])


def test_formats_are_chosen_by_their_names() -> None:
    assert chosen_formats([" JSON", "html", "json", "", "pdf"]) == (["html", "json"], ["pdf"])
    assert chosen_formats([""]) == chosen_formats([]) == (["html", "json"], [])
    assert list(files.RENDER) == list(files.SUFFIX)


def test_the_example_is_not_changed_by_what_reads_it() -> None:
    document = reports.example(12)
    kept = copy.deepcopy(document)
    for name in ("json", "markdown", "junit"):
        files.RENDER[name](document)
    assert document == kept
