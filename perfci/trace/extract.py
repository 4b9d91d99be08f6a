"""What a trace says: files → Timeline → Extraction."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfci.errors import TraceError
from perfci.model.metrics import METRICS, AcrossRanks
from perfci.model.run import ApiCallStat, KernelStat, Note, Series
from perfci.model.timeline import ApiCalls, OperationKind, Operations, Timeline
from perfci.model.trace import Extraction
from perfci.trace.assemble import Part, assemble
from perfci.trace.attribution import PhaseNames, attribute, launching_call, without_correlations
from perfci.trace.blocks import slices
from perfci.trace.intervals import sum_by_group
from perfci.trace.kineto import read_kineto
from perfci.trace.kineto_json import looks_like_json
from perfci.trace.measure import measure_rank, phases_with_graphs
from perfci.trace.nsys_sqlite import read_nsys


def read_timeline(paths: Sequence[Path], *, step_range: str = "step", phases: Sequence[str] = ()) -> Timeline:
    """Read and attribute the trace of one process launch: one file, or one file per rank.

    ``step_range`` is the name of the range that is one step; ``phases`` are range names that count as phases besides
    the built-in ones (empty: every range inside a step). TraceError when a file cannot be read or holds no complete
    step.
    """
    if not paths:
        raise TraceError("no trace file was given", wanted="at least one file")
    phase_names = PhaseNames()
    parts = []
    for path in paths:
        _refuse_pipe(path)
        raw = read_kineto(path) if looks_like_json(path) else read_nsys(path)
        launch = launching_call(raw)
        raw = without_correlations(raw)
        ranks = attribute(raw, launch, step_range=step_range, phases=phases, phase_names=phase_names)
        parts.append(Part(raw=raw, ranks=ranks))
    return assemble(parts, phase_names)


def _refuse_pipe(path: Path) -> None:
    """Opening a pipe may wait for ever. What cannot be looked at is left to the reader, which says why."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise TraceError(f"{path} is a pipe or a device", wanted="a file", todo="write the trace into a file first")


def extract(paths: Sequence[Path], *, step_range: str = "step", phases: Sequence[str] = ()) -> Extraction:
    """All metrics of one process launch: ``extract_timeline(read_timeline(…))``."""
    return extract_timeline(read_timeline(paths, step_range=step_range, phases=phases))


def extract_timeline(timeline: Timeline) -> Extraction:
    """All trace metrics of a timeline, per step and phase, ranks joined as the metric table declares.

    With several ranks the joined series have the steps that all ranks have. A metric that is not known for a rank is
    left out of the joined series; ``rank_series`` still has it for the others.
    """
    steps_of_ranks = _steps_of_ranks(timeline)
    step_count = min(steps_of_ranks.values())
    per_rank = tuple((rank, measure_rank(timeline, rank)) for rank in steps_of_ranks)
    several = len(per_rank) > 1
    return Extraction(
        trace=timeline.info,
        step_count=step_count,
        series=_joined_ranks([series for _, series in per_rank], step_count) if several else per_rank[0][1],
        kernels=_kernel_stats(timeline),
        api_calls=_call_stats(timeline),
        notes=timeline.notes + _notes(timeline, steps_of_ranks),
        dropped_step_count=timeline.dropped_step_count,
        rank_series=per_rank if several else (),
    )


def _steps_of_ranks(timeline: Timeline) -> dict[int, int]:
    ranks, counts = np.unique(timeline.steps.rank, return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _notes(timeline: Timeline, steps_of_ranks: dict[int, int]) -> tuple[Note, ...]:
    notes = []
    if len(set(steps_of_ranks.values())) > 1:
        counts = ", ".join(f"rank {rank}: {count}" for rank, count in steps_of_ranks.items())
        text = f"the ranks have different numbers of complete steps ({counts}); those that all have are compared"
        notes.append(Note(code="steps-differ", text=text))
    graphs = phases_with_graphs(timeline)
    if graphs:
        text = (
            f"{', '.join(graphs)}: the profiler recorded CUDA graphs as one operation each; kernels, memsets, device "
            "copies and NCCL inside them are not known (--cuda-graph-trace=node shows them, at a cost in time)"
        )
        notes.append(Note(code="kernels-inside-graphs", text=text))
    if timeline.traced_gpu and len(timeline.api_calls.start_ns) == 0:
        notes.append(Note(code="no-cuda-calls", text="the trace holds GPU operations but no CUDA calls"))
    return tuple(notes)


def _joined_ranks(per_rank: Sequence[tuple[Series, ...]], step_count: int) -> tuple[Series, ...]:
    found: dict[tuple[str, str], list[Series]] = {}
    for series in per_rank:
        for one in series:
            found.setdefault((one.phase, one.metric), []).append(one)
    joined = []
    for (phase, metric), several in found.items():
        if len(several) == len(per_rank):
            table = np.array([one.values[:step_count] for one in several])
            values = _across_ranks(table, METRICS[metric].across_ranks)
            joined.append(Series(phase=phase, metric=metric, values=tuple(values.tolist())))
    return tuple(joined)


def _across_ranks(table: NDArray[Any], how: AcrossRanks) -> NDArray[Any]:
    """Values of one metric, ranks × steps → steps."""
    if how is AcrossRanks.MAX:
        return np.asarray(table.max(axis=0))
    return np.asarray(table.sum(axis=0) if how is AcrossRanks.SUM else table.mean(axis=0))


def _kernel_stats(timeline: Timeline) -> tuple[KernelStat, ...]:
    rows = _stats(timeline, timeline.operations, kind=OperationKind.KERNEL)
    return tuple(KernelStat(phase=p, name=n, count=c, total_ns=t) for p, n, c, t in rows)


def _call_stats(timeline: Timeline) -> tuple[ApiCallStat, ...]:
    rows = _stats(timeline, timeline.api_calls)
    return tuple(ApiCallStat(phase=p, name=n, count=c, total_ns=t) for p, n, c, t in rows)


def _stats(
    timeline: Timeline, table: Operations | ApiCalls, kind: OperationKind | None = None
) -> list[tuple[str, str, int, int]]:
    """Phase, name, count and total time of what belongs to steps that all ranks have; by phase, most time first."""
    width = max(len(timeline.names), 1)
    cells = len(timeline.phases) * width
    counts, totals = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
    kept = np.r_[timeline.steps.index < min(_steps_of_ranks(timeline).values()), False]  # NO_STEP is -1: the last entry
    for part in slices(len(table.start_ns)):
        hit = kept[table.step[part]]
        if kind is not None and isinstance(table, Operations):
            hit &= table.kind[part] == kind
        group = table.phase[part][hit].astype(np.int64) * width + table.name[part][hit]
        counts += np.bincount(group, minlength=cells)
        totals += sum_by_group((table.end_ns[part] - table.start_ns[part])[hit], group, cells)
    found = [
        (at // width, timeline.names[at % width], int(counts[at]), int(totals[at]))
        for at in np.flatnonzero(counts).tolist()
    ]
    ordered = sorted(found, key=lambda row: (row[0], -row[3], row[1]))
    return [(timeline.phases[phase_at], text, count, total) for phase_at, text, count, total in ordered]
