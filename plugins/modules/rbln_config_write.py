#!/usr/bin/python
# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rbln_config_write
short_description: Read or replace a set of configuration files as one
version_added: 0.1.0
description:
  - The one writer of configuration files on a host; M(rebellions.npu.rbln_runtime_config) computes what it writes. It
    can be used alone for a set of files that must change together.
  - Takes a lock, checks that every file still is what the caller saw, stages the new files beside the old ones, lets
    the program that reads them check the whole set, keeps one backup of each original, and renames. Owner, mode,
    extended attributes (SELinux label) and symbolic links are kept.
  - When anything fails, every file is as it was. After an interrupted run, the next run completes or undoes the set and
    removes leftover files.
author:
  - The rebellions.npu authors (@rebellions-npu)
options:
  read:
    description: Files to read. Nothing is written then, except that an interrupted run is completed or undone outside
      check mode.
    type: list
    elements: path
    default: []
  files:
    description: Files to write, in the order in which they are renamed.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: New content in base64. Without it the file is deleted.
        type: str
      old_sha256:
        description: SHA-256 the file must have now. Without it the file must not exist.
        type: str
      mode:
        description: Mode of a new file, in octal digits. An existing file keeps its own.
        type: str
        default: '0644'
      aside:
        description: Directory for helper files and the backup, when the program reads every file beside the target. It
          must be on the same file system.
        type: path
      backup:
        description: Keep the original once as C(NAME.rbln-backup), mode 0600.
        type: bool
        default: true
      drop_backup:
        description: Remove the backup when the new content equals it.
        type: bool
        default: false
      drop_dirs:
        description: Directories to remove afterwards if they are empty.
        type: list
        elements: path
        default: []
  judges:
    description: Commands that check the set before anything is replaced.
    type: list
    elements: dict
    default: []
    suboptions:
      program:
        description: Its name, for messages.
        type: str
        required: true
      before:
        description: Command for the files as they are. Empty means that only the exit code of O(judges[].after) counts.
        type: list
        elements: str
        default: []
      after:
        description: Command for the staged files; C({staged:PATH}) is the path of the new file for PATH, C({root}) that
          of O(judges[].root_content).
        type: list
        elements: str
        required: true
      dumps:
        description: Whether both commands print what is loaded, as TOML.
        type: bool
        default: true
      allowed:
        description: Keys that may differ, as paths joined by slashes.
        type: list
        elements: str
        default: []
      prefixes:
        description: Keys below these may differ too.
        type: list
        elements: str
        default: []
      expect:
        description: What must be loaded, as dictionaries of C(keys) and either C(equals) or C(contains).
        type: list
        elements: dict
        default: []
      root_directory:
        description: Where to stage O(judges[].root_content).
        type: path
      root_content:
        description: A main file for the check only, in base64.
        type: str
  root:
    description: Directory to use as the root of the host. No program is run then.
    type: path
    default: /
extends_documentation_fragment:
  - rebellions.npu._attributes
  - rebellions.npu._attributes.writes
  - rebellions.npu._attributes.group
  - rebellions.npu._attributes.judged
attributes:
  diff_mode:
    support: none
    details:
      - M(rebellions.npu.rbln_runtime_config) shows the difference; contents may hold secrets and are never returned by
        a write.
seealso:
  - module: rebellions.npu.rbln_runtime_config
"""

EXAMPLES = r"""
- name: Replace a file that must still be what was seen
  rebellions.npu.rbln_config_write:
    files:
      - path: /etc/example/daemon.json
        content: "{{ '{\"debug\": true}' | b64encode }}"
        old_sha256: "{{ seen.files['/etc/example/daemon.json'].sha256 }}"
"""

RETURN = r"""
files:
  description: The files that were read, by path.
  returned: when O(read) is given
  type: dict
  sample:
    /etc/containerd/config.toml:
      state: value
      sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
      content: dmVyc2lvbiA9IDIK
      missing_dirs: []
      detail: ""
unfinished:
  description: Whether files of an interrupted run are left (in check mode), or were left.
  returned: when O(read) is given
  type: bool
restored:
  description: Files that an interrupted run had replaced and that were restored.
  returned: always
  type: list
  elements: str
judged:
  description: Whether the program has accepted the set; null when the program could not be run.
  returned: when O(files) is given
  type: bool
backups:
  description: Backups made now.
  returned: when O(files) is given
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer_request import read_set, write_set


def main() -> None:
    file_spec = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "no_log": True},
        "old_sha256": {"type": "str"},
        "mode": {"type": "str", "default": "0644"},
        "aside": {"type": "path"},
        "backup": {"type": "bool", "default": True},
        "drop_backup": {"type": "bool", "default": False},
        "drop_dirs": {"type": "list", "elements": "path", "default": []},
    }
    judge_spec = {
        "program": {"type": "str", "required": True},
        "before": {"type": "list", "elements": "str", "default": []},
        "after": {"type": "list", "elements": "str", "required": True},
        "dumps": {"type": "bool", "default": True},
        "allowed": {"type": "list", "elements": "str", "default": []},
        "prefixes": {"type": "list", "elements": "str", "default": []},
        "expect": {"type": "list", "elements": "dict", "default": []},
        "root_directory": {"type": "path"},
        "root_content": {"type": "str", "no_log": True},
    }
    module = AnsibleModule(
        argument_spec={
            "read": {"type": "list", "elements": "path", "default": []},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_spec},
            "judges": {"type": "list", "elements": "dict", "default": [], "options": judge_spec},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    host = Host(module.params["root"])
    try:
        if module.params["files"]:
            result = write_set(
                host,
                PROFILE.state_dir,
                PROFILE.cdi_file_stem,
                module.params["files"],
                module.params["judges"],
                module.check_mode,
            )
        else:
            result = read_set(host, PROFILE.state_dir, PROFILE.cdi_file_stem, module.params["read"], module.check_mode)
    except NpuError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
