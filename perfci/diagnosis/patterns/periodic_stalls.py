"""Every N-th step is slow: logging, checkpoints, garbage collection or loader workers in lock-step."""

from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.patterns.slow_steps import Period, blamed_phase, period_of, unplanned_ns
from perfci.diagnosis.rule import count, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import STEP
from perfci.model.timeline import Int64

NAME = "periodic-stalls"
DOCS = "docs/rules/periodic-stalls.md"

MIN_STEPS = 9
"""Three occurrences of the shortest useful period."""
COST_RATIO = 0.02
"""Averaged over all steps; less than 2 % nobody would look for."""

_ADVICE = (
    "Find what runs every {length} steps: in `log` read values less often and without a wait; in `data` the number "
    "of slow steps often equals `num_workers` (workers in lock-step: more workers, larger `prefetch_factor`); "
    "between phases Python's garbage collector (`gc.disable()` and `gc.collect()` at a chosen step) or a checkpoint "
    "(write it from a thread, `torch.distributed.checkpoint.async_save`)."
)


def find(view: TraceView) -> Iterable[Finding]:
    """At most one finding: the first rank whose slow steps come at a fixed distance, without the time of phases that
    are meant to come now and then."""
    unplanned = unplanned_ns(view)
    for rank in view.ranks:
        rows = np.flatnonzero(view.steps.rank == rank)
        wall_ns = unplanned[rows]
        period = period_of(wall_ns) if len(rows) >= MIN_STEPS else None
        if period is not None:
            return _findings(view, rows.astype(np.int64), wall_ns, period)
    return ()


def _findings(view: TraceView, rows: Int64, wall_ns: Int64, period: Period) -> tuple[Finding, ...]:
    usual = np.setdiff1d(np.arange(len(rows)), period.steps)
    median_ns = float(np.median(wall_ns[usual]))
    excess_ns = float(wall_ns[period.steps].sum() - median_ns * len(period.steps))
    share = excess_ns / int(view.wall_ns[rows].sum())
    phase, growth_ns = blamed_phase(view, rows[period.steps], rows[usual])
    if share < COST_RATIO:
        return ()
    return (
        Finding(
            rule=NAME,
            phase=phase or STEP,
            subject=f"every {period.length} steps",
            title=f"every {period.length} steps one is slow" + (f", in {phase}" if phase else ", between the phases"),
            evidence=(
                time("extra time per step (mean)", excess_ns / len(rows)),
                ratio("share of all step time", share),
                time("median slow step", float(np.median(wall_ns[period.steps]))),
                time("median other step", median_ns),
                count("slow steps", len(period.steps)),
                time("growth of the phase in a slow step", growth_ns),
            ),
            confidence=Confidence.HIGH if len(period.steps) > 3 else Confidence.MEDIUM,
            advice=_ADVICE.format(length=period.length),
            docs=DOCS,
        ),
    )
