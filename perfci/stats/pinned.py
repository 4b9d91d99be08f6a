"""Against a pinned baseline: changes that each stay under the budget but add up since the last accepted level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape

import numpy as np

from perfci.model.baseline import PinnedBaseline, PinnedLevel
from perfci.model.comparison import Reason, Row, WorkloadComparison
from perfci.model.environment import Environment, key_differences
from perfci.model.history import NoiseLevel
from perfci.model.metrics import METRICS, Kind, Statistic
from perfci.model.run import Note, Run
from perfci.model.settings import JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.collect import SeriesKey, SeriesSamples, SideSamples, collect, usable
from perfci.stats.evidence import Evidence, evidence_of, resolution, separation, with_floor
from perfci.stats.gates import LookPlan
from perfci.stats.interval import Moments, welch_from_moments
from perfci.stats.judge import gate_of, judge_series, never_measured, plain_row
from perfci.stats.numerics import losses_lost, losses_outside
from perfci.stats.power import FLOOR_LAUNCHES, two_state_chance

PINNED_DRIFT_RATIO = 0.02
"""Allowed drift of the machine since the baseline was accepted, where no history knows the noise between sessions."""
SESSION_DEVIATIONS = 3.0
"""With history the allowance is this many deviations between sessions (of a difference of two sessions)."""


def pin(
    runs: Sequence[Run],
    *,
    reason: str,
    accepted_on: str,
    floors: Mapping[SeriesKey, NoiseLevel] | None = None,
    statistics_of: Mapping[SeriesKey, Statistic] | None = None,
) -> PinnedBaseline:
    """The levels of one side as a baseline to accept. Needs at least one usable run; all of one environment key (raises
    ValueError). A count that varied is kept as a noisy level. ``floors`` tell the noise between sessions where history
    knows it; ``statistics_of`` are the declared statistics, which each level keeps."""
    kept = usable(runs)
    if not kept:
        raise ValueError("no usable run to accept")
    if any(key_differences(kept[0].environment, run.environment) for run in kept):
        raise ValueError("the runs come from environments that must not be compared")
    levels = []
    chosen = statistics_of or {}
    for entry in collect(kept, (), statistics_of=chosen):
        floor = (floors or {}).get((entry.phase, entry.metric))
        summary = entry.baseline.summary()
        assert summary.location is not None
        if summary.location < 0:
            continue
        exact = entry.baseline.exact[0] if entry.kind is Kind.EXACT else None
        deviation = None
        if entry.kind is Kind.NOISY and len(entry.baseline) > 1 and entry.baseline.positive:
            deviation = float(np.log(entry.baseline.values).std(ddof=1))
        levels.append(
            PinnedLevel(
                phase=entry.phase,
                metric=entry.metric,
                kind=entry.kind,
                location=summary.location,
                launches=len(entry.baseline),
                exact=exact,
                deviation=deviation,
                session_deviation=floor.session if floor and entry.kind is Kind.NOISY else None,
                statistic=chosen.get((entry.phase, entry.metric)),
            )
        )
    return PinnedBaseline(
        workload=kept[0].workload,
        revision=kept[0].revision,
        environment=kept[0].environment,
        reason=reason,
        accepted_on=accepted_on,
        step_count=min(run.step_count for run in kept),
        levels=tuple(levels),
    )


def judge_pinned(
    pinned: PinnedBaseline,
    candidate: Sequence[Run],
    settings: JudgeSettings,
    *,
    families: int | None = None,
    looks: Sequence[int] | None = None,
    noise_floors: Mapping[SeriesKey, float] | None = None,
    golden_losses: Sequence[float] = (),
    loss_tolerance_ratio: float = 0.05,
) -> WorkloadComparison:
    """Judge the candidate's launches against accepted levels, with no baseline run.

    The rule is that of ``judge_workload`` on unpaired launches; the interval is widened by the drift of the machine
    since the baseline (three session deviations of a difference, or PINNED_DRIFT_RATIO where none is known). A level
    from one launch, or one candidate launch, decides exact counts only; counts over another number of steps that
    differ are NOT_COMPARABLE. A REGRESSION carries Reason.CUMULATIVE: it may have come in many steps, none of which
    broke its own budget. ``noise_floors`` count as between two sides, for levels of the statistic that is declared
    today: a floor of another one says nothing about them. The other arguments are those of judge_workload; where the
    parent is judged too, ``families`` holds both (``count_pinned_gates``). Losses outside the golden band:
    NOT_COMPARABLE.
    """
    kept = usable(candidate)
    levels = {(level.phase, level.metric): level for level in pinned.levels}
    series = _series(pinned, kept)
    differences = tuple(dict.fromkeys(d for run in kept for d in key_differences(pinned.environment, run.environment)))
    override: Verdict | None = None
    outside: tuple[Note, ...] = ()
    if kept and not differences:
        outside = losses_outside(kept, golden_losses, tolerance_ratio=loss_tolerance_ratio)
    if not kept or differences or outside:
        override = Verdict.NOT_COMPARABLE if kept else Verdict.NOT_MEASURED
        unable = Reason.KEYS_DIFFER if differences else Reason.NUMERICS_DIFFER
        reason = unable if kept else (Reason.SPOILED if candidate else Reason.NOT_MEASURED)
        rows = [plain_row(entry, gate_of(pinned.workload, entry, settings), override, reason) for entry in series]
    else:
        floors = noise_floors or {}

        def weigh(entry: SeriesSamples) -> Evidence:
            key = (entry.phase, entry.metric)
            declared = _statistic(levels[key].metric, dict(settings.statistics).get(entry.metric))
            same = declared is _statistic(levels[key].metric, levels[key].statistic)
            return _evidence(levels[key], entry, noise_floor=floors.get(key) if same else None)

        own = _with_accepted_budgets(pinned, settings)
        plan = LookPlan(looks=tuple(looks), planned=settings.max_launches) if looks else None
        rows = judge_series(pinned.workload, series, own, weigh=weigh, plan=plan, families=families)
        rows = [_named(row, levels.get((row.phase, row.metric))) for row in rows]
        if any(run.step_count != pinned.step_count for run in kept):
            rows = [_other_window(row) for row in rows]
    rows += never_measured(pinned.workload, series, settings)
    return WorkloadComparison(
        workload=pinned.workload,
        rows=tuple(rows),
        baseline_environment=pinned.environment,
        candidate_environment=kept[0].environment if kept else Environment(),
        baseline_launches=max((level.launches for level in pinned.levels), default=0),
        candidate_launches=len(kept),
        key_differences=differences,
        notes=(*losses_lost((), kept)[0], *outside),
        verdict_override=override,
    )


def count_pinned_gates(pinned: PinnedBaseline, candidate: Sequence[Run], settings: JudgeSettings) -> int:
    """How many gates of the candidate against these levels need statistics, as ``count_noisy_gates`` counts them."""
    return sum(
        entry.kind is Kind.NOISY and gate_of(pinned.workload, entry, settings) is not None
        for entry in _series(pinned, usable(candidate))
        if entry.baseline.values and entry.candidate.values
    )


def join_cumulative(parent: WorkloadComparison, pinned: WorkloadComparison) -> WorkloadComparison:
    """The comparison with the parent, where each gate that only the pinned baseline finds broken shows that row."""
    broken = {
        (row.phase, row.metric): row
        for row in pinned.rows
        if row.verdict is Verdict.REGRESSION and row.reason is Reason.CUMULATIVE
    }
    rows = tuple(
        broken.get((row.phase, row.metric), row) if row.verdict is not Verdict.REGRESSION else row
        for row in parent.rows
    )
    return replace(parent, rows=rows)


def _series(pinned: PinnedBaseline, kept: Sequence[Run]) -> list[SeriesSamples]:
    """Levels and launches by series. The launches become samples as those of the level did, whatever is declared
    today: two statistics of the same steps are no comparison."""
    levels = {(level.phase, level.metric): level for level in pinned.levels}
    chosen = {key: level.statistic for key, level in levels.items() if level.statistic is not None}
    found = {(entry.phase, entry.metric): entry.candidate for entry in collect((), kept, statistics_of=chosen)}
    return [
        SeriesSamples(
            phase=key[0],
            metric=key[1],
            baseline=_level_samples(levels[key]) if key in levels else SideSamples(),
            candidate=found.get(key, SideSamples()),
        )
        for key in dict.fromkeys((*levels, *found))
    ]


def _level_samples(level: PinnedLevel) -> SideSamples:
    return SideSamples(values=(level.location,), exact=(level.exact,), pairs=(None,), times=(0.0,))


def _with_accepted_budgets(pinned: PinnedBaseline, settings: JudgeSettings) -> JudgeSettings:
    """The settings with the budgets that the baseline sets itself, for the series that are gated anyway."""
    own = []
    for level in pinned.levels:
        gate = settings.gate_for(workload=pinned.workload, phase=level.phase, metric=level.metric)
        if gate is not None and level.budget_ratio is not None:
            own.append(
                replace(
                    gate, workload=escape(pinned.workload), phase=escape(level.phase), budget_ratio=level.budget_ratio
                )
            )
    return replace(settings, gates=(*settings.gates, *own))


def _statistic(metric: str, chosen: Statistic | None) -> Statistic:
    return METRICS[metric].statistic if chosen is None else chosen


def _evidence(level: PinnedLevel, entry: SeriesSamples, *, noise_floor: float | None) -> Evidence:
    # Without pairs, so that the candidate's own levels and trend are seen: nothing here is cancelled by pairing.
    alone = replace(entry.candidate, pairs=(None,) * len(entry.candidate))
    plain = evidence_of(replace(entry, baseline=alone, candidate=alone))
    exact = level.kind is Kind.EXACT
    deviation = 0.0 if exact else level.deviation  # every launch of an exact level counted the same
    if level.location == 0 or plain.estimate is None or deviation is None or level.launches < 2:
        problem = plain.problem
        all_zero = not any(entry.candidate.values)
        if level.location == 0 or all_zero:
            # The candidate beside itself says that its zeros are equal, not that they are equal to the level.
            problem = Reason.EXACT_EQUAL if level.location == 0 and all_zero else Reason.BASELINE_ZERO
        return Evidence(estimate=None, problem=problem or Reason.TOO_FEW_LAUNCHES, flags=plain.flags)
    logs = np.log(np.asarray(entry.candidate.values))
    n, least = len(logs), resolution(entry)
    estimate = welch_from_moments(
        Moments(
            center=math.log(level.location),
            error=max(deviation, least) / math.sqrt(level.launches),
            df=level.launches - 1,
            launches=level.launches,
        ),
        Moments(
            center=float(logs.mean()), error=max(float(logs.std(ddof=1)), least) / math.sqrt(n), df=n - 1, launches=n
        ),
    )
    estimate, floor_flags = with_floor(estimate, noise_floor)
    # The launches of the level may be among those that made the floor: only the others tell more than they do.
    alike = 0 if noise_floor is None else max(0, FLOOR_LAUNCHES - level.launches)
    session = level.session_deviation
    drift = math.log1p(PINNED_DRIFT_RATIO) if session is None else SESSION_DEVIATIONS * math.sqrt(2) * session
    return replace(
        plain,
        estimate=estimate.allowing(drift),
        chance=two_state_chance(level.launches, n, alike=alike),
        alike=alike,
        level_launches=level.launches,
        # The pinned launches are gone: of noisy ones only the mean is known, so the sides are never shown to be apart.
        separation=separation(np.log([level.location]), logs) if exact else 0.0,
        flags=(*(flag for flag in plain.flags if flag not in ("unpaired", "trimmed")), *floor_flags, "pinned"),
    )


def _named(row: Row, level: PinnedLevel | None) -> Row:
    if level is not None and row.baseline.samples:
        row = replace(row, baseline=replace(row.baseline, spread_ratio=level.deviation))
    return replace(row, reason=Reason.CUMULATIVE) if row.verdict is Verdict.REGRESSION else row


def _other_window(row: Row) -> Row:
    count = METRICS[row.metric].kind is Kind.EXACT  # also one that was seen to vary
    if count and row.gated and row.reason not in (Reason.EXACT_EQUAL, Reason.VANISHED, Reason.NEW):
        return replace(
            row, verdict=Verdict.NOT_COMPARABLE, reason=Reason.KEYS_DIFFER, flags=(*row.flags, "window-differs")
        )
    return row
