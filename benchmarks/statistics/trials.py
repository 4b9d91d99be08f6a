"""perfci's judge on simulated sessions: the code that judges pull requests, fed with samples instead of traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from noise_models import Array, NoiseModel, Sessions, simulate

from perfci.model.comparison import Row
from perfci.model.environment import Environment
from perfci.model.history import NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Launch, Revision, Run, Series
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.collect import SeriesSamples, SideSamples
from perfci.stats.evidence import evidence_of
from perfci.stats.gates import LookPlan
from perfci.stats.judge import judge_series
from perfci.stats.noise import floor_of
from perfci.stats.pinned import judge_pinned, pin
from perfci.stats.plan import look_sizes, looks_until, open_gate

METRICS = ("unprofiled_wall_ns", "gpu_busy_ns", "peak_allocated_bytes")
"""The noisy ones among the default gates: the family of one comparison."""
LEVEL_NS = 1e8
_START = datetime(2026, 1, 1, tzinfo=UTC)


def settings(*, budget: float = 0.02, max_launches: int = 12, error_rate: float = 0.01) -> JudgeSettings:
    """Three noisy gates with one budget."""
    gates = tuple(Gate(metric=metric, budget_ratio=budget) for metric in METRICS)
    return JudgeSettings(gates=gates, max_launches=max_launches, error_rate=error_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Outcome of one simulated comparison; ``launches`` per side."""

    verdicts: tuple[Verdict, ...]
    launches: int

    @property
    def alarm(self) -> bool:
        """True when any gate said REGRESSION."""
        return Verdict.REGRESSION in self.verdicts


def samples_of(sessions: Sessions) -> tuple[Array, Array]:
    """Median step of each launch, shape (sessions, launches) per side, as times."""
    baseline, candidate = (
        LEVEL_NS * np.exp(np.median(side, axis=2)) for side in (sessions.baseline, sessions.candidate)
    )
    return baseline, candidate


def _side(values: Array, position: Sequence[int], *, sequential: bool) -> SideSamples:
    pairs = tuple(None if sequential else ("s", index) for index in range(len(values)))
    return SideSamples(
        values=tuple(float(round(value)) for value in values),
        exact=(None,) * len(values),
        pairs=pairs,
        times=tuple(float(at) for at in position),
    )


def judge(
    series: Sequence[SeriesSamples],
    wanted: JudgeSettings,
    plan: LookPlan | None,
    *,
    floors: Sequence[float | None] = (),
) -> list[Row]:
    """The rows of one comparison. ``floors`` are the known noise of the gates, as in METRICS."""
    known = dict(zip(METRICS, floors, strict=False))
    return judge_series(
        "w", series, wanted, weigh=lambda entry: evidence_of(entry, noise_floor=known.get(entry.metric)), plan=plan
    )


def prefix(baseline: Array, candidate: Array, sessions: Sessions, n: int, gates: int) -> list[SeriesSamples]:
    """The first ``n`` launches of ``gates`` neighbouring sessions as the gates of one comparison."""
    return [
        SeriesSamples(
            phase="step",
            metric=METRICS[gate],
            baseline=_side(baseline[gate, :n], sessions.baseline_position[:n].tolist(), sequential=sessions.sequential),
            candidate=_side(
                candidate[gate, :n], sessions.candidate_position[:n].tolist(), sequential=sessions.sequential
            ),
        )
        for gate in range(gates)
    ]


def fixed(
    model: NoiseModel,
    *,
    rng: np.random.Generator,
    comparisons: int,
    launches: int,
    effect: float = 0.0,
    budget: float = 0.02,
    steps: int = 50,
) -> list[Trial]:
    """Comparisons of three gates with a fixed number of launches, looked at once."""
    sessions = simulate(model, rng=rng, sessions=3 * comparisons, launches=launches, effect=effect, steps=steps)
    return fixed_on(sessions, budget=budget)


def fixed_on(sessions: Sessions, *, budget: float = 0.02) -> list[Trial]:
    """The same on given sessions, three of them to a comparison."""
    baseline, candidate = samples_of(sessions)
    wanted = settings(budget=budget)
    trials = []
    for at in range(0, len(baseline) - 2, 3):
        n = baseline.shape[1]
        rows = judge(prefix(baseline[at : at + 3], candidate[at : at + 3], sessions, n, 3), wanted, None)
        trials.append(Trial(verdicts=tuple(row.verdict for row in rows if row.verdict), launches=n))
    return trials


def calibrated_on(sessions: Sessions, calibrations: Sessions, *, budget: float = 0.02) -> list[Trial]:
    """As ``fixed_on``, with a noise floor for each gate from equal code: both sides of ``calibrations``, which has as
    many sessions."""
    baseline, candidate = samples_of(sessions)
    before = np.concatenate(samples_of(calibrations), axis=1)
    wanted = settings(budget=budget)
    trials = []
    for at in range(0, len(baseline) - 2, 3):
        n = baseline.shape[1]
        floors = [_upper(before[at + gate].tolist()) for gate in range(3)]
        rows = judge(prefix(baseline[at : at + 3], candidate[at : at + 3], sessions, n, 3), wanted, None, floors=floors)
        trials.append(Trial(verdicts=tuple(row.verdict for row in rows if row.verdict), launches=n))
    return trials


