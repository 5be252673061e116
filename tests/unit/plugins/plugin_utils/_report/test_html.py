# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a report as text: what it says, that it is one whole page, and that text of a host stays text."""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._report import html_matrix, html_parts, html_run, svg
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.html import LARGEST, page
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.totals import recounted
from ansible_collections.rebellions.npu.tests.unit.fixtures.reports import example, of_hosts, one_host

# Their end tags may be left out, and the matrix leaves out those of its cells.
OPTIONAL = {"td", "dt", "dd"}
VOID = {"meta", "input", "rect"}
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section", "article", "form",
    "label", "input", "select", "option", "button", "a", "p", "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "div",
    "span", "b", "i", "strong", "code", "bdi", "time", "details", "summary", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "svg", "rect", "script",
}  # fmt: skip
ATTACKS = [
    "</script><script>alert(1)</script>",
    "</style></title><img src=x onerror=alert(1)>",
    "\"' onfocus=alert(1) autofocus x='",
    "\u202e gnp.exe \u2066\x1b[2J\x07\r\n<svg onload=alert(1)>",
    "{{ 7 * 7 }}<!--",
    "\u0645\u0636\u064a\u0641 <b>\u05d0",
    "javascript:alert(1)",
    "x" * 10_000,
]
# Their values are words of the schema.
WORDS = {
    "state", "result", "ended", "source", "disruption", "action", "by", "at", "began", "seen", "what", "id", "wanted",
}  # fmt: skip


