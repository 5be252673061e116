# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from a tool's output how many tests or hosts it ran."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PLAIN = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, \d+ skipped)?$", re.M)
PYTEST = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.M)
SKIPPED = re.compile(r"(\d+) skipped\b")
BUILT = re.compile(r"^\S+: \S+/\S+$", re.M)
WORDS = re.compile(r"(\d+) (passed|failed|errors?)\b")
SANITY_RUN = re.compile(r'^Running sanity test "?([\w-]+)"?', re.M)
SANITY_SKIP = re.compile(r"^WARNING: Skipping sanity test '([\w-]+)'", re.M)
SANITY_LACKS = re.compile(r'^WARNING: Required program "[\w-]+" not found', re.M)
# How our tools, pytest's summary and ansible-test begin the line of a failure.
FAILURE = re.compile(r"^(?:[\w.-][\w .-]*?:? +)?(?:FAILED|ERROR:?|failed:) +(\S.*)$", re.M)
SANITY_FAILED = re.compile(r"^(?:ERROR|FATAL): The (\d+) sanity test\(s\) listed below", re.M)


@dataclass(frozen=True)
class Count:
    passed: int = 0
    failed: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed)


def closing(output: str) -> Count:
    """Sum of every closing line: pytest's, or the plain 'N passed, N failed'."""
    output, total = ANSI.sub("", output), Count()
    for match in PLAIN.finditer(output):
        total += Count(int(match[1]), int(match[2]))
    for match in PYTEST.finditer(output):
        words = [(int(number), word) for number, word in WORDS.findall(match[1])]
        total += Count(sum(n for n, w in words if w == "passed"), sum(n for n, w in words if w != "passed"))
    return total


def skipped(output: str) -> int:
    """How many tests pytest's closing lines say were skipped."""
    return sum(int(number) for match in PYTEST.finditer(output) for number in SKIPPED.findall(match[1]))


def built(output: str) -> Count:
    """One part per line 'name: place' of what the lab has built or found in its cache."""
    return Count(len(BUILT.findall(output)), 0)


def sanity(output: str) -> Count:
    """ansible-test sanity: one test per announced name that was neither skipped nor lacked its program."""
    output = ANSI.sub("", output)
    ran = set(SANITY_RUN.findall(output)) - set(SANITY_SKIP.findall(output))
    match = SANITY_FAILED.search(output)
    failed = int(match[1]) if match else 0
    return Count(max(len(ran) - failed - len(SANITY_LACKS.findall(output)), 0), failed)


def failures(output: str) -> list[str]:
    """What a tool says of each failure, in its order and once."""
    return list(dict.fromkeys(FAILURE.findall(ANSI.sub("", output))))
