# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of rbln_observe and rbln_validate. Private to this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """One set of options, because both modules look and judge alike."""

    DOCUMENTATION = r"""
options:
  scopes:
    description:
      - Which checks to run. V(driver) is for driver and devices, V(toolkit) for the CDI specification and the container
        runtime, V(plugin) for the NPUs that the cluster offers, V(vfio) for hosts that give their NPUs to virtual
        machines.
      - An empty list runs none.
    type: list
    elements: str
    choices: [driver, toolkit, plugin, vfio]
    default: [driver, toolkit]
  driver_version:
    description:
      - Release of the driver that must be loaded. A suffix after C(-), C(+) or C(~) does not matter.
      - Without it, the loaded driver only has to be the one on disk.
    type: str
  firmware_version:
    description: Release that the firmware of every device must have. Without it, that of the loaded driver.
    type: str
  library_version:
    description: Release that the user-space libraries must have. Without it, that of the loaded driver.
    type: str
  expected_addresses:
    description: PCI addresses of the NPUs that must be there. The check names those that left the bus.
    type: list
    elements: str
    default: []
  expected_devices:
    description: How many NPUs for containers must be there.
    type: int
  node_allocatable:
    description:
      - What the node offers, for the scope V(plugin). Either C(status.allocatable) of the node, or a number.
      - The host has no access to the API server, so the caller sets it.
    type: raw
  expected_allocatable:
    description: How many NPUs the node must offer. Without it, the number of usable ones.
    type: int
  resource_name:
    description: Name of the resource in the cluster. Without it C(rebellions.ai/npu), and C(rebellions.ai/npu-vfN) with
      it.
    type: str
  containers_before:
    description:
      - What C(ansible_facts.rbln_observed.containers) of M(rebellions.npu.rbln_observe) said before docker was
        restarted.
      - Each container that ran before must run again.
    type: list
    elements: dict
    default: []
  no_runtime:
    description: How to treat a host without a container runtime, as a failed check, a warning, or nothing.
    type: str
    choices: [fail, warn, ignore]
    default: fail
  blocking:
    description:
      - What fails the proof, as severities (V(error), V(warning), V(info)) and names of checks.
      - Everything else is only reported.
    type: list
    elements: str
    default: [error]
  unknown_blocks:
    description:
      - Whether the proof does not pass when a blocking check is not known, because a look was denied, timed out or
        failed.
    type: bool
    default: true
  runtimes:
    description: The container runtimes that matter. Without it, the one that the kubelet uses, or the only one.
    type: list
    elements: str
    choices: [containerd, docker, cri-o, podman]
    default: []
  kubelet_endpoint:
    description: The kubelet's container runtime endpoint, where it cannot be read from flags or configuration.
    type: str
    default: ''
  runtime_config_file:
    description: Configuration file of the one runtime in O(runtimes), where the host does not show it. The file that
      imports the others.
    type: str
    default: ''
  runtime_dropin_dir:
    description: Drop-in directory of the one runtime in O(runtimes), for containerd 2.0 or newer and CRI-O.
    type: str
    default: ''
  runtime_socket:
    description: Socket of the one runtime in O(runtimes).
    type: str
    default: ''
  runtime_unit:
    description: The systemd unit that runs the one runtime in O(runtimes), and is restarted.
    type: str
    default: ''
  cdi:
    description:
      - Options of the CDI specification, as M(rebellions.npu.rbln_cdi_spec) takes them, so that the comparison is with
        what that module would write.
    type: dict
    default: {}
  cdi_path:
    description: Path of the CDI specification. Without it C(/var/run/cdi/rbln.yaml).
    type: str
  ready_host_root:
    description: Where a toolkit container mounts the host, for the file C(driver-ready).
    type: str
    default: /host
  timeout:
    description: Seconds that one command on the host may take.
    type: float
    default: 10.0
  root:
    description: Look below this directory instead of at the running host. No commands are run there, so what they
      report is unknown.
    type: str
    default: /
  options:
    description:
      - Options of this module as one dictionary. A key in it wins over the option of the same name.
      - The same dictionary is the configuration file of the host tool, see M(rebellions.npu.rbln_host_tool).
    type: dict
    default: {}
"""
