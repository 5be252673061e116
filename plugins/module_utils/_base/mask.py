# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one judge of what is a secret in text that is repeated: output of programs, files, differences, errors, facts.

It goes by the form of a secret, or by the name before it. In doubt about a name it masks; versions, digests, paths,
identifiers and words of sentences stay.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
import typing as t

from .mask_places import (
    WORD,
    Looked,
    Starts,
    addresses,
    anywhere,
    at_words,
    in_secrets,
    in_text,
    lines_before_names,
    lines_of_names,
    lines_with,
    logins,
    names,
    pattern,
    programs,
    quoted,
    quoted_names,
)

MASK = "********"
# Shorter values would mask parts of harmless words.
SHORTEST = 4

# The last part of a path is no name, a query has a rule of its own, and a kubelet names a volume before its reason.
_KEY = r"(?<!volume \")(?<!volume \\\")(?<![\w.?&/-])[\w.-]{0,128}?%s(?![\w.-])" % WORD
_SCHEME = r"(?:basic|bearer|digest|negotiate|token|apikey)"
# A switch, a variable, and what is masked already are no secrets.
_NOT = (
    r"(?!(?:true|false|yes|no|null|none|nil|on|off|~|(?:%s )?\*{3,}|"
    r"\$\{?\w+\}?)(?:[\s,;}\])\"'\\]|$))" % _SCHEME
)
# Nor is the next word of a sentence.
_PROSE = (
    r"(?![ \t]*(?:is|are|was|not|must|cannot|can|could|has|have|the|a|an|it|of|in|for|to|and|or|with|should|by|from|"
    r"at|when|permission|expired|invalid|missing|required|absent|unset|empty|unchanged|changed|created|denied|failed|error|"
    r"unexpected|get|post|head|secrets|server(?= message:)|[1-5]\d\d(?= [A-Z]))"
    r"(?:[\s,;.:]|$))"
)
# Nor is the next variable, where one is set to nothing: NAME= with nothing before the sign. A padding is no sign.
_NEXT = (
    r"(?-i:(?!(?<=[A-Z]=)[ \t]+(?:[A-Z][A-Z0-9_]*=(?:[^\s=,;)}\]\"'\\]|[\"'][^\s,;)}\]\"'])|"
    r"[A-Z][A-Z0-9]*_[A-Z0-9_]*=(?:\s|$))))"
)
# Groups of values; which of them has matched is the secret.
_LISTED = r"\[(?!\s*\])(?P<list>[^\]]*)"
_TRIPLE = r"\"{3}(?P<triple>.*?)(?:\"{3}|\Z)|'{3}(?P<raw>.*?)(?:'{3}|\Z)"
_ESCAPED = r"\\\"(?P<escaped>(?:(?!\\\")[^\n])*)"
_STRING = r"\"(?P<double>(?:[^\"\\]|\\.)*)|'(?P<single>(?:[^'\\\n]|\\.|'')*)"

Judge = t.Callable[["re.Match[str]"], bool]


def _always(found: re.Match[str]) -> bool:
    return True


def _is_basic(found: re.Match[str]) -> bool:
    """Whether a word after Basic is user:password in base64."""
    try:
        return b":" in base64.b64decode(found.group("s"), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_text(found: re.Match[str]) -> bool:
    """Whether the quote before a value opens it: after a name that this quote has opened, it ends an empty value."""
    before = re.search(r"\\?[\"']$", found.string[max(0, found.start() - 2) : found.start()])
    name = next((name for name in ("escaped", "double", "single") if found.group(name) is not None), "")
    if before is None or not name:
        return True
    head, rest = found.string[found.start() : found.start(name)], found.group(name)[:1]
    return head.count(before.group()) > 1 or not head.endswith("=" + before.group()) or rest not in " \t\n,;])}"


def _is_user(found: re.Match[str]) -> bool:
    """Whether the value of -u is a user with a password: two numbers are a user and a group."""
    return not re.match(r"\d+:\d+$", found.group("s"))


_KIND = re.compile(r"kind\\?[\"']?[ \t]*:[ \t]*\\?[\"']?Secret\b")
# How far a kind may be from the data of its object.
_NEAR = 4000


def _is_of_secret(found: re.Match[str]) -> bool:
    """Whether the kind Secret is named near it, in the same document of YAML."""
    text, (start, end) = found.string, found.span()
    before = text[max(0, start - _NEAR) : start].rpartition("\n---")[2]
    after = text[end : end + _NEAR].partition("\n---")[0]
    return bool(_KIND.search(before) or _KIND.search(after))


def _is_broken_jwt(found: re.Match[str]) -> bool:
    """Whether lines that go on make one token: a header, claims and a signature."""
    return bool(re.match(r"[\w-]+\.[\w-]{5,}\.[\w-]{5,}", re.sub(r"[\\\s]+", "", found.group("s"))))


_QUERY_NAME = re.compile(
    r"(?i)token|passw|pwd|secret|credential|(?:api|access)[_-]?key|key-pair|auth|(?:^|[_-])sig$|signature$|session|"
    r"\bcode$|policy$"
)
_QUERY_DIGEST = re.compile(r"(?i)sha|digest|checksum|ref|commit|version|continue|resource")
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w%~.+=-]{24,}$")


