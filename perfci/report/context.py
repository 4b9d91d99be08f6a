"""What a reporter needs besides the comparison. Handed in: renderers read no clock and no environment."""

from dataclasses import dataclass
from datetime import datetime

MIN_WIDTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link the report may show. Only http, https and relative addresses are drawn as links."""

    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """Facts about this report: how to reproduce it, where to read on, when and by which perfci it was made.

    ``reproduce`` holds shell commands, one each. ``color`` and ``width`` (columns) matter to text only; see
    ``terminal.fit_to``.
    """

    perfci_version: str
    generated_at: datetime | None = None
    reproduce: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    color: bool = False
    width: int = 100

    def __post_init__(self) -> None:
        if self.generated_at is not None and self.generated_at.tzinfo is None:
            raise ValueError("generated_at must carry a time zone")
        if self.width < MIN_WIDTH:
            raise ValueError(f"width must be at least {MIN_WIDTH} columns, got {self.width}")
