# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a report as a person has it before them: size and speed, keys, a finger, a screen reader, paper."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from .conftest import VIEWS, Show, picture

SIZES = (3, 64, 1000)
# The fewest hosts that are in all states.
MIXED = 12
# What an A4 page holds between its margins.
PAPER = {"width": 703, "height": 1000}
# Processor seconds until a page of a thousand hosts is painted, of the three that a person may wait. It takes 0.3, and
# 2.6 where all rows are laid out.
LOADED = 1.0
PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._report.html import page
    from ansible_collections.rebellions.npu.tests.unit.fixtures.reports import example

    folder = tmp_path_factory.mktemp("pages")
    documents = {hosts: example(hosts) for hosts in (*SIZES, MIXED)}
    # The checker looks at each cell, and those that have passed are alike.
    for host in documents[MIXED]["hosts"]:
        host["checks"]["passed"] = host["checks"]["passed"][:12]
    for hosts, document in documents.items():
        (folder / f"{hosts}.html").write_text(page(document), encoding="utf-8")
    return {hosts: folder / f"{hosts}.html" for hosts in documents}


def findings(page: Page) -> list[str]:
    """What the accessibility checker finds: rule, and the element that breaks it."""
    # Of what is good one example for each rule is enough.
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response
    assert len(found["passes"]) > 20
    return [
        "%s: %s: %s" % (one["id"], node["html"][:200], node["failureSummary"])
        for one in found["violations"]
        for node in one["nodes"]
    ]


def visible(page: Page, query: str) -> int:
    told = "query => [...document.querySelectorAll(query)].filter(one => !one.hidden).length"
    return t.cast(int, page.evaluate(told, query))


