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
  - A bundle is a folder with driver, kernel headers, build packages and toolkit packages for one operating system, the list of the container
    images, and C(manifest.json), which names every file with size and SHA-256. It is a package repository as well.
  - V(collected) makes one on the controller from what a connected host of that system downloads. The package manager of the host works in a folder
    of its own that goes at the end; nothing is installed. apt and dnf verify what they download, and downloads are held against the repository once more.
  - V(present) makes a directory of a host hold the bundle, sent by the controller or fetched from a web server. Every file is verified beside the
    directory before one is moved in. V(checked) says everything the bundle lacks of what a run will need. V(absent) takes it away.
  - Nothing below C(/etc) is written. A package manager uses the bundle, and then nothing else, with the RV(environment) and RV(dnf_options) returned.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  state:
    description: What to do.
    type: str
    choices: [collected, present, checked, absent]
    required: true
  folder:
    description: The bundle on the controller. V(collected) writes it.
    type: path
  url:
    description: Address of a web server that serves the bundle, in place of sending it. With it comes O(sha256), or O(folder) of the same bundle.
    type: str
  sha256:
    description: SHA-256 of C(manifest.json), which vouches for every other file.
    type: str
  ca_cert:
    description: PEM file on the controller with authorities that the web server may be vouched for by, besides those the host trusts.
    type: path
  directory:
    description: Where the bundle is on the host. Only its owner may be able to write there.
    type: path
    default: /var/lib/rbln/bundle
  configure:
    description:
      - Whether the package manager's configuration is written into O(directory), and the bundle has to be for the host's system.
      - V(false) places the files alone, to serve them.
    type: bool
    default: true
  base:
    description:
      - What is taken for installed on the hosts when dependencies are resolved by apt. V(none) is nothing; V(required) and V(important) are the
        packages of that priority, at a version so old that every dependency that asks for a version is put into the bundle; V(host) is what the
        connected host has. dnf takes nothing for installed.
    type: str
    choices: [none, required, important, host]
    default: important
  packages:
    description: Packages to collect with their dependencies, or to check for. C(name=version) names one version where apt is used.
    type: list
    elements: str
    default: []
  kernels:
    description: Releases, as C(uname -r) says them, of the kernels whose headers are collected or checked for.
    type: list
    elements: str
    default: []
  headers:
    description: >-
      Packages with the headers of a kernel, with C({kernel}) where the release belongs. Empty is C(linux-headers-{kernel}), or C(kernel-devel-{kernel})
      and C(kernel-headers-{kernel}).
    type: list
    elements: str
    default: []
  runfiles:
    description: Driver installers on the controller that belong into the bundle.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file. C({version}) in it stands for the version.
        type: path
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
      version:
        description: Version of the driver; without it what the file's name says before C(.run).
        type: str
        default: ""
  driver_packages:
    description: Driver packages on the controller that belong into the bundle. debs are part of its repository.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file, called as it was published.
        type: path
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
  images:
    description: Container images to list with digests, or to check for. Only listed; a registry is filled by other means.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What the image is for.
        type: str
        required: true
      reference:
        description: Where it is published.
        type: str
        required: true
      target:
        description: By which reference the cluster asks for it.
        type: str
        default: ""
  operands:
    description: Whether V(collected) lists, and V(checked) looks for, the images that P(rebellions.npu.rbln_operands#role) asks for on this host.
    type: bool
    default: false
  driver_versions:
    description: Versions of the driver whose installers V(checked) looks for.
    type: list
    elements: str
    default: []
  runfile:
    description: File name of the installer that V(checked) looks for where O(driver_versions) says nothing.
    type: str
    default: ""
  driver_names:
    description: Names of driver packages that V(checked) looks for.
    type: list
    elements: str
    default: []
  work:
    description: Folder on the connected host that keeps the downloads for the next time. Without it they are kept nowhere.
    type: path
  timeout:
    description: Seconds that one command of the package manager, or one answer of a web server, may take.
    type: float
    default: 1800
  manifest:
    description: The manifest's text, from the action plugin. Not for use in playbooks.
    type: str
  archive:
    description: Where the action plugin has put the files on the host. Not for use in playbooks.
    type: path
  transfer:
    description: Where the action plugin fetches the files from. Not for use in playbooks.
    type: path
  have:
    description: Digests of files that the controller has. Not for use in playbooks.
    type: list
    elements: str
    default: []
  authorities:
    description: Text of O(ca_cert), from the action plugin. Not for use in playbooks.
    type: str
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
attributes:
  check_mode:
    details:
      - V(collected) reads the package lists into a temporary folder and says what would be downloaded; where dnf is used it only says that it would.
  action:
    description: Has a corresponding action plugin, which holds the bundle on the controller.
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

- name: Say everything that is missing, before anything is sent
  rebellions.npu.rbln_bundle:
    state: checked
    folder: /srv/rbln/bundle/debian-12-x86_64
    packages: [dkms, gcc, make]
    kernels: [6.1.0-28-amd64]
    driver_versions: [3.2.2]

- name: Place it
  rebellions.npu.rbln_bundle:
    state: present
    folder: /srv/rbln/bundle/debian-12-x86_64
  become: true
  register: bundle

- name: Install from it alone
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
  returned: when O(state) is not V(collected)
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
  description: The container images with digests; a digest that nobody could say is null, and C(reason) says why.
  type: list
  elements: dict
  returned: when it was collected
lacking:
  description: Files that the host lacked, or in check mode would be sent.
  type: list
  elements: str
  returned: when O(state) is V(present)
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
  description: Configuration of dnf that knows the bundle alone, as O(ansible.builtin.dnf#module:conf_file) takes it. Empty where apt is used.
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
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import (
    ABSENT,
    CHECKED,
    COLLECTED,
    STAGED,
    absent,
    arguments,
    checked,
    collected,
    present,
)
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import remove_empty_directory
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host


def main() -> None:
    module = AnsibleModule(argument_spec=dict(arguments(PROFILE.runfile_stamp_dir), **STAGED), supports_check_mode=True)
    params, host, dry = module.params, Host(), module.check_mode
    params["directory"] = "/" + params["directory"].strip("/")
    try:
        if params["state"] == COLLECTED:
            result = collected(host, params, dry)
        elif params["state"] == CHECKED:
            result = checked(host, params)
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
