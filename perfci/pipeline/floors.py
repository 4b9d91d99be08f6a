"""Known noise of equal code: which of the stored floors count, what they predict of a plan, and how that is said."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perfci.model.environment import Environment
from perfci.model.history import NoiseLevel
from perfci.model.metrics import METRICS
from perfci.model.run import Note, Run
from perfci.model.settings import JudgeSettings
from perfci.pipeline.judging import as_planned, environment_of
from perfci.stats.collect import SeriesKey
from perfci.stats.foresight import Prediction, predict
from perfci.stats.noise import declared_levels, floors_of_samples, widest
from perfci.store.store import Store

_CALIBRATE_AGAIN = "perfci calibrate measures the floor that is wanted"


@dataclass(frozen=True, slots=True)
class Floors:
    """The noise floors that a comparison under these settings may use."""

    store: Store
    settings: JudgeSettings

    def levels(self, workload: str, runs: Sequence[Run]) -> dict[SeriesKey, NoiseLevel]:
        """The floor of each series, of the statistic that is judged: the calibrated one, else what launches made before
        the first of these runs tell.

        Without runs the environment is not known yet: of several calibrated floors the largest counts, and history is
        that of the environment seen last.
        """
        environment = environment_of(runs)
        stored = self.store.noise_levels(workload, environment=environment)
        calibrated = widest(declared_levels(stored, self.settings)[0])
        place = environment or next(iter(self.store.environments(workload)), None)
        before = min((run.launch.started_at for run in runs), default=None)
        return {**(self.of_history(workload, place, before=before) if place else {}), **calibrated}

    def of_history(
        self, workload: str, environment: Environment, *, before: datetime | None = None
    ) -> dict[SeriesKey, NoiseLevel]:
        """What stored launches of equal code tell of noise. The store keeps samples of a metric's own statistic: where
        another one is declared, history tells nothing."""
        samples = self.store.launch_samples(workload, environment=environment, before=before)
        levels = [
            NoiseLevel(
                phase=floor.phase,
                metric=floor.metric,
                statistic=floor.statistic,
                deviation=floor.deviation,
                upper=floor.upper,
                launches=floor.launches,
                session=floor.session,
                calibrated=False,
            )
            for floor in floors_of_samples(samples).values()
        ]
        return widest(declared_levels(levels, self.settings)[0])

    def to_judge(self, workload: str, runs: Sequence[Run]) -> Mapping[SeriesKey, float]:
        """The numbers that the judge takes."""
        return {key: level.upper for key, level in self.levels(workload, runs).items()}

    def notes(self, workload: str, environment: Environment | None) -> tuple[Note, ...]:
        """What must be said of floors that do not count, because another statistic is declared today."""
        unused = declared_levels(self.store.noise_levels(workload, environment=environment), self.settings)[1]
        gated = [
            level
            for level in widest(unused).values()
            if self.settings.gate_for(workload=workload, phase=level.phase, metric=level.metric) is not None
        ]
        if not gated:
            return ()
        declared = dict(self.settings.statistics)
        named = ", ".join(
            f"{level.phase}/{level.metric} (calibrated with {level.statistic.value}, judged by "
            f"{declared.get(level.metric, METRICS[level.metric].statistic).value})"
            for level in gated[:3]
        )
        more = f" and {len(gated) - 3} more" if len(gated) > 3 else ""
        text = f"noise floors not used: {named}{more}; {_CALIBRATE_AGAIN}"
        return (Note(code="noise-floor-unused", text=text),)

    def foresee(self, runs: Mapping[str, Sequence[Run]]) -> dict[str, dict[SeriesKey, tuple[NoiseLevel, Prediction]]]:
        """What the floors of these workloads predict for their noisy gates, all of them one family. ``runs`` are those
        of both sides so far. Workloads without a floor are left out."""
        levels = {name: self.levels(name, mine) for name, mine in runs.items()}
        gates = {name: self._gated(name, known) for name, known in levels.items()}
        families = max(1, sum(map(len, gates.values())))
        found = {}
        for name, known in gates.items():
            deviations = {key: level.deviation for key, level in known.items()}
            # A repeated session has its share of the error rate only, and needs more launches.
            rate = as_planned(self.settings, runs[name]).error_rate
            own = replace(self.settings, error_rate=rate)
            predicted = predict(deviations, own, workload=name, families=families)
            if predicted:
                found[name] = {key: (known[key], prediction) for key, prediction in predicted.items()}
        return found

    def _gated(self, workload: str, levels: Mapping[SeriesKey, NoiseLevel]) -> dict[SeriesKey, NoiseLevel]:
        deviations = {key: level.deviation for key, level in levels.items()}
        return {key: levels[key] for key in predict(deviations, self.settings, workload=workload, families=1)}


def forecast(foreseen: Mapping[SeriesKey, tuple[NoiseLevel, Prediction]], *, most: int) -> Iterator[str]:
    """A line for each noisy gate of a workload whose noise is known: what its plan of at most ``most`` launches a side
    may expect."""
    for (phase, metric), (level, prediction) in foreseen.items():
        needed = prediction.launches
        number = "more launches than any plan has" if needed is None else f"about {needed} launches per side"
        end = ""
        if not prediction.within_reach:
            end = f": out of reach of the {most} of this plan, it will not be waited for"
        elif needed is None or needed > most:
            end = f": more than the {most} of this plan, it may stay open"
        yield (
            f"{phase}/{metric} needs {number} for its {100 * prediction.budget_ratio:.3g} % budget{end} "
            f"(noise {math.expm1(level.deviation):.2%} between launches, {origin(level)})"
        )


def origin(level: NoiseLevel) -> str:
    """Where a floor comes from."""
    return (
        f"calibrated with {level.launches} launches"
        if level.calibrated
        else f"seen in {level.launches} launches before"
    )


def by_gate(
    foreseen: Mapping[str, Mapping[SeriesKey, tuple[NoiseLevel, Prediction]]], names: Sequence[str]
) -> dict[tuple[str, str, str], Prediction]:
    """The predictions as the plan takes them."""
    return {
        (name, phase, metric): prediction
        for name in names
        for (phase, metric), (_, prediction) in foreseen.get(name, {}).items()
    }
