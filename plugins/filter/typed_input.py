# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter typed_input: an input with its type, in whatever form it was given."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import typed_input


def to_typed_input(value: t.Any, name: str, default: t.Any = None) -> t.Any:
    """The value of the input `name`; its default, or None, when it is not set. AnsibleFilterError for a wrong form."""
    try:
        return typed_input(name, value, default)
    except NpuError as exc:
        raise AnsibleFilterError(str(exc)) from None


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"typed_input": to_typed_input}
