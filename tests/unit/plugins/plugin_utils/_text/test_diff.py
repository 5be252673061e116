# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.diff import diff

SECRET = "not-a-real-secret"
LINES = [
    '  password = "not-a-real-secret"',
    "  auth = 'not-a-real-secret'",
    'identitytoken="not-a-real-secret" # x',
    'auth = { username = "svc", password = "not-a-real-secret" }',
    '{"auths": {"r": {"auth": "not-a-real-secret"}}, "debug": true}',
    '{"log-opts":{"splunk-token":"not-a-real-secret"}}',
    '"identity_token" : "not-a-real-secret"',
    "registryPassword = 'not-a-real-secret'",
    'token = ["not-a-real-secret", "y"]',
    "https://svc:not-a-real-secret@mirror.example.internal/v2",
    'client_secret = """not-a-real-secret"""',
    'password = "a\\"not-a-real-secret"',
    "apiKey = not-a-real-secret",
    'X-Api-Key = ["not-a-real-secret"]',
    'aws_secret_access_key = "not-a-real-secret"',
    'accesskey: "not-a-real-secret"',
    '{"splunk-token": "not-a-real-secret"}',
    "https://svc:p@not-a-real-secret@mirror.example.internal/v2",
    "https://not-a-real-secret@mirror.example.internal",
    'Environment="HTTPS_PROXY=http://svc:not-a-real-secret@proxy.example.internal:3128"',
    "registry.configs.\"r\".auth.identitytoken = 'not-a-real-secret'",
    'header = {Authorization = ["Bearer not-a-real-secret"]}',
]


@pytest.mark.parametrize("line", LINES, ids=["S02-secrets-in-output-%d" % number for number in range(len(LINES))])
def test_secret_values_are_masked(line: str) -> None:
    assert SECRET not in mask(line)
    assert "********" in mask(line)


@pytest.mark.parametrize(
    "line",
    ["enable_cdi = true", 'author = "x"', '{"features": {"cdi": true}}', "tokens_per_second = 3", "[plugins.x.auth]"],
)
def test_other_values_are_shown(line: str) -> None:
    assert mask(line) == line


@pytest.mark.parametrize(
    "block",
    [
        'password = """\nnot-a-real-secret\n"""',
        "private_key = '''\nBEGIN\nnot-a-real-secret\nEND'''",
        'Authorization = [\n  "Bearer not-a-real-secret",\n]',
        '"auth": {\n  "x": "not-a-real-secret"\n}',
    ],
    ids=["S02-secrets-in-output-lines-%d" % number for number in range(4)],
)
def test_a_secret_of_several_lines_is_masked(block: str) -> None:
    for text in (diff("/etc/x", None, block + "\n"), diff("/etc/x", block + "\n", "enable_cdi = true\n")):
        assert SECRET not in text and "********" in text
    assert diff("/etc/x", block + "\na = 1\n", block + "\na = 2\n").splitlines()[2:] == [
        "@@ -%d +%d @@" % ((block.count("\n") + 2,) * 2),
        "-a = 1",
        "+a = 2",
    ]


def test_only_changed_lines_are_shown() -> None:
    before = 'version = 2\npassword = "not-a-real-secret"\nenable_cdi = false\n'
    text = diff("/etc/x", before, before.replace("false", "true"))
    assert text == "--- /etc/x\n+++ /etc/x\n@@ -3 +3 @@\n-enable_cdi = false\n+enable_cdi = true\n"
    assert diff("/etc/x", None, "a = 1\n").startswith("--- /dev/null\n+++ /etc/x\n")
    assert diff("/etc/x", "a = 1\n", None).endswith("-a = 1\n")


def test_a_secret_that_changes_is_a_difference_without_either() -> None:
    text = diff("/etc/x", "a = 1\npassword = 'old-one-1'\n", "a = 1\npassword = 'new-one-2'\n\n")
    assert text.splitlines()[2:] == ["@@ -2 +2,2 @@", "-password = '********'", "+password = '********'", "+"]
