"""Charges every CUDA call, and with it the GPU work it launched, to a step and a phase (docs/attribution.md)."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perfci.model.metrics import BACKGROUND, PSEUDO_PHASES, STEP, UNMARKED
from perfci.model.run import Note
from perfci.model.timeline import NO_STEP, Bool, Int32, Int64
from perfci.trace import steps as steps_
from perfci.trace.blocks import Rows, in_blocks, rows_of, slices
from perfci.trace.columns import NO_CORRELATION, UNFINISHED, RawTrace
from perfci.trace.intervals import NOBODY, Cover, cover_of
from perfci.trace.steps import TrainingThread

BUILT_IN_PHASES = ("data", "h2d", "forward", "backward", "optimizer", "log", "validation")
MOST_PHASES = 400
"""More distinct range names than this are not phases of a training step but per-operator annotation."""

LONGEST_PHASE_NAME = 10_000
"""Characters of the longest phase name: a bundle carries texts of 16,384, and findings say more than the name."""

_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_NO_PHASES = {"", *PSEUDO_PHASES, steps_.DROPPED_RANGE}
_AUTOGRAD = re.compile(r"pt_autograd_\d+")
_OPERATOR_ANNOTATION = re.compile(r", (?:op_id|seq) = \d+")
_DENSE = 4
"""Correlation numbers are dense when their span is less than this many times their count."""
NO_CALL = -1
"""Value of a launch: the trace holds no call for this operation."""


def phase_name(text: str) -> str:
    """The name of the phase that a range with this text marks.

    What no database holds (NUL, half of a character pair) becomes U+FFFD. Beyond LONGEST_PHASE_NAME: the start, and
    a hash of the whole, so that different names stay different.
    """
    name = _NOT_STORABLE.sub("\ufffd", text)
    if len(name) <= LONGEST_PHASE_NAME:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{name[: LONGEST_PHASE_NAME - 14]}…~{digest}"


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
    """One rank (one training process): its whole steps, its phase ranges inside them, and for its rows of
    RawTrace.calls and RawTrace.operations the phase and the step (a row of ``step_start_ns``, or NO_STEP)."""

    step_start_ns: Int64
    step_end_ns: Int64
    range_start_ns: Int64
    range_end_ns: Int64
    range_phase: Int32
    range_step: Int32
    call_rows: Rows
    call_phase: Int32
    call_step: Int32
    operation_rows: Rows
    operation_call: Int64
    """Index into the rank's own calls, or NO_CALL."""
    operation_phase: Int32
    operation_step: Int32
    dropped_step_count: int
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranges:
    """Phase ranges of one thread, sorted by start."""

    start_ns: Int64
    end_ns: Int64
    phase: Int32

    def by_time(self, otherwise: int) -> Callable[[Int64], Int64]:
        """The function from times to the phase of the innermost open range, or ``otherwise``."""
        cover = cover_of(self.start_ns, self.end_ns)
        phase_of = np.r_[self.phase, np.int32(otherwise)]  # NOBODY is -1: the last entry
        innermost = phase_of[cover.innermost].astype(np.int64)
        return Cover(edge_ns=cover.edge_ns, innermost=innermost).at


def attribute(
    raw: RawTrace, launch: Int64, *, step_range: str, phases: Sequence[str], phase_names: PhaseNames
) -> tuple[RankAttribution, ...]:
    """Attribute one trace; one result per training process. TraceError when no process marked steps.

    ``launch`` is what ``launching_call`` says of the trace. ``phases``: range names that count as phases besides the
    built-in ones; empty: all names. ``phase_names`` numbers the phases and is shared by all files of a launch.
    """
    threads = steps_.training_threads(raw, step_range)
    eligible, notes = _eligible_names(raw, step_range, phases)
    results = []
    for thread in threads:
        rank = _Rank(raw=raw, training=thread, eligible=eligible, phase_names=phase_names, notes=list(notes))
        results.append(rank.attribution(launch))
        notes = ()
    return tuple(results)


def without_correlations(raw: RawTrace) -> RawTrace:
    """The trace without the correlation numbers, which are of no more use once calls and operations are joined."""
    none = np.empty(0, dtype=np.int64)
    calls, operations = replace(raw.calls, correlation=none), replace(raw.operations, correlation=none)
    return replace(raw, calls=calls, operations=operations)


def launching_call(raw: RawTrace) -> Int64:
    """For each GPU operation the row of the call with its process and correlation, or NO_CALL. Of several calls with
    equal correlation the last row counts."""
    result = np.full(len(raw.operations.start_ns), NO_CALL, dtype=np.int64)
    call_process = raw.threads.process[raw.calls.thread]
    for process in np.flatnonzero(np.bincount(raw.operations.process)):
        rows, calls = rows_of(raw.operations.process == process), rows_of(call_process == process)
        keys = raw.calls.correlation[calls]
        if len(keys):
            at = _last_with(keys, raw.operations.correlation[rows])
            result[rows] = at if isinstance(calls, slice) else np.where(at == NO_CALL, NO_CALL, calls[at])
    return result


