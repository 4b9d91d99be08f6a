"""What the launches of both sides say about one noisy series, before anyone judges it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfci.model.comparison import Reason
from perfci.model.metrics import METRICS, Unit
from perfci.stats.collect import SeriesSamples, SideSamples
from perfci.stats.interval import Estimate, Floats, Method, most_trim, paired_estimate, welch_estimate
from perfci.stats.power import FLOOR_LAUNCHES, two_state_chance
from perfci.stats.shape import has_trend, is_bimodal, outliers

SEQUENTIAL_DRIFT_RATIO = 0.20
"""How much one machine may drift between sides that were measured one after the other: no statistics can tell such
drift from a change of code, so the interval is widened by it on both sides. On the public record the same binary showed
+15.9 % when load arrived half-way."""
SMALL_LAUNCHES = 6
"""Below this many launches a side the noise seen is so uncertain that a known noise floor counts as the least."""
_FLOAT_RESOLUTION = 1e-9
_UNCANCELLED = 0.5
"""Pairing cancels two levels of the machine when the log ratios of pairs spread less than this share of a side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One noisy series before judgement. ``estimate`` is None exactly when ``problem`` says why there is none.

    ``chance`` is the probability, at its worst, that a process with two levels gives data like these by luck; no claim
    of a change is made at a level below it. ``alike`` further launches of equal code, which made a noise floor and
    showed no second level, make it smaller. ``level_launches`` are those behind an accepted level, to which no further
    launch adds (None: two sides). ``separation`` is the log factor between the sides where they do not overlap:
    positive when every candidate launch lies above every baseline launch, negative the other way round, else 0.
    ``spread`` is the log factor between the smallest and the largest sample of both sides together.
    """

    estimate: Estimate | None
    problem: Reason | None = None
    bimodal: bool = False
    sequential: bool = False
    trend: bool = False
    chance: float = 0.0
    alike: int = 0
    level_launches: int | None = None
    separation: float = 0.0
    spread: float = 0.0
    flags: tuple[str, ...] = ()


def evidence_of(series: SeriesSamples, *, noise_floor: float | None = None) -> Evidence:
    """Estimate the effect and name the oddities of one noisy series.

    No launch on a side or one: TOO_FEW_LAUNCHES. Values of 0 or below on a side: BASELINE_ZERO (no relative change can
    be computed), unless both sides are 0 throughout: EXACT_EQUAL. Zero variance: the resolution of the unit stands in
    for the noise. ``noise_floor`` is the standard deviation of the log samples of equal launches, from history.
    """
    baseline, candidate = series.baseline, series.candidate
    if any(not side.positive for side in (baseline, candidate)):
        all_zero = all(value == 0 for side in (baseline, candidate) for value in side.values)
        return Evidence(
            estimate=None,
            problem=Reason.EXACT_EQUAL if all_zero and baseline.values and candidate.values else Reason.BASELINE_ZERO,
            flags=() if all_zero else ("zero-samples",),
        )
    if min(len(baseline), len(candidate)) < 2:
        return Evidence(estimate=None, problem=Reason.TOO_FEW_LAUNCHES)
    logs = [np.log(np.asarray(side.values)) for side in (baseline, candidate)]
    estimate, sequential, flags = _estimate(series, logs)
    trend = any(
        has_trend(log, side.times if len(set(side.times)) > 1 else None)
        for log, side in zip(logs, (baseline, candidate), strict=True)
    )
    two_levels = any(is_bimodal(log) for log in logs)
    alike = 0 if noise_floor is None else FLOOR_LAUNCHES
    paired = estimate.method is Method.PAIRED
    chance = two_state_chance(*estimate.launches, wild=estimate.trimmed, alike=alike, paired=paired)
    estimate, floor_flags = with_floor(estimate, noise_floor)
    if sequential:
        estimate = estimate.allowing(math.log1p(SEQUENTIAL_DRIFT_RATIO))
    constant = all(len(set(side.values)) == 1 for side in (baseline, candidate))
    named = (("trend", trend), ("bimodal", two_levels), ("zero-variance", constant))
    return Evidence(
        estimate=estimate,
        bimodal=two_levels and not _cancelled(logs, estimate),
        sequential=sequential,
        trend=trend,
        chance=chance,
        alike=alike,
        separation=separation(logs[0], logs[1]),
        spread=float(np.ptp(np.concatenate(logs))),
        flags=(*flags, *floor_flags, *(name for name, seen in named if seen)),
    )


def with_floor(estimate: Estimate, noise_floor: float | None) -> tuple[Estimate, tuple[str, ...]]:
    """(the estimate, flags): below SMALL_LAUNCHES on a side the floor counts where it is larger than the noise seen."""
    known = (noise_floor or 0.0) * math.sqrt(2)
    if min(estimate.launches) < SMALL_LAUNCHES and known > estimate.deviation:
        return estimate.widened(deviation=known), ("noise-floor",)
    return estimate, ()


def _estimate(series: SeriesSamples, logs: Sequence[Floats]) -> tuple[Estimate, bool, list[str]]:
    """(estimate, whether one side was measured after the other, flags): paired where at least half of the launches
    have their partner, else Welch; wild launches trimmed where enough are left."""
    baseline, candidate = series.baseline, series.candidate
    least = resolution(series)
    wild = max(len(outliers(side.tolist())) for side in logs)
    pairs = _paired_log_ratios(baseline, candidate)
    sequential = False
    if len(pairs) >= 2 and 2 * len(pairs) >= min(len(baseline), len(candidate)):
        wild_pairs = len(outliers(pairs))
        trim = min(wild_pairs, most_trim(len(pairs)))
        wild = max(wild, wild_pairs)
        estimate = paired_estimate(pairs, least_deviation=least * math.sqrt(2), trim=trim)
        how = "unpaired-left-out" if len(pairs) < max(len(baseline), len(candidate)) else ""
    else:
        trim = min(wild, most_trim(min(map(len, logs))))
        estimate = welch_estimate(logs[0], logs[1], least_deviation=least, trim=trim)
        sequential = _sequential(baseline, candidate)
        how = "not-interleaved" if sequential else "unpaired"
    named = ((how, bool(how)), ("outlier", wild > 0), ("trimmed", trim > 0))
    return estimate, sequential, [name for name, seen in named if seen]


def resolution(series: SeriesSamples) -> float:
    """Standard deviation of rounding to one unit, relative to the smaller side: the least noise that can be known."""
    if METRICS[series.metric].unit in (Unit.RATIO, Unit.PER_SECOND):
        return _FLOAT_RESOLUTION
    smallest = min(*series.baseline.values, *series.candidate.values)
    return max(_FLOAT_RESOLUTION, 1 / math.sqrt(12) / smallest)


def _paired_log_ratios(baseline: SideSamples, candidate: SideSamples) -> list[float]:
    """Log ratios of the pairs both of whose launches are there, in schedule order. A repeated launch replaces the first
    one."""
    left, right = (
        {pair: value for pair, value in zip(side.pairs, side.values, strict=True) if pair is not None}
        for side in (baseline, candidate)
    )
    return [math.log(right[pair]) - math.log(left[pair]) for pair in sorted(left.keys() & right.keys())]


def _sequential(baseline: SideSamples, candidate: SideSamples) -> bool:
    """True when one side was measured (mostly) after the other: the chance that a launch of one side is later than one
    of the other lies outside a quarter to three quarters. Equal times: order not known, not sequential."""
    left, right = np.asarray(baseline.times)[:, None], np.asarray(candidate.times)[None, :]
    later = float(np.mean((right > left) + 0.5 * (right == left)))
    return not 0.25 <= later <= 0.75


def separation(baseline: Floats, candidate: Floats) -> float:
    """Log factor between sides that do not overlap: positive when every candidate launch lies above every baseline
    launch, negative the other way round, else 0."""
    return max(0.0, float(candidate.min() - baseline.max())) - max(0.0, float(baseline.min() - candidate.max()))


def _cancelled(logs: Sequence[Floats], estimate: Estimate) -> bool:
    """True when the two levels are the machine's, equal for both launches of a pair, so that pairing removes them."""
    side = math.sqrt(sum(float(log.var(ddof=1)) for log in logs))
    return estimate.method is Method.PAIRED and estimate.deviation < _UNCANCELLED * side
