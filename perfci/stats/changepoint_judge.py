"""Judge: which candidate changes are real. Weakest first, until every change that is left is significant."""

import math
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from scipy import stats

from perfci.stats.changepoint_find import Floats, noise_of

WILD_DEVIATIONS = 3.0
"""Entries further from the median of their level are counted as if they stood there (Huber's way)."""
MOST_CORRELATION = 0.8
"""Correlation of neighbours that is believed at most: more is change or drift, not noise."""

LONG_ENOUGH = 6
"""Entries of a level that need not agree one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of the entries around their levels. ``correlation`` is that of neighbours: an upper bound, at least 0."""

    deviation: float
    degrees: int
    correlation: float

    def error(self, count: int) -> float:
        """Standard error of the mean of ``count`` successive entries."""
        rho = self.correlation
        # Variance of the mean of an AR(1) series, exact for this count.
        excess = 2 * sum((1 - lag / count) * rho**lag for lag in range(1, count)) if rho else 0.0
        return self.deviation * math.sqrt((1 + excess) / count)


def tamed(values: Floats, deviation: float) -> Floats:
    """Values of one level with wild ones drawn in to WILD_DEVIATIONS from the median."""
    middle = float(np.median(values))
    return np.clip(values, middle - WILD_DEVIATIONS * deviation, middle + WILD_DEVIATIONS * deviation)


def mean_of(values: Floats, deviation: float) -> float:
    """Mean of one level with wild entries drawn in; exactly the value when all entries are equal."""
    middle = float(np.median(values))
    return middle + float((tamed(values, deviation) - middle).mean())


def split(values: Floats, changes: tuple[int, ...]) -> list[Floats]:
    """The levels between changes."""
    return [np.asarray(part, dtype=np.float64) for part in np.split(values, changes)]


def noise_around(values: Floats, changes: tuple[int, ...]) -> Noise:
    """Noise of a series with these changes: pooled over the levels, wild entries drawn in.

    With fewer than 3 entries more than levels the differences of neighbours are taken with 1 degree of freedom. Zero
    variance gives 0.
    """
    rough = noise_of(values)
    parts = split(values, changes)
    residuals = [tamed(part, rough) - mean_of(part, rough) for part in parts]
    degrees = len(values) - len(parts)
    if degrees < 3:
        return Noise(deviation=rough, degrees=1, correlation=0.0)
    squares = sum(float((r**2).sum()) for r in residuals)
    pairs = sum(float((r[1:] * r[:-1]).sum()) for r in residuals)
    links = sum(len(r) - 1 for r in residuals)
    correlation = _correlation(squares, pairs, links=links, count=len(values), fitted=len(parts))
    return Noise(deviation=math.sqrt(squares / degrees), degrees=degrees, correlation=correlation)


def _correlation(squares: float, pairs: float, *, links: int, count: int, fitted: int) -> float:
    """Upper bound of the correlation of neighbours from the sums of squared residuals and of products of neighbours.

    Residuals around ``fitted`` numbers are correlated by about −fitted/count even when the noise is not; this puts that
    right. One standard error on top, because cutting takes correlation away, and so that luck makes no bold judge.
    """
    if squares <= 0 or links < 1:
        return 0.0
    measured = pairs / links / (squares / count) + fitted / count + 1 / math.sqrt(links)
    return min(MOST_CORRELATION, max(0.0, measured))


def p_value(left: Floats, right: Floats, noise: Noise) -> float:
    """Chance that two stretches of one level differ so much in the mean, at the worst place to cut them.

    A t test with the pooled noise of the whole series, so that a level of two entries can be judged; multiplied by the
    number of places where the two could have been cut (Bonferroni), because the place was chosen by the difference.
    Zero noise: 0 when the means differ, 1 when they do not.
    """
    difference = abs(mean_of(right, noise.deviation) - mean_of(left, noise.deviation))
    error = math.hypot(noise.error(len(left)), noise.error(len(right)))
    return _two_sided(difference, error, noise.degrees, places=len(left) + len(right) - 1)


def _two_sided(difference: float, error: float, degrees: int, *, places: int) -> float:
    if error == 0:
        return 0.0 if difference > 0 else 1.0
    return min(1.0, places * 2 * float(stats.t.sf(difference / error, degrees)))


