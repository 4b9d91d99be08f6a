"""Memory is taken from the driver and given back in the steps: PyTorch's caching allocator is emptied or bypassed."""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from perfci.diagnosis.rule import EVERY_STEP_RATIO, MIN_STEPS, api_name, count, ratio, time, times
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import NO_STEP, Bool, Int64

NAME = "allocator-churn"
DOCS = "docs/rules/allocator-churn.md"

STEPS_RATIO = 0.5
"""A warm allocator asks the driver for nothing; growth in some steps is warm-up, in half of them it is a habit."""
COSTLY_RATIO = 0.01
"""From 1 % of the step in these calls on it is sure to matter; below it may be one small buffer."""

_PINNED = re.compile(
    r"cuda(HostAlloc|MallocHost|FreeHost|HostRegister|HostUnregister)"
    r"|cuMem(HostAlloc|AllocHost|FreeHost|HostRegister|HostUnregister)\w*"
)
_DEVICE = re.compile(
    r"cuda(Malloc(Pitch|3D|Managed)?|Free)|cuMem(Alloc|Free)(Pitch|Managed)?(_v2)?|cuMem(Create|Release|Map|Unmap)"
)
"""Not the stream-ordered calls (``cudaMallocAsync``): they take from a pool and are meant to come in every step."""
_GIVES_BACK = re.compile(r"Free|Release|Unmap|Unregister")

_ADVICE = {
    "device memory": (
        "Take `torch.cuda.empty_cache()` out of the loop: it gives cached memory back to the driver, each call waits "
        "for the GPU, and the next allocation fetches it again. Without such a call the allocator runs out of cache: "
        "shapes that change from step to step or memory near its limit (`PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True`, padding to a few shapes, a smaller batch), or `PYTORCH_NO_CUDA_MEMORY_CACHING=1`."
    ),
    "pinned memory": (
        "Pin memory once, outside the loop, and use the buffer again: `pin_memory()` and `torch.empty(..., "
        "pin_memory=True)` of ever new sizes ask the driver each time, which takes far longer than the copy."
    ),
}


def find(view: TraceView) -> Iterable[Finding]:
    """At most two findings, for device memory and for pinned memory, costliest first: calls to the driver in at least
    STEPS_RATIO of the steps of some rank. Calls of helper threads and outside measured steps do not count.

    The phase is the one that gives back most, by time in these calls: whoever takes must wait for what it frees.
    Without any giving back it is the one that takes most.
    """
    return sorted(_findings(view), key=lambda finding: -finding.evidence[0].value)


def _findings(view: TraceView) -> Iterator[Finding]:
    calls = view.timeline.api_calls
    names = [api_name(name) for name in view.timeline.names]
    for subject, pattern in (("device memory", _DEVICE), ("pinned memory", _PINNED)):
        chosen: Bool = np.array([bool(pattern.fullmatch(name)) for name in names], dtype=np.bool_)
        if not chosen.any():
            continue
        wanted = chosen[calls.name] & (calls.step != NO_STEP) & (calls.phase != view.background)
        rows = np.flatnonzero(wanted).astype(np.int64)
        habit = _habit(view, rows)
        if habit >= STEPS_RATIO:
            yield _finding(view, names, rows, subject=subject, habit=habit)


def _habit(view: TraceView, rows: Int64) -> float:
    """Share of the steps with such a call, of the rank that has most."""
    seen = view.per_step(view.timeline.api_calls.step[rows]) > 0
    shares = [
        float(seen[mine].mean())
        for mine in (view.steps.rank == rank for rank in view.ranks)
        if int(mine.sum()) >= MIN_STEPS
    ]
    return max(shares, default=0.0)


def _finding(view: TraceView, names: list[str], rows: Int64, *, subject: str, habit: float) -> Finding:
    calls, steps = view.timeline.api_calls, view.step_count
    spent_ns = (calls.end_ns - calls.start_ns)[rows]
    share = view.share(int(spent_ns.sum()))
    gives_back: Bool = np.array([bool(_GIVES_BACK.search(name)) for name in names], dtype=np.bool_)[calls.name[rows]]
    blamed = gives_back if gives_back.any() else ~gives_back
    phase_ns = np.bincount(calls.phase[rows[blamed]], weights=spent_ns[blamed] + 1)  # + 1: calls of no length count
    phase = view.timeline.phases[int(phase_ns.argmax())]
    found, counts = np.unique([names[name] for name in calls.name[rows]], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    per_step = [(str(found[i]), float(counts[i]) / steps) for i in order]
    told = " and ".join(f"{times(number)} {name}" for name, number in per_step[:2])
    every = "every step" if habit >= EVERY_STEP_RATIO else "many steps"
    return Finding(
        rule=NAME,
        phase=phase,
        subject=subject,
        title=f"{subject} is asked from the driver in {every}: {told} per step ({phase})",
        evidence=(
            time("CPU time in these calls per step", int(spent_ns.sum()) / steps),
            ratio("share of the step", share),
            *(count(f"{name} per step", number) for name, number in per_step),
            ratio("steps with such calls", habit),
        ),
        confidence=Confidence.HIGH if habit >= EVERY_STEP_RATIO and share >= COSTLY_RATIO else Confidence.MEDIUM,
        advice=_ADVICE[subject],
        docs=DOCS,
    )
