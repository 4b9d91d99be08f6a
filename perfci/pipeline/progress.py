"""Where long work says what it does. The command line decides how it looks."""

from typing import Protocol


class Progress(Protocol):
    """Receives progress of long work."""

    def line(self, text: str) -> None:
        """One finished piece of news, kept in the log."""

    def status(self, text: str) -> None:
        """What is going on right now; replaces the last status on a terminal."""
