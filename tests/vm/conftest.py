# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine for all tests of a session, in their order.

Its driver lives on from one test to the next. Without qemu or root the tests fail; they are not skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import typing as t

import pytest

from tests.integration._play import FOLDER, STAGED
from tests.lab._vm import Vm
from tests.tools.paths import STAGE
from tests.tools.stage import stage
from tests.vm._server import Server

if str(STAGE) not in sys.path:
    sys.path.insert(0, str(STAGE))


def pytest_configure() -> None:
    """A layer that is stopped takes its machine down first."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("stopped", returncode=2))


@pytest.fixture(scope="session")
def staged() -> t.Iterator[None]:
    """A copy of the checkout of its own: the host tool is built from it, so it must not change between two runs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    yield
    shutil.rmtree(FOLDER)


@pytest.fixture(scope="session")
def server(staged: None) -> t.Iterator[Server]:
    """A virgin machine; with NPU_KEEP it stays at the end, and one that is there is taken as it is."""
    vm = Vm("vm-life")
    if not os.environ.get("NPU_KEEP"):
        vm.down()
    try:
        vm.up()
        # A sixth of each build would go into cleaning folders that are thrown away.
        vm.exec("mkdir -p /etc/dkms && echo CLEAN=true >/etc/dkms/rebellions.conf")
        yield Server(vm)
    finally:
        if not os.environ.get("NPU_KEEP"):
            vm.down()
