# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other program writes a configuration file, and will undo a change there.

A header tells it, the name of a drop-in, the records of configuration management, or a unit that runs before the
runtime. Only files that are about to change are looked at, so an unchanged host pays nothing.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._host.host import Limit
from .base import BLOCK_BEGIN, Context, Owner, Runtime

# (what its texts and names look like, its name, what it makes the file from).
TOOLS: tuple[tuple[t.Pattern[str], str, str], ...] = tuple(
    (re.compile(r"(?i)(?<![a-z])(?:%s)" % pattern), name, source)
    for pattern, name, source in (
        ("puppet|hiera", "Puppet", "the Puppet manifest or its Hiera data"),
        ("chef|cinc(?![a-z])", "Chef", "the Chef cookbook"),
        ("salt(?:stack)?(?![a-z])", "Salt", "the Salt state or its pillar"),
        ("cfengine", "CFEngine", "the CFEngine policy"),
        ("terraform|opentofu", "Terraform", "the Terraform configuration"),
        ("cloud-?init", "cloud-init", "the user data of the instance"),
        ("nodeadm|eksctl|amazon-eks|eks(?![a-z])", "nodeadm", "spec.containerd.config of the NodeConfig"),
        ("nodeup|kops", "kOps", "spec.containerd.configAdditions of the cluster"),
        ("bashible|deckhouse", "Deckhouse", "a NodeGroupConfiguration"),
        ("gardener", "Gardener", "the OperatingSystemConfig of the worker pool"),
        ("machine-?config", "the Machine Config Operator", "a MachineConfig"),
        ("claudie|kubeone", "Claudie or KubeOne", "the cluster's manifest"),
        ("juju", "Juju", "the options of the charm"),
        ("kubekey", "KubeKey", "the KubeKey configuration of the cluster"),
        ("kubespray", "kubespray", "the kubespray inventory"),
        ("nvidia|gpu-operator", "NVIDIA's container toolkit", "cdi.enabled of the GPU operator's ClusterPolicy"),
        ("ansible", "another Ansible playbook", "the playbook or template"),
        ("kata", "kata-deploy", "the values of kata-deploy"),
        ("rocm|amd-?gpu|gaudi|habana|furiosa|tenstorrent", "another vendor's toolkit", "the settings of that toolkit"),
        ("runsc|gvisor|nydus|stargz|spin(?![a-z])|wasm|hami(?![a-z])", "another tool", "the settings of that tool"),
    )
)
_COMMENT = re.compile(r"^[ \t]*(?:#|;|//|\{\{-?[ \t]*/\*)(.*)$", re.MULTILINE)
# Said of any file, whoever is named.
_OWNED = re.compile(
    r"(?i)\b(?:managed|maintained|controlled|generated|owned|rendered)[ _]+(?:automatically[ ]+)?(?:by|from|with|via)\b"
    r"|\bdo[ _]+not[ _]+(?:edit|modify|change|touch|alter)\b|\bdon'?t[ ]+(?:edit|modify|change|touch)\b"
    r"|\bauto(?:matically)?[ -]?(?:generated|created|managed|written|configured)\b|\bmachine[ -]generated\b"
    r"|\b(?:be|are|get|gets)[ ]+(?:overwritten|overridden|lost|reverted|discarded|replaced|undone)\b"
    r"|\bansible[_ ]managed\b|\bmanaged[ ]+(?:block|file)\b"
)
# Said by people too, so a program must be named with it.
_MADE = re.compile(
    r"(?i)\b(?:created|written|deployed|installed|configured|provisioned|templated|made|set[ ]+up)[ ]+"
    r"(?:by|from|with|via)\b"
)
# What programs print as their own defaults is nobody's.
_DEFAULTS = re.compile(r"(?i)\b(?:containerd|crio|cri-o|dockerd?)[ ]+config\b|\bdpkg|\brpm\b|\bdebconf\b")
_OURS = BLOCK_BEGIN.split()[-1]
UNIT_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
# Files in which a program notes the files that it manages.
RECORDS = (
    ("Puppet", "/opt/puppetlabs/puppet/cache/state/resources.txt"),
    ("Puppet", "/var/lib/puppet/state/resources.txt"),
    ("Puppet", "/var/cache/puppet/state/resources.txt"),
    ("cloud-init", "/var/lib/cloud/instance/cloud-config.txt"),
    ("cloud-init", "/var/lib/cloud/instance/user-data.txt"),
)
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
            runtime.owners.append(Owner(path, name, step))
            runtime.warnings.append("%s is written by %s, which may undo the change: %s" % (path, name, step))


def _tool(*texts: str) -> tuple[str, str] | None:
    """(name, what it makes the file from) of the first program that a text names."""
    for text in texts:
        for pattern, name, source in TOOLS:
            if pattern.search(text):
                return name, source
    return None


def _of_text(text: str) -> tuple[str, str] | None:
    lines = [
        line.strip(" \t\r*/}#-")
        for line in _COMMENT.findall(text)
        if not _DEFAULTS.search(line) and _OURS not in line
    ]
    said = [line for line in lines if _OWNED.search(line)]
    if said:
        quoted = 'the program that has written "%s" into it' % said[0][:100]
        return _tool(*said, *lines) or (quoted, "what that program makes the file from")
    return _tool(*(line for line in lines if _MADE.search(line)))


def _of_name(path: str, runtime: Runtime) -> tuple[str, str] | None:
    """A drop-in with the name of another program belongs to that."""
    return None if path == runtime.main_config else _tool(posixpath.basename(path))


def _named(name: str) -> tuple[str, str]:
    return next((tool, source) for _pattern, tool, source in TOOLS if tool == name)


def _of_records(context: Context, path: str) -> tuple[str, str] | None:
    names = re.compile(r"(?<![\w./-])%s(?![\w./-])" % re.escape(path))
    for name, record in RECORDS:
        if names.search(context.host.read_text(record).get("")):
            return _named(name)
    for directory in CHEF_BACKUPS:
        head, tail = posixpath.split(directory + path)
        if any(found.startswith(tail + ".chef-") for found in context.host.listdir(head).get([])):
            return _named("Chef")
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
    acts = re.findall(r"^[ \t]*Exec%s[ \t]*=[ \t]*[-@:+!|]*(.*)$" % ("StartPre" if mine else r"\w+"), text, re.MULTILINE)
    if not any(acts):
        return None
    before = own and re.search(r"^[ \t]*Before[ \t]*=.*(?<![\w.@-])%s(?![\w.-])" % re.escape(own), text, re.MULTILINE)
    once = re.search(r"^[ \t]*Type[ \t]*=[ \t]*oneshot", text, re.MULTILINE)
    programs = [act.split()[0] for act in acts if act.split()]
    writes = any(path in act for act in acts) or (
        (mine or before or once)
        and any(path in context.host.read_text(program, Limit.NOTE).get("") for program in programs if program[0] == "/")
    )
    known = _tool(name, *programs)
    if writes or (before and once and known is not None):
        return known or ("the unit %s" % name, "what that unit makes the file from")
    return None
