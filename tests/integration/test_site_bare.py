# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on hosts without a cluster: inputs, sources of the driver, runtimes, roles alone, as AWX runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.integration._hosts import INSIDE, LOADER, Fingerprint, Hosts, difference, fingerprint
from tests.integration._play import COLLECTIONS, SITE, STAGE, Data, play, runfile, sha256
from tests.integration._red import TERMINAL, one_message
from tests.integration._reports import newest, reporting
from tests.lab._base import run as command
from tests.lab.lab import payload_dir
from tests.tools.paths import ROOT, environment

OLD, ENGINES, E = "it-c", "it-d", "it-e"
MARKERS = "/run/rbln/validations"
# In the order of installation.
DEBS = ("librbln", "rebellions-fw", "rebellions-kmd", "rbln-tools")


def markers(hosts: Hosts, host: str) -> list[str]:
    return hosts.lab.exec(host, "ls -A %s 2>/dev/null || :" % MARKERS).stdout.split()


def untouched(hosts: Hosts, host: str, before: Fingerprint | None = None) -> None:
    """The disk is as it was, and no file was left in Ansible's temporary directory."""
    assert difference(before or hosts.fresh[host], fingerprint(hosts.lab, host)) == []
    assert hosts.lab.exec(host, "ls /root/.ansible/tmp 2>/dev/null || :").stdout == ""


def test_containerd_without_cdi_is_refused_D06_containerd_no_cdi(bare: Hosts) -> None:
    bare.virgin(OLD)
    run = play("site", bare.inventory(OLD))
    assert run.code == 2 and run.stats[OLD]["changed"] == 0 and len(run.failed()) == 1
    assert (
        "upgrade containerd to 1.7 or newer" in run.failed()[0].msg
        and "Nothing was changed on it-c" in run.failed()[0].msg
    )
    assert {one.play for one in run.results} == {"1 Discover", "2 Preflight"}
    untouched(bare, OLD)


def test_docker_alone_is_one_message_for_each_thing_that_a_cluster_would_need(bare: Hosts) -> None:
    """A host with docker and no runtime for a kubelet, as it is and as a node that is to be."""
    bare.virgin(ENGINES)
    own: dict[str, Data] = {
        "docker-only": {"rbln_container_toolkit_runtimes": ["cri-o"]},
        "docker-never-restarted": {"rbln_container_toolkit_runtime_restart": "never"},
    }
    aliases = {name: {"ansible_host": ENGINES, **given} for name, given in own.items()}
    where = bare.inventory(*own, host_vars=aliases, rbln_serial=2)
    run = play("site", where, env=TERMINAL)
    assert run.code == 2
    one_message(run, "docker-only", "cri-o is not on this host, which has", "docker", "rbln_container_toolkit_runtimes")
    one_message(run, "docker-never-restarted", "docker", "has to be restarted", "if_required")
    untouched(bare, ENGINES)


# {case: (inputs, words of the message, looks at the host)}; a host without the host tool is asked for it first.
REFUSED: dict[str, tuple[Data, tuple[str, ...], int]] = {
    "A04-string-bools-float": ({"rbln_driver_version": 3.2}, ("rbln_driver_version", "Quote it"), 0),
    "A04-string-bools-word": ({"rbln_driver_replace": "perhaps"}, ("rbln_driver_replace", "true or false"), 0),
    "choice": (
        {"rbln_container_toolkit_runtime_restart": "now"},
        ("rbln_container_toolkit_runtime_restart", "if_required"),
        0,
    ),
    "digest": ({"rbln_driver_runfile_sha256": "0" * 64}, ("not " + "0" * 64, "nothing was sent"), 1),
    "no-runfile": ({"rbln_driver_runfile": "/nowhere.run"}, ("/nowhere.run", "Next:"), 1),
    "package-digest": (
        {
            "rbln_driver_source": "package",
            "rbln_driver_package_files": [
                {"path": str(payload_dir() / "apt/librbln_3.2.2_amd64.deb"), "sha256": "1" * 64}
            ],
        },
        ("not " + "1" * 64, "nothing was sent"),
        1,
    ),
    "cluster-input": (
        {"rbln_operands_device_plugin": {"enabeld": True}},
        ("rbln_operands_device_plugin has the unknown key enabeld", "mean enabled"),
        1,
    ),
    "no-package": ({"rbln_driver_source": "package"}, ("rbln_driver_package_names", "Next:"), 1),
}


