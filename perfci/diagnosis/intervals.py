"""Arithmetic of half-open intervals ``[start, end)`` on sorted integer arrays: all sweeps, no interval join."""

from dataclasses import dataclass

import numpy as np

from perfci.model.timeline import Int64

NEVER = np.iinfo(np.int64).max
"""The start of an interval that does not come."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """Disjoint, non-empty intervals, sorted; touching ones are joined. Build with ``union``."""

    start_ns: Int64
    end_ns: Int64

    @property
    def total_ns(self) -> int:
        """Length of all intervals together; 0 for none."""
        return int((self.end_ns - self.start_ns).sum())

    def _covered_before(self, at_ns: Int64) -> Int64:
        """Covered length before each moment."""
        lengths = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))
        entered = np.searchsorted(self.start_ns, at_ns, side="right")
        last = np.maximum(entered - 1, 0)
        overshoot = np.where(entered > 0, np.maximum(_take(self.end_ns, last) - at_ns, 0), 0)
        return np.asarray(lengths[entered] - overshoot, dtype=np.int64)

    def covered_ns(self, start_ns: Int64, end_ns: Int64) -> Int64:
        """How much of each given interval is covered (same shape as the arguments)."""
        return self._covered_before(end_ns) - self._covered_before(start_ns)

    def covers(self, at_ns: Int64) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Whether each moment lies inside an interval."""
        entered = np.searchsorted(self.start_ns, at_ns, side="right")
        inside = _take(self.end_ns, np.maximum(entered - 1, 0)) > at_ns
        return np.asarray((entered > 0) & inside, dtype=np.bool_)

    def next_start_ns(self, at_ns: Int64) -> Int64:
        """Start of the first interval that begins at or after each moment; NEVER when none does."""
        return np.append(self.start_ns, NEVER)[np.searchsorted(self.start_ns, at_ns, side="left")]

    def without(self, other: "Spans") -> int:
        """Length of these intervals that ``other`` does not cover."""
        return self.total_ns - int(other.covered_ns(self.start_ns, self.end_ns).sum())


def _take(values: Int64, at: Int64) -> Int64:
    """``values[at]``, zeros when there are no values."""
    return values[at] if len(values) else np.zeros(len(at), dtype=np.int64)


def union(start_ns: Int64, end_ns: Int64) -> Spans:
    """The moments covered by at least one interval. Any order; empty intervals cover nothing."""
    keep = end_ns > start_ns
    start_ns, end_ns = start_ns[keep], end_ns[keep]
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    if not len(start_ns):
        return Spans(start_ns=start_ns, end_ns=end_ns)
    reached = np.maximum.accumulate(end_ns)
    opens = np.flatnonzero(np.concatenate(([True], start_ns[1:] > reached[:-1])))
    closes = np.append(opens[1:], len(start_ns)) - 1
    return Spans(start_ns=start_ns[opens], end_ns=reached[closes])
