"""From the runs of two sides to a judged comparison of one workload: the judge, plus what diagnosis adds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings
from perfci.model.comparison import WorkloadComparison
from perfci.model.run import Note, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.evidence import findings_of, kernels_of
from perfci.stats.judge import judge_workload


def compare_runs(
    *,
    workload: str,
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    settings: JudgeSettings,
    noise_floors: Mapping[tuple[str, str], float],
    families: int,
    notes: Sequence[Note] = (),
) -> WorkloadComparison:
    """Judge one workload and say why.

    ``families`` is the number of gates of the whole comparison (family control); ``notes`` are facts about how the runs
    were chosen, shown with the result.
    """
    judged = judge_workload(
        baseline,
        candidate,
        settings,
        workload=workload,
        noise_floors=noise_floors,
        families=families,
    )
    baseline_kernels, baseline_steps = kernels_of(baseline)
    candidate_kernels, candidate_steps = kernels_of(candidate)
    changes = (
        diff_kernels(baseline_kernels, baseline_steps, candidate_kernels, candidate_steps)
        if baseline_steps and candidate_steps
        else ()
    )
    return replace(
        judged,
        findings=compare_findings(findings_of(baseline), findings_of(candidate)),
        kernel_changes=changes,
        notes=(*notes, *judged.notes),
    )
