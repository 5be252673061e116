# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig without plugins, read without the kubernetes package.

To import the package costs as much CPU as all of an unchanged pass besides. What it would refuse is left to it.
"""

from __future__ import annotations

import base64
import os
import typing as t
from dataclasses import dataclass, field

import yaml

from .entries import File, judge, kept, prefer_file, write
from .login import Login

_PLUGINS = ("exec", "auth-provider")


@dataclass
class Settings:
    """What is used of the package's configuration, with its names; paths are of files that exist, or None."""

    host: str = ""
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    api_key: dict[str, str] = field(default_factory=dict, repr=False)

    def get_api_key_with_prefix(self, key: str) -> str | None:
        return self.api_key.get(key)


class Plain(t.NamedTuple):
    settings: Settings
    cluster: dict[str, t.Any]
    acting: dict[str, t.Any]


def read_plain(login: Login, files: list[File], source: str, folder: str) -> Plain | None:
    """What the package would make of the context in use; `folder` gets certificates that are data.

    None where the package has to read: it runs the plugin, or says what is wrong. NpuError as `read_entries`.
    """
    try:
        chosen, cluster, user = _in_use(login, files)
        if any(key in user for key in _PLUGINS):
            return None
        acting = judge(cluster, user, source, chosen)
        settings = Settings(cluster.get("server", "").rstrip("/"))
        authorization = _authorization(user)
        if authorization:
            settings.api_key["BearerToken"] = authorization
        if settings.host.startswith("https"):
            settings.ssl_ca_cert = _file(cluster, "certificate-authority", folder)
            settings.cert_file = _file(user, "client-certificate", folder)
            settings.key_file = _file(user, "client-key", folder)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return None
    settings.verify_ssl = not cluster.get("insecure-skip-tls-verify")
    return Plain(settings, cluster, acting)


def _in_use(login: Login, files: list[File]) -> tuple[dict[str, t.Any], dict[str, t.Any], dict[str, t.Any]]:
    """(context in use, entry of its cluster, entry of its user); of several entries of a name the first counts."""
    merged: dict[str, dict[str, tuple[t.Any, str]]] = {"clusters": {}, "contexts": {}, "users": {}}
    current = login.context
    for file in files:
        with open(file.path) as stream:
            config = yaml.safe_load(stream)
        for kind, entries in merged.items():
            for entry in config.get(kind) or []:
                _require(entry["name"], str)
                entries.setdefault(entry["name"], (entry, file.folder))
        current = current or config.get("current-context")
    chosen = _require(merged["contexts"][_require(current, str)][0]["context"], dict)
    cluster, base = merged["clusters"][chosen["cluster"]]
    kept_cluster = kept(_require(cluster["cluster"], dict), base)
    if not chosen.get("user") or chosen["user"] not in merged["users"]:
        return chosen, kept_cluster, {}
    user, base = merged["users"][chosen["user"]]
    return chosen, kept_cluster, prefer_file(kept(_require(user["user"], dict), base))


def _require(value: t.Any, kind: type) -> t.Any:
    if not isinstance(value, kind):
        raise TypeError("not of type %s" % kind.__name__)
    return value


def _authorization(user: t.Mapping[str, t.Any]) -> str:
    """A token, else a token's file, else name and password."""
    token = user.get("token", "")
    if "token" not in user and "tokenFile" in user:
        with open(os.path.normpath(user["tokenFile"])) as stream:
            token = stream.read()
    if token:
        return "Bearer %s" % token
    if "username" in user and "password" in user:
        account = "%s:%s" % (user["username"], user["password"])
        return "Basic " + base64.b64encode(account.encode("latin-1")).decode()
    return ""


def _file(entry: t.Mapping[str, t.Any], key: str, folder: str) -> str | None:
    """The path of what an entry names or holds. ValueError where there is none."""
    if key + "-data" in entry:
        return write(folder, key, base64.standard_b64decode(entry[key + "-data"].encode()))
    if key not in entry:
        return None
    path: str = os.path.normpath(entry[key])
    if not os.path.isfile(path):
        raise ValueError("not a file")
    return path