@pytest.mark.parametrize("hosts", SIZES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_one_column_and_its_picture_is_kept(
    pages: dict[int, Path], show: Show, hosts: int, view: str, scheme: str
) -> None:
    page = show(pages[hosts], view, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") == VIEWS[view]["width"]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    assert dark is (scheme == "dark")
    assert picture(page, f"report-{hosts}-{view}-{scheme}", 1600 if hosts == 1000 else 3600).stat().st_size > 20_000


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_accessibility_checker_finds_nothing(pages: dict[int, Path], show: Show, view: str, scheme: str) -> None:
    page = show(pages[MIXED], view, scheme).page
    page.evaluate("for (const one of document.querySelectorAll('.fold, .fold .host:first-child')) one.open = true")
    page.locator("#grid td.f a").first.focus()
    assert page.locator("#tip").is_visible()
    assert findings(page) == []


def test_the_accessibility_checker_finds_nothing_without_the_script(pages: dict[int, Path], chromium: t.Any) -> None:
    told = pages[3].read_text(encoding="utf-8")
    context = chromium.new_context()
    # The checker is a script itself: ours is taken out of the page instead.
    page = context.new_page()
    page.set_content(re.sub("<script>.*</script>", "", told, flags=re.S))
    assert page.locator(".filter").is_hidden() and findings(page) == []
    context.close()


def test_a_thousand_hosts_are_there_at_once(pages: dict[int, Path], show: Show) -> None:
    assert pages[1000].stat().st_size < 5_000_000
    found = show(pages[1000])
    page = found.page
    # Processor seconds of the page's thread: others use the machine too.
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.reload()
    page.evaluate(PAINTED)
    found.requests.clear()
    told = {one["name"]: one["value"] for one in browser.send("Performance.getMetrics")["metrics"]}
    print("1000 hosts: %d bytes, %.2f s" % (pages[1000].stat().st_size, told["TaskDuration"]))
    assert 0.05 < told["TaskDuration"] < LOADED
    assert page.locator("#grid tbody tr").count() == 1000 and page.locator(".host").count() == 1000
    page.locator("#find").fill("npu-0975 nobody")
    expect(page.locator("#shown")).to_have_text("0 of 1000 hosts")
    page.locator("#find").fill("npu-0975")
    expect(page.locator("#shown")).to_have_text("1 of 1000 hosts")


def test_all_can_be_read_without_the_script(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[64], java_script_enabled=False).page
    assert page.locator("#filter").is_hidden() and page.locator("#failures .fault").count() == 4
    cell = page.locator("#grid td.f a").first
    there = cell.get_attribute("href")
    cell.click()
    # The link opens what it leads to.
    assert page.locator(there).is_visible() and "Next" in page.locator(there).inner_text()
    page.locator("#hosts .fold > summary").click()
    assert page.locator("#hosts .fold .host").first.is_visible()
    # A column can be left out without it too.
    page.locator("#only").check()
    assert page.locator("#grid thead th").filter(visible=True).count() < 12


def test_keys_show_the_reason_of_each_cell_that_has_one(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[64]).page
    page.locator("#grid").focus()
    page.keyboard.press("Tab")
    tip = page.locator("#tip")
    # Of host 0 in the order of columns: nodes, driver, link, allocatable. Host 3 has one, host 6 too.
    went = []
    for key in (*["ArrowRight"] * 4, *["ArrowDown"] * 2, "ArrowUp", "Home", "End", "ArrowLeft"):
        went.append(page.evaluate("document.activeElement.getAttribute('href')"))
        page.keyboard.press(key)
    went.append(page.evaluate("document.activeElement.getAttribute('href')"))
    assert went == ["#h0-1", "#h0-0", "#h0-2", "#h0-3", "#h3", "#h6-0", "#h6-0", "#h3-0", "#h0-1", "#h6-0", "#h6"]
    # A second Tab leaves the matrix.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#grid')") is None
    page.locator('#grid a[href="#h0-0"]').focus()
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    said = tip.inner_text()
    assert "driver/driver_loaded" in said and "failed on npu-0003" in said and "disagrees about version" in said
    assert "Next: Install linux-headers" in said
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("Enter")
    expect(page.locator("#h0-0")).to_be_focused()


def test_a_pointer_shows_the_reason_and_may_go_over_it(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[64]).page
    cell, tip = page.locator("#grid td.w a").first, page.locator("#tip")
    # A page that scrolls hides the reason.
    cell.scroll_into_view_if_needed()
    page.evaluate(PAINTED)
    cell.hover()
    expect(tip).to_contain_text("warning on")
    box = tip.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= VIEWS["desktop"]["width"]
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.wait_for_timeout(400)
    assert tip.is_visible()
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    page.locator("#grid tbody tr").nth(8).locator("td.k").first.hover()
    expect(tip).to_contain_text("passed on npu-0004")


def test_a_finger_sees_the_reason_first(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[64], "phone").page
    cell = page.locator("#grid td.f a").first
    cell.tap()
    expect(page.locator("#tip")).to_be_visible()
    assert not page.evaluate("location.hash")
    cell.tap()
    expect(page).to_have_url(re.compile("#h0-"))


def test_the_filter_leaves_what_was_asked_for(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[64]).page

    def left(hosts: int) -> tuple[int, int, int]:
        # It waits until a key has not been pressed for a while.
        expect(page.locator("#shown")).to_have_text(f"{hosts} of 64 hosts" if hosts < 64 else "64 hosts")
        return visible(page, ".host"), visible(page, "#grid tbody tr"), visible(page, ".fault")

    assert left(64) == (64, 64, 4)
    page.locator("#find").fill("disagrees VERSION")
    assert left(1) == (1, 1, 1)
    page.locator("#find").fill("disagrees nowhere")
    assert left(0) == (0, 0, 0)
    page.get_by_role("button", name="Show all").click()
    assert left(64) == (64, 64, 4)
    page.locator("#by-state").select_option("unreachable")
    assert left(1) == (1, 1, 1)
    page.get_by_role("button", name="Show all").click()
    assert left(64) == (64, 64, 4)
    page.locator("#by-check").select_option("driver/link_full")
    assert left(1) == (1, 1, 1) and page.locator("#grid tr:not([hidden]) td.w").count() == 1
    page.get_by_role("button", name="Show all").click()
    assert left(64) == (64, 64, 4)
    page.locator("#by-pool").select_option(index=1)
    assert left(21)[:2] == (21, 21)
    page.get_by_role("button", name="Show all").click()
    assert left(64) == (64, 64, 4)
    # The big numbers are its buttons too, and what is found among the quiet hosts comes into view.
    tile = page.get_by_role("button", name="changed")
    tile.press("Space")
    assert left(2) == (2, 2, 0) and tile.get_attribute("aria-pressed") == "true"
    assert page.locator(".host:not([hidden])").first.is_visible()
    tile.click()
    assert left(64) == (64, 64, 4)


def test_a_next_step_is_copied(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[3], permissions=["clipboard-read", "clipboard-write"]).page
    page.get_by_role("button", name="Copy the next step").first.click()
    expect(page.locator("#told")).to_have_text("The next step is copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("Install linux-headers-")


def test_a_page_prints_light_with_its_faults_open_and_without_what_paper_cannot_do(
    pages: dict[int, Path], show: Show, tmp_path: Path
) -> None:
    page = show(pages[64], scheme="dark").page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#filter").is_hidden() and page.locator(".copy").first.is_hidden()
    assert page.locator('.host[data-state="q"] .body').first.is_visible()
    # Nothing is wider than the paper, but for what rounding adds.
    page.set_viewport_size(PAPER)
    page.wait_for_function("innerWidth == %d" % PAPER["width"])
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER["width"] + 2
    assert page.evaluate("getComputedStyle(document.getElementById('grid')).maxHeight") == "none"
    paper = page.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    assert paper.startswith(b"%PDF") and 3 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 20


def test_names_and_versions_without_a_break_fit_on_paper(pages: dict[int, Path], show: Show, tmp_path: Path) -> None:
    long = tmp_path / "long.html"
    text = pages[64].read_text(encoding="utf-8")
    assert "_k5_15_0_122_generic" in text and "3.0.2" in text
    text = text.replace("_k5_15_0_122_generic", "_k5_15_0_122_generic" + "_of_the_vendor" * 6)
    long.write_text(text.replace("3.0.2", "3.0.2+build.20260101.abcdef0123456789"), encoding="utf-8")
    page = show(long).page
    page.emulate_media(media="print")
    page.set_viewport_size(PAPER)
    page.wait_for_function("innerWidth == %d" % PAPER["width"])
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER["width"] + 2


def test_who_wants_no_motion_gets_none(pages: dict[int, Path], show: Show) -> None:
    page = show(pages[3], reduced_motion="reduce").page
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


@pytest.mark.parametrize(
    "attack", ["</script><script>document.title='owned'</script>", "<img src=//x.example/y onerror=alert(1)>"]
)
def test_text_of_a_host_runs_nothing_and_asks_for_nothing(show: Show, tmp_path: Path, attack: str) -> None:
    from ansible_collections.rebellions.npu.plugins.plugin_utils._report.html import page as render
    from ansible_collections.rebellions.npu.tests.unit.fixtures.reports import example

    document = example(12)
    for host in document["hosts"]:
        host["reason"] = host["versions"]["driver"] = attack
        for one in host["checks"]["others"]:
            one["detail"] = one["next_step"] = attack
    (tmp_path / "attack.html").write_text(render(document), encoding="utf-8")
    page = show(tmp_path / "attack.html").page
    page.locator("#grid td.f a").first.focus()
    assert attack in page.locator("#tip").inner_text()
    assert "owned" not in page.title() and page.locator("img").count() == 0


def test_a_policy_stands_behind_the_escaping(pages: dict[int, Path], show: Show, tmp_path: Path) -> None:
    """What came through all the same would not run."""
    told = pages[3].read_text(encoding="utf-8")
    bad = "<script>document.title='owned'</script><img src=data: onerror=\"document.title='owned'\">"
    (tmp_path / "bad.html").write_text(told.replace("<footer>", bad + "<footer>"), encoding="utf-8")
    found = show(tmp_path / "bad.html")
    found.page.wait_for_timeout(200)
    assert "owned" not in found.page.title()
    assert any("Content Security Policy" in one for one in found.complaints)
    found.complaints.clear()
    found.requests.clear()
