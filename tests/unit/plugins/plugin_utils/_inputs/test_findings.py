# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each problem once, with the hosts that it stops."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.findings import Findings, of_host

HOSTS = ["c", "a", "b"]


def test_equal_problems_are_one_and_its_hosts_are_in_play_order() -> None:
    findings = Findings(HOSTS)
    assert findings.items() == [] and not findings.stop_all
    findings.add(NpuError("X is wrong.", "Do x."), ["a"])
    findings.add(NpuError("X is wrong.", "Do x."), ["c", "a"])
    assert findings.items() == [{"detail": "X is wrong.", "next_step": "Do x.", "hosts": ["c", "a"]}]
    assert not findings.stop_all and findings.text() == "Nothing was changed. c, a: X is wrong. Next: Do x."
    findings.add(NpuError("X is wrong.", "Do x."), ["b"])
    assert findings.stop_all and findings.text() == "Nothing was changed. X is wrong. Next: Do x."
    findings.add(NpuError("Y is wrong."), ["b"])
    assert findings.text() == (
        "Nothing was changed. 2 things are wrong:\n(1) X is wrong. Next: Do x.\n(2) b: Y is wrong."
    )


def test_many_hosts_are_counted() -> None:
    findings = Findings([str(number) for number in range(9)])
    findings.add(NpuError("X."), map(str, range(8)))
    assert findings.text() == "Nothing was changed. 0, 1, 2, 3, 4 and 3 more: X."


def test_a_host_learns_who_tells_of_its_problem() -> None:
    one = {"detail": "X.", "next_step": "", "hosts": ["c", "a"]}
    results = [None, {"skipped": True}, {"problems": [one, {**one, "hosts": ["b"]}]}]
    assert of_host("a", results, HOSTS) == [(one, "c")] and of_host("c", results, HOSTS) == [(one, "c")]
    # The first one failed meanwhile.
    assert of_host("a", results, ["a", "b"]) == [(one, "a")]
    assert of_host("d", results, HOSTS) == []
    # Both looks read the inputs.
    again = [{"problems": [one]}, {"problems": [dict(one), {**one, "detail": "Y."}]}]
    assert of_host("a", again, HOSTS) == [(one, "c"), ({**one, "detail": "Y."}, "c")]
