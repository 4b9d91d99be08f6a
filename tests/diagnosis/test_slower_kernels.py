"""Kernels that take longer are named beyond the noise of the launches, and only where their number is the same."""

import numpy as np
import pytest
from launches import BFLOAT16_GEMM, GPT, PLAIN, Launch, evidence, recorded, training

from perfci.diagnosis.pair_patterns import slower_kernels
from perfci.diagnosis.pair_rules import find_between
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence

PRODUCTS = "matrix products (reduced precision)"


def find(baseline, candidate):
    return list(slower_kernels.find(PairView(baseline, candidate)))


def side(*gemm_ns, phase="forward", name=BFLOAT16_GEMM):
    """Launches of the training; in each the products of the phase take another time."""
    bare = training().with_kernel(phase, BFLOAT16_GEMM, 0, 0)
    return [bare.with_kernel(phase, name, 6, each_ns) for each_ns in gemm_ns]


CLEAN = side(50_000, 50_100, 49_900)


def test_a_slower_product_is_named_with_its_phase_and_cost():
    (finding,) = find(CLEAN, side(52_000, 52_100, 51_900))
    assert (finding.phase, finding.subject, finding.confidence) == ("forward", PRODUCTS, Confidence.MEDIUM)
    assert finding.title == f"the same number of kernels takes 3.2 % longer in forward, most in {PRODUCTS}"
    seen = evidence(finding)
    assert seen["extra time of these kernels per step"] == seen[PRODUCTS] == 6 * 2_000
    assert seen["their time per step, baseline"] == 6 * 50_000 + 20 * 4_000
    assert seen["their launches per step"] == 26
    assert PLAIN not in seen


def test_another_kernel_of_the_library_for_another_shape_is_the_same_product():
    (finding,) = find(CLEAN, side(52_000, 52_100, 51_900, name="nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT"))
    assert finding.subject == PRODUCTS


def test_one_per_cent_and_a_half_in_a_recorded_training():
    """As a feed-forward layer that is 1/64 wider: products of the forward pass take 3 % longer, on three launches."""
    clean = recorded(GPT)

    def launches(factor):
        made = []
        for noise in (1.0, 1.002, 0.999):
            one = clean
            for kernel in clean.kernels:
                if kernel.phase == "forward" and kernel.name.startswith("nvjet"):
                    each_ns = kernel.total_ns / kernel.count * factor * noise
                    one = one.with_kernel("forward", kernel.name, kernel.count // clean.step_count, each_ns)
            made.append(one)
        return made

    (finding,) = [f for f in find_between(launches(1), launches(1.06)) if f.rule == "slower-kernels"]
    assert (finding.phase, finding.subject, finding.confidence) == ("forward", PRODUCTS, Confidence.MEDIUM)
    assert evidence(finding)["growth"] < 0.03
    assert find(launches(1), launches(1)) == []
    assert find(launches(1.06), launches(1)) == []


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (CLEAN, CLEAN),
        (CLEAN, side(50_200, 50_400, 50_300)),  # under one per cent
        (side(48_000, 52_000, 50_000), side(53_000, 55_000, 54_000)),  # apart, but by less than they spread
        (side(50_000, 50_000, 50_000), side(50_000, 60_000, 60_000)),  # one launch as before
        (side(50_000), side(60_000)),  # single launches: a fifth more may be noise
        (side(50_000, 50_000), side(60_000, 60_000)),
        (side(60_000, 60_100, 59_900), CLEAN),
    ],
    ids=["equal", "little", "wide", "one as before", "single", "two", "faster"],
)
def test_what_noise_can_do_is_not_named(baseline, candidate):
    assert find(baseline, candidate) == []


def test_single_launches_say_only_much():
    (finding,) = find(side(50_000), side(70_000))
    assert finding.confidence is Confidence.LOW


def test_kernels_that_are_launched_more_often_are_a_change_of_another_kind():
    more = [launch.with_kernel("forward", BFLOAT16_GEMM, 8, 60_000) for launch in CLEAN]
    assert find(CLEAN, more) == []


def test_a_slower_gpu_is_told_apart_from_a_slower_operation():
    def launches(forward, backward=1.0):
        made = Launch()
        for phase, factor in (("forward", forward), ("backward", backward)):
            for index in range(8):
                made = made.with_kernel(phase, f"kernel_{index}", 4, 10_000 * factor)
        return [made] * 3

    (finding,) = find(launches(1), launches(1.03))
    assert (finding.phase, finding.subject, finding.confidence) == ("forward", "all kernels", Confidence.LOW)
    assert finding.title == "all kernels of forward take 3.0 % longer: the GPU was slower, not one operation"
    (finding,) = find(launches(1), launches(1.03, 1.02))
    assert (finding.phase, finding.subject) == ("step", "all kernels")
    assert evidence(finding)["growth"] == pytest.approx(0.025)
    one = [launch.with_kernel("forward", "kernel_0", 4, 20_000) for launch in launches(1)]
    (finding,) = find(launches(1), one)
    assert finding.subject == "kernel_0"


def test_a_tiny_phase_explains_nothing():
    before, after = ([launch.with_kernel("log", PLAIN, 1, each_ns) for launch in CLEAN] for each_ns in (500, 1000))
    assert find(before, after) == []
    assert [f.phase for f in find(before, [launch.with_kernel("log", PLAIN, 1, 2000) for launch in CLEAN])] == ["log"]


def test_communication_waits_for_others_and_is_left_out():
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    before = [launch.with_kernel("backward", nccl, 1, 100_000) for launch in CLEAN]
    after = [launch.with_kernel("backward", nccl, 1, 900_000) for launch in CLEAN]
    assert find(before, after) == []


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.1])
def test_equal_sides_rarely_look_apart(spread):
    """False alarms with the fewest launches that may speak: three a side, normal noise of any size."""
    random = np.random.default_rng(5)
    alarms = 0
    for _ in range(2_000):
        both = 1e6 * (1 + spread * random.standard_normal((2, 3)))
        sides = [[Launch().with_kernel("forward", "gemm_like", 1, each_ns) for each_ns in each] for each in both]
        alarms += bool(find(*sides))
    assert alarms < 20
