# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docker: releases, daemon.json, flags of the unit, what the running daemon says. Cases R13, R15, R16, W04."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime import live
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import RuntimeOptions
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import detect_runtimes
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.docker import (
    RESTORE_NOTE,
    DaemonConfigError,
    load_daemon_json,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import HERE, STALE, Machine, case, only, whats
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import replay

FILE = "/etc/docker/daemon.json"
DEFAULTS = ["/etc/cdi", "/var/run/cdi"]
ON = (FILE, "features.cdi = true")
DOCKERD = "/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock"


def docker(root: Path, version: str, text: str | None = None, command: str = DOCKERD) -> Machine:
    machine = Machine(root)
    machine.program("/usr/bin/dockerd", "Docker version %s, build abc\n" % version)
    machine.unit("docker.service", command, pid=300)
    machine.process(300, command)
    machine.socket("/run/docker.sock")
    if text is not None:
        machine.write(FILE, text)
    return machine


R16: list[dict[str, Any]] = yaml.safe_load(case("R16-docker-feature-key", "inputs.yml"))


@pytest.mark.parametrize(
    "number, state, changes",
    [
        pytest.param(0, "unsupported", [], id="R16-docker-feature-key-24"),
        pytest.param(1, "off", [ON], id="R16-docker-feature-key-26-unknown-key"),
        pytest.param(2, "off", [ON], id="R16-docker-feature-key-27-empty"),
        pytest.param(3, "on_by_default", [], id="R16-docker-feature-key-28.2"),
        pytest.param(4, "off", [ON], id="R16-docker-feature-key-28.3-off"),
    ],
)
def test_r16_when_the_key_is_needed(number: int, state: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    given = R16[number]
    text = json.dumps(given["daemon_json"]) if "daemon_json" in given else None
    found = only(docker(tmp_path, given["docker"], text).detect(), "docker")
    assert (found["version"], found["cdi"]["state"]) == (given["docker"], state)
    assert whats(found) == changes
    assert (found["refusal"] is not None) == (state == "unsupported")
    assert any("cdi-devices" in warning for warning in found["warnings"]) == (number == 1)
    assert found["edit_target"] == {"path": FILE, "kind": "json"}
    assert found["restart_unit"] == "docker"


@pytest.mark.parametrize(
    "version, text, state, spec_dirs, changes",
    [
        pytest.param("27.5.1", None, "off", DEFAULTS, [ON], id="no-file"),
        pytest.param(
            "27.5.1", case("R15-daemon-json-merge", "daemon.json"), "off", DEFAULTS, [ON], id="R15-daemon-json-merge"
        ),
        pytest.param("27.5.1", '{"features": {"cdi": true}}', "on", DEFAULTS, [], id="on"),
        pytest.param(
            "28.2.2",
            '{"cdi-spec-dirs": [""]}',
            "off",
            [],
            [(FILE, 'cdi-spec-dirs = ["/etc/cdi", "/var/run/cdi"]')],
            id="directories-disabled",
        ),
        pytest.param(
            "28.2.2",
            '{"cdi-spec-dirs": ["/opt/cdi"]}',
            "on_by_default",
            ["/opt/cdi"],
            [(FILE, 'cdi-spec-dirs = ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]')],
            id="other-directories",
        ),
        pytest.param("25.0.0", "{}", "off", DEFAULTS, [ON], id="first-with-cdi"),
        pytest.param("28.1.1", "{}", "off", DEFAULTS, [ON], id="last-without-default"),
        pytest.param("28.2.0", "{}", "on_by_default", DEFAULTS, [], id="first-with-default"),
        pytest.param(
            "28.2.0",
            case("R13-daemon-json-broken", "bom.json"),
            "on_by_default",
            DEFAULTS,
            [],
            id="R13-daemon-json-broken-bom",
        ),
        pytest.param(
            "28.2.0",
            case("R13-daemon-json-broken", "empty.json"),
            "on_by_default",
            DEFAULTS,
            [],
            id="R13-daemon-json-broken-empty",
        ),
        pytest.param(
            "27.5.1",
            '{"features": null, "cdi-spec-dirs": null}',
            "off",
            DEFAULTS,
            [ON],
            id="R13-daemon-json-broken-null-is-not-set",
        ),
        pytest.param("28.2.0", " \n", "on_by_default", DEFAULTS, [], id="whitespace"),
    ],
)
def test_states(
    version: str, text: str | None, state: str, spec_dirs: list[str], changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    found = only(docker(tmp_path, version, text).detect(), "docker")
    assert (found["cdi"]["state"], found["cdi"]["spec_dirs"]) == (state, spec_dirs)
    assert whats(found) == changes
    assert found["refusal"] is None
    assert found["config_files"] == ([FILE] if text is not None else [])
    assert any("byte order mark" in warning for warning in found["warnings"]) == (
        text is not None and text.startswith("\ufeff")
    )


BROKEN = [
    ("R13-daemon-json-broken-trailing", case("R13-daemon-json-broken", "trailing.json"), "line 4, column 1"),
    ("R13-daemon-json-broken-three-objects", case("R13-daemon-json-broken", "three-objects.json"), "line 4, column 1"),
    ("R13-daemon-json-broken-html", case("R13-daemon-json-broken", "html.json"), "line 1, column 1"),
    ("R13-daemon-json-broken-extra-brace", case("R13-daemon-json-broken", "extra-brace.json"), "line 2, column 46"),
    ("R13-daemon-json-broken-comment", case("R13-daemon-json-broken", "comment.json"), "line 2, column 3"),
    ("null", "null", "line 1, column 1: the file is not a JSON object"),
    ("array", "[]", "line 1, column 1: the file is not a JSON object"),
    ("features-list", '{"features": ["x"]}', "features is not an object"),
    ("cdi-text", '{"features": {"cdi": "true"}}', "features.cdi is not true or false"),
    ("dirs-text", '{"cdi-spec-dirs": "/x"}', "cdi-spec-dirs is not a list of strings"),
    ("nan", '{"x": NaN}', "NaN"),
    ("R13-daemon-json-broken-deep", '{"x": ' + "[" * 100000, "line 1, column 1"),
    ("R13-daemon-json-broken-nul", '{"x": 1}\x00', "line 1, column 9"),
    ("R13-daemon-json-broken-utf-16", '{"x": 1}'.encode("utf-16").decode("latin-1"), "line 1, column 1"),
    ("R13-daemon-json-broken-hash", "# site\n{}\n", "line 1, column 1"),
    ("R13-daemon-json-broken-single-quotes", "{'x': 1}", "line 1, column 2"),
]


@pytest.mark.parametrize("text, place", [pytest.param(text, place, id=name) for name, text, place in BROKEN])
def test_a_broken_file_is_unknown_and_never_empty(text: str, place: str, tmp_path: Path) -> None:
    machine = docker(tmp_path, "27.5.1", text)
    answer = machine.detect()
    found = only(answer, "docker")
    assert found["cdi"]["state"] == "unknown"
    assert found["changes"] == []
    assert FILE in found["refusal"]["reason"] and place in found["refusal"]["reason"]
    assert [(problem["code"], problem["severity"]) for problem in answer["problems"]] == [
        ("docker_config_invalid", "error")
    ]
    assert place in answer["problems"][0]["detail"]


@pytest.mark.parametrize(
    "text, state",
    [
        ('{"features": {"cdi": true}, "features": {}}', "on"),
        ('{"features": {"cdi": false}, "features": {"cdi": true}}', "on"),
        ('{"cdi-spec-dirs": ["/x"], "cdi-spec-dirs": ["/var/run/cdi"], "features": {"cdi": true}}', "on"),
        ('{"debug": true, "debug": false}', "off"),
    ],
)
def test_of_a_key_that_stands_twice_docker_takes_the_last(text: str, state: str, tmp_path: Path) -> None:
    answer = docker(tmp_path, "27.5.1", text).detect()
    found = only(answer, "docker")
    assert (found["cdi"]["state"], found["changes"], answer["problems"]) == (state, [], [])
    assert any("twice; docker takes the last" in warning for warning in found["warnings"])
    assert (found["refusal"] is None) == (state == "on"), "it is refused only where it would have to be edited"
    if state == "off":
        assert found["refusal"]["next_step"] == "remove the one that has no effect"


def test_every_daemon_json_of_the_fixtures_is_read_or_refused() -> None:
    verdicts = {}
    for path in sorted((HERE / "docker").glob("*.json")):
        try:
            load_daemon_json(path.read_text(encoding="utf-8"))
            verdicts[path.stem[:3]] = True
        except DaemonConfigError:
            verdicts[path.stem[:3]] = False
    assert verdicts == {
        "r31": True, "r32": True, "r33": True, "r34": True, "r35": True,
        "r36": False, "r37": False, "r38": False, "r40": False, "r41": False, "r43": True, "r75": True,
    }  # fmt: skip


FLAGS = [
    pytest.param("27.5.1", "--feature cdi=true", None, "on", [], None, id="feature-flag-on"),
    pytest.param("28.2.2", "--feature=cdi=false", None, "off", [], "gives features as flags", id="feature-flag-off"),
    pytest.param(
        "27.5.1", "--feature buildkit=true", None, "off", [], "gives features as flags", id="another-feature-flag"
    ),
    pytest.param("28.2.2", "--feature buildkit=true", None, "on_by_default", [], None, id="another-feature-flag-28.2"),
    pytest.param(
        "27.5.1",
        "--feature cdi=true",
        '{"features": {"buildkit": true}}',
        "unknown",
        [],
        "both by flags",
        id="flag-and-file",
    ),
    pytest.param(
        "28.2.2", "--cdi-spec-dir /a --cdi-spec-dir=/run/cdi", None, "on_by_default", [], None, id="directory-flags"
    ),
    pytest.param(
        "28.2.2",
        "--cdi-spec-dir /a",
        None,
        "on_by_default",
        [],
        "gives --cdi-spec-dir without /var/run/cdi",
        id="directory-flag-without-ours",
    ),
]


@pytest.mark.parametrize("version, flags, text, state, changes, refusal", FLAGS)
def test_flags_of_the_unit_are_respected(
    version: str,
    flags: str,
    text: str | None,
    state: str,
    changes: list[tuple[str, str]],
    refusal: str | None,
    tmp_path: Path,
) -> None:
    found = only(docker(tmp_path, version, text, DOCKERD + " " + flags).detect(), "docker")
    assert found["cdi"]["state"] == state
    assert whats(found) == changes
    assert (found["refusal"] is None) == (refusal is None)
    assert refusal is None or refusal in found["refusal"]["reason"]


def test_config_file_of_the_unit(tmp_path: Path) -> None:
    machine = docker(tmp_path, "27.5.1", None, DOCKERD + " --config-file /srv/d.json")
    machine.write("/srv/d.json", '{"features": {"cdi": true}}')
    found = only(machine.detect(), "docker")
    assert (found["main_config"], found["config_files"], found["cdi"]["state"]) == (
        "/srv/d.json",
        ["/srv/d.json"],
        "on",
    )


@pytest.mark.parametrize(
    "info, started, stale",
    [
        pytest.param(
            {"ServerVersion": "27.5.1", "CDISpecDirs": DEFAULTS},
            STALE,
            False,
            id="running-daemon-has-it-though-the-file-is-newer",
        ),
        pytest.param({"ServerVersion": "27.5.1", "CDISpecDirs": []}, None, True, id="running-daemon-has-it-not"),
        pytest.param({"ServerVersion": "27.5.1", "CDISpecDirs": None}, None, True, id="null-is-none"),
        pytest.param({"ServerVersion": "27.5.1"}, STALE, True, id="daemon-does-not-say-so-times-decide"),
        pytest.param(None, STALE, True, id="no-answer-older"),
        pytest.param(None, None, False, id="no-answer-newer"),
    ],
)
def test_the_running_daemon_beats_file_times(
    info: dict[str, Any] | None, started: float | None, stale: bool, tmp_path: Path
) -> None:
    machine = docker(tmp_path, "27.5.1", '{"features": {"cdi": true}}')
    machine.program("/usr/bin/docker")
    if info is not None:
        machine.answer(["/usr/bin/docker", "info", "--format", "{{json .}}"], json.dumps(info))
    if started is not None:
        machine.process(300, DOCKERD, started)
    found = only(machine.detect(), "docker")
    assert (found["cdi"]["state"], found["process_stale"]) == ("on", stale)


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_docker_cli_3780_a_look_does_not_start_a_stopped_docker(state: str, tmp_path: Path) -> None:
    # Its socket is there, since docker.socket is active: systemd starts docker for whoever connects.
    machine = Machine(tmp_path)
    machine.program("/usr/bin/dockerd", "Docker version 27.5.1, build abc\n")
    machine.program("/usr/bin/docker")
    machine.unit("docker.service", DOCKERD, active=state)
    machine.socket("/run/docker.sock")
    found = only(machine.detect(), "docker")
    assert (found["version"], found["unit_state"], found["socket_exists"]) == ("27.5.1", state, True)
    assert not [argv for argv in machine.asked if argv[0] == "/usr/bin/docker"]
    answer = live.ask(machine.host(), found)
    assert (answer.ok, answer.detail, live.answers(machine.host(), found)) == (False, "docker is stopped", False)


def test_the_daemon_of_the_host_is_asked_whatever_root_talks_to_otherwise(tmp_path: Path) -> None:
    # A context of root, or DOCKER_HOST, may name a rootless or a remote daemon.
    machine = docker(tmp_path, "27.5.1", '{"features": {"cdi": true}}')
    machine.program("/usr/bin/docker")
    given: list[Any] = []

    def run(argv: Any, timeout: float, env: Any) -> Any:
        if argv[0] == "/usr/bin/docker":
            given.append(env)
        return machine.run(argv, timeout, env)

    detect_runtimes(Host(str(tmp_path), run, machine.host().clock), RuntimeOptions())
    assert [env["DOCKER_HOST"] for env in given] == ["unix:///run/docker.sock"]


@pytest.mark.parametrize(
    "answer, version, asked",
    [
        ({"ServerVersion": "28.3.2", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, "28.3.2", []),
        # What is no answer, the client may understand.
        (["x"], "27.5.1", ["info", "--version"]),
        (None, "27.5.1", ["info", "--version"]),
    ],
)
def test_the_daemon_is_asked_without_its_client(answer: object, version: str, asked: list[str], tmp_path: Path) -> None:
    machine = docker(tmp_path, "27.5.1", '{"features": {"cdi": true}}')
    machine.program("/usr/bin/docker")
    text = json.dumps(answer).encode() if answer else b"not JSON"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text)
    machine.real("/run/docker.sock").unlink()
    with replay(machine.real("/run/docker.sock"), head + text):
        found = only(machine.detect(), "docker")
    assert found["version"] == version
    assert [argv[1] for argv in machine.asked if argv[0].startswith("/usr/bin/docker")] == asked


def test_what_the_running_daemon_says_hides_no_newer_proxies(tmp_path: Path) -> None:
    machine = docker(tmp_path, "27.5.1", '{"features": {"cdi": true}}')
    machine.program("/usr/bin/docker")
    info = json.dumps({"ServerVersion": "27.5.1", "CDISpecDirs": DEFAULTS})
    machine.answer(["/usr/bin/docker", "info", "--format", "{{json .}}"], info)
    assert only(machine.detect(), "docker")["process_stale"] is False
    machine.write("/etc/systemd/system/docker.service.d/zz-rbln-proxy.env", "x", age=0)
    assert only(machine.detect(), "docker")["process_stale"] is True


@pytest.mark.parametrize(
    "version, noted",
    [
        pytest.param(
            yaml.safe_load(case("W04-restart-always-cdi", "versions.yml"))["docker"], True, id="W04-restart-always-cdi"
        ),
        pytest.param("28.2.2", False, id="28.2"),
        pytest.param("24.0.9", False, id="24-has-no-cdi"),
    ],
)
def test_w04_the_version_is_noted(version: str, noted: bool, tmp_path: Path) -> None:
    assert (RESTORE_NOTE in only(docker(tmp_path, version).detect(), "docker")["warnings"]) is noted
