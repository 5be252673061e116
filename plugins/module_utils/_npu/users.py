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

from .._base.records import replace
from .._base.vendor import VendorProfile
from .._host.handles import MACHINE, PROCESS, Holder, Number, Processes, unit_of
from .._host.host import DENIED, VALUE, Host, Limit, Probe

CONTEXT = "context"
CONTAINER = "container"
VM = "vm"
# Without a process: a module that needs the driver's, and references that no open handle explains.
MODULE = "module"
KERNEL = "kernel"
WITHOUT_PROCESS = (MODULE, KERNEL)

SHOWN = 8
# The kernel's own memory devices (null, zero, random) are open everywhere: a node with their number tells nothing.
MEMORY_MAJOR = 1
# The kernel counts the owner of a character device and that of its operations for each open file: both may be the
# module.
PER_HANDLE = 2
MISC = "/sys/class/misc"

# The monitors of podman and CRI-O have a scope of their own with the container's id; they see all of the host and are
# no part of the container.
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])(?<!conmon-)([0-9a-f]{64})(?![0-9a-f])")
# kubepods-burstable-pod1234_5678.slice, kubepods/besteffort/pod1234-5678.
_POD = re.compile(r"kubepods.*?[-/](pod[^/.\n]+)")

Names = t.Callable[[str], str]
Numbers = t.Callable[[t.Optional[Number]], str]


def _node_matcher(profile: VendorProfile, host: Host) -> Names:
    """A function from the target of a descriptor to the name of the driver's node below /dev, empty for anything else.

    Nodes of devices, groups and storage have a number. Below /dev any name that begins with the vendor's word, or with
    that of groups and a separator, is a node of the driver too, such as one for control; and so is what the driver has
    opened without a node, by the name that it gave.
    """
    prefixes = "|".join(re.escape(prefix) for prefix in _prefixes(profile))
    words = "|".join(re.escape(word) for word in (profile.device_prefix, profile.module))
    own = re.compile(
        "^(?:/?(?:dev/)?((?:%s)(?:0|[1-9][0-9]*))|/dev/((?:%s)[^ ]*|%s[-_.][^ ]*)|(anon_inode:\\[?(?:%s)[^ ]*))"
        "(?: \\(deleted\\))?$" % (prefixes, words, re.escape(profile.group_prefix), words)
    )
    vfio = _vfio_nodes(profile, host)

    def match(target: str) -> str:
        found = own.match(target)
        if found:
            return str(next(filter(None, found.groups())))
        if "vfio/" in target:
            node = target.partition("vfio/")[2].partition(" ")[0]
            return "vfio/" + node if node in vfio else ""
        return ""

    return match


def _prefixes(profile: VendorProfile) -> tuple[str, ...]:
    return profile.device_prefix, profile.group_prefix, profile.storage_prefix


def _numbers(profile: VendorProfile, host: Host, match: Names) -> Numbers | None:
    """A function from a device number to the node of the driver that has it; None where no number is known.

    The numbers are those of the driver's class, of its nodes in /dev and among the kernel's various devices, and all
    that belong to a driver of its name.
    """
    found: dict[Number, str] = {}
    names = [match("/dev/" + name) for name in host.listdir("/dev").get([])]
    for name in [name for name in names if name] + sorted(_vfio_nodes(profile, host, "vfio/")):
        info = host.stat("/dev/" + name).get()
        if info is not None and info.kind == "char":
            found[(info.major, info.minor)] = name
    misc = [name for name in host.listdir(MISC).get([]) if match("/dev/" + name)]
    for folder, there in ((profile.class_dir, host.listdir(profile.class_dir).get([])), (MISC, misc)):
        for name in there:
            text = host.read_text(posixpath.join(folder, name, "dev"), Limit.ATTRIBUTE).get("")
            number = re.match(r"^([0-9]+):([0-9]+)\s*$", text)
            if number:
                found[(int(number.group(1)), int(number.group(2)))] = name
    majors = _majors(profile, host)
    if not found and not majors:
        return None

    def name_of(number: Number | None) -> str:
        if number is None or number[0] == MEMORY_MAJOR:
            return ""
        return found.get(number) or ("char %d:%d" % number if number[0] in majors else "")

    return name_of


def _majors(profile: VendorProfile, host: Host) -> set[int]:
    """Major numbers of character devices that the kernel lists under a name of the driver."""
    words = re.compile("^(?:%s)(?:$|[^a-z])" % "|".join(map(re.escape, (*_prefixes(profile), profile.module))))
    text = host.read_text("/proc/devices", Limit.PROC).get("").partition("Block devices:")[0]
    rows = re.findall(r"^\s*([0-9]+) (\S+)$", text, re.MULTILINE)
    return {int(number) for number, name in rows if words.match(name)}


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


def _mapped(text: str, match: Names) -> list[str]:
    """The node of each mapping in the text of /proc/PID/maps: the path is what follows the inode, and may hold spaces.

    Mappings of other files are left out.
    """
    paths = [line.split(None, 5)[5:] for line in text.splitlines()]
    found = [match(path[0]) for path in paths if path and path[0].startswith("/")]
    return [node for node in found if node]


def references(profile: VendorProfile, host: Host) -> tuple[int | None, list[str]]:
    """How often the loaded module is in use, None when the kernel does not tell, and the modules that need it."""
    base = "/sys/module/" + profile.module
    count = host.read_text(base + "/refcnt", Limit.ATTRIBUTE).get("").strip()
    needed_by = host.listdir(base + "/holders").get([])
    if not count:
        row = re.search(
            r"^%s [0-9]+ (\S+) (\S+)" % re.escape(profile.module),
            host.read_text("/proc/modules", Limit.PROC).get(""),
            re.MULTILINE,
        )
        count = row.group(1) if row else ""
        needed_by = needed_by or ([name for name in row.group(2).split(",") if name not in ("", "-")] if row else [])
    return int(count) if count.isdigit() else None, needed_by


