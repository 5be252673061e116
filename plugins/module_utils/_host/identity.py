# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identity of the host: machine id, system UUID, node name of the kubelet, virtualization."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import typing as t

from .._formats import yaml_read
from .host import ABSENT, FAILED, VALUE, Host, Limit, Probe
from .systemd import Unit, unit_from_files

KUBELET_UNITS = tuple(
    name + ".service"
    for name in ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0sworker", "k0scontroller")
)
CGROUP_DIRS = (
    "/sys/fs/cgroup/system.slice",
    "/sys/fs/cgroup/systemd/system.slice",
    "/sys/fs/cgroup/unified/system.slice",
)
ARGUMENT_FILES = (
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/var/snap/microk8s/current/args/kubelet",
)
RANCHER_CONFIGS = ("/etc/rancher/k3s/config.yaml", "/etc/rancher/rke2/config.yaml")
NAME_VARIABLES = ("K3S_NODE_NAME", "RKE2_NODE_NAME")
NAME_FLAGS = ("hostname-override", "node-name")
CONTAINER_MARKERS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
# The kernel gives its first namespace of processes this number on every machine.
FIRST_PIDS = "pid:[4026531836]"
HYPERVISORS = (
    ("kvm", ("kvm", "qemu", "openstack", "amazon ec2", "google compute engine", "proxmox", "red hat")),
    ("vmware", ("vmware",)),
    ("hyperv", ("microsoft corporation virtual machine",)),
    ("xen", ("xen",)),
    ("oracle", ("innotek", "virtualbox")),
    ("parallels", ("parallels",)),
)


def parse_machine_id(text: str) -> str:
    """The 32 hex digits; ValueError when the file holds none (`uninitialized`, empty: first boot of an image)."""
    cleaned = text.strip().lower()
    if not re.match(r"^[0-9a-f]{32}$", cleaned):
        raise ValueError("the machine id is not set")
    return cleaned


