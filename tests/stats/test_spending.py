"""Error spending: another way to integrate, simulation, and what must hold for any plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfci.stats.spending import SMALL_SAMPLE_FACTOR, SPENDING_POWER, nominal_levels


def spent(alpha: float, looks: tuple[int, ...], planned: int) -> float:
    return alpha / SMALL_SAMPLE_FACTOR * (looks[-1] / planned) ** SPENDING_POWER


@pytest.mark.parametrize("looks", [(4, 8, 12), (3, 5, 6, 12), (2, 4, 8, 10)])
def test_levels_are_those_of_the_multivariate_normal(looks: tuple[int, ...]) -> None:
    """The same integral by another road: no crossing up to each look has the probability 1 − spent."""
    alpha = 0.05
    levels = nominal_levels(alpha, looks, 12)
    bounds = stats.norm.isf(levels)
    times = np.array(looks, dtype=float)
    covariance = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    for upto in range(1, len(looks) + 1):
        stay = stats.multivariate_normal.cdf(bounds[:upto], cov=covariance[:upto, :upto], abseps=1e-6, releps=1e-6)
        assert 1 - stay == pytest.approx(spent(alpha, looks[:upto], 12), rel=0.005)


@pytest.mark.parametrize("looks", [(4, 6, 8, 10, 12), (3, 12), (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)])
def test_brownian_motion_crosses_as_often_as_spent(looks: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    alpha, sessions = 0.1, 200_000
    walks = np.cumsum(rng.standard_normal((sessions, looks[-1])), axis=1)
    crossed = np.zeros(sessions, dtype=bool)
    for n, level in zip(looks, nominal_levels(alpha, looks, 12), strict=True):
        crossed |= walks[:, n - 1] / np.sqrt(n) > stats.norm.isf(level)
    assert crossed.mean() == pytest.approx(spent(alpha, looks, 12), abs=4 * np.sqrt(0.08 * 0.92 / sessions))


def test_t_statistics_of_few_launches_stay_under_the_rate() -> None:
    rng = np.random.default_rng(2)
    alpha, sessions, looks = 0.01, 300_000, (4, 6, 8, 10, 12)
    values = rng.standard_normal((sessions, 12))
    crossed = np.zeros(sessions, dtype=bool)
    for n, level in zip(looks, nominal_levels(alpha, looks, 12), strict=True):
        seen = values[:, :n]
        crossed |= seen.mean(axis=1) / seen.std(axis=1, ddof=1) * np.sqrt(n) > stats.t.isf(level, n - 1)
    assert stats.binomtest(int(crossed.sum()), sessions, alpha, alternative="greater").pvalue > 0.01
    assert crossed.mean() > alpha / 2


def test_one_look_gets_everything() -> None:
    assert nominal_levels(0.01, (7,), 7) == (0.01,)
    assert nominal_levels(0.01, (9,), 7) == (0.01,)
    assert nominal_levels(0.01, (3,), 12)[0] < 0.01


@settings(deadline=None, max_examples=50)
@given(st.sets(st.integers(1, 30), min_size=1, max_size=8), st.floats(0.0001, 0.2))
def test_levels(looks: set[int], alpha: float) -> None:
    order = tuple(sorted(looks))
    levels = nominal_levels(alpha, order, 30)
    assert all(0 < level <= alpha for level in levels)
    assert sum(levels) >= spent(alpha, order, 30) * 0.999 or len(order) == 1
    assert nominal_levels(alpha, order[:1], 30)[0] == pytest.approx(levels[0])
    assert all(one <= two for one, two in zip(levels, nominal_levels(2 * alpha, order, 30), strict=True))


@pytest.mark.parametrize("looks", [(), (0, 2), (2, 2), (4, 3)])
def test_looks_must_rise(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        nominal_levels(0.01, looks, 12)


def test_alpha_must_be_a_small_probability() -> None:
    with pytest.raises(ValueError, match="alpha"):
        nominal_levels(0.7, (3,), 3)
