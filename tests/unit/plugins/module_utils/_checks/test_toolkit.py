# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check of the scope toolkit: true, false and not known, against files and sockets that are real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import Check
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import compare
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import run_checks
from ansible_collections.rebellions.npu.plugins.module_utils._checks.toolkit import SCOPE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.live import docker_containers
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import (
    CASES,
    HERE,
    cdi,
    changed,
    facts,
    http_on,
    replay,
    runtimes,
)

SPEC = (CASES / "C08-cdi-stale-libs" / "rbln.yaml").read_text(encoding="utf-8")
LIBRARY = "/usr/lib64/librbln-ccl.so.3.2.2"
READY = "/run/rbln/validations/driver-ready"
SOCKET = "/run/containerd/containerd.sock"
OLD, MIDDLE, NEW = 1_000_000, 2_000_000, 3_000_000


def good(tmp_path: Path) -> Tree:
    """Library, then ready file, then specification, as the roles make them."""
    tree = (
        Tree(tmp_path)
        .write(LIBRARY, "lib")
        .write(READY, "IS_HOST_DRIVER=true\n")
        .folder("/run/cdi")
        .link("/var/run", "/run")
    )
    tree.write("/run/cdi/rbln.yaml", SPEC)
    for path, when in ((LIBRARY, OLD), (READY, MIDDLE), ("/run/cdi/rbln.yaml", NEW)):
        os.utime(tree.real(path), (when, when))
    return tree


def checks(
    tree: Tree, found: dict[str, Any], running: dict[str, Any] | None = None, wanted: dict[str, Any] | None = None
) -> dict[str, Check]:
    records = run_checks(
        PROFILE, Host(str(tree.root)), facts(), running or runtimes(), found, wanted or {}, ("toolkit",)
    )
    assert len({record.name for record in records}) == len(records)
    return {record.name: record for record in records}


def age(tree: Tree, path: str, when: int) -> None:
    os.utime(tree.real(path), (when, when))


def problem(detail: str) -> list[dict[str, str]]:
    return [{"code": "x", "severity": "error", "detail": detail, "next_step": "", "vendor": "rebellions"}]


Change = Callable[[Tree], None]


def nothing(tree: Tree) -> None:
    pass


def unlink(path: str) -> Change:
    return lambda tree: tree.real(path).unlink()


def write(path: str, text: str) -> Change:
    return lambda tree: tree.write(path, text) and None


def as_folder(tree: Tree) -> None:
    tree.real("/run/cdi/rbln.yaml").unlink()
    tree.folder("/run/cdi/rbln.yaml")


def renamed(name: str) -> Change:
    return lambda tree: tree.real("/run/cdi/rbln.yaml").rename(tree.real("/run/cdi/" + name)) and None


def looping(path: str) -> Change:
    def change(tree: Tree) -> None:
        tree.real(path).unlink()
        tree.link(path, path)

    return change


TWO = dict(runtimes(), selected=[], ambiguous={"reason": "containerd and docker, no kubelet", "next_step": "name one"})
NONE = dict(runtimes(), selected=[], runtimes=[])
# Another one than the one that is named.
ABSENT = {"code": "runtime_not_found", "detail": "the wanted runtime podman is not on this host, which has containerd"}
OTHER = dict(runtimes(), selected=[], problems=[ABSENT])
CONFLICT = [
    {
        "kind": "device",
        "name": "rebellions.ai/npu=0",
        "paths": ["/var/run/cdi/rbln.yaml", "/etc/cdi/vendor.yaml"],
        "chosen": None,
    }
]
HIDDEN = [
    dict(CONFLICT[0], chosen="/var/run/cdi/rbln.yaml"),
    {"kind": "version", "name": "x", "paths": ["/a", "/b"], "chosen": "/a"},
]


def trusted(code: str = "", severity: str = "error", state: str = "value") -> dict[str, Any]:
    """As compare() answers when it looked at the directories, with one problem and one directory in a state."""
    place = {"path": "/etc/cdi", "state": state, "linked_to": None, "owner": 0, "group": 0, "mode": "0755"}
    found = [dict(problem("about " + code)[0], code=code, severity=severity, next_step="Do it.")] if code else []
    return cdi(directories=[place], files=[], problems=found)