def _upper(samples: Sequence[float]) -> float | None:
    floor = floor_of("step", METRICS[0], Statistic.MEDIAN, [samples])
    return None if floor is None else floor.upper


def adaptive_on(sessions: Sessions, *, budget: float = 0.02, error_rate: float = 0.01) -> list[Trial]:
    """Comparisons that look after every block and stop when each gate is decided or hopeless."""
    baseline, candidate = samples_of(sessions)
    wanted = settings(budget=budget, max_launches=baseline.shape[1], error_rate=error_rate)
    trials = []
    for at in range(0, len(baseline) - 2, 3):
        for n in look_sizes(wanted):
            plan = LookPlan(looks=looks_until(n, wanted), planned=wanted.max_launches)
            rows = judge(prefix(baseline[at : at + 3], candidate[at : at + 3], sessions, n, 3), wanted, plan)
            if not any(open_gate(row, wanted) for row in rows):
                break
        trials.append(Trial(verdicts=tuple(row.verdict for row in rows if row.verdict), launches=n))
    return trials


def repeated_on(repetitions: Sequence[Sessions], error_rates: Sequence[float]) -> list[list[Trial]]:
    """The same comparisons measured again and again: for each session its trials, judged at its error rate."""
    return [adaptive_on(one, error_rate=rate) for one, rate in zip(repetitions, error_rates, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Simulated launches against accepted levels, as times: shape (series, launches), and of the history before
    (series, sessions, launches). Three neighbouring series make one comparison."""

    levels: Array
    candidates: Array
    history: Array


def accepted(
    model: NoiseModel,
    *,
    rng: np.random.Generator,
    comparisons: int,
    launches: tuple[int, int],
    history: tuple[int, int] = (0, 0),
    session: float = 0.0,
    effect: float = 0.0,
    steps: int = 50,
) -> Accepted:
    """``launches`` of the level and of the candidate, ``history`` as (sessions, launches in each). Every session of
    every series lies off by its own luck, of the standard deviation ``session``."""

    def drawn(sessions: int, count: int) -> Array:
        made = simulate(model, rng=rng, sessions=sessions, launches=(count + 1) // 2, steps=steps)
        values = np.concatenate(samples_of(made), axis=1)[:, :count]
        return values * np.exp(session * rng.standard_normal((sessions, 1)))

    rows = 3 * comparisons
    before, each = history
    return Accepted(
        levels=drawn(rows, launches[0]),
        candidates=drawn(rows, launches[1]) * (1 + effect),
        history=drawn(rows * before, each).reshape(rows, before, each) if before else np.empty((rows, 0, 0)),
    )


def accepted_on(drawn: Accepted, *, sessions: int, budget: float = 0.02) -> list[Trial]:
    """Each candidate against its accepted level, as ``compare @baseline..REV`` judges it: the first ``sessions`` of the
    history tell the noise within and between sessions, where they are enough."""
    wanted = settings(budget=budget)
    trials = []
    for at in range(0, len(drawn.levels) - 2, 3):
        known = [_floor(drawn.history[at + gate, :sessions].tolist()) for gate in range(3)]
        noise = {("step", metric): floor for metric, floor in zip(METRICS, known, strict=True) if floor is not None}
        level = pin(_runs(drawn.levels[at : at + 3]), reason="simulated", accepted_on="2026-01-01", floors=noise)
        uppers = {key: floor.upper for key, floor in noise.items()}
        judged = judge_pinned(level, _runs(drawn.candidates[at : at + 3]), wanted, noise_floors=uppers)
        verdicts = tuple(row.verdict for row in judged.rows if row.verdict)
        trials.append(Trial(verdicts=verdicts, launches=drawn.candidates.shape[1]))
    return trials


def _floor(sessions: Sequence[Sequence[float]]) -> NoiseLevel | None:
    found = floor_of("step", METRICS[0], Statistic.MEDIAN, sessions)
    if found is None:
        return None
    return NoiseLevel(
        phase=found.phase,
        metric=found.metric,
        statistic=found.statistic,
        deviation=found.deviation,
        upper=found.upper,
        launches=found.launches,
        session=found.session,
        calibrated=False,
    )


def _runs(values: Array) -> list[Run]:
    """One run per column, of one step; the rows are METRICS."""
    return [
        Run(
            workload="w",
            revision=Revision(label="r"),
            environment=Environment(),
            launch=Launch(started_at=_START + timedelta(minutes=at), duration_ns=1, schedule="s", pair=at, position=at),
            step_count=1,
            series=tuple(
                Series(phase="step", metric=metric, values=(round(value),))
                for metric, value in zip(METRICS, column, strict=True)
            ),
        )
        for at, column in enumerate(values.T.tolist())
    ]
