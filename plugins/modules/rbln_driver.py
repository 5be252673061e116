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
  - Looks at everything first (digests, what the package manager would change, who uses the NPUs) and refuses before anything is changed.
  - Then stops services and daemon, unloads the module, installs, loads, starts, validates, and notes where the driver came from. What fails leads back
    to the version before, which is validated again; when that fails too, the host is left without a loaded driver and is marked as tainted.
  - Each step is in a journal on the disk (C(/var/lib/rbln/journal.json)) before it begins. After a kill or a power failure the next call takes the change over.
  - The module does as it is told; whether something has to be done at all is decided by M(rebellions.npu.rbln_plan).
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description: Whether the driver is to be there.
    type: str
    choices: [present, absent]
    default: present
  source:
    description: What O(files) are, an installer or packages; V(package) also for O(names).
    type: str
    choices: [runfile, package]
    required: true
  version:
    description: The wanted version. Validation holds the loaded driver against it.
    type: str
    default: ""
  files:
    description: Files on the host, as M(rebellions.npu.rbln_driver_files) has placed them.
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
    description: Packages to remove besides the vendor's, with O(state=absent).
    type: list
    elements: str
    default: []
  arguments:
    description: Arguments with which the installer installs.
    type: list
    elements: str
    default: []
  uninstall:
    description:
      - Arguments with which the installer removes what it has installed. Without them the vendor's packages are purged.
      - With O(state=absent) the installer is the kept one of the version that is there, else the one of O(files).
    type: list
    elements: str
    default: []
  extract:
    description:
      - Arguments with which the installer only unpacks its packages into C({directory}). They are then installed by the package manager, which can be
        asked first what it would do. Without them the installer is run.
    type: list
    elements: str
    default: []
  log:
    description: Where the installer writes its log, for messages.
    type: path
    default: ""
  packages:
    description: Patterns of the packages in the installer; empty takes all that it unpacks.
    type: list
    elements: str
    default: []
  allowed:
    description: Patterns of packages that may change beyond the driver's own.
    type: list
    elements: str
    default: []
  prerequisites:
    description: Packages that a build of the module needs. They may bring new packages with them, but change or remove none.
    type: list
    elements: str
    default: []
  kernels:
    description: Kernel releases for which the module is built by DKMS when it is not.
    type: list
    elements: str
    default: []
  install:
    description: Install. V(false) only does what the other options ask for, or undoes a change that was interrupted.
    type: bool
    default: true
  reload:
    description: Unload and load the module even when the loaded version is right.
    type: bool
    default: false
  hold:
    description: Keep the package manager from changing the driver's packages by itself.
    type: bool
    default: true
  hold_kernel:
    description: Kernel packages to hold.
    type: list
    elements: str
    default: []
  in_use:
    description: What to do about processes and containers that use an NPU.
    type: str
    choices: [refuse, wait, stop]
    default: refuse
  in_use_timeout:
    description: Seconds to wait for them.
    type: float
    default: 600
  services:
    description: Services that use the NPUs, stopped for the change in this order and started in the reverse one.
    type: list
    elements: str
    default: []
  load_timeout:
    description: Seconds that loading or unloading the module may take.
    type: float
    default: 120
  timeout:
    description: Seconds that the installer, a build or the package manager may take.
    type: float
    default: 1800
  reboot_allowed:
    description: Go on when the module cannot be unloaded, and report RV(reboot_required). The caller reboots and calls again.
    type: bool
    default: false
  rollback:
    description: Go back to the version before when the change fails. V(false) leaves the driver stopped.
    type: bool
    default: true
  keep:
    description: How many versions to keep on the host for the way back.
    type: int
    default: 2
  firmware:
    description: Directory with firmware to write to the cards while the module is unloaded. Empty writes none.
    type: path
    default: ""
  bundle:
    description: Directory on the host of an offline bundle, which the package manager then uses alone.
    type: path
    default: ""
  by:
    description: Who asks, for the note of provenance.
    type: str
    default: ""
  look:
    description: With O(state=absent), only look whether the driver can be removed. Refuses, or waits for users of the NPUs, as the removal would.
    type: bool
    default: false
  notes_only:
    description:
      - With O(state=absent), leave the driver and take away what was noted about it and held for it. For a driver that somebody else has installed.
      - A change that was interrupted is undone first.
    type: bool
    default: false
  fail:
    description: Fail when the change fails or is refused. V(false) tells it in RV(error) alone, for a caller that has something to do first.
    type: bool
    default: true
  options:
    description: Options of the validation, as of M(rebellions.npu.rbln_validate).
    type: dict
    default: {}
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    support: full
    details:
      - Simulates packages that are named, and lists who uses the NPUs.
  diff_mode:
    support: full
    details:
      - Shows the packages before and after.
  idempotent:
    support: none
    details:
      - Called again, it installs again; with O(state=absent) a second call changes nothing.
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