# name, change to the good tree, cdi, runtimes, ok, severity, words of the detail
TABLE = [
    ("driver_ready_readable", nothing, cdi(), runtimes(), True, "error", "can be read"),
    ("driver_ready_readable", unlink(READY), cdi(), runtimes(), None, "info", "has not passed its proof yet"),
    (
        "driver_ready_readable",
        write(READY, "A=1\nB=$(reboot)\n"),
        cdi(),
        runtimes(),
        False,
        "error",
        "driver-ready, line 2",
    ),
    ("cdi_spec_present", nothing, cdi(), runtimes(), True, "error", "/var/run/cdi/rbln.yaml"),
    ("cdi_spec_present", renamed("My-RBLN.json"), cdi(), runtimes(), True, "error", "/var/run/cdi/My-RBLN.json"),
    ("cdi_spec_present", renamed("rbln.yml"), cdi(), runtimes(), False, "error", "no CDI specification"),
    (
        "cdi_spec_present",
        unlink("/run/cdi/rbln.yaml"),
        cdi(state="missing"),
        runtimes(),
        False,
        "error",
        "no CDI specification",
    ),
    (
        "cdi_spec_present",
        unlink("/run/cdi/rbln.yaml"),
        cdi(state="missing", action="fail", problems=problem("two versions")),
        runtimes(),
        False,
        "error",
        "and none can be generated: two versions",
    ),
    ("cdi_spec_present", write("/run/cdi/rbln.yaml", ""), cdi(), runtimes(), False, "error", "is empty"),
    ("cdi_spec_present", as_folder, cdi(), runtimes(), False, "error", "is a dir"),
    ("cdi_spec_valid", nothing, cdi(), runtimes(), True, "error", "valid"),
    (
        "cdi_spec_valid",
        nothing,
        cdi(state="invalid", problems=problem("line 3: x")),
        runtimes(),
        False,
        "error",
        "line 3: x",
    ),
    (
        "cdi_spec_valid",
        nothing,
        cdi(state="unknown", problems=problem("Permission denied")),
        runtimes(),
        None,
        "error",
        "Permission denied",
    ),
    ("cdi_spec_current", nothing, cdi(), runtimes(), True, "error", "same as"),
    ("cdi_spec_current", nothing, cdi(state="stale", changed=True), runtimes(), False, "error", "would change it"),
    (
        "cdi_spec_current",
        nothing,
        cdi(state="stale", action="fail", problems=problem("no devices")),
        runtimes(),
        False,
        "error",
        "no devices",
    ),
    ("cdi_spec_current", nothing, cdi(state="unknown"), runtimes(), None, "error", "not compared"),
    ("cdi_spec_fresh", nothing, cdi(), runtimes(), True, "error", "not older"),
    ("cdi_spec_fresh", lambda tree: age(tree, READY, NEW), cdi(), runtimes(), True, "error", "not older"),
    (
        "cdi_spec_fresh",
        lambda tree: age(tree, READY, NEW + 1),
        cdi(state="stale"),
        runtimes(),
        False,
        "error",
        "older than " + READY,
    ),
    (
        "cdi_spec_fresh",
        lambda tree: age(tree, LIBRARY, NEW + 1),
        cdi(state="unknown"),
        runtimes(),
        False,
        "error",
        "older than " + LIBRARY,
    ),
    (
        "cdi_spec_fresh",
        lambda tree: age(tree, READY, NEW + 1),
        cdi(),
        runtimes(),
        False,
        "warning",
        "contents are what would be generated",
    ),
    ("cdi_host_paths", nothing, cdi(), runtimes(), True, "error", "every path exists"),
    (
        "cdi_host_paths",
        nothing,
        cdi(state="stale", missing_host_paths=["/usr/lib64/a"]),
        runtimes(),
        False,
        "error",
        "/usr/lib64/a",
    ),
    ("cdi_no_conflict", nothing, cdi(conflicts=HIDDEN), runtimes(), True, "error", "no device"),
    (
        "cdi_no_conflict",
        nothing,
        cdi(conflicts=CONFLICT),
        runtimes(),
        False,
        "error",
        "rebellions.ai/npu=0: defined in /etc/cdi/vendor.yaml too",
    ),
    ("cdi_dirs_trusted", nothing, trusted(), runtimes(), True, "error", "only root"),
    ("cdi_dirs_trusted", nothing, trusted("cdi_dir_writable"), runtimes(), False, "error", "about cdi_dir_writable"),
    ("cdi_dirs_trusted", nothing, trusted("cdi_dir_linked", "warning"), runtimes(), False, "warning", "about"),
    ("cdi_dirs_trusted", nothing, trusted(state="denied"), runtimes(), None, "error", "/etc/cdi (denied)"),
    ("cdi_files_trusted", nothing, trusted(), runtimes(), True, "error", "only root"),
    ("cdi_files_trusted", nothing, trusted("cdi_file_writable"), runtimes(), False, "error", "about"),
    ("cdi_files_trusted", nothing, trusted(state="failed"), runtimes(), None, "error", "/etc/cdi (failed)"),
    ("cdi_hooks_known", nothing, trusted(), runtimes(), True, "error", "known"),
    ("cdi_hooks_known", nothing, trusted("cdi_hook_unknown"), runtimes(), False, "error", "about cdi_hook_unknown"),
    ("cdi_hooks_known", nothing, trusted("cdi_hook_writable"), runtimes(), False, "error", "about"),
    ("cdi_hooks_known", nothing, trusted("cdi_spec_unreadable", "warning"), runtimes(), None, "warning", "about"),
    ("cdi_hooks_known", nothing, trusted(state="timeout"), runtimes(), None, "error", "/etc/cdi (timeout)"),
    ("cdi_no_other_file", nothing, trusted(), runtimes(), True, "warning", "no other"),
    ("cdi_no_other_file", nothing, trusted("cdi_other_file", "warning"), runtimes(), False, "warning", "about"),
    ("cdi_no_other_file", nothing, trusted(state="denied"), runtimes(), None, "warning", "/etc/cdi"),
    ("cdi_no_plugin_leftover", nothing, trusted(), runtimes(), True, "warning", "no device plugin"),
    ("cdi_no_plugin_leftover", nothing, trusted(state="denied"), runtimes(), None, "warning", "/etc/cdi"),
    (
        "cdi_no_plugin_leftover",
        nothing,
        trusted("cdi_plugin_leftover", "warning"),
        runtimes(),
        False,
        "warning",
        "about",
    ),
    ("cdi_readable_by_all", nothing, trusted(), runtimes(), True, "warning", "every user"),
    ("cdi_readable_by_all", nothing, trusted("cdi_dir_unreadable", "warning"), runtimes(), False, "warning", "about"),
    ("cdi_readable_by_all", nothing, trusted("cdi_file_unreadable", "warning"), runtimes(), False, "warning", "about"),
    ("cdi_readable_by_all", nothing, trusted(state="denied"), runtimes(), None, "warning", "/etc/cdi"),
    ("runtime_known", nothing, cdi(), runtimes(), True, "error", "containerd"),
    ("runtime_known", nothing, cdi(), TWO, False, "error", "containerd and docker"),
    ("runtime_known", nothing, cdi(), NONE, False, "error", "no container runtime"),
    ("runtime_known", nothing, cdi(), OTHER, False, "error", "podman is not on this host, which has containerd"),
    ("runtime_cdi_on", nothing, cdi(), runtimes(), True, "error", "on in containerd"),
    (
        "runtime_cdi_on",
        nothing,
        cdi(),
        runtimes(cdi={"state": "on_by_default", "spec_dirs": []}),
        True,
        "error",
        "on in containerd",
    ),
    ("runtime_cdi_on", nothing, cdi(), runtimes(cdi={"state": "off", "spec_dirs": []}), False, "error", "CDI is off"),
    (
        "runtime_cdi_on",
        nothing,
        cdi(),
        runtimes(cdi={"state": "unsupported", "spec_dirs": []}),
        False,
        "error",
        "CDI is unsupported",
    ),
    (
        "runtime_cdi_on",
        nothing,
        cdi(),
        runtimes(cdi={"state": "unknown", "spec_dirs": []}),
        None,
        "error",
        "CDI of containerd",
    ),
    ("runtime_reads_dir", nothing, cdi(), runtimes(), True, "error", "/var/run/cdi is read"),
    (
        "runtime_reads_dir",
        nothing,
        cdi(),
        runtimes(cdi={"state": "on", "spec_dirs": ["/run/cdi/"]}),
        True,
        "error",
        "/var/run/cdi is read",
    ),
    (
        "runtime_reads_dir",
        nothing,
        cdi(),
        runtimes(cdi={"state": "on", "spec_dirs": ["/etc/cdi"]}),
        False,
        "error",
        "containerd reads /etc/cdi, not",
    ),
    (
        "runtime_reads_dir",
        nothing,
        cdi(),
        runtimes(cdi={"state": "on", "spec_dirs": []}),
        None,
        "error",
        "directories of containerd",
    ),
    ("runtime_is_fresh", nothing, cdi(), runtimes(), True, "error", "newer than its configuration"),
    (
        "runtime_is_fresh",
        nothing,
        cdi(),
        runtimes(process_stale=True),
        False,
        "error",
        "runs with an older configuration",
    ),
    ("runtime_is_fresh", nothing, cdi(), runtimes(process_stale=None), None, "error", "age of containerd"),
    ("runtime_sees_spec", nothing, cdi(), runtimes(), None, "error", "containerd gives no answer"),
    ("runtime_sees_spec", nothing, cdi(), runtimes(name="podman"), True, "error", "seen by podman"),
    (
        "runtime_sees_spec",
        unlink("/run/cdi/rbln.yaml"),
        cdi(state="missing"),
        runtimes(name="podman"),
        False,
        "error",
        "no specification",
    ),
]
STOPPED = {"unit": "containerd.service", "unit_state": "inactive", "process_started": None, "process_stale": None}
NEVER_UNKNOWN = {"cdi_spec_fresh", "cdi_host_paths", "cdi_no_conflict", "runtime_known"}
OWN_TESTS = {"containers_are_back"}


