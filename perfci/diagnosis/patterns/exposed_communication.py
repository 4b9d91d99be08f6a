"""NCCL kernels run while no computation does: the step waits for the network or for another rank."""

from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.rule import MIN_STEPS, count, percent, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding

NAME = "exposed-communication"
DOCS = "docs/rules/exposed-communication.md"

COST_RATIO = 0.10
"""The last bucket of a data-parallel backward can never be hidden: some percent of exposed time are normal."""
SURE_RATIO = 0.25

_ADVICE = (
    "Overlap it: with DDP keep gradients in buckets that become ready early (`bucket_cap_mb`, "
    "`gradient_as_bucket_view=True`, `static_graph=True`); with FSDP use "
    "`backward_prefetch=BackwardPrefetch.BACKWARD_PRE` and `forward_prefetch=True`. Send less: bf16 gradients "
    "(`ddp_comm_hooks.default_hooks.bf16_compress_hook`). A kernel that waits for a late rank looks the same: "
    "compare the ranks' step times first."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding when NCCL time that no compute kernel hides takes COST_RATIO of the step."""
    operations = view.timeline.operations
    which = operations.nccl & view.in_step
    if view.steps_per_rank < MIN_STEPS or not which.any():
        return ()
    exposed_ns = view.exposed_ns(which)
    share = view.share(exposed_ns)
    if share < COST_RATIO:
        return ()
    duration = (operations.end_ns - operations.start_ns)[which]
    phase = view.timeline.phases[int(np.bincount(operations.phase[which], weights=duration).argmax())]
    steps = view.step_count
    return (
        Finding(
            rule=NAME,
            phase=phase,
            title=f"communication is exposed for {percent(share)} of the step ({phase})",
            evidence=(
                time("NCCL time not hidden per step", exposed_ns / steps),
                ratio("share of the step", share),
                time("NCCL time per step", int(duration.sum()) / steps),
                count("NCCL kernels per step", int(which.sum()) / steps),
            ),
            confidence=Confidence.HIGH if share >= SURE_RATIO else Confidence.MEDIUM,
            advice=_ADVICE,
            docs=DOCS,
        ),
    )
