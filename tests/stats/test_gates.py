"""Launches that would decide a gate, and the smallest change that could have been seen."""

import math

import numpy as np
from run_builder import paired, unpaired

from perfci.model.settings import Gate, JudgeSettings
from perfci.stats.evidence import SEQUENTIAL_DRIFT_RATIO, Evidence
from perfci.stats.gates import launches_needed
from perfci.stats.interval import Estimate, Method
from perfci.stats.judge import judge_workload
from perfci.stats.rule import Levels

LEVELS = Levels(harm=0.0027, benefit=0.0027, equal=0.008)


def evidence(baseline: int, candidate: int, *, deviation: float = 0.02, level_launches: int | None = None) -> Evidence:
    estimate = Estimate(
        log_ratio=0.0,
        standard_error=deviation / math.sqrt(min(baseline, candidate)),
        df=min(baseline, candidate) - 1,
        launches=(baseline, candidate),
        deviation=deviation,
        method=Method.PAIRED if level_launches is None else Method.WELCH,
    )
    return Evidence(estimate=estimate, level_launches=level_launches)


def needed(seen: Evidence, levels: Levels = LEVELS) -> int | None:
    return launches_needed(seen, 0.03, levels, power=0.8)


def test_launches_are_asked_for_until_they_are_there() -> None:
    enough = needed(evidence(4, 4))
    assert enough is not None
    assert needed(evidence(enough - 1, enough - 1)) == enough
    assert needed(evidence(enough, enough)) is None


def test_against_a_level_of_few_launches_those_of_the_candidate_count() -> None:
    def asked(candidate: int) -> int | None:
        return needed(evidence(6, candidate, deviation=0.015, level_launches=6))

    enough = asked(2)
    assert enough is not None
    assert enough > 6, "else the launches of the level hide what is tested"
    assert asked(enough - 1) == enough
    assert asked(enough) is None


def test_the_harder_claim_says_how_many_launches_are_needed() -> None:
    """Nearly without noise only luck with two levels counts: 4**-4 lies between the two levels, 4**-5 below both."""
    quiet = evidence(2, 2, deviation=1e-9)
    for harm, benefit in ((0.0027, 0.008), (0.008, 0.0027)):
        assert needed(quiet, Levels(harm=harm, benefit=benefit, equal=0.008)) == 5
    assert needed(quiet, Levels(harm=0.008, benefit=0.008, equal=0.008)) == 4


def test_launches_of_a_floor_are_not_asked_for_again() -> None:
    """A clean change of two launches a side may be two levels by luck; eight launches that stood at one level help."""
    settings = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.02),))
    sides = paired([2_900_000, 2_901_000], [3_400_000, 3_401_000])
    alone, known = (
        judge_workload(*sides, settings, families=3, noise_floors=floors).rows[0].launches_needed
        for floors in (None, {("step", "gpu_busy_ns"): 1e-6})
    )
    assert (alone, known) == (5, 3)


def test_a_change_within_the_drift_that_is_allowed_for_could_not_have_been_seen() -> None:
    settings = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.02),))
    left, right = (1e8 * np.exp(0.003 * np.random.default_rng(seed).standard_normal(6)) for seed in (1, 2))
    in_turns, one_after_the_other = (
        judge_workload(*sides, settings).rows[0].mde_ratio
        for sides in (paired(left, right), unpaired(left, right, same_time=False))
    )
    assert in_turns is not None
    assert in_turns < 0.02
    assert one_after_the_other is not None
    assert one_after_the_other > SEQUENTIAL_DRIFT_RATIO
