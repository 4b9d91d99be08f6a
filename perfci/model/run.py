"""The run: one process launch of one workload at one revision in one environment. Immutable; the unit of inference."""

import math
from dataclasses import dataclass
from datetime import datetime

from perfci.model.environment import Environment
from perfci.model.finding import Finding
from perfci.model.metrics import METRICS, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What was measured. ``label`` is what the user wrote or a short hash; ``commit`` the full hash when git knows it.

    ``tree`` hashes the content, so that a dirty tree (commit plus uncommitted changes) has an identity of its own.
    """

    label: str
    commit: str | None = None
    tree: str | None = None
    dirty: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            raise ValueError("a revision needs a label")

    @property
    def identity(self) -> str:
        """Equal exactly for equal code: the commit, ``commit+dirty.tree`` for a dirty tree, or the label of an
        import."""
        if self.commit is None:
            return f"label:{self.label}"
        return f"{self.commit}+dirty.{self.tree}" if self.dirty else self.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one metric in one phase, one per measured step (run-level metrics: exactly one value).

    Values are integers except for ratios and rates. A phase that has no such work has the value 0; a metric that
    could not be
    measured has no series. Phases missing in a step have 0 there for counts and GPU times (nothing ran).
    """

    phase: str
    metric: str
    values: tuple[int | float, ...]

    def __post_init__(self) -> None:
        spec = METRICS.get(self.metric)
        if spec is None:
            raise ValueError(f"unknown metric {self.metric!r}")
        if not self.phase:
            raise ValueError("a series needs a phase")
        if not self.values:
            raise ValueError(f"{self.phase}/{self.metric}: no values; leave the series out when it was not measured")
        if set(map(type, self.values)) == {int} and min(self.values) >= 0:
            return  # the usual case, without a step of Python for each of many values
        for value in self.values:
            if not math.isfinite(value):
                raise ValueError(f"{self.phase}/{self.metric}: {value} is not finite")
            if value < 0 and spec.name != "profiling_overhead_ratio":
                raise ValueError(f"{self.phase}/{self.metric}: {value} is negative")
            if spec.unit not in (Unit.RATIO, Unit.PER_SECOND) and not isinstance(value, int):
                raise ValueError(f"{self.phase}/{self.metric}: {value!r} must be an integer number of {spec.unit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStat:
    """One kernel (normalised name) in one phase: launches and total time over the measured window, all ranks."""

    phase: str
    name: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCallStat:
    """One CUDA API call name in one phase: calls and CPU time over the measured window, all ranks."""

    phase: str
    name: str
    count: int
    total_ns: int


LOSS_NOT_FINITE = "loss-not-finite"
"""Code of the note on a run that told a loss which is no finite number: it is in no list of losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader of the numbers must know: a fallback used, dropped steps, a spoiled launch.

    ``code`` is stable and machine-readable (kebab-case); ``text`` is for people. ``spoils`` marks a run that must
    not be judged.
    """

    code: str
    text: str
    spoils: bool = False


MOST_PLANNED_LAUNCHES = 10_000
"""A longer plan is no plan that anyone measures; the judge lays out every look of a plan, so it must end somewhere."""
MOST_SESSIONS = 1_000_000
"""No two revisions are measured more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Where in the measuring schedule the run stood.

    ``schedule`` names the interleaved session (empty: the run was not interleaved with another side), ``pair`` the
    pair in it and
    ``position`` the launch's place in the whole schedule, all from 0.
    """

    started_at: datetime
    duration_ns: int
    schedule: str = ""
    pair: int = 0
    position: int = 0
    seed: int | None = None
    plan: tuple[int, int] | None = None
    """Fewest and most launches per side that were planned for the schedule before it began: the judge's looks follow
    from them."""
    session: int | None = None
    """Which session of these two revisions the schedule is, from 1: the share of the error rate follows from it. None:
    not interleaved, or stored before sessions were counted."""

    def __post_init__(self) -> None:
        if self.plan is not None and not 1 <= self.plan[0] <= self.plan[1]:
            raise ValueError(f"wanted 1 <= fewest <= most planned launches, got {self.plan}")
        if self.plan is not None and self.plan[1] > MOST_PLANNED_LAUNCHES:
            raise ValueError(f"a plan of more than {MOST_PLANNED_LAUNCHES:,} launches per side is implausible")
        if self.session is not None and self.session < 1:
            raise ValueError(f"sessions count from 1, got {self.session}")
        if self.session is not None and self.session > MOST_SESSIONS:
            raise ValueError(f"more than {MOST_SESSIONS:,} sessions of two revisions are implausible")
        if self.started_at.tzinfo is None:
            raise ValueError("started_at must carry a time zone")
        if self.duration_ns < 0 or self.pair < 0 or self.position < 0:
            raise ValueError("launch numbers must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process launch. ``step_count`` is the number of measured profiled steps, equal to the length of every
    per-step trace series."""

    workload: str
    revision: Revision
    environment: Environment
    launch: Launch
    step_count: int
    series: tuple[Series, ...]
    kernels: tuple[KernelStat, ...] = ()
    api_calls: tuple[ApiCallStat, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Patterns that the rules saw in this run's trace alone."""
    losses: tuple[float, ...] = ()
    notes: tuple[Note, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Files that belong to the run (report, export, log), relative to the repository's ``.perfci`` directory."""

    def __post_init__(self) -> None:
        if not self.workload:
            raise ValueError("a run needs a workload")
        if self.step_count < 0:
            raise ValueError("step_count must not be negative")
        keys = [(s.phase, s.metric) for s in self.series]
        if len(keys) != len(set(keys)):
            raise ValueError("a run holds each (phase, metric) once")

    def series_of(self, phase: str, metric: str) -> Series | None:
        """The series of a metric in a phase, or None when it was not measured."""
        return next((s for s in self.series if s.phase == phase and s.metric == metric), None)

    @property
    def spoiled(self) -> bool:
        """True when a note forbids judging this run."""
        return any(note.spoils for note in self.notes)
