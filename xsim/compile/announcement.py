"""Says on a terminal what is traced and compiled where it takes more than two seconds, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager

__all__ = ["Announcement", "announce", "announced"]

PATIENCE = 2.0
"""Time without a word, s."""
PERIOD = 1.0
"""Time between two updates of the line, s."""


class Announcement:
    """A line on a terminal about a compilation in progress; none where stderr is no terminal. what: is compiled."""

    current: Announcement | None = None

    def __init__(self, what: str):
        self.what, self.began, self._ended = what, time.monotonic(), threading.Event()
        self._stream = sys.stderr
        self._thread = threading.Thread(target=self._show, daemon=True) if self._stream is not None and self._stream.isatty() else None
        if self._thread is not None:
            self._thread.start()

    def _show(self) -> None:
        shown, wait = False, PATIENCE
        while not self._ended.wait(wait):
            shown, wait = True, PERIOD
            self._write(f"compiling {self.what} ... {self.seconds:.0f} s", "")
        if shown:
            self._write(f"compiled {self.what} in {self.seconds:.1f} s", "\n")

    def _write(self, text: str, end: str) -> None:
        self._stream.write(f"\r\x1b[Kxsim: {text}{end}")  # at the start of the line, whose rest is cleared
        self._stream.flush()

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.began

    def end(self) -> None:
        """The program is there."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()


def announce(what: str) -> None:
    """Begin an announcement, unless there is one."""
    if Announcement.current is None:
        Announcement.current = Announcement(what)


@contextmanager
def announced(what: str | None = None):
    """Context that ends the announcement that begins in it. what: begins at once; None: where `announce` is called."""
    before = Announcement.current
    if what is not None:
        announce(what)
    try:
        yield
    finally:
        begun = Announcement.current
        if begun is not None and begun is not before:
            Announcement.current = None
            begun.end()
