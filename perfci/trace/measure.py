"""From an attributed timeline to the values of every trace metric per step and phase. Definitions: docs/metrics.md."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfci.model.metrics import UNMARKED
from perfci.model.run import Series
from perfci.model.timeline import Bool, Int64, OperationKind, SyncKind, Timeline
from perfci.trace import calls
from perfci.trace.intervals import GroupedBlocks, Union, sum_by_group, union_by_group, union_of

_COPIES = (OperationKind.H2D, OperationKind.D2H, OperationKind.D2D, OperationKind.OTHER_COPY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Values per (step, phase): a matrix of integers with one row per step of one rank and one column per phase; column 0
    is the step as a whole. ``known`` marks the phases for which the number could be measured."""

    values: Int64
    known: Bool


class RankMeasurement:
    """All trace metrics of one rank. ``step_rows`` are the rows of Timeline.steps that belong to it."""

    def __init__(self, timeline: Timeline, rank: int, *, traced_gpu: bool) -> None:
        self._timeline = timeline
        self._rows = np.flatnonzero(timeline.steps.rank == rank)
        self._steps = len(self._rows)
        self._phases = len(timeline.phases)
        self._traced_gpu = traced_gpu
        self._rank = rank
        self._grids: dict[str, Grid] = {}
        self._ratios: dict[str, tuple[np.ndarray, Bool]] = {}  # type: ignore[type-arg]
        self._all_known = np.ones(self._phases, dtype=np.bool_)
        self._measure()

    def series(self) -> tuple[Series, ...]:
        """One series per phase and metric that could be measured."""
        found = []
        for at, phase in enumerate(self._timeline.phases):
            for metric, grid in self._grids.items():
                if grid.known[at]:
                    found.append(Series(phase=phase, metric=metric, values=tuple(grid.values[:, at].tolist())))
            for metric, (ratio, known) in self._ratios.items():
                if known[at]:
                    found.append(Series(phase=phase, metric=metric, values=tuple(ratio[:, at].tolist())))
        return tuple(found)

    def _group(self, step: Int64, phase: Int64) -> Int64:
        return (step.astype(np.int64) - int(self._rows[0])) * self._phases + phase

    def _totals(self, step: Int64, phase: Int64, value: Int64 | None = None) -> Int64:
        """Sums per (step, phase); column 0 is the sum of the row."""
        group = self._group(step, phase)
        cells = self._steps * self._phases
        flat = np.bincount(group, minlength=cells) if value is None else sum_by_group(value, group, cells)
        matrix = flat.reshape(self._steps, self._phases).astype(np.int64)
        matrix[:, 0] = matrix.sum(axis=1)
        return matrix

    def _put(self, metric: str, values: Int64, known: Bool | None = None) -> None:
        self._grids[metric] = Grid(values=values, known=self._all_known if known is None else known)

    def _measure(self) -> None:
        windows = self._windows()
        self._put("wall_ns", windows.wall_ns, windows.known)
        if not self._traced_gpu:
            return
        self._measure_calls()
        self._measure_operations(windows)

    # Windows: where on the clock each phase of each step is -----------------------------------------------------------

    def _windows(self) -> "_Windows":
        timeline = self._timeline
        steps, ranges = timeline.steps, timeline.ranges
        rows = np.flatnonzero(ranges.rank == self._rank)
        group = self._group(ranges.step[rows], ranges.phase[rows].astype(np.int64))
        by_phase = union_by_group(ranges.start_ns[rows], ranges.end_ns[rows], group)
        marked = union_by_group(ranges.start_ns[rows], ranges.end_ns[rows], ranges.step[rows] - self._rows[0])
        step_start, step_end = steps.start_ns[self._rows], steps.end_ns[self._rows]
        known = np.zeros(self._phases, dtype=np.bool_)
        known[np.unique(ranges.phase[rows])] = True
        known[0] = known[timeline.phases.index(UNMARKED)] = True
        return _Windows(
            by_phase=by_phase,
            marked=marked,
            step_start=step_start,
            step_end=step_end,
            unmarked=timeline.phases.index(UNMARKED),
            phases=self._phases,
            known=known,
        )

    def _measure_calls(self) -> None:
        timeline, api = self._timeline, self._timeline.api_calls
        rows = np.flatnonzero((api.rank == self._rank) & (api.step >= 0))
        step, phase, name = api.step[rows], api.phase[rows].astype(np.int64), api.name[rows]
        self._put("api_call_count", self._totals(step, phase))
        for metric, test in (("alloc_count", calls.allocates), ("graph_launch_count", calls.launches_graph)):
            wanted = np.array([test(text) for text in timeline.names], dtype=np.bool_)
            hit = wanted[name] if len(name) else np.empty(0, dtype=np.bool_)
            self._put(metric, self._totals(step[hit], phase[hit]))
        sync, duration = api.sync[rows], api.end_ns[rows] - api.start_ns[rows]
        waits = sync != SyncKind.NONE
        self._put("sync_count", self._totals(step[waits], phase[waits]))
        self._put("sync_ns", self._totals(step[waits], phase[waits], duration[waits]))

    def _measure_operations(self, windows: "_Windows") -> None:
        timeline, table = self._timeline, self._timeline.operations
        mine = np.flatnonzero(table.rank == self._rank)
        start_all, end_all = table.start_ns[mine], table.end_ns[mine]
        kind_all, nccl_all = table.kind[mine], table.nccl[mine]
        compute_all = ((kind_all == OperationKind.KERNEL) & ~nccl_all) | (kind_all == OperationKind.GRAPH)
        busy = union_of(start_all, end_all)
        compute = union_of(start_all[compute_all], end_all[compute_all])

        inside = np.flatnonzero(table.step[mine] >= 0)
        rows = mine[inside]
        step, phase = table.step[rows], table.phase[rows].astype(np.int64)
        kind, nccl, pageable = table.kind[rows], table.nccl[rows], table.pageable[rows]
        start, end, moved = table.start_ns[rows], table.end_ns[rows], table.moved_bytes[rows]
        duration = end - start
        graphs = self._totals(step[kind == OperationKind.GRAPH], phase[kind == OperationKind.GRAPH])
        visible = ~(graphs > 0).any(axis=0)

        def put(prefix: str, hit: Bool, *, known: Bool | None = None, count: bool = True, ns: bool = True) -> None:
            if count:
                self._put(f"{prefix}_count", self._totals(step[hit], phase[hit]), known)
            if ns:
                self._put(f"{prefix}_ns", self._totals(step[hit], phase[hit], duration[hit]), known)

        def put_bytes(prefix: str, hit: Bool, known: Bool | None = None) -> None:
            self._put(f"{prefix}_bytes", self._totals(step[hit], phase[hit], moved[hit]), known)

        put("kernel", kind == OperationKind.KERNEL, known=visible)
        put("memset", kind == OperationKind.MEMSET, known=visible)
        put("nccl", nccl, known=visible)
        for prefix, direction in (("h2d", OperationKind.H2D), ("d2h", OperationKind.D2H), ("d2d", OperationKind.D2D)):
            known = visible if direction is OperationKind.D2D else None
            put(prefix, kind == direction, known=known)
            put_bytes(prefix, kind == direction, known)
        put("pageable_copy", pageable, ns=False)
        put_bytes("pageable_copy", pageable)

        self._put("gpu_busy_ns", self._covered(step, phase, start, end, None))
        copy = np.isin(kind, [int(k) for k in _COPIES])
        self._put("copy_exposed_ns", self._covered(step, phase, start, end, compute, copy))
        self._put("nccl_exposed_ns", self._covered(step, phase, start, end, compute, nccl), visible)
        moving = copy | nccl
        total = self._covered(step, phase, start, end, None, moving)
        exposed = self._covered(step, phase, start, end, compute, moving)
        self._ratios["overlap_ratio"] = _share(total - exposed, total, visible)
        self._put("launch_gap_ns", self._gaps(mine))
        idle = windows.uncovered(busy)
        self._put("gpu_idle_ns", idle, windows.known)
        self._ratios["gpu_utilization_ratio"] = _share(windows.wall_ns - idle, windows.wall_ns, windows.known)

    def _covered(
        self, step: Int64, phase: Int64, start: Int64, end: Int64, but: Union | None, hit: Bool | None = None
    ) -> Int64:
        """Time covered by operations per (step, phase) and per step, without the time that ``but`` covers."""
        if hit is not None:
            step, phase, start, end = step[hit], phase[hit], start[hit], end[hit]
        by_phase = union_by_group(start, end, self._group(step, phase))
        by_step = union_by_group(start, end, step.astype(np.int64) - int(self._rows[0]))
        matrix = _left(by_phase, but, self._steps * self._phases).reshape(self._steps, self._phases)
        matrix[:, 0] = _left(by_step, but, self._steps)
        return matrix

    def _gaps(self, mine: Int64) -> Int64:
        """Idle time between operations that follow one another on the rank's GPUs and belong to one step (and phase)."""
        table = self._timeline.operations
        rows = mine[np.flatnonzero(table.end_ns[mine] > table.start_ns[mine])]
        rows = rows[np.argsort(table.start_ns[rows], kind="stable")]
        matrix = np.zeros((self._steps, self._phases), dtype=np.int64)
        if len(rows) < 2:
            return matrix
        start, end = table.start_ns[rows], table.end_ns[rows]
        reached = np.maximum.accumulate(end)
        latest = np.maximum.accumulate(np.where(end == reached, np.arange(len(rows)), 0))
        after = np.flatnonzero(start[1:] > reached[:-1]) + 1
        before = latest[after - 1]
        gap = start[after] - reached[after - 1]
        step_before, step_after = table.step[rows[before]], table.step[rows[after]]
        same_step = (step_before == step_after) & (step_after >= 0)
        same_phase = same_step & (table.phase[rows[before]] == table.phase[rows[after]])
        cells = self._steps * self._phases
        group = self._group(step_after[same_phase], table.phase[rows[after]][same_phase].astype(np.int64))
        matrix = sum_by_group(gap[same_phase], group, cells).reshape(self._steps, self._phases)
        matrix[:, 0] = sum_by_group(
            gap[same_step], step_after[same_step].astype(np.int64) - int(self._rows[0]), self._steps
        )
        return matrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Windows:
    """Where on the clock each phase of each step is: its ranges; for column 0 the step; for unmarked the rest of it."""

    by_phase: GroupedBlocks
    marked: GroupedBlocks
    step_start: Int64
    step_end: Int64
    unmarked: int
    phases: int
    known: Bool

    @property
    def wall_ns(self) -> Int64:
        """Length of each window."""
        return self._matrix(self.step_end - self.step_start, lambda blocks: blocks.end_ns - blocks.start_ns)

    def uncovered(self, busy: Union) -> Int64:
        """Time in each window that ``busy`` does not cover."""

        def left(blocks: GroupedBlocks) -> Int64:
            return blocks.end_ns - blocks.start_ns - busy.covered(blocks.start_ns, blocks.end_ns)

        return self._matrix(self.step_end - self.step_start - busy.covered(self.step_start, self.step_end), left)

    def _matrix(self, of_step: Int64, of_blocks: Callable[[GroupedBlocks], Int64]) -> Int64:
        count = len(self.step_start)
        matrix = sum_by_group(of_blocks(self.by_phase), self.by_phase.group, count * self.phases).reshape(
            count, self.phases
        )
        matrix[:, 0] = of_step
        matrix[:, self.unmarked] = of_step - sum_by_group(of_blocks(self.marked), self.marked.group, count)
        return matrix


def _left(blocks: GroupedBlocks, but: Union | None, groups: int) -> Int64:
    length = blocks.end_ns - blocks.start_ns
    if but is not None:
        length = length - but.covered(blocks.start_ns, blocks.end_ns)
    return sum_by_group(length, blocks.group, groups)


def _share(part: Int64, whole: Int64, known: Bool) -> tuple[np.ndarray, Bool]:  # type: ignore[type-arg]
    """part / whole, known only where no step's whole is 0."""
    known = known & (whole > 0).all(axis=0)
    return np.divide(part, whole, out=np.zeros(part.shape, dtype=np.float64), where=whole > 0), known
