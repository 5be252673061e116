# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every proof does alike: count, say what it did with its seconds, close with 'N passed, N failed'."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
import typing as t

SAMPLE = os.environ.get("SAMPLE") == "1"
SHOWN = 5


def named(known: t.Collection[str], words: t.Sequence[str]) -> list[str]:
    """The words of the command line, all of them names of parts; else the program ends and says which there are."""
    wrong = [word for word in words if word not in known]
    if wrong:
        print("unknown: %s. Next: name some of: %s" % (", ".join(wrong), ", ".join(known)), file=sys.stderr)
        raise SystemExit(2)
    return list(words)


class Proof:
    """Results of one proof. A part that ran nothing counts as failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = 0
        self.failed = 0
        self.began = time.monotonic()
        self.say("the sample" if SAMPLE else "the whole proof")

    def say(self, text: str) -> None:
        print("proof-%s: %s" % (self.name, text), flush=True)

    @contextlib.contextmanager
    def part(self, name: str) -> t.Iterator[Part]:
        """One part: an exception in it is a failure with its text, and the next part runs."""
        one = Part()
        began = time.monotonic()
        try:
            yield one
        except Exception as exc:
            one.bad(name, "".join(traceback.format_exception(exc)[-3:]))
        if not one.passed + one.failed:
            one.bad(name, "it ran nothing")
        self.passed += one.passed
        self.failed += one.failed
        for text in one.told[:SHOWN]:
            self.say("FAILED " + text)
        word = "%d passed, %d failed" % (one.passed, one.failed) if one.failed else "%d passed" % one.passed
        self.say("%s: %s in %.1f s%s" % (name, word, time.monotonic() - began, "; " + one.note if one.note else ""))

    def close(self) -> int:
        """Print the closing line; the exit code."""
        self.say("%.0f s" % (time.monotonic() - self.began))
        print("%d passed, %d failed" % (self.passed, self.failed), flush=True)
        return 1 if self.failed or not self.passed else 0


class Part:
    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.told: list[str] = []
        self.note = ""

    def good(self, count: int = 1) -> None:
        self.passed += count

    def bad(self, name: str, why: str) -> None:
        self.failed += 1
        self.told.append("%s: %s" % (name, why))

    @contextlib.contextmanager
    def case(self, name: str) -> t.Iterator[None]:
        """One case: it passes unless it raises."""
        try:
            yield
        except Exception as exc:
            self.bad(name, "%s: %s" % (type(exc).__name__, str(exc)[:2000]))
        else:
            self.good()
