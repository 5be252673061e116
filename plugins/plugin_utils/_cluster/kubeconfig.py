# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an API server is reached: the kubernetes package reads the kubeconfig, as for kubernetes.core.

What is plain is read without it, because of its costs, and comes out the same.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import tempfile
import typing as t
from urllib.parse import urlsplit

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT
from .entries import (
    Decrypt,
    File,
    Headers,
    explained,
    files_of,
    first_upper,
    headers_of,
    is_of_environment,
    read_entries,
    said_of_acting,
    source_of,
)
from .login import AUTH, Login, read_login
from .plain import Plain, Settings, read_plain
from .transport import Connection, open_pool, proxy_of

# Scheme, host (a name, or an IPv6 address in brackets), port and path, without blanks and control characters.
_ADDRESS = re.compile(
    r"(?i:https?)://(?:[^\s/?#\[\]@:\x00-\x20\x7f]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?(?:/[!-~]*)?\Z"
)


class Access(t.NamedTuple):
    """`pool` is urllib3's for requests to `host`; `authorization` gives the next header's value, or empty text.

    `acting` are headers that every request carries, because the kubeconfig or the environment says as whom to act.
    """

    host: str
    pool: t.Any
    authorization: t.Callable[[], str]
    acting: Headers = ()


def open_access(kubeconfig: str, context: str, decrypt: Decrypt | None = None) -> Access:
    """The way to the API server of `read_login`; `decrypt` gives the text of a file that Ansible Vault has encrypted.

    NpuError names the kubeconfig. Files that this writes are only there while it runs.
    """
    login = read_login(kubeconfig, context)
    source = source_of(login)
    with tempfile.TemporaryDirectory() as folder:
        files = files_of(login, source, folder, decrypt)
        settings, cluster, acting = _settings(login, files, source, folder)
        wanted = _connection(settings, cluster, login, source)
        pool = open_pool(wanted, source)
    if len(acting) > len({name for name, _value in acting}) and wanted.host.startswith("http:") and proxy_of(wanted):
        raise NpuError("Several groups cannot be sent to %s by an HTTP proxy." % source, "Use a server with https://.")
    return Access(wanted.host.rstrip("/"), pool, lambda: _header(settings, login, source), acting)


def _settings(login: Login, files: list[File], source: str, folder: str) -> tuple[t.Any, dict[str, t.Any], Headers]:
    """(the package's configuration or what is used of it, the entry of the cluster, headers of whom to act as)."""
    if not login.content and not login.paths:
        read: Plain | None = Plain(Settings(login.settings["host"].rstrip("/")), {}, {})
    else:
        read = None if is_of_environment(login, files) else read_plain(login, files, source, folder)
    settings, cluster, acting = read or _by_package(login, files, source, folder)
    return settings, cluster, headers_of({**acting, **said_of_acting(login)}, source)


def _by_package(
    login: Login, files: list[File], source: str, folder: str
) -> tuple[t.Any, dict[str, t.Any], dict[str, t.Any]]:
    """(the package's configuration, the entry of the cluster, what the user says of acting)."""
    from kubernetes import client
    from kubernetes import config as untyped

    config: t.Any = untyped
    settings = client.Configuration()
    # The package takes a local server where none is named.
    settings.host = ""
    with explained(source):
        if is_of_environment(login, files):
            config.load_incluster_config(client_configuration=settings)
            return settings, {}, {}
        return (settings, *_load(settings, login, files, source, folder))


