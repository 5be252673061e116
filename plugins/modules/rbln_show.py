#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_show
short_description: Show the hosts of a play on one screen
version_added: 0.1.0
description:
  - Shows a row for each host with its NPUs, versions, runtime and node, and below it what is wrong or not known, with
    the next step. Hosts of which the same is to be said share it.
  - Reads what the hosts of the play have registered, asks no host, and changes nothing. Use C(run_once).
  - The lines go to stdout beside Ansible's default callback and those made of it, in its colours. Beside any other one,
    such as P(ansible.posix.jsonl#callback), they go to stderr, and RV(hosts) has the data.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  what:
    description:
      - V(observation) shows what the role P(rebellions.npu.rbln_discover#role) has observed.
      - V(proof) shows what the role P(rebellions.npu.rbln_validator#role) has proven.
    type: str
    choices: [observation, proof]
    default: observation
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
seealso:
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_validate
"""

EXAMPLES = r"""
- name: Observe
  ansible.builtin.import_role:
    name: rebellions.npu.rbln_discover

- name: Show the hosts
  rebellions.npu.rbln_show:
  run_once: true
"""

RETURN = r"""
hosts:
  description: For each host its C(state) (V(ok), V(failed), V(unknown) or V(not seen)) and its C(findings), each with
    C(word) (V(FAILED), V(unknown) or V(warning)) and C(text).
  returned: always
  type: dict
  sample:
    npu1:
      state: unknown
      findings:
        - word: unknown
          text: "toolkit/runtime_sees_spec: containerd is stopped (containerd.service is inactive). Next: Run
            `systemctl start containerd.service` on the host."
lines:
  description: The lines of the screen.
  returned: always
  type: list
  elements: str
"""
