#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_host_tool
short_description: Install or remove the tool that keeps a host with Rebellions NPUs ready
version_added: 0.1.0
description:
  - C(/run) is empty after a boot, and devices come and go. C(rbln-host) then writes the CDI specification, proves the
    host and writes the ready files, without Ansible. It is one file, built from the code of this collection, and only
    needs Python 3.8.
  - Beside it, C(lib/DIGEST) has the same sources with what the host's Python has compiled of them. The program and
    M(rebellions.npu.rbln_observe) take them from there while nobody but root can change them. C(DIGEST) names the
    sources; a folder of other sources goes with the next change.
  - C(rbln-host-cdi.service) writes the specification before the container runtimes start. C(rbln-host-ready.service)
    proves the host after they have started, and when a device appears or disappears. No unit waits for it.
  - The commands are C(cdi), C(validate), C(ready), C(labels) and C(observe). Exit codes are 0 for success, 1 for a
    failed blocking check, 2 for wrong usage or input, and 3 for a blocking check without a result.
author:
  - The rebellions.npu authors (@rebellions-npu)
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
options:
  state:
    description:
      - Whether the tool, its options, units and udev rule shall exist.
      - V(stopped) stops the units and removes them and the rule. The program stays, which the CDI specification may
        name as a hook, and no longer writes that specification by itself. Remove the specification next, then the
        program.
    type: str
    choices: [present, stopped, absent]
    default: present
  config:
    description:
      - Options of the tool, like those of M(rebellions.npu.rbln_validate), written to
        C(/etc/rebellions-npu/rbln-host.json).
      - Usually RV(rebellions.npu.rbln_observe#module:ansible_facts.rbln_observed.host_tool), key C(config).
    type: dict
    default: {}
  units:
    description: Whether to install the systemd units and the udev rule too.
    type: bool
    default: true
  observed:
    description:
      - RV(rebellions.npu.rbln_observe#module:ansible_facts.rbln_observed.host_tool). If it shows that the host has the
        right files, nothing runs on the host.
    type: dict
    default: {}
  interpreter:
    description:
      - Python that runs the tool on the host, as root. The default is C(/usr/bin/python3). Where that is missing or
        older than 3.8, it is the Python of this module, if only root can change it.
    type: str
  root:
    description: Install below this directory, for an image. systemd and udev are then not reloaded.
    type: str
    default: /
  files:
    description: The files, set by the action plugin. Not for playbooks.
    type: list
    elements: dict
    default: []
  directories:
    description: Directories to remove when empty, set by the action plugin. Not for playbooks.
    type: list
    elements: str
    default: []
attributes:
  action:
    description: Has a corresponding action plugin, which builds the tool on the controller.
    support: full
seealso:
  - module: rebellions.npu.rbln_observe
  - module: rebellions.npu.rbln_validate
"""

EXAMPLES = r"""
- name: Install the host tool with the observed options
  rebellions.npu.rbln_host_tool:
    config: "{{ ansible_facts.rbln_observed.host_tool.config }}"
    observed: "{{ ansible_facts.rbln_observed.host_tool }}"
  become: true

- name: Stop it before the CDI specification is removed
  rebellions.npu.rbln_host_tool:
    state: stopped
  become: true

- name: Remove it
  rebellions.npu.rbln_host_tool:
    state: absent
  become: true
"""

RETURN = r"""
changed_paths:
  description: Paths that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/libexec/rebellions-npu/rbln-host]
"""

import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.trust import choose_interpreter
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import (
    ARGUMENTS,
    install_and_try,
    remove,
)

TELL = (["systemctl", "daemon-reload"], ["udevadm", "control", "--reload"])


def _python(host: Host) -> str:
    """NpuError where no Python is fit; an image gets the system's, which may come after the tool."""
    python, reason = choose_interpreter(host, sys.executable if host.root == "/" else "")
    if reason and host.root == "/":
        raise NpuError(
            "There is no Python that root alone can change and that runs the host tool (%s)." % reason,
            "Install python3 of version 3.8 or newer, or name one that is root's with interpreter.",
        )
    return python


def stop(host: Host, paths: t.Sequence[str]) -> None:
    """Stop those units that are there: one that runs would write the specification and the ready files again."""
    units = [path for path in paths if path.endswith(".service") and host.stat(path, follow=False).ok]
    names = sorted({path.rpartition("/")[2] for path in units})
    if names:
        host.run(["systemctl", "stop", *names], 60.0)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            files={"type": "list", "elements": "dict", "default": []},
            directories={"type": "list", "elements": "str", "default": []},
        ),
        supports_check_mode=True,
    )
    params = module.params
    host = Host(params["root"])
    # Also where it fails on the way: else systemd and udev go by units and rules that are other ones by then.
    tell = False
    try:
        if params["state"] == "present":
            python = params["interpreter"] or _python(host)
            tell = not module.check_mode
            changed = install_and_try(host, params["files"], python, module.check_mode)
        else:
            paths = [entry["path"] for entry in params["files"]]
            tell = not module.check_mode
            if tell:
                stop(host, paths)
            folders = [entry["path"] for entry in params["files"] if entry.get("folder")]
            changed = remove(host, paths, params["directories"], module.check_mode, folders)
        tell = tell and any(path.startswith("/etc/") for path in changed)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    finally:
        for command in TELL if tell else ():
            host.run(command, 30.0)
    listing = "".join("%s\n" % path for path in changed)
    before, after = ("", listing) if params["state"] == "present" else (listing, "")
    module.exit_json(changed=bool(changed), changed_paths=changed, diff={"before": before, "after": after})


if __name__ == "__main__":
    main()
