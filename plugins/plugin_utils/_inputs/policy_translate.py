# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One document of a policy file to the inputs it sets, each with its place in the file."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .normalise import nearest
from .policy_keys import INSTANCES, LEFT_OUT, REFUSED, Path, Row
from .policy_read import CHART, DRIVER, Document

Values = list[t.Tuple[Path, t.Any]]
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
# What a chart writes for "nothing said". An empty list says something: it removes that of an earlier file.
_NOT_SAID: tuple[t.Any, ...] = (None, "", {})
# Components that run something of ours until an image is named.
_BY_SOURCE = ("validator", "feature_discovery", "vfio_manager")


@dataclasses.dataclass
class Translated:
    """Inputs without the role's prefix by path, their places, what was left out, and keys ignored as asked."""

    values: dict[Path, t.Any] = dataclasses.field(default_factory=dict)
    sources: dict[Path, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    ignored: set[str] = dataclasses.field(default_factory=set)


def translate(
    document: Document, rows: t.Mapping[Path, Row], ignore: t.Sequence[str] = (), instance: str = ""
) -> Translated:
    """What a document says. An object of the driver sets the driver, or the instance of that name.

    NpuError names file, key and the nearest right key.
    """
    result = Translated(notes=list(document.notes))
    reader = _Reader(document, rows, ignore, result)
    start: Path = ("driver",) if document.kind == DRIVER else ()
    reader.section(document.body, start, document.root.rstrip("."), instance)
    if document.kind == DRIVER:
        base: Path = ("driver_instances", instance) if instance else ("driver",)
        if base + ("enabled",) not in result.values:
            result.values[base + ("enabled",)] = True
            result.sources[base + ("enabled",)] = "%s: kind" % document.label
    for name in _BY_SOURCE:
        said = next(
            (
                result.sources[path]
                for path in result.values
                if path[:2] == (name, "image") and path[2] in ("repository", "tag", "digest")
            ),
            "",
        )
        if said:
            result.values[(name, "source")] = "image"
            result.sources[(name, "source")] = said
    return result


class _Reader:
    def __init__(
        self, document: Document, rows: t.Mapping[Path, Row], ignore: t.Sequence[str], result: Translated
    ) -> None:
        self._document, self._rows, self._ignore, self._result = document, rows, ignore, result

    def section(self, values: t.Mapping[str, t.Any], path: Path, shown: str, instance: str) -> None:
        """Read one mapping; `path` is its place in the table of keys, `shown` its place in the file."""
        for key, value in values.items():
            place, name = path + (key,), "%s.%s" % (shown, key) if shown else key
            if self._is_ignored(name):
                continue
            if place in LEFT_OUT:
                self._result.notes.append(
                    "%s: %s is left out: it configures the vendor's operator, which is not used."
                    % (self._document.label, name)
                )
            elif place in REFUSED:
                raise self._error(name, *REFUSED[place])
            elif place == INSTANCES and self._document.kind == CHART and not instance:
                for own, part in self._mapping(name, value).items():
                    self.section(self._mapping("%s.%s" % (name, own), part), ("driver",), "%s.%s" % (name, own), own)
            elif self._is_section(place) and (place not in self._rows or isinstance(value, t.Mapping)):
                self.section(self._mapping(name, value), place, name, instance)
            elif place in self._rows:
                self._leaf(self._rows[place], name, value, instance)
            else:
                raise self._unknown(key, path, name, shown)

    def _leaf(self, row: Row, name: str, value: t.Any, instance: str) -> None:
        if value in _NOT_SAID:
            return
        model = ("driver_instances", instance) + row.model[1:] if instance and row.model[0] == "driver" else row.model
        try:
            found = READERS[row.reader](model, value)
        except NpuError as exc:
            raise self._error(name, exc.message, exc.next_step) from exc
        for path, item in found:
            if path in self._result.values and self._result.values[path] != item:
                other = self._result.sources[path].rpartition(": ")[2]
                raise self._error(
                    name,
                    "and %s set the same and differ: %r and %r" % (other, item, self._result.values[path]),
                    "Remove one of them.",
                )
            self._result.values[path] = item
            self._result.sources[path] = "%s: %s" % (self._document.label, name)

    def _mapping(self, name: str, value: t.Any) -> t.Mapping[str, t.Any]:
        if value is None:
            return {}
        if not isinstance(value, t.Mapping):
            raise self._error(name, "must be a mapping, not %s" % type(value).__name__, "Write the keys below it.")
        return value

    def _is_section(self, place: Path) -> bool:
        return any(path[: len(place)] == place and len(path) > len(place) for path in self._rows)

    def _is_ignored(self, name: str) -> bool:
        names = (name, name[len(self._document.root) :] if name.startswith(self._document.root) else name)
        found = [item for item in self._ignore if item in names]
        self._result.ignored.update(found)
        return bool(found)

    def _unknown(self, key: str, path: Path, name: str, shown: str) -> NpuError:
        here = sorted(
            {known[len(path)] for known in self._rows if known[: len(path)] == path and len(known) > len(path)}
        )
        if path == INSTANCES[:1] and self._document.kind == CHART and shown == path[0]:
            here = sorted((*here, INSTANCES[1]))
        near = nearest(key, here)
        meant = [("%s.%s" % (shown, near) if shown else near)] if near else self._elsewhere(key, path)
        hint = "Did you mean %s? " % " or ".join(meant) if meant else ""
        return self._error(name, "is not known", "%sKnown here: %s." % (hint, ", ".join(here)))

    def _elsewhere(self, key: str, path: Path) -> list[str]:
        """Places in other sections, first those where the key is right as it is."""
        places = {known[:length] for known in self._rows for length in range(1, len(known) + 1)}
        same = [known for known in places if known[-1] == key and known[:-1] != path]
        if not same:
            by_name = {".".join(known): known for known in places}
            near = nearest(".".join(path + (key,)), by_name) or nearest(key, {known[-1] for known in places})
            same = [by_name[near]] if near in by_name else [known for known in places if known[-1] == near]
        root = "" if self._document.kind == DRIVER else self._document.root
        return [root + ".".join(known) for known in sorted(same, key=lambda known: (len(known), known))[:3]]

    def _error(self, name: str, what: str, remedy: str) -> NpuError:
        return NpuError("%s: %s %s." % (self._document.label, name, what), remedy)


def _plain(model: Path, value: t.Any) -> Values:
    return [(model, value)]


def _text(model: Path, value: t.Any) -> Values:
    if isinstance(value, (bool, int, float)):
        raise NpuError(
            "is the number %r, not text: YAML has already changed it (3.20 becomes 3.2)" % value,
            "Quote the intended text.",
        )
    if not isinstance(value, str):
        raise NpuError("must be text, not %s" % type(value).__name__, "Quote the value.")
    return [(model, value.strip())]


def _secrets(model: Path, value: t.Any) -> Values:
    if not isinstance(value, list):
        raise NpuError("must be a list, not %s" % type(value).__name__, "Write the names of pull secrets.")
    names = [item.get("name") if isinstance(item, t.Mapping) and set(item) == {"name"} else item for item in value]
    if not all(isinstance(name, str) and name for name in names):
        raise NpuError("holds something that is not a pull secret name", "Write names, or {name: ...}.")
    return [(model, names)]


def _affinity(model: Path, value: t.Any) -> Values:
    """A list of match expressions, or the Kubernetes object with its alternatives and preferences."""
    if isinstance(value, list):
        return [(model, value)]
    if not isinstance(value, t.Mapping):
        raise NpuError("must be a list or a mapping, not %s" % type(value).__name__, "Write match expressions.")
    unknown = sorted(set(value) - {REQUIRED, PREFERRED})
    if unknown:
        raise NpuError("has the unknown key %s" % unknown[0], "Use only: %s, %s." % (PREFERRED, REQUIRED))
    found: Values = []
    required = value.get(REQUIRED) or {}
    if not isinstance(required, t.Mapping) or set(required) - {"nodeSelectorTerms"}:
        raise NpuError(
            "has a %s that is not just nodeSelectorTerms" % REQUIRED, "Write nodeSelectorTerms: [...] there."
        )
    terms = required.get("nodeSelectorTerms") or []
    for term in terms:
        if not isinstance(term, t.Mapping) or set(term) != {"matchExpressions"}:
            raise NpuError("has a term that is not just matchExpressions", "Select by labels: matchExpressions: [...].")
        if not isinstance(term["matchExpressions"], list) or not term["matchExpressions"]:
            raise NpuError(
                "has a term without matchExpressions, which matches no node",
                "Write the expressions, or remove the term.",
            )
    if len(terms) == 1:
        found.append((model, terms[0]["matchExpressions"]))
    elif terms:
        found.append((model[:-1] + ("affinity_terms",), [{"expressions": term["matchExpressions"]} for term in terms]))
    if value.get(PREFERRED):
        found.append((model[:-1] + ("preferred_node_affinity",), value[PREFERRED]))
    return found


def _strategy(model: Path, value: t.Any) -> Values:
    return [(model, {"type": value} if isinstance(value, str) else value)]


def _switch(model: Path, value: t.Any) -> Values:
    if value not in (True, False, "auto", "yes", "no"):
        raise NpuError("is %r, which is neither true nor false" % value, "Set it to true or false.")
    return [(model, {True: "yes", False: "no"}.get(value, value))]


def _workload(model: Path, value: t.Any) -> Values:
    if value == "vm-vgpu":
        raise NpuError("is vm-vgpu: there is no such product", "Choose one of: container, vm-passthrough.")
    return _text(model, value)


READERS: t.Mapping[str, t.Callable[[Path, t.Any], Values]] = {
    "plain": _plain,
    "text": _text,
    "secrets": _secrets,
    "affinity": _affinity,
    "strategy": _strategy,
    "switch": _switch,
    "workload": _workload,
}
