"""Noise floors and calibration from launches of equal code."""

import math

import numpy as np
import pytest
from run_builder import run
from scipy import stats

from perfci.model.history import LaunchSample, NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Series
from perfci.model.samples import sample_of
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.noise import calibrate, declared_levels, floor_of, floors_of_samples, noise_floor, widest
from perfci.stats.power import FLOOR_LAUNCHES

KEY = ("step", "gpu_busy_ns")
SETTINGS = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.02), Gate(metric="sync_count")))


def launches(deviation: float, count: int, *, seed: int = 0, schedule: str = "s", level: float = 1e8, label: str = "a"):
    values = level * np.exp(deviation * np.random.default_rng(seed).standard_normal(count))
    return [
        run({KEY: v, ("step", "sync_count"): 4}, position=i, schedule=schedule, label=label)
        for i, v in enumerate(values)
    ]


def test_the_floor_is_the_deviation_of_logs_with_an_upper_bound() -> None:
    runs = launches(0.02, 12)
    floor = noise_floor(runs)[KEY]
    logs = np.log([r.series_of(*KEY).values[0] for r in runs])
    assert floor.deviation == pytest.approx(logs.std(ddof=1))
    assert floor.upper > floor.deviation
    assert floor.session is None


def test_the_upper_bound_holds_as_often_as_said() -> None:
    above = [noise_floor(launches(0.02, 8, seed=seed))[KEY].upper > 0.02 for seed in range(400)]
    assert np.mean(above) == pytest.approx(0.8, abs=0.07)


def test_few_launches_make_no_floor_and_counts_none() -> None:
    assert noise_floor(launches(0.02, FLOOR_LAUNCHES - 1)) == {}
    assert ("step", "sync_count") not in noise_floor(launches(0.02, 12))
    assert noise_floor([]) == {}


def test_changes_of_code_and_of_session_are_not_noise_within() -> None:
    runs = []
    for session in range(6):
        level = 1e8 * math.exp(np.random.default_rng(90 + session).normal(0, 0.05))
        runs += launches(0.002, 5, seed=session, schedule=f"s{session}", level=level)
    runs += launches(0.002, 5, seed=50, schedule="s0", level=3e8, label="other code")
    floor = noise_floor(runs)[KEY]
    assert floor.deviation == pytest.approx(0.002, rel=0.4)
    assert floor.session is not None
    assert noise_floor(runs[:-5])[KEY].session == pytest.approx(floor.session, rel=0.05)


def test_launches_in_several_sessions_count_by_what_would_show_a_second_level() -> None:
    pairs = [one for s in range(6) for one in launches(0.002, 2, seed=s, schedule=f"s{s}")]
    assert noise_floor(pairs) == {}, "12 launches, but 2^-6 that each session shows one level of two"
    pairs += launches(0.002, 2, seed=9, schedule="s9")
    assert noise_floor(pairs)[KEY].launches == 14


def test_sessions_of_other_code_tell_nothing_of_the_noise_between_sessions() -> None:
    runs = [
        one for s in range(4) for one in launches(0.002, 4, seed=s, schedule=f"s{s}", level=1e8 * 1.1**s, label=f"{s}")
    ]
    assert noise_floor(runs)[KEY].session is None


def test_the_noise_between_sessions_is_known_from_four_degrees_of_freedom_on() -> None:
    def sessions(codes: str):
        levels = {"a": (1, 1.02), "b": (2, 2.04)}
        return [
            one
            for s, code in enumerate(codes)
            for one in launches(0.0, 4, schedule=f"s{s}", level=1e8 * levels[code][s % 2], label=code)
        ]

    assert noise_floor(sessions("aaaa"))[KEY].session is None
    assert noise_floor(sessions("aaabb"))[KEY].session is None
    seen = math.log(1.02) * math.sqrt((4 / 6 + 4 / 6) / 4)  # three sessions of each code, two at one level
    for codes, df, deviation in (("aaabbb", 4, seen), ("aaaaa", 4, math.log(1.02) * math.sqrt(6 / 5 / 4))):
        bound = deviation * math.sqrt(df / stats.chi2.ppf(0.2, df))
        assert noise_floor(sessions(codes))[KEY].session == pytest.approx(bound, rel=1e-6)


def test_the_bound_of_the_noise_between_sessions_holds_as_often_as_said() -> None:
    rng = np.random.default_rng(6)
    above = []
    for _ in range(400):
        sessions = np.exp(0.01 * rng.standard_normal((5, 1)) + 0.005 * rng.standard_normal((5, 4)))
        floor = floor_of(*KEY, Statistic.MEDIAN, sessions.tolist())
        assert floor is not None
        assert floor.session is not None
        above.append(floor.session > 0.01)
    assert np.mean(above) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize("within", [0.0, 0.01, 0.04])