def _is_query(found: re.Match[str]) -> bool:
    """Whether a value of a query is a secret, by its name or because it looks random."""
    name = found.group("name")
    return bool(
        _QUERY_NAME.search(name) or (_RANDOM.match(found.group("s")) and not _QUERY_DIGEST.search(name))
    ) and not found.group("s").startswith("***")


# How tokens of a known form begin.
_TOKENS = (
    "akia", "asia", "ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_", "hf_", "xox", "sk-", "hvs.",
    "dckr_pat_", "rk_live_", "sk_live_", "rk_test_", "sk_test_", "npm_", "pypi-", "nvapi-", "aiza",
    "age-secret-key-1", "dop_v1_", "doo_v1_", "dor_v1_", "ya29.", "tskey-", "k10", "grub.pbkdf2.",
    "glpat-", "glrt-", "gldt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-", "glffct-",
)  # fmt: skip
# (rule, whether what it has found is a secret, where it may begin: everywhere for None).
_RULES: tuple[tuple[functools.partial[re.Pattern[str]], Judge, t.Callable[[Looked], Starts]], ...] = (
    # Private keys in PEM, also with line ends written as \n, and the same in base64.
    (
        pattern(
            r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?P<s>.*?)"
            r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
        ),
        _always, at_words("-----begin "),
    ),
    (
        pattern(r"(?m)^Private-Lines: \d+\r?\n(?P<s>(?:[^\s:]+(?:\r?\n|\Z))+)"),
        _always, lines_with("private-lines:"),
    ),
    # The end of one, in text whose beginning is cut off.
    (
        pattern(
            r"\A(?P<s>(?:(?![^\n]*-----BEGIN )[^\n]*\n){0,150}?(?:(?!-----BEGIN )[^\n]){0,20000}?)"
            r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        ),
        _always, in_text,
    ),
    (
        pattern(r"(?P<s>LS0tLS1CRUdJTi(?!BDRVJUSUZJQ0FUR|BQVUJMSUMg)[A-Za-z0-9+/]{8,}=*)"),
        _always, at_words("ls0tls1crudjti"),
    ),
    # A token that is broken into lines.
    (
        pattern(
            r"(?<![\w-])(?P<s>eyJ[\w-]{5,}(?:\.[\w-]*){0,2}(?:\\?\r?\n[ \t]*(?=[\w.-]*[A-Z])(?=[\w.-]*[a-z])"
            r"(?=[\w.-]*\d)[\w-]{8,}(?:\.[\w-]*){0,2}(?=\\?[\"']?[ \t]*(?:\r?\n|\Z))){1,200})"
        ),
        _is_broken_jwt, at_words("eyj"),
    ),
    # What an object of the kind Secret holds, in YAML and in JSON.
    (
        pattern(
            r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*\n(?P<s>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)"
        ),
        _is_of_secret, in_secrets("data:"),
    ),
    (
        pattern(r"\\?\"(?:data|stringData)\\?\"\s*:\s*\{(?P<s>[^{}]+)\}"),
        _is_of_secret, in_secrets('"data', '"stringdata', in_quotes=True),
    ),
    # Credentials in an address: all before the last @. A user alone may be a token, but not that of ssh.
    (
        pattern(
            r"\b(?!ssh:|git\+ssh:|sftp:|docker:|oci:)[A-Za-z][A-Za-z0-9+.-]{0,30}:\\{0,3}/\\{0,3}/(?P<s>[^\s/\"<>]{1,1000})@"
        ),
        _always, addresses,
    ),
    (
        pattern(
            r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}:\\{0,3}/\\{0,3}/(?P<s>[^\s/\"<>@:]{1,200}:(?!\d{1,5}(?:[/?#]|$))"
            r"[^\s\"<>]{1,1000})@(?!sha\d)(?=[\w.\[-])"
        ),
        _always, addresses,
    ),
    (
        pattern(
            r"(?<![\w/.%+-])(?:(?i:iscsi):)?(?P<s>[\w.%+-]{1,200}:(?!\*{3})[^\s/@\"<>]{1,1000})@(?!sha\d+:)"
            r"(?=[\w.\[-])"
        ),
        _always, logins,
    ),
    (
        pattern(
            r"(?i)%3a(?:%2f|/){2}(?P<s>(?:(?!%2f|%40|%3a)[^\s\"'<>&@/]){1,200}%3a(?:(?!%2f|%40)[^\s\"'<>&@/]){1,1000})%40"
        ),
        _always, at_words("%3a%2f%2f", "%3a//"),
    ),
    (pattern(r"[?&](?P<name>[\w.%~\[\]-]+)=(?P<s>[^&\s\"'<>#)]+)"), _is_query, anywhere("?", "&")),
    # Headers, with or without their name.
    (
        pattern(
            r"(?i)\b(?:proxy-)?authorization\\?[\"']?[ \t]*[:=][ \t]*\[?\s*\\?[\"']?"
            r"(?:%s[ \t]+)?(?!%s[ \t]+\*)(?!server message:)(?P<s>[^\s\"'\[\]\\*][^\r\n\"'\\]*)" % (_SCHEME, _SCHEME)
        ),
        _always, at_words("authorization", back=(6, 0)),
    ),
    (pattern(r"(?i)\bbasic[ \t]+(?P<s>[A-Za-z0-9+/]{6,}={0,2})(?![A-Za-z0-9+/=])"), _is_basic, at_words("basic")),
    (
        pattern(r"(?i)\bbearer[ \t]+(?!\w+=\")(?=[\w.~+/-]*\d|[\w.~+/=-]{20})(?P<s>[\w.~+/-]{6,}=*)"),
        _always, at_words("bearer"),
    ),
    (
        pattern(r"(?i)\b(?:set-)?cookie2?\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?(?P<s>[^\s\"'\\*][^\r\n\"'\\]*)"),
        _always, at_words("cookie", back=(4, 0)),
    ),
    # netrc: in one line, or one line of it.
    (pattern(r"\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?P<s>\S+)"), _always, at_words("login")),
    (pattern(r"(?m)^[-+ \t]*password[ \t]+(?P<s>[^\s=:*]\S*)[ \t]*$"), _always, lines_with("password")),
    # Tokens of a known form, and the hash of a password.
    (pattern(r"(?<![\w-])(?P<s>eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*)"), _always, at_words("eyj")),
    (
        pattern(r"(?<![\w+/])(?P<s>(?:eyJhdXRo|eyAiYXV0a|ewogICJhdXRo|eyJ1c2VybmFtZ)[\w+/-]+=*)"),
        _always, at_words("eyjhdxro", "eyaiyxv0a", "ewogicjhdxro", "eyj1c2vybmftz"),
    ),
    (
        pattern(
            r"(?<![\w-])(?P<s>(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[oprsu]_\w{20,}|github_pat_\w{20,}|"
            r"gl(?:pat|rt|dt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w-]{16,}|do[opr]_v1_[0-9a-f]{40,}|ya29\.[\w-]{20,}|"
            r"tskey-[a-z]+-[\w-]{16,}|K10[0-9a-f]{64}::[\w-]+:\S+?(?=[)\"',]|\s|$)|"
            r"grub\.pbkdf2\.sha512\.[0-9]+\.[0-9A-Fa-f.]{40,}[0-9A-Fa-f]|"
            r"hf_[A-Za-z0-9]{20,}|xox[a-z]-[\w-]{10,}|sk-(?:[a-z0-9]{30}|(?=[\w-]*[A-Z])[\w-]{20})[\w-]*|"
            r"hvs\.[\w-]{20,}|dckr_pat_[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}|npm_[A-Za-z0-9]{30,}|"
            # Names of hosts may begin so too, and have no capitals.
            r"(?:pypi|nvapi)-(?=[\w-]*[A-Z])[\w-]{20,}|AIza[\w-]{30,}|"
            r"AGE-SECRET-KEY-1[A-Z0-9]{20,})"
        ),
        _always, at_words(*_TOKENS),
    ),
    (pattern(r"(?P<s>\$(?:1|2[abxy]|5|6|7|g?y|apr1|argon2(?:i|d|id))\$[\w./$=,+]{16,})"), _always, at_words("$")),
    (
        pattern(
            r"(?i)\b(?:hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/(?:file/)?bot|"
            r"(?:webhook|outlook)\.office(?:365)?\.com/webhook(?:b2)?/)(?P<s>[\w/:@.-]{8,})"
        ),
        _always, at_words("hooks.slack.com/", "discord", "api.telegram.org/", "webhook.office", "outlook.office"),
    ),
    # Those of a cluster that a node joins, where a word says what it is.
    (
        pattern(r"(?i)\btoken\b[^\n]{0,40}?(?<![\w.-])(?P<s>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])"),
        _always, at_words("token"),
    ),
    (
        pattern(r"(?i)\blicen[cs]e key[ \t]*(?:is|[:=])?[ \t]*\"?(?P<s>(?=[A-Za-z-]*\d)[A-Za-z0-9-]{8,})"),
        _always, at_words("license key", "licence key"),
    ),
    (
        pattern(
            r"(?i)certificate[ _-]?key[\"']?[ \t]*(?:[:=]\s*|[ \t])[\"']?(?P<s>[0-9a-f]{64})(?![0-9a-f])"
        ),
        _always, at_words("certificate"),
    ),
    (pattern(r"(?<![\w+/])(?P<s>AQ[A-Za-z0-9+/]{36}==)"), _always, at_words("aq")),
    # Options whose value is the next word, in a command line and in a list of words.
    (
        pattern(
            r"(?i)(?<!\S)(?=-)%s%s[ \t]+%s(?![-=:])(?:\"(?P<double>[^\"\n]*)|'(?P<single>[^'\n]*)|(?P<s>[^\s\"']+))"
            % (_KEY, _PROSE, _NOT)
        ),
        _always, names(first="-"),
    ),
    (
        pattern(
            r"(?i)([\"'])(?=-)[\w.-]*%s\1(?:,\s*|[ \t]+a\d+=)([\"'])(?!-)(?P<s>(?:(?!\2)[^\n])+)" % WORD
        ),
        _always, names("\"'"),
    ),
    (
        pattern(
            r"(?im)^(?P<indent>[ \t]*)- +[\"']?(?=-)[\w.-]*%s[\"']?[ \t]*\n(?P=indent)- +(?!-)(?P<s>\S.*)" % WORD
        ),
        _always, lines_of_names,
    ),
    (
        pattern(r"(?<!\S)(?:-[uU]|--user|--proxy-user)[ =](?P<s>[^\s:/\"'*]+:(?!//)[^\s\"']+)"),
        _is_user, at_words("-u ", "-u=", "--user ", "--user=", "--proxy-user ", "--proxy-user="),
    ),
    # Programs with a short option for a password, and configurations with a word before it.
    (
        pattern(
            r"\b(?:sshpass[ \t]+-p|"
            r"(?:docker|podman|nerdctl|skopeo|buildah|helm(?:[ \t]+registry)?)[ \t]+login\b[^\n;|&]{0,200}?[ \t]-p|"
            r"ipmitool\b[^\n;|&]{0,200}?[ \t]-P|"
            r"curl\b[^\n;|&]{0,200}?[ \t]-u(?=[^\s:/\"'*]+:(?!//))|"
            r"(?:mysql|mysqldump|mariadb)\b[^\n;|&]{0,200}?[ \t]-p(?=\S))"
            r"[ \t]*\\?[\"']?(?P<s>[^\s\"'*;|&\\]+)"
        ),
        _always, programs,
    ),
    (pattern(r"--from-literal[ =][\"']?[\w.-]+=[\"']?(?P<s>[^\s\"']+)"), _always, at_words("--from-literal")),
    (
        pattern(r"\b(?:pro|ua|ubuntu-advantage) attach (?P<s>[A-Za-z0-9]{16,})"),
        _always, at_words("pro attach ", "ua attach ", "ubuntu-advantage attach "),
    ),
    (
        pattern(
            r"(?:echo|printf)[ \t]+(?:-n[ \t]+)?[\"']?(?P<s>[^\s|\"']{1,200})[\"']?[ \t]*\|[^\n|]{0,80}?"
            r"(?:--password-stdin|--stdin|sudo[ \t]+-S)(?![\w-])"
        ),
        _always, at_words("echo ", "printf "),
    ),
    (pattern(r"microk8s join [^\s/]{1,80}/(?P<s>[0-9a-f]{32})"), _always, at_words("microk8s join ")),
    (
        pattern(
            r"(?im)^[ \t]*(?:env|setenv|set -g?x)[ \t]+%s[ \t]+%s(?P<s>[^\s=].*)" % (_KEY, _NOT)
        ),
        _always, lines_of_names,
    ),
    (
        pattern(
            r"(?<![^\s'\"])[\w.-]{1,64}:(?P<s>[^\s'\"|]{1,200})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?"
            r"(?:[\w/]*/)?chpasswd\b"
        ),
        _always, anywhere("chpasswd"),
    ),
    (
        pattern(r"(?m)^[ \t]*(?:bindpw|r[ow]community6?)[ \t]+(?P<s>[^\s*]\S*)"),
        _always, lines_with("bindpw", "rocommunity", "rwcommunity"),
    ),
    (pattern(r"(?i)<%s>(?P<s>[^<\n]+)</" % _KEY), _always, names("<")),
    # A name and its value as two values: of a variable of a container, or a setting, in YAML and in JSON.
    (
        pattern(
            r"(?im)^[ \t]*(?:- +)?name:[ \t]*[\"']?%s[\"']?[ \t]*\r?\n(?P<indent>[ \t]*)value:[ \t]*"
            r"(?:[|>][0-9+-]*[ \t]*\n(?P<list>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)|(?P<s>[^\s|>].*))" % _KEY
        ),
        _always, lines_of_names,
    ),
    (
        pattern(
            r"(?im)^[ \t]*(?:- +)?value:[ \t]*(?P<s>[^\s].*)\r?\n[ \t]*name:[ \t]*[\"']?%s[\"']?[ \t]*$" % _KEY
        ),
        _always, lines_before_names,
    ),
    (
        pattern(
            r"(?i)(?P<q>\\{0,15}\")name(?P=q)\s*:\s*(?P=q)%s(?P=q)\s*,\s*(?P=q)value(?P=q)\s*:\s*(?P=q)"
            r"(?P<s>(?:(?!(?P=q))[^\n])+)" % _KEY
        ),
        _always, lambda looked: quoted(looked, looked.hits('"name')) if looked.names() else (),
    ),
    (
        pattern(
            r"(?im)^(?P<indent>[ \t]*)(?:- +)?[\"']?%s[\"']?:[ \t]*\n(?P<s>(?:(?P=indent)[ \t]*- +(?![\w.-]+:(?:\s|$))"
            r"\S.*(?:\n|\Z))+)" % _KEY
        ),
        _always, lines_of_names,
    ),
    # The value of YAML in the lines after its name.
    (
        pattern(
            r"(?im)^(?P<indent>[ \t]*)(?:- +)?[\"']?%s[\"']?[ \t]*:[ \t]*\n(?=[ \t]*%s)(?P<s>(?:(?P=indent)[ \t]+%s\S.*"
            r"(?:\n|\Z))+)" % (_KEY, _NOT, _PROSE + r"(?![-#&*!|>{}\[\]]|[\"']?[\w./-]+[\"']?[ \t]*:(?:\s|$))")
        ),
        _always, lines_of_names,
    ),
    # Quotes as HTML, JavaScript and addresses write them.
    (
        pattern(
            r"(?i)%s(?P<q>&(?:quot|apos|#0?3[49]|#x2[27]);|\\{1,15}u002[27]|%%2[27])"
            r"(?:\s|%%20)*(?::|=|%%3[ad])(?:\s|%%20)*(?P=q)(?P<s>(?:(?!(?P=q))[^\n])+)" % _KEY
        ),
        _always, names(),
    ),
    # JSON in a text of JSON, and so on.
    (
        pattern(r"(?i)(?P<q>\\{2,15}\")[\w.-]*%s(?P=q)\s*:\s*(?P=q)%s(?P<s>(?:(?!(?P=q))[^\n])+)" % (WORD, _NOT)),
        _always, quoted_names,
    ),
    # Names with their values: a block of YAML, a word "NAME=value of words", texts, lists, the rest of a line, a word.
    (
        pattern(
            r"(?im)^(?P<indent>[ \t]*)(?:- +)?[\"']?%s[\"']?[ \t]*:[ \t]*[|>][0-9+-]*[ \t]*\n"
            r"(?P<s>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)" % _KEY
        ),
        _always, lines_of_names,
    ),
    (
        pattern(r"(?i)([\"'])%s=%s(?P<s>(?:(?!\1)[^\n\\*]|\\.)(?:(?!\1)[^\n\\]|\\.)*)\1" % (_KEY, _NOT)),
        _always, names("\"'"),
    ),
    (
        pattern(
            r"(?is)%s(?:\\?[\"'])?[ \t]*(?::=|=>?|[:\uff1a])[ \t]*b?(?:%s|%s|%s)" % (_KEY, _TRIPLE, _ESCAPED, _STRING)
        ),
        _is_text, names(),
    ),
    (
        pattern(r"(?i)%s(?:\\?[\"'])?\s*(?:=>?[ \t]*|:\s*)(?:%s|\{(?P<s>[^}\n]{0,300}\n[^}]*))" % (_KEY, _LISTED)),
        _always, names(),
    ),
    (
        pattern(
            r"(?im)^[-+ \t]*(?:export[ \t]+)?[\"']?%s[\"']?(?:[ \t]+=[ \t]*|[ \t]*:(?=[ \t])%s[ \t]+)%s"
            r"(?P<s>[^\s\"'\[{|>&*\\,/](?:[^\n#,;}\"'\\]|(?<!\s)[#,;}\\])*[^\s,;}\"'])" % (_KEY, _PROSE, _NOT)
        ),
        _always, lines_of_names,
    ),
    (
        pattern(
            r"(?i)%s(?:\\?[\"'])?[ \t]*(?::=|=>?%s|[:\uff1a](?!//|=)%s)[ \t]*%s"
            r"(?P<s>(?:[^\s\"'\[{|>*\\,;&/]|/(?=\S*[+=]))(?:[^\s\"'\\]*[^\s\"'\\,;.)}\]])?)"
            % (_KEY, _NEXT, _PROSE, _NOT)
        ),
        _always, names(),
    ),
)  # fmt: skip

