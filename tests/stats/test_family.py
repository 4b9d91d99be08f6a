"""Family control: Holm's procedure against the closed testing principle it abbreviates."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.stats.family import STEP_SHARE, weighted_holm, weights


def closed_test(alpha: float, shares: list[float], p_values: list[float]) -> set[int]:
    """Slow oracle: i is rejected when every intersection containing it is, by weighted Bonferroni."""
    everyone = range(len(shares))
    subsets = [set(s) for size in range(1, len(shares) + 1) for s in combinations(everyone, size)]

    def rejected(subset: set[int]) -> bool:
        total = sum(shares[i] for i in subset)
        return any(p_values[i] < alpha * shares[i] / total for i in subset)

    return {i for i in everyone if all(rejected(s) for s in subsets if i in s)}


@given(st.lists(st.tuples(st.floats(0.05, 1), st.floats(0, 0.1)), min_size=1, max_size=6))
def test_weighted_holm_is_the_closed_test(entries: list[tuple[float, float]]) -> None:
    total = sum(weight for weight, _ in entries)
    shares = [weight / total for weight, _ in entries]
    p_values = [p for _, p in entries]
    levels = weighted_holm(0.05, shares, lambda i, level: p_values[i] < level)
    assert {i for i, p in enumerate(p_values) if p < levels[i]} == closed_test(0.05, shares, p_values)


def test_nothing_rejected_is_bonferroni() -> None:
    assert weighted_holm(0.03, [1 / 3] * 3, lambda _, __: False) == pytest.approx([0.01] * 3)
    assert weighted_holm(0.03, [], lambda _, __: True) == ()


def test_the_step_has_the_greater_share() -> None:
    assert weights(["step", "forward", "backward"]) == pytest.approx((STEP_SHARE, 0.1, 0.1))
    assert weights(["step", "run"]) == (0.5, 0.5)
    assert weights(["forward"]) == (1.0,)
    assert weights([]) == ()


@given(st.lists(st.sampled_from(["step", "run", "forward", "data"]), min_size=1))
def test_shares_are_whole(phases: list[str]) -> None:
    assert sum(weights(phases)) == pytest.approx(1)
