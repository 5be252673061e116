# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an API server is reached: the kubernetes package reads the kubeconfig, as for kubernetes.core.

What it would ignore is refused.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Limit, open_file

from .._objects.names import INPUT

# What the package reads of a user and of a cluster, and what changes nothing for our requests.
_USER = {
    "auth-provider", "client-certificate", "client-certificate-data", "client-key", "client-key-data", "exec",
    "extensions",
    "password", "token", "tokenFile", "username",
}  # fmt: skip
_CLUSTER = {
    "certificate-authority", "certificate-authority-data", "disable-compression", "extensions",
    "insecure-skip-tls-verify",
    "proxy-url", "server", "tls-server-name",
}  # fmt: skip
_OTHER_TYPES = {"auth-provider", "disable-compression", "exec", "extensions", "insecure-skip-tls-verify"}
# Scheme, host (a name, or an IPv6 address in brackets), port and path, without blanks and control characters.
_ADDRESS = re.compile(
    r"(?i:https?)://(?:[^\s/?#\[\]@:\x00-\x20\x7f]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?(?:/[!-~]*)?\Z"
)
_PROVIDERS = ("gcp", "oidc")
# Keys that older releases of the package ignore, with the setting that newer ones make of them.
_NEWER = {"tls-server-name": "tls_server_name", "proxy-url": "proxy"}


class Access(t.NamedTuple):
    """`pool` is urllib3's for requests to `host`; `authorization` gives the next header's value, or empty text."""

    host: str
    pool: t.Any
    authorization: t.Callable[[], str]


def open_access(kubeconfig: str, context: str) -> Access:
    """By the inputs, else K8S_AUTH_*, else as kubectl finds its file, else as a pod. NpuError names the kubeconfig."""
    kubeconfig = os.path.expanduser(kubeconfig or _environment("KUBECONFIG"))
    context = context or _environment("CONTEXT")
    declared = bool(not kubeconfig and not context and _environment("HOST") and _environment("API_KEY"))
    where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if "\n" in where or where.lstrip().startswith("{"):
        raise NpuError(
            f"{INPUT}kubeconfig, K8S_AUTH_KUBECONFIG or KUBECONFIG holds the content of a kubeconfig, not its path.",
            "Give a path.",
        )
    if kubeconfig and os.pathsep not in kubeconfig and not os.path.isfile(kubeconfig):
        raise NpuError(
            "The kubeconfig %s does not exist on the controller." % kubeconfig,
            f"Correct {INPUT}kubeconfig, or put the file there.",
        )
    for path in [] if declared else where.split(os.pathsep):
        _check_file(os.path.expanduser(path))
    source = "K8S_AUTH_*" if declared else "the kubeconfig " + where
    # The package writes keys into files; they are on the disk only while they are loaded.
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(kubeconfig, context, where, declared, folder)
        if not settings.host.lower().startswith(("http://", "https://")):
            raise NpuError(
                "The server %r of %s has no scheme." % (settings.host, source),
                "Write it with https://; without it, a token would be sent in the clear.",
            )
        if not _ADDRESS.match(settings.host):
            # Not shown: it may hold a password.
            raise NpuError("The server of %s is not an address." % source, "Write it as https://HOST:PORT.")
        pool = _pool(settings, source)
    return Access(settings.host.rstrip("/"), pool, lambda: _header(settings, source))


def _check_file(path: str) -> None:
    """NpuError for what would be read without end; a missing file is the package's to judge."""
    try:
        info = os.stat(path)
    except OSError:
        return
    if path != os.devnull and not stat.S_ISREG(info.st_mode):
        raise NpuError("The kubeconfig %s is not a file." % path, "Give the path of a file.")
    if info.st_size > Limit.CONFIG:
        raise NpuError("The kubeconfig %s has more than %d bytes." % (path, Limit.CONFIG), "Give another file.")


def _environment(name: str) -> str:
    return os.environ.get("K8S_AUTH_" + name, "")