# Short texts without a secret that were looked at: names and labels come again in many objects.
_CLEAN: set[str] = set()
_SHORT, _KEPT = 120, 20000
_VALUES = ("s", "list", "triple", "raw", "escaped", "double", "single")


def _found(rule: functools.partial[re.Pattern[str]], starts: Starts, text: str) -> t.Iterator[re.Match[str]]:
    """Where a rule fits, one after the other; it is compiled for the first place where it may."""
    if starts is None:
        yield from rule().finditer(text)
    end = 0
    for start in starts or ():
        one = rule().match(text, start) if start >= end else None
        if one:
            end = one.end()
            yield one


def _replace(text: str, note: t.Callable[[str], None]) -> str:
    """`text` with its secrets masked; `note` gets each of them."""
    if text in _CLEAN:
        return text
    looked = Looked(text, set())
    for rule, judge, starts in _RULES:
        parts: list[str] = []
        end = 0
        for one in _found(rule, starts(looked), looked.text):
            groups = one.groupdict()
            name = next(name for name in _VALUES if groups.get(name) is not None)
            secret = groups[name]
            if not secret.strip(" \t\n*") or not judge(one):
                continue
            note(secret)
            # Line by line: a difference may show one line of several.
            parts += [looked.text[end : one.start(name)], re.sub(r"[^\n]+", MASK, secret)]
            end = one.end(name)
        if parts:
            looked = Looked("".join([*parts, looked.text[end:]]), looked.absent)
    if looked.text == text and len(text) <= _SHORT and len(_CLEAN) < _KEPT:
        _CLEAN.add(text)
    return looked.text


