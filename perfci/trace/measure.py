"""From an attributed timeline to every trace metric per step and phase of one rank. Definitions: docs/metrics.md."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfci.model.metrics import PSEUDO_PHASES, UNMARKED
from perfci.model.run import Series
from perfci.model.timeline import Bool, Int64, OperationKind, SyncKind, Timeline
from perfci.trace import calls
from perfci.trace.cells import Cells, Windows, gaps, union_where

_COPIES = (OperationKind.H2D, OperationKind.D2H, OperationKind.D2D, OperationKind.OTHER_COPY)
_SYNCS = {
    "device_sync": SyncKind.DEVICE,
    "stream_sync": SyncKind.STREAM,
    "event_sync": SyncKind.EVENT,
    "copy_sync": SyncKind.COPY,
}
_DIRECTIONS = {"h2d": OperationKind.H2D, "d2h": OperationKind.D2H, "d2d": OperationKind.D2D}


@dataclass(slots=True)
class _Sheet:
    """Tables (steps × phases) by metric, each with the phases for which it is known."""

    phases: tuple[str, ...]
    present: Bool
    tables: dict[str, tuple[NDArray[np.generic], Bool]] = field(default_factory=dict)

    def put(self, metric: str, table: NDArray[np.generic], known: Bool | None = None) -> None:
        self.tables[metric] = (table, np.ones(len(self.phases), dtype=np.bool_) if known is None else known)

    def put_share(self, metric: str, part: Int64, whole: Int64, known: Bool) -> None:
        """part / whole; known only for phases whose whole is above 0 in every step."""
        share = np.divide(part, whole, out=np.zeros(part.shape, dtype=np.float64), where=whole > 0)
        self.put(metric, share, known & (whole > 0).all(axis=0))

    def series(self) -> tuple[Series, ...]:
        return tuple(
            Series(phase=phase, metric=metric, values=tuple(table[:, at].tolist()))
            for at, phase in enumerate(self.phases)
            for metric, (table, known) in self.tables.items()
            if known[at] and self.present[at]
        )


def measure_rank(timeline: Timeline, rank: int) -> tuple[Series, ...]:
    """One series per phase and metric that could be measured, with one value per measured step of the rank.

    Without any CUDA record in the trace only ``wall_ns``. Phases without ranges on a training thread have no
    ``wall_ns``, ``gpu_idle_ns`` and ``gpu_utilization_ratio``. Phases that launched graphs as a whole have none of the
    metrics that would have to look inside (docs/metrics.md). Ratios are left out for phases in which they are undefined
    in any step.
    """
    sheet = _Sheet(timeline.phases, _present(timeline))
    windows, windowed = _windows(timeline, rank)
    wall = windows.outside(None)
    sheet.put("wall_ns", wall, windowed)
    if not timeline.traced_gpu:
        return sheet.series()
    if len(timeline.api_calls.start_ns):
        _measure_calls(sheet, timeline, rank)
    _measure_operations(sheet, timeline, rank, windows=windows, wall=wall, windowed=windowed)
    return sheet.series()


def _present(timeline: Timeline) -> Bool:
    """Phases that occur inside measured steps of any rank, and the pseudo phases."""
    found = np.array([phase in PSEUDO_PHASES for phase in timeline.phases], dtype=np.bool_)
    for table in (timeline.ranges, timeline.operations, timeline.api_calls):
        found[np.unique(table.phase[table.step >= 0])] = True
    return found


def phases_with_graphs(timeline: Timeline) -> tuple[str, ...]:
    """Phases that launched CUDA graphs which the profiler recorded as one operation each."""
    table = timeline.operations
    numbers = np.unique(table.phase[(table.kind == OperationKind.GRAPH) & (table.step >= 0)])
    return tuple(timeline.phases[number] for number in numbers.tolist())


def _rows_of(timeline: Timeline, rank: int) -> tuple[int, int]:
    rows = np.flatnonzero(timeline.steps.rank == rank)
    return int(rows[0]), len(rows)


def _windows(timeline: Timeline, rank: int) -> tuple[Windows, Bool]:
    first, count = _rows_of(timeline, rank)
    ranges, unmarked = timeline.ranges, timeline.phases.index(UNMARKED)
    rows = np.flatnonzero(ranges.rank == rank)
    marked = Cells(
        step=ranges.step[rows] - first,
        phase=ranges.phase[rows],
        start_ns=ranges.start_ns[rows],
        end_ns=ranges.end_ns[rows],
        step_count=count,
        phase_count=len(timeline.phases),
    )
    known = np.zeros(len(timeline.phases), dtype=np.bool_)
    known[np.unique(ranges.phase)] = True
    known[[0, unmarked]] = True
    windows = Windows(
        marked=marked,
        step_start_ns=timeline.steps.start_ns[first : first + count],
        step_end_ns=timeline.steps.end_ns[first : first + count],
        unmarked=unmarked,
    )
    return windows, known


def _measure_calls(sheet: _Sheet, timeline: Timeline, rank: int) -> None:
    first, count = _rows_of(timeline, rank)
    api = timeline.api_calls
    rows = np.flatnonzero((api.rank == rank) & (api.step >= 0))
    events = Cells(
        step=api.step[rows] - first,
        phase=api.phase[rows],
        start_ns=api.start_ns[rows],
        end_ns=api.end_ns[rows],
        step_count=count,
        phase_count=len(timeline.phases),
    )
    name, sync = api.name[rows], api.sync[rows]
    for metric, test in (
        ("api_call_count", lambda text: not calls.polls(text)),
        ("alloc_count", calls.allocates),
        ("graph_launch_count", calls.launches_graph),
    ):
        wanted = np.array([test(text) for text in (*timeline.names, "")], dtype=np.bool_)
        sheet.put(metric, events.where(wanted[name]).counts())
    waits = events.where(sync != SyncKind.NONE)
    sheet.put("sync_count", waits.counts())
    sheet.put("sync_ns", waits.durations())
    for prefix, kind in _SYNCS.items():
        sheet.put(f"{prefix}_count", events.where(sync == kind).counts())


def _measure_operations(
    sheet: _Sheet, timeline: Timeline, rank: int, *, windows: Windows, wall: Int64, windowed: Bool
) -> None:
    first, count = _rows_of(timeline, rank)
    table = timeline.operations
    mine = np.flatnonzero(table.rank == rank)
    kind, nccl = table.kind[mine], table.nccl[mine]
    step = table.step[mine]
    everything = Cells(
        step=np.where(step >= 0, step - first, -1),
        phase=table.phase[mine],
        start_ns=table.start_ns[mine],
        end_ns=table.end_ns[mine],
        step_count=count,
        phase_count=len(timeline.phases),
    )
    busy = union_where(everything)
    compute = union_where(everything, ((kind == OperationKind.KERNEL) & ~nccl) | (kind == OperationKind.GRAPH))
    sheet.put("launch_gap_ns", gaps(everything))
    idle = windows.outside(busy)
    sheet.put("gpu_idle_ns", idle, windowed)
    sheet.put_share("gpu_utilization_ratio", wall - idle, wall, windowed)

    inside = step >= 0
    operations = everything.where(inside)
    kind, nccl = kind[inside], nccl[inside]
    pageable, moved = table.pageable[mine][inside], table.moved_bytes[mine][inside]
    graphs = operations.where(kind == OperationKind.GRAPH).counts()
    seen: Bool = np.asarray((graphs == 0).all(axis=0))
    for prefix, hit in (
        ("kernel", kind == OperationKind.KERNEL),
        ("memset", kind == OperationKind.MEMSET),
        ("nccl", nccl),
    ):
        chosen = operations.where(hit)
        sheet.put(f"{prefix}_count", chosen.counts(), seen)
        sheet.put(f"{prefix}_ns", chosen.durations(), seen)
    copies = {prefix: kind == direction for prefix, direction in _DIRECTIONS.items()}
    copies |= {f"{prefix}_pageable": copies[prefix] & pageable for prefix in ("h2d", "d2h")}
    for prefix, hit in copies.items():
        chosen, known = operations.where(hit), seen if prefix == "d2d" else None
        sheet.put(f"{prefix}_count", chosen.counts(), known)
        sheet.put(f"{prefix}_bytes", chosen.sums(moved[hit]), known)
        sheet.put(f"{prefix}_ns", chosen.durations(), known)
    sheet.put("pageable_copy_count", operations.where(pageable).counts())
    sheet.put("pageable_copy_bytes", operations.where(pageable).sums(moved[pageable]))

    sheet.put("gpu_busy_ns", operations.covered())
    copy = np.isin(kind, [int(one) for one in _COPIES])
    sheet.put("copy_exposed_ns", operations.where(copy).covered(compute))
    sheet.put("nccl_exposed_ns", operations.where(nccl).covered(compute), seen)
    moving = operations.where(copy | nccl)
    total = moving.covered()
    sheet.put_share("overlap_ratio", total - moving.covered(compute), total, seen)
