"""Long columns without long temporaries."""

from collections.abc import Callable, Iterator

import numpy as np

from perfci.model.timeline import Bool, Int32, Int64

ROWS_AT_ONCE = 1 << 19

Rows = Int64 | slice
"""Rows of a table: their numbers, or a slice, which costs nothing, when they are all of them."""


def rows_of(hit: Bool) -> Rows:
    """The rows marked."""
    return slice(None) if hit.all() else np.flatnonzero(hit)


def slices(count: int) -> Iterator[slice]:
    """All rows, a block at a time."""
    for at in range(0, count, ROWS_AT_ONCE):
        yield slice(at, min(at + ROWS_AT_ONCE, count))


def in_blocks(function: Callable[[Int64], Int64], column: Int64) -> Int32:
    """``function`` of the column, row by row; its results must fit into 32 bits."""
    out = np.empty(len(column), dtype=np.int32)
    for part in slices(len(column)):
        out[part] = function(column[part])
    return out
