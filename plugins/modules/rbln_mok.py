#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_mok
short_description: Prepare a host with Secure Boot for kernel modules built by DKMS
version_added: 0.1.0
description:
  - Creates a key, configures DKMS to sign with it, and requests the enrolment of its certificate as machine owner key
    (MOK).
  - Keeps a key that DKMS signs with already, such as the one of shim-signed on Ubuntu, of DKMS itself, or of its
    configuration.
  - An enrolment must be confirmed at the console. RV(console) has the steps; until then RV(state) is V(pending).
  - The private key has mode 0600 in C(/var/lib/rbln/secure-boot) and never leaves the host. It can only sign kernel
    modules.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description:
      - V(present) makes sure that DKMS signs with an enrolled key, or that its enrolment is requested.
      - V(absent) removes the key of this module, its DKMS configuration, and its enrolment request. An enrolled
        certificate can only be deleted at the console, see RV(msg). A key that DKMS signs other modules with stays, and
        RV(msg) names them.
    type: str
    choices: [present, absent]
    default: present
  password:
    description:
      - One-time password for the console, 8 to 128 characters. C(mokutil) only gets its hash, in a temporary file.
      - Without it a password is generated and kept in C(/var/lib/rbln/secure-boot/password), mode 0600, until the key
        is enrolled.
      - The console uses a US keyboard layout. Use characters in the same place on your keyboard.
    type: str
  timeout:
    description: Time limit for C(openssl) and for C(mokutil), in seconds.
    type: float
    default: 60
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
notes:
  - Needs C(mokutil) and C(openssl) on the host.
  - Does not check whether Secure Boot is on. P(rebellions.npu.rbln_driver#role) uses this module only when the plan
    says so.
seealso:
  - module: rebellions.npu.rbln_driver_facts
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Prepare the enrolment of a key
  rebellions.npu.rbln_mok:
    password: "{{ vault_mok_password }}"
  become: true
  register: mok

- name: Show the steps at the console
  ansible.builtin.debug:
    var: mok.console
  when: mok.state != 'enrolled'

- name: Remove the key
  rebellions.npu.rbln_mok:
    state: absent
  become: true
"""

RETURN = r"""
state:
  description:
    - State of the key, V(enrolled), V(pending) (waits for the console) or V(none).
    - With O(state=absent) V(enrolled) means that the certificate is still enrolled. A key that stays may be
      V(not_enrolled).
  type: str
  returned: success
  sample: pending
acts:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
console:
  description: Steps at the console, in order. Empty when there are none.
  type: list
  elements: str
  returned: success
certificate:
  description: Path of the certificate on the host.
  type: str
  returned: success
  sample: /var/lib/rbln/secure-boot/mok.der
subject:
  description: Name in the certificate, as the console shows it.
  type: str
  returned: success
serial:
  description: Serial number of the certificate, in hexadecimal.
  type: str
  returned: success
own:
  description: Whether this module created the key.
  type: bool
  returned: success
password_file:
  description: File on the host with the generated password. Null when a password is set or not needed.
  type: str
  returned: success
msg:
  description: Summary as text.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.os import read_os
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot.enrol import Enrolment
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot.mok import CONSOLE, PENDING


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "password": {"type": "str", "no_log": True},
            "timeout": {"type": "float", "default": 60},
        },
        supports_check_mode=True,
    )
    host = Host()
    system, _probe = read_os(host)
    work = Enrolment(host, PROFILE, system["base_id"] or system["id"], module.params["timeout"], module.check_mode)
    try:
        done = work.ensure(module.params["password"] or "") if module.params["state"] == "present" else work.remove()
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(console=list(CONSOLE) if done.state == PENDING else [], **done.to_dict())


if __name__ == "__main__":
    main()
