# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the NPUs of a host: open handles, mapped memory, contexts of the tool, containers, virtual machines.

A denied look is never read as: no user.
"""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import replace

from .._base.vendor import VendorProfile
from .._host.handles import MACHINE, PROCESS, Holder, Number, Processes, unit_of
from .._host.host import DENIED, VALUE, Host, Limit, Probe

CONTEXT = "context"
CONTAINER = "container"
VM = "vm"

SHOWN = 8
# The kernel's own memory devices (null, zero, random) are open everywhere: a node with their number tells nothing.
MEMORY_MAJOR = 1

# The monitors of podman and CRI-O have a scope of their own with the container's id; they see all of the host and are
# no part of the container.
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])(?<!conmon-)([0-9a-f]{64})(?![0-9a-f])")


def _node_matcher(profile: VendorProfile, host: Host) -> t.Callable[[str], str]:
    """A function from the target of a descriptor to the name of the NPU's node below /dev, empty for anything else."""
    own = re.compile(
        "^/?(?:dev/)?((?:%s)(?:0|[1-9][0-9]*))(?: \\(deleted\\))?$"
        % "|".join(
            re.escape(prefix) for prefix in (profile.device_prefix, profile.group_prefix, profile.storage_prefix)
        )
    )
    vfio = _vfio_nodes(profile, host)

    def match(target: str) -> str:
        found = own.match(target)
        if found:
            return found.group(1)
        if "vfio/" in target:
            node = target.partition("vfio/")[2].partition(" ")[0]
            return "vfio/" + node if node in vfio else ""
        return ""

    return match


def _numbers(profile: VendorProfile, host: Host) -> dict[Number, str]:
    """{device number: name below /dev} of the NPUs' nodes, as the driver's class has them, else as they lie in /dev."""
    found: dict[Number, str] = {}
    names = [name for name in host.listdir("/dev").get([]) for one in _patterns(profile) if one.match(name)]
    for name in [*names, *_vfio_nodes(profile, host, "vfio/")]:
        info = host.stat("/dev/" + name).get()
        if info is not None and info.kind == "char":
            found[(info.major, info.minor)] = name
    for name in host.listdir(profile.class_dir).get([]):
        number = re.match(
            r"^([0-9]+):([0-9]+)\s*$",
            host.read_text(posixpath.join(profile.class_dir, name, "dev"), Limit.ATTRIBUTE).get(""),
        )
        if number and any(one.match(name) for one in _patterns(profile)):
            found[(int(number.group(1)), int(number.group(2)))] = name
    return {number: name for number, name in found.items() if number[0] != MEMORY_MAJOR}


def _patterns(profile: VendorProfile) -> tuple[re.Pattern[str], ...]:
    return profile.device_pattern, profile.group_pattern, profile.storage_pattern


def _vfio_nodes(profile: VendorProfile, host: Host, before: str = "") -> set[str]:
    """Names below /dev/vfio, with `before` in front, that give access to the vendor's functions.

    These are IOMMU groups, and devices/vfioN of newer kernels.
    """
    found = set()
    for path in host.glob("/sys/bus/pci/devices", "*:*"):
        if host.read_text(path + "/vendor", Limit.ATTRIBUTE).get("").strip().lower() != "0x" + profile.pci_vendor:
            continue
        group = posixpath.basename(host.readlink(path + "/iommu_group").get(""))
        if group:
            found.add(before + group)
        found.update(
            before + "devices/" + posixpath.basename(entry) for entry in host.glob(path + "/vfio-dev", "vfio*")
        )
    return found


def _mapped(text: str, match: t.Callable[[str], str]) -> set[str]:
    """Nodes in the text of /proc/PID/maps: the path is what follows the inode, and may hold spaces."""
    found = set()
    for line in text.splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5].startswith("/"):
            found.add(match(parts[5]))
    return found - {""}


def _may_be_mapped(profile: VendorProfile, host: Host) -> bool:
    """False when the module is not loaded or has no users: a mapping counts as one after its descriptor is closed."""
    module = "/sys/module/" + profile.module
    users = host.read_text(module + "/refcnt", Limit.ATTRIBUTE)
    return users.value.strip() != "0" if users.ok else host.exists(module)


def container_of(cgroups: str) -> str:
    """The id of the container in the text of /proc/PID/cgroup, empty when there is none.

    docker, containerd, CRI-O and podman write 64 hexadecimal digits.
    """
    found = _CONTAINER_ID.findall(cgroups)
    return found[-1] if found else ""


def _natural(nodes: t.Iterable[str]) -> tuple[str, ...]:
    return tuple(
        sorted(
            set(nodes), key=lambda node: (re.sub(r"[0-9]+", "", node), int("0" + "".join(re.findall(r"[0-9]+$", node))))
        )
    )


