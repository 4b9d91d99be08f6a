"""Which two revisions a comparison is about, and which stored runs speak for them."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfci.capture.git import Repository
from perfci.errors import UsageError
from perfci.model import codec
from perfci.model.comparison import WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.run import Note, Revision, Run
from perfci.model.verdict import Verdict
from perfci.pipeline.workspace import Workspace
from perfci.store.store import Store

STAND_IN = "stand-in-baseline"


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
    for side in (left, right):
        if side not in known:
            raise UsageError(
                f"no runs with the label {side!r}, and this folder is not in a git repository",
                wanted=f"one of: {', '.join(sorted(known)) or 'none are stored yet'}",
                todo="perfci import FILE --workload NAME --revision LABEL",
            )
    return Revision(label=left), Revision(label=right)


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


def choose_runs(baseline: Sequence[Run], candidate: Sequence[Run]) -> Chosen:
    """The runs to judge among all stored ones.

    Only one comparability key can be judged: the one both sides have that was measured last. Where both sides took
    part in the same interleaved session, only the runs of the newest such count: others saw another machine state.
    With no common key all runs go to the judge, whose answer is NOT_COMPARABLE with reasons.
    """
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
        (Note(code="runs-left-out", text=f"{left_out} stored runs of another environment or session were left out"),)
        if left_out
        else ()
    )
    return Chosen(baseline=tuple(_in_order(left)), candidate=tuple(_in_order(right)), notes=notes)


def _in_order(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.launch.started_at, run.launch.position))


def stand_in(
    repository: Repository, store: Store, workload: str, baseline: Revision, candidate: Sequence[Run], *, limit: int
) -> tuple[tuple[Run, ...], Note] | None:
    """Runs of the nearest ancestor of an unmeasured baseline that was measured in the candidate's environment, else of
    the nearest in any, with the note that says so. None when there is none within ``limit`` commits."""
    if baseline.commit is None:
        return None
    found = None
    for key_hash in (codec.key_hash(candidate[-1].environment), None):
        measured = store.measured_commits(workload, key_hash=key_hash)
        found = repository.nearest_ancestor(baseline, measured, limit=limit)
        if found is not None and found.distance > 0:
            break
    if found is None or found.distance == 0:
        return None
    distance = f"{found.distance} commit{'s' if found.distance != 1 else ''}"
    text = f"{baseline.label} was never measured; {found.commit[:10]}, {distance} before it, stands in"
    return store.runs(workload, found.commit), Note(code=STAND_IN, text=text)


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
