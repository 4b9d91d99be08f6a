"""The optimizer updates parameter by parameter, where the baseline updated many with one kernel."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfci.diagnosis.pair_view import Amount, PairView
from perfci.diagnosis.patterns.communication_every_microstep import OPTIMIZER_PHASES
from perfci.diagnosis.rule import count, ratio, time, times
from perfci.model.finding import Confidence, Finding

NAME = "unfused-optimizer"
DOCS = "docs/rules/unfused-optimizer.md"

GROWTH_RATIO = 1.5
"""Candidate kernels over baseline kernels of the phase: an optimizer that is taken apart launches several times as
many. Less is a change of another kind."""
LEFT_RATIO = 0.5
"""Share of the grouped launches that may be left: clipping and gradient scaling use such kernels too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How an optimizer updates many parameters at once: told by the names of its kernels."""

    subject: str
    what: str
    pattern: re.Pattern[str]

    def takes(self, name: str) -> bool:
        """True for a kernel of this way."""
        return self.pattern.search(name) is not None


_WAYS = (
    _Way(
        subject="fused",
        what="fused",
        pattern=re.compile(
            r"FusedOptimizerTensorList|Fused(Adam|Sgd|SGD|Adagrad)\w*Functor|multi_tensor_apply\w*<.*(Adam|SGD|LAMB)Functor"
        ),
    ),
    _Way(subject="foreach", what="grouped (foreach)", pattern=re.compile(r"multi_tensor_apply|^triton_for_")),
)
"""Strongest first. PyTorch's ATen (fused=True, foreach=True), Apex, and foreach kernels of Inductor."""

_ADVICE = (
    "Give the optimizer its fast path back: `torch.optim.AdamW(..., fused=True)` (or `foreach=True`, the default for "
    "parameters on a GPU). It is lost by `fused=False`, `foreach=False`, `differentiable=True`, by parameters of mixed "
    "devices or types, by sparse gradients, and by an optimizer of your own that loops over parameters."
)


def find(pair: PairView) -> Iterable[Finding]:
    """One finding per optimizer phase whose grouped kernels are gone, while the phase launches GROWTH_RATIO times as
    many kernels in every launch of the candidate as in any of the baseline."""
    return tuple(_findings(pair))


def _findings(pair: PairView) -> Iterator[Finding]:
    for phase in pair.phases:
        if phase.strip().lower() not in OPTIMIZER_PHASES:
            continue
        before, after = pair.amounts(phase)
        if min(after.launches) < GROWTH_RATIO * max(before.launches):
            continue
        for way in _WAYS:
            old, new = pair.amounts(phase, way.takes)
            if min(old.launches) > 0 and max(new.launches) <= LEFT_RATIO * min(old.launches):
                yield _finding(phase, way, (before, after), (old, new))
                break


def _finding(phase: str, way: _Way, kernels: tuple[Amount, Amount], grouped: tuple[Amount, Amount]) -> Finding:
    before, after = kernels
    extra_ns = float(after.time_mean_ns - before.time_mean_ns)
    was, now = float(before.launches_mean), float(after.launches_mean)
    return Finding(
        rule=NAME,
        phase=phase,
        subject=way.subject,
        title=f"the optimizer is no longer {way.what}: {times(was)} → {times(now)} kernels per step ({phase})",
        evidence=(
            count("kernels added per step", now - was),
            time("extra kernel time per step", extra_ns),
            count(f"{way.subject} kernels per step", float(grouped[1].launches_mean)),
            count(f"{way.subject} kernels per step, baseline", float(grouped[0].launches_mean)),
            time("mean kernel", float(after.time_mean_ns / after.launches_mean)),
            ratio("kernels, candidate over baseline", now / was),
        ),
        confidence=Confidence.HIGH,
        advice=_ADVICE,
        new=True,
        docs=DOCS,
    )
