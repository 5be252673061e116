#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_symptoms
short_description: Look at what else may be wrong with a host that has Rebellions NPUs
version_added: 0.1.0
description:
  - Reads what M(rebellions.npu.rbln_observe) does not, because no role plans from it. That is the clock, free space,
    whether names are resolved and proxies answer, the state of services, and who uses the package manager and the NPUs.
  - The playbook C(doctor) runs it after the observation. Nothing is changed.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  names:
    description: Names that the host has to resolve. By default those of the registry and of the driver's repository.
    type: list
    elements: str
  units:
    description:
      - Services whose state is asked for, and whose proxies are tried. By default those of the kubelet and of the
        container runtimes that were observed.
    type: list
    elements: str
  devices:
    description: Files whose users are named. By default the device nodes of the NPUs that were observed.
    type: list
    elements: str
  timeout:
    description: Limit of each look, in seconds.
    type: float
    default: 5
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
seealso:
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_doctor
"""

EXAMPLES = r"""
- name: Observe
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_discover

- name: Look at what else may be wrong
  rebellions.npu.rbln_symptoms:
  become: true
  register: symptoms

- name: Show how far the clocks differ
  ansible.builtin.debug:
    msg: "The clock of the host differs by {{ symptoms.skew }} s from that of the controller."
"""

RETURN = r"""
clock:
  description: The host's clock, in seconds of the epoch.
  returned: success
  type: float
skew:
  description: Seconds by which the host's clock is surely ahead of the controller's; negative where it is behind.
  returned: success
  type: float
disk:
  description: Each file system with C(path), C(size) and C(free) in bytes, C(inodes), C(inodes_free), C(read_only).
  returned: success
  type: list
  elements: dict
hung:
  description: Paths whose file system does not answer, such as one of a server that is away.
  returned: success
  type: list
  elements: str
names:
  description: For each name whether the host resolves it, as C(state) and C(detail).
  returned: success
  type: dict
units:
  description: The state of each service that exists, such as V(active) or V(failed).
  returned: success
  type: dict
proxies:
  description: The proxies of the running services, each with C(unit), C(address), C(state) and C(detail).
  returned: success
  type: list
  elements: dict
locked_by:
  description: Programs that use the package manager.
  returned: success
  type: list
  elements: str
used_by:
  description: Programs that have a device node of an NPU open, without the daemon of the driver.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._observe.symptoms import symptoms


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str"},
            "units": {"type": "list", "elements": "str"},
            "devices": {"type": "list", "elements": "str"},
            "timeout": {"type": "float", "default": 5},
        },
        supports_check_mode=True,
    )
    names, units, devices = (module.params[name] or [] for name in ("names", "units", "devices"))
    module.exit_json(changed=False, **symptoms(Host(), names, units, devices, module.params["timeout"]))


if __name__ == "__main__":
    main()
