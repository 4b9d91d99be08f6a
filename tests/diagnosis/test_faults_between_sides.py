"""What each fault of the library changes in the launches of a recorded training: the rule that must name it speaks, in
the right phase, and no rule that the table does not allow (workloads/faults.yaml)."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from launches import BFLOAT16_GEMM, FLOAT32_GEMM, GPT, Launch, recorded

from perfci.diagnosis.pair_rules import PAIR_RULES, find_between
from perfci.model.run import KernelStat

ROOT = Path(__file__).parents[2]
TABLE = {row["fault"]: row for row in yaml.safe_load((ROOT / "workloads" / "faults.yaml").read_text())["faults"]}
BETWEEN = {rule.NAME for rule in PAIR_RULES}
LAUNCHES = 3
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SINGLE = "at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float>>"


def training() -> Launch:
    """The recorded GPT made 20 steps long, with a validation and NCCL, without its wait and its pageable uploads."""
    source = recorded(GPT)
    made = Launch(step_count=20)
    for kernel in source.kernels:
        each_ns = kernel.total_ns / kernel.count
        made = made.with_kernel(kernel.phase, kernel.name, kernel.count // source.step_count, each_ns)
    made = made.with_kernel("validation", BFLOAT16_GEMM, 2, 7_000).with_kernel("backward", NCCL, 2, 20_000)
    made = made.with_series("run", "peak_allocated_bytes", [2_305_285_632])
    for phase in ("step", "h2d", "log"):
        for metric in ("sync_count", "sync_ns", "h2d_pageable_count", "h2d_pageable_bytes", "h2d_pageable_ns"):
            made = made.with_series(phase, metric, [0] * 20)
    return made


def slower(launch: Launch, factor: float, phases: tuple[str, ...], prefix: str = "") -> Launch:
    for kernel in launch.kernels:
        if kernel.phase in phases and kernel.name.startswith(prefix):
            each_ns = kernel.total_ns / kernel.count * factor
            launch = launch.with_kernel(kernel.phase, kernel.name, kernel.count // 20, each_ns)
    return launch


def per_step(launch: Launch, phase: str, *, each: dict[str, list[int]]) -> Launch:
    for metric, values in each.items():
        launch = launch.with_series(phase, metric, values).with_series("step", metric, values)
    return launch


def float32_layer(launch: Launch) -> Launch:
    for phase in ("forward", "backward"):
        products = launch.of(phase, next(k.name for k in launch.kernels if k.phase == phase and "nvjet" in k.name))
        each_ns = products.total_ns / products.count
        launch = launch.with_kernel(phase, products.name, products.count // 20 - 1, each_ns)
        launch = launch.with_kernel(phase, FLOAT32_GEMM, 1, 12 * each_ns)
    return launch


def unfused(launch: Launch) -> Launch:
    for kernel in [k for k in launch.kernels if k.phase == "optimizer"]:
        launch = launch.with_kernel("optimizer", kernel.name, 0, 0)
    return launch.with_kernel("optimizer", SINGLE, 400, 2_000)


def feed_forward(wider: float):
    return lambda launch: slower(launch, 1 + wider, ("forward", "backward"), "nvjet")


ALL_PHASES = ("h2d", "forward", "backward", "optimizer", "log", "validation")
PLANTED = {
    "none": lambda launch: launch,
    "item-each-step": lambda launch: per_step(launch, "log", each={"sync_count": [1] * 20, "sync_ns": [300_000] * 20}),
    "print-each-n-steps": lambda launch: per_step(
        launch, "log", each={"sync_count": ([1] + [0] * 9) * 2, "sync_ns": ([300_000] + [0] * 9) * 2}
    ),
    "pageable-copies": lambda launch: per_step(launch, "h2d", each={"h2d_pageable_count": [2] * 20}),
    "serial-loader": lambda launch: slower(launch, 1.015, ALL_PHASES),
    "unfused-optimizer": unfused,
    "validation-with-grad": lambda launch: launch.with_series("run", "peak_allocated_bytes", [3_363_244_032]),
    "sync-each-micro-step": lambda launch: launch.with_kernel("backward", NCCL, 4, 20_000),
    "cuda-malloc-each-step": lambda launch: per_step(launch, "log", each={"alloc_count": [146] * 20}),
    "float32-layer": float32_layer,
    "slower-matmul-1": feed_forward(0.06),
    "slower-matmul-2": feed_forward(0.12),
    "slower-matmul-5": feed_forward(0.25),
}


def noisy(launch: Launch, random: np.random.Generator) -> Launch:
    """Each kernel's time with the noise that launches of equal code have on an H200 (docs/evidence), 0.1 %."""
    kernels = tuple(
        KernelStat(
            phase=k.phase,
            name=k.name,
            count=k.count,
            total_ns=round(k.total_ns * (1 + 0.001 * random.standard_normal())),
        )
        for k in launch.kernels
    )
    return Launch(step_count=launch.step_count, series=launch.series, kernels=kernels)


@pytest.mark.parametrize("fault", TABLE)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_fault_is_named_and_nothing_else(fault, seed):
    random = np.random.default_rng(seed)
    clean, planted = training(), PLANTED[fault](training())
    baseline = [noisy(clean, random) for _ in range(LAUNCHES)]
    candidate = [noisy(planted, random) for _ in range(LAUNCHES)]
    found = find_between(baseline, candidate)
    row = TABLE[fault]
    assert {f.rule for f in found} >= set(row["rules"]) & BETWEEN
    assert {f.rule for f in found} <= {*row["rules"], *row["may"]}
    named = {f.phase for f in found if f.rule in row["rules"]}
    assert named <= ({"validation"} if row["phases"] == ["run"] else set(row["phases"]))
    assert find_between(candidate, baseline) == ()  # mended: nothing is new
