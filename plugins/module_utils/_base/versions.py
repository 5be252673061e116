# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of drivers, kernels and runtimes, compared number by number and never as text."""

from __future__ import annotations

import re
import typing as t

from .regex import regex

Numbers = t.Tuple[int, ...]

_CONSTRAINT = regex(r"^\s*(>=|<=|==|!=|>|<)?\s*([0-9][0-9A-Za-z.+~-]*)\s*$")
_DISTRIBUTION_TAG = regex(r"\.(?:el|fc|amzn)[0-9]+(?:_[0-9]+)?(uek)?([^+]*)(?:\+(.+))?$")
_KERNEL = regex(r"^([0-9]+(?:\.[0-9]+)*)(?:-([0-9]+(?:\.[0-9]+)*))?(.*)$")
# What Debian and its backports put between a kernel's numbers and its flavour: +deb13, +bpo, .deb11.28; and ~22.04.1.
_KERNEL_TAG = regex(r"^(?:[+~]|\.(?:deb|bpo))[^-]*(?=-|$)")
# The kernels that Ubuntu builds of every upstream release have a number such as 060812 in the place of their own.
_MAINLINE = regex(r"-0[0-9]{5}(?:rc[0-9]+)?-")
# None of the words can be part of a commit's digest.
_PRE_RELEASE = regex(
    r"(?:^|[-~_.]|(?<=[0-9]))(alpha|beta|rc|prerelease|preview|pre|dev)[-._]?([0-9]*)(?![0-9A-Za-z])", re.I
)
_SHORT_PRE_RELEASE = regex(r"^[0-9.]*[0-9](a|b|c)([0-9]+)(?![0-9A-Za-z])")
_SHORT = {"a": "alpha", "b": "beta", "c": "rc"}


def release_numbers(version: str | None) -> Numbers:
    """`1:3.2.2-rebel1` and `3.2.2rc1` are (3, 2, 2): the numbers before the first -, +, ~, ^ or _.

    Epoch and pre-release are left out. Empty when there are no numbers, or when the version is not known.
    """
    release = re.split(r"[-+~^_]", without_epoch(version or ""), maxsplit=1)[0]
    release = re.sub(
        r"(?<=[0-9])\.?(?:alpha|beta|rc|prerelease|preview|pre|dev|[abc](?=[0-9]))\.?[0-9]*$", "", release, flags=re.I
    )
    return tuple(int(part) for part in re.findall(r"[0-9]+", release))


def without_epoch(version: str) -> str:
    """`1:3.2.2-1` is `3.2.2-1`."""
    return re.sub(r"^[0-9]+:", "", version.strip())


def upstream_version(version: str) -> str:
    """What a package holds: `1:3.4.0~rc1-2.el9` is `3.4.0~rc1`, without the epoch and the revision of its packager."""
    return re.sub(r"-[^-]*$", "", without_epoch(version))


def pre_release(version: str) -> tuple[str, int]:
    """`3.4.0~rc1` is (rc, 1), `3.4.0b2` is (beta, 2); empty and 0 for a release. Suffixes of builds do not count."""
    text = without_epoch(version).partition("+")[0]
    found = _PRE_RELEASE.search(text) or _SHORT_PRE_RELEASE.search(text)
    word = found.group(1).lower() if found else ""
    return _SHORT.get(word, word), int(found.group(2) or 0) if found else 0


def natural_key(text: str) -> tuple[tuple[int, t.Any], ...]:
    """Sort key that takes numbers as numbers, so 6.8.0-138 is above 6.8.0-117 and 55.75 above 55.9."""
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in re.findall(r"[0-9]+|[A-Za-z]+", text))


def compare(left: Numbers, right: Numbers) -> int:
    """-1, 0 or 1; missing numbers count as zero."""
    size = max(len(left), len(right))
    padded_left = left + (0,) * (size - len(left))
    padded_right = right + (0,) * (size - len(right))
    return (padded_left > padded_right) - (padded_left < padded_right)


def release_key(version: str) -> tuple[Numbers, tuple[str, int]]:
    """What two versions of one release share. Suffixes of builds do not count; a pre-release is another one."""
    numbers = list(release_numbers(version))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), pre_release(version)


def same_release(left: str | None, right: str | None) -> bool:
    """True when both are known and name one release."""
    return bool(left and right and release_numbers(left)) and release_key(left or "") == release_key(right or "")


def satisfies(version: str, constraints: t.Sequence[str]) -> bool:
    """True when the release meets every constraint, such as `>=3.2` or `3.2.2`. ValueError on a bad constraint."""
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


def split_kernel(release: str) -> tuple[Numbers, Numbers, str]:
    """The numbers of a kernel release, those of its build, and its flavour.

    `6.8.0-117-generic` is ((6, 8, 0), (117,), 'generic'), and
    `5.14.0-570.116.1.el9_6.x86_64` is ((5, 14, 0), (570, 116, 1), '').
    The flavour is what follows the build number, without distribution tag and architecture. Kernels of Enterprise
    Linux have one only where they are a variant: rt or debug behind a plus, uek or elrepo in the tag. Ubuntu's builds
    of upstream kernels are `mainline`.
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
    flavour = _KERNEL_TAG.sub("", match.group(3)).lstrip("-.")
    return base, build, variant or ("mainline" if _MAINLINE.search(plain) else flavour)


def tagged_release(release: str) -> str:
    """The release of Enterprise Linux in the tag of its kernel: `9.6` of el9_6, `9` of el9; empty without a tag."""
    found = re.search(r"\.el([0-9]+)(?:_([0-9]+))?(?![0-9_])", release)
    return ".".join(part for part in found.groups() if part) if found else ""


def is_tagged(release: str) -> bool:
    """True for a kernel release with the tag of Enterprise Linux, Fedora or Amazon Linux."""
    return re.search(r"\.(el|fc|amzn)[0-9]", release) is not None
