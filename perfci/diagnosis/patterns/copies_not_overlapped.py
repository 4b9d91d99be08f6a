"""Pinned copies that a busy GPU waits for, although they could run beside the computation."""

from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.rule import MIN_STEPS, ratio, time, volume
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import OperationKind

NAME = "copies-not-overlapped"
DOCS = "docs/rules/copies-not-overlapped.md"

COST_RATIO = 0.05
"""A prefetching loader is a real change of code: not worth it below 5 % of the step."""
EXPOSED_RATIO = 0.5
"""Where computation hides most of the copy time, the overlap works."""
BUSY_RATIO = 0.5
"""When the GPU is idle most of the time, the CPU is the bottleneck and an exposed copy takes nothing away."""

_ADVICE = (
    "Copy the next batch while this one is computed: a side stream (`with torch.cuda.stream(copy_stream): "
    "next_batch = batch.to(device, non_blocking=True)`, then `torch.cuda.current_stream().wait_stream(copy_stream)` "
    "and `next_batch.record_stream(...)`), or a prefetcher of the data library (NVIDIA DALI, `torchdata`). Copy "
    "less: send uint8 and convert on the GPU."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding when pinned host copies stand exposed for COST_RATIO of the step on a GPU that is otherwise busy."""
    operations = view.timeline.operations
    if view.steps_per_rank < MIN_STEPS or view.utilisation_ratio < BUSY_RATIO:
        return ()
    host_copy = np.isin(operations.kind, (OperationKind.H2D, OperationKind.D2H))
    which = host_copy & ~operations.pageable & view.in_step
    duration = operations.end_ns - operations.start_ns
    copy_ns = int(duration[which].sum())
    exposed_ns = view.exposed_ns(which)
    if view.share(exposed_ns) < COST_RATIO or exposed_ns < EXPOSED_RATIO * copy_ns:
        return ()
    weight = np.bincount(operations.phase[which], weights=duration[which])
    phase = view.timeline.phases[int(weight.argmax())]
    steps = view.step_count
    return (
        Finding(
            rule=NAME,
            phase=phase,
            title=f"copies are not overlapped with computation ({phase})",
            evidence=(
                time("copy time not hidden per step", exposed_ns / steps),
                time("copy time per step", copy_ns / steps),
                volume("moved per step", int(operations.moved_bytes[which].sum()) / steps),
                ratio("share of the step", view.share(exposed_ns)),
                ratio("GPU busy", view.utilisation_ratio),
            ),
            confidence=Confidence.MEDIUM,
            advice=_ADVICE,
            docs=DOCS,
        ),
    )
