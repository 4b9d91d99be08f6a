"""What is new or worse among the findings of a candidate, against those of a baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median_low

from perfci.model.finding import Finding, Quantity

WORSE_RATIO = 1.25
"""Costs of one pattern in two launches of equal code differ: launch-bound processes by up to 30 % in wall time, by far
less in GPU time. A quarter more is worth saying; whether it is a regression is for the statistics of the metrics."""

_Key = tuple[str, str, str]


def compare_findings(
    baseline: Sequence[Finding], candidate: Sequence[Finding], *, candidate_launches: int = 1
) -> tuple[Finding, ...]:
    """The candidate's findings: new ones first, then worsened ones, then those of both sides, each in the given order.

    A pattern is the same when rule, phase and subject are equal. ``new`` is set when no finding of the baseline is
    that pattern. ``worsened`` is set when the cost (first evidence) is more than WORSE_RATIO times the baseline's, in
    the same quantity; the baseline's cost is then added to the evidence.

    Each side may hold the findings of several launches: one finding per pattern is returned, the one of median cost,
    against the baseline's median cost. A pattern must show in more than half of the ``candidate_launches``, else it
    is left out: an accident of one launch is no property of the code. One launch of the baseline with it is enough to
    make it not new.

    An empty baseline makes everything new: pass only baselines that were diagnosed. A rule with a threshold can see
    a pattern just above it on one side and not just below it on the other: ``new`` says that the pattern was not
    found before, not that it costs so much more.
    """
    before = _by_pattern(baseline)
    after = {key: found for key, found in _by_pattern(candidate).items() if 2 * len(found) > candidate_launches}
    judged = [_judge(before.get(key), _typical(found)) for key, found in after.items()]
    return tuple(sorted(judged, key=lambda finding: (not finding.new, not finding.worsened)))


def gone_findings(
    baseline: Sequence[Finding], candidate: Sequence[Finding], *, baseline_launches: int = 1
) -> tuple[Finding, ...]:
    """The patterns in more than half of the ``baseline_launches`` and in none of the candidate's: one finding each,
    of median cost."""
    after = _by_pattern(candidate)
    before = {key: found for key, found in _by_pattern(baseline).items() if 2 * len(found) > baseline_launches}
    return tuple(_typical(found) for key, found in before.items() if key not in after)


def _by_pattern(findings: Iterable[Finding]) -> dict[_Key, list[Finding]]:
    groups: dict[_Key, list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.phase, finding.subject), []).append(finding)
    return groups


def _typical(findings: Sequence[Finding]) -> Finding:
    cost = median_low([_cost(finding) for finding in findings])
    return next(finding for finding in findings if _cost(finding) == cost)


def _cost(finding: Finding) -> float:
    return finding.evidence[0].value if finding.evidence else 0.0


def _judge(before: Sequence[Finding] | None, after: Finding) -> Finding:
    if before is None:
        return replace(after, new=True, worsened=False)
    old = _typical(before)
    if not old.evidence or not after.evidence:
        return replace(after, new=False, worsened=False)
    was, now = old.evidence[0], after.evidence[0]
    same = (was.name, was.unit) == (now.name, now.unit)
    if not same or now.value <= WORSE_RATIO * was.value:
        return replace(after, new=False, worsened=False)
    earlier = Quantity(name=f"{was.name}, baseline", value=was.value, unit=was.unit)
    return replace(after, new=False, worsened=True, evidence=(now, earlier, *after.evidence[1:]))
