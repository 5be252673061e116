# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contenders: one ssh per host, the least task of Ansible, site.yml, a naive role, pyinfra.

Each run has its own connections and is measured as a whole.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import typing as t
from dataclasses import dataclass
from pathlib import Path

from tests.lab.lab import payload_dir
from tests.tools.paths import CACHE, COLLECTIONS, NAME, NAMESPACE, OLD_VENV, VENV, environment
from tests.tools.stage import stage

from ._hosts import ADDRESSES, FOLDER, NAMES, Hosts, fresh_folder

HERE = Path(__file__).resolve().parent
STAGE = FOLDER / "stage"
STAGED = STAGE / "ansible_collections" / NAMESPACE / NAME
FACTS = FOLDER / "facts"
TIMEOUT = 1800
PYINFRA = "3.10"
DRIVER = "3.2.2"
# The sample's settings are those of every run of Ansible here.
SAMPLE = STAGED / "inventories" / "example" / "ansible.cfg"


class BenchError(Exception):
    """A contender did not do its work; its figures would mean nothing."""


@dataclass(frozen=True)
class Spent:
    """Seconds: CPU of the controller and everything it started, CPU of the server, wall.

    Most memory in MiB where it was looked at: of the main process, and of all its forks together.
    """

    controller: float
    host: float
    wall: float
    main: float = 0.0
    forks: float = 0.0

    @property
    def cpu(self) -> float:
        return self.controller + self.host


def prepare(others: bool = True) -> None:
    """A copy of the checkout that does not change between the rounds, and pyinfra where `others` are compared."""
    STAGED.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    fresh_folder(FACTS)
    if others:
        pyinfra_program()


def measured(
    hosts: Hosts, argv: t.Sequence[str | Path], env: t.Mapping[str, str], log: str, what: str = "cpu"
) -> Spent:
    """Run a command by _spend.py; its output is kept in `log`. BenchError with the end of it when it fails."""
    report, path = FOLDER / "spent.json", FOLDER / (log + ".log")
    report.unlink(missing_ok=True)
    before = hosts.cpu()
    with path.open("w", encoding="utf-8") as out:
        words = [sys.executable, "-I", str(HERE / "_spend.py"), str(report), what, *map(str, argv)]
        subprocess.run(
            words,
            cwd=STAGED,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            check=False,
        )
    host = hosts.cpu() - before
    spent = json.loads(report.read_text()) if report.exists() else {"code": -1}
    if spent["code"]:
        raise BenchError(
            "%s: exit %d:\n%s" % (log, spent["code"], "\n".join(path.read_text(errors="replace").splitlines()[-25:]))
        )
    return Spent(spent["cpu"], host, spent["wall"], spent.get("main", 0.0), spent.get("forks", 0.0))


def site() -> dict[str, t.Any]:
    """Inputs of site.yml: the stand-in driver by runfile, no cluster.

    The vendor's matrix does not list the system of these hosts.
    """
    name = "run/rebellions-x86_64-%s.run" % DRIVER
    sums = dict(reversed(line.split(maxsplit=1)) for line in (payload_dir() / "SHA256SUMS").read_text().splitlines())
    return {
        "rbln_driver_source": "runfile",
        "rbln_driver_version": DRIVER,
        "rbln_driver_runfile": str(payload_dir() / name),
        "rbln_driver_runfile_sha256": sums[name],
        "rbln_driver_runfile_args": ["--silent"],
        "rbln_driver_build_packages": [],
        "rbln_preflight_unlisted": "warn",
        "rbln_container_toolkit_runtime_restart": "if_required",
    }


def inventory(names: t.Sequence[str], variables: t.Mapping[str, t.Any]) -> Path:
    path = FOLDER / "inventory.json"
    own = {"ansible_python_interpreter": "/usr/bin/python3"}
    path.write_text(json.dumps({"npu_nodes": {"hosts": dict.fromkeys(names, {}), "vars": {**own, **variables}}}))
    return path


def ansible(
    hosts: Hosts, callback: str = "ansible.builtin.default", venv: Path = VENV, **settings: str
) -> dict[str, str]:
    """The settings of inventories/example, for ours and the naive role alike; `settings` replace its own.

    Of the user's home nothing is touched: connections and cached facts are in FOLDER.
    """
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(SAMPLE.read_text(encoding="utf-8"))
    own = {
        "fact_caching_connection": str(FACTS),
        "ssh_args": "-F %s %s" % (hosts.config, config["ssh_connection"]["ssh_args"]),
        **settings,
    }
    for name, value in own.items():
        # Each of them replaces one that the sample has.
        config[next(section for section in config.sections() if name in config[section])][name] = value
    path = FOLDER / "ansible.cfg"
    with path.open("w", encoding="utf-8") as out:
        config.write(out)
    return environment(
        venv,
        ANSIBLE_CONFIG=str(path),
        ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
        ANSIBLE_SSH_CONTROL_PATH_DIR=str(fresh_folder(FOLDER / "cp")),
        ANSIBLE_STDOUT_CALLBACK=callback,
        ANSIBLE_LOCALHOST_WARNING="false",
    )


