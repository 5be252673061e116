#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_plan_show
short_description: Show the plans of all hosts and clusters of a play on one screen
version_added: 0.1.0
description:
  - Shows what the hosts of the play have registered as C(rbln_preflight_plan), and what a dry run of the role
    P(rebellions.npu.rbln_operands#role) has said of their clusters. Equal plans are shown once, with totals at the end.
  - The screen is written to stdout only where people read it, that is with the callback
    P(ansible.builtin.default#callback) or one made of it, else to stderr. The result has the same lines. Colours follow
    the settings of Ansible, such as E(ANSIBLE_NOCOLOR).
  - Runs on the controller, contacts no host and changes nothing. Use it with C(run_once).
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  format:
    description: V(text) for people, or V(json) to return RV(plan) for programs instead.
    type: str
    choices: [text, json]
    default: text
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
seealso:
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Plan
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_preflight
  vars:
    rbln_preflight_stop: false

- name: Show the plan
  rebellions.npu.rbln_plan_show:
  run_once: true

- name: Return the plan of every host for a program
  rebellions.npu.rbln_plan_show:
    format: json
  run_once: true
"""

RETURN = r"""
msg:
  description: The lines of the screen.
  type: list
  elements: str
  returned: when O(format=text)
pending:
  description: Whether a run would change a host or a cluster.
  type: bool
  returned: success
totals:
  description: Hosts and objects counted.
  type: dict
  returned: success
  contains:
    hosts:
      description: Hosts of the play.
      type: int
    change:
      description: Hosts that a run would change.
      type: int
    unchanged:
      description: Hosts that are as wanted.
      type: int
    left:
      description: Hosts that a rollout leaves as they are, since somebody else has cordoned their nodes, by their skip
        label, or by C(rbln_rollout_last_wave).
      type: int
    stopped:
      description: Hosts that the plan stops before anything is changed.
      type: int
    unplanned:
      description: Hosts without a plan, because an earlier task failed.
      type: int
    clusters:
      description: Clusters that were asked.
      type: int
    create:
      description: Objects of clusters to create.
      type: int
    modify:
      description: Objects of clusters to change.
      type: int
    remove:
      description: Objects of clusters to remove.
      type: int
    label:
      description: Nodes whose labels change.
      type: int
    refused:
      description: Clusters that refuse a change, or fail a host.
      type: int
  sample: {hosts: 3, change: 3, unchanged: 0, left: 0, stopped: 0, unplanned: 0, clusters: 1, create: 12, modify: 0,
           remove: 0, label: 3, refused: 0}
plan:
  description: The plan of each host and cluster by its name.
  type: dict
  returned: when O(format=json)
  contains:
    hosts:
      description: For each host its steps, stops and cautions, as M(rebellions.npu.rbln_plan) returns them, and
          C(error) when it has no plan.
      type: dict
    clusters:
      description: For each cluster the actions on its objects, the records of nodes, errors of hosts, and warnings.
      type: dict
    totals:
      description: The same as RV(totals).
      type: dict
    rollout:
      description: Where hosts go through a rollout, its C(waves) (for each host its node, changes, what they disturb,
          services, pods and budgets), the C(pace) of each pool, what is C(left) as it is and why, the playbook whose
          defaults it has (C(playbook)), and C(seconds) where earlier runs tell; or C(error).
      type: dict
"""
