"""How much equal code differs from launch to launch: noise floors and calibration from A/A launches."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from perfci.model.history import LaunchSample, NoiseLevel
from perfci.model.metrics import METRICS, Kind, Statistic
from perfci.model.run import Run
from perfci.model.samples import sample_of
from perfci.model.settings import JudgeSettings
from perfci.model.verdict import Tally, Verdict
from perfci.stats.collect import SeriesKey, statistics_of, usable
from perfci.stats.foresight import predict
from perfci.stats.judge import judge_workload
from perfci.stats.power import FLOOR_LAUNCHES

FLOOR_CONFIDENCE = 0.8
"""A floor is an upper confidence bound of the deviation, so that luck does not make small samples bold."""
SESSION_DF = 4
"""Fewest degrees of freedom from which the noise between sessions counts as known: five sessions of one revision. With
three the bound is so uncertain that equal code would fail too often against accepted levels
(docs/decisions/0116-floors-from-history.md)."""
LOCATIONS = (Statistic.MEDIAN, Statistic.P10)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Noise of one series between launches of equal code, as standard deviations of log samples (0.01 is about 1 %).

    ``deviation`` is seen within sessions, ``upper`` its upper confidence bound, the floor to judge with. ``session`` is
    an upper confidence bound of the deviation between sessions of equal code beyond that (None: too few such sessions,
    not known). ``statistic`` is what makes a launch's steps one sample.
    """

    phase: str
    metric: str
    statistic: Statistic
    deviation: float
    upper: float
    launches: int
    session: float | None = None


def noise_floor(
    runs: Sequence[Run], *, statistics_of: Mapping[SeriesKey, Statistic] | None = None
) -> dict[SeriesKey, NoiseFloor]:
    """The floor of every series that at least FLOOR_LAUNCHES usable runs hold with positive values.

    Runs may come from several revisions and sessions: only launches of the same revision, environment key and
    schedule are compared with each other, so that changes of code do not count as noise. Exact counts that never
    vary have no floor.
    Zero variance gives a floor of 0, which judges nothing away.
    """
    chosen = statistics_of or {}
    groups = _Groups(lambda: defaultdict(list))
    for run in usable(runs):
        code = (run.workload, run.revision.identity, run.environment.key)
        for series in run.series:
            key = (series.phase, series.metric)
            statistic = chosen.get(key) if METRICS[series.metric].kind is Kind.NOISY else None
            groups[key][code, run.launch.schedule].append(sample_of(series, statistic=statistic).value)
    return _floors(groups, chosen)


def floors_of_samples(samples: Iterable[LaunchSample]) -> dict[SeriesKey, NoiseFloor]:
    """The floors that launches of one workload in one environment key tell, as ``noise_floor`` does of runs."""
    groups = _Groups(lambda: defaultdict(list))
    for one in samples:
        groups[one.phase, one.metric][one.revision, one.schedule].append(one.sample)
    return _floors(groups, {})


_Groups = defaultdict[SeriesKey, defaultdict[tuple[object, str], list[float]]]
"""Samples by series, and by session: (code, schedule)."""


def _floors(groups: _Groups, chosen: Mapping[SeriesKey, Statistic]) -> dict[SeriesKey, NoiseFloor]:
    floors = {}
    for (phase, metric), sessions in sorted(groups.items()):
        statistic = chosen.get((phase, metric)) or METRICS[metric].statistic
        codes = [code for code, _ in sessions]
        floor = floor_of(phase, metric, statistic, list(sessions.values()), codes=codes)
        exact = METRICS[metric].kind is Kind.EXACT
        if floor is not None and not (exact and floor.deviation == 0):
            floors[phase, metric] = floor
    return floors


def declared_levels(levels: Iterable[NoiseLevel], settings: JudgeSettings) -> tuple[list[NoiseLevel], list[NoiseLevel]]:
    """(levels of the statistic that is judged today, levels of another one). The latter say nothing about what is
    judged: the 10th percentile of the steps may be ten times as quiet as their median."""
    declared = dict(settings.statistics)
    found: tuple[list[NoiseLevel], list[NoiseLevel]] = ([], [])
    for level in levels:
        wanted = declared.get(level.metric, METRICS[level.metric].statistic)
        found[level.statistic is not wanted].append(level)
    return found


