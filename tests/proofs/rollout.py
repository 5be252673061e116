# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many more of the rollouts that the unit tests play: kills, two controllers, stale lists, clocks, people.

`python -m tests.proofs.rollout COUNT [FIRST]` plays COUNT stories from number FIRST on.
"""

from __future__ import annotations

import collections
import sys

from ansible_collections.rebellions.npu.tests.unit.fixtures.rollout_model import play

from tests.proofs._proof import SAMPLE, Proof

COUNT = 2000 if SAMPLE else 100000


def main(count: int = COUNT, first: int = 0) -> int:
    proof = Proof("rollout")
    seen: collections.Counter[str] = collections.Counter()
    with proof.part("stories %d to %d" % (first, first + count - 1)) as part:
        for number in range(first, first + count):
            with part.case("story %d" % number):
                seen.update(play(str(number)))
        part.note = ", ".join("%s %d" % item for item in sorted(seen.items()))
    return proof.close()


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:3])))