def _load(
    settings: t.Any, login: Login, files: list[File], source: str, folder: str
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Let the package fill `settings` from the files; (the entry of the cluster, what the user says of acting)."""
    from kubernetes.config import kube_config as package

    loader, context, cluster, user, acting = read_entries(login, files, source, folder)
    loader.set_active_context(login.context or None)
    try:
        with _listening() as heard:
            loader.load_and_set(settings)
    finally:
        _forget(package, folder)
    for key, what in (("exec", "exec plugin"), ("auth-provider", "auth-provider")):
        if user.get(key) and not settings.api_key and not settings.cert_file and not login.settings.get("api_key"):
            said = ": " + mask(" ".join(" ".join(heard).split()))[:300].rstrip(".") if heard else ""
            raise NpuError(
                "%s: the %s of the user %s gave no credentials%s."
                % (first_upper(source), what, context["context"]["user"], said),
                "Run its command by hand to see why." if key == "exec" else "Log in again, or use an exec plugin.",
            )
    return cluster, acting


class _Listener(logging.Handler):
    """Keeps what the package says of a plugin, which it would only print."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


@contextlib.contextmanager
def _listening() -> t.Iterator[list[str]]:
    heard: list[str] = []
    listener = _Listener(heard)
    logging.getLogger().addHandler(listener)
    try:
        yield heard
    finally:
        logging.getLogger().removeHandler(listener)


def _forget(package: t.Any, folder: str) -> None:
    """Older releases of the package would give a later reader of the same data a file that is no longer there."""
    files = getattr(package, "_temp_files", {})
    for content in [content for content, path in files.items() if os.path.dirname(path) == folder]:
        del files[content]


def _is_address(host: str) -> bool:
    try:
        return bool(_ADDRESS.match(host)) and urlsplit(host).port != 0
    except ValueError:
        # A port or an IPv6 address that there is not.
        return False


def _connection(settings: t.Any, cluster: t.Mapping[str, t.Any], login: Login, source: str) -> Connection:
    """How the server is reached: by the kubeconfig, and by the environment where that says something."""
    env = login.settings
    if not settings.host.lower().startswith(("http://", "https://")):
        raise NpuError(
            "The server %r of %s has no scheme." % (mask(settings.host), source),
            "Write it with https://; without it, a token would be sent in the clear.",
        )
    if not _is_address(settings.host):
        # Not shown: it may hold a password.
        raise NpuError("The server of %s is not an address." % source, "Write it as https://HOST:PORT.")
    if env.get("host") and env["host"].rstrip("/") != settings.host.rstrip("/"):
        raise NpuError(
            "%sHOST names the server %s, and %s names %s." % (AUTH, mask(env["host"]), source, settings.host),
            f"Remove one of them: unset {AUTH}HOST, or give it credentials and no {INPUT}kubeconfig.",
        )
    paths = {name: os.path.expanduser(env[name]) for name in ("authority", "certificate", "key") if env.get(name)}
    own = bool(paths.get("certificate"))
    return Connection(
        settings.host,
        env.get("verify", settings.verify_ssl),
        paths.get("authority") or settings.ssl_ca_cert or "",
        paths.get("certificate") or settings.cert_file or "",
        (paths.get("key") if own else settings.key_file) or "",
        cluster.get("tls-server-name") or "",
        env.get("proxy") or cluster.get("proxy-url") or "",
        env.get("no_proxy"),
        {name: env[name] for name in ("proxy_basic_auth", "basic_auth", "user_agent") if name in env},
    )


def _header(settings: t.Any, login: Login, source: str) -> str:
    """As kubectl takes the text of a token's file, without the line's end.

    Never shown: what else no header may hold is said without it.
    """
    value = ""
    if login.settings.get("api_key"):
        value = "Bearer " + login.settings["api_key"]
    elif login.settings.get("password"):
        account = "%s:%s" % (login.settings["username"], login.settings["password"])
        value = "Basic " + base64.b64encode(account.encode()).decode()
    for key in ("BearerToken", "authorization"):
        value = value or str(settings.get_api_key_with_prefix(key) or "").strip()
    scheme, blank, secret = value.partition(" ")
    value = scheme + blank + secret.strip()
    if not value.isascii() or not value.isprintable():
        raise NpuError(
            "The token of %s holds a character that no token has, such as a line end." % source,
            "Write the token on one line.",
        )
    return value
