"""Which two revisions a comparison is about, and which stored runs speak for them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from perfci.capture.repository import Ancestor, Repository
from perfci.capture.schedule import SideName, pair_slots
from perfci.config.load import Project
from perfci.errors import UsageError
from perfci.model import codec
from perfci.model.comparison import WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.run import Note, Revision, Run
from perfci.model.verdict import Verdict
from perfci.pipeline.workspace import Workspace
from perfci.report.wording import plural
from perfci.store.store import Store

STAND_IN = "stand-in-baseline"
HISTORY_COMMITS = 1000
"""How far back a branch is searched for a measured commit. What lies further back than a stand-in may is still shown,
as evidence; the nightly comparison with the commit before speaks about all commits in between."""


def resolve_sides(
    workspace: Workspace, store: Store, text: str, *, dirty: bool, to_measure: bool
) -> tuple[Revision, Revision]:
    """Baseline and candidate of a range. Where git knows no such revision, labels of imported runs are accepted. A
    working tree with changes matters only when something is ``to_measure``.

    Raises UsageError when neither git nor the database knows a side.
    """
    if workspace.repository is not None:
        try:
            return workspace.repository.resolve_range(text, dirty=dirty, to_measure=to_measure)
        except UsageError:
            if dirty or ".." not in text:
                raise
            left, right = _split(text)
            known = set(store.labels())
            if left not in known and right not in known:
                raise
            return tuple(  # type: ignore[return-value]  # two in, two out
                Revision(label=side) if side in known else workspace.repository.resolve(side) for side in (left, right)
            )
    left, right = _split(text)
    known = set(store.labels())
    return _labelled(left, known), _labelled(right, known)


def resolve_candidate(workspace: Workspace, store: Store, text: str, *, dirty: bool, to_measure: bool) -> Revision:
    """One revision, or the label of imported runs where git knows no such revision. A working tree with changes matters
    only when something is ``to_measure``.

    Raises UsageError when neither git nor the database knows it, or when a label or a folder without git is to be
    measured.
    """
    measured = dirty or to_measure
    repository = workspace.require_repository() if measured else workspace.repository
    if repository is not None:
        try:
            return repository.resolve_measured(text, dirty=dirty) if measured else repository.resolve(text)
        except UsageError:
            if measured or text not in store.labels():
                raise
    return _labelled(text, store.labels())


def _labelled(text: str, known: Collection[str]) -> Revision:
    if text not in known:
        raise UsageError(
            f"no runs with the label {text!r}, and this folder is not in a git repository",
            wanted=f"one of: {', '.join(sorted(known)) or 'none are stored yet'}",
            todo="perfci import FILE --workload NAME --revision LABEL",
        )
    return Revision(label=text)


def named_only(project: Project, patterns: Sequence[str], known: Collection[str]) -> list[str]:
    """Those of the ``known`` workloads that patterns name and the configuration does not. UsageError for a pattern that
    names none."""
    names: list[str] = []
    for pattern in patterns:
        if project.knows(pattern):
            continue
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            listed = ", ".join(sorted({*known, *project.workload_names()}))
            raise UsageError(f"no workload matches {pattern!r}", wanted=f"one of: {listed or 'none is known'}")
        names += [name for name in found if name not in names]
    return names


def refuse_unknown(workspace: Workspace, store: Store, workload: str) -> None:
    """Raises UsageError for a name that is neither configured nor stored, as mistyped ones are. Where no workload is
    known at all, none is refused: nothing was measured yet."""
    known = {*store.workloads(), *workspace.project.workload_names()}
    if known and workload not in known and workload not in workspace.project.definition_hashes():
        raise UsageError(f"no workload is called {workload!r}", wanted=f"one of: {', '.join(sorted(known))}")


def _split(text: str) -> tuple[str, str]:
    separator = "..." if "..." in text else ".."
    left, found, right = text.partition(separator)
    if not found or not left or not right:
        raise UsageError(f"{text!r} is not a range", wanted="BASELINE..CANDIDATE or BASELINE...CANDIDATE")
    return left, right


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Runs of both sides that will be judged, with what a reader must know about the choice."""

    baseline: tuple[Run, ...]
    candidate: tuple[Run, ...]
    notes: tuple[Note, ...] = ()
    too_far: bool = False
    """True for a stand-in baseline further away than may be judged by."""


