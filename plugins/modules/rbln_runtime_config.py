#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_runtime_config
short_description: Turn on CDI in the configuration of container runtimes
version_added: 0.1.0
description:
  - Makes a container runtime read CDI specifications with the smallest possible edit, and with none when it already
    reads them.
  - >-
    containerd - C(enable_cdi) and C(cdi_spec_dirs) in the CRI table of the schema that the file on disk is written in.
    On 1.x the file that owns this table is edited. On 2.x a drop-in is written, unless a file that sets the key itself
    can be edited in place.
    k3s and rke2 get a drop-in or one marked block in their template, k0s a drop-in, and microk8s its template.
    Before 1.7, and in schema 1 files of 1.x, the task fails with the remedy.
  - docker - C(features.cdi) in F(/etc/docker/daemon.json), from 25.0 on. From 28.2 on only an explicit C(false) is
    changed.
  - CRI-O - C(cdi_spec_dirs) in F(/etc/crio/crio.conf.d/99-rbln.conf), when the effective directories do not hold
    O(spec_dirs). It has no switch.
  - podman - nothing; it always reads CDI specifications.
  - Comments, order, indentation, quotes, line ends, byte order mark, mode, owner, SELinux label and symbolic links are
    kept. A file that is not valid is refused with its line and column and stays as it is.
  - The runtime itself checks the new files before they replace the old ones. What it loads may differ in these keys
    only. All files are written as one set.
  - Nothing is restarted; RV(restart_required) and RV(restart_units) say what must be restarted.
author:
  - The rebellions.npu authors (@rebellions-npu)
requirements:
  - tomlkit on the controller; nothing but Python on the host
options:
  state:
    description:
      - V(absent) removes exactly what V(present) added, by the record in
        F(/var/lib/rebellions-npu/runtime-config.json). A file that was not changed since then is restored byte for
        byte; from other files only the added keys are removed.
      - V(rolled_back) undoes in O(files) what was written last, and leaves what was written before. It is for a runtime
        that does not start with the new configuration.
    type: str
    choices: [present, absent, rolled_back]
    default: present
  files:
    description: With O(state=rolled_back), the files to roll back, as RV(files) of the task that wrote them.
    type: list
    elements: path
  runtimes:
    description:
      - The value of C(ansible_facts.rbln_runtimes) as M(rebellions.npu.rbln_runtime_detect) or
        M(rebellions.npu.rbln_observe) returns it.
      - Without it the runtimes are detected first.
    type: dict
  runtime:
    description:
      - Which runtimes to configure. V(selected) are those that
        RV(rebellions.npu.rbln_runtime_detect#module:ansible_facts.rbln_runtimes.selected) names.
      - With O(state=absent) it means every runtime whose files the record names.
    type: list
    elements: str
    choices: [selected, containerd, docker, cri-o, podman]
    default: [selected]
  spec_dirs:
    description:
      - Directories that the runtime must read. A written list has the present directories, F(/etc/cdi), F(/var/run/cdi)
        and these.
    type: list
    elements: path
    default: [/var/run/cdi]
  configure:
    description:
      - What to configure, or with O(state=absent) what to remove. V(cdi) is all that is described above.
      - >-
        V(proxies) gives the units of the runtimes the proxies below, as a drop-in
        F(/etc/systemd/system/UNIT.d/zz-rbln-proxy.conf) that names a file of variables with mode 0600. Proxies that
        other files of the unit set are kept, and their exceptions become part of ours. The service manager must read
        its units again before the restart.
      - The variables of k3s, rke2 and k0s have the prefix C(CONTAINERD_), because their unit also runs what talks to
        the API server.
      - By default V(cdi) is configured, and O(state=absent) removes both.
    type: list
    elements: str
    choices: [cdi, proxies]
  http_proxy:
    description: HTTP proxy of the runtimes. It may hold a password, which reaches the file of variables alone.
    type: str
  https_proxy:
    description: HTTPS proxy of the runtimes.
    type: str
  no_proxy:
    description: Names, addresses and ranges that runtimes reach without a proxy. Those of the host itself are added.
    type: list
    elements: str
    default: []
  backup:
    description: Keep each original once as C(NAME.rbln-backup), mode 0600. An existing backup is never overwritten.
    type: bool
    default: true
  root:
    description: Directory to use as the root of the host, for images. The runtime is not run then.
    type: path
    default: /
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
attributes:
  action:
    description: Has a corresponding action plugin, which computes the new files on the controller.
    support: full
notes:
  - On a host where nothing has to change, and O(runtimes) is given, nothing is run on it. A change costs two remote
    executions.
  - The difference shows changed lines only, with the values of keys that name secrets masked.
  - Run it as root.
seealso:
  - module: rebellions.npu.rbln_runtime_detect
  - module: rebellions.npu.rbln_config_write
"""

EXAMPLES = r"""
- name: Turn CDI on in the runtime that the kubelet uses
  rebellions.npu.rbln_runtime_config:
  register: runtime_config
  become: true

- name: Restart what has to read its configuration again
  ansible.builtin.systemd_service:
    name: "{{ item }}"
    state: restarted
  loop: "{{ runtime_config.restart_units }}"
  become: true

- name: Use what was observed before, for docker
  rebellions.npu.rbln_runtime_config:
    runtimes: "{{ ansible_facts.rbln_runtimes }}"
    runtime: [docker]
  become: true

- name: Take out what was added
  rebellions.npu.rbln_runtime_config:
    state: absent
  become: true
"""

RETURN = r"""
runtimes:
  description: One entry for each runtime that was looked at.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the runtime.
      type: str
    flavor:
      description: C(system), or the distribution it belongs to.
      type: str
    changed:
      description: Whether files of this runtime are (or would be) changed.
      type: bool
    effective:
      description: Whether CDI is on after a restart. C(false) when the template that decides it is a frozen copy and is
        not edited.
      type: bool
    files:
      description: Files that are (or would be) changed.
      type: list
      elements: str
    unit:
      description: The unit to restart.
      type: str
    restart_required:
      description: Whether it has to be restarted for this change.
      type: bool
files:
  description: All files that are (or would be) changed.
  returned: success
  type: list
  elements: str
backups:
  description: Backups made now.
  returned: success
  type: list
  elements: str
judged:
  description: Whether the runtimes accepted the new files; null when nothing was written or they could not be run.
  returned: success
  type: bool
restart_required:
  description: Whether a runtime has to be restarted for this change.
  returned: success
  type: bool
restart_units:
  description: The units to restart.
  returned: success
  type: list
  elements: str
  sample: [containerd.service]
restored:
  description: Files that an interrupted run had replaced and that were restored first.
  returned: when the host was looked at
  type: list
  elements: str
"""
