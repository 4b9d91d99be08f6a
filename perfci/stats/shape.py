"""What a side's samples look like: a wild launch, two levels, a trend. Found here, judged in rule.py."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from scipy import special

OUTLIER_DEVIATIONS = 6.0
"""A launch is wild when it lies this many robust deviations (1.4826 × median absolute deviation) off the median."""
OUTLIER_LAUNCHES = 4
TREND_LAUNCHES = 4
TREND_LEVEL = 0.01
BIMODAL_LAUNCHES = 5

_BIMODAL_CRITICAL = (
    (5, 0.0111), (6, 0.0227), (7, 0.0374), (8, 0.0498), (10, 0.0776), (12, 0.1000),
    (15, 0.1248), (20, 0.1564), (25, 0.1780), (30, 0.1928),
)  # fmt: skip
"""(launches, share of the variance left inside the two best groups) that a normal sample undercuts with probability
0.5 %; simulated by benchmarks/statistics/bimodal_table.py. Above 30 the last value is kept, which is careful."""


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices of wild values. None below OUTLIER_LAUNCHES values, or when more than half of the values are equal (then
    the robust deviation is 0 and says nothing)."""
    if len(values) < OUTLIER_LAUNCHES:
        return ()
    middle = statistics.median(values)
    distances = [abs(value - middle) for value in values]
    scale = 1.4826 * statistics.median(distances)
    if scale == 0:
        return ()
    return tuple(index for index, distance in enumerate(distances) if distance > OUTLIER_DEVIATIONS * scale)


def is_bimodal(values: Sequence[float]) -> bool:
    """True when the values fall into two tight groups of at least two launches each: the variance left inside the best
    split is smaller than a normal sample would leave with probability 0.5 %. False below BIMODAL_LAUNCHES values or
    with zero variance. A count with two neighbouring values is bimodal in this sense, and rightly so."""
    n = len(values)
    if n < BIMODAL_LAUNCHES:
        return False
    data = np.sort(np.asarray(values, dtype=np.float64))
    data = data - data.mean()
    total = float(data @ data)
    if total <= 1e-24 * n:
        return False
    left = np.arange(2, n - 1)
    sums = np.cumsum(data)[left - 1]
    # The mean is 0, so a split of the n values after k explains sums² (1/k + 1/(n − k)) of the variance.
    explained = float(np.max(sums**2 * (1 / left + 1 / (n - left))))
    sizes, critical = zip(*_BIMODAL_CRITICAL, strict=True)
    return 1 - explained / total < float(np.interp(n, sizes, critical))


def has_trend(values: Sequence[float], times: Sequence[float] | None = None, *, level: float = TREND_LEVEL) -> bool:
    """True when the values rise or fall with the launch order (or ``times``) beyond chance: the slope's t test at
    ``level``, two-sided. False below TREND_LAUNCHES values, with zero variance, or when all times are equal."""
    n = len(values)
    if n < TREND_LAUNCHES:
        return False
    data = np.asarray(values, dtype=np.float64)
    order = np.arange(n) if times is None else np.unique(np.asarray(times), return_inverse=True)[1]
    x, y = order - order.mean(), data - data.mean()
    squares = float(x @ x), float(y @ y)
    if squares[0] == 0 or squares[1] <= 1e-24 * n:
        return False
    correlation = min(1.0, abs(float(x @ y)) / math.sqrt(squares[0] * squares[1]))
    if correlation == 1:
        return True
    statistic = correlation * math.sqrt((n - 2) / (1 - correlation**2))
    return 2 * float(special.stdtr(n - 2, -statistic)) < level
