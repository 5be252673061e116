# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_support: what hosts send goes to disk at once, and only a summary is left of it.

Nothing of a host fails its task: a host that is lost, or answers wrongly, is a line of the manifest.
"""

from __future__ import annotations

import os
import time
import typing as t

from ansible import constants
from ansible import release as core
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask, secrets_in
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.probe import ABSENT, VALUE
from ansible_collections.rebellions.npu.plugins.module_utils._support.collect import Limits
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.login import read_login
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.logs import TextCluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import OfTask
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import cluster as of_cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.alike import alike
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.names import known
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import normalise
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    observe_options,
    raw_inputs,
    read_inputs,
    role_defaults,
    role_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import INPUT, OPERANDS, role
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.archive import Bundle, place
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.cluster import collect_cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.parts import (
    CLUSTER,
    COLLECTED,
    FAILED,
    HOST,
    LEAST_SHARE,
    MODULE,
    PLANNED,
    UNREACHABLE,
    Part,
    Store,
    cluster_share,
    require,
    searched,
    share,
    unpacked,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._support_bundle.told import lines

Result = dict[str, t.Any]
ROLE = role(MODULE)
NAME = "rebellions.npu." + ROLE
LEAST = {
    "lines": 1,
    "bytes": 1024 * 1024,
    "host_bytes": LEAST_SHARE,
    "source_bytes": 4096,
    "timeout": 1,
    "host_timeout": 5,
}
# Inputs that differ from host to host and say nothing about its cluster.
OF_A_HOST = frozenset({INPUT + "node_name", OPERANDS + "node_name"})
# Ansible's own variables with passwords.
LOGINS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
)
# Once a run: Ansible loads its plugins before it starts a process for each task.
role_inputs((ROLE,))
role_inputs((of_cluster.ROLE,))
role_inputs()
known()


class ActionModule(OfTask, Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._dry = bool(self._task.check_mode)
        try:
            inputs = self._support_inputs(task_vars)
            with self._environment():
                result.update(ACTS[args["act"]](self, inputs, task_vars))
        except NpuError as exc:
            result.update(failed=True, msg=clean(mask(str(exc)), True))
        return result

    def _support_inputs(self, task_vars: Result) -> Result:
        spec = role_inputs((ROLE,))
        found = normalise(raw_inputs(self._templar, task_vars, spec), spec)
        inputs = {name[len(ROLE) + 1 :]: value for name, value in found.items()}
        for name, least in LEAST.items():
            require(inputs[name], least, "%s_%s" % (ROLE, name))
        return inputs

    def _store(self) -> Store:
        """Ansible makes this directory for each run with mode 0700, and removes it at its end."""
        return Store(constants.DEFAULT_LOCAL_TMP, self._run_id() or "run")

    @staticmethod
    def _hosts(task_vars: Result) -> list[str]:
        return list(task_vars.get("ansible_play_hosts_all") or [task_vars["inventory_hostname"]])

    def _check(self, inputs: Result, task_vars: Result) -> Result:
        """The place of the archive and the room for each host, before anything is collected."""
        share(inputs["bytes"], inputs["host_bytes"], len(self._hosts(task_vars)))
        return {"changed": False, "path": place(inputs["path"], os.getcwd(), time.time())}

    def _host(self, inputs: Result, task_vars: Result) -> Result:
        """Collect from one host; what it has sent is on disk when this returns."""
        host, began = self._host_name(task_vars), time.monotonic()
        limits = self._limits(inputs, share(inputs["bytes"], inputs["host_bytes"], len(self._hosts(task_vars))))
        given: Result = {"act": HOST, "limits": vars(limits), "serials": inputs["serials"]}
        note = ""
        try:
            given["options"] = observe_options(read_inputs(self._templar, task_vars))
        except (AnsibleError, NpuError) as exc:
            # The host is looked at all the same, as one without inputs.
            note = "its inputs are wrong: %s" % exc
        part = Part(HOST, host)
        try:
            answer = self._execute_module(module_name=NAME, module_args=given, task_vars=task_vars)
            if answer.get("failed"):
                part.state, part.detail = FAILED, _why(answer)
            else:
                part.texts = unpacked(host, ROLE, answer, limits.host)
                part.records, part.serials = answer["records"], answer["serials"]
                part.state, part.detail = PLANNED if self._dry else COLLECTED, note
        except AnsibleConnectionFailure as exc:
            part.state, part.detail = UNREACHABLE, str(exc)
        except (AnsibleError, NpuError) as exc:
            part.state, part.detail = FAILED, str(exc)
        part.hide(self._secrets(task_vars, self._templar))
        part.detail, part.seconds = clean(mask(part.detail))[:2000], time.monotonic() - began
        self._store().keep(part)
        return self._told(part)

    @staticmethod
    def _secrets(variables: t.Mapping[str, t.Any], templar: t.Any) -> list[str]:
        """The secrets in the inputs and logins of a host, in all forms: a log may repeat one without its name."""
        found: set[str] = set()
        spec = {**role_inputs(), **role_inputs((of_cluster.ROLE,))}
        for name in sorted({*known().inputs, *LOGINS}.intersection(variables)):
            try:
                value = of_cluster.plain(templar.template(variables[name]))
            except (AnsibleError, NpuError):
                continue
            found |= secrets_in(value)
            # YAML makes a number of a password that has only digits.
            given = isinstance(value, (str, int)) and not isinstance(value, bool)
            if given and (name in LOGINS or (spec.get(name) or {}).get("no_log")):
                found.add(str(value))
        return searched(found)

    @staticmethod
    def _limits(inputs: Result, room: int) -> Limits:
        source = min(room, inputs["source_bytes"])
        return Limits(source, room, inputs["lines"], inputs["timeout"], inputs["host_timeout"])

    @staticmethod
    def _told(part: Part) -> Result:
        """The result of a part: numbers and the names of what is not there, and nothing of its content."""
        failed = {one["name"]: one["state"] for one in part.records if one["state"] not in (VALUE, ABSENT)}
        result: Result = {"changed": False, "name": part.name, **part.summary(), "failed_sources": failed}
        result["files"] = sum(1 for one in part.records if one["size"])
        result["size"] = sum(one["size"] for one in part.records)
        if part.state == PLANNED:
            result["sources"] = [one["source"] for one in part.records if one["state"] == VALUE]
        told: Result = clean_all(result)
        return told

    def _clusters(self, inputs: Result, task_vars: Result) -> Result:
        """Collect from each cluster of the hosts, also of those that were not reached."""
        hosts, store = self._hosts(task_vars), self._store()
        if not inputs["cluster"]:
            return {"changed": False, "clusters": {}}
        serials: set[str] | None = None if inputs["serials"] else set()
        for host in hosts if serials is not None else ():
            part = store.read(HOST, host)
            serials = (serials or set()) | set(part.serials if part else ())
        found: dict[str, Result] = {}
        clusters = self._named_clusters(hosts, task_vars)
        for name, given in clusters.items():
            if isinstance(given, str):
                part = Part(CLUSTER, name, FAILED, clean(mask(given))[:2000])
            else:
                room = cluster_share(inputs["bytes"], inputs["host_bytes"], len(hosts), len(clusters))
                part = self._cluster_part(name, given, self._limits(inputs, room), serials, given[SECRETS])
            store.keep(part)
            found[name] = self._told(part)
        return {"changed": False, "clusters": found}

    def _cluster_part(
        self, name: str, given: Result, limits: Limits, serials: set[str] | None, secrets: t.Sequence[str]
    ) -> Part:
        try:
            kubeconfig = self._kubeconfig(t.cast(t.Any, given))
            cluster = TextCluster(kubeconfig, given["context"], limits.seconds, self._decrypted)
        except (AnsibleError, NpuError) as exc:
            return Part(CLUSTER, name, FAILED, clean(mask(str(exc)))[:2000])
        part = collect_cluster(name, cluster, given["namespace"], limits, serials, self._dry)
        part.hide(secrets)
        return part

    def _named_clusters(self, hosts: t.Sequence[str], task_vars: Result) -> dict[str, Result | str]:
        """{cluster: its inputs, or why they cannot be read}; each is asked once."""
        raw = self._variables({**task_vars, "ansible_play_batch": hosts})
        found: dict[str, Result | str] = {}
        for group in alike(raw, known().inputs - OF_A_HOST):
            variables = {**role_defaults(of_cluster.ROLE), **raw[group[0]]}
            templar = Templar(loader=self._loader, variables=variables)
            try:
                given = of_cluster.read_inputs(raw_inputs(templar, variables, role_inputs((of_cluster.ROLE,))))
                if not given["kubeconfig"] and not given["enabled"]:
                    continue
                login = read_login(self._kubeconfig(t.cast(t.Any, given)), given["context"])
                name = " ".join(filter(None, (login.name, login.mark, given["namespace"])))
                found.setdefault(name, {**given, SECRETS: self._secrets(variables, templar)})
            except (AnsibleError, NpuError) as exc:
                found["cluster of %s" % group[0]] = str(exc)
        return found

    def _archive(self, inputs: Result, task_vars: Result) -> Result:
        """Write the archive of all that was kept, and show what is in it."""
        store, now = self._store(), time.time()
        path = place(inputs["path"], os.getcwd(), now)
        told = {"serials": inputs["serials"], "limits": {name: inputs[name] for name in LEAST}}
        bundle = Bundle(store, {**told, "ansible_core": core.__version__}, now)
        bundle.take(HOST, self._hosts(task_vars), lambda host: self._missing(host, task_vars))
        clusters = task_vars.get(REGISTERED) if REGISTERED not in (task_vars.get("ansible_facts") or {}) else None
        names = list((clusters or {}).get("clusters") or {})
        bundle.take(CLUSTER, names, lambda name: "nothing was kept of it")
        result: Result = {"path": path, "files": bundle.files, "hosts": bundle.summaries[HOST]}
        result.update(clusters=bundle.summaries[CLUSTER], changed=False)
        table = [one.text for one in lines(bundle.summaries, "", 0, False)]
        size, digest = (0, "") if self._dry else bundle.write(path, table)
        self._show(lines(bundle.summaries, path, size, self._dry))
        store.clear()
        if not self._dry:
            result.update(size=size, sha256=digest)
        cleaned: Result = clean_all(result)
        return cleaned

    @staticmethod
    def _missing(host: str, task_vars: Result) -> str:
        """Why a host has left nothing: its task was ended by Ansible."""
        variables = task_vars["hostvars"].raw_get(host) if "hostvars" in task_vars else {}
        said = variables.get(OF_HOST) if OF_HOST not in (variables.get("ansible_facts") or {}) else None
        text = said.get("msg") if isinstance(said, t.Mapping) else None
        return clean(mask(str(text or "no answer: its task was ended, or did not run")))[:2000]


def _why(answer: Result) -> str:
    """The words of an answer that failed."""
    said = str(answer.get("msg") or "")
    more = str(answer.get("module_stderr") or answer.get("module_stdout") or "").strip()
    return ("%s: %s" % (said, more[-500:]) if more else said) or "it failed without a message"


# Beside the inputs of a cluster: what is searched in its texts.
SECRETS = "secrets of the inputs"
# What the role registers of each host, and of the clusters.
OF_HOST, REGISTERED = "__%s_of_host" % ROLE, "__%s_of_clusters" % ROLE
ACTS: dict[str, t.Callable[[ActionModule, Result, Result], Result]] = {
    "check": ActionModule._check,
    "host": ActionModule._host,
    "clusters": ActionModule._clusters,
    "archive": ActionModule._archive,
}
ARGUMENTS = {"act": {"type": "str", "required": True, "choices": list(ACTS)}}
