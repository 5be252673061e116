#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_history
short_description: Read who has changed a host since a moment
version_added: 0.1.0
description:
  - Reads what apt, dpkg and dnf have logged, and which of some files are newer. It runs no command.
  - The playbook C(rebellions.npu.drift) asks it on hosts that have drifted.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  since:
    description: The moment, in seconds since the epoch.
    type: float
    required: true
  paths:
    description: Files whose last change is looked at.
    type: list
    elements: path
    default: []
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.group
attributes:
  action:
    description: Has a corresponding action plugin, which judges the answer of the host.
    support: full
seealso:
  - module: rebellions.npu.rbln_report
"""

EXAMPLES = r"""
- name: Read who has changed the host today
  rebellions.npu.rbln_history:
    since: "{{ lookup('ansible.builtin.pipe', 'date -d 00:00 +%s') }}"
    paths: [/etc/containerd/config.toml]
  become: true
"""

RETURN = r"""
packages:
  description: Transactions of package managers after O(since), oldest first. C(command) and C(by) are empty where the
    log does not tell.
  returned: success
  type: list
  elements: dict
  sample:
    - time: 1796000000.0
      log: /var/log/apt/history.log
      command: apt-get install rebellions-driver=3.0.2
      by: kim
      packages: [rebellions-driver]
files:
  description: The files among O(paths) that were written after O(since), oldest first.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /etc/containerd/config.toml
      time: 1796000300.0
      owner: root
unread:
  description:
    - Logs and files that could not be read, each with the C(reason), among them the log of a package manager that keeps
      none, and the database of rpm where it is newer than the logs of dnf.
    - With one of them it is not known who has changed the host.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /var/log/apt/history.log
      reason: "denied: Permission denied"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.history import newer_files, package_changes


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "since": {"type": "float", "required": True},
            "paths": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    host, since = Host("/"), module.params["since"]
    packages, unread_logs = package_changes(host, since)
    files, unread_files = newer_files(host, module.params["paths"], since)
    module.exit_json(changed=False, packages=packages, files=files, unread=unread_logs + unread_files)


if __name__ == "__main__":
    main()
