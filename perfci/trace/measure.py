"""From an attributed timeline to every trace metric per step and phase of one rank. Definitions: docs/metrics.md."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perfci.model.metrics import PSEUDO_PHASES, UNMARKED
from perfci.model.run import Series
from perfci.model.timeline import (
    ApiCalls,
    Bool,
    Int64,
    OperationKind,
    Operations,
    PhaseRanges,
    SyncKind,
    Timeline,
)
from perfci.trace import calls
from perfci.trace.blocks import ROWS_AT_ONCE, Rows, in_threads
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

    def extend(self, later: "_Sheet") -> None:
        """Put the steps of another sheet behind these."""
        for metric, (table, known) in later.tables.items():
            if metric in self.tables:
                before, before_known = self.tables[metric]
                self.put(metric, np.concatenate([before, table]), before_known & known)
            else:
                self.put(metric, table, known)

    def series(self) -> tuple[Series, ...]:
        return tuple(
            Series(phase=phase, metric=metric, values=tuple(table[:, at].tolist()))
            for at, phase in enumerate(self.phases)
            for metric, (table, known) in self.tables.items()
            if known[at] and self.present[at]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Some consecutive steps of one rank: rows ``first`` to ``end`` of Timeline.steps."""

    timeline: Timeline
    rank: int
    first: int
    end: int

    def cells(self, table: Operations | ApiCalls | PhaseRanges, rows: Rows) -> Cells:
        """Rows of a table as events; those of steps outside the block get step -1."""
        step = table.step[rows]
        return Cells(
            step=np.where((step >= self.first) & (step < self.end), step - self.first, -1).astype(np.int32),
            phase=table.phase[rows],
            start_ns=table.start_ns[rows],
            end_ns=table.end_ns[rows],
            step_count=self.end - self.first,
            phase_count=len(self.timeline.phases),
        )

    def rows(self, table: Operations | ApiCalls | PhaseRanges) -> Int64:
        """Rows of a table that belong to the block's steps."""
        return np.flatnonzero((table.step >= self.first) & (table.step < self.end))


def measure_rank(timeline: Timeline, rank: int) -> tuple[Series, ...]:
    """One series per phase and metric that could be measured, with one value per measured step of the rank.

    Without any CUDA record in the trace only ``wall_ns``. Phases without ranges on a training thread have no
    ``wall_ns``, ``gpu_idle_ns`` and ``gpu_utilization_ratio``. Phases that launched graphs as a whole have none of the
    metrics that would have to look inside (docs/metrics.md). Ratios are left out for phases in which they are undefined
    in any step.
    """
    sheet = _Sheet(timeline.phases, _present(timeline))
    # Steps are measured some at a time: what has to be held beside the timeline does not grow with the trace.
    for part in in_threads(partial(_measured, whole=sheet), list(_blocks(timeline, rank))):
        sheet.extend(part)
    return sheet.series()


def _blocks(timeline: Timeline, rank: int) -> Iterator[_Block]:
    rows = np.flatnonzero(timeline.steps.rank == rank)
    first, end = int(rows[0]), int(rows[-1]) + 1
    step = timeline.operations.step
    work = np.bincount(step[(step >= first) & (step < end)] - first, minlength=end - first)
    number = (np.cumsum(work) - work) // ROWS_AT_ONCE
    starts = np.flatnonzero(np.r_[True, number[1:] != number[:-1]]) + first
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), end], strict=True):
        yield _Block(timeline=timeline, rank=rank, first=low, end=high)


def _measured(block: _Block, whole: _Sheet) -> _Sheet:
    timeline = block.timeline
    sheet = _Sheet(whole.phases, whole.present)
    windows, windowed = _windows(block)
    wall = windows.outside(None)
    sheet.put("wall_ns", wall, windowed)
    if not timeline.traced_gpu:
        return sheet
    if len(timeline.api_calls.start_ns):
        _measure_calls(sheet, block)
    _measure_operations(sheet, block, windows=windows, wall=wall, windowed=windowed)
    return sheet


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


def _windows(block: _Block) -> tuple[Windows, Bool]:
    timeline = block.timeline
    unmarked = timeline.phases.index(UNMARKED)
    known = np.zeros(len(timeline.phases), dtype=np.bool_)
    known[np.unique(timeline.ranges.phase)] = True
    known[[0, unmarked]] = True
    windows = Windows(
        marked=block.cells(timeline.ranges, block.rows(timeline.ranges)),
        step_start_ns=timeline.steps.start_ns[block.first : block.end],
        step_end_ns=timeline.steps.end_ns[block.first : block.end],
        unmarked=unmarked,
    )
    return windows, known


def _measure_calls(sheet: _Sheet, block: _Block) -> None:
    api = block.timeline.api_calls
    rows = block.rows(api)
    events = block.cells(api, rows)
    name, sync = api.name[rows], api.sync[rows]
    for metric, test in (
        ("api_call_count", lambda text: not calls.polls(text)),
        ("alloc_count", calls.allocates),
        ("graph_launch_count", calls.launches_graph),
    ):
        wanted = np.array([test(text) for text in (*block.timeline.names, "")], dtype=np.bool_)
        sheet.put(metric, events.where(wanted[name]).counts())
    waits = events.where(sync != SyncKind.NONE)
    sheet.put("sync_count", waits.counts())
    sheet.put("sync_ns", waits.durations())
    for prefix, kind in _SYNCS.items():
        sheet.put(f"{prefix}_count", events.where(sync == kind).counts())


def _measure_operations(sheet: _Sheet, block: _Block, *, windows: Windows, wall: Int64, windowed: Bool) -> None:
    table = block.timeline.operations
    near = _near(block, windows)
    around = block.cells(table, near)
    kind, nccl = table.kind[near], table.nccl[near]
    busy = union_where(around)
    compute = union_where(around, ((kind == OperationKind.KERNEL) & ~nccl) | (kind == OperationKind.GRAPH))
    sheet.put("launch_gap_ns", gaps(around))
    idle = windows.outside(busy)
    sheet.put("gpu_idle_ns", idle, windowed)
    sheet.put_share("gpu_utilization_ratio", wall - idle, wall, windowed)

    rows = block.rows(table)
    operations = block.cells(table, rows)
    kind, nccl, pageable, moved = table.kind[rows], table.nccl[rows], table.pageable[rows], table.moved_bytes[rows]
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


def _near(block: _Block, windows: Windows) -> Rows:
    """All operations of the rank that run at a time that matters to the block: within its steps, or while its
    operations run or wait for each other."""
    table = block.timeline.operations
    rows = block.rows(table)
    low, high = int(windows.step_start_ns[0]), int(windows.step_end_ns[-1])
    if len(rows):
        # Operations without times stand at 0 and would make the whole trace near.
        timed = table.end_ns[rows] > table.start_ns[rows]
        low = int(table.start_ns[rows][timed].min(initial=low))
        high = int(table.end_ns[rows][timed].max(initial=high))
    begin = int(np.searchsorted(table.start_ns, high))
    return np.flatnonzero((table.end_ns[:begin] > low) & (table.rank[:begin] == block.rank))
