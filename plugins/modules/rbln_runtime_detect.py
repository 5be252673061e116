#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_runtime_detect
short_description: Detect container runtimes and their effective CDI state
version_added: 0.1.0
description:
  - Finds every container runtime of the host - containerd, docker, cri-o, podman, and the containerd of k3s, rke2, k0s,
    microk8s and Canonical Kubernetes - and returns its version, unit and flags, socket, configuration files in the
    order the runtime reads them, and its effective CDI state.
  - Asks the running processes first - their arguments, program files, environment, and the units of their control
    groups. Known names and files are for what is stopped. Processes of containers are left out.
  - Says which runtime the kubelet uses, what would have to change so that CDI specifications in O(spec_dir) are seen,
    and why.
  - When the host does not show which runtime is used, RV(ansible_facts.rbln_runtimes.ambiguous) says so; nothing is
    guessed.
  - The runtime's own loader is asked for the effective configuration when it can run; else the files are read with the
    semantics of its release.
  - Nothing is changed.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  root:
    description:
      - Directory that holds the file system to look at.
      - Below another root than C(/) no command is run, so values that only a program reports are C(unknown).
    type: path
    default: /
  runtime:
    description:
      - Names of the runtimes to configure. They decide RV(ansible_facts.rbln_runtimes.selected); all runtimes are
        reported either way.
      - Without it the kubelet's runtime is selected, or the only candidate.
    type: list
    elements: str
    choices: [containerd, docker, cri-o, podman]
    default: []
  kubelet_endpoint:
    description: Endpoint of the runtime that the kubelet uses, as a path or with C(unix://). It wins over the
      configuration of the host.
    type: str
    default: ""
  runtime_config_file:
    description: Configuration file of the one runtime in O(runtime), where the host does not show it. The file that
      imports the others.
    type: str
    default: ""
  runtime_dropin_dir:
    description: Drop-in directory of the one runtime in O(runtime), for containerd 2.0 or newer and CRI-O.
    type: str
    default: ""
  runtime_socket:
    description: Socket of the one runtime in O(runtime).
    type: str
    default: ""
  runtime_unit:
    description: The systemd unit that runs the one runtime in O(runtime), and is restarted.
    type: str
    default: ""
  spec_dir:
    description: Directory of the CDI specification, which the runtimes must therefore read.
    type: path
    default: /var/run/cdi
  ask:
    description: Whether to ask the running process of each selected runtime over its socket.
    type: bool
    default: false
  timeout:
    description: Seconds that each command, and each answer over a socket, may take.
    type: float
    default: 10.0
  wait_for:
    description:
      - Unit that was restarted. The look is repeated until the runtime of this unit runs with its configuration and,
        with O(ask), answers; a look that fails counts as one that it does not. RV(back) says how it ended.
      - The controller repeats it, so it needs Ansible.
    type: str
    default: ""
  wait:
    description: Seconds after which it is no longer waited for. A last look may take some more, but none begins.
    type: float
    default: 60.0
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.reads
  - rebellions.npu._attributes.facts
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
notes:
  - Run it as root; without it some processes and sockets cannot be looked at.
seealso:
  - module: rebellions.npu.rbln_runtime_config
  - module: rebellions.npu.rbln_cdi_spec
  - module: rebellions.npu.rbln_observe
"""

EXAMPLES = r"""
- name: Detect the container runtimes
  rebellions.npu.rbln_runtime_detect:
  become: true

- name: Say which runtime matters on a host that does not say it itself
  rebellions.npu.rbln_runtime_detect:
    runtime: [containerd]
  become: true

- name: Show what would have to change so that containers get NPUs
  ansible.builtin.debug:
    msg: "{{ ansible_facts.rbln_runtimes.runtimes | selectattr('selected') | map(attribute='changes') | flatten }}"

- name: Describe a runtime that is not recognised
  rebellions.npu.rbln_runtime_detect:
    runtime: [containerd]
    runtime_unit: site-containerd.service
    runtime_config_file: /opt/containerd/config.toml
    runtime_socket: /run/site/containerd.sock
  become: true

- name: Wait until a runtime that was restarted answers
  rebellions.npu.rbln_runtime_detect:
    ask: true
    wait_for: containerd.service
    wait: 60
  become: true

- name: Look into an image
  rebellions.npu.rbln_runtime_detect:
    root: /mnt/image
  become: true
"""

RETURN = r"""
back:
  description: Whether the runtime of the unit has come back in time.
  returned: with O(wait_for)
  type: bool
why:
  description: Why it has not; empty when it has.
  returned: with O(wait_for)
  type: str
ansible_facts:
  description: The facts found.
  returned: success
  type: dict
  contains:
    rbln_runtimes:
      description: The container runtimes and the kubelet, described by C(docs/schemas/rbln_runtimes.schema.json).
      returned: success
      type: dict
      contains:
        schema:
          description: Version of this structure.
          returned: success
          type: int
          sample: 1
        run:
          description: The run of Ansible in which this was seen. The roles pass over what an earlier run has left in a
            fact cache.
          returned: on the controller
          type: str
        runtimes:
          description: Every runtime of the host.
          returned: success
          type: list
          elements: dict
          contains:
            name:
              description: C(containerd), C(docker), C(cri-o) or C(podman).
              returned: success
              type: str
            flavor:
              description: Origin - C(system), C(k3s), C(rke2), C(k0s), C(microk8s), C(k8s-snap) for Canonical
                Kubernetes, C(snap) for the snap of docker, or C(docker-backend) for a containerd that only docker uses.
              returned: success
              type: str
            version:
              description: Version, or null when it could not be detected.
              returned: success
              type: str
            binary:
              description: Path of the program.
              returned: success
              type: str
            unit:
              description: The systemd unit; that of the process, else one of a known name.
              returned: success
              type: str
            unit_flags:
              description: Arguments of the running process, else those of the unit's command, its environment expanded.
              returned: success
              type: list
              elements: str
            unit_state:
              description: C(active), C(inactive), C(failed) and so on; C(unknown) when systemd could not be asked,
                C(absent) without a unit.
              returned: success
              type: str
            socket:
              description: Path of its socket.
              returned: success
              type: str
            socket_exists:
              description: Whether this path exists and is a socket.
              returned: success
              type: bool
            config_files:
              description: Configuration files that exist, in the order the runtime reads them.
              returned: success
              type: list
              elements: str
            main_config:
              description: The root configuration file, whether it exists or not.
              returned: success
              type: str
            dialect:
              description: Language of the file to edit - C(schema) 1, 2, 3 or null, C(format) toml, json or template.
              returned: success
              type: dict
            edit_target:
              description: The file to edit - C(path), and C(kind) main (in place), dropin (a file of ours), template,
                json or none.
              returned: success
              type: dict
            cdi:
              description: C(state) unsupported, off, on, on_by_default or unknown; C(spec_dirs) that are effective;
                C(source) that says so.
              returned: success
              type: dict
            process_started:
              description: Start of the running process in seconds since the epoch.
              returned: success
              type: float
            config_newest:
              description: Newest change of a configuration file in seconds since the epoch.
              returned: success
              type: float
            process_stale:
              description: Whether the running process is older than its configuration; null when that is not known.
              returned: success
              type: bool
            answers:
              description: Whether the process answers over its socket, containerd with its CRI plugin; null where that
                cannot be expected, and for a runtime that is not selected.
              returned: with O(ask)
              type: bool
            cri_enabled:
              description: Whether the kubelet could use it; null when that is not known or does not apply.
              returned: success
              type: bool
            changes:
              description: What would have to change - C(path), C(what), C(why). Empty when the effective state is
                right.
              returned: success
              type: list
              elements: dict
            owners:
              description: Other programs that write the files to change - C(path), C(name), C(next_step) says where
                the change belongs, and C(refuse) that its next run surely undoes a change here.
              returned: success
              type: list
              elements: dict
            refusal:
              description: C(reason) and C(next_step) when something is wrong and must not be written; else null.
              returned: success
              type: dict
            restart_unit:
              description: Unit to restart after a change; null when none is known, and then nothing can be changed.
              returned: success
              type: str
            warnings:
              description: Further remarks.
              returned: success
              type: list
              elements: str
            serves_kubelet:
              description: Whether this is the kubelet's runtime.
              returned: success
              type: bool
            selected:
              description: Whether this one is to be configured.
              returned: success
              type: bool
        kubelet:
          description: The kubelet - C(present), C(unit), C(root_dir), C(device_plugin_dir), C(pod_resources_dir),
            C(runtime_endpoint), C(source).
          returned: success
          type: dict
        kubernetes_runtime:
          description: Name of the kubelet's runtime, or null.
          returned: success
          type: str
        kubernetes_runtime_source:
          description: What says so.
          returned: success
          type: str
        selected:
          description: Names of the runtimes to configure.
          returned: success
          type: list
          elements: str
        ambiguous:
          description: C(reason), C(candidates), C(next_step) when the host does not show which runtime is used; else
            null.
          returned: success
          type: dict
        problems:
          description: Problems found - C(code), C(severity), C(detail), C(next_step), C(vendor).
          returned: success
          type: list
          elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import NAMES, RuntimeOptions
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import detect_runtimes
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.live import answers


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "runtime": {"type": "list", "elements": "str", "choices": list(NAMES), "default": []},
            "kubelet_endpoint": {"type": "str", "default": ""},
            "runtime_config_file": {"type": "str", "default": ""},
            "runtime_dropin_dir": {"type": "str", "default": ""},
            "runtime_socket": {"type": "str", "default": ""},
            "runtime_unit": {"type": "str", "default": ""},
            "spec_dir": {"type": "path", "default": "/var/run/cdi"},
            "ask": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 10.0},
            # Of the action plugin, which looks more than once.
            "wait_for": {"type": "str", "default": ""},
            "wait": {"type": "float", "default": 60.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    if not params["spec_dir"].startswith("/"):
        module.fail_json(
            msg="spec_dir is %r. Next: give the absolute path of the directory that holds the CDI specification."
            % params["spec_dir"]
        )
    if params["timeout"] <= 0:
        module.fail_json(msg="timeout is %g. Next: give a number of seconds above zero." % params["timeout"])
    try:
        options = RuntimeOptions.read(
            dict(params, runtimes=params["runtime"]),
            spec_dir=params["spec_dir"],
            file_stem=PROFILE.cdi_file_stem,
            state_dir=PROFILE.state_dir,
            timeout=params["timeout"],
        )
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    host = Host(params["root"])
    top = host.listdir("/")
    if not top.ok:
        module.fail_json(
            msg="root %s: %s. Next: Give the directory that holds the system's files." % (host.root, top.detail)
        )
    found = detect_runtimes(host, options)
    for runtime in found["runtimes"] if params["ask"] else []:
        # A look at the socket of another one could start it.
        runtime["answers"] = answers(host, runtime, params["timeout"]) if runtime["selected"] else None
    module.exit_json(changed=False, ansible_facts={"rbln_runtimes": found})


if __name__ == "__main__":
    main()
