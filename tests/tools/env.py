# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build what the checkout's tools need in .work: two venvs and the collections we depend on. Runs on any Python >= 3.8.

A part is built again when its inputs change (stamp by content hash). Downloads are kept in the cache folder. With
--newest-alone there is neither a venv of the oldest ansible-core nor awx.awx, which tests need and the demo does not.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.tools.paths import CACHE, COLLECTIONS, OLD_VENV, TOOLS, VENV, WORK, Missing, environment  # noqa: E402
from tests.tools.ticking import ticking  # noqa: E402

PROBE = "import ensurepip, ssl, sys, venv; print('%d.%d.%d' % sys.version_info[:3])"
NEWEST = ("3.12", "3.13", "3.14", "3.11")
OLDEST = ("3.12", "3.11", "3.10")


def candidates(minor: str) -> list[str]:
    """Every interpreter of one minor version: the one asked for by PYTHON, PATH, then pyenv's."""
    found = [os.environ.get("PYTHON", ""), shutil.which("python" + minor) or "", shutil.which("python3") or ""]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found += [str(p / "bin" / ("python" + minor)) for p in sorted(pyenv.glob("versions/%s.*" % minor), reverse=True)]
    return [f for f in found if f]


def version_of(python: str) -> str | None:
    """The version of an interpreter that can make a venv, else None.

    A pyenv shim of a version that is not selected gives None.
    """
    try:
        out = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return None
    return out.stdout.strip() if out.returncode == 0 else None


def find_python(minors: tuple[str, ...]) -> tuple[str, str]:
    """(path, version) of the first usable interpreter in order of preference."""
    for minor in minors:
        for python in candidates(minor):
            version = version_of(python)
            if version and version.startswith(minor + "."):
                return python, version
    raise Missing(
        "No Python of version %s with the venv, ensurepip and ssl modules on PATH or in pyenv. "
        "Debian and Ubuntu: apt-get install python3 python3-venv; else: pyenv install 3.12"
        % " or ".join(sorted(minors))
    )


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def fresh(folder: Path, stamp: str) -> bool:
    try:
        return (folder / ".stamp").read_text(encoding="utf-8") == stamp
    except OSError:
        return False


def run(argv: list[str], what: str, seconds: int = 10) -> None:
    """Run one download or install that usually takes so long; the error names what failed and where its output is."""
    log = WORK / "logs" / "env.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as out:
        out.write("\n$ %s\n" % " ".join(argv))
        out.flush()
        with ticking("env: " + what, seconds):
            code = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment(), check=False
            ).returncode
    if code:
        tail = "\n".join("    " + line for line in log.read_text(encoding="utf-8").splitlines()[-8:])
        raise Missing(
            "%s failed (exit %d):\n%s\nNext: see %s; pip needs to reach PyPI or the index in PIP_INDEX_URL"
            % (what, code, tail, log)
        )


def build_venv(folder: Path, requirements: Path, minors: tuple[str, ...]) -> str:
    python, version = find_python(minors)
    stamp = digest(requirements.read_text(encoding="utf-8"), version, str(folder))
    if fresh(folder, stamp):
        return version
    if not (folder / "bin" / "python").exists() or version_of(str(folder / "bin" / "python")) != version:
        run([python, "-m", "venv", "--clear", str(folder)], "Making the venv %s" % folder.name)
    run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements)],
        "Installing %s" % requirements.name,
        60,
    )
    (folder / ".stamp").write_text(stamp, encoding="utf-8")
    return version


def wheels_of(listing: Path) -> list[tuple[str, list[str]]]:
    """Each wheel of the list, such as `ansible==14.5.0`, with the trees that are taken out of it."""
    found: list[tuple[str, list[str]]] = []
    for line in listing.read_text(encoding="utf-8").splitlines():
        if "==" in line:
            found.append((line.strip(), []))
        elif line.strip() and not line.startswith("#"):
            found[-1][1].append(line.strip())
    return found


def download(wanted: str) -> Path:
    """The wheel, from the cache if it is there. Its metadata asks for a newer Python than its trees do."""
    wheels = CACHE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / ("ansible-%s-py3-none-any.whl" % wanted.split("==")[1])
    if not wheel.exists():
        pip = [
            str(VENV / "bin" / "python"),
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.13",
        ]
        run([*pip, "-d", str(wheels), wanted], "Downloading %s" % wanted, 20)
    return wheel


def unpack_collections(listing: Path, first_alone: bool = False) -> int:
    """Unpack the listed trees, or those of the first wheel alone; more than that may be there already."""
    every = wheels_of(listing)
    taken = every[:1] if first_alone else every
    stamps = [digest(*(text for wheel, trees in part for text in (wheel, *trees))) for part in (taken, every)]
    count = sum(len(trees) for _wheel, trees in taken)
    if any(fresh(COLLECTIONS, stamp) for stamp in stamps):
        return count
    wheels = [(download(wanted), trees) for wanted, trees in taken]
    shutil.rmtree(COLLECTIONS, ignore_errors=True)
    for wheel, trees in wheels:
        prefixes = tuple("ansible_collections/%s/" % tree for tree in trees)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(COLLECTIONS, [n for n in archive.namelist() if n.startswith(prefixes)])
        for prefix in prefixes:
            if not (COLLECTIONS / prefix / "MANIFEST.json").exists():
                raise Missing("%s has no tree %s. Next: correct %s" % (wheel, prefix, listing))
    (COLLECTIONS / ".stamp").write_text(stamps[0], encoding="utf-8")
    return count


def main() -> int:
    began = time.monotonic()
    WORK.mkdir(exist_ok=True)
    with (WORK / "env.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            new = build_venv(VENV, TOOLS / "venv.txt", NEWEST)
            old = "" if "--newest-alone" in sys.argv else build_venv(OLD_VENV, TOOLS / "venv-2.16.txt", OLDEST)
            trees = unpack_collections(TOOLS / "collections.txt", first_alone="--newest-alone" in sys.argv)
        except Missing as exc:
            print("env: %s" % exc, file=sys.stderr)
            return 1
    told = ", venv-2.16 Python " + old if old else ""
    print("env: venv Python %s%s, %d collections, %.1f s" % (new, told, trees, time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
