# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runtime matters: the kubelet's word, the only candidate, or an honest "ambiguous". Cases D01, P03."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import RuntimeOptions
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import detect_runtimes
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.kubelet import (
    endpoint_path,
    last_flag,
    top_level_scalars,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import Machine, case, only

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[5] / "docs" / "schemas" / "rbln_runtimes.schema.json").read_text(encoding="utf-8")
)
D01 = "D01-multiple-runtimes"
CRIO = "unix:///var/run/crio/crio.sock"


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Every answer of these tests also fits the schema and is plain JSON."""
    jsonschema.validate(json.loads(json.dumps(answer)), SCHEMA)
    return answer


def three(root: Path) -> Machine:
    machine = Machine(root)
    (root / "run").mkdir()
    (root / "var").mkdir()
    (root / "var/run").symlink_to("../run")
    machine.socket(*case(D01, "sockets.txt").split())
    return machine


def running_kubelet(machine: Machine, command: str) -> None:
    machine.unit("kubelet.service", "/usr/bin/kubelet $KUBELET_EXTRA_ARGS", pid=200)
    machine.process(200, command)


@pytest.mark.parametrize("name", [D01])
def test_the_kubelet_decides(name: str, tmp_path: Path) -> None:
    machine = three(tmp_path)
    running_kubelet(machine, case(name, "kubelet-cmdline.txt").strip())
    machine.write("/var/lib/kubelet/config.yaml", case(D01, "kubelet-config.yaml"))
    machine.write("/var/lib/kubelet/kubeadm-flags.env", case(D01, "kubeadm-flags.env"))
    answer = checked(machine.detect())
    assert [(item["name"], item["flavor"]) for item in answer["runtimes"]] == [
        ("containerd", "docker-backend"),
        ("docker", "system"),
        ("cri-o", "system"),
    ]
    assert (answer["kubernetes_runtime"], answer["kubernetes_runtime_source"]) == (
        "cri-o",
        "/var/lib/kubelet/config.yaml",
    )
    assert answer["selected"] == ["cri-o"]
    assert answer["ambiguous"] is None
    assert only(answer)["changes"] == [] and only(answer)["refusal"] is None


FLAG = "/usr/bin/kubelet --config=/etc/k.yaml --container-runtime-endpoint=unix:///run/containerd/containerd.sock"
YAML = "containerRuntimeEndpoint: %s\n" % CRIO
JSON = '{"containerRuntimeEndpoint": "%s"}' % CRIO
KUBEADM = 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=%s --x=y"\n' % CRIO


@pytest.mark.parametrize(
    "command, files, options, expected, source",
    [
        pytest.param(
            FLAG,
            {"/etc/k.yaml": YAML},
            {},
            "containerd",
            "the command line of the running kubelet",
            id="D01-flag-beats-config",
        ),
        pytest.param(FLAG, {}, {"kubelet_endpoint": CRIO}, "cri-o", "input", id="D01-input-beats-flag"),
        pytest.param(
            "/usr/bin/kubelet --config /etc/k.yaml",
            {
                "/etc/k.yaml": "a:\n  containerRuntimeEndpoint: no\n"
                '"containerRuntimeEndpoint": "/run/containerd/containerd.sock" # x\n',
                "/var/lib/kubelet/kubeadm-flags.env": KUBEADM,
            },
            {},
            "containerd",
            "/etc/k.yaml",
            id="D01-config-beats-kubeadm-flags",
        ),
        pytest.param(
            "/usr/bin/kubelet",
            {"/var/lib/kubelet/kubeadm-flags.env": KUBEADM},
            {},
            "cri-o",
            "/var/lib/kubelet/kubeadm-flags.env",
            id="D01-kubeadm-flags",
        ),
        pytest.param(
            "/usr/bin/kubelet --config=/etc/k.yaml --config-dir=/etc/k.d",
            {
                "/etc/k.yaml": "containerRuntimeEndpoint: /run/containerd/containerd.sock\n",
                "/etc/k.d/10-a.conf": YAML,
                "/etc/k.d/20.txt": "containerRuntimeEndpoint: /no\n",
            },
            {},
            "cri-o",
            "/etc/k.d/10-a.conf",
            id="config-directory",
        ),
        pytest.param(
            "/usr/bin/kubelet --config=/etc/k.json", {"/etc/k.json": JSON}, {}, "cri-o", "/etc/k.json", id="json-config"
        ),
        *(
            pytest.param(
                "/usr/bin/kubelet --config=/etc/k.yaml",
                {"/etc/k.yaml": text % CRIO},
                {},
                "cri-o",
                "/etc/k.yaml",
                id="D01-multiple-runtimes-" + name,
            )
            for name, text in (
                ("crlf", "---\r\nkind: KubeletConfiguration\r\ncontainerRuntimeEndpoint: %s\r\n"),
                ("bom", "\ufeffcontainerRuntimeEndpoint: %s\n"),
                ("flow", "{kind: KubeletConfiguration, containerRuntimeEndpoint: %s}\n"),
                ("next-line", "containerRuntimeEndpoint:\n  %s\nkind: KubeletConfiguration\n"),
                ("folded", "containerRuntimeEndpoint: >-\n  %s\n"),
                ("anchor-elsewhere", "x: &a [1]\ny: *a\ncontainerRuntimeEndpoint: %s # here\n"),
                ("space-before-colon", '"containerRuntimeEndpoint" : "%s"\n'),
            )
        ),
        pytest.param(
            "/usr/bin/kubelet --config=/etc/k.yaml",
            {"/etc/k.yaml": "containerRuntimeEndpoint: null\n", "/var/lib/kubelet/kubeadm-flags.env": KUBEADM},
            {},
            "cri-o",
            "/var/lib/kubelet/kubeadm-flags.env",
            id="D01-multiple-runtimes-null-in-the-config",
        ),
        pytest.param(
            "/usr/bin/kubelet --container-runtime-endpoint=unix:/run/crio/crio.sock",
            {},
            {},
            "cri-o",
            "the command line of the running kubelet",
            id="D01-multiple-runtimes-one-colon",
        ),
        pytest.param(
            "/usr/bin/kubelet --container-runtime-endpoint unix:////run/crio/crio.sock",
            {},
            {},
            "cri-o",
            "the command line of the running kubelet",
            id="D01-multiple-runtimes-space-and-slashes",
        ),
    ],
)
def test_d01_who_is_believed(
    command: str, files: dict[str, str], options: dict[str, Any], expected: str, source: str, tmp_path: Path
) -> None:
    machine = three(tmp_path)
    running_kubelet(machine, command)
    for path, text in files.items():
        machine.write(path, text)
    answer = checked(machine.detect(**options))
    assert (answer["kubernetes_runtime"], answer["kubernetes_runtime_source"], answer["selected"]) == (
        expected,
        source,
        [expected],
    )


def test_d01_the_unit_speaks_when_the_kubelet_is_stopped(tmp_path: Path) -> None:
    machine = three(tmp_path)
    machine.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=%s\n" % CRIO)
    machine.unit(
        "kubelet.service",
        "/usr/bin/kubelet $KUBELET_EXTRA_ARGS",
        active="inactive",
        EnvironmentFiles="/etc/default/kubelet (ignore_errors=yes)",
    )
    answer = checked(machine.detect())
    assert (answer["kubernetes_runtime"], answer["kubernetes_runtime_source"]) == ("cri-o", "the unit kubelet.service")


def test_d01_several_without_a_kubelet_are_ambiguous(tmp_path: Path) -> None:
    answer = checked(three(tmp_path).detect())
    assert answer["kubernetes_runtime"] is None
    assert answer["selected"] == []
    assert answer["ambiguous"]["candidates"] == ["docker", "cri-o"]
    assert "no kubelet" in answer["ambiguous"]["reason"] and "runtime option" in answer["ambiguous"]["next_step"]


def test_d01_a_kubelet_that_names_nothing_is_ambiguous(tmp_path: Path) -> None:
    machine = three(tmp_path)
    running_kubelet(machine, "/usr/bin/kubelet")
    answer = checked(machine.detect())
    assert answer["kubernetes_runtime"] is None and answer["selected"] == []
    assert answer["ambiguous"]["candidates"] == ["containerd", "docker", "cri-o"]
    assert "names no endpoint" in answer["ambiguous"]["reason"]


def test_d01_a_choice_ends_the_ambiguity(tmp_path: Path) -> None:
    answer = checked(three(tmp_path).detect(runtimes=("docker",)))
    assert answer["selected"] == ["docker"] and answer["ambiguous"] is None
    assert [item["name"] for item in answer["runtimes"] if item["selected"]] == ["docker"]


def test_a_chosen_runtime_that_is_not_there(tmp_path: Path) -> None:
    answer = checked(three(tmp_path).detect(runtimes=("podman",)))
    assert answer["selected"] == []
    assert [(problem["code"], problem["severity"]) for problem in answer["problems"]] == [
        ("runtime_not_found", "error")
    ]
    assert answer["problems"][0]["detail"] == (
        "the wanted runtime podman is not on this host, which has containerd, cri-o, docker"
    )


def test_an_endpoint_that_nobody_owns(tmp_path: Path) -> None:
    machine = three(tmp_path)
    running_kubelet(machine, "/usr/bin/kubelet --container-runtime-endpoint=unix:///run/other.sock")
    answer = checked(machine.detect())
    assert answer["kubernetes_runtime"] is None and answer["selected"] == []
    assert "/run/other.sock" in answer["ambiguous"]["reason"]


def test_cri_dockerd_means_docker(tmp_path: Path) -> None:
    machine = three(tmp_path)
    running_kubelet(machine, "/usr/bin/kubelet --container-runtime-endpoint unix:///var/run/cri-dockerd.sock")
    answer = checked(machine.detect())
    assert answer["kubernetes_runtime"] == "docker"
    assert only(answer)["flavor"] == "docker-backend"


def test_r09_containerd_that_only_backs_docker_is_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("1.7.27", case("R09-disabled-cri", "config.toml"))
    machine.program("/usr/bin/dockerd", "Docker version 27.5.1, build x\n")
    machine.unit("docker.service", "/usr/bin/dockerd", pid=300)
    answer = checked(machine.detect())
    containerd, docker = only(answer), only(answer, "docker")
    assert (containerd["flavor"], containerd["cri_enabled"], containerd["changes"], containerd["refusal"]) == (
        "docker-backend",
        False,
        [],
        None,
    )
    assert [change["what"] for change in docker["changes"]] == ["features.cdi = true"]
    assert answer["selected"] == ["docker"] and answer["ambiguous"] is None


def test_the_only_candidate(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5")
    machine.program("/usr/bin/podman", "podman version 5.4.2\n")
    answer = checked(machine.detect())
    assert answer["selected"] == ["containerd"] and answer["kubernetes_runtime"] is None
    running_kubelet(machine, "/usr/bin/kubelet")
    answer = checked(machine.detect())
    assert (answer["kubernetes_runtime"], answer["kubernetes_runtime_source"]) == ("containerd", "only candidate")


def test_podman_alone_is_selected(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/usr/bin/podman", "podman version 5.4.2\n")
    assert checked(machine.detect())["selected"] == ["podman"]


@pytest.mark.parametrize("real", ["/run/podman/podman.sock", "/run/user/1000/podman/podman.sock"])
def test_the_socket_that_podman_docker_links_is_not_docker(real: str, tmp_path: Path) -> None:
    """datalab-to/marker 1085: the package podman-docker gives podman the names of docker."""
    machine = Machine(tmp_path)
    for path in ("/usr/bin/podman", "/usr/bin/docker"):
        machine.program(path, "podman version 5.6.0\n")
    machine.socket(real)
    machine.real("/run/docker.sock").symlink_to(real)
    answer = checked(machine.detect())
    assert [item["name"] for item in answer["runtimes"]] == ["podman"] == answer["selected"]
    # A docker of its own beside it counts, and has no socket.
    machine.program("/usr/bin/dockerd", "Docker version 28.3.0, build abc\n")
    docker = next(item for item in checked(machine.detect())["runtimes"] if item["name"] == "docker")
    assert (docker["socket_exists"], docker["version"], docker["process_stale"]) == (False, "28.3.0", None)


def test_a_file_in_the_place_of_a_socket_is_no_runtime(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for path in ("/run/containerd/containerd.sock", "/run/docker.sock", "/run/crio/crio.sock"):
        machine.write(path, "")
    answer = checked(machine.detect())
    assert answer["runtimes"] == []
    assert [problem["code"] for problem in answer["problems"]] == ["runtime_none"]


def test_an_unchanged_host_costs_one_systemctl_and_the_runtimes_own_words(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5", "version = 3\n")
    machine.kubelet()
    machine.detect()
    asked = [" ".join(argv[:2]) for argv in machine.asked]
    assert asked == ["systemctl show", "/usr/bin/containerd --version"]


@pytest.mark.parametrize(
    "text",
    [
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n",
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/etc/cdi']\n",
        "version = 3\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n",
        "version = 3\n[[[\n",
    ],
)
def test_the_program_s_own_loader_judges_what_is_not_as_wanted(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5", text)
    machine.kubelet()
    machine.detect()
    dump = ["/usr/bin/containerd", "--config", "/etc/containerd/config.toml", "config", "dump"]
    assert [list(argv) for argv in machine.asked].count(dump) == 1


@pytest.mark.parametrize("name", ["P03-kubelet-root"])
def test_a_moved_kubelet_root(name: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5")
    running_kubelet(machine, case(name, "kubelet-cmdline.txt").strip())
    kubelet = checked(machine.detect())["kubelet"]
    assert kubelet["root_dir"] == "/opt/kubelet"
    assert kubelet["pod_resources_dir"] == "/opt/kubelet/pod-resources"
    assert kubelet["device_plugin_dir"] == "/var/lib/kubelet/device-plugins", (
        "a constant of Kubernetes that --root-dir does not move"
    )


def test_kubelet_found_without_systemd(tmp_path: Path) -> None:
    machine = Machine(tmp_path, systemd=False)
    machine.process(77, "/usr/local/bin/kubelet --root-dir /x --container-runtime-endpoint /run/crio/crio.sock")
    machine.socket("/run/crio/crio.sock")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    answer = checked(machine.detect())
    assert (answer["kubelet"]["root_dir"], answer["kubelet"]["unit"], answer["kubernetes_runtime"]) == (
        "/x",
        None,
        "cri-o",
    )


def test_an_empty_tree(tmp_path: Path) -> None:
    answer = checked(detect_runtimes(Host(str(tmp_path))))
    assert answer["runtimes"] == [] and answer["kubelet"]["present"] is False


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "a: 1\nb: 'x # y' # z\nc: \"q\"\n  d: nested\ne: |\n  text\nf: {a: b}\ng:\n- h\n",
            {"a": "1", "b": "x # y", "c": "q"},
        ),
        ('\ufeff{"a": "x", "b": {"c": 1}, "d": 2}', {"a": "x", "d": "2"}),
        ("{broken", {}),
        ("---\n# c\nkey: value # comment\n", {"key": "value"}),
        ("key: v#x\r\nother: y\r\n", {"key": "v#x", "other": "y"}),
        ("", {}),
    ],
)
def test_top_level_scalars(text: str, expected: dict[str, str]) -> None:
    assert top_level_scalars(text) == expected


@pytest.mark.parametrize(
    "given, expected",
    [
        ("unix:///run/x.sock", "/run/x.sock"),
        ("/run/x.sock", "/run/x.sock"),
        ("npipe:////./pipe/x", "npipe:////./pipe/x"),
    ],
)
def test_endpoint_path(given: str, expected: str) -> None:
    assert endpoint_path(given) == expected


@pytest.mark.parametrize(
    "argv, expected",
    [(["--a=1", "--b", "x", "--b=y"], "y"), (["--b"], ""), (["--bb=1"], ""), (["--b='q'"], "q")],
)
def test_last_flag(argv: list[str], expected: str) -> None:
    assert last_flag(argv, "--b") == expected


K3S_CONFIG = "/etc/rancher/k3s/config.yaml"
OWN = "container-runtime-endpoint: unix:///run/containerd/containerd.sock\n"
SAID = "the settings of k3s"


@pytest.mark.parametrize(
    "command, files, expected, source",
    [
        ("k3s server", {}, ("containerd", "k3s"), "k3s"),
        (
            "k3s server --container-runtime-endpoint unix:///run/containerd/containerd.sock",
            {},
            ("containerd", "system"),
            SAID,
        ),
        ("k3s agent --container-runtime-endpoint=/run/containerd/containerd.sock", {}, ("containerd", "system"), SAID),
        ("k3s server", {K3S_CONFIG: OWN}, ("containerd", "system"), SAID),
        ("k3s server", {K3S_CONFIG: "token: x\n", K3S_CONFIG + ".d/10-site.yaml": OWN}, ("containerd", "system"), SAID),
        ("k3s server --docker", {}, ("docker", "system"), SAID),
        ("k3s server", {K3S_CONFIG: "docker: true\n"}, ("docker", "system"), SAID),
        ("k3s server --docker=false", {K3S_CONFIG: "docker: true\n"}, ("containerd", "k3s"), "k3s"),
        (
            "k3s server",
            {"/var/lib/kubelet/config.yaml": YAML, "/var/lib/kubelet/kubeadm-flags.env": KUBEADM},
            ("containerd", "k3s"),
            "k3s",
        ),
    ],
    ids=[
        "D02-k3s-rke2-paths-%s" % name
        for name in (
            "own",
            "flag",
            "flag-equals",
            "config",
            "config-drop-in",
            "docker",
            "docker-config",
            "docker-off",
            "old-kubeadm",
        )
    ],
)
def test_d02_a_distribution_may_use_a_runtime_of_the_host(
    command: str, files: dict[str, str], expected: tuple[str, str], source: str, tmp_path: Path
) -> None:
    machine = three(tmp_path)
    machine.unit("k3s.service", "/usr/local/bin/" + command, pid=900)
    machine.socket("/run/k3s/containerd/containerd.sock")
    for path, text in files.items():
        machine.write(path, text)
    answer = checked(machine.detect())
    serving = [(item["name"], item["flavor"]) for item in answer["runtimes"] if item["serves_kubelet"]]
    assert (serving, answer["kubernetes_runtime_source"], answer["ambiguous"]) == ([expected], source, None)


@pytest.mark.parametrize(
    "command, files, expected",
    [
        ("k3s server --kubelet-arg=root-dir=/opt/kubelet", {}, "/opt/kubelet"),
        ("k3s server --kubelet-arg root-dir=/opt/kubelet", {}, "/opt/kubelet"),
        ("k3s server", {K3S_CONFIG: "kubelet-arg:\n  - v=2\n  - --root-dir=/opt/kubelet\n"}, "/opt/kubelet"),
        ("k3s server", {K3S_CONFIG: "kubelet-arg: v=2\n"}, "/var/lib/kubelet"),
    ],
    ids=["P03-kubelet-root-k3s-%d" % number for number in range(4)],
)
def test_p03_k3s_gives_its_kubelet_another_root(
    command: str, files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    machine = three(tmp_path)
    machine.unit("k3s.service", "/usr/local/bin/" + command, pid=900)
    for path, text in files.items():
        machine.write(path, text)
    kubelet = checked(machine.detect())["kubelet"]
    assert (kubelet["root_dir"], kubelet["device_plugin_dir"]) == (expected, "/var/lib/kubelet/device-plugins")
    assert kubelet["pod_resources_dir"] == expected + "/pod-resources"


@pytest.mark.parametrize("setting", ["--data-dir=/data/k3s", "-d /data/k3s/", "config"])
def test_d02_k3s_keeps_its_data_elsewhere(setting: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.unit("k3s.service", "/usr/local/bin/k3s server " + ("" if setting == "config" else setting), pid=900)
    if setting == "config":
        machine.write(K3S_CONFIG, "data-dir: /data/k3s\n")
    machine.socket("/run/k3s/containerd/containerd.sock")
    machine.program("/data/k3s/data/current/bin/containerd", "containerd github.com/k3s-io/containerd v1.7.27-k3s1 x\n")
    machine.write("/data/k3s/agent/etc/containerd/config.toml", "version = 2\n")
    found = only(checked(machine.detect()), "containerd")
    assert (found["flavor"], found["version"]) == ("k3s", "1.7.27-k3s1")
    assert found["edit_target"] == {"path": "/data/k3s/agent/etc/containerd/config.toml.tmpl", "kind": "template"}


@pytest.mark.parametrize(
    "socket, expected", [("remote:unix:///run/crio/crio.sock", "cri-o"), ("docker:unix:///run/docker.sock", "docker")]
)
def test_d02_k0s_uses_the_runtime_it_is_told(socket: str, expected: str, tmp_path: Path) -> None:
    machine = three(tmp_path)
    machine.unit("k0sworker.service", "/usr/local/bin/k0s worker --cri-socket=" + socket, pid=900)
    answer = checked(machine.detect())
    assert (answer["kubernetes_runtime"], answer["kubernetes_runtime_source"]) == (expected, "the settings of k0s")


class Refusing(Host):
    """A host of which the files below some directories may not be read."""

    refused: tuple[str, ...] = ()

    def resolve(self, path: str) -> Probe:
        return Probe(DENIED, None, "Permission denied") if path.startswith(self.refused) else super().resolve(path)


def test_a_configuration_that_may_not_be_read_is_unknown_and_says_how_to_read_it(tmp_path: Path) -> None:
    machine = three(tmp_path)
    for path in (
        "/etc/containerd/config.toml",
        "/etc/docker/daemon.json",
        "/etc/crio/crio.conf",
        "/etc/crio/crio.conf.d/10.conf",
    ):
        machine.write(path, "")
    plain = machine.host()
    host = Refusing(plain.root, plain._runner, plain.clock)
    host.refused = ("/etc/containerd/", "/etc/docker/", "/etc/crio/crio.conf.d")
    found = checked(detect_runtimes(host, RuntimeOptions(runtimes=("containerd", "docker", "cri-o"))))
    assert {item["name"]: item["cdi"]["state"] for item in found["runtimes"]} == dict.fromkeys(
        ("containerd", "docker", "cri-o"), "unknown"
    )
    for problem in found["problems"]:
        assert "Permission denied" in problem["detail"] and problem["next_step"] == "run this with privilege escalation"
    assert len(found["problems"]) == 3
    assert all(item["changes"] == [] for item in found["runtimes"])
