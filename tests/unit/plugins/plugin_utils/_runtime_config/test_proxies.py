# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxies of runtimes: what their units have already is kept. Case G02."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config import proxies
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import RuntimeEdit, Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.file_set import with_proxies
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import undo

UNIT = "containerd.service"
ETC = "/etc/systemd/system/containerd.service.d/"
CONF, ENV = proxies.own_files(UNIT)
RUNTIME = {"name": "containerd", "flavor": "system", "unit": UNIT}
WANTED = {"http_proxy": "", "https_proxy": "http://u:p%40$x@proxy.example:3128", "no_proxy": ["10.96.0.0/12", ".svc"]}


def files_of(texts: t.Mapping[str, str]) -> dict[str, Source]:
    return {path: Source(path, text.encode()) for path, text in texts.items()}


def theirs(texts: t.Mapping[str, str]) -> dict[str, str]:
    files = files_of(texts)
    paths = proxies.in_effect(files, proxies.unit_files(UNIT, texts))
    return proxies.present_variables(files, paths, proxies.variable_files(files, paths))


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
    ],
    ids=["none", "two-in-a-line", "reset", "first-place-wins", "first-unit-wins", "quotes", "file-wins", "ours"],
)
def test_what_others_set(texts: dict[str, str], found: dict[str, str]) -> None:
    assert theirs(texts) == found


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
    import base64

    content = {item["path"]: base64.b64decode(item["content"]).decode() for item in done.files}
    assert 'https_proxy="http://u:p%40\\$x@proxy.example:3128"' in content[ENV]
    assert [path for path, text in content.items() if "p%40" in text] == [ENV]
    assert done.diffs and not any("p%40" in text for text in done.diffs)


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
