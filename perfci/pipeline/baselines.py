"""Reviewed baselines: accept the levels of a revision, and judge a revision against them, with or without history."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from perfci.config.baselines import read_baselines, write_baseline
from perfci.config.load import Workload
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline
from perfci.model.comparison import Comparison
from perfci.model.environment import Environment, key_differences
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.judging import environment_of
from perfci.pipeline.sides import unmeasured
from perfci.pipeline.workspace import Workspace
from perfci.stats.judge import count_noisy_gates
from perfci.stats.pinned import judge_pinned, pin
from perfci.store.store import Store

PINNED_LABEL = "@baseline"
"""The left side of ``compare @baseline..REV``: the reviewed files instead of a revision."""


def accept(
    workspace: Workspace, store: Store, *, revision: str, workloads: Sequence[str], reason: str, on: date
) -> tuple[Path, ...]:
    """Write the stored levels of a revision as reviewed baselines, one file per workload and environment.

    Raises UsageError without a reason, or when the revision has no usable runs of a workload.
    """
    if not reason.strip():
        raise UsageError("no reason given", wanted="--reason: why these levels are right; reviewers will read it")
    identity = identity_of(workspace, store, revision)
    written = []
    for workload in workloads:
        runs = [run for run in store.runs(workload, identity) if not run.spoiled]
        if not runs:
            raise UsageError(
                f"{revision} has no usable runs of {workload}", todo=f"perfci run {revision} -w {workload} -n 4"
            )
        newest = max(runs, key=lambda run: run.launch.started_at).environment.key
        same = [run for run in runs if run.environment.key == newest]
        written.append(
            write_baseline(workspace.project.baselines, pin(same, reason=reason, accepted_on=on.isoformat()))
        )
    return tuple(written)


def identity_of(workspace: Workspace, store: Store, text: str) -> str:
    if workspace.repository is not None:
        try:
            return workspace.repository.resolve(text).identity
        except UsageError:
            if text not in store.labels():
                raise
    return Revision(label=text).identity


def pinned_for(workspace: Workspace, workload: str, environment: Environment | None) -> PinnedBaseline | None:
    """The reviewed baseline of a workload in this environment, or None."""
    if environment is None:
        return None
    for _, pinned in read_baselines(workspace.project.baselines):
        if pinned.workload == workload and pinned.environment.key == environment.key:
            return pinned
    return None


def pinned_levels(workspace: Workspace, store: Store, workload: str, candidate: Sequence[Run]) -> list[PinnedBaseline]:
    """The accepted levels that apply to these runs: the reviewed file of their environment, and the measured runs of
    the ``reference`` revision. Empty where neither speaks about this environment."""
    environment = environment_of(candidate)
    if environment is None:
        return []
    found = [pinned_for(workspace, workload, environment), _reference(workspace, store, workload, candidate)]
    return [pinned for pinned in found if pinned is not None]


def _reference(workspace: Workspace, store: Store, workload: str, candidate: Sequence[Run]) -> PinnedBaseline | None:
    text = workspace.project.general.reference
    if text is None:
        return None
    identity = identity_of(workspace, store, text)
    if identity == candidate[-1].revision.identity:
        return None
    key = candidate[-1].environment.key
    runs = [run for run in store.runs(workload, identity) if run.environment.key == key and not run.spoiled]
    return pin(runs, reason=f"reference {text}", accepted_on=_day(runs[-1])) if runs else None


def _day(run: Run) -> str:
    return run.launch.started_at.date().isoformat()


def pinned_notes(workspace: Workspace, store: Store, workload: str, candidate: Sequence[Run]) -> tuple[Note, ...]:
    """Which accepted levels were used, and which speak about another environment and so were not."""
    environment = environment_of(candidate)
    if environment is None:
        return ()
    used = pinned_levels(workspace, store, workload, candidate)
    notes = [
        Note(code="pinned-baseline", text=f"also judged against the level accepted on {p.accepted_on}: {p.reason}")
        for p in used
    ]
    files = [(path, p) for path, p in read_baselines(workspace.project.baselines) if p.workload == workload]
    if files and not any(p.environment.key == environment.key for _, p in files):
        path, other = files[0]
        differences = ", ".join(
            f"{d.field} {d.baseline or 'unknown'} → {d.candidate or 'unknown'}"
            for d in key_differences(other.environment, environment)
        )
        notes.append(Note(code="baseline-of-another-environment", text=f"{path.name} was not used: {differences}"))
    reference = workspace.project.general.reference
    if reference is not None and not any(p.reason == f"reference {reference}" for p in used):
        text = f"the reference {reference} has no runs of {workload} in this environment: nothing is summed since it"
        if identity_of(workspace, store, reference) != candidate[-1].revision.identity:
            notes.append(Note(code="reference-not-measured", text=text))
    return tuple(notes)


def judge_against_files(
    workspace: Workspace,
    candidate: Revision,
    runs: Mapping[str, Sequence[Run]],
    workloads: Sequence[Workload],
    settings: JudgeSettings,
) -> Comparison:
    """A revision against the reviewed files alone. A workload without a file for this environment is NOT_COMPARABLE."""
    files = read_baselines(workspace.project.baselines)
    names = [workload.spec.name for workload in workloads] or list(runs)
    families = sum(count_noisy_gates(runs.get(n, ()), runs.get(n, ()), settings, workload=n) for n in names) or None
    results = []
    for name in names:
        mine = runs.get(name, ())
        about = [pinned for _, pinned in files if pinned.workload == name]
        # The newest run for whose environment there is a file decides which file and which runs are compared.
        keys = {pinned.environment.key: pinned for pinned in about}
        newest = next((run.environment.key for run in reversed(mine) if run.environment.key in keys), None)
        if newest is not None:
            equal = [run for run in mine if run.environment.key == newest]
            results.append(judge_pinned(keys[newest], equal, settings, families=families))
        elif about:
            results.append(judge_pinned(about[0], mine, settings, families=families))
        else:
            note = Note(code="no-baseline-file", text=f"{workspace.project.baselines} holds no baseline of {name}")
            results.append(unmeasured(name, note=note, baseline=(), candidate=mine))
    return Comparison(
        baseline=Revision(label=PINNED_LABEL),
        candidate=candidate,
        workloads=tuple(results),
        error_rate=settings.error_rate,
    )
