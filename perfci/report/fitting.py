"""Fits blocks of lines into a size limit, most important first; order and structure stay."""

from collections.abc import Iterable
from dataclasses import dataclass

from perfci.report.names import cut_utf8
from perfci.report.wording import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The size a text may have: characters (Unicode code points) and, where it counts, bytes of its UTF-8 form."""

    characters: int
    utf8_bytes: int | None = None

    def holds(self, characters: int, utf8_bytes: int) -> bool:
        """True when a text of that size is allowed."""
        return characters <= self.characters and (self.utf8_bytes is None or utf8_bytes <= self.utf8_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines between a head and a tail. Lines may be dropped from the end, head and tail go only with all lines.

    ``priority`` 0 is kept first; ``noun`` names a line in the sentence that says how many are missing.
    """

    priority: int
    lines: tuple[str, ...]
    head: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    noun: str = "line"

    def __post_init__(self) -> None:
        if not self.lines:
            raise ValueError("a block needs a line")


_NOTE_RESERVE = 80
"""Characters and bytes kept for the sentence about missing lines of one block."""


def _cost(lines: Iterable[str]) -> tuple[int, int]:
    text = "".join(line + "\n" for line in lines)
    return len(text), len(text.encode("utf-8"))


def _missing(count: int, noun: str) -> str:
    return f"… {plural(count, noun)} left out for size"


def fit(blocks: Iterable[Block], limit: Limit) -> str:
    """All blocks that fit, in their order, at most ``limit``. Blocks of a small priority number get room first; within
    one priority the earlier block.

    A block that fits in part keeps its first lines and says how many are left out. Blocks that do not fit at all are
    counted in a last sentence. A limit too small for anything gives a prefix of the first line that it holds.
    """
    ordered = tuple(blocks)
    room = [limit.characters, limit.characters if limit.utf8_bytes is None else limit.utf8_bytes]
    counts_bytes = limit.utf8_bytes is not None

    def take(cost: tuple[int, int], reserve: int) -> bool:
        size = (cost[0], cost[1] if counts_bytes else cost[0])
        if any(need + reserve > left for need, left in zip(size, room, strict=True)):
            return False
        room[0] -= size[0]
        room[1] -= size[1]
        return True

    kept: dict[int, int] = {}
    for index in sorted(range(len(ordered)), key=lambda i: (ordered[i].priority, i)):
        block = ordered[index]
        if take(_cost((*block.head, *block.lines, *block.tail)), _NOTE_RESERVE):
            kept[index] = len(block.lines)
            continue
        if len(block.lines) < 2 or not take(_cost((*block.head, *block.tail)), 3 * _NOTE_RESERVE):
            continue
        count = 0
        while count < len(block.lines) - 1 and take(_cost((block.lines[count],)), 2 * _NOTE_RESERVE):
            count += 1
        kept[index] = count
        room[0] -= _NOTE_RESERVE
        room[1] -= _NOTE_RESERVE
    return _written(ordered, kept, limit)


def _written(blocks: tuple[Block, ...], kept: dict[int, int], limit: Limit) -> str:
    written: list[str] = []
    for index, block in enumerate(blocks):
        if index not in kept:
            continue
        missing = len(block.lines) - kept[index]
        note = ("", _missing(missing, block.noun)) if missing else ()
        lines = block.lines[: kept[index]]
        written += [*block.head, *lines, *note, *block.tail] if lines else [*note, ""]
    if len(kept) < len(blocks):
        written.append(_missing(len(blocks) - len(kept), "section"))
    text = "".join(line + "\n" for line in written)
    if limit.holds(len(text), len(text.encode("utf-8"))):
        return text
    first = "".join(line for block in blocks[:1] for line in block.lines[:1])[: max(limit.characters, 0)]
    return first if limit.utf8_bytes is None else cut_utf8(first, limit.utf8_bytes)
