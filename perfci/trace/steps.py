"""Finds the training threads, their steps, and which of these are complete."""

import re
from dataclasses import dataclass

import numpy as np

from perfci.errors import TraceError
from perfci.model.timeline import Bool, Int64
from perfci.trace.columns import UNFINISHED, RawTrace
from perfci.trace.intervals import Cover, cover_of

_NAMES_SHOWN = 8
_STEP_NUMBER = re.compile(r"[ _#:/-]{0,2}\d+")
DROPPED_RANGE = "perfci_dropped"
"""What perfci.phases marks inside a step range that is none after all: the data ended, or the loop was left."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingThread:
    """The thread of one process that runs the training loop, with its closed step ranges sorted by start. Steps inside
    a step are the same step and left out. ``unfinished_count``: ranges that were never closed, or that the program
    itself declared to be no step."""

    process: int
    thread: int
    start_ns: Int64
    end_ns: Int64
    unfinished_count: int

    @property
    def cover(self) -> Cover:
        """Which step is open at a time."""
        return cover_of(self.start_ns, self.end_ns)


def is_step_name(name: str, step_range: str) -> bool:
    """True for the range name itself and for numbered ones: ``step``, ``step 12``, ``step_12``, ``step#12``."""
    if not name.startswith(step_range):  # most of what may be millions of names
        return False
    return name == step_range or _STEP_NUMBER.fullmatch(name, len(step_range)) is not None


def training_threads(raw: RawTrace, step_range: str) -> tuple[TrainingThread, ...]:
    """One per process that marked steps, in the order of processes. TraceError when there is none, with likely causes.

    When several threads of a process marked steps, the one with most counts (the first of equals).
    """
    is_step = np.array([is_step_name(name, step_range) for name in raw.strings], dtype=np.bool_)
    marks = raw.marks
    rows = np.flatnonzero(is_step[marks.name]) if len(marks.name) else np.empty(0, dtype=np.int64)
    found = []
    threads, counts = np.unique(marks.thread[rows], return_counts=True)
    for process in np.unique(raw.threads.process[threads]):
        mine = raw.threads.process[threads] == process
        thread = int(threads[mine][np.argmax(counts[mine])])
        found.append(_training_thread(raw, int(process), thread, rows[marks.thread[rows] == thread]))
    if not any(len(thread.start_ns) for thread in found):
        raise _no_steps(raw, step_range, has_unfinished=any(t.unfinished_count for t in found))
    return tuple(thread for thread in found if len(thread.start_ns))


def _training_thread(raw: RawTrace, process: int, thread: int, rows: Int64) -> TrainingThread:
    start, end = raw.marks.start_ns[rows], raw.marks.end_ns[rows]
    closed = end != UNFINISHED
    order = np.lexsort((-end[closed], start[closed]))
    start, end = start[closed][order], end[closed][order]
    reached = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, end])[:-1]
    outer = (end > reached) & (end > start)
    start, end = start[outer], end[outer]
    whole = ~_dropped(raw, thread, start, end)
    return TrainingThread(
        process=process,
        thread=thread,
        start_ns=start[whole],
        end_ns=end[whole],
        unfinished_count=int(np.count_nonzero(~closed)) + int(np.count_nonzero(~whole)),
    )


def _dropped(raw: RawTrace, thread: int, start_ns: Int64, end_ns: Int64) -> Bool:
    """Steps that the program itself declared to be none."""
    hit = np.zeros(len(start_ns), dtype=np.bool_)
    if DROPPED_RANGE in raw.strings:
        marks = raw.marks
        rows = np.flatnonzero((marks.thread == thread) & (marks.name == raw.strings.index(DROPPED_RANGE)))
        step = cover_of(start_ns, end_ns).at(marks.start_ns[rows])
        hit[step[step >= 0]] = True
    return hit


def _no_steps(raw: RawTrace, step_range: str, *, has_unfinished: bool) -> TraceError:
    marks = raw.marks
    if len(marks.name) == 0:
        return TraceError(
            f"{raw.label} holds no NVTX ranges at all",
            wanted=f"ranges named {step_range!r} around the training steps",
            todo="mark the script (perfci.phases), trace with nvtx, keep the nvtx package at 0.2.11 or older for nsys "
            "before 2024, and set NSYS_NVTX_PROFILER_REGISTER_ONLY=0 when the capture range is an NVTX range",
        )
    if has_unfinished:
        return TraceError(
            f"{raw.label}: the range {step_range!r} was opened but never closed inside the trace",
            wanted="at least one complete step",
            todo="let the capture last for more steps",
        )
    ids, counts = np.unique(marks.name, return_counts=True)
    often = [raw.strings[i] for i in ids[np.argsort(-counts, kind="stable")][:_NAMES_SHOWN]]
    shown = ", ".join(repr(name if len(name) <= 60 else name[:60] + "…") for name in often)
    return TraceError(
        f"{raw.label}: no range is named {step_range!r}; the most frequent ones are {shown}",
        wanted=f"ranges named {step_range!r} around the training steps",
        todo="mark the steps (perfci.phases.step), or name the range that is one step",
    )


def no_whole_step(raw: RawTrace) -> TraceError:
    """All steps of the trace are cut by the borders of the capture."""
    return TraceError(
        f"{raw.label}: no step lies wholly inside the capture",
        wanted="at least one complete step",
        todo="let the capture last for more steps",
    )


def complete_steps(*, phases_seen: Bool, operation_count: Int64 | None, stopped_inside: Bool) -> Bool:
    """Which steps are whole. Only the first and the last can be cut, by the borders of the capture.

    Given are ``phases_seen`` (steps × phases), ``operation_count`` per step (None: no GPU was traced) and
    ``stopped_inside`` (the profiler was started or stopped inside the step). The first or last step is cut when the
    profiler stopped in it, when it lacks a phase that all steps between the first and the last have (with two steps:
    that the other has), or when it launched no GPU work although each of these did. A step alone is cut only when the
    profiler stopped in it.
    """
    count = len(phases_seen)
    whole = np.ones(count, dtype=np.bool_)
    for edge in sorted({0, count - 1}):
        others = np.array([*range(1, count - 1)] or [i for i in range(count) if i != edge], dtype=np.int64)
        if stopped_inside[edge]:
            whole[edge] = False
        elif len(others):
            lacks = (~phases_seen[edge] & phases_seen[others].all(axis=0)).any()
            idle = (
                operation_count is not None and operation_count[edge] == 0 and bool((operation_count[others] > 0).all())
            )
            whole[edge] = not (lacks or idle)
    return whole


def stopped_inside(raw: RawTrace, thread: TrainingThread) -> Bool:
    """Steps in which the profiler was started or stopped on the training thread, by its own overhead records."""
    wanted = [i for i, text in enumerate(raw.strings) if "cudaProfilerSt" in text]
    overheads = raw.overheads
    rows = np.flatnonzero((overheads.thread == thread.thread) & np.isin(overheads.name, wanted))
    hit = np.zeros(len(thread.start_ns), dtype=np.bool_)
    step = thread.cover.at(overheads.start_ns[rows])
    hit[step[step >= 0]] = True
    return hit


def name_of(raw: RawTrace, thread: int) -> str:
    """Name of a thread; empty where the profiler does not know it."""
    name = raw.threads.name[thread]
    return raw.strings[name] if name >= 0 else ""
