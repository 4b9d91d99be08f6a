"""A change of level in the history of one series: where, how much, how sure."""

import math
from dataclasses import dataclass

from perfci.model.comparison import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """What was measured of one revision: one value per launch. Empty: the revision was not measured (a gap).

    Entries stand in the order of the main line, oldest first. Values are in the metric's unit.
    """

    revision: str
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.revision}: history holds a value that is not finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A stretch of history without a change: entries ``first`` to ``last`` (indices, both included), ``count`` of them
    measured. ``value`` is the level in the metric's unit, robust against single wild entries."""

    first: int
    last: int
    count: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The level changed after ``last_good`` and at the latest in ``first_bad`` (indices of entries, both measured).

    The likeliest first entry of the new level is ``index``; last_good < index <= first_bad. The words *good* and *bad*
    follow the order of time, not the direction of the change. ``effect`` is after / before − 1 and ``standing`` the
    newest level of the history over ``before`` − 1: where a regression was partly taken back, ``standing`` is what is
    left of it. Both are None when the level before is not above 0, or a ratio would be beyond all numbers; then
    ``difference`` speaks. ``p_value`` is the
    chance to see such a change anywhere in an unchanging stretch of this length.
    """

    index: int
    last_good: int
    first_bad: int
    before: Level
    after: Level
    effect: Effect | None
    standing: Effect | None
    p_value: float

    def __post_init__(self) -> None:
        if not self.last_good < self.index <= self.first_bad:
            raise ValueError(f"wanted last_good < index <= first_bad: {self.last_good}, {self.index}, {self.first_bad}")

    @property
    def difference(self) -> float:
        """Level after minus level before, in the metric's unit."""
        return self.after.value - self.before.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReport:
    """All levels of a history in order, and the changes between neighbours: one fewer. No measured entry: no level."""

    levels: tuple[Level, ...] = ()
    changes: tuple[ChangePoint, ...] = ()

    def __post_init__(self) -> None:
        if len(self.changes) != max(0, len(self.levels) - 1):
            raise ValueError("wanted one change between each two neighbouring levels")