def choose_runs(baseline: Sequence[Run], candidate: Sequence[Run]) -> Chosen:
    """The runs to judge among all stored ones.

    Only one comparability key can be judged: the one both sides have that was measured last. Where both sides took
    part in the same interleaved session, only the runs of the newest such count: others saw another machine state.
    With no common key all runs go to the judge, whose answer is NOT_COMPARABLE with reasons.
    A launch speaks for one side: of one revision on both sides only sessions count in which it was launched as both.
    """
    if {run.revision.identity for run in baseline} & {run.revision.identity for run in candidate}:
        baseline, candidate = told_apart(candidate)
        if not baseline:
            return Chosen(baseline=(), candidate=tuple(candidate), notes=(_one_revision(candidate[0].revision),))
    common = {run.environment.key for run in baseline} & {run.environment.key for run in candidate}
    if not common:
        return Chosen(baseline=tuple(baseline), candidate=tuple(candidate))
    newest = max((run for run in candidate if run.environment.key in common), key=lambda run: run.launch.started_at)
    key = newest.environment.key
    left = [run for run in baseline if run.environment.key == key]
    right = [run for run in candidate if run.environment.key == key]
    schedules = {run.launch.schedule for run in left} & {run.launch.schedule for run in right} - {""}
    if schedules:
        # One session only: its plan fixed how often it would be looked at, and sessions pooled afterwards have none.
        last = max((run for run in right if run.launch.schedule in schedules), key=lambda run: run.launch.started_at)
        schedules = {last.launch.schedule}
        left = [run for run in left if run.launch.schedule in schedules]
        right = [run for run in right if run.launch.schedule in schedules]
    left_out = len(baseline) + len(candidate) - len(left) - len(right)
    notes = (
        (
            Note(
                code="runs-left-out",
                text=f"left out: {plural(left_out, 'stored run')} of another environment or session",
            ),
        )
        if left_out
        else ()
    )
    return Chosen(baseline=tuple(_in_order(left)), candidate=tuple(_in_order(right)), notes=notes)


def _one_revision(revision: Revision) -> Note:
    todo = "" if revision.commit is None else ": --measure launches it as both"
    text = f"both sides are one revision, and launches are not compared with themselves{todo}"
    return Note(code="one-revision", text=text)


def told_apart(runs: Sequence[Run]) -> tuple[Sequence[Run], Sequence[Run]]:
    """The launches of one revision by the side for which its sessions launched them. Where no session launched it as
    both, no baseline, and all of them as the candidate."""
    sides: dict[SideName, list[Run]] = {side: [] for side in SideName}
    pairs: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if run.launch.schedule and run.launch.seed is not None:
            pairs.setdefault((run.launch.schedule, run.launch.pair), []).append(run)
    for found in pairs.values():
        launched = sorted(found, key=lambda run: run.launch.position)[-2:]  # a spoiled pair was launched again
        first = launched[0].launch
        if len(launched) < len(SideName) or first.position + 1 != launched[1].launch.position or first.seed is None:
            continue
        slots = pair_slots(
            pair=first.pair, seed=first.seed, workload=launched[0].workload, first_position=first.position
        )
        for slot, run in zip(slots, launched, strict=True):
            sides[slot.side].append(run)
    if not sides[SideName.BASELINE]:
        return (), runs
    return sides[SideName.BASELINE], sides[SideName.CANDIDATE]


def _in_order(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.launch.started_at, run.launch.position))


def nearest_measured(
    repository: Repository,
    store: Store,
    workload: str,
    revision: Revision,
    *,
    like: Environment,
    limit: int = HISTORY_COMMITS,
) -> Ancestor | None:
    """The nearest earlier commit at which the workload was measured in the environment ``like``, else the nearest in
    any within ``limit``."""
    for key_hash, most in ((codec.key_hash(like), HISTORY_COMMITS), (None, limit)):
        measured = store.measured_commits(workload, key_hash=key_hash) - {revision.commit}
        found = repository.nearest_ancestor(revision, measured, limit=most) if measured else None
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """Runs of an ancestor in place of a baseline that was never measured. ``too_far``: not to judge by."""

    runs: tuple[Run, ...]
    note: Note
    too_far: bool


def stand_in(
    repository: Repository, store: Store, workload: str, baseline: Revision, candidate: Sequence[Run], *, limit: int
) -> StandIn | None:
    """The nearest ancestor of an unmeasured baseline that was measured in the candidate's environment, else in any
    within ``limit`` commits. One further back than ``limit`` is shown, and judges nothing. None when there is none."""
    if baseline.commit is None:
        return None
    found = nearest_measured(repository, store, workload, baseline, like=candidate[-1].environment, limit=limit)
    if found is None:
        return None
    distance = f"{found.distance} commit{'s' if found.distance != 1 else ''}"
    text = f"{baseline.label} was never measured; {found.commit[:10]}, {distance} before it, stands in"
    too_far = found.distance > limit
    if too_far:
        text += f": too far to judge by (stand_in_distance: {limit}); --measure measures {baseline.label}"
    return StandIn(runs=store.runs(workload, found.commit), note=Note(code=STAND_IN, text=text), too_far=too_far)


def with_failure(judged: WorkloadComparison, failure: Note | None) -> WorkloadComparison:
    """The workload with the reason why its measuring failed (None: it did not). What was measured before the failure
    stays: a regression that is already proven is not undone by it."""
    if failure is None:
        return judged
    return replace(judged, notes=(failure, *judged.notes), verdict_override=Verdict.NOT_MEASURED)


def unmeasured(workload: str, *, note: Note, baseline: Sequence[Run], candidate: Sequence[Run]) -> WorkloadComparison:
    """The comparison of a workload for which at least one side has no runs: NOT_MEASURED, never green."""
    return WorkloadComparison(
        workload=workload,
        rows=(),
        baseline_environment=baseline[0].environment if baseline else Environment(),
        candidate_environment=candidate[0].environment if candidate else Environment(),
        baseline_launches=len(baseline),
        candidate_launches=len(candidate),
        notes=(note,),
        verdict_override=Verdict.NOT_MEASURED,
    )