def _settings(kubeconfig: str, context: str, where: str, declared: bool, folder: str) -> t.Any:
    """The package's configuration; what it puts into files goes to `folder`."""
    from kubernetes import client
    from kubernetes import config as untyped

    config: t.Any = untyped
    settings = client.Configuration()
    if declared:
        settings.host = _environment("HOST").rstrip("/")
        settings.api_key = {"authorization": "Bearer " + _environment("API_KEY")}
        settings.ssl_ca_cert = _environment("SSL_CA_CERT") or None
        settings.verify_ssl = _environment("VERIFY_SSL").lower() not in ("0", "false", "no")
        return settings
    in_pod = not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST")
    try:
        if in_pod and not os.path.exists(os.path.expanduser(where)):
            config.load_incluster_config(client_configuration=settings)
        else:
            _load(settings, where, context, folder)
    except (
        config.ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
        yaml.YAMLError,
    ) as exc:  # fmt: skip
        raise NpuError(
            f"The kubeconfig {where} cannot be used: {_said(exc)}.",
            f"Check {INPUT}kubeconfig and {INPUT}kube_context.",
        ) from None
    return settings


def _said(exc: Exception) -> str:
    """An error in one line, without what it shows of the kubeconfig.

    The package names an entry by all that it holds; YAML shows what it takes for an alias, an anchor or a tag.
    """
    said = re.sub(r"/\{.*", "", " ".join(str(exc).split()))
    return re.sub(r"\b(alias|anchor|tag|tag handle) (['\"]).*?\2", r"\1", said).rstrip(".")


def _load(settings: t.Any, where: str, context: str, folder: str) -> None:
    from kubernetes.config import kube_config as untyped

    package: t.Any = untyped
    merged = package.KubeConfigMerger(where)
    loader = package.KubeConfigLoader(
        merged.config,
        active_context=context or None,
        config_base_path=None,
        config_persister=merged.save_changes,
        temp_file_path=folder,
    )
    chosen = loader.current_context["context"]
    cluster = _given(merged.config["clusters"].get_with_name(chosen["cluster"]), "cluster")
    user = _user(merged.config, chosen.get("user"))
    _check_keys(cluster, user, where, chosen)
    if "server" in cluster:
        # The package takes HTTPS:// for something else.
        cluster["server"] = re.sub(r"\A\w+(?=://)", lambda found: found[0].lower(), cluster["server"])
    loader.set_active_context(context or None)
    settings.host = ""
    try:
        loader.load_and_set(settings)
    finally:
        _forget(package, folder)
    for key, setting in _NEWER.items():
        if cluster.get(key) and getattr(settings, setting, None) != cluster[key]:
            raise NpuError(
                "The kubeconfig %s: this release of the kubernetes package ignores %s." % (where, key),
                "Install a newer kubernetes package for the Python of the controller.",
            )
    for key, what in (("exec", "exec plugin"), ("auth-provider", "auth-provider")):
        if user.get(key) and not settings.api_key and not settings.cert_file:
            raise NpuError(
                "The kubeconfig %s: the %s of the user %s gave no credentials." % (where, what, chosen["user"]),
                "Run its command by hand to see why." if key == "exec" else "Log in again, or use an exec plugin.",
            )


def _forget(package: t.Any, folder: str) -> None:
    """Older releases of the package would give a later reader of the same data a file that is no longer there."""
    files = getattr(package, "_temp_files", {})
    for content in [content for content, path in files.items() if os.path.dirname(path) == folder]:
        del files[content]


def _user(config: t.Any, name: t.Any) -> t.Any:
    """The entry of a user; empty when the context names none or a missing one, as for kubectl.

    A token's file, when it is there, counts before a token.
    """
    found = config["users"].get_with_name(name, safe=True) if name and config.value.get("users") else None
    if found is None:
        return {}
    user = _given(found, "user")
    if user.get("token") and isinstance(user.get("tokenFile"), str):
        if os.path.isfile(os.path.join(os.path.dirname(found.path), user["tokenFile"])):
            del user["token"]
    return user


