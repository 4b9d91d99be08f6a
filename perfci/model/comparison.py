"""The outcome of a comparison: rows with effects and verdicts, findings that say why. What reports and GitHub speak
about."""

import math
from dataclasses import dataclass
from enum import StrEnum

from perfci.model.environment import Environment, KeyDifference
from perfci.model.finding import Finding, SourceLocation
from perfci.model.metrics import METRICS, Kind
from perfci.model.run import Note, Revision
from perfci.model.verdict import Tally, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Relative change candidate / baseline − 1 with its confidence interval; positive means more.

    ``low_ratio`` and ``high_ratio`` may be infinite when too few runs bound the effect on that side. ``confidence``
    is the nominal
    coverage, for example 0.99 (after family control). Exact comparisons have low = value = high and confidence 1.
    """

    value_ratio: float
    low_ratio: float
    high_ratio: float
    confidence: float

    def __post_init__(self) -> None:
        if math.isnan(self.value_ratio) or math.isinf(self.value_ratio):
            raise ValueError("an effect must be finite; leave it out when it is not computable")
        if not self.low_ratio <= self.value_ratio <= self.high_ratio:
            raise ValueError(f"wanted low <= value <= high, got {self.low_ratio} {self.value_ratio} {self.high_ratio}")
        if not 0 < self.confidence <= 1:
            raise ValueError("confidence must lie in (0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The samples of one side for one (phase, metric), in launch order, with their declared location. Empty: not
    measured on this side.

    ``spread_ratio`` is the coefficient of variation between launches (sample standard deviation over mean), None
    below two launches.
    """

    samples: tuple[float, ...] = ()
    location: float | None = None
    spread_ratio: float | None = None

    def __post_init__(self) -> None:
        if bool(self.samples) != (self.location is not None):
            raise ValueError("a side has a location exactly when it has samples")


class Reason(StrEnum):
    """Why a row ended in its verdict: stable codes; texts live in the reports."""

    EXACT_EQUAL = "exact-equal"
    EXACT_CHANGED = "exact-changed"
    WITHIN_BUDGET = "within-budget"
    BEYOND_BUDGET = "beyond-budget"
    IMPROVED = "improved"
    INTERVAL_TOO_WIDE = "interval-too-wide"
    TOO_FEW_LAUNCHES = "too-few-launches"
    BIMODAL = "bimodal"
    TREND = "trend"
    NOT_INTERLEAVED = "not-interleaved"
    VANISHED = "vanished"
    NEW = "new"
    NOT_MEASURED = "not-measured"
    BASELINE_ZERO = "baseline-zero"
    KEYS_DIFFER = "keys-differ"
    SPOILED = "spoiled"
    STAND_IN_TOO_FAR = "stand-in-too-far"
    NUMERICS_DIFFER = "numerics-differ"
    EVIDENCE_ONLY = "evidence-only"
    CUMULATIVE = "cumulative"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One (phase, metric) of one workload on both sides. ``gated`` rows decide; others are evidence and carry no
    verdict (None).

    ``mde_ratio`` is the smallest change these runs could have shown with the set power (None for exact metrics or
    when not estimable);
    ``launches_needed`` the launches per side that would decide an inconclusive row (None when not estimable).
    ``flags`` name oddities of the samples (bimodal, trend, outlier, …).
    """

    phase: str
    metric: str
    kind: Kind
    gated: bool
    baseline: Side
    candidate: Side
    effect: Effect | None
    verdict: Verdict | None
    reason: Reason
    budget_ratio: float | None = None
    mde_ratio: float | None = None
    launches_needed: int | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}")
        if self.gated != (self.verdict is not None):
            raise ValueError("exactly the gated rows carry a verdict")


class KernelChangeKind(StrEnum):
    """How a kernel differs between two sides."""

    NEW = "new"
    GONE = "gone"
    SLOWER = "slower"
    FASTER = "faster"
    MORE_LAUNCHES = "more-launches"
    FEWER_LAUNCHES = "fewer-launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """One kernel in one phase that changed, per step. ``delta_ns`` is candidate minus baseline time per step."""

    phase: str
    name: str
    kind: KernelChangeKind
    baseline_count: float
    candidate_count: float
    baseline_ns: float
    candidate_ns: float
    location: SourceLocation | None = None
    """Where the user's code asks for it, when that was found out."""

    @property
    def delta_ns(self) -> float:
        """Change of time per step, positive when slower."""
        return self.candidate_ns - self.baseline_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadComparison:
    """One workload on both sides."""

    workload: str
    rows: tuple[Row, ...]
    baseline_environment: Environment
    candidate_environment: Environment
    baseline_launches: int
    candidate_launches: int
    key_differences: tuple[KeyDifference, ...] = ()
    findings: tuple[Finding, ...] = ()
    kernel_changes: tuple[KernelChange, ...] = ()
    notes: tuple[Note, ...] = ()
    verdict_override: Verdict | None = None
    """A verdict for the workload as a whole where rows cannot speak: NOT_MEASURED, NOT_COMPARABLE, or INCONCLUSIVE
    (stand-in too far)."""

    @property
    def tally(self) -> Tally:
        """All verdicts of this workload. Without a gated row and without an override this is empty, that is
        NOT_MEASURED."""
        verdicts = [row.verdict for row in self.rows if row.verdict is not None]
        if self.verdict_override is not None:
            verdicts.append(self.verdict_override)
        return Tally.of(verdicts or [Verdict.NOT_MEASURED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All workloads of one pair of revisions: the answer to a pull request."""

    baseline: Revision
    candidate: Revision
    workloads: tuple[WorkloadComparison, ...]
    error_rate: float
    notes: tuple[Note, ...] = ()

    @property
    def tally(self) -> Tally:
        """The lossless join of all verdicts."""
        total = Tally.of(())
        for workload in self.workloads:
            total = total + workload.tally
        return total

    @property
    def verdict(self) -> Verdict:
        """The one verdict: the worst of all. With no workload it is NOT_MEASURED."""
        return self.tally.worst
