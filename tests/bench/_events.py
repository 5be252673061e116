# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of a playbook did, task by task, from the log of the callback ansible.posix.jsonl."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Event:
    """One task on one host; state is ok, changed, skipped or failed."""

    play: str
    task: str
    host: str
    state: str
    data: dict[str, t.Any]


def read_events(path: Path) -> list[Event]:
    """Events in order. Lines that are no events (warnings, tables for people) are passed over."""
    found, play = [], ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith('{"'):
            continue
        event = json.loads(line)
        kind = event.get("_event", "")
        if kind == "v2_playbook_on_play_start":
            play = event["play"]["name"]
        elif kind.startswith("v2_runner_on_") and "hosts" in event:
            for host, data in event["hosts"].items():
                state = kind.removeprefix("v2_runner_on_")
                found.append(
                    Event(
                        play,
                        event["task"]["name"],
                        host,
                        "changed" if state == "ok" and data.get("changed") else state,
                        data,
                    )
                )
    return found