def test_refused_inputs_leave_the_host_alone_A04_string_bools(bare: Hosts) -> None:
    """Each case is a host of the inventory; all are the same machine."""
    bare.virgin(E)
    where = bare.inventory(
        *REFUSED,
        host_vars={case: {"ansible_host": E, **row[0]} for case, row in REFUSED.items()},
        rbln_serial=len(REFUSED),
    )
    run = play("site", where)
    assert run.code == 2 and sorted(run.stats) == sorted(REFUSED) and run.changed() == []
    for case, (_inputs, words, _executions) in REFUSED.items():
        last = run.failed(case)[-1]
        assert run.stats[case]["failures"] == 1 and all(word in last.msg for word in words), (case, last.msg)
    assert {name for name, _line in run.executions} == {E}
    assert len(run.executions) == 2 * sum(row[2] for row in REFUSED.values()), run.executions
    untouched(bare, E)


def test_plan_of_a_virgin_host_and_a_misspelt_input(bare: Hosts) -> None:
    bare.virgin(E)
    wrong = play("plan", bare.inventory(E), extra={"rbln_driver_vesion": "3.4.0"})
    assert wrong.code == 2 and wrong.executions == []
    told = "rbln_driver_vesion is not an input of this collection. Next: Write rbln_driver_version, "
    assert told in wrong.failed()[0].msg
    run = play("plan", bare.inventory(E), extra={"rbln_plan_format": "json"}).unchanged([E])
    shown = run.one("Show the plan", E).data["plan"]["hosts"][E]
    assert [step["id"] for step in shown["steps"]] == [
        "driver.install",
        "toolkit.host_tool",
        "toolkit.cdi",
        "toolkit.runtime.containerd",
        "validator.markers",
    ]
    assert shown["stops"] == []
    # For a pipeline: 3 when something is to be changed, 2 when a host is stopped, else 0 (a finished host, below).
    code = {"rbln_plan_exit": True}
    pending = play("plan", bare.inventory(E), extra=code)
    assert pending.code == 3 and pending.failed() == [] and pending.changed() == []
    lines = pending.one("Show the plan", E).data["msg"]
    assert "1 host: %s" % E in lines and any("not installed -> 3.2.2" in line for line in lines), lines
    assert "Disruption: 1 host restarts a container runtime." in lines and lines[0] not in pending.out.splitlines()
    stopped = play("plan", bare.inventory(E), extra={**code, "rbln_driver_source": "preinstalled"})
    assert stopped.code == 2 and "preinstalled" in "".join(stopped.one("Show the plan", E).data["msg"])
    # The pool's input, and a group of the same depth that Ansible prefers for its name.
    pool = run.of("Observe the host")[0].data["add_group"]
    where = bare.inventory(E)
    tree = json.loads(where.read_text())
    tree["npu_nodes"]["children"] = {"rack": {"hosts": {E: {}}, "vars": {"rbln_driver_timeout": 99}}}
    tree[pool] = {"vars": {"rbln_driver_timeout": 77}}
    where.write_text(json.dumps(tree))
    run = play("plan", where)
    assert run.code == 2 and run.failed()[-1].msg.startswith(
        "Inputs of the pool %s are not used: rbln_driver_timeout is replaced by group rack. Next: " % pool
    ), run.failed()
    untouched(bare, E)


def test_what_keeps_the_module_out_stops_the_run_H13_modprobe_blocked(bare: Hosts) -> None:
    bare.virgin(E)
    conf = "/etc/modprobe.d/60-site.conf"
    bare.lab.exec(
        E, "mkdir -p /etc/modprobe.d; printf 'blacklist rebellions\\ninstall rebellions /bin/true\\n' > " + conf
    )
    before = fingerprint(bare.lab, E)
    run = play("site", bare.inventory(E))
    assert run.code == 2 and run.stats[E]["changed"] == 0
    assert "%s line 2 says install rebellions /bin/true. Next: Remove that" % conf in run.failed()[0].msg
    assert "%s line 1 says blacklist rebellions; it is not loaded at the next boot" % conf in run.warnings()
    untouched(bare, E, before)
    bare.lab.exec(E, "rm " + conf)