def _given(node: t.Any, kind: str) -> t.Any:
    """The keys of an entry that say something: null and empty text are the same as no key for kubectl.

    They take the place of the others for this process; what the package writes back to the file stays whole.
    """
    entry = {key: value for key, value in (node.value.get(kind) or {}).items() if value is not None and value != ""}
    node.value = {**node.value, kind: entry}
    return entry


def _check_keys(cluster: t.Any, user: t.Any, where: str, chosen: t.Mapping[str, t.Any]) -> None:
    """NpuError for what the package would ignore, or take for something else."""
    for kind, entry, known in (("user", user, _USER), ("cluster", cluster, _CLUSTER)):
        ignored = sorted(str(key) for key in set(entry) - known)
        if ignored:
            raise NpuError(
                "The kubeconfig %s: the %s %s has %s, which is not supported."
                % (where, kind, chosen[kind], ", ".join(ignored)),
                "Remove it, or use a context without it.",
            )
        for key in sorted(set(entry) - _OTHER_TYPES):
            if not isinstance(entry[key], str):
                raise NpuError(
                    "The kubeconfig %s: %s of the %s %s is not text." % (where, key, kind, chosen[kind]), "Quote it."
                )
    provider = user["auth-provider"].get("name") if user.get("auth-provider") else None
    if provider and provider not in _PROVIDERS:
        raise NpuError(
            "The kubeconfig %s: the auth-provider %s of the user %s is not supported."
            % (where, provider, chosen["user"]),
            "Use an exec plugin, a token or a client certificate.",
        )
    if not isinstance(cluster.get("insecure-skip-tls-verify"), (bool, type(None))):
        # The package takes any text for true.
        raise NpuError(
            "insecure-skip-tls-verify of the cluster %s in the kubeconfig %s is neither true nor false."
            % (chosen["cluster"], where),
            "Write it without quotes, or remove it.",
        )


def _pool(settings: t.Any, source: str) -> t.Any:
    from kubernetes.client.rest import RESTClientObject
    from urllib3.exceptions import HTTPError

    try:
        pool = RESTClientObject(settings).pool_manager
    except (HTTPError, ImportError, ValueError) as exc:
        raise NpuError(
            "The proxy for %s cannot be used: %s." % (source, str(exc).rstrip(".")),
            "Correct proxy-url or HTTPS_PROXY; "
            "for socks5:// install PySocks for the Python that runs Ansible on the controller.",
        ) from exc
    if settings.host.lower().startswith("https"):
        for name in ("ca_certs", "cert_file", "key_file"):
            pool.connection_pool_kw.pop(name, None)
        pool.connection_pool_kw["ssl_context"] = _tls(settings, source)
    if not settings.verify_ssl:
        _be_quiet()
    return pool


def _tls(settings: t.Any, source: str) -> t.Any:
    """The TLS context. NpuError for an authority, a certificate or a key that cannot be loaded."""
    import ssl

    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    # On Python 3.13 urllib3 asks for certificates by the letter, which the authorities of some clusters do not keep.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        for path in (settings.ssl_ca_cert, settings.cert_file, settings.key_file):
            if path:
                with open(path, "rb", opener=open_file):
                    pass
        if settings.ssl_ca_cert:
            context.load_verify_locations(settings.ssl_ca_cert)
        else:
            context.load_default_certs()
        if settings.cert_file:
            # Without a password, an encrypted key would be asked for at the terminal.
            context.load_cert_chain(settings.cert_file, settings.key_file, "")
    except (OSError, ValueError) as exc:
        said = "%s: %s" % (exc.filename, exc.strerror) if isinstance(exc, OSError) and exc.filename else str(exc)
        raise NpuError(
            "The authority, the certificate or the key of %s cannot be loaded: %s." % (source, said),
            "Correct them, and let this user read them; a key with a password cannot be used.",
        ) from exc
    return context


def _header(settings: t.Any, source: str) -> str:
    """As kubectl takes the text of a token's file, without the line's end.

    Never shown: what else no header may hold is said without it.
    """
    value = ""
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


def _be_quiet() -> None:
    """A kubeconfig that turns verification off means it; a warning for each request tells nothing new."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
