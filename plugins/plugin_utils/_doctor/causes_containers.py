# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes. Specification, runtimes and ready files of a host."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects.names import INPUT, SHORT
from .cause import CONTAINERS, HOST_TOOL, TOOLKIT, WITHOUT_PLUGIN, WITHOUT_RUNTIME, Cause, checks

CONTAINER_CAUSES: tuple[Cause, ...] = (
    Cause(
        "cdi_spec_taken",
        CONTAINERS,
        "`cdi_no_conflict` or `cdi_no_other_file` is false",
        "Another specification names the same devices: runtimes refuse both, or the later one wins.",
        f"`grep -l {PROFILE.cdi_kind} /etc/cdi/* /var/run/cdi/*` on the host",
        f"Remove that file and the unit that writes it (`{SHORT}-cdi-refresh`).",
        checks("cdi_no_conflict", "cdi_no_other_file"),
        ("runtime_without_cdi_spec", "ready_files_missing"),
    ),
    Cause(
        "cdi_spec_untrusted",
        CONTAINERS,
        "`cdi_dirs_trusted`, `cdi_files_trusted` or `cdi_hooks_known` is false",
        "Others than root can change what runtimes read, or a hook is not known.",
        "`ls -ld /etc/cdi /var/run/cdi /etc/cdi/* /var/run/cdi/*` on the host",
        "Look at what the file holds, then make it root's, with mode 0644, and directories 0755.",
        checks("cdi_dirs_trusted", "cdi_files_trusted", "cdi_hooks_known", "cdi_readable_by_all"),
        ("ready_files_missing",),
    ),
    Cause(
        "plugin_left_file",
        CONTAINERS,
        '`cdi_no_plugin_leftover` is false; the device plugin crashes with "read-only file system"',
        "A file of an earlier device plugin is there, which the new one cannot remove.",
        "`ls /var/run/cdi/*_*` on the host",
        "Remove the files that are named.",
        ("check:cdi_no_plugin_leftover",),
        ("pod_fails", *WITHOUT_PLUGIN),
    ),
    Cause(
        "cdi_spec_stale",
        CONTAINERS,
        f"`unresolvable CDI devices {PROFILE.cdi_kind}=0`; `cdi_spec_present` or `cdi_spec_current` is false",
        "The CDI specification is missing, damaged, or older than driver and devices.",
        f"`{HOST_TOOL} validate --scope toolkit; systemctl status {HOST_TOOL}-cdi` on the host",
        f"Run {TOOLKIT}, or `{HOST_TOOL} cdi`. `{INPUT}container_toolkit_host_tool: true` renews it at each boot.",
        checks("cdi_spec_present", "cdi_spec_valid", "cdi_spec_current", "cdi_spec_fresh", "cdi_host_paths"),
        ("runtime_without_cdi_spec", "ready_files_missing", "pod_device_unknown"),
    ),
    Cause(
        "runtime_unclear",
        CONTAINERS,
        '`runtime_known` is false; "no container runtime was found"',
        "No runtime is installed, or it is not clear which one containers with NPUs use.",
        "`systemctl list-units '*containerd*' '*docker*' '*crio*'` on the host",
        f"Install one, or name it in `{INPUT}container_toolkit_runtimes`.",
        ("check:runtime_known",),
        ("runtime_without_cdi_spec", "ready_files_missing"),
    ),
    Cause(
        "runtime_stopped",
        CONTAINERS,
        '`runtime_sees_spec` is not known: "is stopped"',
        "The container runtime is stopped.",
        "`systemctl status UNIT; journalctl -u UNIT` on the host",
        "`systemctl start UNIT` on the host.",
        ("runtime:stopped",),
        ("kubelet_stopped", "pod_fails", "npus_not_allocatable", *WITHOUT_RUNTIME),
    ),
    Cause(
        "cdi_overridden",
        CONTAINERS,
        "`runtime_cdi_on` is false though a file turns CDI on",
        "CDI is off, and several files decide: another one may win over the one that turns CDI on.",
        "`containerd config dump | grep -i cdi`, `docker info | grep -i cdi` on the host",
        f"Run {TOOLKIT}; where another file turns CDI off, first make the change where that file comes from.",
        ("runtime:overridden",),
        ("cdi_off", "runtime_not_restarted", *WITHOUT_RUNTIME),
    ),
    Cause(
        "cdi_off",
        CONTAINERS,
        "`runtime_cdi_on` or `runtime_reads_dir` is false",
        "The configuration of the runtime turns CDI off, or reads another directory.",
        "`containerd config dump | grep -i cdi`, `docker info | grep -i cdi` on the host",
        f"Run {TOOLKIT}; a runtime without CDI needs a newer release.",
        checks("runtime_cdi_on", "runtime_reads_dir"),
        ("runtime_not_restarted", "pod_device_unknown", *WITHOUT_RUNTIME),
    ),
    Cause(
        "runtime_not_restarted",
        CONTAINERS,
        '`runtime_is_fresh` is false: "runs with an older configuration"',
        "The runtime did not read its new configuration: a restart was lost.",
        "`systemctl show -p ExecMainStartTimestamp UNIT` on the host",
        f"Run {TOOLKIT} with `{INPUT}container_toolkit_runtime_restart: if_required`.",
        ("check:runtime_is_fresh",),
        ("pod_device_unknown", *WITHOUT_RUNTIME),
    ),
    Cause(
        "runtime_without_cdi_spec",
        CONTAINERS,
        '`runtime_sees_spec` is false: "CDI is off in the running NAME"',
        "The running runtime does not have the specification.",
        f"`{HOST_TOOL} validate --scope toolkit` on the host",
        f"Restart the runtime; if that does not help, run {TOOLKIT}.",
        ("check:runtime_sees_spec",),
        ("ready_files_missing", "pod_device_unknown"),
    ),
    Cause(
        "containers_down",
        CONTAINERS,
        "containers with `restart: always` stay down after docker restarts",
        "docker before 28.2 starts them before CDI is ready.",
        "`docker ps -a` on the host",
        "`docker start` them, or use a newer docker.",
        ("check:containers_are_back",),
    ),
    Cause(
        "ready_files_missing",
        CONTAINERS,
        f"pods stay in `Init`; `{PROFILE.validation_dir}` lacks files",
        "The ready files of the host are missing or stale, so the pods of the cluster wait.",
        f"`ls -A {PROFILE.validation_dir}; systemctl status {HOST_TOOL}-ready` on the host",
        "Run `ansible-playbook rebellions.npu.validate --limit HOST`, which writes them or says why not.",
        ("ready:missing", "check:driver_ready_readable", "pod:WaitsForHost"),
        ("pods_not_ready", *WITHOUT_PLUGIN),
    ),
)
