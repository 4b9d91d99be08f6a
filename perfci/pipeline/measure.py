"""Launches of one revision, and what every kind of measuring shares."""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfci.capture.prepare import prepare
from perfci.capture.process_environment import child_environment
from perfci.capture.worktree import CONTENT_CODES, Worktree, missing_content, worktrees
from perfci.config.load import Workload
from perfci.errors import MeasurementError
from perfci.model.metrics import STEP
from perfci.model.run import Note, Revision, Run
from perfci.pipeline.bench import Bench, Place, fallback_note, open_bench
from perfci.pipeline.progress import Progress
from perfci.pipeline.workspace import Workspace, chosen_workloads
from perfci.store.store import Store

KEPT_SESSIONS = 20
"""Sessions whose reports and logs are kept: some weeks of a busy branch, and a bound on disk use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What ``perfci run`` was asked."""

    revision: str = "HEAD"
    patterns: tuple[str, ...] = ()
    preset: str | None = None
    command: tuple[str, ...] = ()
    """A training command instead of configured workloads."""
    launches: int = 1
    dirty: bool = False
    lock_clocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The runs that were made, and for each workload that was given up the reason."""

    runs: tuple[Run, ...]
    failures: Mapping[str, MeasurementError]


def measure_revision(
    workspace: Workspace, store: Store, request: MeasureRequest, progress: Progress
) -> tuple[Run, ...]:
    """Launch the selected workloads of one revision ``launches`` times each, storing every run as soon as it is there.

    Raises UsageError for an unknown revision or a dirty tree without ``dirty``. MeasurementError for launches that
    failed, after the launches of all other workloads: what was measured is kept.
    """
    repository = workspace.require_repository()
    workloads = chosen_workloads(workspace, request.patterns, preset=request.preset, command=request.command)
    revision = repository.resolve_measured(request.revision, dirty=request.dirty)
    launched = launch_revision(
        workspace,
        store,
        workloads,
        revision,
        launches=request.launches,
        lock_clocks=request.lock_clocks,
        progress=progress,
    )
    if launched.failures and len(workloads) == 1:
        raise next(iter(launched.failures.values()))
    if launched.failures:
        raise MeasurementError(
            "\n  ".join(f"{name}: {error.seen}" for name, error in launched.failures.items()),
            todo=f"the launches that succeeded ({len(launched.runs)}) are stored; mend the others and run them with -w",
        )
    return launched.runs


def launch_revision(
    workspace: Workspace,
    store: Store,
    workloads: Sequence[Workload],
    revision: Revision,
    *,
    launches: int,
    lock_clocks: bool,
    progress: Progress,
) -> Launched:
    """Launch these workloads of one revision, all once before any the second time. Every run is stored at once.

    A workload whose preparation or launch fails is given up, with the reason in the result; the others go on.
    BackendError, before any launch, for a database that cannot be written.
    """
    store.require_writable()
    repository = workspace.require_repository()
    schedule = new_schedule()
    runs: list[Run] = []
    failures: dict[str, MeasurementError] = {}

    def give_up(name: str, error: MeasurementError) -> None:
        failures[name] = error
        if len(workloads) > 1:
            progress.line(f"{name}: given up: {error}")

    with (
        bench_for(
            workspace, workloads, lock_clocks=lock_clocks, job=f"perfci run {revision.label}", progress=progress
        ) as bench,
        worktrees(repository, (revision,)) as (worktree,),
    ):
        say_notes((worktree,), progress)
        notes: dict[str, tuple[Note, ...]] = {}
        for workload in workloads:
            try:
                notes[workload.spec.name] = prepare_checkout(workspace, workload, worktree, progress)
            except MeasurementError as error:
                give_up(workload.spec.name, error)
        for index in range(launches):
            for position, workload in enumerate(workloads):
                name = workload.spec.name
                if name in failures:
                    continue
                progress.status(f"{name}: launch {index + 1} of {launches}")
                place = Place(
                    checkout=worktree.path,
                    private=workspace.private,
                    revision=revision,
                    folder=launch_folder(workspace, schedule, index * len(workloads) + position, name),
                    schedule=schedule,
                    pair=index,
                    position=len(runs),
                    seed=None,
                    notes=notes[name],
                )
                try:
                    run = bench.run_once(workload, place)
                except MeasurementError as error:
                    give_up(name, error)
                    continue
                store.add_runs([run])
                runs.append(run)
                progress.line(said(run, index + 1, launches))
    return Launched(runs=tuple(runs), failures=failures)


def forget_old_sessions(workspace: Workspace) -> None:
    """Delete the files of all but the newest KEPT_SESSIONS measuring sessions. Their numbers stay in the database."""
    folder = workspace.private / "launches"
    sessions = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    for path in sessions[:-KEPT_SESSIONS]:
        shutil.rmtree(path, ignore_errors=True)


def new_schedule() -> str:
    """A name for one measuring session, unique across machines, in the order of time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def launch_folder(workspace: Workspace, schedule: str, position: int, name: str) -> Path:
    """Where a launch leaves its report, export and log."""
    return workspace.private / "launches" / schedule / f"{position:03d}-{name}"


