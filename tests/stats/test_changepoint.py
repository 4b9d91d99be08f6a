"""Changes of level in a history: by examples, by laws, by a slow oracle and by simulation."""

import itertools
import math
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from perfci.model.changepoint import ChangeReport, HistoryEntry
from perfci.model.history import HistoryPoint
from perfci.stats import changepoint_find as find
from perfci.stats import changepoint_judge as judge
from perfci.stats.changepoint import CONFIDENCE, FEWEST, entries_of, find_changes


def history(*values: float | tuple[float, ...] | None) -> list[HistoryEntry]:
    return [
        HistoryEntry(revision=f"r{i}", values=() if v is None else v if isinstance(v, tuple) else (float(v),))
        for i, v in enumerate(values)
    ]


def noisy(levels: list[tuple[float, int]], seed: int, noise: float = 0.01) -> np.ndarray:
    """Stretches of (level, entries) with log-normal noise."""
    rng = np.random.default_rng(seed)
    level = np.concatenate([np.full(n, value) for value, n in levels])
    return level * np.exp(noise * rng.standard_normal(len(level)))


# Examples


@pytest.mark.parametrize("values", [(), (None, None, None)])
def test_nothing_measured_gives_no_level(values) -> None:
    assert find_changes(history(*values)) == ChangeReport()


@pytest.mark.parametrize("count", range(1, FEWEST))
def test_too_few_entries_are_one_level(count: int) -> None:
    report = find_changes(history(*[1.0, 2.0, 2.0, 2.0][:count]))
    assert report.changes == ()
    assert [(level.first, level.last, level.count) for level in report.levels] == [(0, count - 1, count)]


@pytest.mark.parametrize("value", [0.1, 0.1 + 0.2, 1e9, 0.0, 5e-324])
@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_a_constant_series_is_one_level_of_exactly_its_value(value: float, n: int) -> None:
    report = find_changes(history(*[value] * n))
    assert report.changes == ()
    assert [level.value for level in report.levels] == [value]


def test_rounding_is_no_change() -> None:
    assert find_changes(history(*[0.3] * 20, *[0.1 + 0.2] * 20)).changes == ()


@pytest.mark.parametrize(("before", "after"), [(351.0, 353.0), (1.0, 2.0), (353.0, 351.0)])
@pytest.mark.parametrize("seen", [2, 3, 10])
def test_a_count_that_changed_is_found_from_its_second_entry(before: float, after: float, seen: int) -> None:
    entries = history(*[before] * 10, *[after] * seen)
    (change,) = find_changes(entries).changes
    assert (change.last_good, change.index, change.first_bad) == (9, 10, 10)
    assert (change.before.value, change.after.value) == (before, after)
    assert change.effect.value_ratio == pytest.approx(after / before - 1)
    assert change.effect.low_ratio == change.effect.high_ratio == change.effect.value_ratio
    assert change.p_value == 0
    assert find_changes(entries[:11]).changes == ()  # one entry alone may be an outlier


def test_a_count_that_starts_at_zero_has_a_difference_and_no_effect() -> None:
    (change,) = find_changes(history(*[0] * 8, *[1] * 8)).changes
    assert change.effect is None
    assert change.standing is None
    assert change.difference == 1.0
    (back,) = find_changes(history(*[1] * 8, *[0] * 8)).changes
    assert back.effect.value_ratio == -1.0


def test_a_partly_recovered_regression_stays_one() -> None:
    values = noisy([(1.0, 15), (2.0, 12), (1.5, 10)], seed=1)
    worse, better = find_changes(history(*values)).changes
    assert (worse.index, better.index) == (15, 27)
    assert worse.effect.value_ratio == pytest.approx(1.0, abs=0.03)
    assert better.effect.value_ratio == pytest.approx(-0.25, abs=0.02)
    assert worse.standing.low_ratio > 0.45
    assert worse.standing.value_ratio == pytest.approx(0.5, abs=0.03)


def test_a_fully_recovered_regression_stands_no_more() -> None:
    values = noisy([(1.0, 15), (2.0, 12), (1.0, 12)], seed=2)
    worse, _ = find_changes(history(*values)).changes
    assert worse.standing.low_ratio < 0 < worse.standing.high_ratio


