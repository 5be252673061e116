# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of our roles as their argument_specs state them: the one list of names, types and defaults."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


def role_inputs(roles: t.Iterable[str]) -> dict[str, t.Any]:
    """Options of the `main` entry of each role, merged: {variable: spec}."""
    merged: dict[str, t.Any] = {}
    for role in roles:
        text = (ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
        merged.update(yaml.safe_load(text)["argument_specs"]["main"]["options"])
    return merged
