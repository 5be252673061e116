#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_validate
short_description: Prove that Rebellions NPUs work on a host
version_added: 0.1.0
description:
  - Runs checks of the driver, of the CDI specification and container runtime, and of the NPUs that the cluster offers,
    and returns for each what was seen and what to do.
  - Writes and removes the ready files below C(/run/rbln/validations), which other programs wait for.
  - A check is true, false, or not known. One that is not known has not passed.
author:
  - The rebellions.npu authors (@rebellions-npu)
extends_documentation_fragment:
  - rebellions.npu._proof
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.facts
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
options:
  markers:
    description:
      - What to do with the ready files C(.driver-ctr-ready), C(driver-ready) and C(toolkit-ready).
      - V(write) writes those of a scope that passed, the first two for C(driver) and the last for C(toolkit), and
        removes those of a scope that failed with those of every later one. A scope that is unknown leaves them as they
        are. A file that is right already is not touched. A CDI specification with right contents that is older than
        C(driver-ready) gets a new time.
      - V(keep) leaves them alone.
      - V(remove) removes all of them before the checks run, V(remove_toolkit) only C(toolkit-ready).
    type: str
    choices: [write, keep, remove, remove_toolkit]
    default: write
  fail_on_blocking:
    description:
      - Whether the module fails when the proof has not passed. Otherwise RV(passed) says so.
      - Ansible prints all that a failed task returns, so a failure has no RV(checks) and no facts; C(-vvv) prints them.
    type: bool
    default: true
seealso:
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_host_tool
  - module: rebellions.npu.rbln_cdi_spec
"""

EXAMPLES = r"""
- name: Take the ready files away before the driver changes
  rebellions.npu.rbln_validate:
    scopes: []
    markers: remove
  become: true

- name: Prove the driver and write its ready files
  rebellions.npu.rbln_validate:
    scopes: [driver]
    driver_version: 3.2.2
  become: true

- name: Prove everything, reporting a slow link but not stopping for it
  rebellions.npu.rbln_validate:
    scopes: [driver, toolkit, plugin]
    node_allocatable: "{{ node.resources[0].status.allocatable }}"
    blocking: [error, daemon_running]
  become: true
"""

RETURN = r"""
checks:
  description: Every check. Its form is C(docs/schemas/check.schema.json).
  returned: when the module does not fail
  type: list
  elements: dict
  contains:
    name:
      description: Name of the check.
      returned: always
      type: str
    vendor:
      description: Vendor of the NPUs.
      returned: always
      type: str
    scope:
      description: V(driver), V(toolkit), V(plugin) or V(vfio).
      returned: always
      type: str
    ok:
      description: True, false, or null when it is not known.
      returned: always
      type: bool
    severity:
      description: V(error), V(warning) or V(info).
      returned: always
      type: str
    detail:
      description: What was seen.
      returned: always
      type: str
    evidence:
      description: The data behind it.
      returned: always
      type: dict
    next_step:
      description: What to do, when it is not true.
      returned: always
      type: str
    seconds:
      description: How long the look took.
      returned: always
      type: float
passed:
  description: Whether no blocking check is false or not known.
  returned: always
  type: bool
state:
  description: V(passed), V(failed) or V(unknown).
  returned: always
  type: str
failed_checks:
  description: Names of the blocking checks that are false.
  returned: always
  type: list
  elements: str
unknown_checks:
  description: Names of the blocking checks that are not known.
  returned: always
  type: list
  elements: str
changes:
  description: Files that were (in check mode, would be) written, removed, or given a new time.
  returned: always
  type: list
  elements: dict
  sample:
    - path: /run/rbln/validations/driver-ready
      act: written
msg:
  description: Which checks stand in the way, and what to do.
  returned: when RV(passed) is false
  type: str
ansible_facts:
  description: The proof as C(rbln_proof), and the facts behind it as C(rbln) and C(rbln_runtimes).
  returned: when the module does not fail
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.prove import MARKER_MODES
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import look_for, prove_look
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import (
    ARGUMENTS,
    complete,
    merge,
    read_settings,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            markers={"type": "str", "choices": list(MARKER_MODES), "default": "write"},
            fail_on_blocking={"type": "bool", "default": True},
            options={"type": "dict", "default": {}},
        ),
        supports_check_mode=True,
    )
    try:
        params = complete(merge(module.params), "options")
        settings = read_settings(PROFILE, params, module.params["markers"], module.check_mode)
        host = Host(params["root"])
        seen = look_for(PROFILE, host, settings)
        proof = prove_look(PROFILE, host, seen, settings)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    data = proof.to_dict()
    result = {
        "changed": data["changed"],
        "checks": data["checks"],
        "passed": data["passed"],
        "state": data["state"],
        "failed_checks": data["failed"],
        "unknown_checks": data["unknown"],
        "changes": data["changes"],
        "diff": {
            "before": "".join("%s\n" % item["path"] for item in data["changes"] if item["act"] == "removed"),
            "after": "".join("%s\n" % item["path"] for item in data["changes"] if item["act"] != "removed"),
        },
        "ansible_facts": {"rbln_proof": data},
    }
    if not data["passed"]:
        result["msg"] = proof.message()
        if module.params["fail_on_blocking"]:
            module.fail_json(**result)
    if seen.facts:
        result["ansible_facts"].update(rbln=seen.facts, rbln_runtimes=seen.runtimes)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
