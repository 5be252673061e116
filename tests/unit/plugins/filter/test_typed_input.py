# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter typed_input: text of a survey gets its type, and an error of Ansible tells what is wrong."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.filter.typed_input import FilterModule

FILTER = FilterModule().filters()["typed_input"]


def test_typed_input() -> None:
    assert FILTER("1,25%", "rbln_serial") == [1, "25%"] and FILTER("", "rbln_serial") is None
    with pytest.raises(AnsibleFilterError, match="^rbln_serial is 'x', and 'x' is not a number of hosts. Next: Write"):
        FILTER("x", "rbln_serial")
