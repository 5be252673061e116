# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test on the staged collection with a home of its own and without its bootstrap host.

ansible-test makes a venv per sanity test and fetches pip for it from a host that is no package index. A script of the
same name in its cache, which runs the pip wheel of the index, avoids that.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from .paths import CACHE, STAGED, VENV, WORK, environment

# What Ansible itself loads, and what imports it. Everything else has run beside the same ansible-core in `test-unit`.
LOADED = ("modules", "action", "callback", "filter", "plugin_utils/_answers")

SHIM = """import sys
sys.path.insert(0, {wheel!r})
from pip._internal.cli.main import main
args = [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
if not any(a == "pip" or a.startswith("pip==") for a in args):
    args.append({requirement!r})
sys.exit(main(["install", "--upgrade"] + args))
"""


def unit_tests() -> list[str]:
    """Files, because ansible-test takes no folders."""
    found = [path for name in LOADED for path in sorted((STAGED / "tests/unit/plugins" / name).glob("test_*.py"))]
    return [str(path.relative_to(STAGED)) for path in found]


def pip_version() -> str:
    """The pip that this ansible-test puts into its venvs."""
    source = next(VENV.glob("lib/python3*/site-packages/ansible_test/_internal/python_requirements.py")).read_text(
        encoding="utf-8"
    )
    match = re.search(r"pip='([0-9.]+)'", source)
    if not match:
        raise SystemExit(
            "ansible_test: no pip version in ansible_test/_internal/python_requirements.py. "
            "Next: adapt pip_version() to this ansible-core"
        )
    return match[1]


def lay_shim(home: Path) -> None:
    version = pip_version()
    wheel = CACHE / "wheels" / f"pip-{version}-py3-none-any.whl"
    if not wheel.exists():
        argv = [
            str(VENV / "bin" / "python"),
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            str(wheel.parent),
            f"pip=={version}",
        ]
        subprocess.run(argv, env=environment(), stdin=subprocess.DEVNULL, check=True)
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    text = SHIM.format(wheel=str(wheel), requirement=f"pip=={version}")
    (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="ansible_test", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("command", choices=("sanity", "units"))
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    home = WORK / "home"
    lay_shim(home)
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    args = given.args or (unit_tests() if given.command == "units" else [])
    argv = [str(VENV / "bin" / "ansible-test"), given.command, "--local", "--python", python, "--color", "no", *args]
    return subprocess.run(
        argv, cwd=STAGED, env=environment(HOME=str(home)), stdin=subprocess.DEVNULL, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
