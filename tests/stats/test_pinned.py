"""Pinned baselines: small changes that add up, and what may not be compared."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builder import ENVIRONMENT, paired, run

from perfci.model.comparison import Reason
from perfci.model.environment import Environment
from perfci.model.metrics import Statistic
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.judge import judge_workload
from perfci.stats.pinned import PINNED_DRIFT_RATIO, join_cumulative, judge_pinned, pin
from perfci.stats.power import FLOOR_LAUNCHES, two_state_chance

KEY = ("step", "gpu_busy_ns")
SETTINGS = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.01), Gate(metric="sync_count")))


def side(level: float, seed: int, *, syncs: float = 4, deviation: float = 0.001, count: int = 6, **more):
    values = level * np.exp(deviation * np.random.default_rng(seed).standard_normal(count))
    return [
        run({KEY: v, ("step", "sync_count"): syncs}, schedule="s", pair=i, position=2 * i, **more)
        for i, v in enumerate(values)
    ]


def pinned(level: float = 1e8, **more):
    return pin(side(level, 1, **more), reason="first level", accepted_on="2026-01-01")


def verdict_of(judged, metric: str = "gpu_busy_ns"):
    row = next(row for row in judged.rows if row.metric == metric)
    return row.verdict, row.reason


def test_twenty_small_changes_are_found_in_sum() -> None:
    base = pinned()
    found = None
    for change in range(1, 21):
        parent, now = 1e8 * 1.004 ** (change - 1), 1e8 * 1.004**change
        sides = side(parent, 2 * change), side(now, 2 * change + 1)
        judged = judge_workload(*sides, SETTINGS)
        assert verdict_of(judged)[0] is Verdict.PASS
        against = judge_pinned(base, sides[1], SETTINGS)
        joined = join_cumulative(judged, against)
        if joined.tally.worst is Verdict.REGRESSION:
            assert verdict_of(joined) == (Verdict.REGRESSION, Reason.CUMULATIVE)
            found = change
            break
    assert found is not None
    assert 1.004**found - 1 < 2 * (PINNED_DRIFT_RATIO + 0.01)


def test_equal_code_is_no_cumulative_regression() -> None:
    alarms = sum(
        judge_pinned(pinned(), side(1e8 * 1.01, seed), SETTINGS).tally.worst is Verdict.REGRESSION
        for seed in range(10, 60)
    )
    assert alarms == 0  # 1 % of drift between sessions lies within the allowance


def test_a_known_session_noise_replaces_the_assumed_drift() -> None:
    base = pinned()
    calm = replace(base, levels=tuple(replace(x, session_deviation=0.0005) if x.metric == KEY[1] else x
                                      for x in base.levels))  # fmt: skip
    candidate = side(1e8 * 1.015, 3)
    assert verdict_of(judge_pinned(base, candidate, SETTINGS))[0] is Verdict.INCONCLUSIVE
    assert verdict_of(judge_pinned(calm, candidate, SETTINGS)) == (Verdict.REGRESSION, Reason.CUMULATIVE)
    assert verdict_of(judge_pinned(calm, side(1e8, 4), SETTINGS))[0] is Verdict.PASS


@pytest.mark.parametrize(("session", "allowed"), [(0.001, 3 * math.sqrt(2) * 0.001), (None, math.log1p(0.02))])
def test_the_interval_is_wider_by_the_drift_that_is_allowed_for(session: float | None, allowed: float) -> None:
    """Three deviations of a difference of two sessions; 2 % where none is known, which is not the same as none."""
    candidate = side(1.015e8, 3)

    def half_width(deviation: float | None) -> float:
        base = pinned()
        base = replace(base, levels=tuple(replace(level, session_deviation=deviation) for level in base.levels))
        effect = judge_pinned(base, candidate, SETTINGS).rows[0].effect
        assert effect is not None
        return math.log1p(effect.high_ratio) - math.log1p(effect.value_ratio)

    assert half_width(session) - half_width(0.0) == pytest.approx(allowed)


def test_counts_are_exact_and_the_window_counts() -> None:
    base = pinned()
    more = judge_pinned(base, side(1e8, 3, syncs=5), SETTINGS)
    assert verdict_of(more, "sync_count") == (Verdict.REGRESSION, Reason.CUMULATIVE)
    assert verdict_of(judge_pinned(base, side(1e8, 3), SETTINGS), "sync_count")[1] is Reason.EXACT_EQUAL
    other = judge_pinned(base, side(1e8, 3, syncs=5, steps=7), SETTINGS)
    assert verdict_of(other, "sync_count")[0] is Verdict.NOT_COMPARABLE


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([8, 8.5] * 6, (Verdict.REGRESSION, Reason.CUMULATIVE)),
        ([2, 2.5] * 6, (Verdict.IMPROVEMENT, Reason.IMPROVED)),
        ([4, 8] * 6, (Verdict.INCONCLUSIVE, Reason.BIMODAL)),
        ([8, 8.5], (Verdict.INCONCLUSIVE, Reason.INTERVAL_TOO_WIDE)),
    ],
)
def test_a_count_that_varies_is_held_against_an_exact_level(counts, expected) -> None:
    """The level has as many launches as were accepted, all with the same count: they are not too few."""
    now = [run({("step", "sync_count"): count}, minute=at) for at, count in enumerate(counts)]
    base = pin(side(1e8, 1, count=12), reason="first level", accepted_on="2026-01-01")
    assert verdict_of(judge_pinned(base, now, SETTINGS), "sync_count") == expected


def test_a_count_that_varies_over_another_window_is_not_comparable() -> None:
    now = [run({("step", "sync_count"): count}, minute=at, steps=4) for at, count in enumerate([8, 8.5] * 6)]
    judged = judge_pinned(pinned(), now, SETTINGS)
    assert verdict_of(judged, "sync_count") == (Verdict.NOT_COMPARABLE, Reason.KEYS_DIFFER)


def test_two_levels_of_the_candidate_are_named() -> None:
    levels = [2.9e8, 3.4e8, 2.91e8, 3.41e8, 2.9e8, 3.39e8, 3.4e8, 2.92e8]
    candidate = [run({KEY: v}, schedule="s", pair=i, position=i) for i, v in enumerate(levels)]
    assert verdict_of(judge_pinned(pinned(), candidate, SETTINGS)) == (Verdict.INCONCLUSIVE, Reason.BIMODAL)


def test_launches_become_samples_as_those_of_the_level_did() -> None:
    """Two steps of 1 and 3 ms: their median is 2 ms, their 10th percentile 1.2 ms."""
    runs = [replace(one, series=(replace(one.series[0], values=(1_000_000, 3_000_000)),)) for one in side(1e6, 1)]
    low = pin(runs, reason="x", accepted_on="2026-01-01", statistics_of={KEY: Statistic.P10})
    middle = pin(runs, reason="x", accepted_on="2026-01-01")
    for level, ns in ((low, 1.2e6), (middle, 2e6)):
        row = judge_pinned(level, runs, SETTINGS).rows[0]
        assert (row.baseline.location, row.candidate.location) == pytest.approx((ns, ns))
        assert row.effect.value_ratio == pytest.approx(0)


def test_losses_outside_the_band_are_not_comparable() -> None:
    judged = judge_pinned(pinned(), side(1e8, 3, losses=(2.0, 9.0)), SETTINGS, golden_losses=(2.0, 1.0))
    assert judged.verdict_override is Verdict.NOT_COMPARABLE
    assert verdict_of(judged) == (Verdict.NOT_COMPARABLE, Reason.NUMERICS_DIFFER)
    assert "loss 9 at step 1" in judged.notes[0].text
    wide = judge_pinned(pinned(), side(1e8, 3, losses=(2.0, 9.0)), SETTINGS, golden_losses=(2.0, 1.0),
                        loss_tolerance_ratio=9.0)  # fmt: skip
    assert wide.verdict_override is None


def test_an_accepted_budget_is_in_force() -> None:
    base = pinned()
    wide = replace(base, levels=tuple(replace(x, budget_ratio=0.2) if x.metric == KEY[1] else x for x in base.levels))
    candidate = side(1.08e8, 3)
    assert verdict_of(judge_pinned(base, candidate, SETTINGS))[0] is Verdict.REGRESSION
    assert verdict_of(judge_pinned(wide, candidate, SETTINGS))[0] is Verdict.PASS


def test_what_cannot_be_compared() -> None:
    base = pinned()
    other = Environment.of({**dict(ENVIRONMENT.entries), "driver": "580.1"})
    judged = judge_pinned(base, side(1e8, 3, environment=other), SETTINGS)
    assert judged.verdict_override is Verdict.NOT_COMPARABLE
    assert [d.field for d in judged.key_differences] == ["driver"]
    assert judge_pinned(base, [], SETTINGS).tally.worst is Verdict.NOT_MEASURED
    one = judge_pinned(base, side(2e8, 3, count=1), SETTINGS)
    assert verdict_of(one) == (Verdict.INCONCLUSIVE, Reason.TOO_FEW_LAUNCHES)
    single = pin(side(1e8, 1, count=1), reason="one", accepted_on="2026-01-01")
    assert verdict_of(judge_pinned(single, side(2e8, 3), SETTINGS)) == (
        Verdict.INCONCLUSIVE,
        Reason.TOO_FEW_LAUNCHES,
    )
    gone = judge_pinned(base, [run({("step", "sync_count"): 4.0})], SETTINGS)
    assert verdict_of(gone) == (Verdict.NOT_MEASURED, Reason.VANISHED)


@pytest.mark.parametrize(
    ("level", "now", "noisy", "exact"),
    [
        (0, 0, (Verdict.PASS, Reason.EXACT_EQUAL), Verdict.PASS),
        (0, 1e6, (Verdict.INCONCLUSIVE, Reason.BASELINE_ZERO), Verdict.REGRESSION),
        (1e6, 0, (Verdict.INCONCLUSIVE, Reason.BASELINE_ZERO), Verdict.IMPROVEMENT),
    ],
)
def test_zeros_against_a_level(level, now, noisy, exact) -> None:
    """A level of 0, and a time or a rate that fell to 0: no percentage, and only 0 is equal to 0."""
    metrics = (KEY, ("run", "throughput_per_s"))

    def zeros(value):
        values = {**dict.fromkeys(metrics, value), ("step", "sync_count"): min(value, 3)}
        return [run(values, schedule="s", pair=i, position=i) for i in range(6)]

    rate = Gate(metric="throughput_per_s", phase="run", budget_ratio=0.01)
    settings = replace(SETTINGS, gates=(*SETTINGS.gates, rate))
    judged = judge_pinned(pin(zeros(level), reason="then", accepted_on="2026-01-01"), zeros(now), settings)
    for _, metric in metrics:
        assert verdict_of(judged, metric) == noisy
    assert verdict_of(judged, "sync_count")[0] is exact
    if level != now:
        assert {row.effect for row in judged.rows if row.metric != "sync_count"} == {None}


@given(
    st.lists(st.integers(4, 10**9), min_size=1, max_size=6),
    st.sampled_from([0, 0.25, 4]),
    st.sampled_from([("step", "gpu_busy_ns"), ("step", "sync_count"), ("run", "throughput_per_s")]),
)
def test_four_times_a_level_or_a_quarter_or_nothing_of_it_never_passes(values, factor, key) -> None:
    middle = sorted(values)[len(values) // 2]
    values = [min(max(value, 0.9 * middle), 1.1 * middle) for value in values]

    def runs(by):
        return [run({key: value * by}, schedule="s", pair=at, position=at) for at, value in enumerate(values)]

    settings = JudgeSettings(gates=(Gate(metric=key[1], phase=key[0], budget_ratio=0.05),))
    level = pin(runs(1), reason="then", accepted_on="2026-01-01")
    worse = (factor > 1) == (key[1] != "throughput_per_s")
    claims = {Verdict.REGRESSION if worse else Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE}
    for judged in (judge_pinned(level, runs(factor), settings), judge_workload(runs(1), runs(factor), settings)):
        assert judged.rows[0].verdict in claims


def test_constant_series_at_their_level_raise_no_alarm() -> None:
    judged = judge_pinned(pinned(deviation=0.0), side(1e8, 3, deviation=0.0), SETTINGS)
    assert verdict_of(judged)[0] in (Verdict.PASS, Verdict.INCONCLUSIVE)
    assert judged.rows[0].effect is not None
    assert judged.rows[0].effect.value_ratio == pytest.approx(0, abs=1e-9)


def test_a_baseline_needs_runs_of_one_environment_and_a_reason() -> None:
    with pytest.raises(ValueError, match="no usable run"):
        pin([], reason="x", accepted_on="2026-01-01")
    other = Environment.of({**dict(ENVIRONMENT.entries), "driver": "580.1"})
    with pytest.raises(ValueError, match="must not be compared"):
        pin([*side(1e8, 1), *side(1e8, 1, environment=other)], reason="x", accepted_on="2026-01-01")
    with pytest.raises(ValueError, match="reason"):
        pin(side(1e8, 1), reason=" ", accepted_on="2026-01-01")


def test_a_regression_against_the_parent_is_kept_as_it_is() -> None:
    sides = paired([1e8] * 6, [1.5e8] * 6)
    parent = judge_workload(*sides, SETTINGS)
    joined = join_cumulative(parent, judge_pinned(pinned(), sides[1], SETTINGS))
    assert verdict_of(joined) == (Verdict.REGRESSION, Reason.BEYOND_BUDGET)


def test_a_floor_widens_few_launches_against_a_level_as_between_two_sides() -> None:
    few, many = side(1.2e8, 3, count=4), side(1.2e8, 3, count=6)
    base = pinned()
    row = judge_pinned(base, few, SETTINGS, noise_floors={KEY: 0.2}).rows[0]
    assert (row.verdict, "noise-floor" in row.flags) == (Verdict.INCONCLUSIVE, True)
    assert verdict_of(judge_pinned(base, few, SETTINGS)) == (Verdict.REGRESSION, Reason.CUMULATIVE)
    assert verdict_of(judge_pinned(base, many, SETTINGS, noise_floors={KEY: 0.2}))[0] is Verdict.REGRESSION
    below = judge_pinned(base, few, SETTINGS, noise_floors={KEY: 1e-6}).rows[0]
    assert below.effect == judge_pinned(base, few, SETTINGS).rows[0].effect, "a floor never narrows"


def test_a_floor_of_another_statistic_says_nothing_about_a_level() -> None:
    few = side(1.2e8, 3, count=4)
    by_p10 = pin(side(1e8, 1), reason="x", accepted_on="2026-01-01", statistics_of={KEY: Statistic.P10})
    today = replace(SETTINGS, statistics=((KEY[1], Statistic.P10),))
    found = [
        verdict_of(judge_pinned(level, few, settings, noise_floors={KEY: 0.2}))[0]
        for level, settings in ((by_p10, SETTINGS), (pinned(), today), (by_p10, today))
    ]
    assert found == [Verdict.REGRESSION, Verdict.REGRESSION, Verdict.INCONCLUSIVE]


@pytest.mark.parametrize(
    ("level_launches", "alone", "known"),
    [
        (3, Reason.TOO_FEW_LAUNCHES, Reason.CUMULATIVE),  # five further launches stood at one level
        (6, Reason.CUMULATIVE, Reason.CUMULATIVE),
        (2, Reason.TOO_FEW_LAUNCHES, Reason.CUMULATIVE),
    ],
)
def test_the_launches_of_a_floor_count_beside_those_of_the_level(
    level_launches: int, alone: Reason, known: Reason
) -> None:
    """At 0.8 % for one gate: 3 and 3 launches show two levels by luck with 1/64, with five further ones 0.07 %."""
    base, candidate = pinned(count=level_launches), side(4e8, 3, count=3)
    assert verdict_of(judge_pinned(base, candidate, SETTINGS))[1] is alone
    assert verdict_of(judge_pinned(base, candidate, SETTINGS, noise_floors={KEY: 1e-6}))[1] is known


def test_no_launch_is_counted_twice() -> None:
    """A level of eight launches may rest on the very launches that made the floor: nothing is added to them."""
    candidate = side(4e8, 3, count=2)
    base = pinned(count=8)
    for floors in (None, {KEY: 1e-6}):
        judged = judge_pinned(base, candidate, SETTINGS, families=2, noise_floors=floors)
        assert verdict_of(judged)[1] is Reason.TOO_FEW_LAUNCHES
    assert two_state_chance(8, 2) > 0.004 > two_state_chance(8, 2, alike=FLOOR_LAUNCHES)


def test_launches_needed_against_a_level_are_those_of_the_candidate() -> None:
    budget = replace(SETTINGS, gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.03),))
    base = pinned(count=12, deviation=0.004)
    row = judge_pinned(base, side(1e8, 5, count=2, deviation=0.004), budget).rows[0]
    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.launches_needed is not None
    assert row.launches_needed > 2
    hopeless = judge_pinned(base, side(1e8, 5, count=2, deviation=0.004), SETTINGS).rows[0]
    assert hopeless.verdict is Verdict.INCONCLUSIVE
    assert hopeless.launches_needed is None, "2 % of drift are allowed for: no launch shows equality within 1 %"
