"""Sums and covered times per cell of a table: a row per step of a rank, a column per phase, column 0 the whole step."""

from dataclasses import dataclass

import numpy as np

from perfci.model.timeline import Bool, Int64
from perfci.trace.intervals import GroupedBlocks, Integers, Union, sum_by_group, union_by_group, union_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Events with the cell that each belongs to. ``step`` counts from 0 within the rank; ``phase`` is never 0."""

    step: Integers
    phase: Integers
    start_ns: Int64
    end_ns: Int64
    step_count: int
    phase_count: int

    def where(self, hit: Bool) -> "Cells":
        """Only the events marked."""
        if hit.all():
            return self
        return Cells(
            step=self.step[hit],
            phase=self.phase[hit],
            start_ns=self.start_ns[hit],
            end_ns=self.end_ns[hit],
            step_count=self.step_count,
            phase_count=self.phase_count,
        )

    @property
    def cell(self) -> Int64:
        """Number of each event's cell, row by row."""
        return self.step.astype(np.int64) * self.phase_count + self.phase

    def counts(self) -> Int64:
        """Events per cell."""
        return self._rows_summed(np.bincount(self.cell, minlength=self.step_count * self.phase_count))

    def sums(self, value: Integers) -> Int64:
        """Sum of a value per cell."""
        return self._rows_summed(sum_by_group(value, self.cell, self.step_count * self.phase_count))

    def durations(self) -> Int64:
        """Sum of durations per cell: events that overlap count each."""
        return self.sums(self.end_ns - self.start_ns)

    def covered(self, without: Union | None = None) -> Int64:
        """Time in which at least one event of the cell ran; ``without``: and this union did not."""
        blocks = union_by_group(self.start_ns, self.end_ns, self.cell)
        matrix = uncovered(blocks, without, self.step_count * self.phase_count).reshape(self._shape)
        whole = union_by_group(self.start_ns, self.end_ns, self.step)
        matrix[:, 0] = uncovered(whole, without, self.step_count)
        return matrix

    @property
    def _shape(self) -> tuple[int, int]:
        return self.step_count, self.phase_count

    def _rows_summed(self, flat: Int64) -> Int64:
        matrix = flat.reshape(self._shape).astype(np.int64)
        matrix[:, 0] = matrix.sum(axis=1)
        return matrix


def uncovered(blocks: GroupedBlocks, without: Union | None, group_count: int) -> Int64:
    """Length of each group's blocks outside ``without``."""
    length = blocks.end_ns - blocks.start_ns
    if without is not None:
        length = length - without.covered(blocks.start_ns, blocks.end_ns)
    return sum_by_group(length, blocks.group, group_count)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """Where on the clock each cell is: the phase's ranges on the training thread; the step for column 0; and for column
    ``unmarked`` the rest of the step."""

    marked: Cells
    step_start_ns: Int64
    step_end_ns: Int64
    unmarked: int

    def outside(self, busy: Union | None) -> Int64:
        """Time of each window in which ``busy`` covers nothing; all of it without ``busy``."""
        matrix = self.marked.covered(busy)
        in_phases = matrix[:, 0].copy()
        whole = self.step_end_ns - self.step_start_ns
        if busy is not None:
            whole = whole - busy.covered(self.step_start_ns, self.step_end_ns)
        matrix[:, 0] = whole
        matrix[:, self.unmarked] = whole - in_phases
        return matrix


def gaps(operations: Cells) -> Int64:
    """Time in which nothing ran, between operations of one cell that follow each other.

    ``operations`` are all of the rank's, sorted by start, those outside measured steps with step -1. A gap is what lies
    between the end of the operation that ended last so far and the next start; it belongs to a cell when both sides do.
    """
    matrix = np.zeros((operations.step_count, operations.phase_count), dtype=np.int64)
    some = operations.where(operations.end_ns > operations.start_ns)
    if len(some.step) < 2:
        return matrix
    reached = np.maximum.accumulate(some.end_ns)
    latest = np.maximum.accumulate(np.where(some.end_ns == reached, np.arange(len(reached)), 0))
    after = np.flatnonzero(some.start_ns[1:] > reached[:-1]) + 1
    before = latest[after - 1]
    same_step = (some.step[before] == some.step[after]) & (some.step[after] >= 0)
    same_phase = same_step & (some.phase[before] == some.phase[after])
    gap = Cells(
        step=some.step[after],
        phase=some.phase[after],
        start_ns=reached[after - 1],
        end_ns=some.start_ns[after],
        step_count=operations.step_count,
        phase_count=operations.phase_count,
    )
    matrix = gap.where(same_phase).durations()
    matrix[:, 0] = gap.where(same_step).durations()[:, 0]
    return matrix


def union_where(operations: Cells, hit: Bool | None = None) -> Union:
    """The union of the events, or of those marked."""
    chosen = operations if hit is None else operations.where(hit)
    return union_of(chosen.start_ns, chosen.end_ns)
