"""Integer columns of an SQLite table as NumPy arrays, decoded from the pages of the file in bulk.

Python's sqlite3 makes an object of every value: on a trace of a gigabyte that costs several times what SQLite itself
needs. The file format is documented and stable (https://www.sqlite.org/fileformat2.html: 1.6 "B-tree Pages", 2.1
"Record Format"), so whole blocks of leaf pages are decoded at once. Only what event tables of traces look like is
handled: rowid tables of integers and NULLs, records within one page. All else raises UnsupportedTableError, and the
caller asks SQLite instead; a damaged page does too, so that SQLite says what is wrong. The measurements are in
docs/decisions/0011-reading-engine.md.
"""

import mmap
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfci.model.timeline import Int32, Int64
from perfci.trace.blocks import in_threads

_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
_FILE_HEADER = 100
_PAGES_AT_ONCE = 256
_LONGEST_VARINT = 9
_DEEPEST = 20
_ROOM = 1 << 13
"""Bytes behind a block: more than what a damaged record could claim, so that no place taken lies outside."""
_WORD = 8
_ONE_BYTE = 0x80
"""Varints below this are one byte long."""

_NULL, _REAL, _ZERO, _ONE, _TEXT = 0, 7, 8, 9, 12
_SIZE = np.zeros(256, dtype=np.int64)
_SIZE[:10] = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_SIZE[_TEXT:] = (np.arange(_TEXT, 256) - _TEXT) // 2
_SHIFT = np.zeros(256, dtype=np.int64)
_SHIFT[1:7] = 64 - 8 * _SIZE[1:7]


class UnsupportedTableError(Exception):
    """This table has to be read by SQLite itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A column in the records of a table, and what stands for NULL there (None: NULL must not be). ``coded``: it holds
    few different values."""

    index: int
    null: int | None
    coded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """A column with few different values: row → code → value."""

    codes: Int32
    values: Int64

    def __len__(self) -> int:
        return len(self.codes)

    def decoded(self) -> Int64:
        """The column itself."""
        return self.values[self.codes]

    def mapped(self, to: Int32) -> Int32:
        """The column with ``to[code]`` in place of each value, in the memory of the codes, which are lost by it."""
        if len(self.codes):
            # "clip" writes straight into the column; the codes are all in range.
            np.take(to, self.codes, out=self.codes, mode="clip")
        return self.codes


NO_CODES = Coded(codes=np.empty(0, dtype=np.int32), values=np.empty(0, dtype=np.int64))


def coded(column: Int64) -> Coded:
    """Number the different values of a column, in their order."""
    values, codes = np.unique(column, return_inverse=True)
    return Coded(codes=codes.astype(np.int32), values=values)


class _Coder:
    """Numbers the values of a column block by block, in the order in which they are met."""

    def __init__(self, count: int) -> None:
        self._codes: Int32 = np.empty(count, dtype=np.int32)
        self._ordered: Int64 = np.empty(0, dtype=np.int64)
        self._code_of: Int32 = np.empty(0, dtype=np.int32)

    def put(self, at: int, block: Int64) -> None:
        """Code the next rows."""
        place = np.searchsorted(self._ordered, block)
        known = len(self._ordered) > 0 and bool(
            (self._ordered[np.minimum(place, len(self._ordered) - 1)] == block).all()
        )
        if not known:
            new = np.setdiff1d(block, self._ordered)
            ordered = np.r_[self._ordered, new]
            code_of = np.r_[self._code_of, np.arange(len(self._code_of), len(ordered), dtype=np.int32)]
            order = np.argsort(ordered)
            self._ordered, self._code_of = ordered[order], code_of[order]
            place = np.searchsorted(self._ordered, block)
        self._codes[at : at + len(block)] = self._code_of[place]

    def result(self) -> Coded:
        """The column."""
        values = np.empty(len(self._ordered), dtype=np.int64)
        values[self._code_of] = self._ordered
        return Coded(codes=self._codes, values=values)


class _Plain:
    """Keeps the values of a column."""

    def __init__(self, count: int) -> None:
        self._values: Int64 = np.empty(count, dtype=np.int64)

    def put(self, at: int, block: Int64) -> None:
        """Keep the next rows."""
        self._values[at : at + len(block)] = block

    def result(self) -> Int64:
        """The column."""
        return self._values


