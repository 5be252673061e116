# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a kubeconfig is used and what is refused; with a server that wants a client's certificate."""

from __future__ import annotations

import base64
import copy
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import api, kubeconfig
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.for_tasks import given_to_tasks
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.login import read_login
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.plain import read_plain

pytest.importorskip("kubernetes")
Data = dict[str, Any]
PLAIN: Data = {
    "clusters": [
        {"name": "c", "cluster": {"server": "http://one/"}},
        {"name": "d", "cluster": {"server": "http://two"}},
    ],
    "users": [{"name": "u", "user": {"token": "t"}}, {"name": "v", "user": {}}],
    "contexts": [
        {"name": "x", "context": {"cluster": "c", "user": "u"}},
        {"name": "y", "context": {"cluster": "d", "user": "v"}},
    ],
    "current-context": "x",
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("K8S_AUTH_", "KUBE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def shape(read: Any) -> Any:
    """What is used of a configuration, the entry of the cluster, and of whom to act as; files by their content."""
    settings, cluster, acting = read
    paths = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
    files = [None if path is None else Path(path).read_bytes() for path in paths]
    token = settings.get_api_key_with_prefix("BearerToken")
    return settings.host, settings.verify_ssl, files, token, cluster, acting


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever a test here reads without the package, the package reads alike; the servers that were compared."""
    compared: list[str] = []

    def both(login: Any, files: Any, source: str, folder: str) -> Any:
        found = read_plain(login, files, source, folder)
        if found is not None:
            other = tempfile.mkdtemp(dir=folder)
            assert shape(found) == shape(kubeconfig._by_package(login, files, source, other))
            compared.append(found.settings.host)
        return found

    monkeypatch.setattr(kubeconfig, "read_plain", both)
    return compared


def written(path: Path, user: Any = None, cluster: Any = None, **more: Any) -> Path:
    config = copy.deepcopy(PLAIN)
    config.update(more)
    config["users"][0]["user"] = config["users"][0]["user"] if user is None else user
    config["clusters"][0]["cluster"].update(cluster or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("context", "host", "authorization"),
    [("", "http://one", "Bearer t"), ("x", "http://one", "Bearer t"), ("y", "http://two", "")],
)
def test_the_context_says_which_server_and_which_token(
    context: str, host: str, authorization: str, tmp_path: Path
) -> None:
    access = kubeconfig.open_access(str(written(tmp_path / "config")), context)
    assert (access.host, access.authorization()) == (host, authorization)


@pytest.mark.parametrize(
    ("variable", "value"), [("K8S_AUTH_KUBECONFIG", "~/a"), ("KUBECONFIG", "~/a"), ("", "~/.kube/config")]
)
def test_the_file_is_found_as_kubectl_finds_it(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written(tmp_path / value[2:])
    if variable:
        monkeypatch.setenv(variable, value)
    assert kubeconfig.open_access("", "").host == "http://one"


@pytest.mark.parametrize("user", [{"token": "t\n"}, {"tokenFile": "token"}])
def test_the_end_of_a_line_is_no_part_of_a_token(user: Data, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    assert kubeconfig.open_access(str(written(tmp_path / "config", user)), "").authorization() == "Bearer t"


@pytest.mark.parametrize("token", ["first\nlast", "pa\u20acss", "nul\0"])
def test_a_token_that_no_header_can_hold_is_not_shown(token: str, tmp_path: Path) -> None:
    path = written(tmp_path / "config", {"token": token})
    with pytest.raises(NpuError) as caught:
        Cluster(str(path), "").request("GET", "/", "Read")
    assert str(caught.value) == (
        "The token of the kubeconfig %s holds a character that no token has, such as a line end. "
        "Next: Write the token on one line." % path
    )


@pytest.mark.parametrize("user", [{"token": "t"}, {"username": "a", "password": "b"}])
@pytest.mark.parametrize("server", ["one:6443", "", "ftp://one"])
def test_a_server_without_a_scheme_gets_no_token(server: str, user: Data, tmp_path: Path) -> None:
    with pytest.raises(NpuError, match="The server '%s' of the kubeconfig .* has no scheme" % server):
        kubeconfig.open_access(str(written(tmp_path / "config", user, {"server": server})), "")


@pytest.mark.parametrize("user", [{"token": "t"}, {"username": "a", "password": "b"}])
@pytest.mark.parametrize("value", ["false", "true", 1])
def test_verification_is_turned_off_by_a_boolean_alone(value: Any, user: Data, tmp_path: Path) -> None:
    path = written(tmp_path / "config", user, {"server": "https://one", "insecure-skip-tls-verify": value})
    with pytest.raises(
        NpuError,
        match="insecure-skip-tls-verify of the cluster c in the kubeconfig %s is neither true nor false" % path,
    ):
        kubeconfig.open_access(str(path), "")


@pytest.mark.parametrize("cluster, loads", [({"insecure-skip-tls-verify": True}, False), ({}, True)])
def test_the_authorities_of_the_system_are_loaded_where_they_count(
    cluster: Data, loads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[None] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda self, *purpose: loaded.append(None))
    path = written(tmp_path / "config", {"token": "t"}, {"server": "https://one", **cluster})
    kubeconfig.open_access(str(path), "")
    assert bool(loaded) is loads


def plugin(tmp_path: Path, answer: str) -> Data:
    """A user whose exec plugin prints `answer`."""
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\nprintf %%s '%s'\n" % answer)
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


def credential(status: Data) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    user = plugin(tmp_path, credential({"token": "p"}))
    assert kubeconfig.open_access(str(written(tmp_path / "config", user)), "").authorization() == "Bearer p"


def test_a_password_is_used(tmp_path: Path) -> None:
    path = written(tmp_path / "config", {"username": "a", "password": "b"})
    assert kubeconfig.open_access(str(path), "").authorization() == "Basic YTpi"


REFUSED: dict[str, tuple[Data, Data, str]] = {
    "groups without a user": (
        {"token": "t", "as-groups": ["b"]},
        {},
        "the kubeconfig %s has as-groups without as. Next: Add as",
    ),
    "a group that is no text": (
        {"token": "t", "as": "a", "as-groups": [1]},
        {},
        "as-groups of the kubeconfig %s cannot",
    ),
    "a user that no header can hold": ({"token": "t", "as": "a\nb"}, {}, "as of the kubeconfig %s cannot be sent"),
    "extra that is no list": (
        {"token": "t", "as": "a", "as-user-extra": {"x": "y"}},
        {},
        "as-user-extra of the kubeconfig %s cannot be sent",
    ),
    "a user without a password": ({"username": "a"}, {}, "the kubeconfig %s: the user u has username without password"),
    "a key without a certificate": ({"token": "t", "client-key": "k"}, {}, "has client-key without client-certificate"),
    "a plugin that wants a terminal": (
        {"exec": {"command": "x", "interactiveMode": "Always"}},
        {},
        "the exec plugin of the user u wants a terminal (interactiveMode: Always)",
    ),
    "an unknown key": ({}, {"proxy_url": "http://p"}, "the cluster c has proxy_url, which"),
    "a provider": (
        {"token": "t", "auth-provider": {"name": "azure"}},
        {},
        "the auth-provider azure of the user u is not",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_package_ignores_is_refused_by_name(case: str, tmp_path: Path) -> None:
    user, cluster, said = REFUSED[case]
    path = written(tmp_path / "config", user, cluster)
    with pytest.raises(NpuError) as caught:
        kubeconfig.open_access(str(path), "")
    assert (said % path if "%s" in said else said).lower() in str(caught.value).lower()


EMPTY_KEYS: list[tuple[Data, Data, str]] = [
    ({"token": "t", "auth-provider": None, "as": None}, {"insecure-skip-tls-verify": None}, "Bearer t"),
    ({"token": "t", "as": "", "as-groups": None, "client-key": ""}, {"proxy-url": None}, "Bearer t"),
    ({"token": "t"}, {"tls-server-name": "", "proxy-url": ""}, "Bearer t"),
    ({"token": "", "tokenFile": "token"}, {"certificate-authority-data": ""}, "Bearer new"),
    ({"token": None, "username": "a", "password": "b"}, {}, "Basic YTpi"),
    ({"token": "old", "tokenFile": "token"}, {}, "Bearer new"),
    ({"token": "old", "tokenFile": "absent"}, {}, "Bearer old"),
]


@pytest.mark.parametrize(("user", "cluster", "authorization"), EMPTY_KEYS)
def test_null_empty_text_and_the_file_of_a_token_are_taken_as_kubectl_does(
    user: Data, cluster: Data, authorization: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("  new\r\n")
    path = written(tmp_path / "config", user, cluster)
    before = path.read_text()
    assert kubeconfig.open_access(str(path), "x").authorization() == authorization
    assert path.read_text() == before


@pytest.mark.parametrize("value", [1234, 1.5, True, ["a"], {}])
@pytest.mark.parametrize("key", ["token", "password", "server", "proxy-url"])
def test_what_kubectl_takes_as_text_alone_must_be_text(key: str, value: Any, tmp_path: Path) -> None:
    user, cluster = ({key: value}, {}) if key in ("token", "password") else ({}, {key: value})
    path = written(tmp_path / "config", user, cluster)
    kind = "user u" if user else "cluster c"
    with pytest.raises(NpuError) as caught:
        kubeconfig.open_access(str(path), "")
    assert str(caught.value) == "The kubeconfig %s: %s of the %s is not text. Next: Quote it." % (path, key, kind)


def test_a_provider_that_gives_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "config", {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}})
    with pytest.raises(NpuError, match="the auth-provider of the user u gave no credentials. Next: Log in again"):
        kubeconfig.open_access(str(path), "")


def test_only_the_context_in_use_is_judged(tmp_path: Path) -> None:
    path = written(tmp_path / "config", {"token": "t", "as-groups": ["b"]})
    assert kubeconfig.open_access(str(path), "y").host == "http://two"


def test_an_exec_plugin_that_gives_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "config", plugin(tmp_path, credential({})))
    with pytest.raises(NpuError, match="the exec plugin of the user u gave no credentials: .* Next: Run its command"):
        kubeconfig.open_access(str(path), "")


def test_what_a_plugin_says_is_told_and_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user = plugin(tmp_path, "")
    (tmp_path / "plugin").write_text("#!/bin/sh\necho 'no session, password=hunter2222' >&2\nexit 3\n")
    with pytest.raises(NpuError, match="gave no credentials: exec: process returned 3. no session") as caught:
        kubeconfig.open_access(str(written(tmp_path / "config", user)), "")
    out, err = capfd.readouterr()
    assert "hunter2222" not in str(caught.value) + out + err and "exec" not in out + err


def test_a_plugin_has_the_environment_of_the_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = plugin(tmp_path, "")
    (tmp_path / "plugin").write_text("#!/bin/sh\nprintf '%s' \"$ANSWER\"\n")
    monkeypatch.setenv("ANSWER", credential({"token": "of-the-task"}))
    access = kubeconfig.open_access(str(written(tmp_path / "config", user)), "")
    assert access.authorization() == "Bearer of-the-task"


def test_what_an_older_package_ignores_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kubernetes.config import kube_config

    def older(self: Any, settings: Any) -> None:
        settings.host = "https://one"

    monkeypatch.setattr(kube_config.KubeConfigLoader, "load_and_set", older)
    monkeypatch.setattr(kubeconfig, "read_plain", lambda *_given: None)
    path = written(tmp_path / "config", cluster={"tls-server-name": "api.test", "proxy-url": "http://p:1"})
    pool = kubeconfig.open_access(str(path), "").pool
    assert (str(pool.proxy), pool.connection_pool_kw["server_hostname"]) == ("http://p:1", "api.test")


@pytest.mark.parametrize("proxy", ["environment", "kubeconfig"])
def test_a_proxy_is_used(proxy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "one")
    path = str(written(tmp_path / "config", cluster={"server": "https://two"}))
    assert getattr(kubeconfig.open_access(path, "").pool, "proxy", None) is None
    if proxy == "environment":
        monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    else:
        path = str(written(tmp_path / "config", cluster={"server": "https://two", "proxy-url": "http://p:1"}))
    assert str(kubeconfig.open_access(path, "").pool.proxy) == "http://p:1"


K11 = """\
apiVersion: v1
kind: Config
clusters:
  - name: seoul
    cluster: {server: "https://k8s.example.net:6443", insecure-skip-tls-verify: true}
users:
  - name: robot
    user: {token: REP-SECRET-TOKEN}
contexts:
  - name: seoul
    context: {cluster: seoul, user: robot}
current-context: seoul
"""


@pytest.mark.parametrize("variable", ["", "K8S_AUTH_KUBECONFIG", "KUBECONFIG"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_k11_kubeconfig_content_is_used_and_names_nothing(
    variable: str, form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = K11 if form == "text" else json.dumps(yaml.safe_load(K11))
    if variable:
        monkeypatch.setenv(variable, content)
    access = kubeconfig.open_access("" if variable else content, "")
    assert (access.host, access.authorization()) == ("https://k8s.example.net:6443", "Bearer REP-SECRET-TOKEN")
    assert os.listdir(tmp_path / "tmp") == []
    login = read_login("" if variable else content, "")
    assert login.name == "the kubeconfig in %s" % (variable or "rbln_kubeconfig")
    assert "REP-SECRET" not in repr(login) and read_login(K11.replace("REP-SECRET-TOKEN", "other-one"), "").mark == (
        read_login(K11, "").mark
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (base64.b64encode(K11.encode()).decode(), "rbln_kubeconfig holds a kubeconfig in base64. Next: Decode it"),
        ("$ANSIBLE_VAULT;1.1;AES256\n3330", "rbln_kubeconfig holds text that is still encrypted. Next: Give it with"),
        (K11.replace("current-context: seoul", ""), "The kubeconfig in rbln_kubeconfig cannot be used: "),
        (K11.replace("\n", "\\n"), "The kubeconfig in rbln_kubeconfig cannot be used: "),
        (K11.replace("token:", "tokn:"), "The kubeconfig in rbln_kubeconfig: the user robot has tokn, which is not"),
        ("users: [{user: {token: REP-SECRET-TOKEN}}]\ncurrent-context: x", "The kubeconfig in rbln_kubeconfig cannot"),
    ],
)
def test_k11_no_error_shows_content(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(NpuError) as caught:
        kubeconfig.open_access(text, "")
    told = "".join(traceback.format_exception(type(caught.value), caught.value, None))
    assert said in told and "REP-SECRET" not in told and "UkVQ" not in told
    assert os.listdir(tmp_path / "tmp") == []


def test_a_kubeconfig_of_ansible_vault_is_decrypted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("$ANSIBLE_VAULT;1.1;AES256\n3330\n")
    assert kubeconfig.open_access(str(path), "", lambda _path: K11).authorization() == "Bearer REP-SECRET-TOKEN"
    assert os.listdir(tmp_path / "tmp") == [] and path.read_text().startswith("$ANSIBLE_VAULT")
    with pytest.raises(NpuError, match="is encrypted with Ansible Vault. Next: Give the password"):
        kubeconfig.open_access(str(path), "")


K12 = """\
apiVersion: v1
kind: Config
clusters:
  - name: seoul
    cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}
users:
  - name: robot
    user: {token: t0ken, as: npu-rollout, as-groups: [npu-operators], as-user-extra: {reason: [change-4711]}}
contexts:
  - name: seoul
    context: {cluster: seoul, user: robot}
current-context: seoul
"""


def test_k12_kubeconfig_impersonation_is_in_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.time, "sleep", lambda _seconds: None)
    sent: list[Any] = []

    def request(method: str, url: str, headers: Any, **_more: Any) -> Any:
        sent.append([(name, value) for name, value in headers.items() if name[0] in "AI" and name != "Accept"])
        return SimpleNamespace(status=503 if len(sent) == 1 else 200, headers={}, data=b'{"metadata": {"name": "n"}}')

    cluster = Cluster(K12.replace("[npu-operators]", "[npu-operators, two]"), "")
    cluster._access = cluster._access._replace(pool=SimpleNamespace(request=request))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    cluster.get("v1", "Node", "n")
    cluster.apply(node, False, True)
    cluster.delete(node, False)
    assert len(sent) == 4
    for headers in sent:
        assert sorted(headers) == [
            ("Authorization", "Bearer t0ken"),
            ("Impersonate-Extra-Reason", "change-4711"),
            ("Impersonate-Group", "npu-operators"),
            ("Impersonate-Group", "two"),
            ("Impersonate-User", "npu-rollout"),
        ]


def test_k12_the_environment_says_as_whom_to_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_USER", "other")
    assert ("Impersonate-User", "other") in kubeconfig.open_access(K12, "").acting
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_GROUPS", "a, b")
    assert [value for name, value in kubeconfig.open_access(K12, "").acting if name == "Impersonate-Group"] == [
        "a",
        "b",
    ]
    monkeypatch.delenv("K8S_AUTH_IMPERSONATE_USER")
    with pytest.raises(NpuError, match="K8S_AUTH_IMPERSONATE_GROUPS without K8S_AUTH_IMPERSONATE_USER"):
        kubeconfig.open_access(K12, "")


def test_the_name_of_an_extra_is_a_name_of_a_header(tmp_path: Path) -> None:
    user = {"as": "a", "as-uid": "7", "as-user-extra": {"example.com/who": ["b"]}}
    assert kubeconfig.open_access(str(written(tmp_path / "config", user)), "").acting == (
        ("Impersonate-User", "a"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Example.com%2fwho", "b"),
    )


def acts_as(tmp_path: Path, **user: Any) -> str:
    return str(written(tmp_path / "config", {"token": "t", "as": "a", **user}))


@pytest.mark.parametrize("form", ["path", "content"])
def test_k12_tasks_of_kubernetes_core_are_told_as_whom_to_act(
    form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = acts_as(tmp_path, **{"as-groups": ["g", "h"]})
    given = path if form == "path" else Path(path).read_text()
    found = given_to_tasks(given, "")
    assert found == ((path,) if form == "path" else (), form == "content", "x", "a", ("g", "h"))
    assert given_to_tasks(given, "y") == (found.paths, found.content, "y", "", ())
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_USER", "b")
    assert given_to_tasks(given, "").user == "b"
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("key", ["as-uid", "as-user-extra"])
def test_k12_what_kubernetes_core_cannot_send_is_refused_by_name(key: str, tmp_path: Path) -> None:
    path = acts_as(tmp_path, **{key: "7" if key == "as-uid" else {"reason": ["change-4711"]}})
    assert kubeconfig.open_access(path, "").acting
    with pytest.raises(NpuError, match="%s has %s, which kubernetes.core cannot send; it runs rbln_ope" % (path, key)):
        given_to_tasks(path, "")


def test_tasks_are_given_the_file_that_counts_in_a_pod_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kubernetes.core, when it is given nothing, prefers the account of the pod to KUBECONFIG and ~/.kube/config."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert given_to_tasks("", "") == ((), False, "", "", ())
    home = written(tmp_path / ".kube" / "config")
    assert given_to_tasks("", "") == ((str(home),), False, "x", "", ())
    (tmp_path / "empty").write_text("")
    first, second = written(tmp_path / "one"), written(tmp_path / "two", **{"current-context": "y"})
    names = [tmp_path / "absent", tmp_path / "empty", first, second]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, names)))
    assert given_to_tasks("", "") == ((str(first), str(second)), False, "x", "", ())
    monkeypatch.chdir(tmp_path)
    assert given_to_tasks("one", "").paths == (str(first),)


def test_tasks_use_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config")
    for name, value in (("HOST", "https://three"), ("CLIENT_CERT", "/c"), ("IMPERSONATE_USER", "b")):
        monkeypatch.setenv("K8S_AUTH_" + name, value)
    with pytest.raises(NpuError, match="K8S_AUTH_CLIENT_CERT is set without K8S_AUTH_CLIENT_KEY"):
        given_to_tasks("", "")
    monkeypatch.setenv("K8S_AUTH_CLIENT_KEY", "/k")
    assert given_to_tasks("", "") == ((), False, "", "b", ())


@pytest.mark.parametrize("variable", ["K8S_AUTH_KUBECONFIG", "KUBECONFIG"])
def test_content_that_tasks_would_take_for_a_path_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, K11)
    with pytest.raises(NpuError, match="The kubeconfig in %s is content, which kubernetes.core" % variable) as caught:
        given_to_tasks("", "")
    assert "REP-SECRET" not in str(caught.value)


def test_tasks_without_a_cluster_are_refused_and_no_plugin_runs_for_them(tmp_path: Path) -> None:
    with pytest.raises(
        NpuError, match=r"The kubeconfig .*\.kube/config cannot be used: .* Next: Check rbln_kubeconfig"
    ):
        given_to_tasks("", "")
    user = plugin(tmp_path, credential({"token": "p"}))
    (tmp_path / "plugin").write_text("#!/bin/sh\ntouch %s/ran\n" % tmp_path)
    assert given_to_tasks(str(written(tmp_path / "config", user)), "").context == "x"
    assert not (tmp_path / "ran").exists()


def test_tasks_decrypt_a_kubeconfig_of_ansible_vault_themselves(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("$ANSIBLE_VAULT;1.1;AES256\n3330\n")
    assert given_to_tasks(str(path), "", lambda _path: K11) == ((str(path),), False, "seoul", "", ())


def test_several_files_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "%s%s%s" % (tmp_path / "absent", os.pathsep, written(tmp_path / "config")))
    access = kubeconfig.open_access("", "x")
    assert (access.host, access.authorization()) == ("http://one", "Bearer t")


def test_of_several_files_the_first_counts_and_paths_start_at_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "token").write_text("of-b")
    (tmp_path / "empty").write_text("")
    first: Data = {"clusters": [{"name": "c", "cluster": {"server": "http://first"}}], "contexts": None}
    (tmp_path / "a").write_text(json.dumps(first))
    second = written(tmp_path / "b" / "config", {"tokenFile": "token"})
    third = written(tmp_path / "third", {"token": "no"}, **{"current-context": "y"})
    files = [os.devnull, tmp_path / "empty", tmp_path / "a", second, third]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    access = kubeconfig.open_access("", "")
    # The first current-context, the first cluster c, and the first user u.
    assert (access.host, access.authorization()) == ("http://first", "Bearer of-b")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"TOKEN": "x"}, "The environment has K8S_AUTH_TOKEN, which is not supported"),
        ({"HOST": "https://three", "USERNAME": "u"}, "The environment has K8S_AUTH_USERNAME without K8S_AUTH_PASSWORD"),
        ({"CLIENT_KEY": "k"}, "The environment has K8S_AUTH_CLIENT_KEY without K8S_AUTH_CLIENT_CERT"),
        ({"VERIFY_SSL": "off"}, "K8S_AUTH_VERIFY_SSL is neither true nor false"),
        ({"HOST": "https://three", "API_KEY": "k"}, "K8S_AUTH_HOST names the server https://three, and the kubeconfig"),
    ],
)
def test_what_the_environment_half_says_is_refused_by_name(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in given.items():
        monkeypatch.setenv("K8S_AUTH_" + name, value)
    with pytest.raises(NpuError) as caught:
        kubeconfig.open_access(str(written(tmp_path / "config")), "")
    assert said in str(caught.value)


def test_settings_of_the_environment_win_over_the_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(written(tmp_path / "config", cluster={"server": "https://one", "proxy-url": "http://p:1"}))
    for name, value in {
        "HOST": "https://one/", "USERNAME": "u", "PASSWORD": "p", "VALIDATE_CERTS": "no", "PROXY": "http://q:2",
        "PROXY_HEADERS_PROXY_BASIC_AUTH": "x:y", "PROXY_HEADERS_USER_AGENT": "agent",
    }.items():  # fmt: skip
        monkeypatch.setenv("K8S_AUTH_" + name, value)
    access = kubeconfig.open_access(path, "")
    assert access.authorization() == "Basic dTpw"
    assert access.pool.connection_pool_kw["ssl_context"].verify_mode == ssl.CERT_NONE
    assert str(access.pool.proxy) == "http://q:2"
    assert access.pool.proxy_headers == {"proxy-authorization": "Basic eDp5", "user-agent": "agent"}
    monkeypatch.setenv("K8S_AUTH_NO_PROXY", "one")
    assert getattr(kubeconfig.open_access(path, "").pool, "proxy", None) is None


PROXIED: list[tuple[str, str, bool]] = [
    ("https://10.1.2.3:6443", "10.1.0.0/16", False),
    ("https://10.1.2.3:6443", "10.2.0.0/16, .example.net", True),
    ("https://k8s.example.net", ".example.net", False),
    ("https://k8s.example.net", "*.example.net", False),
    ("https://k8s.example.net", "example.net:443", False),
    ("https://k8s.example.net", "example.net:6443", True),
    ("https://myexample.net", "example.net", True),
    ("https://[fd00::1]:6443", "fd00::/8", False),
    ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
    ("https://k8s.example.net", "*", False),
    ("https://k8s.example.net", "", True),
]


@pytest.mark.parametrize(("host", "no_proxy", "proxied"), PROXIED)
def test_no_proxy_names_servers_as_everywhere(
    host: str, no_proxy: str, proxied: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("https_proxy", "p:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    pool = kubeconfig.open_access(str(written(tmp_path / "config", cluster={"server": host})), "").pool
    assert (str(getattr(pool, "proxy", None)) == "http://p:3128") is proxied


def test_the_account_of_a_proxy_is_used_and_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(written(tmp_path / "config", cluster={"server": "https://two"}))
    monkeypatch.setenv("HTTPS_PROXY", "http://u:s%40cret@p:3128")
    pool = kubeconfig.open_access(path, "").pool
    assert pool.proxy_headers == {"proxy-authorization": "Basic dTpzQGNyZXQ="}
    monkeypatch.setenv("HTTPS_PROXY", "gopher://u:s3cret@p:3128")
    with pytest.raises(NpuError, match="The proxy for") as caught:
        kubeconfig.open_access(path, "")
    assert "s3cret" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:SOCKS support")
@pytest.mark.parametrize("proxy", ["gopher://127.0.0.1:1", "socks5://127.0.0.1:1"])
def test_a_proxy_that_nobody_can_use_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As where PySocks is not installed.
    monkeypatch.setitem(sys.modules, "socks", None)
    monkeypatch.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    path = written(tmp_path / "config", cluster={"proxy-url": proxy})
    with pytest.raises(
        NpuError,
        match="The proxy for the kubeconfig %s cannot be used: .* Next: Correct proxy-url .*install PySocks" % path,
    ):
        kubeconfig.open_access(str(path), "")


@pytest.mark.parametrize("text", ["", "{", "- 1", '{"clusters": []}', "current-context: x"])
def test_a_kubeconfig_that_nobody_can_use_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(
        NpuError, match="The kubeconfig %s cannot be used: .*Next: Check rbln_kubeconfig and rbln_kube_context" % path
    ):
        kubeconfig.open_access(str(path), "")


@pytest.mark.parametrize(
    "text",
    [
        '{"users": [{"user": {"token": "SECRET"}}, {"name": "u", "user": {}}], "current-context": "x"}',
        '{"users": [{"name": "u", "user": null, "x": "SECRET"}], "contexts": [{"name": "x", "context": '
        '{"cluster": "c", "user": "u"}}], "current-context": "x"}',
        "users: [{name: u, user: {password: *SECRET}}]",
        "users: [{name: u, user: {password: !SECRET x}}]",
        "users: [{name: u, user: {password: &SECRET x, token: &SECRET y}}]",
        "users: [{name: u, user: {password: !SECRET!x y}}]",
    ],
)
def test_no_error_shows_what_a_kubeconfig_holds(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NpuError, match="The kubeconfig %s cannot be used: " % path) as caught:
        kubeconfig.open_access(str(path), "")
    told = "".join(traceback.format_exception(type(caught.value), caught.value, None))
    assert "SECRET" not in told


def test_a_server_and_a_token_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config")
    monkeypatch.setenv("K8S_AUTH_HOST", "https://three/")
    monkeypatch.setenv("K8S_AUTH_API_KEY", "k")
    access = kubeconfig.open_access("", "")
    assert (access.host, access.authorization()) == ("https://three", "Bearer k")
    monkeypatch.setenv("K8S_AUTH_HOST", "three")
    with pytest.raises(NpuError, match=r"The server 'three' of K8S_AUTH_\* has no scheme"):
        kubeconfig.open_access("", "")


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, server (for the name api.test) and client, each with a .pem and a .key.

    locked.key is the client's key with a password.
    """
    folder = tmp_path_factory.mktemp("keys")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        folder,
        *new,
        "-x509",
        "-subj",
        "/CN=ca",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    for name in ("server", "client"):
        (folder / "more").write_text("subjectAltName=DNS:api.test\nauthorityKeyIdentifier=keyid\n")
        openssl(folder, *new, "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".csr")
        openssl(
            folder,
            "x509",
            "-req",
            "-in",
            name + ".csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "more",
            "-out",
            name + ".pem",
        )
    openssl(folder, "ec", "-in", "client.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    return folder


@pytest.fixture(scope="module")
def port(keys: Path) -> Iterator[int]:
    """A server that answers only a client with a certificate, with the authorization it was given."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"given": self.headers.get("Authorization")}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_words: object) -> None:
            """A client that does not trust the server goes away."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def inlined(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_a_second_reader_of_the_same_data_is_given_no_file_of_the_first(keys: Path, tmp_path: Path) -> None:
    from kubernetes.config import kube_config

    more = {"server": "https://one", "certificate-authority-data": inlined(keys / "ca.pem")}
    path = str(written(tmp_path / "config", cluster=more))
    for _time in range(2):
        kubeconfig.open_access(path, "")
        assert [file for file in kube_config._temp_files.values() if file.startswith(str(tmp_path))] == []


CA = """\
[req]
distinguished_name = dn
x509_extensions = v3
prompt = no
[dn]
CN = kubernetes
[v3]
basicConstraints = critical, CA:TRUE
subjectKeyIdentifier = none
authorityKeyIdentifier = none
"""
SERVER = """\
subjectAltName = IP:127.0.0.1
basicConstraints = CA:FALSE
keyUsage = digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth
subjectKeyIdentifier = none
authorityKeyIdentifier = none
"""


@pytest.fixture(scope="module")
def old_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority and the certificate of K15, as EKS and MicroK8s made them."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "ca.cnf").write_text(CA)
    (folder / "server.ext").write_text(SERVER)
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout")
    openssl(folder, "req", "-x509", "-new", *key, "ca.key", "-days", "30", "-config", "ca.cnf", "-out", "ca.crt")
    openssl(folder, "req", "-new", *key, "s.key", "-subj", "/CN=kube-apiserver", "-out", "s.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "server.ext")
    openssl(folder, "x509", "-req", "-in", "s.csr", *signed, "-out", "s.crt")
    return folder


ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{"groups": []}'


class Listener:
    """A server for HTTPS that ends the first `closed` connections after `read` bytes of the handshake.

    With 10 the rest is lost and the connection is reset; with many it ends in order.
    """

    def __init__(self, keys: Path, closed: int = 0, read: int = 10) -> None:
        self.accepted = 0
        self._closed, self._read = closed, read
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(keys / "s.crt", keys / "s.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                plain = self._listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            if self.accepted <= self._closed:
                plain.recv(self._read)
                plain.close()
                continue
            try:
                with self._context.wrap_socket(plain, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(ANSWER)
            except OSError:
                # A client that does not trust it.
                continue

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS contexts are made as on Python 3.13."""
    from urllib3.util import ssl_

    real = ssl_.create_urllib3_context

    def context(*words: Any, **options: Any) -> ssl.SSLContext:
        made = real(*words, **options)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl_, "create_urllib3_context", context)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("by", ["token", "plugin"])
def test_k15_strict_x509_python313_an_old_authority_is_trusted(by: str, old_keys: Path, tmp_path: Path) -> None:
    listener = Listener(old_keys)
    user = {"token": "t"} if by == "token" else plugin(tmp_path, credential({"token": "t"}))
    cluster = {"server": "https://127.0.0.1:%d" % listener.port, "certificate-authority": str(old_keys / "ca.crt")}
    try:
        found = Cluster(str(written(tmp_path / "config", user, cluster)), "").request("GET", "/apis", "Read")
        assert found == (200, {"groups": []})
        # Its name is verified all the same, and so is who has signed it.
        for wrong in ({"tls-server-name": "other.test"}, {"certificate-authority": str(old_keys / "other.crt")}):
            key = ("-newkey", "rsa:2048", "-nodes", "-keyout", "o.key")
            openssl(old_keys, "req", "-x509", "-new", *key, "-config", "ca.cnf", "-out", "other.crt")
            with pytest.raises(NpuError, match="certificate is not trusted"):
                path = written(tmp_path / "config", user, {**cluster, **wrong})
                Cluster(str(path), "").request("GET", "/apis", "Read")
    finally:
        listener.close()


@pytest.mark.parametrize("read", [10, 65536])
@pytest.mark.parametrize(("closed", "accepted"), [(1, 2), (9, 4)])
def test_k16_tls_eof_balancer_is_tried_again_and_no_distrust(
    closed: int, accepted: int, read: int, monkeypatch: pytest.MonkeyPatch, old_keys: Path, tmp_path: Path
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(api.time, "sleep", pauses.append)
    listener = Listener(old_keys, closed, read)
    cluster = {"server": "https://127.0.0.1:%d" % listener.port, "insecure-skip-tls-verify": True}
    client = Cluster(str(written(tmp_path / "config", cluster=cluster)), "")
    try:
        if closed == 1:
            assert client.request("GET", "/apis", "Read") == (200, {"groups": []})
        else:
            with pytest.raises(NpuError, match="closed the connection 4 times.* Next: Check the API server") as caught:
                client.request("GET", "/apis", "Read")
            assert "trust" not in str(caught.value) and "authority" not in str(caught.value)
    finally:
        listener.close()
    assert (listener.accepted, len(pauses), all(pauses)) == (accepted, accepted - 1, True)


@pytest.mark.usefixtures("strict")
def test_a_proxy_with_https_is_trusted_as_the_server_is(keys: Path, tmp_path: Path) -> None:
    more = {"server": "https://one", "certificate-authority": str(keys / "ca.pem"), "proxy-url": "https://p:1"}
    pool = kubeconfig.open_access(str(written(tmp_path / "config", cluster=more)), "").pool
    context = pool.proxy_config.ssl_context
    assert context.verify_mode == ssl.CERT_REQUIRED and not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert ((("commonName", "ca"),),) in [ca["subject"] for ca in context.get_ca_certs()]


def test_the_authority_counts_for_a_scheme_in_upper_case(keys: Path, tmp_path: Path) -> None:
    more = {"server": "HTTPS://one", "certificate-authority-data": inlined(keys / "ca.pem")}
    access = kubeconfig.open_access(str(written(tmp_path / "config", cluster=more)), "")
    assert access.host == "https://one"
    assert len(access.pool.connection_pool_kw["ssl_context"].get_ca_certs()) == 1


@pytest.mark.parametrize("form", ["files", "data", "insecure"])
def test_a_client_certificate_from_files_or_data(form: str, keys: Path, port: int, tmp_path: Path) -> None:
    cluster: Data = {"server": "https://127.0.0.1:%d" % port, "tls-server-name": "api.test"}
    user: Data = {"token": "t"}
    if form == "data":
        cluster["certificate-authority-data"] = inlined(keys / "ca.pem")
        user.update(
            {"client-certificate-data": inlined(keys / "client.pem"), "client-key-data": inlined(keys / "client.key")}
        )
    else:
        relative = {name: os.path.relpath(keys / name, tmp_path) for name in ("ca.pem", "client.pem", "client.key")}
        cluster["certificate-authority"] = relative["ca.pem"]
        user.update({"client-certificate": relative["client.pem"], "client-key": relative["client.key"]})
    if form == "insecure":
        cluster = {"server": cluster["server"], "insecure-skip-tls-verify": True}
    api = Cluster(str(written(tmp_path / "config", user, cluster)), "")
    assert os.listdir(tmp_path / "tmp") == []
    assert api.request("GET", "/", "Read")[1] == {"given": "Bearer t"}


def test_a_server_of_another_name_or_authority_is_not_trusted(keys: Path, port: int, tmp_path: Path) -> None:
    user = {"client-certificate": str(keys / "client.pem"), "client-key": str(keys / "client.key")}
    named = {"server": "https://127.0.0.1:%d" % port, "tls-server-name": "api.test"}
    for cluster in (
        {**named, "certificate-authority": str(keys / "client.pem")},
        named,
        {**named, "tls-server-name": "b.test", "certificate-authority": str(keys / "ca.pem")},
    ):
        with pytest.raises(NpuError, match="Read: the API server's certificate is not trusted"):
            Cluster(str(written(tmp_path / "config", user, cluster)), "").request("GET", "/", "Read")


ABSENT = "cannot be used: File does not exist: "
UNUSABLE: dict[str, tuple[Data, Data, str]] = {
    "no such authority": ({}, {"certificate-authority": "absent"}, ABSENT),
    "no authority": ({}, {"certificate-authority-data": "eA=="}, "_ssl.c"),
    "no base64": ({}, {"certificate-authority-data": "x"}, "cannot be used: Invalid base64"),
    "no such key": ({"client-certificate": "client.pem", "client-key": "gone"}, {}, ABSENT),
    "no certificate": ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, {}, "_ssl.c"),
    "the key of another": ({"client-certificate": "client.pem", "client-key": "server.key"}, {}, "_ssl.c"),
    # It would be asked for at the terminal.
    "a key with a password": ({"client-certificate": "client.pem", "client-key": "locked.key"}, {}, "_ssl.c"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_loaded_is_named(case: str, keys: Path, tmp_path: Path) -> None:
    user, cluster, said = UNUSABLE[case]
    user = {name: value if name.endswith("data") else str(keys / value) for name, value in user.items()}
    path = written(tmp_path / "config", user, {"server": "https://127.0.0.1:9", **cluster})
    with pytest.raises(NpuError) as caught:
        kubeconfig.open_access(str(path), "")
    assert said.startswith("cannot") or "key of the kubeconfig %s cannot be loaded: " % path in str(caught.value)
    assert str(path) in str(caught.value) and said in str(caught.value)
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("by", ["token", "password", "certificate", "plugin"])
def test_the_package_is_imported_only_for_a_plugin(by: str, keys: Path, tmp_path: Path) -> None:
    users = {
        "token": {"token": "t"},
        "password": {"username": "a", "password": "b"},
        "certificate": {
            "client-certificate-data": inlined(keys / "client.pem"),
            "client-key": str(keys / "client.key"),
        },
        "plugin": plugin(tmp_path, credential({"token": "p"})),
    }
    more = {"server": "https://one", "certificate-authority-data": inlined(keys / "ca.pem")}
    loaded = "'kubernetes' in sys.modules"
    words = "import sys; from %s import Cluster; print(%s); Cluster(%r, ''); print(%s)" % (
        Cluster.__module__,
        loaded,
        str(written(tmp_path / "config", users[by], more)),
        loaded,
    )
    # The parent of ansible_collections, which need not be on the path of this process.
    env = {**os.environ, "PYTHONPATH": str(Path(kubeconfig.__file__).parents[6])}
    assert subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, env=env
    ).stdout == "False\n%s\n" % (by == "plugin")


def test_both_ways_to_read_are_compared(compared: list[str], tmp_path: Path) -> None:
    kubeconfig.open_access(str(written(tmp_path / "config")), "")
    assert compared == ["http://one"]


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NpuError, match="The kubeconfig %s/none does not exist on the controller" % tmp_path):
        Cluster(str(tmp_path / "none"), "")


@pytest.mark.parametrize(
    "server, words",
    [
        (5, "server of the cluster c is not text"),
        ([1], "server of the cluster c is not text"),
        ("https://a b/", "server of .* is not an address"),
        ("https://a\nb", "server of .* is not an address"),
        ("https://\x1b[31m", "Invalid IPv6 URL|is not an address"),
        ("https://a:123456", "server of .* is not an address"),
        ("https://a:99999", "server of .* is not an address"),
        ("https://a:b", "server of .* is not an address"),
        ("https://u:p@a", "server of .* is not an address"),
        ("https:///x", "server of .* is not an address"),
    ],
)
def test_a_server_that_is_no_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any, words: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    with pytest.raises(NpuError, match=words):
        kubeconfig.open_access(str(written(tmp_path / "k", cluster={"server": server})), "")


@pytest.mark.parametrize(
    "server", ["https://a", "HTTPS://A.example:6443/k8s/c-1", "http://[::1]:6443/", "http://127.0.0.1:1"]
)
def test_a_server_that_is_an_address_is_taken(tmp_path: Path, server: str) -> None:
    access = kubeconfig.open_access(str(written(tmp_path / "k", cluster={"server": server})), "")
    assert access.host.lower() == server.lower().rstrip("/")


def test_a_pipe_or_a_file_without_end_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(1 << 30)
    for name, words in (("pipe", "is not a file"), ("large", "more than 16777216 bytes")):
        monkeypatch.setenv("KUBECONFIG", "%s:%s" % (written(tmp_path / "k"), tmp_path / name))
        with pytest.raises(NpuError, match=words):
            kubeconfig.open_access("", "")
