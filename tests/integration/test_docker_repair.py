# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that dies in the middle of a change of docker's configuration: the next one makes it right."""

from __future__ import annotations

from pathlib import Path

from tests.integration._hosts import Hosts
from tests.integration._killer import make_killer
from tests.integration._kills import DIVIDING, Case, killed_at_steps


def test_docker_killed_at_steps(bare: Hosts, tmp_path: Path) -> None:
    case = Case("it-d", "docker", ["/etc/docker/daemon.json"], "true", "docker")
    # One that leads back and one that leads on; beside containerd the same writer dies at all four steps.
    killed_at_steps(bare, case, make_killer(), tmp_path, DIVIDING[1::2])
