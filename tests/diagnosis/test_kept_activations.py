"""More peak memory with equal kernels points to validation; more work, or a program without validation, does not."""

import pytest
from launches import BFLOAT16_GEMM, FLOAT32_GEMM, PLAIN, evidence, training

from perfci.diagnosis.pair_patterns import kept_activations
from perfci.diagnosis.pair_rules import find_between
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence

PEAK = 2_305_285_632


def find(baseline, candidate):
    return list(kept_activations.find(PairView(baseline, candidate)))


def validating(peak, *, phase="validation"):
    made = training().with_kernel(phase, BFLOAT16_GEMM, 2, 50_000)
    return made.with_series("run", "peak_allocated_bytes", [peak]) if peak else made


CLEAN = validating(PEAK)
KEPT = validating(3_363_244_032)


def test_the_peak_of_a_validation_that_records():
    """The peaks are those that `eval` had on an H200 without and with the fault `validation-with-grad`."""
    (finding,) = find_between([CLEAN] * 2, [KEPT] * 2)
    assert (finding.rule, finding.phase, finding.confidence) == ("kept-activations", "validation", Confidence.MEDIUM)
    assert finding.title == (
        "peak memory grew by 46 % with equal kernels: validation may keep activations (no torch.no_grad)"
    )
    seen = evidence(finding)
    assert seen["more memory at the peak"] == 3_363_244_032 - PEAK
    assert seen["kernel time per step"] == seen["kernel time per step, baseline"]


def test_another_kernel_of_equal_number_is_the_same_work():
    other = KEPT.with_kernel("validation", BFLOAT16_GEMM, 0, 0).with_kernel("validation", FLOAT32_GEMM, 2, 50_000)
    assert len(find([CLEAN], [other])) == 1


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([CLEAN], [CLEAN]),
        ([KEPT], [CLEAN]),
        ([CLEAN], [validating(round(PEAK * 1.04))]),
        ([CLEAN], [KEPT, CLEAN]),
        ([CLEAN], [KEPT.with_kernel("validation", PLAIN, 1, 10)]),
        ([CLEAN], [KEPT.with_kernel("forward", BFLOAT16_GEMM, 6, 60_000)]),
        ([validating(PEAK, phase="sampling")], [validating(2 * PEAK, phase="sampling")]),
        ([CLEAN], [validating(None)]),
        ([validating(None)], [KEPT]),
    ],
    ids=[
        "equal",
        "mended",
        "little",
        "one launch",
        "more kernels",
        "more work",
        "no validation",
        "no peak",
        "no baseline",
    ],
)
def test_other_growth_is_not_named(baseline, candidate):
    assert find(baseline, candidate) == []