@pytest.mark.parametrize("place", [0, 1, 5, 20, 38, 39])
@pytest.mark.parametrize("factor", [0.1, 0.9, 1.1, 10.0])
def test_a_single_spike_is_no_change(place: int, factor: float) -> None:
    values = noisy([(1.0, 40)], seed=3)
    values[place] *= factor
    assert find_changes(history(*values)).changes == ()


@pytest.mark.parametrize("spikes", [(10, 12), (10, 11), (0, 1), (10, 12, 14), (38, 39), (37, 39)])
def test_a_few_spikes_of_different_height_are_no_change(spikes: tuple[int, ...]) -> None:
    values = noisy([(1.0, 40)], seed=3)
    for number, place in enumerate(spikes):
        values[place] *= 1.1 + 0.1 * number
    assert find_changes(history(*values)).changes == ()


def test_a_spike_beside_a_shift_hides_nothing() -> None:
    values = noisy([(1.0, 20), (1.1, 20)], seed=4)
    values[[19, 30]] *= 1.5
    (change,) = find_changes(history(*values)).changes
    assert abs(change.index - 20) <= 1
    assert change.effect.value_ratio == pytest.approx(0.1, abs=0.02)


def test_slow_drift_is_no_change_and_a_jump_within_it_is() -> None:
    for seed in range(20):
        values = noisy([(1.0, 120)], seed=seed) * np.exp(np.linspace(0, 0.08, 120))
        assert find_changes(history(*values)).changes == (), seed
        values[60:] *= 1.08
        (change,) = find_changes(history(*values)).changes
        assert abs(change.index - 60) <= 1


def test_a_flickering_count_is_no_change() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert find_changes(history(*np.where(rng.random(60) < 0.3, 6, 5))).changes == (), seed


def test_gaps_lie_in_the_range_and_in_no_level() -> None:
    entries = history(None, 5, 5, None, 5, 5, 5, None, None, None, 6, 6, None, 6, 6, None)
    (change,) = find_changes(entries).changes
    assert (change.last_good, change.index, change.first_bad) == (6, 10, 10)
    assert (change.before.first, change.before.last, change.before.count) == (1, 6, 5)
    assert (change.after.first, change.after.last, change.after.count) == (10, 14, 4)


def test_several_values_of_an_entry_are_its_median() -> None:
    plain = history(*[5] * 6, *[6] * 6)
    several = [HistoryEntry(revision=e.revision, values=(e.values[0], e.values[0], 99.0)) for e in plain]
    assert find_changes(several) == find_changes(plain)


def test_changes_within_the_budget_are_left_out() -> None:
    values = noisy([(1.0, 30), (1.01, 30), (1.06, 30)], seed=5, noise=0.001)
    assert [c.index for c in find_changes(history(*values)).changes] == [30, 60]
    (large,) = find_changes(history(*values), budget_ratio=0.02).changes
    assert large.index == 60
    assert large.before.count == 60
    assert find_changes(history(*values), budget_ratio=0.5).changes == ()


def test_no_change_that_is_told_lies_within_the_budget() -> None:
    """Wild entries move the mean, and are drawn in for the level that is told: the budget must be held against that."""
    budget = 0.03
    rng = np.random.default_rng(11)
    told = 0
    for _ in range(300):
        values = np.exp(rng.normal(0, 0.004, 24) + 0.0295 * (np.arange(24) >= 12))
        values[rng.integers(12, 24, 2)] *= 1.017
        for change in find_changes(history(*values), budget_ratio=budget).changes:
            told += 1
            assert change.effect is not None
            assert change.effect.value_ratio > budget
    assert told > 30


def test_numbers_at_the_ends_of_all_numbers() -> None:
    for values in ([1e-300] * 6 + [1e300] * 6, [5e-324] * 6 + [1.7e308] * 6):
        (change,) = find_changes(history(*values)).changes
        assert change.index == 6
        assert change.effect is None  # the ratio is no number
    (change,) = find_changes(history(*[1e308] * 3, *[1e-308] * 9)).changes
    assert change.index == 3
    assert change.effect is not None
    assert change.effect.value_ratio == -1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        HistoryEntry(revision="r", values=(1.0, value))


def point(commit: str | None, sample: float, key: str = "k") -> HistoryPoint:
    return HistoryPoint(
        run_id=f"{commit}{sample}",
        revision=commit or "label:x",
        label="x",
        commit=commit,
        started_at=datetime(2025, 1, 1, tzinfo=UTC),
        key_hash=key,
        sample=sample,
    )


