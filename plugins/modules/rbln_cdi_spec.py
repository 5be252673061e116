#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_cdi_spec
short_description: Write, remove, or judge the CDI specification of Rebellions NPUs
version_added: 0.1.0
description:
  - Makes the file that tells container runtimes what a container with an NPU gets, following the Container Device
    Interface (CDI).
  - Finds the device nodes and their RSD groups, the driver's libraries with everything they load, plugins, and tools.
  - Writes only what CDI readers accept, with the lowest C(cdiVersion) that allows it, and does not rewrite a file that
    already means the same.
  - The file is root's with mode 0644 and its directory has the mode 0755, whatever the umask. What differs is repaired.
  - A container finds the node of its RSD group as C(/dev/rsd0) whatever its number on the host, because the driver's
    library opens that name. So the entries of an NPU and of a group put it there. V(all) does so when all NPUs share
    one group; otherwise it keeps the names of the host.
author:
  - The rebellions.npu authors (@rebellions-npu)
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
options:
  state:
    description:
      - V(present) writes the file when it does not mean what it should.
      - V(absent) removes it.
      - V(validate) checks the file and changes nothing. It fails when a CDI reader would refuse the file, a path in it
        is missing on the host, or another file makes its devices unusable.
    type: str
    choices: [present, absent, validate]
    default: present
  path:
    description:
      - The file. It ends in C(.yaml) or C(.json), and its directory has to be one that the runtimes read.
      - Without it, C(/var/run/cdi/rbln.yaml), and for O(form=storage) C(/var/run/cdi/rbln-rds.yaml).
    type: path
  format:
    description: The format of the file. It follows from the ending of O(path) and is only checked against it.
    type: str
    choices: [yaml, json]
  form:
    description:
      - V(standalone) has an entry for each NPU (its number), each RSD group (C(rsdM)), V(all), and V(runtime).
      - V(kubernetes) has V(all) and V(runtime) with libraries and tools and without device nodes, because the device
        plugin hands out the devices.
      - V(storage) has an entry for each RDS storage node (C(rblnfsN)) and V(all), under a kind and in a file of their
        own.
    type: str
    choices: [standalone, kubernetes, storage]
    default: standalone
  kind:
    description: The CDI kind. Without it, the vendor's, C(rebellions.ai/npu) or C(rebellions.ai/rds).
    type: str
  driver_root:
    description: The directory below which the driver's files are, for a driver that is installed in a container.
    type: path
    default: /
  dev_root:
    description: The directory with the device nodes. Without it, C(dev) below O(driver_root) when NPU nodes are there,
      else C(/dev).
    type: path
  container_library_path:
    description: A directory in the container for all libraries. Without it they keep their paths.
    type: str
  selinux_context:
    description: SELinux mount option. V(auto) adds C(z) where SELinux is on.
    type: str
    choices: [auto, none, z, Z]
    default: auto
  hooks:
    description:
      - Whether the specification calls a hook program, which names the libraries in the cache of the loader in the
        container. So E(LD_LIBRARY_PATH) of an image stays as it is.
      - V(auto) takes the vendor's program when it exists and is executable, else the host tool as O(host_tool) says.
        Without both it calls none and warns; libraries are then found only where the loader of the image looks.
      - V(on) fails when neither can be used, because no container would start then.
      - V(off) sets E(LD_LIBRARY_PATH), which replaces the value that an image brings.
    type: str
    choices: [auto, 'on', 'off']
    default: auto
  hook_path:
    description:
      - The hook program on the host. Without it, C(/usr/local/bin/rbln-cdi-hook).
      - C(/usr/local/libexec/rebellions-npu/rbln-host) takes the host tool also where the vendor's program exists.
    type: path
  host_tool:
    description:
      - Whether the host tool (M(rebellions.npu.rbln_host_tool)) may be the hook program. V(true) also where it is about
        to be installed.
      - Without it, where it is installed.
    type: bool
  known_hooks:
    description:
      - More programs that specifications of this kind may call. A directory ends with C(/).
      - Known without it are the vendor's program, the host tool, and C(ldconfig) and the hooks of NVIDIA's container
        toolkit in the directories of the system, such as C(/usr/bin).
    type: list
    elements: str
    default: []
  ldconfig_path:
    description: The program C(ldconfig) on the host, for the hook.
    type: path
    default: /sbin/ldconfig
  legacy_hookname:
    description: Write the key C(hookname) beside the right C(hookName). The vendor's DRA driver reads only that key.
    type: bool
    default: false
  zero_devices:
    description:
      - What to do when there is nothing to give to containers, that is no NPU node, or in the form V(kubernetes) no
        library, plugin, or tool.
      - V(fail) fails, V(skip) leaves the file as it is, V(remove) removes it.
    type: str
    choices: [fail, skip, remove]
    default: fail
  library_patterns:
    description: Shell patterns of the driver's libraries. Without it, C(librbln-*.so*).
    type: list
    elements: str
  library_dirs:
    description: Directories of libraries, searched before those of C(/etc/ld.so.conf). Without it, the usual ones of
      the distributions.
    type: list
    elements: str
  plugin_dirs:
    description: Directories whose libraries are loaded at run time. Without it, the C(libibverbs) directories.
    type: list
    elements: str
  tools:
    description: Names of programs to give to containers. Without it, the vendor's tools.
    type: list
    elements: str
  tool_dirs:
    description: Directories of programs.
    type: list
    elements: str
    default: [/usr/bin, /usr/local/bin]
  exclude:
    description: Shell patterns of dependencies that a container brings itself. Without it, the C and C++ run time.
    type: list
    elements: str
  extra_mounts:
    description: More files or directories, below O(driver_root), to mount read-only at their own path.
    type: list
    elements: str
    default: []
  groups:
    description:
      - "The RSD group number by device node name, such as C({rbln0: 1})."
      - Without it, sysfs and then C(rbln-smi) are asked.
    type: dict
  machine:
    description: The machine of the libraries as C(uname -m) names it. Without it, the machine of this host.
    type: str
  spec_dirs:
    description: The directories the runtimes read, the more important later. Reported are other files there that have
      the same kind or name the same devices, hooks that are not known, and what others than root can write.
    type: list
    elements: str
    default: [/etc/cdi, /var/run/cdi]
  root:
    description: Work on the system below this directory instead of C(/), for image builds.
    type: path
    default: /
