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

_WORD = (
    r"(?:(?<!by)(?<!com)pass(?:word|wd|phrase|code)?|pwd|psk|auth|authorization|bearer|"
    r"credential(?:s(?!: ))?|token|secret|access[_-]?key[_-]?id|client-key-data|dockerconfigjson|dockercfg|"
    r"(?:private|api|access|secret|licen[cs]e|signing|encryption|activation|product|account|shared|session|master)"
    r"[_-]?key)"
)
# The last part of a path is no name, a query has a rule of its own, and a kubelet names a volume before its reason.
_KEY = r"(?<!volume \")(?<!volume \\\")(?<![\w.?&/-])[\w.-]{0,128}?%s(?![\w.-])" % _WORD
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
    r"unexpected|get|post|head|server(?= message:))"
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
Starts = t.Optional[t.Iterable[int]]


class _Looked:
    """A text, and where in it rules may begin: a search for plain words is a hundred times as fast as one by a rule.

    `low` has the same length and no capitals. `absent` are words that are known not to be in it: a mask brings none.
    """

    def __init__(self, text: str, absent: set[str]) -> None:
        self.text, self.absent = text, absent
        # The one letter whose small form has two characters, and one that `re` takes for an s.
        self.low = (text if text.isascii() else text.replace("\u0130", "i").replace("\u017f", "s")).lower()
        self._names: list[int] | None = None

    def hits(self, *words: str) -> list[int]:
        """The places of words, in order."""
        found = []
        for word in words:
            at = -1 if word in self.absent else self.low.find(word)
            if at < 0:
                self.absent.add(word)
            while at >= 0:
                found.append(at)
                at = self.low.find(word, at + 1)
        return sorted(found) if len(words) > 1 else found

    def names(self) -> list[int]:
        """Where names of secrets begin: a name is as long as it can be, and its end says what it is."""
        if self._names is None:
            known: dict[str, bool] = {}
            self._names, end = [], 0
            for at in self.hits(*_ROOTS):
                if at < end:
                    continue
                start, end = self.before(at, end), self.after(at)
                name = self.text[start:end]
                if len(name) > LONGEST_NAME or (start and self.text[start - 1] in "?&/"):
                    continue
                if name not in known:
                    known[name] = _NAME().match(name) is not None
                if known[name]:
                    self._names.append(start)
        return self._names

    def before(self, at: int, floor: int = 0, more: str = "_.-") -> int:
        """Where a name begins that goes on at a place; `more` may be in it besides letters and digits."""
        while at > floor and (self.text[at - 1].isalnum() or self.text[at - 1] in more):
            at -= 1
        return at

    def after(self, at: int) -> int:
        """Where a name ends."""
        while at < len(self.text) and (self.text[at].isalnum() or self.text[at] in "_.-"):
            at += 1
        return at

    def line_of(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1


def _at(*words: str, back: tuple[int, ...] = (0,)) -> t.Callable[[_Looked], Starts]:
    """A rule that begins with one of the words, or so many characters before it."""

    def starts(looked: _Looked) -> Starts:
        found = looked.hits(*words)
        return found if back == (0,) else sorted({at - one for at in found for one in back if at >= one})

    return starts


def _lines_with(*words: str) -> t.Callable[[_Looked], Starts]:
    """A rule that begins with the line of a word."""
    return lambda looked: list(dict.fromkeys(map(looked.line_of, looked.hits(*words))))


def _anywhere(*words: str) -> t.Callable[[_Looked], Starts]:
    """A rule that is searched for in all of a text that has one of the words."""
    return lambda looked: None if any(word in looked.low for word in words) else ()


def _in_text(looked: _Looked) -> Starts:
    """The end of a key, in text that begins within it."""
    return (0,) if "-----end " in looked.low else ()


def _names(after: str = "", first: str = "") -> t.Callable[[_Looked], Starts]:
    """A rule that begins with a name, the sign before it that is one of `after`; `first` begins the name."""

    def starts(looked: _Looked) -> Starts:
        text = looked.text
        found = [at for at in looked.names() if not first or text[at] == first]
        return [at - 1 for at in found if at and text[at - 1] in after] if after else found

    return starts


def _lines_of_names(looked: _Looked) -> Starts:
    return list(dict.fromkeys(map(looked.line_of, looked.names())))


def _addresses(looked: _Looked) -> Starts:
    """Where the scheme of an address may begin that has an @ after it."""
    if "@" not in looked.low:
        return ()
    found: list[int] = []
    for one in _LOGIN().finditer(looked.text):
        at = one.start()
        found += range(max(looked.before(at, max(0, at - 31), "+.-"), found[-1] + 1 if found else 0), at)
    return found


def _logins(looked: _Looked) -> Starts:
    """Where a user may begin, with a password, before an @."""
    if "@" not in looked.low:
        return ()
    found: list[int] = []
    text = looked.text
    for one in _AT().finditer(text):
        start = at = one.start()
        floor = max(0, at - 1210, found[-1] + 1 if found else 0)
        while start > floor and not text[start - 1].isspace() and text[start - 1] not in '/@"<>':
            start -= 1
        if ":" in text[start:at]:
            found += range(start, at)
    return found


def _programs(looked: _Looked) -> Starts:
    """Programs with a short option for a password; most are only asked for where a login is."""
    logins = ("docker", "podman", "nerdctl", "skopeo", "buildah", "helm") if "login" in looked.low else ()
    return looked.hits("sshpass", "ipmitool", "mysql", "mariadb", *logins)


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


# What is in each name of a secret, a name as a whole, and what begins or ends a login before an @.
_ROOTS = ("pass", "pwd", "psk", "auth", "bearer", "credential", "token", "secret", "key", "dockerc")
LONGEST_NAME = 160
_NAME = _pattern(r"(?i)[\w.-]{0,128}?%s\Z" % _WORD)
_LOGIN = _pattern(r"://(?=[^\s\"<>][^\s\"<>@]{0,1201}@)")
_AT = _pattern(r"@(?!sha\d+:)(?=[\w.\[-])")
# How tokens of a known form begin.
_TOKENS = (
    "akia", "asia", "ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "hf_", "xox", "sk-", "hvs.",
    "dckr_pat_", "rk_live_", "sk_live_", "rk_test_", "sk_test_", "npm_", "pypi-", "nvapi-", "aiza",
    "age-secret-key-1",
)  # fmt: skip
# (rule, whether what it has found is a secret, where it may begin: everywhere for None).
_RULES: tuple[tuple[functools.partial[re.Pattern[str]], Judge, t.Callable[[_Looked], Starts]], ...] = (
    # Private keys in PEM, also with line ends written as \n, and the same in base64.
    (
        _pattern(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?P<s>.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
        _always, _at("-----begin "),
    ),
    # The end of one, in text whose beginning is cut off.
    (
        _pattern(
            r"\A(?P<s>(?:(?![^\n]*-----BEGIN )[^\n]*\n){0,150}?(?:(?!-----BEGIN )[^\n]){0,20000}?)"
            r"-----END [A-Z0-9 ]*PRIVATE KEY-----"
        ),
        _always, _in_text,
    ),
    (
        _pattern(r"(?P<s>LS0tLS1CRUdJTi(?!BDRVJUSUZJQ0FUR|BQVUJMSUMg)[A-Za-z0-9+/]{8,}=*)"),
        _always, _at("ls0tls1crudjti"),
    ),
    # Credentials in an address: all before the last @. A user alone may be a token, but not that of ssh.
    (
        _pattern(
            r"\b(?!ssh:|git\+ssh:|sftp:|docker:|oci:)[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<s>[^\s/\"<>]{1,1000})@"
        ),
        _always, _addresses,
    ),
    (
        _pattern(
            r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://(?P<s>[^\s/\"<>@:]{1,200}:(?!\d{1,5}(?:[/?#]|$))"
            r"[^\s\"<>]{1,1000})@(?!sha\d)(?=[\w.\[-])"
        ),
        _always, _addresses,
    ),
    (
        _pattern(
            r"(?<![\w/.%+-])(?:(?i:iscsi):)?(?P<s>[\w.%+-]{1,200}:(?!\*{3})[^\s/@\"<>]{1,1000})@(?!sha\d+:)"
            r"(?=[\w.\[-])"
        ),
        _always, _logins,
    ),
    (_pattern(r"[?&](?P<name>[\w.%~\[\]-]+)=(?P<s>[^&\s\"'<>#)]+)"), _is_query, _anywhere("?", "&")),
    # Headers, with or without their name.
    (
        _pattern(
            r"(?i)\b(?:proxy-)?authorization\\?[\"']?[ \t]*[:=][ \t]*\[?\s*\\?[\"']?"
            r"(?:%s[ \t]+)?(?!%s[ \t]+\*)(?!server message:)(?P<s>[^\s\"'\[\]\\*][^\r\n\"'\\]*)" % (_SCHEME, _SCHEME)
        ),
        _always, _at("authorization", back=(6, 0)),
    ),
    (_pattern(r"(?i)\bbasic[ \t]+(?P<s>[A-Za-z0-9+/]{6,}={0,2})(?![A-Za-z0-9+/=])"), _is_basic, _at("basic")),
    (
        _pattern(r"(?i)\bbearer[ \t]+(?!\w+=\")(?=[\w.~+/-]*\d|[\w.~+/=-]{20})(?P<s>[\w.~+/-]{6,}=*)"),
        _always, _at("bearer"),
    ),
    (
        _pattern(r"(?i)\b(?:set-)?cookie2?\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?(?P<s>[^\s\"'\\*][^\r\n\"'\\]*)"),
        _always, _at("cookie", back=(4, 0)),
    ),
    # netrc: in one line, or one line of it.
    (_pattern(r"\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?P<s>\S+)"), _always, _at("login")),
    (_pattern(r"(?m)^[-+ \t]*password[ \t]+(?P<s>[^\s=:*]\S*)[ \t]*$"), _always, _lines_with("password")),
    # Tokens of a known form, and the hash of a password.
    (_pattern(r"(?<![\w-])(?P<s>eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*)"), _always, _at("eyj")),
    (
        _pattern(r"(?<![\w+/])(?P<s>(?:eyJhdXRo|eyAiYXV0a|ewogICJhdXRo|eyJ1c2VybmFtZ)[\w+/-]+=*)"),
        _always, _at("eyjhdxro", "eyaiyxv0a", "ewogicjhdxro", "eyj1c2vybmftz"),
    ),
    (
        _pattern(
            r"(?<![\w-])(?P<s>(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
            r"hf_[A-Za-z0-9]{20,}|xox[a-z]-[\w-]{10,}|sk-(?:[a-z0-9]{30}|(?=[\w-]*[A-Z])[\w-]{20})[\w-]*|"
            r"hvs\.[\w-]{20,}|dckr_pat_[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}|npm_[A-Za-z0-9]{30,}|"
            # Names of hosts may begin so too, and have no capitals.
            r"(?:pypi|nvapi)-(?=[\w-]*[A-Z])[\w-]{20,}|AIza[\w-]{30,}|"
            r"AGE-SECRET-KEY-1[A-Z0-9]{20,})"
        ),
        _always, _at(*_TOKENS),
    ),
    (_pattern(r"(?P<s>\$(?:1|2[aby]|5|6|y|apr1|argon2(?:i|d|id))\$[\w./$=,+]{16,})"), _always, _at("$")),
    (_pattern(r"(?i)\bhooks\.slack\.com/services/(?P<s>[\w/-]{8,})"), _always, _at("hooks.slack.com/services/")),
    # Those of a cluster that a node joins, where a word says what it is.
    (
        _pattern(r"(?i)\btoken\b[^\n]{0,40}?(?<![\w.-])(?P<s>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])"),
        _always, _at("token"),
    ),
    (
        _pattern(r"(?i)\blicen[cs]e key[ \t]*(?:is|[:=])?[ \t]*\"?(?P<s>(?=[A-Za-z-]*\d)[A-Za-z0-9-]{8,})"),
        _always, _at("license key", "licence key"),
    ),
    # Options whose value is the next word, in a command line and in a list of words.
    (
        _pattern(
            r"(?i)(?<!\S)(?=-)%s%s[ \t]+%s(?!-)(?:\"(?P<double>[^\"\n]*)|'(?P<single>[^'\n]*)|(?P<s>[^\s\"']+))"
            % (_KEY, _PROSE, _NOT)
        ),
        _always, _names(first="-"),
    ),
    (_pattern(r"(?i)([\"'])(?=-)[\w.-]*%s\1,\s*([\"'])(?!-)(?P<s>(?:(?!\2)[^\n])+)" % _WORD), _always, _names("\"'")),
    (
        _pattern(r"(?<!\S)(?:-[uU]|--user|--proxy-user)[ =](?P<s>[^\s:/\"'*]+:[^\s\"']+)"),
        _is_user, _at("-u ", "-u=", "--user ", "--user=", "--proxy-user ", "--proxy-user="),
    ),
    # Programs with a short option for a password, and configurations with a word before it.
    (
        _pattern(
            r"\b(?:sshpass[ \t]+-p|"
            r"(?:docker|podman|nerdctl|skopeo|buildah|helm(?:[ \t]+registry)?)[ \t]+login\b[^\n;|&]{0,200}?[ \t]-p|"
            r"ipmitool\b[^\n;|&]{0,200}?[ \t]-P|(?:mysql|mysqldump|mariadb)\b[^\n;|&]{0,200}?[ \t]-p(?=\S))"
            r"[ \t]*(?P<s>[^\s\"'*;|&]+)"
        ),
        _always, _programs,
    ),
    (
        _pattern(r"(?m)^[ \t]*(?:bindpw|r[ow]community6?)[ \t]+(?P<s>[^\s*]\S*)"),
        _always, _lines_with("bindpw", "rocommunity", "rwcommunity"),
    ),
    (_pattern(r"(?i)<%s>(?P<s>[^<\n]+)</" % _KEY), _always, _names("<")),
    # Names with their values: a block of YAML, a word "NAME=value of words", texts, lists, the rest of a line, a word.
    (
        _pattern(
            r"(?im)^(?P<indent>[ \t]*)(?:- +)?[\"']?%s[\"']?[ \t]*:[ \t]*[|>][0-9+-]*[ \t]*\n"
            r"(?P<s>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+)" % _KEY
        ),
        _always, _lines_of_names,
    ),
    (
        _pattern(r"(?i)([\"'])%s=%s(?P<s>(?:(?!\1)[^\n\\*]|\\.)(?:(?!\1)[^\n\\]|\\.)*)\1" % (_KEY, _NOT)),
        _always, _names("\"'"),
    ),
    (
        _pattern(
            r"(?is)%s(?:\\?[\"'])?[ \t]*(?:=>?|:)[ \t]*(?:%s|%s|%s)" % (_KEY, _TRIPLE, _ESCAPED, _STRING)
        ),
        _is_text, _names(),
    ),
    (
        _pattern(r"(?i)%s(?:\\?[\"'])?\s*(?:=>?[ \t]*|:\s*)(?:%s|\{(?P<s>[^}\n]{0,300}\n[^}]*))" % (_KEY, _LISTED)),
        _always, _names(),
    ),
    (
        _pattern(
            r"(?im)^[-+ \t]*(?:export[ \t]+)?[\"']?%s[\"']?(?:[ \t]+=[ \t]*|[ \t]*:(?=[ \t])%s[ \t]+)%s"
            r"(?P<s>[^\s\"'\[{|>&*\\,/](?:[^\n#,;}\"'\\]|(?<!\s)[#,;}\\])*[^\s,;}\"'])" % (_KEY, _PROSE, _NOT)
        ),
        _always, _lines_of_names,
    ),
    (
        _pattern(
            r"(?i)%s(?:\\?[\"'])?[ \t]*(?:=>?%s|:(?!//)%s)[ \t]*%s"
            r"(?P<s>(?:[^\s\"'\[{|>*\\,;&/]|/(?=\S*[+=]))(?:[^\s\"'\\]*[^\s\"'\\,;.)}\]])?)"
            % (_KEY, _NEXT, _PROSE, _NOT)
        ),
        _always, _names(),
    ),
)  # fmt: skip


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
    looked = _Looked(text, set())
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
            looked = _Looked("".join([*parts, looked.text[end:]]), looked.absent)
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

    def named(name: t.Any, item: t.Any) -> t.Any:
        """What has a name that may be that of a secret; a number may be a password too."""
        text = isinstance(item, (str, int)) and not isinstance(item, bool) and item not in ("", 0, MASK)
        if not text or not isinstance(name, str) or not names_secret(name):
            return _masked(item, note)
        note(str(item))
        return MASK

    if isinstance(value, str):
        return _replace(value, note)
    if isinstance(value, dict):
        shown = {key: named(key, item) for key, item in value.items()}
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
