"""The decision rule: from evidence to a verdict. In prose: docs/statistics.md; why: docs/decisions/0040."""

import math
from dataclasses import dataclass

from perfci.model.comparison import Effect, Reason
from perfci.model.verdict import Verdict
from perfci.stats.evidence import Evidence
from perfci.stats.interval import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """One-sided error of each claim about one gate at this look.

    ``harm`` and ``benefit`` hold the claims REGRESSION and IMPROVEMENT (after family control), ``equal`` the claim PASS
    (not split over the family: a comparison is green only when every gate passes, and the chance that all gates pass
    although one should not is at most the chance of that one: Berger, Technometrics 1982).
    """

    harm: float
    benefit: float
    equal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A judged noisy series. ``effect`` shows the interval that the verdict rests on; no verdict: evidence only."""

    verdict: Verdict | None
    reason: Reason
    effect: Effect | None
    flags: tuple[str, ...] = ()


def decide(evidence: Evidence, *, budget_ratio: float, sign: int, levels: Levels) -> Outcome:
    """Judge one noisy gate. ``sign`` is +1 when lower is better, −1 when higher is better.

    With h the harm in log space and b = log(1 + budget):

    - REGRESSION: the interval at ``levels.harm`` lies above 0 (significant) and h > b (relevant);
    - IMPROVEMENT: the mirror image;
    - PASS: the interval at ``levels.equal`` lies within (−b, +b);
    - else INCONCLUSIVE, as also with a budget of 0 and no change seen: no number of launches proves equality.

    No claim of a change is made from two levels mixed within a side unless the sides are apart by more than the budget,
    and none where luck with two levels is likelier than the level. Swapping the sides swaps REGRESSION and IMPROVEMENT
    and keeps everything else.
    """
    estimate = evidence.estimate
    if estimate is None:
        assert evidence.problem is not None
        same = evidence.problem is Reason.EXACT_EQUAL
        return Outcome(
            verdict=Verdict.PASS if same else Verdict.INCONCLUSIVE,
            reason=evidence.problem,
            effect=None,
            flags=evidence.flags,
        )
    budget = math.log1p(budget_ratio)
    harm = sign * estimate.log_ratio
    level = levels.harm if harm > 0 else levels.benefit
    changed = abs(harm) - estimate.half_width(level) > 0
    relevant = abs(harm) > budget
    equal = abs(harm) + estimate.half_width(levels.equal) < budget
    mixed = evidence.bimodal and evidence.spread > budget
    apart = abs(evidence.separation) > budget

    verdict, reason = Verdict.INCONCLUSIVE, Reason.INTERVAL_TOO_WIDE
    if evidence.sequential and evidence.trend:
        reason = Reason.TREND
    elif mixed and not (apart and changed):
        reason = Reason.BIMODAL
    elif changed and relevant:
        if level < evidence.chance:
            reason = Reason.TOO_FEW_LAUNCHES
        elif harm > 0:
            verdict, reason = Verdict.REGRESSION, Reason.BEYOND_BUDGET
        else:
            verdict, reason = Verdict.IMPROVEMENT, Reason.IMPROVED
    elif equal:
        verdict, reason = Verdict.PASS, Reason.WITHIN_BUDGET
    elif evidence.sequential:
        reason = Reason.NOT_INTERLEAVED
    flags = evidence.flags
    if verdict is Verdict.INCONCLUSIVE and harm + estimate.half_width(levels.equal) < budget:
        flags = (*flags, "not-worse")
    shown = levels.equal if verdict is Verdict.PASS else level
    return Outcome(verdict=verdict, reason=reason, effect=effect_of(estimate, shown), flags=flags)


def effect_of(estimate: Estimate, level: float) -> Effect | None:
    """The estimate as a relative change with the interval that misses the truth on either side with error ``level``.
    None when the change is too large for a number."""
    half = estimate.half_width(level)
    value = ratio_of(estimate.log_ratio)
    if math.isinf(value):
        return None
    return Effect(
        value_ratio=value,
        low_ratio=ratio_of(estimate.log_ratio - half),
        high_ratio=ratio_of(estimate.log_ratio + half),
        confidence=1 - 2 * level,
    )


def ratio_of(log_ratio: float) -> float:
    """exp(x) − 1, infinite where the number is too large."""
    return math.expm1(log_ratio) if log_ratio < 700 else math.inf
