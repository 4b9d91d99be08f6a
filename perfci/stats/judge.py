"""The judge: from the runs of two sides to the verdicts of one workload."""

from collections.abc import Callable, Mapping, Sequence

from perfci.model.comparison import Effect, Reason, Row, WorkloadComparison
from perfci.model.environment import Environment, KeyDifference, key_differences
from perfci.model.metrics import METRICS, Direction, Kind, Statistic
from perfci.model.run import Note, Run
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.collect import SeriesKey, SeriesSamples, SideSamples, collect, usable
from perfci.stats.evidence import Evidence, evidence_of
from perfci.stats.exact import exact_effect, judge_exact
from perfci.stats.gates import LookPlan, NoisySeries, judge_noisy
from perfci.stats.numerics import losses_lost, losses_outside

VARYING_COUNT_BUDGET_RATIO = 0.01
"""Least budget of a count that was seen to vary: it must be judged as noisy, and no noisy metric can pass a budget of
0."""

SHORT_WINDOW_RATIO = 0.9
"""A shortest window below this share of the longest is said: counts are compared over its steps alone, and what comes
every n steps may lie outside. A step lost at a border of the capture is no matter."""


def judge_workload(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    settings: JudgeSettings,
    *,
    workload: str | None = None,
    looks: Sequence[int] | None = None,
    noise_floors: Mapping[SeriesKey, float] | None = None,
    families: int | None = None,
    statistics_of: Mapping[SeriesKey, Statistic] | None = None,
    golden_losses: Sequence[float] = (),
    loss_tolerance_ratio: float = 0.05,
) -> WorkloadComparison:
    """Judge one workload on two sides: a row for every (phase, metric) on either side, a verdict on every gated row.

    ``families`` is the number of noisy gates of the whole comparison: the sum of ``count_noisy_gates`` over all
    workloads; a larger number is careful, None means that this workload is all there is. ``looks`` are the numbers
    of pairs at which the data were or are looked at, the present one last (``plan.looks_until``); None: looked once.
    ``noise_floors`` are standard deviations of log samples between launches of equal code
    (upper bounds, of the statistic judged). ``statistics_of`` replaces the declared statistic of a series by one that
    calibration chose before these runs were made.

    Spoiled runs are left out and said. No run on a side: NOT_MEASURED. Comparability keys that differ, between the
    sides or within one: NOT_COMPARABLE. Losses outside the golden band, or no finite ones on one side alone:
    NOT_COMPARABLE. Findings and kernel changes are left empty. The result is a pure function of the arguments: looking
    again gives the same verdict.
    """
    name = workload or next((run.workload for run in (*baseline, *candidate)), "")
    left, right = usable(baseline), usable(candidate)
    series = collect(left, right, statistics_of=statistics_of)
    problem = _obstacle(baseline, candidate, golden_losses, loss_tolerance_ratio)
    if problem is not None:
        verdict, reason, differences, notes = problem
        rows = [plain_row(entry, gate_of(name, entry, settings), verdict, reason) for entry in series]
    else:
        verdict, differences, notes = None, (), _window_notes([run.step_count for run in (*left, *right)])
        plan = LookPlan(looks=tuple(looks), planned=settings.max_launches) if looks else None
        floors = noise_floors or {}

        def weigh(entry: SeriesSamples) -> Evidence:
            return evidence_of(entry, noise_floor=floors.get((entry.phase, entry.metric)))

        rows = judge_series(name, series, settings, weigh=weigh, plan=plan, families=families)
    rows += never_measured(name, series, settings)
    return WorkloadComparison(
        workload=name,
        rows=tuple(rows),
        baseline_environment=left[0].environment if left else Environment(),
        candidate_environment=right[0].environment if right else Environment(),
        baseline_launches=len(left),
        candidate_launches=len(right),
        key_differences=differences,
        notes=(*_spoiled_notes(baseline, candidate), *losses_lost(left, right)[0], *notes),
        verdict_override=verdict,
    )


def count_noisy_gates(
    baseline: Sequence[Run], candidate: Sequence[Run], settings: JudgeSettings, *, workload: str
) -> int:
    """How many gates of this workload need statistics: they share the error rate of the comparison. Exact counts cost
    nothing."""
    return sum(
        entry.kind is Kind.NOISY and gate_of(workload, entry, settings) is not None
        for entry in collect(usable(baseline), usable(candidate))
        if entry.baseline.values and entry.candidate.values
    )


def gate_of(workload: str, entry: SeriesSamples, settings: JudgeSettings) -> Gate | None:
    """The gate of a series; none for metrics without a worse direction, a change of which is no verdict."""
    if METRICS[entry.metric].direction is Direction.NEUTRAL:
        return None
    return settings.gate_for(workload=workload, phase=entry.phase, metric=entry.metric)


def _obstacle(
    baseline: Sequence[Run], candidate: Sequence[Run], golden_losses: Sequence[float], tolerance_ratio: float
) -> tuple[Verdict, Reason, tuple[KeyDifference, ...], tuple[Note, ...]] | None:
    """What forbids to judge the workload at all, or None."""
    left, right = usable(baseline), usable(candidate)
    if not left or not right:
        spoiled = (baseline and not left) or (candidate and not right)
        return Verdict.NOT_MEASURED, Reason.SPOILED if spoiled else Reason.NOT_MEASURED, (), ()
    found = {
        difference: None
        for run in (*right, *left[1:])
        for difference in key_differences(left[0].environment, run.environment)
    }
    if found:
        ordered = sorted(found, key=lambda d: (d.field, d.baseline or "", d.candidate or ""))
        return Verdict.NOT_COMPARABLE, Reason.KEYS_DIFFER, tuple(ordered), ()
    outside = losses_outside((*left, *right), golden_losses, tolerance_ratio=tolerance_ratio)
    if outside:
        return Verdict.NOT_COMPARABLE, Reason.NUMERICS_DIFFER, (), outside
    if losses_lost(left, right)[1]:
        return Verdict.NOT_COMPARABLE, Reason.NUMERICS_DIFFER, (), ()
    return None