def read_integers(path: Path, root_page: int, places: Sequence[Place]) -> list[Int64 | Coded]:
    """The columns at ``places`` of the rowid table that starts at ``root_page``, in the order of rowids.

    Only what is in the main file counts: UnsupportedTableError for a database with a write-ahead log.
    """
    with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped:
        return _Table(mapped, root_page).columns(places)


class _Table:
    def __init__(self, mapped: mmap.mmap, root_page: int) -> None:
        head = mapped[:_FILE_HEADER]
        if len(head) < _FILE_HEADER or head[18] != 1 or head[19] != 1:
            raise UnsupportedTableError("not a plain rollback-journal database")
        size = int.from_bytes(head[16:18], "big")
        self._size = 65536 if size == 1 else size
        self._usable = self._size - head[20]
        self._mapped = mapped
        # The mapping must be closable: no array may hold on to it.
        self._page_count = len(mapped) // self._size
        self._root = root_page

    def columns(self, places: Sequence[Place]) -> list[Int64 | Coded]:
        leaves = self._leaves()
        counts = self._cell_counts(leaves)
        total = int(counts.sum())
        out = [_Coder(total) if place.coded else _Plain(total) for place in places]
        parts = [slice(at, at + _PAGES_AT_ONCE) for at in range(0, len(leaves), _PAGES_AT_ONCE)]

        def decoded(part: slice) -> list[Int64]:
            return self._decode(self._block(leaves[part]), counts[part], places)

        done = 0
        for columns in in_threads(decoded, parts):
            for column, values in zip(out, columns, strict=True):
                column.put(done, values)
            done += len(columns[0])
        return [column.result() for column in out]

    def _page(self, number: int) -> bytes:
        if not 1 <= number <= self._page_count:
            raise UnsupportedTableError(f"page {number} is not in the file")
        return self._mapped[(number - 1) * self._size : number * self._size]

    def _leaves(self) -> Int64:
        """Numbers of the leaf pages, in order."""
        level = [self._root]
        for _ in range(_DEEPEST):
            first = self._page(level[0])
            kind = first[_FILE_HEADER if level[0] == 1 else 0]
            if kind == _LEAF:
                return np.array(level, dtype=np.int64)
            if kind != _INTERIOR or level[0] == 1:
                break
            level = [child for number in level for child in self._children(number)]
            if len(level) > self._page_count:
                break  # pages that point at each other
        raise UnsupportedTableError("not a table b-tree")

    def _children(self, number: int) -> list[int]:
        page = self._page(number)
        count = int.from_bytes(page[3:5], "big")
        end = _INTERIOR_HEADER + 2 * count
        if page[0] != _INTERIOR or end > self._size:
            raise UnsupportedTableError(f"page {number} is not an interior page")
        cells = np.frombuffer(page, dtype=">u2", count=count, offset=_INTERIOR_HEADER).tolist()
        return [*(int.from_bytes(page[at : at + 4], "big") for at in cells), int.from_bytes(page[8:12], "big")]

    def _block(self, leaves: Int64) -> NDArray[np.uint8]:
        """The pages one behind the other, and a little room. Runs of neighbouring pages are copied at once."""
        block = np.zeros(len(leaves) * self._size + _ROOM, dtype=np.uint8)
        if len(leaves) and not (leaves.min() >= 1 and leaves.max() <= self._page_count):
            raise UnsupportedTableError("a leaf page is not in the file")
        starts = np.flatnonzero(np.r_[True, np.diff(leaves) != 1]).tolist()
        for start, end in zip(starts, [*starts[1:], len(leaves)], strict=True):
            low = (int(leaves[start]) - 1) * self._size
            run = self._mapped[low : low + (end - start) * self._size]
            block[start * self._size : end * self._size] = np.frombuffer(run, dtype=np.uint8)
        # Pages of the mapping count as memory of this process until they are given back.
        if hasattr(self._mapped, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
        return block

    def _cell_counts(self, leaves: Int64) -> Int64:
        counts = np.empty(len(leaves), dtype=np.int64)
        for at, number in enumerate(leaves.tolist()):
            low = (number - 1) * self._size
            if not 1 <= number <= self._page_count:
                raise UnsupportedTableError(f"page {number} is not in the file")
            counts[at] = int.from_bytes(self._mapped[low + 3 : low + 5], "big")
        if (_LEAF_HEADER + 2 * counts > self._size).any():
            raise UnsupportedTableError("a leaf page counts more cells than fit")
        return counts

    def _decode(self, block: NDArray[np.uint8], rows: Int64, places: Sequence[Place]) -> list[Int64]:
        pages = np.arange(len(rows), dtype=np.int64) * self._size
        if (block[pages] != _LEAF).any():
            raise UnsupportedTableError("a page is not a leaf page")
        base = np.repeat(pages, rows)
        within = np.arange(len(base), dtype=np.int64) - np.repeat(np.cumsum(rows) - rows, rows)
        pointer = base + _LEAF_HEADER + 2 * within
        cell = base + (block[pointer].astype(np.int64) << 8) + block[pointer + 1]
        end = base + self._usable
        if (cell + 4 > end).any():
            raise UnsupportedTableError("a cell lies outside its page")
        length, record = _varint(block, cell)
        if (length > self._usable - 35).any():
            raise UnsupportedTableError("a record is too long for its page")
        record = _after_varint(block, record)
        if (record + length > end).any():
            raise UnsupportedTableError("a record lies outside its page")
        return _values_of(block, record, record + length, places)


def _values_of(block: NDArray[np.uint8], record: Int64, end: Int64, places: Sequence[Place]) -> list[Int64]:
    """The values at ``places`` of the records, which lie in ``[record, end)``."""
    header = block[record].astype(np.int64)
    last = max(place.index for place in places)
    if (header >= _ONE_BYTE).any() or (header <= last + 1).any():
        raise UnsupportedTableError("records have long headers or too few columns")
    # Eight bytes, most significant first, at any place of the block.
    words = np.ndarray(len(block) - _WORD + 1, dtype=">i8", buffer=block.data, strides=(1,))
    value_at = record + header
    wanted = {place.index: place for place in places}
    found = {}
    kinds = np.empty(0, dtype=np.int64)
    for index in range(last + 1):
        if index % _WORD == 0:
            # One look into the block for the kinds of eight columns.
            kinds = words[record + (1 + index)].astype(np.int64)
        kind = (kinds >> (8 * (_WORD - 1 - index % _WORD))).astype(np.uint8)
        if index in wanted:
            found[index] = _integers(words, kind, value_at, wanted[index].null)
        elif (kind >= _ONE_BYTE).any():
            raise UnsupportedTableError("a text before the wanted columns is long")
        value_at += _SIZE[kind]
    if (value_at > end).any():
        raise UnsupportedTableError("a record says that it is longer than it is")
    return [found[place.index] for place in places]


def _integers(words: NDArray[Any], kind: NDArray[np.uint8], at: Int64, null: int | None) -> Int64:
    if (kind >= 10).any() or (kind == _REAL).any():
        raise UnsupportedTableError("a wanted column holds more than integers")
    values = words[at].astype(np.int64)
    values >>= _SHIFT[kind]
    for special, value in ((_NULL, null), (_ZERO, 0), (_ONE, 1)):
        hit = kind == special
        if hit.any():
            if value is None:
                raise UnsupportedTableError("NULL where there must be a value")
            values[hit] = value
    return values


def _after_varint(block: NDArray[np.uint8], at: Int64) -> Int64:
    """The place behind the variable-length integer at each place."""
    more = block[at] >= _ONE_BYTE
    at = at + 1
    for _ in range(_LONGEST_VARINT - 1):
        if not more.any():
            break
        at += more
        more &= block[at - 1] >= _ONE_BYTE
    return at


def _varint(block: NDArray[np.uint8], at: Int64) -> tuple[Int64, Int64]:
    """Values below 2**14 at each place, and the places behind them. A greater value cannot be a record within its page
    and is refused."""
    first = block[at].astype(np.int64)
    long = first >= _ONE_BYTE
    second = block[at + 1].astype(np.int64)
    if (long & (second >= _ONE_BYTE)).any():
        raise UnsupportedTableError("a record is too long for its page")
    return np.where(long, ((first & 0x7F) << 7) | second, first), at + 1 + long
