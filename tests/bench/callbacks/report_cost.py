# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the CPU seconds that the callback of reports takes of the main process, to the file that BENCH_REPORT names.

Of ansible-core it counts what it does for this callback alone: a result is copied when the callback asks for it.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
import typing as t

from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: report_cost
type: aggregate
short_description: What the report of a run costs
description: For the benchmark of this collection.
"""
REPORT = "rebellions.npu.rbln_report"


def watch(path: str) -> None:
    """Time every method of the callback that ansible-core calls from now on."""
    spent, seen = [0.0], set[int]()
    main, load = os.getpid(), TaskQueueManager.load_callbacks

    def timed(method: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        @functools.wraps(method)
        def call(*args: t.Any, **keys: t.Any) -> t.Any:
            began = time.process_time()
            try:
                return method(*args, **keys)
            finally:
                spent[0] += time.process_time() - began

        return call

    def load_and_time(self: t.Any) -> None:
        load(self)
        for plugin in self._callback_plugins:
            # Each play loads those that are there.
            if plugin.CALLBACK_NAME == REPORT and id(plugin) not in seen:
                seen.add(id(plugin))
                for name in [name for name in dir(type(plugin)) if name.startswith("v2_")]:
                    if getattr(type(plugin), name) is not getattr(CallbackBase, name, None):
                        setattr(plugin, name, timed(getattr(plugin, name)))

    def write() -> None:
        if os.getpid() == main:
            with open(path, "w", encoding="utf-8") as out:
                out.write("%.4f" % spent[0])

    TaskQueueManager.load_callbacks = load_and_time
    atexit.register(write)


watch(os.environ["BENCH_REPORT"])


class CallbackModule(CallbackBase):
    """Only to be loaded: it is named before the callback of reports."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "report_cost"
    CALLBACK_NEEDS_ENABLED = True
