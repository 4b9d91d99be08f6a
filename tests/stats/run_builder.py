"""Runs for statistics tests: small, valid, with the numbers a test asks for."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from perfci.model.environment import Environment
from perfci.model.metrics import METRICS, Statistic, Unit
from perfci.model.run import Launch, Note, Revision, Run, Series

START = datetime(2026, 1, 1, tzinfo=UTC)
ENVIRONMENT = Environment.of({"gpu_model": "H200", "driver": "570.2", "world_size": "1"})


def series(metric: str, value: float, *, phase: str = "step", steps: int = 2) -> Series:
    """A series whose sample is ``value``. A count may be fractional: its total over the steps is what is kept."""
    spec = METRICS[metric]
    if spec.unit in (Unit.RATIO, Unit.PER_SECOND):
        whole: list[float] = [float(value)] * steps
    elif spec.statistic is Statistic.MEAN:
        total = round(value * steps)
        whole = [total // steps + (1 if index < total % steps else 0) for index in range(steps)]
    else:
        whole = [round(value)] * steps
    return Series(phase=phase, metric=metric, values=tuple(whole[:1] if spec.statistic is Statistic.SINGLE else whole))


def run(
    values: dict[tuple[str, str], float],
    *,
    label: str = "base",
    schedule: str = "",
    pair: int = 0,
    position: int = 0,
    minute: float | None = None,
    environment: Environment = ENVIRONMENT,
    spoiled: bool = False,
    losses: Sequence[float] = (),
    workload: str = "tiny",
    steps: int = 2,
) -> Run:
    """One run from ``{(phase, metric): sample}``."""
    return Run(
        workload=workload,
        revision=Revision(label=label),
        environment=environment,
        launch=Launch(
            started_at=START + timedelta(minutes=position if minute is None else minute),
            duration_ns=1,
            schedule=schedule,
            pair=pair,
            position=position,
        ),
        step_count=steps,
        series=tuple(series(metric, value, phase=phase, steps=steps) for (phase, metric), value in values.items()),
        losses=tuple(losses),
        notes=(Note(code="throttled", text="throttled", spoils=True),) if spoiled else (),
    )


def paired(
    baseline: Sequence[float], candidate: Sequence[float], *, metric: str = "gpu_busy_ns", phase: str = "step"
) -> tuple[list[Run], list[Run]]:
    """Two sides interleaved in one schedule, ABBA."""
    sides: tuple[list[Run], list[Run]] = ([], [])
    for pair, both in enumerate(zip(baseline, candidate, strict=True)):
        for side in (0, 1):
            position = 2 * pair + (side if pair % 2 == 0 else 1 - side)
            values = {(phase, metric): both[side]}
            sides[side].append(run(values, label=("base", "cand")[side], schedule="s", pair=pair, position=position))
    return sides


def unpaired(
    baseline: Sequence[float], candidate: Sequence[float], *, metric: str = "gpu_busy_ns", same_time: bool = True
) -> tuple[list[Run], list[Run]]:
    """Two sides without a schedule: at unknown (equal) times, or one after the other."""
    sides: tuple[list[Run], list[Run]] = ([], [])
    for side, values in enumerate((baseline, candidate)):
        for index, value in enumerate(values):
            minute = 0 if same_time else index + side * len(baseline)
            sides[side].append(run({("step", metric): value}, label=("base", "cand")[side], minute=minute))
    return sides
