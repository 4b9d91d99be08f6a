"""Charges every CUDA call, and with it the GPU work it launched, to a step and a phase (docs/attribution.md)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perfci.model.metrics import BACKGROUND, PSEUDO_PHASES, STEP, UNMARKED
from perfci.model.run import Note
from perfci.model.timeline import NO_STEP, Bool, Int32, Int64
from perfci.trace import steps as steps_
from perfci.trace.columns import NO_CORRELATION, UNFINISHED, RawTrace
from perfci.trace.intervals import NOBODY, Cover, cover_of
from perfci.trace.steps import TrainingThread

BUILT_IN_PHASES = ("data", "h2d", "forward", "backward", "optimizer", "log", "validation")
MOST_PHASES = 400
"""More distinct range names than this are not phases of a training step but per-operator annotation."""

_AUTOGRAD = re.compile(r"pt_autograd_\d+")
_OPERATOR_ANNOTATION = re.compile(r", (?:op_id|seq) = \d+")
NO_CALL = -1
"""Value of a launch: the trace holds no call for this operation."""


@dataclass(slots=True)
class PhaseNames:
    """Numbers phases in the order in which they are met; the pseudo phases come first."""

    names: list[str] = field(default_factory=lambda: [STEP, BACKGROUND, UNMARKED])

    def number(self, name: str) -> int:
        """The phase's number, given now if it is new."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    @property
    def background(self) -> int:
        """Number of the bucket for helper threads."""
        return self.names.index(BACKGROUND)

    @property
    def unmarked(self) -> int:
        """Number of the bucket for work outside any phase."""
        return self.names.index(UNMARKED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankAttribution:
    """One rank (one training process): its whole steps, its phase ranges inside them, and for its rows of RawTrace.calls
    and RawTrace.operations the step (row of ``step_start_ns`` or NO_STEP) and phase."""

    step_start_ns: Int64
    step_end_ns: Int64
    range_start_ns: Int64
    range_end_ns: Int64
    range_phase: Int32
    range_step: Int32
    call_rows: Int64
    call_phase: Int32
    call_step: Int32
    operation_rows: Int64
    operation_call: Int64
    """Row of RawTrace.calls or NO_CALL."""
    operation_phase: Int32
    operation_step: Int32
    dropped_step_count: int
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranges:
    start_ns: Int64
    end_ns: Int64
    phase: Int32

    def cover(self) -> Cover:
        return cover_of(self.start_ns, self.end_ns)

    def phase_at(self, time_ns: Int64, otherwise: int) -> Int32:
        row = self.cover().at(time_ns)
        if len(self.phase) == 0:
            return np.full(len(time_ns), otherwise, dtype=np.int32)
        return np.where(row == NOBODY, otherwise, self.phase[row]).astype(np.int32)


def attribute(
    raw: RawTrace, *, step_range: str, phases: Sequence[str], phase_names: PhaseNames
) -> tuple[RankAttribution, ...]:
    """Attribute one trace; one result per training process. TraceError when no process marked steps."""
    threads = steps_.training_threads(raw, step_range)
    eligible, notes = _eligible_names(raw, threads, step_range, phases)
    launch = launching_call(raw)
    call_process = raw.threads.process[raw.calls.thread]
    results = []
    for thread in threads:
        results.append(_attribute_rank(raw, thread, eligible, launch, call_process, phase_names, notes))
        notes = ()
    return tuple(results)


def launching_call(raw: RawTrace) -> Int64:
    """For each GPU operation the row of the call with its process and correlation, or NO_CALL. Of several calls with
    equal correlation the last row counts."""
    result = np.full(len(raw.operations.start_ns), NO_CALL, dtype=np.int64)
    call_process = raw.threads.process[raw.calls.thread]
    for process in np.unique(raw.operations.process):
        rows = np.flatnonzero((raw.operations.process == process) & (raw.operations.correlation != NO_CORRELATION))
        calls = np.flatnonzero((call_process == process) & (raw.calls.correlation != NO_CORRELATION))
        if len(rows) == 0 or len(calls) == 0:
            continue
        keys, wanted = raw.calls.correlation[calls], raw.operations.correlation[rows]
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            calls, keys = calls[order], keys[order]
        at = np.searchsorted(keys, wanted, side="right") - 1
        hit = (at >= 0) & (keys[np.maximum(at, 0)] == wanted)
        result[rows[hit]] = calls[at[hit]]
    return result


def _eligible_names(
    raw: RawTrace, threads: Sequence[TrainingThread], step_range: str, phases: Sequence[str]
) -> tuple[Bool, tuple[Note, ...]]:
    """Which strings may name a phase."""
    if phases:
        wanted = {*BUILT_IN_PHASES, *phases} - set(PSEUDO_PHASES)
        return np.array([name in wanted for name in raw.strings], dtype=np.bool_), ()
    used = np.zeros(len(raw.strings), dtype=np.bool_)
    used[raw.marks.name] = True
    eligible = np.array(
        [
            bool(used[at])
            and name not in PSEUDO_PHASES
            and not steps_.is_step_name(name, step_range)
            and not _OPERATOR_ANNOTATION.search(name)
            for at, name in enumerate(raw.strings)
        ],
        dtype=np.bool_,
    )
    if np.count_nonzero(eligible) <= MOST_PHASES:
        return eligible, ()
    counts = np.bincount(raw.marks.name, minlength=len(raw.strings))
    counts[~eligible] = 0
    often = np.argsort(-counts, kind="stable")[:MOST_PHASES]
    kept = np.zeros(len(raw.strings), dtype=np.bool_)
    kept[often] = True
    note = Note(
        code="too-many-phases",
        text=f"{np.count_nonzero(eligible)} different range names; only the {MOST_PHASES} most frequent count as phases: "
        "name the phases in the workload to choose them",
    )
    return kept & eligible, (note,)


def _attribute_rank(
    raw: RawTrace,
    thread: TrainingThread,
    eligible: Bool,
    launch: Int64,
    call_process: Int32,
    phase_names: PhaseNames,
    notes: tuple[Note, ...],
) -> RankAttribution:
    found = list(notes)
    step_cover = thread.cover
    own = _phase_ranges(raw, thread, thread.thread, eligible, phase_names, found)
    call_rows = np.flatnonzero(call_process == thread.process)
    call_start = raw.calls.start_ns[call_rows]
    call_step = step_cover.at(call_start)
    call_phase = _call_phases(raw, thread, call_rows, own, eligible, phase_names, found)

    operation_rows = np.flatnonzero(raw.operations.process == thread.process)
    operation_call = launch[operation_rows]
    launched = operation_call != NO_CALL
    at = np.searchsorted(call_rows, operation_call[launched])
    operation_phase = np.full(len(operation_rows), phase_names.background, dtype=np.int32)
    operation_phase[launched] = call_phase[at]
    operation_step = np.empty(len(operation_rows), dtype=np.int64)
    operation_step[launched] = call_step[at]
    orphans = operation_rows[~launched]
    operation_step[~launched] = step_cover.at(raw.operations.start_ns[orphans])
    if len(orphans):
        found.append(
            Note(
                code="operations-without-launch",
                text=f"{len(orphans)} of {len(operation_rows)} GPU operations have no launching call in the trace; they "
                "count in the step in which they started and in the background, not in a phase",
            )
        )

    ranges = _inside_steps(own, thread)
    whole = _whole_steps(raw, thread, ranges, operation_step, len(phase_names.names))
    if not whole.any():
        raise steps_.no_whole_step(raw)
    number = np.full(len(whole) + 1, NO_STEP, dtype=np.int32)
    number[:-1][whole] = np.arange(np.count_nonzero(whole), dtype=np.int32)
    kept = number[ranges[3]] != NO_STEP
    return RankAttribution(
        step_start_ns=thread.start_ns[whole],
        step_end_ns=thread.end_ns[whole],
        range_start_ns=ranges[0][kept],
        range_end_ns=ranges[1][kept],
        range_phase=ranges[2][kept],
        range_step=number[ranges[3][kept]],
        call_rows=call_rows,
        call_phase=call_phase,
        call_step=number[call_step],
        operation_rows=operation_rows,
        operation_call=operation_call,
        operation_phase=operation_phase,
        operation_step=number[operation_step],
        dropped_step_count=int(np.count_nonzero(~whole)) + thread.unfinished_count,
        notes=tuple(found),
    )


def _phase_ranges(
    raw: RawTrace, training: TrainingThread, thread: int, eligible: Bool, phase_names: PhaseNames, notes: list[Note]
) -> _Ranges:
    """Ranges of a thread that may be phases: eligible by name and not an outer level that encloses whole steps."""
    marks = raw.marks
    rows = np.flatnonzero(marks.thread == thread)
    rows = rows[eligible[marks.name[rows]]]
    start, end = marks.start_ns[rows], marks.end_ns[rows].copy()
    left_open = end == UNFINISHED
    if left_open.any():
        step = training.cover.at(start[left_open])
        end[left_open] = np.where(step == NOBODY, start[left_open], training.end_ns[step])
        notes.append(
            Note(
                code="unfinished-ranges",
                text=f"{np.count_nonzero(left_open)} ranges were never closed; inside a step they count up to its end",
            )
        )
    first = np.searchsorted(training.start_ns, start)
    last = np.searchsorted(training.end_ns, end, side="right")
    inner = last <= first
    order = np.argsort(start[inner], kind="stable")
    rows, start, end = rows[inner][order], start[inner][order], end[inner][order]
    phase_of = np.full(len(raw.strings), -1, dtype=np.int32)
    names, first_seen = np.unique(marks.name[rows], return_index=True)
    for name in names[np.argsort(first_seen)]:
        phase_of[name] = phase_names.number(raw.strings[name])
    return _Ranges(start_ns=start, end_ns=end, phase=phase_of[marks.name[rows]])


def _call_phases(
    raw: RawTrace,
    training: TrainingThread,
    call_rows: Int64,
    own: _Ranges,
    eligible: Bool,
    phase_names: PhaseNames,
    notes: list[Note],
) -> Int32:
    call_thread = raw.calls.thread[call_rows]
    call_start = raw.calls.start_ns[call_rows]
    phase = np.full(len(call_rows), phase_names.background, dtype=np.int32)
    marked = set(np.unique(raw.marks.thread).tolist())
    nameless = not bool((raw.threads.name[raw.threads.process == training.process] >= 0).any())
    assumed = []
    for thread in np.unique(call_thread):
        rows = np.flatnonzero(call_thread == thread)
        time = call_start[rows]
        (name,) = steps_.names_of(raw, np.array([thread]))
        follows = thread == training.thread or nameless or (name is not None and _AUTOGRAD.fullmatch(name) is not None)
        result = own.phase_at(time, phase_names.unmarked) if follows else phase[rows]
        if thread != training.thread and thread in marked:
            local = _phase_ranges(raw, training, int(thread), eligible, phase_names, notes).phase_at(time, -1)
            result = np.where(local >= 0, local, result)
        phase[rows] = result
        if nameless and thread != training.thread:
            assumed.append(len(rows))
    if assumed:
        notes.append(
            Note(
                code="thread-names-missing",
                text=f"the trace names no threads: {len(assumed)} threads with {sum(assumed)} CUDA calls are taken for "
                "autograd threads, so their work goes to the phase that the training thread had open",
            )
        )
    return phase


def _inside_steps(own: _Ranges, thread: TrainingThread) -> tuple[Int64, Int64, Int32, Int64]:
    """The pieces of phase ranges inside steps: start, end, phase, step. A range over a border of two steps has a piece in
    each."""
    pieces = []
    first = np.searchsorted(thread.end_ns, own.start_ns, side="right")
    for step in (first, first + 1):
        rows = np.flatnonzero(step < len(thread.start_ns))
        at = step[rows]
        start = np.maximum(own.start_ns[rows], thread.start_ns[at])
        end = np.minimum(own.end_ns[rows], thread.end_ns[at])
        some = end > start
        pieces.append((start[some], end[some], own.phase[rows][some], at[some]))
    start, end, phase, step = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], end[order], phase[order], step[order]


def _whole_steps(
    raw: RawTrace,
    thread: TrainingThread,
    ranges: tuple[Int64, Int64, Int32, Int64],
    operation_step: Int64,
    phase_count: int,
) -> Bool:
    count = len(thread.start_ns)
    seen = np.zeros((count, phase_count), dtype=np.bool_)
    seen[ranges[3], ranges[2]] = True
    operations = np.bincount(operation_step[operation_step >= 0], minlength=count) if raw.traced_gpu else None
    return steps_.complete_steps(
        phases_seen=seen, operation_count=operations, stopped_inside=steps_.stopped_inside(raw, thread)
    )
