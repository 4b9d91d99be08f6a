"""The GPU is idle while the training thread waits for the next batch."""

from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.rule import MIN_STEPS, count, percent, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding

NAME = "starving-loader"
DOCS = "docs/rules/starving-loader.md"

DATA_PHASES = frozenset({"data", "dataloader", "data_loading", "dataloading", "train_dataloader_next"})
COST_RATIO = 0.10
"""A loader that keeps up costs only queue handling, a few percent of a short step; from 10 % on it is a bottleneck."""
SURE_RATIO = 0.25
"""From a quarter of the step on nothing else explains it."""

_ADVICE = (
    "Give the loader more room: `DataLoader(num_workers=…, persistent_workers=True, prefetch_factor=4, "
    "pin_memory=True)`, with `num_workers` near the free CPU cores of the job. Then make a sample cheaper: decode "
    "ahead of time, move augmentation to the GPU (torchvision v2, DALI), use larger shards instead of many small "
    "files. `for _ in loader: pass` alone shows the loader's own speed."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding when the GPU idles inside `data` for COST_RATIO of the step.

    Nothing is said of a trace without CUDA records: the GPU's idle time is then unknown. The worst step of each rank
    is left out: one refill (start of an epoch, of the window) is not starvation.
    """
    phases = view.phases_named(DATA_PHASES)
    if view.steps_per_rank < MIN_STEPS or not phases or not view.timeline.traced_gpu:
        return ()
    idle_ns = view.idle_in_ns(phases)
    kept = np.ones(view.step_count, dtype=np.bool_)
    for rank in view.ranks:
        rows = np.flatnonzero(view.steps.rank == rank)
        kept[rows[idle_ns[rows].argmax()]] = False
    wall_ns = int(view.wall_ns[kept].sum())
    share = int(idle_ns[kept].sum()) / wall_ns if wall_ns else 0.0
    if share < COST_RATIO:
        return ()
    phase = view.timeline.phases[phases[0]]
    steps = int(kept.sum())
    starving = idle_ns[kept] >= COST_RATIO * view.wall_ns[kept]
    return (
        Finding(
            rule=NAME,
            phase=phase,
            title=f"the GPU waits for the data loader for {percent(share)} of the step ({phase})",
            evidence=(
                time("GPU idle in the loader per step", int(idle_ns[kept].sum()) / steps),
                ratio("share of the step", share),
                ratio("steps that starve", float(starving.mean())),
                time("longest wait", int(idle_ns.max())),
                count("steps seen", view.step_count),
            ),
            confidence=Confidence.HIGH if share >= SURE_RATIO else Confidence.MEDIUM,
            advice=_ADVICE,
            docs=DOCS,
        ),
    )
