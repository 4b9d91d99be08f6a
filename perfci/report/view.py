"""The ReportView: everything a format draws, in words and readable units, built once from a comparison."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perfci.model.baseline import ACCEPTED_ALONE
from perfci.model.comparison import Comparison, KernelChange, Row, WorkloadComparison
from perfci.model.environment import ENVIRONMENT_FIELDS, Environment
from perfci.model.finding import Finding, Quantity, SourceLocation
from perfci.model.metrics import METRICS, Kind, Unit
from perfci.model.run import Note, Revision
from perfci.model.verdict import Verdict
from perfci.report.charts import BarChart, Strip, bar_charts, strips
from perfci.report.context import ReportContext
from perfci.report.headline import (
    comparison_headline,
    comparison_status,
    key_difference_text,
    workload_headline,
    workload_status,
)
from perfci.report.names import PROSE_LIMIT, clean
from perfci.report.quantities import (
    MISSING,
    NOT_COMPUTABLE,
    change_text,
    delta_text,
    interval_text,
    pair_texts,
    ratio_text,
    value_text,
)
from perfci.report.ranking import by_importance, natural_order
from perfci.report.wording import KERNEL_CHANGE_TEXTS, REASON_TEXTS, Status, flag_legend, metric_title, status_of

UNCHANGED = "unchanged"
_UNITS = {unit.value: unit for unit in Unit}


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


def view_of(comparison: Comparison, context: ReportContext) -> ReportView:
    """Build the view. Pure; never fails on a valid comparison; every text in it is one clean line."""
    workloads = tuple(map(_workload, comparison.workloads))
    counts = Counter(row.status for workload in workloads for row in workload.checks)
    counts.update(workload.override for workload in workloads if workload.override is not None)
    return ReportView(
        status=comparison_status(comparison),
        verdict=comparison.verdict,
        headline=comparison_headline(comparison),
        baseline=_revision(comparison.baseline),
        candidate=_revision(comparison.candidate),
        counts=tuple(sorted(counts.items(), key=lambda pair: -pair[0].severity)),
        error_rate=ratio_text(comparison.error_rate),
        notes=tuple(map(_note, comparison.notes)),
        workloads=tuple(sorted(workloads, key=lambda workload: -workload.status.severity)),
        context=context,
        source=comparison,
    )


def _workload(workload: WorkloadComparison) -> WorkloadView:
    gated = [row for row in workload.rows if row.gated]
    override = None if workload.verdict_override is None else Status(workload.verdict_override.value)
    if not gated and override is None:
        override = Status.NOT_MEASURED  # as WorkloadComparison.tally counts it
    alone = any(note.code == ACCEPTED_ALONE for note in workload.notes)
    return WorkloadView(
        name=clean(workload.workload),
        status=workload_status(workload),
        override=override,
        headline=workload_headline(workload),
        launches=(workload.baseline_launches, workload.candidate_launches),
        checks=tuple(map(_row, by_importance(gated))),
        evidence=tuple(_row(row) for row in natural_order(workload.rows) if not row.gated),
        findings=tuple(
            _finding(finding, otherwise="present" if alone else "on both sides")
            for finding in sorted(workload.findings, key=lambda finding: (not finding.new, not finding.worsened))
        ),
        kernels=tuple(map(_kernel, sorted(workload.kernel_changes, key=lambda change: -abs(change.delta_ns)))),
        environment=_environment(workload.baseline_environment, workload.candidate_environment),
        differences=tuple(map(key_difference_text, workload.key_differences)),
        notes=tuple(map(_note, workload.notes)),
        bars=bar_charts(workload.rows),
        strips=strips(workload.rows),
        source=workload,
    )


def _row(row: Row) -> RowView:
    unit = METRICS[row.metric].unit
    baseline, candidate = pair_texts(row.baseline.location, row.candidate.location, unit)
    change, interval = _change(row, unit)
    return RowView(
        phase=clean(row.phase),
        metric=row.metric,
        title=metric_title(row.metric),
        status=status_of(row),
        baseline=baseline,
        candidate=candidate,
        change=change,
        interval=interval,
        mde="exact" if _compared_exactly(row) else ratio_text(row.mde_ratio),
        budget=ratio_text(row.budget_ratio),
        reason=_reason(row),
        flags=tuple(clean(flag, limit=24) for flag in row.flags),
        source=row,
    )


def _compared_exactly(row: Row) -> bool:
    both = row.baseline.location is not None and row.candidate.location is not None
    return both and row.kind is Kind.EXACT and row.mde_ratio is None


def _change(row: Row, unit: Unit) -> tuple[str, str]:
    before, after = row.baseline.location, row.candidate.location
    if before is None or after is None:
        gone = before is not None
        return ("vanished" if gone else "new" if after is not None else MISSING), ""
    if before == after and (row.effect is None or not interval_text(row.effect)):
        return UNCHANGED, ""
    if row.effect is None:
        return f"{delta_text(before, after, unit)} (ratio {NOT_COMPUTABLE})", ""
    interval = interval_text(row.effect)
    if not interval:
        return f"{delta_text(before, after, unit)} ({change_text(row.effect)})", ""
    return change_text(row.effect), interval


def _reason(row: Row) -> str:
    text = REASON_TEXTS[row.reason]
    if row.launches_needed is not None:
        text += f"; about {row.launches_needed:,} launches per side would decide"
    return text


def _beyond_noise(row: Row) -> bool:
    if row.effect is None:
        before, after = row.baseline.location, row.candidate.location
        return row.kind is Kind.EXACT and before is not None and after is not None and before != after
    if row.effect.low_ratio == row.effect.high_ratio and row.kind is Kind.NOISY:
        return False
    return row.effect.low_ratio > 0 or row.effect.high_ratio < 0


def _size(row: Row) -> float:
    return math.inf if row.effect is None else abs(row.effect.value_ratio)


def _quantity(quantity: Quantity) -> tuple[str, str]:
    unit = _UNITS.get(quantity.unit)
    if unit is not None:
        return clean(quantity.name), value_text(quantity.value, unit)
    number = value_text(quantity.value, Unit.COUNT)
    return clean(quantity.name), f"{number}%" if quantity.unit == "%" else f"{number} {clean(quantity.unit)}"


def _finding(finding: Finding, *, otherwise: str) -> FindingView:
    place = finding.location
    return FindingView(
        rule=clean(finding.rule),
        phase=clean(finding.phase),
        title=clean(finding.title, limit=200),
        subject=clean(finding.subject, limit=160) if finding.subject else "",
        evidence=tuple(map(_quantity, finding.evidence)),
        confidence=finding.confidence.value,
        advice=clean(finding.advice, limit=PROSE_LIMIT),
        standing="new" if finding.new else "worse" if finding.worsened else otherwise,
        docs=clean(finding.docs, limit=200) if finding.docs else "",
        location=_location(place),
        source=finding,
    )


def _location(place: SourceLocation | None) -> str:
    return "" if place is None else f"{clean(place.path, limit=160)}:{place.line}"


def _kernel(change: KernelChange) -> KernelView:
    return KernelView(
        phase=clean(change.phase),
        name=clean(change.name, limit=160),
        change=KERNEL_CHANGE_TEXTS[change.kind],
        launches=pair_texts(change.baseline_count, change.candidate_count, Unit.COUNT),
        time=pair_texts(change.baseline_ns, change.candidate_ns, Unit.NS),
        delta=delta_text(change.baseline_ns, change.candidate_ns, Unit.NS),
        location=_location(change.location),
        source=change,
    )


def _environment(baseline: Environment, candidate: Environment) -> tuple[EnvironmentView, ...]:
    left, right = dict(baseline.entries), dict(candidate.entries)
    key = {name for name, _ in (*baseline.key, *candidate.key)}
    order = {name: index for index, name in enumerate(ENVIRONMENT_FIELDS)}
    names: Sequence[str] = sorted(left.keys() | right.keys(), key=lambda name: (order.get(name, len(order)), name))
    return tuple(_environment_line(name, left.get(name), right.get(name), in_key=name in key) for name in names)


def _environment_line(name: str, before: str | None, after: str | None, *, in_key: bool) -> EnvironmentView:
    field = ENVIRONMENT_FIELDS.get(name)
    unit = f" {field.unit}" if field is not None and field.unit else ""
    return EnvironmentView(
        title=field.title if field is not None else clean(name),
        baseline=MISSING if before is None else clean(before, limit=120) + unit,
        candidate=MISSING if after is None else clean(after, limit=120) + unit,
        in_key=in_key,
        differs=before != after,
    )


def _note(note: Note) -> NoteView:
    return NoteView(code=clean(note.code), text=clean(note.text, limit=PROSE_LIMIT), spoils=note.spoils)


def _revision(revision: Revision) -> RevisionView:
    return RevisionView(
        label=clean(revision.label), commit=clean(revision.commit) if revision.commit else "", dirty=revision.dirty
    )
