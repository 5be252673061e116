# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make docs/images/report.png: the top of a report's page, of a report in JSON that is named, or of an example."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from .paths import ROOT, STAGE

PICTURE = ROOT / "docs" / "images" / "report.png"
VIEW = {"width": 1360, "height": 1440}
LARGEST = 150_000


def main() -> int:
    sys.path.insert(0, str(STAGE))
    from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import judged
    from ansible_collections.rebellions.npu.plugins.plugin_utils._report.html import page
    from ansible_collections.rebellions.npu.tests.unit.fixtures.reports import example

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("report_picture: chromium is not on PATH. Next: apt-get install chromium")
    report = judged(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))) if sys.argv[1:] else example(8)
    PICTURE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        told = Path(folder, "report.html")
        told.write_text(page(report), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox"])
        shown = browser.new_page(viewport=VIEW, color_scheme="light", device_scale_factor=0.75)
        shown.goto(told.as_uri())
        shown.screenshot(path=PICTURE)
        browser.close()
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size} bytes")
    if size > LARGEST:
        sys.exit(f"report_picture: it has more than {LARGEST} bytes. Next: take a report of fewer hosts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