seealso:
  - module: rebellions.npu.rbln_runtime_config
  - module: rebellions.npu.rbln_validate
  - name: Container Device Interface
    description: The specification.
    link: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

EXAMPLES = r"""
- name: Write the specification for docker or podman
  rebellions.npu.rbln_cdi_spec:
  become: true

- name: Write the specification for a Kubernetes node whose driver is in a container
  rebellions.npu.rbln_cdi_spec:
    form: kubernetes
    driver_root: /run/rbln/driver
  become: true

- name: Write the specification of RDS storage nodes where there are some
  rebellions.npu.rbln_cdi_spec:
    form: storage
    zero_devices: remove
  become: true

- name: Judge the specification that is there
  rebellions.npu.rbln_cdi_spec:
    state: validate

- name: Remove a copy that nothing keeps up to date
  rebellions.npu.rbln_cdi_spec:
    state: absent
    path: /etc/cdi/rbln.yaml
  become: true
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
  sample: /var/run/cdi/rbln.yaml
format:
  description: Its format.
  returned: when O(state=present)
  type: str
  sample: yaml
action:
  description: What the host needs, V(write), V(skip), or V(remove).
  returned: when O(state=present)
  type: str
  sample: write
found:
  description: State of the file before, V(current), V(stale), V(missing), or V(invalid).
  returned: when O(state=present)
  type: str
  sample: stale
state:
  description: The present state, or the one that would follow without check mode.
  returned: when O(state=present)
  type: str
  sample: current
devices:
  description: The NPU nodes by number. C(group) is null when it is not known.
  returned: when O(state=present)
  type: list
  elements: dict
  sample: [{name: rbln0, path: /dev/rbln0, major: 235, minor: 0, group: 0}]
libraries:
  description: The libraries, as paths below O(driver_root).
  returned: when O(state=present)
  type: list
  elements: str
  sample: [/usr/lib64/librbln-ml.so.3.5.1]
tools:
  description: The programs, as paths below O(driver_root).
  returned: when O(state=present)
  type: list
  elements: str
  sample: [/usr/bin/rbln-smi]
missing:
  description: Libraries that are needed and were not found.
  returned: when O(state=present)
  type: list
  elements: dict
  sample: [{name: libibverbs.so.1, needed_by: /usr/lib64/librbln-ccl.so.3.5.1}]
conflicts:
  description:
    - Names that are used twice although a container can have only one. C(kind) is V(version) (a library in several
      versions), V(name) (two libraries at one path in the container), or V(device) (another specification names the
      same device). C(chosen) is the one that is used, null when the runtime refuses both.
  returned: when O(state=present) or O(state=validate)
  type: list
  elements: dict
  sample:
    - kind: device
      name: rebellions.ai/npu=0
      paths: [/var/run/cdi/rbln.yaml, /etc/cdi/rbln.yaml]
      chosen: /var/run/cdi/rbln.yaml
directories:
  description:
    - The directories of specifications, with owner, group, and mode, which are null when the directory is missing or
      cannot be looked at. C(linked_to) is set when it is a symbolic link.
  returned: when O(state=present) or O(state=validate)
  type: list
  elements: dict
  sample: [{path: /etc/cdi, state: value, linked_to: null, owner: 0, group: 0, mode: "0755"}]
files:
  description: Every file there that has one of our kinds.
  returned: when O(state=present) or O(state=validate)
  type: list
  elements: dict
  sample:
    - path: /run/cdi/rbln.yaml
      kind: rebellions.ai/npu
      owner: 0
      group: 0
      mode: "0644"
      written_by_us: true
      hooks: [/usr/local/libexec/rebellions-npu/rbln-host]
repairs:
  description: What the owner or mode of our file and its directory needed. Other files are never changed.
  returned: when O(state=present)
  type: list
  elements: str
  sample: ["/var/run/cdi: mode 0777 becomes 0755"]
missing_host_paths:
  description: Paths in the existing file that are missing on the host.
  returned: when O(state=present) or O(state=validate)
  type: list
  elements: str
  sample: [/usr/lib64/librbln-ccl.so.3.0.0]
valid:
  description: Whether the file can be used.
  returned: when O(state=validate)
  type: bool
  sample: true
device_names:
  description: The device names that a container can request.
  returned: when O(state=validate)
  type: list
  elements: str
  sample: ["rebellions.ai/npu=0", "rebellions.ai/npu=all"]
problems:
  description: Problems that were found, each with C(code), C(severity), C(detail), and C(next_step).
  returned: always
  type: list
  elements: dict
  sample:
    - code: cdi_other_file
      severity: warning
      detail: /etc/cdi/x.yaml has the kind rebellions.ai/npu too, and this collection did not write it.
      next_step: Remove it, and the service that writes it, unless you know what it is for.
      vendor: rebellions
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.manage import manage
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host

WORDS = {"type": "list", "elements": "str"}
ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent", "validate"], "default": "present"},
    "path": {"type": "path"},
    "format": {"type": "str", "choices": ["yaml", "json"]},
    "form": {"type": "str", "choices": ["standalone", "kubernetes", "storage"], "default": "standalone"},
    "kind": {"type": "str"},
    "driver_root": {"type": "path", "default": "/"},
    "dev_root": {"type": "path"},
    "container_library_path": {"type": "str"},
    "selinux_context": {"type": "str", "choices": ["auto", "none", "z", "Z"], "default": "auto"},
    "hooks": {"type": "str", "choices": ["auto", "on", "off"], "default": "auto"},
    "hook_path": {"type": "path"},
    "host_tool": {"type": "bool"},
    "known_hooks": {"default": [], **WORDS},
    "ldconfig_path": {"type": "path", "default": "/sbin/ldconfig"},
    "legacy_hookname": {"type": "bool", "default": False},
    "zero_devices": {"type": "str", "choices": ["fail", "skip", "remove"], "default": "fail"},
    "library_patterns": WORDS,
    "library_dirs": WORDS,
    "plugin_dirs": WORDS,
    "tools": WORDS,
    "tool_dirs": {"default": ["/usr/bin", "/usr/local/bin"], **WORDS},
    "exclude": WORDS,
    "extra_mounts": {"default": [], **WORDS},
    "groups": {"type": "dict"},
    "machine": {"type": "str"},
    "spec_dirs": {"default": ["/etc/cdi", "/var/run/cdi"], **WORDS},
    "root": {"type": "path", "default": "/"},
}


class Module(AnsibleModule):
    def add_path_info(self, kwargs: dict[str, object]) -> dict[str, object]:
        """Nothing: Ansible would describe the file at `path`, and overwrite `state` by the word file."""
        return kwargs


def main() -> None:
    module = Module(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = manage(PROFILE, Host(module.params["root"]), module.params, module.check_mode)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    for problem in result["problems"]:
        if problem["severity"] != "info":
            module.warn("%s Next: %s" % (problem["detail"], problem["next_step"]))
    if result.get("valid") is False:
        first = next(problem for problem in result["problems"] if problem["severity"] == "error")
        module.fail_json(
            msg="%s: %s. Next: %s" % (result["path"], first["detail"].rstrip("."), first["next_step"]), **result
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
