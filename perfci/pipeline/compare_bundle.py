"""Judge what a bundle holds: two sides that were measured together, or a head against the history of its branch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfci.bundle import Bundle
from perfci.capture.repository import Ancestor, Repository
from perfci.config.load import Workload
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline
from perfci.model.comparison import Comparison, WorkloadComparison
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.against_files import against_file
from perfci.pipeline.baselines import pinned_for, pinned_levels, pinned_notes
from perfci.pipeline.earlier import with_earlier_regression
from perfci.pipeline.floors import Floors
from perfci.pipeline.judging import (
    GoldenLosses,
    count_gates,
    environment_of,
    golden_losses,
    judge_all,
    with_gates,
)
from perfci.pipeline.received import Group, by_workload, failure_notes, groups_of_candidate, groups_of_sides
from perfci.pipeline.sides import STAND_IN, choose_runs, nearest_measured, unmeasured
from perfci.pipeline.workspace import Workspace
from perfci.store.store import Store

_SHORT = 12


def compare_bundle(
    workspace: Workspace,
    store: Store,
    bundle: Bundle,
    *,
    with_history: bool,
    patterns: Sequence[str] = (),
    preset: str | None = None,
    must_hold_all: bool = True,
) -> Comparison:
    """The comparison that a verified bundle gives. Nothing is stored.

    With a base in the bundle both sides come from it alone. A head that was measured alone is judged against the
    nearest measured ancestor in the store (``with_history``), else against reviewed baseline files, else it is
    NOT_MEASURED. Every workload of the configuration (``patterns``) must be there when ``must_hold_all``: one that is
    not is NOT_MEASURED, as is one with a failure. Several kinds of machines are judged apart and share the error rate.
    """
    project = workspace.project
    configured = project.select(patterns, preset=preset) if project.sections else ()
    case = _Case(
        workspace=workspace,
        store=store,
        workloads=configured,
        settings=with_gates(project.judge, configured),
        head=bundle.identity.head_sha,
    )
    right = by_workload(bundle.runs, bundle.identity.head_sha)
    left = by_workload(bundle.runs, bundle.identity.base_sha)
    failures = failure_notes(bundle.failures)
    expected = [workload.spec.name for workload in configured] if must_hold_all else []
    names = list(dict.fromkeys((*expected, *right, *left, *failures)))
    base = bundle.identity.base_sha
    notes: tuple[Note, ...] = ()
    if base is None and with_history:
        groups, base, notes = case.with_ancestors(
            [group for name in names for group in groups_of_candidate(name, right.get(name, ()))]
        )
    else:
        groups = [group for name in names for group in groups_of_sides(name, left.get(name, ()), right.get(name, ()))]
    judged = case.judge(groups)
    workloads = [one for name in names for one in _spoken(name, judged, failures.get(name, ()))]
    return Comparison(
        baseline=Revision(label=base[:_SHORT], commit=base) if base is not None else Revision(label="no baseline"),
        candidate=Revision(label=case.head[:_SHORT], commit=case.head),
        workloads=tuple(workloads),
        error_rate=case.settings.error_rate,
        notes=notes,
    )


Judged = Sequence[tuple[Group, WorkloadComparison]]


def _spoken(name: str, judged: Judged, failures: tuple[Note, ...]) -> tuple[WorkloadComparison, ...]:
    """What is said of a workload: its judged groups; NOT_MEASURED where something failed or nothing came."""
    mine = [(group, result) for group, result in judged if group.workload == name]
    if not failures:
        vanished = Note(code="not-in-bundle", text=f"{name} is configured, but the bundle holds nothing of it")
        return tuple(result for _, result in mine) or (unmeasured(name, note=vanished, baseline=(), candidate=()),)
    if len(mine) == 1:
        (group, _), label = mine[0], mine[0][0].label
        failed = unmeasured(label, note=failures[0], baseline=group.baseline, candidate=group.candidate)
        return (replace(failed, notes=failures),)
    failed = unmeasured(name, note=failures[0], baseline=(), candidate=())
    return (*(result for _, result in mine), replace(failed, notes=failures))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One bundle under judgement. ``settings`` hold the error rate of the whole comparison."""

    workspace: Workspace
    store: Store
    workloads: tuple[Workload, ...]
    settings: JudgeSettings
    head: str

    def judge(self, groups: Sequence[Group]) -> Judged:
        """Each group with its result. Groups of one workload cannot be one family of the judge, which goes by name:
        they are judged in rounds of one group a workload, each round with its share of the error rate."""
        rounds: list[list[Group]] = []
        for group in groups:
            free = next((r for r in rounds if all(one.workload != group.workload for one in r)), None)
            if free is None:
                rounds.append([group])
            else:
                free.append(group)
        settings = replace(self.settings, error_rate=self.settings.error_rate / max(len(rounds), 1))
        found = {(group.workload, group.label): result for r in rounds for group, result in self._round(r, settings)}
        return [(group, found[group.workload, group.label]) for group in groups]

    def _round(self, groups: Sequence[Group], settings: JudgeSettings) -> list[tuple[Group, WorkloadComparison]]:
        candidate = {group.workload: group.candidate for group in groups}
        floors = Floors(self.store, settings)
        judged = judge_all(
            {group.workload: group.baseline for group in groups},
            candidate,
            settings,
            floors_of=floors.to_judge,
            golden=golden_losses(self.workloads),
            notes={
                group.workload: (
                    *group.notes,
                    *pinned_notes(self.workspace, self.store, group.workload, group.candidate),
                    *floors.notes(group.workload, environment_of(group.candidate)),
                )
                for group in groups
            },
            pinned=self._pinned,
        )
        results = {one.workload: one for one in judged}
        alone = [(group, pinned) for group in groups if (pinned := self._file_of(group)) is not None]
        families = count_gates(
            {group.workload: (group.baseline, group.candidate) for group in groups},
            {group.workload: self._pinned(group.workload, group.candidate) for group in groups},
            settings,
        )
        golden = golden_losses(self.workloads)
        for group, pinned in alone:
            judged_alone = against_file(
                pinned,
                group.candidate,
                settings,
                families=families or None,
                golden=golden.get(group.workload, GoldenLosses()),
                floors=floors,
            )
            results[group.workload] = replace(judged_alone, notes=(*group.notes, *judged_alone.notes))
        return [
            (group, self._after_earlier(group, replace(results[group.workload], workload=group.label)))
            for group in groups
        ]

    def _after_earlier(self, group: Group, judged: WorkloadComparison) -> WorkloadComparison:
        runs = (*group.baseline, *group.candidate)
        commits = {run.revision.identity for run in group.baseline}
        if len(commits) != 1:
            return judged
        return with_earlier_regression(self.store, judged, runs, baseline=commits.pop(), candidate=self.head)

    def _file_of(self, group: Group) -> PinnedBaseline | None:
        """The reviewed level for a head without a baseline run, where nothing was to be measured beside it."""
        if group.baseline or not group.candidate or not _alone(group):
            return None
        return pinned_for(self.workspace, group.workload, group.candidate[-1].environment)

    def _pinned(self, workload: str, candidate: Sequence[Run]) -> Sequence[PinnedBaseline]:
        return pinned_levels(self.workspace, self.store, workload, candidate)

    def with_ancestors(self, groups: Sequence[Group]) -> tuple[list[Group], str | None, tuple[Note, ...]]:
        """The groups with the runs of the nearest measured ancestor of the head, the nearest of all ancestors used, and
        what must be said."""
        repository = self.workspace.repository
        try:
            head = None if repository is None else repository.resolve(self.head)
        except UsageError:
            head = None
        if repository is None or head is None:
            text = f"this clone does not hold {self.head[:_SHORT]}, so no earlier commit can be found: fetch-depth: 0"
            return list(groups), None, (Note(code="history-unknown", text=text),)
        found = [self._ancestor(repository, head, group) for group in groups]
        nearest = min((one for one in found if one is not None), key=lambda one: one.distance, default=None)
        base = nearest.commit if nearest is not None else None
        pairs = zip(groups, found, strict=True)
        return [self._with_baseline(group, ancestor, base) for group, ancestor in pairs], base, ()

    def _ancestor(self, repository: Repository, head: Revision, group: Group) -> Ancestor | None:
        like = group.candidate[-1].environment
        return nearest_measured(repository, self.store, group.workload, head, like=like)

    def _with_baseline(self, group: Group, found: Ancestor | None, base: str | None) -> Group:
        if found is None:
            text = f"no earlier commit of {group.workload} was measured: there is nothing to compare with yet"
            return replace(group, notes=(Note(code="first-run", text=text),))
        key = group.candidate[-1].environment.key
        runs: tuple[Run, ...] = self.store.runs(group.workload, found.commit, key=key)
        chosen = choose_runs(runs or self.store.runs(group.workload, found.commit), group.candidate)
        notes = chosen.notes
        if found.commit != base and base is not None:
            text = f"{base[:_SHORT]} was not measured here; {found.commit[:_SHORT]} stands in"
            notes = (*notes, Note(code=STAND_IN, text=text))
        return replace(group, baseline=chosen.baseline, candidate=chosen.candidate, notes=notes)


def _alone(group: Group) -> bool:
    """True for a head that nothing was to be measured against: a pull request must bring both sides."""
    return any(note.code == "first-run" for note in group.notes)
