"""What the database gives back beside runs: points of history, noise, stored comparisons, accepted regressions."""

import math
from dataclasses import dataclass
from datetime import datetime

from perfci.model.comparison import Comparison
from perfci.model.metrics import METRICS, Statistic


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """The sample of one run in the history of one (workload, phase, metric), in the metric's unit.

    ``commit`` is None for imports under a label; ``key_hash`` names the comparability key: points of different keys
    must not be put on one line.
    """

    run_id: str
    revision: str
    """Identity of the revision: equal exactly for equal code."""
    label: str
    commit: str | None
    started_at: datetime
    key_hash: str
    sample: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSample:
    """The sample of one launch in one series, by the metric's own statistic and in its unit. Launches of equal
    ``revision`` and ``schedule`` are of equal code and one session."""

    phase: str
    metric: str
    revision: str
    schedule: str
    sample: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLevel:
    """Noise of one series between launches of equal code, as standard deviations of log samples (0.01 is about 1 %).

    ``deviation`` is what was seen within sessions, ``upper`` its upper confidence bound (the floor to judge with),
    ``session`` an upper bound of the deviation between sessions beyond that (None: not known). ``calibrated`` is False
    for a level that history tells, and no calibration.
    """

    phase: str
    metric: str
    statistic: Statistic
    deviation: float
    upper: float
    launches: int
    session: float | None = None
    calibrated: bool = True

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}")
        for value in (self.deviation, self.upper, self.session):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{self.phase}/{self.metric}: deviations must be finite and not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A comparison with its content address and when it was stored first."""

    comparison_id: str
    stored_at: datetime
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Somebody took regressions of one commit on themselves, with a reason.

    ``regressions`` are (workload, phase, metric). ``source`` names where it was written (for example ``comment:17``);
    within a repository one source acknowledges once.
    """

    repository: str
    head_sha: str
    regressions: tuple[tuple[str, str, str], ...]
    reason: str
    author: str
    source: str
    accepted_at: datetime
    pull_request: int | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("an acknowledgement needs a reason")
        if not self.source or not self.head_sha:
            raise ValueError("an acknowledgement needs its source and the commit it is about")
        if self.accepted_at.tzinfo is None:
            raise ValueError("accepted_at must carry a time zone")
