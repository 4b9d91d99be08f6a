"""A listener for what long work says."""


class Heard:
    """A Progress that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def status(self, text: str) -> None:
        """Not kept: it is gone with the next one."""
