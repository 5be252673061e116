# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of secrets, and where in a text the rules of `mask` may begin."""

from __future__ import annotations

import functools
import re
import typing as t

# The last ones are Korean, Japanese and Chinese: a password.
WORD = (
    r"(?:(?<!by)(?<!com)pass(?:words?|wort|wd|phrase|code)?|kennwort|pwd|psk|rootpw|auth|authorization|authtok|bearer|"
    r"credential(?:s(?!: ))?|creds|token|secret|access[_-]?key[_-]?id|client-key-data|dockerconfigjson|dockercfg|"
    r"art-api|"
    r"(?:private|api|access|secret|licen[cs]e|signing|encryption|activation|product|account|shared|session|master|"
    r"fernet|luks|hmac|jwt)[._-]?key|secret_key_base|\ube44\ubc00\ubc88\ud638|\uc554\ud638|\ud328\uc2a4\uc6cc\ub4dc|"
    r"\u30d1\u30b9\u30ef\u30fc\u30c9|\u5bc6\u7801|\u5bc6\u78bc)"
)


def pattern(text: str) -> functools.partial[re.Pattern[str]]:
    """Compiled at its first use, and kept by `re`: most processes need none of them."""
    return functools.partial(re.compile, text)


# What is in each name of a secret, a name as a whole, and what begins or ends a login before an @.
_ROOTS = (
    "pass", "pwd", "psk", "rootpw", "auth", "bearer", "credential", "creds", "token", "secret", "key", "dockerc",
    "art-api", "\ube44\ubc00\ubc88\ud638", "\uc554\ud638", "\ud328\uc2a4\uc6cc\ub4dc",
    "kennwort", "\u30d1\u30b9\u30ef\u30fc\u30c9", "\u5bc6\u7801", "\u5bc6\u78bc",
)  # fmt: skip
LONGEST_NAME = 160
_NAME = pattern(r"(?i)[\w.-]{0,128}?%s\Z" % WORD)
_LOGIN = pattern(r":\\{0,3}/\\{0,3}/(?=[^\s\"<>][^\s\"<>@]{0,1201}@)")
_AT = pattern(r"@(?!sha\d+:)(?=[\w.\[-])")

Starts = t.Optional[t.Iterable[int]]


class Looked:
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


def at_words(*words: str, back: tuple[int, ...] = (0,)) -> t.Callable[[Looked], Starts]:
    """A rule that begins with one of the words, or so many characters before it."""

    def starts(looked: Looked) -> Starts:
        found = looked.hits(*words)
        return found if back == (0,) else sorted({at - one for at in found for one in back if at >= one})

    return starts


def lines_with(*words: str) -> t.Callable[[Looked], Starts]:
    """A rule that begins with the line of a word."""
    return lambda looked: list(dict.fromkeys(map(looked.line_of, looked.hits(*words))))


def anywhere(*words: str) -> t.Callable[[Looked], Starts]:
    """A rule that is searched for in all of a text that has one of the words."""
    return lambda looked: None if any(word in looked.low for word in words) else ()


def in_text(looked: Looked) -> Starts:
    """The end of a key, in text that begins within it."""
    return (0,) if "-----end " in looked.low else ()


def names(after: str = "", first: str = "") -> t.Callable[[Looked], Starts]:
    """A rule that begins with a name, the sign before it that is one of `after`; `first` begins the name."""

    def starts(looked: Looked) -> Starts:
        text = looked.text
        found = [at for at in looked.names() if not first or text[at] == first]
        return [at - 1 for at in found if at and text[at - 1] in after] if after else found

    return starts


def lines_of_names(looked: Looked) -> Starts:
    return list(dict.fromkeys(map(looked.line_of, looked.names())))


def addresses(looked: Looked) -> Starts:
    """Where the scheme of an address may begin that has an @ after it."""
    if "@" not in looked.low:
        return ()
    found: list[int] = []
    for one in _LOGIN().finditer(looked.text):
        at = one.start()
        found += range(max(looked.before(at, max(0, at - 31), "+.-"), found[-1] + 1 if found else 0), at)
    return found


def logins(looked: Looked) -> Starts:
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


def lines_before_names(looked: Looked) -> Starts:
    """The line before that of a name."""
    lines = [looked.line_of(at) for at in looked.names()]
    return list(dict.fromkeys(looked.line_of(at - 1) for at in lines if at))


def quoted(looked: Looked, places: t.Iterable[int]) -> Starts:
    """Where the quotes that begin at these places may begin, with the backslashes before them."""
    found: set[int] = set()
    for at in places:
        start = at
        while start > 0 and at - start < 15 and looked.text[start - 1] == "\\":
            start -= 1
        found.update(range(start, at + 1))
    return sorted(found)


def quoted_names(looked: Looked) -> Starts:
    text = looked.text
    return quoted(looked, [at - 1 for at in looked.names() if at > 2 and text[at - 2 : at] == '\\"'])


def in_secrets(*words: str, in_quotes: bool = False) -> t.Callable[[Looked], Starts]:
    """A rule for the data of an object of the kind Secret: the line of a word, or its quote."""

    def starts(looked: Looked) -> Starts:
        if "secret" not in looked.low:
            return ()
        return quoted(looked, looked.hits(*words)) if in_quotes else lines_with(*words)(looked)

    return starts


def programs(looked: Looked) -> Starts:
    """Programs with a short option for a password; most are only asked for where a login is."""
    logins = ("docker", "podman", "nerdctl", "skopeo", "buildah", "helm") if "login" in looked.low else ()
    return looked.hits("sshpass", "ipmitool", "mysql", "mariadb", "curl", *logins)
