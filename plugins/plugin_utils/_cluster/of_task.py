# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task of Ansible says about its cluster: environment, kubeconfig, and the inputs of other hosts."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ansible.errors import AnsibleError
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._inputs.alike import written
from .._inputs.cluster import kubeconfig_text, plain
from .._inputs.names import known, set_names
from .._objects.inputs import Inputs
from .._objects.names import INPUT, OPERANDS
from .api import Cluster
from .login import is_content


class OfTask:
    """A part of an action plugin."""

    _task: t.Any
    _loader: t.Any
    _compute_environment_string: t.Any
    _beside: t.Any
    _tell: t.Any

    @contextlib.contextmanager
    def _environment(self) -> t.Iterator[None]:
        """The environment of this process with that of the task over it, as a module on the controller would have it.

        Credential plugins and the search for a proxy see it too.
        """
        given: dict[str, t.Any] = {}
        if getattr(self._task, "environment", None):
            self._compute_environment_string(given)
        before = dict(os.environ)
        os.environ.update({str(name): str(value) for name, value in given.items()})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _variables(self, task_vars: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
        """The variables of each host of the play, not templated; those of the play itself are in `task_vars` alone."""
        hostvars = task_vars["hostvars"]
        raw = {host: hostvars.raw_get(host) for host in task_vars["ansible_play_batch"]}
        mine = raw.get(task_vars["inventory_hostname"]) or {}
        # Of what is no input, names that tasks do not make are judged too.
        names = known().inputs | (set_names(task_vars) - known().made - set(mine))
        given = {name: task_vars[name] for name in names if name in task_vars}
        below = {name: given.pop(name) for name in set(given).difference(mine)}
        above = {name: value for name, value in given.items() if written(mine.get(name)) != written(value)}
        shared = {"hostvars": hostvars, "ansible_search_path": task_vars.get("ansible_search_path") or []}
        return {host: {**below, **variables, **above, **shared} for host, variables in raw.items()}

    def _kubeconfig(self, inputs: Inputs) -> str:
        """The input; a relative path is looked for where Ansible looks for files."""
        given = inputs["kubeconfig"]
        return given if is_content(given) else os.pathsep.join(map(self._found, given.split(os.pathsep)))

    def _open(self, inputs: Inputs, timeout: float = 30.0) -> Cluster:
        """The cluster of these inputs. It says on the screen of the run what it waits for."""
        cluster = Cluster(self._kubeconfig(inputs), inputs["context"], timeout, self._decrypted)
        cluster.tell = self._tell
        return cluster

    def _found(self, path: str) -> str:
        whole = os.path.expanduser(path)
        if not path or os.path.isabs(whole) or os.path.exists(whole):
            return path
        return str(self._beside(whole))

    def _decrypted(self, path: str) -> str:
        """The text of a file that Ansible Vault has encrypted."""
        try:
            real = self._loader.get_real_file(path)
        except AnsibleError:
            raise NpuError(
                "The kubeconfig %s cannot be decrypted." % path, "Give the password of Ansible Vault that it needs."
            ) from None
        try:
            return Path(real).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise NpuError("The kubeconfig %s is not text." % path, "Give the path of a kubeconfig.") from None
        finally:
            self._loader.cleanup_tmp_file(real)


class Said:
    """Variables of another host as text; empty for one that is not set, is a fact, or cannot be templated."""

    def __init__(self, hostvars: t.Any, host: str) -> None:
        self._hostvars, self._host = hostvars, host
        self._raw = hostvars.raw_get(host)

    def __call__(self, name: str) -> str:
        value = self._value(name)
        return str(value) if value else ""

    def kubeconfig(self) -> str:
        """As this host's input is read."""
        try:
            return kubeconfig_text(plain(self._value(OPERANDS + "kubeconfig") or self._value(INPUT + "kubeconfig")))
        except NpuError:
            return ""

    def _value(self, name: str) -> t.Any:
        value = self._raw.get(name)
        if not value or name in (self._raw.get("ansible_facts") or {}):
            return None
        if isinstance(value, str) and "{" not in value:
            return value
        try:
            return self._hostvars[self._host][name]
        except AnsibleError:
            return None


def said_of_others(hostvars: t.Any, hosts: t.Iterable[str], inputs: Inputs) -> list[dict[str, str]]:
    """What the inventory says of those of these hosts whose kubeconfig and context are `inputs`' own; no fact is asked.

    Each has the keys host, node_name and address.
    """
    found = []
    for host in hosts:
        said = Said(hostvars, host)
        kubeconfig = said.kubeconfig()
        context = said(OPERANDS + "context") or said(INPUT + "kube_context")
        if (kubeconfig, context) == (inputs["kubeconfig"], inputs["context"]):
            node_name = said(OPERANDS + "node_name") or said(INPUT + "node_name")
            found.append({"host": host, "node_name": node_name, "address": said("ansible_host")})
    return found


def registered(task_vars: t.Mapping[str, t.Any], name: str) -> dict[str, t.Any]:
    """{host: its record} of the hosts of the play that have one; a fact of this name is no record."""
    found = {}
    for host in task_vars["ansible_play_batch"]:
        record = registered_of(task_vars["hostvars"].raw_get(host), name)
        if record.get("member"):
            found[host] = {**record["member"], "host": host}
    return found


def registered_of(variables: t.Mapping[str, t.Any], name: str) -> dict[str, t.Any]:
    """What a task of ours registered, from the variables of its host; empty for nothing, and for a fact of this name.

    It is not templated: it holds text of hosts, and for each host of a play the records of all of them.
    """
    return dict(variables.get(name) or {}) if name not in (variables.get("ansible_facts") or {}) else {}


def outcome_of(host: str, task_vars: t.Mapping[str, t.Any], names: tuple[str, str, str]) -> dict[str, t.Any]:
    """What the judge of a host is told, from what the tasks registered under these names.

    They are of the host's member, of the choice who acts, and of the work of who acts. NpuError without a record.
    """
    member, clusters = (registered_of(task_vars, name) for name in names[:2])
    if not member.get("member") or "actors" not in clusters:
        raise NpuError("%s has no record in this run." % host, "Run all tasks of the role that acts for the cluster.")
    actor = clusters["actors"].get(host, "")
    theirs = task_vars if actor == host else task_vars["hostvars"].raw_get(actor) if actor else {}
    applied = registered_of(theirs, names[2])
    return {
        "cluster": member["member"]["cluster"],
        "actor": actor,
        "error": clusters["errors"].get(host, ""),
        "round": clusters["round"],
        "applied": {**applied, **({"failed": True} if applied.get("ok") is False else {})},
    }
