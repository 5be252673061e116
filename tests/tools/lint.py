# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-lint (production profile, offline), yamllint, ruff and mypy on the staged collection.

Counts the files that each one read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .count import ANSI
from .paths import NAME, NAMESPACE, STAGE, STAGED, WORK, environment
from .stage import sources

LINTED = re.compile(r"(\d+) files processed")
TYPED = re.compile(r"no issues found in (\d+) source files")


def run(*argv: str, cwd: Path = STAGED) -> tuple[int, str]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(argv, cwd=cwd, env=environment(), text=True, check=False, **streams)
    print(f"$ {' '.join(argv[:6])}\n{done.stdout.strip()}", flush=True)
    return done.returncode, ANSI.sub("", done.stdout)


def main() -> int:
    names = sources(STAGED)
    code, out = run("ansible-lint", "--offline", "--profile", "production", "--nocolor")
    match = LINTED.search(out)
    results = [("ansible-lint", code, int(match[1]) if match else 0)]
    code = run("yamllint", "--strict", ".")[0]
    results.append(("yamllint", code, sum(n.endswith((".yml", ".yaml")) for n in names)))
    code = run("ruff", "check", "--no-cache", ".")[0]
    results.append(("ruff", code, sum(n.endswith(".py") for n in names)))
    config = str(STAGED / "tests" / "tools" / "mypy.ini")
    package = f"ansible_collections.{NAMESPACE}.{NAME}.plugins"
    code, out = run("mypy", "--config-file", config, "--cache-dir", str(WORK / "mypy"), "-p", package, cwd=STAGE)
    match = TYPED.search(out)
    results.append(("mypy", code, int(match[1]) if match else 0))
    failed = [tool for tool, code, files in results if code or not files]
    for tool, code, files in results:
        print(f"{'failed: ' if tool in failed else ''}{tool}: {files} files, exit {code}")
    print(f"{sum(files for tool, code, files in results if tool not in failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
