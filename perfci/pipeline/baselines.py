"""Accepted levels: reviewed baseline files, and the measured runs of the reference."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from perfci.config.baselines import read_baseline, read_baselines, write_baseline
from perfci.errors import MeasurementError, UsageError
from perfci.model.baseline import PinnedBaseline, PinnedLevel
from perfci.model.environment import Environment, key_differences
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.floors import Floors
from perfci.pipeline.judging import environment_of, with_gates
from perfci.pipeline.sides import refuse_unknown
from perfci.pipeline.workspace import Workspace
from perfci.report.baselines import AcceptedView
from perfci.stats.collect import statistics_of
from perfci.stats.pinned import pin
from perfci.store.store import Store


def accept(
    workspace: Workspace, store: Store, *, revision: str, workloads: Sequence[str], reason: str, on: date
) -> tuple[AcceptedView, ...]:
    """Write the stored levels of a revision as reviewed baselines, one file per workload, in the environment measured
    last. A file about the same environment is replaced; the budgets that reviewers wrote into it stay.

    Raises UsageError without a reason or for an unknown workload, MeasurementError when the revision has no usable runs
    of a workload: then nothing is written.
    """
    if not reason.strip():
        raise UsageError("no reason given", wanted="--reason: why these levels are right; reviewers will read it")
    identity = identity_of(workspace, store, revision)
    for name in workloads:
        refuse_unknown(workspace, store, name)
    stored = {name: store.runs(name, identity) for name in workloads}
    for name, runs in stored.items():
        if all(run.spoiled for run in runs):
            spoiled = f" (all {len(runs)} were spoiled)" if runs else ""
            plain, _, preset = name.partition("@")
            todo = f"perfci run {revision} -w {plain}{f' --preset {preset}' if preset else ''} -n 4"
            raise MeasurementError(f"{revision} has no usable runs of {name}{spoiled}", todo=todo)
    settings = _all_gates(workspace)
    floors = Floors(store, settings)
    views = []
    for runs in stored.values():
        taken, left_out = _newest_environment(runs)
        new = pin(
            taken,
            reason=reason,
            accepted_on=on.isoformat(),
            floors=floors.of_history(taken[0].workload, taken[0].environment),
            statistics_of=statistics_of(settings, taken),
        )
        before = pinned_for(workspace, new.workload, new.environment)
        if before is not None:
            new = _with_budgets_of(before, new)
        path = write_baseline(workspace.project.baselines, new)
        gates = (
            (level.phase, level.metric)
            for level in new.levels
            if settings.gate_for(workload=new.workload, phase=level.phase, metric=level.metric) is not None
        )
        views.append(
            AcceptedView(
                path=str(path), accepted=read_baseline(path), replaced=before, gated=frozenset(gates), left_out=left_out
            )
        )
    return tuple(views)


def _gated(pinned: PinnedBaseline, settings: JudgeSettings) -> list[PinnedLevel]:
    """The levels that can fail a comparison."""
    return [
        level
        for level in pinned.levels
        if settings.gate_for(workload=pinned.workload, phase=level.phase, metric=level.metric) is not None
    ]


def _all_gates(workspace: Workspace) -> JudgeSettings:
    project = workspace.project
    return with_gates(project.judge, project.select() if project.sections else ())


def _newest_environment(runs: Sequence[Run]) -> tuple[list[Run], tuple[str, ...]]:
    """The usable runs in the environment measured last, and what was left out."""
    usable = [run for run in runs if not run.spoiled]
    newest = max(usable, key=lambda run: run.launch.started_at)
    taken = [run for run in usable if run.environment.key == newest.environment.key]
    left_out = [f"{len(runs) - len(usable)} spoiled launches"] if len(usable) < len(runs) else []
    others: dict[str, int] = {}
    for run in usable:
        if run.environment.key != newest.environment.key:
            about = differing(run.environment, newest.environment)
            others[about] = others.get(about, 0) + 1
    left_out += [f"{count} launches in another environment: {about}" for about, count in others.items()]
    return taken, tuple(left_out)


def _with_budgets_of(before: PinnedBaseline, new: PinnedBaseline) -> PinnedBaseline:
    budgets = {(level.phase, level.metric): level.budget_ratio for level in before.levels}
    levels = (replace(level, budget_ratio=budgets.get((level.phase, level.metric))) for level in new.levels)
    return replace(new, levels=tuple(levels))


def differing(one: Environment, other: Environment) -> str:
    """The fields of two comparability keys that differ, as text."""
    return ", ".join(
        f"{d.field} {d.baseline or 'unknown'} → {d.candidate or 'unknown'}" for d in key_differences(one, other)
    )


def doubts(workspace: Workspace) -> tuple[str, ...]:
    """What is questionable about files that can be read: they will never be used as the configuration is today, or
    cannot judge what it gates."""
    settings = _all_gates(workspace)
    definitions = workspace.project.definition_hashes()
    found = []
    for path, pinned in read_baselines(workspace.project.baselines):
        known = definitions.get(pinned.workload)
        if definitions and known is None:
            found.append(f"{path.name}: perfci.yaml knows no workload {pinned.workload}")
        elif known is not None and pinned.environment.get("workload_hash") != known:
            found.append(
                f"{path.name}: the workload {pinned.workload} was defined otherwise when this was accepted, so it is "
                "not used: accept it anew"
            )
        gated = _gated(pinned, settings)
        if not gated:
            found.append(f"{path.name}: holds no level of anything that is gated")
        elif any(level.exact is None and level.deviation is None for level in gated):
            found.append(f"{path.name}: accepted from one launch, only counts can be judged by it")
    return tuple(found)


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
    judge = workspace.project.judge
    # Only what was known before the judged launches: a verdict must not change when more is measured later.
    floors = Floors(store, judge).of_history(
        workload, candidate[-1].environment, before=min(run.launch.started_at for run in candidate)
    )
    return pin(
        runs,
        reason=f"reference {text}",
        accepted_on=_day(runs[-1]),
        floors=floors,
        statistics_of=statistics_of(judge, runs),
    )


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
        differences = differing(other.environment, environment)
        notes.append(Note(code="baseline-of-another-environment", text=f"{path.name} was not used: {differences}"))
    reference = workspace.project.general.reference
    if reference is not None and not any(p.reason == f"reference {reference}" for p in used):
        text = f"the reference {reference} has no runs of {workload} in this environment: nothing is summed since it"
        if identity_of(workspace, store, reference) != candidate[-1].revision.identity:
            notes.append(Note(code="reference-not-measured", text=text))
    return tuple(notes)
