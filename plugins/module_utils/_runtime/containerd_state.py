# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effective CDI state of one containerd of any distribution, and which keys are missing."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING
from .._base.versions import release_numbers
from .._cdi.options import SPEC_DIRS
from .._formats.toml import TomlError
from .._host.proc import Process
from .base import (
    ELEVATE,
    OFF,
    ON,
    ON_BY_DEFAULT,
    SYSTEM,
    UNKNOWN,
    UNSUPPORTED,
    Cdi,
    Context,
    EditTarget,
    Refusal,
    Runtime,
    has_dir,
    version_in,
    with_dirs,
)
from .containerd_config import CDI_SINCE, MERGING_SINCE, ConfigSet, Effective, Release, effective, from_dump, load_set
from .live import containerd_version

PACKAGES = ("containerd.io", "containerd")
UPGRADE = "upgrade containerd to 1.7 or newer"
REPAIR = "repair the file; containerd does not start with it"

Missing = t.Tuple[str, str, str]


class Reader:
    """What a runtime class remembers between detect() and propose(), by the root file of the configuration."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.sets: dict[str, ConfigSet] = {}
        self.states: dict[str, Effective] = {}

    def read_of(self, runtime: Runtime) -> tuple[ConfigSet, Effective]:
        return self.sets[runtime.main_config or ""], self.states[runtime.main_config or ""]


def schema_of(files: ConfigSet, release: Release) -> int | None:
    """Schema of the set: on 1.x that of the last file that declares one, on 2.x that of the root file, or None."""
    if release >= MERGING_SINCE:
        return files.root_file.schema if files.root_file is not None else None
    said = [item.version for item in files.files if item.version]
    if said:
        return said[-1]
    return 1 if any(item.plugins for item in files.files) else None


def _version(context: Context, binary: str, process: Process | None, socket: str) -> str | None:
    """The version of the program: what its process says, where that runs this very file, else what the program does.

    To start it costs more than the rest of the look at it.
    """
    if process is not None and context.host.runs_commands and context.processes.runs(process.pid, binary):
        where = context.host.resolve(socket)
        said = containerd_version(context.host.real(where.value), process.pid) if where.ok else None
        if version_in(said):
            return version_in(said)
    return version_in(context.said([binary, "--version"]))


def read_state(
    context: Context, reader: Reader, found: Runtime, named: bool, process: Process | None, socket: str
) -> None:
    """Fill version, configuration files, CDI state. `process` listens at `socket`, as far as that is known.

    The program's own loader is the judge, where it can run, of what is not as wanted or not read. An edit is judged by
    it in any case.
    """
    path = found.main_config or ""
    if found.binary:
        found.version = _version(context, found.binary, process, socket)
    found.version = found.version or (context.packaged(*PACKAGES) if found.flavor == SYSTEM else None)
    release = release_numbers(found.version)
    files = load_set(context.host, path, release, named)
    reader.sets[path] = files
    found.config_files = [item.path for item in files.files]
    if not release and any(item.version >= 3 for item in files.files):
        release = MERGING_SINCE
        found.warnings.append("the release is not known; version 3 files mean containerd 2.0 or newer")
    if not release:
        found.cdi = Cdi(UNKNOWN, (), "the version of containerd is not known")
        reader.states[path] = Effective(None, False, (), None, files.error)
        if files.error:
            context.problem(files.error_code, ERROR, files.error, ELEVATE if files.denied else REPAIR)
        return
    if release < CDI_SINCE:
        found.cdi = Cdi(UNSUPPORTED, (), "containerd %s" % found.version)
        reader.states[path] = Effective(False, False, (), None)
        return
    state, source = effective(files, release), "own reading of %d files" % len(files.files)
    # What is as wanted needs no other judge: each observation would start a program for it.
    differs = state.error or missing_keys(state, context.options.spec_dir) or state.cri_enabled is False
    if (files.files and differs) or files.error_code == "containerd_config_invalid":
        state, source = _judged(context, found, path, release, state, source)
    reader.states[path] = state
    found.cri_enabled = state.cri_enabled
    if state.error:
        code = files.error_code or "containerd_config_invalid"
        context.problem(code, ERROR, state.error, ELEVATE if files.denied else REPAIR)
        found.cdi = Cdi(UNKNOWN, (), source)
    elif state.enabled is None:
        found.cdi = Cdi(OFF, (), "the CRI plugin is disabled")
    elif not state.enabled or not state.spec_dirs:
        found.cdi = Cdi(OFF, state.spec_dirs, source)
    else:
        found.cdi = Cdi(ON if state.explicit or release < MERGING_SINCE else ON_BY_DEFAULT, state.spec_dirs, source)


def _judged(
    context: Context, found: Runtime, path: str, release: Release, own: Effective, source: str
) -> tuple[Effective, str]:
    if not found.binary:
        return own, source
    done = context.host.run([found.binary, "--config", path, "config", "dump"], context.options.timeout)
    if not done.ok:
        return own, source
    if done.value.rc != 0:
        lines = [line for line in done.value.err.splitlines() if line.strip()] or ["exit code %d" % done.value.rc]
        return Effective(
            None, False, (), None, own.error or "%s: %s" % (path, lines[-1].strip())
        ), "containerd config dump"
    try:
        state = from_dump(done.value.out, release, own)
    except TomlError as exc:
        found.warnings.append("the answer of containerd config dump cannot be read: %s" % exc)
        return own, source
    if own.error and release >= MERGING_SINCE:
        return own, source
    if own.error:
        found.warnings.append("containerd reads what a strict TOML reader refuses: %s" % own.error)
    return state, "containerd config dump"


def refuse_unreadable(context: Context, runtime: Runtime, files: ConfigSet, state: Effective) -> bool:
    """Nothing is written while the present state is unknown."""
    if runtime.cdi.state == UNSUPPORTED:
        detail = "containerd %s has no CDI and ignores its settings without a warning" % runtime.version
        context.problem("containerd_no_cdi", WARNING, detail, UPGRADE)
        runtime.refusal = Refusal(detail, UPGRADE)
    elif state.error:
        runtime.refusal = Refusal(state.error, ELEVATE if files.denied else REPAIR)
    elif files.error and (missing_keys(state, context.options.spec_dir) or state.cri_enabled is False):
        runtime.refusal = Refusal(
            "%s; containerd %s reads it all the same, but it cannot be edited safely" % (files.error, runtime.version),
            ELEVATE if files.denied else "make it valid TOML, then run again",
        )
    elif runtime.cdi.state == UNKNOWN:
        runtime.refusal = Refusal(
            "the version of this containerd could not be detected",
            "make %s answer --version" % (runtime.binary or "containerd"),
        )
    return runtime.refusal is not None


def schema_one(runtime: Runtime, files: ConfigSet, release: Release) -> None:
    runtime.edit_target = EditTarget()
    runtime.refusal = Refusal(
        "%s is in config schema 1; migrate first" % files.root,
        "migrate it to version %d (containerd config migrate does it on 2.x), restart containerd, then run again"
        % (3 if release >= MERGING_SINCE else 2),
    )


def missing_keys(state: Effective, spec_dir: str) -> list[Missing]:
    """(key, value as TOML, why) of what has to be set."""
    found = []
    if not state.enabled:
        found.append(("enable_cdi", "true", "CDI is off"))
    # A CRI plugin that is switched off shows no directories; the defaults hold once it is on.
    if not has_dir(state.spec_dirs, spec_dir) and (state.enabled is not None or not has_dir(SPEC_DIRS, spec_dir)):
        value = "[%s]" % ", ".join('"%s"' % directory for directory in with_dirs(state.spec_dirs, spec_dir))
        found.append(("cdi_spec_dirs", value, "%s is not among the directories that are read" % spec_dir))
    return found
