#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_package
short_description: Install or remove packages through a proxy or from the offline bundle
version_added: 0.1.0
description:
  - Installs packages with apt or dnf, or removes them, in one transaction that is simulated first.
  - Proxies with a password reach only the package manager. They are in no output, and on no command line of the host,
    where an C(environment) of the task would put them.
  - An installed package is not upgraded, unless its name comes with another version. Nothing is removed or downgraded
    to install a package.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  name:
    description: Packages, each a name or C(name=version).
    type: list
    elements: str
    required: true
  state:
    description: Whether the host shall have the packages. Their configuration files stay after a removal.
    type: str
    choices: [present, absent]
    default: present
  bundle:
    description:
      - Directory of the offline bundle on the host. The package manager then uses no other repository.
      - With O(state=absent) a bundle that is gone already is not used.
    type: path
    default: ""
  timeout:
    description: Time limit for the package manager, in seconds.
    type: float
    default: 1800
extends_documentation_fragment:
  - rebellions.npu._proxies
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
seealso:
  - module: ansible.builtin.package
"""

EXAMPLES = r"""
- name: Install what the enrolment of a key needs
  rebellions.npu.rbln_package:
    name: [mokutil, openssl]
    http_proxy: "http://npu:{{ vault_proxy_password }}@proxy.example.com:3128"
  become: true
"""

RETURN = r"""
changes:
  description: What the package manager changed, or would change.
  type: list
  elements: str
  returned: success
  sample: ["install mokutil (0.6.0-2)"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import hidden
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.ensure import ARGUMENTS, ensure


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.no_log_values = hidden(module.params, "http_proxy", "https_proxy")
    try:
        changes = ensure(Host(), module.params, module.check_mode, module.warn)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=bool(changes), changes=changes, diff={"prepared": "".join("%s\n" % change for change in changes)}
    )


if __name__ == "__main__":
    main()
