#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_runfile
short_description: Run the driver's installer after verifying it on both sides
version_added: 0.1.0
description:
  - Verifies O(src) on the controller, transfers it, copies it on the host into a directory that only root can enter, verifies the copy, and runs it.
  - The vendor publishes neither the flags of the installer nor its exit codes, so O(arguments) is an input and any exit code but 0 is a failure.
  - After an installation it notes O(version) and digest in C(/var/lib/rbln/driver-runfile.json), from which M(rebellions.npu.rbln_driver_facts) knows
    where the driver came from. Removing takes the note away.
  - The module does not look at what is installed; P(rebellions.npu.rbln_driver#role) calls it only when the plan says so.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  src:
    description: The file on the controller.
    type: path
    required: true
  sha256:
    description: SHA-256 of the file, 64 hexadecimal digits.
    type: str
    required: true
  state:
    description: Whether O(arguments) make the installer install or remove.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: Version of the driver in the file, for the note. Without it no note is made.
    type: str
  arguments:
    description: Arguments of the installer.
    type: list
    elements: str
    default: []
  directory:
    description: Directory on the host, made with mode 0700 for root when missing.
    type: path
    default: /var/lib/rebellions-npu/driver
  timeout:
    description: Seconds the installer may take.
    type: float
    default: 1800
  staged:
    description: Where the action plugin has put the file on the host. Not for use in playbooks.
    type: path
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    support: full
    details:
      - Verifies the file on the controller and reports a change; nothing is transferred or run.
  diff_mode:
    support: none
    details:
      - What an installer changes is not known beforehand.
  idempotent:
    support: none
    details:
      - The installer runs each time.
  action:
    description: Has a corresponding action plugin, which verifies the file on the controller and sends it.
    support: full
seealso:
  - module: rebellions.npu.rbln_driver_facts
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Install the driver
  rebellions.npu.rbln_runfile:
    src: /srv/rbln/rebellions-x86_64-3.2.2.run
    sha256: "{{ rbln_driver_runfile_sha256 }}"
    version: 3.2.2
  become: true

- name: Remove it again
  rebellions.npu.rbln_runfile:
    src: /srv/rbln/rebellions-x86_64-3.2.2.run
    sha256: "{{ rbln_driver_runfile_sha256 }}"
    arguments: [--uninstall]
    state: absent
  become: true
"""

RETURN = r"""
path:
  description: Where the verified file lies on the host.
  type: str
  returned: when it was run
  sample: /var/lib/rebellions-npu/driver/rebellions-x86_64-3.2.2.run
rc:
  description: Exit code of the installer.
  type: int
  returned: when it was run
  sample: 0
output:
  description: The last 4000 characters the installer printed, standard output and error together.
  type: str
  returned: when it was run
"""

import os
import posixpath

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.rebellions.npu.plugins.module_utils._host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._runfile import ARGUMENTS, execute, forget, note, place
from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE

STAMP = posixpath.join(PROFILE.runfile_stamp_dir, PROFILE.runfile_stamp)


def main() -> None:
    module = AnsibleModule(argument_spec=dict(ARGUMENTS, staged={"type": "path"}), supports_check_mode=True)
    params = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        path = place(params["staged"] or params["src"], params["directory"], params["sha256"], os.geteuid())
        ended = execute(path, params["sha256"], params["arguments"], params["timeout"])
    except (NpuError, OSError) as exc:
        module.fail_json(msg=str(exc))
    if ended["rc"] != 0:
        module.fail_json(
            msg="The installer ended with code %d. Next: read its last lines below and its own log." % ended["rc"], path=path, **ended
        )
    try:
        if params["state"] == "absent":
            forget(Host(), STAMP)
        elif params["version"]:
            note(Host(), STAMP, params["version"], params["sha256"])
    except NpuError as exc:
        module.fail_json(msg=str(exc), path=path, **ended)
    module.exit_json(changed=True, path=path, **ended)


if __name__ == "__main__":
    main()
