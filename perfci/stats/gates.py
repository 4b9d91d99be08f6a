"""All noisy gates of one workload together: levels by family control and look, then the rule on each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfci.model.comparison import Effect, Reason, Row
from perfci.model.metrics import METRICS, Direction, Kind
from perfci.model.settings import Gate, JudgeSettings
from perfci.stats.collect import SeriesSamples
from perfci.stats.evidence import Evidence
from perfci.stats.family import ERROR_IN_USE, weighted_holm, weights
from perfci.stats.power import detectable_log_ratio, launches_for_budget
from perfci.stats.rule import Levels, Outcome, decide, effect_of, ratio_of
from perfci.stats.spending import nominal_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySeries:
    """A noisy series with its gate (None: evidence only) and the budget in force."""

    series: SeriesSamples
    evidence: Evidence
    gate: Gate | None
    budget_ratio: float

    @property
    def sign(self) -> int:
        """+1 when more is harm, −1 when less is."""
        return -1 if METRICS[self.series.metric].direction is Direction.HIGHER_IS_BETTER else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPlan:
    """At which numbers of launches the data were looked at (the present look last), of at most ``planned``."""

    looks: tuple[int, ...]
    planned: int

    def nominal(self, alpha: float) -> float:
        """The level of the present look when all looks together may err with ``alpha``."""
        return nominal_levels(alpha, self.looks, self.planned)[-1]


def judge_noisy(
    entries: Sequence[NoisySeries], settings: JudgeSettings, *, plan: LookPlan | None, families: int | None
) -> tuple[Row, ...]:
    """Rows for the noisy series of one workload, in the same order.

    The workload gets its share of the error rate: its number of gates over ``families``. Within it Holm's weighted
    procedure runs over the claims of harm and, apart, over the claims of benefit.
    """
    gated = [entry for entry in entries if entry.gate is not None]
    share = len(gated) / max(families or 0, len(gated)) if gated else 0.0
    alpha = settings.error_rate * ERROR_IN_USE
    levels = _levels(gated, alpha * share, alpha, plan)
    rows = []
    for entry in entries:
        if entry.gate is None:
            rows.append(_evidence_row(entry, settings))
        else:
            rows.append(_gated_row(entry, levels.pop(0), settings))
    return tuple(rows)


def _levels(gated: Sequence[NoisySeries], alpha: float, equal_alpha: float, plan: LookPlan | None) -> list[Levels]:
    def at_look(level: float) -> float:
        return level if plan is None else plan.nominal(level)

    def rejects(direction: int) -> Callable[[int, float], bool]:
        def check(index: int, level: float) -> bool:
            evidence = gated[index].evidence
            estimate = evidence.estimate
            # Only what may be claimed hands its error on: luck with two levels, or drift of sides that were measured
            # one after the other, must not make other gates bolder.
            drifting = evidence.sequential and evidence.trend
            if estimate is None or evidence.bimodal or drifting or at_look(level) < evidence.chance:
                return False
            harm = direction * gated[index].sign * estimate.log_ratio
            return harm - estimate.half_width(at_look(level)) > 0

        return check

    shares = weights([entry.series.phase for entry in gated])
    harm, benefit = (weighted_holm(alpha, shares, rejects(direction)) for direction in (1, -1))
    equal = at_look(equal_alpha)
    return [
        Levels(harm=at_look(one), benefit=at_look(other), equal=equal) for one, other in zip(harm, benefit, strict=True)
    ]


def _gated_row(entry: NoisySeries, levels: Levels, settings: JudgeSettings) -> Row:
    outcome = decide(entry.evidence, budget_ratio=entry.budget_ratio, sign=entry.sign, levels=levels)
    level = min(levels.harm, levels.benefit)
    needed = None
    if outcome.reason in (Reason.INTERVAL_TOO_WIDE, Reason.TOO_FEW_LAUNCHES):
        needed = launches_needed(entry.evidence, entry.budget_ratio, levels, power=settings.power)
    return _row(entry, outcome, gated=True, mde=_mde(entry.evidence, level, settings.power), needed=needed)


def launches_needed(evidence: Evidence, budget_ratio: float, levels: Levels, *, power: float) -> int | None:
    """Launches per side (against an accepted level: of the candidate) that would decide this gate with probability
    ``power``, given the noise seen. None when it cannot be told: no noise known, a budget of 0 or one within the drift
    that is allowed for, hopeless, or already enough launches (the effect lies close to the budget, where more launches
    help little)."""
    estimate = evidence.estimate
    if estimate is None:
        return None
    needed = launches_for_budget(
        deviation=estimate.deviation,
        budget_log=math.log1p(budget_ratio),
        pass_level=levels.equal,
        family_level=min(levels.harm, levels.benefit),
        power=power,
        alike=evidence.alike,
        allowance=estimate.allowance,
        level_launches=evidence.level_launches,
    )
    present = min(estimate.launches) if evidence.level_launches is None else estimate.launches[1]
    return needed if needed is not None and needed > present else None


def _evidence_row(entry: NoisySeries, settings: JudgeSettings) -> Row:
    estimate = entry.evidence.estimate
    outcome = Outcome(
        verdict=None,
        reason=Reason.EVIDENCE_ONLY,
        effect=effect_of(estimate, settings.error_rate) if estimate else None,
        flags=entry.evidence.flags,
    )
    return _row(entry, outcome, gated=False, mde=_mde(entry.evidence, settings.error_rate, settings.power), needed=None)


def _row(entry: NoisySeries, outcome: Outcome, *, gated: bool, mde: float | None, needed: int | None) -> Row:
    varies = ("varies",) if METRICS[entry.series.metric].kind is Kind.EXACT else ()
    return Row(
        phase=entry.series.phase,
        metric=entry.series.metric,
        kind=Kind.NOISY,
        gated=gated,
        baseline=entry.series.baseline.summary(),
        candidate=entry.series.candidate.summary(),
        effect=outcome.effect or _bare_effect(entry),
        verdict=outcome.verdict,
        reason=outcome.reason,
        budget_ratio=entry.budget_ratio if gated else None,
        mde_ratio=mde,
        launches_needed=needed,
        flags=(*outcome.flags, *varies),
    )


def _bare_effect(entry: NoisySeries) -> Effect | None:
    """With one launch on a side: the ratio of locations and no bound on it. With zeros: nothing to compute, but both
    sides 0 throughout are no change."""
    if entry.evidence.problem is Reason.EXACT_EQUAL:
        return Effect(value_ratio=0.0, low_ratio=0.0, high_ratio=0.0, confidence=1.0)
    before, after = entry.series.baseline.summary().location, entry.series.candidate.summary().location
    if entry.evidence.problem is not Reason.TOO_FEW_LAUNCHES or before is None or after is None:
        return None
    return Effect(value_ratio=after / before - 1, low_ratio=-1.0, high_ratio=float("inf"), confidence=1.0)


def _mde(evidence: Evidence, level: float, power: float) -> float | None:
    """The smallest change that these launches could have shown, as growth (with the same factor for a fall): at it the
    interval excludes 0 with probability ``power``."""
    estimate = evidence.estimate
    if estimate is None:
        return None
    log_ratio = estimate.allowance + detectable_log_ratio(
        standard_error=estimate.standard_error, df=estimate.df, level=level, power=power
    )
    ratio = ratio_of(log_ratio)
    return ratio if ratio < float("inf") else None
