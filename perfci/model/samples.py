"""From the values of a run's steps to its one number per phase and metric."""

import statistics
from dataclasses import dataclass
from fractions import Fraction

from perfci.model.metrics import METRICS, Metric, Statistic
from perfci.model.run import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of one run. ``exact`` is the unrounded value of a MEAN of integers (total over steps), else None."""

    value: float
    exact: Fraction | None = None


def _p10(values: tuple[int | float, ...]) -> float:
    """10th percentile, linear interpolation between closest ranks (Hyndman & Fan 1996, type 7)."""
    ordered = sorted(values)
    at = 0.1 * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def sample_of(series: Series, *, statistic: Statistic | None = None) -> Sample:
    """The declared statistic of the measured steps. ``statistic`` overrides the metric table (a calibrated choice)."""
    spec: Metric = METRICS[series.metric]
    chosen = statistic or spec.statistic
    values = series.values
    if chosen is Statistic.SINGLE:
        if len(values) != 1:
            raise ValueError(f"{series.metric} is one number per run, got {len(values)}")
        return Sample(value=float(values[0]))
    if chosen is Statistic.MEDIAN:
        return Sample(value=float(statistics.median(values)))
    if chosen is Statistic.P10:
        return Sample(value=_p10(values))
    if all(isinstance(value, int) for value in values):
        exact = Fraction(sum(int(value) for value in values), len(values))
        return Sample(value=float(exact), exact=exact)
    return Sample(value=float(statistics.fmean(values)))
