"""One trace prepared for the rules: what several rules ask of a timeline, computed once."""

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from perfci.diagnosis.intervals import Spans, union
from perfci.model.metrics import BACKGROUND
from perfci.model.timeline import NO_STEP, Bool, Int32, Int64, OperationKind, Steps, Timeline

_T = TypeVar("_T")

COPY_KINDS = (OperationKind.H2D, OperationKind.D2H, OperationKind.D2D, OperationKind.OTHER_COPY)


class TraceView:
    """A timeline with the derived columns that rules share. Immutable for its users.

    A *rank-step* is one row of ``timeline.steps``: one step of one rank. "Per step" in evidence means per rank-step.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._known: dict[Hashable, Any] = {}

    def _once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        if key not in self._known:
            self._known[key] = make()
        value: _T = self._known[key]
        return value

    @property
    def steps(self) -> Steps:
        """The measured rank-steps."""
        return self.timeline.steps

    @property
    def step_count(self) -> int:
        """Number of rank-steps."""
        return len(self.steps.start_ns)

    @cached_property
    def steps_per_rank(self) -> int:
        """Steps of the rank that has most; 0 without steps."""
        return int(np.unique(self.steps.rank, return_counts=True)[1].max(initial=0))

    @cached_property
    def wall_ns(self) -> Int64:
        """Wall time of each rank-step."""
        return self.steps.end_ns - self.steps.start_ns

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have measured steps."""
        return tuple(int(rank) for rank in np.unique(self.steps.rank))

    @cached_property
    def background(self) -> int:
        """Index of the phase of helper threads, or -2 (no row has it) when there is none."""
        return self.timeline.phases.index(BACKGROUND) if BACKGROUND in self.timeline.phases else -2

    def phases_named(self, names: frozenset[str]) -> tuple[int, ...]:
        """Indices of the phases whose name, lower case, is one of ``names``."""
        return tuple(i for i, phase in enumerate(self.timeline.phases) if phase.strip().lower() in names)

    @cached_property
    def in_step(self) -> Bool:
        """Which operations belong to a measured step."""
        return np.asarray(self.timeline.operations.step != NO_STEP, dtype=np.bool_)

    @cached_property
    def is_copy(self) -> Bool:
        """Which operations are copies."""
        return np.isin(self.timeline.operations.kind, COPY_KINDS)

    @cached_property
    def is_compute(self) -> Bool:
        """Which operations are kernels or graphs of the model: not copies, memsets or NCCL."""
        operations = self.timeline.operations
        return np.isin(operations.kind, (OperationKind.KERNEL, OperationKind.GRAPH)) & ~operations.nccl

    def busy(self, rank: int) -> Spans:
        """When any operation ran on the GPU (with several GPUs in one rank: on any of them)."""
        return self._once(("busy", rank), lambda: self._union(np.ones(len(self.in_step), dtype=np.bool_), rank))

    def computing(self, rank: int) -> Spans:
        """When any compute kernel or graph ran on the GPU of the rank."""
        return self._once(("computing", rank), lambda: self._union(self.is_compute, rank))

    def _union(self, which: Bool, rank: int) -> Spans:
        operations = self.timeline.operations
        keep = which & (operations.rank == rank)
        return union(operations.start_ns[keep], operations.end_ns[keep])

    def exposed_ns(self, which: Bool) -> int:
        """Time of the chosen operations (union per rank) that no compute kernel hides, all ranks together."""
        return sum(self._union(which, rank).without(self.computing(rank)) for rank in self.ranks)

    def _in_steps_ns(self, spans_of: Callable[[int], Spans]) -> Int64:
        """How much of each rank-step the spans of its rank cover."""
        covered = np.zeros(self.step_count, dtype=np.int64)
        for rank in self.ranks:
            mine = self.steps.rank == rank
            covered[mine] = spans_of(rank).covered_ns(self.steps.start_ns[mine], self.steps.end_ns[mine])
        return covered

    @cached_property
    def step_idle_ns(self) -> Int64:
        """GPU idle time of each rank-step."""
        return self.wall_ns - self._in_steps_ns(self.busy)

    def marked(self, phases: tuple[int, ...], rank: int) -> Spans:
        """When a range of one of these phases was open on the rank: nested and overlapping ranges count once."""
        ranges = self.timeline.ranges
        keep = np.isin(ranges.phase, phases) & (ranges.rank == rank)
        return union(ranges.start_ns[keep], ranges.end_ns[keep])

    def marked_ns(self, phases: tuple[int, ...]) -> Int64:
        """Wall time of each rank-step in which a range of one of these phases was open."""
        return self._in_steps_ns(lambda rank: self.marked(phases, rank))

    def idle_in_ns(self, phases: tuple[int, ...]) -> Int64:
        """GPU idle time of each rank-step while a range of one of these phases was open."""

        def marked_or_busy(rank: int) -> Spans:
            marked, busy = self.marked(phases, rank), self.busy(rank)
            return union(np.concatenate((marked.start_ns, busy.start_ns)), np.concatenate((marked.end_ns, busy.end_ns)))

        return self._in_steps_ns(marked_or_busy) - self._in_steps_ns(self.busy)

    @cached_property
    def utilisation_ratio(self) -> float:
        """Share of the steps' wall time in which the GPU was busy; 0 without steps."""
        total = int(self.wall_ns.sum())
        return 1 - int(self.step_idle_ns.sum()) / total if total else 0.0

    def per_step(self, step: Int32, value: Int64 | None = None) -> Int64:
        """Number of rows, or sum of ``value``, per rank-step. Rows outside measured steps are left out."""
        keep = step != NO_STEP
        if value is None:
            return np.bincount(step[keep], minlength=self.step_count).astype(np.int64)
        sums = np.zeros(self.step_count, dtype=np.int64)
        np.add.at(sums, step[keep], value[keep])  # integers: bincount would round large sums to float
        return sums

    def share(self, total_ns: float) -> float:
        """A time summed over all rank-steps as a share of their wall time; 0 without steps."""
        wall = int(self.wall_ns.sum())
        return total_ns / wall if wall else 0.0

    def phase_walls_ns(self) -> dict[int, Int64]:
        """Wall time per rank-step of each marked phase (nested phases count for both)."""
        return self._once("phase walls", self._phase_walls)

    def _phase_walls(self) -> dict[int, Int64]:
        phases = [int(phase) for phase in np.unique(self.timeline.ranges.phase)]
        return {phase: self.marked_ns((phase,)) for phase in phases}
