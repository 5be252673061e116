# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a host of the lab that a run has made ready: how each is made, undone, and what it is called."""

from __future__ import annotations

import typing as t

Data = t.Dict[str, t.Any]
TOOL = "/usr/local/libexec/rebellions-npu/rbln-host"
FAULT = "/opt/npu-lab/payload/fault"
UNLOAD = "modprobe -r rebellions"
LOAD = "modprobe rebellions"
# The name of the registry, which only /etc/hosts knows there; the file is mounted, so it cannot be replaced.
FORGET = "grep -v lab.local /etc/hosts >/run/npu-hosts; cat /run/npu-hosts >/etc/hosts"
KERNEL = "6.8.0-999-generic"
OTHER_KERNEL = (
    f"{UNLOAD}; echo {KERNEL} >/run/npu-lab/osrelease; mount --bind /run/npu-lab/osrelease /proc/sys/kernel/osrelease"
)
OWN_KERNEL = f"umount /proc/sys/kernel/osrelease; rm -rf /lib/modules/{KERNEL}; {LOAD}"
SPEC = "spec=/var/run/cdi/rbln.yaml; "
CARD = "cd $(ls -d /sys/bus/pci/devices/* | head -n 1); "
LIBRARY = "cd $(dirname $(find /usr/lib /usr/lib64 -name 'librbln-ml.so.3.2.2' | head -n 1)); "


class Fault(t.NamedTuple):
    """`make` and `undo` are shell lines of root; `causes` the ids of which one has to be first or second.

    `given` are inputs of the run that looks; `host` the one host whose runtime or system it needs.
    """

    name: str
    make: str
    undo: str
    causes: tuple[str, ...]
    given: Data = {}  # noqa: RUF012 - nobody changes it
    host: str = ""


def _hold(name: str, path: str) -> tuple[str, str]:
    """A process that has a file open, and its end."""
    run = "systemd-run -q --unit=%s sh -c 'exec sleep 600 9>>%s'" % (name, path)
    return run, "systemctl stop %s" % name


_LOCK, _UNLOCK = _hold("npu-lock", "/var/lib/dpkg/lock-frontend")
_USE, _LEAVE = _hold("npu-use", "/dev/rbln0")
_A, _B = "it-a", "it-b"