def find_holders(
    profile: VendorProfile, host: Host, contexts: t.Sequence[t.Mapping[str, t.Any]] = (), own_pids: t.Sequence[int] = ()
) -> tuple[list[Holder], Probe]:
    """Holders, those with open handles first, and the Probe of the look, whose value is the number of processes seen.

    `contexts` are those of the tool (facts["smi"]["contexts"]); `own_pids` and the vendor's own daemons are left out.
    The Probe is denied when a process could not be looked at: then the list may be short.
    """
    processes = Processes(host)
    if not processes.listed.ok:
        return [], processes.listed
    match, numbers = _node_matcher(profile, host), _numbers(profile, host)
    own = set(own_pids)
    outer = container_of(processes.text(1, "cgroup"))
    holders: list[Holder] = []
    left_out = set(own)
    first_of: dict[str, int] = {}
    mapped = _may_be_mapped(profile, host)
    words = (profile.device_prefix, profile.group_prefix, profile.storage_prefix, "vfio/")
    for pid in processes.pids:
        if pid in own:
            continue
        nodes = {_node(processes, pid, row, match, numbers) for row in processes.handles(pid)} - {""}
        maps = processes.text(pid, "maps") if mapped else ""
        if any(word in maps for word in words):
            nodes |= _mapped(maps, match)
        cgroups = processes.text(pid, "cgroup")
        container = container_of(cgroups)
        container = "" if container == outer else container
        unit = unit_of(cgroups)
        if unit in profile.daemon_units and not container:
            left_out.add(pid)
            continue
        if container:
            first_of.setdefault(container, pid)
        if nodes:
            holders.append(_holder(processes, pid, nodes, container, unit))
    known = {holder.container for holder in holders}
    for container, pid in first_of.items():
        seen = processes.devices(pid) if container not in known else []
        nodes = {match(name) or (numbers.get(number, "") if number else "") for name, number in seen} - {""}
        if nodes and not processes.privileged(pid):
            holders.append(
                Holder(CONTAINER, pid, processes.name(pid), _natural(nodes), container, "", processes.started(pid))
            )
    holders = _with_contexts(profile, processes, holders, contexts, left_out)
    if processes.denied:
        return holders, Probe(
            DENIED,
            None,
            "%d of %d processes could not be looked at: run as root (become)" % (processes.denied, len(processes.pids)),
        )
    return holders, Probe(VALUE, len(processes.pids))


def _node(
    processes: Processes, pid: int, row: tuple[str, str], match: t.Callable[[str], str], numbers: t.Mapping[Number, str]
) -> str:
    """The NPU's node behind a descriptor: by name, else by number, as a node made by hand has any name. Else empty."""
    descriptor, target = row
    found = match(target)
    if found or not numbers or not target.startswith("/"):
        return found
    number = processes.number(pid, descriptor)
    return numbers.get(number, "") if number else ""


def _holder(processes: Processes, pid: int, nodes: set[str], container: str, unit: str) -> Holder:
    kind = (
        CONTAINER
        if container
        else VM
        if any(node.startswith("vfio/") for node in nodes) or MACHINE.search("/" + unit)
        else PROCESS
    )
    return Holder(
        kind, pid, processes.name(pid), _natural(nodes), container, "" if container else unit, processes.started(pid)
    )


def _with_contexts(
    profile: VendorProfile,
    processes: Processes,
    holders: t.Sequence[Holder],
    contexts: t.Sequence[t.Mapping[str, t.Any]],
    left_out: set[int],
) -> list[Holder]:
    """The holders with what the tool knows: a context of a known process adds its node, another one is a new holder."""
    found = list(holders)
    for context in contexts:
        pid = context.get("pid")
        if pid is not None and pid in left_out:
            continue
        device = str(context.get("device") or "")
        node = profile.device_prefix + device if device.isdigit() else device
        nodes = (node,) if node else ()
        name = posixpath.basename((str(context.get("process") or "").split() or ["?"])[0])
        at = next((index for index, holder in enumerate(found) if pid is not None and holder.pid == pid), None)
        if at is None:
            found.append(Holder(CONTEXT, pid, name, nodes, started=processes.started(pid) if pid is not None else None))
        else:
            found[at] = replace(found[at], nodes=_natural(found[at].nodes + nodes))
    return found


def describe_holders(holders: t.Sequence[Holder]) -> str:
    """One line for people: programs, process ids, nodes, containers and units, never arguments."""
    parts = []
    for holder in holders[:SHOWN]:
        details = ["pid %d" % holder.pid] if holder.pid is not None else []
        if holder.kind != PROCESS:
            details.append("%s%s" % (holder.kind, " " + holder.container[:12] if holder.container else ""))
        if holder.unit:
            details.append(holder.unit)
        parts.append(
            "%s%s%s"
            % (
                holder.name,
                " (%s)" % ", ".join(details) if details else "",
                " on " + ", ".join(holder.nodes) if holder.nodes else "",
            )
        )
    if len(holders) > SHOWN:
        parts.append("and %d more" % (len(holders) - SHOWN))
    return "; ".join(parts)
