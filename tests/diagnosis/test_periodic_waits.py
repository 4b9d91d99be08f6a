"""A wait in every n-th step is named with its period; waits of both sides, in all steps, and accidents are not."""

from dataclasses import replace

import pytest
from launches import GPT, GPT_DDP, evidence, recorded, training

from perfci.diagnosis.pair_patterns import periodic_waits
from perfci.diagnosis.pair_rules import find_between
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence


def find(baseline, candidate):
    return list(periodic_waits.find(PairView(baseline, candidate)))


def waiting(*places, usual=0, steps=20, phase="log", times=1):
    """A launch of which some steps wait once more than the others, 400 µs each."""
    counts = [usual + times * (step in places) for step in range(steps)]
    made = training().with_series("step", "sync_count", counts).with_series(phase, "sync_count", counts)
    return made.with_series(phase, "sync_ns", [400_000 * n for n in counts])


CLEAN = waiting()


def test_a_print_in_every_tenth_step():
    """Two launches whose windows begin at different steps: the distance is the same."""
    (finding,) = find_between([CLEAN] * 2, [waiting(3, 13), waiting(7, 17)])
    assert (finding.rule, finding.phase, finding.confidence) == ("periodic-waits", "log", Confidence.HIGH)
    assert finding.title == "the CPU waits for the GPU every 10 steps, which is new (log)"
    assert "every 10 steps" in finding.advice
    seen = evidence(finding)
    assert seen["CPU blocked in these waits per step (mean)"] == 40_000
    assert seen["CPU blocked by them in a step that waits"] == 400_000
    assert seen["new waits per step (mean)"] == pytest.approx(0.1)


def test_one_launch_with_two_waits_tells_no_period():
    (finding,) = find([CLEAN], [waiting(3, 13)])
    assert finding.title == "the CPU waits for the GPU in 2 of 20 steps, which is new (log)"
    assert finding.confidence is Confidence.MEDIUM
    (finding,) = find([CLEAN], [waiting(3, 8, 13, 18)])
    assert finding.subject == "every 5 steps"


def test_waits_at_no_fixed_distance():
    (finding,) = find([CLEAN], [waiting(1, 2, 9, 15)])
    assert (finding.subject, finding.confidence) == ("in 4 of 20 steps", Confidence.MEDIUM)


def test_on_top_of_a_wait_in_every_step():
    (finding,) = find([waiting(usual=1)], [waiting(0, 10, usual=1), waiting(5, 15, usual=1)])
    assert finding.subject == "every 10 steps"
    seen = evidence(finding)
    assert seen["steps that wait"] == 4
    assert seen["CPU blocked in these waits per step (mean)"] == 40_000, "without the wait that is no news"
    assert seen["CPU blocked by them in a step that waits"] == 400_000


def test_a_launch_whose_blocked_time_is_not_known_leaves_it_out():
    unknown = waiting(7, 17)
    unknown = replace(unknown, series=tuple(s for s in unknown.series if s.metric != "sync_ns"))
    (finding,) = find([CLEAN] * 2, [unknown, waiting(3, 13)])
    assert finding.evidence[0].value == 0
    assert "CPU blocked by them in a step that waits" not in evidence(finding)


def test_every_other_step_of_a_recorded_training():
    clean = recorded(GPT).with_series("log", "sync_count", [0] * 8)
    planted = clean.with_series("log", "sync_count", [0, 1] * 4)
    (finding,) = find([clean], [planted])
    assert (finding.phase, finding.subject) == ("log", "every 2 steps")


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([CLEAN], [CLEAN]),
        ([waiting(3, 13)], [waiting(5, 15)]),
        ([waiting(3, 13)], [CLEAN]),
        ([CLEAN], [waiting(4)]),
        ([CLEAN], [waiting(4, times=8)]),
        ([CLEAN] * 2, [waiting(3, 13), CLEAN]),
        ([CLEAN], [waiting(*range(19))]),
        ([CLEAN], [waiting(3, 13, phase="background")]),
        ([training()], [waiting(3, 13)]),
        ([CLEAN], [training()]),
    ],
    ids=[
        "none", "both", "gone", "once", "timers of DDP", "one launch", "in every step", "helper",
        "baseline not measured", "not measured",
    ],
)  # fmt: skip
def test_other_waits_are_not_named(baseline, candidate):
    assert find(baseline, candidate) == []


def test_the_timers_that_ddp_reads_in_one_step_are_no_period():
    assert find([recorded(GPT)], [recorded(GPT_DDP)]) == []