def agrees(level: Floats, other: Floats) -> bool:
    """True when a level is long, or each of its entries lies nearer to its median than to the other level's: a few wild
    entries with calm ones between them are no level."""
    if len(level) >= LONG_ENOUGH:
        return True
    own, foreign = float(np.median(level)), float(np.median(other))
    return bool((np.abs(level - own) <= np.abs(level - foreign)).all())


class Motion(Enum):
    """How the level moves over two stretches: it stands but for a step, it slides (and may jump besides), or a step and
    a slide explain it about equally well."""

    STEP = "step"
    UNCLEAR = "unclear"
    SLIDE = "slide"


def motion(left: Floats, right: Floats) -> Motion:
    """Which of three descriptions suits: two levels, a straight line, a straight line with a jump.

    A number more must earn twice the price of Schwarz's criterion, because correlated noise looks like a slope; the cut
    of the two levels was chosen and counts as a number. Below 6 entries a line and a step look alike: STEP.
    """
    both = np.concatenate((left, right))
    n = len(both)
    if n < 6:
        return Motion.STEP
    flat = np.concatenate((left - left.mean(), right - right.mean()))
    levels = float((flat**2).sum())
    within = np.concatenate((_centred(len(left)), _centred(len(right))))
    jump_and_line = levels - float((within * flat).sum()) ** 2 / float((within**2).sum())
    if jump_and_line * n ** (2 / n) < levels:
        return Motion.SLIDE
    at = _centred(n)
    line = float(((both - both.mean()) ** 2).sum()) - float((at * both).sum()) ** 2 / float((at**2).sum())
    return Motion.UNCLEAR if line < levels * n ** (2 / n) else Motion.STEP


def _centred(count: int) -> Floats:
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def p_value_beside_drift(left: Floats, right: Floats) -> float:
    """As ``p_value``, where the level slides: the chance of such a jump beside a straight line with one slope on both
    sides, by least squares, with the noise around that fit and its correlation. Below 6 entries: 1."""
    both = np.concatenate((left, right))
    n = len(both)
    if n < 6:
        return 1.0
    # What is left of the step when constant and slope are taken out of it; the jump is the fit of the values to that.
    at = _centred(n)
    slope = at / math.sqrt(float((at**2).sum()))
    step = (np.arange(n) >= len(left)).astype(np.float64)
    step -= step.mean()
    step -= float((slope * step).sum()) * slope
    power = float((step**2).sum())
    jump = float((step * both).sum()) / power
    rest = both - both.mean()
    rest = rest - float((slope * rest).sum()) * slope - jump * step
    squares = float((rest**2).sum())
    rho = _correlation(squares, float((rest[1:] * rest[:-1]).sum()), links=n - 1, count=n, fitted=3)
    error = math.sqrt(squares / (n - 3) / power * (1 + rho) / (1 - rho))
    return _two_sided(abs(jump), error, n - 3, places=n - 1)


def significant(
    values: Floats, found: tuple[int, ...], *, raw: Floats, alarm_rate: float
) -> tuple[tuple[int, float], ...]:
    """The changes that stay, each with its p value at most ``alarm_rate``.

    ``values`` are without spikes, ``raw`` the same entries with them. Takes the weakest change away and judges its
    neighbours anew, longer by what it had cut off, until all are significant. Where the level slides, only a jump
    beside the slide counts; a short level counts only when its raw entries agree. The noise is estimated anew each
    time. Nothing found: nothing.
    """
    changes = list(found)
    while changes:
        places = tuple(changes)
        noise = noise_around(values, places)
        levels = [_Stretch(calm=c, raw=r) for c, r in zip(split(values, places), split(raw, places), strict=True)]
        ps = [_judge(left, right, noise) for left, right in pairwise(levels)]
        weakest = max(range(len(ps)), key=lambda i: (ps[i], i))
        if ps[weakest] <= alarm_rate:
            return tuple(zip(changes, ps, strict=True))
        del changes[weakest]
    return ()


@dataclass(frozen=True, slots=True)
class _Stretch:
    calm: Floats
    raw: Floats


def _judge(left: _Stretch, right: _Stretch, noise: Noise) -> float:
    if not (agrees(left.raw, right.raw) and agrees(right.raw, left.raw)):
        return 1.0
    step = p_value(left.calm, right.calm, noise)
    beside = p_value_beside_drift(left.calm, right.calm)
    match motion(left.calm, right.calm):
        case Motion.STEP:
            return step
        case Motion.UNCLEAR:
            return max(step, beside)
        case Motion.SLIDE:
            return beside
