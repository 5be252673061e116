#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_repository
short_description: Configure the package repository of the driver with its key
version_added: 0.1.0
description:
  - Places a source of apt (deb822) or dnf and the public key that signs the repository.
  - Looks at the sources of the host first. One that has the same repository with the same key is used, and none is
    added. One that is in the way stops the module before any change, with its file and line. For apt these are
    sources with another key, since two of them make apt read no source at all.
  - When apt cannot read its sources afterwards, the files of the host are as they were before.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  url:
    description: Address of the repository.
    type: str
    required: true
  key:
    description:
      - Public key or keys that sign the repository, armoured or binary. A file on the controller, an address (C(http),
        C(https)) that the controller reads, or the armoured key itself.
      - An address with C(http) needs O(fingerprint).
    type: str
    required: true
  fingerprint:
    description: Fingerprints of exactly the keys in O(key), each with all its digits. Empty accepts any.
    type: list
    elements: str
    default: []
  suite:
    description: Suite of a deb repository. A flat repository has a path, such as V(./).
    type: str
    default: stable
  components:
    description: Components of a deb repository that is not flat.
    type: list
    elements: str
    default: [main]
  ca_path:
    description: File on the controller with the certificate authority of the server of O(key).
    type: path
  timeout:
    description: Time limit for the server of O(key), in seconds.
    type: float
    default: 60
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
seealso:
  - module: rebellions.npu.rbln_driver
"""

EXAMPLES = r"""
- name: Configure the repository of the driver
  rebellions.npu.rbln_repository:
    url: https://mirror.example.com/rbln
    key: https://mirror.example.com/rbln/key.asc
    fingerprint: ["0123 4567 89AB CDEF 0123  4567 89AB CDEF 0123 4567"]
  become: true
"""

RETURN = r"""
source:
  description: File of the source that the host uses.
  type: str
  returned: success
  sample: /etc/apt/sources.list.d/rebellions-npu.sources
adopted:
  description: Whether the host had this source already, so that none was added.
  type: bool
  returned: success
changes:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
  sample: [write /etc/apt/keyrings/rebellions-npu.asc]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.installed import read_packages
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import certificates
from ansible_collections.rebellions.npu.plugins.module_utils._packages.manager import manager_for
from ansible_collections.rebellions.npu.plugins.module_utils._packages.repository import ARGUMENTS, Wanted, place


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given, host = module.params, Host()
    try:
        _packages, form, _probe = read_packages(host, ("dpkg", "rpm"), 60.0)
        keys = certificates(given["key"].encode("utf-8"), "key")
        wanted = Wanted(given["url"], given["suite"], given["components"], keys)
        done = place(manager_for(host, form), wanted, module.check_mode)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=bool(done.changes),
        diff={"prepared": "".join("%s\n" % change for change in done.changes)},
        **done._asdict(),
    )


if __name__ == "__main__":
    main()
