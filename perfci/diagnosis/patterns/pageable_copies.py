"""Large copies between the GPU and pageable host memory: slow, and the CPU waits for them."""

from collections.abc import Iterable, Iterator

import numpy as np

from perfci.diagnosis.rule import MIN_STEPS, count, ratio, time, times, volume
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import Int64, OperationKind

NAME = "pageable-copies"
DOCS = "docs/rules/pageable-copies.md"

STAGED_BYTES = 64 * 1024
"""Host to device copies up to this size are asynchronous whatever the memory (CUDA C++ Programming Guide, "Concurrent
Execution between Host and Device"). Smaller fetches do wait, and are left to ``accidental-sync``."""
STEPS_RATIO = 0.5
"""In fewer than half of the steps it is a log or a checkpoint, not the way the batch travels."""
COST_RATIO = 0.01
"""Below 1 % of the step's wall time nobody would feel the change."""

DIRECTIONS = {OperationKind.H2D: "host to device", OperationKind.D2H: "device to host"}
ADVICE = {
    OperationKind.H2D: (
        "Put the batch into pinned memory and let the copy run beside the computation: `DataLoader(..., "
        "pin_memory=True)` and `batch = batch.to(device, non_blocking=True)`. Tensors made by hand: "
        "`tensor.pin_memory()` once, outside the loop."
    ),
    OperationKind.D2H: (
        "Copy into a pinned buffer that lives outside the loop: `buffer = torch.empty(shape, pin_memory=True)`, "
        "`buffer.copy_(tensor, non_blocking=True)`, and read it after an event has passed; or reduce on the GPU and "
        "copy less."
    ),
}


def find(view: TraceView) -> Iterable[Finding]:
    """One finding per phase and direction with large pageable copies in most steps, costliest first."""
    return sorted(_groups(view), key=lambda finding: -finding.evidence[0].value)


def _groups(view: TraceView) -> Iterator[Finding]:
    operations = view.timeline.operations
    if view.steps_per_rank < MIN_STEPS:
        return
    large = operations.pageable & view.in_step & (operations.moved_bytes > STAGED_BYTES)
    for kind in DIRECTIONS:
        for phase in np.unique(operations.phase[large & (operations.kind == kind)]):
            rows = np.flatnonzero(large & (operations.kind == kind) & (operations.phase == phase)).astype(np.int64)
            found = _finding(view, kind, view.timeline.phases[phase], rows)
            if found is not None:
                yield found


def _finding(view: TraceView, kind: OperationKind, phase: str, rows: Int64) -> Finding | None:
    operations, calls = view.timeline.operations, view.timeline.api_calls
    copy_ns = int((operations.end_ns[rows] - operations.start_ns[rows]).sum())
    launches = operations.launch[rows]
    launches = np.unique(launches[launches >= 0])
    cpu_ns = int((calls.end_ns[launches] - calls.start_ns[launches]).sum())
    share = view.share(max(copy_ns, cpu_ns))
    if (view.per_step(operations.step[rows]) > 0).mean() < STEPS_RATIO or share < COST_RATIO:
        return None
    moved_bytes, steps = int(operations.moved_bytes[rows].sum()), view.step_count
    direction = DIRECTIONS[kind]
    return Finding(
        rule=NAME,
        phase=phase,
        subject=direction,
        title=f"{times(len(rows) / steps)}× per step a large {direction} copy of pageable memory ({phase})",
        evidence=(
            time("CPU time in the copy calls per step", cpu_ns / steps),
            time("copy time on the GPU per step", copy_ns / steps),
            volume("moved per step", moved_bytes / steps),
            count("copies per step", len(rows) / steps),
            ratio("share of the step", share),
        ),
        confidence=Confidence.HIGH,
        advice=ADVICE[kind],
        docs=DOCS,
    )