- name: Replace the driver, and go back when it does not work
  rebellions.npu.rbln_driver:
    source: runfile
    version: 3.4.0
    files: "{{ placed.files }}"
    in_use: wait
    services: [vllm.service]
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
    - V(installed), V(upgraded) (another version was there), V(prepared) (nothing was installed), V(reboot_required), V(removed), or V(unchanged).
    - V(firmware_failed) (the driver works, cards could not be flashed), V(restored) (nothing had been replaced), V(rolled_back), V(left_stopped), and
      V(unfinished) (a removal) are failures; RV(reason) says why.
    - With O(install=false) an interrupted change is undone, and V(restored) and V(rolled_back) are what was asked for.
  type: str
  returned: always
version:
  description: The wanted version.
  type: str
  returned: always
previous:
  description: The version before.
  type: str
  returned: always
error:
  description: Why the change failed or was refused, and what to do next; empty when it succeeded.
  type: str
  returned: always
reason:
  description: Why it failed.
  type: str
  returned: always
reboot_required:
  description: Whether the module in use keeps the new one from being loaded.
  type: bool
  returned: always
steps:
  description: Steps and how long they took, in seconds.
  type: list
  elements: dict
  returned: always
  sample: [{step: install, seconds: 31.2}]
in_use:
  description: Who used an NPU (C(kind), C(pid), C(name), C(nodes), C(container), C(unit), C(started)).
  type: list
  elements: dict
  returned: always
simulated:
  description: What the package manager said that it would change (C(act), C(name), C(old), C(new)).
  type: list
  elements: dict
  returned: always
firmware:
  description: What was flashed, card by card (C(address), C(ok), C(detail)), also when the change has failed.
  type: list
  elements: dict
  returned: always
warnings:
  description: What went wrong without stopping the change.
  type: list
  elements: str
  returned: when there is something
packages:
  description: Packages that were removed by the package manager.
  type: list
  elements: str
  returned: when O(state=absent) has removed something
left:
  description: What of the driver is still on the host.
  type: list
  elements: str
  returned: with O(state=absent)
installer:
  description: Whether an installer in O(files) is of use, because O(uninstall) is given and no copy of the installer is kept on the host.
  type: bool
  returned: with O(state=absent)
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver.change import DriverChange
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ABSENT, ARGUMENTS, Request
from ansible_collections.rebellions.npu.plugins.module_utils._driver.result import (
    FIRMWARE_FAILED,
    LEFT_STOPPED,
    REMOVED,
    RESTORED,
    ROLLED_BACK,
    UNFINISHED,
    ChangeResult,
)
from ansible_collections.rebellions.npu.plugins.module_utils._driver.sources import vendor_packages
from ansible_collections.rebellions.npu.plugins.module_utils._driver.validation import Checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.installed import read_packages
from ansible_collections.rebellions.npu.plugins.module_utils._packages.manager import manager_for
from ansible_collections.rebellions.npu.plugins.module_utils._packages.offline import environment

NEXT = {
    FIRMWARE_FAILED: "The driver works. Next: put the reason right and run again.",
    RESTORED: "Nothing had been replaced, and the host is as it was before. Next: put the reason right and run again.",
    ROLLED_BACK: "The host works with driver %(previous)s again. Next: put the reason right and run again.",
    LEFT_STOPPED: "The host is left without a driver that anybody vouches for, and is marked as tainted. Next: read the reason, put it right, and run again.",
    REMOVED: "Next: see what holds it, and run again.",
    UNFINISHED: "A part of the driver is removed. Next: put the reason right and run again; the next run goes on.",
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(ARGUMENTS, fail={"type": "bool", "default": True}, options={"type": "dict", "default": {}}),
        supports_check_mode=True,
    )
    params = module.params
    host = Host()
    result = ChangeResult()
    before: dict[str, str] = {}
    error = ""
    try:
        request = Request.read(params)
        _packages, form, _probe = read_packages(host, ("dpkg", "rpm"), 60.0)
        if request.bundle:
            # An installer that calls the package manager itself is held to the bundle too.
            os.environ.update(environment(request.bundle, form))
        manager = manager_for(host, form, request.timeout, bundle=request.bundle) if form else None
        before = vendor_packages(host, PROFILE)
        kind = DriverRemoval if request.state == ABSENT else DriverChange
        change = kind(host, PROFILE, request, manager, Checks(host, PROFILE, params["options"]))
        result = change.result
        if module.check_mode:
            change.foresee()
        else:
            change.run()
    except NpuError as exc:
        error = str(exc)
    told = result.to_dict()
    for text in told.pop("warnings"):
        module.warn(text)
    if told.pop("failed"):
        error = "%s: %s %s" % (result.outcome.replace("_", " "), result.reason, NEXT[result.outcome] % told)
    after = before
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
