# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX does with a job template: its rules of a launch, its files for ansible-runner, its slices and fact cache.

The objects are those that the modules of awx.awx have made in the stand-in. ansible-runner is the real one. AWX reads
and writes the fact cache as ansible-core before 2.19 does: a file of JSON with the name of the host.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

import ansible_runner
import jinja2
import yaml

from tests.integration._play import STAGE, STAGED
from tests.proofs._awx_api import Api, Data
from tests.tools.paths import COLLECTIONS, OLD_VENV, environment

PROJECT = STAGED / "playbooks" / "awx_project"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


class Unsafe(str):
    """Text that AWX does not trust: no template."""


class Dumper(yaml.SafeDumper):
    """Writes it so."""


Dumper.add_representer(Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text)))


class Job(t.NamedTuple):
    """Exit code, what people see, and per host (ok, changed, failed or unreachable)."""

    code: int
    out: str
    hosts: dict[str, tuple[int, int, int]]
    folder: Path

    def good(self, *hosts: str) -> Job:
        assert self.code == 0, self.out[-4000:]
        assert set(self.hosts) == set(hosts) and all(ok and not bad for ok, _changed, bad in self.hosts.values()), (
            self.hosts,
            self.out[-2000:],
        )
        return self

    def unchanged(self, *hosts: str) -> Job:
        self.good(*hosts)
        assert not any(changed for _ok, changed, _bad in self.hosts.values()), self.out[-4000:]
        return self

    def files(self) -> t.Iterator[Path]:
        return (path for path in (self.folder / "artifacts").rglob("*") if path.is_file())


class Controller:
    """AWX with one inventory of hosts; `facts` is what it keeps of them."""

    def __init__(self, api: Api, folder: Path, inventory: Data, venv: Path = OLD_VENV) -> None:
        self.api = api
        self.folder = folder
        self.inventory = inventory
        self.venv = venv
        self.facts = folder / "facts"
        self.facts.mkdir(parents=True)
        self.jobs = 0

    def environment(self, facts: Path) -> dict[str, str]:
        return environment(
            self.venv,
            ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
            ANSIBLE_CACHE_PLUGIN="jsonfile",
            ANSIBLE_CACHE_PLUGIN_CONNECTION=str(facts),
        )

    def constructed(self) -> Data:
        """The inventory with the pools, as ansible-inventory makes it of the hosts, the facts and our source."""
        source = self.api.named("inventory_sources", "Auto-created source for: NPU pools")
        where = self.folder / "constructed"
        where.mkdir(exist_ok=True)
        (where / "hosts.json").write_text(json.dumps(self.inventory))
        (where / "constructed.yml").write_text(source["source_vars"])
        # As AWX does it: the facts are where the cache plugin looks.
        words = ["-i", "hosts.json", "-i", "constructed.yml", "--list", "--export"]
        done = subprocess.run(
            [str(self.venv / "bin" / "ansible-inventory"), *words], cwd=where, env=self.environment(self.facts),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: Data = json.loads(done.stdout)
        return found

    def script(self, number: int, count: int) -> Data:
        """The inventory of a job: all of it, or a slice, in which the hosts of the others are absent."""
        found = self.constructed()
        every = sorted({host for group in found.values() for host in group.get("hosts", [])})
        chosen = every[number - 1 :: count]
        for group in found.values():
            if "hosts" in group:
                group["hosts"] = [host for host in group["hosts"] if host in chosen]
        known = found["_meta"]["hostvars"]
        found["_meta"]["hostvars"] = {host: known.get(host, {}) for host in chosen}
        return found

    def launch(
        self,
        name: str,
        answers: t.Mapping[str, str] | None = None,
        limit: str = "",
        check: bool = False,
        part: tuple[int, int] = (1, 1),
        verbosity: int = 0,
        judged: bool = True,
    ) -> Job:
        """Launch a template; without `judged` the answers are those that no survey has judged."""
        template = self.api.named("job_templates", name)
        assert not limit or template["ask_limit_on_launch"]
        assert not check or template["ask_job_type_on_launch"]
        assert part[1] == 1 or template["ask_job_slice_count_on_launch"]
        self.jobs += 1
        where = self.folder / ("job-%d" % self.jobs)
        for child in ("inventory", "env"):
            (where / child).mkdir(parents=True)
        # A copy: a job works on a copy of the project, too.
        shutil.copytree(PROJECT, where / "project")
        variables: Data = json.loads(template["extra_vars"] or "{}")
        found = self.answers(template, answers or {}) if judged else answers or {}
        variables.update({key: Unsafe(value) for key, value in found.items()})
        for credential in self.api.linked("job_templates", name, "credentials", "credentials"):
            variables.update(self.injected(credential, where))
        (where / "env" / "extravars").write_text(yaml.dump(variables, Dumper=Dumper, allow_unicode=True))
        script = where / "inventory" / "hosts"
        text = "#! /usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint(%r)\n"
        script.write_text(text % json.dumps(self.script(*part)))
        script.chmod(0o700)
        words = ["--forks=%d" % template["forks"], *(["--check"] if check else [])]
        words += ["--diff"] if template["diff_mode"] else []
        words += ["-l", limit] if limit else []
        words += ["-" + "v" * verbosity] if verbosity else []
        cache = where / "artifacts" / "1" / "fact_cache"
        shutil.copytree(self.facts, cache)
        run = ansible_runner.run(
            ident="1",
            private_data_dir=str(where),
            playbook=template["playbook"],
            cmdline=" ".join(words),
            envvars=self.environment(cache),
            settings={"fact_cache_type": "jsonfile", "suppress_ansible_output": True, "pexpect_timeout": 60},
            quiet=True,
        )
        for host in self.inventory["npu_nodes"]["hosts"]:
            # AWX looks for no other name.
            if (cache / host).exists():
                assert "rbln" in json.loads((cache / host).read_text())
                shutil.copy(cache / host, self.facts / host)
        out = run.stdout.read()
        counts = {
            host: (int(ok), int(changed), int(lost) + int(failed))
            for host, ok, changed, lost, failed in RECAP.findall(re.sub(r"\x1b\[[0-9;]*m", "", out))
        }
        return Job(run.rc, out, counts, where)

    def answers(self, template: Data, given: t.Mapping[str, str]) -> dict[str, str]:
        """Answers as text, as surveys and schedules give them; a question without one has its default."""
        survey = self.api.surveys.get(("job_templates", template["id"]), {"spec": []})["spec"]
        assert set(given) <= {question["variable"] for question in survey}, "not asked for"
        found = {question["variable"]: given.get(question["variable"], question["default"]) for question in survey}
        for question in survey:
            answer = found[question["variable"]]
            assert isinstance(answer, str) and (answer or not question["required"]), question["variable"]
            assert not question["choices"] or answer in question["choices"], answer
        return found

    def injected(self, name: str, where: Path) -> Data:
        """The extra variables of a credential; its file is one of the job."""
        credential = self.api.named("credentials", name)
        kind = self.api.objects["credential_types"][credential["credential_type"]]
        names: Data = dict(credential["inputs"])
        shell = jinja2.Environment()
        if "file" in kind["injectors"]:
            path = where / "env" / ("file-of-%d" % credential["id"])
            path.write_text(shell.from_string(kind["injectors"]["file"]["template"]).render(names))
            path.chmod(0o600)
            names["tower"] = {"filename": str(path)}
        found = kind["injectors"].get("extra_vars", {})
        return {key: Unsafe(shell.from_string(text).render(names)) for key, text in found.items()}
