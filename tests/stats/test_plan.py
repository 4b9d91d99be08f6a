"""The plan of looks: when to go on, when to stop, and what is shown meanwhile."""

from dataclasses import replace

import numpy as np
import pytest
from run_builder import paired, run

from perfci.model.comparison import Reason
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.foresight import SLIM_CHANCE, predict
from perfci.stats.judge import judge_workload
from perfci.stats.plan import GateState, Stop, look_sizes, looks_until, next_action, open_gate

SETTINGS = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.02), Gate(metric="sync_count")))


def judged(deviation: float, launches: int, *, effect: float = 0.0, seed: int = 0, settings: JudgeSettings = SETTINGS):
    rng = np.random.default_rng(seed)
    left, right = 1e8 * np.exp(deviation * rng.standard_normal((2, launches)))
    sides = paired(left.tolist(), (right * (1 + effect)).tolist())
    return judge_workload(*sides, settings, looks=looks_until(launches, settings))


def test_looks_come_after_whole_blocks() -> None:
    assert look_sizes(SETTINGS) == (4, 6, 8, 10, 12)
    assert look_sizes(JudgeSettings(min_launches=1, max_launches=5)) == (2, 4, 5)
    assert look_sizes(JudgeSettings(min_launches=1, max_launches=1)) == (1,)
    assert looks_until(8, SETTINGS) == (4, 6, 8)
    assert looks_until(7, SETTINGS) == (4, 6, 7)
    assert looks_until(3, SETTINGS) == (3,)
    with pytest.raises(ValueError, match="no pair"):
        looks_until(0, SETTINGS)


def test_a_clear_pass_stops_early() -> None:
    decision = next_action([judged(0.001, 4)], SETTINGS)
    assert (decision.done, decision.stop, decision.open_workloads) == (True, Stop.DECIDED, ())
    assert [gate.state for gate in decision.gates] == [GateState.DECIDED]
    assert decision.gates[0].verdict is Verdict.PASS


def test_noise_goes_on_and_says_how_far() -> None:
    decision = next_action([judged(0.008, 4)], SETTINGS, elapsed_s=100, launch_s=30)
    assert (decision.done, decision.open_workloads) == (False, ("tiny",))
    assert 6 <= decision.launches_expected <= 12 == decision.launches_max
    assert decision.remaining_s == 2 * 30 * (decision.launches_expected - 4)


def test_hopeless_noise_is_given_up_and_claims_nothing() -> None:
    decision = next_action([judged(0.15, 6)], SETTINGS)
    assert decision.stop is Stop.HOPELESS
    assert decision.gates[0].verdict is Verdict.INCONCLUSIVE
    assert not next_action([judged(0.15, 4)], SETTINGS).done


def test_the_end_of_the_plan_and_of_the_time() -> None:
    assert next_action([judged(0.012, 12, seed=3)], SETTINGS).stop in (Stop.MAX_LAUNCHES, Stop.DECIDED)
    late = next_action([judged(0.008, 4)], SETTINGS, elapsed_s=29.9 * 60, launch_s=30)
    assert (late.done, late.stop) == (True, Stop.OUT_OF_TIME)
    assert late.open_workloads == ()


def test_only_open_workloads_go_on() -> None:
    other = judge_workload(
        [run({("step", "sync_count"): 1}, workload="counts")],
        [run({("step", "sync_count"): 2}, workload="counts")],
        SETTINGS,
    )
    decision = next_action([other, judged(0.008, 4)], SETTINGS)
    assert decision.open_workloads == ("tiny",)
    counts = next(gate for gate in decision.gates if gate.workload == "counts")
    assert (counts.state, counts.reason) == (GateState.DECIDED, Reason.EXACT_CHANGED)


def test_what_cannot_be_compared_is_not_measured_further() -> None:
    left = [run({("step", "gpu_busy_ns"): 1e8}, losses=(3.0,), minute=i) for i in range(2)]
    golden = judge_workload(left, left, SETTINGS, golden_losses=(1.0,))
    assert golden.verdict_override is Verdict.NOT_COMPARABLE
    assert next_action([golden], SETTINGS).open_workloads == ()
    gone = judge_workload(left, [run({})], SETTINGS)
    assert next_action([gone], SETTINGS).done


def test_a_gate_that_was_not_measured_is_not_called_decided() -> None:
    settings = JudgeSettings(gates=(*SETTINGS.gates, Gate(metric="peak_allocated_bytes", phase="run", required=True)))
    decision = next_action([judged(0.001, 4, settings=settings)], settings)
    assert (decision.done, decision.stop) == (True, Stop.HOPELESS)
    assert {gate.metric: gate.state for gate in decision.gates} == {
        "gpu_busy_ns": GateState.DECIDED,
        "peak_allocated_bytes": GateState.HOPELESS,
    }


def test_nothing_measured_yet_goes_on() -> None:
    decision = next_action([judge_workload([], [], SETTINGS, workload="tiny")], SETTINGS)
    assert (decision.done, decision.open_workloads) == (False, ("tiny",))


