"""Build the ReportView of a comparison: its words, readable units and order, the same for every format."""

from collections import Counter
from collections.abc import Sequence

from perfci.model.baseline import ACCEPTED_ALONE
from perfci.model.comparison import Comparison, KernelChange, Row, WorkloadComparison
from perfci.model.environment import ENVIRONMENT_FIELDS, Environment
from perfci.model.finding import Finding, Quantity, SourceLocation
from perfci.model.metrics import METRICS, Kind, Unit
from perfci.model.run import Note, Revision
from perfci.report.charts import bar_charts, strips
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
from perfci.report.view_model import (
    EnvironmentView,
    FindingView,
    KernelView,
    NoteView,
    ReportView,
    RevisionView,
    RowView,
    WorkloadView,
)
from perfci.report.wording import KERNEL_CHANGE_TEXTS, REASON_TEXTS, Status, metric_title, status_of

UNCHANGED = "unchanged"
_UNITS = {unit.value: unit for unit in Unit}


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
