"""A cache that is emptied in the loop is named where memory is given back; warm-up and pools are not."""

import pytest
from timeline_builder import MAIN, TimelineBuilder, healthy

from perfci.diagnosis import rules
from perfci.model.finding import Confidence

FREE, MALLOC = "cudaFree_v3020", "cudaMalloc_v3020"


def found(builder: TimelineBuilder):
    return [finding for finding in rules.find(builder.build()) if finding.rule == "allocator-churn"]


def evidence(finding) -> dict[str, float]:
    return {quantity.name: quantity.value for quantity in finding.evidence}


def emptied(*, count: int = 10, every: int = 1, free: str = FREE, malloc: str = MALLOC, long: float = 1, thread=MAIN):
    """Two buffers given back in `log` and fetched again in `forward` of the next step, in every so many steps."""
    made = healthy(count)
    for number in range(0, count, every):
        at = number * 1000
        made.phase("log", at + 980, at + 1000)
        for turn in range(2):
            made.call(malloc, at + 25 + turn * 30, at + 25 + turn * 30 + 10 * long, thread=thread)
            made.call(free, at + 981 + turn * 5, at + 981 + turn * 5 + 2 * long, thread=thread)
    return made


def test_emptying_the_cache_in_every_step():
    (finding,) = found(emptied())
    assert (finding.phase, finding.subject) == ("log", "device memory")  # forward takes longer, and is not to blame
    assert finding.confidence is Confidence.HIGH
    assert finding.title == (
        "device memory is asked from the driver in every step: 2 cudaFree and 2 cudaMalloc per step (log)"
    )
    assert "empty_cache" in finding.advice
    seen = evidence(finding)
    assert seen["CPU time in these calls per step"] == 2 * 12_000
    assert (seen["cudaFree per step"], seen["cudaMalloc per step"]) == (2, 2)
    assert seen["share of the step"] == pytest.approx(0.024)


def test_memory_that_is_only_taken_is_charged_to_who_takes():
    made = healthy()
    for number in range(10):
        made.call(MALLOC, number * 1000 + 25, number * 1000 + 45)
    (finding,) = found(made)
    assert finding.phase == "forward"


def test_pinned_memory_is_told_apart():
    (finding,) = found(emptied(free="cudaFreeHost_v3020", malloc="cudaHostAlloc_v3020"))
    assert (finding.subject, finding.phase) == ("pinned memory", "log")
    assert "Pin memory once" in finding.advice


def test_expandable_segments_and_the_driver_api_count():
    (finding,) = found(emptied(free="cuMemUnmap", malloc="cuMemMap"))
    assert evidence(finding)["cuMemUnmap per step"] == 2


@pytest.mark.parametrize(
    ("every", "long", "confidence"),
    [(1, 0.1, Confidence.MEDIUM), (2, 1, Confidence.MEDIUM)],
    ids=["next to nothing", "every second step"],
)
def test_less_sure(every, long, confidence):
    (finding,) = found(emptied(every=every, long=long))
    assert finding.confidence is confidence


@pytest.mark.parametrize(
    "builder",
    [
        healthy(),
        emptied(every=3),  # four of ten steps
        emptied(count=2),
        emptied(free="cudaFreeAsync_v11020", malloc="cudaMallocAsync_v11020"),
        emptied(thread="pt_pin_memory"),
    ],
    ids=["none", "some steps", "too few steps", "pool", "helper thread"],
)
def test_what_is_no_churn(builder):
    assert found(builder) == []


def test_calls_between_the_steps_of_the_window_do_not_count():
    made = healthy()
    for turn in range(20):
        made.call(FREE, 10_100 + turn * 10, 10_105 + turn * 10)
    assert found(made) == []
