# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make release-check`: may the last commit be published? One row for each check, with the next step where it fails.

With --quick only what must hold for every commit: the changelog, the tarball and what Galaxy's importer says of it
without its linters, which are left to the layer lint. The whole also asks for a clean tree, a tag and no waiting
fragments, runs ansible-test on every ansible-core and the documentation, and at last the demo with the collection that
is installed from the tarball. The last line is 'N passed, N failed'.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

import yaml

from .build import DIST, git, release, sha256
from .paths import COLLECTIONS, ROOT, STAGED, WORK, Missing, environment

INSTALLED = WORK / "release"
# Style of another formatter than ours; and the importer reads the documentation of filters, which is YAML, as Python.
STYLE = re.compile(r"\b(?:E203|W503)\b|\.yml:\d+:\d+: E999\b")
# The importer's linter has no other collection, and does not find playbooks by their full names. The layer lint has and
# does, so that here it only counts whether such a playbook is in the tarball.
OTHERS = re.compile(r"couldn't resolve module/action 'awx\.awx\.\w+'")
PLAYBOOK = re.compile(r"Failed to find rebellions\.npu\.(\w+) playbook")
IMPORTER = """[galaxy-importer]
CHECK_REQUIRED_TAGS = True
CHECK_CHANGELOG = True
RUN_ANSIBLE_DOC = True
RUN_ANSIBLE_LINT = %s
RUN_FLAKE8 = %s
"""


@dataclass(frozen=True)
class Row:
    good: bool
    told: str
    following: str = ""


Check = t.Callable[[], Row]


def ran(*argv: str, cwd: Path = ROOT, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def last(text: str, lines: int = 3) -> str:
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])


def version(root: Path) -> str:
    found = re.search(r"^version: *[\"']?([^\"'\s]+)", (root / "galaxy.yml").read_text(encoding="utf-8"), re.M)
    if not found:
        raise Missing("galaxy.yml has no version. Next: write one")
    return found[1]


def clean(root: Path = ROOT) -> Row:
    changed = git("status", "--porcelain", root=root).decode().splitlines()
    return Row(not changed, "%d files differ from the last commit" % len(changed), "commit them, or take them away")


def tagged(root: Path = ROOT) -> Row:
    wanted, tags = version(root), git("tag", "--points-at", "HEAD", root=root).decode().split()
    good = wanted in tags or "v%s" % wanted in tags
    told = "galaxy.yml has %s, the last commit has %s" % (wanted, ", ".join(tags) or "no tag")
    wrong = [tag for tag in tags if re.fullmatch(r"v?\d+\.\d+\.\d+\S*", tag) and tag.lstrip("v") != wanted]
    return Row(good and not wrong, told, "git tag -s %s, or correct the version in galaxy.yml" % wanted)


def fragments(root: Path = ROOT) -> Row:
    waiting = sorted(path.name for path in (root / "changelogs" / "fragments").glob("*.yml"))
    return Row(not waiting, "%d fragments are not in CHANGELOG.md" % len(waiting), "make changelog, and commit")


