# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxies of runtimes: what their units have already is kept. Case G02."""

from __future__ import annotations

import base64
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import proxies
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import RuntimeEdit, Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.file_set import absent, noted, with_proxies
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import RECORD, read_record, undo

UNIT = "containerd.service"
ETC = "/etc/systemd/system/containerd.service.d/"
CONF, ENV = proxies.own_files(UNIT)
RUNTIME = {"name": "containerd", "flavor": "system", "unit": UNIT}
WANTED = {"http_proxy": "", "https_proxy": "http://u:p%40$x@proxy.example:3128", "no_proxy": ["10.96.0.0/12", ".svc"]}


def files_of(texts: t.Mapping[str, str]) -> dict[str, Source]:
    """Unit files may lack the head of their one section."""
    unit = (".conf", ".service")
    return {
        path: Source(path, (text if "[" in text or not path.endswith(unit) else "[Service]\n" + text).encode())
        for path, text in texts.items()
    }


def theirs(texts: t.Mapping[str, str], unit: str = UNIT) -> dict[str, str]:
    files = files_of(texts)
    paths = proxies.in_effect(files, proxies.unit_files(unit, texts))
    more = proxies.matched(proxies.variable_files(files, unit, paths), list(texts))
    return proxies.present_variables(files, unit, paths, more)


def plan(texts: t.Mapping[str, str], wanted: t.Mapping[str, t.Any] | None = None, **runtime: t.Any) -> RuntimeEdit:
    asked = WANTED if wanted is None else wanted
    return proxies.plan_proxies({**RUNTIME, **runtime}, files_of(texts), theirs(texts), asked)


def values(made: RuntimeEdit) -> dict[str, str]:
    text = next((item.new or b"").decode() for item in made.files if item.path == ENV)
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


PLACE, OTHER = "/usr/lib/systemd/system/containerd.service", "/etc/default/c"


@pytest.mark.parametrize(
    "texts, found",
    [
        ({}, {}),
        (
            {ETC + "p.conf": 'Environment="HTTP_PROXY=http://a" NO_PROXY=x,y\n'},
            {"HTTP_PROXY": "http://a", "NO_PROXY": "x,y"},
        ),
        ({ETC + "a.conf": "[Service]\nEnvironment=NO_PROXY=a\n", ETC + "b.conf": "Environment=\n"}, {}),
        ({ETC + "b.conf": "Environment=A=1\n", PLACE + ".d/b.conf": "Environment=A=2\n"}, {"A": "1"}),
        ({"/etc/systemd/system/" + UNIT: "Environment=A=1\n", PLACE: "Environment=B=2\n"}, {"A": "1"}),
        ({ETC + "a.conf": "Environment='P=a%%20b' \"Q=x y\"\n"}, {"P": "a%20b", "Q": "x y"}),
        (
            {ETC + "a.conf": "EnvironmentFile=-%s\nEnvironment=NO_PROXY=a\n" % OTHER, OTHER: '# x\nNO_PROXY="b,c"\n'},
            {"NO_PROXY": "b,c"},
        ),
        ({CONF: "[Service]\nEnvironmentFile=%s\n" % ENV, ENV: "NO_PROXY=ours\n"}, {}),
        ({ETC + "a.conf": "EnvironmentFile=-/etc/default/%N\n", "/etc/default/containerd": "A=1\n"}, {"A": "1"}),
        (
            {
                ETC + "a.conf": "EnvironmentFile=/etc/%p.d/*.env\n",
                "/etc/containerd.d/b.env": "A=2",
                "/etc/containerd.d/a.env": "A=1",
                "/etc/containerd.d/c.conf": "A=3",
            },
            {"A": "2"},
        ),
        ({ETC + "a.conf": "EnvironmentFile=%s\n" % OTHER, ETC + "b.conf": "EnvironmentFile=\n", OTHER: "A=1"}, {}),
        (
            {
                "/etc/systemd/system/service.d/a.conf": "Environment=A=1 B=1\n",
                "/usr/lib/systemd/system/service.d/b.conf": "Environment=B=2\n",
                ETC + "a.conf": "Environment=A=2\n",
            },
            {"A": "2", "B": "2"},
        ),
        ({ETC + "a.conf": "[Service]\nEnvironment=A=1 \\\n  B=%n\n[Unit]\nEnvironment=C=1\n"}, {"A": "1", "B": UNIT}),
        ({ETC + "a.conf": "EnvironmentFile=%s\n" % OTHER, OTHER: "NO_PROXY=a,\\\nb\n"}, {"NO_PROXY": "a,b"}),
    ],
    ids=[
        "none",
        "two-in-a-line",
        "reset",
        "first-place-wins",
        "first-unit-wins",
        "quotes",
        "file-wins",
        "ours",
        "specifier",
        "pattern",
        "files-reset",
        "drop-ins-of-all-services",
        "continued",
        "continued-file",
    ],
)
def test_what_others_set(texts: dict[str, str], found: dict[str, str]) -> None:
    assert theirs(texts) == found


