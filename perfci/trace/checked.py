"""Values of an export that cannot be, and what is done about them."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfci.model.run import Note
from perfci.model.timeline import Int64
from perfci.trace.columns import UNFINISHED

LONGEST_NS = 30 * 86_400 * 10**9
"""A range, call or operation that lasts longer than 30 days is damage: no capture does."""
LARGEST_BYTES = 1 << 48
"""Nor does any machine copy 256 TiB at once."""


def integers(rows: Sequence[tuple[Any, ...]], table: str) -> Int64:
    """The rows as columns. sqlite3.DatabaseError for what is no integer, NULL included."""
    try:
        return np.array(rows, dtype=np.int64).T
    except (TypeError, ValueError, OverflowError) as error:
        raise sqlite3.DatabaseError(f"table {table} holds a value that is no integer") from error


def text_of(value: object) -> str:
    """A text column's value, whatever type it was stored with."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def ends_of(start: Int64, end: Int64, notes: list[Note], what: str, *, unfinished: bool = False) -> Int64:
    """``end`` where it is possible, else ``start``, with a note: an impossible time is never a duration."""
    # As unsigned numbers also differences beyond 64 bits are long ones.
    bad = (end < start) | ((end - start).view(np.uint64) > LONGEST_NS)
    if unfinished:
        bad &= end != UNFINISHED
    count = int(np.count_nonzero(bad))
    if count == 0:
        return end
    text = f"{count} {what} end before they start or last longer than 30 days; they are counted with no duration"
    notes.append(Note(code="impossible-times", text=text))
    return np.where(bad, start, end)


def sizes_of(moved: Int64, table: str) -> Int64:
    """The bytes of copies. sqlite3.DatabaseError when one is negative or larger than any machine."""
    if len(moved) and (int(moved.min()) < 0 or int(moved.max()) > LARGEST_BYTES):
        raise sqlite3.DatabaseError(f"table {table} holds copies of impossible size")
    return moved