@pytest.mark.parametrize(
    "name, change, found, running, ok, severity, words",
    TABLE,
    ids=["%s-%s-%d" % (row[0], row[4], at) for at, row in enumerate(TABLE)],
)
def test_check(
    tmp_path: Path,
    name: str,
    change: Change,
    found: dict[str, Any],
    running: dict[str, Any],
    ok: bool | None,
    severity: str,
    words: str,
) -> None:
    tree = good(tmp_path)
    change(tree)
    record = checks(tree, found, running)[name]
    assert (record.ok, record.severity) == (ok, severity)
    assert words in record.detail
    assert bool(record.next_step) is (ok is not True)


def test_every_check_is_in_the_table_with_every_answer() -> None:
    for entry in SCOPE.entries:
        if entry.name not in OWN_TESTS:
            answers = {row[4] for row in TABLE if row[0] == entry.name} | (
                {None} if entry.name in NEVER_UNKNOWN | {"cdi_spec_present"} else set()
            )
            assert answers == {True, False, None}, entry.name


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_runtime_that_is_stopped_is_called_so(tmp_path: Path, state: str) -> None:
    found = checks(good(tmp_path), cdi(), runtimes(**{**STOPPED, "unit_state": state}))
    record = found["runtime_sees_spec"]
    assert (record.ok, record.detail) == (None, "containerd is stopped (containerd.service is %s)" % state)
    assert record.next_step.startswith("Run `systemctl start containerd.service` on the host")
    # No process has an age.
    assert "runtime_is_fresh" not in found and found["runtime_cdi_on"].ok is True


