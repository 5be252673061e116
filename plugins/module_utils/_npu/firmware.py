# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firmware of the cards: flashed while the driver is unloaded, with a result for each card."""

from __future__ import annotations

import re
import typing as t

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._host.host import ABSENT, TIMEOUT, Host
from .pci import normalise_address
from .smi import find_program

PROGRAM_DIRS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
LINE = re.compile(r"^\W*((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s*:\s*(\S.*?)\s*$", re.I | re.M)
GOOD = re.compile(r"\bSUCCESS\b", re.I)
BAD = re.compile(r"\b(?:UN)?(?:FAIL|ERROR|TIMEOUT|ABORT|NOT)", re.I)
TAIL = 1000
LIMIT = 4 * 3600.0

Card = t.Dict[str, t.Any]


class FlashFailed(NpuError):
    """Flashing failed. `cards` are the known results, as flash() gives them; `hung`: it did not end."""

    def __init__(self, message: str, next_step: str, cards: t.Sequence[Card] = (), hung: bool = False) -> None:
        super().__init__(message, next_step)
        self.cards, self.hung = list(cards), hung


def told(cards: t.Sequence[Card]) -> str:
    """Which cards have new firmware and which have not, as a sentence for people."""
    if not cards:
        return "Which cards were flashed is not known."
    good, bad = [", ".join(card["address"] for card in cards if card["ok"] is ok) for ok in (True, False)]
    parts = ["these cards were flashed: %s" % good if good else "no card is known to be flashed"] + (
        ["these were not: %s" % bad] if bad else []
    )
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def parse_summary(text: str) -> list[Card]:
    """Lines such as `0000:83:00.0 : SUCCESS [O]` that the flashing tool printed: [{address, ok, detail}].

    The last line of a card counts; `ok` is true only for the word SUCCESS without any word of failure.
    """
    found: dict[str, Card] = {}
    for address, said in LINE.findall(text):
        key = normalise_address(address) or address
        found[key] = {"address": key, "ok": bool(GOOD.search(said)) and not BAD.search(said), "detail": said}
    return list(found.values())


def flash(host: Host, profile: VendorProfile, directory: str, timeout: float = LIMIT) -> list[Card]:
    """Flash all cards from the files in `directory` on the host: [{address, ok, detail}].

    A tool that is cut off may leave a card that does not start again: `timeout`, in seconds, is the very last resort.

    The driver has to be unloaded. NpuError, before anything is flashed, when it is loaded, the tool is missing or the
    directory is empty; FlashFailed when a card fails, with the result of each.
    """
    if host.listdir("/sys/module/" + profile.module).state != ABSENT:
        raise NpuError(
            "The module %s is loaded, or its state is not known." % profile.module,
            "Unload it first: modprobe -r %s." % profile.module,
        )
    program = find_program(host, profile.flash_tool, PROGRAM_DIRS)
    if program is None:
        raise NpuError("%s is not on this host." % profile.flash_tool, "Install the driver's tools.")
    names = host.listdir(directory)
    if not names.get([]):
        raise NpuError(
            "%s holds no firmware%s." % (directory, "" if names.ok else " (%s)" % names.detail),
            "Give the directory of the firmware files.",
        )
    done = host.run([program] + [word.replace("{directory}", directory) for word in profile.flash_args], timeout)
    if done.state == TIMEOUT:
        raise FlashFailed(
            "Flashing did not end: %s." % done.detail,
            "The driver is left unloaded. See what the cards say (%s), "
            "and ask the vendor's support before they are reset or powered off." % program,
            hung=True,
        )
    if not done.ok:
        raise NpuError("%s cannot be run: %s." % (program, done.detail), "Install the driver's tools and run as root.")
    said = done.value.out + "\n" + done.value.err
    cards = parse_summary(said)
    if done.value.rc != 0 or not cards or not all(card["ok"] for card in cards):
        bad = "; ".join("%s: %s" % (card["address"], card["detail"]) for card in cards if not card["ok"])
        why = bad or " ".join(said.split())[-TAIL:] or "nothing was printed"
        raise FlashFailed(
            "Flashing ended with code %d: %s. %s" % (done.value.rc, why.rstrip("."), told(cards)),
            "While the driver is unloaded and before anything uses the cards, flash by hand those that failed.",
            cards,
        )
    return cards
