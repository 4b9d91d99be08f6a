"""Interval arithmetic against sets of integers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.diagnosis.intervals import NEVER, union

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def spans(intervals):
    return union(
        np.array([a for a, _ in intervals], dtype=np.int64), np.array([b for _, b in intervals], dtype=np.int64)
    )


def moments(intervals):
    return {t for a, b in intervals for t in range(a, b)}


@settings(max_examples=300, deadline=None)
@given(INTERVALS, INTERVALS)
def test_union_and_cover_agree_with_sets(first, second):
    made = spans(first)
    covered = moments(first)
    assert made.total_ns == len(covered)
    assert np.all(made.start_ns[1:] > made.end_ns[:-1])
    windows = np.array(second, dtype=np.int64).reshape(-1, 2)
    assert made.covered_ns(windows[:, 0], windows[:, 1]).tolist() == [
        len(covered & set(range(a, b))) for a, b in second
    ]
    assert made.without(spans(second)) == len(covered - moments(second))


@settings(max_examples=200, deadline=None)
@given(INTERVALS, st.lists(st.integers(0, 80), max_size=8))
def test_moments_agree_with_sets(intervals, asked):
    made = spans(intervals)
    covered = moments(intervals)
    at = np.array(asked, dtype=np.int64)
    assert made.covers(at).tolist() == [t in covered for t in asked]
    starts = [t for t in covered if t - 1 not in covered]
    assert made.next_start_ns(at).tolist() == [min((s for s in starts if s >= t), default=NEVER) for t in asked]
