"""An optimizer that lost its grouped kernels is named; more parameters or less work are not."""

import pytest
from launches import GPT, TRANSFORMER, Launch, evidence, recorded

from perfci.diagnosis.pair_patterns import unfused_optimizer
from perfci.diagnosis.pair_rules import find_between
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence

APPLY = "at::native::(anonymous)::multi_tensor_apply_kernel"
FUSED = (
    f"{APPLY}<at::native::(anonymous)::FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4>>"
)
COUNTER = f"{APPLY}<at::native::(anonymous)::TensorListMetadata<1>, at::native::BinaryOpScalarFunctor<float, 1, 1, 0>>"
FOREACH = (
    f"{APPLY}<at::native::(anonymous)::TensorListMetadata<3>, at::native::PointwiseOpScalarFunctor<float, 3, 3, 0>>"
)
SINGLE = "at::native::vectorized_elementwise_kernel<4, at::native::addcdiv>"


def find(baseline, candidate):
    return list(unfused_optimizer.find(PairView([baseline], [candidate])))


def optimizer(phase="optimizer", **per_step):
    kernels = {
        "fused": (FUSED, 50_000),
        "counter": (COUNTER, 2_000),
        "foreach": (FOREACH, 30_000),
        "single": (SINGLE, 2_000),
    }
    made = Launch().with_kernel("forward", SINGLE, 100, 5_000)
    for name, number in per_step.items():
        made = made.with_kernel(phase, *[kernels[name][0], number, kernels[name][1]])
    return made


fused = optimizer(fused=4, counter=1)
foreach = optimizer(foreach=20)
single = optimizer(single=800)


def test_fused_to_one_by_one():
    (finding,) = find(fused, single)
    assert (finding.phase, finding.subject, finding.confidence) == ("optimizer", "fused", Confidence.HIGH)
    assert finding.title == "the optimizer is no longer fused: 5 → 800 kernels per step (optimizer)"
    seen = evidence(finding)
    assert seen["kernels added per step"] == 795
    assert seen["extra kernel time per step"] == 800 * 2_000 - 4 * 50_000 - 2_000
    assert (seen["fused kernels per step, baseline"], seen["fused kernels per step"]) == (4, 0)


def test_foreach_to_one_by_one_and_fused_to_foreach():
    (lost,) = find(foreach, single)
    assert (lost.subject, lost.title) == (
        "foreach",
        "the optimizer is no longer grouped (foreach): 20 → 800 kernels per step (optimizer)",
    )
    (weaker,) = find(fused, foreach)
    assert weaker.subject == "fused"


def test_clipping_keeps_some_grouped_kernels():
    (finding,) = find(optimizer(foreach=20), optimizer(foreach=4, single=800))
    assert finding.subject == "foreach"


def test_a_recorded_fused_optimizer_taken_apart():
    clean = recorded(GPT)
    planted = clean
    for kernel in clean.kernels:
        if kernel.phase == "optimizer":
            planted = planted.with_kernel("optimizer", kernel.name, 0, 0)
    planted = planted.with_kernel("optimizer", SINGLE, 300, 2_000)
    (finding,) = [f for f in find_between([clean] * 2, [planted] * 2) if f.rule == "unfused-optimizer"]
    assert finding.subject == "fused"
    foreach_trace = recorded(TRANSFORMER)
    assert {f.subject for f in find(foreach_trace, planted)} == {"foreach"}


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (fused, fused),
        (single, fused),
        (single, optimizer(single=2000)),
        (fused, optimizer(fused=8, counter=1)),  # twice the parameters
        (foreach, optimizer(foreach=40)),
        (foreach, optimizer(foreach=20, single=800)),  # more work beside it
        (fused, optimizer(single=6)),  # next to no launches more
        (optimizer("forward", foreach=20), optimizer("forward", single=800)),
    ],
    ids=["equal", "mended", "never grouped", "more fused", "more foreach", "beside", "few", "another phase"],
)
def test_other_changes_are_not_named(baseline, candidate):
    assert find(baseline, candidate) == []
