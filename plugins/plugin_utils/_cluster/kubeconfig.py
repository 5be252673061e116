# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an API server is reached: a plain kubeconfig is read here, any other by the kubernetes package, whose import costs as much as kubectl's start."""

from __future__ import annotations

import base64
import os
import tempfile
import typing as t
from urllib.request import getproxies

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._inputs.roles import Loader

Entry = t.Mapping[str, t.Any]
_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "extensions",
}
_USER = {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}


class Access(t.NamedTuple):
    """`pool` is urllib3's for requests to `host`; `authorization` gives the header's value for the next one, or nothing."""

    host: str
    pool: t.Any
    authorization: t.Callable[[], str]
    # Files of the credentials, which go with the last user of this.
    folder: t.Any = None


def open_access(kubeconfig: str, context: str) -> Access:
    """By the inputs, else K8S_AUTH_*, else as kubectl finds its file, else as a pod. NpuError names the kubeconfig."""
    kubeconfig = os.path.expanduser(kubeconfig or _environment("KUBECONFIG"))
    context = context or _environment("CONTEXT")
    declared = not kubeconfig and not context and _environment("HOST") and _environment("API_KEY")
    where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if kubeconfig and os.pathsep not in kubeconfig and not os.path.isfile(kubeconfig):
        raise NpuError(
            "The kubeconfig %s is not there, on the controller." % kubeconfig,
            "Correct rbln_kubeconfig, or put the file there.",
        )
    access = (None if declared else _plain(os.path.expanduser(where), context)) or _by_package(
        kubeconfig, context, where, bool(declared)
    )
    source = "K8S_AUTH_*" if declared else "the kubeconfig " + where
    if not access.host.lower().startswith(("http://", "https://")):
        raise NpuError(
            "The server %r of %s has no scheme." % (access.host, source),
            "Write it with https://: else a token goes in the clear.",
        )
    return access._replace(authorization=lambda: _header(access.authorization(), source))


def _header(value: str, source: str) -> str:
    """As kubectl takes the text of a token's file, without the line's end. Never shown: what else no header may hold is said without it."""
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise NpuError(
            "The token of %s holds a character that no token has, such as a line's end." % source,
            "Write the token on one line.",
        )
    return value


def _environment(name: str) -> str:
    return os.environ.get("K8S_AUTH_" + name, "")


def _plain(path: str, context: str) -> Access | None:
    """By one file with a token or a client certificate, and no proxy. None where there is more to it, or something is wrong."""
    import urllib3

    try:
        with open(path, encoding="utf-8") as file:
            config = yaml.load(file, Loader=Loader)
        chosen = _named(config, "context", context or config["current-context"])
        cluster, user = _named(config, "cluster", chosen["cluster"]), _named(config, "user", chosen["user"])
        if not isinstance(cluster.get("insecure-skip-tls-verify"), (bool, type(None))):
            # The package takes any text for true.
            raise NpuError(
                "insecure-skip-tls-verify of the cluster %s in the kubeconfig %s is neither true nor false."
                % (chosen["cluster"], path),
                "Write it without quotes, or take it out.",
            )
        if set(cluster) - _CLUSTER or set(user) - _USER or set(getproxies()) - {"no"}:
            return None
        options = {}
        if cluster["server"].startswith("https"):
            try:
                options["ssl_context"] = _tls(cluster, user, os.path.dirname(os.path.abspath(path)))
            except (OSError, ValueError) as exc:
                said = (
                    "%s: %s" % (exc.filename, exc.strerror) if isinstance(exc, OSError) and exc.filename else str(exc)
                )
                raise NpuError(
                    "The authority, the certificate or the key of the kubeconfig %s cannot be loaded: %s."
                    % (path, said),
                    "Correct them, and let this user read them; a key with a password cannot be used.",
                ) from exc
            if cluster.get("tls-server-name"):
                options["server_hostname"] = cluster["tls-server-name"]
        if cluster.get("insecure-skip-tls-verify"):
            _be_quiet()
        authorization = "Bearer " + user["token"] if user.get("token") else ""
        return Access(cluster["server"].rstrip("/"), urllib3.PoolManager(**options), lambda: authorization)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return None


def _named(config: Entry, kind: str, name: str) -> t.Any:
    """The only one of its name: ValueError when there are several, as for kubectl, or none."""
    (found,) = [item[kind] for item in config[kind + "s"] if item["name"] == name]
    return found


def _tls(cluster: Entry, user: Entry, base: str) -> t.Any:
    """The TLS context; paths are relative to `base`. A key in the kubeconfig is on the disk only while it is loaded."""
    import ssl

    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with tempfile.TemporaryDirectory() as folder:
        authority = _file(cluster, "certificate-authority", base, folder)
        if authority:
            context.load_verify_locations(authority)
        else:
            context.load_default_certs()
        certificate = _file(user, "client-certificate", base, folder)
        if certificate:
            # Without a password, an encrypted key would be asked for at the terminal.
            context.load_cert_chain(certificate, _file(user, "client-key", base, folder), "")
    return context


def _file(entry: Entry, name: str, base: str, folder: str) -> str | None:
    """The path of what `name` or its -data form gives, which goes to a file in `folder`. OSError names a file that cannot be read."""
    if entry.get(name + "-data"):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(base64.b64decode(entry[name + "-data"]))
        return path
    if not entry.get(name):
        return None
    path = os.path.join(base, entry[name])
    with open(path, "rb"):
        return path


def _by_package(kubeconfig: str, context: str, where: str, declared: bool) -> Access:
    from kubernetes import client, config
    from kubernetes.client.rest import RESTClientObject
    from urllib3.exceptions import HTTPError

    settings, folder = client.Configuration(), None
    try:
        if declared:
            settings.host = _environment("HOST").rstrip("/")
            settings.api_key = {"authorization": "Bearer " + _environment("API_KEY")}
            settings.ssl_ca_cert = _environment("SSL_CA_CERT") or None
            settings.verify_ssl = _environment("VERIFY_SSL").lower() not in ("0", "false", "no")
        elif (
            not kubeconfig
            and not context
            and os.environ.get("KUBERNETES_SERVICE_HOST")
            and not os.path.exists(os.path.expanduser(where))
        ):
            config.load_incluster_config(client_configuration=settings)
        else:
            # The package would leave keys in files behind: the workers of tasks end without its clearing.
            folder = tempfile.TemporaryDirectory()
            config.load_kube_config(
                config_file=where, context=context or None, client_configuration=settings, temp_file_path=folder.name
            )
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as exc:
        said = " ".join(str(exc).split()).rstrip(".")
        raise NpuError(
            "The kubeconfig %s cannot be used: %s." % (where, said), "Check rbln_kubeconfig and rbln_kube_context."
        ) from exc
    try:
        pool = RESTClientObject(settings).pool_manager
    except (HTTPError, ImportError, ValueError) as exc:
        raise NpuError(
            "The proxy for the kubeconfig %s cannot be used: %s." % (where, str(exc).rstrip(".")),
            "Correct proxy-url or HTTPS_PROXY; for socks5:// install PySocks for the Python that runs Ansible on the controller.",
        ) from exc
    if not settings.verify_ssl:
        _be_quiet()

    def authorization() -> str:
        for key in ("BearerToken", "authorization"):
            value = settings.get_api_key_with_prefix(key)
            if value:
                return str(value)
        return str(settings.get_basic_auth_token()) if getattr(settings, "username", None) else ""

    return Access(settings.host.rstrip("/"), pool, authorization, folder)


def _be_quiet() -> None:
    """Who turns verification off in a kubeconfig has decided; a warning for each request tells nothing new."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
