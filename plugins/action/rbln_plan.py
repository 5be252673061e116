# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_plan: inputs and one observation in, plan out.

Without an observation, the host is observed.
"""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask, masked
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import ERROR, NpuError, Problem, ProblemData
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import form_for
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import PLANNED, checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.findings import of_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.host import read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.pool_variables import POOL, check_pool
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    PREFLIGHT,
    cdi_options,
    observe_options,
    role_inputs,
    support_matrix,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.matrix import check_rules
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.plan import from_bundle, lacks_bundle, plan
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.screen import CONTROLLER
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.situation import (
    Case,
    driver_files,
    ours,
    wanted_version,
)

# What the role registers of the looks at the controller.
FINDINGS = ("%s_inputs" % PREFLIGHT, "%s_opened" % PREFLIGHT)
EXTRA = "rbln_preflight_support_matrix_extra"
# An input of the role, and what its playbooks may set. The role names no template, which would be rendered each time.
STOP, WARN = "%s_stop" % PREFLIGHT, "__%s_warn" % PREFLIGHT
# Set by a play after which no role runs on a host without steps: Ansible copies all that is registered.
BRIEF = "__%s_brief" % PREFLIGHT
# What the role of the driver registers.
CHANGE = "rbln_driver_change"
# A registered result is printed with -v; the roles read these from their variables.
SECRETS = ("rbln_driver_mok_password", "rbln_driver_http_proxy", "rbln_driver_https_proxy")
# An address with a secret is refused, and the driver module reads the arguments of an installer again.
SOURCES = (
    "rbln_driver_runfile",
    "rbln_driver_runfile_signature",
    "rbln_driver_repository",
    "rbln_driver_package_files",
    "rbln_driver_runfile_args",
    "rbln_driver_runfile_uninstall",
    "rbln_driver_runfile_extract",
)


def _problem_text(problem: t.Mapping[str, t.Any]) -> str:
    return "%s Next: %s" % (problem["detail"], problem["next_step"]) if problem["next_step"] else problem["detail"]


def _told_here(host: str, finding: t.Mapping[str, t.Any], first: str) -> str:
    other = "The problem of the controller in the message of %s stops it too. Next: Correct that one." % first
    return _problem_text(finding) if first == host else other


def _done_before(host: str, variables: t.Mapping[str, t.Any]) -> str:
    """What this run has done to the host: a plan is made again after a change of the driver."""
    if (variables.get(CHANGE) or {}).get("changed"):
        return "The driver of %s was changed, and nothing after it." % host
    return "Nothing was changed on %s." % host


def _groups(variables: t.Mapping[str, t.Any], pool_key: str) -> list[str]:
    """The host's groups without the pools of kernels that ran before this run rebooted it.

    Ansible cannot take a host out of a group.
    """
    left = [POOL + key for key in variables.get("rbln_driver_pools_left", []) if key != pool_key]
    return [name for name in variables.get("group_names", []) if name not in left]


def exceptions(given: str | None, domain: t.Any, ranges: t.Any, address: t.Any, name: t.Any) -> list[str]:
    """What runtimes reach without a proxy: what is given, the host itself, the names and ranges of its cluster."""
    found = [*(given or "").split(","), address, name, ".svc", "." + str(domain or "cluster.local").strip(".")]
    found += ranges.split(",") if isinstance(ranges, str) else ranges or []
    return list(dict.fromkeys(str(item).strip() for item in found if str(item or "").strip()))


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        given = dict(self._task.args)
        # Not for the validator, which copies all of it. As a template ansible would copy it too, so it may be a name.
        observation, rules = given.pop("observation", None), given.pop("support_matrix", None)
        self._task.args = given
        _validation, args = self.validate_argument_spec(
            argument_spec={
                "fail_on_stops": {"type": "bool"},
                "warn": {"type": "bool", "default": variables.get(WARN, True)},
            }
        )
        if isinstance(observation, str):
            observation = variables.get(observation)
        if not isinstance(observation, dict):
            observation = self._observe(variables)
            if observation.get("failed") or observation.get("unreachable"):
                result.update(observation)
                return result
            result["ansible_facts"] = observation["ansible_facts"]
        host = self._host_name(variables)
        try:
            seen = checked_facts(host, observation.get("ansible_facts"), PLANNED, self._run_id())
            self._check_pool(host, seen["rbln"]["pool_key"], variables)
            wanted = read_inputs(self._templar, variables)
            check_rules(wanted[EXTRA], EXTRA)
            wanted["rbln_driver_version"] = wanted_version(wanted, seen["rbln"])
            if rules is not None:
                check_rules(rules, "support_matrix")
            matrix = wanted[EXTRA] + (support_matrix() if rules is None else rules)
            proxies = self._proxies(wanted, seen["rbln_runtimes"], variables)
            case = Case(wanted, seen["rbln"], seen["rbln_runtimes"], seen["rbln_observed"], matrix, proxies)
            planned = plan(case, _groups(variables, seen["rbln"]["pool_key"])).to_dict()
            planned["stops"] += self._bundle(from_bundle(planned["steps"], wanted), variables)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        texts = [_problem_text(stop) for stop in planned["stops"]]
        here = of_host(host, [variables.get(name) for name in FINDINGS], variables.get("ansible_play_batch") or ())
        stops = [Problem(CONTROLLER, ERROR, one["detail"], one["next_step"], PROFILE.name) for one, _first in here]
        planned["stops"] = [*(stop.to_dict() for stop in stops), *planned["stops"]]
        # Each is told once: by the first host that it stops.
        texts = [*dict.fromkeys(_told_here(host, one, first) for one, first in here), *texts]
        cdi = dict(cdi_options(wanted), path=wanted["rbln_container_toolkit_cdi_path"])
        cdi["form"] = form_for(cdi["form"], seen["rbln_runtimes"]["kubelet"]["present"])
        result.update(
            planned,
            changed=False,
            wanted={
                name: masked(value) if name in SOURCES else value
                for name, value in wanted.items()
                if name not in SECRETS
            },
            driver_files=masked(driver_files(wanted, seen["rbln"])),
            options=observe_options(wanted),
            cdi_options=cdi,
            proxies=proxies,
        )
        if planned["steps"] or not variables.get(BRIEF):
            result["observation"] = {"ansible_facts": seen}
        cautions = [_problem_text(item) for item in planned["cautions"] if args["warn"] and item["severity"] != "info"]
        if cautions:
            result["warnings"] = ["%s: %s" % (host, text) for text in cautions]
        stop = wanted[STOP] if args["fail_on_stops"] is None else args["fail_on_stops"]
        if planned["stops"] and stop:
            # A callback prints all of a failed result: the message is to be seen.
            for key in ("ansible_facts", "observation", "wanted", "options", "cdi_options", "proxies", "driver_files",
                        "acts", "disruption", "roles", "schema", "stale_units", "unrepaired"):  # fmt: skip
                result.pop(key, None)
            told = [stop.to_dict() for stop, (_one, first) in zip(stops, here) if first == host]
            result["stops"] = [*told, *planned["stops"][len(stops) :]]
            result.update(
                failed=True,
                # None of them comes, and cautions are warnings above.
                steps=[],
                cautions=[],
                msg="%s %s" % (_done_before(host, variables), " ".join(texts)),
            )
        return result

    def _check_pool(self, host: str, pool_key: str, variables: dict[str, t.Any]) -> None:
        # Only the inventory knows which group a variable is of; hostvars is the only way to it from here.
        inventory = getattr(variables.get("hostvars"), "_inventory", None)
        if inventory is not None:
            check_pool(inventory, self._loader, host, POOL + pool_key, variables)

    def _proxies(
        self, wanted: t.Mapping[str, t.Any], runtimes: t.Mapping[str, t.Any], variables: dict[str, t.Any]
    ) -> dict[str, t.Any] | None:
        """The proxies of the runtimes as docs/schemas/plan.schema.json has them; one look at the host's unit files."""
        if not wanted[ours("container_toolkit_runtime_proxies")]:
            return None
        names = (ours("cluster_domain"), ours("cluster_cidrs"), "ansible_host", "inventory_hostname")
        excepted = exceptions(
            wanted[ours("driver_no_proxy")], *(self._templar.template(variables.get(name)) for name in names)
        )
        asked = {
            "configure": ["proxies"],
            "runtimes": dict(runtimes),
            "http_proxy": wanted[ours("driver_http_proxy")] or None,
            "https_proxy": wanted[ours("driver_https_proxy")] or None,
            "no_proxy": excepted,
        }
        looked = self._looked("rbln_runtime_config", asked, variables)
        problem, _next, next_step = str(looked["msg"] if looked.get("failed") else "").partition(" Next: ")
        changed = [item["name"] for item in looked.get("runtimes", []) if item["changed"]]
        return {"changed": changed, "no_proxy": excepted, "problem": problem, "next_step": next_step}

    def _bundle(self, needs: dict[str, t.Any] | None, variables: dict[str, t.Any]) -> list[ProblemData]:
        """The stop where the offline bundle of the host lacks what is needed; one look where something is."""
        if needs is None:
            return []
        looked = self._looked("rbln_bundle", {"state": "checked", **needs}, variables)
        if not looked.get("failed"):
            return []
        detail, _next, next_step = str(looked.get("msg")).partition(" Next: ")
        return [lacks_bundle(detail, next_step, PROFILE.name).to_dict()]

    def _looked(self, module: str, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """The answer of another module of ours to a look at the host."""
        task = self._inner(args)
        task.check_mode, task.diff = True, False
        answer: dict[str, t.Any] = self._action(f"rebellions.npu.{module}", task).run(task_vars=variables)
        return answer

    def _action(self, name: str, task: t.Any) -> t.Any:
        return self._shared_loader_obj.action_loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )

    def _observe(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        task = self._inner({"from_inputs": True, "passed_as_names": True})
        seen: dict[str, t.Any] = self._action("rebellions.npu.rbln_observe", task).run(task_vars=variables)
        return seen

    def _inner(self, args: dict[str, t.Any]) -> t.Any:
        """The task of another action. It registers nothing, or the play would keep its failure as a good answer."""
        task = self._task.copy()
        task.args, task.register = args, None
        return task


# Once a run: ansible loads its plugins before it starts a process for each host and task.
role_inputs()
support_matrix()
mask("password")
