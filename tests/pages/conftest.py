# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Chromium, started once. The staged tree is the collection that these tests import.

It gets a profile of its own, asks for no network, and every request of a page is noted.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import typing as t
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.tools.paths import STAGE, WORK

if str(STAGE) not in sys.path:
    sys.path.insert(0, str(STAGE))

PICTURES = WORK / "pages"
# By how wide a screen is and by what its owner likes.
VIEWS = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Milliseconds that a busy machine may take.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium() -> t.Iterator[Browser]:
    where = shutil.which("chromium")
    if where is None:
        pytest.fail("chromium is not on PATH. Next: apt-get install chromium, or make packages as root")
    # Playwright makes a new profile, and removes it at the end.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=QUIET)
        yield browser
        browser.close()


class Shown(t.NamedTuple):
    """A page in a view, and what it has asked for and complained of: both are to stay empty."""

    page: Page
    requests: list[str]
    complaints: list[str]


class Show(t.Protocol):
    def __call__(self, where: Path, view: str = "desktop", scheme: str = "light", **more: t.Any) -> Shown: ...


@pytest.fixture
def show(chromium: Browser) -> t.Iterator[Show]:
    """Opens a file. At the end of the test the page may have asked for nothing, and complained of nothing."""
    opened: list[Shown] = []
    with contextlib.ExitStack() as stack:

        def open_page(where: Path, view: str = "desktop", scheme: str = "light", **more: t.Any) -> Shown:
            phone = view == "phone"
            context = chromium.new_context(
                viewport=VIEWS[view], color_scheme=scheme, has_touch=phone, is_mobile=phone, **more
            )
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            found = Shown(page, [], [])
            opened.append(found)
            page.on("request", lambda one: found.requests.append(one.url))
            page.on("console", lambda one: found.complaints.append(one.text))
            page.on("pageerror", lambda one: found.complaints.append(str(one)))
            page.goto(where.as_uri())
            assert found.requests == [where.as_uri()]
            found.requests.clear()
            return found

        yield open_page
        for one in opened:
            assert one.requests == [] and one.complaints == []


def picture(page: Page, name: str, most: int) -> Path:
    """What the page looks like, kept for people: at most its first `most` pixels."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    size = page.viewport_size
    assert size is not None
    # What is out of sight is not laid out: the window grows to the page.
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": min(whole, most)})
    page.wait_for_timeout(150)
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path)
    page.set_viewport_size(size)
    return path
