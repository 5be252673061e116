# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run molecule's scenario of each role; a role without one, and a scenario that reached no host, have failed.

Scenarios run in the checkout, whose lab they use, and find the collection in the staged copy. Hosts are counted in the
play recaps of a scenario's own output, because molecule is content with plays that match no host.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time

from .count import ANSI
from .paths import LOGS, ROOT, STAGED, WORK, environment

RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=\d+\s+unreachable=(\d+)\s+failed=(\d+)", re.M)
NOBODY = re.compile(r"no hosts matched", re.I)


def wanted() -> list[str]:
    """Roles first, then scenarios of no role; an empty list when there are no roles."""
    roles = sorted(p.name for p in (STAGED / "roles").glob("*") if p.is_dir())
    scenarios = sorted(p.parent.name for p in (STAGED / "molecule").glob("*/molecule.yml"))
    return roles + [s for s in scenarios if s not in roles]


def hosts_in(output: str) -> set[str]:
    """Managed hosts that ran at least one task."""
    return {
        m[1] for m in RECAP.finditer(ANSI.sub("", output)) if int(m[2]) > 0 and m[1] not in ("localhost", "127.0.0.1")
    }


def run_scenario(name: str, command: str) -> tuple[set[str], str]:
    """(hosts, reason of failure or empty) of one scenario; streams its output."""
    if not (STAGED / "molecule" / name / "molecule.yml").exists():
        return set(), f"no molecule/{name}/molecule.yml"
    env = environment(
        MOLECULE_EPHEMERAL_DIRECTORY=str(WORK / "molecule" / name),
        MOLECULE_PROJECT_DIRECTORY=str(ROOT),
        ANSIBLE_FORCE_COLOR="0",
        PY_COLORS="0",
    )
    # testinfra asks hosts by the podman on PATH: there the lab's comes first, whose executions cost less.
    env["PATH"] = f"{WORK / 'lab'}{os.pathsep}{env['PATH']}"
    argv = ["molecule", command, "-s", name]
    lines: list[str] = []
    with (LOGS / f"molecule-{name}.log").open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            log.write(line)
            print(line, end="", flush=True)
        code = child.wait()
    output = "".join(lines)
    hosts = hosts_in(output)
    if code:
        return hosts, f"molecule exit {code}"
    if not hosts:
        return hosts, "reached no host"
    if NOBODY.search(output):
        return hosts, "a play matched no host"
    return hosts, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="molecule_all", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scenarios", nargs="*", help="default: every role, then every other scenario")
    parser.add_argument("--command", default="test", help="molecule's subcommand")
    args = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    passed, failures, rows = 0, [], []
    for name in args.scenarios or wanted():
        began = time.monotonic()
        hosts, reason = run_scenario(name, args.command)
        seconds = time.monotonic() - began
        rows.append(f"{'failed: ' if reason else ''}{name}: {len(hosts)} hosts, {seconds:.0f} s, {reason or 'passed'}")
        if reason:
            failures.append(name)
        else:
            passed += len(hosts)
    print("\n".join(rows))
    print(f"{passed} passed, {len(failures)} failed")
    return 0 if passed and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
