"""Exact counts: equal or not, without statistics."""

import math
from dataclasses import dataclass
from fractions import Fraction

from perfci.model.comparison import Effect, Reason
from perfci.model.verdict import Verdict

_BUDGET_DENOMINATOR = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOutcome:
    """Verdict of an exact count. ``effect`` is None when the baseline is 0 and the candidate is not: the relative
    change cannot be computed, the change itself is certain."""

    verdict: Verdict
    reason: Reason
    effect: Effect | None


def judge_exact(baseline: Fraction, candidate: Fraction, *, budget_ratio: float, lower_is_better: bool) -> ExactOutcome:
    """Compare two totals per step to the unit.

    More harm than the budget is a REGRESSION, as much less an IMPROVEMENT (budgets are mirrored: a factor of 1 + budget
    up, the same factor down), anything between is a PASS. One launch a side is enough. Swapping the sides swaps
    REGRESSION and IMPROVEMENT and nothing else.
    """
    effect = exact_effect(baseline, candidate)
    if baseline == candidate:
        return ExactOutcome(verdict=Verdict.PASS, reason=Reason.EXACT_EQUAL, effect=effect)
    before, after = (baseline, candidate) if lower_is_better else (candidate, baseline)
    # The decimal that the user wrote: the binary 0.03 lies below 3 %, and +3 % would be beyond it.
    factor = 1 + Fraction(budget_ratio).limit_denominator(_BUDGET_DENOMINATOR)
    if after > before * factor:
        verdict, reason = Verdict.REGRESSION, Reason.EXACT_CHANGED
    elif before > after * factor:
        verdict, reason = Verdict.IMPROVEMENT, Reason.EXACT_CHANGED
    else:
        verdict, reason = Verdict.PASS, Reason.WITHIN_BUDGET
    return ExactOutcome(verdict=verdict, reason=reason, effect=effect)


def exact_effect(baseline: Fraction, candidate: Fraction) -> Effect | None:
    """The relative change, known without error; 0 for equal counts (also 0 and 0), None from 0 to anything else."""
    if baseline == candidate:
        return Effect(value_ratio=0.0, low_ratio=0.0, high_ratio=0.0, confidence=1.0)
    if baseline == 0:
        return None
    ratio = float(candidate / baseline - 1)
    if not math.isfinite(ratio):
        return None
    return Effect(value_ratio=ratio, low_ratio=ratio, high_ratio=ratio, confidence=1.0)
