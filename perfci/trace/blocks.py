"""Long columns without long temporaries."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from perfci.model.timeline import Bool, Int32, Int64

ROWS_AT_ONCE = 1 << 18
MOST_THREADS = 4
"""NumPy works without the interpreter's lock; more threads than these only wait for memory."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Rows = Int64 | slice
"""Rows of a table: their numbers, or a slice, which costs nothing, when they are all of them."""


def rows_of(hit: Bool) -> Rows:
    """The rows marked."""
    return slice(None) if hit.all() else np.flatnonzero(hit)


def slices(count: int) -> Iterator[slice]:
    """All rows, a block at a time."""
    for at in range(0, count, ROWS_AT_ONCE):
        yield slice(at, min(at + ROWS_AT_ONCE, count))


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``function`` of each item, in their order, by several threads; no more than a few results are held at a time."""
    count = min(MOST_THREADS, usable_cpus(), len(items))
    if count < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(count) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_blocks(function: Callable[[Int64], Int64], column: Int64) -> Int32:
    """``function`` of the column, row by row; its results must fit into 32 bits."""
    out = np.empty(len(column), dtype=np.int32)
    for part in slices(len(column)):
        out[part] = function(column[part])
    return out
