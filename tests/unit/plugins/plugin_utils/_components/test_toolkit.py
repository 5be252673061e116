# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit as a container."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.toolkit import ENTRY_SCRIPT
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, one


def pods(own: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Pod specifications of the toolkit by the name of their DaemonSet."""
    made = objects(container_toolkit={"enabled": True, "image": {"tag": "0.2.3"}, **own}, **more)
    found = [item for item in made if item["kind"] == "DaemonSet" and "container-toolkit" in item["metadata"]["name"]]
    return {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in found}


def main(own: dict[str, Any], **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = pods(own, **more)["rbln-container-toolkit"]["containers"][0]
    return container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


def places(pod: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """{place in the container: (place on the host, kind, read-only)}."""
    volumes = {volume["name"]: volume.get("hostPath", {"path": "", "type": "emptyDir"}) for volume in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    return {
        item["mountPath"]: (volumes[item["name"]]["path"], volumes[item["name"]]["type"], item.get("readOnly", False))
        for item in mounts
    }


SHARED = {
    "/host": ("/", "Directory", True),
    "/host/usr/local/bin": ("/usr/local/bin", "DirectoryOrCreate", False),
    "/run/rbln": ("/run/rbln", "DirectoryOrCreate", False),
    "/run/rbln/validations": ("/run/rbln/validations", "DirectoryOrCreate", False),
    "/run/rbln/driver": ("/run/rbln/driver", "DirectoryOrCreate", True),
    "/var/run/cdi": ("/var/run/cdi", "DirectoryOrCreate", False),
}
# {runtime: (name of its DaemonSet, socket, directory of its configuration)}
RUNTIMES = {
    "containerd": ("rbln-container-toolkit", "/run/containerd/containerd.sock", "/etc/containerd"),
    "docker": ("rbln-container-toolkit-docker", "/run/docker.sock", "/etc/docker"),
    "crio": ("rbln-container-toolkit-crio", "/run/crio/crio.sock", "/etc/crio/crio.conf.d"),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_000_20_each_runtime_has_its_socket_and_its_configuration(runtime: str) -> None:
    name, socket, config = RUNTIMES[runtime]
    found = pods({"runtimes": ["docker", "crio"]})
    assert list(found) == ["rbln-container-toolkit", "rbln-container-toolkit-docker", "rbln-container-toolkit-crio"]
    pod = found[name]
    assert places(pod) == {
        **SHARED,
        "/host" + config: (config, "DirectoryOrCreate", False),
        socket: (socket, "Socket", False),
    }
    container = pod["containers"][0]
    assert (container["name"], container["args"]) == ("toolkit", ["rbln-ctk-daemon", "--runtime", runtime])
    assert env(container)["RBLN_CTK_DAEMON_SOCKET"] == "/host" + socket
    assert pod["hostPID"] is True and container["securityContext"]["privileged"] is True


def test_000_16_it_waits_for_the_driver_and_closes_the_gate_behind_it() -> None:
    pod = pods({}, marker_dir="/data/ready")["rbln-container-toolkit"]
    (wait,) = pod["initContainers"]
    assert env(wait)["WAIT_MARKERS"] == "/data/ready/driver-ready"
    (container,) = pod["containers"]
    assert container["lifecycle"] == {"preStop": {"exec": {"command": ["rm", "-f", "/data/ready/toolkit-ready"]}}}
    assert env(container)["READY_FILE"] == "/data/ready/driver-ready" and places(pod)["/data/ready"] == (
        "/data/ready",
        "DirectoryOrCreate",
        False,
    )


def test_000_17_without_the_ready_file_the_settings_are_given_plainly() -> None:
    container = main({"env_from_marker": False, "args": ["--debug"], "health_port": 9000, "refresh_interval": 30})
    assert "command" not in container and container["args"] == ["--runtime", "containerd", "--debug"]
    assert {name: value for name, value in env(container).items() if name != "NODE_NAME"} == {
        "RBLN_CTK_DAEMON_CDI_SPEC_DIR": "/var/run/cdi",
        "RBLN_CTK_DAEMON_HEALTH_PORT": "9000",
        "RBLN_CTK_DAEMON_REFRESH_INTERVAL": "30s",
        "RBLN_CTK_DAEMON_SOCKET": "/host/run/containerd/containerd.sock",
        "RBLN_CTK_DAEMON_HOST_ROOT": "/host",
        "RBLN_CTK_DAEMON_DRIVER_ROOT": "/",
        "RBLN_CTK_DAEMON_CONTAINER_LIBRARY_PATH": "/usr/local/lib/rbln",
    }
    assert main({"command": ["/bin/x"]})["args"] == ["/bin/x", "--runtime", "containerd"]


def test_probes_ask_the_health_port() -> None:
    container = main({"health_port": 9000})
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert asked == {
        name + "Probe": {"path": path, "port": 9000}
        for name, path in (("startup", "/startup"), ("readiness", "/ready"), ("liveness", "/live"))
    }
    assert not [name for name in main({"probes": False}) if name.endswith("Probe")]
    with pytest.raises(NpuError, match="health_port is 0"):
        main({"health_port": 0})


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_is_not_restarted_when_that_is_not_wanted(runtime: str) -> None:
    pod = pods({"default_runtime": runtime, "restart": False})["rbln-container-toolkit"]
    config = RUNTIMES[runtime][2]
    hidden = {"/host/run/systemd": ("", "emptyDir", False)} if runtime == "crio" else {}
    assert places(pod) == {**SHARED, "/host" + config: (config, "DirectoryOrCreate", False), **hidden}
    (container,) = pod["containers"]
    assert (
        env(container)["RBLN_CTK_DAEMON_SOCKET"] == "/nonexistent"
        and env(container)["RBLN_CTK_DAEMON_NO_CLEANUP_ON_EXIT"] == "true"
    )
    assert "hostPID" not in pod
    removed = ["/run/rbln/validations/toolkit-ready", "/var/run/cdi/rbln.yaml", "/var/run/cdi/rbln-rds.yaml"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["rm", "-f", *removed]


def test_it_gets_no_rights_in_the_cluster() -> None:
    made = objects(container_toolkit={"enabled": True, "image": {"tag": "1"}})
    kinds = [item["kind"] for item in made if "container-toolkit" in item["metadata"]["name"]]
    assert kinds == ["ServiceAccount", "DaemonSet"]
    assert (
        one(made, "DaemonSet", "container-toolkit")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    )


SHELLS = [shell for shell in (["/bin/sh"], ["busybox", "sh"]) if shutil.which(shell[0])]
# {name: (ready file, lines of the daemon's environment, or of the error)}
FILES: dict[str, tuple[str, list[str]]] = {
    "as it is written": (
        "IS_HOST_DRIVER=true\nRBLN_CTK_DAEMON_HOST_ROOT=/host\nRBLN_CTK_DAEMON_DRIVER_ROOT=/\n",
        ["RBLN_CTK_DAEMON_DRIVER_ROOT=/", "RBLN_CTK_DAEMON_HOST_ROOT=/host", "RBLN_CTK_DAEMON_SOCKET=/set"],
    ),
    "quotes, comments, blank lines, no line break at the end": (
        "# text\n\nRBLN_CTK_DAEMON_DRIVER_ROOT='/a b'\nRBLN_CTK_DAEMON_X=\"c=d\"",
        ["RBLN_CTK_DAEMON_DRIVER_ROOT=/a b", "RBLN_CTK_DAEMON_SOCKET=/set", "RBLN_CTK_DAEMON_X=c=d"],
    ),
    "what the inputs set wins": ("RBLN_CTK_DAEMON_SOCKET=/file\n", ["RBLN_CTK_DAEMON_SOCKET=/set"]),
    "nothing for the daemon": ("PATH=/evil\nLD_PRELOAD=/evil\n", ["RBLN_CTK_DAEMON_SOCKET=/set"]),
}
REFUSED = {
    "no assignment": ("RBLN_CTK_DAEMON_A=1\ntext\n", 2),
    "a command": ("touch EVIL\n", 1),
    "a substitution": ("RBLN_CTK_DAEMON_A=$(touch EVIL)\n", 1),
    "old substitution": ("\nRBLN_CTK_DAEMON_A=`touch EVIL`\n", 2),
    "substitution in quotes": ('RBLN_CTK_DAEMON_A="$(touch EVIL)"\n', 1),
    "a name with a command": ("RBLN_CTK_DAEMON_A;touch EVIL=1\n", 1),
    "a quote without its end": ("RBLN_CTK_DAEMON_A='b\n", 1),
    "no name": ("=1\n", 1),
}


def enter(shell: list[str], tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "ready").write_text(text.replace("EVIL", str(tmp_path / "evil")))
    values = {"PATH": os.environ["PATH"], "READY_FILE": str(tmp_path / "ready"), "RBLN_CTK_DAEMON_SOCKET": "/set"}
    return subprocess.run(
        [*shell, "-c", ENTRY_SCRIPT, "x", "env"], env=values, capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
@pytest.mark.parametrize("name", FILES)
def test_000_17_settings_of_the_ready_file(name: str, shell: list[str], tmp_path: Path) -> None:
    text, expected = FILES[name]
    done = enter(shell, tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith(("RBLN", "LD_"))) == expected
    assert "PATH=" + os.environ["PATH"] in done.stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
@pytest.mark.parametrize("name", REFUSED)
def test_000_17_a_malformed_ready_file_is_refused_and_never_run(name: str, shell: list[str], tmp_path: Path) -> None:
    text, line = REFUSED[name]
    done = enter(shell, tmp_path, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "%s, line %d: not a plain KEY=VALUE line\n" % (tmp_path / "ready", line)
    assert not (tmp_path / "evil").exists()


def start(shell: list[str], tmp_path: Path, *program: str, ready: str = "ready") -> subprocess.Popen[str]:
    values = {"PATH": os.environ["PATH"], "READY_FILE": str(tmp_path / ready)}
    return subprocess.Popen(
        [*shell, "-c", ENTRY_SCRIPT, "x", *program],
        env=values,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_000_18_the_daemon_takes_the_place_of_the_shell(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("RBLN_CTK_DAEMON_DRIVER_ROOT=/\n")
    daemon = tmp_path / "daemon"
    daemon.write_text(
        (
            "#!/bin/sh\ntrap 'echo spec removed; exit 5' TERM\necho $$ \"$RBLN_CTK_DAEMON_DRIVER_ROOT\" "
            '"$@"\nwhile :; do sleep 0.05; done\n'
        )
    )
    daemon.chmod(0o755)
    process = start(shell, tmp_path, str(daemon), "--runtime", "docker")
    assert process.stdout and process.stdout.readline() == "%d / --runtime docker\n" % process.pid
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20) == ("spec removed\n", "") and process.returncode == 5
    # The ready file of the toolkit is the validator's to write.
    assert sorted(os.listdir(tmp_path)) == ["daemon", "ready"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_an_image_without_the_daemon_is_named(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("")
    process = start(shell, tmp_path, "rbln-ctk-daemon-of-no-image")
    assert "rbln-ctk-daemon-of-no-image: not found" in process.communicate(timeout=20)[1] and process.returncode == 127


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_000_16_nothing_runs_without_the_ready_file_of_the_driver(shell: list[str], tmp_path: Path) -> None:
    process = start(shell, tmp_path, "env", ready="driver-ready")
    assert process.communicate(timeout=20) == (
        "",
        "no %s/driver-ready: the driver of this node is not validated\n" % tmp_path,
    )
    assert process.returncode == 1


@pytest.mark.parametrize(
    "restart, left",
    [(True, ["driver-ready", "other.yaml", "rbln-rds.yaml", "rbln.yaml"]), (False, ["driver-ready", "other.yaml"])],
)
def test_000_40_what_the_end_of_the_pod_takes_away(restart: bool, left: list[str], tmp_path: Path) -> None:
    for name in ("driver-ready", "toolkit-ready", "rbln.yaml", "rbln-rds.yaml", "other.yaml"):
        (tmp_path / name).touch()
    command = main({"restart": restart}, marker_dir=str(tmp_path))["lifecycle"]["preStop"]["exec"]["command"]
    subprocess.run([part.replace("/var/run/cdi", str(tmp_path)) for part in command], check=True)
    assert sorted(os.listdir(tmp_path)) == left


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(
        ["shellcheck", "-"], input="#!/bin/sh\n" + ENTRY_SCRIPT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
