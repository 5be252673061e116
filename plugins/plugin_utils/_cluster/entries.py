# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of a kubeconfig say of the context in use; nothing is asked, and no plugin runs.

What the kubernetes package would ignore is done here, as kubectl does it, or refused by name.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t
from urllib.parse import quote

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Limit, open_file

from .._objects.names import INPUT
from .login import AUTH, Login

# What is read of a user and of a cluster, and what changes nothing for our requests.
_ACTING = ("as", "as-uid", "as-groups", "as-user-extra")
_USER = {
    "auth-provider", "client-certificate", "client-certificate-data", "client-key", "client-key-data", "exec",
    "extensions",
    "password", "token", "tokenFile", "username", *_ACTING,
}  # fmt: skip
_CLUSTER = {
    "certificate-authority", "certificate-authority-data", "disable-compression", "extensions",
    "insecure-skip-tls-verify",
    "proxy-url", "server", "tls-server-name",
}  # fmt: skip
_OTHER_TYPES = {
    "as-groups", "as-user-extra", "auth-provider", "disable-compression", "exec", "extensions",
    "insecure-skip-tls-verify",
}  # fmt: skip
# Files that start at the folder of their kubeconfig.
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_PROVIDERS = ("gcp", "oidc")
_HEADER_KEY = "!#$&'*+-.^_`|~"
_VAULT = b"$ANSIBLE_VAULT"
Headers = tuple[tuple[str, str], ...]
Decrypt = t.Callable[[str], str]


class File(t.NamedTuple):
    """A kubeconfig on the disk: where it is read, and the folder at which its paths start; `ours` is ours to delete."""

    path: str
    folder: str
    ours: bool = False


def files_of(login: Login, source: str, folder: str, decrypt: Decrypt | None) -> list[File]:
    """The files to merge; empty and absent ones are none, as for kubectl. `folder` gets what is not on the disk."""
    if login.content:
        return [File(write(folder, "config", login.content.encode()), os.getcwd(), True)]
    found = []
    for number, path in enumerate(login.paths):
        if not is_there(path):
            continue
        try:
            with open(path, "rb", opener=open_file) as stream:
                start = stream.read(len(_VAULT))
        except OSError as exc:
            raise _unreadable(path, exc) from None
        base = os.path.dirname(os.path.abspath(path))
        if start == _VAULT:
            if decrypt is None:
                raise NpuError("%s is encrypted with Ansible Vault." % source, "Give the password, or decrypt it.")
            found.append(File(write(folder, "config%d" % number, decrypt(path).encode()), base, True))
        elif start:
            found.append(File(path, base))
    if not found and login.chosen and len(login.paths) == 1 and not os.path.exists(login.paths[0]):
        raise NpuError(
            "The kubeconfig %s does not exist on the controller." % mask(login.paths[0]),
            f"Correct {INPUT}kubeconfig, or put the file there.",
        )
    return found


