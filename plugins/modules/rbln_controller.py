#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_controller
short_description: Find what is wrong on the controller before a host is changed
version_added: 0.1.0
description:
  - Judges the inputs of all hosts of a play and opens what the run needs on the controller, for all of them together.
  - Use it with C(run_once), before M(rebellions.npu.rbln_plan), which stops the hosts that have a problem.
  - Runs on the controller, changes nothing, and runs nothing on the managed host.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  look:
    description:
      - V(inputs) names each variable that begins as an input and is none, and reads the inputs of all hosts. When that
        stops the run, it opens all the rest too, so that the one message is complete.
      - V(controller) opens the driver's files (with digest and signature) of hosts that wait for an installation, the
        kubeconfig, the API server, asks for the rights of the account, and looks for the node of each host. It needs
        the results that the role P(rebellions.npu.rbln_discover#role) has registered.
    type: str
    required: true
    choices: [inputs, controller]
  fail:
    description: Fail when a problem stops every host of the play. V(false) only returns the problems. The misspelt name
      of an input fails always.
    type: bool
    default: true
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
seealso:
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Judge the inputs of all hosts
  rebellions.npu.rbln_controller:
    look: inputs
  run_once: true
  register: rbln_preflight_inputs

- name: Open what is on the controller
  rebellions.npu.rbln_controller:
    look: controller
  run_once: true
  register: rbln_preflight_opened
"""

RETURN = r"""
at:
  description: When this look began.
  type: str
  returned: with O(look=inputs)
  sample: "2026-01-31T22:00:00Z"
unfinished:
  description: Hosts whose nodes a rollout has begun with and not put back.
  type: list
  elements: str
  returned: with O(look=controller)
  sample: [npu3]
given_back:
  description: Hosts whose nodes a rollout has put back into service after a failure that changed nothing. Their label
    says so until nothing is left to be done on the host.
  type: list
  elements: str
  returned: with O(look=controller)
  sample: [npu4]
problems:
  description: What is wrong, each once.
  type: list
  elements: dict
  returned: success
  contains:
    detail:
      description: What was seen.
      type: str
      sample: /srv/driver.run cannot be read on the controller; No such file or directory.
    next_step:
      description: What to do.
      type: str
      sample: Check the path.
    hosts:
      description: The hosts that it stops.
      type: list
      elements: str
      sample: [npu1, npu2]
"""
