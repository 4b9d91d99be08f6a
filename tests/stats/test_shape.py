"""Outliers, two levels and trends: found where they are, seldom where they are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.stats.shape import has_trend, is_bimodal, outliers

TWO_LEVELS = [2.9, 3.4, 2.91, 3.41, 2.9, 3.39, 3.4, 2.92]


def best_split_share(values: list[float]) -> float:
    """Slow oracle: the variance left inside the best two groups of at least two."""
    ordered = np.sort(values)
    total = ((ordered - ordered.mean()) ** 2).sum()
    return min(
        sum(((part - part.mean()) ** 2).sum() for part in (ordered[:k], ordered[k:])) / total
        for k in range(2, len(ordered) - 1)
    )


@given(st.lists(st.integers(0, 1000), min_size=10, max_size=10).filter(lambda v: len(set(v)) > 1))
def test_bimodal_is_the_best_split(values: list[int]) -> None:
    found = best_split_share([float(v) for v in values])
    if abs(found - 0.0776) > 1e-9:
        assert is_bimodal([float(v) for v in values]) == (found < 0.0776)


@pytest.mark.parametrize("n", [5, 7, 12, 25, 40])
def test_normal_noise_is_seldom_called_two_levels(n: int) -> None:
    rng = np.random.default_rng(n)
    share = np.mean([is_bimodal(list(row)) for row in rng.standard_normal((4000, n))])
    assert share < 0.01


def test_two_levels_are_seen() -> None:
    assert is_bimodal(TWO_LEVELS)
    assert not is_bimodal(TWO_LEVELS[:4])
    assert not is_bimodal([1.0] * 10)
    assert not is_bimodal([1.0, 1.01, 0.99, 1.0, 1.02, 2.0])  # one wild launch is no level


@pytest.mark.parametrize("n", [4, 6, 12])
def test_trends_in_noise_are_as_rare_as_said(n: int) -> None:
    rng = np.random.default_rng(n)
    share = np.mean([has_trend(list(row)) for row in rng.standard_normal((4000, n))])
    assert share == pytest.approx(0.01, abs=0.006)


def test_trends_are_seen_in_time_order() -> None:
    rising = [1.0, 1.1, 1.25, 1.3, 1.45]
    assert has_trend(rising)
    assert has_trend([1.3, 1.0, 1.45, 1.25, 1.1], [4, 1, 5, 3, 2])
    assert has_trend([1.0, 2.0, 3.0, 4.0])
    assert not has_trend([1.0] * 8)
    assert not has_trend([1.0, 2.0, 3.0])
    assert not has_trend(rising, [7.0] * 5)


def test_outliers() -> None:
    assert outliers([1.0, 1.01, 0.99, 1.0, 2.0]) == (4,)
    assert outliers([1.0, 1.01, 2.0]) == ()
    assert outliers([1.0, 1.0, 1.0, 1.0, 2.0]) == ()
