"""The GPU waits between many small kernels, because the CPU cannot launch them fast enough."""

from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.rule import MIN_STEPS, count, percent, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import STEP
from perfci.model.timeline import Int64, OperationKind

NAME = "many-small-kernels"
DOCS = "docs/rules/many-small-kernels.md"

MIN_KERNELS = 50
"""Fewer launches a step (a small model, CUDA graphs) cannot be mended by launching less."""
SMALL_KERNEL_NS = 10_000
"""A PyTorch thread launches a kernel every 15 to 33 µs in the H200 traces (docs/rules/many-small-kernels.md): a kernel
clearly shorter than that cannot hide the launch of the next one."""
LONG_GAP_NS = 100_000
"""A longer gap has another cause (loader, wait, Python work of the step), for which there are other rules."""
COST_RATIO = 0.25
"""From a quarter of the step on: tracing slows each launch, so a lower share need not exist without the profiler."""
SURE_RATIO = 0.5

_ADVICE = (
    "Launch less or launch cheaper: `torch.compile(model, mode='reduce-overhead')` (fusion and CUDA graphs) or "
    "`torch.cuda.make_graphed_callables`; a fused optimizer (`torch.optim.AdamW(..., fused=True)`) and fused "
    "layers; a larger batch when memory allows. Look for Python loops over parameters, layers or samples in the "
    "phase with the longest gaps."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding for the step when launch-bound gaps take COST_RATIO of it.

    A gap counts when the GPU had nothing queued: the operation after it was launched after the GPU had run dry.
    """
    operations = view.timeline.operations
    kernels = (operations.kind == OperationKind.KERNEL) & view.in_step
    if view.steps_per_rank < MIN_STEPS or kernels.sum() < MIN_KERNELS * view.step_count:
        return ()
    median_ns = float(np.median((operations.end_ns - operations.start_ns)[kernels]))
    gap_ns = _launch_gaps_ns(view)
    share = view.share(int(gap_ns.sum()))
    if median_ns > SMALL_KERNEL_NS or share < COST_RATIO:
        return ()
    worst = view.timeline.phases[int(np.bincount(operations.phase, weights=gap_ns).argmax())]
    steps = view.step_count
    return (
        Finding(
            rule=NAME,
            phase=STEP,
            title=f"launch-bound: the GPU waits for launches for {percent(share)} of the step, most in {worst}",
            evidence=(
                time("GPU idle between launches per step", int(gap_ns.sum()) / steps),
                ratio("share of the step", share),
                count("kernels per step", int(kernels.sum()) / steps),
                time("median kernel", median_ns),
                time("mean gap", float(gap_ns[gap_ns > 0].mean())),
            ),
            confidence=Confidence.HIGH if share >= SURE_RATIO else Confidence.MEDIUM,
            advice=_ADVICE,
            docs=DOCS,
        ),
    )


def _launch_gaps_ns(view: TraceView) -> Int64:
    """Per operation the launch-bound idle time just before it: 0 where there is none. Step borders do not count."""
    operations, calls = view.timeline.operations, view.timeline.api_calls
    gaps = np.zeros(len(operations.start_ns), dtype=np.int64)
    for rank in view.ranks:
        rows = np.flatnonzero(operations.rank == rank)
        if len(rows) < 2:
            continue
        start_ns, launch, step = operations.start_ns[rows], operations.launch[rows], operations.step[rows]
        dry_ns = np.maximum.accumulate(operations.end_ns[rows])[:-1]
        gap_ns = start_ns[1:] - dry_ns
        known = launch[1:] >= 0
        asked_ns = np.append(calls.start_ns, 0)[launch[1:]]  # -1, not known, reads the 0
        counts = known & (asked_ns >= dry_ns) & (gap_ns > 0) & (gap_ns <= LONG_GAP_NS)
        counts &= view.in_step[rows[1:]] & (step[1:] == step[:-1])
        gaps[rows[1:][counts]] = gap_ns[counts]
    return gaps
