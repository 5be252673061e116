# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs of life of what takes long. Runs on any Python >= 3.8."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

TICK = 10


@contextlib.contextmanager
def ticking(what: str, seconds: float, say: t.Callable[[str], None]) -> t.Iterator[None]:
    """Say every ten seconds what takes how long, and how long it usually does where that is known (not 0)."""
    usual = " of about %.0f s" % seconds if seconds else ""
    if seconds > TICK:
        say("%s, about %.0f s" % (what, seconds))
    over, start = threading.Event(), time.monotonic()

    def tick() -> None:
        while not over.wait(TICK):
            say("%s: %.0f s%s" % (what, time.monotonic() - start, usual))

    teller = threading.Thread(target=tick, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
