"""The plan of looks: when to go on, when to stop, and what is shown meanwhile."""

import numpy as np
import pytest
from run_builder import paired, run

from perfci.model.comparison import Reason
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.judge import judge_workload
from perfci.stats.plan import GateState, Stop, look_sizes, looks_until, next_action, plan_launches

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


def test_nothing_measured_yet_goes_on() -> None:
    decision = next_action([judge_workload([], [], SETTINGS, workload="tiny")], SETTINGS)
    assert (decision.done, decision.open_workloads) == (False, ("tiny",))


def test_launches_before_the_first_launch() -> None:
    needed = plan_launches(
        {("step", "gpu_busy_ns"): 0.0017, ("step", "unprofiled_wall_ns"): 0.1, ("step", "sync_count"): 0.1},
        JudgeSettings(gates=(*SETTINGS.gates, Gate(metric="unprofiled_wall_ns", budget_ratio=0.02))),
        workload="tiny",
        families=3,
    )
    quiet, loud = needed["step", "gpu_busy_ns"], needed["step", "unprofiled_wall_ns"]
    assert quiet is not None
    assert loud is not None
    assert quiet <= 6
    assert loud > 200
    assert ("step", "sync_count") not in needed
