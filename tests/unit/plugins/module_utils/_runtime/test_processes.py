# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs says which runtime it is, under units of any name; by hand where nothing says it. D05, H02, H04."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import detect_runtimes
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import (
    FRESH,
    STALE,
    Machine,
    case,
    only,
    whats,
)

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[5] / "docs" / "schemas" / "rbln_runtimes.schema.json").read_text(encoding="utf-8")
)
H02, H04, D05 = "H02-k3s-unit-name", "H04-k8s-snap", "D05-docker-snap"
K3S_DATA = "/var/lib/rancher/k3s"
K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
OFF = "version = 2\n"
HEX = "4f" * 32
POD_OF = "/machine.slice/libpod-%s.scope" % HEX


def detect(machine: Machine, **options: Any) -> dict[str, Any]:
    """Every answer of these tests also fits the schema."""
    answer = machine.detect(**options)
    jsonschema.validate(json.loads(json.dumps(answer)), SCHEMA)
    return answer


def slice_of(unit: str) -> str:
    return "/system.slice/%s.service" % unit


def processes_of(name: str, file: str) -> list[tuple[int, str, str]]:
    """(PID, command, control group) of each line of a case."""
    found = []
    for line in case(name, file).splitlines():
        match = re.match(r"pid ([0-9]+)\s+(?:argv: )?(.*?)(?:\s+cgroup: 0::(\S+))?$", line)
        if match:
            found.append((int(match.group(1)), match.group(2).strip(), match.group(3) or ""))
    assert found
    return found


def k3s(
    root: Path, unit: str = "k3s-node", role: str = "agent", data: str = K3S_DATA, group: str = "", running: bool = True
) -> Machine:
    """A k3s under a unit of any name, with its containerd; systemd is asked for known names only."""
    machine = Machine(root)
    machine.program(data + "/data/current/bin/containerd", "containerd x v1.7.27-k3s1 x\n")
    machine.write(data + "/agent/etc/containerd/config.toml", OFF)
    if running:
        group = group or slice_of(unit)
        machine.process(900, "'/usr/local/bin/k3s %s'" % role, group=group)
        command = "containerd -c %s/agent/etc/containerd/config.toml -a %s --root %s/agent/containerd"
        machine.process(950, command % (data, K3S_SOCKET, data), group=group)
        machine.socket(K3S_SOCKET)
    return machine


def test_h02_k3s_runs_under_a_unit_of_another_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for pid, command, group in processes_of(H02, "proc.txt"):
        machine.process(pid, command, group=group)
    machine.write("/etc/systemd/system/k3s-node.service", case(H02, "k3s-node.service"))
    machine.write(K3S_DATA + "/agent/etc/containerd/config.toml", case(H02, "config.toml"))
    machine.program(K3S_DATA + "/data/current/bin/containerd", "containerd x v1.7.27-k3s1 x\n")
    machine.socket(K3S_SOCKET)
    answer = detect(machine)
    found = only(answer)
    assert (found["flavor"], found["unit"], found["restart_unit"]) == ("k3s", "k3s-node.service", "k3s-node")
    assert (found["unit_state"], found["process_stale"], found["version"]) == ("active", False, "1.7.27-k3s1")
    assert (answer["kubelet"]["unit"], answer["kubelet"]["runtime_endpoint"]) == ("k3s-node.service", K3S_SOCKET)
    assert found["serves_kubelet"] and answer["ambiguous"] is None
    assert [argv[0] for argv in machine.asked].count("systemctl") == 0, "its file tells what its unit is"


@pytest.mark.parametrize(
    "first, group",
    [
        ("/", slice_of("k3s-x")),
        ("4:pids:/init.scope\n1:name=systemd:/init.scope\n", "3:cpu:/x\n1:name=systemd:%s\n0::/\n" % slice_of("k3s-x")),
        (POD_OF + "/init.scope", POD_OF + slice_of("k3s-x")),
        ("/lxc.payload.node/init.scope", "/lxc.payload.node" + slice_of("k3s-x")),
        ("/", slice_of("k3s-x") + "/init"),
    ],
    ids=["unified", "hybrid", "in-a-container", "in-lxc", "delegated"],
)
def test_h02_the_unit_is_that_of_the_control_group(first: str, group: str, tmp_path: Path) -> None:
    machine = k3s(tmp_path, group=group)
    machine.process(1, "/sbin/init", group=first)
    machine.unit("k3s-x.service", "/usr/local/bin/k3s server")
    found = only(detect(machine))
    assert (found["flavor"], found["restart_unit"]) == ("k3s", "k3s-x")


def test_h02_without_a_file_systemd_is_asked_for_the_unit(tmp_path: Path) -> None:
    machine = k3s(tmp_path)
    machine.unit("k3s-node.service", "/usr/local/bin/k3s agent --token x", pid=900)
    found = only(detect(machine))
    assert (found["restart_unit"], found["unit_flags"]) == ("k3s-node", ["agent", "--token", "x"])


@pytest.mark.parametrize("group", ["/user.slice/user-0.slice/session-3.scope", "/k3s"])
def test_h02_started_by_hand_it_has_no_unit(group: str, tmp_path: Path) -> None:
    machine = k3s(tmp_path, group=group)
    machine.write("/etc/systemd/system/k3s-node.service", case(H02, "k3s-node.service"))
    machine.unit("k3s.service", "/usr/local/bin/k3s server", active="inactive")
    found = only(detect(machine))
    assert (found["flavor"], found["unit"], found["restart_unit"]) == ("k3s", None, None)
    assert found["changes"] and found["serves_kubelet"]