def widest(levels: Iterable[NoiseLevel]) -> dict[SeriesKey, NoiseLevel]:
    """One level per series; of several environments the noisiest, which may widen an interval and never narrows one."""
    found: dict[SeriesKey, NoiseLevel] = {}
    for level in sorted(levels, key=lambda level: level.upper):
        found[level.phase, level.metric] = level
    return found


def floor_of(
    phase: str,
    metric: str,
    statistic: Statistic,
    sessions: Sequence[Sequence[float]],
    *,
    codes: Sequence[object] | None = None,
) -> NoiseFloor | None:
    """The floor of one series from the samples of each session. ``codes`` tells for each session what code it measured
    (None: all the same).

    Sessions with a value of 0 or below are left out. None with too few launches: a second level of a program hides
    from n launches of one session with probability 2^-(n - 1), so that FLOOR_LAUNCHES in one session are worth as many
    degrees of freedom in several (docs/decisions/0116-floors-from-history.md).
    """
    usable_codes = codes if codes is not None else [None] * len(sessions)
    logs = [(code, np.log(session)) for code, session in zip(usable_codes, sessions, strict=True) if min(session) > 0]
    launches = sum(len(log) for _, log in logs)
    df = launches - len(logs)
    if df < FLOOR_LAUNCHES - 1:
        return None
    squares = sum(float(((log - log.mean()) ** 2).sum()) for _, log in logs)
    deviation = math.sqrt(squares / df)
    return NoiseFloor(
        phase=phase,
        metric=metric,
        statistic=statistic,
        deviation=deviation,
        upper=deviation * _upper_factor(df),
        launches=launches,
        session=_between(logs, deviation),
    )


def _upper_factor(df: int) -> float:
    """Upper confidence bound of a standard deviation over the deviation seen with ``df`` degrees of freedom, normal
    noise."""
    return math.sqrt(df / float(stats.chi2.ppf(1 - FLOOR_CONFIDENCE, df)))