@pytest.mark.parametrize("change", [{"unit_state": "activating"}, {"process_started": 1.0}, {"unit_state": "unknown"}])
def test_a_runtime_is_not_called_stopped_without_knowing_it(tmp_path: Path, change: dict[str, Any]) -> None:
    found = checks(good(tmp_path), cdi(), runtimes(**{**STOPPED, **change}))
    assert found["runtime_sees_spec"].ok is None and "gives no answer" in found["runtime_sees_spec"].detail
    assert found["runtime_is_fresh"].ok is None


def test_what_runs_and_is_wrong_counts_more_than_what_is_stopped(tmp_path: Path) -> None:
    tree = good(tmp_path)
    running = runtimes(name="podman")
    running["runtimes"] += runtimes(**STOPPED)["runtimes"]
    running["selected"] = ["podman", "containerd"]
    tree.real("/run/cdi/rbln.yaml").unlink()
    record = checks(tree, cdi(state="missing"), running)["runtime_sees_spec"]
    assert record.ok is False and "no specification" in record.detail
    assert record.next_step.startswith("Run `ansible-playbook rebellions.npu.site --tags toolkit`, or `rbln-host cdi`")


def test_the_next_step_is_a_command(tmp_path: Path) -> None:
    record = checks(good(tmp_path), cdi(state="stale"))["cdi_spec_current"]
    assert record.next_step == (
        "Run `ansible-playbook rebellions.npu.site --tags toolkit`, or `rbln-host cdi` on the host."
    )


def test_a_directory_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    tree = good(tmp_path)
    looping("/run/cdi/rbln.yaml")(tree)
    tree.real("/run/cdi").rename(tree.real("/run/away"))
    tree.link("/run/cdi", "/run/cdi")
    record = checks(tree, cdi(state="unknown"))["cdi_spec_present"]
    assert record.ok is None and "symbolic links" in record.detail


