"""What these launches could have shown, and how many launches would be enough."""

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np
from scipy import special

from perfci.model.settings import MOST_LAUNCHES
from perfci.stats.interval import t_quantile

FLOOR_LAUNCHES = 8
"""Fewest launches of equal code that make a noise floor: fewer would not show a second level or a long tail."""
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)


def detectable_log_ratio(*, standard_error: float, df: float, level: float, power: float) -> float:
    """The true log ratio at which the interval at ``level`` excludes 0 with probability ``power``: the noncentral t.

    Proportional to the standard error; infinite when it is.
    """
    # Rounded down, so that Welch's fractional degrees of freedom share the work of few; careful by less than 1 %.
    return standard_error * noncentrality(math.floor(4 * df) / 4, level, power)


@lru_cache(maxsize=4096)
def noncentrality(df: float, level: float, power: float) -> float:
    """The noncentrality at which Student's t with ``df`` exceeds its upper ``level`` quantile with probability
    ``power``, to about four digits.

    P(Z + δ > q·S) = E[Φ(δ − q·S)] over the law of S = √(χ²/df), integrated over its quantiles; steadier than the
    closed form, which fails for the large quantiles of few degrees of freedom.
    """
    quantile = t_quantile(level, df)
    scale = np.sqrt(2 * special.gammaincinv(df / 2, (_NODES + 1) / 2) / df)
    node_weights = _NODE_WEIGHTS / 2
    low, high = 0.0, 10.0 + 5 * quantile
    for _ in range(60):
        middle = (low + high) / 2
        if float(node_weights @ special.ndtr(middle - quantile * scale)) < power:
            low = middle
        else:
            high = middle
    return high


def launches_for_budget(
    *,
    deviation: float,
    budget_log: float,
    pass_level: float,
    family_level: float,
    power: float,
    alike: int = 0,
    allowance: float = 0.0,
    level_launches: int | None = None,
) -> int | None:
    """Pairs of launches after which (a) equal code passes and (b) harm of twice the budget is called a regression, each
    with probability ``power``. None when that takes more than MOST_LAUNCHES, or when the budget does not exceed the
    ``allowance`` for drift, which no launch averages away (0: no number of launches proves equality). ``deviation`` is
    the standard deviation of one pair's log ratio, ``alike`` as in ``two_state_chance``.

    With ``level_launches`` the answer is launches of the candidate against an accepted level that rests on so many;
    the degrees of freedom are then those of the smaller side, the least that Welch's formula gives.
    """
    if budget_log <= allowance:
        return None

    def enough(n: int) -> bool:
        before = n if level_launches is None else level_launches
        fewest = min(before, n)
        if fewest < 2 or two_state_chance(before, n, alike=alike) > family_level:
            return False
        error = deviation * math.sqrt((1 / before + 1 / n) / 2)
        # (a): |estimate| + half width < budget; the estimate is normal around 0, the half width taken at its mean.
        passes = (t_quantile(pass_level, fewest - 1) + float(special.ndtri((1 + power) / 2))) * error
        passes = passes + allowance < budget_log
        detects = noncentrality(fewest - 1, family_level, power) * error + allowance <= 2 * budget_log
        # That harm of twice the budget is also seen beyond the budget follows from (a).
        return passes and detects

    if not enough(MOST_LAUNCHES):
        return None
    return bisect_left(range(MOST_LAUNCHES), True, key=enough)


def two_state_chance(baseline: int, candidate: int, *, wild: int = 0, alike: int = 0, paired: bool = False) -> float:
    """The chance, at its worst, that a process with two levels shows all baseline launches at one level and all
    candidate launches at the other by luck alone: max over q of qᵃ(1−q)ᶜ, 1/4ⁿ for n launches a side. So many ``wild``
    launches of each side may be anything, or, ``paired``, so many pairs. ``alike`` further launches of equal code, as
    of a calibration, all stood at the level of one of the sides.

    Such data look like a perfectly clean change, so no claim may be made at a level below this chance.
    """
    if wild:
        choices = math.comb(baseline, wild) * (1 if paired else math.comb(candidate, wild))
        return min(1.0, choices * two_state_chance(baseline - wild, candidate - wild, alike=alike))
    total = baseline + candidate
    if baseline < 1 or candidate < 1:
        return 1.0
    if alike:
        return max(two_state_chance(baseline + alike, candidate), two_state_chance(baseline, candidate + alike))
    return (baseline / total) ** baseline * (candidate / total) ** candidate
