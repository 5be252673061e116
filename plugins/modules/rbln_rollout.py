#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_rollout
short_description: One act of a rollout, which takes nodes with Rebellions NPUs out of service and puts them back
version_added: 0.1.0
description:
  - The role P(rebellions.npu.rbln_rollout#role) and the playbooks use it; the inputs of the role are its options.
  - The state of a rollout is in the cluster, on the nodes and in one ConfigMap, so that a run that was killed goes on
    with the next one. For hosts without Kubernetes it is a file of the controller.
  - Runs on the controller, and runs nothing on the managed host.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  act:
    description:
      - V(plan) cuts the hosts of the play whose plan disturbs something into waves. Use it with C(run_once) and the
        strategy C(linear), after M(rebellions.npu.rbln_plan), and register it as C(rbln_rollout_plan). In check mode it
        also returns RV(table).
      - V(leave) waits for the turn of the host, cordons its node and drains it. Where the role has a hook before the
        drain, it ends after the cordon, and V(drain) drains.
      - V(return) waits until the node offers its NPUs again, and uncordons it. With O(failure) it leaves the node
        cordoned, or gives it back where the host was not changed.
      - V(finish) shows how the rollout ended.
    type: str
    required: true
    choices: [plan, leave, drain, return, finish]
  failure:
    description: What has failed on the host since V(leave).
    type: str
    default: ""
  failed_task:
    description: The part of the run that has failed.
    type: str
    default: ""
  smoke:
    description: Whether V(return) leaves the node cordoned until the smoke workload has run on it, where the role asks
      for that.
    type: bool
    default: true
  reboot_required:
    description: Whether the change ends with a reboot that a person has to do.
    type: bool
    default: false
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A host whose plan disturbs nothing has no turn.
seealso:
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Cut the waves
  rebellions.npu.rbln_rollout:
    act: plan
  run_once: true
  register: rbln_rollout_plan

- name: Take the node out of service
  rebellions.npu.rbln_rollout:
    act: leave
  register: __rbln_rollout_left
"""

RETURN = r"""
hosts:
  description: The hosts that go, as text with a comma before and after each name.
  type: str
  returned: with O(act=plan)
  sample: ",npu1,npu2,"
turns:
  description: One line for each of these hosts, with its name, and its node, pool and run, as JSON.
  type: str
  returned: with O(act=plan), when a host goes
local:
  description: The pools of the hosts without a cluster, as JSON.
  type: str
  returned: with O(act=plan), when such a host goes
order:
  description: The hosts in the order in which they go, as the keyword C(hosts) of a play takes them.
  type: str
  returned: with O(act=plan), when hosts may have to wait for each other
  sample: npu1,npu2,npu_nodes
serial:
  description: The sizes of the waves, as the keyword C(serial) of a play takes them.
  type: list
  elements: raw
  returned: with O(act=plan), when hosts may have to wait for each other
  sample: [1, 100%]
strategy:
  description: The strategy with which a play lets each host of a wave go on by itself.
  type: str
  returned: with O(act=plan), when hosts may have to wait for each other
  sample: ansible.builtin.host_pinned
table:
  description: The waves with each host as JSON, and the lines of the screen that shows them.
  type: str
  returned: with O(act=plan) in check mode, when a host goes
goes:
  description: Whether the host is to be changed now. False where its node is left as it is.
  type: bool
  returned: with O(act=leave)
leaving:
  description: The pods, by uid, that would be gone from the node before the host is changed.
  type: list
  elements: str
  returned: with O(act=leave) in check mode
begun:
  description: Whether an earlier run may have changed the host.
  type: bool
  returned: with O(act=leave)
unready:
  description: The components of ours on the node that were not ready before its change. Its return waits for none of
    them.
  type: list
  elements: str
  returned: with O(act=leave) or O(act=drain)
stopped:
  description: The components of ours that had to leave the node. Its return waits for a pod of each that offers NPUs.
  type: list
  elements: str
  returned: with O(act=leave) or O(act=drain)
before:
  description: The file of tasks that comes before the drain; empty for none.
  type: str
  returned: with O(act=leave)
smoke:
  description: The node on which the smoke workload is to run before it is uncordoned.
  type: str
  returned: with O(act=return) and C(rbln_rollout_smoke)
tolerations:
  description: Those of our pods and that of a cordoned node.
  type: list
  elements: dict
  returned: with RV(smoke)
after:
  description: The file of tasks that comes after the node was uncordoned; empty for none.
  type: str
  returned: with O(act=return)
reason:
  description: What has failed, with what has become of the node.
  type: dict
  returned: with O(act=return) and O(failure)
  contains:
    task:
      description: The part of the run that has failed.
      type: str
    msg:
      description: Its message.
      type: str
msg:
  description: What was done; with O(act=finish) the lines of the screen.
  type: raw
  returned: success
"""
