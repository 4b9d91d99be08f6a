"""The judge on runs: the decision rule, and every fault of a comparison that broke other tools."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from run_builder import ENVIRONMENT, paired, run, unpaired

from perfci.model.comparison import Reason, Row, WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.metrics import Kind
from perfci.model.run import LOSS_NOT_FINITE, Note, Run
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.judge import count_noisy_gates, judge_workload

GPU = Gate(metric="gpu_busy_ns", budget_ratio=0.02)
SETTINGS = JudgeSettings(
    gates=(
        GPU,
        Gate(metric="unprofiled_wall_ns", budget_ratio=0.02),
        Gate(metric="throughput_per_s", phase="run", budget_ratio=0.02),
        Gate(metric="sync_count"),
        Gate(metric="overlap_ratio", budget_ratio=0.02),
    )
)
MIRROR = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}


def the_row(judged: WorkloadComparison, metric: str = "gpu_busy_ns", phase: str = "step") -> Row:
    return next(row for row in judged.rows if (row.phase, row.metric) == (phase, metric))


def noisy(level: float, deviation: float, count: int, seed: int) -> list[float]:
    return (level * np.exp(deviation * np.random.default_rng(seed).standard_normal(count))).tolist()


def test_zero_variance_on_one_side_is_no_reason_to_see_nothing() -> None:
    sides = unpaired([115e6, 114e6, 115e6, 115e6, 115e6], [78.8e6] * 5, metric="unprofiled_wall_ns")
    row = the_row(judge_workload(*sides, SETTINGS), "unprofiled_wall_ns")
    assert row.verdict is Verdict.IMPROVEMENT
    assert row.effect is not None
    assert row.effect.value_ratio == pytest.approx(-0.315, abs=0.002)
    back = the_row(judge_workload(*reversed(sides), SETTINGS), "unprofiled_wall_ns")
    assert back.verdict is Verdict.REGRESSION


def test_zero_variance_on_both_sides_is_decided_by_the_resolution() -> None:
    row = the_row(judge_workload(*paired([1000_000] * 6, [1100_000] * 6), SETTINGS))
    assert row.verdict is Verdict.REGRESSION
    assert "zero-variance" in row.flags
    assert row.mde_ratio is not None
    assert row.mde_ratio > 0
    # A millisecond clock cannot tell 10 from 11: one unit of rounding is no certainty.
    coarse = the_row(judge_workload(*paired([10] * 4, [11] * 4), SETTINGS))
    assert coarse.verdict is Verdict.INCONCLUSIVE


def test_one_sided_series_never_enter_and_are_named() -> None:
    both = {("step", "gpu_busy_ns"): 1e6}
    extra = {("step", "unprofiled_wall_ns"): 1e6, ("step", "kernel_ns"): 1e6}
    left = [run({**both, **extra}, minute=i) for i in range(4)]
    right = [run(both, minute=i) for i in range(4)]
    judged = judge_workload(left, right, SETTINGS)
    gone = the_row(judged, "unprofiled_wall_ns")
    assert (gone.verdict, gone.reason, gone.effect) == (Verdict.NOT_MEASURED, Reason.VANISHED, None)
    assert the_row(judged, "kernel_ns").reason is Reason.VANISHED
    assert the_row(judged, "kernel_ns").verdict is None
    assert judged.tally.worst is Verdict.NOT_MEASURED
    new = the_row(judge_workload(right, left, SETTINGS), "unprofiled_wall_ns")
    assert (new.verdict, new.reason) == (Verdict.INCONCLUSIVE, Reason.NEW)


def test_baseline_zero_has_no_infinity() -> None:
    count = the_row(judge_workload(*paired([0, 0], [1, 1], metric="sync_count"), SETTINGS), "sync_count")
    assert (count.verdict, count.reason, count.effect) == (Verdict.REGRESSION, Reason.EXACT_CHANGED, None)
    assert "baseline-zero" in count.flags
    back = the_row(judge_workload(*paired([1, 1], [0, 0], metric="sync_count"), SETTINGS), "sync_count")
    assert back.verdict is Verdict.IMPROVEMENT
    time = the_row(judge_workload(*paired([0] * 6, [1000] * 6), SETTINGS))
    assert (time.verdict, time.reason, time.effect) == (Verdict.INCONCLUSIVE, Reason.BASELINE_ZERO, None)
    same = the_row(judge_workload(*paired([0] * 3, [0] * 3), SETTINGS))
    assert (same.verdict, same.reason) == (Verdict.PASS, Reason.EXACT_EQUAL)


def test_direction_is_the_metrics_own() -> None:
    faster = paired([100.0] * 6, [110.0] * 6, metric="throughput_per_s", phase="run")
    assert the_row(judge_workload(*faster, SETTINGS), "throughput_per_s", "run").verdict is Verdict.IMPROVEMENT
    slower = paired([110.0] * 6, [100.0] * 6, metric="throughput_per_s", phase="run")
    assert the_row(judge_workload(*slower, SETTINGS), "throughput_per_s", "run").verdict is Verdict.REGRESSION


def test_neutral_metrics_are_evidence_even_under_a_gate() -> None:
    row = the_row(judge_workload(*paired([0.9] * 6, [0.1] * 6, metric="overlap_ratio"), SETTINGS), "overlap_ratio")
    assert (row.gated, row.verdict, row.reason) == (False, None, Reason.EVIDENCE_ONLY)


def test_one_launch_a_side_decides_counts_only() -> None:
    values = {("step", "gpu_busy_ns"): 1e6, ("step", "sync_count"): 4.0}
    slower = {("step", "gpu_busy_ns"): 2e6, ("step", "sync_count"): 5.0}
    judged = judge_workload([run(values)], [run(slower)], SETTINGS)
    time = the_row(judged)
    assert (time.verdict, time.reason) == (Verdict.INCONCLUSIVE, Reason.TOO_FEW_LAUNCHES)
    assert time.effect is not None
    assert (time.effect.value_ratio, time.effect.low_ratio, time.effect.high_ratio) == (1.0, -1.0, math.inf)
    assert time.mde_ratio is None
    assert the_row(judged, "sync_count").verdict is Verdict.REGRESSION


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_side_against_itself_is_never_slower(count: int) -> None:
    runs = [run({("step", "gpu_busy_ns"): v, ("step", "sync_count"): 3.0}, minute=i)
            for i, v in enumerate(noisy(1e8, 0.05, count, 1))]  # fmt: skip
    judged = judge_workload(runs, runs, SETTINGS)
    assert judged.tally.worst in (Verdict.PASS, Verdict.INCONCLUSIVE)
    effect = the_row(judged).effect
    assert effect is not None
    assert effect.value_ratio == 0
    assert the_row(judged, "sync_count").reason is Reason.EXACT_EQUAL


def test_constant_series_pass() -> None:
    row = the_row(judge_workload(*paired([1_000_000] * 3, [1_000_000] * 3), SETTINGS))
    assert (row.verdict, row.reason) == (Verdict.PASS, Reason.WITHIN_BUDGET)


@pytest.mark.parametrize("arrival", [6, 8, 10])
def test_all_of_one_side_first_gives_no_regression_when_load_arrives(arrival: int) -> None:
    values = [1e8 * (1.159 if at >= arrival else 1) * v / 1e8 for at, v in enumerate(noisy(1e8, 0.003, 12, arrival))]
    row = the_row(judge_workload(*unpaired(values[:6], values[6:], same_time=False), SETTINGS))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.reason in (Reason.NOT_INTERLEAVED, Reason.TREND, Reason.BIMODAL)
    assert "not-interleaved" in row.flags


def test_counts_of_sides_that_were_not_interleaved_are_decided() -> None:
    sides = unpaired([4] * 3, [5] * 3, metric="sync_count", same_time=False)
    assert the_row(judge_workload(*sides, SETTINGS), "sync_count").verdict is Verdict.REGRESSION


def test_a_change_far_beyond_drift_is_seen_without_interleaving() -> None:
    sides = unpaired(noisy(1e8, 0.003, 6, 1), noisy(1.6e8, 0.003, 6, 2), same_time=False)
    assert the_row(judge_workload(*sides, SETTINGS)).verdict is Verdict.REGRESSION


def test_the_same_load_is_harmless_when_interleaved() -> None:
    luck = noisy(1e8, 0.002, 12, 3)
    sides = paired(
        [v * (1.15 if i >= 3 else 1) for i, v in enumerate(luck[:6])],
        [v * (1.15 if i >= 3 else 1) for i, v in enumerate(luck[6:])],
    )
    row = the_row(judge_workload(*sides, SETTINGS))
    assert row.verdict is Verdict.PASS
    assert "bimodal" in row.flags


def test_other_environment_is_not_compared() -> None:
    other = Environment.of({**dict(ENVIRONMENT.entries), "driver": "580.1"})
    left = [run({("step", "sync_count"): 4.0})]
    right = [run({("step", "sync_count"): 9.0}, environment=other)]
    judged = judge_workload(left, right, SETTINGS)
    assert judged.verdict_override is Verdict.NOT_COMPARABLE
    assert [(d.field, d.baseline, d.candidate) for d in judged.key_differences] == [("driver", "570.2", "580.1")]
    row = the_row(judged, "sync_count")
    assert (row.verdict, row.reason, row.effect) == (Verdict.NOT_COMPARABLE, Reason.KEYS_DIFFER, None)
    mixed = judge_workload([*left, *right], left, SETTINGS)
    assert mixed.verdict_override is Verdict.NOT_COMPARABLE


def test_clock_jitter_is_no_other_environment() -> None:
    left = Environment.of({**dict(ENVIRONMENT.entries), "sm_clock_mhz": "1980"})
    right = Environment.of({**dict(ENVIRONMENT.entries), "sm_clock_mhz": "1979"})
    values = {("step", "sync_count"): 4.0}
    judged = judge_workload([run(values, environment=left)], [run(values, environment=right)], SETTINGS)
    assert judged.tally.worst is Verdict.PASS


def test_a_family_with_one_freak_row_stays_quiet() -> None:
    """25 gates of equal code, one of them +94 % with an unadjusted p of 0.015."""
    gates = tuple(Gate(metric="wall_ns", phase=f"p{i}", budget_ratio=0.02) for i in range(25))
    left, right = [], []
    for launch in range(6):
        values = {(f"p{i}", "wall_ns"): noisy(1e8, 0.004, 1, 100 * launch + i)[0] for i in range(25)}
        right_values = {(f"p{i}", "wall_ns"): noisy(1e8, 0.004, 1, 5000 + 100 * launch + i)[0] for i in range(25)}
        right_values["p7", "wall_ns"] *= [1.3, 1.4, 2.5, 1.2, 3.1, 2.9][launch]
        left.append(run(values, schedule="s", pair=launch, position=2 * launch))
        right.append(run(right_values, schedule="s", pair=launch, position=2 * launch + 1))
    judged = judge_workload(left, right, JudgeSettings(gates=gates))
    assert the_row(judged, "wall_ns", "p7").verdict is Verdict.INCONCLUSIVE
    assert judged.tally.count(Verdict.REGRESSION) == 0
    alone = judge_workload(left, right, JudgeSettings(gates=(replace(gates[0], phase="p7"),)))
    assert the_row(alone, "wall_ns", "p7").verdict is Verdict.REGRESSION, "it is the family that keeps the row quiet"


def test_drift_that_may_not_be_claimed_lends_no_error_to_other_gates() -> None:
    gates = tuple(Gate(metric=metric, budget_ratio=0.02) for metric in ("wall_ns", "gpu_busy_ns"))
    steady, times = [1.000e8, 1.002e8, 0.999e8, 1.001e8, 1.000e8, 0.998e8], [1e8, 1.1e8, 1.2e8, 1.3e8, 1.4e8, 1.5e8]

    def confidence(factor: float) -> float:
        sides = tuple(
            [
                run({("step", "wall_ns"): wall * by, ("step", "gpu_busy_ns"): busy + later}, minute=later + at)
                for at, (wall, busy) in enumerate(zip(times, steady, strict=True))
            ]
            for later, by in ((0, 1), (10, factor))
        )
        judged = judge_workload(*sides, JudgeSettings(gates=gates))
        assert the_row(judged, "wall_ns").verdict is Verdict.INCONCLUSIVE
        effect = the_row(judged).effect
        assert effect is not None
        return effect.confidence

    assert confidence(8) == confidence(1)


def test_the_smallest_change_is_that_of_the_stricter_direction() -> None:
    """A gate that got better lends its error to claims of benefit; a harm would not be seen any sooner."""
    gates = tuple(Gate(metric=metric, budget_ratio=0.02) for metric in ("wall_ns", "gpu_busy_ns"))
    other = noisy(1e8, 0.02, 7, 3)

    def smallest(factor: float) -> float | None:
        sides: tuple[list[Run], list[Run]] = ([], [])
        for at in range(6):
            for side, by in ((0, 1.0), (1, factor)):
                values = {("step", "wall_ns"): by * (1e8 + at), ("step", "gpu_busy_ns"): other[at + side]}
                sides[side].append(run(values, schedule="s", pair=at, position=2 * at + side))
        judged = judge_workload(*sides, JudgeSettings(gates=gates))
        return the_row(judged).mde_ratio

    assert smallest(0.5) == smallest(1)


def test_two_levels_are_named_and_not_averaged() -> None:
    fast, slow = 2_900_000, 3_400_000
    left = [fast, slow, fast + 9000, slow + 8000, fast + 4000, slow - 5000, fast, slow]
    right = [slow, slow + 7000, fast, slow, slow - 9000, fast + 5000, slow, slow]
    row = the_row(judge_workload(*paired(left, right), SETTINGS))
    assert (row.verdict, row.reason) == (Verdict.INCONCLUSIVE, Reason.BIMODAL)
    assert row.mde_ratio is not None
    apart = the_row(judge_workload(*paired(left, [4 * v for v in right]), SETTINGS))
    assert apart.verdict is Verdict.REGRESSION
    assert "bimodal" in apart.flags


def test_a_clean_shift_of_four_launches_may_be_two_levels_by_luck() -> None:
    sides = paired([2_900_000, 2_901_000, 2_899_000, 2_900_500], [3_400_000, 3_401_000, 3_399_500, 3_400_500])
    row = the_row(judge_workload(*sides, SETTINGS, families=3))
    assert (row.verdict, row.reason) == (Verdict.INCONCLUSIVE, Reason.TOO_FEW_LAUNCHES)
    assert row.launches_needed is not None
    assert row.launches_needed > 4
    known = judge_workload(*sides, SETTINGS, families=3, noise_floors={("step", "gpu_busy_ns"): 0.002})
    assert the_row(known).verdict is Verdict.REGRESSION
    bistable = judge_workload(*sides, SETTINGS, families=3, noise_floors={("step", "gpu_busy_ns"): 0.08})
    assert the_row(bistable).verdict is Verdict.INCONCLUSIVE
    assert "noise-floor" in the_row(bistable).flags


def test_spoiled_launches_are_left_out_and_said() -> None:
    left, right = paired([1_000_000] * 6, [1_000_000] * 6)
    freak = run({("step", "gpu_busy_ns"): 9e6}, schedule="s", pair=6, position=12, spoiled=True)
    judged = judge_workload(left, [*right, freak], SETTINGS)
    assert the_row(judged).verdict is Verdict.PASS
    assert judged.candidate_launches == 6
    assert [note.code for note in judged.notes] == ["spoiled-left-out"]
    all_spoiled = judge_workload(left, [freak], SETTINGS)
    assert all_spoiled.verdict_override is Verdict.NOT_MEASURED
    assert the_row(all_spoiled).reason is Reason.SPOILED


def test_a_spoiled_launch_takes_its_partner_out_of_the_pairs() -> None:
    left, right = paired([1e8, 1e8, 2e8, 1e8, 1e8, 1e8, 1e8], [1e8] * 7)
    right[2] = replace(right[2], notes=run({}, spoiled=True).notes)
    row = the_row(judge_workload(left, right, SETTINGS))
    assert row.verdict is Verdict.PASS
    assert "unpaired-left-out" in row.flags


def test_no_run_is_not_green() -> None:
    runs = [run({("step", "gpu_busy_ns"): 1e6})]
    for left, right in (([], runs), (runs, []), ([], [])):
        judged = judge_workload(left, right, SETTINGS, workload="tiny")
        assert judged.tally.worst is Verdict.NOT_MEASURED
        assert judged.verdict_override is Verdict.NOT_MEASURED


def test_a_required_gate_that_meets_nothing_is_not_green() -> None:
    gate = Gate(metric="nccl_ns", phase="step", budget_ratio=0.02, required=True)
    judged = judge_workload(*paired([1e6] * 6, [1e6] * 6), JudgeSettings(gates=(GPU, gate)))
    row = the_row(judged, "nccl_ns")
    assert (row.verdict, row.reason) == (Verdict.NOT_MEASURED, Reason.NOT_MEASURED)
    other = replace(gate, workload="another*", required=True)
    assert judge_workload(*paired([1e6] * 6, [1e6] * 6), JudgeSettings(gates=(GPU, other))).tally.worst is Verdict.PASS


def test_a_count_that_varies_is_judged_as_noise() -> None:
    left = [100.0, 100.5, 100.0, 100.5, 100.0, 100.5]
    row = the_row(judge_workload(*paired(left, left[::-1], metric="sync_count"), SETTINGS), "sync_count")
    assert row.kind is Kind.NOISY
    assert "varies" in row.flags
    assert row.budget_ratio == 0.01
    assert row.verdict is Verdict.PASS
    more = the_row(judge_workload(*paired(left, [v + 20 for v in left], metric="sync_count"), SETTINGS), "sync_count")
    assert more.verdict is Verdict.REGRESSION


def test_a_shorter_window_does_not_change_a_count() -> None:
    """Three logs in 60 steps, two in 59: a window that lost its last step is no change of code."""
    log = [1 if at % 20 == 19 else 0 for at in range(60)]

    def with_steps(values: list[int], minute: int) -> object:
        made = run({}, minute=minute)
        series = type(run({("step", "sync_count"): 1}).series[0])(
            phase="step", metric="sync_count", values=tuple(values)
        )
        return replace(made, series=(series,), step_count=len(values))

    judged = judge_workload([with_steps(log, 0)], [with_steps(log[:-1], 1)], SETTINGS)  # type: ignore[list-item]
    assert the_row(judged, "sync_count").reason is Reason.EXACT_EQUAL
    assert judged.notes == ()
    # In a far shorter window nothing may be left of the logs of one side: equal, and said.
    quiet = [with_steps([0] * 60, 0), with_steps([0] * 15, 2)]
    judged = judge_workload(quiet, [with_steps(log, 1), with_steps(log, 3)], SETTINGS)  # type: ignore[arg-type]
    assert the_row(judged, "sync_count").reason is Reason.EXACT_EQUAL
    (note,) = judged.notes
    assert note.text == "counts are compared over 15 steps of each launch, the shortest window (the longest has 60)"


def test_a_log_every_20_steps_is_counted() -> None:
    sides = [run({("step", "sync_count"): 1.0}, steps=20)], [run({("step", "sync_count"): 1.05}, steps=20)]
    row = the_row(judge_workload(*sides, SETTINGS), "sync_count")
    assert row.verdict is Verdict.REGRESSION
    assert row.effect is not None
    assert row.effect.value_ratio == pytest.approx(0.05)


def test_budget_zero_on_noise_cannot_pass() -> None:
    gates = JudgeSettings(gates=(Gate(metric="gpu_busy_ns"),))
    row = the_row(judge_workload(*paired(noisy(1e8, 0.001, 12, 1), noisy(1e8, 0.001, 12, 2)), gates))
    assert (row.verdict, row.launches_needed) == (Verdict.INCONCLUSIVE, None)


def test_three_way() -> None:
    quiet = noisy(1e8, 0.002, 8, 5)
    other = noisy(1e8, 0.002, 8, 6)
    assert the_row(judge_workload(*paired(quiet, other), SETTINGS)).verdict is Verdict.PASS
    assert the_row(judge_workload(*paired(quiet, [v * 1.05 for v in other]), SETTINGS)).verdict is Verdict.REGRESSION
    # Significant, not relevant: a true +1 % under a budget of 2 %.
    small = the_row(judge_workload(*paired(quiet, [v * 1.01 for v in other]), SETTINGS))
    assert small.verdict is Verdict.PASS
    assert small.effect is not None
    assert small.effect.low_ratio > 0
    loud = the_row(judge_workload(*paired(noisy(1e8, 0.1, 6, 7), noisy(1e8, 0.1, 6, 8)), SETTINGS))
    assert (loud.verdict, loud.reason) == (Verdict.INCONCLUSIVE, Reason.INTERVAL_TOO_WIDE)
    assert loud.launches_needed is not None
    assert loud.launches_needed > 50
    for row in (small, loud):
        assert row.mde_ratio is not None


def test_wild_launch_is_named_trimmed_and_outvoted() -> None:
    left, right = noisy(1e8, 0.002, 10, 9), noisy(1.06e8, 0.002, 10, 10)
    right[4] *= 1.9
    row = the_row(judge_workload(*paired(left, right), SETTINGS))
    assert {"outlier", "trimmed"} <= set(row.flags)
    assert row.verdict is Verdict.REGRESSION
    assert row.effect is not None
    assert row.effect.value_ratio == pytest.approx(0.06, abs=0.01)


def test_step_gate_lends_its_error_to_the_phases() -> None:
    """A phase that is not significant by its own share is when the step has been found slower."""
    gates = (
        Gate(metric="wall_ns", phase="step", budget_ratio=0.02),
        Gate(metric="wall_ns", phase="f*", budget_ratio=0.02),
    )
    settings = JudgeSettings(gates=gates)
    rows = {}
    for slow_step in (1.0, 1.3):
        left, right = [], []
        for launch in range(6):
            a, b, c, d = noisy(1e8, 0.01, 4, launch + 50)
            left.append(run({("step", "wall_ns"): a, ("forward", "wall_ns"): b}, schedule="s", pair=launch))
            right.append(
                run({("step", "wall_ns"): c * slow_step, ("forward", "wall_ns"): d * 1.002}, schedule="s", pair=launch)
            )
        rows[slow_step] = the_row(judge_workload(left, right, settings), "wall_ns", "forward")
    alone, lent = rows[1.0].effect, rows[1.3].effect
    assert alone is not None
    assert lent is not None
    assert lent.confidence < alone.confidence  # a larger share of the error, so a narrower interval


def test_looking_often_costs_confidence() -> None:
    sides = paired(noisy(1e8, 0.02, 8, 1), noisy(1e8, 0.02, 8, 2))
    once = the_row(judge_workload(*sides, SETTINGS)).effect
    often = the_row(judge_workload(*sides, SETTINGS, looks=(4, 6, 8))).effect
    assert once is not None
    assert often is not None
    assert often.confidence > once.confidence


def test_families_share_one_error_rate() -> None:
    sides = paired(noisy(1e8, 0.02, 8, 1), noisy(1e8, 0.02, 8, 2))
    alone = the_row(judge_workload(*sides, SETTINGS)).effect
    shared = the_row(judge_workload(*sides, SETTINGS, families=10)).effect
    assert alone is not None
    assert shared is not None
    assert 1 - shared.confidence == pytest.approx((1 - alone.confidence) / 10)
    assert count_noisy_gates(*sides, SETTINGS, workload="tiny") == 1
    assert count_noisy_gates(*paired([1], [1], metric="sync_count"), SETTINGS, workload="tiny") == 0


def test_a_side_whose_loss_is_no_number_is_not_comparable() -> None:
    values = {("step", "sync_count"): 4.0}
    left = [run(values, losses=(2.0, 1.5))]
    right = [replace(run(values), notes=(Note(code=LOSS_NOT_FINITE, text="the loss was not finite in 2 steps"),))]
    judged = judge_workload(left, right, SETTINGS)
    assert judged.verdict_override is Verdict.NOT_COMPARABLE
    assert the_row(judged, "sync_count").reason is Reason.NUMERICS_DIFFER
    assert [note.text for note in judged.notes] == ["1 of 1 candidate launches: the loss was not finite in 2 steps"]
    both = judge_workload(right, right, SETTINGS)
    assert both.tally.worst is Verdict.PASS
    assert len(both.notes) == 2


def test_losses_outside_the_golden_band_are_not_comparable() -> None:
    values = {("step", "sync_count"): 4.0}
    left = [run(values, losses=(2.0, 1.5, 1.0))]
    right = [run(values, losses=(2.0, 1.5, 1.3))]
    judged = judge_workload(left, right, SETTINGS, golden_losses=(2.0, 1.5, 1.0))
    assert judged.verdict_override is Verdict.NOT_COMPARABLE
    assert the_row(judged, "sync_count").reason is Reason.NUMERICS_DIFFER
    assert [note.code for note in judged.notes] == ["loss-outside-band"]
    assert judge_workload(left, left, SETTINGS, golden_losses=(2.0, 1.5, 1.0)).tally.worst is Verdict.PASS


samples = st.integers(2, 12).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(900_000, 1_200_000), min_size=n, max_size=n) for _ in range(2)))
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(samples, st.booleans(), st.sampled_from(["gpu_busy_ns", "sync_count", "throughput_per_s"]), st.booleans())
def test_swapping_the_sides_mirrors_the_verdict(
    sides: tuple[list[int], list[int]], interleaved: bool, metric: str, looked_once: bool
) -> None:
    phase = "run" if metric == "throughput_per_s" else "step"
    settings = JudgeSettings(gates=(Gate(metric=metric, phase=phase, budget_ratio=0.03),), error_rate=0.2)
    make = (lambda a, b: paired(a, b, metric=metric, phase=phase)) if interleaved else (
        lambda a, b: unpaired(a, b, metric=metric)
    )  # fmt: skip
    if not interleaved and phase == "run":
        return
    looks = None if looked_once else (len(sides[0]),)
    there = judge_workload(*make(*sides), settings, looks=looks).rows[0]
    back = judge_workload(*make(*reversed(sides)), settings, looks=looks).rows[0]
    assert there.verdict is not None
    assert back.verdict is MIRROR.get(there.verdict, there.verdict)
    if there.effect is not None and back.effect is not None:
        assert math.log1p(there.effect.value_ratio) == pytest.approx(-math.log1p(back.effect.value_ratio), abs=1e-9)
        assert math.log1p(there.effect.low_ratio) == pytest.approx(
            -math.log1p(back.effect.high_ratio), rel=1e-6, abs=1e-9
        )
    assert there.mde_ratio == back.mde_ratio
    assert there.launches_needed == back.launches_needed
    assert set(there.flags) - {"not-worse"} == set(back.flags) - {"not-worse"}


@hypothesis_settings(max_examples=60, deadline=None)
@given(samples, st.integers(1, 1000))
def test_the_unit_does_not_matter_to_the_effect(sides: tuple[list[int], list[int]], factor: int) -> None:
    ours = judge_workload(*paired(*sides), SETTINGS).rows[0]
    scaled = judge_workload(*paired(*([v * factor for v in side] for side in sides)), SETTINGS).rows[0]
    assert ours.effect is not None
    assert scaled.effect is not None
    assert scaled.effect.value_ratio == pytest.approx(ours.effect.value_ratio, abs=1e-9)


@hypothesis_settings(max_examples=60, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_handed_in_does_not_matter(
    sides: tuple[list[int], list[int]], shuffle: random.Random
) -> None:
    left, right = paired(*sides)
    before = judge_workload(left, right, SETTINGS)
    shuffle.shuffle(left)
    shuffle.shuffle(right)
    after = judge_workload(left, right, SETTINGS)
    assert after == before


@pytest.mark.parametrize("percent", [1, 2, 3, 6, 7, 29, 30])
def test_a_count_at_its_budget_is_within_it(percent: int) -> None:
    """Also where the binary number of the budget lies below the decimal one."""
    settings = JudgeSettings(gates=(Gate(metric="kernel_count", budget_ratio=percent / 100),))

    def verdict(before: int, after: int) -> Verdict | None:
        sides = [[run({("step", "kernel_count"): count})] for count in (before, after)]
        return the_row(judge_workload(*sides, settings), "kernel_count").verdict

    assert verdict(100, 100 + percent) is Verdict.PASS
    assert verdict(100 + percent, 100) is Verdict.PASS
    assert verdict(10**6, 10**6 + 10**4 * percent + 1) is Verdict.REGRESSION


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_how_often_a_count_that_flickers_looks_exact_on_both_sides(launches: int) -> None:
    """All outcomes, each as likely: docs/statistics.md says how often it may be taken for a change of the program."""
    settings = JudgeSettings(gates=(Gate(metric="sync_count"),))
    outcomes = list(itertools.product((4, 5), repeat=2 * launches))
    alarms = 0
    for counts in outcomes:
        sides = paired(counts[:launches], counts[launches:], metric="sync_count")
        row = the_row(judge_workload(*sides, settings), "sync_count")
        alarms += row.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)
    assert alarms / len(outcomes) == 2 / 4**launches