def parse_system_uuid(text: str) -> str:
    """Lower-case UUID; ValueError for placeholder values of firmware (all 0, all f, 03000200-0400-...)."""
    cleaned = text.strip().lower()
    if not re.match(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", cleaned):
        raise ValueError("product_uuid is not a UUID")
    if len(set(cleaned.replace("-", ""))) == 1 or cleaned == "03000200-0400-0500-0006-000700080009":
        raise ValueError("the firmware's system UUID is a filler")
    return cleaned


def name_flag(words: t.Sequence[str]) -> str | None:
    """Value of the last --hostname-override or --node-name among arguments."""
    found = None
    for at, word in enumerate(words):
        for flag in NAME_FLAGS:
            if word.startswith("--%s=" % flag):
                found = word.split("=", 1)[1]
            elif word == "--" + flag and at + 1 < len(words):
                found = words[at + 1]
    return found.strip("\"'") if found is not None else None


def words_of(text: str) -> list[str]:
    """Words of unit and environment files without comments, line continuations and quotes."""
    joined = re.sub(r"\\\n", " ", text)
    words: list[str] = []
    for line in joined.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        try:
            parts = shlex.split(line)
        except ValueError:
            parts = line.split()
        for part in parts:
            words.extend(re.sub(r"^[A-Za-z_]+=(?=-)", "", part).split())
    return words


def _main_words(host: Host, unit: str) -> list[str]:
    for base in CGROUP_DIRS:
        for pid in host.read_text(posixpath.join(base, unit, "cgroup.procs"), Limit.PROC).get("").split():
            line = str(host.read_text("/proc/%s/cmdline" % pid, Limit.PROC).get(""))
            if line:
                words = line.split("\0")
                if posixpath.basename(words[0].split(" ")[0]) in ("kubelet", "k3s", "rke2", "k0s"):
                    return words
    return []


def _said_in(host: Host, unit: Unit) -> str:
    """The last file of a unit that contains the value, else its fragment."""
    for path in tuple(reversed(unit.files)) + ARGUMENT_FILES:
        if name_flag(words_of(host.read_text(path).get(""))) is not None:
            return path
    return unit.fragment


def _rancher(host: Host, path: str) -> tuple[str | None, str]:
    """Last node name in a k3s or rke2 configuration and its drop-ins, and its file; empty when not set."""
    name: str | None = None
    source = ""
    for file in [path] + host.glob(path + ".d", "*.yaml"):
        text = host.read_text(file).get("")
        try:
            data = yaml_read.load(text)
        except ValueError:
            match = re.search(r"^[\"']?node-name[\"']?\s*:\s*[\"']?([^\s\"'#]+)", text, re.M)
            data = {"node-name": match.group(1)} if match else {}
        data = data if isinstance(data, dict) else {}
        given = data.get("kubelet-arg")
        argument = name_flag(
            ["--" + str(item).lstrip("-") for item in (given if isinstance(given, list) else [given]) if item]
        )
        if argument or data.get("node-name") is not None:
            name, source = argument or str(data["node-name"]), file
        if data.get("with-node-id") is True:
            # A random suffix, created at the first start.
            return None, file
    return name, source


def read_node_name(host: Host, hostname: str | None) -> tuple[str | None, str]:
    """Name that the kubelet registers, and where it was found.

    The running process, then units with their drop-ins and environment, then argument files, then the k3s and rke2
    configuration, then the host name. The kubelet lower-cases it. A value that cannot be expanded gives None: an answer
    is not guessed.
    """
    for name in KUBELET_UNITS:
        words = _main_words(host, name)
        flag = name_flag(words)
        if flag:
            return flag.lower(), "process of " + name
        if words and posixpath.basename(words[0]) == "kubelet":
            return (hostname.lower(), "hostname") if hostname else (None, "unknown")
    for name in KUBELET_UNITS:
        unit = unit_from_files(host, name)
        flag = name_flag(unit.argv)
        if flag is not None:
            return _expand(flag, unit.environment, hostname), _said_in(host, unit)
        for key in NAME_VARIABLES:
            if unit.environment.get(key):
                return unit.environment[key].lower(), unit.fragment
    for path in ARGUMENT_FILES:
        flag = name_flag(words_of(host.read_text(path).get("")))
        if flag:
            return _expand(flag, {}, hostname), path
    for path in RANCHER_CONFIGS:
        flag, source = _rancher(host, path)
        if source:
            return (flag.lower() if flag else None), source
    return (hostname.lower(), "hostname") if hostname else (None, "unknown")


def _expand(value: str, environment: t.Mapping[str, str], hostname: str | None) -> str | None:
    def replace(match: re.Match[str]) -> str:
        return environment.get(match.group(1), match.group(0))

    text = re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", replace, value)
    text = re.sub(r"\$\(hostname\)|%H", lambda match: hostname or match.group(0), text)
    text = re.sub(r"%l", lambda match: (hostname or "%l").split(".")[0], text)
    return text.lower() if text and not re.search(r"^-|[$%()\s]", text) else None


def read_hostname(host: Host) -> str | None:
    """The host name of the kernel, else of /etc/hostname."""
    for path in ("/proc/sys/kernel/hostname", "/etc/hostname"):
        lines = [line.strip() for line in str(host.read_text(path, Limit.ATTRIBUTE).get("")).splitlines()]
        for line in lines:
            if line and line != "(none)" and not line.startswith("#"):
                return line
    return None


def read_identity(host: Host, hostname: str | None) -> tuple[dict[str, t.Any], dict[str, Probe]]:
    """The `identity` part of the facts and its probes. A system UUID that only root may read is denied, not absent."""
    machine = host.read_text("/etc/machine-id", Limit.ATTRIBUTE).map(parse_machine_id)
    if not machine.ok:
        other = host.read_text("/var/lib/dbus/machine-id", Limit.ATTRIBUTE).map(parse_machine_id)
        machine = other if other.ok else machine
    uuid = host.read_text("/sys/class/dmi/id/product_uuid", Limit.ATTRIBUTE).map(parse_system_uuid)
    if uuid.state == ABSENT:
        tree = host.read_text("/proc/device-tree/vm,uuid", Limit.ATTRIBUTE).map(
            lambda text: parse_system_uuid(text.strip("\0"))
        )
        uuid = tree if tree.ok else uuid
    name, source = read_node_name(host, hostname)
    return {
        "machine_id": machine.get(),
        "system_uuid": uuid.get(),
        "node_name": name,
        "node_name_source": source,
    }, {"machine_id": machine, "system_uuid": uuid}


def _is_machine(host: Host) -> bool:
    """True where process 1 is the machine's own and has our root."""
    if host.readlink("/proc/1/ns/pid").get("") != FIRST_PIDS:
        return False
    try:
        return os.path.samefile(host.real("/proc/1/root"), host.real("/"))
    except OSError:
        return False


def read_container(host: Host) -> bool:
    """True inside a container: its engine's marker files, init's environment or control group.

    A marker on the disk of a machine is left from the image that the disk was made of.
    """
    if any(host.exists(path) for path in CONTAINER_MARKERS) and not _is_machine(host):
        return True
    if "container=" in host.read_text("/proc/1/environ", Limit.PROC).get("").replace("\0", "\n"):
        return True
    groups = host.read_text("/proc/1/cgroup", Limit.PROC).get("")
    return bool(re.search(r"/(docker|libpod|kubepods|lxc|containerd|crio)[-./]", groups))


def read_virtualization(host: Host) -> tuple[str, Probe]:
    """none, kvm, vmware, hyperv, xen, oracle, parallels, other or unknown, also when asked in a container."""
    names = [
        host.read_text("/sys/class/dmi/id/" + name, Limit.ATTRIBUTE)
        for name in ("sys_vendor", "product_name", "bios_vendor")
    ]
    text = " ".join(probe.get("").strip().lower() for probe in names)
    for name, marks in HYPERVISORS:
        if any(mark in text for mark in marks):
            return name, Probe(VALUE)
    kind = host.read_text("/sys/hypervisor/type", Limit.ATTRIBUTE)
    if kind.ok:
        return kind.value.strip() or "other", kind
    cpu = host.read_head("/proc/cpuinfo", 65536).map(lambda data: data.decode("ascii", "replace"))
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpu.get(""), re.M):
        return "other", cpu
    if text.strip() and cpu.ok:
        return "none", cpu
    return "unknown", cpu if cpu.state == FAILED else names[0]
