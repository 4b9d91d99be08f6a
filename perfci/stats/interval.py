"""The effect of a change on a noisy metric: a mean of log ratios over launches, its standard error, its interval.

Everything is in log space, where swapping the sides changes the sign and nothing else. The unit of inference is the
launch: steps of one process share its luck (memory layout, clocks, thread placement) and are one number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

TRIM_LAUNCHES = 6
"""Fewest launches from which a wild one may be trimmed: below, too little is left to know the noise."""


def most_trim(launches: int) -> int:
    """How many launches may be trimmed at each end: a fifth, and none below TRIM_LAUNCHES."""
    return launches // 5 if launches >= TRIM_LAUNCHES else 0


class Method(StrEnum):
    """How the interval was made."""

    PAIRED = "paired"
    WELCH = "welch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A log ratio (candidate over baseline) with its standard error and degrees of freedom.

    ``launches`` are the launches behind it on each side (pairs when paired: both numbers are equal);
    ``deviation`` is the standard deviation of one pair's log ratio (or its equal for unpaired launches), the noise that
    more launches average away. ``allowance`` is a bound on what is not averaged away (drift between sides that were not
    interleaved). ``trimmed`` is how many of the lowest and as many of the highest launches (or pairs) were left out.
    """

    log_ratio: float
    standard_error: float
    df: float
    launches: tuple[int, int]
    deviation: float
    method: Method
    trimmed: int = 0
    allowance: float = 0.0

    def half_width(self, level: float) -> float:
        """Half of the interval that excludes a true value on either side with error at most ``level`` on each side."""
        return t_quantile(level, self.df) * self.standard_error + self.allowance

    def widened(self, *, deviation: float) -> "Estimate":
        """The same estimate with at least this deviation per pair (a noise floor known from elsewhere)."""
        if deviation <= self.deviation:
            return self
        return replace(self, standard_error=self.standard_error * deviation / self.deviation, deviation=deviation)

    def allowing(self, allowance: float) -> "Estimate":
        """The same estimate with a bound on drift that more launches do not average away."""
        return replace(self, allowance=self.allowance + allowance)


@lru_cache(maxsize=4096)
def t_quantile(level: float, df: float) -> float:
    """The value that Student's t exceeds with probability ``level``."""
    return -float(special.stdtrit(df, level))


def paired_estimate(log_ratios: Sequence[float] | Floats, *, least_deviation: float, trim: int = 0) -> Estimate:
    """Mean of the log ratios of interleaved pairs (Student; with ``trim`` Tukey & McLaughlin's trimmed t: so
    many of the highest and of the lowest pairs left out).

    ``least_deviation`` (positive) stands in where the ratios vary less than the resolution of the values: zero variance
    seen is not zero noise. Raises ValueError below 2 pairs, or when ``trim`` is above ``most_trim``.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    n = len(values)
    if n < 2 or trim > most_trim(n):
        raise ValueError(f"too few pairs: {n}")
    center, variance, kept = _location(values, trim=trim)
    deviation = max(math.sqrt(variance), least_deviation)
    return Estimate(
        log_ratio=center,
        standard_error=deviation * _error_factor(n, kept),
        df=kept - 1,
        launches=(n, n),
        deviation=deviation,
        method=Method.PAIRED,
        trimmed=trim,
    )


def welch_estimate(
    baseline_logs: Sequence[float] | Floats,
    candidate_logs: Sequence[float] | Floats,
    *,
    least_deviation: float,
    trim: int = 0,
) -> Estimate:
    """Difference of the mean logs of unpaired launches (Welch; with ``trim`` Yuen: so many of the highest and of
    the lowest launches of each side left out).

    ``least_deviation`` as in paired_estimate, for one side. Raises ValueError below 2 launches a side, or when
    ``trim`` is above ``most_trim``.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (baseline_logs, candidate_logs)]
    sizes = [len(side) for side in sides]
    if min(sizes) < 2 or trim > most_trim(min(sizes)):
        raise ValueError(f"too few launches: {sizes}")
    moments = []
    for side in sides:
        center, variance, kept = _location(side, trim=trim)
        deviation = max(math.sqrt(variance), least_deviation)
        moments.append(
            Moments(center=center, error=deviation * _error_factor(len(side), kept), df=kept - 1, launches=len(side))
        )
    return replace(welch_from_moments(*moments), trimmed=trim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Mean log of one side with its standard error (positive), degrees of freedom (at least 1) and launches."""

    center: float
    error: float
    df: float
    launches: int


def welch_from_moments(baseline: Moments, candidate: Moments) -> Estimate:
    """Welch's estimate from the moments of both sides, where the launches of one are no longer there."""
    squares = baseline.error**2, candidate.error**2
    total = sum(squares)
    return Estimate(
        log_ratio=candidate.center - baseline.center,
        standard_error=math.sqrt(total),
        df=total**2 / (squares[0] ** 2 / baseline.df + squares[1] ** 2 / candidate.df),
        launches=(baseline.launches, candidate.launches),
        deviation=math.sqrt(total * 2 / (1 / baseline.launches + 1 / candidate.launches)),
        method=Method.WELCH,
    )


def _location(values: Floats, *, trim: int) -> tuple[float, float, int]:
    """(mean, variance, values kept); trimmed: the mean of the inner values and the winsorised variance."""
    if not trim:
        return float(values.mean()), float(values.var(ddof=1)), len(values)
    ordered = np.sort(values)
    winsorised = np.clip(values, ordered[trim], ordered[-1 - trim])
    return float(ordered[trim : len(values) - trim].mean()), float(winsorised.var(ddof=1)), len(values) - 2 * trim


def _error_factor(n: int, kept: int) -> float:
    """Standard error over (winsorised) standard deviation: 1/√n untrimmed."""
    return math.sqrt((n - 1) / (kept * (kept - 1)))
