#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_plan
short_description: Plan what a run would do to a host with Rebellions NPUs
version_added: 0.1.0
description:
  - Compares the inputs of the roles of this collection with one observation of the host and returns the steps, the
    problems that stop the host, and the cautions.
  - Runs on the controller and changes nothing. The managed host is only contacted when no O(observation) is given,
    and to read the units of runtimes with C(rbln_container_toolkit_runtime_proxies).
  - The inputs are the variables documented by the roles P(rebellions.npu.rbln_preflight#role),
    P(rebellions.npu.rbln_driver#role), P(rebellions.npu.rbln_container_toolkit#role), and
    P(rebellions.npu.rbln_validator#role). They are read once, here.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  observation:
    description:
      - The registered result of M(rebellions.npu.rbln_observe) in this run, with the checks of the scopes V(driver) and
        V(toolkit), or the name of the variable that has it. The name costs less.
      - Without it the host is observed first. Facts from a cache are never used.
    type: raw
  support_matrix:
    description:
      - Rules of the support matrix. Each has C(os), C(version), C(kernel) (the kernel series), and may have C(drivers)
        (version constraints), C(families), C(kernel_max), C(flavours), C(tested) (V(full) or V(partial)), C(too_old),
        and C(too_new) (what to do about it).
      - The default are the rules of this collection.
    type: list
    elements: dict
  fail_on_stops:
    description:
      - Fail the host when the plan has a stop. Nothing has been changed at that point.
      - The default is the input C(rbln_preflight_stop).
    type: bool
  warn:
    description: Show each caution as a warning of the task. M(rebellions.npu.rbln_plan_show) shows equal ones once.
    type: bool
    default: true
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.facts
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
seealso:
  - module: rebellions.npu.rbln_plan_show
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_cdi_spec
  - module: rebellions.npu.rbln_validate
"""

EXAMPLES = r"""
- name: Observe the host
  rebellions.npu.rbln_observe:
  register: observation

- name: Plan, and only report what would stop the run
  rebellions.npu.rbln_plan:
    observation: observation
    support_matrix: []
    fail_on_stops: false
  register: plan

- name: Show the steps
  ansible.builtin.debug:
    var: plan.steps
"""

RETURN = r"""
schema:
  description: Version of this structure, which C(docs/schemas/plan.schema.json) describes.
  type: int
  returned: success
  sample: 1
steps:
  description: What has to be done, in order. Each is described by C(docs/schemas/step.schema.json).
  type: list
  elements: dict
  returned: success
  contains:
    id:
      description: Name of the step.
      type: str
      sample: toolkit.cdi
    vendor:
      description: Vendor of the NPUs.
      type: str
      sample: rebellions
    role:
      description: Which role does it, V(driver), V(container_toolkit), or V(validator).
      type: str
      sample: container_toolkit
    component:
      description: What is changed.
      type: str
      sample: CDI spec
    now:
      description: Present state.
      type: raw
      sample: missing
    wanted:
      description: Wanted state.
      type: raw
      sample: current
    reason:
      description: Why.
      type: str
      sample: The spec is missing.
    disruption:
      description: What the step disturbs, V(none), V(restart), V(evict), or V(reboot).
      type: str
      sample: none
    after:
      description: The step that must end before the result of this one is known, or empty.
      type: str
      sample: driver.install
stops:
  description:
    - Problems that stop the host before anything is changed. Each has RV(stops[].code), RV(stops[].severity),
      RV(stops[].detail), and RV(stops[].next_step).
  type: list
  elements: dict
  returned: success
  contains:
    code:
      description: Stable name of the problem.
      type: str
      sample: driver_replace_not_allowed
    severity:
      description: V(error), V(warning), or V(info).
      type: str
      sample: error
    detail:
      description: What was seen.
      type: str
      sample: Driver 3.0.0 is installed and 3.2.2 is wanted.
    next_step:
      description: What to do.
      type: str
      sample: "Set rbln_driver_replace: true to let this run replace it."
    vendor:
      description: Vendor of the NPUs.
      type: str
      sample: rebellions
cautions:
  description: Problems that do not stop the host, of the same shape as RV(stops).
  type: list
  elements: dict
  returned: success
roles:
  description: The roles that have something to do, in order.
  type: list
  elements: str
  returned: success
  sample: [driver, container_toolkit, validator]
disruption:
  description: The worst disruption of all steps.
  type: str
  returned: success
  sample: restart
acts:
  description: For each role the acts it has to do, in order.
  type: dict
  returned: success
  sample:
    driver: []
    container_toolkit: [cdi, runtime]
    validator: [markers]
stale_units:
  description: Units whose configuration is right and whose process is older than the configuration.
  type: list
  elements: str
  returned: success
unrepaired:
  description: Blocking checks that have not passed and that no step repairs. The proof of the host will fail for them.
  type: list
  elements: str
  returned: success
wanted:
  description: All inputs of the roles, with their types.
  type: dict
  returned: success
options:
  description: Options for M(rebellions.npu.rbln_observe) and M(rebellions.npu.rbln_validate) that follow from the
    inputs.
  type: dict
  returned: success
cdi_options:
  description: Options for M(rebellions.npu.rbln_cdi_spec) that follow from the inputs and the host.
  type: dict
  returned: success
proxies:
  description: >-
    What the proxies of the runtimes need, without the proxies themselves; null without
    C(rbln_container_toolkit_runtime_proxies).
  type: dict
  returned: success
  contains:
    changed:
      description: Names of the runtimes whose units have others.
      type: list
      elements: str
    no_proxy:
      description: What is reached without a proxy.
      type: list
      elements: str
    problem:
      description: Why they cannot be given; else empty.
      type: str
    next_step:
      description: What to do then.
      type: str
observation:
  description: The observation that was planned from. The playbook C(rebellions.npu.site) leaves it out where
    nothing is to be done.
  type: dict
  returned: success
"""
