"""Detectable changes and launches needed, against scipy's noncentral t, enumeration and simulation."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from perfci.stats.power import (
    FLOOR_LAUNCHES,
    detectable_log_ratio,
    launches_for_budget,
    noncentrality,
    two_state_chance,
)


@pytest.mark.parametrize("df", [2, 3, 5, 11, 30.5])
@pytest.mark.parametrize("level", [0.01, 0.003])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_noncentrality_is_scipys(df: float, level: float, power: float) -> None:
    found = noncentrality(df, level, power)
    assert stats.nct.sf(stats.t.isf(level, df), df, found) == pytest.approx(power, abs=0.002)


def test_the_detectable_change_is_detected_as_often_as_said() -> None:
    rng = np.random.default_rng(3)
    n, level, power, deviation = 6, 0.01, 0.8, 0.01
    change = detectable_log_ratio(standard_error=deviation / math.sqrt(n), df=n - 1, level=level, power=power)
    values = rng.normal(change, deviation, (40_000, n))
    found = values.mean(axis=1) / values.std(axis=1, ddof=1) * math.sqrt(n) > stats.t.isf(level, n - 1)
    assert found.mean() == pytest.approx(power, abs=0.01)


def test_launches_for_budget_are_enough_and_not_too_many() -> None:
    rng = np.random.default_rng(4)
    deviation, budget, level, power = 0.02, math.log1p(0.02), 0.008, 0.8
    n = launches_for_budget(deviation=deviation, budget_log=budget, pass_level=level, family_level=0.0027, power=power)
    assert n is not None

    def passes(launches: int) -> float:
        values = rng.normal(0, deviation, (20_000, launches))
        half = stats.t.isf(level, launches - 1) * values.std(axis=1, ddof=1) / math.sqrt(launches)
        return float(np.mean(np.abs(values.mean(axis=1)) + half < budget))

    assert passes(n) > power - 0.03
    assert passes(max(2, n * 3 // 4)) < power


def test_launches_for_budget_at_the_ends() -> None:
    same = {"pass_level": 0.008, "family_level": 0.0027, "power": 0.8}
    assert launches_for_budget(deviation=0.01, budget_log=0, **same) is None
    assert launches_for_budget(deviation=5, budget_log=0.01, **same) is None
    least = launches_for_budget(deviation=1e-9, budget_log=0.01, **same)
    assert least is not None
    assert two_state_chance(least, least) <= 0.0027 < two_state_chance(least - 1, least - 1)


@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_two_state_chance_is_the_worst_by_enumeration(left: int, right: int) -> None:
    def chance(share: float) -> float:
        total = 0.0
        for states in product((0, 1), repeat=left + right):
            if not any(states[:left]) and all(states[left:]):
                total += math.prod(share if state else 1 - share for state in states)
        return total

    assert two_state_chance(left, right) == pytest.approx(max(chance(q) for q in np.linspace(0, 1, 1001)), rel=1e-4)


def test_two_state_chance_with_a_wild_launch_and_without_launches() -> None:
    assert two_state_chance(0, 3) == 1
    assert two_state_chance(8, 8, wild=1, paired=True) == pytest.approx(8 * 4**-7)
    assert two_state_chance(3, 3, wild=2, paired=True) == 3 / 4
    assert two_state_chance(3, 3, wild=3) == 1


@pytest.mark.parametrize(("left", "right", "wild"), [(6, 6, 1), (8, 8, 1), (7, 9, 1), (10, 10, 2)])
def test_a_wild_launch_on_each_side_is_luck_twice(left: int, right: int, wild: int) -> None:
    """Unpaired: so many launches of the baseline and as many of the candidate may stand at the other level."""

    def chance(share: float) -> float:
        return float(stats.binom.cdf(wild, left, share) * stats.binom.cdf(wild, right, 1 - share))

    assert two_state_chance(left, right, wild=wild) >= max(chance(q) for q in np.linspace(0, 1, 201))


@pytest.mark.parametrize(("pairs", "wild"), [(6, 1), (8, 1), (10, 2)])
def test_a_wild_pair_is_luck_once(pairs: int, wild: int) -> None:
    worst = float(stats.binom.cdf(wild, pairs, 3 / 4))  # a pair shows the step with probability 1/4 at most
    assert two_state_chance(pairs, pairs, wild=wild, paired=True) >= worst


@pytest.mark.parametrize(("launches", "alike"), [(2, 3), (3, 2), (2, 6)])
def test_launches_that_stood_at_one_level_make_luck_less_likely(launches: int, alike: int) -> None:
    """All baselines and all launches of the calibration at one level, all candidates at the other."""

    def chance(share: float) -> float:
        total = 0.0
        for states in product((0, 1), repeat=2 * launches + alike):
            candidate = states[launches : 2 * launches]
            if not any(states[:launches] + states[2 * launches :]) and all(candidate):
                total += math.prod(share if state else 1 - share for state in states)
        return total

    worst = max(chance(q) for q in np.linspace(0, 1, 501))
    assert two_state_chance(launches, launches, alike=alike) == pytest.approx(worst, rel=1e-3)
    assert two_state_chance(launches, launches, alike=alike) < two_state_chance(launches, launches)


def test_three_launches_with_a_floor_may_claim_what_two_may_not() -> None:
    level = 0.008 / 3  # three noisy gates
    assert two_state_chance(3, 3, alike=FLOOR_LAUNCHES) < level < two_state_chance(2, 2, alike=FLOOR_LAUNCHES)
    assert two_state_chance(5, 5) < level < two_state_chance(4, 4)


def test_launches_against_a_level_hit_the_limits_that_no_launch_moves() -> None:
    same = {"budget_log": 0.03, "pass_level": 0.008, "family_level": 0.0027, "power": 0.8}
    least = launches_for_budget(deviation=1e-9, level_launches=2, alike=6, **same)
    assert least is not None
    chances = [two_state_chance(2, n, alike=6) for n in (least, least - 1)]
    assert chances[0] <= 0.0027 < chances[1]
    assert launches_for_budget(deviation=0.02, level_launches=3, **same) is None, "the level stays uncertain"
    drifting = launches_for_budget(deviation=0.01, allowance=0.02, **same)
    plain = launches_for_budget(deviation=0.01, **same)
    assert drifting is not None
    assert plain is not None
    assert drifting > plain
    assert launches_for_budget(deviation=0.01, allowance=0.03, **same) is None
