# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation site in .work/site/html: README and docs/ as guides, the reference by antsibull-docs.

Every warning of Sphinx is an error. Then each link inside the site is followed, so a page that is renamed or a heading
that is gone is found. The last line is 'N passed, N failed', where a page and a link each count.
"""

from __future__ import annotations

import html.parser
import os
import re
import shutil
import subprocess
import sys
import typing as t
import urllib.parse
from pathlib import Path

import yaml

from .paths import STAGED, WORK, environment

REPOSITORY = "https://github.com/rebellions-npu/rebellions.npu/"
SITE = WORK / "site"
SOURCE, HTML = SITE / "source", SITE / "html"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CONTENTS = re.compile(r"^\.\. contents::\n(?:   :.*\n)*", re.M)
FENCE = re.compile(r"(^```.*?^```$)", re.S | re.M)


def guides(root: Path) -> list[dict[str, t.Any]]:
    """The sections of the site, each with its title and the pages of docs/ without their suffix."""
    sections: list[dict[str, t.Any]] = yaml.safe_load((root / "docs/docsite/guides.yml").read_text(encoding="utf-8"))
    return sections


def target_on_site(page: str, link: str, root: Path) -> str:
    """Where a link of a page (its name below the root) leads on the site; what is not on it is in the repository."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    path, mark, anchor = link.partition("#")
    name = os.path.normpath(os.path.join(os.path.dirname(page), path))
    role = re.fullmatch(r"roles/(\w+)(/README\.md)?", name)
    if name == "README.md":
        place = "index.md"
    elif re.fullmatch(r"docs/\w+\.md", name):
        place = name.removeprefix("docs/")
    elif re.fullmatch(r"docs/images/[\w.-]+", name):
        place = name.removeprefix("docs/")
    elif role:
        return f"{role.group(1)}_role.rst"
    else:
        kind = "tree" if (root / name).is_dir() else "blob"
        return f"{REPOSITORY}{kind}/main/{name}{mark}{anchor}"
    return f"{place}{mark}{anchor}"


def moved(page: str, text: str, root: Path) -> str:
    """The text of a page with its links as the site needs them; what is in a block of code stays."""
    parts = FENCE.split(text)
    for number in range(0, len(parts), 2):
        parts[number] = LINK.sub(lambda m: m[1] + target_on_site(page, m[2], root) + m[3], parts[number])
    return "".join(parts)


def contents(root: Path) -> str:
    """The tables of contents below the text of the first page."""
    out = []
    for section in guides(root):
        out += ["```{toctree}", ":hidden:", f":caption: {section['title']}", "", *section["pages"], "```", ""]
    names = sorted(
        p.stem for p in SOURCE.glob("*.rst") if p.stem.endswith(("_module", "_role", "_filter", "_callback"))
    )
    for title, end in (("Roles", "_role"), ("Modules", "_module"), ("Filters", "_filter"), ("Callbacks", "_callback")):
        found = [f"{name.removesuffix(end)} <{name}>" for name in names if name.endswith(end)]
        if found:
            out += ["```{toctree}", ":hidden:", f":caption: {title}", "", *found, "```", ""]
    out += ["```{toctree}", ":hidden:", ":caption: Reference", "", "changelog", "environment_variables", "```", ""]
    return "\n".join(out)


def write_sources(root: Path = STAGED) -> list[str]:
    """Put guides and reference into SOURCE; the names of the guides. CalledProcessError when the reference fails."""
    shutil.rmtree(SITE, ignore_errors=True)
    SOURCE.mkdir(parents=True, mode=0o755)
    # antsibull-docs refuses a folder that others may write to.
    SOURCE.chmod(0o755)
    subprocess.run(
        [
            *("antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--fail-on-error"),
            *("--no-add-antsibull-docs-version", "--dest-dir", str(SOURCE), "rebellions.npu"),
        ],
        env=environment(),
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (SOURCE / "index.rst").unlink(missing_ok=True)
    # The theme shows what is on a page.
    for page in SOURCE.glob("*.rst"):
        page.write_text(CONTENTS.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
    pages = [page for section in guides(root) for page in section["pages"]]
    for page in pages:
        text = (root / "docs" / f"{page}.md").read_text(encoding="utf-8")
        (SOURCE / f"{page}.md").write_text(moved(f"docs/{page}.md", text, root), encoding="utf-8")
    shutil.copytree(root / "docs" / "images", SOURCE / "images")
    start = moved("README.md", (root / "README.md").read_text(encoding="utf-8"), root)
    (SOURCE / "index.md").write_text(f"{start}\n{contents(root)}", encoding="utf-8")
    return pages


class Page(html.parser.HTMLParser):
    """What a page of the site leads to, and where it can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id" and value:
                self.ids.add(value)
            if key in ("href", "src") and value and tag in ("a", "img", "script", "link"):
                self.links.append(value)


def broken(folder: Path = HTML) -> tuple[int, list[str]]:
    """(links that were followed, those inside the site that lead nowhere)."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    followed, bad = 0, []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            followed += 1
            if not there.exists() or (parts.fragment and there in pages and parts.fragment not in pages[there].ids):
                bad.append(f"{path.relative_to(folder)}: {link}")
    return followed, sorted(set(bad))


def main() -> int:
    try:
        write_sources()
    except subprocess.CalledProcessError as exc:
        print(f"failed: {exc}\n0 passed, 1 failed")
        return 1
    done = subprocess.run(
        [
            *("sphinx-build", "-b", "html", "-q", "-W", "--keep-going", "-j", "2"),
            *("-c", str(STAGED / "docs/docsite"), str(SOURCE), str(HTML)),
        ],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    failures = [line for line in done.stdout.splitlines() if line.strip()] if done.returncode else []
    built = len(list(HTML.glob("*.html"))) if HTML.is_dir() else 0
    followed, bad = broken() if built else (0, ["no page was built"])
    failures += [f"{link}: leads nowhere" for link in bad]
    for failure in failures:
        print(f"failed: {failure}")
    print(f"{built} pages, {followed} links inside the site: {HTML}")
    print(f"{built + followed - len(bad)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
