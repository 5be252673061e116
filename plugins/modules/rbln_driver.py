#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_driver
short_description: Install, replace or remove the RBLN driver in one transaction
version_added: 0.1.0
description:
  - Checks everything first (digests, what the package manager would change, who uses the NPUs) and refuses before it
    changes anything.
  - Then stops services and daemon, unloads the module, installs, loads, starts, validates, and records the source of
    the driver. A failure rolls back to the previous version, which is validated again. If that fails too, no driver
    stays loaded and the host is marked tainted.
  - Writes each step to a journal on disk (C(/var/lib/rbln/journal.json)) before it begins. After a kill or a power
    failure the next call takes over the change.
  - Does what the options say. M(rebellions.npu.rbln_plan) decides whether there is anything to do.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description: Whether the host shall have the driver.
    type: str
    choices: [present, absent]
    default: present
  source:
    description: Whether O(files) are an installer or packages. V(package) also for O(names). Required without O(plan).
    type: str
    choices: [runfile, package]
  version:
    description: The wanted version. The loaded driver must have it to pass validation.
    type: str
    default: ""
  files:
    description: Files on the host, as M(rebellions.npu.rbln_driver_files) returns them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
  names:
    description: Packages of a configured repository, with or without a version.
    type: list
    elements: str
    default: []
  absent:
    description: With O(state=absent), packages to remove in addition to those of the vendor.
    type: list
    elements: str
    default: []
  arguments:
    description: Arguments of the installer for an installation.
    type: list
    elements: str
    default: []
  uninstall:
    description: Arguments of the installer for a removal. Without them the packages of the vendor are purged. With
      O(state=absent) the kept installer of the present version is used, else the one in O(files).
    type: list
    elements: str
    default: []
  extract:
    description: Arguments to only unpack the packages into C({directory}); the package manager then installs them.
    type: list
    elements: str
    default: []
  log:
    description: Log file of the installer. Error messages name it.
    type: path
    default: ""
  temporary_directory:
    description: Where an installer unpacks itself (its TMPDIR); programs must be able to run there. Empty means beside
      the installer below C(/var/lib/rbln), else the first of C(/opt), C(/usr/local/lib) and C(/root) that is fit.
    type: path
    default: ""
  packages:
    description: Patterns of the packages to install from those that the installer unpacks. Empty means all.
    type: list
    elements: str
    default: []
  allowed:
    description: Patterns of other packages that may change too, and be installed though the host excludes them.
    type: list
    elements: str
    default: []
  repair:
    description: Whether to finish what an interrupted run of dpkg left of other packages (C(dpkg --configure -a)).
    type: bool
    default: false
  prerequisites:
    description: Packages needed to build the module. They may add new packages, but not change or remove any.
    type: list
    elements: str
    default: []
  kernels:
    description: Kernel releases to build the module for with DKMS, where it is missing.
    type: list
    elements: str
    default: []
  install:
    description: Install the driver. V(false) only does what the other options say, or undoes an interrupted change.
    type: bool
    default: true
  reload:
    description: Reload the module even when the loaded version is right.
    type: bool
    default: false
  hold:
    description: Hold the packages of the driver.
    type: bool
    default: true
  hold_kernel:
    description: Kernel packages to hold.
    type: list
    elements: str
    default: []
  in_use:
    description: What to do when processes or containers use an NPU.
    type: str
    choices: [refuse, wait, stop]
    default: refuse
  in_use_timeout:
    description: With O(in_use=wait), seconds to wait for them.
    type: float
    default: 600
  drained:
    description: In check mode, the uids of pods that do not refuse the change, as they leave before it.
    type: list
    elements: str
    default: []
  services:
    description: Services that use the NPUs. They are stopped in this order and started in reverse order.
    type: list
    elements: str
    default: []
  load_timeout:
    description: Time limit to load or unload the module, in seconds.
    type: float
    default: 120
  timeout:
    description: Time limit of the installer, of a build and of the package manager, in seconds.
    type: float
    default: 1800
  reboot_allowed:
    description: Continue when the module cannot be unloaded, and return RV(reboot_required). The caller reboots.
    type: bool
    default: false
  rollback:
    description: Roll back when the change fails. V(false) leaves the driver stopped.
    type: bool
    default: true
  keep:
    description: How many versions to keep on the host for a rollback.
    type: int
    default: 2
  firmware:
    description: Directory with firmware to flash while the module is unloaded. Empty flashes none.
    type: path
    default: ""
  bundle:
    description: Directory of an offline bundle on the host. The package manager then uses only this bundle.
    type: path
    default: ""
  by:
    description: Who asked for the change. It is recorded with the source of the driver.
    type: str
    default: ""
  look:
    description: With O(state=absent), only check whether the driver can be removed. Refuses or waits like the removal.
    type: bool
    default: false
  notes_only:
    description: With O(state=absent), remove notes and holds, not the driver. An interrupted change is undone first.
    type: bool
    default: false
  plan:
    description: The registered result of M(rebellions.npu.rbln_plan), read on the controller. Options that are not set
      are taken from it; O(files) are used only when the plan installs.
    type: dict
  fail:
    description: Fail when the change fails or is refused. V(false) only returns RV(error).
    type: bool
    default: true
  options:
    description: Options of the validation, see M(rebellions.npu.rbln_validate).
    type: dict
    default: {}
extends_documentation_fragment:
  - rebellions.npu._proxies
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    support: full
    details: Simulates O(names), verifies O(bundle), lists who uses the NPUs, and refuses what the change would refuse.
  diff_mode:
    support: full
    details: Shows the packages before and after.
  idempotent:
    support: none
    details: A second call installs again. With O(state=absent) a second call changes nothing.
  action:
    description: Has an action plugin, which reads O(plan) and runs the change independently of the connection.
    support: full