@pytest.mark.parametrize("tag", ["toolkit", "validate"])
def test_a_later_tag_alone_on_a_virgin_host_fails_and_says_why(tag: str, bare: Hosts) -> None:
    bare.virgin(E)
    bare.state[E] = "dirty"
    run = play("site", bare.inventory(E), "--tags", tag)
    assert run.code == 2 and run.stats[E]["failures"] == 1
    assert "driver" in run.failed()[-1].msg and "Next:" in run.failed()[-1].msg, run.failed()[-1].msg
    assert markers(bare, E) == []
    assert bare.lab.exec(E, "ls /run/cdi /var/run/cdi 2>/dev/null || :").stdout.split() == []


def test_tag_operands_alone_without_a_cluster_does_nothing(bare: Hosts) -> None:
    bare.virgin(E)
    play("site", bare.inventory(E), "--tags", "operands").unchanged([E])
    untouched(bare, E)


def options(role: str) -> Data:
    """The inputs of a role."""
    spec = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    return t.cast(Data, spec["argument_specs"]["main"]["options"])


# Answers of a survey: everything is text, and what nobody has answered is empty.
SURVEY = {
    **{
        name: ""
        for role in ("discover", "preflight", "driver", "container_toolkit", "validator")
        for name, option in options("rbln_" + role).items()
        # The inventory of the tests sets the others.
        if name not in SITE and (option["type"] not in ("str", "path", "raw") or option.get("choices"))
    },
    "rbln_container_toolkit_runtime_restart": "if_required",
    "rbln_validator_blocking": "error",
    "rbln_driver_replace": "false",
    "rbln_driver_runfile_args": "--silent",
    "rbln_discover_timeout": "10",
    "rbln_failure_budget": "1",
    "rbln_serial": "1",
    "rbln_kubeconfig": "",
    "rbln_driver_ca_cert": "",
}