def judge_series(
    workload: str,
    series: Sequence[SeriesSamples],
    settings: JudgeSettings,
    *,
    weigh: Callable[[SeriesSamples], Evidence],
    plan: LookPlan | None = None,
    families: int | None = None,
) -> list[Row]:
    """One row per series, in order: one-sided ones, exact counts, and noisy ones by the evidence that ``weigh``
    finds."""
    rows: list[Row | None] = []
    noisy: list[NoisySeries] = []
    for entry in series:
        gate = gate_of(workload, entry, settings)
        if not entry.baseline.values:
            rows.append(plain_row(entry, gate, Verdict.INCONCLUSIVE, Reason.NEW, evidence_reason=Reason.NEW))
        elif not entry.candidate.values:
            rows.append(plain_row(entry, gate, Verdict.NOT_MEASURED, Reason.VANISHED, evidence_reason=Reason.VANISHED))
        elif entry.kind is Kind.EXACT:
            rows.append(_exact_row(entry, gate))
        else:
            rows.append(None)
            least = VARYING_COUNT_BUDGET_RATIO if METRICS[entry.metric].kind is Kind.EXACT else 0.0
            noisy.append(
                NoisySeries(
                    series=entry,
                    evidence=weigh(entry),
                    gate=gate,
                    budget_ratio=max(gate.budget_ratio if gate else 0.0, least),
                )
            )
    judged = iter(judge_noisy(noisy, settings, plan=plan, families=families))
    return [next(judged) if row is None else row for row in rows]


def _exact_row(entry: SeriesSamples, gate: Gate | None) -> Row:
    before, after = entry.baseline.exact[0], entry.candidate.exact[0]
    assert before is not None
    assert after is not None
    verdict: Verdict | None = None
    effect: Effect | None
    if gate is None:
        effect, reason = exact_effect(before, after), Reason.EVIDENCE_ONLY
    else:
        lower = METRICS[entry.metric].direction is not Direction.HIGHER_IS_BETTER
        outcome = judge_exact(before, after, budget_ratio=gate.budget_ratio, lower_is_better=lower)
        verdict, reason, effect = outcome.verdict, outcome.reason, outcome.effect
    return Row(
        phase=entry.phase,
        metric=entry.metric,
        kind=Kind.EXACT,
        gated=gate is not None,
        baseline=entry.baseline.summary(),
        candidate=entry.candidate.summary(),
        effect=effect,
        verdict=verdict,
        reason=reason,
        budget_ratio=gate.budget_ratio if gate else None,
        flags=("baseline-zero",) if effect is None else (),
    )


def plain_row(
    entry: SeriesSamples,
    gate: Gate | None,
    verdict: Verdict,
    reason: Reason,
    *,
    evidence_reason: Reason = Reason.EVIDENCE_ONLY,
) -> Row:
    """A row that compares nothing: the samples, no effect, and the verdict where it is gated."""
    return Row(
        phase=entry.phase,
        metric=entry.metric,
        kind=entry.kind,
        gated=gate is not None,
        baseline=entry.baseline.summary(),
        candidate=entry.candidate.summary(),
        effect=None,
        verdict=verdict if gate else None,
        reason=reason if gate else evidence_reason,
        budget_ratio=gate.budget_ratio if gate else None,
    )


def never_measured(workload: str, series: Sequence[SeriesSamples], settings: JudgeSettings) -> list[Row]:
    """A NOT_MEASURED row for each gate the user wrote that covers this workload and meets no series at all."""
    rows: dict[SeriesKey, Row] = {}
    for gate in settings.gates:
        met = any(gate.covers(workload=workload, phase=entry.phase, metric=entry.metric) for entry in series)
        if not gate.required or met or not gate.covers(workload=workload, phase=gate.phase, metric=gate.metric):
            continue
        missing = SeriesSamples(phase=gate.phase, metric=gate.metric, baseline=SideSamples(), candidate=SideSamples())
        rows[gate.phase, gate.metric] = plain_row(missing, gate, Verdict.NOT_MEASURED, Reason.NOT_MEASURED)
    return list(rows.values())


def _window_notes(steps: Sequence[int]) -> tuple[Note, ...]:
    shortest, longest = min(steps), max(steps)
    if shortest >= SHORT_WINDOW_RATIO * longest:
        return ()
    text = f"counts are compared over {shortest} steps of each launch, the shortest window (the longest has {longest})"
    return (Note(code="short-window", text=text),)


def _spoiled_notes(baseline: Sequence[Run], candidate: Sequence[Run]) -> tuple[Note, ...]:
    notes = []
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        spoiled = [run for run in runs if run.spoiled]
        if spoiled:
            why = sorted({note.text for run in spoiled for note in run.notes if note.spoils})
            notes.append(
                Note(
                    code="spoiled-left-out",
                    text=f"{len(spoiled)} of {len(runs)} {side} launches left out: {'; '.join(why)}",
                )
            )
    return tuple(notes)
