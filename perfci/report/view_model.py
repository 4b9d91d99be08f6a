"""The ReportView and its parts: everything a format draws, as text, with the value behind each."""

import math
from dataclasses import dataclass

from perfci.model.comparison import Comparison, KernelChange, Row, WorkloadComparison
from perfci.model.finding import Finding
from perfci.model.metrics import Kind
from perfci.model.verdict import Verdict
from perfci.report.charts import BarChart, Strip
from perfci.report.context import ReportContext
from perfci.report.wording import Status, flag_legend


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """One row as text. ``change`` is the point, ``interval`` its interval (empty when exact or not computable);
    ``mde`` is ``exact`` for counts that need no statistics."""

    phase: str
    metric: str
    title: str
    status: Status
    baseline: str
    candidate: str
    change: str
    interval: str
    mde: str
    budget: str
    reason: str
    flags: tuple[str, ...]
    source: Row

    @property
    def one_sided(self) -> bool:
        """True for a metric that only one side has: vanished or new."""
        return (self.source.baseline.location is None) != (self.source.candidate.location is None)

    @property
    def only_value(self) -> str:
        """The value of a one-sided metric, on the side that has it."""
        return self.baseline if self.source.candidate.location is None else self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding as text. ``standing``: new, worse than on the baseline, or on both sides;
    "present" where no run of the baseline was there to tell."""

    rule: str
    phase: str
    title: str
    subject: str
    evidence: tuple[tuple[str, str], ...]
    confidence: str
    advice: str
    standing: str
    location: str
    docs: str
    source: Finding

    @property
    def telling(self) -> bool:
        """True when it can explain a change: new or worse on the candidate."""
        return self.source.new or self.source.worsened


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """A changed kernel as text, per step."""

    phase: str
    name: str
    change: str
    launches: tuple[str, str]
    time: tuple[str, str]
    delta: str
    location: str
    source: KernelChange


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView:
    """One line of the environment table; ``in_key`` lines must be equal for a comparison."""

    title: str
    baseline: str
    candidate: str
    in_key: bool
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteView:
    """A note as text."""

    code: str
    text: str
    spoils: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """One workload. ``checks`` are the gated rows, worst first; ``evidence`` the others in natural order."""

    name: str
    status: Status
    override: Status | None
    headline: str
    launches: tuple[int, int]
    checks: tuple[RowView, ...]
    evidence: tuple[RowView, ...]
    findings: tuple[FindingView, ...]
    kernels: tuple[KernelView, ...]
    environment: tuple[EnvironmentView, ...]
    differences: tuple[str, ...]
    notes: tuple[NoteView, ...]
    bars: tuple[BarChart, ...]
    strips: tuple[Strip, ...]
    source: WorkloadComparison

    @property
    def headline_body(self) -> str:
        """The headline without its leading verdict."""
        return self.headline.partition(": ")[2]

    @property
    def rows(self) -> tuple[RowView, ...]:
        """All rows: gated and evidence."""
        return (*self.checks, *self.evidence)

    @property
    def one_sided(self) -> tuple[RowView, ...]:
        """Vanished and new metrics, gated or not."""
        return tuple(row for row in self.rows if row.one_sided)

    def split_passed(self, limit: int) -> tuple[tuple[RowView, ...], tuple[RowView, ...]]:
        """The checks to show first and those to fold away: about ``limit`` in sight, but only PASS is ever folded."""
        passed = [row for row in self.checks if row.status is Status.PASS]
        others = [row for row in self.checks if row.status is not Status.PASS]
        room = max(limit - len(others), 0)
        return (*others, *passed[:room]), tuple(passed[room:])

    @property
    def undecided(self) -> tuple[RowView, ...]:
        """Checks without an answer of their own, worst first; none when the workload as a whole has none."""
        if self.override is not None:
            return ()
        return tuple(row for row in self.checks if row.status in (Status.INCONCLUSIVE, Status.NOT_MEASURED))

    @property
    def telling_evidence(self) -> tuple[RowView, ...]:
        """Evidence beyond the noise (its interval leaves out zero, or an exact count that changed), largest first."""
        rows = [row for row in self.evidence if _beyond_noise(row.source)]
        return tuple(sorted(rows, key=lambda row: -_size(row.source)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionView:
    """One side."""

    label: str
    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """The whole report. ``counts`` lists how many checks ended in each status, worst first: the same statuses that
    the rows and overrides of the workloads show. ``workloads`` are worst first."""

    status: Status
    verdict: Verdict
    headline: str
    baseline: RevisionView
    candidate: RevisionView
    counts: tuple[tuple[Status, int], ...]
    error_rate: str
    notes: tuple[NoteView, ...]
    workloads: tuple[WorkloadView, ...]
    context: ReportContext
    source: Comparison

    @property
    def shows_mde(self) -> bool:
        """True when a check has a minimum detectable effect, whose name readers must be told."""
        return any(row.source.mde_ratio is not None for workload in self.workloads for row in workload.checks)

    def flag_legend(self, *, evidence: bool) -> tuple[tuple[str, str], ...]:
        """The flags of all checks, and of ``evidence`` without a gate where it is shown in full, with their meaning."""
        rows = (row for workload in self.workloads for row in (workload.rows if evidence else workload.checks))
        return flag_legend(flag for row in rows for flag in row.flags)

    @property
    def headline_lead(self) -> str:
        """The verdict that the headline starts with, as words: ``No regression``."""
        return self.headline.partition(": ")[0]

    @property
    def headline_body(self) -> str:
        """The headline without its leading verdict, for places that show the verdict beside it."""
        return self.headline.partition(": ")[2]


def _beyond_noise(row: Row) -> bool:
    if row.effect is None:
        before, after = row.baseline.location, row.candidate.location
        return row.kind is Kind.EXACT and before is not None and after is not None and before != after
    if row.effect.low_ratio == row.effect.high_ratio and row.kind is Kind.NOISY:
        return False
    return row.effect.low_ratio > 0 or row.effect.high_ratio < 0


def _size(row: Row) -> float:
    return math.inf if row.effect is None else abs(row.effect.value_ratio)
