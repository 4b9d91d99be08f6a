"""From runs to aligned samples: which runs count, and one number per run for each (phase, metric)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from perfci.model.comparison import Side
from perfci.model.metrics import METRICS, Kind, Statistic
from perfci.model.run import Run, Series
from perfci.model.samples import sample_of
from perfci.model.settings import JudgeSettings

SeriesKey = tuple[str, str]
"""(phase, metric)."""
PairKey = tuple[str, int]
"""(schedule, pair): two launches, one of each side, that stood next to each other in one interleaved schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSamples:
    """The samples of one side for one series, in launch order. All tuples have the same length.

    ``exact`` holds the unrounded totals per step of counts (None for other metrics); ``pairs`` the place in an
    interleaved schedule (None: not interleaved); ``times`` the start of each launch in seconds since the epoch.
    """

    values: tuple[float, ...] = ()
    exact: tuple[Fraction | None, ...] = ()
    pairs: tuple[PairKey | None, ...] = ()
    times: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def positive(self) -> bool:
        """True when a logarithm can be taken of every value (also with no values)."""
        return all(value > 0 for value in self.values)

    def summary(self) -> Side:
        """Location and spread for the reader: the geometric mean, so that the ratio of two locations is the effect;
        the arithmetic mean where a value is not positive."""
        if not self.values:
            return Side()
        values = np.asarray(self.values)
        mean = float(values.mean())
        location = float(np.exp(np.log(values).mean())) if self.positive else mean
        constant = len(set(self.values)) == 1
        if constant:
            location = self.values[0]
        spread = None
        if len(values) > 1 and mean:
            spread = 0.0 if constant else float(values.std(ddof=1)) / abs(mean)
        return Side(samples=self.values, location=location, spread_ratio=spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSamples:
    """One series on both sides."""

    phase: str
    metric: str
    baseline: SideSamples
    candidate: SideSamples

    @property
    def kind(self) -> Kind:
        """EXACT only for a declared count that every launch of each side reproduces to the unit. A count seen to vary
        is NOISY. With one launch a side a count is taken at its word."""
        sides = (self.baseline.exact, self.candidate.exact)
        if METRICS[self.metric].kind is Kind.EXACT and all(len(set(side)) <= 1 and None not in side for side in sides):
            return Kind.EXACT
        return Kind.NOISY


def usable(runs: Iterable[Run]) -> list[Run]:
    """The runs that may be judged, in launch order: those without a note that spoils them."""
    return sorted(
        (run for run in runs if not run.spoiled), key=lambda run: (run.launch.started_at, run.launch.position)
    )


def collect(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    *,
    statistics_of: Mapping[SeriesKey, Statistic] | None = None,
) -> tuple[SeriesSamples, ...]:
    """Samples of every series seen on either side, ordered by phase as first seen, then as in the metric table.

    Counts are taken over the same number of steps in all runs (the shortest window), so that a log every 20 steps
    does not differ between a window of 30 steps and one of 29.
    """
    sides = [(_by_key(baseline)), (_by_key(candidate))]
    phases: dict[str, int] = {}
    for side in sides:
        for phase, _ in side:
            phases.setdefault(phase, len(phases))
    order = {name: index for index, name in enumerate(METRICS)}
    keys = sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (phases[key[0]], order[key[1]]))
    chosen = statistics_of or {}
    return tuple(
        SeriesSamples(
            phase=phase,
            metric=metric,
            baseline=samples[0],
            candidate=samples[1],
        )
        for phase, metric in keys
        for samples in [_samples([side.get((phase, metric), []) for side in sides], chosen.get((phase, metric)))]
    )


def statistics_of(settings: JudgeSettings, runs: Sequence[Run]) -> dict[SeriesKey, Statistic]:
    """The declared statistic of each series of the runs whose metric has one."""
    declared = dict(settings.statistics)
    return {(s.phase, s.metric): declared[s.metric] for run in runs for s in run.series if s.metric in declared}


def _by_key(runs: Sequence[Run]) -> dict[SeriesKey, list[tuple[Run, Series]]]:
    found: dict[SeriesKey, list[tuple[Run, Series]]] = {}
    for run in runs:
        for series in run.series:
            found.setdefault((series.phase, series.metric), []).append((run, series))
    return found


def _samples(sides: list[list[tuple[Run, Series]]], statistic: Statistic | None) -> list[SideSamples]:
    window = min((len(series.values) for side in sides for _, series in side), default=0)
    result = []
    for side in sides:
        built = []
        for _, series in side:
            exact_kind = METRICS[series.metric].kind is Kind.EXACT
            cut = replace(series, values=series.values[:window]) if exact_kind else series
            built.append(sample_of(cut, statistic=None if exact_kind else statistic))
        result.append(
            SideSamples(
                values=tuple(sample.value for sample in built),
                exact=tuple(sample.exact for sample in built),
                pairs=tuple((run.launch.schedule, run.launch.pair) if run.launch.schedule else None for run, _ in side),
                times=tuple(run.launch.started_at.timestamp() for run, _ in side),
            )
        )
    return result
