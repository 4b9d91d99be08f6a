"""``perfci bundle``: what was measured here, and what failed, in the one file that the publisher reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.bundle import BundleIdentity, Failure, WrittenBundle, write_bundle
from perfci.capture.repository import Repository
from perfci.errors import UsageError
from perfci.github.event import event_from_environment
from perfci.model.run import Revision, Run
from perfci.model.verdict import Verdict
from perfci.pipeline.sides import choose_runs
from perfci.pipeline.stored import NO_DATABASE
from perfci.pipeline.workspace import Workspace, open_workspace
from perfci.store.engine import missing_file
from perfci.store.store import Store, open_store

_MOST_FAILURE_CHARS = 8000
"""A failure quotes the end of a log; a bundle holds shorter texts only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """What ``perfci bundle`` was asked. ``failed`` is how measuring ended when it did not end well."""

    revisions: str
    output: Path
    patterns: tuple[str, ...] = ()
    preset: str | None = None
    failed: str = ""
    config: Path | None = None
    database_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What was measured: a head, and the base it was measured against (None: alone)."""

    base: Revision | None
    head: Revision


def pack(start: Path, request: BundleRequest, environ: Mapping[str, str]) -> WrittenBundle:
    """Write the stored runs of one revision or of both sides of a range, with the failures.

    A workload without runs, or one that the last comparison gave up, becomes a failure of the bundle; so does a
    configuration that cannot be read: whoever looks at the pull request shall see why nothing was measured.
    Raises UsageError for an unknown revision or outside of a workflow, BundleError when the runs do not fit.
    """
    sides = resolve(Repository.discover(start), request.revisions)
    identity = claimed_identity(sides, environ)
    try:
        workspace = open_workspace(start, config=request.config, database_url=request.database_url)
        names = _names(workspace, request)
    except UsageError as error:
        named = request.patterns or ("(configuration)",)
        text = _told(str(error), start)
        failures = [Failure(workload=name, commit=identity.head_sha, text=text) for name in named]
        return write_bundle((), identity, request.output, failures=failures)
    # Measuring may have ended before it made a database: the bundle must tell so, not fail as well.
    url = workspace.project.database_url
    with open_store(NO_DATABASE if missing_file(url) else url) as store:
        names = names or store.workloads()
        runs = {name: chosen_runs(store, name, sides) for name in names}
        failures = [
            failure for name in names for failure in _failures(store, name, sides, runs[name], failed=request.failed)
        ]
    if not names:
        text = request.failed or "no workload is configured, and nothing was measured"
        failures = [Failure(workload="(nothing)", commit=identity.head_sha, text=text)]
    told = [
        Failure(workload=one.workload, commit=one.commit, text=_told(one.text, workspace.project.root))
        for one in failures
    ]
    return write_bundle([run for name in names for run in runs[name]], identity, request.output, failures=told)


def resolve(repository: Repository, revisions: str) -> Sides:
    """``A...B`` (base: the merge base), ``A..B``, or one revision that was measured alone. Raises UsageError."""
    if ".." in revisions:
        base, head = repository.resolve_range(revisions)
        return Sides(base=base, head=head)
    return Sides(base=None, head=repository.resolve(revisions))


def claimed_identity(sides: Sides, environ: Mapping[str, str]) -> BundleIdentity:
    """What the bundle says it is: the repository and run of this workflow job. Raises UsageError outside of one."""
    repository, run_id = environ.get("GITHUB_REPOSITORY", ""), environ.get("GITHUB_RUN_ID", "")
    try:
        pull_request = event_from_environment(environ).pull_request
    except UsageError:
        pull_request = None  # only a hint: the publisher asks GitHub
    try:
        return BundleIdentity(
            repository=repository,
            head_sha=sides.head.commit or "",
            base_sha=sides.base.commit if sides.base is not None else None,
            run_id=int(run_id),
            run_attempt=int(environ.get("GITHUB_RUN_ATTEMPT") or 1),
            pull_request=pull_request,
        )
    except ValueError:
        raise UsageError(
            f"this is not a GitHub Actions job: GITHUB_REPOSITORY is {repository!r}, GITHUB_RUN_ID {run_id!r}",
            wanted="the repository and the number of the run that the publisher will expect",
            todo="run it inside a workflow, see docs/github.md",
        ) from None


def chosen_runs(store: Store, workload: str, sides: Sides) -> tuple[Run, ...]:
    """The runs to publish: of both sides those that ``perfci compare`` would judge; of a head alone those of its
    newest session."""
    head = store.runs(workload, sides.head.identity)
    if sides.base is not None:
        chosen = choose_runs(store.runs(workload, sides.base.identity), head)
        return (*chosen.baseline, *chosen.candidate)
    if not head:
        return ()
    newest = max(head, key=lambda run: run.launch.started_at).launch.schedule
    return tuple(run for run in head if run.launch.schedule == newest)


def _names(workspace: Workspace, request: BundleRequest) -> tuple[str, ...]:
    """Names to bundle; empty: all that have runs."""
    if not workspace.project.sections:
        return request.patterns
    return tuple(w.spec.name for w in workspace.project.select(request.patterns, preset=request.preset))


def _failures(store: Store, name: str, sides: Sides, runs: Sequence[Run], *, failed: str) -> Iterator[Failure]:
    judged, why = _given_up(store, name, sides)
    if why or (failed and not judged):
        yield Failure(workload=name, commit=sides.head.commit, text=why or failed)
        return
    for side in (sides.base, sides.head):
        if side is not None and not any(run.revision.identity == side.identity for run in runs):
            yield Failure(
                workload=name,
                commit=side.commit,
                text=f"no run of {name} at {side.label}; the log of the measuring job says why",
            )


def _given_up(store: Store, name: str, sides: Sides) -> tuple[bool, str]:
    """Whether a comparison of these sides with this workload is stored, and why the newest one gave the workload up
    (empty: it did not)."""
    if sides.base is None:
        return False, ""
    for stored in store.comparisons(candidate=sides.head.identity, baseline=sides.base.identity):
        for workload in stored.comparison.workloads:
            if workload.workload == name:
                lost = workload.verdict_override is Verdict.NOT_MEASURED
                return True, "\n".join(note.text for note in workload.notes) if lost else ""
    return False, ""


def _told(text: str, root: Path) -> str:
    """The text without the folders of this machine, short enough for a bundle: its end says most."""
    plain = text.replace(f"{root.resolve()}/", "").replace("\x00", "")
    return plain if len(plain) <= _MOST_FAILURE_CHARS else f"…{plain[-_MOST_FAILURE_CHARS:]}"
