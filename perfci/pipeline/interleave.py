"""Two sides launched in turns, in pairs, until every gate is decided or the effort is spent."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfci.capture.schedule import SideName, Slot, next_round, pair_slots
from perfci.capture.worktree import Worktree, worktrees
from perfci.config.load import Workload
from perfci.errors import MeasurementError
from perfci.model.comparison import WorkloadComparison
from perfci.model.run import Note, Revision, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.bench import Bench, Place
from perfci.pipeline.floors import Floors, by_gate, forecast
from perfci.pipeline.locate import not_located, probe, wants_probe
from perfci.pipeline.measure import bench_for, launch_folder, new_schedule, prepare_checkout, said, say_notes
from perfci.pipeline.progress import Progress
from perfci.pipeline.sides import told_apart
from perfci.pipeline.workspace import Workspace
from perfci.probe.locations import Location
from perfci.report.wording import plural
from perfci.stats.plan import PAIRS_PER_BLOCK, Foreseen, Stop, next_action
from perfci.stats.sessions import next_session, share_text
from perfci.store.store import Store

MOST_ATTEMPTS = 3
"""Times a pair is launched because a launch of it was spoiled; after that the machine is not fit to measure."""

_TOO_WIDE_RATIO = 10.0
"""Upper bound of an interval from which on its numbers tell nobody anything: eleven times as long."""

_WHY_STOPPED = {
    Stop.DECIDED: "every gate is decided",
    Stop.HOPELESS: "more launches would not decide the gates that are still open",
    Stop.MAX_LAUNCHES: "these are all that the plan has",
    Stop.OUT_OF_TIME: "the time is over",
}

Runs = dict[str, list[Run]]
Judge = Callable[[Mapping[str, Sequence[Run]], Mapping[str, Sequence[Run]]], Sequence[WorkloadComparison]]
"""Judges all workloads on the runs so far: (baseline runs by workload, candidate runs by workload)."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """Runs of both sides of each workload, and why a workload could not be measured."""

    baseline: Runs = field(default_factory=dict)
    candidate: Runs = field(default_factory=dict)
    failures: dict[str, Note] = field(default_factory=dict)
    places: dict[str, tuple[tuple[Location, ...], tuple[Location, ...]]] = field(default_factory=dict)
    """Lines of code seen by the probe, of baseline and candidate."""
    notes: dict[str, Note] = field(default_factory=dict)
    checkout_notes: tuple[Note, ...] = ()
    """What the checkouts of the sides lack."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One interleaved measurement of two sides. Every run is stored at once: an interruption loses nothing."""

    workspace: Workspace
    store: Store
    limits: JudgeSettings
    judge: Judge
    progress: Progress
    seed: int = field(default_factory=lambda: secrets.randbits(32))
    schedule: str = field(default_factory=new_schedule)
    measured: Measured = field(default_factory=Measured)
    still_open: dict[str, Workload] = field(default_factory=dict)
    _notes: dict[tuple[str, SideName], tuple[Note, ...]] = field(default_factory=dict)
    _ordinals: dict[tuple[str, object], int] = field(default_factory=dict)
    _sides: tuple[str, str] = ("", "")
    _position: int = 0
    _started_s: float = field(default_factory=time.monotonic)

    def measure(
        self, workloads: Sequence[Workload], baseline: Revision, candidate: Revision, *, lock_clocks: bool
    ) -> Measured:
        """Launch until decided. A workload whose launch fails is given up (``failures``); the others go on."""
        repository = self.workspace.require_repository()
        self._sides = (baseline.identity, candidate.identity)
        job = f"perfci compare {baseline.label}..{candidate.label}"
        with (
            bench_for(self.workspace, workloads, lock_clocks=lock_clocks, job=job, progress=self.progress) as bench,
            worktrees(repository, (baseline, candidate)) as (left, right),
        ):
            sides = {SideName.BASELINE: left, SideName.CANDIDATE: right}
            self.measured.checkout_notes = say_notes((left, right), self.progress)
            self._prepare(workloads, sides)
            limits = self.limits
            self.progress.line(
                f"measuring {baseline.label} and {candidate.label} in turns (seed {self.seed}): up to "
                f"{plural(limits.max_launches, 'launch')} per side, at most {limits.max_minutes:g} min"
            )
            self._forecast(workloads)
            for block in range(-(-limits.max_launches // PAIRS_PER_BLOCK)):
                self._launch_block(bench, sides, block)
                if not self.still_open:
                    break
                if self._out_of_time():
                    self.progress.line(f"stopped: {limits.max_minutes:g} min are over")
                    break
                if (block + 1) * PAIRS_PER_BLOCK >= limits.min_launches and self._enough():
                    break
            self._locate(bench, sides, workloads)
        return self.measured

    def _prepare(self, workloads: Sequence[Workload], sides: Mapping[SideName, Worktree]) -> None:
        self.still_open = {workload.spec.name: workload for workload in workloads}
        for workload in workloads:
            try:
                for side, worktree in sides.items():
                    noted = prepare_checkout(self.workspace, workload, worktree, self.progress)
                    self._notes[workload.spec.name, side] = noted
            except MeasurementError as error:
                self._give_up(workload.spec.name, error)

    def _forecast(self, workloads: Sequence[Workload]) -> None:
        """Say what known noise predicts. The environment is known after the first launch only: the noisiest counts."""
        names = [workload.spec.name for workload in workloads]
        floors = Floors(self.store, self.limits)
        foreseen = floors.foresee(dict.fromkeys(names, ()))
        for name in names:
            lines = (*forecast(foreseen.get(name, {}), most=self.limits.max_launches),)
            for text in (*lines, *(note.text for note in floors.notes(name, None))):
                self.progress.line(f"  {name}: {text}")

    def _foreseen(self) -> Foreseen:
        """What known noise of the environments that the launches turned out to have predicts."""
        candidate = {name: runs for name, runs in self.measured.candidate.items() if runs}
        runs = {name: (*self.measured.baseline.get(name, ()), *mine) for name, mine in candidate.items()}
        return by_gate(Floors(self.store, self.limits).foresee(runs), list(runs))

    def _launch_block(self, bench: Bench, sides: Mapping[SideName, Worktree], block: int) -> None:
        slots = next_round(block=block, seed=self.seed, workloads=tuple(self.still_open))
        for first, second in zip(slots[::2], slots[1::2], strict=True):
            workload = self.still_open.get(first.workload)
            if workload is None or first.pair >= self.limits.max_launches:
                continue
            try:
                self._launch_pair(bench, sides, workload, (first, second))
            except MeasurementError as error:
                self._give_up(workload.spec.name, error)

    def _out_of_time(self) -> bool:
        return time.monotonic() - self._started_s > self.limits.max_minutes * 60

    def _launch_pair(
        self, bench: Bench, sides: Mapping[SideName, Worktree], workload: Workload, pair: tuple[Slot, Slot]
    ) -> None:
        name = workload.spec.name
        why = ""
        for _ in range(MOST_ATTEMPTS):
            # Both launches are made again when one is spoiled: a launch is comparable with its neighbour in time only.
            slots = pair_slots(pair=pair[0].pair, seed=self.seed, workload=name, first_position=self._position)
            runs = {slot.side: self._launch(bench, sides[slot.side], workload, slot) for slot in slots}
            if not any(run.spoiled for run in runs.values()):
                self.measured.baseline.setdefault(name, []).append(runs[SideName.BASELINE])
                self.measured.candidate.setdefault(name, []).append(runs[SideName.CANDIDATE])
                return
            why = "; ".join(sorted({note.text for run in runs.values() for note in run.notes if note.spoils}))
            self.progress.line(f"{name}: pair {pair[0].pair + 1} was spoiled and is launched again: {why}")
            if self._out_of_time():
                break
        raise MeasurementError(
            f"{name}: every launch of pair {pair[0].pair + 1} was spoiled: {why}",
            wanted="a machine that does nothing else while it measures",
            todo="see `perfci doctor`; stop other work on this GPU",
        )

    def _launch(self, bench: Bench, worktree: Worktree, workload: Workload, slot: Slot) -> Run:
        name, most = workload.spec.name, self.limits.max_launches
        label = f"{slot.side.value} {worktree.revision.label}"
        self.progress.status(f"{name}: launch {slot.pair + 1} of at most {most}, {label}")
        place = Place(
            checkout=worktree.path,
            private=self.workspace.private,
            revision=worktree.revision,
            folder=launch_folder(self.workspace, self.schedule, slot.position, f"{slot.side.value}-{name}"),
            schedule=self.schedule,
            pair=slot.pair,
            position=slot.position,
            seed=self.seed,
            plan=(self.limits.min_launches, self.limits.max_launches),
            notes=self._notes[name, slot.side],
        )
        self._position = slot.position + 1
        try:
            run = bench.run_once(workload, place)
        except MeasurementError as error:
            raise MeasurementError(f"{label}: {error.seen}", wanted=error.wanted, todo=error.todo) from error
        run = replace(run, launch=replace(run.launch, session=self._ordinal(run)))
        self.store.add_runs([run])
        self.progress.line(said(run, slot.pair + 1, most, side=slot.side.value))
        return run

    def _ordinal(self, run: Run) -> int:
        """Which session of this pair of revisions this is, in the environment that the launch turned out to have."""
        place = (run.workload, run.environment.key)
        if place not in self._ordinals:
            sides: tuple[Sequence[Run], Sequence[Run]] = (
                self.store.runs(run.workload, self._sides[0]),
                self.store.runs(run.workload, self._sides[1]),
            )
            left, right = told_apart(sides[1]) if self._sides[0] == self._sides[1] else sides
            self._ordinals[place] = number = next_session(left, right, like=run)
            if number > 1:
                self.progress.line(f"{run.workload}: session {number} of this pair, judged at {share_text(number)}")
        return self._ordinals[place]

    def _locate(self, bench: Bench, sides: Mapping[SideName, Worktree], workloads: Sequence[Workload]) -> None:
        """Launch both sides of a workload once more under the probe, where that may name lines of code."""
        wanted = {r.workload for r in self.judge(self.measured.baseline, self.measured.candidate) if wants_probe(r)}
        for workload in workloads:
            name = workload.spec.name
            if name not in wanted:
                continue
            self.progress.status(f"{name}: looking for the lines of code behind the findings")
            places = []
            try:
                for side, worktree in sides.items():
                    folder = launch_folder(self.workspace, self.schedule, self._position, f"probe-{side.value}-{name}")
                    self._position += 1
                    places.append(probe(bench, workload, worktree.path, folder))
            except MeasurementError as error:
                self.measured.notes[name] = not_located(error)
                self.progress.line(f"{name}: {self.measured.notes[name].text}")
                continue
            self.measured.places[name] = (places[0], places[1])

    def _give_up(self, name: str, error: MeasurementError) -> None:
        self.measured.failures[name] = Note(code="launch-failed", text=error.seen)
        self.still_open.pop(name, None)
        self.progress.line(f"{name}: given up: {error}")

    def _enough(self) -> bool:
        """Look at the results so far, close what is decided, say where the rest stands; True to stop."""
        judged = [
            w for w in self.judge(self.measured.baseline, self.measured.candidate) if w.workload in self.still_open
        ]
        durations = [run.launch.duration_ns for runs in self.measured.candidate.values() for run in runs]
        decision = next_action(
            judged,
            self.limits,
            elapsed_s=time.monotonic() - self._started_s,
            launch_s=sum(durations) / len(durations) / 1e9 if durations else None,
            foreseen=self._foreseen(),
        )
        self.still_open = {name: w for name, w in self.still_open.items() if name in decision.open_workloads}
        if decision.stop is not None:  # the report that follows tells each gate
            why = _WHY_STOPPED[decision.stop]
            self.progress.line(f"stopped after {plural(decision.launches_done, 'launch')} per side: {why}")
            return True
        for gate in decision.gates:
            if gate.effect is not None:
                low, high = gate.effect.low_ratio, gate.effect.high_ratio
                between = f"[{low:+.2%}, {high:+.2%}]" if high < _TOO_WIDE_RATIO else "(interval still very wide)"
                self.progress.line(
                    f"  {gate.workload} {gate.phase}/{gate.metric}: {gate.effect.value_ratio:+.2%} "
                    f"{between}, budget {gate.budget_ratio or 0:.2%}: {gate.state.value}"
                )
        left = "" if decision.remaining_s is None else f", about {decision.remaining_s / 60:.1f} min left"
        self.progress.line(
            f"  {decision.launches_done} of about {decision.launches_expected} launches per side "
            f"(at most {decision.launches_max}){left}"
        )
        return not self.still_open