seealso:
  - module: rebellions.npu.rbln_driver_files
  - module: rebellions.npu.rbln_driver_facts
  - module: rebellions.npu.rbln_plan
"""

EXAMPLES = r"""
- name: Put the installer on the host
  rebellions.npu.rbln_driver_files:
    files:
      - src: /srv/rbln/rebellions-x86_64-3.4.0.run
        sha256: "{{ rbln_driver_runfile_sha256 }}"
  become: true
  register: placed

- name: Replace the driver, and roll back when it does not work
  rebellions.npu.rbln_driver:
    source: runfile
    version: 3.4.0
    files: "{{ placed.files }}"
    in_use: wait
    services: [vllm.service]
  become: true

- name: Do what the plan of this host says
  rebellions.npu.rbln_driver:
    plan: "{{ rbln_preflight_plan }}"
    files: "{{ placed.files }}"
  become: true

- name: Remove the driver
  rebellions.npu.rbln_driver:
    source: package
    state: absent
  become: true
"""

RETURN = r"""
outcome:
  description:
    - V(installed), V(upgraded) (from another version), V(prepared) (nothing was installed), V(reboot_required),
      V(removed), or V(unchanged).
    - These are failures, and RV(reason) says why - V(firmware_failed) (the driver works, flashing failed), V(restored)
      (no file was replaced), V(rolled_back), V(left_stopped), and V(unfinished) (a removal).
    - With O(install=false) an interrupted change is undone, and V(restored) and V(rolled_back) are no failures.
  type: str
  returned: always
version:
  description: The wanted version.
  type: str
  returned: always
previous:
  description: The previous version.
  type: str
  returned: always
error:
  description: Why the change failed or was refused, and what to do next. Empty after success.
  type: str
  returned: always
reason:
  description: Why the change failed.
  type: str
  returned: always
reboot_required:
  description: Whether a reboot is needed because the old module is in use.
  type: bool
  returned: always
steps:
  description: Steps and their duration in seconds.
  type: list
  elements: dict
  returned: always
  sample: [{step: install, seconds: 31.2}]
in_use:
  description: Who used an NPU (C(kind), C(pid), C(name), C(nodes), C(container), C(unit), C(started), C(pod)). Kinds
    V(module) and V(kernel) have no process; they are modules that need the driver's, and unexplained references to it.
  type: list
  elements: dict
  returned: always
simulated:
  description: Changes that the package manager simulated (C(act), C(name), C(old), C(new)).
  type: list
  elements: dict
  returned: always
firmware:
  description: Result of flashing per card (C(address), C(ok), C(detail)), also when the change failed.
  type: list
  elements: dict
  returned: always
warnings:
  description: Problems that did not stop the change.
  type: list
  elements: str
  returned: when there are any
packages:
  description: Packages that the package manager removed.
  type: list
  elements: str
  returned: when O(state=absent) removed packages
left:
  description: What is still left of the driver on the host.
  type: list
  elements: str
  returned: with O(state=absent)
installer:
  description: Whether the removal needs an installer in O(files). O(uninstall) is set then, and no copy is kept.
  type: bool
  returned: with O(state=absent)
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import hidden
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver.change import DriverChange
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ABSENT, ARGUMENTS, Request
from ansible_collections.rebellions.npu.plugins.module_utils._driver.result import ChangeResult
from ansible_collections.rebellions.npu.plugins.module_utils._driver.sources import vendor_packages
from ansible_collections.rebellions.npu.plugins.module_utils._driver.validation import Checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.installed import read_packages
from ansible_collections.rebellions.npu.plugins.module_utils._packages.manager import manager_for
from ansible_collections.rebellions.npu.plugins.module_utils._packages.offline import environment
from ansible_collections.rebellions.npu.plugins.module_utils._packages.proxies import PROXIES, proxies

MODULE_ARGUMENTS = {
    "plan": {"type": "dict"},
    "fail": {"type": "bool", "default": True},
    "options": {"type": "dict", "default": {}},
    **PROXIES,
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(ARGUMENTS, **MODULE_ARGUMENTS),
        required_one_of=[["source", "plan"]],
        supports_check_mode=True,
    )
    params = module.params
    module.no_log_values = hidden(params, "http_proxy", "https_proxy")
    os.environ.update(proxies(params))
    host, result, error = Host(), ChangeResult(), ""
    before: dict[str, str] = {}
    after = before
    try:
        request = Request.read(params)
        _packages, form, _probe = read_packages(host, ("dpkg", "rpm"), 60.0)
        if request.bundle:
            # An installer that calls the package manager itself is held to the bundle too.
            os.environ.update(environment(request.bundle, form))
        manager = manager_for(host, form, request.timeout, bundle=request.bundle) if form else None
        before = after = vendor_packages(host, PROFILE)
        kind = DriverRemoval if request.state == ABSENT else DriverChange
        change = kind(host, PROFILE, request, manager, Checks(host, PROFILE, params["options"]))
        result = change.result
        if module.check_mode:
            after = change.foreseen(before)
        else:
            change.run()
    except NpuError as exc:
        error = str(exc)
    told = result.to_dict()
    for text in told.pop("warnings"):
        module.warn(text)
    if told.pop("failed"):
        error = result.error
    if result.changed and not module.check_mode:
        try:
            after = vendor_packages(host, PROFILE)
        except NpuError as exc:
            module.warn(str(exc))
    told["diff"] = {
        side: "".join("%s %s\n" % item for item in sorted(names.items()))
        for side, names in (("before", before), ("after", after))
    }
    if error and params["fail"]:
        module.fail_json(msg=error, error=error, **told)
    module.exit_json(error=error, **told)


if __name__ == "__main__":
    main()
