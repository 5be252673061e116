# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The staged tree is the collection that these tests import.

Hosts are shared: they come up once, and become virgin again only where a test has left something.
"""

from __future__ import annotations

import os
import shutil
import sys
import typing as t

import pytest

from tests.integration._hosts import BARE, NODES, Hosts
from tests.integration._play import CONFIG, FOLDER, STAGED
from tests.lab import Lab
from tests.tools.paths import STAGE
from tests.tools.stage import stage

if str(STAGE) not in sys.path:
    sys.path.insert(0, str(STAGE))
# For tests that start playbooks in an environment of their own making.
os.environ["ANSIBLE_CONFIG"] = CONFIG


@pytest.fixture(scope="session")
def staged() -> t.Iterator[None]:
    """A copy of the checkout of its own: the host tool is built from it, so it must not change between two runs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    yield
    shutil.rmtree(FOLDER)


@pytest.fixture(scope="session")
def lab() -> Lab:
    if os.geteuid() != 0:
        pytest.skip("system containers need root")
    return Lab()


@pytest.fixture(scope="session")
def nodes(lab: Lab, staged: None) -> t.Iterator[Hosts]:
    """it-a (containerd 2.x) and it-b (containerd 1.7), nodes of the lab's cluster."""
    hosts = Hosts(lab, NODES, kube=True)
    yield hosts
    hosts.leave()


@pytest.fixture(scope="session")
def bare(lab: Lab, staged: None) -> t.Iterator[Hosts]:
    """it-c (containerd 1.6), it-d (docker and podman), it-e (containerd 1.7), without a cluster."""
    hosts = Hosts(lab, BARE, kube=False)
    yield hosts
    hosts.leave()
