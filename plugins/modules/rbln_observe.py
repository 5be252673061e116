#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_observe
short_description: Look at everything on a host with Rebellions NPUs at once
version_added: 0.1.0
description:
  - Reads driver facts, container runtimes, the CDI specification and the ready files, runs the checks, and compares the
    host tool, in one process. The roles of this collection plan from the result.
  - Nothing is changed. When the plan is empty, these checks are the proof.
author:
  - The rebellions.npu authors (@rebellions-npu)
extends_documentation_fragment:
  - rebellions.npu._proof
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.facts
  - rebellions.npu._attributes.group
options:
  by_host_tool:
    description:
      - Whether the host tool, where M(rebellions.npu.rbln_host_tool) has installed it, looks in place of this module.
        The answer is the same, but the host need not compile the sources of the module each time.
      - The module looks where there is no host tool, where the task is delegated, and where the options of ssh or the
        become plugin ask for a terminal. It also does, and a warning says why, where the tool is of another
        release of this collection, where others than root can change it or a directory above it, where its files are
        not those of its release, where its Python is another one than when it was installed, where the account's shell
        prints something by itself, and where the answer is cut short.
      - Options that are given by themselves, not in O(options) and not by O(from_inputs), need the module.
    type: bool
    default: true
  from_inputs:
    description:
      - Take the options from the inputs of the roles of this collection, so that the host is compared with what the
        roles would configure.
      - O(options) wins over them.
    type: bool
    default: false
  into_pool:
    description:
      - Put the host into the group C(npu_pool_KEY), a child of C(npu_pools). KEY is C(ansible_facts.rbln.pool_key).
      - On ansible-core 2.20 and older a task that does so is changed, unless it has C(changed_when).
    type: bool
    default: false
  passed_as_names:
    description:
      - Of the checks that have passed, return only the names, in C(passed_checks) of C(ansible_facts.rbln_observed).
        Their records are more than half of the result, and Ansible copies a result several times. C(-vvv) shows them.
    type: bool
    default: false
  host_tool:
    description:
      - Fingerprints of the files of the host tool, by path. Set by the action plugin. Not for playbooks.
    type: dict
    default: {}
attributes:
  action:
    description: Has a corresponding action plugin, which computes O(host_tool) on the controller.
    support: full
seealso:
  - module: rebellions.npu.rbln_driver_facts
  - module: rebellions.npu.rbln_runtime_detect
  - module: rebellions.npu.rbln_validate
"""

EXAMPLES = r"""
- name: Observe the host
  rebellions.npu.rbln_observe:
    cdi:
      form: kubernetes
  register: observation
  become: true

- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ ansible_facts.rbln_observed.checks | rejectattr('ok', 'equalto', true) | map(attribute='detail') }}"
"""

RETURN = r"""
ansible_facts:
  description: What was seen.
  returned: success
  type: dict
  contains:
    rbln:
      description: As returned by M(rebellions.npu.rbln_driver_facts).
      returned: success
      type: dict
    rbln_runtimes:
      description: As returned by M(rebellions.npu.rbln_runtime_detect).
      returned: success
      type: dict
    rbln_observed:
      description: Comparison and checks. Its form is C(docs/schemas/observed.schema.json).
      returned: success
      type: dict
      contains:
        schema:
          description: Version of this structure.
          returned: success
          type: int
          sample: 1
        state:
          description: V(passed), V(failed) or V(unknown).
          returned: success
          type: str
        passed:
          description: Whether every blocking check is true.
          returned: success
          type: bool
        failed:
          description: Names of the blocking checks that are false.
          returned: success
          type: list
          elements: str
        unknown:
          description: Names of the blocking checks that are not known.
          returned: success
          type: list
          elements: str
        checks:
          description: Every check, as returned by M(rebellions.npu.rbln_validate). With O(passed_as_names) only those
            that have not passed.
          returned: success
          type: list
          elements: dict
        passed_checks:
          description: Names of the checks that have passed, by scope.
          returned: with O(passed_as_names)
          type: dict
        cdi:
          description: The CDI specification compared with what would be written. C(state) is current, stale, missing,
            invalid or unknown.
          returned: success
          type: dict
        markers:
          description: The ready files. C(present) names those that exist; C(current) is true when a proof would change
            none.
          returned: success
          type: dict
        host_tool:
          description: The host tool compared with the controller's. C(current) is null when O(host_tool) was not set.
            C(runtimes) has the units of no usual name that run the host's runtimes, when there are some.
          returned: success
          type: dict
        containers:
          description: docker's containers that hold NPUs, as name, running, restart, devices. Null when docker is not
            installed or does not answer.
          returned: success
          type: list
          elements: dict
        run:
          description: The run of Ansible in which this was seen. The roles pass over what an earlier run has left in a
            fact cache.
          returned: on the controller
          type: str
        python:
          description: The interpreter that ran this.
          returned: success
          type: str
add_group:
  description: The group of the host's pool.
  returned: with O(into_pool)
  type: str
parent_groups:
  description: The groups above it.
  returned: with O(into_pool)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import answer
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import ARGUMENTS


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            by_host_tool={"type": "bool", "default": True},
            from_inputs={"type": "bool", "default": False},
            host_tool={"type": "dict", "default": {}},
            into_pool={"type": "bool", "default": False},
            options={"type": "dict", "default": {}},
            passed_as_names={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    found = answer(PROFILE, module.params)
    if found.get("failed"):
        module.fail_json(msg=found["msg"])
    module.exit_json(**found)


if __name__ == "__main__":
    main()