def _between(logs: Sequence[tuple[object, np.ndarray]], deviation: float) -> float | None:
    """Upper confidence bound of the standard deviation between sessions of equal code, beyond what the launches within
    explain (the bound of the variance of session means, less the part that is explained; not below 0). None with fewer
    than SESSION_DF degrees of freedom.

    A bound, because what is accepted now widens intervals for months: the deviation seen between few sessions is too
    small as often as too large, and where it is too small every comparison with the level cries wolf.
    """
    by_code: dict[object, list[np.ndarray]] = defaultdict(list)
    for code, log in logs:
        by_code[code].append(log)
    repeated = [group for group in by_code.values() if len(group) > 1]
    df = sum(len(group) - 1 for group in repeated)
    if df < SESSION_DF:
        return None
    means = [np.array([log.mean() for log in group]) for group in repeated]
    seen = sum(float(((of_code - of_code.mean()) ** 2).sum()) for of_code in means) / df
    explained = deviation**2 * float(np.mean([1 / len(log) for group in repeated for log in group]))
    return math.sqrt(max(0.0, seen * _upper_factor(df) ** 2 - explained))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticChoice:
    """Which statistic of the steps differs less between launches of equal code, for one series of step times."""

    phase: str
    metric: str
    deviations: tuple[tuple[Statistic, float], ...]

    @property
    def quietest(self) -> Statistic:
        """The statistic with the least deviation; the first of LOCATIONS in a tie."""
        return min(self.deviations, key=lambda entry: entry[1])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What A/A launches of one revision say about judging this workload on this machine.

    ``splits`` ways to call one launch of each pair the candidate were judged; ``alarms`` of them gave a REGRESSION
    although the code is equal. The splits share their launches, so the rate speaks about these launches; it bounds
    nothing for the next ones.
    """

    workload: str
    launches: int
    floors: tuple[NoiseFloor, ...]
    choices: tuple[StatisticChoice, ...]
    splits: int
    alarms: int
    verdicts: Tally
    launches_needed: tuple[tuple[SeriesKey, int | None], ...] = ()

    @property
    def alarm_rate(self) -> float | None:
        """Share of splits with a false alarm, None without splits."""
        return self.alarms / self.splits if self.splits else None


def calibrate(runs: Sequence[Run], settings: JudgeSettings, *, seed: int, most_splits: int = 256) -> Calibration:
    """Judge one revision against itself.

    Neighbouring launches form pairs; each way to call one of each pair the candidate is a split (all of them, or
    ``most_splits`` drawn with ``seed``). Needs runs of one workload; with fewer than 4 usable runs there are no splits.
    Floors, splits and predictions are those of the statistics that the settings declare: of what will be judged.
    """
    kept = usable(runs)
    declared = statistics_of(settings, kept)
    floors = noise_floor(kept, statistics_of=declared)
    workload = kept[0].workload if kept else ""
    judged = [_only_gated(run, settings) for run in kept]
    splits = _splits(len(kept) // 2, seed, most_splits)
    verdicts = [_judge_split(judged, sides, settings, declared) for sides in splits]
    gated = max(1, sum(_gated(workload, key, settings) for key in floors))
    levels = {key: floor.deviation for key, floor in floors.items()}
    predicted = predict(levels, settings, workload=workload, families=gated)
    return Calibration(
        workload=workload,
        launches=len(kept),
        floors=tuple(floors.values()),
        choices=_choices(kept),
        splits=len(verdicts),
        alarms=verdicts.count(Verdict.REGRESSION),
        verdicts=Tally.of(verdicts),
        launches_needed=tuple(sorted((key, found.launches) for key, found in predicted.items())),
    )


def _only_gated(run: Run, settings: JudgeSettings) -> Run:
    """The run without evidence, which costs time in each split and cannot raise an alarm."""
    gated = [
        s for s in run.series if settings.gate_for(workload=run.workload, phase=s.phase, metric=s.metric) is not None
    ]
    return replace(run, series=tuple(gated), kernels=(), api_calls=(), findings=())


def _gated(workload: str, key: SeriesKey, settings: JudgeSettings) -> bool:
    gate = settings.gate_for(workload=workload, phase=key[0], metric=key[1])
    return gate is not None and METRICS[key[1]].kind is Kind.NOISY


def _splits(pairs: int, seed: int, most: int) -> Iterator[tuple[bool, ...]]:
    if pairs < 2:
        return
    if 2**pairs <= most:
        yield from itertools.product((False, True), repeat=pairs)
        return
    draw = random.Random(seed)  # noqa: S311  (a reproducible choice, not a secret)
    for _ in range(most):
        yield tuple(draw.random() < 0.5 for _ in range(pairs))


def _judge_split(
    runs: Sequence[Run], swapped: Sequence[bool], settings: JudgeSettings, declared: Mapping[SeriesKey, Statistic]
) -> Verdict:
    sides: tuple[list[Run], list[Run]] = ([], [])
    for pair, swap in enumerate(swapped):
        for place in (0, 1):
            run = runs[2 * pair + place]
            launch = replace(run.launch, schedule="calibration", pair=pair)
            sides[place ^ swap].append(replace(run, launch=launch))
    return judge_workload(*sides, settings, statistics_of=declared).tally.worst


def _choices(runs: Sequence[Run]) -> tuple[StatisticChoice, ...]:
    floors = {statistic: noise_floor(runs, statistics_of=_for_all(runs, statistic)) for statistic in LOCATIONS}
    keys = set.intersection(*(set(found) for found in floors.values()))
    return tuple(
        StatisticChoice(
            phase=phase,
            metric=metric,
            deviations=tuple((statistic, floors[statistic][phase, metric].deviation) for statistic in LOCATIONS),
        )
        for phase, metric in sorted(keys)
        if METRICS[metric].statistic is Statistic.MEDIAN
    )


def _for_all(runs: Sequence[Run], statistic: Statistic) -> dict[SeriesKey, Statistic]:
    return {
        (series.phase, series.metric): statistic
        for run in runs
        for series in run.series
        if METRICS[series.metric].statistic is Statistic.MEDIAN
    }