def test_h02_a_former_unit_of_the_known_name_is_not_restarted(tmp_path: Path) -> None:
    machine = k3s(tmp_path)
    machine.unit("k3s-agent.service", "/usr/local/bin/k3s agent", active="inactive")
    machine.write("/etc/systemd/system/k3s-node.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n")
    answer = detect(machine)
    assert only(answer)["restart_unit"] == "k3s-node" and answer["kubelet"]["unit"] == "k3s-node.service"


UNIT = "[Service]\nEnvironmentFile=-/etc/systemd/system/%%N.service.env\n%sExecStart=/usr/local/bin/%s\n"


@pytest.mark.parametrize(
    "name, more, command, files",
    [
        ("k3s", "", "k3s server --data-dir=/srv/d", {}),
        ("k3s", "", "k3s agent -d /srv/d/", {}),
        ("k3s", "Environment=K3S_DATA_DIR=/srv/d\n", "k3s server", {}),
        ("k3s", "", "k3s server", {"/etc/systemd/system/site-kube.service.env": "K3S_DATA_DIR=/srv/d\n"}),
        ("k3s", "", "k3s server", {"/etc/rancher/k3s/config.yaml": "data-dir: /srv/d\n"}),
        ("k3s", "", "k3s server", {"/etc/rancher/k3s/config.yaml.d/10.yml": "data-dir: /srv/d\n"}),
        ("k3s", "", "k3s server -c /opt/k.yaml", {"/opt/k.yaml": "data-dir: /srv/d\n"}),
        ("k3s", "Environment=K3S_CONFIG_FILE=/opt/k.yaml\n", "k3s server", {"/opt/k.yaml": "data-dir: /srv/d\n"}),
        ("k3s", "Environment=K3S_DATA_DIR=/no\n", "k3s server", {"/etc/rancher/k3s/config.yaml": "data-dir: /srv/d\n"}),
        ("rke2", "Environment=RKE2_DATA_DIR=/srv/d\n", "rke2 agent", {}),
        ("rke2", "", "rke2 server --data-dir /srv/d", {"/etc/rancher/rke2/config.yaml": "data-dir: /no\n"}),
        ("k0s", "", "k0s worker --data-dir=/srv/d", {}),
        ("k0s", "Environment=WHERE=/srv/d\n", "k0s worker -d --data-dir ${WHERE}", {}),
    ],
    ids=[
        "D02-k3s-rke2-paths-" + name
        for name in (
            "flag", "short-flag", "environment", "environment-file", "config", "drop-in-yml", "config-by-flag",
            "config-by-environment", "config-beats-environment", "rke2-environment", "rke2-flag", "k0s-flag",
            "k0s-variable",
        )
    ],
)  # fmt: skip
def test_h02_a_stopped_unit_of_any_name_says_where_the_data_is(
    name: str, more: str, command: str, files: dict[str, str], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.write("/etc/systemd/system/site-kube.service", UNIT % (more, command))
    for path, text in files.items():
        machine.write(path, text)
    below = "data/current/bin" if name == "k3s" else "bin"
    machine.program("/srv/d/%s/containerd" % below, "containerd x v1.7.27 y\n")
    machine.write("/etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n")
    machine.write("/srv/d/agent/etc/containerd/config.toml", OFF)
    answer = detect(machine)
    found = only(answer, flavor=name)
    assert (found["version"], found["restart_unit"], found["unit_state"]) == ("1.7.27", "site-kube", "inactive")
    config = "/etc/k0s/containerd.toml" if name == "k0s" else "/srv/d/agent/etc/containerd/config.toml"
    assert found["config_files"] == [config] and found["serves_kubelet"]
    assert answer["kubelet"]["root_dir"] == ("/srv/d/kubelet" if name == "k0s" else "/var/lib/kubelet")


def test_h02_the_environment_of_the_process_says_where_the_data_is(tmp_path: Path) -> None:
    machine = k3s(tmp_path, data="/srv/d")
    machine.process(950, "/bin/true")
    machine.process(900, "'/usr/local/bin/k3s server'", group=slice_of("k3s-x"), environ="K3S_DATA_DIR=/srv/d A=b")
    assert only(detect(machine))["main_config"] == "/srv/d/agent/etc/containerd/config.toml"


@pytest.mark.parametrize("group", [slice_of("k3s"), slice_of("k3s-node"), "/user.slice/x.scope"])
@pytest.mark.parametrize("own", [False, True])
def test_d02_k3s_with_its_data_elsewhere_is_no_second_containerd(own: bool, group: str, tmp_path: Path) -> None:
    """Newer releases of k3s give the socket in the generated file, not in the command line."""
    machine = k3s(tmp_path, data="/srv/d", group=group)
    config = "/srv/d/agent/etc/containerd/config.toml"
    machine.process(900, "'/usr/local/bin/k3s server'", group=group, environ="K3S_DATA_DIR=/srv/d")
    machine.process(950, "containerd -c " + config, group=group)
    if own:
        machine.program("/usr/bin/containerd", "containerd x v1.7.24 y\n")
        machine.process(960, "/usr/bin/containerd", group=slice_of("site-containerd"), file="/usr/bin/containerd")
    found = {item["flavor"]: item["main_config"] for item in detect(machine)["runtimes"]}
    assert found == {"k3s": config, **({"system": CONFIG} if own else {})}


def test_d02_rke2_with_its_data_elsewhere_and_a_kubelet_of_its_own(tmp_path: Path) -> None:
    """rancher/rke2 6266 shows this command line."""
    machine = Machine(tmp_path)
    group = slice_of("rke2-server")
    machine.unit("rke2-server.service", "/usr/local/bin/rke2 server", pid=10)
    machine.process(10, "'/usr/local/bin/rke2 server'", group=group)
    command = "containerd -c /kubernetes/agent/etc/containerd/config.toml -a %s --state /run/k3s/containerd"
    program = "/kubernetes/data/v1.28.10-rke2r1-aa/bin/containerd"
    machine.program(program, "containerd github.com/k3s-io/containerd v1.7.17-k3s1 x\n")
    machine.process(11, command % K3S_SOCKET, group=group, file=program)
    machine.process(
        12, "kubelet --root-dir=/data/kubelet --container-runtime-endpoint=unix://" + K3S_SOCKET, group=group
    )
    machine.socket(K3S_SOCKET)
    machine.write("/kubernetes/agent/etc/containerd/config.toml", OFF)
    answer = detect(machine)
    found = only(answer)
    assert (found["flavor"], found["binary"], found["restart_unit"]) == ("rke2", program, "rke2-server")
    assert found["edit_target"]["path"] == "/kubernetes/agent/etc/containerd/config.toml.tmpl"
    assert (answer["kubelet"]["unit"], answer["kubelet"]["root_dir"]) == ("rke2-server.service", "/data/kubelet")
    assert answer["kubernetes_runtime_source"] == "the command line of the running kubelet"


def test_d02_k0s_with_its_data_elsewhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    group = slice_of("k0s-edge")
    machine.process(20, "/usr/local/bin/k0s worker --data-dir=/data/k0s --token-file=/x", group=group)
    machine.program("/data/k0s/bin/containerd", "containerd github.com/containerd/containerd v1.7.27 x\n")
    command = "/data/k0s/bin/containerd --root=/data/k0s/containerd --address=%s --config=/etc/k0s/containerd.toml"
    machine.process(21, command % "/run/k0s/containerd.sock", group=group)
    machine.process(22, "/data/k0s/bin/kubelet --root-dir=/data/k0s/kubelet --config=/data/k0s/k.yaml", group=group)
    machine.write("/data/k0s/k.yaml", "containerRuntimeEndpoint: unix:///run/k0s/containerd.sock\n")
    machine.write("/etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n")
    machine.socket("/run/k0s/containerd.sock")
    answer = detect(machine)
    found = only(answer)
    assert (found["flavor"], found["binary"], found["restart_unit"]) == ("k0s", "/data/k0s/bin/containerd", "k0s-edge")
    assert found["serves_kubelet"] and answer["kubelet"]["root_dir"] == "/data/k0s/kubelet"


@pytest.mark.parametrize("group", ["", "/k3s"], ids=["unit", "by-hand"])
@pytest.mark.parametrize("state", ["inactive", "failed", "activating"])
def test_h02_a_kubelet_that_does_not_run_says_nothing_beside_a_distribution(
    state: str, group: str, tmp_path: Path
) -> None:
    machine = k3s(tmp_path, group=group)
    machine.unit("kubelet.service", "/usr/bin/kubelet --container-runtime-endpoint=unix://" + SOCKET, active=state)
    machine.write("/var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=/x"\n')
    answer = detect(machine)
    assert answer["kubelet"]["unit"] == (None if group else "k3s-node.service")
    assert only(answer)["serves_kubelet"] and answer["kubelet"]["runtime_endpoint"] == K3S_SOCKET


def k8s_snap(root: Path, layout: str, groups: bool | None = True) -> Machine:
    """The snap; its units are known by control groups, or by main processes, or (None) by nothing but their names."""
    machine = Machine(root)
    for line in case(H04, "units.txt").splitlines():
        name, command = line.split(None, 1)
        pid = 2301 if "containerd" in name else 2401
        machine.unit(name, command.partition("=")[2], pid=0 if groups is None else pid)
    for pid, command, _group in processes_of(H04, layout + "/proc.txt"):
        group = slice_of("snap.k8s." + ("containerd" if pid == 2301 else "kubelet")) if groups else ""
        machine.process(pid, command, group=group, file=command.split()[0] if groups else "")
        if pid == 2301:
            words = command.split()
            machine.socket(words[words.index("--address") + 1])
            machine.write(words[words.index("--config") + 1], case(H04, layout + "/config.toml"))
    machine.program("/snap/k8s/4242/bin/containerd", "containerd github.com/containerd/containerd v1.7.27 abc\n")
    return machine


@pytest.mark.parametrize("groups", [True, False, None])
def test_h04_canonical_kubernetes_with_the_paths_of_the_host(groups: bool | None, tmp_path: Path) -> None:
    answer = detect(k8s_snap(tmp_path, "plain", groups))
    found = only(answer)
    assert (found["flavor"], found["version"], found["restart_unit"]) == ("k8s-snap", "1.7.27", "snap.k8s.containerd")
    assert found["binary"] == "/snap/k8s/4242/bin/containerd" and found["serves_kubelet"] and found["selected"]
    assert (found["cdi"]["state"], found["edit_target"]) == ("off", {"path": CONFIG, "kind": "main"})
    assert whats(found) == [(CONFIG, '[plugins."io.containerd.grpc.v1.cri"] enable_cdi = true')]
    assert answer["kubelet"]["unit"] == "snap.k8s.kubelet.service"
    assert answer["kubelet"]["root_dir"] == "/var/lib/kubelet"


@pytest.mark.parametrize("groups", [True, False, None])
def test_h04_canonical_kubernetes_beside_docker(groups: bool | None, tmp_path: Path) -> None:
    machine = k8s_snap(tmp_path, "basedir", groups)
    machine.program("/usr/bin/containerd", "containerd github.com/containerd/containerd v2.2.0 abc\n")
    machine.unit("containerd.service", "/usr/bin/containerd", pid=100)
    machine.process(100, "/usr/bin/containerd", group=slice_of("containerd"), file="/usr/bin/containerd")
    machine.program("/usr/bin/dockerd", "Docker version 29.1.0, build x\n")
    machine.unit("docker.service", "/usr/bin/dockerd -H fd:// --containerd=" + SOCKET, pid=300)
    machine.socket(SOCKET, "/run/docker.sock")
    answer = detect(machine)
    base = "/var/lib/k8s-containerd/k8s-containerd"
    serving = [item for item in answer["runtimes"] if item["serves_kubelet"]]
    assert [(item["flavor"], item["main_config"], item["socket"]) for item in serving] == [
        ("k8s-snap", base + CONFIG, base + SOCKET)
    ]
    assert serving[0]["restart_unit"] == "snap.k8s.containerd" and serving[0]["version"] == "1.7.27"
    assert serving[0]["edit_target"] == {"path": base + CONFIG, "kind": "main"}
    others = [(item["name"], item["flavor"], item["selected"]) for item in answer["runtimes"] if item not in serving]
    assert others == [("containerd", "docker-backend", False), ("docker", "system", False)]
    assert answer["ambiguous"] is None


def test_k8s_snap_1991_what_the_written_file_imports_is_used_wherever_it_is(tmp_path: Path) -> None:
    """The snap writes its file below another base again, with the usual directory of drop-ins in it."""
    machine = k8s_snap(tmp_path, "basedir")
    machine.program("/snap/k8s/4242/bin/containerd", "containerd github.com/containerd/containerd v2.1.5 abc\n")
    config = "/var/lib/k8s-containerd/k8s-containerd" + CONFIG
    imports = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    machine.write(config, imports + '[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n')
    found = next(item for item in detect(machine)["runtimes"] if item["selected"])
    assert found["edit_target"] == {"path": "/etc/containerd/conf.d/99-rbln.toml", "kind": "dropin"}
    assert [change["path"] for change in found["changes"]] == ["/etc/containerd/conf.d/99-rbln.toml"]


def test_h04_a_stopped_snap_has_its_arguments_in_files(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for name in ("containerd", "kubelet"):
        machine.unit("snap.k8s.%s.service" % name, "/usr/bin/snap run k8s." + name, active="inactive")
    arguments = "/var/snap/k8s/common/args/"
    machine.write(arguments + "containerd", '--address=/b/c.sock\n--config="/b/config.toml"\n')
    machine.write(arguments + "kubelet", "--container-runtime-endpoint=/b/c.sock\n--root-dir=/b/kubelet\n")
    machine.write("/b/config.toml", case(H04, "plain/config.toml"))
    machine.program("/snap/k8s/current/bin/containerd", "containerd x v1.7.27 abc\n")
    answer = detect(machine)
    found = only(answer)
    assert (found["flavor"], found["main_config"], found["socket"]) == ("k8s-snap", "/b/config.toml", "/b/c.sock")
    assert (found["version"], found["serves_kubelet"]) == ("1.7.27", True)
    assert answer["kubelet"]["root_dir"] == "/b/kubelet"


def docker_snap(root: Path, pid: int = 0) -> Machine:
    machine = Machine(root)
    machine.write(case(D05, "which.txt").strip(), "")
    for path in case(D05, "tree.txt").split():
        machine.write(path, "{}")
    words = case(D05, "units.txt").split()
    machine.unit(words[0], "/usr/bin/snap run docker.dockerd", active=words[2], pid=pid)
    machine.socket("/run/docker.sock")
    return machine


SNAP_CONFIG = "/var/snap/docker/current/config/daemon.json"


@pytest.mark.parametrize("version, changes", [("28.4.0", []), ("27.5.1", [(SNAP_CONFIG, "features.cdi = true")])])
def test_d05_docker_of_a_snap_has_another_file(version: str, changes: list[Any], tmp_path: Path) -> None:
    machine = docker_snap(tmp_path)
    machine.answer(["/snap/bin/docker", "info", "--format", "{{json .}}"], json.dumps({"ServerVersion": version}))
    found = only(detect(machine), "docker")
    assert (found["flavor"], found["restart_unit"]) == ("snap", "snap.docker.dockerd")
    assert (found["main_config"], whats(found)) == (SNAP_CONFIG, changes)
    assert found["binary"] is None and any("is a snap" in warning for warning in found["warnings"])


def test_d05_the_process_of_the_snap_says_its_file(tmp_path: Path) -> None:
    machine = docker_snap(tmp_path, 300)
    group = slice_of("snap.docker.dockerd")
    (tmp_path / "var/snap/docker/current").rename(tmp_path / "var/snap/docker/3265")
    (tmp_path / "var/snap/docker/current").symlink_to("3265")
    machine.process(
        300, "dockerd --group docker --config-file=/var/snap/docker/3265/config/daemon.json", group=group,
        file="/snap/docker/3265/bin/dockerd",
    )  # fmt: skip
    machine.process(301, "containerd --config /run/snap.docker/containerd/containerd.toml", group=group)
    machine.write("/snap/docker/current/meta/snap.yaml", "name: docker\nversion: '28.4.0'\n")
    for pid, space in ((1, "mnt:[1]"), (300, "mnt:[2]"), (301, "mnt:[2]")):
        (tmp_path / ("proc/%d/ns" % pid)).mkdir(parents=True)
        (tmp_path / ("proc/%d/ns/mnt" % pid)).symlink_to(space)
    answer = detect(machine)
    found = only(answer, "docker")
    assert (found["main_config"], found["version"], found["flavor"]) == (SNAP_CONFIG, "28.4.0", "snap")
    assert [item["name"] for item in answer["runtimes"]] == ["docker"], "its containerd is part of it"


def test_d05_a_tree_shows_the_snap_by_its_files(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(SNAP_CONFIG, '{"features": {"cdi": true}}')
    machine.write("/snap/docker/current/meta/snap.yaml", "version: 27.5.1\n")
    found = only(machine.detect(commands=False), "docker")
    assert (found["flavor"], found["version"], found["cdi"]["state"]) == ("snap", "27.5.1", "on")


KUBELET = "/usr/bin/kubelet --container-runtime-endpoint=unix:///run/kube/containerd.sock"


def two_containerds(root: Path, running: bool = True) -> Machine:
    """docker with the containerd of the package, and another one for Kubernetes with a unit of the site."""
    machine = Machine(root)
    machine.containerd("2.2.0", "version = 3\n")
    machine.program("/usr/bin/dockerd", "Docker version 29.1.0, build x\n")
    machine.unit("docker.service", "/usr/bin/dockerd", pid=300)
    command = "/opt/kube/bin/containerd -c /opt/kube/config.toml --address /run/kube/containerd.sock"
    machine.program("/opt/kube/bin/containerd", "containerd github.com/containerd/containerd v1.7.24 abc\n")
    machine.write("/etc/systemd/system/kube-containerd.service", "[Service]\nExecStart=%s\n" % command)
    machine.write("/opt/kube/config.toml", OFF)
    if running:
        machine.socket("/run/kube/containerd.sock")
        machine.process(500, command, group=slice_of("kube-containerd"), file="/opt/kube/bin/containerd")
    machine.unit("kubelet.service", KUBELET, pid=200)
    machine.process(200, KUBELET, group=slice_of("kubelet"))
    return machine


@pytest.mark.parametrize("running", [True, False])
def test_d01_docker_and_kubernetes_have_a_containerd_each(running: bool, tmp_path: Path) -> None:
    answer = detect(two_containerds(tmp_path, running))
    found = next(item for item in answer["runtimes"] if item["serves_kubelet"])
    assert (found["name"], found["flavor"], found["version"]) == ("containerd", "system", "1.7.24")
    assert (found["main_config"], found["restart_unit"]) == ("/opt/kube/config.toml", "kube-containerd")
    assert whats(found) == [("/opt/kube/config.toml", '[plugins."io.containerd.grpc.v1.cri"] enable_cdi = true')]
    other = only(answer, "containerd", "docker-backend")
    assert (other["restart_unit"], other["selected"], other["changes"]) == ("containerd", False, [])


def test_d01_a_drop_in_goes_beside_the_file_of_its_containerd(tmp_path: Path) -> None:
    machine = two_containerds(tmp_path)
    machine.program("/opt/kube/bin/containerd", "containerd github.com/containerd/containerd v2.1.5 abc\n")
    machine.write("/opt/kube/config.toml", "version = 3\n")
    found = next(item for item in detect(machine, spec_dir="/opt/cdi")["runtimes"] if item["serves_kubelet"])
    assert found["edit_target"] == {"path": "/opt/kube/conf.d/99-rbln.toml", "kind": "dropin"}
    assert ("/opt/kube/config.toml", 'imports with "/opt/kube/conf.d/*.toml"') in whats(found)


def test_d01_two_containerds_without_a_kubelet_are_told_apart_by_hand(tmp_path: Path) -> None:
    machine = two_containerds(tmp_path)
    for name in ("kubelet.service", "docker.service"):
        del machine.units[name]
    (tmp_path / "proc/200/cmdline").unlink()
    (tmp_path / "usr/bin/dockerd").unlink()
    for options in ({}, {"runtimes": ("containerd",)}):
        answer = detect(machine, **options)
        assert answer["ambiguous"]["candidates"] == ["containerd", "containerd"]
        assert "its socket or its unit" in answer["ambiguous"]["next_step"]
    for given in ({"unit": "kube-containerd.service"}, {"socket": "/run/kube/containerd.sock"}):
        answer = detect(machine, runtimes=("containerd",), **given)
        assert [item["main_config"] for item in answer["runtimes"] if item["selected"]] == ["/opt/kube/config.toml"]
        assert answer["ambiguous"] is None


@pytest.mark.parametrize(
    "pid, command, group, space",
    [
        (700, "/usr/local/bin/containerd", "/system.slice/docker-%s.scope/system.slice/containerd.service" % HEX, ""),
        (701, "containerd --config /x", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope" % HEX, ""),
        (702, "/usr/bin/containerd", "", "pid:[9]"),
        (703, "dockerd --config-file=/x", "/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service", ""),
        (704, "'/usr/bin/k3s server'", "1:name=systemd:/docker/%s\n0::/\n" % HEX, ""),
        (705, "crio", "/machine.slice/libpod-%s.scope/container" % HEX, ""),
        (706, "/usr/bin/kubelet --container-runtime-endpoint=/no", "/lxc.payload.c1/system.slice/kubelet.service", ""),
    ],
    ids=["kind", "pod-with-the-hosts-pids", "pid-namespace", "rootless", "k3d", "podman", "lxc"],
)
def test_programs_in_containers_are_not_the_hosts(
    pid: int, command: str, group: str, space: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.process(pid, command, group=group)
    if space:
        for number, name in ((1, "pid:[1]"), (pid, space)):
            (tmp_path / ("proc/%d/ns" % number)).mkdir(parents=True)
            (tmp_path / ("proc/%d/ns/pid" % number)).symlink_to(name)
    answer = detect(machine)
    assert answer["runtimes"] == [] and answer["kubelet"]["present"] is False
    machine.process(pid, command, group=slice_of("site"))
    if space:
        (tmp_path / ("proc/%d/ns/pid" % pid)).unlink()
    answer = detect(machine)
    assert answer["runtimes"] or answer["kubelet"]["present"], "the same outside of a container is"


@pytest.mark.parametrize("users", ["1000 1000 1000 1000", "1000 0 0 0", "0 1000 0 1000"])
def test_what_a_user_runs_is_neither_believed_nor_started(users: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    file = "/home/mallory/containerd"
    machine.program(file, "containerd x v1.7.24 y\n")
    machine.process(700, "containerd --config /home/mallory/c.toml", group="/user.slice/session-1.scope", file=file)
    machine.write("/proc/700/status", "Name:\tcontainerd\nUid:\t%s\n" % users.replace(" ", "\t"))
    assert detect(machine)["runtimes"] == []
    assert machine.asked == []
    machine.write("/proc/700/status", "Name:\tcontainerd\nUid:\t0\t0\t0\t0\n")
    assert only(detect(machine))["binary"] == file


def test_a_wrapper_is_seen_through(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.unit("containerd.service", "/usr/local/sbin/start-containerd", pid=100)
    machine.process(100, "/bin/sh /usr/local/sbin/start-containerd", group=slice_of("containerd"))
    machine.process(101, "/opt/bin/containerd --config /opt/c.toml", group=slice_of("containerd"))
    machine.program("/opt/bin/containerd", "containerd x v1.7.24 y\n")
    machine.write("/opt/c.toml", OFF)
    found = only(detect(machine))
    assert (found["main_config"], found["binary"], found["restart_unit"]) == (
        "/opt/c.toml",
        "/opt/bin/containerd",
        "containerd",
    )
    assert found["unit_flags"] == ["--config", "/opt/c.toml"]


@pytest.mark.parametrize("after_boot, config, stale", [(FRESH, "/opt/run.toml", False), (STALE, "/opt/new.toml", True)])
def test_arguments_of_the_process_unless_its_unit_has_changed_since(
    after_boot: float, config: str, stale: bool, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.unit("containerd.service", "/usr/bin/containerd -c /opt/new.toml", pid=100, FragmentPath="/etc/x.service")
    machine.write("/etc/x.service", "")
    machine.process(100, "/usr/bin/containerd -c /opt/run.toml", after_boot)
    machine.program("/usr/bin/containerd", "containerd x v1.7.24 y\n")
    for path in ("/opt/new.toml", "/opt/run.toml"):
        machine.write(path, OFF)
    found = only(detect(machine))
    assert (found["main_config"], found["process_stale"]) == (config, stale)
    assert any("has changed since its process started" in warning for warning in found["warnings"]) is stale


@pytest.mark.parametrize(
    "unit, running, planned, stale",
    [
        ("containerd", "/usr/bin/containerd", "/usr/bin/containerd --log-level debug", False),
        ("containerd", "/usr/bin/containerd -c /etc/containerd/config.toml", "/usr/bin/containerd -l debug", False),
        ("containerd", "/usr/bin/containerd --config=/o.toml", "/usr/bin/containerd -c /o.toml --root /data", False),
        ("containerd", "/usr/bin/containerd", "/usr/bin/containerd --config /opt/new.toml", True),
        ("containerd", "/usr/bin/containerd", "/usr/bin/containerd --address /run/new.sock", True),
        ("docker", "/usr/bin/dockerd -H fd://", "/usr/bin/dockerd -H fd:// --log-level=debug --mtu 1400", False),
        ("docker", "/usr/bin/dockerd -H fd://", "/usr/bin/dockerd -H fd:// --feature cdi=true", True),
        ("docker", "/usr/bin/dockerd -H fd://", "/usr/bin/dockerd -H fd:// --cdi-spec-dir /opt/cdi", True),
        ("crio", "/usr/bin/crio", "/usr/bin/crio --log-level debug --metrics-port 9", False),
        ("crio", "/usr/bin/crio", "/usr/bin/crio -d /opt/crio.d", True),
    ],
)
def test_only_arguments_that_count_here_make_a_process_stale(
    unit: str, running: str, planned: str, stale: bool, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.unit("%s.service" % unit, planned, pid=100, FragmentPath="/etc/x.service")
    machine.write("/etc/x.service", "")
    machine.process(100, running, STALE)
    says = {"containerd": "containerd x v2.1.4 y\n", "docker": "Docker version 28.3.0, build x\n"}
    machine.program(planned.split()[0], says.get(unit, "crio version 1.32.1\n"))
    found = detect(machine)["runtimes"][0]
    told = any("has changed since its process started" in warning for warning in found["warnings"])
    assert (told, found["process_stale"]) == (stale, stale)


def test_a_docker_that_answers_knows_better_than_its_unit(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.unit("docker.service", "/usr/bin/dockerd -H unix:///run/x.sock", pid=100, FragmentPath="/etc/x.service")
    machine.write("/etc/x.service", "")
    machine.process(100, "/usr/bin/dockerd -H fd://", STALE)
    machine.program("/usr/bin/dockerd", "Docker version 28.3.0, build x\n")
    machine.program("/usr/bin/docker")
    info = json.dumps({"ServerVersion": "28.3.0", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]})
    machine.answer(["/usr/bin/docker", "info", "--format", "{{json .}}"], info)
    assert only(detect(machine), "docker")["process_stale"] is False


@pytest.mark.parametrize("environ", [False, True])
def test_crio_under_another_unit_with_its_environment(environ: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/usr/local/bin/crio", "crio version 1.32.1\n")
    given = "CONTAINER_CONFIG_DIR=/opt/crio.d CONTAINER_LISTEN=/run/site/crio.sock CONTAINER_CDI_SPEC_DIRS=/opt/cdi"
    unit = "[Service]\nExecStart=/usr/local/bin/crio\n"
    machine.write("/etc/systemd/system/site-crio.service", unit + ("" if environ else "Environment=%s\n" % given))
    machine.process(
        400, "/usr/local/bin/crio", group=slice_of("site-crio"), environ=given if environ else "",
        file="/usr/local/bin/crio",
    )  # fmt: skip
    machine.socket("/run/site/crio.sock")
    command = "/usr/bin/kubelet --container-runtime-endpoint=unix:///run/site/crio.sock"
    machine.process(200, command, group=slice_of("site-kubelet"))
    answer = detect(machine)
    found = only(answer, "cri-o")
    assert (found["restart_unit"], found["socket"]) == ("site-crio", "/run/site/crio.sock") and found["serves_kubelet"]
    assert (found["edit_target"]["path"], found["cdi"]["spec_dirs"]) == ("/opt/crio.d/99-rbln.conf", ["/opt/cdi"])
    assert answer["kubelet"]["unit"] == "site-kubelet.service"


def test_dockerd_under_another_unit(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/opt/docker/dockerd", "Docker version 27.5.1, build x\n")
    command = "/opt/docker/dockerd --config-file /opt/docker/daemon.json -H unix:///run/site/docker.sock"
    machine.process(300, command, group=slice_of("site-docker"), file="/opt/docker/dockerd")
    machine.socket("/run/site/docker.sock")
    found = only(detect(machine), "docker")
    assert (found["restart_unit"], found["socket"]) == ("site-docker", "/run/site/docker.sock")
    assert whats(found) == [("/opt/docker/daemon.json", "features.cdi = true")]


def test_d01_a_shim_of_docker_with_a_socket_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/usr/bin/dockerd", "Docker version 28.4.0, build x\n")
    machine.unit("docker.service", "/usr/bin/dockerd", pid=300)
    machine.process(310, "/usr/local/bin/cri-dockerd --container-runtime-endpoint=unix:///run/site/cri.sock")
    machine.kubelet("/usr/bin/kubelet --container-runtime-endpoint=unix:///run/site/cri.sock")
    answer = detect(machine)
    assert (answer["kubernetes_runtime"], answer["selected"], answer["ambiguous"]) == ("docker", ["docker"], None)


def test_a_unit_that_starts_its_program_through_env(tmp_path: Path) -> None:
    """Flatcar starts containerd so; what runs has an address and a file that the unit gives by variables."""
    machine = Machine(tmp_path)
    command = "containerd --config /usr/share/containerd/config.toml"
    machine.unit("containerd.service", "/usr/bin/env PATH=/x " + command, pid=100)
    machine.process(100, command, group=slice_of("containerd"), file="/usr/bin/containerd")
    machine.program("/usr/bin/containerd", "containerd x v1.7.24 y\n")
    machine.write("/usr/share/containerd/config.toml", OFF)
    machine.kubelet()
    found = only(detect(machine))
    assert (found["main_config"], found["unit_flags"]) == (
        "/usr/share/containerd/config.toml",
        ["--config", "/usr/share/containerd/config.toml"],
    )


def test_d01_the_kubelet_uses_a_link_to_the_socket(tmp_path: Path) -> None:
    """Flatcar's unit makes this link, and its kubelets use it."""
    machine = Machine(tmp_path)
    machine.containerd("1.7.24", OFF)
    link = tmp_path / "run/docker/libcontainerd/docker-containerd.sock"
    link.parent.mkdir(parents=True)
    link.symlink_to(SOCKET)
    machine.kubelet("/usr/bin/kubelet --container-runtime-endpoint=unix:///run/docker/libcontainerd/%s" % link.name)
    answer = detect(machine)
    assert only(answer)["serves_kubelet"] and answer["ambiguous"] is None


def test_a_kubelet_of_another_snap(tmp_path: Path) -> None:
    """Ubuntu's images for EKS have kubelet-eks, with the containerd of the system."""
    machine = Machine(tmp_path)
    machine.containerd("2.1.5", "version = 3\n")
    command = "/snap/kubelet-eks/203/kubelet --container-runtime-endpoint=unix://" + SOCKET
    machine.process(200, command, group=slice_of("snap.kubelet-eks.daemon"))
    answer = detect(machine)
    assert answer["kubelet"]["unit"] == "snap.kubelet-eks.daemon.service" and only(answer)["serves_kubelet"]


def test_d04_microk8s_runs_from_a_revision_beside_the_snap_of_docker(tmp_path: Path) -> None:
    machine = docker_snap(tmp_path)
    (tmp_path / "var/snap/microk8s").mkdir(parents=True)
    (tmp_path / "var/snap/microk8s/current").symlink_to("8001")
    arguments, group = "/var/snap/microk8s/8001/args/", slice_of("snap.microk8s.daemon-containerd")
    for name in ("containerd.toml", "containerd-template.toml"):
        machine.write(arguments + name, case("D04-microk8s-template", "containerd-template.toml"))
    socket = "/var/snap/microk8s/common/run/containerd.sock"
    program = "/snap/microk8s/8001/bin/containerd"
    machine.program(program, "containerd x v1.7.27 y\n")
    machine.process(600, "%s --config %scontainerd.toml --address %s" % (program, arguments, socket), group=group)
    for name, pid in (("containerd", 600), ("kubelite", 0)):
        machine.unit("snap.microk8s.daemon-%s.service" % name, "/usr/bin/snap run microk8s.daemon-" + name, pid=pid)
    machine.socket(socket)
    answer = detect(machine)
    found = only(answer)
    assert (found["flavor"], found["version"], found["serves_kubelet"]) == ("microk8s", "1.7.27", True)
    assert found["main_config"] == "/var/snap/microk8s/current/args/containerd.toml" and found["selected"]
    assert found["edit_target"]["path"] == "/var/snap/microk8s/current/args/containerd-template.toml"
    assert only(answer, "docker")["selected"] is False


@pytest.mark.parametrize("name", ["k3s@edge.service", "k3s-server1.service"])
def test_h02_units_of_templates_and_of_names_that_the_installer_makes(name: str, tmp_path: Path) -> None:
    machine = k3s(tmp_path, group="/system.slice/system-k3s.slice/" + name)
    machine.unit(name, "/usr/local/bin/k3s server", pid=900)
    found = only(detect(machine))
    assert (found["flavor"], found["unit"]) == ("k3s", name)


def unknown(root: Path) -> Machine:
    """A kubelet that uses a socket of which nothing tells whose it is."""
    machine = Machine(root)
    machine.kubelet("/usr/bin/kubelet --container-runtime-endpoint=unix:///run/site/c.sock")
    machine.unit("site.service", "/usr/sbin/supervise everything", pid=800)
    machine.program("/usr/bin/containerd", "containerd github.com/containerd/containerd v2.1.5 abc\n")
    machine.write("/site/config.toml", 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n')
    return machine


def test_d01_by_hand_what_is_not_recognised(tmp_path: Path) -> None:
    machine = unknown(tmp_path)
    answer = detect(machine)
    assert "/run/site/c.sock" in answer["ambiguous"]["reason"] and "its unit" in answer["ambiguous"]["next_step"]
    given = {"config_file": "/site/config.toml", "socket": "/run/site/c.sock", "unit": "site.service"}
    answer = detect(machine, runtimes=("containerd",), **given)
    found = next(item for item in answer["runtimes"] if item["selected"])
    assert (found["main_config"], found["socket"]) == ("/site/config.toml", "/run/site/c.sock")
    assert (found["unit"], found["restart_unit"], found["unit_state"]) == ("site.service", "site", "active")
    assert found["edit_target"] == {"path": "/site/config.toml", "kind": "main"}
    assert found["serves_kubelet"] and answer["ambiguous"] is None
    answer = detect(machine, runtimes=("containerd",), dropin_dir="/site/d", **given)
    found = next(item for item in answer["runtimes"] if item["selected"])
    assert found["edit_target"] == {"path": "/site/d/99-rbln.toml", "kind": "dropin"}
    assert ("/site/config.toml", 'imports with "/site/d/*.toml"') in whats(found)
    machine.program("/usr/bin/containerd", "containerd github.com/containerd/containerd v1.7.24 abc\n")
    machine.write("/site/config.toml", OFF)
    answer = detect(machine, runtimes=("containerd",), dropin_dir="/site/d", **given)
    found = next(item for item in answer["runtimes"] if item["selected"])
    assert found["edit_target"] == {"path": "/site/config.toml", "kind": "main"}
    assert any(warning.startswith("/site/d is not used") for warning in found["warnings"])


def test_d01_by_hand_a_unit_for_what_runs_without_one(tmp_path: Path) -> None:
    machine = k3s(tmp_path, group="/k3s")
    machine.unit("supervised.service", "/usr/bin/supervise k3s", pid=1)
    found = only(detect(machine, runtimes=("containerd",), unit="supervised.service"))
    assert (found["flavor"], found["restart_unit"], found["serves_kubelet"]) == ("k3s", "supervised", True)
    assert found["edit_target"]["kind"] == "template" and found["refusal"] is None


def test_d01_by_hand_a_unit_that_is_not_there(tmp_path: Path) -> None:
    found = only(detect(k3s(tmp_path, group="/k3s"), runtimes=("containerd",), unit="no.service"))
    assert found["changes"] == [] and "this host has no such unit" in found["refusal"]["reason"]


def test_d01_by_hand_docker_and_crio(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/usr/bin/dockerd", "Docker version 27.5.1, build x\n")
    machine.program("/usr/bin/crio", "crio version 1.32.1\n")
    machine.unit("site.service", "/usr/sbin/supervise everything", pid=800)
    answer = detect(machine, runtimes=("docker",), config_file="/site/d.json", dropin_dir="/d", unit="site.service")
    found = only(answer, "docker")
    assert any(warning.startswith("/d is not used") for warning in found["warnings"])
    assert (found["restart_unit"], whats(found)) == ("site", [("/site/d.json", "features.cdi = true")])
    assert answer["selected"] == ["docker"]
    answer = detect(machine, runtimes=("cri-o",), dropin_dir="/site/crio.d", spec_dir="/opt/cdi", unit="site.service")
    assert only(answer, "cri-o")["edit_target"]["path"] == "/site/crio.d/99-rbln.conf"


class Listing(Host):
    """A host that notes which directories are listed."""

    listed: tuple[str, ...] = ()

    def listdir(self, path: str) -> Probe:
        self.listed += (path,)
        return super().listdir(path)


def test_the_usual_node_is_not_searched(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5", "version = 3\n")
    machine.kubelet()
    plain = machine.host()
    host = Listing(plain.root, plain._runner, plain.clock)
    assert only(detect_runtimes(host))["serves_kubelet"]
    assert host.listed.count("/etc/systemd/system") == 1, "which units are there, not what they start"
    assert "/proc" not in host.listed
