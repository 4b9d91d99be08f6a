"""Progress on stderr: one status line that is replaced on a terminal, plain lines elsewhere (CI logs)."""

import shutil
import sys
import time


class StderrProgress:
    """Implements pipeline.Progress. In a log the status is written at most every ``every_s`` seconds."""

    def __init__(self, *, every_s: float = 10.0) -> None:
        self._terminal = sys.stderr.isatty()
        self._every_s = every_s
        self._last_status_s = float("-inf")
        self._shown = False

    def line(self, text: str) -> None:
        """Write one line that stays."""
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def status(self, text: str) -> None:
        """Show what is going on."""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._clear()
            print(text[:width], end="", file=sys.stderr, flush=True)
            self._shown = True
        elif time.monotonic() - self._last_status_s >= self._every_s:
            self._last_status_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr)
            self._shown = False
