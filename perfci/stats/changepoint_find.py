"""Find: where the level of a series may have changed. Generous; ``changepoint_judge`` decides."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHORTEST = 3
"""Fewest entries of a level that has ended: less is an incident, not a level."""
SHORTEST_LAST = 2
"""Fewest entries of the newest level: one entry alone is an outlier until the next one agrees with it."""
SPIKE_DEVIATIONS = 4.0
"""An entry that stands out of both neighbours by so many standard deviations is a spike."""
PENALTY = 2.0
"""Price of a change in units of variance × log(entries): the Schwarz criterion for a place and a height."""
_MAD = 1.482602218505602
"""Standard deviation of a normal distribution over its median absolute deviation."""


def noise_of(values: Floats) -> float:
    """Standard deviation of the entries around their level, from differences of neighbours: changes of level, single
    wild entries and drift hardly move it.

    Below 3 values it is 0. Where more than half of the differences are equal (counts that flicker, a series that is
    constant but for a step) it is the root mean square of the differences, over √2; a constant series gives 0.
    """
    if len(values) < 3:
        return 0.0
    steps = np.diff(values)
    robust = _MAD * float(np.median(np.abs(steps - np.median(steps))))
    return (robust or math.sqrt(float(np.mean(steps**2)))) / math.sqrt(2)


def without_spikes(values: Floats, noise: float) -> Floats:
    """The values with wild entries, one or two in a row, drawn to the median of the five around them (Hampel's filter).

    A step passes unharmed. The last two entries (and the first two) have too few neighbours: they may be the beginning
    of a new level when they agree with each other, and are drawn to the median of the three beside them when they do
    not. Below 5 values all stay as they are.
    """
    if len(values) < 5:
        return values.copy()
    result = values.copy()
    wild = SPIKE_DEVIATIONS * noise
    around = np.median(np.lib.stride_tricks.sliding_window_view(values, 5), axis=1)
    inner = values[2:-2]
    result[2:-2] = np.where(np.abs(inner - around) > wild, around, inner)
    for pair, beside in ((slice(0, 2), values[2:5]), (slice(-2, None), values[-5:-2])):
        two = values[pair]
        if abs(two[0] - two[1]) > wild:
            middle = np.median(beside)
            result[pair] = np.where(np.abs(two - middle) > wild, middle, two)
    return result


def candidates(values: Floats, noise: float) -> tuple[int, ...]:
    """Indices where a new level begins, in the segmentation of least cost: squared deviations from the segments' means
    plus ``PENALTY · noise² · log n`` per change. Exact, by dynamic programming
    (Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005). In a tie the later last
    change wins. No noise, or too few entries for two levels: none.
    """
    n = len(values)
    if n < SHORTEST + SHORTEST_LAST or noise <= 0:
        return ()
    centred = values - values.mean()
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    squares = np.concatenate(([0.0], np.cumsum(centred**2)))
    price = PENALTY * noise**2 * math.log(n)
    best = np.full(n + 1, np.inf)
    best[0] = -price
    begin = np.zeros(n + 1, dtype=np.int64)
    for end in range(SHORTEST, n + 1):
        starts = np.arange(0, end - (SHORTEST_LAST if end == n else SHORTEST) + 1)
        lengths = end - starts
        cost = (squares[end] - squares[starts]) - (sums[end] - sums[starts]) ** 2 / lengths
        total = best[starts] + np.maximum(cost, 0.0) + price
        chosen = len(total) - 1 - int(np.argmin(total[::-1]))
        best[end], begin[end] = total[chosen], starts[chosen]
    found: list[int] = []
    at = int(begin[n])
    while at > 0:
        found.append(at)
        at = int(begin[at])
    return tuple(reversed(found))
