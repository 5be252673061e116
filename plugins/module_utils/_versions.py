# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of drivers, kernels and runtimes, compared number by number and never as text."""

from __future__ import annotations

import re
import typing as t

Numbers = t.Tuple[int, ...]

_CONSTRAINT = re.compile(r"^\s*(>=|<=|==|!=|>|<)?\s*([0-9][0-9A-Za-z.+~-]*)\s*$")
_DISTRIBUTION_TAG = re.compile(r"\.(?:el|fc|amzn)[0-9]+(?:_[0-9]+)?(uek)?([^+]*)(?:\+(.+))?$")
_KERNEL = re.compile(r"^([0-9]+(?:\.[0-9]+)*)(?:-([0-9]+(?:\.[0-9]+)*))?(.*)$")


def release_numbers(version: t.Optional[str]) -> Numbers:
    """`3.2.2-rebel1` is (3, 2, 2): the numbers before the first -, + or ~. Empty when there are none, or when it is not known."""
    release = re.split(r"[-+~]", (version or "").strip(), maxsplit=1)[0]
    return tuple(int(part) for part in re.findall(r"[0-9]+", release))


def natural_key(text: str) -> t.Tuple[t.Tuple[int, t.Any], ...]:
    """Sort key that takes numbers as numbers, so 6.8.0-138 is above 6.8.0-117 and 55.75 above 55.9."""
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in re.findall(r"[0-9]+|[A-Za-z]+", text))


def compare(left: Numbers, right: Numbers) -> int:
    """-1, 0 or 1; missing numbers count as zero."""
    size = max(len(left), len(right))
    padded_left = left + (0,) * (size - len(left))
    padded_right = right + (0,) * (size - len(right))
    return (padded_left > padded_right) - (padded_left < padded_right)


def same_release(left: t.Optional[str], right: t.Optional[str]) -> bool:
    """True when both are known and name the same release, whatever their suffixes."""
    if not left or not right:
        return False
    return bool(release_numbers(left)) and compare(release_numbers(left), release_numbers(right)) == 0


def satisfies(version: str, constraints: t.Sequence[str]) -> bool:
    """True when the release meets every constraint such as `>=3.2`, `<3.4` or `3.2.2`. ValueError on a bad constraint."""
    numbers = release_numbers(version)
    for text in constraints:
        match = _CONSTRAINT.match(text)
        if not match:
            raise ValueError("not a version constraint: %r" % text)
        order = compare(numbers, release_numbers(match.group(2)))
        holds = {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0, "!=": order != 0}
        if not holds.get(match.group(1) or "==", order == 0):
            return False
    return True


def split_kernel(release: str) -> t.Tuple[Numbers, Numbers, str]:
    """`6.8.0-117-generic` is ((6, 8, 0), (117,), 'generic'); `5.14.0-570.116.1.el9_6.x86_64` is ((5, 14, 0), (570, 116, 1), '').

    The last part is the flavour: what follows the build number without distribution tag and architecture. Kernels of Enterprise Linux have
    one only where they are a variant: rt or debug behind a plus, uek or elrepo in the tag.
    """
    plain = re.sub(r"\.(x86_64|aarch64|ppc64le|s390x)(?=$|\+)", "", release.strip())
    tag = _DISTRIBUTION_TAG.search(plain)
    variant = ""
    if tag:
        variant = tag.group(3) or tag.group(1) or ("elrepo" if ".elrepo" in tag.group(2) else "")
        plain = plain[: tag.start()]
    match = _KERNEL.match(plain)
    if not match:
        return (), (), release.strip()
    base = tuple(int(part) for part in match.group(1).split("."))
    build = tuple(int(part) for part in match.group(2).split(".")) if match.group(2) else ()
    return base, build, variant or match.group(3).lstrip("-.")


def is_tagged(release: str) -> bool:
    """True for a kernel release with the tag of Enterprise Linux, Fedora or Amazon Linux."""
    return re.search(r"\.(el|fc|amzn)[0-9]", release) is not None
