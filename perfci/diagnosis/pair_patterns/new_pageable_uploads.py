"""Copies from pageable memory that are new, also where they are too small for the rule over one trace."""

from collections.abc import Iterable, Iterator

from perfci.diagnosis.pair_view import PairView
from perfci.diagnosis.patterns import pageable_copies
from perfci.diagnosis.patterns.pageable_copies import STEPS_RATIO
from perfci.diagnosis.rule import count, time, times, volume
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import BACKGROUND, RUN, STEP
from perfci.model.timeline import OperationKind

NAME = pageable_copies.NAME
DOCS = pageable_copies.DOCS


def find(pair: PairView) -> Iterable[Finding]:
    """One finding per phase with more uploads from pageable memory: STEPS_RATIO per step more in every launch of the
    candidate than in any of the baseline, and in STEPS_RATIO of its steps. Most copies first.

    Fetches are left out: a small one waits, and is ``accidental-sync``.
    """
    return sorted(_findings(pair), key=lambda finding: -finding.evidence[0].value)


def _findings(pair: PairView) -> Iterator[Finding]:
    if not pair.baseline.means(STEP, "h2d_pageable_count"):
        return  # not measured: nothing is known to be new
    for phase in pair.candidate.measured_phases("h2d_pageable_count"):
        if phase in (STEP, RUN, BACKGROUND):
            continue
        after = pair.candidate.means(phase, "h2d_pageable_count")
        before = pair.baseline.means(phase, "h2d_pageable_count") or (0.0,)
        steps = [
            value > max(before) for values in pair.candidate.values(phase, "h2d_pageable_count") for value in values
        ]
        if min(after) - max(before) < STEPS_RATIO or sum(steps) < STEPS_RATIO * len(steps):
            continue
        more = sum(after) / len(after) - sum(before) / len(before)
        yield Finding(
            rule=NAME,
            phase=phase,
            subject=pageable_copies.DIRECTIONS[OperationKind.H2D],
            title=f"host to device copies of pageable memory are new: {times(more)}× per step ({phase})",
            evidence=(
                count("new copies per step", more),
                volume("moved more per step", pair.grown(phase, "h2d_pageable_bytes")),
                time("more copy time on the GPU per step", pair.grown(phase, "h2d_pageable_ns")),
            ),
            confidence=Confidence.MEDIUM,  # that they are new is sure; that so small copies matter is not
            advice=pageable_copies.ADVICE[OperationKind.H2D],
            new=True,
            docs=DOCS,
        )
