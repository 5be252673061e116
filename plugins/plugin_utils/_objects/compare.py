# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a wanted object with the live one: whether they differ, where, and how that is shown. Pure."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import typing as t
from decimal import ROUND_UP, Decimal

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import masked

from .parts import LABEL_PREFIX, NPU_KEY

Data = dict[str, t.Any]
HASH = LABEL_PREFIX + "applied-hash"
# The pod template of a DaemonSet that was ready, and the images that were not.
GOOD, REFUSED = NPU_KEY + ".good-template", NPU_KEY + ".refused-images"
# What kubectl applied and what was good are the object once more, so that they would show what is masked elsewhere.
_OWN_ANNOTATIONS = (
    HASH,
    GOOD,
    REFUSED,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.daemonset.template.generation",
)
# (key, key below it): the values below are amounts, which a server writes in its own way.
_AMOUNTS = {
    ("resources", "limits"),
    ("resources", "requests"),
    ("emptyDir", "sizeLimit"),
    ("resourceFieldRef", "divisor"),
}
_AMOUNT = re.compile(r"\A([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]?)|([KMGTPE])i)\Z")
_TENS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# What a server leaves out of an object.
_LEFT_OUT: tuple[t.Any, ...] = ("", [], {})
# Fields that are false when they are not there. Of others, such as allowPrivilegeEscalation, nothing means true.
_FALSE_LEFT_OUT = frozenset(
    ("hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty", "publishNotReadyAddresses")
)
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


def with_hash(item: Data) -> Data:
    """The object with a digest of itself as annotation, which tells of fields that are no longer wanted.

    The content of a Secret is left out of it.
    """
    told = {key: value for key, value in item.items() if item["kind"] != "Secret" or key not in ("data", "stringData")}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
    meta = dict(item["metadata"], annotations={**item["metadata"].get("annotations", {}), HASH: digest})
    return dict(item, metadata=meta)


def amount(value: t.Any) -> Decimal | None:
    """What a quantity of Kubernetes stands for, in its smallest unit of a billionth; None for what is none."""
    found = _AMOUNT.match(str(value)) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    if found is None:
        return None
    number, exponent, tens, binary = found.groups()
    power = 1024 ** ("KMGTPE".index(binary) + 1) if binary else 1
    exact = Decimal(number).scaleb(int(exponent or _TENS[tens or ""])) * power
    return exact.quantize(Decimal("1e-9"), ROUND_UP) if exact < 10**18 else exact


def _same(wanted: t.Any, live: t.Any, amounts: bool) -> bool:
    """Whether two values that hold no others are the same for the API server."""
    if wanted == live:
        return True
    return amounts and amount(wanted) is not None and amount(wanted) == amount(live)


def _is_left_out(value: t.Any) -> bool:
    """True for nothing at all; 0 is something."""
    return value is None or not isinstance(value, (int, float)) and value in _LEFT_OUT


def within(wanted: t.Any, live: t.Any, name: str = "", amounts: bool = False) -> bool:
    """True when every value of `wanted` is in `live`.

    Lists have the same length, and live may hold more keys (defaults). `name` is the key of the value, `amounts` says
    that it is below resources.
    """
    if wanted == live:
        # Most parts are the same; this is found without a look at each of them.
        return True
    if live is None and (name in _FALSE_LEFT_OUT if wanted is False else _is_left_out(wanted)):
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            within(value, live.get(key), key, amounts or (name, key) in _AMOUNTS) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(wanted) == len(live)
            and all(within(one, other) for one, other in zip(wanted, live))
        )
    return _same(wanted, live, amounts)


def visible(item: Data | None) -> Data:
    """What a person compares: no status, nothing that the server counts, no content of a Secret."""
    if not item:
        return {}
    result = {key: value for key, value in item.items() if key != "status"}
    meta = {key: value for key, value in (item.get("metadata") or {}).items() if key not in _SERVER_FIELDS}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _OWN_ANNOTATIONS}
    meta.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    result["metadata"] = meta
    result = t.cast(Data, masked(result))
    if item.get("kind") == "Secret":
        result["data"] = {key: "(hidden)" for key in item.get("data") or {}}
    return result


class FieldChange(t.TypedDict):
    """One field that differs; None stands for a field that does not exist."""

    path: str
    before: t.Any
    after: t.Any