def test_what_launches_within_explain_is_no_noise_between_sessions(within: float) -> None:
    """Five sessions of three launches at -d, 0 and +d, whose means have the variance d²/3 by that alone; one session
    stands 0.03 higher: the means vary by 0.03² / 5."""
    sessions = [[math.exp(at + d) for d in (-within, 0.0, within)] for at in (0, 0, 0, 0, 0.03)]
    floor = floor_of(*KEY, Statistic.MEDIAN, sessions)
    assert floor is not None
    bound = 0.03**2 / 5 * 4 / stats.chi2.ppf(0.2, 4)
    assert floor.session == pytest.approx(math.sqrt(max(0, bound - within**2 / 3)), abs=1e-9)
    assert (floor.session == 0) == (within == 0.04)
    once = floor_of(*KEY, Statistic.MEDIAN, [*sessions, [7.0]], codes=[*"aaaaa", "b"])
    assert once is not None
    assert once.session == floor.session, "code that was measured in one session tells nothing"


def test_samples_of_launches_tell_what_the_runs_do() -> None:
    runs = [one for s in range(3) for one in launches(0.01, 5, seed=s, schedule=f"s{s}", label="ab"[s % 2])]
    samples = [
        LaunchSample(
            phase=series.phase,
            metric=series.metric,
            revision=one.revision.identity,
            schedule=one.launch.schedule,
            sample=sample_of(series).value,
        )
        for one in runs
        for series in one.series
    ]
    assert floors_of_samples(samples) == noise_floor(runs)


def test_spoiled_runs_and_zero_variance() -> None:
    constant = launches(0.0, 8)
    assert noise_floor(constant)[KEY].upper == 0
    wild = run({KEY: 9e8, ("step", "sync_count"): 4}, schedule="s", spoiled=True)
    assert noise_floor([*constant, wild])[KEY].deviation == 0


def test_calibration_counts_every_split() -> None:
    report = calibrate(launches(0.003, 12), SETTINGS, seed=1)
    assert (report.launches, report.splits) == (12, 64)
    assert report.alarm_rate == report.alarms / 64
    assert sum(report.verdicts.count(v) for v in Verdict) == 64
    assert report.alarms == 0
    assert report.verdicts.count(Verdict.PASS) > 0
    assert dict(report.launches_needed)[KEY] is not None
    many = calibrate(launches(0.003, 20), SETTINGS, seed=1, most_splits=50)
    assert many.splits == 50
    assert many == calibrate(launches(0.003, 20), SETTINGS, seed=1, most_splits=50)
    assert calibrate([], SETTINGS, seed=1).alarm_rate is None


def test_calibration_says_which_statistic_is_quieter() -> None:
    rng = np.random.default_rng(5)
    runs = []
    for launch in range(12):
        base = run({}, position=launch, schedule="s")
        slow = rng.integers(0, 12)
        steps = [100_000_000] * (20 - slow) + [150_000_000 + int(rng.integers(0, 10**7))] * slow
        series = Series(phase="step", metric="unprofiled_wall_ns", values=tuple(steps))
        runs.append(type(base)(**{f: getattr(base, f) for f in base.__slots__} | {"series": (series,)}))
    report = calibrate(runs, SETTINGS, seed=1)
    assert [choice.quietest for choice in report.choices] == [Statistic.P10]
    (median,) = report.floors
    declared = JudgeSettings(
        gates=(Gate(metric="unprofiled_wall_ns", budget_ratio=0.02),),
        statistics=(("unprofiled_wall_ns", Statistic.P10),),
    )
    of_declared = calibrate(runs, declared, seed=1)
    (p10,) = of_declared.floors
    assert (median.statistic, p10.statistic) == (Statistic.MEDIAN, Statistic.P10)
    assert p10.deviation < median.deviation / 5
    needed = dict(of_declared.launches_needed)["step", "unprofiled_wall_ns"]
    assert needed is not None
    assert needed <= 6
    assert of_declared.verdicts.count(Verdict.PASS) == of_declared.splits  # the median differs by more than the budget
    by_median = calibrate(runs, JudgeSettings(gates=declared.gates), seed=1)
    assert by_median.verdicts.count(Verdict.PASS) == 0


def test_only_levels_of_the_statistic_that_is_judged_count_and_the_noisiest_of_several() -> None:
    def level(statistic: Statistic, upper: float) -> NoiseLevel:
        return NoiseLevel(
            phase="step", metric="unprofiled_wall_ns", statistic=statistic, deviation=upper, upper=upper, launches=8
        )

    stored = [level(Statistic.MEDIAN, 0.02), level(Statistic.P10, 0.001), level(Statistic.MEDIAN, 0.01)]
    kept, other = declared_levels(stored, SETTINGS)
    assert widest(kept) == {("step", "unprofiled_wall_ns"): stored[0]}
    assert other == [stored[1]]
    by_p10 = JudgeSettings(statistics=(("unprofiled_wall_ns", Statistic.P10),))
    assert declared_levels(stored, by_p10)[0] == [stored[1]]