def bare(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    """One ssh a host, without a shared connection: nothing is left behind."""
    return _each(hosts, names, "-o ControlMaster=no -o ControlPath=none", "bare")


def shared(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    """One ssh a host that opens a shared connection, as Ansible's does; its master is ended and counted."""
    options = "-o ControlMaster=auto -o ControlPersist=60s -o ControlPath=%s/%%%%n"
    return _each(hosts, names, options % shlex.quote(str(fresh_folder(FOLDER / "cp"))), "shared")


def _each(hosts: Hosts, names: t.Sequence[str], options: str, log: str) -> Spent:
    one = "ssh -F %s %s %%s true & " % (shlex.quote(str(hosts.config)), options)
    return measured(hosts, ["sh", "-c", "".join(one % name for name in names) + "wait"], environment(), log)


def raw(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    """The least that Ansible does as root: one command by raw and sudo, without a module."""
    argv = ["ansible", "npu_nodes", "-i", inventory(names, {}), "-b", "-m", "ansible.builtin.raw", "-a", "true"]
    return measured(hosts, argv, ansible(hosts), "raw")


def ours(
    hosts: Hosts,
    names: t.Sequence[str] = NAMES,
    callback: str = "ansible.builtin.default",
    venv: Path = VENV,
    what: str = "cpu",
    **settings: str,
) -> Spent:
    """The host part of site.yml; its output is in ours.log."""
    argv = ["ansible-playbook", "-i", inventory(names, site()), "playbooks/site.yml", "--skip-tags", "operands"]
    return measured(hosts, argv, ansible(hosts, callback, venv, **settings), "ours", what)


def unchanged(log: str) -> int:
    """Hosts of a run that have done something, have changed nothing and have not failed, by its last lines."""
    good = r"^\S+ +: ok=[1-9]\d* +changed=0 +unreachable=0 +failed=0 "
    return len(re.findall(good, log, re.M))


def oldest(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    """The same by the oldest ansible-core."""
    return ours(hosts, names, venv=OLD_VENV)


def naive(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    return measured(
        hosts, ["ansible-playbook", "-i", inventory(names, {}), HERE / "naive" / "play.yml"], ansible(hosts), "naive"
    )


def pyinfra(hosts: Hosts, names: t.Sequence[str] = NAMES) -> Spent:
    # It reads this file once for each host, so it gets one without the 500 names.
    config = FOLDER / "pyinfra_ssh_config"
    config.write_text("Host *\n" + hosts.config.read_text().rpartition("Host *\n")[2])
    data = {
        "ssh_config_file": str(config),
        "ssh_key": str(FOLDER / "user"),
        "ssh_strict_host_key_checking": "off",
    }
    listing = FOLDER / "pyinfra_hosts.py"
    listing.write_text("hosts = %r\n" % [(ADDRESSES[name], {**data, "ssh_user": name}) for name in names])
    return measured(hosts, [pyinfra_program(), "-y", listing, HERE / "pyinfra_deploy.py"], environment(), "pyinfra")


def pyinfra_program() -> Path:
    """pyinfra in a venv of its own, made once."""
    folder = FOLDER / ("pyinfra-%s" % PYINFRA)
    program = folder / "bin" / "pyinfra"
    if not program.exists():
        for argv in (
            [sys.executable, "-m", "venv", folder],
            [folder / "bin" / "pip", "install", "-q", "--cache-dir", CACHE / "pip", "pyinfra==%s.*" % PYINFRA],
        ):
            done = subprocess.run(
                [str(word) for word in argv],
                capture_output=True,
                text=True,
                env=environment(),
                timeout=300,
                check=False,
            )
            if done.returncode:
                raise BenchError("pyinfra cannot be installed: %s" % done.stderr.strip()[-500:])
    return program


def operands(hosts: Hosts, kubeconfig: Path, names: t.Sequence[str] = NAMES) -> Spent:
    """The role of the cluster alone, on nodes that are named like the hosts; it writes its events to operands.log."""
    variables = {
        **site(),
        "rbln_kubeconfig": str(kubeconfig),
        "rbln_node_name": "{{ inventory_hostname }}",
        "rbln_namespace": "rbln-bench",
        "rbln_registry": "registry.example.com/npu",
        "rbln_operands_wait": False,
    }
    argv = ["ansible-playbook", "-i", inventory(names, variables), HERE / "operands.yml"]
    return measured(hosts, argv, ansible(hosts, "ansible.posix.jsonl"), "operands")