def test_drop_ins_of_a_prefix_of_the_unit_and_of_a_template() -> None:
    place = "/etc/systemd/system/"
    texts = {place + "k3s-.service.d/a.conf": "Environment=A=1\n", place + "k3s.service.d/a.conf": "Environment=A=2\n"}
    assert theirs(texts, "k3s-agent.service") == {"A": "1"}
    assert theirs({place + "x@.service.d/a.conf": "Environment=A=%i\n"}, "x@one.service") == {"A": "one"}


@pytest.mark.parametrize("flavor", ["k3s", "rke2", "k0s"])
def test_only_the_containerd_of_a_distribution_gets_the_proxies(flavor: str) -> None:
    """Their unit is the agent and the kubelet too, which would ask the API server through the proxy."""
    given = {"HTTP_PROXY": "http://site:1", "NO_PROXY": "a", "CONTAINERD_NO_PROXY": "b", "no_proxy": "c"}
    wanted = {**WANTED, "http_proxy": "http://proxy:1"}
    made = proxies.plan_proxies({**RUNTIME, "flavor": flavor}, {}, given, wanted)
    found = values(made)
    assert {name.partition("_")[0] for name in found} == {"CONTAINERD"}
    assert set(found) == {"CONTAINERD_" + name for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")}
    assert found["CONTAINERD_NO_PROXY"].startswith('"b,a,c,10.96.0.0/12') and len(made.warnings) == 1


def test_G02_the_proxies_of_an_existing_drop_in_are_kept_and_its_exceptions_merged() -> None:
    texts = {
        ETC
        + "http-proxy.conf": '[Service]\nEnvironment="HTTPS_PROXY=http://other:1"\nEnvironment="NO_PROXY=site,.svc"\n'
    }
    made = plan(texts, {**WANTED, "http_proxy": "http://proxy.example:3128"})
    assert [item.path for item in made.files] == [ENV, CONF]
    assert values(made) == {
        "HTTP_PROXY": '"http://proxy.example:3128"',
        "http_proxy": '"http://proxy.example:3128"',
        "NO_PROXY": '"site,.svc,10.96.0.0/12,localhost,127.0.0.1,::1"',
        "no_proxy": '"site,.svc,10.96.0.0/12,localhost,127.0.0.1,::1"',
    }
    assert made.warnings == ["HTTPS_PROXY is set to another value by the unit's own files, which is kept"]
    assert (made.files[1].new or b"").decode().endswith("[Service]\nEnvironmentFile=%s\n" % ENV)
    again = plan(
        {**texts, **{item.path: (item.new or b"").decode() for item in made.files}},
        {**WANTED, "http_proxy": "http://proxy.example:3128"},
    )
    assert again.files == []


def test_a_password_is_in_the_file_of_variables_alone_and_in_no_difference_and_no_record() -> None:
    files = files_of({})
    done = with_proxies([RUNTIME], files, {}, {UNIT: {}}, WANTED)
    assert [(item["path"], item["mode"]) for item in done.files[1:]] == [(ENV, "0600"), (CONF, "0644")]
    assert done.files[0]["mode"] == "0600"
    content = {item["path"]: base64.b64decode(item["content"]).decode() for item in done.files}
    assert 'https_proxy="http://u:p%40\\$x@proxy.example:3128"' in content[ENV]
    assert [path for path, text in content.items() if "p%40" in text] == [ENV]
    assert done.diffs and not any("p%40" in text for text in done.diffs)


def test_removal_of_one_kind_leaves_the_other() -> None:
    main = "/etc/containerd/config.toml"
    files = files_of({main: "version = 2\n", ENV: "x", CONF: "x"})
    group = {"before": None, "after": files[main].sha256, "splices": [[0, "", "version = 2\n"]], "changes": []}
    note = {"runtime": "containerd", "aside": "", "created_dirs": [], "groups": [group]}

    def paths(kinds: t.Sequence[str]) -> tuple[list[str], list[str]]:
        notes = {main: {**note, "format": "toml"}, **{path: {**note, "format": "unit"} for path in (ENV, CONF)}}
        record: dict[str, t.Any] = {"schema": 1, "files": notes}
        chosen = noted(record, {"runtimes": [RUNTIME]}, ["selected"], kinds)
        done = absent(chosen, {**files, RECORD: Source(RECORD, b"{}")}, record, kinds)
        return [item["path"] for item in done.files if item["path"] != RECORD], list(record["files"])

    assert paths(["proxies"]) == ([ENV, CONF], [main])
    assert paths(["cdi"])[1] == [ENV, CONF]
    record = {"schema": 1, "files": {main: {**note, "format": "toml"}}}
    assert noted(record, {"runtimes": [RUNTIME]}, ["selected"], ["proxies"]) == []


def _written(files: dict[str, Source], requests: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, Source]:
    """The files after the writer."""
    changed = {
        item["path"]: Source(item["path"], None if item["content"] is None else base64.b64decode(item["content"]))
        for item in requests
    }
    return {**files, **changed}


def test_a_failed_restart_leaves_the_values_of_earlier_runs() -> None:
    """What rolls back is the last change: not the removal of all that is ours."""
    first = _written({}, with_proxies([RUNTIME], {}, {}, {UNIT: {}}, WANTED).files)
    wanted = {**WANTED, "https_proxy": "http://u:n0t-a-Real-one@proxy.example:3128"}
    made = with_proxies([RUNTIME], first, {}, {UNIT: {}}, wanted)
    former = ENV + proxies.FORMER
    assert [(item["path"], item["mode"]) for item in made.files[1:]] == [(ENV, "0600"), (former, "0600")]
    assert not any("p%40" in text or "n0t-a" in text for text in made.diffs)
    second = _written(first, made.files)
    assert second[former].data == first[ENV].data != second[ENV].data
    record = read_record(second[RECORD])
    paths = [item["path"] for item in made.files]
    done = absent(noted(record, {"runtimes": [RUNTIME]}, ["selected"]), second, record, only=paths)
    third = _written(second, done.files)
    assert {path: third[path].data for path in (ENV, CONF)} == {path: first[path].data for path in (ENV, CONF)}
    assert third[former].data is None and set(read_record(third[RECORD])["files"]) == {ENV, CONF}
    # A removal takes the rest.
    record = read_record(third[RECORD])
    gone = _written(third, absent(noted(record, {"runtimes": [RUNTIME]}, ["selected"]), third, record).files)
    assert [path for path, found in gone.items() if found.data is not None] == []


def test_a_failed_first_restart_leaves_nothing() -> None:
    made = with_proxies([RUNTIME], {}, {}, {UNIT: {}}, WANTED)
    first = _written({}, made.files)
    record = read_record(first[RECORD])
    chosen = noted(record, {"runtimes": [RUNTIME]}, ["containerd"])
    done = absent(chosen, first, record, only=[item["path"] for item in made.files])
    assert [path for path, found in _written(first, done.files).items() if found.data is not None] == []


def test_removal_takes_the_files_whatever_is_in_them() -> None:
    made = plan({})
    for item in made.files:
        note = {"format": item.format, "groups": [{"before": None, "after": "x", "splices": [], "changes": []}]}
        back = undo(Source(item.path, (item.new or b"") + b"# more\n"), note, [])
        assert back is not None and back.new is None


def test_what_cannot_be_served_is_refused_or_left() -> None:
    with pytest.raises(NpuError, match="Set them in /var/snap/microk8s/current/args/containerd-env"):
        plan({}, flavor="microk8s")
    with pytest.raises(NpuError, match="HTTPS_PROXY has a control character"):
        plan({}, {**WANTED, "https_proxy": "http://a\nB=c"})
    assert proxies.unit_of({"name": "podman", "unit": "podman.service"}) == ""
    assert proxies.unit_of({**RUNTIME, "flavor": "docker-backend"}) == ""