def runner(tmp_path: Path, where: Path, extra: Data, *args: str) -> tuple[int, list[Data]]:
    """site.yml by ansible-runner in a private data directory, as AWX does it: (exit code, job events)."""
    home = tmp_path / "job"
    for name in ("project", "inventory", "env"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "project/site.yml").write_text("- name: Site\n  ansible.builtin.import_playbook: rebellions.npu.site\n")
    shutil.copy(where, home / "inventory/hosts.json")
    (home / "env/extravars").write_text(json.dumps(extra))
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts")}
    (home / "env/envvars").write_text(
        json.dumps({"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (STAGE, COLLECTIONS), "ANSIBLE_PIPELINING": "true", **cache})
    )
    argv = ["ansible-runner", "run", str(home), "-p", "site.yml", "-i", "one", "-q", *args]
    done = subprocess.run(
        argv, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False
    )
    paths = sorted((home / "artifacts/one/job_events").glob("*.json"), key=lambda path: int(path.name.split("-")[0]))
    events = [json.loads(path.read_text()) for path in paths]
    shutil.rmtree(home / "artifacts")
    assert events, done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode, events


def closing(events: t.Sequence[Data]) -> Data:
    """The counts of the last event, which are the job's."""
    assert events[-1]["event"] == "playbook_on_stats"
    data: Data = events[-1]["event_data"]
    return data


def test_awx_job_from_nothing_with_a_survey_A04_string_bools(bare: Hosts, tmp_path: Path) -> None:
    bare.virgin(E)
    bare.state[E] = "dirty"
    where = bare.inventory(E)
    code, events = runner(tmp_path, where, SURVEY)
    assert (
        code == 0
        and [one["stdout"] for one in events if one["event"] in ("runner_on_failed", "runner_on_unreachable", "error")]
        == []
    )
    assert closing(events)["ok"][E] > 10 and closing(events)["changed"][E] == 7, closing(events)
    assert closing(events)["failures"] == {}
    assert markers(bare, E) == [".driver-ctr-ready", "driver-ready", "toolkit-ready"]
    code, events = runner(tmp_path, where, SURVEY)
    assert code == 0 and closing(events)["changed"] == {} and closing(events)["failures"] == {}
    # The text "false" is false: another version is not put over the one that is there.
    run = play("site", where, extra={**SURVEY, **runfile("3.4.0"), "rbln_driver_replace": "false"})
    assert run.code == 2 and "rbln_driver_replace" in run.failed()[-1].msg and run.changed() == []
    bare.state[E] = "done"


def test_the_small_playbooks_on_a_finished_host(bare: Hosts) -> None:
    bare.done(E)
    before = fingerprint(bare.lab, E)
    plan = ("playbooks/plan.yml", "playbooks/validate.yml", "-e", "rbln_plan_exit=true")
    run = play("discover", bare.inventory(E), *plan).unchanged([E])
    untouched(bare, E, before)
    assert run.one("Show the hosts", E).data["hosts"][E]["state"] == "ok"
    assert "  nothing to do" in run.one("Show the plan", E).data["msg"]
    proof = run.one("Prove the host and write the ready files", E).data["ansible_facts"]["rbln_proof"]
    assert len(proof["checks"]) > 15 and {check["ok"] for check in proof["checks"] if check["severity"] == "error"} <= {
        True,
        None,
    }


def role_play(tmp_path: Path, *roles: str) -> Path:
    """A playbook with a play for each role, in the order given; a play knows nothing of the others but their facts."""
    book = [
        {
            "name": role,
            "hosts": "npu_nodes",
            "gather_facts": False,
            "tasks": [{"name": "Alone", "ansible.builtin.import_role": {"name": "rebellions.npu." + role}}],
        }
        for role in roles
    ]
    path = tmp_path / "role.yml"
    path.write_text(json.dumps(book))
    return path


def test_each_role_alone_on_a_finished_host(bare: Hosts, tmp_path: Path) -> None:
    bare.done(E)
    roles = ["rbln_validator", "rbln_container_toolkit", "rbln_driver", "rbln_preflight", "rbln_discover"]
    names = {"as-" + role.replace("_", "-"): role for role in roles}
    book = json.loads(role_play(tmp_path, *roles).read_text())
    for one, host in zip(book, names):
        one["hosts"] = host
    (tmp_path / "role.yml").write_text(json.dumps(book))
    run = play(
        tmp_path / "role.yml", bare.inventory(*names, host_vars={name: {"ansible_host": E} for name in names})
    ).unchanged(list(names))
    assert {one.play: one.host for one in run.results} == {role: host for host, role in names.items()}
    # One look each: there was no plan before, and nothing is left to do.
    assert len(run.executions) == len(roles), run.executions


def test_a_role_alone_is_not_misled_by_stale_facts(bare: Hosts, tmp_path: Path) -> None:
    """The cache says that everything is done; the host is virgin but for its driver."""
    bare.done(E)
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts")}
    play("discover", bare.inventory(E), env=cache).unchanged([E])
    cached = [path.read_text() for path in (tmp_path / "facts").glob("*" + E)]
    assert len(cached) == 1 and "rbln_observed" in cached[0]
    bare.virgin(E)
    bare.state[E] = "dirty"
    bare.lab.install_driver(E, "3.2.2")
    where = bare.inventory(E, rbln_driver_source="preinstalled")
    run = play(role_play(tmp_path, "rbln_container_toolkit"), where, env=cache).good([E])
    did = [task.split(" : ")[-1] for task in run.changed()]
    assert did == [
        "Host tool | Install the program with its units",
        "CDI | Write the spec",
        "Runtime | Switch CDI on",
        "Restart | Restart the unit",
    ], did
    play(role_play(tmp_path, "rbln_container_toolkit"), where, env=cache).unchanged([E])
    bare.lab.exec(E, "grep -q 'enable_cdi = true' /etc/containerd/config.toml && test -s /var/run/cdi/rbln.yaml")


def test_proxies_of_a_runtime_and_a_file_of_another_program_G02_H06(bare: Hosts, tmp_path: Path) -> None:
    """The running containerd has our proxies and those of its unit; a file of Puppet is refused, or said and edited."""
    bare.virgin(E)
    bare.state[E] = "dirty"
    bare.lab.install_driver(E, "3.2.2")
    config, book = "/etc/containerd/config.toml", role_play(tmp_path, "rbln_container_toolkit")
    dropin = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
    unit = '[Service]\nEnvironment="HTTP_PROXY=http://site:1" "NO_PROXY=registry.site,.svc"\n'
    bare.lab.exec(
        E, "sed -i '1i # This file is managed by Puppet. DO NOT EDIT.' %s; printf '%s' >%s" % (config, unit, dropin)
    )
    before = bare.lab.exec(E, "cat " + config).stdout
    given: Data = {
        "rbln_driver_source": "preinstalled",
        "rbln_container_toolkit_runtime_proxies": True,
        "rbln_http_proxy": "http://ours:2",
        "rbln_https_proxy": "http://u:hunted-word@ours:2",
        "rbln_cluster_cidrs": ["10.96.0.0/12"],
    }
    run = play(book, bare.inventory(E, rbln_container_toolkit_owned_config="fail", **given))
    assert run.code == 2 and run.changed() == []
    assert "%s is written by Puppet, which may undo the change" % config in run.failed()[-1].msg
    assert "Make the same change in the Puppet manifest" in run.failed()[-1].msg
    assert bare.lab.exec(E, "cat " + config).stdout == before
    where = bare.inventory(E, **given)
    run = play(book, where, "--diff").good([E])
    assert config + " is written by Puppet" in run.warnings() and "Skipped" not in run.warnings()
    did = [task.split(" : ")[-1] for task in run.changed()]
    order = ["Proxies | Write the drop-ins", "Runtime | Switch CDI on", "Restart | Restart the unit"]
    assert [task for task in did if task in order] == order, did
    assert "hunted-word" not in run.out + run.err and "********" in run.out
    pid = bare.lab.exec(E, "systemctl show -P MainPID containerd").stdout.strip()
    environ = bare.lab.exec(E, "tr '\\0' '\\n' </proc/%s/environ" % pid).stdout.splitlines()
    have = dict(line.split("=", 1) for line in environ if "=" in line)
    assert have["HTTP_PROXY"] == "http://site:1" and "http_proxy" not in have
    assert have["HTTPS_PROXY"] == have["https_proxy"] == given["rbln_https_proxy"]
    assert have["NO_PROXY"] == have["no_proxy"] and have["NO_PROXY"].startswith("registry.site,.svc,")
    assert {E, ".cluster.local", "10.96.0.0/12", "127.0.0.1"} <= set(have["NO_PROXY"].split(","))
    assert "hunted" not in bare.lab.exec(E, "systemctl show containerd; systemctl cat containerd").stdout
    mode = bare.lab.exec(E, "stat -c %a /etc/systemd/system/containerd.service.d/zz-rbln-proxy.env").stdout
    assert mode.strip() == "600"
    play(book, where).unchanged([E])
    # Other proxies of a converged host: one restart, and a proof. The role alone has left no ready file to remove.
    third: Data = {**given, "rbln_https_proxy": "http://u:hunted-word@ours:3"}
    other = bare.inventory(E, **third)
    run = play(book, other).good([E])
    did = [task.split(" : ")[-1] for task in run.changed()]
    assert did == [order[0], order[2]], did
    assert "hunted-word" not in run.out + run.err
    play(book, other).unchanged([E])
    # Values with which the runtime does not start: those of the run before are back, and it runs with them. systemd
    # allows one start in a minute here: a failed one must not count against the right one (moby 33931).
    folder = "/etc/systemd/system/containerd.service.d/"
    once = "[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=1\n"
    guard = once + "[Service]\nExecStartPre=/bin/sh -c '! grep ours:4 %szz-rbln-proxy.env'\n" % folder
    bare.lab.exec(E, 'printf "%s" >%sguard.conf' % (guard.replace("\n", "\\n"), folder))
    bad = bare.inventory(E, **{**given, "rbln_https_proxy": "http://u:hunted-word@ours:4"})
    run = play(book, bad)
    assert run.code == 2 and "containerd did not start with the new configuration" in run.failed()[-1].msg
    assert "What this run wrote is rolled back" in run.failed()[-1].msg and "hunted-word" not in run.out + run.err
    assert bare.lab.exec(E, "cat %szz-rbln-proxy.env" % folder).stdout.count("hunted-word@ours:3") == 2
    assert bare.lab.exec(E, "ls %s*.former || :; systemctl is-active containerd" % folder).stdout == "active\n"
    # One of the errors of every day: where the whole site runs, it is said once, at the end.
    whole = play("site", bad, env=TERMINAL)
    assert whole.code == 2
    one_message(whole, E, "Container toolkit: containerd did not start with the new", "journalctl -u containerd")
    bare.lab.exec(E, "rm %sguard.conf; systemctl daemon-reload" % folder)
    play(book, bare.inventory(E, **third)).unchanged([E])


def test_a_driver_from_package_files_for_docker_and_podman(bare: Hosts) -> None:
    bare.virgin(ENGINES)
    bare.state[ENGINES] = "dirty"
    names = ["apt/%s_3.2.2_amd64.deb" % name for name in DEBS]
    files = [{"path": str(payload_dir() / name), "sha256": sha256(name)} for name in names]
    where = bare.inventory(
        ENGINES, rbln_driver_source="package", rbln_driver_package_files=files, rbln_driver_package_absent=list(DEBS)
    )
    assert len(play("site", where).good([ENGINES]).changed()) > 5
    play("site", where).unchanged([ENGINES])

    def inside(engine: str, device: str, *more: str, check: bool = True) -> list[str]:
        argv = [
            engine,
            "run",
            "--rm",
            "--network=none",
            "--env=LD_LIBRARY_PATH=/opt/app/lib",
            *more,
            "--device",
            "rebellions.ai/npu=" + device,
            "lab.local/busybox:1",
            "sh",
            "-c",
            INSIDE,
        ]
        return bare.lab.exec(ENGINES, argv, check=check).stdout.split()

    for engine in ("docker", "podman"):
        bare.lab.exec(ENGINES, [engine, "load", "-q", "-i", "/opt/npu-lab/images/busybox.tar"])
        seen = inside(engine, "0")
        assert seen[0] == "/dev/rbln0" and "/dev/rbln1" not in seen, (engine, seen)
        assert any(word.endswith("/librbln-ml.so.3.2.2") or "librbln-ml.so" in word for word in seen), (engine, seen)
        assert seen[-2:] == LOADER, (engine, seen)
        everything = inside(engine, "all", "--read-only")
        assert {"/dev/rbln0", "/dev/rbln1"} <= set(everything) and everything[-2:] == LOADER, (engine, everything)
    # A look starts no docker that somebody has stopped, although systemd holds its socket (docker/cli 3780).
    bare.lab.exec(ENGINES, "systemctl stop docker")
    assert play("discover", where).code == 0
    states = bare.lab.exec(ENGINES, "systemctl is-active docker.socket docker || :").stdout.split()
    assert states == ["active", "inactive"], states
    bare.lab.exec(ENGINES, "systemctl start docker")
    play("remove", where).good([ENGINES])
    assert inside("docker", "0", check=False) == inside("podman", "0", check=False) == []


# A stand-in for the program of k3s, which hides its arguments, makes its containerd's configuration from a template and
# runs it; the containerd is a real one.
K3S = """#!/bin/bash
d=$K3S_DATA_DIR/agent
mkdir -p $d/etc/containerd
{ echo version = 2; grep -v template $d/etc/containerd/config.toml.tmpl; } >$d/etc/containerd/config.toml
containerd -c $d/etc/containerd/config.toml -a /run/k3s/containerd/containerd.sock --state /run/k3s/containerd \\
  --root $d/containerd &
exec -a "/usr/local/bin/k3s agent" cat < <(sleep infinity)
"""
AS_K3S = """
systemctl stop containerd
cat >/usr/local/bin/k3s && chmod 755 /usr/local/bin/k3s
mkdir -p /srv/k3s && echo K3S_DATA_DIR=/srv/k3s >/etc/k3s-node.env
printf '[Service]\\nEnvironmentFile=/etc/k3s-node.env\\nExecStart=/usr/local/bin/k3s agent\\n' \\
  >/etc/systemd/system/k3s-node.service
systemctl daemon-reload && systemctl start k3s-node
until [ -S /run/k3s/containerd/containerd.sock ]; do sleep 0.2; done
"""
# docker with its containerd; another containerd by arguments of a unit of the site, that a kubelet names; and a third
# one in a container that sees the processes and the files of the host.
BESIDE_DOCKER = """
mkdir -p /opt/site && echo version = 2 >/opt/site/config.toml
printf '[Service]\\nExecStart=/usr/bin/containerd --config /opt/site/config.toml --address /run/site/c.sock %s\\n' \\
  '--root /opt/site/root --state /run/site/state' >/etc/systemd/system/site-containerd.service
printf '[Service]\\nExecStart=/bin/bash -c "exec -a /usr/bin/kubelet python3 -c %s %s"\\n' \\
  "'import time; time.sleep(10**6)'" --container-runtime-endpoint=unix:///run/site/c.sock \\
  >/etc/systemd/system/kubelet.service
systemctl daemon-reload && systemctl start docker site-containerd kubelet
docker load -q -i /opt/npu-lab/images/busybox.tar
docker run -d --rm --name inner --privileged --pid=host -v /:/host lab.local/busybox:1 chroot /host \\
  /usr/bin/containerd --config /dev/null --address /tmp/inner.sock --root /tmp/inner --state /tmp/inner-state
until [ -S /run/site/c.sock ] && [ -S /tmp/inner.sock ]; do sleep 0.2; done
"""


def test_what_runs_is_configured_and_restarted_H02_k3s_unit_name_D01_multiple_runtimes(
    bare: Hosts, tmp_path: Path
) -> None:
    for host in (E, ENGINES):
        bare.state[host] = "dirty"
    bare.lab.exec(E, AS_K3S, stdin=K3S)
    bare.lab.exec(ENGINES, BESIDE_DOCKER)
    found = "{{ seen.ansible_facts.rbln_runtimes }}"
    tasks = [
        {"name": "Before", "rebellions.npu.rbln_runtime_detect": {}, "register": "seen"},
        {"name": "Write", "rebellions.npu.rbln_runtime_config": {"runtimes": found}, "register": "wrote"},
        {
            "name": "Restart",
            "ansible.builtin.systemd_service": {"name": "{{ item }}", "state": "restarted"},
            "loop": "{{ wrote.restart_units }}",
        },
        {"name": "Wait", "ansible.builtin.wait_for": {"path": "{{ socket }}"}},
        {"name": "After", "rebellions.npu.rbln_observe": {"scopes": ["toolkit"]}},
        {"name": "Again", "rebellions.npu.rbln_runtime_config": {}},
    ]
    (tmp_path / "runs.yml").write_text(
        json.dumps([{"name": "Runs", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}])
    )
    sockets = {E: "/run/k3s/containerd/containerd.sock", ENGINES: "/run/site/c.sock"}
    own = {host: {"socket": socket} for host, socket in sockets.items()}
    run = play(tmp_path / "runs.yml", bare.inventory(E, ENGINES, host_vars=own)).good([E, ENGINES])
    wanted = {
        E: ("k3s", "k3s-node", "/srv/k3s/agent/etc/containerd/config.toml.tmpl"),
        ENGINES: ("system", "site-containerd", "/opt/site/config.toml"),
    }
    for host, (flavor, unit, path) in wanted.items():
        before = run.one("Before", host).data["ansible_facts"]["rbln_runtimes"]
        serving = [item for item in before["runtimes"] if item["serves_kubelet"]]
        assert [(item["name"], item["flavor"], item["restart_unit"]) for item in serving] == [
            ("containerd", flavor, unit)
        ], before
        assert serving[0]["socket"] == sockets[host] and serving[0]["cdi"]["state"] == "off"
        assert run.one("Write", host).data["files"] == [path] and run.one("Write", host).data["judged"]
        assert run.one("Write", host).data["restart_units"] == [unit]
        facts = run.one("After", host).data["ansible_facts"]
        after = next(item for item in facts["rbln_runtimes"]["runtimes"] if item["serves_kubelet"])
        assert (after["cdi"]["state"], after["process_stale"], after["unit_state"]) == ("on", False, "active")
        # Asked of the process itself, over its socket.
        check = next(one for one in facts["rbln_observed"]["checks"] if one["name"] == "runtime_sees_spec")
        told = [item for item in check["evidence"]["runtimes"].values() if isinstance(item, dict)]
        assert [item["enabled"] for item in told] == [True], check
        assert run.one("Again", host).state == "ok"
    others = run.one("Before", ENGINES).data["ansible_facts"]["rbln_runtimes"]["runtimes"]
    assert [(item["flavor"], item["restart_unit"]) for item in others if item["name"] == "containerd"] == [
        ("docker-backend", "containerd"),
        ("system", "site-containerd"),
    ], "the one in the container is not the host's"


def signed_repository(folder: Path) -> Path:
    """A signed apt repository with the stand-in driver; the signing key is in key.asc."""
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", home, "--batch", "--passphrase", ""]
    command([*gpg, "--quick-generate-key", "lab <lab@example.com>", "rsa2048", "sign", "never"], 60)
    repo, pool = folder / "repo", payload_dir() / "apt"
    lists = repo / "dists/stable/main/binary-amd64"
    lists.mkdir(parents=True)
    index = (pool / "Packages").read_text().replace("Filename: ./", "Filename: pool/")
    (lists / "Packages").write_text(index)
    shutil.copytree(pool, repo / "pool")
    digest = command(["sha256sum", lists / "Packages"]).stdout.split()[0]
    head = (
        "Origin: lab\nSuite: stable\nCodename: stable\nArchitectures: amd64\nComponents: main\n"
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
    )
    (repo / "dists/stable/Release").write_text(
        head + " %s %d main/binary-amd64/Packages\n" % (digest, len(index.encode()))
    )
    command([*gpg, "--clearsign", "-o", repo / "dists/stable/InRelease", repo / "dists/stable/Release"], 60)
    (folder / "key.asc").write_text(command([*gpg, "--armor", "--export"]).stdout)
    command(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    return repo


def test_a_driver_from_a_repository_and_the_failure_budget(bare: Hosts, tmp_path: Path) -> None:
    bare.virgin(ENGINES, E)
    # The first host's driver does not build: with a budget of one the second is left alone.
    broken = {**runfile("3.4.1"), "rbln_failure_budget": "1", "rbln_serial": 1}
    run = play("site", bare.inventory(ENGINES, E, **broken), env=reporting())
    bare.state[ENGINES] = "dirty"
    assert run.code == 2 and "rbln_failure_budget is 1" in run.failed(E)[-1].msg, [one.msg for one in run.failed()]
    assert "3.4.1.run ended with code" in run.failed(ENGINES)[-1].msg
    failed, left = newest("site")["hosts"]
    assert (failed["name"], failed["state"], left["name"], left["state"]) == (ENGINES, "failed", E, "not reached")
    why = failed["failure"]
    assert why["task"] and "3.4.1.run ended with code" in why["cause"] and why["next_step"], why
    assert "rbln_failure_budget is 1" in left["reason"] and left["changes"] == [], left
    untouched(bare, E)
    bare.state[E] = "dirty"
    repo = signed_repository(tmp_path)
    command(["podman", "cp", str(repo), E + ":/srv/repo"])
    source: Data = {
        "url": "file:/srv/repo",
        "key": str(tmp_path / "key.asc"),
        "suite": "stable",
        "components": ["main"],
    }
    names = ["%s=3.2.2" % name for name in DEBS]
    where = bare.inventory(
        E, rbln_driver_source="package", rbln_driver_repository=source, rbln_driver_package_names=names
    )
    play("site", where).good([E])
    play("site", where).unchanged([E])
    assert (
        bare.lab.exec(E, ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", "rebellions-kmd"]).stdout
        == "hi 3.2.2"
    )
    play("remove", where).good([E])
    rows = bare.lab.exec(E, ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"]).stdout.splitlines()
    assert len(rows) > 100 and [row for row in rows if row.startswith("installed") and row.split()[1] in DEBS] == []
    assert (
        bare.lab.exec(E, "ls /etc/apt/sources.list.d/rebellions* /etc/apt/keyrings/rebellions* 2>/dev/null || :").stdout
        == ""
    )