def test_launches_before_the_first_launch() -> None:
    predicted = predict(
        {("step", "gpu_busy_ns"): 0.0017, ("step", "unprofiled_wall_ns"): 0.1, ("step", "sync_count"): 0.1},
        JudgeSettings(gates=(*SETTINGS.gates, Gate(metric="unprofiled_wall_ns", budget_ratio=0.02))),
        workload="tiny",
        families=3,
    )
    quiet, loud = predicted["step", "gpu_busy_ns"], predicted["step", "unprofiled_wall_ns"]
    assert quiet.launches is not None
    assert loud.launches is not None
    assert quiet.launches <= 6
    assert loud.launches > 200
    assert (quiet.within_reach, loud.within_reach) == (True, False)
    assert ("step", "sync_count") not in predicted


def foreseen(deviation: float, settings: JudgeSettings = SETTINGS):
    found = predict({("step", "gpu_busy_ns"): deviation}, settings, workload="tiny", families=1)
    return {("tiny", *key): prediction for key, prediction in found.items()}


def test_a_gate_that_is_out_of_reach_is_not_waited_for() -> None:
    noisy = judged(0.05, 4, seed=1)
    assert not next_action([noisy], SETTINGS).done
    decision = next_action([noisy], SETTINGS, foreseen=foreseen(0.05))
    assert (decision.stop, decision.gates[0].verdict) == (Stop.HOPELESS, Verdict.INCONCLUSIVE)


def test_what_the_data_say_wins_over_the_floor() -> None:
    paired_away = judged(0.008, 4)
    assert not next_action([paired_away], SETTINGS, foreseen=foreseen(0.05)).done
    clear = judged(0.001, 4, effect=0.2)
    assert not next_action([clear], SETTINGS, foreseen=foreseen(0.05)).done
    decision = next_action([judged(0.001, 6, effect=0.2)], SETTINGS, foreseen=foreseen(0.05))
    assert (decision.stop, decision.gates[0].verdict) == (Stop.DECIDED, Verdict.REGRESSION)


def test_equal_code_is_mostly_given_up_at_once_and_what_the_plan_would_find_hardly_ever() -> None:
    known = foreseen(0.05)
    detectable = known["tiny", "step", "gpu_busy_ns"].detectable

    def given_up(effect: float) -> float:
        looks = [judged(0.05, 4, effect=effect, seed=seed) for seed in range(200)]
        return sum(next_action([look], SETTINGS, foreseen=known).stop is Stop.HOPELESS for look in looks) / len(looks)

    assert given_up(0.0) > 0.55
    assert given_up(np.expm1(detectable)) < 0.15
    assert given_up(np.expm1(1.5 * detectable)) < 0.03


def test_while_launches_are_few_the_floor_says_how_many_to_expect() -> None:
    few = judged(0.008, 4)
    predicted = foreseen(0.008)["tiny", "step", "gpu_busy_ns"]
    assert predicted.launches is not None
    assert 6 < predicted.launches < 12
    decision = next_action([few], SETTINGS, launch_s=30, foreseen=foreseen(0.008))
    assert decision.launches_expected == predicted.launches
    assert decision.remaining_s == 2 * 30 * (predicted.launches - 4)
    later = judged(0.008, 6)
    assert next_action([later], SETTINGS) == next_action([later], SETTINGS, foreseen=foreseen(0.008))


def test_the_chance_that_makes_a_gate_out_of_reach_is_about_what_is_said() -> None:
    """Just within reach: equal code passes at the end of the plan about as often as SLIM_CHANCE; clearly outside:
    hardly ever."""
    settings = JudgeSettings(gates=SETTINGS.gates[:1])

    def passes(deviation: float) -> float:
        rows = [judged(deviation, 12, seed=100 + seed, settings=settings).rows[0] for seed in range(200)]
        return sum(row.verdict is Verdict.PASS for row in rows) / len(rows)

    edge = max(
        d / 1000 for d in range(2, 40) if foreseen(d / 1000, settings)["tiny", "step", "gpu_busy_ns"].within_reach
    )
    assert passes(1.3 * edge) < 0.2
    assert passes(0.7 * edge) > 0.4


def test_the_end_of_the_plan_itself_is_within_its_reach() -> None:
    sure_of_little = replace(SETTINGS, power=SLIM_CHANCE)
    least = foreseen(0.02, sure_of_little)["tiny", "step", "gpu_busy_ns"].launches
    assert least is not None
    reach = [
        foreseen(0.02, replace(SETTINGS, max_launches=most))["tiny", "step", "gpu_busy_ns"].within_reach
        for most in (least - 1, least)
    ]
    assert reach == [False, True]


def test_a_row_is_open_while_the_plan_has_launches_left() -> None:
    most = SETTINGS.max_launches
    rows = [judged(0.02, launches).rows[0] for launches in (most - 2, most)]
    assert [row.verdict for row in rows] == [Verdict.INCONCLUSIVE] * 2
    assert [open_gate(row, SETTINGS) for row in rows] == [True, False]
