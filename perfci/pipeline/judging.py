"""From the runs of two sides to judged workloads: the judge, and what diagnosis adds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.config.load import Workload
from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings
from perfci.model.comparison import WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.run import Note, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.evidence import kernels_of
from perfci.stats.judge import count_noisy_gates, judge_workload
from perfci.stats.plan import looks_until

FloorsOf = Callable[[str, Environment | None], Mapping[tuple[str, str], float]]
"""Noise floors by (phase, metric) of a workload in an environment (None: not known)."""


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
) -> tuple[WorkloadComparison, ...]:
    """Judge all workloads of a comparison as one family, and say why.

    Runs come by workload name; a workload that has runs on one side only, or on none, is NOT_MEASURED. ``floors_of``
    gives the noise floors of a workload; ``notes`` are facts about how the runs were chosen, shown with the result.
    """
    names = list(dict.fromkeys((*baseline, *candidate)))
    floors = {name: floors_of(name, _environment_of(candidate.get(name, ()))) for name in names}

    sides = {name: (baseline.get(name, ()), candidate.get(name, ())) for name in names}
    families = sum(count_noisy_gates(left, right, settings, workload=name) for name, (left, right) in sides.items())
    results = []
    for name, (left, right) in sides.items():
        pairs = _common_pairs(left, right)
        expected = golden.get(name, GoldenLosses())
        judged = judge_workload(
            left,
            right,
            settings,
            workload=name,
            looks=looks_until(pairs, settings) if pairs else None,
            noise_floors=floors[name],
            families=families or None,
            golden_losses=expected.losses,
            loss_tolerance_ratio=expected.tolerance_ratio,
        )
        results.append(_explained(judged, left, right, notes.get(name, ())))
    return tuple(results)


def _environment_of(runs: Sequence[Run]) -> Environment | None:
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
    return replace(
        judged,
        findings=compare_findings(
            [finding for run in left for finding in run.findings],
            [finding for run in right for finding in run.findings],
            candidate_launches=len(right),
        ),
        kernel_changes=changes,
        notes=(*notes, *judged.notes),
    )
