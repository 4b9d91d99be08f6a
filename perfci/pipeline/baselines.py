"""Accepted levels: reviewed baseline files, and the measured runs of the reference."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from perfci.config.baselines import read_baselines, write_baseline
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline
from perfci.model.environment import Environment, key_differences
from perfci.model.run import Note, Revision, Run
from perfci.pipeline.judging import environment_of
from perfci.pipeline.workspace import Workspace
from perfci.stats.collect import statistics_of
from perfci.stats.pinned import pin
from perfci.store.store import Store


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
        declared = statistics_of(workspace.project.judge, same)
        written.append(
            write_baseline(
                workspace.project.baselines,
                pin(
                    same,
                    reason=reason,
                    accepted_on=on.isoformat(),
                    statistics_of=declared,
                ),
            )
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
    if not runs:
        return None
    declared = statistics_of(workspace.project.judge, runs)
    return pin(runs, reason=f"reference {text}", accepted_on=_day(runs[-1]), statistics_of=declared)


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
