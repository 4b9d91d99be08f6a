"""Estimates and intervals, with scipy's tests as reference."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from perfci.stats.interval import (
    Moments,
    most_trim,
    paired_estimate,
    t_quantile,
    welch_estimate,
    welch_from_moments,
)

values = st.lists(st.floats(-1, 1), min_size=2, max_size=20).filter(lambda xs: np.std(xs) > 1e-3)


@given(values, st.floats(0.0005, 0.2))
def test_paired_interval_is_scipys(ratios: list[float], level: float) -> None:
    ours = paired_estimate(ratios, least_deviation=1e-12)
    theirs = stats.ttest_1samp(ratios, 0).confidence_interval(1 - 2 * level)
    assert ours.log_ratio - ours.half_width(level) == pytest.approx(theirs.low, rel=1e-6, abs=1e-9)
    assert ours.log_ratio + ours.half_width(level) == pytest.approx(theirs.high, rel=1e-6, abs=1e-9)


@given(values, values, st.floats(0.0005, 0.2))
def test_welch_interval_is_scipys(left: list[float], right: list[float], level: float) -> None:
    ours = welch_estimate(left, right, least_deviation=1e-12)
    theirs = stats.ttest_ind(right, left, equal_var=False).confidence_interval(1 - 2 * level)
    assert ours.log_ratio - ours.half_width(level) == pytest.approx(theirs.low, rel=1e-6, abs=1e-9)
    assert ours.log_ratio + ours.half_width(level) == pytest.approx(theirs.high, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("n", "trim"), [(6, 1), (10, 1), (10, 2), (20, 3)])
def test_trimmed_welch_is_yuens(n: int, trim: int) -> None:
    rng = np.random.default_rng(n)
    left, right = rng.standard_t(2, (2, n))
    ours = welch_estimate(left, right, least_deviation=1e-12, trim=trim)
    theirs = stats.ttest_ind(right, left, equal_var=False, trim=trim / n)
    assert ours.log_ratio / ours.standard_error == pytest.approx(theirs.statistic)
    assert ours.df == pytest.approx(theirs.df)


def test_trimmed_pairs_by_hand() -> None:
    ours = paired_estimate([0.0, 1.0, 2.0, 3.0, 4.0, 100.0], least_deviation=1e-12, trim=1)
    winsorised = np.array([1.0, 1.0, 2.0, 3.0, 4.0, 4.0])
    assert ours.log_ratio == 2.5
    assert ours.df == 3
    assert ours.standard_error == pytest.approx(math.sqrt(5 * winsorised.var(ddof=1) / (4 * 3)))


def test_zero_variance_takes_the_least_deviation() -> None:
    ours = paired_estimate([0.1] * 4, least_deviation=0.01)
    assert (ours.deviation, ours.standard_error) == (0.01, pytest.approx(0.005))
    both = welch_estimate([0.0] * 3, [0.1] * 3, least_deviation=0.01)
    assert (both.df, both.deviation) == (pytest.approx(4), pytest.approx(0.01 * math.sqrt(2)))


@pytest.mark.parametrize("count", [0, 1])
def test_one_launch_has_no_noise(count: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        paired_estimate([0.1] * count, least_deviation=0.01)
    with pytest.raises(ValueError, match="too few"):
        welch_estimate([0.1] * 5, [0.1] * count, least_deviation=0.01)


def test_nothing_is_trimmed_from_few_launches() -> None:
    assert [most_trim(n) for n in (2, 5, 6, 9, 10, 30)] == [0, 0, 1, 1, 2, 6]
    with pytest.raises(ValueError, match="too few"):
        paired_estimate([0.1] * 5, least_deviation=0.01, trim=1)


@given(values, values)
def test_moments_are_enough(left: list[float], right: list[float]) -> None:
    full = welch_estimate(left, right, least_deviation=1e-12)
    sides = [
        Moments(center=float(np.mean(x)), error=float(stats.sem(x)), df=len(x) - 1, launches=len(x))
        for x in (left, right)
    ]
    short = welch_from_moments(*sides)
    assert (short.log_ratio, short.standard_error, short.df, short.deviation) == pytest.approx(
        (full.log_ratio, full.standard_error, full.df, full.deviation)
    )


def test_widening_and_allowance() -> None:
    ours = paired_estimate([0.1, 0.2, 0.3], least_deviation=0.01)
    assert ours.widened(deviation=0.05) is ours
    wide = ours.widened(deviation=0.2)
    assert wide.standard_error == pytest.approx(2 * ours.standard_error)
    assert wide.allowing(0.5).half_width(0.01) == pytest.approx(wide.half_width(0.01) + 0.5)


def test_quantiles_are_scipys() -> None:
    for level in (0.2, 0.01, 1e-4):
        for df in (1, 2.5, 11, 200):
            assert t_quantile(level, df) == pytest.approx(stats.t.isf(level, df), rel=1e-6)


@pytest.mark.parametrize("n", [3, 6, 12])
@pytest.mark.parametrize("paired", [True, False])
def test_coverage(n: int, paired: bool) -> None:
    """Nominal 98 % covers about 98 % of true values for normal noise, and for unequal noise of the sides."""
    rng = np.random.default_rng(n)
    covered, trials = 0, 3000
    for left, right in zip(rng.normal(0, 0.01, (trials, n)), rng.normal(0.05, 0.02, (trials, n)), strict=True):
        if paired:
            ours = paired_estimate(right - left, least_deviation=1e-9)
        else:
            ours = welch_estimate(left, right, least_deviation=1e-9)
        covered += abs(ours.log_ratio - 0.05) <= ours.half_width(0.01)
    low, high = stats.binom.interval(1 - 1e-6, trials, 0.98)
    assert low <= covered
    assert covered <= (high if paired else trials)