@pytest.mark.parametrize(
    "recording, ok, words",
    [
        ("cri_status_containerd_1.6.20.bin", False, "CDI is off in the running containerd"),
        ("cri_status_containerd_1.7.24_off.bin", False, "CDI is off in the running containerd"),
        ("cri_status_containerd_1.7.24_on.bin", True, "seen by containerd"),
        ("cri_status_containerd_2.4.2.bin", True, "seen by containerd"),
        ("cri_refused_containerd_1.6.20.bin", None, "the server refused the call"),
    ],
)
def test_the_running_containerd_answers_for_itself(tmp_path: Path, recording: str, ok: bool | None, words: str) -> None:
    tree = good(tmp_path)
    with replay(tree.real(SOCKET), (HERE / recording).read_bytes()):
        found = checks(tree, cdi(), runtimes(process_stale=None))
    record = found["runtime_sees_spec"]
    assert record.ok is ok and words in record.detail
    steps = {
        True: "",
        False: "Run `systemctl restart containerd.service` on the host. If that does not help, run `ansible-playbook "
        "rebellions.npu.site --tags toolkit`.",
        None: "Run `rbln-host validate --scope toolkit` on the host as root. If root gets no answer either, run "
        "`systemctl restart containerd.service`.",
    }
    assert record.next_step == steps[ok]
    assert found["runtime_is_fresh"].ok is (None if ok is None else True)


