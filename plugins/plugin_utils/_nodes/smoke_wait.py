# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait until the smoke workload of a node has ended, and what it says meanwhile."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import masked
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import BUSY, TELL_EVERY, ApiError, Cluster
from .._objects.inputs import Inputs
from .._objects.placement import Data
from .smoke import DELAY, LABEL, has_ended, smoke_job, smoke_progress


def wait_for_smoke(
    cluster: Cluster,
    inputs: Inputs,
    node: str,
    tell: t.Callable[[str], None],
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> Data:
    """{ended, pods, events}: whether the workload has ended in its time, its pods, and warnings where it has not.

    `tell` gets every TELL_EVERY seconds why it has not. A server that is away or busy is waited for; NpuError when it
    never answers, or refuses.
    """
    job, limit = smoke_job(inputs, node), inputs["smoke"]["timeout"]
    selector = "%s=%s" % (LABEL, job["metadata"]["name"])
    begun = told_at = clock()
    seen: tuple[t.Sequence[Data], t.Sequence[Data]] | None = None
    while True:
        try:
            pods = cluster.list("v1", "Pod", inputs["namespace"], selector)
            ended = has_ended(pods)
            events = [] if ended else cluster.list("v1", "Event", inputs["namespace"], fields="type=Warning")
            seen, text = (pods, events), smoke_progress(job, node, pods, events)
        except NpuError as exc:
            if isinstance(exc, ApiError) and exc.status not in BUSY:
                raise
            ended, text = False, exc.message
        waited = clock() - begun
        if ended or waited >= limit:
            break
        if clock() - told_at >= TELL_EVERY:
            told_at = clock()
            tell("%s (%d of %d s)" % (text, waited, limit))
        sleep(DELAY)
    if seen is None:
        raise NpuError("The smoke workload on node %s could not be looked at: %s" % (node, text), "Run again.")
    # They are in the result of a task, which -v shows.
    return {"ended": ended, "pods": masked(seen[0]), "events": masked(seen[1])}
