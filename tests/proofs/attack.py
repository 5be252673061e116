# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boundaries attacked: hosts, bundles and clusters that answer with crafted data, and the readers with random text.

Judged is the controller: no file changed outside a run's own, no template of a host ran, no control character on the
screen, no exception that nobody expected, and the honest host of each run ends as it does alone.

    python -m tests.proofs.attack                              a seed of now, which is printed
    python -m tests.proofs.attack --seed 7 --only "site 17"    one case again, alone
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import sys
import tempfile
import time
import typing as t
from collections import Counter
from pathlib import Path

from tests.proofs import fuzz
from tests.proofs._attack_answers import ATTACKS, Targets, honest
from tests.proofs._attack_bundle import one_archive, one_manifest
from tests.proofs._attack_cluster import one_claim, one_pass
from tests.proofs._attack_faults import transaction, writer
from tests.proofs._attack_play import BOOKS, Book, Case, Sandbox, collect_honestly, crafted_case, judge, run
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.proofs.secrets import hunted
from tests.tools.packages import advice, missing

SEED = 20261129
# Hosts of each run of a playbook, and runs.
HOSTS, ROUNDS = 48, 2
SAMPLED = {"discover": 30, "site": 12, "bundle": 14, "validate": 8}
# Cases of the sample, and of the whole proof.
COUNTS = {
    "archives": (60, 3000),
    "manifests": (200, 10000),
    "clusters": (25, 1000),
    "claims": (400, 50000),
    "writer": (15, 1000),
    "transaction": (8, 500),
}


def hostile_hosts(part: Part, sandbox: Sandbox, book: Book, seed: int, numbers: t.Sequence[int], show: bool) -> None:
    """One run of a playbook on the honest host alone, and one beside the crafted ones."""
    alone = run(sandbox, book, [])
    assert alone.code == 0, alone.text[-3000:]
    cases: list[Case] = [crafted_case(seed, book, number, sandbox.good, sandbox.root) for number in numbers]
    since = time.time()
    done = run(sandbox, book, cases)
    if show:
        print(done.text.encode("ascii", "backslashreplace").decode())
    again = "again: --seed %d --only '%s" % (seed, book)
    for text in dict.fromkeys(judge(sandbox, cases, alone, done, since)):
        part.bad(str(book), "%s; %s'" % (text, again))
    for case in cases:
        crafted = case.crafted
        if case.wrong:
            what = "%s of %s, %.200s" % (crafted.attack, crafted.module, crafted.place)
            part.bad(what, "%s; %s %d'" % ("; ".join(dict.fromkeys(case.wrong)), again, int(case.name[1:])))
        else:
            part.good()
    counts = Counter(case.crafted.attack for case in cases)
    part.note = ", ".join("%s %d" % item for item in sorted(counts.items()))


def books(proof: Proof, sandbox: Sandbox, seed: int, only: str, number: str) -> Counter[str]:
    """Every playbook; how many cases of each attack there were."""
    total: Counter[str] = Counter()
    for book in BOOKS:
        count = SAMPLED.get(str(book), 0) if SAMPLE and not only else HOSTS
        for turn in range(0 if only not in ("", str(book)) or not count else ROUNDS if not (SAMPLE or number) else 1):
            numbers = [int(number)] if number else range(turn * count, (turn + 1) * count)
            with proof.part("%s, hosts %d to %d" % (book, numbers[0], numbers[-1])) as part:
                hostile_hosts(part, sandbox, book, seed, numbers, bool(number))
                total += Counter({word: int(found) for word, found in re.findall(r"(\w+) (\d+)", part.note)})
    return total


def many(proof: Proof, name: str, seed: int, only: str, number: str, one: t.Callable[[random.Random], str]) -> None:
    """Cases by their numbers; every way in which one may end is told, and the first is needed."""
    if only not in ("", name):
        return
    with proof.part(name) as part:
        ended: Counter[str] = Counter()
        for case in [int(number)] if number else range(COUNTS[name][not SAMPLE]):
            with part.case("again: --seed %d --only '%s %d'" % (seed, name, case)):
                ended[one(random.Random("%d %s %d" % (seed, name, case)))] += 1
        part.note = ", ".join("%s %d" % item for item in sorted(ended.items()))
        assert number or len(ended) > 1, "all ended alike: %s" % part.note


def in_folder(act: t.Callable[[random.Random, Path], t.Any]) -> t.Callable[[random.Random], str]:
    def one(source: random.Random) -> str:
        with tempfile.TemporaryDirectory(prefix="npu-attack-case-") as name:
            return str(act(source, Path(name)))

    return one


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack the boundaries.")
    parser.add_argument("--seed", type=int, default=SEED if SAMPLE else secrets.randbelow(10**8))
    parser.add_argument("--only", default="", metavar="'PART [CASE]'", help="one part, or one case of it")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("proof-attack traces processes and needs root. Next: sudo make proof-attack", file=sys.stderr)
        return 2
    lacking = [package for package in missing({"bench"}) if package.name == "strace"]
    if lacking:
        print("proof-attack: " + advice(lacking), file=sys.stderr)
        return 2
    proof, seed = Proof("attack"), options.seed
    proof.say("seed %d" % seed)
    only, _space, number = options.only.rpartition(" ")
    if not number.isdigit():
        only, number = options.only, ""
    with tempfile.TemporaryDirectory(prefix="npu-attack-") as name:
        sandbox = Sandbox(Path(name), honest(Path(name) / "host"))
        collect_honestly(sandbox)
        to = Targets(sandbox.root / "home", sandbox.root / "canaries", "markh000")
        total = books(proof, sandbox, seed, only, number)
        if not only:
            with proof.part("attacks of hosts") as part:
                for attack in ATTACKS:
                    with part.case(attack):
                        assert total[attack], "no case of it"
                part.note = ", ".join("%s %d" % item for item in sorted(total.items()))
        many(proof, "archives", seed, only, number, in_folder(one_archive))
        many(proof, "manifests", seed, only, number, lambda source: one_manifest(source, to))
        many(proof, "clusters", seed, only, number, lambda source: one_pass(source, to))
        many(proof, "claims", seed, only, number, one_claim)
        many(proof, "writer", seed, only, number, in_folder(writer))
        many(proof, "transaction", seed, only, number, in_folder(transaction))
        if not (SAMPLE or only):
            # Samples of these two are layers of their own.
            fuzz.parts(proof)
            hunted(proof)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