def said(run: Run, number: int, of: int, *, side: str = "") -> str:
    """One line about a launch that is done."""
    step = run.series_of(STEP, "unprofiled_wall_ns") or run.series_of(STEP, "wall_ns")
    took = f"step {sorted(step.values)[len(step.values) // 2] / 1e6:.3f} ms, " if step else ""
    who = f"{side} {run.revision.label}".strip()
    spoiled = ", spoiled" if run.spoiled else ""
    return f"{run.workload}: launch {number} of {of}, {who}: {took}{run.launch.duration_ns / 1e9:.1f} s{spoiled}"


def say_notes(checkouts: Sequence[Worktree], progress: Progress) -> tuple[Note, ...]:
    """Tell what the checkouts lack, each thing once, before anything is launched in them: a launch may fail for it."""
    notes = tuple(dict.fromkeys(note for checkout in checkouts for note in checkout.notes))
    for note in notes:
        progress.line(note.text)
    return notes


def prepare_checkout(
    workspace: Workspace, workload: Workload, worktree: Worktree, progress: Progress
) -> tuple[Note, ...]:
    """Run the workload's ``prepare:`` in a checkout, or take its cached result. MeasurementError when it fails.

    Returns what must be known of the checkout from then on.
    """
    if not workload.spec.prepare:
        return worktree.notes
    progress.status(f"{workload.spec.name}: preparing {worktree.revision.label}")
    prepared = prepare(
        worktree,
        workload.spec.prepare,
        private=workspace.private,
        environment=child_environment(os.environ, allow=workload.measure.environment_allow),
        directory=workload.spec.directory,
    )
    state = "from the cache" if prepared.reused else f"in {prepared.duration_ns / 1e9:.1f} s"
    progress.line(f"{workload.spec.name}: prepared {worktree.revision.label} {state}")
    lacking = missing_content(worktree.path)  # the preparation may have fetched it
    told = [note for note in worktree.notes if note in lacking or note.code not in CONTENT_CODES]
    return (*told, *prepared.notes)


@contextmanager
def bench_for(
    workspace: Workspace, workloads: Sequence[Workload], *, lock_clocks: bool, job: str, progress: Progress
) -> Iterator[Bench]:
    """The bench for these workloads, held while inside."""
    measure = workloads[0].measure
    key = tuple((f"user.{name}", value) for name, value in workspace.project.general.environment.key.items())
    with open_bench(
        collector=measure.collector,
        lock_clocks=lock_clocks or measure.lock_clocks,
        user_key=key,
        job=job,
        progress=progress,
    ) as bench:
        forget_old_sessions(workspace)
        note = fallback_note(measure.collector, bench.tool)
        if note is not None:
            progress.line(note.text)
        yield bench
