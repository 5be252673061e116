# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same cluster and person for tasks of kubernetes.core, which run the smoke workload."""

from __future__ import annotations

import os
import tempfile
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT, OPERANDS
from .entries import (
    Decrypt,
    explained,
    files_of,
    first_upper,
    headers_of,
    is_of_environment,
    is_there,
    read_entries,
    said_of_acting,
    source_of,
)
from .login import AUTH, is_content, read_login

SMOKE = OPERANDS + "smoke"


class Given(t.NamedTuple):
    """What kubernetes.core must be given to ask the server of `open_access` as the same person.

    `paths` are files that exist, or `content` says that the input itself is the kubeconfig, and `context` is one of it.
    With neither, kubernetes.core finds server and credentials in the environment or the pod as `open_access` does.
    """

    paths: tuple[str, ...]
    content: bool
    context: str
    user: str
    groups: tuple[str, ...]


def given_to_tasks(kubeconfig: str, context: str, decrypt: Decrypt | None = None) -> Given:
    """Nothing is asked and no plugin runs. NpuError as `open_access`, and for what kubernetes.core cannot be given."""
    login = read_login(kubeconfig, context)
    source = source_of(login)
    if login.content and not is_content(kubeconfig):
        raise NpuError(
            "%s is content, which kubernetes.core takes for a path; it runs %s." % (first_upper(source), SMOKE),
            f"Give the content as {INPUT}kubeconfig, or the path of a file.",
        )
    if not login.content and not login.paths and login.settings.get("certificate") and not login.settings.get("key"):
        raise NpuError(
            "%sCLIENT_CERT is set without %sCLIENT_KEY; kubernetes.core, which runs %s, needs both."
            % (AUTH, AUTH, SMOKE),
            "Set both; they may name one file.",
        )
    chosen = ""
    acting: dict[str, t.Any] = {}
    paths = tuple(os.path.abspath(path) for path in login.paths if is_there(path) and os.path.getsize(path))
    with tempfile.TemporaryDirectory() as folder:
        files = files_of(login, source, folder, decrypt)
        if not is_of_environment(login, files):
            with explained(source):
                read = read_entries(login, files, source, folder)
            chosen, acting = read.context["name"], read.acting
    headers = headers_of({**acting, **said_of_acting(login)}, source)
    unsent = [key for key in ("as-uid", "as-user-extra") if acting.get(key)]
    if unsent:
        raise NpuError(
            "%s has %s, which kubernetes.core cannot send; it runs %s." % (first_upper(source), unsent[0], SMOKE),
            f"Use a context without it, or set {SMOKE}.enabled to false.",
        )
    user = next((value for name, value in headers if name == "Impersonate-User"), "")
    groups = tuple(value for name, value in headers if name == "Impersonate-Group")
    return Given(paths, bool(login.content), chosen, user, groups)
