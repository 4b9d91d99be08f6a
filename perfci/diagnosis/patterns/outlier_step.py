"""One step (or very few) took far longer than the others."""

from collections.abc import Iterable, Iterator

import numpy as np

from perfci.diagnosis.patterns.slow_steps import blamed_phase, period_of, unplanned_ns
from perfci.diagnosis.rule import count, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import STEP
from perfci.model.timeline import Int64

NAME = "outlier-step"
DOCS = "docs/rules/outlier-step.md"

MIN_STEPS = 8
"""With fewer there is no "usual step" to stand out from."""
OUTLIER_RATIO = 2.0
"""Twice the median is worth a look in itself …"""
OUTLIER_MADS = 8.0
"""… when it also lies 8 (normal-consistent) median absolute deviations out: a wide spread has no outliers."""
MAX_SHARE = 0.1
"""More than one step in ten is a second level, not an outlier."""
_MAD_TO_SD = 1.4826

_FIRST = (
    "The first step of the window is the slow one: it still warms up (loader queue, allocator, autotuning, lazy "
    "module loading, start of the profiler). More warm-up steps (`measure.warmup_steps`) take it out of the "
    "measurement."
)
_LATER = (
    "Look at this step in the timeline (`perfci trace`): `cudaMalloc` or `cudaFree` (allocator growth: fixed "
    "shapes, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`), a recompilation (`TORCH_LOGS=recompiles`), the "
    "start of an epoch (`persistent_workers=True`), or another process on the machine."
)


def find(view: TraceView) -> Iterable[Finding]:
    """At most one finding, for the slowest outlier of all ranks: ranks wait for each other, so one slow rank shows in
    all. Steps of a periodic stall are not outliers, and time in phases that are meant to come now and then does not
    count."""
    found = sorted(_findings(view), key=lambda finding: -finding.evidence[0].value)
    return found[:1]


def _findings(view: TraceView) -> Iterator[Finding]:
    unplanned = unplanned_ns(view)
    for rank in view.ranks:
        rows = np.flatnonzero(view.steps.rank == rank).astype(np.int64)
        wall_ns = unplanned[rows]
        outliers = _outliers(wall_ns)
        if len(outliers):
            yield _finding(view, rank, rows, wall_ns, outliers)


def _outliers(wall_ns: Int64) -> Int64:
    if len(wall_ns) < MIN_STEPS:
        return np.zeros(0, dtype=np.int64)
    median_ns = float(np.median(wall_ns))
    spread_ns = _MAD_TO_SD * float(np.median(np.abs(wall_ns - median_ns)))
    far = wall_ns > max(OUTLIER_RATIO * median_ns, median_ns + OUTLIER_MADS * spread_ns)
    period = period_of(wall_ns)
    if period is not None:
        far[period.steps] = False
    found = np.flatnonzero(far).astype(np.int64)
    return found if len(found) <= max(1, MAX_SHARE * len(wall_ns)) else found[:0]


def _finding(view: TraceView, rank: int, rows: Int64, wall_ns: Int64, outliers: Int64) -> Finding:
    worst = int(outliers[wall_ns[outliers].argmax()])
    usual = np.setdiff1d(np.arange(len(rows)), outliers)
    median_ns = float(np.median(wall_ns[usual]))
    phase, growth_ns = blamed_phase(view, rows[worst : worst + 1], rows[usual])
    where = f"step {int(view.steps.index[rows[worst]])}" + (f" of rank {rank}" if len(view.ranks) > 1 else "")
    first = worst == 0
    idle_ratio = int(view.step_idle_ns[rows[worst]]) / int(view.wall_ns[rows[worst]])
    idle = [ratio("GPU idle in the slowest step", idle_ratio)] if view.timeline.traced_gpu else []
    return Finding(
        rule=NAME,
        phase=phase or STEP,
        subject="first step of the window" if first else "a later step",
        title=f"{where} took {wall_ns[worst] / median_ns:.1f}× the median step"
        + (f", most of the extra time in {phase}" if growth_ns > (wall_ns[worst] - median_ns) / 2 else ""),
        evidence=(
            time("extra time of the slowest step", float(wall_ns[worst]) - median_ns),
            time("slowest step", int(wall_ns[worst])),
            time("median step", median_ns),
            count("outlier steps", len(outliers)),
            count("steps seen", len(rows)),
            *idle,
        ),
        confidence=Confidence.HIGH,
        advice=_FIRST if first else _LATER,
        docs=DOCS,
    )