def _last_with(keys: Int64, wanted: Int64) -> Int64:
    """For each wanted key the place of the last equal one in ``keys``, or NO_CALL. NO_CORRELATION is equal to none."""
    low, high = int(keys.min()), int(keys.max())
    if high - low < _DENSE * len(keys):
        # Profilers count: a table by number is faster than sorting, and as small.
        place = np.full(high - low + 1, NO_CALL, dtype=np.int32)
        for part in slices(len(keys)):
            place[keys[part] - low] = np.arange(part.start, part.stop, dtype=np.int32)
        known = (wanted >= low) & (wanted <= high) & (wanted != NO_CORRELATION)
        return np.where(known, place[np.where(known, wanted - low, 0)], NO_CALL)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    at = np.searchsorted(ordered, wanted, side="right") - 1
    known = (at >= 0) & (ordered[np.maximum(at, 0)] == wanted) & (wanted != NO_CORRELATION)
    return np.where(known, order[np.maximum(at, 0)], NO_CALL)


def _eligible_names(raw: RawTrace, step_range: str, phases: Sequence[str]) -> tuple[Bool, tuple[Note, ...]]:
    """Which strings may name a phase."""
    if phases:
        wanted = {*BUILT_IN_PHASES, *phases} - _NO_PHASES
        return np.array([name in wanted for name in raw.strings], dtype=np.bool_), ()
    counts = np.bincount(raw.marks.name, minlength=len(raw.strings))
    for at in np.flatnonzero(counts).tolist():
        name = raw.strings[at]
        if name in _NO_PHASES or steps_.is_step_name(name, step_range) or _OPERATOR_ANNOTATION.search(name):
            counts[at] = 0
    used = int(np.count_nonzero(counts))
    if used <= MOST_PHASES:
        return counts > 0, ()
    kept = np.zeros(len(raw.strings), dtype=np.bool_)
    kept[np.argsort(-counts, kind="stable")[:MOST_PHASES]] = True
    note = Note(
        code="too-many-phases",
        text=f"{used} different range names; only the {MOST_PHASES} most frequent count as phases: name the phases in "
        "the workload to choose them",
    )
    return kept, (note,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rank:
    """What attribution of one rank works on."""

    raw: RawTrace
    training: TrainingThread
    eligible: Bool
    phase_names: PhaseNames
    notes: list[Note]

    def attribution(self, launch: Int64) -> RankAttribution:
        raw, training = self.raw, self.training
        steps = training.cover
        own = self._phase_ranges(training.thread)
        call_rows = rows_of(raw.threads.process[raw.calls.thread] == training.process)
        call_step = in_blocks(steps.at, raw.calls.start_ns[call_rows])
        call_phase = self._call_phases(call_rows, own)

        operation_rows = rows_of(raw.operations.process == training.process)
        operation_call = launch[operation_rows]
        if not isinstance(call_rows, slice):
            operation_call = np.where(operation_call == NO_CALL, NO_CALL, np.searchsorted(call_rows, operation_call))
        count = len(operation_call)
        # NO_CALL is -1: the last entry.
        operation_phase = np.r_[call_phase, np.int32(self.phase_names.background)][operation_call]
        operation_step = np.r_[call_step, np.int32(NOBODY)][operation_call]
        orphans = np.flatnonzero(operation_call == NO_CALL)
        operation_step[orphans] = steps.at(raw.operations.start_ns[operation_rows][orphans])
        if len(orphans):
            self._note(
                "operations-without-launch",
                f"{len(orphans)} of {count} GPU operations have no launching call in the trace; they "
                "count in the step in which they started and in the background, not in a phase",
            )
        ranges, range_step = _pieces_in_steps(own, training)
        whole = self._whole_steps(ranges, range_step, operation_step)
        number = np.full(len(whole) + 1, NO_STEP, dtype=np.int32)  # NOBODY is -1: the last entry
        number[:-1][whole] = np.arange(np.count_nonzero(whole), dtype=np.int32)
        kept = number[range_step] != NO_STEP
        return RankAttribution(
            step_start_ns=training.start_ns[whole],
            step_end_ns=training.end_ns[whole],
            range_start_ns=ranges.start_ns[kept],
            range_end_ns=ranges.end_ns[kept],
            range_phase=ranges.phase[kept],
            range_step=number[range_step[kept]],
            call_rows=call_rows,
            call_phase=call_phase,
            call_step=number[call_step],
            operation_rows=operation_rows,
            operation_call=operation_call,
            operation_phase=operation_phase,
            operation_step=number[operation_step],
            dropped_step_count=int(np.count_nonzero(~whole)) + training.unfinished_count,
            notes=tuple(self.notes),
        )

    def _note(self, code: str, text: str) -> None:
        self.notes.append(Note(code=code, text=text))

    def _phase_ranges(self, thread: int) -> _Ranges:
        """Ranges of a thread that may be phases: eligible by name, and no outer level, which encloses whole steps."""
        marks, training = self.raw.marks, self.training
        rows = np.flatnonzero(marks.thread == thread)
        rows = rows[self.eligible[marks.name[rows]]]
        start, end = marks.start_ns[rows], marks.end_ns[rows].copy()
        left_open = end == UNFINISHED
        if left_open.any():
            step = training.cover.at(start[left_open])
            end[left_open] = np.where(step == NOBODY, start[left_open], training.end_ns[step])
            self._note(
                "unfinished-ranges",
                f"{np.count_nonzero(left_open)} ranges were never closed; inside a step they count up to its end",
            )
        first = np.searchsorted(training.start_ns, start)
        encloses = np.searchsorted(training.end_ns, end, side="right") > first
        at = np.minimum(first, len(training.start_ns) - 1)
        same = (training.start_ns[at] == start) & (training.end_ns[at] == end)
        inner = np.flatnonzero(~encloses | same)
        inner = inner[np.argsort(start[inner], kind="stable")]
        name = marks.name[rows[inner]]
        phase_of = np.full(len(self.raw.strings), -1, dtype=np.int32)
        for text in dict.fromkeys(name.tolist()):
            phase_of[text] = self.phase_names.number(phase_name(self.raw.strings[text]))
        return _Ranges(start_ns=start[inner], end_ns=end[inner], phase=phase_of[name])

    def _call_phases(self, call_rows: Rows, own: _Ranges) -> Int32:
        """The rule: docs/attribution.md."""
        raw, training = self.raw, self.training
        call_thread, call_start = raw.calls.thread[call_rows], raw.calls.start_ns[call_rows]
        phase = np.full(len(call_thread), self.phase_names.background, dtype=np.int32)
        marked = set(np.unique(raw.marks.thread).tolist())
        nameless = not bool((raw.threads.name[raw.threads.process == training.process] >= 0).any())
        assumed = []
        follow = own.by_time(self.phase_names.unmarked)
        for thread in np.flatnonzero(np.bincount(call_thread)).tolist():
            rows = np.flatnonzero(call_thread == thread)
            name = steps_.name_of(raw, thread)
            if thread == training.thread or nameless or _AUTOGRAD.fullmatch(name):
                phase[rows] = in_blocks(follow, call_start[rows])
            if thread != training.thread and thread in marked:
                local = in_blocks(self._phase_ranges(thread).by_time(NOBODY), call_start[rows])
                phase[rows] = np.where(local == NOBODY, phase[rows], local)
            if nameless and thread != training.thread:
                assumed.append(len(rows))
        if assumed:
            self._note(
                "thread-names-missing",
                f"the trace names no threads: {len(assumed)} threads with {sum(assumed)} CUDA calls are taken for "
                "autograd threads, so their work goes to the phase that the training thread had open",
            )
        return phase

    def _whole_steps(self, ranges: _Ranges, range_step: Int64, operation_step: Int64) -> Bool:
        count = len(self.training.start_ns)
        seen = np.zeros((count, len(self.phase_names.names)), dtype=np.bool_)
        seen[range_step, ranges.phase] = True
        operations = np.bincount(operation_step[operation_step >= 0], minlength=count)
        whole = steps_.complete_steps(
            phases_seen=seen,
            operation_count=operations if self.raw.traced_gpu else None,
            stopped_inside=steps_.stopped_inside(self.raw, self.training),
        )
        if not whole.any():
            raise steps_.no_whole_step(self.raw)
        return whole


def _pieces_in_steps(own: _Ranges, training: TrainingThread) -> tuple[_Ranges, Int64]:
    """The pieces of phase ranges inside steps, with their steps. No range encloses a step, so it has at most two."""
    pieces = []
    first = np.searchsorted(training.end_ns, own.start_ns, side="right")
    for step in (first, first + 1):
        rows = np.flatnonzero(step < len(training.start_ns))
        at = step[rows]
        start = np.maximum(own.start_ns[rows], training.start_ns[at])
        end = np.minimum(own.end_ns[rows], training.end_ns[at])
        some = end > start
        pieces.append((start[some], end[some], own.phase[rows][some], at[some]))
    start, end, phase, at = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(start, kind="stable")
    return _Ranges(start_ns=start[order], end_ns=end[order], phase=phase[order]), at[order]
