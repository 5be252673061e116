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
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import kubeconfig
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster

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
    "another identity": ({"token": "t", "as": "b"}, {}, "the user u has as, which is not supported. Next: Remove it"),
    "groups": (
        {"token": "t", "as-groups": ["b"], "as-user-extra": {}},
        {},
        "the user u has as-groups, as-user-extra, which",
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
    assert str(caught.value).startswith("The kubeconfig %s: %s" % (path, said))


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
    path = written(tmp_path / "config", {"token": "t", "as": "b"})
    assert kubeconfig.open_access(str(path), "y").host == "http://two"


def test_an_exec_plugin_that_gives_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "config", plugin(tmp_path, credential({})))
    with pytest.raises(NpuError, match="the exec plugin of the user u gave no credentials. Next: Run its command"):
        kubeconfig.open_access(str(path), "")


@pytest.mark.parametrize("key", ["tls-server-name", "proxy-url"])
def test_what_an_older_package_ignores_is_refused(key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kubernetes.config import kube_config

    def older(self: Any, settings: Any) -> None:
        settings.host = "http://one"

    monkeypatch.setattr(kube_config.KubeConfigLoader, "load_and_set", older)
    path = written(tmp_path / "config", cluster={key: "http://p"})
    with pytest.raises(
        NpuError, match="this release of the kubernetes package ignores %s. Next: Install a newer" % key
    ):
        kubeconfig.open_access(str(path), "")


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


@pytest.mark.parametrize("variable", ["", "K8S_AUTH_KUBECONFIG", "KUBECONFIG"])
@pytest.mark.parametrize("content", ["kind: Config\ntoken: SECRET", '{"token": "SECRET"}'])
def test_k11_kubeconfig_content_is_no_path_and_not_shown(
    variable: str, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, content)
    with pytest.raises(NpuError, match="holds the content of a kubeconfig, not its path. Next: Give a path.") as caught:
        kubeconfig.open_access("" if variable else content, "")
    assert "SECRET" not in str(caught.value)


def test_several_files_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "%s%s%s" % (tmp_path / "absent", os.pathsep, written(tmp_path / "config")))
    access = kubeconfig.open_access("", "x")
    assert (access.host, access.authorization()) == ("http://one", "Bearer t")


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


def test_k15_strict_x509_python313_is_not_asked_of_an_authority(
    monkeypatch: pytest.MonkeyPatch, keys: Path, tmp_path: Path
) -> None:
    from urllib3.util import ssl_

    real = ssl_.create_urllib3_context

    def strict(*words: Any, **options: Any) -> ssl.SSLContext:
        context = real(*words, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl_, "create_urllib3_context", strict)
    more = {"server": "https://one", "certificate-authority-data": inlined(keys / "ca.pem")}
    access = kubeconfig.open_access(str(written(tmp_path / "config", cluster=more)), "")
    context = access.pool.connection_pool_kw["ssl_context"]
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


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


def test_the_package_is_imported_only_where_a_cluster_is_asked(tmp_path: Path) -> None:
    loaded = "'kubernetes' in sys.modules"
    words = "import sys; from %s import Cluster; print(%s); Cluster(%r, ''); print(%s)" % (
        Cluster.__module__,
        loaded,
        str(written(tmp_path / "config")),
        loaded,
    )
    # The parent of ansible_collections, which need not be on the path of this process.
    env = {**os.environ, "PYTHONPATH": str(Path(kubeconfig.__file__).parents[6])}
    assert (
        subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, env=env).stdout
        == "False\nTrue\n"
    )


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
        ("https://\x1b[31m", "Invalid IPv6 URL"),
        ("https://a:123456", "server of .* is not an address"),
        ("https://a:b", "server of .* is not an address"),
        ("https://u:p@a", "server of .* is not an address"),
        ("https:///x", "server of .* is not an address"),
    ],
)
def test_a_server_that_is_no_address_is_refused(tmp_path: Path, server: Any, words: str) -> None:
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
