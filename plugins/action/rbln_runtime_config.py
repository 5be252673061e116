# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_runtime_config: text is edited here, the host only reads and writes bytes.

Nothing runs on a host that is right already.
"""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import require
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import file_set as runtime_set
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import proxies
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import RECORD, read_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._text import toml

WRITER = "rebellions.npu.rbln_config_write"
DETECT = "rebellions.npu.rbln_runtime_detect"
NAMES = ["selected", "containerd", "docker", "cri-o", "podman"]
ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["present", "absent", "rolled_back"], "default": "present"},
    "files": {"type": "list", "elements": "path"},
    "runtimes": {"type": "dict"},
    "runtime": {"type": "list", "elements": "str", "choices": NAMES, "default": ["selected"]},
    "spec_dirs": {"type": "list", "elements": "path", "default": ["/var/run/cdi"]},
    "backup": {"type": "bool", "default": True},
    "configure": {"type": "list", "elements": "str", "choices": list(runtime_set.KINDS)},
    "http_proxy": {"type": "str", "no_log": True},
    "https_proxy": {"type": "str", "no_log": True},
    "no_proxy": {"type": "list", "elements": "str", "default": []},
    "root": {"type": "path", "default": "/"},
}


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        self._task_vars = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            toml.require()
            for directory in args["spec_dirs"]:
                if not directory.startswith("/"):
                    raise NpuError("spec_dirs has %r." % directory, "Give absolute paths.")
            if (args["state"] == "rolled_back") != (args["files"] is not None):
                raise NpuError("files and state=rolled_back belong together.", "Give both, or neither.")
            detected = args["runtimes"] or self._detect(args)
            # Removal takes all that is ours.
            args["configure"] = args["configure"] or (
                ["cdi"] if args["state"] == "present" else list(runtime_set.KINDS)
            )
            act = self._present if args["state"] == "present" else self._absent
            result.update(changed=False, files=[], backups=[], judged=None, restart_required=False, restart_units=[])
            result.update(act(detected, args))
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        return result

    def _module(self, name: str, args: dict[str, t.Any]) -> dict[str, t.Any]:
        answer: dict[str, t.Any] = self._execute_module(module_name=name, module_args=args, task_vars=self._task_vars)
        if answer.get("failed") or answer.get("unreachable"):
            message = answer.get("msg") or answer.get("module_stderr") or "no answer"
            raise NpuError(str(message).strip())
        return answer

    def _detect(self, args: dict[str, t.Any]) -> dict[str, t.Any]:
        names = [name for name in args["runtime"] if name != "selected"]
        asked = {
            "root": args["root"],
            "runtime": names,
            "spec_dir": args["spec_dirs"][0] if args["spec_dirs"] else "/var/run/cdi",
        }
        found: dict[str, t.Any] = self._module(DETECT, asked)["ansible_facts"]["rbln_runtimes"]
        return found

    def _read(self, paths: t.Sequence[str], args: dict[str, t.Any]) -> dict[str, t.Any]:
        answer = self._module(WRITER, {"read": list(paths), "root": args["root"]})
        host = self._host_name(self._task_vars)
        require(host, "rbln_config_write", answer, ["files"])
        require(host, "rbln_config_write", answer["files"], paths, "files")
        return answer

    def _present(self, detected: t.Mapping[str, t.Any], args: dict[str, t.Any]) -> dict[str, t.Any]:
        chosen = runtime_set.choose(detected, args["runtime"])
        # They say that CDI cannot be switched on.
        refused = runtime_set.refusals(chosen) if "cdi" in args["configure"] else []
        if refused:
            raise NpuError(" ".join(refused))
        done = self._cdi(chosen, args) if "cdi" in args["configure"] else {}
        if "proxies" in args["configure"]:
            done = _both(done, self._proxies(chosen, args))
        return done

    def _cdi(self, chosen: list[runtime_set.Runtime], args: dict[str, t.Any]) -> dict[str, t.Any]:
        open_ones = [runtime for runtime in chosen if runtime_set.wants_change(runtime, args["spec_dirs"])]
        if not open_ones:
            return {"runtimes": [_said(runtime, None) for runtime in chosen]}
        answer = self._read(runtime_set.paths_of(open_ones), args)
        files = runtime_set.sources(answer["files"])
        missing = {path: item["missing_dirs"] for path, item in answer["files"].items()}
        found = runtime_set.present(open_ones, files, missing, args["spec_dirs"], args["backup"])
        return self._finish(chosen, open_ones, found, answer, args)

    def _proxies(self, chosen: list[runtime_set.Runtime], args: dict[str, t.Any]) -> dict[str, t.Any]:
        """Drop-ins of the units; what their own files say is kept."""
        if not args["http_proxy"] and not args["https_proxy"]:
            raise NpuError("Proxies are to be configured, and there is no http_proxy or https_proxy.", "Give one.")
        served = [runtime for runtime in chosen if proxies.unit_of(runtime)]
        units = {proxies.unit_of(runtime): self._unit_files(proxies.unit_of(runtime), args) for runtime in served}
        paths = [RECORD, *(path for unit, own in units.items() for path in [*own, *_ours(unit)])]
        answer = self._read(list(dict.fromkeys(paths)), args)
        files = runtime_set.sources(answer["files"])
        units = {unit: proxies.in_effect(files, own) for unit, own in units.items()}
        more = {unit: proxies.variable_files(files, unit, own) for unit, own in units.items()}
        listed = self._listed([name for own in more.values() for name in own if proxies.is_pattern(name)], args)
        more = {unit: proxies.matched(own, listed) for unit, own in more.items()}
        named = [path for path in dict.fromkeys(path for own in more.values() for path in own) if path not in files]
        if named:
            files.update(runtime_set.sources(self._read(named, args)["files"], lenient=True))
        theirs = {unit: proxies.present_variables(files, unit, own, more[unit]) for unit, own in units.items()}
        missing = {path: item["missing_dirs"] for path, item in answer["files"].items()}
        wanted = {name: args[name] or "" for name in ("http_proxy", "https_proxy")}
        found = runtime_set.with_proxies(served, files, missing, theirs, {**wanted, "no_proxy": args["no_proxy"]})
        return self._finish(chosen, served, found, answer, args)

    def _unit_files(self, unit: str, args: dict[str, t.Any]) -> list[str]:
        """The files of a unit, in the order of systemd, without ours."""
        patterns = [directory + "/*.conf" for directory in proxies.directories_of(unit)]
        return proxies.unit_files(unit, self._listed(patterns, args))

    def _listed(self, patterns: t.Sequence[str], args: dict[str, t.Any]) -> list[str]:
        """The files of the host that fit these patterns."""
        root = args["root"].rstrip("/")
        words = ["".join(map(_quoted, re.split(r"([*?\[\]])", root + pattern))) for pattern in patterns]
        if not words:
            return []
        listed = self._low_level_execute_command("ls -1d %s 2>/dev/null || :" % " ".join(words))["stdout"]
        return [path[len(root) :] for path in listed.splitlines()]

    def _absent(self, detected: t.Mapping[str, t.Any], args: dict[str, t.Any]) -> dict[str, t.Any]:
        answer = self._read(runtime_set.paths_of(detected.get("runtimes") or []), args)
        files = runtime_set.sources(answer["files"], lenient=True)
        record = read_record(files.get(RECORD) or Source(RECORD))
        more = [path for path in [*record["files"], *_formers(record)] if path not in files]
        if more:
            files.update(runtime_set.sources(self._read(more, args)["files"]))
        kinds = args["configure"]
        chosen = runtime_set.noted(record, detected, args["runtime"], kinds)
        found = runtime_set.absent(chosen, files, record, kinds, args["files"])
        return self._finish(chosen, chosen, found, answer, args)

    def _finish(
        self,
        chosen: t.Sequence[runtime_set.Runtime],
        edited: t.Sequence[runtime_set.Runtime],
        found: runtime_set.WriteSet,
        answer: dict[str, t.Any],
        args: dict[str, t.Any],
    ) -> dict[str, t.Any]:
        edits = {(edit.name, edit.flavor): edit for edit in found.edits}
        result: dict[str, t.Any] = {
            "changed": bool(found.files) or answer["changed"],
            "restored": answer["restored"],
            "runtimes": [_said(runtime, edits.get(_key(runtime))) for runtime in chosen],
            "files": [request["path"] for request in found.files if request["path"] != RECORD],
        }
        warnings = ["%s: %s" % (edit.name, text) for edit in found.edits for text in edit.warnings]
        if warnings:
            result["warnings"] = warnings
        if self._task.diff and found.diffs:
            result["diff"] = [{"prepared": text} for text in found.diffs]
        if found.files and not self._task.check_mode:
            wrote = self._module(WRITER, {"files": found.files, "judges": found.judges, "root": args["root"]})
            result.update(backups=wrote.get("backups", []), judged=wrote.get("judged"))
        changed = [runtime for runtime in edited if _pending(edits.get(_key(runtime)))]
        units = [runtime["restart_unit"] for runtime in changed if runtime.get("restart_unit")]
        result["restart_units"] = list(dict.fromkeys(units))
        result["restart_required"] = any(_pending(edit) for edit in found.edits)
        return result


def _ours(unit: str) -> list[str]:
    conf, variables = proxies.own_files(unit)
    return [conf, variables, variables + proxies.FORMER]


def _formers(record: t.Mapping[str, t.Any]) -> list[str]:
    """Where a file of variables in the record has its former text."""
    return [path + proxies.FORMER for path in record["files"] if path.endswith(".env")]


def _quoted(part: str) -> str:
    """A part of a pattern for the shell: what is not a sign of patterns is taken as it is."""
    return part if part in ("", "*", "?", "[", "]") else shlex.quote(part)


def _key(runtime: runtime_set.Runtime) -> tuple[str, str]:
    return runtime["name"], runtime.get("flavor", "")


def _both(first: dict[str, t.Any], second: dict[str, t.Any]) -> dict[str, t.Any]:
    """The results of two writes as one."""
    if not first:
        return second
    result = {**first, **second}
    for key in ("files", "backups", "restart_units", "restored", "warnings", "diff"):
        if key in first or key in second:
            had = list(first.get(key, []))
            result[key] = had + [item for item in second.get(key, []) if item not in had]
    for key in ("changed", "restart_required"):
        result[key] = bool(first.get(key)) or bool(second.get(key))
    result["judged"] = first.get("judged") if second.get("judged") is None else second["judged"]
    result["runtimes"] = [
        {
            **one,
            "changed": one["changed"] or two["changed"],
            "restart_required": one["restart_required"] or two["restart_required"],
            "files": one["files"] + two["files"],
        }
        for one, two in zip(first["runtimes"], second["runtimes"])
    ]
    return result


def _pending(edit: t.Any) -> bool:
    """Whether a runtime has to be restarted before it reads what its files say."""
    return edit is not None and bool(edit.files or edit.restart)


def _said(runtime: runtime_set.Runtime, edit: t.Any) -> dict[str, t.Any]:
    changed = bool(edit is not None and edit.files)
    return {
        "name": runtime["name"],
        "flavor": runtime.get("flavor", "system"),
        "changed": changed,
        "effective": edit.effective if edit is not None else True,
        "files": [item.path for item in edit.files] if edit is not None else [],
        "unit": runtime.get("restart_unit") or runtime.get("unit"),
        "restart_required": _pending(edit),
    }
