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

MASK = "********"
# Shorter values would mask parts of harmless words.
SHORTEST = 4

# Most text has none of these and is done.
_HINT = re.compile(
    r"(?i)@|[?&]\w|pass|pwd|psk|auth|bearer|basic|credential|token|secret|key|cookie|LS0tLS1|eyJ|login|docker(?:config|"
    r"cfg)|\$(?:[1256y]|apr1|argon2)|-u\s|--(?:proxy-)?user|AKIA|ASIA|gh[oprsu]_|glpat-|github_pat|hf_|xox[a-z]-|"
    r"[rs]k[-_]|hvs\.|dckr_pat_|npm_|pypi-|nvapi-|AIza|hooks\.slack|ipmitool|mysql|bindpw|community"
)
_WORD = (
    r"(?:(?<!by)(?<!com)pass(?:word|wd|phrase|code)?|pwd|psk|auth|authorization|bearer|"
    r"credential(?:s(?!: ))?|token|secret|access[_-]?key[_-]?id|client-key-data|dockerconfigjson|dockercfg|"
    r"(?:private|api|access|secret|licen[cs]e|signing|encryption|activation|product|account|shared|session|master)"
    r"[_-]?key)"
)
# The last part of a path is no name, and a query has a rule of its own.
_KEY = r"(?<![\w.?&/-])[\w.-]{0,128}?%s(?![\w.-])" % _WORD
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
    r"unexpected|get|post|head)"
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


def _pattern(text: str) -> functools.partial[re.Pattern[str]]:
    """Compiled at its first use, and kept by `re`: most processes need none of them."""
    return functools.partial(re.compile, text)


