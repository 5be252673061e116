# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boundaries attacked: hosts, bundles and clusters that answer with crafted data, and the readers with random text.

Judged is the controller: no file changed outside a run's own, no template of a host ran, no control character on the
screen, no exception that nobody expected, and the honest host of each run ends as it does alone.

    python -m tests.proofs.attack                     seeds of now, printed
    python -m tests.proofs.attack --seed 7 --only "site 17"     one case again, alone
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
import typing as t
from collections import Counter
from pathlib import Path

from tests.proofs._attack_answers import ATTACKS, honest
from tests.proofs._attack_play import BOOKS, Book, Case, Sandbox, collect_honestly, crafted_case, judge, run
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.stage import stage

SEED = 20261129
HOSTS, ROUNDS = (30, 1) if SAMPLE else (60, 3)


def hostile_hosts(part: Part, sandbox: Sandbox, book: Book, seed: int, numbers: t.Sequence[int], show: bool) -> None:
    """One run of a playbook on the honest host alone, and one beside the crafted ones."""
    shutil.rmtree(sandbox.root / "bundles", ignore_errors=True)
    (sandbox.root / "bundles").mkdir()
    alone = run(sandbox, book, [])
    assert alone.code == 0, alone.text[-3000:]
    shutil.rmtree(sandbox.root / "bundles")
    (sandbox.root / "bundles").mkdir()
    cases: list[Case] = [crafted_case(seed, book, number, sandbox.good, sandbox.root) for number in numbers]
    since = time.time()
    done = run(sandbox, book, cases)
    if show:
        print(done.text.encode("ascii", "backslashreplace").decode())
    for text in dict.fromkeys(judge(sandbox, cases, alone, done, since)):
        part.bad("%s, seed %d" % (book, seed), text)
    counts = Counter(case.crafted.attack for case in cases)
    for case in cases:
        crafted = case.crafted
        if case.wrong:
            what = "%s of %s, %.200s" % (crafted.attack, crafted.module, crafted.place)
            again = "again: --seed %d --only '%s %d'" % (seed, book, int(case.name[1:]))
            part.bad(what, "; ".join(dict.fromkeys(case.wrong)) + "; " + again)
        else:
            part.good()
    lacking = set(ATTACKS) - set(counts)
    assert len(numbers) == 1 or not lacking, "no case of %s" % sorted(lacking)
    part.note = ", ".join("%s %d" % item for item in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack the boundaries.")
    parser.add_argument("--seed", type=int, default=SEED if SAMPLE else secrets.randbelow(10**8))
    parser.add_argument("--only", default="", metavar="'BOOK CASE'", help="one case, or all of a book")
    options = parser.parse_args()
    proof = Proof("attack")
    proof.say("seed %d" % options.seed)
    stage()
    with tempfile.TemporaryDirectory(prefix="npu-attack-") as name:
        sandbox = Sandbox(Path(name), honest(Path(name) / "host"))
        collect_honestly(sandbox)
        only, _space, number = options.only.rpartition(" ")
        if not number.isdigit():
            only, number = options.only, ""
        for book in BOOKS:
            if only in ("", str(book)):
                for turn in range(ROUNDS if not number else 1):
                    first = turn * HOSTS
                    numbers = [int(number)] if number else range(first, first + HOSTS)
                    with proof.part("%s, hosts %d to %d" % (book, numbers[0], numbers[-1])) as part:
                        hostile_hosts(part, sandbox, book, options.seed, numbers, bool(number))
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