def container_of(cgroups: str) -> str:
    """The id of the container in the text of /proc/PID/cgroup, empty when there is none.

    docker, containerd, CRI-O and podman write 64 hexadecimal digits.
    """
    found = _CONTAINER_ID.findall(cgroups)
    return found[-1] if found else ""


def pod_of(cgroups: str) -> str:
    """The UID of the pod in the text of /proc/PID/cgroup, empty when there is none."""
    found = _POD.search(cgroups)
    name = found.group(1) if found else ""
    return name[3:].replace("_", "-") if re.match("pod[0-9a-f]", name) else name


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
    Last come modules that need the driver's, and references to it that none of all this explains.
    The Probe is denied when a process could not be looked at: then the list may be short.
    """
    before, _needed_by = references(profile, host)
    processes = Processes(host)
    if not processes.listed.ok:
        return [], processes.listed
    if processes.pids and 1 not in processes.pids:
        # Mounted with hidepid, /proc shows a user only the own processes.
        return [], Probe(DENIED, None, "/proc does not show the processes of others: run as root (become)")
    match = _node_matcher(profile, host)
    number_of = _numbers(profile, host, match)
    own = set(own_pids)
    outer = container_of(processes.text(1, "cgroup"))
    holders: list[Holder] = []
    left_out = set(own)
    first_of: dict[str, int] = {}
    explained = 0
    words = (*_prefixes(profile), profile.module, "vfio/")
    for pid in processes.pids:
        if pid in own:
            continue
        handles = [_node(processes, pid, row, match, number_of) for row in processes.handles(pid)]
        maps = processes.text(pid, "maps") if before != 0 else ""
        mapped = _mapped(maps, match) if any(word in maps for word in words) else []
        nodes = {*handles, *mapped} - {""}
        # A mapping counts for itself only where its handle is closed.
        explained += sum(bool(node) and not node.startswith("vfio/") for node in handles)
        explained += sum(node not in handles and not node.startswith("vfio/") for node in mapped)
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
            holders.append(_holder(processes, pid, nodes, container, unit, pod_of(cgroups)))
    known = {holder.container for holder in holders}
    for container, pid in first_of.items():
        seen = processes.devices(pid) if container not in known else []
        nodes = {match("/dev/" + name) or (number_of(number) if number_of else "") for name, number in seen} - {""}
        if nodes and not processes.privileged(pid):
            pod = pod_of(processes.text(pid, "cgroup"))
            holders.append(
                Holder(CONTAINER, pid, processes.name(pid), _natural(nodes), container, "", processes.started(pid), pod)
            )
    holders = _with_contexts(profile, processes, holders, contexts, left_out)
    holders += _without_process(profile, host, before, explained)
    if processes.denied:
        return holders, Probe(
            DENIED,
            None,
            "%d of %d processes could not be looked at: run as root (become)" % (processes.denied, len(processes.pids)),
        )
    return holders, Probe(VALUE, len(processes.pids))


def _without_process(profile: VendorProfile, host: Host, before: int | None, explained: int) -> list[Holder]:
    """Modules that need the driver's, and its references beyond what the `explained` handles and mappings can be.

    `before` was counted before the handles: what was opened or closed meanwhile is in one of the two counts only.
    """
    after, needed_by = references(profile, host)
    holders = [Holder(MODULE, None, name) for name in needed_by]
    count = min(before, after) if before is not None and after is not None else 0
    rest = count - PER_HANDLE * explained - len(needed_by)
    return holders + ([Holder(KERNEL, None, "%d references without an open handle" % rest)] if rest > 0 else [])


def _node(processes: Processes, pid: int, row: tuple[str, str], match: Names, number_of: Numbers | None) -> str:
    """The driver's node behind a descriptor: by name, else by number, as one made by hand has any name; else empty."""
    descriptor, target = row
    found = match(target)
    if found or number_of is None or not target.startswith("/"):
        return found
    return number_of(processes.number(pid, descriptor))


def _holder(processes: Processes, pid: int, nodes: set[str], container: str, unit: str, pod: str) -> Holder:
    kind = (
        CONTAINER
        if container or pod
        else VM
        if any(node.startswith("vfio/") for node in nodes) or MACHINE.search("/" + unit)
        else PROCESS
    )
    unit = "" if container else unit
    return Holder(kind, pid, processes.name(pid), _natural(nodes), container, unit, processes.started(pid), pod)


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
    """One line for people: programs, process ids, nodes, containers, pods and units, never arguments."""
    parts = [_described(holder) for holder in holders[:SHOWN]]
    if len(holders) > SHOWN:
        parts.append("and %d more" % (len(holders) - SHOWN))
    return "; ".join(parts)


def _described(holder: Holder) -> str:
    if holder.kind in WITHOUT_PROCESS:
        return ("the kernel module %s" if holder.kind == MODULE else "%s") % holder.name
    details = ["pid %d" % holder.pid] if holder.pid is not None else []
    if holder.kind != PROCESS and (holder.container or not holder.pod):
        details.append("%s%s" % (holder.kind, " " + holder.container[:12] if holder.container else ""))
    if holder.pod:
        details.append("pod " + holder.pod if not holder.pod.startswith("pod") else holder.pod)
    if holder.unit:
        details.append(holder.unit)
    told = " (%s)" % ", ".join(details) if details else ""
    return "%s%s%s" % (holder.name, told, " on " + ", ".join(holder.nodes) if holder.nodes else "")
