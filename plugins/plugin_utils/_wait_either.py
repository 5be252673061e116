# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate of pods that run on both kinds of nodes: those with a driver for containers, and those that give their NPUs to virtual machines."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE

from ._containers import wait_for_host
from ._model_cluster import Inputs, Object

# A node for virtual machines never gets the ready files of a driver.
SCRIPT = """given_away() {
  for file in /sys/bus/pci/drivers/vfio-pci/*/vendor; do
    [ -e "$file" ] && read -r vendor < "$file" && [ "$vendor" = "$PCI_VENDOR" ] && return 0
  done
  return 1
}
ready() {
  for marker in $WAIT_MARKERS; do
    [ -e "$marker" ] || return 1
  done
}
left="$WAIT_SECONDS"
until ready || given_away; do
  if [ "$left" -le 0 ]; then
    echo "$NODE_NAME has neither $WAIT_MARKERS nor an NPU at vfio-pci after $WAIT_SECONDS s" >&2
    exit 1
  fi
  sleep 2
  left=$((left - 2))
done
"""


def wait_for_either(inputs: Inputs, markers: t.Sequence[str]) -> Object:
    """An init container that ends when the ready files are there or an NPU is bound to vfio-pci, or fails after a while."""
    wait = wait_for_host(inputs, markers)
    vendor = {"name": "PCI_VENDOR", "value": "0x" + PROFILE.pci_vendor}
    return {**wait, "command": ["/bin/sh", "-c", SCRIPT], "env": [*wait["env"], vendor]}
