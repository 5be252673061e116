# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that Ansible forks for each host and task of an unchanged run: how many, what they load and send."""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from pathlib import Path

from tests.integration._play import ONCE
from tests.tools.paths import VENV

from ._contenders import HERE, ansible, inventory, measured, site
from ._hosts import FOLDER, Hosts

FORKS_LIMIT = 2
# Bytes that the processes of one host send to the main process: Ansible copies them several times.
SENT_LIMIT = 32 * 1024
LOG = FOLDER / "forks.log"

Fork = dict[str, t.Any]


def watched(hosts: Hosts, names: t.Sequence[str], venv: Path = VENV) -> list[Fork]:
    """An unchanged run of the host part: {task, host, bytes, modules} of each process, as callbacks/forks.py says."""
    LOG.unlink(missing_ok=True)
    watching = {
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "forks",
        "BENCH_FORKS": str(LOG),
    }
    argv = ["ansible-playbook", "-i", inventory(names, site()), "playbooks/site.yml", "--skip-tags", "operands"]
    measured(hosts, argv, {**ansible(hosts, "ansible.posix.jsonl", venv), **watching}, "ours")
    return [json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]


def judged(forks: t.Sequence[Fork], names: t.Sequence[str]) -> list[tuple[bool, str]]:
    """Gates: what is good, and what is told of it."""
    each = [one for one in forks if not one["task"].endswith(ONCE)]
    count = Counter(one["host"] for one in each)
    most = max(count.values(), default=0)
    late = sorted({name for one in forks for name in one["modules"]})
    sent = [sum(one["bytes"] for one in each if one["host"] == name) for name in names]
    parts = {one["task"].rpartition(" : ")[2]: one["bytes"] for one in each if one["host"] == names[0]}
    told = ", ".join("%s %d" % item for item in parts.items())
    return [
        (
            sorted(count) == sorted(names) and most <= FORKS_LIMIT,
            "forked processes a host: %d (limit %d)" % (most, FORKS_LIMIT),
        ),
        (bool(forks) and not late, "modules of ours that they load: %s" % (", ".join(late[:5]) or "none")),
        (
            0 < max(sent) <= SENT_LIMIT,
            "bytes that those of a host send: %d (limit %d): %s" % (max(sent), SENT_LIMIT, told),
        ),
    ]
