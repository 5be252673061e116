# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what each process that Ansible forks for a task has loaded, and how large its result is.

One line of JSON each, to the file that BENCH_FORKS names: {task, host, bytes, modules}. `modules` are ours that were
not loaded before the fork: every process of every host would load them again.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import typing as t

from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_queue_manager import FinalQueue
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: forks
type: aggregate
short_description: What forked processes load and send
description: For the benchmark of this collection.
"""
OURS = "ansible_collections.rebellions.npu."
RESULTS = ("TaskResult", "WireTaskResult")


def watch(path: str) -> None:
    """Let every process that is forked from now on write its line."""
    begun: dict[str, t.Any] = {}
    run, put = WorkerProcess.run, FinalQueue.put

    def run_and_remember(self: t.Any) -> None:
        begun.update(task=self._task.get_name(), host=self._host.get_name(), loaded=set(sys.modules))
        run(self)

    def put_and_write(self: t.Any, item: t.Any, *more: t.Any, **keys: t.Any) -> None:
        if begun and type(item).__name__ in RESULTS:
            new = sorted(name for name in set(sys.modules) - begun["loaded"] if name.startswith(OURS))
            told = {"task": begun["task"], "host": begun["host"], "bytes": len(pickle.dumps(item)), "modules": new}
            with open(path, "ab", buffering=0) as out:
                out.write(json.dumps(told).encode("utf-8") + b"\n")
        put(self, item, *more, **keys)

    WorkerProcess.run, FinalQueue.put = run_and_remember, put_and_write


class CallbackModule(CallbackBase):
    """Ansible loads it before it forks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "forks"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: t.Any, **keys: t.Any) -> None:
        super().__init__(*args, **keys)
        watch(os.environ["BENCH_FORKS"])