def test_samples_of_runs_are_put_in_the_order_of_commits() -> None:
    points = [point("c", 3.0), point("a", 1.0), point("c", 3.5), point("z", 9.0), point(None, 8.0, key="other")]
    assert entries_of(points, ["a", "b", "c"]) == (
        HistoryEntry(revision="a", values=(1.0,)),
        HistoryEntry(revision="b"),
        HistoryEntry(revision="c", values=(3.0, 3.5)),
    )
    assert entries_of([], []) == ()
    with pytest.raises(ValueError, match="different comparability keys"):
        entries_of([point("a", 1.0), point("b", 2.0, key="new driver")], ["a", "b"])


# Laws

numbers = st.floats(1e-3, 1e6) | st.integers(1, 6).map(float)
series = st.lists(numbers, max_size=40) | st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=6).map(
    lambda runs: [float(v) for v, n in runs for _ in range(n)]
)


@settings(max_examples=150, deadline=None)
@given(series)
def test_levels_cover_the_history_and_changes_lie_between_them(values: list[float]) -> None:
    entries = history(*values)
    report = find_changes(entries)
    assert find_changes(entries) == report
    assert sum(level.count for level in report.levels) == len(values)
    for left, right in itertools.pairwise(report.levels):
        assert left.last < right.first
    for left, right, change in zip(report.levels, report.levels[1:], report.changes, strict=False):
        assert (change.before, change.after) == (left, right)
        assert left.first <= change.last_good < change.index == right.first <= change.first_bad <= right.last
        assert 0 <= change.p_value <= 0.001
        assert change.effect.low_ratio <= change.effect.value_ratio <= change.effect.high_ratio
    for level in report.levels:
        assert min(values) * 0.999999 <= level.value <= max(values) * 1.000001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 3), st.integers(3, 20)), min_size=1, max_size=4), st.integers(0, 9))
def test_scale_does_not_matter(levels: list[tuple[float, int]], seed: int) -> None:
    values = noisy(levels, seed)
    plain, scaled = find_changes(history(*values)), find_changes(history(*(values * 4096.0)))
    assert [c.index for c in scaled.changes] == [c.index for c in plain.changes]
    for a, b in zip(plain.changes, scaled.changes, strict=True):
        assert b.effect.value_ratio == pytest.approx(a.effect.value_ratio, rel=1e-6, abs=1e-9)
        assert b.before.value == pytest.approx(4096 * a.before.value, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 3), st.integers(3, 20)), min_size=1, max_size=4), st.integers(0, 9), st.data())
def test_gaps_change_nothing_but_places(levels: list[tuple[float, int]], seed: int, data: st.DataObject) -> None:
    values = list(noisy(levels, seed))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    spread, places = [], []
    for value, gap in zip(values, gaps, strict=True):
        spread += [None] * gap + [value]
        places.append(len(spread) - 1)
    dense, sparse = find_changes(history(*values)), find_changes(history(*spread))
    assert [c.index for c in sparse.changes] == [places[c.index] for c in dense.changes]
    assert [c.first_bad for c in sparse.changes] == [places[c.first_bad] for c in dense.changes]
    assert [c.effect for c in sparse.changes] == [c.effect for c in dense.changes]


# The parts, by independent means


def cheapest_by_trying_all(values: list[int], price: Fraction) -> set[tuple[int, ...]]:
    """All best segmentations, found in exact arithmetic by trying every one."""
    n = len(values)

    def cost(part: list[int]) -> Fraction:
        mean = Fraction(sum(part), len(part))
        return sum(((v - mean) ** 2 for v in part), Fraction(0))

    found: dict[tuple[int, ...], Fraction] = {}
    for count in range(n):
        for cuts in itertools.combinations(range(1, n), count):
            borders = (0, *cuts, n)
            lengths = [b - a for a, b in itertools.pairwise(borders)]
            if min(lengths[:-1], default=99) < find.SHORTEST or (cuts and lengths[-1] < find.SHORTEST_LAST):
                continue
            parts = [values[a:b] for a, b in itertools.pairwise(borders)]
            found[cuts] = sum(map(cost, parts), Fraction(0)) + price * count
    least = min(found.values())
    return {cuts for cuts, total in found.items() if total == least}


