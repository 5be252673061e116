#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_support
short_description: One act of making a support bundle of hosts with Rebellions NPUs and their clusters
version_added: 0.1.0
description:
  - Collects outputs, logs and files of hosts, and objects and logs of their clusters, without secrets, into one archive
    on the controller. The inputs are those of the role P(rebellions.npu.rbln_support#role), which runs the acts in
    their order.
  - Each source has a limit of time and of size. One that hangs or fails, and a host that cannot be reached, is a line
    in the manifest of the archive, and fails nothing.
  - Nothing is written on a host. What a host has sent goes to disk on the controller before its task ends, so the
    results are small.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  act:
    description:
      - V(check) judges the inputs and the place of the archive.
      - V(host) collects from the host.
      - V(clusters) collects from the clusters of all hosts of the play. Use C(run_once).
      - V(archive) writes the archive of what the other acts have collected in this run. Use C(run_once).
    type: str
    choices: [check, host, clusters, archive]
    required: true
  limits:
    description: Set by the action plugin. Not for playbooks.
    type: dict
    default: {}
  options:
    description: Options of M(rebellions.npu.rbln_observe), set by the action plugin. Not for playbooks.
    type: dict
    default: {}
  serials:
    description: Whether serial numbers are kept. Set by the action plugin. Not for playbooks.
    type: bool
    default: false
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  action:
    description: Has a corresponding action plugin, which does all but O(act=host) on the controller.
    support: full
  check_mode:
    support: full
    details:
      - In check mode it tells which sources of a host are there and where the archive would be. No program runs on the
        host, and no request is sent to a cluster.
  diff_mode:
    support: N/A
    details:
      - The archive is new each time.
  idempotent:
    support: N/A
    details:
      - Each run makes a new archive on the controller, which is not told as a change, since hosts and clusters are not
        changed.
seealso:
  - module: rebellions.npu.rbln_observe
"""

EXAMPLES = r"""
- name: Collect from the host
  rebellions.npu.rbln_support:
    act: host
  become: true

- name: Write the archive
  rebellions.npu.rbln_support:
    act: archive
  run_once: true
  register: bundle
"""

RETURN = r"""
path:
  description: The archive on the controller.
  type: str
  returned: with O(act=check) and O(act=archive)
size:
  description: Bytes of the archive, or of what was collected from a host.
  type: int
  returned: with O(act=host) and O(act=archive)
sha256:
  description: SHA-256 of the archive.
  type: str
  returned: with O(act=archive), not in check mode
files:
  description: Number of files from hosts and clusters.
  type: int
  returned: with O(act=host) and O(act=archive)
state:
  description: V(collected), V(unreachable), V(failed), or V(planned) in check mode.
  type: str
  returned: with O(act=host)
detail:
  description: Why a host is not collected; empty for none.
  type: str
  returned: with O(act=host)
failed_sources:
  description: How each source ended that is neither there nor absent, by its name.
  type: dict
  returned: with O(act=host)
  sample: {npu/rbln-smi.txt: timeout}
sources:
  description: Commands and paths that would be collected.
  type: list
  elements: str
  returned: with O(act=host), in check mode
hosts:
  description: For each host its C(state), C(detail), C(seconds), C(folder) in the archive, C(files), C(size), and
    C(failed), the names of the sources that failed.
  type: dict
  returned: with O(act=archive)
clusters:
  description: The same for each cluster.
  type: dict
  returned: with O(act=archive) and O(act=clusters)
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import Limits, collect


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "act": {"type": "str", "choices": ["check", "host", "clusters", "archive"], "required": True},
            "limits": {"type": "dict", "default": {}},
            "options": {"type": "dict", "default": {}},
            "serials": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    found = collect(PROFILE, Host(), given["options"], Limits(**given["limits"]), given["serials"], module.check_mode)
    module.exit_json(**found)


if __name__ == "__main__":
    main()