FAULTS: tuple[Fault, ...] = (
    Fault("driver not loaded", UNLOAD, LOAD, ("driver_not_loaded",)),
    Fault(
        "wrong kernel",
        f"{OTHER_KERNEL}; mkdir -p /lib/modules/{KERNEL}",
        OWN_KERNEL,
        ("kernel_without_module",),
    ),
    Fault("a container without modules", OTHER_KERNEL, OWN_KERNEL, ("host_is_container",)),
    Fault(
        "module blocked",
        f"{UNLOAD}; echo quiet module_blacklist=rebellions >/run/npu-lab/cmdline; "
        "mount --bind /run/npu-lab/cmdline /proc/cmdline",
        f"umount /proc/cmdline; {LOAD}",
        ("module_blocked",),
    ),
    Fault(
        "signature",
        f"{UNLOAD}; mkdir -p /sys/module/module/parameters; echo Y >/sys/module/module/parameters/sig_enforce",
        f"rm -f /sys/module/module/parameters/sig_enforce; {LOAD}",
        ("secure_boot_refuses",),
    ),
    Fault(
        "no card",
        f"{UNLOAD}; umount /sys/bus/pci/devices",
        "systemctl restart npu-lab-hardware; " + LOAD,
        ("npus_missing",),
    ),
    Fault(
        "library mismatch",
        LIBRARY + "cp librbln-ml.so.3.2.2 librbln-ml.so.3.0.0; ln -sfn librbln-ml.so.3.0.0 librbln-ml.so.3; ldconfig",
        LIBRARY + "rm librbln-ml.so.3.0.0; ln -sfn librbln-ml.so.3.2.2 librbln-ml.so.3; ldconfig",
        ("library_mismatch",),
    ),
    Fault("stale specification", SPEC + "sed -i s/librbln-ml/librbln-xx/g $spec", "true", ("cdi_spec_stale",)),
    Fault("no specification", SPEC + "rm $spec", "true", ("cdi_spec_stale",)),
    Fault(
        "two specifications",
        SPEC + "cp $spec /var/run/cdi/zz-other.yaml",
        "rm /var/run/cdi/zz-other.yaml",
        ("cdi_spec_taken",),
    ),
    Fault("index collapsed", f"{FAULT} smi-collapse", f"{FAULT} smi-collapse -", ("index_collapsed",)),
    Fault(
        "tool hangs",
        f"{FAULT} smi-hang 30",
        f"{FAULT} smi-hang -",
        ("tool_hangs",),
        {"rbln_discover_timeout": 1.0},
    ),
    Fault("tool fails", f"{FAULT} smi-exit 5", f"{FAULT} smi-exit -", ("tool_fails",)),
    Fault("card not initialised", f"{FAULT} smi-missing-rbln1", f"{FAULT} smi-missing-rbln1 -", ("cards_not_bound",)),
    Fault(
        "device in fault",
        "echo 3 >/sys/class/rebellions/rbln0/status",
        "echo 0 >/sys/class/rebellions/rbln0/status",
        ("devices_unhealthy",),
    ),
    Fault(
        "card lost",
        CARD + "cp config /run/npu-lab/config; head -c 64 /dev/zero | tr '\\0' '\\377' >config; echo 0xff >revision",
        CARD + "cp /run/npu-lab/config config; echo 0x01 >revision",
        ("card_lost",),
    ),
    Fault(
        "link degraded",
        CARD + "cp current_link_width /run/npu-lab/width; echo 4 >current_link_width",
        CARD + "cp /run/npu-lab/width current_link_width",
        ("link_degraded",),
    ),
    Fault("daemon stopped", "systemctl stop rbln-smd", "systemctl start rbln-smd", ("daemon_stopped",)),
    Fault(
        "full disk",
        "mkdir -p /var/lib/docker; mount -t tmpfs -o size=1m full /var/lib/docker; "
        "head -c 2M /dev/zero >/var/lib/docker/full || true",
        "umount /var/lib/docker; rmdir /var/lib/docker",
        ("disk_full",),
    ),
    Fault(
        "clock",
        "for d in /usr/local/lib/python3.*/dist-packages; do echo "
        "'import time; time.time = lambda then=time.time: then() - 86400' >$d/npu-clock.pth; done",
        "rm -f /usr/local/lib/python3.*/dist-packages/npu-clock.pth",
        ("clock_differs",),
    ),
    Fault("DNS", FORGET, "true", ("dns_fails",)),
    Fault("apt lock", _LOCK, _UNLOCK, ("package_manager_busy",)),
    Fault(
        "held package",
        "apt-mark hold rebellions-kmd",
        "apt-mark unhold rebellions-kmd",
        ("package_held",),
        {"rbln_driver_version": "3.4.0"},
    ),
    Fault("NPUs in use", _USE, _LEAVE, ("npus_in_use",), {"rbln_driver_version": "3.4.0"}),
    Fault("ready files missing", "rm -rf /run/rbln/validations", "true", ("ready_files_missing",)),
    Fault("kubelet stopped", "systemctl stop kubelet", "systemctl start kubelet", ("kubelet_stopped",)),
    Fault(
        "plugin not registered",
        "mv /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint /run/npu-lab/",
        "mv /run/npu-lab/kubelet_internal_checkpoint /var/lib/kubelet/device-plugins/",
        ("plugin_not_registered",),
    ),
    Fault("runtime stopped", "systemctl stop containerd", "systemctl start containerd", ("runtime_stopped",), host=_B),
    Fault(
        "CDI off",
        "cp /etc/containerd/config.toml /run/npu-lab/; sed -i 's/enable_cdi *= *true/enable_cdi = false/' "
        "/etc/containerd/config.toml; systemctl restart containerd",
        "cp /run/npu-lab/config.toml /etc/containerd/config.toml; systemctl restart containerd",
        ("cdi_off",),
        host=_B,
    ),
    Fault(
        "CDI turned off by a later file",
        "cp /etc/containerd/config.toml /run/npu-lab/; mkdir -p /etc/containerd/conf.d; "
        "sed 's/enable_cdi *= *true/enable_cdi = false/; /^imports/d' /etc/containerd/config.toml "
        ">/etc/containerd/conf.d/99-site.toml; grep -q ^imports /etc/containerd/config.toml || "
        "sed -i '1i imports = [\"/etc/containerd/conf.d/*.toml\"]' /etc/containerd/config.toml; "
        "systemctl restart containerd",
        "rm /etc/containerd/conf.d/99-site.toml; cp /run/npu-lab/config.toml /etc/containerd/config.toml; "
        "systemctl restart containerd",
        ("cdi_overridden",),
        host=_B,
    ),
    Fault(
        "runtime not restarted",
        "sleep 1; touch /etc/containerd/config.toml",
        "systemctl restart containerd",
        ("runtime_not_restarted",),
        host=_B,
    ),
    Fault(
        "proxy",
        "mkdir -p /run/systemd/system/containerd.service.d; printf '[Service]\\nEnvironment=HTTPS_PROXY=http://"
        "127.0.0.1:9\\n' >/run/systemd/system/containerd.service.d/npu.conf; systemctl daemon-reload; "
        "systemctl restart containerd",
        "rm -r /run/systemd/system/containerd.service.d; systemctl daemon-reload; systemctl restart containerd",
        ("proxy_fails",),
    ),
)
# Hosts of the inventory that stand for one machine that is reached in a wrong way.
NOT_REACHED: dict[str, tuple[Data, str]] = {
    "no-port": (
        {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9},
        "host_unreachable",
    ),
    "no-name": ({"ansible_connection": "ansible.builtin.ssh", "ansible_host": "nowhere.invalid"}, "name_not_known"),
    "no-sudo": ({"ansible_host": _A, "ansible_user": "nobody"}, "become_refused"),
    "no-python": ({"ansible_host": _A, "ansible_python_interpreter": "/nowhere/python3"}, "python_missing"),
}
