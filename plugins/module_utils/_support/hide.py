# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets and serial numbers out of all texts of one host or cluster.

Beyond what mask() hides in a text by itself: a secret that one text names is hidden in all others, where no name
stands before it, in every form in which a program may print it; and what is encoded in base64 is judged decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
import typing as t

from .._base.mask import MASK, forms, mask, noted

# Shorter ones, and plain words, would be masked in harmless lines of other texts.
SHORTEST = 8
MOST = 200
SERIAL = "SERIAL-"
DEPTH = 4
# In lines of 60 or more characters a value goes on in the next line.
_BLOB = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]*)*[A-Za-z0-9+/_-]{20,}={0,2}(?![A-Za-z0-9+/=])"
)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{3,}")
# Hardware has them after these names; the colon of a kernel message names a driver.
_NAMED = re.compile(
    r"(?i)(?P<name>(?<![A-Za-z0-9])(?:[a-z]+[ _-]?)?serial(?:[ _-]?(?:number|num|no))?|"
    r"(?<![\w.-])(?:sid|s/n|(?:[a-z]+_)?uuid))"
    r"(?P<sign>\\?[\"']?[ \t]*[:=]?[ \t]*\\?[\"']?)(?P<value>[A-Za-z0-9][A-Za-z0-9_.:-]{4,}[A-Za-z0-9])"
)
# One of these is in each of them, and in few lines of a log.
_NAMES = ("serial", "sid", "s/n", "uuid")
_DIGIT = re.compile(r"[0-9]")


def _decoded(text: str) -> str | None:
    """The text in base64, or None. What is packed in it is no text, and stands for a secret."""
    plain = re.sub(r"\s+", "", text).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    if data.startswith(_PACKED):
        return ""
    try:
        found = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return found if found.replace("\n", "").replace("\r", "").replace("\t", "").isprintable() else None


class Hider:
    """Judges texts one after the other, then hides in all of them what any of them has named.

    `serials` are those that are known; None keeps all serial numbers.
    """

    def __init__(self, serials: t.Iterable[str] | None = ()) -> None:
        self._serials: dict[str, str] | None = None
        if serials is not None:
            self._serials = {}
            for one in serials:
                self._pseudonym(one)
        self._secrets: set[str] = set()

    def know(self, secrets: t.Iterable[str]) -> None:
        """Secrets that were masked already, and are looked for in all texts."""
        self._secrets.update(secrets)

    def serials(self) -> list[str]:
        """Those that are known by now."""
        return list(self._serials or ())

    def note(self, text: str) -> str:
        """A text without the secrets that are found in it alone; they are kept for finish()."""
        masked, secrets = noted(text)
        self._secrets.update(secrets)
        masked = _BLOB.sub(self._blob, masked)
        if self._serials is not None:
            lines = zip(masked.split("\n"), masked.lower().split("\n"))
            masked = "\n".join(
                _NAMED.sub(self._named, line) if any(name in low for name in _NAMES) else line for line, low in lines
            )
        return masked

    def finish(self, texts: t.Mapping[str, str]) -> dict[str, str]:
        """The texts, noted before, without any secret or serial number that one of them has told."""
        known = sorted((one for one in self._secrets if is_telling(one)), key=len, reverse=True)
        if len(known) > MOST:
            # What mask() knows by its form is hidden in each text already.
            known = sorted(known, key=lambda one: mask(one) != one)[:MOST]
        told = sorted({form for one in known for form in forms(one) if len(form) >= SHORTEST}, key=len, reverse=True)
        rare = [one for one in self._serials or () if not _WORD.fullmatch(one)]
        found = {}
        for name, text in texts.items():
            for form in told:
                if form in text:
                    text = text.replace(form, MASK)
            if known:
                text = _BLOB.sub(lambda blob: self._repeats(blob.group(0), known), text)
            if self._serials:
                for one in rare:
                    text = text.replace(one, self._serials[one])
                text = _WORD.sub(lambda word: self._word(word.group(0)), text)
            found[name] = text
        return found

    def _blob(self, found: re.Match[str], depth: int = DEPTH) -> str:
        """A value in base64, masked where a secret is in it."""
        text = found.group(0)
        inner = _decoded(text)
        if inner is None:
            return text
        masked, secrets = noted(inner)
        deeper = _BLOB.sub(lambda one: self._blob(one, depth - 1), masked) if depth > 1 else masked
        if inner and deeper == inner:
            return text
        self._secrets.update(secrets)
        return re.sub(r"[^\n]+", MASK, text)

    def _repeats(self, text: str, known: t.Sequence[str]) -> str:
        inner = _decoded(text)
        return re.sub(r"[^\n]+", MASK, text) if inner and any(one in inner for one in known) else text

    def _pseudonym(self, serial: str) -> str:
        if self._serials is None:
            return serial
        return self._serials.setdefault(serial, "%s%d" % (SERIAL, len(self._serials) + 1))

    def _word(self, text: str) -> str:
        return (self._serials or {}).get(text, text)

    def _named(self, found: re.Match[str]) -> str:
        value = found.group("value")
        # A date, a version or a count is none, and a word of a sentence has no digit.
        if found.group("sign") == "" or not _DIGIT.search(value) or value.startswith(SERIAL):
            return found.group(0)
        sign = found.group("sign")
        # A number in JSON.
        quote = '"' if re.search(r"\"[ \t]*:[ \t]*$", sign) else ""
        return found.group("name") + sign + quote + self._pseudonym(value) + quote


def is_telling(secret: str) -> bool:
    """Whether a secret may be looked for where nothing names it: a plain short word or number may be anything."""
    plain = secret.strip()
    return len(plain) >= SHORTEST and not (plain.isalpha() and plain.islower() and len(plain) < 12) and "*" not in plain


def without_secrets(
    texts: t.Mapping[str, str], serials: t.Iterable[str] | None = (), secrets: t.Iterable[str] = ()
) -> dict[str, str]:
    """The texts of one host or cluster without secrets, and without serial numbers unless `serials` is None.

    `secrets` are those that were masked already, by what a text does not show.
    """
    hider = Hider(serials)
    hider.know(secrets)
    return hider.finish({name: hider.note(text) for name, text in texts.items()})


def masked_line(text: str) -> str:
    """One line for a record."""
    return mask(" ".join(text.split()))[:1000]