def mask(text: str) -> str:
    """`text` with every secret in it replaced by MASK, line by line."""
    return _replace(text, lambda secret: None)


def noted(text: str) -> tuple[str, set[str]]:
    """(`text` as mask() gives it, the secrets that were in it)."""
    found: set[str] = set()
    return _replace(text, found.add), found


@functools.lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Whether the value under this key, or of this variable or option, is a secret."""
    return mask("%s=x1" % name) != "%s=x1" % name


def masked(value: t.Any) -> t.Any:
    """A copy of data with its secrets masked: by their keys, as values of options in a list, and within texts."""
    return _masked(value, lambda secret: None)


def _masked(value: t.Any, note: t.Callable[[str], None]) -> t.Any:
    """`value` as masked() gives it; `note` gets each secret."""

    def whole(item: t.Any) -> t.Any:
        """A secret, whatever its name is; a number may be a password too."""
        if not isinstance(item, (str, int)) or isinstance(item, bool) or item in ("", 0, MASK):
            return _masked(item, note)
        note(str(item))
        return MASK

    def named(name: t.Any, item: t.Any) -> t.Any:
        """What has a name that may be that of a secret."""
        return whole(item) if isinstance(name, str) and names_secret(name) else _masked(item, note)

    if isinstance(value, str):
        return _replace(value, note)
    if isinstance(value, dict):
        shown = {key: named(key, item) for key, item in value.items()}
        for part in ("data", "stringData") if value.get("kind") == "Secret" else ():
            if isinstance(value.get(part), dict):
                shown[part] = {key: whole(item) for key, item in value[part].items()}
        # A variable of an environment as Kubernetes writes it.
        if isinstance(value.get("value"), str):
            shown["value"] = named(value.get("name"), value["value"])
        return shown
    if isinstance(value, (list, tuple)):
        pairs = zip([None, *value], value)
        return type(value)(named(before if _is_option(before) else None, item) for before, item in pairs)
    return value


def _is_option(word: t.Any) -> bool:
    """Whether it is an option whose value is the next word."""
    return isinstance(word, str) and word.startswith("-") and "=" not in word


def secrets_in(value: t.Any) -> set[str]:
    """The secrets that masked() hides in data, in every form in which a program may print them."""
    found: set[str] = set()
    _masked(value, found.add)
    return {form for secret in found for form in forms(secret)}


def hidden(params: t.Mapping[str, t.Any], *names: str) -> set[str]:
    """For AnsibleModule.no_log_values: the secrets in all parameters, and these parameters as a whole.

    It replaces the values of parameters that are hidden from the host's log because a part of them may be a secret.
    """
    return secrets_in(params) | {form for name in names if params.get(name) for form in forms(params[name])}


def forms(secret: str) -> set[str]:
    """A secret as it is, and as addresses, JSON, YAML and base64 write it. For user:password also the password."""
    # Only those who hide secrets need it; it costs 2 ms.
    from urllib.parse import quote, quote_plus, unquote

    plain = {secret, unquote(secret)}
    plain |= {text.partition(":")[2] for text in plain if ":" in text}
    found = set(plain)
    for text in plain:
        data = text.encode("utf-8", "surrogateescape")
        found |= {quote(text, safe=""), quote(text), quote_plus(text), text.replace("'", "''"), repr(text)[1:-1]}
        found |= {json.dumps(text)[1:-1], base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()}
    return {text for text in found if len(text) >= SHORTEST}
