"""``perfci compare``: from a range of revisions to a stored, judged comparison."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.config.load import Workload
from perfci.errors import BackendError, UsageError
from perfci.model.baseline import PinnedBaseline
from perfci.model.comparison import Comparison, Reason, WorkloadComparison
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.against_files import PINNED_LABEL, compare_with_files, launch_missing, names_against_files
from perfci.pipeline.baselines import pinned_levels, pinned_notes
from perfci.pipeline.earlier import with_earlier_regression
from perfci.pipeline.floors import Floors, by_gate
from perfci.pipeline.interleave import Measured, Session
from perfci.pipeline.judging import environment_of, golden_losses, judge_all, with_gates
from perfci.pipeline.locate import located
from perfci.pipeline.progress import Progress
from perfci.pipeline.sides import (
    Chosen,
    choose_runs,
    named_only,
    resolve_candidate,
    resolve_sides,
    stand_in,
    with_failure,
)
from perfci.pipeline.workspace import Workspace, chosen_workloads
from perfci.stats.plan import next_action
from perfci.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """What ``perfci compare`` was asked."""

    revisions: str
    patterns: tuple[str, ...] = ()
    preset: str | None = None
    command: tuple[str, ...] = ()
    """A training command instead of configured workloads."""
    measure: bool = False
    remeasure: bool = False
    dirty: bool = False
    max_launches: int | None = None
    max_minutes: float | None = None
    seed: int | None = None
    lock_clocks: bool = False


def run_comparison(workspace: Workspace, store: Store, request: CompareRequest, progress: Progress) -> Comparison:
    """Resolve, measure what is missing when asked to, judge, explain, store.

    Raises UsageError for an unknown revision or workload; BackendError when the database fails. Launches that fail do
    not raise: their workload is NOT_MEASURED in the result, with the reason.
    """
    workloads = _configured(workspace, request)
    left, dots, right = request.revisions.partition("..")
    if left == PINNED_LABEL and dots:
        revision = right.lstrip(".") or "HEAD"
        return _against_files(workspace, store, request, workloads=workloads, revision=revision, progress=progress)
    baseline, candidate = resolve_sides(
        workspace, store, request.revisions, dirty=request.dirty, to_measure=request.measure
    )
    case = _Case(
        workspace=workspace,
        store=store,
        request=request,
        baseline=baseline,
        candidate=candidate,
        workloads=workloads,
        settings=settings_for(workspace, workloads, request),
    )
    names = case.names()
    measured = case.measure(progress) if request.measure else Measured()
    chosen = {name: case.runs(name, measured) for name in names}
    judged = case.judge(
        {name: runs.baseline for name, runs in chosen.items()},
        {name: runs.candidate for name, runs in chosen.items()},
        notes={
            name: (
                *runs.notes,
                *pinned_notes(workspace, store, name, runs.candidate),
                *Floors(store, case.settings).notes(name, environment_of(runs.candidate)),
            )
            for name, runs in chosen.items()
        },
        too_far=[name for name, runs in chosen.items() if runs.too_far],
    )
    judged = tuple(
        with_earlier_regression(
            store,
            _with_places(result, measured),
            (*chosen[result.workload].baseline, *chosen[result.workload].candidate),
            baseline=baseline.identity,
            candidate=candidate.identity,
        )
        for result in judged
    )
    comparison = Comparison(
        baseline=baseline,
        candidate=candidate,
        workloads=tuple(with_failure(result, measured.failures.get(result.workload)) for result in judged),
        error_rate=case.settings.error_rate,
        notes=(*measured.checkout_notes, *case.definition_notes()),
    )
    return keep(store, comparison, progress)


def keep(store: Store, comparison: Comparison, progress: Progress) -> Comparison:
    """Store a comparison. A database that takes no writes does not take the verdict away: it is told, here and in a
    note of the comparison returned."""
    try:
        store.add_comparison(comparison)
    except BackendError as error:
        text = f"the comparison was not stored: {error.seen}"
        progress.line(text)
        return replace(comparison, notes=(*comparison.notes, Note(code="not-stored", text=text)))
    return comparison


def settings_for(workspace: Workspace, workloads: Sequence[Workload], request: CompareRequest) -> JudgeSettings:
    """The judge's settings: general gates, those of the workloads after them, and the effort asked for."""
    settings = with_gates(workspace.project.judge, workloads)
    most = request.max_launches or settings.max_launches
    return replace(
        settings,
        max_launches=most,
        min_launches=min(settings.min_launches, most),
        max_minutes=request.max_minutes or settings.max_minutes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One comparison under way."""

    workspace: Workspace
    store: Store
    request: CompareRequest
    baseline: Revision
    candidate: Revision
    workloads: tuple[Workload, ...]
    settings: JudgeSettings

    def names(self) -> tuple[str, ...]:
        """Workloads to speak about: the configured ones, those named, else those that a side has runs of."""
        stored = self.store.workloads()
        names = [workload.spec.name for workload in self.workloads]
        if not self.request.command:
            named = named_only(self.workspace.project, self.request.patterns, stored)
            names += [name for name in named if name not in names]
        if not names:
            sides = (self.baseline.identity, self.candidate.identity)
            names = [name for name in stored if any(self.store.runs(name, side, limit=1) for side in sides)]
        if not names:
            raise UsageError(
                "nothing to compare: no workload is configured, and neither "
                f"{self.baseline.label} nor {self.candidate.label} has runs",
                todo="list workloads in perfci.yaml and compare with --measure, or perfci import existing traces",
            )
        return tuple(names)

    def judge(
        self,
        baseline: Mapping[str, Sequence[Run]],
        candidate: Mapping[str, Sequence[Run]],
        *,
        notes: Mapping[str, Sequence[Note]] | None = None,
        too_far: Collection[str] = (),
    ) -> tuple[WorkloadComparison, ...]:
        """Judge all workloads on these runs."""
        return judge_all(
            baseline,
            candidate,
            self.settings,
            floors_of=Floors(self.store, self.settings).to_judge,
            golden=golden_losses(self.workloads),
            notes=notes or {},
            pinned=self._pinned,
            too_far=too_far,
        )

    def _pinned(self, workload: str, candidate: Sequence[Run]) -> Sequence[PinnedBaseline]:
        return pinned_levels(self.workspace, self.store, workload, candidate)

    def measure(self, progress: Progress) -> Measured:
        """Launch both sides of the workloads that were not yet measured together."""
        missing = [w for w in self.workloads if self.request.remeasure or not self._was_measured(w)]
        if not missing:
            progress.line("both sides were measured together before; nothing to launch (--remeasure launches again)")
            return Measured()
        self.store.require_writable()
        session = Session(
            workspace=self.workspace, store=self.store, limits=self.settings, judge=self.judge, progress=progress
        )
        if self.request.seed is not None:
            session.seed = self.request.seed
        return session.measure(missing, self.baseline, self.candidate, lock_clocks=self.request.lock_clocks)

    def _was_measured(self, workload: Workload) -> bool:
        """True when both sides were launched together often enough, with today's definition, and more launches within
        today's limits would decide no further gate. A gate newer than the session, whose metric its launches lack, is
        launched for; one that the session was made for and that it lacks cannot be measured here."""
        wanted = workload.spec.definition_hash
        name = workload.spec.name
        chosen = self.runs(name, Measured())
        sides = [
            [run for run in runs if not run.spoiled and run.environment.get("workload_hash") == wanted]
            for runs in (chosen.baseline, chosen.candidate)
        ]
        places = [{(r.launch.schedule, r.launch.pair) for r in runs if r.launch.schedule} for runs in sides]
        if len(places[0] & places[1]) < self.settings.min_launches:
            return False
        judged = self.judge({name: sides[0]}, {name: sides[1]})
        if _lacking(judged, name) - self._lacked_when_measured(name, (*sides[0], *sides[1])):
            return False
        known = Floors(self.store, self.settings).foresee({name: (*sides[0], *sides[1])})
        return next_action(judged, self.settings, foreseen=by_gate(known, [name])).done

    def _lacked_when_measured(self, name: str, runs: Sequence[Run]) -> set[tuple[str, str]]:
        """The gates that were not measured according to the comparison for which these runs were made: the first one
        stored after them, whichever side came first."""
        sides = (self.baseline.identity, self.candidate.identity)
        measured_at = max(run.launch.started_at for run in runs)
        stored = [
            one
            for left, right in (sides, sides[::-1])
            for one in self.store.comparisons(baseline=left, candidate=right)
            if one.stored_at >= measured_at and any(w.workload == name for w in one.comparison.workloads)
        ]
        first = min(stored, key=lambda one: one.stored_at, default=None)
        return set() if first is None else _lacking(first.comparison.workloads, name)

    def runs(self, name: str, measured: Measured) -> Chosen:
        """The runs of both sides to judge, with what must be said about them."""
        if name in measured.baseline or name in measured.failures:
            return Chosen(
                baseline=tuple(measured.baseline.get(name, ())), candidate=tuple(measured.candidate.get(name, ()))
            )
        left = self.store.runs(name, self.baseline.identity)
        right = self.store.runs(name, self.candidate.identity)
        repository = self.workspace.repository
        notes: list[Note] = []
        too_far = False
        if not left and right and repository is not None and not self.request.measure:
            limit = self.workspace.project.general.stand_in_distance
            found = stand_in(repository, self.store, name, self.baseline, right, limit=limit)
            if found is None:
                text = (
                    f"{self.baseline.label} was never measured, nor any ancestor in this environment, "
                    f"nor one in another within {limit} commits"
                )
                notes.append(Note(code="baseline-never-measured", text=f"{text}; --measure does it"))
            else:
                left, too_far = found.runs, found.too_far
                notes.append(found.note)
        if not left and not right and not self.request.measure:
            sides = f"neither {self.baseline.label} nor {self.candidate.label}"
            notes.append(Note(code="never-measured", text=f"{sides} was measured; --measure does it"))
        chosen = choose_runs(left, right)
        return replace(chosen, notes=(*notes, *chosen.notes), too_far=too_far)

    def definition_notes(self) -> tuple[Note, ...]:
        """Workload files that differ between the revisions: the change may be in the measuring, not in the code."""
        repository = self.workspace.repository
        if repository is None or self.baseline.tree is None or self.candidate.tree is None:
            return ()
        notes = []
        for workload in self.workloads:
            if workload.definition_file is None or workload.spec.directory == ".":
                continue
            changed = repository.changed_paths(self.baseline, self.candidate, workload.spec.directory)
            if changed:
                listed = ", ".join(changed[:3]) + (", …" if len(changed) > 3 else "")
                text = f"the workload {workload.spec.name} itself differs between the two revisions: {listed}"
                notes.append(Note(code="workload-changed", text=text))
        return tuple(notes)


def _lacking(workloads: Sequence[WorkloadComparison], name: str) -> set[tuple[str, str]]:
    """The gates (phase, metric) of a workload whose metric neither side has."""
    return {
        (row.phase, row.metric)
        for workload in workloads
        if workload.workload == name
        for row in workload.rows
        if row.gated and row.reason is Reason.NOT_MEASURED
    }


def _against_files(
    workspace: Workspace,
    store: Store,
    request: CompareRequest,
    *,
    workloads: tuple[Workload, ...],
    revision: str,
    progress: Progress,
) -> Comparison:
    """``@baseline..REV``: the candidate against the reviewed baseline files, without a baseline run."""
    settings = settings_for(workspace, workloads, request)
    to_measure = request.measure or request.remeasure
    candidate = resolve_candidate(workspace, store, revision, dirty=request.dirty, to_measure=to_measure)
    patterns = () if request.command else request.patterns
    names = names_against_files(workspace, store, workloads, patterns)
    if not names:
        raise UsageError(
            f"nothing to compare: no workload is configured, and {workspace.project.baselines} holds no baseline file",
            todo="perfci baseline accept REVISION -w NAME --reason TEXT writes one",
        )
    failures: dict[str, Note] = {}
    if to_measure:
        failures = launch_missing(
            workspace,
            store,
            workloads,
            candidate,
            settings=settings,
            remeasure=request.remeasure,
            lock_clocks=request.lock_clocks,
            progress=progress,
        )
    comparison = compare_with_files(
        workspace,
        candidate,
        {name: store.runs(name, candidate.identity) for name in names},
        settings,
        workloads=workloads,
        failures=failures,
        floors=Floors(store, settings),
    )
    return keep(store, comparison, progress)


def _configured(workspace: Workspace, request: CompareRequest) -> tuple[Workload, ...]:
    """The selected workloads of the configuration. A plain name that it does not know may be one of imported runs."""
    if request.measure or request.command:
        return chosen_workloads(workspace, request.patterns, preset=request.preset, command=request.command)
    patterns = tuple(pattern for pattern in request.patterns if workspace.project.knows(pattern))
    if not workspace.project.sections or (request.patterns and not patterns):
        return ()
    return workspace.project.select(patterns, preset=request.preset)


def _with_places(workload: WorkloadComparison, measured: Measured) -> WorkloadComparison:
    """Lines of code at findings and kernels, where the probe was launched; a note where its launch failed."""
    name = workload.workload
    if name in measured.places:
        workload = located(workload, *measured.places[name])
    return replace(workload, notes=(*workload.notes, measured.notes[name])) if name in measured.notes else workload
