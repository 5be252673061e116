#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_driver_files
short_description: Verify the driver's files and put them into a directory of root alone
version_added: 0.1.0
description:
  - Finds each file on the controller, by path, in a directory, or at an address, which is fetched once for all hosts, and verifies its SHA-256 and,
    where one is given, its detached signature. A file that differs is refused before a byte is sent.
  - Sends what the host does not have yet, and takes the digest again of the bytes that are written there.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      src:
        description: A path, a directory that holds O(files[].name), or an address (C(http), C(https)) of the file or, ending in C(/), of such a directory.
        type: str
        required: true
      sha256:
        description: SHA-256, 64 hexadecimal digits.
        type: str
        required: true
      name:
        description: The file's name in a directory.
        type: str
      signature:
        description: A detached signature, as path or address.
        type: str
  keyring:
    description: File on the controller with the public keys that may have signed. Needed for a signature.
    type: path
  cache:
    description: Directory on the controller for what was fetched.
    type: path
    default: ~/.cache/rebellions-npu/driver
  ca_path:
    description: File on the controller with the certificate authority of the server.
    type: path
  directory:
    description: Directory on the host, made with mode 0700 for root when missing. Without it, C(/var/lib/rbln/incoming).
    type: path
  staged:
    description: Where the action plugin has put the files on the host. Not for use in playbooks.
    type: dict
  timeout:
    description: Seconds without an answer after which a server counts as silent.
    type: float
    default: 60
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    support: full
    details:
      - Fetches and verifies on the controller; nothing is sent.
  diff_mode:
    support: none
    details:
      - The files are not text.
  idempotent:
    support: full
    details:
      - What is there with its digest is not sent again.
  action:
    description: Has a corresponding action plugin, which finds, verifies and sends the files.
    support: full
seealso:
  - module: rebellions.npu.rbln_driver
"""

EXAMPLES = r"""
- name: Send the installer
  rebellions.npu.rbln_driver_files:
    files:
      - src: https://files.example.com/rbln/
        name: rebellions-x86_64-3.4.0.run
        sha256: "{{ rbln_driver_runfile_sha256 }}"
  become: true
  throttle: 4
"""

RETURN = r"""
files:
  description: The files on the host, in the order given.
  type: list
  elements: dict
  returned: always
  contains:
    path:
      description: Where it is, or in check mode would be.
      type: str
      returned: always
    sha256:
      description: Its SHA-256.
      type: str
      returned: always
"""

import os
import posixpath

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver_notes import INCOMING, state_path
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import FILES_ARGUMENTS, place, verified


def main() -> None:
    module = AnsibleModule(argument_spec=dict(FILES_ARGUMENTS, staged={"type": "dict"}), supports_check_mode=True)
    params = module.params
    directory = params["directory"] or state_path(PROFILE, INCOMING)
    files, missing, changed = [], [], False
    try:
        for item in params["files"]:
            name = posixpath.basename(item["name"] or item["src"])
            path = posixpath.join(directory, name)
            files.append({"path": path, "sha256": item["sha256"].lower()})
            if verified(path, item["sha256"]):
                continue
            changed = True
            staged = (params["staged"] or {}).get(name)
            if staged is None:
                missing.append(name)
            elif not module.check_mode:
                place(staged, directory, item["sha256"], os.geteuid(), name)
    except (NpuError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=changed, files=files, missing=missing)


if __name__ == "__main__":
    main()
