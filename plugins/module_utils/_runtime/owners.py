# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other program writes a configuration file, and will undo a change there.

A header tells it, the name of a drop-in, the records of configuration management, or a unit that runs before the
runtime. Only files that are about to change are looked at, so an unchanged host pays nothing.
"""

from __future__ import annotations

import functools
import posixpath
import re
import typing as t

from .._base.regex import regex
from .._host.host import Limit
from .base import BLOCK_BEGIN, Context, Owner, Runtime

# How a program shows that it owns a file: CONFIG, by its records; NODE, a unit of its name; VENDOR, a drop-in of its
# name. All of them are named by comments that say so.
CONFIG, NODE, VENDOR = "config", "node", "vendor"
KUBESPRAY = "kubespray"
# Who has the switch, and writes the whole file at each run: an edit lasts until then, with a restart each time.
REFUSED = (KUBESPRAY,)


class Tool(t.NamedTuple):
    """What its texts and names look like (compiled at first use), its kind, its name, what it makes the file from."""

    pattern: str
    kind: str
    name: str
    source: str


def _tool_row(pattern: str, kind: str, name: str, source: str) -> Tool:
    return Tool(r"(?i)(?<![a-z])(?:%s)" % pattern, kind, name, source)


TOOLS = (
    _tool_row("puppet|hiera(?![a-z])|openvox", CONFIG, "Puppet", "the Puppet manifest or its Hiera data"),
    _tool_row("chef(?![a-z])|cinc(?![a-z])", CONFIG, "Chef", "the Chef cookbook"),
    _tool_row("salt(?:stack)?(?![a-z])", CONFIG, "Salt", "the Salt state or its pillar"),
    _tool_row("cfengine", CONFIG, "CFEngine", "the CFEngine policy"),
    _tool_row("rudder(?![a-z])", CONFIG, "Rudder", "the Rudder directive"),
    _tool_row("terraform|opentofu", CONFIG, "Terraform", "the Terraform configuration"),
    _tool_row("kubespray|container-engine/containerd", CONFIG, KUBESPRAY, "the kubespray inventory (enable_cdi: true)"),
    _tool_row("ansible|awx(?![a-z])", CONFIG, "another Ansible playbook", "the playbook or template"),
    _tool_row("cloud-?init", CONFIG, "cloud-init", "the user data of the instance"),
    _tool_row("juju(?![a-z])", CONFIG, "Juju", "the options of the charm"),
    _tool_row("nodeadm|eksctl", NODE, "nodeadm", "spec.containerd.config of the NodeConfig"),
    _tool_row("nodeup|kops(?![a-z])", NODE, "kOps", "spec.containerd.configAdditions of the cluster"),
    _tool_row("bashible|deckhouse", NODE, "Deckhouse", "a NodeGroupConfiguration"),
    _tool_row("gardener", NODE, "Gardener", "the OperatingSystemConfig of the worker pool"),
    _tool_row("machine-?config", NODE, "the Machine Config Operator", "a MachineConfig"),
    _tool_row("claudie|kubeone", VENDOR, "Claudie or KubeOne", "the cluster's manifest"),
    _tool_row("kubekey|kubeclipper|sealos", VENDOR, "the cluster's installer", "its configuration of the cluster"),
    _tool_row(
        "nvidia|gpu-operator",
        VENDOR,
        "NVIDIA's container toolkit",
        "cdi.enabled of the GPU operator's ClusterPolicy",
    ),
    _tool_row("kata(?![a-z])", VENDOR, "kata-deploy", "the values of kata-deploy"),
    _tool_row(
        "rocm|amd-?gpu|gaudi|habana|furiosa|tenstorrent|intel(?![a-z])",
        VENDOR,
        "another vendor's toolkit",
        "the settings of that toolkit",
    ),
    _tool_row(
        "runsc|gvisor|nydus|stargz|spin(?![a-z])|k?wasm|hami(?![a-z])|spegel|dragonfly",
        VENDOR,
        "another tool",
        "the settings of that tool",
    ),
)
_COMMENT = regex(r"^[ \t]*(?:#|;|//|\{\{-?[ \t]*/\*)(.*)$", re.MULTILINE)
# Said of any file, whoever is named.
_OWNED = regex(
    r"(?i)\b(?:managed|maintained|controlled|generated|owned|rendered)[ _]+(?:automatically[ ]+)?(?:by|from|with|via)\b"
    r"|\bdo[ _]+not[ _]+(?:edit|modify|change|touch|alter)\b|\bdon'?t[ ]+(?:edit|modify|change|touch)\b"
    r"|\bauto(?:matically)?[ -]?(?:generated|created|managed|written|configured)\b|\bmachine[ -]generated\b"
    r"|\b(?:be|are|get|gets)[ ]+(?:overwritten|overridden|lost|reverted|discarded|replaced|undone)\b"
    r"|\bansible[_ ]managed\b|\bmanaged[ ]+(?:block|file)\b|\bunder[ ]+(?:the[ ]+)?(?:control|management)[ ]+of\b"
    r"|\b(?:not|never|n't)[ ]+(?:survive|persist)\b|\bconfiguration[ ]+management\b|\bedit\b.*\binstead\b"
)
# Said by people too, so a program must be named with it. A name alone, as in where a setting was read, says nothing.
_MADE = regex(
    r"(?i)\b(?:created|written|deployed|installed|configured|provisioned|templated|made|set[ ]+up)[ ]+"
    r"(?:by|from|with|via)\b|\bverwaltet|\bg[ée]r[ée]e?[ ]+par\b|\bgestionado[ ]+por\b|관리|생성|管理|生成"
    r"|\b(?:template|role|playbook|recipe|cookbook|manifest|module|class|state|profile)[ ]*[:=]"
    r"|(?:^|[ ])(?:puppet|salt)://|^(?:puppet|chef|salt|ansible|kubespray)[ ]*:"
)
# What the template of kubespray has without a comment; a dump of containerd's own defaults has the first key too.
_KUBESPRAY = regex(
    r"base_runtime_spec\s*=\s*[\"']/etc/containerd/cri-base\.json[\"']|^\s*max_container_log_line_size\s*=",
    re.MULTILINE,
)
_DUMP = regex(r"^\s*(?:disable_tcp_service|netns_mounts_under_state_dir)\s*=", re.MULTILINE)
# What programs print as their own defaults is nobody's.
_DEFAULTS = regex(r"(?i)\b(?:containerd|crio|cri-o|dockerd?)[ ]+config\b|\bdpkg|\brpm\b|\bdebconf\b")
_OURS = BLOCK_BEGIN.split()[-1]
UNIT_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
# Files that name what a program writes: its own records, and the scripts of images of clouds.
RECORDS = (
    ("Puppet", "the Puppet manifest or its Hiera data", "/opt/puppetlabs/puppet/cache/state/resources.txt"),
    ("Puppet", "the Puppet manifest or its Hiera data", "/var/lib/puppet/state/resources.txt"),
    ("Puppet", "the Puppet manifest or its Hiera data", "/var/cache/puppet/state/resources.txt"),
    ("cloud-init", "the user data of the instance", "/var/lib/cloud/instance/cloud-config.txt"),
    ("cloud-init", "the user data of the instance", "/var/lib/cloud/instance/user-data.txt"),
    ("the bootstrap script of EKS", "the configuration that it is given", "/etc/eks/bootstrap.sh"),
    ("the bootstrap script of GKE", "the system configuration of the node pool", "/home/kubernetes/bin/configure.sh"),
    ("the bootstrap script of AKS", "the configuration of the node pool", "/opt/azure/containers/provision.sh"),
)
CRON_DIRS = ("/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily")
# Chef keeps what it has replaced below here, under the path of the file.
CHEF_BACKUPS = ("/var/chef/backup", "/var/lib/chef/backup", "/etc/chef/local-mode-cache/backup")


def note_owners(context: Context, runtime: Runtime) -> None:
    """Fill `owners` for the files of `changes` that another program writes."""
    for path in dict.fromkeys(change.path for change in runtime.changes):
        ours = posixpath.basename(path).rpartition(".")[0].endswith("-" + context.options.file_stem)
        if ours or path.startswith(context.options.state_dir or "\0"):
            continue
        text = context.host.read_text(path)
        found = _of_text(text.get("")) or _of_name(path, runtime) or _of_records(context, path)
        found = found or _of_units(context, path, runtime)
        if found is not None:
            name, source = found
            step = "make the same change in %s, so that it is still there after the next run of %s" % (source, name)
            runtime.owners.append(Owner(path, name, step, name in REFUSED))
            runtime.warnings.append("%s is written by %s, which may undo the change: %s" % (path, name, step))


def _tool(*texts: str, kinds: t.Sequence[str] = (CONFIG, NODE, VENDOR)) -> tuple[str, str] | None:
    """(name, what it makes the file from) of the first program that a text names."""
    for text in texts:
        for tool in TOOLS:
            if tool.kind in kinds and re.search(tool.pattern, text):
                return tool.name, tool.source
    return None


def _of_text(text: str) -> tuple[str, str] | None:
    found = [line.strip(" \t\r*/}#-") for line in _COMMENT.findall(text)]
    lines = [line for line in found if not _DEFAULTS.search(line) and _OURS not in line]
    said = [line for line in lines if _OWNED.search(line)]
    if said:
        quoted = 'the program that has written "%s" into it' % said[0][:100]
        return _tool(*said, *lines) or (quoted, "what that program makes the file from")
    found_by = _tool(*(line for line in lines if _MADE.search(line)))
    shaped = _KUBESPRAY.search(text) and not _DUMP.search(text)
    return found_by or (_tool(KUBESPRAY) if shaped else None)


def _of_name(path: str, runtime: Runtime) -> tuple[str, str] | None:
    """A drop-in with the name of another program belongs to that."""
    return None if path == runtime.main_config else _tool(posixpath.basename(path))


def _of_records(context: Context, path: str) -> tuple[str, str] | None:
    names = re.compile(r"(?<![\w./-])%s(?![\w./-])" % re.escape(path))
    for name, origin, record in RECORDS:
        if names.search(context.host.read_text(record).get("")):
            return name, origin
    for directory in CHEF_BACKUPS:
        head, tail = posixpath.split(directory + path)
        if any(found.startswith(tail + ".chef-") for found in context.host.listdir(head).get([])):
            return _tool("chef")
    for directory in CRON_DIRS:
        for job in context.host.glob(directory, "*"):
            if names.search(context.host.read_text(job, Limit.NOTE).get("")):
                return "the cron job %s" % job, "what that job makes the file from"
    return None


def _of_units(context: Context, path: str, runtime: Runtime) -> tuple[str, str] | None:
    """A unit that names the file, or that a bootstrap program runs before the runtime."""
    own = runtime.unit or ""
    for directory in UNIT_DIRS:
        drop_ins = context.host.glob("%s/%s.d" % (directory, own), "*.conf") if own else []
        for unit in drop_ins + context.host.glob(directory, "*.service"):
            name = unit[len(directory) + 1 :]
            found = context.host.stat(unit, follow=False)
            if name.startswith(context.options.file_stem + "-") or not (found.ok and found.value.kind == "file"):
                continue
            owner = _of_unit(context, name, context.host.read_text(unit).get(""), path, own)
            if owner is not None:
                return owner
    return None


def _of_unit(context: Context, name: str, text: str, path: str, own: str) -> tuple[str, str] | None:
    mine = bool(own) and name.startswith(own)
    acts = re.findall(r"^[ \t]*Exec%s[ \t]*=(.*)$" % ("StartPre" if mine else r"\w+"), text, re.MULTILINE)
    files = [word for act in acts for word in re.findall(r"(?<![\w.])/[^\s\"';:]+", act)]
    if not files:
        return None
    before = own and re.search(r"^[ \t]*Before[ \t]*=.*(?<![\w.@-])%s(?![\w.-])" % re.escape(own), text, re.MULTILINE)
    once = mine or before or re.search(r"^[ \t]*Type[ \t]*=[ \t]*oneshot", text, re.MULTILINE)
    known = _tool(name, *files, kinds=(NODE,))
    if (known and not mine) or path in files or (once and any(map(functools.partial(_says, context, path), files))):
        return known or ("the unit %s" % name, "what that unit makes the file from")
    return None


def _says(context: Context, path: str, script: str) -> bool:
    return path in context.host.read_text(script, Limit.NOTE).get("")
