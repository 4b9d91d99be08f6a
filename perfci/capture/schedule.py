"""Which side is launched when: interleaved pairs in ABBA blocks, in an order drawn from a recorded seed.

Two launches that stand next to each other form a pair, so that slow drift of the machine hits both sides of a pair
alike; two pairs form a block in which the second pair has the mirrored order, so that linear drift within the block
cancels exactly. Whether a block is ABBA or BAAB is drawn, so that no periodic disturbance can favour a side (why:
docs/decisions/0035-interleaved-pairs.md). Everything here is pure: the same arguments give the same plan for ever.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

PAIRS_PER_BLOCK = 2


class SideName(StrEnum):
    """Which revision a launch runs."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"

    @property
    def other(self) -> "SideName":
        """The opposite side."""
        return SideName.CANDIDATE if self is SideName.BASELINE else SideName.BASELINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One launch of the plan. ``pair`` counts within the workload, ``position`` over the whole plan, from 0."""

    pair: int
    position: int
    side: SideName
    workload: str = ""


def first_side(*, pair: int, seed: int, workload: str = "") -> SideName:
    """The side that is launched first in a pair. Even pairs draw it, odd pairs mirror the pair before."""
    if pair < 0:
        raise ValueError("pair must not be negative")
    block, second = divmod(pair, PAIRS_PER_BLOCK)
    # A hash, not random.Random: the order must stay the same in every version of Python, because it is recorded
    # by its seed only.
    drawn = SideName.CANDIDATE if _draw(seed, workload, block) & 1 else SideName.BASELINE
    return drawn.other if second else drawn


def pair_slots(*, pair: int, seed: int, workload: str = "", first_position: int) -> tuple[Slot, Slot]:
    """The two launches of one pair, starting at ``first_position``.

    Also for a pair that must be repeated because one of its launches was spoiled: both launches are repeated, in the
    order of the pair, because a launch is comparable only with its neighbour in time.
    """
    first = first_side(pair=pair, seed=seed, workload=workload)
    return (
        Slot(pair=pair, position=first_position, side=first, workload=workload),
        Slot(pair=pair, position=first_position + 1, side=first.other, workload=workload),
    )


def next_round(*, block: int, seed: int, workloads: Sequence[str], first_position: int = 0) -> tuple[Slot, ...]:
    """Block number ``block`` (from 0) of every workload that is still undecided: one step of adaptive effort.

    The blocks stay whole (a pair and its mirror are neighbours in time); the order of the workloads is drawn anew for
    each round, so that none of them always meets the machine in the state that a certain other one left behind. The
    order of sides within a workload does not depend on which other workloads are still open.
    """
    if len(set(workloads)) != len(workloads):
        raise ValueError("workloads must be unique")
    slots: list[Slot] = []
    for workload in sorted(workloads, key=lambda name: (_draw(seed, f"round\0{name}", block), name)):
        for pair in range(block * PAIRS_PER_BLOCK, (block + 1) * PAIRS_PER_BLOCK):
            slots += pair_slots(pair=pair, seed=seed, workload=workload, first_position=first_position + len(slots))
    return tuple(slots)


def _draw(seed: int, stream: str, index: int) -> int:
    digest = hashlib.sha256(f"perfci-schedule\0{seed}\0{stream}\0{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