class Parsed(HTMLParser):
    """The elements of a page, with what stands in each; an end tag that ends nothing is an error."""

    def __init__(self, page_text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.texts: list[str] = []
        self.feed(page_text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID | OPTIONAL:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in OPTIONAL:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]


def whole(told: str) -> Parsed:
    """What holds for each page, whatever its report says."""
    found = Parsed(told)
    assert found.wrong == [] and found.open == []
    assert {tag for tag, _attrs in found.elements} <= TAGS
    names = [attrs["id"] for _tag, attrs in found.elements if "id" in attrs]
    assert len(names) == len(set(names))
    links = [attrs["href"] for _tag, attrs in found.elements if "href" in attrs]
    assert links and [one for one in links if one[:1] != "#" or one[1:] not in names] == []
    attributes = {name for _tag, attrs in found.elements for name in attrs}
    assert not attributes & {"style", "src", "srcset", "action", "target"}
    assert [name for name in attributes if name.startswith("on")] == []
    assert len(found.all("script")) == len(found.all("style")) == len(found.all("title")) == 1
    return found


def words(found: Parsed) -> str:
    return " ".join(" ".join(found.texts).split())


@pytest.mark.parametrize("hosts", [0, 1, 3, 64])
def test_a_page_is_one_whole_page(hosts: int) -> None:
    found = whole(page(example(hosts)))
    heads = [tag for tag, _attrs in found.elements if tag in ("h1", "h2", "h3")]
    assert heads[0] == "h1" and heads.count("h1") == 1
    assert len(found.all("main")) == len(found.all("header")) - len(found.all("article")) == 1


def test_the_policy_lets_only_our_style_and_script_run() -> None:
    told = page(example(12))
    policy = whole(told).all("meta")[1]["content"].split("; ")
    assert policy[0] == "default-src 'none'" and "form-action 'none'" in policy
    for name in ("style", "script"):
        inner = re.search(f"<{name}>(.*?)</{name}>", told, re.S)
        assert inner is not None
        digest = base64.b64encode(hashlib.sha256(inner[1].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_the_same_report_gives_the_same_page() -> None:
    document = example(12)
    before = copy.deepcopy(document)
    assert page(document) == page(document) and document == before


def told_by(document: Any) -> str:
    return words(whole(page(document)))


def test_each_failure_has_its_cause_and_the_next_step_once_for_all_its_hosts() -> None:
    document = example(1000)
    failed = [one for one in document["hosts"] if one["state"] == "failed"]
    assert len(failed) == 11
    faults = page(document).partition('id="failures"')[2].partition("</section>")[0]
    assert faults.count("does not load: Exec format error") == 1
    assert faults.count("Install linux-headers-6.8.0-45-generic and run site.yml again") == 1
    assert all(f">{one['name']}</a>" in faults for one in failed)
    # A text that has the host's own name is one cause too.
    assert faults.count("HOST cannot be reached: ssh: connect to host HOST port 22") == 1
    alone = page(example(12)).partition('id="failures"')[2].partition("</section>")[0]
    assert "npu-0008 cannot be reached: ssh: connect to host npu-0008 port 22" in alone and "HOST" not in alone


def cell(told: str, host: str, check: str) -> str:
    """What the matrix has for a host and a check."""
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', told.partition('id="grid"')[2])
    names = [re.sub("<[^>]+>", "", one) for one in heads]
    row = re.search(rf"<a href=\"#h\d+\">{host}</a></th>(.*?)</tr>", told)
    assert row is not None
    return re.split(r"<td[^>]*>", row[1])[names.index(check)]


def test_the_matrix_has_each_check_of_each_host() -> None:
    document = example(64)
    told = page(document)
    signs = {"failed": "\u2715", "unknown": "?", "warning": "!", "note": "i"}
    counted = 0
    for host in [*document["hosts"][:13], document["hosts"][40]]:
        for check in host["checks"]["passed"]:
            assert cell(told, host["name"], check) == "\u2713"
        for one in host["checks"]["others"]:
            found = cell(told, host["name"], one["id"])
            there = re.search(r'href="#(h\d+-\d+)" aria-label="([a-z]+)">(.)<', found)
            assert there is not None and (there[2], there[3]) == (one["result"], signs[one["result"]])
            listed = told.partition(f'<li id="{there[1]}"')[2].partition("</li>")[0]
            assert html_parts.text(one["detail"]) in listed and html_parts.text(one["next_step"]) in listed
            counted += 1
    assert counted == 6
    assert "unreachable: no checks" in told


def test_a_check_that_does_not_apply_has_an_empty_cell() -> None:
    first, second = one_host(0), one_host(1)
    second["checks"]["passed"].remove("driver/link_full")
    told = page(of_hosts([first, second]))
    assert cell(told, "npu-0001", "driver/link_full") == "\u2713"
    assert cell(told, "npu-0002", "driver/link_full") == ""


def test_columns_go_by_scope_and_name() -> None:
    host = one_host(0)
    host["checks"]["passed"] = ["toolkit/b", "other", "zone/a", "driver/z", "driver/a", "plugin/c", "cluster/d"]
    found = html_matrix.columns([host])
    order = ["driver/a", "driver/z", "toolkit/b", "plugin/c", "cluster/d", "other", "zone/a"]
    assert [one.id for one in found] == order and all(one.quiet for one in found)


PLANNED: Any = {"text": "driver: 3.0.2 -> 3.1.0", "disruption": "reboot"}
SENTENCES = [
    ({}, {}, "All 3 hosts are as wanted"),
    ({"changed": 2}, {}, "All 3 hosts are as wanted, 2 changed"),
    ({"failed": 1}, {}, "1 of 3 hosts needs attention"),
    ({"unknown": 1, "unreachable": 1}, {}, "2 of 3 hosts need attention"),
    ({"changed": 2}, {"check": True}, "2 of 3 hosts would change"),
    ({"not reached": 2}, {"ended": "aborted"}, "The run was aborted: 2 of 3 hosts not done"),
]


@pytest.mark.parametrize(("states", "made", "told"), SENTENCES)
def test_the_first_sentence_says_how_it_is(states: dict[str, int], made: dict[str, Any], told: str) -> None:
    hosts = [one_host(number) for number in range(3)]
    for host, state in zip(hosts, [state for state, number in states.items() for _time in range(number)]):
        host["state"] = state
    assert f"<h1>{told}</h1>" in page(of_hosts(hosts, **made))


def test_a_host_that_a_run_would_change_or_that_has_drifted_is_not_as_wanted() -> None:
    hosts: Any = [one_host(number) for number in range(3)]
    # What a run was to do, and has done.
    hosts[0].update(state="changed", changes=["driver: 3.0.2 -> 3.1.0"], planned=[PLANNED])
    assert "<h1>All 3 hosts are as wanted, 1 changed</h1>" in page(of_hosts(hosts))
    hosts[1]["planned"], hosts[2]["planned"] = [PLANNED], None
    assert "<h1>1 of 3 hosts would change</h1>" in page(of_hosts(hosts))
    hosts[0].update(state="ok", changes=[])
    assert "<h1>2 of 3 hosts would change</h1>" in page(of_hosts(hosts, check=True))
    hosts[2]["drift"] = [{"what": "kernel", "was": "1", "is": "2", "by": "unknown", "at": "", "evidence": ""}]
    assert "<h1>1 of 3 hosts has drifted</h1>" in page(of_hosts(hosts))
    hosts[1]["drift"] = hosts[2]["drift"]
    assert "<h1>2 of 3 hosts have drifted</h1>" in page(of_hosts(hosts))


def test_a_host_that_was_not_seen_is_not_called_as_wanted() -> None:
    host: Any = one_host(0)
    host.update(pool="", seen="", npus=None, checks={"passed": [], "others": []})
    assert "<h1>Nothing has failed on 2 hosts</h1>" in page(of_hosts([host, one_host(1)]))


def test_no_host_is_said() -> None:
    assert "<h1>The report has no host</h1>" in page(example(0))


def test_what_is_not_known_is_not_zero() -> None:
    host = one_host(0)
    host.update(state="unknown", npus=None, pool="", products={}, seconds=None)
    host["checks"] = {"passed": [], "others": []}
    document = of_hosts([host], source="cache", seconds=None)
    document["compared"] = None
    told = told_by(document)
    assert "NPUs not known" in told and "no pool known" in told and "from cached facts" in told
    assert "Since the last report" not in told and "0 NPUs" not in told


def test_a_cause_is_told_of_a_host_that_no_task_failed_on() -> None:
    host = one_host(0)
    host.update(state="failed", reason="driver/link_full: x8 of x16.")
    host["checks"]["others"] = [
        {"id": "driver/devices", "result": "warning", "detail": "slow", "next_step": ""},
        {"id": "driver/link_full", "result": "failed", "detail": "x8 of x16", "next_step": "Reseat the card."},
        {"id": "driver/numa_known", "result": "failed", "detail": "none", "next_step": ""},
    ]
    faults = page(of_hosts([host])).partition('id="failures"')[2].partition("</section>")[0]
    assert '<p class="why">x8 of x16\n1 more check: failed.</p>' in faults and "<span>Reseat the card.</span>" in faults
    assert ">driver/link_full<" in faults


def test_the_versions_that_are_not_wanted_are_marked() -> None:
    document = example(12)
    told = page(document).partition('id="pools"')[2].partition("</section>")[0]
    marked = re.findall(r'<b class="badge w">not wanted</b> ([^<]+) <', told)
    assert sorted(marked) == ["3.0.2", "3.0.2, not loaded"]


def test_drift_of_clusters_and_what_is_not_known_are_told_beside_that_of_hosts() -> None:
    document = example(12)
    told = told_by(document)
    assert "1 host and 1 object are not as the last report left them." in told
    assert "ConfigMap npu-system/npu-metrics-config prod-a missing" in " ".join(told.split())
    assert "Not known any more" in told and "firmware" in told
    for one in document["hosts"]:
        one.update(drift=[], state="ok", planned=[], changes=[], pool="x", not_known=[])
    found = recounted(document)
    assert "1 object of clusters has drifted" in told_by(found)
    assert "1 object is not as the last report left it." in told_by(found)
    found["clusters"][0]["drift"] = []
    assert "not as the last report left" not in told_by(recounted(found))


def test_drift_names_who_and_by_what_that_is_known() -> None:
    told = told_by(example(12)).partition("as the last report left")[2]
    for word in ("package manager", "person", "/var/log/apt/history.log", "3.1.0 \u2192 3.0.2", "on \u2192 CDI off"):
        assert word in told


def test_a_rollout_has_its_waves_on_one_line_of_time() -> None:
    document = example(64)
    told = page(document).partition('id="rollout"')[2].partition("</section>")[0]
    assert re.findall(r"<strong>(Wave \d+)</strong>", told) == ["Wave 1", "Wave 2", "Wave 3"]
    begun = [one for one in document["waves"] if one["began"]]
    # A line for each node that has begun, and for the two waves of these.
    assert told.count("<rect") == len(begun) + 2
    assert "21:04</time> to" in told and 'class="f"' in told


def test_a_long_rollout_shows_its_waves_alone() -> None:
    document = example(64)
    one = document["waves"][0]
    document["waves"] = [{**one, "wave": 1 + number % 4} for number in range(html_run.NODES + 1)]
    told = page(document).partition('id="rollout"')[2].partition("</section>")[0]
    assert told.count("<rect") == 4 and one["host"] not in told and ">26 done</b>" in told


def test_check_mode_tells_what_would_change() -> None:
    host = one_host(0)
    host["state"] = "changed"
    host["planned"] = [{"text": "driver: 3.0.2 -> 3.1.0", "disruption": "reboot"}]
    told = told_by(of_hosts([host], check=True))
    assert "What a run would change" in told and "driver: 3.0.2 -> 3.1.0 reboots" in told
    assert "Changes of this run" in told_by(of_hosts([host]))


# -- text of others


def attacked(value: Any, attack: str, key: str = "", numbered: list[int] | None = None) -> Any:
    """The same report with the attack in each text that may be any."""
    if isinstance(value, dict):
        free = key in ("products", "drivers")
        return {(name + attack[:200] if free else name): attacked(one, attack, name) for name, one in value.items()}
    if isinstance(value, list):
        return [attacked(one, attack, key) for one in value]
    return value + attack if isinstance(value, str) and key not in WORDS else value


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_text_of_a_host_stays_text(attack: str) -> None:
    # As nobody has judged or cleaned it.
    document = attacked(example(12), attack)
    found = whole(page(document))
    shown = "".join(found.texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page(document))
    if len(attack) < 100 and attack.isprintable():
        assert shown.count(attack) > 100
    values = {name: value for _tag, attrs in found.elements for name, value in attrs.items() if "alert" in value}
    assert set(values) <= {"aria-label", "datetime"}


def test_a_text_too_long_is_cut_and_says_so() -> None:
    assert html_parts.text("<" * 2001) == "&lt;" * 2000 + " \u2026 [cut]"
    assert html_parts.text("<" * 2000) == "&lt;" * 2000


def test_letters_of_another_direction_do_not_turn_a_line_round() -> None:
    assert html_parts.own("\u05d0\u05d1") == "<bdi>\u05d0\u05d1</bdi>"
    assert html_parts.own("a & b") == "a &amp; b"


# -- size


def test_a_thousand_hosts_are_less_than_five_megabytes() -> None:
    assert 1_000_000 < len(page(example(1000)).encode()) < 5_000_000


def test_a_page_too_large_is_made_with_shorter_texts() -> None:
    hosts = [one_host(number) for number in range(400)]
    for host in hosts:
        host["state"] = "failed"
        host["checks"]["others"] = [
            {
                "id": f"driver/fault_{number}",
                "result": "failed",
                "detail": f"{host['name']} {number} " + "detail " * 200,
                "next_step": "step " * 100,
            }
            for number in range(6)
        ]
    told = page(of_hosts(hosts))
    found = whole(told)
    assert len(told) < LARGEST and "Texts are cut after 240 characters" in words(found)
    # Next steps are told once for each check and linked from the other hosts.
    assert told.count(">Next step</a>") == 6 * 399


# -- pieces


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "not known"), (0, "0.0 s"), (9.96, "10 s"), (9.94, "9.9 s"), (59.6, "1 min 00 s"), (134, "2 min 14 s"),
        (3599.6, "1 h 00 min"), (3900, "1 h 05 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, told: str) -> None:
    assert html_parts.duration(seconds) == told


def test_a_text_of_one_host_is_that_of_all_but_for_whole_names() -> None:
    assert html_parts.alike("a.example is lost: Data of a.", "a") == "a.example is lost: Data of HOST."
    assert html_parts.alike("npu-1, npu-10 and x-npu-1", "npu-1") == "HOST, npu-10 and x-npu-1"


def test_numbers_have_their_words() -> None:
    assert [html_parts.many(1, "host"), html_parts.many(1024, "host")] == ["1 host", "1,024 hosts"]


def wides(drawn: str) -> list[float]:
    return [float(one) for one in re.findall(r'width="([\d.]+)"', drawn)]


def test_shares_fill_their_place_and_even_one_of_a_thousand_is_seen() -> None:
    drawn = svg.shares([("k", 999), ("q", 0), ("f", 1)])
    assert re.findall(r'class="(\w)"', drawn) == ["k", "f"]
    first, second = wides(drawn)
    assert 990 < first < 996 and second >= 1.9 and first + second <= svg.WIDE
    assert wides(svg.shares([("k", 3)])) == [svg.WIDE]


def test_bars_and_spans_stay_in_their_place() -> None:
    assert (
        wides(svg.scaled(1, 4)) == [250.0]
        and wides(svg.scaled(0, 4)) == []
        and wides(svg.scaled(0.001, 4)) == [svg.LEAST]
    )
    assert 'x="250.0" width="500.0"' in svg.span(10, 30, 40, "k")
    assert 'x="996.0" width="4.0"' in svg.span(40, 40, 40, "k")
    assert 'x="0.0" width="1000.0"' in svg.span(0, 0, 0, "k")
