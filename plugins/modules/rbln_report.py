#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_report
short_description: Write a report of the hosts of a play, or of what has changed on them since the last one
version_added: 0.1.0
description:
  - The playbooks C(rebellions.npu.report) and C(rebellions.npu.drift) use it. A report of a run is
    written by the callback P(rebellions.npu.rbln_report#callback), in the same form and to the same folder.
  - Runs on the controller, contacts no host and changes none. Use it with C(run_once).
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  act:
    description:
      - V(known) reports what is known without asking a host, from cached facts and earlier reports.
      - V(compare) returns the hosts that are not as the last report has them. It writes nothing.
      - V(drift) reports what has changed since the last report, by whom.
      - The last two read what the roles P(rebellions.npu.rbln_discover#role) and P(rebellions.npu.rbln_preflight#role)
        have registered in the same run.
    type: str
    choices: [known, compare, drift]
    default: known
  path:
    description:
      - The folder of the reports, or one file that is replaced, as in P(rebellions.npu.rbln_report#callback).
      - Where it is not set, that of the callback is taken, from the environment or C(ansible.cfg), as for O(formats)
        and O(keep).
    type: path
  formats:
    description:
      - What is written, of V(html), V(json), V(markdown) and V(junit).
      - Without V(json) the next report has nothing to compare with.
    type: list
    elements: str
  keep:
    description: How many reports stay in the folder. V(0) keeps all.
    type: int
  format:
    description: V(text) shows the screen for people, V(json) returns RV(drift) for programs instead.
    type: str
    choices: [text, json]
    default: text
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.controller
attributes:
  check_mode:
    description: In check mode no file is written.
    support: full
  diff_mode:
    support: none
  idempotent:
    description: Each run writes a report of its own, and changes no host.
    support: full
seealso:
  - plugin: rebellions.npu.rbln_report
    plugin_type: callback
  - module: rebellions.npu.rbln_history
"""

EXAMPLES = r"""
- name: Write the report of what is known
  rebellions.npu.rbln_report:
    path: /srv/reports/npu
  run_once: true

- name: Find the hosts that have changed
  rebellions.npu.rbln_report:
    act: compare
  run_once: true
  register: __rbln_report_compared
"""

RETURN = r"""
hosts:
  description: For each host its C(state) and the C(reason). With O(act=compare) the hosts that have changed, each with
    the time C(since) and the C(paths) that M(rebellions.npu.rbln_history) is to be asked for.
  returned: always
  type: dict
  sample: {npu1: {state: failed, reason: "driver/driver_loaded: failed."}}
paths:
  description: The files that were written, by format.
  returned: with O(act=known) and O(act=drift)
  type: dict
  sample: {json: /srv/reports/npu/20261129T212451Z-rebellions.npu.drift-4f01.json}
drifted:
  description: Whether a host or a cluster has drifted.
  returned: with O(act=drift)
  type: bool
since:
  description: The time of the last report; empty where there is none.
  returned: with O(act=drift)
  type: str
  sample: "2026-11-28T02:00:40Z"
clusters:
  description: For each cluster that has drifted its objects, each with what is wrong with it.
  returned: with O(act=drift)
  type: dict
  sample: {prod: [ConfigMap rbln-system/rbln-metrics differs]}
not_known:
  description: For each host what the last report knew and this one does not, with C(what), what it C(was), and C(why).
    It is no drift.
  returned: with O(act=drift) and O(format=json)
  type: dict
  sample: {npu1: [{what: driver, was: 3.1.0, why: ""}]}
drift:
  description: For each host that has drifted a list with C(what), what it C(was) and C(is), C(by) (V(run),
    V(package manager), V(person) or V(unknown)), C(at) and the C(evidence).
  returned: with O(act=drift) and O(format=json)
  type: dict
  sample:
    npu1:
      - what: driver
        was: 3.1.0
        is: 3.0.2
        by: package manager
        at: "2026-11-29T04:11:02Z"
        evidence: "/var/log/apt/history.log: apt-get install rebellions-driver=3.0.2, by kim"
msg:
  description: The lines of the screen.
  returned: with O(act=known), and with O(act=drift) and O(format=text)
  type: list
  elements: str
"""
