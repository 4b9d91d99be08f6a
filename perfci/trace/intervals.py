"""Arithmetic on many half-open intervals at once. Sort and sweep: no joins, no loops over rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfci.model.timeline import Int64

Integers = NDArray[np.signedinteger[Any]]
_EXACT_IN_DOUBLE = 2**53

NOBODY = -1
"""Answer of a Cover where no range is open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union:
    """Disjoint intervals sorted by start that do not touch, with running totals, so that the covered time of any window
    costs two binary searches."""

    start_ns: Int64
    end_ns: Int64
    total_before_ns: Int64

    def covered_before(self, time_ns: Int64) -> Int64:
        """Covered time before each given time."""
        if len(self.start_ns) == 0:
            return np.zeros(len(time_ns), dtype=np.int64)
        block = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        at = np.maximum(block, 0)
        inside = np.minimum(time_ns, self.end_ns[at]) - self.start_ns[at]
        return np.where(block < 0, 0, self.total_before_ns[at] + inside)

    def covered(self, start_ns: Int64, end_ns: Int64) -> Int64:
        """Covered time inside each window; 0 for windows that are empty or end before they start."""
        return self.covered_before(np.maximum(start_ns, end_ns)) - self.covered_before(start_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedBlocks:
    """Unions of intervals per group: disjoint blocks, sorted by group and start."""

    group: Int64
    start_ns: Int64
    end_ns: Int64

    def total(self, group_count: int) -> Int64:
        """Covered time of each group."""
        return sum_by_group(self.end_ns - self.start_ns, self.group, group_count)


def union_of(start_ns: Int64, end_ns: Int64) -> Union:
    """The union of intervals in any order; empty intervals vanish."""
    some = end_ns > start_ns
    if not some.all():
        start_ns, end_ns = start_ns[some], end_ns[some]
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    if len(start_ns) == 0:
        return Union(start_ns=start_ns, end_ns=end_ns, total_before_ns=start_ns)
    reached = np.maximum.accumulate(end_ns)
    begin = np.flatnonzero(np.r_[True, start_ns[1:] > reached[:-1]])
    start, end = start_ns[begin], reached[np.r_[begin[1:], len(start_ns)] - 1]
    length = end - start
    return Union(start_ns=start, end_ns=end, total_before_ns=np.cumsum(length) - length)


def union_by_group(start_ns: Int64, end_ns: Int64, group: Integers) -> GroupedBlocks:
    """The union of the intervals of each group. Groups count from 0; rows in any order; empty intervals vanish."""
    kept = np.flatnonzero(end_ns > start_ns)
    order = kept[_by_group_and_start(start_ns[kept], group[kept])]
    if len(order) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return GroupedBlocks(group=nothing, start_ns=nothing, end_ns=nothing)
    start, end, owner = start_ns[order], end_ns[order], group[order].astype(np.int64, copy=False)
    # Groups are laid one behind the other on a line, so that one running maximum serves all of them.
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    rows = np.diff(np.r_[first, len(owner)])
    lowest = start[first]
    extent = np.maximum.reduceat(end, first) - lowest
    shift = np.repeat(np.cumsum(extent) - extent - lowest, rows)
    reached = np.maximum.accumulate(end + shift)
    opens = np.r_[True, (start + shift)[1:] > reached[:-1]]
    opens[first] = True
    begin = np.flatnonzero(opens)
    last = np.r_[begin[1:], len(start)] - 1
    return GroupedBlocks(group=owner[begin], start_ns=start[begin], end_ns=reached[last] - shift[last])


def _by_group_and_start(start: Int64, group: Integers) -> Int64:
    if (start[1:] < start[:-1]).any():
        return np.lexsort((start, group))
    if (group[1:] < group[:-1]).any():
        return np.argsort(group, kind="stable")
    return np.arange(len(start), dtype=np.int64)


def sum_by_group(value: Integers, group: Integers, group_count: int) -> Int64:
    """Exact integer sums per group. Groups without rows have 0. Values must not be negative."""
    # Sums of integers are exact in double precision as long as the greatest of them is below 2**53.
    if len(value) == 0 or int(value.sum(dtype=np.int64)) < _EXACT_IN_DOUBLE:
        return np.bincount(group, weights=value, minlength=group_count).astype(np.int64)
    total = np.zeros(group_count, dtype=np.int64)
    np.add.at(total, group, value)
    return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cover:
    """Which range is the innermost open one at any time: a step function with ``innermost[0]`` (NOBODY) before the
    first edge and ``innermost[k]`` from edge k - 1 on."""

    edge_ns: Int64
    innermost: Int64

    def at(self, time_ns: Int64) -> Int64:
        """Row of the innermost range open at each time, or NOBODY."""
        return self.innermost[np.searchsorted(self.edge_ns, time_ns, side="right")]


def cover_of(start_ns: Int64, end_ns: Int64) -> Cover:
    """Innermost means: the open range that started last; of several that started together, the one that ends first; of
    equal ones, the later row. Ranges may nest, repeat and overlap in any way; empty ranges are never open.

    A segment tree over the elementary intervals, filled for all ranges at once: O(n log n) without assuming nesting.
    """
    rows = np.flatnonzero(end_ns > start_ns)
    if len(rows) == 0:
        return Cover(edge_ns=np.empty(0, dtype=np.int64), innermost=np.array([NOBODY], dtype=np.int64))
    # Painted in this order, each range over those before it, the visible colour is the innermost range.
    rows = rows[np.lexsort((rows, -end_ns[rows], start_ns[rows]))]
    # numpy.unique hashes since 2.3, which costs many times more than sorting where most values differ.
    edge_ns = np.sort(np.r_[start_ns[rows], end_ns[rows]])
    edge_ns = edge_ns[np.r_[True, edge_ns[1:] != edge_ns[:-1]]]
    leaves = 1 << max(int(len(edge_ns) - 1).bit_length(), 0)
    tree = np.full(2 * leaves, NOBODY, dtype=np.int32)
    paint = np.arange(len(rows), dtype=np.int32)
    left = np.searchsorted(edge_ns, start_ns[rows]) + leaves
    right = np.searchsorted(edge_ns, end_ns[rows]) + leaves
    while len(paint):
        odd = (left & 1) == 1
        np.maximum.at(tree, left[odd], paint[odd])
        odd_right = (right & 1) == 1
        np.maximum.at(tree, right[odd_right] - 1, paint[odd_right])
        left, right = (left + 1) >> 1, right >> 1
        open_ = left < right
        left, right, paint = left[open_], right[open_], paint[open_]
    level = 1
    while level < leaves:
        parents = tree[level : 2 * level]
        children = tree[2 * level : 4 * level]
        np.maximum(children, np.repeat(parents, 2), out=children)
        level *= 2
    painted = tree[leaves : leaves + len(edge_ns)]
    innermost = np.where(painted == NOBODY, NOBODY, rows[painted])
    return Cover(edge_ns=edge_ns, innermost=np.r_[np.int64(NOBODY), innermost])
