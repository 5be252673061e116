#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_operands
short_description: One act on the cluster part of an installation with Rebellions NPUs
version_added: 0.1.0
description:
  - The acts that the role P(rebellions.npu.rbln_operands#role) is made of. Use the role; it puts them in order.
  - Runs on the controller with the Python of Ansible, asks the Kubernetes API with the credentials of the kubeconfig, and runs nothing on the managed host.
  - The inputs are the variables documented by the role. They are read by this module itself.
author:
  - The rebellions.npu authors (@rebellions-npu)
requirements:
  - kubernetes >= 24.2.0 on the controller
  - PyYAML on the controller
options:
  act:
    description:
      - V(member) reads the inputs of a host and says which cluster it belongs to.
      - V(clusters) chooses the host that acts for each cluster and checks that hosts of one cluster agree on the inputs.
      - V(render) writes the manifests to a file on the controller.
      - V(label) labels the node of each member of the cluster, and no other node.
      - V(apply) lists the objects of ours, applies by server-side apply those that differ, and deletes those that are no longer wanted.
      - V(wait) waits until every pod is ready and every node offers the NPUs of its host, or the deadline passes.
      - V(absent) removes labels and objects and proves that they are gone.
      - V(judge) turns the outcome of the cluster into success or failure of this host.
    type: str
    required: true
    choices: [member, clusters, render, label, apply, wait, absent, judge]
  members:
    description: For V(clusters) the registered results of V(member); for V(label) and V(absent) the records of the members of the cluster.
    type: list
    elements: dict
    default: []
  nodes:
    description: For V(wait), the RV(nodes) of V(label).
    type: dict
    default: {}
  outcome:
    description: For V(judge), what the acting host registered.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode and return what would change; writes are dry runs of the API server.
    support: full
  diff_mode:
    description: Returns details on what has changed in diff mode; the content of secrets is hidden.
    support: full
  action:
    description: Runs on the controller.
    support: full
seealso:
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Bring device plugin, validator and labels to the cluster of each host
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_operands

- name: Read the inputs of this host
  rebellions.npu.rbln_operands:
    act: member
  register: member

- name: Apply all objects of the cluster
  rebellions.npu.rbln_operands:
    act: apply
  register: applied
"""

RETURN = r"""
objects:
  description: What happened to each object, for V(apply) and V(absent).
  returned: when O(act=apply) or O(act=absent)
  type: dict
  sample:
    DaemonSet rbln-system/rbln-device-plugin: created
    Namespace rbln-system: unchanged
nodes:
  description: For each host the node it is, the labels before and after, notes, the expected number of NPUs, and the error if there is one.
  returned: when O(act=label) or O(act=absent)
  type: dict
waited:
  description: The last look at DaemonSets and nodes, with the problems that were left.
  returned: when O(act=wait)
  type: dict
result:
  description: For this host the cluster, the acting host, objects, node, DaemonSets, allocatable NPUs, C(ok), and the error.
  returned: when O(act=judge)
  type: dict
requests:
  description: Number of requests to the API server.
  returned: when O(act=apply) or O(act=absent)
  type: int
"""
