"""Changes of level in the history of one series: find, judge, say how much (docs/change-detection.md)."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from perfci.model.changepoint import ChangePoint, ChangeReport, HistoryEntry, Level
from perfci.model.comparison import Effect
from perfci.model.history import HistoryPoint
from perfci.stats.changepoint_find import Floats, candidates, noise_of, without_spikes
from perfci.stats.changepoint_judge import Noise, mean_of, noise_around, significant, split

ALARM_RATE = 0.001
"""Chance of a false change at one place of the search."""
CONFIDENCE = 0.95
"""Of the range [last good, first bad] and of the intervals."""
ROUNDING_RATIO = 1e-9
"""Changes up to this are rounding."""
_LARGEST_LOGARITHM = 700.0
FEWEST = 5
"""Measured entries below which nothing is said: two against two leave no idea of the noise."""


def find_changes(
    entries: Sequence[HistoryEntry], *, budget_ratio: float = 0.0, alarm_rate: float = ALARM_RATE
) -> ChangeReport:
    """Where did the level change, and by how much?

    Entries stand in the order of the main line; several values of an entry are joined by their median, because
    sessions differ by more than launches within one: the entry is the unit. Entries without values are gaps: they
    belong to no level and lie inside the range of a change. Changes with an effect of at most ``budget_ratio`` are
    left out.

    Works on logarithms when all values are positive, so that effects are ratios; on the values themselves otherwise.
    Single wild entries and slow drift are no changes. Empty history: no level. Fewer than FEWEST measured entries, or
    a constant series: one level. Deterministic: equal entries give equal reports. Scaling all values scales the levels
    and nothing else.
    """
    measured = [i for i, entry in enumerate(entries) if entry.values]
    if not measured:
        return ChangeReport()
    raw = np.array([float(np.median(entries[i].values)) for i in measured])
    logarithmic = bool(raw.min() > 0)
    values = np.log(raw) if logarithmic else raw
    calm = without_spikes(values, noise_of(values))
    kept = _changes(values, calm, budget_ratio, alarm_rate, logarithmic=logarithmic)
    places = tuple(place for place, _ in kept)
    noise = noise_around(calm, places)
    parts = split(calm, places)
    means = [mean_of(part, noise.deviation) for part in parts]
    borders = [0, *places, len(values)]
    levels = tuple(
        Level(
            first=measured[first],
            last=measured[after - 1],
            count=after - first,
            value=_level(raw[first:after], mean, logarithmic=logarithmic),
        )
        for first, after, mean in zip(borders, borders[1:], means, strict=False)
    )
    changes = []
    for number, (place, p) in enumerate(kept):
        before, after, newest = parts[number], parts[number + 1], parts[-1]
        low, high = _range(before, after, noise)
        changes.append(
            ChangePoint(
                index=measured[place],
                last_good=measured[place + low - 1],
                first_bad=measured[place + high],
                before=levels[number],
                after=levels[number + 1],
                effect=_effect(means[number], means[number + 1], before, after, noise, logarithmic=logarithmic),
                standing=_effect(means[number], means[-1], before, newest, noise, logarithmic=logarithmic),
                p_value=p,
            )
        )
    return ChangeReport(levels=levels, changes=tuple(changes))


def entries_of(points: Iterable[HistoryPoint], commits: Sequence[str]) -> tuple[HistoryEntry, ...]:
    """The samples of runs, put in the order of ``commits`` (oldest first): one entry per commit, empty where it was not
    measured; within an entry in the order of the points.

    Points of other commits and of imports are left out. ValueError for points of more than one comparability key: a new
    driver is no change of the code.
    """
    values: dict[str, list[float]] = {commit: [] for commit in commits}
    keys = set()
    for point in points:
        if point.commit in values:
            keys.add(point.key_hash)
            values[point.commit].append(point.sample)
    if len(keys) > 1:
        raise ValueError("points of different comparability keys must not be put on one line")
    return tuple(HistoryEntry(revision=commit, values=tuple(found)) for commit, found in values.items())


def _changes(
    values: Floats, calm: Floats, budget_ratio: float, alarm_rate: float, *, logarithmic: bool
) -> tuple[tuple[int, float], ...]:
    if len(values) < FEWEST:
        return ()
    least = max(budget_ratio, ROUNDING_RATIO)
    kept = significant(calm, candidates(calm, noise_of(values)), raw=values, alarm_rate=alarm_rate)
    while True:
        places = tuple(place for place, _ in kept)
        noise = noise_around(calm, places)
        means = [mean_of(part, noise.deviation) for part in split(calm, places)]  # the levels that are reported
        sizes = [_size(a, b, logarithmic=logarithmic) for a, b in pairwise(means)]
        if not sizes or min(sizes) > least:
            return kept
        smallest = sizes.index(min(sizes))
        rest = tuple(place for i, (place, _) in enumerate(kept) if i != smallest)
        kept = significant(calm, rest, raw=values, alarm_rate=alarm_rate)


def _size(before: float, after: float, *, logarithmic: bool) -> float:
    """Size of a change as a ratio, the larger of both directions."""
    if logarithmic:
        return _ratio(abs(after - before))
    return abs(after - before) / min(abs(before), abs(after)) if before and after else math.inf


def _ratio(logarithm: float) -> float:
    return math.expm1(logarithm) if logarithm < _LARGEST_LOGARITHM else math.inf


def _level(raw: Floats, mean: float, *, logarithmic: bool) -> float:
    """The level in the metric's unit; exactly the value when all entries have the same."""
    if raw.min() == raw.max():
        return float(raw[0])
    return math.exp(mean) if logarithmic else mean


def _effect(
    before_mean: float, after_mean: float, before: Floats, after: Floats, noise: Noise, *, logarithmic: bool
) -> Effect | None:
    error = math.hypot(noise.error(len(before)), noise.error(len(after)))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, noise.degrees)) * error
    difference = after_mean - before_mean
    if logarithmic:
        ratios = [_ratio(difference + offset) for offset in (-reach, 0.0, reach)]
    elif before_mean > 0:
        ratios = [(difference + offset) / before_mean for offset in (-reach, 0.0, reach)]
    else:
        return None
    if not math.isfinite(ratios[1]):
        return None
    return Effect(value_ratio=ratios[1], low_ratio=ratios[0], high_ratio=ratios[2], confidence=CONFIDENCE)


def _range(before: Floats, after: Floats, noise: Noise) -> tuple[int, int]:
    """How far before and after the chosen place the change may lie: places whose squared deviations are less than
    noise² · χ²(CONFIDENCE, 1 degree) above the least, correlation counted in. (0, 0) when the place is certain."""
    both = np.concatenate((before, after))
    levels = mean_of(before, noise.deviation), mean_of(after, noise.deviation)
    # Moving the cut turns entries of one level into entries of the other: only those between count.
    surplus = (both - levels[1]) ** 2 - (both - levels[0]) ** 2
    cut = len(before)
    rho = noise.correlation
    limit = noise.deviation**2 * float(stats.chi2.ppf(CONFIDENCE, 1)) * (1 + rho) / (1 - rho)
    earlier = np.cumsum(surplus[:cut][::-1])  # cost of giving the last k entries before the cut to the new level
    later = np.cumsum(-surplus[cut:])  # cost of leaving the first k entries after the cut to the old level
    low = [k for k in range(1, cut) if earlier[k - 1] <= limit]
    high = [k for k in range(1, len(after)) if later[k - 1] <= limit]
    return -max(low, default=0), max(high, default=0)
