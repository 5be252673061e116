# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that is away or busy for a while, which must not leave a node half way."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import BUSY, ApiError, Cluster
from .._cluster.transport import NoAnswer

T = t.TypeVar("T")
Clock = t.Callable[[], float]
Sleep = t.Callable[[float], None]
# Seconds that an API server may be away: as long as a control plane of one machine takes to start again.
AWAY, PAUSE = 300.0, 5.0


# What a server says of an account whose roles it does not have, as one that has just started and not read them yet.
_NO_ROLES = re.compile(r"RBAC: .*role\.rbac\.authorization\.k8s\.io .* not found")


def is_passing(exc: NpuError) -> bool:
    """Whether an error may heal by itself: no answer, or one that says that the server is busy or has just started."""
    if isinstance(exc, ApiError):
        return exc.status in BUSY or (exc.status == 403 and bool(_NO_ROLES.search(str(exc.body.get("message")))))
    return isinstance(exc, NoAnswer)


def patiently(
    cluster: Cluster,
    ask: t.Callable[[], T],
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
    away: float = AWAY,
) -> T:
    """What `ask` returns; while the API server is away or busy it is called again, for at most `away` seconds."""
    start = clock()
    while True:
        try:
            return ask()
        except NpuError as exc:
            if not is_passing(exc) or clock() - start >= away:
                raise
            cluster.waits("API server: %d of %d s: %s" % (clock() - start, away, exc.message))
        sleep(PAUSE)