def field_changes(before: t.Any, after: t.Any, path: str = "") -> list[FieldChange]:
    """Every field that differs; items of a list that have names are compared by their names."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            one
            for key in sorted(set(before) | set(after))
            for one in field_changes(before.get(key), after.get(key), ("%s.%s" % (path, key)) if path else str(key))
        ]
    if isinstance(before, list) and isinstance(after, list):
        left, right = _by_name(before), _by_name(after)
        if left is not None and right is not None:
            names = [*left, *(name for name in right if name not in left)]
            return [
                one for name in names for one in field_changes(left.get(name), right.get(name), "%s[%s]" % (path, name))
            ]
    return [] if before == after else [{"path": path, "before": before, "after": after}]


def _by_name(items: t.Sequence[t.Any]) -> dict[str, t.Any] | None:
    """The items by their names, or None when not every one has a name of its own."""
    named = {item["name"]: item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)}
    return named if len(named) == len(items) else None


def missing_paths(
    wanted: t.Any, live: t.Any, path: tuple[str | int, ...] = (), amounts: bool = False
) -> list[tuple[str | int, ...]]:
    """Where `live`, the answer to an apply of `wanted`, is not what was sent.

    A path ends at a key, so that the place can be left out; lists of another length differ as a whole.
    """
    if isinstance(wanted, dict) and isinstance(live, dict):
        above = path[-1] if path else ""
        return [
            one
            for key, value in wanted.items()
            for one in missing_paths(value, live.get(key), (*path, key), amounts or (above, key) in _AMOUNTS)
        ]
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        found = [one for at, value in enumerate(wanted) for one in missing_paths(value, live[at], (*path, at))]
        return [path] if any(len(one) == len(path) + 1 for one in found) else found
    return [] if within(wanted, live, str(path[-1]) if path else "", amounts) else [path]


def value_at(item: t.Any, path: t.Iterable[str | int]) -> t.Any:
    """The value at a place of an object; None where there is none."""
    for step in path:
        if isinstance(item, dict):
            item = item.get(step)
        elif isinstance(item, list) and isinstance(step, int) and step < len(item):
            item = item[step]
        else:
            return None
    return item


def unlike(wanted: t.Any, live: t.Any, path: str = "", name: str = "", amounts: bool = False) -> list[FieldChange]:
    """Each field of `wanted` that is another one in `live`, for people: parts of lists by their names.

    Of other lists `before` holds what is missing, and `after` what was added.
    """
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [
            one
            for key, value in wanted.items()
            for one in unlike(
                value, live.get(key), "%s.%s" % (path, key) if path else key, key, amounts or (name, key) in _AMOUNTS
            )
        ]
    if within(wanted, live, name, amounts):
        return []
    if isinstance(wanted, list) and isinstance(live, list):
        left, right = _by_name(wanted), _by_name(live)
        if left is not None and right is not None:
            names = [*left, *(name for name in right if name not in left)]
            return [
                one
                for name in names
                for one in (
                    unlike(left[name], right[name], "%s[%s]" % (path, name))
                    if name in left and name in right
                    else [FieldChange(path="%s[%s]" % (path, name), before=left.get(name), after=right.get(name))]
                )
            ]
        lost = [one for one in wanted if not any(within(one, other) for other in live)]
        more = [other for other in live if not any(within(one, other) for one in wanted)]
        if lost or more:
            return [{"path": path, "before": lost or None, "after": more or None}]
    return [{"path": path, "before": wanted, "after": live}]


def without_paths(item: Data, paths: t.Iterable[t.Sequence[str | int]]) -> Data:
    """A copy of an object without some of its fields."""
    result = copy.deepcopy(item)
    for path in paths:
        place: t.Any = result
        for step in path[:-1]:
            known = (isinstance(place, dict) and step in place) or (
                isinstance(place, list) and isinstance(step, int) and step < len(place)
            )
            place = place[step] if known else {}
        if isinstance(place, dict):
            place.pop(path[-1], None)
    return result


def reduce_diff(before: t.Any, after: t.Any) -> tuple[t.Any, t.Any]:
    """Only what differs, on both sides."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    left: Data = {}
    right: Data = {}
    for key in sorted(set(before) | set(after)):
        if before.get(key) == after.get(key):
            continue
        if key in before and key in after:
            left[key], right[key] = reduce_diff(before[key], after[key])
        elif key in before:
            left[key] = before[key]
        else:
            right[key] = after[key]
    return left, right


def _then(first: t.Any, left: t.Any, right: t.Any) -> t.Any:
    """`first` after a change of it from `left` to `right`, all of them reduced."""
    if not (isinstance(first, dict) and isinstance(left, dict) and isinstance(right, dict)):
        return right
    made = {key: value for key, value in first.items() if key not in left or key in right}
    made.update((key, _then(first.get(key), left.get(key), value)) for key, value in right.items())
    return made


def reduce_both(one: tuple[t.Any, t.Any], other: tuple[t.Any, t.Any]) -> tuple[t.Any, t.Any]:
    """What differs after two changes of one object, from what differed by each."""
    (before, between), (since, after) = one, other
    return reduce_diff(_then(since, between, before), _then(between, since, after))


def object_label(item: Data) -> str:
    meta = item["metadata"]
    return "%s %s" % (item["kind"], "/".join(part for part in (meta.get("namespace"), meta["name"]) if part))


class Change(t.TypedDict):
    """What happened to one object, or would happen. `before` and `after` hold only the fields that differ."""

    component: str
    object: str
    action: str
    before: Data
    after: Data
    error: str


def change(item: Data, action: str, before: Data | None = None, after: Data | None = None, show: bool = True) -> Change:
    """The record of an act on an object that belongs to no component.

    Without `show` the fields are not compared, which costs time.
    """
    left: Data = {}
    right: Data = {}
    if show:
        left, right = reduce_diff(visible(before), visible(after))
        if before and after and item["kind"] == "Secret" and before.get("data") != after.get("data"):
            left["data"], right["data"] = "(hidden)", "(hidden, and different)"
    return {
        "component": "",
        "object": object_label(item),
        "action": action,
        "before": left,
        "after": right,
        "error": "",
    }


def finish(item: Data, live: Data | None, after: Data, created: bool, show: bool = True) -> Change:
    """The record of a server-side apply, from the object before and after it."""
    if created or live is None:
        return change(item, "created" if created else "changed", live, after, show)
    return change(item, "changed" if differs(live, after) else "unchanged", live, after, show)


def differs(live: Data, after: Data) -> bool:
    """Whether an object is another one, also where only what is hidden from people is different."""
    return _counted_off(live) != _counted_off(after)


def _counted_off(item: Data) -> Data:
    """An object without the server's fields and our digest; with the content of a Secret, so never to be shown."""
    meta = {key: value for key, value in (item.get("metadata") or {}).items() if key not in _SERVER_FIELDS}
    meta["annotations"] = {
        key: value for key, value in (meta.get("annotations") or {}).items() if key not in _OWN_ANNOTATIONS
    }
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": meta}
