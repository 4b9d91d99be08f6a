"""Interval arithmetic against counting one nanosecond at a time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.trace import intervals as intervals_module
from perfci.trace.intervals import NOBODY, cover_of, sum_by_group, union_by_group, union_of

HORIZON = 40
spans = st.lists(st.tuples(st.integers(0, HORIZON), st.integers(0, HORIZON)).map(sorted), max_size=12)


def columns(intervals):
    table = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def points(intervals):
    return {time for start, end in intervals for time in range(start, end)}


@given(spans, st.lists(st.tuples(st.integers(-3, HORIZON), st.integers(-3, HORIZON)), max_size=5))
def test_union_covers_its_points(intervals, windows):
    union = union_of(*columns(intervals))
    low, high = columns(windows)
    wanted = [len(points(intervals) & set(range(a, b))) for a, b in windows]
    assert union.covered(low, high).tolist() == wanted
    assert (union.start_ns[1:] > union.end_ns[:-1]).all()


@given(spans, st.data())
def test_unions_of_groups_do_not_touch_each_other(intervals, data):
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(intervals), max_size=len(intervals)))
    blocks = union_by_group(*columns(intervals), np.array(groups, dtype=np.int64))
    wanted = [len(points(i for i, g in zip(intervals, groups, strict=True) if g == group)) for group in range(4)]
    assert blocks.total(4).tolist() == wanted


@settings(max_examples=300)
@given(spans)
def test_cover_is_the_innermost_open_range(intervals):
    cover = cover_of(*columns(intervals))
    for time in range(-1, HORIZON + 2):
        open_now = [at for at, (start, end) in enumerate(intervals) if start <= time < end]
        wanted = max(open_now, key=lambda at: (intervals[at][0], -intervals[at][1], at), default=NOBODY)
        assert cover.at(np.array([time])).tolist() == [wanted]


def test_no_intervals():
    nothing = np.empty(0, dtype=np.int64)
    assert union_of(nothing, nothing).covered(np.array([0]), np.array([9])).tolist() == [0]
    assert cover_of(nothing, nothing).at(np.array([3])).tolist() == [NOBODY]
    assert sum_by_group(nothing, nothing, 2).tolist() == [0, 0]


def test_sums_beyond_double_precision_are_exact(monkeypatch):
    value, group = np.array([2**53, 1, 2**40, 1]), np.array([0, 0, 1, 1])
    assert sum_by_group(value, group, 2).tolist() == [2**53 + 1, 2**40 + 1]
    monkeypatch.setattr(intervals_module, "_EXACT_IN_DOUBLE", 0)
    assert sum_by_group(np.array([3, 4, 5]), np.array([1, 0, 1]), 3).tolist() == [4, 8, 0]


def test_deeply_nested_ranges_stay_fast():
    """A hundred thousand ranges inside each other: a join of all pairs would never end."""
    count = 100_000
    start = np.arange(count, dtype=np.int64)
    cover = cover_of(start, 4 * count - start)
    assert cover.at(np.array([count - 1, 2 * count, 4 * count - 1])).tolist() == [count - 1, count - 1, 0]