# Without such a name in the text, no rule that has _WORD in it finds anything: those cost the most to compile.
_NAMED = _pattern(r"(?i)%s(?![\w.-])" % _WORD)
_RULES: tuple[tuple[functools.partial[re.Pattern[str]], Judge], ...] = (
    # Private keys in PEM, also with line ends written as \n, and the same in base64.
    (
        _pattern(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?P<s>.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
        _always,
    ),
    # The end of one, in text whose beginning is cut off.
    (
        _pattern(
            r"\A(?P<s>(?:(?![^\n]*-----BEGIN )[^\n]*\n){0,150}?(?:(?!-----BEGIN )[^\n]){0,20000}?)"
            r"-----END [A-Z0-9 ]*PRIVATE KEY-----"
        ),
        _always,
    ),
    (_pattern(r"(?P<s>LS0tLS1CRUdJTi(?!BDRVJUSUZJQ0FUR|BQVUJMSUMg)[A-Za-z0-9+/]{8,}=*)"), _always),
    # Credentials in an address: all before the last @. A user alone may be a token, but not that of ssh.
    (
        _pattern(
            r"\b(?!ssh:|git\+ssh:|sftp:|docker:|oci:)[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<s>[^\s/\"<>]{1,1000})@"
        ),
        _always,
    ),
    (
        _pattern(
            r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<s>[^\s/\"<>@:]{1,200}:(?!\d{1,5}(?:[/?#]|$))"
            r"[^\s\"<>]{1,1000})@(?!sha\d)(?=[\w.\[-])"
        ),
        _always,
    ),
    (
        _pattern(
            r"(?<![\w/.%+-])(?:(?i:iscsi):)?(?P<s>[\w.%+-]{1,200}:(?!\*{3})[^\s/@\"<>]{1,1000})@(?!sha\d+:)"
            r"(?=[\w.\[-])"
        ),
        _always,
    ),
    (_pattern(r"[?&](?P<name>[\w.%~\[\]-]+)=(?P<s>[^&\s\"'<>#)]+)"), _is_query),
    # Headers, with or without their name.
    (
        _pattern(
            r"(?i)\b(?:proxy-)?authorization\\?[\"']?[ \t]*[:=][ \t]*\[?\s*\\?[\"']?"
            r"(?:%s[ \t]+)?(?!%s[ \t]+\*)(?P<s>[^\s\"'\[\]\\*][^\r\n\"'\\]*)" % (_SCHEME, _SCHEME)
        ),
        _always,
    ),
    (_pattern(r"(?i)\bbasic[ \t]+(?P<s>[A-Za-z0-9+/]{6,}={0,2})(?![A-Za-z0-9+/=])"), _is_basic),
    (_pattern(r"(?i)\bbearer[ \t]+(?!\w+=\")(?=[\w.~+/-]*\d|[\w.~+/=-]{20})(?P<s>[\w.~+/-]{6,}=*)"), _always),
    (_pattern(r"(?i)\b(?:set-)?cookie2?\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?(?P<s>[^\s\"'\\*][^\r\n\"'\\]*)"), _always),
    # netrc: in one line, or one line of it.
    (_pattern(r"\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?P<s>\S+)"), _always),
    (_pattern(r"(?m)^[-+ \t]*password[ \t]+(?P<s>[^\s=:*]\S*)[ \t]*$"), _always),
    # Tokens of a known form, and the hash of a password.
    (_pattern(r"(?<![\w-])(?P<s>eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*)"), _always),
    (_pattern(r"(?<![\w+/])(?P<s>(?:eyJhdXRo|eyAiYXV0a|ewogICJhdXRo|eyJ1c2VybmFtZ)[\w+/-]+=*)"), _always),
    (
        _pattern(
            r"(?<![\w-])(?P<s>(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
            r"hf_[A-Za-z0-9]{20,}|xox[a-z]-[\w-]{10,}|sk-[\w-]{20,}|hvs\.[\w-]{20,}|dckr_pat_[\w-]{16,}|"
            r"[rs]k_(?:live|test)_\w{16,}|npm_\w{20,}|pypi-[\w-]{20,}|nvapi-[\w-]{20,}|AIza[\w-]{30,}|"
            r"AGE-SECRET-KEY-1[A-Z0-9]{20,})"
        ),
        _always,
    ),
    (_pattern(r"(?P<s>\$(?:1|2[aby]|5|6|y|apr1|argon2(?:i|d|id))\$[\w./$=,+]{16,})"), _always),
    (_pattern(r"(?i)\bhooks\.slack\.com/services/(?P<s>[\w/-]{8,})"), _always),
    # Those of a cluster that a node joins, where a word says what it is.
    (_pattern(r"(?i)\btoken\b[^\n]{0,40}?(?<![\w.-])(?P<s>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])"), _always),
    (_pattern(r"(?i)\blicen[cs]e key[ \t]*(?:is|[:=])?[ \t]*\"?(?P<s>(?=[A-Za-z-]*\d)[A-Za-z0-9-]{8,})"), _always),
    # Options whose value is the next word, in a command line and in a list of words.
    (
        _pattern(
            r"(?i)(?<!\S)(?=-)%s%s[ \t]+%s(?!-)(?:\"(?P<double>[^\"\n]*)|'(?P<single>[^'\n]*)|(?P<s>[^\s\"']+))"
            % (_KEY, _PROSE, _NOT)
        ),
        _always,
    ),
    (_pattern(r"(?i)([\"'])(?=-)[\w.-]*%s\1,\s*([\"'])(?!-)(?P<s>(?:(?!\2)[^\n])+)" % _WORD), _always),
    (_pattern(r"(?<!\S)(?:-[uU]|--user|--proxy-user)[ =](?P<s>[^\s:/\"'*]+:[^\s\"']+)"), _is_user),
    # Programs with a short option for a password, and configurations with a word before it.
    (
        _pattern(
            r"\b(?:sshpass[ \t]+-p|"
            r"(?:docker|podman|nerdctl|skopeo|buildah|helm(?:[ \t]+registry)?)[ \t]+login\b[^\n;|&]{0,200}?[ \t]-p|"
            r"ipmitool\b[^\n;|&]{0,200}?[ \t]-P|(?:mysql|mysqldump|mariadb)\b[^\n;|&]{0,200}?[ \t]-p(?=\S))"
            r"[ \t]*(?P<s>[^\s\"'*;|&]+)"
        ),
        _always,
    ),
    (_pattern(r"(?m)^[ \t]*(?:bindpw|r[ow]community6?)[ \t]+(?P<s>[^\s*]\S*)"), _always),
    (_pattern(r"(?i)<%s>(?P<s>[^<\n]+)</" % _KEY), _always),
    # Names with their values: a block of YAML, a word "NAME=value of words", texts, lists, the rest of a line, a word.
    (
        _pattern(
            r"(?im)^(?P<indent>[ \t]*)(?:- +)?[\"']?%s[\"']?[ \t]*:[ \t]*[|>][0-9+-]*[ \t]*\n"
            r"(?P<s>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)" % _KEY
        ),
        _always,
    ),
    (_pattern(r"(?i)([\"'])%s=%s(?P<s>(?:(?!\1)[^\n\\*]|\\.)(?:(?!\1)[^\n\\]|\\.)*)\1" % (_KEY, _NOT)), _always),
    (
        _pattern(
            r"(?is)%s(?:\\?[\"'])?[ \t]*(?:=>?|:)[ \t]*(?:%s|%s|%s)" % (_KEY, _TRIPLE, _ESCAPED, _STRING)
        ),
        _is_text,
    ),
    (_pattern(r"(?i)%s(?:\\?[\"'])?\s*(?:=>?[ \t]*|:\s*)(?:%s|\{(?P<s>[^}]*\n[^}]*))" % (_KEY, _LISTED)), _always),
    (
        _pattern(
            r"(?im)^[-+ \t]*(?:export[ \t]+)?[\"']?%s[\"']?(?:[ \t]+=[ \t]*|[ \t]*:(?=[ \t])%s[ \t]+)%s"
            r"(?P<s>[^\s\"'\[{|>&*\\,/](?:[^\n#,;}\"'\\]|(?<!\s)[#,;}\\])*[^\s,;}\"'])" % (_KEY, _PROSE, _NOT)
        ),
        _always,
    ),
    (
        _pattern(
            r"(?i)%s(?:\\?[\"'])?[ \t]*(?:=>?%s|:(?!//)%s)[ \t]*%s"
            r"(?P<s>(?:[^\s\"'\[{|>*\\,;&/]|/(?=\S*[+=]))(?:[^\s\"'\\]*[^\s\"'\\,;.)}\]])?)"
            % (_KEY, _NEXT, _PROSE, _NOT)
        ),
        _always,
    ),
)  # fmt: skip


_VALUES = ("s", "list", "triple", "raw", "escaped", "double", "single")


def _replace(text: str, note: t.Callable[[str], None]) -> str:
    """`text` with its secrets masked; `note` gets each of them."""
    if not _HINT.search(text):
        return text

    def hide(judge: Judge, found: re.Match[str]) -> str:
        groups = found.groupdict()
        name = next(name for name in _VALUES if groups.get(name) is not None)
        secret = groups[name]
        if not secret.strip(" \t\n*") or not judge(found):
            return found.group(0)
        note(secret)
        start, end = (at - found.start() for at in found.span(name))
        # Line by line: a difference may show one line of several.
        hidden = re.sub(r"[^\n]+", MASK, secret)
        return found.group(0)[:start] + hidden + found.group(0)[end:]

    for pattern, judge in _RULES:
        if _WORD in pattern.args[0] and not _NAMED().search(text):
            continue
        text = pattern().sub(functools.partial(hide, judge), text)
    return text


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
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        shown = {
            key: MASK if isinstance(item, str) and item and isinstance(key, str) and names_secret(key) else masked(item)
            for key, item in value.items()
        }
        # A variable of an environment as Kubernetes writes it.
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str) and names_secret(value["name"]):
            shown["value"] = MASK
        return shown
    if isinstance(value, (list, tuple)):
        return type(value)(
            MASK if isinstance(item, str) and _is_option(before) and names_secret(before) else masked(item)
            for before, item in zip([None, *value], value)
        )
    return value


def _is_option(word: t.Any) -> bool:
    """Whether it is an option whose value is the next word."""
    return isinstance(word, str) and word.startswith("-") and "=" not in word


def secrets_in(value: t.Any) -> set[str]:
    """The secrets that masked() would hide in data, in every form in which a program may print them."""
    found: set[str] = set()
    if isinstance(value, str):
        _replace(value, found.add)
    elif isinstance(value, dict):
        for item in value.values():
            found |= secrets_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            found |= secrets_in(item)
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
