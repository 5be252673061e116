# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of the cluster's components that belong together, by the releases of the SDK. The table is data."""

from __future__ import annotations

import functools
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import (
    compare,
    release_numbers,
    same_release,
)

from .._objects.names import OPERANDS, role
from .normalise import suggestion
from .roles import COLLECTION, Loader

Inputs = dict[str, t.Any]
# Where the image of a component is, when it is not in the input of its own name.
_PLACES = {"driver_manager": ("driver", "manager", "image")}


class Release(t.TypedDict):
    """One release: its drivers, and {component: version} without the form of the tag."""

    sdk: str
    drivers: list[str]
    versions: dict[str, str]


class Published(t.TypedDict):
    """One image: its repository, the form of its tag with `{version}`, and the digests that are known of it."""

    repository: str
    tag: str
    digests: dict[str, str]


class WrongPair(t.TypedDict):
    """From the driver and from the version of the component on, something changed that both must have."""

    component: str
    driver: str
    version: str
    effect: str


class Table(t.NamedTuple):
    images: dict[str, Published]
    releases: list[Release]
    wrong_pairs: list[WrongPair]


@functools.lru_cache(maxsize=None)
def table() -> Table:
    """The data of the role, read once a process; newest release first."""
    text = (COLLECTION / "roles" / role("operands") / "vars" / "main.yml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=Loader)
    start = "__" + OPERANDS
    return Table(data[start + "images"], data[start + "releases"], data[start + "wrong_pairs"])


def fill(inputs: Inputs) -> None:
    """Give each image without tag and digest those of the release that is named, in place.

    Without one, the device plugin gets those of the newest release; it is the only component that is enabled by
    itself. NpuError when the release is not in the table.
    """
    release = _named(inputs["sdk"])
    for component, version in (release or table().releases[0])["versions"].items():
        if release or component == "device_plugin":
            for image in _images(inputs, component):
                if not image["tag"] and not image["digest"]:
                    published = table().images[component]
                    image["tag"] = published["tag"].format(version=version)
                    image["digest"] = published["digests"].get(version, "")


def judge(inputs: Inputs) -> list[str]:
    """Notes on versions that are not of one release. NpuError for a pair that answers wrongly."""
    judge_pairs(inputs, _drivers(inputs))
    release = _named(inputs["sdk"])
    notes = []
    for component, wanted in release["versions"].items() if release else ():
        for version in _versions(inputs, component):
            if not same_release(version, wanted):
                notes.append(
                    f"{OPERANDS}{component} has version {version}, and SDK {inputs['sdk']} has {wanted}. "
                    f"Next: leave out its tag, or correct {OPERANDS}sdk."
                )
    return notes


def judge_pairs(inputs: Inputs, drivers: t.Iterable[str]) -> None:
    """NpuError when a component would answer wrongly with one of the drivers; a version that is unknown is passed."""
    for pair in table().wrong_pairs:
        component = pair["component"]
        for version in _versions(inputs, component):
            for driver in filter(_is_version, drivers):
                if _since(driver, pair["driver"]) != _since(version, pair["version"]):
                    raise NpuError(
                        f"{OPERANDS}{component} has version {version}, and the driver {driver}: {pair['effect']}.",
                        f"Set its tag to one of {_fitting(component, driver)}.",
                    )


def wrong_pair(component: str, version: str, driver: str) -> str:
    """What is wrong when this version of a component runs beside a driver; empty where that is fine or not known."""
    pairs = [pair for pair in table().wrong_pairs if pair["component"] == component]
    if not (_is_version(version) and _is_version(driver)):
        return ""
    plain = version.removeprefix("v")
    differ = (one for one in pairs if _since(driver, one["driver"]) != _since(plain, one["version"]))
    return next((str(one["effect"]) for one in differ), "")


def _named(sdk: str) -> Release | None:
    if not sdk:
        return None
    for release in table().releases:
        if same_release(release["sdk"], sdk):
            return release
    known = [release["sdk"] for release in table().releases]
    raise NpuError(
        f"{OPERANDS}sdk is {sdk}, and the versions of its components are not known.",
        f"{suggestion(sdk, known)} Or leave it empty, and set the tag of each image.",
    )


def _images(inputs: Inputs, component: str) -> list[t.Any]:
    """The images that a component uses, when it is wanted."""
    place = _PLACES.get(component, (component, "image"))
    owners = [inputs[place[0]]] + (inputs["driver_instances"] if place[0] == "driver" else [])
    return [
        functools.reduce(lambda item, key: item[key], place[1:], own)
        for own in owners
        if own["enabled"] and own.get("source", "image") == "image"
    ]


def _versions(inputs: Inputs, component: str) -> list[str]:
    """The versions that its tags name."""
    return [image["tag"].removeprefix("v") for image in _images(inputs, component) if _is_version(image["tag"])]


def _drivers(inputs: Inputs) -> list[str]:
    """The versions of drivers that the inputs of the cluster name: of their containers, of the daemon, of the SDK."""
    release = _named(inputs["sdk"])
    named = {*_versions(inputs, "driver"), *_versions(inputs, "smd")}
    return sorted(named | {*(release["drivers"] if release else ())})


def _is_version(tag: str) -> bool:
    """True for three numbers at least: `1` or `latest` says nothing about a release."""
    return len(release_numbers(tag.removeprefix("v"))) >= 3


def _since(version: str, change: str) -> bool:
    return compare(release_numbers(version), release_numbers(change)) >= 0


def _fitting(component: str, driver: str) -> str:
    """Its versions that the table has with the driver, else with any on the same side of the change."""
    pair = next(pair for pair in table().wrong_pairs if pair["component"] == component)
    side = _since(driver, pair["driver"])
    exact = [row for row in table().releases if any(same_release(driver, own) for own in row["drivers"])]
    near = [row for row in table().releases if any(_since(own, pair["driver"]) == side for own in row["drivers"])]
    return ", ".join(dict.fromkeys(row["versions"][component] for row in exact or near))
