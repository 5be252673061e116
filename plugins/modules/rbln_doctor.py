#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_doctor
short_description: Name the most likely cause of what is wrong with hosts and their clusters
version_added: 0.1.0
description:
  - Finds the causes behind what the hosts of a play have registered and what their clusters say, in the order of the
    troubleshooting tree. A cause that explains others comes first.
  - The checks of M(rebellions.npu.rbln_observe) stay the judges of a host; this module only orders them.
  - It changes nothing. The playbook C(doctor) has all tasks around it.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  act:
    description:
      - V(cluster) asks the cluster of the members for nodes, DaemonSets, pods, events, rights and the Lease.
      - V(show) puts everything together and shows it. Use C(run_once).
    type: str
    choices: [cluster, show]
    default: show
  members:
    description: The hosts of the cluster, as M(rebellions.npu.rbln_operands) has chosen them. Only for O(act=cluster).
    type: list
    elements: dict
    default: []
  format:
    description: V(text) shows lines, V(json) the whole document, as C(docs/schemas/doctor.schema.json) has it.
    type: str
    choices: [text, json]
    default: text
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
seealso:
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_symptoms
  - module: rebellions.npu.rbln_operands
"""

EXAMPLES = r"""
- name: Observe
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_discover

- name: Name the causes of what is wrong
  rebellions.npu.rbln_doctor:
  run_once: true
"""

RETURN = r"""
doctor:
  description: The causes of each host and each cluster, the most likely first.
  returned: with O(act=show)
  type: dict
  sample:
    schema: 1
    hosts:
      npu1:
        state: faults
        causes:
          - id: driver_not_loaded
            level: wrong
            what: The driver is installed and not loaded.
            evidence:
              - look: check driver_loaded
                said: the kernel module rebellions is not loaded
                level: wrong
                next_step: Run modprobe rebellions.
            remedy: Run ansible-playbook rebellions.npu.site --limit npu1.
            prove: modprobe rebellions; dmesg | tail on the host
            explained_by: []
            cluster: ""
    clusters: {}
first:
  description: For each host with a fault, its most likely cause and what to do. Empty where nothing is wrong.
  returned: with O(act=show)
  type: dict
  sample:
    npu1: "driver_not_loaded: The driver is installed and not loaded. Next: Run ansible-playbook rebellions.npu.site
      --limit npu1."
lines:
  description: The lines of the screen.
  returned: with O(act=show)
  type: list
  elements: str
signs:
  description: What is not in order in the cluster itself.
  returned: with O(act=cluster)
  type: list
  elements: list
hosts:
  description: What is not in order with the node of each host.
  returned: with O(act=cluster)
  type: dict
cluster:
  description: The name of the cluster.
  returned: with O(act=cluster)
  type: str
"""
