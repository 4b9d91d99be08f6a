"""Progress on stderr: one status line that is replaced on a terminal, plain lines elsewhere (CI logs)."""

import shutil
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from perfci.report.names import plain_lines

QUIET_S = 10.0
"""A log that is silent for so long is told what is going on."""


class Alarm(Protocol):
    """What ``threading.Timer`` can do."""

    daemon: bool

    def start(self) -> None:
        """Begin to count."""

    def cancel(self) -> None:
        """Do not ring."""


class StderrProgress:
    """Implements pipeline.Progress. In a log a status is written only when nothing else was for ``QUIET_S`` seconds:
    the line that says that a launch is done would repeat it."""

    def __init__(self, alarm: Callable[[float, Callable[[], None]], Alarm] = threading.Timer) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False
        self._alarm = alarm
        self._waiting: Alarm | None = None
        self._status = ""
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Write one line that stays."""
        with self._lock:
            self._clear()
            print(plain_lines(text), file=sys.stderr, flush=True)

    def status(self, text: str) -> None:
        """Show what is going on."""
        text = plain_lines(text)
        with self._lock:
            self._clear()
            if self._terminal:
                print(text[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)
                self._shown = True
                return
            self._status = text
            self._waiting = self._alarm(QUIET_S, self._ring)
            self._waiting.daemon = True
            self._waiting.start()

    def _ring(self) -> None:
        with self._lock:
            if self._status:
                print(f"now: {self._status}", file=sys.stderr, flush=True)
                self._status = ""

    def _clear(self) -> None:
        self._status = ""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr)
            self._shown = False
