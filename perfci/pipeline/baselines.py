"""Reviewed baselines: accept the levels of a revision, and judge a revision against them, with or without history."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from perfci.config.baselines import read_baselines, write_baseline
from perfci.config.load import Workload
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline
from perfci.model.comparison import Comparison, WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.sides import unmeasured
from perfci.pipeline.workspace import Workspace
from perfci.stats.pinned import join_cumulative, judge_pinned, pin
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
    identity = _identity(workspace, store, revision)
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


def _identity(workspace: Workspace, store: Store, text: str) -> str:
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


def with_cumulative(
    workspace: Workspace,
    judged: Sequence[WorkloadComparison],
    candidate: Mapping[str, Sequence[Run]],
    settings: JudgeSettings,
) -> tuple[WorkloadComparison, ...]:
    """Each workload judged against its reviewed baseline too, where there is one: small changes add up."""
    results = []
    for result in judged:
        runs = candidate.get(result.workload, ())
        pinned = pinned_for(workspace, result.workload, runs[-1].environment if runs else None)
        if pinned is None:
            results.append(result)
            continue
        gates = sum(row.gated for row in result.rows)
        against = judge_pinned(pinned, runs, settings, families=2 * gates or None)
        text = f"also judged against the baseline accepted on {pinned.accepted_on}: {pinned.reason}"
        joined = join_cumulative(result, against)
        results.append(replace(joined, notes=(*joined.notes, Note(code="pinned-baseline", text=text))))
    return tuple(results)


def judge_against_files(
    workspace: Workspace,
    candidate: Revision,
    runs: Mapping[str, Sequence[Run]],
    workloads: Sequence[Workload],
    settings: JudgeSettings,
) -> Comparison:
    """A revision against the reviewed files alone. A workload without a file for this environment is NOT_COMPARABLE."""
    files = read_baselines(workspace.project.baselines)
    results = []
    for name in [workload.spec.name for workload in workloads] or list(runs):
        mine = runs.get(name, ())
        about = [pinned for _, pinned in files if pinned.workload == name]
        equal = [p for p in about if mine and p.environment.key == mine[-1].environment.key]
        if equal or about:
            results.append(judge_pinned((equal or about)[0], mine, settings))
        else:
            note = Note(code="no-baseline-file", text=f"{workspace.project.baselines} holds no baseline of {name}")
            results.append(unmeasured(name, note=note, baseline=(), candidate=mine))
    return Comparison(
        baseline=Revision(label=PINNED_LABEL),
        candidate=candidate,
        workloads=tuple(results),
        error_rate=settings.error_rate,
    )
