"""From the runs of two sides to judged workloads: the judge, and what diagnosis adds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.config.load import Workload
from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings
from perfci.diagnosis.pair_rules import find_between, with_pair_findings
from perfci.model.baseline import PinnedBaseline
from perfci.model.comparison import Reason, WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.metrics import Kind
from perfci.model.run import Note, Run
from perfci.model.settings import JudgeSettings
from perfci.model.verdict import Verdict
from perfci.pipeline.evidence import kernels_of
from perfci.stats.collect import statistics_of
from perfci.stats.judge import count_noisy_gates, judge_workload
from perfci.stats.pinned import count_pinned_gates, join_cumulative, judge_pinned
from perfci.stats.plan import looks_until
from perfci.stats.sessions import share_of, share_text

FloorsOf = Callable[[str, Sequence[Run]], Mapping[tuple[str, str], float]]
"""Noise floors by (phase, metric) of a workload, known before these runs of both sides were made."""
PinnedOf = Callable[[str, Sequence[Run]], Sequence[PinnedBaseline]]
"""Accepted levels of a workload that apply to these candidate runs: none, a reviewed file, a reference."""


@dataclass(frozen=True, slots=True)
class GoldenLosses:
    """Losses that every launch of a workload must reproduce (none: not checked)."""

    losses: tuple[float, ...] = ()
    tolerance_ratio: float = 0.05


def with_gates(settings: JudgeSettings, workloads: Sequence[Workload]) -> JudgeSettings:
    """The general gates, and those of the workloads after them."""
    return replace(settings, gates=(*settings.gates, *(gate for workload in workloads for gate in workload.gates)))


def golden_losses(workloads: Sequence[Workload]) -> dict[str, GoldenLosses]:
    """The losses that each workload must reproduce."""
    return {w.spec.name: GoldenLosses(w.spec.golden_losses, w.spec.loss_tolerance_ratio) for w in workloads}


def judge_all(
    baseline: Mapping[str, Sequence[Run]],
    candidate: Mapping[str, Sequence[Run]],
    settings: JudgeSettings,
    *,
    floors_of: FloorsOf,
    golden: Mapping[str, GoldenLosses],
    notes: Mapping[str, Sequence[Note]],
    pinned: PinnedOf,
    too_far: Collection[str] = (),
) -> tuple[WorkloadComparison, ...]:
    """Judge all workloads of a comparison as one family, and say why.

    Runs come by workload name; a workload that has runs on one side only, or on none, is NOT_MEASURED. ``floors_of``
    gives the noise floors of a workload; ``notes`` are facts about how the runs were chosen, shown with the result.
    ``pinned`` gives the accepted levels that a workload is judged against too; where there are any, each gate is tested
    more than once, and all these tests share the error rate. ``too_far`` names workloads whose baseline stands in from
    too far away: nothing is decided by it, good or bad; what accepted levels tell stays decided.
    """
    names = list(dict.fromkeys((*baseline, *candidate)))
    sides = {name: (baseline.get(name, ()), candidate.get(name, ())) for name in names}
    floors = {name: floors_of(name, (*left, *right)) for name, (left, right) in sides.items()}
    levels = {name: pinned(name, right) for name, (_, right) in sides.items()}
    families = count_gates(sides, levels, settings)
    results = []
    for name, (left, right) in sides.items():
        planned = as_planned(settings, (*left, *right))
        pairs = _common_pairs(left, right)
        looks = looks_until(pairs, planned) if pairs else None
        expected = golden.get(name, GoldenLosses())
        judged = judge_workload(
            left,
            right,
            planned,
            workload=name,
            looks=looks,
            noise_floors=floors[name],
            families=families or None,
            statistics_of=statistics_of(planned, (*left, *right)),
            golden_losses=expected.losses,
            loss_tolerance_ratio=expected.tolerance_ratio,
        )
        # Plans and sessions concern noisy gates; what is counted exactly is the same under all of them.
        noisy = any(row.gated and row.kind is Kind.NOISY for row in judged.rows)
        told = _ledger_notes((*left, *right), settings, pairs) if noisy else ()
        explained = _explained(judged, left, right, (*notes.get(name, ()), *told))
        if name in too_far:
            explained = _held_back(explained)
        for level in levels[name]:
            # Each look at the pair was a look at the accepted level too.
            against = judge_pinned(
                level,
                right,
                planned,
                families=families or None,
                looks=looks,
                noise_floors=floors[name],
                golden_losses=expected.losses,
                loss_tolerance_ratio=expected.tolerance_ratio,
            )
            explained = join_cumulative(explained, against)
        results.append(explained)
    return tuple(results)


def count_gates(
    sides: Mapping[str, tuple[Sequence[Run], Sequence[Run]]],
    levels: Mapping[str, Sequence[PinnedBaseline]],
    settings: JudgeSettings,
) -> int:
    """How many tests share the error rate: the noisy gates between the sides of each workload, and those against its
    accepted levels. A side without runs is counted as if it held what the candidate does."""
    return sum(
        count_noisy_gates(left or right, right, settings, workload=name)
        + sum(count_pinned_gates(level, right, settings) for level in levels.get(name, ()))
        for name, (left, right) in sides.items()
    )


def as_planned(settings: JudgeSettings, runs: Sequence[Run]) -> JudgeSettings:
    """The settings with the effort that was planned when the runs were made, and the error rate of their session.

    The error that each look may spend depends on both: judged by others, the same runs would give another verdict.
    Where the runs do not tell the same, the most careful of all counts: earliest first look, longest plan, last
    session; today's effort stands for runs that tell none.
    """
    today = (settings.min_launches, settings.max_launches)
    plans = [run.launch.plan or today for run in runs] or [today]
    return replace(
        settings,
        min_launches=min(fewest for fewest, _ in plans),
        max_launches=max(most for _, most in plans),
        error_rate=settings.error_rate * share_of(last_session(runs)),
    )


def last_session(runs: Sequence[Run]) -> int | None:
    """The number of the newest session among these runs; None when none of them tells."""
    return max((run.launch.session for run in runs if run.launch.session is not None), default=None)


def _ledger_notes(runs: Sequence[Run], settings: JudgeSettings, pairs: int) -> tuple[Note, ...]:
    """What a reader must know of the session: that it is a repetition, or that its runs tell plans by which their
    numbers would differ."""
    notes = []
    session = last_session(runs)
    if session is not None and session > 1:
        text = (
            f"session {session} of this pair of revisions: judged at {share_text(session)}, "
            "because looking again until the answer pleases is how false alarms are made"
        )
        notes.append(Note(code="repeated-session", text=text))
    each = (as_planned(settings, [run]) for run in runs)
    if len({(own.error_rate, *((own.max_launches, looks_until(pairs, own)) if pairs else ())) for own in each}) > 1:
        text = "the runs were made under different plans; they are judged by the most careful of them"
        notes.append(Note(code="mixed-plans", text=text))
    return tuple(notes)


def _held_back(judged: WorkloadComparison) -> WorkloadComparison:
    """What was seen stays as evidence."""
    decided = {Verdict.PASS, Verdict.REGRESSION, Verdict.IMPROVEMENT}
    rows = tuple(
        replace(row, verdict=Verdict.INCONCLUSIVE, reason=Reason.STAND_IN_TOO_FAR) if row.verdict in decided else row
        for row in judged.rows
    )
    return replace(judged, rows=rows)


def environment_of(runs: Sequence[Run]) -> Environment | None:
    return runs[-1].environment if runs else None


def _common_pairs(baseline: Sequence[Run], candidate: Sequence[Run]) -> int:
    """Number of interleaved pairs that both sides share."""
    places = [
        {(run.launch.schedule, run.launch.pair) for run in runs if run.launch.schedule and not run.spoiled}
        for runs in (baseline, candidate)
    ]
    return len(places[0] & places[1])


def _explained(
    judged: WorkloadComparison, baseline: Sequence[Run], candidate: Sequence[Run], notes: Sequence[Note]
) -> WorkloadComparison:
    left, right = ([run for run in runs if not run.spoiled] for runs in (baseline, candidate))
    baseline_kernels, baseline_steps = kernels_of(left)
    candidate_kernels, candidate_steps = kernels_of(right)
    changes = (
        diff_kernels(baseline_kernels, baseline_steps, candidate_kernels, candidate_steps)
        if baseline_steps and candidate_steps
        else ()
    )
    findings = compare_findings(
        [finding for run in left for finding in run.findings],
        [finding for run in right for finding in run.findings],
        candidate_launches=len(right),
    )
    return replace(
        judged,
        findings=with_pair_findings(findings, find_between(left, right)),
        kernel_changes=changes,
        notes=(*notes, *judged.notes),
    )
