"""Peak memory grew while the GPU does the same work, and there is a validation: it may keep activations."""

from collections.abc import Iterable
from statistics import median

from perfci.diagnosis.pair_view import PairView
from perfci.diagnosis.patterns.validation_autograd import VALIDATION_PHASES
from perfci.diagnosis.rule import percent, ratio, time, volume
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import RUN

NAME = "kept-activations"
DOCS = "docs/rules/kept-activations.md"

PEAK = "peak_allocated_bytes"
GROWTH_RATIO = 0.05
"""Peak memory of equal code differs by less than 0.001 % between launches (docs/evidence); 5 % more is no rounding of
the allocator and no small buffer."""
TIME_RATIO = 0.02
"""Kernel time that differs by more is other work: a wider layer takes more memory too."""

_ADVICE = (
    "Look whether validation still runs under `with torch.inference_mode():` (or `torch.no_grad()`): without it the "
    "same kernels run, and every activation is kept for a backward that never comes. The same is seen when outputs or "
    "losses are collected with their graph (`losses.append(loss)` instead of `loss.detach()`), with "
    "`retain_graph=True`, or when tensors live on in a list or a global."
)


def find(pair: PairView) -> Iterable[Finding]:
    """At most one finding, for the validation phase: peak memory grew by GROWTH_RATIO in every launch against every
    launch of the baseline, while each phase launches as many kernels and all of them take the same time.

    A possibility, not a proof: the trace of a validation that records a graph is that of one that does not.
    """
    validation = [phase for phase in pair.baseline.phases if phase.strip().lower() in VALIDATION_PHASES]
    before = [value for values in pair.baseline.values(RUN, PEAK) for value in values]
    after = [value for values in pair.candidate.values(RUN, PEAK) for value in values]
    if not validation or not before or not after or not 0 < (1 + GROWTH_RATIO) * max(before) <= min(after):
        return ()
    if any(len({*old.launches, *new.launches}) > 1 for old, new in map(pair.amounts, pair.phases)):
        return ()
    was_ns, now_ns = float(pair.baseline.kernel_time_ns), float(pair.candidate.kernel_time_ns)
    if abs(now_ns - was_ns) > TIME_RATIO * was_ns:
        return ()
    was, now = median(before), median(after)
    return (
        Finding(
            rule=NAME,
            phase=validation[0],
            title=f"peak memory grew by {percent((now - was) / was)} with equal kernels: {validation[0]} may keep "
            "activations (no torch.no_grad)",
            evidence=(
                volume("more memory at the peak", now - was),
                volume("peak memory", now),
                ratio("growth of the peak", (now - was) / was),
                time("kernel time per step", now_ns),
                time("kernel time per step, baseline", was_ns),
            ),
            confidence=Confidence.MEDIUM,
            advice=_ADVICE,
            new=True,
            docs=DOCS,
        ),
    )
