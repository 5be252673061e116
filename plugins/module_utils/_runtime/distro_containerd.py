# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containerd of a Kubernetes distribution: k3s, rke2, k0s, microk8s.

Each writes its containerd configuration again at every start, so the generated file is only read, and the edit goes to
what it is made from: a drop-in directory it imports, or its template. The host's /etc/containerd is never looked at.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import replace
from .._base.regex import regex
from .._base.versions import release_numbers
from .._formats.toml import TomlError, loads
from .._host.proc import Process
from .._host.systemd import Unit
from .base import (
    BLOCK_BEGIN,
    BLOCK_END,
    CONTAINERD,
    Change,
    Daemon,
    Dialect,
    EditTarget,
    Refusal,
    Runtime,
    block_span,
    flag_values,
    note_process,
    note_unit,
    with_block,
)
from .containerd import late_name
from .containerd_config import ID_V2, ID_V3, MERGING_SINCE, ConfigFile, ConfigSet, Release
from .containerd_state import Missing, Reader, missing_keys, read_state, refuse_unreadable, schema_of, schema_one
from .distros import DISTROS, GENERATED, Distro, of_now, placed

BASE_TEMPLATE = regex(r"^\s*\{\{-?\s*template\s+\"base\"\s+\.\s*-?\}\}\s*$", re.MULTILINE)
K0S_MANAGED = regex(r"^# k0s_managed=true", re.MULTILINE)
K0S_DROPINS = "/etc/k0s/containerd.d"
# k0s 3412: before, drop-ins with a CRI table were joined as text, which gives that table twice.
K0S_MERGES_SINCE = (1, 27, 5)
# The first containerd that only later releases of k0s have.
K0S_SURELY_MERGES_WITH = (1, 7, 6)
MICROK8S_TEMPLATE = "/var/snap/microk8s/current/args/containerd-template.toml"
_ACTION = regex(r"\{\{.*?\}\}", re.DOTALL)


def made_from(generated: str, template: str) -> bool:
    """Whether a file was made from this Go template: the template's own text, our block aside, is in it in order."""
    start, stop = block_span(template)
    parts = [template[:start], template[stop:]] if start >= 0 else [template]
    at = 0
    for text in (text.strip() for part in parts for text in _ACTION.split(part)):
        found = generated.find(text, at)
        if found < 0:
            return False
        at = found + len(text)
    return True


_NAME = regex(r"\$\{(\w+)\}")


def placeholders(generated: str, template: str) -> dict[str, str] | None:
    """The value of each ${NAME} with which the template becomes the generated file; None when no values do that."""
    pattern, seen = "", set()
    for number, part in enumerate(_NAME.split(template.rstrip())):
        if number % 2 == 0:
            pattern += re.escape(part)
        else:
            pattern += "(?P=%s)" % part if part in seen else "(?P<%s>[^\"'\n]*)" % part
            seen.add(part)
    found = re.fullmatch(pattern, generated.rstrip())
    return found.groupdict() if found else None


def filled(template: str, values: t.Mapping[str, str]) -> str:
    """The template with a value for each ${NAME} that has one."""
    return _NAME.sub(lambda name: values.get(name.group(1), name.group(0)), template)


