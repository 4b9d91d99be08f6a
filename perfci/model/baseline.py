"""A reviewed baseline: the levels of one workload in one environment that were accepted, by whom it matters, and
why."""

import math
from dataclasses import dataclass
from fractions import Fraction

from perfci.model.environment import Environment
from perfci.model.metrics import METRICS, Kind, Statistic
from perfci.model.run import Revision

ACCEPTED_ALONE = "accepted-level-alone"
"""Code of the note at a workload that was judged against accepted levels with no baseline run beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLevel:
    """The accepted level of one (phase, metric).

    Noisy metrics: ``location`` is the geometric mean of the launches (their unit: the metric's), ``deviation`` the
    standard deviation of their logarithms (None with one launch), ``session_deviation`` an upper bound of that between
    sessions of equal code, where history knows it. Exact counts: ``exact`` is the total per step, without rounding.
    ``budget_ratio`` is the sum of change accepted since then (None: the gate's own budget). ``statistic`` is what made
    the steps of a launch one sample, where that was a choice (None: the metric's own).
    """

    phase: str
    metric: str
    kind: Kind
    location: float
    launches: int
    exact: Fraction | None = None
    deviation: float | None = None
    session_deviation: float | None = None
    budget_ratio: float | None = None
    statistic: Statistic | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}")
        if (self.kind is Kind.EXACT) != (self.exact is not None):
            raise ValueError(f"{self.phase}/{self.metric}: exactly the exact counts carry an exact level")
        if self.statistic is not None and not METRICS[self.metric].may_be(self.statistic):
            raise ValueError(f"{self.phase}/{self.metric} cannot be judged by {self.statistic.value}")
        if not math.isfinite(self.location) or self.location < 0 or self.launches < 1:
            raise ValueError(f"{self.phase}/{self.metric}: a level needs a location of at least 0 and a launch")
        for value in (self.deviation, self.session_deviation, self.budget_ratio):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{self.phase}/{self.metric}: deviations and budgets must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedBaseline:
    """Accepted levels of one workload in one environment. ``reason`` says why they were accepted; ``accepted_on`` is an
    ISO date."""

    workload: str
    revision: Revision
    environment: Environment
    reason: str
    accepted_on: str
    step_count: int
    """Measured steps per launch: exact totals per step are comparable over equal windows only."""
    levels: tuple[PinnedLevel, ...]

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("a baseline needs the reason why it was accepted")
        keys = [(level.phase, level.metric) for level in self.levels]
        if len(keys) != len(set(keys)):
            raise ValueError("a baseline holds each (phase, metric) once")
