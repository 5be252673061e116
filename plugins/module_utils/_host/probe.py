# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of every read: value, absent, denied, timeout, too_large or failed."""

from __future__ import annotations

import errno
import os
import typing as t

from .._base.mask import mask
from .._base.records import dataclass

VALUE = "value"
ABSENT = "absent"
DENIED = "denied"
TIMEOUT = "timeout"
TOO_LARGE = "too_large"
FAILED = "failed"


@dataclass(frozen=True)
class Probe:
    """One result: `value` is set only in the state value; `detail` explains the other states."""

    state: str
    value: t.Any = None
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.state == VALUE

    def map(self, function: t.Callable[[t.Any], t.Any]) -> Probe:
        """Apply `function` to a value; other states pass through.

        What it raises over a value of another shape than it reads turns into failed.
        """
        if self.state != VALUE:
            return self
        try:
            return Probe(VALUE, function(self.value))
        except (ValueError, RecursionError) as exc:
            return Probe(FAILED, None, str(exc))
        except (AttributeError, LookupError, OverflowError, TypeError) as exc:
            return Probe(FAILED, None, "it is not of the expected shape: %s" % exc)

    def get(self, default: t.Any = None) -> t.Any:
        return self.value if self.state == VALUE else default

    def to_dict(self) -> dict[str, t.Any]:
        """State and detail, without the value and without secrets: a detail may repeat the words of a program."""
        return {"state": self.state, "detail": mask(self.detail)}


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code, standard output, standard error (kept apart)."""

    rc: int
    out: str
    err: str


def from_oserror(exc: OSError) -> Probe:
    if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV):
        return Probe(ABSENT, None, os.strerror(exc.errno))
    if exc.errno in (errno.EACCES, errno.EPERM):
        return Probe(DENIED, None, os.strerror(exc.errno))
    if exc.errno == errno.ETIMEDOUT:
        return Probe(TIMEOUT, None, os.strerror(exc.errno))
    return Probe(FAILED, None, os.strerror(exc.errno) if exc.errno else str(exc))
