"""A revision against the reviewed baseline files, without a baseline run beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfci.config.baselines import read_baselines
from perfci.config.load import Workload
from perfci.diagnosis.pair import compare_findings
from perfci.model.baseline import ACCEPTED_ALONE, PinnedBaseline
from perfci.model.comparison import Comparison, WorkloadComparison
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.floors import Floors
from perfci.pipeline.judging import GoldenLosses, environment_of, golden_losses
from perfci.pipeline.measure import launch_revision
from perfci.pipeline.progress import Progress
from perfci.pipeline.sides import named_only, unmeasured, with_failure
from perfci.pipeline.workspace import Workspace
from perfci.stats.pinned import count_pinned_gates, judge_pinned
from perfci.stats.sessions import share_of, share_text
from perfci.store.store import Store

PINNED_LABEL = "@baseline"
"""The left side of ``compare @baseline..REV``: the reviewed files instead of a revision."""


def names_against_files(
    workspace: Workspace, store: Store, workloads: Sequence[Workload], patterns: Sequence[str]
) -> tuple[str, ...]:
    """The workloads to judge: the configured ones, and those that patterns name among the files and stored runs. With
    neither, all that the files speak about. UsageError for a pattern that names none."""
    about = {pinned.workload for _, pinned in read_baselines(workspace.project.baselines)}
    names = [workload.spec.name for workload in workloads]
    known = sorted(about | set(store.workloads()))
    names += [name for name in named_only(workspace.project, patterns, known) if name not in names]
    return tuple(names or sorted(about))


def launch_missing(
    workspace: Workspace,
    store: Store,
    workloads: Sequence[Workload],
    revision: Revision,
    *,
    settings: JudgeSettings,
    remeasure: bool,
    lock_clocks: bool,
    progress: Progress,
) -> dict[str, Note]:
    """Launch those workloads of a revision that have too few usable runs of today's definition (all with
    ``remeasure``), ``min_launches`` times each. The runs are stored; returned is why a workload could not be
    measured."""
    missing = [w for w in workloads if remeasure or _usable(store, w, revision) < settings.min_launches]
    if not missing:
        progress.line(f"{revision.label} was measured before; nothing to launch (--remeasure launches again)")
        return {}
    launched = launch_revision(
        workspace,
        store,
        missing,
        revision,
        launches=settings.min_launches,
        lock_clocks=lock_clocks,
        progress=progress,
    )
    return {name: Note(code="launch-failed", text=error.seen) for name, error in launched.failures.items()}


def _usable(store: Store, workload: Workload, revision: Revision) -> int:
    runs = store.runs(workload.spec.name, revision.identity)
    wanted = workload.spec.definition_hash
    return sum(not run.spoiled and run.environment.get("workload_hash") == wanted for run in runs)


def compare_with_files(
    workspace: Workspace,
    candidate: Revision,
    runs: Mapping[str, Sequence[Run]],
    settings: JudgeSettings,
    *,
    workloads: Sequence[Workload],
    failures: Mapping[str, Note],
    floors: Floors,
) -> Comparison:
    """A revision against the reviewed files alone: all workloads of ``runs`` as one family.

    Of several environments the newest for which there is a file is judged; without one the workload is NOT_COMPARABLE,
    and NOT_MEASURED where no file speaks about it, nothing was run, or its launch failed (``failures``).
    """
    files: dict[str, list[PinnedBaseline]] = {}
    for _, one in read_baselines(workspace.project.baselines):
        files.setdefault(one.workload, []).append(one)
    matched = {name: _matched(files.get(name, ()), mine) for name, mine in runs.items()}
    families = sum(count_pinned_gates(pinned, mine, settings) for pinned, mine in matched.values() if pinned) or None
    golden = golden_losses(workloads)
    results = []
    for name, (pinned, mine) in matched.items():
        if pinned is None:
            note = Note(code="no-baseline-file", text=f"{workspace.project.baselines} holds no baseline of {name}")
            result = unmeasured(name, note=note, baseline=(), candidate=mine)
        else:
            result = against_file(
                pinned,
                mine,
                settings,
                families=families,
                golden=golden.get(name, GoldenLosses()),
                floors=floors,
            )
        results.append(with_failure(result, failures.get(name)))
    return Comparison(
        baseline=Revision(label=PINNED_LABEL),
        candidate=candidate,
        workloads=tuple(results),
        error_rate=settings.error_rate,
    )


def _matched(files: Sequence[PinnedBaseline], runs: Sequence[Run]) -> tuple[PinnedBaseline | None, Sequence[Run]]:
    """The file and the runs to compare: those of the newest run for whose environment there is a file. Else any file
    and all runs: the judge says what differs."""
    by_key = {pinned.environment.key: pinned for pinned in files}
    newest = next((run.environment.key for run in reversed(runs) if run.environment.key in by_key), None)
    if newest is not None:
        return by_key[newest], [run for run in runs if run.environment.key == newest]
    return (files[0] if files else None), runs


def against_file(
    pinned: PinnedBaseline,
    candidate: Sequence[Run],
    settings: JudgeSettings,
    *,
    families: int | None,
    golden: GoldenLosses,
    floors: Floors,
) -> WorkloadComparison:
    """The candidate's launches against one accepted level. Sessions of launches share the error rate: each new one was
    another chance to look. Known patterns in the traces are told; whether they are new, no file knows."""
    session = _sessions(candidate)
    judged = judge_pinned(
        pinned,
        candidate,
        replace(settings, error_rate=settings.error_rate * share_of(session)),
        families=families,
        noise_floors=floors.to_judge(pinned.workload, candidate),
        golden_losses=golden.losses,
        loss_tolerance_ratio=golden.tolerance_ratio,
    )
    kept = [run for run in candidate if not run.spoiled]
    found = [finding for run in kept for finding in run.findings]
    text = f"judged against the level accepted on {pinned.accepted_on} ({pinned.revision.label}): {pinned.reason}"
    notes = [Note(code=ACCEPTED_ALONE, text=text)]
    if session > 1:
        text = (
            f"the launches come from {session} sessions: judged at {share_text(session)}, "
            "because launching again until the answer pleases is how false alarms are made"
        )
        notes.append(Note(code="repeated-session", text=text))
    return replace(
        judged,
        findings=compare_findings(found, found, candidate_launches=len(kept)),
        notes=(*notes, *judged.notes, *floors.notes(pinned.workload, environment_of(candidate))),
    )


def _sessions(runs: Sequence[Run]) -> int:
    """How many times launches were made, at least 1. Imported runs have no session; they count as one together."""
    return max(1, len({run.launch.schedule for run in runs if not run.spoiled}))
