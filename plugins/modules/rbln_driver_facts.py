#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_driver_facts
short_description: Gather facts about Rebellions NPUs, their driver and the host
version_added: 0.1.0
description:
  - Reads NPUs, driver, kernel, operating system, Secure Boot state, tools and identity of a host, and returns them as
    C(ansible_facts.rbln), described by C(docs/schemas/rbln_facts.schema.json).
  - Almost everything is read from files. C(rbln-smi) runs at most three times, each time with a time limit;
    C(systemctl), C(rpm), C(modinfo), C(mokutil), C(dkms) and C(lspci) run at most once each, and only where no file
    gives the answer.
  - Every look ends as V(value), V(absent), V(denied), V(timeout) or V(failed), listed under C(probes). What could not
    be found out is null, never zero or false.
  - NPUs, sysfs entries, C(rbln-smi) devices and nodes in C(/dev) are joined by PCI address and device name, never by
    the index of C(rbln-smi), which is the same for every device after some faults.
  - A RBLN-CA25 card has four devices. The devices below the highest common PCIe bridge that holds no more than four of
    them are one card; where the bridges do not show this, the C(location) of C(rbln-smi) divided by four, else four
    devices in address order.
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.facts
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  root:
    description:
      - Root of the file system to look at, for images and tests. Links are followed inside it.
      - With another root than V(/) no command is run, so values that only a command reports are V(absent).
    type: path
    default: /
  smi_timeout:
    description: Seconds to wait for one call of C(rbln-smi), which can hang.
    type: float
    default: 5.0
  command_timeout:
    description: Seconds to wait for any other command.
    type: float
    default: 10.0
  expected_addresses:
    description:
      - PCI addresses of the NPUs this host should have. Where one is not on the bus, the problem C(npus_found) names
        it.
    type: list
    elements: str
    default: []
  kernel:
    description: Kernel release to treat as the running one, for an image. The default is the running kernel.
    type: str
  dkms_dir:
    description: Directory of the DKMS tree.
    type: path
    default: /var/lib/dkms
  runfile_stamp:
    description:
      - File in which this collection records the driver that it has installed, a JSON object with C(version),
        C(source), C(files) and the state before.
      - A missing file proves nothing. A kernel module and C(rbln-smi) without a driver package also count as installed
        from a runfile.
    type: path
    default: /var/lib/rbln/driver.json
  container_driver_root:
    description: Directory of a driver container's files on the host.
    type: path
    default: /run/rbln/driver
notes:
  - Run it with privilege escalation. Without it the system UUID and parts of the boot loader configuration are denied,
    and reported so.
  - A derivative is resolved to the system it is built from by code name or platform. Linux Mint 22.1 has C(os.base_id)
    V(ubuntu) and C(os.base_version) V(24.04).
seealso:
  - module: rebellions.npu.rbln_runtime_detect
  - module: rebellions.npu.rbln_validate
  - module: rebellions.npu.rbln_observe
"""

EXAMPLES = r"""
- name: Gather the facts
  rebellions.npu.rbln_driver_facts:
  become: true

- name: Show what is wrong and what to do about it
  ansible.builtin.debug:
    msg: "{{ item.code }}: {{ item.detail }} Next: {{ item.next_step }}"
  loop: "{{ ansible_facts.rbln.problems }}"
  loop_control:
    label: "{{ item.code }}"

- name: Report cards that left the bus
  rebellions.npu.rbln_driver_facts:
    expected_addresses:
      - "0000:83:00.0"
      - "0000:84:00.0"
  become: true

- name: Look into an image that is mounted on the host
  rebellions.npu.rbln_driver_facts:
    root: /mnt/image
    kernel: 6.8.0-117-generic
  become: true
