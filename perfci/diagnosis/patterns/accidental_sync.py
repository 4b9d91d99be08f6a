"""The CPU waits for the GPU in every step, usually for a number that only the log needs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from perfci.diagnosis.intervals import NEVER, union
from perfci.diagnosis.rule import EVERY_STEP_RATIO, MIN_STEPS, api_name, count, ratio, time, times
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import NO_STEP, Bool, Int64, OperationKind, SyncKind

NAME = "accidental-sync"
DOCS = "docs/rules/accidental-sync.md"

COSTLY_RATIO = 0.01
"""From 1 % of the step (blocked plus starved) on the wait is sure to matter; below it only takes away the run-ahead."""
_TRIVIAL = ("IsCapturing", "GetLastError", "PeekAtLastError", "GetDevice", "ThreadExchangeStreamCaptureMode")
"""Calls that PyTorch makes between a copy and the wait for it; they do not tell what is waited for."""


class Cause(Enum):
    """What the wait is for, told by the call before it on the same thread."""

    FETCH = "a device to host copy"
    UPLOAD = "a host to device copy"
    OTHER = "no copy"


_ADVICE = {
    Cause.FETCH: (
        "Something reads a GPU value on the CPU in every step: `.item()`, `.cpu()`, `.tolist()`, `float(loss)`, "
        "`print(loss)` or an `if` on a tensor. Keep the value on the GPU (`total += loss.detach()`), read it every "
        "N steps, or copy it with `.to('cpu', non_blocking=True)` into pinned memory and read it one step later. "
        "`torch.cuda.set_sync_debug_mode('warn')` prints the line."
    ),
    Cause.UPLOAD: (
        "A copy to the GPU waits until it is done. Use `DataLoader(pin_memory=True)` and `batch.to(device, "
        "non_blocking=True)`, and build small tensors on the device (`torch.arange(n, device=device)`)."
    ),
    Cause.OTHER: (
        "Something waits for the GPU in every step without a copy: `torch.cuda.synchronize()`, "
        "`event.synchronize()`, `stream.synchronize()`, `torch.cuda.empty_cache()`, or an operator with a "
        "data-dependent shape (`nonzero`, boolean indexing, `unique`). Take it out of the loop or time with CUDA "
        "events that are read later. `torch.cuda.set_sync_debug_mode('warn')` prints the line of those that PyTorch "
        "knows."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """The waiting calls of the training side: their rows in ``api_calls`` and what each waits for."""

    row: Int64
    cause: list[Cause]


def find(view: TraceView) -> Iterable[Finding]:
    """One finding per (API, phase) that waits in at least EVERY_STEP_RATIO of the steps of some rank, costliest first.

    Waits of helper threads, waits outside measured steps and waits that happen in some steps only are not findings.
    Uploads from pageable memory are left to ``pageable-copies``.
    """
    found = list(_groups(view))
    return sorted(found, key=lambda finding: -finding.evidence[0].value)


def _groups(view: TraceView) -> Iterator[Finding]:
    calls = view.timeline.api_calls
    waits = _waits(view)
    names = np.array([api_name(view.timeline.names[name]) for name in calls.name[waits.row]], dtype=object)
    phases = calls.phase[waits.row]
    for name, phase in sorted(set(zip(names.tolist(), phases.tolist(), strict=True))):
        mine = (names == name) & (phases == phase)
        rows = waits.row[mine]
        ranks = _ranks_that_always_wait(view, rows)
        rows = rows[np.isin(calls.rank[rows], ranks)]
        if len(rows):
            causes = [cause for cause, chosen in zip(waits.cause, mine, strict=True) if chosen]
            cause = max(causes, key=causes.count)
            yield _finding(view, name, view.timeline.phases[phase], rows=rows, ranks=ranks, cause=cause)


def _waits(view: TraceView) -> _Waits:
    """Waiting calls in measured steps, each wait once: a copy call followed by the wait for it is not a second one."""
    calls, operations = view.timeline.api_calls, view.timeline.operations
    copied = np.full(len(calls.start_ns), -1, dtype=np.int64)
    linked = view.is_copy & (operations.launch >= 0)
    copied[operations.launch[linked]] = operations.kind[linked]
    pageable_upload = np.zeros(len(copied), dtype=np.bool_)
    upload = linked & operations.pageable & (operations.kind == OperationKind.H2D)
    pageable_upload[operations.launch[upload]] = True

    before, after = _neighbours(view)
    waits = (calls.sync != SyncKind.NONE) & (calls.step != NO_STEP) & (calls.phase != view.background)
    by_copy = calls.sync == SyncKind.COPY
    explicit = np.append((calls.sync != SyncKind.NONE) & ~by_copy, False)  # [-1]: no call follows
    waits &= ~by_copy | ((copied >= 0) & ~pageable_upload & ~explicit[after])

    row = np.flatnonzero(waits).astype(np.int64)
    told_by = np.where(by_copy[row], row, before[row])
    kinds = np.append(copied, -1)[told_by]
    causes = {int(OperationKind.D2H): Cause.FETCH, int(OperationKind.H2D): Cause.UPLOAD}
    return _Waits(row=row, cause=[causes.get(int(kind), Cause.OTHER) for kind in kinds])


def _neighbours(view: TraceView) -> tuple[Int64, Int64]:
    """For each call the previous and next one of its thread, trivial ones skipped; −1 at the ends and for these."""
    calls = view.timeline.api_calls
    trivial_name = np.array([any(word in name for word in _TRIVIAL) for name in view.timeline.names], dtype=np.bool_)
    rows = np.flatnonzero(~trivial_name[calls.name]) if len(calls.name) else np.zeros(0, dtype=np.int64)
    ordered = rows[np.argsort(calls.thread[rows], kind="stable")]  # calls are sorted by start
    same = calls.thread[ordered[1:]] == calls.thread[ordered[:-1]]
    before = np.full(len(calls.start_ns), -1, dtype=np.int64)
    after = before.copy()
    before[ordered[1:][same]] = ordered[:-1][same]
    after[ordered[:-1][same]] = ordered[1:][same]
    return before, after


def _ranks_that_always_wait(view: TraceView, rows: Int64) -> list[int]:
    """Ranks with the wait in (nearly) every step: often only rank 0 logs."""
    waited = view.per_step(view.timeline.api_calls.step[rows]) > 0
    always = []
    for rank in view.ranks:
        mine: Bool = view.steps.rank == rank
        if mine.sum() >= MIN_STEPS and waited[mine].mean() >= EVERY_STEP_RATIO:
            always.append(rank)
    return always


def _finding(view: TraceView, name: str, phase: str, *, rows: Int64, ranks: list[int], cause: Cause) -> Finding:
    calls = view.timeline.api_calls
    steps = int(np.isin(view.steps.rank, ranks).sum())
    wall_ns = int(view.wall_ns[np.isin(view.steps.rank, ranks)].sum())
    blocked_ns = int((calls.end_ns[rows] - calls.start_ns[rows]).sum())
    starved_ns = sum(_starved_ns(view, calls.end_ns[rows[calls.rank[rows] == rank]], rank) for rank in ranks)
    share = (blocked_ns + starved_ns) / wall_ns if wall_ns else 0.0
    return Finding(
        rule=NAME,
        phase=phase,
        subject=name,
        title=f"{name} waits for the GPU {times(len(rows) / steps)}× in every step ({phase})",
        evidence=(
            time("CPU blocked and GPU starved after it, per step", (blocked_ns + starved_ns) / steps),
            count("waits per step", len(rows) / steps),
            time("CPU blocked per step", blocked_ns / steps),
            time("GPU idle after the wait per step", starved_ns / steps),
            ratio("share of the step", share),
        ),
        confidence=Confidence.HIGH if share >= COSTLY_RATIO else Confidence.MEDIUM,
        advice=_ADVICE[cause],
        docs=DOCS,
    )


def _starved_ns(view: TraceView, wait_end_ns: Int64, rank: int) -> int:
    """GPU idle time from the end of each wait to the next GPU work, each idle moment once."""
    busy = view.busy(rank)
    next_ns = busy.next_start_ns(wait_end_ns)
    idle = ~busy.covers(wait_end_ns) & (next_ns != NEVER)
    return union(wait_end_ns[idle], next_ns[idle]).total_ns