def changelog(root: Path = STAGED) -> Row:
    code, out = ran("antsibull-changelog", "lint", cwd=root)
    if code:
        return Row(False, last(out), "correct the fragment that is named")
    wanted = version(root)
    known = yaml.safe_load((root / "changelogs/changelog.yaml").read_text(encoding="utf-8"))["releases"]
    page = (root / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")
    good = wanted in known and "## v%s\n" % wanted in page
    return Row(good, "%s in changelog.yaml and CHANGELOG.md" % wanted, "make changelog")


def build() -> Row:
    tarball, files = release()
    first = sha256(tarball.read_bytes())
    again, _files = release()
    same = first == sha256(again.read_bytes())
    return Row(same and files > 300, "%s, %d files, the same bytes twice" % (tarball.name, files), "make build")


def tarball() -> Path:
    found = sorted(DIST.glob("rebellions-npu-*.tar.gz"))
    if len(found) != 1:
        raise Missing("%s has %d tarballs. Next: make build" % (DIST, len(found)))
    return found[0]


def installs() -> Row:
    shutil.rmtree(INSTALLED, ignore_errors=True)
    code, out = ran(
        *("ansible-galaxy", "collection", "install", "--offline", "-p", str(INSTALLED), str(tarball())),
        ANSIBLE_COLLECTIONS_PATH=str(INSTALLED),
    )
    there = INSTALLED / "ansible_collections/rebellions/npu/MANIFEST.json"
    if code or not there.is_file():
        return Row(False, last(out), "make build, and install it by hand")
    told = json.loads(there.read_text(encoding="utf-8"))["collection_info"]["version"]
    return Row(told == version(ROOT), "version %s is installed" % told, "correct the version in galaxy.yml")


def importer(lint: bool) -> Check:
    """What Galaxy says when a tarball is uploaded; its linters are those of the layer lint."""

    def run() -> Row:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "importer.cfg"
            config.write_text(IMPORTER % (lint, lint), encoding="utf-8")
            argv = (sys.executable, "-m", "galaxy_importer.main", str(tarball()))
            code, out = ran(*argv, cwd=Path(folder), GALAXY_IMPORTER_CONFIG=str(config))
        return imported(code, out, lint)

    return run


def known(line: str) -> bool:
    """Whether a warning of the importer is none of a fault."""
    book = PLAYBOOK.search(line)
    there = bool(book and (ROOT / "playbooks" / ("%s.yml" % book[1])).is_file())
    return there or bool(STYLE.search(line) or OTHERS.search(line))


def imported(code: int, out: str, lint: bool) -> Row:
    """The row for what the importer has printed."""
    warned = [line for line in out.splitlines() if line.startswith(("WARNING", "ERROR")) and not known(line)]
    ended = "Importer processing completed successfully" in out and ("ansible-lint run complete" in out) == lint
    kinds = collections.Counter(line.rpartition(": ")[2][:60] for line in warned)
    told = "; ".join("%d x %s" % (count, kind) for kind, count in kinds.most_common(5)) or last(out, 1)
    return Row(code == 0 and ended and not warned, told, "python -m galaxy_importer.main .work/dist/*.tar.gz")


def layer(*names: str) -> Check:
    def run() -> Row:
        code, out = ran(sys.executable, "-m", "tests.tools.layers", *names)
        return Row(code == 0, last(out, 1), "make %s" % " ".join(names))

    return run


def demo() -> Row:
    env = {**os.environ, "YES": "1", "VM": "0", "DEMO_COLLECTIONS": "%s%s%s" % (INSTALLED, os.pathsep, COLLECTIONS)}
    try:
        done = subprocess.run(["make", "demo"], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
    finally:
        undone = subprocess.run(["make", "demo-down"], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
    told = "demo ended with %d, demo-down with %d" % (done.returncode, undone.returncode)
    return Row(done.returncode == undone.returncode == 0, told, "make demo, and read .work/logs/demo.log")


ALWAYS: tuple[tuple[str, Check], ...] = (
    ("changelog", changelog),
    ("build", build),
    ("install", installs),
    ("importer", importer(lint=False)),
)
AT_RELEASE: tuple[tuple[str, Check], ...] = (
    ("clean tree", clean),
    ("tag is version", tagged),
    ("no fragments", fragments),
    *ALWAYS[:-1],
    ("importer", importer(lint=True)),
    ("ansible-test", layer("sanity", "units")),
    ("docs", layer("docs")),
    ("demo of the tarball", demo),
)


def table(checks: t.Sequence[tuple[str, Check]]) -> int:
    """Run the checks, show a row for each as it ends, and give the exit code."""
    failed = 0
    for name, check in checks:
        began = time.monotonic()
        try:
            row = check()
        except (Missing, OSError) as exc:
            row = Row(False, str(exc))
        failed += not row.good
        following = ". Next: %s" % row.following if row.following and not row.good else ""
        word = "ok" if row.good else "FAILED"
        print("%-20s %-7s %4.0f s  %s%s" % (name, word, time.monotonic() - began, row.told, following), flush=True)
    print("%d passed, %d failed" % (len(checks) - failed, failed))
    return 1 if failed else 0


def main(argv: t.Sequence[str]) -> int:
    if argv not in ([], ["--quick"]):
        print("unknown: %s. Next: --quick, or nothing" % " ".join(argv), file=sys.stderr)
        return 2
    return table(ALWAYS if argv else AT_RELEASE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
