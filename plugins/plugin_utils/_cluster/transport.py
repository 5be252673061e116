# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to an API server: TLS and proxy, the same with every release of the kubernetes package."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import os
import re
import ssl
import typing as t
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import open_file


def preload() -> None:
    """Import what a request needs, and what TLS has once a process. For the main one of Ansible: its copies share it.

    What is not there, or does not work, is told by who needs it.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        importlib.import_module("urllib3.util")
        importlib.import_module("urllib3.util.ssl_").create_urllib3_context()


class NoAnswer(NpuError):
    """A server cannot be reached, or closes the connection."""


@dataclass
class Connection:
    """How a server is reached; paths are of files that are there while the connection is opened.

    `proxy` was chosen for this server; an empty one asks the environment. `no_proxy` of None is that of the
    environment.
    """

    host: str
    verify: bool = True
    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    proxy: str = ""
    no_proxy: str | None = None
    proxy_headers: t.Mapping[str, t.Any] = field(default_factory=dict, repr=False)


def open_pool(wanted: Connection, source: str) -> t.Any:
    """urllib3's pool for a server. NpuError names `source` and what cannot be used."""
    import urllib3
    from urllib3.util import make_headers

    options: dict[str, t.Any] = {}
    if wanted.host.lower().startswith("https"):
        options["ssl_context"] = _tls(wanted, source)
        options["cert_reqs"] = "CERT_REQUIRED" if wanted.verify else "CERT_NONE"
        if wanted.server_name:
            options["server_hostname"] = wanted.server_name
        if not wanted.verify:
            _be_quiet()
    proxy = proxy_of(wanted)
    try:
        if not proxy:
            return urllib3.PoolManager(**options)
        if proxy.lower().startswith("socks"):
            from urllib3.contrib.socks import SOCKSProxyManager

            return SOCKSProxyManager(proxy, **options)
        given = dict(wanted.proxy_headers)
        account = urlsplit(proxy).netloc.rpartition("@")[0]
        if account:
            given.setdefault("proxy_basic_auth", unquote(account))
        if proxy.lower().startswith("https") and options:
            # As for kubectl, the proxy too is trusted by the authority of the cluster.
            options["proxy_ssl_context"] = _tls(Connection(wanted.host, authority=wanted.authority), source, True)
        return urllib3.ProxyManager(proxy, proxy_headers=make_headers(**given), **options)
    except (urllib3.exceptions.HTTPError, ImportError, ValueError) as exc:
        raise NpuError(
            "The proxy for %s cannot be used: %s." % (source, mask(str(exc)).rstrip(".")),
            "Correct proxy-url or HTTPS_PROXY; "
            "for socks5:// install PySocks for the Python that runs Ansible on the controller.",
        ) from None


def proxy_of(wanted: Connection) -> str:
    """The address of the proxy for a server; empty for none."""
    secure = wanted.host.lower().startswith("https")
    proxy = wanted.proxy or _environment("HTTPS_PROXY" if secure else "HTTP_PROXY")
    no_proxy = _environment("NO_PROXY") if wanted.no_proxy is None else wanted.no_proxy
    if not proxy or _is_excepted(wanted.host, no_proxy):
        return ""
    return proxy if "://" in proxy else "http://" + proxy


def _environment(name: str) -> str:
    return os.environ.get(name.lower()) or os.environ.get(name) or ""


def _is_excepted(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names a server: by name or domain, address or network, with a port or without; * names all."""
    parts = urlsplit(host)
    name, port = (parts.hostname or "").lower(), parts.port or (443 if parts.scheme.lower() == "https" else 80)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        address = None
    for entry in re.split(r"[,\s]+", no_proxy.lower()):
        if entry == "*":
            return True
        found = re.match(r"\A\[?(.*?)\]?(?::(\d+))?\Z", entry) if entry.count(":") < 2 or "]" in entry else None
        plain, wanted_port = (found[1], found[2]) if found else (entry, None)
        if not plain or (wanted_port and int(wanted_port) != port):
            continue
        try:
            fits = address is not None and address in ipaddress.ip_network(plain, strict=False)
        except ValueError:
            fits = False
        domain = plain.lstrip("*").lstrip(".")
        if fits or (domain and (name == domain or name.endswith("." + domain))):
            return True
    return False


def _tls(wanted: Connection, source: str, system: bool = False) -> ssl.SSLContext:
    """The TLS context; with `system` the authorities of the system are trusted besides.

    NpuError for an authority, a certificate or a key that cannot be loaded.
    """
    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    # On Python 3.13 urllib3 asks for certificates by the letter, which the authorities of some clusters do not keep.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not wanted.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        for path in (wanted.authority, wanted.certificate, wanted.key):
            if path:
                with open(path, "rb", opener=open_file):
                    pass
        if wanted.authority:
            context.load_verify_locations(wanted.authority)
        if system or (wanted.verify and not wanted.authority):
            # Several MiB of a process.
            context.load_default_certs()
        if wanted.certificate:
            # Without a password, an encrypted key would be asked for at the terminal.
            context.load_cert_chain(wanted.certificate, wanted.key or None, "")
    except (OSError, ValueError) as exc:
        said = "%s: %s" % (exc.filename, exc.strerror) if isinstance(exc, OSError) and exc.filename else str(exc)
        raise NpuError(
            "The authority, the certificate or the key of %s cannot be loaded: %s." % (source, said),
            "Correct them, and let this user read them; a key with a password cannot be used.",
        ) from exc
    return context


def _be_quiet() -> None:
    """A kubeconfig that turns verification off means it; a warning for each request tells nothing new."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)


def verification_error(exc: BaseException) -> BaseException | None:
    """The failed verification of a certificate that is behind an error of urllib3; None for any other trouble."""
    from urllib3.util.ssl_match_hostname import CertificateError

    seen: BaseException | None = exc
    while seen is not None:
        for one in (seen, *seen.args):
            # The second is of urllib3 1, which compares the name itself.
            if isinstance(one, (ssl.SSLCertVerificationError, CertificateError)):
                return one
        inner = next((one for one in seen.args if isinstance(one, BaseException)), None)
        seen = inner or seen.__cause__
    return None


def is_closed(exc: BaseException) -> bool:
    """Whether the other side ended the connection, during the handshake or later."""
    return bool(re.search(r"EOF|closed connection|reset by peer|ConnectionReset|Broken pipe|ZeroReturn", str(exc)))
