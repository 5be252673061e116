#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_bundle
short_description: Collect, place, check and remove an offline bundle
version_added: 0.1.0
description:
  - A bundle is a folder with driver, kernel headers, build packages and toolkit packages for one OS, a list of
    container images, and C(manifest.json) with size and SHA-256 of each file. It is also a package repository.
  - V(collected) builds it on the controller from the downloads of a connected host with this OS. The package manager
    uses a temporary folder and installs nothing. Downloads are verified by apt or dnf, and once more against the
    repository.
  - V(present) puts the bundle on a host, sent by the controller or downloaded from a web server. All files are verified
    before any is replaced. V(checked) lists everything that a run needs and the bundle lacks. V(absent) removes the
    bundle. V(reached) returns the address at which O(peers) reach this host.
  - Nothing in C(/etc) is written. With the returned RV(environment) and RV(dnf_options) a package manager uses only the
    bundle.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description: What to do.
    type: str
    choices: [collected, present, checked, absent, reached]
    required: true
  folder:
    description: The bundle on the controller. V(collected) writes it.
    type: path
  url:
    description: Address of a web server with the bundle. Set O(sha256) or O(keyring) too, or O(folder) of the same
      bundle.
    type: str
  sha256:
    description: SHA-256 of C(manifest.json), which has the digests of all other files.
    type: str
  ca_cert:
    description: PEM file on the controller with certificate authorities for the web server, in addition to those of the
      host.
    type: path
  keyring:
    description:
      - File on the controller with the public keys that may sign a bundle. The manifest must then have a valid detached
        signature C(manifest.json.asc) beside it, made by C(gpg --armor --detach-sign manifest.json) after the
        collection.
      - The controller verifies it in O(folder). The host verifies it where it reads the manifest from O(url). Both use
        gpgv.
    type: path
  directory:
    description: Directory of the bundle on the host. Only its owner may have write permission, and only its owner and
      root on the directories above it.
    type: path
    default: /var/lib/rbln/bundle
  configure:
    description:
      - Write the configuration of the package manager into O(directory). The bundle must be for the OS of the host.
      - V(false) only places the files, to serve them.
    type: bool
    default: true
  base:
    description:
      - Packages that apt assumes to be installed when it resolves dependencies. V(none) means none; V(required) and
        V(important) mean packages of this priority, at a very old version, so that versioned dependencies get into the
        bundle; V(host) means the packages of the connected host. dnf assumes none.
    type: str
    choices: [none, required, important, host]
    default: important
  packages:
    description: Packages to collect with dependencies, or to check for. apt also accepts C(name=version).
    type: list
    elements: str
    default: []
  kernels:
    description: Kernel releases (C(uname -r)) whose headers to collect or to check for.
    type: list
    elements: str
    default: []
  headers:
    description: >-
      Header packages of a kernel, with C({kernel}) for its release. Empty means C(linux-headers-{kernel}), or
      C(kernel-devel-{kernel}) and C(kernel-headers-{kernel}).
    type: list
    elements: str
    default: []
  runfiles:
    description: Driver installers on the controller to include.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file. C({version}) is replaced by the version.
        type: path
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
      version:
        description: Version of the driver. The default is taken from the file name, before C(.run).
        type: str
        default: ""
  driver_packages:
    description: Driver packages on the controller to include. deb files become part of the repository.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file, with its original name.
        type: path
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
  images:
    description: Container images to list with digests, or to check for. The images themselves are not included.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Purpose of the image.
        type: str
        required: true
      reference:
        description: Published reference.
        type: str
        required: true
      target:
        description: Reference that the cluster uses.
        type: str
        default: ""
  operands:
    description: Also list (V(collected)) or check (V(checked)) the images of P(rebellions.npu.rbln_operands#role) for
      this host.
    type: bool
    default: false
  driver_versions:
    description: Driver versions whose installers V(checked) looks for.
    type: list
    elements: str
    default: []
  runfile:
    description: File name of the installer that V(checked) looks for, without O(driver_versions).
    type: str
    default: ""
  driver_names:
    description: Names of driver packages that V(checked) looks for.
    type: list
    elements: str
    default: []
  work:
    description: Folder on the connected host to keep the downloads in. Without it they are deleted.
    type: path
  peers:
    description: Addresses or names of the hosts that download from this one, for V(reached).
    type: list
    elements: str
    default: []
  timeout:
    description: Time limit for a command of the package manager and for an answer of a web server, in seconds.
    type: float
    default: 1800
  manifest:
    description: Text of the manifest, set by the action plugin. Not for playbooks.
    type: str
  archive:
    description: Archive that the action plugin has sent. Not for playbooks.
    type: path
  transfer:
    description: Archive that the action plugin fetches. Not for playbooks.
    type: path
  have:
    description: Digests of files that the controller has. Not for playbooks.
    type: list
    elements: str
    default: []
  authorities:
    description: Text of O(ca_cert), set by the action plugin. Not for playbooks.
    type: str
  keys:
    description: Content of O(keyring), set by the action plugin. Not for playbooks.
    type: str
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    details:
      - V(collected) updates package lists in a temporary folder and lists the downloads; with dnf it only reports a
        change.
  action:
    description: Has a corresponding action plugin, which handles the bundle on the controller.
    support: full
seealso:
  - module: rebellions.npu.rbln_driver_files
"""

EXAMPLES = r"""
- name: Collect on a connected host
  rebellions.npu.rbln_bundle:
    state: collected
    folder: /srv/rbln/bundle/debian-12-x86_64
    packages: [dkms, gcc, make]
    kernels: [6.1.0-28-amd64]
    runfiles:
      - path: /srv/rbln/rebellions-x86_64-3.2.2.run
        sha256: "{{ rbln_driver_runfile_sha256 }}"

- name: List everything that is missing, before anything is sent
  rebellions.npu.rbln_bundle:
    state: checked
    folder: /srv/rbln/bundle/debian-12-x86_64
    packages: [dkms, gcc, make]
    kernels: [6.1.0-28-amd64]
    driver_versions: [3.2.2]

- name: Place the bundle
  rebellions.npu.rbln_bundle:
    state: present
    folder: /srv/rbln/bundle/debian-12-x86_64
  become: true
  register: bundle

- name: Install only from the bundle
  ansible.builtin.apt:
    name: dkms
  become: true
  environment: "{{ bundle.environment }}"
"""

RETURN = r"""
folder:
  description: The bundle on the controller.
  type: str
  returned: when it was collected
  sample: /srv/rbln/bundle/debian-12-x86_64
directory:
  description: The bundle on the host.
  type: str
  returned: when O(state) is V(present), V(checked) or V(absent)
  sample: /var/lib/rbln/bundle
manifest_sha256:
  description: SHA-256 of C(manifest.json), for O(sha256).
  type: str
  returned: when there is a bundle
size:
  description: Bytes of all files together; in check mode of V(collected), of those that would be downloaded.
  type: int
  returned: when there is a bundle
  sample: 45555540
count:
  description: Number of files.
  type: int
  returned: when there is a bundle
  sample: 89
requested:
  description: The packages that were asked for; the others came as their dependencies.
  type: list
  elements: str
  returned: when it was collected
planned:
  description: What would be downloaded.
  type: list
  elements: dict
  returned: in check mode of V(collected)
images:
  description: The container images with digests; an unknown digest is null, and C(reason) says why.
  type: list
  elements: dict
  returned: when it was collected
lacking:
  description: Files that the host lacked, or in check mode would be sent.
  type: list
  elements: str
  returned: when O(state) is V(present)
address:
  description: The address of this host that the kernel uses towards O(peers), or when none of them is known, the one
    that ssh has reached.
  type: str
  returned: when O(state) is V(reached)
  sample: 192.0.2.10
environment:
  description: Environment with which apt uses the bundle alone. Empty where dnf is used.
  type: dict
  returned: when O(state) is V(present) or V(checked)
  sample: {APT_CONFIG: /var/lib/rbln/bundle/apt.conf}
dnf_options:
  description: Options with which dnf uses the bundle alone. Empty where apt is used.
  type: list
  elements: str
  returned: when O(state) is V(present) or V(checked)
  sample: ["--setopt=reposdir=/var/lib/rbln/bundle/dnf"]
dnf_config:
  description: Configuration of dnf that knows the bundle alone, as O(ansible.builtin.dnf#module:conf_file) takes it.
    Empty where apt is used.
  type: str
  returned: when O(state) is V(present) or V(checked)
  sample: /var/lib/rbln/bundle/dnf/dnf.conf
runfiles:
  description: Driver installers of the bundle by version, each with C(path) on the host and C(sha256).
  type: dict
  returned: when O(state) is V(present) or V(checked)
"""

import posixpath

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import hidden
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import (
    ABSENT,
    CHECKED,
    COLLECTED,
    REACHED,
    STAGED,
    absent,
    arguments,
    checked,
    collected,
    present,
    reached,
)
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import remove_empty_directory
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host


def main() -> None:
    module = AnsibleModule(argument_spec=dict(arguments(PROFILE.runfile_stamp_dir), **STAGED), supports_check_mode=True)
    params, host, dry = module.params, Host(), module.check_mode
    module.no_log_values = hidden(params)
    params["directory"] = "/" + params["directory"].strip("/")
    try:
        if params["state"] == COLLECTED:
            result = collected(host, params, dry)
        elif params["state"] == CHECKED:
            result = checked(host, params)
        elif params["state"] == REACHED:
            result = reached(params["peers"])
        elif params["state"] == ABSENT:
            result = absent(params, dry)
            if posixpath.dirname(params["directory"]) == PROFILE.runfile_stamp_dir and result.get("changed"):
                remove_empty_directory(host, PROFILE.runfile_stamp_dir, dry)
        else:
            result = present(host, params, dry)
    except (NpuError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**dict({"changed": False}, **result))


if __name__ == "__main__":
    main()