def write(folder: str, name: str, data: bytes) -> str:
    """The path of a new file that only this user can read."""
    path = os.path.join(folder, name)
    with open(path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
        stream.write(data)
    return path


def is_there(path: str) -> bool:
    """Whether a kubeconfig exists. NpuError for what would be read without end."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as exc:
        raise _unreadable(path, exc) from None
    if path == os.devnull:
        return False
    if not stat.S_ISREG(info.st_mode):
        raise NpuError("The kubeconfig %s is not a file." % path, "Give the path of a file.")
    if info.st_size > Limit.CONFIG:
        raise NpuError("The kubeconfig %s has more than %d bytes." % (path, Limit.CONFIG), "Give another file.")
    return True


def _unreadable(path: str, exc: Exception) -> NpuError:
    reason = getattr(exc, "strerror", None) or "it is not a path"
    return NpuError("The kubeconfig %s cannot be read: %s." % (mask(path), reason), f"Correct {INPUT}kubeconfig.")


def source_of(login: Login) -> str:
    if login.content:
        return login.name
    return "the kubeconfig " + os.pathsep.join(login.paths) if login.paths else AUTH + "*"


def is_of_environment(login: Login, files: list[File]) -> bool:
    """Whether no kubeconfig says where the server is, but the environment or the pod in which this runs."""
    if not login.content and not login.paths:
        return True
    return not files and not login.chosen and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def said_of_acting(login: Login) -> dict[str, t.Any]:
    return {name: login.settings[name] for name in ("as", "as-groups") if name in login.settings}


@contextlib.contextmanager
def explained(source: str) -> t.Iterator[None]:
    """NpuError for what the package raises when a kubeconfig is wrong."""
    from kubernetes import config as untyped

    config: t.Any = untyped
    try:
        yield
    except (
        config.ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
        yaml.YAMLError,
    ) as exc:  # fmt: skip
        raise NpuError(
            f"{first_upper(source)} cannot be used: {_said(exc)}.",
            f"Check {INPUT}kubeconfig and {INPUT}kube_context.",
        ) from None


def first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _said(exc: Exception) -> str:
    """An error in one line, without what it shows of the kubeconfig.

    The package names an entry by all that it holds; YAML shows what it takes for an alias, an anchor or a tag.
    """
    said = re.sub(r"/\{.*", "", " ".join(str(exc).split()))
    return mask(re.sub(r"\b(alias|anchor|tag|tag handle) (['\"]).*?\2", r"\1", said).rstrip("."))


class Read(t.NamedTuple):
    """The package's loader, and what the files say of the context in use; `acting` is no longer in `user`."""

    loader: t.Any
    context: t.Any
    cluster: dict[str, t.Any]
    user: dict[str, t.Any]
    acting: dict[str, t.Any]


def read_entries(login: Login, files: list[File], source: str, folder: str) -> Read:
    """The files, merged and judged; no plugin runs."""
    from kubernetes.config import kube_config as untyped

    package: t.Any = untyped
    merged = package.KubeConfigMerger(os.pathsep.join(file.path for file in files))
    if merged.config is None:
        raise ValueError("no configuration found")
    _correct(merged, files)
    keep = login.settings.get("persist", True) and not any(file.ours for file in files)
    loader = package.KubeConfigLoader(
        merged.config,
        active_context=login.context or None,
        config_base_path=None,
        config_persister=merged.save_changes if keep else None,
        temp_file_path=folder,
    )
    context = loader.current_context
    chosen = context["context"]
    cluster = _given(merged.config["clusters"].get_with_name(chosen["cluster"]), "cluster")
    user = _user(merged.config, chosen.get("user"))
    return Read(loader, context, cluster, user, judge(cluster, user, source, chosen))


def judge(
    cluster: dict[str, t.Any], user: dict[str, t.Any], source: str, chosen: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Take what the user says of acting out of it, and bring the server's scheme into the form of the package.

    NpuError for what would be ignored, or taken for something else.
    """
    _check_keys(cluster, user, source, chosen)
    if "server" in cluster:
        # The package takes HTTPS:// for something else.
        cluster["server"] = re.sub(r"\A\w+(?=://)", lambda found: found[0].lower(), cluster["server"])
    return {key: user.pop(key) for key in _ACTING if key in user}


def _correct(merged: t.Any, files: list[File]) -> None:
    """What the package merges otherwise than kubectl: the first current-context counts, paths start at their file."""
    current = [merged.config_files[file.path].get("current-context") for file in files]
    merged.config.value["current-context"] = next((name for name in current if name), None)
    folders = {file.path: file.folder for file in files}
    for kind in ("clusters", "contexts", "users"):
        for node in merged.config.value[kind]:
            node.path = os.path.join(folders[node.path], "config")


def _user(config: t.Any, name: t.Any) -> t.Any:
    """The entry of a user; empty when the context names none or a missing one, as for kubectl."""
    found = config["users"].get_with_name(name, safe=True) if name and config.value.get("users") else None
    return {} if found is None else prefer_file(_given(found, "user"))


def prefer_file(user: dict[str, t.Any]) -> dict[str, t.Any]:
    """The entry of a user: a token's file, when it is there, counts before a token."""
    if user.get("token") and isinstance(user.get("tokenFile"), str) and os.path.isfile(user["tokenFile"]):
        del user["token"]
    return user


def _given(node: t.Any, kind: str) -> t.Any:
    """`kept` of an entry of the package.

    They take the place of the others for this process; what the package writes back to the file stays whole.
    """
    entry = kept(node.value.get(kind) or {}, os.path.dirname(node.path))
    node.value = {**node.value, kind: entry}
    return entry


def kept(entry: t.Mapping[str, t.Any], folder: str) -> dict[str, t.Any]:
    """The keys of an entry that say something: null and empty text are the same as no key for kubectl.

    Paths start at `folder`, that of the file of this entry, not of another one that was merged.
    """
    found = {key: value for key, value in entry.items() if value is not None and value != ""}
    return {
        key: os.path.join(folder, value) if key in _FILES and isinstance(value, str) else value
        for key, value in found.items()
    }


def _check_keys(cluster: t.Any, user: t.Any, source: str, chosen: t.Mapping[str, t.Any]) -> None:
    """NpuError for what would be ignored, or taken for something else."""
    where = first_upper(source)
    for kind, entry, known in (("user", user, _USER), ("cluster", cluster, _CLUSTER)):
        ignored = sorted(str(key) for key in set(entry) - known)
        if ignored:
            raise NpuError(
                "%s: the %s %s has %s, which is not supported." % (where, kind, chosen[kind], ", ".join(ignored)),
                "Remove it, or use a context without it.",
            )
        for key in sorted(set(entry) - _OTHER_TYPES):
            if not isinstance(entry[key], str):
                raise NpuError("%s: %s of the %s %s is not text." % (where, key, kind, chosen[kind]), "Quote it.")
    provider = user["auth-provider"].get("name") if user.get("auth-provider") else None
    if provider and provider not in _PROVIDERS:
        raise NpuError(
            "%s: the auth-provider %s of the user %s is not supported." % (where, provider, chosen["user"]),
            "Use an exec plugin, a token or a client certificate.",
        )
    if user.get("exec") and user["exec"].get("interactiveMode") == "Always":
        raise NpuError(
            "%s: the exec plugin of the user %s wants a terminal (interactiveMode: Always)." % (where, chosen["user"]),
            "Use a context whose plugin asks nothing.",
        )
    for first, second in (("username", "password"), ("password", "username"), ("client-key", "client-certificate")):
        if any(key in user for key in (first, first + "-data")) and not any(
            key in user for key in (second, second + "-data")
        ):
            raise NpuError(
                "%s: the user %s has %s without %s." % (where, chosen["user"], first, second), "Give both, or none."
            )
    if not isinstance(cluster.get("insecure-skip-tls-verify"), (bool, type(None))):
        # The package takes any text for true.
        raise NpuError(
            "insecure-skip-tls-verify of the cluster %s in %s is neither true nor false." % (chosen["cluster"], source),
            "Write it without quotes, or remove it.",
        )


def headers_of(acting: t.Mapping[str, t.Any], source: str) -> Headers:
    """The headers of whom to act as, with the names that kubectl sends. NpuError names the key that cannot be sent."""
    acting = {key: value for key, value in acting.items() if value}
    user, groups, extra = acting.get("as"), acting.get("as-groups", []), acting.get("as-user-extra", {})
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise _not_sent("as-user-extra" if isinstance(groups, list) else "as-groups", source)
    if acting and not user:
        raise NpuError("%s has %s without as." % (first_upper(source), sorted(acting)[0]), "Add as, or remove it.")
    pairs = [("as", "User", user), ("as-uid", "Uid", acting.get("as-uid"))]
    pairs += [("as-groups", "Group", group) for group in groups]
    for name, values in extra.items():
        if not isinstance(values, list):
            raise _not_sent("as-user-extra", source)
        key = "-".join(part.capitalize() for part in quote(str(name), safe=_HEADER_KEY).split("-"))
        pairs += [("as-user-extra", "Extra-" + key, value) for value in values]
    for key, _name, value in pairs:
        if value is not None and not (isinstance(value, str) and value.isascii() and value.isprintable() and value):
            raise _not_sent(key, source)
    return tuple(("Impersonate-" + name, value) for _key, name, value in pairs if value is not None)


def _not_sent(key: str, source: str) -> NpuError:
    return NpuError(
        "%s of %s cannot be sent in a header." % (key, source), "Write it as kubectl takes it, in printable ASCII."
    )