@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=5, max_size=12), st.floats(0.05, 5))
def test_candidates_are_the_cheapest_segmentation(values: list[int], noise: float) -> None:
    price = Fraction(find.PENALTY * noise**2 * math.log(len(values)))
    best = cheapest_by_trying_all(values, price)
    assume(len(best) == 1)  # floating point may choose another one of equals
    assert find.candidates(np.array(values, dtype=np.float64), noise) in best


def test_the_test_is_a_t_test_for_every_place() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(0, 1, 12), rng.normal(0.4, 1, 9)
    middle = [np.median(x) for x in (left, right)]
    left, right = (np.clip(x, m - 2, m + 2) for x, m in zip((left, right), middle, strict=True))  # nothing is wild
    pooled = math.sqrt((left.var(ddof=1) * 11 + right.var(ddof=1) * 8) / 19)
    noise = judge.Noise(deviation=pooled, degrees=19, correlation=0.0)
    reference = stats.ttest_ind(left, right).pvalue
    assert judge.p_value(left, right, noise) == pytest.approx(min(1.0, 20 * reference), rel=1e-9)


def test_the_jump_beside_a_slope_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(2)
    left, right = 0.1 * np.arange(10) + rng.normal(0, 1, 10), 1 + 0.1 * np.arange(10, 18) + rng.normal(0, 1, 8)
    both = np.concatenate((left, right))
    design = np.column_stack((np.ones(18), np.arange(18), np.arange(18) >= 10))
    fit, *_ = np.linalg.lstsq(design, both, rcond=None)
    rest = both - design @ fit
    rho = (rest[1:] @ rest[:-1] / 17) / (rest @ rest / 18) + 3 / 18 + 1 / math.sqrt(17)
    rho = min(max(rho, 0.0), judge.MOST_CORRELATION)
    error = math.sqrt(rest @ rest / 15 * np.linalg.inv(design.T @ design)[2, 2] * (1 + rho) / (1 - rho))
    expected = min(1.0, 17 * 2 * stats.t.sf(abs(fit[2]) / error, 15))
    assert judge.p_value_beside_drift(left, right) == pytest.approx(expected, rel=1e-9)


def test_the_error_of_a_mean_of_correlated_entries_is_that_of_simulation() -> None:
    rng = np.random.default_rng(3)
    rho, count = 0.5, 8
    paths = np.empty((40_000, count))
    paths[:, 0] = rng.standard_normal(40_000)
    for i in range(1, count):
        paths[:, i] = rho * paths[:, i - 1] + math.sqrt(1 - rho**2) * rng.standard_normal(40_000)
    noise = judge.Noise(deviation=1.0, degrees=100, correlation=rho)
    assert noise.error(count) == pytest.approx(paths.mean(axis=1).std(), rel=0.02)


def test_noise_is_that_of_the_entries_whatever_the_levels() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(0, 1, 4000)
    assert find.noise_of(values) == pytest.approx(1.0, rel=0.08)
    shifted = values + np.repeat([0, 50, -20, 7], 1000)
    shifted[::50] += 100
    assert find.noise_of(shifted) == pytest.approx(1.0, rel=0.12)


# Simulation: error rates are what is promised


def test_calm_series_raise_few_alarms_and_shifts_are_found() -> None:
    alarms = found = 0
    repeats = 300
    for seed in range(repeats):
        alarms += bool(find_changes(history(*noisy([(1.0, 60)], seed))).changes)
        changes = find_changes(history(*noisy([(1.0, 30), (1.04, 30)], seed))).changes
        found += any(abs(c.index - 30) <= 2 for c in changes)
    # A rate of 2 % would give more than 12 with a chance below 0.5 %.
    assert alarms <= stats.binom.ppf(0.995, repeats, 0.02)
    assert found >= 0.97 * repeats


def test_the_range_and_the_interval_cover_the_truth() -> None:
    in_range = in_interval = total = 0
    widths = []
    for seed in range(400):
        changes = find_changes(history(*noisy([(1.0, 30), (1.02, 30)], seed))).changes
        if len(changes) != 1:
            continue
        (change,) = changes
        total += 1
        in_range += change.last_good < 30 <= change.first_bad
        in_interval += change.effect.low_ratio <= 0.02 <= change.effect.high_ratio
        widths.append(change.first_bad - change.last_good)
    assert total > 300
    assert in_range / total > CONFIDENCE - 0.04
    assert in_interval / total > CONFIDENCE - 0.04
    assert np.median(widths) <= 6