@pytest.mark.parametrize(
    "info, ok, words",
    [
        ({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, True, "seen by docker"),
        (
            {
                "CDISpecDirs": ["/etc/cdi", "/run/cdi"],
                "DiscoveredDevices": [{"Source": "cdi", "ID": "rebellions.ai/npu=0"}],
            },
            True,
            "seen by docker",
        ),
        ({"CDISpecDirs": ["/run/cdi"], "DiscoveredDevices": []}, False, "does not have rebellions.ai/npu=0"),
        (
            {"CDISpecDirs": ["/run/cdi"], "DiscoveredDevices": [{"Source": "x", "ID": "rebellions.ai/npu=0"}]},
            False,
            "does not have rebellions.ai/npu=0",
        ),
        ({"CDISpecDirs": ["/etc/cdi"]}, False, "the running docker reads /etc/cdi"),
        ({"CDISpecDirs": []}, False, "CDI is off in the running docker"),
        ({"CDISpecDirs": None}, False, "CDI is off in the running docker"),
        ({"ServerVersion": "24.0.7"}, None, "this docker (24.0.7) does not show"),
        ("no json", None, "docker gives no answer"),
        ([], None, "not an object"),
    ],
)
def test_the_running_docker_answers_for_itself(tmp_path: Path, info: Any, ok: bool | None, words: str) -> None:
    tree = good(tmp_path)
    with http_on(tree.real("/run/docker.sock"), {"/info": info}):
        record = checks(tree, cdi(), runtimes(name="docker", socket="/run/docker.sock"))["runtime_sees_spec"]
    assert record.ok is ok and words in record.detail


@pytest.mark.parametrize(
    "text, ok",
    [
        ('[crio.runtime]\ncdi_spec_dirs = [\n  "/etc/cdi",\n  "/var/run/cdi",\n]\n', True),
        ('[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n', False),
        ("[crio.runtime]\n", None),
    ],
)
def test_the_running_crio_answers_for_itself(tmp_path: Path, text: str, ok: bool | None) -> None:
    tree = good(tmp_path)
    with http_on(tree.real("/run/crio/crio.sock"), {"/config": text}):
        record = checks(tree, cdi(), runtimes(name="cri-o", socket="/run/crio/crio.sock"))["runtime_sees_spec"]
    assert record.ok is ok


@pytest.mark.parametrize("_id", ["C08-cdi-stale-libs"])
def test_specification_of_the_previous_driver(tmp_path: Path, _id: str) -> None:
    tree = Tree(tmp_path).folder("/sys/class/rebellions").char("/dev/rbln0", 511, 0)
    for line in (CASES / _id / "host-files.txt").read_text(encoding="utf-8").splitlines():
        path, arrow, target = line.partition(" -> ")
        if path.startswith("/usr"):
            tree.link(path, target) if arrow else tree.write(path, "\x7fELF")
    tree.folder("/var/run/cdi").write("/var/run/cdi/rbln.yaml", (CASES / _id / "rbln.yaml").read_text(encoding="utf-8"))
    host = Host(str(tmp_path))
    found = compare(PROFILE, host, CdiOptions(), "/var/run/cdi/rbln.yaml")
    found["problems"] = [item.to_dict() for item in found["problems"]]
    records = checks(tree, found)
    assert records["cdi_host_paths"].ok is False
    assert records["cdi_host_paths"].evidence["missing"] == ["/usr/lib64/librbln-ccl.so.3.0.0"]
    assert records["cdi_spec_current"].ok is False and records["cdi_spec_valid"].ok is True


def test_a_host_whose_npus_are_for_virtual_machines_needs_no_toolkit(tmp_path: Path) -> None:
    look = changed(changed(facts(), "npus", 0, "state", "passthrough"), "npus", 1, "state", "passthrough")
    records = run_checks(PROFILE, Host(str(tmp_path)), look, NONE, cdi(state="missing"), {}, ("toolkit", "plugin"))
    assert [(record.name, record.scope, record.ok) for record in records] == [
        ("not_for_containers", "toolkit", True),
        ("not_for_containers", "plugin", True),
    ]


def container(name: str, running: bool, restart: str, device: str) -> dict[str, Any]:
    return {
        "Name": "/" + name,
        "State": {"Running": running},
        "HostConfig": {
            "RestartPolicy": {"Name": restart},
            "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [device]}],
        },
    }


@pytest.mark.parametrize(
    "listing, state",
    [(None, "failed"), ({}, "failed"), ([{}], "failed"), ("{", "failed"), ([], "value"), ([{"Id": "gone"}], "value")],
)
def test_a_list_of_containers_that_is_none(tmp_path: Path, listing: Any, state: str) -> None:
    answers = {} if listing is None else {"/containers/json?all=1": listing}
    with http_on(tmp_path / "d", answers):
        found = docker_containers(str(tmp_path / "d"), "rebellions.ai/npu=")
    assert found.state == state and found.get([]) == []


@pytest.mark.parametrize("_id", ["W04-restart-always-cdi"])
def test_container_that_did_not_come_back(tmp_path: Path, _id: str) -> None:
    name, restart, device, after = (CASES / _id / "docker-ps.tsv").read_text(encoding="utf-8").strip().split("\t")
    version = (CASES / _id / "versions.yml").read_text(encoding="utf-8").split()[1]
    assert after.startswith("Exited")
    before = [{"name": name, "running": True, "restart": "always", "devices": [device]}]
    tree = good(tmp_path)
    running = runtimes(name="docker", socket="/run/docker.sock", version=version)
    answers = {
        "/containers/json?all=1": [{"Id": "1"}],
        "/containers/1/json": container(name, False, restart.split("=")[1], device),
    }
    assert checks(tree, cdi(), running, {"containers_before": before})["containers_are_back"].ok is None
    with http_on(tree.real("/run/docker.sock"), answers):
        record = checks(tree, cdi(), running, {"containers_before": before})["containers_are_back"]
        assert record.ok is False and name in record.detail and version in record.detail
        assert record.next_step == "docker start " + name
    answers["/containers/1/json"] = container(name, True, "always", device)
    with http_on(tree.real("/run/docker.sock"), answers):
        assert checks(tree, cdi(), running, {"containers_before": before})["containers_are_back"].ok is True
    assert "containers_are_back" not in checks(tree, cdi(), running)


@pytest.mark.parametrize("policy, severity", [("fail", "error"), ("warn", "warning"), (None, "error")])
def test_a_host_without_a_runtime_is_judged_by_the_policy(tmp_path: Path, policy: str | None, severity: str) -> None:
    record = checks(good(tmp_path), cdi(), NONE, {"no_runtime": policy})["runtime_known"]
    assert (record.ok, record.severity) == (False, severity)


@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
def test_a_named_runtime_that_is_not_there_is_an_error_whatever_the_policy(tmp_path: Path, policy: str) -> None:
    record = checks(good(tmp_path), cdi(), OTHER, {"no_runtime": policy})["runtime_known"]
    assert (record.ok, record.severity) == (False, "error") and "name a runtime of this host" in record.next_step
    # Where there is none at all, the policy decides, also when one is named.
    bare = dict(NONE, problems=[ABSENT])
    assert ("runtime_known" in checks(good(tmp_path), cdi(), bare, {"no_runtime": policy})) is (policy != "ignore")


def test_a_host_that_needs_no_runtime_is_not_judged_for_it(tmp_path: Path) -> None:
    assert "runtime_known" not in checks(good(tmp_path), cdi(), NONE, {"no_runtime": "ignore"})
