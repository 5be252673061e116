# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs of life: one line for everything that is under way, whoever began it. Runs on any Python >= 3.8.

On a terminal the line is written over each second. Elsewhere it is a line of its own after ten seconds, and then every
half minute. It goes to stderr.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
import typing as t


class _Act:
    """What is under way: its name, the seconds that it usually takes (0: not known), and what it does now."""

    def __init__(self, what: str, usual: float, now: t.Callable[[], str] | None, due: float) -> None:
        self.what, self.usual, self.now = what, usual, now
        self.began = time.monotonic()
        self.due = self.began + due

    def __str__(self) -> str:
        usual = " of about %.0f s" % self.usual if self.usual else ""
        now = ", " + self.now() if self.now else ""
        return "%s: %.0f s%s%s" % (self.what, time.monotonic() - self.began, usual, now)


class Signs:
    """Everything that is under way in this process."""

    def __init__(self, first: float = 10, beat: float = 30, pause: float = 1) -> None:
        self._first, self._beat, self._pause = first, beat, pause
        self._lock = threading.RLock()
        self._acts: list[_Act] = []
        self._teller: threading.Thread | None = None

    def tell(self, text: str, stream: t.TextIO | None = None) -> None:
        """Print whole lines, on stdout unless a stream is named, in the place of the line that is written over."""
        with self._lock:
            self._clear()
            print(text, file=stream or sys.stdout, flush=True)

    @contextlib.contextmanager
    def ticking(self, what: str, usual: float = 0, now: t.Callable[[], str] | None = None) -> t.Iterator[None]:
        """Tell of it while it lasts; what usually takes more than ten seconds is said before it begins."""
        act = _Act(what, usual, now, self._first)
        with self._lock:
            self._acts.append(act)
            if usual > self._first and not sys.stderr.isatty():
                self._line("%s, about %.0f s" % (what, usual))
            if self._teller is None:
                self._teller = threading.Thread(target=self._run, daemon=True)
                self._teller.start()
        try:
            yield
        finally:
            with self._lock:
                self._acts.remove(act)
                self._clear()

    def _run(self) -> None:
        while True:
            time.sleep(self._pause)
            with self._lock:
                if not self._acts:
                    self._teller = None
                    return
                self._show()

    def _show(self) -> None:
        # What began last is what the reader waits for.
        now, text = time.monotonic(), "; ".join(map(str, reversed(self._acts)))
        if sys.stderr.isatty():
            self._clear()
            sys.stderr.write(text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()
        elif any(act.due <= now for act in self._acts):
            self._line(text)
            for act in self._acts:
                act.due = now + self._beat

    @staticmethod
    def _line(text: str) -> None:
        print("%s %s" % (time.strftime("%H:%M:%S"), text), file=sys.stderr, flush=True)

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


SIGNS = Signs()
tell, ticking = SIGNS.tell, SIGNS.ticking
