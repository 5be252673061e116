# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installation of the driver needs on the controller, opened once for all hosts before one is changed."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._plan.driver import holds_secret
from .._plan.situation import Case, Situation, driver_files, ours, wanted_version
from .driver_files import Finder, is_address
from .signing_key import is_file, signing_key

Data = t.Mapping[str, t.Any]
# Which file a host gets follows from its NPUs and architecture; this one is like none yet.
_UNSEEN: Data = {"os": {"arch": None}, "npus": []}


@dataclass(frozen=True)
class Need:
    """A file of a driver with what proves it, or the key of a repository; equal for the hosts that need the same."""

    src: str
    name: str = ""
    sha256: str = ""
    signature: str = ""
    keyring: str = ""
    cache: str = ""
    ca_path: str = ""
    fingerprints: tuple[str, ...] | None = None


def is_due(wanted: Data, seen: Data) -> bool:
    """Whether a host waits for a driver: by its inputs, and by what was observed (the facts of one observation)."""
    if wanted[ours("driver_state")] == "absent":
        return False
    name = PROFILE.short_name
    facts = seen[name]
    inputs = {**wanted, ours("driver_version"): wanted_version(wanted, facts)}
    case = Case(inputs, facts, seen[name + "_runtimes"], seen[name + "_observed"])
    return case.needs_driver and not Situation(case).right


def needs(wanted: Data, facts: Data | None, beside: t.Callable[[str], str]) -> list[Need]:
    """What a driver for a host with these facts needs; without facts, for any host with these inputs.

    What the inputs alone show to be wrong (no digest, no signature, a password in an address) is a stop of the plan.
    """

    def get(name: str) -> t.Any:
        return wanted[ours("driver_" + name)]

    found: list[Need] = []
    ca_path = get("ca_cert") or ""
    if ca_path and get("source") in ("package", "runfile"):
        found.append(Need(ca_path))
    repository = get("repository") or {}
    refused = holds_secret(str(repository.get("url") or ""))
    if get("source") == "package" and repository.get("key") and is_file(repository["key"]) and not refused:
        prints = repository.get("fingerprint") or ()
        prints = (prints,) if isinstance(prints, str) else tuple(prints)
        found.append(Need(beside(repository["key"]), fingerprints=prints))
    versions = [get("version")] if facts or get("version") else list(get("versions").values()) or [""]
    for version in versions:
        for item in driver_files({**wanted, ours("driver_version"): version}, facts or _UNSEEN):
            signature = item.get("signature") or ""
            keyring = get("runfile_keyring") if signature else ""
            if not any(map(holds_secret, (item["src"], signature))):
                name, sha256 = item.get("name") or "", item["sha256"]
                found.append(Need(item["src"], name, sha256, signature, keyring, get("cache"), ca_path))
    return found


def open_need(need: Need) -> None:
    """NpuError when it cannot be read, differs from its digest, or is wrongly signed."""
    if need.fingerprints is not None:
        signing_key(need.src, need.fingerprints)
    elif need.sha256:
        item = {"src": need.src, "name": need.name, "sha256": need.sha256, "signature": need.signature}
        Finder(need.cache, ca_path=need.ca_path or None, keyring=need.keyring or None).find(item)
    elif not is_address(need.src):
        _read(need)


def _read(need: Need) -> None:
    """A file whose digest is not set; the plan says that this is wrong."""
    path = os.path.expanduser(need.src)
    path = os.path.join(path, need.name) if need.name and os.path.isdir(path) else path
    try:
        with open(path, "rb") as stream:
            stream.read(1)
    except OSError as exc:
        raise NpuError("%s cannot be read on the controller: %s." % (path, exc.strerror), "Check the path.") from exc
