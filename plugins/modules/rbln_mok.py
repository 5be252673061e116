#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_mok
short_description: Prepare a host with Secure Boot for a kernel module that DKMS builds
version_added: 0.1.0
description:
  - Makes a key, tells DKMS to sign with it, and queues the enrolment of its certificate in the machine owner's key list (MOK).
  - A key that DKMS signs with already is taken as it is, such as the one of Ubuntu's shim-signed, that of DKMS itself, or one that its configuration names.
  - Nobody but a person at the console can confirm an enrolment. RV(console) says how, and until it is done RV(state) is V(pending).
  - The private key has mode 0600 in C(/var/lib/rbln/secure-boot), never leaves the host and is never returned. It can sign kernel modules only.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description:
      - V(present) makes sure that an enrolled key signs, or that its enrolment is queued.
      - V(absent) removes the key that this module made, DKMS's configuration of it, and a queued enrolment of it alone. An enrolled certificate can
        only be taken away at the console; RV(msg) says how. A key that DKMS signs modules of others with stays, and RV(msg) names them.
    type: str
    choices: [present, absent]
    default: present
  password:
    description:
      - One-time password that the console asks for, 8 to 128 characters. Only its hash is handed to C(mokutil), in a file that is removed at once.
      - Without it one is made on the host and kept in C(/var/lib/rbln/secure-boot/password) with mode 0600 until the key is enrolled.
      - Choose characters that lie in the same place on an American keyboard, which the console assumes.
    type: str
  timeout:
    description: Seconds that C(openssl) and C(mokutil) may each take.
    type: float
    default: 60
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
notes:
  - Needs C(mokutil) and C(openssl) on the host.
  - Whether Secure Boot is on is not asked; P(rebellions.npu.rbln_driver#role) calls this module only when the plan says so.
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

- name: Say what the console needs
  ansible.builtin.debug:
    var: mok.console
  when: mok.state != 'enrolled'

- name: Take away what was made
  rebellions.npu.rbln_mok:
    state: absent
  become: true
"""

RETURN = r"""
state:
  description:
    - State of the key, V(enrolled), V(pending) (queued, waits for the console) or V(none).
    - With O(state=absent) V(enrolled) means that the certificate is still in the machine owner's list. A key that stays may be V(not_enrolled).
  type: str
  returned: success
  sample: pending
acts:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
console:
  description: What a person has to do at the console, in order. Empty when nothing is.
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
  description: Whether the key is one that this module made.
  type: bool
  returned: success
password_file:
  description: File on the host that holds the password made for the console. Null when one was given, or none is needed.
  type: str
  returned: success
msg:
  description: The same in a sentence.
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
