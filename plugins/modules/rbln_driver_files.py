#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_driver_files
short_description: Verify driver files and send them to a private directory of the host
version_added: 0.1.0
description:
  - Finds each file on the controller, by path, in a directory, or at an address that is downloaded once for all hosts.
    Verifies its SHA-256 and, if set, its detached signature. A file that differs is refused before anything is sent.
  - Sends only what the host does not have yet, and verifies the SHA-256 again on the host.
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
        description: >-
          A path, a directory with O(files[].name), or an address (C(http), C(https)) of the file or, ending in C(/), of
          such a directory.
        type: str
        required: true
      sha256:
        description: SHA-256, 64 hexadecimal digits.
        type: str
        required: true
      name:
        description: Name of the file in the directory.
        type: str
      signature:
        description: Path or address of a detached signature.
        type: str
  keyring:
    description: File on the controller with the accepted public keys. With it each file needs a signature, and a
      signature needs it.
    type: path
  cache:
    description: Directory on the controller for downloaded files.
    type: path
    default: ~/.cache/rebellions-npu/driver
  ca_path:
    description: File on the controller with the certificate authority of the server.
    type: path
  directory:
    description: Directory on the host, created with mode 0700 for root. The default is C(/var/lib/rbln/incoming).
    type: path
  staged:
    description: Path of the files that the action plugin has sent. Not for playbooks.
    type: dict
  timeout:
    description: Time limit for an answer of a server, in seconds.
    type: float
    default: 60
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    support: full
    details:
      - Downloads and verifies on the controller, sends nothing.
  diff_mode:
    support: none
    details:
      - The files are not text.
  idempotent:
    support: full
    details:
      - Files with the right digest are not sent again.
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
      description: Path on the host, also in check mode.
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
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import secrets_in
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver_notes import INCOMING, state_path
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import FILES_ARGUMENTS, place, verified


def main() -> None:
    module = AnsibleModule(argument_spec=dict(FILES_ARGUMENTS, staged={"type": "dict"}), supports_check_mode=True)
    params = module.params
    module.no_log_values |= secrets_in(params)
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
