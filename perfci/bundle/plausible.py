"""Numbers that no machine can have measured. Passing is no proof of honesty, only of possibility."""

import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from perfci.model.metrics import METRICS, RUN, STEP, Source, Statistic, Unit
from perfci.model.run import Run, Series

MAX_CONCURRENT_KERNELS = 128
"""Resident grids per device since compute capability 3.5 (CUDA C++ Programming Guide, "Technical Specifications"): an
upper bound for the streams that can run at once, and so for kernel time over wall time."""

MAX_GPUS = 64
_MAX_COUNT = 10**12
_CLOCK_SLACK = timedelta(minutes=10)
_LOCATION = re.compile(r"(?!/)(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f\\]{1,300}")

_ELAPSED = ("wall_ns", "unprofiled_wall_ns", "gpu_busy_ns", "gpu_idle_ns")
"""Times that cannot add up to more than the launch lasted: they are elapsed time of the step, one after the other."""

_PARALLEL = ("kernel_ns", "h2d_ns", "d2h_ns", "d2d_ns", "memset_ns", "nccl_ns")
"""Sums over operations that may overlap, at most MAX_CONCURRENT_KERNELS at a time and device."""


def impossibilities(run: Run, *, now: datetime | None = None) -> Iterator[str]:
    """Sentences that say what is impossible in a run; none: possible. ``now`` also checks the start time."""
    gpus = _whole(run.environment.get("gpu_count"), MAX_GPUS)
    ranks = _whole(run.environment.get("world_size"), 4096)
    duration_ns = run.launch.duration_ns
    if duration_ns > 7 * 24 * 3600 * 10**9:
        yield "the launch lasted more than a week"
    if now is not None and run.launch.started_at > now + _CLOCK_SLACK:
        yield f"the launch started in the future ({run.launch.started_at.isoformat()})"
    for series in run.series:
        yield from _impossible_series(series, run, duration_ns, gpus)
    wall = run.series_of(STEP, "wall_ns")
    for name in _PARALLEL:
        total = run.series_of(STEP, name)
        if wall is not None and total is not None and sum(total.values) > sum(wall.values) * _lanes(gpus):
            yield f"step/{name} is more than {MAX_CONCURRENT_KERNELS} streams could do in the wall time"
    yield from _impossible_statistics(run, most_ns=duration_ns * _lanes(gpus) * ranks)
    yield from _impossible_findings(run)
    if any(not math.isfinite(loss) for loss in run.losses) and not run.spoiled:
        yield "a loss that is not finite in a run that is not marked as spoiled"


def _impossible_statistics(run: Run, *, most_ns: int) -> Iterator[str]:
    for kernel in run.kernels:
        if kernel.total_ns < 0 or not 1 <= kernel.count <= _MAX_COUNT:
            yield f"kernel statistics with count {kernel.count} and {kernel.total_ns} ns"
        elif kernel.total_ns > most_ns:
            yield "a kernel ran longer than the launch on all streams"
    for call in run.api_calls:
        if call.total_ns < 0 or not 1 <= call.count <= _MAX_COUNT:
            yield f"API statistics with count {call.count} and {call.total_ns} ns"


def _impossible_findings(run: Run) -> Iterator[str]:
    for finding in run.findings:
        place = finding.location
        if place is not None and (place.line < 1 or not _LOCATION.fullmatch(place.path)):
            yield "a finding points outside the repository"
        if any(not math.isfinite(quantity.value) for quantity in finding.evidence):
            yield "a finding with evidence that is not finite"


def _impossible_series(series: Series, run: Run, duration_ns: int, gpus: int) -> Iterator[str]:
    spec = METRICS[series.metric]
    name = f"{series.phase}/{series.metric}"
    per_step = spec.source is Source.TRACE and spec.statistic is not Statistic.SINGLE and series.phase != RUN
    if per_step and len(series.values) != run.step_count:
        yield f"{name} has {len(series.values)} values for {run.step_count} steps"
    if spec.statistic is Statistic.SINGLE and len(series.values) != 1:
        yield f"{name} has {len(series.values)} values instead of one"
    if series.phase == STEP and series.metric in _ELAPSED and sum(series.values) > duration_ns:
        yield f"{name} adds up to more than the launch lasted"
    if series.metric in _PARALLEL and sum(series.values) > duration_ns * _lanes(gpus):
        yield f"{name} is more than {MAX_CONCURRENT_KERNELS} streams could do while the launch lasted"
    if spec.unit is Unit.COUNT and spec.source is Source.TRACE and max(series.values) > _MAX_COUNT:
        yield f"{name} counts more than any step can do"
    if series.metric == "overlap_ratio" and max(series.values) > 1:
        yield f"{name} is above 1"


def _lanes(gpus: int) -> int:
    return MAX_CONCURRENT_KERNELS * gpus


def _whole(text: str | None, highest: int) -> int:
    return min(max(int(text), 1), highest) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else 1
