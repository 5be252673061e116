# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes. The machine: whether it answers, and what it runs on."""

from __future__ import annotations

from .._objects.names import INPUT
from .cause import MACHINE, Cause

MACHINE_CAUSES: tuple[Cause, ...] = (
    Cause(
        "name_not_known",
        MACHINE,
        '`UNREACHABLE!`, "Could not resolve hostname"',
        "The controller does not know the address of the host.",
        "`getent hosts HOST` on the controller",
        "Set `ansible_host` to an address, or correct DNS.",
        ("reach:name",),
    ),
    Cause(
        "login_refused",
        MACHINE,
        '`UNREACHABLE!`, "Permission denied"',
        "The host refuses the user or the key.",
        "`ansible -i hosts.yml HOST -m ping`",
        "Correct `ansible_user` and its key.",
        ("reach:login",),
    ),
    Cause(
        "host_key_changed",
        MACHINE,
        '`UNREACHABLE!`, "Host key verification failed"',
        "The host has another key than the one that is known: it was installed again, or it is another machine.",
        "`ssh-keygen -F HOST`, and the key on the console of the host",
        "Find out which. Then `ssh-keygen -R HOST`, and accept the new key.",
        ("reach:host_key",),
    ),
    Cause(
        "disk_full",
        MACHINE,
        '"No space left on device", `disk_full`, `boot_full`, `DiskPressure`',
        "A file system of the host has no room.",
        "`df -h; df -i` on the host",
        "Free space on the file system that is named: old kernels, package caches, images, logs.",
        (
            "machine:disk",
            "reach:space",
            "node:pressure~DiskPressure",
            "pod:*~^(?!.*(?:watcher|inotify)).*no space left on device",
        ),
        ("image_not_pulled", "cdi_spec_stale", "kubelet_stopped", "node_not_ready", "pod_fails", "node_tainted"),
    ),
    Cause(
        "disk_read_only",
        MACHINE,
        '"Read-only file system"',
        "A file system that has to be written is mounted read-only.",
        "`findmnt -O ro` on the host; `dmesg`",
        "Look for errors of the disk in the kernel log, and mount it writable.",
        ("machine:read_only", "reach:read_only"),
        ("image_not_pulled", "cdi_spec_stale", "kubelet_stopped", "node_not_ready", "pod_fails", "node_tainted"),
    ),
    Cause(
        "become_refused",
        MACHINE,
        '`Missing sudo password`, "become does not work"; `Timeout (12s) waiting for privilege escalation prompt`',
        "The user may not become root. With sudo-rs (Ubuntu 25.10 and newer) an older ansible-core waits for its "
        "prompt.",
        "`ansible -i hosts.yml HOST -m command -a id -b`",
        "`--ask-become-pass`, or a sudo rule for the user; with sudo-rs a newer ansible-core, or "
        "`ansible_become_exe: sudo.ws`.",
        ("reach:become",),
    ),
    Cause(
        "python_missing",
        MACHINE,
        '"its Python does not run", "is older than 3.8"',
        "The host has no Python 3.8 or newer where Ansible looks for one.",
        "`ansible -i hosts.yml HOST -m raw -a 'python3 --version'`",
        "Install Python 3.8 or newer, and set `ansible_python_interpreter` to its path.",
        ("reach:python",),
    ),
    Cause(
        "host_unreachable",
        MACHINE,
        "`UNREACHABLE!`",
        "The host does not answer at its address and port.",
        "`ansible -i hosts.yml HOST -m ping -vvv`",
        "Look at power, network and sshd of the host; correct `ansible_host` and `ansible_port`.",
        ("reach:connection",),
    ),
    Cause(
        "host_not_observed",
        MACHINE,
        "the task that observes the host fails",
        "The host was not observed; the message of the task says why.",
        "`ansible-playbook rebellions.npu.discover --limit HOST -vvv`",
        "Do what the message says.",
        ("reach:other",),
    ),
    Cause(
        "looks_denied",
        MACHINE,
        "`looks_allowed` is false",
        "Looks at the host were denied: what they would show is not known.",
        "`ansible -i hosts.yml HOST -m command -a id -b`",
        "Let the user become root on the host.",
        ("check:looks_allowed",),
    ),
    Cause(
        "clock_differs",
        MACHINE,
        '"certificate is not yet valid", tokens that are refused at once',
        "The clock of the host and that of the controller differ.",
        "`timedatectl` on the host and on the controller",
        "Let a time service set the clock: `timedatectl set-ntp true`, or chrony.",
        # A certificate that "is after" its time has most likely expired.
        ("machine:clock", "pod:*~not yet valid(?!: current time \\S+ is after )"),
        ("node_not_ready", "image_not_pulled", "cdi_spec_stale", "runtime_not_restarted"),
    ),
    Cause(
        "proxy_fails",
        MACHINE,
        "`ErrImagePull` with `proxyconnect`",
        "The proxy of the container runtime does not answer.",
        "`systemctl show -p Environment UNIT` and `curl -sv -x ADDRESS https://example.com` on the host",
        f"Correct `{INPUT}container_toolkit_runtime_proxies`, or start the proxy.",
        ("machine:proxy", "pod:*~proxyconnect"),
        ("image_not_pulled", "dns_fails"),
    ),
    Cause(
        "dns_fails",
        MACHINE,
        '`ErrImagePull` with "no such host", "Temporary failure in name resolution"',
        "The host does not resolve a name that it needs.",
        "`getent ahosts NAME; cat /etc/resolv.conf` on the host",
        "Correct the resolver of the host, or the name in the inputs.",
        (
            "machine:name",
            "pod:*~no such host|server misbehaving|name resolution|(?<!symbol )lookup \\S+(?: on \\S+)?: ",
        ),
        ("image_not_pulled",),
    ),
    Cause(
        "machine_starved",
        MACHINE,
        "`MemoryPressure`, `PIDPressure`",
        "The machine has too little memory, or too many processes.",
        "`free -h; ps -e | wc -l` on the host",
        "Stop what uses it up; it is no matter of the NPUs.",
        ("node:pressure",),
        ("node_tainted", "pod_fails"),
    ),
)
