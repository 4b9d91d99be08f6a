"""Gradient accumulation that reduces the gradients in every micro-step instead of once per optimizer step."""

import re
from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.intervals import Spans
from perfci.diagnosis.rule import EVERY_STEP_RATIO, count, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import Bool, Int64

NAME = "communication-every-microstep"
DOCS = "docs/rules/communication-every-microstep.md"

BACKWARD_PHASES = frozenset({"backward"})
OPTIMIZER_PHASES = frozenset({"optimizer", "optimizer_step"})
MIN_CYCLES = 2
"""Optimizer steps with accumulation that must be seen before it is called a habit."""
_REDUCTION = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
_ALL_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)

_ADVICE = (
    "Reduce once per optimizer step: run all micro-steps but the last under `with model.no_sync():` (DDP, FSDP; "
    "with FSDP2 `model.set_requires_gradient_sync(False)`). With sharded gradients this keeps the whole gradient in "
    "memory meanwhile."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding when nearly every `backward` of an accumulating loop launches a gradient reduction.

    Micro-steps are the `backward` ranges of a rank between two `optimizer` ranges; without marked `optimizer` ranges
    nothing can be said (a GAN has two backwards too, but an optimizer after each).
    """
    operations = view.timeline.operations
    backward, optimizer = view.phases_named(BACKWARD_PHASES), view.phases_named(OPTIMIZER_PHASES)
    reduces = operations.nccl & view.in_step & (operations.launch >= 0) & _matching(view, _REDUCTION)
    if not reduces.any():
        return ()
    all_reduces = _matching(view, _ALL_REDUCE)
    sure = False
    micro_steps = reducing = cycles = wasted_ns = 0
    for rank in view.ranks:
        passes, ends = view.marked(backward, rank), view.marked(optimizer, rank)
        if not len(passes.start_ns) or not len(ends.start_ns):
            continue
        cycle = np.searchsorted(ends.start_ns, passes.start_ns)
        mine = reduces & (operations.rank == rank)
        cost_ns = _reduction_ns(view, mine, passes)
        # Of the backward only: sharded training clips with an all-reduce of norms, after it.
        sure |= bool(_reduction_ns(view, mine & all_reduces, passes).any())
        numbers, size = np.unique(cycle, return_counts=True)
        accumulating = np.isin(cycle, numbers[size >= 2])
        last = np.append(cycle[1:] != cycle[:-1], True)
        cycles += int((size >= 2).sum())
        micro_steps += int(accumulating.sum())
        reducing += int((cost_ns[accumulating] > 0).sum())
        wasted_ns += int(cost_ns[accumulating & ~last].sum())
    if cycles < MIN_CYCLES or reducing < EVERY_STEP_RATIO * micro_steps:
        return ()
    steps = view.step_count
    return (
        Finding(
            rule=NAME,
            phase=view.timeline.phases[backward[0]],
            title=f"gradients are reduced in each of {micro_steps / cycles:.0f} micro-steps of gradient accumulation",
            evidence=(
                time("NCCL time of the needless reductions per step", wasted_ns / steps),
                count("micro-steps per optimizer step", micro_steps / cycles),
                ratio("micro-steps that reduce", reducing / micro_steps),
                count("optimizer steps seen", cycles),
            ),
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,  # sharded training may reduce-scatter on purpose
            advice=_ADVICE,
            docs=DOCS,
        ),
    )


def _matching(view: TraceView, pattern: re.Pattern[str]) -> Bool:
    """Which operations have a name that matches."""
    named = np.array([bool(pattern.search(name)) for name in view.timeline.names], dtype=np.bool_)
    return named[view.timeline.operations.name]


def _reduction_ns(view: TraceView, which: Bool, passes: Spans) -> Int64:
    """Time of the chosen operations by the backward pass in which they were launched."""
    operations = view.timeline.operations
    launched_ns = view.timeline.api_calls.start_ns[operations.launch[which]]
    into = np.searchsorted(passes.start_ns, launched_ns, side="right") - 1
    inside = (into >= 0) & (launched_ns < np.append(passes.end_ns, 0)[into])
    total = np.zeros(len(passes.start_ns), dtype=np.int64)
    np.add.at(total, into[inside], (operations.end_ns - operations.start_ns)[which][inside])
    return total
