"""What a trace says: files → Timeline → Extraction."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from perfci.errors import TraceError
from perfci.model.metrics import METRICS, AcrossRanks, Unit
from perfci.model.run import ApiCallStat, KernelStat, Note, Series
from perfci.model.timeline import Bool, Int64, OperationKind, Timeline
from perfci.model.trace import Extraction
from perfci.trace.assemble import Part, assemble
from perfci.trace.attribution import PhaseNames, attribute
from perfci.trace.intervals import sum_by_group
from perfci.trace.measure import RankMeasurement
from perfci.trace.nsys_sqlite import read_nsys


def read_timeline(paths: Sequence[Path], *, step_range: str = "step", phases: Sequence[str] = ()) -> Timeline:
    """Read and attribute the trace of one process launch: one file, or one file per rank.

    ``step_range`` is the name of the range that is one step; ``phases`` are range names that count as phases besides the
    built-in ones (empty: every range inside a step). TraceError when a file cannot be read or no complete step is found.
    """
    if not paths:
        raise TraceError("no trace file was given", wanted="at least one file")
    phase_names = PhaseNames()
    parts = []
    for path in paths:
        raw = read_nsys(path)
        ranks = attribute(raw, step_range=step_range, phases=phases, phase_names=phase_names)
        parts.append(Part(raw=raw, ranks=ranks))
    return assemble(parts, phase_names)


def extract(paths: Sequence[Path], *, step_range: str = "step", phases: Sequence[str] = ()) -> Extraction:
    """All metrics of one process launch: ``extract_timeline(read_timeline(…))``."""
    return extract_timeline(read_timeline(paths, step_range=step_range, phases=phases))


def extract_timeline(timeline: Timeline) -> Extraction:
    """All trace metrics of a timeline, per step and phase, ranks joined as the metric table declares."""
    ranks = np.unique(timeline.steps.rank).tolist()
    per_rank = [(rank, RankMeasurement(timeline, rank, traced_gpu=timeline.traced_gpu).series()) for rank in ranks]
    step_count = min(int(np.count_nonzero(timeline.steps.rank == rank)) for rank in ranks)
    notes = timeline.notes
    return Extraction(
        trace=timeline.info,
        step_count=step_count,
        series=per_rank[0][1] if len(per_rank) == 1 else _joined_ranks(per_rank, step_count),
        kernels=_kernel_stats(timeline),
        api_calls=_call_stats(timeline),
        notes=notes,
        dropped_step_count=timeline.dropped_step_count,
        rank_series=tuple(per_rank) if len(per_rank) > 1 else (),
    )


def _joined_ranks(per_rank: list[tuple[int, tuple[Series, ...]]], step_count: int) -> tuple[Series, ...]:
    found: dict[tuple[str, str], list[Series]] = {}
    for _, series in per_rank:
        for one in series:
            found.setdefault((one.phase, one.metric), []).append(one)
    joined = []
    for (phase, metric), several in found.items():
        spec = METRICS[metric]
        table = np.array([one.values[:step_count] for one in several])
        if spec.across_ranks is AcrossRanks.MAX:
            values = table.max(axis=0)
        elif spec.across_ranks is AcrossRanks.SUM:
            values = table.sum(axis=0)
        elif len(several) < len(per_rank):
            continue
        else:
            values = table.mean(axis=0)
        joined.append(Series(phase=phase, metric=metric, values=tuple(values.tolist())))
    return tuple(joined)


def _stats(
    timeline: Timeline, name: Int64, phase: Int64, step: Int64, duration: Int64, hit: Bool
) -> list[tuple[str, str, int, int]]:
    rows = np.flatnonzero(hit & (step >= 0))
    width = max(len(timeline.names), 1)
    group = phase[rows].astype(np.int64) * width + name[rows]
    cells = len(timeline.phases) * width
    counts = np.bincount(group, minlength=cells)
    total = sum_by_group(duration[rows], group, cells)
    found = [
        (timeline.phases[at // width], timeline.names[at % width], int(counts[at]), int(total[at]))
        for at in np.flatnonzero(counts).tolist()
    ]
    return sorted(found, key=lambda row: (timeline.phases.index(row[0]), -row[3], row[1]))


def _kernel_stats(timeline: Timeline) -> tuple[KernelStat, ...]:
    table = timeline.operations
    hit = table.kind == OperationKind.KERNEL
    rows = _stats(timeline, table.name, table.phase, table.step, table.end_ns - table.start_ns, hit)
    return tuple(KernelStat(phase=p, name=n, count=c, total_ns=t) for p, n, c, t in rows)


def _call_stats(timeline: Timeline) -> tuple[ApiCallStat, ...]:
    table = timeline.api_calls
    hit = np.ones(len(table.name), dtype=np.bool_)
    rows = _stats(timeline, table.name, table.phase, table.step, table.end_ns - table.start_ns, hit)
    return tuple(ApiCallStat(phase=p, name=n, count=c, total_ns=t) for p, n, c, t in rows)