class DistroRuntime(Reader):
    """detect() finds and reads, propose() says what would have to change."""

    def detect(self) -> list[Runtime]:
        return [found for distro in DISTROS if not distro.plain for found in self._find(distro)]

    def _find(self, distro: Distro) -> list[Runtime]:
        """The containerd of a distribution, when that is here: its process knows best where things are."""
        context = self.context
        unit = context.distro_unit(distro, distro.units)
        process = self._process(distro, unit)
        argv = process.argv if process is not None else ()
        config = (flag_values(argv, "--config", "-c") or [""])[-1]
        data = config[: -len(GENERATED)] if config.endswith(GENERATED) else ""
        distro = placed(distro, data or context.distro_settings(distro).get("data-dir", ""))
        if config.startswith("/"):
            distro = replace(distro, config=of_now(context.host, config))
        if process is not None and (unit is None or not unit.active):
            unit = context.unit_of(process) or unit
        here = unit is not None or process is not None or context.host.exists(distro.config)
        if here or (context.is_socket(distro.socket) and context.host.exists(distro.mark)):
            return [self._read(distro, unit, process)]
        return []

    def _process(self, distro: Distro, unit: Unit | None) -> Process | None:
        """Its running containerd. Where the host's own kubelet runs, a scan for one is spared."""
        context = self.context
        if context.settled and unit is None:
            return None
        own = context.processes.named("containerd")
        return next((process for process in own if context.distro_of(process) == distro), None)

    def _read(self, distro: Distro, unit: Unit | None, process: Process | None) -> Runtime:
        context = self.context
        daemon = Daemon(unit, process, process.argv if process is not None else ())
        found = Runtime(CONTAINERD, distro.name, binary=context.find_binary(daemon, *distro.binaries))
        note_unit(found, unit)
        found.main_config = distro.config
        found.socket = (flag_values(daemon.argv, "--address", "-a") or [distro.socket])[-1]
        read_state(context, self, found, False, process, found.socket)
        found.socket_exists = context.is_socket(found.socket)
        note_process(context, found, process, self._sources(distro, found))
        return found

    def _sources(self, distro: Distro, found: Runtime) -> list[str]:
        """What the generated file is made of.

        The file itself is written while the distribution starts, so its age proves nothing.
        """
        directory = posixpath.dirname(distro.config)
        imported = [path for path in found.config_files if path != distro.config]
        if distro.name == "microk8s":
            return imported + [MICROK8S_TEMPLATE]
        if distro.name == "k0s":
            managed = K0S_MANAGED.search(self.context.host.read_text(distro.config).get(""))
            return self.context.host.glob(K0S_DROPINS, "*.toml") + ([] if managed else [distro.config])
        return imported + [posixpath.join(directory, name) for name in ("config.toml.tmpl", "config-v3.toml.tmpl")]

    def propose(self, runtime: Runtime) -> None:
        files, state = self.read_of(runtime)
        release = release_numbers(runtime.version) or (
            MERGING_SINCE if any(item.version >= 3 for item in files.files) else ()
        )
        if not files.files and not files.error:
            runtime.refusal = Refusal(
                "%s does not exist: %s has not started on this host yet" % (runtime.main_config, runtime.flavor),
                "start %s, then run again" % runtime.flavor,
            )
            return
        if refuse_unreadable(self.context, runtime, files, state):
            return
        schema = schema_of(files, release)
        missing = missing_keys(state, self.context.options.spec_dir)
        aim = {"k0s": self._aim_k0s, "microk8s": self._aim_microk8s}.get(runtime.flavor, self._aim_rancher)
        aim(runtime, files, release, schema, missing)
        if runtime.refusal is not None:
            runtime.changes = []

    def _say(self, runtime: Runtime, schema: int | None, missing: t.Sequence[Missing], why_here: str) -> None:
        table = ID_V3 if schema == 3 else ID_V2
        for key, value, why in missing:
            runtime.changes.append(
                Change(
                    runtime.edit_target.path, '[plugins."%s"] %s = %s' % (table, key, value), "%s; %s" % (why, why_here)
                )
            )

    def _aim_rancher(
        self, runtime: Runtime, files: ConfigSet, release: Release, schema: int | None, missing: t.Sequence[Missing]
    ) -> None:
        """A drop-in where containerd merges them and the generated file imports them, else a block in the template."""
        directory = posixpath.dirname(files.root)
        third = schema is not None and schema >= 3
        dropins = posixpath.join(directory, "config-v3.toml.d" if third else "config.toml.d")
        imported = any(
            posixpath.normpath(pattern) == dropins + "/*.toml"
            for pattern in (files.root_file.imports if files.root_file else [])
        )
        if release >= MERGING_SINCE and imported:
            name = "%s.toml" % self.context.options.file_stem
            owner = _last_owner(files.files, missing, dropins, name)
            first = owner is None or posixpath.basename(owner.path) < "10-" + name
            path = "10-" + name if first else late_name(owner, dropins, name)
            runtime.edit_target = EditTarget(posixpath.join(dropins, path), "dropin")
            runtime.dialect = Dialect(3 if third else 2)
            self._say(runtime, runtime.dialect.schema, missing, "%s imports this directory" % files.root)
            return
        template = posixpath.join(directory, "config-v3.toml.tmpl" if third else "config.toml.tmpl")
        runtime.edit_target = EditTarget(template, "template")
        runtime.dialect = Dialect(3 if third else 2, "template")
        found = self.context.host.read_text(template)
        if found.state not in ("value", "absent"):
            runtime.refusal = Refusal("%s cannot be read: %s" % (template, found.detail), "make it readable")
        elif found.ok and found.value.strip() and not BASE_TEMPLATE.search(found.value):
            why = '%s is a whole configuration of its own, not built on {{ template "base" . }}' % template
            runtime.warnings.append(why)
            if missing:
                runtime.refusal = Refusal(why, "set enable_cdi in it by hand, or make it start from the base template")
        elif missing and not self._has_room(files.root, ID_V3 if third else ID_V2):
            runtime.refusal = Refusal(
                "%s writes the CRI table itself, and its template can only add tables after that: containerd does not "
                "start with one table twice" % runtime.flavor,
                "upgrade %s to a release with containerd 2, or write %s as a whole configuration of your own with "
                "enable_cdi = true in its CRI table" % (runtime.flavor, template),
            )
        elif missing and not self._is_known(files.root, template, found.get("")):
            _not_yet_made(runtime, template, files.root)
        else:
            self._say(
                runtime, runtime.dialect.schema, missing, "%s is made from this template at every start" % files.root
            )

    def _is_known(self, generated: str, template: str, text: str) -> bool:
        """True when the generated file shows what the template becomes, or the template has our block already."""
        if not self._is_newer(template, generated) or block_span(text)[0] >= 0:
            return True
        return made_from(self.context.host.read_text(generated).get(""), text)

    def _is_newer(self, template: str, generated: str) -> bool:
        """True when a template was written after what is made from it; a second is the same time."""
        found = [self.context.host.stat(path) for path in (template, generated)]
        times = [max(item.value.mtime, item.value.ctime) for item in found if item.ok]
        return len(times) == 2 and times[0] > times[1] + 1

    def _has_room(self, path: str, table: str) -> bool:
        """True when the generated file, our block left out, can be followed by this table of plugins."""
        block = '%s\n[plugins."%s"]\n%s' % (BLOCK_BEGIN, table, BLOCK_END)
        try:
            loads(with_block(self.context.host.read_text(path).get(""), block))
        except TomlError:
            return False
        return True

    def _aim_k0s(
        self, runtime: Runtime, files: ConfigSet, release: Release, schema: int | None, missing: t.Sequence[Missing]
    ) -> None:
        """k0s collects the CRI tables of its drop-in directory itself, so a drop-in is right on containerd 1.x too."""
        runtime.dialect = Dialect(3 if release >= MERGING_SINCE and (schema or 3) >= 3 else 2)
        if K0S_MANAGED.search(self.context.host.read_text(files.root).get("")):
            name = "%s.toml" % self.context.options.file_stem
            owner = _last_owner(self._k0s_dropins(), missing, K0S_DROPINS, name)
            runtime.edit_target = EditTarget(posixpath.join(K0S_DROPINS, late_name(owner, K0S_DROPINS, name)), "dropin")
            if missing:
                self._mind_old_k0s(runtime, release)
            self._say(runtime, runtime.dialect.schema, missing, "k0s builds its configuration from this directory")
            return
        if missing and schema == 1:
            schema_one(runtime, files, release)
            return
        owner = files.last_with(ConfigFile.has_cri_table) if release < MERGING_SINCE else None
        path = owner.path if owner is not None else files.root
        runtime.edit_target = EditTarget(path, "main")
        if missing and path.startswith("/run/"):
            runtime.refusal = Refusal(
                "%s owns the CRI table and is written at every start" % path, "set enable_cdi where %s is made" % path
            )
            return
        self._say(runtime, runtime.dialect.schema, missing, "%s is not managed by k0s" % files.root)

    def _k0s_dropins(self) -> list[ConfigFile]:
        found = []
        for path in self.context.host.glob(K0S_DROPINS, "*.toml"):
            try:
                data = loads(self.context.host.read_text(path).get(""))
            except TomlError:
                continue
            found.append(ConfigFile(path, data, 0))
        return found

    def _mind_old_k0s(self, runtime: Runtime, release: Release) -> None:
        """Refuse a k0s that would make a file from our drop-in with which containerd does not start."""
        if release >= K0S_SURELY_MERGES_WITH:
            return
        unit = self.context.units.get(runtime.unit or "")
        said = self.context.said([unit.argv[0], "version"]) if unit is not None and unit.argv else None
        version = release_numbers((said or "").strip().lstrip("v"))
        if version < K0S_MERGES_SINCE:
            runtime.refusal = Refusal(
                "k0s before 1.27.5 (this is %s) joins drop-ins as text, which gives the CRI table twice, and "
                "containerd does not start" % ((said or "").strip() or "of unknown version"),
                "upgrade k0s to 1.27.5 or newer",
            )

    def _aim_microk8s(
        self, runtime: Runtime, files: ConfigSet, release: Release, schema: int | None, missing: t.Sequence[Missing]
    ) -> None:
        """The template is TOML with ${NAME} inside its strings, and is edited as TOML."""
        runtime.edit_target = EditTarget(MICROK8S_TEMPLATE, "template")
        try:
            text = self.context.host.read_text(MICROK8S_TEMPLATE)
            data = loads(text.get(""))
            version = data.get("version")
        except TomlError as exc:
            runtime.refusal = Refusal(
                "%s, line %d, column %d: %s" % (MICROK8S_TEMPLATE, exc.line, exc.column, exc.message),
                "repair the template; it cannot be edited safely",
            )
            return
        if not text.ok:
            runtime.refusal = Refusal(
                "%s cannot be read: %s" % (MICROK8S_TEMPLATE, text.detail), "repair the microk8s installation"
            )
            return
        runtime.dialect = Dialect(version if isinstance(version, int) else schema)
        generated = self.context.host.read_text(files.root).get("")
        newer = self._is_newer(MICROK8S_TEMPLATE, files.root)
        if missing and newer and placeholders(generated, text.value) is None and not _settled(data, missing):
            _not_yet_made(runtime, MICROK8S_TEMPLATE, files.root)
            return
        self._say(runtime, runtime.dialect.schema, missing, "%s is made from this template at every start" % files.root)


def _last_owner(
    files: t.Iterable[ConfigFile], missing: t.Sequence[Missing], directory: str, name: str
) -> ConfigFile | None:
    """The last file of the directory, not ours, that sets a key that is missing."""
    found = [
        item
        for item in files
        if posixpath.dirname(item.path) == directory
        and not item.path.endswith("-" + name)
        and any(item.sets(key) for key, value, why in missing)
    ]
    return found[-1] if found else None


def _settled(data: t.Mapping[str, t.Any], missing: t.Sequence[Missing]) -> bool:
    """True when the template has what is missing already, and only a restart is left."""
    item = ConfigFile("", data, 0)
    tables = [item.plugins[name] for name in (ID_V2, ID_V3) if isinstance(item.plugins.get(name), dict)]
    return all(any(key in table and table[key] is not False for table in tables) for key, value, why in missing)


def _not_yet_made(runtime: Runtime, template: str, generated: str) -> None:
    runtime.refusal = Refusal(
        "%s is not what %s was made from, so what a change of it becomes is not known" % (template, generated),
        "restart %s, so that the file is made again, then run again" % (runtime.restart_unit or runtime.flavor),
    )
