# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster, and as whom: decided here alone, from the inputs and the environment, as kubernetes.core means them.

A setting that is not known is refused by its name, never dropped. Nothing is opened here, and no name of a cluster is
made of the content of a kubeconfig.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT

AUTH = "K8S_AUTH_"
DEFAULT = "~/.kube/config"
# Setting to the ends of its variables; the first that is set counts.
_VARIABLES = {
    "kubeconfig": ("KUBECONFIG",),
    "context": ("CONTEXT",),
    "host": ("HOST",),
    "api_key": ("API_KEY",),
    "username": ("USERNAME",),
    "password": ("PASSWORD",),
    "verify": ("VALIDATE_CERTS", "VERIFY_SSL"),
    "authority": ("CA_CERT", "SSL_CA_CERT"),
    "certificate": ("CLIENT_CERT", "CERT_FILE"),
    "key": ("CLIENT_KEY", "KEY_FILE"),
    "proxy": ("PROXY",),
    "no_proxy": ("NO_PROXY",),
    "proxy_basic_auth": ("PROXY_HEADERS_PROXY_BASIC_AUTH",),
    "basic_auth": ("PROXY_HEADERS_BASIC_AUTH",),
    "user_agent": ("PROXY_HEADERS_USER_AGENT",),
    "persist": ("PERSIST_CONFIG",),
    "as": ("IMPERSONATE_USER",),
    "as-groups": ("IMPERSONATE_GROUPS",),
}
_BOOLEANS = ("verify", "persist")
_NEEDS = (("username", "password"), ("password", "username"), ("key", "certificate"), ("as-groups", "as"))
# A kubeconfig as text: several lines, JSON, or one line with a key that each of them has.
_CONTENT = re.compile(r"[\r\n]|\A\s*[{\[]|\A\s*(?:---|%YAML|\$ANSIBLE_VAULT)|(?:apiVersion|clusters|contexts)[\"']?:\s")
_CLUSTERS = re.compile(rb"clusters[\"']?\s*:")


@dataclass(frozen=True)
class Login:
    """Where a cluster is and as whom it is asked.

    `paths` are kubeconfigs to merge, or `content` is one, or neither: then the environment gives server and
    credentials. `chosen` says that somebody named the kubeconfig or the context. `settings` win over what a kubeconfig
    says. `name` is what people read of it.
    """

    name: str
    paths: tuple[str, ...] = ()
    content: str = field(default="", repr=False)
    context: str = ""
    chosen: bool = False
    settings: t.Mapping[str, t.Any] = field(default_factory=dict, repr=False)

    @property
    def mark(self) -> str:
        """Tells clusters of the same name apart: 8 hexadecimal digits, made of what is no secret; empty for files."""
        whole = [mask(self.content)] if self.content else []
        whole += [str(self.settings[name]) for name in ("host", "username", "as", "as-groups") if name in self.settings]
        if not whole:
            return ""
        return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:8]


def is_content(text: str) -> bool:
    """Whether an input is a kubeconfig itself, not the path of one."""
    return bool(_CONTENT.search(text))


def read_login(kubeconfig: str, context: str) -> Login:
    """By the inputs, else K8S_AUTH_*, else as kubectl finds its file. NpuError names a variable, and shows no secret.

    A server with credentials in the environment counts as a whole, unless an input names a kubeconfig or a context.
    """
    settings = _settings()
    host, declared = settings.get("host"), any(settings.get(name) for name in ("api_key", "password", "certificate"))
    if host and declared and not (kubeconfig or context):
        return Login("the server %s of %sHOST" % (mask(host), AUTH), settings=settings)
    given, source = kubeconfig, INPUT + "kubeconfig"
    for text, variable in ((settings.get("kubeconfig"), AUTH), (os.environ.get("KUBECONFIG"), "")):
        if not given and text:
            given, source = text, variable + "KUBECONFIG"
    context = context or settings.get("context", "")
    if is_content(given):
        if given.lstrip().startswith("$ANSIBLE_VAULT"):
            raise NpuError(
                "%s holds text that is still encrypted." % source, "Give it with the tag !vault, or the path of a file."
            )
        return Login(_name("the kubeconfig in " + source, context), (), given, context, True, settings)
    _refuse_encoded(given, source)
    paths = tuple(os.path.expanduser(path) for path in given.split(os.pathsep) if path)
    name = _name(os.pathsep.join(paths), context)
    return Login(name, paths or (os.path.expanduser(DEFAULT),), "", context, bool(paths or context), settings)


def ambient() -> str:
    """The variable of the environment that names a cluster as for kubernetes.core; empty for none."""
    return next((AUTH + end for end in ("HOST", "KUBECONFIG", "CONTEXT") if os.environ.get(AUTH + end)), "")


def _name(where: str, context: str) -> str:
    return " context ".join(part for part in (where, context) if part) or "default kubeconfig"


def _settings() -> dict[str, t.Any]:
    """What K8S_AUTH_* sets. An empty variable sets nothing."""
    given = {name[len(AUTH) :]: value for name, value in os.environ.items() if name.startswith(AUTH) and value}
    unknown = sorted(set(given) - {end for ends in _VARIABLES.values() for end in ends})
    if unknown:
        raise NpuError(
            "The environment has %s%s, which is not supported." % (AUTH, unknown[0]),
            "Remove it, or use a kubeconfig.",
        )
    found: dict[str, t.Any] = {}
    for setting, ends in _VARIABLES.items():
        end = next((end for end in ends if end in given), "")
        if end:
            found[setting] = _boolean(AUTH + end, given[end]) if setting in _BOOLEANS else given[end]
    for setting, needed in _NEEDS:
        if setting in found and needed not in found:
            names = [AUTH + _VARIABLES[name][0] for name in (setting, needed)]
            raise NpuError("The environment has %s without %s." % (names[0], names[1]), "Set both, or none.")
    if "as-groups" in found:
        found["as-groups"] = [part.strip() for part in found["as-groups"].split(",") if part.strip()]
    return found


def _boolean(name: str, text: str) -> bool:
    value = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}.get(text.strip().lower())
    if value is None:
        raise NpuError("%s is neither true nor false." % name, "Set it to true or false.")
    return value


def _refuse_encoded(text: str, source: str) -> None:
    """NpuError for a kubeconfig in base64, which would be taken for a path and shown."""
    try:
        decoded = base64.b64decode(text, validate=True) if len(text) > 64 else b""
    except (binascii.Error, ValueError):
        return
    if _CLUSTERS.search(decoded):
        raise NpuError("%s holds a kubeconfig in base64." % source, "Decode it, for example with the filter b64decode.")
