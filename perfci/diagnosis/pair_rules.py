"""Finds patterns that only a comparison shows: what a trace alone would call normal, and is new in the candidate."""

from collections.abc import Iterable, Sequence
from types import ModuleType

from perfci.diagnosis.pair_patterns import (
    float32_matmul,
    kept_activations,
    new_pageable_uploads,
    periodic_waits,
    slower_kernels,
    unfused_optimizer,
)
from perfci.diagnosis.pair_view import Measured, PairView
from perfci.model.finding import Confidence, Finding

PAIR_RULES: tuple[ModuleType, ...] = (
    float32_matmul,
    unfused_optimizer,
    periodic_waits,
    new_pageable_uploads,
    kept_activations,
    slower_kernels,
)
"""Modules with NAME, DOCS and ``find(pair: PairView) -> Iterable[Finding]``. Built in, not plug-ins: they read what
runs store, which is no stable interface yet (docs/decisions/0106-rules-over-a-pair.md)."""

SYMPTOMS = frozenset({"many-small-kernels", "outlier-step", "periodic-stalls", "slower-kernels"})
"""Rules that say how the step is slow. Beside a finding that says what makes it so, they are the consequence."""


def find_between(baseline: Sequence[Measured], candidate: Sequence[Measured]) -> tuple[Finding, ...]:
    """What the pair rules see, all of it new in the candidate, surest first, within one confidence in the order of
    PAIR_RULES. Nothing when a side has no launch with a measured step."""
    pair = PairView(baseline, candidate)
    if not pair.baseline.launches or not pair.candidate.launches:
        return ()
    found = [finding for rule in PAIR_RULES for finding in rule.find(pair)]
    return tuple(sorted(found, key=lambda finding: list(Confidence).index(finding.confidence)))


def with_pair_findings(findings: Iterable[Finding], between: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of ``pair.compare_findings`` and of ``find_between``: new ones first, then worsened ones, then those
    of both sides. Among new and among worsened ones the surest are first, and causes before SYMPTOMS: a headline names
    the first.

    A pattern (rule, phase, subject) that the traces alone show to be new or worse is told once, as they tell it.
    """
    known = tuple(findings)
    patterns = {(finding.rule, finding.phase, finding.subject) for finding in known if finding.new or finding.worsened}
    added = [finding for finding in between if (finding.rule, finding.phase, finding.subject) not in patterns]
    return tuple(sorted((*known, *added), key=_place))


def _place(finding: Finding) -> tuple[bool, bool, int, bool]:
    telling = finding.new or finding.worsened
    sure = list(Confidence).index(finding.confidence) if telling else 0
    return not finding.new, not finding.worsened, sure, telling and finding.rule in SYMPTOMS