"""

RETURN = r"""
ansible_facts:
  description: Facts of the host.
  returned: success
  type: dict
  contains:
    rbln:
      description: All facts of this module, schema 1.
      returned: success
      type: dict
      contains:
        schema:
          description: Version of this shape.
          type: int
          returned: always
          sample: 1
        vendor:
          description: Vendor of the NPUs.
          type: str
          returned: always
          sample: rebellions
        hostname:
          description: Host name of the kernel.
          type: str
          returned: always
        npus:
          description: One entry for each PCI function, in address order. C(usable) is true only for a serviceable
            device with a character device.
          type: list
          elements: dict
          returned: always
          sample:
            - address: "0000:83:00.0"
              product: RBLN-CA22
              family: ATOM
              state: ok
              usable: true
              device: rbln0
              numa_node: 1
        counts:
          description: Cards, PCI functions, devices and usable devices. Each is null when the PCI bus could not be read
            and nothing else shows an NPU.
          type: dict
          returned: always
          sample: {cards: 1, functions: 4, devices: 4, usable: 4}
        npu_count:
          description: The devices in C(counts). Null when the PCI bus could not be read; that is not zero.
          type: int
          returned: always
          sample: 4
        groups:
          description: RSD groups with their node and their devices.
          type: list
          elements: dict
          returned: always
        device_nodes:
          description: Nodes of devices, groups and storage in C(/dev), in natural order.
          type: list
          elements: dict
          returned: always
        driver:
          description: How the driver was installed (C(installed_via)), its versions on disk and loaded, DKMS builds,
            packages, signer.
          type: dict
          returned: always
        kernel:
          description:
            - Running and next kernel, headers and driver modules by kernel, packages of kernels, command line.
            - C(guard) says of every kernel that could boot whether it has headers and the driver's module.
          type: dict
          returned: always
        os:
          description: Operating system and the base it is built from. C(image) says how the system comes as an image,
            into which nothing can be installed while it runs (V(ostree) for bootc and rpm-ostree); else it is null.
          type: dict
          returned: always
        secure_boot:
          description: State of UEFI Secure Boot.
          type: str
          returned: always
          sample: disabled
        mok:
          description:
            - The machine owner's keys of Secure Boot. C(state) is that of the key which DKMS signs modules with,
              C(enrolled) lists the certificates this machine accepts, C(signer_enrolled) says whether the signer of the
              module on disk is one of them, C(enforced_by) what makes the running kernel refuse unsigned modules
              besides Secure Boot, C(trusted) whether it takes these keys for modules.
          type: dict
          returned: always
          sample: {state: not_enrolled, subject: DKMS module signing key, own: false, signer_enrolled: false}
        build:
          description: Packages and programs that building a module needs besides headers. A compiler from any package
            counts.
          type: dict
          returned: always
          sample: {packages: {dkms: 3.0.11-1ubuntu13}, programs: {dkms: /usr/sbin/dkms, cc: /usr/bin/cc,
            make: /usr/bin/make}, compilers: [gcc-11], kernel_compiler: gcc-12}
        disk:
          description: Bytes free on the file systems of C(/), C(/boot), C(/usr), C(/usr/local), C(/var) and
            C(/lib/modules).
          type: dict
          returned: always
          sample: {/: 53687091200, /boot: 734003200}
        initramfs:
          description: Bytes of the largest initial ram disk in C(/boot), rescue images aside. Null when none can be
            seen.
          type: int
          returned: always
          sample: 73400320
        mounts:
          description: Mount point of each of these paths. Paths with one mount point share its bytes.
          type: dict
          returned: always
          sample: {/usr: /, /boot: /boot}
        mount_options:
          description: Those of V(ro), V(noexec) and V(nosuid) that hold where each of these paths lies.
          type: dict
          returned: always
          sample: {/usr: [], /var: [noexec]}
        holds:
          description: Packages that the package manager must not change, names and shell patterns, by a hold, a version
            lock, an exclude, or a preference of apt.
          type: list
          elements: str
          returned: always
        pins:
          description: Where each of RV(ansible_facts.rbln.holds) is written, and excludes of single repositories. Null
            when a file of them cannot be read.
          type: list
          elements: dict
          returned: always
          sample: [{package: kernel*, by: exclude, path: /etc/dnf/dnf.conf, line: 5, repository: ""}]
        pciehp:
          description: C(ports) above an NPU that the hotplug service of the kernel holds.
          type: dict
          returned: always
        tools:
          description: Vendor tools with path and version.
          type: dict
          returned: always
        smi:
          description: How the call of C(rbln-smi) ended, and the driver version and contexts that it reported.
          type: dict
          returned: always
        daemon:
          description: Unit of the management daemon and its state.
          type: dict
          returned: always
        identity:
          description: Machine id, system UUID, name of the Kubernetes node and where it was found.
          type: dict
          returned: always
        virtualization:
          description: Hypervisor below the host, or V(none).
          type: str
          returned: always
        in_container:
          description: Whether this is a container.
          type: bool
          returned: always
        libraries:
          description: User libraries of the driver with their versions.
          type: dict
          returned: always
        probes:
          description: How every look ended.
          type: dict
          returned: always
        probe_denied:
          description: Names of the looks in C(probes) that were not allowed. Run with C(become).
          type: list
          elements: str
          returned: always
          sample: [pci]
        run:
          description: The run of Ansible in which this was seen. The roles pass over what an earlier run has left in a
            fact cache.
          type: str
          returned: on the controller
        pool_key:
          description: Key of the pool of hosts with this operating system and kernel.
          type: str
          returned: always
          sample: ubuntu_24_04_k6_8_0_117_generic
        reboot_required:
          description: Whether a reboot (or, for a replaced module, a reload) is due. C(reboot_reasons) says why.
          type: bool
          returned: always
        reboot_reasons:
          description: Why a reboot is due; empty when none is.
          returned: always
          type: list
          elements: dict
          contains:
            code:
              description: V(module_differs) or V(reboot_required_file).
              type: str
              returned: always
            detail:
              description: What was seen.
              type: str
              returned: always
          sample:
            - code: module_differs
              detail: version 3.2.2 is loaded, 3.4.0 is on disk
        problems:
          description:
            - What is wrong, errors first. These are the checks of the scope C(driver) that are false, as
              M(rebellions.npu.rbln_validate) returns them; C(docs/checks.md) lists them. A check that is not known is
              not a problem; C(probes) says why it is not known.
          type: list
          elements: dict
          returned: always
          contains:
            code:
              description: Name of the check.
              type: str
              returned: always
            severity:
              description: V(error), V(warning) or V(info).
              type: str
              returned: always
            detail:
              description: What was seen.
              type: str
              returned: always
            next_step:
              description: What to do.
              type: str
              returned: always
            vendor:
              description: Vendor of the NPUs.
              type: str
              returned: always
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "smi_timeout": {"type": "float", "default": 5.0},
            "command_timeout": {"type": "float", "default": 10.0},
            "expected_addresses": {"type": "list", "elements": "str", "default": []},
            "kernel": {"type": "str"},
            "dkms_dir": {"type": "path", "default": "/var/lib/dkms"},
            "runfile_stamp": {"type": "path", "default": "/var/lib/rbln/driver.json"},
            "container_driver_root": {"type": "path", "default": "/run/rbln/driver"},
        },
        supports_check_mode=True,
    )
    params: dict[str, t.Any] = dict(module.params)
    root = params.pop("root")
    try:
        facts = collect_facts(PROFILE, Host(root), params)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, ansible_facts={"rbln": facts})


if __name__ == "__main__":
    main()
